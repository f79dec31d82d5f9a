//! Bitset replay windows.

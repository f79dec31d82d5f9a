//! netcode 1.02.

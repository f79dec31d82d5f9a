//! Numbers that wrap.

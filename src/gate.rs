//! One worker's mind, sans I/O.

//! Worlds from seeds.

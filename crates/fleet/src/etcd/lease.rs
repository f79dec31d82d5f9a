//! Leases: what was written with one ends when nobody keeps it alive.

use bytes::Bytes;

use super::error::Error;
use super::wire::{Reader, Writer};

/// A lease as the server tells of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Its name. etcd's are positive.
    pub id: i64,
    /// For how many seconds it lives from now on; 0 or less if it has ended.
    pub ttl_s: i64,
}

impl Lease {
    /// Reads the answer to a grant or to a keep-alive, which number these two alike.
    pub fn decode(message: &Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(message);
        let mut lease = Self::default();
        while let Some((number, value)) = reader.next_field()? {
            match number {
                2 => lease.id = value.int()?,
                3 => lease.ttl_s = value.int()?,
                4 => return Err(Error::status(super::Code::FAILED_PRECONDITION, &value.text()?)),
                _ => {}
            }
        }
        Ok(lease)
    }
}

/// Asks for a lease whose name the server chooses.
pub(crate) fn grant(ttl_s: i64) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.int(1, ttl_s);
    writer.into_bytes()
}

/// Names a lease: for keeping it alive and for ending it.
pub(crate) fn named(id: i64) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.int(1, id);
    writer.into_bytes()
}

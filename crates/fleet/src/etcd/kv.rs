//! Keys and values, and the ranges that are asked for.

use bytes::Bytes;

use super::error::Error;
use super::wire::{Reader, Writer};

/// What every answer begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Names the cluster. Another one is another truth.
    pub cluster_id: u64,
    /// Which member has answered.
    pub member_id: u64,
    /// The store's revision when it answered.
    pub revision: i64,
    /// Counts elections: never goes back in one cluster.
    pub raft_term: u64,
}

impl Header {
    pub(crate) fn decode(message: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(message);
        let mut header = Self::default();
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => header.cluster_id = value.uint()?,
                2 => header.member_id = value.uint()?,
                3 => header.revision = value.int()?,
                4 => header.raft_term = value.uint()?,
                _ => {}
            }
        }
        Ok(header)
    }

    /// Of an answer whose first field it is, as it is in all of etcd's.
    pub(crate) fn of(message: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(message);
        while let Some((number, value)) = reader.next_field()? {
            if number == 1 {
                return Self::decode(value.bytes()?);
            }
        }
        Err(Error::Malformed("an answer has no header"))
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.uint(1, self.cluster_id);
        writer.uint(2, self.member_id);
        writer.int(3, self.revision);
        writer.uint(4, self.raft_term);
    }
}

/// A key with its value and its history in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The whole key, prefix included.
    pub key: Bytes,
    /// What stands there.
    pub value: Bytes,
    /// The revision that created it.
    pub create_revision: i64,
    /// The revision that last changed it.
    pub mod_revision: i64,
    /// How often it was written since it was created.
    pub version: i64,
    /// The lease with which it ends; 0 for none.
    pub lease: i64,
}

impl KeyValue {
    /// Reads one. `message` has to lie within `whole`, whose memory the key and the value share.
    pub(crate) fn decode(whole: &Bytes, message: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(message);
        let mut kv = Self::default();
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => kv.key = whole.slice_ref(value.bytes()?),
                2 => kv.create_revision = value.int()?,
                3 => kv.mod_revision = value.int()?,
                4 => kv.version = value.int()?,
                5 => kv.value = whole.slice_ref(value.bytes()?),
                6 => kv.lease = value.int()?,
                _ => {}
            }
        }
        Ok(kv)
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.bytes(1, &self.key);
        writer.int(2, self.create_revision);
        writer.int(3, self.mod_revision);
        writer.int(4, self.version);
        writer.bytes(5, &self.value);
        writer.int(6, self.lease);
    }
}

/// Asks for all keys from `key` up to `end`; for `key` alone where `end` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first key.
    pub key: Bytes,
    /// The first key behind the range.
    pub end: Bytes,
    /// At most so many; 0 for all.
    pub limit: i64,
    /// As it was at this revision; 0 for now.
    pub revision: i64,
    /// Only how many there are.
    pub count_only: bool,
}

impl Range {
    /// One key, now.
    pub fn one(key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// All keys that begin so, now.
    pub fn prefix(prefix: &[u8]) -> Self {
        let key = Bytes::copy_from_slice(prefix);
        Self { key, end: end_of_prefix(prefix), ..Self::default() }
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.bytes(1, &self.key);
        writer.bytes(2, &self.end);
        writer.int(3, self.limit);
        writer.int(4, self.revision);
        writer.boolean(9, self.count_only);
    }
}

/// What a range has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranged {
    /// Who has answered, and when.
    pub header: Header,
    /// In the order of their keys.
    pub kvs: Vec<KeyValue>,
    /// Whether the limit has cut it.
    pub more: bool,
    /// How many there are in the range, the limit aside.
    pub count: i64,
}

impl Ranged {
    /// Reads an answer.
    pub fn decode(message: &Bytes) -> Result<Self, Error> {
        Self::decode_within(message, message)
    }

    pub(crate) fn decode_within(whole: &Bytes, message: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(message);
        let mut ranged = Self::default();
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => ranged.header = Header::decode(value.bytes()?)?,
                2 => ranged.kvs.push(KeyValue::decode(whole, value.bytes()?)?),
                3 => ranged.more = value.boolean()?,
                4 => ranged.count = value.int()?,
                _ => {}
            }
        }
        Ok(ranged)
    }
}

/// The first key behind all that begin with `prefix`. For the prefix that has no such key, etcd's
/// word for "to the end", a zero byte.
pub fn end_of_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(&[0])
}

/// The key that follows right behind this one: where the next page begins.
pub fn key_after(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_where_the_next_begins() {
        assert_eq!(end_of_prefix(b"a/"), &b"a0"[..]);
        assert_eq!(end_of_prefix(b"a\xff"), &b"b"[..]);
        assert_eq!(end_of_prefix(b"\xff\xff"), &b"\0"[..]);
        assert_eq!(key_after(b"a"), &b"a\0"[..]);
    }

    #[test]
    fn a_key_shares_the_answers_memory() {
        let kv = KeyValue { key: "k".into(), value: "v".into(), lease: -3, ..KeyValue::default() };
        let mut writer = Writer::new();
        writer.message(1, |it| Header { revision: 5, ..Header::default() }.encode(it));
        writer.message(2, |it| kv.encode(it));
        writer.int(4, 1);
        let message = Bytes::from(writer.into_bytes());
        let ranged = Ranged::decode(&message).unwrap();
        assert_eq!(ranged.kvs, [kv]);
        assert_eq!((ranged.header.revision, ranged.count, ranged.more), (5, 1, false));
        assert_eq!(Header::of(&message).unwrap().revision, 5);
    }
}

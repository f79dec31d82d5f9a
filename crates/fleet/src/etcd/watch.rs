//! Watches: what changes within a range, from a revision on, as it happens.

use bytes::Bytes;

use super::error::Error;
use super::kv::{Header, KeyValue};
use super::wire::{Reader, Writer};

/// The name under which etcd answers progress requests that mean all watches of a stream.
///
/// Until 3.4.25 and 3.5.8 such an answer could overtake events that it claims have been sent
/// (etcd issue 15220), so it shows that the server lives and must never advance a revision.
pub const ALL_WATCHES: i64 = -1;

/// Asks for the changes of a range. Long answers come in fragments.
pub(crate) fn create(key: &[u8], end: &[u8], from_revision: i64) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.message(1, |create| {
        create.bytes(1, key);
        create.bytes(2, end);
        create.int(3, from_revision);
        create.boolean(4, true);
        create.boolean(8, true);
    });
    writer.into_bytes()
}

/// Asks whether the watches of this stream are alive.
pub(crate) fn progress() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.message(3, |_| {});
    writer.into_bytes()
}

/// Something that has happened to a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The key is gone; its `mod_revision` is the revision of the delete, its value is empty.
    pub is_delete: bool,
    /// The key as it is now.
    pub kv: KeyValue,
}

/// An answer on a watch's stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Who has answered, and when.
    pub header: Header,
    /// Which watch of the stream.
    pub watch_id: i64,
    /// The watch begins.
    pub created: bool,
    /// The watch has ended.
    pub canceled: bool,
    /// What was asked for is compacted up to here; 0 if it is not.
    pub compact_revision: i64,
    /// Why it has ended.
    pub cancel_reason: String,
    /// More of the same revisions follows.
    pub is_fragment: bool,
    /// In the order of their revisions.
    pub events: Vec<Event>,
}

impl Watched {
    /// Reads an answer.
    pub fn decode(message: &Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(message);
        let mut watched = Self::default();
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => watched.header = Header::decode(value.bytes()?)?,
                2 => watched.watch_id = value.int()?,
                3 => watched.created = value.boolean()?,
                4 => watched.canceled = value.boolean()?,
                5 => watched.compact_revision = value.int()?,
                6 => watched.cancel_reason = value.text()?,
                7 => watched.is_fragment = value.boolean()?,
                11 => watched.events.push(event(message, value.bytes()?)?),
                _ => {}
            }
        }
        Ok(watched)
    }
}

fn event(whole: &Bytes, message: &[u8]) -> Result<Event, Error> {
    let mut reader = Reader::new(message);
    let mut event = Event::default();
    while let Some((number, value)) = reader.next_field()? {
        match number {
            1 => event.is_delete = value.uint()? == 1,
            2 => event.kv = KeyValue::decode(whole, value.bytes()?)?,
            _ => {}
        }
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read() {
        let mut writer = Writer::new();
        writer.message(1, |it| Header { cluster_id: 9, ..Header::default() }.encode(it));
        writer.int(2, ALL_WATCHES);
        writer.boolean(7, true);
        writer.message(11, |event| {
            event.uint(1, 1);
            let gone = KeyValue { key: "k".into(), mod_revision: 8, ..KeyValue::default() };
            event.message(2, |it| gone.encode(it));
        });
        let watched = Watched::decode(&writer.into_bytes().into()).unwrap();
        assert_eq!(watched.watch_id, ALL_WATCHES);
        assert!(watched.is_fragment && !watched.created);
        assert!(watched.events[0].is_delete);
        assert_eq!(watched.events[0].kv.mod_revision, 8);
    }
}

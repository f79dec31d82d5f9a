//! What is asked of etcd, read from the bytes that ask it.

use bytes::Bytes;
use ringgate_fleet::etcd::wire::{Reader, Value, Writer};

/// A question.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Delete(Span),
    Grant(i64),
    Put(Put),
    Range(Range),
    Revoke(i64),
    Txn(Txn),
}

/// Keys from one up to another, or one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    pub(crate) key: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl Span {
    pub(crate) fn one(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), end: Vec::new() }
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        match &self.end[..] {
            [] => key == self.key,
            [0] => key >= &self.key[..],
            end => (&self.key[..]..end).contains(&key),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Range {
    pub(crate) span: Span,
    pub(crate) limit: usize,
    pub(crate) revision: i64,
    pub(crate) count_only: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Put {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) lease: i64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Txn {
    pub(crate) when: Vec<Compare>,
    pub(crate) then: Vec<Op>,
    pub(crate) or_else: Vec<Op>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Delete(Span),
    Put(Put),
    Range(Range),
    Txn(Txn),
}

/// That a number of a key is equal to this.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compare {
    pub(crate) key: Vec<u8>,
    pub(crate) of: u64,
    pub(crate) is: i64,
}

/// A question that begins a conversation.
pub(crate) enum Opening {
    KeepAlive(i64),
    Watch { key: Vec<u8>, end: Vec<u8>, from: i64 },
}

fn fields(message: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut reader = Reader::new(message);
    std::iter::from_fn(|| reader.next_field().expect("a message of ours")).collect()
}

fn bytes(value: Value<'_>) -> Vec<u8> {
    value.bytes().expect("bytes").to_vec()
}

fn int(value: Value<'_>) -> i64 {
    value.int().expect("a number")
}

impl Request {
    pub(crate) fn read(path: &str, message: &[u8]) -> Self {
        match path {
            "/etcdserverpb.KV/DeleteRange" => Self::Delete(span(message)),
            "/etcdserverpb.KV/Put" => Self::Put(put(message)),
            "/etcdserverpb.KV/Range" => Self::Range(range(message)),
            "/etcdserverpb.KV/Txn" => Self::Txn(txn(message)),
            "/etcdserverpb.Lease/LeaseGrant" => Self::Grant(first(message)),
            "/etcdserverpb.Lease/LeaseRevoke" => Self::Revoke(first(message)),
            other => panic!("nobody asks {other}"),
        }
    }
}

impl Opening {
    pub(crate) fn read(path: &str, message: &[u8]) -> Self {
        if path.ends_with("LeaseKeepAlive") {
            return Self::KeepAlive(first(message));
        }
        let create = fields(message).into_iter().find(|it| it.0 == 1).map(|it| bytes(it.1));
        let create = create.expect("a watch is made");
        let (mut key, mut end, mut from) = (Vec::new(), Vec::new(), 0);
        for (number, value) in fields(&create) {
            match number {
                1 => key = bytes(value),
                2 => end = bytes(value),
                3 => from = int(value),
                _ => {}
            }
        }
        Self::Watch { key, end, from }
    }
}

/// The first number of a message.
fn first(message: &[u8]) -> i64 {
    fields(message).into_iter().find(|it| it.0 == 1).map_or(0, |it| int(it.1))
}

fn span(message: &[u8]) -> Span {
    let mut span = Span::default();
    for (number, value) in fields(message) {
        match number {
            1 => span.key = bytes(value),
            2 => span.end = bytes(value),
            _ => {}
        }
    }
    span
}

fn range(message: &[u8]) -> Range {
    let mut range = Range { span: span(message), ..Range::default() };
    for (number, value) in fields(message) {
        match number {
            3 => range.limit = int(value) as usize,
            4 => range.revision = int(value),
            9 => range.count_only = value.boolean().expect("a boolean"),
            _ => {}
        }
    }
    range
}

fn put(message: &[u8]) -> Put {
    let mut put = Put::default();
    for (number, value) in fields(message) {
        match number {
            1 => put.key = bytes(value),
            2 => put.value = bytes(value),
            3 => put.lease = int(value),
            _ => {}
        }
    }
    put
}

fn txn(message: &[u8]) -> Txn {
    let mut txn = Txn::default();
    for (number, value) in fields(message) {
        let inner = bytes(value);
        match number {
            1 => txn.when.push(compare(&inner)),
            2 => txn.then.push(op(&inner)),
            3 => txn.or_else.push(op(&inner)),
            _ => {}
        }
    }
    txn
}

fn op(message: &[u8]) -> Op {
    let (number, value) = fields(message).into_iter().next().expect("a step");
    let inner = bytes(value);
    match number {
        1 => Op::Range(range(&inner)),
        2 => Op::Put(put(&inner)),
        3 => Op::Delete(span(&inner)),
        4 => Op::Txn(txn(&inner)),
        other => panic!("no step has the number {other}"),
    }
}

fn compare(message: &[u8]) -> Compare {
    let mut compare = Compare::default();
    for (number, value) in fields(message) {
        match number {
            2 => compare.of = value.uint().expect("a number"),
            3 => compare.key = bytes(value),
            4..=8 => compare.is = int(value),
            _ => {}
        }
    }
    compare
}

/// The bytes of a whole message.
pub(crate) fn message(write: impl FnOnce(&mut Writer)) -> Bytes {
    let mut writer = Writer::new();
    write(&mut writer);
    writer.into_bytes().into()
}

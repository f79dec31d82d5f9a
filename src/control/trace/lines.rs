//! What a trace tells, as lines: one JSON object each, with the same in words.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::super::sessions::row;
use super::super::view::Snapshot;
use super::words;
use ringgate_core::drops::DropCounts;
use ringgate_gate::{BackendId, Detail, Fact, ListenerId, Record, SessionInfo, Setup, WorkerId};
use ringgate_report::text::time;

/// Lines that are not sent yet.
#[derive(Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take_into(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.0);
    }

    pub(super) fn push(&mut self, line: &Value) {
        self.0.extend_from_slice(line.to_string().as_bytes());
        self.push_empty();
    }

    /// A line that says that all is well.
    pub(super) fn push_empty(&mut self) {
        self.0.push(b'\n');
    }

    /// A session that was there before the trace began.
    pub(super) fn here(&mut self, snapshot: &Snapshot<'_>, worker: WorkerId, info: &SessionInfo) {
        let mut line = row(snapshot, worker, info);
        let backend = backend_name(&snapshot.live.setup, info.backend);
        let silent_ns = snapshot.now_ns.saturating_sub(info.heard_ns);
        line["event"] = "here".into();
        line["text"] = format!(
            "has session {:016x} at backend {backend}, slot {}; last heard {} ago",
            info.id,
            info.slot.0,
            time(silent_ns)
        )
        .into();
        self.push(&line);
    }

    /// A decision.
    pub(super) fn record(&mut self, setup: &Setup, record: &Record, unix_ms: u64) {
        let mut line = Map::new();
        let (event, text) = told(setup, record, &mut line);
        line.insert("event".to_owned(), event.into());
        line.insert("unix_ms".to_owned(), unix_ms.into());
        line.insert("worker".to_owned(), record.worker.0.into());
        line.insert("listener".to_owned(), listener_name(setup, record.listener).into());
        let address = SocketAddr::from(record.address);
        line.insert("address".to_owned(), address.to_string().into());
        if let Some(client_id) = record.client_id {
            line.insert("client_id".to_owned(), client_id.into());
            line.insert("client_id_text".to_owned(), client_id.to_string().into());
        }
        line.insert("text".to_owned(), text.into());
        self.push(&Value::Object(line));
    }

    pub(super) fn carried(&mut self, unix_ms: u64, datagrams: u64, dropped: u64) {
        let text = match dropped {
            0 => format!("{datagrams} datagrams came and went on"),
            _ => format!("{datagrams} datagrams came, {dropped} of them went no further"),
        };
        self.push(&json!({
            "event": "carried", "unix_ms": unix_ms, "datagrams": datagrams, "dropped": dropped, "text": text
        }));
    }

    /// Datagrams that no gate has seen.
    pub(super) fn filtered(&mut self, unix_ms: u64, count: u64) {
        let text = format!(
            "the listeners' socket filters refused {count} datagrams of anybody's: no packets of the protocol, or requests for another \
             protocol id or version (with `filter = false` a trace sees them)"
        );
        self.push(
            &json!({ "event": "filtered", "unix_ms": unix_ms, "count": count, "text": text }),
        );
    }

    /// Datagrams that may have been of the player that is asked about.
    pub(super) fn nameless(&mut self, unix_ms: u64, before: &DropCounts, now: &DropCounts) {
        let new = |(why, count)| (why, count - before.of(why));
        let reasons: Vec<_> = now.iter().map(new).filter(|(_, count)| *count > 0).collect();
        let total: u64 = reasons.iter().map(|(_, count)| count).sum();
        let listed: Vec<_> =
            reasons.iter().map(|(why, count)| format!("{} {count}", why.name())).collect();
        let counts: Map<_, _> =
            reasons.iter().map(|(why, count)| (why.name().to_owned(), (*count).into())).collect();
        let text = format!(
            "{total} packets were dropped that name no player ({}); if the player's are among them: trace --address",
            listed.join(", ")
        );
        self.push(
            &json!({ "event": "nameless", "unix_ms": unix_ms, "reasons": counts, "text": text }),
        );
    }
}

/// The name of a fact, the fact in words, and its fields into `line`.
fn told(setup: &Setup, record: &Record, line: &mut Map<String, Value>) -> (&'static str, String) {
    let mut put = |name: &str, value: Value| line.insert(name.to_owned(), value);
    match record.fact {
        Fact::AskedToRestart => (
            "asked_to_restart",
            "a game packet that fits no session here: asked to begin the handshake again".to_owned(),
        ),
        Fact::Began { session, backend, slot, took_ns } => {
            let backend = backend_name(setup, backend);
            put("session", format!("{session:016x}").into());
            put("backend", backend.into());
            put("slot", slot.0.into());
            put("took_ms", (took_ns / NS_PER_MS).into());
            let took = time(took_ns);
            let slot = slot.0;
            let text = format!(
                "session {session:016x} began at backend {backend}, slot {slot}, after {took}"
            );
            ("session_began", text)
        }
        Fact::Challenged => {
            ("challenged", "asked to prove the address (challenge sent)".to_owned())
        }
        Fact::Denied => ("denied", "told that it may not come in (denial sent)".to_owned()),
        Fact::Displaced => (
            "displaced",
            "another player is at this address now: the session waits until its own has shown where it is"
                .to_owned(),
        ),
        Fact::Dropped { why, detail } => {
            put("reason", why.name().into());
            detail_fields(&detail, &mut put);
            let why_so = words::of(setup, record.listener, why, detail);
            ("dropped", format!("dropped, {}: {why_so}", why.name()))
        }
        Fact::Ended { why } => {
            put("reason", why.name().into());
            ("session_ended", format!("the session ended, {}: {}", why.name(), why.sentence()))
        }
        Fact::Moved { from } => {
            let from = SocketAddr::from(from).to_string();
            let text = format!("the session has followed its player here from {from}");
            put("from", from.into());
            ("moved", text)
        }
        Fact::Opened { key, left_s } => {
            put("key", key.into());
            put("left_s", left_s.into());
            let under = match key {
                0 => "the listener's current key".to_owned(),
                n => format!("an older key of the listener (number {n} behind the current one)"),
            };
            let until = match left_s {
                FOR_EVER_S.. => "it never expires".to_owned(),
                _ => format!("it expires in {left_s} s"),
            };
            ("token_opened", format!("request seen, its token opened under {under}; {until}"))
        }
        Fact::TookOver { backend, slot } => {
            let (backend, slot) = (backend_name(setup, backend), slot.0);
            put("backend", backend.into());
            put("slot", slot.into());
            let text = format!(
                "taken over from a member that is gone: backend {backend}, slot {slot}"
            );
            ("took_over", text)
        }
        Fact::SentOn => (
            "sent_on",
            "a datagram was sent on to the member of the cluster that may have the player".to_owned(),
        ),
        Fact::WentOver { from, to, slot } => {
            let (from, to, slot) = (backend_name(setup, from), backend_name(setup, to), slot.0);
            put("from", from.into());
            put("backend", to.into());
            put("slot", slot.into());
            let text = format!("moved from backend {from} to backend {to}, slot {slot}");
            ("went_over", text)
        }
        Fact::Waits { backend } => {
            let backend = backend_name(setup, backend);
            put("backend", backend.into());
            ("waits", format!("passed on to backend {backend}: its answer decides"))
        }
    }
}

fn detail_fields(detail: &Detail, put: &mut impl FnMut(&str, Value) -> Option<Value>) {
    match *detail {
        Detail::Nothing => {}
        Detail::Expired { ago_s } => {
            put("expired_ago_s", ago_s.into());
        }
        Detail::Length { bytes } => {
            put("bytes", bytes.into());
        }
        Detail::Names { first, others } => {
            put("token_names", first.to_string().into());
            put("token_names_others", others.into());
        }
        Detail::Protocol { found, expected } => {
            put("protocol_id", format!("{found:#018x}").into());
            put("expected_protocol_id", format!("{expected:#018x}").into());
        }
        Detail::Sequence { found, newest } => {
            put("sequence", found.into());
            put("newest_sequence", newest.into());
        }
    }
}

pub(super) fn listener_name(setup: &Setup, listener: ListenerId) -> &str {
    setup.listeners.get(listener).map_or("", |it| &it.name)
}

fn backend_name(setup: &Setup, backend: BackendId) -> &str {
    setup.backends.get(backend).map_or("", |it| &it.name)
}

const NS_PER_MS: u64 = 1_000_000;

/// A century.
const FOR_EVER_S: u64 = 100 * 365 * 86_400;

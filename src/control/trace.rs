//! `GET /trace`: what is decided about one player, or about everybody at some addresses, as it
//! happens and in words.
//!
//! Workers put their decisions into a queue with a bound ([`ringgate_gate::Trace`]); here they are
//! taken out, and every one becomes a line. It shows players' addresses, so who may not see these
//! may not ask. It ends by itself, and when its reader goes.

mod lines;
mod words;

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use super::http::{AdminState, Command};
use super::sessions::{answer, client_id};
use super::streaming::{Then, stream};
use super::view::View;
use lines::Lines;
use ringgate_core::drops::DropCounts;
use ringgate_gate::{Record, Trace, Wanted, Watched};
use ringgate_os::clock;
use ringgate_process::pages::{NotDone, Query, Reply, SCHEMA, Visit, note, wrong};

/// `GET /trace?client=` or `?address=`, `&for_ms=`.
pub(super) async fn show(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, visitor, uri } = &visit;
    let query = Query::of(uri, &["client_id", "client", "address", "for_ms"])?;
    let lasts = query.read("for_ms", "milliseconds, at most an hour", |text| {
        text.parse().ok().filter(|ms| *ms <= LASTS_MAX_MS).map(Duration::from_millis)
    })?;
    let lasts = lasts.unwrap_or(LASTS);
    let (watched, whom) = watched(state, &query)?;
    let place = state.trace_place().ok_or_else(|| {
        let busy = format!("{TRACES_MAX} traces run already: end one, or wait\n");
        (StatusCode::TOO_MANY_REQUESTS, busy)
    })?;
    note(visitor, &format!("trace of {whom}"));
    let until_ns = state.view().now_ns() + lasts.as_nanos() as u64;
    let (trace, records) = Trace::new(watched, until_ns, RECORDS_MAX);
    // From here on its end is seen to, whatever happens.
    let mut follower = Follower::new(state, trace, records, (whom, lasts), place);
    state.ask(|reply| Command::Trace { trace: Arc::clone(&follower.trace), reply }).await?;
    follower.tell_who_is_here(state, watched).await?;
    let fill = move |out: &mut Vec<u8>| follower.fill(out);
    Ok(stream(JSON_LINES, (lasts + GRACE, LOOK_EVERY), fill))
}

/// Whose packets a request means, and that in words.
fn watched(state: &AdminState, query: &Query) -> Result<(Watched, String), NotDone> {
    let client = client_id(query)?;
    let address = query.read("address", "an address or a prefix", |text| text.parse().ok())?;
    match (client, address) {
        (Some(client_id), None) => {
            let setup = Arc::clone(&state.view().live().setup);
            if setup.listeners.iter().any(|listener| listener.netcode().is_some()) {
                return Ok((Watched::Client(client_id), format!("client {client_id}")));
            }
            Err(wrong(
                "no listener here speaks netcode, and other players have no client id: use address=PREFIX",
            ))
        }
        (None, Some(prefix)) => {
            let text = query.text("address").unwrap_or_default();
            Ok((Watched::Addresses(prefix), format!("address {text}")))
        }
        _ => Err(wrong("expected client=ID or address=PREFIX")),
    }
}

/// A trace, its queue, and what its reader has been told.
struct Follower {
    trace: Arc<Trace>,
    records: Receiver<Record>,
    view: Arc<View>,
    whom: String,
    until_ns: u64,
    /// When something was last sent.
    sent_ns: u64,
    /// When the next look at what is counted is due.
    counted_ns: u64,
    lines: Lines,
    told: Told,
    _place: OwnedSemaphorePermit,
}

/// What was counted when it was last told.
struct Told {
    records: u64,
    missed: u64,
    carried: (u64, u64),
    nameless: DropCounts,
    filtered: u64,
}

impl Follower {
    fn new(
        state: &AdminState,
        trace: Arc<Trace>,
        records: Receiver<Record>,
        (whom, lasts): (String, Duration),
        place: OwnedSemaphorePermit,
    ) -> Self {
        let view = state.shared_view();
        let now_ns = view.now_ns();
        let filtered = filtered(&view);
        let mut lines = Lines::default();
        lines.push(&json!({
            "event": "begin",
            "schema": SCHEMA,
            "unix_ms": clock::unix_ns() / NS_PER_MS,
            "whom": whom,
            "for_ms": lasts.as_millis() as u64,
            "text": format!("tracing {whom} for {} s", lasts.as_secs_f64()),
        }));
        Self {
            trace,
            records,
            whom,
            until_ns: now_ns + lasts.as_nanos() as u64,
            sent_ns: now_ns,
            counted_ns: now_ns + COUNT_EVERY_NS,
            lines,
            told: Told {
                records: 0,
                missed: 0,
                carried: (0, 0),
                nameless: DropCounts::new(),
                filtered,
            },
            view,
            _place: place,
        }
    }

    /// Sessions that are there already: nothing else might be decided about them.
    async fn tell_who_is_here(
        &mut self,
        state: &AdminState,
        watched: Watched,
    ) -> Result<(), NotDone> {
        let wanted = match watched {
            Watched::Client(client_id) => {
                Wanted { client_id: Some(client_id), ..Wanted::default() }
            }
            Watched::Addresses(prefix) => Wanted { address: Some(prefix), ..Wanted::default() },
        };
        let ask = |reply| Command::Survey { wanted, ends: None, limit: HERE_MAX, reply };
        let (found, _) = answer(&*state.ask(ask).await?).await;
        let snapshot = self.view.snapshot();
        for (worker, info) in &found.sessions {
            self.lines.here(&snapshot, *worker, info);
        }
        if found.count == 0 {
            let text = format!("{} has no session now", self.whom);
            self.lines.push(&json!({ "event": "nobody", "text": text }));
        }
        Ok(())
    }

    /// Appends what there is to be told.
    fn fill(&mut self, out: &mut Vec<u8>) -> Then {
        let now_ns = self.view.now_ns();
        let successor = self.view.successor();
        let is_over = now_ns >= self.until_ns || successor.is_some();
        let setup = Arc::clone(&self.view.live().setup);
        let unix_ns = clock::unix_ns();
        // However many come, others have their turn.
        for record in self.records.try_iter().take(RECORDS_PER_LOOK) {
            let ago_ns = now_ns.saturating_sub(record.at_ns);
            self.lines.record(&setup, &record, unix_ns.saturating_sub(ago_ns) / NS_PER_MS);
            self.told.records += 1;
        }
        if is_over || now_ns >= self.counted_ns {
            self.counted_ns = now_ns + COUNT_EVERY_NS;
            self.tell_counts(unix_ns / NS_PER_MS);
        }
        if is_over {
            let (records, missed) = (self.told.records, self.trace.missed());
            let arrived = records + missed + self.told.carried.0 + self.told.nameless.total();
            let whom = &self.whom;
            let nothing = match arrived {
                0 => format!(": nothing of {whom} has arrived"),
                _ => String::new(),
            };
            let (reason, why) = match successor {
                None => ("time", "the time is over".to_owned()),
                Some(pid) => (
                    "handed_over",
                    format!("the gateway was handed over to process {pid}, begin it anew"),
                ),
            };
            self.lines.push(&json!({
                "event": "end",
                "reason": reason,
                "unix_ms": unix_ns / NS_PER_MS,
                "records": records,
                "missed": missed,
                "text": format!("{why}: {records} decisions, {missed} more that did not fit{nothing}"),
            }));
        } else if self.lines.is_empty() && now_ns >= self.sent_ns + ALIVE_EVERY_NS {
            self.lines.push_empty();
        }
        if !self.lines.is_empty() {
            self.sent_ns = now_ns;
        }
        self.lines.take_into(out);
        if is_over { Then::End } else { Then::GoOn }
    }

    /// What is told by number, once a second where it has changed.
    fn tell_counts(&mut self, unix_ms: u64) {
        let carried = self.trace.carried();
        if carried != self.told.carried {
            let told = std::mem::replace(&mut self.told.carried, carried);
            let datagrams = carried.0.saturating_sub(told.0);
            let dropped = carried.1.saturating_sub(told.1);
            self.lines.carried(unix_ms, datagrams, dropped);
        }
        let missed = self.trace.missed();
        let new = missed.saturating_sub(std::mem::replace(&mut self.told.missed, missed));
        if new > 0 {
            let text = format!("{new} decisions did not fit into the queue and are not shown");
            self.lines.push(
                &json!({ "event": "missed", "unix_ms": unix_ms, "count": new, "text": text }),
            );
        }
        let filtered = filtered(&self.view);
        let new = filtered.saturating_sub(std::mem::replace(&mut self.told.filtered, filtered));
        if new > 0 {
            self.lines.filtered(unix_ms, new);
        }
        let nameless = self.trace.nameless();
        if nameless != self.told.nameless {
            let told = std::mem::replace(&mut self.told.nameless, nameless.clone());
            self.lines.nameless(unix_ms, &told, &nameless);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.trace.end();
        let (whom, records, missed) = (&self.whom, self.told.records, self.trace.missed());
        tracing::info!(
            event = "trace_end",
            whom,
            records,
            missed,
            "the trace of {whom} is over: {records} decisions"
        );
    }
}

/// What the sockets' filters have refused so far, where the kernel tells.
fn filtered(view: &View) -> u64 {
    view.snapshot().socket_drops.map_or(0, |split| split.refusals())
}

/// How many may go on at once: each costs the workers something for what it asks about.
pub(super) const TRACES_MAX: usize = 4;

/// Records that can wait for the control thread: half a megabyte.
const RECORDS_MAX: usize = 4096;

/// Twenty times a second.
const RECORDS_PER_LOOK: usize = 512;

/// Sessions that are told at the beginning.
const HERE_MAX: usize = 100;

const LASTS: Duration = Duration::from_mins(1);
const LASTS_MAX_MS: u64 = 3_600_000;

/// For the last lines to be read.
const GRACE: Duration = Duration::from_secs(30);

/// Often enough for who reads along, and seldom enough to cost nothing.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const COUNT_EVERY_NS: u64 = 1_000_000_000;

/// Readers are told that nothing has happened, so that they can tell it from a gateway that hangs.
const ALIVE_EVERY_NS: u64 = 5_000_000_000;

const NS_PER_MS: u64 = 1_000_000;

const JSON_LINES: &str = "application/x-ndjson";

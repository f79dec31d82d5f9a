//! `GET /capture`: players' datagrams as they come in and leave, with what has become of each, as a
//! file that Wireshark reads.
//!
//! Workers put copies into boxes of which there are so many ([`ringgate_gate::Capture`]), and never
//! wait; here they are taken out and become blocks of the file. It shows players' addresses and
//! what they send, so who may not see these may not ask. It ends by itself, and when its reader
//! goes.

mod comment;
mod file;

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use super::http::{AdminState, Command};
use super::sessions::{answer, client_id};
use super::streaming::{Then, stream};
use super::view::View;
use file::File;
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_gate::{Capture, Ledger, ListenerId, Meant, Phase, Wanted};
use ringgate_process::pages::{NotDone, Query, Reply, Visit, Visitor, note, wrong};
use ringgate_report::text::Append as _;

/// `GET /capture?listener=&client=&address=&reason=&reason=&decrypted&packets=&for_ms=&snaplen=`.
pub(super) async fn show(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, visitor, uri } = &visit;
    let query = Query::of(uri, FIELDS)?;
    let asked = Asked::read(state, &query)?;
    let place = state.capture_place().ok_or_else(|| {
        let busy = format!("{CAPTURES_MAX} captures run already: end one, or wait\n");
        (StatusCode::TOO_MANY_REQUESTS, busy)
    })?;
    note(visitor, &asked.what);
    let homes = match asked.meant.client_id {
        Some(client_id) => homes(state, client_id).await?,
        None => Vec::new(),
    };
    let workers = state.view().published().len();
    let lasts = asked.lasts;
    // Whether its reader takes it or not.
    let until_ns = state.view().now_ns() + (lasts + GRACE).as_nanos() as u64;
    let capture = Capture::new(asked.meant.clone(), asked.in_clear, until_ns, homes, workers);
    // From here on its end is seen to, whatever happens.
    let mut follower = Follower::new(state, Arc::new(capture), asked, visitor, place);
    let ask = |reply| Command::Capture { capture: Arc::clone(&follower.capture), reply };
    state.ask(ask).await?;
    let fill = move |out: &mut Vec<u8>| follower.fill(out);
    Ok(stream(PCAPNG, (lasts + GRACE, LOOK_EVERY), fill))
}

/// What a request asks for.
struct Asked {
    meant: Meant,
    in_clear: bool,
    packets_max: u64,
    lasts: Duration,
    snaplen: u32,
    /// All of that in words.
    what: String,
}

impl Asked {
    fn read(state: &AdminState, query: &Query) -> Result<Self, NotDone> {
        let listener =
            query.text("listener").map(|name| listener_named(state, name)).transpose()?;
        let client_id = client_id(query)?;
        let address = query.read("address", "an address or a prefix", |text| text.parse().ok())?;
        let reasons = query.all("reason").map(reason_named).collect::<Result<Vec<_>, _>>()?;
        if listener.is_none() && client_id.is_none() && address.is_none() && reasons.is_empty() {
            return Err(wrong("expected listener=, client_id=, address= or reason=, or several"));
        }
        let bounded = |name, expected, range: std::ops::RangeInclusive<u64>| {
            query.read(name, expected, |text| text.parse().ok().filter(|it| range.contains(it)))
        };
        let packets_max = bounded("packets", "a number up to 10000000", 1..=PACKETS_MAX)?;
        let lasts_ms = bounded("for_ms", "milliseconds, at most an hour", 1..=LASTS_MAX_MS)?;
        let snaplen = bounded("snaplen", "bytes from 48 to 65535", 48..=SNAPLEN_MAX)?;
        let in_clear = query.text("decrypted").is_some();
        Ok(Self {
            what: what(query, in_clear),
            meant: Meant { listener, client_id, address, reasons },
            in_clear,
            packets_max: packets_max.unwrap_or(PACKETS),
            lasts: lasts_ms.map_or(LASTS, Duration::from_millis),
            snaplen: snaplen.unwrap_or(SNAPLEN_MAX) as u32,
        })
    }
}

/// For the log and for the file itself.
fn what(query: &Query, in_clear: bool) -> String {
    let mut what = "capture".to_owned();
    for (name, word) in [
        ("listener", "listener"),
        ("client_id", "client"),
        ("client", "client"),
        ("address", "address"),
        ("reason", "drop reason"),
    ] {
        for value in query.all(name) {
            let joint = if what == "capture" { " of" } else { "," };
            write!(what, "{joint} {word} {value}");
        }
    }
    if in_clear {
        what.push_str(", with payloads in clear");
    }
    what
}

fn listener_named(state: &AdminState, name: &str) -> Result<ListenerId, NotDone> {
    let setup = Arc::clone(&state.view().live().setup);
    let of_name = |phase: Phase| {
        let mut listeners = setup.listeners.pairs();
        listeners.find_map(|(id, it)| (it.name == name && it.phase == phase).then_some(id))
    };
    // One that drains, and another of its name, may be there beside each other.
    let found = of_name(Phase::Serving).or_else(|| of_name(Phase::Draining));
    found.ok_or_else(|| (StatusCode::NOT_FOUND, format!("there is no listener {name:?}\n")))
}

/// Only reasons for which a datagram of a player's, or for a player, goes no further.
fn reason_named(name: &str) -> Result<DropReason, NotDone> {
    let known = DropReason::ALL.iter().find(|why| why.name() == name);
    let why = known.ok_or_else(|| {
        wrong(format_args!(
            "reason: found {name:?}, expected one of those that `ringgate status` shows"
        ))
    })?;
    match Ledger::of(*why) {
        Ledger::Datagrams | Ledger::Departures | Ledger::Uplink => Ok(*why),
        Ledger::Downlink | Ledger::Links | Ledger::MessagesDown | Ledger::MessagesUp => {
            Err(wrong(format_args!(
                "reason: {name} is about what links carry, and a capture shows players' datagrams"
            )))
        }
    }
}

/// Where a player is now.
async fn homes(state: &AdminState, client_id: u64) -> Result<Vec<(ListenerId, Endpoint)>, NotDone> {
    let wanted = Wanted { client_id: Some(client_id), ..Wanted::default() };
    let ask = |reply| Command::Survey { wanted, ends: None, limit: HOMES_MAX, reply };
    let (found, _) = answer(&*state.ask(ask).await?).await;
    Ok(found.sessions.iter().map(|(_, info)| (info.listener, info.address)).collect())
}

/// A capture, and the file that it becomes.
struct Follower {
    capture: Arc<Capture>,
    view: Arc<View>,
    file: File,
    what: String,
    until_ns: u64,
    packets_max: u64,
    /// When something was last sent.
    sent_ns: u64,
    /// Why it is over, in a word for the log.
    reason: &'static str,
    place: Option<OwnedSemaphorePermit>,
}

impl Follower {
    fn new(
        state: &AdminState,
        capture: Arc<Capture>,
        asked: Asked,
        visitor: &Visitor,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let view = state.shared_view();
        let now_ns = view.now_ns();
        Self {
            file: File::new(&view, &asked, visitor),
            capture,
            what: asked.what,
            until_ns: now_ns + asked.lasts.as_nanos() as u64,
            packets_max: asked.packets_max,
            sent_ns: now_ns,
            reason: "reader_gone",
            view,
            place: Some(place),
        }
    }

    /// Appends what has been captured.
    fn fill(&mut self, out: &mut Vec<u8>) -> Then {
        let now_ns = self.view.now_ns();
        // However many come, others have their turn.
        let left = (self.packets_max - self.file.packets()).min(PACKETS_PER_LOOK);
        self.file.add(&self.view, &self.capture, left, out);
        let over = if self.file.packets() >= self.packets_max {
            Some(("packets", "as many packets as were asked for"))
        } else if self.file.is_of_nobody() {
            Some(("listener_gone", "its listener has gone"))
        } else if self.view.successor().is_some() {
            Some(("handed_over", "the gateway was handed over to another process, begin it anew"))
        } else {
            (now_ns >= self.until_ns).then_some(("time", "the time is over"))
        };
        if let Some((reason, why)) = over {
            self.reason = reason;
            self.capture.end();
            self.file.end(&self.capture, why, out);
            return Then::End;
        }
        if out.is_empty() && now_ns >= self.sent_ns + ALIVE_EVERY_NS {
            self.file.count(&self.capture, out);
        }
        if !out.is_empty() {
            self.sent_ns = now_ns;
        }
        Then::GoOn
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.capture.end();
        let (what, reason) = (&self.what, self.reason);
        let (packets, lost) = (self.file.packets(), self.file.lost(&self.capture));
        tracing::info!(
            event = "capture_end",
            what,
            reason,
            packets,
            lost,
            "the {what} is over: {packets} packets, {lost} lost"
        );
        // Its memory is given back here, and not by the last worker that lets go of it.
        let kept = (Arc::clone(&self.capture), self.place.take());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                for _ in 0..HOME_TRIES {
                    if kept.0.is_home() {
                        break;
                    }
                    tokio::time::sleep(HOME_TRY_EVERY).await;
                }
            });
        }
    }
}

const FIELDS: &[&str] = &[
    "listener",
    "client_id",
    "client",
    "address",
    "reason",
    "decrypted",
    "packets",
    "for_ms",
    "snaplen",
];

/// How many may go on at once: each costs the workers a copy of what it asks for.
pub(super) const CAPTURES_MAX: usize = 4;

/// Addresses of a player that are known from the beginning.
const HOMES_MAX: usize = 16;

const PACKETS: u64 = 100_000;
const PACKETS_MAX: u64 = 10_000_000;
const PACKETS_PER_LOOK: u64 = 4096;

const SNAPLEN_MAX: u64 = 65_535;

const LASTS: Duration = Duration::from_mins(1);
const LASTS_MAX_MS: u64 = 3_600_000;

/// For the last packets to be read.
const GRACE: Duration = Duration::from_secs(30);

/// Often enough for a worker's boxes not to fill up at a hundred thousand datagrams a second.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Readers are told that nothing has happened, so that they can tell it from a gateway that hangs.
const ALIVE_EVERY_NS: u64 = 2_000_000_000;

const HOME_TRIES: u32 = 100;
const HOME_TRY_EVERY: Duration = Duration::from_millis(50);

const PCAPNG: &str = "application/x-pcapng";

//! What is counted, and the page that tells it (Prometheus's text format).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringgate_fleet::epochs::Epoch;
use ringgate_fleet::member::MemberStatus;
use ringgate_process::doors;
use ringgate_report::metrics::{Kind, Text};
use ringgate_report::numbers;

use crate::desk::Desk;
use crate::refusal::Refusal;

/// Counters of a service.
#[derive(Debug)]
pub struct Counters {
    /// Tokens that were made.
    pub tokens: AtomicU64,
    /// Places that were given without a token.
    pub places: AtomicU64,
    /// Requests that were answered from the memory.
    pub repeats: AtomicU64,
    /// What happened at the doors of all threads.
    pub door: Arc<doors::DoorCounts>,
    /// TLS handshakes that failed.
    pub handshakes_failed: AtomicU64,
    /// Decisions about slots that were written.
    pub decisions: AtomicU64,
    /// Decisions that another service was faster than.
    pub decisions_lost: AtomicU64,
    /// Decisions that etcd did not answer.
    pub decisions_failed: AtomicU64,
    /// Times when the lease of all blocks has ended while this process lived.
    pub leases_lost: AtomicU64,
    refusals: Vec<AtomicU64>,
    /// Requests by the time that they took: one for each bound, and one for all longer ones.
    took: [AtomicU64; BOUNDS_US.len() + 1],
    took_sum_us: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            tokens: zero(),
            places: zero(),
            repeats: zero(),
            door: Arc::default(),
            handshakes_failed: zero(),
            decisions: zero(),
            decisions_lost: zero(),
            decisions_failed: zero(),
            leases_lost: zero(),
            refusals: Refusal::ALL.iter().map(|_| zero()).collect(),
            took: std::array::from_fn(|_| zero()),
            took_sum_us: zero(),
        }
    }
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// How the service stands, beside its counters.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// As any process of the fleet.
    pub member: MemberStatus,
    /// Bytes of answers that are kept.
    pub memory_bytes: usize,
    /// Whether it serves.
    pub is_ready: bool,
    /// Whether what it promises is written for the next start.
    pub keeps_promises: bool,
}

impl Counters {
    /// Counts a refusal.
    pub fn refuse(&self, why: Refusal) {
        let at = Refusal::ALL.iter().position(|it| *it == why).expect("all are listed");
        add(&self.refusals[at], 1);
    }

    /// How often this was the reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        let at = Refusal::ALL.iter().position(|it| *it == why).expect("all are listed");
        read(&self.refusals[at])
    }

    /// Counts how long a request took.
    pub fn took(&self, us: u64) {
        let at = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        add(&self.took[at], 1);
        add(&self.took_sum_us, us);
    }

    /// The page.
    pub fn page(&self, desk: &Desk, standing: &Standing) -> String {
        let (mut text, door) = (Text::default(), &self.door);
        numbers! { text, TOKENS;
            Counter "tokens_total", "Tokens that were made.", read(&self.tokens);
            Counter "places_total", "Places that were given without a token.", read(&self.places);
            Counter "repeats_total",
                "Requests that were answered from the memory.", read(&self.repeats);
            Counter "connections_total", "Connections that were taken.", read(&door.connections);
            Counter "connections_evicted_total",
                "Connections that made room for others.", read(&door.evicted);
            Counter "connections_refused_total",
                "Connections that found every place taken by a request that was being served.",
                read(&door.crowded_out);
            Counter "handshakes_failed_total",
                "TLS handshakes that failed.", read(&self.handshakes_failed);
            Counter "slot_decisions_total",
                "Decisions about slots that were written.", read(&self.decisions);
            Counter "slot_decisions_lost_total",
                "Decisions about slots that another service was faster than.",
                read(&self.decisions_lost);
            Counter "slot_decisions_failed_total",
                "Decisions about slots that etcd did not answer.", read(&self.decisions_failed);
            Counter "slot_leases_lost_total",
                "Times when the lease of all blocks ended while the process lived.",
                read(&self.leases_lost);
        }
        self.put_refusals(&mut text);
        self.put_times(&mut text);
        put_gauges(&mut text, desk, standing);
        let from = "When tokens were first made with a key of a listener.";
        let until = "When no token is made with a key of a listener any more.";
        for (name, help, is_end) in [
            ("ringgate_tokens_key_minted_from_timestamp_seconds", from, false),
            ("ringgate_tokens_key_minted_until_timestamp_seconds", until, true),
        ] {
            let mut times = text.gauge(name, help);
            for (listener, Epoch { number, validity }) in desk.known().epochs() {
                let number = number.to_string();
                let labels = [("listener", listener.as_str()), ("epoch", &number)];
                times.sample(&labels, if is_end { validity.mint_until } else { validity.from });
            }
        }
        let help = "Keys that are held back, by class.";
        text.gauge("ringgate_fleet_held_back", help)
            .by("class", standing.member.mirror.held_back());
        text.into_string()
    }

    fn put_refusals(&self, text: &mut Text) {
        let help = "Requests that were not served, by reason.";
        let refusals = Refusal::ALL.iter().zip(&self.refusals);
        text.counter("ringgate_tokens_refusals_total", help)
            .by("reason", refusals.map(|(why, counter)| (why.word(), read(counter))));
    }

    fn put_times(&self, text: &mut Text) {
        let help = "How long requests took, from their head to their answer.";
        let mut times = text.family("ringgate_tokens_request_seconds", Kind::Histogram, help);
        let mut sum = 0;
        for (bound, counter) in BOUNDS_US.iter().zip(&self.took) {
            sum += read(counter);
            let bound = (*bound as f64 / 1e6).to_string();
            times.part("_bucket", &[("le", &bound)], sum);
        }
        sum += read(&self.took[BOUNDS_US.len()]);
        times.part("_bucket", &[("le", "+Inf")], sum);
        times.part("_sum", &[], read(&self.took_sum_us) as f64 / 1e6);
        times.part("_count", &[], sum);
    }
}

fn put_gauges(text: &mut Text, desk: &Desk, standing: &Standing) {
    let member = &standing.member;
    let [gateways, backends, denied, unreadable] = desk.known().counts();
    let [granted, pending, elsewhere] = desk.book().sums();
    numbers! { text, TOKENS;
        Gauge "gateways", "Gateways that are known.", gateways;
        Gauge "backends", "Backends that are known.", backends;
        Gauge "services", "Token services that are known.", desk.known().services().len();
        Gauge "denied_clients", "Clients that are denied in the fleet.", denied;
        Gauge "unreadable_values", "Values in etcd that cannot be read.", unreadable;
        Gauge "slots_leased", "Slots that this service may promise.", granted;
        Gauge "slots_promised", "Slots that it has promised, and not forgotten yet.", pending;
        Gauge "slots_elsewhere",
            "Slots that others held, where this service looked last.", elsewhere;
        Gauge "memory_bytes", "Bytes of answers that are kept.", standing.memory_bytes;
        Gauge "mirror_current",
            "Whether what is known is up to date.", u8::from(member.is_current());
        Gauge "mirror_held_back", "Whether news is held back.", u8::from(member.doubt() != 0);
        Gauge "no_space", "Whether etcd takes no writes.", u8::from(member.lacks_space);
        Gauge "bans_left_out", "Bans that are not obeyed.", member.mirror.bans_left_out;
        Gauge "ready", "Whether requests are served.", u8::from(standing.is_ready);
        Gauge "promises_kept",
            "Whether promises are written down for the next start.", u8::from(standing.keeps_promises);
    }
}

/// How names of a token service's own begin.
const TOKENS: &str = "ringgate_tokens_";

const BOUNDS_US: [u64; 12] =
    [100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000];

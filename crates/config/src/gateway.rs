//! `[gateway]`, `[admin]` and `[histograms]`: the daemon as a whole, and what operators read.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::declare::{Declared, declare};
use super::schema::{DIR_BYTES_MAX, LEVELS, RUN_DIR_BYTES_MAX, Table};
use super::section::integer;
use super::source::FORMS;
use super::values::{self, Word};
use super::{LogFormat, Token};
use ringgate_core::limits::WORKERS_MAX;
pub use ringgate_io::Choice as IoChoice;

declare! {
    /// The daemon as a whole.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Gateway {
        /// Threads that serve players. "auto" is one for each core the daemon may use.
        workers: Workers = value("\"auto\" or a whole number from 1 to 128", workers), default: "auto", Restart;
        /// Which workers newcomers come to. "all": each has its share. "auto": as few as carry the
        /// load, because two that share it wake up twice as often; the others sleep once their
        /// players have left, and wake when those are busy for over half of their core. Takes
        /// CAP_BPF at the start; without it, or with io = "xdp", all are awake. With spin none
        /// sleeps.
        workers_awake: WorkersAwake = word, default: "all", Restart;
        /// Pin each worker to a processor of its own: the first by number that the daemon may use.
        /// Where these are threads of one core (lscpu -e), where another gateway of the host takes
        /// the same, or where only a quota of CPU time bounds the daemon, say which with
        /// CPUAffinity= in the unit or with a cpuset, or let the kernel choose: false.
        pin: bool = flag, default: true, Restart;
        /// How datagrams move. "uring" is io_uring, "mmsg" is recvmmsg and sendmmsg, "auto" is
        /// io_uring where the kernel allows it.
        io: IoChoice = word, default: "auto", Restart;
        /// Directory of the control socket (control.sock) and of the sockets that bundle backends
        /// connect to: worker-0.sock, worker-1.sock and so on. Each daemon of a host needs its own.
        run_dir: PathBuf = path(RUN_DIR_BYTES_MAX), default: "/run/ringgate", Restart;
        /// What outlives a restart: who is denied, and what is known of the fleet. One gateway at a
        /// time has it. Made where it is missing, closed to other users, so it is not run_dir,
        /// which their game processes reach. Where the default cannot be used, or another gateway
        /// has it, denials last until the restart, and `ringgate deny` says so; any other that
        /// cannot be used keeps the gateway from starting.
        state_dir: PathBuf = path(DIR_BYTES_MAX), default: "/var/lib/ringgate", Restart;
        /// A draining gateway waits this long for players to leave before it disconnects them, and
        /// so does a listener that a reload has removed.
        drain_timeout: Duration = duration("0s", "24h"), default: "30s", Reload;
        /// Sessions that memory is set aside for, where that is more than the max_sessions of all
        /// listeners together: a reload may add listeners up to it. What is set aside is not used
        /// before there are players.
        reserve_sessions: usize = integer(0, 10_000_000), default: 0, Restart;
        /// A worker without work polls this long before it sleeps. Buys latency with a busy core.
        spin: Duration = duration("0us", "10ms"), default: "0us", Restart;
        /// How long a busy worker may wait before it looks again, so that one wake-up serves
        /// several datagrams. From the measured rate it chooses itself whether and how long; "auto"
        /// adds 100 us to a typical round trip, 150 at 20,000 datagrams a second, up to 300 where a
        /// sleep is dear, and nothing below some 10,000. "0us" answers each as soon as it comes.
        /// With spin it has no effect.
        batch_delay: BatchDelay =
            value("\"auto\" or a duration from \"0us\" to \"1ms\" (units us, ms)", batch_delay), default: "auto", Reload;
        /// How long what goes one way may wait for more with a batch_delay of "auto", in gateway
        /// and game process together: where a sleep is dear it takes twelve times what one costs,
        /// at high rates less. Where game processes answer at once, answers do not wait, and what
        /// players send may wait up to twice as long. A fixed batch_delay is its own bound.
        batch_delay_max: Duration = duration("0us", "1ms"), default: "190us", Reload;
        /// How log lines look. The command line's --log goes first.
        log: LogFormat = word, default: "human", Restart;
        /// Which log lines are told: a level, and for single parts of the program PART=LEVEL, with
        /// commas between. The variable RINGGATE_LOG goes first.
        log_level: String = text(LEVELS, values::levels), default: "info", Reload;
        /// Become this user once all sockets are bound. Needs a start as root; without it the
        /// daemon stays who it is.
        user: Option<String> = text("a user's name", values::user), optional: "ringgate", Restart;
        /// Give up most system calls, and all files but run_dir, state_dir, the histograms' dir,
        /// the config file's directory and systemd's credentials: keys that a reload reads must lie
        /// there.
        confine: bool = flag, default: false, Restart;
    }
}

pub(super) const GATEWAY: Table =
    Table::new("gateway", "The daemon as a whole. May be left out.", &[Gateway::FIELDS]);

declare! {
    /// The admin address.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Admin {
        /// Where it is served. Everybody who reaches it may read.
        bind: SocketAddr =
            text("an IP:port such as \"127.0.0.1:9464\"", values::address), default: "127.0.0.1:9464", Restart;
        /// Names that requests may use for this host. Addresses and localhost are always fine;
        /// other names are refused, so that no web page reaches the gateway by a name of its own.
        hosts: Vec<String> = list(
            "host names",
            "a name such as \"gate-1.example\", without a port",
            |value| values::host(value.as_str()?)
        ), optional: ["gate-1.example"], Reload;
        /// What POST /drain and /reload have to show here as a bearer token: text of 16 to 256
        /// printable characters, from the same sources as keys; a file is closed to group and
        /// others (chmod 600). Without it they are refused here, and changes go through the control
        /// socket only.
        token: Option<Token> = secret(FORMS), optional: { file = "/etc/ringgate/admin.token" }, Reload;
    }
}

pub(super) const ADMIN: Table = Table::new(
    "admin",
    "HTTP for operators over TCP: /metrics /healthz /readyz /status. Without it nothing is served there; the control \
     socket (control.sock in run_dir, for root and the daemon's own user) is there in any case.",
    &[Admin::FIELDS],
);

declare! {
    /// Histogram files.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Histograms {
        /// Directory of the .hlog files.
        dir: PathBuf = path(DIR_BYTES_MAX), default: "/var/lib/ringgate/hist", Restart;
        /// The time that one entry covers.
        interval: Duration = duration("1s", "1h"), default: "10s", Restart;
        /// A file of so many bytes is left for a new one.
        max_bytes: u64 = integer(4096, 1 << 40), default: 67108864, Restart;
        /// A file that was begun so long ago is left for a new one.
        max_age: Duration = duration("1s", "8760h"), default: "24h", Restart;
        /// How many files stay in dir, the one that is written among them: older ones that have our
        /// names (ringgate-20260131T235959Z.hlog) are removed when a new one is begun. 0: all stay.
        keep: Option<NonZeroUsize> = integer(0, 1_000_000, NonZeroUsize::new), default: 30, Restart;
    }
}

pub(super) const HISTOGRAMS: Table = Table::new(
    "histograms",
    "Latency histograms by stage, as HdrHistogram interval logs. Without it none are written.",
    &[Histograms::FIELDS],
);

/// How many workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One for each core that the daemon may use.
    Auto,
    /// Exactly this many, at most [`ringgate_core::limits::WORKERS_MAX`].
    Count(NonZeroUsize),
}

/// Which workers newcomers come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkersAwake {
    /// Each.
    All,
    /// As few as carry the load.
    Auto,
}

/// How long a busy worker may wait for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchDelay {
    /// As long as it costs players little.
    Auto,
    /// At most this, a millisecond or less.
    AtMost(Duration),
}

impl Word for WorkersAwake {
    const WORDS: &'static [(&'static str, Self)] = &[("all", Self::All), ("auto", Self::Auto)];
}

impl Word for IoChoice {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("uring", Self::Uring), ("mmsg", Self::Mmsg)];
}

impl Word for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("human", Self::Human), ("json", Self::Json)];
}

fn workers(value: &DeValue<'_>) -> Option<Workers> {
    if value.as_str() == Some("auto") {
        return Some(Workers::Auto);
    }
    let count = usize::try_from(integer(value)?).ok().filter(|count| *count <= WORKERS_MAX)?;
    count.try_into().ok().map(Workers::Count)
}

fn batch_delay(value: &DeValue<'_>) -> Option<BatchDelay> {
    match value.as_str()? {
        "auto" => Some(BatchDelay::Auto),
        text => {
            let delay = values::duration(text).filter(|delay| *delay <= BATCH_DELAY_MAX)?;
            Some(BatchDelay::AtMost(delay))
        }
    }
}

/// A player feels more than that, and receive buffers may overflow meanwhile.
const BATCH_DELAY_MAX: Duration = Duration::from_millis(1);

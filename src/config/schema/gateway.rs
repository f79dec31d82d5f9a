//! The table of the process itself.

use super::{Changes, DIR_BYTES_MAX, Example, Field, Kind, Presence, RUN_DIR_BYTES_MAX, Table};
use crate::config::values::words;
use crate::config::{IoChoice, LogFormat};

pub(in crate::config) const GATEWAY: Table = Table {
    name: "gateway",
    repeated: false,
    meaning: "The daemon as a whole. May be left out.",
    examples: &[Example { variant: "", values: &[] }],
    fields: &[
        Field::new(
            "workers",
            Changes::Restart,
            Kind::Value("\"auto\" or a whole number from 1 to 128"),
            Presence::Default("\"auto\""),
            "Threads that serve players. \"auto\" is one for each core the daemon may use.",
        ),
        Field::new(
            "pin",
            Changes::Restart,
            Kind::Flag,
            Presence::Default("true"),
            "Pin each worker to a core of its own.",
        ),
        Field::new(
            "io",
            Changes::Restart,
            Kind::Choice(words::<IoChoice>),
            Presence::Default("\"auto\""),
            "How datagrams move. \"uring\" is io_uring, \"mmsg\" is recvmmsg and sendmmsg, \"auto\" is io_uring where the \
             kernel allows it.",
        ),
        Field::new(
            "run_dir",
            Changes::Restart,
            Kind::Path { bytes_max: RUN_DIR_BYTES_MAX },
            Presence::Default("\"/run/ringgate\""),
            "Directory of the control socket (control.sock) and of the sockets that bundle backends connect to: worker-0.sock, \
             worker-1.sock and so on. Each daemon of a host needs its own.",
        ),
        Field::new(
            "state_dir",
            Changes::Restart,
            Kind::Path { bytes_max: DIR_BYTES_MAX },
            Presence::Default("\"/var/lib/ringgate\""),
            "What outlives a restart: who is denied, and what is known of the fleet. One gateway at a time has it. Made where it is missing, closed to other \
             users. Where the default cannot be used, or another gateway has it, denials last until the restart, and \
             `ringgate deny` says so; any other that cannot be used keeps the gateway from starting.",
        ),
        Field::new(
            "drain_timeout",
            Changes::Reload,
            Kind::Duration { min: "0s", max: "24h" },
            Presence::Default("\"30s\""),
            "A draining gateway waits this long for players to leave before it disconnects them, and so does a listener that a \
             reload has removed.",
        ),
        Field::new(
            "reserve_sessions",
            Changes::Restart,
            Kind::Integer { min: 0, max: 10_000_000 },
            Presence::Default("0"),
            "Sessions that memory is set aside for, where that is more than the max_sessions of all listeners together: a \
             reload may add listeners up to it. What is set aside is not used before there are players.",
        ),
        Field::new(
            "spin",
            Changes::Restart,
            Kind::Duration { min: "0us", max: "10ms" },
            Presence::Default("\"0us\""),
            "A worker without work polls this long before it sleeps. Buys latency with a busy core.",
        ),
        Field::new(
            "batch_delay",
            Changes::Reload,
            Kind::Value("\"auto\" or a duration from \"0us\" to \"1ms\" (units us, ms)"),
            Presence::Default("\"auto\""),
            "How long a busy worker may wait before it looks again, so that one wake-up serves several datagrams. From the \
             measured rate it chooses itself whether and how long; \"auto\" adds 100 us to a typical round trip, 150 at 20,000 \
             datagrams a second, and nothing below some 10,000. \"0us\" answers each as soon as it comes. With spin it has no \
             effect.",
        ),
        Field::new(
            "log",
            Changes::Restart,
            Kind::Choice(words::<LogFormat>),
            Presence::Default("\"human\""),
            "How log lines look. The command line's --log goes first.",
        ),
        Field::new(
            "user",
            Changes::Restart,
            Kind::Value("a user's name"),
            Presence::Optional("\"ringgate\""),
            "Become this user once all sockets are bound. Needs a start as root; without it the daemon stays who it is.",
        ),
        Field::new(
            "confine",
            Changes::Restart,
            Kind::Flag,
            Presence::Default("false"),
            "Give up most system calls, and all files but run_dir, state_dir, the histograms' dir, the config file's directory and \
             systemd's credentials: keys that a reload reads must lie there.",
        ),
    ],
};

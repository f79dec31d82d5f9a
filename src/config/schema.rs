//! Every field of the config file, described once.
//!
//! The reader (`section`) takes from here what a field accepts and what it is when absent, and uses
//! these same texts in its messages; `explain` prints the tables; a reload takes from here which
//! fields it may change. A field that is listed but never read, or read but not listed, fails an
//! assertion in the reader, and every parse runs it.
//!
//! Left out: conditions between fields (a route that needs one backend, a name that must exist).
//! They stand next to the code that reads the table in question.

use std::fmt;

use super::values::{Word, words};
use super::{
    Delivery, GuardedWays, HandshakeBase, IoChoice, ListenerIo, LogFormat, NumberOrder, PortSwitch,
    Route, TokenPlace, TokenReuse, UniqueClients, UnrealMode, WhenAway, XdpMode,
};
use ringgate_core::limits::{PLAIN_BYTES_MAX, WORKERS_MAX};
use ringgate_gate::Front;

/// One table of the file.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// Whether it is written `[[name]]`, any number of times.
    pub(super) repeated: bool,
    pub(super) meaning: &'static str,
    pub(super) fields: &'static [Field],
    /// What `explain` shows: for each variant, the values of the fields that have no default.
    pub(super) examples: &'static [Example],
}

/// One table as `explain` shows it. A field is explained in the first that has it.
#[derive(Debug)]
pub(super) struct Example {
    /// Selects the fields of this variant only.
    pub(super) variant: &'static str,
    pub(super) values: &'static [(&'static str, &'static str)],
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) changes: Changes,
    pub(super) kind: Kind,
    pub(super) presence: Presence,
    /// The variants of the table that have this field, such as `netcode`; empty for all.
    pub(super) only: &'static [&'static str],
    pub(super) meaning: &'static str,
}

/// What a field accepts. `Display` is the text after "expected".
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// One of the words of a type.
    Choice(fn() -> Vec<&'static str>),
    /// A whole number in this range.
    Integer { min: u64, max: u64 },
    /// A duration in this range.
    Duration { min: &'static str, max: &'static str },
    /// A path of at most so many bytes.
    Path { bytes_max: usize },
    /// Anything else that is one value.
    Value(&'static str),
    /// One or more values.
    List { items: &'static str, item: &'static str },
    /// A table inside of the table, written `[outer.name]`.
    Table(&'static Table),
}

/// What an absent field means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Presence {
    /// A mistake.
    Required,
    /// The same as this TOML value.
    Default(&'static str),
    /// Something of its own; this is an example of a present one.
    Optional(&'static str),
}

/// What it takes to change a field of a gateway that runs. `Display` is the text after "Changes:".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// A reload changes it, and no player notices.
    Reload,
    /// A reload changes it, with this restriction.
    ReloadBut(&'static str),
    /// It is decided at the start; a reload that would change it is refused.
    Restart,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reload => f.write_str("with a reload"),
            Self::ReloadBut(restriction) => write!(f, "with a reload; {restriction}"),
            Self::Restart => f.write_str("with a restart"),
        }
    }
}

/// The fields of a table that has more in another kind of file.
pub(super) const fn joined<const N: usize>(first: &[Field], more: &[Field]) -> [Field; N] {
    assert!(first.len() + more.len() == N, "all of them are taken");
    let mut all = [first[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() { first[at] } else { more[at - first.len()] };
        at += 1;
    }
    all
}

/// Every field, by table and name, and what it takes to change it.
pub fn changes() -> impl Iterator<Item = (&'static str, &'static str, Changes)> {
    let tables = TABLES.iter().copied().chain([&LIMITS, &XDP]);
    tables.flat_map(|table| table.fields.iter().map(|it| (table.name, it.name, it.changes)))
}

/// What it takes to change a field, which must be in the tables.
pub fn changes_of(table: &str, field: &str) -> Changes {
    let found = changes().find(|(of, name, _)| (*of, *name) == (table, field));
    found.expect("the field is described").2
}

impl Field {
    pub(super) const fn new(
        name: &'static str,
        changes: Changes,
        kind: Kind,
        presence: Presence,
        meaning: &'static str,
    ) -> Self {
        Self { name, changes, kind, presence, only: &[], meaning }
    }

    const fn only(mut self, variants: &'static [&'static str]) -> Self {
        self.only = variants;
        self
    }

    /// Whether a table of this variant may have the field.
    pub(super) fn applies_to(&self, variant: &str) -> bool {
        self.only.is_empty() || self.only.contains(&variant)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("true or false"),
            Self::Choice(words) => write!(f, "{}", OneOf(&words())),
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Duration { min, max } => {
                write!(f, "a duration from \"{min}\" to \"{max}\" (units us, ms, s, m, h)")
            }
            Self::Path { bytes_max } => write!(f, "a path of at most {bytes_max} bytes"),
            Self::Value(text) => f.write_str(text),
            Self::List { items, item } => write!(f, "a list of one or more {items}, each {item}"),
            Self::Table(table) => write!(f, "one table [{}]", table.name),
        }
    }
}

/// `"a", "b" or "c"`.
struct OneOf<'a>(&'a [&'a str]);

impl fmt::Display for OneOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.0.iter().enumerate() {
            let separator = match index {
                0 => "",
                _ if index + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(f, "{separator}\"{word}\"")?;
        }
        Ok(())
    }
}

/// What a listener may speak. The words select the variant of its table.
impl Word for Front {
    const WORDS: &'static [(&'static str, Self)] = &{
        let mut words = [("", Self::ALL[0]); Self::ALL.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = (Self::ALL[at].word(), Self::ALL[at]);
            at += 1;
        }
        words
    };
}

/// How a backend may be reached. The words select the variant of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkWord {
    Bundle,
    Udp,
}

impl Word for LinkWord {
    const WORDS: &'static [(&'static str, Self)] = &[("udp", Self::Udp), ("bundle", Self::Bundle)];
}

pub(super) const FLEET_NAME: Kind = Kind::Value(
    "a name of 1 to 64 letters, digits, '.', '_' or '-' that begins with a letter or a digit",
);
/// The key of a trunk's certificate.
pub(super) const TRUNK_KEY: Kind = Kind::Value(
    "the path of a file in PEM that is closed to group and others, or { credential = … }",
);
const NAME: Kind = Kind::Value("a name of 1 to 31 letters, digits, '.', '_' or '-'");
const REACHABLE: &str = "an IP:port that can be sent to (no wildcard, no port 0)";
const IDS: &str = "a number from 0 to 4294967294";

/// `worker-127.sock`, its slash and the final NUL must fit the 108 bytes of a Unix socket address
/// with the directory.
pub(super) const RUN_DIR_BYTES_MAX: usize = 108 - "/worker-127.sock\0".len();
const _: () = assert!(WORKERS_MAX <= 128);

/// `PATH_MAX` is 4096; the file's own name needs some of it.
pub(super) const DIR_BYTES_MAX: usize = 3800;

/// All tables, in the order in which they are explained.
pub(super) const TABLES: &[&Table] =
    &[&GATEWAY, &LISTENER, &BACKEND, &AGENT, &FLEET, &ADMIN, &HISTOGRAMS];

pub(super) const GATEWAY: Table = Table {
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

pub(super) const LISTENER: Table = Table {
    name: "listener",
    repeated: true,
    meaning: "A public UDP front. At least one, at most 256.",
    examples: &[
        Example {
            variant: "netcode",
            values: &[
                ("name", "\"eu-west\""),
                ("protocol", "\"netcode\""),
                ("bind", "[\"0.0.0.0:40000\", \"[::]:40000\"]"),
                ("public", "[\"203.0.113.9:40000\"]"),
                ("protocol_id", "\"0x1122334455667788\""),
                ("keys", "[{ file = \"/etc/ringgate/netcode.key\" }]"),
                ("backends", "[\"arena-1\"]"),
            ],
        },
        Example {
            variant: "unreal",
            values: &[
                ("name", "\"shooter\""),
                ("protocol", "\"unreal\""),
                ("bind", "[\"0.0.0.0:7777\"]"),
                ("public", "[\"203.0.113.9:7777\"]"),
                ("backends", "[\"shooter-1\"]"),
            ],
        },
        Example {
            variant: "plain",
            values: &[
                ("name", "\"any\""),
                ("protocol", "\"plain\""),
                ("bind", "[\"0.0.0.0:7000\"]"),
                ("public", "[\"203.0.113.9:7000\"]"),
                ("backends", "[\"any-1\"]"),
            ],
        },
    ],
    fields: &[
        Field::new(
            "name",
            Changes::ReloadBut("a listener with another name is another one, and the one before drains"),
            NAME,
            Presence::Required,
            "Its name in logs and metrics, different from other listeners' names.",
        ),
        Field::new(
            "protocol",
            Changes::Restart,
            Kind::Choice(words::<Front>),
            Presence::Required,
            "What players speak: netcode 1.02, Unreal Engine's UDP protocol, or anything else over UDP (\"plain\").",
        ),
        Field::new(
            "bind",
            Changes::ReloadBut("to other addresses only: the listener at those before drains"),
            Kind::List {
                items: "addresses",
                item: "an IP:port such as \"0.0.0.0:40000\" or \"[::]:40000\"",
            },
            Presence::Required,
            "Addresses to receive on, at most 256. Port 0 takes a free port.",
        ),
        Field::new(
            "public",
            Changes::Reload,
            Kind::List { items: "addresses", item: REACHABLE },
            Presence::Optional("[\"203.0.113.9:40000\"]"),
            "The addresses that players dial, and that connect tokens must name. Without it: those in bind, which then may not \
             be wildcards on netcode listeners, and on none in a fleet.",
        ),
        Field::new(
            "protocol_id",
            Changes::Restart,
            Kind::Value(
                "a number of 64 bits, as a number or as a string such as \"0x1122334455667788\"",
            ),
            Presence::Required,
            "The game's protocol id. Clients and tokens with another one are ignored.",
        )
        .only(&["netcode"]),
        Field::new(
            "keys",
            Changes::Reload,
            Kind::List {
                items: "key sources",
                item: "{ file = … }, { env = … }, { hex = … } or { credential = … }",
            },
            Presence::Optional("[{ file = \"/etc/ringgate/netcode.key\" }]"),
            "Where the keys that connect tokens are sealed with come from, up to 8; several while they rotate. Required where \
             [fleet] has no key; with it, a listener without keys has those that the fleet has for its name. A file holds 64 hex digits or 32 raw bytes and is closed to group and others (chmod 600); env names an environment \
             variable; credential names a file in $CREDENTIALS_DIRECTORY (systemd); hex is the key itself. Relative paths \
             start at the config file's directory.",
        )
        .only(&["netcode"]),
        Field::new(
            "backends",
            Changes::Reload,
            Kind::List { items: "names", item: "the name of a [[backend]]" },
            Presence::Optional("[\"arena-1\"]"),
            "The game processes behind this listener: this or group is required. Unreal listeners use link = \"udp\" backends \
             only.",
        ),
        Field::new(
            "group",
            Changes::Reload,
            FLEET_NAME,
            Presence::Optional("\"arena\""),
            "The backends of the fleet behind this listener, instead of backends: those on this host that are registered under \
             this group, as they come and go.",
        ),
        Field::new(
            "route",
            Changes::Reload,
            Kind::Choice(words::<Route>),
            Presence::Default("\"single\""),
            "How a new player's backend is chosen. \"single\": there is only one. \"user-data\": the token's user data \
             begins with its name, padded with NUL to 32 bytes (netcode only). \"token\": tokens says whose the datagram's token \
             is (plain only). \"hash\": by client id, or by address on Unreal and plain listeners. \"least-players\": the one \
             with the fewest.",
        ),
        Field::new(
            "max_sessions",
            Changes::ReloadBut("up to what all listeners together had at the start, or reserve_sessions"),
            Kind::Integer { min: 1, max: 10_000_000 },
            Presence::Default("100000"),
            "Most players at a time; more are denied. All listeners together have at most 10000000.",
        ),
        Field::new(
            "port_switch",
            Changes::ReloadBut("for sessions that begin later"),
            Kind::Choice(words::<PortSwitch>),
            Presence::Default("\"follow\""),
            "Whether a session follows its player to another port, as when a router forgets its mapping. On plain listeners \
             nothing could prove it: a new port is a new session.",
        )
        .only(&["netcode", "unreal"]),
        Field::new(
            "filter",
            Changes::Restart,
            Kind::Flag,
            Presence::Default("true"),
            "Let a socket filter drop datagrams that cannot be this listener's before they are queued.",
        ),
        Field::new(
            "io",
            Changes::Restart,
            Kind::Choice(words::<ListenerIo>),
            Presence::Default("\"sockets\""),
            "How players' packets come and go. \"sockets\": by sockets, as gateway.io says. \"xdp\": past them, in frames of the \
             network interface that [listener.xdp] names (AF_XDP). What is odd, or comes by another interface, still arrives at the \
             socket, which stays open. Takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF at the start.",
        ),
        Field::new(
            "replay_window",
            Changes::Restart,
            Kind::Value("a power of two from 64 to 1024"),
            Presence::Default("256"),
            "How many sequences back a late packet may come. netcode's own window is 256. On plain listeners it needs sequence \
             and is below half of its numbers.",
        )
        .only(&["netcode", "plain"]),
        Field::new(
            "gap_limit",
            Changes::Reload,
            Kind::Integer { min: 0, max: 1 << 32 },
            Presence::Default("0"),
            "A jump over more than this many sequences ends the session. 0: any jump is fine. Unreal: up to 8191, and by two \
             packets, because nothing proves who has sent one. Plain: it needs sequence, is below half of its numbers, and anybody \
             who can send in a player's name can end its session.",
        ),
        Field::new(
            "keep_alive",
            Changes::Reload,
            Kind::Duration { min: "10ms", max: "10s" },
            Presence::Default("\"100ms\""),
            "A player who is sent nothing else for so long is sent a keep-alive, and a quarter of its token's timeout is the \
             longest wait in any case. netcode's own pace is 100ms; idle fleets of many thousands live better with 1s.",
        )
        .only(&["netcode"]),
        Field::new(
            "token_reuse",
            Changes::Reload,
            Kind::Choice(words::<TokenReuse>),
            Presence::Default("\"deny\""),
            "Whether a player who was heard in a session may come again with the same connect token. \"deny\": no, it is \
             sent a denial and needs a new one. \"allow\": yes, and then recorded packets of the first session are taken for \
             packets of the second.",
        )
        .only(&["netcode"]),
        Field::new(
            "delivery",
            Changes::Reload,
            Kind::Choice(words::<Delivery>),
            Presence::Default("\"none\""),
            "\"gateway\": players speak the delivery layer inside of netcode's payloads, the gateway acknowledges, orders and sends \
             again, and game processes get whole messages of up to 64 KiB. All backends need link = \"bundle\" and a library \
             of this release or later, and token_reuse is \"deny\". \"none\": payloads pass as they are.",
        )
        .only(&["netcode"]),
        Field::new(
            "unique_clients",
            Changes::ReloadBut("sessions that are there keep what they began with"),
            Kind::Choice(words::<UniqueClients>),
            Presence::Default("\"gateway\""),
            "Where nobody else may have a player's id. \"gateway\": at this listener; a second login waits until the first \
             session is over. \"fleet\": at all listeners of the fleet that have this one's group; the newer login wins, here \
             too, and the older session is closed. Needs a group. Nobody is refused for it while etcd is away.",
        )
        .only(&["netcode"]),
        Field::new(
            "magic",
            Changes::Restart,
            Kind::Value("up to 32 digits 0 and 1"),
            Presence::Default("\"\""),
            "The bits that start every packet, as the engine's net.MagicHeader writes them.",
        )
        .only(&["unreal"]),
        Field::new(
            "versions",
            Changes::Restart,
            Kind::List { items: "handshake versions", item: "a version from 0 to 4" },
            Presence::Default("[3, 4]"),
            "Handshake versions to serve: [0], or any of 1 and 2, or any of 3 and 4. The packets of these three kinds begin \
             differently, so each needs a listener of its own.",
        )
        .only(&["unreal"]),
        Field::new(
            "handshake_base",
            Changes::Restart,
            Kind::Choice(words::<HandshakeBase>),
            Presence::Default("\"auto\""),
            "Whether handshake packets of versions 2 to 4 have a field for network features, which depends on how the engine was \
             built and cannot be seen in a packet. \"auto\": as in the servers' answers. \"long\": they have it. \"short\": they \
             do not.",
        )
        .only(&["unreal"]),
        Field::new(
            "mode",
            Changes::Restart,
            Kind::Choice(words::<UnrealMode>),
            Presence::Default("\"notify\""),
            "\"notify\": packet headers are in the clear, duplicates are found by sequence. \"opaque\": game packets are \
             encrypted or compressed, exact copies within one second are dropped.",
        )
        .only(&["unreal"]),
        Field::new(
            "window",
            Changes::Restart,
            Kind::Choice(words::<bool>),
            Presence::Default("\"on\""),
            "Whether duplicates are dropped at all.",
        )
        .only(&["unreal"]),
        Field::new(
            "network_versions",
            Changes::Restart,
            Kind::Value("\"any\" or a list of 32-bit numbers such as [\"0x12345678\"]"),
            Presence::Default("\"any\""),
            "The network versions (checksums of project and engine versions) that may connect.",
        )
        .only(&["unreal"]),
        Field::new(
            "idle_timeout",
            Changes::Restart,
            Kind::Duration { min: "1s", max: "1h" },
            Presence::Optional("\"30s\""),
            "A player who is silent for this long is gone. Without it: 30s on Unreal listeners, 60s on plain ones. An Unreal player \
             whose connection was closed, or whose server has travelled or was started again, is gone after three seconds.",
        )
        .only(&["unreal", "plain"]),
        Field::new(
            "restart_small",
            Changes::Reload,
            Kind::Flag,
            Presence::Optional("false"),
            "Has no effect any more: quiet players are asked to restart once their small packets have paid for the question.",
        )
        .only(&["unreal"]),
        Field::new(
            "token",
            Changes::Restart,
            Kind::Value("{ at = \"end\" or \"start\", bytes = 1 to 64, strip = true or false }"),
            Presence::Optional("{ at = \"end\", bytes = 8, strip = true }"),
            "The token that every datagram carries: at its end (the default of at) or its start, so many bytes. With strip (the \
             default) game servers get datagrams without it. It is looked at in every datagram, and another token is another \
             session. Only with route = \"token\".",
        )
        .only(&["plain"]),
        Field::new(
            "tokens",
            Changes::Reload,
            Kind::List { items: "tokens", item: "{ hex = …, backend = … } or { file = … }" },
            Presence::Optional("[{ hex = \"1122334455667788\", backend = \"any-1\" }]"),
            "Whose each token is, up to 100000. A file has a token in hex and the name of a backend on each line, \
             and may have empty lines and comments (#); it is closed to group and others (chmod 600), and a relative path starts at \
             the config file's directory. Only with route = \"token\"; not beside a group, whose tokens are made of fleet.key.",
        )
        .only(&["plain"]),
        Field::new(
            "sequence",
            Changes::Restart,
            Kind::Value("{ offset = …, bits = 8, 16 or 32, order = \"big\" or \"little\" }"),
            Presence::Optional("{ offset = 4, bits = 16, order = \"big\" }"),
            "Where every datagram has a number that counts up, so many bytes from its start as it is received; order is \"big\" \
             where it is not said. With it duplicates, and what is older than replay_window, are dropped. Nothing is authenticated: \
             who can send in a player's name can use up its numbers.",
        )
        .only(&["plain"]),
        Field::new(
            "guard",
            Changes::Restart,
            Kind::Choice(words::<GuardedWays>),
            Presence::Default("\"up\""),
            "Whose numbers are looked at, where there is a sequence: the players' (\"up\"), or also the game servers' (\"both\").",
        )
        .only(&["plain"]),
        Field::new(
            "begins_with",
            Changes::Restart,
            Kind::Value("up to 64 bytes as pairs of hex digits"),
            Presence::Default("\"\""),
            "What every datagram of a player begins with; others are dropped.",
        )
        .only(&["plain"]),
        Field::new(
            "half_open_timeout",
            Changes::Reload,
            Kind::Duration { min: "100ms", max: "1m" },
            Presence::Default("\"2s\""),
            "A session is half open until its source has sent again after an answer. One that stays so for so long ends.",
        )
        .only(&["plain"]),
        Field::new(
            "half_open_max",
            Changes::ReloadBut("up to what it was at the start"),
            Kind::Integer { min: 16, max: 65_536 },
            Presence::Default("4096"),
            "Half-open sessions of a worker, at a time. When there are more, the oldest of them ends; players who are in are never \
             touched.",
        )
        .only(&["plain"]),
        Field::new(
            "answer_limit",
            Changes::Reload,
            Kind::Integer { min: 0, max: 1000 },
            Presence::Default("3"),
            "While its session is half open, a source gets at most so many times the bytes that it has sent. 0: as many as come.",
        )
        .only(&["plain"]),
        Field::new(
            "gap_rest",
            Changes::Reload,
            Kind::Duration { min: "0s", max: "10m" },
            Presence::Default("\"2s\""),
            "A source whose session has ended by gap_limit may begin again after so long.",
        )
        .only(&["plain"]),
        // Behind all others, because of what TOML takes to belong to it.
        Field::new("limits", Changes::Reload, Kind::Table(&LIMITS), Presence::Default("{}"), LIMITS.meaning),
        Field::new("xdp", Changes::Restart, Kind::Table(&XDP), Presence::Default("{}"), XDP.meaning),
    ],
};

/// How a listener is served past the kernel's sockets.
pub(super) const XDP: Table = Table {
    name: "listener.xdp",
    repeated: false,
    meaning: "The network interface of listeners with io = \"xdp\"; without effect on others. Each worker serves one of its queues, so \
              all these listeners have the same table.",
    examples: &[],
    fields: &[
        Field::new(
            "interface",
            Changes::Restart,
            Kind::Value("a network interface's name of 1 to 15 bytes"),
            Presence::Optional("\"eth0\""),
            "The interface that players' packets come by; a VLAN's are served by the interface that the VLAN is in. Required with \
             io = \"xdp\".",
        ),
        Field::new(
            "queues",
            Changes::Restart,
            Kind::Integer { min: 1, max: WORKERS_MAX as u64 },
            Presence::Optional("4"),
            "How many of its queues may be served, from the first on. Without it: all that are in use. Each worker serves one, more \
             workers than queues are refused, and what comes by other queues takes the way by the socket.",
        ),
        Field::new(
            "mode",
            Changes::Restart,
            Kind::Choice(words::<XdpMode>),
            Presence::Default("\"auto\""),
            "\"zerocopy\": the card reads and writes the gateway's memory. \"copy\": its driver runs the gateway's program, and the \
             kernel copies. \"generic\": the kernel runs the program itself, which is slower and works with every driver. \"auto\": \
             the first of these that works; `ready:` says which.",
        ),
        Field::new(
            "fallback",
            Changes::Restart,
            Kind::Flag,
            Presence::Default("false"),
            "Serve by sockets, and say so, where it cannot be had. Without it the gateway refuses to start.",
        ),
    ],
};

/// What one source may take. The range of each field: what counters and rates hold with room to
/// spare.
pub(super) const LIMITS: Table = Table {
    name: "listener.limits",
    repeated: false,
    meaning: "What one source may take of this listener. 0 is no limit, and loopback is a source like any other. A block is \
              an IPv4 /24 or an IPv6 /48, an address an IPv4 address or an IPv6 /64. Rates and unfinished handshakes are \
              counted by each worker for itself, sessions over all workers.",
    examples: &[],
    fields: &[
        Field::new(
            "requests_per_block",
            Changes::Reload,
            LIMIT,
            Presence::Default("2000"),
            "Connection requests of a block that are looked at, a second. On Unreal listeners: initials and responses.",
        )
        .only(&["netcode", "unreal"]),
        Field::new(
            "handshakes_per_block",
            Changes::Reload,
            LIMIT,
            Presence::Default("2000"),
            "Unfinished handshakes of a block, at a time.",
        )
        .only(&["netcode", "unreal"]),
        Field::new(
            "port_switches_per_block",
            Changes::Reload,
            LIMIT,
            Presence::Default("500"),
            "Sessions of a block that follow their player to another port, a second; twice as many may come at once.",
        )
        .only(&["netcode", "unreal"]),
        Field::new(
            "restarts_per_block",
            Changes::Reload,
            LIMIT,
            Presence::Default("200"),
            "Players of a block who are asked to restart their handshake because their port has changed, a second. Used on \
             Unreal listeners.",
        )
        .only(&["netcode", "unreal"]),
        Field::new(
            "starts_per_block",
            Changes::Reload,
            LIMIT,
            Presence::Default("500"),
            "Sessions that the sources of a block may begin, a second.",
        )
        .only(&["plain"]),
        Field::new(
            "starts",
            Changes::Reload,
            LIMIT,
            Presence::Default("10000"),
            "Sessions that may begin at all, a second.",
        )
        .only(&["plain"]),
        Field::new(
            "sessions_per_address",
            Changes::Reload,
            LIMIT,
            Presence::Optional("32"),
            "Sessions of an address, at a time. Without it: 32 on Unreal and plain listeners, where anybody may come, and 0 on \
             netcode listeners.",
        ),
        Field::new(
            "sessions_per_block",
            Changes::Reload,
            LIMIT,
            Presence::Default("0"),
            "Sessions of a block, at a time.",
        ),
    ],
};

/// `token` of plain listeners, which is explained with the field.
pub(super) const TOKEN: Table = Table {
    name: "token",
    repeated: false,
    meaning: "",
    examples: &[],
    fields: &[
        Field::new(
            "at",
            Changes::Restart,
            Kind::Choice(words::<TokenPlace>),
            Presence::Default("\"end\""),
            "",
        ),
        Field::new(
            "bytes",
            Changes::Restart,
            Kind::Integer { min: 1, max: 64 },
            Presence::Required,
            "",
        ),
        Field::new("strip", Changes::Restart, Kind::Flag, Presence::Default("true"), ""),
    ],
};

/// An element of `tokens`, which is explained with the field.
pub(super) const TOKEN_SOURCE: Table = Table {
    name: "tokens",
    repeated: false,
    meaning: "",
    examples: &[],
    fields: &[
        Field::new(
            "hex",
            Changes::Reload,
            Kind::Value("a token in hex"),
            Presence::Optional(""),
            "",
        ),
        Field::new(
            "backend",
            Changes::Reload,
            Kind::Value("the name of a [[backend]]"),
            Presence::Optional(""),
            "",
        ),
        Field::new(
            "file",
            Changes::Reload,
            Kind::Value("the path of a file"),
            Presence::Optional(""),
            "",
        ),
    ],
};

/// `sequence` of plain listeners, which is explained with the field.
pub(super) const SEQUENCE: Table = Table {
    name: "sequence",
    repeated: false,
    meaning: "",
    examples: &[],
    fields: &[
        Field::new(
            "offset",
            Changes::Restart,
            Kind::Integer { min: 0, max: PLAIN_BYTES_MAX as u64 - 1 },
            Presence::Required,
            "",
        ),
        Field::new("bits", Changes::Restart, Kind::Value("8, 16 or 32"), Presence::Required, ""),
        Field::new(
            "order",
            Changes::Restart,
            Kind::Choice(words::<NumberOrder>),
            Presence::Default("\"big\""),
            "",
        ),
    ],
};

const LIMIT: Kind = Kind::Integer { min: 0, max: 1_000_000 };

pub(super) const BACKEND: Table = Table {
    name: "backend",
    repeated: true,
    meaning: "A game process. At least one (none is needed in a fleet), at most 4096.",
    examples: &[
        Example {
            variant: "bundle",
            values: &[("name", "\"arena-1\""), ("link", "\"bundle\""), ("slots", "64")],
        },
        Example {
            variant: "udp",
            values: &[
                ("name", "\"shooter-1\""),
                ("link", "\"udp\""),
                ("address", "\"127.0.0.1:7778\""),
                ("slots", "100"),
            ],
        },
        Example {
            variant: "udp",
            values: &[
                ("name", "\"any-1\""),
                ("link", "\"udp\""),
                ("address", "\"127.0.0.1:7001\""),
                ("slots", "100"),
            ],
        },
    ],
    fields: &[
        Field::new(
            "name",
            Changes::ReloadBut("a bundle backend with another name is another backend"),
            NAME,
            Presence::Required,
            "Its name in listeners, user data, logs and metrics, different from other backends' names.",
        ),
        Field::new(
            "link",
            Changes::ReloadBut("it is another backend then; the first one of its kind needs a restart"),
            Kind::Choice(words::<LinkWord>),
            Presence::Required,
            "\"udp\": an unmodified server, each player appears as its own loopback address. \"bundle\": a server that uses \
             our backend library, many payloads in one datagram.",
        ),
        Field::new(
            "slots",
            Changes::Reload,
            Kind::Integer { min: 0, max: 1_000_000 },
            Presence::Required,
            "How many players it takes; more are denied. netcode clients are told this number. 0 takes nobody new.",
        ),
        Field::new(
            "grace",
            Changes::Reload,
            Kind::Duration { min: "0s", max: "10m" },
            Presence::Default("\"5s\""),
            "A backend that is gone for this long loses its players. Nobody new is sent to it meanwhile.",
        ),
        Field::new(
            "address",
            Changes::ReloadBut("a backend at another address is another backend"),
            Kind::Value(REACHABLE),
            Presence::Required,
            "Where the server listens.",
        )
        .only(&["udp"]),
        Field::new(
            "allow_uids",
            Changes::Reload,
            Kind::List { items: "user ids", item: IDS },
            Presence::Optional("[990]"),
            "Users whose processes may connect under this name. Without this and allow_gids: the gateway's own user.",
        )
        .only(&["bundle"]),
        Field::new(
            "allow_gids",
            Changes::Reload,
            Kind::List { items: "group ids", item: IDS },
            Presence::Optional("[990]"),
            "Groups whose processes may connect under this name.",
        )
        .only(&["bundle"]),
    ],
};

pub(super) const AGENT: Table = Table {
    name: "agent",
    repeated: true,
    meaning: "An agent on another host, by which game processes there are backends of this gateway (docs/OPERATING.md, two hosts). \
              Several may have one address, and then the same certificate. At most 256.",
    examples: &[Example {
        variant: "",
        values: &[
            ("name", "\"host-7\""),
            ("bind", "\"192.0.2.1:7400\""),
            ("ca", "\"agents-ca.pem\""),
            ("certificate", "\"gateway.pem\""),
            ("key", "\"gateway.key\""),
            ("backends", "[\"arena-1\"]"),
        ],
    }],
    fields: &[
        Field::new(
            "name",
            Changes::Reload,
            Kind::Value(
                "letters, digits, dots and hyphens, at most 31, as a host's name, or \"*\"",
            ),
            Presence::Required,
            "What it is called: a DNS name of its certificate. \"*\" stands for all agents of the fleet that have no table of their own.",
        ),
        Field::new(
            "bind",
            Changes::Reload,
            Kind::Value("an IP:port such as \"192.0.2.1:7400\""),
            Presence::Required,
            "Where it connects to, over TCP and UDP.",
        ),
        Field::new(
            "public",
            Changes::Reload,
            Kind::Value("a host and its port, such as \"gate-1.example:7400\""),
            Presence::Optional("\"gate-1.example:7400\""),
            "What agents of the fleet are told to connect to; the certificate is for this host. Without it: bind, unless that is a wildcard.",
        ),
        Field::new(
            "ca",
            Changes::Reload,
            Kind::Path { bytes_max: DIR_BYTES_MAX },
            Presence::Required,
            "Who may have signed the agents' certificates (PEM). Nobody else's is taken, and a reload ends the trunks of those whose signer it takes away.",
        ),
        Field::new(
            "certificate",
            Changes::Reload,
            Kind::Path { bytes_max: DIR_BYTES_MAX },
            Presence::Required,
            "This gateway's certificate (PEM), for the host name or address that agents are told. Trunks that stand keep theirs.",
        ),
        Field::new(
            "key",
            Changes::Reload,
            TRUNK_KEY,
            Presence::Required,
            "Its key (PEM): a file that is closed to group and others (chmod 600), or a credential of the service.",
        ),
        Field::new(
            "backends",
            Changes::Reload,
            Kind::List {
                items: "names of backends with a bundle link, or \"fleet\"",
                item: "the name of a [[backend]]",
            },
            Presence::Required,
            "The backends that it may serve. Others are refused and counted. \"fleet\": those that stand in etcd as being behind it \
             (docs/FLEET.md).",
        ),
    ],
};

pub(super) const FLEET: Table = Table {
    name: "fleet",
    repeated: false,
    meaning: "The fleet that this gateway is in, in etcd (docs/FLEET.md). Without it the gateway is alone.",
    examples: &[Example {
        variant: "",
        values: &[("endpoints", "[\"http://127.0.0.1:2379\"]"), ("prefix", "\"/ringgate/eu\"")],
    }],
    fields: &[
        Field::new(
            "endpoints",
            Changes::Restart,
            Kind::List { items: "addresses", item: "http://HOST:PORT or https://HOST:PORT" },
            Presence::Required,
            "The members of etcd. One at a time is spoken to, another when that one fails.",
        ),
        Field::new(
            "prefix",
            Changes::Restart,
            Kind::Value("names between slashes, such as \"/ringgate/eu\""),
            Presence::Required,
            "Below which everything of this fleet stands.",
        ),
        Field::new(
            "name",
            Changes::Restart,
            FLEET_NAME,
            Presence::Optional("\"gate-1\""),
            "What this gateway is called in the fleet. Of two with one name the first has it while it lives. Without it: what \
             the kernel calls the host, so two gateways of one host need names.",
        ),
        Field::new(
            "region",
            Changes::Restart,
            FLEET_NAME,
            Presence::Default("\"default\""),
            "Where it stands, for who chooses a gateway for players.",
        ),
        Field::new(
            "host",
            Changes::Restart,
            FLEET_NAME,
            Presence::Optional("\"host-1\""),
            "The host, by which it knows the backends that it can reach. Without it: what the kernel calls it.",
        ),
        Field::new(
            "key",
            Changes::Restart,
            Kind::Value(
                "exactly one of { file = … }, { env = … }, { hex = … } and { credential = … }",
            ),
            Presence::Optional("{ file = \"/etc/ringgate/fleet.key\" }"),
            "What opens the keys of listeners that stand in etcd, from the same sources as those (`ringgate keygen` makes one). \
             The same for all gateways and token services of a fleet; etcd never has it.",
        ),
        Field::new(
            "ca",
            Changes::Restart,
            Kind::Path { bytes_max: DIR_BYTES_MAX },
            Presence::Optional("\"/etc/ringgate/etcd-ca.pem\""),
            "Who may have signed the certificates of endpoints with https. The system's authorities are not asked.",
        ),
        Field::new(
            "certificate",
            Changes::Restart,
            Kind::Path { bytes_max: DIR_BYTES_MAX },
            Presence::Optional("\"/etc/ringgate/etcd-client.pem\""),
            "Our own certificate, where etcd wants one.",
        ),
        Field::new(
            "certificate_key",
            Changes::Restart,
            Kind::Path { bytes_max: DIR_BYTES_MAX },
            Presence::Optional("\"/etc/ringgate/etcd-client.key\""),
            "Its key, closed to group and others (chmod 600).",
        ),
        Field::new(
            "user",
            Changes::Restart,
            Kind::Value("a name of 1 to 256 characters"),
            Presence::Optional("\"ringgate\""),
            "A user of etcd's own, who may read and write below prefix.",
        ),
        Field::new(
            "password",
            Changes::Restart,
            Kind::Value(
                "exactly one of { file = … }, { env = … }, { hex = … } and { credential = … }",
            ),
            Presence::Optional("{ file = \"/etc/ringgate/etcd.password\" }"),
            "Its password: 1 to 256 characters, from the same sources as keys; a file is closed to group and others (chmod 600).",
        ),
        Field::new(
            "lease",
            Changes::Restart,
            Kind::Duration { min: "3s", max: "5m" },
            Presence::Default("\"10s\""),
            "How long the registration stays when nobody keeps it alive: when the host dies, players are sent here for so long.",
        ),
        Field::new(
            "grace",
            Changes::Reload,
            Kind::Duration { min: "0s", max: "10m" },
            Presence::Default("\"5s\""),
            "grace of the fleet's backends.",
        ),
        Field::new(
            "allow_uids",
            Changes::Reload,
            Kind::List { items: "user ids", item: IDS },
            Presence::Optional("[990]"),
            "Users whose processes may connect as the fleet's bundle backends. Without this and allow_gids: the gateway's own.",
        ),
        Field::new(
            "allow_gids",
            Changes::Reload,
            Kind::List { items: "group ids", item: IDS },
            Presence::Optional("[990]"),
            "Groups whose processes may connect as the fleet's bundle backends.",
        ),
        Field::new(
            "max_backends",
            Changes::Reload,
            Kind::Integer { min: 1, max: 4000 },
            Presence::Default("1000"),
            "Most backends of the fleet that this gateway takes at a time; more are refused and counted.",
        ),
        Field::new(
            "when_away",
            Changes::Reload,
            Kind::Choice(words::<WhenAway>),
            Presence::Default("\"refuse\""),
            "What becomes of a token that names other gateways as well, while etcd cannot be asked whether it was used there. \
             \"refuse\": its player has to wait. \"accept\": it is taken, and may be used once at each. Tokens that name this \
             gateway alone are taken in any case.",
        ),
    ],
};

pub(super) const ADMIN: Table = Table {
    name: "admin",
    repeated: false,
    meaning: "HTTP for operators over TCP: /metrics /healthz /readyz /status. Without it nothing is served there; the control \
              socket (control.sock in run_dir, for root and the daemon's own user) is there in any case.",
    examples: &[Example { variant: "", values: &[] }],
    fields: &[
        Field::new(
            "bind",
            Changes::Restart,
            Kind::Value("an IP:port such as \"127.0.0.1:9464\""),
            Presence::Default("\"127.0.0.1:9464\""),
            "Where it is served. Everybody who reaches it may read.",
        ),
        Field::new(
            "hosts",
            Changes::Reload,
            Kind::List {
                items: "host names",
                item: "a name such as \"gate-1.example\", without a port",
            },
            Presence::Optional("[\"gate-1.example\"]"),
            "Names that requests may use for this host. Addresses and localhost are always fine; other names are refused, so \
             that no web page reaches the gateway by a name of its own.",
        ),
        Field::new(
            "token",
            Changes::Reload,
            Kind::Value(
                "exactly one of { file = … }, { env = … }, { hex = … } and { credential = … }",
            ),
            Presence::Optional("{ file = \"/etc/ringgate/admin.token\" }"),
            "What POST /drain and /reload have to show here as a bearer token: text of 16 to 256 printable characters, from \
             the same sources as keys; a file is closed to group and others (chmod 600). Without it they are refused here, \
             and changes go through the control socket only.",
        ),
    ],
};

pub(super) const HISTOGRAMS: Table = Table {
    name: "histograms",
    repeated: false,
    meaning: "Latency histograms by stage, as HdrHistogram interval logs. Without it none are written.",
    examples: &[Example { variant: "", values: &[] }],
    fields: &[
        Field::new(
            "dir",
            Changes::Restart,
            Kind::Path { bytes_max: DIR_BYTES_MAX },
            Presence::Default("\"/var/lib/ringgate/hist\""),
            "Directory of the .hlog files.",
        ),
        Field::new(
            "interval",
            Changes::Restart,
            Kind::Duration { min: "1s", max: "1h" },
            Presence::Default("\"10s\""),
            "The time that one entry covers.",
        ),
        Field::new(
            "max_bytes",
            Changes::Restart,
            Kind::Integer { min: 4096, max: 1 << 40 },
            Presence::Default("67108864"),
            "A file of so many bytes is left for a new one.",
        ),
        Field::new(
            "max_age",
            Changes::Restart,
            Kind::Duration { min: "1s", max: "8760h" },
            Presence::Default("\"24h\""),
            "A file that was begun so long ago is left for a new one.",
        ),
        Field::new(
            "keep",
            Changes::Restart,
            Kind::Integer { min: 0, max: 1_000_000 },
            Presence::Default("30"),
            "How many files stay in dir, the one that is written among them: older ones that have our names \
             (ringgate-20260131T235959Z.hlog) are removed when a new one is begun. 0: all stay.",
        ),
    ],
};

//! The table of a listener.

use super::{
    Changes, Example, FLEET_NAME, Field, Kind, LIMITS, NAME, Presence, REACHABLE, Table, XDP,
};
use crate::config::values::words;
use crate::config::{
    Delivery, GuardedWays, HandshakeBase, ListenerIo, PortSwitch, Route, TokenReuse, UniqueClients,
    UnrealMode,
};
use ringgate_gate::Front;

pub(in crate::config) const LISTENER: Table = Table {
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
             who can send in a player's name can end its session; with 0 the next number has to continue a jump over more than half \
             the replay_window.",
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
            "Where nobody else may have a player's id. \"gateway\": at this listener; another login replaces a session that has \
             been silent for replace_after, and waits while one talks. \"newest\": at this listener, and another login replaces \
             one that talks, too. \"fleet\": at all listeners of the fleet that have this one's group; the newer login wins, here \
             too, and the older session is closed. Needs a group. Nobody is refused for it while etcd is away.",
        )
        .only(&["netcode"]),
        Field::new(
            "replace_after",
            Changes::Reload,
            Kind::Duration { min: "500ms", max: "10m" },
            Presence::Default("\"2s\""),
            "With unique_clients = \"gateway\": a player who logs in with a new token replaces a session of its id from which \
             nothing has come for so long, as one whose client has crashed. More than the pause between two packets of a \
             client that is well.",
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
            "credit_ratio",
            Changes::Reload,
            Kind::Integer { min: 0, max: 1_000_000 },
            Presence::Default("1000"),
            "The source of an open session is sent at most so many bytes for each one that was heard of it, for as long as the session \
             lasts; each datagram counts 28 bytes more than its payload, for its headers. It is what an attacker who writes somebody \
             else's address on datagrams can multiply them by. 0: as many as come.",
        )
        .only(&["plain"]),
        Field::new(
            "credit_burst",
            Changes::Reload,
            Kind::Integer { min: 2_000, max: 1 << 30 },
            Presence::Default("131072"),
            "Bytes that were earned in this way and not sent are kept up to so many.",
        )
        .only(&["plain"]),
        Field::new(
            "pause_after",
            Changes::Reload,
            Kind::Duration { min: "0s", max: "1h" },
            Presence::Default("\"5s\""),
            "The source of an open session that is silent for so long is sent nothing until it is heard; the session goes on. \
             \"0s\": it is never paused.",
        )
        .only(&["plain"]),
        Field::new(
            "echo",
            Changes::Restart,
            Kind::Value("{ sent = …, heard = … }"),
            Presence::Optional("{ sent = 4, heard = 8 }"),
            "Where a game's servers send four bytes that its players send back (an acknowledged number, a token of the server's): so \
             many bytes from the start of a server's datagram, and of a player's as it is received. A player who sends back what one of \
             the latest 64 datagrams to it had there is proven: its session opens, and credit_ratio and pause_after do not count for it \
             any more. The bytes have to be hard to guess; those of which one half is 0000 or ffff, as in a number that counts from 0, \
             prove nothing.",
        )
        .only(&["plain"]),
        Field::new(
            "unproven_slots",
            Changes::Reload,
            Kind::Integer { min: 0, max: 100 },
            Presence::Optional("50"),
            "Players whom no echo has proven hold at most so many of a hundred slots of a server. Without it: 50 with echo, 100 \
             otherwise.",
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

//! Tables inside of a listener's.

use super::{Changes, Field, Kind, Presence, Table};
use crate::config::values::words;
use crate::config::{NumberOrder, TokenPlace, XdpMode};
use ringgate_core::limits::{PLAIN_BYTES_MAX, WORKERS_MAX};

/// How a listener is served past the kernel's sockets.
pub(in crate::config) const XDP: Table = Table {
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
pub(in crate::config) const LIMITS: Table = Table {
    name: "listener.limits",
    repeated: false,
    meaning: "What one source may take of this listener. 0 is no limit, and loopback is a source like any other. A block is \
              an IPv4 /24 or an IPv6 /48, an address an IPv4 address or an IPv6 /64, a site an IPv6 /56. Rates and unfinished handshakes are \
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
            "sessions_per_site",
            Changes::Reload,
            LIMIT,
            Presence::Optional("32"),
            "Sessions of an IPv6 /56, at a time, which is what many households are given: 256 addresses. Without it: 32 on Unreal \
             and plain listeners, and 0 on netcode listeners.",
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
pub(in crate::config) const TOKEN: Table = Table {
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
pub(in crate::config) const TOKEN_SOURCE: Table = Table {
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
pub(in crate::config) const SEQUENCE: Table = Table {
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

/// `echo` of plain listeners, likewise.
pub(in crate::config) const ECHO: Table = Table {
    name: "echo",
    repeated: false,
    meaning: "",
    examples: &[],
    fields: &[
        Field::new("sent", Changes::Restart, ECHO_OFFSET, Presence::Required, ""),
        Field::new("heard", Changes::Restart, ECHO_OFFSET, Presence::Required, ""),
    ],
};

/// Four bytes end with the longest datagram.
const ECHO_OFFSET: Kind = Kind::Integer { min: 0, max: PLAIN_BYTES_MAX as u64 - 4 };

const LIMIT: Kind = Kind::Integer { min: 0, max: 1_000_000 };

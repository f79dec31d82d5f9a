//! The table of a game process.

use super::{Changes, Example, Field, IDS, Kind, LinkWord, NAME, Presence, REACHABLE, Table};
use crate::config::values::words;

pub(in crate::config) const BACKEND: Table = Table {
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

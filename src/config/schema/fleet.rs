//! The table of the fleet.

use super::{Changes, DIR_BYTES_MAX, Example, FLEET_NAME, Field, IDS, Kind, Presence, Table};
use crate::config::WhenAway;
use crate::config::values::words;

pub(in crate::config) const FLEET: Table = Table {
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
            "backends_per_process",
            Changes::Reload,
            Kind::Integer { min: 1, max: 4000 },
            Presence::Default("32"),
            "Most backends that one process may register here itself, and connections for that; more are refused and counted. \
             A process in another pid namespace, such as a container's, counts for its user only.",
        ),
        Field::new(
            "backends_per_user",
            Changes::Reload,
            Kind::Integer { min: 1, max: 4000 },
            Presence::Optional("200"),
            "Most backends that the processes of one user may register here themselves. Without this: max_backends.",
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

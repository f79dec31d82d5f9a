//! The table of an agent that is let in.

use super::{Changes, DIR_BYTES_MAX, Example, Field, Kind, Presence, TRUNK_KEY, Table};

pub(in crate::config) const AGENT: Table = Table {
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
            "Who may have signed the agents' certificates (PEM). Nobody else's is taken, and a reload ends the trunks of those whose signer \
             it takes away.",
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

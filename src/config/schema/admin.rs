//! The tables of what operators read: the admin address, and latency histograms.

use super::{Changes, DIR_BYTES_MAX, Example, Field, Kind, Presence, Table};

pub(in crate::config) const ADMIN: Table = Table {
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

pub(in crate::config) const HISTOGRAMS: Table = Table {
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

//! The file of a token service: `[fleet]`, `[tokens]` and one `[[caller]]` for each that may ask.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::distinct::Distinct;
use super::keys::KeySources;
use super::mistake::{Mistakes, Place, Report};
use super::read::{open, syntax, table, tables};
use super::schema::{self, Changes, Example, Field, Kind, Presence, Table};
use super::section::{Noted, Section};
use super::values::{self, Word, words};
use super::{Fleet, LoadError, LogFormat, Token, fleet, keys, source};
use ringgate_fleet::keyspace::Name;

/// Everything that such a file says.
#[derive(Debug)]
pub struct TokensConfig {
    /// The fleet. Invariant: it has a key.
    pub fleet: Fleet,
    /// The service.
    pub tokens: Tokens,
    /// Who may ask. Invariant: at least one, names unique.
    pub callers: Vec<Caller>,
}

/// `[tokens]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Where HTTP is served. Invariant: at least one, all different.
    pub bind: Vec<SocketAddr>,
    /// Certificate and key, where TLS is spoken.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Threads that answer.
    pub threads: usize,
    /// How long tokens live where nobody says.
    pub expire: Duration,
    /// How long they live at most. Invariant: not shorter than `expire`.
    pub max_expire: Duration,
    /// Gateways that a token may name.
    pub max_addresses: usize,
    /// What becomes of requests while etcd is away.
    pub when_away: WhenAway,
    /// Bytes of answers that are kept for requests that come again.
    pub memory: usize,
    /// Where it writes what it has promised, for its next start.
    pub state_dir: Option<PathBuf>,
    /// How long what is under way may take when the service ends.
    pub drain_timeout: Duration,
    /// How log lines look.
    pub log: LogFormat,
    /// Whom the service becomes once it listens.
    pub user: Option<String>,
    /// Whether it gives up system calls and files that it does not need any more.
    pub confine: bool,
}

/// What becomes of requests while etcd is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenAway {
    /// They are served by what was last known.
    Serve,
    /// They are refused once the slots that were leased are used up.
    Refuse,
}

impl Word for WhenAway {
    const WORDS: &'static [(&'static str, Self)] =
        &[("serve", Self::Serve), ("refuse", Self::Refuse)];
}

/// `[[caller]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What it is called in the log.
    pub name: String,
    /// What it shows.
    pub secret: Token,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// Groups that it may ask for; empty for all.
    pub groups: Vec<Name>,
    /// Players that it may place in a second; 0 for any number.
    pub rate: u32,
    /// So many at once.
    pub burst: u32,
}

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Ask for tokens.
    Tokens,
    /// Ask for places without a token.
    Places,
    /// Confirm what is held back.
    Admin,
    /// See the whole fleet.
    See,
}

impl Word for Scope {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("tokens", Self::Tokens),
        ("places", Self::Places),
        ("admin", Self::Admin),
        ("see", Self::See),
    ];
}

impl TokensConfig {
    /// Reads and checks a file.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        super::load(file, |text, sources| Self::parse(text, file, sources))
    }

    /// Checks a text. `file` names it in mistakes, and its directory is where relative paths start.
    pub fn parse(text: &str, file: &Path, sources: &KeySources<'_>) -> Result<Self, Mistakes> {
        let mut report = Report::new(text);
        let found = read(&mut report, text, file, sources);
        match found {
            Some(config) if report.is_clean() => Ok(config),
            _ => Err(report.into_mistakes(file)),
        }
    }
}

fn read(
    report: &mut Report,
    text: &str,
    file: &Path,
    sources: &KeySources<'_>,
) -> Option<TokensConfig> {
    let mut root = syntax(text, report);
    if !report.is_clean() {
        return None;
    }
    let base = file.parent().unwrap_or_else(|| Path::new(""));
    let fleet = table(&mut root, &schema::FLEET, report);
    if fleet.is_none() && report.is_clean() {
        report.expected(&Place::new("fleet", 0), "nothing", "a table [fleet]");
    }
    let fleet = fleet.and_then(|found| {
        let place = Place::new("fleet.key", found.0.at);
        let fleet = fleet::read(open(report, &schema::FLEET, found), sources, base)?;
        if fleet.key.is_none() {
            report.expected(
                &place,
                "nothing",
                "the fleet's key: tokens are sealed with what it opens",
            );
        }
        Some(fleet)
    });
    let tokens = table(&mut root, &TOKENS, report);
    if tokens.is_none() && !text.contains("[tokens]") {
        report.expected(&Place::new("tokens", 0), "nothing", "a table [tokens]");
    }
    let tokens = tokens.and_then(|found| read_tokens(open(report, &TOKENS, found), base));
    let mut names = Distinct::default();
    let mut secrets = Vec::new();
    let callers: Vec<_> = tables(&mut root, &CALLER, CALLERS_MAX, report)
        .into_iter()
        .map(|found| {
            let section = open(report, &CALLER, found);
            read_caller(section, sources, base, &mut names, &mut secrets)
        })
        .collect();
    let known: Vec<_> = TABLES.iter().map(|table| table.name).collect();
    for key in root.keys() {
        let place = Place::new(key.get_ref().as_ref(), key.span().start);
        report.unknown(&place, key.get_ref(), &known);
    }
    let callers = callers.into_iter().collect::<Option<_>>()?;
    Some(TokensConfig { fleet: fleet?, tokens: tokens?, callers })
}

fn read_tokens(mut section: Section<'_, '_>, base: &Path) -> Option<Tokens> {
    let bind = read_bind(&mut section);
    let tls = read_tls(&mut section, base);
    let threads = section.integer("threads");
    let expire = section.duration("expire");
    let place = section.place("max_expire");
    let max_expire = section.duration("max_expire");
    let max_addresses = section.integer("max_addresses");
    let when_away = section.choice("when_away");
    let memory = section.integer("memory");
    let state_dir = if section.is_absent("state_dir") {
        Some(None)
    } else {
        section.path("state_dir", base).map(Some)
    };
    let drain_timeout = section.duration("drain_timeout");
    let log = section.choice("log");
    let user = section.text_or("user", None, |text| values::user(text).map(Some));
    let confine = section.flag("confine");
    if let (Some(expire), Some(max_expire)) = (expire, max_expire)
        && expire > max_expire
    {
        let expected = format_args!("expire ({expire:?}) or more");
        section.report.expected(&place, format_args!("{max_expire:?}"), expected);
    }
    section.finish();
    Some(Tokens {
        bind: bind?,
        tls: tls.ok()?,
        threads: threads? as usize,
        expire: expire?,
        max_expire: max_expire?,
        max_addresses: max_addresses? as usize,
        when_away: when_away?.0,
        memory: usize::try_from(memory?).ok()?,
        state_dir: state_dir?,
        drain_timeout: drain_timeout?,
        log: log?.0,
        user: user?,
        confine: confine?,
    })
}

fn read_bind(section: &mut Section<'_, '_>) -> Option<Vec<SocketAddr>> {
    let list = section.list("bind", |value| values::address(value.as_str()?))?;
    let mut seen = Distinct::default();
    for (address, place) in &list {
        seen.check(section.report, place, address.to_string());
    }
    Some(list.into_iter().map(|(address, _)| address).collect())
}

/// Both files or none; the key's is closed to others.
fn read_tls(
    section: &mut Section<'_, '_>,
    base: &Path,
) -> Result<Option<(PathBuf, PathBuf)>, Noted> {
    let places = ["certificate", "certificate_key"].map(|field| section.place(field));
    let mut file = |name| section.text_or(name, None, |text| path(text, base).map(Some));
    let (certificate, key) = (file("certificate"), file("certificate_key"));
    let [of_certificate, of_key] = places;
    match (certificate.ok_or(Noted)?, key.ok_or(Noted)?) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            if let Err(why) = keys::open_closed(&key) {
                section.report.note(&of_key, why.to_string());
                return Err(Noted);
            }
            Ok(Some((certificate, key)))
        }
        (Some(_), None) => {
            section.report.expected(&of_key, "nothing, and a certificate", "its key's file");
            Err(Noted)
        }
        (None, Some(_)) => {
            section.report.expected(&of_certificate, "nothing, and its key", "the certificate");
            Err(Noted)
        }
    }
}

fn path(text: &str, base: &Path) -> Option<PathBuf> {
    (!text.is_empty() && !text.contains('\0')).then(|| base.join(text))
}

fn read_caller(
    mut section: Section<'_, '_>,
    sources: &KeySources<'_>,
    base: &Path,
    names: &mut Distinct<String>,
    secrets: &mut Vec<Token>,
) -> Option<Caller> {
    let name = section.text("name", values::name);
    if let Some((name, place)) = &name {
        names.check(section.report, place, name.clone());
    }
    let of_secret = section.place("secret");
    let secret = match section.node("secret") {
        Some(node) => source::read::<Token>(node, sources, base, section.report),
        None => {
            section.report.expected(&of_secret, "nothing", "what the caller shows");
            None
        }
    };
    if let Some(secret) = &secret {
        if secrets.contains(secret) {
            let expected = "one of its own: nobody could tell the two callers apart";
            section.report.expected(&of_secret, "the secret of another caller", expected);
        }
        secrets.push(secret.clone());
    }
    let scopes = section.list("scopes", |value| values::word(value.as_str()?));
    let groups = section.list("groups", |value| Name::new(value.as_str()?));
    let rate = section.integer("rate");
    let burst = section.integer("burst");
    section.finish();
    Some(Caller {
        name: name?.0,
        secret: secret?,
        scopes: scopes?.into_iter().map(|it| it.0).collect(),
        groups: groups?.into_iter().map(|it| it.0).collect(),
        rate: rate? as u32,
        burst: burst? as u32,
    })
}

/// All tables of such a file.
pub(super) const TABLES: &[&Table] = &[&schema::FLEET, &TOKENS, &CALLER];

const TOKENS: Table = Table {
    name: "tokens",
    repeated: false,
    meaning: "A token service (`ringgate tokens --config FILE`), in a file of its own beside [fleet], which has to have the fleet's key.",
    examples: &[Example { variant: "", values: &[("bind", "[\"127.0.0.1:7400\"]")] }],
    fields: &[
        Field::new(
            "bind",
            Changes::Restart,
            Kind::List {
                items: "one or more IP:port pairs",
                item: "an IP:port such as 0.0.0.0:7400",
            },
            Presence::Required,
            "Where HTTP is served. Every thread, and the process that follows this one, binds them too (SO_REUSEPORT).",
        ),
        Field::new(
            "certificate",
            Changes::Restart,
            Kind::Value("the path of a file in PEM"),
            Presence::Optional("\"/etc/ringgate/tokens.pem\""),
            "The certificate for TLS 1.3, and those that lead to its authority. Without it HTTP is spoken in the clear: only within a \
             host, or behind a proxy that does TLS.",
        ),
        Field::new(
            "certificate_key",
            Changes::Restart,
            Kind::Value("the path of a file in PEM that is closed to group and others"),
            Presence::Optional("\"/etc/ringgate/tokens.key.pem\""),
            "The certificate's key.",
        ),
        Field::new(
            "threads",
            Changes::Restart,
            Kind::Integer { min: 1, max: 64 },
            Presence::Default("1"),
            "Threads that answer, each on a core of its own where there are so many.",
        ),
        Field::new(
            "expire",
            Changes::Restart,
            Kind::Duration { min: "1s", max: "24h" },
            Presence::Default("\"30s\""),
            "How long a token can be used where the caller does not say. For so long a player's slot is kept.",
        ),
        Field::new(
            "max_expire",
            Changes::Restart,
            Kind::Duration { min: "1s", max: "24h" },
            Presence::Default("\"5m\""),
            "The longest that callers may ask for. Without state_dir, slots that a service has promised stay promised for so long when \
             it dies.",
        ),
        Field::new(
            "max_addresses",
            Changes::Restart,
            Kind::Integer { min: 1, max: 8 },
            Presence::Default("1"),
            "Gateways that a token may name, one after the other, for players whose gateway dies. With more than one, gateways claim \
             such tokens in etcd, so that each is used once.",
        ),
        Field::new(
            "when_away",
            Changes::Restart,
            Kind::Choice(words::<WhenAway>),
            Presence::Default("\"serve\""),
            "While etcd is away and the slots that were leased are used up: \"serve\" by what was last known, which may send more \
             players than fit (gateways refuse them), or \"refuse\".",
        ),
        Field::new(
            "memory",
            Changes::Restart,
            Kind::Integer { min: 0, max: 4_294_967_296 },
            Presence::Default("67108864"),
            "Bytes of answers that are kept for 10 minutes, for requests that come again under their Idempotency-Key.",
        ),
        Field::new(
            "state_dir",
            Changes::Restart,
            Kind::Path { bytes_max: schema::DIR_BYTES_MAX },
            Presence::Optional("\"/var/lib/ringgate-tokens\""),
            "Where it writes what it has promised, before it answers: the next start with this folder takes over just that, also after a \
             kill. One service at a time has it. Made where it is missing, closed to other users.",
        ),
        Field::new(
            "drain_timeout",
            Changes::Restart,
            Kind::Duration { min: "0s", max: "10m" },
            Presence::Default("\"10s\""),
            "How long requests that are under way may take when the service is told to end.",
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
            Presence::Optional("\"ringgate-tokens\""),
            "Become this user once the service listens. Needs a start as root; without it the service stays who it is.",
        ),
        Field::new(
            "confine",
            Changes::Restart,
            Kind::Flag,
            Presence::Default("false"),
            "Give up most system calls, and all files but state_dir, what names of hosts are looked up in and, to be read, the folders \
             of this file and of the certificate, and systemd's credentials.",
        ),
    ],
};

const CALLER: Table = Table {
    name: "caller",
    repeated: true,
    meaning: "Who may ask a token service: a matchmaker, a game's backend. At least one, at most 256.",
    examples: &[Example {
        variant: "",
        values: &[
            ("name", "\"matchmaker\""),
            ("secret", "{ file = \"/etc/ringgate/matchmaker.secret\" }"),
        ],
    }],
    fields: &[
        Field::new(
            "name",
            Changes::Restart,
            Kind::Value("1 to 31 letters, digits, '.', '_' or '-'"),
            Presence::Required,
            "What it is called in the log.",
        ),
        Field::new(
            "secret",
            Changes::Restart,
            Kind::Value("{ file = … }, { env = … }, { hex = … } or { credential = … }"),
            Presence::Required,
            "What it sends as `Authorization: Bearer SECRET`: 16 to 256 printable characters (`ringgate keygen --out FILE` makes \
             some). A file is closed to group and others (chmod 600).",
        ),
        Field::new(
            "scopes",
            Changes::Restart,
            Kind::List {
                items: "one or more of \"tokens\", \"places\", \"see\" and \"admin\"",
                item: "\"tokens\", \"places\", \"see\" or \"admin\"",
            },
            Presence::Default("[\"tokens\", \"places\"]"),
            "What it may do: \"tokens\" makes tokens, \"places\" finds places for games without them, \"see\" sees the \
             whole fleet (/fleet), \"admin\" confirms what the service holds back.",
        ),
        Field::new(
            "groups",
            Changes::Restart,
            Kind::List { items: "one or more names of groups", item: "the name of a group" },
            Presence::Optional("[\"main\"]"),
            "Groups of backends that it may ask for. Without it: all.",
        ),
        Field::new(
            "rate",
            Changes::Restart,
            Kind::Integer { min: 0, max: 1_000_000 },
            Presence::Default("0"),
            "Players that it may place in a second, on average; 0 for any number. Each service counts for itself.",
        ),
        Field::new(
            "burst",
            Changes::Restart,
            Kind::Integer { min: 1, max: 1_000_000 },
            Presence::Default("1000"),
            "So many at once.",
        ),
    ],
};

const CALLERS_MAX: usize = 256;

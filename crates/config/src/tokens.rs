//! The file of a token service: `[fleet]`, `[tokens]` and one `[[caller]]` for each that may ask.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::declare::{Declared, declare};
use super::distinct::Distinct;
use super::fleet::{self, FLEET, check_pair};
use super::keys::KeySources;
use super::mistake::Mistakes;
use super::read::Document;
use super::schema::{DIR_BYTES_MAX, LEVELS, Table, example};
use super::section::Section;
use super::values::{self, Word, worded};
use super::{Fleet, LoadError, LogFormat, Token};
use ringgate_fleet::epochs::ACCEPTED_MAX;
use ringgate_fleet::keyspace::Name;
use ringgate_tokens::Scope;

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

declare! {
    /// `[tokens]`.
    #[derive(Clone, Debug)]
    pub struct Tokens {
        /// Where HTTP is served. Every thread, and the process that follows this one, binds them
        /// too (SO_REUSEPORT).
        bind: Vec<SocketAddr> = set(
            "one or more IP:port pairs",
            "an IP:port such as 0.0.0.0:7400",
            |value| values::address(value.as_str()?),
            ToString::to_string
        ), required, Restart;
        /// The certificate for TLS 1.3, and those that lead to its authority. Without it HTTP is
        /// spoken in the clear: only within a host, or behind a proxy that does TLS.
        certificate: Option<PathBuf> =
            file("the path of a file in PEM"), optional: "/etc/ringgate/tokens.pem", Restart;
        /// The certificate's key.
        certificate_key: Option<PathBuf> =
            file("the path of a file in PEM that is closed to group and others"),
            optional: "/etc/ringgate/tokens.key.pem", Restart;
        /// Threads that answer, each on a core of its own where there are so many.
        threads: usize = integer(1, 64), default: 1, Restart;
        /// How long a token can be used where the caller does not say, in whole seconds: what is
        /// left of one does not count. For so long a player's slot is kept.
        expire: Duration = duration("1s", "24h"), default: "30s", Restart;
        /// The longest that callers may ask for. Without state_dir, slots that a service has
        /// promised stay promised for so long when it dies.
        max_expire: Duration = duration("1s", "24h"), default: "5m", Restart;
        /// Gateways that a token may name, one after the other, for players whose gateway dies.
        /// With more than one, gateways claim such tokens in etcd, so that each is used once.
        max_addresses: usize = integer(1, 8), default: 1, Restart;
        /// While etcd is away and the slots that were leased are used up: "serve" by what was last
        /// known, which may send more players than fit (gateways refuse them), or "refuse". Where
        /// there are several services, "serve" may promise a client a second slot elsewhere, and
        /// "refuse" makes no token for a client at all, because nobody can tell.
        when_away: WhenAway = word, default: "serve", Restart;
        /// Bytes of answers that are kept for 10 minutes, for requests that come again under their
        /// Idempotency-Key.
        memory: usize = integer(0, 4_294_967_296), default: 67108864, Restart;
        /// Where it writes what it has promised, before it answers: the next start with this folder
        /// takes over just that, also after a kill. One service at a time has it. Made where it is
        /// missing, closed to other users.
        state_dir: Option<PathBuf> =
            path(DIR_BYTES_MAX), optional: "/var/lib/ringgate-tokens", Restart;
        /// How often the keys of all listeners that have some are rotated, by whichever token
        /// service is first: a new key is minted with for twice as long, if no rotation follows. At
        /// least a seventh of max_expire, because gateways accept eight keys of a listener.
        /// Without it operators rotate (ringgate fleet keys rotate).
        rotate_every: Option<Duration> = duration("1m", "8760h"), optional: "168h", Restart;
        /// How long requests that are under way may take when the service is told to end.
        drain_timeout: Duration = duration("0s", "10m"), default: "10s", Restart;
        /// How log lines look. The command line's --log goes first.
        log: LogFormat = word, default: "human", Restart;
        /// Which log lines are told: a level, and for single parts of the program PART=LEVEL, with
        /// commas between. The variable RINGGATE_LOG goes first.
        log_level: String = text(LEVELS, values::levels), default: "info", Reload;
        /// Become this user once the service listens. Needs a start as root; without it the service
        /// stays who it is.
        user: Option<String> = text("a user's name", values::user), optional: "ringgate-tokens", Restart;
        /// Give up most system calls, and all files but state_dir, what names of hosts are looked
        /// up in and, to be read, the folders of this file and of the certificates, and systemd's
        /// credentials. A reload reads all secrets of this file, so they have to lie there.
        confine: bool = flag, default: false, Restart;
    }
}

const TOKENS: Table = Table {
    examples: &[example!("": bind = ["127.0.0.1:7400"])],
    ..Table::new(
        "tokens",
        "A token service (`ringgate tokens --config FILE`), in a file of its own beside [fleet], which has to have the \
         fleet's key.",
        &[Tokens::FIELDS],
    )
};

worded! {
    /// What becomes of requests while etcd is away.
    pub enum WhenAway {
        /// They are served by what was last known.
        Serve = "serve",
        /// They are refused once the slots that were leased are used up.
        Refuse = "refuse",
    }
}

declare! {
    /// `[[caller]]`.
    #[derive(Clone, Debug)]
    pub struct Caller {
        /// What it is called in the log.
        name: String = text("1 to 31 letters, digits, '.', '_' or '-'", values::name), required, Restart;
        /// What it sends as `Authorization: Bearer SECRET`: 16 to 256 printable characters
        /// (`ringgate keygen --out FILE` makes some). A file is closed to group and others (chmod
        /// 600).
        secret: Token =
            secret("{ file = … }, { env = … }, { hex = … } or { credential = … }"), required, Restart;
        /// What it may do: "tokens" makes tokens, "places" finds places for games without them,
        /// "see" sees the whole fleet (/fleet), "admin" confirms what the service holds back.
        scopes: Vec<Scope> = list(
            "one or more of \"tokens\", \"places\", \"see\" and \"admin\"",
            "\"tokens\", \"places\", \"see\" or \"admin\"",
            |value| values::word(value.as_str()?)
        ), default: ["tokens", "places"], Restart;
        /// Groups of backends that it may ask for. Without it: all.
        groups: Vec<Name> = list(
            "one or more names of groups", "the name of a group", |value| Name::new(value.as_str()?)
        ), optional: ["main"], Restart;
        /// Players that it may place in a second, on average; 0 for any number. Each service counts
        /// for itself.
        rate: u32 = integer(0, 1_000_000), default: 0, Restart;
        /// So many at once. A request for more players is refused, however often it comes.
        burst: u32 = integer(1, 1_000_000), default: 1000, Restart;
    }
}

const CALLER: Table = Table {
    repeated: true,
    examples: &[
        example!("": name = "matchmaker", secret = { file = "/etc/ringgate/matchmaker.secret" }),
    ],
    ..Table::new(
        "caller",
        "Who may ask a token service: a matchmaker, a game's backend. At least one, at most 256.",
        &[Caller::FIELDS],
    )
};

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
        Document::new(text, file, sources).read(TABLES, read)
    }
}

fn read(document: &mut Document<'_>) -> Option<TokensConfig> {
    let place_of_key = document.place(&FLEET, "key");
    let fleet = document.table_or_note(&FLEET).and_then(fleet::read);
    if fleet.as_ref().is_some_and(|fleet| fleet.key.is_none()) {
        let expected = "the fleet's key: tokens are sealed with what it opens";
        document.report.expected(&place_of_key, "nothing", expected);
    }
    let tokens = document.table_or_note(&TOKENS).and_then(read_tokens);
    let mut names = Distinct::default();
    let mut secrets = Vec::new();
    let callers = document.tables(&CALLER, CALLERS_MAX).into_iter();
    let callers: Vec<_> = callers
        .map(|found| read_caller(document.section(&CALLER, found), &mut names, &mut secrets))
        .collect();
    let callers = callers.into_iter().collect::<Option<_>>()?;
    Some(TokensConfig { fleet: fleet?, tokens: tokens?, callers })
}

fn read_tokens(mut section: Section<'_, '_>) -> Option<Tokens> {
    let found = Tokens::find(&mut section);
    if let (Some(certificate), Some(key)) = (&found.certificate, &found.certificate_key) {
        check_pair(&mut section, certificate.as_ref(), key.as_deref());
    }
    if let (Some(expire), Some(max_expire)) = (found.expire, found.max_expire)
        && expire > max_expire
    {
        let expected = format_args!("expire ({expire:?}) or more");
        section.expected("max_expire", format_args!("{max_expire:?}"), expected);
    }
    if let (Some(Some(every)), Some(max_expire)) = (found.rotate_every, found.max_expire) {
        let least_s = max_expire.as_secs().div_ceil(ACCEPTED_MAX as u64 - 1);
        if every.as_secs() < least_s {
            let expected = format_args!(
                "{least_s}s or more: gateways accept {ACCEPTED_MAX} keys, and tokens live for {max_expire:?}"
            );
            section.expected("rotate_every", format_args!("{every:?}"), expected);
        }
    }
    section.finish();
    Tokens::whole(found)
}

fn read_caller(
    mut section: Section<'_, '_>,
    names: &mut Distinct<String>,
    secrets: &mut Vec<Token>,
) -> Option<Caller> {
    let found = Caller::find(&mut section);
    if let Some(name) = &found.name {
        names.check(section.report, &section.place("name"), name.clone());
    }
    if let Some(secret) = &found.secret {
        if secrets.contains(secret) {
            let expected = "one of its own: nobody could tell the two callers apart";
            section.expected("secret", "the secret of another caller", expected);
        }
        secrets.push(secret.clone());
    }
    section.finish();
    Caller::whole(found)
}

/// All tables of such a file.
pub(super) const TABLES: &[&Table] = &[&FLEET, &TOKENS, &CALLER];

const CALLERS_MAX: usize = 256;

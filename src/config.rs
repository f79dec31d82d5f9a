//! The config file: TOML text in, a checked [`Config`] out, or every mistake in it at once.
//!
//! Whoever holds a [`Config`] relies on it: names are unique, every listener's backends exist and
//! speak a link that the listener can use, every number is inside its range, every key is loaded.
//! Nothing behind this module checks again.
//!
//! Every field is described once, in `schema`: name, what it accepts, default, meaning. The reader
//! takes expectations and defaults from there, and [`explain`] prints the same table, so that the
//! three cannot drift apart.
//!
//! Left out: anything that depends on the machine (free ports, limits, privileges). Those show when
//! the daemon starts, and `ringgate doctor` looks at them.

mod agent;
mod backend;
mod distinct;
mod explain;
mod fleet;
mod host;
pub mod hosted;
mod identity;
pub mod keys;
mod listener;
mod mistake;
mod notices;
mod read;
mod schema;
mod section;
mod source;
pub mod token;
pub mod tokens;
pub mod values;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

pub use agent::{ANY_AGENT, Agent};
pub use explain::{explain, explain_host, explain_tokens};
pub use fleet::{Account, Fleet, WhenAway};
pub use host::{Accepted, HostConfig, is_of_agent};
pub(crate) use host::{Agent as HostAgent, changes_of as changes_of_host};
pub use identity::Identity;
pub use mistake::{Mistake, Mistakes};
pub use read::{fleet, parse, run_dir};
pub use schema::{Changes, changes, changes_of};
pub use token::Token;

use keys::KeySources;
use ringgate_core::secret::Key;
use ringgate_fleet::keyspace::Name;
use ringgate_gate::{Front, Intake};
use values::Word;

/// Longest name of a backend or listener. User data routes by a name padded with NUL to 32 bytes.
pub const NAME_BYTES_MAX: usize = 31;

/// Everything a config file says.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[gateway]`.
    pub gateway: Gateway,
    /// `[[listener]]`, in the order of the file. Invariant: at least one, names and bind addresses
    /// unique.
    pub listeners: Vec<Listener>,
    /// `[[backend]]`, in the order of the file. Invariant: at least one where there is no fleet,
    /// names and UDP addresses unique.
    pub backends: Vec<Backend>,
    /// `[[agent]]`, in the order of the file. Invariant: at most 256, names unique.
    pub agents: Vec<Agent>,
    /// `[fleet]`; without it this gateway is alone.
    pub fleet: Option<Fleet>,
    /// `[admin]`; without it no admin address is served.
    pub admin: Option<Admin>,
    /// `[histograms]`; without it no histogram files are written.
    pub histograms: Option<Histograms>,
}

/// The daemon as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// How many workers serve players.
    pub workers: Workers,
    /// Whether each worker is pinned to a core of its own.
    pub pin: bool,
    /// Which driver moves datagrams.
    pub io: IoChoice,
    /// Where link sockets live. Invariant: short enough that `worker-127.sock` in it fits a Unix
    /// socket address.
    pub run_dir: PathBuf,
    /// What outlives a restart.
    pub state_dir: PathBuf,
    /// How long a drain waits before it disconnects who is still there.
    pub drain_timeout: Duration,
    /// Sessions that memory is set aside for, where that is more than all listeners may have.
    pub reserve_sessions: usize,
    /// How long a worker polls for more work before it sleeps in the kernel.
    pub spin: Duration,
    /// How long a busy worker may wait for more before it looks again.
    pub batch_delay: BatchDelay,
    /// How log lines look.
    pub log: LogFormat,
    /// Whom the daemon becomes once its sockets are bound.
    pub user: Option<String>,
    /// Whether it gives up system calls and files that it does not need any more.
    pub confine: bool,
}

/// How many workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One for each core that the daemon may use.
    Auto,
    /// Exactly this many, at most [`ringgate_core::limits::WORKERS_MAX`].
    Count(NonZeroUsize),
}

/// How long a busy worker may wait for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchDelay {
    /// As long as it costs players little.
    Auto,
    /// At most this, a millisecond or less.
    AtMost(Duration),
}

/// Which driver moves datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoChoice {
    /// `io_uring` where the kernel allows it, otherwise `mmsg`.
    Auto,
    /// `recvmmsg`, `sendmmsg` and epoll.
    Mmsg,
    /// `io_uring`, or no start at all.
    Uring,
}

impl Word for IoChoice {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("uring", Self::Uring), ("mmsg", Self::Mmsg)];
}

/// How a listener's packets come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerIo {
    /// By sockets, with the gateway's driver.
    Sockets,
    /// Past them, in frames of a network interface.
    Xdp,
}

impl Word for ListenerIo {
    const WORDS: &'static [(&'static str, Self)] =
        &[("sockets", Self::Sockets), ("xdp", Self::Xdp)];
}

/// `[listener.xdp]`, where a listener is served so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xdp {
    /// The network interface.
    pub interface: String,
    /// How many of its queues; all that it has in use where nothing is said.
    pub queues: Option<u32>,
    /// How frames come and go.
    pub mode: XdpMode,
    /// Whether the listener is served by sockets where it cannot be served so.
    pub fallback: bool,
}

/// How frames come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// As well as the interface can.
    Auto,
    /// The card reads and writes the gateway's memory.
    ZeroCopy,
    /// The driver runs the program, the kernel copies.
    Copy,
    /// The kernel runs the program itself, and copies.
    Generic,
}

impl Word for XdpMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("zerocopy", Self::ZeroCopy),
        ("copy", Self::Copy),
        ("generic", Self::Generic),
    ];
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A line to read, coloured on a terminal.
    Human,
    /// One JSON object a line.
    Json,
}

impl Word for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("human", Self::Human), ("json", Self::Json)];
}

impl Config {
    /// Sessions that memory is set aside for, of all listeners together.
    pub fn reserved_sessions(&self) -> usize {
        let together: usize = self.listeners.iter().map(|listener| listener.max_sessions).sum();
        together.max(self.gateway.reserve_sessions)
    }
}

/// One public front.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name in logs and metrics. Invariant: 1 to [`NAME_BYTES_MAX`] bytes, unique.
    pub name: String,
    /// The addresses to bind. Invariant: at least one; a port of 0 asks the kernel for a free one.
    pub bind: Vec<SocketAddr>,
    /// Indices into [`Config::backends`]. Invariant: no index twice; at least one where there is no
    /// group, none in the file where there is one; exactly one with [`Route::Single`].
    pub backends: Vec<usize>,
    /// The backends of the fleet that players are sent to.
    pub group: Option<Name>,
    /// Where players and tokens find this listener. Empty: the addresses that were bound.
    pub public: Vec<SocketAddr>,
    /// How a new player's backend is chosen.
    pub route: Route,
    /// Most sessions of this listener, over all workers.
    pub max_sessions: usize,
    /// What happens when a player's packets come from another port.
    pub port_switch: PortSwitch,
    /// Whether a socket filter drops foreign datagrams before they are queued.
    pub filter: bool,
    /// What one source may take.
    pub limits: Limits,
    /// Names of fields that the file has and that have no effect any more.
    pub ignored: Vec<&'static str>,
    /// How it is served past the kernel's sockets; by these where there is nothing. Invariant: the
    /// same for all listeners that have one.
    pub xdp: Option<Xdp>,
    /// What is spoken here.
    pub protocol: Protocol,
}

impl Listener {
    /// Whether its keys are the fleet's.
    pub const fn has_fleet_keys(&self) -> bool {
        matches!(&self.protocol, Protocol::Netcode(rules) if rules.has_fleet_keys)
    }
}

/// `[listener.limits]`: what one source may take of a listener. 0 is no limit. A block is an IPv4
/// /24 or an IPv6 /48, an address an IPv4 address or an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connection requests of a block, a second and worker.
    pub requests_per_block: u32,
    /// Unfinished handshakes of a block, at a time and worker.
    pub handshakes_per_block: u32,
    /// Sessions of a block that follow their player to another port, a second and worker.
    pub port_switches_per_block: u32,
    /// Players of a block who are asked to restart their handshake, a second and worker. Of no
    /// meaning in netcode.
    pub restarts_per_block: u32,
    /// Sessions that sources of a block begin, a second and worker. Of plain listeners only, and 0
    /// on others; the four above are 0 on plain ones.
    pub starts_per_block: u32,
    /// Sessions that begin at all, a second and worker. Of plain listeners only.
    pub starts: u32,
    /// Sessions of an address, over all workers.
    pub sessions_per_address: u32,
    /// Sessions of a block, over all workers.
    pub sessions_per_block: u32,
}

/// How a new player's backend is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By a hash of the client id (of the address, on Unreal and plain listeners).
    Hash,
    /// The backend with the fewest players.
    LeastPlayers,
    /// The only backend there is.
    Single,
    /// The backend that the datagram's token stands for. Invariant: plain only, and there are a
    /// token and tokens.
    Token,
    /// The backend named in the first 32 bytes of the token's user data. Invariant: netcode only.
    UserData,
}

impl Word for Route {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("single", Self::Single),
        ("user-data", Self::UserData),
        ("token", Self::Token),
        ("hash", Self::Hash),
        ("least-players", Self::LeastPlayers),
    ];
}

/// What happens when a player's packets come from another port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSwitch {
    /// The session follows, once a packet from there has proved itself.
    Follow,
    /// The packets are dropped.
    Ignore,
}

impl Word for PortSwitch {
    const WORDS: &'static [(&'static str, Self)] =
        &[("follow", Self::Follow), ("ignore", Self::Ignore)];
}

/// What becomes of a connect token whose player comes again with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenReuse {
    /// It opens another session.
    Allow,
    /// It is denied, once a session of the token has taken anything in from its player.
    Deny,
}

impl Word for TokenReuse {
    const WORDS: &'static [(&'static str, Self)] = &[("deny", Self::Deny), ("allow", Self::Allow)];
}

/// Who makes messages of what players send, and acknowledges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The game, if it wants to: payloads arrive or do not.
    None,
    /// The gateway: game processes get whole messages, and are told what arrived.
    Gateway,
}

impl Word for Delivery {
    const WORDS: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("gateway", Self::Gateway)];
}

/// Where nobody else may have a player's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniqueClients {
    /// At this gateway's listener: a second login waits for the first session's end.
    Gateway,
    /// At all listeners of the fleet with its group: the newer login wins.
    Fleet,
}

impl Word for UniqueClients {
    const WORDS: &'static [(&'static str, Self)] =
        &[("gateway", Self::Gateway), ("fleet", Self::Fleet)];
}

/// What a listener speaks, with the fields that only this protocol has.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// netcode 1.02.
    Netcode(Netcode),
    /// Unreal Engine's UDP protocol.
    Unreal(Unreal),
    /// Anything else over UDP.
    Plain(Plain),
}

impl Protocol {
    /// Which of them it is.
    pub const fn front(&self) -> Front {
        match self {
            Self::Netcode(_) => Front::Netcode,
            Self::Unreal(_) => Front::Unreal,
            Self::Plain(_) => Front::Plain,
        }
    }
}

/// The fields of a netcode listener.
#[derive(Clone, Debug)]
pub struct Netcode {
    /// The game's protocol id.
    pub protocol_id: u64,
    /// The keys that connect tokens may be sealed with, newest first by convention. Invariant: at
    /// most 8, all different, and at least one where they are not the fleet's.
    pub keys: Vec<Key>,
    /// Whether the fleet has the keys.
    pub has_fleet_keys: bool,
    /// Sequences that a session remembers. Invariant: a power of two, 64 to 1024.
    pub replay_window: u16,
    /// A jump over more sequences than this ends the session; without it any jump is fine.
    pub gap_limit: Option<NonZeroU64>,
    /// Players who are sent nothing else for so long are sent a keep-alive.
    pub keep_alive: Duration,
    /// What becomes of a token whose player comes again with it.
    pub token_reuse: TokenReuse,
    /// Who delivers messages. Invariant: with the gateway, all backends are on bundle links.
    pub delivery: Delivery,
    /// The group in which nobody else may have a player's id; `None` for this listener alone.
    pub unique_in: Option<Name>,
}

/// The fields of an Unreal listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreal {
    /// The bits that start every packet, in wire order. Invariant: at most 32.
    pub magic: Vec<bool>,
    /// Which handshakes are served.
    pub versions: HandshakeVersions,
    /// Whether handshake packets have network features.
    pub handshake_base: HandshakeBase,
    /// Whether game packets can be read.
    pub mode: UnrealMode,
    /// Whether duplicates are dropped.
    pub window: bool,
    /// Which builds of the game may connect.
    pub network_versions: NetworkVersions,
    /// A jump over more of a player's packets than this ends the session; without it, as many may
    /// be lost as an engine survives.
    pub gap_limit: Option<NonZeroU16>,
    /// Silence after which a session ends.
    pub idle_timeout: Duration,
}

/// Which Unreal handshakes are served. The packets of the three kinds begin differently, so a
/// listener serves one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeVersions {
    /// The layout without a version number, and without session and client ids.
    Original,
    /// Versions without session and client ids. Invariant: within 1 to 2.
    Early(RangeInclusive<u8>),
    /// Versions with both. Invariant: within 3 to 4.
    Versioned(RangeInclusive<u8>),
}

/// Whether the handshake packets of versions 2 to 4 say the network features, which depends on the
/// engine's build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeBase {
    /// As the server behind the listener does.
    Auto,
    /// They do: 82 bits before the body.
    Long,
    /// They do not: 66 bits.
    Short,
}

impl Word for HandshakeBase {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("short", Self::Short), ("long", Self::Long)];
}

/// Whether the packets of an Unreal game can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnrealMode {
    /// The notify header is in the clear: duplicates are found by sequence.
    Notify,
    /// Game packets are encrypted: only exact copies are found.
    Opaque,
}

impl Word for UnrealMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("notify", Self::Notify), ("opaque", Self::Opaque)];
}

/// Which builds of an Unreal game may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkVersions {
    /// All of them; the server judges.
    Any,
    /// Those with one of these checksums.
    Only(Vec<u32>),
}

/// The fields of a plain listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// What every datagram carries. Invariant: there with [`Route::Token`] and nowhere else.
    pub token: Option<RoutingToken>,
    /// Whose each token is. Invariant: all of the token's length, all different, none without
    /// [`Route::Token`].
    pub tokens: RoutingTokens,
    /// Where every datagram has a number.
    pub sequence: Option<Sequence>,
    /// Whose numbers are looked at.
    pub guard: GuardedWays,
    /// Numbers that a session remembers. Invariant: a power of two, 64 to 1024, and below half of
    /// the sequence's numbers.
    pub replay_window: u16,
    /// A jump over more numbers than this ends the session; without it any jump is fine.
    /// Invariant: below half of the sequence's numbers, and there is a sequence.
    pub gap_limit: Option<NonZeroU64>,
    /// What every datagram of a player begins with.
    pub begins_with: Vec<u8>,
    /// Silence after which a session ends.
    pub idle_timeout: Duration,
    /// Silence after which a session ends that nobody has shown to be alive.
    pub half_open_timeout: Duration,
    /// Such sessions of a worker.
    pub half_open_max: u32,
    /// So many times the bytes that it has sent a source of such a session gets; 0 for any number.
    pub answer_limit: u32,
    /// How long a source may not begin again after a gap has ended its session.
    pub gap_rest: Duration,
}

/// A token in every datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingToken {
    /// Where it stands.
    pub at: TokenPlace,
    /// How long it is, 1 to 64.
    pub bytes: u8,
    /// Whether game servers get datagrams without it.
    pub strip: bool,
}

/// Where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenPlace {
    /// At a datagram's end.
    End,
    /// At its start.
    Start,
}

impl Word for TokenPlace {
    const WORDS: &'static [(&'static str, Self)] = &[("end", Self::End), ("start", Self::Start)];
}

/// Tokens, each with an index into [`Config::backends`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RoutingTokens(pub Vec<(Box<[u8]>, usize)>);

/// Whoever knows a token reaches a server by it: only their number is told.
impl fmt::Debug for RoutingTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

/// Where every datagram has a number that counts up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Bytes before it. Invariant: the longest datagram holds it.
    pub offset: u16,
    /// Its width: 8, 16 or 32.
    pub bits: u8,
    /// Which of its bytes comes first.
    pub order: NumberOrder,
}

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOrder {
    /// The highest.
    Big,
    /// The lowest.
    Little,
}

impl Word for NumberOrder {
    const WORDS: &'static [(&'static str, Self)] = &[("big", Self::Big), ("little", Self::Little)];
}

/// Whose numbers are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedWays {
    /// Those of players.
    Up,
    /// Those of players and game servers.
    Both,
}

impl Word for GuardedWays {
    const WORDS: &'static [(&'static str, Self)] = &[("up", Self::Up), ("both", Self::Both)];
}

/// One game process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name. Invariant: 1 to [`NAME_BYTES_MAX`] bytes, unique.
    pub name: String,
    /// How it is reached.
    pub link: Link,
    /// Players it takes; more are denied. Invariant: at least 1.
    pub slots: u32,
    /// How long a backend may be gone before its players are disconnected.
    pub grace: Duration,
    /// Whom it is for. In the file: everybody.
    pub intake: Intake,
}

/// How a game process is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Records over `SOCK_SEQPACKET`.
    Bundle(Allowed),
    /// Plain UDP to this address. Invariant: no port of 0, no wildcard, no multicast.
    Udp(SocketAddr),
}

/// Who may connect as a bundle backend. With both lists empty: only the gateway's own user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// User ids.
    pub uids: Vec<u32>,
    /// Group ids.
    pub gids: Vec<u32>,
}

/// The admin address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where HTTP is served.
    pub bind: SocketAddr,
    /// Names that requests may call this host by, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// What entitles a request there to change something; without it none is entitled.
    pub token: Option<Token>,
}

/// Histogram files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histograms {
    /// Where they are written.
    pub dir: PathBuf,
    /// The time that one entry covers.
    pub interval: Duration,
    /// A file that is as long as this is left for a new one.
    pub bytes_max: u64,
    /// A file that is as old as this is left for a new one.
    pub age_max: Duration,
    /// The newest files that are kept; without it all are.
    pub keep: Option<NonZeroUsize>,
}

impl Config {
    /// Reads and checks a config file. Keys come from where the file says: other files, this
    /// process's environment, or the credentials that the service manager handed over.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        load(file, |text, sources| parse(text, file, sources))
    }

    /// What is allowed but probably not meant, one sentence each.
    pub fn notices(&self) -> Vec<String> {
        notices::of(self)
    }
}

/// Reads a file, whatever it configures, and has it checked.
fn load<T>(
    file: &Path,
    parse: impl FnOnce(&str, &KeySources<'_>) -> Result<T, Mistakes>,
) -> Result<T, LoadError> {
    let text = text_of(file)?;
    parse(&text, &KeySources::of_process()).map_err(LoadError::Mistakes)
}

/// What is in a file. It may hold keys.
fn text_of(file: &Path) -> Result<Zeroizing<String>, LoadError> {
    let text = std::fs::read_to_string(file).map(Zeroizing::new);
    text.map_err(|cause| LoadError::Unreadable { file: file.to_owned(), cause })
}

/// Why there is no [`Config`].
#[derive(Debug)]
pub enum LoadError {
    /// The file could not be read as text.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The file was read, and is wrong.
    Mistakes(Mistakes),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, cause } => {
                write!(f, "cannot read the config file {}: {cause}", file.display())
            }
            Self::Mistakes(mistakes) => mistakes.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

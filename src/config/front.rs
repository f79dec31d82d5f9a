//! What a listener is told: whom it lets in, what is spoken there and where players go.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU64};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::values::Word;
use ringgate_core::secret::SharedKey;
use ringgate_fleet::keyspace::Name;
use ringgate_gate::Front;

/// One public front.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name in logs and metrics. Invariant: 1 to [`NAME_BYTES_MAX`](super::NAME_BYTES_MAX)
    /// bytes, unique.
    pub name: String,
    /// The addresses to bind. Invariant: at least one; a port of 0 asks the kernel for a free one.
    pub bind: Vec<SocketAddr>,
    /// Indices into [`Config::backends`](super::Config::backends). Invariant: no index twice; at
    /// least one where there is no group, none in the file where there is one; exactly one with
    /// [`Route::Single`].
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
    /// Sessions of an IPv6 /56, over all workers.
    pub sessions_per_site: u32,
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
    /// At this gateway's listener: a second login waits until the first session is silent.
    Gateway,
    /// At all listeners of the fleet with its group: the newer login wins.
    Fleet,
    /// At this gateway's listener: the newer login wins.
    Newest,
}

impl Word for UniqueClients {
    const WORDS: &'static [(&'static str, Self)] =
        &[("gateway", Self::Gateway), ("fleet", Self::Fleet), ("newest", Self::Newest)];
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
    pub keys: Vec<SharedKey>,
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
    /// How long a session has to be silent for another login of its id to replace it; `None` where
    /// the newest login wins.
    pub replace_after: Option<Duration>,
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
    /// Bytes that the source of an open session is sent for each one heard; 0 for any number.
    pub credit_ratio: u32,
    /// Of which so many are kept.
    pub credit_burst: u32,
    /// Silence after which such a source is sent nothing until it is heard; 0 for never.
    pub pause_after: Duration,
    /// Where four bytes of a server's come back, which prove a source.
    pub echo: Option<Echo>,
    /// Of a hundred slots of a server, those that unproven players may hold.
    pub unproven_slots: u32,
    /// How long a source may not begin again after a gap has ended its session.
    pub gap_rest: Duration,
}

/// Four bytes of each datagram of a server that come back in a player's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Bytes before them in the server's.
    pub sent: u16,
    /// Bytes before them in the player's.
    pub heard: u16,
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

/// Tokens, each with an index into [`Config::backends`](super::Config::backends).
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

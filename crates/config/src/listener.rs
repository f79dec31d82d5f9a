//! `[[listener]]`: the fields that every protocol has, and the conditions on the backends it names.

mod limits;
mod netcode;
mod plain;
mod tokens;
mod unreal;
mod xdp;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use toml::de::DeValue;

use super::backend::{Known, KnownBackend};
use super::declare::{Declared, declare};
use super::distinct::Distinct;
use super::mistake::{Place, Report};
use super::schema::{FLEET_NAME, Kind, LinkWord, NAME, REACHABLE, Table, example};
use super::section::{Section, integer};
use super::values::{self, words};
use super::{Fleet, ListenerIo, PortSwitch, Protocol, Route};
pub use limits::Limits;
pub use netcode::Netcode;
pub use plain::{Echo, Plain, RoutingToken, Sequence};
use ringgate_core::limits::BINDS_MAX;
use ringgate_fleet::keyspace::Name;
use ringgate_gate::Front;
pub use unreal::Unreal;
pub use xdp::Xdp;

pub(super) use limits::LIMITS;
pub(super) use xdp::XDP;

/// What a listener is checked against: the backends, the other listeners.
pub(super) struct Surroundings<'s> {
    backends: &'s Known,
    /// What agents may serve, by the names in the file; `None` where not all of them could be read.
    pub(super) served: Option<HashSet<String>>,
    /// Whether there is a fleet at all, and whether it has keys for listeners.
    has_fleet: bool,
    has_fleet_key: bool,
    names: Distinct<String>,
    addresses: Distinct<SocketAddr>,
    /// Where agents and members of the cluster connect, over UDP, too.
    pub(super) doors: Vec<SocketAddr>,
    /// What each backend is spoken to in, by the first listener that names it, and each group.
    spoken: HashMap<usize, Front>,
    spoken_groups: HashMap<Name, Front>,
    /// How many workers there will be, where the file says so.
    pub(super) workers: Option<usize>,
    /// What the first listener says that is served past the sockets.
    card: Option<Xdp>,
}

impl<'s> Surroundings<'s> {
    /// `has_fleet` even where what the file says of it is wrong.
    pub(super) fn new(backends: &'s Known, (has_fleet, fleet): (bool, Option<&Fleet>)) -> Self {
        Self {
            backends,
            served: None,
            has_fleet,
            // Where it could not be read, there may be a key.
            has_fleet_key: has_fleet && fleet.is_none_or(|fleet| fleet.key.is_some()),
            names: Distinct::default(),
            addresses: Distinct::default(),
            doors: Vec::new(),
            spoken: HashMap::new(),
            spoken_groups: HashMap::new(),
            workers: None,
            card: None,
        }
    }

    /// Notes a backend that the first listener which names it speaks to in another protocol.
    fn check_spoken(
        &mut self,
        (index, name): (usize, &str),
        word: Front,
        place: &Place,
        report: &mut Report,
    ) {
        if *self.spoken.entry(index).or_insert(word) != word {
            let found = format_args!("{name:?}, which is behind a listener of another protocol");
            report.expected(place, found, "a backend that speaks one protocol");
        }
    }
}

declare! {
    /// One public front.
    #[derive(Clone, Debug)]
    pub struct Listener {
        /// Its name in logs and metrics, different from other listeners' names. In a fleet it
        /// begins with a letter or a digit.
        name: String = text(NAME, values::name), required,
            ReloadBut("a listener with another name is another one, and the one before drains");
        /// What players speak: netcode 1.02, Unreal Engine's UDP protocol, or anything else over
        /// UDP ("plain").
        protocol: Protocol = by_hand(Kind::Choice(words::<Front>)), required, Restart;
        /// Addresses to receive on, at most 256. Port 0 takes a free port.
        bind: Vec<SocketAddr> = list(
            "addresses", "an IP:port such as \"0.0.0.0:40000\" or \"[::]:40000\"",
            |value| values::address(value.as_str()?)
        ), required, ReloadBut("to other addresses only: the listener at those before drains");
        /// The addresses that players dial, and that connect tokens must name. Without it: those in
        /// bind, which then may not be wildcards on netcode listeners, and on none in a fleet.
        /// ${NAME} stands for what an environment variable holds.
        public: Vec<SocketAddr> =
            custom(Kind::List { items: "addresses", item: REACHABLE }, read_public), optional: ["203.0.113.9:40000"], Reload;
        /// The game processes behind this listener: this or group is required. Those of Unreal
        /// listeners have link = "udp", or are udp servers behind an agent that lists them.
        //
        // Indices into the config's backends. Invariant: no index twice; at least one where there
        // is no group, none in the file where there is one; exactly one with `Route::Single`.
        backends: Vec<usize> =
            by_hand(Kind::List { items: "names", item: "the name of a [[backend]]" }), optional: ["arena-1"], Reload;
        /// The backends of the fleet behind this listener, instead of backends: those on this host
        /// that are registered under this group, as they come and go.
        group: Option<Name> = text(FLEET_NAME, Name::new), optional: "arena", Reload;
        /// How a new player's backend is chosen. "single": there is only one. "user-data": the
        /// token's user data begins with its name, padded with NUL to 32 bytes (netcode only).
        /// "token": tokens says whose the datagram's token is (plain only). "hash": by client id,
        /// or by address on Unreal and plain listeners. "least-players": the one with the fewest.
        route: Route = word, default: "single", Reload;
        /// Most players at a time; more are denied. All listeners together have at most 10000000.
        max_sessions: usize = integer(1, 10_000_000), default: 100000,
            ReloadBut("up to what all listeners together had at the start, or reserve_sessions");
        /// Whether a session follows its player to another port, as when a router forgets its
        /// mapping. On plain listeners nothing could prove it: a new port is a new session.
        port_switch: PortSwitch = word, default: "follow",
            ReloadBut("for sessions that begin later"), only ["netcode", "unreal"];
        /// Let a socket filter drop datagrams that cannot be this listener's before they are
        /// queued.
        filter: bool = flag, default: true, Restart;
        /// How players' packets come and go. "sockets": by sockets, as gateway.io says. "xdp": past
        /// them, in frames of the network interface that [listener.xdp] names (AF_XDP). What is
        /// odd, or comes by another interface, still arrives at the socket, which stays open. Takes
        /// CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF at the start.
        io: ListenerIo = word, default: "sockets", Restart;
        /// What one source may take.
        limits: Limits = custom(Kind::Table(&LIMITS), limits::read), default: {}, Reload;
        /// How it is served past the kernel's sockets; by these where there is nothing. Invariant:
        /// the same for all listeners that have one.
        xdp: Option<Xdp> = by_hand(Kind::Table(&XDP)), default: {}, Restart;
    }
}

pub(super) const LISTENER: Table = Table {
    repeated: true,
    examples: &[
        example!(
            "netcode": name = "eu-west", protocol = "netcode", bind = ["0.0.0.0:40000", "[::]:40000"],
            public = ["203.0.113.9:40000"], protocol_id = "0x1122334455667788",
            keys = [{ file = "/etc/ringgate/netcode.key" }], backends = ["arena-1"]
        ),
        example!(
            "unreal": name = "shooter", protocol = "unreal", bind = ["0.0.0.0:7777"],
            public = ["203.0.113.9:7777"], backends = ["shooter-1"]
        ),
        example!(
            "plain": name = "any", protocol = "plain", bind = ["0.0.0.0:7000"],
            public = ["203.0.113.9:7000"], backends = ["any-1"]
        ),
    ],
    ..Table::new(
        "listener",
        "A public UDP front. At least one, at most 256.",
        &[Listener::FIELDS, Netcode::FIELDS, Unreal::FIELDS, Plain::FIELDS],
    )
};

impl Listener {
    /// Whether its keys are the fleet's.
    pub const fn has_fleet_keys(&self) -> bool {
        matches!(&self.protocol, Protocol::Netcode(rules) if rules.has_fleet_keys)
    }

    /// Names of fields that the file has and that have no effect any more.
    pub fn ignored(&self) -> impl Iterator<Item = &'static str> {
        let restart_small = match &self.protocol {
            Protocol::Unreal(rules) => rules.restart_small,
            _ => None,
        };
        restart_small.map(|_| "restart_small").into_iter()
    }
}

pub(super) fn read(
    mut section: Section<'_, '_>,
    around: &mut Surroundings<'_>,
) -> Option<Listener> {
    let word = section.variant("protocol");
    let mut found = Listener::find(&mut section);
    if let Some(name) = &found.name {
        around.names.check(section.report, &section.place("name"), name.clone());
        if around.has_fleet {
            section.check_fleet_name(name);
        }
    }
    let bind = found.bind.as_deref().unwrap_or_default();
    for (index, address) in bind.iter().enumerate().filter(|(_, address)| address.port() != 0) {
        let place = section.place_in("bind", index);
        around.addresses.check(section.report, &place, *address);
        if around.doors.contains(address) {
            let found = format_args!("{address}, where agents or a cluster's members connect");
            section.report.expected(&place, found, "an address for players alone");
        }
    }
    if bind.len() > BINDS_MAX {
        let at = section.place_in("bind", BINDS_MAX).at;
        let place = Place::new(section.place_of("bind").path, at);
        let found = format_args!("{} addresses", bind.len());
        section.report.expected(&place, found, format_args!("at most {BINDS_MAX}"));
    }
    if let Some(public) = &found.public {
        check_public(&mut section, word, bind, public, around);
    }
    if let Some(Some(group)) = &found.group {
        check_group(&mut section, word, group, around);
    }
    let is_grouped = matches!(found.group, Some(Some(_)));
    found.backends = read_backends(&mut section, word, is_grouped, around);
    let (backends, route) = (found.backends.as_deref(), found.route);
    if let Some(route) = route {
        check_route(&mut section, word, (route, backends, is_grouped), around);
    }
    found.protocol = match word {
        Some(Front::Netcode) => {
            let led = (backends, is_grouped);
            netcode::read(&mut section, led, around).map(Protocol::Netcode)
        }
        Some(Front::Unreal) => unreal::read(&mut section).map(Protocol::Unreal),
        Some(Front::Plain) => {
            let of = plain::Led { route, backends, is_grouped };
            plain::read(&mut section, of, around).map(Protocol::Plain)
        }
        None => None,
    };
    found.xdp = xdp::read(&mut section, found.io, around);
    section.finish();
    Listener::whole(found)
}

fn read_public(section: &mut Section<'_, '_>, name: &str) -> Option<Vec<SocketAddr>> {
    section.fill(name)?;
    section.set(name, |value| values::reachable_address(value.as_str()?), Clone::clone)
}

/// Where the listener is found. Tokens and the fleet have to name addresses that can be dialled.
fn check_public(
    section: &mut Section<'_, '_>,
    protocol: Option<Front>,
    bind: &[SocketAddr],
    public: &[SocketAddr],
    around: &Surroundings<'_>,
) {
    let expected = match protocol {
        Some(Front::Netcode) => {
            "the addresses that connect tokens name (no token can name a wildcard)"
        }
        _ => "the addresses that players dial, for the fleet (nobody can dial a wildcard)",
    };
    let is_needed = protocol == Some(Front::Netcode) || around.has_fleet;
    let wildcard = bind.iter().find(|address| address.ip().is_unspecified());
    if let Some(address) = wildcard.filter(|_| public.is_empty() && is_needed) {
        let found = format_args!("nothing, and {address} in bind");
        section.report.expected(&section.place_of("public"), found, expected);
    }
}

/// The group of the fleet's backends that players are sent to.
fn check_group(
    section: &mut Section<'_, '_>,
    protocol: Option<Front>,
    group: &Name,
    around: &mut Surroundings<'_>,
) {
    if !around.has_fleet {
        let found = format_args!("\"{group}\", and no [fleet]");
        section.expected("group", found, "backends (groups are a fleet's)");
    }
    if let Some(word) = protocol
        && *around.spoken_groups.entry(group.clone()).or_insert(word) != word
    {
        let found = format_args!("\"{group}\", which is behind a listener of another protocol");
        section.expected("group", found, "a group whose backends speak one protocol");
    }
}

/// The indices of the backends. An unknown one is left out of the result, so that the others are
/// still checked.
fn read_backends(
    section: &mut Section<'_, '_>,
    protocol: Option<Front>,
    is_grouped: bool,
    around: &mut Surroundings<'_>,
) -> Option<Vec<usize>> {
    let known = around.backends;
    match (section.has("backends"), is_grouped) {
        (false, false) => {
            let (place, form) = (section.place_of("backends"), section.form("backends"));
            section.report.expected(&place, "nothing", form);
        }
        (true, true) => {
            section.expected("backends", "backends beside a group", "one of the two");
        }
        _ => {}
    }
    let names = section.list("backends", |value| value.as_str().map(str::to_owned))?;
    let mut seen = Distinct::default();
    let mut indices = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let place = section.place_in("backends", index);
        match known.find(&name) {
            Some((index, backend)) => {
                match protocol {
                    Some(Front::Unreal) => {
                        if !around.served.as_ref().is_none_or(|all| all.contains(&name)) {
                            check_unbundled(&name, &place, backend, section.report);
                        }
                        check_local(&name, &place, backend, "unreal", section.report);
                    }
                    Some(Front::Plain) => {
                        check_local(&name, &place, backend, "plain", section.report);
                    }
                    Some(Front::Netcode) | None => {}
                }
                if let Some(word) = protocol {
                    around.check_spoken((index, &name), word, &place, section.report);
                }
                indices.push(index);
            }
            // A name that could not be read may have been this one.
            None if known.is_complete() => unknown_backend(&name, &place, known, section.report),
            None => {}
        }
        seen.check(section.report, &place, name);
    }
    Some(indices)
}

/// A game process with our library is no server of an Unreal game; an agent speaks for one on a
/// bundle link.
fn check_unbundled(name: &str, place: &Place, backend: &KnownBackend, report: &mut Report) {
    if backend.link == Some(LinkWord::Bundle) {
        let found = format_args!("{name:?}, which has link = \"bundle\"");
        let expected = "a backend with link = \"udp\", or one that an [[agent]] lists (unreal)";
        report.expected(place, found, expected);
    }
}

/// Players have loopback addresses of their own toward a server that does not know of a gateway.
fn check_local(
    name: &str,
    place: &Place,
    backend: &KnownBackend,
    protocol: &str,
    report: &mut Report,
) {
    if let Some(address) = backend.address.filter(|address| !is_ipv4_loopback(address)) {
        let found = format_args!("{name:?}, which is at {address}");
        let expected = format_args!("a backend on this host, at 127.x.y.z ({protocol})");
        report.expected(place, found, expected);
    }
}

fn is_ipv4_loopback(address: &SocketAddr) -> bool {
    address.is_ipv4() && address.ip().is_loopback()
}

fn unknown_backend(name: &str, place: &Place, known: &Known, report: &mut Report) {
    report.note(place, known.unknown(name));
}

fn check_route(
    section: &mut Section<'_, '_>,
    protocol: Option<Front>,
    (route, backends, is_grouped): (Route, Option<&[usize]>, bool),
    around: &Surroundings<'_>,
) {
    let place = section.place("route");
    let lacks_key = around.has_fleet && !around.has_fleet_key;
    match route {
        Route::Token if is_grouped && protocol == Some(Front::Plain) && !lacks_key => {}
        Route::Token if is_grouped && protocol == Some(Front::Plain) => {
            let found = "\"token\" and a group, and no fleet.key";
            section.report.expected(&place, found, "a key, which its tokens are made of");
        }
        Route::Single | Route::Token if is_grouped => {
            let is_default = place.at == section.place_of("route").at;
            let found = if is_default { "nothing, which means \"single\"" } else { "it" };
            section.report.expected(
                &place,
                format_args!("{found}, and a group, whose backends come and go"),
                match protocol {
                    Some(Front::Netcode) | None => "\"user-data\", \"hash\" or \"least-players\"",
                    Some(Front::Plain) => "\"token\", \"hash\" or \"least-players\"",
                    Some(Front::Unreal) => "\"hash\" or \"least-players\"",
                },
            );
        }
        Route::Single if backends.is_some_and(|backends| backends.len() > 1) => {
            let is_default = place.at == section.place_of("route").at;
            let found = if is_default { "nothing, which means \"single\"," } else { "\"single\"" };
            section.report.expected(
                &place,
                format_args!("{found} and several backends"),
                match protocol {
                    Some(Front::Plain) => {
                        "\"token\", \"hash\" or \"least-players\" (or one backend)"
                    }
                    _ => "\"user-data\", \"hash\" or \"least-players\" (or one backend)",
                },
            );
        }
        Route::UserData if protocol == Some(Front::Unreal) => {
            section.report.expected(
                &place,
                "\"user-data\" on an unreal listener, whose players have no tokens",
                "\"single\", \"hash\" or \"least-players\"",
            );
        }
        Route::UserData if protocol == Some(Front::Plain) => {
            section.report.expected(
                &place,
                "\"user-data\" on a plain listener, whose players have no connect tokens",
                "\"single\", \"token\", \"hash\" or \"least-players\"",
            );
        }
        Route::Token if protocol.is_some_and(|protocol| protocol != Front::Plain) => {
            section.report.expected(&place, "\"token\", which plain listeners have", "another way");
        }
        _ => {}
    }
}

/// The size of a replay window.
fn window(value: &DeValue<'_>) -> Option<u16> {
    let size = u16::try_from(integer(value)?).ok()?;
    ((64..=1024).contains(&size) && size.is_power_of_two()).then_some(size)
}

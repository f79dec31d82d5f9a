//! `[[listener]]`: the fields that every protocol has, and the conditions on the backends it names.

mod limits;
mod netcode;
mod plain;
mod tokens;
mod unreal;
mod xdp;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use toml::de::DeValue;

use super::backend::{Known, KnownBackend};
use super::distinct::Distinct;
use super::keys::KeySources;
use super::mistake::{Place, Report};
use super::schema::LinkWord;
use super::section::{Noted, Section, integer};
use super::{Fleet, Listener, PortSwitch, Protocol, Route, Xdp, values};
use ringgate_core::limits::BINDS_MAX;
use ringgate_fleet::keyspace::Name;
use ringgate_gate::Front;

/// What a listener is checked against: the backends, the other listeners, and where keys come from.
pub(super) struct Surroundings<'s> {
    backends: &'s Known,
    keys: &'s KeySources<'s>,
    base: &'s Path,
    /// Whether there is a fleet at all, and whether it has keys for listeners.
    has_fleet: bool,
    has_fleet_key: bool,
    names: Distinct<String>,
    addresses: Distinct<SocketAddr>,
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
    pub(super) fn new(
        backends: &'s Known,
        keys: &'s KeySources<'s>,
        base: &'s Path,
        (has_fleet, fleet): (bool, Option<&Fleet>),
    ) -> Self {
        Self {
            backends,
            keys,
            base,
            has_fleet,
            // Where it could not be read, there may be a key.
            has_fleet_key: has_fleet && fleet.is_none_or(|fleet| fleet.key.is_some()),
            names: Distinct::default(),
            addresses: Distinct::default(),
            spoken: HashMap::new(),
            spoken_groups: HashMap::new(),
            workers: None,
            card: None,
        }
    }
}

pub(super) fn read(
    mut section: Section<'_, '_>,
    around: &mut Surroundings<'_>,
) -> Option<Listener> {
    let name = section.text("name", values::name);
    if let Some((name, place)) = &name {
        around.names.check(section.report, place, name.clone());
    }
    let word = section.variant("protocol");
    let bind = section.list("bind", |value| values::address(value.as_str()?));
    for (address, place) in bind.iter().flatten().filter(|(address, _)| address.port() != 0) {
        around.addresses.check(section.report, place, *address);
    }
    if let Some((_, place)) = bind.as_ref().and_then(|list| list.get(BINDS_MAX)) {
        let place = Place::new(section.place_of("bind").path, place.at);
        let count = bind.as_ref().map_or(0, Vec::len);
        let found = format_args!("{count} addresses");
        section.report.expected(&place, found, format_args!("at most {BINDS_MAX}"));
    }
    let bind = bind.map(bare);
    let public = read_public(&mut section, word, bind.as_deref(), around);
    let group = read_group(&mut section, word, around);
    let is_grouped = matches!(group, Ok(Some(_)));
    let backends = read_backends(&mut section, word, is_grouped, around);
    let route = read_route(&mut section, word, backends.as_deref(), is_grouped, around);
    let max_sessions = section.integer("max_sessions");
    let port_switch = match word {
        // Nothing could prove that it is the same player.
        Some(Front::Plain) => Some(PortSwitch::Ignore),
        _ => section.choice("port_switch").map(|(chosen, _)| chosen),
    };
    let filter = section.flag("filter");
    let protocol = match word {
        Some(Front::Netcode) => {
            let led = (backends.as_deref(), group.as_ref().ok().and_then(Option::as_ref));
            netcode::read(&mut section, led, around).map(Protocol::Netcode)
        }
        Some(Front::Unreal) => unreal::read(&mut section).map(Protocol::Unreal),
        Some(Front::Plain) => {
            let of = plain::Led { route, backends: backends.as_deref(), is_grouped };
            plain::read(&mut section, of, around).map(Protocol::Plain)
        }
        None => None,
    };
    let limits = limits::read(&mut section, word);
    let xdp = xdp::read(&mut section, around);
    let ignored = match word {
        Some(Front::Unreal) => unreal::read_ignored(&mut section),
        _ => Some(Vec::new()),
    };
    section.finish();
    Some(Listener {
        name: name?.0,
        bind: bind?,
        backends: backends?,
        group: group.ok()?,
        public: public?,
        route: route?,
        max_sessions: max_sessions.and_then(|count| usize::try_from(count).ok())?,
        port_switch: port_switch?,
        filter: filter?,
        limits: limits?,
        ignored: ignored?,
        xdp: xdp.ok()?,
        protocol: protocol?,
    })
}

/// Where the listener is found. Tokens and the fleet have to name addresses that can be dialled.
fn read_public(
    section: &mut Section<'_, '_>,
    protocol: Option<Front>,
    bind: Option<&[SocketAddr]>,
    around: &Surroundings<'_>,
) -> Option<Vec<SocketAddr>> {
    let public = section.list("public", |value| values::reachable_address(value.as_str()?))?;
    let mut seen = Distinct::default();
    for (address, place) in &public {
        seen.check(section.report, place, *address);
    }
    let expected = match protocol {
        Some(Front::Netcode) => {
            "the addresses that connect tokens name (no token can name a wildcard)"
        }
        _ => "the addresses that players dial, for the fleet (nobody can dial a wildcard)",
    };
    let is_needed = protocol == Some(Front::Netcode) || around.has_fleet;
    let wildcard = bind.into_iter().flatten().find(|address| address.ip().is_unspecified());
    if let Some(address) = wildcard.filter(|_| public.is_empty() && is_needed) {
        let found = format_args!("nothing, and {address} in bind");
        section.report.expected(&section.place_of("public"), found, expected);
    }
    Some(bare(public))
}

/// The group of the fleet's backends that players are sent to.
fn read_group(
    section: &mut Section<'_, '_>,
    protocol: Option<Front>,
    around: &mut Surroundings<'_>,
) -> Result<Option<Name>, Noted> {
    let place = section.place("group");
    let group = section.text_or("group", None, |text| Name::new(text).map(Some)).ok_or(Noted)?;
    if let Some(name) = &group
        && !around.has_fleet
    {
        let found = format_args!("\"{name}\", and no [fleet]");
        section.report.expected(&place, found, "backends (groups are a fleet's)");
    }
    if let (Some(name), Some(word)) = (&group, protocol)
        && *around.spoken_groups.entry(name.clone()).or_insert(word) != word
    {
        let found = format_args!("\"{name}\", which is behind a listener of another protocol");
        section.report.expected(&place, found, "a group whose backends speak one protocol");
    }
    Ok(group)
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
            let place = section.place("backends");
            section.report.expected(&place, "backends beside a group", "one of the two");
        }
        _ => {}
    }
    let names = section.list("backends", |value| value.as_str().map(str::to_owned))?;
    let mut seen = Distinct::default();
    let mut indices = Vec::new();
    for (name, place) in names {
        match known.find(&name) {
            Some((index, backend)) => {
                match protocol {
                    Some(Front::Unreal) => {
                        check_unbundled(&name, &place, backend, section.report);
                        check_local(&name, &place, backend, "unreal", section.report);
                    }
                    Some(Front::Plain) => {
                        check_local(&name, &place, backend, "plain", section.report);
                    }
                    Some(Front::Netcode) | None => {}
                }
                let first = protocol.map(|word| *around.spoken.entry(index).or_insert(word));
                if first != protocol {
                    let found =
                        format_args!("{name:?}, which is behind a listener of another protocol");
                    section.report.expected(&place, found, "a backend that speaks one protocol");
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

/// Nothing that the gateway could say on a bundle link is known of an Unreal player.
fn check_unbundled(name: &str, place: &Place, backend: &KnownBackend, report: &mut Report) {
    if backend.link == Some(LinkWord::Bundle) {
        let found = format_args!("{name:?}, which has link = \"bundle\"");
        report.expected(place, found, "a backend with link = \"udp\" (unreal)");
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

fn read_route(
    section: &mut Section<'_, '_>,
    protocol: Option<Front>,
    backends: Option<&[usize]>,
    is_grouped: bool,
    around: &Surroundings<'_>,
) -> Option<Route> {
    let (route, place) = section.choice("route")?;
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
    Some(route)
}

/// The size of a replay window.
fn window(value: &DeValue<'_>) -> Option<u16> {
    let size = u16::try_from(integer(value)?).ok()?;
    ((64..=1024).contains(&size) && size.is_power_of_two()).then_some(size)
}

/// The values of a list without their places.
fn bare<T>(list: Vec<(T, Place)>) -> Vec<T> {
    list.into_iter().map(|(value, _)| value).collect()
}

//! `[[listener]]`, with the conditions between its fields and on the backends it names.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::backend::Known;
use super::distinct::Distinct;
use super::keys::{self, KeyError, KeySources};
use super::mistake::{Place, Report, nearest};
use super::schema::{LinkWord, ProtocolWord};
use super::section::{Node, Section, integer, kind_of, number};
use super::{
    HandshakeVersions, Listener, Netcode, NetworkVersions, Protocol, Route, Unreal, values,
};
use crate::secret::Key;

/// What a listener is checked against: the backends, the other listeners, and where keys come from.
pub(super) struct Surroundings<'a> {
    backends: &'a Known,
    keys: &'a KeySources<'a>,
    base: &'a Path,
    names: Distinct<String>,
    addresses: Distinct<SocketAddr>,
}

impl<'a> Surroundings<'a> {
    pub(super) fn new(backends: &'a Known, keys: &'a KeySources<'a>, base: &'a Path) -> Self {
        Self { backends, keys, base, names: Distinct::default(), addresses: Distinct::default() }
    }
}

pub(super) fn read(
    mut section: Section<'_>,
    around: &mut Surroundings<'_>,
    report: &mut Report<'_>,
) -> Option<Listener> {
    let name = section.text(report, "name", values::name);
    if let Some((name, place)) = &name {
        around.names.check(report, place, name.clone());
    }
    let word = section.variant(report, "protocol");
    let bind = section.list(report, "bind", |value| values::address(value.as_str()?));
    for (address, place) in bind.iter().flatten().filter(|(address, _)| address.port() != 0) {
        around.addresses.check(report, place, *address);
    }
    let backends = read_backends(&mut section, word, around.backends, report);
    let route = read_route(&mut section, word, backends.as_deref(), report);
    let max_sessions = section.integer(report, "max_sessions");
    let port_switch = section.choice(report, "port_switch");
    let filter = section.flag(report, "filter");
    let protocol = match word {
        Some(ProtocolWord::Netcode) => {
            read_netcode(&mut section, bind.as_deref(), around, report).map(Protocol::Netcode)
        }
        Some(ProtocolWord::Unreal) => read_unreal(&mut section, report).map(Protocol::Unreal),
        None => None,
    };
    section.finish(report);
    Some(Listener {
        name: name?.0,
        bind: bare(bind?),
        backends: backends?,
        route: route?,
        max_sessions: max_sessions.and_then(|count| usize::try_from(count).ok())?,
        port_switch: port_switch?.0,
        filter: filter?,
        protocol: protocol?,
    })
}

/// The indices of the backends. An unknown one is left out of the result, so that the others are still checked.
fn read_backends(
    section: &mut Section<'_>,
    protocol: Option<ProtocolWord>,
    known: &Known,
    report: &mut Report<'_>,
) -> Option<Vec<usize>> {
    let names = section.list(report, "backends", |value| value.as_str().map(str::to_owned))?;
    let mut seen = Distinct::default();
    let mut indices = Vec::new();
    for (name, place) in names {
        match known.find(&name) {
            Some((index, link)) => {
                if protocol == Some(ProtocolWord::Unreal) && link == Some(LinkWord::Bundle) {
                    let found = format_args!("{name:?}, which has link = \"bundle\"");
                    report.expected(&place, found, "a backend with link = \"udp\" (unreal)");
                }
                indices.push(index);
            }
            // A name that could not be read may have been this one.
            None if known.is_complete() => unknown_backend(&name, &place, known, report),
            None => {}
        }
        seen.check(report, &place, name);
    }
    Some(indices)
}

fn unknown_backend(name: &str, place: &Place, known: &Known, report: &mut Report<'_>) {
    match nearest(name, known.names()) {
        Some(near) => {
            report.note(
                place,
                format!("found no [[backend]] named {name:?}, did you mean {near:?}?"),
            );
        }
        None => report.expected(place, format_args!("{name:?}"), "the name of a [[backend]]"),
    }
}

fn read_route(
    section: &mut Section<'_>,
    protocol: Option<ProtocolWord>,
    backends: Option<&[usize]>,
    report: &mut Report<'_>,
) -> Option<Route> {
    let (route, place) = section.choice(report, "route")?;
    match route {
        Route::Single if backends.is_some_and(|backends| backends.len() > 1) => {
            let given = place.at != section.place().at;
            let found = if given { "\"single\"" } else { "nothing, which means \"single\"," };
            report.expected(
                &place,
                format_args!("{found} and several backends"),
                "\"user-data\", \"hash\" or \"least-players\" (or one backend)",
            );
        }
        Route::UserData if protocol == Some(ProtocolWord::Unreal) => {
            report.expected(
                &place,
                "\"user-data\" on an unreal listener, whose players have no tokens",
                "\"single\", \"hash\" or \"least-players\"",
            );
        }
        _ => {}
    }
    Some(route)
}

fn read_netcode(
    section: &mut Section<'_>,
    bind: Option<&[(SocketAddr, Place)]>,
    around: &Surroundings<'_>,
    report: &mut Report<'_>,
) -> Option<Netcode> {
    let public = read_public(section, bind, report);
    let protocol_id = section.value(report, "protocol_id", number);
    let keys = read_keys(section, around, report);
    let replay_window = section.value(report, "replay_window", replay_window);
    let gap_limit = section.integer(report, "gap_limit");
    Some(Netcode {
        public: public?,
        protocol_id: protocol_id?.0,
        keys: keys?,
        replay_window: replay_window?.0,
        gap_limit: NonZeroU64::new(gap_limit?),
    })
}

fn read_public(
    section: &mut Section<'_>,
    bind: Option<&[(SocketAddr, Place)]>,
    report: &mut Report<'_>,
) -> Option<Vec<SocketAddr>> {
    let public =
        section.list(report, "public", |value| values::reachable_address(value.as_str()?))?;
    let mut seen = Distinct::default();
    for (address, place) in &public {
        seen.check(report, place, *address);
    }
    let wildcard = |(address, _): &&(SocketAddr, Place)| address.ip().is_unspecified();
    if let (true, Some((address, _))) =
        (public.is_empty(), bind.iter().copied().flatten().find(wildcard))
    {
        let place = Place::new(format!("{}.public", section.place().path), section.place().at);
        report.expected(
            &place,
            format_args!("nothing, and {address} in bind"),
            "the addresses that connect tokens name (no token can name a wildcard)",
        );
    }
    Some(bare(public))
}

fn replay_window(value: &DeValue<'_>) -> Option<u16> {
    let size = u16::try_from(integer(value)?).ok()?;
    ((64..=1024).contains(&size) && size.is_power_of_two()).then_some(size)
}

/// All keys of a listener. Every source is tried, so that all that is wrong is known.
fn read_keys(
    section: &mut Section<'_>,
    around: &Surroundings<'_>,
    report: &mut Report<'_>,
) -> Option<Vec<Key>> {
    let nodes = section.nodes(report, "keys", true)?;
    if nodes.len() > KEYS_MAX {
        let place = Place::new(format!("{}.keys", section.place().path), nodes[0].place.at);
        let expected = format_args!("at most {KEYS_MAX}");
        report.expected(&place, format_args!("{} keys", nodes.len()), expected);
    }
    let mut keys: Vec<(usize, Key)> = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let Some(key) = read_key(node, around, report) else { continue };
        if let Some((same, _)) = keys.iter().find(|(_, other)| *other == key) {
            let found = format_args!("the key of keys[{same}] again");
            report.expected(&node.place, found, "each key once");
        }
        keys.push((index, key));
    }
    Some(keys.into_iter().map(|(_, key)| key).collect())
}

fn read_key(node: &Node<'_>, around: &Surroundings<'_>, report: &mut Report<'_>) -> Option<Key> {
    let Some(table) = node.value.as_table() else {
        report.expected(&node.place, kind_of(&node.value), KEY_FORMS);
        return None;
    };
    let (source, value, place) = key_source(table, &node.place, report)?;
    let Some(text) = value.as_str() else {
        report.expected(&place, kind_of(value), "a string");
        return None;
    };
    let key: Result<Key, KeyError> = match source {
        KeySource::File => keys::file(&around.base.join(text)),
        KeySource::Env => around.keys.environment(text),
        KeySource::Hex => keys::hex(text),
        KeySource::Credential => around.keys.credential(text),
    };
    key.map_err(|error| report.note(&place, error.to_string())).ok()
}

/// The only entry of a key's table.
fn key_source<'a>(
    table: &'a DeTable<'a>,
    place: &Place,
    report: &mut Report<'_>,
) -> Option<(KeySource, &'a DeValue<'a>, Place)> {
    let mut sources = Vec::new();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let path = format!("{}.{name}", place.path);
        match values::word(name) {
            Some(source) => {
                sources.push((source, value.get_ref(), Place::new(path, value.span().start)));
            }
            None => report.unknown(
                &Place::new(path, key.span().start),
                name,
                &values::words::<KeySource>(),
            ),
        }
    }
    if sources.len() > 1 || table.is_empty() {
        report.expected(place, format_args!("{} sources of one key", sources.len()), KEY_FORMS);
        return None;
    }
    sources.pop()
}

/// Where one key comes from.
#[derive(Clone, Copy)]
enum KeySource {
    Credential,
    Env,
    File,
    Hex,
}

impl values::Word for KeySource {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("file", Self::File),
        ("env", Self::Env),
        ("hex", Self::Hex),
        ("credential", Self::Credential),
    ];
}

fn read_unreal(section: &mut Section<'_>, report: &mut Report<'_>) -> Option<Unreal> {
    let magic = section.text(report, "magic", values::magic);
    let versions = read_versions(section, report);
    let mode = section.choice(report, "mode");
    let window = section.choice(report, "window");
    let network_versions = section.value(report, "network_versions", network_versions);
    let idle_timeout = section.duration(report, "idle_timeout");
    let restart_small = section.flag(report, "restart_small");
    Some(Unreal {
        magic: magic?.0,
        versions: versions?,
        mode: mode?.0,
        window: window?.0,
        network_versions: network_versions?.0,
        idle_timeout: idle_timeout?,
        restart_small: restart_small?,
    })
}

fn read_versions(section: &mut Section<'_>, report: &mut Report<'_>) -> Option<HandshakeVersions> {
    let served = |value: &DeValue<'_>| {
        u8::try_from(integer(value)?).ok().filter(|version| [0, 3, 4].contains(version))
    };
    let versions = section.list(report, "versions", served)?;
    let oldest = versions.iter().map(|(version, _)| *version).min()?;
    let newest = versions.iter().map(|(version, _)| *version).max()?;
    if newest == 0 {
        return Some(HandshakeVersions::Original);
    }
    if let Some((_, place)) = versions.iter().find(|(version, _)| *version == 0) {
        report.expected(
            place,
            "0 beside other versions",
            "0 alone (its packets have another prefix; it needs a listener of its own)",
        );
    }
    Some(HandshakeVersions::Versioned(oldest..=newest))
}

fn network_versions(value: &DeValue<'_>) -> Option<NetworkVersions> {
    if value.as_str() == Some("any") {
        return Some(NetworkVersions::Any);
    }
    let list = value.as_array().filter(|list| !list.is_empty())?;
    list.iter()
        .map(|element| number(element.get_ref()).and_then(|number| u32::try_from(number).ok()))
        .collect::<Option<_>>()
        .map(NetworkVersions::Only)
}

/// The values of a list without their places.
fn bare<T>(list: Vec<(T, Place)>) -> Vec<T> {
    list.into_iter().map(|(value, _)| value).collect()
}

/// Each request is tried under every key, and a forged one fails under all of them.
const KEYS_MAX: usize = 8;

const KEY_FORMS: &str =
    "exactly one of { file = … }, { env = … }, { hex = … } and { credential = … }";

//! The fields of netcode listeners.

use std::net::SocketAddr;
use std::num::NonZeroU64;

use toml::de::{DeTable, DeValue};

use super::{Surroundings, bare};
use crate::config::distinct::Distinct;
use crate::config::mistake::{Place, Report};
use crate::config::section::{Node, Section, integer, kind_of, number};
use crate::config::{Netcode, keys, values};
use crate::secret::Key;

/// `bind` is what the listener binds, where that could be read.
pub(super) fn read(
    section: &mut Section<'_, '_>,
    bind: Option<&[SocketAddr]>,
    around: &Surroundings<'_>,
) -> Option<Netcode> {
    let public = read_public(section, bind);
    let protocol_id = section.value("protocol_id", number);
    let keys = read_keys(section, around);
    let replay_window = section.value("replay_window", replay_window);
    let gap_limit = section.integer("gap_limit");
    let keep_alive = section.duration("keep_alive");
    Some(Netcode {
        public: public?,
        protocol_id: protocol_id?.0,
        keys: keys?,
        replay_window: replay_window?.0,
        gap_limit: NonZeroU64::new(gap_limit?),
        keep_alive: keep_alive?,
    })
}

fn read_public(
    section: &mut Section<'_, '_>,
    bind: Option<&[SocketAddr]>,
) -> Option<Vec<SocketAddr>> {
    let public = section.list("public", |value| values::reachable_address(value.as_str()?))?;
    let mut seen = Distinct::default();
    for (address, place) in &public {
        seen.check(section.report, place, *address);
    }
    let wildcard = bind.into_iter().flatten().find(|address| address.ip().is_unspecified());
    if let Some(address) = wildcard.filter(|_| public.is_empty()) {
        section.report.expected(
            &section.place_of("public"),
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
fn read_keys(section: &mut Section<'_, '_>, around: &Surroundings<'_>) -> Option<Vec<Key>> {
    let nodes = section.nodes("keys")?;
    if nodes.len() > KEYS_MAX {
        let place = Place::new(section.place_of("keys").path, nodes[KEYS_MAX].place.at);
        let expected = format_args!("at most {KEYS_MAX}");
        section.report.expected(&place, format_args!("{} keys", nodes.len()), expected);
    }
    let mut keys: Vec<(usize, Key)> = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.into_iter().enumerate() {
        let place = node.place.clone();
        let Some(key) = read_key(node, around, section.report) else { continue };
        if let Some((same, _)) = keys.iter().find(|(_, other)| *other == key) {
            let found = format_args!("the key of keys[{same}] again");
            section.report.expected(&place, found, "each key once");
        }
        keys.push((index, key));
    }
    Some(keys.into_iter().map(|(_, key)| key).collect())
}

fn read_key(node: Node<'_>, around: &Surroundings<'_>, report: &mut Report<'_>) -> Option<Key> {
    let DeValue::Table(table) = node.value else {
        report.expected(&node.place, kind_of(&node.value), KEY_FORMS);
        return None;
    };
    let (source, value, place) = key_source(&table, &node.place, report)?;
    let Some(text) = value.as_str() else {
        report.expected(&place, kind_of(value), "a string");
        return None;
    };
    let key = match source {
        KeySource::File => keys::file(&around.base.join(text)),
        KeySource::Env => around.keys.environment(text),
        KeySource::Hex => keys::hex(text),
        KeySource::Credential => around.keys.credential(text),
    };
    key.map_err(|error| report.note(&place, error.to_string())).ok()
}

/// The only entry of a key's table.
fn key_source<'v>(
    table: &'v DeTable<'v>,
    place: &Place,
    report: &mut Report<'_>,
) -> Option<(KeySource, &'v DeValue<'v>, Place)> {
    let mut sources = Vec::new();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let path = format!("{}.{name}", place.path);
        if let Some(source) = values::word(name) {
            sources.push((source, value.get_ref(), Place::new(path, value.span().start)));
        } else {
            let place = Place::new(path, key.span().start);
            report.unknown(&place, name, &values::words::<KeySource>());
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

/// Each request is tried under every key, and a forged one fails under all of them.
const KEYS_MAX: usize = 8;

const KEY_FORMS: &str =
    "exactly one of { file = … }, { env = … }, { hex = … } and { credential = … }";

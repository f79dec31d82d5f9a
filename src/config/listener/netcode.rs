//! The fields of netcode listeners.

use std::net::SocketAddr;
use std::num::NonZeroU64;

use super::{Surroundings, bare, window};
use crate::config::distinct::Distinct;
use crate::config::mistake::Place;
use crate::config::section::{Section, number};
use crate::config::{Netcode, source, values};
use ringgate_core::secret::Key;

/// `bind` is what the listener binds, where that could be read.
pub(super) fn read(
    section: &mut Section<'_, '_>,
    bind: Option<&[SocketAddr]>,
    around: &Surroundings<'_>,
) -> Option<Netcode> {
    let public = read_public(section, bind);
    let protocol_id = section.value("protocol_id", number);
    let keys = read_keys(section, around);
    let replay_window = section.value("replay_window", window);
    let gap_limit = section.integer("gap_limit");
    let keep_alive = section.duration("keep_alive");
    let token_reuse = section.choice("token_reuse");
    Some(Netcode {
        public: public?,
        protocol_id: protocol_id?.0,
        keys: keys?,
        replay_window: replay_window?.0,
        gap_limit: NonZeroU64::new(gap_limit?),
        keep_alive: keep_alive?,
        token_reuse: token_reuse?.0,
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
        let Some(key) = source::read(node, around.keys, around.base, section.report) else {
            continue;
        };
        if let Some((same, _)) = keys.iter().find(|(_, other)| *other == key) {
            let found = format_args!("the key of keys[{same}] again");
            section.report.expected(&place, found, "each key once");
        }
        keys.push((index, key));
    }
    Some(keys.into_iter().map(|(_, key)| key).collect())
}

/// Each request is tried under every key, and a forged one fails under all of them.
const KEYS_MAX: usize = 8;

//! The fields of netcode listeners.

use std::num::NonZeroU64;

use super::{Surroundings, window};
use crate::config::mistake::Place;
use crate::config::schema::LinkWord;
use crate::config::section::{Section, number};
use crate::config::{Delivery, Netcode, TokenReuse, UniqueClients, source};
use ringgate_core::secret::SharedKey;
use ringgate_fleet::keyspace::Name;

/// `backends` are whom it sends players to, where these could be read, or those of a group.
pub(super) fn read(
    section: &mut Section<'_, '_>,
    (backends, group): (Option<&[usize]>, Option<&Name>),
    around: &Surroundings<'_>,
) -> Option<Netcode> {
    let protocol_id = section.value("protocol_id", number);
    let keys = read_keys(section, around);
    let replay_window = section.value("replay_window", window);
    let gap_limit = section.integer("gap_limit");
    let keep_alive = section.duration("keep_alive");
    let token_reuse = section.choice("token_reuse");
    let delivery = section.choice("delivery");
    if let Some((Delivery::Gateway, place)) = &delivery {
        check_bundled(section, place, backends, around);
        check_tokens_used_once(section, token_reuse.as_ref());
    }
    let unique = read_unique_clients(section, group);
    let replace_after = section.duration("replace_after");
    let (unique, replace_after) = (unique?, replace_after?);
    Some(Netcode {
        protocol_id: protocol_id?.0,
        has_fleet_keys: keys.as_ref()?.is_empty(),
        keys: keys?,
        replay_window: replay_window?.0,
        gap_limit: NonZeroU64::new(gap_limit?),
        keep_alive: keep_alive?,
        token_reuse: token_reuse?.0,
        delivery: delivery?.0,
        unique_in: group.filter(|_| unique == UniqueClients::Fleet).cloned(),
        replace_after: (unique != UniqueClients::Newest).then_some(replace_after),
    })
}

/// Where nobody else may have a player's id.
fn read_unique_clients(
    section: &mut Section<'_, '_>,
    group: Option<&Name>,
) -> Option<UniqueClients> {
    let (unique, place) = section.choice::<UniqueClients>("unique_clients")?;
    if unique == UniqueClients::Fleet && group.is_none() {
        section.report.expected(&place, "\"fleet\", and no group", "a group, whose ids they are");
    }
    Some(unique)
}

/// Whole messages are told on bundle links: a udp link has no words for them.
fn check_bundled(
    section: &mut Section<'_, '_>,
    place: &Place,
    backends: Option<&[usize]>,
    around: &Surroundings<'_>,
) {
    for &index in backends.into_iter().flatten() {
        let Some(backend) = around.backends.get(index) else { continue };
        if let (Some(LinkWord::Udp), Some(name)) = (backend.link, &backend.name) {
            let found = format_args!("\"gateway\" and backend {name:?}, which has link = \"udp\"");
            let expected = "backends with link = \"bundle\" only (they get whole messages)";
            section.report.expected(place, found, expected);
        }
    }
}

/// A session's packets are told from those of an earlier one by the token's keys alone: a recorded
/// packet would bring its messages again, as new ones.
fn check_tokens_used_once(section: &mut Section<'_, '_>, reuse: Option<&(TokenReuse, Place)>) {
    if let Some((TokenReuse::Allow, place)) = reuse {
        let found = "\"allow\" and delivery = \"gateway\"";
        let expected =
            "\"deny\" (messages of a token's first session could be played into its next)";
        section.report.expected(place, found, expected);
    }
}

/// All keys of a listener; none where the fleet has them. Every source is tried, so that all that
/// is wrong is known.
fn read_keys(section: &mut Section<'_, '_>, around: &Surroundings<'_>) -> Option<Vec<SharedKey>> {
    let nodes = section.nodes("keys")?;
    if nodes.is_empty() && !around.has_fleet_key {
        let (place, form) = (section.place_of("keys"), section.form("keys"));
        section.report.expected(&place, "nothing", form);
        return None;
    }
    if nodes.len() > KEYS_MAX {
        let place = Place::new(section.place_of("keys").path, nodes[KEYS_MAX].place.at);
        let expected = format_args!("at most {KEYS_MAX}");
        section.report.expected(&place, format_args!("{} keys", nodes.len()), expected);
    }
    let mut keys: Vec<(usize, SharedKey)> = Vec::with_capacity(nodes.len());
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

//! The fields of netcode listeners.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{Surroundings, unknown_backend, window};
use crate::declare::{Declared, declare};
use crate::distinct::Distinct;
use crate::mistake::Place;
use crate::schema::{Kind, LinkWord};
use crate::section::{Section, number};
use crate::{Delivery, TokenReuse, UniqueClients, source, values};
use ringgate_core::secret::SharedKey;
use ringgate_fleet::keyspace::Name;
use ringgate_gate::Front;

declare! {
    /// The fields of a netcode listener.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Netcode only ["netcode"] {
        /// The game's protocol id. Clients and tokens with another one are ignored.
        protocol_id: u64 = value(
            "a number of 64 bits, as a number or as a string such as \"0x1122334455667788\"", number
        ), required, Restart;
        /// Where the keys that connect tokens are sealed with come from, up to 8; several while
        /// they rotate. Required where [fleet] has no key; with it, a listener without keys has
        /// those that the fleet has for its name. A file holds 64 hex digits or 32 raw bytes and is
        /// closed to group and others (chmod 600); env names an environment variable; credential
        /// names a file in $CREDENTIALS_DIRECTORY (systemd); hex is the key itself. Relative paths
        /// start at the config file's directory.
        keys: Vec<SharedKey> = custom(Kind::List {
            items: "key sources",
            item: "{ file = … }, { env = … }, { hex = … } or { credential = … }",
        }, read_keys), optional: [{ file = "/etc/ringgate/netcode.key" }], Reload;
        /// How many sequences back a late packet may come. netcode's own window is 256.
        replay_window: u16 = value("a power of two from 64 to 1024", window), default: 256, Restart;
        /// A jump over more than this many sequences ends the session. 0: any jump is fine.
        gap_limit: Option<NonZeroU64> = integer(0, 1 << 32, NonZeroU64::new), default: 0, Reload;
        /// A player who is sent nothing else for so long is sent a keep-alive, and a quarter of its
        /// token's timeout is the longest wait in any case. netcode's own pace is 100ms; idle
        /// fleets of many thousands live better with 1s.
        keep_alive: Duration = duration("10ms", "10s"), default: "100ms", Reload;
        /// Whether a player who was heard in a session may come again with the same connect token.
        /// "deny": no, it is sent a denial and needs a new one. "allow": yes, and then recorded
        /// packets of the first session are taken for packets of the second.
        token_reuse: TokenReuse = word, default: "deny", Reload;
        /// "gateway": players speak the delivery layer inside of netcode's payloads, the gateway
        /// acknowledges, orders and sends again, and game processes get whole messages of up to 64
        /// KiB. All backends need link = "bundle" and a library of this release or later, and
        /// token_reuse is "deny". "none": payloads pass as they are.
        delivery: Delivery = word, default: "none", Reload;
        /// Where nobody else may have a player's id. "gateway": at this listener; another login
        /// replaces a session that has been silent for replace_after, and waits while one talks.
        /// "newest": at this listener, and another login replaces one that talks, too. "fleet": at
        /// all listeners of the fleet that have this one's group; the newer login wins, here too,
        /// and the older session is closed. Needs a group. Nobody is refused for it while etcd is
        /// away.
        unique_clients: UniqueClients = word, default: "gateway",
            ReloadBut("sessions that are there keep what they began with");
        /// With unique_clients = "gateway": a player who logs in with a new token replaces a
        /// session of its id from which nothing has come for so long, as one whose client has
        /// crashed. More than the pause between two packets of a client that is well.
        replace_after: Duration = duration("500ms", "10m"), default: "2s", Reload;
        /// Backends, or groups of the fleet, that game processes may move this listener's players
        /// to without a reconnect. Without it: nowhere. They are on bundle links.
        moves: Vec<String> = list(
            "names", "the name of a [[backend]], or of a group of the fleet",
            |value| of_backend_or_group(value.as_str()?)
        ), optional: ["arena-1"], Reload;
    }
    beside {
        /// The backends that these are. Indices into the config's.
        moves_to: Vec<usize>,
        /// Whether the fleet has the keys. Invariant: there is at least one key where it has not.
        has_fleet_keys: bool,
    }
}

/// `backends` are whom it sends players to, where these could be read, or those of a group.
pub(super) fn read(
    section: &mut Section<'_, '_>,
    (backends, is_grouped): (Option<&[usize]>, bool),
    around: &mut Surroundings<'_>,
) -> Option<Netcode> {
    let is_fleets = !section.has("keys");
    let mut found = Netcode::find(section);
    found.has_fleet_keys = Some(is_fleets);
    if is_fleets && !around.has_fleet_key {
        let (place, form) = (section.place_of("keys"), section.form("keys"));
        section.report.expected(&place, "nothing", form);
    }
    if found.delivery == Some(Delivery::Gateway) {
        check_bundled(section, &section.place("delivery"), backends, around);
        check_tokens_used_once(section, found.token_reuse);
    }
    if found.unique_clients == Some(UniqueClients::Fleet) && !is_grouped {
        section.expected(
            "unique_clients",
            "\"fleet\", and no group",
            "a group, whose ids they are",
        );
    }
    found.moves_to = found.moves.as_ref().map(|moves| backends_of(section, moves, around));
    Netcode::whole(found)
}

fn of_backend_or_group(text: &str) -> Option<String> {
    values::name(text).or_else(|| Name::new(text).map(|group| group.to_string()))
}

/// The backends of the file that players may be moved to. In a fleet, others may come.
fn backends_of(
    section: &mut Section<'_, '_>,
    moves: &[String],
    around: &mut Surroundings<'_>,
) -> Vec<usize> {
    let mut seen = Distinct::default();
    let mut found = Vec::new();
    for (index, name) in moves.iter().enumerate() {
        let place = section.place_in("moves", index);
        match around.backends.find(name) {
            Some((_, backend)) if backend.link == Some(LinkWord::Udp) => {
                let wrong = format_args!("{name:?}, which has link = \"udp\"");
                section.report.expected(&place, wrong, "a backend with link = \"bundle\"");
            }
            Some((at, _)) => {
                around.check_spoken((at, name), Front::Netcode, &place, section.report);
                found.push(at);
            }
            None if around.has_fleet || !around.backends.is_complete() => {}
            None => unknown_backend(name, &place, around.backends, section.report),
        }
        seen.check(section.report, &place, name.clone());
    }
    found
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
fn check_tokens_used_once(section: &mut Section<'_, '_>, reuse: Option<TokenReuse>) {
    if reuse == Some(TokenReuse::Allow) {
        let found = "\"allow\" and delivery = \"gateway\"";
        let expected =
            "\"deny\" (messages of a token's first session could be played into its next)";
        section.expected("token_reuse", found, expected);
    }
}

/// All keys of a listener; none where the fleet has them. Every source is tried, so that all that
/// is wrong is known.
fn read_keys(section: &mut Section<'_, '_>, name: &str) -> Option<Vec<SharedKey>> {
    let (nodes, origin) = (section.nodes(name)?, section.origin);
    if nodes.len() > KEYS_MAX {
        let place = Place::new(section.place_of("keys").path, nodes[KEYS_MAX].place.at);
        let expected = format_args!("at most {KEYS_MAX}");
        section.report.expected(&place, format_args!("{} keys", nodes.len()), expected);
    }
    let mut keys: Vec<(usize, SharedKey)> = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.into_iter().enumerate() {
        let place = node.place.clone();
        let Some(key) = source::read(node, origin, section.report) else {
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

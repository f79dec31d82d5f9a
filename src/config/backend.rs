//! `[[backend]]`.

use std::net::SocketAddr;

use toml::de::DeValue;

use super::distinct::Distinct;
use super::mistake::nearest;
use super::schema::LinkWord;
use super::section::{Section, integer};
use super::{Allowed, Backend, Link, values};
use ringgate_gate::Intake;

/// What listeners need to know of the backends: their names and links, whatever else may be wrong
/// with them.
#[derive(Default)]
pub(super) struct Known {
    backends: Vec<KnownBackend>,
    names: Distinct<String>,
    addresses: Distinct<SocketAddr>,
}

/// One of them, as far as it could be read.
pub(super) struct KnownBackend {
    pub(super) name: Option<String>,
    pub(super) link: Option<LinkWord>,
    pub(super) address: Option<SocketAddr>,
}

impl Known {
    /// The index of a backend, and what is known of it.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &KnownBackend)> {
        let is_it = |(_, known): &(usize, &KnownBackend)| known.name.as_deref() == Some(name);
        self.backends.iter().enumerate().find(is_it)
    }

    /// The backend with an index.
    pub(super) fn get(&self, index: usize) -> Option<&KnownBackend> {
        self.backends.get(index)
    }

    /// All names that could be read.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.backends.iter().filter_map(|known| known.name.as_deref())
    }

    /// What is wrong with a name that no backend has.
    pub(super) fn unknown(&self, name: &str) -> String {
        match nearest(name, self.names()) {
            Some(near) => format!("found no [[backend]] named {name:?}, did you mean {near:?}?"),
            None => format!("found {name:?}, expected the name of a [[backend]]"),
        }
    }

    /// Whether there are backends, and the name of each could be read.
    pub(super) fn is_complete(&self) -> bool {
        !self.backends.is_empty() && self.backends.iter().all(|known| known.name.is_some())
    }
}

pub(super) fn read(mut section: Section<'_, '_>, known: &mut Known) -> Option<Backend> {
    let backend = read_fields(&mut section, known);
    section.finish();
    backend
}

/// The fields that every kind of file has.
pub(super) fn read_fields(section: &mut Section<'_, '_>, known: &mut Known) -> Option<Backend> {
    let name = section.text("name", values::name);
    if let Some((name, place)) = &name {
        known.names.check(section.report, place, name.clone());
    }
    let word = section.variant("link");
    let slots = section.integer("slots");
    let grace = section.duration("grace");
    let link = match word {
        Some(LinkWord::Udp) => read_udp(section, known),
        Some(LinkWord::Bundle) => read_bundle(section),
        None => None,
    };
    known.backends.push(KnownBackend {
        name: name.as_ref().map(|(name, _)| name.clone()),
        link: word,
        address: match link {
            Some(Link::Udp(address)) => Some(address),
            _ => None,
        },
    });
    Some(Backend {
        name: name?.0,
        link: link?,
        slots: slots.and_then(|slots| u32::try_from(slots).ok())?,
        grace: grace?,
        intake: Intake::Anybody,
    })
}

fn read_udp(section: &mut Section<'_, '_>, known: &mut Known) -> Option<Link> {
    let (address, place) = section.text("address", values::reachable_address)?;
    // Answers tell their backend by its address.
    known.addresses.check(section.report, &place, address);
    Some(Link::Udp(address))
}

fn read_bundle(section: &mut Section<'_, '_>) -> Option<Link> {
    read_allowed(section).map(Link::Bundle)
}

/// Who may connect as a bundle backend.
pub(super) fn read_allowed(section: &mut Section<'_, '_>) -> Option<Allowed> {
    let uids = section.list("allow_uids", id);
    let gids = section.list("allow_gids", id);
    let bare = |list: Vec<(u32, _)>| list.into_iter().map(|(id, _)| id).collect();
    Some(Allowed { uids: bare(uids?), gids: bare(gids?) })
}

/// A user or group id. The last number means "nobody in particular" to the kernel.
fn id(value: &DeValue<'_>) -> Option<u32> {
    u32::try_from(integer(value)?).ok().filter(|id| *id != u32::MAX)
}

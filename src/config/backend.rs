//! `[[backend]]`.

use std::net::SocketAddr;

use toml::de::DeValue;

use super::distinct::Distinct;
use super::schema::LinkWord;
use super::section::{Section, integer};
use super::{Allowed, Backend, Link, values};

/// What listeners need to know of the backends: their names and links, whatever else may be wrong with them.
#[derive(Default)]
pub(super) struct Known {
    backends: Vec<(Option<String>, Option<LinkWord>)>,
    names: Distinct<String>,
    addresses: Distinct<SocketAddr>,
}

impl Known {
    /// The index and link of a backend.
    pub(super) fn find(&self, name: &str) -> Option<(usize, Option<LinkWord>)> {
        let index = self.backends.iter().position(|(known, _)| known.as_deref() == Some(name))?;
        Some((index, self.backends[index].1))
    }

    /// All names that could be read.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.backends.iter().filter_map(|(name, _)| name.as_deref())
    }

    /// Whether there are backends, and the name of each could be read.
    pub(super) fn is_complete(&self) -> bool {
        !self.backends.is_empty() && self.backends.iter().all(|(name, _)| name.is_some())
    }
}

pub(super) fn read(mut section: Section<'_, '_>, known: &mut Known) -> Option<Backend> {
    let name = section.text("name", values::name);
    if let Some((name, place)) = &name {
        known.names.check(section.report, place, name.clone());
    }
    let word = section.variant("link");
    known.backends.push((name.as_ref().map(|(name, _)| name.clone()), word));
    let slots = section.integer("slots");
    let grace = section.duration("grace");
    let link = match word {
        Some(LinkWord::Udp) => read_udp(&mut section, known),
        Some(LinkWord::Bundle) => read_bundle(&mut section),
        None => None,
    };
    section.finish();
    Some(Backend {
        name: name?.0,
        link: link?,
        slots: slots.and_then(|slots| u32::try_from(slots).ok())?,
        grace: grace?,
    })
}

fn read_udp(section: &mut Section<'_, '_>, known: &mut Known) -> Option<Link> {
    let (address, place) = section.text("address", values::reachable_address)?;
    // Answers tell their backend by its address.
    known.addresses.check(section.report, &place, address);
    Some(Link::Udp(address))
}

fn read_bundle(section: &mut Section<'_, '_>) -> Option<Link> {
    let uids = section.list("allow_uids", id);
    let gids = section.list("allow_gids", id);
    let bare = |list: Vec<(u32, _)>| list.into_iter().map(|(id, _)| id).collect();
    Some(Link::Bundle(Allowed { uids: bare(uids?), gids: bare(gids?) }))
}

/// A user or group id. The last number means "nobody in particular" to the kernel.
fn id(value: &DeValue<'_>) -> Option<u32> {
    u32::try_from(integer(value)?).ok().filter(|id| *id != u32::MAX)
}

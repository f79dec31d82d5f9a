//! `[[backend]]`.

use std::net::SocketAddr;
use std::time::Duration;

use toml::de::DeValue;

use super::declare::{Declared, declare};
use super::distinct::Distinct;
use super::mistake::nearest;
use super::schema::{Field, IDS, Kind, LinkWord, NAME, REACHABLE, Table, example};
use super::section::{Read, Section, integer};
use super::values::{self, words};
use super::{Allowed, Backend, Link};
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

declare! {
    /// A `[[backend]]` as it stands in the file.
    struct Fields {
        /// Its name in listeners, user data, logs and metrics, different from other backends'
        /// names.
        name: String = text(NAME, values::name), required,
            ReloadBut("a bundle backend with another name is another backend");
        /// "udp": an unmodified server, each player appears as its own loopback address. "bundle":
        /// a server that uses our backend library, many payloads in one datagram.
        link: LinkWord = by_hand(Kind::Choice(words::<LinkWord>)), required,
            ReloadBut("it is another backend then; the first one of its kind needs a restart");
        /// How many players it takes; more are denied. netcode clients are told this number. 0
        /// takes nobody new.
        slots: u32 = integer(0, 1_000_000), required, Reload;
        /// A backend that is gone for this long loses its players. Nobody new is sent to it
        /// meanwhile.
        grace: Duration = duration("0s", "10m"), default: "5s", Reload;
        /// Where the server listens.
        address: Option<SocketAddr> = custom(Kind::Value(REACHABLE), address), required,
            ReloadBut("a backend at another address is another backend"), only ["udp"];
        /// Users whose processes may connect under this name. Without this and allow_gids: the
        /// gateway's own user.
        allow_uids: Vec<u32> = list("user ids", IDS, id), optional: [990], Reload, only ["bundle"];
        /// Groups whose processes may connect under this name.
        allow_gids: Vec<u32> = list("group ids", IDS, id), optional: [990], Reload, only ["bundle"];
    }
}

pub(super) const BACKEND: Table = Table {
    repeated: true,
    examples: &[
        example!("bundle": name = "arena-1", link = "bundle", slots = 64),
        example!("udp": name = "shooter-1", link = "udp", address = "127.0.0.1:7778", slots = 100),
        example!("udp": name = "any-1", link = "udp", address = "127.0.0.1:7001", slots = 100),
    ],
    ..Table::new(
        "backend",
        "A game process. At least one (none is needed in a fleet), at most 4096.",
        &[Fields::FIELDS],
    )
};

/// A gateway's fields, for those who have more.
pub(super) const FIELDS: &[Field] = Fields::FIELDS;

pub(super) fn read(mut section: Section<'_, '_>, known: &mut Known) -> Option<Backend> {
    let backend = read_fields(&mut section, known);
    section.finish();
    backend
}

/// The fields that every kind of file has.
pub(super) fn read_fields(section: &mut Section<'_, '_>, known: &mut Known) -> Option<Backend> {
    let link = section.variant("link");
    let mut found = Fields::find(section);
    found.link = link;
    if let Some(name) = &found.name {
        known.names.check(section.report, &section.place("name"), name.clone());
    }
    let address = found.address.flatten();
    if let Some(address) = address {
        // Answers tell their backend by its address.
        known.addresses.check(section.report, &section.place("address"), address);
    }
    known.backends.push(KnownBackend { name: found.name.clone(), link, address });
    let fields = Fields::whole(found)?;
    let link = match fields.address {
        Some(address) => Link::Udp(address),
        None => Link::Bundle(Allowed { uids: fields.allow_uids, gids: fields.allow_gids }),
    };
    let Fields { name, slots, grace, .. } = fields;
    Some(Backend { name, link, slots, grace, intake: Intake::Anybody })
}

fn address(section: &mut Section<'_, '_>, name: &str) -> Read<Option<SocketAddr>> {
    section.text(name, values::reachable_address).map(|(address, _)| Some(address))
}

/// A user or group id. The last number means "nobody in particular" to the kernel.
pub(super) fn id(value: &DeValue<'_>) -> Option<u32> {
    u32::try_from(integer(value)?).ok().filter(|id| *id != u32::MAX)
}

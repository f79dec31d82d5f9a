//! What an agent in a fleet hands to the process that goes on with it: its lease, what stands under
//! it, who has come to register itself, and what is known of all of them. So nobody sees a
//! registration go, and no game process has to come again.
//!
//! The record is JSON, so that either side can be older, and the copy of what is known lies behind
//! it. Whoever reads it takes nothing of it on trust: what cannot be is refused by its name, before
//! the other process stops serving.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use bytes::Bytes;
use ringgate_fleet::copy::{self, StateFile};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::lease::Handed;
use ringgate_fleet::member;
use ringgate_fleet::mirror::Truth;
use ringgate_fleet::values::Reach;
use ringgate_link::announce::Standing;
use ringgate_os::clock;
use ringgate_process::handover::Part;
use ringgate_trunk::agent::options::Gateway;
use ringgate_trunk::agent::rolls;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};
use zeroize::Zeroizing;

use super::Settings;
use super::wellness::{HandedWellness, Watched};
use crate::config::hosted::Hosted;
use crate::membership::announced::{self, Book, Door, Seated};
use crate::membership::leases;

/// What a member begins with: nothing but its files, or all that another process had.
pub(super) struct Beginning {
    /// When the agent started, in seconds since 1970.
    pub(super) started_s: u64,
    pub(super) registration: Handed,
    pub(super) truth: Truth,
    pub(super) book: Book,
    pub(super) watched: Vec<Watched>,
    /// The gateways that were chosen, and those that the agent was told to connect to.
    pub(super) chosen: BTreeMap<String, Gateway>,
    pub(super) wanted: Option<Vec<Gateway>>,
    pub(super) leases_lost: u64,
    pub(super) copies: [u64; 2],
    pub(super) remembers: bool,
    /// What another process knew of players who wait for their game process.
    pub(super) players: Option<rolls::Handed>,
    /// Another process's agent, whose registrations stand.
    pub(super) is_heir: bool,
}

/// What goes to the next process.
#[derive(Debug, Default)]
pub struct Heirloom {
    /// How long the record is, that, and the copy of what is known.
    pub bytes: Vec<u8>,
    /// Where game processes register themselves, if they do, and those who have come.
    pub sockets: Vec<OwnedFd>,
}

impl Part for Heirloom {
    const NAME: &'static str = "fleet";

    fn take_out(self) -> Zeroizing<Vec<u8>> {
        self.bytes.into()
    }

    fn put_in(bytes: Zeroizing<Vec<u8>>) -> Result<Self, String> {
        Ok(Self { bytes: bytes.to_vec(), sockets: Vec::new() })
    }
}

impl Heirloom {
    pub(super) fn new(record: &Record, copy: &[u8], sockets: Vec<OwnedFd>) -> Self {
        let record = serde_json::to_vec(record).expect("no maps with other keys than strings");
        let len = (record.len() as u64).to_le_bytes();
        Self { bytes: [&len[..], &record, copy].concat(), sockets }
    }

    /// The record, and the copy; `None` where it is shorter than it says.
    fn parts(&self) -> Option<(&[u8], &[u8])> {
        let (len, rest) = self.bytes.split_first_chunk()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        rest.split_at_checked(len)
    }
}

/// How the record is written.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) started_s: u64,
    #[serde(flatten)]
    pub(super) registration: Handed,
    pub(super) leases_lost: u64,
    pub(super) copies: [u64; 2],
    /// Whether what is known says how many gateways there should be.
    #[serde(default)]
    pub(super) remembers: bool,
    pub(super) chosen: BTreeMap<String, String>,
    pub(super) wanted: Option<Vec<String>>,
    pub(super) watched: Vec<HandedWellness>,
    pub(super) book: announced::Handed,
    /// Players who wait; an earlier release has nothing to say of them.
    pub(super) players: Option<HandedPlayers>,
    /// Whether the first socket is where game processes come.
    pub(super) has_door: bool,
    /// The others: by what the book knows each, and what it was told last.
    pub(super) seated: Vec<(u64, Option<u8>)>,
}

/// What is known of players who wait for their game process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandedPlayers {
    /// Game process, gateway, how many, how long their slots are kept, and how long they wait.
    kept: Vec<(String, String, u32, u64, Option<u32>)>,
    /// Game processes for which nobody waits besides.
    known: Vec<String>,
    start_left_ms: Option<u64>,
    refused: u64,
    unheard: u64,
}

impl HandedPlayers {
    pub(super) fn of(handed: rolls::Handed) -> Self {
        let rolls::Handed { kept, known, start_left_ms, refused, unheard } = handed;
        let row = |it: rolls::Kept| (it.backend, it.gateway, it.players, it.left_ms, it.grace_ms);
        let kept = kept.into_iter().map(row).collect();
        Self { kept, known, start_left_ms, refused, unheard }
    }

    fn read(self) -> Result<rolls::Handed, &'static str> {
        let Self { kept, known, start_left_ms, refused, unheard } = self;
        let read = |(backend, at, players, left_ms, grace_ms): (String, String, _, _, _)| {
            Name::new(&backend).ok_or("players")?;
            let gateway = gateway(&at)?.to_string();
            Ok::<_, &'static str>(rolls::Kept { backend, gateway, players, left_ms, grace_ms })
        };
        let kept = kept.into_iter().map(read).collect::<Result<_, _>>()?;
        if !known.iter().all(|name| Name::new(name).is_some()) {
            return Err("players");
        }
        Ok(rolls::Handed { kept, known, start_left_ms, refused, unheard })
    }
}

impl Record {
    /// Those of a door, with what else there is.
    pub(super) fn seat(&mut self, door: &Door) -> std::io::Result<Vec<OwnedFd>> {
        let row = |it: &Seated| (it.number, it.said.map(|said| said as u8));
        self.has_door = true;
        self.seated = door.seated.iter().map(row).collect();
        let sockets = [&door.socket].into_iter().chain(door.seated.iter().map(|it| &it.socket));
        sockets.map(OwnedFd::try_clone).collect()
    }
}

impl Beginning {
    /// With nothing but what the last start has left in `state_dir`.
    pub(super) fn afresh(settings: &Settings, hosted: Vec<(String, u32, Hosted)>) -> Self {
        let left = leases::load(&StateFile::Disk(settings.leases.clone()));
        let mut book = book(settings);
        book.inherit_owned(&left.owned);
        Self {
            started_s: clock::unix_seconds(),
            // What stands under the leases of the last start is this one's.
            registration: Handed::of_leases(left.leases),
            truth: member::load(
                &StateFile::Disk(settings.copy.clone()),
                &settings.keyspace.gateways(),
                clock::unix_seconds(),
            ),
            book,
            watched: hosted.into_iter().map(Watched::new).collect(),
            chosen: BTreeMap::new(),
            wanted: None,
            leases_lost: 0,
            copies: [0; 2],
            remembers: false,
            players: None,
            is_heir: false,
        }
    }

    /// With what another process has handed over, and its door. An error names what cannot be.
    pub(super) fn inherit(
        settings: &Settings,
        hosted: Vec<(String, u32, Hosted)>,
        heirloom: Heirloom,
    ) -> Result<(Self, Option<Door>), &'static str> {
        let (record, copy) = heirloom.parts().ok_or("length")?;
        let record: Record = serde_json::from_slice(record).map_err(|_| "record")?;
        let mut begins = Self::afresh(settings, hosted);
        begins.book = book(settings);
        if !copy.is_empty() {
            let read = copy::decode(copy).map_err(|_| "copy")?;
            let is_ours = read.prefix == settings.keyspace.gateways();
            begins.truth = is_ours.then_some(read.truth).ok_or("copy")?;
            begins.remembers = record.remembers;
        }
        begins.registration = registration(settings, record.registration)?;
        let (chosen, wanted) = (record.chosen, record.wanted);
        begins.chosen = chosen.into_iter().map(chosen_one).collect::<Result<_, _>>()?;
        begins.wanted = wanted.map(|all| all.iter().map(|it| gateway(it)).collect()).transpose()?;
        for handed in &record.watched {
            if let Some(own) = begins.watched.iter_mut().find(|own| own.name == handed.name) {
                own.go_on_with(handed);
            }
        }
        let mut sockets = heirloom.sockets.into_iter();
        let door = record.has_door.then(|| sockets.next().ok_or("door")).transpose()?;
        let door = door.map(|socket| listens(socket).map(Door::new));
        let mut door = door.transpose()?;
        let mut numbers = BTreeSet::new();
        for (number, said) in record.seated {
            let socket = connected(sockets.next().ok_or("connection")?)?;
            let is_one = numbers.insert(number);
            is_one.then_some(()).ok_or("connection")?;
            let said = said.map(Standing::from_u8);
            door.as_mut().ok_or("door")?.seated.push(Seated { socket, number, said });
        }
        if sockets.next().is_some() {
            return Err("connection");
        }
        let filed: Vec<_> = begins.watched.iter().map(|it| it.name.as_str()).collect();
        begins.book.go_on_with(record.book, &numbers, &filed)?;
        (begins.started_s, begins.leases_lost) = (record.started_s, record.leases_lost);
        (begins.copies, begins.is_heir) = (record.copies, true);
        begins.players = Some(record.players.unwrap_or_default().read()?);
        Ok((begins, door))
    }
}

/// Nobody is registered yet.
fn book(settings: &Settings) -> Book {
    let reach = Reach::Agent(settings.name.to_string());
    Book::new(settings.host.clone(), reach, settings.rules.clone(), settings.taken.clone())
}

/// An agent writes its own key and those of backends, and nothing else is to go with it.
fn registration(settings: &Settings, handed: Handed) -> Result<Handed, &'static str> {
    if handed.former.len() > FORMER_MAX {
        return Err("leases");
    }
    let is_own = |key: &Bytes| may_be_ours(&settings.keyspace, &settings.name, key);
    handed.keys.iter().all(is_own).then_some(()).ok_or("key")?;
    Ok(handed)
}

fn may_be_ours(keyspace: &Keyspace, own: &Name, key: &[u8]) -> bool {
    match keyspace.place(key) {
        Some(Place::Agent(name)) => name == *own,
        Some(Place::Backend(_)) => true,
        _ => false,
    }
}

fn chosen_one((name, at): (String, String)) -> Result<(String, Gateway), &'static str> {
    Name::new(&name).ok_or("gateway")?;
    Ok((name, gateway(&at)?))
}

fn gateway(at: &str) -> Result<Gateway, &'static str> {
    Gateway::parse(at).ok_or("gateway")
}

/// A socket of the kind that game processes come to.
fn listens(socket: OwnedFd) -> Result<OwnedFd, &'static str> {
    let socket = keeps_apart(socket).ok_or("door")?;
    let listens = socket.is_listener().is_ok_and(|it| it);
    listens.then(|| socket.into()).ok_or("door")
}

/// One that a game process has come over.
fn connected(socket: OwnedFd) -> Result<OwnedFd, &'static str> {
    let socket = keeps_apart(socket).ok_or("connection")?;
    let listens = socket.is_listener().is_ok_and(|it| it);
    (!listens).then(|| socket.into()).ok_or("connection")
}

fn keeps_apart(socket: OwnedFd) -> Option<Socket> {
    let socket = Socket::from(socket);
    let is_unix = socket.domain().is_ok_and(|it| it == Domain::UNIX);
    let is_such = is_unix && socket.r#type().is_ok_and(|it| it == Type::SEQPACKET);
    is_such.then_some(socket)
}

/// More than a registration remembers.
const FORMER_MAX: usize = 16;

#[cfg(test)]
mod tests;

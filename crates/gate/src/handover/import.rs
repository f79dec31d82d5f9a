//! A gate that is made of another process's records.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::counters::Ended;
use crate::front::face::Fronts;
use crate::front::room::Room;
use crate::gate::Gate;
use crate::handover::arriving::Unclaimed;
use crate::handover::common::take_common;
use crate::handover::places::Table;
use crate::handover::record::{Kind, Refused, Whose, check_beginning, first_record, take_records};
use crate::handover::sockets::{Bound, bind};
use crate::now::Now;
use crate::seed::{Seed, WorkerIndex};
use crate::setup::Setup;
use crate::shared::claims::Claims;
use crate::shared::claims::history::TokenName;
use crate::store::entry::Entry;
use crate::store::table::Place;
use ringgate_batch::SocketId;
use ringgate_core::carry::{Broken, Carry, Maps, Reader};
use ringgate_core::crypto::Aead;

/// A gate that is made of another process's, as far as that has come.
pub struct Import {
    gate: Gate,
    maps: Maps,
    /// Of each front, in the order of [`Table`].
    unclaimed: [Unclaimed; 3],
    /// Who cannot be carried, by place.
    lost: [BTreeMap<u32, Place>; 4],
    is_over: bool,
}

/// What has come of a hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Sessions that go on.
    pub sessions: usize,
    /// Sessions that do not: the successor has no such listener or backend.
    pub not_carried: u64,
}

impl Gate {
    /// Has game processes told that another process has the gateway, the `generation`th.
    pub const fn tell_taken_over(&mut self, generation: u32) {
        self.common.life.taken_over = Some(generation);
    }
}

impl Import {
    /// A gate that has taken nothing yet. `bytes` is the beginning of the worker's stream; returns
    /// how much of it was taken, or nothing as long as it is too short.
    #[expect(clippy::too_many_arguments, reason = "what a gate needs, and what it is made of")]
    pub fn begin(
        bytes: &[u8],
        setup: Arc<Setup>,
        worker: WorkerIndex,
        claims: Arc<Claims>,
        aead: Aead,
        seed: Seed,
        maps: Maps,
        now: Now,
    ) -> Result<(Self, usize), Refused> {
        let start = check_beginning(bytes, Whose(worker.id.0))?;
        let mut read = None;
        let len = take_records(first_record(&bytes[start..]), |kind, body| {
            if kind != Kind::WorkerKeys {
                return Err(Refused::Stranger);
            }
            let mut from = Reader::new(body, &maps);
            read = Some(<([u64; 2], Vec<Bound>)>::read(&mut from));
            Ok(())
        })?;
        let what = Kind::WorkerKeys.what();
        let read = read.ok_or(Refused::Broken(Broken::Truncated, what))?;
        let (keys, bound) = read.map_err(|why| Refused::Broken(why, what))?;
        let (theirs, room_len) = room(&bytes[start + len..])?;
        let ours = Room::of(&setup);
        let room = theirs.map_or(ours, |theirs| ours.and(theirs));
        // The memory of addresses and of datagrams is by the keys of the process before.
        let [global_start, session_starts, ..] = seed.random;
        let seed = Seed { random: [global_start, session_starts, keys[0], keys[1]], ..seed };
        let mut gate = Gate::with_room(setup, room, worker, claims, aead, seed, now);
        for bound in &bound {
            bind(&mut gate, bound, &maps).map_err(|why| Refused::Broken(why, what))?;
        }
        let (unclaimed, lost) = (Default::default(), Default::default());
        Ok((Self { gate, maps, unclaimed, lost, is_over: false }, start + len + room_len))
    }

    /// The gate, as far as it has come.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The gate, to bind its sockets.
    pub const fn gate_mut(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// Says which number a socket has here that had another one in the process before. Those of
    /// listeners have to be known before sessions are taken, all others before the rest.
    pub fn add_socket(&mut self, before: SocketId, now: SocketId) {
        self.maps.sockets.insert(before.0, now.0);
    }

    /// Takes the whole records that some bytes begin with. Returns how many bytes these are; what
    /// is left has to come again, with more behind it.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, Refused> {
        take_records(bytes, |kind, body| {
            let taken = self.take_record(kind, body);
            taken.map_err(|why| Refused::Broken(why, kind.what()))
        })
    }

    fn take_record(&mut self, kind: Kind, body: &[u8]) -> Result<(), Broken> {
        if self.is_over {
            return Err(Broken::Invalid("record behind the end"));
        }
        match kind {
            Kind::NetcodeSession => self.take_place(Table::Netcode, body),
            Kind::UnrealSession => self.take_place(Table::Unreal, body),
            Kind::PlainSession => self.take_place(Table::Plain, body),
            Kind::NetcodeHandshake => self.take_place(Table::Handshakes, body),
            Kind::End => {
                self.is_over = true;
                Ok(())
            }
            // It counts where it is expected only: the tables are there by now.
            Kind::Room => Ok(()),
            _ => self.take_other(kind, body),
        }
    }

    /// Takes what is at a place of a table. Who cannot be carried is noted.
    fn take_place(&mut self, table: Table, body: &[u8]) -> Result<(), Broken> {
        let Self { gate, maps, unclaimed, lost, .. } = self;
        let Gate { common, fronts } = gate;
        let mut from = Reader::new(body, maps);
        let place = Place::read(&mut from)?;
        let [netcode, unreal, plain] = unclaimed;
        let taken = match table {
            Table::Netcode => fronts.netcode.take_session(common, place, &mut from, netcode),
            Table::Unreal => fronts.unreal.take_session(common, place, &mut from, unreal),
            Table::Plain => fronts.plain.take_session(common, place, &mut from, plain),
            Table::Handshakes => fronts.netcode.take_pending(common, place, &mut from),
        };
        let lost = &mut lost[table as usize];
        match taken {
            Err(Broken::Foreign) => {
                self.put_away(table, place.index);
                self.lost[table as usize].insert(place.index, place);
                Ok(())
            }
            Ok(()) => {
                lost.remove(&place.index);
                from.end()
            }
            Err(why) => Err(why),
        }
    }

    /// An earlier copy of what is at a place does not hold any more.
    fn put_away(&mut self, table: Table, index: u32) {
        let Gate { common, fronts } = &mut self.gate;
        let [netcode, unreal, plain] = &mut self.unclaimed;
        match table {
            Table::Netcode => {
                if let Some(entry) = fronts.netcode.sessions.live_at(index) {
                    fronts.netcode.put_away(common, entry, netcode);
                }
            }
            Table::Unreal => {
                if let Some(entry) = fronts.unreal.sessions.live_at(index) {
                    fronts.unreal.put_away(common, entry, unreal);
                }
            }
            Table::Plain => {
                if let Some(entry) = fronts.plain.sessions.live_at(index) {
                    fronts.plain.put_away(common, entry, plain);
                }
            }
            Table::Handshakes => {}
        }
    }

    fn take_other(&mut self, kind: Kind, body: &[u8]) -> Result<(), Broken> {
        let Self { gate: Gate { common, fronts }, maps, unclaimed, .. } = self;
        let [netcode, unreal, plain] = unclaimed;
        let mut from = Reader::new(body, maps);
        let taken = match kind {
            Kind::NetcodeRest => fronts.netcode.take_rest(common, &mut from, netcode),
            Kind::UnrealRest => fronts.unreal.take_rest(common, &mut from, unreal),
            Kind::PlainRest => fronts.plain.take_rest(common, &mut from, plain),
            Kind::FreePlaces => Table::read(&mut from).and_then(|table| match table {
                Table::Netcode => fronts.netcode.take_free(common, &mut from, netcode),
                Table::Unreal => fronts.unreal.take_free(common, &mut from, unreal),
                Table::Plain => fronts.plain.take_free(common, &mut from, plain),
                Table::Handshakes => fronts.netcode.take_free_pending(&mut from),
            }),
            Kind::FreeAddresses => fronts.plain.addresses.take_free(&mut from),
            Kind::PlainProof => fronts.plain.take_proof(common, &mut from),
            Kind::NetcodeUserData => fronts.netcode.take_user_data(&mut from),
            Kind::NetcodeConnection => fronts.netcode.take_connection(common, &mut from),
            Kind::NetcodeFarewell => fronts.netcode.take_farewell(&mut from),
            Kind::NetcodeListener => fronts.netcode.take_listener(&mut from),
            Kind::UnrealListener => fronts.unreal.take_listener(&mut from),
            Kind::UnrealCalled => fronts.unreal.take_called(&mut from),
            Kind::UnrealServer => fronts.unreal.take_server(&mut from),
            Kind::PlainListener => fronts.plain.take_listener(common, &mut from),
            _ => take_common(common, kind, &mut from),
        };
        match taken {
            // Of a listener, a backend or a link that is not here.
            Err(Broken::Foreign) => Ok(()),
            Ok(()) => from.end(),
            Err(why) => Err(why),
        }
    }

    /// Claims what sessions could not have when they came, because another worker's session had it
    /// that was over by then. To be called when all workers have taken all, and before any of them
    /// is [finished](Self::finish).
    pub fn settle(&mut self) {
        let [netcode, unreal, plain] = std::mem::take(&mut self.unclaimed);
        for (number, token) in netcode.0 {
            let entry = Entry::numbered(number);
            let Gate { common, fronts } = &self.gate;
            if !fronts.netcode.claim_again(common, entry, token) {
                self.give_up(Table::Netcode, number, token);
            }
        }
        for (number, token) in unreal.0 {
            let Gate { common, fronts } = &self.gate;
            if !fronts.unreal.claim_again(common, Entry::numbered(number)) {
                self.give_up(Table::Unreal, number, token);
            }
        }
        for (number, token) in plain.0 {
            let Gate { common, fronts } = &self.gate;
            if !fronts.plain.claim_again(common, Entry::numbered(number)) {
                self.give_up(Table::Plain, number, token);
            }
        }
    }

    /// A session whose slot or client id is taken all the same.
    fn give_up(&mut self, table: Table, number: u32, token: TokenName) {
        let Fronts { netcode, unreal, plain, .. } = &self.gate.fronts;
        let place = match table {
            Table::Netcode => netcode.sessions.place(Entry::numbered(number)),
            Table::Unreal => unreal.sessions.place(Entry::numbered(number)),
            Table::Plain => plain.sessions.place(Entry::numbered(number)),
            Table::Handshakes => return,
        };
        // It holds no claim that could be given back.
        self.unclaimed[table as usize].0.insert(number, token);
        self.put_away(table, number);
        self.lost[table as usize].insert(number, place);
    }

    /// The gate, if everything has come.
    pub fn finish(mut self, now: Now) -> Result<(Gate, Arrived), Refused> {
        let refused = |why| Refused::Broken(why, "the worker's state");
        if !self.is_over {
            return Err(refused(Broken::Truncated));
        }
        let not_carried = self.free_lost(now).map_err(refused)?;
        let Gate { common, fronts } = &mut self.gate;
        let Fronts { netcode, unreal, plain, .. } = fronts;
        let whole = [
            netcode.sessions.check_whole(),
            netcode.pending.check_whole(),
            unreal.sessions.check_whole(),
            plain.sessions.check_whole(),
        ];
        whole.into_iter().collect::<Result<(), _>>().map_err(refused)?;
        netcode.settle_in(common, now.mono_ns);
        unreal.settle_in(common, now.mono_ns);
        plain.settle_in(common, now.mono_ns).map_err(refused)?;
        common.settle_links(now);
        common.life.turned_ns = now.mono_ns;
        common.counters.sessions_closed[Ended::NotCarried as usize] += not_carried;
        let sessions = self.gate.session_count();
        Ok((self.gate, Arrived { sessions, not_carried }))
    }

    /// The places of those who could not be carried rest.
    fn free_lost(&mut self, now: Now) -> Result<u64, Broken> {
        let Fronts { netcode, unreal, plain, .. } = &mut self.gate.fronts;
        let [in_netcode, in_unreal, in_plain, in_handshakes] = std::mem::take(&mut self.lost);
        let mut not_carried = 0;
        for (number, place) in in_netcode {
            if netcode.sessions.is_missing(number) {
                netcode.sessions.free(place, now.mono_ns)?;
                not_carried += 1;
            }
        }
        for (number, place) in in_unreal {
            if unreal.sessions.is_missing(number) {
                unreal.sessions.free(place, now.mono_ns)?;
                not_carried += 1;
            }
        }
        for (number, place) in in_plain {
            if plain.sessions.is_missing(number) {
                plain.sessions.free(place, now.mono_ns)?;
                not_carried += 1;
            }
        }
        for (_, place) in in_handshakes {
            netcode.pending.free(place, now.mono_ns)?;
        }
        Ok(not_carried)
    }
}

/// What the tables of the process before have room for, if the next record says so; streams of
/// earlier builds do not. Returns how long that is, too.
fn room(bytes: &[u8]) -> Result<(Option<Room>, usize), Refused> {
    let (mut room, maps) = (None, Maps::default());
    let len = take_records(first_record(bytes), |kind, body| {
        if kind == Kind::Room {
            let mut from = Reader::new(body, &maps);
            let read = Room::read(&mut from).and_then(|it| from.end().and_then(|()| it.checked()));
            room = Some(read.map_err(|why| Refused::Broken(why, kind.what()))?);
        }
        Ok(())
    })?;
    Ok(if room.is_some() { (room, len) } else { (None, 0) })
}

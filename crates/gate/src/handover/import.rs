//! A gate that is made of another process's records.

use std::sync::Arc;

use crate::common::Common;
use crate::counters::Ended;
use crate::front::carried::Carried;
use crate::front::cluster::carried::CarriedClusters;
use crate::front::cluster::over::Burying;
use crate::front::face::{Fronts, ask};
use crate::front::protocol::Front;
use crate::front::room::Room;
use crate::front::rules::Rules;
use crate::gate::Gate;
use crate::handover::common::take_common;
use crate::handover::places::HANDSHAKES;
use crate::handover::record::{Kind, Refused, Whose, check_beginning, first_record, take_records};
use crate::handover::sockets::{Bound, bind};
use crate::now::Now;
use crate::seed::{Seed, WorkerIndex};
use crate::setup::Setup;
use crate::shared::claims::Claims;
use ringgate_batch::SocketId;
use ringgate_core::carry::{Broken, Carry, Maps, Reader};
use ringgate_core::crypto::Aead;

/// A gate that is made of another process's, as far as that has come.
pub struct Import {
    gate: Gate,
    maps: Maps,
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
        Ok((Self { gate, maps, is_over: false }, start + len + room_len))
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
        let Self { gate: Gate { common, fronts }, maps, is_over } = self;
        let mut from = Reader::new(body, maps);
        let sessions = Front::ALL.iter().find(|front| front.records().session == kind);
        if let Some(front) = sessions {
            return ask!(fronts, front, .take_session(common, &mut from));
        }
        let taken = match kind {
            Kind::End => {
                *is_over = true;
                return Ok(());
            }
            // It counts where it is expected only: the tables are there by now.
            Kind::Room => return Ok(()),
            Kind::NetcodeHandshake => fronts.netcode.take_pending(common, &mut from),
            Kind::FreePlaces => fronts.take_free(common, &mut from),
            Kind::FreeAddresses => fronts.plain.addresses.take_free(&mut from),
            Kind::PlainProof => fronts.plain.take_proof(common, &mut from),
            Kind::NetcodeUserData => fronts.netcode.take_user_data(&mut from),
            Kind::NetcodeClustered => fronts.netcode.take_clustered(&mut from),
            Kind::NetcodeDelivered => fronts.netcode.take_delivered(&mut from),
            Kind::NetcodeDoubt => {
                fronts.netcode.sessions.clusters.doubt.is_inherited = true;
                Ok(())
            }
            Kind::NetcodeOvers => fronts.netcode.take_overs(common, &mut from),
            Kind::NetcodeTakeover => fronts.netcode.take_takeover(&mut from),
            Kind::PlainClustered => fronts.plain.take_clustered(&mut from),
            Kind::PlainDoubt => {
                fronts.plain.sessions.clusters.doubt.is_inherited = true;
                Ok(())
            }
            Kind::PlainOvers => fronts.plain.take_overs(common, &mut from),
            Kind::PlainTakeover => fronts.plain.take_takeover(&mut from),
            Kind::UnrealClustered => fronts.unreal.take_clustered(&mut from),
            Kind::UnrealDoubt => {
                fronts.unreal.sessions.clusters.doubt.is_inherited = true;
                Ok(())
            }
            Kind::UnrealOvers => fronts.unreal.take_overs(common, &mut from),
            Kind::UnrealTakeover => fronts.unreal.take_takeover(&mut from),
            Kind::NetcodeConnection => fronts.netcode.take_connection(common, &mut from),
            Kind::NetcodeFarewell => fronts.netcode.take_farewell(&mut from),
            Kind::NetcodeFormer => fronts.netcode.take_former(&mut from),
            Kind::UnrealCalled => fronts.unreal.take_called(&mut from),
            Kind::UnrealServer => fronts.unreal.take_server(&mut from),
            _ => fronts.take_rest(common, kind, &mut from),
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
        let Gate { common, fronts } = &mut self.gate;
        ask!(every fronts, .settle_claims(common));
    }

    /// The gate, if everything has come.
    pub fn finish(mut self, now: Now) -> Result<(Gate, Arrived), Refused> {
        let refused = |why| Refused::Broken(why, "the worker's state");
        if !self.is_over {
            return Err(refused(Broken::Truncated));
        }
        let Gate { common, fronts } = &mut self.gate;
        let mut not_carried = 0;
        for front in Front::ALL {
            let freed = ask!(fronts, front, .sessions_mut().free_lost(now.mono_ns));
            not_carried += freed.map_err(refused)?;
            ask!(fronts, front, .sessions().check_whole()).map_err(refused)?;
            ask!(fronts, front, .settle_in(common, now.mono_ns)).map_err(refused)?;
        }
        fronts.netcode.pending.check_whole().map_err(refused)?;
        common.settle_links(now);
        fronts.netcode.settle_moving(common);
        (common.life.turned_ns, common.life.begun_ns) = (now.mono_ns, now.mono_ns);
        common.counters.sessions_closed[Ended::NotCarried as usize] += not_carried;
        let sessions = self.gate.session_count();
        Ok((self.gate, Arrived { sessions, not_carried }))
    }
}

impl Fronts {
    /// Takes places that are free now.
    fn take_free(&mut self, common: &mut Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        let table = u8::read(from)?;
        if table == HANDSHAKES {
            return self.netcode.take_free_pending(from);
        }
        let front = Front::ALL.iter().find(|front| front.records().table == table);
        ask!(self, front.ok_or(Broken::Invalid("table"))?, .take_free(common, from))
    }

    /// Takes what else a front has to say, or what all share.
    fn take_rest(
        &mut self,
        common: &mut Common,
        kind: Kind,
        from: &mut Reader<'_>,
    ) -> Result<(), Broken> {
        for front in Front::ALL {
            let records = front.records();
            if records.rest == kind {
                return ask!(self, front, .take_rest(common, from));
            }
            if records.listener == Some(kind) {
                return ask!(self, front, .take_listener(common, from));
            }
        }
        take_common(common, kind, from)
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

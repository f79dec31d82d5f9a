//! A local worker that goes on in another process.

use std::collections::HashSet;

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_link::bundle::{self, Hello, SessionId, VERSION_MAX, WORKERS_MAX};

use super::clusters::OfClusters;
use super::{Dropped, GAMES_MAX, Place, Relay, Said, Taken};
use crate::protocol::arbitration::read_session;

ringgate_core::carried!(Said { name, pid, version_min, version });
ringgate_core::carried!(Dropped { lane_down, session_unknown, link_gone });
ringgate_core::carried!(Place { turn, taken });

impl Carry for Taken {
    fn write(&self, out: &mut Writer<'_>) {
        // What the gateway was told is told again, those who were refused it ends by itself, and
        // slots of those who were silent are kept by the fleet until their tokens end.
        let Self { hello, version, link, is_let_in, has_closed, players, .. } = self;
        // An offer goes on, and has its slot again when its player comes, if one is free then.
        // Sources without a slot are not told one by one.
        let Self {
            told_open: _,
            told_crowded: _,
            refused: _,
            silent: _,
            without_slot: _,
            offered,
            ..
        } = self;
        // Who gets messages of those who are there is not told either: they count as who does not.
        let Self { delivered: _, .. } = self;
        // Written with the ends that it is for. Who has gone has ends, and nobody is at its link.
        let Self { assembly: _, is_gone: _, half_said, .. } = self;
        hello.write(out);
        link.write(out);
        // A release that does not know the last two reads what has none of them.
        let agreed = hello.as_ref().map_or(0, |said| said.version);
        let flags = [
            (*is_let_in, IS_LET_IN),
            (*has_closed, HAS_CLOSED),
            (half_said.is_some(), IS_HALF_SAID),
            (agreed != *version, IS_NEWER),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag);
        flags.fold(0, |all, flag| all | flag).write(out);
        let players = players.iter().filter(|player| !offered.contains_key(player));
        players.map(|player| player.as_u64()).collect::<Vec<_>>().write(out);
        if let Some(session) = half_said {
            session.as_u64().write(out);
        }
        if agreed != *version {
            version.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (hello, link) = (Option::<Said>::read(from)?, Carry::read(from)?);
        let flags = u8::read(from)?;
        if flags & !(IS_LET_IN | HAS_CLOSED | IS_HALF_SAID | IS_NEWER) != 0 {
            return Err(Broken::Invalid("flag"));
        }
        let (is_let_in, has_closed) = (flags & IS_LET_IN != 0, flags & HAS_CLOSED != 0);
        let players = Vec::<u64>::read(from)?;
        let players: Option<HashSet<_>> = players.into_iter().map(SessionId::from_u64).collect();
        let players = players.ok_or(Broken::Invalid("session"))?;
        let half_said = if flags & IS_HALF_SAID != 0 { Some(read_session(from)?) } else { None };
        let agreed = hello.as_ref().map_or(0, |said| said.version);
        let version = if flags & IS_NEWER != 0 { u16::read(from)? } else { agreed };
        // A later release has agreed on one that is not spoken here.
        if agreed.max(version) > VERSION_MAX {
            return Err(Broken::Invalid("version of a link"));
        }
        let known = Self { hello, version, link, half_said, ..Self::default() };
        Ok(Self { is_let_in, has_closed, players, ..known })
    }
}

const IS_LET_IN: u8 = 1;
const HAS_CLOSED: u8 = 2;
const IS_HALF_SAID: u8 = 4;
const IS_NEWER: u8 = 8;

impl Place {
    /// Whether its number on the trunk is its own, and what it has called itself can be said again.
    fn is_sound(&self, at: usize) -> bool {
        let Some(Taken { hello, link, .. }) = &self.taken else { return true };
        let is_own = link.is_none_or(|link| usize::from(link.to_le_bytes()[0]) == at);
        let can_be_said = |said: &Said| {
            let Said { name, pid, version_min: _, version: _ } = said;
            bundle::is_name(name) && *pid < Hello::PID_END
        };
        is_own && hello.as_ref().is_none_or(can_be_said)
    }
}

impl Relay {
    /// Writes all of it but the names that may connect, which are the config's.
    pub fn write(&self, out: &mut Writer<'_>) {
        let Self { worker, workers, incarnation, lane, places, dropped, .. } = self;
        // Memory that is used for one record at a time.
        let Self { names: _, scratch: _, sessions: _, .. } = self;
        // One that drains is not handed over, and players are counted anew.
        let Self { is_draining: _, rolls: _, clusters: _, ends: _, .. } = self;
        (*worker, *workers).write(out);
        incarnation.write(out);
        lane.write(out);
        places.write(out);
        dropped.write(out);
    }

    /// What another process had.
    pub fn read(from: &mut Reader<'_>, names: Vec<String>) -> Result<Self, Broken> {
        let (worker, workers): (usize, usize) = Carry::read(from)?;
        if worker >= workers || workers > WORKERS_MAX {
            return Err(Broken::Invalid("number of workers"));
        }
        let relay = Self::new(worker, workers, Carry::read(from)?, names);
        let (lane, places) = (Carry::read(from)?, Vec::<Place>::read(from)?);
        if places.len() > GAMES_MAX {
            return Err(Broken::Invalid("number of links"));
        }
        if !places.iter().enumerate().all(|(at, place)| place.is_sound(at)) {
            return Err(Broken::Invalid("link"));
        }
        let clusters = OfClusters { is_inherited: true, ..OfClusters::default() };
        Ok(Self { lane, places, dropped: Carry::read(from)?, clusters, ..relay })
    }
}

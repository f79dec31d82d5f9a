//! Sessions that begin, and sources that show that they are where they say.
//!
//! Whoever sends a first datagram has a half-open session: the game server hears of it, but it
//! holds no slot, because anybody can write any address on a datagram. Its backend is chosen now,
//! of those that have a free slot. It opens with its next datagram after an answer, and only then
//! takes a slot: where all have gone meanwhile, its datagrams are dropped until it is given up. So
//! a server has no more players than slots, and knows of at most `half_open_max` others for each
//! worker. On a bundle link it is told which is which.

use crate::arrivals::Origin;
use crate::counters::Ended;
use crate::front::plain::credit::credit_for;
use crate::front::plain::datagrams::{JUMP_SILENCE_NS, Parts};
use crate::front::plain::session::{Session, Stage};
use crate::front::plain::state::PlainFront;
use crate::front::rules::Rules;
use crate::ids::BackendId;
use crate::routing::NoRoom;
use crate::setup::{LinkKind, Plain, Route};
use crate::shared::claims::Claim;
use crate::store::admission::Rate;
use crate::store::entry::Entry;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::USER_DATA_BYTES;

impl PlainFront {
    /// The first datagram of a source.
    pub(crate) fn start(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &Plain,
        origin: &Origin,
        parts: &Parts<'_>,
    ) -> Result<(), DropReason> {
        if turn.common.takes_nobody(origin.address.listener) {
            return Err(DropReason::Draining);
        }
        let wanted = wanted_backend(turn, rules, origin, parts)?;
        let backend = self.admit_start(turn, rules, origin, wanted)?;
        let index = self.insert(turn, rules, origin, (backend, parts))?;
        self.begin_in_cluster(turn, index, parts.token);
        if let Some(number) = parts.number {
            self.start_guards(index, rules, number);
        }
        self.make_room(turn, index);
        self.sessions.arm(index, turn.now.mono_ns + rules.half_open_ns);
        turn.common.trace(&origin.address, None, Fact::Waits { backend });
        self.relay_up(turn, index, (parts.number, parts.payload), origin.kernel_ns);
        Ok(())
    }

    /// A source that has a session and comes with another token: the same as a new one, unless an
    /// open session was just heard. Whoever knows a token can write any address on a datagram.
    pub(crate) fn change_token(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &Plain,
        (index, origin): (Entry<Session>, &Origin),
        parts: &Parts<'_>,
    ) -> Result<(), DropReason> {
        // A token that nobody has ends nothing.
        wanted_backend(turn, rules, origin, parts)?;
        let session = self.sessions.at(index);
        if session.is_open() && turn.now.mono_ns < session.heard_ns + JUMP_SILENCE_NS {
            return Err(DropReason::TokenSuperseded);
        }
        self.end(turn, index, Ended::Replaced);
        self.start(turn, rules, origin, parts)
    }

    /// The backend that a newcomer would play at, if it came in now, and if one more session may
    /// begin. Who finds no room there uses up nothing: it asks again, and many like it do.
    fn admit_start(
        &mut self,
        turn: &Turn<'_>,
        rules: &Plain,
        origin: &Origin,
        wanted: Option<BackendId>,
    ) -> Result<BackendId, DropReason> {
        let (common, address, now_ns) = (&turn.common, &origin.address, turn.now.mono_ns);
        let (block_rate, rate) =
            (Rate::new(rules.starts_per_block, 1), Rate::new(rules.starts_total, 1));
        let of_block = self.starts.bucket(&address.block());
        if of_block.level(block_rate, now_ns) == 0 {
            return Err(DropReason::StartBlockLimited);
        }
        let of_all = &mut self.listeners[address.listener];
        let looks = Rate::new(rules.starts_total.saturating_mul(LOOKS_FOR_START), 1);
        if of_all.starts.level(rate, now_ns) == 0 || !of_all.looks.take(looks, 1, now_ns) {
            return Err(DropReason::StartLimited);
        }
        if self.sessions.len() - self.open_count >= self.unproven_max {
            return Err(DropReason::HalfOpenFull);
        }
        let is_open =
            |backend| wanted.is_none_or(|wanted| backend == wanted) && common.speaks_plain(backend);
        let key = address.endpoint.ip_key();
        let found = common.find_room(address.listener, key, &[0; USER_DATA_BYTES], is_open);
        let backend = found.map_err(NoRoom::at_request)?;
        of_block.take(block_rate, 1, now_ns);
        of_all.starts.take(rate, 1, now_ns);
        // That takes a lock, so it is paid for.
        let limits = common.limits(address.listener);
        common.claims.has_room_for(address.listener, &address.endpoint, limits)?;
        Ok(backend)
    }

    fn insert(
        &mut self,
        turn: &Turn<'_>,
        rules: &Plain,
        origin: &Origin,
        (backend, parts): (BackendId, &Parts<'_>),
    ) -> Result<Entry<Session>, DropReason> {
        let now_ns = turn.now.mono_ns;
        let session = Session {
            stage: Stage::HalfOpen { is_answered: false },
            backend,
            server_guarded: None,
            token: parts.token_hash,
            heard_ns: now_ns,
            began_ns: now_ns,
            socket: origin.socket,
            announced: 0,
            slot_told: false,
            guarded_by: self.listeners[origin.address.listener].sequence_changes,
            local: origin.local,
            loopback: None,
            credit: credit_for(rules, parts.len),
            claim: Claim::NOBODYS,
            is_unsure: false,
        };
        let forwarded = origin.forwarded_by.is_some();
        let begun = self.sessions.begin_unheard(origin.address, session, now_ns, forwarded);
        let index = begun.map_err(|why| why.reason(DropReason::HalfOpenFull))?;
        self.half_open_count += 1;
        if rules.echo.is_some() {
            self.echoes.start(index, &[]);
        }
        if let LinkKind::Udp { .. } = &turn.common.setup.backends[backend].link {
            let address = self.addresses.take(index.number(), now_ns);
            self.sessions.at_mut(index).loopback = address;
        }
        Ok(index)
    }

    /// Notes who has begun, and ends the one that began first, where there are too many.
    pub(crate) fn make_room(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let listener = self.sessions.address(index).listener;
        let place = self.sessions.place(index);
        if let Some(before) = self.listeners[listener].unproven.enter(place)
            && before != place
            && let Some(entry) = self.sessions.live(before)
            && !self.sessions.at(entry).is_open()
        {
            turn.common.counters.half_open_evicted += 1;
            self.end(turn, entry, Ended::TimedOut);
        }
    }

    /// The source of a half-open session has sent again after an answer: it is a player.
    pub(crate) fn open(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &Plain,
        index: Entry<Session>,
        (is_proven, token): (bool, &[u8]),
    ) -> Result<(), DropReason> {
        let now_ns = turn.now.mono_ns;
        if self.open_count >= self.open_max {
            return Err(DropReason::ResponseSessionsFull);
        }
        let is_on_udp = self.sessions.at(index).loopback.is_some();
        if is_on_udp && !self.addresses.has_player_address(now_ns) {
            return Err(DropReason::PlacesResting);
        }
        let client_id = self.sessions.next_client_id();
        let address = *self.sessions.address(index);
        let session = self.sessions.at_mut(index);
        let wanted = session.backend;
        if !is_proven {
            Self::enter_unproven(turn.common, rules, wanted, &address)?;
        }
        let key = (client_id, address.endpoint.ip_key());
        let is_wanted = |backend| backend == wanted;
        let claimed = turn.common.claim_place(address.listener, key, address.endpoint, is_wanted);
        if claimed.is_err() && !is_proven {
            turn.common.claims.shares().leave(wanted, &address);
        }
        session.claim = claimed?;
        session.stage = Stage::Open { is_proven };
        if is_on_udp {
            self.addresses.promote();
        }
        self.open_count += 1;
        self.half_open_count -= 1;
        let began_ns = session.began_ns;
        self.note_began(turn, index, began_ns);
        self.begin_in_cluster(turn, index, token);
        self.sessions.arm(index, now_ns + rules.idle_ns);
        Ok(())
    }
}

/// The backend that a datagram's token stands for, where the listener goes by tokens.
fn wanted_backend(
    turn: &Turn<'_>,
    rules: &Plain,
    origin: &Origin,
    parts: &Parts<'_>,
) -> Result<Option<BackendId>, DropReason> {
    let Some(token) = &rules.token else { return Ok(None) };
    let backend = token.backends.get(parts.token).ok_or(DropReason::TokenUnknown)?;
    let listener = &turn.common.setup.listeners[origin.address.listener];
    Ok(Some(backend).filter(|_| listener.route == Route::Token))
}

/// How many searches for room may be in vain for each start that a listener allows.
const LOOKS_FOR_START: u32 = 8;

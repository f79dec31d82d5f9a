//! Datagrams from players: classify, open, step.
//!
//! Everything is looked at three times, each time over the whole batch: first by what costs no
//! decryption, then by the cipher, then by the state machines. A duplicate inside one batch passes
//! the first look and is caught by the commit of the third.

use arrayvec::ArrayVec;

use crate::arrivals::{Origin, PlayerRun, Source};
use crate::common::Common;
use crate::counters::Ended;
use crate::elsewhere::Elsewhere;
use crate::front::cluster::taking::Taking;
use crate::front::netcode::arrival::{Arrival, Target};
use crate::front::netcode::handshake::allows_token_reuse;
use crate::front::netcode::listener::ListenerRules;
use crate::front::netcode::port_switch::is_missed;
use crate::front::netcode::session::{HeardSince, OPENING_LINES, Pending, Session};
use crate::front::netcode::state::NetcodeFront;
use crate::front::rules::{Datagrams, Rules};
use crate::ids::ListenerId;
use crate::mail::Mailed;
use crate::now::Now;
use crate::roles::Role;
use crate::store::entry::Entry;
use crate::store::table::{Address, Guess};
use crate::turn::Turn;
use ringgate_batch::{RxBatch, RxMeta};
use ringgate_core::crypto::{Aead, Job, Nonce, Verdict};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::{DATAGRAM_BYTES_MAX, TAG_BYTES};
use ringgate_core::netcode::destination;
use ringgate_core::proto::netcode::packet::{Header, PacketKind, Receiver};
use ringgate_core::proto::netcode::request::{Request, RequestParts};
use ringgate_core::proto::netcode::server::{SessionPacket, session_packet};
use ringgate_core::proto::replay::Refusal;
use ringgate_core::secret::Key;

impl Datagrams for NetcodeFront {
    fn fetch_players(&self, sources: &mut [Source]) {
        for source in sources {
            match self.sessions.guess(source.hash) {
                Some(guess) => {
                    source.guess = Guess::of(Some(guess));
                    self.sessions.prefetch(guess, OPENING_LINES);
                }
                None => self.pending.prefetch_index(source.hash),
            }
        }
    }

    /// First look at a run of datagrams of one listener.
    fn classify(&mut self, turn: &mut Turn<'_>, run: PlayerRun, rx: &RxBatch) {
        let PlayerRun { listener, range } = run;
        let (common, now) = (&mut *turn.common, turn.now);
        let mut arrivals = std::mem::take(&mut self.arrivals);
        // Positions are the batch's: others' datagrams are settled here.
        arrivals.resize(range.start, Arrival::SETTLED);
        for at in range {
            let meta = &rx.metas()[at];
            arrivals.push(self.classify_one(
                common,
                now,
                listener,
                meta,
                common.sources[at],
                rx.bytes(at),
            ));
        }
        self.arrivals = arrivals;
    }

    /// Third look at a run of datagrams of one listener: state machines and payloads.
    fn step(&mut self, turn: &mut Turn<'_>, run: PlayerRun, rx: &mut RxBatch) {
        let PlayerRun { listener, range } = run;
        for at in range {
            let Arrival { target, header } = self.arrivals[at];
            let verdict = self.verdicts[at];
            let outcome = match target {
                Target::Settled => continue,
                Target::Session(index) => {
                    let kernel_ns = rx.metas()[at].kernel_ns;
                    let outcome =
                        self.step_session(turn, index, header, verdict, rx.bytes(at), kernel_ns);
                    if outcome == Err(DropReason::PacketForged) {
                        self.doubt(turn.now, index, header.sequence);
                    }
                    outcome
                }
                _ => self.step_other(turn, at, rx),
            };
            if let Err(why) = outcome {
                let address = Address { listener, endpoint: rx.metas()[at].peer };
                self.drop_datagram(turn.common, turn.now, &address, (why, rx.bytes(at)));
            }
        }
    }

    fn step_mailed(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        Mailed { by, is_lost }: Mailed,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        if Request::is_claimed_by(bytes) {
            return self.step_mailed_request(turn, origin, bytes);
        }
        if let Some(index) = self.handshake_of(origin, bytes) {
            let header = Header::decode(bytes, Receiver::Server)?;
            let verdict = self.open_pending(turn, index, header, bytes);
            return self.step_pending(turn, index, origin, header, verdict, bytes);
        }
        match self.look_at_mailed(origin, bytes) {
            Ok((index, header)) => {
                let verdict = self.open_single(turn, index, header, bytes);
                if verdict != Verdict::Done && is_missed(self.sessions.at(index), turn.now.mono_ns)
                {
                    return self.take_mover_in(turn, origin, is_lost, bytes);
                }
                let before = self.newest_of(index);
                self.step_session(turn, index, header, verdict, bytes, origin.kernel_ns)?;
                if let Some(member) = by.member().filter(|_| !self.sessions.clusters.is_empty()) {
                    self.note_way(turn, index, (member, header.sequence, before));
                }
                if let (true, Some(worker)) = (is_lost, by.worker()) {
                    self.remind_of_steering(turn, index, worker);
                }
                Ok(())
            }
            Err(DropReason::UnknownSource) if self.wait_for_session(turn.common, origin, bytes) => {
                Ok(())
            }
            Err(DropReason::UnknownSource)
                if Self::is_orphans(turn.common, &origin.address, bytes) =>
            {
                self.step_orphans(turn, origin, bytes)
            }
            Err(DropReason::UnknownSource) if is_lost => {
                self.take_mover_in(turn, origin, true, bytes)
            }
            Err(DropReason::UnknownSource) => {
                let header = Header::decode(bytes, Receiver::Server)?;
                // The session is over and the other worker has not heard yet.
                if !self.is_straggler(turn.common, turn.now, &origin.address, origin.hash, bytes) {
                    turn.common.unsteer_by(by, origin.address, None);
                    return Err(DropReason::UnknownSource);
                }
                turn.common.unsteer_by(by, origin.address, Some(header.sequence));
                Err(DropReason::SessionEnded)
            }
            Err(why) => Err(why),
        }
    }

    fn note_departed(&mut self, address: &Address, sequence: u64, now_ns: u64) {
        self.departed.leave(self.sessions.hash(address), sequence, now_ns);
    }

    #[cold]
    fn note_seen(&self, common: &Common, PlayerRun { listener, range }: PlayerRun, rx: &RxBatch) {
        for at in range {
            let address = Address { listener, endpoint: rx.metas()[at].peer };
            let client_id = match self.arrivals[at].target {
                Target::Session(index) => Some(self.sessions.at(index).client_id),
                Target::Pending(index) => Some(self.pending.at(index).binding.client_id),
                _ => None,
            };
            common.taps.note_seen(&address, client_id);
        }
    }

    fn payload_at<'a>(&self, at: usize, rx: &'a RxBatch) -> Option<&'a [u8]> {
        let Arrival { target, header } = self.arrivals.get(at)?;
        let is_opened = matches!(target, Target::Session(_))
            && self.verdicts.get(at) == Some(&Verdict::Done)
            && header.kind == PacketKind::Payload;
        let bytes = rx.bytes(at);
        is_opened.then(|| &bytes[header.body_start()..bytes.len() - TAG_BYTES])
    }
}

impl NetcodeFront {
    /// Before any datagram of this turn has its first look.
    ///
    /// A request costs its token's cipher and an answer, a hundred times what a look costs. A
    /// worker that is behind would spend nearly all of its time on players who ask again and again
    /// because they are not answered, while what its players send, and the responses of those who
    /// are in the handshake, are lost in the full queue. So it takes a share of them in each turn,
    /// and leaves the rest to their next try.
    pub(crate) fn begin_looks(&mut self, rx: &RxBatch) {
        self.arrivals.clear();
        self.requests_left = if rx.is_half_full() { REQUESTS_WHEN_BEHIND } else { u32::MAX };
    }

    #[inline]
    fn classify_one(
        &mut self,
        common: &mut Common,
        now: Now,
        listener: ListenerId,
        meta: &RxMeta,
        source: Source,
        bytes: &[u8],
    ) -> Arrival {
        let address = Address { listener, endpoint: meta.peer };
        let found = if meta.truncated {
            Err(DropReason::TooLong)
        } else {
            self.look(common, now, &address, (source, meta), bytes)
        };
        match found {
            Ok(target) => Arrival { target, header: Header::read(bytes) },
            Err(why) => {
                self.drop_datagram(common, now, &address, (why, bytes));
                Arrival::SETTLED
            }
        }
    }

    #[inline]
    fn look(
        &mut self,
        common: &mut Common,
        now: Now,
        address: &Address,
        (source, meta): (Source, &RxMeta),
        bytes: &[u8],
    ) -> Result<Target, DropReason> {
        check_length(bytes)?;
        let session = self.sessions.find_guessed(source.guess, source.hash, address);
        if session.is_none() {
            common.check_denied(&address.endpoint)?;
            if common.claims.whereabouts().is_some()
                && let Some(there) =
                    self.look_elsewhere(common, now, address, source.hash, bytes)?
            {
                return Ok(Target::Elsewhere(there));
            }
        }
        if Request::is_claimed_by(bytes) {
            let is_in_use = session.is_some_and(|index| !self.is_silent(common, now, index));
            look_at_request(common, now, address, is_in_use, bytes)?;
            self.take_request(source.hash, address)?;
            return Ok(Target::Request);
        }
        if let Some(index) = session {
            Header::check(bytes, Receiver::Server)?;
            let header = Header::read(bytes);
            if header.kind == PacketKind::Response
                && let Some(index) = self.pending.find(source.hash, address)
            {
                // Its client has come back, and logs in again.
                return Ok(Target::Pending(index));
            }
            let checked = self.check_window(index, address.listener, header);
            if is_missed(self.sessions.at(index), now.mono_ns)
                && let Some(mover) = self.look_at_doubtful(
                    common,
                    now,
                    (index, address, source.hash),
                    checked,
                    bytes,
                )
            {
                return Ok(mover);
            }
            checked?;
            return Ok(Target::Session(index));
        }
        if let Some(index) = self.pending.find(source.hash, address) {
            Header::check(bytes, Receiver::Server)?;
            if common.claims.whereabouts().is_some() {
                share_response(common, now, source, meta, bytes);
            }
            return Ok(Target::Pending(index));
        }
        if Self::is_orphans(common, address, bytes) {
            return Ok(Target::Orphan);
        }
        if self.is_straggler(common, now, address, source.hash, bytes) {
            return Err(DropReason::SessionEnded);
        }
        self.look_at_unknown(common, now, address, source.hash, bytes, None)
    }

    /// Whether a request may cost a cipher: there is a place for the handshake, and time.
    fn take_request(&mut self, hash: u32, address: &Address) -> Result<(), DropReason> {
        self.check_pending_room(hash, address)?;
        self.requests_left =
            self.requests_left.checked_sub(1).ok_or(DropReason::RequestDeferred)?;
        Ok(())
    }

    fn check_pending_room(&self, hash: u32, address: &Address) -> Result<(), DropReason> {
        if self.pending.is_full() && self.pending.find(hash, address).is_none() {
            return Err(DropReason::PendingFull);
        }
        Ok(())
    }

    /// Who else has the player of an address without a session here, if a datagram may go there.
    /// One of a player in a handshake here goes there where it is of no use for that: members that
    /// have been asked at the same moment each have a handshake, and one of them a session soon.
    #[cold]
    fn look_elsewhere(
        &self,
        common: &Common,
        now: Now,
        address: &Address,
        hash: u32,
        bytes: &[u8],
    ) -> Result<Option<Elsewhere>, DropReason> {
        let Some(there) = common.elsewhere(address) else { return Ok(None) };
        let is_in_handshake = self.pending.find(hash, address).is_some();
        if Request::is_claimed_by(bytes) {
            if is_in_handshake {
                return Ok(None);
            }
            let rules = common.setup.listeners[address.listener].netcode();
            let rules = rules.ok_or(DropReason::UnknownSource)?;
            Request::inspect(bytes, rules.protocol_id, now.unix_s)?;
        } else {
            let header = Header::decode(bytes, Receiver::Server)?;
            if is_in_handshake && header.kind == PacketKind::Response {
                return Ok(None);
            }
        }
        common.pay_way(now, there, address)?;
        Ok(Some(there))
    }

    /// The replay pre-check. A gap that the listener forbids passes here, because a forged packet
    /// must not end a session: the commit after opening decides.
    #[inline]
    pub(crate) fn check_window(
        &self,
        index: Entry<Session>,
        listener: ListenerId,
        header: Header,
    ) -> Result<(), DropReason> {
        if !header.kind.is_replay_protected() {
            return Ok(());
        }
        let policy = &self.listeners[listener].replay;
        match self.sessions.at(index).window.check(header.sequence, policy) {
            Err(Refusal::Gap) | Ok(()) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }

    /// Second look: the cipher, over everything that deserves it.
    pub(crate) fn open(&mut self, turn: &mut Turn<'_>, rx: &mut RxBatch) {
        self.verdicts.clear();
        let copies = self.port_switches.trials.candidate_count();
        if self.arrivals.is_empty() && copies == 0 {
            return;
        }
        self.verdicts.resize(self.arrivals.len() + copies, Verdict::Pending);
        let wants = |target: Target| self.arrivals.iter().any(|arrival| arrival.target == target);
        let has_requests = wants(Target::Request);
        self.open_packets(turn, rx);
        if has_requests {
            self.open_requests(turn, rx);
        }
    }

    fn open_packets(&mut self, turn: &mut Turn<'_>, rx: &mut RxBatch) {
        let Self { arrivals, verdicts, sessions, pending, port_switches, listeners, .. } = self;
        let aead = &mut turn.common.aead;
        let mut batch = Batch::new();
        for (at, (arrival, (_, bytes))) in arrivals.iter().zip(rx.iter_mut()).enumerate() {
            let (key, Address { listener, .. }) = match arrival.target {
                Target::Session(index) => (&sessions.at(index).open_key, sessions.address(index)),
                Target::Pending(index) => (&pending.at(index).open_key, pending.address(index)),
                _ => continue,
            };
            let job = packet_job(key, &listeners[*listener], arrival.header, bytes);
            batch.push(at, job, aead, verdicts);
        }
        // Behind the arrivals' verdicts come those of the copies that are tried.
        for (number, index, header, copy) in port_switches.trials.copies() {
            let listener = &listeners[sessions.address(index).listener];
            let job = packet_job(&sessions.at(index).open_key, listener, header, copy);
            batch.push(arrivals.len() + number, job, aead, verdicts);
        }
        batch.open(aead, verdicts);
    }

    /// Private tokens, under each listener's current key. Older keys are tried when the token is
    /// looked at.
    fn open_requests(&mut self, turn: &mut Turn<'_>, rx: &mut RxBatch) {
        let Self { arrivals, verdicts, .. } = self;
        let Common { sources, setup, aead, .. } = &mut *turn.common;
        let mut waiting = ArrayVec::<_, TOKEN_BATCH>::new();
        for (at, (arrival, (_, bytes))) in arrivals.iter().zip(rx.iter_mut()).enumerate() {
            let (Target::Request, Role::Player { listener, .. }) =
                (arrival.target, sources[at].role)
            else {
                continue;
            };
            let rules = setup.listeners[listener].netcode();
            let key = rules.and_then(|rules| rules.keys.first()).map(|key| &**key);
            let (Some(parts), Some(key)) = (RequestParts::split(bytes), key) else {
                continue;
            };
            waiting.push((at, key, parts));
            if waiting.is_full() {
                open_tokens(&mut waiting, aead, verdicts);
            }
        }
        open_tokens(&mut waiting, aead, verdicts);
    }

    /// The third look is over.
    pub(crate) fn end_steps(&mut self) {
        self.port_switches.trials.clear();
    }

    /// Before any datagram of this turn has its third look.
    pub(crate) fn begin_steps(&mut self, turn: &mut Turn<'_>) {
        self.step_mailed_movers(turn);
    }

    /// A datagram from an address without a session.
    fn step_other(
        &mut self,
        turn: &mut Turn<'_>,
        at: usize,
        rx: &mut RxBatch,
    ) -> Result<(), DropReason> {
        let Arrival { target, header } = self.arrivals[at];
        let verdict = self.verdicts[at];
        let origin =
            turn.common.sources[at].origin(&rx.metas()[at]).ok_or(DropReason::UnknownSource)?;
        let bytes = rx.bytes_mut(at);
        match target {
            Target::Pending(index) => match self.pending.at(index).session {
                Some(session) => {
                    // It was opened with the key that is the session's now.
                    self.arrivals[at].target = Target::Session(session);
                    self.step_session(turn, session, header, verdict, bytes, origin.kernel_ns)
                }
                None => self.step_pending(turn, index, &origin, header, verdict, bytes),
            },
            Target::Request => self.step_request(turn, &origin, verdict, bytes),
            Target::Orphan => self.step_orphans(turn, &origin, bytes),
            Target::Mover(number) => self.step_own_mover(turn, number, &origin, bytes),
            Target::Elsewhere(there) => {
                self.take_offered(turn, &origin);
                turn.common.pass_on(&origin, there, bytes);
                Ok(())
            }
            _ => Self::step_steered(turn, &origin, bytes),
        }
    }

    /// An opened packet of a session.
    #[inline]
    pub(crate) fn step_session(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        header: Header,
        verdict: Verdict,
        bytes: &[u8],
        kernel_ns: u64,
    ) -> Result<(), DropReason> {
        if verdict != Verdict::Done {
            return Err(DropReason::PacketForged);
        }
        if !self.sessions.is_live(index) {
            // Earlier in this turn.
            return Err(DropReason::SessionEnded);
        }
        if header.kind.is_replay_protected() {
            if self.sessions.at(index).heard == HeardSince::Nothing {
                self.spend_token(turn, index);
            }
            self.commit_window(turn, index, header.sequence)?;
        }
        let body = &bytes[header.body_start()..bytes.len() - TAG_BYTES];
        let packet = session_packet(header.kind, body);
        if packet.is_err() && header.kind == PacketKind::Response {
            self.repeat_welcome(turn, index);
        }
        match packet? {
            SessionPacket::Disconnect => self.end(turn, index, Ended::ByPlayer),
            SessionPacket::KeepAlive => {
                let was_there = self.sessions.at(index).is_confirmed();
                self.hear(turn, index);
                if !was_there {
                    self.tell_there(turn, index);
                }
                if !self.connections.is_empty() {
                    self.connections.touch(index);
                }
            }
            SessionPacket::Payload(payload) => {
                self.hear(turn, index);
                if self.connections.has(index) {
                    self.take_packet(turn, index, payload, kernel_ns);
                } else {
                    self.deliver(turn, index, (header.sequence, payload), kernel_ns);
                }
            }
        }
        turn.common.counters.handled[header.kind as usize] += 1;
        Ok(())
    }

    /// A response of a player who has a session already: it does not know, and is told again.
    #[cold]
    fn repeat_welcome(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if !self.sessions.at(index).is_confirmed() && !self.lacks_socket(turn, index) {
            self.emit_keep_alive(turn, index);
        }
    }

    /// The first packet of a session that could be played again in another one of its token. Once
    /// in its life.
    #[cold]
    fn spend_token(&mut self, turn: &Turn<'_>, index: Entry<Session>) {
        let listener = self.sessions.address(index).listener;
        let session = self.sessions.at_mut(index);
        session.heard = HeardSince::Something;
        let (client_id, backend) = (session.client_id, session.backend);
        let common = &turn.common;
        common.claims.spend_token(listener, client_id);
        // A token that opens others says nothing of who may still come.
        if common.claims.tells_joins() && !allows_token_reuse(turn, listener) {
            let user_data = self.user_data.whole(index);
            if let Some(join) = destination::join(client_id, &user_data) {
                // Its slot is promised where the token says, though the player was moved since.
                let (named, all) = (destination::named_backend(&user_data), &common.setup.backends);
                let mut all_of_it = [backend].into_iter().chain(all.ids());
                let named = all_of_it.find(|it| Some(all[*it].name.as_bytes()) == named);
                common.claims.note_join(named.unwrap_or(backend), join);
            }
        }
    }

    #[inline]
    fn hear(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let session = self.sessions.at_mut(index);
        session.last_receive_ns = turn.now.mono_ns;
        session.confirm();
    }

    fn commit_window(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        sequence: u64,
    ) -> Result<(), DropReason> {
        let listener = self.sessions.address(index).listener;
        let policy = &self.listeners[listener].replay;
        let committed = self.sessions.at_mut(index).window.commit(sequence, policy);
        let refused = committed.map_err(DropReason::from);
        if refused == Err(DropReason::SequenceGap) {
            let hash = self.sessions.hash(self.sessions.address(index));
            self.end(turn, index, Ended::SequenceGap);
            // What follows is numbered like this packet, and not like those before it.
            self.departed.leave(hash, sequence, turn.now.mono_ns);
        }
        refused
    }

    /// The highest number of a packet of a session's player so far.
    fn newest_of(&self, index: Entry<Session>) -> Option<u64> {
        let policy = &self.listeners[self.sessions.address(index).listener].replay;
        self.sessions.at(index).window.latest(policy)
    }

    /// Opens one packet by itself, off the batch: for the few that come by mail or from a new port.
    pub(crate) fn open_single(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        header: Header,
        bytes: &mut [u8],
    ) -> Verdict {
        let Self { sessions, listeners, .. } = self;
        let (key, Address { listener, .. }) =
            (&sessions.at(index).open_key, *sessions.address(index));
        let mut jobs = [packet_job(key, &listeners[listener], header, bytes)];
        turn.common.aead.open(&mut jobs);
        jobs[0].verdict
    }

    /// The same with a packet of a player in the handshake.
    fn open_pending(
        &self,
        turn: &mut Turn<'_>,
        index: Entry<Pending>,
        header: Header,
        bytes: &mut [u8],
    ) -> Verdict {
        let listener = &self.listeners[self.pending.address(index).listener];
        let mut jobs = [packet_job(&self.pending.at(index).open_key, listener, header, bytes)];
        turn.common.aead.open(&mut jobs);
        jobs[0].verdict
    }

    /// The handshake that a packet is for that came by mail, as [`look`](Self::look) finds it for
    /// one that came by socket.
    fn handshake_of(&self, origin: &Origin, bytes: &[u8]) -> Option<Entry<Pending>> {
        let index = self.pending.find(origin.hash, &origin.address)?;
        let is_response = || {
            let header = Header::decode(bytes, Receiver::Server);
            header.is_ok_and(|header| header.kind == PacketKind::Response)
        };
        let has_session = self.sessions.find(origin.hash, &origin.address).is_some();
        (!has_session || is_response()).then_some(index)
    }

    /// A connection request that came by mail. Those who forward bound how many come.
    fn step_mailed_request(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        let session = self.sessions.find(origin.hash, &origin.address);
        let is_in_use = session.is_some_and(|it| !self.is_silent(turn.common, turn.now, it));
        look_at_request(turn.common, turn.now, &origin.address, is_in_use, bytes)?;
        self.check_pending_room(origin.hash, &origin.address)?;
        let listener = origin.address.listener;
        let Common { setup, aead, .. } = &mut *turn.common;
        let rules = setup.listeners[listener].netcode();
        let key = rules.and_then(|rules| rules.keys.first()).map(|key| &**key);
        let mut verdict = [Verdict::Pending];
        let mut waiting: ArrayVec<_, TOKEN_BATCH> = key
            .zip(RequestParts::split(bytes))
            .map(|(key, parts)| (0, key, parts))
            .into_iter()
            .collect();
        open_tokens(&mut waiting, aead, &mut verdict);
        drop(waiting);
        self.step_request(turn, origin, verdict[0], bytes)
    }

    /// Checks a datagram that came by mail, as [`look`](Self::look) checks one that came by socket.
    pub(crate) fn look_at_mailed(
        &self,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<(Entry<Session>, Header), DropReason> {
        check_length(bytes)?;
        let found = self.sessions.find(origin.hash, &origin.address);
        let index = found.ok_or(DropReason::UnknownSource)?;
        let header = Header::decode(bytes, Receiver::Server)?;
        self.check_window(index, origin.address.listener, header)?;
        Ok((index, header))
    }
}

/// A response goes to the other member that is in a handshake with its address as well, if there is
/// one: its challenge may be that one's.
#[cold]
fn share_response(common: &mut Common, now: Now, source: Source, meta: &RxMeta, bytes: &[u8]) {
    let is_response = Header::read(bytes).kind == PacketKind::Response;
    let Some(origin) = source.origin(meta).filter(|_| is_response) else { return };
    let there = common.elsewhere(&origin.address);
    if let Some(there) = there.filter(|it| common.pay_way(now, *it, &origin.address).is_ok()) {
        common.pass_on(&origin, there, bytes);
        common.counters.forwarded_copies += 1;
    }
}

fn look_at_request(
    common: &mut Common,
    now: Now,
    address: &Address,
    is_connected: bool,
    bytes: &[u8],
) -> Result<(), DropReason> {
    let listener = &common.setup.listeners[address.listener];
    let rules = listener.netcode().ok_or(DropReason::UnknownSource)?;
    Request::inspect(bytes, rules.protocol_id, now.unix_s)?;
    if is_connected {
        return Err(DropReason::RequestAddressConnected);
    }
    common.admit_request(now, address)
}

/// Jobs that are opened together, and whose verdicts go back to the arrivals they came from.
struct Batch<'a> {
    jobs: ArrayVec<Job<'a>, OPEN_BATCH>,
    arrivals: ArrayVec<usize, OPEN_BATCH>,
}

impl<'a> Batch<'a> {
    const fn new() -> Self {
        Self { jobs: ArrayVec::new_const(), arrivals: ArrayVec::new_const() }
    }

    #[inline]
    fn push(&mut self, arrival: usize, job: Job<'a>, aead: &mut Aead, verdicts: &mut [Verdict]) {
        self.jobs.push(job);
        self.arrivals.push(arrival);
        if self.jobs.is_full() {
            self.open(aead, verdicts);
        }
    }

    fn open(&mut self, aead: &mut Aead, verdicts: &mut [Verdict]) {
        aead.open(&mut self.jobs);
        for (job, arrival) in self.jobs.drain(..).zip(self.arrivals.drain(..)) {
            verdicts[arrival] = job.verdict;
        }
    }
}

type WaitingToken<'a> = (usize, &'a Key, RequestParts<'a>);

fn open_tokens(
    waiting: &mut ArrayVec<WaitingToken<'_>, TOKEN_BATCH>,
    aead: &mut Aead,
    verdicts: &mut [Verdict],
) {
    let mut subkeys = ArrayVec::<(Key, Nonce), TOKEN_BATCH>::new();
    let tokens: ArrayVec<_, TOKEN_BATCH> =
        waiting.iter().map(|(_, key, parts)| (*key, parts.nonce)).collect();
    aead.derive(&tokens, |key, nonce| subkeys.push((key, nonce)));
    let mut jobs: ArrayVec<Job<'_>, TOKEN_BATCH> = waiting
        .iter_mut()
        .zip(&subkeys)
        .map(|((.., parts), (key, nonce))| Job::new(key, *nonce, parts.aad, parts.private))
        .collect();
    aead.open(&mut jobs);
    let opened: ArrayVec<Verdict, TOKEN_BATCH> = jobs.iter().map(|job| job.verdict).collect();
    drop(jobs);
    for ((arrival, ..), verdict) in waiting.drain(..).zip(opened) {
        verdicts[arrival] = verdict;
    }
}

pub(super) fn packet_job<'a>(
    key: &'a Key,
    listener: &'a ListenerRules,
    header: Header,
    bytes: &'a mut [u8],
) -> Job<'a> {
    let aad = listener.aads.of(header.prefix);
    Job::new(key, header.nonce(), aad, &mut bytes[header.body_start()..])
}

fn check_length(bytes: &[u8]) -> Result<(), DropReason> {
    match bytes.len() {
        0 | 1 => Err(DropReason::Empty),
        2..=DATAGRAM_BYTES_MAX => Ok(()),
        _ => Err(DropReason::TooLong),
    }
}

/// Connection requests in a turn of a worker that is behind: two batches of tokens, a quarter of a
/// millisecond with their answers.
const REQUESTS_WHEN_BEHIND: u32 = 32;

/// Packets opened at once. The kernels gain nothing beyond 64 (docs/BENCHMARKS.md, crypto).
const OPEN_BATCH: usize = 64;

/// Private tokens opened at once: a kilobyte each, so sixteen fill the lanes and stay in the
/// first-level cache.
const TOKEN_BATCH: usize = 16;

//! netcode players on their way to the next process.

use crate::common::Common;
use crate::front::netcode::connection::Connection;
use crate::front::netcode::session::{Pending, Session};
use crate::front::netcode::state::NetcodeFront;
use crate::front::netcode::sweep::Sweep;
use crate::front::protocol::Front;
use crate::front::rules::Rules;
use crate::handover::arriving::{NO_TOKEN, Unclaimed};
use crate::ids::ListenerId;
use crate::roles::Role;
use crate::seed::Random;
use crate::shared::claims::history::TokenName;
use crate::store::entry::Entry;
use crate::store::table::handed::{read_free, write_none};
use crate::store::table::{Address, Place};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::delivery::{End, Options};
use ringgate_core::proto::netcode::UserData;
use ringgate_core::proto::netcode::server::GlobalSequence;
use ringgate_core::proto::replay::Policy;
use ringgate_core::secret::Key;

impl NetcodeFront {
    /// Writes a session, all but the token that it was opened with: that never changes, and is
    /// [added](Self::add_token) where the session is written down.
    pub(crate) fn hand_over_session(&self, entry: Entry<Session>, out: &mut Writer<'_>) {
        self.sessions.place(entry).write(out);
        NO_TOKEN.write(out);
        self.sessions.address(entry).write(out);
        self.sessions.at(entry).write(out);
        // Its user data never changes, and is a record of its own.
        false.write(out);
    }

    /// Writes what a session's token carried for its game process.
    pub(crate) fn hand_over_user_data(&self, entry: Entry<Session>, out: &mut Writer<'_>) {
        self.sessions.place(entry).write(out);
        out.bytes(self.user_data.trimmed(entry).unwrap_or_default());
    }

    /// Goes on with it. That of a session that could not be carried is forgotten.
    pub(crate) fn take_user_data(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let place = Place::read(from)?;
        let bytes = from.bytes(from.rest().len())?;
        let Some(entry) = self.sessions.live(place) else { return Ok(()) };
        self.user_data.keep_again(entry, bytes).ok_or(Broken::Invalid("user data"))
    }

    /// Fills the token in where a session was written.
    pub(crate) fn add_token(&self, common: &Common, entry: Entry<Session>, body: &mut [u8]) {
        let (session, address) = (self.sessions.at(entry), self.sessions.address(entry));
        let token = common.claims.token_of(&session.claim(address)).unwrap_or(NO_TOKEN);
        let mut out = Writer::new(&mut body[TOKEN_AT..]);
        token.write(&mut out);
    }

    /// Takes a session in, in the place of whatever was there.
    pub(crate) fn take_session(
        &mut self,
        common: &mut Common,
        place: Place,
        from: &mut Reader<'_>,
        unclaimed: &mut Unclaimed,
    ) -> Result<(), Broken> {
        let (token, address) = (TokenName::read(from)?, Address::read(from)?);
        if common.front(address.listener) != Front::Netcode {
            return Err(Broken::Foreign);
        }
        let session = Session::read(from)?;
        // In streams of earlier builds, where the game process was not told yet.
        let user_data = Option::<Box<UserData>>::read(from)?;
        let steered_by = session.steered_by.map(|worker| worker.worker().0);
        if steered_by.is_some_and(|worker| worker >= common.worker.count) {
            return Err(Broken::Invalid("worker"));
        }
        let claim = session.claim(&address);
        if let Some(entry) = self.sessions.same_at(place, &address)
            && self.sessions.at(entry).claim(&address) == claim
        {
            *self.sessions.at_mut(entry) = session;
            self.note_come(common, entry, user_data.as_deref());
            return Ok(());
        }
        for entry in self.sessions.in_the_way(place, &address) {
            self.put_away(common, entry, unclaimed);
        }
        let entry = self.sessions.put(place, address, session)?;
        common.go_on_speaking(claim.backend, Front::Netcode);
        if common.claims.resume(&claim, token) {
            let id = self.sessions.id(entry);
            common.claims.seat(claim.listener, claim.client_id, (id, false));
        } else {
            unclaimed.0.insert(entry.number(), token);
        }
        if common.setup.listeners[address.listener].follow_port_switch {
            self.list_resident(common, entry);
        }
        if let Some(bytes) = unclaimed.1.remove(&place) {
            self.user_data.keep_again(entry, &bytes);
        }
        self.note_come(common, entry, user_data.as_deref());
        Ok(())
    }

    /// Notes what few sessions have.
    fn note_come(&mut self, common: &Common, entry: Entry<Session>, user_data: Option<&UserData>) {
        if let Some(user_data) = user_data {
            self.user_data.keep(entry, user_data);
        }
        let has_uplink = self.sessions.at(entry).uplink().is_some();
        self.session_sockets.have_come |= has_uplink || self.needs_socket(common, entry);
    }

    /// Takes a session out that was copied and is not there any more.
    pub(crate) fn put_away(
        &mut self,
        common: &mut Common,
        entry: Entry<Session>,
        unclaimed: &mut Unclaimed,
    ) {
        let claim = self.sessions.at(entry).claim(self.sessions.address(entry));
        if unclaimed.0.remove(&entry.number()).is_none() {
            common.claims.release(&claim);
        }
        self.port_switches.residents.leave(common.claims.homes(), entry);
        if let Some(bytes) = self.user_data.take(entry) {
            unclaimed.1.insert(self.sessions.place(entry), bytes);
        }
        self.connections.close(entry);
        self.sessions.take_out(entry);
    }

    /// Claims again what a session could not have when it came.
    pub(crate) fn claim_again(
        &self,
        common: &Common,
        entry: Entry<Session>,
        token: TokenName,
    ) -> bool {
        let claim = self.sessions.at(entry).claim(self.sessions.address(entry));
        let is_had = common.claims.resume(&claim, token);
        if is_had {
            let id = self.sessions.id(entry);
            common.claims.seat(claim.listener, claim.client_id, (id, false));
        }
        is_had
    }

    /// Writes an unfinished handshake.
    pub(crate) fn hand_over_pending(&self, entry: Entry<Pending>, out: &mut Writer<'_>) {
        self.pending.place(entry).write(out);
        self.pending.address(entry).write(out);
        self.pending.at(entry).write(out);
    }

    /// Takes an unfinished handshake in. One at a listener that is not there any more is over.
    pub(crate) fn take_pending(
        &mut self,
        common: &mut Common,
        place: Place,
        from: &mut Reader<'_>,
    ) -> Result<(), Broken> {
        let address = Address::read(from)?;
        if common.front(address.listener) != Front::Netcode {
            return Err(Broken::Foreign);
        }
        let pending = Pending::read(from)?;
        if self.pending.find(self.pending.hash(&address), &address).is_some() {
            return Err(Broken::Invalid("handshake"));
        }
        self.pending.put(place, address, pending)?;
        common.newcomers.handshakes.enter(&address.block());
        Ok(())
    }

    /// Writes everything but sessions and handshakes.
    pub(crate) fn hand_over_rest(&self, out: &mut Writer<'_>) {
        let Self {
            // From the setup.
            listeners: _,
            // In records of their own, and so are free places.
            sessions: _,
            pending: _,
            sweep,
            port_switches,
            departed,
            // They follow from the sessions.
            session_sockets: _,
            // In records of their own.
            user_data: _,
            connections: _,
            challenge_key,
            challenge_sequence,
            global_sequence,
            random,
            // Empty between two turns.
            arrivals: _,
            verdicts: _,
            requests_left: _,
        } = self;
        write_none(out);
        write_none(out);
        challenge_key.write(out);
        challenge_sequence.write(out);
        global_sequence.count().write(out);
        random.0.write(out);
        sweep.write(out);
        port_switches.hand_over(out);
        departed.hand_over(out);
    }

    /// Goes on with it.
    pub(crate) fn take_rest(
        &mut self,
        common: &mut Common,
        from: &mut Reader<'_>,
        unclaimed: &mut Unclaimed,
    ) -> Result<(), Broken> {
        self.take_free(common, from, unclaimed)?;
        self.take_free_pending(from)?;
        self.challenge_key = Key::read(from)?;
        self.challenge_sequence = u64::read(from)?;
        let count = u64::read(from)?;
        self.global_sequence = GlobalSequence::new(common.worker.id.index(), count);
        self.random = Random(u64::read(from)?);
        self.sweep = Sweep::read(from)?;
        self.port_switches.take_over(from)?;
        self.departed.take_over(from)
    }

    /// Takes places that are free now, whoever was copied there.
    pub(crate) fn take_free(
        &mut self,
        common: &mut Common,
        from: &mut Reader<'_>,
        unclaimed: &mut Unclaimed,
    ) -> Result<(), Broken> {
        read_free(from, |place, since_ns| {
            if let Some(entry) = self.sessions.live_at(place.index) {
                self.put_away(common, entry, unclaimed);
            }
            self.sessions.free(place, since_ns)
        })
    }

    /// The same for handshakes.
    pub(crate) fn take_free_pending(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        read_free(from, |place, since_ns| self.pending.free(place, since_ns))
    }

    /// Writes what a session has whose messages are delivered here.
    pub(crate) fn hand_over_connection(&self, entry: Entry<Session>, out: &mut Writer<'_>) {
        let Some(connection) = self.connections.get(entry) else { return };
        self.sessions.place(entry).write(out);
        connection.is_full.write(out);
        connection.end.hand_over(out);
    }

    /// Goes on with it. One of a session that could not be carried is forgotten.
    pub(crate) fn take_connection(
        &mut self,
        common: &Common,
        from: &mut Reader<'_>,
    ) -> Result<(), Broken> {
        let (place, is_full) = (Place::read(from)?, bool::read(from)?);
        let end = End::take_over(&Options::default(), from)?;
        let Some(entry) = self.sessions.live(place) else { return Ok(()) };
        let listener = self.sessions.address(entry).listener;
        if common.setup.listeners[listener].netcode().is_none() || self.connections.has(entry) {
            return Err(Broken::Invalid("session"));
        }
        let mut connection = Connection::new(end);
        connection.is_full = is_full;
        self.connections.put_new(entry, connection);
        Ok(())
    }

    /// Writes how large the windows of a listener are: as large as they were at first, whatever its
    /// setup says by now.
    pub(crate) fn hand_over_listener(&self, listener: ListenerId, out: &mut Writer<'_>) {
        listener.write(out);
        self.listeners[listener].replay.size_bits().write(out);
    }

    /// Keeps to that size, because it says where the bits of windows lie.
    pub(crate) fn take_listener(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let (listener, size_bits) = (ListenerId::read(from)?, u32::read(from)?);
        let rules = self.listeners.get_mut(listener).ok_or(Broken::Invalid("listener"))?;
        let policy = Policy::new(size_bits, rules.replay.gap_limit());
        rules.replay = policy.ok_or(Broken::Invalid("window"))?;
        Ok(())
    }

    /// Everything has come: timers, sockets, lists. Nothing here goes through all sessions of a
    /// large gateway: players wait.
    pub(crate) fn settle_in(&mut self, common: &mut Common, now_ns: u64) {
        if self.session_sockets.have_come {
            self.settle_sockets(common);
        }
        self.sessions.start_at(now_ns);
        self.arm_some(common);
        for entry in self.connections.entries() {
            self.connections.alarms.set(entry, now_ns);
        }
    }

    /// Only where there are such sessions, because it goes through all.
    fn settle_sockets(&mut self, common: &mut Common) {
        for entry in self.sessions.entries() {
            let Some(session) = self.sessions.get(entry) else { continue };
            let place = self.sessions.place(entry);
            if let Some(socket) = session.uplink() {
                common.roles.assign(socket, Role::SessionLink(place));
                if !session.is_confirmed() {
                    self.session_sockets.unwelcomed.push(place);
                }
            } else if self.needs_socket(common, entry) {
                // Asked for again, whether it was lost on the way or had not come.
                self.sessions.at_mut(entry).announced = 0;
            }
        }
    }

    /// Leaves out numbers that another process may have used meanwhile.
    pub(crate) fn skip_sequences(&mut self, count: u64) {
        for entry in self.sessions.entries() {
            if self.sessions.is_live(entry) {
                self.sessions.at_mut(entry).next_sequence.skip(count);
            }
        }
        self.challenge_sequence = self.challenge_sequence.saturating_add(count);
        self.global_sequence.skip(count);
        self.random.skip();
    }
}

/// Where the token lies in a session's record: behind the place, which is two numbers.
const TOKEN_AT: usize = 2 * size_of::<u32>();

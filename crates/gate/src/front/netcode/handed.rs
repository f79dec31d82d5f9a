//! netcode players on their way to the next process.

use crate::common::Common;
use crate::front::carried::Carried;
use crate::front::cluster::carried::CarriedClusters;
use crate::front::cluster::clustered::{Clustered, Delivered};
use crate::front::netcode::connection::Connection;
use crate::front::netcode::session::{Pending, Session};
use crate::front::netcode::state::NetcodeFront;
use crate::front::netcode::sweep::Sweep;
use crate::front::protocol::Front;
use crate::ids::ListenerId;
use crate::roles::Role;
use crate::seed::Random;
use crate::shared::claims::Claim;
use crate::store::entry::Entry;
use crate::store::table::handed::{read_free, write_none};
use crate::store::table::{Address, Place};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::delivery::{End, Options};
use ringgate_core::proto::netcode::UserData;
use ringgate_core::proto::netcode::server::GlobalSequence;
use ringgate_core::proto::replay::Policy;
use ringgate_core::secret::Key;

impl Carried for NetcodeFront {
    const FRONT: Front = Front::Netcode;
    const HAS_TOKENS: bool = true;

    /// In streams of earlier builds, where the game process was not told yet. By now, user data has
    /// a record of its own, because it never changes.
    type Beside = Option<Box<UserData>>;

    fn beside(&self, _index: Entry<Session>) -> Self::Beside {
        None
    }

    fn note_come(
        &mut self,
        common: &mut Common,
        index: Entry<Session>,
        user_data: Self::Beside,
    ) -> Result<(), Broken> {
        if let Some(user_data) = user_data {
            self.user_data.keep(index, &user_data);
        }
        let has_uplink = self.sessions.at(index).uplink().is_some();
        self.session_sockets.have_come |= has_uplink || self.needs_socket(common, index);
        Ok(())
    }

    fn move_in(&mut self, common: &Common, index: Entry<Session>) {
        if common.setup.listeners[self.sessions.address(index).listener].follow_port_switch {
            self.list_resident(common, index);
        }
        self.user_data.move_in(index, self.sessions.place(index));
        self.move_clustered_in(index);
    }

    fn move_out(&mut self, common: &Common, index: Entry<Session>) {
        self.port_switches.residents.leave(common.claims.homes(), index);
        self.user_data.move_out(index, self.sessions.place(index));
        self.move_clustered_out(index);
        self.connections.close(index);
    }

    fn note_claimed(&self, common: &Common, index: Entry<Session>, claim: &Claim) {
        common.claims.seat(claim.listener, claim.client_id, (self.sessions.id(index), false));
    }

    fn hand_over_rules(&self, out: &mut Writer<'_>) {
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
        challenge_key.write(out);
        challenge_sequence.write(out);
        global_sequence.count().write(out);
        random.0.write(out);
        sweep.write(out);
        port_switches.hand_over(out);
        departed.hand_over(out);
    }

    fn take_rules(&mut self, common: &Common, from: &mut Reader<'_>) -> Result<(), Broken> {
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

    /// How large its windows are: as large as they were at first, whatever its setup says by now.
    fn hand_over_listener(&self, listener: ListenerId, out: &mut Writer<'_>) {
        self.listeners[listener].replay.size_bits().write(out);
    }

    /// Keeps to that size, because it says where the bits of windows lie.
    fn take_listener(&mut self, _common: &Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        let (listener, size_bits) = (ListenerId::read(from)?, u32::read(from)?);
        let rules = self.listeners.get_mut(listener).ok_or(Broken::Invalid("listener"))?;
        let policy = Policy::new(size_bits, rules.replay.gap_limit());
        rules.replay = policy.ok_or(Broken::Invalid("window"))?;
        Ok(())
    }

    fn settle_rules(&mut self, common: &mut Common, now_ns: u64) -> Result<(), Broken> {
        if self.session_sockets.have_come {
            self.settle_sockets(common);
        }
        self.user_data.settle();
        self.settle_clustered(common);
        for entry in self.connections.entries() {
            self.connections.alarms.set(entry, now_ns);
        }
        Ok(())
    }
}

impl NetcodeFront {
    /// Whether the session at a place has a socket of its own.
    pub(crate) fn has_uplink(&self, place: u32) -> bool {
        let session = self.sessions.get(Entry::numbered(place));
        session.is_some_and(|session| session.uplink().is_some())
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

    /// Whether a session's messages are its agent's to deliver, for as long as it lives.
    pub(crate) fn is_delivered(&self, entry: Entry<Session>) -> bool {
        self.sessions.clusters.get(entry).is_some_and(Clustered::is_delivered)
    }

    /// Takes what says so of a session that has come before. One that could not be carried is
    /// forgotten.
    pub(crate) fn take_delivered(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let place = Place::read(from)?;
        let Some(entry) = self.sessions.live(place) else { return Ok(()) };
        if let Some(it) = self.sessions.clusters.get_mut(entry) {
            it.delivered = if it.told.is_some() { Delivered::Begun } else { Delivered::Fresh };
        }
        Ok(())
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
        from: &mut Reader<'_>,
    ) -> Result<(), Broken> {
        let place = Place::read(from)?;
        let taken = self.put_pending(common, place, from);
        if taken == Err(Broken::Foreign) {
            self.pending.free(place, common.life.turned_ns)?;
        }
        taken
    }

    fn put_pending(
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

    /// Takes places of handshakes that are free now.
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
        // Its keep-alive is set before anything leaves.
        let end = End::take_over(&Options::for_player(0), from)?;
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

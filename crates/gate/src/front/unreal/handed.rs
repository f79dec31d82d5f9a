//! Players of Unreal games on their way to the next process, and what is known of their servers.

use crate::common::Common;
use crate::front::protocol::Front;
use crate::front::rules::Rules;
use crate::front::unreal::probed::{Face, Probed};
use crate::front::unreal::session::{Session, Stage};
use crate::front::unreal::state::UnrealFront;
use crate::handover::arriving::{NO_TOKEN, Unclaimed};
use crate::ids::{BackendId, ListenerId, client_serial};
use crate::seed::Random;
use crate::shared::cookies::Resident;
use crate::store::area::Area;
use crate::store::entry::Entry;
use crate::store::table::handed::{read_free, write_none};
use crate::store::table::{Address, Place};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::proto::unreal::cookie::Cookie;

/// What follows from a session, and is known beside it.
enum Noted {
    /// It counts among the unfinished handshakes of its block.
    Opening(Area),
    /// Other workers find it by its cookie.
    Cookie(Cookie, u8, Resident),
    Nothing,
}

impl UnrealFront {
    /// Writes the session at a place.
    pub(crate) fn hand_over_session(&self, entry: Entry<Session>, out: &mut Writer<'_>) {
        self.sessions.place(entry).write(out);
        self.sessions.address(entry).write(out);
        self.sessions.at(entry).write(out);
    }

    /// Takes a session in, in the place of whatever was there.
    pub(crate) fn take_session(
        &mut self,
        common: &mut Common,
        place: Place,
        from: &mut Reader<'_>,
        unclaimed: &mut Unclaimed,
    ) -> Result<(), Broken> {
        let address = Address::read(from)?;
        if common.front(address.listener) != Front::Unreal {
            return Err(Broken::Foreign);
        }
        let session = Session::read(from)?;
        if session.steered_by.is_some_and(|worker| worker.0 >= common.worker.count) {
            return Err(Broken::Invalid("worker"));
        }
        let claim = session.claim;
        if let Some(entry) = self.sessions.same_at(place, &address)
            && self.sessions.at(entry).claim == claim
        {
            self.note_gone(common, entry);
            *self.sessions.at_mut(entry) = session;
            self.note_come(common, entry);
            return Ok(());
        }
        for entry in self.sessions.in_the_way(place, &address) {
            self.put_away(common, entry, unclaimed);
        }
        let entry = self.sessions.put(place, address, session)?;
        common.go_on_speaking(claim.backend, Front::Unreal);
        self.go_on_asking(common, address.listener, claim.backend);
        self.note_come(common, entry);
        if !common.claims.resume(&claim, NO_TOKEN) {
            unclaimed.0.insert(entry.number(), NO_TOKEN);
        }
        Ok(())
    }

    /// The server of a session is one that is asked, also where no listener sends players there any
    /// more.
    fn go_on_asking(&mut self, common: &Common, listener: ListenerId, backend: BackendId) {
        let Some(rules) = common.setup.listeners[listener].unreal() else { return };
        let now_ns = common.life.turned_ns;
        self.probed[backend].get_or_insert_with(|| Probed::new(rules, now_ns));
        self.has_servers = true;
    }

    /// Notes what follows from a session: one that is opening counts, and an open one is known by
    /// its cookie.
    fn note_come(&mut self, common: &mut Common, entry: Entry<Session>) {
        match self.noted(common, entry) {
            Noted::Opening(area) => {
                self.opening_count += 1;
                common.newcomers.handshakes.enter(&area);
            }
            Noted::Cookie(cookie, client_id, resident) => {
                let cookies = common.claims.cookies();
                cookies.expect_owners(common.setup.claim_limits());
                cookies.settle(&cookie, client_id, resident);
            }
            Noted::Nothing => {}
        }
    }

    /// Takes [`note_come`](Self::note_come) back: the session is over, or about to be another.
    fn note_gone(&mut self, common: &mut Common, entry: Entry<Session>) {
        match self.noted(common, entry) {
            Noted::Opening(area) => {
                self.opening_count -= 1;
                common.newcomers.handshakes.leave(&area);
            }
            Noted::Cookie(cookie, _, resident) => {
                common.claims.cookies().unsettle(&cookie, &resident);
            }
            Noted::Nothing => {}
        }
    }

    fn noted(&self, common: &Common, entry: Entry<Session>) -> Noted {
        let (session, address) = (self.sessions.at(entry), self.sessions.address(entry));
        let listener = address.listener;
        match &session.stage {
            Stage::Opening(_) => Noted::Opening(address.block()),
            Stage::Open { cookie, .. } if common.setup.listeners[listener].follow_port_switch => {
                let place = self.sessions.place(entry);
                let resident = Resident { worker: common.worker.id, listener, place };
                Noted::Cookie(*cookie, session.player_ids.client(), resident)
            }
            Stage::Open { .. } => Noted::Nothing,
        }
    }

    /// Takes a session out that was copied and is not there any more.
    pub(crate) fn put_away(
        &mut self,
        common: &mut Common,
        entry: Entry<Session>,
        unclaimed: &mut Unclaimed,
    ) {
        self.note_gone(common, entry);
        if unclaimed.0.remove(&entry.number()).is_none() {
            common.claims.release(&self.sessions.at(entry).claim);
        }
        self.sessions.take_out(entry);
    }

    /// Claims again what a session could not have when it came.
    pub(crate) fn claim_again(&self, common: &Common, entry: Entry<Session>) -> bool {
        common.claims.resume(&self.sessions.at(entry).claim, NO_TOKEN)
    }

    /// Writes everything but sessions, listeners and servers.
    pub(crate) fn hand_over_rest(&self, out: &mut Writer<'_>) {
        let Self {
            // In records of their own, and so are free places.
            sessions: _,
            // They follow from the sessions, or are asked for at once.
            opening_count: _,
            keyring: _,
            asked_for_secrets_ns: _,
            // Each in a record of its own.
            faces: _,
            probed: _,
            has_servers: _,
            next_probe_ns: _,
            credits,
            restarts,
            // The same key, with which the gate was made.
            hash: _,
            random,
        } = self;
        write_none(out);
        random.0.write(out);
        self.sessions.serial.write(out);
        credits.hand_over(out);
        restarts.hand_over(out);
    }

    /// Goes on with it.
    pub(crate) fn take_rest(
        &mut self,
        common: &mut Common,
        from: &mut Reader<'_>,
        unclaimed: &mut Unclaimed,
    ) -> Result<(), Broken> {
        self.take_free(common, from, unclaimed)?;
        self.random = Random(u64::read(from)?);
        self.sessions.serial = client_serial(u64::read(from)?);
        self.credits.take_over(from)?;
        self.restarts.take_over(from)
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

    /// Writes what the players of a listener were told.
    pub(crate) fn hand_over_listener(&self, listener: ListenerId, out: &mut Writer<'_>) {
        listener.write(out);
        self.faces[listener].hand_over(out);
    }

    pub(crate) fn take_listener(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let before = u16::read(&mut Reader::new(from.rest(), from.maps()))?;
        let listener = ListenerId::read(from)?;
        let face = Face::take_over(before, from)?;
        *self.faces.get_mut(listener).ok_or(Broken::Invalid("listener"))? = face;
        Ok(())
    }

    /// What a listener is called in cookies, where that is not its number.
    pub(crate) fn called_otherwise(&self, listener: ListenerId) -> Option<u16> {
        let called = self.faces[listener].called;
        (called != listener.0).then_some(called)
    }

    pub(crate) fn take_called(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let listener = ListenerId::read(from)?;
        let face = self.faces.get_mut(listener).ok_or(Broken::Invalid("listener"))?;
        face.called = u16::read(from)?;
        Ok(())
    }

    /// Writes what is known of a server. False where it is none.
    pub(crate) fn hand_over_server(&self, backend: BackendId, out: &mut Writer<'_>) {
        backend.write(out);
        if let Some(probed) = &self.probed[backend] {
            probed.hand_over(out);
        }
    }

    /// Goes on with what is known of a server, where this process asks it too.
    pub(crate) fn take_server(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let backend = BackendId::read(from)?;
        match self.probed.get_mut(backend).and_then(Option::as_mut) {
            Some(probed) => probed.take_over(from),
            None => Err(Broken::Foreign),
        }
    }

    /// Everything has come: timers. Nothing here goes through all sessions: players wait.
    pub(crate) fn settle_in(&mut self, common: &mut Common, now_ns: u64) {
        self.sessions.start_at(now_ns);
        self.arm_some(common);
        self.show_faces(&std::sync::Arc::clone(&common.setup));
    }
}

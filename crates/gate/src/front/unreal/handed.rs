//! Players of Unreal games on their way to the next process, and what is known of their servers.

use crate::common::Common;
use crate::front::carried::Carried;
use crate::front::cluster::carried::CarriedClusters;
use crate::front::protocol::Front;
use crate::front::unreal::probed::{Face, Probed};
use crate::front::unreal::session::{Session, Stage};
use crate::front::unreal::state::UnrealFront;
use crate::ids::{BackendId, ListenerId, client_serial};
use crate::seed::Random;
use crate::shared::cookies::Resident;
use crate::store::area::Area;
use crate::store::entry::Entry;
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

impl Carried for UnrealFront {
    const FRONT: Front = Front::Unreal;

    type Beside = ();

    fn beside(&self, _index: Entry<Session>) {}

    /// One that is opening counts, and an open one is known by its cookie.
    fn note_come(
        &mut self,
        common: &mut Common,
        entry: Entry<Session>,
        (): (),
    ) -> Result<(), Broken> {
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
        Ok(())
    }

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

    /// Its server is one that is asked, also where no listener sends players there any more.
    fn move_in(&mut self, common: &Common, index: Entry<Session>) {
        self.move_clustered_in(index);
        let listener = self.sessions.address(index).listener;
        let Some(rules) = common.setup.listeners[listener].unreal() else { return };
        let now_ns = common.life.turned_ns;
        let probed = &mut self.probed[self.sessions.at(index).claim.backend];
        probed.get_or_insert_with(|| Probed::new(rules, now_ns));
        self.has_servers = true;
    }

    fn move_out(&mut self, _common: &Common, index: Entry<Session>) {
        self.move_clustered_out(index);
    }

    fn hand_over_rules(&self, out: &mut Writer<'_>) {
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
            // They are used where a block has had what it may.
            own: _,
            credits,
            restarts,
            // The same key, with which the gate was made.
            hash: _,
            random,
        } = self;
        random.0.write(out);
        self.sessions.serial.write(out);
        credits.hand_over(out);
        restarts.hand_over(out);
    }

    fn take_rules(&mut self, _common: &Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.random = Random(u64::read(from)?);
        self.sessions.serial = client_serial(u64::read(from)?);
        self.credits.take_over(from)?;
        self.restarts.take_over(from)
    }

    /// What its players were told.
    fn hand_over_listener(&self, listener: ListenerId, out: &mut Writer<'_>) {
        self.faces[listener].hand_over(out);
    }

    fn take_listener(&mut self, _common: &Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        let before = u16::read(&mut Reader::new(from.rest(), from.maps()))?;
        let listener = ListenerId::read(from)?;
        let face = Face::take_over(before, from)?;
        *self.faces.get_mut(listener).ok_or(Broken::Invalid("listener"))? = face;
        Ok(())
    }

    fn settle_rules(&mut self, common: &mut Common, _now_ns: u64) -> Result<(), Broken> {
        self.settle_clustered(common);
        self.show_faces(&common.setup);
        Ok(())
    }
}

impl UnrealFront {
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
}

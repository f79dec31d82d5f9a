//! A relay's part in sessions that go from one gateway to another: what is said of them goes to
//! where the other end is, which may be another local worker of the agent.
//!
//! A session's *home* is where its game process knows it, and stays that. Its gateway may be at
//! another local worker by now, or nowhere for a while.

use std::sync::Arc;

use ringgate_cluster::{Refused, Tenure};
use ringgate_core::carry::{Broken as Carried, Carry, Reader, Writer as CarryWriter};
use ringgate_link::bundle::{
    Arbitrated, CloseReason, ClusterClaim, ClusterId, Clustered, Frame, MULTICAST_SESSIONS_MAX,
    Move, MoveRefusal, SessionId, Sessions, ToArbiter, ToGame, ToGateway, Writer,
};

use super::clusters::{Held, Homed, OfClusters, Passed, RefusedPackets};
use super::renamed::{called, rewritten, session_for};
use super::{Act, Action, Broken, Game, Relay, Taken, renumbered, write};
use crate::protocol::arbitration::{
    Arbitration, Fenced, Home, Opening, Reported, Seat, Unmoved, tenure,
};

impl Relay {
    /// Has sessions of clusters decided together with the agent's other local workers.
    pub fn arbitrate_with(&mut self, arbitration: Arc<Arbitration>) {
        self.clusters.arbitration = Some(arbitration);
    }

    /// Whether there is anything of clusters.
    pub fn is_of_cluster(&self) -> bool {
        !self.clusters.is_empty()
    }

    /// Writes it.
    pub fn write_clusters(&self, out: &mut CarryWriter<'_>) {
        // An opening that goes no further comes at once, and is told of again otherwise.
        let OfClusters { arbitration: _, is_used: _, held, homes, muted: _, refused, .. } =
            &self.clusters;
        // Nor is more asked of a source: it has a slot in a moment, or is over.
        let OfClusters { waiting: _, left: _, is_inherited: _, .. } = &self.clusters;
        // The last word of one that is moved goes the plain way, and its arbiter hears of its end.
        let OfClusters { moved: _, .. } = &self.clusters;
        let held = held
            .iter()
            .map(|(session, Held { id, tenure, .. })| (session.as_u64(), (*id, *tenure)));
        held.collect::<Vec<_>>().write(out);
        let homes = homes
            .iter()
            .map(|(session, Homed { id, game })| (session.as_u64(), (*id, game.place() as u8)));
        homes.collect::<Vec<_>>().write(out);
        [refused.fenced, refused.replayed, refused.session_over].write(out);
    }

    /// What another process had.
    pub fn read_clusters(&mut self, from: &mut Reader<'_>) -> Result<(), Carried> {
        let session = |number| SessionId::from_u64(number).ok_or(Carried::Invalid("session"));
        for (number, (id, tenure)) in Vec::<(u64, (ClusterId, Tenure))>::read(from)? {
            self.clusters.is_used = true;
            self.clusters.held.insert(session(number)?, Held { id, tenure, link: None });
        }
        for (number, (id, place)) in Vec::<(u64, (ClusterId, u8))>::read(from)? {
            let game = Game::at(place.into());
            if !self.has(game) {
                return Err(Carried::Invalid("link"));
            }
            let session = session(number)?;
            self.clusters.homes.insert(session, Homed { id, game });
            let link = self.places[game.place()].taken.as_ref().and_then(|taken| taken.link);
            if let Some(held) = self.clusters.held.get_mut(&session).filter(|it| it.id == id) {
                held.link = link;
            }
        }
        let [fenced, replayed, session_over] = Carry::read(from)?;
        self.clusters.refused = RefusedPackets { fenced, replayed, session_over };
        Ok(())
    }

    /// Whether a game process here knows a session of a cluster.
    pub fn has_homes(&self) -> bool {
        !self.clusters.homes.is_empty()
    }

    /// Payloads of clustered sessions that went no further.
    pub const fn refused_packets(&self) -> RefusedPackets {
        self.clusters.refused
    }

    /// Says behind a hello that sessions may be of a cluster, whatever their players speak.
    pub(super) fn tell_arbitrates(&mut self, link: u16, act: Act<'_>) {
        if self.clusters.arbitration.is_some() {
            for which in Arbitrated::ALL {
                let frame = write(&mut self.scratch, |writer| writer.arbitrates(which));
                act(Action::Tell(link, frame.expect("it is short")));
            }
        }
    }

    /// A record that only an arbiter reads. False where it is none.
    pub(super) fn handle_for_arbiter(
        &mut self,
        (game, link): (Game, u16),
        frame: Frame<'_>,
        act: Act<'_>,
    ) -> Result<bool, Broken> {
        let (Some(record), Some(arbitration)) =
            (ToArbiter::decode(frame), self.clusters.arbitration.clone())
        else {
            return Ok(false);
        };
        match record {
            ToArbiter::Numbered { session, number, bytes } => {
                let session = self.here(session)?;
                self.hand_over((link, session), (Some(number), bytes), &arbitration, act);
            }
            ToArbiter::Clustered(it) => {
                let it = Clustered { session: self.here(it.session)?, ..it };
                self.announce((game, link), &it, &arbitration, act);
            }
            ToArbiter::Plays(it) => self.note_player(game, &it)?,
            ToArbiter::There(session) => {
                let session = self.here(session)?;
                self.tell_there((link, session), &arbitration, act);
            }
            ToArbiter::Claim(it) => self.claim((game, link), &it, &arbitration, act),
            ToArbiter::Given { id, tenure: by } => {
                let given = tenure(by).and_then(|by| arbitration.given(id, by));
                if let Some((Seat { worker, link, session: Some(session) }, waits)) = given {
                    self.pass_parked((worker, link, session), waits, act);
                }
            }
            ToArbiter::Woke(number) => {
                let held = self.clusters.held.values().map(|it| (it.id, it.tenure));
                for report in arbitration.not_held(held, self.name(game)) {
                    act(Action::Tell(link, report.frame()));
                }
                let mut memory = [0; 16];
                let frame = write(&mut memory, |writer| writer.sure(number));
                act(Action::Tell(link, frame.expect("it is short")));
            }
            ToArbiter::Over { id, tenure } => {
                self.bury((game, link), (id, tenure), &arbitration, act);
            }
        }
        Ok(true)
    }

    pub(super) fn here(&self, session: SessionId) -> Result<SessionId, Broken> {
        let is_theirs = Some(session.worker()) == self.lane.map(usize::from);
        is_theirs.then(|| renumbered(session, self.worker)).flatten().ok_or(Broken)
    }

    pub(super) fn name(&self, game: Game) -> &str {
        self.name_at(game.place()).unwrap_or_default()
    }

    /// The gateway has been told that it does not have a session, and says no end of it.
    pub(super) fn end_payloads(&self, session: SessionId, act: Act<'_>) {
        if let Some(there) = self.lane.and_then(|lane| renumbered(session, lane.into())) {
            act(Action::NotHeld(there));
        }
    }

    fn announce(
        &mut self,
        (game, link): (Game, u16),
        it: &Clustered,
        arbitration: &Arbitration,
        act: Act<'_>,
    ) {
        let (worker, session) = (self.worker, it.session);
        let home = self.home_at(game, session);
        let (id, Some(tenure)) = (it.id, tenure(it.tenure)) else { return };
        let player = self.clusters.waiting.remove(&session).map(|it| it.player);
        let (mut opening, fenced) = arbitration.announce((it, player), self.name(game), link, home);
        self.tell_fenced(fenced, act);
        self.clusters.is_used = true;
        if let (Opening::Passed, Some(delivery)) = (&opening, it.delivery)
            && !self.begin_end(session, game, delivery)
        {
            // Nobody knows what was said in it: it ends.
            arbitration.close(id, tenure);
            opening = Opening::Refused(Reported::not_held(id, tenure, Refused::Ended));
        }
        if matches!(opening, Opening::Passed | Opening::Known(_)) {
            let held = Held { id, tenure, link: Some(link) };
            let before = self.clusters.held.insert(session, held).filter(|it| it.id != id);
            if let Some((before, on)) = before.and_then(|it| Some((it, it.link?)))
                && on != link
                && self.game_of(on).is_some()
            {
                self.clusters.moved.insert((session, on), before);
            }
        }
        match opening {
            Opening::Passed => {
                self.clusters.homes.insert(session, Homed { id, game });
            }
            Opening::Known(waits) => {
                self.mute(session);
                self.pass_parked((worker, link, session), waits, act);
            }
            Opening::Refused(report) => {
                self.mute(session);
                act(Action::Tell(link, report.frame()));
            }
            Opening::Second(report) => {
                self.mute(session);
                self.end_second((game, link), session, &report, act);
            }
        }
    }

    /// What a game process has said before the gateway was there that has the session.
    fn pass_parked(
        &mut self,
        (worker, link, session): (usize, u16, SessionId),
        waits: Vec<Vec<u8>>,
        act: Act<'_>,
    ) {
        for mut record in waits {
            if let Some(frame) = called(&mut record, session) {
                self.pass(worker, Passed::FromGame(link, frame), &mut |action| act(action));
            }
        }
    }

    /// The next opening of a session goes no further: it is the very next record, as a rule.
    fn mute(&mut self, session: SessionId) {
        if self.clusters.muted.len() == MUTED_MAX {
            self.clusters.muted.remove(0);
        }
        self.clusters.muted.push(session);
    }

    fn claim(
        &mut self,
        (game, link): (Game, u16),
        it: &ClusterClaim,
        arbitration: &Arbitration,
        act: Act<'_>,
    ) {
        let (report, fenced) = arbitration.claim(it, self.name(game), (self.worker, link));
        act(Action::Tell(link, report.frame()));
        self.tell_fenced(fenced, act);
    }

    /// Another gateway does not have a session any more, or the session has ended.
    pub(super) fn tell_fenced(&mut self, told: Option<Fenced>, act: Act<'_>) {
        let Some(Fenced { seat: Seat { worker, link, session }, report, unmoved }) = told else {
            return;
        };
        let passed = Passed::Fenced(link, session, report.frame());
        self.pass(worker, passed, &mut |action| act(action));
        if let Some(unmoved) = unmoved {
            self.refuse_move(unmoved, act);
        }
    }

    /// A game process hears that nobody answers the move that it has asked for.
    pub(super) fn refuse_move(&mut self, (home, ticket): Unmoved, act: Act<'_>) {
        let why = MoveRefusal::Busy;
        self.say(home, |writer| writer.move_refused(home.session, ticket, why), act);
    }

    /// Says something short to a game process.
    fn say(&mut self, home: Home, record: impl FnOnce(&mut Writer<'_>) -> bool, act: Act<'_>) {
        let mut memory = [0; 32];
        let frame = write(&mut memory, record).expect("it is short");
        let passed = Passed::ForGame(home.game, home.turn, frame);
        self.pass(home.worker, passed, &mut |action| act(action));
    }

    /// A session is over, whichever gateway has it.
    fn bury(
        &mut self,
        (game, link): (Game, u16),
        whose: (ClusterId, u32),
        arbitration: &Arbitration,
        act: Act<'_>,
    ) {
        let (report, home, fenced) = arbitration.bury(whose, self.name(game));
        act(Action::Tell(link, report.frame()));
        self.tell_fenced(fenced, act);
        if let Some(home) = home {
            self.say(home, |writer| writer.closed(home.session, BURIED), act);
        }
    }

    /// A gateway has heard the player of a session.
    fn tell_there(
        &mut self,
        (link, session): (u16, SessionId),
        arbitration: &Arbitration,
        act: Act<'_>,
    ) {
        let held = self.clusters.held_on(link, session);
        if let Some(home) = held.and_then(|it| arbitration.home(it.id, it.tenure)) {
            self.say(home, |writer| writer.there(home.session), act);
        }
    }

    fn hand_over(
        &mut self,
        (link, session): (u16, SessionId),
        (number, bytes): (Option<u64>, &[u8]),
        arbitration: &Arbitration,
        act: Act<'_>,
    ) {
        let held = self.clusters.held_on(link, session);
        let refused = &mut self.clusters.refused;
        let Some(Held { id, tenure, .. }) = held else {
            refused.session_over += 1;
            return;
        };
        match arbitration.hand_over(id, tenure, number) {
            Ok(Some(home)) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                let frame = write(&mut scratch, |it| it.payload(home.session, bytes));
                if let Some(frame) = frame {
                    self.pass(home.worker, Passed::ForGame(home.game, home.turn, frame), act);
                }
                self.scratch = scratch;
            }
            Ok(None) => refused.session_over += 1,
            Err(Refused::Replayed(_)) => refused.replayed += 1,
            Err(why) => {
                match why {
                    Refused::Fenced(_) | Refused::Unclaimed => refused.fenced += 1,
                    _ => refused.session_over += 1,
                }
                // It is told once: what still comes is of no session.
                self.clusters.leave(link, session);
                let report = Reported::not_held(id, tenure, why);
                act(Action::Tell(link, report.frame()));
                self.end_payloads(session, act);
            }
        }
    }

    /// A record of the gateway about a session of a cluster. False where it is none of those, or
    /// goes the way that any does.
    pub(super) fn handle_of_cluster(
        &mut self,
        link: u16,
        (record, frame): (&ToGame<'_>, Frame<'_>),
        act: Act<'_>,
    ) -> Result<bool, Broken> {
        if self.clusters.is_empty() {
            return Ok(false);
        }
        let Some(session) = session_of(record) else { return Ok(false) };
        let session = self.here(session)?;
        if matches!(record, ToGame::Opened(_) | ToGame::OpenedPlain(_)) {
            let at = self.clusters.muted.iter().position(|muted| *muted == session);
            let is_muted = at.map(|at| self.clusters.muted.swap_remove(at)).is_some();
            if is_muted
                && !self.clusters.held.contains_key(&session)
                && !self.is_source(link, session)
            {
                self.end_payloads(session, act);
            }
            return Ok(is_muted || self.is_second(link, (session, record), act));
        }
        if self.is_second(link, (session, record), act) {
            return Ok(true);
        }
        let Some(Held { id, tenure, .. }) = self.clusters.held_on(link, session) else {
            // What the game process knows by that name is another gateway's by now, or it knows
            // nothing by that name.
            let home = self.clusters.homes.get(&session).map(|home| home.game);
            let is_others = home.is_some_and(|home| self.game_of(link) == Some(home))
                || self.is_late(link, session, record);
            self.clusters.refused.fenced += u64::from(is_others);
            return Ok(is_others);
        };
        let Some(arbitration) = self.clusters.arbitration.clone() else { return Ok(false) };
        if let ToGame::Payload { bytes, .. } = record {
            self.hand_over((link, session), (None, bytes), &arbitration, act);
            return Ok(true);
        }
        let home = if is_last(record) {
            self.clusters.leave(link, session);
            // Who has it no more cannot end it.
            let Some(home) = arbitration.close(id, tenure) else { return Ok(true) };
            home
        } else {
            arbitration.home(id, tenure)
        };
        let Some(home) = home else { return Ok(true) };
        if let ToGame::MoveRefused { ticket, .. } = record {
            arbitration.refuse_move(id, *ticket);
        }
        let is_elsewhere = (home.worker, home.session) != (self.worker, session);
        if is_elsewhere && matches!(record, ToGame::Moved { .. }) {
            arbitration.note_left(home, (self.worker, link, session));
        }
        let mut memory = frame.bytes().to_vec();
        if let Some(frame) = called(&mut memory, home.session) {
            self.pass(home.worker, Passed::ForGame(home.game, home.turn, frame), act);
        }
        Ok(true)
    }

    /// Whether a payload without a number is of a session that the gateway has had, and the game
    /// process knows by another name.
    fn is_late(&self, link: u16, session: SessionId, record: &ToGame<'_>) -> bool {
        let taken = self.taken_at(link).filter(|_| matches!(record, ToGame::Payload { .. }));
        !self.clusters.is_inherited && taken.is_some_and(|taken| !taken.knows(session))
    }

    /// Whether a game process may know a session as a source without a slot, which it may stay.
    fn is_source(&self, link: u16, session: SessionId) -> bool {
        let taken = self.taken_at(link);
        let is_source = taken.is_some_and(|taken| taken.without_slot.contains(&session));
        self.clusters.is_inherited || is_source
    }

    fn taken_at(&self, link: u16) -> Option<&Taken> {
        self.places[self.game_of(link)?.place()].taken.as_ref()
    }

    /// What goes to a local worker, which may be this one.
    pub(super) fn pass(&mut self, worker: usize, passed: Passed<'_>, act: Act<'_>) {
        if worker == self.worker {
            self.handle_passed(&passed, act);
        } else {
            act(Action::Pass(worker, passed));
        }
    }

    /// What another local worker has passed here.
    pub fn handle_passed(&mut self, passed: &Passed<'_>, act: Act<'_>) {
        match *passed {
            Passed::ForGame(game, turn, frame) => self.tell_home(game, turn, frame, act),
            Passed::FromGame(link, frame) => {
                let Some(game) = self.game_of(link) else {
                    self.dropped.link_gone += 1;
                    return;
                };
                if let Ok(record) = ToGateway::decode(frame) {
                    self.handle_from_game(game, record, act);
                }
            }
            Passed::HomeLost(link) => {
                if let Some(game) = self.game_of(link) {
                    self.disconnect(game, act);
                    act(Action::HangUp(game));
                }
            }
            Passed::Fenced(link, session, frame) => {
                session.inspect(|session| self.leave_held((link, *session), act));
                if self.game_of(link).is_some() {
                    act(Action::Tell(link, frame));
                }
            }
        }
    }

    /// It was another process's, and what was passed to it at the end is lost. Sessions are over
    /// that have ended, and links end by which gateways have sessions that no game process knows:
    /// those are announced again.
    pub fn catch_up(&mut self, act: Act<'_>) {
        let Some(arbitration) = self.clusters.arbitration.clone() else { return };
        let homes = self.clusters.homes.keys().copied();
        for session in homes.filter(|session| self.is_forgotten(*session)).collect::<Vec<_>>() {
            self.close_home(session, LOST, act);
        }
        for link in arbitration.links_without_home(self.worker) {
            self.handle_passed(&Passed::HomeLost(link), act);
        }
    }

    /// The gateway does not have a session any more. What it has sent before it hears of that is
    /// still taken where it has given the session away.
    fn leave_held(&mut self, (link, session): (u16, SessionId), act: Act<'_>) {
        let OfClusters { arbitration, held, moved, left, .. } = &mut self.clusters;
        if moved.remove(&(session, link)).is_some() {
            return;
        }
        let Some(Held { id, tenure, .. }) = held.get(&session) else { return };
        let over = if arbitration.as_ref().is_some_and(|it| it.hears(*id, *tenure)) {
            left.push_back(session);
            if left.len() > LEFT_MAX { left.pop_front() } else { None }
        } else {
            Some(session)
        };
        if let Some(over) = over {
            held.remove(&over);
            self.end_payloads(over, act);
        }
    }

    /// A gateway says something about a session to a game process here.
    fn tell_home(&mut self, game: Game, turn: u8, frame: Frame<'_>, act: Act<'_>) {
        let Some(place) = self.places.get_mut(game.place()).filter(|it| it.turn == turn) else {
            self.dropped.link_gone += 1;
            return;
        };
        let Some(taken) = &mut place.taken else {
            self.dropped.link_gone += 1;
            return;
        };
        let rolls = self.rolls.as_ref();
        if let Some((session, bytes)) = frame.as_payload() {
            if taken.is_refused(session, rolls) {
                return;
            }
            taken.hear(session, rolls);
            if !self.take_packet(session, bytes, act) {
                act(Action::Deliver(game, frame));
            }
            return;
        }
        if let Some(ToArbiter::There(session)) = ToArbiter::decode(frame) {
            return self.note_there(session);
        }
        let Ok(record) = ToGame::decode(frame) else { return };
        let ends = is_last(&record).then(|| session_of(&record)).flatten();
        let OfClusters { homes, .. } = &self.clusters;
        let is_home = |session| homes.get(&session).is_some_and(|home| home.game == game);
        let is_here = ends.is_some_and(is_home);
        if ends.is_some_and(|session| !is_here && !taken.knows(session)) {
            // It has been told.
            return;
        }
        if matches!(record, ToGame::Moved { .. }) {
            ends.inspect(|session| taken.hear(*session, rolls));
        }
        let is_heard = ends.is_none_or(|session| !taken.leave(session, rolls));
        let here = ends.filter(|_| is_here);
        let why = here.and_then(|session| Some((session, self.finish_end(session, act)?)));
        if let (true, Some((session, reason))) = (is_heard, why) {
            let mut memory = [0; 32];
            let frame = write(&mut memory, |writer| writer.closed(session, reason));
            act(Action::Deliver(game, frame.expect("it is short")));
        } else if is_heard {
            act(Action::Deliver(game, frame));
        }
        if let Some(session) = here {
            self.clusters.homes.remove(&session);
            self.have_home_again(session);
            self.let_go(game, act);
        }
    }

    /// Another game process here may know a session by the number of one that is over.
    fn have_home_again(&mut self, session: SessionId) {
        let OfClusters { arbitration, held, homes, .. } = &mut self.clusters;
        if let Some(Held { id, tenure, .. }) = held.get(&session)
            && let Some(home) = arbitration.as_ref().and_then(|it| it.home(*id, *tenure))
            && (home.worker, home.session) == (self.worker, session)
        {
            homes.insert(session, Homed { id: *id, game: home.game });
        }
    }

    /// A game process has heard that it has lost players, or hears nothing any more. Whether a
    /// gateway elsewhere waits for that, which is told.
    pub(super) fn tell_heard(
        &mut self,
        (game, session): (Game, Option<SessionId>),
        act: Act<'_>,
    ) -> bool {
        let Some(arbitration) = &self.clusters.arbitration else { return false };
        let is_it = |home: &Home| session.is_none_or(|session| home.session == session);
        let is_here = |home: &Home| (home.worker, home.game) == (self.worker, game);
        let heard = arbitration.take_left(|home| is_here(home) && is_it(home));
        for (worker, link, there) in &heard {
            let mut memory = [0; 16];
            let frame = write(&mut memory, |writer| writer.confirm(*there));
            let passed = Passed::FromGame(*link, frame.expect("it is short"));
            self.pass(*worker, passed, &mut |action| act(action));
        }
        !heard.is_empty()
    }

    /// Hangs up on a game process that is kept for sessions of a cluster, once it has none.
    fn let_go(&mut self, game: Game, act: Act<'_>) {
        let taken = self.places[game.place()].taken.as_ref();
        if taken.is_some_and(|taken| taken.is_gone) && !self.has_ends_of(game) {
            return self.disconnect(game, &mut *act);
        }
        let has_home = self.clusters.homes.values().any(|home| home.game == game);
        if self.lane.is_some() || has_home {
            return;
        }
        if let Some(taken) = self.places[game.place()].taken.take_if(|it| it.hello.is_some()) {
            self.uncount(Some(&taken));
            self.tell_heard((game, None), act);
            act(Action::HangUp(game));
        }
    }

    /// The link of a game process is gone, and with it what that knew.
    pub(super) fn leave_homes(&mut self, game: Game, act: Act<'_>) {
        self.tell_heard((game, None), act);
        self.forget_ends(game);
        self.clusters.waiting.retain(|_, it| it.game != game);
        let OfClusters { homes, moved, arbitration: Some(arbitration), .. } = &mut self.clusters
        else {
            return;
        };
        let is_its = |(_, on): &(SessionId, u16), _: &mut Held| {
            usize::from(on.to_le_bytes()[0]) == game.place()
        };
        let moved: Vec<_> = moved.extract_if(is_its).map(|(_, it)| it).collect();
        let mut seats = Vec::new();
        for (_, home) in homes.extract_if(|_, home| home.game == game) {
            let seat = arbitration.leave_home(home.id);
            seats.extend(seat.map(|seat| (seat.worker, seat.link)));
        }
        seats.sort_unstable();
        seats.dedup();
        for (worker, link) in seats {
            if worker != self.worker {
                act(Action::Pass(worker, Passed::HomeLost(link)));
            }
        }
        self.end_moved(moved, act);
    }

    /// What would have told the game processes that these were moved away cannot come any more.
    /// Those that know them by another worker's link hear that they are over.
    fn end_moved(&mut self, moved: Vec<Held>, act: Act<'_>) {
        let Some(arbitration) = self.clusters.arbitration.clone() else { return };
        for it in moved {
            let home = arbitration.close(it.id, it.tenure).flatten();
            if let Some(home) = home.filter(|home| home.worker != self.worker) {
                self.say(home, |writer| writer.closed(home.session, LOST), act);
            }
        }
    }

    /// The lane is down: sessions for which there was no slot are over, and may be announced again.
    pub(super) fn end_refused(&mut self, game: Game, act: Act<'_>) {
        let Some(taken) = &self.places[game.place()].taken else { return };
        for session in taken.refused.iter().copied().collect::<Vec<_>>() {
            self.end_from_home(session, CloseReason::Refused, act);
            if let Some(taken) = &mut self.places[game.place()].taken {
                taken.refused.remove(&session);
            }
        }
    }

    /// The lane is down. Game processes that know sessions of a cluster keep their links, and hear
    /// that the others are over. Returns whether this one is kept.
    pub(super) fn keep_home(&mut self, game: Game, act: Act<'_>) -> bool {
        let Self { clusters, places, rolls, scratch, .. } = self;
        let is_home =
            |session: &SessionId| clusters.homes.get(session).is_some_and(|home| home.game == game);
        let Some(taken) = &mut places[game.place()].taken else { return false };
        if !clusters.homes.values().any(|home| home.game == game) {
            return false;
        }
        let announced = taken.players.iter().chain(&taken.without_slot);
        let lost = announced.filter(|session| !is_home(session)).copied();
        for session in lost.collect::<Vec<_>>() {
            taken.leave(session, rolls.as_ref());
            let frame = write(scratch, |writer| writer.closed(session, LOST));
            act(Action::Forget(game, frame.expect("it is short")));
        }
        *taken = Taken { link: None, is_let_in: false, told_open: None, ..std::mem::take(taken) };
        true
    }

    /// The lane is down: what its gateway has announced waits for it, or for another one.
    pub(super) fn lose_held(&mut self, act: Act<'_>) {
        (self.clusters.is_used, self.clusters.is_inherited) = (false, false);
        self.clusters.held.clear();
        self.clusters.waiting.clear();
        self.clusters.muted.clear();
        self.clusters.left.clear();
        let moved = self.clusters.moved.drain().map(|(_, it)| it).collect();
        self.end_moved(moved, act);
        if let Some(arbitration) = self.clusters.arbitration.clone() {
            for unmoved in arbitration.lose(self.worker) {
                self.refuse_move(unmoved, act);
            }
        }
    }

    /// Whether what a game process says is about a session that is another one's.
    pub(super) fn is_of_other(&self, game: Game, record: &ToGateway<'_>) -> bool {
        let home = session_for(record).and_then(|session| self.clusters.homes.get(&session));
        home.is_some_and(|home| home.game != game)
    }

    /// What a game process says about sessions whose gateway is at another local worker, or
    /// nowhere. False where all of it goes the way that any does.
    pub(super) fn handle_from_home(
        &mut self,
        game: Game,
        record: &ToGateway<'_>,
        act: Act<'_>,
    ) -> bool {
        if self.clusters.homes.is_empty() {
            return false;
        }
        if let ToGateway::Multicast { sessions, bytes } = record {
            return self.multicast_from_home(game, sessions, bytes, act);
        }
        let Some(session) = session_for(record) else { return false };
        let whereto = self.gateway_of(session, act);
        if let ToGateway::Move(Move { ticket, .. }) = record
            && let Some((id, arbitration)) = self.clusters.known(session)
            && !arbitration.ask_move(id, *ticket)
        {
            self.refuse_move((self.home_at(game, session), *ticket), act);
            return true;
        }
        match (whereto, record) {
            (Whereto::Here, _) => return false,
            (Whereto::There(worker, link, there), _) => {
                let frame = write(&mut self.scratch, |writer| rewritten(writer, record, there));
                if let Some(frame) = frame {
                    act(Action::Pass(worker, Passed::FromGame(link, frame)));
                }
            }
            (Whereto::Nowhere, ToGateway::Close { reason, .. }) => {
                self.end_from_home(session, *reason, act);
            }
            (Whereto::Nowhere, ToGateway::CloseAfter(it)) => {
                self.end_from_home(session, it.reason, act);
            }
            (Whereto::Nowhere, _) => {
                if !self.park(session, record) {
                    self.dropped.lane_down += super::payloads(record);
                }
            }
        }
        true
    }

    /// Keeps what a game process says for the gateway that is about to announce the session.
    fn park(&mut self, session: SessionId, record: &ToGateway<'_>) -> bool {
        let Self { clusters, scratch, .. } = self;
        let Some((id, arbitration)) = clusters.known(session) else { return false };
        let frame = write(scratch, |writer| rewritten(writer, record, session));
        frame.is_some_and(|frame| arbitration.park(id, frame.bytes()))
    }

    /// Where the gateway of a session is that a game process here has named.
    pub(super) fn gateway_of(&mut self, session: SessionId, act: Act<'_>) -> Whereto {
        let Some((id, arbitration)) = self.clusters.known(session) else { return Whereto::Here };
        let (seat, waits) = arbitration.seat(id).unzip();
        if let (Some(Seat { worker, link, session: Some(session) }), Some(waits)) = (seat, waits) {
            self.pass_parked((worker, link, session), waits, act);
        }
        match seat {
            Some(Seat { worker, session: Some(it), .. })
                if (worker, it) == (self.worker, session) && self.lane.is_some() =>
            {
                Whereto::Here
            }
            Some(Seat { worker, link, session: Some(it) }) => Whereto::There(worker, link, it),
            _ => Whereto::Nowhere,
        }
    }

    fn multicast_from_home(
        &mut self,
        game: Game,
        sessions: &Sessions<'_>,
        bytes: &[u8],
        act: Act<'_>,
    ) -> bool {
        let (mut own, mut is_split) = (Vec::with_capacity(MULTICAST_SESSIONS_MAX), false);
        for session in sessions.iter() {
            let payload = ToGateway::Payload { session, bytes };
            if self.is_of_other(game, &payload) {
                self.dropped.session_unknown += 1;
                is_split = true;
                continue;
            }
            let is_said = self.handle_for_end(game, &payload, act);
            if is_said || self.handle_from_home(game, &payload, act) {
                is_split = true;
            } else {
                own.push(session);
            }
        }
        if is_split && !own.is_empty() {
            let mut memory = vec![0; super::BUNDLE_BYTES_MAX];
            let frame = write(&mut memory, |writer| writer.multicast(&own, bytes));
            if let Some(record) = frame.and_then(|frame| ToGateway::decode(frame).ok()) {
                self.handle_from_game(game, record, act);
            }
        }
        is_split
    }

    /// The game process ends a session that no gateway has announced now.
    pub(super) fn end_from_home(&mut self, session: SessionId, reason: CloseReason, act: Act<'_>) {
        let Some((id, arbitration)) = self.clusters.known(session) else { return };
        let told = arbitration.end(id);
        self.tell_fenced(told, act);
        self.close_home(session, reason, act);
    }

    /// Whether a session has ended that a game process here knows.
    pub(super) fn is_forgotten(&self, session: SessionId) -> bool {
        let known = self.clusters.known(session);
        known.is_some_and(|(id, arbitration)| !arbitration.is_home(id, (self.worker, session)))
    }

    /// A session is over that a game process here knows.
    pub(super) fn close_home(&mut self, session: SessionId, reason: CloseReason, act: Act<'_>) {
        let Some(Homed { game, .. }) = self.clusters.homes.get(&session).copied() else { return };
        self.say(self.home_at(game, session), |writer| writer.closed(session, reason), act);
    }

    /// A session as a game process here knows it.
    fn home_at(&self, game: Game, session: SessionId) -> Home {
        Home { worker: self.worker, game, turn: self.places[game.place()].turn, session }
    }
}

/// Where the gateway is that has a session.
pub(super) enum Whereto {
    /// At this local worker, or the session is of no cluster.
    Here,
    /// At another one, by this link, under this name.
    There(usize, u16, SessionId),
    /// It is not connected.
    Nowhere,
}

/// Why a session is over whose gateway is gone.
pub(super) const LOST: CloseReason = CloseReason::TimedOut;

/// Why a session is over that another gateway than its own has ended.
pub(super) const BURIED: CloseReason = CloseReason::Other;

/// An opening follows its session's name at once.
const MUTED_MAX: usize = 64;

/// Sessions that the gateway has given away, and of which more may come.
const LEFT_MAX: usize = 4096;

/// What an arbiter arbitrates: sessions of these protocols, and whole messages.
pub const ARBITRATED: [&str; 4] = ["netcode", "plain", "unreal", "delivery"];

/// Whether a record is the last about its session.
pub(super) const fn is_last(record: &ToGame<'_>) -> bool {
    matches!(record, ToGame::Closed { .. } | ToGame::Moved { .. })
}

/// The session that a record of a gateway is about: its first field.
const fn session_of(record: &ToGame<'_>) -> Option<SessionId> {
    match record {
        ToGame::Opened(opened) => Some(opened.session),
        ToGame::OpenedPlain(opened) => Some(opened.session),
        ToGame::Payload { session, .. }
        | ToGame::Report { session, .. }
        | ToGame::Room { session, .. }
        | ToGame::Quality { session, .. }
        | ToGame::Lingered { session, .. }
        | ToGame::Moved { session, .. }
        | ToGame::MoveRefused { session, .. }
        | ToGame::Closed { session, .. } => Some(*session),
        _ => None,
    }
}

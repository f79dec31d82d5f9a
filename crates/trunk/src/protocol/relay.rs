//! What an agent does between game processes' local links and one lane of a gateway.
//!
//! To a game process an agent is a gateway whose workers are lanes, perhaps of several gateways. So
//! the agent answers hello itself, gives each link a number on the trunk, and passes everything
//! else on. Only session numbers change on the way: their upper bits name the worker, which has one
//! number at its gateway and another at the agent.
//!
//! A lane that is lost takes the local links with it, as a worker that is gone would: a game
//! process forgets its sessions, connects again, and is told about those who are still there when
//! the lane is back. Meanwhile the agent lets it in, so that it need not know.

mod carried;
mod clustered;
mod clusters;
mod delivered;
mod ends;
mod renamed;
mod seconds;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ringgate_core::netcode::destination::{self, Join};
use ringgate_link::bundle::{
    Answer, Assembly, BUNDLE_BYTES_MAX, CloseAfter, CloseReason, Frame, Frames, Goodbye,
    GoodbyeReason, Hello, MULTICAST_SESSIONS_MAX, MessagePart, Move, MoveRefusal, Offered, Opened,
    OpenedPlain, SessionId, ToGame, ToGateway, VERSION_FAREWELL, VERSION_MESSAGES, VERSION_MOVES,
    VERSION_SKIPPABLE, WORKERS_MAX, Welcome, Writer,
};

pub use crate::protocol::games::{GAMES_MAX, Game};
use crate::protocol::rolls::Rolls;
pub use clustered::ARBITRATED;
use clusters::OfClusters;
pub use clusters::{Passed, RefusedPackets};
pub use delivered::DeliveredCounts;
use delivered::Ends;
use renamed::{renamed, rewritten, session_for};

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// A record for a game process.
    Deliver(Game, Frame<'a>),
    /// Nothing follows for a game process: its link is to be closed. Its place is free.
    HangUp(Game),
    /// A record that must arrive at the gateway.
    Tell(u16, Frame<'a>),
    /// A record for the gateway that may be lost.
    Push(u16, Frame<'a>),
    /// The gateway is told that a link is over.
    End(u16),
    /// A session whose gateway is not connected is over for a game process; a server that knows
    /// nothing of gateways keeps it for a while.
    Forget(Game, Frame<'a>),
    /// Something for another local worker.
    Pass(usize, Passed<'a>),
    /// The gateway has been told that it does not have this session, by its number: no payload of
    /// it is to come.
    NotHeld(SessionId),
}

/// Takes each [`Action`]. It is `dyn`, so that a relay is compiled once for all callers.
pub type Act<'a> = &'a mut dyn FnMut(Action<'_>);

/// Payloads and records that went no further, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Payloads and messages while the lane was down.
    pub lane_down: u64,
    /// Payloads and messages for sessions of another worker.
    pub session_unknown: u64,
    /// Records for links that the game process has left.
    pub link_gone: u64,
}

/// The gateway has broken the format: the trunk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

#[derive(Debug)]
struct Place {
    /// How often the place was given away: two links never have the same number at a time, nor one
    /// after the other.
    turn: u8,
    taken: Option<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// What it has said about itself.
    hello: Option<Said>,
    /// The version of its own link, whatever gateways choose.
    version: u16,
    /// Its number on the trunk, while the lane is up.
    link: Option<u16>,
    /// Whether the gateway has let it in under that number.
    is_let_in: bool,
    /// It has said itself that nobody new is to be sent to it.
    has_closed: bool,
    /// What the gateway was told of that last, if that is known; at first it takes it to be open.
    told_open: Option<bool>,
    /// Whether the gateway was told that too much waits, if that is known.
    told_crowded: Option<bool>,
    /// Who was announced to it, has a slot, and has not left.
    players: HashSet<SessionId>,
    /// Who was not, for want of a slot, until the gateway has ended the session.
    refused: HashSet<SessionId>,
    /// Who plays at another process and may come: has a slot, by the number of the offer.
    offered: HashMap<SessionId, u64>,
    /// Who gets messages that the gateway delivers: whether it was closed after delivery.
    delivered: HashMap<SessionId, bool>,
    /// Who has said nothing yet: until then the token may open another session.
    silent: HashMap<SessionId, Join>,
    /// Plain sources that the game process knows of, and that have no slot.
    without_slot: HashSet<SessionId>,
    /// What it has said half, of a message that is delivered here.
    assembly: Assembly,
    /// Whose message the gateway has said half to it: until the rest has come, it is handed no
    /// other one that is reliable.
    half_said: Option<SessionId>,
    /// The process has gone: its link stays for those whom it has closed after delivery.
    is_gone: bool,
}

#[derive(Debug)]
struct Said {
    name: String,
    pid: u32,
    version_min: u16,
    /// What is offered to the gateway; what that one has chosen once it has.
    version: u16,
}

/// One local worker.
#[derive(Debug)]
pub struct Relay {
    /// The worker's number here.
    worker: usize,
    /// How many there are here.
    workers: usize,
    incarnation: u64,
    /// Names of backends that this agent serves.
    names: Vec<String>,
    /// The agent will end: nobody new is to be sent to any of them.
    is_draining: bool,
    /// The worker's number at the gateway, while the lane is up.
    lane: Option<u8>,
    places: Vec<Place>,
    scratch: Box<[u8]>,
    sessions: Vec<SessionId>,
    dropped: Dropped,
    rolls: Option<Counted>,
    clusters: OfClusters,
    ends: Ends,
}

/// Where players are counted, together with those of other workers.
#[derive(Clone, Debug)]
struct Counted {
    rolls: Arc<Rolls>,
    /// Whose worker this is.
    gateway: Arc<str>,
}

impl Relay {
    /// A worker without links whose lane is down.
    pub fn new(worker: usize, workers: usize, incarnation: u64, names: Vec<String>) -> Self {
        debug_assert!(worker < workers && workers <= WORKERS_MAX);
        Self {
            worker,
            workers,
            incarnation,
            names,
            is_draining: false,
            lane: None,
            places: Vec::new(),
            scratch: vec![0; BUNDLE_BYTES_MAX].into_boxed_slice(),
            sessions: Vec::with_capacity(MULTICAST_SESSIONS_MAX),
            dropped: Dropped::default(),
            rolls: None,
            clusters: OfClusters::default(),
            ends: Ends::default(),
        }
    }

    /// Has its players counted as this gateway's, and lets nobody past the slots. Those whom it has
    /// already are counted.
    pub fn count_in(&mut self, rolls: Arc<Rolls>, gateway: Arc<str>) {
        for taken in self.taken() {
            if let Some(said) = &taken.hello {
                rolls.go_on(&said.name, &gateway, taken.players.len() as u32);
            }
        }
        self.rolls = Some(Counted { rolls, gateway });
    }

    /// Which backends this agent serves from now on. Who is welcome stays so, but gets nobody new
    /// where the name is not among them, once [that is told](Self::tell_intakes).
    pub fn set_names(&mut self, names: Vec<String>) {
        self.names = names;
    }

    /// Tells the gateway of each link whether nobody new is to be sent there, where it may not
    /// know.
    pub fn tell_intakes(&mut self, act: Act<'_>) {
        for place in 0..self.places.len() {
            self.tell_intake(Game(place as u8), act);
        }
    }

    /// How many workers the next welcome names.
    pub const fn set_workers(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// That.
    pub const fn workers(&self) -> usize {
        self.workers
    }

    /// What went no further.
    pub const fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Whether there is a link at a place.
    pub fn has(&self, game: Game) -> bool {
        self.places.get(game.place()).is_some_and(|place| place.taken.is_some())
    }

    /// The places that are taken.
    fn taken(&self) -> impl Iterator<Item = &Taken> {
        self.places.iter().filter_map(|place| place.taken.as_ref())
    }

    /// What the process at a place has called itself, once it is welcome.
    pub fn name_at(&self, place: usize) -> Option<&str> {
        let taken = self.places.get(place)?.taken.as_ref()?;
        taken.hello.as_ref().map(|said| said.name.as_str())
    }

    /// Whether a process is there that has called itself so.
    pub fn has_named(&self, name: &str) -> bool {
        self.taken()
            .any(|it| !it.is_gone && it.hello.as_ref().is_some_and(|said| said.name == name))
    }

    /// How many players a link has.
    pub fn players_of(&self, game: Game) -> usize {
        let taken = self.places.get(game.place()).and_then(|place| place.taken.as_ref());
        taken.map_or(0, |taken| taken.players.len())
    }

    /// Who is welcome: the name of each link, whether the gateway has let it in, and its players.
    pub fn welcome(&self) -> impl Iterator<Item = (&str, bool, usize)> {
        let taken = self.taken().filter(|taken| !taken.is_gone);
        taken.filter_map(|Taken { hello, is_let_in, players, .. }| {
            Some((hello.as_ref()?.name.as_str(), *is_let_in, players.len()))
        })
    }

    /// Whose links stay although they have gone, for players whom they have closed after delivery:
    /// the name of each, and how many those are.
    pub fn gone(&self) -> impl Iterator<Item = (&str, usize)> {
        let taken = self.taken().filter(|taken| taken.is_gone);
        taken.filter_map(|Taken { hello, players, .. }| {
            Some((hello.as_ref()?.name.as_str(), players.len()))
        })
    }

    /// Whether the process at a place has gone, and its link stays.
    pub fn is_gone(&self, place: usize) -> bool {
        let taken = self.places.get(place).and_then(|place| place.taken.as_ref());
        taken.is_some_and(|taken| taken.is_gone)
    }

    /// The agent will end: tells all who are welcome, and the gateway that nobody new is to be sent
    /// to them.
    pub fn drain(&mut self, left_ms: u32, act: Act<'_>) {
        self.is_draining = true;
        for place in 0..self.places.len() {
            self.tell_draining(Game(place as u8), left_ms, act);
        }
        self.tell_intakes(act);
    }

    /// The agent goes on: tells all who are welcome and know the word, and the gateway that players
    /// may be sent to them.
    pub fn undrain(&mut self, act: Act<'_>) {
        self.is_draining = false;
        let frame = write(&mut self.scratch, undrained);
        let frame = frame.expect("it is short");
        for (place, Place { taken, .. }) in self.places.iter().enumerate() {
            if taken.as_ref().is_some_and(|taken| taken.version >= VERSION_SKIPPABLE) {
                act(Action::Deliver(Game(place as u8), frame));
            }
        }
        self.tell_intakes(act);
    }

    /// Tells one who is welcome that the agent will end.
    pub fn tell_draining(&mut self, game: Game, left_ms: u32, act: Act<'_>) {
        if self.name_at(game.place()).is_some() {
            let frame = write(&mut self.scratch, |writer| writer.draining(left_ms));
            act(Action::Deliver(game, frame.expect("it is short")));
        }
    }

    /// Ends a link for a reason that only the caller knows, such as who its process is.
    pub fn turn_away(&mut self, game: Game, reason: GoodbyeReason, act: Act<'_>) {
        if self.places[game.place()].taken.is_some() {
            self.refuse(game, because(reason), act);
        }
    }

    /// A game process has connected. `None` where there are too many.
    pub fn connect(&mut self) -> Option<Game> {
        let place = match self.places.iter().position(|place| place.taken.is_none()) {
            Some(place) => place,
            None if self.places.len() == GAMES_MAX => return None,
            None => {
                self.places.push(Place { turn: 0, taken: None });
                self.places.len() - 1
            }
        };
        let Place { turn, taken } = &mut self.places[place];
        *turn = turn.wrapping_add(1);
        *taken = Some(Taken::default());
        Some(Game(place as u8))
    }

    /// A game process has hung up.
    pub fn disconnect(&mut self, game: Game, act: Act<'_>) {
        if self.linger_on(game, act) {
            return;
        }
        self.vacate(game, act);
        self.introduce_all(act);
    }

    /// A link is gone, and its gateway hears so.
    fn vacate(&mut self, game: Game, act: Act<'_>) {
        self.end_ends(game, act);
        let taken = self.places[usize::from(game.0)].taken.take();
        self.uncount(taken.as_ref());
        self.leave_homes(game, act);
        if let Some(link) = taken.and_then(|taken| taken.link) {
            act(Action::End(link));
        }
    }

    /// The lane is up; the gateway's number for it.
    pub fn handle_lane(&mut self, lane: u8, act: Act<'_>) {
        self.lane = Some(lane);
        self.introduce_all(act);
    }

    /// The lane is down, and with it every session, but for those that another gateway may go on
    /// with.
    pub fn handle_lane_lost(&mut self, act: Act<'_>) {
        self.lane = None;
        self.lose_held(act);
        for place in 0..self.places.len() {
            self.end_refused(Game(place as u8), act);
            let taken = self.places[place].taken.as_ref();
            if taken.is_some_and(|taken| taken.is_gone || taken.is_stuck()) {
                self.end_ends(Game(place as u8), act);
                self.leave_homes(Game(place as u8), act);
            } else if self.keep_home(Game(place as u8), act) {
                continue;
            }
            if let Some(taken) = self.places[place].taken.take_if(|taken| taken.link.is_some()) {
                self.uncount(Some(&taken));
                self.tell_heard((Game(place as u8), None), act);
                act(Action::HangUp(Game(place as u8)));
            }
        }
    }

    /// A bundle from a game process.
    pub fn handle_bundle(&mut self, game: Game, bundle: &[u8], act: Act<'_>) {
        for record in ToGateway::read(bundle) {
            if self.places[usize::from(game.0)].taken.is_none() {
                // It was hung up on; the rest is not looked at.
                return;
            }
            match record {
                Ok(record) => self.handle_from_game(game, record, act),
                Err(error) => {
                    let goodbye =
                        Goodbye { reason: GoodbyeReason::RecordInvalid, error: Some(error) };
                    return self.refuse(game, goodbye, act);
                }
            }
        }
    }

    /// A record from the gateway, for a link.
    pub fn handle_record(
        &mut self,
        link: u16,
        frame: Frame<'_>,
        act: Act<'_>,
    ) -> Result<(), Broken> {
        let record = ToGame::decode(frame).map_err(|_| Broken)?;
        let Some(game) = self.game_of(link) else {
            self.dropped.link_gone += 1;
            return Ok(());
        };
        match record {
            ToGame::Welcome(welcome) => self.handle_welcome(game, welcome),
            ToGame::Goodbye(goodbye) => {
                self.refuse(game, goodbye, act);
                Ok(())
            }
            ToGame::Unknown(_) if self.handle_for_arbiter((game, link), frame, act)? => Ok(()),
            ToGame::Pong { .. }
            | ToGame::Draining { .. }
            | ToGame::Undrained
            | ToGame::TakenOver { .. }
            | ToGame::Unknown(_) => {
                if let ToGame::TakenOver { .. } = record {
                    self.forget_told_room(game);
                }
                act(Action::Deliver(game, frame));
                Ok(())
            }
            ToGame::Players { count, grace_ms, .. } => {
                self.handle_players(game, count, grace_ms);
                Ok(())
            }
            record if self.handle_of_cluster(link, (&record, frame), act)? => Ok(()),
            record => self.deliver((game, link), (&record, frame), act),
        }
    }

    /// The gateway has ended a link.
    pub fn handle_end(&mut self, link: u16, act: Act<'_>) {
        if let Some(game) = self.game_of(link) {
            let taken = self.places[usize::from(game.0)].taken.take();
            self.uncount(taken.as_ref());
            self.leave_homes(game, act);
            act(Action::HangUp(game));
            self.introduce_all(act);
        }
    }

    /// Who has this number on the trunk.
    #[inline]
    fn game_of(&self, link: u16) -> Option<Game> {
        let [at, _] = link.to_le_bytes();
        let taken = self.places.get(usize::from(at))?.taken.as_ref()?;
        (taken.link == Some(link)).then_some(Game(at))
    }

    /// Lets those in who have waited for the lane, or for the end of another's link.
    fn introduce_all(&mut self, act: Act<'_>) {
        for place in 0..self.places.len() {
            self.introduce(Game(place as u8), act);
        }
    }

    /// Whether a process of the same name has gone whose link stays: a gateway knows one by a name.
    /// Then it does not stay for long.
    fn is_preceded(&mut self, game: Game) -> bool {
        let name = self.name_at(game.place());
        let is_before = |place: &usize| self.is_gone(*place) && self.name_at(*place) == name;
        let before: Vec<_> = (0..self.places.len()).filter(is_before).collect();
        for place in &before {
            self.ends.hurry(Game::at(*place));
        }
        !before.is_empty()
    }

    /// Lets a game process in whose hello has come, if the lane is up and no other one is in its
    /// place.
    fn introduce(&mut self, game: Game, act: Act<'_>) {
        let taken = self.places[game.place()].taken.as_ref();
        let waits = taken.is_some_and(|it| it.hello.is_some() && it.link.is_none());
        if !waits || self.lane.is_none() || self.is_preceded(game) {
            return;
        }
        let Place { turn, taken } = &mut self.places[game.place()];
        let Some(Taken { hello: Some(said), link, told_open, told_crowded, version, .. }) = taken
        else {
            return;
        };
        let number = u16::from_le_bytes([game.0, *turn]);
        (*link, *told_open, *told_crowded) = (Some(number), Some(true), Some(false));
        // A gateway before may have been of an earlier release.
        said.version = *version;
        self.ends.is_room_told = false;
        let Said { name, pid, version_min, version } = said;
        let hello = Hello {
            version_min: *version_min,
            version_max: *version as u8,
            pid: *pid,
            name: name.as_str(),
        };
        let frame = write(&mut self.scratch, |writer| writer.hello(&hello));
        act(Action::Tell(number, frame.expect("a hello that was read can be written")));
        self.tell_arbitrates(number, act);
        self.tell_intake(game, act);
    }

    /// Tells the gateway whether nobody new is to be sent to a link, unless it knows.
    fn tell_intake(&mut self, game: Game, act: Act<'_>) {
        let Self { places, names, is_draining, scratch, .. } = self;
        let Some(taken) = &mut places[game.place()].taken else { return };
        let Taken { hello: Some(said), link: Some(link), has_closed, told_open, .. } = taken else {
            return;
        };
        let is_open = !*is_draining && !*has_closed && names.contains(&said.name);
        if told_open.replace(is_open) != Some(is_open) {
            let frame = write(scratch, |writer| writer.intake(is_open));
            act(Action::Tell(*link, frame.expect("it is short")));
        }
    }

    fn handle_from_game(&mut self, game: Game, record: ToGateway<'_>, act: Act<'_>) {
        let taken = self.places[usize::from(game.0)].taken.as_ref();
        let is_welcome = taken.is_some_and(|taken| taken.hello.is_some());
        let link = taken.and_then(|taken| taken.link);
        match record {
            ToGateway::Hello(hello) if !is_welcome => self.handle_hello(game, &hello, act),
            // What is passed over is passed over once it is known whose it is.
            ToGateway::Unknown(_) if is_welcome => {}
            _ if !is_welcome || matches!(record, ToGateway::Hello(_)) => {
                self.refuse(game, because(GoodbyeReason::HelloExpected), act);
            }
            ToGateway::Intake { is_open } => {
                let taken = self.places[game.place()].taken.as_mut().expect("it has spoken");
                taken.has_closed = !is_open;
                self.tell_intake(game, act);
            }
            ToGateway::Confirm { session } if self.tell_heard((game, Some(session)), act) => {}
            record if self.is_of_other(game, &record) => {
                self.dropped.session_unknown += payloads(&record);
            }
            record if self.handle_for_end(game, &record, act) => {}
            record if self.handle_from_home(game, &record, act) => {}
            record => match (link.zip(self.lane), &record) {
                (Some((link, lane)), _) => self.pass_on((game, link), lane, record, act),
                (None, ToGateway::Ping { token }) => {
                    let frame = write(&mut self.scratch, |writer| writer.pong(*token));
                    act(Action::Deliver(game, frame.expect("a pong is short")));
                }
                (None, _) => self.dropped.lane_down += payloads(&record),
            },
        }
    }

    fn handle_hello(&mut self, game: Game, hello: &Hello<'_>, act: Act<'_>) {
        let Some(version) = hello.common_version() else {
            return self.refuse(game, because(GoodbyeReason::VersionUnsupported), act);
        };
        if !self.names.iter().any(|name| name == hello.name) {
            return self.refuse(game, because(GoodbyeReason::NameUnknown), act);
        }
        let Hello { pid, version_min, name, .. } = *hello;
        let said = Said { name: name.to_owned(), pid, version_min, version };
        let taken = self.places[usize::from(game.0)].taken.as_mut().expect("it has spoken");
        (taken.hello, taken.version) = (Some(said), version);
        let (worker, workers) = (self.worker as u16, self.workers as u16);
        let welcome = Welcome { version, worker, workers, incarnation: self.incarnation };
        let frame = write(&mut self.scratch, |writer| writer.welcome(&welcome));
        act(Action::Deliver(game, frame.expect("a welcome is short")));
        self.introduce(game, act);
    }

    /// What a game process says once it is welcome.
    #[inline]
    fn pass_on(
        &mut self,
        (game, link): (Game, u16),
        lane: u8,
        record: ToGateway<'_>,
        act: Act<'_>,
    ) {
        match record {
            ToGateway::Answer { session, offer, answer } => {
                self.note_answer(game, session, offer, answer);
            }
            ToGateway::CloseAfter(CloseAfter { session, .. }) => {
                let taken = self.places[game.place()].taken.as_mut();
                let delivered = taken.and_then(|taken| taken.delivered.get_mut(&session));
                if let Some(is_closed) = delivered {
                    *is_closed = true;
                }
            }
            _ => {}
        }
        let Self { worker, places, scratch, sessions, dropped, .. } = self;
        let taken = places[game.place()].taken.as_ref();
        let said = taken.and_then(|taken| taken.hello.as_ref());
        let knows_farewells = said.is_some_and(|said| said.version >= VERSION_FAREWELL);
        let knows_moves = said.is_some_and(|said| said.version >= VERSION_MOVES);
        let there = |session: SessionId| {
            let is_ours = session.worker() == *worker;
            is_ours.then(|| renumbered(session, lane.into())).flatten()
        };
        let frame = match record {
            ToGateway::Multicast { sessions: named, bytes } => {
                sessions.clear();
                sessions.extend(named.iter().filter_map(there));
                dropped.session_unknown += (named.len() - sessions.len()) as u64;
                if sessions.is_empty() {
                    return;
                }
                write(scratch, |writer| writer.multicast(sessions, bytes))
            }
            ToGateway::CloseAfter(CloseAfter { session, reason, .. }) if !knows_farewells => {
                there(session)
                    .and_then(|session| write(scratch, |writer| writer.close(session, reason)))
            }
            ToGateway::Move(Move { session, ticket, .. }) if !knows_moves => {
                let why = MoveRefusal::Version;
                let refused = write(scratch, |writer| writer.move_refused(session, ticket, why));
                return act(Action::Deliver(game, refused.expect("it is short")));
            }
            ToGateway::Answer { .. } | ToGateway::Confirm { .. } if !knows_moves => return,
            ToGateway::Answer { session, offer, answer } => there(session)
                .and_then(|session| write(scratch, |writer| writer.answer(session, offer, answer))),
            ToGateway::Confirm { session } => {
                there(session).and_then(|session| write(scratch, |writer| writer.confirm(session)))
            }
            ToGateway::Ping { token } => write(scratch, |writer| writer.ping(token)),
            // They are dealt with before.
            ToGateway::Hello(_) | ToGateway::Intake { .. } | ToGateway::Unknown(_) => return,
            _ => session_for(&record)
                .and_then(there)
                .and_then(|session| write(scratch, |writer| rewritten(writer, &record, session))),
        };
        match frame {
            Some(frame) if frame.may_be_lost() => act(Action::Push(link, frame)),
            Some(frame) => act(Action::Tell(link, frame)),
            None => dropped.session_unknown += payloads(&record),
        }
    }

    /// A game process answers an offer. Whom it does not want needs no slot.
    #[cold]
    fn note_answer(&mut self, game: Game, session: SessionId, offer: u64, answer: Answer) {
        let Self { places, rolls, .. } = self;
        let Some(taken) = places[game.place()].taken.as_mut() else { return };
        if answer != Answer::Yes && taken.offered.get(&session) == Some(&offer) {
            taken.leave(session, rolls.as_ref());
        }
    }

    /// What the gateway says about sessions.
    #[inline]
    fn deliver(
        &mut self,
        (game, link): (Game, u16),
        (record, said): (&ToGame<'_>, Frame<'_>),
        act: Act<'_>,
    ) -> Result<(), Broken> {
        let Self { worker, lane, scratch, places, rolls, .. } = self;
        let rolls = rolls.as_ref();
        let taken = places[game.place()].taken.as_mut().expect("it has a number on the trunk");
        // Such a gateway does not say who gets messages, and whoever does not is sent none.
        let may_deliver = taken.hello.as_ref().is_some_and(|it| it.version == VERSION_MESSAGES);
        let here = |session: SessionId| {
            let is_theirs = Some(session.worker()) == lane.map(usize::from);
            is_theirs.then(|| renumbered(session, *worker)).flatten().ok_or(Broken)
        };
        let frame = match *record {
            ToGame::Payload { session, .. } | ToGame::Message(MessagePart { session, .. }) => {
                let session = here(session)?;
                if taken.is_refused(session, rolls) {
                    return Ok(());
                }
                taken.hear(session, rolls);
                if let ToGame::Message(MessagePart { channel, is_last, .. }) = record
                    && channel.is_reliable()
                {
                    taken.half_said = (!is_last).then_some(session);
                }
                renamed(scratch, said, session)
            }
            ToGame::Opened(opened) => {
                let there = opened.session;
                let delivers = opened.delivers || may_deliver;
                let opened = Opened { session: here(there)?, delivers, ..opened };
                if !taken.enter(opened.session, rolls) {
                    let frame = write(scratch, |writer| writer.close(there, CloseReason::Refused));
                    act(Action::Tell(link, frame.ok_or(Broken)?));
                    return Ok(());
                }
                // The token of who has come from another process has been counted there.
                if opened.ticket.is_none()
                    && let Some(join) = destination::join(opened.client_id, opened.user_data)
                {
                    taken.silent.insert(opened.session, join);
                }
                taken.offered.remove(&opened.session);
                if opened.delivers {
                    taken.delivered.insert(opened.session, false);
                }
                write(scratch, |writer| writer.opened(&opened))
            }
            ToGame::OpenedPlain(opened) => {
                let there = opened.session;
                let mut opened = OpenedPlain { session: here(there)?, ..opened };
                if opened.slot.is_some() && !taken.enter(opened.session, rolls) {
                    let frame = write(scratch, |writer| writer.close(there, CloseReason::Refused));
                    act(Action::Tell(link, frame.ok_or(Broken)?));
                    // The game process may know it as one without a slot, which it stays.
                    taken.refused.remove(&opened.session);
                    opened.slot = None;
                }
                taken.note_slot(opened.session, opened.slot.is_some());
                write(scratch, |writer| writer.opened_plain(&opened))
            }
            ToGame::Offered(offered) => {
                let there = offered.session;
                let offered = Offered { session: here(there)?, ..offered };
                let (session, offer) = (offered.session, offered.offer);
                // One who is there already is none of a gateway that works. The end of an offer may
                // be known to nobody: a release was there that knows of none.
                if taken.players.contains(&session) && !taken.offered.contains_key(&session) {
                    return Err(Broken);
                }
                if !taken.enter(session, rolls) {
                    taken.refused.remove(&session);
                    let full = |writer: &mut Writer<'_>| writer.answer(there, offer, Answer::Full);
                    act(Action::Tell(link, write(scratch, full).ok_or(Broken)?));
                    return Ok(());
                }
                taken.offered.insert(session, offer);
                write(scratch, |writer| writer.offered(&offered))
            }
            ToGame::OfferOver { session, offer, .. } => {
                let session = here(session)?;
                if taken.offered.get(&session) == Some(&offer) {
                    taken.leave(session, rolls);
                }
                renamed(scratch, said, session)
            }
            ToGame::Moved { session, .. } | ToGame::Closed { session, .. } => {
                let session = here(session)?;
                if matches!(record, ToGame::Moved { .. }) {
                    // Its token was for here, though the other process hears it first.
                    taken.hear(session, rolls);
                }
                if taken.leave(session, rolls) {
                    return Ok(());
                }
                renamed(scratch, said, session)
            }
            ToGame::MoveRefused { session, .. }
            | ToGame::Lingered { session, .. }
            | ToGame::Report { session, .. }
            | ToGame::Room { session, .. }
            | ToGame::Quality { session, .. } => renamed(scratch, said, here(session)?),
            _ => return Err(Broken),
        };
        act(Action::Deliver(game, frame.ok_or(Broken)?));
        Ok(())
    }

    /// How many players the gateway has for a game process, over all of its workers.
    fn handle_players(&self, game: Game, count: u32, grace_ms: u32) {
        let said = self.places[game.place()].taken.as_ref().and_then(|taken| taken.hello.as_ref());
        if let (Some(said), Some(Counted { rolls, gateway })) = (said, &self.rolls) {
            rolls.hear(&said.name, gateway, count, grace_ms);
        }
    }

    /// A link is gone. Its players may wait at the gateway.
    fn uncount(&self, taken: Option<&Taken>) {
        let said = taken.and_then(|taken| Some((taken.hello.as_ref()?, taken.players.len())));
        if let (Some((said, players)), Some(Counted { rolls, gateway })) = (said, &self.rolls) {
            rolls.lose(&said.name, gateway, players as u32);
        }
    }

    /// The gateway chooses among the versions that it was offered. What the game process may say
    /// all the same because its own link is newer is said to the gateway in older words.
    fn handle_welcome(&mut self, game: Game, welcome: Welcome) -> Result<(), Broken> {
        let taken = self.places[usize::from(game.0)].taken.as_mut().ok_or(Broken)?;
        let said = taken.hello.as_mut().ok_or(Broken)?;
        taken.is_let_in = (said.version_min..=said.version).contains(&welcome.version);
        if !taken.is_let_in {
            return Err(Broken);
        }
        said.version = welcome.version;
        Ok(())
    }

    /// Ends a link with a reason.
    fn refuse(&mut self, game: Game, goodbye: Goodbye, act: Act<'_>) {
        let frame = write(&mut self.scratch, |writer| writer.goodbye(goodbye));
        act(Action::Deliver(game, frame.expect("a goodbye is short")));
        self.vacate(game, act);
        act(Action::HangUp(game));
        self.introduce_all(act);
    }
}

impl Taken {
    /// A player comes. Whether there is a slot for it.
    fn enter(&mut self, session: SessionId, counted: Option<&Counted>) -> bool {
        if self.players.contains(&session) {
            return true;
        }
        if let (Some(Counted { rolls, gateway }), Some(said)) = (counted, &self.hello)
            && !rolls.open(&said.name, gateway)
        {
            self.refused.insert(session);
            return false;
        }
        self.refused.remove(&session);
        self.players.insert(session);
        true
    }

    /// A player is gone. Whether it was one whom the game process has never heard of.
    fn leave(&mut self, session: SessionId, counted: Option<&Counted>) -> bool {
        if self.players.remove(&session)
            && let (Some(Counted { rolls, gateway }), Some(said)) = (counted, &self.hello)
        {
            rolls.close(&said.name, gateway);
        }
        self.half_said.take_if(|half_said| *half_said == session);
        self.silent.remove(&session);
        self.delivered.remove(&session);
        self.without_slot.remove(&session);
        self.offered.remove(&session);
        self.refused.remove(&session)
    }

    /// Whether the game process was told of a player, or would have been if there were a slot.
    fn knows(&self, session: SessionId) -> bool {
        let Self { players, without_slot, refused, .. } = self;
        [players, without_slot, refused].iter().any(|it| it.contains(&session))
    }

    /// Whether its library waits for the rest of a message though the session is over, as those of
    /// earlier releases do: it would take the next one for a break of the format.
    fn is_stuck(&self) -> bool {
        self.half_said.is_some() && self.version < VERSION_MOVES
    }

    /// The game process hears of a plain source, which has a slot or none.
    fn note_slot(&mut self, session: SessionId, has_slot: bool) {
        if has_slot {
            self.without_slot.remove(&session);
        } else {
            self.without_slot.insert(session);
        }
    }

    /// A player says something. The first time, its gateway has spent the token.
    #[inline]
    fn hear(&mut self, session: SessionId, counted: Option<&Counted>) {
        if !self.silent.is_empty() {
            self.hear_first(session, counted);
        }
    }

    fn hear_first(&mut self, session: SessionId, counted: Option<&Counted>) {
        let join = self.silent.remove(&session);
        if let (Some(join), Some(Counted { rolls, .. }), Some(said)) = (join, counted, &self.hello)
        {
            rolls.join(&said.name, join);
        }
    }

    /// Whether a player has no slot, so that what it says goes no further.
    #[inline]
    fn is_refused(&self, session: SessionId, counted: Option<&Counted>) -> bool {
        let is_refused = !self.refused.is_empty() && self.refused.contains(&session);
        if let (true, Some(counted)) = (is_refused, counted) {
            counted.rolls.drop_payload();
        }
        is_refused
    }
}

/// For writers of any lifetime, which the method itself is not.
fn undrained(writer: &mut Writer<'_>) -> bool {
    writer.undrained()
}

const fn because(reason: GoodbyeReason) -> Goodbye {
    Goodbye { reason, error: None }
}

/// The same session, with the worker's number on the other side.
#[inline]
fn renumbered(session: SessionId, worker: usize) -> Option<SessionId> {
    let serial = session.as_u64() & (u64::MAX >> 8);
    SessionId::from_u64((worker as u64) << 56 | serial)
}

fn payloads(record: &ToGateway<'_>) -> u64 {
    match record {
        ToGateway::Payload { .. } => 1,
        ToGateway::Message(part) => part.is_last.into(),
        ToGateway::Multicast { sessions, .. } => sessions.len() as u64,
        _ => 0,
    }
}

/// One record, as bytes. `None` where no reader would take it.
#[inline]
fn write(scratch: &mut [u8], record: impl FnOnce(&mut Writer<'_>) -> bool) -> Option<Frame<'_>> {
    let mut writer = Writer::new(scratch);
    let len = record(&mut writer).then(|| writer.len())?;
    Frames::new(&scratch[..len]).next()?.ok()
}

//! Sessions of clusters at one agent: which gateway has each, and which game process knows it. All
//! local workers of the agent share it, because a session goes from one gateway's worker to
//! another's when its gateway dies; its game process goes on with it where it was announced first.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use ringgate_cluster::{
    Answer, Arbiter, Asked, Player, Question, Refused, Reply, Seen, SessionId as ClusterId,
    Standing as Held, Tenure, Term, Wake,
};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::sync::lock;
use ringgate_link::bundle::{
    ArbiterReply, ClusterClaim, Clustered, Frame, Frames, SessionId, Standing, WINDOW_BYTES_MAX,
    Writer as BundleWriter,
};

use super::games::Game;

/// Shared by the local workers of an agent.
#[derive(Debug)]
pub struct Arbitration(Mutex<State>);

#[derive(Debug)]
struct State {
    arbiter: Arbiter,
    /// Those that have not ended.
    known: HashMap<ClusterId, Known>,
    /// How often a gateway has taken one over.
    taken_over: u64,
    parking: Parking,
    /// Players who were moved away from game processes that have not confirmed it, the first one
    /// first: where those know them, and where the gateway is that waits for it.
    left: Vec<(Home, Gateway)>,
    /// A moment by both clocks, since which the one that tokens name was not set.
    clocks: Option<(u64, u64)>,
}

/// All that is parked.
#[derive(Debug, Default)]
struct Parking {
    bytes: usize,
    /// Payloads that were parked in vain.
    lost: u64,
}

/// A session.
#[derive(Clone, Debug)]
struct Known {
    /// The backend where it plays: links of others have nothing to do with it.
    backend: Arc<str>,
    /// Where its game process knows it. None where that is gone.
    home: Option<Home>,
    /// Since when that is gone, as far as somebody has looked.
    homeless_s: Option<u64>,
    /// The link of the gateway that has it, while that is connected.
    seat: Option<Seat>,
    timeout_ms: u32,
    /// The link of the gateway that gives it away, until that has said its last word: what the
    /// player gets of that one comes before what it gets of the next.
    giver: Option<Seat>,
    /// The ticket of the move that its game process has asked that gateway for.
    asked: Option<u64>,
    /// What the game process has said while that was so, or the gateway that has the session had
    /// not announced it.
    parked: Vec<Vec<u8>>,
}

/// Where a game process knows a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The local worker.
    pub worker: usize,
    /// The game process's place there.
    pub game: Game,
    /// How often that place was given away: another link there is another process.
    pub turn: u8,
    /// What the process calls the session.
    pub session: SessionId,
}

/// A session's gateway: the local worker, the link to it, and what the session is called there.
pub type Gateway = (usize, u16, SessionId);

/// Where a gateway has a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The local worker.
    pub worker: usize,
    /// The link to the gateway.
    pub link: u16,
    /// What the session is called there, by the local worker's number; none before the gateway has
    /// announced it.
    pub session: Option<SessionId>,
}

/// What a gateway hears, as a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported(Vec<u8>);

/// Another gateway has had a session, and is to hear that it has it no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// Where.
    pub seat: Seat,
    /// What.
    pub report: Reported,
    /// The move that it was asked for is none.
    pub unmoved: Option<Unmoved>,
}

/// The game process that has asked for a move, and the ticket of that.
pub type Unmoved = (Home, u64);

/// What becomes of an opening that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A game process is told of it.
    Passed,
    /// The game process knows the session, and has said this since the gateway has it.
    Known(Vec<Vec<u8>>),
    /// It is not the gateway's.
    Refused(Reported),
    /// Its player has another session.
    Second(Reported),
}

impl Default for Arbitration {
    fn default() -> Self {
        Self(Mutex::new(State::new(Arbiter::new(SESSIONS_MAX), HashMap::new(), 0)))
    }
}

impl Arbitration {
    /// A gateway is about to announce a session on a link of this backend, and may have said whose
    /// it is. `it` has the session as the local worker numbers it. Another gateway that has it no
    /// more is to hear so.
    pub fn announce(
        &self,
        (it, player): (&Clustered, Option<Player>),
        backend: &str,
        link: u16,
        here: Home,
    ) -> (Opening, Option<Fenced>) {
        let id = ClusterId(it.id);
        let State { arbiter, known, parking, taken_over, .. } = &mut *lock(&self.0);
        let refused = || (Opening::Refused(ended(it.id, it.tenure)), None);
        let Some(tenure) = tenure(it.tenure) else { return refused() };
        if known.get(&id).is_some_and(|known| *known.backend != *backend) {
            return refused();
        }
        let asked = if arbiter.standing(id).is_some() {
            Asked::Claim { over: tenure }
        } else {
            Asked::Open { token_until_s: it.token_until_s }
        };
        let mut verdict = arbiter.announce(&question(id, tenure, asked), player);
        if matches!(verdict.answer.reply, Reply::Second { .. }) {
            return (Opening::Second(Reported::of(&verdict.answer)), None);
        }
        if matches!((asked, &verdict.answer.reply), (Asked::Open { .. }, Reply::Ended)) {
            // An agent that has begun anew knows of no session, and one whose token has expired may
            // have ended: it goes on without an arbiter, and ends with its gateway.
            verdict.answer.reply = Reply::Full;
        }
        if !matches!(verdict.answer.reply, Reply::Granted { .. }) {
            return (Opening::Refused(Reported::of(&verdict.answer)), None);
        }
        let seat = Some(Seat { worker: here.worker, link, session: Some(it.session) });
        let timeout_ms = it.timeout_ms;
        if verdict.seen == Seen::Opened {
            let (backend, home) = (backend.into(), Some(here));
            let (homeless_s, giver, asked, parked) = (None, None, None, Vec::new());
            let begun = Known { backend, home, homeless_s, seat, timeout_ms, giver, asked, parked };
            known.insert(id, begun);
            return (Opening::Passed, None);
        }
        let Some(known) = known.get_mut(&id) else { return refused() };
        let before = std::mem::replace(&mut known.seat, seat);
        known.timeout_ms = timeout_ms;
        let mut unmoved = None;
        if verdict.fenced.is_some() {
            *taken_over += 1;
            (known.giver, unmoved) = (None, known.take_move());
        }
        let fenced = Fenced::of(before, verdict.fenced.as_ref(), unmoved);
        let waits = known.take_parked(parking);
        let opening = match known.home {
            Some(_) => Opening::Known(waits),
            None => {
                (known.home, known.homeless_s) = (Some(here), None);
                Opening::Passed
            }
        };
        (opening, fenced)
    }

    /// What a gateway hears that has a session for a player, if the player has another one.
    pub fn second(&self, player: &Player, id: [u8; 16], tenure: Tenure) -> Option<Reported> {
        let session = ClusterId(id);
        let reply = lock(&self.0).arbiter.second(player, session)?;
        Some(Reported::of(&Answer { session, tenure, wake: Wake(0), reply }))
    }

    /// A gateway wants a session that another one had, by a link of this backend.
    pub fn claim(
        &self,
        it: &ClusterClaim,
        backend: &str,
        (worker, link): (usize, u16),
    ) -> (Reported, Option<Fenced>) {
        let id = ClusterId(it.id);
        let State { arbiter, known, taken_over, .. } = &mut *lock(&self.0);
        let ended = || (ended(it.id, it.tenure), None);
        let Some(known) = known.get_mut(&id).filter(|known| *known.backend == *backend) else {
            return ended();
        };
        let (Some(tenure), Some(over)) = (tenure(it.tenure), tenure(it.over)) else {
            return ended();
        };
        let asked = if it.is_offered { Asked::Take { over } } else { Asked::Claim { over } };
        let verdict = arbiter.answer(&question(id, tenure, asked));
        let report = Reported::of(&verdict.answer);
        if !matches!(verdict.answer.reply, Reply::Granted { .. }) {
            return (report, None);
        }
        // Asked again, it is the gateway's already.
        let is_new = verdict.fenced.is_some();
        *taken_over += u64::from(is_new);
        let seat = Seat { worker, link, session: None };
        let before = if is_new { known.seat.replace(seat) } else { None };
        if is_new {
            known.giver = before.filter(|_| it.is_offered);
        }
        known.seat.get_or_insert(seat);
        let unmoved = if is_new { known.take_move() } else { None };
        let fenced = Fenced::of(before, verdict.fenced.as_ref(), unmoved);
        (report, fenced)
    }

    /// A packet of a player has come by the gateway that has this tenure, with a number where its
    /// protocol has such. Where its game process is, if it is to have it.
    #[inline]
    pub fn hand_over(
        &self,
        id: [u8; 16],
        tenure: Tenure,
        number: Option<u64>,
    ) -> Result<Option<Home>, Refused> {
        let id = ClusterId(id);
        let State { arbiter, known, .. } = &mut *lock(&self.0);
        match number {
            Some(number) => arbiter.hand_over(id, tenure, number)?,
            None => arbiter.hand_over_unnumbered(id, tenure)?,
        }
        Ok(known.get(&id).and_then(|known| known.home))
    }

    /// What a gateway hears of those of these sessions of a backend that it does not have any more.
    pub fn not_held(
        &self,
        of: impl Iterator<Item = ([u8; 16], Tenure)>,
        backend: &str,
    ) -> Vec<Reported> {
        let State { arbiter, known, .. } = &*lock(&self.0);
        let is_others =
            |id: &[u8; 16]| known.get(&ClusterId(*id)).is_some_and(|it| *it.backend != *backend);
        let lost = of.filter(|(id, _)| !is_others(id)).filter_map(|(id, tenure)| {
            match arbiter.standing(ClusterId(id)).and_then(Held::holder) {
                Some(holder) if holder == tenure => None,
                Some(holder) => Some(Reported::not_held(id, tenure, Refused::Fenced(holder))),
                None => Some(Reported::not_held(id, tenure, Refused::Ended)),
            }
        });
        lost.collect()
    }

    /// Whether packets of a player are handed over that come by a gateway with this tenure.
    pub fn hears(&self, id: [u8; 16], tenure: Tenure) -> bool {
        lock(&self.0).arbiter.hears(ClusterId(id), tenure)
    }

    /// A gateway has ended a session. Where its game process is, if it was the gateway's to end.
    pub fn close(&self, id: [u8; 16], tenure: Tenure) -> Option<Option<Home>> {
        let id = ClusterId(id);
        let state = &mut *lock(&self.0);
        let seen = state.arbiter.answer(&question(id, tenure, Asked::End)).seen;
        (seen == Seen::Ended).then(|| state.forget(id)?.home)
    }

    /// A gateway that has had a session says, by a link of this backend, that the session is over
    /// for good. What it hears; and where the game process is and the gateway that has had the
    /// session so far, if it was not over yet.
    pub fn bury(
        &self,
        (id, by): ([u8; 16], u32),
        backend: &str,
    ) -> (Reported, Option<Home>, Option<Fenced>) {
        let report = ended(id, by);
        let id = ClusterId(id);
        let state = &mut *lock(&self.0);
        let is_its = state.known.get(&id).is_some_and(|known| *known.backend == *backend);
        let told = tenure(by).filter(|_| is_its).and_then(|by| state.arbiter.bury(id, by));
        let (Some(told), Some(known)) = (told, state.known.get(&id)) else {
            return (report, None, None);
        };
        let (home, seat) = (known.home, known.seat);
        let fenced = Fenced::of(seat, Some(&told), None);
        state.forget(id);
        (report, home, fenced)
    }

    /// Nothing more goes to a session's player by the gateway that has given it away. What has
    /// waited for that, and where it goes.
    pub fn given(&self, id: [u8; 16], tenure: Tenure) -> Option<(Seat, Vec<Vec<u8>>)> {
        let id = ClusterId(id);
        let State { arbiter, known, parking, .. } = &mut *lock(&self.0);
        let holder = arbiter.standing(id)?.holder();
        if holder == Some(tenure) || !arbiter.hears(id, tenure) {
            return None;
        }
        let known = known.get_mut(&id)?;
        known.giver = None;
        Some((known.seat?, known.take_parked(parking)))
    }

    /// A game process is told that it has lost a player whom a gateway elsewhere has moved.
    pub fn note_left(&self, home: Home, by: Gateway) {
        let State { left, .. } = &mut *lock(&self.0);
        if left.len() == LEFT_MAX {
            left.remove(0);
        }
        left.push((home, by));
    }

    /// Game processes have heard that they have lost players. Who waits for that.
    pub fn take_left(&self, has_heard: impl Fn(&Home) -> bool) -> Vec<Gateway> {
        let State { left, .. } = &mut *lock(&self.0);
        left.extract_if(.., |it| has_heard(&it.0)).map(|(_, by)| by).collect()
    }

    /// Where the game process of a session is, if the gateway has it.
    pub fn home(&self, id: [u8; 16], tenure: Tenure) -> Option<Home> {
        let State { arbiter, known, .. } = &*lock(&self.0);
        let holder = arbiter.standing(ClusterId(id))?.holder();
        known.get(&ClusterId(id)).filter(|_| holder == Some(tenure))?.home
    }

    /// Whether a session has not ended, and is known there.
    pub fn is_home(&self, id: [u8; 16], (worker, session): (usize, SessionId)) -> bool {
        let state = lock(&self.0);
        let home = state.known.get(&ClusterId(id)).and_then(|known| known.home);
        home.is_some_and(|it| (it.worker, it.session) == (worker, session))
    }

    /// Whether a gateway of these local workers has a session.
    pub fn has_seats(&self, workers: &[usize]) -> bool {
        let is_there = |seat: Seat| workers.contains(&seat.worker);
        lock(&self.0).known.values().any(|known| known.seat.is_some_and(is_there))
    }

    /// Whether a session is known at one of these local workers that no gateway of theirs has:
    /// another one does, or may take it.
    pub fn is_home_of_others(&self, workers: &[usize]) -> bool {
        let is_there = |worker: usize| workers.contains(&worker);
        lock(&self.0).known.values().any(|known| {
            known.home.is_some_and(|home| is_there(home.worker))
                && known.seat.is_none_or(|seat| !is_there(seat.worker))
        })
    }

    /// The game process ends a session that its gateway has not announced yet, or that none has; or
    /// what was said in it is known to nobody any more. What the gateway hears, if one is
    /// connected.
    pub fn end(&self, id: [u8; 16]) -> Option<Fenced> {
        let (own, id) = (id, ClusterId(id));
        let state = &mut *lock(&self.0);
        let holder = state.arbiter.standing(id).and_then(Held::holder);
        state.arbiter.end_unheard(id);
        let seat = state.forget(id)?.seat;
        let report = holder.map(|tenure| ended(own, tenure.number()));
        seat.zip(report).map(|(seat, report)| Fenced { seat, report, unmoved: None })
    }

    /// Keeps what a game process says about a session for the gateway that has it and is about to
    /// announce it. False where there is none, or no room.
    pub fn park(&self, id: [u8; 16], record: &[u8]) -> bool {
        let State { known, parking, .. } = &mut *lock(&self.0);
        let Some(known) = known.get_mut(&ClusterId(id)) else { return false };
        let is_coming = known.giver.is_some() || known.seat.is_some_and(|it| it.session.is_none());
        let fits =
            known.parked.len() < PARKED_MAX && parking.bytes + record.len() <= PARKED_BYTES_MAX;
        if is_coming && fits {
            parking.bytes += record.len();
            known.parked.push(record.to_vec());
        }
        is_coming && fits
    }

    /// Where the gateway has a session, if one is connected that does.
    ///
    /// With what the game process has said to it before, and that is not passed on yet.
    pub fn seat(&self, id: [u8; 16]) -> Option<(Seat, Vec<Vec<u8>>)> {
        let State { known, parking, .. } = &mut *lock(&self.0);
        let known = known.get_mut(&ClusterId(id))?;
        let seat = known.seat.filter(|_| known.giver.is_none())?;
        Some((seat, known.take_parked(parking)))
    }

    /// The link is gone by which a game process knows a session. Returns where its gateway is.
    pub fn leave_home(&self, id: [u8; 16]) -> Option<Seat> {
        let mut state = lock(&self.0);
        let known = state.known.get_mut(&ClusterId(id))?;
        known.home = None;
        known.seat
    }

    /// A game process asks for a move. False where no gateway has the session that could answer.
    pub fn ask_move(&self, id: [u8; 16], ticket: u64) -> bool {
        let mut state = lock(&self.0);
        let known = state.known.get_mut(&ClusterId(id)).filter(|known| known.seat.is_some());
        known.map(|known| known.asked.get_or_insert(ticket)).is_some()
    }

    /// A gateway has refused a move.
    pub fn refuse_move(&self, id: [u8; 16], ticket: u64) {
        if let Some(known) = lock(&self.0).known.get_mut(&ClusterId(id)) {
            known.asked.take_if(|asked| *asked == ticket);
        }
    }

    /// The gateway of a local worker is not connected any more. The moves that it was asked for.
    pub fn lose(&self, worker: usize) -> Vec<Unmoved> {
        lock(&self.0).lose(|it| it == worker)
    }

    /// These are all local workers: what others had is gone with them.
    pub fn keep_workers(&self, all: &[usize]) {
        let state = &mut *lock(&self.0);
        for known in state.known.values_mut() {
            known.home.take_if(|home| !all.contains(&home.worker));
        }
        state.lose(|it| !all.contains(&it));
    }

    /// Links of a local worker by which gateways have sessions that no game process knows: those
    /// are announced again once such a link has ended.
    pub fn links_without_home(&self, worker: usize) -> Vec<u16> {
        let state = lock(&self.0);
        let homeless = state.known.values().filter(|known| known.home.is_none());
        let announced = homeless.filter_map(|known| known.seat.filter(|it| it.session.is_some()));
        let links: BTreeSet<_> =
            announced.filter(|seat| seat.worker == worker).map(|seat| seat.link).collect();
        links.into_iter().collect()
    }

    /// Lets time pass, by the clock that tokens name and by one that nobody sets. Those whose
    /// gateway is gone for too long end: where their game processes are.
    pub fn pass_time(&self, now_s: u64, monotonic_s: u64) -> Vec<Home> {
        let state = &mut *lock(&self.0);
        let State { arbiter, known, clocks, .. } = state;
        // Another process may have had a clock that was ahead.
        let begun = (now_s.max(arbiter.now_s()), monotonic_s);
        let (then_s, since_s) = *clocks.get_or_insert(begun);
        let expected_s = then_s.saturating_add(monotonic_s - since_s);
        let set_s = now_s.wrapping_sub(expected_s).cast_signed();
        if set_s.unsigned_abs() > ROUNDED_S {
            arbiter.set_clock(set_s);
            *clocks = Some((now_s, monotonic_s));
        }
        let grace_s = |id| known.get(&id).map_or(0, |known: &Known| grace_s(known.timeout_ms));
        let mut ended = Vec::new();
        arbiter.pass_time(now_s, grace_s, |id| ended.push(id));
        for (id, known) in known {
            known.giver.take_if(|_| !arbiter.has_giver(*id));
            if known.is_forsaken(monotonic_s) {
                arbiter.end_unheard(*id);
                ended.push(*id);
            }
        }
        ended.into_iter().filter_map(|id| state.forget(id)?.home).collect()
    }

    /// This process stood still for so long: no gateway could come back meanwhile.
    pub fn note_standstill(&self, by_s: u64) {
        lock(&self.0).arbiter.set_clock(by_s.cast_signed());
    }

    /// How many there are, how many of them have no gateway now, and how often another gateway has
    /// taken one.
    pub fn counts(&self) -> [u64; 3] {
        let state = lock(&self.0);
        let alone = state.known.values().filter(|known| known.seat.is_none()).count();
        [state.known.len() as u64, alone as u64, state.taken_over]
    }

    /// Payloads of game processes that waited for a gateway in vain, since they were
    /// [taken](Self::take_lost).
    pub fn lost(&self) -> u64 {
        lock(&self.0).parking.lost
    }

    /// The same; whoever asks counts them from now on.
    pub fn take_lost(&self) -> u64 {
        std::mem::take(&mut lock(&self.0).parking.lost)
    }

    /// Whether there is nothing that a successor has to know.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).arbiter.is_empty()
    }

    /// Writes all of it.
    pub fn write(&self, out: &mut Writer<'_>) {
        // A clock that is set while nobody looks cannot be told from time that passes.
        let State { arbiter, known, taken_over, parking: _, left: _, clocks: _ } = &*lock(&self.0);
        arbiter.write(out);
        taken_over.write(out);
        (known.len() as u32).write(out);
        for (id, known) in known {
            id.write(out);
            known.write(out);
        }
    }

    /// Writes whose sessions are.
    pub fn write_players(&self, out: &mut Writer<'_>) {
        lock(&self.0).arbiter.write_players(out);
    }

    /// What another process knew of that.
    pub fn read_players(&self, from: &mut Reader<'_>) -> Result<(), Broken> {
        lock(&self.0).arbiter.read_players(from)
    }

    /// What another process had.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let arbiter = Arbiter::read(from, SESSIONS_MAX)?;
        let taken_over = Carry::read(from)?;
        let known: HashMap<_, _> = Vec::<(ClusterId, Known)>::read(from)?.into_iter().collect();
        let is_held = |id| matches!(arbiter.standing(id), Some(Held::Held { .. }));
        if !known.keys().all(|id| is_held(*id)) {
            return Err(Broken::Invalid("session"));
        }
        Ok(Self(Mutex::new(State::new(arbiter, known, taken_over))))
    }
}

impl Known {
    /// Whether no game process has known it for as long as any gateway waits for one: the gateway
    /// says nothing of its end then.
    fn is_forsaken(&mut self, now_s: u64) -> bool {
        self.home.is_none() && now_s >= *self.homeless_s.get_or_insert(now_s) + HOMELESS_S
    }

    /// The gateway that was asked for a move does not answer.
    fn take_move(&mut self) -> Option<Unmoved> {
        self.home.zip(self.asked.take())
    }

    /// What waits for the gateway that has the session, if there is nothing to wait for any more.
    fn take_parked(&mut self, parking: &mut Parking) -> Vec<Vec<u8>> {
        if self.giver.is_some() || self.seat.is_none_or(|seat| seat.session.is_none()) {
            return Vec::new();
        }
        let parked = std::mem::take(&mut self.parked);
        parking.bytes -= parked.iter().map(Vec::len).sum::<usize>();
        parked
    }
}

impl Parking {
    /// What was parked goes no further.
    fn lose(&mut self, parked: &mut Vec<Vec<u8>>) {
        for record in parked.drain(..) {
            self.bytes -= record.len();
            self.lost += Frames::new(&record).flatten().map(Frame::payloads).sum::<u64>();
        }
    }
}

impl State {
    fn new(arbiter: Arbiter, known: HashMap<ClusterId, Known>, taken_over: u64) -> Self {
        let (parking, left, clocks) = Default::default();
        Self { arbiter, known, taken_over, parking, left, clocks }
    }

    /// Gateways of local workers are not connected any more.
    fn lose(&mut self, is_lost: impl Fn(usize) -> bool) -> Vec<Unmoved> {
        let mut unmoved = Vec::new();
        let Self { arbiter, known, parking, left, .. } = self;
        left.retain(|(_, (worker, ..))| !is_lost(*worker));
        for (id, known) in known {
            known.giver.take_if(|seat| is_lost(seat.worker));
            if known.seat.take_if(|seat| is_lost(seat.worker)).is_some() {
                arbiter.lose(*id);
                parking.lose(&mut known.parked);
                unmoved.extend(known.take_move());
            }
        }
        unmoved
    }

    /// A session has ended.
    fn forget(&mut self, id: ClusterId) -> Option<Known> {
        let mut known = self.known.remove(&id)?;
        self.parking.lose(&mut known.parked);
        Some(known)
    }
}

impl Fenced {
    fn of(seat: Option<Seat>, told: Option<&Answer>, unmoved: Option<Unmoved>) -> Option<Self> {
        Some(Self { seat: seat?, report: Reported::of(told?), unmoved })
    }
}

impl Reported {
    /// Why a packet of a session was not handed over: its gateway does not have it.
    pub fn not_held(id: [u8; 16], tenure: Tenure, why: Refused) -> Self {
        let reply = match why {
            Refused::Fenced(holder) => Reply::Fenced { holder },
            _ => Reply::Ended,
        };
        Self::of(&Answer { session: ClusterId(id), tenure, wake: Wake(0), reply })
    }

    fn of(answer: &Answer) -> Self {
        let mut window = [0; WINDOW_BYTES_MAX];
        let reply = match &answer.reply {
            Reply::Granted { handed } => {
                let mut out = Writer::new(&mut window);
                handed.write(&mut out);
                let len = out.len();
                ArbiterReply::Granted(&window[..len])
            }
            Reply::Fenced { holder } => ArbiterReply::Fenced { holder: holder.number() },
            Reply::Ended => ArbiterReply::Ended,
            Reply::Full => ArbiterReply::Full,
            Reply::Second { first, holder } => {
                ArbiterReply::Second { first: first.0, holder: holder.number() }
            }
        };
        Self::written(&Standing { id: answer.session.0, tenure: answer.tenure.number(), reply })
    }

    fn written(standing: &Standing<'_>) -> Self {
        let mut bytes = [0; 256];
        let mut writer = BundleWriter::new(&mut bytes);
        let is_written = writer.standing(standing);
        debug_assert!(is_written, "a window is no longer");
        Self(writer.bytes().to_vec())
    }

    /// The record.
    pub fn frame(&self) -> Frame<'_> {
        let record = Frames::new(&self.0).next().and_then(Result::ok);
        record.expect("it was written")
    }
}

/// A tenure of a record, if a gateway can have it.
pub fn tenure(number: u32) -> Option<Tenure> {
    Tenure::of_number(number).filter(|tenure| tenure.term != Term::NONE)
}

const fn question(session: ClusterId, tenure: Tenure, asked: Asked) -> Question {
    Question { session, tenure, wake: Wake(0), asked }
}

fn ended(id: [u8; 16], tenure: u32) -> Reported {
    Reported::written(&Standing { id, tenure, reply: ArbiterReply::Ended })
}

/// How long a session whose gateway is gone waits for another one: its player is given up by then.
const fn grace_s(timeout_ms: u32) -> u64 {
    match timeout_ms {
        0 => 60,
        timeout_ms => timeout_ms.div_ceil(1000) as u64 + 5,
    }
}

// What is parked may be lost.
ringgate_core::carried!(Known {
    backend,
    home,
    homeless_s as anew,
    seat,
    timeout_ms,
    giver as anew,
    asked as anew,
    parked as anew,
});

impl Carry for Home {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { worker, game, turn, session } = self;
        worker.write(out);
        (game.place() as u8).write(out);
        turn.write(out);
        session.as_u64().write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok(Self {
            worker: Carry::read(from)?,
            game: Game::at(u8::read(from)?.into()),
            turn: Carry::read(from)?,
            session: read_session(from)?,
        })
    }
}

impl Carry for Seat {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { worker, link, session } = self;
        worker.write(out);
        link.write(out);
        session.map(SessionId::as_u64).write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (worker, link) = (Carry::read(from)?, Carry::read(from)?);
        let session = Option::<u64>::read(from)?;
        let session = session.map(|it| SessionId::from_u64(it).ok_or(Broken::Invalid("session")));
        Ok(Self { worker, link, session: session.transpose()? })
    }
}

/// The longest that a gateway has players wait for a game process that is gone, and a little.
const HOMELESS_S: u64 = 605;

/// What two clocks that are read in seconds may differ by, though nobody sets one.
const ROUNDED_S: u64 = 1;

/// Sessions of all gateways, those included that have ended and whose tokens are good. What is
/// beyond ends with its gateway.
const SESSIONS_MAX: usize = 1 << 18;

/// What is parked of one session, and in all: a gateway announces a session right behind the answer
/// to its claim.
const PARKED_MAX: usize = 64;
const PARKED_BYTES_MAX: usize = 4 << 20;

/// Players whose game processes have not confirmed that they are gone: they do so in a moment.
const LEFT_MAX: usize = 1024;

/// A session's number.
pub(crate) fn read_session(from: &mut Reader<'_>) -> Result<SessionId, Broken> {
    SessionId::from_u64(u64::read(from)?).ok_or(Broken::Invalid("session"))
}

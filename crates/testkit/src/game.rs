//! A simulated game process: it remembers its players, answers what they say, and now and then dies
//! or stops reading.

mod messages;

use std::collections::{HashMap, VecDeque};

use super::judge::Judge;
use super::note::Note;
use super::random::Random;
use ringgate_batch::{LocalIp, SocketId};
use ringgate_core::limits::{BUNDLE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use ringgate_link::bundle::{
    Answer as LinkAnswer, Assembly, CloseReason, Hello, MessagePart, Move, SessionId, ToGame,
    Writer,
};

/// By what a game process tells its players apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guest {
    /// On a udp link: a loopback address, as seen by a worker's socket.
    Loopback(usize, LocalIp),
    /// On a bundle link.
    Session(SessionId),
    /// On a udp link off loopback: a socket of a worker.
    Socket(usize, SocketId),
}

/// What a game process sends.
#[derive(Debug)]
pub enum Answer {
    /// A datagram on the bundle link to a worker.
    Bundle(usize, Vec<u8>),
    /// A payload for one player.
    Payload(Guest, Vec<u8>),
}

/// A game process, alive or not.
pub struct Game {
    /// Its number among the backends.
    pub number: u16,
    /// Its name in the configuration.
    pub name: String,
    /// The links of a bundle backend, by worker.
    pub links: Vec<Option<Link>>,
    /// Until when it is dead.
    pub dead_until_ns: u64,
    /// Until when it reads nothing.
    pub stalled_until_ns: u64,
    /// What has come on udp links.
    pub mail: VecDeque<(Guest, Vec<u8>)>,
    /// The listeners whose players' messages are delivered whole.
    pub delivering: Vec<String>,
    /// Other game processes on bundle links, to which players may be moved.
    pub zones: Vec<String>,
    guests: HashMap<Guest, Known>,
    /// The lives of players who were moved away, of whose messages reports may come.
    departed: HashMap<SessionId, u64>,
    announcements: u64,
    /// The randomness of messages.
    messages_random: Random,
}

/// A link as its process sees it.
pub struct Link {
    /// The worker's socket.
    pub socket: SocketId,
    /// Datagrams that were not read yet.
    pub unread: VecDeque<Vec<u8>>,
    is_welcome: bool,
    /// The message that comes in several parts.
    assembly: Assembly,
}

/// What a process knows about a player.
struct Known {
    client_id: Option<u64>,
    /// From its last note, or its last message.
    life: Option<u64>,
    /// It sends and gets whole messages.
    delivers: bool,
    /// It has to be sent no more reliable ones for now.
    is_full: bool,
    /// It was asked for elsewhere once.
    may_leave: bool,
}

impl Game {
    /// A process that has not been started yet.
    pub fn new(number: u16, name: String, workers: usize, seed: u64) -> Self {
        Self {
            number,
            name,
            links: (0..workers).map(|_| None).collect(),
            dead_until_ns: 0,
            stalled_until_ns: 0,
            mail: VecDeque::new(),
            delivering: Vec::new(),
            zones: Vec::new(),
            guests: HashMap::new(),
            departed: HashMap::new(),
            announcements: 0,
            messages_random: Random::new(seed ^ u64::from(number) << 32 ^ 0x6761_6d65),
        }
    }

    /// How many players it knows.
    pub fn guest_count(&self) -> usize {
        self.guests.len()
    }

    /// Whether it runs.
    pub fn is_alive(&self, now_ns: u64) -> bool {
        now_ns >= self.dead_until_ns
    }

    /// Connects to a worker; returns what it says first.
    pub fn connect(&mut self, worker: usize, socket: SocketId) -> Vec<u8> {
        let (unread, assembly) = (VecDeque::new(), Assembly::new());
        self.links[worker] = Some(Link { socket, unread, is_welcome: false, assembly });
        let hello = Hello::new(1, &self.name);
        bundle(|writer| writer.hello(&hello))
    }

    /// The lives that it knows whose messages are delivered; of one worker, or of all.
    pub fn lives(&self, worker: Option<usize>) -> Vec<u64> {
        let known = self.guests.iter().filter(|(guest, known)| {
            let Guest::Session(session) = guest else { return false };
            known.delivers && worker.is_none_or(|worker| session.worker() == worker)
        });
        let departed = self
            .departed
            .iter()
            .filter(|(session, _)| worker.is_none_or(|worker| session.worker() == worker));
        let departed = departed.map(|(_, life)| *life);
        known.filter_map(|(_, known)| known.life).chain(departed).collect()
    }

    /// Dies: everything it knew is lost. Returns the sockets that were connected to it, with their
    /// workers.
    pub fn die(&mut self, until_ns: u64) -> Vec<(usize, SocketId)> {
        self.dead_until_ns = until_ns;
        self.guests.clear();
        self.departed.clear();
        self.mail.clear();
        let links = self.links.iter_mut().enumerate();
        links.filter_map(|(worker, link)| Some((worker, link.take()?.socket))).collect()
    }

    /// The gateway has closed a link: all players who came over it are gone.
    pub fn lose_link(&mut self, worker: usize, socket: SocketId) {
        if self.links[worker].as_ref().is_some_and(|link| link.socket == socket) {
            self.links[worker] = None;
            let is_there =
                |guest: &Guest| matches!(guest, Guest::Session(id) if id.worker() == worker);
            self.guests.retain(|guest, _| !is_there(guest));
            self.departed.retain(|session, _| session.worker() != worker);
        }
    }

    /// Reads everything that has come, and answers.
    pub fn read(&mut self, judge: &mut Judge, random: &mut Random) -> Vec<Answer> {
        let mut answers = Vec::new();
        for worker in 0..self.links.len() {
            while let Some(datagram) =
                self.links[worker].as_mut().and_then(|link| link.unread.pop_front())
            {
                self.read_bundle(worker, &datagram, judge, random, &mut answers);
            }
        }
        while let Some((guest, payload)) = self.mail.pop_front() {
            self.guests.entry(guest).or_insert_with(|| Known::new(None, false));
            if let Some(answer) = self.hear(guest, &payload, judge, random) {
                answers.push(Answer::Payload(guest, answer));
            }
        }
        answers
    }

    /// Says the same to all players of one worker; or throws one out, if it may.
    pub fn act(
        &mut self,
        may_kick: bool,
        judge: &mut Judge,
        random: &mut Random,
    ) -> Option<Answer> {
        let sessions: Vec<SessionId> = self.sessions();
        let chosen = *random.pick(&sessions)?;
        let worker = chosen.worker();
        if may_kick && random.chance(20) {
            return Some(Answer::Bundle(
                worker,
                bundle(|writer| writer.close(chosen, CloseReason::Kicked)),
            ));
        }
        if may_kick && random.chance(400) {
            return self.move_away(chosen, judge, random);
        }
        let neighbours: Vec<_> =
            sessions.into_iter().filter(|session| session.worker() == worker).take(100).collect();
        self.announcements += 1;
        let client_id = u64::from(self.number);
        let note = Note { life: 0, number: self.announcements, client_id };
        let mut buf = [0; PAYLOAD_BYTES_MAX];
        let payload = note.write(&mut buf, 0);
        Some(Answer::Bundle(worker, bundle(|writer| writer.multicast(&neighbours, payload))))
    }

    /// Asks for a player to be moved to another game process. One who gets messages is handed over
    /// when this one has heard of it, because its messages are read in their order then.
    fn move_away(
        &mut self,
        session: SessionId,
        judge: &mut Judge,
        random: &mut Random,
    ) -> Option<Answer> {
        let backend = random.pick(&self.zones)?;
        let known = self.guests.get_mut(&Guest::Session(session))?;
        known.may_leave = true;
        if let Some(life) = known.life.filter(|_| known.delivers) {
            judge.doubt_down(life);
        }
        let asked = Move {
            session,
            backend,
            ticket: random.within(0..9),
            time_ms: 5000,
            confirms: known.delivers || random.chance(500),
            message: None,
            data: b"through the door",
        };
        Some(Answer::Bundle(session.worker(), bundle(|writer| writer.move_session(&asked))))
    }

    fn sessions(&self) -> Vec<SessionId> {
        let mut sessions: Vec<_> = self
            .guests
            .keys()
            .filter_map(|guest| if let Guest::Session(id) = guest { Some(*id) } else { None })
            .collect();
        // The map's order is another in every run.
        sessions.sort_unstable();
        sessions
    }

    fn read_bundle(
        &mut self,
        worker: usize,
        datagram: &[u8],
        judge: &mut Judge,
        random: &mut Random,
        answers: &mut Vec<Answer>,
    ) {
        let mut out = Bundles::default();
        for record in ToGame::read(datagram) {
            let Ok(record) = record else {
                return judge.require(false, || "the gateway broke the bundle format".to_owned());
            };
            self.read_record(worker, &record, judge);
            if let ToGame::Message(part) = record {
                self.take_part(worker, &part, judge, &mut out);
            }
            if let ToGame::Offered(offered) = record {
                let answer = if random.chance(200) { LinkAnswer::No } else { LinkAnswer::Yes };
                out.add(|writer| writer.answer(offered.session, offered.offer, answer));
            }
            if let ToGame::Moved { session, .. } = record {
                out.add(|writer| writer.confirm(session));
            }
            let ToGame::Payload { session, bytes } = record else { continue };
            if let Some(answer) = self.hear(Guest::Session(session), bytes, judge, random) {
                out.add(|writer| writer.payload(session, &answer));
            }
        }
        answers.extend(out.finish().into_iter().map(|bundle| Answer::Bundle(worker, bundle)));
    }

    fn read_record(&mut self, worker: usize, record: &ToGame<'_>, judge: &mut Judge) {
        let Some(link) = self.links[worker].as_mut() else { return };
        let is_welcome = matches!(record, ToGame::Welcome(_));
        let is_first = !link.is_welcome;
        link.is_welcome = true;
        let may_refuse = matches!(record, ToGame::Goodbye(_));
        judge.require(may_refuse || is_welcome == is_first, || format!("{record:?} out of place"));
        match record {
            ToGame::Opened(opened) => {
                let delivers = self.delivering.iter().any(|name| name == opened.listener);
                let life = self.departed.remove(&opened.session);
                let known = Known { life, ..Known::new(Some(opened.client_id), delivers) };
                let before = self.guests.insert(Guest::Session(opened.session), known);
                judge.require(before.is_none(), || format!("{opened:?} was announced twice"));
            }
            ToGame::Closed { session, .. } => {
                let known = self.guests.remove(&Guest::Session(*session));
                judge.require(known.is_some(), || format!("{session} was closed and never opened"));
                if let Some(life) = known.and_then(|known| known.life) {
                    judge.end_down(life);
                }
            }
            ToGame::Welcome(welcome) => {
                judge.require(usize::from(welcome.worker) == worker, || format!("{welcome:?}"));
            }
            ToGame::OpenedPlain(opened) => {
                judge.require(false, || format!("{opened:?} is no player's of netcode"));
            }
            ToGame::Message(MessagePart { session, .. })
            | ToGame::Report { session, .. }
            | ToGame::Room { session, .. }
            | ToGame::Quality { session, .. } => {
                self.read_of_messages(*session, record, judge);
            }
            ToGame::Payload { session, .. } => {
                let known = self.guests.get(&Guest::Session(*session));
                let is_raw = known.is_none_or(|known| !known.delivers);
                judge.require(is_raw, || format!("{record:?} where messages are delivered"));
            }
            ToGame::Pong { .. }
            | ToGame::Draining { .. }
            | ToGame::Undrained
            | ToGame::TakenOver { .. }
            | ToGame::Players { .. }
            | ToGame::Offered(_)
            | ToGame::OfferOver { .. }
            | ToGame::MoveRefused { .. }
            | ToGame::Goodbye(_) => {}
            ToGame::Moved { session, .. } => {
                let known = self.guests.remove(&Guest::Session(*session));
                judge.require(known.is_some(), || format!("{session} was moved and not here"));
                if let Some(life) = known.filter(|known| known.delivers).and_then(|it| it.life) {
                    self.departed.insert(*session, life);
                }
            }
            // None of these game processes closes a session after delivery.
            ToGame::Lingered { .. } | ToGame::Unknown(_) => {
                judge.require(false, || format!("our own gateway says {record:?}"));
            }
        }
    }

    /// Takes a payload; returns an answer to it, as a rule.
    fn hear(
        &mut self,
        guest: Guest,
        payload: &[u8],
        judge: &mut Judge,
        random: &mut Random,
    ) -> Option<Vec<u8>> {
        let Some(known) = self.guests.get_mut(&guest) else {
            judge
                .require(false, || format!("a payload of {guest:?}, whom {} never met", self.name));
            return None;
        };
        let note = judge.hear_up(known.client_id, payload)?;
        known.life = Some(note.life);
        if random.chance(100) {
            return None;
        }
        let mut buf = [0; PAYLOAD_BYTES_MAX];
        let answer = judge.say_down(note.life);
        Some(answer.write(&mut buf, random.within(0..300) as usize).to_vec())
    }
}

impl Known {
    fn new(client_id: Option<u64>, delivers: bool) -> Self {
        Self { client_id, life: None, delivers, is_full: false, may_leave: false }
    }
}

/// Bundles under construction.
#[derive(Default)]
struct Bundles {
    full: Vec<Vec<u8>>,
    open: Vec<u8>,
}

impl Bundles {
    fn add(&mut self, write: impl Fn(&mut Writer<'_>) -> bool) {
        let record = bundle(write);
        if self.open.len() + record.len() > BUNDLE_BYTES_MAX {
            self.full.push(std::mem::take(&mut self.open));
        }
        self.open.extend(record);
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        if !self.open.is_empty() {
            self.full.push(self.open);
        }
        self.full
    }
}

fn bundle(write: impl FnOnce(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buf = [0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    let written = write(&mut writer);
    debug_assert!(written, "one record fits a bundle");
    writer.bytes().to_vec()
}

//! An agent in front of a game, as far as gateways of a cluster see one: an arbiter, and a link to
//! each of their workers.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::games::Game;
use super::super::rig::{OUR_USER, Rig};
use super::super::unreal::rig::{BASE, Dice, stand_in};
use ringgate_batch::Endpoint;
use ringgate_bots::unreal::StandIn;
use ringgate_cluster::{
    Answer, Arbiter, Asked, Incarnation, Player, Question, Refused, Reply, SessionId, Tenure,
    Verdict, Wake,
};
use ringgate_core::carry::{Carry, Writer as Carrier};
use ringgate_core::limits::{BUNDLE_BYTES_MAX, UNREAL_BYTES_MAX};
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_link::bundle::{
    AgentDelivery, Answer as LinkAnswer, ArbiterReply, Arbitrated, CloseReason, Frames, Hello,
    Offered, SessionId as LinkSession, Standing, ToArbiter, ToGame, VERSION_MIN, VERSION_PLAIN,
    WINDOW_BYTES_MAX, Writer,
};

/// A worker of a gateway; so much beyond its number, its link to the second game process.
pub(super) type At = (usize, usize);

pub(super) const ZONE: usize = 64;

pub(super) struct Agent {
    pub(super) arbiter: Arbiter,
    pub(super) lanes: BTreeMap<At, Lane>,
    /// What the game has got: each payload once.
    pub(super) handed: Vec<Vec<u8>>,
    pub(super) numbers: HashSet<(SessionId, u64)>,
    /// Records that were refused, by why.
    pub(super) refused: Vec<Refused>,
    pub(super) claims: Vec<(SessionId, Tenure, Tenure)>,
    /// Closings by a gateway that has the session.
    pub(super) closed: Vec<SessionId>,
    /// Gateways that have slept and were told of what is not theirs.
    woken: Vec<(At, u64)>,
    /// Sessions that a gateway has said its last word of, having given them away.
    pub(super) given: usize,
    /// Answers nobody.
    pub(super) is_mute: bool,
    /// The links to this gateway are over, and what came on them is being read.
    pub(super) reads_late: Option<usize>,
    /// The game takes nothing of sources that have no slot: they may be others' players.
    pub(super) takes_players_only: bool,
    /// What tells plain players apart.
    pub(super) told_apart: ToldApart,
    /// Sources that had a session elsewhere.
    pub(super) seconds: usize,
    /// Sessions whose messages it was told to deliver, each time.
    pub(super) delivers: Vec<(SessionId, AgentDelivery)>,
    /// Sessions whose players are there.
    pub(super) there: Vec<SessionId>,
    /// Where the players of plain sessions are that have had a slot.
    addresses: HashMap<SessionId, Endpoint>,
    /// Players who have gone over from one of its game processes to the other.
    pub(super) moved: usize,
    /// What the agent speaks for, where that is an Unreal server.
    pub(super) behind: Option<Behind>,
    /// It is of a release that knows nothing of plain players, and so nothing of Unreal's.
    pub(super) is_earlier: bool,
}

/// An Unreal server behind an agent, to which each session is an address, whichever gateway has it.
pub(super) struct Behind {
    pub(super) server: StandIn,
    dice: Dice,
    /// What sessions are called in their cluster, and on links.
    addresses: HashMap<SessionId, Endpoint>,
    links: HashMap<(At, LinkSession), Endpoint>,
    given: u16,
    now_ns: u64,
    /// What it has said, and is not on its way yet.
    answers: Vec<(LinkSession, Vec<u8>)>,
    /// The same of sessions that another link has by now.
    answers_elsewhere: Vec<(SessionId, Vec<u8>)>,
}

impl Behind {
    pub(super) fn new() -> Self {
        Self {
            server: stand_in(Framing::default(), BASE, 1),
            dice: Dice(3),
            addresses: HashMap::new(),
            links: HashMap::new(),
            given: 0,
            now_ns: 0,
            answers: Vec::new(),
            answers_elsewhere: Vec::new(),
        }
    }

    /// A session is called so on a link, and so in its cluster, if in any.
    fn name(&mut self, link: (At, LinkSession), id: Option<SessionId>) {
        let known = id.and_then(|id| self.addresses.get(&id)).or_else(|| self.links.get(&link));
        let address = known.copied().unwrap_or_else(|| {
            self.given += 1;
            Endpoint::v4([127, 3, (self.given >> 8) as u8, self.given as u8], 4000)
        });
        self.links.insert(link, address);
        if let Some(id) = id {
            self.addresses.insert(id, address);
        }
    }

    /// Its address is given back.
    fn forget(&mut self, id: SessionId) {
        if let Some(address) = self.addresses.remove(&id) {
            self.links.retain(|_, it| *it != address);
        }
    }

    fn take(&mut self, at: At, session: LinkSession, bytes: &[u8]) {
        let from = *self.links.get(&(at, session)).expect("announced before");
        let mut out = [0; UNREAL_BYTES_MAX];
        let tail = self.dice.tail();
        let answered = self.server.handle_datagram(self.now_ns, from, bytes, &tail, &mut out);
        if let Ok(len @ 1..) = answered {
            self.answers.push((session, out[..len].to_vec()));
        }
    }

    /// What the server says though nobody has asked, and to whom.
    fn speak(&mut self) -> Vec<(SessionId, Vec<u8>)> {
        let mut out = [0; UNREAL_BYTES_MAX];
        let mut said = Vec::new();
        while let Some((address, len)) = self.server.poll_keep_alive(self.now_ns, &mut out) {
            let its = self.addresses.iter().find(|(_, known)| **known == address);
            said.extend(its.map(|(id, _)| (*id, out[..len].to_vec())));
        }
        said
    }
}

/// What tells plain players apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ToldApart {
    /// An address is one player, whatever it sends.
    Address,
    /// The agent passes over whose a session is.
    Nothing,
    /// Two tokens of one address are two players.
    Token,
}

pub(super) struct Lane {
    pub(super) game: Game,
    pub(super) incarnation: Incarnation,
    /// What is called so on this link.
    pub(super) sessions: HashMap<LinkSession, (SessionId, Tenure)>,
    /// Not of a cluster.
    pub(super) others: HashSet<LinkSession>,
    /// Of players whose packets have no numbers of their own.
    unnumbered: HashSet<LinkSession>,
    /// Of sources that have no slot.
    waiting: HashSet<LinkSession>,
    /// Whose they are, until they have one.
    players: HashMap<LinkSession, (SessionId, Tenure, Player)>,
    /// Where the players of plain sessions are.
    addresses: HashMap<LinkSession, Endpoint>,
    /// What comes next is this one, or is not passed on.
    next: Option<(LinkSession, bool)>,
    pub(super) plain_payloads: usize,
}

impl Agent {
    pub(super) fn new(sessions_max: usize) -> Self {
        Self {
            arbiter: Arbiter::new(sessions_max),
            lanes: BTreeMap::new(),
            handed: Vec::new(),
            numbers: HashSet::new(),
            refused: Vec::new(),
            claims: Vec::new(),
            closed: Vec::new(),
            woken: Vec::new(),
            given: 0,
            is_mute: false,
            reads_late: None,
            takes_players_only: false,
            told_apart: ToldApart::Address,
            seconds: 0,
            delivers: Vec::new(),
            there: Vec::new(),
            addresses: HashMap::new(),
            moved: 0,
            behind: None,
            is_earlier: false,
        }
    }

    /// A link to a worker.
    pub(super) fn join(&mut self, at: At, rig: &mut Rig, incarnation: Incarnation) {
        let game = Game::connect(rig, OUR_USER);
        let mut hello = Hello::new(1, if at.1 < ZONE { "arena" } else { "zone" });
        if self.behind.is_some() {
            (hello.version_min, hello.version_max) = (VERSION_MIN, VERSION_PLAIN as u8);
        }
        game.say(rig, |writer| {
            writer.hello(&hello)
                && arbitrates(writer)
                && (self.is_earlier
                    || writer.arbitrates(Arbitrated::Plain)
                        && writer.arbitrates(Arbitrated::Delivery))
        });
        self.lanes.insert(at, Lane::new(game, incarnation));
    }

    /// The links to a gateway are lost.
    pub(super) fn lose(&mut self, gateway: usize) -> Vec<(At, Lane)> {
        let lost: Vec<_> = self.lanes.extract_if(.., |at, _| at.0 == gateway).collect();
        for (_, lane) in &lost {
            self.arbiter.handle_lost(lane.incarnation);
        }
        lost
    }

    /// Takes what a worker has said, and answers.
    pub(super) fn hear(&mut self, at: At, rig: &mut Rig) {
        let Some(lane) = self.lanes.get(&at) else { return };
        let bundles = rig.take_on(lane.game.link);
        let mut answers = Vec::new();
        if let Some(behind) = &mut self.behind {
            behind.now_ns = rig.now.mono_ns;
        }
        for bundle in &bundles {
            for frame in Frames::new(bundle).map(|frame| frame.expect("whole records")) {
                match ToArbiter::decode(frame) {
                    Some(record) => self.take(at, &record, &mut answers),
                    None => {
                        let record = ToGame::decode(frame).expect("a record");
                        self.take_other(at, record, &mut answers);
                    }
                }
            }
        }
        for (to, answer) in answers {
            self.answer(to, &answer, rig, at);
        }
        self.pass_answers(at, rig);
        for (at, number) in std::mem::take(&mut self.woken) {
            if self.is_silent_to(at) {
                continue;
            }
            self.lanes[&at].game.push(rig, |writer| writer.sure(number));
        }
    }

    /// Sends what a server has answered to where its player's session is.
    fn pass_answers(&mut self, at: At, rig: &mut Rig) {
        let Some(behind) = &mut self.behind else { return };
        for (session, bytes) in std::mem::take(&mut behind.answers) {
            let lane = &self.lanes[&at];
            let its = lane.sessions.get(&session).copied();
            match its.filter(|(id, tenure)| self.holder(*id) != Some(*tenure)) {
                Some((id, _)) => {
                    let behind = self.behind.as_mut().expect("it has answered");
                    behind.answers_elsewhere.push((id, bytes));
                }
                None if self.is_silent_to(at) => {}
                None => lane.game.push(rig, |writer| writer.payload(session, &bytes)),
            }
        }
    }

    fn holder(&self, id: SessionId) -> Option<Tenure> {
        self.arbiter.standing(id)?.holder()
    }

    fn take(&mut self, at: At, record: &ToArbiter<'_>, answers: &mut Vec<(At, Answer)>) {
        match record {
            ToArbiter::Clustered(it) => {
                let (id, tenure) = (SessionId(it.id), tenure_of(it.tenure));
                let asked = Asked::Open { token_until_s: it.token_until_s };
                let question = Question { session: id, tenure, wake: Wake(0), asked };
                let lane = self.lanes.get_mut(&at).expect("it speaks");
                let player = lane.players.remove(&it.session).map(|it| it.2);
                let Verdict { answer, fenced, .. } = self.arbiter.announce(&question, player);
                if let Some(fenced) = fenced {
                    answers.extend(self.lane_of(id, fenced.tenure).map(|at| (at, fenced)));
                }
                let is_granted = matches!(answer.reply, Reply::Granted { .. });
                self.delivers.extend(it.delivery.map(|it| (id, it)));
                let lane = self.lanes.get_mut(&at).expect("it speaks");
                lane.next = Some((it.session, is_granted));
                if is_granted {
                    lane.sessions.insert(it.session, (id, tenure));
                    if let Some(behind) = &mut self.behind {
                        behind.name((at, it.session), Some(id));
                    }
                } else {
                    self.seconds += usize::from(matches!(answer.reply, Reply::Second { .. }));
                    answers.push((at, answer));
                }
            }
            ToArbiter::Claim(it) => {
                let (id, tenure) = (SessionId(it.id), tenure_of(it.tenure));
                let over = tenure_of(it.over);
                self.claims.push((id, tenure, over));
                let asked =
                    if it.is_offered { Asked::Take { over } } else { Asked::Claim { over } };
                let answer = self.ask(id, tenure, asked, answers);
                answers.push((at, answer));
            }
            ToArbiter::Given { .. } => self.given += 1,
            ToArbiter::There(session) => {
                self.there.extend(self.lanes[&at].sessions.get(session).map(|it| it.0));
            }
            ToArbiter::Plays(_) if self.told_apart == ToldApart::Nothing => {}
            ToArbiter::Plays(it) => {
                let player = Player { backend: "arena".into(), name: it.player };
                let whose = (SessionId(it.id), tenure_of(it.tenure), player);
                self.lanes.get_mut(&at).expect("it speaks").players.insert(it.session, whose);
            }
            ToArbiter::Woke(number) => {
                for (id, tenure) in self.lanes[&at].sessions.values().copied() {
                    let holder = self.holder(id);
                    let reply = match holder {
                        Some(holder) if holder == tenure => continue,
                        Some(holder) => Reply::Fenced { holder },
                        None => Reply::Ended,
                    };
                    answers.push((at, Answer { session: id, tenure, wake: Wake(0), reply }));
                }
                self.woken.push((at, *number));
            }
            ToArbiter::Over { id, tenure } => {
                let (id, tenure) = (SessionId(*id), tenure_of(*tenure));
                if let Some(fenced) = self.arbiter.bury(id, tenure) {
                    let lane = self.lane_of(id, fenced.tenure);
                    answers.extend(lane.map(|at| (at, fenced)));
                    self.closed.push(id);
                    self.forget(id);
                }
                let (wake, reply) = (Wake(0), Reply::Ended);
                answers.push((at, Answer { session: id, tenure, wake, reply }));
            }
            ToArbiter::Numbered { session, number, bytes } => {
                let lane = &self.lanes[&at];
                let Some(&(id, tenure)) = lane.sessions.get(session) else {
                    // It was refused.
                    return;
                };
                let handed = self.arbiter.hand_over(id, tenure, *number);
                if handed.is_ok() {
                    assert!(self.numbers.insert((id, *number)), "{number} is handed twice");
                    if let Some(behind) = &mut self.behind {
                        behind.take(at, *session, bytes);
                    }
                }
                self.note_handed((at, id, tenure), bytes, handed, answers);
            }
        }
    }

    /// A payload is the game's now, or its gateway hears why not.
    fn note_handed(
        &mut self,
        (at, session, tenure): (At, SessionId, Tenure),
        bytes: &[u8],
        handed: Result<(), Refused>,
        answers: &mut Vec<(At, Answer)>,
    ) {
        let Err(why) = handed else { return self.handed.push(bytes.to_vec()) };
        let reply = match why {
            Refused::Fenced(holder) => Some(Reply::Fenced { holder }),
            Refused::Ended => Some(Reply::Ended),
            Refused::Replayed(_) | Refused::Unclaimed => None,
        };
        self.refused.push(why);
        if reply.is_some() {
            // It is told once: what still comes is of no session.
            let lane = self.lanes.get_mut(&at).expect("it speaks");
            lane.forget_all_of(session);
        }
        let answer = |reply| Answer { session, tenure, wake: Wake(0), reply };
        answers.extend(reply.map(|reply| (at, answer(reply))));
    }

    fn take_other(&mut self, at: At, record: ToGame<'_>, answers: &mut Vec<(At, Answer)>) {
        let lane = self.lanes.get_mut(&at).expect("it speaks");
        let named = match &record {
            ToGame::OpenedPlain(it) => Some(it.session),
            ToGame::Payload { session, .. } => Some(*session),
            _ => None,
        };
        if let Some(named) = named
            && let Some((session, tenure, player)) = lane.players.get(&named).cloned()
            && let Some(reply) = self.arbiter.second(&player, session)
        {
            lane.forget(named);
            lane.unnumbered.insert(named);
            self.seconds += 1;
            return answers.push((at, Answer { session, tenure, wake: Wake(0), reply }));
        }
        match record {
            ToGame::Opened(opened) => drop(lane.open(opened.session)),
            ToGame::OpenedPlain(opened) => {
                if let Some(behind) = &mut self.behind {
                    behind.name((at, opened.session), None);
                }
                let is_there = lane.open(opened.session);
                lane.unnumbered.insert(opened.session);
                let address: Endpoint = opened.address.into();
                lane.addresses.insert(opened.session, address);
                if opened.slot.is_none() {
                    lane.waiting.insert(opened.session);
                    return;
                }
                lane.waiting.remove(&opened.session);
                if let Some((id, _)) = lane.sessions.get(&opened.session).filter(|_| is_there) {
                    self.addresses.insert(*id, address);
                }
                self.nobody_is_twice();
            }
            ToGame::Payload { session, bytes } => {
                if let Some(&(id, tenure)) = lane.sessions.get(&session) {
                    assert!(lane.unnumbered.contains(&session), "it is of the cluster");
                    let handed = self.arbiter.hand_over_unnumbered(id, tenure);
                    if let Some(behind) = self.behind.as_mut().filter(|_| handed.is_ok()) {
                        behind.take(at, session, bytes);
                    }
                    return self.note_handed((at, id, tenure), bytes, handed, answers);
                }
                if lane.others.contains(&session) {
                    lane.plain_payloads += 1;
                    let address = lane.addresses.get(&session).copied();
                    let is_known = self.told_apart == ToldApart::Address;
                    let is_players = lane.waiting.contains(&session) && is_known;
                    assert!(!is_players || address.is_none_or(|it| !self.plays(it)), "it plays");
                    let lane = &self.lanes[&at];
                    if let Some(behind) = &mut self.behind {
                        return behind.take(at, session, bytes);
                    }
                    if !self.takes_players_only || !lane.waiting.contains(&session) {
                        self.handed.push(bytes.to_vec());
                    }
                } else {
                    assert!(lane.unnumbered.contains(&session), "it was refused");
                }
            }
            ToGame::Offered(Offered { session, offer, .. }) => {
                lane.keep(|writer| writer.answer(session, offer, LinkAnswer::Yes));
            }
            ToGame::Closed { session, .. } | ToGame::Moved { session, .. } => {
                if matches!(record, ToGame::Moved { .. }) {
                    lane.keep(|writer| writer.confirm(session));
                    self.moved += 1;
                }
                lane.forget(session);
                if let Some((id, tenure)) = lane.sessions.remove(&session) {
                    let question =
                        Question { session: id, tenure, wake: Wake(0), asked: Asked::End };
                    if self.arbiter.answer(&question).answer.reply == Reply::Ended {
                        self.closed.push(id);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether the game has a player from there, who has a slot.
    fn plays(&self, from: Endpoint) -> bool {
        let mut its = self.addresses.iter().filter(|(_, address)| **address == from);
        its.any(|(id, _)| self.is_live(*id))
    }

    fn is_live(&self, id: SessionId) -> bool {
        self.holder(id).is_some()
    }

    /// No player has two sessions with a slot.
    fn nobody_is_twice(&self) {
        let mut seen = HashSet::new();
        let its = self.addresses.iter().filter(|(id, _)| self.is_live(**id));
        let twice: Vec<_> = its.map(|it| *it.1).filter(|it| !seen.insert(*it)).collect();
        let is_known = self.told_apart == ToldApart::Address;
        assert!(twice.is_empty() || !is_known, "{twice:?} have two sessions");
    }

    /// The game hears that a session is over, and no gateway has it any more.
    fn forget(&mut self, id: SessionId) {
        self.lanes.values_mut().for_each(|lane| lane.forget_all_of(id));
        if let Some(behind) = &mut self.behind {
            behind.forget(id);
        }
    }

    fn ask(
        &mut self,
        session: SessionId,
        tenure: Tenure,
        asked: Asked,
        answers: &mut Vec<(At, Answer)>,
    ) -> Answer {
        let question = Question { session, tenure, wake: Wake(0), asked };
        let verdict = self.arbiter.answer(&question);
        if let Some(fenced) = verdict.fenced {
            answers.extend(self.lane_of(session, fenced.tenure).map(|at| (at, fenced)));
        }
        verdict.answer
    }

    fn lane_of(&self, id: SessionId, tenure: Tenure) -> Option<At> {
        let has = |lane: &Lane| lane.sessions.values().any(|it| *it == (id, tenure));
        self.lanes.iter().find(|(_, lane)| has(lane)).map(|(at, _)| *at)
    }

    /// Says it on a link, which is that of the rig at hand or is heard later.
    fn answer(&mut self, to: At, answer: &Answer, rig: &mut Rig, at: At) {
        if self.is_silent_to(to) {
            return;
        }
        let bundle = standing(answer);
        if to == at {
            self.lanes[&to].game.push_bytes(rig, &bundle);
        } else {
            self.lanes.get_mut(&to).expect("it is there").game.keep(bundle);
        }
    }

    fn is_silent_to(&self, (gateway, _): At) -> bool {
        self.is_mute || self.reads_late == Some(gateway)
    }

    /// Says what was kept for a worker.
    pub(super) fn speak(&mut self, at: At, rig: &mut Rig) {
        if let Some(lane) = self.lanes.get(&at) {
            lane.game.say_kept(rig);
        }
    }

    /// What the server says by itself, and to whom on which link.
    pub(super) fn server_speaks(&mut self, now_ns: u64) -> Vec<(At, LinkSession, Vec<u8>)> {
        let Some(behind) = &mut self.behind else { return Vec::new() };
        behind.now_ns = now_ns;
        let mut said = std::mem::take(&mut behind.answers_elsewhere);
        said.extend(behind.speak());
        let said = said.into_iter();
        said.filter_map(|(id, bytes)| self.home(id).map(|(at, session)| (at, session, bytes)))
            .collect::<Vec<_>>()
    }

    /// Which worker has a session, and what it is called there.
    pub(super) fn home(&self, id: SessionId) -> Option<(At, LinkSession)> {
        let holder = self.holder(id)?;
        self.lanes.iter().find_map(|(at, lane)| {
            let mut its = lane.sessions.iter();
            its.find(|(_, it)| **it == (id, holder)).map(|(session, _)| (*at, *session))
        })
    }

    /// The sessions that gateways have.
    pub(super) fn held(&self) -> Vec<SessionId> {
        let all: HashSet<SessionId> =
            self.lanes.values().flat_map(|lane| lane.sessions.values()).map(|it| it.0).collect();
        all.into_iter().filter(|id| self.home(*id).is_some()).collect()
    }

    /// The game ends a session.
    pub(super) fn close(&mut self, id: SessionId, at: At, rig: &mut Rig) {
        let (home, session) = self.home(id).expect("a gateway has it");
        assert_eq!(home, at);
        let lane = &self.lanes[&at];
        lane.game.say(rig, |writer| writer.close(session, CloseReason::Finished));
    }
}

impl Lane {
    /// Says it later.
    fn keep(&self, write: impl FnOnce(&mut Writer<'_>) -> bool) {
        let mut buf = [0; BUNDLE_BYTES_MAX];
        let mut writer = Writer::new(&mut buf);
        assert!(write(&mut writer));
        self.game.keep(writer.bytes().to_vec());
    }

    /// An opening: of a session of the cluster, right behind its name, or of another one. Whether
    /// the game has it.
    fn open(&mut self, session: LinkSession) -> bool {
        if let Some((named, is_granted)) = self.next.take() {
            assert_eq!(named, session, "right behind");
            self.others.remove(&session);
            is_granted
        } else {
            // What is the cluster's stays that.
            if !self.sessions.contains_key(&session) {
                self.others.insert(session);
            }
            true
        }
    }

    /// What is called so in its cluster is over: what still comes of it is of no session.
    fn forget_all_of(&mut self, id: SessionId) {
        let its: Vec<_> =
            self.sessions.extract_if(|_, it| it.0 == id).map(|(session, _)| session).collect();
        for session in its {
            self.forget(session);
            self.unnumbered.insert(session);
        }
    }

    /// The game knows of it no more.
    fn forget(&mut self, session: LinkSession) {
        self.others.remove(&session);
        self.unnumbered.remove(&session);
        self.waiting.remove(&session);
        self.players.remove(&session);
        self.addresses.remove(&session);
    }

    fn new(game: Game, incarnation: Incarnation) -> Self {
        Self {
            game,
            incarnation,
            sessions: HashMap::new(),
            others: HashSet::new(),
            unnumbered: HashSet::new(),
            waiting: HashSet::new(),
            players: HashMap::new(),
            addresses: HashMap::new(),
            next: None,
            plain_payloads: 0,
        }
    }
}

/// A standing as a bundle.
pub(super) fn standing(answer: &Answer) -> Vec<u8> {
    let mut window = [0; WINDOW_BYTES_MAX];
    let reply = match &answer.reply {
        Reply::Granted { handed } => {
            let mut out = Carrier::new(&mut window);
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
    let standing = Standing { id: answer.session.0, tenure: answer.tenure.number(), reply };
    let mut buf = [0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    assert!(writer.standing(&standing));
    writer.bytes().to_vec()
}

fn tenure_of(number: u32) -> Tenure {
    Tenure::of_number(number).expect("a tenure")
}

pub(super) fn arbitrates(writer: &mut Writer<'_>) -> bool {
    writer.arbitrates(Arbitrated::Netcode)
}

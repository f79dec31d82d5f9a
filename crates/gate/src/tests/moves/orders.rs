//! Every order of what can happen to a player who is moved, each held against a model of a few
//! lines: the player is with the one process, with the other, or nowhere, and both have heard it.

use super::super::clients::Library;
use super::*;
use crate::counters::Ended;
use crate::survey::{Survey, Wanted};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ask,
    AskToBeHeard,
    Order,
    Yes,
    No,
    /// Yes to the offer before this one.
    StaleYes,
    Heard,
    Time,
    LobbyDies,
    ArenaDies,
    /// That of an agent which has both, or of both agents.
    BothDie,
    /// A process that is gone has come again, as behind an agent that was started anew.
    Return,
    LobbyCloses,
    ArenaCloses,
    Kick,
    Leave,
    Drain,
    TakeAway,
    HandOver,
}

const STEPS: [Step; 19] = [
    Step::Ask,
    Step::AskToBeHeard,
    Step::Order,
    Step::Yes,
    Step::No,
    Step::StaleYes,
    Step::Heard,
    Step::Time,
    Step::LobbyDies,
    Step::ArenaDies,
    Step::BothDie,
    Step::Return,
    Step::LobbyCloses,
    Step::ArenaCloses,
    Step::Kick,
    Step::Leave,
    Step::Drain,
    Step::TakeAway,
    Step::HandOver,
];

/// Where the player is, by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Lobby,
    /// Offered, whether the first process is to be heard.
    Offered(bool),
    /// Gone over, and the first process has not said that it knows.
    Unheard,
    Arena,
    Nowhere,
}

struct World {
    rig: Rig,
    lobby: Option<Game>,
    arena: Option<Game>,
    player: Player<Client>,
    session: SessionId,
    at: At,
    offers: Vec<u64>,
    /// The arena takes nobody any more.
    is_shut: bool,
    /// It is not in the config any more.
    is_taken_away: bool,
    order: Option<Arc<MoveOrder>>,
    /// What each process believes: it has the player.
    believes: [bool; 2],
}

impl World {
    fn new() -> Self {
        let (rig, [lobby, arena], player, session) = two_zones();
        Self {
            rig,
            lobby: Some(lobby),
            arena: Some(arena),
            player,
            session,
            at: At::Lobby,
            offers: Vec::new(),
            is_shut: false,
            is_taken_away: false,
            order: None,
            believes: [true, false],
        }
    }

    fn step(&mut self, step: Step) {
        let (session, last) = (self.session, self.offers.last().copied());
        let earlier = self.offers.len().checked_sub(2).map(|at| self.offers[at]);
        // Numbers begin with the time, which may stand still here between two processes.
        let earlier = earlier.filter(|_| earlier != last);
        let answer = |world: &mut Self, offer: Option<u64>, answer| {
            if let (Some(arena), Some(offer)) = (&world.arena, offer) {
                arena.say(&mut world.rig, |writer| writer.answer(session, offer, answer));
            }
        };
        match step {
            Step::Ask | Step::AskToBeHeard => {
                let confirms = step == Step::AskToBeHeard;
                let asked = Move { confirms, ..wanted(session) };
                if let Some(lobby) = &self.lobby {
                    lobby.say(&mut self.rig, |writer| writer.move_session(&asked));
                    self.expect_offer(confirms);
                }
            }
            Step::Order => {
                let order = Arc::new(MoveOrder::new(session, ARENA, 500));
                self.rig.mail(Mail::Move(Arc::from([Arc::clone(&order)])));
                self.rig.turn();
                self.order = Some(order);
                self.expect_offer(false);
            }
            Step::Yes => {
                answer(self, last, Answer::Yes);
                if self.arena.is_some()
                    && let At::Offered(is_heard) = self.at
                {
                    self.at = if is_heard { At::Unheard } else { At::Arena };
                }
            }
            Step::No => {
                answer(self, last, Answer::No);
                self.end_offer();
            }
            Step::StaleYes => answer(self, earlier, Answer::Yes),
            Step::Heard => {
                if let Some(lobby) = &self.lobby {
                    lobby.say(&mut self.rig, |writer| writer.confirm(session));
                    self.open();
                }
            }
            Step::Time => {
                self.player.live(&mut self.rig, 520);
                self.end_offer();
                self.open();
            }
            Step::LobbyDies => self.die([true, false]),
            Step::ArenaDies => self.die([false, true]),
            Step::BothDie => self.die([true, true]),
            Step::Return => self.come_again(),
            Step::LobbyCloses | Step::ArenaCloses => {
                let is_its = match step {
                    Step::ArenaCloses => self.at == At::Arena,
                    _ => matches!(self.at, At::Lobby | At::Offered(_)),
                };
                let game = if step == Step::ArenaCloses { &self.arena } else { &self.lobby };
                if let Some(game) = game {
                    game.say(&mut self.rig, |w| w.close(session, CloseReason::Kicked));
                    if is_its {
                        self.at = At::Nowhere;
                    }
                }
            }
            Step::Kick => {
                let wanted = Wanted { client_id: Some(1), ..Wanted::default() };
                let survey = Survey::new(wanted, Some(Ended::ByOperator), 1, 1);
                self.rig.mail(Mail::Survey(Arc::new(survey)));
                self.rig.pass(30);
                self.at = At::Nowhere;
            }
            Step::Leave => {
                if !self.player.library.is_over() && self.at != At::Nowhere {
                    self.player.leave(&mut self.rig);
                }
                self.at = At::Nowhere;
            }
            Step::Drain | Step::TakeAway => {
                let mut setup = (*self.rig.host.gate().common.setup).clone();
                let arena = &mut setup.backends[ARENA];
                *if step == Step::Drain { &mut arena.drained } else { &mut arena.retired } = true;
                self.is_taken_away |= step == Step::TakeAway;
                self.rig.mail(Mail::Setup(Arc::new(setup)));
                self.rig.turn();
                self.is_shut = true;
                self.end_offer();
            }
            Step::HandOver => self.rig.hand_over(),
        }
        self.rig.turn();
    }

    /// Whose links are lost before the gateway has looked at any of them.
    fn die(&mut self, who: [bool; 2]) {
        let games = [&mut self.lobby, &mut self.arena].into_iter().zip(who);
        let gone: Vec<_> = games.filter_map(|(it, dies)| it.take_if(|_| dies)).collect();
        if gone.is_empty() {
            return;
        }
        for game in gone {
            game.crash_unseen(&mut self.rig);
        }
        self.rig.turn();
        let is_gone = self.lobby.is_none();
        self.believes = [0, 1].map(|it| self.believes[it] && !who[it]);
        self.end_offer();
        if is_gone {
            self.open();
        }
    }

    /// A process that is gone comes again, and hears of the player that it has a moment later.
    fn come_again(&mut self) {
        let is_whole = self.lobby.is_some() && (self.arena.is_some() || self.is_taken_away);
        if self.lobby.is_none() {
            self.lobby = Some(Game::join(&mut self.rig, "lobby"));
        }
        if self.arena.is_none() && !self.is_taken_away {
            self.arena = Some(Game::join(&mut self.rig, "arena"));
        }
        if !is_whole {
            self.player.live(&mut self.rig, 200);
        }
    }

    fn expect_offer(&mut self, is_heard: bool) {
        if self.at == At::Lobby && self.lobby.is_some() && self.arena.is_some() && !self.is_shut {
            self.at = At::Offered(is_heard);
        }
    }

    fn end_offer(&mut self) {
        if matches!(self.at, At::Offered(_)) {
            self.at = At::Lobby;
        }
    }

    fn open(&mut self) {
        if self.at == At::Unheard {
            self.at = At::Arena;
        }
    }

    /// Holds everything against the model.
    fn judge(&mut self) {
        self.hear();
        let slots = match self.at {
            At::Lobby => [1, 0],
            At::Offered(_) => [1, 1],
            At::Unheard | At::Arena => [0, 1],
            At::Nowhere => [0, 0],
        };
        assert_eq!(players(&self.rig), slots, "{:?}", self.at);
        assert_eq!(
            self.rig.host.gate().common.claims.offers(ARENA),
            u32::from(matches!(self.at, At::Offered(_)))
        );
        let sessions = usize::from(self.at != At::Nowhere);
        assert_eq!(self.rig.sessions(), sessions, "{:?}", self.at);
        let believes = match self.at {
            At::Lobby | At::Offered(_) => [self.lobby.is_some(), false],
            At::Arena => [false, self.arena.is_some()],
            At::Unheard | At::Nowhere => [false, false],
        };
        assert_eq!(self.believes, believes, "{:?}", self.at);
        if matches!(self.at, At::Offered(_)) {
            return;
        }
        if let Some(order) = &self.order
            && std::env::var_os("REHEARSE_HAND_OVER").is_none()
        {
            assert!(order.outcome().is_some() || Arc::strong_count(order) == 1);
        }
        let is_moving = !self.rig.host.gate().common.moves.is_empty();
        assert_eq!(is_moving, self.at == At::Unheard);
    }

    fn hear(&mut self) {
        let session = self.session;
        for (which, game) in [&self.lobby, &self.arena].into_iter().enumerate() {
            let Some(game) = game else { continue };
            for heard in game.hear(&mut self.rig) {
                match heard {
                    Heard::Opened(guest) => {
                        assert!(!self.believes[which], "opened once");
                        assert_eq!(guest.session, session);
                        self.believes[which] = true;
                    }
                    Heard::Moved(..) | Heard::Closed(..) => {
                        assert!(self.believes[which], "{heard:?} of what it has");
                        self.believes[which] = false;
                    }
                    Heard::Offered(offer) => self.offers.push(offer.number),
                    _ => {}
                }
            }
        }
    }

    /// Whoever has the player can say something to it, and nobody else.
    fn play(&mut self) {
        if self.player.library.is_over() || self.at == At::Nowhere {
            return;
        }
        self.player.send(&mut self.rig, b"up");
        let mut got = [false, false];
        for (which, game) in [&self.lobby, &self.arena].into_iter().enumerate() {
            let Some(game) = game else { continue };
            got[which] = game.payloads(&mut self.rig).contains(&b"up".to_vec());
            game.say(&mut self.rig, |writer| writer.payload(self.session, &[which as u8]));
        }
        assert_eq!(got, self.believes, "{:?}", self.at);
        self.player.receive(&mut self.rig);
        let said = [0_u8, 1].map(|which| self.player.got.contains(&vec![which]));
        assert_eq!(said, self.believes, "{:?}", self.at);
        self.player.got.clear();
    }
}

fn run(steps: &[Step]) {
    let mut world = World::new();
    for step in steps {
        world.step(*step);
        world.judge();
    }
    world.play();
}

/// Every order of two behind what begins a move, and behind what has come of one.
#[test]
fn in_every_order_the_player_is_with_one_or_nowhere() {
    for before in [
        &[][..],
        &[Step::Ask],
        &[Step::AskToBeHeard],
        &[Step::Order],
        &[Step::Ask, Step::Yes],
        &[Step::AskToBeHeard, Step::Yes],
        &[Step::AskToBeHeard, Step::HandOver, Step::Yes, Step::HandOver],
        &[Step::Ask, Step::No, Step::AskToBeHeard],
        &[Step::Ask, Step::BothDie, Step::Return],
    ] {
        for first in STEPS {
            for second in STEPS {
                let steps = [before, &[first, second]].concat();
                let ran = std::panic::catch_unwind(|| run(&steps));
                assert!(ran.is_ok(), "{steps:?}");
            }
        }
    }
}

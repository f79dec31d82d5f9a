//! Sessions that go from one gateway to another: two local workers of an agent, one for each
//! gateway, and a game process that is linked to both and notices nothing.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use ringgate_link::bundle::{ArbiterReply, ClusterClaim, Clustered, FromArbiter, Plays, Standing};

use super::*;
use crate::protocol::arbitration::Arbitration;

const ID: [u8; 16] = [7; 16];
const UNTIL_S: u64 = 1000;

/// The agent: a relay for each gateway, and what is under way between them.
struct Agent {
    arbitration: Arc<Arbitration>,
    relays: [Relay; 2],
    games: [Game; 2],
    links: [u16; 2],
    /// What has been done, by whom.
    done: Vec<String>,
    /// Sessions of which no payload is to come any more, by whom.
    not_held: Vec<(usize, SessionId)>,
}

/// A tenure of a gateway, as records have it.
const fn of(term: u32, incarnation: u32) -> u32 {
    term << 16 | incarnation
}

/// What a gateway calls its session, and the agent.
fn there() -> SessionId {
    SessionId::from_u64((THERE as u64) << 56 | 9).expect("it is not 0")
}

fn here(at: usize) -> SessionId {
    SessionId::from_u64((at as u64 + 1) << 56 | 9).expect("it is not 0")
}

impl Agent {
    fn new() -> Self {
        let arbitration = Arc::<Arbitration>::default();
        let names = vec!["arena-1".to_owned(), "arena-2".to_owned()];
        let mut relays = [1, 2].map(|worker| Relay::new(worker, 3, 77, names.clone()));
        let both = relays.each_mut().map(|relay| {
            relay.arbitrate_with(Arc::clone(&arbitration));
            let_in(relay)
        });
        let (games, links) = (both.map(|it| it.0), both.map(|it| it.1));
        Self { arbitration, relays, games, links, done: Vec::new(), not_held: Vec::new() }
    }

    /// Has a relay act, and others what it passes to them.
    fn with(&mut self, at: usize, with: impl FnOnce(&mut Relay, &mut dyn FnMut(Action<'_>))) {
        type Parcel = (usize, Box<dyn Fn(&mut Relay, &mut dyn FnMut(Action<'_>))>);
        let mut passed = VecDeque::<Parcel>::new();
        let Self { relays, done, not_held, .. } = self;
        let mut note = |at: usize, act: Action<'_>, passed: &mut VecDeque<Parcel>| match act {
            Action::Pass(worker, it) => {
                let (kind, bytes) = match it {
                    Passed::HomeLost(link) => {
                        let lost = move |relay: &mut Relay, act: &mut dyn FnMut(Action<'_>)| {
                            relay.handle_passed(&Passed::HomeLost(link), act);
                        };
                        return passed.push_back((worker - 1, Box::new(lost)));
                    }
                    Passed::ForGame(game, turn, frame) => ((0, game, u16::from(turn), None), frame),
                    Passed::FromGame(link, frame) => ((1, Game::at(0), link, None), frame),
                    Passed::Fenced(link, it, frame) => ((2, Game::at(0), link, it), frame),
                };
                let bytes = bytes.bytes().to_vec();
                let parcel = move |relay: &mut Relay, act: &mut dyn FnMut(Action<'_>)| {
                    let frame = frame(&bytes);
                    let it = match kind {
                        (0, game, turn, _) => Passed::ForGame(game, turn as u8, frame),
                        (1, _, link, _) => Passed::FromGame(link, frame),
                        (_, _, link, it) => Passed::Fenced(link, it, frame),
                    };
                    relay.handle_passed(&it, act);
                };
                passed.push_back((worker - 1, Box::new(parcel)));
            }
            Action::NotHeld(session) => not_held.push((at, session)),
            act => done.push(format!("{at} {}", in_words(act))),
        };
        with(&mut relays[at], &mut |act| note(at, act, &mut passed));
        while let Some((at, parcel)) = passed.pop_front() {
            let mut more = VecDeque::new();
            parcel(&mut relays[at], &mut |act| note(at, act, &mut more));
            passed.extend(more);
        }
    }

    /// A gateway says something; what was done since.
    fn says(&mut self, at: usize, write: impl Fn(&mut Writer<'_>) -> bool) -> Vec<String> {
        let (bundle, link) = (bundle(write), self.links[at]);
        let frames = || Frames::new(&bundle).map(|it| it.expect("own"));
        self.with(at, |relay, act| {
            for frame in frames() {
                relay.handle_record(link, frame, &mut *act).expect("it is no break");
            }
        });
        std::mem::take(&mut self.done)
    }

    /// The game process says something at one of its links.
    fn plays(&mut self, at: usize, write: impl Fn(&mut Writer<'_>) -> bool) -> Vec<String> {
        let (bundle, game) = (bundle(write), self.games[at]);
        self.with(at, |relay, act| relay.handle_bundle(game, &bundle, act));
        std::mem::take(&mut self.done)
    }

    fn announces(&mut self, at: usize, tenure: u32) -> Vec<String> {
        let it = Clustered {
            session: there(),
            id: ID,
            tenure,
            token_until_s: UNTIL_S,
            timeout_ms: 10_000,
            delivery: None,
        };
        let user_data = [0; USER_DATA_BYTES];
        self.says(at, |writer| {
            writer.clustered(&it) && writer.opened(&with_token(there(), &user_data))
        })
    }

    fn takes(&mut self, at: usize, tenure: u32, over: u32) -> Vec<String> {
        let it = ClusterClaim { id: ID, tenure, over, timeout_ms: 10_000, is_offered: true };
        self.says(at, |writer| writer.claim(&it))
    }

    fn claims(&mut self, at: usize, tenure: u32, over: u32) -> Vec<String> {
        let it = ClusterClaim { id: ID, tenure, over, timeout_ms: 10_000, is_offered: false };
        self.says(at, |writer| writer.claim(&it))
    }

    fn brings(&mut self, at: usize, number: u64) -> Vec<String> {
        self.says(at, |writer| writer.numbered(there(), number, b"hi"))
    }

    fn loses_link(&mut self, at: usize) -> Vec<String> {
        let game = self.games[at];
        self.with(at, |relay, act| relay.disconnect(game, act));
        std::mem::take(&mut self.done)
    }

    fn loses_lane(&mut self, at: usize) -> Vec<String> {
        self.with(at, |relay, act| relay.handle_lane_lost(act));
        std::mem::take(&mut self.done)
    }
}

fn in_words(act: Action<'_>) -> String {
    let name = |session: SessionId| session.as_u64() >> 56;
    match act {
        Action::Deliver(Game(1), frame) => {
            format!("next {}", in_words(Action::Deliver(Game(0), frame)))
        }
        Action::Deliver(_, frame) => match ToGame::decode(frame).expect("readable") {
            ToGame::Opened(it) => format!("opened {}", name(it.session)),
            ToGame::Moved { session, .. } => format!("moved {}", name(session)),
            ToGame::MoveRefused { session, ticket, .. } => {
                format!("not moved {} by {ticket}", name(session))
            }
            ToGame::OpenedPlain(it) => format!("opened {} with {:?}", name(it.session), it.slot),
            ToGame::Payload { session, .. } => format!("hears of {}", name(session)),
            ToGame::Closed { session, .. } => format!("closed {}", name(session)),
            ToGame::Quality { session, .. } => format!("quality {}", name(session)),
            other => format!("hears {other:?}"),
        },
        Action::Forget(..) => "forgets".to_owned(),
        Action::HangUp(_) => "hung up".to_owned(),
        Action::Tell(_, frame) => match FromArbiter::decode(frame) {
            Some(FromArbiter::Standing(Standing { tenure, reply, .. })) => match reply {
                ArbiterReply::Granted(_) => format!("granted {}", tenure >> 16),
                ArbiterReply::Fenced { holder } => {
                    format!("fenced {} by {}", tenure >> 16, holder >> 16)
                }
                ArbiterReply::Second { first, holder } => {
                    format!("second {} of {} by {}", tenure >> 16, first[0], holder >> 16)
                }
                other => format!("{other:?} {}", tenure >> 16),
            },
            Some(FromArbiter::Sure(number)) => format!("sure of {number}"),
            _ => match ToGateway::decode(frame).expect("readable") {
                ToGateway::Close { .. } => "asked to close".to_owned(),
                ToGateway::AskQuality { .. } => "asked for quality".to_owned(),
                other => format!("told {other:?}"),
            },
        },
        Action::Push(_, frame) => match ToGateway::decode(frame).expect("readable") {
            ToGateway::Payload { session, .. } => {
                assert_eq!(session, there());
                "sent".to_owned()
            }
            other => format!("sent {other:?}"),
        },
        Action::End(_) => "link ended".to_owned(),
        Action::Pass(..) | Action::NotHeld(_) => unreachable!("it was taken out"),
    }
}

#[test]
fn a_session_goes_to_another_gateway_and_its_game_process_notices_nothing() {
    let mut agent = Agent::new();
    assert_eq!(agent.announces(0, of(1, 11)), ["0 opened 1"]);
    assert_eq!(agent.brings(0, 5), ["0 hears of 1"]);
    assert!(agent.brings(0, 5).is_empty(), "once");
    assert_eq!(agent.plays(0, |it| it.payload(here(0), b"yo")), ["0 sent"]);

    // The first gateway dies: the game process is told nothing, and what it says goes nowhere.
    assert!(agent.loses_lane(0).is_empty());
    assert!(agent.plays(0, |it| it.payload(here(0), b"yo")).is_empty());
    assert_eq!(agent.relays[0].dropped().lane_down, 1);

    // The second one takes the session over, and the process plays on with it as before.
    assert_eq!(agent.claims(1, of(2, 12), of(1, 11)), ["1 granted 2"]);
    assert_eq!(agent.claims(1, of(2, 12), of(1, 11)), ["1 granted 2"], "it asks again");
    assert!(agent.announces(1, of(2, 12)).is_empty());
    assert!(agent.brings(1, 5).is_empty(), "by whichever gateway it comes");
    assert_eq!(agent.brings(1, 6), ["0 hears of 1"]);
    assert_eq!(agent.plays(0, |it| it.payload(here(0), b"yo")), ["1 sent"]);
    assert_eq!(agent.plays(0, |it| it.ask_quality(here(0))), ["1 asked for quality"]);
    let quality = Quality::default();
    assert_eq!(agent.says(1, |it| it.quality(there(), &quality)), ["0 quality 1"]);
    assert_eq!(agent.plays(0, |it| it.multicast(&[here(0)], b"all")), ["1 sent"]);
    assert_eq!(agent.plays(0, |it| it.close(here(0), CloseReason::Kicked)), ["1 asked to close"]);
    let closed = agent.says(1, |it| it.closed(there(), CloseReason::Kicked));
    assert_eq!(closed, ["0 closed 1", "0 hung up"], "it was kept for that session alone");

    // Nobody brings it back.
    assert_eq!(agent.claims(1, of(3, 12), of(2, 12)), ["1 Ended 3"]);
    assert_eq!(agent.announces(1, of(1, 13)), ["1 Ended 1"]);
    assert_eq!(agent.arbitration.counts(), [0, 0, 1]);
}

/// Its datagrams have no numbers: what comes by another gateway than its own goes no further.
#[test]
fn a_plain_session_goes_to_another_gateway_too() {
    let mut agent = Agent::new();
    let says = |agent: &mut Agent, at: usize, session: SessionId, slot: Option<u32>| {
        agent.says(at, |it| it.opened_plain(&OpenedPlain { slot, ..opened(session) }))
    };
    let names = |agent: &mut Agent, at: usize, tenure: u32| {
        let (session, token_until_s, timeout_ms) = (there(), UNTIL_S, 10_000);
        let it = Clustered { session, id: ID, tenure, token_until_s, timeout_ms, delivery: None };
        let said = agent.says(at, |writer| writer.clustered(&it));
        assert!(said.is_empty(), "{said:?}");
    };
    let brings = |agent: &mut Agent, at: usize| agent.says(at, |it| it.payload(there(), b"hi"));
    assert_eq!(says(&mut agent, 0, there(), None), ["0 opened 1 with None"]);
    assert_eq!(brings(&mut agent, 0), ["0 hears of 1"]);
    names(&mut agent, 0, of(1, 11));
    assert_eq!(says(&mut agent, 0, there(), Some(0)), ["0 opened 1 with Some(0)"]);
    assert_eq!([brings(&mut agent, 0), brings(&mut agent, 0)].concat(), ["0 hears of 1"; 2]);
    // It is given away: what its owner has on its way is taken, and nothing after that.
    assert_eq!(agent.takes(1, of(2, 12), of(1, 11)), ["1 granted 2", "0 fenced 1 by 2"]);
    assert_eq!(brings(&mut agent, 0), ["0 hears of 1"]);
    agent.says(0, |it| it.given(&ID, of(1, 11)));
    names(&mut agent, 1, of(2, 12));
    assert!(says(&mut agent, 1, there(), Some(3)).is_empty(), "the process knows it");
    assert_eq!(brings(&mut agent, 1), ["0 hears of 1"]);
    // It is taken from one that cannot be reached.
    assert_eq!(agent.claims(0, of(3, 11), of(2, 12)), ["0 granted 3", "1 fenced 2 by 3"]);
    names(&mut agent, 0, of(3, 11));
    assert!(says(&mut agent, 0, there(), Some(0)).is_empty());
    assert_eq!(brings(&mut agent, 1), [""; 0]);
    assert_eq!(brings(&mut agent, 0), ["0 hears of 1"]);
    // A source without a slot is over with its gateway, and the process hears so.
    let waiting = SessionId::from_u64((THERE as u64) << 56 | 8).expect("it is not 0");
    assert_eq!(says(&mut agent, 0, waiting, None), ["0 opened 1 with None"]);
    assert_eq!(agent.loses_lane(0), ["0 forgets"]);
}

/// Two gateways begin with one player: neither has heard of the other's session.
#[test]
fn of_a_player_who_is_an_address_the_process_has_one_session() {
    const OTHER: [u8; 16] = [8; 16];
    let plays = |agent: &mut Agent, at: usize, id: [u8; 16], tenure: u32| {
        let it = Plays { session: there(), id, tenure, player: [5; 16] };
        let said = agent.says(at, |writer| writer.plays(&it));
        assert!(said.is_empty(), "{said:?}");
    };
    let opens = |agent: &mut Agent, at: usize, slot: Option<u32>| {
        agent.says(at, |it| it.opened_plain(&OpenedPlain { slot, ..opened(there()) }))
    };
    let names = |agent: &mut Agent, at: usize, id: [u8; 16], tenure: u32| {
        let (session, token_until_s, timeout_ms) = (there(), UNTIL_S, 10_000);
        let it = Clustered { session, id, tenure, token_until_s, timeout_ms, delivery: None };
        agent.says(at, |writer| writer.clustered(&it))
    };
    let brings = |agent: &mut Agent, at: usize| agent.says(at, |it| it.payload(there(), b"hi"));
    let closes = |agent: &mut Agent, at: usize| {
        agent.says(at, |it| it.closed(there(), CloseReason::TimedOut))
    };
    let mut agent = Agent::new();
    for (at, id) in [ID, OTHER].into_iter().enumerate() {
        plays(&mut agent, at, id, of(1, 11 + at as u32));
        assert_eq!(opens(&mut agent, at, None), [format!("{at} opened {} with None", at + 1)]);
        assert_eq!(brings(&mut agent, at), [format!("{at} hears of {}", at + 1)]);
    }
    plays(&mut agent, 0, ID, of(1, 11));
    assert!(names(&mut agent, 0, ID, of(1, 11)).is_empty());
    assert_eq!(opens(&mut agent, 0, Some(0)), ["0 opened 1 with Some(0)"]);
    // What the other one brings is nothing for the process from then on, which hears so once.
    assert_eq!(brings(&mut agent, 1), ["1 second 1 of 7 by 1", "1 closed 2"]);
    assert!(brings(&mut agent, 1).is_empty());
    plays(&mut agent, 1, OTHER, of(1, 12));
    assert_eq!(opens(&mut agent, 1, None), ["1 second 1 of 7 by 1"]);
    assert!(brings(&mut agent, 1).is_empty());
    plays(&mut agent, 1, OTHER, of(1, 12));
    assert_eq!(names(&mut agent, 1, OTHER, of(1, 12)), ["1 second 1 of 7 by 1"]);
    assert!(opens(&mut agent, 1, Some(0)).is_empty() && brings(&mut agent, 1).is_empty());
    assert_eq!(brings(&mut agent, 0), ["0 hears of 1"]);
    // One that has a slot by the time is known to the process, too.
    let (mut other, mut both) = (Agent::new(), [ID, OTHER].into_iter().enumerate());
    both.by_ref().for_each(|(at, id)| {
        plays(&mut other, at, id, of(1, 11 + at as u32));
        opens(&mut other, at, None);
    });
    plays(&mut other, 0, ID, of(1, 11));
    assert!(names(&mut other, 0, ID, of(1, 11)).is_empty());
    opens(&mut other, 0, Some(0));
    plays(&mut other, 1, OTHER, of(1, 12));
    let refused = names(&mut other, 1, OTHER, of(1, 12));
    assert_eq!(refused, ["1 second 1 of 7 by 1", "1 closed 2"]);
    assert!(opens(&mut other, 1, Some(0)).is_empty());
    // Its gateway is lost, and the other one goes on with the first session.
    agent.loses_lane(0);
    plays(&mut agent, 1, OTHER, of(1, 12));
    assert_eq!(opens(&mut agent, 1, None), ["1 second 1 of 7 by 1"]);
    assert_eq!(agent.claims(1, of(2, 12), of(1, 11)), ["1 granted 2"]);
    plays(&mut agent, 1, ID, of(2, 12));
    assert!(names(&mut agent, 1, ID, of(2, 12)).is_empty());
    assert!(opens(&mut agent, 1, Some(0)).is_empty(), "the process knows it");
    assert_eq!(brings(&mut agent, 1), ["0 hears of 1"]);
    // Once that is over the player begins anew.
    assert_eq!(closes(&mut agent, 1), ["0 closed 1", "0 hung up"]);
    plays(&mut agent, 1, OTHER, of(1, 12));
    assert_eq!(opens(&mut agent, 1, None), ["1 opened 2 with None"]);
    assert_eq!(brings(&mut agent, 1), ["1 hears of 2"]);
    // Of those that have no slot nothing is kept.
    assert_eq!(closes(&mut agent, 1), ["1 closed 2"]);
    assert!(agent.relays[1].clusters.waiting.is_empty());
    plays(&mut agent, 1, OTHER, of(1, 12));
    agent.loses_link(1);
    assert!(agent.relays[1].clusters.waiting.is_empty());
}

#[test]
fn who_wakes_late_is_fenced_and_ends_nothing() {
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    // It is connected all the time, and only slept.
    let claimed = agent.claims(1, of(2, 12), of(1, 11));
    assert_eq!(claimed, ["1 granted 2", "0 fenced 1 by 2"]);
    assert!(agent.brings(0, 9).is_empty());
    assert!(agent.says(0, |it| it.closed(there(), CloseReason::TimedOut)).is_empty());
    assert_eq!(agent.announces(0, of(1, 11)), ["0 fenced 1 by 2"]);
    assert_eq!(agent.relays[0].refused_packets().session_over, 1);
    agent.announces(1, of(2, 12));
    assert_eq!(agent.brings(1, 9), ["0 hears of 1"], "what the first has brought does not count");
    // Terms only grow, and who claims has to know whose it was.
    assert_eq!(agent.claims(0, of(2, 11), of(2, 12)), ["0 fenced 2 by 2"]);
    assert_eq!(agent.claims(0, of(3, 11), of(1, 11)), ["0 fenced 3 by 2"]);
    let back = agent.claims(0, of(3, 11), of(2, 12));
    assert_eq!(back, ["0 granted 3", "1 fenced 2 by 3"]);
    assert!(agent.announces(0, of(3, 11)).is_empty());
    assert_eq!(agent.brings(0, 10), ["0 hears of 1"]);
    assert_eq!(agent.plays(0, |it| it.payload(here(0), b"yo")), ["0 sent"]);
}

/// The second gateway has taken the session over from the first, which does not know, by an agent
/// that has begun anew since.
#[test]
fn a_gateway_that_comes_with_a_later_term_has_the_session_whoever_came_first() {
    let mut agent = Agent::new();
    assert_eq!(agent.announces(0, of(1, 11)), ["0 opened 1"]);
    assert_eq!(agent.brings(0, 5), ["0 hears of 1"]);
    assert_eq!(agent.announces(1, of(2, 12)), ["0 fenced 1 by 2"]);
    assert!(agent.brings(0, 6).is_empty());
    assert_eq!(agent.brings(1, 6), ["0 hears of 1"]);
    assert_eq!(agent.plays(0, |it| it.payload(here(0), b"yo")), ["1 sent"]);
    assert_eq!(agent.announces(0, of(1, 11)), ["0 fenced 1 by 2"]);
    assert_eq!(agent.arbitration.counts(), [1, 0, 1]);
}

#[test]
fn who_takes_a_session_hears_that_the_game_process_has_ended_it_meanwhile() {
    for is_announced in [true, false] {
        let mut agent = Agent::new();
        agent.announces(0, of(1, 11));
        agent.takes(1, of(2, 12), of(1, 11));
        if is_announced {
            agent.announces(1, of(2, 12));
        }
        let ended = agent.plays(0, |it| it.close(here(0), CloseReason::Kicked));
        let ended = ended.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(ended, ["0 closed 1", "1 Ended 2"]);
        assert!(agent.relays.iter().all(|relay| relay.clusters.homes.is_empty()));
    }
}

#[test]
fn nothing_is_lost_of_a_session_that_its_gateway_gives_away() {
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    assert_eq!(agent.takes(1, of(2, 12), of(1, 11)), ["1 granted 2", "0 fenced 1 by 2"]);
    // What the first had on its way is handed over.
    assert_eq!(agent.brings(0, 5), ["0 hears of 1"]);
    assert!(agent.brings(0, 5).is_empty() && agent.relays[0].refused_packets().replayed == 1);
    // What the game process says waits until the first has said its last word, and the second is
    // there.
    let gives = |agent: &mut Agent, at, by| agent.says(at, |it| it.given(&ID, by));
    assert!(agent.plays(0, |it| it.payload(here(0), b"yo")).is_empty());
    assert!(agent.announces(1, of(2, 12)).is_empty());
    assert!(agent.plays(0, |it| it.ask_quality(here(0))).is_empty());
    assert_eq!(gives(&mut agent, 0, of(1, 11)), ["1 sent", "1 asked for quality"]);
    assert_eq!(agent.plays(0, |it| it.payload(here(0), b"yo")), ["1 sent"]);
    assert_eq!(agent.brings(0, 6), ["0 hears of 1"], "it was overtaken");
    assert_eq!(agent.relays.each_ref().map(|it| it.dropped().lane_down), [0, 0]);
    // That has bounds.
    agent.takes(0, of(3, 11), of(2, 12));
    assert!(gives(&mut agent, 1, of(2, 12)).is_empty());
    for _ in 0..70 {
        agent.plays(0, |it| it.payload(here(0), b"yo"));
    }
    assert_eq!(agent.relays[0].dropped().lane_down, 6);
    assert_eq!(agent.announces(0, of(3, 11)).len(), 64);
    // A gateway that says no last word is heard for a moment, and then told again.
    agent.takes(1, of(4, 12), of(3, 11));
    agent.announces(1, of(4, 12));
    assert!(agent.plays(0, |it| it.payload(here(0), b"yo")).is_empty());
    assert_eq!(agent.brings(0, 9), ["0 hears of 1"]);
    agent.arbitration.pass_time(10, 10);
    assert_eq!(agent.plays(0, |it| it.ask_quality(here(0))), ["1 sent", "1 asked for quality"]);
    assert_eq!(agent.brings(0, 10), ["0 fenced 3 by 4"]);
    assert!(agent.brings(0, 11).is_empty());
    // What waits for a gateway that is lost before it was there is gone.
    agent.takes(0, of(5, 11), of(4, 12));
    agent.plays(0, |it| it.payload(here(0), b"yo"));
    agent.loses_lane(0);
    assert_eq!((agent.arbitration.lost(), agent.arbitration.take_lost()), (1, 1));
    assert_eq!(agent.claims(1, of(6, 12), of(5, 11)), ["1 granted 6"]);
    assert!(agent.announces(1, of(6, 12)).is_empty());
}

#[test]
fn nothing_more_is_to_come_of_a_session_that_its_gateway_does_not_have() {
    let mut agent = Agent::new();
    let not_held = |agent: &mut Agent| std::mem::take(&mut agent.not_held);
    agent.announces(0, of(1, 11));
    assert!(not_held(&mut agent).is_empty());
    agent.claims(1, of(2, 12), of(1, 11));
    assert_eq!(not_held(&mut agent), [(0, there())], "it was told");
    agent.announces(0, of(1, 11));
    assert_eq!(not_held(&mut agent), [(0, there())], "it has announced it again");
    agent.announces(1, of(2, 12));
    agent.takes(0, of(3, 11), of(2, 12));
    assert!(not_held(&mut agent).is_empty(), "what it has on its way is taken");
    agent.arbitration.pass_time(10, 10);
    agent.brings(1, 9);
    assert_eq!(not_held(&mut agent), [(1, there())]);
    agent.loses_lane(0);
    assert!(not_held(&mut agent).is_empty());
}

#[test]
fn who_found_no_slot_before_its_gateway_was_lost_may_find_one_afterwards() {
    let (mut agent, rolls, user_data) = (Agent::new(), Arc::new(Rolls::default()), [0; 256]);
    rolls.set_slots([("arena-1", 1)]);
    agent.relays[0].count_in(rolls, "gate-1:7200".into());
    assert_eq!(agent.announces(0, of(1, 11)), ["0 opened 1"]);
    let [second, third] = [10, 11].map(|serial| SessionId::new(THERE, serial));
    let opens = |agent: &mut Agent, session: SessionId| {
        agent.says(0, |it| it.opened(&with_token(session, &user_data)))
    };
    let (session, id, tenure, token_until_s) = (third, [8; 16], of(1, 11), UNTIL_S);
    let it = Clustered { session, id, tenure, token_until_s, timeout_ms: 10, delivery: None };
    assert!(agent.says(0, |writer| writer.clustered(&it)).is_empty());
    for session in [second, third] {
        assert_eq!(opens(&mut agent, session), ["0 asked to close"]);
    }
    assert_eq!(agent.arbitration.counts(), [2, 0, 0]);
    // No gateway takes one of whom the game process has never heard.
    assert!(agent.loses_lane(0).is_empty());
    assert_eq!(agent.arbitration.counts(), [1, 1, 0]);
    agent.with(0, |relay, act| relay.handle_lane(LANE, act));
    agent.done.clear();
    assert_eq!(agent.plays(0, |it| it.close(here(0), CloseReason::Kicked)), ["0 closed 1"]);
    assert_eq!(opens(&mut agent, second), ["0 opened 1"]);
    assert_eq!(agent.says(0, |it| it.payload(second, b"hi")), ["0 hears of 1"]);
    let closed = agent.says(0, |it| it.closed(second, CloseReason::PlayerLeft));
    assert_eq!(closed, ["0 closed 1"]);
}

#[test]
fn a_session_is_over_for_all_where_a_gateway_says_so_that_has_had_it() {
    let over = |agent: &mut Agent, at, by| agent.says(at, |it| it.over(&ID, by));
    for is_announced in [true, false] {
        let mut agent = Agent::new();
        agent.announces(0, of(1, 11));
        agent.claims(1, of(2, 12), of(1, 11));
        if is_announced {
            agent.announces(1, of(2, 12));
        }
        assert_eq!(over(&mut agent, 0, of(3, 11)), ["0 Ended 3"], "nobody has had that");
        let mut told = over(&mut agent, 0, of(1, 11));
        told.sort_unstable();
        assert_eq!(told, ["0 Ended 1", "0 closed 1", "1 Ended 2"]);
        assert_eq!(over(&mut agent, 0, of(1, 11)), ["0 Ended 1"]);
        assert_eq!(agent.claims(0, of(3, 11), of(2, 12)), ["0 Ended 3"]);
        assert!(agent.brings(1, 1).is_empty());
        assert_eq!(agent.arbitration.counts(), [0, 0, 1]);
    }
}

#[test]
fn a_gateway_that_has_slept_hears_of_all_that_is_not_its_own_and_then_that_this_was_all() {
    let mut agent = Agent::new();
    let wakes = |agent: &mut Agent, at, number| agent.says(at, |it| it.woke(number));
    agent.announces(0, of(1, 11));
    assert_eq!(wakes(&mut agent, 0, 5), ["0 sure of 5"]);
    agent.claims(1, of(2, 12), of(1, 11));
    agent.announces(1, of(2, 12));
    // One that was given away is still heard for a moment, and is not its own either.
    agent.takes(0, of(3, 11), of(2, 12));
    agent.announces(0, of(3, 11));
    assert_eq!(wakes(&mut agent, 1, 6), ["1 fenced 2 by 3", "1 sure of 6"]);
    assert_eq!(wakes(&mut agent, 0, 7), ["0 sure of 7"]);
    agent.arbitration.end(ID);
    assert_eq!(wakes(&mut agent, 0, 8), ["0 Ended 3", "0 sure of 8"]);
}

#[test]
fn a_session_whose_gateway_comes_back_goes_on_and_one_that_nobody_takes_ends() {
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    let other = SessionId::from_u64((THERE as u64) << 56 | 0xa).expect("it is not 0");
    let user_data = [0; USER_DATA_BYTES];
    agent.says(0, |it| it.opened(&with_token(other, &user_data)));
    assert_eq!(agent.loses_lane(0), ["0 forgets"], "one that is of no cluster");
    agent.with(0, |relay, act| relay.handle_lane(LANE, act));
    let again = std::mem::take(&mut agent.done);
    assert!(again[0].starts_with("0 told Hello"), "{again:?}");
    assert!(agent.announces(0, of(1, 11)).is_empty(), "the game process knows it");
    assert_eq!(agent.brings(0, 1), ["0 hears of 1"]);

    agent.loses_lane(0);
    assert!(agent.arbitration.pass_time(14, 14).is_empty());
    let [home] = agent.arbitration.pass_time(15, 15)[..] else { panic!("its time is over") };
    assert_eq!((home.worker, home.session), (1, here(0)));
    assert_eq!(agent.claims(1, of(2, 12), of(1, 11)), ["1 Ended 2"]);
    let closed = bundle(|it| it.closed(home.session, CloseReason::TimedOut));
    agent.with(0, |relay, act| {
        relay.handle_passed(&Passed::ForGame(home.game, home.turn, frame(&closed)), act);
    });
    assert_eq!(agent.done, ["0 closed 1", "0 hung up"]);
    assert!(!agent.relays[0].has_homes());
}

#[test]
fn a_game_process_may_end_a_session_without_a_gateway_and_may_die() {
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    agent.loses_lane(0);
    let ended = agent.plays(0, |it| it.close(here(0), CloseReason::Kicked));
    assert_eq!(ended, ["0 closed 1", "0 hung up"]);
    assert_eq!(agent.claims(1, of(2, 12), of(1, 11)), ["1 Ended 2"]);

    // One that loses the link by which it knows a session hears of it by its gateway's own.
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    agent.claims(1, of(2, 12), of(1, 11));
    agent.announces(1, of(2, 12));
    assert_eq!(agent.loses_link(0), ["0 link ended", "1 link ended", "1 hung up"]);
    let game = agent.relays[1].connect().expect("there is room");
    agent.with(1, |relay, act| relay.handle_bundle(game, &bundle(hello("arena-1")), act));
    let link = agent.relays[1].places[game.place()].taken.as_ref().and_then(|it| it.link);
    (agent.links[1], agent.done) = (link.expect("it was introduced"), Vec::new());
    assert_eq!(agent.announces(1, of(2, 12)), ["1 opened 2"]);
    assert_eq!(agent.brings(1, 9), ["1 hears of 2"]);

    // One that dies is not told, and hears of its players at the link that they come by.
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    agent.loses_lane(0);
    assert!(agent.loses_link(0).is_empty());
    assert_eq!(agent.claims(1, of(2, 12), of(1, 11)), ["1 granted 2"]);
    assert_eq!(agent.announces(1, of(2, 12)), ["1 opened 2"]);
    assert_eq!(agent.brings(1, 1), ["1 hears of 2"]);
}

#[test]
fn a_gateway_has_nothing_to_do_with_sessions_of_other_backends_or_that_are_not_there() {
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    let game = agent.relays[1].connect().expect("there is room");
    agent.with(1, |relay, act| relay.handle_bundle(game, &bundle(hello("arena-2")), act));
    let of_other = agent.relays[1].places[game.place()].taken.as_ref().and_then(|it| it.link);
    (agent.links[1], agent.done) = (of_other.expect("it was introduced"), Vec::new());
    assert_eq!(agent.claims(1, of(2, 12), of(1, 11)), ["1 Ended 2"]);
    assert_eq!(agent.announces(1, of(2, 12)), ["1 Ended 2"]);
    assert!(agent.brings(1, 1).is_empty(), "it was never announced");
    assert_eq!(agent.relays[1].refused_packets().session_over, 1);
    assert_eq!(agent.brings(0, 1), ["0 hears of 1"]);
    // One whose gateway may not have heard that it has ended is remembered.
    agent.arbitration.pass_time(UNTIL_S, UNTIL_S);
    agent.arbitration.end(ID);
    agent.arbitration.pass_time(UNTIL_S + 1, UNTIL_S + 1);
    assert_eq!(agent.announces(0, of(1, 11)), ["0 Ended 1"]);
    // One that this agent does not know, and whose token has expired, may have ended.
    agent.arbitration.pass_time(UNTIL_S + 601, UNTIL_S + 601);
    assert_eq!(agent.announces(0, of(1, 11)), ["0 Full 1"]);
    // No tenure has term 0.
    assert!(agent.claims(0, of(0, 12), of(1, 11)).iter().all(|it| it == "0 Ended 0"));
}

const NEXT_ID: [u8; 16] = [8; 16];

impl Agent {
    /// Another game process behind the same lane. Returns its link.
    fn has_next(&mut self, at: usize) -> u16 {
        let relay = &mut self.relays[at];
        let game = relay.connect().expect("there is room");
        from_game(relay, game, hello("arena-2"));
        relay.places[game.place()].taken.as_ref().and_then(|taken| taken.link).expect("a lane")
    }

    /// What a gateway says on another link.
    fn says_on(
        &mut self,
        (at, link): (usize, u16),
        write: impl Fn(&mut Writer<'_>) -> bool,
    ) -> Vec<String> {
        let before = std::mem::replace(&mut self.links[at], link);
        let done = self.says(at, write);
        self.links[at] = before;
        done
    }

    /// A session goes on at the process of that link, and is called so there.
    fn opens_moved(
        &mut self,
        (at, link): (usize, u16),
        (session, id, tenure): (SessionId, [u8; 16], u32),
    ) -> Vec<String> {
        let (token_until_s, timeout_ms) = (UNTIL_S, 10_000);
        let it = Clustered { session, id, tenure, token_until_s, timeout_ms, delivery: None };
        let user_data = [0; USER_DATA_BYTES];
        let opened = Opened { ticket: Some(4), ..with_token(session, &user_data) };
        self.says_on((at, link), |writer| writer.clustered(&it) && writer.opened(&opened))
    }
}

/// The bundles of the two links leave the gateway in any order.
#[test]
fn a_player_who_is_moved_between_processes_of_a_lane_may_be_announced_first() {
    let mut agent = Agent::new();
    let (first, next) = (agent.links[0], agent.has_next(0));
    agent.announces(0, of(1, 11));
    assert_eq!(agent.opens_moved((0, next), (there(), NEXT_ID, of(1, 11))), ["0 next opened 1"]);
    // What is still said on the link of the first is of what it has had.
    assert_eq!(agent.brings(0, 1), ["0 hears of 1"]);
    assert_eq!(
        agent.says_on((0, next), |it| it.numbered(there(), 2, b"hi")),
        ["0 next hears of 1"]
    );
    assert_eq!(agent.says(0, |it| it.moved(there(), 4)), ["0 moved 1"]);
    assert_eq!([0, 1].map(|at| agent.relays[0].players_of(Game(at))), [0, 1]);
    assert_eq!(agent.says(0, |it| it.over(&ID, of(1, 11))), ["0 Ended 1"]);
    assert!(agent.brings(0, 3).is_empty());
    assert_eq!(
        agent.says_on((0, next), |it| it.numbered(there(), 3, b"hi")),
        ["0 next hears of 1"]
    );
    assert_eq!(agent.says(0, |it| it.woke(7)), ["0 sure of 7"]);
    // One comes back, as another goes the other way.
    let other = SessionId::from_u64((THERE as u64) << 56 | 0xa).expect("it is not 0");
    agent.opens_moved((0, first), (other, [9; 16], of(1, 11)));
    assert_eq!(agent.opens_moved((0, next), (other, [10; 16], of(1, 11))), ["0 next opened 1"]);
    assert_eq!(agent.says_on((0, next), |it| it.moved(there(), 5)), ["0 next moved 1"]);
    assert_eq!(agent.opens_moved((0, first), (there(), ID, of(2, 11))), ["0 Ended 2"], "not twice");
    assert_eq!(agent.opens_moved((0, first), (there(), [11; 16], of(1, 11))), ["0 opened 1"]);
    assert_eq!(agent.says(0, |it| it.moved(other, 6)), ["0 moved 1"]);
    let closed = agent.says(0, |it| it.closed(there(), CloseReason::Kicked));
    assert_eq!(closed, ["0 closed 1"]);
    assert_eq!(agent.arbitration.counts(), [1, 0, 0]);
}

/// Each turn a bundle for each of the two links, in any order, or later where a link is full.
#[test]
fn players_who_go_to_and_fro_are_where_their_gateway_has_them_in_every_order() {
    const PLAYERS: usize = 4;
    let mut random = 1_u64;
    for _ in 0..100 {
        let mut agent = Agent::new();
        let links = [agent.links[0], agent.has_next(0)];
        let session = |number: usize| SessionId::new(THERE, 32 + number as u64);
        let mut roll = |sides: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % sides
        };
        let mut under_way: [Vec<Vec<u8>>; 2] = Default::default();
        let mut told: [HashSet<SessionId>; 2] = Default::default();
        let (mut at, mut ids, mut last_id) = ([2; PLAYERS], [[0; 16]; PLAYERS], 0_u8);
        for turn in 0..40 {
            let is_free = under_way.each_ref().map(Vec::is_empty);
            for number in 0..PLAYERS {
                let (from, to) = (at[number], if turn == 0 { number % 2 } else { 1 - at[number] });
                // It was offered there before.
                if !is_free[to] || turn > 0 && roll(3) > 0 {
                    continue;
                }
                last_id += 1;
                (at[number], ids[number]) = (to, [last_id; 16]);
                let (session, id, tenure) = (session(number), ids[number], of(1, 11));
                let (token_until_s, timeout_ms, delivery) = (UNTIL_S, 10_000, None);
                let it = Clustered { session, id, tenure, token_until_s, timeout_ms, delivery };
                let user_data = [0; USER_DATA_BYTES];
                let opened = with_token(session, &user_data);
                if from < 2 {
                    under_way[from].push(bundle(|writer| writer.moved(session, 4)));
                }
                under_way[to].push(bundle(|writer| writer.clustered(&it)));
                under_way[to].push(bundle(|writer| writer.opened(&opened)));
            }
            let first = roll(2) as usize;
            for on in [first, 1 - first] {
                if roll(4) == 0 && turn < 39 {
                    continue;
                }
                for record in under_way[on].drain(..) {
                    let relay = &mut agent.relays[0];
                    let mut note = |act: Action<'_>| {
                        let Action::Deliver(game, frame) = act else { panic!("{act:?}") };
                        let is_new = match ToGame::decode(frame).expect("readable") {
                            ToGame::Opened(it) => told[game.place()].insert(it.session),
                            ToGame::Moved { session, .. } => told[game.place()].remove(&session),
                            other => panic!("{other:?}"),
                        };
                        assert!(is_new, "{game:?} is told once");
                    };
                    relay.handle_record(links[on], frame(&record), &mut note).expect("sound");
                }
            }
        }
        let there = [0, 1].map(|game| at.iter().filter(|at| **at == game).count());
        assert_eq!(told.each_ref().map(HashSet::len), there);
        assert_eq!([0, 1].map(|at| agent.relays[0].players_of(Game(at))), there);
        assert_eq!(agent.arbitration.counts()[0], PLAYERS as u64);
        // Each of them may go on elsewhere.
        agent.loses_lane(0);
        let next = agent.has_next(1);
        for number in 0..PLAYERS {
            let (id, tenure, over) = (ids[number], of(2, 12), of(1, 11));
            let it = ClusterClaim { id, tenure, over, timeout_ms: 10_000, is_offered: false };
            let link = [agent.links[1], next][at[number]];
            let claimed = agent.says_on((1, link), |writer| writer.claim(&it));
            assert_eq!(claimed, ["1 granted 2"]);
        }
    }
}

/// The process that a player has left says nothing of one who is moved, and its gateway is gone.
#[test]
fn a_player_whose_move_is_told_by_half_is_where_it_was_announced_last() {
    for is_link_lost in [false, true] {
        let mut agent = Agent::new();
        let next = agent.has_next(0);
        agent.announces(0, of(1, 11));
        agent.opens_moved((0, next), (there(), NEXT_ID, of(1, 11)));
        if is_link_lost {
            assert_eq!(agent.loses_link(0), ["0 link ended"]);
        } else {
            assert_eq!(agent.loses_lane(0), ["0 hung up"]);
        }
        assert_eq!(agent.claims(1, of(2, 12), of(1, 11)), ["1 Ended 2"]);
        assert_eq!(agent.arbitration.counts()[0], 1);
    }
}

/// The process knows it by the link of the gateway that it has come by first, and that it is moved
/// was not said yet.
#[test]
fn a_process_hears_that_a_moved_player_is_over_whose_gateway_is_gone() {
    for is_link_lost in [false, true] {
        let mut agent = Agent::new();
        let next = agent.has_next(1);
        agent.announces(0, of(1, 11));
        agent.claims(1, of(2, 12), of(1, 11));
        agent.announces(1, of(2, 12));
        agent.opens_moved((1, next), (there(), NEXT_ID, of(2, 12)));
        if is_link_lost {
            assert_eq!(agent.loses_link(1), ["1 link ended", "0 closed 1"]);
        } else {
            assert_eq!(agent.loses_lane(1), ["1 hung up", "0 closed 1"]);
        }
    }
}

/// The process knows it by the link of the gateway that it has come by first.
#[test]
fn a_gateway_that_moves_a_session_of_another_one_hears_that_its_process_has_heard_of_it() {
    let confirmed = format!("1 told {:?}", ToGateway::Confirm { session: there() });
    for is_lost in [false, true] {
        let mut agent = Agent::new();
        let next = agent.has_next(1);
        agent.announces(0, of(1, 11));
        if is_lost {
            agent.loses_lane(0);
        }
        agent.claims(1, of(2, 12), of(1, 11));
        agent.announces(1, of(2, 12));
        let opened = agent.opens_moved((1, next), (there(), NEXT_ID, of(2, 12)));
        assert_eq!(opened, ["1 next opened 2"]);
        let moved = agent.says(1, |it| it.moved(there(), 4));
        if is_lost {
            // Its link was kept for that session alone.
            assert_eq!(moved, ["0 moved 1", "0 hung up", &confirmed]);
        } else {
            assert_eq!(moved, ["0 moved 1"]);
            assert_eq!(agent.plays(0, |it| it.confirm(here(0))), [&*confirmed]);
        }
        let own = format!("0 told {:?}", ToGateway::Confirm { session: there() });
        let again = if is_lost { vec![] } else { vec![own] };
        assert_eq!(agent.plays(0, |it| it.confirm(here(0))), again, "once");
    }
}

#[test]
fn a_game_process_hears_what_becomes_of_each_move_though_its_gateway_does_not_answer() {
    let asks = |agent: &mut Agent, ticket: u64| {
        let (session, backend, time_ms, data) = (here(0), "arena-2", 7, &b""[..]);
        let (confirms, message) = (false, None);
        agent.plays(0, |it| {
            let asked = Move { session, backend, ticket, time_ms, confirms, message, data };
            it.move_session(&asked)
        })
    };
    let refuses = |agent: &mut Agent, at: usize, ticket: u64| {
        agent.says(at, |it| it.move_refused(there(), ticket, MoveRefusal::Time))
    };
    // Its gateway dies, and nobody has the session.
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    assert_eq!(asks(&mut agent, 5).len(), 1);
    assert_eq!(agent.loses_lane(0), ["0 not moved 1 by 5"]);
    assert_eq!(asks(&mut agent, 6), ["0 not moved 1 by 6"]);
    // The next one has it in a moment, and answers.
    agent.claims(1, of(2, 12), of(1, 11));
    assert!(asks(&mut agent, 7).is_empty());
    assert_eq!(agent.announces(1, of(2, 12)).len(), 1, "it is asked");
    assert_eq!(refuses(&mut agent, 1, 7), ["0 not moved 1 by 7"]);
    assert_eq!(agent.loses_lane(1), ["1 hung up"]);
    // Another one takes it, and what the first says comes too late.
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    asks(&mut agent, 5);
    let taken = agent.claims(1, of(2, 12), of(1, 11));
    assert_eq!(taken, ["1 granted 2", "0 fenced 1 by 2", "0 not moved 1 by 5"]);
    assert!(refuses(&mut agent, 0, 5).is_empty());
}

#[test]
fn an_agent_that_is_replaced_goes_on_with_all_of_it() {
    use ringgate_core::carry::{Maps, Reader, Writer as Out};
    let mut agent = Agent::new();
    agent.announces(0, of(1, 11));
    agent.loses_lane(0);
    agent.claims(1, of(2, 12), of(1, 11));
    agent.announces(1, of(2, 12));
    agent.brings(1, 6);
    // One whose source has proven nothing goes on, too: the next process knows nothing of it.
    let waiting = SessionId::from_u64((THERE as u64) << 56 | 8).expect("it is not 0");
    agent.says(1, |it| it.opened_plain(&opened(waiting)));

    let mut memory = vec![0; 1 << 16];
    let mut out = Out::new(&mut memory);
    agent.arbitration.write(&mut out);
    agent.relays.iter().for_each(|relay| {
        relay.write(&mut out);
        relay.write_clusters(&mut out);
    });
    let (len, maps) = (out.len(), Maps::default());
    let read = |len: usize| {
        let mut from = Reader::new(&memory[..len], &maps);
        let arbitration = Arc::new(Arbitration::read(&mut from)?);
        let mut relays = Vec::new();
        for _ in 0..2 {
            let names = vec!["arena-1".to_owned()];
            let mut relay = Relay::read(&mut from, names)?;
            relay.arbitrate_with(Arc::clone(&arbitration));
            relay.read_clusters(&mut from)?;
            relays.push(relay);
        }
        from.end().map(|()| (arbitration, relays))
    };
    for len in 0..len {
        assert!(read(len).is_err(), "{len}");
    }
    let (arbitration, relays) = read(len).expect("it was written");
    let [one, two] = <[Relay; 2]>::try_from(relays).expect("two");
    (agent.arbitration, agent.relays) = (arbitration, [one, two]);
    assert!(agent.brings(1, 6).is_empty(), "it was handed over before");
    assert_eq!(agent.brings(1, 7), ["0 hears of 1"]);
    assert_eq!(agent.plays(0, |it| it.payload(here(0), b"yo")), ["1 sent"]);
    assert_eq!(agent.says(1, |it| it.payload(waiting, b"hi")), ["1 hears of 2"]);
}

#[test]
fn what_a_worker_had_that_is_left_out_of_an_upgrade_is_gone() {
    let both = || {
        let mut agent = Agent::new();
        agent.announces(0, of(1, 11));
        agent.claims(1, of(2, 12), of(1, 11));
        agent.announces(1, of(2, 12));
        agent
    };
    // Its game process is told of the session again, by the link of the gateway that has it.
    let mut agent = both();
    agent.arbitration.keep_workers(&[0, 2]);
    agent.with(1, |relay, act| relay.catch_up(act));
    assert_eq!(std::mem::take(&mut agent.done), ["1 link ended", "1 hung up"]);
    (agent.games[1], agent.links[1]) = let_in(&mut agent.relays[1]);
    assert_eq!(agent.announces(1, of(2, 12)), ["1 opened 2"]);
    assert_eq!(agent.brings(1, 9), ["1 hears of 2"]);
    agent.with(1, |relay, act| relay.catch_up(act));
    assert!(agent.done.is_empty());
    // What its gateway had waits for another one.
    let mut agent = both();
    agent.arbitration.keep_workers(&[0, 1]);
    assert_eq!(agent.arbitration.counts(), [1, 1, 1]);
    assert_eq!(agent.claims(0, of(3, 11), of(2, 12)), ["0 granted 3"]);
}

#[test]
fn a_clock_that_is_wrong_for_a_moment_stops_nothing() {
    let mut agent = Agent::new();
    let pass = |agent: &Agent, now_s, monotonic_s| agent.arbitration.pass_time(now_s, monotonic_s);
    agent.announces(0, of(1, 11));
    assert!(pass(&agent, 100, 5).is_empty());
    agent.loses_lane(0);
    // It has time left, and no less than before.
    assert!(pass(&agent, 86_500, 6).is_empty());
    assert!(pass(&agent, 103, 8).is_empty() && pass(&agent, 114, 19).is_empty());
    assert_eq!(pass(&agent, 115, 20).len(), 1);
    // What has ended is not forgotten for it, and what has not begins.
    pass(&agent, 86_500, 21);
    pass(&agent, 117, 22);
    agent.with(0, |relay, act| relay.handle_lane(LANE, act));
    agent.done.clear();
    assert_eq!(agent.announces(0, of(1, 11)), ["0 Ended 1"]);
    let session = SessionId::from_u64((THERE as u64) << 56 | 8).expect("it is not 0");
    let (id, tenure, token_until_s, timeout_ms) = ([8; 16], of(1, 11), UNTIL_S, 10_000);
    let it = Clustered { session, id, tenure, token_until_s, timeout_ms, delivery: None };
    let begins = agent.says(0, |writer| {
        writer.clustered(&it) && writer.opened(&with_token(session, &[0; USER_DATA_BYTES]))
    });
    assert_eq!(begins, ["0 opened 1"]);
}

/// The end of a link is read before anybody looks at a clock.
#[test]
fn a_session_has_all_of_its_time_left_after_its_agent_stood_still() {
    let mut agent = Agent::new();
    let pass = |agent: &Agent, at_s| agent.arbitration.pass_time(at_s, at_s);
    agent.announces(0, of(1, 11));
    assert!(pass(&agent, 100).is_empty());
    agent.loses_lane(0);
    agent.arbitration.note_standstill(60);
    assert!(pass(&agent, 161).is_empty() && pass(&agent, 174).is_empty());
    assert_eq!(pass(&agent, 175).len(), 1);
}

#[test]
fn a_session_whose_game_process_does_not_come_back_is_forgotten() {
    let mut agent = Agent::new();
    let pass = |agent: &Agent, at_s| agent.arbitration.pass_time(at_s, at_s);
    agent.announces(0, of(1, 11));
    for at_s in [1, 601] {
        agent.loses_link(0);
        assert!(pass(&agent, at_s).is_empty());
        (agent.games[0], agent.links[0]) = let_in(&mut agent.relays[0]);
        agent.done.clear();
        assert_eq!(agent.announces(0, of(1, 11)), ["0 opened 1"], "another one is there in time");
    }
    agent.loses_link(0);
    for at_s in [700, 1300] {
        assert!(pass(&agent, at_s).is_empty() && agent.arbitration.counts()[0] == 1);
    }
    assert!(pass(&agent, 1305).is_empty(), "no game process is told");
    assert_eq!(agent.arbitration.counts()[0], 0);
    (agent.games[0], agent.links[0]) = let_in(&mut agent.relays[0]);
    assert_eq!(agent.announces(0, of(1, 11)), ["0 Ended 1"]);
}

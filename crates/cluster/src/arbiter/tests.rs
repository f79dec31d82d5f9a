//! What an arbiter says, one thing at a time; the worlds have everything at once.

use super::*;
use crate::number::Term;

const SESSION: SessionId = SessionId([1; 16]);
const OTHER: SessionId = SessionId([2; 16]);

fn player(name: u8, backend: &str) -> Player {
    Player { backend: backend.into(), name: [name; 16] }
}

fn announce(
    arbiter: &mut Arbiter,
    (session, tenure): (SessionId, Tenure),
    player: Option<Player>,
) -> Reply {
    let asked = match arbiter.standing(session) {
        Some(_) => Asked::Claim { over: tenure },
        None => Asked::Open { token_until_s: 100 },
    };
    let question = Question { session, tenure, wake: Wake(4), asked };
    arbiter.announce(&question, player).answer.reply
}

fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Reply::Granted { .. })
}

fn tenure(term: u16, incarnation: u16) -> Tenure {
    let term = Term::new(term).expect("it is one");
    Tenure { term, incarnation: Incarnation(incarnation) }
}

fn ask(arbiter: &mut Arbiter, session: SessionId, tenure: Tenure, asked: Asked) -> Verdict {
    arbiter.answer(&Question { session, tenure, wake: Wake(4), asked })
}

fn open(arbiter: &mut Arbiter, session: SessionId, tenure: Tenure) -> Verdict {
    ask(arbiter, session, tenure, Asked::Open { token_until_s: 100 })
}

fn fenced(holder: Tenure) -> Reply {
    Reply::Fenced { holder }
}

#[test]
fn of_two_takers_the_second_hears_who_was_first_and_so_does_the_owner_before() {
    let (a, b, c) = (tenure(1, 1), tenure(2, 2), tenure(2, 3));
    let mut arbiter = Arbiter::new(2);
    assert_eq!(open(&mut arbiter, SESSION, a).seen, Seen::Opened);
    assert_eq!(arbiter.hand_over(SESSION, a, 7), Ok(()));
    let first = ask(&mut arbiter, SESSION, b, Asked::Claim { over: a });
    let mut handed = Window::new();
    handed.commit(7, &WINDOW).expect("it is the first");
    assert_eq!(first.answer.reply, Reply::Granted { handed });
    assert_eq!(first.answer.wake, Wake(4));
    assert_eq!(first.fenced.map(|it| (it.tenure, it.reply)), Some((a, fenced(b))));
    let second = ask(&mut arbiter, SESSION, c, Asked::Claim { over: a });
    assert_eq!((second.answer.reply, second.fenced), (fenced(b), None));
    let higher = ask(&mut arbiter, SESSION, tenure(5, 3), Asked::Claim { over: a });
    assert_eq!(higher.answer.reply, fenced(b), "it does not know whom it is over");
    assert_eq!(arbiter.hand_over(SESSION, a, 8), Err(Refused::Fenced(b)));
    assert_eq!(arbiter.hand_over(SESSION, c, 8), Err(Refused::Fenced(b)));
    assert_eq!(arbiter.hand_over(SESSION, tenure(3, 1), 8), Err(Refused::Unclaimed));
    assert_eq!(arbiter.hand_over(SESSION, b, 7), Err(Refused::Replayed(Refusal::Duplicate)));
    assert_eq!(arbiter.hand_over(SESSION, b, 8), Ok(()));
    let again = ask(&mut arbiter, SESSION, b, Asked::Claim { over: a });
    assert!(matches!(again.answer.reply, Reply::Granted { .. }), "a question asked again");
    let equal = ask(&mut arbiter, SESSION, c, Asked::Claim { over: b });
    assert_eq!(equal.answer.reply, fenced(b), "a term that was had is over");
}

#[test]
fn a_session_is_over_where_one_says_so_that_has_had_it_and_that_is_remembered() {
    let (a, b) = (tenure(1, 1), tenure(2, 2));
    let mut arbiter = Arbiter::new(2);
    assert_eq!(arbiter.bury(SESSION, a), None);
    open(&mut arbiter, SESSION, a);
    ask(&mut arbiter, SESSION, b, Asked::Claim { over: a });
    assert_eq!(arbiter.bury(SESSION, tenure(3, 1)), None, "nobody has had that");
    let told = arbiter.bury(SESSION, a).map(|it| (it.tenure, it.reply));
    assert_eq!((told, arbiter.bury(SESSION, a)), (Some((b, Reply::Ended)), None));
    // Its owner may come back long after its token has expired.
    arbiter.pass_time(500, |_| 5, |_| ());
    let ended = |arbiter: &mut Arbiter| {
        ask(arbiter, SESSION, b, Asked::Claim { over: b }).answer.reply == Reply::Ended
            && arbiter.standing(SESSION).is_some()
    };
    assert!(ended(&mut arbiter));
    arbiter.pass_time(700, |_| 5, |_| ());
    assert!(!ended(&mut arbiter));
}

#[test]
fn a_term_that_an_arbiter_before_has_granted_is_believed_whoever_comes_first() {
    let (a, b) = (tenure(1, 1), tenure(2, 2));
    for asked in [Asked::Open { token_until_s: 100 }, Asked::Claim { over: b }] {
        let mut arbiter = Arbiter::new(1);
        open(&mut arbiter, SESSION, a);
        let later = ask(&mut arbiter, SESSION, b, asked);
        assert_eq!(later.fenced.map(|it| (it.tenure, it.reply)), Some((a, fenced(b))));
        assert!(is_granted(&later.answer.reply));
        assert_eq!(arbiter.hand_over(SESSION, a, 7), Err(Refused::Fenced(b)));
        assert_eq!(arbiter.hand_over(SESSION, b, 7), Ok(()));
        for earlier in [a, tenure(2, 3)] {
            assert_eq!(open(&mut arbiter, SESSION, earlier).answer.reply, fenced(b));
        }
        arbiter.end(SESSION);
        assert_eq!(ask(&mut arbiter, SESSION, tenure(3, 3), asked).answer.reply, Reply::Ended);
    }
}

#[test]
fn an_end_is_taken_from_the_owner_alone_and_is_for_good() {
    let (a, b) = (tenure(1, 1), tenure(2, 2));
    let mut arbiter = Arbiter::new(2);
    open(&mut arbiter, SESSION, a);
    ask(&mut arbiter, SESSION, b, Asked::Claim { over: a });
    assert_eq!(ask(&mut arbiter, SESSION, a, Asked::End).answer.reply, fenced(b));
    let end = ask(&mut arbiter, SESSION, b, Asked::End);
    assert_eq!((end.answer.reply, end.seen), (Reply::Ended, Seen::Ended));
    assert_eq!(ask(&mut arbiter, SESSION, b, Asked::End).seen, Seen::Nothing, "asked again");
    for asked in [Asked::Claim { over: b }, Asked::Open { token_until_s: 100 }] {
        let verdict = ask(&mut arbiter, SESSION, tenure(3, 3), asked);
        assert_eq!((verdict.answer.reply, verdict.seen), (Reply::Ended, Seen::Nothing));
    }
    assert_eq!(arbiter.hand_over(SESSION, b, 1), Err(Refused::Ended));
}

#[test]
fn a_session_ends_for_its_owner_when_its_game_ends_it() {
    let a = tenure(1, 1);
    let mut arbiter = Arbiter::new(2);
    open(&mut arbiter, SESSION, a);
    let told = arbiter.end(SESSION).expect("somebody has it");
    assert_eq!((told.tenure, told.reply), (a, Reply::Ended));
    assert_eq!((arbiter.end(SESSION), arbiter.end(OTHER)), (None, None));
}

/// What is remembered of ended sessions is forgotten when none of them could be opened any more, by
/// the same clock, which does not go back here.
#[test]
fn a_session_opens_while_its_token_is_good_whatever_the_clock_does() {
    let mut arbiter = Arbiter::new(2);
    open(&mut arbiter, SESSION, tenure(1, 1));
    arbiter.end(SESSION);
    arbiter.pass_time(99, |_| 30, |_| {});
    assert_eq!(arbiter.standing(SESSION), Some(&Standing::Ended { token_until_s: 100 }));
    for now_s in [100, 0] {
        arbiter.pass_time(now_s, |_| 30, |_| {});
        assert_eq!(arbiter.standing(SESSION), None);
        for session in [SESSION, OTHER] {
            assert_eq!(open(&mut arbiter, session, tenure(1, 1)).answer.reply, Reply::Ended);
        }
    }
}

#[test]
fn what_has_ended_needs_room_while_it_is_remembered() {
    let mut arbiter = Arbiter::new(1);
    open(&mut arbiter, SESSION, tenure(1, 1));
    arbiter.end(SESSION);
    assert_eq!(open(&mut arbiter, OTHER, tenure(1, 1)).answer.reply, Reply::Full);
    arbiter.pass_time(100, |_| 30, |_| {});
    let later = ask(&mut arbiter, OTHER, tenure(1, 1), Asked::Open { token_until_s: 101 });
    assert_eq!(later.seen, Seen::Opened);
}

#[test]
fn a_session_whose_owner_is_lost_waits_for_a_while() {
    let (a, b) = (tenure(1, 1), tenure(2, 2));
    let mut arbiter = Arbiter::new(3);
    for session in [SESSION, OTHER, SessionId([3; 16])] {
        open(&mut arbiter, session, a);
    }
    arbiter.handle_lost(Incarnation(2));
    arbiter.handle_lost(Incarnation(1));
    let mut ended = Vec::new();
    arbiter.pass_time(29, |_| 30, |session| ended.push(session));
    ask(&mut arbiter, SESSION, b, Asked::Claim { over: a });
    ask(&mut arbiter, OTHER, a, Asked::Claim { over: a });
    arbiter.handle_lost(Incarnation(1));
    arbiter.pass_time(30, |_| 30, |session| ended.push(session));
    assert_eq!(ended, [SessionId([3; 16])], "one was taken, one is confirmed and lost again");
    arbiter.pass_time(59, |_| 30, |session| ended.push(session));
    assert_eq!(ended, [SessionId([3; 16]), OTHER]);
}

#[test]
fn who_gives_a_session_away_is_heard_for_a_moment_and_has_it_no_more() {
    let (a, b, c) = (tenure(1, 1), tenure(2, 2), tenure(3, 3));
    let mut arbiter = Arbiter::new(1);
    open(&mut arbiter, SESSION, a);
    assert_eq!(ask(&mut arbiter, SESSION, b, Asked::Take { over: c }).answer.reply, fenced(a));
    let taken = ask(&mut arbiter, SESSION, b, Asked::Take { over: a });
    assert!(matches!(taken.answer.reply, Reply::Granted { .. }));
    assert_eq!(taken.fenced.map(|it| it.reply), Some(fenced(b)));
    assert_eq!(arbiter.hand_over(SESSION, b, 8), Ok(()));
    assert_eq!(arbiter.hand_over(SESSION, a, 7), Ok(()));
    assert_eq!(arbiter.hand_over(SESSION, a, 8), Err(Refused::Replayed(Refusal::Duplicate)));
    assert_eq!(ask(&mut arbiter, SESSION, a, Asked::End).answer.reply, fenced(b));
    let mut memory = [0; 1024];
    let mut out = Writer::new(&mut memory);
    arbiter.write(&mut out);
    let len = out.len();
    let maps = ringgate_core::carry::Maps::default();
    let mut arbiter = Arbiter::read(&mut Reader::new(&memory[..len], &maps), 1).expect("written");
    arbiter.pass_time(1, |_| 30, |_| {});
    assert_eq!(arbiter.hand_over(SESSION, a, 9), Ok(()));
    arbiter.pass_time(2, |_| 30, |_| {});
    assert_eq!(arbiter.hand_over(SESSION, a, 10), Err(Refused::Fenced(b)));
    ask(&mut arbiter, SESSION, a, Asked::Take { over: b });
    ask(&mut arbiter, SESSION, c, Asked::Claim { over: b });
    assert_eq!(arbiter.hand_over(SESSION, b, 11), Err(Refused::Fenced(c)), "it was not asked");
}

#[test]
fn of_a_player_one_session_is_admitted_at_a_time_whichever_gateway_has_it() {
    let (a, b) = (tenure(1, 1), tenure(1, 2));
    let mut arbiter = Arbiter::new(3);
    assert!(is_granted(&announce(&mut arbiter, (SESSION, a), Some(player(1, "x")))));
    let second = |holder| Reply::Second { first: SESSION, holder };
    assert_eq!(announce(&mut arbiter, (OTHER, b), Some(player(1, "x"))), second(a));
    assert_eq!(arbiter.standing(OTHER), None, "it takes no room");
    assert!(is_granted(&announce(&mut arbiter, (SESSION, a), Some(player(1, "x")))), "said again");
    // It goes on elsewhere, and waits for a gateway.
    ask(&mut arbiter, SESSION, tenure(2, 2), Asked::Claim { over: a });
    arbiter.handle_lost(Incarnation(2));
    let (one, two) = (player(1, "x"), player(2, "x"));
    assert_eq!(arbiter.second(&one, OTHER), Some(second(tenure(2, 2))));
    assert_eq!((arbiter.second(&one, SESSION), arbiter.second(&two, OTHER)), (None, None));
    // Another player may begin a session, the same one at another backend, and one without a name.
    for (at, who) in [Some(two), Some(player(1, "y")), None].into_iter().enumerate() {
        let mut arbiter = arbiter.clone();
        let session = SessionId([3 + at as u8; 16]);
        assert!(is_granted(&announce(&mut arbiter, (session, b), who)));
    }
    // The next process of the arbiter's knows it.
    let mut memory = [0; 4096];
    let mut out = Writer::new(&mut memory);
    arbiter.write(&mut out);
    arbiter.write_players(&mut out);
    let (len, maps) = (out.len(), ringgate_core::carry::Maps::default());
    let mut from = Reader::new(&memory[..len], &maps);
    let mut arbiter = Arbiter::read(&mut from, 3).expect("written");
    arbiter.read_players(&mut from).and_then(|()| from.end()).expect("written");
    assert_eq!(announce(&mut arbiter, (OTHER, b), Some(player(1, "x"))), second(tenure(2, 2)));
    // Once it is over the player begins anew.
    arbiter.end(SESSION);
    assert!(is_granted(&announce(&mut arbiter, (OTHER, b), Some(player(1, "x")))));
    let first_again = announce(&mut arbiter, (SESSION, a), Some(player(1, "x")));
    assert_eq!(first_again, Reply::Second { first: OTHER, holder: b });
    arbiter.end(OTHER);
    arbiter.pass_time(200, |_| 5, |_| ());
    assert!(arbiter.players.is_empty());
}

/// All orders of what three gateways say of three sessions of two players, seven steps deep.
#[test]
fn in_no_order_of_events_has_a_player_two_sessions() {
    let sessions = [1, 2, 3].map(|it| SessionId([it; 16]));
    let whose = [player(1, "x"), player(1, "x"), player(2, "x")];
    let (mut known, mut ahead) = (std::collections::HashSet::new(), Vec::new());
    ahead.push((Arbiter::new(3), 0));
    let mut seconds = 0;
    while let Some((before, depth)) = ahead.pop() {
        let held = |it: &&SessionId| before.standing(**it).and_then(Standing::holder).is_some();
        let held: Vec<_> = sessions.iter().filter(held).collect();
        assert!(!(held.contains(&&sessions[0]) && held.contains(&&sessions[1])), "{before:?}");
        assert!(before.players.len() <= before.standings.len());
        let print =
            format!("{:?}", (sessions.map(|it| before.standing(it).cloned()), before.now_s));
        if depth == 7 || !known.insert((print, depth)) {
            continue;
        }
        for (at, session) in sessions.into_iter().enumerate() {
            let holder = before.standing(session).and_then(Standing::holder);
            for gateway in 1..=3 {
                let own = holder.filter(|it| it.incarnation == Incarnation(gateway));
                let mut next = before.clone();
                let tenure = own.unwrap_or_else(|| tenure(1, gateway));
                let reply = announce(&mut next, (session, tenure), Some(whose[at].clone()));
                seconds += usize::from(matches!(reply, Reply::Second { .. }));
                ahead.push((next, depth + 1));
                if let Some(over) = holder {
                    let mut next = before.clone();
                    let term = Term::new(over.term.get() + 1).expect("it is one");
                    let taker = Tenure { term, incarnation: Incarnation(gateway) };
                    ask(&mut next, session, taker, Asked::Claim { over });
                    ahead.push((next, depth + 1));
                }
            }
            let mut next = before.clone();
            next.end(session);
            ahead.push((next, depth + 1));
        }
        let mut next = before.clone();
        next.handle_lost(Incarnation(1));
        next.pass_time(before.now_s + 30, |_| 20, |_| ());
        ahead.push((next, depth + 1));
    }
    assert!(seconds > 100 && known.len() > 100, "{seconds} {}", known.len());
}

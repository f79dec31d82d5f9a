//! What a gateway does with each answer, one thing at a time; the worlds have everything at once.

use super::*;
use crate::number::Incarnation;

const SESSION: SessionId = SessionId([1; 16]);
const KEY: KeyName = KeyName(5);

fn tenure(term: u16, incarnation: u16) -> Tenure {
    let term = Term::new(term).expect("it is one");
    Tenure { term, incarnation: Incarnation(incarnation) }
}

fn hear(stake: &mut Stake, tenure: Tenure, wake: u32, reply: Reply) -> Heard {
    stake.handle_answer(&Answer { session: SESSION, tenure, wake: Wake(wake), reply })
}

fn granted() -> Reply {
    Reply::Granted { handed: Window::new() }
}

fn owner(member: &mut Member) -> Stake {
    let mut stake = Stake::open(SESSION, KEY, 100, member).expect("there are terms");
    assert_eq!(stake.take_number(Wake(0)), Err(NoNumber::NotSure), "it has no answer yet");
    assert_eq!(hear(&mut stake, tenure(1, 1), 0, granted()), Heard::Granted(Window::new()));
    stake
}

#[test]
fn a_taker_that_was_second_knows_who_was_first_and_may_claim_again() {
    let mut member = Member::new(Incarnation(3), 1);
    let mut stake = Stake::stand_by(SESSION, KEY, tenure(1, 1));
    stake.claim(&mut member).expect("there are terms");
    let asked = stake.question(Wake(0)).map(|it| (it.tenure, it.asked));
    assert_eq!(asked, Some((tenure(2, 3), Asked::Claim { over: tenure(1, 1) })));
    let holder = tenure(5, 2);
    assert_eq!(hear(&mut stake, tenure(2, 3), 0, Reply::Fenced { holder }), Heard::HeldBy(holder));
    stake.hear_of(tenure(4, 1));
    assert_eq!((stake.holder(), stake.stands_by()), (Some(holder), true));
    stake.claim(&mut member).expect("there are terms");
    assert_eq!(hear(&mut stake, tenure(2, 3), 0, granted()), Heard::Nothing, "of another claim");
    hear(&mut stake, tenure(6, 3), 0, granted());
    assert_eq!(stake.delivers_as(), Some(tenure(6, 3)));
}

#[test]
fn an_owner_that_has_slept_is_silent_until_it_is_confirmed() {
    let mut stake = owner(&mut Member::new(Incarnation(1), 1));
    assert_eq!(stake.question(Wake(0)), None);
    assert!(stake.take_number(Wake(0)).is_ok());
    assert_eq!(stake.take_number(Wake(1)), Err(NoNumber::NotSure));
    let asked = stake.question(Wake(1)).map(|it| it.asked);
    assert_eq!(asked, Some(Asked::Claim { over: tenure(1, 1) }));
    assert_eq!(hear(&mut stake, tenure(1, 1), 0, granted()), Heard::Nothing, "it was under way");
    assert_eq!(stake.take_number(Wake(1)), Err(NoNumber::NotSure));
    assert_eq!(hear(&mut stake, tenure(1, 1), 1, granted()), Heard::Confirmed);
    assert!(stake.take_number(Wake(1)).is_ok());
}

#[test]
fn a_player_is_told_of_an_end_when_the_arbiter_has_ended_it() {
    let mut stake = owner(&mut Member::new(Incarnation(1), 1));
    stake.end();
    assert_eq!(stake.question(Wake(0)).map(|it| it.asked), Some(Asked::End));
    assert_eq!(stake.take_number(Wake(0)), Err(NoNumber::NotSure));
    let mut fenced = stake.clone();
    assert_eq!(hear(&mut stake, tenure(1, 1), 0, Reply::Ended), Heard::Over(Why::Ended));
    assert!(stake.take_number(Wake(0)).is_ok(), "the last word");
    let (holder, why) = (tenure(2, 2), Why::Fenced(tenure(2, 2)));
    let told = hear(&mut fenced, tenure(1, 1), 0, Reply::Fenced { holder });
    assert_eq!((told, fenced.over()), (Heard::Over(why), Some(why)));
    assert_eq!(fenced.take_number(Wake(0)), Err(NoNumber::NotSure));
}

/// A process that hands a session over and goes on with it after all is a taker: its successor has
/// an incarnation of its own, and may have claimed or not.
#[test]
fn a_session_comes_back_from_a_successor_that_fails() {
    let mut member = Member::new(Incarnation(1), 1);
    let mut stake = owner(&mut member);
    let before = stake.take_number(Wake(0)).expect("it owns the session");
    stake.claim(&mut member).expect("there are terms");
    let (mine, successors) = (tenure(2, 1), tenure(2, 9));
    assert_eq!(stake.take_number(Wake(0)), Err(NoNumber::NotSure));
    hear(&mut stake, mine, 0, Reply::Fenced { holder: successors });
    stake.claim(&mut member).expect("there are terms");
    hear(&mut stake, tenure(3, 1), 0, granted());
    let after = stake.take_number(Wake(0)).expect("it owns the session again");
    assert!(after > before && after.tenure() == tenure(3, 1));
}

#[test]
fn terms_that_are_used_up_end_a_session_by_name() {
    let mut member = Member::new(Incarnation(1), 1);
    let last = Tenure { term: Term::LAST, incarnation: Incarnation(2) };
    let mut stake = Stake::stand_by(SESSION, KEY, last);
    assert_eq!(stake.claim(&mut member), Err(TermsUsedUp));
    assert_eq!(stake.over(), Some(Why::TermsUsedUp));
    let mut stake = owner(&mut Member::new(Incarnation(1), 1));
    member.make_term(KEY, Term::new(Term::LAST.get() - 1).expect("it is one"));
    assert_eq!(stake.claim(&mut member), Err(TermsUsedUp));
    assert_eq!(stake.question(Wake(0)).map(|it| it.asked), Some(Asked::End));
}

#[test]
fn a_session_for_which_there_is_no_room_does_not_open() {
    let mut stake = Stake::open(SESSION, KEY, 100, &mut Member::new(Incarnation(1), 1));
    let stake = stake.as_mut().expect("there are terms");
    assert!(stake.is_asking());
    let why = Why::ArbiterFull;
    assert_eq!(hear(stake, tenure(1, 1), 0, Reply::Full), Heard::Over(why));
    assert_eq!((stake.over(), stake.question(Wake(0))), (Some(why), None));
}

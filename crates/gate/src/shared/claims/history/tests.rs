//! Tokens are remembered for exactly as long as they could be used, whatever the wall clock does.

use super::*;

fn mac(n: u32) -> TokenMac {
    let mut mac = [7; 16];
    mac[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b9).to_le_bytes());
    mac
}

fn name(n: u32) -> TokenName {
    *mac(n).first_chunk().expect("16 bytes")
}

/// Both clocks, when the monotonic one has come so far and the wall clock shows `unix_s`.
fn at(mono_s: u64, unix_s: u64) -> Now {
    Now { mono_ns: mono_s * NS_PER_S, unix_s }
}

/// Two clocks that nobody sets.
fn together(unix_s: u64) -> Now {
    at(unix_s, unix_s)
}

const FRESH: Result<TokenPast, DropReason> = Ok(TokenPast::Fresh);

/// Uses a token of no concern so often that everything is forgotten that may be.
fn clear(history: &mut History, now: Now) {
    for _ in 0..=history.len() / FORGOTTEN_AT_ONCE {
        let _ = history.use_token(&mac(u32::MAX), 0, u64::MAX, now);
    }
}

#[test]
fn a_token_belongs_to_its_first_address_until_it_expires() {
    let mut history = History::new(8);
    assert_eq!(history.use_token(&mac(7), 1, 100, together(10)), FRESH);
    assert_eq!(history.use_token(&mac(7), 1, 100, together(99)), FRESH);
    let elsewhere = history.use_token(&mac(7), 2, 100, together(99));
    assert_eq!(elsewhere, Err(DropReason::TokenUsedElsewhere));
    assert_eq!(history.len(), 1);
    let _ = history.use_token(&mac(8), 3, 200, together(101));
    assert_eq!(history.len(), 1, "the expired one is gone");
}

#[test]
fn a_full_history_refuses_new_tokens_and_keeps_the_old() {
    let mut history = History::new(2);
    for n in 0..2 {
        assert_eq!(history.use_token(&mac(n), 1, 100, together(10)), FRESH);
    }
    let third = history.use_token(&mac(2), 1, 100, together(10));
    assert_eq!(third, Err(DropReason::TokenHistoryFull));
    let stolen = history.use_token(&mac(0), 2, 100, together(10));
    assert_eq!(stolen, Err(DropReason::TokenUsedElsewhere));
    assert_eq!(history.use_token(&mac(2), 1, 200, together(101)), FRESH, "room after expiry");
}

#[test]
fn every_token_is_remembered_exactly_until_it_expires() {
    let mut history = History::new(4096);
    // Some expire soon, some beyond the wheel's horizon, some never.
    let expire_s = |n: u32| match n % 8 {
        0 => u64::MAX,
        _ => 1_700_000_000 + u64::from(n.wrapping_mul(0x9e37_79b9) % 2000),
    };
    let now = |unix_s: u64| at(unix_s - 1_699_999_000, unix_s);
    for n in 0..1000 {
        let used = history.use_token(&mac(n), n.into(), expire_s(n), now(1_699_999_999));
        assert_eq!(used, FRESH);
    }
    for unix_s in (1_700_000_000..1_700_002_000).step_by(7) {
        // The busy life of a gateway: each repeated request clears a little away.
        for _ in 0..10 {
            let _ = history.use_token(&mac(0), 0, u64::MAX, now(unix_s));
        }
        for n in 0..1000 {
            let is_live = expire_s(n) > unix_s;
            assert!(history.find(&mac(n)).is_some() || !is_live, "{n} was forgotten too soon");
        }
    }
    clear(&mut history, now(1_700_003_000));
    clear(&mut history, now(1_700_003_000));
    assert_eq!(history.len(), 126, "those that never expire");
}

#[test]
fn tokens_of_half_a_day_are_forgotten_as_fast_as_they_come() {
    let life_s = 12 * 3600;
    let mut history = History::new(life_s as usize + 60);
    for n in 1..=life_s * 3 / 2 {
        let now_s = u64::from(n);
        let used = history.use_token(&mac(n), 1, now_s + u64::from(life_s), together(now_s));
        assert_eq!(used, FRESH, "after {n} s");
    }
}

#[test]
fn a_jump_of_both_clocks_clears_away_little_at_a_time() {
    let mut history = History::new(1000);
    for n in 0..900 {
        assert_eq!(history.use_token(&mac(n), 1, 100, together(10)), FRESH);
    }
    assert_eq!(history.use_token(&mac(2000), 1, 1_000_100, together(1_000_000)), FRESH);
    assert_eq!(history.len(), 901 - FORGOTTEN_AT_ONCE);
    for _ in 0..900 {
        let _ = history.use_token(&mac(2000), 1, 1_000_100, together(1_000_000));
    }
    assert_eq!(history.len(), 1);
}

#[test]
fn nothing_is_forgotten_while_only_the_wall_clock_says_so() {
    let mut history = History::new(1000);
    for n in 0..100 {
        assert_eq!(history.use_token(&mac(n), 1, 5_300, at(10, 5_000)), FRESH);
    }
    clear(&mut history, at(20, 12_200));
    assert_eq!(history.len(), 101);
    // Back to where it belongs: as good as ever, for the owner only.
    for n in 0..100 {
        let elsewhere = history.use_token(&mac(n), 2, 5_300, at(30, 5_020));
        assert_eq!(elsewhere, Err(DropReason::TokenUsedElsewhere));
        assert_eq!(history.use_token(&mac(n), 1, 5_300, at(30, 5_020)), FRESH);
    }
    clear(&mut history, at(312, 5_302));
    clear(&mut history, at(312, 5_302));
    assert_eq!(history.len(), 1);
}

#[test]
fn nothing_is_forgotten_that_the_wall_clock_still_takes() {
    let mut history = History::new(1000);
    for n in 0..100 {
        assert_eq!(history.use_token(&mac(n), 1, 12_500, at(10, 12_200)), FRESH);
    }
    // The clock was two hours ahead and is set right: the tokens are good for two hours more.
    for mono_s in (20..7_500).step_by(100) {
        clear(&mut history, at(mono_s, 4_990 + mono_s));
        assert_eq!(history.len(), 101, "at {mono_s}");
    }
    clear(&mut history, at(7_511, 12_501));
    clear(&mut history, at(7_511, 12_501));
    assert_eq!(history.len(), 1);
}

#[test]
fn a_token_is_in_one_session_at_a_time_and_in_none_once_it_is_spent() {
    let mut history = History::new(8);
    let (use_it, random) = (|h: &mut History| h.use_token(&mac(1), 5, 100, together(10)), 7);
    assert_eq!(use_it(&mut history), FRESH);
    let mut first = history.begin_session(&mac(1), random, None);
    assert_eq!(use_it(&mut history), Ok(TokenPast::InSession));
    history.end_session(name(1), Some(6));
    assert_eq!(use_it(&mut history), Ok(TokenPast::HadSession), "and its owner is where it was");
    let mut second = history.begin_session(&mac(1), random, None);
    history.spend(name(1));
    assert_eq!(use_it(&mut history), Ok(TokenPast::Spent));
    history.end_session(name(1), None);
    assert_eq!(history.past(&mac(1)), TokenPast::Spent);
    // Where that is allowed there are more, and none of them begins where another can be.
    let mut third = history.begin_session(&mac(1), random, None);
    let starts = [&mut first, &mut second, &mut third].map(SessionSequence::take);
    assert_eq!(starts, [Ok(7), Ok(7 + (1 << 40)), Ok(7 + (2 << 40))]);
    assert_eq!(history.past(&mac(1)), TokenPast::Spent);
}

#[test]
fn the_owner_of_a_spent_token_is_where_its_session_has_gone() {
    let mut history = History::new(8);
    let _ = history.use_token(&mac(1), 5, 100, together(10));
    history.begin_session(&mac(1), 0, None);
    history.spend(name(1));
    history.end_session(name(1), Some(6));
    let old = history.use_token(&mac(1), 5, 100, together(10));
    assert_eq!(old, Err(DropReason::TokenUsedElsewhere));
    assert_eq!(history.use_token(&mac(1), 6, 100, together(10)), Ok(TokenPast::Spent));
}

#[test]
fn what_is_spent_is_written_down_once_and_is_spent_in_the_next_process() {
    let mut history = History::new(8);
    for n in 0..3 {
        assert_eq!(history.use_token(&mac(n), 1, 100, together(10)), FRESH);
        history.begin_session(&mac(n), 7, None);
    }
    assert_eq!(history.take_spent(9), [], "none was heard");
    history.spend(name(0));
    history.spend(name(2));
    let spent = [history.take_spent(1), history.take_spent(9)].concat();
    assert_eq!((spent.len(), history.take_spent(9).len()), (2, 0));
    history.take_back_spent(&spent[1..]);
    assert_eq!(history.take_spent(9), spent[1..]);

    let mut next = History::new(8);
    for token in &spent {
        let written = SpentToken::from_bytes(&token.to_bytes()).expect("a record");
        assert_eq!(written, *token);
        assert!(next.remember_spent(&written, at(1, 20)));
    }
    for source in [1, 2] {
        assert_eq!(next.use_token(&mac(0), source, 100, at(2, 21)), Ok(TokenPast::Spent));
    }
    assert_eq!(next.use_token(&mac(1), 2, 100, at(2, 21)), FRESH, "it was not heard");
    // Where tokens may be used again, no number is.
    let sequence = next.begin_session(&mac(2), 9, None);
    assert_eq!(sequence, history.begin_session(&mac(2), 9, None));
    assert_eq!(next.take_spent(9).len(), 1, "the next one starts behind this one");
    // A successor writes down what it is given.
    let mut heir = History::new(8);
    next.show_changed(0..next.places(), |used| heir.remember(*used).is_ok());
    assert_eq!(heir.take_spent(9).len(), 2);
    clear(&mut next, at(100, 200));
    assert_eq!(next.past(&mac(0)), TokenPast::Fresh, "it has expired");
}

fn begun(history: &mut History, process: u16) -> (u16, u16, u64) {
    let sequence = history.begin_session(&mac(1), 7, Some(Incarnation(process)));
    let number = PacketNumber::new(sequence.peek()).expect("one is left");
    (number.tenure().term.get(), number.tenure().incarnation.0, number.count())
}

#[test]
fn in_a_cluster_each_session_of_a_token_has_a_term_beyond_all_before_it() {
    let mut history = History::new(4);
    assert_eq!(history.use_token(&mac(1), 1, 100, together(10)), FRESH);
    assert_eq!([begun(&mut history, 9), begun(&mut history, 9)], [(1, 9, 0), (2, 9, 0)]);
    // A session without a cluster, beyond them, and the next one with it again.
    let without = history.begin_session(&mac(1), 7, None);
    assert_eq!(without.peek(), 3 << 49);
    assert_eq!(begun(&mut history, 9), (4, 9, 0));
    let beyond = |history: &mut History, term| {
        let beyond = Term::new(term).expect("it is one");
        let made = history.make_term((&mac(1), 100), 5, beyond, together(20));
        made.map(Term::get)
    };
    assert_eq!((beyond(&mut history, 2), beyond(&mut history, 8)), (Ok(5), Ok(9)));
    assert_eq!(history.past(&mac(1)), TokenPast::Spent);
    // A hand-over has failed twice.
    history.leave_terms_out(1);
    history.leave_terms_out(2);
    assert_eq!((beyond(&mut history, 8), begun(&mut history, 9)), (Ok(42), (75, 9, 0)));
    assert_eq!(beyond(&mut history, Term::LAST.get()), Err(NoTerm::UsedUp));
    assert_eq!(beyond(&mut history, Term::LAST.get() - 1), Err(NoTerm::UsedUp));
    history.set_terms(Terms::default());
    assert_eq!(beyond(&mut history, Term::LAST.get() - 1), Ok(Term::LAST.get()));
    let last = history.begin_session(&mac(1), 7, Some(Incarnation(9)));
    assert_eq!(last, SessionSequence::EXHAUSTED);
}

#[test]
fn a_token_of_another_gateway_is_spent_here_and_a_full_history_takes_none() {
    let mut history = History::new(1);
    let term = |history: &mut History, number, now_s| {
        let token = (&mac(number), 100);
        history.make_term(token, 5, Term::NONE, together(now_s)).map(Term::get)
    };
    assert_eq!(term(&mut history, 1, 10), Ok(1));
    assert_eq!(history.use_token(&mac(1), 5, 100, together(11)), Ok(TokenPast::Spent));
    let elsewhere = history.use_token(&mac(1), 6, 100, together(11));
    assert_eq!(elsewhere, Err(DropReason::TokenUsedElsewhere));
    assert_eq!(term(&mut history, 2, 11), Err(NoTerm::HistoryFull));
    assert_eq!(history.take_spent(9).len(), 1);
}

#[test]
fn a_term_is_not_made_again_when_its_token_was_forgotten() {
    let mut history = History::new(2);
    assert_eq!(history.use_token(&mac(1), 1, 100, together(10)), FRESH);
    begun(&mut history, 9);
    begun(&mut history, 9);
    clear(&mut history, together(200));
    let beyond = Term::new(1).expect("it is one");
    let again = history.make_term((&mac(1), 100), 1, beyond, together(200));
    assert_eq!(again.map(Term::get), Ok(3), "2 was made");
    // Of tokens that had one session nothing has to be known, or terms would be used up in days.
    let mut history = History::new(2);
    for n in 0..100 {
        let now = together(1000 + 10 * n);
        assert_eq!(history.use_token(&mac(1), 1, now.unix_s + 5, now), FRESH);
        assert_eq!(begun(&mut history, 9), (1, 9, 0));
    }
}

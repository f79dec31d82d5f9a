//! What is owned is told, what is stood by for may be tried once its owner is gone.

use super::*;
use crate::ids::ListenerId;
use ringgate_batch::Endpoint;
use ringgate_cluster::{NetcodeProof, NoRoom, Proof, Tenure, Term};
use ringgate_core::secret::Key;

const B: MemberId = MemberId(1);
const C: MemberId = MemberId(63);
const MS: u64 = 1_000_000;
const OWNER: Incarnation = Incarnation(4);
const OTHER: Incarnation = Incarnation(5);

fn none() -> Standbys {
    Standbys::new(HashKey::new([1, 2]), 1000)
}

fn at(port: u16) -> Address {
    Address { listener: ListenerId(0), endpoint: Endpoint::v4([192, 0, 2, 1], port) }
}

fn id(number: u16) -> SessionId {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    SessionId(bytes)
}

pub(crate) fn record(number: u16, term: u16) -> Record {
    Record {
        session: id(number),
        token: [9; 16],
        holder: Tenure { term: Term::new(term).expect("it is one"), incarnation: OWNER },
        revision: 0,
        token_until_s: 100,
        since_s: 50,
        timeout_ms: 10_000,
        silent_ms: 0,
        slot: 3,
        player: ([0; 16], 7),
        local: ([0; 16], 8),
        backend: "west".into(),
        proof: Proof::Netcode(Box::new(NetcodeProof {
            open_key: Key::from_bytes([1; 32]),
            seal_key: Key::from_bytes([2; 32]),
            client_id: number.into(),
            is_confirmed: true,
            newest: 5,
            user_data: [0; 256],
        })),
    }
}

/// That of a session which another process has.
fn others_record(number: u16, term: u16) -> Record {
    let it = record(number, term);
    Record { holder: Tenure { incarnation: OTHER, ..it.holder }, ..it }
}

/// The sessions that a datagram of each second from an address is tried with, in that order.
fn all_tried(of: &Standbys, port: u16, seconds: std::ops::Range<u64>) -> Vec<SessionId> {
    let tries = seconds.filter_map(|it| of.find(&at(port), it * 1000 * MS));
    let tried = tries.map(|it| match it {
        Found::Try(record) => record.session,
        other => panic!("{other:?}"),
    });
    tried.collect()
}

fn changes(of: &Standbys, max: usize) -> Vec<(SessionId, Option<(u16, u16)>)> {
    let mut all = Vec::new();
    of.take_changes(max, |session, now| {
        let now = now.map(|it| (it.address.endpoint.port(), it.record.holder.term.get()));
        all.push((session, now));
    });
    all
}

fn stands(of: &Standbys) -> Vec<(u16, bool)> {
    let mut all = Vec::new();
    of.take_stands(100, |address, stands| all.push((address.endpoint.port(), stands)));
    all.sort_unstable();
    all
}

fn tried(of: &Standbys, port: u16, now_ns: u64) -> Option<u16> {
    match of.find(&at(port), now_ns) {
        Some(Found::Try(record)) => Some(record.holder.term.get()),
        _ => None,
    }
}

#[test]
fn an_incarnation_is_said_once() {
    let standbys = none();
    assert_eq!(standbys.incarnation(), None);
    for number in [u16::MAX, 0] {
        standbys.set_incarnation(Incarnation(number));
        assert_eq!(standbys.incarnation(), Some(Incarnation(u16::MAX)));
    }
}

#[test]
fn the_latest_process_is_that_of_all_that_were_heard_of() {
    let standbys = none();
    assert_eq!(standbys.latest(), Incarnation(0));
    standbys.note_process(Incarnation(4));
    standbys.set_incarnation(Incarnation(5));
    assert_eq!(standbys.latest(), Incarnation(5));
    standbys.set_able(vec![(Incarnation(7), MemberId(1)), (Incarnation(3), MemberId(2))]);
    standbys.set_able(Vec::new());
    assert_eq!(standbys.latest(), Incarnation(7));
}

#[test]
fn what_is_owned_is_told_as_it_is_now_and_its_end_once() {
    let standbys = none();
    assert!(!standbys.has_news());
    standbys.keep(at(1), record(1, 1));
    standbys.keep(at(2), record(1, 2));
    standbys.keep(at(3), record(2, 1));
    standbys.end(id(2));
    standbys.end(id(3));
    assert!(standbys.has_news());
    assert_eq!(changes(&standbys, 9), [(id(1), Some((2, 2))), (id(2), None)]);
    assert!(!standbys.has_news());
    assert_eq!(changes(&standbys, 9), []);
    assert_eq!(standbys.counts().owned, 1);
    standbys.renew();
    standbys.renew();
    assert_eq!(changes(&standbys, 9), [(id(1), Some((2, 2)))]);
    standbys.end(id(1));
    standbys.note_left(false);
    standbys.stand_by_for(at(1), Record { revision: 0, ..record(1, 2) }, 0);
    assert_eq!(changes(&standbys, 9), [(id(1), None)]);
    assert_eq!((standbys.counts().owned, standbys.counts().fenced), (0, 1));
}

#[test]
fn changes_are_taken_in_portions_and_have_an_end_where_nobody_takes_them() {
    let standbys = none();
    (0..5).for_each(|number| standbys.keep(at(1), record(number, 1)));
    assert_eq!([2, 2, 2].map(|max| changes(&standbys, max).len()), [2, 2, 1]);
    let all = 2 * (SHARDS * CHANGES_MAX) as u16;
    for number in 0..all {
        standbys.keep(at(1), record(number, 1));
        standbys.end(id(number));
    }
    let held: usize = standbys.own.iter().map(|own| lock(own).held.len()).sum();
    assert!(held <= SHARDS * CHANGES_MAX, "{held}");
    standbys.take_changes(usize::MAX, |_, now| assert!(now.is_none()));
    assert!(standbys.own.iter().all(|own| lock(own).held.is_empty()));
}

#[test]
fn the_later_owner_of_a_session_is_believed_and_the_last_session_of_its_that_an_address_has() {
    let standbys = none();
    assert!(standbys.stand_by(B, at(1), record(1, 1)).is_ok());
    assert!(standbys.stand_by(C, at(2), others_record(1, 2)).is_ok());
    assert!(standbys.stand_by(B, at(1), record(1, 1)).is_ok(), "it is late");
    assert_eq!(stands(&standbys), [(1, false), (2, true)]);
    // The one before ends what it has no more.
    standbys.stand_down(B, id(1), 0);
    assert_eq!((stands(&standbys), standbys.counts().standing), (vec![], 1));
    assert!(standbys.stand_by(B, at(2), record(3, 1)).is_ok(), "the player has logged in there");
    assert!(standbys.stand_by(B, at(2), record(2, 1)).is_ok(), "and once more");
    assert_eq!(standbys.counts().standing, 2);
    standbys.stand_down(C, id(1), 0);
    assert_eq!(standbys.counts().standing, 1);
    assert_eq!((0..SHARDS).flat_map(|it| standbys.stands_part(it)).collect::<Vec<_>>(), [at(2)]);
    standbys.stand_down(B, id(2), 0);
    assert_eq!((stands(&standbys), standbys.counts().standing), (vec![(2, false)], 0));
}

/// A reload has moved its listener, and all are given again.
#[test]
fn a_session_is_where_its_owner_says_last_though_nothing_else_of_it_is_new() {
    let standbys = none();
    let moved = Address { listener: ListenerId(3), ..at(1) };
    for place in [at(1), moved] {
        assert!(standbys.stand_by(B, place, record(1, 2)).is_ok());
    }
    assert!(standbys.stand_by(B, at(1), record(1, 1)).is_ok(), "it is late");
    assert_eq!(standbys.hear_offer(B, id(1)).map(|(place, _)| place), Some(moved));
    standbys.set_gone(B, 0);
    assert!(standbys.awaits(&moved) && !standbys.awaits(&at(1)));
    assert_eq!(standbys.counts().standing, 1);
}

#[test]
fn no_more_is_stood_by_for_than_there_is_room_for() {
    let standbys = none();
    let by = |member: u16| (MemberId(member as u8), Incarnation(member));
    let give = |(owner, incarnation), number, term| {
        let holder = Tenure { incarnation, ..record(number, term).holder };
        standbys.stand_by(owner, at(number), Record { holder, ..record(number, term) })
    };
    let most = |member: u16| member * 250..(member + 1) * 250;
    assert!((0..3).all(|it| most(it).all(|number| give(by(it), number, 1).is_ok())));
    assert_eq!(give(by(0), 1001, 1), Err(NoRoom::Share));
    assert_eq!(give(by(0), 249, 2), Ok(()), "one that has moved");
    assert_eq!(give(by(0), 500, 2), Err(NoRoom::Share), "another's");
    assert!(most(3).all(|number| give(by(3), number, 1).is_ok()));
    assert_eq!(give(by(4), 1001, 1), Err(NoRoom::All));
    standbys.stand_down(by(0).0, id(2), 0);
    assert_eq!(give(by(0), 1001, 1), Ok(()));
    assert_eq!(give(by(0), 2, 1), Err(NoRoom::All));
    standbys.stand_down(by(1).0, id(251), 0);
    assert_eq!((give(by(0), 2, 1), give(by(4), 2, 1)), (Err(NoRoom::Share), Ok(())));
}

/// All members hear where all players are.
#[test]
fn what_a_member_gives_at_the_address_of_anothers_player_takes_nothing_from_that_one() {
    let standbys = none();
    assert!(standbys.stand_by(B, at(1), record(1, 1)).is_ok());
    let junk = |number| standbys.stand_by(C, at(1), others_record(number, 9));
    assert_eq!([2, 3].map(junk), [Ok(()); 2]);
    assert_eq!((stands(&standbys), standbys.counts().standing), (vec![(1, true)], 2));
    standbys.set_gone(B, 0);
    assert_eq!(junk(4), Ok(()), "nor does it once that one is gone");
    assert_eq!(all_tried(&standbys, 1, 0..3), [id(1); 3]);
    // Where both are gone, one that does not fit is not in the way for long.
    standbys.set_gone(C, 0);
    assert_eq!(all_tried(&standbys, 1, 3..7), [id(4), id(1), id(4), id(1)]);
    let near = standbys.find_near(&at(7), 0, 9);
    assert_eq!(near.len(), 2);
    assert_eq!(standbys.orphans().len(), 2);
    assert!(standbys.begin_claim(id(4)));
    assert_eq!(standbys.find(&at(1), 9000 * MS), Some(Found::Claimed));
    standbys.give_up(id(4), TakeoverRefusal::Ended);
    assert_eq!(all_tried(&standbys, 1, 10..12), [id(1); 2]);
    standbys.note_taken_over(id(1), false);
    assert_eq!((stands(&standbys), standbys.counts().standing), (vec![(1, false)], 0));
    assert!(!standbys.awaits(&at(1)) && !standbys.awaits_near(&at(1)));
}

#[test]
fn only_a_session_whose_owner_is_gone_may_be_tried_and_not_too_often() {
    let standbys = none();
    assert!(standbys.stand_by(B, at(1), record(1, 1)).is_ok());
    assert!(standbys.stand_by(C, at(2), record(2, 1)).is_ok());
    assert_eq!(standbys.find(&at(1), 0), None);
    assert!(!standbys.begin_claim(id(1)));
    standbys.set_gone(B, 0);
    standbys.set_gone(B, 0);
    assert_eq!((standbys.find(&at(2), 0), standbys.find(&at(3), 0)), (None, None));
    assert_eq!([0, 0].map(|now_ns| tried(&standbys, 1, now_ns)), [Some(1); 2]);
    assert_eq!(standbys.find(&at(1), 0), Some(Found::Limited));
    assert_eq!((tried(&standbys, 1, 50 * MS), tried(&standbys, 1, 99 * MS)), (Some(1), None));
    standbys.set_back(B, Incarnation(9));
    assert_eq!(standbys.gone_count.load(ORDER), 1, "another process");
    standbys.set_back(B, OWNER);
    assert_eq!(standbys.find(&at(1), 200 * MS), None);
    // It starts anew, and gives what it has: a session of its predecessor stays without an owner.
    standbys.set_gone(B, 0);
    assert!(standbys.stand_by(B, at(4), record(4, 1)).is_ok());
    assert_eq!((tried(&standbys, 1, 300 * MS), tried(&standbys, 4, 300 * MS)), (Some(1), None));
    assert!(standbys.stand_by(B, at(1), record(1, 1)).is_ok(), "it says so again");
    assert_eq!(standbys.find(&at(1), 500 * MS), None);
    assert_eq!(standbys.gone_count.load(ORDER), 0);
}

#[test]
fn one_worker_claims_at_a_time_until_it_is_answered() {
    let standbys = none();
    for (number, term) in [(1, 1), (2, 1), (3, 1)] {
        assert!(standbys.stand_by(B, at(number), record(number, term)).is_ok());
    }
    standbys.set_gone(B, 0);
    assert!(standbys.begin_claim(id(1)) && !standbys.begin_claim(id(1)));
    assert_eq!(standbys.find(&at(1), 0), Some(Found::Claimed));
    standbys.give_up(id(1), TakeoverRefusal::NotAnswered);
    assert_eq!(tried(&standbys, 1, 0), Some(1));
    assert!(standbys.begin_claim(id(1)) && standbys.begin_claim(id(2)));
    standbys.note_taken_over(id(1), false);
    standbys.give_up(id(2), TakeoverRefusal::Ended);
    assert_eq!([1, 2].map(|port| tried(&standbys, port, 0)), [None; 2]);
    let counts = standbys.counts();
    assert_eq!((counts.taken_over, counts.standing), (1, 1));
    let named = TakeoverRefusal::ALL.into_iter().filter(|it| counts.refused[*it as usize] > 0);
    assert_eq!(named.map(TakeoverRefusal::name).collect::<Vec<_>>(), ["ended", "not_answered"]);
    assert_eq!(standbys.gone_count.load(ORDER), 1);
}

#[test]
fn a_later_record_lets_no_second_worker_claim() {
    let standbys = none();
    let claims = |revision| {
        let record = Record { revision, ..record(1, 1) };
        assert!(standbys.stand_by(B, at(1), record).is_ok());
        assert!(standbys.hear_offer(B, id(1)).is_some());
        standbys.begin_claim(id(1))
    };
    assert!(claims(1) && !claims(2));
    standbys.give_up(id(1), TakeoverRefusal::NotAnswered);
    assert!(claims(3));
}

#[test]
fn what_nobody_takes_over_is_forgotten_after_its_timeout() {
    let standbys = none();
    for (number, timeout_ms) in [(1, 10_000), (2, 0)] {
        assert!(
            standbys.stand_by(B, at(number), Record { timeout_ms, ..record(number, 1) }).is_ok()
        );
    }
    assert!(standbys.stand_by(C, at(3), record(3, 1)).is_ok());
    standbys.expire(u64::MAX);
    standbys.set_gone(B, 7);
    let standing = |now_ms: u64| {
        standbys.expire(7 + now_ms * MS);
        standbys.counts().standing
    };
    assert_eq!([14_999, 15_000, 59_999, 60_000].map(standing), [3, 2, 2, 1]);
    assert_eq!(standbys.gone_count.load(ORDER), 0);
}

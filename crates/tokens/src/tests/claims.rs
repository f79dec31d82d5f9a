//! A client has one promise in a group, whichever service it asks, and whatever becomes of it.

use ringgate_core::netcode::destination::Join;
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::values::{Backend, Joined, State};

use super::fleet::{
    Fate, NOW, Office, RULES, Store, anywhere, backend as made, gateway, host, name, with_key,
};
use super::joins::join;
use super::journal::SharedDisk;
use super::slots::{later, meet};
use crate::book::Now;
use crate::choose::Speaks;
use crate::desk::{Placed, Request, Rules};
use crate::refusal::Refusal;
use crate::wanted::Where;

/// So many game servers with so many slots each, whose gateway tells who has come.
fn fleet(backends: u32, slots: u32) -> Store {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..backends, slots);
    let mut tells = gateway("one", "192.0.2.1:40000");
    tells.listeners[0].tags = true;
    store.put(&Place::Gateway(name("g-one")), &tells);
    store
}

fn named(text: &str) -> Where {
    Where { backend: Some(name(text)), ..anywhere() }
}

fn place(
    office: &mut Office,
    store: &mut Store,
    (place, client): (&Where, u64),
    now: Now,
) -> Result<Placed, Refusal> {
    let (speaks, clients) = (Speaks::Netcode(None), &[client][..]);
    let expire_s = Some(30);
    let request = Request { place, speaks, count: 1, clients, expire_s, elsewhere: &[] };
    office.ask_for(store, &request, now)
}

fn ask(
    office: &mut Office,
    store: &mut Store,
    wanted: (&Where, u64),
    now: Now,
) -> Result<Name, Refusal> {
    place(office, store, wanted, now).map(|it| it.chosen.backend)
}

/// Two services that know each other.
fn two(store: &mut Store) -> [Office; 2] {
    let mut offices = ["t1", "t2"].map(|service| Office::open(service, store));
    meet(&mut offices, store, NOW);
    offices
}

#[test]
fn a_client_has_one_promise_in_a_group_whichever_service_it_asks() {
    let mut store = fleet(3, 2);
    let [mut one, mut two] = two(&mut store);
    let other = Err(Refusal::PromisedElsewhere);
    // Where a server has no slot for the other service to promise, there is none elsewhere.
    for client in [8, 9] {
        assert_eq!(ask(&mut one, &mut store, (&named("b0"), client), NOW), Ok(name("b0")));
    }
    assert_eq!(ask(&mut two, &mut store, (&anywhere(), 8), NOW), other);
    assert_eq!(ask(&mut one, &mut store, (&anywhere(), 8), NOW), Ok(name("b0")));
    assert_eq!(ask(&mut one, &mut store, (&named("b1"), 7), NOW), Ok(name("b1")));
    assert_eq!(ask(&mut two, &mut store, (&named("b2"), 7), NOW), other);
    assert_eq!(ask(&mut two, &mut store, (&anywhere(), 7), NOW), Ok(name("b1")));
    assert_eq!(ask(&mut one, &mut store, (&anywhere(), 7), NOW), Ok(name("b1")));
    assert_eq!(two.desk.book().sums()[1], 1, "what was refused is promised to nobody");
    // Both have promised it something there: it stands until the last of both is over.
    assert_eq!(ask(&mut two, &mut store, (&anywhere(), 7), later(20)), Ok(name("b1")));
    one.tidy(&mut store, later(50));
    one.keep_company(&mut store, later(50));
    assert_eq!(ask(&mut one, &mut store, (&named("b2"), 7), later(50)), other);
    for office in [&mut one, &mut two] {
        office.tidy(&mut store, later(65));
        office.keep_company(&mut store, later(65));
    }
    assert_eq!(store.promises(), 0);
    assert_eq!(ask(&mut one, &mut store, (&named("b2"), 7), later(65)), Ok(name("b2")));
}

#[test]
fn a_claim_lasts_as_long_as_the_last_of_its_tokens() {
    let mut store = fleet(3, 8);
    let [mut one, mut two] = two(&mut store);
    let refused = Err(Refusal::PromisedElsewhere);
    let (speaks, here) = (Speaks::Netcode(None), named("b1"));
    for expire_s in [30, 5] {
        let clients = &[7][..];
        let expire_s = Some(expire_s);
        let request = Request { place: &here, speaks, count: 1, clients, expire_s, elsewhere: &[] };
        assert!(one.ask_for(&mut store, &request, NOW).is_ok());
    }
    assert_eq!(ask(&mut two, &mut store, (&named("b2"), 7), later(40)), refused);
    // A token of which nobody hears makes nothing last longer.
    let rules = Rules { serves_away: false, ..RULES };
    let mut all = [one, two, Office::with_rules("t3", 1, rules, &mut store)];
    meet(&mut all, &mut store, NOW);
    let [mut one, mut two, mut three] = all;
    assert_eq!(ask(&mut three, &mut store, (&named("b2"), 8), NOW), Ok(name("b2")));
    three.fate = Fate::Late;
    let unheard = ask(&mut three, &mut store, (&named("b2"), 8), later(20));
    assert_eq!(unheard, Err(Refusal::EtcdAway));
    let promised = |now: Now| three.desk.book().promised(8, now.unix_s, |_| true);
    assert!(promised(later(44)).is_some() && promised(later(45)).is_none());
    // One that is told while etcd is away is claimed for as long when that is back.
    one.desk.set_mirror(true, false);
    assert_eq!(ask(&mut one, &mut store, (&named("b1"), 7), later(20)), Ok(name("b1")));
    one.desk.set_mirror(true, true);
    one.keep_company(&mut store, later(20));
    assert_eq!(ask(&mut two, &mut store, (&named("b2"), 7), later(60)), refused);
}

#[test]
fn a_service_that_is_alone_claims_nothing_until_another_one_comes() {
    let mut store = fleet(3, 8);
    let mut one = Office::open("t1", &mut store);
    assert_eq!(ask(&mut one, &mut store, (&named("b1"), 7), NOW), Ok(name("b1")));
    assert_eq!(store.promises(), 0);
    // Until the first one has heard of it, the second one promises nothing.
    let mut two = Office::open("t2", &mut store);
    let unknown = Err(Refusal::NotKnownYet);
    assert_eq!(ask(&mut two, &mut store, (&named("b2"), 7), NOW), unknown);
    assert_eq!(two.desk.readiness(NOW), Err(Refusal::NotKnownYet));
    assert_eq!(ask(&mut one, &mut store, (&named("b1"), 8), NOW), Ok(name("b1")));
    one.mirror(&store);
    // Where what it has promised cannot be claimed, it does not say so.
    one.fate = Fate::Late;
    one.keep_company(&mut store, NOW);
    store.late.clear();
    two.mirror(&store);
    assert_eq!(two.desk.readiness(NOW), Err(Refusal::NotKnownYet));
    one.fate = Fate::Answered;
    one.keep_company(&mut store, NOW);
    assert_eq!(store.promises(), 2);
    two.mirror(&store);
    for client in [7, 8] {
        let refused = Err(Refusal::PromisedElsewhere);
        assert_eq!(ask(&mut two, &mut store, (&named("b2"), client), NOW), refused);
    }
    // One that says nothing for long is not there.
    let mut three = Office::open("t3", &mut store);
    assert_eq!(ask(&mut three, &mut store, (&named("b2"), 9), later(9)), unknown);
    assert_eq!(ask(&mut three, &mut store, (&named("b2"), 9), later(10)), Ok(name("b2")));
}

#[test]
fn a_promise_that_ends_while_others_are_claimed_is_over_once() {
    let mut store = fleet(1, 300);
    let mut one = Office::open("t1", &mut store);
    let (speaks, here) = (Speaks::Netcode(None), named("b0"));
    for client in 0..250 {
        let (clients, expire_s) = (&[client][..], Some(if client == 0 { 5 } else { 30 }));
        let request = Request { place: &here, speaks, count: 1, clients, expire_s, elsewhere: &[] };
        assert!(one.ask_for(&mut store, &request, NOW).is_ok());
    }
    let _two = Office::open("t2", &mut store);
    one.mirror(&store);
    one.keep_company(&mut store, later(20));
    assert_eq!(store.promises(), 250);
    assert_eq!(one.desk.book_mut().take_over_claims(later(20).unix_s).len(), 1);
}

#[test]
fn a_service_of_an_earlier_release_is_not_waited_for() {
    let mut store = fleet(3, 8);
    let mut old = Office::open("t1", &mut store);
    old.told.beside = None;
    store.put(&Place::Service(name("t1")), &old.told);
    let mut new = Office::open("t2", &mut store);
    assert_eq!(ask(&mut new, &mut store, (&named("b2"), 7), NOW), Ok(name("b2")));
    assert_eq!(store.promises(), 1);
}

#[test]
fn a_claim_goes_when_its_player_has_come_or_its_tokens_are_over() {
    let mut store = fleet(3, 8);
    let [mut one, mut two] = two(&mut store);
    let placed = place(&mut one, &mut store, (&named("b1"), 7), NOW).expect("there is room");
    let Join(tag) = join(&placed, 7).expect("a tag");
    assert_eq!(ask(&mut one, &mut store, (&named("b1"), 8), NOW), Ok(name("b1")));
    assert_eq!(store.promises(), 2);
    store.tell_joined(&name("b1"), 1, Some(Joined::new(&[Join(tag)])));
    one.mirror_at(&store, NOW);
    one.keep_company(&mut store, NOW);
    assert_eq!(store.promises(), 1);
    assert_eq!(ask(&mut two, &mut store, (&named("b2"), 7), NOW), Ok(name("b2")));
    one.tidy(&mut store, later(45));
    one.keep_company(&mut store, later(45));
    assert_eq!(store.promises(), 1, "that of the other service");
}

#[test]
fn what_is_worth_nothing_any_more_is_nobodys_promise() {
    let mut store = fleet(3, 8);
    let [mut one, mut two] = two(&mut store);
    assert_eq!(ask(&mut one, &mut store, (&named("b1"), 7), NOW), Ok(name("b1")));
    let state = State::Draining;
    store.put(&Place::Backend(name("b1")), &Backend { state, ..made("one", 2) });
    for office in [&mut one, &mut two] {
        office.mirror(&store);
    }
    assert_eq!(ask(&mut two, &mut store, (&named("b2"), 7), NOW), Ok(name("b2")));
    assert_eq!(ask(&mut one, &mut store, (&named("b0"), 7), NOW), Err(Refusal::PromisedElsewhere));
}

/// Of a service that is told to end, and of one that dies, others find the promises, alone or not.
#[test]
fn a_client_that_was_sent_on_is_claimed_where_it_was_sent_last() {
    let mut store = fleet(3, 2);
    let mut one = Office::open("t1", &mut store);
    meet(std::slice::from_mut(&mut one), &mut store, NOW);
    assert_eq!(ask(&mut one, &mut store, (&named("b1"), 7), NOW), Ok(name("b1")));
    let state = State::Draining;
    store.put(&Place::Backend(name("b1")), &Backend { state, ..made("one", 2) });
    one.mirror(&store);
    assert_eq!(ask(&mut one, &mut store, (&named("b0"), 7), later(1)), Ok(name("b0")));
    // Another one comes, and has to find what was promised while there was nobody.
    let mut offices = [one, Office::open("t2", &mut store)];
    meet(&mut offices, &mut store, later(2));
    let [_, mut two] = offices;
    assert_eq!(ask(&mut two, &mut store, (&anywhere(), 7), later(2)), Ok(name("b0")));
}

#[test]
fn promises_of_a_service_that_has_gone_are_found() {
    for (is_alone, ends) in [(true, true), (false, true), (false, false)] {
        let mut store = fleet(3, 8);
        let [mut one, two] = two(&mut store);
        let mut others = if is_alone { Vec::new() } else { vec![two] };
        if is_alone {
            store.remove(&Place::Service(name("t2")));
            meet(std::slice::from_mut(&mut one), &mut store, NOW);
        }
        assert_eq!(ask(&mut one, &mut store, (&named("b1"), 7), NOW), Ok(name("b1")));
        assert_eq!(store.promises(), usize::from(!is_alone));
        let owner = one.owner.clone();
        if ends {
            one.end(&mut store, NOW);
        } else {
            store.remove(&Place::Service(name("t1")));
        }
        meet(&mut others, &mut store, NOW);
        others.push(Office::start("t1", 2, &mut store));
        meet(&mut others, &mut store, NOW);
        for office in &mut others {
            let refused = Err(Refusal::PromisedElsewhere);
            assert_eq!(ask(office, &mut store, (&named("b2"), 7), NOW), refused, "{owner}");
            assert_eq!(ask(office, &mut store, (&anywhere(), 7), NOW), Ok(name("b1")));
        }
    }
}

#[test]
fn the_next_start_knows_whom_a_killed_service_has_promised_what() {
    let mut store = fleet(3, 8);
    let mut killed = Office::open("t1", &mut store);
    assert_eq!(ask(&mut killed, &mut store, (&named("b1"), 7), NOW), Ok(name("b1")));
    let mut next = killed.follow(2, &mut store, NOW);
    let mut other = Office::open("t2", &mut store);
    let refused = Err(Refusal::PromisedElsewhere);
    for office in [&mut next, &mut other] {
        office.mirror(&store);
        office.keep_company(&mut store, NOW);
    }
    other.mirror(&store);
    assert_eq!(ask(&mut other, &mut store, (&named("b2"), 7), NOW), refused);
    next.mirror(&store);
    assert_eq!(ask(&mut next, &mut store, (&named("b2"), 7), NOW), refused);
    assert_eq!(ask(&mut next, &mut store, (&anywhere(), 7), NOW), Ok(name("b1")));
}

#[test]
fn a_request_that_nobody_hears_of_leaves_a_doubtful_promise_as_it_was() {
    let mut store = fleet(3, 8);
    let rules = Rules { serves_away: false, ..RULES };
    let mut killed = Office::with_rules("t1", 1, rules, &mut store);
    assert_eq!(ask(&mut killed, &mut store, (&named("b1"), 7), NOW), Ok(name("b1")));
    let mut offices = [killed.follow(2, &mut store, NOW), Office::open("t2", &mut store)];
    meet(&mut offices, &mut store, NOW);
    let [mut one, mut two] = offices;
    one.lease(&mut store, &name("b1"), 4, NOW);
    for fate in [Fate::Late, Fate::Lost] {
        one.fate = fate;
        let unheard = ask(&mut one, &mut store, (&named("b1"), 7), later(5));
        assert_eq!(unheard, Err(Refusal::EtcdAway));
        one.fate = Fate::Answered;
        one.keep_company(&mut store, later(5));
        assert_eq!((store.promises(), one.desk.book().sums()[1]), (1, 1));
        for office in [&mut one, &mut two] {
            let refused = Err(Refusal::PromisedElsewhere);
            assert_eq!(ask(office, &mut store, (&named("b2"), 7), later(5)), refused);
        }
    }
    assert_eq!(ask(&mut one, &mut store, (&anywhere(), 7), later(5)), Ok(name("b1")));
    assert_eq!(one.desk.book().sums()[1], 2, "and that one is told");
}

#[test]
fn what_went_with_a_lease_is_claimed_again() {
    let mut store = fleet(3, 8);
    let [mut one, mut two] = two(&mut store);
    assert_eq!(ask(&mut one, &mut store, (&named("b1"), 7), NOW), Ok(name("b1")));
    store.end_lease(&one.owner);
    one.desk.lose_lease();
    one.keep_company(&mut store, NOW);
    assert_eq!(store.promises(), 0, "there is no lease yet");
    one.desk.set_leased(u64::MAX);
    one.keep_company(&mut store, NOW);
    let refused = Err(Refusal::PromisedElsewhere);
    assert_eq!(ask(&mut two, &mut store, (&named("b2"), 7), NOW), refused);
}

#[test]
fn without_a_lease_nothing_is_claimed() {
    let mut store = fleet(1, 8);
    let mut one = Office::open("t1", &mut store);
    assert_eq!(ask(&mut one, &mut store, (&named("b0"), 7), NOW), Ok(name("b0")));
    let covering = one.desk.cover(true, NOW).expect("it is to be claimed");
    assert!(covering.txn(0, None).is_err());
    assert!(covering.txn(1, None).is_ok());
}

#[test]
fn what_a_backup_of_etcd_does_not_have_is_leased_and_claimed_again() {
    let mut store = fleet(1, 40);
    let [mut one, mut two] = two(&mut store);
    assert_eq!(ask(&mut one, &mut store, (&named("b0"), 7), NOW), Ok(name("b0")));
    one.lease(&mut store, &name("b0"), 39, NOW);
    assert_eq!(one.desk.book().sums()[0], 40);
    for place in [
        Place::Block(name("b0"), one.owner.clone()),
        Place::Guard(name("b0")),
        Place::Promise(name("main"), 7),
    ] {
        store.remove(&place);
    }
    two.lease(&mut store, &name("b0"), 40, NOW);
    one.desk.meet_history();
    assert_eq!(one.desk.book().sums()[..2], [1, 1], "what is promised stays so");
    assert!(ask(&mut one, &mut store, (&named("b0"), 8), NOW).is_err(), "it is another's slot");
    one.keep_company(&mut store, NOW);
    assert_eq!(store.promises(), 1);
}

#[test]
fn while_etcd_is_away_each_service_goes_by_what_it_knows_or_refuses() {
    for serves_away in [true, false] {
        let mut store = fleet(3, 8);
        let rules = Rules { serves_away, ..RULES };
        let open = |service: &str, store: &mut Store| {
            Office::on(SharedDisk::new(), (service, 1), (rules, NOW), store)
        };
        let mut offices = ["t1", "t2"].map(|service| open(service, &mut store));
        meet(&mut offices, &mut store, NOW);
        let [mut one, mut two] = offices;
        assert_eq!(ask(&mut one, &mut store, (&named("b1"), 7), NOW), Ok(name("b1")));
        two.desk.set_mirror(true, false);
        let served = ask(&mut two, &mut store, (&named("b2"), 7), NOW);
        let refused = Err(Refusal::EtcdAway);
        assert_eq!(served, if serves_away { Ok(name("b2")) } else { refused.clone() });
        two.desk.set_mirror(true, true);
        // The same where it goes away just now: what was refused is promised to nobody.
        two.lease(&mut store, &name("b0"), 1, NOW);
        two.fate = Fate::Lost;
        let promised = two.desk.book().sums()[1];
        let served = ask(&mut two, &mut store, (&named("b0"), 9), NOW);
        let more = two.desk.book().sums()[1] - promised;
        assert_eq!((served, more), if serves_away { (Ok(name("b0")), 1) } else { (refused, 0) });
        two.fate = Fate::Answered;
        two.keep_company(&mut store, NOW);
        assert_eq!(store.promises(), 2, "of 7 at the first, and of 9");
        let there = ask(&mut two, &mut store, (&named("b0"), 9), NOW);
        assert_eq!((there, store.promises()), (Ok(name("b0")), 2));
    }
}

#[test]
fn claims_whose_answers_were_lost_keep_nobody_from_being_alone() {
    let mut store = fleet(2, 8);
    let rules = Rules { serves_away: false, ..RULES };
    let mut offices = ["t1", "t2"].map(|service| Office::with_rules(service, 1, rules, &mut store));
    meet(&mut offices, &mut store, NOW);
    let [mut one, two] = offices;
    one.lease(&mut store, &name("b0"), 4, NOW);
    one.fate = Fate::Lost;
    assert_eq!(ask(&mut one, &mut store, (&named("b0"), 7), NOW), Err(Refusal::EtcdAway));
    one.fate = Fate::Answered;
    assert_eq!((store.promises(), one.desk.book().sums()[1]), (1, 0), "nobody knows of it");
    two.end(&mut store, NOW);
    meet(std::slice::from_mut(&mut one), &mut store, later(44));
    assert_eq!(store.promises(), 1, "it is not over");
    assert!(one.desk.looks_for_others());
    one.keep_company(&mut store, later(45));
    assert_eq!(store.promises(), 0);
    one.desk.set_mirror(true, false);
    assert_eq!(ask(&mut one, &mut store, (&named("b0"), 7), later(45)), Ok(name("b0")));
}

#[test]
fn an_etcd_that_answers_and_takes_no_decisions_counts_as_away() {
    for serves_away in [true, false] {
        let mut store = fleet(1, 2);
        let rules = Rules { serves_away, ..RULES };
        let mut one = Office::with_rules("t1", 1, rules, &mut store);
        one.fate = Fate::Late;
        one.desk.miss_decision(&name("b0"), NOW);
        let full = Err(Refusal::NoSlot);
        assert_eq!(ask(&mut one, &mut store, (&anywhere(), 7), NOW), full, "it may be a moment");
        one.desk.miss_decision(&name("b0"), later(4));
        let served = |one: &mut Office, store: &mut Store, client| {
            ask(one, store, (&anywhere(), client), later(5))
        };
        let told = [7, 8, 9].map(|client| served(&mut one, &mut store, client));
        let known = [Ok(name("b0")), Ok(name("b0")), full];
        let refused = [Err(Refusal::EtcdAway), Err(Refusal::EtcdAway), Err(Refusal::EtcdAway)];
        assert_eq!(told, if serves_away { known } else { refused });
        assert_eq!(one.desk.readiness(later(5)).is_ok(), serves_away);
        assert_eq!(one.desk.undecided(), Some(name("b0")), "there it is tried again");
        one.desk.note_decision();
        assert!(!one.desk.is_away(later(5)));
    }
}

//! Members of a cluster that find each other over loopback, and others that are none of them.

mod stub;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringgate_cluster::wire::{Datagram, Ear, Message, VERSION};
use ringgate_cluster::{
    Incarnation, NetcodeProof, Proof, RECORD_BYTES_MAX, Record, SessionId, Tenure, Term,
};
use ringgate_core::secret::Key;
use ringgate_link::bundle::Frame;
use ringgate_os::clock::{self, Clock};
use ringgate_os::notify::{Epoll, Ready};
use ringgate_os::wiping::{Wiping, wipe_from_now_on};
use rustls::pki_types::ServerName;
use zeroize::Zeroizing;

use super::board::{OFFER_EVERY_NS, OFFERS_MAX};
use super::talk::{FORWARDS_ON, forward};
use super::{Entrance, MemberShown, Peers, Settings, State};
use crate::protocol::beat::BEAT_NS;
use crate::protocol::tls::fixtures::{CLUSTERS_AGENT, MEMBER_1, MEMBER_2};
use crate::protocol::tls::tests::residue::{Masked, overwrite_the_stack, search};
use crate::protocol::tls::{self, Identity, Peer, certified_name};
use crate::socket::{self, End, Event, Trunk, provider};
use stub::Stub;

/// As the program has it.
#[global_allocator]
static ALLOCATOR: Wiping = Wiping;

/// Whoever is slower than this waits for something that does not come.
const PATIENCE: Duration = Duration::from_mins(1);

fn member(name: &str, identity: Identity<'_>) -> Option<Peers> {
    with_players(name, identity, &Arc::default())
}

fn with_players(name: &str, identity: Identity<'_>, players: &Arc<Stub>) -> Option<Peers> {
    let suffices = ringgate_os::processor::suffices_for_tls();
    suffices.inspect_err(|why| eprintln!("SKIPPED: {why}")).ok()?;
    let settings = Settings {
        cluster: "fra".to_owned(),
        name: name.to_owned(),
        bind: ([127, 0, 0, 1], 0).into(),
        incarnation: 7,
        clock: Clock::start(),
    };
    let identity = Peer::new(&provider(), identity).expect("good files");
    let mut peers = Peers::new(settings, identity).expect("descriptors");
    let door = peers.open().expect("loopback");
    peers.start(door, Arc::clone(players)).expect("a thread");
    Some(peers)
}

fn at(peers: &Peers) -> Entrance {
    let address = until("its address", || peers.window().shown().address);
    Entrance { host: address.ip().to_string(), port: address.port() }
}

fn told(members: &[(&str, &Entrance)]) -> BTreeMap<String, Entrance> {
    members.iter().map(|(name, at)| ((*name).to_owned(), (*at).clone())).collect()
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::start();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Duration::from_nanos(clock.now_ns()) < PATIENCE, "{what} does not come");
        std::thread::yield_now();
    }
}

/// How a member sees the only other one.
fn other(peers: &Peers, is_it: impl Fn(&MemberShown) -> bool) -> MemberShown {
    let seen = || peers.window().shown().members.into_iter().next().filter(|it| is_it(it));
    until("another state", seen)
}

fn is_up(shown: &MemberShown) -> bool {
    shown.state == State::Up && shown.round_trip_ns.is_some()
}

#[test]
fn the_one_whose_name_comes_first_connects_and_who_is_not_told_of_stays() {
    let Some(second) = member("gate-2", MEMBER_2) else { return };
    let mut first = member("gate-1", MEMBER_1).expect("it is possible");
    let places = [at(&first), at(&second)];
    let all = told(&[("gate-1", &places[0]), ("gate-2", &places[1])]);
    second.set_members(all.clone());
    other(&second, |it| it.state == State::Awaited && it.name == "gate-1");
    first.set_members(all);
    for peers in [&first, &second] {
        assert_eq!(other(peers, is_up).connections, 1);
    }

    // Nobody tells of it any more, and it is there.
    for peers in [&first, &second] {
        peers.set_members(BTreeMap::new());
        other(peers, |it| is_up(it) && !it.is_known);
    }
    second.set_members(told(&[("gate-1", &places[0])]));
    first.stop();
    let seen = other(&second, |it| it.state == State::Awaited);
    assert_eq!(seen.last_end.expect("it has ended").0, "shutting_down");

    // It comes again.
    let first = member("gate-1", MEMBER_1).expect("it is possible");
    first.set_members(told(&[("gate-2", &places[1])]));
    assert_eq!(other(&second, is_up).connections, 2);
}

#[test]
fn an_agents_certificate_is_no_members_and_a_trunks_protocol_is_not_the_clusters() {
    let Some(second) = member("gate-2", MEMBER_2) else { return };
    // An agent whom the cluster's own authority has certified says that it is a member.
    let first = member("gate-1", CLUSTERS_AGENT).expect("it is possible");
    first.set_members(told(&[("gate-2", &at(&second))]));
    let refused = |why: &'static str| {
        let count = || second.window().shown().refused.get(why).copied();
        until(why, || count().filter(|it| *it > 0))
    };
    refused("foreign_name");
    let seen = other(&first, |it| it.last_end.is_some() && it.state != State::Up);
    assert_eq!((seen.last_end.expect("it was refused").0, seen.connections), ("foreign_name", 0));
    assert!(second.window().shown().members.is_empty());

    // A member's certificate does not help who speaks as agents do.
    let dials = tls::Agent::new(provider(), MEMBER_1).expect("good files");
    let server = ServerName::try_from(certified_name("fra", "gate-2")).expect("a name");
    let address = second.window().shown().address.expect("it is bound");
    let (epoll, settings) = (Epoll::new().expect("descriptors"), socket::Settings::default());
    let trunk = Trunk::connect(&dials, (address, server), "gate-1", settings, &epoll, 0);
    let (mut trunk, mut ready) = (trunk.expect("loopback"), Vec::new());
    let why = until("its end", || {
        epoll.wait(&mut ready, Duration::from_millis(10)).expect("it works");
        for ready in &ready {
            trunk.handle_ready(*ready, &epoll, 0, |_| {});
        }
        trunk.flush(&epoll, 0);
        trunk.over().map(End::name)
    });
    assert_ne!(why, "silence");
    refused("tls");
}

const US: u16 = 0;
const EU: u16 = 5;

fn player(port: u16) -> SocketAddr {
    SocketAddr::new([192, 0, 2, 7].into(), port)
}

/// Two members with other numbers for listeners of the same names.
fn two() -> Option<[(Arc<Stub>, Peers); 2]> {
    let stubs = [Stub::new(&[(EU, "eu")]), Stub::new(&[(US, "us"), (EU + 1, "eu")])];
    stubs[0].come(EU, player(1));
    let second = with_players("gate-2", MEMBER_2, &stubs[1])?;
    let first = with_players("gate-1", MEMBER_1, &stubs[0])?;
    first.set_members(told(&[("gate-2", &at(&second))]));
    let [one, two] = stubs;
    Some([(one, first), (two, second)])
}

#[test]
fn each_knows_whom_the_other_has_and_forwards_to_it() {
    let Some([(one, first), (two, second)]) = two() else { return };
    // Who was there before, then who comes and goes.
    let number = until("a player", || two.finds(EU + 1, player(1)));
    other(&second, |it| it.has_told_all && it.players == 1 && it.speaks == Some(VERSION));
    one.come(EU, player(2));
    until("another", || two.finds(EU + 1, player(2)));
    one.go(EU, player(1));
    until("it is gone", || two.finds(EU + 1, player(1)).is_none().then_some(()));

    let to = SocketAddr::new([198, 51, 100, 9].into(), 4000);
    let long = [7; 1400];
    for bytes in [&b"hello"[..], &long] {
        two.send(number, EU + 1, (player(2), to), bytes);
        let came = until("a datagram", || one.take());
        assert_eq!(came, (EU, player(2), to, false, bytes.to_vec()));
    }
    let seen = other(&first, |it| it.forwarded[0] == 2);
    assert!(seen.dropped.is_empty(), "{:?}", seen.dropped);
    other(&second, |it| it.forwarded == [0, 2]);
    // What was accepted is said by rate.
    one.accept(EU, player(2), 100, 0);
    until("a rate", || two.rate(EU + 1, player(2)).filter(|it| *it > 0));

    // A listener that comes later is told of as well.
    one.come(EU + 2, player(3));
    one.set_listeners(&[(EU, "eu"), (EU + 2, "us")]);
    until("its player", || two.finds(US, player(3)));
}

#[test]
fn a_listener_that_is_added_where_players_are_told_of_has_them_too() {
    let Some([(one, first), (two, second)]) = two() else { return };
    two.come(US, player(9));
    until("the first", || two.finds(EU + 1, player(1)));
    other(&first, |it| it.has_told_all && it.players == 0);
    assert_eq!(one.finds(US, player(9)), None);
    // And stands by for them from then on.
    one.set_incarnation(11);
    two.set_incarnation(12);
    two.keep(US, &record(9, 12));
    other(&first, |it| it.dropped.get("listener_absent") == Some(&1));
    assert!(one.kept().is_empty());
    one.set_listeners(&[(EU, "eu"), (9, "us")]);
    until("its player", || one.finds(9, player(9)));
    let kept = until("its record", || one.kept().remove(&SessionId([9; 16])));
    assert_eq!((kept.1, kept.2), (9, record(9, 12)));
    other(&first, |it| it.players == 1);
    // What is told while it is moved from one number to another is told again, and so is the rest
    // once the first one is closed: nobody knows by then which of all that was told was for it.
    two.come(EU + 1, player(8));
    until("one of the other", || one.finds(EU, player(8)));
    one.set_listeners(&[(EU, "eu"), (4, "us"), (9, "us")]);
    until("its player", || one.finds(4, player(9)));
    assert_eq!(one.finds(9, player(9)), Some(0));
    one.set_listeners(&[(EU, "eu"), (4, "us")]);
    until("nobody at what is closed", || one.finds(9, player(9)).is_none().then_some(()));
    until("its player", || one.finds(4, player(9)));
    until("that of the other", || one.finds(EU, player(8)));
    other(&first, |it| it.players == 2 && it.has_told_all);
    drop(second);
    until("nobody", || one.finds(4, player(9)).is_none().then_some(()));
}

#[test]
fn a_datagram_goes_on_to_who_has_its_player_by_now_and_no_further() {
    let players = Stub::new(&[(EU, "eu")]);
    let Some(second) = with_players("gate-2", MEMBER_2, &players) else { return };
    let mut first = Raw::gate_1(&second);
    first.say(&Message::Begin { version: VERSION });
    first.say(&Message::Listener { number: 1, name: "eu" });
    first.until_seen(&second, |it| it.speaks == Some(VERSION));
    // A member that is not connected: what goes on to it is counted.
    players.set_known(EU, player(1), 40);
    let (from, to) = (player(1), SocketAddr::new([198, 51, 100, 9].into(), 4000));
    let send = |hops: u8, first: &mut Raw| {
        let (player, bytes) = (from, &b"whose?"[..]);
        let datagram = Datagram { listener: 1, player, to, is_lost: false, hops, bytes };
        let now_ns = first.clock.now_ns();
        forward(&mut first.trunk, &datagram, now_ns);
    };
    send(1, &mut first);
    first.until("it goes on", |_| (second.window().shown().not_connected == 1).then_some(()));
    assert_eq!(players.take(), None);
    send(2, &mut first);
    first.until("it stays", |_| players.take());
    // The session has gone meanwhile to who has sent it.
    players.set_known(EU, player(1), 0);
    send(1, &mut first);
    first.until_seen(&second, |it| it.forwarded == [3, 1]);
    assert_eq!(players.take(), None);
    assert_eq!(second.window().shown().not_connected, 1);
}

#[test]
fn a_member_that_is_gone_or_comes_anew_is_forgotten_and_told_again() {
    let Some([(one, first), (two, second)]) = two() else { return };
    let number = until("a player", || two.finds(EU + 1, player(1)));
    drop(first);
    until("nobody", || two.finds(EU + 1, player(1)).is_none().then_some(()));
    two.send(number, EU + 1, (player(1), player(4)), b"too late");
    let lost = || second.window().shown().not_connected;
    until("it is counted", || (lost() == 1).then_some(()));
    let again = Stub::new(&[(3, "eu")]);
    again.come(3, player(8));
    let first = with_players("gate-1", MEMBER_1, &again).expect("it is possible");
    first.set_members(told(&[("gate-2", &at(&second))]));
    until("another player", || two.finds(EU + 1, player(8)));
    assert_eq!(two.finds(EU + 1, player(1)), None);
    drop(one);
}

#[test]
fn a_member_that_has_died_is_shown_when_the_fleet_has_forgotten_it() {
    let Some(second) = member("gate-2", MEMBER_2) else { return };
    let place = at(&second);
    second.set_members(told(&[("gate-1", &place), ("gate-3", &place)]));
    let mut first = Raw::gate_1(&second);
    first.until_seen(&second, is_up);
    drop(first);
    other(&second, |it| it.state == State::Awaited && it.last_end.is_some());
    // Its registration has ended, as that of the other has, which was never there.
    second.set_members(BTreeMap::new());
    until("one to be forgotten", || (second.window().shown().members.len() == 1).then_some(()));
    let seen = other(&second, |it| it.state == State::Absent && !it.is_known);
    assert_eq!((seen.name.as_str(), seen.connections), ("gate-1", 1));
    // It comes again, and says goodbye.
    let mut first = member("gate-1", MEMBER_1).expect("it is possible");
    first.set_members(told(&[("gate-2", &place)]));
    other(&second, is_up);
    first.stop();
    until("it to be forgotten", || second.window().shown().members.is_empty().then_some(()));
}

/// A record of a session that this process has.
fn record(number: u8, incarnation: u16) -> Record {
    let incarnation = Incarnation(incarnation);
    let (ip, port) = ([192, 0, 2, 7], u16::from(number));
    Record {
        session: SessionId([number; 16]),
        token: [1; 16],
        holder: Tenure { term: Term::new(1).expect("it is one"), incarnation },
        revision: 1,
        token_until_s: 1 << 40,
        since_s: 9,
        timeout_ms: 10_000,
        silent_ms: 0,
        slot: 0,
        player: (std::net::Ipv4Addr::from(ip).to_ipv6_mapped().octets(), port),
        local: ([4; 16], 4000),
        backend: "arena".to_owned(),
        proof: Proof::Netcode(Box::new(NetcodeProof {
            open_key: Key::from_bytes([1; 32]),
            seal_key: Key::from_bytes([2; 32]),
            client_id: number.into(),
            is_confirmed: true,
            newest: 0,
            user_data: [5; 256],
        })),
    }
}

#[test]
fn a_member_stands_by_for_each_session_and_all_know_for_whom() {
    let Some([(one, first), (two, second)]) = two() else { return };
    one.keep(EU, &record(1, 11));
    two.set_incarnation(12);
    other(&first, |it| it.can_stand_by && it.stands_by == 0);
    assert!(two.kept().is_empty(), "it is not known which process the owner is");
    one.set_incarnation(11);
    let kept = until("a record", || two.kept().remove(&SessionId([1; 16])));
    assert_eq!((kept.1, kept.2), (EU + 1, record(1, 11)));
    let stands = until("who stands by", || one.stands(EU, player(1)));
    assert_eq!(Some(stands), Some(kept.0), "both have one other member");
    other(&first, |it| it.can_stand_by && it.stands_by == 1);

    // What changes is told, and what ends.
    let moved = Record { revision: 2, ..record(1, 11) };
    one.keep(EU, &moved);
    one.keep(EU, &record(2, 11));
    until("both", || (two.kept().len() == 2).then_some(()));
    until("what has changed", || (two.kept()[&moved.session].2 == moved).then_some(()));
    one.end(moved.session);
    until("that it is over", || (two.kept().len() == 1).then_some(()));
    until("that nobody stands by", || one.stands(EU, player(1)).is_none().then_some(()));

    // The owner comes again as another process, which knows nothing of what was.
    drop(first);
    until("that it is gone", || second.window().shown().members.is_empty().then_some(()));
    assert_eq!(two.kept().len(), 1, "that may be taken over");
    let again = Stub::new(&[(3, "eu")]);
    again.set_incarnation(13);
    let first = with_players("gate-1", MEMBER_1, &again).expect("it is possible");
    first.set_members(told(&[("gate-2", &at(&second))]));
    until("who stands by", || again.stands(3, player(2)));
    other(&second, |it| it.can_stand_by);
}

#[test]
fn keys_that_a_member_is_given_stay_in_no_buffer_at_either_end() {
    let players = Stub::new(&[(EU, "eu")]);
    let Some(second) = with_players("gate-2", MEMBER_2, &players) else { return };
    wipe_from_now_on();
    let mut first = Raw::gate_1(&second);
    first.say(&Message::Begin { version: VERSION });
    let mut key = Zeroizing::new(vec![0; 32]);
    key.iter_mut().zip((11..).step_by(37)).for_each(|(byte, it)| *byte = it as u8);
    let masked = [Masked::of(key[..].try_into().expect("its length"))];
    first.say(&Message::Listener { number: 9, name: "us" });
    // No record that is read: those wipe their keys.
    first.say(&Message::Record { listener: 9, bytes: &key });
    first.until_seen(&second, |it| it.dropped.contains_key("listener_absent"));
    assert_ne!(search(&masked), [0], "it is found where it lies");
    drop(key);
    overwrite_the_stack();
    assert_eq!(search(&masked), [0]);
}

#[test]
fn a_member_that_does_not_answer_is_given_up_until_it_does() {
    let players = Stub::new(&[(EU, "eu")]);
    players.set_incarnation(12);
    let Some(second) = with_players("gate-2", MEMBER_2, &players) else { return };
    let mut silent = Raw::gate_1(&second);
    silent.say(&Message::Begin { version: VERSION });
    silent.say(&Message::Incarnation(Incarnation(11)));
    silent.until_seen(&second, |it| it.can_stand_by);
    let to = SocketAddr::new([198, 51, 100, 9].into(), 4000);
    until("that it is given up", || {
        players.send(0, EU, (player(1), to), b"who has me?");
        (players.silent() == 1).then_some(())
    });
    assert_eq!(other(&second, |it| it.silences == 1).state, State::Up);
    silent.say(&Message::Answer(1));
    silent.until("that it is there", |_| (players.silent() == 0).then_some(()));
}

#[test]
fn a_session_is_offered_to_who_is_to_have_it_and_all_of_them_by_who_leaves() {
    let Some(members) = two() else { return };
    for (number, (players, _)) in (21..).zip(&members) {
        players.set_incarnation(number);
    }
    let [(one, _first), (two, _second)] = &members;
    until("both to be able", || (one.able().len() + two.able().len() == 2).then_some(()));
    let sessions = [1, 2].map(|number| record(number, 21).session);
    for number in [1, 2] {
        one.keep(EU, &record(number, 21));
    }
    until("its records", || (two.kept().len() == 2).then_some(()));
    assert_eq!(two.heard_offers(), []);
    one.offer(sessions[0], 0);
    until("an offer", || (two.heard_offers() == [(0, sessions[0], true)]).then_some(()));
    // Who leaves takes nothing.
    two.leave(true);
    until("it to be left alone", || one.able().is_empty().then_some(()));
    until("its records to be elsewhere", || two.kept().is_empty().then_some(()));
    two.leave(false);
    until("it to stand by again", || (two.kept().len() == 2).then_some(()));
    one.leave(true);
    for session in sessions {
        let is_it = |it: &(u8, SessionId, bool)| *it == (0, session, false);
        until("all to be offered", || two.heard_offers().iter().any(is_it).then_some(()));
    }
}

#[test]
fn who_leaves_offers_as_much_at_a_time_as_others_have_room_for() {
    let Some(members) = two() else { return };
    for (number, (players, _)) in (21..).zip(&members) {
        players.set_incarnation(number);
    }
    let [(one, _first), (two, _second)] = &members;
    (0..=255).for_each(|number| one.keep(EU, &record(number, 21)));
    until("its records", || (two.kept().len() == 256).then_some(()));
    let clock = Clock::start();
    one.leave(true);
    let offered = || two.heard_offers().into_iter().map(|it| it.1);
    until("some to be offered", || (offered().count() >= OFFERS_MAX).then_some(()));
    let turns = one.turns();
    until("another turn", || (one.turns() > turns + 1).then_some(()));
    let (offers, rounds) = (offered().count(), 1 + clock.now_ns() / OFFER_EVERY_NS);
    assert!(offers <= OFFERS_MAX * rounds as usize, "{offers} in {rounds} rounds");
    let mut taken = BTreeSet::new();
    until("all to be offered", || {
        offered().filter(|it| taken.insert(*it)).for_each(|it| one.end(it));
        (taken.len() == 256).then_some(())
    });
}

#[test]
fn whoever_awaits_a_member_that_has_gone_sleeps() {
    let players = Stub::new(&[]);
    let Some(second) = with_players("gate-2", MEMBER_2, &players) else { return };
    let mut first = member("gate-1", MEMBER_1).expect("it is possible");
    let all = told(&[("gate-1", &at(&first)), ("gate-2", &at(&second))]);
    second.set_members(all.clone());
    first.set_members(all);
    other(&second, is_up);
    first.stop();
    other(&second, |it| it.state == State::Awaited);
    // A thread that is late has fewer.
    let before = players.turns();
    clock::sleep(Duration::from_millis(300));
    let turns = players.turns() - before;
    assert!(turns < 300, "{turns}");
}

#[test]
fn a_member_gives_its_own_sessions_only() {
    let players = Stub::new(&[(EU, "eu")]);
    let Some(second) = with_players("gate-2", MEMBER_2, &players) else { return };
    let mut hostile = Raw::gate_1(&second);
    hostile.say(&Message::Begin { version: VERSION });
    hostile.say(&Message::Listener { number: 1, name: "eu" });
    hostile.say(&Message::Incarnation(Incarnation(11)));
    let mut bytes = [0; RECORD_BYTES_MAX];
    for record in [record(1, 12), record(2, 11)] {
        let len = record.write_to(&mut bytes).expect("it fits");
        hostile.say(&Message::Record { listener: 1, bytes: &bytes[..len] });
    }
    hostile.say(&Message::Record { listener: 1, bytes: b"none" });
    let expected = [("holder", 1), ("record", 1)];
    hostile.until_seen(&second, |it| it.dropped == BTreeMap::from(expected));
    assert_eq!(players.kept().into_keys().collect::<Vec<_>>(), [SessionId([2; 16])]);
}

/// A member that says what a test says, and nothing by itself.
struct Raw {
    trunk: Trunk,
    epoll: Epoll,
    clock: Clock,
    /// Whom it was told of, and whether each is there.
    heard: BTreeSet<(SocketAddr, bool)>,
    ear: Ear,
    /// Sends nothing from when both know each other.
    is_mute: bool,
}

impl Raw {
    fn gate_1(of: &Peers) -> Self {
        Self::gate_1_that(of, false)
    }

    fn gate_1_that(of: &Peers, is_mute: bool) -> Self {
        let member = Peer::new(&provider(), MEMBER_1).expect("good files");
        let server = ServerName::try_from(certified_name("fra", "gate-2")).expect("a name");
        let address = until("its address", || of.window().shown().address);
        let (epoll, clock) = (Epoll::new().expect("descriptors"), Clock::start());
        let settings = socket::Settings::default();
        let to = (address, server);
        let trunk = Trunk::connect(&member.dials, to, "gate-1", settings, &epoll, clock.now_ns());
        let (trunk, ear) = (trunk.expect("loopback"), Ear::default());
        let mut raw = Self { trunk, epoll, clock, heard: BTreeSet::new(), ear, is_mute };
        raw.until("the other end", |trunk| trunk.agreed().map(drop));
        raw
    }

    fn turn(&mut self) {
        self.turn_to_its_end();
        assert!(self.trunk.over().is_none(), "{:?}", self.trunk.over());
    }

    fn turn_to_its_end(&mut self) {
        let Self { trunk, epoll, clock, heard, ear, is_mute } = self;
        let mut ready = Vec::new();
        epoll.wait(&mut ready, Duration::from_millis(5)).expect("it works");
        let now_ns = clock.now_ns();
        let mut hear = |event: Event<'_>| {
            let Event::Message(message) = event else { return };
            let (all, is_here) = match ear.hear(message, |_| Some(EU)) {
                Ok((_, Message::Told(all))) => (all, true),
                Ok((_, Message::Left(all))) => (all, false),
                _ => return,
            };
            heard.extend(all.iter().map(|(player, _)| (player, is_here)));
        };
        let token = socket::Settings::default().token;
        if trunk.has_more() && ready.iter().all(|it| it.token != token) {
            ready.push(Ready { token, events: 0 });
        }
        for ready in ready {
            trunk.handle_ready(ready, epoll, now_ns, &mut hear);
        }
        if !*is_mute || trunk.agreed().is_none() {
            trunk.poll(now_ns);
            trunk.flush(epoll, now_ns);
        }
    }

    fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Trunk) -> Option<T>) -> T {
        until(what, || {
            self.turn();
            look(&self.trunk)
        })
    }

    fn say(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        self.trunk.say(&bytes);
    }

    fn until_seen(&mut self, peers: &Peers, is_it: impl Fn(&MemberShown) -> bool) {
        let seen = || peers.window().shown().members.into_iter().any(|it| is_it(&it));
        self.until("another state", |_| seen().then_some(()));
    }
}

#[test]
fn a_member_of_a_release_without_messages_stays_and_is_forwarded_nothing() {
    let players = Stub::new(&[(EU, "eu")]);
    players.come(EU, player(1));
    let Some(second) = with_players("gate-2", MEMBER_2, &players) else { return };
    let mut old = Raw::gate_1(&second);
    old.until_seen(&second, is_up);
    players.send(0, EU, (player(1), player(2)), b"for whom?");
    let clock = Clock::start();
    // Longer than a silence may last.
    while clock.now_ns() < 4_000_000_000 {
        old.turn();
    }
    old.until_seen(&second, |it| {
        is_up(it) && it.speaks.is_none() && it.forwarded == [0, 0] && it.connections == 1
    });
    assert_eq!(old.trunk.stats().map(|it| it.lane.payloads_received).sum::<u64>(), 0);
}

/// As where a firewall permits the one and not the other.
#[test]
fn a_member_whose_datagrams_do_not_come_is_not_up() {
    let Some(second) = member("gate-2", MEMBER_2) else { return };
    let mut first = Raw::gate_1_that(&second, true);
    let seen = other(&second, |it| it.connections == 1);
    assert_ne!(seen.state, State::Up);
    first.is_mute = false;
    first.until_seen(&second, is_up);
}

/// Spoofed sources come and go by the million at a listener, and their news is told to members.
#[test]
fn a_member_that_reads_too_slowly_stays_and_hears_how_it_is_in_the_end() {
    let players = Stub::new(&[(EU, "eu")]);
    let Some(second) = with_players("gate-2", MEMBER_2, &players) else { return };
    let mut slow = Raw::gate_1(&second);
    slow.say(&Message::Begin { version: VERSION });
    slow.until_seen(&second, |it| it.speaks == Some(VERSION));
    let mut turned = Clock::start();
    for round in 0..200 {
        for port in 1..=10_000 {
            players.come(EU, player(port));
        }
        // So it is heard, and reads a part: by the time, too, because silence ends a trunk.
        let mut turn_seldom = |is_due: bool| {
            if is_due || turned.now_ns() > BEAT_NS {
                slow.turn();
                turned = Clock::start();
            }
        };
        turn_seldom(round % 4 == 0);
        until("that it is taken", || {
            turn_seldom(false);
            (players.untold() < 100_000).then_some(())
        });
    }
    players.go(EU, player(7));
    players.come(EU, player(10_001));
    let last = [(player(7), false), (player(10_001), true)];
    until("the last of them", || {
        slow.turn();
        last.iter().all(|it| slow.heard.contains(it)).then_some(())
    });
    assert_eq!(other(&second, is_up).connections, 1);
}

#[test]
fn a_member_is_one_process_for_as_long_as_it_is_connected() {
    let players = Stub::new(&[(EU, "eu")]);
    players.set_incarnation(12);
    let Some(second) = with_players("gate-2", MEMBER_2, &players) else { return };
    second.set_members(told(&[("gate-1", &at(&second))]));
    let mut hostile = Raw::gate_1(&second);
    hostile.say(&Message::Begin { version: VERSION });
    hostile.say(&Message::Listener { number: 1, name: "eu" });
    let give = |hostile: &mut Raw, number, incarnation| {
        let mut bytes = [0; RECORD_BYTES_MAX];
        let len = record(number, incarnation).write_to(&mut bytes).expect("it fits");
        hostile.say(&Message::Record { listener: 1, bytes: &bytes[..len] });
    };
    // That is gate-2 itself.
    hostile.say(&Message::Incarnation(Incarnation(12)));
    give(&mut hostile, 1, 12);
    hostile.until_seen(&second, |it| it.dropped.contains_key("holder"));
    for _ in 0..2 {
        hostile.say(&Message::Incarnation(Incarnation(11)));
    }
    give(&mut hostile, 2, 11);
    hostile.until_seen(&second, |it| it.can_stand_by);
    hostile.say(&Message::Incarnation(Incarnation(13)));
    give(&mut hostile, 3, 13);
    let end = until("its end", || {
        hostile.turn_to_its_end();
        hostile.trunk.over().map(End::name)
    });
    assert_eq!(end, "format");
    let seen = other(&second, |it| it.last_end.is_some());
    assert_eq!(seen.last_end.expect("it has ended").0, "format");
    let expected = [("holder", 2), ("incarnation_changed", 1), ("incarnation_taken", 1)];
    assert_eq!(seen.dropped, BTreeMap::from(expected));
    let kept: Vec<_> = players.kept().into_keys().collect();
    assert_eq!(kept, [SessionId([2; 16])]);
}

#[test]
fn what_a_member_says_against_the_format_is_counted_by_name_and_the_others_play_on() {
    let players = Stub::new(&[(EU, "eu")]);
    let Some(second) = with_players("gate-2", MEMBER_2, &players) else { return };
    let mut hostile = Raw::gate_1(&second);
    hostile.say(&Message::Ask);
    hostile.trunk.say(&[]);
    hostile.say(&Message::Begin { version: 200 });
    hostile.trunk.say(&[99, 1, 2]);
    hostile.trunk.say(&[3, 0, 0, 1]);
    hostile.say(&Message::Listener { number: 1, name: "eu" });
    let expected = [("kind", 1), ("length", 2), ("order", 1)];
    hostile.until_seen(&second, |it| it.dropped == BTreeMap::from(expected));
    hostile.until_seen(&second, |it| it.speaks == Some(VERSION) && is_up(it));

    // Datagrams that are none, more than the other end takes in at a time.
    for byte in 0..=255_u8 {
        let mut record = [byte; 60];
        let frame = Frame::forwarded(&mut record).expect("it is short");
        let now_ns = hostile.clock.now_ns();
        hostile.trunk.push(0, FORWARDS_ON, frame, now_ns);
        hostile.turn();
    }
    hostile.until_seen(&second, |it| it.dropped.get("marks").is_some_and(|count| *count > 100));
    assert_eq!(players.take(), None);
    assert!(second.window().shown().members[0].state == State::Up);
}

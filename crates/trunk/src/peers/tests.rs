//! Members of a cluster that find each other over loopback, and others that are none of them.

use std::collections::BTreeMap;
use std::time::Duration;

use ringgate_os::clock::Clock;
use ringgate_os::notify::Epoll;
use rustls::pki_types::ServerName;

use super::{Entrance, MemberShown, Peers, Settings, State};
use crate::protocol::tls::fixtures::{CLUSTERS_AGENT, MEMBER_1, MEMBER_2};
use crate::protocol::tls::{self, Identity, Peer, certified_name};
use crate::socket::{self, End, Trunk, provider};

/// Whoever is slower than this waits for something that does not come.
const PATIENCE: Duration = Duration::from_mins(1);

fn member(name: &str, identity: Identity<'_>) -> Option<Peers> {
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
    peers.start(door).expect("a thread");
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

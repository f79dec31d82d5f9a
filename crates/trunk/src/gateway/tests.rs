//! A gateway's end between an agent that is played here and workers that are: who is let in, what
//! crosses, what ends. Without the instructions that TLS asks for, these tests say so and pass.

mod address;
mod fixture;
mod lent;
#[allow(dead_code, reason = "the gateway's own tests use all of it")]
#[path = "../../../../tests/all/own.rs"]
mod own;
mod rig;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::protocol::control::Reason;
use crate::socket::End;
use ringgate_link::bundle::{GoodbyeReason, Hello, SessionId, Welcome};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::gateway::rules::NO_AGENT;
use crate::protocol::tls::fixtures::{AGENT, AGENT_NEXT, EXPIRED, OTHER_AUTHORITY, STRANGER};
use rig::{AUTHORITY, Agent, Heard, Rig};

const WELCOME: Welcome = Welcome { version: 4, worker: 0, workers: 2, incarnation: 1 };

fn session(serial: u64) -> SessionId {
    SessionId::new(0, serial)
}

#[test]
fn a_link_is_made_at_its_worker_and_records_pass_both_ways_in_order() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    for worker in [0, 1] {
        agent.tell(worker, 7, |writer| writer.hello(&Hello::new(4711, "arena-1")));
    }
    for worker in [0_u8, 1] {
        let link = rig.accept(&mut agent, worker);
        rig.until(&mut agent, "the hello has come", |rig, _| rig.workers.heard(link).len() == 1);
        let hello = rig.workers.heard(link)[0].clone();
        assert_eq!(hello, Heard::Hello { name: "arena-1".into(), pid: 4711 });
        let (worker, workers) = (worker.into(), 2);
        rig.workers.say(link, |writer| {
            writer.welcome(&Welcome { version: 4, worker, workers, incarnation: 1 })
                && (1..=50).all(|serial| writer.payload(session(serial), &[serial as u8; 100]))
        });
    }
    // Payloads of sessions that were never opened go no further than the agent's end of the lane.
    rig.until(&mut agent, "both are welcome", |_, agent| agent.told.len() == 2);
    for number in 0..200_u8 {
        agent.push(1, 7, |writer| writer.payload(session(1), &[number]));
    }
    rig.until(&mut agent, "all have come", |rig, _| rig.workers.heard(1).len() == 201);
    let payloads = rig.workers.heard(1)[1..].iter().enumerate();
    for (number, heard) in payloads {
        assert_eq!(*heard, Heard::Payload(vec![number as u8]));
    }
    rig.until(&mut agent, "pages show it", |rig, _| {
        let shown = rig.shown_agent();
        let lanes = shown.lanes();
        lanes.len() == 2 && lanes[1].payloads[1] == 200 && lanes[0].payloads[0] == 50
    });
    let shown = rig.shown_agent();
    let trunk = shown.trunk.expect("it stands");
    assert_eq!(trunk.backends.get("arena-1"), Some(&2));

    rig.workers.hang_up(1);
    rig.until(&mut agent, "the agent knows", |_, agent| agent.ended == [(1, 7)]);
    agent.end(0, 7);
    rig.until(&mut agent, "the worker knows", |rig, _| rig.workers.is_gone(0));
    rig.until(&mut agent, "the end is answered", |_, agent| agent.ended == [(1, 7), (0, 7)]);
}

#[test]
fn a_backend_that_the_agent_may_not_serve_is_refused_by_name() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    agent.tell(0, 7, |writer| writer.hello(&Hello::new(1, "arena-2")));
    rig.until(&mut agent, "it is refused", |_, agent| agent.ended == [(0, 7)]);
    assert_eq!(agent.goodbyes, [GoodbyeReason::NameUnknown]);
    rig.until(&mut agent, "it is counted", |rig, _| rig.shown_agent().links.name_refused == 1);
    assert_eq!(rig.workers.waiting(0), 0, "no worker was asked");
}

#[test]
fn strangers_are_refused_by_name() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    for (identity, name, why) in [
        (STRANGER, "host-7", "certificate_unknown"),
        (EXPIRED, "host-7", "certificate_expired"),
        (AGENT, "host-8", "unknown_agent"),
        (AGENT, "host-9", "foreign_name"),
    ] {
        let mut agent = rig.agent_called(identity, name);
        rig.until(&mut agent, "it is refused", |_, agent| agent.trunk.over().is_some());
        rig.until(&mut agent, why, |rig, _| rig.door().refused.get(why) == Some(&1));
        if let Some(End::Theirs(reason)) = agent.trunk.over() {
            assert_eq!(reason.name(), why, "an agent that is proven is told");
        }
    }
    let mut agent = rig.agent_called(AGENT, NO_AGENT);
    rig.until(&mut agent, "nobody is called so", |_, agent| agent.trunk.over().is_some());
    assert!(matches!(agent.trunk.over(), Some(End::Theirs(Reason::UnknownAgent))));
    let mut agent = rig.agent(AGENT_NEXT);
    rig.until(&mut agent, "another certificate of the same name will do", |rig, _| {
        rig.shown_agent().trunk.is_some()
    });
}

#[test]
fn an_agent_that_comes_again_replaces_itself() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut first = rig.agent(AGENT);
    rig.until(&mut first, "it stands", |_, agent| agent.trunk.agreed().is_some());
    let mut second = rig.agent(AGENT);
    rig.until_both([&mut first, &mut second], "the second stands", |_, agents| {
        agents[1].trunk.agreed().is_some() && agents[0].trunk.over().is_some()
    });
    assert!(matches!(first.trunk.over(), Some(End::Theirs(Reason::Replaced))));
    rig.until(&mut second, "pages show it", |rig, agent| {
        let shown = rig.shown_agent();
        let number = agent.trunk.agreed().map(|agreed| agreed.trunk);
        (shown.trunks, shown.trunk.map(|trunk| trunk.number)) == (2, number)
    });
}

#[test]
fn other_rules_end_what_they_do_not_allow() {
    let Some(mut rig) = Rig::new(&["arena-1", "arena-2"]) else { return };
    let mut agent = rig.agent(AGENT);
    for (link, name) in [(1, "arena-1"), (2, "arena-2")] {
        agent.tell(0, link, |writer| writer.hello(&Hello::new(1, name)));
    }
    let links = [rig.accept(&mut agent, 0), rig.accept(&mut agent, 0)];
    rig.allow(&["arena-1"]);
    rig.until(&mut agent, "the other one ends", |_, agent| agent.ended == [(0, 2)]);
    assert_eq!(agent.goodbyes, [GoodbyeReason::NameUnknown]);
    rig.until(&mut agent, "its worker knows", |rig, _| rig.workers.is_gone(links[1]));
    assert!(!rig.workers.is_gone(links[0]));

    rig.allow(&[]);
    rig.until(&mut agent, "nothing is left", |_, agent| agent.trunk.over().is_some());
    assert!(matches!(agent.trunk.over(), Some(End::Theirs(Reason::UnknownAgent))));
    rig.until(&mut agent, "its worker knows", |rig, _| rig.workers.is_gone(links[0]));
}

/// Its players stay until they leave, as on a host's own links.
#[test]
fn links_of_a_backend_that_is_retired_stay_and_no_more_are_made() {
    let Some(mut rig) = Rig::new(&["arena-1", "arena-2"]) else { return };
    let mut agent = rig.agent(AGENT);
    agent.tell(0, 2, |writer| writer.hello(&Hello::new(1, "arena-2")));
    let link = rig.accept(&mut agent, 0);
    let known = std::mem::replace(&mut rig.known, vec!["arena-1"]);
    rig.allow(&["arena-1"]);
    // The trunk's thread may hear of a link or two before it hears of the rules.
    let mut number = 2;
    while agent.ended.is_empty() {
        number += 1;
        agent.tell(0, number, |writer| writer.hello(&Hello::new(2, "arena-2")));
        rig.until(&mut agent, "it is made or refused", |rig, agent| {
            let trunk = rig.shown_agent().trunk;
            let links = trunk.and_then(|it| it.backends.get("arena-2").copied());
            agent.ended == [(0, number)] || links == Some(usize::from(number) - 1)
        });
    }
    agent.push(0, 2, |writer| writer.payload(session(1), b"on it goes"));
    let said = Heard::Payload(b"on it goes".to_vec());
    rig.until(&mut agent, "it is heard", |rig, _| rig.workers.heard(link).last() == Some(&said));
    // Back in the config, and not this agent's.
    rig.known = known;
    rig.allow(&["arena-1"]);
    rig.until(&mut agent, "its worker knows", |rig, _| rig.workers.is_gone(link));
}

#[test]
fn an_agent_that_may_serve_nothing_is_shown_while_the_config_has_it() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    rig.allow_nothing();
    let mut agent = rig.agent(AGENT);
    rig.until(&mut agent, "it stands", |rig, _| rig.shown_agent().trunk.is_some());
    agent.trunk.say_goodbye(Reason::ShuttingDown);
    rig.until(&mut agent, "it is gone", |rig, _| {
        let shown = rig.shown_agent();
        shown.name == "host-7" && shown.ended.get("shutting_down") == Some(&1)
    });
    rig.allow(&[]);
    assert_eq!(rig.shown_agent().name, "", "the config has it no more");
}

#[test]
fn hostile_bytes_at_the_door_are_counted_and_crowds_find_an_end() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
    for datagram in [&b""[..], b"x", &[0; 60], &[0xd1; 60]] {
        stranger.send_to(datagram, rig.address).expect("sent");
    }
    let mut crowd = Vec::new();
    for _ in 0..70 {
        crowd.push(std::net::TcpStream::connect(rig.address).expect("it listens"));
    }
    std::io::Write::write_all(&mut crowd[69], b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    let mut agent = rig.agent(AGENT);
    rig.until(&mut agent, "an agent comes in all the same", |_, agent| {
        agent.trunk.agreed().is_some()
    });
    rig.until(&mut agent, "all of it is counted", |rig, _| {
        let door = rig.door();
        let dropped = |name| door.dropped.get(name).copied();
        let refused = |name| door.refused.get(name).copied().unwrap_or_default();
        (dropped("foreign"), dropped("elsewhere")) == (Some(3), Some(1))
            && refused("crowded") >= 6
            && refused("tls") == 1
    });
}

#[test]
fn who_connects_again_and_again_sends_nobody_away_but_itself() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    // An agent on a long way: it has connected, and its hello is not there yet.
    let slow = std::net::TcpStream::connect(rig.address).expect("it listens");
    slow.set_nonblocking(true).expect("it may");
    let address = rig.address;
    let elsewhere = move || {
        let from = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a descriptor");
        from.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 2], 0)))).expect("loopback");
        from.connect(&SockAddr::from(address)).expect("it listens");
        from
    };
    let crowd: Vec<_> = (0..90).map(|_| elsewhere()).collect();
    let mut agent = rig.agent(AGENT);
    rig.until(&mut agent, "some were sent away", |rig, _| {
        rig.door().refused.get("crowded") >= Some(&20)
    });
    drop(crowd);
    let mut byte = [0];
    let heard = std::io::Read::read(&mut &slow, &mut byte).map_err(|why| why.kind());
    // Where all of this took seconds, it has gone as everybody does who says nothing.
    let is_late = rig.door().refused.contains_key("slow");
    assert!(is_late || heard == Err(std::io::ErrorKind::WouldBlock), "it is gone: {heard:?}");
}

#[test]
fn a_trunk_whose_datagrams_do_not_arrive_ends_and_no_link_was_begun() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.mute_agent();
    agent.tell(0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
    rig.until(&mut agent, "it is given up", |rig, _| {
        rig.shown_agent().ended.get("silence") == Some(&1)
    });
    assert_eq!(rig.workers.waiting(0), 0, "its players would hear nothing");
}

#[test]
fn the_end_of_the_gateway_is_told() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    rig.until(&mut agent, "it stands", |_, agent| agent.trunk.agreed().is_some());
    rig.trunks.stop();
    rig.until(&mut agent, "it knows", |_, agent: &Agent| agent.trunk.over().is_some());
    assert!(matches!(agent.trunk.over(), Some(End::Theirs(Reason::ShuttingDown))));
}

#[test]
fn another_process_goes_on_with_trunks_and_nobody_notices() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    agent.tell(0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
    let link = rig.accept(&mut agent, 0);
    rig.until(&mut agent, "the hello has come", |rig, _| rig.workers.heard(link).len() == 1);
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
    stranger.send_to(b"x", rig.address).expect("sent");
    let foreign = |rig: &Rig| rig.door().dropped.get("foreign").copied();
    rig.until(&mut agent, "it is counted", |rig, _| foreign(rig) == Some(1));
    let (address, mut sent) = (rig.address, 0);
    for round in 0..8_u8 {
        for number in 0..20 {
            agent.push(0, 7, |writer| writer.payload(session(1), &[round, number]));
        }
        sent += 20;
        rig.workers.say(link, |writer| writer.welcome(&WELCOME));
        rig.hand_over(&["arena-1"], round % 4 == 3);
        let welcomes = usize::from(round) + 1;
        rig.until(&mut agent, "all has come", |rig, agent| {
            rig.workers.heard(link).len() == 1 + sent && agent.told.len() == welcomes
        });
    }
    rig.until(&mut agent, "pages go on", |rig, _| {
        let shown = rig.shown_agent();
        let lanes = shown.lanes();
        lanes.first().is_some_and(|lane| lane.payloads[1] == sent as u64) && shown.trunks == 1
    });
    let shown = rig.shown_agent();
    assert_eq!(shown.lanes()[0].lost(), [0, 0], "a hand-over that failed is no loss either");
    assert!(shown.ended.is_empty() && agent.trunk.over().is_none());
    assert_eq!((foreign(&rig), rig.door().address), (Some(1), Some(address)));
    let mut second = rig.agent(AGENT_NEXT);
    rig.until_both([&mut agent, &mut second], "who comes now is let in", |_, agents| {
        agents[1].trunk.agreed().is_some() && agents[0].trunk.over().is_some()
    });
    let numbers = [&agent, &second].map(|it| it.trunk.agreed().map(|agreed| agreed.trunk));
    assert_ne!(numbers[0], numbers[1], "a number is given once");
}

#[test]
fn the_next_process_goes_by_its_own_rules() {
    let Some(mut rig) = Rig::new(&["arena-1", "arena-2"]) else { return };
    let mut agent = rig.agent(AGENT);
    for (link, name) in [(1, "arena-1"), (2, "arena-2")] {
        agent.tell(0, link, |writer| writer.hello(&Hello::new(1, name)));
    }
    let links = [rig.accept(&mut agent, 0), rig.accept(&mut agent, 0)];
    rig.hand_over(&["arena-1"], false);
    rig.until(&mut agent, "the other one ends", |_, agent| agent.ended == [(0, 2)]);
    rig.until(&mut agent, "its worker knows", |rig, _| rig.workers.is_gone(links[1]));
    rig.hand_over(&[], false);
    rig.until(&mut agent, "nothing is left", |_, agent| agent.trunk.over().is_some());
    assert!(matches!(agent.trunk.over(), Some(End::Theirs(Reason::UnknownAgent))));
}

#[test]
fn a_trunk_ends_when_its_authority_is_taken_away_and_no_sooner() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    rig.until(&mut agent, "it stands", |_, agent| agent.trunk.agreed().is_some());
    // Another one beside it, the same again, and another process: nobody notices.
    for authorities in [&[OTHER_AUTHORITY, AUTHORITY][..], &[AUTHORITY]] {
        rig.trust(authorities);
        rig.allow(&["arena-1"]);
        rig.hand_over(&["arena-1"], false);
        agent.tell(0, authorities.len() as u16, |writer| writer.hello(&Hello::new(1, "arena-1")));
        rig.accept(&mut agent, 0);
    }
    assert!(agent.trunk.over().is_none());

    rig.trust(&[OTHER_AUTHORITY]);
    rig.allow(&["arena-1"]);
    rig.until(&mut agent, "it is over", |_, agent| agent.trunk.over().is_some());
    assert!(matches!(agent.trunk.over(), Some(End::Theirs(Reason::CertificateUnknown))));
    rig.until(&mut agent, "it is counted", |rig, _| {
        rig.shown_agent().ended.get("certificate_unknown") == Some(&1)
    });
    // Who has one of the new authority is let in, and nobody else.
    let mut again = rig.agent(AGENT);
    rig.until(&mut again, "it is refused", |_, agent| agent.trunk.over().is_some());
    rig.until(&mut again, "that is counted", |rig, _| {
        rig.door().refused.get("certificate_unknown") == Some(&1)
    });
}

#[test]
fn the_next_process_takes_the_word_of_its_own_authorities() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    rig.until(&mut agent, "it stands", |_, agent| agent.trunk.agreed().is_some());
    rig.trust(&[OTHER_AUTHORITY]);
    rig.hand_over(&["arena-1"], false);
    rig.until(&mut agent, "it is over", |_, agent| agent.trunk.over().is_some());
    assert!(matches!(agent.trunk.over(), Some(End::Theirs(Reason::CertificateUnknown))));
}

#[test]
fn what_is_no_trunk_is_refused_and_leaves_the_others_alone() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    agent.tell(0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
    rig.accept(&mut agent, 0);
    let mut rest = rig.trunks.rest();
    let (bytes, fds) = rest.take();
    assert!(rig.next().inherit(&bytes[..bytes.len() / 2], copies(&fds)).is_err(), "cut off");
    assert!(rig.next().inherit(&bytes, Vec::new()).is_err(), "without descriptors");
    assert!(rig.next().inherit(&bytes, copies(&fds)).is_ok());
    drop(rest);
    agent.push(0, 7, |writer| writer.payload(session(1), b"it goes on"));
    rig.until(&mut agent, "it goes on", |rig, _| rig.workers.heard(0).len() == 2);
}

/// Its trunk may end by silence meanwhile: it takes as long as it takes.
#[test]
fn whatever_stands_in_the_rest_of_a_trunk_nothing_panics() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    agent.tell(0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
    rig.accept(&mut agent, 0);
    let mut rest = rig.trunks.rest();
    let (bytes, fds) = rest.take();
    for len in (0..bytes.len()).step_by(bytes.len() / 300 + 1) {
        let cut = rig.next().inherit(&bytes[..len], copies(&fds));
        assert!(cut.is_err(), "{len} of {}", bytes.len());
    }
    for count in 0..fds.len() {
        let some = copies(&fds).into_iter().take(count).collect();
        assert!(rig.next().inherit(&bytes, some).is_err(), "{count} descriptors");
    }
    let mut others = copies(&fds);
    others.reverse();
    assert!(rig.next().inherit(&bytes, others).is_err(), "each is another kind of socket");
    let mut changed = bytes.clone();
    for at in (0..bytes.len()).step_by(bytes.len() / 300 + 1) {
        changed[at] ^= 0x41;
        // Whether it is refused depends on the byte.
        let _ = rig.next().inherit(&changed, copies(&fds));
        changed[at] ^= 0x41;
    }
}

fn copies(fds: &[OwnedFd]) -> Vec<OwnedFd> {
    let copies = fds.iter().map(OwnedFd::try_clone);
    copies.collect::<std::io::Result<_>>().expect("descriptors are left")
}

//! Two ends over loopback: everything that is pushed comes, the stream's order holds, and nobody
//! else is listened to. Without the instructions that TLS asks for, these tests say so and pass.

mod orders;
pub(crate) mod rig;

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::AsFd;

use crate::protocol::control::Reason;
use crate::protocol::datagram::{Header, Refusal};
use crate::protocol::keys::Rekey;
use ringgate_link::bundle::{CloseReason, Hello, Opened, SessionId};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::socket::line::SEGMENT_BYTES;
use crate::socket::trunk::{End, LaneReport, READS_MAX};
use rig::{AGENT, GATEWAY, Heard, Rig};

/// Payloads each way.
const EACH: usize = 20_000;

fn session(serial: u64) -> SessionId {
    SessionId::new(0, serial)
}

fn opened(serial: u64) -> Opened<'static> {
    let address = std::net::SocketAddr::from(([192, 0, 2, 1], 7));
    let (slot, slots_max, user_data) = (0, 1, &[0; 256]);
    let (session, client_id, listener) = (session(serial), 1, "main");
    let delivers = false;
    Opened {
        ticket: None,
        session,
        client_id,
        address,
        slot,
        slots_max,
        delivers,
        user_data,
        listener,
    }
}

#[test]
fn segments_to_and_from_whoever_connects_are_short_whatever_the_other_end_would_take() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let Some(line) = rig::line_to(listener.local_addr().expect("bound")) else { return };
    let (there, _) = listener.accept().expect("it connects");
    for socket in [line.as_fd(), there.as_fd()] {
        let mss = SockRef::from(&socket).tcp_mss().expect("it is TCP");
        assert!(mss <= SEGMENT_BYTES, "{mss}");
    }
}

#[test]
fn a_trunk_that_no_lane_came_up_of_is_not_what_has_fallen_silent() {
    let Some(deaf) = rig::deaf() else { return };
    assert!(deaf.was_deaf());
    let (name, why) = deaf.why_over().expect("it is over");
    assert_eq!(name, "silence");
    assert!(why.ends_with("nothing has ever come by UDP"), "{why}");
    let mut rig = Rig::with(Rekey::default()).expect("it is possible");
    for which in [AGENT, GATEWAY] {
        assert_eq!(rig.trunk(which).why_over(), None);
        rig.trunk_mut(which).poll(u64::MAX);
        assert!(rig.trunk(which).over().is_some() && !rig.trunk(which).was_deaf());
    }
}

#[test]
fn payloads_cross_in_both_directions_and_none_is_lost() {
    let Some(mut rig) = Rig::with(Rekey::default()) else { return };
    rig.tell(AGENT, 0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
    rig.tell(GATEWAY, 0, 7, |writer| writer.opened(&opened(1)));
    rig.until("both know the link", |rig| [0, 1].iter().all(|it| rig.heard(*it).len() == 1));
    rig.forget();
    for round in 0..EACH / 100 {
        for number in 0..100 {
            let bytes = [&(round * 100 + number).to_le_bytes()[..], &[7; 92]].concat();
            for from in [AGENT, GATEWAY] {
                rig.push(from, 0, 7, |writer| writer.payload(session(1), &bytes));
            }
        }
        rig.turn();
    }
    rig.until("all have come", |rig| {
        [AGENT, GATEWAY].iter().all(|it| rig.heard(*it).len() == EACH)
    });
    for to in [AGENT, GATEWAY] {
        let numbers = rig.heard(to).iter().map(|heard| match heard {
            Heard::Payload { lane: 0, link: 7, bytes } => {
                usize::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
            }
            heard => panic!("{heard:?}"),
        });
        assert!(numbers.eq(0..EACH), "in order over loopback");
        let stats = rig.trunk(to).stats().next().expect("there is a lane");
        assert_eq!((stats.lane.payloads_received, stats.full), (EACH as u64, 0));
        assert_eq!(stats.lane.arrived_here.lost(), 0);
        assert!(stats.cut[0] > 0, "several datagrams leave as one message");
        assert_eq!(stats.lane.path_bytes, 8900, "loopback carries the longest");
    }
}

#[test]
fn ends_that_go_on_in_another_process_lose_nothing_and_nobody_notices() {
    let Some(mut rig) = Rig::with(Rekey { age_ns: u64::MAX, datagrams: 50 }) else { return };
    let mut told = 0;
    for round in 0..200_usize {
        if round % 20 == 0 {
            let serial = round as u64 + 1;
            rig.tell(GATEWAY, 0, 7, |writer| writer.opened(&opened(serial)));
            rig.tell(AGENT, 0, 7, |writer| writer.close(session(serial), CloseReason::Kicked));
            told += 1;
        }
        let last = session((round - round % 20) as u64 + 1);
        for number in 0..50_usize {
            let bytes = [&(round * 50 + number).to_le_bytes()[..], &[7; 92]].concat();
            for from in [AGENT, GATEWAY] {
                rig.push(from, 0, 7, |writer| writer.payload(last, &bytes));
            }
        }
        match round % 5 {
            // Before anything has left.
            1 => rig.hand_over(AGENT),
            2 => rig.hand_over(GATEWAY),
            // Before anything has come.
            3 => {
                rig.turn();
                rig.hand_over(AGENT);
                rig.hand_over(GATEWAY);
            }
            _ => rig.turn(),
        }
    }
    rig.until("all has come", |rig| {
        [AGENT, GATEWAY].iter().all(|it| rig.heard(*it).len() == 200 * 50 + told)
    });
    for to in [AGENT, GATEWAY] {
        let payload = |heard: &Heard| match heard {
            Heard::Payload { bytes, .. } => bytes.first_chunk().map(|it| usize::from_le_bytes(*it)),
            _ => None,
        };
        let mut numbers: Vec<_> = rig.heard(to).iter().filter_map(payload).collect();
        // One waits for its announcement, and others overtake it.
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..200 * 50));
        let stats = rig.trunk(to).stats().next().expect("there is a lane");
        assert_eq!((stats.full, stats.moved), (0, 0));
        assert_eq!(stats.lane.arrived_here.lost(), 0);
        assert_eq!(stats.lane.payloads_received, 200 * 50);
        assert!(stats.is_up && stats.lane.epochs[0] > 2, "{stats:?}");
    }
}

#[test]
fn keys_move_on_while_payloads_cross() {
    let rekey = Rekey { age_ns: u64::MAX, datagrams: 8 };
    let Some(mut rig) = Rig::with(rekey) else { return };
    rig.tell(GATEWAY, 1, 3, |writer| writer.opened(&opened(1)));
    rig.until("the session is open", |rig| rig.heard(AGENT).len() == 1);
    rig.forget();
    for round in 0..200_usize {
        for _ in 0..20 {
            rig.push(GATEWAY, 1, 3, |writer| writer.payload(session(1), &[1; 1000]));
        }
        rig.until("they have come", |rig| rig.heard(AGENT).len() == (round + 1) * 20);
    }
    let stats = rig.trunk(AGENT).stats().nth(1).expect("there are two lanes");
    assert!(stats.lane.epochs[1] > 10, "{:?}", stats.lane.epochs);
    let refused: u64 = Refusal::ALL.into_iter().map(|it| stats.lane.refusals.of(it)).sum();
    assert_eq!(refused, 0);
}

#[test]
fn what_is_told_comes_before_what_is_pushed_after_it() {
    let Some(mut rig) = Rig::with(Rekey::default()) else { return };
    for serial in 1..=300 {
        rig.tell(GATEWAY, 0, 7, |writer| writer.opened(&opened(serial)));
        rig.push(GATEWAY, 0, 7, |writer| writer.payload(session(serial), &[1; 50]));
        rig.tell(GATEWAY, 0, 7, |writer| writer.closed(session(serial), CloseReason::Operator));
        rig.turn();
    }
    rig.until("all is closed", |rig| {
        rig.heard(AGENT).iter().filter(|it| matches!(it, Heard::Told { .. })).count() == 600
    });
    let (mut open, mut payloads) = (false, 0);
    for heard in rig.heard(AGENT) {
        match heard {
            Heard::Told { .. } => open = !open,
            Heard::Payload { .. } => {
                assert!(open, "no payload before its opened or after its closed");
                payloads += 1;
            }
            Heard::Ended { .. } => panic!("no link has ended"),
        }
    }
    let stats = rig.trunk(AGENT).stats().next().expect("there is a lane");
    assert_eq!(payloads + stats.lane.refusals.of(Refusal::Over), 300, "each is accounted for");
}

#[test]
fn hostile_datagrams_at_the_door_and_at_a_lane_are_counted_and_never_answered() {
    let Some(mut rig) = Rig::with(Rekey::default()) else { return };
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
    stranger.set_nonblocking(true).expect("an option");
    let trunk = rig.trunk(GATEWAY).agreed().expect("it has begun").trunk;
    let mut forged = [0x55; 200];
    let header = Header { lane: 0, epoch: 0, trunk, sequence: 1 << 40 };
    forged[..16].copy_from_slice(&header.to_bytes());
    let door = rig.door_address();
    for datagram in [&b""[..], b"x", &[0xd1; 40], &forged] {
        stranger.send_to(datagram, door).expect("sent");
    }
    let first = |rig: &Rig| rig.trunk(GATEWAY).stats().next().expect("there is a lane");
    rig.until("the last was looked at", |rig| first(rig).lane.refusals.of(Refusal::Forged) == 1);
    let stats = first(&rig);
    assert_eq!(stats.moved, 0, "a forged datagram moves nobody");
    let mut answer = [0; 100];
    assert!(stranger.recv(&mut answer).is_err(), "nothing is answered");
}

#[test]
fn hostile_datagrams_at_an_agents_lane_are_counted_and_never_answered() {
    let Some(mut rig) = Rig::with(Rekey::default()) else { return };
    rig.tell(GATEWAY, 0, 7, |writer| writer.opened(&opened(1)));
    rig.until("the session is open", |rig| rig.heard(AGENT).len() == 1);
    let trunk = rig.trunk(GATEWAY).agreed().expect("it has begun").trunk;
    let lane = rig.trunk(GATEWAY).other_end(0).expect("it was heard");
    // Whoever has another address than the gateway does not get as far as the lane.
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
    stranger.send_to(&[0xd1; 60], lane).expect("sent");
    // One who has its address, as on its network: nothing of what was not sealed is taken in.
    let spoofed = crate::socket::port::udp(rig.door_address(), true).expect("several may have it");
    let spoofed = std::net::UdpSocket::from(spoofed);
    let mut forged = [0x55; 200];
    for (at, trunk) in [(0, trunk), (1, trunk + 1)] {
        let header = Header { lane: 0, epoch: 0, trunk, sequence: (1 << 40) + at };
        forged[..16].copy_from_slice(&header.to_bytes());
        spoofed.send_to(&forged, lane).expect("sent");
    }
    spoofed.send_to(b"x", lane).expect("sent");
    let first = |rig: &Rig| rig.trunk(AGENT).stats().next().expect("there is a lane").lane;
    rig.until("all were looked at", |rig| {
        let refusals = first(rig).refusals;
        [Refusal::Forged, Refusal::Elsewhere, Refusal::Foreign]
            .iter()
            .all(|why| refusals.of(*why) == 1)
    });
    let mut answer = [0; 100];
    for socket in [&spoofed, &stranger] {
        socket.set_nonblocking(true).expect("an option");
        assert!(socket.recv(&mut answer).is_err(), "nothing is answered");
    }
    drop(spoofed);
    rig.push(GATEWAY, 0, 7, |writer| writer.payload(session(1), b"it goes on"));
    rig.until("it goes on", |rig| rig.heard(AGENT).len() == 2);
    assert!(rig.trunk(AGENT).over().is_none());
}

#[test]
fn an_agent_whose_address_changes_is_followed() {
    let Some(mut rig) = Rig::with(Rekey::default()) else { return };
    rig.tell(GATEWAY, 0, 7, |writer| writer.opened(&opened(1)));
    rig.until("the session is open", |rig| rig.heard(AGENT).len() == 1);
    rig.forget();
    rig.move_agent(0);
    rig.tell(AGENT, 0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
    rig.until("the hello has come", |rig| !rig.heard(GATEWAY).is_empty());
    rig.push(AGENT, 0, 7, |writer| writer.payload(session(1), b"from elsewhere"));
    rig.until("it has come", |rig| rig.heard(GATEWAY).len() == 2);
    let moved = |rig: &Rig| rig.trunk(GATEWAY).stats().next().expect("a lane").moved;
    rig.until("the new address has proven to be the agent's", |rig| moved(rig) == 1);
    rig.push(GATEWAY, 0, 7, |writer| writer.payload(session(1), b"and back"));
    rig.until("the answer has come", |rig| rig.heard(AGENT).len() == 1);
    assert_eq!(moved(&rig), 1);
}

/// As routers say it, and as anybody can who guesses a port: a datagram of the agent's was too long
/// for its way, or there is no such protocol, host or network.
#[test]
fn what_is_said_of_the_way_ends_no_trunk_and_costs_no_datagram() {
    let gateway = Ipv4Addr::new(127, 83, 19, 7);
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4));
    let Ok(raw) = raw.inspect_err(|why| eprintln!("SKIPPED: no raw socket: {why}")) else { return };
    let Some(mut rig) = Rig::at(gateway, Rekey::default()) else { return };
    let (door, agent) = (rig.door_address(), rig.agent_address());
    let IpAddr::V4(agent_ip) = agent.ip() else { panic!("{agent} is none of ours") };
    rig.tell(AGENT, 0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
    rig.tell(GATEWAY, 0, 7, |writer| writer.opened(&opened(1)));
    rig.until("both know the link", |rig| [0, 1].iter().all(|it| rig.heard(*it).len() == 1));
    rig.forget();
    let mut pushed = 0;
    for code in [4, 2, 7, 8, 3, 4] {
        for finds_it_by_sending in [true, false] {
            let mut message = vec![3, code, 0, 0, 0, 0];
            message.extend(552_u16.to_be_bytes());
            message.extend([0x45, 0, 4, 0xcc, 0, 1, 0x40, 0, 64, 17, 0, 0]);
            message.extend([agent_ip.octets(), gateway.octets()].concat());
            message.extend([agent.port(), door.port(), 1208, 0].map(u16::to_be_bytes).concat());
            let halves = message.chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
            let sum = halves.sum::<u32>();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            raw.send_to(&message, &SockAddr::from(agent)).expect("loopback takes it");
            for from in [AGENT, GATEWAY] {
                rig.push(from, 0, 7, |writer| writer.payload(session(1), &[7; 1000]));
            }
            pushed += 1;
            if finds_it_by_sending {
                rig.flush(AGENT);
            }
            rig.until("both have come", |rig| {
                [AGENT, GATEWAY].iter().all(|it| rig.heard(*it).len() == pushed)
            });
        }
    }
    for end in [AGENT, GATEWAY] {
        assert!(rig.trunk(end).over().is_none());
        let stats = rig.trunk(end).stats().next().expect("there is a lane");
        assert_eq!((stats.lane.path_bytes, stats.lane.arrived_here.lost()), (8900, 0));
    }
}

#[test]
fn a_goodbye_is_heard_and_a_connection_that_ends_is_noticed() {
    for says_goodbye in [true, false] {
        let Some(mut rig) = Rig::with(Rekey::default()) else { return };
        if says_goodbye {
            rig.trunk_mut(GATEWAY).say_goodbye(Reason::ShuttingDown);
        } else {
            rig.kill(GATEWAY);
        }
        rig.until("the agent knows", |rig| rig.trunk(AGENT).over().is_some());
        match rig.trunk(AGENT).over() {
            Some(End::Theirs(Reason::ShuttingDown)) => assert!(says_goodbye),
            Some(End::Failed(_)) => assert!(!says_goodbye),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_agent_that_never_pauses_does_not_have_the_thread_to_itself() {
    const HELLOS: usize = 60_000;
    let Some(mut rig) = Rig::with(Rekey::default()) else { return };
    rig.tell(AGENT, 0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
    rig.until("the link is known", |rig| rig.heard(GATEWAY).len() == 1);
    rig.forget();
    for number in 0..HELLOS {
        rig.tell(AGENT, 0, number as u16, |writer| writer.hello(&Hello::new(1, "arena-1")));
    }
    rig.flush(AGENT);
    let mut heard = 0;
    while heard < HELLOS {
        rig.flush(AGENT);
        let at_once = rig.look_once(GATEWAY);
        // Each hello takes some twenty bytes of the stream at the least.
        assert!(at_once <= (READS_MAX + 1) * (1 << 14) / 20, "{at_once} in one look");
        heard += at_once;
        assert!(rig.trunk(GATEWAY).over().is_none() && rig.trunk(AGENT).over().is_none());
    }
    rig.until("it looks at the rest", |rig| !rig.trunk(GATEWAY).has_more());
}

#[test]
fn a_guest_that_says_all_but_who_it_is_does_not_have_the_thread_to_itself() {
    let Some((mut agent, mut guest)) = rig::guest() else { return };
    // Whoever says more than is looked at in a turn is no agent, which begins with its name.
    while agent.outbox().beat().is_ok() {}
    let refused = guest.until(|| {
        agent.receive().expect("the gateway proves who it is");
        agent.flush().expect("it is connected");
    });
    assert!(matches!(refused, Err(End::Ours(Reason::Format))), "{refused:?}");
}

#[test]
fn no_more_is_read_of_workers_than_the_stream_has_room_for() {
    let Some(mut rig) = Rig::with(Rekey::default()) else { return };
    let leases = [0, 1].map(|lane| rig.lend(lane));
    let bundle = rig::written(|writer| (1..=40).all(|serial| writer.opened(&opened(serial))));
    // The agent reads nothing.
    for _ in 0..100 {
        for (lane, lease) in (0..).zip(&leases) {
            while lease.tell(1, &bundle).is_ok() {}
            rig.trunk_mut(GATEWAY).drain_next(lane, |_| Some(7));
        }
    }
    let trunk = rig.trunk_mut(GATEWAY);
    assert!(trunk.over().is_none() && trunk.is_crowded(), "{:?}", trunk.over());
    // What a lane had for a link that ends goes before its end.
    trunk.drain(0, |_| Some(7));
    assert!(trunk.over().is_none(), "{:?}", trunk.over());
}

#[test]
fn links_of_a_lane_that_is_lent_do_not_have_the_thread_to_themselves() {
    let Some(mut rig) = Rig::with(Rekey::default()) else { return };
    let lease = rig.lend(0);
    // All that was said before is read, however small each piece of it is.
    let said = std::iter::repeat_with(|| lease.tell(1, &[])).take_while(Result::is_ok).count();
    let mut read = 0;
    rig.trunk_mut(GATEWAY).drain(0, |_| {
        read += 1;
        None
    });
    assert_eq!(read, said);
    // Who says more for each piece that is read is never read to the end.
    lease.tell(1, &[]).expect("there is room");
    let mut read = 0;
    let mut says_more = |_| {
        read += 1;
        assert!(read < 1_000_000, "it does not end");
        lease.tell(1, &[]).expect("there is room");
        None
    };
    rig.trunk_mut(GATEWAY).drain(0, &mut says_more);
    rig.trunk_mut(GATEWAY).drain_next(0, &mut says_more);
    // Nor is who says more of the lane for each word of it that is heard.
    let says = || lease.say(LaneReport::Caught(vec![1])).expect("there is room");
    says();
    let mut heard = 0;
    rig.trunk_mut(GATEWAY).listen(|_| {
        heard += 1;
        assert!(heard < 1_000_000, "it does not end");
        says();
    });
}

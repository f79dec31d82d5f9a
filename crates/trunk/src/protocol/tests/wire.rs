//! What a lane does about the way itself: sizes, loss, silence, keys, room.

use ringgate_link::bundle::{OpenedPlain, SessionId};

use super::rig::{AGENT, Arrival, GATEWAY, LANE, MS, Rig, Weather};
use crate::protocol::beat::SILENCE_NS;
use crate::protocol::datagram::Refusal;
use crate::protocol::keys::Rekey;

fn session() -> SessionId {
    SessionId::new(usize::from(LANE), 1)
}

fn open(rig: &mut Rig) {
    let address = "192.0.2.7:4711".parse().expect("literal");
    let opened =
        OpenedPlain { session: session(), slot: None, slots_max: 64, address, listener: "any" };
    rig.tell(GATEWAY, 1, |writer| writer.opened_plain(&opened));
}

fn count(payloads: &mut u64, to: usize, arrival: &Arrival<'_>) {
    if let Arrival::Record(1, frame) = arrival {
        assert_eq!(to, AGENT);
        *payloads += frame.payloads();
    }
}

#[test]
fn both_ends_find_the_way_and_use_it() {
    for (carries, least) in [(1252, 1232), (1472, 1472), (8972, 8900)] {
        let mut rig = Rig::new(1, Weather { carries, ..Weather::FAIR }, Rekey::default());
        rig.steps(12_000, |_, _| ());
        for end in &rig.ends {
            assert!((least..=carries).contains(&end.lane.stats().path_bytes));
        }
        open(&mut rig);
        let before = rig.ends[GATEWAY].lane.stats().sent.datagrams;
        for _ in 0..64 {
            assert!(rig.push(GATEWAY, 1, |writer| writer.payload(session(), &[7; 100])));
        }
        let mut payloads = 0;
        rig.steps(2, |to, arrival| count(&mut payloads, to, &arrival));
        assert_eq!(payloads, 64);
        let datagrams = rig.ends[GATEWAY].lane.stats().sent.datagrams - before;
        let most = (64 * 112_u64).div_ceil(least as u64 - 150) + 2;
        assert!(datagrams <= most, "{datagrams} datagrams at {carries}");
    }
}

#[test]
fn a_long_payload_on_a_narrow_way_is_split_in_two_and_comes_whole() {
    let mut rig = Rig::new(2, Weather { carries: 1252, ..Weather::FAIR }, Rekey::default());
    rig.steps(12_000, |_, _| ());
    open(&mut rig);
    let mut payloads = 0;
    for _ in 0..10 {
        assert!(rig.push(GATEWAY, 1, |writer| writer.payload(session(), &[9; 1200])));
    }
    rig.steps(2, |to, arrival| count(&mut payloads, to, &arrival));
    let stats = rig.ends[GATEWAY].lane.stats();
    assert_eq!((payloads, stats.sent.split), (10, 10));
}

#[test]
fn a_way_that_becomes_narrower_costs_a_second_and_no_more() {
    let mut rig = Rig::new(3, Weather { carries: 8972, ..Weather::FAIR }, Rekey::default());
    rig.steps(2000, |_, _| ());
    open(&mut rig);
    rig.weather.carries = 1472;
    let (mut payloads, mut pushed) = (0, 0);
    let mut last_missing = 0;
    for ms in 0..4000 {
        for _ in 0..100 {
            pushed +=
                u64::from(rig.push(GATEWAY, 1, |writer| writer.payload(session(), &[7; 100])));
        }
        rig.step(|to, arrival| count(&mut payloads, to, &arrival));
        if pushed - payloads != last_missing {
            last_missing = pushed - payloads;
            assert!(ms < 1600, "{ms} ms after the change payloads are still lost");
        }
    }
    let stats = rig.ends[GATEWAY].lane.stats();
    assert_eq!((stats.path_narrowed, payloads > 200_000), (1, true), "{stats:?}");
}

#[test]
fn loss_is_counted_where_it_is_noticed_and_known_at_the_other_end() {
    let mut rig = Rig::new(4, Weather { lost_percent: 10, ..Weather::FAIR }, Rekey::default());
    open(&mut rig);
    for _ in 0..2000 {
        assert!(rig.push(GATEWAY, 1, |writer| writer.payload(session(), &[7; 100])));
        rig.step(|_, _| ());
    }
    rig.weather.lost_percent = 0;
    rig.steps(6000, |_, _| ());
    let [agent, gateway] = [AGENT, GATEWAY].map(|end| rig.ends[end].lane.stats());
    assert_eq!(agent.arrived_here.lost(), rig.lost(GATEWAY));
    assert!(rig.lost(GATEWAY) > 100);
    assert_eq!(gateway.arrived_there.lost(), agent.arrived_here.lost());
    assert_eq!(gateway.round_trip_ns, Some(2 * MS), "each way takes a step");
}

#[test]
fn silence_is_noticed_after_three_seconds_and_not_before() {
    let mut rig = Rig::new(5, Weather::FAIR, Rekey::default());
    rig.steps(10_000, |_, _| ());
    assert!(rig.ends.iter().all(|end| !end.lane.is_silent(rig.now_ns)));
    rig.weather.lost_percent = 100;
    let from_ns = rig.now_ns;
    while rig.ends.iter().any(|end| !end.lane.is_silent(rig.now_ns)) {
        rig.step(|_, _| ());
        let next_ns = rig.ends.iter().map(|end| end.lane.due_ns()).min().expect("two ends");
        assert!(next_ns <= rig.now_ns + SILENCE_NS, "the caller is told when to look");
        assert!(rig.now_ns - from_ns <= SILENCE_NS + MS);
    }
    assert!(rig.now_ns - from_ns + 600 * MS >= SILENCE_NS, "beats come twice a second");
}

#[test]
fn keys_change_under_load_without_a_datagram_lost() {
    let rekey = Rekey { age_ns: u64::MAX, datagrams: 100 };
    let weather = Weather { delay_ms: 5, ..Weather::FAIR };
    let mut rig = Rig::new(6, weather, rekey);
    open(&mut rig);
    let mut payloads = 0;
    for _ in 0..1000 {
        for _ in 0..50 {
            assert!(rig.push(GATEWAY, 1, |writer| writer.payload(session(), &[7; 100])));
        }
        rig.step(|to, arrival| count(&mut payloads, to, &arrival));
    }
    rig.steps(700, |to, arrival| count(&mut payloads, to, &arrival));
    let stats = rig.ends[AGENT].lane.stats();
    assert_eq!(payloads, 50_000, "{stats:?}");
    assert!(stats.epochs[1] >= 50, "{stats:?}");
}

#[test]
fn a_batch_is_bounded_and_what_finds_no_room_is_said() {
    let mut rig = Rig::new(7, Weather::FAIR, Rekey::default());
    let lane = &mut rig.ends[GATEWAY].lane;
    let mut record = vec![0; 2000];
    let mut writer = ringgate_link::bundle::Writer::new(&mut record);
    assert!(writer.payload(session(), &[7; 1100]));
    let frame = ringgate_link::bundle::Frames::new(writer.bytes()).next().expect("one");
    let frame = frame.expect("own");
    let mut taken = 0_usize;
    while lane.push(1, frame).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 64, "one each");
    lane.seal(0, &mut ringgate_core::crypto::Aead::detect());
    assert!(lane.push(1, frame).is_err(), "what is sealed waits to be sent");
    lane.handle_sent(63);
    assert!(lane.push(1, frame).is_err() && lane.pending().len() == 1);
    lane.handle_sent(1);
    assert!(lane.push(1, frame).is_ok() && lane.pending().len() == 0);
    assert_eq!(lane.stats().refusals.of(Refusal::Early), 0);
}

#[test]
fn datagrams_of_a_batch_are_of_one_length_where_that_costs_little() {
    let mut rig = Rig::new(8, Weather { carries: 1472, ..Weather::FAIR }, Rekey::default());
    rig.steps(12_000, |_, _| ());
    for _ in 0..100 {
        assert!(rig.push(GATEWAY, 1, |writer| writer.payload(session(), &[7; 100])));
    }
    let lane = &mut rig.ends[GATEWAY].lane;
    lane.seal(rig.now_ns, &mut ringgate_core::crypto::Aead::detect());
    let lens: Vec<_> = lane.pending().map(<[u8]>::len).collect();
    let (last, others) = lens.split_last().expect("there are some");
    assert!(others.len() > 5 && others.iter().all(|len| *len == 1472) && *last <= 1472);
}

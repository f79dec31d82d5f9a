//! Who stands between the two ends, or writes to their ports, without a key: nothing is handed on,
//! nothing is answered, and everything is counted under its name.

use proptest::prelude::*;
use ringgate_core::crypto::{Aead, Key};
use ringgate_link::bundle::{Frames, Hello, OpenedPlain, SessionId, Writer};

use super::rig::{AGENT, GATEWAY, LANE, Random, Rig, TRUNK, Weather};
use crate::protocol::datagram::{HEADER_BYTES, Header, Refusal};
use crate::protocol::keys::Rekey;
use crate::protocol::lane::{Lane, Role, Secrets};

/// An agent that has an open session, and a datagram for it that was not delivered yet.
fn agent_and_datagram() -> (Rig, Vec<u8>) {
    let mut rig = Rig::new(1, Weather::FAIR, Rekey::default());
    let session = SessionId::new(usize::from(LANE), 1);
    let address = "192.0.2.7:4711".parse().expect("literal");
    let opened = OpenedPlain { session, slot: None, slots_max: 64, address, listener: "any" };
    rig.tell(GATEWAY, 1, |writer| writer.opened_plain(&opened));
    rig.steps(20, |_, _| ());
    assert!(rig.push(GATEWAY, 1, |writer| writer.payload(session, b"input")));
    let lane = &mut rig.ends[GATEWAY].lane;
    lane.seal(rig.now_ns, &mut Aead::detect());
    let datagram = lane.pending().last().expect("one").to_vec();
    let count = lane.pending().len();
    lane.handle_sent(count);
    (rig, datagram)
}

fn receive(rig: &mut Rig, datagram: &[u8]) -> (bool, u64) {
    let (mut datagram, mut records) = (datagram.to_vec(), 0);
    let now_ns = rig.now_ns;
    let lane = &mut rig.ends[AGENT].lane;
    let mut batch = [&mut datagram[..]];
    let taken = lane.receive(now_ns, &mut Aead::detect(), &mut batch, |_, _| records += 1);
    (taken, records)
}

#[test]
fn every_changed_bit_is_noticed_and_the_true_datagram_is_taken_once() {
    let (mut rig, datagram) = agent_and_datagram();
    let before = rig.ends[AGENT].lane.stats();
    for bit in 0..datagram.len() * 8 {
        let mut changed = datagram.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(receive(&mut rig, &changed), (false, 0), "bit {bit}");
    }
    for len in 0..datagram.len() {
        assert_eq!(receive(&mut rig, &datagram[..len]), (false, 0), "{len} bytes");
    }
    assert_eq!(receive(&mut rig, &[&datagram[..], &[0]].concat()), (false, 0));
    let stats = rig.ends[AGENT].lane.stats();
    assert_eq!(stats.arrived_here, before.arrived_here);
    let refused: u64 = Refusal::ALL.iter().map(|why| stats.refusals.of(*why)).sum();
    assert_eq!(refused, (datagram.len() * 9 + 1) as u64, "each under one name");
    assert!(rig.ends[AGENT].lane.is_empty(), "nothing is answered");

    assert_eq!(receive(&mut rig, &datagram), (true, 1));
    assert_eq!(receive(&mut rig, &datagram), (false, 0));
    let duplicates = rig.ends[AGENT].lane.stats().refusals.of(Refusal::Duplicate);
    assert_eq!(duplicates, stats.refusals.of(Refusal::Duplicate) + 1);
}

#[test]
fn both_copies_of_a_datagram_in_one_batch_are_one() {
    let (mut rig, datagram) = agent_and_datagram();
    let (mut one, mut other, mut records) = (datagram.clone(), datagram, 0);
    let now_ns = rig.now_ns;
    let lane = &mut rig.ends[AGENT].lane;
    let mut batch = [&mut one[..], &mut other[..]];
    assert!(lane.receive(now_ns, &mut Aead::detect(), &mut batch, |_, _| records += 1));
    assert_eq!((records, lane.stats().refusals.of(Refusal::Duplicate)), (1, 1));
}

#[test]
fn what_one_end_has_sent_does_not_open_at_that_end_or_on_another_lane() {
    let (mut rig, datagram) = agent_and_datagram();
    let mut own = datagram.clone();
    let now_ns = rig.now_ns;
    let lane = &mut rig.ends[GATEWAY].lane;
    // The gateway's window is behind, so it comes to the cipher.
    assert!(!lane.receive(now_ns, &mut Aead::detect(), &mut [&mut own[..]], |_, _| ()));
    assert_eq!(lane.stats().refusals.of(Refusal::Forged), 1);
    let header = Header::read(&datagram).expect("it is one");
    let elsewhere = Header { lane: LANE + 1, ..header };
    let moved = [&elsewhere.to_bytes()[..], &datagram[HEADER_BYTES..]].concat();
    assert_eq!(receive(&mut rig, &moved), (false, 0));
    assert_eq!(rig.ends[AGENT].lane.stats().refusals.of(Refusal::Elsewhere), 1);
}

#[test]
fn recorded_datagrams_do_nothing_however_late_they_come() {
    let (mut rig, datagram) = agent_and_datagram();
    assert_eq!(receive(&mut rig, &datagram), (true, 1));
    let recorded: Vec<_> = {
        rig.weather.delay_ms = 10;
        let mut recorded = Vec::new();
        for _ in 0..3000 {
            rig.step(|_, _| ());
            recorded.extend(rig.under_way(GATEWAY).iter().map(|(_, datagram)| datagram.clone()));
        }
        recorded
    };
    rig.steps(20, |_, _| ());
    let seen = |rig: &Rig| {
        let lane = &rig.ends[AGENT].lane;
        // The second is what another address would have to change before it is asked.
        (lane.stats().arrived_here, lane.latest())
    };
    let before = seen(&rig);
    for datagram in &recorded {
        assert_eq!(receive(&mut rig, datagram), (false, 0));
    }
    assert!(!recorded.is_empty());
    assert_eq!(seen(&rig), before);
}

/// The other side has the keys and breaks the format: it is refused, and nothing panics or grows.
#[test]
fn an_authentic_body_may_be_anything() {
    let secrets = || {
        let key = |[lane, way]: [u8; 2]| Ok::<_, ()>(Key::from_bytes([lane ^ way << 4 | 1; 32]));
        Secrets::export(LANE, key).expect("it cannot fail")
    };
    let mut random = Random(5);
    let mut aead = Aead::detect();
    let mut lane = Lane::new(Role::Gateway, (TRUNK, LANE), secrets(), Rekey::default(), 0);
    let mut keys = crate::protocol::keys::SendKeys::new(secrets().to_gateway, Rekey::default(), 0);
    for sequence in 0..20_000 {
        let len = 1 + random.below(100) as usize;
        let mut body: Vec<u8> = (0..len).map(|_| random.below(7) as u8).collect();
        if random.chance(70) {
            // Its mark is reached, and its first section has a length that fits.
            body.resize(len.max(12), 1);
            body[..4].fill(0);
            let section = (body.len() - 4) as u16;
            body[4..6].copy_from_slice(&section.to_le_bytes());
            body[7] = 0;
        }
        let (key, epoch) = keys.key_for(1, 0);
        let header = Header { lane: LANE, epoch, trunk: TRUNK, sequence };
        let mut datagram = [&header.to_bytes()[..], &body, &[0; 16]].concat();
        let (aad, rest) = datagram.split_at_mut(HEADER_BYTES);
        let nonce = crate::protocol::sender::nonce(sequence);
        aead.seal(&mut [ringgate_core::crypto::Job::new(key, nonce, aad, rest)]);
        assert!(lane.receive(0, &mut aead, &mut [&mut datagram[..]], |_, frame| {
            assert!(frame.may_be_lost());
        }));
        lane.seal(0, &mut aead);
        let pending = lane.pending().len();
        lane.handle_sent(pending);
    }
    let stats = lane.stats();
    assert!(stats.refusals.of(Refusal::Malformed) > 1000 && stats.waiting <= 64, "{stats:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_datagram_makes_a_lane_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        looks_right: bool,
    ) {
        let (mut rig, datagram) = agent_and_datagram();
        if looks_right && bytes.len() > HEADER_BYTES {
            bytes[..8].copy_from_slice(&datagram[..8]);
        }
        prop_assert_eq!(receive(&mut rig, &bytes), (false, 0));
    }

    #[test]
    fn records_of_any_length_come_back_on_any_way(
        lens in prop::collection::vec(1_usize..=1472, 1..80),
        path in 1200_usize..=8900,
    ) {
        let mut rig = Rig::new(3, Weather { carries: path, ..Weather::FAIR }, Rekey::default());
        rig.tell(AGENT, 2, |writer| writer.hello(&Hello::new(1, "arena")));
        rig.steps(1500, |_, _| ());
        let session = SessionId::new(usize::from(LANE), 1);
        let mut expected = Vec::new();
        for len in lens {
            let mut buf = [0; 2000];
            let mut writer = Writer::new(&mut buf);
            prop_assert!(writer.payload(session, &vec![len as u8; len]));
            let frame = Frames::new(writer.bytes()).next().expect("one").expect("own");
            if rig.ends[AGENT].lane.push(2, frame).is_ok() {
                expected.push(writer.bytes().to_vec());
            }
        }
        let mut come = Vec::new();
        rig.step(|_, arrival| match arrival {
            super::rig::Arrival::Record(2, frame) => come.push(frame.bytes().to_vec()),
            _ => panic!("nothing else was pushed"),
        });
        prop_assert_eq!(come, expected);
    }
}

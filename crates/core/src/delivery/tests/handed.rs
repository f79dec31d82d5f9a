//! Ends on their way to another process: nothing is forgotten, and damage is refused or does no
//! harm.

use super::random::Random;
use super::world::{Event, MS, Path, World};
use crate::carry::{Broken, Maps, Reader, Writer};
use crate::delivery::{Channel, End, Options};

fn written(end: &End) -> Vec<u8> {
    let mut memory = vec![0; 2 << 20];
    let mut out = Writer::new(&mut memory);
    end.hand_over(&mut out);
    assert!(!out.is_over());
    let len = out.len();
    memory.truncate(len);
    memory
}

fn read(options: &Options, bytes: &[u8]) -> Result<End, Broken> {
    let maps = Maps::default();
    let mut from = Reader::new(bytes, &maps);
    let end = End::take_over(options, &mut from)?;
    from.end().map(|()| end)
}

/// The same end, as another process has it.
pub(super) fn handed_over(end: &End, options: &Options) -> End {
    let bytes = written(end);
    let mut after = read(options, &bytes).expect("what was written is read");
    assert!(written(&after) == bytes, "what was read is what was written");
    if !options.takes_farewell {
        let farewells = written_farewells(end);
        take_farewells(&mut after, &farewells).expect("what was written is read");
        assert!(written_farewells(&after) == farewells, "what was read is what was written");
    }
    after
}

pub(super) fn written_farewells(end: &End) -> Vec<u8> {
    let mut memory = vec![0; 1000];
    let mut out = Writer::new(&mut memory);
    end.hand_over_farewells(&mut out);
    let len = out.len();
    memory.truncate(len);
    memory
}

pub(super) fn take_farewells(end: &mut End, bytes: &[u8]) -> Result<(), Broken> {
    let maps = Maps::default();
    let mut from = Reader::new(bytes, &maps);
    end.take_farewells(&mut from)?;
    from.end()
}

/// A world in the middle of something, over a bad network.
fn busy_world(seed: u64) -> World {
    let path = Path { loss_percent: 20, delay_ns: 10 * MS..90 * MS, ..Path::good(0) };
    let mut world = World::of(&path, seed);
    for round in 0..20_u8 {
        for end in &mut world.ends {
            for (channel, len) in [
                (Channel::Reliable(round % 3), 9000),
                (Channel::Reliable(200), 40),
                (Channel::Sequenced(1), 300),
                (Channel::Unreliable(0), 700),
            ] {
                let _ = end.send(channel, &vec![round; len], Some(round.into()));
            }
        }
        let end_ns = world.now_ns + 7 * MS;
        world.run_until(end_ns, |_, _: Event| ());
    }
    world
}

#[test]
fn an_end_in_the_middle_of_something_is_read_as_it_was_written() {
    for seed in 0..4 {
        let world = busy_world(seed);
        for end in &world.ends {
            let bytes = written(end);
            handed_over(end, &Options::default());
            for len in (0..bytes.len()).step_by(2039) {
                assert!(read(&Options::default(), &bytes[..len]).is_err(), "{len}");
            }
        }
    }
    let idle = End::new(&Options::default(), 5);
    assert!(written(&handed_over(&idle, &Options::default())).len() < 1024);
}

#[test]
fn damaged_state_is_refused_or_does_no_harm() {
    let world = busy_world(1);
    let bytes = written(&world.ends[0]);
    let (mut random, mut taken) = (Random::new(7), 0);
    for _ in 0..500 {
        let mut damaged = bytes.clone();
        for _ in 0..random.within(1..4) {
            // Numbers stand at the front and at the back, and the bytes of messages between them.
            let at = random.within(0..1500.min(bytes.len() as u64)) as usize;
            let at = if random.percent(30) { bytes.len() - 1 - at } else { at };
            damaged[at] = random.word() as u8;
        }
        let Ok(end) = read(&Options::default(), &damaged) else { continue };
        taken += 1;
        drive(end, world.now_ns);
    }
    assert!(taken > 25, "{taken}: most bytes are those of messages");
}

/// Has an end do everything that it does. Nothing it says has to make sense.
fn drive(mut end: End, now_ns: u64) {
    let mut packet = [0; 1200];
    let mut peer = End::new(&Options::default(), now_ns);
    for step in 0..50 {
        let now_ns = now_ns + step * 50 * MS;
        while let Some(len) = end.poll_transmit(now_ns, &mut packet) {
            let _ = peer.handle_packet(now_ns, &packet[..len], |_, _| ());
        }
        while let Some(len) = peer.poll_transmit(now_ns, &mut packet) {
            let _ = end.handle_packet(now_ns, &packet[..len], |_, _| ());
        }
        while end.poll_report().is_some() {}
        let _ = end.send(Channel::Reliable(3), &[1; 3000], Some(1));
        let _ = (end.quality(), end.poll_timeout());
    }
}

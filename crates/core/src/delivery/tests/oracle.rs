//! Thousands of runs over bad networks: every report right, once and in order; every reliable
//! message once, in order and as it was; and none stalls.
//!
//! `RINGGATE_DELIVERY_SEEDS=10000` runs more of them, `RINGGATE_DELIVERY_SEED=17` only that one.

use std::env;

use super::model::{Model, TOKEN_BYTES};
use super::random::Random;
use super::world::{Event, MS, Path, SECOND, World};
use crate::delivery::{Channel, End, Options, SendError};
use crate::proto::notify::PacketSeq;

/// How many runs there are by default.
const SEEDS: u64 = 600;

#[test]
fn no_network_breaks_a_promise() {
    let number = |name| env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("RINGGATE_DELIVERY_SEED") {
        Some(one) => one..one + 1,
        None => 0..number("RINGGATE_DELIVERY_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        eprintln!("seed {seed}");
        run(seed);
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let firsts = [0, 1].map(|_| PacketSeq::new(near_a_wrap(&mut random)));
    let options = [0, 1].map(|end| options(&mut random, [firsts[end], firsts[1 - end]]));
    let paths = [0, 1].map(|_| path(&mut random));
    let mut world = World::new(options, paths, random.word());
    let mut models = [Model::default(), Model::default()];
    let messages = random.within(10..200);
    let pause_ns = random.within(0..40 * MS);
    let is_handed_over = seed % 2 == 1;
    for _ in 0..messages {
        let from = random.within(0..2) as usize;
        send(&mut world, &mut models[from], from, &mut random);
        let end_ns = world.now_ns + random.within(0..pause_ns + 1);
        world.run_until(end_ns, |at, event| judge(&mut models, at, event));
        if is_handed_over && random.percent(20) {
            world.hand_over(from);
        }
    }
    let is_settled = world.settle(3600 * SECOND, |at, event| judge(&mut models, at, event));
    assert!(is_settled, "seed {seed} stalls: {:?}", world.ends.each_ref().map(End::quality));
    models.iter().for_each(Model::assert_complete);
    let idle = |end: &mut End| {
        end.trim();
        size_of_val(end) + end.heap_bytes()
    };
    let bytes = world.ends.iter_mut().map(idle).max();
    assert!(bytes < Some(64 * 1024), "{bytes:?}");
}

fn judge(models: &mut [Model; 2], at: usize, event: Event) {
    match event {
        Event::Message(channel, message) => models[1 - at].handle_message(channel, &message),
        Event::Report(report) => models[at].handle_report(report),
    }
}

fn send(world: &mut World, model: &mut Model, from: usize, random: &mut Random) {
    let number = [0, 1, random.word() as u8][random.within(0..3) as usize];
    let channel = match random.within(0..4) {
        0 => Channel::Sequenced(number),
        1 => Channel::Unreliable(number),
        _ => Channel::Reliable(number),
    };
    let most = world.ends[from].message_bytes_max(channel) as u64;
    let len = match (channel, random.within(0..100)) {
        (Channel::Reliable(_), 0..2) => random.within(1..most + 1),
        (Channel::Reliable(_), 2..20) => random.within(1..5000),
        (Channel::Reliable(_), _) => random.within(1..300),
        _ => random.within(TOKEN_BYTES as u64..most.min(1000)),
    };
    let (token, message) = model.next(channel, len as usize);
    match world.ends[from].send(channel, &message, Some(token)) {
        Ok(()) => {}
        Err(SendError::Full) => model.take_back(token),
        Err(why) => panic!("{why:?}"),
    }
}

/// Where wraps are within reach, half of the time.
fn near_a_wrap(random: &mut Random) -> u64 {
    if random.percent(50) { 16384 - random.within(0..300) } else { random.word() }
}

fn options(random: &mut Random, [first_sent, first_received]: [PacketSeq; 2]) -> Options {
    Options {
        first_sent,
        first_received,
        packet_bytes: [200, 300, 1200][random.within(0..3) as usize],
        keep_alive_ns: random.within(100..2000) * MS,
        ack_delay_ns: random.within(0..30) * MS,
        reorder_ns: [0, 20, 100][random.within(0..3) as usize] * MS,
        ..Options::default()
    }
}

fn path(random: &mut Random) -> Path {
    let (least, spread) = (random.within(0..100), random.within(0..300));
    let spread = if random.percent(40) { 1 } else { spread + 1 };
    Path {
        loss_percent: [0, 2, 10, 30, 50][random.within(0..5) as usize],
        duplicate_percent: [0, 0, 20][random.within(0..3) as usize],
        delay_ns: least * MS..(least + spread) * MS,
        ..Path::good(0)
    }
}

#[test]
fn what_a_run_does_is_enough_to_find_something() {
    let mut random = Random::new(1);
    let (mut world, mut model) = (World::of(&Path::good(20 * MS), 1), Model::default());
    for _ in 0..1000 {
        send(&mut world, &mut model, 0, &mut random);
        let end_ns = world.now_ns + 20 * MS;
        world.run_until(end_ns, |at, event| match (at, event) {
            (0, Event::Report(report)) => model.handle_report(report),
            (1, Event::Message(channel, message)) => model.handle_message(channel, &message),
            other => panic!("{other:?}"),
        });
    }
    assert!(model.arrived() > 950, "{}", model.arrived());
}

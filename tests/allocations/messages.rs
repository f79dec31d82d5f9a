//! What a gate allocates whose listener delivers messages: nothing while messages go both ways,
//! packets get lost and the game process does not always read; and little for a player who has
//! become quiet.

use ringgate_batch::{Endpoint, SendFailure};
use ringgate_core::crypto::Aead;
use ringgate_core::delivery::{Channel, End, Options, Refusal};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::{BUNDLE_BYTES_MAX, DATAGRAM_BYTES_MAX, PAYLOAD_BYTES_MAX};
use ringgate_link::bundle::{self, MessagePart, ToGame, Writer};
use ringgate_testkit::ConnectedPlayers;

use super::{LIVE_BYTES, allocations_in};

const MS: u64 = 1_000_000;

/// Where the game process says most.
const LEVELS: bundle::Channel = bundle::Channel::Reliable(0);
const EVENTS: bundle::Channel = bundle::Channel::Reliable(9);

/// A long message, and the beginnings of it short ones.
static LEVEL: [u8; 20_000] = [7; 20_000];

/// Players with their ends, and a game process.
struct Arena {
    connected: ConnectedPlayers,
    ends: Vec<End>,
    ticks: usize,
    /// Datagrams between players and gate.
    passed: u64,
    /// Every so many of them is lost; 0 for none.
    loses_every: u64,
    left: Left,
    /// Whole messages that have arrived: at players, and at the game process.
    arrived: [u64; 2],
    reports: u64,
    /// For how many players the game process was told not to say more.
    full: usize,
}

/// What has left the gate in a turn. It has room for all of it from the start.
struct Left {
    bytes: Vec<u8>,
    /// For whom, and where it ends.
    ends: Vec<(Option<Endpoint>, usize)>,
}

impl Left {
    fn new() -> Self {
        Self { bytes: Vec::with_capacity(8 << 20), ends: Vec::with_capacity(1 << 14) }
    }

    fn put(&mut self, to: Option<Endpoint>, bytes: &[u8]) {
        let has_room = self.bytes.capacity() - self.bytes.len() >= bytes.len();
        assert!(has_room && self.ends.len() < self.ends.capacity(), "more than a turn sends");
        self.bytes.extend_from_slice(bytes);
        self.ends.push((to, self.bytes.len()));
    }

    fn take(&mut self) -> Vec<(Option<Endpoint>, Vec<u8>)> {
        let mut start = 0;
        let one = |(to, end)| (to, self.bytes[std::mem::replace(&mut start, end)..end].to_vec());
        let all = self.ends.drain(..).map(one).collect();
        self.bytes.clear();
        all
    }
}

impl Arena {
    fn new(players: usize, loses_every: u64) -> Self {
        let connected = ConnectedPlayers::delivering(players, Aead::detect());
        let now_ns = connected.now().mono_ns;
        let ends = (0..players).map(|_| End::new(&Options::default(), now_ns)).collect();
        let (left, passed, ticks) = (Left::new(), 0, 0);
        let (arrived, reports, full) = ([0; 2], 0, 0);
        Self { connected, ends, ticks, passed, loses_every, left, arrived, reports, full }
    }

    /// Ten milliseconds in which everybody has something to say. Returns how often the gate has
    /// allocated.
    fn busy_tick(&mut self, link_is_full: bool) -> u64 {
        for player in 0..self.ends.len() {
            let has_much = (self.ticks + 13 * player).is_multiple_of(100);
            let (level, end) = (&LEVEL, &mut self.ends[player]);
            end.send(Channel::Sequenced(0), &level[..100], None).expect("room");
            end.send(Channel::Unreliable(200), &level[..30], None).expect("room");
            let _ = end.send(Channel::Reliable(1), &level[..200], None);
            self.say_to(player, bundle::Channel::Sequenced(0), &level[..600], 0);
            self.say_to(player, bundle::Channel::Unreliable(3), &level[..50], 1);
            if has_much {
                let _ = self.ends[player].send(Channel::Reliable(0), level, None);
            }
            if self.full > 0 {
                continue;
            }
            self.say_to(player, EVENTS, &level[..100], 2);
            if has_much {
                self.say_to(player, LEVELS, level, 3);
            }
        }
        self.tick(link_is_full)
    }

    /// Ten milliseconds in which there is more to say than leaves, on every channel that is used.
    fn crowded_tick(&mut self, link_is_full: bool) {
        for player in 0..self.ends.len() {
            let (level, end) = (&LEVEL, &mut self.ends[player]);
            while end.send(Channel::Reliable(0), level, None).is_ok() {
                for _ in 0..20 {
                    let _ = end.send(Channel::Reliable(1), &level[..200], None);
                }
            }
            if self.full == 0 {
                (0..6).for_each(|_| self.say_to(player, LEVELS, level, 1));
                (0..20).for_each(|_| self.say_to(player, EVENTS, &level[..100], 1));
            }
        }
        self.busy_tick(link_is_full);
    }

    /// The game process says something to a player.
    fn say_to(&mut self, player: usize, channel: bundle::Channel, message: &[u8], token: u64) {
        let mut buffer = [0; BUNDLE_BYTES_MAX];
        for part in MessagePart::of(self.connected.session(player), channel, token, message) {
            let mut writer = Writer::new(&mut buffer);
            assert!(writer.message(&part), "a part fits a bundle");
            let len = writer.len();
            while !self.connected.receive_bundle(&buffer[..len]) {
                self.turn(false);
            }
        }
    }

    /// Ten milliseconds.
    fn tick(&mut self, link_is_full: bool) -> u64 {
        self.ticks += 1;
        self.connected.pass(10 * MS);
        let mut allocations = 0;
        for player in 0..self.ends.len() {
            allocations += self.send_up(player);
        }
        allocations + self.turn(link_is_full)
    }

    fn send_up(&mut self, player: usize) -> u64 {
        let (mut packet, mut datagram) = ([0; PAYLOAD_BYTES_MAX], [0; DATAGRAM_BYTES_MAX]);
        let (now_ns, home) = (self.connected.now().mono_ns, ConnectedPlayers::home(player));
        let mut allocations = 0;
        while let Some(len) = self.ends[player].poll_transmit(now_ns, &mut packet) {
            let len = self.connected.write_payload(player, &packet[..len], &mut datagram);
            if self.is_lost() {
                continue;
            }
            while !self.connected.receive(home, &datagram[..len]) {
                allocations += self.turn(false);
            }
        }
        allocations
    }

    /// One turn, and what has left in it arrives. What is counted is the turn alone.
    fn turn(&mut self, link_is_full: bool) -> u64 {
        let Self { connected, left, .. } = self;
        let allocations = allocations_in(|| {
            connected.turn_over(|to, bytes| {
                if to.is_none() && link_is_full {
                    return Err(SendFailure::Full);
                }
                left.put(to, bytes);
                Ok(())
            });
        });
        for (to, bytes) in self.left.take() {
            match to {
                Some(home) => self.arrive(home, bytes),
                None => self.hear(&bytes),
            }
        }
        allocations
    }

    fn arrive(&mut self, home: Endpoint, mut packet: Vec<u8>) {
        let player = home.ip_words().1 as usize & 0x00ff_ffff;
        let is_lost = self.is_lost();
        let now_ns = self.connected.now().mono_ns;
        let Some(payload) = self.connected.open_payload(player, &mut packet) else { return };
        if !is_lost {
            let [arrived, _] = &mut self.arrived;
            let taken = self.ends[player].handle_packet(now_ns, payload, |_, _| *arrived += 1);
            assert!(!matches!(taken, Err(Refusal::Fault(_))), "{taken:?}");
        }
    }

    fn hear(&mut self, bundle: &[u8]) {
        for record in ToGame::read(bundle) {
            match record.expect("the gate writes what we read") {
                ToGame::Message(part) => self.arrived[1] += u64::from(part.is_last),
                ToGame::Report { .. } => self.reports += 1,
                ToGame::Room { is_full: true, .. } => self.full += 1,
                ToGame::Room { is_full: false, .. } => self.full -= 1,
                _ => {}
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        self.passed += 1;
        self.loses_every > 0 && self.passed.is_multiple_of(self.loses_every)
    }
}

#[test]
fn a_gate_that_delivers_messages_allocates_nothing_once_it_has_warmed_up() {
    let mut arena = Arena::new(12, 23);
    let play = |arena: &mut Arena, ticks: usize| {
        (0..ticks).map(|tick| arena.busy_tick((7..10).contains(&(tick % 40)))).sum::<u64>()
    };
    // In the beginning everybody has far more to say, so that as much memory is taken as is ever
    // needed.
    (0..60).for_each(|tick| arena.crowded_tick((7..10).contains(&(tick % 20))));
    play(&mut arena, 300);
    let (before, counted) = (arena.arrived, arena.connected.gate().counters().clone());
    let reports = arena.reports;
    assert_eq!(play(&mut arena, 300), 0);

    // All of it has happened.
    let [down, up] = [0, 1].map(|way| arena.arrived[way] - before[way]);
    assert!(down > 12 * 300 * 2 && up > 12 * 300 * 2, "{down} {up}");
    assert!(arena.reports - reports > 12 * 300, "{}", arena.reports - reports);
    let counters = arena.connected.gate().counters();
    for reason in [DropReason::DeliveryDeferred, DropReason::MessageNotTaken] {
        assert!(counters.drops.of(reason) > counted.drops.of(reason), "{}", reason.name());
    }
    let traffic = arena.connected.gate().delivery_traffic().next().expect("one listener");
    assert!(traffic.parts_repeated > 100, "{traffic:?}");
    assert_eq!((counters.sessions, counters.check_conservation()), (12, Ok(())));
}

/// What so many players take at a gate who have used everything and become quiet, beyond those
/// whose messages are not delivered.
fn quiet_bytes(players: usize) -> i64 {
    let bytes_of = |work: &dyn Fn() -> ConnectedPlayers| {
        let before = LIVE_BYTES.get();
        let connected = work();
        let bytes = LIVE_BYTES.get() - before;
        drop(connected);
        bytes
    };
    let raw = bytes_of(&|| ConnectedPlayers::new(players, Aead::detect()));
    let quiet = bytes_of(&|| {
        let mut arena = Arena::new(players, 23);
        (0..30).for_each(|_| _ = arena.busy_tick(false));
        for player in 0..players {
            for channel in 0..=255 {
                let _ = arena.ends[player].send(Channel::Reliable(channel), &[1; 100], None);
                arena.say_to(player, bundle::Channel::Reliable(channel), &[1; 100], 0);
            }
        }
        // Two seconds until all has arrived, and more than ten of silence.
        (0..1300).for_each(|_| _ = arena.tick(false));
        arena.connected
    });
    quiet - raw
}

#[test]
fn a_player_who_has_become_quiet_takes_less_than_4_kib_at_the_gate() {
    // What links keep for the next messages is theirs, however many players there are.
    let [few, more] = [10, 30].map(quiet_bytes);
    let each = (more - few) / 20;
    println!("a quiet player takes {each} bytes more where messages are delivered");
    assert!(each < 4096, "{each}");
}

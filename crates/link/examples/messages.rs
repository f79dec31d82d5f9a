//! A game server that sends whole messages, behind a listener with `delivery = "gateway"`: what
//! `c/messages.c` does, in Rust.
//!
//! Every player gets a level of 20 KiB when it comes, and another one for each message that it
//! sends on reliable channel 0 (an order for the next one, of any length). 30 times a second it is
//! sent a snapshot on sequenced channel 1, of which only the newest matters. Once a second a line
//! says what has become of all that, and how good the ways to the players were a second ago, as the
//! gateway has answered. `ringgate-loadgen run --delivery levels` plays the players.
//!
//! `cargo run -p ringgate-link --example messages -- RUN_DIR [NAME]`

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use ringgate_link::backend::{Event, Options, Outbox};
use ringgate_link::bundle::{Channel, SessionId};

const TICK: Duration = Duration::from_nanos(1_000_000_000 / 30);

const TICKS_PER_LINE: u64 = 30;

const LEVELS: Channel = Channel::Reliable(0);
const LEVEL_BYTES: usize = 20 * 1024;

const SNAPSHOTS: Channel = Channel::Sequenced(1);
const SNAPSHOT_BYTES: usize = 200;

/// Tokens of snapshots have this bit, those of levels do not.
const SNAPSHOT_TOKEN: u64 = 1 << 63;

#[expect(clippy::disallowed_methods, reason = "a game server has a clock of its own")]
fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let run_dir = arguments.next().unwrap_or_else(|| "/run/ringgate".to_owned());
    let name = arguments.next().unwrap_or_else(|| "arena-1".to_owned());

    let mut backend = Options::new(run_dir, name).start()?;
    let start = Instant::now();
    let mut world = World::default();
    let mut next_tick = TICK;
    loop {
        let mut events = backend.poll()?;
        while let Some((event, outbox)) = events.next() {
            world.handle(&event, outbox);
        }
        let now = start.elapsed();
        if now >= next_tick {
            // After a stall the missed ticks are left out instead of being sent all at once.
            next_tick = (next_tick + TICK).max(now);
            world.tick(backend.outbox());
        }
        backend.wait(Some(next_tick.saturating_sub(now)))?;
    }
}

#[derive(Default)]
struct World {
    tick: u64,
    players: HashMap<SessionId, Player>,
    books: Books,
    ways: Ways,
}

/// How good the ways to players are: how many answers have come since the last line, and their
/// sums.
#[derive(Default)]
struct Ways {
    answers: u64,
    round_trips_us: u64,
    losses_per_mille: u64,
}

#[derive(Default)]
struct Player {
    /// Levels to be sent when there is room.
    owed: u32,
    /// The gateway keeps enough for this player.
    is_full: bool,
    /// Levels that were sent.
    levels: u32,
    /// Sent, and not reported yet. What a player is sent when the gateway has just ended its
    /// session finds nobody: there is no report, and the session is closed.
    levels_open: u64,
    snapshots_open: u64,
}

/// What was sent, and what is known of it.
#[derive(Default)]
struct Books {
    levels: u64,
    levels_delivered: u64,
    /// A reliable message is delivered, unless its player leaves before.
    levels_given_up: u64,
    snapshots: u64,
    snapshots_delivered: u64,
    snapshots_lost: u64,
    orders: u64,
    order_bytes: u64,
    /// The link was full: levels are sent with a later tick.
    refused: u64,
}

impl World {
    fn handle(&mut self, event: &Event<'_>, outbox: &mut Outbox) {
        match *event {
            Event::Opened(opened) => {
                let player = Player { owed: 1, ..Player::default() };
                self.players.insert(opened.session, player);
                self.send_levels(outbox, opened.session);
            }
            Event::Message { session, channel: LEVELS, bytes } => {
                self.books.orders += 1;
                self.books.order_bytes += bytes.len() as u64;
                if let Some(player) = self.players.get_mut(&session) {
                    player.owed += 1;
                }
                self.send_levels(outbox, session);
            }
            Event::Room { session, is_full, .. } => {
                if let Some(player) = self.players.get_mut(&session) {
                    player.is_full = is_full;
                }
                self.send_levels(outbox, session);
            }
            Event::Report { session, token, is_delivered } => {
                if let Some(player) = self.players.get_mut(&session) {
                    self.books.note(player, token, is_delivered);
                }
            }
            // Nothing is known before the first round trip.
            Event::Quality { quality, .. } if quality.round_trip_us > 0 => {
                self.ways.answers += 1;
                self.ways.round_trips_us += u64::from(quality.round_trip_us);
                self.ways.losses_per_mille += u64::from(quality.loss_per_mille);
            }
            Event::Closed { session, .. } | Event::Moved { session, .. } => {
                self.players.remove(&session).iter().for_each(|player| self.books.close(player));
            }
            Event::LinkLost { worker, .. } => {
                let books = &mut self.books;
                let gone = self.players.extract_if(|session, _| session.worker() == worker);
                gone.for_each(|(_, player)| books.close(&player));
            }
            _ => {}
        }
    }

    /// Every byte follows from the number, so that the player sees whether a level is whole.
    fn send_levels(&mut self, outbox: &mut Outbox, session: SessionId) {
        let Self { players, books, .. } = self;
        let Some(player) = players.get_mut(&session) else { return };
        while player.owed > 0 && !player.is_full {
            let number = player.levels;
            let byte = |at: usize| ((at * 31) as u8).wrapping_add(number as u8);
            let mut level: Vec<u8> = (0..LEVEL_BYTES).map(byte).collect();
            level[..4].copy_from_slice(&number.to_le_bytes());
            let token = NonZeroU64::new(u64::from(number) + 1);
            if outbox.send_message(session, LEVELS, &level, token).is_err() {
                books.refused += 1;
                return;
            }
            player.owed -= 1;
            player.levels += 1;
            player.levels_open += 1;
            books.levels += 1;
        }
    }

    fn tick(&mut self, outbox: &mut Outbox) {
        let mut snapshot = [0; SNAPSHOT_BYTES];
        snapshot[..4].copy_from_slice(&(self.tick as u32).to_le_bytes());
        let token = NonZeroU64::new(SNAPSHOT_TOKEN | (self.tick + 1));
        let is_new_line = self.tick.is_multiple_of(TICKS_PER_LINE);
        if is_new_line {
            self.print_books();
        }
        let sessions: Vec<_> = self.players.keys().copied().collect();
        for session in sessions {
            self.send_levels(outbox, session);
            let Some(player) = self.players.get_mut(&session) else { continue };
            match outbox.send_message(session, SNAPSHOTS, &snapshot, token) {
                Ok(()) => {
                    player.snapshots_open += 1;
                    self.books.snapshots += 1;
                }
                Err(_) => self.books.refused += 1,
            }
            if is_new_line {
                // Where the link is full, with the next line.
                let _ = outbox.ask_quality(session);
            }
        }
        self.tick += 1;
    }

    fn print_books(&mut self) {
        let Books { levels, levels_delivered, levels_given_up, .. } = self.books;
        let Books { snapshots, snapshots_delivered, snapshots_lost, .. } = self.books;
        let Books { orders, order_bytes, refused, .. } = self.books;
        let Ways { answers, round_trips_us, losses_per_mille } = std::mem::take(&mut self.ways);
        let round_trip_ms = round_trips_us / answers.max(1) / 1000;
        let loss_per_mille = losses_per_mille / answers.max(1);
        println!(
            "players={} levels={levels} delivered={levels_delivered} snapshots={snapshots} \
             delivered={snapshots_delivered} lost={snapshots_lost} orders={orders} \
             bytes={order_bytes} refused={refused} given_up={levels_given_up} \
             round_trip_ms={round_trip_ms} loss_per_mille={loss_per_mille}",
            self.players.len()
        );
    }
}

impl Books {
    const fn note(&mut self, player: &mut Player, token: u64, is_delivered: bool) {
        let is_snapshot = token & SNAPSHOT_TOKEN != 0;
        let open = if is_snapshot { &mut player.snapshots_open } else { &mut player.levels_open };
        *open -= 1;
        match (is_snapshot, is_delivered) {
            (true, true) => self.snapshots_delivered += 1,
            (true, false) => self.snapshots_lost += 1,
            (false, true) => self.levels_delivered += 1,
            (false, false) => self.levels_given_up += 1,
        }
    }

    /// A player has left.
    const fn close(&mut self, player: &Player) {
        self.levels_given_up += player.levels_open;
        self.snapshots_lost += player.snapshots_open;
    }
}

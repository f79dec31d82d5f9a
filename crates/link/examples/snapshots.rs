//! A game server with a world: 30 times a second, every player is told the state of all.
//!
//! A player's state is the first four bytes of its last payload. A snapshot is the tick's number
//! and eight bytes for each player (slot, state), so one payload has room for 149 players; a real
//! game sends each player what it can see.
//!
//! `cargo run -p ringgate-link --example snapshots -- RUN_DIR [NAME]`

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use ringgate_link::backend::{Event, Options};
use ringgate_link::bundle::{PAYLOAD_BYTES_MAX, SessionId};

const TICK: Duration = Duration::from_nanos(1_000_000_000 / 30);

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
        while let Some((event, _)) = events.next() {
            world.handle(&event);
        }
        let now = start.elapsed();
        if now >= next_tick {
            // After a stall the missed ticks are left out instead of being sent all at once.
            next_tick = (next_tick + TICK).max(now);
            let snapshot = world.snapshot();
            let sessions: Vec<_> = world.players.keys().copied().collect();
            let _ = backend.outbox().multicast(&sessions, &snapshot);
        }
        backend.wait(Some(next_tick.saturating_sub(now)))?;
    }
}

#[derive(Default)]
struct World {
    tick: u32,
    players: HashMap<SessionId, Player>,
}

struct Player {
    slot: u32,
    state: [u8; 4],
}

impl World {
    fn handle(&mut self, event: &Event<'_>) {
        match *event {
            Event::Opened(opened) => {
                let player = Player { slot: opened.slot, state: [0; 4] };
                self.players.insert(opened.session, player);
            }
            Event::Payload { session, bytes } => {
                let player = self.players.get_mut(&session);
                if let (Some(player), Some(state)) = (player, bytes.first_chunk()) {
                    player.state = *state;
                }
            }
            // One who was moved is another process's, and as gone as one who has left.
            Event::Closed { session, .. } | Event::Moved { session, .. } => {
                self.players.remove(&session);
            }
            Event::LinkLost { worker, .. } => {
                self.players.retain(|session, _| session.worker() != worker);
            }
            _ => {}
        }
    }

    fn snapshot(&mut self) -> Vec<u8> {
        self.tick += 1;
        let mut snapshot = self.tick.to_le_bytes().to_vec();
        for player in self.players.values().take((PAYLOAD_BYTES_MAX - 4) / 8) {
            snapshot.extend(player.slot.to_le_bytes());
            snapshot.extend(player.state);
        }
        snapshot
    }
}

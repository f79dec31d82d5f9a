//! One of two zones, each a process of its own. A player who walks over the border goes on in the
//! other zone, without a reconnect. `c/zones.c` does the same; a zone may be in either language.
//!
//! A zone is 100 paces long, and each end of it is the border to the other. A payload of a player
//! is a step, one signed byte; the answer is where the player stands then: a byte, and the zone's
//! name. The listener's config has `moves = ["zone-1", "zone-2"]`.
//!
//! `cargo run -p ringgate-link --example zones -- RUN_DIR zone-1`

use std::collections::HashMap;
use std::io;

use ringgate_link::backend::{Event, Options, Outbox};
use ringgate_link::bundle::{MOVE_MS, Move, SessionId};

const PACES: i32 = 100;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let run_dir = arguments.next().unwrap_or_else(|| "/run/ringgate".to_owned());
    let name = arguments.next().unwrap_or_else(|| "zone-1".to_owned());
    let other = if name == "zone-2" { "zone-1" } else { "zone-2" };

    let mut backend = Options::new(run_dir, name.clone()).start()?;
    let mut zone = Zone { name, other, moves: 0, players: HashMap::new(), guests: HashMap::new() };
    loop {
        backend.wait(None)?;
        let mut events = backend.poll()?;
        while let Some((event, outbox)) = events.next() {
            zone.handle(&event, outbox);
        }
        backend.flush();
    }
}

struct Zone {
    name: String,
    other: &'static str,
    moves: u64,
    players: HashMap<SessionId, Player>,
    /// Where those will stand who were offered and are not here yet.
    guests: HashMap<SessionId, u8>,
}

struct Player {
    at: i32,
    /// It stands at the border until the gateway says whether it goes on in the other zone.
    is_leaving: bool,
}

impl Zone {
    fn handle(&mut self, event: &Event<'_>, outbox: &mut Outbox) {
        match *event {
            Event::Opened(opened) => {
                // Nothing is known of one who is new, or is told again after a link was lost.
                let guest = self.guests.remove(&opened.session);
                let at = guest.map_or(PACES / 2, i32::from);
                self.players.insert(opened.session, Player { at, is_leaving: false });
            }
            Event::Payload { session, bytes: [step] } => self.step(session, *step as i8, outbox),
            Event::Offered(offered) => {
                let at = match offered.data {
                    // The process of the other zone has sent where the player will stand.
                    [at] if i32::from(*at) < PACES => Some(*at),
                    // An operator moves the player.
                    [] => Some((PACES / 2) as u8),
                    _ => None,
                };
                self.guests.extend(at.map(|at| (offered.session, at)));
                // A link that is down takes the offer with it.
                let _ = outbox.answer(offered.session, offered.offer, at.is_some());
            }
            Event::OfferOver { session, .. } => {
                self.guests.remove(&session);
            }
            Event::MoveRefused { session, reason, .. } => {
                if let Some(player) = self.players.get_mut(&session) {
                    player.is_leaving = false;
                }
                println!("{session} stays in {}: {reason}", self.name);
            }
            Event::Moved { session, ticket } => {
                println!("{session} is in {} by move {ticket}", self.other);
                self.players.remove(&session);
            }
            Event::Closed { session, .. } => {
                self.players.remove(&session);
            }
            Event::LinkLost { worker, .. } => {
                self.players.retain(|session, _| session.worker() != worker);
                self.guests.retain(|session, _| session.worker() != worker);
            }
            _ => {}
        }
    }

    fn step(&mut self, session: SessionId, step: i8, outbox: &mut Outbox) {
        let Some(player) = self.players.get_mut(&session) else { return };
        if !player.is_leaving {
            let to = player.at + i32::from(step);
            player.at = to.clamp(0, PACES - 1);
            if to != player.at {
                self.moves += 1;
                let asked = Move {
                    session,
                    backend: self.other,
                    ticket: self.moves,
                    time_ms: MOVE_MS,
                    confirms: false,
                    message: None,
                    data: &[to.rem_euclid(PACES) as u8],
                };
                // Where it is not taken, the player is stopped by the border, and may try again.
                player.is_leaving = outbox.move_session(&asked).is_ok();
            }
        }
        let mut answer = vec![player.at as u8];
        answer.extend_from_slice(self.name.as_bytes());
        let _ = outbox.send(session, &answer);
    }
}

//! A player whose client has the delivery layer.

use super::super::clients::{Library, Player as Raw, Scribe};
use super::super::games::{Game, Heard};
use super::super::rig::{Rig, bundle_backend, home, listener, netcode_rules};
use crate::setup::Setup;
use ringgate_core::delivery::{Channel, End, Options, Report};
use ringgate_core::netcode::Client;
use ringgate_link::bundle::SessionId;

/// One listener that delivers messages, with one backend.
pub(super) fn delivering() -> Setup {
    let mut setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 4)], 77);
    netcode_rules(&mut setup).delivers = true;
    setup
}

pub(in crate::tests) struct Player {
    pub(in crate::tests) raw: Raw<Client>,
    pub(in crate::tests) end: End,
    pub(in crate::tests) messages: Vec<(Channel, Vec<u8>)>,
    pub(in crate::tests) reports: Vec<Report>,
    /// Every so many packets of the gate is lost; 0 for none.
    pub(in crate::tests) loses_every: usize,
    seen: usize,
}

impl Player {
    /// A player who is connected.
    pub(in crate::tests) fn connected(rig: &mut Rig, n: u16) -> Self {
        Self::connected_with(rig, n, &Options::default())
    }

    /// One whose end behaves so.
    pub(in crate::tests) fn connected_with(rig: &mut Rig, n: u16, options: &Options) -> Self {
        let raw = Raw::connected(rig, home(n), n.into());
        let end = End::new(options, rig.now.mono_ns);
        let (messages, reports) = (Vec::new(), Vec::new());
        Self { raw, end, messages, reports, loses_every: 0, seen: 0 }
    }

    /// What is due leaves, and what has come is taken.
    pub(in crate::tests) fn exchange(&mut self, rig: &mut Rig) {
        let now_ns = rig.now.mono_ns;
        while !self.raw.library.is_over()
            && let Some(datagram) = self.next_packet(now_ns)
        {
            rig.push(self.raw.home, &datagram);
        }
        self.raw.exchange(rig);
        for payload in self.raw.got.drain(..) {
            self.seen += 1;
            if self.loses_every > 0 && self.seen.is_multiple_of(self.loses_every) {
                continue;
            }
            let taken = self.end.handle_packet(now_ns, &payload, |channel, message| {
                self.messages.push((channel, message.to_vec()));
            });
            taken.expect("the gate is honest");
        }
        self.reports.extend(std::iter::from_fn(|| self.end.poll_report()));
    }

    /// The next one that is due, sealed.
    pub(in crate::tests) fn next_packet(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        let mut packet = [0; 1200];
        let len = self.end.poll_transmit(now_ns, &mut packet)?;
        Some(self.raw.library.payload(now_ns, &packet[..len]))
    }

    /// Lets time pass while the player lives.
    pub(in crate::tests) fn live(&mut self, rig: &mut Rig, ms: u64) {
        for _ in 0..ms.div_ceil(5) {
            rig.jump(5);
            self.exchange(rig);
        }
    }

    /// Sends a payload that is no packet of an honest end.
    pub(in crate::tests) fn lie(&mut self, rig: &mut Rig, payload: &[u8]) {
        let datagram = self.raw.library.payload(rig.now.mono_ns, payload);
        rig.deliver(self.raw.home, &datagram);
    }
}

/// A gate with a game process and a player, who is known to it by the session.
pub(super) fn playing() -> (Rig, Game, Player, SessionId) {
    let mut rig = Rig::new(delivering());
    let game = Game::join(&mut rig, "arena");
    let player = Player::connected(&mut rig, 1);
    let session = rig.session_at(home(1));
    game.hear(&mut rig);
    (rig, game, player, session)
}

/// The same with a player who has not spoken, and may not know yet that it is connected.
pub(super) fn not_heard_yet() -> (Rig, Game, Scribe, SessionId) {
    let mut rig = Rig::new(delivering());
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    let session = rig.session_at(home(1));
    game.hear(&mut rig);
    (rig, game, scribe, session)
}

/// The messages that a game process has got since the last look, of one session.
pub(super) fn messages(game: &Game, rig: &mut Rig) -> Vec<Vec<u8>> {
    let message = |heard| if let Heard::Message(_, _, bytes) = heard { Some(bytes) } else { None };
    game.hear(rig).into_iter().filter_map(message).collect()
}

/// A message that tells where it was cut or mixed up.
pub(in crate::tests) fn long_message(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(31).wrapping_add(seed.into()) as u8).collect()
}

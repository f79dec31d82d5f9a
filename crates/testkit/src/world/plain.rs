//! Another game beside the others, of whose protocol the gateway knows nothing but a token and a
//! number: a plain listener on the same workers, two servers behind it, players, strangers.
//!
//! Strangers send what they have recorded, and what they make up, from addresses of their own. In
//! players' names they send nothing: nothing here is authenticated, so no gateway could tell.

use super::addresses::{game_address, public_address};
use super::plain_game::{Heard, Player, SERVERS};
use super::state::{Outside, World};
use crate::network::Datagram;
use crate::plan::GameLink;
use crate::worker::Arrival;
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_gate::BindId;

impl World {
    /// Players of the plain game do what is due, and strangers too.
    pub(super) fn act_plain(&mut self) {
        let Self { outside, plan, now_ns, .. } = self;
        let Some(mut game) = outside.plain.take() else { return };
        let to = public_address(game.listener, BindId(0));
        for at in 0..game.players.len() {
            if let Some((from, bytes)) = game.next_datagram(at, *now_ns, plan) {
                let datagram = Datagram { from, to, bytes };
                outside.network.send(*now_ns, datagram, &plan.path, &mut game.random);
            }
        }
        let attacks = if *now_ns < plan.lasts_ns { plan.attacks } else { 0 };
        for _ in 0..attacks {
            let datagram = Datagram { from: game.stranger(), to, bytes: game.made_up() };
            outside.network.send(*now_ns, datagram, &plan.attackers_path(), &mut game.random);
        }
        outside.plain = Some(game);
    }

    /// Its servers send everything back to where it came from.
    pub(super) fn run_plain_servers(&mut self) {
        let Self { outside: Outside { plain, judge, udp_link, .. }, workers, .. } = self;
        let Some(game) = plain else { return };
        for server in 0..SERVERS {
            let peer = game_address((game.first + server) as u16, GameLink::Udp);
            while let Some((worker, local, bytes)) = game.mail[server].pop_front() {
                let Some(note) = Heard::read(&bytes) else { continue };
                let is_new = game.numbers.insert((server, worker, local, note.number));
                judge.require(is_new, || format!("{note:?} came twice from {local:?}"));
                judge.require(note.server == server as u8, || format!("{note:?} at {server}"));
                *game.heard.entry(note.life).or_default() += 1;
                let arrival = Arrival { socket: *udp_link, peer, local, bytes };
                workers[worker].inbox.push_back(arrival);
            }
        }
    }

    /// In a fair world all notes have been heard, and have come back.
    pub(super) fn require_that_all_plain_arrived(&mut self) {
        let Outside { plain, judge, .. } = &mut self.outside;
        let Some(game) = plain else { return };
        for player in game.players.iter().filter(|player| player.stays.is_ok()) {
            let up = game.heard.get(&player.life).copied().unwrap_or(0);
            let down = player.echoed.len() as u64;
            judge.require(up >= player.said && down == player.said, || {
                format!("life {}: {} said, {up} heard, {down} back", player.life, player.said)
            });
        }
    }
}

impl Outside {
    /// What a worker sends to a server of the plain game; whether it is one.
    pub(super) fn reach_plain_server(
        &mut self,
        worker: usize,
        number: usize,
        source: LocalIp,
        bytes: &[u8],
    ) -> bool {
        let Some(game) = &mut self.plain else { return false };
        let Some(server) = number.checked_sub(game.first) else { return false };
        game.mail[server].push_back((worker, source, bytes.to_vec()));
        true
    }

    /// What a worker sends to a player of the plain game, or to a stranger.
    pub(super) fn send_to_plain_player(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8]) {
        let Some(game) = &mut self.plain else { return };
        let datagram = Datagram { from, to, bytes: bytes.to_vec() };
        self.network.send_down(self.now_ns, datagram, &game.path, &mut game.random);
    }

    /// A datagram for a player of the plain game; whether it was for one.
    pub(super) fn deliver_to_plain_player(&mut self, datagram: &Datagram) -> bool {
        let Some(game) = &mut self.plain else { return false };
        let is_here = |player: &&mut Player| player.home == datagram.to;
        let Some(player) = game.players.iter_mut().find(is_here) else { return false };
        let note = Heard::read(&datagram.bytes);
        let is_own = note.is_some_and(|note| note.life == player.life);
        self.judge.require(is_own, || format!("life {} was sent {note:?}", player.life));
        player.echoed.extend(note.map(|note| note.number));
        true
    }
}

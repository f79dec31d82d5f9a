//! Another game beside the others, of whose protocol the gateway knows nothing but a token and a
//! number: a plain listener on the same workers, two servers behind it, players, strangers.
//!
//! Strangers send what they have recorded, and what they make up, from addresses of their own. In
//! players' names they send nothing: nothing here is authenticated, so no gateway could tell.

use super::addresses::{GAME_USER, NOBODY, game_address, public_address};
use super::plain_game::{BUNDLED, Heard, PlainGame, Player, Seat};
use super::plain_link::answer;
use super::state::{Outside, Role, World};
use crate::judge::Judge;
use crate::network::Datagram;
use crate::plan::GameLink;
use crate::worker::Arrival;
use ringgate_batch::{Endpoint, IoEvent, LocalIp, SendFailure, SocketId};
use ringgate_gate::{BackendId, BindId};

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
        self.run_plain_links();
        let Self { outside: Outside { plain, judge, udp_link, .. }, workers, .. } = self;
        let Some(game) = plain else { return };
        let peer = game_address(game.first as u16, GameLink::Udp);
        while let Some((worker, local, bytes)) = game.mail.pop_front() {
            if game.hear(0, Seat::Loopback(worker, local), &bytes, judge) {
                let arrival = Arrival { socket: *udp_link, peer, local, bytes };
                workers[worker].inbox.push_back(arrival);
            }
        }
    }

    /// The server on bundle links: connects where it has none, reads and answers; it dies and falls
    /// asleep as the other games do.
    fn run_plain_links(&mut self) {
        self.disturb_plain_links();
        let Self { outside, workers, now_ns, .. } = self;
        let Outside { plain, judge, roles, .. } = outside;
        let Some(game) = plain else { return };
        if *now_ns < game.links.dead_until_ns {
            return;
        }
        let is_awake = *now_ns >= game.links.stalled_until_ns;
        for (at, worker) in workers.iter_mut().enumerate() {
            let Some(socket) = game.links.socket(at) else {
                let socket = worker.open_socket();
                roles.insert((at, socket), Role::PlainLink);
                let accepted = IoEvent::Accepted { socket, connection: socket, peer: GAME_USER };
                worker.events.push(accepted);
                worker.inbox.push_back(from_link(socket, game.links.connect(at, socket)));
                continue;
            };
            let said = if is_awake { game.links.read(at, judge) } else { Vec::new() };
            for (session, bytes) in said {
                if game.hear(BUNDLED, Seat::Session(session), &bytes, judge) {
                    worker.inbox.push_back(from_link(socket, answer(session, &bytes)));
                }
            }
        }
    }

    fn disturb_plain_links(&mut self) {
        let Self { outside, workers, plan, now_ns, .. } = self;
        let Some(game) = &mut outside.plain else { return };
        if *now_ns >= plan.lasts_ns || *now_ns < game.links.dead_until_ns {
            return;
        }
        if plan.stalls && game.random.chance(5) {
            game.links.stalled_until_ns = *now_ns + game.random.within(10..800) * MS;
        }
        if plan.crashes && game.random.chance(2) {
            let until_ns = *now_ns + game.random.within(5..2500) * MS;
            for (worker, socket) in game.links.die(until_ns) {
                workers[worker].events.push(IoEvent::Closed { socket });
            }
        }
    }

    /// When everybody has left, no server waits for anybody.
    pub(super) fn require_that_no_plain_player_is_left(&mut self) {
        let Outside { plain, judge, .. } = &mut self.outside;
        let Some(game) = plain else { return };
        let guests = game.links.guest_count();
        judge.require(guests == 0, || format!("the plain game waits for {guests}"));
        let players = self.claims.players(BackendId::at(game.first + BUNDLED));
        judge.require(players == 0, || format!("{players} slots taken at the plain game"));
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
        if number != game.first {
            return false;
        }
        game.mail.push_back((worker, source, bytes.to_vec()));
        true
    }

    /// What a worker sends to the server that is on bundle links.
    pub(super) fn fill_plain_link(
        &mut self,
        worker: usize,
        socket: SocketId,
        bytes: &[u8],
    ) -> Result<(), SendFailure> {
        let game = self.plain.as_mut().ok_or(SendFailure::Gone)?;
        game.links.fill(worker, socket, bytes, self.link_max)
    }

    /// A worker has closed a link of it.
    pub(super) fn lose_plain_link(&mut self, worker: usize, socket: SocketId) {
        if let Some(game) = &mut self.plain {
            game.links.lose(worker, socket);
        }
    }

    /// What a worker sends to a player of the plain game, or to a stranger.
    pub(super) fn send_to_plain_player(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8]) {
        let Some(game) = &mut self.plain else { return };
        let datagram = Datagram { from, to, bytes: bytes.to_vec() };
        self.network.send(self.now_ns, datagram, &game.path, &mut game.random);
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

impl PlainGame {
    /// A server hears something. Returns whether it is a player's.
    fn hear(&mut self, server: usize, seat: Seat, bytes: &[u8], judge: &mut Judge) -> bool {
        let Some(note) = Heard::read(bytes) else { return false };
        let is_new = self.numbers.insert((seat, note.number));
        judge.require(is_new, || format!("{note:?} came twice from {seat:?}"));
        judge.require(note.server == server as u8, || format!("{note:?} at {server}"));
        *self.heard.entry(note.life).or_default() += 1;
        self.bundled += u64::from(server == BUNDLED);
        true
    }
}

fn from_link(socket: SocketId, bytes: Vec<u8>) -> Arrival {
    Arrival { socket, peer: NOBODY, local: LocalIp::UNSPECIFIED, bytes }
}

const MS: u64 = 1_000_000;

//! The gateway's half of a step: workers take their turns, what leaves them goes where it belongs,
//! game processes live and die.

use super::addresses::{FIRST_GAME_PORT, GAME_USER, NOBODY, game_address};
use super::state::{Outside, Role, World};
use crate::game::Guest;
use crate::memory::Wire;
use crate::network::{Datagram, Faults};
use crate::plan::GameLink;
use crate::worker::{Arrival, SocketIds, Worker};
use ringgate_batch::{Endpoint, IoEvent, Port, SendFailure, SocketId, TxTarget};
use ringgate_gate::{BindId, ListenerId, Now};
use std::collections::VecDeque;
use std::io;

impl World {
    /// Turns of one worker, until it has seen everything that has arrived for it. None while it
    /// waits for more.
    pub(super) fn run_worker(&mut self, at: usize) {
        let now = self.gate_now();
        if self.workers[at].is_gathering(now.mono_ns) {
            if self.workers[at].is_answered() {
                self.workers[at].deliver_answers();
                self.turn_worker(at, now);
                self.workers[at].gather(now.mono_ns);
            }
            return;
        }
        self.take_refusals(at);
        loop {
            self.workers[at].deliver();
            self.turn_worker(at, now);
            if self.workers[at].inbox.is_empty() {
                return self.workers[at].gather(now.mono_ns);
            }
        }
    }

    /// A turn of one worker over what was delivered to it.
    fn turn_worker(&mut self, at: usize, now: Now) {
        let Self { workers, outside, .. } = self;
        let Worker { host, sockets, inbox, .. } = &mut workers[at];
        host.turn(now, &mut Sockets { worker: at, outside, ids: sockets, inbox });
        let balance = host.gate().counters().check_conservation();
        outside.judge.require(balance.is_ok(), || format!("worker {at}: {balance:?}"));
        self.carry_mail(at);
    }

    fn take_refusals(&mut self, at: usize) {
        let mine = self.outside.refusals.extract_if(.., |(worker, _)| *worker == at);
        self.workers[at].events.extend(mine.map(|(_, event)| event));
    }

    fn carry_mail(&mut self, at: usize) {
        for (to, mail) in self.workers[at].host.take_written() {
            if let Err(refused) = self.workers[to.index()].post(mail) {
                self.workers[at].host.gate_mut().mail_refused(&refused);
            }
        }
    }

    /// Game processes read and answer; some die, some stop reading, some come back.
    pub(super) fn run_games(&mut self) {
        // What is under way from a player who is thrown out is lost, which would be unfair.
        let may_kick = !self.plan.is_fair();
        for at in 0..self.outside.games.len() {
            self.disturb_game(at);
            let game = &mut self.outside.games[at];
            if !game.is_alive(self.now_ns) {
                continue;
            }
            if self.outside.links[at] == GameLink::Bundle {
                self.connect_links(at);
            }
            let Self { outside, workers, random, now_ns, .. } = self;
            let game = &mut outside.games[at];
            if *now_ns < game.stalled_until_ns {
                continue;
            }
            let mut answers = game.read(&mut outside.judge, random);
            if random.chance(30) {
                answers.extend(game.act(may_kick, &mut outside.judge, random));
            }
            for answer in answers {
                outside.answer(at as u16, answer, workers);
            }
        }
    }

    fn disturb_game(&mut self, at: usize) {
        let is_over = self.now_ns >= self.plan.lasts_ns;
        let game = &mut self.outside.games[at];
        if is_over || !game.is_alive(self.now_ns) {
            return;
        }
        if self.plan.stalls && self.random.chance(5) {
            game.stalled_until_ns = self.now_ns + self.random.within(10..800) * MS;
        }
        if self.plan.crashes && self.random.chance(2) {
            let until_ns = self.now_ns + self.random.within(5..2500) * MS;
            for life in game.lives(None) {
                self.outside.judge.end_down(life);
                self.outside.judge.doubt_up(life);
            }
            for (worker, socket) in game.die(until_ns) {
                self.outside.links_lost += 1;
                self.workers[worker].events.push(IoEvent::Closed { socket });
            }
        }
    }

    /// A process on bundle links connects to every worker that it has no link to.
    fn connect_links(&mut self, at: usize) {
        for worker in 0..self.workers.len() {
            if self.outside.games[at].links[worker].is_some() {
                continue;
            }
            let socket = self.workers[worker].open_socket();
            self.outside.roles.insert((worker, socket), Role::Link { game: at as u16 });
            let accepted = IoEvent::Accepted { socket, connection: socket, peer: GAME_USER };
            self.workers[worker].events.push(accepted);
            let bytes = self.outside.games[at].connect(worker, socket);
            let (peer, local) = (NOBODY, ringgate_batch::LocalIp::UNSPECIFIED);
            self.workers[worker].inbox.push_back(Arrival { socket, peer, local, bytes });
        }
    }

    /// The gateway's host was suspended, or its clock was set.
    pub(super) fn jump(&mut self) {
        if !self.plan.jumps || self.now_ns >= self.plan.lasts_ns || !self.random.chance(2) {
            return;
        }
        if self.random.chance(500) {
            self.gateway_ahead.mono_ns += self.random.within(1..20_000) * MS;
        } else {
            self.gateway_ahead.unix_s = self.random.within(0..40) as i64 - 20;
        }
    }
}

/// The sockets of one worker, in a turn.
struct Sockets<'a> {
    worker: usize,
    outside: &'a mut Outside,
    ids: &'a mut SocketIds,
    inbox: &'a mut VecDeque<Arrival>,
}

impl Wire for Sockets<'_> {
    fn carry(&mut self, target: &TxTarget, bytes: &[u8]) -> Result<(), SendFailure> {
        self.outside.carry(self.worker, target, bytes)
    }

    fn open(&mut self, port: &Port<'_>) -> io::Result<SocketId> {
        let Port::Session { address } = port else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let (socket, game) = (self.ids.take(), address.port() - FIRST_GAME_PORT);
        self.outside.roles.insert((self.worker, socket), Role::Session { game });
        Ok(socket)
    }

    fn close(&mut self, socket: SocketId) {
        let role = self.outside.roles.remove(&(self.worker, socket));
        self.ids.give(socket);
        self.inbox.retain(|arrival| arrival.socket != socket);
        if let Some(Role::Link { game }) = role {
            self.outside.lose_link(self.worker, game, socket);
        }
    }

    // Games here do not say more than a turn takes, so what they say may as well come.
    fn hold(&mut self, _socket: SocketId, _is_held: bool) {}
}

impl Outside {
    /// The gateway has closed a link.
    fn lose_link(&mut self, worker: usize, game: u16, socket: SocketId) {
        let Self { games, judge, links_lost, .. } = self;
        let game = &mut games[usize::from(game)];
        if game.links[worker].as_ref().is_some_and(|link| link.socket == socket) {
            for life in game.lives(Some(worker)) {
                judge.end_down(life);
                judge.doubt_up(life);
            }
            *links_lost += 1;
            game.lose_link(worker, socket);
        }
    }

    /// A datagram leaves a worker through one of its sockets.
    fn carry(&mut self, worker: usize, target: &TxTarget, bytes: &[u8]) -> Result<(), SendFailure> {
        let Some(&role) = self.roles.get(&(worker, target.socket)) else {
            return Err(SendFailure::Gone);
        };
        match (role, target.peer) {
            (Role::Player { listener, bind }, Some(to)) => {
                self.send_down((listener, bind), to, bytes);
                Ok(())
            }
            (Role::Link { game }, None) => self.fill_link(worker, game, target.socket, bytes),
            (Role::Session { game }, None) => {
                let (address, guest) =
                    (game_address(game, GameLink::UdpRemote), Guest::Socket(worker, target.socket));
                self.reach_game(worker, game, address, target.socket, guest, bytes);
                Ok(())
            }
            (Role::UdpLink, Some(to)) => {
                let game = to.port() - FIRST_GAME_PORT;
                if self.reach_plain_server(worker, game.into(), target.source, bytes) {
                    return Ok(());
                }
                if let Some(server) = usize::from(game).checked_sub(self.games.len()) {
                    self.reach_server(worker, server, to, target.socket, target.source, bytes);
                    return Ok(());
                }
                let guest = Guest::Loopback(worker, target.source);
                self.reach_game(worker, game, to, target.socket, guest, bytes);
                Ok(())
            }
            _ => {
                self.judge.require(false, || format!("{role:?} cannot send to {target:?}"));
                Err(SendFailure::Refused)
            }
        }
    }

    fn send_down(&mut self, via: (ListenerId, BindId), to: Endpoint, bytes: &[u8]) {
        let public = self.public.iter().find(|(_, binding)| **binding == via);
        let Some((&from, _)) = public else { return };
        if self.unreal_listener == Some(via.0) {
            return self.send_to_unreal_player(from, to, bytes);
        }
        if self.plain_listener == Some(via.0) {
            self.send_to_plain_player(from, to, bytes);
            return;
        }
        self.judge.watch(to, bytes);
        self.tap(from, to, bytes);
        let good = Faults::none();
        let path = self.homes.get(&to).map_or(&good, |home| &home.path);
        let datagram = Datagram { from, to, bytes: bytes.to_vec() };
        self.network.send_down(self.now_ns, datagram, path, &mut self.random);
    }

    fn fill_link(
        &mut self,
        worker: usize,
        game: u16,
        socket: SocketId,
        bytes: &[u8],
    ) -> Result<(), SendFailure> {
        let link = self.games[usize::from(game)].links[worker].as_mut();
        let Some(link) = link.filter(|link| link.socket == socket) else {
            return Err(SendFailure::Gone);
        };
        if link.unread.len() >= self.link_max {
            return Err(SendFailure::Full);
        }
        link.unread.push_back(bytes.to_vec());
        Ok(())
    }

    /// On a udp link everything can be sent; when nobody listens, the kernel says so afterwards.
    fn reach_game(
        &mut self,
        worker: usize,
        game: u16,
        address: Endpoint,
        socket: SocketId,
        guest: Guest,
        bytes: &[u8],
    ) {
        let now_ns = self.now_ns;
        let game = &mut self.games[usize::from(game)];
        if !game.is_alive(now_ns) {
            let event = IoEvent::Unreachable { socket, peer: address };
            if !self.refusals.contains(&(worker, event)) {
                self.refusals.push((worker, event));
            }
        } else if !bytes.is_empty() {
            game.mail.push_back((guest, bytes.to_vec()));
        }
    }
}

const MS: u64 = 1_000_000;

//! The Unreal game beside the others: a listener of its own on the same workers, its servers, its
//! players, its attackers.
//!
//! Attackers here are on the path but make no packets of their own for players' addresses:
//! nothing in these games' packets is authenticated, so an attacker who sees them can also forge
//! them, and no gateway can tell. They send again what they saw, from where it came from and from
//! elsewhere, and what attackers without a recording can make up.

use super::addresses::{game_address, public_address};
use super::state::{Outside, S, World};
use super::unreal_setup::{framing, profile};
use crate::network::{Datagram, Faults};
use crate::note::Note;
use crate::plan::{GameLink, Plan};
use crate::random::Random;
use crate::unreal_player::{GET_IN_NS, PORTS, UnrealMatch, UnrealMove};
use crate::worker::Arrival;
use ringgate_batch::{Endpoint, IoEvent, LocalIp, SocketId};
use ringgate_bots::unreal::peer::Fields;
use ringgate_core::proto::unreal::PacketSeq;
use ringgate_core::proto::unreal::bits::BitWriter;
use ringgate_core::proto::unreal::handshake::{Body, Handshake, TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::prefix::Ids;
use ringgate_gate::BindId;

impl World {
    /// An Unreal player does whatever is due.
    pub(super) fn act_unreal(&mut self, at: usize) {
        let Self { unreal_players, outside, plan, now_ns, unreal_random, .. } = self;
        let player = &mut unreal_players[at];
        let game = match &mut player.game {
            Err(begins_ns) if *now_ns >= *begins_ns && *now_ns < plan.lasts_ns => {
                return self.begin_match(at);
            }
            Err(_) => return,
            Ok(game) => game,
        };
        let Some(listener) = outside.unreal_listener else { return };
        let server = public_address(listener, BindId(u16::from(!player.ip.is_v4())));
        while let Some(next) = game.next_move(*now_ns, &plan.habits, unreal_random) {
            match next {
                UnrealMove::Send(bytes) => {
                    let (home, path) = (game.home, &player.path);
                    outside.unreal_tape.push(Datagram {
                        from: home,
                        to: server,
                        bytes: bytes.clone(),
                    });
                    let datagram = Datagram { from: home, to: server, bytes };
                    outside.network.send(*now_ns, datagram, path, &mut outside.random);
                }
                UnrealMove::Port => {
                    game.home = game.home.with_port(unreal_random.within(PORTS) as u16);
                    outside.move_unreal_player_in(at, game.home, &player.path);
                }
                UnrealMove::End => return self.end_match(at),
            }
        }
    }

    fn begin_match(&mut self, at: usize) {
        let Self { unreal_players, outside, plan, now_ns, unreal_random, .. } = self;
        let player = &mut unreal_players[at];
        let keeps_port =
            player.matches > 0 && unreal_random.chance(plan.habits.same_port_per_mille);
        if !keeps_port {
            player.home = player.ip.with_port(unreal_random.within(PORTS) as u16);
        }
        player.matches = player.matches.wrapping_add(1);
        let number = outside.unreal_judge.add_match();
        let profile = profile(plan, player.matches);
        let patience_ns = plan.timeout_s as u64 * S + 2 * S;
        let game = UnrealMatch::begin(
            number,
            &profile,
            player.home,
            *now_ns,
            patience_ns,
            &plan.habits,
            unreal_random,
        );
        outside.move_unreal_player_in(at, player.home, &player.path);
        player.game = Ok(Box::new(game));
    }

    fn end_match(&mut self, at: usize) {
        let Self { unreal_players, outside, plan, now_ns, unreal_random, .. } = self;
        let player = &mut unreal_players[at];
        let begins_ns = *now_ns + unreal_random.within(plan.habits.away_ns.clone());
        let Ok(game) = std::mem::replace(&mut player.game, Err(begins_ns)) else { return };
        player.home = game.home;
        let waited_ns = *now_ns - game.since_ns;
        let may_fail = !plan.is_fair() || waited_ns <= GET_IN_NS;
        outside.judge.require(game.was_in || may_fail, || {
            format!("match {} did not begin within {waited_ns} ns", game.number)
        });
    }

    /// A datagram for an Unreal player; whether it was for one.
    pub(super) fn deliver_to_unreal_player(&mut self, datagram: &Datagram) -> bool {
        let Some((at, _)) = self.outside.unreal_homes.get(&datagram.to) else { return false };
        let Ok(game) = &mut self.unreal_players[*at].game else { return true };
        if game.home != datagram.to {
            return true;
        }
        let judge = &mut self.outside.judge;
        if let Some(bytes) = game.take(self.now_ns, &datagram.bytes) {
            let note = Note::read(&bytes);
            let is_own = note.is_some_and(|note| note.life == game.number);
            let is_new = note.is_some_and(|note| game.heard.insert(note.number));
            judge.require(is_own && is_new, || format!("match {} heard {note:?}", game.number));
        }
        true
    }

    /// Attackers send what they have recorded and what they make up.
    pub(super) fn attack_unreal(&mut self) {
        let Self { outside, plan, now_ns, unreal_random, unreal_tape, .. } = self;
        for datagram in outside.unreal_tape.drain(..) {
            if unreal_tape.len() < TAPE_MAX {
                unreal_tape.push(datagram);
            } else if unreal_random.chance(50) {
                unreal_tape[unreal_random.within(0..TAPE_MAX as u64) as usize] = datagram;
            }
        }
        let attacks = if *now_ns < plan.lasts_ns { plan.attacks } else { 0 };
        let path = plan.attackers_path();
        for _ in 0..attacks {
            let Some(Datagram { from, to, bytes }) = unreal_random.pick(unreal_tape) else {
                return;
            };
            let (from, to, bytes) = (*from, *to, bytes.clone());
            let stranger = stranger(unreal_random);
            let datagram = match unreal_random.within(0..5) {
                0 => Datagram { from, to, bytes },
                1 => Datagram { from: from.with_port(unreal_random.word() as u16), to, bytes },
                2 => Datagram { from: stranger, to, bytes },
                3 => Datagram { from: stranger, to, bytes: made_up_packet(plan, unreal_random) },
                _ => Datagram { from: stranger, to, bytes: made_up_request(plan, unreal_random) },
            };
            outside.network.send(*now_ns, datagram, &path, &mut outside.random);
        }
    }

    /// Servers read and answer; some die and come back.
    pub(super) fn run_servers(&mut self) {
        let is_over = self.now_ns >= self.plan.lasts_ns;
        for at in 0..self.outside.servers.len() {
            let Self { outside, workers, plan, now_ns, unreal_random, .. } = self;
            let server = &mut outside.servers[at];
            if plan.crashes && !is_over && server.is_alive(*now_ns) && unreal_random.chance(2) {
                server.die(*now_ns, *now_ns + unreal_random.within(5..2500) * MS, unreal_random);
            }
            if !server.is_alive(*now_ns) {
                continue;
            }
            let answers =
                server.read(*now_ns, &mut outside.unreal_judge, &mut outside.judge, unreal_random);
            let peer = game_address((plan.games.len() + at) as u16, GameLink::Udp);
            for (worker, local, bytes) in answers {
                let socket = outside.udp_link;
                workers[worker].inbox.push_back(Arrival { socket, peer, local, bytes });
            }
        }
    }

    /// Nobody outlives the silence of its player.
    pub(super) fn look_at_unreal_silence(&mut self) {
        let now_ns = self.gate_now().mono_ns;
        let timeout_ns = self.plan.timeout_s as u64 * S;
        let slack_ns = self.plan.step_ns + SLACK_NS;
        for worker in &self.workers {
            let gate = worker.host.gate();
            let listeners = &gate.setup().listeners;
            let is_ours =
                |it: &ringgate_gate::SessionInfo| listeners[it.listener].unreal().is_some();
            for session in gate.sessions().filter(is_ours) {
                let is_fresh = session.heard_ns + timeout_ns + slack_ns > now_ns;
                self.outside
                    .judge
                    .require(is_fresh, || format!("outlives its timeout: {session:?} at {now_ns}"));
            }
        }
    }

    /// Everybody says nothing more until then, and leaves.
    pub(super) fn silence_unreal_players(&mut self, until_ns: u64) {
        for player in &mut self.unreal_players {
            if let Ok(game) = &mut player.game {
                game.fall_silent(until_ns);
            }
        }
    }

    /// In a fair world all who play have got in, and hear every note come back.
    pub(super) fn require_that_all_unreal_arrived(&mut self) {
        let Outside { judge, unreal_judge, .. } = &mut self.outside;
        let here = self.unreal_players.iter().filter_map(|player| player.game.as_ref().ok());
        for game in here {
            judge.require(game.was_in, || format!("match {} has not begun", game.number));
            let (said, up) = (game.said, unreal_judge.heard(game.number));
            let down = game.heard.len() as u64;
            judge.require(game.moved || (up == said && down == said), || {
                format!("match {}: {said} notes said, {up} heard, {down} back", game.number)
            });
        }
    }
}

impl Outside {
    fn move_unreal_player_in(&mut self, at: usize, home: Endpoint, path: &Faults) {
        self.unreal_homes.insert(home, (at, path.clone()));
        self.unreal_judge.move_in(home);
    }

    /// What a worker sends to an Unreal server.
    pub(super) fn reach_server(
        &mut self,
        worker: usize,
        at: usize,
        address: Endpoint,
        socket: SocketId,
        source: LocalIp,
        bytes: &[u8],
    ) {
        let server = &mut self.servers[at];
        if server.is_alive(self.now_ns) {
            server.mail.push_back((worker, source, bytes.to_vec()));
            return;
        }
        let event = IoEvent::Unreachable { socket, peer: address };
        if !self.refusals.contains(&(worker, event)) {
            self.refusals.push((worker, event));
        }
    }

    /// What a worker sends to an Unreal player, or to an address that pretends to be one.
    pub(super) fn send_to_unreal_player(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8]) {
        self.unreal_judge.went(to, bytes.len(), &mut self.judge);
        let good = Faults::none();
        let path = self.unreal_homes.get(&to).map_or(&good, |(_, path)| path);
        let datagram = Datagram { from, to, bytes: bytes.to_vec() };
        self.network.send_down(self.now_ns, datagram, path, &mut self.random);
    }
}

/// Something that looks like a packet of the game.
fn made_up_packet(plan: &Plan, random: &mut Random) -> Vec<u8> {
    let mut bytes = [0; 128];
    let mut out = BitWriter::new(&mut bytes);
    let ids = Ids::new(random.word() as u8, random.word() as u8);
    let (sequence, acked) = (PacketSeq::new(random.word()), PacketSeq::new(random.word()));
    Fields { sequence, acked, history: &[u32::MAX] }.write(&framing(plan), ids, &mut out);
    (0..random.within(0..10)).for_each(|_| out.write(random.word(), 64));
    let len = out.finish(2);
    bytes[..len].to_vec()
}

/// An initial connect that asks for nobody.
fn made_up_request(plan: &Plan, random: &mut Random) -> Vec<u8> {
    let mut bytes = [0; 128];
    let profile = profile(plan, random.word() as u8);
    let ids = profile.framing.layout.ids(0, profile.client_id);
    let body = Body::Initial { is_restart: random.chance(300) };
    let tail = Tail::draw(&random.bytes::<{ TAIL_BYTES_MAX + 1 }>());
    let len =
        Handshake { ids, base: profile.base, body }.encode(&profile.framing, &tail, &mut bytes);
    bytes[..len].to_vec()
}

fn stranger(random: &mut Random) -> Endpoint {
    let [a, b, c, d] = random.bytes();
    Endpoint::v4([198, 18 + a % 2, b, c], u16::from(d) + 1024)
}

/// Datagrams on the attackers' tape.
const TAPE_MAX: usize = 256;

/// A timer is late by this much at most.
const SLACK_NS: u64 = 100 * MS;

const MS: u64 = 1_000_000;

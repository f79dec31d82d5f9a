//! The Unreal game beside the others: a listener of its own on the same workers, its servers, its
//! players, its attackers.
//!
//! Attackers here are on the path but make no packets of their own for addresses where somebody
//! plays: nothing in these games' packets is authenticated, so whoever sees them can also forge
//! them, and no gateway can tell. They send again what they saw, from where it came from and from
//! elsewhere, and what strangers can make up.

use super::{Arrival, Outside, S, World};
use crate::arena::Server;
use crate::network::{Datagram, Faults};
use crate::note::Note;
use crate::plan::{GameLink, Plan};
use crate::random::Random;
use crate::shooter::{GET_IN_NS, Match, Move, PORTS, Shooter};
use crate::world::births::public_address;
use crate::world::gateway::game_address;
use ringgate_batch::{Endpoint, IoEvent, LocalIp, SocketId};
use ringgate_core::proto::unreal::PacketSeq;
use ringgate_core::proto::unreal::bits::BitWriter;
use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::handshake::{Base, Body, Handshake, TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::notify::Fields;
use ringgate_core::proto::unreal::prefix::{Framing, Ids, Magic};
use ringgate_gate::{Backend, Duplicates, Limits, LinkKind, Listener, Protocol, Route, Unreal};

/// The number of the Unreal listener, where there is one: the last.
pub(super) fn unreal_listener(plan: &Plan) -> Option<u16> {
    (plan.shooters > 0).then_some(plan.listeners as u16)
}

/// The listener and its backends, which come after all others.
pub(super) fn listener(plan: &Plan) -> Option<Listener> {
    let number = unreal_listener(plan)?;
    let first = plan.games.len() as u16;
    Some(Listener {
        name: format!("listener-{number}"),
        protocol: Protocol::Unreal(Unreal {
            framing: framing(plan),
            learns_base: true,
            versions: 3..=4,
            network_versions: None,
            duplicates: Duplicates::Notify,
            gap_limit: 0,
            idle_timeout_ns: plan.timeout_s as u64 * S,
        }),
        public: Vec::new(),
        backends: (first..first + plan.servers_started() as u16).collect(),
        route: if plan.servers > 1 { Route::LeastPlayers } else { Route::Single },
        sessions_max: SESSIONS_MAX,
        follow_port_switch: true,
        limits: Limits::UNREAL,
    })
}

/// The servers as the gateway is told of them.
pub(super) fn backends(plan: &Plan) -> impl Iterator<Item = Backend> + '_ {
    let first = plan.games.len() as u16;
    (first..first + plan.servers_started() as u16).map(|number| Backend {
        name: format!("server-{number}"),
        link: LinkKind::Udp { address: game_address(number, GameLink::Udp).into() },
        slots: SESSIONS_MAX,
        grace_ns: S,
        retired: false,
    })
}

/// The servers themselves.
pub(super) fn servers(plan: &Plan, random: &mut Random) -> Vec<Server> {
    let timeout_ns = plan.timeout_s as u64 * S;
    (0..plan.servers_started())
        .map(|_| Server::new(profile(plan, 0), timeout_ns, 0, random))
        .collect()
}

/// The players, who are all away yet.
pub(super) fn shooters(plan: &Plan, random: &mut Random) -> Vec<Shooter> {
    let shooter = |number: usize| {
        let [_, .., high, low] = number.to_be_bytes();
        let ip = if random.chance(plan.habits.v6_per_mille) {
            Endpoint::v6([0x20, 1, high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], 0, 0)
        } else {
            Endpoint::v4([10, 200 + high, low, 9], 0)
        };
        let begins_ns = random.within(0..plan.habits.away_ns.end);
        Shooter { ip, path: plan.path.clone(), game: Err(begins_ns), matches: 0, home: ip }
    };
    (0..plan.shooters).map(shooter).collect()
}

/// How much longer than others sessions of a server that has died can stay: until the gateway gives
/// up asking it.
pub(super) const fn patience_ns(plan: &Plan) -> u64 {
    if plan.shooters > 0 && plan.crashes { 10 * S } else { 0 }
}

impl World {
    /// An Unreal player does whatever is due.
    pub(super) fn shoot(&mut self, at: usize) {
        let Self { shooters, outside, plan, now_ns, shooting, .. } = self;
        let shooter = &mut shooters[at];
        let game = match &mut shooter.game {
            Err(begins_ns) if *now_ns >= *begins_ns && *now_ns < plan.lasts_ns => {
                return self.begin_match(at);
            }
            Err(_) => return,
            Ok(game) => game,
        };
        let Some(listener) = outside.unreal_listener else { return };
        let server = public_address(listener, u16::from(!shooter.ip.is_v4()));
        while let Some(next) = game.next_move(*now_ns, &plan.habits, shooting) {
            match next {
                Move::Send(bytes) => {
                    let (home, path) = (game.home, &shooter.path);
                    outside.shot_tape.push(Datagram {
                        from: home,
                        to: server,
                        bytes: bytes.clone(),
                    });
                    let datagram = Datagram { from: home, to: server, bytes };
                    outside.network.send(*now_ns, datagram, path, &mut outside.random);
                }
                Move::Port => {
                    game.home = game.home.with_port(shooting.within(PORTS) as u16);
                    outside.move_shooter_in(at, game.home, &shooter.path);
                }
                Move::End => return self.end_match(at),
            }
        }
    }

    fn begin_match(&mut self, at: usize) {
        let Self { shooters, outside, plan, now_ns, shooting, .. } = self;
        let shooter = &mut shooters[at];
        let keeps_port = shooter.matches > 0 && shooting.chance(plan.habits.same_port_per_mille);
        if !keeps_port {
            shooter.home = shooter.ip.with_port(shooting.within(PORTS) as u16);
        }
        shooter.matches = shooter.matches.wrapping_add(1);
        let number = outside.referee.add_match();
        let profile = profile(plan, shooter.matches);
        let patience_ns = plan.timeout_s as u64 * S + 2 * S;
        let game = Match::begin(
            number,
            &profile,
            shooter.home,
            *now_ns,
            patience_ns,
            &plan.habits,
            shooting,
        );
        outside.move_shooter_in(at, shooter.home, &shooter.path);
        shooter.game = Ok(Box::new(game));
    }

    fn end_match(&mut self, at: usize) {
        let Self { shooters, outside, plan, now_ns, shooting, .. } = self;
        let shooter = &mut shooters[at];
        let begins_ns = *now_ns + shooting.within(plan.habits.away_ns.clone());
        let Ok(game) = std::mem::replace(&mut shooter.game, Err(begins_ns)) else { return };
        shooter.home = game.home;
        let waited_ns = *now_ns - game.since_ns;
        let may_fail = !plan.is_fair() || waited_ns <= GET_IN_NS;
        outside.judge.require(game.was_in || may_fail, || {
            format!("match {} did not begin within {waited_ns} ns", game.number)
        });
    }

    /// A datagram for an Unreal player; whether it was for one.
    pub(super) fn deliver_to_shooter(&mut self, datagram: &Datagram) -> bool {
        let Some((at, _)) = self.outside.shooter_homes.get(&datagram.to) else { return false };
        let Ok(game) = &mut self.shooters[*at].game else { return true };
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

    /// Attackers do their worst.
    pub(super) fn shoot_at_random(&mut self) {
        let Self { outside, plan, now_ns, shooting, shot_tape, .. } = self;
        for datagram in outside.shot_tape.drain(..) {
            if shot_tape.len() < TAPE_MAX {
                shot_tape.push(datagram);
            } else if shooting.chance(50) {
                shot_tape[shooting.within(0..TAPE_MAX as u64) as usize] = datagram;
            }
        }
        let attacks = if *now_ns < plan.lasts_ns { plan.attacks } else { 0 };
        let path = plan.attackers_path();
        for _ in 0..attacks {
            let Some(Datagram { from, to, bytes }) = shooting.pick(shot_tape) else { return };
            let (from, to, bytes) = (*from, *to, bytes.clone());
            let stranger = stranger(shooting);
            let datagram = match shooting.within(0..5) {
                0 => Datagram { from, to, bytes },
                1 => Datagram { from: from.with_port(shooting.word() as u16), to, bytes },
                2 => Datagram { from: stranger, to, bytes },
                3 => Datagram { from: stranger, to, bytes: made_up_packet(plan, shooting) },
                _ => Datagram { from: stranger, to, bytes: made_up_request(plan, shooting) },
            };
            outside.network.send(*now_ns, datagram, &path, &mut outside.random);
        }
    }

    /// Servers read and answer; some die and come back.
    pub(super) fn run_servers(&mut self) {
        let is_over = self.now_ns >= self.plan.lasts_ns;
        for at in 0..self.outside.servers.len() {
            let Self { outside, workers, plan, now_ns, shooting, .. } = self;
            let server = &mut outside.servers[at];
            if plan.crashes && !is_over && server.is_alive(*now_ns) && shooting.chance(2) {
                server.die(*now_ns, *now_ns + shooting.within(5..2500) * MS, shooting);
            }
            if !server.is_alive(*now_ns) {
                continue;
            }
            let answers = server.read(*now_ns, &mut outside.referee, &mut outside.judge, shooting);
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
            for session in worker.host.gate().unreal_sessions() {
                let is_fresh = session.heard_ns + timeout_ns + slack_ns > now_ns;
                self.outside
                    .judge
                    .require(is_fresh, || format!("outlives its timeout: {session:?} at {now_ns}"));
            }
        }
    }

    /// Everybody says nothing more until then, and leaves.
    pub(super) fn cease_fire(&mut self, until_ns: u64) {
        for shooter in &mut self.shooters {
            if let Ok(game) = &mut shooter.game {
                game.fall_silent(until_ns);
            }
        }
    }

    /// In a fair world all who play have got in, and hear every note come back.
    pub(super) fn require_that_all_shots_arrived(&mut self) {
        let Outside { judge, referee, .. } = &mut self.outside;
        let here = self.shooters.iter().filter_map(|shooter| shooter.game.as_ref().ok());
        for game in here {
            judge.require(game.was_in, || format!("match {} has not begun", game.number));
            let (said, up) = (game.said, referee.heard(game.number));
            let down = game.heard.len() as u64;
            judge.require(game.moved || (up == said && down == said), || {
                format!("match {}: {said} notes said, {up} heard, {down} back", game.number)
            });
        }
    }
}

impl Outside {
    fn move_shooter_in(&mut self, at: usize, home: Endpoint, path: &Faults) {
        self.shooter_homes.insert(home, (at, path.clone()));
        self.referee.move_in(home);
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

    /// What a worker sends to an Unreal player, or to somebody who passes for one.
    pub(super) fn send_to_shooter(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8]) {
        self.referee.went(to, bytes.len(), &mut self.judge);
        let path = self.shooter_homes.get(&to).map_or(&Faults::NONE, |(_, path)| path);
        let datagram = Datagram { from, to, bytes: bytes.to_vec() };
        self.network.send(self.now_ns, datagram, path, &mut self.random);
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

fn framing(plan: &Plan) -> Framing {
    let magic = if plan.seed.is_multiple_of(2) { "" } else { "1101" };
    Framing { magic: Magic::from_text(magic).unwrap_or_default(), ..Framing::default() }
}

fn profile(plan: &Plan, client_id: u8) -> Profile {
    let base = Base { version_min: 3, version: 4, network_version: 7, ..Base::default() };
    Profile { framing: framing(plan), client_id, base }
}

/// Room for everybody, and for those whose silence was not noticed yet.
const SESSIONS_MAX: u32 = 1000;

/// Datagrams on the attackers' tape.
const TAPE_MAX: usize = 256;

/// A timer is late by this much at most.
const SLACK_NS: u64 = 100 * MS;

const MS: u64 = 1_000_000;

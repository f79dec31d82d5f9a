//! How a world is made, and how a player begins and ends a life in it.

use std::sync::Arc;

use super::gateway::{game_address, player_sockets};
use super::{Ahead, Outside, Role, S, UNIX_START_S, World, unreal};
use crate::arena::Referee;
use crate::attacker::Attacker;
use crate::game::Game;
use crate::judge::Judge;
use crate::netcode::Cipher;
use crate::network::{Faults, Network};
use crate::plan::{GameLink, Plan};
use crate::player::{Last, Life, Player, Whereabouts};
use crate::random::Random;
use crate::worker::Worker;
use ringgate_batch::Endpoint;
use ringgate_core::crypto::Aead;
use ringgate_core::netcode::{
    ConnectToken, ServerAddresses, TokenSecrets, TokenSpec, mint_with, user_data,
};
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::replay::Policy;
use ringgate_core::secret::Key;
use ringgate_gate::{
    Allowed, Backend, Claims, Credentials, Gate, Limits, LinkKind, Listener, Netcode, Protocol,
    Seed, Setup, WorkerIndex,
};

/// What all tokens and packets of a simulated world are bound to.
pub(super) const PROTOCOL: u64 = 0x7369_6d75_6c61_7465;

/// Who game processes run as.
pub(super) const GAME_USER: Credentials = Credentials { uid: 7, gid: 7 };

impl World {
    /// A world at its beginning.
    pub fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let mut shooting = Random::new(plan.seed ^ 0x7567);
        let setup = Arc::new(setup(&plan));
        let slots = setup.backend_slots();
        let (listeners, limits) = (setup.listeners.len(), setup.claim_limits());
        let claims = Arc::new(Claims::with_key(listeners, &slots, limits, [plan.seed, 1]));
        let mut outside = Outside::new(&plan, &setup, &mut random);
        outside.servers = unreal::servers(&plan, &mut shooting);
        let mut world = Self {
            now_ns: 0,
            gateway_ahead: Ahead::default(),
            workers: Vec::new(),
            players: Vec::new(),
            cipher: Cipher::new(PROTOCOL),
            attacker: Attacker::new(PROTOCOL),
            looked_ns: 0,
            shooters: unreal::shooters(&plan, &mut shooting),
            shooting,
            shot_tape: Vec::new(),
            claims,
            outside,
            random,
            plan,
        };
        for index in 0..world.plan.workers {
            world.add_worker(index, &setup);
        }
        for number in 0..world.plan.players as u64 {
            world.add_player(number);
        }
        world
    }

    fn add_worker(&mut self, index: u16, setup: &Arc<Setup>) {
        let random = &mut self.random;
        let seed = Seed {
            challenge_key: Key::from_bytes(random.bytes()),
            random: std::array::from_fn(|_| random.word()),
        };
        let place = WorkerIndex { index, count: self.plan.workers };
        let claims = Arc::clone(&self.claims);
        let now = self.gate_now();
        let gate = Gate::new(Arc::clone(setup), place, claims, Aead::detect(), seed, now);
        let mut worker = Worker::new(gate, self.plan.mailbox_max);
        let at = usize::from(index);
        for (listener, bind) in player_sockets(&self.plan) {
            let socket = worker.open_socket();
            worker.host.gate_mut().bind_player_socket(socket, listener, bind);
            self.outside.roles.insert((at, socket), Role::Player { listener, bind });
            self.outside.player_sockets.insert((listener, bind), socket);
        }
        let udp_link = worker.open_socket();
        worker.host.gate_mut().bind_udp_link(udp_link);
        self.outside.roles.insert((at, udp_link), Role::UdpLink);
        self.outside.udp_link = udp_link;
        let link_listener = worker.open_socket();
        worker.host.gate_mut().bind_link_listener(link_listener);
        self.outside.roles.insert((at, link_listener), Role::LinkListener);
        self.workers.push(worker);
    }

    fn add_player(&mut self, number: u64) {
        let Self { random, plan, players, .. } = self;
        let neighbour = players.last().filter(|_| random.chance(plan.habits.household_per_mille));
        let ip = match neighbour {
            Some(neighbour) => neighbour.ip,
            None if random.chance(plan.habits.v6_per_mille) => {
                let n = number.to_be_bytes();
                Endpoint::v6([0x20, 1, n[5], n[6], n[7], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7], 0, 0)
            }
            None => Endpoint::v4([10, (number >> 8) as u8, number as u8, 7], 0),
        };
        let path = if random.chance(plan.bad_paths_per_mille) {
            Faults {
                loss_per_mille: random.within(100..500) as u32,
                duplicate_per_mille: random.within(0..300) as u32,
                delay_ns: plan.path.delay_ns.clone(),
            }
        } else {
            plan.path.clone()
        };
        let arrives_ns = random.within(0..plan.habits.away_ns.end);
        players.push(Player {
            client_id: 1000 + number,
            ip,
            path,
            whereabouts: Whereabouts::Away(arrives_ns),
            spoke_ns: 0,
            left_properly: true,
            last: None,
        });
    }

    /// A player comes, with a new token or with the one it had.
    pub(super) fn be_born(&mut self, at: usize) {
        let habits = self.plan.habits.clone();
        let player = &self.players[at];
        let reused = player.last.clone().filter(|_| self.random.chance(habits.reuse_per_mille));
        let listener = self.random.within(0..self.plan.listeners as u64) as u16;
        let last = match reused {
            Some(last) => Last { uses: last.uses + 1, ..last },
            None => {
                let connect_token = self.mint(self.players[at].client_id, at, listener);
                let token = self.outside.judge.add_token(connect_token.server_to_client.clone());
                Last { token, connect_token, home: self.new_home(at, &habits), uses: 1 }
            }
        };
        let server = last.connect_token.addresses[0].into();
        let player = &mut self.players[at];
        let number = self.outside.judge.add_life(player.client_id, last.token, last.home);
        self.outside.move_in(at, last.home, &player.path);
        let life = Life::begin(number, last, server, self.now_ns, &habits, &mut self.random);
        player.whereabouts = Whereabouts::Here(Box::new(life));
    }

    /// A life is over. Who has left without a word must not come back before the gateway has
    /// noticed, in a fair world.
    pub(super) fn end_life(&mut self, at: usize, properly: bool) {
        let away_ns = self.random.within(self.plan.habits.away_ns.clone());
        let timeout_ns = self.plan.timeout_s as u64 * S + S;
        let player = &mut self.players[at];
        let away = Whereabouts::Away(0);
        let Whereabouts::Here(life) = std::mem::replace(&mut player.whereabouts, away) else {
            return;
        };
        let was_let_in = life.connected_ns.is_some();
        let waited_ns = self.now_ns - life.since_ns;
        let must_get_in = self.plan.is_fair() && waited_ns > GET_IN_NS;
        self.outside.judge.require(was_let_in || !must_get_in, || {
            let state = life.client.state().name();
            format!("life {} ({state}) did not get in within {waited_ns} ns", life.number)
        });
        let patience_ns = if properly || !self.plan.is_fair() { 0 } else { timeout_ns };
        let moved = life.home != life.last.home;
        player.last = (properly && !moved).then_some(life.last);
        player.whereabouts = Whereabouts::Away(self.now_ns + away_ns + patience_ns);
    }

    fn new_home(&mut self, at: usize, habits: &crate::plan::Habits) -> Endpoint {
        let player = &self.players[at];
        match &player.last {
            Some(last) if self.random.chance(habits.same_port_per_mille) => last.home,
            _ => player.ip.with_port(self.random.within(1024..65536) as u16),
        }
    }

    fn mint(&mut self, client_id: u64, at: usize, listener: u16) -> ConnectToken {
        let bind = u16::from(!self.players[at].ip.is_v4());
        let server = public_address(listener, bind).into();
        let servers = ServerAddresses::new(&[server]).expect("a plain address");
        let mut spec = TokenSpec::new(PROTOCOL, client_id, servers);
        spec.timeout_seconds = self.plan.timeout_s;
        spec.lifetime_seconds = Some(10);
        let game = self.random.within(0..self.plan.games.len() as u64) as u16;
        spec.user_data = user_data(game_name(game).as_bytes()).expect("short");
        let random = &mut self.random;
        let secrets = TokenSecrets {
            nonce: random.bytes(),
            client_to_server: Key::from_bytes(random.bytes()),
            server_to_client: Key::from_bytes(random.bytes()),
        };
        let now_s = UNIX_START_S + self.now_ns / S;
        // One service in four still has the key that is being rotated out.
        let key = listener_keys()[usize::from(random.chance(250))].clone();
        mint_with(&spec, &key, now_s, secrets)
    }
}

impl Outside {
    fn new(plan: &Plan, setup: &Setup, random: &mut Random) -> Self {
        let workers = usize::from(plan.workers);
        let games = (0..plan.games.len() as u16).map(|at| Game::new(at, game_name(at), workers));
        let public = player_sockets(plan)
            .map(|(listener, bind)| (public_address(listener, bind), (listener, bind)));
        debug_assert_eq!(setup.backends.len(), plan.games.len() + plan.servers_started());
        Self {
            now_ns: 0,
            network: Network::default(),
            random: Random::new(random.word()),
            judge: Judge::new(PROTOCOL),
            games: games.collect(),
            links: plan.games.iter().map(|game| game.link).collect(),
            link_max: plan.link_max,
            homes: std::collections::HashMap::new(),
            public: public.collect(),
            player_sockets: std::collections::HashMap::new(),
            udp_link: ringgate_batch::SocketId(0),
            roles: std::collections::HashMap::new(),
            refusals: Vec::new(),
            tape: Vec::new(),
            unreal_listener: unreal::unreal_listener(plan),
            servers: Vec::new(),
            referee: Referee::default(),
            shooter_homes: std::collections::HashMap::new(),
            shot_tape: Vec::new(),
        }
    }
}

fn setup(plan: &Plan) -> Setup {
    let backends = plan.games.iter().enumerate().map(|(at, game)| Backend {
        name: game_name(at as u16),
        link: match game.link {
            GameLink::Bundle => {
                LinkKind::Bundle { allow: Allowed { uids: vec![GAME_USER.uid], gids: Vec::new() } }
            }
            link => LinkKind::Udp { address: game_address(at as u16, link).into() },
        },
        slots: game.slots,
        grace_ns: S,
        retired: false,
    });
    let listeners = (0..plan.listeners as u16).map(|at| Listener {
        name: format!("listener-{at}"),
        protocol: Protocol::Netcode(Netcode {
            protocol_id: PROTOCOL,
            keys: listener_keys().to_vec(),
            replay: Policy::NETCODE,
            keep_alive_ns: SEND_INTERVAL_NS,
            token_reuse: plan.token_reuse,
        }),
        public: [0, 1].map(|bind| public_address(at, bind).into()).to_vec(),
        backends: (0..plan.games.len() as u16).collect(),
        route: plan.route,
        sessions_max: plan.sessions_max,
        follow_port_switch: true,
        // Large crowds come faster than one block may, and share their blocks.
        limits: if plan.players > 1000 { Limits::NONE } else { Limits::NETCODE },
    });
    let listeners = listeners.chain(unreal::listener(plan));
    let backends = backends.chain(unreal::backends(plan));
    let mut setup = Setup::new(listeners.collect(), backends.collect(), plan.seed);
    let has_udp = plan.games.iter().any(|game| game.link != GameLink::Bundle);
    if has_udp || plan.shooters > 0 {
        // Loopback addresses rest between two players only while there are fresh ones.
        setup.worker_sessions_max = setup.worker_sessions_max.max(4096);
    }
    setup
}

fn listener_keys() -> [Key; 2] {
    [Key::from_bytes([1; 32]), Key::from_bytes([2; 32])]
}

fn game_name(number: u16) -> String {
    format!("game-{number}")
}

/// A listener has an IPv4 address and an IPv6 one.
pub(super) fn public_address(listener: u16, bind: u16) -> Endpoint {
    let port = 40_000 + listener;
    if bind == 0 {
        return Endpoint::v4([203, 0, 113, 9], port);
    }
    Endpoint::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], 0, port)
}

/// A request, a challenge and a response, each sent again where a slot of 100 ms was missed.
const GET_IN_NS: u64 = S;

//! How a world is made, as its plan says.

use std::sync::Arc;

use super::addresses::{
    GAME_USER, PROTOCOL, game_address, game_name, listener_keys, listener_name, player_sockets,
    public_address,
};
use super::plain_game::{self, PlainGame};
use super::state::{Ahead, Outside, Role, S, World};
use super::turnover::Turnover;
use super::unreal_setup;
use crate::attacker::Attacker;
use crate::game::Game;
use crate::hand_over::HandOver;
use crate::judge::Judge;
use crate::netcode::Cipher;
use crate::network::{Faults, Network};
use crate::plan::{GameLink, Plan, SLOWNESS};
use crate::player::{Player, Whereabouts};
use crate::random::Random;
use crate::unreal_server::UnrealJudge;
use crate::worker::Worker;
use ringgate_batch::Endpoint;
use ringgate_core::crypto::Aead;
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::replay::Policy;
use ringgate_core::secret::Key;
use ringgate_gate::pace::Rules;
use ringgate_gate::{
    Allowed, Backend, BackendId, BindId, Claims, Gate, Limits, LinkKind, Listener, ListenerId,
    Netcode, Phase, Protocol, Seed, Setup, WorkerId, WorkerIndex,
};

impl World {
    /// A world at its beginning.
    pub fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let mut unreal_random = Random::new(plan.seed ^ 0x7567);
        let setup = Arc::new(setup(&plan));
        let slots = setup.backend_slots();
        let (listeners, limits) = (setup.listeners.len(), setup.claim_limits());
        let claims = Arc::new(Claims::with_key(listeners, &slots, limits, [plan.seed, 1]));
        let mut outside = Outside::new(&plan, &setup, &mut random);
        outside.servers = unreal_setup::servers(&plan, &mut unreal_random);
        let mut world = Self {
            now_ns: 0,
            gateway_ahead: Ahead::default(),
            workers: Vec::new(),
            players: Vec::new(),
            cipher: Cipher::new(PROTOCOL),
            attacker: Attacker::new(PROTOCOL),
            looked_ns: 0,
            messages_random: Random::new(plan.seed ^ 0x6c65_7474),
            unreal_players: unreal_setup::unreal_players(&plan, &mut unreal_random),
            unreal_random,
            unreal_tape: Vec::new(),
            turnover: Turnover::new(&setup, plan.seed),
            hand_over: HandOver::new(&plan),
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
        let place = WorkerIndex { id: WorkerId(index), count: self.plan.workers };
        let claims = Arc::clone(&self.claims);
        let now = self.gate_now();
        let gate = Gate::new(Arc::clone(setup), place, claims, Aead::detect(), seed, now);
        let pace = Rules::new(u32::MAX).slowed(SLOWNESS);
        let mut worker = Worker::new(gate, pace, self.plan.mailbox_max, u64::from(index) << 32);
        let at = usize::from(index);
        for (listener, bind) in player_sockets(&self.plan) {
            let socket = worker.open_socket();
            worker.host.gate_mut().bind_player_socket(socket, listener, bind);
            self.outside.roles.insert((at, socket), Role::Player { listener, bind });
            self.outside.player_sockets.insert((at, listener, bind), socket);
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
                ..plan.path.clone()
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
}

impl Outside {
    fn new(plan: &Plan, setup: &Setup, random: &mut Random) -> Self {
        let workers = usize::from(plan.workers);
        let delivering: Vec<_> = (0..plan.listeners as u16)
            .map(ListenerId)
            .filter(|listener| plan.delivers(*listener))
            .map(listener_name)
            .collect();
        let game = |at| {
            let mut game = Game::new(at, game_name(at), workers, plan.seed);
            game.delivering.clone_from(&delivering);
            game.zones = zones(plan).filter(|other| *other != at).map(game_name).collect();
            game
        };
        let games = (0..plan.games.len() as u16).map(game);
        let public = player_sockets(plan)
            .map(|(listener, bind)| (public_address(listener, bind), (listener, bind)));
        let servers = plan.servers_started() + plain_game::servers_started(plan);
        debug_assert_eq!(setup.backends.len(), plan.games.len() + servers);
        Self {
            now_ns: 0,
            network: Network::default(),
            random: Random::new(random.word()),
            judge: Judge::new(PROTOCOL),
            games: games.collect(),
            links: plan.games.iter().map(|game| game.link).collect(),
            link_max: plan.link_max,
            links_lost: 0,
            homes: std::collections::HashMap::new(),
            public: public.collect(),
            player_sockets: std::collections::HashMap::new(),
            udp_link: ringgate_batch::SocketId(0),
            roles: std::collections::HashMap::new(),
            refusals: Vec::new(),
            tape: Vec::new(),
            unreal_listener: unreal_setup::unreal_listener(plan),
            plain_listener: plain_game::plain_listener(plan),
            plain: PlainGame::new(plan),
            servers: Vec::new(),
            unreal_judge: UnrealJudge::default(),
            unreal_homes: std::collections::HashMap::new(),
            unreal_tape: Vec::new(),
        }
    }
}

/// The game processes that players may be moved to.
fn zones(plan: &Plan) -> impl Iterator<Item = u16> + '_ {
    let games = (0..).zip(&plan.games);
    games.filter(|(_, game)| game.link == GameLink::Bundle).map(|(at, _)| at)
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
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    });
    let listeners = (0..plan.listeners as u16).map(|at| Listener {
        name: listener_name(ListenerId(at)),
        protocol: Protocol::Netcode(Netcode {
            protocol_id: PROTOCOL,
            keys: listener_keys().map(Into::into).into(),
            replay: Policy::NETCODE,
            keep_alive_ns: SEND_INTERVAL_NS,
            token_reuse: plan.token_reuse,
            delivers: plan.delivers(ListenerId(at)),
            unique_in: None,
            moves: zones(plan).map(BackendId).collect(),
            replace_after_ns: 2_000_000_000,
        }),
        public: [0, 1].map(|n| public_address(ListenerId(at), BindId(n)).into()).to_vec(),
        backends: plan.games_at(ListenerId(at)).into_iter().map(BackendId).collect(),
        route: plan.route,
        sessions_max: plan.sessions_max,
        follow_port_switch: true,
        // Thousands of players come faster than one block may, and share their blocks.
        limits: if plan.players > 1000 { Limits::NONE } else { Limits::NETCODE },
        phase: Phase::Serving,
    });
    let listeners = listeners.chain(unreal_setup::listener(plan)).chain(plain_game::listener(plan));
    let backends = backends.chain(unreal_setup::backends(plan)).chain(plain_game::backends(plan));
    let mut setup = Setup::new(listeners.collect(), backends.collect(), plan.seed);
    setup.batch_delay = plan.batch_delay;
    let has_udp = plan.games.iter().any(|game| game.link != GameLink::Bundle);
    if has_udp || plan.unreal_players > 0 {
        // Loopback addresses rest between two players only while there are fresh ones.
        setup.worker_sessions_max = setup.worker_sessions_max.max(4096);
    }
    setup
}

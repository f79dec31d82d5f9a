//! A game of whose protocol the gateway knows nothing but a token and a number: its listener, its
//! players, what its servers hear, and what strangers make up.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::addresses::game_address;
use crate::network::Faults;
use crate::plan::{GameLink, Plan};
use crate::random::Random;
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_core::proto::plain::{Field, Order, Width};
use ringgate_core::proto::replay::Policy;
use ringgate_gate::{
    Backend, BackendId, Credit, Limits, LinkKind, Listener, ListenerId, Phase, Plain, Protocol,
    Route, Sequence, Token, TokenPlace,
};

/// Everything about the game that is not the gateway.
pub(super) struct PlainGame {
    pub(super) listener: ListenerId,
    /// The port of its first server, counted from that of the first game.
    pub(super) first: usize,
    pub(super) random: Random,
    pub(super) players: Vec<Player>,
    /// What has come for each server: by worker and address.
    pub(super) mail: [VecDeque<(usize, LocalIp, Vec<u8>)>; SERVERS],
    /// What each server has heard from an address.
    pub(super) numbers: HashSet<(usize, usize, LocalIp, u16)>,
    /// Notes that servers have heard from each life.
    pub(super) heard: HashMap<u32, u64>,
    pub(super) tape: Vec<Vec<u8>>,
    pub(super) lives: u32,
    /// How good the way to everybody is.
    pub(super) path: Faults,
}

pub(super) struct Player {
    pub(super) ip: Endpoint,
    pub(super) home: Endpoint,
    pub(super) life: u32,
    pub(super) server: usize,
    pub(super) number: u16,
    pub(super) said: u64,
    /// The numbers of its own notes that have come back.
    pub(super) echoed: HashSet<u16>,
    pub(super) speaks_ns: u64,
    /// When it leaves, or `Err` of when it comes.
    pub(super) stays: Result<u64, u64>,
}

/// The listener, where there is one: behind all others.
pub(super) fn plain_listener(plan: &Plan) -> Option<ListenerId> {
    let before = plan.listeners + usize::from(plan.unreal_players > 0);
    (plan.plain_players > 0).then(|| ListenerId::at(before))
}

/// How many servers it has.
pub(super) const fn servers_started(plan: &Plan) -> usize {
    if plan.plain_players > 0 { SERVERS } else { 0 }
}

fn first_server(plan: &Plan) -> usize {
    plan.games.len() + plan.servers_started()
}

pub(super) fn listener(plan: &Plan) -> Option<Listener> {
    let number = plain_listener(plan)?;
    let first = first_server(plan);
    let known = (0..SERVERS).map(|server| (token(server), BackendId::at(first + server)));
    let token =
        Token { at: TokenPlace::End, bytes: 4, strip: true, backends: Arc::new(known.collect()) };
    let field = Field { offset: 0, width: Width::Sixteen, order: Order::Little };
    let rules = Plain {
        token: Some(token),
        sequence: Some(Sequence { field, policy: Policy::UNET, both: false }),
        idle_ns: plan.timeout_s as u64 * S,
        // The fastest strangers leave each its place for longer than players pause.
        half_open_max: 1000,
        // Servers send back what they hear, without the token.
        credit: Credit { ratio: 1, burst: 4000, pause_ns: S },
        ..Plain::default()
    };
    Some(Listener {
        name: format!("listener-{}", number.0),
        protocol: Protocol::Plain(rules),
        public: Vec::new(),
        backends: (first..first + SERVERS).map(BackendId::at).collect(),
        route: Route::Token,
        sessions_max: SESSIONS_MAX,
        follow_port_switch: false,
        limits: Limits::NONE,
        phase: Phase::Serving,
    })
}

pub(super) fn backends(plan: &Plan) -> impl Iterator<Item = Backend> + '_ {
    let first = first_server(plan);
    (first..first + servers_started(plan)).map(|number| Backend {
        name: format!("plain-{number}"),
        link: LinkKind::Udp { address: game_address(number as u16, GameLink::Udp).into() },
        slots: SESSIONS_MAX,
        grace_ns: S,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    })
}

impl PlainGame {
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        let listener = plain_listener(plan)?;
        let mut random = Random::new(plan.seed ^ 0x706c_6169);
        let player = |number: usize| {
            let [.., high, low] = number.to_be_bytes();
            let ip = Endpoint::v4([10, 100 + high, low, 9], 0);
            let begins_ns = random.within(0..plan.habits.away_ns.end);
            Player {
                ip,
                home: ip,
                life: 0,
                server: 0,
                number: 0,
                said: 0,
                echoed: HashSet::new(),
                speaks_ns: 0,
                stays: Err(begins_ns),
            }
        };
        let players = (0..plan.plain_players).map(player).collect();
        Some(Self {
            listener,
            first: first_server(plan),
            random,
            players,
            mail: std::array::from_fn(|_| VecDeque::new()),
            numbers: HashSet::new(),
            heard: HashMap::new(),
            tape: Vec::new(),
            lives: 0,
            path: plan.path.clone(),
        })
    }

    /// Notes that servers have heard.
    pub(super) fn heard_in_all(&self) -> u64 {
        self.heard.values().sum()
    }

    /// Everybody says nothing more, and leaves then.
    pub(super) fn fall_silent(&mut self, until_ns: u64) {
        for player in &mut self.players {
            player.speaks_ns = u64::MAX;
            if let Ok(leaves_ns) = &mut player.stays {
                *leaves_ns = until_ns;
            }
        }
    }
}

impl PlainGame {
    /// What a player sends now, if it does.
    pub(super) fn next_datagram(
        &mut self,
        at: usize,
        now_ns: u64,
        plan: &Plan,
    ) -> Option<(Endpoint, Vec<u8>)> {
        let Self { players, random, lives, tape, .. } = self;
        let player = &mut players[at];
        match player.stays {
            Err(begins_ns) if now_ns >= begins_ns && now_ns < plan.lasts_ns => {
                *lives += 1;
                player.life = *lives;
                player.home = player.ip.with_port(random.within(1024..65536) as u16);
                player.server = random.within(0..SERVERS as u64) as usize;
                player.number = random.word() as u16;
                player.said = 0;
                player.echoed.clear();
                player.speaks_ns = now_ns;
                player.stays = Ok(now_ns + random.within(plan.habits.stay_ns.clone()));
            }
            Err(_) => return None,
            Ok(leaves_ns) if now_ns >= leaves_ns => {
                player.stays = Err(now_ns + random.within(plan.habits.away_ns.clone()));
                return None;
            }
            Ok(_) => {}
        }
        if now_ns < player.speaks_ns {
            return None;
        }
        player.speaks_ns = now_ns + random.within(plan.habits.talk_ns.clone());
        player.number = player.number.wrapping_add(1);
        player.said += 1;
        let note = Heard { number: player.number, life: player.life, server: player.server as u8 };
        let bytes = note.write(random.within(0..60) as usize);
        if tape.len() < TAPE_MAX {
            tape.push(bytes.clone());
        }
        Some((player.home, bytes))
    }

    pub(super) fn stranger(&mut self) -> Endpoint {
        let [a, b, c, d] = self.random.bytes();
        Endpoint::v4([198, 18 + a % 2, b, c], u16::from(d) + 1024)
    }

    /// What was recorded, or looks like it, or does not.
    pub(super) fn made_up(&mut self) -> Vec<u8> {
        match self.random.within(0..3) {
            0 => self.random.pick(&self.tape).cloned().unwrap_or_default(),
            1 => self.random.bytes::<12>().to_vec(),
            _ => [&self.random.bytes::<2>()[..], &token(0)].concat(),
        }
    }
}

/// What is in a datagram, as servers get it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) number: u16,
    pub(super) life: u32,
    pub(super) server: u8,
}

impl Heard {
    fn write(self, filler: usize) -> Vec<u8> {
        let mut bytes = self.number.to_le_bytes().to_vec();
        bytes.extend(self.life.to_le_bytes());
        bytes.push(self.server);
        bytes.push(!self.server);
        bytes.resize(bytes.len() + filler, self.server);
        bytes.extend(token(self.server.into()));
        bytes
    }

    /// `None` where it is no player's.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let &[n0, n1, a, b, c, d, server, check, ..] = bytes else { return None };
        let life = u32::from_le_bytes([a, b, c, d]);
        let number = u16::from_le_bytes([n0, n1]);
        (check == !server).then_some(Self { number, life, server })
    }
}

fn token(server: usize) -> [u8; 4] {
    [b't', b'o', b'k', b'0' + server as u8]
}

pub(super) const SERVERS: usize = 2;
const SESSIONS_MAX: u32 = 1000;
const TAPE_MAX: usize = 256;
const S: u64 = 1_000_000_000;

//! A fleet from its first start to its last player's leaving: what happens is drawn from a seed.

#[path = "world/bans.rs"]
mod bans;
#[path = "world/breaking.rs"]
mod breaking;
#[path = "world/ending.rs"]
mod ending;
#[path = "world/moving.rs"]
mod moving;
#[path = "world/playing.rs"]
mod playing;
#[path = "world/serving.rs"]
mod serving;
#[path = "world/troubles.rs"]
mod troubles;

use std::collections::BTreeMap;

use ringgate_batch::Endpoint;
use ringgate_core::secret::Key;
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::values::Stored as _;
use ringgate_testkit::Random;

use crate::STEP_MS;
use crate::bans::Bans;
use crate::breaks::Break;
use crate::etcd::Etcd;
use crate::gateway::Gateway;
use crate::judge::{Judge, Met};
use crate::moves::Moves;
use crate::player::{Doing, Player};
use crate::process::UNIX_START_S;
use crate::server::Server;
use crate::service::{Service, fleet_key};
use crate::udp::UdpServer;

/// A fleet and everything around it.
pub(crate) struct World {
    now_ms: u64,
    weather: Weather,
    random: Random,
    etcd: Etcd,
    services: Vec<Service>,
    gateways: Vec<Gateway>,
    servers: Vec<Server>,
    udp: Vec<UdpServer>,
    players: Vec<Player>,
    /// Datagrams between players and gateways: when they arrive, from, to.
    network: BTreeMap<(u64, u64), (Endpoint, Endpoint, Vec<u8>)>,
    sent: u64,
    /// Which player lives at an address.
    homes: BTreeMap<Endpoint, usize>,
    /// Tokens so far: of whom, and at which server.
    tokens: Vec<(u64, Option<String>)>,
    /// When each was asked for.
    asked_ms: Vec<u64>,
    /// When each gateway, and each server, was last away or out of time.
    gateways_away_ms: Vec<u64>,
    servers_away_ms: Vec<u64>,
    udp_away_ms: Vec<u64>,
    /// When each server was last full.
    servers_full_ms: Vec<u64>,
    /// Who was refused for a server: when that is looked at, the server, and the words for it.
    refused: Vec<(u64, usize, String)>,
    /// When each client was last let in anywhere.
    came_ms: BTreeMap<u64, u64>,
    /// Until when a gateway may know a player of a client who has gone.
    known_ms: BTreeMap<u64, u64>,
    epoch: u32,
    /// A client id may be in one place only.
    is_unique: bool,
    /// Since when everything is well.
    well_since_ms: Option<u64>,
    /// Nobody comes any more.
    is_closing: bool,
    bans: Bans,
    moves: Moves,
    /// When it is looked at whether so many have gone over, by gateway and move.
    said_moved: Vec<(u64, usize, usize, usize)>,
    /// When each token service last reached etcd.
    etcd_seen_ms: Vec<u64>,
    judge: Judge,
    faults: Faults,
    /// A rule that does not hold here.
    broken: Option<Break>,
    /// Questions that were seen in etcd: when first, the key, and what stood there.
    asked_before: Vec<(u64, String, Vec<u8>)>,
}

/// What a world may meet.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// Processes die, end, are replaced and stand still.
    processes: bool,
    /// Members of etcd and ways to them fail.
    etcd: bool,
    /// What stands in etcd is put back to what it was, or gone.
    histories: bool,
}

/// What a world has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    killed: u64,
    left: u64,
    upgraded: u64,
    frozen: u64,
    etcd: u64,
    histories: u64,
    confirmed: u64,
    banned: u64,
}

/// How a world has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) lasted_ms: u64,
    pub(crate) met: Met,
    pub(crate) faults: Faults,
    /// Questions that etcd was asked.
    pub(crate) asked: u64,
}

impl Report {
    /// What is counted, by name.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 20] {
        let Met { tokens, refused, connected, denied, lost, thieves, moved, .. } = self.met;
        let Met { ordered, answered, not_ordered, offered, ordered_moved, .. } = self.met;
        let Faults { killed, left, upgraded, frozen, etcd, histories, confirmed, banned } =
            self.faults;
        [
            ("tokens", tokens),
            ("refused", refused),
            ("connected", connected),
            ("denied", denied),
            ("lost", lost),
            ("thieves", thieves),
            ("moved", moved),
            ("ordered", ordered),
            ("answered", answered),
            ("not ordered", not_ordered),
            ("offered", offered),
            ("ordered and moved", ordered_moved),
            ("killed", killed),
            ("left", left),
            ("upgraded", upgraded),
            ("frozen", frozen),
            ("etcd", etcd),
            ("histories", histories),
            ("confirmed", confirmed),
            ("banned", banned),
        ]
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x666c_6565);
        let kind = seed % 4;
        let weather = Weather {
            processes: kind != 1,
            etcd: kind != 0,
            histories: kind == 2 || seed % 8 == 7,
        };
        let unique = random.chance(700);
        let gateways: Vec<_> = (0..2 + random.within(0..2) as usize)
            .map(|at| Gateway::new(at, at / 2, unique))
            .collect();
        let servers: Vec<_> = (0..gateways.len() * 2)
            .map(|at| Server::new(at, at / 2, 2 + random.within(0..5) as u32))
            .collect();
        let udp: Vec<_> = (0..random.within(0..3) as usize)
            .map(|at| UdpServer::new(at, 0, 2 + random.within(0..5) as u32))
            .collect();
        let services: Vec<_> = (0..random.within(1..4) as usize).map(Service::new).collect();
        let ids = 4 + random.within(0..8);
        let away = |random: &mut Random| Doing::Away { until_ms: 3_000 + random.within(0..5_000) };
        let player = |at: u64, random: &mut Random| Player {
            // Some of them share an id.
            client_id: 100 + at % ids,
            doing: away(random),
        };
        let players = (0..ids + ids / 3).map(|at| player(at, &mut random)).collect();
        Self {
            now_ms: 0,
            weather,
            etcd: Etcd::new(seed),
            etcd_seen_ms: vec![0; services.len()],
            services,
            judge: Judge::new(gateways.len()),
            bans: Bans::default(),
            moves: Moves::default(),
            said_moved: Vec::new(),
            gateways_away_ms: vec![0; gateways.len()],
            servers_away_ms: vec![0; servers.len()],
            udp_away_ms: vec![0; udp.len()],
            servers_full_ms: vec![0; servers.len()],
            refused: Vec::new(),
            gateways,
            servers,
            udp,
            players,
            network: BTreeMap::new(),
            sent: 0,
            homes: BTreeMap::new(),
            tokens: Vec::new(),
            asked_ms: Vec::new(),
            came_ms: BTreeMap::new(),
            known_ms: BTreeMap::new(),
            epoch: 0,
            is_unique: unique,
            well_since_ms: None,
            is_closing: false,
            faults: Faults::default(),
            broken: None,
            asked_before: Vec::new(),
            random,
        }
    }

    /// For so long anything may happen.
    pub(crate) fn storm(&mut self, ms: u64) -> Result<Report, String> {
        self.put_key();
        for _ in 0..ms / STEP_MS {
            self.disturb();
            self.step()?;
        }
        Ok(self.report())
    }

    /// A storm, and what has to hold when it is over.
    pub(crate) fn run(mut self) -> Result<Report, String> {
        self.storm(STORM_MS)?;
        self.heal();
        for _ in 0..CALM_MS / STEP_MS {
            self.repair();
            self.have_somebody_move();
            self.step()?;
        }
        self.require_that_all_is_well();
        self.say_goodbye();
        for _ in 0..SILENCE_MS / STEP_MS {
            self.repair();
            self.step()?;
        }
        self.require_that_nothing_is_left();
        self.verdict()?;
        Ok(self.report())
    }

    fn report(&self) -> Report {
        let asked = self.etcd.lock().asked;
        let Self { now_ms, judge, faults, .. } = self;
        Report { lasted_ms: *now_ms, met: judge.met, faults: *faults, asked }
    }

    fn verdict(&mut self) -> Result<(), String> {
        let absurd = self.etcd.lock().absurd.clone();
        self.judge.require(absurd.is_none(), || format!("etcd was asked for {absurd:?}"));
        self.judge.violation.clone().map_or(Ok(()), Err)
    }

    fn step(&mut self) -> Result<(), String> {
        self.now_ms += STEP_MS;
        let now_ms = self.now_ms;
        self.judge.at(now_ms);
        self.etcd.lock().pass(now_ms);
        self.note_questions();
        self.break_rules();
        self.start_what_is_due();
        for service in &mut self.services {
            service.run(now_ms);
        }
        let answers: Vec<_> = self.services.iter_mut().flat_map(Service::take_answers).collect();
        for answer in answers {
            self.take_answer(answer);
        }
        self.take_move_answers();
        self.deliver();
        for player in 0..self.players.len() {
            self.act(player);
        }
        self.run_servers();
        self.run_udp();
        for at in 0..self.gateways.len() {
            self.gateways[at].run(now_ms);
            self.carry(at);
        }
        self.look();
        self.verdict()
    }

    /// A key for the listener, as an operator makes one.
    fn put_key(&mut self) {
        self.epoch += 1;
        let place = format!("/f/truth/key/eu/{}", self.epoch);
        let now_s = UNIX_START_S + self.now_ms / 1000;
        let validity =
            Validity { from: now_s, mint_until: now_s + 7200, accept_until: now_s + 14_400 };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.random.word().to_le_bytes());
        let sealed = fleet_key().seal(place.as_bytes(), validity, &Key::from_bytes(bytes));
        let value = sealed.expect("random numbers").encode().expect("it can be read again");
        self.etcd.lock().store.put(&place, &value);
    }

    fn start_what_is_due(&mut self) {
        let Self { services, gateways, etcd, random, now_ms, .. } = self;
        let first = gateways.len();
        for (at, service) in services.iter_mut().enumerate() {
            if !service.is_alive() && *now_ms >= service.back_ms {
                service.start(etcd, first + at, *now_ms, random.within(0..1500));
            }
        }
        for gateway in gateways.iter_mut() {
            if !gateway.is_alive() && *now_ms >= gateway.back_ms {
                gateway.start(etcd, *now_ms, random);
            }
        }
    }
}

/// For so long anything may happen, then everything is well, then nobody plays.
const STORM_MS: u64 = 150_000;
const CALM_MS: u64 = 60_000;
/// Leases and members of etcd that are gone take so long to be missed.
const CALM_AFTER_MS: u64 = 25_000;
const SILENCE_MS: u64 = 110_000;

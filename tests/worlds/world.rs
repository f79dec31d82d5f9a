//! A fleet from its first start to its last player's leaving: what happens is drawn from a seed.

use std::collections::BTreeMap;

use ringgate_batch::{Endpoint, LocalIp};
use ringgate_core::netcode::State;
use ringgate_core::secret::Key;
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::values::Stored as _;
use ringgate_testkit::Random;

use crate::STEP_MS;
use crate::etcd::{Etcd, MEMBERS};
use crate::gateway::Gateway;
use crate::judge::{Judge, Met};
use crate::player::{Became, Doing, Play, Player};
use crate::process::UNIX_START_S;
use crate::server::{Heard, Server};
use crate::service::{Answer, Service, fleet_key};
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
    /// When each client was last let in anywhere.
    came_ms: BTreeMap<u64, u64>,
    epoch: u32,
    /// A client id may be in one place only.
    is_unique: bool,
    /// Since when everything is well.
    well_since_ms: Option<u64>,
    /// Nobody comes any more.
    is_closing: bool,
    judge: Judge,
    faults: Faults,
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
        let services = (0..random.within(1..4) as usize).map(Service::new).collect();
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
            services,
            judge: Judge::new(gateways.len()),
            gateways_away_ms: vec![0; gateways.len()],
            servers_away_ms: vec![0; servers.len()],
            udp_away_ms: vec![0; udp.len()],
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
            epoch: 0,
            is_unique: unique,
            well_since_ms: None,
            is_closing: false,
            faults: Faults::default(),
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
        self.start_what_is_due();
        for service in &mut self.services {
            service.run(now_ms);
        }
        let answers: Vec<_> = self.services.iter_mut().flat_map(Service::take_answers).collect();
        for answer in answers {
            self.take_answer(answer);
        }
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

    // What may go wrong.

    fn one_in(&mut self, steps: u64) -> bool {
        self.random.within(0..steps) == 0
    }

    fn any(&mut self, count: usize) -> usize {
        self.random.within(0..count as u64) as usize
    }

    fn soon(&mut self, ms: u64) -> u64 {
        let wait_ms = self.random.within(0..ms);
        // Often at once, and seldom late.
        self.now_ms + if self.random.chance(500) { wait_ms / 20 } else { wait_ms }
    }

    fn disturb(&mut self) {
        if self.weather.processes {
            self.disturb_processes();
        }
        if self.weather.etcd {
            self.disturb_etcd();
        }
        if self.weather.histories {
            self.disturb_histories();
        }
        if self.one_in(400) {
            self.confirm();
        }
    }

    fn disturb_processes(&mut self) {
        let (gateways, services, servers) =
            (self.gateways.len(), self.services.len(), self.servers.len());
        if self.one_in(2500) {
            let (at, back_ms) = (self.any(gateways), self.soon(20_000));
            self.kill_gateway(at, back_ms);
        }
        if self.one_in(3000) {
            let (at, back_ms) = (self.any(gateways), self.soon(20_000));
            self.gateways[at].leave(self.now_ms);
            self.gateways[at].back_ms = back_ms;
            self.faults.left += 1;
        }
        if self.one_in(1000) {
            let at = self.any(gateways);
            self.upgrade(at);
        }
        if self.one_in(2500) {
            let (at, until_ms) = (self.any(gateways), self.soon(20_000));
            self.gateways[at].frozen_until_ms = until_ms;
            self.faults.frozen += 1;
        }
        if self.one_in(2000) {
            let (at, back_ms) = (self.any(services), self.soon(20_000));
            self.services[at].kill();
            self.services[at].back_ms = back_ms;
            self.faults.killed += 1;
        }
        if self.one_in(3000) {
            let (at, back_ms) = (self.any(services), self.soon(20_000));
            self.services[at].stop();
            self.services[at].back_ms = back_ms;
            self.faults.left += 1;
        }
        if self.one_in(3000) {
            let (at, until_ms) = (self.any(services), self.soon(20_000));
            self.services[at].frozen_until_ms = until_ms;
            self.faults.frozen += 1;
        }
        if self.one_in(1000) {
            let (at, until_ms) = (self.any(servers), self.soon(10_000));
            let gateway = self.servers[at].gateway;
            self.servers[at].die(&mut self.gateways[gateway], until_ms);
            self.faults.killed += 1;
        }
        if !self.udp.is_empty() && self.one_in(3000) {
            let (at, until_ms) = (self.any(self.udp.len()), self.soon(10_000));
            self.udp[at].die(until_ms);
            self.faults.killed += 1;
        }
    }

    fn kill_gateway(&mut self, at: usize, back_ms: u64) {
        self.gateways[at].kill();
        self.gateways[at].back_ms = back_ms;
        self.gateways[at].frozen_until_ms = 0;
        self.servers.iter_mut().filter(|it| it.gateway == at).for_each(Server::lose_gateway);
        self.faults.killed += 1;
    }

    fn upgrade(&mut self, at: usize) {
        let Self { gateways, etcd, random, now_ms, servers, .. } = self;
        if *now_ms < gateways[at].frozen_until_ms || !gateways[at].upgrade(etcd, *now_ms, random) {
            return;
        }
        for server in servers.iter_mut().filter(|it| it.gateway == at) {
            server.meet_successor(*now_ms, random);
        }
        self.faults.upgraded += 1;
    }

    fn disturb_etcd(&mut self) {
        let processes = self.gateways.len() + self.services.len();
        let member = self.any(MEMBERS);
        if self.one_in(1200) {
            let is_down = self.random.chance(600);
            self.etcd.lock().kill(member, is_down);
            self.faults.etcd += 1;
        }
        if self.one_in(1500) {
            self.etcd.lock().isolate(member, true);
            self.faults.etcd += 1;
        }
        if self.one_in(1000) {
            let (process, members) = (self.any(processes), 1 + self.random.within(0..7) as u8);
            self.etcd.lock().cut(process, members);
            self.faults.etcd += 1;
        }
        if self.one_in(2000) {
            let delay_ms_max = 1 + self.random.within(0..3_000);
            let lost_per_mille = self.random.within(0..300) as u32;
            let mut etcd = self.etcd.lock();
            (etcd.delay_ms_max, etcd.lost_per_mille) = (delay_ms_max, lost_per_mille);
            drop(etcd);
            self.faults.etcd += 1;
        }
        if self.one_in(4000) {
            (0..MEMBERS).for_each(|member| self.etcd.lock().kill(member, true));
            self.faults.etcd += 1;
        }
        if self.one_in(700) {
            self.etcd.lock().heal();
        }
        if self.one_in(300) {
            self.etcd.lock().store.compact();
        }
    }

    fn disturb_histories(&mut self) {
        if self.one_in(800) {
            self.etcd.lock().back_up();
        }
        if self.one_in(2500) {
            let is_same = self.random.chance(500);
            if self.etcd.lock().roll_back(is_same) {
                self.faults.histories += 1;
            }
        }
        if self.one_in(6000) {
            self.etcd.lock().empty();
            self.faults.histories += 1;
            self.put_key();
        }
    }

    /// An operator looks, and believes what is held back.
    fn confirm(&mut self) {
        for gateway in &self.gateways {
            let doubt = gateway.doubt();
            if doubt != 0 {
                gateway.confirm(doubt);
                self.faults.confirmed += 1;
            }
        }
        for service in &self.services {
            (1..20).for_each(|doubt| service.confirm(doubt));
        }
    }

    /// The weather clears.
    fn heal(&mut self) {
        self.well_since_ms = Some(self.now_ms);
        self.etcd.lock().heal();
        for gateway in &mut self.gateways {
            gateway.frozen_until_ms = 0;
            gateway.back_ms = gateway.back_ms.min(self.now_ms + 1000);
        }
        for service in &mut self.services {
            service.frozen_until_ms = 0;
            service.back_ms = service.back_ms.min(self.now_ms + 1000);
        }
        for server in &mut self.servers {
            server.dead_until_ms = server.dead_until_ms.min(self.now_ms + 1000);
        }
        for server in &mut self.udp {
            server.dead_until_ms = server.dead_until_ms.min(self.now_ms + 1000);
        }
    }

    fn repair(&mut self) {
        if self.weather.histories && self.one_in(150) {
            self.confirm();
        }
    }

    // What players do.

    fn take_answer(&mut self, answer: Answer) {
        let Answer { token, said } = answer;
        let number = token;
        let (client_id, backend) = &mut self.tokens[number as usize];
        let client_id = *client_id;
        let asked_ms = self.asked_ms[number as usize];
        match &said {
            Ok((_, told)) => {
                *backend = told["backend"].as_str().map(str::to_owned);
                self.judge.minted(number, client_id);
            }
            Err(why) => {
                self.judge.met.refused += 1;
                let may_be = FULL.contains(&why.trim_matches('"'));
                let is_calm = self.is_calm(asked_ms);
                self.judge.require(may_be || !is_calm, || {
                    format!("client {client_id} was refused a token: {why}")
                });
            }
        }
        let asks = |it: &Player| matches!(it.doing, Doing::Asking { token, .. } if token == number);
        let Some(at) = self.players.iter().position(asks) else { return };
        let Ok((bytes, _)) = said else {
            let until_ms = self.now_ms + 200 + self.random.within(0..3_000);
            self.players[at].doing = Doing::Away { until_ms };
            return;
        };
        self.begin(at, number, bytes, false);
    }

    fn begin(&mut self, at: usize, token: u64, bytes: Vec<u8>, is_thief: bool) {
        let home = self.home();
        let mut play = Play::new(token, bytes, home, self.now_ms);
        let stays_ms = self.random.within(500..40_000);
        play.leaves_ms = self.now_ms + stays_ms;
        play.vanishes = self.random.chance(200);
        play.is_thief = is_thief;
        self.homes.insert(home, at);
        self.players[at].doing = Doing::Playing(Box::new(play));
    }

    fn home(&mut self) -> Endpoint {
        self.sent += 1;
        let [_, _, _, _, _, b, c, d] = self.sent.to_be_bytes();
        Endpoint::v4([10, b, c, d], 5000)
    }

    fn act(&mut self, at: usize) {
        let now_ms = self.now_ms;
        let mut sent = Vec::new();
        let became = match &mut self.players[at].doing {
            Doing::Away { until_ms } if now_ms >= *until_ms => return self.ask(at),
            Doing::Away { .. } => return,
            Doing::Asking { since_ms, .. } => {
                if now_ms > *since_ms + 15_000 {
                    self.players[at].doing = Doing::Away { until_ms: now_ms + 500 };
                }
                return;
            }
            Doing::Playing(play) => {
                let home = play.home;
                play.act(now_ms, &mut |to, bytes| sent.push((home, to, bytes.to_vec())))
            }
        };
        for (from, to, bytes) in sent {
            self.send(from, to, bytes);
        }
        self.note(at, became);
    }

    fn ask(&mut self, at: usize) {
        let (number, client_id) = (self.tokens.len() as u64, self.players[at].client_id);
        let service = self.any(self.services.len());
        let addresses = 1 + self.random.within(0..2);
        if !self.services[service].ask(number, client_id, addresses) {
            let until_ms = self.now_ms + 100 + self.random.within(0..500);
            self.players[at].doing = Doing::Away { until_ms };
            return;
        }
        self.tokens.push((client_id, None));
        self.asked_ms.push(self.now_ms);
        self.players[at].doing = Doing::Asking { token: number, since_ms: self.now_ms };
    }

    fn send(&mut self, from: Endpoint, to: Endpoint, bytes: Vec<u8>) {
        self.sent += 1;
        let at_ms = self.now_ms + self.random.within(0..2 * STEP_MS);
        self.network.insert((at_ms, self.sent), (from, to, bytes));
    }

    fn deliver(&mut self) {
        while let Some(first) = self.network.first_entry()
            && first.key().0 <= self.now_ms
        {
            let (from, to, mut bytes) = first.remove();
            if let Some(gateway) = self.gateways.iter_mut().find(|it| it.address == to) {
                gateway.hear_player(from, bytes);
                continue;
            }
            let Some(&at) = self.homes.get(&to) else { continue };
            let Doing::Playing(play) = &mut self.players[at].doing else { continue };
            let became = play.hear(from, &mut bytes, self.now_ms);
            self.note(at, became);
        }
    }

    /// A player is in, or out.
    fn note(&mut self, at: usize, became: Became) {
        let now_ms = self.now_ms;
        let Doing::Playing(play) = &mut self.players[at].doing else { return };
        match became {
            Became::Nothing => return,
            Became::Connected => {
                self.judge.met.connected += 1;
                let client_id = self.tokens[play.token as usize].0;
                self.came_ms.insert(client_id, now_ms);
                self.judge.met.thieves += u64::from(play.is_thief);
                return;
            }
            Became::Over(_) => {}
        }
        let (token, since_ms, home) = (play.token, play.since_ms, play.home);
        let (connected, is_thief) = (play.connected, play.is_thief);
        let bytes = std::mem::take(&mut play.bytes);
        self.homes.remove(&home);
        if let Became::Over(Some(state)) = became {
            match connected {
                Some((_, gateway)) => {
                    let excuse = self.excuse(token, since_ms, gateway);
                    self.judge.lost(token, state, excuse);
                }
                None => {
                    self.judge.met.denied += 1;
                    self.require_a_reason(at, (token, since_ms), state);
                }
            }
        }
        let until_ms = now_ms + 100 + self.random.within(0..6_000);
        let until_ms = if self.is_closing { u64::MAX } else { until_ms };
        self.players[at].doing = Doing::Away { until_ms };
        // Somebody has recorded the token.
        if !is_thief && !self.is_closing && self.random.chance(150) {
            self.begin(at, token, bytes, true);
        }
    }

    /// Whether everything has been well for so long that nothing is left of what was.
    fn is_calm(&self, since_ms: u64) -> bool {
        self.well_since_ms.is_some_and(|well_ms| since_ms >= well_ms + CALM_AFTER_MS)
    }

    /// A player was not let in. Where all is well, that is because its server is full, or the same
    /// client plays already.
    fn require_a_reason(&mut self, at: usize, (token, since_ms): (u64, u64), state: State) {
        let (client_id, backend) = &self.tokens[token as usize];
        let Doing::Playing(play) = &self.players[at].doing else { return };
        let plays = |other: &Player| {
            other.client_id == *client_id && matches!(other.doing, Doing::Playing(_))
        };
        let others = self.players.iter().filter(|it| plays(it)).count();
        let server = self.servers.iter().find(|it| backend.as_deref() == Some(&*it.name));
        // Of an unmodified server nobody outside knows how many it has.
        let is_full = server.is_none_or(|it| it.sessions.len() >= it.slots as usize);
        if play.is_thief || others > 1 || is_full || !self.is_calm(since_ms) {
            return;
        }
        let backend = backend.clone();
        self.judge
            .require(false, || format!("token {token} for {backend:?} is refused: {state:?}"));
    }

    /// Why a player may have lost its connection.
    fn excuse(&self, token: u64, since_ms: u64, by: Endpoint) -> Option<&'static str> {
        let (client_id, backend) = &self.tokens[token as usize];
        let backend = backend.as_ref()?;
        let gateway = self.gateways.iter().position(|it| it.address == by)?;
        let server = self.servers.iter().position(|it| it.name == *backend);
        let udp = self.udp.iter().position(|it| it.name == *backend);
        let away_ms = server.map(|at| self.servers_away_ms[at]);
        let away_ms = away_ms.or_else(|| udp.map(|at| self.udp_away_ms[at]))?;
        if self.gateways_away_ms[gateway] + 12_000 >= since_ms {
            return Some("its gateway was away");
        }
        if away_ms + 12_000 >= since_ms {
            return Some("its server was away");
        }
        let came_again = self.came_ms.get(client_id).is_some_and(|it| *it > since_ms);
        came_again.then_some("it has logged in elsewhere")
    }

    // What game processes and gateways do.

    fn run_servers(&mut self) {
        let Self { servers, gateways, random, now_ms, judge, .. } = self;
        for server in servers.iter_mut().filter(|it| it.is_alive(*now_ms)) {
            let gateway = &mut gateways[server.gateway];
            server.connect(gateway, *now_ms, random);
            for heard in server.read(gateway, *now_ms) {
                match heard {
                    Heard::Opened { session, incarnation, guest } => {
                        let of = (guest.client_id, guest.token);
                        judge.opened(server, of, (server.gateway, incarnation, session));
                    }
                    Heard::Said { token } => judge.heard(token, server.gateway),
                }
            }
        }
    }

    /// Unmodified servers answer what gateways have sent them in this step.
    fn run_udp(&mut self) {
        let Self { udp, gateways, now_ms, judge, udp_away_ms, etcd, .. } = self;
        for (at, server) in udp.iter_mut().enumerate() {
            let is_alive = *now_ms >= server.dead_until_ms;
            if !is_alive {
                udp_away_ms[at] = *now_ms;
            } else if now_ms.is_multiple_of(1000) {
                server.register(etcd);
            }
            for gateway in gateways.iter_mut() {
                let (its, others) = std::mem::take(&mut gateway.to_udp)
                    .into_iter()
                    .partition(|it: &(Endpoint, _, _)| it.0 == server.address);
                gateway.to_udp = others;
                let its: Vec<(Endpoint, LocalIp, Vec<u8>)> = its;
                if !is_alive && !its.is_empty() {
                    gateway.hear_that_nobody_listens(server.address);
                    continue;
                }
                for (_, source, bytes) in its.into_iter().filter(|it| !it.2.is_empty()) {
                    let (token, before) = server.hear((gateway.port(), source), &bytes, *now_ms);
                    judge.require(token == before, || format!("{token} is heard as {before}"));
                    judge.heard(token, gateway.number);
                    gateway.hear_udp(server.address, source, bytes);
                }
            }
        }
    }

    /// What has left a gateway goes where it belongs.
    fn carry(&mut self, at: usize) {
        let gateway = &mut self.gateways[at];
        let address = gateway.address;
        let to_players = std::mem::take(&mut gateway.to_players);
        let to_games = std::mem::take(&mut gateway.to_games);
        let closed = std::mem::take(&mut gateway.closed);
        let is_gone = !gateway.is_alive();
        for (to, bytes) in to_players {
            self.send(address, to, bytes);
        }
        for (link, bytes) in to_games {
            if let Some(server) = self.servers.iter_mut().find(|it| it.has_link(link)) {
                server.hear(bytes);
            }
        }
        for link in closed {
            if let Some(server) = self.servers.iter_mut().find(|it| it.has_link(link)) {
                server.lose_link();
            }
        }
        if is_gone {
            self.servers.iter_mut().filter(|it| it.gateway == at).for_each(Server::lose_gateway);
        }
    }

    fn look(&mut self) {
        let now_ms = self.now_ms;
        for (at, gateway) in self.gateways.iter().enumerate() {
            let is_away = !gateway.serves() || now_ms < gateway.frozen_until_ms;
            if is_away {
                self.gateways_away_ms[at] = now_ms;
            }
            let etcd = self.etcd.lock();
            let is_well = !is_away
                && etcd.is_there_for(at)
                && etcd.delay_ms_max <= 10
                && etcd.lost_per_mille == 0
                && gateway.doubt() == 0;
            drop(etcd);
            self.judge.see_gateway(at, is_well);
            if let Some(why) = &gateway.unbalanced {
                self.judge.require(false, || why.clone());
            }
        }
        for (at, server) in self.servers.iter().enumerate() {
            if server.linked_ms.is_none() {
                self.servers_away_ms[at] = now_ms;
            }
        }
        self.look_at_slots();
        if self.is_unique {
            self.judge.look_at_clients(&self.servers);
        }
    }

    /// No unmodified server has more players than slots; what others have been told is looked at
    /// there.
    fn look_at_slots(&mut self) {
        // Services go on without etcd here, and promise then what others may have promised; each
        // gateway of a host counts its own players.
        let is_counted = !self.weather.etcd && !self.weather.histories;
        for server in self.udp.iter().filter(|_| is_counted) {
            let there = server.there(self.now_ms);
            self.judge.look_at_slots(&server.name, there, server.slots);
        }
    }

    // How it ends.

    fn require_that_all_is_well(&mut self) {
        for gateway in &self.gateways {
            let doubt = gateway.doubt();
            self.judge.require(doubt == 0, || format!("{} doubts {doubt}", gateway.name));
            let key = format!("/f/truth/gateway/{}", gateway.name);
            let is_there = self.etcd.lock().store.below(&key).next().is_some();
            self.judge.require(is_there, || format!("{} is not registered", gateway.name));
        }
        for server in &self.servers {
            let key = format!("/f/truth/backend/{}", server.name);
            let is_there = self.etcd.lock().store.below(&key).next().is_some();
            self.judge.require(is_there, || format!("{} is not registered", server.name));
        }
        let met = self.judge.met;
        self.judge.require(met.connected > 5, || format!("nobody plays: {met:?}"));
    }

    fn say_goodbye(&mut self) {
        self.is_closing = true;
        for player in &mut self.players {
            match &mut player.doing {
                Doing::Away { until_ms } => *until_ms = u64::MAX,
                Doing::Asking { .. } => player.doing = Doing::Away { until_ms: u64::MAX },
                Doing::Playing(play) => play.leaves_ms = self.now_ms,
            }
        }
    }

    fn require_that_nothing_is_left(&mut self) {
        for gateway in &self.gateways {
            let count = gateway.session_count();
            self.judge.require(count == 0, || format!("{} has {count} sessions", gateway.name));
            for server in &self.servers {
                let players = gateway.players_of(&server.name);
                self.judge.require(players == 0, || format!("{} counts {players}", gateway.name));
            }
        }
        let left: Vec<String> = {
            let etcd = self.etcd.lock();
            etcd.store.below("/f/claim/").map(|(key, _)| key.to_owned()).collect()
        };
        let is_of_players = |key: &&String| {
            ["/f/claim/player/", "/f/claim/ousted/", "/f/claim/promise/"]
                .iter()
                .any(|part| key.starts_with(part))
        };
        let of_players: Vec<_> = left.iter().filter(is_of_players).collect();
        self.judge.require(of_players.is_empty(), || format!("etcd has {of_players:?}"));
    }
}

/// For so long anything may happen, then everything is well, then nobody plays.
const STORM_MS: u64 = 150_000;
const CALM_MS: u64 = 60_000;
/// Leases and members of etcd that are gone take so long to be missed.
const CALM_AFTER_MS: u64 = 25_000;
/// Why a token may be refused at any time.
const FULL: &[&str] = &["no_slot", "promised_elsewhere", "backend_full", "busy"];
const SILENCE_MS: u64 = 110_000;

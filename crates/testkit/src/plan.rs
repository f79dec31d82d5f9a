//! What a simulated world is like: how many take part, what goes wrong, and how often.

use std::ops::Range;

use super::network::Faults;
use super::random::Random;
use ringgate_gate::pace::BatchDelay;
use ringgate_gate::{ListenerId, Route, TokenReuse};
use ringgate_impair::Impairments;

/// A world before it begins.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing goes wrong")]
pub struct Plan {
    /// Where all of its randomness comes from.
    pub seed: u64,
    /// Gates that share a listener's players, as `SO_REUSEPORT` shares them.
    pub workers: u16,
    /// Players that come and go.
    pub players: usize,
    /// Public addresses.
    pub listeners: usize,
    /// How many of them, from the last, deliver whole messages. Their players come to games on
    /// bundle links only.
    pub delivering: usize,
    /// Players of an Unreal game, which has a listener of its own where there are any.
    pub unreal_players: usize,
    /// Players of a game that the gateway does not understand, which has a plain listener and two
    /// servers where there are any.
    pub plain_players: usize,
    /// Servers of the Unreal game.
    pub servers: usize,
    /// Game processes behind each of them.
    pub games: Vec<GamePlan>,
    /// How a player's game process is chosen.
    pub route: Route,
    /// How long it lasts, before everybody is sent home.
    pub lasts_ns: u64,
    /// How far the clock moves between two looks at everything.
    pub step_ns: u64,
    /// Silence after which a player is given up.
    pub timeout_s: i32,
    /// Sessions that each listener may have.
    pub sessions_max: u32,
    /// The path between most players and the gateway.
    pub path: Faults,
    /// Players out of a thousand who have a worse one.
    pub bad_paths_per_mille: u32,
    /// What players do.
    pub habits: Habits,
    /// Whether a player may come again with the token it had.
    pub token_reuse: TokenReuse,
    /// Datagrams that attackers send in each step.
    pub attacks: u64,
    /// Messages that a worker's mailbox holds.
    pub mailbox_max: usize,
    /// Datagrams that a link holds unread.
    pub link_max: usize,
    /// Game processes die and come back.
    pub crashes: bool,
    /// Game processes stop reading their links for a while.
    pub stalls: bool,
    /// The gateway's clocks jump.
    pub jumps: bool,
    /// Reloads remove listeners and add them again.
    pub turnover: bool,
    /// How long workers that are busy wait for more.
    pub batch_delay: BatchDelay,
    /// The gateway is handed over to another process now and then.
    pub hand_overs: bool,
}

/// A game process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GamePlan {
    /// How it is linked.
    pub link: GameLink,
    /// Players it takes.
    pub slots: u32,
}

/// How a game process is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GameLink {
    /// By bundles.
    Bundle,
    /// By UDP, on this host.
    Udp,
    /// By UDP, on another host: a socket for each session.
    UdpRemote,
}

/// What players do, in thousandths and nanoseconds.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Between two payloads.
    pub talk_ns: Range<u64>,
    /// From the first request to leaving.
    pub stay_ns: Range<u64>,
    /// From leaving to coming again.
    pub away_ns: Range<u64>,
    /// Who leave without a word.
    pub silent_per_mille: u32,
    /// Who come again with the token they had.
    pub reuse_per_mille: u32,
    /// Who come again with the token they had go on with its numbers.
    pub counts_on: bool,
    /// Who come again from the port they had.
    pub same_port_per_mille: u32,
    /// Whom a NAT moves to other ports meanwhile.
    pub move_per_mille: u32,
    /// Who share their address with the player before.
    pub household_per_mille: u32,
    /// Who have IPv6.
    pub v6_per_mille: u32,
}

impl Plan {
    /// A small world in which nothing goes wrong.
    pub fn calm(seed: u64) -> Self {
        let games = vec![GamePlan { link: GameLink::Bundle, slots: 64 }];
        Self {
            seed,
            workers: 2,
            players: 20,
            listeners: 1,
            delivering: 0,
            unreal_players: 0,
            plain_players: 0,
            servers: 0,
            games,
            route: Route::Single,
            lasts_ns: 8 * S,
            step_ns: 5 * MS,
            timeout_s: 2,
            sessions_max: 1000,
            path: Faults::none(),
            bad_paths_per_mille: 0,
            habits: Habits {
                talk_ns: 30 * MS..150 * MS,
                stay_ns: S..6 * S,
                away_ns: 100 * MS..S,
                silent_per_mille: 0,
                reuse_per_mille: 0,
                counts_on: false,
                same_port_per_mille: 0,
                move_per_mille: 0,
                household_per_mille: 200,
                v6_per_mille: 250,
            },
            token_reuse: TokenReuse::Deny,
            attacks: 0,
            mailbox_max: 512,
            link_max: 1000,
            crashes: false,
            stalls: false,
            jumps: false,
            turnover: false,
            batch_delay: BatchDelay::OFF,
            hand_overs: false,
        }
    }

    /// The world of a seed. Of eight in a row, one is calm, one is calm but attacked, and in the
    /// others more and more goes wrong.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let random = &mut random;
        let mut plan = Self::calm(seed);
        plan.workers = random.within(1..5) as u16;
        plan.players = random.within(5..40) as usize;
        plan.listeners = random.within(1..3) as usize;
        plan.games = (0..random.within(1..4)).map(|_| GamePlan::random(random)).collect();
        plan.route = *random.pick(&ROUTES).unwrap_or(&Route::Single);
        plan.timeout_s = random.within(1..4) as i32;
        plan.unreal_players = random.within(0..20) as usize;
        plan.servers = random.within(1..4) as usize;
        plan.plain_players = Random::new(seed ^ 0x706c).within(0..12) as usize;
        if seed / 8 % 2 == 1 {
            plan.token_reuse = TokenReuse::Allow;
            plan.habits.counts_on = true;
        }
        if seed / 16 % 2 == 1 {
            plan.batch_delay = BatchDelay::AUTO;
        }
        plan.hand_overs = seed / 32 % 2 == 1;
        plan.habits.silent_per_mille = random.within(0..500) as u32;
        plan.habits.same_port_per_mille = random.within(0..700) as u32;
        match seed % 8 {
            0 => {}
            1 => plan.attacks = random.within(1..40),
            2 => plan.weather(random),
            3 => plan.wandering(random),
            4 => plan.troubles(random),
            5 => plan.everything(random),
            6 => {
                plan.everything(random);
                plan.jumps = true;
            }
            _ => {
                plan.everything(random);
                plan.sessions_max = random.within(3..20) as u32;
                plan.games.iter_mut().for_each(|game| game.slots = random.within(1..10) as u32);
            }
        }
        let of_its_own = &mut Random::new(seed ^ 0x6d65_7373);
        if of_its_own.chance(250) {
            plan.deliver_messages(of_its_own.within(1..3) as usize);
        }
        plan
    }

    /// The last listeners deliver messages. Nobody comes again with a token then: a client of
    /// netcode takes what an earlier session with its token has sent, if it comes late, and its
    /// end of the delivery layer would find that session's numbers wrong.
    pub fn deliver_messages(&mut self, listeners: usize) {
        self.delivering = listeners.min(self.listeners);
        self.games[0].link = GameLink::Bundle;
        self.token_reuse = TokenReuse::Deny;
        (self.habits.counts_on, self.habits.reuse_per_mille) = (false, 0);
    }

    /// Whether a listener delivers messages.
    pub const fn delivers(&self, listener: ListenerId) -> bool {
        let listener = listener.0 as usize;
        listener < self.listeners && listener >= self.listeners - self.delivering
    }

    /// The games that players come to at a listener.
    pub fn games_at(&self, listener: ListenerId) -> Vec<u16> {
        let is_there = |game: &u16| {
            !self.delivers(listener) || self.games[usize::from(*game)].link == GameLink::Bundle
        };
        (0..self.games.len() as u16).filter(is_there).collect()
    }

    /// Thousands of players who stay for a short while.
    pub fn many_players(seed: u64, players: usize) -> Self {
        let mut plan = Self::calm(seed);
        plan.workers = 4;
        plan.players = players;
        plan.sessions_max = players as u32;
        plan.games = vec![GamePlan { link: GameLink::Bundle, slots: players as u32 }; 2];
        plan.games[1].link = GameLink::Udp;
        plan.route = Route::Hash;
        plan.step_ns = 10 * MS;
        plan.lasts_ns = 3 * S;
        plan.habits.talk_ns = 400 * MS..600 * MS;
        plan.habits.stay_ns = 2 * S..4 * S;
        plan
    }

    /// Whether every honest player can be expected to get in, and every payload to arrive.
    pub fn is_fair(&self) -> bool {
        let is_active = self.path.settings.is_active();
        let paths_are_good =
            self.path.loss_per_mille == 0 && self.bad_paths_per_mille == 0 && !is_active;
        let room = self.games.iter().map(|game| game.slots as usize).min().unwrap_or(0);
        let has_room = room >= self.players && self.sessions_max as usize >= self.players;
        paths_are_good && has_room && !self.crashes && !self.stalls && !self.jumps && !self.turnover
    }

    /// Servers of the Unreal game, if it is played.
    pub const fn servers_started(&self) -> usize {
        if self.unreal_players > 0 { self.servers } else { 0 }
    }

    /// How fast attackers are. An attacker who is faster than a player can use the player's token
    /// first, and no gateway can prevent that. So in a fair world attackers are slower than
    /// players, by more than a worker waits on purpose.
    pub fn attackers_path(&self) -> Faults {
        let waits_ns = self.batch_delay.longest_look().as_nanos() as u64 * u64::from(SLOWNESS);
        let fair_ns = 30 * MS + waits_ns..200 * MS + waits_ns;
        let delay_ns = if self.is_fair() { fair_ns } else { MS..200 * MS };
        Faults { delay_ns, ..Faults::none() }
    }

    /// Settings of a bad network, with a randomness of this world's own.
    pub fn settings(&self, text: &str) -> Impairments {
        let settings = Impairments::parse(text).expect("names and numbers of settings");
        Impairments { seed: self.seed, ..settings }
    }

    fn weather(&mut self, random: &mut Random) {
        self.path = Faults {
            loss_per_mille: random.within(1..150) as u32,
            duplicate_per_mille: random.within(0..100) as u32,
            delay_ns: 2 * MS..random.within(3..80) * MS,
            settings: Impairments::default(),
        };
        if (self.seed / 8).is_multiple_of(3) {
            let of_its_own = &mut Random::new(self.seed ^ 0x1a9);
            self.path.settings = self.settings(of_its_own.pick(&SETTINGS).unwrap_or(&""));
        }
        self.bad_paths_per_mille = random.within(0..200) as u32;
    }

    fn wandering(&mut self, random: &mut Random) {
        self.weather(random);
        self.habits.move_per_mille = random.within(100..900) as u32;
        self.habits.reuse_per_mille = random.within(0..600) as u32;
        self.mailbox_max = random.within(1..64) as usize;
    }

    fn troubles(&mut self, random: &mut Random) {
        self.crashes = true;
        self.stalls = true;
        self.turnover = true;
        self.link_max = random.within(1..20) as usize;
    }

    fn everything(&mut self, random: &mut Random) {
        self.wandering(random);
        self.troubles(random);
        self.attacks = random.within(0..40);
    }
}

impl GamePlan {
    fn random(random: &mut Random) -> Self {
        let links = [GameLink::Bundle, GameLink::Bundle, GameLink::Udp, GameLink::UdpRemote];
        Self { link: *random.pick(&links).unwrap_or(&GameLink::Bundle), slots: 64 }
    }
}

const ROUTES: [Route; 4] = [Route::Hash, Route::LeastPlayers, Route::Single, Route::UserData];

/// Every setting that Unreal's packet simulation has, and those that we have beyond it.
pub const SETTINGS: [&str; 15] = [
    "PktLoss=15",
    "PktLoss=40 PktLossMinSize=60 PktLossMaxSize=400",
    "PktOrder=1",
    "PktDup=25",
    "PktLag=60 PktLagVariance=50",
    "PktLag=60 PktLagVariance=50 LagReorders=1",
    "PktLagMin=10 PktLagMax=90",
    "PktLagMin=5 PktJitter=70",
    "PktFrameDelay=3",
    "PktBufferBloatInMS=80",
    "PktIncomingLagMin=10 PktIncomingLagMax=70",
    "PktIncomingLagMin=10 PktIncomingLagMax=70 LagReorders=1",
    "PktIncomingLoss=15",
    "PktIncomingFrameDelay=2 PktIncomingBufferBloatInMS=60",
    "BurstLoss=3 BurstLength=5",
];

/// A few players who speak ten times a second are as busy a world as thousands, so many times
/// slower: its workers wait for more from 40 datagrams a second on, for up to 152 ms.
pub(crate) const SLOWNESS: u32 = 400;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

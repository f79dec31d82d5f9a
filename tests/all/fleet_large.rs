//! A whole fleet under load, in a network of its own: etcd, three gateways, twenty game servers,
//! six of them behind two agents, two token services, and players of the load generator who get
//! their tokens over HTTP. Each part is killed and cut off in turn while they play.
//!
//! What has to hold all the time: no session is lost that could be kept, every gateway's books
//! balance, no token is used twice, bans hold, and no game server ever has more players than slots.
//!
//! Played where `REQUIRE_ETCD=1` asks for it, because it takes minutes, and skipped aloud without
//! root or `ip`. `FLEET_PLAYERS=3000` plays it at its full size, for which programs have to be
//! optimised.

#[path = "fleet_large/game.rs"]
mod game;
#[path = "fleet_large/network.rs"]
mod network;
#[path = "fleet_large/parts.rs"]
mod parts;
#[path = "fleet_large/watch.rs"]
mod watch;

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use ringgate_core::netcode::{ConnectToken, ServerAddresses, State};
use ringgate_os::clock::{self, Clock};
use serde_json::Value;

use self::network::{Cut, Network, address, namespace};
use self::parts::{
    AGENTS, BEHIND_EACH, DUEL_SLOTS, DUELS, LIFE_S, Parts, SILENCE, Size, agent_glimpse, ask,
    certified, fleet, glimpse, service_page, start_players, token,
};
use self::watch::Watch;
use crate::agent::certificates;
use crate::command::{ringgate, run};
use crate::control_rig::Player;
use crate::fleet_etcd::is_installed;
use crate::folder::Folder;
use crate::netns::{role, role_in};

/// What this test is called, for those of its processes that are this program.
const TEST: &str = "fleet_large::a_fleet_under_load_outlives_the_loss_of_each_of_its_parts";

#[test]
fn a_fleet_under_load_outlives_the_loss_of_each_of_its_parts() {
    match role() {
        None => in_a_network_of_its_own(),
        Some((role, words)) if role == "game" => game::Game::of(&words).play(),
        Some((role, words)) if role == "players" => {
            let words = ["ringgate-loadgen"].into_iter().chain(words.split(' '));
            let code = ringgate_loadgen::cli::run(words.map(Into::into));
            println!("the load generator has ended: {code:?}");
        }
        Some((_, words)) => {
            let (tag, folder) = words.split_once(' ').expect("two words");
            Story::begin(tag, Path::new(folder)).tell();
        }
    }
}

fn in_a_network_of_its_own() {
    if std::env::var_os("REQUIRE_ETCD").is_none_or(|it| it != "1") {
        eprintln!("SKIPPED: a large fleet is played where REQUIRE_ETCD=1 asks for it");
        return;
    }
    if !is_installed() {
        return;
    }
    let Some(network) = Network::new(Size::of_env().games) else { return };
    let folder = Folder::new();
    let certified = certified();
    let named: Vec<_> = certified.iter().map(|(name, of)| (*name, of.as_str())).collect();
    if !certificates(&folder, &named) {
        return;
    }
    let words = format!("{} {}", network.tag, folder.path().display());
    let told = role_in(&namespace(&network.tag, "router"), TEST, "story", &words).status();
    assert!(told.expect("`ip` was there a moment ago").success(), "see above");
}

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Looks again and again until it is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !is_so() {
        assert!(clock.now_ns() < PATIENCE.as_nanos() as u64, "it did not come true that {what}");
        clock::sleep(Duration::from_millis(100));
    }
    let ms = clock.now_ns() / 1_000_000;
    if ms > 1000 {
        println!("       {ms} ms until {what}");
    }
}

/// The fleet, and what has happened to it so far.
struct Story {
    parts: Parts,
    watch: Watch,
    clock: Clock,
    /// Sessions that were lost with the gateway that had them.
    lost_max: u64,
    /// How often the gateways had been looked at when slots were.
    looks: u64,
    /// The last client's id.
    next_client: u64,
}

impl Story {
    fn begin(tag: &str, folder: &Path) -> Self {
        let size = Size::of_env();
        // Control sockets are asked by names that begin here.
        std::env::set_current_dir(folder).expect("the folder is there");
        let parts = Parts::start(tag, folder, size);
        let (watch, clock) = (Watch::start(parts.gates.len()), Clock::start());
        Self { parts, watch, clock, lost_max: 0, looks: 0, next_client: 1 }
    }

    fn say(&self, what: &str) {
        println!("{:4} s  {what}", self.clock.now_ns() / 1_000_000_000);
    }

    fn tell(mut self) {
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.whole()));
        if let Err(why) = told {
            println!("{}", self.parts.logs());
            std::panic::resume_unwind(why);
        }
    }

    fn whole(&mut self) {
        self.is_well("everything is there");
        self.a_token_is_used_once();
        let Size { players, games } = self.parts.size;
        let churn = f64::from(players) / 120.0;
        let ramp_s = f64::from(players / 100).max(3.0);
        let mut arena =
            start_players(&self.parts, "arena", "10.80.0.0", &scenario(players, ramp_s, churn));
        let duelists = 2 * DUELS * DUEL_SLOTS;
        let mut duels =
            start_players(&self.parts, "duels", "10.88.0.0", &scenario(duelists, 1.0, 2.0));
        until("all play", || Self::sessions() >= u64::from(players));
        self.say(&format!(
            "{players} players at {games} game servers, {duelists} more for 20 slots"
        ));

        self.rotates_the_keys();
        self.without_etcd();
        self.a_gateway_alone();
        self.without_a_token_service();
        self.game_servers_and_agents_alone();
        self.without_a_gateway();

        arena.end();
        duels.end();
        for group in ["arena", "duels"] {
            self.closes_the_books(group);
        }
        until("all sessions have ended", || Self::sessions() == 0);
        self.is_well("everybody has left");
        for number in (0..games).filter(|number| self.parts.size.agent_of(*number).is_some()) {
            assert!(self.watch.most(number) > 0, "nobody was seen at game server {number}");
        }
        self.a_token_is_used_once();
    }
}

fn scenario(players: u32, ramp_s: f64, churn: f64) -> String {
    // How many there are is what matters here: how much each of them says is measured elsewhere.
    let traffic = "traffic = { hz = 1.0, bytes_min = 40, bytes_max = 100 }";
    format!(
        "[[phase]]\nkind = \"ramp\"\nseconds = {ramp_s}\nsessions = {players}\n{traffic}\n\
         [[phase]]\nkind = \"hold\"\nseconds = 3600\nchurn_per_second = {churn}\n{traffic}\n"
    )
}

/// What happens to the parts.
impl Story {
    /// The keys of all listeners are rotated while players come: nobody is refused.
    fn rotates_the_keys(&mut self) {
        let refused = || Self::sum("ringgate_drops_total{request_forged}");
        let before = refused();
        let key = self.parts.folder.join("fleet.key").display().to_string();
        assert!(fleet(&["keys", "rotate", "--wait", "--key", &key]).is_some());
        for service in 0..2 {
            until("tokens are made with the next key", || {
                ask(service, &self.body("")).is_ok_and(|it| it.1["epoch"] == 2)
            });
        }
        self.gives_tokens("the keys were rotated");
        assert_eq!(refused(), before, "tokens were refused for their key");
    }

    /// etcd is killed, and then cut off from everybody.
    fn without_etcd(&mut self) {
        let (spare, banned) = self.bans_a_player();
        let before = Self::silent();
        self.parts.etcd.kill();
        until("every gateway says that etcd is away", || Self::gates_current() == 0);
        // By then every lease would be over that somebody could have let go.
        self.plays_on();
        Self::is_refused(&spare, banned);
        self.parts.etcd.revive();
        self.is_well("etcd was killed and is back");
        self.a_token_is_used_once();
        Self::is_refused(&spare, banned);
        let cut = Cut::off(&self.parts.tag, address("etcd"));
        until("every gateway says that etcd is away", || Self::gates_current() == 0);
        self.plays_on();
        drop(cut);
        self.is_well("etcd was cut off and is back");
        self.a_token_is_used_once();
        before.keeps_sessions("sessions were lost for want of etcd");
    }

    /// A gateway is cut off from etcd until nobody knows of it any more, and then from everybody.
    fn a_gateway_alone(&mut self) {
        let before = Self::silent();
        let tag = self.parts.tag.clone();
        let cut = Cut::between(&tag, address("gate1"), &address("etcd").to_string());
        until("its registration is gone", || Self::gateways_known() == 2);
        drop(cut);
        self.is_well("a gateway was cut off from etcd and is back");
        self.a_token_is_used_once();
        before.keeps_sessions("sessions were lost that could be kept");
        // Whoever leaves now is not heard, and is given up later: the load generator counts who is
        // lost.
        let cut = Cut::off(&tag, address("gate2"));
        // Shorter than a session's silence may be.
        clock::sleep(SILENCE / 4);
        drop(cut);
        let clock = Clock::start();
        self.is_well("a gateway was cut off from everybody and is back");
        until("those are given up", || {
            let since_the_cut = Duration::from_nanos(clock.now_ns());
            self.longest_silence(1) < since_the_cut
        });
    }

    /// A token service is killed, then cut off from etcd, then from its callers.
    fn without_a_token_service(&mut self) {
        let before = Self::silent();
        let tag = self.parts.tag.clone();
        self.parts.tokens[0].kill();
        self.gives_tokens("a token service is dead");
        self.parts.tokens[0].revive();
        self.is_well("a token service was killed and is back");
        let cut = Cut::between(&tag, address("tokens2"), &address("etcd").to_string());
        self.gives_tokens("a token service is cut off from etcd");
        drop(cut);
        let cut = Cut::off(&tag, address("tokens1"));
        self.gives_tokens("a token service is cut off from everybody");
        drop(cut);
        self.is_well("a token service was cut off and is back");
        before.keeps_sessions("sessions were lost for want of a token service");
    }

    /// A game server is killed, and another one cut off, first from etcd and then from gateways.
    /// With each, the same befalls an agent with all that is behind it.
    fn game_servers_and_agents_alone(&mut self) {
        let before = Self::silent();
        let tag = self.parts.tag.clone();
        let (killed, alone) = (DUELS as usize, DUELS + 1);
        let left = self.parts.size.games - 1 - BEHIND_EACH;
        self.parts.games[killed].kill();
        self.parts.agents[0].kill();
        until("their registrations are gone", || Self::backends_known() == left);
        self.parts.games[killed].revive();
        self.parts.agents[0].revive();
        self.is_well("a game server and an agent were killed and are back");
        let (etcd, agent) = (address("etcd").to_string(), address("agent2"));
        let host = address(&format!("game{alone}"));
        let cuts = [host, agent].map(|it| Cut::between(&tag, it, &etcd));
        until("their registrations are gone", || Self::backends_known() == left);
        drop(cuts);
        self.is_well("a game server and an agent were cut off from etcd and are back");
        let gates = (1..=3).map(|gate| address(&format!("gate{gate}")).to_string());
        let from_gates: Vec<_> = gates.map(|gate| Cut::between(&tag, agent, &gate)).collect();
        let cut = Cut::off(&tag, host);
        clock::sleep(SILENCE / 4);
        drop(cut);
        until("nobody is sent to the agent", || Self::led_to() == 1);
        drop(from_gates);
        self.is_well("a game server was cut off from everybody, an agent from gateways");
        before.keeps_sessions("sessions were lost that could be kept");
    }

    /// A gateway is killed with its sessions. Their players come back through the others.
    fn without_a_gateway(&mut self) {
        let players = u64::from(self.parts.size.players);
        self.lost_max += Self::sessions_at(2);
        self.parts.gates[2].kill();
        until("nobody is sent there any more", || Self::gateways_known() == 2);
        self.gives_tokens("a gateway is dead");
        until("its players are back", || Self::sessions() >= players);
        self.parts.gates[2].revive();
        self.is_well("a gateway was killed and is back");
        self.a_token_is_used_once();
        until("players come to it", || Self::sessions_at(2) > 0);
    }
}

/// What has to hold.
impl Story {
    /// Everything is there and knows of everything, and all that must never be broken is not.
    fn is_well(&mut self, when: &str) {
        let games = self.parts.size.games;
        until(&format!("{when}: every gateway is current"), || Self::gates_current() == 3);
        until(&format!("{when}: token services know all"), || {
            (0..2).all(|service| {
                let page = service_page(service);
                let has = |name: &str, value: u32| {
                    page.lines().any(|it| it == format!("ringgate_tokens_{name} {value}"))
                };
                has("gateways", 3)
                    && has("backends", games)
                    && has("services", 2)
                    && has("ready", 1)
            })
        });
        until(&format!("{when}: every gateway has let every agent in"), || Self::led_to() == 2);
        for gate in 0..3 {
            assert_eq!(glimpse(gate).unbalanced_workers, 0, "{when}: gateway {gate}");
        }
        self.has_kept_to_slots(when);
        self.say(when);
    }

    /// No game server has ever had more players than slots, by its own count. To one behind an
    /// agent players leave without a word, and so it remembers some whose slot is free again: there
    /// the gateways say how many they have, and the agent how many slots are used.
    fn has_kept_to_slots(&mut self, when: &str) {
        let used = |status: &Value, number: u32| {
            let mut told = status["backends"].as_array()?.iter();
            told.find(|it| it["name"] == format!("game{number}"))?["used"].as_u64()
        };
        let behind_agents = |number: &u32| self.parts.size.agent_of(*number).is_some();
        until(&format!("{when}: the gateways are looked at"), || self.watch.looks() > self.looks);
        self.looks = self.watch.looks();
        let mut status = Value::Null;
        until(&format!("{when}: the slots of agents are told"), || {
            status = Self::status();
            let mut games = (0..self.parts.size.games).filter(behind_agents);
            games.all(|number| used(&status, number).is_some())
        });
        for number in 0..self.parts.size.games {
            let slots = if number < DUELS { DUEL_SLOTS } else { self.parts.size.slots() };
            let (most, used) = match self.parts.size.agent_of(number) {
                None => (self.most(number).into(), 0),
                Some(_) => {
                    (self.watch.most(number), used(&status, number).expect("it was waited for"))
                }
            };
            assert!(
                most.max(used) <= slots.into(),
                "{when}: game server {number} over its {slots} slots: {most} players, {used} used"
            );
        }
        assert_eq!(Self::agents_refused(), 0, "{when}: an agent has sent players away");
    }

    /// Players whom an agent has let past no slot.
    fn agents_refused() -> u64 {
        let refused = "ringgate_agent_dropped_total{slots_taken}";
        let of = |agent| agent_glimpse(agent).metrics.get(refused).copied();
        (1..=AGENTS).map(|agent| of(agent).expect("agents live")).sum::<f64>() as u64
    }

    /// Two players dial two gateways with one token at the same time: each gateway that a token
    /// names is linked to its game server, so one of them is let in. The other is denied where it
    /// begins, and then asks the gateway that has let its client in, which drops what it asks: that
    /// is waited for, and not its token's end.
    fn a_token_is_used_once(&mut self) {
        let mut players = self.duellists();
        let dropped = || {
            ["token_claimed", "request_client_connected"]
                .map(|why| Self::sum(&format!("ringgate_drops_total{{{why}}}")))
        };
        let before = dropped();
        until("one of the two is let in and the other is not", || {
            let connected = players.each_mut().map(Player::is_connected);
            assert_ne!(connected, [true; 2], "a token was used twice");
            assert!(!players.iter().all(Player::has_ended), "nobody was let in");
            let is_refused = || {
                let [claimed, connected] = dropped();
                claimed > before[0] && connected >= before[1] + REFUSALS
            };
            connected.contains(&true) && (players.iter().any(Player::has_ended) || is_refused())
        });
        players.iter_mut().for_each(Player::leave);
    }

    /// Two who hold one token, and begin at one of its gateways each.
    fn duellists(&mut self) -> [Player; 2] {
        let mut named = None;
        until("a token names two gateways", || {
            let token = token(&self.body(",\"addresses\":2,\"timeout\":60"));
            named = (token.addresses.len() == 2).then_some(token);
            named.is_some()
        });
        let token = named.expect("it was waited for");
        let mut addresses: Vec<_> = token.addresses.iter().copied().collect();
        addresses.reverse();
        let addresses = ServerAddresses::new(&addresses).expect("two");
        let other = ConnectToken { addresses, ..token.clone() };
        [&token, &other].map(|it| Player::holding(ANYWHERE, it))
    }

    /// Everybody has something to say once in a second, and says it four times.
    fn plays_on(&self) {
        let payloads = || Self::sum("ringgate_payloads_up_total");
        let enough = payloads() + 4 * u64::from(self.parts.size.players);
        until("players play on", || payloads() >= enough);
    }

    /// Whoever asks any of the services, one after the other, is served by one that can.
    fn gives_tokens(&mut self, when: &str) {
        for _ in 0..4 {
            let mut player = Player::holding(ANYWHERE, &token(&self.body("")));
            player.connect();
            player.leave();
        }
        self.say(when);
    }

    /// A player who plays is banned; another token that it has already, and who it is.
    fn bans_a_player(&mut self) -> (ConnectToken, u64) {
        let client = self.next_client;
        let body = format!("{{\"client_id\":{client},\"group\":\"arena\",\"expire\":300}}");
        let (first, spare) = (token(&body), token(&body));
        self.next_client += 1;
        let mut player = Player::holding(ANYWHERE, &first);
        player.connect();
        let (id, clock) = (client.to_string(), Clock::start());
        assert!(fleet(&["deny", "--client", &id, "--for", "1h", "--wait"]).is_some());
        assert_eq!(player.ended(), State::Disconnected);
        let ms = clock.now_ns() / 1_000_000;
        Self::is_refused(&spare, client);
        self.say(&format!("a player is banned, and out {ms} ms after the command was begun"));
        (spare, client)
    }

    /// Neither a service nor a gateway lets a player in.
    fn is_refused(spare: &ConnectToken, client: u64) {
        let body = format!("{{\"client_id\":{client},\"group\":\"arena\"}}");
        for service in 0..2 {
            until("the service knows of the ban", || {
                let answer = ask(service, &body);
                answer.is_ok_and(|it| it.0 == 403 && it.1["error"] == "client_denied")
            });
        }
        assert_eq!(Player::holding(ANYWHERE, spare).ended(), State::Denied);
    }

    /// The load generator's own books, and how many sessions it has lost.
    fn closes_the_books(&self, group: &str) {
        let file = self.parts.folder.join(group).join("run.json");
        let text = std::fs::read_to_string(file).expect("the load generator has ended as asked");
        let record: Value = serde_json::from_str(&text).expect("JSON");
        let count = |name: &str| record["counters"][name].as_u64().unwrap_or_default();
        for name in ["corrupt", "misdelivered", "tokenless", "placeless"] {
            assert_eq!(count(name), 0, "{group}: {name}");
        }
        let [joins, connected, lost] = ["joins", "connected", "sessions_lost"].map(&count);
        self.say(&format!(
            "{group}: {joins} players came, {connected} were let in, {lost} lost their session, \
             {} of {} payloads came back",
            count("echoed"),
            count("payloads_due"),
        ));
        assert!(connected > 0 && lost <= self.lost_max, "{group}: {lost} of {}", self.lost_max);
    }
}

/// What gateways have not heard so far.
#[derive(Clone, Copy)]
struct Silent {
    /// Sessions that were given up because nothing was heard of their players.
    sessions: u64,
    /// Datagrams that found a gateway's receive buffer full.
    datagrams: u64,
}

impl Silent {
    /// No session was given up since then, but for those of players who have said that they leave
    /// while a gateway had no time to hear it: a machine may be much too small for this fleet.
    fn keeps_sessions(self, otherwise: &str) {
        let now = Story::silent();
        let (lost, unheard) = (now.sessions - self.sessions, now.datagrams - self.datagrams);
        assert!(lost <= unheard, "{otherwise}: {lost}; {unheard} datagrams were not heard");
    }
}

/// What can be seen of the parts.
impl Story {
    fn body(&mut self, more: &str) -> String {
        self.next_client += 1;
        let client = self.next_client;
        format!("{{\"client_id\":{client},\"group\":\"arena\",\"expire\":{LIFE_S}{more}}}")
    }

    fn sum(name: &str) -> u64 {
        let of = |gate| glimpse(gate).metrics.get(name).copied().unwrap_or_default();
        (0..3).map(of).sum::<f64>() as u64
    }

    fn sessions() -> u64 {
        Self::sum("ringgate_sessions")
    }

    fn sessions_at(gate: usize) -> u64 {
        glimpse(gate).sessions()
    }

    /// For how long nothing was heard of a session.
    fn longest_silence(&self, gate: usize) -> Duration {
        let config = self.parts.folder.join(format!("gate{}.toml", gate + 1));
        let mut command = ringgate(["sessions", "--json", "--limit", "10000", "--config"]);
        command.arg(config);
        let page = run(command).succeeded();
        let page: Value = serde_json::from_str(&page).expect("JSON");
        let sessions = page["sessions"].as_array().expect("they are told");
        let silent_ms = sessions.iter().map(|it| it["silent_ms"].as_u64().expect("a number"));
        Duration::from_millis(silent_ms.max().unwrap_or_default())
    }

    fn silent() -> Silent {
        Silent {
            sessions: Self::sum("ringgate_sessions_closed_total{timed_out}"),
            datagrams: Self::sum("ringgate_socket_drops_total"),
        }
    }

    fn gates_current() -> u64 {
        Self::sum("ringgate_fleet_current")
    }

    fn gateways_known() -> u32 {
        Self::known("gateways")
    }

    fn backends_known() -> u32 {
        Self::known("backends")
    }

    /// How many of something an operator sees.
    fn known(list: &str) -> u32 {
        Self::status()[list].as_array().map_or(u32::MAX, |it| it.len() as u32)
    }

    fn status() -> Value {
        let said = fleet(&["status", "--backends", "--json"]);
        said.and_then(|it| serde_json::from_str(&it).ok()).unwrap_or_default()
    }

    /// How many agents have all that is behind them let in by every gateway.
    fn led_to() -> usize {
        let status = Self::status();
        let backends = status["backends"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_led_to = |agent: &&str| {
            let behind = backends.iter().filter(|it| it["reach"]["agent"] == **agent);
            let led = behind.filter(|it| it["gateways"].as_array().map_or(0, Vec::len) == 3);
            led.count() == BEHIND_EACH as usize
        };
        ["agent1", "agent2"].into_iter().filter(is_led_to).count()
    }

    /// How many players a game server has had at most, as it has counted them itself.
    fn most(&self, number: u32) -> u32 {
        let file = self.parts.folder.join(format!("game{number}.most"));
        std::fs::read_to_string(file).map_or(0, |it| it.trim().parse().expect("a number"))
    }
}

/// So often somebody is refused who goes on asking, until that is believed.
const REFUSALS: u64 = 5;

const ANYWHERE: [u8; 4] = Ipv4Addr::UNSPECIFIED.octets();

//! Gateways of a cluster at one address behind a router with equal-cost paths, in network
//! namespaces.
//!
//! ```text
//!   players, etcd ── 10.2.0.0/16, fd02:: ── router ── 10.1.N.0/24, fd01:N:: ── gateway N
//!                                                     each with 10.9.9.9 and fd99::9
//! ```
//!
//! Skipped aloud where this process may make no network namespaces, and where `etcd` or openssl is
//! not installed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ringgate_os::clock::{self, Clock};
use ringgate_os::process::effective_uid;
use ringgate_report::text::Append as _;

use crate::agent::{Agent, Program, certificates, echo};
use crate::command::{ringgate, run};
use crate::control_rig::{
    Daemon, Game, KEY_HEX, PATIENCE, PROTOCOL_ID, Player, Text, token, wait_for,
};
use crate::delivery_ways::DELIVERS;
use crate::fleet_rig::Fleet;
use crate::folder::Folder;
use crate::netns;
use crate::upgrade_rig::Line;

pub(crate) const GATEWAYS: usize = 3;
pub(crate) const PLAYERS: usize = 6;
/// Where players go: two listeners, the first of them over both families.
pub(crate) const PLACES: [&str; 3] = ["10.9.9.9:40000", "[fd99::9]:40000", "10.9.9.9:40001"];
/// Those of plain listeners, where there is an agent: in front of a process with the library, and
/// of one that knows nothing of gateways.
pub(crate) const PLAIN_PLACES: [&str; 2] = ["10.9.9.9:40002", "10.9.9.9:40003"];
/// That of a listener that delivers messages, where there is an agent.
pub(crate) const MESSAGES_PLACE: &str = "10.9.9.9:40004";
/// That of an Unreal listener, where there is an agent.
pub(crate) const UNREAL_PLACE: &str = "10.9.9.9:40005";
const BINDS: &str = "\"10.9.9.9:40000\", \"[fd99::9]:40000\"";

/// Namespaces that end with this.
pub(crate) struct Network {
    tag: String,
    /// They go with this.
    is_own: bool,
}

impl Network {
    /// `None`, said aloud, where this process may not make them.
    fn new() -> Option<Self> {
        if effective_uid() != 0 || Command::new("ip").arg("-V").output().is_err() {
            return netns::missing("network namespaces take root and the program `ip`");
        }
        let tag = format!("rgc{}", netns::tag());
        let network = Self { tag, is_own: true };
        for name in network.names() {
            if !ip(&format!("netns add {name}")) {
                return netns::missing("no network namespace can be made here");
            }
            set(&format!("-n {name} link set lo up"));
        }
        network.wire();
        Some(network)
    }

    fn of(tag: &str) -> Self {
        Self { tag: tag.to_owned(), is_own: false }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let gateways = (1..=GATEWAYS).map(|number| self.gateway(number));
        [self.router(), self.players()].into_iter().chain(gateways)
    }

    pub(crate) fn router(&self) -> String {
        format!("{}-r", self.tag)
    }

    pub(crate) fn players(&self) -> String {
        format!("{}-p", self.tag)
    }

    pub(crate) fn gateway(&self, number: usize) -> String {
        format!("{}-{number}", self.tag)
    }

    fn wire(&self) {
        let router = self.router();
        let wire = |port: &str, there: &str, [own, its]: [&str; 2], [own6, its6]: [&str; 2]| {
            set(&format!("link add {port} netns {router} type veth peer name e0 netns {there}"));
            set(&format!("-n {router} addr add {own} dev {port}"));
            set(&format!("-n {router} addr add {own6} dev {port} nodad"));
            set(&format!("-n {there} addr add {its} dev e0"));
            set(&format!("-n {there} addr add {its6} dev e0 nodad"));
            set(&format!("-n {router} link set {port} up"));
            set(&format!("-n {there} link set e0 up"));
            for way in [own, own6] {
                let (way, _) = way.split_once('/').expect("a prefix");
                set(&format!("-n {there} route add default via {way}"));
            }
        };
        let players = self.players();
        wire("p", &players, ["10.2.0.1/16", "10.2.0.2/16"], ["fd02::1/64", "fd02::2/64"]);
        for way in [
            "net.ipv4.ip_forward=1",
            "net.ipv4.fib_multipath_hash_policy=1",
            "net.ipv6.conf.all.forwarding=1",
            "net.ipv6.fib_multipath_hash_policy=1",
        ] {
            set(&format!("netns exec {router} sysctl -qw {way}"));
        }
        for number in 1..=GATEWAYS {
            let there = self.gateway(number);
            let at = |end: usize| format!("10.1.{number}.{end}/24");
            let at6 = |end: usize| format!("fd01:{number}::{end}/64");
            let (port, ends, ends6) = (format!("g{number}"), [at(1), at(2)], [at6(1), at6(2)]);
            wire(&port, &there, [&ends[0], &ends[1]], [&ends6[0], &ends6[1]]);
            set(&format!("-n {there} addr add 10.9.9.9/32 dev lo"));
            set(&format!("-n {there} addr add fd99::9/128 dev lo nodad"));
            let hop = format!("-n {router} nexthop add id {number} via 10.1.{number}.2 dev {port}");
            set(&hop);
            set(&format!("-n {router} nexthop add id 2{number} via fd01:{number}::2 dev {port}"));
        }
        set(&format!("-n {router} nexthop add id 10 group 1"));
        set(&format!("-n {router} nexthop add id 20 group 21"));
        self.route(10, 20);
    }

    pub(crate) fn route(&self, v4: u32, v6: u32) {
        let router = self.router();
        set(&format!("-n {router} route replace 10.9.9.9/32 nhid {v4}"));
        set(&format!("-n {router} -6 route replace fd99::9/128 nhid {v6}"));
    }

    /// The router spreads players over these gateways now, in this order.
    pub(crate) fn spread(&self, over: &[usize]) {
        self.change("replace", [10, 20], over, "");
    }

    pub(crate) fn change(&self, how: &str, [v4, v6]: [u32; 2], over: &[usize], kind: &str) {
        let router = self.router();
        let group = |first: usize| {
            let all = over.iter().map(|number| (number + first).to_string());
            all.collect::<Vec<_>>().join("/")
        };
        set(format!("-n {router} nexthop {how} id {v4} group {} {kind}", group(0)).trim());
        set(format!("-n {router} nexthop {how} id {v6} group {} {kind}", group(20)).trim());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.names().filter(|_| self.is_own) {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(words: &str) -> bool {
    let said = Command::new("ip").args(words.split(' ')).output().expect("`ip` is there");
    if !said.status.success() {
        eprintln!("ip {words}: {}", String::from_utf8_lossy(&said.stderr));
    }
    said.status.success()
}

pub(crate) fn set(words: &str) {
    assert!(ip(words), "ip {words}");
}

/// Passes connections from where gateways reach it on to an etcd on loopback.
fn passed_on(endpoint: &str) -> String {
    let to: SocketAddr = endpoint.strip_prefix("http://").expect("http").parse().expect("an IP");
    let door = TcpListener::bind("10.2.0.2:0").expect("our address");
    let at = door.local_addr().expect("bound");
    std::thread::spawn(move || {
        for one in door.incoming().map_while(Result::ok) {
            let Ok(other) = TcpStream::connect(to) else { continue };
            for (from, to) in [(&one, &other), (&other, &one)] {
                let (from, to) = (from.try_clone().expect("fds"), to.try_clone().expect("fds"));
                std::thread::spawn(move || pass(from, to));
            }
        }
    });
    format!("http://{at}")
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16384];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The cluster.
pub(crate) struct Cluster {
    pub(crate) network: Network,
    fleet: Fleet,
    etcd: String,
    pub(crate) folder: Folder,
    pub(crate) lines: Vec<Line>,
    behind: Behind,
    games: Vec<Game>,
    pub(crate) hosted: Option<(Agent, [Program; 5])>,
}

/// What game processes are behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// All gateways have the same agent: one process has the library, one knows nothing of
    /// gateways.
    Agent,
    /// Each gateway has a process on its own host.
    Nothing,
}

impl Cluster {
    fn start(network: Network, behind: Behind) -> Option<Self> {
        let (fleet, folder) = (Fleet::start()?, Folder::new());
        let names = (1..=GATEWAYS).map(|number| {
            let is = format!("DNS:gate-{number}.fra.ringgate-cluster,IP:10.1.{number}.2");
            (format!("gate-{number}"), is)
        });
        let agent = ("host-7".to_owned(), "DNS:host-7".to_owned());
        let names = names.chain([agent]).collect::<Vec<_>>();
        let names = names.iter().map(|(name, is)| (&**name, &**is)).collect::<Vec<_>>();
        if !certificates(&folder, &names) {
            return None;
        }
        let etcd = passed_on(&fleet.endpoint());
        let (lines, games) = (Vec::new(), Vec::new());
        let hosted = None;
        let mut cluster = Self { network, fleet, etcd, folder, lines, behind, games, hosted };
        if behind == Behind::Agent {
            cluster.hosted = Some(host(&cluster.folder));
        }
        for number in 1..=GATEWAYS {
            let line = cluster.gateway(number);
            cluster.lines.push(line);
        }
        cluster.wait_until_complete();
        Some(cluster)
    }

    pub(crate) fn text(&self, number: usize) -> Text {
        let mut text = Text::new();
        text.namespace = Some(self.network.gateway(number));
        text.gateway = text.gateway.replace("workers = 1", "workers = 2");
        text.gateway.push_str("reserve_sessions = 300\n");
        text.bind = BINDS;
        text.has_admin = false;
        let limits = "limits = { requests_per_block = 0, handshakes_per_block = 0 }\n";
        text.listener.push_str(limits);
        text.backends = text.backends.replace("slots = 4", "slots = 100");
        let name = format!("gate-{number}");
        let table = self.fleet.table(&name).replace(&self.fleet.endpoint(), &self.etcd);
        text.backends.push_str(&table);
        let path = self.folder.path().display();
        let us = if self.behind == Behind::Agent { "shooter" } else { "arena" };
        if self.behind == Behind::Agent {
            let (arena, _) = text.backends.split_once("[fleet]").expect("its table");
            let more =
                ["shooter", "doom", "quake", "gears"].map(|name| arena.replace("arena", name));
            text.backends.push_str(&more.concat());
            for (name, place) in ["doom", "quake"].iter().zip(PLAIN_PLACES) {
                writeln!(
                    text.more,
                    "[[listener]]\nname = \"{name}\"\nprotocol = \"plain\"\n\
                     bind = [\"{place}\"]\nmax_sessions = 100\nbackends = [\"{name}\"]"
                );
            }
            writeln!(
                text.more,
                "[[listener]]\nname = \"messages\"\nprotocol = \"netcode\"\n\
                     bind = [\"{MESSAGES_PLACE}\"]\nprotocol_id = \"{PROTOCOL_ID:#x}\"\n\
                     max_sessions = 100\nkeys = [{{ hex = \"{KEY_HEX}\" }}]\n\
                     backends = [\"arena\"]\n{DELIVERS}{limits}"
            );
            writeln!(
                text.more,
                "[[listener]]\nname = \"gears\"\nprotocol = \"unreal\"\n\
                 bind = [\"{UNREAL_PLACE}\"]\nmax_sessions = 100\nbackends = [\"gears\"]"
            );
            writeln!(
                text.more,
                "[[agent]]\nname = \"host-7\"\nbind = \"10.1.{number}.2:4900\"\n\
                     ca = \"{path}/ca.pem\"\ncertificate = \"{path}/{name}.pem\"\n\
                     key = \"{path}/{name}.key\"\nbackends = [\"arena\", \"shooter\", \"doom\", \"quake\", \"gears\"]"
            );
        }
        writeln!(
            text.more,
            "[[listener]]\nname = \"us\"\nprotocol = \"netcode\"\nbind = [\"10.9.9.9:40001\"]\n\
                 protocol_id = \"{PROTOCOL_ID:#x}\"\nmax_sessions = 100\n\
                 keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"{us}\"]\n{limits}\
                 [cluster]\nname = \"fra\"\nbind = \"10.1.{number}.2:4700\"\n\
                 ca = \"{path}/ca.pem\"\n\
                 certificate = \"{path}/{name}.pem\"\nkey = \"{path}/{name}.key\""
        );
        text
    }

    pub(crate) fn gateway(&mut self, number: usize) -> Line {
        let line = Line::of(Daemon::start(&self.text(number)));
        if self.behind == Behind::Nothing {
            self.games.push(Game::start(&line.daemon, "arena"));
        }
        line.daemon.ready();
        line
    }

    /// The agent is gone, and is started again.
    pub(crate) fn host_again(&mut self) {
        if let Some((agent, _)) = &mut self.hosted {
            *agent = Agent::start(&self.folder);
        }
    }

    /// Each gateway knows of all players of each other, and can go on with their sessions.
    pub(crate) fn wait_until_complete(&self) {
        for line in &self.lines {
            wait_for("members that have told of all players", || {
                let status = line.daemon.status();
                status["cluster"]["incarnation"].as_u64()?;
                let members = status["cluster"]["members"].as_array()?.clone();
                let is_there = |it: &serde_json::Value| {
                    ["forwards", "complete", "can_stand_by"].iter().all(|what| it[*what] == true)
                };
                let count = members.iter().filter(|it| is_there(it)).count();
                (count + 1 == self.lines.len()).then_some(())
            });
        }
    }

    /// A sum over all members that a gateway has.
    pub(crate) fn sum(&self, number: usize, what: &str) -> u64 {
        let status = self.lines[number - 1].daemon.status();
        let members = status["cluster"]["members"].as_array().expect("members").clone();
        members.iter().filter_map(|it| it[what].as_u64()).sum()
    }

    pub(crate) fn forwarded(&self) -> u64 {
        (1..=self.lines.len()).map(|number| self.sum(number, "forwarded_out")).sum()
    }

    /// Every gateway accounts for each datagram.
    pub(crate) fn is_conserved(&self) {
        for line in &self.lines {
            let page = line.daemon.ask("/metrics");
            assert_eq!(page.sum("ringgate_conserved", ""), Some(2), "{}", line.daemon.log());
        }
    }
}

/// Another member has a session of each of these.
pub(crate) fn wait_until_all_stand_by(cluster: &Cluster, players: u64) {
    for line in &cluster.lines {
        wait_for("standbys", || {
            let status = line.daemon.status();
            let owned = status["cluster"]["sessions"]["owned"].as_u64()?;
            let members = status["cluster"]["members"].as_array()?.clone();
            let stood: u64 = members.iter().filter_map(|it| it["stands_by"].as_u64()).sum();
            (stood == owned).then_some(())
        });
    }
    assert_eq!(sum(cluster, "owned"), players);
}

/// All gateways together have so many sessions that others could go on with.
pub(crate) fn wait_until_owned(cluster: &Cluster, players: u64) {
    wait_for("sessions that are owned", || (sum(cluster, "owned") == players).then_some(()));
}

/// A number of all gateways.
pub(crate) fn sum(cluster: &Cluster, what: &str) -> u64 {
    let sessions = cluster.lines.iter().map(|line| line.daemon.status()["cluster"].clone());
    sessions.filter_map(|it| it["sessions"][what].as_u64()).sum()
}

/// Has a gateway give all that it has to others, and end.
pub(crate) fn empty(line: &Line) {
    let config = line.daemon.folder.join("gate.toml");
    let asked = ["drain", "--hand-over", "--deadline", "10m", "--config"].map(OsStr::new);
    let said = run(ringgate(asked.into_iter().chain([config.as_os_str()])));
    assert!(said.succeeded().starts_with("draining: "));
}

pub(crate) fn still_connected(players: &mut [Player]) {
    assert!(players.iter_mut().all(Player::is_connected));
}

pub(crate) fn player(place: &str, client_id: u64) -> Player {
    let at: SocketAddr = place.parse().expect("an address");
    let token = token(&[at], client_id, KEY_HEX, 60);
    let mut player = if at.is_ipv4() {
        Player::holding([10, 2, 0, 2], &token)
    } else {
        Player::holding_at("[fd02::2]:0".parse().expect("an address"), &token)
    };
    player.connect();
    player
}

/// At every place some, from `first` on.
pub(crate) fn all(first: u64) -> Vec<Player> {
    let ids = first..;
    let places = PLACES.iter().cycle().take(PLACES.len() * PLAYERS);
    places.zip(ids).map(|(place, id)| player(place, id)).collect()
}

/// Each sends something, and hears it once; and again something else for as long as it hears
/// nothing: what a gateway drops that was kept from its turns does not come again by itself.
pub(crate) fn play(players: &mut [Player], round: u32) {
    let mut sent: Vec<_> = players.iter_mut().map(|it| vec![say_something(it, round)]).collect();
    let clock = Clock::start();
    for (player, sent) in players.iter_mut().zip(&mut sent) {
        let mut sent_ns = clock.now_ns();
        let mut heard = Vec::new();
        wait_for("an echo", || {
            heard.extend(of_this_game(player));
            if heard.is_empty() && clock.now_ns() > sent_ns + SAY_AGAIN_NS {
                sent.push(say_something(player, round));
                sent_ns = clock.now_ns();
            }
            (!heard.is_empty()).then_some(())
        });
        heard.extend(of_this_game(player));
        for echo in heard {
            let before = sent.len();
            sent.retain(|it| *it != echo);
            let is_late = late().remove(&echo);
            assert!(sent.len() < before || is_late, "{} heard {echo:?}", player.local());
        }
    }
    late().extend(sent.into_iter().flatten());
}

/// Players send nothing twice.
fn say_something(player: &mut Player, round: u32) -> Vec<u8> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    // Not the longest, and not so short that a datagram of the trunk holds many.
    let mut bytes = vec![0; 40 + round as usize % 7 * 190];
    bytes[..4].copy_from_slice(&serial.to_be_bytes());
    player.play_once(&bytes);
    bytes
}

/// What was sent and not heard so far.
fn late() -> MutexGuard<'static, BTreeSet<Vec<u8>>> {
    static LATE: Mutex<BTreeSet<Vec<u8>>> = Mutex::new(BTreeSet::new());
    LATE.lock().expect("nobody has panicked")
}

/// What has come, but for late answers to [`longest_silence`].
fn of_this_game(player: &mut Player) -> impl Iterator<Item = Vec<u8>> {
    player.turn().into_iter().filter(|it| it != PROBE)
}

/// A test that fails says how it stood.
impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let counts = |page: &str| {
            let is_one = |it: &&str| {
                let is_count = ["drop", "refused", "taken_over"].iter().any(|of| it.contains(of));
                is_count && !it.starts_with('#') && !it.ends_with(" 0")
            };
            page.lines().filter(is_one).for_each(|it| eprintln!("  {it}"));
        };
        for line in &self.lines {
            eprintln!("{}", line.daemon.status()["cluster"]);
            counts(&line.daemon.get("/metrics").body);
            eprintln!("{}", line.daemon.log());
        }
        if let Some((agent, _)) = &self.hosted {
            counts(&agent.get("/metrics").body);
        }
    }
}

/// An agent for all gateways, and its game processes.
fn host(folder: &Folder) -> (Agent, [Program; 5]) {
    let gateways = (1..=GATEWAYS).map(|number| format!("\"10.1.{number}.2:4900\""));
    let gateways = gateways.collect::<Vec<_>>().join(", ");
    let text = format!(
        "[agent]\nname = \"host-7\"\ngateways = [{gateways}]\nca = \"ca.pem\"\n\
         certificate = \"host-7.pem\"\nkey = \"host-7.key\"\nrun_dir = \"host\"\n\
         drain_timeout = \"0s\"\n\
         [[backend]]\nname = \"arena\"\nslots = 200\nlink = \"bundle\"\n\
         [[backend]]\nname = \"shooter\"\nslots = 200\nlink = \"udp\"\n\
         address = \"127.0.0.1:7777\"\n\
         [[backend]]\nname = \"doom\"\nslots = 200\nlink = \"bundle\"\n\
         [[backend]]\nname = \"quake\"\nslots = 200\nlink = \"udp\"\n\
         address = \"127.0.0.1:7778\"\n\
         [[backend]]\nname = \"gears\"\nslots = 200\nlink = \"udp\"\n\
         address = \"127.0.0.1:7779\"\n"
    );
    folder.file("agent.toml", text, 0o600);
    let agent = Agent::start(folder);
    let run_dir = folder.join("host").display().to_string();
    let [arena, doom] = ["arena", "doom"].map(|it| echo(&["--socket", &run_dir, "--name", it]));
    let [shooter, quake] = ["127.0.0.1:7777", "127.0.0.1:7778"].map(|it| echo(&["--udp", it]));
    let games = [arena, shooter, doom, quake, echo(&["--unreal", "127.0.0.1:7779"])];
    (agent, games)
}

/// Runs the test of this name where its players are.
pub(crate) fn among_players(test: &str, behind: Behind, play: impl FnOnce(Cluster)) {
    if let Some((_, tag)) = netns::role() {
        if let Some(cluster) = Cluster::start(Network::of(&tag), behind) {
            play(cluster);
        }
        return;
    }
    let Some(network) = Network::new() else { return };
    let said = netns::role_in(&network.players(), test, "players", &network.tag).output();
    let said = said.expect("`ip` is there");
    let text = [said.stdout, said.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(said.status.success(), "{text}");
    text.lines()
        .filter(|it| it.contains("SKIPPED") || it.contains("gap"))
        .for_each(|it| eprintln!("{it}"));
}

/// How long a player of [`play`] waits.
const SAY_AGAIN_NS: u64 = 500_000_000;

const PROBE: &[u8] = b"is anybody there";

/// The longest time in which some player heard nothing, until a moment after it `is_over`. That may
/// take a busy machine long, as long as somebody hears something.
pub(crate) fn longest_silence(players: &mut [Player], is_over: impl Fn() -> bool) -> Duration {
    let clock = Clock::start();
    let (mut heard_ns, mut longest_ns) = (vec![0; players.len()], 0);
    let (mut over_ns, patience_ns) = (None, PATIENCE.as_nanos() as u64);
    loop {
        let now_ns = clock.now_ns();
        let last_ns = heard_ns.iter().copied().max().unwrap_or_default();
        assert!(now_ns < last_ns + patience_ns, "players hear nothing any more");
        assert!(now_ns < 10 * patience_ns, "it is not over, or some player hears nothing");
        if is_over() {
            let over_ns = *over_ns.get_or_insert(now_ns);
            let all_heard = heard_ns.iter().all(|heard| *heard > over_ns + 500_000_000);
            if all_heard {
                return Duration::from_nanos(longest_ns);
            }
        }
        for (player, heard_ns) in players.iter_mut().zip(&mut heard_ns) {
            player.play_once(PROBE);
            let now_ns = clock.now_ns();
            if !player.turn().is_empty() {
                *heard_ns = now_ns;
            }
            longest_ns = longest_ns.max(now_ns - *heard_ns);
        }
        clock::sleep(Duration::from_millis(1));
    }
}

//! The processes of the fleet, each in its namespace, with the means to kill and start them again.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringgate_core::netcode::ConnectToken;
use ringgate_loadgen::measure::gateway::{Admin, Gateway, Glimpse};
use ringgate_report::text::Append as _;
use serde_json::Value;

use super::game::Game;
use super::network::{address, namespace};
use crate::netns::role_in;

pub(super) const PREFIX: &str = "/fleet";
/// All gateways and game servers are containers of one host.
pub(super) const HOST: &str = "big";
pub(super) const SECRET: &str = "a-matchmaker-of-a-test";
/// From when on a player who says nothing is gone.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// How long a token lives. A client gives up in the midst of a handshake when its token ends, and
/// says nothing: where etcd was away just as long, its gateway challenged it at the last moment,
/// and began a session for it when it had gone. With this it goes on to the next gateway long
/// before, after a silence of the gateway, which has challenged nobody then.
pub(super) const LIFE_S: u64 = 60;
/// Game servers of the small group, which more players want to than there are slots.
pub(super) const DUELS: u32 = 2;
pub(super) const DUEL_SLOTS: u32 = 10;
/// The last game servers stand behind agents on hosts of their own, half of them behind each.
pub(super) const BEHIND: u32 = 6;
pub(super) const AGENTS: u32 = 2;
pub(super) const BEHIND_EACH: u32 = BEHIND / AGENTS;

/// How large the fleet is.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) players: u32,
    pub(super) games: u32,
}

impl Size {
    /// The issue's own size takes minutes on a small machine; by default it is smaller.
    pub(super) fn of_env() -> Self {
        let number = |name: &str, default| {
            std::env::var(name).ok().map_or(default, |it| it.parse().expect("a number"))
        };
        Self { players: number("FLEET_PLAYERS", 240), games: number("FLEET_GAMES", 20) }
    }

    /// Enough for everybody and for those who come back before their places are free.
    pub(super) const fn slots(self) -> u32 {
        (self.players * 2).div_ceil(self.games - DUELS)
    }

    /// The agent that a game server stands behind, if it does.
    pub(super) fn agent_of(self, game: u32) -> Option<u32> {
        let at = game.checked_sub(self.games - BEHIND)?;
        Some(at / BEHIND_EACH + 1)
    }
}

/// A process that can be killed and started again.
pub(super) struct Part {
    command: Box<dyn Fn() -> Command>,
    log: PathBuf,
    child: Option<Child>,
}

impl Part {
    fn start(log: PathBuf, command: impl Fn() -> Command + 'static) -> Self {
        let mut part = Self { command: Box::new(command), log, child: None };
        part.revive();
        part
    }

    pub(super) fn revive(&mut self) {
        let log = || File::options().create(true).append(true).open(&self.log).expect("a log");
        let mut command = (self.command)();
        command.stdin(Stdio::null()).stdout(log()).stderr(log());
        self.child = Some(command.spawn().expect("it starts"));
    }

    /// As a power cut ends it.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks it to end, and waits until it has.
    pub(super) fn end(&mut self) {
        let Some(child) = &mut self.child else { return };
        let id = child.id().to_string();
        let _ = Command::new("kill").args(["-s", "INT", &id]).status();
        super::until("it has ended", || child.try_wait().expect("our child").is_some());
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Everything that runs.
pub(super) struct Parts {
    pub(super) tag: String,
    pub(super) folder: PathBuf,
    pub(super) size: Size,
    pub(super) etcd: Part,
    pub(super) gates: Vec<Part>,
    pub(super) tokens: Vec<Part>,
    pub(super) games: Vec<Part>,
    pub(super) agents: Vec<Part>,
}

/// The daemon's program, inside of a namespace.
fn ringgate_in(tag: &str, part: &str, args: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace(tag, part)]);
    command.arg(env!("CARGO_BIN_EXE_ringgate")).args(args);
    command
}

pub(super) fn etcd_url() -> String {
    format!("http://{}:2379", address("etcd"))
}

impl Parts {
    pub(super) fn start(tag: &str, folder: &Path, size: Size) -> Self {
        let etcd = start_etcd(tag, folder);
        let parts = Self {
            tag: tag.into(),
            folder: folder.into(),
            size,
            etcd,
            gates: Vec::new(),
            tokens: Vec::new(),
            games: Vec::new(),
            agents: Vec::new(),
        };
        parts.make_keys();
        let games = (0..size.games).map(|number| start_game(tag, folder, size, number)).collect();
        let gates = (1..=3).map(|number| start_gate(tag, folder, number)).collect();
        let tokens = (1..=2).map(|number| start_tokens(tag, folder, number)).collect();
        let agents = (1..=AGENTS).map(|number| start_agent(tag, folder, size, number)).collect();
        Self { gates, tokens, games, agents, ..parts }
    }

    fn make_keys(&self) {
        let key = self.folder.join("fleet.key");
        write_closed(&key, &"5".repeat(64));
        write_closed(&self.folder.join("secret"), SECRET);
        let key = key.display().to_string();
        super::until("the keys are made", || {
            let args = ["init", "main", "duel", "--key", &key];
            fleet(&args).is_some_and(|said| said.contains("main: "))
        });
    }

    /// Everything that goes wrong is easier to understand with what all of them said.
    pub(super) fn logs(&self) -> String {
        let all = self.gates.iter().chain(&self.tokens).chain(&self.agents).chain([&self.etcd]);
        let last = |part: &Part| {
            let log = part.log();
            let lines: Vec<_> = log.lines().rev().take(12).collect();
            format!("--- {}\n{}\n", part.log.display(), lines.join("\n"))
        };
        all.map(last).collect()
    }
}

/// `ringgate fleet`, as an operator says it; `None` if it fails.
pub(super) fn fleet(args: &[&str]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringgate"));
    command.arg("fleet").args(args).args(["--endpoint", &etcd_url(), "--fleet", PREFIX]);
    let ran = command.output().expect("the binary was built");
    ran.status.success().then(|| String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// What a gateway says of itself, as of now.
pub(super) fn glimpse(gate: usize) -> Glimpse {
    glimpse_of(&control_of(gate))
}

/// What an agent does.
pub(super) fn agent_glimpse(number: u32) -> Glimpse {
    glimpse_of(Path::new(&format!("agent{number}/control.sock")))
}

/// The control socket of a gateway, which is reached whatever the gateway is cut off from.
pub(super) fn control_of(gate: usize) -> PathBuf {
    format!("run{}/control.sock", gate + 1).into()
}

/// One that is dead shows nothing. One that lives and has no time to answer is asked again.
fn glimpse_of(control: &Path) -> Glimpse {
    let gateway = Gateway { pid: None, admin: Some(Admin::Control(control.to_owned())) };
    let mut glimpse = Glimpse::default();
    super::until("one that listens answers", || {
        glimpse = gateway.look();
        glimpse.is_seen || UnixStream::connect(control).is_err()
    });
    glimpse
}

/// The metrics of a token service.
pub(super) fn service_page(service: usize) -> String {
    let host = address(&format!("tokens{}", service + 1));
    let page = crate::control_rig::request((host, 7400).into(), "GET", "/metrics", "");
    page.map(|it| it.body).unwrap_or_default()
}

fn write_closed(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().create(true).write(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("the folder is ours");
}

fn start_etcd(tag: &str, folder: &Path) -> Part {
    let (namespace, data) = (namespace(tag, "etcd"), folder.join("etcd"));
    Part::start(folder.join("etcd.log"), move || {
        let clients = etcd_url();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace, "etcd", "--data-dir"]).arg(&data);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--logger", "zap", "--log-level", "error"]);
        command
    })
}

fn fleet_table(name: &str) -> String {
    format!(
        "[fleet]\nendpoints = [\"{}\"]\nprefix = \"{PREFIX}\"\nname = \"{name}\"\nregion = \"here\"\n\
         host = \"{HOST}\"\nkey = {{ file = \"fleet.key\" }}\nlease = \"3s\"\n",
        etcd_url()
    )
}

fn start_gate(tag: &str, folder: &Path, number: u32) -> Part {
    let name = format!("gate{number}");
    let ip = address(&name);
    let listener = |name: &str, group: &str, port: u16| {
        format!(
            "[[listener]]\nname = \"{name}\"\nprotocol = \"netcode\"\nbind = [\"{ip}:{port}\"]\n\
             protocol_id = \"0x7\"\nmax_sessions = 6000\nkeep_alive = \"1s\"\n\
             group = \"{group}\"\nroute = \"user-data\"\n"
        )
    };
    let text = format!(
        "{}grace = \"30s\"\n[gateway]\nworkers = 1\npin = false\nrun_dir = \"run{number}\"\n\
         state_dir = \"state{number}\"\n[admin]\nbind = \"{ip}:9000\"\n\
         [[agent]]\nname = \"*\"\nbind = \"{ip}:7200\"\nca = \"ca.pem\"\n\
         certificate = \"gates.pem\"\nkey = \"gates.key\"\nbackends = \"fleet\"\n{}{}",
        fleet_table(&name),
        listener("main", "arena", 40_000),
        listener("duel", "duels", 40_001),
    );
    let config = folder.join(format!("{name}.toml"));
    write_closed(&config, &text);
    let (tag, config) = (tag.to_owned(), config.display().to_string());
    let log = folder.join(format!("{name}.log"));
    Part::start(log, move || ringgate_in(&tag, &name, &["run", "--config", &config]))
}

/// Who has a certificate: the gateways one for all their addresses, each agent its own.
pub(super) fn certified() -> [(&'static str, String); 3] {
    let gates = ["gate1", "gate2", "gate3"].map(|it| format!("IP:{}", address(it)));
    [("gates", gates.join(",")), ("agent1", "DNS:agent1".into()), ("agent2", "DNS:agent2".into())]
}

/// An agent, with the game servers behind it.
fn start_agent(tag: &str, folder: &Path, size: Size, number: u32) -> Part {
    let name = format!("agent{number}");
    let table = fleet_table(&name).replace(&format!("name = \"{name}\"\n"), "");
    let table = table.replace(&format!("host = \"{HOST}\""), &format!("host = \"{name}\""));
    let mut text = format!(
        "{table}[agent]\nname = \"{name}\"\nca = \"ca.pem\"\ncertificate = \"{name}.pem\"\n\
         key = \"{name}.key\"\nrun_dir = \"{name}\"\nstate_dir = \"{name}-state\"\n\
         [admin]\nbind = \"{}:9000\"\n",
        address(&name),
    );
    for game in (0..size.games).filter(|game| size.agent_of(*game) == Some(number)) {
        writeln!(
            text,
            "[[backend]]\nname = \"game{game}\"\nlink = \"udp\"\naddress = \"{}\"\n\
                 slots = {}\ngroup = \"arena\"",
            behind_agent(game),
            size.slots(),
        );
    }
    let config = folder.join(format!("{name}.toml"));
    write_closed(&config, &text);
    let (tag, config) = (tag.to_owned(), config.display().to_string());
    let log = folder.join(format!("{name}.log"));
    Part::start(log, move || ringgate_in(&tag, &name, &["agent", "--config", &config]))
}

/// Where a game server listens that is behind an agent.
fn behind_agent(game: u32) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 7777 + game as u16).into()
}

fn start_tokens(tag: &str, folder: &Path, number: u32) -> Part {
    let name = format!("tokens{number}");
    let text = format!(
        "{}[tokens]\nbind = [\"{}:7400\"]\nmax_addresses = 2\nwhen_away = \"refuse\"\n\
         [[caller]]\nname = \"matchmaker\"\nscopes = [\"tokens\", \"see\"]\n\
         secret = {{ file = \"secret\" }}\n",
        fleet_table(&name),
        address(&name),
    );
    let config = folder.join(format!("{name}.toml"));
    write_closed(&config, &text);
    let (tag, config) = (tag.to_owned(), config.display().to_string());
    let log = folder.join(format!("{name}.log"));
    Part::start(log, move || ringgate_in(&tag, &name, &["tokens", "--config", &config]))
}

/// The game server of this number. The first ones are those of the small group.
fn start_game(tag: &str, folder: &Path, size: Size, number: u32) -> Part {
    let (is_duel, name) = (number < DUELS, format!("game{number}"));
    let agent = size.agent_of(number).map(|agent| format!("agent{agent}"));
    let namespace = namespace(tag, agent.as_ref().unwrap_or(&name));
    let address = match agent {
        Some(_) => behind_agent(number),
        None => (address(&name), 7777).into(),
    };
    let log = folder.join(format!("{name}.log"));
    let told = Game {
        name,
        group: if is_duel { "duels" } else { "arena" }.into(),
        address,
        slots: if is_duel { DUEL_SLOTS } else { size.slots() },
        etcd: if agent.is_some() { String::new() } else { etcd_url() },
        folder: folder.into(),
    };
    let words = told.words();
    Part::start(log, move || role_in(&namespace, super::TEST, "game", &words))
}

/// Players of the load generator who ask both token services for a group of game servers.
pub(super) fn start_players(parts: &Parts, group: &str, at: &str, scenario: &str) -> Part {
    let file = parts.folder.join(format!("{group}-scenario.toml"));
    std::fs::write(&file, scenario).expect("the folder is ours");
    let services = ["tokens1", "tokens2"].map(|it| format!("{}:7400", address(it))).join(",");
    let (secret, out) = (parts.folder.join("secret"), parts.folder.join(group));
    // The players' sessions end as soon as their game server has forgotten them.
    let request =
        format!("{{\"group\":\"{group}\",\"expire\":{LIFE_S},\"timeout\":{}}}", SILENCE.as_secs());
    let words = format!(
        "run --token-service {services} --token-secret {} --token-request {request} --come-back \
         --scenario {} --players-at {at} --out {} --json --arrivals ticks --keep-alive 1s",
        secret.display(),
        file.display(),
        out.display(),
    );
    let namespace = namespace(&parts.tag, "players");
    let log = parts.folder.join(format!("{group}.log"));
    Part::start(log, move || role_in(&namespace, super::TEST, "players", &words))
}

/// Asks a token service.
pub(super) fn ask(service: usize, body: &str) -> std::io::Result<(u16, Value)> {
    let service = SocketAddr::from((address(&format!("tokens{}", service + 1)), 7400));
    let mut stream = TcpStream::connect_timeout(&service, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let length = body.len();
    write!(
        stream,
        "POST /v1/tokens HTTP/1.1\r\nHost: tokens\r\nConnection: close\r\n\
         Authorization: Bearer {SECRET}\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    Ok((status, serde_json::from_str(body).unwrap_or_default()))
}

/// A token, asked for until there is one.
pub(super) fn token(body: &str) -> ConnectToken {
    let (mut services, mut token) = ((0..2).cycle(), None);
    super::until("a service gives a token", || {
        match ask(services.next().expect("it is endless"), body) {
            Ok((200, answer)) => {
                use base64::Engine as _;
                let text = answer["token"].as_str().expect("a token");
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                token = Some(ConnectToken::decode(&bytes.expect("base64")).expect("a token"));
            }
            Ok((503 | 429, _)) | Err(_) => {}
            Ok(other) => panic!("{body}: {other:?}"),
        }
        token.is_some()
    });
    token.expect("it was waited for")
}

//! A daemon that one test owns, the players and the game process around it, and a look at its admin
//! address.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_core::netcode::{self, Client, ConnectToken, Notice, State, TokenSpec};
use ringgate_core::secret::Key;
use ringgate_link::backend::{Event, Options, Outbox};
use ringgate_os::clock::{self, Clock};
use ringgate_report::hlog;

use crate::command::{Ending, ringgate, run};
use crate::folder::Folder;

/// Longer than any step of a test takes on a busy machine; only a test that fails waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Longer than any player of a test says nothing, who is busy with something else meanwhile.
const SILENCE_S: i32 = 600;

pub(crate) const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;

const BACKEND: &str =
    "[[backend]]\nname = \"arena\"\nlink = \"bundle\"\nslots = 4\ngrace = \"10m\"\n";

/// The key of the daemon's listener, unless a test says otherwise.
pub(crate) const KEY_HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Looks again and again until there is something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::start();
    while clock.now_ns() < PATIENCE.as_nanos() as u64 {
        if let Some(found) = look() {
            return found;
        }
        clock::sleep(Duration::from_millis(5));
    }
    panic!("waited for {what} in vain");
}

/// The parts of a config that tests vary.
#[derive(Clone)]
pub(crate) struct Text {
    pub(crate) gateway: String,
    pub(crate) listener: String,
    pub(crate) backends: String,
    pub(crate) more: String,
    /// Fields of `[admin]` beside `bind`.
    pub(crate) admin: String,
    pub(crate) has_admin: bool,
    pub(crate) max_sessions: usize,
    /// Where link sockets and the control socket are, if not in the daemon's own folder.
    pub(crate) run_dir: Option<PathBuf>,
    /// The listener's addresses.
    pub(crate) bind: &'static str,
    /// The network namespace that the daemon runs in, where it is not the test's.
    pub(crate) namespace: Option<String>,
}

impl Text {
    /// One worker, one listener, one bundle backend named `arena`, whose players wait for a game
    /// process that is away for longer than a test is away itself.
    pub(crate) fn new() -> Self {
        Self {
            gateway: "workers = 1\npin = false\ndrain_timeout = \"1h\"\n".to_owned(),
            listener: format!("keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"arena\"]\n"),
            backends: BACKEND.to_owned(),
            more: String::new(),
            admin: String::new(),
            has_admin: true,
            max_sessions: 100,
            run_dir: None,
            bind: "\"127.0.0.1:0\"",
            namespace: None,
        }
    }

    /// `ringgate run` with a config, where the daemon is to run.
    fn command(&self, config: &Path) -> Command {
        let run = ringgate(["run".as_ref(), "--config".as_ref(), config.as_os_str()]);
        let Some(namespace) = &self.namespace else { return run };
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", namespace]).arg(run.get_program()).args(run.get_args());
        inside
    }

    fn in_full(&self, run_dir: &Path) -> String {
        let run_dir = self.run_dir.as_deref().unwrap_or(run_dir).display();
        let mut text = format!("[gateway]\n{}run_dir = \"{run_dir}\"\n", self.gateway);
        if !self.gateway.contains("state_dir") {
            text.push_str("state_dir = \"state\"\n");
        }
        let admin = format!("[admin]\nbind = \"127.0.0.1:0\"\n{}", self.admin);
        let admin = if self.has_admin { admin.as_str() } else { "" };
        write!(
            text,
            "[[listener]]\nname = \"eu\"\nprotocol = \"netcode\"\nbind = [{}]\n\
             protocol_id = \"{PROTOCOL_ID:#x}\"\nmax_sessions = {}\n{}{}{admin}{}",
            self.bind, self.max_sessions, self.listener, self.backends, self.more
        )
        .expect("strings grow");
        text
    }
}

/// `ringgate run`, killed when dropped.
pub(crate) struct Daemon {
    child: Ending,
    pub(crate) folder: Folder,
    run_dir: PathBuf,
    pub(crate) listener: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// What it said when it was ready.
    pub(crate) ready: String,
    /// Kept open: a daemon does not end because nobody reads it, but a test should not find out.
    _stdout: BufReader<ChildStdout>,
}

impl Daemon {
    pub(crate) fn start(text: &Text) -> Self {
        Self::start_with(text, |_, _| {})
    }

    /// Starts one whose command line or environment a test changes.
    pub(crate) fn start_with(text: &Text, change: impl FnOnce(&mut Command, &Folder)) -> Self {
        let folder = Folder::new();
        let config = folder.file("gate.toml", text.in_full(&folder.join("run")), 0o600);
        let log = std::fs::File::create(folder.join("log")).expect("a log file");
        let mut command = text.command(&config);
        command.stdout(Stdio::piped()).stderr(log);
        change(&mut command, &folder);
        let mut child = Ending(command.spawn().expect("the binary was built"));
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (mut listener, mut admin) = (None, None);
        let ready = loop {
            let mut line = String::new();
            let len = stdout.read_line(&mut line).expect("text");
            if len == 0 {
                let log = std::fs::read_to_string(folder.join("log")).expect("a log");
                panic!("the daemon did not start: {log}");
            }
            let address = |rest: &str| rest.trim().parse().expect("an address");
            if let Some(rest) = line.strip_prefix("listener eu on ") {
                listener.get_or_insert_with(|| address(rest));
            } else if let Some(rest) = line.strip_prefix("admin on ") {
                admin = Some(address(rest));
            } else if line.starts_with("ready: ") {
                break line;
            }
        };
        let listener = listener.expect("the listener's address is printed");
        assert_eq!(admin.is_some(), text.has_admin, "the admin address is printed");
        let admin = admin.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let run_dir = text.run_dir.clone().unwrap_or_else(|| folder.join("run"));
        Self { child, folder, run_dir, listener, admin, ready, _stdout: stdout }
    }

    /// Starts one that does not come up; what it says.
    pub(crate) fn refused(text: &Text) -> String {
        Self::refused_with(text, |_| {})
    }

    /// The same with another command line.
    pub(crate) fn refused_with(text: &Text, change: impl FnOnce(&mut Command)) -> String {
        let folder = Folder::new();
        let config = folder.file("gate.toml", text.in_full(&folder.join("run")), 0o600);
        let mut command = text.command(&config);
        change(&mut command);
        let ran = run(command);
        assert_ne!(ran.code, Some(0), "{}", ran.stdout);
        ran.stderr
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where link sockets are.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.run_dir.clone()
    }

    /// The only histogram file, once it has an interval.
    pub(crate) fn histogram_file(&self) -> PathBuf {
        wait_for("an interval", || {
            let file = std::fs::read_dir(self.folder.join("hist")).ok()?.next()?.ok()?.path();
            let log = hlog::read(&std::fs::read(&file).ok()?).ok()?;
            (!log.intervals.is_empty()).then_some(file)
        })
    }

    /// What an ended daemon leaves.
    pub(crate) fn into_folder(self) -> Folder {
        // The daemon's end must not wait for the folder's, so the folder is taken out of what is
        // dropped.
        let mut this = self;
        std::mem::replace(&mut this.folder, Folder::new())
    }

    /// Replaces the config file, for a reload.
    pub(crate) fn rewrite(&self, text: &Text) {
        self.folder.file("gate.toml", text.in_full(&self.run_dir()), 0o600);
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).expect("a log")
    }

    /// `TERM`, `HUP` and so on.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill is there");
        assert!(sent.success());
    }

    /// Ends it without waiting for its players. The second word is for one that drains already: of
    /// two signals at once the kernel keeps one.
    pub(crate) fn end_at_once(&self) {
        self.signal("TERM");
        wait_for("the drain", || (self.status()["state"] == "draining").then_some(()));
        self.signal("TERM");
    }

    /// Waits until it has ended; its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        wait_for("the daemon's end", || self.child.try_wait().expect("our child")).code()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_none()
    }

    /// A page as everybody sees it who reaches the admin address; as of now where it is made of
    /// what is published.
    pub(crate) fn get(&self, path: &str) -> Page {
        if is_published(path) {
            return self.ask(path);
        }
        request(self.admin, "GET", path, "").expect("the admin address answers")
    }

    /// The control socket.
    pub(crate) fn control(&self) -> PathBuf {
        self.run_dir().join("control.sock")
    }

    pub(crate) fn post(&self, path: &str) -> Page {
        let stream = UnixStream::connect(self.control()).expect("the control socket listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        exchange(stream, "POST", path, "Host: localhost\r\n").expect("an answer")
    }

    /// A page that only the control socket shows, and one as of now where it is made of what is
    /// published.
    pub(crate) fn ask(&self, path: &str) -> Page {
        ask(&self.control(), path)
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        self.get("/status").json()
    }

    /// Waits until players can come.
    pub(crate) fn ready(&self) {
        wait_for("readiness", || (self.get("/readyz").status == 200).then_some(()));
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Page {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {}", self.body))
    }

    /// The value of a series that counts, written as in the text format.
    pub(crate) fn value(&self, series: &str) -> Option<u64> {
        let is_of_one = series.contains("worker=\"0\"") && self.body.contains("worker=\"1\"");
        assert!(!is_of_one, "{series}: which worker has a player is chance; take the sum");
        self.of_one(series)
    }

    /// The same of one of several workers, for tests in which it has to be that one.
    pub(crate) fn of_one(&self, series: &str) -> Option<u64> {
        let line = self
            .body
            .lines()
            .find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
    }

    /// What all workers have counted in a metric, in its series with this label; an empty one is
    /// every label.
    pub(crate) fn sum(&self, name: &str, label: &str) -> Option<u64> {
        let start = format!("{name}{{");
        let is_meant = |line: &&str| line.starts_with(&start) && line.contains(label);
        let counts = self.body.lines().filter(is_meant).filter_map(|line| line.rsplit(' ').next());
        counts.map(|count| count.parse::<u64>().ok()).reduce(|sum, count| Some(sum? + count?))?
    }
}

/// A page by a control socket. One that is made of what is published is as of now: what a test
/// reads may not depend on when that is done.
pub(crate) fn ask(control: &Path, path: &str) -> Page {
    if !is_published(path) {
        return try_ask(control, path).expect("an answer");
    }
    let now = format!("{path}{}as_of=now", if path.contains('?') { '&' } else { '?' });
    // While another process takes over, nobody may be there, or not all that publish.
    wait_for("a page as of now", || {
        let page = try_ask(control, &now).ok().filter(|it| it.status != 0);
        page.filter(|it| !it.body.starts_with("there is no page as of now"))
    })
}

/// The same once, whatever becomes of it.
pub(crate) fn try_ask(control: &Path, path: &str) -> std::io::Result<Page> {
    let stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(stream, "GET", path, "Host: localhost\r\n")
}

/// Whether a page is made of what is published now and then.
fn is_published(path: &str) -> bool {
    ["/status", "/metrics", "/readyz"].iter().any(|page| path.starts_with(page))
}

/// One request on a connection of its own.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
) -> std::io::Result<Page> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(stream, method, path, &format!("Host: {address}\r\n{headers}"))
}

fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &str,
) -> std::io::Result<Page> {
    // In one piece: etcd tells what it is spoken to by what comes first.
    let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok(Page { status, head: head.to_owned(), body: body.to_owned() })
}

/// A token that names these servers, under a key.
pub(crate) fn token(
    servers: &[SocketAddr],
    client_id: u64,
    key: &str,
    timeout_seconds: i32,
) -> ConnectToken {
    let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
    let spec = TokenSpec {
        timeout_seconds,
        lifetime_seconds: Some(600),
        ..TokenSpec::new(PROTOCOL_ID, client_id, servers.join(",").parse().expect("addresses"))
    };
    let key = Key::from_hex(key).expect("hex");
    netcode::mint(&spec, &key, clock::unix_seconds()).expect("random bytes")
}

/// A player with a socket.
pub(crate) struct Player {
    client: Client,
    socket: UdpSocket,
    clock: Clock,
}

/// A port that no player has had before: a gateway may know one who has gone, and lets nobody else
/// in from there meanwhile.
fn port_of_its_own(at: SocketAddr) -> UdpSocket {
    static HAD: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
    let mut others = Vec::new();
    loop {
        let socket = UdpSocket::bind(at).expect("a port");
        let address = socket.local_addr().expect("bound");
        if HAD.lock().expect("nobody panics with it").insert(address) {
            return socket;
        }
        others.push(socket);
    }
}

impl Player {
    /// One who asks to be let in, with a token under the listener's key.
    pub(crate) fn new(server: SocketAddr, client_id: u64, key: &str) -> Self {
        Self::at([127, 0, 0, 1], server, client_id, key)
    }

    /// The same from another address of this host.
    pub(crate) fn at(ip: [u8; 4], server: SocketAddr, client_id: u64, key: &str) -> Self {
        Self::holding(ip, &token(&[server], client_id, key, SILENCE_S))
    }

    /// One with this token, which it may not be the first to have.
    pub(crate) fn holding(ip: [u8; 4], token: &ConnectToken) -> Self {
        Self::holding_at(SocketAddr::from((ip, 0)), token)
    }

    /// The same over either family.
    pub(crate) fn holding_at(at: SocketAddr, token: &ConnectToken) -> Self {
        let socket = port_of_its_own(at);
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
        let clock = Clock::start();
        Self { client: Client::new(token, clock.now_ns()).expect("random bytes"), socket, clock }
    }

    /// One who plays.
    pub(crate) fn connected(server: SocketAddr, client_id: u64, key: &str) -> Self {
        let mut player = Self::new(server, client_id, key);
        player.connect();
        player
    }

    pub(crate) fn connect(&mut self) {
        wait_for("the handshake", || {
            self.turn();
            let state = self.client.state();
            assert!(!state.is_closed(), "the handshake came to its end: {state:?}");
            self.client.is_connected().then_some(())
        });
    }

    /// Sends what is due and takes what has come; payloads that came.
    pub(crate) fn turn(&mut self) -> Vec<Vec<u8>> {
        let now_ns = self.clock.now_ns();
        let mut buffer = [0; 2048];
        let _ = self.client.handle_timeout(now_ns);
        while let Some((to, datagram)) = self.client.poll_transmit(now_ns, &mut buffer) {
            self.socket.send_to(datagram, to).expect("loopback takes it");
        }
        let mut payloads = Vec::new();
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            let notice = self.client.handle_datagram(now_ns, from, &mut buffer[..len]);
            if let Ok(Some(Notice::Payload(bytes))) = notice {
                payloads.push(bytes.to_vec());
            }
        }
        payloads
    }

    /// Sends a payload until it comes back.
    pub(crate) fn echo(&mut self, payload: &[u8]) {
        wait_for("an echo", || {
            let mut buffer = [0; 2048];
            let now_ns = self.clock.now_ns();
            let (to, datagram) =
                self.client.write_payload(now_ns, payload, &mut buffer).expect("connected");
            self.socket.send_to(datagram, to).expect("loopback takes it");
            self.turn().iter().any(|echo| echo == payload).then_some(())
        });
    }

    /// Sends a payload once, and waits for its echo.
    pub(crate) fn echo_once(&mut self, payload: &[u8]) {
        self.play_once(payload);
        wait_for("the only echo", || self.turn().iter().any(|echo| echo == payload).then_some(()));
    }

    /// Sends a payload once.
    pub(crate) fn play_once(&mut self, payload: &[u8]) {
        let mut buffer = [0; 2048];
        let now_ns = self.clock.now_ns();
        let (to, datagram) =
            self.client.write_payload(now_ns, payload, &mut buffer).expect("connected");
        self.socket.send_to(datagram, to).expect("loopback takes it");
    }

    /// Sends so many payloads, once each, a few milliseconds apart; how many, and how many have
    /// come back.
    pub(crate) fn play_for(&mut self, count: u32) -> (u32, u32) {
        let mut echoes = 0;
        let mut buffer = [0; 2048];
        for number in 0..count {
            let (now_ns, payload) = (self.clock.now_ns(), number.to_be_bytes());
            let (to, datagram) =
                self.client.write_payload(now_ns, &payload, &mut buffer).expect("connected");
            self.socket.send_to(datagram, to).expect("loopback takes it");
            echoes += self.numbers();
        }
        let clock = Clock::start();
        while echoes < count && clock.now_ns() < PATIENCE.as_nanos() as u64 {
            echoes += self.numbers();
        }
        (count, echoes)
    }

    /// Numbers that have come back. An echo of something else, which was asked for more than once,
    /// may come late.
    fn numbers(&mut self) -> u32 {
        self.turn().iter().filter(|payload| payload.len() == size_of::<u32>()).count() as u32
    }

    /// Waits until the client is no longer connected; how it ended.
    pub(crate) fn ended(&mut self) -> State {
        wait_for("the player's end", || {
            self.turn();
            let state = self.client.state();
            state.is_closed().then_some(state)
        })
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.client.state() == State::Denied
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.client.state().is_closed()
    }

    pub(crate) fn is_connected(&mut self) -> bool {
        self.turn();
        self.client.is_connected()
    }

    /// Where it plays from.
    pub(crate) fn local(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound")
    }

    pub(crate) fn leave(&mut self) {
        self.client.disconnect();
        self.turn();
    }
}

/// A game process that sends every payload back, in a thread.
pub(crate) struct Game {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Game {
    /// Connects to a daemon and comes back to it.
    pub(crate) fn start(daemon: &Daemon, name: &str) -> Self {
        Self::start_with(daemon, name, |event, outbox| match event {
            Event::Payload { session, bytes } => {
                let _ = outbox.send(session, bytes);
            }
            Event::Message { session, channel, bytes } => {
                let _ = outbox.send_message(session, channel, bytes, None);
            }
            _ => {}
        })
    }

    /// The same, but it does what it is told to at each event.
    pub(crate) fn start_with(
        daemon: &Daemon,
        name: &str,
        plays: impl FnMut(Event<'_>, &mut Outbox) + Send + 'static,
    ) -> Self {
        Self::start_at(&daemon.run_dir(), name, plays)
    }

    /// The same by link sockets that may be an agent's.
    pub(crate) fn start_at(
        run_dir: &Path,
        name: &str,
        mut plays: impl FnMut(Event<'_>, &mut Outbox) + Send + 'static,
    ) -> Self {
        let mut backend = Options::new(run_dir, name).start().expect("a backend");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                backend.wait(Some(Duration::from_millis(10))).expect("a wait");
                let mut events = backend.poll().expect("a poll");
                while let Some((event, outbox)) = events.next() {
                    plays(event, outbox);
                }
                backend.flush();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Game {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

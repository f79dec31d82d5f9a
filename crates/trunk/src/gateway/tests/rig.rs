//! Trunks of a gateway, workers that are played by this thread, and agents.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use crate::protocol::keys::Rekey;
use crate::protocol::tls::fixtures::{self, AGENT};
use crate::protocol::tls::{self, Identity};
use crate::socket::{Bundles, Event, Local, Received, Trunk, provider};
use crate::worker::WorkerInbox;
use ringgate_link::bundle::{Frame, Frames, GoodbyeReason, SessionId, ToGame, ToGateway, Writer};
use ringgate_os::clock::Clock;
use ringgate_os::notify::{self, Epoll, Ready};
use rustls::pki_types::ServerName;
use socket2::{Domain, SockAddr, Socket, Type};

use super::own::own_address;
use crate::gateway::rules::{NO_AGENT, Rule};
use crate::gateway::settings::Settings;
use crate::gateway::shown::{AgentShown, DoorShown};
use crate::gateway::trunks::Trunks;

/// Whoever is slower than this waits for something that does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// The same, where nothing lives any more that could bring it about.
const AFTERMATH_NS: u64 = 10_000_000_000;

pub(super) const AUTHORITY: &[u8] = AGENT.authority;

/// Has the agent that connects to `between` speak with `gateway`, until either end hangs up.
pub(super) fn pass_the_stream_on(between: SocketAddr, gateway: SocketAddr) {
    let listener = TcpListener::bind(between).expect("it is ours");
    std::thread::spawn(move || {
        let Ok((one, _)) = listener.accept() else { return };
        let other = TcpStream::connect(gateway).expect("it listens");
        let [mut from, mut to] = [&one, &other].map(|it| it.try_clone().expect("a handle"));
        std::thread::spawn(move || io::copy(&mut from, &mut to));
        let (mut from, mut to) = (other, one);
        let _ = io::copy(&mut from, &mut to);
    });
}

/// A gateway that takes certificates of these.
fn gateway(authorities: &[&[u8]]) -> tls::Gateway {
    let authority = authorities.concat();
    let identity = Identity { authority: &authority, ..fixtures::GATEWAY };
    tls::Gateway::new(provider(), identity).expect("good files")
}

/// Whether the provider of TLS runs here.
fn is_possible() -> bool {
    let suffices = ringgate_os::processor::suffices_for_tls();
    suffices.inspect_err(|why| eprintln!("SKIPPED: {why}")).is_ok()
}

/// What a worker has heard on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Hello { name: String, pid: u32 },
    Payload(Vec<u8>),
}

/// The workers' sockets.
pub(super) struct Workers {
    listeners: Vec<Socket>,
    links: Vec<Option<Local>>,
    heard: Vec<Vec<Heard>>,
    bundles: Bundles,
}

impl Workers {
    fn turn(&mut self) {
        let Self { links, heard, bundles, .. } = self;
        for (link, heard) in links.iter_mut().zip(heard) {
            let Some(local) = link else { continue };
            let received = local.receive(bundles, |bundle| {
                heard.extend(ToGateway::read(bundle).map(|record| match record.expect("good") {
                    ToGateway::Hello(hello) => {
                        Heard::Hello { name: hello.name.to_owned(), pid: hello.pid }
                    }
                    ToGateway::Payload { bytes, .. } => Heard::Payload(bytes.to_vec()),
                    record => panic!("{record:?}"),
                }));
            });
            if !matches!(received, Ok(Received::Part | Received::Everything)) {
                *link = None;
            }
        }
    }

    pub(super) fn heard(&self, link: usize) -> &[Heard] {
        &self.heard[link]
    }

    pub(super) fn say(&mut self, link: usize, write: impl Fn(&mut Writer<'_>) -> bool) {
        let local = self.links[link].as_mut().expect("it is there");
        for frame in Frames::new(&written(write)) {
            assert!(local.push_late(frame.expect("own")), "there is room");
        }
        local.flush();
    }

    pub(super) fn hang_up(&mut self, link: usize) {
        self.links[link] = None;
    }

    pub(super) fn is_gone(&self, link: usize) -> bool {
        self.links[link].is_none()
    }

    /// Links that nobody has accepted.
    pub(super) fn waiting(&self, worker: u8) -> usize {
        let mut waits = [notify::awaited(self.listeners[usize::from(worker)].as_raw_fd())];
        notify::wait(&mut waits, Duration::ZERO).expect("ppoll works")
    }
}

pub(super) struct Rig {
    pub(super) trunks: Trunks,
    settings: Settings,
    pub(super) workers: Workers,
    pub(super) address: SocketAddr,
    gateway: tls::Gateway,
    bind: SocketAddr,
    run_dir: PathBuf,
    clock: Clock,
    /// The backends that the config has.
    pub(super) known: Vec<&'static str>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.trunks.stop();
        let _ = std::fs::remove_dir_all(&self.run_dir);
    }
}

impl Rig {
    /// A gateway with two workers whose agent may serve these.
    pub(super) fn new(allowed: &[&str]) -> Option<Self> {
        Self::with_desks(allowed, |_| Vec::new())
    }

    /// The same with desks, by which workers are lent their lanes.
    pub(super) fn with_desks(
        allowed: &[&str],
        desks: impl FnOnce(Clock) -> Vec<WorkerInbox>,
    ) -> Option<Self> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        if !is_possible() {
            return None;
        }
        let run_dir = loop {
            let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let name = format!("ringgate-trunk-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => break path,
                // A process that was killed had our number, and has left this one.
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
                Err(why) => panic!("temporary folders can be made: {why}"),
            }
        };
        let listeners = (0..2).map(|worker| {
            let path = run_dir.join(format!("worker-{worker}.sock"));
            let kind = Type::SEQPACKET.nonblocking().cloexec();
            let socket = Socket::new(Domain::UNIX, kind, None).expect("a descriptor");
            socket.bind(&SockAddr::unix(path).expect("it is short")).expect("a new folder");
            socket.listen(128).expect("it is bound");
            socket
        });
        let (links, heard) = (Vec::new(), Vec::new());
        let bundles = Bundles::default();
        let workers = Workers { listeners: listeners.collect(), links, heard, bundles };
        let clock = Clock::start();
        let settings = Settings {
            run_dir: run_dir.clone(),
            workers: 2,
            desks: desks(clock),
            incarnation: 77,
            clock,
            rekey: Rekey::default(),
        };
        let bind = SocketAddr::from(([127, 0, 0, 1], 0));
        let (trunks, address) = (Trunks::new(settings.clone()), bind);
        let gateway = gateway(&[AUTHORITY]);
        let known = vec!["arena-1", "arena-2", "arena-9"];
        let mut rig =
            Self { trunks, settings, workers, address, gateway, bind, run_dir, clock, known };
        rig.allow(allowed);
        rig.address = rig.door().address.expect("it is bound");
        Some(rig)
    }

    /// Has the agent serve these alone; it may not connect where there are none. Another agent may
    /// connect too, whose certificate no test has.
    pub(super) fn allow(&mut self, allowed: &[&str]) {
        self.adopt((!allowed.is_empty()).then_some(allowed));
    }

    /// Has the agent connect and serve nothing.
    pub(super) fn allow_nothing(&mut self) {
        self.adopt(Some(&[]));
    }

    fn adopt(&mut self, allowed: Option<&[&str]>) {
        let rule = |name: &str, backends: &[&str]| Rule {
            name: name.to_owned(),
            bind: self.bind,
            gateway: self.gateway.clone(),
            backends: backends.iter().map(|&name| name.to_owned()).collect(),
            known: self.known.iter().map(|&name| name.to_owned()).collect(),
        };
        let mut rules = vec![rule(NO_AGENT, &[]), rule("host-9", &["arena-9"])];
        rules.extend(allowed.map(|allowed| rule("host-7", allowed)));
        let opened = self.trunks.open(&rules).expect("loopback");
        self.trunks.adopt(rules, opened).expect("descriptors are left");
    }

    /// Takes certificates of these authorities from the next rules on.
    pub(super) fn trust(&mut self, authorities: &[&[u8]]) {
        self.gateway = gateway(authorities);
    }

    /// Has the next process lend these workers their lanes.
    pub(super) fn set_desks(&mut self, desks: Vec<WorkerInbox>) {
        self.settings.desks = desks;
    }

    /// A process that has nothing yet.
    pub(super) fn next(&self) -> Trunks {
        Trunks::new(self.settings.clone())
    }

    /// Another process goes on with all of it by these rules, unless that fails at the last moment.
    pub(super) fn hand_over(&mut self, allowed: &[&str], has_failed: bool) {
        let mut rest = self.trunks.rest();
        let mut next = self.next();
        let (bytes, fds) = rest.take();
        next.inherit(&bytes, fds).expect("it is our own");
        if has_failed {
            return;
        }
        rest.leave();
        self.trunks.stop();
        self.trunks = next;
        self.allow(allowed);
    }

    pub(super) fn agent(&self, identity: Identity<'_>) -> Agent {
        self.agent_called(identity, "host-7")
    }

    pub(super) fn agent_called(&self, identity: Identity<'_>, name: &str) -> Agent {
        self.agent_at(self.address, identity, name)
    }

    /// One whose datagrams do not arrive: it connects by way of somebody who passes on no more
    /// than the stream.
    pub(super) fn mute_agent(&self) -> Agent {
        let between = own_address();
        pass_the_stream_on(between, self.address);
        self.agent_at(between, AGENT, "host-7")
    }

    pub(super) fn agent_at(&self, to: SocketAddr, identity: Identity<'_>, name: &str) -> Agent {
        let epoll = Epoll::new().expect("a descriptor");
        let client = tls::Agent::new(provider(), identity).expect("good files");
        let server = ServerName::try_from("gate-1.example").expect("a name");
        let settings = crate::socket::Settings::default();
        let to = (to, server);
        let trunk = Trunk::connect(&client, to, name, settings, &epoll, self.clock.now_ns());
        Agent {
            trunk: trunk.expect("it can begin"),
            epoll,
            clock: self.clock,
            ready: Vec::with_capacity(64),
            pending: Vec::new(),
            told: Vec::new(),
            ended: Vec::new(),
            goodbyes: Vec::new(),
            open: Vec::new(),
            payloads: Vec::new(),
        }
    }

    /// The next link to a worker.
    pub(super) fn accept(&mut self, agent: &mut Agent, worker: u8) -> usize {
        let start = Clock::start();
        loop {
            match self.workers.listeners[usize::from(worker)].accept() {
                Ok((socket, _)) => {
                    self.workers.links.push(Some(Local::from(OwnedFd::from(socket))));
                    self.workers.heard.push(Vec::new());
                    return self.workers.links.len() - 1;
                }
                Err(_) => agent.turn(),
            }
            let over = agent.trunk.over();
            assert!(
                u128::from(start.now_ns()) < PATIENCE.as_nanos() && over.is_none(),
                "no link comes; {over:?}"
            );
        }
    }

    pub(super) fn turn_workers(&mut self) {
        self.workers.turn();
    }

    pub(super) fn shown_agent(&self) -> AgentShown {
        let shown = self.trunks.shown();
        shown.agents.into_iter().find(|agent| agent.name == "host-7").unwrap_or_default()
    }

    pub(super) fn door(&self) -> DoorShown {
        self.trunks.shown().doors.remove(0)
    }

    pub(super) fn until(
        &mut self,
        agent: &mut Agent,
        what: &str,
        is_so: impl Fn(&Self, &Agent) -> bool,
    ) {
        self.until_both([agent], what, |rig, agents| is_so(rig, agents[0]));
    }

    pub(super) fn until_both<const N: usize>(
        &mut self,
        mut agents: [&mut Agent; N],
        what: &str,
        is_so: impl Fn(&Self, [&Agent; N]) -> bool,
    ) {
        let start = Clock::start();
        let mut living_ns = 0;
        loop {
            if is_so(self, agents.each_ref().map(|agent| &**agent)) {
                return;
            }
            let over = agents.each_ref().map(|agent| agent.trunk.over());
            let shown = self.trunks.shown();
            let now_ns = start.now_ns();
            // What follows the end of a trunk (its page, its workers' links) follows at once.
            if over.iter().any(Option::is_none) || shown.agents.iter().any(|it| it.trunk.is_some())
            {
                living_ns = now_ns;
            }
            assert!(
                u128::from(now_ns) < PATIENCE.as_nanos() && now_ns - living_ns < AFTERMATH_NS,
                "{what} does not come true: {over:?} {shown:?}"
            );
            for agent in &mut agents {
                agent.turn();
            }
            self.workers.turn();
        }
    }
}

/// An agent, as far as its trunk goes.
pub(super) struct Agent {
    pub(super) trunk: Trunk,
    epoll: Epoll,
    clock: Clock,
    ready: Vec<Ready>,
    /// What is to be told once it is welcome.
    pending: Vec<(u8, u16, Vec<u8>)>,
    pub(super) told: Vec<(u8, u16)>,
    pub(super) ended: Vec<(u8, u16)>,
    pub(super) goodbyes: Vec<GoodbyeReason>,
    /// Sessions that are announced.
    pub(super) open: Vec<SessionId>,
    /// What has come for them.
    pub(super) payloads: Vec<(SessionId, Vec<u8>)>,
}

impl Agent {
    pub(super) fn tell(&mut self, lane: u8, link: u16, write: impl Fn(&mut Writer<'_>) -> bool) {
        self.pending.push((lane, link, written(write)));
    }

    pub(super) fn push(&mut self, lane: u8, link: u16, write: impl Fn(&mut Writer<'_>) -> bool) {
        let record = written(write);
        self.trunk.push(lane, link, only(&record), self.clock.now_ns());
    }

    pub(super) fn end(&mut self, lane: u8, link: u16) {
        self.trunk.end(lane, link);
    }

    pub(super) fn turn(&mut self) {
        self.turn_and_read(true);
    }

    /// The same; perhaps it does not read its stream.
    pub(super) fn turn_and_read(&mut self, is_read: bool) {
        let stream = crate::socket::Settings::default().token;
        let Self { trunk, epoll, ready, told, ended, goodbyes, open, payloads, .. } = self;
        let now_ns = self.clock.now_ns();
        if trunk.agreed().is_some() {
            for (lane, link, record) in self.pending.drain(..) {
                trunk.tell(lane, link, only(&record));
            }
        }
        epoll.wait(ready, Duration::from_millis(1)).expect("epoll works");
        for ready in ready.iter().filter(|ready| is_read || ready.token != stream) {
            trunk.handle_ready(*ready, epoll, now_ns, |event| match event {
                Event::Record { lane, link, frame } => match ToGame::decode(frame) {
                    Ok(ToGame::Goodbye(goodbye)) => goodbyes.push(goodbye.reason),
                    Ok(ToGame::Welcome(_)) => told.push((lane, link)),
                    Ok(ToGame::Opened(opened)) => open.push(opened.session),
                    Ok(ToGame::Closed { session, .. }) => open.retain(|it| *it != session),
                    Ok(ToGame::Payload { session, bytes }) => {
                        // Most are of one that has come of late, and there may be thousands.
                        let is_open = open.iter().rev().any(|it| *it == session);
                        assert!(is_open, "nothing comes before its announcement");
                        payloads.push((session, bytes.to_vec()));
                    }
                    other => panic!("{other:?}"),
                },
                Event::Ended { lane, link } => ended.push((lane, link)),
                Event::LaneUp(_) | Event::Begun(_) | Event::Beat => {}
                Event::Stray { .. } => panic!("a stray datagram at an agent"),
                Event::Caught { .. } => panic!("an agent lends no lane"),
                Event::Message(_) => panic!("a gateway says nothing so to an agent"),
                Event::Unproven { .. } => panic!("an agent has one address to send to"),
            });
        }
        trunk.poll(now_ns);
        trunk.flush(epoll, now_ns);
    }
}

fn written(write: impl Fn(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buf = vec![0; 16 * 1024];
    let mut writer = Writer::new(&mut buf);
    assert!(write(&mut writer), "the record is one that may be written");
    writer.bytes().to_vec()
}

fn only(record: &[u8]) -> Frame<'_> {
    Frames::new(record).next().expect("one").expect("own")
}

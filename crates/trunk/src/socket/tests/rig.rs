//! A gateway's and an agent's end over loopback, in one thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::protocol::beat::SILENCE_NS;
use crate::protocol::control::{VERSION_MAX, VERSION_MIN, Welcome};
use crate::protocol::keys::Rekey;
use crate::protocol::lane::Role;
use crate::protocol::tls::{self, fixtures};
use ringgate_core::carry::{Maps, Reader, Writer};
use ringgate_link::bundle::{self, Frame, Frames, ToGame, ToGateway};
use ringgate_os::clock::Clock;
use ringgate_os::notify::{self, Epoll, Ready};
use rustls::pki_types::ServerName;

use crate::socket::guest::Hello;
use crate::socket::line::Line;
use crate::socket::trunk::{self, Event, Lease, Settings, Trunk};
use crate::socket::{Door, Guest, port::Port};

pub(super) const AGENT: usize = 0;
pub(super) const GATEWAY: usize = 1;

/// Whoever is slower than this waits for something that does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// What an end has heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Payload { lane: u8, link: u16, bytes: Vec<u8> },
    Told { lane: u8, link: u16 },
    Ended { lane: u8, link: u16 },
}

struct End {
    trunk: Option<Trunk>,
    epoll: Epoll,
    heard: Vec<Heard>,
    up: Vec<u8>,
}

pub(super) struct Rig {
    ends: [End; 2],
    door: Door,
    clock: Clock,
    settings: Settings,
    ready: Vec<Ready>,
}

/// Whether the provider of TLS runs here.
fn is_possible() -> bool {
    let suffices = ringgate_os::processor::suffices_for_tls();
    suffices.inspect_err(|why| eprintln!("SKIPPED: {why}")).is_ok()
}

/// An agent's connection.
pub(super) fn line_to(at: SocketAddr) -> Option<Line> {
    if !is_possible() {
        return None;
    }
    let agent = tls::Agent::new(crate::socket::provider(), fixtures::AGENT).expect("good files");
    let server = ServerName::try_from("gate-1.example").expect("a name");
    let stream = agent.connect(server).expect("it can begin");
    Some(Line::connect(at, stream).expect("loopback"))
}

/// Somebody at a door who has an agent's certificate, and the gateway's end of the connection.
pub(super) fn guest() -> Option<(Line, Waiting)> {
    let door = Door::bind(([127, 0, 0, 1], 0).into()).expect("loopback");
    let line = line_to(door.address().expect("it is bound"))?;
    let (clock, epoll) = (Clock::start(), Epoll::new().expect("a descriptor"));
    let gateway = tls::Gateway::new(crate::socket::provider(), fixtures::GATEWAY).expect("files");
    let guest = loop {
        assert!(u128::from(clock.now_ns()) < PATIENCE.as_nanos(), "nobody comes in");
        if let Some(came) = door.accept().expect("it listens") {
            break Guest::new(&gateway, came, (&epoll, 1), 0).expect("descriptors are left");
        }
    };
    Some((line, Waiting { guest, epoll, clock }))
}

/// A gateway's end whose agent has said who it is, and is heard on no lane.
pub(crate) fn deaf() -> Option<Trunk> {
    let (mut line, mut waiting) = guest()?;
    line.outbox().hello((VERSION_MIN, VERSION_MAX), "host-7").expect("it is empty");
    let hello = waiting.until(|| {
        line.flush().expect("loopback takes it");
        line.receive().expect("it is good");
    });
    let version = hello.expect("it is a good one").version;
    let welcome = Welcome { version, lanes: 2, trunk: 9, incarnation: 5 };
    let Waiting { guest, epoll, .. } = waiting;
    let guest = guest.leave(&epoll).expect("it was in the set");
    let trunk = guest.welcome(welcome, Settings::default(), &epoll, 1);
    let mut trunk = trunk.expect("descriptors are left");
    trunk.poll(1 + SILENCE_NS);
    Some(trunk)
}

/// A guest that a door looks at.
pub(super) struct Waiting {
    guest: Guest,
    epoll: Epoll,
    clock: Clock,
}

impl Waiting {
    /// Until it has said who it is, or is turned away.
    pub(super) fn until(&mut self, mut meanwhile: impl FnMut()) -> Result<Hello, trunk::End> {
        loop {
            assert!(u128::from(self.clock.now_ns()) < PATIENCE.as_nanos(), "it does not end");
            meanwhile();
            if let Some(hello) = self.guest.handle_ready(&self.epoll, 1)? {
                return Ok(hello);
            }
        }
    }
}

impl Rig {
    /// A trunk with two lanes, both of them up.
    pub(super) fn with(rekey: Rekey) -> Option<Self> {
        Self::at(Ipv4Addr::LOCALHOST, rekey)
    }

    /// The same, to a gateway at that address.
    pub(super) fn at(address: Ipv4Addr, rekey: Rekey) -> Option<Self> {
        if !is_possible() {
            return None;
        }
        let clock = Clock::start();
        let door = Door::bind((address, 0).into()).expect("loopback");
        let settings = Settings { rekey, token: STREAM, ..Settings::default() };
        let end = || End {
            trunk: None,
            epoll: Epoll::new().expect("a descriptor"),
            heard: Vec::new(),
            up: Vec::new(),
        };
        let (ends, ready) = ([end(), end()], Vec::with_capacity(64));
        let mut rig = Self { ends, door, clock, settings, ready };
        let client =
            tls::Agent::new(crate::socket::provider(), fixtures::AGENT).expect("good files");
        let server = ServerName::try_from("gate-1.example").expect("a name");
        let to = (rig.door_address(), server);
        let epoll = &rig.ends[AGENT].epoll;
        let agent = Trunk::connect(&client, to, "host-7", settings, epoll, clock.now_ns());
        rig.ends[AGENT].trunk = Some(agent.expect("it can begin"));
        rig.let_in(settings);
        rig.until("both lanes are up", |rig| rig.ends[GATEWAY].up.len() == 2);
        rig.until("the path is found", |rig| {
            let mut stats = rig.ends.iter().flat_map(|end| end.trunk.as_ref().expect("").stats());
            stats.all(|stats| stats.lane.path_bytes == 8900)
        });
        Some(rig)
    }

    /// The gateway's side until it says welcome.
    fn let_in(&mut self, settings: Settings) {
        let gateway =
            tls::Gateway::new(crate::socket::provider(), fixtures::GATEWAY).expect("files");
        let watched_in = Epoll::new().expect("a descriptor");
        let start = Clock::start();
        let mut guest: Option<Guest> = None;
        loop {
            assert!(u128::from(start.now_ns()) < PATIENCE.as_nanos(), "nobody comes in");
            self.turn();
            let now_ns = self.clock.now_ns();
            if let Some(waiting) = &mut guest {
                let hello = waiting.handle_ready(&watched_in, 1).expect("it is a good one");
                if let Some(hello) = hello {
                    assert_eq!((&*hello.name, &hello.certified), ("host-7", &Ok(())));
                    let welcome =
                        Welcome { version: hello.version, lanes: 2, trunk: 9, incarnation: 5 };
                    let epoll = &self.ends[GATEWAY].epoll;
                    let guest = guest.take().expect("it is there");
                    let guest = guest.leave(&watched_in).expect("it was in the set");
                    let trunk = guest.welcome(welcome, settings, epoll, now_ns);
                    self.ends[GATEWAY].trunk = Some(trunk.expect("descriptors are left"));
                    return;
                }
            } else if let Some(came) = self.door.accept().expect("it listens") {
                let taken = Guest::new(&gateway, came, (&watched_in, 1), now_ns);
                guest = Some(taken.expect("descriptors are left"));
            }
        }
    }

    pub(super) fn door_address(&self) -> std::net::SocketAddr {
        self.door.address().expect("it is bound")
    }

    /// Where the agent's lane sends from.
    pub(super) fn agent_address(&self) -> std::net::SocketAddr {
        self.trunk(GATEWAY).other_end(0).expect("it is up")
    }

    pub(super) fn trunk(&self, which: usize) -> &Trunk {
        self.ends[which].trunk.as_ref().expect("it is there")
    }

    pub(super) fn trunk_mut(&mut self, which: usize) -> &mut Trunk {
        self.ends[which].trunk.as_mut().expect("it is there")
    }

    /// What the gateway tells who has one of its lanes. Nobody has it.
    pub(super) fn lend(&mut self, lane: u8) -> Lease {
        let End { trunk, epoll, .. } = &mut self.ends[GATEWAY];
        let bell = notify::event_counter().expect("a descriptor");
        let lent = trunk.as_mut().expect("it is there").lend(lane, bell, epoll);
        lent.expect("it is up").1
    }

    pub(super) fn heard(&self, which: usize) -> &[Heard] {
        &self.ends[which].heard
    }

    pub(super) fn forget(&mut self) {
        self.ends.iter_mut().for_each(|end| end.heard.clear());
    }

    /// Ends it without a word.
    pub(super) fn kill(&mut self, which: usize) {
        self.ends[which].trunk = None;
    }

    /// Another process goes on with an end: all it has is bytes and descriptors.
    pub(super) fn hand_over(&mut self, which: usize) {
        let (now_ns, settings) = (self.clock.now_ns(), self.settings);
        let End { trunk, epoll, .. } = &mut self.ends[which];
        let mut before = trunk.take().expect("it is there");
        assert!(before.make_portable(now_ns), "{:?}", before.over());
        let mut memory = vec![0; 16 << 20];
        let mut out = Writer::new(&mut memory);
        before.write(&mut out);
        let (len, fds) = (out.len(), before.descriptors().map(|fd| fd.try_clone_to_owned()));
        let fds = fds.collect::<std::io::Result<Vec<_>>>().expect("descriptors are left");
        drop(before);
        *epoll = Epoll::new().expect("a descriptor");
        let (mut fds, maps) = (fds.into_iter(), Maps::default());
        let mut from = Reader::new(&memory[..len], &maps);
        let role = if which == AGENT { Role::Agent } else { Role::Gateway };
        let read = Trunk::read(&mut from, &mut fds, role, settings, epoll).expect("our own");
        assert_eq!((from.end(), fds.next().is_none()), (Ok(()), true));
        *trunk = Some(read);
    }

    /// The agent's lane has another address from now on, as behind a router that forgets.
    pub(super) fn move_agent(&mut self, lane: u64) {
        let to = self.door_address();
        let End { trunk, epoll, .. } = &mut self.ends[AGENT];
        let port = Port::open(([127, 0, 0, 1], 0).into(), to).expect("loopback");
        epoll.add(port.as_fd(), 101 + lane).expect("a place");
        trunk.as_mut().expect("it is there").replace_port(lane as usize, port);
    }

    pub(super) fn push(
        &mut self,
        from: usize,
        lane: u8,
        link: u16,
        write: impl Fn(&mut bundle::Writer<'_>) -> bool,
    ) {
        let now_ns = self.clock.now_ns();
        let record = written(write);
        self.trunk_mut(from).push(lane, link, only(&record), now_ns);
    }

    pub(super) fn tell(
        &mut self,
        from: usize,
        lane: u8,
        link: u16,
        write: impl Fn(&mut bundle::Writer<'_>) -> bool,
    ) {
        let record = written(write);
        self.trunk_mut(from).tell(lane, link, only(&record));
    }

    /// Both ends take in what has come, and send.
    pub(super) fn turn(&mut self) {
        let Self { ends, door, clock, ready, .. } = self;
        let now_ns = clock.now_ns();
        for end in &mut *ends {
            let End { trunk, epoll, heard, up } = end;
            let Some(trunk) = trunk else { continue };
            let mut handle = |event: Event<'_>| note(event, heard, up);
            trunk.flush(epoll, now_ns);
            epoll.ready(ready).expect("epoll works");
            for ready in ready.iter() {
                trunk.handle_ready(*ready, epoll, now_ns, &mut handle);
            }
            if trunk.has_more() {
                trunk.handle_ready(Ready { token: STREAM, events: 0 }, epoll, now_ns, &mut handle);
            }
            trunk.poll(now_ns);
            trunk.flush(epoll, now_ns);
        }
        let End { trunk, epoll, heard, up } = &mut ends[GATEWAY];
        let Some(trunk) = trunk else { return };
        while door.receive(|from, datagram| {
            let handle = |event: Event<'_>| note(event, heard, up);
            trunk.handle_datagram(from, datagram, epoll, now_ns, handle);
        }) {}
        trunk.flush(epoll, now_ns);
    }

    /// One end looks at its stream, once. Returns how much it has heard by that.
    pub(super) fn look_once(&mut self, which: usize) -> usize {
        let now_ns = self.clock.now_ns();
        let End { trunk, epoll, heard, up } = &mut self.ends[which];
        let trunk = trunk.as_mut().expect("it is there");
        let before = heard.len();
        let handle = |event: Event<'_>| note(event, heard, up);
        trunk.handle_ready(Ready { token: STREAM, events: 0 }, epoll, now_ns, handle);
        heard.len() - before
    }

    /// One end sends what it has to say.
    pub(super) fn flush(&mut self, which: usize) {
        let now_ns = self.clock.now_ns();
        let End { trunk, epoll, .. } = &mut self.ends[which];
        trunk.as_mut().expect("it is there").flush(epoll, now_ns);
    }

    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Clock::start();
        while !is_so(self) {
            let trunks = self.ends.iter().filter_map(|it| it.trunk.as_ref());
            let over: Vec<_> = trunks.map(Trunk::over).collect();
            let is_dead = !over.is_empty() && over.iter().all(Option::is_some);
            assert!(
                u128::from(start.now_ns()) < PATIENCE.as_nanos() && !is_dead,
                "{what} does not come true; over: {over:?}"
            );
            self.turn();
            let mut both = [0, 1].map(|which| notify::awaited(self.ends[which].epoll.raw()));
            notify::wait(&mut both, Duration::from_millis(1)).expect("ppoll works");
        }
    }
}

fn note(event: Event<'_>, heard: &mut Vec<Heard>, up: &mut Vec<u8>) {
    match event {
        Event::Record { lane, link, frame } if frame.payloads() > 0 => {
            let bytes = payload(frame).to_vec();
            heard.push(Heard::Payload { lane, link, bytes });
        }
        Event::Record { lane, link, .. } => heard.push(Heard::Told { lane, link }),
        Event::Ended { lane, link } => heard.push(Heard::Ended { lane, link }),
        Event::LaneUp(lane) => up.push(lane),
        Event::Begun(_) | Event::Beat => {}
        Event::Stray { from, .. } => panic!("a datagram of {from} came to a lane"),
        Event::Caught { .. } => panic!("no link was called"),
        Event::Message(_) => panic!("nobody says anything so"),
        Event::Unproven { .. } => panic!("nobody listens to that"),
    }
}

fn payload(frame: Frame<'_>) -> &[u8] {
    match (ToGame::decode(frame), ToGateway::read(frame.bytes()).next()) {
        (Ok(ToGame::Payload { bytes, .. }), _)
        | (_, Some(Ok(ToGateway::Payload { bytes, .. }))) => bytes,
        other => panic!("{other:?}"),
    }
}

pub(super) fn written(write: impl Fn(&mut bundle::Writer<'_>) -> bool) -> Vec<u8> {
    let mut buf = vec![0; 16 * 1024];
    let mut writer = bundle::Writer::new(&mut buf);
    assert!(write(&mut writer), "the record is one that may be written");
    writer.bytes().to_vec()
}

pub(super) fn only(record: &[u8]) -> Frame<'_> {
    Frames::new(record).next().expect("one").expect("own")
}

/// What the stream of each end is called in its set.
pub(super) const STREAM: u64 = 100;

//! What a trunk costs a gateway over a local link, and what it adds on the way: payloads at a fixed
//! rate both ways between a worker's driver, with its lanes, and the agent's end of a trunk, or a
//! game process on the same host. `benches/trunk.sh` runs it in two network namespaces.
//!
//! ```text
//!   cost gateway ADDRESS:PORT RECORDS RATE START SLICES MS
//!   cost agent ADDRESS:PORT RECORDS RATE
//!   cost local SOCKET RECORDS RATE START SLICES MS
//!   cost game SOCKET RECORDS RATE
//!   cost now
//! ```
//!
//! RECORDS payloads of 100 bytes are in each bundle, RATE of them a second leave each way. Each
//! bundle is flushed by itself, as in a turn of a worker that has one for the link.
//!
//! From the moment START (microseconds, as `now` prints them) both take turns, each for SLICES
//! slices of MS milliseconds, the local one first: what the machine does besides meets both alike,
//! and each slice is compared with the one before it.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ringgate_batch::{Driver, IoEvent, LocalIp, Port, SocketId, TxTarget, Wait};
use ringgate_io::{AnyDriver, Choice, DriverOptions, SocketDriver};
use ringgate_link::bundle::{Frame, Frames, Hello, Opened, SessionId, ToGame, ToGateway, Writer};
use ringgate_os::clock::{self, Clock};
use ringgate_os::notify::Epoll;
use ringgate_trunk::gateway::{AgentShown, Rekey, Rule, Settings, Trunks};
use ringgate_trunk::protocol::tls::{self, Identity};
use ringgate_trunk::socket::{Bundles, Event, Local, Received, Trunk, provider};
use ringgate_trunk::worker::Lanes;
use rustls::pki_types::ServerName;

type Outcome = Result<(), Box<dyn Error>>;

const SESSIONS: u64 = 64;
const PAYLOAD_BYTES: usize = 100;

macro_rules! identity {
    ($name:literal) => {
        Identity {
            authority: include_bytes!("../src/protocol/tls/fixtures/authority.pem"),
            certificate: include_bytes!(concat!("../src/protocol/tls/fixtures/", $name, ".pem")),
            key: include_bytes!(concat!("../src/protocol/tls/fixtures/", $name, ".key")),
        }
    };
}

fn main() -> Outcome {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["now"] => {
            println!("{}", clock::monotonic_us());
            Ok(())
        }
        ["gateway", address, records, rate, start, count, ms] => {
            let flow = Flow::new(records.parse()?, rate.parse()?);
            gateway(address.parse()?, &Slices::new(1, start, count, ms)?, flow)
        }
        ["agent", address, records, rate] => {
            agent(address.parse()?, Flow::new(records.parse()?, rate.parse()?))
        }
        ["local", path, records, rate, start, count, ms] => {
            let flow = Flow::new(records.parse()?, rate.parse()?);
            local(Path::new(path), &Slices::new(0, start, count, ms)?, flow)
        }
        ["game", path, records, rate] => {
            game(Path::new(path), Flow::new(records.parse()?, rate.parse()?))
        }
        _ => Err("gateway ADDRESS:PORT RECORDS RATE START SLICES MS | \
                  agent ADDRESS:PORT RECORDS RATE | \
                  local SOCKET RECORDS RATE START SLICES MS | game SOCKET RECORDS RATE | now"
            .into()),
    }
}

/// When one of the two has the machine.
struct Slices {
    start_us: u64,
    count: u64,
    each_us: u64,
}

impl Slices {
    fn new(which: u64, start: &str, count: &str, ms: &str) -> Result<Self, Box<dyn Error>> {
        let each_us = ms.parse::<u64>()? * 1000;
        let start_us = start.parse::<u64>()? + which * each_us;
        Ok(Self { start_us, count: count.parse()?, each_us })
    }

    const fn begin_us(&self, number: u64) -> u64 {
        self.start_us + 2 * number * self.each_us
    }

    const fn end_us(&self, number: u64) -> u64 {
        self.begin_us(number) + self.each_us
    }
}

/// One direction at its sender, the other at its receiver.
struct Flow {
    records: u64,
    /// Between two bundles.
    every_ns: u64,
    next_ns: u64,
    sent: u64,
    received: u64,
    /// When something has come.
    heard_ns: u64,
    /// How long payloads were under way.
    delays_us: Vec<u32>,
    bytes: Vec<u8>,
}

impl Flow {
    fn new(records: u64, rate: u64) -> Self {
        let every_ns = 1_000_000_000 * records / rate;
        let (bytes, delays_us) = (vec![0; 16 * 1024], Vec::new());
        Self { records, every_ns, next_ns: 0, sent: 0, received: 0, heard_ns: 0, delays_us, bytes }
    }

    /// The next bundle that is due.
    fn due(&mut self, now_ns: u64) -> Option<usize> {
        // What another slice has left out is not made up for.
        if now_ns.saturating_sub(self.next_ns) > PAUSE_NS {
            self.next_ns = now_ns;
        }
        if now_ns < self.next_ns {
            return None;
        }
        self.next_ns += self.every_ns;
        let mut payload = [7; PAYLOAD_BYTES];
        payload[..8].copy_from_slice(&(clock::monotonic_us()).to_le_bytes());
        let mut writer = Writer::new(&mut self.bytes);
        for _ in 0..self.records {
            let session = SessionId::new(0, 1 + self.sent % SESSIONS);
            assert!(writer.payload(session, &payload), "a bundle holds them");
            self.sent += 1;
        }
        Some(writer.len())
    }

    /// The other side sends, and has not stopped.
    const fn is_answering(&self) -> bool {
        self.received > 0 && self.sent < self.received + self.records * 4
    }

    const fn note_heard(&mut self, before: u64, now_ns: u64) {
        if self.received != before {
            self.heard_ns = now_ns;
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.received += 1;
        let sent_us = u64::from_le_bytes(*bytes.first_chunk().expect("its time"));
        self.delays_us.push(clock::monotonic_us().saturating_sub(sent_us) as u32);
    }

    fn tell(&mut self, who: &str) {
        self.delays_us.sort_unstable();
        let at = |share: usize| self.delays_us.get(self.delays_us.len() * share / 100).copied();
        let [p50, p99] = [50, 99].map(|share| at(share).unwrap_or_default());
        println!(
            "{who}: sent {}, received {}, under way p50 {p50} us, p99 {p99} us",
            self.sent, self.received
        );
    }
}

/// A worker without a gate: a driver that has a link, and lanes beside it.
struct Worker {
    driver: AnyDriver,
    lanes: Lanes,
    link: Option<SocketId>,
    clock: Clock,
}

impl Worker {
    fn new(clock: Clock) -> Result<Self, Box<dyn Error>> {
        let driver = ringgate_io::open(Choice::Auto, &DriverOptions::default())?;
        Ok(Self { driver, lanes: Lanes::new(clock), link: None, clock })
    }

    /// One turn, which takes in what has come.
    fn turn(&mut self, wait: Wait, flow: &mut Flow) -> Outcome {
        let Self { driver, lanes, link, .. } = self;
        let mut over = lanes.over(driver);
        over.turn(wait)?;
        let rx = over.rx();
        for event in &rx.events {
            if let IoEvent::Accepted { connection, .. } = *event {
                *link = Some(connection);
            }
        }
        for index in 0..rx.len() {
            for record in ToGateway::read(rx.bytes(index)) {
                if let Ok(ToGateway::Payload { bytes, .. }) = record {
                    flow.take(bytes);
                }
            }
        }
        Ok(())
    }

    /// Writes one bundle and flushes. How many were refused.
    fn say(&mut self, bundle: &[u8]) -> usize {
        let Some(socket) = self.link else { return 1 };
        let mut over = self.lanes.over(&mut self.driver);
        let tx = over.tx();
        let slot = tx.open_large().expect("all slots are free");
        tx.large_mut(&slot)[..bundle.len()].copy_from_slice(bundle);
        let target = TxTarget { socket, peer: None, source: LocalIp::UNSPECIFIED };
        tx.commit_large(slot, bundle.len(), target, 0);
        over.flush();
        over.tx().failures().count()
    }

    /// Until its link is there, and for a while longer: a way is found meanwhile.
    fn settle(&mut self, flow: &mut Flow) -> Outcome {
        while self.link.is_none() {
            self.turn(Wait::AtMost(Duration::from_millis(10)), flow)?;
        }
        let mut bytes = vec![0; 16 * 1024];
        for serial in 1..=SESSIONS {
            let mut writer = Writer::new(&mut bytes);
            let address = SocketAddr::from(([192, 0, 2, 1], 7));
            let session = SessionId::new(0, serial);
            let (slot, slots_max, user_data) = (0, 1, &[0; 256]);
            let (client_id, delivers, listener) = (serial, false, "main");
            let opened = Opened {
                ticket: None,
                session,
                client_id,
                address,
                slot,
                slots_max,
                delivers,
                user_data,
                listener,
            };
            assert!(writer.opened(&opened), "one fits");
            let len = writer.len();
            assert_eq!(self.say(&bytes[..len]), 0, "there is room");
        }
        let until_ns = self.clock.now_ns() + SETTLE_NS;
        while self.clock.now_ns() < until_ns {
            self.turn(Wait::AtMost(Duration::from_millis(10)), flow)?;
        }
        Ok(())
    }

    /// Sends its payloads and takes the others in, and tells what each slice has cost.
    fn measure(&mut self, slices: &Slices, flow: &mut Flow) -> Outcome {
        let mut refused = 0;
        for number in 0..slices.count {
            while clock::monotonic_us() < slices.begin_us(number) {
                self.turn(Wait::AtMost(Duration::from_millis(1)), flow)?;
            }
            let (before, start_cpu) = (flow.sent + flow.received, cpu_ns()?);
            refused += self.slice(slices.end_us(number), flow)?;
            let (cpu_ns, payloads) = (cpu_ns()? - start_cpu, flow.sent + flow.received - before);
            println!("slice {:.4} us a payload", cpu_ns as f64 / 1000.0 / payloads.max(1) as f64);
        }
        flow.tell("gateway");
        println!("bundles not taken {refused}, {}", self.driver.name());
        Ok(())
    }

    /// One of them. The last of what is on its way belongs to it.
    fn slice(&mut self, end_us: u64, flow: &mut Flow) -> Result<usize, Box<dyn Error>> {
        let mut refused = 0;
        loop {
            let (now_us, now_ns) = (clock::monotonic_us(), self.clock.now_ns());
            let is_over = now_us + LAST_US >= end_us;
            // Who is late takes in what has come between.
            for _ in 0..BUNDLES_PER_TURN {
                let Some(len) = flow.due(now_ns).filter(|_| !is_over) else { break };
                let bundle = std::mem::take(&mut flow.bytes);
                refused += self.say(&bundle[..len]);
                flow.bytes = bundle;
            }
            if now_us >= end_us {
                return Ok(refused);
            }
            let due_ns = flow.next_ns.saturating_sub(self.clock.now_ns());
            let left_ns = if is_over { (end_us - now_us) * 1000 } else { due_ns };
            self.turn(Wait::AtMost(Duration::from_nanos(left_ns)), flow)?;
        }
    }
}

/// Before its end a slice sends no more.
const LAST_US: u64 = 20_000;

/// Longer than anybody is late.
const PAUSE_NS: u64 = 100_000_000;

/// Who hears nothing for so long looks less often.
const QUIET_NS: u64 = 10_000_000;

/// How often a game process or an agent looks: it is not what is measured.
fn look_every(flow: &Flow, now_ns: u64) -> Duration {
    let is_quiet = now_ns.saturating_sub(flow.heard_ns) > QUIET_NS;
    Duration::from_micros(if is_quiet { 1000 } else { 20 })
}

/// As many as a turn of a worker might write.
const BUNDLES_PER_TURN: usize = 16;

/// The way of an agent takes about as long to be found.
const SETTLE_NS: u64 = 2_000_000_000;

fn gateway(bind: SocketAddr, slices: &Slices, mut flow: Flow) -> Outcome {
    let clock = Clock::start();
    let mut worker = Worker::new(clock)?;
    let settings = Settings {
        // Nothing is made there: the worker has the lane.
        run_dir: std::env::temp_dir(),
        workers: 1,
        desks: vec![worker.lanes.desk(worker.driver.bell())],
        incarnation: 1,
        clock,
        rekey: Rekey::default(),
    };
    let mut trunks = Trunks::new(settings);
    let gateway = tls::Gateway::new(provider(), identity!("gateway"))?;
    let (name, backends) = ("host-7".to_owned(), vec!["arena-1".to_owned()]);
    let rules = vec![Rule { name, bind, gateway, known: backends.clone().into(), backends }];
    let opened = trunks.open(&rules)?;
    trunks.adopt(rules, opened)?;
    println!("ready");
    worker.settle(&mut flow)?;
    worker.measure(slices, &mut flow)?;
    let lanes = trunks.shown().agents.first().map(AgentShown::lanes).unwrap_or_default();
    let lane = lanes.first().copied().unwrap_or_default();
    println!(
        "path {} bytes, datagrams {:?}, lost {:?}, no room {}",
        lane.path_bytes,
        lane.datagrams,
        lane.lost(),
        lane.full,
    );
    drop(worker);
    trunks.stop();
    Ok(())
}

/// The same with a game process on this host.
fn local(path: &Path, slices: &Slices, mut flow: Flow) -> Outcome {
    let mut worker = Worker::new(Clock::start())?;
    worker.driver.open(&Port::Links { path })?;
    println!("ready");
    worker.settle(&mut flow)?;
    worker.measure(slices, &mut flow)
}

/// That process.
fn game(path: &Path, mut flow: Flow) -> Outcome {
    let clock = Clock::start();
    let (mut local, mut bundles) = (Local::connect(path)?, Bundles::default());
    loop {
        let (now_ns, before) = (clock.now_ns(), flow.received);
        let received = local.receive(&mut bundles, |bundle| {
            for record in ToGame::read(bundle) {
                if let Ok(ToGame::Payload { bytes, .. }) = record {
                    flow.take(bytes);
                }
            }
        })?;
        while flow.is_answering()
            && let Some(len) = flow.due(now_ns)
        {
            for frame in Frames::new(&flow.bytes[..len]).flatten() {
                local.push(frame);
            }
            local.flush();
        }
        if received == Received::HungUp {
            break;
        }
        flow.note_heard(before, now_ns);
        clock::sleep(look_every(&flow, now_ns));
    }
    flow.tell("game");
    Ok(())
}

/// What all threads of this process have had of the processor.
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split(' ').next().ok_or("no number")?.parse::<u64>()?;
    }
    Ok(sum)
}

fn agent(to: SocketAddr, mut flow: Flow) -> Outcome {
    let (clock, epoll) = (Clock::start(), Epoll::new()?);
    let client = tls::Agent::new(provider(), identity!("agent"))?;
    let to = (to, ServerName::try_from("gate-1.example")?);
    let settings = ringgate_trunk::socket::Settings::default();
    let mut trunk = Trunk::connect(&client, to, "host-7", settings, &epoll, clock.now_ns())?;
    let mut ready = Vec::with_capacity(64);
    let (mut begun, mut opened, mut up) = (false, 0, 0);
    while trunk.over().is_none() {
        let (now_ns, before) = (clock.now_ns(), flow.received);
        if begun {
            begun = false;
            let mut bytes = [0; 64];
            let mut writer = Writer::new(&mut bytes);
            assert!(writer.hello(&Hello::new(1, "arena-1")), "it fits");
            trunk.tell(0, 7, only(writer.bytes()));
            let mut writer = Writer::new(&mut bytes);
            assert!(writer.intake(true), "it fits");
            trunk.tell(0, 7, only(writer.bytes()));
        }
        for ready in &ready {
            trunk.handle_ready(*ready, &epoll, now_ns, |event| match event {
                Event::Begun(_) => begun = true,
                Event::Record { frame, .. } => match ToGame::decode(frame) {
                    Ok(ToGame::Payload { bytes, .. }) => flow.take(bytes),
                    _ => opened += 1,
                },
                _ => {}
            });
        }
        if opened == SESSIONS && up == 0 {
            up = now_ns + 2_000_000_000;
        }
        // As long as the other side sends, from the moment that it does.
        while up != 0
            && flow.is_answering()
            && let Some(len) = flow.due(now_ns)
        {
            for frame in Frames::new(&flow.bytes[..len]).flatten() {
                trunk.push(0, 7, frame, now_ns);
            }
            trunk.flush(&epoll, now_ns);
        }
        trunk.poll(now_ns);
        trunk.flush(&epoll, now_ns);
        // Datagrams end the wait; so does the next bundle that is due.
        flow.note_heard(before, now_ns);
        epoll.wait(&mut ready, Duration::ZERO)?;
        if ready.is_empty() {
            clock::sleep(look_every(&flow, now_ns));
        }
    }
    flow.tell("agent");
    Ok(())
}

fn only(record: &[u8]) -> Frame<'_> {
    Frames::new(record).next().expect("one").expect("own")
}

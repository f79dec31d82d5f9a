//! What a trunk costs a gateway, and what it adds on the way: payloads at a fixed rate both ways,
//! through a worker's socket that is played here, a trunk's thread, the network, and the agent's
//! end of a trunk. `benches/trunk.sh` runs it in two network namespaces.
//!
//! ```text
//!   cost gateway ADDRESS:PORT SECONDS RECORDS RATE
//!   cost agent ADDRESS:PORT RECORDS RATE
//! ```
//!
//! RECORDS payloads of 100 bytes are in each bundle, RATE of them a second leave each way.

use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ringgate_link::bundle::{Frame, Frames, Hello, Opened, SessionId, ToGame, ToGateway, Writer};
use ringgate_os::clock::{self, Clock};
use ringgate_os::notify::Epoll;
use ringgate_trunk::tls::{self, Identity};
use ringgate_trunk_io::{Bundles, Event, Local, Received, Trunk, provider};
use ringgate_trunks::{AgentShown, Rekey, Rule, Settings, Trunks};
use rustls::pki_types::ServerName;
use socket2::{Domain, SockAddr, Socket, Type};

type Outcome = Result<(), Box<dyn Error>>;

const SESSIONS: u64 = 64;
const PAYLOAD_BYTES: usize = 100;

macro_rules! identity {
    ($name:literal) => {
        Identity {
            authority: include_bytes!("../../trunk/src/tls/fixtures/authority.pem"),
            certificate: include_bytes!(concat!("../../trunk/src/tls/fixtures/", $name, ".pem")),
            key: include_bytes!(concat!("../../trunk/src/tls/fixtures/", $name, ".key")),
        }
    };
}

fn main() -> Outcome {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["gateway", address, seconds, records, rate] => {
            let flow = Flow::new(records.parse()?, rate.parse()?);
            gateway(address.parse()?, Duration::from_secs(seconds.parse()?), flow)
        }
        ["agent", address, records, rate] => {
            agent(address.parse()?, Flow::new(records.parse()?, rate.parse()?))
        }
        _ => {
            Err("gateway ADDRESS:PORT SECONDS RECORDS RATE | agent ADDRESS:PORT RECORDS RATE"
                .into())
        }
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
    /// How long payloads were under way.
    delays_us: Vec<u32>,
    bytes: Vec<u8>,
}

impl Flow {
    fn new(records: u64, rate: u64) -> Self {
        let every_ns = 1_000_000_000 * records / rate;
        let (bytes, delays_us) = (vec![0; 16 * 1024], Vec::new());
        Self { records, every_ns, next_ns: 0, sent: 0, received: 0, delays_us, bytes }
    }

    /// The next bundle that is due.
    fn due(&mut self, now_ns: u64) -> Option<usize> {
        if self.next_ns == 0 {
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

fn gateway(bind: SocketAddr, time: Duration, mut flow: Flow) -> Outcome {
    let run_dir = std::env::temp_dir().join(format!("ringgate-cost-{}", std::process::id()));
    std::fs::create_dir(&run_dir)?;
    let listener = Socket::new(Domain::UNIX, Type::SEQPACKET.nonblocking().cloexec(), None)?;
    listener.bind(&SockAddr::unix(run_dir.join("worker-0.sock"))?)?;
    listener.listen(1)?;
    let clock = Clock::start();
    let rekey = Rekey::default();
    let settings = Settings { run_dir: run_dir.clone(), workers: 1, incarnation: 1, clock, rekey };
    let mut trunks = Trunks::new(settings);
    let gateway = tls::Gateway::new(provider(), identity!("gateway"))?;
    let (name, backends) = ("host-7".to_owned(), vec!["arena-1".to_owned()]);
    let rules = vec![Rule { name, bind, gateway, backends }];
    let opened = trunks.open(&rules)?;
    trunks.adopt(rules, opened)?;
    println!("ready");
    let link = loop {
        match listener.accept() {
            Ok((socket, _)) => break socket,
            Err(_) => clock::sleep(Duration::from_millis(1)),
        }
    };
    std::fs::remove_dir_all(&run_dir)?;
    let socket = link.try_clone()?;
    let mut local = Local::from(OwnedFd::from(link));
    let mut bundles = Bundles::default();
    announce(&mut local);
    // The path is found meanwhile.
    clock::sleep(Duration::from_secs(2));
    let (start_ns, start_cpu) = (clock.now_ns(), trunk_cpu_ns()?);
    let until_ns = start_ns + time.as_nanos() as u64;
    let mut refused = 0;
    loop {
        let now_ns = clock.now_ns();
        while now_ns < until_ns
            && let Some(len) = flow.due(now_ns)
        {
            while socket.send(&flow.bytes[..len]).is_err() {
                refused += 1;
                clock::sleep(Duration::from_micros(20));
            }
        }
        receive(&mut local, &mut bundles, &mut flow)?;
        if now_ns >= until_ns + 1_000_000_000 {
            break;
        }
        clock::sleep(Duration::from_micros(50));
    }
    let cpu_ns = trunk_cpu_ns()? - start_cpu;
    let payloads = flow.sent + flow.received;
    flow.tell("gateway");
    let lanes = trunks.shown().agents.first().map(AgentShown::lanes).unwrap_or_default();
    let lane = lanes.first().copied().unwrap_or_default();
    println!(
        "trunk's thread: {:.3} us of processor time a payload ({payloads} both ways); path {} bytes, lost {:?}, no room {} \
         here and {refused} times at the worker",
        cpu_ns as f64 / 1000.0 / payloads as f64,
        lane.path_bytes,
        lane.lost(),
        lane.full,
    );
    trunks.stop();
    Ok(())
}

fn announce(local: &mut Local) {
    let mut bytes = vec![0; 16 * 1024];
    for serial in 1..=SESSIONS {
        let mut writer = Writer::new(&mut bytes);
        let address = SocketAddr::from(([192, 0, 2, 1], 7));
        let session = SessionId::new(0, serial);
        let (slot, slots_max, user_data) = (0, 1, &[0; 256]);
        let (client_id, listener) = (serial, "main");
        let opened = Opened { session, client_id, address, slot, slots_max, user_data, listener };
        assert!(writer.opened(&opened), "one fits");
        assert!(local.push_late(only(writer.bytes())), "there is room");
    }
    local.flush();
}

fn receive(local: &mut Local, bundles: &mut Bundles, flow: &mut Flow) -> Outcome {
    loop {
        let received = local.receive(bundles, |bundle| {
            for record in ToGateway::read(bundle) {
                if let Ok(ToGateway::Payload { bytes, .. }) = record {
                    flow.take(bytes);
                }
            }
        })?;
        match received {
            Received::Part => {}
            Received::Everything => return Ok(()),
            Received::HungUp => return Err("the link is gone".into()),
        }
    }
}

/// What the trunk's thread has had of the processor.
fn trunk_cpu_ns() -> Result<u64, Box<dyn Error>> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if std::fs::read_to_string(path.join("comm"))?.trim() == "ringgate-trunk" {
            let text = std::fs::read_to_string(path.join("schedstat"))?;
            return Ok(text.split(' ').next().ok_or("no number")?.parse()?);
        }
    }
    Err("there is no trunk".into())
}

fn agent(to: SocketAddr, mut flow: Flow) -> Outcome {
    let (clock, epoll) = (Clock::start(), Epoll::new()?);
    let client = tls::Agent::new(provider(), identity!("agent"))?;
    let to = (to, ServerName::try_from("gate-1.example")?);
    let settings = ringgate_trunk_io::Settings::default();
    let mut trunk = Trunk::connect(&client, to, "host-7", settings, &epoll, clock.now_ns())?;
    let mut ready = Vec::with_capacity(64);
    let (mut begun, mut opened, mut up) = (false, 0, 0);
    while trunk.over().is_none() {
        let now_ns = clock.now_ns();
        if begun {
            begun = false;
            let mut bytes = [0; 64];
            let mut writer = Writer::new(&mut bytes);
            assert!(writer.hello(&Hello::new(1, "arena-1")), "it fits");
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
        while flow.received > 0
            && up != 0
            && flow.sent < flow.received + flow.records * 4
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
        epoll.wait(&mut ready, Duration::from_micros(if flow.received > 0 { 0 } else { 1000 }))?;
        if ready.is_empty() && flow.received > 0 {
            clock::sleep(Duration::from_micros(20));
        }
    }
    flow.tell("agent");
    Ok(())
}

fn only(record: &[u8]) -> Frame<'_> {
    Frames::new(record).next().expect("one").expect("own")
}

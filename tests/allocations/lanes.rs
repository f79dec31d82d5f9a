//! A worker's lanes at work, over real sockets: payloads both ways, and now and then a record that
//! must arrive.

use std::net::SocketAddr;
use std::time::Duration;

use ringgate_batch::{Driver, IoEvent, LocalIp, SocketId, TxTarget, Wait};
use ringgate_io::{AnyDriver, Choice, DriverOptions, SocketDriver};
use ringgate_link::bundle::{Frame, Frames, Hello, OpenedPlain, SessionId, ToGateway, Writer};
use ringgate_os::clock::Clock;
use ringgate_os::notify::{Epoll, Ready};
use ringgate_trunk::gateway::{Rekey, Rule, Settings, Trunks};
use ringgate_trunk::protocol::tls::{self, Identity};
use ringgate_trunk::socket::{Event, Trunk, provider};
use ringgate_trunk::worker::Lanes;
use rustls::pki_types::ServerName;

use super::allocations_in;

macro_rules! identity {
    ($name:literal) => {
        Identity {
            authority: include_bytes!("../../crates/trunk/src/protocol/tls/fixtures/authority.pem"),
            certificate: include_bytes!(concat!(
                "../../crates/trunk/src/protocol/tls/fixtures/",
                $name,
                ".pem"
            )),
            key: include_bytes!(concat!(
                "../../crates/trunk/src/protocol/tls/fixtures/",
                $name,
                ".key"
            )),
        }
    };
}

/// A worker without a gate, and its link.
struct Worker {
    driver: AnyDriver,
    lanes: Lanes,
    link: Option<SocketId>,
    heard: u64,
}

impl Worker {
    fn turn(&mut self) {
        let Self { driver, lanes, link, heard } = self;
        let mut over = lanes.over(driver);
        over.turn(Wait::No).expect("the driver lives");
        let rx = over.rx();
        for event in &rx.events {
            if let IoEvent::Accepted { connection, .. } = *event {
                *link = Some(connection);
            }
        }
        for index in 0..rx.len() {
            let records = ToGateway::read(rx.bytes(index));
            let is_payload =
                |record: &Result<ToGateway<'_>, _>| matches!(record, Ok(ToGateway::Payload { .. }));
            *heard += records.filter(is_payload).count() as u64;
        }
    }

    fn say(&mut self, write: impl FnOnce(&mut Writer<'_>) -> bool) {
        let socket = self.link.expect("it was accepted");
        let mut over = self.lanes.over(&mut self.driver);
        let tx = over.tx();
        let slot = tx.open_large().expect("all are free");
        let mut writer = Writer::new(tx.large_mut(&slot));
        assert!(write(&mut writer));
        let len = writer.len();
        let target = TxTarget { socket, peer: None, source: LocalIp::UNSPECIFIED };
        tx.commit_large(slot, len, target, 0);
        over.flush();
    }
}

/// An agent's end.
struct Agent {
    trunk: Trunk,
    epoll: Epoll,
    clock: Clock,
    ready: Vec<Ready>,
    heard: u64,
}

impl Agent {
    fn turn(&mut self) {
        let Self { trunk, epoll, clock, ready, heard } = self;
        let now_ns = clock.now_ns();
        for ready in ready.iter() {
            trunk.handle_ready(*ready, epoll, now_ns, |event| {
                if let Event::Record { frame, .. } = event {
                    *heard += frame.payloads();
                }
            });
        }
        trunk.poll(now_ns);
        trunk.flush(epoll, now_ns);
        epoll.wait(ready, Duration::from_millis(1)).expect("epoll works");
        assert!(trunk.over().is_none(), "{:?}", trunk.over());
    }
}

fn written(write: impl FnOnce(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut bytes = vec![0; 2000];
    let mut writer = Writer::new(&mut bytes);
    assert!(write(&mut writer));
    writer.bytes().to_vec()
}

fn only(record: &[u8]) -> Frame<'_> {
    Frames::new(record).next().expect("one").expect("own")
}

#[test]
fn a_worker_with_lanes_allocates_nothing_once_it_is_warm() {
    if let Err(why) = ringgate_os::processor::suffices_for_tls() {
        return eprintln!("SKIPPED: {why}");
    }
    let clock = Clock::start();
    let driver = ringgate_io::open(Choice::Mmsg, &DriverOptions::default()).expect("sockets");
    let mut worker = Worker { driver, lanes: Lanes::new(clock), link: None, heard: 0 };
    let desks = vec![worker.lanes.desk(worker.driver.bell())];
    let (run_dir, rekey) = (std::env::temp_dir(), Rekey::default());
    let settings = Settings { run_dir, workers: 1, desks, incarnation: 1, clock, rekey };
    let mut trunks = Trunks::new(settings);
    let gateway = tls::Gateway::new(provider(), identity!("gateway")).expect("good files");
    let bind = SocketAddr::from(([127, 0, 0, 1], 0));
    let (name, backends) = ("host-7".to_owned(), vec!["arena".to_owned()]);
    let rules = vec![Rule { name, bind, gateway, known: backends.clone().into(), backends }];
    let opened = trunks.open(&rules).expect("loopback");
    let address = opened.addresses().next().expect("it is bound");
    trunks.adopt(rules, opened).expect("descriptors are left");
    let epoll = Epoll::new().expect("a descriptor");
    let client = tls::Agent::new(provider(), identity!("agent")).expect("good files");
    let to = (address, ServerName::try_from("gate-1.example").expect("a name"));
    let settings = ringgate_trunk::socket::Settings::default();
    let trunk = Trunk::connect(&client, to, "host-7", settings, &epoll, clock.now_ns());
    let trunk = trunk.expect("it can begin");
    let mut agent = Agent { trunk, epoll, clock, ready: Vec::new(), heard: 0 };
    while agent.trunk.agreed().is_none() {
        agent.turn();
    }
    let hello = written(|writer| writer.hello(&Hello::new(1, "arena")));
    agent.trunk.tell(0, 1, only(&hello));
    while worker.link.is_none() {
        agent.turn();
        worker.turn();
    }
    let session = SessionId::new(0, 1);
    let address = "192.0.2.7:9".parse().expect("literal");
    let opened = OpenedPlain { session, slot: None, slots_max: 4, address, listener: "any" };
    worker.say(|writer| writer.opened_plain(&opened));
    let payload = written(|writer| writer.payload(session, &[7; 1100]));
    let round = |worker: &mut Worker, agent: &mut Agent| {
        for _ in 0..10 {
            agent.trunk.push(0, 1, only(&payload), clock.now_ns());
        }
        agent.turn();
        let allocations = allocations_in(|| {
            worker.say(|writer| (0..10).all(|_| writer.payload(session, &[7; 1100])));
            // What must arrive goes the other way.
            worker.say(|writer| {
                writer.draining(7) && (0..3).all(|_| writer.payload(session, &[7; 100]))
            });
            worker.turn();
        });
        agent.turn();
        allocations
    };
    for _ in 0..200 {
        round(&mut worker, &mut agent);
    }
    let heard = (worker.heard, agent.heard);
    let allocations: u64 = (0..300).map(|_| round(&mut worker, &mut agent)).sum();
    assert_eq!(allocations, 0);
    assert!(worker.heard > heard.0 && agent.heard > heard.1, "both ways were in use");
    drop(agent);
    drop(worker);
    trunks.stop();
}

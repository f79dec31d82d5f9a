//! Frames as they are, put onto a wire and taken off it: tags, lengths and headers that no socket
//! sends or shows. What puts them there is AF_XDP as well, so no other right and no VLAN of the
//! kernel's is needed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ringgate_batch::{Endpoint, LocalIp};
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    self as io, CardOptions, Choice, DriverOptions, LeftSums, SocketDriver, SocketKind, Wait,
};
use ringgate_os::clock;
use ringgate_xdp::frame::{self, HEADERS_MAX, Leaving, Leg};
use ringgate_xdp::netlink::{Asking, Link, Neighbour, Out, Route, Way};
use ringgate_xdp::program::{Attached, Ours, Place, Program};
use ringgate_xdp::queue::{Notes, Queue, QueueOptions};
use ringgate_xdp::routes::{Routes, Table};

use crate::control_rig::wait_for;
use crate::gateway_rig::on_both_drivers;
use crate::io_rig::{Rig, Seen, answer};
use crate::netns::{self, Serving};
use crate::xdp_rig::{GATEWAYS_MAC, PLAYERS_MAC, pair};

on_both_drivers!(tagged_frames_are_served_and_answered_with_their_tag);

const PORT: u16 = 7000;
const PLAYERS_PORT: u16 = 5000;
const VLAN: u16 = 7;
const GATEWAY: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(10, 98, 7, 1), Ipv6Addr::new(0xfd98, 7, 0, 0, 0, 0, 0, 1));
const PLAYER: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(10, 98, 7, 2), Ipv6Addr::new(0xfd98, 7, 0, 0, 0, 0, 0, 2));

/// In a role, checksums of answers are written by us or left to the kernel.
const OUR_SUMS: &str = "our-sums";
const SUMS_LEFT: &str = "sums-left";

/// What waits on a card whose interface is down, and then gone, is the kernel's: the process that
/// goes on with the queue gets all other frames.
#[test]
fn a_queue_is_handed_over_while_its_interface_is_down_or_gone() {
    let test = "xdp_wire::a_queue_is_handed_over_while_its_interface_is_down_or_gone";
    if netns::role().is_none() {
        let Some(pair) = pair() else { return };
        let ran = pair.role(&pair.gateway, test, "gateway").output().expect("runs");
        let said = [ran.stdout, ran.stderr].concat();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
        return;
    }
    let mut queue = RawWire::open().queue;
    let all = queue.settle().len();
    for (lost, change) in [(1, "link set wire0 down"), (2, "link del wire0")] {
        let done = Command::new("ip").args(change.split(' ')).status().expect("`ip` is there");
        assert!(done.success(), "{change}");
        let blank = queue.blank().expect("hardly any has been sent");
        queue.send(blank, 0, 60).expect("room");
        queue.kick().expect_err("nothing can leave");
        assert_eq!(queue.settle().len(), all - lost, "{change}");
    }
}

/// The VLAN is there for the program, the driver and the table of routes, as it would be with an
/// interface for it; this end and the other one look at frames only.
fn tagged_frames_are_served_and_answered_with_their_tag(io: Choice) {
    match netns::role() {
        Some((role, _)) if role == "player" => return play_in_the_vlan(),
        Some((role, _)) => return serve_the_vlan(io, role == SUMS_LEFT),
        None => {}
    }
    let Some(pair) = pair() else { return };
    let driver = if io == Choice::Uring { "uring" } else { "mmsg" };
    let test = format!("xdp_wire::{driver}::tagged_frames_are_served_and_answered_with_their_tag");
    for role in [OUR_SUMS, SUMS_LEFT] {
        let gateway = Serving::start(pair.role(&pair.gateway, &test, role));
        let ran = pair.role(&pair.player, &test, "player").output().expect("runs");
        let said = [ran.stdout, ran.stderr].concat();
        assert!(ran.status.success(), "{role}: {}", String::from_utf8_lossy(&said));
        drop(gateway);
    }
}

fn play_in_the_vlan() {
    let both = [IpAddr::V4(PLAYER.0), IpAddr::V6(PLAYER.1)].map(local);
    let gateways = [IpAddr::V4(GATEWAY.0), IpAddr::V6(GATEWAY.1)];
    let ours = both.map(|local| Ours { vlan: VLAN, local, port: PLAYERS_PORT });
    let mut wire = RawWire::open_for(&ours);
    for (local, gateway) in both.into_iter().zip(gateways) {
        let leaving = Leaving {
            leg: Leg { to: GATEWAYS_MAC, from: PLAYERS_MAC, vlan: VLAN },
            local,
            port: PLAYERS_PORT,
            peer: Endpoint::from(SocketAddr::new(gateway, PORT)),
            fragments: None,
            sum_is_left: false,
        };
        for length in [1, 17, 100, 1200, 1452] {
            let datagram: Vec<_> = (0..length).map(|at| (at * 31 + length) as u8).collect();
            let question = frame_of(&leaving, &datagram);
            let answer = wait_for("an answer in the VLAN", || {
                wire.send(&question);
                wire.receive(|bytes| {
                    frame::parse(bytes).is_ok_and(|it| bytes[it.payload] == datagram)
                })
            });
            assert_eq!(answer[..6], PLAYERS_MAC);
            assert_eq!(answer[6..12], GATEWAYS_MAC);
            assert_eq!(answer[12..16], [0x81, 0, 0, VLAN as u8], "it has a tag, in front of all");
            let arrived = frame::parse(&answer).expect("a frame with right checksums");
            assert_eq!((arrived.vlan, arrived.port), (VLAN, PLAYERS_PORT));
            assert_eq!(arrived.peer, leaving.peer);
        }
    }
}

fn local(ip: IpAddr) -> LocalIp {
    LocalIp::v6(*Endpoint::from(SocketAddr::new(ip, 0)).ip_bytes(), 0)
}

/// The whole frame of a datagram.
pub(crate) fn frame_of(leaving: &Leaving, datagram: &[u8]) -> Vec<u8> {
    let mut room = [0; HEADERS_MAX];
    let bytes = frame::write_headers(&mut room, leaving, datagram);
    [&room[HEADERS_MAX - bytes..], datagram].concat()
}

/// Sends datagrams back that come in the VLAN, until it is killed.
fn serve_the_vlan(io: Choice, leaves_sums: bool) {
    let link = wire();
    let program = Program::load(link.mac.expect("an address"), link.queues).expect("root");
    let _attached = program.attach(link.index, Place::Driver).expect("veth runs programs");
    let notes = leaves_sums.then_some(Notes::Kernel);
    let card = CardOptions {
        queue: QueueOptions { notes, ..options(&link) },
        routes: Arc::new(Routes::new(table(&link))),
        left_sums: LeftSums { copy: leaves_sums, zero_copy: leaves_sums },
    };
    let sizes = DriverOptions { tx_datagrams: 64, tx_bundles: 2, ..DriverOptions::default() };
    let mut driver = io::open_with_card(io, &sizes, &card).expect("the queue is free");
    assert_eq!(
        driver.card().expect("it has a card").leaves_sums(),
        leaves_sums,
        "this kernel knows of notes"
    );
    for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let address = SocketAddr::new(any, PORT);
        // A process that was killed with io_uring keeps its port for a moment.
        let opened = wait_for("the port", || socket::player(address, &UdpOptions::default()).ok());
        let id = driver.register(opened.fd, SocketKind::Datagram).expect("registers");
        driver.serve_by_card(id, address, false);
    }
    for ip in [IpAddr::V4(GATEWAY.0), IpAddr::V6(GATEWAY.1)] {
        program.add(&Ours { vlan: VLAN, local: local(ip), port: PORT }).expect("room");
    }
    program.give_queue(0, driver.card().expect("it has a card").fd()).expect("bound");
    let since_ns = clock::unix_ns();
    netns::say_that_it_serves();
    let mut rig = Rig { driver };
    loop {
        let mut seen = Seen::default();
        rig.turn_once(Wait::AtMost(Duration::from_secs(1)), &mut seen);
        for (meta, bytes) in seen.datagrams {
            let now_ns = clock::unix_ns();
            assert!((since_ns..=now_ns).contains(&meta.kernel_ns), "the program has stamped it");
            rig.queue(answer(&meta), &bytes);
            let _ = rig.flush();
        }
        let stats = rig.driver.card().expect("it has a card").stats();
        assert_eq!(stats.left_by_socket, 0, "no socket could answer in this VLAN");
    }
}

/// The wire, the VLAN in it, and the player there.
fn table(wire: &Link) -> Table {
    const IN_THE_VLAN: u32 = 9999;
    let vlan = Link { index: IN_THE_VLAN, vlan: Some((wire.index, VLAN)), ..wire.clone() };
    let mut snapshot = Asking::open().and_then(|mut it| it.snapshot()).expect("netlink");
    snapshot.links.push(vlan);
    for (ip, bits) in [(IpAddr::V4(PLAYER.0), 24), (IpAddr::V6(PLAYER.1), 64)] {
        let way = Way::Out(Out { interface: IN_THE_VLAN, router: None });
        snapshot.routes.push(Route { table: 254, to: ip, bits, priority: 0, way });
        let (interface, mac) = (IN_THE_VLAN, Some(PLAYERS_MAC));
        snapshot.neighbours.push(Neighbour { interface, ip, mac, is_stale: false });
    }
    Table::of(&snapshot, wire.index)
}

fn wire() -> Link {
    Asking::open().and_then(|mut it| it.link("wire0")).expect("there is a wire")
}

fn options(link: &Link) -> QueueOptions {
    QueueOptions {
        interface: link.index,
        queue: 0,
        mode: None,
        receive: 256,
        send: 256,
        frame_bytes: 2048,
        notes: None,
    }
}

/// This namespace's end of the first wire.
pub(crate) struct RawWire {
    queue: Queue,
    _program: Option<(Program, Attached)>,
}

impl RawWire {
    /// To put frames onto it.
    pub(crate) fn open() -> Self {
        let queue = Queue::with_own_memory(&options(&wire())).expect("the queue is free");
        Self { queue, _program: None }
    }

    /// To take some off it as well.
    pub(crate) fn open_for(ours: &[Ours]) -> Self {
        let link = wire();
        let program = Program::load(link.mac.expect("an address"), link.queues).expect("root");
        let attached = program.attach(link.index, Place::Driver).expect("veth runs programs");
        let queue = Self::open().queue;
        for ours in ours {
            program.add(ours).expect("room");
        }
        program.give_queue(0, queue.as_fd()).expect("bound");
        Self { queue, _program: Some((program, attached)) }
    }

    /// Puts a frame onto the wire.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut blank = wait_for("a frame that has left", || {
            self.queue.reap();
            self.queue.blank()
        });
        self.queue.bytes_mut(&mut blank)[..bytes.len()].copy_from_slice(bytes);
        self.queue.send(blank, 0, bytes.len() as u32).expect("as many as there are frames");
        self.queue.kick().expect("the wire is up");
    }

    /// The first frame that is meant, of those that come while it looks.
    fn receive(&mut self, is_meant: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        for _ in 0..LOOKS {
            self.queue.top_up();
            let Some(received) = self.queue.receive() else {
                clock::sleep(Duration::from_millis(1));
                continue;
            };
            let (at, len) = (received.at as usize, received.len as usize);
            let bytes = self.queue.bytes(&received.frame)[at..][..len].to_vec();
            self.queue.give_back(received.frame);
            if is_meant(&bytes) {
                return Some(bytes);
            }
        }
        None
    }
}

/// A millisecond each, before a question is asked again.
const LOOKS: u32 = 200;

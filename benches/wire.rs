//! The wire: both drivers and the plain way, receiving and echoing over loopback on one core.
//!
//! A round fills the server's receive queue from a thousand addresses, untimed, and then times the
//! server until the queue is empty and everything is answered. So what is timed is the server's own
//! cost; nobody sleeps, and no other core interferes. Loopback charges the sender for delivery: an
//! answer costs about twice what a network card would take off it. Answers are refused by the
//! generator's socket filter, which is the cheapest end they can have.

#[path = "support.rs"]
mod support;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use ringgate_batch::{Batches, Endpoint, Flush, LocalIp, SocketId, TxTarget};
use ringgate_gate::netcode_filter;
use ringgate_io::filter::Filter;
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    self as io, AnyDriver, Choice, Driver, DriverOptions, SocketDriver, SocketKind, Wait,
};

use support::{Bench, Contender};

fn main() {
    if let Some(core) = core_affinity::get_core_ids().unwrap_or_default().first() {
        core_affinity::set_for_current(*core);
    }
    let mut bench = Bench::from_args("wire");
    let datagrams = bench.size(512, 40);
    for (title, load) in [
        ("echo, 100 bytes", Load::new(100)),
        ("echo, 1200 bytes", Load::new(1200)),
        ("echo, 100 bytes, four in a row from each player", Load { in_a_row: 4, ..Load::new(100) }),
        ("echo, 100 bytes, one of four sockets busy", Load { sockets: 4, ..Load::new(100) }),
        ("echo, 100 bytes, four sockets busy", Load { sockets: 4, busy: 4, ..Load::new(100) }),
    ] {
        if bench.wants(title) {
            compare(&mut bench, title, datagrams, load, Work::Echo);
        }
    }
    let title = "receive, 100 bytes";
    if bench.wants(title) {
        compare(&mut bench, title, datagrams, Load::new(100), Work::Receive);
    }
    let title = "junk, 100 bytes, sending included";
    if bench.wants(title) {
        compare_junk(&mut bench, title, Load { datagrams, junk: true, ..Load::new(100) });
    }
    for (title, cold) in
        [("echo on uring by slots, warm", false), ("echo on uring by slots, cold caches", true)]
    {
        if bench.wants(title) {
            compare_slots(&mut bench, title, Load { datagrams, cold, ..Load::new(100) });
        }
    }
    bench.finish();
}

fn compare(bench: &mut Bench, title: &str, datagrams: usize, load: Load, work: Work) {
    let load = Load { datagrams, ..load };
    let mut group = bench.group(title, datagrams);
    group.rounds(ROUNDS);
    if load.sockets == 1 {
        group.add("recvfrom and sendto", Plain::new(load, work));
    }
    for choice in [Choice::Mmsg, Choice::Uring] {
        match Driven::new(choice, load, work) {
            Ok(driven) => drop(group.add(driven.driver.name(), driven)),
            Err(why) => eprintln!("skipped: {why}"),
        }
    }
    group.run_agreeing();
}

/// How many receive slots are good.
fn compare_slots(bench: &mut Bench, title: &str, load: Load) {
    let mut group = bench.group(title, load.datagrams);
    group.rounds(ROUNDS);
    for small_slots in [32, 64, 128, 256, 1024] {
        let options = DriverOptions { small_slots, ..DriverOptions::default() };
        match Driven::with(Choice::Uring, options, load, Work::Echo) {
            Ok(driven) => drop(group.add(format!("{small_slots} slots"), driven)),
            Err(why) => eprintln!("skipped: {why}"),
        }
    }
    group.run_agreeing();
}

/// What junk costs the host, by where it ends. The filter runs while the datagram is delivered,
/// which on loopback is the sender's time; so the sending is timed too, and the first row is to be
/// taken off the others.
fn compare_junk(bench: &mut Bench, title: &str, load: Load) {
    let (nothing, netcode) = (Filter::new(), netcode_filter(0x1122_3344_5566_7788));
    let mut group = bench.group(title, load.datagrams);
    group.rounds(ROUNDS);
    group.add("refused by a filter of one instruction", Junk::new(load, Some(&nothing)));
    group.add("refused by a listener's filter", Junk::new(load, Some(&netcode)));
    group.add("received, and nothing else", Junk::new(load, None));
    group.run_agreeing();
}

/// What arrives in a round.
#[derive(Clone, Copy)]
struct Load {
    datagrams: usize,
    bytes: usize,
    /// Datagrams from one address before the next has its turn.
    in_a_row: usize,
    sockets: usize,
    /// How many of the sockets get anything.
    busy: usize,
    /// Something else has used the caches before the server gets to work.
    cold: bool,
    /// Datagrams are no packets of netcode.
    junk: bool,
}

impl Load {
    const fn new(bytes: usize) -> Self {
        Self { datagrams: 0, bytes, in_a_row: 1, sockets: 1, busy: 1, cold: false, junk: false }
    }
}

/// What the server does with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Echo,
    Receive,
}

/// Sends what arrives, from many addresses of this host through one socket.
struct Generator {
    driver: AnyDriver,
    socket: SocketId,
    servers: Vec<Endpoint>,
    load: Load,
    elsewhere: Vec<u8>,
}

impl Generator {
    fn new(load: Load, servers: &[SocketAddr]) -> Self {
        let nothing = Filter::new();
        let options = UdpOptions { filter: Some(&nothing), ..UdpOptions::default() };
        let socket = socket::player(([0; 4], 0).into(), &options).expect("loopback can be bound");
        let options = DriverOptions { tx_datagrams: 256, ..DriverOptions::default() };
        let mut driver = io::open(Choice::Mmsg, &options).expect("mmsg works everywhere");
        let socket = driver.register(socket.fd, SocketKind::Datagram).expect("registers");
        let servers = servers[..load.busy].iter().map(|server| Endpoint::from(*server)).collect();
        let elsewhere = vec![0; if load.cold { CACHES_BYTES } else { 0 }];
        Self { driver, socket, servers, load, elsewhere }
    }

    fn fill(&mut self) {
        for index in 0..self.load.datagrams {
            if self.driver.tx().small_left() == 0 {
                self.flush();
            }
            let player = index / self.load.in_a_row % PLAYERS;
            let target = TxTarget {
                socket: self.socket,
                peer: Some(self.servers[index % self.servers.len()]),
                source: LocalIp::v4([127, 1, (player >> 8) as u8, player as u8], 0),
            };
            let byte = if self.load.junk { JUNK } else { player as u8 };
            let tx = self.driver.tx();
            let room = tx.room().expect("flushed when full");
            room.slot.fill(byte);
            room.send(self.load.bytes, target, 0);
        }
        self.flush();
        for line in self.elsewhere.chunks_mut(64) {
            line[0] = line[0].wrapping_add(1);
        }
    }

    fn flush(&mut self) {
        self.driver.flush();
        assert!(!self.driver.tx().has_failures(), "loopback takes everything");
    }
}

/// A server on one of the drivers.
struct Driven {
    driver: AnyDriver,
    work: Work,
    generator: Generator,
}

impl Driven {
    fn new(choice: Choice, load: Load, work: Work) -> Result<Self, io::StartError> {
        Self::with(choice, DriverOptions::default(), load, work)
    }

    fn with(
        choice: Choice,
        options: DriverOptions,
        load: Load,
        work: Work,
    ) -> Result<Self, io::StartError> {
        let options = DriverOptions { tx_datagrams: 1024, ..options };
        let mut driver = io::open(choice, &options)?;
        let mut servers = Vec::new();
        for _ in 0..load.sockets {
            let socket = server(load);
            servers.push(socket.local);
            driver.register(socket.fd, SocketKind::Datagram).expect("registers");
        }
        let generator = Generator::new(load, &servers);
        Ok(Self { driver, work, generator })
    }

    fn answer(&mut self) {
        let Batches { rx, tx, mut out } = self.driver.batches();
        for index in 0..rx.len() {
            let meta = rx.metas()[index];
            let target =
                TxTarget { socket: meta.socket, peer: Some(meta.peer), source: meta.local };
            let room = tx.room().expect("more slots than a turn brings");
            room.send_copy(rx.bytes(index), target, 0);
        }
        out.flush(tx);
        assert!(!tx.has_failures(), "loopback takes everything");
    }
}

impl Contender for Driven {
    fn prepare(&mut self) {
        self.generator.fill();
    }

    fn run(&mut self) -> u64 {
        let mut done = 0;
        while done < self.generator.load.datagrams {
            self.driver.turn(Wait::No).expect("the driver lives");
            done += self.driver.rx().len();
            if self.work == Work::Echo {
                self.answer();
            }
        }
        done as u64
    }
}

/// A server that asks for one datagram at a time.
struct Plain {
    socket: UdpSocket,
    work: Work,
    generator: Generator,
}

impl Plain {
    fn new(load: Load, work: Work) -> Self {
        let socket = server(load);
        let generator = Generator::new(load, &[socket.local]);
        Self { socket: socket.fd.into(), work, generator }
    }
}

impl Contender for Plain {
    fn prepare(&mut self) {
        self.generator.fill();
    }

    fn run(&mut self) -> u64 {
        let mut buffer = [0; 2048];
        for _ in 0..self.generator.load.datagrams {
            let (len, from) = self.socket.recv_from(&mut buffer).expect("the queue is full");
            if self.work == Work::Echo {
                self.socket.send_to(&buffer[..len], from).expect("loopback takes everything");
            }
        }
        self.generator.load.datagrams as u64
    }
}

/// Junk that is sent to a socket, and received where its filter lets it pass.
struct Junk {
    socket: UdpSocket,
    is_refused: bool,
    generator: Generator,
}

impl Junk {
    fn new(load: Load, filter: Option<&Filter>) -> Self {
        let socket = server_with(load, filter);
        let generator = Generator::new(load, &[socket.local]);
        Self { socket: socket.fd.into(), is_refused: filter.is_some(), generator }
    }
}

impl Contender for Junk {
    fn run(&mut self) -> u64 {
        self.generator.fill();
        let count = self.generator.load.datagrams;
        if self.is_refused {
            // The socket does not wait: had anything passed, it would be here.
            assert!(self.socket.recv_from(&mut [0; 2048]).is_err(), "all of it is refused");
        } else {
            let mut buffer = [0; 2048];
            for _ in 0..count {
                self.socket.recv_from(&mut buffer).expect("the queue is full");
            }
        }
        count as u64
    }
}

fn server(load: Load) -> socket::UdpSocket {
    server_with(load, None)
}

/// A player socket with room for a whole round.
fn server_with(load: Load, filter: Option<&Filter>) -> socket::UdpSocket {
    let address = ([127, 0, 0, 1], 0).into();
    let options = UdpOptions { filter, ..UdpOptions::default() };
    let socket = socket::player(address, &options).expect("loopback can be bound");
    let room = load.datagrams * (load.bytes + QUEUED_OVERHEAD_BYTES);
    assert!(
        room <= socket.receive_buffer_bytes,
        "a round needs a receive buffer of {room} bytes: run as root, or raise net.core.rmem_max"
    );
    assert_eq!(socket::socket_drops(socket.fd.as_fd()).expect("the kernel tells"), 0);
    socket
}

/// A round takes half a millisecond: short enough to be over, mostly, before somebody else wants
/// the core.
const ROUNDS: usize = 301;

const PLAYERS: usize = 1000;

/// The first byte of no packet.
const JUNK: u8 = 0xee;

/// More than a core's own caches hold.
const CACHES_BYTES: usize = 8 << 20;

/// What the kernel charges a receive buffer for a datagram beside its bytes, generously.
const QUEUED_OVERHEAD_BYTES: usize = 1000;

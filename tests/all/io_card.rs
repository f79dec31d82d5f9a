//! A driver with a card: datagrams in frames and datagrams by sockets, side by side, in two network
//! namespaces and with both interfaces of the kernel beside it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use ringgate_batch::LocalIp;
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    self as io, CardOptions, Choice, DriverOptions, LeftSums, SocketDriver, SocketKind, Wait,
};
use ringgate_xdp::netlink::{Asking, Link};
use ringgate_xdp::program::{Ours, Place, Program};
use ringgate_xdp::queue::{Notes, QueueOptions};
use ringgate_xdp::routes::Watch;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::gateway_rig::on_both_drivers;
use crate::io_rig::{Rig, Seen, answer};
use crate::netns::{self, Pair, Serving};
use crate::own::take_again;

on_both_drivers!(
    datagrams_come_and_go_in_frames,
    checksums_that_are_left_to_others_are_right,
    what_is_odd_goes_by_the_socket,
    answers_follow_a_neighbour_that_changes,
    a_cable_that_is_pulled_and_put_back_changes_nothing,
    the_port_works_after_the_process_was_killed,
    a_queue_that_cannot_be_had_is_refused_with_a_sentence,
);

const PORT: u16 = 7000;
/// A port of the same host that is no business of the card's.
const OTHER_PORT: u16 = 7001;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, 1);
const BOTH: [IpAddr; 2] = [IpAddr::V4(GATEWAY), IpAddr::V6(GATEWAY_V6)];

fn datagrams_come_and_go_in_frames(io: Choice) {
    play("datagrams_come_and_go_in_frames", io, |_| {
        for ip in BOTH {
            let player = Player::new(ip, PORT);
            let before = player.counts();
            // The longest are those of the wire.
            let longest = if ip.is_ipv4() { 1472 } else { 1452 };
            let lengths = (1..70).chain([100, 1199, 1200, longest - 1, longest]);
            let lengths: Vec<_> = lengths.collect();
            for length in &lengths {
                player.echo(*length);
            }
            let [received, sent, by_socket, _] = player.counts().since(&before);
            // The question itself has come and gone too. Now and then the kernel gets an answer to
            // send, so that it asks whether the neighbour is still there.
            let count = lengths.len() as u64 + 1;
            assert_eq!((received, sent + by_socket), (count, count));
            assert!(by_socket <= 1 + count / 32, "{by_socket} of {count} by the socket");
        }
    });
}

/// The kernel is left the checksums, writes them because it is told to, and the player's kernel
/// looks at them: of the wrong place, or of other bytes, none would arrive.
fn checksums_that_are_left_to_others_are_right(io: Choice) {
    play_against(SUMS_LEFT, "checksums_that_are_left_to_others_are_right", io, |_| {
        for ip in BOTH {
            let player = Player::new(ip, PORT);
            player.wait_until_sent();
            let before = player.counts();
            let longest = if ip.is_ipv4() { 1472 } else { 1452 };
            for length in (1..20).chain([100, 1199, 1200, longest - 1, longest]) {
                player.echo(length);
            }
            let [_, sent, ..] = player.counts().since(&before);
            assert!(sent > 20, "{sent} in frames");
        }
    });
}

fn what_is_odd_goes_by_the_socket(io: Choice) {
    play("what_is_odd_goes_by_the_socket", io, |_| {
        for ip in BOTH {
            let player = Player::new(ip, PORT);
            let before = player.counts();
            // In two fragments, and back in two.
            let longest = if ip.is_ipv4() { 1472 } else { 1452 };
            player.echo(longest + 1);
            player.echo(1600);
            let [received, sent, by_socket, _] = player.counts().since(&before);
            assert_eq!((received, sent + by_socket), (1, 3));
            assert!(by_socket >= 2, "what is too long for a frame");
        }
        Player::any(BOTH[0], OTHER_PORT).echo(100);
        // A checksum that is wrong is counted, and nobody hears of it.
        let player = Player::new(BOTH[0], PORT);
        let before = player.counts();
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).expect("root");
        let packet = [0, 9, (PORT >> 8) as u8, PORT as u8, 0, 12, 0x12, 0x34, 1, 2, 3, 4];
        let to = SockAddr::from(SocketAddr::from((GATEWAY, 0)));
        raw.send_to(&packet, &to).expect("sent");
        player.wait_until(|counts| counts.since(&before)[3] == 1);
    });
}

fn answers_follow_a_neighbour_that_changes(io: Choice) {
    play("answers_follow_a_neighbour_that_changes", io, |_| {
        let players = BOTH.map(|ip| Player::new(ip, PORT));
        for (round, mac) in ["02:00:00:00:00:21", "02:00:00:00:00:22"].into_iter().enumerate() {
            for player in &players {
                player.echo(100 + round);
            }
            set(&format!("link set wire0 address {mac}"));
            for player in &players {
                player.insist(200 + round);
                player.wait_until_sent();
            }
        }
    });
}

fn a_cable_that_is_pulled_and_put_back_changes_nothing(io: Choice) {
    play("a_cable_that_is_pulled_and_put_back_changes_nothing", io, |_| {
        let player = Player::new(BOTH[0], PORT);
        player.echo(100);
        set("link set wire0 down");
        // It cannot be sent, which is what is wanted.
        let _ = player.socket.send(&[7; 100]);
        set("link set wire0 up");
        player.insist(101);
        let before = player.counts();
        player.wait_until(|counts| {
            let [received, sent, ..] = counts.since(&before);
            received > 0 && sent > 0
        });
    });
}

fn the_port_works_after_the_process_was_killed(io: Choice) {
    let name = "the_port_works_after_the_process_was_killed";
    match netns::role() {
        Some((role, _)) if role == "player" => Player::any(BOTH[0], PORT).echo(100),
        Some((role, _)) if role == "socket" => serve_socket(),
        Some(_) => serve(io),
        None => {
            let Some(pair) = Pair::new() else { return };
            let test = test_name(name, io);
            for role in ["gateway", "socket", "gateway"] {
                let gateway = Serving::start(pair.role(&pair.gateway, &test, role));
                ask_as_player(&pair, &test);
                drop(gateway);
            }
        }
    }
}

fn a_queue_that_cannot_be_had_is_refused_with_a_sentence(io: Choice) {
    let name = "a_queue_that_cannot_be_had_is_refused_with_a_sentence";
    match netns::role() {
        Some((role, _)) if role == "second" => {
            let watch = Watch::start(wire().index).expect("netlink");
            for (queue, advice) in [(0, "another process has this queue"), (7, "no such queue")] {
                let refused = io::open_with_card(io, &OPTIONS, &card(&watch, queue));
                let why = refused.expect_err("it cannot be had").to_string();
                assert!(why.contains(advice), "{why}");
            }
        }
        Some(_) => serve(io),
        None => {
            let Some(pair) = Pair::new() else { return };
            let test = test_name(name, io);
            let gateway = Serving::start(pair.role(&pair.gateway, &test, "gateway"));
            run(pair.role(&pair.gateway, &test, "second"));
            drop(gateway);
        }
    }
}

/// Runs a test's two halves in the two namespaces, or the half that this process is.
fn play(name: &str, io: Choice, player: fn(&str)) {
    play_against("gateway", name, io, player);
}

/// The same with a gateway in a role.
fn play_against(role: &str, name: &str, io: Choice, player: fn(&str)) {
    match netns::role() {
        Some((role, gateway)) if role == "player" => player(&gateway),
        Some(_) => serve(io),
        None => {
            let Some(pair) = Pair::new() else { return };
            let test = test_name(name, io);
            let gateway = Serving::start(pair.role(&pair.gateway, &test, role));
            ask_as_player(&pair, &test);
            drop(gateway);
        }
    }
}

fn test_name(name: &str, io: Choice) -> String {
    let driver = if io == Choice::Uring { "uring" } else { "mmsg" };
    format!("io_card::{driver}::{name}")
}

fn ask_as_player(pair: &Pair, test: &str) {
    run(pair.role(&pair.player, test, "player"));
}

fn run(mut role: std::process::Command) {
    let ran = role.output().expect("runs");
    let said = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
}

const OPTIONS: DriverOptions = DriverOptions {
    small_slots: 64,
    large_slots: 16,
    registered_sockets: 64,
    tx_datagrams: 64,
    tx_bundles: 2,
};

fn wire() -> Link {
    Asking::open().and_then(|mut it| it.link("wire0")).expect("there is a wire")
}

fn card(watch: &Watch, queue: u32) -> CardOptions {
    let queue = QueueOptions {
        interface: wire().index,
        queue,
        mode: None,
        receive: 256,
        send: 256,
        frame_bytes: 2048,
        notes: None,
    };
    CardOptions { queue, routes: Arc::clone(watch.routes()), left_sums: LeftSums::default() }
}

/// A gateway that leaves checksums to the kernel.
const SUMS_LEFT: &str = "sums-left";

/// Sends datagrams back, but those that ask for counts. Ends when it is killed.
fn serve(io: Choice) {
    let link = wire();
    let program = Program::load(link.mac.expect("an address"), link.queues).expect("root");
    let _attached = program.attach(link.index, Place::Driver).expect("veth runs programs");
    let watch = Watch::start(link.index).expect("netlink");
    let mut card = card(&watch, 0);
    let leaves_sums = netns::role().is_some_and(|(role, _)| role == SUMS_LEFT);
    if leaves_sums {
        card.queue.notes = Some(Notes::Kernel);
        card.left_sums = LeftSums { copy: true, zero_copy: true };
    }
    let mut driver = io::open_with_card(io, &OPTIONS, &card).expect("the queue is free");
    assert_eq!(
        driver.card().expect("it has a card").leaves_sums(),
        leaves_sums,
        "this kernel knows of notes"
    );
    for address in [SocketAddr::from(([0; 4], PORT)), SocketAddr::from((GATEWAY_V6, PORT))] {
        let plain = UdpOptions { may_fragment: true, ..UdpOptions::default() };
        let opened = take_again(|| socket::player(address, &plain));
        let id = driver.register(opened.fd, SocketKind::Datagram).expect("registers");
        driver.serve_by_card(id, address, true);
    }
    let other = socket::player(SocketAddr::from(([0; 4], OTHER_PORT)), &UdpOptions::default());
    driver.register(other.expect("free").fd, SocketKind::Datagram).expect("registers");
    for local in [LocalIp::v4(GATEWAY.octets(), 0), LocalIp::v6(GATEWAY_V6.octets(), 0)] {
        program.add(&Ours { vlan: 0, local, port: PORT }).expect("room");
    }
    program.give_queue(0, driver.card().expect("it has a card").fd()).expect("bound");
    netns::say_that_it_serves();
    let mut rig = Rig { driver };
    loop {
        let mut seen = Seen::default();
        rig.turn_once(Wait::AtMost(Duration::from_secs(1)), &mut seen);
        for (meta, bytes) in seen.datagrams {
            if bytes == COUNTS {
                let counts = counts_of(&rig);
                rig.queue(answer(&meta), counts.as_bytes());
            } else {
                rig.queue(answer(&meta), &bytes);
            }
            let _ = rig.flush();
        }
    }
}

fn counts_of(rig: &Rig) -> String {
    let stats = rig.driver.card().expect("it has a card").stats();
    let numbers = [stats.received, stats.sent, stats.left_by_socket, stats.refused_checksum];
    numbers.map(|number| number.to_string()).join(" ")
}

/// A process without a card at the same port.
fn serve_socket() {
    let socket = take_again(|| UdpSocket::bind((GATEWAY, PORT)));
    netns::say_that_it_serves();
    let mut buffer = [0; 2048];
    while let Ok((len, peer)) = socket.recv_from(&mut buffer) {
        socket.send_to(&buffer[..len], peer).expect("sent");
    }
}

const COUNTS: &[u8] = b"counts?";

/// What the gateway has counted: received and sent in frames, sent by sockets, wrong checksums.
struct Counts([u64; 4]);

impl Counts {
    fn since(&self, before: &Self) -> [u64; 4] {
        std::array::from_fn(|at| self.0[at] - before.0[at])
    }
}

struct Player {
    socket: UdpSocket,
}

impl Player {
    /// A player whom the gateway answers by its card.
    fn new(ip: IpAddr, port: u16) -> Self {
        let player = Self::any(ip, port);
        player.wait_until_sent();
        player
    }

    fn any(ip: IpAddr, port: u16) -> Self {
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).expect("our namespace");
        socket.connect((ip, port)).expect("a route");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        let player = Self { socket };
        // The first is lost where a neighbour is not known yet.
        player.insist(10);
        player
    }

    /// Waits until answers go by the card, which takes a neighbour that is known.
    fn wait_until_sent(&self) {
        let before = self.counts();
        self.wait_until(|counts| counts.since(&before)[1] > 0);
    }

    /// Sends a datagram and has it sent back, once.
    fn echo(&self, length: usize) {
        let datagram: Vec<_> = (0..length).map(|at| (at * 31 + length) as u8).collect();
        self.socket.send(&datagram).expect("sent");
        let back = (0..60).find_map(|_| self.hear(|bytes| (bytes == datagram).then_some(())));
        assert!(back.is_some(), "{length} bytes");
    }

    /// What is made of the first datagram that is meant, of those that come within a second.
    fn hear<T>(&self, meant: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        let mut buffer = [0; 2048];
        loop {
            let len = self.socket.recv(&mut buffer).ok()?;
            if let Some(made) = meant(&buffer[..len]) {
                return Some(made);
            }
        }
    }

    /// Sends until something comes back.
    fn insist(&self, length: usize) {
        let datagram = vec![length as u8; length];
        let is_back = |_: &i32| {
            let _ = self.socket.send(&datagram);
            self.hear(|bytes| (bytes == datagram).then_some(())).is_some()
        };
        assert!((0..60).find(is_back).is_some(), "nothing comes back");
    }

    /// Asks until it answers: while a neighbour is looked for, answers may be lost.
    fn counts(&self) -> Counts {
        let read = |bytes: &[u8]| {
            let numbers = std::str::from_utf8(bytes).ok()?.split(' ').map(|it| it.parse().ok());
            numbers.collect::<Option<Vec<_>>>()?.try_into().ok().map(Counts)
        };
        let ask = |_: i32| {
            let _ = self.socket.send(COUNTS);
            self.hear(read)
        };
        (0..60).find_map(ask).expect("it answers")
    }

    fn wait_until(&self, mut is_so: impl FnMut(&Counts) -> bool) {
        for _ in 0..6000 {
            if is_so(&self.counts()) {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        panic!("it does not come to that");
    }
}

/// Changes the network of the namespace that this process is in.
fn set(what: &str) {
    let done =
        std::process::Command::new("ip").args(what.split(' ')).output().expect("it is there");
    assert!(done.status.success(), "{what}: {}", String::from_utf8_lossy(&done.stderr));
}

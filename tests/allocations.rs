//! What a gate allocates: nothing while it works, and little for each player; and an end of the
//! delivery layer, a lane of a trunk, and the lanes that a worker has.
//!
//! In a test binary of its own, because an allocator that counts is the whole program's. Counted is
//! what the calling thread does, so tests may run side by side.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait; this one passes everything on")]

#[path = "allocations/delivery.rs"]
mod delivery;
#[path = "allocations/lanes.rs"]
mod lanes;
#[path = "allocations/messages.rs"]
mod messages;
#[path = "allocations/trunk.rs"]
mod trunk;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use ringgate_batch::{Endpoint, LocalIp, SocketId, TxTarget};
use ringgate_bots::unreal::StandIn;
use ringgate_core::crypto::Aead;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::{BUNDLE_BYTES_MAX, DATAGRAM_BYTES_MAX, UNREAL_BYTES_MAX};
use ringgate_core::proto::netcode::VERSION_INFO;
use ringgate_core::proto::netcode::request::REQUEST_BYTES;
use ringgate_core::proto::plain::{Field, Order, Width};
use ringgate_core::proto::replay::Policy;
use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::handshake::{Base, Body, Handshake, Tail};
use ringgate_core::proto::unreal::prefix::{Framing, Ids};
use ringgate_core::secret::{CookieSecret, Key};
use ringgate_gate::{
    Backend, BackendId, BindId, Claims, Duplicates, Gate, Limits, LinkKind, Listener, ListenerId,
    Now, Phase, Plain, Protocol, Route, Seed, Sequence, Setup, Token, TokenPlace, Unreal, WorkerId,
    WorkerIndex,
};
use ringgate_testkit::{ConnectedPlayers, Host, Random};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn note(allocations: u64, bytes: i64) {
    // A thread that is ending has no counters any more, and nothing left to measure.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + allocations));
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call goes to `System` with the caller's own arguments, so `System` keeps the
// promises; the counters are plain cells of the calling thread and allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: the caller's promises about `block` and `layout` are passed on; all blocks come
        // from `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(1, bytes as i64 - layout.size() as i64);
        // SAFETY: as in `dealloc`.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

/// How often `work` allocates.
fn allocations_in(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations_in(|| drop(std::hint::black_box(vec![0_u8; 100]))), 1);
    assert_eq!(allocations_in(|| ()), 0);
}

const PLAYERS: usize = 300;

/// A turn in which a bit of everything happens.
fn busy_turn(
    connected: &mut ConnectedPlayers,
    random: &mut Random,
    packet: &mut [u8; DATAGRAM_BYTES_MAX],
) {
    let mut recorded = [0; DATAGRAM_BYTES_MAX];
    let mut recorded_len = 0;
    let first = random.within(0..PLAYERS as u64) as usize;
    let send = |connected: &mut ConnectedPlayers, from: Endpoint, bytes: &[u8]| {
        while !connected.receive(from, bytes) {
            connected.turn();
        }
    };
    for player in (first..first + 30).map(|player| player % PLAYERS) {
        let len = connected.write_payload(player, &[7; 100], packet);
        send(connected, ConnectedPlayers::home(player), &packet[..len]);
        if player % 7 == 0 {
            recorded[..len].copy_from_slice(&packet[..len]);
            recorded_len = len;
        }
    }
    let player = (first + 3) % PLAYERS;
    let home = ConnectedPlayers::home(player);
    // Replayed, forged, from another port of a player, from another port and forged, junk from a
    // player, junk from nobody.
    send(connected, home, &recorded[..recorded_len]);
    let len = connected.write_payload(player, &[8; 50], packet);
    packet[len - 1] ^= 1;
    send(connected, home, &packet[..len]);
    send(connected, home.with_port(9), &packet[..len]);
    send(connected, home.with_port(9), &recorded[..recorded_len]);
    for from in [home, Endpoint::v4(random.bytes(), 1), Endpoint::v4([192, 0, 2, 1], 0)] {
        let mut junk = [0; 200];
        random.fill(&mut junk);
        send(connected, from, &junk[..random.within(0..200) as usize]);
    }
    let mut bundle = [0; BUNDLE_BYTES_MAX];
    let players = (first..first + 50).map(|player| player % PLAYERS);
    let len = connected.write_bundle(players, &[9; 100], &mut bundle);
    while !connected.receive_bundle(&bundle[..len]) {
        connected.turn();
    }
    connected.pass(random.within(0..20_000_000));
    connected.turn();
}

#[test]
fn a_gate_at_work_allocates_nothing() {
    let mut connected = ConnectedPlayers::new(PLAYERS, Aead::detect());
    let (mut random, mut packet) = (Random::new(1), [0; DATAGRAM_BYTES_MAX]);
    (0..200).for_each(|_| busy_turn(&mut connected, &mut random, &mut packet));
    let before = connected.gate().counters().clone();
    let allocations = allocations_in(|| {
        (0..2000).for_each(|_| busy_turn(&mut connected, &mut random, &mut packet));
    });
    let after = connected.gate().counters();
    assert_eq!(allocations, 0);

    // All of it has happened.
    assert_eq!(after.payloads_to_links - before.payloads_to_links, 2000 * 30);
    assert_eq!(after.payloads_down - before.payloads_down, 2000 * 50);
    assert!(after.packets_out[4] - before.packets_out[4] > 10_000, "keep-alives");
    for reason in [
        DropReason::ReplayDuplicate,
        DropReason::PacketForged,
        DropReason::UnknownSource,
        DropReason::PortSwitchForged,
        DropReason::PortSwitchStale,
    ] {
        assert!(after.drops.of(reason) > before.drops.of(reason), "{}", reason.name());
    }
    assert_eq!(after.check_conservation(), Ok(()));
}

#[test]
fn spoofed_requests_allocate_nothing_and_are_answered_with_nothing() {
    const REQUESTS: u64 = 200_000;
    let mut connected = ConnectedPlayers::new(10, Aead::detect());
    let mut random = Random::new(2);
    let mut request = [0; REQUEST_BYTES];
    random.fill(&mut request[1..]);
    request[1..14].copy_from_slice(VERSION_INFO);
    request[14..22].copy_from_slice(&ConnectedPlayers::PROTOCOL.to_le_bytes());
    request[22..30].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut flood = |connected: &mut ConnectedPlayers, count: u64| {
        let mut answers = 0;
        for n in 0..count {
            // A worker that is behind would leave most of them to the clients' next try.
            if n % 16 == 0 {
                answers += connected.turn();
            }
            let from = Endpoint::v4(random.bytes(), random.word() as u16);
            random.fill(&mut request[30..54]);
            while !connected.receive(from, &request) {
                answers += connected.turn();
            }
        }
        answers + connected.turn()
    };
    flood(&mut connected, 1000);
    let before = connected.gate().counters().clone();
    let mut answers = 0;
    let allocations = allocations_in(|| answers = flood(&mut connected, REQUESTS));
    assert_eq!((allocations, answers), (0, 0));
    let after = connected.gate().counters();
    assert_eq!(after.datagrams_in - before.datagrams_in, REQUESTS);
    let forged =
        after.drops.of(DropReason::RequestForged) - before.drops.of(DropReason::RequestForged);
    assert!(forged > REQUESTS / 2, "most got as far as the cipher: {forged}");
}

/// What is reserved for many sessions, and more than a million of them would take: every table is
/// sized exactly, and what there is once (buffers, rate limits) weighs ten times as much on each of
/// these. Memory that is reserved and never touched counts here; `cargo bench --bench table` shows
/// what is resident.
const BASE: Base = Base {
    version_min: 3,
    version: 4,
    sent_count: 0,
    network_version: 0x1234_5678,
    network_features: 1,
};
const UNREAL_NOW: Now = Now { mono_ns: 100_000_000_000, unix_s: 1_700_000_000 };
const PLAYERS_SOCKET: SocketId = SocketId(0);
const UDP_LINK: SocketId = SocketId(1);
const SERVER: Endpoint = Endpoint::v4([127, 0, 0, 1], 7777);

fn unreal_setup() -> Setup {
    let listener = Listener {
        name: "shooter".to_owned(),
        protocol: Protocol::Unreal(Unreal {
            framing: Framing::default(),
            learns_base: true,
            versions: 3..=4,
            network_versions: None,
            duplicates: Duplicates::Notify,
            gap_limit: 0,
            idle_timeout_ns: 30_000_000_000,
        }),
        public: Vec::new(),
        backends: vec![BackendId(0)],
        route: Route::Single,
        sessions_max: 1000,
        follow_port_switch: true,
        limits: Limits::NONE,
        phase: Phase::Serving,
    };
    let backend = Backend {
        name: "game".to_owned(),
        link: LinkKind::Udp { address: SERVER.into() },
        slots: 1000,
        grace_ns: 0,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    };
    Setup::new(vec![listener], vec![backend], 1)
}

fn gate_of(setup: Setup) -> Gate {
    let claims = Arc::new(Claims::new(1, &setup.backend_slots(), setup.claim_limits()));
    let seed = Seed { challenge_key: Key::from_bytes([3; 32]), random: [1, 2, 3, 4] };
    let worker = WorkerIndex { id: WorkerId(0), count: 1 };
    let mut gate = Gate::new(Arc::new(setup), worker, claims, Aead::detect(), seed, UNREAL_NOW);
    gate.bind_player_socket(PLAYERS_SOCKET, ListenerId(0), BindId(0));
    gate.bind_udp_link(UDP_LINK);
    gate
}

/// A gate that has heard from the Unreal server behind it.
fn unreal_host() -> Host {
    let mut gate = gate_of(unreal_setup());
    gate.renew_cookies(UNREAL_NOW, [1, 2].map(|byte| CookieSecret::from_bytes([byte; 64])));
    let mut host = Host::new(gate);
    let mut question = Vec::new();
    host.turn(UNREAL_NOW, &mut |_: &TxTarget, bytes: &[u8]| {
        question.extend_from_slice(bytes);
        Ok(())
    });
    let profile = Profile { framing: Framing::default(), client_id: 0, base: BASE };
    let secrets = [3, 4].map(|byte| CookieSecret::from_bytes([byte; 64]));
    let mac = |_: &[u8; 64], _: &[u8]| [7; 20];
    let mut server = StandIn::new(&profile, 1, 1, mac, secrets, UNREAL_NOW.mono_ns);
    let (mut answer, tail) = ([0; UNREAL_BYTES_MAX], Tail::draw(&[0; 17]));
    let gateway = Endpoint::v4([127, 0, 0, 1], 4000);
    let now_ns = UNREAL_NOW.mono_ns;
    let answered = server.handle_datagram(now_ns, gateway, &question, &tail, &mut answer);
    let len = answered.expect("an initial connect");
    let meta = host.receive(UDP_LINK, SERVER, &answer[..len]).expect("room");
    meta.local = LocalIp::v4([127, 0, 0, 1], 0);
    host.turn(UNREAL_NOW, &mut |_: &TxTarget, _: &[u8]| Ok(()));
    assert!(host.gate().backends_up().all(|up| up));
    host
}

/// Initial connects of many lengths and client ids.
fn initial_connects() -> Vec<Vec<u8>> {
    let write = |n: u8| {
        let mut out = [0; UNREAL_BYTES_MAX];
        let body = Body::Initial { is_restart: false };
        let packet = Handshake { ids: Ids::new(0, n), base: BASE, body };
        let len = packet.encode(&Framing::default(), &Tail::draw(&[n; 17]), &mut out);
        out[..len].to_vec()
    };
    (0..64).map(write).collect()
}

#[test]
fn spoofed_initial_connects_allocate_nothing_and_get_no_more_than_they_sent() {
    const CONNECTS: u64 = 200_000;
    let mut host = unreal_host();
    let mut random = Random::new(3);
    let packets = initial_connects();
    let (mut bytes_in, mut bytes_out, mut answers, mut longer) = (0, 0, 0_u64, 0_u64);
    let mut flood = |host: &mut Host, turns: u64| {
        for turn in 0..turns {
            // All of a turn are equally long, so that every answer can be held against them.
            let packet = &packets[turn as usize % packets.len()];
            for _ in 0..PER_TURN {
                let from = Endpoint::v4(random.bytes(), random.word() as u16);
                host.receive(PLAYERS_SOCKET, from, packet).expect("as many as a turn finds");
                bytes_in += packet.len();
            }
            host.turn(UNREAL_NOW, &mut |_: &TxTarget, bytes: &[u8]| {
                bytes_out += bytes.len();
                answers += 1;
                longer += u64::from(bytes.len() > packet.len());
                Ok(())
            });
        }
    };
    flood(&mut host, 100);
    let allocations = allocations_in(|| flood(&mut host, CONNECTS / PER_TURN));
    assert_eq!((allocations, longer), (0, 0));
    assert_eq!(answers, CONNECTS + 100 * PER_TURN);
    assert!(bytes_out <= bytes_in);
    let counters = host.gate().counters();
    assert_eq!((counters.sessions, counters.pending), (0, 0));
    assert_eq!(counters.check_conservation(), Ok(()));
}

/// A plain listener with everything that it can look for.
fn plain_setup() -> Setup {
    let mut setup = unreal_setup();
    let listener = &mut setup.listeners[ListenerId(0)];
    let known = [(*b"to", BackendId(0))].into_iter().collect();
    let token = Token { at: TokenPlace::End, bytes: 2, strip: true, backends: Arc::new(known) };
    let field = Field { offset: 0, width: Width::Sixteen, order: Order::Big };
    listener.protocol = Protocol::Plain(Plain {
        token: Some(token),
        sequence: Some(Sequence { field, policy: Policy::UNET, both: true }),
        half_open_max: 256,
        starts_per_block: 0,
        starts_total: 0,
        ..Plain::default()
    });
    listener.route = Route::Token;
    setup
}

#[test]
fn half_open_sessions_allocate_nothing() {
    const STARTS: u64 = 200_000;
    let mut host = Host::new(gate_of(plain_setup()));
    let mut random = Random::new(4);
    let mut passed = 0;
    let mut flood = |host: &mut Host, turns: u64| {
        for _ in 0..turns {
            for _ in 0..PER_TURN {
                let from = Endpoint::v4(random.bytes(), random.word() as u16);
                host.receive(PLAYERS_SOCKET, from, b"12345to").expect("as many as a turn finds");
            }
            host.turn(UNREAL_NOW, &mut |_: &TxTarget, bytes: &[u8]| {
                passed += u64::from(bytes == b"12345");
                Ok(())
            });
        }
    };
    flood(&mut host, 100);
    let before = LIVE_BYTES.get();
    let allocations = allocations_in(|| flood(&mut host, STARTS / PER_TURN));
    assert_eq!((allocations, LIVE_BYTES.get() - before), (0, 0));
    let counters = host.gate().counters();
    assert_eq!((counters.sessions, counters.pending), (0, 256));
    assert!(counters.half_open_evicted > STARTS - 1000, "{}", counters.half_open_evicted);
    assert!(passed > STARTS, "each began: {passed}");
    assert_eq!(counters.check_conservation(), Ok(()));
}

/// What an in-memory turn finds at most.
const PER_TURN: u64 = 64;

#[test]
fn a_million_sessions_fit_with_all_that_hangs_on_them() {
    const SESSIONS: usize = 100_000;
    let before = LIVE_BYTES.get();
    let connected = ConnectedPlayers::new(SESSIONS, Aead::detect());
    let all = (LIVE_BYTES.get() - before) as usize;
    let clients = SESSIONS * ConnectedPlayers::MEMBER_BYTES;
    let each = (all - clients) / SESSIONS;
    let table = Gate::session_bytes();
    println!(
        "a session takes {table} bytes in its tables, {each} with claims, used token and all else"
    );
    assert!(table <= 384);
    // A third of it is reserved for places that rest while all sessions change once, and untouched
    // until then.
    assert!(each * 1_000_000 <= 1088 << 20, "{each} bytes each");
    assert_eq!(connected.gate().session_count(), SESSIONS);
}

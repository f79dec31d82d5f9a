//! What a token costs the token service: read the request, choose backend and gateways among many,
//! promise a slot, seal the token, write the answer. Everything but the socket and the slots'
//! leases, of which many tokens share one.
//!
//! The bound is 20,000 tokens a second on one core: 50 µs each.

#[path = "support.rs"]
mod support;

use std::hint::black_box;

use ringgate_core::secret::Key;
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{Backend, Gateway, Labels, Listener, Reach, State, Stored};
use ringgate_tokens::book::Now;
use ringgate_tokens::choose::Speaks;
use ringgate_tokens::desk::{Desk, Placing, Request, Rules};
use ringgate_tokens::mint;
use ringgate_tokens::wanted::WantedToken;
use support::Bench;

fn main() {
    let mut bench = Bench::from_args("tokens");
    let tokens = bench.size(5_000, 20);
    for (title, hosts) in [("10 backends", 1), ("10,000 backends on 1,000 hosts", 1000)] {
        if bench.wants(title) {
            measure(&mut bench, title, hosts, tokens);
        }
    }
    bench.finish();
}

fn measure(bench: &mut Bench, title: &str, hosts: u32, tokens: usize) {
    let (mut placing, mut whole) = (desk(hosts), desk(hosts));
    let body = br#"{"client_id": "1234567", "region": "eu", "user_data": "c2tpbGwgMTIzNA=="}"#;
    let wanted = WantedToken::parse(body).expect("a sound request");
    let mut group = bench.group(title, tokens);
    group
        .add("read the request", || {
            (0..tokens)
                .map(|_| WantedToken::parse(black_box(body)).map_or(0, |it| it.client_id))
                .sum()
        })
        .add("find a place", || (0..tokens).map(|_| u64::from(place(&mut placing, &wanted))).sum())
        .add("the whole token", || {
            let one = |_| {
                let wanted = WantedToken::parse(black_box(body)).expect("a sound request");
                token(&mut whole, &wanted).len() as u64
            };
            (0..tokens).map(one).sum()
        });
    group.run();
}

fn ask(desk: &mut Desk, wanted: &WantedToken) -> Box<ringgate_tokens::desk::Placed> {
    let speaks = Speaks::Netcode(wanted.protocol_id);
    let request = Request {
        place: &wanted.place,
        speaks,
        count: 1,
        clients: &[],
        expire_s: None,
        elsewhere: &[],
    };
    match desk.place(&request, NOW) {
        Ok(Placing::Placed(placed)) => placed,
        other => unreachable!("there is room for all: {other:?}"),
    }
}

fn place(desk: &mut Desk, wanted: &WantedToken) -> bool {
    black_box(ask(desk, wanted)).key.is_some()
}

fn token(desk: &mut Desk, wanted: &WantedToken) -> String {
    let placed = ask(desk, wanted);
    mint::token(wanted, (&placed, 0), (NOW.unix_s, placed.expire_s)).expect("random bytes")
}

/// A service that knows a fleet, with slots that were leased already.
fn desk(hosts: u32) -> Desk {
    let keyspace = Keyspace::new("/f").expect("a prefix");
    let key = || FleetKey::new(Key::from_bytes([1; 32]));
    let rules =
        Rules { expire_default_s: 30, expire_max_s: 300, addresses_max: 1, serves_away: true };
    let mut desk = Desk::new(keyspace.clone(), key(), (name("t"), name("t.1")), rules);
    desk.stay_alone();
    let validity = Validity { from: 1, mint_until: u64::MAX / 2, accept_until: u64::MAX / 2 };
    let place = keyspace.key(&Place::Key(name("main"), 1));
    let sealed = key().seal(&place, validity, &Key::from_bytes([2; 32])).expect("random bytes");
    desk.learn(&place, Some(&sealed.encode().expect("sound")));
    for at in 0..hosts {
        let value = gateway(at).encode().expect("sound");
        desk.learn(&keyspace.key(&Place::Gateway(name(&format!("g{at}")))), Some(&value));
        for backend in 0..10 {
            let backend = name(&format!("b{at}-{backend}"));
            let value = game(at).encode().expect("sound");
            desk.learn(&keyspace.key(&Place::Backend(backend.clone())), Some(&value));
            desk.book_mut().open(&backend, NOW.unix_s).granted = SLOTS;
        }
    }
    desk.set_mirror(true, true);
    desk.set_leased(u64::MAX);
    desk
}

fn gateway(at: u32) -> Gateway {
    let [_, _, high, low] = at.to_be_bytes();
    let listener = Listener {
        name: "main".into(),
        protocol: "netcode".into(),
        addresses: vec![([192, 0, high, low], 40_000).into()],
        epochs: vec![1],
        keys: Vec::new(),
        group: String::new(),
        protocol_id: 7,
        token_bytes: 0,
        tags: false,
        messages: false,
    };
    Gateway {
        instance: "i".into(),
        region: "eu".into(),
        host: format!("host-{at}"),
        version: "0".into(),
        listeners: vec![listener],
        agents: Vec::new(),
        cluster: None,
        capacity: 1_000_000,
        sessions: at,
        draining: false,
        started: 1,
        written: 1,
        doubt: 0,
        held: Vec::new(),
        run_dir: String::new(),
        heard: None,
        denied: None,
        shut: Vec::new(),
        answers: false,
    }
}

fn game(at: u32) -> Backend {
    Backend {
        instance: "i".into(),
        host: format!("host-{at}"),
        group: "main".into(),
        reach: Reach::Udp(([127, 0, 0, 1], 7777).into()),
        gateways: Vec::new(),
        slots: SLOTS,
        used: at % 100,
        state: State::Ready,
        joined: None,
        labels: Labels::new(),
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Enough for every token of every round: a bench is no place to run dry.
const SLOTS: u32 = 1 << 30;
const NOW: Now = Now { unix_s: 1_700_000_000, ms: 1 };

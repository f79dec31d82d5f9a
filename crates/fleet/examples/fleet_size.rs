//! What a fleet of 10,000 backends and 500 gateways costs: memory of a mirror, time of a list, and
//! of an update from the writer to the mirror; and how many tokens are claimed in a second. Wants
//! an etcd that may be written to:
//! `cargo run --profile dist -p ringgate-fleet --example fleet_size -- http://127.0.0.1:2379`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringgate_fleet::decisions::Decisions;
use ringgate_fleet::etcd::txn::{AT_A_TIME, Op, Put, Txn};
use ringgate_fleet::etcd::{Client, Endpoint, Error, Options};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::mirror::run::run;
use ringgate_fleet::mirror::{Machine, Options as MirrorOptions, Reads, Truth};
use ringgate_fleet::values::{
    Backend, Gateway, Labels, Listener, Reach, State, Stored, TokenClaim,
};
use ringgate_os::clock::Clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const BACKENDS: u32 = 10_000;
const GATEWAYS: u32 = 500;
const UPDATES: u32 = 1_000;
const CLAIMS: u32 = 20_000;
const ROUNDS: u32 = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:2379".into());
    let client = Client::new(Options::new(vec![Endpoint::parse(&address)?]))?;
    let keyspace = Keyspace::new("/ringgate-size").ok_or("no prefix")?;
    let before_kib = resident_kib();
    let bytes = fill(&client, &keyspace).await?;
    println!("{BACKENDS} backends and {GATEWAYS} gateways: {bytes} bytes of keys and values");

    let clock = Clock::start();
    let now_us = || clock.now_ns() / 1000;
    let (begun_us, heard) = (now_us(), Arc::new(Mutex::new((0_u64, 0_u64))));
    let (_commands, told) = mpsc::channel(1);
    let machine =
        Machine::new(MirrorOptions::new(keyspace.truth(), Reads::default(), 1), Truth::default());
    let told_of = Arc::clone(&heard);
    let (listed, mut is_listed) = mpsc::channel(1);
    tokio::spawn(run(machine, client.clone(), told, move |machine, changes| {
        let mut heard = told_of.lock().expect("nobody panics");
        heard.0 += changes.len() as u64;
        if machine.status().lists > 0 && machine.status().is_current {
            let _ = listed.try_send(());
        }
    }));
    is_listed.recv().await.ok_or("the mirror has ended")?;
    let listed_us = now_us() - begun_us;
    // What the writing has used lies idle by now, and is a part of it.
    let more_kib = resident_kib() - before_kib;
    println!("listed in {} ms; with the writing, {more_kib} KiB more resident", listed_us / 1000);

    let cpu_before = cpu_us();
    let mut delays = Vec::new();
    for update in 0..UPDATES {
        let before = heard.lock().expect("nobody panics").0;
        let asked_us = now_us();
        client.put(&backend(&keyspace, update % BACKENDS, update + 1)?).await?;
        while heard.lock().expect("nobody panics").0 == before {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        delays.push(now_us() - asked_us);
    }
    delays.sort_unstable();
    let at = |part: usize| delays[delays.len() * part / 100];
    println!("update, from the request to the mirror: p50 {} us, p99 {} us", at(50), at(99));
    let cpu = (cpu_us() - cpu_before) / u64::from(UPDATES);
    println!("CPU of this process for an update, writing and mirroring: {cpu} us");

    let mut rates = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        for (way, rates) in rates.iter_mut().enumerate() {
            let lease = client.grant(60).await?.id;
            let claim = |index| token(&keyspace, (round * 2 + way as u32, index), lease);
            let claims: Vec<_> = (0..CLAIMS).map(claim).collect();
            let begun_us = now_us();
            if way == 0 {
                one_by_one(&client, claims).await?;
            } else {
                together(&client, claims).await?;
            }
            rates.push(u64::from(CLAIMS) * 1_000_000 / (now_us() - begun_us));
            client.revoke(lease).await?;
        }
    }
    for (way, mut rates) in
        ["in transactions of their own, 64 at once", "many in a transaction"].into_iter().zip(rates)
    {
        rates.sort_unstable();
        println!("tokens claimed in a second, {way}: {} ({rates:?})", rates[rates.len() / 2]);
    }
    Ok(())
}

fn token(keyspace: &Keyspace, (round, index): (u32, u32), lease: i64) -> Txn {
    let mut mac = [0; 16];
    mac[..4].copy_from_slice(&round.to_le_bytes());
    mac[4..8].copy_from_slice(&index.to_le_bytes());
    let claim = TokenClaim { gateway: "gateway-1".into(), instance: format!("{round:016x}") };
    let value = claim.encode().expect("a value");
    Txn::claim(Put { key: keyspace.key(&Place::Token(mac)), value, lease })
}

/// Each as many as were asked side by side waits for its slowest.
async fn one_by_one(client: &Client, claims: Vec<Txn>) -> Result<(), Error> {
    for some in claims.chunks(64) {
        let mut asking = JoinSet::new();
        for txn in some {
            let (client, txn) = (client.clone(), txn.clone());
            asking.spawn(async move { client.txn(&txn).await });
        }
        while let Some(answer) = asking.join_next().await {
            assert!(answer.expect("nobody panics")?.held);
        }
    }
    Ok(())
}

/// As a gateway does it.
async fn together(client: &Client, claims: Vec<Txn>) -> Result<(), Error> {
    let mut asking = Decisions::new(client.clone());
    let mut claims = claims.into_iter().map(|txn| ((), txn)).peekable();
    while claims.peek().is_some() || !asking.is_empty() {
        while !asking.is_full() && claims.peek().is_some() {
            asking.ask(claims.by_ref().take(AT_A_TIME));
        }
        if let Some((_, answer)) = asking.answered().await {
            assert!(answer?.have_all_held());
        }
    }
    Ok(())
}

async fn fill(client: &Client, keyspace: &Keyspace) -> Result<usize, Box<dyn std::error::Error>> {
    let mut puts = Vec::new();
    for index in 0..BACKENDS {
        puts.push(backend(keyspace, index, 0)?);
    }
    for index in 0..GATEWAYS {
        puts.push(gateway(keyspace, index)?);
    }
    let bytes = puts.iter().map(|put| put.key.len() + put.value.len()).sum();
    for some in puts.chunks(100) {
        write(client, some).await?;
    }
    Ok(bytes)
}

async fn write(client: &Client, puts: &[Put]) -> Result<(), Error> {
    let then = puts.iter().cloned().map(Op::Put).collect();
    client.txn(&Txn { then, ..Txn::default() }).await?;
    Ok(())
}

fn backend(keyspace: &Keyspace, index: u32, used: u32) -> Result<Put, Box<dyn std::error::Error>> {
    let labels = [("map", "de_dust2"), ("mode", "ranked"), ("version", "1.42.0"), ("region", "eu")];
    let value = Backend {
        instance: format!("{index:016x}"),
        host: format!("host-{}.eu.example", index / 20),
        group: "main".into(),
        reach: Reach::Udp(([127, 0, 0, 1], 7000 + index as u16 % 20).into()),
        gateways: Vec::new(),
        slots: 64,
        used,
        state: State::Ready,
        joined: None,
        labels: labels
            .map(|(name, value)| (name.into(), value.into()))
            .into_iter()
            .collect::<Labels>(),
    };
    let name = Name::new(&format!("game-{index}")).ok_or("no name")?;
    Ok(Put { key: keyspace.key(&Place::Backend(name)), value: value.encode()?, lease: 0 })
}

fn gateway(keyspace: &Keyspace, index: u32) -> Result<Put, Box<dyn std::error::Error>> {
    let listener = |name: &str, port| Listener {
        name: name.into(),
        protocol: "netcode".into(),
        addresses: vec![([192, 0, (index >> 8) as u8, index as u8], port).into()],
        epochs: vec![1, 2],
        keys: Vec::new(),
        group: String::new(),
        protocol_id: 0,
        token_bytes: 0,
        tags: false,
        messages: false,
    };
    let value = Gateway {
        instance: format!("{index:016x}"),
        region: "eu".into(),
        host: format!("host-{index}.eu.example"),
        version: "0.1.0".into(),
        listeners: vec![listener("main", 40_000), listener("second", 40_001)],
        agents: Vec::new(),
        cluster: None,
        capacity: 10_000,
        sessions: 4_321,
        draining: false,
        started: 1_700_000_000,
        written: 1_700_000_000,
        doubt: 0,
        held: Vec::new(),
        run_dir: String::new(),
        heard: None,
        denied: None,
        shut: Vec::new(),
        answers: false,
    };
    let name = Name::new(&format!("gateway-{index}")).ok_or("no name")?;
    Ok(Put { key: keyspace.key(&Place::Gateway(name)), value: value.encode()?, lease: 0 })
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// User and system time of this process, in microseconds, from ticks of a hundredth of a second.
fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
    let fields = rest.split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10_000
}

//! Streams of a predecessor that may be hostile: records of any kind with anything in them, in any
//! order, and what has become of the gate that could be made of them.
//!
//! A successor may have more rights than its predecessor had, so whatever a stream holds, it is
//! refused or becomes a gate that can be played with. Lengths and ends are right here, and the
//! beginnings are those of streams that were written once (`tests/fixtures`): so a fuzzer spends
//! its time on what records say. Damage to the framing is in the other turmoils.

use std::sync::Arc;

use super::stage::{START, US};
use crate::Host;
use ringgate_batch::{Endpoint, SendFailure, TxTarget};
use ringgate_core::crypto::Aead;
use ringgate_core::limits::LISTENERS_MAX;
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::plain::{Field, Order, Width};
use ringgate_core::proto::replay::Policy;
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_core::secret::Key;
use ringgate_gate::handover::{Format, Import, Kept, Leaving, Maps, Refused, SharedImport};
use ringgate_gate::{
    Allowed, Backend, BackendId, Duplicates, Limits, LinkKind, Listener, Netcode, Now, Phase,
    Plain, Protocol, Route, Seed, Sequence, Setup, TokenReuse, Unreal, WorkerId, WorkerIndex,
};

/// Feeds the records that `data` holds to a successor: a byte that chooses the beginnings, then for
/// each record its kind, its length in two bytes, and what it says. Returns how many sessions have
/// come, or `None` where it was refused.
pub fn streams(data: &[u8]) -> Option<usize> {
    let (&which, records) = data.split_first()?;
    let written = &WRITTEN[usize::from(which) % WRITTEN.len()];
    let [mut shared, mut worker] = [written.shared, written.worker].map(beginning);
    let mut rest = records;
    let mut layout = Vec::new();
    while let Some((kind, says)) = next_record(&mut rest) {
        let into = match kind {
            LEAVING_LISTENER => &mut layout,
            kind if SHARED_KINDS.contains(&kind) => &mut shared,
            _ => &mut worker,
        };
        put_record(into, kind, says);
    }
    put_record(&mut shared, END, &[]);
    put_record(&mut worker, END, &[]);
    let gate = import(&layout, &shared, &worker, written.delivers).ok()?;
    let mut host = Host::new(gate).with_secrets(1);
    let sessions = host.gate().sessions().count();
    play(&mut host);
    Some(sessions)
}

/// The records of streams that were written once, as [`streams`] takes them.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |(which, written): (usize, &Written)| {
        let mut seed = vec![which as u8];
        for stream in [written.shared, written.worker] {
            let mut rest = &stream[beginning(stream).len()..];
            while let Some((kind, says)) = whole_record(&mut rest) {
                if kind != END {
                    let len = u16::try_from(says.len()).expect("records are short here");
                    seed.push(kind as u8);
                    seed.extend(len.to_le_bytes());
                    seed.extend(says);
                }
            }
        }
        seed
    };
    WRITTEN.iter().enumerate().map(seed).collect()
}

/// One worker's streams, and what all share.
struct Written {
    shared: &'static [u8],
    worker: &'static [u8],
    /// By a process whose netcode listener delivers messages.
    delivers: bool,
}

macro_rules! written {
    ($name:literal, delivers: $delivers:literal) => {
        Written {
            delivers: $delivers,
            shared: include_bytes!(concat!(
                "../../../../tests/fixtures/hand_over_1/",
                $name,
                "shared"
            )),
            worker: include_bytes!(concat!(
                "../../../../tests/fixtures/hand_over_1/",
                $name,
                "worker"
            )),
        }
    };
}

const WRITTEN: [Written; 5] = [
    written!("", delivers: false),
    written!("udp-", delivers: false),
    written!("unreal-", delivers: false),
    written!("plain-", delivers: false),
    written!("messages-short-", delivers: true),
];

const END: u16 = 1;
const FORMAT: u16 = 2;
const SHARED_KEYS: u16 = 3;
const WORKER_KEYS: u16 = 16;
const LEAVING_LISTENER: u16 = 0x8006;
/// Used tokens and cookies.
const SHARED_KINDS: [u16; 2] = [4, 5];

/// What a stream begins with, which a fuzzer would only break: format and keys.
fn beginning(stream: &[u8]) -> Vec<u8> {
    let (head, mut rest) = stream.split_at(STREAM_HEAD_BYTES);
    let mut beginning = head.to_vec();
    loop {
        let mut behind = rest;
        match whole_record(&mut behind) {
            Some((kind, says)) if [FORMAT, SHARED_KEYS, WORKER_KEYS].contains(&kind) => {
                put_record(&mut beginning, kind, says);
                rest = behind;
            }
            _ => return beginning,
        }
    }
}

fn whole_record<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let (head, behind) = rest.split_first_chunk::<8>()?;
    let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let (says, behind) = behind.split_at_checked(len)?;
    *rest = behind;
    Some((u16::from_le_bytes([head[0], head[1]]), says))
}

/// The next record of the fuzzer's; the last may be shorter than it says.
fn next_record<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let (&[kind, low, high], behind) = rest.split_first_chunk::<3>()?;
    let len = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
    let (says, behind) = behind.split_at(len);
    *rest = behind;
    let may_be_passed_over = u16::from(kind >> 7) << 15;
    Some((u16::from(kind & 0x7f) | may_be_passed_over, says))
}

fn put_record(into: &mut Vec<u8>, kind: u16, says: &[u8]) {
    into.extend(kind.to_le_bytes());
    into.extend([0; 2]);
    into.extend((says.len() as u32).to_le_bytes());
    into.extend(says);
}

/// What the layout says of a listener counts in place of the one that was there.
fn import(
    layout: &[u8],
    shared: &[u8],
    worker: &[u8],
    delivers: bool,
) -> Result<ringgate_gate::Gate, Refused> {
    let (format, start) = Format::read(shared)?;
    let mut setup = setup(format.incarnation, delivers);
    let boot_id = format.boot_id;
    let backends = Format::of(&setup, 1, boot_id).map_backends(&format);
    let mut kept = Kept::new();
    for Leaving { number, listener } in Leaving::read_all(layout, &backends)? {
        if setup.listeners.len() < LISTENERS_MAX {
            kept.insert(number, setup.listeners.push(listener).0);
        }
    }
    let setup = Arc::new(setup);
    let maps = Format::of(&setup, 1, boot_id).compatible(&format, &kept);
    let maps = maps.map_err(|_| Refused::Stranger)?;
    let mut claims = SharedImport::new(Arc::clone(&setup));
    claims.take(&shared[start..])?;
    let claims = claims.finish()?;
    let maps = Maps { sockets: (0..SOCKETS).map(|socket| (socket, socket)).collect(), ..maps };
    let index = WorkerIndex { id: WorkerId(0), count: 1 };
    let seed = Seed { challenge_key: Key::from_bytes([9; 32]), random: [9; 4] };
    let begun = Import::begin(worker, setup, index, claims, Aead::detect(), seed, maps, START);
    let (mut import, start) = begun?;
    import.take(&worker[start..])?;
    import.settle();
    Ok(import.finish(START)?.0)
}

/// Time passes, and whoever is there is spoken to and speaks.
fn play(host: &mut Host) {
    let mut now = START;
    let homes: Vec<_> = host.gate().sessions().map(|session| session.address).take(4).collect();
    let sockets: Vec<_> = host.gate().sockets().map(|(socket, _)| socket).collect();
    let mut wire = |_: &TxTarget, _: &[u8]| -> Result<(), SendFailure> { Ok(()) };
    for pass_ms in [0, 1, 100, 1_000, 10_000, 100_000] {
        now =
            Now { mono_ns: now.mono_ns + pass_ms * 1_000_000, unix_s: now.unix_s + pass_ms / 1000 };
        for (socket, home) in sockets.iter().zip(homes.iter().chain([&SERVER]).cycle()) {
            host.receive(*socket, *home, &[0x25; 40]);
        }
        host.turn(now, &mut wire);
        let _ = (host.gate().poll_timeout(), host.gate().sessions().count());
    }
}

/// All that the predecessors had.
fn setup(incarnation: u64, delivers: bool) -> Setup {
    let backend = |(name, link): (&str, LinkKind)| Backend {
        name: name.to_owned(),
        link,
        slots: 8,
        grace_ns: 2_000_000_000,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    };
    let udp = |port| LinkKind::Udp { address: ([127, 0, 0, 1], port).into() };
    let allow = Allowed { uids: vec![US.uid], gids: Vec::new() };
    let backends = [
        ("arena", LinkKind::Bundle { allow }),
        ("game-0", udp(7000)),
        ("any-0", udp(7001)),
        ("any-1", udp(7002)),
    ];
    let listener = |name: &str, protocol, backends: &[u16]| Listener {
        name: name.to_owned(),
        protocol,
        public: Vec::new(),
        backends: backends.iter().copied().map(BackendId).collect(),
        route: Route::LeastPlayers,
        sessions_max: 100,
        follow_port_switch: true,
        limits: Limits::NONE,
        phase: Phase::Serving,
    };
    let field = Field { offset: 3, width: Width::Sixteen, order: Order::Big };
    let sequence = Sequence { field, policy: Policy::UNET, both: false };
    let listeners = vec![
        listener("eu", Protocol::Netcode(netcode(delivers)), if delivers { &[0] } else { &[0, 1] }),
        listener("ue", Protocol::Unreal(unreal()), &[1]),
        listener(
            "any",
            Protocol::Plain(Plain { sequence: Some(sequence), ..Plain::default() }),
            &[2, 3],
        ),
    ];
    Setup::new(listeners, backends.map(backend).into(), incarnation)
}

fn netcode(delivers: bool) -> Netcode {
    Netcode {
        protocol_id: 0x1122_3344_5566_7788,
        keys: vec![Key::from_bytes([1; 32]).into()],
        replay: Policy::NETCODE,
        keep_alive_ns: SEND_INTERVAL_NS,
        token_reuse: TokenReuse::Deny,
        delivers,
        unique_in: None,
        moves: Vec::new(),
        replace_after_ns: 2_000_000_000,
    }
}

fn unreal() -> Unreal {
    Unreal {
        framing: Framing::default(),
        learns_base: true,
        versions: 3..=4,
        network_versions: None,
        duplicates: Duplicates::Notify,
        gap_limit: 0,
        idle_timeout_ns: 30_000_000_000,
    }
}

const STREAM_HEAD_BYTES: usize = 12;

/// More than the predecessors had.
const SOCKETS: u32 = 64;

const SERVER: Endpoint = Endpoint::v4([127, 0, 0, 1], 7000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn what_was_written_once_is_read_and_damage_to_what_it_says_is_survived() {
        let seeds = seeds();
        for (number, seed) in seeds.iter().enumerate() {
            assert_eq!(streams(seed), Some(1), "seed {number}");
        }
        let mut random = Random::new(7);
        let mut refused = 0;
        for round in 0..1000_usize {
            let mut seed = seeds[round % seeds.len()].clone();
            for _ in 0..=random.within(0..3) {
                let at = random.within(1..seed.len() as u64) as usize;
                seed[at] = random.within(0..256) as u8;
            }
            refused += usize::from(streams(&seed).is_none());
        }
        assert!((50..950).contains(&refused), "{refused} of 1000 were refused");
    }

    /// `WRITE_FUZZ_SEEDS=1` writes them.
    #[test]
    fn the_fuzzers_seeds_are_what_was_written_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/hand_over");
        for (number, seed) in seeds().iter().enumerate() {
            let path = format!("{folder}/seed-{number}");
            if std::env::var_os("WRITE_FUZZ_SEEDS").is_some() {
                std::fs::create_dir_all(folder).expect("made");
                std::fs::write(&path, seed).expect("written");
            }
            assert_eq!(std::fs::read(&path).expect("it is there"), *seed, "{path}");
        }
    }
}

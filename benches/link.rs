//! The bundle link: what a record costs in the codec, on the socket, and in the game server's
//! library.
//!
//! The codec is compared with a bare copy, which is the least that moving a payload can cost, and
//! with records padded to eight bytes, which is the other way the format could have been. The
//! socket part is what bundles are for.

#[path = "support.rs"]
mod support;

use std::io::Read;
use std::path::PathBuf;

use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_link::backend::{Backend, Event};
use ringgate_link::bundle::{
    MULTICAST_SESSIONS_MAX, PAYLOAD_OVERHEAD_BYTES, SessionId, ToGame, ToGateway, VERSION_MAX,
    Welcome, Writer,
};
use socket2::{Domain, SockAddr, Socket, Type};

use support::Bench;

fn main() {
    let mut bench = Bench::from_args("link");
    for bytes in [61, 100, 1200] {
        write(&mut bench, bytes);
        read(&mut bench, bytes);
    }
    read_multicast(&mut bench);
    for records in [1, 4, 16, 64] {
        cross(&mut bench, records);
    }
    for records in [1, 64] {
        echo(&mut bench, records);
    }
    bench.finish();
}

fn session(serial: usize) -> SessionId {
    SessionId::new(0, serial as u64 + 1)
}

/// How many payloads of this size fit one bundle.
fn records_of(bytes: usize) -> usize {
    BUNDLE_BYTES_MAX / (PAYLOAD_OVERHEAD_BYTES + bytes).next_multiple_of(8)
}

fn write(bench: &mut Bench, bytes: usize) {
    let title = format!("write, {bytes}-byte payloads");
    if !bench.wants(&title) {
        return;
    }
    let records = records_of(bytes);
    let bundles = bench.size(400, 2);
    let payload = vec![7; bytes];
    let (mut packed, mut padded, mut bare) =
        (vec![0; BUNDLE_BYTES_MAX], vec![0; BUNDLE_BYTES_MAX], vec![0; BUNDLE_BYTES_MAX]);
    let payload = payload.as_slice();
    let mut group = bench.group(&title, bundles * records);
    group.add("codec", move || {
        repeat(bundles, || {
            let mut writer = Writer::new(&mut packed);
            (0..records)
                .filter(|n| writer.payload(session(*n), std::hint::black_box(payload)))
                .count()
        })
    });
    group.add("padded to 8 bytes", move || {
        repeat(bundles, || {
            let mut len = 0;
            for n in 0..records {
                len += write_padded(&mut padded[len..], session(n), std::hint::black_box(payload));
            }
            records
        })
    });
    group.add("bare copy", move || {
        repeat(bundles, || {
            for place in bare.chunks_exact_mut(bytes).take(records) {
                place.copy_from_slice(std::hint::black_box(payload));
            }
            records
        })
    });
    group.run_agreeing();
}

fn repeat(bundles: usize, mut bundle: impl FnMut() -> usize) -> u64 {
    (0..bundles).map(|_| bundle() as u64).sum()
}

/// The format as it would be if records began at multiples of eight bytes.
fn write_padded(buf: &mut [u8], session: SessionId, payload: &[u8]) -> usize {
    let len = PAYLOAD_OVERHEAD_BYTES + payload.len();
    let record_bytes = len.next_multiple_of(8);
    let Some(record) = buf.get_mut(..record_bytes) else { return 0 };
    record[..4].copy_from_slice(&[len as u8, (len >> 8) as u8, 1, 0]);
    record[4..12].copy_from_slice(&session.as_u64().to_le_bytes());
    record[12..len].copy_from_slice(payload);
    record[len..].fill(0);
    record_bytes
}

fn read(bench: &mut Bench, bytes: usize) {
    let title = format!("read, {bytes}-byte payloads");
    if !bench.wants(&title) {
        return;
    }
    let records = records_of(bytes);
    let bundles = bench.size(400, 2);
    let payload = vec![7; bytes];
    let packed = bundle_of(records, &payload);
    let mut padded = vec![0; BUNDLE_BYTES_MAX];
    let mut len = 0;
    for n in 0..records {
        len += write_padded(&mut padded[len..], session(n), &payload);
    }
    padded.truncate(len);
    let mut group = bench.group(&title, bundles * records);
    group.add("codec", move || {
        repeat(bundles, || {
            ToGateway::read(std::hint::black_box(&packed)).map(|record| touch(&record)).sum()
        })
    });
    group.add("padded to 8 bytes", move || {
        repeat(bundles, || read_padded(std::hint::black_box(&padded)))
    });
    group.run_agreeing();
}

fn bundle_of(records: usize, payload: &[u8]) -> Vec<u8> {
    let mut buf = vec![0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    assert!((0..records).all(|n| writer.payload(session(n), payload)));
    writer.bytes().to_vec()
}

/// What a reader of payloads looks at: the session and where the payload ends.
fn touch<E>(record: &Result<ToGateway<'_>, E>) -> usize {
    match record {
        Ok(ToGateway::Payload { session, bytes }) => {
            session.as_u64() as u8 as usize + usize::from(bytes[bytes.len() - 1])
        }
        _ => 0,
    }
}

fn read_padded(mut datagram: &[u8]) -> usize {
    let mut sum = 0;
    while let Some(header) = datagram.first_chunk::<12>() {
        let len = usize::from(u16::from_le_bytes([header[0], header[1]]));
        let id = u64::from_le_bytes(*header[4..].first_chunk().expect("eight of twelve bytes"));
        let is_right = len > PAYLOAD_OVERHEAD_BYTES && len <= PAYLOAD_OVERHEAD_BYTES + 1200;
        let Some((record, rest)) = datagram.split_at_checked(len.next_multiple_of(8)) else {
            break;
        };
        if !is_right || header[2..4] != [1, 0] || id == 0 || record[len..].iter().any(|b| *b != 0) {
            break;
        }
        sum += id as u8 as usize + usize::from(record[len - 1]);
        datagram = rest;
    }
    sum
}

fn read_multicast(bench: &mut Bench) {
    let title = "read a multicast, for each session";
    if !bench.wants(title) {
        return;
    }
    let sessions: Vec<_> = (0..MULTICAST_SESSIONS_MAX).map(session).collect();
    let mut buf = vec![0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    assert!(writer.multicast(&sessions, &[7; 1200]));
    let datagram = writer.bytes().to_vec();
    let rounds = bench.size(200, 1);
    let mut group = bench.group(title, rounds * MULTICAST_SESSIONS_MAX);
    group.add("codec", move || {
        repeat(rounds, || {
            let record = ToGateway::read(std::hint::black_box(&datagram)).next();
            let Some(Ok(ToGateway::Multicast { sessions, .. })) = record else { return 0 };
            sessions.iter().map(|session| session.as_u64() as u8 as usize).sum()
        })
    });
    group.run();
}

/// Both ends of a real socket, so many 100-byte records in each datagram.
fn cross(bench: &mut Bench, records: usize) {
    let title = format!("socket, send and receive, {records} records in a datagram");
    if !bench.wants(&title) {
        return;
    }
    let (here, there) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).expect("a socket pair");
    let rounds = bench.size(2000, 2);
    let mut buf = vec![0; BUNDLE_BYTES_MAX];
    let mut group = bench.group(&title, rounds * records);
    group.add("codec and kernel", move || {
        repeat(rounds, || {
            let bundle = bundle_in(&mut buf, records);
            here.send(bundle).expect("there is room for one");
            let len = (&there).read(&mut buf).expect("one is there");
            ToGateway::read(&buf[..len]).map(|record| touch(&record)).sum()
        })
    });
    group.run();
}

fn bundle_in(buf: &mut [u8], records: usize) -> &[u8] {
    let mut writer = Writer::new(buf);
    assert!((0..records).all(|n| writer.payload(session(n), &[7; 100])));
    let len = writer.len();
    &buf[..len]
}

/// A game server that echoes with the library, against a gateway's end in the same thread: both
/// sides of both directions.
fn echo(bench: &mut Bench, records: usize) {
    let title = format!("echo through the library, {records} records a turn");
    if !bench.wants(&title) {
        return;
    }
    let folder = Folder::new();
    let (mut game, gateway) = connected(&folder);
    let rounds = bench.size(2000, 2);
    let mut buf = vec![0; BUNDLE_BYTES_MAX];
    let mut group = bench.group(&title, rounds * records);
    group.add("library", move || {
        repeat(rounds, || {
            gateway.send(bundle_in(&mut buf, records)).expect("there is room for one");
            let mut events = game.poll().expect("links work");
            while let Some((event, outbox)) = events.next() {
                if let Event::Payload { session, bytes } = event {
                    outbox.send(session, bytes).expect("the link is up");
                }
            }
            game.flush();
            let len = (&gateway).read(&mut buf).expect("the answer is there");
            ToGame::read(&buf[..len]).flatten().count()
        })
    });
    group.run();
}

fn connected(folder: &Folder) -> (Backend, Socket) {
    let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
    let path = folder.0.join("worker-0.sock");
    listener.bind(&SockAddr::unix(path).expect("a short path")).expect("bind");
    listener.listen(1).expect("listen");
    let mut game = Backend::connect(&folder.0, "bench").expect("we listen");
    let (gateway, _) = listener.accept().expect("the game has connected");
    let mut buf = [0; 64];
    let _ = (&gateway).read(&mut buf).expect("hello");
    let mut writer = Writer::new(&mut buf);
    let welcome = Welcome { version: VERSION_MAX, worker: 0, workers: 1, incarnation: 1 };
    assert!(writer.welcome(&welcome));
    gateway.send(writer.bytes()).expect("there is room");
    while game.poll().expect("links work").next().is_some() {}
    assert!(game.is_up());
    (game, gateway)
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("ringgate-bench-{}", std::process::id()));
        std::fs::create_dir(&path).expect("temporary folders can be made");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

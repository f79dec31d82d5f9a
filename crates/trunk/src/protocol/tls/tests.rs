//! Both sides of the stream in memory: who is let in, and a whole trunk over it.
//!
//! The certificates lie in `fixtures`, with the script that has made them. Without the instructions
//! that the cipher provider of these tests asks for, they say so and pass.

pub(crate) mod fixtures;
#[cfg(target_os = "linux")]
pub(crate) mod residue;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;

use ringgate_core::crypto::Aead;
use ringgate_link::bundle::{CloseReason, Frames, Hello, SessionId, Writer};

use super::*;
use crate::protocol::control::{Control, Reason, Welcome};
use crate::protocol::handshake::{Conversation, FrameAction, agent_named};
use crate::protocol::keys::Rekey;
use crate::protocol::lane::{Lane, Role};
use fixtures::{AGENT, AGENT_NEXT, EXPIRED, GATEWAY, OTHER_AUTHORITY, STRANGER};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls_graviola::default_provider())
}

/// Whether the provider runs here.
pub(super) fn is_possible() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_all = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("adx")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("pclmulqdq");
    #[cfg(not(target_arch = "x86_64"))]
    let has_all = false;
    if !has_all {
        eprintln!("SKIPPED: this processor lacks what TLS needs");
    }
    has_all
}

/// One way between the two: takes and gives so much at a time.
struct Pipe {
    bytes: VecDeque<u8>,
    at_once: usize,
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = buf.len().min(self.at_once);
        self.bytes.read(&mut buf[..len])
    }
}

impl Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.bytes.len() > 3 * self.at_once {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.bytes.write(&buf[..buf.len().min(self.at_once)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One side.
pub(super) struct Side {
    pub(super) stream: Stream,
    inbox: Inbox,
    outbox: Outbox,
    out: Pipe,
    failure: Option<Failure>,
    closed: bool,
    /// What has come, in words.
    heard: Vec<String>,
}

impl Side {
    fn new(stream: Stream, at_once: usize) -> Self {
        let out = Pipe { bytes: VecDeque::new(), at_once };
        let (inbox, outbox) = (Inbox::default(), Outbox::default());
        Self { stream, inbox, outbox, out, failure: None, closed: false, heard: Vec::new() }
    }

    fn turn(&mut self, from: &mut Pipe) {
        while self.failure.is_none() && !self.closed {
            match self.stream.receive(from, &mut self.inbox) {
                Ok(Received::Nothing) => break,
                Ok(Received::Something) => {}
                Ok(Received::Closed) => self.closed = true,
                Err(why) => self.failure = Some(why),
            }
            while let Some(control) = self.inbox.next() {
                self.heard.push(format!("{control:?}"));
            }
        }
        self.stream.transmit(&mut self.out, &mut self.outbox).expect("a pipe does not fail");
    }
}

/// Both talk until neither has anything to say. The gateway, and the agent.
fn talk(gateway: &mut Side, agent: &mut Side) {
    for _ in 0..100_000 {
        gateway.turn(&mut agent.out);
        agent.turn(&mut gateway.out);
        let is_done = |side: &Side, other: &Side| {
            let waits = side.stream.wants_to_write() || !side.outbox.bytes().is_empty();
            other.failure.is_some() || side.out.bytes.is_empty() && !waits
        };
        if is_done(gateway, agent) && is_done(agent, gateway) {
            return;
        }
    }
    panic!("they go on for ever");
}

pub(super) fn meet(gateway: Identity<'_>, agent: Identity<'_>, host: &'static str) -> (Side, Side) {
    let gateway = Gateway::new(provider(), gateway).expect("the files are good");
    let agent = Agent::new(provider(), agent).expect("the files are good");
    let host = ServerName::try_from(host).expect("a name");
    let mut gateway = Side::new(gateway.accept().expect("it begins"), 1000);
    let mut agent = Side::new(agent.connect(host).expect("it begins"), 1000);
    agent.outbox.hello((1, 1), "host-7").expect("there is room");
    talk(&mut gateway, &mut agent);
    (gateway, agent)
}

#[test]
fn both_sides_prove_who_they_are_and_share_what_nobody_else_knows() {
    if !is_possible() {
        return;
    }
    for identity in [AGENT, AGENT_NEXT] {
        for host in ["gate-1.example", "192.0.2.1"] {
            let (gateway, agent) = meet(GATEWAY, identity, host);
            assert!(gateway.stream.is_proven() && agent.stream.is_proven());
            assert_eq!(gateway.heard.len(), 1, "hello has come: {:?}", gateway.heard);
            assert!(gateway.stream.certified_for("host-7").is_ok());
            for foreign in ["host-8", "host", "agent", "gate-1.example", "", "a b"] {
                assert!(gateway.stream.certified_for(foreign).is_err(), "{foreign:?}");
            }
            let mut all = Vec::new();
            for lane in [0, 1, 127] {
                let [here, there] =
                    [&gateway, &agent].map(|side| side.stream.secrets(lane).expect("it is proven"));
                assert_eq!(
                    (&here.to_agent, &here.to_gateway),
                    (&there.to_agent, &there.to_gateway)
                );
                all.extend([here.to_agent.to_hex(), here.to_gateway.to_hex()]);
            }
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 6, "each lane and direction has its own");
        }
    }
}

#[test]
fn who_cannot_prove_it_is_refused_by_name_and_has_said_nothing() {
    if !is_possible() {
        return;
    }
    for (agent, why) in [
        (STRANGER, "certificate_unknown"),
        (EXPIRED, "certificate_expired"),
        (GATEWAY, "certificate_unknown"),
    ] {
        let (gateway, agent) = meet(GATEWAY, agent, "gate-1.example");
        assert_eq!(gateway.failure.as_ref().map(Failure::name), Some(why));
        assert_eq!(agent.failure.as_ref().map(Failure::name), Some("refused_by_peer"), "{why}");
        assert!(gateway.heard.is_empty() && !gateway.stream.is_proven());
    }
    let (gateway, agent) = meet(GATEWAY, AGENT, "gate-2.example");
    assert_eq!(agent.failure.as_ref().map(Failure::name), Some("certificate_foreign"));
    assert!(gateway.heard.is_empty() && !gateway.stream.is_proven());
    let elsewhere = Identity { authority: OTHER_AUTHORITY, ..AGENT };
    let (gateway, agent) = meet(GATEWAY, elsewhere, "gate-1.example");
    assert_eq!(agent.failure.as_ref().map(Failure::name), Some("certificate_unknown"));
    assert!(gateway.heard.is_empty());
}

/// An agent without a certificate, and one that speaks something else.
#[test]
fn who_is_no_agent_at_all_is_refused_by_name() {
    if !is_possible() {
        return;
    }
    let bare = |alpn: &[u8]| {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("it has that")
            .with_root_certificates(AGENT.roots().expect("they are good"))
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        Agent(Arc::new(config))
    };
    let named = |alpn: &[u8]| {
        let Agent(config) = Agent::new(provider(), AGENT).expect("the files are good");
        let mut config = (*config).clone();
        config.alpn_protocols = if alpn.is_empty() { Vec::new() } else { vec![alpn.to_vec()] };
        Agent(Arc::new(config))
    };
    for (agent, why) in
        [(bare(ALPN), "certificate_missing"), (named(b"h2"), "tls"), (named(b""), "protocol")]
    {
        let gateway = Gateway::new(provider(), GATEWAY).expect("the files are good");
        let host = ServerName::try_from("gate-1.example").expect("a name");
        let mut gateway = Side::new(gateway.accept().expect("it begins"), 1000);
        let mut agent = Side::new(agent.connect(host).expect("it begins"), 1000);
        agent.outbox.hello((1, 1), "host-7").expect("there is room");
        talk(&mut gateway, &mut agent);
        assert_eq!(gateway.failure.as_ref().map(Failure::name), Some(why));
        assert!(gateway.heard.is_empty());
    }
}

#[test]
fn what_was_shown_is_judged_by_the_authorities_of_now_as_of_then() {
    if !is_possible() {
        return;
    }
    let (mut gateway, _) = meet(GATEWAY, AGENT, "gate-1.example");
    let proof = gateway.stream.proof(SHOWN_S).expect("it was");
    let with = |authority: &[u8]| {
        Gateway::new(provider(), Identity { authority, ..GATEWAY }).expect("good files")
    };
    let [ours, others] = [GATEWAY.authority, OTHER_AUTHORITY].map(with);
    let both = with(&[OTHER_AUTHORITY, GATEWAY.authority].concat());
    assert!(ours.vouches_for(&proof).is_ok() && both.vouches_for(&proof).is_ok());
    let why = others.vouches_for(&proof).expect_err("none of its own has signed it");
    assert_eq!(why.name(), "certificate_unknown");
    assert!(ours.has_authorities_of(&with(GATEWAY.authority)) && !ours.has_authorities_of(&both));

    // One that was good when it was shown, and has expired.
    let expired = certificates(EXPIRED.certificate).expect("one");
    let shown = |shown_s| Proof::shown(&expired, shown_s);
    assert!(ours.vouches_for(&shown(SHOWN_S)).is_ok());
    let why = ours.vouches_for(&shown(SHOWN_S + 86_400 * 365)).expect_err("it had expired");
    assert_eq!(why.name(), "certificate_expired");
    let why = ours.vouches_for(&shown(0)).expect_err("nobody had signed it");
    assert_eq!(why.name(), "certificate_early");

    // Another process knows it too.
    let mut bytes = vec![0; 4096];
    let mut out = carry::Writer::new(&mut bytes);
    carry::Carry::write(&proof, &mut out);
    let (len, maps) = (out.len(), carry::Maps::default());
    let read = |len| <Proof as carry::Carry>::read(&mut carry::Reader::new(&bytes[..len], &maps));
    assert_eq!(read(len), Ok(proof));
    assert!((0..len).all(|len| read(len).is_err()));
    gateway.stream.make_portable().expect("it is proven");
    assert!(gateway.stream.proof(SHOWN_S).is_none(), "keys alone say nothing of it");
}

/// In the year 2020, in which one certificate was good.
const SHOWN_S: u64 = 1_600_000_000;

#[test]
fn files_that_are_no_identity_are_refused_at_once() {
    if !is_possible() {
        return;
    }
    let key = Identity { key: GATEWAY.key, ..AGENT };
    assert!(matches!(Agent::new(provider(), key), Err(Mistake::Tls(_))));
    let keyless = Identity { key: b"", ..AGENT };
    assert!(matches!(Agent::new(provider(), keyless), Err(Mistake::Key(_))));
    let bare = Identity { certificate: AGENT.key, ..AGENT };
    assert!(matches!(Gateway::new(provider(), bare), Err(Mistake::Certificate(_))));
    let lost = Identity { authority: b"-----BEGIN", ..AGENT };
    assert!(matches!(Gateway::new(provider(), lost), Err(Mistake::Authority(_))));
}

#[test]
fn garbage_ends_a_connection_and_nothing_else() {
    if !is_possible() {
        return;
    }
    let config = Gateway::new(provider(), GATEWAY).expect("the files are good");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 300], &[22, 3, 1, 0, 4, 1, 0, 0, 0]] {
        let mut gateway = Side::new(config.accept().expect("it begins"), 1000);
        let mut pipe = Pipe { bytes: garbage.iter().copied().collect(), at_once: 7 };
        gateway.turn(&mut pipe);
        assert_eq!(gateway.failure.as_ref().map(Failure::name), Some("tls"), "{garbage:?}");
    }
}

/// From the connection to a payload on a lane and back to the end.
#[test]
fn a_trunk_comes_up_carries_links_and_ends_in_order() {
    if !is_possible() {
        return;
    }
    let (mut gateway, mut agent) = meet(GATEWAY, AGENT, "gate-1.example");
    let mut at_gateway = Conversation::new(Role::Gateway);
    let hello = Control::Hello { version_min: 1, version_max: 1, name: "host-7" };
    let Ok(FrameAction::Decide { name, version }) = at_gateway.handle(hello) else {
        panic!("hello")
    };
    let is_certified = |name: &str| gateway.stream.certified_for(name).is_ok();
    assert_eq!(agent_named(name, is_certified, [("host-7", ())]), Ok(()));
    let is_certified = |name: &str| gateway.stream.certified_for(name).is_ok();
    assert_eq!(agent_named("host-8", is_certified, [("host-8", ())]), Err(Reason::ForeignName));
    let welcome = Welcome { version, lanes: 2, trunk: 9, incarnation: 5 };
    gateway.outbox.welcome(&welcome).expect("there is room");
    at_gateway.begin(2);
    talk(&mut gateway, &mut agent);
    assert_eq!(agent.heard, [format!("{:?}", Ok::<_, ()>(Control::Welcome(welcome)))]);

    let lane = |side: &Side, role| {
        let secrets = side.stream.secrets(1).expect("it is proven");
        Lane::new(role, (9, 1), secrets, Rekey::default(), 0)
    };
    let (mut here, mut there) = (lane(&agent, Role::Agent), lane(&gateway, Role::Gateway));
    let (mut first, mut second) = ([0; 100], [0; 100]);
    let (mut game, mut payload) = (Writer::new(&mut first), Writer::new(&mut second));
    assert!(game.hello(&Hello::new(1, "arena")));
    assert!(payload.payload(SessionId::new(1, 7), b"state"));
    let frame = |bytes| Frames::new(bytes).next().expect("one").expect("own");
    agent.outbox.record((&mut here, 1), 3, frame(game.bytes())).expect("there is room");
    here.push(3, frame(payload.bytes())).expect("there is room");
    let mut aead = Aead::detect();
    here.seal(0, &mut aead);
    let mut datagram = here.pending().next().expect("one").to_vec();
    let mut come = 0;
    assert!(there.receive(0, &mut aead, &mut [&mut datagram[..]], |_, _| come += 1));
    assert_eq!(come, 0, "the link was not announced yet");
    gateway.heard.clear();
    talk(&mut gateway, &mut agent);
    assert_eq!(gateway.heard.len(), 1);
    there.handle_record(3, frame(game.bytes()), |link, record| {
        assert_eq!((link, record.bytes()), (3, payload.bytes()));
        come += 1;
    });
    assert_eq!(come, 1);

    gateway.outbox.goodbye(Reason::ShuttingDown).expect("there is room");
    gateway.turn(&mut agent.out);
    gateway.stream.close();
    talk(&mut gateway, &mut agent);
    assert!(agent.closed && agent.heard[1].contains("ShuttingDown"), "{:?}", agent.heard);
}

#[test]
fn a_peer_that_does_not_read_fills_the_outbox_and_no_more() {
    if !is_possible() {
        return;
    }
    let (mut gateway, mut agent) = meet(GATEWAY, AGENT, "gate-1.example");
    let mut record = [0; 100];
    let mut writer = Writer::new(&mut record);
    assert!(writer.closed(SessionId::new(1, 7), CloseReason::Kicked));
    let frame = Frames::new(writer.bytes()).next().expect("one").expect("own");
    let secrets = gateway.stream.secrets(0).expect("it is proven");
    let mut lane = Lane::new(Role::Gateway, (9, 0), secrets, Rekey::default(), 0);
    let mut told = 0_usize;
    while gateway.outbox.record((&mut lane, 0), 1, frame).is_ok() {
        told += 1;
        if told.is_multiple_of(1000) {
            gateway.stream.transmit(&mut gateway.out, &mut gateway.outbox).expect("a pipe");
        }
    }
    assert!(told > 200_000 && gateway.out.bytes.len() <= 4000 + 1000);
    talk(&mut gateway, &mut agent);
    assert_eq!(agent.heard.len(), told, "and all of it arrives");
}

/// What another process reads of a stream.
fn carried(stream: &mut Stream) -> Stream {
    stream.make_portable().expect("both sides are proven");
    crate::protocol::tests::carried(stream)
}

#[test]
fn another_process_goes_on_with_a_stream_and_the_other_side_notices_nothing() {
    if !is_possible() {
        return;
    }
    for at_once in [7, 1000, 40_000] {
        let (mut gateway, mut agent) = meet(GATEWAY, AGENT, "gate-1.example");
        (gateway.out.at_once, agent.out.at_once) = (at_once, at_once);
        let mut told = [1, 0];
        for round in 0..30_u64 {
            for (from, side) in [&mut gateway, &mut agent].into_iter().enumerate() {
                let count = (round * 7 + from as u64) % 40;
                for _ in 0..count {
                    side.outbox.hello((1, 1), "a-name-of-24-characters.").expect("there is room");
                }
                told[1 - from] += count as usize;
            }
            // In the middle of records that are on their way, each side by itself.
            gateway.turn(&mut agent.out);
            match round % 4 {
                0 => gateway.stream = carried(&mut gateway.stream),
                1 => agent.stream = carried(&mut agent.stream),
                // It was to be handed over, and goes on itself.
                2 => gateway.stream.make_portable().expect("it was before"),
                _ => {}
            }
            agent.turn(&mut gateway.out);
            assert!(gateway.failure.is_none() && agent.failure.is_none(), "round {round}");
        }
        talk(&mut gateway, &mut agent);
        assert_eq!([gateway.heard.len(), agent.heard.len()], told, "{at_once} at once");
        agent.stream.close();
        talk(&mut gateway, &mut agent);
        assert!(gateway.closed, "its end is heard");
    }
}

#[test]
fn a_stream_that_is_not_proven_stays_where_it_is() {
    if !is_possible() {
        return;
    }
    let gateway = Gateway::new(provider(), GATEWAY).expect("the files are good");
    let mut stream = gateway.accept().expect("it begins");
    assert!(stream.make_portable().is_err() && !stream.is_proven());
    let maps = ringgate_core::carry::Maps::default();
    for bytes in [&[0_u8][..], &[], &[1; 200]] {
        let mut from = ringgate_core::carry::Reader::new(bytes, &maps);
        let read = <Stream as ringgate_core::carry::Carry>::read(&mut from);
        assert!(read.is_err(), "{bytes:?}");
    }
}

#[test]
fn what_is_changed_on_its_way_ends_a_stream_that_was_handed_over() {
    if !is_possible() {
        return;
    }
    for (at, name) in [(0, "tls"), (3, "tls"), (9, "tls")] {
        let (mut gateway, mut agent) = meet(GATEWAY, AGENT, "gate-1.example");
        gateway.stream = carried(&mut gateway.stream);
        agent.outbox.beat().expect("there is room");
        agent.stream.transmit(&mut agent.out, &mut agent.outbox).expect("a pipe does not fail");
        agent.out.bytes[at] ^= 0x40;
        // A length that is too large waits for the rest.
        agent.out.bytes.extend(vec![0; 20_000]);
        gateway.turn(&mut agent.out);
        assert_eq!(gateway.failure.as_ref().map(Failure::name), Some(name), "byte {at}");
        assert_eq!(gateway.heard.len(), 1, "nothing was heard of it");
    }
}

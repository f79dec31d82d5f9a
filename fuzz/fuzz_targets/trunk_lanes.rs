//! Two ends of a lane over a network that the input drives: it loses, repeats, reorders and waits,
//! and in some runs it changes bytes. No payload comes before its session was announced, after its
//! end, or twice, also when an end goes on in another process. In other runs the peer has the keys
//! and says whatever the input says, or a process before has left it as a lane.
#![no_main]

use std::collections::{HashSet, VecDeque};

use libfuzzer_sys::fuzz_target;
use ringgate_core::carry::{self, Carry, Maps, Reader};
use ringgate_core::crypto::{Aead, Job, Key, token};
use ringgate_link::bundle::{
    CloseReason, Frame, Frames, OpenedPlain, SessionId, ToGame, Writer,
};
use ringgate_trunk::protocol::control::{Control, Inbox, Outbox};
use ringgate_trunk::protocol::datagram::{HEADER_BYTES, Header};
use ringgate_trunk::protocol::keys::Rekey;
use ringgate_trunk::protocol::lane::{Lane, Role, Secrets};
use ringgate_trunk::protocol::relay::{GAMES_MAX, Game, Relay};

const TRUNK: u32 = 7;
const LANE: u8 = 1;

fuzz_target!(|data: &[u8]| {
    let Some((&how, steps)) = data.split_first() else { return };
    if how & 1 == 0 {
        peer_with_keys(steps);
        left_behind(steps);
    } else {
        let mut world = World::new(how & 2 == 0);
        for step in steps.chunks_exact(2) {
            world.step(step[0], step[1]);
        }
    }
});

fn secrets() -> Secrets {
    let key = |[lane, way]: [u8; 2]| Ok::<_, ()>(Key::from_bytes([lane | way << 4; 32]));
    Secrets::export(LANE, key).expect("it cannot fail")
}

/// Bodies from the input, sealed as the document says.
fn peer_with_keys(bodies: &[u8]) {
    let mut aead = Aead::detect();
    let mut nonce = [0; 24];
    nonce[..16].copy_from_slice(b"ringgate: packet");
    for role in [Role::Agent, Role::Gateway] {
        let secret = if role == Role::Agent { secrets().to_agent } else { secrets().to_gateway };
        let (key, _) = token::derive(&secret, &nonce);
        let mut lane = Lane::new(role, (TRUNK, LANE), secrets(), Rekey::default(), 0);
        let mut left = bodies;
        for sequence in 0.. {
            let Some((&len, rest)) = left.split_first() else { break };
            let (body, rest) = rest.split_at(rest.len().min(usize::from(len) + 1));
            left = rest;
            let header = Header { lane: LANE, epoch: 0, trunk: TRUNK, sequence };
            let mut datagram = [&header.to_bytes()[..], body, &[0; 16]].concat();
            let (aad, sealed) = datagram.split_at_mut(HEADER_BYTES);
            let mut nonce = [0; 12];
            nonce[4..].copy_from_slice(&sequence.to_le_bytes());
            aead.seal(&mut [Job::new(&key, nonce, aad, sealed)]);
            let taken = lane.receive_runs(0, &mut aead, &mut [&mut datagram[..]], |_, run| {
                for frame in run.frames() {
                    assert!(frame.may_be_lost() && role == Role::Gateway, "nothing was announced");
                }
            });
            assert!(taken == !body.is_empty());
            assert!(lane.stats().waiting <= 4096);
            lane.seal(0, &mut aead);
            lane.handle_sent(usize::MAX);
        }
    }
}

/// What can be read as a lane can be written, and is then the same.
fn left_behind(bytes: &[u8]) {
    let maps = Maps::default();
    if let Ok(lane) = Lane::read(&mut Reader::new(bytes, &maps)) {
        let once = written(&lane);
        let again = Lane::read(&mut Reader::new(&once, &maps)).expect("it was just written");
        assert_eq!(written(&again).len(), once.len());
    }
    // The same of an agent's local worker, which goes on with whatever it was.
    let names = || vec!["a".to_owned(), "b".to_owned()];
    if let Ok(mut relay) = Relay::read(&mut Reader::new(bytes, &maps), names()) {
        let put = |relay: &Relay| {
            let mut measure = carry::Writer::new(&mut []);
            relay.write(&mut measure);
            let mut once = vec![0; measure.len()];
            relay.write(&mut carry::Writer::new(&mut once));
            once
        };
        let once = put(&relay);
        let again = Relay::read(&mut Reader::new(&once, &maps), names());
        assert_eq!(put(&again.expect("it was just written")).len(), once.len());
        for game in (0..GAMES_MAX).map(Game::at) {
            if relay.has(game) {
                relay.handle_bundle(game, bytes, &mut |_| ());
            }
        }
        relay.handle_lane(LANE, &mut |_| ());
        relay.handle_lane_lost(&mut |_| ());
    }
}

fn written(lane: &Lane) -> Vec<u8> {
    let mut measure = carry::Writer::new(&mut []);
    lane.write(&mut measure);
    let mut bytes = vec![0; measure.len()];
    lane.write(&mut carry::Writer::new(&mut bytes));
    bytes
}

/// What another process reads of it.
fn carried(lane: &Lane) -> Lane {
    let (bytes, maps) = (written(lane), Maps::default());
    let mut from = Reader::new(&bytes, &maps);
    let read = Lane::read(&mut from).expect("it is our own");
    assert_eq!(from.end(), Ok(()));
    read
}

struct World {
    gateway: Lane,
    agent: Lane,
    aead: Aead,
    outbox: Outbox,
    inbox: Inbox,
    under_way: VecDeque<Vec<u8>>,
    stream: VecDeque<u8>,
    now_ns: u64,
    is_honest: bool,
    serial: u64,
    sent: u64,
    /// What the game process knows: who is there, who was, what it has got.
    open: HashSet<SessionId>,
    over: HashSet<SessionId>,
    got: HashSet<u64>,
}

impl World {
    fn new(is_honest: bool) -> Self {
        let lane = |role| {
            Lane::new(role, (TRUNK, LANE), secrets(), Rekey { age_ns: u64::MAX, datagrams: 9 }, 0)
        };
        Self {
            gateway: lane(Role::Gateway),
            agent: lane(Role::Agent),
            aead: Aead::detect(),
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            under_way: VecDeque::new(),
            stream: VecDeque::new(),
            now_ns: 0,
            is_honest,
            serial: 0,
            sent: 0,
            open: HashSet::new(),
            over: HashSet::new(),
            got: HashSet::new(),
        }
    }

    fn step(&mut self, what: u8, how: u8) {
        match what & 7 {
            0 => self.open(),
            1 => self.tell(|writer, session| writer.closed(session, CloseReason::Kicked), how),
            2 | 3 => self.send(how),
            4 => self.now_ns += u64::from(how) * 10_000_000,
            5 => _ = self.under_way.remove(usize::from(how)),
            6 => self.arrive(usize::from(how >> 1), how & 1 == 0),
            _ => self.arrive_by_stream(1 + usize::from(how)),
        }
        match what >> 3 {
            1 => self.gateway = carried(&self.gateway),
            2 => self.agent = carried(&self.agent),
            // Another process may have gone on with it.
            3 => self.gateway.jump(),
            _ => {}
        }
        self.gateway.poll(self.now_ns);
        self.agent.poll(self.now_ns);
        self.gateway.seal(self.now_ns, &mut self.aead);
        self.under_way.extend(self.gateway.pending().map(<[u8]>::to_vec));
        self.gateway.handle_sent(usize::MAX);
        self.agent.seal(self.now_ns, &mut self.aead);
        self.agent.handle_sent(usize::MAX);
        self.stream.extend(self.outbox.bytes());
        self.outbox.handle_sent(self.outbox.bytes().len());
    }

    fn open(&mut self) {
        self.serial += 1;
        let address = "192.0.2.7:9".parse().expect("literal");
        let (session, serial) = (SessionId::new(usize::from(LANE), self.serial), self.serial);
        let opened = OpenedPlain { session, slot: None, slots_max: 4, address, listener: "any" };
        self.tell(|writer, _| writer.opened_plain(&opened), serial as u8);
    }

    fn tell(&mut self, write: impl FnOnce(&mut Writer<'_>, SessionId) -> bool, how: u8) {
        let mut buf = [0; 400];
        let mut writer = Writer::new(&mut buf);
        let session = SessionId::new(usize::from(LANE), 1 + u64::from(how));
        assert!(write(&mut writer, session));
        let frame = only(writer.bytes());
        self.outbox.record((&mut self.gateway, LANE), 1, frame).expect("there is room");
    }

    fn send(&mut self, how: u8) {
        let mut buf = [0; 2000];
        let mut writer = Writer::new(&mut buf);
        let session = SessionId::new(usize::from(LANE), 1 + u64::from(how & 15));
        let mut payload = vec![how; 8 + usize::from(how) * 5];
        payload[..8].copy_from_slice(&self.sent.to_le_bytes());
        assert!(writer.payload(session, &payload));
        if self.gateway.push(1, only(writer.bytes())).is_ok() {
            self.sent += 1;
        }
    }

    fn arrive(&mut self, place: usize, stays: bool) {
        let place = place.min(self.under_way.len().saturating_sub(1));
        let come =
            if stays { self.under_way.get(place).cloned() } else { self.under_way.remove(place) };
        let Some(mut datagram) = come else { return };
        if !self.is_honest {
            let at = place % datagram.len();
            datagram[at] ^= 1 << (place & 7);
        }
        let Self { agent, aead, now_ns, open, over, got, is_honest, .. } = self;
        let taken = agent.receive_runs(*now_ns, aead, &mut [&mut datagram[..]], |_, run| {
            run.frames().for_each(|frame| handle(frame, open, over, got));
        });
        assert!(*is_honest || !taken, "what was changed does not open");
    }

    fn arrive_by_stream(&mut self, bytes: usize) {
        let Self { agent, inbox, stream, open, over, got, .. } = self;
        let part: Vec<u8> = stream.drain(..bytes.min(stream.len())).collect();
        inbox.room()[..part.len()].copy_from_slice(&part);
        inbox.handle_read(part.len());
        while let Some(control) = inbox.next() {
            let Ok(Control::Record { link, frame, .. }) = control else { panic!("{control:?}") };
            handle(frame, open, over, got);
            agent.handle_record(link, frame, |_, frame| handle(frame, open, over, got));
        }
    }
}

fn handle(
    frame: Frame<'_>,
    open: &mut HashSet<SessionId>,
    over: &mut HashSet<SessionId>,
    got: &mut HashSet<u64>,
) {
    match ToGame::decode(frame).expect("it is our own") {
        ToGame::OpenedPlain(opened) => _ = open.insert(opened.session),
        ToGame::Closed { session, .. } => {
            open.remove(&session);
            over.insert(session);
        }
        ToGame::Payload { session, bytes } => {
            assert!(open.contains(&session), "its session is open");
            let number = u64::from_le_bytes(*bytes.first_chunk().expect("eight"));
            assert!(got.insert(number), "it has not come before");
        }
        record => panic!("{record:?}"),
    }
}

fn only(record: &[u8]) -> Frame<'_> {
    Frames::new(record).next().expect("one").expect("own")
}

//! Both ends of a lane, a stream and a network between them, all from one seed.

use std::collections::HashSet;

use ringgate_core::carry::{self, Carry};
use ringgate_core::crypto::{Aead, Key};
use ringgate_link::bundle::{Frame, Frames, Writer};

use crate::protocol::control::{Control, Inbox, Outbox};
use crate::protocol::datagram::Header;
use crate::protocol::keys::Rekey;
use crate::protocol::lane::{Full, Lane, Role, Secrets};

pub(super) const MS: u64 = 1_000_000;
pub(super) const TRUNK: u32 = 0xbeef;
pub(super) const LANE: u8 = 3;

impl Lane {
    /// Takes in what the socket had, one record after the other.
    pub(crate) fn receive(
        &mut self,
        now_ns: u64,
        aead: &mut Aead,
        datagrams: &mut [&mut [u8]],
        mut deliver: impl FnMut(u16, Frame<'_>),
    ) -> bool {
        self.receive_runs(now_ns, aead, datagrams, |link, run| {
            run.frames().for_each(|frame| deliver(link, frame));
        })
    }
}

/// Random numbers of a seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ it >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ it >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ it >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What the network does to datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) lost_percent: u64,
    pub(super) repeated_percent: u64,
    /// Between nothing and this, for each datagram by itself.
    pub(super) delay_ms: u64,
    /// How much later than that the stream may be.
    pub(super) stream_delay_ms: u64,
    pub(super) carries: usize,
    /// How often, in a thousand milliseconds, an end is handed to another process. Every other time
    /// that fails.
    pub(super) handed_per_mille: u64,
}

impl Weather {
    pub(super) const FAIR: Self = Self {
        lost_percent: 0,
        repeated_percent: 0,
        delay_ms: 0,
        stream_delay_ms: 0,
        carries: 1472,
        handed_per_mille: 0,
    };
}

/// One end, and what is on its way to the other.
pub(super) struct End {
    pub(super) lane: Lane,
    pub(super) outbox: Outbox,
    inbox: Inbox,
    datagrams: Vec<(u64, Vec<u8>)>,
    stream: Vec<(u64, Vec<u8>)>,
    /// Datagrams that the network has lost, probes that were too long among them: their numbers.
    lost: Vec<u64>,
    /// The highest number of those that it has not.
    carried: u64,
    /// Payloads that found no room.
    pub(super) full: u64,
    /// Under which epoch and number anything was sealed.
    used: HashSet<(u16, u64)>,
    /// How often it was handed over, and how often that failed.
    pub(super) handed: [u64; 2],
}

pub(super) struct Rig {
    pub(super) now_ns: u64,
    pub(super) random: Random,
    pub(super) weather: Weather,
    /// The agent, and the gateway.
    pub(super) ends: [End; 2],
    aead: Aead,
}

pub(super) const AGENT: usize = 0;
pub(super) const GATEWAY: usize = 1;

/// What arrives at an end.
#[derive(Clone, Copy)]
pub(super) enum Arrival<'a> {
    Record(u16, Frame<'a>),
    Ended(u16),
}

fn secrets() -> Secrets {
    let key = |[lane, way]: [u8; 2]| Ok::<_, ()>(Key::from_bytes([lane ^ way << 4 | 1; 32]));
    Secrets::export(LANE, key).expect("it cannot fail")
}

impl Rig {
    pub(super) fn new(seed: u64, weather: Weather, rekey: Rekey) -> Self {
        let end = |role| End {
            lane: Lane::new(role, (TRUNK, LANE), secrets(), rekey, 0),
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            datagrams: Vec::new(),
            stream: Vec::new(),
            lost: Vec::new(),
            carried: 0,
            full: 0,
            used: HashSet::new(),
            handed: [0; 2],
        };
        let ends = [end(Role::Agent), end(Role::Gateway)];
        Self { now_ns: 0, random: Random(seed), weather, ends, aead: Aead::detect() }
    }

    /// Pushes a record that may be lost.
    pub(super) fn push(
        &mut self,
        from: usize,
        link: u16,
        write: impl Fn(&mut Writer<'_>) -> bool,
    ) -> bool {
        let record = written(write);
        let frame = only_frame(&record);
        let mut pushed = self.ends[from].lane.push(link, frame);
        if pushed == Err(Full) {
            self.transmit(from);
            pushed = self.ends[from].lane.push(link, frame);
        }
        self.ends[from].full += u64::from(pushed.is_err());
        pushed.is_ok()
    }

    /// Gives a record to the stream.
    pub(super) fn tell(&mut self, from: usize, link: u16, write: impl Fn(&mut Writer<'_>) -> bool) {
        let record = written(write);
        let End { lane, outbox, .. } = &mut self.ends[from];
        outbox.record((lane, LANE), link, only_frame(&record)).expect("there is room");
    }

    pub(super) fn tell_end(&mut self, from: usize, link: u16) {
        let End { lane, outbox, .. } = &mut self.ends[from];
        outbox.ended((lane, LANE), link).expect("there is room");
    }

    /// Another process goes on with an end; or it does not, and nobody knows what it has sealed.
    fn hand_over(&mut self, which: usize) {
        let Self { now_ns, random, ends, aead, .. } = self;
        let End { lane, outbox, inbox, used, handed, .. } = &mut ends[which];
        // What is sealed and not sent goes along.
        lane.seal(*now_ns, aead);
        let mut next: Lane = carried(lane);
        let role = if which == AGENT { Role::Agent } else { Role::Gateway };
        assert!(next.is_of(role, (TRUNK, LANE)) && !next.is_of(role, (TRUNK, LANE + 1)));
        let has_failed = random.chance(50);
        handed[usize::from(has_failed)] += 1;
        if !has_failed {
            (*lane, *outbox, *inbox) = (next, carried(outbox), carried(inbox));
            return;
        }
        let sealed_before = next.pending().len();
        next.handle_sent(sealed_before);
        for at in 1..=random.below(4) {
            next.poll(*now_ns + at * crate::protocol::beat::BEAT_NS);
            next.seal(*now_ns, aead);
            next.pending().for_each(|datagram| note_use(used, datagram));
            next.handle_sent(usize::MAX);
        }
        lane.jump();
    }

    /// A millisecond passes.
    pub(super) fn step(&mut self, mut handle: impl FnMut(usize, Arrival<'_>)) {
        for from in [AGENT, GATEWAY] {
            if self.random.below(1000) < self.weather.handed_per_mille {
                self.hand_over(from);
            }
            self.ends[from].lane.poll(self.now_ns);
            self.transmit(from);
        }
        self.now_ns += MS;
        for from in [AGENT, GATEWAY] {
            // Which of the two is faster is open.
            if self.random.chance(50) {
                self.arrive(from, &mut handle);
                self.arrive_by_stream(from, &mut handle);
            } else {
                self.arrive_by_stream(from, &mut handle);
                self.arrive(from, &mut handle);
            }
        }
    }

    pub(super) fn steps(&mut self, count: u64, mut handle: impl FnMut(usize, Arrival<'_>)) {
        (0..count).for_each(|_| self.step(&mut handle));
    }

    fn transmit(&mut self, from: usize) {
        let Self { now_ns, random, weather, ends, aead } = self;
        let End { lane, outbox, datagrams, stream, lost, carried, used, .. } = &mut ends[from];
        lane.seal(*now_ns, aead);
        for datagram in lane.pending() {
            note_use(used, datagram);
            if datagram.len() > weather.carries || random.chance(weather.lost_percent) {
                lost.push(number_of(datagram));
                continue;
            }
            *carried = number_of(datagram);
            let copies = 1 + u64::from(random.chance(weather.repeated_percent));
            for _ in 0..copies {
                let delay_ns = random.below(weather.delay_ms + 1) * MS;
                datagrams.push((*now_ns + delay_ns, datagram.to_vec()));
            }
        }
        let count = lane.pending().len();
        lane.handle_sent(count);
        if !outbox.bytes().is_empty() {
            let earliest_ns = stream.last().map_or(*now_ns, |(at_ns, _)| *at_ns);
            let delay_ns = random.below(weather.stream_delay_ms + 1) * MS;
            stream.push(((*now_ns + delay_ns).max(earliest_ns), outbox.bytes().to_vec()));
            outbox.handle_sent(outbox.bytes().len());
        }
    }

    fn arrive(&mut self, from: usize, handle: &mut impl FnMut(usize, Arrival<'_>)) {
        let now_ns = self.now_ns;
        let mut come: Vec<_> =
            self.ends[from].datagrams.extract_if(.., |(at_ns, _)| *at_ns <= now_ns).collect();
        let mut datagrams: Vec<_> =
            come.iter_mut().map(|(_, datagram)| &mut datagram[..]).collect();
        let to = 1 - from;
        let lane = &mut self.ends[to].lane;
        lane.receive(now_ns, &mut self.aead, &mut datagrams, |link, frame| {
            handle(to, Arrival::Record(link, frame));
        });
    }

    fn arrive_by_stream(&mut self, from: usize, handle: &mut impl FnMut(usize, Arrival<'_>)) {
        let now_ns = self.now_ns;
        let come: Vec<_> =
            self.ends[from].stream.extract_if(.., |(at_ns, _)| *at_ns <= now_ns).collect();
        let to = 1 - from;
        let End { lane, inbox, .. } = &mut self.ends[to];
        for (_, bytes) in come {
            for part in bytes.chunks(10_000) {
                inbox.room()[..part.len()].copy_from_slice(part);
                inbox.handle_read(part.len());
                while let Some(control) = inbox.next() {
                    match control.expect("it is our own") {
                        Control::Record { link, frame, .. } => {
                            handle(to, Arrival::Record(link, frame));
                            lane.handle_record(link, frame, |link, frame| {
                                handle(to, Arrival::Record(link, frame));
                            });
                        }
                        Control::Ended { link, .. } => {
                            handle(to, Arrival::Ended(link));
                            lane.handle_end(link, |link, frame| {
                                handle(to, Arrival::Record(link, frame));
                            });
                        }
                        control => panic!("{control:?}"),
                    }
                }
            }
        }
    }

    /// How many datagrams of an end the network has lost before one that came through: the other
    /// end can know of those.
    pub(super) fn lost(&self, from: usize) -> u64 {
        let End { lost, carried, .. } = &self.ends[from];
        lost.iter().filter(|number| *number < carried).count() as u64
    }

    /// What is on its way from an end.
    pub(super) fn under_way(&mut self, from: usize) -> &mut Vec<(u64, Vec<u8>)> {
        &mut self.ends[from].datagrams
    }
}

/// Nothing is sealed twice under one key and number.
fn note_use(used: &mut HashSet<(u16, u64)>, datagram: &[u8]) {
    let Header { epoch, sequence, .. } = Header::read(datagram).expect("it is our own");
    assert!(used.insert((epoch, sequence)), "{epoch}/{sequence} was used before");
}

/// What another process reads of it.
pub(crate) fn carried<T: Carry>(it: &T) -> T {
    let mut memory = vec![0; 8 << 20];
    let mut out = carry::Writer::new(&mut memory);
    it.write(&mut out);
    let len = out.len();
    let (bytes, maps) = (&memory[..len], carry::Maps::default());
    let mut from = carry::Reader::new(bytes, &maps);
    let read = T::read(&mut from).expect("it is our own");
    assert_eq!(from.end(), Ok(()));
    read
}

fn number_of(datagram: &[u8]) -> u64 {
    Header::read(datagram).expect("it is our own").sequence
}

fn written(write: impl Fn(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buf = vec![0; 16 * 1024];
    let mut writer = Writer::new(&mut buf);
    assert!(write(&mut writer), "the record is one that may be written");
    writer.bytes().to_vec()
}

fn only_frame(record: &[u8]) -> Frame<'_> {
    Frames::new(record).next().expect("one").expect("own")
}

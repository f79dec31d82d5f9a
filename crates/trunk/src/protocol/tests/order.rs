//! No payload of a session comes before it was announced, none after its end, none twice, and on a
//! network that loses nothing, all of them come.

use std::collections::{HashMap, HashSet};

use ringgate_link::bundle::{CloseReason, Hello, OpenedPlain, SessionId, ToGame, ToGateway};

use super::rig::{AGENT, Arrival, GATEWAY, LANE, Rig, Weather};
use crate::protocol::datagram::Refusal;
use crate::protocol::keys::Rekey;

const LINKS: u64 = 3;

/// The game processes behind the agent: what they were told.
#[derive(Default)]
struct Games {
    open: HashMap<SessionId, u16>,
    closed: HashSet<SessionId>,
    seen: HashSet<u64>,
    payloads: u64,
}

impl Games {
    fn handle(&mut self, to: usize, arrival: Arrival<'_>) {
        assert_eq!(to, AGENT);
        let Arrival::Record(link, frame) = arrival else {
            let Arrival::Ended(link) = arrival else { unreachable!() };
            return self.end(link);
        };
        match ToGame::decode(frame).expect("it is the gateway's own") {
            ToGame::OpenedPlain(opened) => {
                assert!(!self.closed.contains(&opened.session), "no session is opened twice");
                assert_eq!(self.open.insert(opened.session, link), None);
            }
            ToGame::Closed { session, .. } => {
                assert_eq!(self.open.remove(&session), Some(link));
                self.closed.insert(session);
            }
            ToGame::Payload { session, bytes } => {
                assert_eq!(self.open.get(&session), Some(&link), "it is open on its link");
                let number = u64::from_le_bytes(*bytes.first_chunk().expect("eight"));
                assert_eq!(bytes, content(number, bytes.len()));
                assert!(self.seen.insert(number), "no payload comes twice");
                self.payloads += 1;
            }
            record => panic!("{record:?}"),
        }
    }

    fn end(&mut self, link: u16) {
        let ended: Vec<_> = self.open.extract_if(|_, on| *on == link).collect();
        self.closed.extend(ended.into_iter().map(|(session, _)| session));
    }
}

fn content(number: u64, len: usize) -> Vec<u8> {
    let fill = (0..).map(|at: u32| (at as u8).wrapping_mul(31) ^ number as u8);
    number.to_le_bytes().into_iter().chain(fill).take(len).collect()
}

/// A gateway with players who come, play and leave.
struct Gateway {
    open: Vec<(SessionId, u16)>,
    serial: u64,
    payloads: u64,
}

impl Gateway {
    fn step(&mut self, rig: &mut Rig) {
        for _ in 0..rig.random.below(3) {
            self.open(rig);
        }
        for _ in 0..rig.random.below(60) {
            self.play(rig);
        }
        if rig.random.chance(40) && !self.open.is_empty() {
            let at = rig.random.below(self.open.len() as u64) as usize;
            let (session, link) = self.open.swap_remove(at);
            rig.tell(GATEWAY, link, |writer| writer.closed(session, CloseReason::PlayerLeft));
        }
        if rig.random.below(500) == 0 {
            let link = rig.random.below(LINKS) as u16;
            self.open.retain(|(_, on)| *on != link);
            rig.tell_end(GATEWAY, link);
        }
    }

    fn open(&mut self, rig: &mut Rig) {
        self.serial += 1;
        let session = SessionId::new(usize::from(LANE), self.serial);
        let link = rig.random.below(LINKS) as u16;
        let address = "192.0.2.7:4711".parse().expect("literal");
        let opened = OpenedPlain { session, slot: None, slots_max: 64, address, listener: "any" };
        rig.tell(GATEWAY, link, |writer| writer.opened_plain(&opened));
        self.open.push((session, link));
        if rig.random.chance(80) {
            self.play(rig);
        }
    }

    fn play(&mut self, rig: &mut Rig) {
        if self.open.is_empty() {
            return;
        }
        let at = rig.random.below(self.open.len() as u64) as usize;
        let (session, link) = self.open[at];
        let bytes = match rig.random.below(10) {
            0 => 1472,
            1 => 1200,
            _ => 8 + rig.random.below(400) as usize,
        };
        let payload = content(self.payloads, bytes);
        let pushed = rig.push(GATEWAY, link, |writer| writer.payload(session, &payload));
        assert!(pushed, "a batch has room for more than a step brings");
        self.payloads += 1;
    }
}

fn play(seed: u64, weather: Weather) -> (Rig, Gateway, Games) {
    let rekey = Rekey { age_ns: u64::MAX, datagrams: 1000 };
    let mut rig = Rig::new(seed, weather, rekey);
    let mut games = Games::default();
    let mut gateway = Gateway { open: Vec::new(), serial: 0, payloads: 0 };
    for _ in 0..1000 {
        gateway.step(&mut rig);
        rig.step(|to, arrival| games.handle(to, arrival));
    }
    rig.weather = Weather { lost_percent: 0, ..rig.weather };
    rig.steps(1200, |to, arrival| games.handle(to, arrival));
    (rig, gateway, games)
}

/// How many: more with `TRUNK_SEEDS`.
fn seeds() -> u64 {
    std::env::var("TRUNK_SEEDS").map_or(4, |seeds| seeds.parse().expect("a number"))
}

#[test]
fn on_a_network_that_loses_nothing_every_payload_comes() {
    for seed in 0..2 {
        let (rig, gateway, games) = play(seed, Weather::FAIR);
        let stats = rig.ends[AGENT].lane.stats();
        // A session's end may overtake its last payloads: those are counted by name.
        let late = stats.refusals.of(Refusal::Over);
        assert_eq!(games.payloads + late, gateway.payloads, "seed {seed}");
        assert_eq!(stats.payloads_received, games.payloads);
        assert!(late * 50 < gateway.payloads && stats.epochs[1] > 5, "{stats:?}");
        assert_eq!(rig.ends[GATEWAY].lane.stats().sent.payloads, gateway.payloads);
    }
}

#[test]
fn on_a_bad_network_order_holds_and_everything_that_is_missing_has_a_name() {
    for seed in 0..seeds() {
        check(seed, bad_weather(seed));
    }
}

/// Either end goes on in another process, again and again, or its hand-over fails and it goes on
/// where it was: nothing is lost by that, nothing comes twice, and no number is used twice.
#[test]
fn ends_that_are_handed_over_go_on_as_if_nothing_had_happened() {
    let weather = Weather { handed_per_mille: 50, ..Weather::FAIR };
    let (rig, gateway, games) = play(1, weather);
    let stats = rig.ends[AGENT].lane.stats();
    assert_eq!(games.payloads + stats.refusals.of(Refusal::Over), gateway.payloads);
    assert!(stats.arrived_here.lost() <= rig.lost(GATEWAY), "a jump is no loss");
    for end in &rig.ends {
        assert!(end.handed.iter().all(|count| *count > 5), "{:?}", end.handed);
    }
    for seed in 100..100 + seeds() {
        check(seed, Weather { handed_per_mille: 20, ..bad_weather(seed) });
    }
}

fn bad_weather(seed: u64) -> Weather {
    let mut random = super::rig::Random(seed);
    Weather {
        lost_percent: random.below(20),
        repeated_percent: random.below(20),
        delay_ms: random.below(30),
        stream_delay_ms: random.below(60),
        carries: [1232, 1472, 8900][random.below(3) as usize],
        handed_per_mille: 0,
    }
}

fn check(seed: u64, weather: Weather) {
    let (rig, gateway, games) = play(seed, weather);
    let stats = rig.ends[AGENT].lane.stats();
    assert_eq!(stats.refusals.of(Refusal::Early), 0, "there is room for what a slow stream keeps");
    assert!(games.payloads * 2 > gateway.payloads, "{weather:?}: {stats:?}");
    if weather.handed_per_mille == 0 {
        assert_eq!(stats.arrived_here.lost(), rig.lost(GATEWAY), "{weather:?}");
    }
    assert_eq!(rig.ends[GATEWAY].full, 0);
    assert_eq!(stats.waiting, 0, "nothing waits for what has come");
    for never in [Refusal::Foreign, Refusal::Elsewhere, Refusal::Forged, Refusal::Malformed] {
        assert_eq!(stats.refusals.of(never), 0, "{never} at seed {seed}");
    }
}

#[test]
fn a_multicast_stays_one_record_however_long_it_is() {
    for carries in [1232, 1472, 8900] {
        let mut rig = Rig::new(9, Weather { carries, ..Weather::FAIR }, Rekey::default());
        rig.steps(3000, |_, _| ());
        rig.tell(AGENT, 7, |writer| writer.hello(&Hello::new(1, "arena")));
        rig.step(|_, _| ());
        let mut expected = Vec::new();
        for count in [1_u64, 2, 100, 130, 1024] {
            let sessions: Vec<_> =
                (1..=count).map(|serial| SessionId::new(usize::from(LANE), serial)).collect();
            let payload = content(count, 1200);
            assert!(rig.push(AGENT, 7, |writer| writer.multicast(&sessions, &payload)));
            expected.push((sessions, payload));
        }
        let mut come = Vec::new();
        rig.steps(5, |to, arrival| {
            let Arrival::Record(7, frame) = arrival else { panic!("nothing ends") };
            let Ok(ToGateway::Multicast { sessions, bytes }) = ToGateway::decode(frame) else {
                panic!("it is a multicast")
            };
            assert_eq!(to, GATEWAY);
            come.push((sessions.iter().collect::<Vec<_>>(), bytes.to_vec()));
        });
        assert_eq!(come, expected);
        let split = rig.ends[AGENT].lane.stats().sent.split;
        let longer = if carries == 8900 { 1 } else { 3 };
        assert!(split >= longer, "{split} of 5 were split at {carries}");
    }
}

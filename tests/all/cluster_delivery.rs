//! Players of a cluster who speak in whole messages: whatever becomes of their gateways, each
//! reliable one arrives once and in order, at the game process and back.

use std::ffi::OsStr;
use std::time::Duration;

use ringgate_client::{Channel, Client, Event};
use ringgate_os::clock::Clock;

use crate::cluster_rig::{Behind, Cluster, MESSAGES_PLACE, among_players, sum};
use crate::cluster_rig::{wait_until_all_stand_by, wait_until_owned};
use crate::cluster_takeover::replaced;
use crate::command::{ringgate, run};
use crate::control_rig::wait_for;
use crate::delivery_ways::player;
use crate::upgrade_rig::kill;

const PLAYERS: u64 = 4;

/// So many messages of a player are on their way at once, there or back.
const UNDER_WAY: u32 = 30;

/// One that numbers what it says, and hears that again.
struct Talker {
    client: Client,
    said: u32,
    heard: u32,
}

impl Talker {
    fn new(client_id: u64) -> Self {
        let place = MESSAGES_PLACE.parse().expect("an address");
        Self { client: player(place, client_id), said: 0, heard: 0 }
    }

    fn talk(&mut self) {
        while self.said < self.heard + UNDER_WAY {
            let message = message(self.said);
            self.client.send(Channel::Reliable(0), &message, None).expect("there is room");
            self.said += 1;
        }
        self.client.turn(Duration::from_millis(1)).expect("a socket that works");
        while let Some(event) = self.client.poll_event() {
            let Event::Message(Channel::Reliable(0), bytes) = event else { panic!("{event:?}") };
            assert!(bytes == message(self.heard), "{} comes next, and once", self.heard);
            self.heard += 1;
        }
    }
}

/// Some are long: they are under way in parts when their gateway dies.
fn message(number: u32) -> Vec<u8> {
    let mut bytes = vec![number as u8; if number % 10 == 3 { 30_000 } else { 100 }];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// All talk until each has heard so many more than before. Returns for how long.
fn talk(talkers: &mut [Talker], more: u32) -> Duration {
    let wanted: Vec<_> = talkers.iter().map(|it| it.heard + more).collect();
    let clock = Clock::start();
    while talkers.iter().zip(&wanted).any(|(it, wanted)| it.heard < *wanted) {
        assert!(clock.now_ns() < 60_000_000_000, "somebody hears nothing any more");
        talkers.iter_mut().for_each(Talker::talk);
    }
    Duration::from_nanos(clock.now_ns())
}

/// What the agent has delivered is what was said, and no gateway has delivered anything.
fn agent_has_delivered(cluster: &Cluster, talkers: &[Talker]) {
    let (agent, _) = cluster.hosted.as_ref().expect("there is one");
    let page = agent.get("/metrics").body;
    let number = |name: &str| {
        let of = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        of.and_then(|it| it.trim().parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name}"))
    };
    let heard: u32 = talkers.iter().map(|it| it.heard).sum();
    let said: u32 = talkers.iter().map(|it| it.said).sum();
    let came = number("ringgate_agent_messages_in_total") as u32;
    assert!((heard..=said).contains(&came), "{heard}..={said}: {came}");
    for line in &cluster.lines {
        let page = line.daemon.ask("/metrics");
        let here = page.sum("ringgate_listener_messages_in_total", "");
        assert_eq!(here.unwrap_or_default(), 0, "{}", line.daemon.log());
    }
}

#[test]
fn messages_that_are_under_way_when_a_gateway_dies_arrive_once_and_in_order() {
    let name = "cluster_delivery::messages_that_are_under_way_when_a_gateway_dies_arrive_once_and_\
                in_order";
    among_players(name, Behind::Agent, |mut cluster| {
        cluster.network.spread(&[1]);
        let mut talkers: Vec<_> = (1..=PLAYERS).map(Talker::new).collect();
        talk(&mut talkers, 50);
        wait_until_all_stand_by(&cluster, PLAYERS);
        for round in 1..=3 {
            let dead = cluster.lines.remove(0);
            kill(dead.daemon.id());
            drop(dead);
            let others: Vec<_> = (1..=3).filter(|it| *it != round).collect();
            cluster.network.spread(&others);
            let gap = talk(&mut talkers, 50);
            eprintln!("gap of a death among messages: {} ms", gap.as_millis());
            cluster.is_conserved();
            let line = cluster.gateway(round);
            cluster.lines.push(line);
            cluster.wait_until_complete();
            // The next one that dies has them, and some on their way to it.
            cluster.network.spread(&[round % 3 + 1]);
            talk(&mut talkers, 50);
            wait_until_owned(&cluster, PLAYERS);
            wait_until_all_stand_by(&cluster, PLAYERS);
        }
        assert!(sum(&cluster, "taken_over") > 0);
        // The first one has them all, and is emptied into the others.
        let mut leaving = cluster.lines.remove(0);
        let config = leaving.daemon.folder.join("gate.toml");
        let asked = ["drain", "--hand-over", "--deadline", "10m", "--config"].map(OsStr::new);
        let said = run(ringgate(asked.into_iter().chain([config.as_os_str()])));
        assert!(said.succeeded().starts_with("draining: "));
        while leaving.daemon.status()["totals"]["sessions"] != 0 {
            talk(&mut talkers, 10);
        }
        cluster.network.spread(&[2, 3]);
        wait_for("its end", || {
            talk(&mut talkers, 10);
            (!leaving.daemon.is_running()).then_some(())
        });
        agent_has_delivered(&cluster, &talkers);
    });
}

#[test]
fn messages_that_are_under_way_when_the_agent_is_replaced_arrive_once_and_in_order() {
    let name = "cluster_delivery::messages_that_are_under_way_when_the_agent_is_replaced_arrive_\
                once_and_in_order";
    among_players(name, Behind::Agent, |mut cluster| {
        cluster.network.spread(&[1]);
        let mut talkers: Vec<_> = (1..=PLAYERS).map(Talker::new).collect();
        talk(&mut talkers, 50);
        wait_until_all_stand_by(&cluster, PLAYERS);
        let _first = replaced(&cluster);
        talk(&mut talkers, 50);
        let dead = cluster.lines.remove(0);
        kill(dead.daemon.id());
        drop(dead);
        cluster.network.spread(&[2, 3]);
        talk(&mut talkers, 50);
        wait_until_owned(&cluster, PLAYERS);
        let _second = replaced(&cluster);
        talk(&mut talkers, 50);
        agent_has_delivered(&cluster, &talkers);
    });
}

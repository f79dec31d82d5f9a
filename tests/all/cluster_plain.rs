//! Plain players of a cluster: they have their addresses and nothing else, and play on where their
//! gateway dies, as others do.

use std::net::UdpSocket;
use std::time::Duration;

use ringgate_os::clock::{self, Clock};

use crate::cluster_rig::{Behind, Cluster, PLAIN_PLACES, among_players, sum};
use crate::cluster_rig::{wait_until_all_stand_by, wait_until_owned};
use crate::upgrade_rig::kill;

/// One that says something new each time, and hears that again.
struct Source {
    socket: UdpSocket,
    said: u32,
    heard: u32,
}

impl Source {
    fn new(place: &str) -> Self {
        let socket = UdpSocket::bind("10.2.0.2:0").expect("a free port");
        socket.connect(place).expect("an address");
        socket.set_nonblocking(true).expect("a socket");
        Self { socket, said: 0, heard: 0 }
    }

    fn play(&mut self) {
        self.said += 1;
        // A router may refuse what it has no way for just now.
        let _ = self.socket.send(format!("plain {}", self.said).as_bytes());
        let mut bytes = [0; 100];
        while let Ok(len) = self.socket.recv(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..len]);
            let number = text.strip_prefix("plain ").and_then(|it| it.parse().ok());
            self.heard = self.heard.max(number.expect("its own words"));
        }
    }
}

/// Has all of them say something until each hears something that it says from now on. Returns how
/// long that took.
fn all_hear(sources: &mut [Source]) -> Duration {
    let before: Vec<_> = sources.iter().map(|it| it.said + 1).collect();
    let clock = Clock::start();
    while sources.iter().zip(&before).any(|(it, before)| it.heard < *before) {
        assert!(clock.now_ns() < 30_000_000_000, "somebody hears nothing any more");
        sources.iter_mut().for_each(Source::play);
        clock::sleep(Duration::from_millis(20));
    }
    Duration::from_nanos(clock.now_ns())
}

fn owned(cluster: &Cluster, at: usize) -> u64 {
    let status = cluster.lines[at].daemon.status();
    status["cluster"]["sessions"]["owned"].as_u64().expect("a number")
}

/// Players of all three gateways, which have a standby each.
fn playing(cluster: &Cluster) -> Vec<Source> {
    cluster.network.spread(&[1, 2, 3]);
    let places = PLAIN_PLACES.iter().cycle().take(12);
    let mut sources: Vec<_> = places.map(|place| Source::new(place)).collect();
    // Twice: with the second datagram after an answer they have a slot.
    for _ in 0..2 {
        all_hear(&mut sources);
    }
    wait_until_owned(cluster, sources.len() as u64);
    wait_until_all_stand_by(cluster, sources.len() as u64);
    sources
}

/// All play on at those gateways that are left, which have gone on with so many sessions.
fn all_play_on(cluster: &Cluster, sources: &mut [Source], had: u64) {
    let gap = all_hear(sources);
    eprintln!("gap of a death with {had} plain sessions: {} ms", gap.as_millis());
    all_hear(sources);
    let players = sources.len() as u64;
    wait_until_owned(cluster, players);
    assert!(had > 0 && sum(cluster, "taken_over") - sum(cluster, "moved") >= had);
    // Nobody has begun anew.
    let sessions = cluster.lines.iter().map(|it| it.daemon.status()["totals"].clone());
    let sessions: u64 = sessions.filter_map(|it| it["sessions"].as_u64()).sum();
    assert_eq!(sessions, players);
    cluster.is_conserved();
}

#[test]
fn plain_players_of_a_gateway_that_dies_play_on() {
    let name = "cluster_plain::plain_players_of_a_gateway_that_dies_play_on";
    among_players(name, Behind::Agent, |mut cluster| {
        let mut sources = playing(&cluster);
        let most = (0..3).max_by_key(|at| owned(&cluster, *at)).expect("there are three");
        let had = owned(&cluster, most);
        let dead = cluster.lines.remove(most);
        kill(dead.daemon.id());
        drop(dead);
        let others: Vec<_> = (1..=3).filter(|it| *it != most + 1).collect();
        cluster.network.spread(&others);
        all_play_on(&cluster, &mut sources, had);
    });
}

/// The gateway that is left has no record of those whose standby dies with their gateway: their
/// agent says what they have.
#[test]
fn plain_players_whose_standby_dies_with_their_gateway_play_on() {
    let name = "cluster_plain::plain_players_whose_standby_dies_with_their_gateway_play_on";
    among_players(name, Behind::Agent, |mut cluster| {
        let mut sources = playing(&cluster);
        let had = owned(&cluster, 1) + owned(&cluster, 2);
        for dead in cluster.lines.split_off(1) {
            kill(dead.daemon.id());
        }
        cluster.network.spread(&[1]);
        all_play_on(&cluster, &mut sources, had);
    });
}

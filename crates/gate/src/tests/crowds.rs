//! Thousands of players behind one address whose ports all change at once, as when a carrier's NAT
//! restarts.

use super::clients::{Scribe, forged};
use super::rig::{Fleet, Rig, listener, udp_backend};
use crate::ids::ListenerId;
use crate::setup::{Limits, Setup};
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;

const CARRIER: [u8; 4] = [203, 0, 113, 7];

/// A player who is in, whose datagrams arrive at a worker.
struct Member {
    scribe: Scribe,
    home: Endpoint,
    worker: usize,
    sequence: u64,
}

impl Member {
    fn next(&mut self) -> Vec<u8> {
        self.sequence += 1;
        self.scribe.payload(self.sequence, b"still here")
    }
}

struct Crowd {
    fleet: Fleet,
    members: Vec<Member>,
}

impl Crowd {
    /// So many players, who have come one after the other, so that each has come to another number;
    /// or all to the same.
    fn new(workers: u16, players: u16, is_uniform: bool) -> Self {
        let mut front = listener("eu", &[0]);
        front.sessions_max = 5000;
        front.limits = Limits {
            port_switches_per_block: Limits::NETCODE.port_switches_per_block,
            ..Limits::NONE
        };
        let games = vec![udp_backend("box", "127.0.0.1:7000", 5000)];
        let mut fleet = Fleet::new(Setup::new(vec![front], games, 1), workers);
        fleet.look_away();
        let mut members: Vec<_> = (0..players)
            .map(|n| {
                let worker = usize::from(n % workers);
                let rig = &mut fleet.rigs[worker];
                let scribe = Scribe::new(&rig.token(u64::from(n)));
                rig.forget_tokens();
                let home = Endpoint::v4(CARRIER, 1000 + n);
                scribe.connect(rig, home);
                rig.sent.clear();
                let sequence = if is_uniform { 600 } else { 10 + u64::from(n) * 7919 % 20_000 };
                Member { scribe, home, worker, sequence }
            })
            .collect();
        for member in &mut members {
            let (worker, home, packet) = (member.worker, member.home, member.next());
            fleet.rigs[worker].push(home, &packet);
        }
        let mut crowd = Self { fleet, members };
        crowd.turn();
        assert_eq!(crowd.sessions(), u64::from(players));
        crowd
    }

    /// Lets every worker turn until nothing is on its way.
    fn turn(&mut self) {
        self.fleet.rigs.iter_mut().for_each(Rig::turn);
        self.fleet.deliver_mail();
        self.fleet.rigs.iter_mut().for_each(|rig| rig.sent.clear());
    }

    fn sessions(&self) -> u64 {
        self.fleet.rigs.iter().map(|rig| rig.sessions() as u64).sum()
    }

    fn followed(&self) -> u64 {
        self.fleet.rigs.iter().map(|rig| rig.counters().port_switches).sum()
    }

    fn drops(&self, why: DropReason) -> u64 {
        self.fleet.rigs.iter().map(|rig| rig.drops(why)).sum()
    }

    /// Where the sessions are.
    fn homes(&self) -> std::collections::HashSet<Endpoint> {
        let gates = self.fleet.rigs.iter().map(|rig| rig.host.gate());
        gates.flat_map(|gate| gate.sessions().map(|session| session.address)).collect()
    }

    /// Everybody has another port, which the kernel hashes to whichever worker.
    fn change_ports(&mut self) {
        let workers = self.fleet.rigs.len();
        for (n, member) in self.members.iter_mut().enumerate() {
            member.home = member.home.with_port(20_000 + n as u16);
            member.worker = n / 2 % workers;
        }
    }

    /// A tenth of a second: whoever has not been followed sends once, among what `noise` sends.
    fn tick(&mut self, mut noise: impl FnMut(&mut Fleet)) {
        let there = self.homes();
        for member in self.members.iter_mut().filter(|member| !there.contains(&member.home)) {
            let packet = member.next();
            self.fleet.rigs[member.worker].push(member.home, &packet);
        }
        noise(&mut self.fleet);
        self.turn();
        self.fleet.rigs.iter_mut().for_each(|rig| rig.jump(100));
    }
}

#[test]
fn two_thousand_players_behind_one_address_are_followed_within_three_seconds_by_one_worker() {
    let mut crowd = Crowd::new(1, 2000, false);
    crowd.change_ports();
    (0..30).for_each(|_| crowd.tick(|_| ()));
    assert_eq!((crowd.followed(), crowd.sessions()), (2000, 2000));
    let homes = crowd.homes();
    assert!(crowd.members.iter().all(|member| homes.contains(&member.home)));
    assert_eq!(crowd.drops(DropReason::PortSwitchForged), 0, "the first sixteen were enough");
}

#[test]
fn two_workers_follow_them_among_junk_and_stragglers() {
    let mut crowd = Crowd::new(2, 2000, false);
    // Recorded before: late packets from the old ports, and from ports that nobody ever had.
    let late: Vec<_> = crowd.members[..300]
        .iter()
        .map(|member| (member.home, member.scribe.payload(member.sequence - 5, b"late")))
        .collect();
    // Numbered as the next ones of many, from one port that sends much and from two hundred that
    // send little.
    let junk: Vec<_> = crowd.members[..100]
        .iter()
        .map(|member| forged(member.scribe.payload(member.sequence + 2, b"junk")))
        .collect();
    crowd.change_ports();
    for tick in 0..30_u16 {
        crowd.tick(|fleet| {
            for (n, packet) in (0..).zip(&junk) {
                let loud = Endpoint::v4(CARRIER, 9);
                let quiet = Endpoint::v4(CARRIER, 40_000 + n + 100 * (tick % 2));
                fleet.rigs[usize::from(n % 2)].push(loud, packet);
                fleet.rigs[usize::from(n % 2)].push(quiet, packet);
            }
            for (n, (home, packet)) in late.iter().enumerate() {
                fleet.rigs[n % 2].push(*home, packet);
                fleet.rigs[n % 2].push(home.with_port(50_000 + n as u16), packet);
            }
        });
    }
    assert_eq!((crowd.followed(), crowd.sessions()), (2000, 2000));
    let homes = crowd.homes();
    assert!(crowd.members.iter().all(|member| homes.contains(&member.home)));
}

/// Where nothing in clear tells players apart, they are tried one after the other.
#[test]
fn players_who_have_all_come_to_the_same_number_are_told_apart_by_trials() {
    let mut crowd = Crowd::new(1, 200, true);
    crowd.change_ports();
    (0..30).for_each(|_| crowd.tick(|_| ()));
    assert_eq!(crowd.followed(), 200);
}

#[test]
fn junk_at_a_crowd_that_plays_on_is_tried_against_nobody() {
    let mut crowd = Crowd::new(2, 300, true);
    let junk = forged(crowd.members[0].scribe.payload(650, b"junk"));
    for _ in 0..5 {
        for member in &mut crowd.members {
            let packet = member.next();
            crowd.fleet.rigs[member.worker].push(member.home, &packet);
        }
        for n in 0..2000 {
            crowd.fleet.rigs[n % 2].push(Endpoint::v4(CARRIER, 10_000 + n as u16 % 4), &junk);
        }
        crowd.turn();
        crowd.fleet.rigs.iter_mut().for_each(|rig| rig.jump(100));
    }
    assert_eq!(crowd.drops(DropReason::PortSwitchForged), 0, "no cipher was asked");
    // Bounded, and a player elsewhere does not notice.
    let forwarded: u64 = crowd.fleet.rigs.iter().map(|rig| rig.counters().forwarded_out).sum();
    assert!((4..80).contains(&forwarded), "{forwarded}: a few for each port");
    let rig = &mut crowd.fleet.rigs[0];
    let other = Scribe::new(&rig.token(9999));
    rig.forget_tokens();
    let home = Endpoint::v4([198, 51, 100, 1], 5);
    other.connect(rig, home);
    rig.deliver(home, &other.payload(5, b"x"));
    rig.deliver(home.with_port(6), &other.payload(6, b"x"));
    assert_eq!(rig.counters().port_switches, 1, "by its first packet");
}

#[test]
fn more_switches_than_a_block_may_make_wait_for_the_next_second() {
    let mut crowd = Crowd::new(1, 30, false);
    let mut setup = crowd.fleet.rigs[0].host.gate().setup().clone();
    setup.listeners[ListenerId(0)].limits.port_switches_per_block = 5;
    crowd.fleet.rigs[0].mail(crate::Mail::Setup(std::sync::Arc::new(setup)));
    crowd.change_ports();
    (0..4).for_each(|_| crowd.tick(|_| ()));
    assert_eq!(crowd.followed(), 10, "twice the rate at once");
    assert!(crowd.drops(DropReason::PortSwitchRateLimited) > 0);
    (0..10).for_each(|_| crowd.tick(|_| ()));
    assert_eq!(crowd.followed(), 10 + 5);
}

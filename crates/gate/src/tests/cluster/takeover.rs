//! A gateway dies, and its sessions go on at the other one.

use super::super::clients::{Scribe, forged};
use super::super::denied::{denied, deny};
use super::super::games::{Game, Heard, Offer};
use super::super::rig::{Rig, bundle_backend, home, netcode_rules, plain_setup};
use super::agent::{Agent, arbitrates, standing};
use super::{OTHER, Pair};
use crate::counters::Ended;
use crate::handover::Sink;
use crate::handover::behind::Behind;
use crate::ids::{BackendId, BindId, ListenerId, MemberId};
use crate::mail::{Mail, Offered};
use crate::setup::{Backend, Setup};
use crate::shared::claims::Claims;
use crate::shared::fleet_players::FleetPlayers;
use crate::shared::standbys::tests::record;
use crate::shared::standbys::{Owned, Standbys, TakeoverRefusal};
use crate::shared::whereabouts::PARTS;
use crate::store::table::Address;
use ringgate_batch::LocalIp;
use ringgate_cluster::{
    Answer, Asked, Incarnation, PacketNumber, Question, Record, Reply, SessionId, Tenure, Term,
    Wake,
};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::{Header, PacketKind, Receiver};
use ringgate_core::proto::netcode::server::SessionSequence;
use ringgate_core::proto::replay::Window;
use ringgate_link::bundle::{
    Answer as LinkAnswer, CloseReason, Frames, Move, SessionId as LinkSession, ToArbiter, ToGame,
};
use std::sync::Arc;

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;

/// Two gateways of a worker each, an agent that both have, and one player of the first.
pub(super) struct Scene {
    pub(super) pair: Pair,
    pub(super) agent: Agent,
    pub(super) scribe: Scribe,
    pub(super) id: SessionId,
    /// Keeps the processes of both, where a test is about what they remember.
    pub(super) stays: Option<[Arc<Claims>; 2]>,
}

pub(super) const fn incarnation(at: usize) -> Incarnation {
    Incarnation(10 + at as u16)
}

pub(super) fn tenure(term: u16, at: usize) -> Tenure {
    Tenure { term: Term::new(term).expect("it is one"), incarnation: incarnation(at) }
}

pub(super) fn setup() -> Setup {
    let mut setup = plain_setup();
    setup.backends[BackendId(0)].slots = 3;
    setup
}

/// The same with another game process, to which players may be moved.
pub(super) fn zones() -> Setup {
    let mut setup = setup();
    setup.backends.push(bundle_backend("zone", 3));
    netcode_rules(&mut setup).moves = [0, 1].map(BackendId).to_vec();
    setup
}

fn to_zone(session: LinkSession) -> Move<'static> {
    let (backend, data) = ("zone", &b""[..]);
    Move { session, backend, ticket: 7, time_ms: 5000, confirms: false, message: None, data }
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::with(setup(), 100)
    }

    pub(super) fn with(setup: Setup, sessions_max: usize) -> Self {
        let (mut pair, mut agent) = (Pair::new(setup, 1), Agent::new(sessions_max));
        for at in [A, B] {
            agent.join((at, 0), pair.rig(at), incarnation(at));
            pair.standbys(at).set_incarnation(incarnation(at));
        }
        let scribe = Scribe::new(&pair.rig(A).token(1));
        let mut scene = Self { pair, agent, scribe, id: SessionId([0; 16]), stays: None };
        scene.scribe.connect(scene.pair.rig(A), home(1));
        scene.at(A, 5, b"five");
        scene.pair.tell();
        scene.id = scene.agent.held().first().copied().unwrap_or(scene.id);
        scene
    }

    /// The player's packet arrives at a gateway, and the agent hears of it.
    pub(super) fn at(&mut self, at: usize, number: u64, payload: &[u8]) {
        self.pair.rig(at).deliver(home(1), &self.scribe.payload(number, payload));
        self.agent.hear((at, 0), self.pair.rig(at));
        self.pair.rig(at).turn();
        self.agent.hear((at, 0), self.pair.rig(at));
    }

    /// The first gateway offers the player to the other game process. Returns that, and the offer.
    pub(super) fn offer(&mut self) -> (Game, Offer) {
        let zone = Game::join(self.pair.rig(A), "zone");
        zone.hear(self.pair.rig(A));
        let Some((_, session)) = self.agent.home(self.id) else { panic!("the first has it") };
        let lane = &self.agent.lanes[&(A, 0)];
        lane.game.say(self.pair.rig(A), |writer| writer.move_session(&to_zone(session)));
        let heard = zone.news(self.pair.rig(A));
        let [Heard::Offered(offer)] = &heard[..] else { panic!("{heard:?}") };
        (zone, offer.clone())
    }

    /// The first gateway gives the other what it may have to go on with.
    pub(super) fn stand(&mut self) {
        self.pair.stand(A);
    }

    /// The first gateway is gone.
    pub(super) fn kill(&mut self) {
        self.agent.lose(A);
        let now_ns = self.pair.rig(B).now.mono_ns;
        self.pair.standbys(B).set_gone(OTHER[B], now_ns);
        self.pair.whereabouts(B).forget(OTHER[B]);
    }

    /// The backend of a gateway is another one from now on.
    fn change_backend(&mut self, at: usize, change: impl FnOnce(&mut Backend)) {
        let setup = self.pair.rig(at).host.gate().setup().clone();
        let mut setup = Setup { revision: setup.revision + 1, ..setup };
        change(&mut setup.backends[BackendId(0)]);
        self.pair.rig(at).mail(Mail::Setup(Arc::new(setup)));
    }

    /// A third process takes the session of the first. Returns which that is.
    fn claim_for_another(&mut self) -> Incarnation {
        let (asked, tenure) = (Asked::Claim { over: tenure(1, A) }, tenure(7, 5));
        let question = Question { session: self.id, tenure, wake: Wake(0), asked };
        self.agent.arbiter.answer(&question);
        tenure.incarnation
    }

    pub(super) fn refused(&self) -> Vec<&'static str> {
        let counts = self.pair.standbys(B).counts();
        let named = TakeoverRefusal::ALL.into_iter();
        named.filter(|it| counts.refused[*it as usize] > 0).map(TakeoverRefusal::name).collect()
    }

    /// The tenures of packets that the player was sent, and what they are.
    pub(super) fn sent(&mut self, at: usize) -> Vec<(Tenure, PacketKind)> {
        let sent = self.pair.rig(at).take_for(home(1));
        let read = sent.iter().map(|it| Header::decode(it, Receiver::Client).expect("a packet"));
        let numbered = read.filter_map(|it| Some((PacketNumber::new(it.sequence)?, it.kind)));
        numbered.map(|(number, kind)| (number.tenure(), kind)).collect()
    }
}

impl Pair {
    pub(super) fn standbys(&self, at: usize) -> Arc<Standbys> {
        let claims = &self.fleets[at].rigs[0].host.gate().common.claims;
        Arc::clone(claims.standbys().expect("a cluster"))
    }

    /// One gives the other its records, and sessions that are to be the other's.
    pub(super) fn stand(&mut self, from: usize) {
        let mut offers = Vec::new();
        let (own, other) = (self.standbys(from), self.standbys(1 - from));
        let hands_over = own.hands_over();
        let now_ns = self.rig(from).now.mono_ns;
        own.take_changes(usize::MAX, |session, now| match now {
            Some(Owned { address, record, offered_to }) => {
                assert!(other.stand_by(OTHER[1 - from], address, record.clone()).is_ok());
                if offered_to == Some(OTHER[from]) || hands_over {
                    let is_coming = offered_to.is_some();
                    offers
                        .extend(other.hear_offer(OTHER[1 - from], session).filter(|_| !is_coming));
                }
            }
            None => other.stand_down(OTHER[1 - from], session, now_ns),
        });
        for (address, _) in offers {
            let (bind, local) = (BindId(0), LocalIp::UNSPECIFIED);
            let rig = self.rig(1 - from);
            rig.mail(Mail::Offered(Offered { address, bind, local }));
            rig.turn();
        }
    }
}

pub(super) fn here() -> Address {
    Address { listener: ListenerId(0), endpoint: home(1) }
}

#[test]
fn a_session_of_a_cluster_is_announced_as_one_and_numbered_by_its_tenure() {
    let mut scene = Scene::new();
    assert_eq!(scene.agent.handed, [b"five".to_vec()]);
    assert_eq!(scene.agent.lanes[&(A, 0)].plain_payloads, 0);
    let sent = scene.sent(A);
    assert!(sent.iter().all(|it| it.0 == tenure(1, A)) && !sent.is_empty(), "{sent:?}");
    let own = scene.pair.standbys(A);
    assert_eq!((own.counts().owned, own.counts().standing), (1, 0));
    let kept = own.with_own(scene.id, |address, record| (address, record.clone()));
    let (address, record) = kept.expect("it is kept");
    assert_eq!((address, record.holder), (here(), tenure(1, A)));
    assert_eq!((record.backend.as_str(), record.since_s), ("arena", 1_700_000_000));
    let known = |it: &Record| it.proof.of_netcode().map(|it| (it.client_id, it.newest));
    assert_eq!(known(&record), Some((1, 1)));
    // It moves to another port.
    scene.pair.rig(A).deliver(home(1).with_port(9), &scene.scribe.payload(6, b"six"));
    let kept = own.with_own(scene.id, |address, record| (address.endpoint.port(), record.clone()));
    let (port, moved) = kept.expect("it is kept");
    assert!(port == 9 && moved.is_later_than(&record));
    assert_eq!(known(&moved), Some((1, 5)));
    scene.pair.rig(A).deliver(home(1).with_port(9), &scene.scribe.disconnect(7));
    assert_eq!((own.counts().owned, own.with_own(scene.id, |_, _| ())), (0, None));
    scene.agent.hear((A, 0), scene.pair.rig(A));
    assert_eq!(scene.agent.closed, [scene.id]);
}

#[test]
fn without_an_incarnation_or_an_arbiter_a_session_is_as_ever() {
    let mut pair = Pair::new(setup(), 1);
    let mut agent = Agent::new(100);
    agent.join((A, 0), pair.rig(A), incarnation(A));
    let scribe = Scribe::new(&pair.rig(A).token(1));
    scribe.connect(pair.rig(A), home(1));
    pair.rig(A).deliver(home(1), &scribe.payload(5, b"five"));
    agent.hear((A, 0), pair.rig(A));
    assert_eq!((agent.lanes[&(A, 0)].plain_payloads, pair.standbys(A).counts().owned), (1, 0));
    // The next is one of the cluster, but the agent that comes is of an earlier release.
    pair.standbys(A).set_incarnation(incarnation(A));
    pair.rig(A).deliver(home(1), &scribe.disconnect(6));
    for (_, lane) in agent.lose(A) {
        lane.game.crash(pair.rig(A));
    }
    let game = Game::join(pair.rig(A), "arena");
    let scribe = Scribe::new(&pair.rig(A).token(2));
    scribe.connect(pair.rig(A), home(2));
    pair.rig(A).deliver(home(2), &scribe.payload(5, b"five"));
    assert_eq!(game.payloads(pair.rig(A)).len(), 1);
    assert_eq!(pair.standbys(A).counts().owned, 0);
    // One that arbitrates comes in its place.
    game.crash(pair.rig(A));
    agent.join((A, 0), pair.rig(A), incarnation(A));
    pair.rig(A).deliver(home(2), &scribe.payload(6, b"six"));
    agent.hear((A, 0), pair.rig(A));
    assert_eq!((agent.lanes[&(A, 0)].plain_payloads, pair.standbys(A).counts().owned), (0, 1));
}

/// The player's NAT gives it another port after its gateway has died.
#[test]
fn a_player_whose_port_has_changed_is_found_by_the_standby() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    let moved = home(1).with_port(9);
    let packets: Vec<_> = (0..11).map(|it| scene.scribe.payload(it, b"moved")).collect();
    scene.kill();
    // What is recorded, forged or another address's moves nothing.
    for (from, packet, why) in [
        (moved, packets[1].clone(), DropReason::PortSwitchStale),
        (moved, forged(packets[7].clone()), DropReason::PortSwitchForged),
        (home(2), packets[7].clone(), DropReason::UnknownSource),
        (moved, packets[7].clone(), DropReason::TakeoverAwaited),
        (moved, packets[8].clone(), DropReason::TakeoverAwaited),
    ] {
        scene.pair.rig(B).provokes(why, |rig| rig.deliver(from, &packet));
    }
    scene.agent.hear((B, 0), scene.pair.rig(B));
    assert_eq!(scene.agent.claims, [(scene.id, tenure(2, B), tenure(1, A))]);
    scene.pair.rig(B).turn();
    assert!(!scene.pair.rig(B).take_for(moved).is_empty(), "it hears of this gateway");
    scene.pair.rig(B).deliver(moved, &packets[9]);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    assert_eq!(scene.agent.handed, [b"five".to_vec(), b"moved".to_vec()]);
    let counts = scene.pair.standbys(B).counts();
    assert_eq!((counts.owned, counts.standing, counts.taken_over), (1, 0, 1));
    assert_eq!(scene.sent(B), [], "nothing goes to where it was");
    // Its port changes again, as that of any player.
    scene.pair.rig(B).deliver(home(1), &packets[10]);
    assert_eq!(scene.pair.rig(B).sessions(), 1);
    assert_eq!(scene.pair.rig(B).counters().port_switches, 1);
}

/// Junk with the address of a player whose owner is gone costs so many tries and no more, and the
/// player, who still has its port, is not kept from going on by it.
#[test]
fn junk_from_other_ports_does_not_keep_a_player_from_its_standby() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    let junk = forged(scene.scribe.payload(99, b"junk"));
    for port in 10..2000 {
        scene.pair.rig(B).deliver(home(1).with_port(port), &junk);
    }
    let drops = |scene: &mut Scene, why| scene.pair.rig(B).counters().drops.of(why);
    let tried = drops(&mut scene, DropReason::PortSwitchForged);
    assert!((1..=1000).contains(&tried), "{tried}");
    assert!(drops(&mut scene, DropReason::PortSwitchRateLimited) > 0);
    scene.at(B, 100, b"hundred");
    scene.pair.rig(B).turn();
    assert_eq!(scene.pair.rig(B).sessions(), 1);
}

/// Whose player may be in one place of the fleet only: neither the take-over nor the next process
/// is a login.
#[test]
fn a_session_that_goes_on_is_told_the_fleet_as_the_one_that_began() {
    let own = |mut setup: Setup| {
        setup.fleet_players = Some(Arc::new(FleetPlayers::new(4)));
        netcode_rules(&mut setup).unique_in = Some("arena".into());
        setup
    };
    let mut scene = Scene::with(own(setup()), 100);
    scene.stays = Some(scene.pair.stay());
    let others = own(Setup::clone(scene.pair.rig(B).host.gate().setup()));
    scene.pair.rig(B).mail(Mail::Setup(Arc::new(others)));
    scene.stand();
    scene.kill();
    scene.at(B, 6, b"six");
    let news = |scene: &mut Scene, at: usize| {
        let rig = scene.pair.rig(at);
        rig.turn();
        let news = rig.host.gate().setup().fleet_players.as_ref().map(|it| it.take_news(9));
        let [it] = &news.expect("they are the fleet's")[..] else { panic!("one player") };
        assert_eq!(it.session, Some(rig.session_at(home(1))));
        (it.since_s, it.term, it.is_told_again)
    };
    assert_eq!(news(&mut scene, A), (1_700_000_000, 1, false));
    assert_eq!(news(&mut scene, B), (1_700_000_000, 2, true));
    scene.stays = None;
    scene.pair.fleets[B].hand_over();
    assert_eq!(news(&mut scene, B), (1_700_000_000, 2, true));
}

#[test]
fn a_session_whose_gateway_is_gone_goes_on_at_its_standby() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    scene.pair.rig(B).provokes(DropReason::TakeoverAwaited, |rig| {
        rig.deliver(home(1), &scene.scribe.payload(6, b"six"));
    });
    assert_eq!(scene.pair.rig(B).sessions(), 0);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    assert_eq!(scene.agent.claims, [(scene.id, tenure(2, B), tenure(1, A))]);
    scene.pair.rig(B).turn();
    assert_eq!(scene.sent(B), [(tenure(2, B), PacketKind::KeepAlive)]);
    assert_eq!(scene.pair.rig(B).sessions(), 1);
    scene.at(B, 7, b"seven");
    assert_eq!(scene.agent.handed, [b"five".to_vec(), b"seven".to_vec()]);
    let counts = scene.pair.standbys(B).counts();
    assert_eq!((counts.owned, counts.standing, counts.taken_over), (1, 0, 1));
    // What the game had is not taken again, nor what the owner knew of, or may have known of.
    for number in [5, 1, 6] {
        scene.pair.rig(B).provokes(DropReason::ReplayDuplicate, |rig| {
            rig.deliver(home(1), &scene.scribe.payload(number, b"again"));
        });
    }
    // It ends there as any does.
    scene.pair.rig(B).deliver(home(1), &scene.scribe.disconnect(8));
    scene.agent.hear((B, 0), scene.pair.rig(B));
    assert_eq!(scene.agent.closed, [scene.id]);
    assert_eq!(scene.pair.rig(B).counters().sessions_closed[Ended::ByPlayer as usize], 1);
    // The token is spent there, too.
    scene.pair.rig(B).provokes(DropReason::TokenSpent, |rig| {
        rig.deliver(home(1), &scene.scribe.request());
    });
}

#[test]
fn a_session_goes_on_while_its_backends_registration_is_away() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    scene.change_backend(B, |it| it.retired = true);
    scene.pair.rig(B).turn();
    scene.at(B, 6, b"six");
    assert_eq!((scene.pair.rig(B).sessions(), scene.refused()), (1, vec![]));
    scene.at(B, 7, b"seven");
    assert_eq!(scene.agent.handed.last(), Some(&b"seven".to_vec()));
}

/// Somebody else has got the player's address, by the look of it, and logs in while the arbiter is
/// asked.
#[test]
fn who_logs_in_from_the_address_of_a_session_that_goes_on_comes_in_when_that_is_over() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    let six = scene.scribe.payload(6, b"six");
    scene.pair.rig(B).provokes(DropReason::TakeoverAwaited, |rig| rig.deliver(home(1), &six));
    let other = Scribe::new(&scene.pair.rig(B).token(2));
    scene.pair.rig(B).deliver(home(1), &other.request());
    let challenge = other.challenge(scene.pair.rig(B), home(1));
    scene.agent.hear((B, 0), scene.pair.rig(B));
    scene.pair.rig(B).turn();
    assert_eq!(scene.pair.rig(B).sessions(), 1);
    let response = other.packet(PacketKind::Response, 0, &challenge);
    scene.pair.rig(B).deliver(home(1), &response);
    assert_eq!(scene.pair.rig(B).sessions(), 1);
    assert_eq!(scene.pair.rig(B).host.gate().client_at(home(1)), Some(1));
    scene.at(B, 7, b"seven");
    assert_eq!(scene.agent.handed, [b"five".to_vec(), b"seven".to_vec()]);
    scene.pair.rig(B).deliver(home(1), &scene.scribe.disconnect(8));
    other.connect(scene.pair.rig(B), home(1));
    assert_eq!(scene.pair.rig(B).host.gate().client_at(home(1)), Some(2));
}

/// A member that went wrong gives sessions of its own at the addresses of others' players.
#[test]
fn what_another_member_gives_at_a_players_address_does_not_keep_it_from_its_standby() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    let (hostile, mut junk) = (MemberId(7), record(77, 9));
    junk.holder.incarnation = Incarnation(70);
    let standbys = scene.pair.standbys(B);
    assert!(standbys.stand_by(hostile, here(), junk).is_ok());
    scene.kill();
    standbys.set_gone(hostile, 0);
    for number in [6, 7] {
        scene.at(B, number, b"here");
    }
    assert_eq!(scene.agent.claims, [(scene.id, tenure(2, B), tenure(1, A))]);
    assert_eq!(scene.pair.rig(B).sessions(), 1);
}

#[test]
fn who_has_logged_in_at_another_member_since_is_forwarded_there() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    let later = Scribe::new(&scene.pair.rig(A).token(2));
    let forwarded = |scene: &mut Scene| {
        scene.pair.rig(B).deliver(home(1), &later.payload(9, b"mine"));
        scene.pair.rig(B).counters().members_out
    };
    assert_eq!(forwarded(&mut scene), 0);
    assert!(scene.pair.whereabouts(B).learn(&here(), OTHER[B], 0).is_ok());
    assert_eq!(forwarded(&mut scene), 1);
    scene.pair.pass(100);
    scene.at(B, 6, b"six");
    assert_eq!(scene.agent.claims.len(), 1, "its former session may still go on");
}

#[test]
fn a_recorded_packet_does_nothing_while_the_owner_lives_and_takes_nothing_that_was_had() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    let recorded = scene.scribe.payload(6, b"six");
    scene.at(A, 6, b"six");
    scene.pair.rig(B).deliver(home(1), &recorded);
    assert_eq!(scene.pair.rig(B).counters().members_out, 1, "its owner has it");
    assert!(scene.agent.claims.is_empty());
    scene.kill();
    let rig = scene.pair.rig(B);
    rig.provokes(DropReason::ReplayTooOld, |rig| {
        rig.deliver(home(1), &scene.scribe.payload(1, b"response's"));
    });
    rig.pass(100);
    rig.provokes(DropReason::PacketForged, |rig| {
        rig.deliver(home(1), &forged(scene.scribe.payload(7, b"seven")));
    });
    rig.pass(100);
    // It is newer than the record. The gateway goes on, and gives the game nothing twice.
    scene.at(B, 6, b"six");
    assert_eq!(scene.pair.rig(B).sessions(), 1);
    scene.pair.rig(B).provokes(DropReason::ReplayDuplicate, |rig| {
        rig.deliver(home(1), &recorded);
    });
    assert_eq!(scene.agent.handed, [b"five".to_vec(), b"six".to_vec()]);
}

/// No agent knows of packets without a payload.
#[test]
fn a_recorded_packet_that_has_a_session_go_on_is_not_taken_again() {
    for port in [home(1).port(), 9] {
        let mut scene = Scene::new();
        let _stay = scene.pair.stay();
        scene.stand();
        let recorded = [6, 7].map(|number| scene.scribe.keep_alive(number));
        for it in &recorded {
            scene.pair.rig(A).deliver(home(1), it);
        }
        scene.kill();
        let from = home(1).with_port(port);
        scene.pair.rig(B).provokes(DropReason::TakeoverAwaited, |rig| {
            rig.deliver(from, &recorded[1]);
        });
        scene.agent.hear((B, 0), scene.pair.rig(B));
        scene.pair.rig(B).turn();
        assert_eq!(scene.pair.rig(B).sessions(), 1);
        for it in &recorded {
            scene.pair.rig(B).provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(from, it));
        }
    }
}

#[test]
fn no_more_than_two_packets_are_tried_at_once() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    let rig = scene.pair.rig(B);
    for number in [6, 7] {
        rig.provokes(DropReason::PacketForged, |rig| {
            rig.deliver(home(1), &forged(scene.scribe.payload(number, b"x")));
        });
    }
    rig.provokes(DropReason::TakeoverLimited, |rig| {
        rig.deliver(home(1), &scene.scribe.payload(8, b"x"));
    });
    rig.pass(50);
    rig.provokes(DropReason::TakeoverAwaited, |rig| {
        rig.deliver(home(1), &scene.scribe.payload(9, b"x"));
    });
    rig.provokes(DropReason::TakeoverAwaited, |rig| {
        rig.deliver(home(1), &scene.scribe.payload(10, b"x"));
    });
}

#[test]
fn a_session_whose_owner_is_connected_and_silent_goes_on_too() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    let now_ns = scene.pair.rig(B).now.mono_ns;
    scene.pair.whereabouts(B).set_silent(OTHER[B], true);
    scene.pair.standbys(B).set_gone(OTHER[B], now_ns);
    scene.at(B, 6, b"six");
    assert_eq!((scene.pair.rig(B).sessions(), scene.pair.rig(B).counters().members_out), (1, 0));
}

#[test]
fn what_has_ended_stays_ended_and_what_another_has_is_not_taken() {
    for is_ended in [true, false] {
        let mut scene = Scene::new();
        let _stay = scene.pair.stay();
        scene.stand();
        scene.kill();
        if is_ended {
            scene.agent.arbiter.end(scene.id);
        } else {
            let another = scene.claim_for_another();
            scene.pair.standbys(B).set_able(vec![(another, MemberId(5))]);
        }
        scene.at(B, 6, b"six");
        assert_eq!(scene.refused(), [if is_ended { "ended" } else { "fenced" }]);
        let (rig, standbys) = (scene.pair.standbys(B), scene.pair.rig(B));
        assert_eq!((standbys.sessions(), rig.counts().standing), (0, 0));
        let found = scene.pair.whereabouts(B).find(&here());
        assert_eq!(found, (!is_ended).then_some(MemberId(5)), "who has it");
        if is_ended {
            scene.pair.rig(B).provokes(DropReason::UnknownSource, |rig| {
                rig.deliver(home(1), &scene.scribe.payload(7, b"x"));
            });
        }
        let claims = &scene.pair.rig(B).host.gate().common.claims;
        assert_eq!(claims.players(BackendId(0)), 0, "what it would have held is free");
    }
}

/// What is in the way at the standby, and what that is called.
type Obstacle = (&'static str, fn(&mut Scene));

#[test]
fn what_stands_in_the_way_of_a_session_is_named() {
    let obstacles: [Obstacle; 6] = [
        ("no_room", |scene| {
            for number in 2..=4 {
                let scribe = Scribe::new(&scene.pair.rig(B).token(number));
                scribe.connect(scene.pair.rig(B), home(number as u16));
            }
        }),
        ("client_connected", |scene| {
            let scribe = Scribe::new(&scene.pair.rig(B).token(1));
            scribe.connect(scene.pair.rig(B), home(2));
        }),
        ("denied", |scene| {
            deny(scene.pair.rig(B), &denied(&[], &[1]));
        }),
        ("backend_unknown", |scene| {
            scene.change_backend(B, |it| it.name = "another".to_owned());
        }),
        ("link_down", |scene| {
            for (_, lane) in scene.agent.lose(B) {
                lane.game.crash(scene.pair.rig(B));
            }
        }),
        ("terms_used_up", |scene| {
            let standbys = scene.pair.standbys(B);
            let record = scene.pair.standbys(A).with_own(scene.id, |_, record| record.clone());
            let mut record = record.expect("it is kept");
            record.holder.term = Term::LAST;
            assert!(standbys.stand_by(OTHER[B], here(), record).is_ok());
            standbys.set_gone(OTHER[B], 0);
        }),
    ];
    for (name, stand_in_the_way) in obstacles {
        let mut scene = Scene::new();
        let _stay = scene.pair.stay();
        scene.stand();
        scene.kill();
        stand_in_the_way(&mut scene);
        let players = scene.pair.rig(B).sessions();
        scene.pair.rig(B).turn();
        scene.pair.rig(B).provokes(DropReason::TakeoverRefused, |rig| {
            rig.deliver(home(1), &scene.scribe.payload(6, b"six"));
        });
        assert_eq!(scene.refused(), [name]);
        assert_eq!(scene.pair.rig(B).sessions(), players, "{name}");
        let claims = &scene.pair.rig(B).host.gate().common.claims;
        assert_eq!(claims.players(BackendId(0)) as usize, players, "{name}");
    }
}

#[test]
fn an_arbiter_is_asked_until_it_answers_and_given_up_by_name() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    scene.agent.is_mute = true;
    scene.at(B, 6, b"six");
    for _ in 0..290 {
        scene.pair.rig(B).pass(10);
        scene.agent.hear((B, 0), scene.pair.rig(B));
    }
    assert_eq!((scene.agent.claims.len(), scene.refused()), (15, vec![]));
    scene.pair.rig(B).pass(150);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    assert_eq!((scene.agent.claims.len(), scene.refused()), (15, vec!["not_answered"]));
    // It is this process's at the arbiter, and has to be claimed over that.
    scene.agent.is_mute = false;
    scene.at(B, 7, b"seven");
    scene.pair.rig(B).turn();
    scene.at(B, 8, b"eight");
    assert_eq!(scene.pair.rig(B).sessions(), 1);
    let over: Vec<_> = scene.agent.claims[15..].iter().map(|it| (it.1, it.2)).collect();
    assert_eq!(over, [(tenure(3, B), tenure(1, A)), (tenure(4, B), tenure(2, B))]);
    assert_eq!(scene.agent.handed.last(), Some(&b"eight".to_vec()));
}

#[test]
fn a_grant_that_comes_late_counts_and_is_given_back_where_the_session_cannot_be_here() {
    for has_come_anew in [false, true] {
        let mut scene = Scene::new();
        let _stay = scene.pair.stay();
        scene.stand();
        scene.kill();
        scene.agent.is_mute = true;
        scene.at(B, 6, b"six");
        scene.pair.rig(B).pass(3100);
        assert_eq!(scene.refused(), ["not_answered"]);
        if has_come_anew {
            let scribe = Scribe::new(&scene.pair.rig(B).token(1));
            scribe.connect(scene.pair.rig(B), home(2));
        }
        let reply = Reply::Granted { handed: Window::new() };
        let mut answer = Answer { session: scene.id, tenure: tenure(2, B), wake: Wake(0), reply };
        scene.agent.is_mute = false;
        scene.agent.lanes[&(B, 0)].game.push_bytes(scene.pair.rig(B), &standing(&answer));
        scene.pair.rig(B).turn();
        scene.agent.hear((B, 0), scene.pair.rig(B));
        assert_eq!(scene.pair.rig(B).sessions(), 1);
        if has_come_anew {
            assert_eq!(scene.agent.closed, [scene.id]);
        } else {
            scene.at(B, 7, b"seven");
            assert_eq!(scene.agent.handed.last(), Some(&b"seven".to_vec()));
        }
        // What the arbiter does not know is not opened by what is granted to nobody.
        answer.session = SessionId([9; 16]);
        scene.agent.lanes[&(B, 0)].game.push_bytes(scene.pair.rig(B), &standing(&answer));
        scene.pair.rig(B).turn();
        scene.agent.hear((B, 0), scene.pair.rig(B));
        assert_eq!(scene.agent.arbiter.standing(answer.session), None);
    }
}

#[test]
fn an_answer_to_the_process_before_is_an_answer() {
    for is_asked_again in [false, true] {
        let mut scene = Scene::new();
        scene.stand();
        scene.kill();
        scene.agent.is_mute = true;
        scene.at(B, 6, b"six");
        scene.pair.rig(B).hand_over();
        scene.agent.is_mute = false;
        if is_asked_again {
            scene.pair.rig(B).turn();
            scene.agent.hear((B, 0), scene.pair.rig(B));
        } else {
            let reply = Reply::Granted { handed: Window::new() };
            let answer = Answer { session: scene.id, tenure: tenure(2, B), wake: Wake(0), reply };
            scene.agent.lanes[&(B, 0)].game.push_bytes(scene.pair.rig(B), &standing(&answer));
        }
        scene.pair.rig(B).turn();
        scene.agent.hear((B, 0), scene.pair.rig(B));
        assert_eq!((scene.pair.rig(B).sessions(), scene.agent.closed.len()), (1, 0));
        let claims = &scene.pair.rig(B).host.gate().common.claims;
        assert_eq!(claims.players(BackendId(0)), 1);
        scene.at(B, 7, b"seven");
        assert_eq!(scene.agent.handed.last(), Some(&b"seven".to_vec()));
    }
}

#[test]
fn a_successor_stands_by_for_sessions_whose_owner_is_gone() {
    let mut scene = Scene::new();
    scene.stand();
    scene.kill();
    let gone = |scene: &Scene| {
        let standbys = scene.pair.standbys(B);
        (standbys.counts().standing, standbys.awaits(&here()))
    };
    let before = gone(&scene);
    for _ in 0..2 {
        scene.pair.rig(B).hand_over();
        assert_eq!((gone(&scene), before), ((1, true), (1, true)));
    }
    // Also where the agent is asked already.
    scene.agent.is_mute = true;
    scene.at(B, 6, b"six");
    scene.pair.rig(B).hand_over();
    scene.at(B, 7, b"seven");
    scene.agent.is_mute = false;
    scene.pair.rig(B).pass(210);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    scene.pair.rig(B).turn();
    scene.at(B, 8, b"eight");
    assert_eq!(scene.agent.handed.last(), Some(&b"eight".to_vec()));
    assert_eq!((gone(&scene), scene.pair.rig(B).sessions()), ((0, false), 1));
    let claims = &scene.pair.rig(B).host.gate().common.claims;
    assert_eq!(claims.players(BackendId(0)), 1);
    // An owner that is there after all has it.
    let mut scene = Scene::new();
    scene.stand();
    scene.kill();
    scene.pair.rig(B).hand_over();
    scene.pair.standbys(B).set_able(vec![(incarnation(A), OTHER[B])]);
    assert_eq!(gone(&scene), (0, false));
}

/// The thread that hears of members goes on while workers write what they have, part by part.
#[test]
fn owners_that_are_back_in_the_midst_of_a_hand_over_change_nothing_else_of_it() {
    let mut scene = Scene::new();
    scene.stand();
    scene.kill();
    let (standbys, id) = (scene.pair.standbys(B), scene.id);
    let now_ns = scene.pair.rig(B).now.mono_ns;
    let gate = scene.pair.rig(B).host.gate();
    let write = |is_back: bool| {
        let (mut behind, mut bytes, mut is_whole) = (Behind::default(), Vec::new(), false);
        while !is_whole {
            let mut memory = [0; 2048];
            let mut sink = Sink::new(&mut memory);
            is_whole = behind.write(gate, &mut sink).is_ok();
            let len = sink.len();
            bytes.extend_from_slice(&memory[..len]);
            if is_back {
                standbys.stand_down(OTHER[B], id, now_ns);
            }
        }
        bytes
    };
    let orphaned = write(false);
    assert_eq!(write(false), orphaned, "the order is the same each time");
    let orphan_first = write(true);
    assert_eq!(orphan_first, orphaned, "it was written before its owner was back");
    assert_eq!(standbys.counts().standing, 0);
    let alone = write(false);
    assert!(alone.len() < orphaned.len() && orphaned.ends_with(&alone));
}

#[test]
fn a_session_that_another_process_has_which_is_gone_too_is_stood_by_for() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    scene.claim_for_another();
    scene.at(B, 6, b"six");
    assert_eq!((scene.refused(), scene.pair.rig(B).sessions()), (vec!["fenced"], 0));
    scene.at(B, 7, b"seven");
    scene.at(B, 8, b"eight");
    assert_eq!(scene.pair.rig(B).sessions(), 1);
    assert_eq!(scene.agent.handed.last(), Some(&b"eight".to_vec()));
}

#[test]
fn a_claim_ends_with_its_link() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    scene.agent.is_mute = true;
    scene.at(B, 6, b"six");
    let lanes = scene.agent.lose(B);
    for (_, lane) in lanes {
        lane.game.crash(scene.pair.rig(B));
    }
    scene.pair.rig(B).pass(210);
    assert_eq!(scene.refused(), ["link_down"]);
    scene.agent.is_mute = false;
    scene.agent.join((B, 0), scene.pair.rig(B), incarnation(B));
    scene.at(B, 7, b"seven");
    scene.pair.rig(B).turn();
    scene.at(B, 8, b"eight");
    assert_eq!(scene.agent.handed.last(), Some(&b"eight".to_vec()));
}

#[test]
fn an_owner_that_is_fenced_forgets_the_session_and_says_nothing() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    // Nobody hears the first one, and it lives.
    let now_ns = scene.pair.rig(B).now.mono_ns;
    scene.pair.standbys(B).set_gone(OTHER[B], now_ns);
    scene.pair.whereabouts(B).forget(OTHER[B]);
    scene.sent(A);
    scene.at(B, 6, b"six");
    assert_eq!((scene.pair.rig(A).sessions(), scene.pair.rig(B).sessions()), (1, 1));
    // What it brings meanwhile goes no further.
    scene.pair.rig(A).deliver(home(1), &scene.scribe.payload(7, b"seven"));
    scene.agent.hear((A, 0), scene.pair.rig(A));
    assert_eq!(scene.agent.refused.len(), 1);
    scene.agent.speak((A, 0), scene.pair.rig(A));
    scene.pair.rig(A).turn();
    assert_eq!((scene.pair.rig(A).sessions(), scene.sent(A)), (0, vec![]));
    scene.agent.hear((A, 0), scene.pair.rig(A));
    assert!(scene.agent.closed.is_empty());
    assert_eq!(scene.pair.rig(A).counters().sessions_closed[Ended::Fenced as usize], 1);
    let counts = scene.pair.standbys(A).counts();
    assert_eq!((counts.owned, counts.fenced), (0, 1));
    // Its word of an end is not taken either, and late words change nothing.
    for reply in [Reply::Fenced { holder: tenure(2, B) }, Reply::Ended] {
        let answer = Answer { session: scene.id, tenure: tenure(1, A), wake: Wake(0), reply };
        scene.agent.lanes[&(A, 0)].game.push_bytes(scene.pair.rig(A), &standing(&answer));
        scene.pair.rig(A).turn();
    }
    scene.at(B, 8, b"eight");
    assert_eq!(scene.agent.handed, [b"five".to_vec(), b"eight".to_vec()]);
    // What is said to another tenure, of an earlier holder, fences nobody.
    let reply = Reply::Fenced { holder: tenure(1, A) };
    let answer = Answer { session: scene.id, tenure: tenure(1, B), wake: Wake(0), reply };
    scene.agent.lanes[&(B, 0)].game.push_bytes(scene.pair.rig(B), &standing(&answer));
    scene.pair.rig(B).turn();
    assert_eq!(scene.pair.rig(B).sessions(), 1);
    // The first goes on with it again, by a further term.
    scene.pair.stand(B);
    scene.agent.lose(B);
    scene.pair.standbys(A).set_gone(OTHER[A], now_ns);
    scene.pair.whereabouts(A).forget(OTHER[A]);
    scene.at(A, 9, b"nine");
    scene.at(A, 10, b"ten");
    assert_eq!(scene.sent(A)[0], (tenure(3, A), PacketKind::KeepAlive));
    assert_eq!(scene.agent.handed.last(), Some(&b"ten".to_vec()));
}

#[test]
fn a_session_ends_when_its_arbiter_says_so() {
    let mut scene = Scene::new();
    scene.sent(A);
    scene.agent.arbiter.end(scene.id);
    scene.at(A, 6, b"six");
    assert_eq!(scene.pair.rig(A).counters().sessions_closed[Ended::ByArbiter as usize], 1);
    assert!(scene.sent(A).contains(&(tenure(1, A), PacketKind::Disconnect)));
    assert_eq!(scene.pair.standbys(A).counts().owned, 0);
}

#[test]
fn a_session_for_which_the_arbiter_has_no_room_goes_on_alone() {
    let mut scene = Scene::with(setup(), 0);
    scene.pair.rig(A).turn();
    scene.at(A, 6, b"six");
    assert_eq!(scene.agent.handed.last(), Some(&b"six".to_vec()));
    assert_eq!(scene.agent.lanes[&(A, 0)].plain_payloads, 1);
    let counts = scene.pair.standbys(A).counts();
    assert_eq!((counts.owned, counts.alone), (0, 1));
    scene.pair.rig(A).hand_over();
    scene.at(A, 7, b"seven");
    assert_eq!(scene.agent.lanes[&(A, 0)].plain_payloads, 2);
    // At the next link it is tried no more.
    for (_, lane) in scene.agent.lose(A) {
        lane.game.crash(scene.pair.rig(A));
    }
    scene.agent.join((A, 0), scene.pair.rig(A), incarnation(A));
    scene.at(A, 8, b"eight");
    assert_eq!(scene.agent.lanes[&(A, 0)].plain_payloads, 1);
}

#[test]
fn a_successor_is_the_same_process_to_the_cluster() {
    let mut scene = Scene::new();
    scene.sent(A);
    scene.pair.rig(A).hand_over();
    let standbys = scene.pair.standbys(A);
    assert_eq!(standbys.incarnation(), Some(incarnation(A)));
    scene.pair.rig(A).turn();
    assert_eq!(standbys.counts().owned, 1);
    scene.at(A, 6, b"six");
    assert_eq!(scene.agent.handed.last(), Some(&b"six".to_vec()));
    scene.pair.rig(A).pass(500);
    let sent = scene.sent(A);
    assert!(sent.iter().all(|it| it.0 == tenure(1, A)) && !sent.is_empty(), "{sent:?}");
    // The next session of anybody has a term of its own, also where a hand-over fails.
    scene.pair.rig(A).host.gate_mut().resume_after_failed_hand_over();
    let scribe = Scribe::new(&scene.pair.rig(A).token(2));
    scribe.connect(scene.pair.rig(A), home(2));
    let sent = scene.pair.rig(A).take_for(home(2));
    let numbers = sent.iter().filter_map(|it| {
        PacketNumber::new(Header::decode(it, Receiver::Client).expect("a packet").sequence)
    });
    let terms: Vec<_> = numbers.map(|it| it.tenure().term.get()).collect();
    assert_eq!(terms, [17]);
    scene.stand();
    scene.kill();
    let _stay = scene.pair.stay();
    scene.at(B, 7, b"seven");
    scene.at(B, 8, b"eight");
    assert_eq!(scene.agent.handed.last(), Some(&b"eight".to_vec()));
}

#[test]
fn a_session_ends_before_its_numbers_do() {
    let mut scene = Scene::new();
    let rig: &mut Rig = scene.pair.rig(A);
    let session = rig.session_at(home(1));
    let last = PacketNumber::first(tenure(1, A)).get() + PacketNumber::COUNTS - (1 << 30);
    for (number, sessions) in [(last - 100, 1), (last + 1, 0)] {
        let netcode = &mut rig.host.gate_mut().fronts.netcode;
        if let Some(index) = netcode.sessions.named(session) {
            netcode.sessions.at_mut(index).next_sequence = SessionSequence::at(number);
        }
        rig.pass(300);
        assert_eq!(rig.sessions(), sessions);
    }
    assert_eq!(rig.counters().sessions_closed[Ended::NumbersUsedUp as usize], 1);
    // One for which there was no term has none from the start.
    let scribe = Scribe::new(&rig.token(2));
    scribe.connect(rig, home(2));
    let session = rig.session_at(home(2));
    rig.host.gate_mut().exhaust_sequence(session);
    rig.pass(300);
    assert_eq!(rig.counters().sessions_closed[Ended::NumbersUsedUp as usize], 2);
}

#[test]
fn a_packet_that_another_member_brings_has_its_session_go_on_too() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    let packet = scene.scribe.payload(6, b"six");
    let address = here();
    let datagram = crate::mail::ForwardedDatagram::of_member(
        (crate::ids::MemberId(7), crate::ids::WorkerId(0)),
        address,
        (crate::ids::BindId(0), ringgate_batch::LocalIp::UNSPECIFIED),
        false,
        &packet,
    );
    let mail = Mail::Datagram(datagram.expect("it fits"));
    scene.pair.rig(B).mail(mail);
    scene.pair.rig(B).turn();
    scene.agent.hear((B, 0), scene.pair.rig(B));
    scene.pair.rig(B).turn();
    scene.at(B, 7, b"seven");
    assert_eq!(scene.agent.handed.last(), Some(&b"seven".to_vec()));
}

#[test]
fn a_game_that_closes_a_session_closes_it_where_it_is() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    scene.at(B, 6, b"six");
    scene.agent.close(scene.id, (B, 0), scene.pair.rig(B));
    scene.agent.hear((B, 0), scene.pair.rig(B));
    assert_eq!((scene.agent.closed.len(), scene.pair.rig(B).sessions()), (1, 0));
}

#[test]
fn nobody_is_taken_over_at_a_listener_that_has_gone_meanwhile() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    scene.pair.rig(B).deliver(home(1), &scene.scribe.payload(6, b"six"));
    let mut setup = scene.pair.rig(B).host.gate().setup().clone();
    setup.revision += 1;
    setup.listeners[ListenerId(0)].phase = crate::setup::Phase::Closed;
    scene.pair.rig(B).mail(crate::mail::Mail::Setup(Arc::new(setup)));
    scene.agent.hear((B, 0), scene.pair.rig(B));
    scene.pair.rig(B).turn();
    assert_eq!((scene.refused(), scene.pair.rig(B).sessions()), (vec!["no_room"], 0));
    // Nobody else would end it.
    scene.agent.hear((B, 0), scene.pair.rig(B));
    assert_eq!(scene.agent.closed, [scene.id]);
}

/// What a process behind an arbiter is told: which sessions of the cluster, openings, numbers.
fn told(rig: &mut Rig, game: &Game) -> (Vec<SessionId>, usize, Vec<u64>) {
    let (mut names, mut openings, mut numbers) = (Vec::new(), 0, Vec::new());
    let now_s = rig.now.unix_s;
    for bundle in rig.take_on(game.link) {
        for frame in Frames::new(&bundle).map(|frame| frame.expect("whole records")) {
            match ToArbiter::decode(frame) {
                Some(ToArbiter::Clustered(it)) => {
                    assert!(
                        it.token_until_s >= now_s + 60,
                        "an arbiter opens it whose clock is ahead"
                    );
                    names.push(SessionId(it.id));
                }
                Some(ToArbiter::Numbered { number, .. }) => numbers.push(number),
                Some(ToArbiter::Claim(_) | ToArbiter::Given { .. }) => panic!("it stays"),
                Some(
                    ToArbiter::Over { .. }
                    | ToArbiter::Plays(_)
                    | ToArbiter::There(_)
                    | ToArbiter::Woke(_),
                ) => {}
                None => match ToGame::decode(frame) {
                    Ok(ToGame::Opened(_)) => {
                        assert_eq!(names.len(), openings + 1, "right behind its name");
                        openings += 1;
                    }
                    Ok(ToGame::Payload { .. }) => panic!("it has a number"),
                    _ => {}
                },
            }
        }
    }
    (names, openings, numbers)
}

/// Two game processes of a cluster's gateway, each with its arbiter, and a player of the first.
fn two_zones() -> (Rig, [Game; 2], Scribe) {
    let mut rig = Rig::new(Setup { cluster: Some("fra".into()), ..zones() });
    rig.host.gate().claims().standbys().expect("a cluster").set_incarnation(incarnation(A));
    let games = ["arena", "zone"].map(|name| {
        let game = Game::join(&mut rig, name);
        game.say(&mut rig, arbitrates);
        game
    });
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    rig.deliver(home(1), &scribe.payload(5, b"five"));
    (rig, games, scribe)
}

/// The first process moves the player to the second.
fn move_on(rig: &mut Rig, games: &[Game; 2], asked: &Move<'_>) {
    games[0].say(rig, |writer| writer.move_session(asked));
    let heard = games[1].news(rig);
    let [Heard::Offered(offer)] = &heard[..] else { panic!("{heard:?}") };
    let (session, number) = (offer.session, offer.number);
    games[1].say(rig, |writer| writer.answer(session, number, LinkAnswer::Yes));
}

/// As soon as it has come, or when its token has expired.
#[test]
fn a_player_who_is_moved_is_another_session_to_the_cluster() {
    for is_late in [false, true] {
        let (mut rig, games, scribe) = two_zones();
        let own = |rig: &Rig| {
            let standbys = rig.host.gate().claims().standbys().expect("a cluster");
            (0..PARTS).flat_map(|part| standbys.own_part(part)).collect::<Vec<_>>()
        };
        let session = rig.session_at(home(1));
        let (before, openings, numbers) = told(&mut rig, &games[0]);
        assert_eq!((before.len(), openings, numbers), (1, 1, vec![5]));
        assert_eq!(own(&rig), before);

        rig.step_wall_clock(if is_late { 3600 } else { 0 });
        move_on(&mut rig, &games, &to_zone(session));
        rig.deliver(home(1), &scribe.payload(6, b"six"));
        let (after, openings, numbers) = told(&mut rig, &games[1]);
        assert_eq!((after.len(), openings, numbers), (1, 1, vec![6]));
        assert!(after != before && own(&rig) == after);
        // It is that one's alone from then on, also when its link comes anew.
        let [arena, zone] = games;
        zone.crash(&mut rig);
        let zone = Game::join(&mut rig, "zone");
        zone.say(&mut rig, arbitrates);
        rig.deliver(home(1), &scribe.payload(7, b"seven"));
        assert_eq!(told(&mut rig, &zone), (after, 1, vec![7]));
        assert_eq!(told(&mut rig, &arena).0, []);
    }
}

#[test]
fn a_player_who_is_moved_where_the_arbiter_has_no_room_comes_with_its_ticket() {
    let (mut rig, games, scribe) = two_zones();
    let session = rig.session_at(home(1));
    move_on(&mut rig, &games, &to_zone(session));
    let (names, ..) = told(&mut rig, &games[1]);
    let answer =
        Answer { session: names[0], tenure: tenure(1, A), wake: Wake(0), reply: Reply::Full };
    games[1].push_bytes(&mut rig, &standing(&answer));
    rig.turn();
    assert_eq!(tickets(&mut rig, &games[1]), [Some(7)]);
    // Another process knows nothing of that.
    let [_arena, zone] = games;
    zone.crash(&mut rig);
    let zone = Game::join(&mut rig, "zone");
    zone.say(&mut rig, arbitrates);
    rig.deliver(home(1), &scribe.payload(6, b"six"));
    assert_eq!(tickets(&mut rig, &zone), [None]);
}

/// With which tickets a process is told of players.
fn tickets(rig: &mut Rig, game: &Game) -> Vec<Option<u64>> {
    let bundles = rig.take_on(game.link);
    let records = bundles.iter().flat_map(|bundle| Frames::new(bundle).flatten());
    let ticket = |frame| match ToGame::decode(frame) {
        Ok(ToGame::Opened(opened)) => Some(opened.ticket),
        _ => None,
    };
    records.filter_map(ticket).collect()
}

/// It has gone over and waits for its next process, while the worker sleeps.
#[test]
fn a_player_who_waits_for_its_next_process_is_not_lost_in_a_sleep() {
    let (mut rig, games, scribe) = two_zones();
    let session = rig.session_at(home(1));
    move_on(&mut rig, &games, &Move { confirms: true, ..to_zone(session) });
    let [arena, zone] = games;
    zone.crash(&mut rig);
    arena.say(&mut rig, |writer| writer.confirm(session));
    told(&mut rig, &arena);
    rig.jump(300);
    rig.turn();
    let woke = rig.now.mono_ns;
    arena.say(&mut rig, |writer| writer.sure(woke));
    let zone = Game::join(&mut rig, "zone");
    zone.say(&mut rig, arbitrates);
    rig.deliver(home(1), &scribe.payload(6, b"six"));
    assert_eq!(told(&mut rig, &zone).2, [6]);
    rig.sent.clear();
    zone.say(&mut rig, |writer| writer.payload(session, b"down"));
    assert_eq!((rig.drops(DropReason::SessionUnknown), rig.take_for(home(1)).len()), (0, 1));
    zone.say(&mut rig, |writer| writer.close(session, CloseReason::Kicked));
    assert_eq!(rig.sessions(), 0);
}

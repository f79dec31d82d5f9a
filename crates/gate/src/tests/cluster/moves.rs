//! A session moves after its player, and a gateway gives away what it has before it leaves.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::super::denied::{denied, deny};
use super::super::games::{Heard, Offer};
use super::super::rig::home;
use super::agent::standing;
use super::takeover::{A, B, Scene, incarnation, setup, tenure, zones};
use super::{OTHER, Pair, SECOND};
use crate::counters::Ended;
use crate::ids::{BindId, ListenerId, WorkerId};
use crate::mail::{Mail, Offered};
use crate::setup::Setup;
use crate::shared::buckets::Buckets;
use crate::store::table::Address;
use ringgate_batch::LocalIp;
use ringgate_batch::spread::{SPREAD_WORDS, Spread, SpreadKey};
use ringgate_cluster::{Answer, Reply, Wake};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::{Answer as LinkAnswer, MoveRefusal};

impl Pair {
    /// Each knows that the other can go on with its sessions.
    pub(super) fn be_able(&self) {
        for at in [A, B] {
            self.standbys(at).set_able(vec![(incarnation(1 - at), OTHER[at])]);
        }
    }
}

impl Scene {
    /// A session that is two seconds old, at gateways that can give it to each other.
    fn settled() -> Self {
        Self::settled_with(setup())
    }

    fn settled_with(setup: Setup) -> Self {
        let mut scene = Self::with(setup, 100);
        scene.stays = Some(scene.pair.stay());
        scene.pair.be_able();
        scene.pair.pass(2000);
        scene.sent(A);
        scene
    }

    /// The player's packet arrives at a gateway, and all goes on that follows from it.
    fn pass_by(&mut self, at: usize, number: u64) {
        let packet = self.scribe.payload(number, &number.to_le_bytes());
        self.pair.arrive(at, home(1), &packet);
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..3 {
            for at in [A, B] {
                self.pair.stand(at);
                self.agent.hear((at, 0), self.pair.rig(at));
                self.pair.rig(at).turn();
            }
            for at in [A, B] {
                self.agent.speak((at, 0), self.pair.rig(at));
                self.pair.rig(at).turn();
            }
            self.pair.carry();
        }
        self.pair.pass(30);
    }

    /// The first gateway gives away all that it has.
    fn leave(&mut self) {
        self.pair.standbys(A).set_leaving(true, true);
        self.pair.standbys(A).renew();
    }

    /// What the game has got since the first packet, by their numbers.
    fn handed(&self) -> Vec<u64> {
        let number = |it: &Vec<u8>| Some(u64::from_le_bytes(it.as_slice().try_into().ok()?));
        self.agent.handed.iter().filter_map(number).collect()
    }
}

#[test]
fn a_session_moves_where_all_its_packets_come_in_and_nothing_is_lost_or_twice() {
    let mut scene = Scene::settled();
    for number in 10..30 {
        scene.pass_by(B, number);
        scene.pair.pass(50);
    }
    assert_eq!(scene.pair.sessions(), [0, 1]);
    assert_eq!(scene.handed(), (10..30).collect::<Vec<_>>());
    assert_eq!(scene.agent.claims, [(scene.id, tenure(2, B), tenure(1, A))]);
    let forwarded = scene.pair.forwarded(A) + scene.pair.forwarded(B);
    assert!((8..12).contains(&forwarded), "{forwarded}");
    let counts = [A, B].map(|at| scene.pair.standbys(at).counts());
    assert_eq!((counts[A].owned, counts[A].fenced, counts[A].standing), (0, 1, 1));
    assert_eq!((counts[B].owned, counts[B].taken_over, counts[B].moved), (1, 1, 1));
    assert!(scene.sent(A).iter().all(|it| it.1 != PacketKind::Disconnect));
    // What still comes in at the first goes to the second at once.
    scene.pass_by(A, 40);
    assert_eq!(scene.handed().last(), Some(&40));
    assert_eq!(scene.pair.rig(A).counters().drops.of(DropReason::UnknownSource), 0);
}

#[test]
fn a_session_stays_while_some_packets_come_in_at_its_owner() {
    let mut scene = Scene::settled();
    for number in 10..60 {
        scene.pass_by(if number % 7 == 0 { A } else { B }, number);
        scene.pair.pass(50);
    }
    assert_eq!((scene.pair.sessions(), scene.handed().len()), ([1, 0], 50));
}

#[test]
fn a_recorded_packet_moves_nothing() {
    let mut scene = Scene::settled();
    for number in 10..60 {
        scene.pass_by(A, number);
        scene.pass_by(B, number);
        scene.pair.pass(50);
    }
    assert_eq!((scene.pair.sessions(), scene.handed().len()), ([1, 0], 50));
}

#[test]
fn a_gateway_that_leaves_gives_its_sessions_away_and_sends_on_what_still_comes() {
    let mut scene = Scene::settled();
    scene.pass_by(A, 10);
    scene.leave();
    scene.settle();
    assert_eq!(scene.pair.sessions(), [0, 1]);
    assert_eq!(scene.pair.rig(A).counters().sessions_closed[Ended::Fenced as usize], 1);
    for number in 11..40 {
        scene.pass_by(A, number);
        scene.pair.pass(100);
    }
    assert_eq!(scene.handed(), (10..40).collect::<Vec<_>>());
    // It would be given back, were the first not leaving.
    assert_eq!((scene.pair.sessions(), scene.pair.standbys(A).counts().moved), ([0, 1], 0));
    scene.pair.standbys(A).set_leaving(false, false);
    for number in 40..60 {
        scene.pass_by(A, number);
        scene.pair.pass(100);
    }
    assert_eq!(scene.pair.sessions(), [1, 0]);
    assert_eq!(scene.handed(), (10..60).collect::<Vec<_>>());
}

#[test]
fn what_comes_together_with_the_word_that_a_session_is_given_away_arrives() {
    let mut scene = Scene::settled();
    let (_, session) = scene.agent.home(scene.id).expect("a gateway has it");
    scene.leave();
    scene.pair.stand(A);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    let packet = scene.scribe.payload(10, &10_u64.to_le_bytes());
    let rig = scene.pair.rig(A);
    scene.agent.speak((A, 0), rig);
    scene.agent.lanes[&(A, 0)].game.push(rig, |writer| writer.payload(session, b"before"));
    rig.push(home(1), &packet);
    rig.turn();
    assert_eq!(rig.counters().drops.total(), 0);
    scene.agent.hear((A, 0), scene.pair.rig(A));
    assert_eq!(scene.handed(), [10]);
    assert!(scene.sent(A).contains(&(tenure(1, A), PacketKind::Payload)));
    scene.settle();
    scene.agent.hear((A, 0), scene.pair.rig(A));
    assert_eq!((scene.pair.sessions(), scene.agent.given), ([0, 1], 1));
}

#[test]
fn a_session_that_is_ended_while_its_gateway_gives_it_away_is_over() {
    let mut scene = Scene::settled();
    scene.leave();
    scene.pair.stand(A);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    scene.agent.speak((A, 0), scene.pair.rig(A));
    scene.pair.rig(A).turn();
    assert_eq!(scene.pair.sessions(), [1, 0]);
    scene.kick(A, Ended::ByOperator);
    scene.settle();
    assert_eq!((scene.pair.sessions(), scene.agent.held()), ([0, 0], vec![]));
}

#[test]
fn a_session_that_is_being_given_away_goes_to_no_other_game_process() {
    let mut scene = Scene::settled_with(zones());
    let (zone, Offer { session, number, .. }) = scene.offer();
    scene.leave();
    scene.pair.stand(A);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    scene.agent.speak((A, 0), scene.pair.rig(A));
    zone.say(scene.pair.rig(A), |writer| writer.answer(session, number, LinkAnswer::Yes));
    let over = Heard::OfferOver(session, number, MoveRefusal::Busy);
    assert_eq!(zone.news(scene.pair.rig(A)), [over]);
    scene.settle();
    assert_eq!(scene.pair.sessions(), [0, 1]);
}

/// Its player has come by the other one for a while.
#[test]
fn a_session_that_is_offered_to_another_gateway_goes_to_no_other_game_process() {
    let mut scene = Scene::settled_with(zones());
    let (zone, Offer { session, number, .. }) = scene.offer();
    for number in 10..18 {
        let packet = scene.scribe.payload(number, b"by the other");
        scene.pair.arrive(B, home(1), &packet);
        scene.pair.carry();
        scene.pair.rig(A).turn();
        scene.pair.pass(50);
    }
    scene.pair.stand(A);
    let packet = scene.scribe.payload(18, b"it is offered");
    scene.pair.arrive(B, home(1), &packet);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    assert_eq!(scene.agent.claims.len(), 1);
    zone.say(scene.pair.rig(A), |writer| writer.answer(session, number, LinkAnswer::Yes));
    let over = Heard::OfferOver(session, number, MoveRefusal::Busy);
    assert_eq!(zone.news(scene.pair.rig(A)), [over]);
    scene.settle();
    assert_eq!(scene.pair.sessions(), [0, 1]);
}

#[test]
fn an_offer_that_is_not_taken_changes_nothing_and_is_made_again() {
    let mut scene = Scene::settled();
    scene.pair.standbys(A).set_leaving(true, true);
    scene.pair.standbys(B).set_leaving(true, false);
    for number in 10..20 {
        scene.pair.standbys(A).renew();
        scene.pass_by(A, number);
    }
    assert_eq!((scene.pair.sessions(), scene.agent.claims.len()), ([1, 0], 0));
    scene.pair.standbys(B).set_leaving(false, false);
    scene.pair.standbys(A).renew();
    scene.settle();
    scene.pass_by(A, 20);
    assert_eq!((scene.pair.sessions(), scene.handed()), ([0, 1], (10..=20).collect()));
}

/// What is granted and cannot be here would end.
#[test]
fn a_session_whose_player_is_denied_at_the_other_gateway_stays() {
    for (rules, clients) in [(&[("10.0.1.7/32", true)][..], &[][..]), (&[], &[1])] {
        let mut scene = Scene::settled();
        scene.pass_by(A, 10);
        deny(scene.pair.rig(B), &denied(rules, clients));
        scene.leave();
        scene.settle();
        scene.pass_by(A, 11);
        assert_eq!((scene.pair.sessions(), scene.refused()), ([1, 0], vec!["denied"]));
        deny(scene.pair.rig(B), &denied(&[], &[]));
        scene.pair.standbys(A).renew();
        scene.settle();
        scene.pass_by(A, 12);
        assert_eq!((scene.pair.sessions(), scene.handed()), ([0, 1], vec![10, 11, 12]));
    }
}

/// The agent passes on what the game says once it hears that nothing more comes from the first.
#[test]
fn a_session_that_is_given_away_in_the_midst_of_an_upgrade_is_left_by_the_successor() {
    for is_heard_before in [true, false] {
        let mut scene = Scene::settled();
        scene.leave();
        scene.pair.stand(A);
        scene.agent.hear((B, 0), scene.pair.rig(B));
        if is_heard_before {
            scene.agent.speak((A, 0), scene.pair.rig(A));
            scene.pair.rig(A).turn();
            assert_eq!((scene.pair.sessions(), scene.agent.given), ([1, 0], 0));
        }
        scene.pair.standbys(A).set_leaving(false, false);
        scene.pair.rig(A).hand_over();
        scene.settle();
        scene.agent.hear((A, 0), scene.pair.rig(A));
        assert_eq!((scene.pair.sessions(), scene.agent.given), ([0, 1], 1), "{is_heard_before}");
    }
}

#[test]
fn a_packet_that_comes_before_its_session_waits_and_is_accounted_for_meanwhile() {
    for comes in [true, false] {
        let mut scene = Scene::settled();
        scene.pass_by(A, 10);
        scene.leave();
        scene.agent.is_mute = true;
        scene.settle();
        // The one that gives it hears first that it has it no more.
        let reply = Reply::Fenced { holder: tenure(2, B) };
        let fenced = Answer { session: scene.id, tenure: tenure(1, A), wake: Wake(0), reply };
        scene.agent.lanes[&(A, 0)].game.push_bytes(scene.pair.rig(A), &standing(&fenced));
        scene.pair.rig(A).turn();
        scene.pair.pass(30);
        scene.pass_by(A, 11);
        assert_eq!((scene.pair.sessions(), scene.handed()), ([0, 0], vec![10]));
        scene.agent.is_mute = !comes;
        scene.pair.pass(if comes { 300 } else { 4000 });
        scene.settle();
        let rig = scene.pair.rig(B);
        assert_eq!(rig.drops(DropReason::TakeoverRefused), u64::from(!comes));
        let expected = if comes { (vec![10, 11], [0, 1]) } else { (vec![10], [0, 0]) };
        assert_eq!((scene.handed(), scene.pair.sessions()), expected);
    }
}

#[test]
fn two_gateways_that_cannot_reach_each_other_pass_a_player_to_and_fro() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    let now_ns = scene.pair.rig(B).now.mono_ns;
    for at in [A, B] {
        scene.pair.standbys(at).set_gone(OTHER[at], now_ns);
        scene.pair.whereabouts(at).forget(OTHER[at]);
    }
    let (mut number, mut lost) = (10, 0);
    for at in [B, A, B, A, B] {
        for _ in 0..5 {
            scene.at(at, number, &number.to_le_bytes());
            for it in [A, B] {
                scene.agent.speak((it, 0), scene.pair.rig(it));
                scene.pair.rig(it).turn();
            }
            scene.pair.fleets.iter_mut().flat_map(|it| &mut it.rigs).for_each(|it| it.jump(30));
            number += 1;
        }
        lost += 1;
        assert_eq!(scene.handed().len() + lost, number as usize - 10, "the first asks");
        let own = scene.pair.sessions();
        assert_eq!(own, if at == A { [1, 0] } else { [0, 1] });
    }
    // They meet again: what each has kept of its own is the other's.
    assert_eq!(scene.pair.standbys(A).counts().standing, 1);
    scene.pair.be_able();
    assert_eq!([A, B].map(|at| scene.pair.standbys(at).counts().standing), [0, 0]);
}

#[test]
fn what_is_given_away_goes_to_the_worker_that_gets_its_players_datagrams() {
    let mut pair = Pair::new(setup(), 2);
    let words: Vec<_> = (0..SPREAD_WORDS).map(|_| AtomicU64::new(0)).collect();
    let buckets = Buckets::new(Spread::new(Box::new(words), SpreadKey::new([7; 6]), 2));
    let buckets = Arc::new(buckets);
    assert_eq!(buckets.spread().give_empty(&[0]), 0);
    buckets.set_listener(ListenerId(0), true);
    for rig in &mut pair.fleets[B].rigs {
        rig.host.gate_mut().share(&buckets);
    }
    for number in 0..20 {
        let address = Address { listener: ListenerId(0), endpoint: home(number) };
        let (bind, local) = (BindId(0), LocalIp::UNSPECIFIED);
        let rig = &mut pair.fleets[B].rigs[SECOND.index()];
        rig.mail(Mail::Offered(Offered { address, bind, local }));
        rig.turn();
        let written = rig.host.take_written();
        assert!(matches!(written[..], [(WorkerId(0), Mail::Offered(_))]));
    }
}

//! A gateway dies, or gives away what it has, and its Unreal sessions go on at the other one.

use std::sync::Arc;

use super::super::super::denied::{denied, deny};
use super::super::super::rig::bundle_backend;
use super::super::super::unreal::rig::{BASE, Dice, Player, rules_mut, unreal_setup};
use super::super::agent::{Agent, Behind, ToldApart};
use super::super::takeover::{incarnation, tenure};
use super::super::{OTHER, Pair};
use super::{A, B};
use crate::counters::Ended;
use crate::ids::ListenerId;
use crate::mail::Mail;
use crate::setup::{Duplicates, Setup};
use crate::shared::claims::Claims;
use crate::shared::standbys::TakeoverRefusal;
use crate::store::table::Address;
use ringgate_batch::IoEvent;
use ringgate_bots::unreal::Tally;
use ringgate_cluster::{self as cluster, Record, SessionId};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::client::{Profile, State};
use ringgate_core::proto::unreal::cookie::{Cookie, Proof, SecretId, Timestamp};
use ringgate_core::proto::unreal::handshake::{Body, Handshake};
use ringgate_core::proto::unreal::prefix::{Framing, Ids};

/// Two gateways, an agent with a server that both have, and one player of the first.
struct Stage {
    pair: Pair,
    agent: Agent,
    player: Player,
    dice: Dice,
    id: SessionId,
    /// Keeps the processes of both, where a test is about what they remember.
    stays: Option<[Arc<Claims>; 2]>,
}

fn setup() -> Setup {
    Setup { backends: vec![bundle_backend("arena", 3)].into(), ..unreal_setup(1) }
}

impl Stage {
    fn new() -> Self {
        Self::of(setup())
    }

    fn of(setup: Setup) -> Self {
        let (mut pair, mut agent) = (Pair::new(setup, 1), Agent::new(100));
        agent.behind = Some(Behind::new());
        agent.told_apart = ToldApart::Nothing;
        for at in [A, B] {
            agent.join((at, 0), pair.rig(at), incarnation(at));
            pair.standbys(at).set_incarnation(incarnation(at));
        }
        let profile = Profile { framing: Framing::default(), client_id: 5, base: BASE };
        let player = Player::begun(&profile, pair.rig(A).now.mono_ns);
        let (id, stays) = (SessionId([0; 16]), Some(pair.stay()));
        let mut stage = Self { pair, agent, player, dice: Dice(9), id, stays };
        stage.settle();
        for _ in 0..2 {
            let owed = stage.owed().expect("a handshake");
            stage.say(A, &owed);
        }
        assert!(stage.player.peer.is_some(), "it is in");
        stage.pair.tell();
        stage.id = stage.agent.held().first().copied().unwrap_or(stage.id);
        stage
    }

    /// The player's datagram arrives at a gateway, and all goes on that follows from it.
    fn say(&mut self, at: usize, bytes: &[u8]) {
        self.pair.rig(at).deliver(self.player.home, bytes);
        self.go_on();
    }

    fn go_on(&mut self) {
        for at in [A, B, A, B, A, B] {
            self.agent.hear((at, 0), self.pair.rig(at));
            self.agent.speak((at, 0), self.pair.rig(at));
            self.pair.rig(at).turn();
            let now_ns = self.pair.rig(at).now.mono_ns;
            for datagram in self.pair.rig(at).take_for(self.player.home) {
                self.player.take_at(now_ns, &datagram);
            }
            self.pair.carry();
        }
    }

    /// Some time passes, in which the gateways hear from their servers.
    fn settle(&mut self) {
        for _ in 0..12 {
            self.pair.pass(50);
            self.go_on();
        }
    }

    /// The server says what it has to say by itself.
    fn server_speaks(&mut self) {
        for _ in 0..5 {
            self.pair.pass(50);
            self.go_on();
        }
        let now_ns = self.pair.rig(A).now.mono_ns;
        for ((at, _), session, bytes) in self.agent.server_speaks(now_ns) {
            let game = &self.agent.lanes[&(at, 0)].game;
            game.push(self.pair.rig(at), |writer| writer.payload(session, &bytes));
        }
        self.go_on();
    }

    /// Whether a packet of the player's that comes to a gateway is answered.
    fn plays(&mut self, at: usize) -> bool {
        let before = self.player.packets;
        let packet = self.player.game(7).expect("few are in flight");
        self.say(at, &packet);
        self.player.packets > before
    }

    /// What the handshake has to say now.
    fn owed(&mut self) -> Option<Vec<u8>> {
        let (now_ns, tail) = (self.pair.rig(A).now.mono_ns, self.dice.tail());
        self.player.owed_at(now_ns, &tail)
    }

    /// The player is somewhere else, and proves it.
    fn come_back(&mut self, at: usize) {
        let restarts = (0..30).find_map(|_| {
            self.plays(at);
            self.pair.pass(100);
            self.owed()
        });
        self.say(at, &restarts.expect("it is asked to restart"));
        let owed = self.owed().expect("a response");
        self.say(at, &owed);
        assert_eq!(self.player.client.state(), State::Connected);
    }

    /// The first has no link to the agent any more.
    fn lose_link(&mut self) {
        for (_, lane) in self.agent.lose(A) {
            let rig = self.pair.rig(A);
            rig.take_on(lane.game.link);
            rig.host.notice(IoEvent::Closed { socket: lane.game.link });
            rig.turn();
        }
    }

    /// The first is gone.
    fn kill(&mut self) {
        self.pair.stand(A);
        self.lose_gateway();
    }

    /// The same, whatever it has not said.
    fn lose_gateway(&mut self) {
        self.agent.lose(A);
        let now_ns = self.pair.rig(B).now.mono_ns;
        self.pair.standbys(B).set_gone(OTHER[B], now_ns);
        self.pair.whereabouts(B).forget(OTHER[B]);
    }

    /// It gives all to the other one.
    fn give_away(&mut self) {
        self.pair.standbys(A).set_leaving(true, true);
        self.pair.standbys(A).renew();
        for _ in 0..4 {
            self.pair.stand(A);
            self.go_on();
        }
    }

    fn tally(&self) -> Tally {
        self.agent.behind.as_ref().expect("a server").server.tally
    }

    /// What the first keeps for the other.
    fn record(&self) -> Option<Record> {
        self.pair.standbys(A).with_own(self.id, |_, record| record.clone())
    }

    /// The server has seen one player, and nothing twice.
    fn is_one(&self) {
        let tally = self.tally();
        assert_eq!((tally.connections, tally.restarts), (1, 0), "{tally:?}");
        assert_eq!((tally.duplicates, tally.late, tally.implausible), (0, 0, 0), "{tally:?}");
    }
}

#[test]
fn a_session_is_its_clusters_once_it_is_open() {
    let mut stage = Stage::new();
    let record = stage.record().expect("it is kept");
    assert_eq!((record.holder, record.backend.as_str()), (tenure(1, A), "arena"));
    assert_eq!((record.token, record.timeout_ms), ([0; 16], 30_000));
    let cluster::Proof::Unreal(proof) = record.proof else { panic!("it is Unreal") };
    assert_eq!(Some(&proof.cookie), stage.player.client.cookie());
    assert!(proof.newest > 0);
    for _ in 0..3 {
        assert!(stage.plays(A));
    }
    // It is the same to the next process, and over with its player.
    stage.stays = None;
    stage.pair.fleets[A].hand_over();
    assert!(stage.plays(A));
    stage.is_one();
    stage.pair.pass(40_000);
    stage.go_on();
    assert_eq!(stage.pair.standbys(A).counts().owned, 0);
    assert_eq!(stage.agent.closed, [stage.id]);
}

#[test]
fn a_session_whose_gateway_is_gone_goes_on_at_its_standby() {
    for (upgraded, duplicates) in
        [(false, Duplicates::Notify), (true, Duplicates::Notify), (false, Duplicates::Opaque)]
    {
        let mut setup = setup();
        rules_mut(&mut setup).duplicates = duplicates;
        let mut stage = Stage::of(setup);
        let mut recorded = Vec::new();
        for _ in 0..5 {
            let packet = stage.player.game(7).expect("few are in flight");
            stage.say(A, &packet);
            recorded.push(packet);
        }
        stage.kill();
        let awaited = stage.player.game(1).expect("few are in flight");
        let home = stage.player.home;
        stage.pair.rig(B).provokes(DropReason::TakeoverAwaited, |rig| rig.deliver(home, &awaited));
        stage.go_on();
        assert_eq!(stage.agent.claims, [(stage.id, tenure(2, B), tenure(1, A))]);
        assert_eq!(stage.pair.rig(B).sessions(), 1);
        if upgraded {
            stage.stays = None;
            stage.pair.fleets[B].hand_over();
            stage.stays = Some(stage.pair.stay());
            stage.pair.tell();
            stage.pair.whereabouts(B).forget(OTHER[B]);
        }
        let handed = stage.agent.numbers.len();
        if duplicates == Duplicates::Notify {
            // Nothing of the player's passes before the server has been heard: it waits for that.
            assert!(!stage.plays(B) && !stage.plays(B), "{upgraded}");
            assert_eq!(stage.agent.numbers.len(), handed);
        }
        stage.server_speaks();
        if duplicates == Duplicates::Notify {
            assert_eq!(stage.agent.numbers.len(), handed + 2);
        }
        assert!(stage.plays(B) && stage.plays(B), "{upgraded} {duplicates:?}");
        stage.is_one();
        if duplicates == Duplicates::Notify {
            for packet in &recorded {
                stage.say(B, packet);
            }
            let rig = stage.pair.rig(B);
            let refused = rig.drops(DropReason::ReplayDuplicate);
            assert_eq!(refused + rig.drops(DropReason::ReplayTooOld), 5);
        }
        stage.is_one();
        // It ends as any does.
        assert_eq!(deny(stage.pair.rig(B), &denied(&[("10.1.0.0/16", true)], &[])), 1);
        stage.go_on();
        assert_eq!(stage.agent.closed, [stage.id]);
    }
}

#[test]
fn few_packets_wait_for_the_server_and_none_beyond_the_session() {
    let mut stage = Stage::new();
    stage.kill();
    stage.plays(B);
    let home = stage.player.home;
    for _ in 0..16 {
        assert!(!stage.plays(B));
    }
    let beyond = stage.player.game(1).expect("few are in flight");
    stage.pair.rig(B).provokes(DropReason::TakeoverAwaited, |rig| rig.deliver(home, &beyond));
    assert_eq!(stage.pair.rig(B).counters().early_kept, 16);
    let dropped = stage.pair.rig(B).drops(DropReason::TakeoverAwaited);
    assert_eq!(deny(stage.pair.rig(B), &denied(&[("10.1.0.0/16", true)], &[])), 1);
    assert_eq!(stage.pair.rig(B).counters().early_taken, 16);
    assert_eq!(stage.pair.rig(B).drops(DropReason::TakeoverAwaited), dropped + 16);
}

#[test]
fn who_was_kicked_does_not_come_back_at_another_gateway() {
    for is_told in [true, false] {
        let mut stage = Stage::new();
        assert!(stage.plays(A));
        if is_told {
            stage.pair.stand(A);
        }
        let packet = stage.player.game(1).expect("few are in flight");
        assert_eq!(deny(stage.pair.rig(A), &denied(&[("10.1.0.0/16", true)], &[])), 1);
        stage.go_on();
        assert_eq!(stage.agent.closed, [stage.id]);
        stage.lose_gateway();
        let home = stage.player.home;
        stage.say(B, &packet);
        assert_eq!(stage.agent.claims.len(), usize::from(is_told));
        assert_eq!(stage.pair.sessions()[B], 0);
        if is_told {
            let refused = stage.pair.standbys(B).counts().refused;
            assert_eq!(refused[TakeoverRefusal::Ended as usize], 1);
        }
        stage.say(B, &packet);
        assert_eq!((stage.pair.sessions()[B], stage.player.home), (0, home));
    }
}

#[test]
fn a_gateway_that_the_agent_had_lost_hears_at_once_whose_its_sessions_are() {
    let mut stage = Stage::new();
    assert!(stage.plays(A));
    stage.pair.stand(A);
    stage.lose_link();
    stage.lose_gateway();
    stage.plays(B);
    stage.server_speaks();
    assert!(stage.plays(B) && stage.plays(B));
    // It lives, and has not heard that its session is another one's: what it refuses goes there.
    assert!(stage.plays(A));
    // Where it knows of no other, it asks nobody where the player is who acknowledges more.
    stage.pair.whereabouts(A).forget(OTHER[A]);
    stage.pair.fleets.iter_mut().flat_map(|it| &mut it.rigs).for_each(|it| it.jump(1_000));
    let (home, packet) = (stage.player.home, stage.player.game(1).expect("few are in flight"));
    let rig = stage.pair.rig(A);
    rig.provokes(DropReason::AckImplausible, |rig| rig.deliver(home, &packet));
    assert_eq!(stage.pair.sessions(), [1, 1]);
    stage.agent.join((A, 0), stage.pair.rig(A), incarnation(A));
    stage.go_on();
    assert_eq!(stage.pair.sessions(), [0, 1]);
    assert_eq!(stage.pair.rig(A).counters().sessions_closed[Ended::Fenced as usize], 1);
    stage.is_one();
}

#[test]
fn who_has_answered_a_gateway_that_did_not_know_better_is_challenged_by_its_own() {
    let mut stage = Stage::new();
    assert!(stage.plays(A));
    let address = Address { listener: ListenerId(0), endpoint: stage.player.home };
    stage.pair.fleets.iter_mut().flat_map(|it| &mut it.rigs).for_each(|it| it.jump(11_000));
    stage.pair.whereabouts(B).unlearn(&address, OTHER[B]);
    stage.plays(B);
    let owed = stage.owed().expect("it restarts");
    stage.say(B, &owed);
    assert_eq!(stage.player.client.state(), State::SendingResponse);
    let now_ns = stage.pair.rig(B).now.mono_ns;
    assert_eq!(stage.pair.whereabouts(B).learn(&address, OTHER[B], now_ns), Ok(()));
    for _ in 0..2 {
        let owed = stage.owed().expect("a response");
        stage.say(B, &owed);
    }
    assert_eq!(stage.player.client.state(), State::Connected);
    assert!(stage.plays(B) && stage.plays(A));
    assert_eq!(stage.pair.sessions(), [1, 0]);
    stage.is_one();
}

#[test]
fn a_session_ends_with_its_gateway_where_its_agent_is_of_an_earlier_release() {
    let mut stage = Stage::new();
    assert!(stage.plays(A));
    stage.lose_link();
    stage.agent.is_earlier = true;
    stage.agent.join((A, 0), stage.pair.rig(A), incarnation(A));
    stage.go_on();
    stage.plays(A);
    assert_eq!(stage.pair.standbys(A).counts().owned, 0);
    stage.kill();
    stage.plays(B);
    assert!(stage.agent.claims.is_empty());
    assert_eq!(stage.pair.sessions()[B], 0);
}

#[test]
fn its_port_may_change_at_the_gateway_that_goes_on_with_it() {
    let mut stage = Stage::new();
    assert!(stage.plays(A));
    stage.kill();
    stage.plays(B);
    stage.server_speaks();
    assert!(stage.plays(B));
    stage.settle();
    stage.pair.fleets.iter_mut().flat_map(|it| &mut it.rigs).for_each(|it| it.jump(11_000));
    stage.player.home = stage.player.home.with_port(6000);
    stage.come_back(B);
    assert!(stage.plays(B));
    stage.is_one();
}

#[test]
fn a_player_whose_address_another_one_has_keeps_its_session_in_the_cluster() {
    let mut stage = Stage::new();
    let profile = Profile { framing: Framing::default(), client_id: 6, base: BASE };
    let other = Player::begun(&profile, stage.pair.rig(A).now.mono_ns);
    let mut other = std::mem::replace(&mut stage.player, other);
    stage.player.home = other.home.with_port(7000);
    for _ in 0..2 {
        let owed = stage.owed().expect("a handshake");
        stage.say(A, &owed);
    }
    assert!(stage.plays(A));
    let owned = |stage: &Stage| stage.pair.standbys(A).counts().owned;
    assert_eq!(owned(&stage), 2);
    stage.settle();
    stage.pair.fleets.iter_mut().flat_map(|it| &mut it.rigs).for_each(|it| it.jump(11_000));
    stage.settle();
    // It is where the other one was.
    stage.player.home = other.home;
    stage.come_back(A);
    assert!(stage.plays(A));
    assert_eq!((owned(&stage), stage.record().is_some()), (1, false), "from nowhere none goes on");
    stage.settle();
    // That one is back, by another port.
    std::mem::swap(&mut stage.player, &mut other);
    stage.player.home = stage.player.home.with_port(9);
    stage.come_back(A);
    assert!(stage.plays(A));
    assert_eq!((owned(&stage), stage.record().is_some()), (2, true));
    assert!(stage.agent.closed.is_empty());
    assert_eq!((stage.pair.sessions(), stage.tally().connections), ([2, 0], 2));
    stage.kill();
    stage.plays(B);
    stage.server_speaks();
    assert!(stage.plays(B));
}

#[test]
fn members_may_look_at_duplicates_each_in_its_own_way() {
    for [own, others] in [
        [Duplicates::Opaque, Duplicates::Notify],
        [Duplicates::Pass, Duplicates::Notify],
        [Duplicates::Notify, Duplicates::Opaque],
    ] {
        for gives in [false, true] {
            let with = |duplicates| {
                let mut setup = Setup { cluster: Some("fra".into()), ..setup() };
                rules_mut(&mut setup).duplicates = duplicates;
                setup
            };
            let mut stage = Stage::of(with(own));
            stage.pair.rig(B).mail(Mail::Setup(Arc::new(with(others))));
            stage.settle();
            assert!(stage.plays(A) && stage.plays(A));
            if gives {
                stage.give_away();
            } else {
                stage.kill();
            }
            stage.plays(B);
            stage.server_speaks();
            assert!(stage.plays(B) && stage.plays(B), "{own:?} {others:?} {gives}");
        }
    }
}

#[test]
fn who_has_connected_anew_at_another_member_is_forwarded_there() {
    let mut stage = Stage::new();
    stage.kill();
    let address = Address { listener: ListenerId(0), endpoint: stage.player.home };
    let mut others = stage.player.game(1).expect("few are in flight");
    others[0] ^= 1 << 2;
    let rig = stage.pair.rig(B);
    rig.provokes(DropReason::UnrealIds, |rig| rig.deliver(address.endpoint, &others));
    assert!(stage.pair.whereabouts(B).learn(&address, OTHER[B], 0).is_ok());
    stage.pair.pass(100);
    stage.pair.rig(B).deliver(address.endpoint, &others);
    assert_eq!(stage.pair.rig(B).counters().members_out, 1);
    stage.plays(B);
    assert_eq!(stage.agent.claims.len(), 1, "its former session may still go on");
}

#[test]
fn a_session_that_its_player_has_left_is_in_no_later_ones_way() {
    let mut stage = Stage::new();
    let address = Address { listener: ListenerId(0), endpoint: stage.player.home };
    stage.pair.whereabouts(B).unlearn(&address, OTHER[B]);
    let profile = Profile { framing: Framing::default(), client_id: 4, base: BASE };
    let former = Player::begun(&profile, stage.pair.rig(B).now.mono_ns);
    let player = std::mem::replace(&mut stage.player, former);
    stage.player.home = address.endpoint;
    for _ in 0..2 {
        let owed = stage.owed().expect("a handshake");
        stage.say(B, &owed);
    }
    assert!(stage.player.peer.is_some());
    stage.player = player;
    stage.kill();
    let packet = stage.player.game(1).expect("few are in flight");
    let rig = stage.pair.rig(B);
    rig.provokes(DropReason::UnrealIds, |rig| rig.deliver(address.endpoint, &packet));
    // It has played there a moment ago.
    stage.pair.fleets.iter_mut().flat_map(|it| &mut it.rigs).for_each(|it| it.jump(1_500));
    stage.plays(B);
    stage.server_speaks();
    assert!(stage.plays(B));
    assert_eq!((stage.pair.sessions()[B], stage.tally().connections), (1, 2));
}

#[test]
fn a_session_that_goes_on_is_acknowledged_for_no_cookie_of_zeros() {
    let mut stage = Stage::new();
    stage.kill();
    stage.plays(B);
    let (now_ns, ids) = (stage.pair.rig(B).now.mono_ns, Ids::new(0, 5));
    let timestamp = Timestamp::from_ns(now_ns);
    let zeros = Proof { secret_id: SecretId::from_bit(false), timestamp, cookie: Cookie::ZERO };
    let packet = Handshake { ids, base: BASE, body: Body::Response(zeros) };
    let mut out = [0; 100];
    let len = packet.encode(&Framing::default(), &stage.dice.tail(), &mut out);
    let home = stage.player.home;
    let rig = stage.pair.rig(B);
    rig.provokes(DropReason::CookieForged, |rig| rig.deliver(home, &out[..len]));
}

#[test]
fn nothing_but_packets_from_the_players_address_with_its_ids_is_believed() {
    let mut stage = Stage::new();
    let packet = stage.player.game(1).expect("few are in flight");
    stage.kill();
    let home = stage.player.home;
    let mut others = packet.clone();
    // The client id is in bits 2 to 4.
    others[0] ^= 1 << 2;
    stage.pair.rig(B).provokes(DropReason::UnrealIds, |rig| rig.deliver(home, &others));
    stage.pair.rig(B).deliver(home.with_port(9), &packet);
    stage.go_on();
    assert!(stage.agent.claims.is_empty());
    deny(stage.pair.rig(B), &denied(&[("10.1.0.0/16", true)], &[]));
    stage.pair.rig(B).provokes(DropReason::AddressDenied, |rig| rig.deliver(home, &packet));
    assert!(stage.agent.claims.is_empty());
}

#[test]
fn nobody_takes_a_session_whose_owner_lives() {
    let mut stage = Stage::new();
    stage.pair.stand(A);
    assert!(stage.plays(B), "it is forwarded");
    assert!(stage.agent.claims.is_empty());
    assert_eq!(stage.pair.sessions(), [1, 0]);
}

#[test]
fn a_gateway_that_leaves_gives_its_sessions_away_and_nothing_is_lost_or_twice() {
    let mut stage = Stage::new();
    assert!(stage.plays(A));
    stage.give_away();
    assert_eq!(stage.pair.sessions(), [0, 1]);
    stage.server_speaks();
    for at in [B, A, B, A] {
        assert!(stage.plays(at), "{at}");
    }
    stage.is_one();
    assert_eq!(stage.pair.rig(A).counters().sessions_closed[Ended::Fenced as usize], 1);
}

#[test]
fn a_player_who_shakes_hands_anew_has_a_session_of_its_own() {
    let mut stage = Stage::new();
    assert!(stage.plays(A));
    stage.kill();
    let profile = Profile { framing: Framing::default(), client_id: 5, base: BASE };
    let home = stage.player.home;
    stage.player = Player::begun(&profile, stage.pair.rig(B).now.mono_ns);
    stage.player.home = home;
    for _ in 0..2 {
        let owed = stage.owed().expect("a handshake");
        stage.say(B, &owed);
    }
    assert!(stage.plays(B));
    assert!(stage.agent.claims.is_empty());
    assert_eq!((stage.tally().connections, stage.pair.rig(B).sessions()), (2, 1));
    assert_eq!(stage.pair.rig(B).host.gate().setup().listeners[ListenerId(0)].name, "ue");
}

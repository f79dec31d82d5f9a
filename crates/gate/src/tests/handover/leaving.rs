//! Listeners that drain, in front of a successor whose file does not have them: their players play
//! on, and newcomers are refused.

use super::super::clients::{Player, Scribe};
use super::super::games::{Game, Heard};
use super::super::plain::{SERVERS, arrived, numbered, plain_setup_with, play_with, unet};
use super::super::rig::{Rig, bundle_backend, endpoint, home, listener, udp_backend};
use super::super::unreal::rig::{Arena, Player as UnrealPlayer, unreal_setup};
use super::rehearse;
use crate::handover::{Format, Kept, Leaving, Sink};
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use crate::setup::{Listener, Netcode, Phase, Protocol, Setup, Token, TokenPlace};
use ringgate_core::carry::{Broken, Maps};
use ringgate_core::drops::DropReason;
use std::sync::Arc;

const FIRST: ListenerId = ListenerId(0);

/// What a process with this setup says before the state.
fn layout(setup: &Setup) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let mut sink = Sink::new(&mut bytes);
    Format::of(setup, 1, [7; 16]).write(&mut sink).expect("room");
    Leaving::write_all(setup, &mut sink).expect("room");
    let len = sink.len();
    bytes.truncate(len);
    bytes
}

fn leaving(layout: &[u8], own: &Setup) -> Result<Vec<Leaving>, crate::handover::Refused> {
    let (format, start) = Format::read(layout).expect("a format");
    let maps = Format::of(own, 1, [7; 16]).map_backends(&format);
    Leaving::read_all(&layout[start..], &maps)
}

/// The first listener drains from now on.
fn drain_first(rig: &mut Rig) {
    let mut setup = Setup::clone(&rig.host.gate().common.setup);
    setup.listeners[FIRST].phase = Phase::Draining;
    rig.mail(Mail::Setup(setup.into()));
    rig.turn();
}

/// Hands a gate over to one whose own setup has none of the listeners that drain. Returns which
/// listeners that has then.
fn hand_over_to(rig: &mut Rig, mut own: Setup) -> Vec<(String, Phase)> {
    let before = Arc::clone(&rig.host.gate().common.setup);
    let all = leaving(&layout(&before), &own).expect("it can be read");
    for Leaving { number, listener } in all {
        assert_eq!(listener.phase, Phase::Draining);
        assert_eq!(listener.name, before.listeners[ListenerId(number)].name);
        own.listeners.push(listener);
    }
    Format::of(&before, 1, [7; 16]).reserve(&mut own);
    let own = Arc::new(own);
    let (_, succession) = rehearse(&[rig.host.gate()], &own, rig.now);
    let [gate] = succession.gates.try_into().ok().expect("one worker");
    *rig.host.gate_mut() = gate;
    own.listeners.iter().map(|it| (it.name.clone(), it.phase)).collect()
}

/// The same backends, and another one behind the only listener.
fn with_another(setup: &Setup) -> Setup {
    let mut own = setup.clone();
    let spare = own.backends.push(bundle_backend("spare", 4));
    own.listeners = vec![Listener { public: Vec::new(), ..listener("us", &[spare.0]) }].into();
    own
}

fn names(first: &str) -> Vec<(String, Phase)> {
    vec![("us".to_owned(), Phase::Serving), (first.to_owned(), Phase::Draining)]
}

#[test]
fn netcode_players_play_on_without_the_listeners_keys() {
    let setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 4)], 77);
    let own = with_another(&setup);
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    let mut player = Player::connected(&mut rig, home(1), 1);
    let session = game.guests(&mut rig)[0].session;
    drain_first(&mut rig);
    for _ in 0..2 {
        assert_eq!(hand_over_to(&mut rig, own.clone()), names("eu"));
        game.hear(&mut rig);
        player.send(&mut rig, b"here");
        assert_eq!(game.hear(&mut rig), [Heard::Payload(session, b"here".to_vec())]);
        // Its keep-alives keep it here, and its port may change.
        player.live(&mut rig, 20_000);
        assert_eq!(rig.sessions(), 1);
        let newcomer = Scribe::new(&rig.token(2));
        rig.provokes(DropReason::Draining, |rig| rig.deliver(home(2), &newcomer.request()));
        let rules = rig.host.gate().common.setup.listeners[ListenerId(1)].netcode();
        assert!(rules.is_some_and(|rules| rules.keys.is_empty()));
        let claims = &rig.host.gate().common.claims;
        assert_eq!((claims.sessions(FIRST), claims.sessions(ListenerId(1))), (0, 1));
    }
}

#[test]
fn unreal_players_play_on_and_are_followed_to_another_port() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut own = with_another(&arena.rig().host.gate().common.setup);
    let mut player = UnrealPlayer::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    drain_first(arena.rig());
    for moves in 1..4 {
        assert_eq!(hand_over_to(arena.rig(), own.clone()), names("ue"));
        assert!(player.plays(&mut arena));
        player.change_port(&mut arena, 0);
        player.restart(&mut arena);
        assert!(player.plays(&mut arena));
        assert_eq!((arena.counters().sessions, arena.counters().port_switches), (1, moves));
        own.backends[BackendId(0)].retired = true;
        // Behind a server that nobody is sent to it is not even asked who it is.
        let reasons = [DropReason::Draining, DropReason::RequestBackendDown];
        let refused = |arena: &Arena| reasons.map(|why| arena.drops(why)).iter().sum::<u64>();
        let before = refused(&arena);
        let mut newcomer =
            UnrealPlayer::with_base(&arena, player.framing, 2, super::super::unreal::rig::BASE);
        newcomer.step(&mut arena);
        newcomer.step(&mut arena);
        assert_eq!((refused(&arena), newcomer.peer.is_some()), (before + 1, false));
    }
}

#[test]
fn plain_players_play_on_by_the_rules_that_they_began_with() {
    let token = || Token {
        at: TokenPlace::End,
        bytes: 1,
        strip: true,
        backends: Arc::new([(b"x", crate::ids::BackendId(0))].into_iter().collect()),
    };
    let setup = plain_setup_with(8, |rules| {
        rules.sequence = Some(unet(false));
        rules.token = Some(token());
    });
    let own = with_another(&setup);
    let mut rig = Rig::new(setup);
    let (local, server) = play_with(&mut rig, home(1), [&numbered(353), &numbered(354)]);
    rig.deliver(home(3), &numbered(7));
    let (half_open, other, _) = arrived(&mut rig).pop().expect("it goes on at once");
    drain_first(&mut rig);
    for number in [355, 356] {
        assert_eq!(hand_over_to(&mut rig, own.clone()), names("any"));
        rig.provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(home(1), &numbered(354)));
        rig.deliver(home(1), &numbered(number));
        let stripped = numbered(number)[..5].to_vec();
        assert_eq!(arrived(&mut rig), [(local, server, stripped)]);
        rig.provokes(DropReason::Draining, |rig| rig.deliver(home(2), &numbered(1)));
    }
    rig.answer_udp(endpoint(SERVERS[other]), half_open, b"a");
    assert_eq!(rig.take_for(home(3)), [b"a"], "whoever has begun goes on");
}

/// A successor that finds a server before which one protocol drains and another serves.
#[test]
fn a_server_is_not_shared_by_players_of_two_protocols() {
    for backend in [bundle_backend("arena", 4), udp_backend("arena", "127.0.0.1:7000", 4)] {
        let plain_of_arena = || {
            let plain = plain_setup_with(8, |_| {}).listeners[FIRST].clone();
            Listener { backends: vec![crate::ids::BackendId(0)], ..plain }
        };
        let plain = plain_of_arena();
        let drains = Listener { phase: Phase::Draining, ..listener("eu", &[0]) };
        let mut both = Setup::new(vec![plain, drains], vec![backend], 77);
        let spoken = std::cell::Cell::new(None);
        let clash = |setup: &Setup, before: &Setup| crate::clash(setup, before, |_| spoken.get());
        let why = clash(&both, &both).expect("a sentence");
        assert!(why.contains("arena is behind listener eu, whose players speak netcode"), "{why}");
        assert!(why.ends_with("try again when that one has gone"), "{why}");
        both.listeners[FIRST].phase = Phase::Draining;
        assert_eq!(clash(&both, &both), None, "no listener is new");
        both.listeners[FIRST] = listener("us", &[0]);
        assert_eq!(clash(&both, &both), None, "of the same protocol");

        // One goes on serving and does not name it any more; its players are still there.
        let mut before = both.clone();
        before.listeners[ListenerId(1)].phase = Phase::Serving;
        let mut after = before.clone();
        after.listeners[ListenerId(1)].backends.clear();
        after.listeners[FIRST] = plain_of_arena();
        before.listeners[FIRST].backends.clear();
        let why = clash(&after, &before).expect("a sentence");
        assert!(why.ends_with("first, and try again when they have left it"), "{why}");
        before = Setup { listeners: after.listeners.clone(), ..before };
        assert_eq!(clash(&after, &before), None, "nobody is there");
        spoken.set(Some(crate::Front::Netcode));
        let why = clash(&after, &before).expect("a sentence");
        assert!(why.contains("arena has players who speak netcode"), "{why}");
        spoken.set(Some(crate::Front::Plain));
        assert_eq!(clash(&after, &before), None, "as its listener does");
    }
}

/// Two of a name, one of which drains: as after a reload that has given it other addresses.
#[test]
fn listeners_of_one_name_are_told_apart_by_their_numbers() {
    let moved = |protocol_id| {
        let mut moved = listener("eu", &[0]);
        let Protocol::Netcode(rules) = &mut moved.protocol else { panic!("netcode") };
        rules.protocol_id = protocol_id;
        moved
    };
    let draining = |protocol_id| Listener { phase: Phase::Draining, ..moved(protocol_id) };
    let setup = |listeners| Setup::new(listeners, vec![bundle_backend("arena", 4)], 77);
    let theirs = setup(vec![draining(1), draining(1), moved(2)]);
    let ours = setup(vec![moved(2), draining(1), draining(1)]);
    let all = leaving(&layout(&theirs), &ours).expect("it can be read");
    assert_eq!(all.iter().map(|it| it.number).collect::<Vec<_>>(), [0, 1]);
    let [theirs, ours] = [&theirs, &ours].map(|setup| Format::of(setup, 1, [7; 16]));
    let open: Vec<_> = theirs.listeners().map(|(number, _)| number).collect();
    assert_eq!(open, [0, 1, 2]);
    let maps = ours.compatible(&theirs, &Kept::from([(0, 1), (1, 2)])).expect("the same rules");
    assert_eq!(maps.listeners, [Some(1), Some(2), Some(0)]);
    let said = ours.compatible(&theirs, &Kept::from([(0, 0)])).expect_err("other rules");
    assert!(said.contains("the rules of listener \"eu\""), "{said}");
}

#[test]
fn nothing_is_added_where_no_listener_drains() {
    let setup = plain_setup_with(8, |_| {});
    let bytes = layout(&setup);
    let (_, len) = Format::read(&bytes).expect("a format");
    assert_eq!(len, bytes.len(), "a process of the first release reads all of it");
}

/// The rules of every protocol, which drain.
fn all_that_drain() -> Setup {
    let mut plain = plain_setup_with(8, |rules| {
        rules.sequence = Some(unet(true));
        rules.begins_with = vec![0, 0];
        rules.token =
            Some(Token { at: TokenPlace::Start, bytes: 2, strip: false, backends: Arc::default() });
    });
    let mut unreal = unreal_setup(2).listeners[FIRST].clone();
    let Protocol::Unreal(rules) = &mut unreal.protocol else { panic!("Unreal") };
    rules.network_versions = Some(vec![1, 2]);
    let mut netcode = listener("eu", &[0, 1]);
    let Protocol::Netcode(Netcode { unique_in, .. }) = &mut netcode.protocol else {
        panic!("netcode")
    };
    *unique_in = Some(Arc::from("arenas"));
    plain.listeners.push(unreal);
    plain.listeners.push(netcode);
    for listener in &mut plain.listeners {
        listener.phase = Phase::Draining;
    }
    plain
}

#[test]
fn all_rules_come_back_as_they_went_but_for_what_newcomers_need() {
    let setup = all_that_drain();
    let read = leaving(&layout(&setup), &setup).expect("it can be read");
    for (known, Leaving { listener: read, .. }) in setup.listeners.iter().zip(&read) {
        let mut known = known.clone();
        match &mut known.protocol {
            Protocol::Netcode(rules) => rules.keys.clear(),
            Protocol::Plain(rules) => {
                rules.token.as_mut().expect("it has one").backends = Arc::default();
            }
            Protocol::Unreal(_) | Protocol::Third => {}
        }
        assert_eq!(format!("{read:?}"), format!("{known:?}"));
    }
    // Backends that this process does not have are left out.
    let own =
        Setup::new(vec![listener("us", &[0])], vec![setup.backends[FIRST_BACKEND].clone()], 1);
    let read = leaving(&layout(&setup), &own).expect("it can be read");
    assert!(read.iter().all(|it| it.listener.backends == [FIRST_BACKEND]), "{read:?}");
}

const FIRST_BACKEND: crate::ids::BackendId = crate::ids::BackendId(0);

#[test]
fn what_is_no_such_record_is_refused() {
    let setup = all_that_drain();
    let bytes = layout(&setup);
    let (_, start) = Format::read(&bytes).expect("a format");
    let maps = Maps::default();
    for at in start..bytes.len() {
        for value in [0, 0xff, bytes[at] ^ 1] {
            let mut changed = bytes[start..].to_vec();
            changed[at - start] = value;
            // Whatever comes of it is a listener that drains.
            let read = Leaving::read_all(&changed, &maps).unwrap_or_default();
            assert!(read.iter().all(|it| it.listener.phase == Phase::Draining));
        }
    }
    let mut longer = bytes[start..].to_vec();
    longer[4] += 1;
    let read = Leaving::read_all(&longer, &maps);
    assert!(read.is_err(), "{read:?}");
    let wrong =
        crate::handover::Refused::Broken(Broken::Invalid("window"), "a listener that drains");
    let mut setup = all_that_drain();
    let Protocol::Plain(rules) = &mut setup.listeners[FIRST].protocol else { panic!("plain") };
    let sequence = rules.sequence.as_mut().expect("it has one");
    sequence.field.width = ringgate_core::proto::plain::Width::Eight;
    assert_eq!(leaving(&layout(&setup), &setup).err(), Some(wrong));
}

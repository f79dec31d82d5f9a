//! What is told to who watches: every decision about the packets that are asked about, with its
//! numbers, and nothing about others.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::clients::{Player, Scribe, forged};
use super::games::Game;
use super::rig::{Rig, START, home, key, plain_setup};
use super::unreal::rig::{Arena, Player as UnrealPlayer, unreal_setup};
use crate::counters::Ended;
use crate::mail::Mail;
use crate::prefix::Prefix;
use crate::trace::{Detail, Fact, Record, Trace, Watched};
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::TokenSpec;

fn ready() -> (Rig, Game) {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    (rig, game)
}

/// Asks, with room for so many records.
fn watch_with(rig: &mut Rig, watched: Watched, room: usize) -> (Arc<Trace>, Receiver<Record>) {
    let (trace, records) = Trace::new(watched, START.mono_ns + 10_000_000_000, room);
    rig.mail(Mail::Trace(Arc::clone(&trace)));
    rig.turn();
    (trace, records)
}

pub(super) fn watch(rig: &mut Rig, watched: Watched) -> (Arc<Trace>, Receiver<Record>) {
    watch_with(rig, watched, 1000)
}

fn prefix(text: &str) -> Watched {
    Watched::Addresses(text.parse::<Prefix>().expect("literal"))
}

fn facts(records: &Receiver<Record>) -> Vec<Fact> {
    records.try_iter().map(|record| record.fact).collect()
}

fn dropped(why: DropReason, detail: Detail) -> Vec<Fact> {
    vec![Fact::Dropped { why, detail }]
}

#[test]
fn a_players_stay_is_told_from_its_token_to_its_goodbye() {
    let (mut rig, _game) = ready();
    let (trace, records) = watch(&mut rig, Watched::Client(7));
    let mut player = Player::connected(&mut rig, home(1), 7);
    let _other = Player::connected(&mut rig, home(2), 8);
    player.send(&mut rig, b"x");
    player.leave(&mut rig);
    let told: Vec<_> = records.try_iter().collect();
    assert!(told.iter().all(|it| it.client_id == Some(7) && it.address == home(1)), "{told:?}");
    let facts: Vec<_> = told.iter().map(|it| it.fact).collect();
    assert!(
        matches!(
            facts[..4],
            [
                Fact::Opened { key: 0, left_s: 30 },
                Fact::Challenged,
                Fact::Began { .. },
                Fact::Ended { why: Ended::ByPlayer }
            ]
        ),
        "{facts:?}"
    );
    let (seen, lost) = trace.carried();
    assert!(seen > 4 && lost <= 10, "{seen} {lost}");
}

#[test]
fn what_is_wrong_with_a_request_is_told_with_its_numbers() {
    let (mut rig, _game) = ready();
    let (_, records) = watch(&mut rig, prefix("10.0.0.0/8"));
    let now_s = rig.now.unix_s;

    let stale = Scribe::new(&rig.token_with(1, |spec| spec.lifetime_seconds = Some(5)));
    rig.step_wall_clock(17);
    rig.deliver(home(1), &stale.request());
    let expired = Detail::Expired { ago_s: 12 };
    assert_eq!(facts(&records), dropped(DropReason::RequestExpired, expired));
    assert_eq!(rig.now.unix_s, now_s + 17);

    let foreign = Scribe::new(&rig.token_with(1, |spec| spec.protocol_id = 9));
    rig.deliver(home(1), &foreign.request());
    let detail = Detail::Protocol { found: 9, expected: super::rig::PROTOCOL };
    assert_eq!(facts(&records), dropped(DropReason::RequestProtocol, detail));

    let elsewhere = |spec: &mut TokenSpec| {
        spec.servers = "192.0.2.1:5,192.0.2.2:6".parse().expect("literal");
    };
    let elsewhere = Scribe::new(&rig.token_with(1, elsewhere));
    rig.deliver(home(1), &elsewhere.request());
    let first = "192.0.2.1:5".parse().expect("literal");
    let detail = Detail::Names { first, others: 1 };
    let told = facts(&records);
    assert!(matches!(told[0], Fact::Opened { key: 0, .. }), "{told:?}");
    assert_eq!(told[1..], dropped(DropReason::TokenNotForUs, detail));

    let spec =
        TokenSpec::new(super::rig::PROTOCOL, 1, super::rig::PUBLIC.parse().expect("literal"));
    let wrong_key = Scribe::new(&rig.token_under(&spec, &key(9)));
    rig.deliver(home(1), &wrong_key.request());
    assert_eq!(facts(&records), dropped(DropReason::RequestForged, Detail::Nothing));

    rig.deliver(home(1), &[0; 100]);
    let detail = Detail::Length { bytes: 100 };
    assert_eq!(facts(&records), dropped(DropReason::RequestLength, detail));
}

#[test]
fn what_names_no_player_is_counted_for_who_asks_by_player() {
    let (mut rig, _game) = ready();
    let (trace, records) = watch(&mut rig, Watched::Client(7));
    let spec =
        TokenSpec::new(super::rig::PROTOCOL, 7, super::rig::PUBLIC.parse().expect("literal"));
    let wrong_key = Scribe::new(&rig.token_under(&spec, &key(9)));
    rig.deliver(home(1), &wrong_key.request());
    assert_eq!(facts(&records), []);
    assert_eq!(trace.nameless().of(DropReason::RequestForged), 1);
    assert_eq!(trace.nameless().total(), 1);
}

#[test]
fn a_token_under_an_older_key_is_told_and_so_is_what_follows_from_its_player() {
    let mut setup = plain_setup();
    super::rig::netcode_rules(&mut setup).keys = vec![key(2).into(), key(1).into()];
    setup.backends[crate::ids::BackendId(0)].slots = 1;
    let mut rig = Rig::new(setup);
    let _game = Game::join(&mut rig, "arena");
    let _first = Player::connected(&mut rig, home(1), 1);
    let (_, records) = watch(&mut rig, Watched::Client(2));
    let late = Scribe::new(&rig.token(2));
    rig.deliver(home(2), &late.request());
    let told = facts(&records);
    assert!(matches!(told[0], Fact::Opened { key: 1, .. }), "{told:?}");
    assert_eq!(told[1], Fact::Denied);
    assert_eq!(told[2..], dropped(DropReason::RequestBackendFull, Detail::Nothing));
}

#[test]
fn repeated_old_and_forged_packets_and_a_move_are_told() {
    let (mut rig, _game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    rig.deliver(home(1), &scribe.keep_alive(1000));
    let (_, records) = watch(&mut rig, Watched::Client(1));
    rig.deliver(home(1), &scribe.keep_alive(1000));
    let detail = Detail::Sequence { found: 1000, newest: 1000 };
    assert_eq!(facts(&records), dropped(DropReason::ReplayDuplicate, detail));
    rig.deliver(home(1), &scribe.keep_alive(3));
    let detail = Detail::Sequence { found: 3, newest: 1000 };
    assert_eq!(facts(&records), dropped(DropReason::ReplayTooOld, detail));
    rig.deliver(home(1), &forged(scribe.keep_alive(1001)));
    assert_eq!(facts(&records), dropped(DropReason::PacketForged, Detail::Nothing));
    rig.deliver(home(1).with_port(6000), &scribe.keep_alive(1002));
    assert_eq!(facts(&records), [Fact::Moved { from: home(1) }]);
}

#[test]
fn a_queue_that_is_full_loses_records_and_nothing_else() {
    let (mut rig, _game) = ready();
    let (trace, records) = watch_with(&mut rig, prefix("0.0.0.0/0"), 3);
    for _ in 0..10 {
        rig.deliver(home(1), b"junk");
    }
    assert_eq!((records.try_iter().count(), trace.missed()), (3, 7));
    assert_eq!(trace.carried(), (10, 10));
    assert_eq!(rig.drops(DropReason::UnknownSource), 10);
}

#[test]
fn a_trace_that_is_over_is_forgotten() {
    let (mut rig, _game) = ready();
    let (trace, records) = watch(&mut rig, prefix("0.0.0.0/0"));
    assert_eq!(Arc::strong_count(&trace), 2);
    trace.end();
    rig.deliver(home(1), b"junk");
    assert_eq!((facts(&records), Arc::strong_count(&trace)), (Vec::new(), 1));
}

#[test]
fn a_trace_that_nobody_ends_is_over_at_its_time() {
    let (mut rig, _game) = ready();
    let (trace, records) = watch(&mut rig, prefix("0.0.0.0/0"));
    rig.jump(9_990);
    rig.deliver(home(1), b"junk");
    rig.jump(10);
    rig.deliver(home(1), b"junk");
    assert_eq!((facts(&records).len(), Arc::strong_count(&trace)), (1, 1));
}

#[test]
fn an_unreal_players_handshake_and_its_end_are_told_by_address() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let (_, records) = watch(arena.rig(), prefix("10.1.0.0/16"));
    let _player = UnrealPlayer::connected(&mut arena, 1);
    let told = facts(&records);
    assert!(
        matches!(told[..], [Fact::Challenged, Fact::Waits { .. }, Fact::Began { .. }]),
        "{told:?}"
    );
    arena.rig().mail(Mail::Stop);
    arena.rig().turn();
    assert_eq!(facts(&records), [Fact::Ended { why: Ended::Shutdown }]);
}

#[test]
fn a_plain_players_beginning_is_told_by_address() {
    let mut rig = super::plain::plain_rig(|_| {});
    let (_, records) = watch(&mut rig, prefix("10.0.0.0/8"));
    super::plain::play(&mut rig, home(1), b"hello");
    let told = facts(&records);
    assert!(matches!(told[..], [Fact::Waits { .. }, Fact::Began { .. }]), "{told:?}");
    rig.deliver(home(2), b"");
    let empty = dropped(DropReason::Empty, Detail::Nothing);
    assert_eq!(facts(&records), empty);
}

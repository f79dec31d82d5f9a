//! Streams of the first version of the format, as they were written once: they are read for ever.
//!
//! `WRITE_HAND_OVER_FIXTURE=1` writes them again, which is right only where no release has written
//! any yet.

use std::path::PathBuf;
use std::sync::Arc;

use super::super::clients::{Player, Scribe};
use super::super::games::Game;
use super::super::rig::{Rig, home, plain_setup};
use super::rehearse;
use crate::handover::{Format, succeed};

fn path(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../tests/fixtures/hand_over_1").join(name)
}

/// A player, an unfinished handshake, a place that rests and a link.
fn write() {
    let mut rig = Rig::new(plain_setup());
    let _game = Game::join(&mut rig, "arena");
    let mut player = Player::connected(&mut rig, home(1), 1);
    Player::connected(&mut rig, home(2), 2).leave(&mut rig);
    let asks = Scribe::new(&rig.token(3));
    rig.deliver(home(3), &asks.request());
    player.send(&mut rig, b"x");
    let setup = Arc::clone(&rig.host.gate().common.setup);
    let (streams, _) = rehearse(&[rig.host.gate()], &setup, rig.now);
    std::fs::create_dir_all(path("")).expect("a folder");
    for (name, stream) in ["shared", "worker"].iter().zip(streams) {
        std::fs::write(path(name), stream).expect("written");
    }
}

#[test]
fn what_the_first_version_has_written_is_read() {
    if std::env::var_os("WRITE_HAND_OVER_FIXTURE").is_some() {
        write();
    }
    let [shared, worker] = ["shared", "worker"]
        .map(|name| std::fs::read(path(name)).unwrap_or_else(|why| panic!("{name}: {why}")));
    let (format, _) = Format::read(&shared).expect("it is one");
    assert_eq!((format.workers, format.incarnation), (1, 77));
    let mut rig = Rig::new(plain_setup());
    rig.pass(2000);
    let setup = Arc::clone(&rig.host.gate().common.setup);
    let gates = [rig.host.gate()];
    let read = succeed(&shared, &[&worker], &gates, &setup, rig.now).expect("it can be read");
    assert_eq!((read.arrived.sessions, read.arrived.not_carried), (1, 0));
    assert_eq!(read.claims.tokens_remembered(), 3);
    let session = read.gates[0].sessions().next().expect("one");
    assert_eq!((session.client_id, session.address), (1, home(1)));
}

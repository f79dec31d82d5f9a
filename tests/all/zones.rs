//! The zones of the link's examples behind a real daemon: who walks over the border is in the other
//! process.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringgate_io::Choice;

use crate::control_rig::{Daemon, KEY_HEX, Player, Text, wait_for};
use crate::folder::Folder;
use crate::gateway_rig::on_both_drivers;
use crate::link_program::{Game, compile};
use crate::token_languages::skip;
use ringgate_report::text::Append as _;

on_both_drivers!(a_player_walks_between_zones_in_c, a_player_walks_between_rust_and_c);

fn two_zones(io: Choice) -> Text {
    let mut text = Text::new();
    let io = if io == Choice::Uring { "uring" } else { "mmsg" };
    writeln!(text.gateway, "io = \"{io}\"");
    text.listener = format!(
        "keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"zone-1\"]\nmoves = [\"zone-1\", \"zone-2\"]\n"
    );
    let zone = |name| format!("[[backend]]\nname = \"{name}\"\nlink = \"bundle\"\nslots = 8\n");
    text.backends = ["zone-1", "zone-2"].map(zone).concat();
    text
}

/// Asks where the player stands until that is so.
fn stands(player: &mut Player, at: u8, zone: &str) {
    let expected = [&[at], zone.as_bytes()].concat();
    wait_for("the player to stand there", || {
        player.play_once(&[0]);
        player.turn().contains(&expected).then_some(())
    });
}

fn walks_through(io: Choice, first: &Path, second: &Path) {
    let daemon = Daemon::start(&two_zones(io));
    let run_dir = daemon.run_dir();
    let mut games = [(first, "zone-1"), (second, "zone-2")]
        .map(|(program, name)| Game::run(Command::new(program), &run_dir, name));
    wait_for("both zones to be up", || {
        let status = daemon.status();
        let backends = status["backends"].as_array().expect("a list");
        backends.iter().all(|it| it["up"] == true).then_some(())
    });
    let mut player = Player::connected(daemon.listener, 7, KEY_HEX);
    stands(&mut player, 50, "zone-1");
    player.play_once(&[60]);
    stands(&mut player, 10, "zone-2");
    assert!(games[0].line().ends_with(" is in zone-2 by move 1"));
    player.play_once(&[-20_i8 as u8]);
    stands(&mut player, 90, "zone-1");
    assert!(games[1].line().ends_with(" is in zone-1 by move 1"));
    // Where nobody is over there, the border is a wall.
    let [mut game, gone] = games;
    drop(gone);
    player.play_once(&[20]);
    assert!(game.line().ends_with(" stays in zone-1: the game process is not connected"));
    stands(&mut player, 99, "zone-1");
}

fn in_c(folder: &Folder) -> PathBuf {
    compile(folder, "crates/link/examples/c/zones.c")
}

fn a_player_walks_between_zones_in_c(io: Choice) {
    let folder = Folder::new();
    let zones = in_c(&folder);
    walks_through(io, &zones, &zones);
}

fn a_player_walks_between_rust_and_c(io: Choice) {
    let zones = Path::new(env!("CARGO_BIN_EXE_ringgate")).with_file_name("examples").join("zones");
    if !zones.exists() {
        return skip("Rust", "the whole workspace's tests build the example, these alone do not");
    }
    let folder = Folder::new();
    walks_through(io, &zones, &in_c(&folder));
}

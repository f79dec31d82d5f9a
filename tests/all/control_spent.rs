//! A token that was used is used, whatever has ended the gateway meanwhile; one that was not used
//! is as good as before.

use std::path::Path;

use ringgate_report::text::Append as _;

use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, token, wait_for};
use crate::folder::Folder;
use crate::own::own_address;
use crate::upgrade_rig::Line;

/// What all starts of one gateway have.
struct House {
    state: Folder,
    text: Text,
}

impl House {
    fn new() -> Self {
        let state = Folder::new();
        let mut text = Text::new();
        writeln!(text.gateway, "state_dir = \"{}\"", state.join("state").display());
        // Tokens name it, and it is the same at each start.
        text.bind = format!("\"{}\"", own_address()).leak();
        Self { state, text }
    }

    fn start(&self) -> (Daemon, Game) {
        let daemon = Daemon::start(&self.text);
        let game = Game::start(&daemon, "arena");
        daemon.ready();
        (daemon, game)
    }

    /// Waits until so many tokens are written down as spent.
    fn written(&self, count: usize) {
        let has_room = |bytes: u64| bytes as usize >= count * 32;
        wait_for("spent tokens", || has_room(spent_bytes(&self.state.join("state"))).then_some(()));
    }
}

fn spent_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("it is there").map(|it| it.expect("readable"));
    let spent = entries.filter(|it| it.file_name().to_string_lossy().starts_with("spent-"));
    spent.map(|it| it.metadata().map_or(0, |meta| meta.len())).sum()
}

/// How the gateway ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    Terminated,
    /// After the next process has taken it over.
    KilledAsHeir,
}

#[test]
fn a_used_token_opens_no_second_session_however_the_gateway_has_ended() {
    for end in [End::Killed, End::Terminated, End::KilledAsHeir] {
        let house = House::new();
        let (mut daemon, game) = house.start();
        let server = daemon.listener;
        let [used, unused] = [1, 2].map(|id| token(&[server], id, KEY_HEX, 600));
        let mut player = Player::holding([127, 0, 0, 1], &used);
        player.connect();
        player.echo(b"heard");
        house.written(1);
        match end {
            End::Killed => {
                daemon.signal("KILL");
                daemon.ended();
            }
            End::Terminated => {
                daemon.end_at_once();
                daemon.ended();
            }
            End::KilledAsHeir => {
                let mut line = Line::of(daemon);
                let (code, said) = line.upgrade();
                assert_eq!(code, Some(0), "{said}");
                player.echo(b"still heard");
                // What was spent is written anew by the process that has it now.
                house.written(2);
                drop(line);
            }
        }
        drop(game);
        let (daemon, _game) = house.start();
        assert_eq!(daemon.listener, server);
        let mut again = Player::holding([127, 0, 0, 1], &used);
        wait_for("a denial", || {
            again.turn();
            again.has_ended().then_some(())
        });
        assert!(again.is_denied(), "{end:?}");
        assert_eq!(daemon.status()["totals"]["sessions_opened"], 0, "{end:?}");
        let mut other = Player::holding([127, 0, 0, 1], &unused);
        other.connect();
        other.echo(b"new");
    }
}

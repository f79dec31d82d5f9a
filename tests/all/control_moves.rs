//! Players who go from one game process to another at a real daemon, by the process's wish and by
//! an operator's.

use crate::command::{Ran, ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use ringgate_link::backend::Event;
use ringgate_link::bundle::{MOVE_MS, Move};

/// A game process that sends every payload back with its name before it, and moves whoever says
/// "to NAME" there. It takes everybody who is offered, unless it is choosy.
pub(crate) fn zone(daemon: &Daemon, name: &'static str, is_choosy: bool) -> Game {
    Game::start_with(daemon, name, move |event, outbox| match event {
        Event::Payload { session, bytes } => {
            let said = std::str::from_utf8(bytes).expect("text");
            if let Some(backend) = said.strip_prefix("to ") {
                let (confirms, message) = (backend == "north", None);
                let asked = Move {
                    session,
                    backend,
                    ticket: 7,
                    time_ms: MOVE_MS,
                    confirms,
                    message,
                    data: b"a door",
                };
                outbox.move_session(&asked).expect("the gateway knows moves");
            } else {
                let _ = outbox.send(session, format!("{name} {said}").as_bytes());
            }
        }
        Event::Offered(offered) => {
            let is_by_door = offered.data == b"a door";
            assert!(is_by_door || offered.ticket == 0, "{offered:?}");
            let (session, offer) = (offered.session, offered.offer);
            outbox.answer(session, offer, !is_choosy).expect("it is up");
        }
        _ => {}
    })
}

/// Says something until a zone of that name has heard it.
pub(crate) fn is_heard_by(player: &mut Player, name: &str) {
    let expected = format!("{name} hello");
    wait_for("the zone to answer", || {
        player.play_once(b"hello");
        player.turn().iter().any(|echo| echo == expected.as_bytes()).then_some(())
    });
}

pub(crate) fn zones() -> Text {
    let mut text = Text::new();
    text.gateway = text.gateway.replace("workers = 1", "workers = 2");
    text.listener = format!(
        "keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"south\"]\nmoves = [\"south\", \"north\", \"east\"]\n"
    );
    let backend = |(name, slots)| {
        format!(
            "[[backend]]\nname = \"{name}\"\nlink = \"bundle\"\nslots = {slots}\ngrace = \"1m\"\n"
        )
    };
    text.backends = [("south", 40), ("north", 40), ("east", 40)].map(backend).concat();
    text
}

fn command(daemon: &Daemon, words: &[&str]) -> Ran {
    let mut command = ringgate(words);
    command.arg("--control").arg(daemon.control());
    run(command)
}

pub(crate) fn all_up(daemon: &Daemon, count: usize) {
    wait_for("the zones to be up", || {
        let status = daemon.status();
        let backends = status["backends"].as_array().expect("a list");
        (backends.iter().filter(|it| it["up"] == true).count() == count).then_some(())
    });
}

#[test]
fn a_player_walks_over_the_border_and_an_operator_moves_it_back() {
    let daemon = Daemon::start(&zones());
    let _south = zone(&daemon, "south", false);
    let _north = zone(&daemon, "north", false);
    let _east = zone(&daemon, "east", true);
    all_up(&daemon, 3);
    let mut player = Player::connected(daemon.listener, 7, KEY_HEX);
    is_heard_by(&mut player, "south");
    player.play_once(b"to north");
    is_heard_by(&mut player, "north");
    // It does not want the player, who plays on.
    player.play_once(b"to east");
    let refused = "ringgate_move_refused_total";
    wait_for("a refusal", || {
        (daemon.ask("/metrics").sum(refused, "reason=\"denied\"") == Some(1)).then_some(())
    });
    is_heard_by(&mut player, "north");

    let ran = command(&daemon, &["move", "7", "--to", "south", "--confirm"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "moved 1 to south\n"), "{}", ran.stderr);
    is_heard_by(&mut player, "south");
    let ran = command(&daemon, &["move", "7", "--to", "south"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("itself 1"), "{}", ran.stderr);
    assert_eq!(command(&daemon, &["move", "8", "--to", "south"]).code, Some(1));
    assert_eq!(command(&daemon, &["move", "7", "--to", "west"]).code, Some(2));
    let metrics = daemon.ask("/metrics");
    let moved = |name: &str| {
        metrics.value(&format!("ringgate_backend_moved_{name}_total{{backend=\"north\"}}"))
    };
    assert_eq!((moved("in"), moved("out")), (Some(1), Some(1)));
    assert!(daemon.log().contains("move of players to south"), "{}", daemon.log());
}

#[test]
fn a_backend_is_emptied_into_another() {
    let daemon = Daemon::start(&zones());
    let _south = zone(&daemon, "south", false);
    let _north = zone(&daemon, "north", false);
    all_up(&daemon, 2);
    let connect = |id| Player::connected(daemon.listener, id, KEY_HEX);
    let mut players: Vec<_> = (1..=20).map(connect).collect();
    for player in &mut players {
        is_heard_by(player, "south");
    }
    let ran = command(&daemon, &["drain", "--backend", "south", "--move-to", "north"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.ends_with("moved 20 to north\n"), "{}", ran.stdout);
    for player in &mut players {
        is_heard_by(player, "north");
    }
    // Into itself it cannot be, and nobody is lost from the answer by that.
    let ran = command(&daemon, &["drain", "--backend", "north", "--move-to", "north"]);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.code == Some(1) && said.contains("itself 20"), "{said}");
    let ran = command(&daemon, &["drain", "--move-to", "north"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
}

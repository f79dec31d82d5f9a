//! What a gateway and a game process say to each other beside payloads, with an agent between them:
//! all of it arrives, and a multicast is one record on the wire.
//!
//! Skipped aloud without openssl, which makes the certificates.

use std::num::NonZeroU64;
use std::time::Duration;

use ringgate_client::{Channel, Client, Event as Seen};
use ringgate_link::backend::{Backend, Event};
use ringgate_link::bundle::{Channel as GameChannel, CloseReason, SessionId};

use crate::agent::{Agent, NAMES, agent_file, certificates, gateway_with};
use crate::control_rig::{Daemon, KEY_HEX, Player, Text, wait_for};
use crate::delivery_ways::{DELIVERS, player};
use crate::folder::Folder;
use crate::own::own_port;
use crate::upgrade_rig::Line;

const TURN: Duration = Duration::from_millis(2);

/// A gateway, an agent, and a game that this test plays with the library.
struct Rig {
    line: Line,
    agent: Agent,
    game: Backend,
    _folder: Folder,
}

impl Rig {
    fn start(change: impl FnOnce(&mut Text)) -> Option<Self> {
        let folder = Folder::new();
        if !certificates(&folder, NAMES) {
            return None;
        }
        let port = own_port();
        agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
        let gateway = gateway_with(&folder, port, change);
        let agent = Agent::start(&folder);
        let game = Backend::connect(folder.join("host"), "arena").expect("the agent listens");
        let mut rig = Self { line: Line::of(gateway), agent, game, _folder: folder };
        rig.hear("links to both workers", |heard| {
            let up = |worker: usize| heard.iter().any(|it| it == &format!("up {worker}"));
            up(1) && up(2)
        });
        wait_for("both to be known", || (rig.gateway().get("/readyz").status == 200).then_some(()));
        Some(rig)
    }

    const fn gateway(&self) -> &Daemon {
        &self.line.daemon
    }

    /// What the game hears until that is so, in words.
    fn hear(&mut self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        self.hear_with(what, || (), is_so)
    }

    /// The same while somebody else has turns.
    fn hear_with(
        &mut self,
        what: &str,
        mut turn: impl FnMut(),
        is_so: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        let mut heard = Vec::new();
        wait_for(what, || {
            turn();
            self.game.wait(Some(TURN)).expect("links work");
            let mut events = self.game.poll().expect("links work");
            while let Some((event, _)) = events.next() {
                heard.push(word(event));
            }
            self.game.flush();
            is_so(&heard).then_some(())
        });
        heard
    }
}

/// An event in words.
fn word(event: Event<'_>) -> String {
    match event {
        Event::LinkUp { worker, .. } => format!("up {worker}"),
        Event::Opened(opened) => {
            format!("opened {} as {}", opened.client_id, opened.session.as_u64())
        }
        Event::Message { bytes, .. } => format!("message {}", String::from_utf8_lossy(bytes)),
        Event::Report { token, is_delivered, .. } => format!("report {token} {is_delivered}"),
        Event::Quality { quality, .. } => format!("quality {}", quality.round_trip_us > 0),
        Event::Closed { reason, .. } => format!("closed {reason:?}"),
        Event::Pong { worker, .. } => format!("pong {worker}"),
        Event::Draining { worker, .. } => format!("draining {worker}"),
        Event::Undrained { worker } => format!("undrained {worker}"),
        Event::TakenOver { worker, generation } => format!("taken over {worker} {generation}"),
        other => format!("{other:?}"),
    }
}

/// The session of a player who was announced.
fn session_in(heard: &[String], client_id: u64) -> SessionId {
    let begin = format!("opened {client_id} as ");
    let number = heard.iter().find_map(|word| word.strip_prefix(&begin));
    let number = number.and_then(|it| it.parse().ok()).expect("it was announced");
    SessionId::from_u64(number).expect("a session's")
}

fn has(word: &'static str) -> impl Fn(&[String]) -> bool {
    move |heard| heard.iter().any(|it| it == word)
}

/// One word of each of the agent's two workers that have players.
fn both(word: &'static str) -> impl Fn(&[String]) -> bool {
    move |heard| [1, 2].iter().all(|at| heard.contains(&word.replace('N', &at.to_string())))
}

#[test]
fn all_that_a_gateway_tells_a_game_process_crosses_the_trunk() {
    let Some(mut rig) = Rig::start(|text| text.listener.push_str(DELIVERS)) else { return };
    let listener = rig.gateway().listener;
    let mut client = player(listener, 7);
    let heard = rig.hear("the player", |heard| heard.iter().any(|it| it.starts_with("opened 7")));
    let session = session_in(&heard, 7);

    let mut got = Vec::new();
    exchange(&mut rig, &mut client, session, &mut got, 5);
    rig.game.outbox().ask_quality(session).expect("the link is up");
    rig.game.ping();
    rig.hear_with(
        "answers",
        || turn(&mut client, &mut Vec::new()),
        |heard| ["quality true", "pong 0"].iter().all(|it| has(it)(heard)) && both("pong N")(heard),
    );

    // Another process has the gateway: the game is told, and nothing else is new to it.
    let (code, said) = rig.line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    let told = rig.hear("that it is another process", both("taken over N 2"));
    assert_eq!(told.len(), 2, "nothing else has happened: {told:?}");
    exchange(&mut rig, &mut client, session, &mut got, 6);

    assert_eq!(rig.gateway().post("/drain").status, 200);
    rig.hear("a drain", both("draining N"));
    assert_eq!(rig.gateway().post("/undrain").status, 200);
    rig.hear("its end", both("undrained N"));
    rig.game.outbox().close(session, CloseReason::Kicked).expect("the link is up");
    rig.hear("the end", has("closed Kicked"));
}

/// A message each way, and a report of the game's.
fn exchange(
    rig: &mut Rig,
    client: &mut Client,
    session: SessionId,
    got: &mut Vec<Vec<u8>>,
    token: u64,
) {
    let channel = GameChannel::Reliable(3);
    let bytes = token.to_le_bytes();
    rig.game
        .outbox()
        .send_message(session, channel, &bytes, NonZeroU64::new(token))
        .expect("the link is up");
    client.send(Channel::Reliable(0), b"to the game", None).expect("there is room");
    let report = format!("report {token} true");
    rig.hear_with(
        "a message and a report",
        || turn(client, got),
        |heard| heard.contains(&report) && heard.iter().any(|it| it == "message to the game"),
    );
    assert_eq!(got.last().map(Vec::as_slice), Some(&bytes[..]));
}

fn turn(client: &mut Client, got: &mut Vec<Vec<u8>>) {
    client.turn(TURN).expect("a socket that works");
    while let Some(event) = client.poll_event() {
        if let Seen::Message(_, bytes) = event {
            got.push(bytes.to_vec());
        }
    }
}

#[test]
fn a_multicast_is_one_record_on_the_trunk_whoever_it_is_for() {
    const PLAYERS: u64 = 4;
    const TIMES: usize = 60;
    const BYTES: usize = 1200;
    let Some(mut rig) = Rig::start(|text| text.max_sessions = 200) else { return };
    let listener = rig.gateway().listener;
    let mut players: Vec<_> =
        (1..=PLAYERS).map(|client_id| Player::connected(listener, client_id, KEY_HEX)).collect();
    let heard = rig.hear("all players", |heard| {
        (1..=PLAYERS).all(|id| heard.iter().any(|it| it.starts_with(&format!("opened {id} as"))))
    });
    let sessions: Vec<_> = (1..=PLAYERS).map(|id| session_in(&heard, id)).collect();
    let sent = |agent: &Agent| -> u64 {
        let page = agent.get("/status").json();
        let lanes = page["gateways"][0]["lanes"].as_array().expect("a list").clone();
        lanes.iter().filter_map(|lane| lane["to_gateway"]["bytes"].as_u64()).sum()
    };
    let before = sent(&rig.agent);
    for _ in 0..TIMES {
        let taken = rig.game.outbox().multicast(&sessions, &[7; BYTES]);
        assert_eq!(taken, Ok(sessions.len()));
        rig.game.flush();
        let mut got = 0;
        wait_for("everybody's", || {
            let come = players.iter_mut().flat_map(Player::turn);
            got += come.filter(|bytes| *bytes == [7; BYTES]).count();
            (got == sessions.len()).then_some(())
        });
    }
    // Pages are a moment behind. Of each time there is a record for each worker.
    let crossed = wait_for("the bytes", || {
        Some(sent(&rig.agent) - before).filter(|bytes| *bytes >= (TIMES * BYTES) as u64)
    });
    let of_each = (TIMES * sessions.len() * BYTES) as u64;
    assert!(crossed < of_each, "{crossed} bytes, where {of_each} are one for each player");
}

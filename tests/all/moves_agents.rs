//! Players who go from a game process behind one agent to one behind another or on the gateway's
//! host, while the gateway and agents are upgraded and agents die.
//!
//! Skipped aloud without openssl, which makes the certificates.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::agent::{Agent, Heir, NAMES, agent_file, agent_upgrade, certificates, gateway_text};
use crate::control_moves::{all_up, zones};
use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, Player, wait_for};
use crate::folder::Folder;
use crate::own::own_port;
use crate::upgrade_rig::Line;
use ringgate_link::backend::Event;
use ringgate_link::bundle::{MOVE_MS_MAX, Move};

/// A game process that answers an offer when the test says so. It sends every payload back with its
/// name before it, and moves whoever says "to NAME" there. At "wait" it reads its link no further
/// until the test says so.
pub(crate) struct Zone {
    /// Goes first, so that a process which waits for it ends.
    pub(crate) answers: Sender<bool>,
    heard: Receiver<String>,
    _game: Game,
}

impl Zone {
    pub(crate) fn start(run_dir: &Path, name: &'static str) -> Self {
        let ((answers, answer), (hears, heard)) = (channel(), channel());
        let game = Game::start_at(run_dir, name, move |event, outbox| match event {
            Event::Payload { session, bytes } => {
                let said = std::str::from_utf8(bytes).expect("text");
                if let Some(backend) = said.strip_prefix("to ") {
                    let (time_ms, message) = (MOVE_MS_MAX, None);
                    let (ticket, confirms, data) = (7, true, &b""[..]);
                    let asked = Move { session, backend, ticket, time_ms, confirms, message, data };
                    outbox.move_session(&asked).expect("the gateway knows moves");
                } else if said == "wait" {
                    let _ = hears.send("wait".to_owned());
                    let _ = answer.recv();
                } else {
                    let _ = outbox.send(session, format!("{name} {said}").as_bytes());
                }
            }
            Event::Offered(offered) => {
                let (session, offer) = (offered.session, offered.offer);
                let _ = hears.send("offered".to_owned());
                let is_wanted = answer.recv().unwrap_or(false);
                // Its link may have gone meanwhile.
                let _ = outbox.answer(session, offer, is_wanted);
            }
            Event::MoveRefused { reason, .. } => {
                let _ = hears.send(reason.to_string());
            }
            Event::OfferOver { .. } => {
                let _ = hears.send("over".to_owned());
            }
            _ => {}
        });
        Self { answers, heard, _game: game }
    }

    pub(crate) fn hears(&self, what: &str) {
        assert_eq!(self.heard.recv_timeout(PATIENCE).as_deref(), Ok(what));
    }
}

/// The files of an agent for a zone, and its table at the gateway.
fn host(name: &str, zone: &str) -> Option<(Folder, String)> {
    let (folder, port) = (Folder::new(), own_port());
    let alternative = format!("DNS:{name}");
    if !certificates(&folder, &[NAMES[0], ("host-7", &alternative)]) {
        return None;
    }
    agent_file(&folder, name, port, "link = \"bundle\"\n");
    let named = |text: &str| text.replace("\"arena\"", &format!("\"{zone}\""));
    let file = std::fs::read_to_string(folder.join("agent.toml")).expect("our own");
    folder.file("agent.toml", named(&file), 0o600);
    let table =
        gateway_text(&folder, port, |_| ()).more.replace("\"host-7\"", &format!("{name:?}"));
    Some((folder, named(&table)))
}

/// The south and the north each behind an agent, the east on the gateway's host.
struct World {
    /// Before the folders that they are in.
    zones: [Zone; 3],
    agents: [Option<Agent>; 2],
    folders: [Folder; 2],
    line: Line,
    player: Player,
    said: u32,
    /// Agents that have come after others.
    heirs: Vec<Heir>,
}

const WHERE: [&str; 3] = ["south", "north", "east"];

impl World {
    fn start() -> Option<Self> {
        let ((south, first), (north, second)) =
            (host("host-7", WHERE[0])?, host("host-8", WHERE[1])?);
        let mut text = zones();
        text.more = first + &second;
        let daemon = Daemon::start(&text);
        let agents = [&south, &north].map(|folder| Some(Agent::start(folder)));
        let zones = [
            Zone::start(&south.join("host"), WHERE[0]),
            Zone::start(&north.join("host"), WHERE[1]),
            Zone::start(&daemon.run_dir(), WHERE[2]),
        ];
        all_up(&daemon, 3);
        let player = Player::connected(daemon.listener, 7, KEY_HEX);
        let (line, folders) = (Line::of(daemon), [south, north]);
        let heirs = Vec::new();
        Some(Self { zones, agents, folders, line, player, said: 0, heirs })
    }

    /// Says what was not said before until a zone has answered that.
    fn is_heard_by(&mut self, zone: usize) {
        self.said += 1;
        let said = format!("word {}", self.said);
        let expected = format!("{} {said}", WHERE[zone]);
        let player = &mut self.player;
        wait_for("the zone to answer", || {
            player.play_once(said.as_bytes());
            player.turn().iter().any(|echo| echo == expected.as_bytes()).then_some(())
        });
    }

    /// Has the player ask to go there, which that zone has heard.
    fn offered(&mut self, to: usize) {
        self.player.play_once(format!("to {}", WHERE[to]).as_bytes());
        self.zones[to].hears("offered");
    }

    fn answer(&self, zone: usize) {
        self.zones[zone].answers.send(true).expect("it runs");
    }

    /// Ends an agent at once, and waits until the gateway knows.
    fn kill_agent(&mut self, of: usize) {
        self.agents[of] = None;
        all_up(&self.line.daemon, 2);
    }

    fn start_agent(&mut self, of: usize) {
        self.agents[of] = Some(Agent::start(&self.folders[of]));
        all_up(&self.line.daemon, 3);
    }

    fn upgrade_agent(&mut self, of: usize) {
        let said = agent_upgrade(&self.folders[of]).succeeded();
        let pid = said.split(' ').nth(2).and_then(|pid| pid.parse().ok());
        self.heirs.push(Heir(pid.expect("it says which process goes on")));
    }

    fn counted(&self, series: &str, labels: &str) -> u64 {
        self.line.daemon.ask("/metrics").sum(series, labels).unwrap_or(0)
    }

    /// Has the player lost by a zone that does not read so, and thus not had by the other one.
    fn cut(&mut self, from: usize, to: usize) {
        self.offered(to);
        self.player.play_once(b"wait");
        self.zones[from].hears("wait");
        let before = self.counted("ringgate_moves_total", "");
        self.answer(to);
        wait_for("the cut", || (self.counted("ringgate_moves_total", "") > before).then_some(()));
        self.is_in_between();
    }

    /// What the player says reaches nobody yet.
    fn is_in_between(&mut self) {
        let dropped = |it: &Self| it.counted("ringgate_drops_total", "reason=\"move_unconfirmed\"");
        let before = dropped(self);
        wait_for("a drop", || {
            self.player.play_once(b"anybody?");
            (dropped(self) > before).then_some(())
        });
    }

    /// Everybody who has ever come, which is one player, once.
    fn has_one_session(&mut self) {
        assert!(self.player.is_connected());
        let metrics = self.line.daemon.ask("/metrics");
        assert_eq!(metrics.sum("ringgate_sessions_opened_total", ""), Some(1), "{}", metrics.body);
    }
}

/// From one agent to the other, to the gateway's host, and from there, with something that happens
/// behind each offer, which is told where from and where to.
fn walk(world: &mut World, meanwhile: impl Fn(&mut World, [usize; 2])) {
    for [here, there] in [[0, 1], [1, 2], [2, 0]] {
        world.offered(there);
        world.is_heard_by(here);
        meanwhile(world, [here, there]);
        world.is_heard_by(here);
        world.answer(there);
        world.is_heard_by(there);
    }
    world.has_one_session();
}

#[test]
fn a_player_walks_from_host_to_host_while_the_gateway_is_upgraded() {
    let Some(mut world) = World::start() else { return };
    walk(&mut world, |world, _| {
        let (code, said) = world.line.upgrade();
        assert_eq!(code, Some(0), "{said}");
    });
}

#[test]
fn a_player_is_with_one_zone_whichever_agent_dies_in_the_middle_of_a_move() {
    let Some(mut world) = World::start() else { return };
    // That of the zone that was asked: the player plays on.
    world.offered(1);
    world.kill_agent(1);
    world.zones[0].hears("the game process is not connected");
    world.is_heard_by(0);
    world.answer(1);
    world.start_agent(1);
    world.is_heard_by(0);
    // That of the zone that has asked: the player waits for it, and a yes comes too late.
    for there in [1, 2] {
        world.offered(there);
        world.kill_agent(0);
        world.answer(there);
        world.zones[there].hears("over");
        world.start_agent(0);
        world.is_heard_by(0);
    }
    // And behind a yes the other zone has the player.
    world.offered(1);
    world.answer(1);
    world.is_heard_by(1);
    world.kill_agent(0);
    world.is_heard_by(1);
    world.has_one_session();
}

#[test]
fn a_player_walks_from_host_to_host_while_both_agents_are_upgraded() {
    let Some(mut world) = World::start() else { return };
    walk(&mut world, |world, ways| {
        let agents = world.agents.len();
        for of in ways.into_iter().filter(|of| *of < agents) {
            world.upgrade_agent(of);
        }
    });
}

#[test]
fn a_player_is_with_one_zone_whichever_agent_goes_between_the_cut_and_the_confirmation() {
    let Some(mut world) = World::start() else { return };
    // That of the zone which has lost the player: nobody is left who could confirm.
    world.cut(0, 1);
    world.kill_agent(0);
    world.is_heard_by(1);
    world.answer(0);
    world.start_agent(0);
    // That of the zone which has the player: it waits there, and is opened again.
    world.cut(1, 0);
    world.kill_agent(0);
    world.answer(1);
    world.start_agent(0);
    world.is_heard_by(0);
    // Whoever is upgraded carries on what is under way.
    world.cut(0, 1);
    world.upgrade_agent(0);
    world.is_in_between();
    world.upgrade_agent(1);
    world.is_in_between();
    let (code, said) = world.line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    world.is_in_between();
    world.answer(0);
    world.is_heard_by(1);
    world.has_one_session();
}

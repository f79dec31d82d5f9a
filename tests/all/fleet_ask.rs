//! `ringgate fleet sessions`, `kick`, `move`, `drain`, `undrain` and `trace`: all gateways of a
//! fleet at once, by keys in etcd that only holders of the fleet's key can write, each obeyed once.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use std::io::Read;
use std::process::{Command, Stdio};

use ringgate_core::netcode::State;
use ringgate_core::secret::Key;
use ringgate_fleet::asking::{opened, sealed};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{Piece, Question, What};
use ringgate_os::clock;
use serde_json::Value;

use crate::command::{Ending, Ran, ringgate, run};
use crate::control_browser::{shown, text_of};
use crate::control_moves::{is_heard_by, zone};
use crate::control_rig::{Daemon, Game, Player, wait_for};
use crate::fleet_gateway::Heir;
use crate::fleet_page::Service;
use crate::fleet_rig::{FLEET_KEY, Fleet, backend_is_up, in_fleet, key};
use crate::folder::Folder;
use crate::moves_agents::Zone;

/// A fleet with gateways that have a game process each, and whoever has the fleet's key.
struct Rig {
    fleet: Fleet,
    gateways: Vec<(Daemon, Game)>,
    folder: Folder,
}

impl Rig {
    /// `None`, said aloud, where etcd is not installed.
    fn start(names: &[&str]) -> Option<Self> {
        let fleet = Fleet::start()?;
        fleet.put_key("eu", 1);
        let folder = Folder::new();
        folder.file("key", FLEET_KEY, 0o600);
        let start = |name: &&str| {
            let daemon = Daemon::start(&in_fleet(&fleet, name));
            let backend = format!("at-{name}");
            fleet.put_backend(&daemon, &backend, 100, "ready");
            let game = Game::start(&daemon, &backend);
            backend_is_up(&daemon, &backend);
            (daemon, game)
        };
        let gateways = names.iter().map(start).collect();
        Some(Self { fleet, gateways, folder })
    }

    fn daemon(&self, index: usize) -> &Daemon {
        &self.gateways[index].0
    }

    fn player(&self, index: usize, client_id: u64) -> Player {
        Player::connected(self.daemon(index).listener, client_id, &key(1))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = ringgate(["fleet"]);
        command.args(words).args(["--endpoint", &self.fleet.endpoint(), "--fleet", "/f"]);
        command.arg("--fleet-key").arg(self.folder.join("key")).env("USER", "anna");
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        run(self.command(words))
    }

    fn json(&self, words: &[&str]) -> Value {
        let said = self.run(&[words, &["--json"]].concat()).succeeded();
        serde_json::from_str(&said).expect("JSON")
    }

    /// Puts something where a gateway is asked, and waits until it has taken it away.
    fn put_question(&self, instance: &str, id: &str, value: &[u8]) -> i64 {
        let granted = self.fleet.ctl(&["lease", "grant", "60"]);
        let lease = granted.split(' ').nth(1).expect("its number");
        let at = format!("/f/claim/ask/{instance}/{id}");
        let value = str::from_utf8(value).expect("JSON");
        self.fleet.ctl(&["put", "--lease", lease, &at, value]);
        wait_for("it is taken away", || self.fleet.entry_at(&at).is_none().then_some(()));
        i64::from_str_radix(lease, 16).expect("a number")
    }

    /// The instance of a gateway, as it stands in etcd.
    fn instance(&self, name: &str) -> String {
        let own = wait_for("its registration", || self.fleet.gateway(name));
        own["instance"].as_str().expect("text").to_owned()
    }

    /// The gateways that have not answered, and why.
    fn count(&self, index: usize, outcome: &str) -> u64 {
        let series = format!("ringgate_fleet_questions_total{{outcome=\"{outcome}\"}}");
        self.daemon(index).get("/metrics").value(&series).expect("it is there")
    }
}

fn fleet_key() -> FleetKey {
    FleetKey::new(Key::from_hex(FLEET_KEY).expect("hex"))
}

fn kick(client_id: u64, at: u64) -> Question {
    let (by, query) = ("anna".to_owned(), format!("client_id={client_id}"));
    Question { at, by, what: What::Kick, query }
}

/// A question as it stands in etcd for a start of a gateway.
fn asked(key: &FleetKey, (instance, id): (&str, &str), question: &Question) -> Vec<u8> {
    let at = format!("/f/claim/ask/{instance}/{id}");
    sealed(key, at.as_bytes(), question).expect("a value").to_vec()
}

#[test]
fn who_is_on_a_server_is_told_by_all_gateways_and_a_kick_finds_a_player_wherever_it_is() {
    let Some(rig) = Rig::start(&["gate-1", "gate-2"]) else { return };
    let (mut here, mut there, mut other) = (rig.player(0, 7), rig.player(1, 7), rig.player(1, 8));
    // Which players are on server at-gate-2? The first gateway has no such backend.
    let text = rig.run(&["sessions", "--backend", "at-gate-2"]).succeeded();
    assert!(text.starts_with("gateway  session"), "{text}");
    assert!(text.ends_with("\n2 sessions\n") && !text.contains("gate-1"), "{text}");
    let all = rig.json(&["sessions", "7"]);
    let found: Vec<_> = all["answers"].as_array().expect("a list").iter().collect();
    let of = |it: &Value| (it["gateway"].clone(), it["answer"]["sessions"][0]["client_id"].clone());
    assert_eq!(
        found.into_iter().map(of).collect::<Vec<_>>(),
        [("gate-1".into(), 7.into()), ("gate-2".into(), 7.into())]
    );
    assert_eq!(all["silent"], serde_json::json!([]));
    let text = rig.run(&["kick", "7"]).succeeded();
    let lines = ["gate-1", "gate-2"].map(|it| format!("{it}: ended 1 sessions of client 7\n"));
    assert_eq!(text, lines.concat());
    assert_eq!((here.ended(), there.ended()), (State::Disconnected, State::Disconnected));
    other.echo(b"somebody else is nobody's business");
    // Who has asked is in every log.
    for (daemon, _) in &rig.gateways {
        let log = daemon.log();
        for said in ["kick of client 7", "ended 1 sessions of client 7"] {
            let asks = |line: &str| line.contains(said) && line.contains("anna at ");
            assert!(log.lines().any(asks), "{said}: {log}");
        }
    }
    let ran = rig.run(&["kick", "7"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.ends_with("client 7 has no session at 2 gateways\n"), "{}", ran.stderr);
    let why = rig.run(&["sessions", "--backend", "nowhere"]).refused();
    assert!(why.contains("there is no backend \"nowhere\" at any gateway"), "{why}");
    // It is no other end where the answers are for a program.
    for (words, code) in
        [(&["kick", "7"][..], 1), (&["move", "7", "--to", "arena"], 1), (&["drain", "nowhere"], 2)]
    {
        let ran = rig.run(&[words, &["--json"]].concat());
        let page: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(page["answers"].as_array().map(Vec::len), Some(2), "{page}");
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("ringgate: "), "{}", ran.stderr);
    }
    let why = rig.run(&["kick", "--session", "0000000000000001"]).refused();
    assert!(why.contains("--session takes --gateway NAME"), "{why}");
    let why = rig.run(&["sessions", "--gateway", "gate-3"]).refused();
    assert!(why.contains("no gateway gate-3 is registered (there are gate-1, gate-2)"), "{why}");
    // Nothing of all this stays in etcd, where nobody could have read it either.
    let left = rig.fleet.ctl(&["get", "--prefix", "/f/claim/a"]);
    assert_eq!(left.trim(), "");
}

#[test]
fn an_answer_of_many_parts_is_told_whole_and_two_operators_are_not_in_each_others_way() {
    let Some(rig) = Rig::start(&["gate-1"]) else { return };
    let players: Vec<_> = (1..=70).map(|client_id| rig.player(0, client_id)).collect();
    let ask = || {
        let page = rig.json(&["sessions"]);
        let page = &page["answers"][0]["answer"];
        (page["count"].as_u64(), page["sessions"].as_array().map(Vec::len))
    };
    let expected = (Some(70), Some(70));
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(ask);
        (ask(), other.join().expect("it is told"))
    });
    assert_eq!((one, two), (expected, expected));
    assert_eq!((rig.count(0, "answered"), rig.count(0, "forged")), (2, 0));
    drop(players);
}

#[test]
fn a_question_that_was_forged_or_put_back_is_not_obeyed() {
    let Some(rig) = Rig::start(&["gate-1", "gate-2"]) else { return };
    let mut player = rig.player(0, 7);
    let (first, second) = (rig.instance("gate-1"), rig.instance("gate-2"));
    let now_s = clock::unix_seconds();
    // Nobody without the fleet's key asks anything, and what was asked elsewhere is not asked here.
    let other = FleetKey::new(Key::from_bytes([9; 32]));
    for (id, value) in [
        ("a1", serde_json::to_vec(&kick(7, now_s)).expect("JSON")),
        ("a2", asked(&other, (&first, "a2"), &kick(7, now_s))),
        ("a3", asked(&fleet_key(), (&second, "a3"), &kick(7, now_s))),
        ("a4", asked(&fleet_key(), (&first, "a3"), &kick(7, now_s))),
    ] {
        rig.put_question(&first, id, &value);
    }
    wait_for("they are counted", || (rig.count(0, "forged") == 4).then_some(()));
    player.echo(b"still here");
    // One that is too old is refused in words.
    let old = asked(&fleet_key(), (&first, "b1"), &kick(7, now_s - 3600));
    rig.put_question(&first, "b1", &old);
    let at = format!("/f/claim/answer/b1/{first}/00000000");
    let answer = wait_for("its answer", || {
        let value = rig.fleet.text(&at);
        opened::<Piece>(&fleet_key(), at.as_bytes(), value.as_bytes())?.ok()
    });
    assert_eq!((answer.status, answer.last), (403, true));
    assert!(answer.text.contains("are both clocks right?"), "{}", answer.text);
    player.echo(b"and still");
    // A true one is obeyed, once.
    let kick_now = asked(&fleet_key(), (&first, "c1"), &kick(7, now_s));
    rig.put_question(&first, "c1", &kick_now);
    assert_eq!(player.ended(), State::Disconnected);
    let mut player = rig.player(0, 7);
    rig.put_question(&first, "c1", &kick_now);
    wait_for("it is counted", || (rig.count(0, "forged") == 5).then_some(()));
    player.echo(b"once is enough");
    // Nor by the process that the gateway is handed over to, which knows what was answered.
    let heir = Heir::of(rig.daemon(0));
    rig.put_question(&first, "c1", &kick_now);
    wait_for("it is counted", || (rig.count(0, "forged") == 1).then_some(()));
    player.echo(b"carried");
    let text = rig.run(&["kick", "7", "--gateway", "gate-1"]).succeeded();
    assert_eq!(text, "gate-1: ended 1 sessions of client 7\n");
    drop(heir);
}

#[test]
fn a_gateway_that_was_started_again_is_another_and_obeys_nothing_that_the_last_one_was_asked() {
    let Some(mut rig) = Rig::start(&["gate-1"]) else { return };
    let first = rig.instance("gate-1");
    let question = asked(&fleet_key(), (&first, "c1"), &kick(7, clock::unix_seconds()));
    rig.put_question(&first, "c1", &question);
    // Without a player it would end before it can be seen to drain.
    let stays = rig.player(0, 9);
    let (daemon, game) = rig.gateways.pop().expect("there is one");
    daemon.end_at_once();
    wait_for("the registration's end", || rig.fleet.gateway("gate-1").is_none().then_some(()));
    drop((daemon, game, stays));
    let daemon = Daemon::start(&in_fleet(&rig.fleet, "gate-1"));
    let game = rig.fleet.plays_at(&daemon, "arena");
    rig.gateways.push((daemon, game));
    let next = rig.instance("gate-1");
    assert_ne!(next, first);
    let mut player = rig.player(0, 7);
    rig.put_question(&next, "c1", &question);
    wait_for("it is counted", || (rig.count(0, "forged") == 1).then_some(()));
    player.echo(b"still here");
}

#[test]
fn who_does_not_answer_is_named_and_etcd_that_is_away_too() {
    let Some(mut rig) = Rig::start(&["gate-1", "gate-2"]) else { return };
    let mut player = rig.player(0, 7);
    // One of the last release, and one that was stopped.
    let mut old = rig.fleet.gateway("gate-1").expect("it is registered");
    old.as_object_mut().expect("an object").remove("answers");
    rig.fleet.ctl(&["put", "/f/truth/gateway/gate-0", &old.to_string()]);
    rig.daemon(1).signal("STOP");
    let ran = rig.run(&["kick", "7", "--within", "2s"]);
    let traced = rig.run(&["trace", "7", "--for", "10ms", "--within", "2s"]);
    rig.daemon(1).signal("CONT");
    assert_eq!(ran.stdout, "gate-1: ended 1 sessions of client 7\n");
    assert!(traced.stdout.contains("gate-1  ") && !traced.stdout.contains("gate-2  "));
    let why = "ringgate: not answered within 2s: gate-0 (a release that cannot be asked, or a config \
               without the fleet's key), gate-2\n";
    for ran in [ran, traced] {
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), why));
    }
    assert_eq!(player.ended(), State::Disconnected);
    let without = run({
        let mut command = ringgate(["fleet", "kick", "7"]);
        command.args(["--endpoint", &rig.fleet.endpoint(), "--fleet", "/f"]);
        command
    });
    assert!(without.refused().contains("--fleet-key FILE"));
    rig.fleet.kill();
    let ran = rig.run(&["kick", "7"]);
    assert_eq!(ran.code, Some(1));
    let which = format!("ringgate: etcd at {}: ", rig.fleet.endpoint());
    assert!(ran.stderr.starts_with(&which), "{}", ran.stderr);
}

#[test]
fn a_backend_and_a_gateway_are_drained_and_taken_back_from_one_place() {
    let Some(mut rig) = Rig::start(&["gate-1", "gate-2"]) else { return };
    let why = rig.run(&["drain"]).refused();
    assert_eq!(why, "expected a BACKEND, or --gateway NAME for a whole gateway");
    let is_drained = |name: &str| {
        let status = rig.daemon(0).status();
        let backends = status["backends"].as_array().expect("a list").clone();
        backends.iter().any(|it| it["name"] == name && it["drained"] == true)
    };
    let said = rig.run(&["drain", "at-gate-1"]).succeeded();
    assert_eq!(said, "gate-1: backend at-gate-1 takes no new players; 0 are there\n");
    assert!(is_drained("at-gate-1"));
    let said = rig.run(&["undrain", "at-gate-1"]).succeeded();
    assert_eq!(said, "gate-1: backend at-gate-1 takes players again\n");
    assert!(!is_drained("at-gate-1"));
    // A registration that is away for a while takes nobody's word back, nor does an upgrade
    // meanwhile; and a backend that is away can be taken back.
    let mut heir = None;
    for is_away in [false, true] {
        rig.run(&["drain", "at-gate-1", "--deadline", "1h"]).succeeded();
        rig.fleet.ctl(&["del", "/f/truth/backend/at-gate-1"]);
        let is_known = || {
            let status = rig.daemon(0).status();
            let backends = status["backends"].as_array().expect("a list").clone();
            backends.iter().any(|it| it["name"] == "at-gate-1")
        };
        wait_for("it is gone", || (!is_known()).then_some(()));
        heir = heir.or_else(|| Some(Heir::of(rig.daemon(0))));
        let undrain = || rig.run(&["undrain", "at-gate-1"]).succeeded();
        let gone = is_away.then(undrain);
        rig.fleet.put_backend(rig.daemon(0), "at-gate-1", 100, "ready");
        backend_is_up(rig.daemon(0), "at-gate-1");
        assert_eq!(is_drained("at-gate-1"), !is_away);
        let said = gone.unwrap_or_else(undrain);
        assert_eq!(said, "gate-1: backend at-gate-1 takes players again\n");
        assert!(!is_drained("at-gate-1"));
    }
    drop(heir);
    let mut player = rig.player(1, 7);
    let has_sessions = |rig: &Rig, count: u64| {
        wait_for("its sessions", || {
            let sessions = rig.daemon(1).status()["totals"]["sessions"].as_u64();
            (sessions == Some(count)).then_some(())
        });
    };
    has_sessions(&rig, 1);
    let said = rig.run(&["drain", "--gateway", "gate-2", "--deadline", "30m"]).succeeded();
    assert_eq!(said, "gate-2: draining: 1 sessions, 30 min at most\n");
    let said = rig.run(&["undrain", "--gateway", "gate-2"]).succeeded();
    assert_eq!(said, "gate-2: players are taken in again\n");
    player.echo(b"still here");
    // One that is empty ends, and says so before.
    player.leave();
    has_sessions(&rig, 0);
    let said = rig.run(&["drain", "--gateway", "gate-2"]).succeeded();
    assert!(said.starts_with("gate-2: draining: 0 sessions"), "{said}");
    assert_eq!(rig.gateways[1].0.ended(), Some(0));
}

#[test]
fn a_trace_of_the_whole_fleet_tells_which_gateway_decides() {
    let Some(rig) = Rig::start(&["gate-1", "gate-2"]) else { return };
    let mut player = rig.player(1, 7);
    let begun = |daemon: &Daemon| daemon.log().contains("asks for a trace of client 7");
    let (text, json) = std::thread::scope(|scope| {
        let text = scope.spawn(|| rig.run(&["trace", "7", "--for", "2s"]));
        let json = scope.spawn(|| rig.run(&["trace", "7", "--for", "2s", "--json"]));
        wait_for("both gateways have been asked", || {
            rig.gateways.iter().all(|(it, _)| begun(it)).then_some(())
        });
        player.echo(b"seen");
        (text.join().expect("it ends"), json.join().expect("it ends"))
    });
    let text = text.succeeded();
    assert!(text.lines().any(|it| it.starts_with("gate-1  client 7 has no session")), "{text}");
    let last = |gateway: &str| format!("{gateway}  ");
    let over = |line: &str, gateway: &str| {
        line.starts_with(&last(gateway)) && line.contains("the time is over")
    };
    for gateway in ["gate-1", "gate-2"] {
        assert!(text.lines().any(|line| over(line, gateway)), "{text}");
    }
    let lines: Vec<Value> =
        json.succeeded().lines().map(|it| serde_json::from_str(it).expect("JSON")).collect();
    let has = |event: &str, gateway: &str| {
        lines.iter().any(|it| it["event"] == event && it["gateway"] == gateway)
    };
    assert!(has("nobody", "gate-1") && has("here", "gate-2") && has("end", "gate-1"), "{lines:?}");
}

#[test]
fn a_token_service_asks_all_gateways_for_whom_it_may() {
    let Some(mut rig) = Rig::start(&["gate-1", "gate-2"]) else { return };
    let mut player = rig.player(1, 7);
    let none = serde_json::json!({});
    let whom = serde_json::json!({ "client_id": "7" });
    let onlooker = Service::start(&rig.fleet, &["see", "tokens"]);
    assert_eq!(onlooker.post("/v1/kick", &whom).json()["error"], "scope_missing");
    onlooker.end();
    let service = Service::start(&rig.fleet, &["see", "admin"]);
    wait_for("both gateways in the service's mirror", || {
        let told = service.get("/v1/fleet", "an-eye-for-the-fleet").json();
        (told["gateways"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
    let told = service.post("/v1/sessions", &serde_json::json!({ "backend": "at-gate-2" })).json();
    assert_eq!(told["silent"], serde_json::json!([]));
    let [first, second] = [&told["answers"][0], &told["answers"][1]];
    assert_eq!((&first["gateway"], &first["status"]), (&"gate-1".into(), &404.into()));
    assert_eq!(second["answer"]["sessions"][0]["client_id_text"], "7");
    // A page that is told whom to look for finds it.
    if let Some(dom) = shown(&service.page("?player=7")) {
        assert_eq!(text_of(&dom, "said"), "1 sessions", "{dom}");
        let found = text_of(&dom, "found");
        assert!(found.contains(&format!("gate-2|at-gate-2|eu|{}|", player.local())), "{found}");
        assert!(!dom.contains("NaN") && !dom.contains("undefined<"), "{dom}");
        let dom = shown(&service.page("?player=8")).expect("it was there a moment ago");
        assert_eq!(text_of(&dom, "said"), "no session", "{dom}");
    }
    let seven = serde_json::json!({ "client_id": "7", "for": 2 });
    let told = std::thread::scope(|scope| {
        let trace = scope.spawn(|| service.post("/v1/trace", &seven).json());
        wait_for("a gateway that has been asked", || {
            let log = rig.daemon(1).log();
            log.contains("with the fleet's key asks for a trace of client 7").then_some(())
        });
        player.echo(b"seen");
        trace.join().expect("it ends")
    });
    assert_eq!(told["silent"], serde_json::json!([]), "{told}");
    let events = |at: usize| -> Vec<_> {
        let lines = told["answers"][at]["answer"].as_array().expect("a list of lines");
        lines.iter().map(|line| line["event"].as_str().expect("a word")).collect()
    };
    assert_eq!(events(0), ["begin", "nobody", "end"], "{told}");
    assert_eq!((events(1)[1], events(1).last()), ("here", Some(&"end")), "{told}");
    let told = service.post("/v1/kick", &whom).json();
    assert_eq!(told["answers"][1]["answer"]["ended"], 1);
    assert_eq!(player.ended(), State::Disconnected);
    let log = rig.daemon(1).log();
    assert!(
        log.contains("wall of token service tokens-1 with the fleet's key asks for a kick"),
        "{log}"
    );
    let gate_2 = serde_json::json!({ "gateways": ["gate-2"], "deadline": 60 });
    let told = service.post("/v1/drain", &gate_2).json();
    assert_eq!(told["answers"][0]["answer"]["state"], "draining", "{told}");
    let unknown = service.post("/v1/undrain", &serde_json::json!({ "gateways": ["gate-9"] }));
    assert_eq!((unknown.status, &unknown.json()["error"]), (404, &"gateway_unknown".into()));
    assert_eq!(service.post("/v1/trace", &none).json()["error"], "body_malformed");
    for (path, body) in [("/v1/kick", &none), ("/v1/drain", &none), ("/v1/sessions", &gate_2)] {
        assert_eq!(service.post(path, body).json()["error"], "body_malformed", "{path} {body}");
    }
    rig.fleet.kill();
    let away = service.post("/v1/kick", &whom);
    assert_eq!((away.status, &away.json()["error"]), (503, &"gateways_not_asked".into()));
}

#[test]
fn a_player_is_moved_wherever_it_is_in_the_fleet_and_once_by_each_note() {
    let Some(mut rig) = Rig::start(&["gate-1"]) else { return };
    let mut text = in_fleet(&rig.fleet, "gate-2");
    text.listener += "moves = [\"south\", \"north\", \"east\"]\n";
    let daemon = Daemon::start(&text);
    let up = |name: &'static str, is_choosy| {
        rig.fleet.put_backend(&daemon, name, 100, "ready");
        let game = zone(&daemon, name, is_choosy);
        backend_is_up(&daemon, name);
        game
    };
    let _south = up("south", false);
    let mut player = Player::connected(daemon.listener, 7, &key(1));
    is_heard_by(&mut player, "south");
    let (_north, _east) = (up("north", false), up("east", true));
    let service = Service::start(&rig.fleet, &["see", "admin"]);
    wait_for("both gateways in the service's mirror", || {
        let told = service.get("/v1/fleet", "an-eye-for-the-fleet").json();
        (told["gateways"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
    let whom = |client_id: u64, to: &str| serde_json::json!({ "client_id": client_id, "to": to });
    let told = service.post("/v1/moves", &whom(7, "north")).json();
    assert_eq!(told["silent"], serde_json::json!([]), "{told}");
    assert_eq!(told["answers"][0]["status"], 404, "the other gateway has no such backend: {told}");
    assert_eq!(told["answers"][1]["answer"]["moved"], 1, "{told}");
    is_heard_by(&mut player, "north");
    // Why not, and nobody, are told as well.
    let told = service.post("/v1/moves", &whom(7, "east")).json();
    assert_eq!(told["answers"][1]["answer"]["refused"]["denied"], 1, "{told}");
    let told = service.post("/v1/moves", &whom(8, "south")).json();
    let (moved, refused) = (0, serde_json::json!({}));
    let answer = &told["answers"][1]["answer"];
    assert_eq!((&answer["moved"], &answer["refused"]), (&moved.into(), &refused), "{told}");
    is_heard_by(&mut player, "north");
    let ran = rig.run(&["move", "7", "--to", "south", "--confirm", "--gateway", "gate-2"]);
    assert_eq!(ran.succeeded(), "gate-2: moved 1 to south\n");
    is_heard_by(&mut player, "south");
    let ran = rig.run(&["move", "8", "--to", "south", "--gateway", "gate-2"]);
    assert!(ran.stderr.contains("client 8 has no session at 1 gateways"), "{}", ran.stderr);

    // Whoever can only write to etcd moves nobody: with nothing, with what is no note, with one
    // that stood elsewhere, and with one that was obeyed before.
    let (instance, at) = (rig.instance("gate-2"), clock::unix_seconds());
    let query = "client_id=7&to=north".to_owned();
    let note = Question { at, by: "anna".to_owned(), what: What::Move, query };
    let place = |id: &str| format!("/f/claim/move/{instance}/{id}");
    let of = |at: &str| sealed(&fleet_key(), at.as_bytes(), &note).expect("a value").to_vec();
    let put = |at: &str, value: &[u8]| {
        rig.fleet.ctl(&["put", at, str::from_utf8(value).expect("text")]);
        wait_for("it is taken away", || rig.fleet.entry_at(at).is_none().then_some(()));
    };
    let counted = |outcome: &str, count| {
        let series = format!("ringgate_fleet_questions_total{{outcome=\"{outcome}\"}}");
        let has = || daemon.get("/metrics").value(&series) == Some(count);
        wait_for(outcome, || has().then_some(()));
    };
    put(&place("a1"), b"{}");
    put(&place("a2"), &b"x".repeat(20_000));
    put(&place("a3"), &of(&format!("/f/claim/ask/{instance}/a3")));
    counted("forged", 3);
    is_heard_by(&mut player, "south");
    put(&place("a4"), &of(&place("a4")));
    is_heard_by(&mut player, "north");
    let ran = rig.run(&["move", "7", "--to", "south", "--gateway", "gate-2"]);
    assert_eq!(ran.succeeded(), "gate-2: moved 1 to south\n");
    put(&place("a4"), &of(&place("a4")));
    counted("forged", 4);
    is_heard_by(&mut player, "south");
    assert_eq!(rig.fleet.ctl(&["get", "--prefix", "/f/claim/move"]).trim(), "");

    // Who is not heard is named, and none of it stands there for later.
    rig.fleet.ctl(&[
        "put",
        "/f/truth/gateway/gate-9",
        &silent(rig.fleet.gateway("gate-2").as_ref()),
    ]);
    wait_for("a third gateway in the service's mirror", || {
        let told = service.get("/v1/fleet", "an-eye-for-the-fleet").json();
        (told["gateways"].as_array().map(Vec::len) == Some(3)).then_some(())
    });
    let body = serde_json::json!({ "client_id": 7, "to": "north", "time_ms": 500, "within": 1 });
    let told = service.post("/v1/moves", &body).json();
    assert_eq!(told["silent"][0]["gateway"], "gate-9", "{told}");
    assert_eq!(told["answers"][1]["answer"]["moved"], 1, "{told}");
    assert_eq!(rig.fleet.ctl(&["get", "--prefix", "/f/claim/move"]).trim(), "");
    for body in [whom(7, "no name"), serde_json::json!({ "client_id": 7 })] {
        assert_eq!(service.post("/v1/moves", &body).json()["error"], "body_malformed", "{body}");
    }
    rig.fleet.kill();
    let away = service.post("/v1/moves", &whom(7, "south"));
    assert_eq!((away.status, &away.json()["error"]), (503, &"gateways_not_asked".into()));
    is_heard_by(&mut player, "north");
}

#[test]
fn a_move_through_the_fleet_meets_another_one_an_upgrade_and_a_ban() {
    let Some(rig) = Rig::start(&[]) else { return };
    let daemon = Daemon::start(&in_fleet(&rig.fleet, "gate-1"));
    let up = |name: &'static str| {
        rig.fleet.put_backend(&daemon, name, 100, "ready");
        let zone = Zone::start(&daemon.run_dir(), name);
        backend_is_up(&daemon, name);
        zone
    };
    let _south = up("south");
    let mut player = Player::connected(daemon.listener, 7, &key(1));
    is_heard_by(&mut player, "south");
    let north = up("north");
    let is_moving = |to: &str| {
        let mut command = rig.command(&["move", "7", "--time", "30s", "--to", to]);
        Ending(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it is built"))
    };
    // Two at once: the second is refused by name, and the first meets the next process.
    let first = is_moving("north");
    north.hears("offered");
    let ran = rig.run(&["move", "7", "--to", "north"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("busy 1"), "{}", ran.stderr);
    let _heir = Heir::of(&daemon);
    is_heard_by(&mut player, "south");
    north.answers.send(true).expect("it runs");
    // It goes on there, though that one may not have heard of the server yet.
    is_heard_by(&mut player, "north");
    // Nobody is left to tell whoever has asked the process before.
    drop(first);
    assert!(player.is_connected());

    // Who is banned meanwhile is ended by that name, and is nowhere.
    let east = up("east");
    let mut second = is_moving("east");
    east.hears("offered");
    rig.run(&["deny", "7"]).succeeded();
    assert_eq!(player.ended(), State::Disconnected);
    assert_eq!(second.wait().expect("it is ours").code(), Some(1));
    let mut said = String::new();
    let _ = second.stderr.take().expect("piped").read_to_string(&mut said);
    assert!(said.contains("session_over 1"), "{said}");
    east.answers.send(true).expect("it runs");
    east.hears("over");
    let metrics = daemon.ask("/metrics");
    assert_eq!(metrics.sum("ringgate_sessions_closed_total", "reason=\"denied\""), Some(1));
    assert_eq!(metrics.sum("ringgate_moves_total", ""), Some(1), "{}", metrics.body);
}

/// A registration of a gateway whose start hears no notes.
fn silent(own: Option<&Value>) -> String {
    let mut own = own.cloned().expect("it is registered");
    own["instance"] = "0000".into();
    own.to_string()
}

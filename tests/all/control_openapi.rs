//! The description of the admin API (docs/reference/admin-openapi.json), held to the standard by a
//! validator of others, and what a gateway really answers, held to the description.
//!
//! Skipped aloud without the Python package `openapi-spec-validator`; `REQUIRE_OPENAPI=1` makes
//! that a failure.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::control_rig::{Daemon, Game, KEY_HEX, Page, Player, Text};

const DOCUMENT: &str = include_str!("../../docs/reference/admin-openapi.json");

fn serving() -> (Daemon, Game) {
    let daemon = Daemon::start(&Text::new());
    let game = Game::start(&daemon, "arena");
    daemon.ready();
    (daemon, game)
}

/// Every page that there is, and what each may be asked.
#[test]
fn the_description_has_every_page_and_every_field_of_a_question() {
    let document: Value = serde_json::from_str(DOCUMENT).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let (daemon, _game) = serving();
    // "nothing is here; GET / /metrics …, POST /drain …"
    let nothing = daemon.ask("/nothing").body;
    let there = nothing.split([' ', ',', '\n']).filter(|word| word.starts_with('/'));
    assert_eq!(there.collect::<BTreeSet<_>>(), paths.keys().map(String::as_str).collect());
    // And so has the page to read.
    let page = include_str!("../../docs/reference/admin.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let asked = rows.flat_map(|row| row.split(" | ").next().expect("a cell").split('`'));
    let asked = asked.filter_map(|code| {
        let (method, path) = code.split_once(' ')?;
        Some((method.to_ascii_lowercase(), path.split('?').next()?))
            .filter(|_| path.starts_with('/'))
    });
    let described = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").keys().cloned();
        methods.map(|method| (method, path.as_str()))
    });
    assert_eq!(asked.collect::<BTreeSet<_>>(), described.collect());
    for (path, methods) in paths {
        let (method, operation) = methods.as_object().and_then(|it| it.iter().next()).expect(path);
        let described = operation["parameters"].as_array().into_iter().flatten();
        let described: BTreeSet<_> =
            described.map(|it| it["name"].as_str().expect("a name")).collect();
        // What is asked with a field that nobody knows is refused, before anything is done. These
        // look at no field.
        if ["/", "/healthz", "/metrics", "/status", "/upgrade"].contains(&path.as_str()) {
            assert!(described.is_empty(), "{path}");
            continue;
        }
        // Probes may add what they like.
        if path == "/readyz" {
            assert_eq!(described, ["listener"].into());
            continue;
        }
        let asked = format!("{path}?nobody=1");
        let refused = if method == "post" { daemon.post(&asked) } else { daemon.ask(&asked) };
        assert_eq!(refused.status, 400, "{path}: {}", refused.body);
        let (_, known) = refused.body.split_once("expected ").expect("those that are known");
        let known = known.trim().split(", ").filter(|name| *name != "client");
        assert_eq!(described, known.collect(), "{path}");
    }
}

#[test]
fn what_is_asked_and_answered_is_what_the_description_says() {
    let has = Command::new("python3").args(["-c", "import openapi_spec_validator"]).output();
    if !has.is_ok_and(|it| it.status.success()) {
        let required = std::env::var_os("REQUIRE_OPENAPI").is_some_and(|it| it == "1");
        assert!(!required, "REQUIRE_OPENAPI=1, but openapi-spec-validator is not there");
        eprintln!("SKIPPED: Python's openapi-spec-validator is not there");
        return;
    }
    let (daemon, _game) = serving();
    let _player = Player::connected(daemon.listener, 7, KEY_HEX);
    let mut exchanges = Vec::new();
    let mut note = |method: &str, asked: &str, status: u16, answer: &Page| {
        assert_eq!(answer.status, status, "{asked}: {}", answer.body);
        let head = answer.head.to_ascii_lowercase();
        let kind = head.split("content-type: ").nth(1).and_then(|it| it.lines().next());
        exchanges.push(json!({
            "path": asked.split('?').next(), "method": method, "sent": null, "fits": true, "status": status,
            "kind": kind.unwrap_or_default(), "answer": answer.body,
        }));
    };
    for (asked, status) in [
        ("/", 200),
        ("/metrics", 200),
        ("/healthz", 200),
        ("/readyz?listener=eu", 200),
        ("/readyz?listener=us", 404),
        ("/status", 200),
        ("/sessions?client_id=7", 200),
        ("/sessions?limit=many", 400),
        ("/trace?client_id=7&for_ms=10", 200),
        ("/denied", 200),
    ] {
        note("get", asked, status, &daemon.ask(asked));
    }
    for (asked, status) in [
        ("/deny?prefix=192.0.2.0/24&client_id=5&for_ms=60000", 200),
        ("/allow?prefix=192.0.2.0/24&whole=true", 200),
        ("/deny?prefix=somewhere", 400),
        ("/kick?client_id=8", 200),
        ("/sessions/move?client_id=7&to=arena&time_ms=500&confirm=true", 200),
        ("/sessions/move?client_id=7&to=nowhere", 404),
        ("/sessions/move?to=arena", 400),
        ("/drain?backend=arena&deadline_ms=60000", 200),
        ("/drain?backend=nowhere", 404),
        ("/undrain?backend=arena", 200),
        ("/reload?dry_run=1", 200),
        ("/reload", 200),
        ("/fleet/confirm?doubt=1", 200),
        ("/drain", 200),
        ("/undrain", 200),
    ] {
        note("post", asked, status, &daemon.post(asked));
    }
    note("get", "/denied?client_id=5", 200, &daemon.ask("/denied?client_id=5"));
    note("get", "/sessions", 403, &daemon.get("/sessions"));
    let gate = daemon.folder.join("gate.toml");
    let text = std::fs::read_to_string(&gate).expect("it is there");
    std::fs::write(&gate, text.replace("slots = 4", "slots = \"four\"")).expect("ours");
    note("post", "/reload", 422, &daemon.post("/reload"));
    judge(&exchanges);
}

/// Lets the validator look at all of it: the one of the token service's description.
fn judge(exchanges: &[Value]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut child = Command::new("python3")
        .arg(root.join("crates/tokens/tests/real/openapi.py"))
        .arg(root.join("docs/reference/admin-openapi.json"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was there a moment ago");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(Value::from(exchanges).to_string().as_bytes()).expect("it reads all");
    drop(stdin);
    let said = child.wait_with_output().expect("it ends");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}

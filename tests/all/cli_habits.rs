//! What a person's fingers type: files and names without an option before them, other words for
//! commands, units, and output that is what was asked for.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use libc::SIGTERM;
use ringgate_os::process;

use crate::command::{Ending, Ran, ringgate, run};
use crate::config_mistakes::KEY;
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::folder::Folder;

const PLAIN: &str = "[gateway]\nworkers = 1\npin = false\nrun_dir = \"run\"\nstate_dir = \"state\"\n\
    [[listener]]\nname = \"eu\"\nprotocol = \"plain\"\nbind = [\"127.0.0.1:0\"]\nbackends = [\"arena\"]\n\
    [[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"127.0.0.1:9\"\nslots = 4\n";

/// A daemon with a player whose client id no floating number holds.
const BIG: u64 = (1 << 53) + 1;

fn with_player() -> (Daemon, Game, Player) {
    let daemon = Daemon::start(&Text::new());
    let game = Game::start(&daemon, "arena");
    daemon.ready();
    let player = Player::connected(daemon.listener, BIG, KEY_HEX);
    (daemon, game, player)
}

fn ask(daemon: &Daemon, words: &[&str]) -> Ran {
    let mut command = ringgate(words);
    command.arg("--control").arg(daemon.control());
    run(command)
}

#[test]
fn a_message_names_the_mistake_and_the_way_around_it() {
    let folder = Folder::new();
    std::fs::create_dir(folder.join("keys")).expect("our own folder");
    let good = "[[listener]]\nname = \"eu\"\nprotocol = \"netcode\"\nbind = [\"0.0.0.0:40000\"]\n\
                protocol_id = 7\nkeys = [{ file = \"keys\" }]\nbackends = [\"arena\"]\n\
                [[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"127.0.0.1:9\"\nslots = 4\n";
    let check = |from: &str, to: &str| {
        let file = folder.file("gate.toml", good.replace(from, to), 0o600);
        run(ringgate(["check".as_ref(), file.as_os_str()])).stderr
    };
    for (from, to, why) in [
        ("", "", "listener[0].keys[0].file: found a folder, expected a key file in it"),
        (":40000", ":99999", "found \"0.0.0.0:99999\", expected an IP:port such as"),
        (":40000", ":99999", "(ports end at 65535)"),
        ("127.0.0.1:9", "game-1.example:9", "backend[0].address: found \"game-1.example:9\""),
        ("127.0.0.1:9", "game-1.example:9", "(names are not looked up: give the address itself)"),
    ] {
        let said = check(from, to);
        assert!(said.contains(why), "{said}");
    }
    // A gateway that runs can be asked whatever has become of its file.
    let file = folder.file("gate.toml", "[gateway]\nrun_dir = 7\n", 0o600);
    for words in [&["status"][..], &["sessions", "--config"], &["drain", "--config"]] {
        let mut command = ringgate(words);
        let ran = run({
            command.arg(&file);
            command
        });
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        let hint = "the file does not say where its gateway is: --control PATH asks without it\n";
        assert!(ran.stderr.starts_with(hint) && ran.stderr.contains("run_dir"), "{}", ran.stderr);
    }
    let daemon = Daemon::start(&Text::new());
    let admin = daemon.admin.to_string();
    for words in [&["sessions"][..], &["kick", "7"], &["trace", "7"], &["drain"]] {
        let ran = run(ringgate([words, &["--admin", &admin]].concat()));
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        let why =
            "--admin-token FILE has to be the one of [admin] token there; or ask on that host";
        assert!(ran.stderr.contains(why), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn a_config_file_stands_by_itself_or_in_the_environment() {
    let folder = Folder::new();
    let file = folder.file("gate.toml", PLAIN, 0o600).display().to_string();
    for words in [&["check", &file][..], &["check", "--config", &file], &["validate", &file]] {
        assert!(run(ringgate(words)).succeeded().contains(": ok, 1 listener"), "{words:?}");
    }
    let mut silent = ringgate(["check"]);
    silent.env("RINGGATE_CONFIG", &file);
    assert!(run(silent).succeeded().contains(": ok, 1 listener"));
    let mut doctor = ringgate(["doctor"]);
    doctor.env("RINGGATE_CONFIG", &file);
    assert!(run(doctor).stdout.contains("  ports "));

    let daemon = Daemon::start(&Text::new());
    let file = daemon.folder.join("gate.toml").display().to_string();
    for words in
        [&["status", &file][..], &["reload", "--dry-run", &file], &["top", "--once", &file]]
    {
        assert_eq!(run(ringgate(words)).code, Some(0), "{words:?}");
    }
    let mut silent = ringgate(["status"]);
    silent.env("RINGGATE_CONFIG", &file);
    assert!(run(silent).succeeded().starts_with("ringgate "));
}

#[test]
fn a_player_and_a_backend_stand_by_themselves() {
    let (daemon, _game, player) = with_player();
    let id = BIG.to_string();
    let sessions = ask(&daemon, &["sessions", &id]).succeeded();
    assert!(sessions.contains("\n1 sessions"), "{sessions}");
    let place = player.local().to_string();
    assert!(ask(&daemon, &["sessions", &place]).succeeded().contains("\n1 sessions"));
    for whom in [id.as_str(), "127.0.0.0/8"] {
        let traced = ask(&daemon, &["trace", whom, "--for", "1ms"]).succeeded();
        assert!(traced.contains("has session"), "{whom}: {traced}");
    }
    let said = ask(&daemon, &["drain", "arena"]).succeeded();
    assert_eq!(said, "backend arena takes no new players; 1 are there\n");
    assert_eq!(
        ask(&daemon, &["undrain", "arena"]).succeeded(),
        "backend arena takes players again\n"
    );
    // What a script has not filled in is not the whole gateway.
    for words in [["drain", ""], ["undrain", ""]] {
        ask(&daemon, &words).refused();
    }
    for words in [["drain", "--backend", ""], ["undrain", "--backend", ""]] {
        ask(&daemon, &words).refused();
    }
    // Whatever is typed is asked for as it is, and nobody's name is wrong input.
    for name in ["nobody", "arena 1", "arena#", "arena%20", "aréna+"] {
        for command in ["drain", "undrain"] {
            let said = ask(&daemon, &[command, name]).refused();
            assert!(said.contains(name), "{said}");
        }
    }
    assert_eq!(daemon.status()["state"], "serving");
    // The words of the last release.
    let old = ask(&daemon, &["sessions", "--client", &id]).succeeded();
    assert!(old.contains("\n1 sessions"), "{old}");
    assert!(ask(&daemon, &["kick", &id]).succeeded().starts_with("ended 1 sessions of client"));
    assert!(ask(&daemon, &["ban", &id, "203.0.113.0/24"]).succeeded().contains("2 prefixes and"));
    assert!(
        ask(&daemon, &["denied", &id]).succeeded().starts_with(&format!("client {id} is denied"))
    );
    assert!(
        ask(&daemon, &["denied", "203.0.113.7"]).succeeded().contains("is denied, by the rule")
    );
    assert!(ask(&daemon, &["unban", &id]).succeeded().contains("may play"));
}

#[test]
fn a_client_id_is_text_as_well_and_has_one_name() {
    let (daemon, _game, _player) = with_player();
    let id = BIG.to_string();
    let both = (&BIG.into(), &id.as_str().into());
    let names = [format!("client_id={BIG}"), format!("client={BIG}")];
    for query in &names {
        let page = daemon.ask(&format!("/sessions?{query}")).json();
        let session = &page["sessions"][0];
        assert_eq!((&session["client_id"], &session["client_id_text"]), both);
        let traced = daemon.ask(&format!("/trace?{query}&for_ms=1"));
        assert!(traced.body.contains("\"client_id_text\""), "{}", traced.body);
    }
    for query in &names {
        assert_eq!(daemon.post(&format!("/kick?{query}")).status, 200);
        assert_eq!(daemon.post(&format!("/deny?{query}")).status, 200);
        let rule = &daemon.ask(&format!("/denied?{query}")).json()["decides"];
        assert_eq!((&rule["client_id"], &rule["client_id_text"]), both);
        assert_eq!(rule["client"], BIG, "as the last release calls it");
        assert_eq!(daemon.post(&format!("/allow?{query}")).status, 200);
    }
}

#[test]
fn help_has_groups_and_version_is_a_word() {
    let help = run(ringgate(["--help"])).succeeded();
    for group in ["Serve", "Look", "Change", "Keep out", "Fleet", "Keys and tokens", "Test"] {
        assert!(help.contains(&format!("\n{group}:\n")), "{group}: {help}");
    }
    assert!(run(ringgate(["version"])).succeeded().contains("\ncommit "));
    let refused = run(ringgate(["stop", "--control", "/nowhere"]));
    assert!(refused.code == Some(1) && refused.stderr.contains("no gateway answers"));
}

#[test]
fn times_have_units_and_pictures_are_what_their_names_say() {
    let folder = Folder::new();
    let token = folder.join("token").display().to_string();
    let mint = [
        "token",
        "mint",
        "--key",
        KEY,
        "--protocol-id",
        "1",
        "--client-id",
        "2",
        "--server",
        "127.0.0.1:1",
    ];
    for (times, said) in [
        (["--expire", "30s", "--timeout", "1m"], "(for 30 s), timeout 60 s"),
        (["--expire", "30", "--timeout", "5"], "(for 30 s), timeout 5 s"),
        (["--expire", "-1", "--timeout", "-1"], "at any time, timeout none"),
    ] {
        let text = run(ringgate([&mint[..], &["--out", &token], &times].concat())).succeeded();
        assert!(text.contains(said), "{text}");
    }
    let why = run(ringgate(["hist", "plot", "a.hlog", "--out", "x.png"])).refused();
    assert!(why.contains("SVG") && why.contains("PNG"), "{why}");
    let why = run(ringgate(["hist", "show", "a.hlog", "--from", "00:00:00"])).refused();
    assert!(why.contains("cannot read a.hlog"), "{why}");
    let why = run(ringgate(["hist", "show", "a.hlog", "--from", "25:00"])).refused();
    assert!(why.contains("a time of the day such as 12:00"), "{why}");
}

#[test]
fn completions_know_the_names_of_backends_and_listeners() {
    let daemon = Daemon::start(&Text::new());
    for (of, name) in [("backends", "arena\n"), ("listeners", "eu\n")] {
        assert_eq!(ask(&daemon, &["generate", "names", of]).succeeded(), name);
    }
    assert_eq!(
        run(ringgate(["generate", "names", "backends", "--control", "/nowhere"])).succeeded(),
        ""
    );
    let folder = Folder::new();
    let script = run(ringgate(["generate", "completions", "bash"])).succeeded();
    folder.file("script", script, 0o600);
    let fake = folder.file("ringgate", "#!/bin/sh\necho \"a-$3\"\n", 0o700);
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o700)).expect("ours");
    let completed = |words: &str, at: usize| {
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let text = format!(
            ". {}; COMP_WORDS=({words}); COMP_CWORD={at}; _ringgate ringgate \"${{COMP_WORDS[{at}]}}\" \
             \"${{COMP_WORDS[{at} - 1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            folder.join("script").display()
        );
        run({
            let mut bash = Command::new("bash");
            bash.args(["-c", &text]).env("PATH", path);
            bash
        })
        .succeeded()
    };
    assert!(completed("ringgate drain \"\"", 2).contains("a-backends"));
    assert_eq!(completed("ringgate sessions --backend a", 3), "a-backends\n");
    assert_eq!(completed("ringgate capture --listener \"\"", 3), "a-listeners\n");
}

#[test]
fn with_a_log_in_json_nothing_else_is_printed() {
    let folder = Folder::new();
    let is_json = |text: &str| {
        let mut lines = text.lines();
        lines.all(|line| {
            serde_json::from_str::<serde_json::Value>(line).is_ok_and(|it| it.is_object())
        })
    };
    let bad = folder.file("bad.toml", "[gateway]\nworker = 1\n", 0o600).display().to_string();
    let refused = run(ringgate(["run", "--config", &bad, "--log", "json"]));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
    assert!(is_json(&refused.stderr) && refused.stderr.contains("ERROR"), "{}", refused.stderr);
    let good = folder.file("gate.toml", PLAIN, 0o600).display().to_string();
    let mut command = ringgate(["run", "--config", &good, "--log", "json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Ending(command.spawn().expect("the binary was built"));
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut text = String::new();
    while !text.contains("\"event\":\"start\"") {
        text += &(lines.next().expect("it starts").expect("text") + "\n");
    }
    process::signal(child.id(), SIGTERM).expect("our process");
    lines.for_each(|line| text += &(line.expect("text") + "\n"));
    assert!(is_json(&text), "{text}");
    let mut printed = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut printed).expect("text");
    assert_eq!(printed, "");
}

#[test]
fn histograms_that_cannot_be_written_stop_no_start() {
    let mut text = Text::new();
    text.more = "[histograms]\ndir = \"gate.toml/hist\"\ninterval = \"1s\"\n".to_owned();
    let mut daemon = Daemon::start(&text);
    wait_for("an interval that is missed", || {
        let missed = daemon.get("/metrics").value("ringgate_interval_write_failures_total");
        let is_told = daemon.log().contains("histograms.dir: cannot write to ");
        missed.filter(|it| is_told && *it > 0)
    });
    assert!(daemon.is_running());
}

#[test]
fn metrics_have_the_names_of_convention_and_the_build_its_commit() {
    let daemon = Daemon::start(&Text::new());
    let page = daemon.get("/metrics");
    let build = page.body.lines().find(|line| line.starts_with("ringgate_build_info{"));
    assert!(build.is_some_and(|line| line.contains("commit=\"")), "{build:?}");
    for name in ["ringgate_config_last_reload_success", "ringgate_config_last_reload_ok"] {
        assert_eq!(page.value(name), Some(1));
    }
    assert!(page.value("ringgate_config_timestamp_seconds").is_some());
}

#[test]
fn who_waits_for_a_drain_hears_how_far_it_is() {
    let (daemon, _game, player) = with_player();
    let mut drain = ringgate(["drain", "--wait", "--control"]);
    drain.arg(daemon.control()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut drain = Ending(drain.spawn().expect("the binary was built"));
    let mut said = BufReader::new(drain.stderr.take().expect("piped")).lines();
    let line = said.next().expect("a line").expect("text");
    assert!(line.starts_with("1 sessions are left, ") && line.ends_with(" at most"), "{line}");
    drop(player);
    daemon.end_at_once();
    assert!(drain.wait().expect("our child").success());
}

#[test]
fn what_a_report_needs_is_in_one_file_without_keys_and_players() {
    let (daemon, _game, player) = with_player();
    let config = daemon.folder.join("gate.toml").display().to_string();
    let out = daemon.folder.join("support.txt").display().to_string();
    let log = daemon.folder.join("log").display().to_string();
    ask(&daemon, &["trace", &BIG.to_string(), "--for", "1ms"]).succeeded();
    let said = run(ringgate(["support", &config, "--out", &out, "--events", &log])).succeeded();
    assert!(said.contains("config without keys") && said.contains("without players'"), "{said}");
    let again = run(ringgate(["support", &config, "--out", &out, "--events", &log]));
    let why = format!("ringgate: {out} already exists\n");
    assert_eq!((again.code, again.stderr), (Some(2), why), "nothing replaces it");
    let text = fs::read_to_string(&out).expect("the file");
    for part in
        ["versions", "host", "doctor", "config, keys left out", "status", "metrics", "last events"]
    {
        assert!(text.contains(&format!("\n===== {part} =====\n")), "{part}");
    }
    assert!(text.contains("\"conservation\"") && text.contains("ringgate_sessions{"), "{text}");
    assert!(text.contains("trace of client ID"), "{text}");
    let address = player.local().to_string();
    for secret in [KEY_HEX, &BIG.to_string(), &address] {
        assert!(!text.contains(secret), "{secret}");
    }
    assert_eq!(fs::metadata(&out).expect("there").permissions().mode() & 0o777, 0o600);
    let all = run(ringgate(["support", &config, "--out", "-", "--events", &log, "--players"]));
    let all = all.succeeded();
    assert!(all.contains(&address) && all.contains(&BIG.to_string()) && !all.contains(KEY_HEX));
}

/// A start that lacks something says what in a sentence, and no panic tells of it.
#[test]
fn a_start_without_descriptors_or_somewhere_to_print_says_so() {
    // Its folder stays.
    let mut daemon = Daemon::start(&Text::new());
    let file = daemon.folder.join("gate.toml");
    daemon.signal("KILL");
    daemon.ended();
    for most in (8..=30).step_by(2) {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n $0; exec \"$@\"", &most.to_string()]);
        let run = ringgate(["run".as_ref(), "--config".as_ref(), file.as_os_str()]);
        limited.arg(run.get_program()).args(run.get_args());
        limited.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Ending(limited.spawn().expect("there is a shell"));
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line.starts_with("ready: "));
        child.kill().expect("ours");
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        assert!(!said.contains("panicked"), "{most}: {said}");
        assert!(!said.contains("another gateway"), "{most}: there is none, but {said}");
        assert!(is_ready || said.contains("ringgate: "), "{most}: {said}");
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let mut unheard = ringgate(["run".as_ref(), "--config".as_ref(), file.as_os_str()]);
    let ended = unheard.stdout(full).stderr(Stdio::piped()).output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("ringgate: cannot write to stdout: No space left on device"), "{said}");
}

//! When payloads leave: what commands do with each way, over real sockets, and that every output
//! says which it was.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::command::{PATIENT, folder, loadgen, small_run};
use super::gateway::{Game, Gateway, Link, text};

#[test]
fn every_output_says_when_payloads_left() {
    for (asked, name) in [(None, "spread"), (Some("poisson"), "poisson"), (Some("ticks"), "ticks")]
    {
        let folder = folder(&format!("arrivals-{name}"));
        let more: Vec<_> = asked.map_or_else(Vec::new, |mode| vec!["--arrivals", mode]);
        let output = small_run(&folder, &more);
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(table.contains(&format!("arrivals    {name}")), "{table}");
        // Slow machines may be late; then the book says so, and only where it was promised.
        assert_eq!(table.contains("the generator kept its pace"), name != "ticks", "{table}");
        let out = folder.join("out");
        let json = std::fs::read_to_string(out.join("run.json")).expect("written");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        for mode in [&json["arrivals"], &json["summary"]["pace"]["arrivals"]] {
            assert_eq!(mode.as_str(), Some(name));
        }
        assert_eq!(json["summary"]["pace"]["limit_ns"].is_u64(), name != "ticks");
        let late = json["stages"].as_array().expect("stages").iter();
        let late = late.filter(|stage| stage["stage"] == "send_late").map(|stage| &stage["count"]);
        assert_eq!(late.collect::<Vec<_>>(), [&json["counters"]["payloads_due"]]);
        let page = std::fs::read_to_string(out.join("report.html")).expect("written");
        assert!(page.contains(&format!("<th>Arrivals</th><td>{name}</td>")), "{name}");
        std::fs::remove_dir_all(folder).expect("removed");
    }
}

#[test]
fn payloads_of_their_own_moments_all_come_back_through_a_gateway_and_its_books_agree() {
    for (name, link) in [("spread", Link::Bundle), ("poisson", Link::Udp)] {
        let gateway = Gateway::start(&format!("arrivals-books-{name}"), link, Game::Echo);
        let few = ["--sessions", "40", "--hz", "50", "--ramp", "300ms", "--hold", "1500ms"];
        let output = gateway.load("run", &[&["--arrivals", name][..], &few].concat());
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(table.contains(&format!("arrivals    {name}")), "{table}");
        assert!(table.contains("40 connected of 40") && !table.contains("UNEXPLAINED"), "{table}");
    }
}

#[test]
fn bursts_are_no_separate_arrivals() {
    let words = ["run", "--tokens", "/does/not/exist", "--gather", "1ms", "--arrivals", "spread"];
    let output = loadgen(&words);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let all = ["--plain", "--server", "127.0.0.1:9", "--gather", "1ms", "--arrivals", "poisson"];
    let output = loadgen(&[&["run"][..], &all].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--gather makes bursts"));
}

#[test]
fn a_ladder_shows_what_a_round_trip_costs_gateway_game_and_core_as_a_curve() {
    let gateway = Gateway::start("arrivals-ladder", Link::Bundle, Game::Echo);
    let out = gateway.folder.join("ladder");
    let csv = gateway.folder.join("steps.csv");
    let game = gateway.game_pid().to_string();
    let output = gateway.load(
        "ladder",
        &[
            &["--at", "400,800", "--loss", "100", "--p99", "60s", "--name", "this one"][..],
            &["--sessions", "10", "--ramp", "300ms", "--hold", "3s", "--arrivals", "poisson"],
            &["--game-pid", &game, "--busy-core", "0", "--out", text(&out), "--csv", text(&csv)],
        ]
        .concat(),
    );
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.starts_with("arrivals poisson;"), "{table}");
    let csv = std::fs::read_to_string(csv).expect("written");
    let rows: Vec<Vec<_>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = |name| rows[0].iter().position(|head| *head == name).expect(name);
    assert_eq!(rows.len(), 3, "{csv}");
    for row in &rows[1..] {
        assert_eq!(row[column("arrivals")], "poisson");
        for name in ["gateway_us", "game_us", "core_us"] {
            let us: f64 = row[column(name)].parse().expect(name);
            assert!(us > 0.0, "{name}: {csv}");
        }
    }
    let json = std::fs::read_to_string(out.join("ladder.json")).expect("written");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["arrivals"].as_str(), Some("poisson"));
    assert_eq!(json["steps"][1]["rate"].as_f64(), Some(800.0));
    let page = gateway.folder.join("page.html");
    let output = loadgen(&["report", text(&out), text(&out), "--html", text(&page)]);
    assert!(output.status.success(), "{output:?}");
    for page in [out.join("report.html"), page] {
        let page = std::fs::read_to_string(page).expect("written");
        assert!(page.contains("CPU per round trip over load") && page.contains("arrivals poisson"));
        assert!(page.contains("this one game process"), "{page}");
    }
    let output = loadgen(&["report", text(&out), "/", "--html", "/dev/null"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn plain_players_need_no_key_and_measure_whatever_echoes() {
    let mut echo = Command::new(env!("CARGO_BIN_EXE_ringgate-loadgen"))
        .args(["bare-echo", "--bind", "127.0.0.1:0,127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(echo.stdout.take().expect("piped")).lines();
    let lines: Vec<_> = lines.take(2).map_while(Result::ok).collect();
    // The second echo's players have other addresses of this host.
    for (line, more) in lines.iter().zip([&[][..], &["--players-at", "127.128.0.0"]]) {
        let address = line.strip_prefix("listening on ").expect("an address");
        let few = ["--sessions", "20", "--hz", "50", "--ramp", "200ms", "--hold", "1s"];
        let run = ["run", "--plain", "--server", address, "--json"];
        let output = loadgen(&[&run[..], &few, &PATIENT, more].concat());
        assert!(output.status.success(), "{output:?}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let count = |name: &str| json["counters"][name].as_u64().expect("a counter");
        assert!(count("payloads_due") > 0 && count("echoed") == count("payloads_due"));
        assert_eq!(count("bytes_out"), 121 * count("datagrams_out"), "as long as netcode's");
    }
    assert_eq!(lines.len(), 2);
    echo.kill().expect("it runs");
    echo.wait().expect("it ends");
}

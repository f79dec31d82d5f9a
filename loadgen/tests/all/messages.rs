//! Players who send messages, against a server of other hands: every message has its report, and
//! comes back if it arrived.

use ringgate_core::secret::Key;
use ringgate_loadgen::measure::tally::Count;
use ringgate_loadgen::report::record::Record;

use super::command::{PATIENT, folder, loadgen};
use super::far_end::{FarEnd, KEY, PROTOCOL_ID};

fn run(name: &str, server: &FarEnd, more: &[&str]) -> Record {
    let folder = folder(name);
    let key = folder.join("key");
    std::fs::write(&key, Key::from_bytes(KEY).to_hex()).expect("written");
    let (address, protocol_id) = (server.address.to_string(), PROTOCOL_ID.to_string());
    let mut arguments = vec!["run", "--server", &address, "--key", key.to_str().expect("UTF-8")];
    arguments.extend(["--protocol-id", &protocol_id, "--sessions", "8", "--ramp", "200ms"]);
    arguments.extend(["--hold", "2s", "--arrivals", "ticks", "--json"]);
    arguments.extend(more);
    let output = loadgen(&arguments);
    let why = String::from_utf8_lossy(&output.stderr);
    let record: Record = serde_json::from_slice(&output.stdout).expect(&why);
    let unbalanced: Vec<_> =
        record.checks.iter().filter(|check| check.is_book && !check.holds).collect();
    assert!(unbalanced.is_empty(), "{unbalanced:?}");
    assert_eq!(record.count(Count::Connected), 8);
    std::fs::remove_dir_all(folder).expect("it was made");
    record
}

/// What the server has had of them, and what is known of its answers.
fn arrived(server: &FarEnd) -> u64 {
    server.books().messages.len() as u64
}

#[test]
fn reliable_messages_arrive_and_come_back_whatever_the_network_does() {
    let server = FarEnd::start(16, "");
    let bad = "PktLag=15 PktLagVariance=10 PktLoss=5 PktIncomingLoss=5 PktIncomingLagMin=5 \
        PktIncomingLagMax=20";
    let more = ["--delivery", "--hz", "5", "--bytes", "100-20000", "--impair", bad];
    let record = run("messages-reliable", &server, &[&more[..], &PATIENT].concat());
    let [taken, delivered, lost, given_up] = [
        Count::MessagesTaken,
        Count::MessagesDelivered,
        Count::MessagesLost,
        Count::MessagesGivenUp,
    ]
    .map(|count| record.count(count));
    assert!(taken > 0);
    assert_eq!((delivered, lost, given_up), (taken, 0, 0));
    assert_eq!((arrived(&server), record.count(Count::Echoed)), (taken, taken));
}

#[test]
fn what_is_reported_of_unreliable_messages_is_what_the_server_has_seen() {
    let server = FarEnd::start(16, "");
    let more = ["--delivery", "unreliable", "--hz", "30", "--impair", "PktLoss=20 PktLag=5"];
    let record = run("messages-unreliable", &server, &more);
    let [delivered, lost, given_up] =
        [Count::MessagesDelivered, Count::MessagesLost, Count::MessagesGivenUp]
            .map(|count| record.count(count));
    assert!(lost > 0 && delivered > 0, "{delivered} {lost}");
    assert!(record.count(Count::PayloadsImpairedUp) > 0, "packets were swallowed");
    assert!((delivered..=delivered + given_up).contains(&arrived(&server)));
}

#[test]
fn lengths_that_nothing_holds_are_refused() {
    for (more, why) in [
        (&["--bytes", "2000"][..], "1200"),
        (&["--delivery", "sequenced", "--bytes", "1200"], "1159"),
    ] {
        let mut arguments = vec!["run", "--server", "127.0.0.1:9", "--key", "/dev/null"];
        arguments.extend(more);
        let output = loadgen(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
    }
}

//! Every way in which a config file can be wrong, with the exact words that the operator reads.
//! What is wrong about listeners and backends is in files of its own.

use std::path::Path;

use ringgate::config::{self, keys::KeySources};

/// A key of the tests.
pub(crate) const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Lines 1 to 13. Tests replace lines of it, and append to it.
pub(crate) const GOOD: &str = r#"[[listener]]
name = "eu"
protocol = "netcode"
bind = ["127.0.0.1:40000"]
protocol_id = 7
keys = [{ hex = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff" }]
backends = ["arena"]

[[backend]]
name = "arena"
link = "bundle"
slots = 64

"#;

/// The same for Unreal.
pub(crate) const GOOD_UNREAL: &str = r#"[[listener]]
name = "ue"
protocol = "unreal"
bind = ["127.0.0.1:7777"]
backends = ["shooter"]

[[backend]]
name = "shooter"
link = "udp"
address = "127.0.0.1:7778"
slots = 100

"#;

#[track_caller]
pub(crate) fn check(text: &str, expected: &[&str]) {
    let keys = KeySources::new(&|_| None, None);
    let messages = match config::parse(text, Path::new("gate.toml"), &keys) {
        Ok(_) => String::new(),
        Err(mistakes) => mistakes.to_string(),
    };
    let lines: Vec<_> = messages.lines().collect();
    assert_eq!(lines, expected, "in\n{text}");
}

/// One line of a good config replaced.
#[track_caller]
pub(crate) fn replaced(good: &str, line: &str, by: &str, expected: &str) {
    assert!(good.contains(line), "{line} is in the good config");
    check(&good.replace(line, by), &[expected]);
}

#[test]
fn the_good_ones_are_good() {
    check(GOOD, &[]);
    check(GOOD_UNREAL, &[]);
}

#[test]
fn gateway_fields() {
    for (line, expected) in [
        (
            "workers = 0",
            "gate.toml:14: gateway.workers: found 0, expected \"auto\" or a whole number from 1 to 128",
        ),
        (
            "workers = 129",
            "gate.toml:14: gateway.workers: found 129, expected \"auto\" or a whole number from 1 to 128",
        ),
        (
            "workers = \"all\"",
            "gate.toml:14: gateway.workers: found \"all\", expected \"auto\" or a whole number from 1 to 128",
        ),
        ("pin = \"yes\"", "gate.toml:14: gateway.pin: found \"yes\", expected true or false"),
        (
            "io = \"epoll\"",
            "gate.toml:14: gateway.io: found \"epoll\", expected \"auto\", \"uring\" or \"mmsg\"",
        ),
        (
            "run_dir = \"\"",
            "gate.toml:14: gateway.run_dir: found \"\", expected a path of at most 91 bytes",
        ),
        (
            "drain_timeout = 30",
            "gate.toml:14: gateway.drain_timeout: found 30, expected a duration from \"0s\" to \"24h\" \
             (units us, ms, s, m, h)",
        ),
        (
            "spin = \"1s\"",
            "gate.toml:14: gateway.spin: found \"1s\", expected a duration from \"0us\" to \"10ms\" \
             (units us, ms, s, m, h)",
        ),
        (
            "batch_delay = \"2ms\"",
            "gate.toml:14: gateway.batch_delay: found \"2ms\", expected \"auto\" or a duration from \
             \"0us\" to \"1ms\" (units us, ms)",
        ),
        ("log = 1.5", "gate.toml:14: gateway.log: found 1.5, expected \"human\" or \"json\""),
        (
            "worker = 2",
            "gate.toml:14: gateway.worker: found an unknown field, did you mean workers?",
        ),
    ] {
        check(
            &format!("{}[gateway]\n{line}\n", GOOD.trim_end_matches('\n').to_owned() + "\n"),
            &[expected],
        );
    }
    check(
        &format!("{}[admin]\ncolour = true\n", GOOD.trim_end_matches('\n').to_owned() + "\n"),
        &["gate.toml:14: admin.colour: found an unknown field, expected one of bind, hosts, token"],
    );
}

#[test]
fn the_longest_run_dir_still_holds_a_socket() {
    let fits = format!("/{}", "d".repeat(90));
    check(&format!("{GOOD}[gateway]\nrun_dir = \"{fits}\""), &[]);
    check(
        &format!("{GOOD}[gateway]\nrun_dir = \"{fits}d\""),
        &[&format!(
            "gate.toml:15: gateway.run_dir: found \"{}\" and more, expected a path of at most 91 bytes",
            &fits[..60]
        )],
    );
}

#[test]
fn missing_fields_are_at_the_line_of_their_table() {
    check(
        "[[listener]]\nprotocol = \"netcode\"\n\n[[backend]]\nlink = \"udp\"\n",
        &[
            "gate.toml:1: listener[0].name: found nothing, expected a name of 1 to 31 letters, digits, '.', '_' or '-'",
            "gate.toml:1: listener[0].bind: found nothing, expected a list of one or more addresses, each an IP:port \
             such as \"0.0.0.0:40000\" or \"[::]:40000\"",
            "gate.toml:1: listener[0].backends: found nothing, expected a list of one or more names, each the name of \
             a [[backend]]",
            "gate.toml:1: listener[0].protocol_id: found nothing, expected a number of 64 bits, as a number or as a \
             string such as \"0x1122334455667788\"",
            "gate.toml:1: listener[0].keys: found nothing, expected a list of one or more key sources, each \
             { file = … }, { env = … }, { hex = … } or { credential = … }",
            "gate.toml:4: backend[0].name: found nothing, expected a name of 1 to 31 letters, digits, '.', '_' or '-'",
            "gate.toml:4: backend[0].slots: found nothing, expected a whole number from 0 to 1000000",
            "gate.toml:4: backend[0].address: found nothing, expected an IP:port that can be sent to (no wildcard, \
             no port 0)",
        ],
    );
}

#[test]
fn an_empty_file_needs_a_listener_and_a_backend() {
    check(
        "",
        &[
            "gate.toml:1: backend: found nothing, expected at least one table [[backend]]",
            "gate.toml:1: listener: found nothing, expected at least one table [[listener]]",
        ],
    );
}

#[test]
fn tables_of_the_wrong_kind() {
    check(
        "gateway = 3\nlistener = []\n[backend]\nname = \"a\"\n[[admin]]\n[listeners]\n",
        &[
            "gate.toml:1: gateway: found a number, expected one table [gateway]",
            "gate.toml:2: listener: found a list, expected tables [[listener]], each with its own fields",
            "gate.toml:3: backend: found a table, expected tables [[backend]], each with its own fields",
            "gate.toml:5: admin: found a list, expected one table [admin]",
            "gate.toml:6: listeners: found an unknown field, did you mean listener?",
        ],
    );
}

#[test]
fn text_that_is_not_toml() {
    check(
        "[gateway]\npin = yes\nworkers = 1_\n",
        &[
            "gate.toml:2: syntax: string values must be quoted, expected literal string",
            "gate.toml:3: syntax: `_` may only go between digits, expected nothing",
        ],
    );
    check("[gateway]\npin = true\npin = false\n", &["gate.toml:3: syntax: duplicate key"]);
}

#[test]
fn admin_and_histograms() {
    check(
        &format!(
            "{GOOD}[admin]\nbind = 9464\n[histograms]\ndirectory = \"/h\"\ninterval = \"1ms\"\n"
        ),
        &[
            "gate.toml:15: admin.bind: found 9464, expected an IP:port such as \"127.0.0.1:9464\"",
            "gate.toml:17: histograms.directory: found an unknown field, expected one of dir, interval, max_bytes, max_age, keep",
            "gate.toml:18: histograms.interval: found \"1ms\", expected a duration from \"1s\" to \"1h\" (units us, ms, s, m, h)",
        ],
    );
}

#[test]
fn hosts_tokens_and_bounds_of_histogram_files() {
    let token = |found: &str, expected: &str| {
        let line = format!("gate.toml:15: admin.token{found}, expected {expected}");
        move |value: &str| check(&format!("{GOOD}[admin]\ntoken = {value}\n"), &[&line])
    };
    let forms = "exactly one of { file = … }, { env = … }, { hex = … } and { credential = … }";
    token(": found a string", forms)("\"a-token-in-plain-sight\"");
    token(": found 2 sources of one key", forms)("{ hex = \"00\", env = \"A\" }");
    token(".hex: found 30 hex digits", "32 to 256 hex digits")(
        "{ hex = \"001122334455667788990011223344\" }",
    );
    token(".env: found no environment variable \"A\"", "one that holds the token")(
        "{ env = \"A\" }",
    );
    let name = "expected a name such as \"gate-1.example\", without a port";
    let more = "[admin]\nhosts = [\"gate.example:80\", \"\"]\n[histograms]\nmax_bytes = 1\n\
                max_age = \"0s\"\nkeep = \"all\"\n";
    check(
        &format!("{GOOD}{more}"),
        &[
            &format!("gate.toml:15: admin.hosts[0]: found \"gate.example:80\", {name}"),
            &format!("gate.toml:15: admin.hosts[1]: found \"\", {name}"),
            "gate.toml:17: histograms.max_bytes: found 1, expected a whole number from 4096 to 1099511627776",
            "gate.toml:18: histograms.max_age: found \"0s\", expected a duration from \"1s\" to \"8760h\" (units us, ms, s, m, h)",
            "gate.toml:19: histograms.keep: found \"all\", expected a whole number from 0 to 1000000",
        ],
    );
}

#[test]
fn all_mistakes_come_at_once_in_the_order_of_the_file() {
    let text = r#"[gateway]
workers = 500
spim = "1us"

[[listener]]
name = "eu"
protocol = "netcode"
bind = ["0.0.0.0:40000", "nowhere"]
protocol_id = "0x"
keys = [{ hex = "ff" }, { env = "NOPE" }]
backends = ["arena", "lobby"]
replay_window = 65

[[backend]]
name = "arena"
link = "udp"
slots = -1
"#;
    check(
        text,
        &[
            "gate.toml:2: gateway.workers: found 500, expected \"auto\" or a whole number from 1 to 128",
            "gate.toml:3: gateway.spim: found an unknown field, did you mean spin?",
            "gate.toml:8: listener[0].bind[1]: found \"nowhere\", expected an IP:port such as \"0.0.0.0:40000\" or \
             \"[::]:40000\"",
            "gate.toml:9: listener[0].protocol_id: found \"0x\", expected a number of 64 bits, as a number or as a string \
             such as \"0x1122334455667788\"",
            "gate.toml:10: listener[0].keys[0].hex: found 2 hex digits, expected 64 hex digits",
            "gate.toml:10: listener[0].keys[1].env: found no environment variable \"NOPE\", expected one that holds 64 hex \
             digits",
            "gate.toml:11: listener[0].backends[1]: found \"lobby\", expected the name of a [[backend]]",
            "gate.toml:12: listener[0].replay_window: found 65, expected a power of two from 64 to 1024",
            "gate.toml:14: backend[0].address: found nothing, expected an IP:port that can be sent to (no wildcard, no \
             port 0)",
            "gate.toml:17: backend[0].slots: found -1, expected a whole number from 0 to 1000000",
        ],
    );
}

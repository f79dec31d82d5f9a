//! Plain listeners in the config file: what each field becomes, and what is wrong in which words.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use ringgate::config::keys::KeySources;
use ringgate::config::{
    self, Config, Echo, GuardedWays, Limits, NumberOrder, Plain, PortSwitch, Protocol, Route,
    RoutingToken, RoutingTokens, Sequence, TokenPlace,
};

use crate::folder::Folder;

/// All that a plain listener can say. Tests replace lines of it.
const GOOD: &str = r#"[[listener]]
name = "arena"
protocol = "plain"
bind = ["127.0.0.1:7000"]
backends = ["a", "b"]
route = "token"
token = { at = "end", bytes = 8, strip = true }
tokens = [{ hex = "1122334455667788", backend = "a" }, { hex = "99AAbbccddeeff00", backend = "b" }]
sequence = { offset = 3, bits = 16, order = "big" }
guard = "up"
replay_window = 512
gap_limit = 512
idle_timeout = "60s"
begins_with = "ff00"
half_open_timeout = "2s"
half_open_max = 4096
answer_limit = 3
gap_rest = "2s"

[listener.limits]
starts_per_block = 500
starts = 10000

[[backend]]
name = "a"
link = "udp"
address = "127.0.0.1:7001"
slots = 8

[[backend]]
name = "b"
link = "bundle"
slots = 8
"#;

/// As little as it can say.
const LEAST: &str = r#"[[listener]]
name = "arena"
protocol = "plain"
bind = ["127.0.0.1:7000"]
backends = ["a"]
[[backend]]
name = "a"
link = "udp"
address = "127.0.0.1:7001"
slots = 8
"#;

fn load(text: &str, file: &Path) -> Result<Config, String> {
    let keys = KeySources::new(&|_| None, None);
    config::parse(text, file, &keys).map_err(|mistakes| mistakes.to_string())
}

#[track_caller]
fn good(text: &str) -> Config {
    load(text, Path::new("gate.toml")).unwrap_or_else(|why| panic!("{why}\nin\n{text}"))
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let messages = load(text, Path::new("gate.toml")).err().unwrap_or_default();
    assert_eq!(messages.lines().collect::<Vec<_>>(), expected, "in\n{text}");
}

fn rules(config: &Config) -> &Plain {
    match &config.listeners[0].protocol {
        Protocol::Plain(rules) => rules,
        other => panic!("not a plain listener: {other:?}"),
    }
}

#[test]
fn every_field_arrives() {
    let config = good(
        &GOOD
            .replace(
                "at = \"end\", bytes = 8, strip = true",
                "at = \"start\", bytes = 8, strip = false",
            )
            .replace(
                "offset = 3, bits = 16, order = \"big\"",
                "offset = 8, bits = 32, order = \"little\"",
            )
            .replace("guard = \"up\"", "guard = \"both\"")
            .replace("half_open_timeout = \"2s\"", "half_open_timeout = \"5s\"")
            .replace("half_open_max = 4096", "half_open_max = 77")
            .replace("answer_limit = 3", "answer_limit = 0")
            .replace("\"1122", "\"ff00")
            .replace("\"99AA", "\"FF00")
            .replace(
                "gap_rest = \"2s\"",
                "gap_rest = \"0s\"\ncredit_ratio = 7\ncredit_burst = 3000\npause_after = \"0s\"\n\
                 echo = { sent = 1, heard = 1468 }",
            )
            .replace("starts = 10000", "starts = 9"),
    );
    let token = |hex: u64| Box::from(hex.to_be_bytes());
    let expected = Plain {
        token: Some(RoutingToken { at: TokenPlace::Start, bytes: 8, strip: false }),
        tokens: RoutingTokens(vec![
            (token(0xff00_3344_5566_7788), 0),
            (token(0xff00_bbcc_ddee_ff00), 1),
        ]),
        sequence: Some(Sequence { offset: 8, bits: 32, order: NumberOrder::Little }),
        guard: GuardedWays::Both,
        replay_window: 512,
        gap_limit: NonZeroU64::new(512),
        begins_with: vec![255, 0],
        idle_timeout: Duration::from_mins(1),
        half_open_timeout: Duration::from_secs(5),
        half_open_max: 77,
        answer_limit: 0,
        credit_ratio: 7,
        credit_burst: 3000,
        pause_after: Duration::ZERO,
        echo: Some(Echo { sent: 1, heard: 1468 }),
        unproven_slots: 50,
        gap_rest: Duration::ZERO,
    };
    assert_eq!(*rules(&config), expected);
    assert_eq!(
        config.notices(),
        [
            "listener \"arena\": nothing is authenticated there, so whoever can send in a player's name can end its session by \
          gap_limit"
        ]
    );
    let listener = &config.listeners[0];
    assert_eq!((listener.route, listener.port_switch), (Route::Token, PortSwitch::Ignore));
    assert_eq!((listener.limits.starts_per_block, listener.limits.starts), (500, 9));
}

#[test]
fn the_shipped_example_is_good() {
    let example = include_str!("../../tuning/ringgate.plain.example.toml");
    let config = good(example);
    assert_eq!((config.listeners.len(), config.backends.len()), (1, 2));
    let defaults = Plain {
        token: Some(RoutingToken { at: TokenPlace::End, bytes: 8, strip: true }),
        tokens: rules(&config).tokens.clone(),
        ..rules(&good(LEAST)).clone()
    };
    assert_eq!(*rules(&config), defaults);
    assert_eq!(config.listeners[0].limits, good(LEAST).listeners[0].limits);
    // What is commented out is right too.
    let with_guard: Vec<_> = example
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|it| it.contains(" = ")).unwrap_or(line))
        .collect();
    assert!(rules(&good(&with_guard.join("\n"))).gap_limit.is_some());
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = good(LEAST);
    let expected = Plain {
        token: None,
        tokens: RoutingTokens::default(),
        sequence: None,
        guard: GuardedWays::Up,
        replay_window: 256,
        gap_limit: None,
        begins_with: Vec::new(),
        idle_timeout: Duration::from_mins(1),
        half_open_timeout: Duration::from_secs(2),
        half_open_max: 4096,
        answer_limit: 3,
        credit_ratio: 1000,
        credit_burst: 131_072,
        pause_after: Duration::from_secs(5),
        echo: None,
        unproven_slots: 100,
        gap_rest: Duration::from_secs(2),
    };
    assert_eq!(*rules(&config), expected);
    assert!(config.notices().is_empty());
    let limits = Limits {
        requests_per_block: 0,
        handshakes_per_block: 0,
        port_switches_per_block: 0,
        restarts_per_block: 0,
        starts_per_block: 500,
        starts: 10_000,
        sessions_per_address: 32,
        sessions_per_site: 32,
        sessions_per_block: 0,
    };
    assert_eq!(config.listeners[0].limits, limits);
    let short = GOOD
        .replace("at = \"end\", bytes = 8, strip = true", "bytes = 8")
        .replace(", order = \"big\"", "");
    assert_eq!(rules(&good(&short)), rules(&good(GOOD)));
}

#[test]
fn every_line_of_the_good_one_can_be_wrong_and_says_how() {
    for (line, by, expected) in [
        (
            "at = \"end\", bytes",
            "at = \"middle\", bytes",
            "7: listener[0].token.at: found \"middle\", expected \"end\" or \"start\"",
        ),
        (
            "bytes = 8",
            "bytes = 65",
            "7: listener[0].token.bytes: found 65, expected a whole number from 1 to 64",
        ),
        (
            "strip = true",
            "strip = 1",
            "7: listener[0].token.strip: found 1, expected true or false",
        ),
        (
            "strip = true",
            "stripp = true",
            "7: listener[0].token.stripp: found an unknown field, did you mean strip?",
        ),
        (
            "token = { at = \"end\", bytes = 8, strip = true }",
            "token = 8",
            "7: listener[0].token: found a number, expected { at = \"end\" or \"start\", bytes = 1 to 64, strip = true or \
             false }",
        ),
        (
            "at = \"end\", bytes = 8, strip",
            "at = \"end\", strip",
            "7: listener[0].token.bytes: found nothing, expected a whole number from 1 to 64",
        ),
        (
            "1122334455667788",
            "11223344556677",
            "8: listener[0].tokens[0].hex: found 14 hex digits, expected 16 hex digits (token.bytes is 8)",
        ),
        (
            "1122334455667788",
            "112233445566778g",
            "8: listener[0].tokens[0].hex: found 16 bytes that are not all hex digits, expected 16 hex digits (token.bytes \
             is 8)",
        ),
        (
            "1122334455667788",
            "99aabbCCddeeff00",
            "8: listener[0].tokens[1].hex: found the token of tokens[0] again, expected each token once",
        ),
        (
            "backend = \"a\" }",
            "backend = \"zoo\" }",
            "8: listener[0].tokens[0].backend: found \"zoo\", expected the name of a [[backend]]",
        ),
        (
            "backends = [\"a\", \"b\"]",
            "backends = [\"a\"]",
            "8: listener[0].tokens[1].backend: found \"b\", which backends does not name, expected one of this listener's \
             backends",
        ),
        (
            "backend = \"a\" }",
            "file = \"x\" }",
            "8: listener[0].tokens[0]: found another combination, expected { hex = …, backend = … } or { file = … }",
        ),
        (
            "backend = \"a\" }",
            "backendd = \"a\" }",
            "8: listener[0].tokens[0].backendd: found an unknown field, did you mean backend?",
        ),
        (
            "{ hex = \"1122334455667788\", backend = \"a\" }",
            "7",
            "8: listener[0].tokens[0]: found a number, expected { hex = …, backend = … } or { file = … }",
        ),
        (
            "offset = 3",
            "offset = 1472",
            "9: listener[0].sequence.offset: found 1472, expected a whole number from 0 to 1471",
        ),
        (
            "offset = 3",
            "offset = 1471",
            "9: listener[0].sequence.offset: found 1471 for 16 bits, expected at most 1470 (datagrams have 1472 bytes)",
        ),
        ("bits = 16", "bits = 24", "9: listener[0].sequence.bits: found 24, expected 8, 16 or 32"),
        (
            "order = \"big\"",
            "order = \"net\"",
            "9: listener[0].sequence.order: found \"net\", expected \"big\" or \"little\"",
        ),
        (
            "at = \"end\", bytes = 8, strip = true }\ntokens = [{ hex = \"1122334455667788\", backend = \"a\" }, { hex = \"99AAbb",
            "at = \"start\", bytes = 8, strip = true }\ntokens = [{ hex = \"ff00334455667788\", backend = \"a\" }, { hex = \"ff00bb",
            "9: listener[0].sequence.offset: found 3, which lies in the token, expected at least 8 (the token is at the \
             start)",
        ),
        (
            "guard = \"up\"",
            "guard = \"down\"",
            "10: listener[0].guard: found \"down\", expected \"up\" or \"both\"",
        ),
        (
            "replay_window = 512",
            "replay_window = 500",
            "11: listener[0].replay_window: found 500, expected a power of two from 64 to 1024",
        ),
        (
            "gap_limit = 512",
            "gap_limit = 32768",
            "12: listener[0].gap_limit: found 32768 for a sequence of 16 bits, expected less than 32768, half of its numbers",
        ),
        (
            "idle_timeout = \"60s\"",
            "idle_timeout = \"2h\"",
            "13: listener[0].idle_timeout: found \"2h\", expected a duration from \"1s\" to \"1h\" (units us, ms, s, m, h)",
        ),
        (
            "begins_with = \"ff00\"",
            "begins_with = \"ff0\"",
            "14: listener[0].begins_with: found \"ff0\", expected up to 64 bytes as pairs of hex digits",
        ),
        (
            "half_open_timeout = \"2s\"",
            "half_open_timeout = \"0s\"",
            "15: listener[0].half_open_timeout: found \"0s\", expected a duration from \"100ms\" to \"1m\" (units us, ms, s, \
             m, h)",
        ),
        (
            "half_open_max = 4096",
            "half_open_max = 0",
            "16: listener[0].half_open_max: found 0, expected a whole number from 16 to 65536",
        ),
        (
            "answer_limit = 3",
            "answer_limit = -1",
            "17: listener[0].answer_limit: found -1, expected a whole number from 0 to 1000",
        ),
        (
            "answer_limit = 3",
            "echo = { sent = 0, heard = 1469 }",
            "17: listener[0].echo.heard: found 1469, expected a whole number from 0 to 1468",
        ),
        (
            "answer_limit = 3",
            "unproven_slots = 101",
            "17: listener[0].unproven_slots: found 101, expected a whole number from 0 to 100",
        ),
        (
            "gap_rest = \"2s\"",
            "gap_rest = 2",
            "18: listener[0].gap_rest: found 2, expected a duration from \"0s\" to \"10m\" (units us, ms, s, m, h)",
        ),
        (
            "starts = 10000",
            "starts = -1",
            "22: listener[0].limits.starts: found -1, expected a whole number from 0 to 1000000",
        ),
    ] {
        assert!(GOOD.contains(line), "{line} is in the good config");
        check(&GOOD.replacen(line, by, 1), &[&format!("gate.toml:{expected}")]);
    }
}

#[test]
fn window_and_limit_are_below_half_of_a_narrow_number_s_range() {
    let narrow =
        GOOD.replace("bits = 16", "bits = 8").replace("gap_limit = 512", "gap_limit = 127");
    check(&narrow.replace("replay_window = 512", "replay_window = 64"), &[]);
    check(
        &narrow,
        &[
            "gate.toml:11: listener[0].replay_window: found 512 for a sequence of 8 bits, expected less than 128, half of its \
           numbers",
        ],
    );
}

#[test]
fn words_that_belong_together_do() {
    let without = |field: &str| -> String {
        let is_other = |line: &&str| !line.starts_with(&format!("{field} = "));
        GOOD.lines().filter(is_other).flat_map(|line| [line, "\n"]).collect()
    };
    for (text, expected) in [
        (
            without("token"),
            vec![
                "1: listener[0].token: found nothing, expected { at = \"end\" or \"start\", bytes = 1 to 64, strip = true or \
                 false } (route = \"token\" goes by it)",
            ],
        ),
        (
            without("tokens"),
            vec![
                "1: listener[0].tokens: found nothing, expected a list of one or more tokens, each { hex = …, backend = … } or \
                 { file = … } (route = \"token\" goes by it)",
            ],
        ),
        (
            GOOD.replace("route = \"token\"", "route = \"hash\""),
            vec![
                "7: listener[0].token: found token without route = \"token\", expected both or neither",
                "8: listener[0].tokens: found tokens without route = \"token\", expected both or neither",
            ],
        ),
        (
            without("sequence").replace("guard = \"up\"", "guard = \"both\""),
            vec![
                "9: listener[0].guard: found guard without sequence, expected a sequence, which it is about",
                "10: listener[0].replay_window: found replay_window without sequence, expected a sequence, which it is about",
                "11: listener[0].gap_limit: found gap_limit without sequence, expected a sequence, which it is about",
            ],
        ),
        (
            GOOD.replace("at = \"end\"", "at = \"start\"").replace("offset = 3", "offset = 8"),
            vec![
                "14: listener[0].begins_with: found it, and tokens at the start that begin otherwise, expected how all tokens \
                 begin, or these at the end",
            ],
        ),
        (
            LEAST.replace("backends = [\"a\"]", "backends = [\"a\"]\nunproven_slots = 0"),
            vec![
                "6: listener[0].unproven_slots: found 0 without echo, by which alone players are proven, expected an echo, or \
                 more: nobody would get in",
            ],
        ),
        (
            LEAST.replace("backends = [\"a\"]", "backends = [\"a\"]\nroute = \"user-data\""),
            vec![
                "6: listener[0].route: found \"user-data\" on a plain listener, whose players have no connect tokens, expected \
                 \"single\", \"token\", \"hash\" or \"least-players\"",
            ],
        ),
        (
            without("route").replace("token = {", "#").replace("tokens = [", "#"),
            vec![
                "1: listener[0].route: found nothing, which means \"single\", and several backends, expected \"token\", \
                 \"hash\" or \"least-players\" (or one backend)",
            ],
        ),
        (
            LEAST.replace("127.0.0.1:7001", "10.0.0.1:7001"),
            vec![
                "5: listener[0].backends[0]: found \"a\", which is at 10.0.0.1:7001, expected a backend on this host, at \
                 127.x.y.z (plain)",
            ],
        ),
    ] {
        let expected: Vec<_> = expected.iter().map(|text| format!("gate.toml:{text}")).collect();
        check(&text, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn fields_of_other_protocols_are_refused_both_ways() {
    let of_plain = "expected fields of plain listeners only";
    for (field, of) in [
        ("keys = []", "netcode"),
        ("keep_alive = \"1s\"", "netcode"),
        ("magic = \"1\"", "unreal"),
        ("delivery = \"gateway\"", "netcode"),
        ("port_switch = \"follow\"", "netcode and unreal"),
    ] {
        let name = field.split(' ').next().expect("a name");
        let text = LEAST.replace("backends =", &format!("{field}\nbackends ="));
        let expected =
            format!("gate.toml:5: listener[0].{name}: found a field of {of} listeners, {of_plain}");
        check(&text, &[&expected]);
    }
    let text =
        LEAST.replace("[[backend]]", "[listener.limits]\nrequests_per_block = 1\n[[backend]]");
    let expected = format!(
        "gate.toml:7: listener[0].limits.requests_per_block: found a field of netcode and unreal listeners, {of_plain}"
    );
    check(&text, &[&expected]);
    let unreal = LEAST.replace("\"plain\"", "\"unreal\"");
    for (field, of) in [
        ("token = { bytes = 8 }", "plain"),
        ("sequence = { offset = 0, bits = 8 }", "plain"),
        ("half_open_max = 99", "plain"),
        ("replay_window = 64", "netcode and plain"),
    ] {
        let name = field.split(' ').next().expect("a name");
        let text = unreal.replace("backends =", &format!("{field}\nbackends ="));
        let expected = format!(
            "gate.toml:5: listener[0].{name}: found a field of {of} listeners, expected fields of unreal listeners only"
        );
        check(&text, &[&expected]);
    }
    let text = unreal.replace("[[backend]]", "[listener.limits]\nstarts = 1\n[[backend]]");
    check(
        &text,
        &[
            "gate.toml:7: listener[0].limits.starts: found a field of plain listeners, expected fields of unreal listeners \
           only",
        ],
    );
    let text = unreal.replace("backends =", "route = \"token\"\nbackends =");
    check(
        &text,
        &[
            "gate.toml:5: listener[0].route: found \"token\", which plain listeners have, expected another way",
        ],
    );
}

/// A file of tokens beside the config file.
#[track_caller]
fn with_file(folder: &Folder, contents: &str, mode: u32) -> Result<Config, String> {
    folder.file("arena.tokens", contents, mode);
    let text = GOOD
        .replace("{ hex = \"1122334455667788\", backend = \"a\" }", "{ file = \"arena.tokens\" }");
    load(&text, &folder.join("gate.toml"))
}

#[test]
fn tokens_come_from_files_too() {
    let folder = Folder::new();
    let contents =
        "# the first server\n1122334455667788 a   # with a remark\n\n  00000000000000aB\tb\n";
    let config = with_file(&folder, contents, 0o600).expect("good");
    let RoutingTokens(tokens) = &rules(&config).tokens;
    let numbers: Vec<_> = tokens.iter().map(|(token, backend)| (token[7], *backend)).collect();
    assert_eq!(numbers, [(0x88, 0), (0xab, 1), (0x00, 1)]);
    assert_eq!(format!("{:?}", rules(&config).tokens), "3 tokens");
    for (contents, mode, expected) in [
        (
            "1122334455667788 a\n",
            0o640,
            "a key file that others may use (mode 0640), expected one that",
        ),
        ("\n112233445566778 a\n", 0o600, "line 2: found 15 hex digits, expected 16 hex digits"),
        ("1122334455667788\n", 0o600, "line 1: found another form, expected a token in hex and"),
        ("1122334455667788 a b\n", 0o600, "line 1: found another form"),
        (
            "1122334455667788 arena\n",
            0o600,
            "line 1: found \"arena\", expected the name of a [[backend]]",
        ),
        (
            "1122334455667788 a\n1122334455667788 b\n",
            0o600,
            "line 2: found the token of tokens[0], line 1 again, expected each token once",
        ),
        (
            "99aabbccddeeff00 a\n",
            0o600,
            "found the token of tokens[0], line 1 again, expected each token once",
        ),
    ] {
        let why = with_file(&folder, contents, mode).expect_err(expected);
        assert!(why.contains(expected) && why.lines().count() == 1, "{why}");
        assert!(!why.contains("1122334455667788"), "{why}");
    }
    let lines: Vec<_> = (0..100_000_u64).map(|token| format!("{token:016x} a")).collect();
    let many = lines.join("\n");
    let why = with_file(&folder, &many, 0o600).expect_err("one more than there may be");
    assert!(why.contains("found more tokens, expected at most 100000"), "{why}");
}

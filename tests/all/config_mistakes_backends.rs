//! What can be wrong about backends in a config file, in the words that the operator reads.

use crate::config_mistakes::{GOOD, GOOD_UNREAL, check, replaced};

#[test]
fn unreal_servers_are_on_this_host() {
    for address in ["10.0.0.1:7778", "[::1]:7778"] {
        let text = GOOD_UNREAL.replace("127.0.0.1:7778", address);
        let expected = format!(
            "gate.toml:5: listener[0].backends[0]: found \"shooter\", which is at {address}, expected a backend on this \
             host, at 127.x.y.z (unreal)"
        );
        check(&text, &[&expected]);
    }
}

#[test]
fn a_backend_speaks_one_protocol() {
    let other = r#"[[listener]]
name = "nc"
protocol = "netcode"
bind = ["127.0.0.1:40001"]
protocol_id = 7
keys = [{ hex = "0101010101010101010101010101010101010101010101010101010101010101" }]
backends = ["shooter"]

"#;
    check(
        &format!("{GOOD_UNREAL}{other}"),
        &[
            "gate.toml:19: listener[1].backends[0]: found \"shooter\", which is behind a listener of another protocol, \
             expected a backend that speaks one protocol",
        ],
    );
}

#[test]
fn unreal_players_are_served_over_udp() {
    let text =
        GOOD_UNREAL.replace("link = \"udp\"\naddress = \"127.0.0.1:7778\"", "link = \"bundle\"");
    check(
        &text,
        &[
            "gate.toml:5: listener[0].backends[0]: found \"shooter\", which has link = \"bundle\", expected a backend with \
           link = \"udp\", or one that an [[agent]] lists (unreal)",
        ],
    );
}

#[test]
fn backend_fields() {
    for (line, by, expected) in [
        (
            "name = \"arena\"",
            "name = \"arena\"\naddress = \"127.0.0.1:1\"",
            "gate.toml:11: backend[0].address: found a field of udp backends, expected fields of bundle backends only",
        ),
        (
            "link = \"bundle\"",
            "link = \"tcp\"",
            "gate.toml:11: backend[0].link: found \"tcp\", expected \"udp\" or \"bundle\"",
        ),
        (
            "link = \"bundle\"",
            "link = \"udp\"",
            "gate.toml:9: backend[0].address: found nothing, expected an IP:port that can be sent to (no wildcard, no \
             port 0)",
        ),
        (
            "link = \"bundle\"",
            "link = \"udp\"\naddress = \"127.0.0.1:0\"",
            "gate.toml:12: backend[0].address: found \"127.0.0.1:0\", expected an IP:port that can be sent to (no \
             wildcard, no port 0)",
        ),
        (
            "link = \"bundle\"",
            "link = \"udp\"\naddress = \"127.0.0.1:1\"\nallow_uids = [1]",
            "gate.toml:13: backend[0].allow_uids: found a field of bundle backends, expected fields of udp backends only",
        ),
        (
            "slots = 64",
            "slots = 2_000_000",
            "gate.toml:12: backend[0].slots: found 2000000, expected a whole number from 0 to 1000000",
        ),
        (
            "slots = 64",
            "slots = 64\ngrace = \"1d\"",
            "gate.toml:13: backend[0].grace: found \"1d\", expected a duration from \"0s\" to \"10m\" (units us, ms, s, m, h)",
        ),
        (
            "slots = 64",
            "slots = 64\nallow_uids = [1000, 0xffffffff]",
            "gate.toml:13: backend[0].allow_uids[1]: found 0xffffffff, expected a number from 0 to 4294967294",
        ),
        (
            "slots = 64",
            "slots = 64\nallow_gids = [\"staff\"]",
            "gate.toml:13: backend[0].allow_gids[0]: found \"staff\", expected a number from 0 to 4294967294",
        ),
    ] {
        replaced(GOOD, line, by, expected);
    }
}

#[test]
fn backends_side_by_side() {
    let second = GOOD_UNREAL.split("[[backend]]").nth(1).expect("the backend's lines");
    check(
        &format!("{GOOD_UNREAL}[[backend]]{second}"),
        &[
            "gate.toml:14: backend[1].name: found \"shooter\" again, expected it once (line 8 has it)",
            "gate.toml:16: backend[1].address: found 127.0.0.1:7778 again, expected it once (line 10 has it)",
        ],
    );
}

#[test]
fn a_backend_without_a_readable_name_is_not_also_missing() {
    replaced(
        GOOD,
        "name = \"arena\"",
        "name = \"the arena\"",
        "gate.toml:10: backend[0].name: found \"the arena\", expected a name of 1 to 31 letters, digits, '.', '_' or '-'",
    );
}

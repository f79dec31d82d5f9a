//! What can be wrong about listeners in a config file, in the words that the operator reads.

use crate::config_mistakes::{GOOD, GOOD_UNREAL, KEY, check, replaced};

#[test]
fn what_is_asked_of_an_interface() {
    let line = "backends = [\"arena\"]";
    for (more, expected) in [
        (
            "io = \"xdp\"",
            "gate.toml:1: listener[0].xdp: found io = \"xdp\" without an interface, expected interface, the network interface that \
             its packets come by",
        ),
        (
            "io = \"raw\"",
            "gate.toml:8: listener[0].io: found \"raw\", expected \"sockets\" or \"xdp\"",
        ),
        (
            "xdp = { interface = \"a/b\" }",
            "gate.toml:8: listener[0].xdp.interface: found \"a/b\", expected a network interface's name of 1 to 15 bytes",
        ),
        (
            "xdp = { mode = \"native\" }",
            "gate.toml:8: listener[0].xdp.mode: found \"native\", expected \"auto\", \"zerocopy\", \"copy\" or \"generic\"",
        ),
        (
            "xdp = { queues = 0 }",
            "gate.toml:8: listener[0].xdp.queues: found 0, expected a whole number from 1 to 128",
        ),
    ] {
        replaced(GOOD, line, &format!("{line}\n{more}"), expected);
    }
    // Without `io` the table has no effect.
    check(&GOOD.replace(line, &format!("{line}\nxdp = {{ interface = \"eth0\" }}")), &[]);
    let two = |one: &str, other: &str| {
        let by_card = |table: &str| format!("{line}\nio = \"xdp\"\nxdp = {{ {table} }}\n");
        let good = GOOD.replace(line, &by_card(one));
        let second = GOOD.split("[[backend]]").next().expect("a listener");
        let second = second.replace("\"eu\"", "\"us\"").replace("40000", "40001");
        format!("[gateway]\nworkers = 4\n{good}{}", second.replace(line, &by_card(other)))
    };
    check(&two("interface = \"eth0\"", "interface = \"eth0\""), &[]);
    check(
        &two("interface = \"eth0\"", "interface = \"eth1\""),
        &[
            "gate.toml:27: listener[1].xdp: found another table than that of the first listener with io = \"xdp\", expected the same \
           interface, queues, mode and fallback (a worker serves one queue)",
        ],
    );
    let few = "interface = \"eth0\", queues = 2";
    let expected = "found 2 queues, and gateway.workers = 4, expected a queue for each worker: fewer workers, or more queues";
    check(
        &two(few, few),
        &[
            &format!("gate.toml:11: listener[0].xdp: {expected}"),
            &format!("gate.toml:27: listener[1].xdp: {expected}"),
        ],
    );
}

#[test]
fn limits_are_read_as_strictly_as_everything_else() {
    let range = "expected a whole number from 0 to 1000000";
    for (line, expected) in [
        ("requests_per_block = -1", format!("requests_per_block: found -1, {range}")),
        (
            "handshakes_per_block = 1000001",
            format!("handshakes_per_block: found 1000001, {range}"),
        ),
        (
            "port_switches_per_block = \"500\"",
            format!("port_switches_per_block: found \"500\", {range}"),
        ),
        ("restarts_per_block = 1.5", format!("restarts_per_block: found 1.5, {range}")),
        ("sessions_per_address = [1]", format!("sessions_per_address: found a list, {range}")),
        ("sessions_per_block = true", format!("sessions_per_block: found true, {range}")),
        (
            "session_per_block = 1",
            "session_per_block: found an unknown field, did you mean sessions_per_block?".to_owned(),
        ),
        (
            "colour = 1",
            "colour: found an unknown field, expected one of requests_per_block, handshakes_per_block, \
             port_switches_per_block, restarts_per_block, sessions_per_address, sessions_per_site, \
             sessions_per_block"
                .to_owned(),
        ),
    ] {
        for good in [GOOD, GOOD_UNREAL] {
            let text = good.replacen("\n\n", &format!("\n[listener.limits]\n{line}\n\n"), 1);
            let at = text.lines().position(|found| found == line).expect("it is there") + 1;
            check(&text, &[&format!("gate.toml:{at}: listener[0].limits.{expected}")]);
        }
    }
    replaced(
        GOOD,
        "protocol_id = 7",
        "protocol_id = 7\nlimits = 5",
        "gate.toml:6: listener[0].limits: found a number, expected one table [listener.limits]",
    );
    replaced(
        GOOD,
        "protocol_id = 7",
        "protocol_id = 7\nlimit = { }",
        "gate.toml:6: listener[0].limit: found an unknown field, did you mean limits?",
    );
    check(
        &format!("{}[admin.limits]\nx = 1\n", GOOD.trim_end_matches('\n').to_owned() + "\n"),
        &["gate.toml:13: admin.limits: found an unknown field, expected one of bind, hosts, token"],
    );
}

#[test]
fn where_players_may_be_moved() {
    let line = "backends = [\"arena\"]";
    let old =
        "[[backend]]\nname = \"old\"\nlink = \"udp\"\naddress = \"127.0.0.1:7777\"\nslots = 4\n";
    let good = GOOD.to_owned() + old;
    let with = |moves: &str| good.replacen(line, &format!("{line}\nmoves = [{moves}]"), 1);
    check(&with("\"arena\""), &[]);
    for (moves, expected) in [
        ("\"aren\"", "moves[0]: found no [[backend]] named \"aren\", did you mean \"arena\"?"),
        (
            "\"arena\", \"old\"",
            "moves[1]: found \"old\", which has link = \"udp\", expected a backend with link = \"bundle\"",
        ),
        (
            "\"arena\", \"arena\"",
            "moves[1]: found \"arena\" again, expected it once (line 8 has it)",
        ),
    ] {
        check(&with(moves), &[&format!("gate.toml:8: listener[0].{expected}")]);
    }
    let other = "[[backend]]\nname = \"any\"\nlink = \"bundle\"\nslots = 4\n\
                 [[listener]]\nname = \"plain\"\nprotocol = \"plain\"\nbind = [\"127.0.0.1:40001\"]\nbackends = [\"any\"]\n";
    let plain = with("\"any\"") + other;
    let at = plain.lines().count();
    let expected = "listener[1].backends[0]: found \"any\", which is behind a listener of another protocol, expected a backend \
                    that speaks one protocol";
    check(&plain, &[&format!("gate.toml:{at}: {expected}")]);
}

#[test]
fn listener_fields() {
    for (line, by, expected) in [
        (
            "name = \"eu\"",
            "name = \"eu west\"",
            "gate.toml:2: listener[0].name: found \"eu west\", expected a name of 1 to 31 letters, digits, '.', '_' or '-'",
        ),
        (
            "protocol = \"netcode\"",
            "protocol = \"netcod\"",
            "gate.toml:3: listener[0].protocol: found \"netcod\", expected \"netcode\", \"unreal\" or \"plain\"",
        ),
        (
            "[\"127.0.0.1:40000\"]",
            "\"127.0.0.1:40000\"",
            "gate.toml:4: listener[0].bind: found a string, expected a list of one or more addresses, each an \
             IP:port such as \"0.0.0.0:40000\" or \"[::]:40000\"",
        ),
        (
            "[\"127.0.0.1:40000\"]",
            "[]",
            "gate.toml:4: listener[0].bind: found an empty list, expected a list of one or more addresses, each an \
             IP:port such as \"0.0.0.0:40000\" or \"[::]:40000\"",
        ),
        (
            "[\"127.0.0.1:40000\"]",
            "[\"127.0.0.1:40000\",\n\"eu.example:40000\"]",
            "gate.toml:5: listener[0].bind[1]: found \"eu.example:40000\", expected an IP:port such as \"0.0.0.0:40000\" \
             or \"[::]:40000\" (names are not looked up: give the address itself)",
        ),
        (
            "[\"127.0.0.1:40000\"]",
            "[\"127.0.0.1:40000\",\n\"127.0.0.1:40000\"]",
            "gate.toml:5: listener[0].bind[1]: found 127.0.0.1:40000 again, expected it once (line 4 has it)",
        ),
        (
            "[\"127.0.0.1:40000\"]",
            "[\"[::]:40000\"]",
            "gate.toml:1: listener[0].public: found nothing, and [::]:40000 in bind, expected the addresses that connect \
             tokens name (no token can name a wildcard)",
        ),
        (
            "protocol_id = 7",
            "protocol_id = \"0xgg\"",
            "gate.toml:5: listener[0].protocol_id: found \"0xgg\", expected a number of 64 bits, as a number or as a \
             string such as \"0x1122334455667788\"",
        ),
        (
            "[\"arena\"]",
            "[\"arena\", \"areno\"]\nroute = \"hash\"",
            "gate.toml:7: listener[0].backends[1]: found no [[backend]] named \"areno\", did you mean \"arena\"?",
        ),
        (
            "[\"arena\"]",
            "[\"lobby\"]",
            "gate.toml:7: listener[0].backends[0]: found \"lobby\", expected the name of a [[backend]]",
        ),
        (
            "[\"arena\"]",
            "[\"arena\", \"arena\"]\nroute = \"hash\"",
            "gate.toml:7: listener[0].backends[1]: found \"arena\" again, expected it once (line 7 has it)",
        ),
    ] {
        replaced(GOOD, line, by, expected);
    }
}

#[test]
fn optional_listener_fields() {
    for (by, expected) in [
        (
            "public = [\"0.0.0.0:40000\"]",
            "gate.toml:5: listener[0].public[0]: found \"0.0.0.0:40000\", expected an IP:port that can be sent to \
             (no wildcard, no port 0)",
        ),
        (
            "public = [\"192.0.2.1:1\", \"[::ffff:192.0.2.1]:1\"]",
            "gate.toml:5: listener[0].public[1]: found 192.0.2.1:1 again, expected it once (line 5 has it)",
        ),
        (
            "route = \"random\"",
            "gate.toml:5: listener[0].route: found \"random\", expected \"single\", \"user-data\", \"token\", \"hash\" or \"least-players\"",
        ),
        (
            "max_sessions = 0",
            "gate.toml:5: listener[0].max_sessions: found 0, expected a whole number from 1 to 10000000",
        ),
        (
            "max_sessions = -1",
            "gate.toml:5: listener[0].max_sessions: found -1, expected a whole number from 1 to 10000000",
        ),
        (
            "replay_window = 100",
            "gate.toml:5: listener[0].replay_window: found 100, expected a power of two from 64 to 1024",
        ),
        (
            "replay_window = 2048",
            "gate.toml:5: listener[0].replay_window: found 2048, expected a power of two from 64 to 1024",
        ),
        (
            "gap_limit = \"512\"",
            "gate.toml:5: listener[0].gap_limit: found \"512\", expected a whole number from 0 to 4294967296",
        ),
        (
            "keep_alive = \"1m\"",
            "gate.toml:5: listener[0].keep_alive: found \"1m\", expected a duration from \"10ms\" to \"10s\" (units us, ms, s, m, h)",
        ),
        (
            "token_reuse = \"yes\"",
            "gate.toml:5: listener[0].token_reuse: found \"yes\", expected \"deny\" or \"allow\"",
        ),
        (
            "delivery = \"game\"",
            "gate.toml:5: listener[0].delivery: found \"game\", expected \"none\" or \"gateway\"",
        ),
        (
            "port_switch = true",
            "gate.toml:5: listener[0].port_switch: found true, expected \"follow\" or \"ignore\"",
        ),
        ("filter = 1", "gate.toml:5: listener[0].filter: found 1, expected true or false"),
        (
            "max-sessions = 5",
            "gate.toml:5: listener[0].max-sessions: found an unknown field, did you mean max_sessions?",
        ),
        (
            "magic = \"1011\"",
            "gate.toml:5: listener[0].magic: found a field of unreal listeners, expected fields of netcode listeners only",
        ),
    ] {
        replaced(GOOD, "protocol_id = 7", &format!("{by}\nprotocol_id = 7"), expected);
    }
}

#[test]
fn listeners_side_by_side() {
    let second = GOOD.split("\n[[backend]]").next().expect("the listener's lines");
    check(
        &format!("{GOOD}{second}"),
        &[
            "gate.toml:15: listener[1].name: found \"eu\" again, expected it once (line 2 has it)",
            "gate.toml:17: listener[1].bind[0]: found 127.0.0.1:40000 again, expected it once (line 4 has it)",
        ],
    );
}

#[test]
fn any_number_of_listeners_may_ask_for_a_free_port() {
    let second = GOOD.split("\n[[backend]]").next().expect("the listener's lines");
    let text = format!("{GOOD}{}", second.replace("\"eu\"", "\"us\"")).replace(":40000", ":0");
    check(&text, &[]);
}

#[test]
fn one_route_needs_one_backend() {
    let other = "[[backend]]\nname = \"lobby\"\nlink = \"bundle\"\nslots = 1\n";
    let text = format!("{}{other}", GOOD.replace("[\"arena\"]", "[\"arena\", \"lobby\"]"));
    check(
        &text,
        &[
            "gate.toml:1: listener[0].route: found nothing, which means \"single\", and several backends, expected \"user-data\", \"hash\" or \
           \"least-players\" (or one backend)",
        ],
    );
    check(&text.replace("protocol_id", "route = \"user-data\"\nprotocol_id"), &[]);
}

#[test]
fn keys() {
    let good = format!("[{{ hex = \"{KEY}\" }}]");
    for (by, expected) in [
        (
            "[]".to_owned(),
            "gate.toml:6: listener[0].keys: found an empty list, expected a list of one or more key sources, each \
             { file = … }, { env = … }, { hex = … } or { credential = … }",
        ),
        (
            format!("\"{KEY}\""),
            "gate.toml:6: listener[0].keys: found a string, expected a list of one or more key sources, each \
             { file = … }, { env = … }, { hex = … } or { credential = … }",
        ),
        (
            format!("[\"{KEY}\"]"),
            "gate.toml:6: listener[0].keys[0]: found a string, expected exactly one of { file = … }, { env = … }, \
             { hex = … } and { credential = … }",
        ),
        (
            "[{}]".to_owned(),
            "gate.toml:6: listener[0].keys[0]: found 0 sources of one key, expected exactly one of { file = … }, \
             { env = … }, { hex = … } and { credential = … }",
        ),
        (
            format!("[{{ hex = \"{KEY}\", env = \"KEY\" }}]"),
            "gate.toml:6: listener[0].keys[0]: found 2 sources of one key, expected exactly one of { file = … }, \
             { env = … }, { hex = … } and { credential = … }",
        ),
        (
            "[{ path = \"/k\" }]".to_owned(),
            "gate.toml:6: listener[0].keys[0].path: found an unknown field, expected one of file, env, hex, credential",
        ),
        (
            "[{ hex = 12 }]".to_owned(),
            "gate.toml:6: listener[0].keys[0].hex: found a number, expected a string",
        ),
        (
            "[{ hex = \"0123\" }]".to_owned(),
            "gate.toml:6: listener[0].keys[0].hex: found 4 hex digits, expected 64 hex digits",
        ),
        (
            format!("[{{ hex = \"{KEY}\" }},\n{{ hex = \"{}\" }}]", KEY.to_uppercase()),
            "gate.toml:7: listener[0].keys[1]: found the key of keys[0] again, expected each key once",
        ),
        (
            "[{ env = \"NOT_SET\" }]".to_owned(),
            "gate.toml:6: listener[0].keys[0].env: found no environment variable \"NOT_SET\", expected one that holds \
             64 hex digits",
        ),
        (
            "[{ credential = \"netcode.key\" }]".to_owned(),
            "gate.toml:6: listener[0].keys[0].credential: found no $CREDENTIALS_DIRECTORY in the environment, expected a \
             service with LoadCredential= or SetCredential= (for a command, the folder of those files as \
             CREDENTIALS_DIRECTORY=/etc/ringgate)",
        ),
        (
            "[{ file = \"/nonexistent/key\" }]".to_owned(),
            "gate.toml:6: listener[0].keys[0].file: found a file that cannot be read (No such file or directory \
             (os error 2)), expected a key file",
        ),
    ] {
        replaced(GOOD, &good, &by, expected);
    }
}

#[test]
fn more_keys_than_anyone_rotates() {
    let keys: Vec<_> = (0..9).map(|i| format!("{{ hex = \"{i}{}\" }}", &KEY[1..])).collect();
    replaced(
        GOOD,
        &format!("[{{ hex = \"{KEY}\" }}]"),
        &format!("[{}]", keys.join(", ")),
        "gate.toml:6: listener[0].keys: found 9 keys, expected at most 8",
    );
}

#[test]
fn unreal_fields() {
    for (by, expected) in [
        (
            "magic = \"10x\"",
            "gate.toml:4: listener[0].magic: found \"10x\", expected up to 32 digits 0 and 1",
        ),
        (
            "versions = [3, 5]",
            "gate.toml:4: listener[0].versions[1]: found 5, expected a version from 0 to 4",
        ),
        (
            "versions = [2, 3]",
            "gate.toml:4: listener[0].versions[1]: found 3 beside 2, expected 0 alone, 1 and 2, or 3 and 4 (their packets \
             begin differently; each kind needs a listener of its own)",
        ),
        (
            "versions = [4, 0]",
            "gate.toml:4: listener[0].versions[1]: found 0 beside 4, expected 0 alone, 1 and 2, or 3 and 4 (their packets \
             begin differently; each kind needs a listener of its own)",
        ),
        (
            "handshake_base = \"82\"",
            "gate.toml:4: listener[0].handshake_base: found \"82\", expected \"auto\", \"short\" or \"long\"",
        ),
        (
            "mode = \"clear\"",
            "gate.toml:4: listener[0].mode: found \"clear\", expected \"notify\" or \"opaque\"",
        ),
        (
            "window = false",
            "gate.toml:4: listener[0].window: found false, expected \"on\" or \"off\"",
        ),
        (
            "network_versions = [\"0x1ffffffff\"]",
            "gate.toml:4: listener[0].network_versions: found a list, expected \"any\" or a list of 32-bit numbers such \
             as [\"0x12345678\"]",
        ),
        (
            "idle_timeout = \"0s\"",
            "gate.toml:4: listener[0].idle_timeout: found \"0s\", expected a duration from \"1s\" to \"1h\" (units us, ms, \
             s, m, h)",
        ),
        (
            "gap_limit = 8192",
            "gate.toml:4: listener[0].gap_limit: found 8192, expected a whole number from 0 to 8191 (unreal)",
        ),
        (
            "gap_limit = 9\nmode = \"opaque\"",
            "gate.toml:4: listener[0].gap_limit: found 9 where the numbers of packets are not read, expected 0, or mode = \
             \"notify\" and window = \"on\"",
        ),
        (
            "gap_limit = 9\nwindow = \"off\"",
            "gate.toml:4: listener[0].gap_limit: found 9 where the numbers of packets are not read, expected 0, or mode = \
             \"notify\" and window = \"on\"",
        ),
        (
            "restart_small = \"on\"",
            "gate.toml:4: listener[0].restart_small: found \"on\", expected true or false",
        ),
        (
            "route = \"user-data\"",
            "gate.toml:4: listener[0].route: found \"user-data\" on an unreal listener, whose players have no tokens, \
             expected \"single\", \"hash\" or \"least-players\"",
        ),
        (
            "keys = []",
            "gate.toml:4: listener[0].keys: found a field of netcode listeners, expected fields of unreal listeners only",
        ),
    ] {
        replaced(GOOD_UNREAL, "bind", &format!("{by}\nbind"), expected);
    }
}

#[test]
fn messages_are_delivered_to_processes_on_bundle_links() {
    let text = GOOD.replace("backends =", "delivery = \"gateway\"\nbackends =");
    check(&text, &[]);
    replaced(
        &text,
        "link = \"bundle\"",
        "link = \"udp\"\naddress = \"127.0.0.1:7777\"",
        "gate.toml:7: listener[0].delivery: found \"gateway\" and backend \"arena\", which has link = \"udp\", expected \
         backends with link = \"bundle\" only (they get whole messages)",
    );
    replaced(
        &text,
        "backends =",
        "token_reuse = \"allow\"\nbackends =",
        "gate.toml:8: listener[0].token_reuse: found \"allow\" and delivery = \"gateway\", expected \
         \"deny\" (messages of a token's first session could be played into its next)",
    );
    let plain = "delivery = \"gateway\"\nbackends =";
    replaced(
        GOOD_UNREAL,
        "backends =",
        plain,
        "gate.toml:5: listener[0].delivery: found a field of netcode listeners, expected fields of unreal listeners only",
    );
}

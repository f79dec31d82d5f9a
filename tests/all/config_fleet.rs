//! `[fleet]` and what listeners take from it: what is read, and every mistake by name.

use std::path::Path;

use ringgate::config::keys::KeySources;
use ringgate::config::{Config, Protocol, parse};

use crate::folder::Folder;

const FLEET: &str = "[fleet]\nendpoints = [\"http://127.0.0.1:2379\"]\nprefix = \"/ringgate/eu\"\n";
const KEY: &str =
    "key = { hex = \"0909090909090909090909090909090909090909090909090909090909090909\" }\n";
const LISTENER: &str = "[[listener]]\nname = \"main\"\nprotocol = \"netcode\"\nbind = [\"127.0.0.1:40000\"]\n\
                        protocol_id = 1\ngroup = \"arena\"\nroute = \"hash\"\n";

fn read(text: &str) -> Result<Config, String> {
    let sources = KeySources::new(&|_| None, None);
    parse(text, Path::new("gate.toml"), &sources).map_err(|mistakes| mistakes.to_string())
}

#[track_caller]
fn is_refused(text: &str, said: &str) {
    let mistakes = read(text).expect_err("there is a mistake");
    assert!(mistakes.contains(said), "{mistakes}");
}

#[test]
fn listeners_that_a_fleet_does_not_hear_of_are_told() {
    let notices = |count: u16| {
        let other = |at: u16| {
            LISTENER.replace("main", &format!("l{at}")).replace("40000", &(40_000 + at).to_string())
        };
        let listeners: String = (0..count).map(other).collect();
        read(&[FLEET, KEY, &listeners].concat()).expect("it is sound").notices()
    };
    assert_eq!(notices(64), [""; 0]);
    let said = notices(66);
    assert!(said.len() == 1 && said[0].ends_with("no token names the 2 after them"), "{said:?}");
    let binds: Vec<_> = (0..67).map(|at| format!("\"127.0.0.1:{}\"", 40_000 + at)).collect();
    let many = LISTENER.replace("\"127.0.0.1:40000\"", &binds.join(", "));
    let said = read(&[FLEET, KEY, &many].concat()).expect("it is sound").notices();
    let expected = "the fleet hears of the first 64 addresses of listener \"main\" alone: no token names the 3 after them";
    assert_eq!(said, [expected]);
    assert!(
        read(&[FLEET, KEY, &many, "public = [\"192.0.2.1:1\"]"].concat())
            .is_ok_and(|it| it.notices().is_empty())
    );
}

#[test]
fn names_in_a_fleet_begin_as_keys_of_etcd_do() {
    let with = |name: &str| LISTENER.replace("\"main\"", &format!("\"{name}\""));
    for name in ["_test", ".test", "-test"] {
        let said = format!(
            "listener[0].name: found \"{name}\", expected a name that begins with a letter or a digit"
        );
        is_refused(&format!("{FLEET}{KEY}{}", with(name)), &said);
    }
    read(&format!("{FLEET}{KEY}{}", with("0-_."))).expect("it is sound");
    let group = "g".repeat(64);
    let moves = |name: &str| format!("{FLEET}{KEY}{LISTENER}moves = [\"{name}\"]\n");
    let config = read(&moves(&group)).expect("a group may be called so");
    let Protocol::Netcode(rules) = &config.listeners[0].protocol else { panic!("{config:?}") };
    assert_eq!(rules.moves, [group.as_str()]);
    is_refused(&moves(&format!("{group}g")), "listener[0].moves[0]: found");
}

#[test]
fn a_gateway_in_a_fleet_needs_no_backend_and_no_key_of_its_own() {
    let config = read(&format!("{FLEET}{KEY}{LISTENER}")).expect("it is sound");
    let fleet = config.fleet.expect("it is there");
    assert_eq!(fleet.endpoints[0].to_string(), "http://127.0.0.1:2379");
    assert_eq!((fleet.region.as_str(), fleet.name, fleet.max_backends), ("default", None, 1000));
    assert!(config.backends.is_empty() && config.listeners[0].backends.is_empty());
    let group = config.listeners[0].group.as_ref().expect("it has one");
    assert_eq!(group.as_str(), "arena");
}

#[test]
fn what_one_process_or_user_may_register_has_bounds() {
    for (lines, process, user) in [
        ("", 32, 1000),
        ("max_backends = 50\n", 32, 50),
        ("max_backends = 50\nbackends_per_process = 3\nbackends_per_user = 7\n", 3, 7),
    ] {
        let config = read(&format!("{FLEET}{lines}{KEY}{LISTENER}")).expect("it is sound");
        let fleet = config.fleet.expect("it is there");
        assert_eq!((fleet.backends_per_process, fleet.backends_per_user()), (process, user));
    }
}

#[test]
fn it_is_said_where_one_block_could_fill_servers_of_a_group() {
    let listener = "[[listener]]\nname = \"ue\"\nprotocol = \"unreal\"\nbind = [\"127.0.0.1:40000\"]\n\
                    group = \"arena\"\nroute = \"least-players\"\n[listener.limits]\n";
    for (limits, servers) in [
        ("", "a server of group \"arena\" with up to 8192 slots"),
        ("sessions_per_site = 1", "a server of group \"arena\" with up to 8192 slots"),
        (
            "sessions_per_site = 1\nsessions_per_address = 1",
            "a server of group \"arena\" with up to 256 slots",
        ),
        ("sessions_per_address = 0", "any server of group \"arena\""),
    ] {
        let said =
            read(&format!("{FLEET}{KEY}{listener}{limits}")).expect("it is sound").fillable();
        assert!(said.len() == 1 && said[0].contains(&format!("could fill {servers};")), "{said:?}");
    }
    let bounded = read(&format!("{FLEET}{KEY}{listener}sessions_per_block = 100"));
    assert!(bounded.expect("it is sound").fillable().is_empty());
}

#[test]
fn players_ids_may_be_the_fleets() {
    let unique = format!("{LISTENER}unique_clients = \"fleet\"\n");
    let config = read(&format!("{FLEET}{KEY}{unique}")).expect("it is sound");
    let ringgate::config::Protocol::Netcode(rules) = &config.listeners[0].protocol else {
        panic!("it is a netcode listener");
    };
    assert_eq!(rules.unique_clients, ringgate::config::UniqueClients::Fleet);
    let grouped = "group = \"arena\"\nroute = \"hash\"\n";
    is_refused(
        &format!("{FLEET}{KEY}{}", unique.replace(grouped, "backends = [\"a\"]\n")),
        "listener[0].unique_clients: found \"fleet\", and no group, expected a group, whose ids they are",
    );
}

#[test]
fn what_listeners_cannot_have_from_a_fleet_is_named() {
    let alone = "[[backend]]\nname = \"a\"\nlink = \"udp\"\naddress = \"127.0.0.1:1\"\nslots = 1\n";
    is_refused(
        &format!("{LISTENER}{alone}"),
        "listener[0].group: found \"arena\", and no [fleet], expected backends (groups are a fleet's)",
    );
    is_refused(
        &format!("{FLEET}{LISTENER}"),
        "listener[0].keys: found nothing, expected a list of one or more key sources",
    );
    is_refused(
        &format!("{FLEET}{KEY}{}", LISTENER.replace("group = \"arena\"\n", "")),
        "listener[0].backends: found nothing, expected a list of one or more names",
    );
    is_refused(
        &format!("{FLEET}{KEY}{LISTENER}backends = [\"a\"]\n{alone}"),
        "listener[0].backends: found backends beside a group, expected one of the two",
    );
    is_refused(
        &format!("{FLEET}{KEY}{}", LISTENER.replace("route = \"hash\"\n", "")),
        "listener[0].route: found nothing, which means \"single\", and a group, whose backends come and go",
    );
    let unreal = "[[listener]]\nname = \"ue\"\nprotocol = \"unreal\"\nbind = [\"127.0.0.1:7777\"]\n\
                  group = \"arena\"\nroute = \"hash\"\n";
    is_refused(
        &format!("{FLEET}{KEY}{LISTENER}{unreal}"),
        "listener[1].group: found \"arena\", which is behind a listener of another protocol",
    );
    is_refused(
        &format!("{FLEET}{}", unreal.replace("127.0.0.1:7777", "0.0.0.0:7777")),
        "listener[0].public: found nothing, and 0.0.0.0:7777 in bind, expected the addresses that players dial",
    );
}

#[test]
fn tokens_of_a_group_are_made_of_the_fleets_key() {
    let plain = "[[listener]]\nname = \"any\"\nprotocol = \"plain\"\nbind = [\"127.0.0.1:7100\"]\n\
                 group = \"arena\"\nroute = \"token\"\ntoken = { at = \"end\", bytes = 8 }\n";
    let config = read(&format!("{FLEET}{KEY}{plain}")).expect("it is sound");
    assert!(config.listeners[0].backends.is_empty());
    is_refused(
        &format!("{FLEET}{plain}"),
        "listener[0].route: found \"token\" and a group, and no fleet.key, expected a key",
    );
    is_refused(
        &format!(
            "{FLEET}{KEY}{plain}tokens = [{{ hex = \"0011223344556677\", backend = \"a\" }}]\n"
        ),
        "listener[0].tokens: found tokens beside a group, expected none: they are made of fleet.key",
    );
    is_refused(
        &format!("{FLEET}{KEY}{}", plain.replace("token = {", "# token = {")),
        "listener[0].token: found nothing",
    );
    is_refused(
        &format!("{FLEET}{KEY}{}", plain.replace("route = \"token\"", "route = \"single\"")),
        "a group, whose backends come and go, expected \"token\", \"hash\" or \"least-players\"",
    );
}

#[test]
fn what_etcd_cannot_be_reached_with_is_named() {
    let with = |field: &str| format!("{FLEET}{KEY}{field}\n{LISTENER}");
    for (field, said) in [
        ("ca = \"a.pem\"", "fleet.ca: found it, and no endpoint that speaks TLS"),
        ("certificate = \"a.pem\"", "fleet.certificate_key: found nothing, and a certificate"),
        ("user = \"me\"", "fleet.password: found nothing, and a user"),
        ("password = { env = \"P\" }", "fleet.password.env: found no environment variable \"P\""),
        ("lease = \"1s\"", "fleet.lease: found \"1s\", expected a duration from \"3s\" to \"5m\""),
        ("name = \"a b\"", "fleet.name: found \"a b\", expected a name of 1 to 64"),
        ("max_backends = 0", "fleet.max_backends: found 0, expected a whole number from 1 to 4000"),
        ("prefx = \"/x\"", "fleet.prefx: found an unknown field, did you mean prefix?"),
    ] {
        is_refused(&with(field), said);
    }
    let http = "\"http://127.0.0.1:2379\"";
    for (endpoints, said) in [
        ("\"127.0.0.1:2379\"", "fleet.endpoints[0]: found \"127.0.0.1:2379\", expected http://"),
        ("\"https://a:1\"", "fleet.ca: found nothing, and an endpoint with https"),
        (
            "\"https://a:1\"]\nca = \"lost.pem\"\nallow_uids = [1",
            "fleet.ca: lost.pem: cannot read it: No such file",
        ),
        (&format!("{http}, {http}"), "fleet.endpoints[1]: found \"http://127.0.0.1:2379\" again"),
    ] {
        is_refused(&with("").replace(http, endpoints), said);
    }
    is_refused(&with("").replace("/ringgate/eu", "ringgate"), "fleet.prefix: found \"ringgate\"");
}

#[test]
fn secrets_are_read_from_files_that_are_closed() {
    let folder = Folder::new();
    let text = |file: &Path| {
        format!(
            "{FLEET}key = {{ file = \"{0}\" }}\nuser = \"me\"\npassword = {{ file = \"{0}\" }}\n{LISTENER}",
            file.display()
        )
    };
    let digits = "09".repeat(32);
    let open = folder.file("open", digits.clone(), 0o644);
    is_refused(&text(&open), "fleet.key.file: found a key file that others may use (mode 0644)");
    let closed = folder.file("closed", digits, 0o600);
    let config = read(&text(&closed)).expect("it is sound");
    let shown = format!("{:?}", config.fleet);
    assert!(!shown.contains("0909") && shown.contains("me"), "{shown}");
    assert!(config.fleet.is_some_and(|it| it.options().credentials.is_some()));
}

//! Configs with what a fleet knows besides.

use std::path::Path;

use ringgate_core::secret::Key;
use ringgate_fleet::values::Reach;
use ringgate_gate::Intake;

use super::*;
use crate::config::keys::KeySources;
use crate::config::parse;
use crate::membership::known::Backend;

const TEXT: &str = r#"
[gateway]
run_dir = "/run/gate"
[fleet]
endpoints = ["http://127.0.0.1:2379"]
prefix = "/f"
key = { hex = "0909090909090909090909090909090909090909090909090909090909090909" }
max_backends = 3
[[listener]]
name = "main"
protocol = "netcode"
bind = ["127.0.0.1:40000"]
protocol_id = 1
group = "arena"
route = "user-data"
[[listener]]
name = "shooter"
protocol = "unreal"
bind = ["127.0.0.1:7777"]
group = "shooters"
route = "hash"
[[listener]]
name = "any"
protocol = "plain"
bind = ["127.0.0.1:7100"]
group = "worlds"
route = "token"
token = { at = "end", bytes = 16 }
[[listener]]
name = "short"
protocol = "plain"
bind = ["127.0.0.1:7101"]
group = "worlds"
route = "token"
token = { at = "start", bytes = 1 }
[[backend]]
name = "own"
link = "udp"
address = "127.0.0.1:9000"
slots = 4
"#;

fn file() -> Config {
    let sources = KeySources::new(&|_| None, None);
    parse(TEXT, Path::new("gate.toml"), &sources).expect("a sound config")
}

fn udp(name: &str, group: &str, address: &str) -> Backend {
    let reach = Reach::Udp(address.parse().expect("an address"));
    let (name, group) = (name.to_owned(), group.to_owned());
    Backend { name, group, reach, slots: 8, intake: Intake::Anybody }
}

fn bundle(name: &str, group: &str, path: &str) -> Backend {
    Backend { reach: Reach::Bundle(path.to_owned()), ..udp(name, group, "127.0.0.1:1") }
}

fn merge(backends: Vec<Backend>) -> (Vec<String>, Vec<(String, &'static str)>, Config) {
    let Merged { config, refused } = merged(&file(), &Known { backends, ..Known::default() });
    let names = config.backends.iter().map(|it| it.name.clone()).collect();
    (names, refused.into_iter().map(|it| (it.backend, it.why)).collect(), config)
}

#[test]
fn backends_come_behind_the_listeners_of_their_group() {
    let (names, refused, config) = merge(vec![
        udp("a", "arena", "10.0.0.9:7000"),
        bundle("b", "arena", "/run/gate"),
        udp("c", "shooters", "127.0.0.1:7001"),
        udp("d", "other", "127.0.0.1:7002"),
    ]);
    assert_eq!(names, ["own", "a", "b", "c"]);
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(config.listeners[0].backends, [1, 2]);
    assert_eq!(config.listeners[1].backends, [3]);
}

#[test]
fn backends_that_cannot_be_taken_are_named() {
    let long = "x".repeat(32);
    for (backend, said) in [
        (udp(&long, "arena", "127.0.0.1:7000"), "longer than 31"),
        (udp("own", "arena", "127.0.0.1:7000"), "of that name"),
        (udp("a", "arena", "127.0.0.1:9000"), "at its address"),
        (udp("a", "arena", "0.0.0.0:7000"), "nothing can be sent"),
        (udp("a", "shooters", "10.0.0.9:7000"), "not at 127."),
        (bundle("a", "shooters", "/run/gate"), "need udp"),
        (bundle("a", "arena", "/run/other"), "another run_dir"),
    ] {
        let (names, refused, _) = merge(vec![backend]);
        assert_eq!(names, ["own"]);
        assert!(refused.len() == 1 && refused[0].1.contains(said), "{said}: {refused:?}");
    }
    let many =
        (0..5).map(|at| udp(&format!("b{at}"), "arena", &format!("127.0.0.1:{}", 7000 + at)));
    let (names, refused, _) = merge(many.collect());
    assert_eq!((names.len(), refused.len()), (4, 2));
    assert!(refused.iter().all(|(_, why)| why.contains("max_backends")));
}

#[test]
fn keys_are_those_of_the_listeners_name() {
    let keys =
        [("main".to_owned(), vec![(2, Key::from_bytes([2; 32])), (1, Key::from_bytes([1; 32]))])];
    let known = Known { keys: keys.into(), ..Known::default() };
    let config = merged(&file(), &known).config;
    let Protocol::Netcode(rules) = &config.listeners[0].protocol else { panic!("it is netcode") };
    assert_eq!(rules.keys, [Key::from_bytes([2; 32]), Key::from_bytes([1; 32])]);
    assert!(rules.has_fleet_keys);
}

#[test]
fn tokens_of_a_plain_listeners_group_are_made_of_the_fleets_key() {
    let backends =
        (0..3).map(|at| udp(&format!("w{at}"), "worlds", &format!("127.0.0.1:{}", 7200 + at)));
    let (names, refused, config) = merge(backends.collect());
    assert_eq!((names.len(), refused.len()), (4, 0));
    let Protocol::Plain(rules) = &config.listeners[2].protocol else { panic!("it is plain") };
    let key = config.fleet.as_ref().and_then(|fleet| fleet.key.as_ref()).expect("a key");
    let made = ringgate_fleet::routing::RoutingTokens::new(key);
    let name = |text: &str| Name::new(text).expect("a name");
    let expected = [1, 2, 3].map(|at: usize| {
        let backend = name(&config.backends[at].name);
        (made.token(&name("any"), &backend, 16).into_boxed_slice(), at)
    });
    assert_eq!(rules.tokens.0, expected);
}

#[test]
fn two_backends_never_have_one_token() {
    let text = TEXT.replace("max_backends = 3", "max_backends = 300");
    let sources = KeySources::new(&|_| None, None);
    let file = parse(&text, Path::new("gate.toml"), &sources).expect("a sound config");
    let backends: Vec<_> = (0..300)
        .map(|at| udp(&format!("w{at}"), "worlds", &format!("127.0.0.1:{}", 10_000 + at)))
        .collect();
    let Merged { config, refused } = merged(&file, &Known { backends, ..Known::default() });
    let Protocol::Plain(rules) = &config.listeners[3].protocol else { panic!("it is plain") };
    let tokens: BTreeSet<_> = rules.tokens.0.iter().map(|(token, _)| token).collect();
    assert_eq!(tokens.len(), rules.tokens.0.len());
    assert_eq!(config.listeners[3].backends.len(), tokens.len());
    assert_eq!(refused.len(), 300 - tokens.len());
    assert!(tokens.len() <= 256 && refused[0].why.contains("token.bytes"));
}

//! Configs with what a fleet knows besides.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use ringgate_core::secret::{Key, SharedKey};
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
fn players_may_be_moved_to_backends_and_groups_that_a_listener_names_and_nowhere_else() {
    let moved_to = |moves: &str| {
        let rule = format!("protocol_id = 1\n{moves}");
        let text = TEXT.replacen("protocol_id = 1", &rule, 1);
        let file = parse(&text, Path::new("gate.toml"), &KeySources::new(&|_| None, None));
        let backends = vec![bundle("a", "arena", "/run/gate"), bundle("b", "night", "/run/gate")];
        let known = Known { backends, ..Known::default() };
        let Merged { config, .. } = merged(&file.expect("a sound config"), &known);
        let Protocol::Netcode(rules) = &config.listeners[0].protocol else { panic!("netcode") };
        let names = rules.moves_to.iter().map(|it| config.backends[*it].name.clone());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(moved_to(""), "", "nowhere");
    assert_eq!(moved_to("moves = [\"arena\"]"), "a");
    assert_eq!(moved_to("moves = [\"night\"]"), "b", "a group that no listener leads to");
    assert_eq!(moved_to("moves = [\"b\", \"nobody-yet\"]"), "b");
    assert_eq!(moved_to("moves = [\"arena\", \"night\"]"), "a b");
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

fn behind(name: &str, agent: &str) -> Backend {
    Backend { reach: Reach::Agent(agent.to_owned()), ..udp(name, "arena", "127.0.0.1:1") }
}

/// A folder with who a gateway is, whose key is closed to others.
fn identity() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("ringgate-merge-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).expect("temporary folders can be made");
    let fixtures =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/trunk/src/protocol/tls/fixtures");
    for name in ["authority.pem", "gateway.pem", "gateway.key"] {
        let copy = folder.join(name);
        std::fs::copy(fixtures.join(name), &copy).expect("it is there");
        let closed = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&copy, closed).expect("our own file");
    }
    folder.display().to_string()
}

/// A file with a table for one agent and one for all others, and what becomes of it.
fn with_agents(backends: Vec<Backend>, agents: &[&str]) -> Merged {
    let folder = identity();
    let table = |name: &str, backends: &str| {
        format!(
            "[[agent]]\nname = \"{name}\"\nbind = \"127.0.0.1:7200\"\nca = \"{folder}/authority.pem\"\n\
             certificate = \"{folder}/gateway.pem\"\nkey = \"{folder}/gateway.key\"\nbackends = {backends}\n"
        )
    };
    let text = [TEXT, &table("host-7", "[\"listed\"]"), &table("*", "\"fleet\"")].concat();
    let sources = KeySources::new(&|_| None, None);
    let file = parse(&text, Path::new("gate.toml"), &sources).expect("a sound config");
    std::fs::remove_dir_all(folder).expect("our own folder");
    let agents = agents.iter().map(|&name| name.to_owned()).collect();
    merged(&file, &Known { backends, agents, ..Known::default() })
}

#[test]
fn agents_of_the_fleet_may_serve_what_is_behind_them() {
    if let Err(why) = ringgate_os::processor::suffices_for_tls() {
        return eprintln!("SKIPPED: {why}");
    }
    let backends = vec![behind("a", "host-8"), behind("b", "host-9"), behind("c", "host-8")];
    let Merged { config, refused } = with_agents(backends, &["host-8", "host-9"]);
    assert!(refused.is_empty(), "{refused:?}");
    let served: Vec<_> =
        config.agents.iter().map(|it| (it.name.as_str(), it.backends.join(" "))).collect();
    let expected = [("host-7", "listed"), ("*", ""), ("host-8", "a c"), ("host-9", "b")];
    assert_eq!(served, expected.map(|(name, list)| (name, list.to_owned())));
    let links: Vec<_> = config.backends[1..].iter().map(|it| it.link.clone()).collect();
    assert_eq!(links, vec![Link::Bundle(config::Allowed::default()); 3], "the gateway's own");
    assert_eq!(config.listeners[0].backends, [1, 2, 3]);
}

#[test]
fn agents_beyond_those_that_there_is_room_for_are_those_that_came_last() {
    if let Err(why) = ringgate_os::processor::suffices_for_tls() {
        return eprintln!("SKIPPED: {why}");
    }
    let names: Vec<_> = (0..255).map(|at| format!("z{at}")).chain(["a-late".to_owned()]).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let backends = vec![behind("a", "a-late"), behind("b", "z253")];
    let Merged { config, refused } = with_agents(backends, &names);
    assert_eq!(config.agents.len(), AGENTS_MAX);
    assert_eq!(config.agents.last().map(|it| it.name.as_str()), Some("z253"));
    let why = "its agent is beyond the 256 that a gateway lets in";
    assert_eq!(refused, [Refused { backend: "a".to_owned(), why }]);
}

#[test]
fn an_agent_with_a_list_may_serve_no_more() {
    if let Err(why) = ringgate_os::processor::suffices_for_tls() {
        return eprintln!("SKIPPED: {why}");
    }
    let backends = vec![behind("listed", "host-7"), behind("other", "host-7")];
    let Merged { config, refused } = with_agents(backends, &["host-7"]);
    assert_eq!(config.agents.len(), 2, "it has a table of its own");
    assert_eq!(config.backends.len(), 2);
    assert_eq!((&*refused[0].backend, refused.len()), ("other", 1));
    assert!(refused[0].why.contains("does not list it"), "{refused:?}");

    let (_, refused, _) = merge(vec![behind("a", "host-8")]);
    assert!(refused[0].1.contains("no [[agent]]"), "{refused:?}");
    let shooter = Backend { group: "shooters".to_owned(), ..behind("a", "host-8") };
    let Merged { config, refused } = with_agents(vec![shooter.clone()], &["host-8"]);
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(config.listeners[1].backends, [1], "it is a server until its link says otherwise");
    let here = Backend { reach: Reach::Bundle("/run/ringgate".to_owned()), ..shooter };
    let Merged { refused, .. } = with_agents(vec![here], &[]);
    assert!(refused[0].why.contains("unreal"), "{refused:?}");
}

#[test]
fn what_a_connected_agent_serves_stays_where_the_fleet_does_not_know_it_yet() {
    if let Err(why) = ringgate_os::processor::suffices_for_tls() {
        return eprintln!("SKIPPED: {why}");
    }
    let Merged { mut config, .. } = with_agents(vec![behind("one", "host-8")], &["host-8"]);
    let links = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect();
    keep_connected(&mut config, ("host-7".to_owned(), links(&["lost"])));
    keep_connected(&mut config, ("host-8".to_owned(), links(&["one", "two"])));
    keep_connected(&mut config, ("host-9".to_owned(), links(&["one", "three"])));
    let own: Vec<_> =
        config.agents.iter().map(|it| (it.name.as_str(), it.backends.join(" "))).collect();
    let expected = [("host-7", "listed"), ("*", ""), ("host-8", "one two"), ("host-9", "three")];
    assert_eq!(own, expected.map(|(name, backends)| (name, backends.to_owned())));
    // Where the file lets no agent of the fleet in, nobody stays.
    config.agents.clear();
    keep_connected(&mut config, ("host-8".to_owned(), links(&["one"])));
    assert!(config.agents.is_empty());
}

/// One without agents is upgraded from a release that had no sockets for bundles then.
#[test]
fn a_gateway_in_front_of_unreal_servers_has_bundle_links_if_it_has_agents() {
    let bundles = |mut config: Config| {
        config.listeners.retain(|it| it.protocol.front() == Front::Unreal);
        config.backends.clear();
        let links = crate::control::plan::links(&config);
        assert!(links.udp);
        links.bundles
    };
    assert!(!bundles(file()));
    if let Err(why) = ringgate_os::processor::suffices_for_tls() {
        return eprintln!("SKIPPED: {why}");
    }
    assert!(bundles(with_agents(Vec::new(), &[]).config));
}

#[test]
fn nobody_is_moved_to_a_udp_server() {
    let rule = "protocol_id = 1\nmoves = [\"arena\", \"night\"]";
    let text = TEXT.replacen("protocol_id = 1", rule, 1);
    let file = parse(&text, Path::new("gate.toml"), &KeySources::new(&|_| None, None));
    let backends = vec![
        udp("a", "arena", "127.0.0.1:7001"),
        bundle("b", "arena", "/run/gate"),
        udp("c", "night", "127.0.0.1:7002"),
    ];
    let known = Known { backends, ..Known::default() };
    let config = merged(&file.expect("a sound config"), &known).config;
    let names: Vec<_> = config.backends.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["own", "a", "b"], "no listener leads to the third");
    let Protocol::Netcode(rules) = &config.listeners[0].protocol else { panic!("it is netcode") };
    assert_eq!((&config.listeners[0].backends, &rules.moves_to), (&vec![1, 2], &vec![2]));
}

#[test]
fn keys_are_those_of_the_listeners_name() {
    let key = |byte| SharedKey::from(Key::from_bytes([byte; 32]));
    let keys = [("main".to_owned(), vec![(2, key(2)), (1, key(1))])];
    let known = Known { keys: keys.into(), ..Known::default() };
    let config = merged(&file(), &known).config;
    let Protocol::Netcode(rules) = &config.listeners[0].protocol else { panic!("it is netcode") };
    assert_eq!(rules.keys, [key(2), key(1)]);
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

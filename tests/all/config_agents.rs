//! `[[agent]]`: what is read, and every mistake by name.

use ringgate::config::keys::KeySources;
use ringgate::config::{Accepted, Config, HostConfig, parse};

use crate::folder::{Folder, IDENTITY};

const REST: &str = "[[listener]]\nname = \"main\"\nprotocol = \"netcode\"\nbind = [\"127.0.0.1:40000\"]\n\
                    protocol_id = 1\nkeys = [{ hex = \"0909090909090909090909090909090909090909090909090909090909090909\" }]\n\
                    backends = [\"arena-1\"]\n\
                    [[backend]]\nname = \"arena-1\"\nlink = \"bundle\"\nslots = 8\n\
                    [[backend]]\nname = \"shooter-1\"\nlink = \"udp\"\naddress = \"127.0.0.1:7778\"\nslots = 8\n";

fn agent(name: &str) -> String {
    format!(
        "[[agent]]\nname = \"{name}\"\nbind = \"127.0.0.1:7400\"\nca = \"agents-ca.pem\"\ncertificate = \"gateway.pem\"\n\
         key = \"gateway.key\"\nbackends = [\"arena-1\"]\n"
    )
}

fn identity(folder: &Folder) {
    for (name, text, mode) in IDENTITY {
        folder.file(name, text, mode);
    }
}

fn read(folder: &Folder, agents: &str) -> Result<Config, String> {
    let sources = KeySources::new(&|_| None, None);
    let parsed = parse(&format!("{REST}{agents}"), &folder.join("gate.toml"), &sources);
    parsed.map_err(|mistakes| mistakes.to_string())
}

#[track_caller]
fn is_refused(folder: &Folder, agents: &str, said: &str) {
    let mistakes = read(folder, agents).expect_err("there is a mistake");
    assert!(mistakes.contains(said), "{mistakes}");
}

#[test]
fn several_agents_may_have_one_address_and_one_certificate() {
    let folder = Folder::new();
    identity(&folder);
    let both = [agent("host-7"), agent("host-8.example")].concat();
    let config = read(&folder, &both).expect("it is sound");
    let names: Vec<_> = config.agents.iter().map(|agent| &*agent.name).collect();
    assert_eq!(names, ["host-7", "host-8.example"]);
    assert_eq!(config.agents[0].backends, ["arena-1"]);
    assert_eq!(config.agents[0].identity(), config.agents[1].identity());
    assert!(!format!("{config:?}").contains("PRIVATE"), "no key is printed");
}

#[test]
fn an_unreal_listeners_server_may_be_behind_an_agent_that_lists_it() {
    let folder = Folder::new();
    identity(&folder);
    let unreal = "[[listener]]\nname = \"ue\"\nprotocol = \"unreal\"\nbind = [\"127.0.0.1:7777\"]\n\
                  backends = [\"ue-1\"]\n\
                  [[backend]]\nname = \"ue-1\"\nlink = \"bundle\"\nslots = 8\n";
    let listed = agent("host-7").replace("[\"arena-1\"]", "[\"arena-1\", \"ue-1\"]");
    let config = read(&folder, &format!("{unreal}{listed}")).expect("it is sound");
    assert_eq!(config.listeners[1].backends, [2]);
    let said = "listener[1].backends[0]: found \"ue-1\", which has link = \"bundle\", expected a \
                backend with link = \"udp\", or one that an [[agent]] lists (unreal)";
    is_refused(&folder, &format!("{unreal}{}", agent("host-7")), said);
}

#[test]
fn mistakes_are_named() {
    let folder = Folder::new();
    identity(&folder);
    let own = agent("host-7");
    let twice = [own.clone(), own.clone()].concat();
    is_refused(&folder, &twice, "agent[1].name: found \"host-7\" again, expected it once");
    let badly = own.replace("host-7", "host 7");
    is_refused(&folder, &badly, "agent[0].name: found \"host 7\", expected letters, digits, dots");
    let foreign = own.replace("[\"arena-1\"]", "[\"arena-2\"]");
    is_refused(
        &folder,
        &foreign,
        "found no [[backend]] named \"arena-2\", did you mean \"arena-1\"?",
    );
    let udp = own.replace("[\"arena-1\"]", "[\"shooter-1\"]");
    let expected =
        "found \"shooter-1\", which has link = \"udp\", expected a backend with link = \"bundle\"";
    is_refused(&folder, &udp, expected);
    let none = own.replace("[\"arena-1\"]", "[]");
    is_refused(&folder, &none, "agent[0].backends: found an empty list");
    let lost = own.replace("agents-ca.pem", "lost.pem");
    is_refused(&folder, &lost, "lost.pem: cannot read it: No such file");
}

const FLEET: &str = "[fleet]\nendpoints = [\"http://127.0.0.1:2379\"]\nprefix = \"/f\"\n";

#[test]
fn a_table_may_stand_for_all_agents_of_a_fleet() {
    let folder = Folder::new();
    identity(&folder);
    let any = agent("*").replace("[\"arena-1\"]", "\"fleet\"");
    let public = format!("{any}public = \"gate-1.example:7400\"\n");
    let config = read(&folder, &[FLEET, &public, &agent("host-7")].concat()).expect("it is sound");
    let [any_of_them, one] = &config.agents[..] else { panic!("there are two") };
    assert_eq!((&*any_of_them.name, any_of_them.serves_fleet), ("*", true));
    assert_eq!(
        any_of_them.public.as_ref().map(ToString::to_string).as_deref(),
        Some("gate-1.example:7400")
    );
    assert!(any_of_them.backends.is_empty() && !one.serves_fleet && one.public.is_none());

    let said =
        "agent[0].backends: found \"fleet\" without a fleet, expected a table [fleet], or names";
    is_refused(&folder, &any, said);
    let listed = [FLEET, &agent("*")].concat();
    is_refused(&folder, &listed, "agent[0].backends: found a list, for agents that have no table");
    let badly = public.replace("gate-1.example:7400", "gate-1.example");
    is_refused(
        &folder,
        &[FLEET, &badly].concat(),
        "agent[0].public: found \"gate-1.example\", expected a host and its port",
    );
}

#[test]
fn an_agents_name_in_a_fleet_begins_as_keys_of_etcd_do() {
    let folder = Folder::new();
    identity(&folder);
    read(&folder, &agent("_spare")).expect("it is sound without a fleet");
    let said =
        "agent[0].name: found \"_spare\", expected a name that begins with a letter or a digit";
    is_refused(&folder, &[FLEET, &agent("_spare")].concat(), said);

    let host = |agent: &str, backend: &str, fleet: &str| {
        let text = format!(
            "[agent]\nname = \"{agent}\"\ngateways = [\"127.0.0.1:7400\"]\nca = \"agents-ca.pem\"\n\
             certificate = \"gateway.pem\"\nkey = \"gateway.key\"\n\
             [[backend]]\nname = \"{backend}\"\nlink = \"bundle\"\nslots = 8\n{fleet}"
        );
        let sources = KeySources::new(&|_| None, None);
        let parsed = HostConfig::parse(&text, &folder.join("agent.toml"), &sources);
        parsed.map(drop).map_err(|mistakes| mistakes.to_string())
    };
    let grouped = format!("group = \"arena\"\n{FLEET}");
    assert_eq!(host("_host", "_arena", ""), Ok(()));
    assert_eq!(host("host-7", "_arena", FLEET), Ok(()), "the fleet is not told of it");
    for (agent, backend, field) in [("_host", "arena", "agent"), ("host-7", "_arena", "backend[0]")]
    {
        let mistakes = host(agent, backend, &grouped).expect_err("it is no name of the fleet's");
        assert!(mistakes.contains(&format!("{field}.name: found \"_")), "{mistakes}");
        assert_eq!(mistakes.lines().count(), 1, "{mistakes}");
    }
}

#[test]
fn agents_do_not_come_to_where_players_come() {
    let folder = Folder::new();
    identity(&folder);
    let said = "listener[0].bind[0]: found 127.0.0.1:40000, where agents or a cluster's members connect, expected an address \
                for players alone";
    is_refused(&folder, &agent("host-7").replace("127.0.0.1:7400", "127.0.0.1:40000"), said);
    // Whoever sends to an address that one of them has alone comes to that one.
    for bind in ["127.0.0.2:40000", "0.0.0.0:40000", "[::]:40000", "127.0.0.1:0"] {
        read(&folder, &agent("host-7").replace("127.0.0.1:7400", bind)).expect("it is another");
    }
}

#[test]
fn agents_that_a_fleet_does_not_tell_of_an_entrance_are_told() {
    let folder = Folder::new();
    identity(&folder);
    let agents =
        |count: usize| -> String { (0..count).map(|at| agent(&format!("host-{at}"))).collect() };
    let notices =
        |count| read(&folder, &(FLEET.to_owned() + &agents(count))).expect("it is sound").notices();
    let is_said = |notice: &String| notice.contains("the fleet hears of the first 64 agents");
    assert!(!notices(64).iter().any(is_said));
    let said = notices(66);
    assert!(
        said.iter()
            .any(|it| is_said(it) && it.ends_with("etcd has no entrance for the 2 after them")),
        "{said:?}"
    );
}

#[test]
fn who_an_agent_is_needs_no_other_secret_of_its_file() {
    let folder = Folder::new();
    identity(&folder);
    let token = folder.file("admin.token", "a-text-that-nobody-guesses", 0o600);
    let file = folder.file(
        "agent.toml",
        "[agent]\nname = \"host-7\"\ngateways = [\"127.0.0.1:7400\"]\nca = \"agents-ca.pem\"\n\
         certificate = \"gateway.pem\"\nkey = \"gateway.key\"\n[admin]\ntoken = { file = \"admin.token\" }\n\
         [[backend]]\nname = \"arena-1\"\nlink = \"bundle\"\nslots = 8\n",
        0o600,
    );
    let (_, accepted) = Accepted::load(&file).expect("it is sound");
    std::fs::remove_file(token).expect("it was made");
    assert!(accepted.identity().is_ok(), "{:?}", accepted.identity().err());
    std::fs::remove_file(folder.join("gateway.key")).expect("it was made");
    assert!(accepted.identity().is_err_and(|why| why.contains("agent.key: ")));
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let folder = Folder::new();
    identity(&folder);
    folder.file("gateway.key", IDENTITY[2].1, 0o640);
    is_refused(&folder, &agent("host-7"), "a key file that others may use (mode 0640)");
}

#[test]
fn files_that_do_not_fit_each_other_are_refused_at_the_certificate() {
    let folder = Folder::new();
    identity(&folder);
    folder.file("gateway.pem", "no certificate", 0o644);
    is_refused(&folder, &agent("host-7"), "agent[0].certificate: the certificate: there is none");
    identity(&folder);
    let other = include_str!("../../crates/trunk/src/protocol/tls/fixtures/agent.pem");
    folder.file("gateway.pem", other, 0o644);
    is_refused(&folder, &agent("host-7"), "agent[0].certificate: certificate and key: ");
}

#[test]
fn one_address_has_one_certificate() {
    let folder = Folder::new();
    identity(&folder);
    let other = include_str!("../../crates/trunk/src/protocol/tls/fixtures/other-authority.pem");
    folder.file("other.pem", other, 0o644);
    let both = [agent("host-7"), agent("host-8").replace("agents-ca", "other")].concat();
    is_refused(&folder, &both, "expected the same ca, certificate and key for one address");
    let apart = both.replacen("127.0.0.1:7400", "127.0.0.1:7401", 1);
    read(&folder, &apart).expect("they have an address each");
}

//! What the commands say of a fleet that was read.

use ringgate_fleet::epochs::Validity;
use ringgate_fleet::etcd::kv::KeyValue;
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::mirror::{Status, Truth};
use ringgate_fleet::values::gateway::Cluster;
use ringgate_fleet::values::{
    Agent, Backend, Ban, Block, Gateway, Guard, Labels, Listener, ListenerKey, Reach, Service,
    State, Stored,
};
use ringgate_gate::Front;
use ringgate_trunk::agent::ARBITRATED;

use super::super::doctor::finding::Severity;
use super::events::Teller;
use super::survey::Survey;
use super::{deny, doctor, status, top};

const NOW_S: u64 = 1_700_000_000;

fn keyspace() -> Keyspace {
    Keyspace::new("/f").expect("a prefix")
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn gateway(epochs: &[u32]) -> Gateway {
    let listener = Listener {
        name: "main".into(),
        protocol: "netcode".into(),
        addresses: vec!["192.0.2.1:40000".parse().expect("literal")],
        epochs: epochs.into(),
        keys: Vec::new(),
        group: String::new(),
        protocol_id: 7,
        token_bytes: 0,
        tags: false,
        messages: false,
    };
    Gateway {
        instance: "i".into(),
        region: "eu".into(),
        host: "host-1".into(),
        version: "0.1.0".into(),
        listeners: vec![listener],
        agents: Vec::new(),
        cluster: None,
        capacity: 1000,
        sessions: 12,
        draining: false,
        started: 1,
        written: NOW_S,
        doubt: 0,
        held: Vec::new(),
        run_dir: String::new(),
        heard: None,
        denied: None,
        shut: Vec::new(),
        answers: false,
    }
}

fn backend(host: &str) -> Backend {
    Backend {
        instance: "i".into(),
        host: host.into(),
        group: "main".into(),
        reach: Reach::Udp("127.0.0.1:7777".parse().expect("literal")),
        gateways: Vec::new(),
        slots: 64,
        used: 12,
        state: State::Ready,
        joined: None,
        labels: Labels::new(),
    }
}

fn agent(gateways: &[&str], arbitrates: &[&str]) -> Agent {
    let names = |of: &[&str]| of.iter().map(|it| (*it).to_owned()).collect();
    Agent {
        instance: "i".into(),
        host: "far".into(),
        region: "eu".into(),
        version: "0.1.0".into(),
        gateways: names(gateways),
        started: NOW_S,
        written: NOW_S,
        doubt: 0,
        held: Vec::new(),
        arbitrates: names(arbitrates),
    }
}

fn key(number: u32) -> (Place, ListenerKey) {
    let validity =
        Validity { from: NOW_S - 10, mint_until: NOW_S + 1000, accept_until: NOW_S + 2000 };
    (Place::Key(name("main"), number), ListenerKey { validity, sealed: "AAAA".into() })
}

fn add(survey: &mut Survey, place: &Place, value: &impl Stored, lease: i64) {
    let (key, value) = (keyspace().key(place), value.encode().expect("sound"));
    survey.add(&keyspace(), &KeyValue { key, value, lease, ..KeyValue::default() });
}

fn fleet() -> Survey {
    let mut survey = Survey::default();
    add(&mut survey, &Place::Gateway(name("g1")), &gateway(&[1]), 5);
    add(&mut survey, &Place::Backend(name("b1")), &backend("host-1"), 6);
    let (place, value) = key(1);
    add(&mut survey, &place, &value, 0);
    survey
}

#[test]
fn the_status_shows_every_gateway_group_and_key() {
    let text = status::render(&fleet(), NOW_S, true);
    let expected = "cluster 0, revision 0\n\n\
        gateway  region  host    is       sessions     of  version  listeners\n\
        g1       eu      host-1  serving        12  1,000  0.1.0    main\n\n\
        group  backends  starting  ready  allocated  draining  players  slots\n\
        main          1         0      1          0         0       12     64\n\n\
        backend  group  host    is     players  slots  labels\n\
        b1       main   host-1  ready       12     64\n\n\
        key 1 of main: current, confirmed by 1 of 1, minted until 2023-11-14 22:30:00 UTC\n\
        token services: none\ndenied: 0\n";
    assert_eq!(text, expected);
    let line = top::line(&fleet(), NOW_S);
    assert!(line.ends_with("1 gateways (0 draining), 12 sessions; 1 backends, 12 players of 64 slots; 0 token services\n"), "{line}");
}

#[test]
fn slots_that_token_services_hold_are_seen_by_service_also_where_it_is_gone() {
    let mut survey = fleet();
    let service = Service {
        instance: "t1.000000aa".into(),
        host: "here".into(),
        version: "0.1.0".into(),
        started: NOW_S,
        written: NOW_S,
        beside: None,
        doubt: 0,
        held: Vec::new(),
    };
    add(&mut survey, &Place::Service(name("t1")), &service, 5);
    let open = |slots| Block { slots, promised: Vec::new(), closed: false };
    let promised = vec![(NOW_S - 1, 20), (NOW_S + 9, 30)];
    for (by, backend, block) in [
        ("t1.000000aa", "b1", open(8)),
        ("t1.000000aa", "b2", open(1)),
        ("t1.000000bb", "b1", Block { slots: 50, promised, closed: true }),
        ("t2.000000cc", "b1", open(1000)),
    ] {
        add(&mut survey, &Place::Block(name(backend), name(by)), &block, 5);
    }
    add(&mut survey, &Place::Guard(name("b1")), &Guard { by: "t1.000000aa".into() }, 5);
    let text = status::render(&survey, NOW_S, false);
    let expected = "\
        slots leased by  which is  backends  slots\n\
        t1.000000aa      serving          2      9\n\
        t1.000000bb      ended            1     30\n\
        t2.000000cc      gone             1  1,000\n\n";
    assert!(text.contains(expected), "{text}");
    assert!(survey.unreadable.is_empty() && survey.lasting.is_empty());
}

#[test]
fn agents_and_what_is_behind_them_are_seen() {
    let mut survey = fleet();
    add(&mut survey, &Place::Agent(name("host-7")), &agent(&["g1"], &[]), 5);
    let reach = Reach::Agent("host-7".into());
    let mut behind = Backend { reach, ..backend("far") };
    add(&mut survey, &Place::Backend(name("b2")), &behind, 5);
    let text = status::render(&survey, NOW_S, false);
    let expected = "\
        agent   region  host  is       backends  players  version  gateways\n\
        host-7  eu      far   serving         1       12  0.1.0    g1\n\n";
    assert!(text.contains(expected), "{text}");
    let line = top::line(&survey, NOW_S);
    assert!(line.contains("12 sessions; 1 agents; 2 backends"), "{line}");
    let reach = |survey: &Survey| {
        let findings = doctor::examine(survey, NOW_S);
        findings.into_iter().find(|it| it.what == "reach").expect("it was looked at").severity
    };
    assert_eq!(reach(&survey), Severity::Bites, "no gateway has let it in");
    behind.gateways.push("g1".into());
    add(&mut survey, &Place::Backend(name("b2")), &behind, 5);
    assert_eq!(reach(&survey), Severity::Ok);
    let silent = Agent { written: NOW_S - 181, ..agent(&["g1"], &[]) };
    add(&mut survey, &Place::Agent(name("host-7")), &silent, 5);
    let text = status::render(&survey, NOW_S, false);
    assert!(text.contains("far   not heard for 181 s"), "{text}");
    let findings = doctor::examine(&survey, NOW_S);
    assert!(findings.iter().any(|it| it.what == "agent host-7" && it.severity == Severity::Bites));
}

#[test]
fn a_fleet_that_is_as_it_should_be_has_no_findings() {
    let findings = doctor::examine(&fleet(), NOW_S);
    assert!(findings.iter().all(|it| it.severity == Severity::Ok), "{findings:?}");
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let mut survey = fleet();
    let mut other = gateway(&[1]);
    other.version = "0.2.0".into();
    other.host = "host-2".into();
    add(&mut survey, &Place::Gateway(name("g2")), &other, 0);
    add(&mut survey, &Place::Backend(name("b2")), &backend("host-3"), 7);
    let (place, value) = key(2);
    add(&mut survey, &place, &value, 0);
    let stuck = Gateway { doubt: 12, written: NOW_S - 181, ..gateway(&[1]) };
    add(&mut survey, &Place::Gateway(name("g3")), &stuck, 7);
    let broken = keyspace().key(&Place::Backend(name("b3")));
    let value = "{}".into();
    survey.add(&keyspace(), &KeyValue { key: broken, value, lease: 5, ..KeyValue::default() });
    let findings = doctor::examine(&survey, NOW_S);
    let found = |what: &str| {
        let found = findings.iter().find(|it| it.what == what).expect("it was looked at");
        (found.severity, found.found.as_str())
    };
    assert_eq!(found("versions"), (Severity::Could, "0.1.0 (2), 0.2.0 (1)"));
    assert_eq!(found("g3"), (Severity::Bites, "holds back under number 12: news"));
    let silent = "has written nothing for 181 s, and its lease lives";
    assert!(findings.iter().any(|it| it.what == "g3" && it.found == silent), "{findings:?}");
    assert_eq!(found("leases").0, Severity::Bites);
    assert_eq!(found("reach"), (Severity::Bites, "no gateway reaches 1 backends, such as b2"));
    assert_eq!(found("values").0, Severity::Bites);
    let keys = (Severity::Could, "key 2 waits: 0 of 3 gateways have confirmed it");
    assert_eq!(found("keys of main"), keys);
}

#[test]
fn the_doctor_names_agents_behind_which_sessions_cannot_go_on() {
    let mut survey = fleet();
    let in_cluster = |listener: Listener| {
        let place = Cluster { name: "fra".into(), at: "10.0.7.21:4700".into() };
        Gateway { cluster: Some(place), listeners: vec![listener], ..gateway(&[1]) }
    };
    let with_messages = Listener { messages: true, ..gateway(&[1]).listeners.remove(0) };
    for member in ["g1", "g2"] {
        add(&mut survey, &Place::Gateway(name(member)), &in_cluster(with_messages.clone()), 5);
    }
    let (reach, gateways) = (Reach::Agent("host-7".into()), vec!["g1".into(), "g2".into()]);
    let behind = Backend { reach, gateways, ..backend("far") };
    add(&mut survey, &Place::Backend(name("b1")), &behind, 6);
    let mut found = |arbitrates: &[&str]| {
        add(&mut survey, &Place::Agent(name("host-7")), &agent(&["g1", "g2"], arbitrates), 8);
        let findings = doctor::examine(&survey, NOW_S);
        let of_cluster =
            findings.into_iter().find(|it| it.what == "cluster fra").expect("it is one");
        (of_cluster.severity, of_cluster.found)
    };
    assert_eq!(found(&ARBITRATED), (Severity::Ok, "g1, g2 fit together".to_owned()));
    let lacks = |what: &str| format!("agent host-7 says of no {what} that it can go on");
    assert_eq!(found(&["netcode", "plain"]), (Severity::Could, lacks("delivery")));
    assert_eq!(found(&["plain", "delivery"]), (Severity::Could, lacks("netcode")));
    assert_eq!(found(&[]), (Severity::Could, lacks("delivery, netcode")));
    for front in [Front::Netcode, Front::Plain, Front::Unreal] {
        assert!(ARBITRATED.contains(&front.word()), "{front:?}: its sessions go on behind agents");
    }
}

#[test]
fn denials_are_shown_until_they_end() {
    let mut survey = fleet();
    let ban = |until| Ban { until, reason: "aimbot".into(), by: "anna".into() };
    add(&mut survey, &Place::BanClient(42), &ban(NOW_S + 3600), 9);
    add(&mut survey, &Place::BanClient(43), &ban(NOW_S), 9);
    add(&mut survey, &Place::BanClient(44), &ban(u64::MAX), 0);
    let expected = "who        until                      left  by    reason\n\
        client 42  2023-11-14 23:13:20 UTC  60 min  anna  aimbot\n\
        client 44  told otherwise                   anna  aimbot\n\n2 rules\n";
    assert_eq!(deny::render(&survey, NOW_S), expected);
    assert_eq!(deny::render(&fleet(), NOW_S), "nobody is denied in this fleet\n");
}

#[test]
fn changes_are_told_in_sentences() {
    let teller =
        Teller { keyspace: keyspace(), known: Truth::default(), before: Status::default() };
    let tell = |place: &Place, before: Option<&Backend>, after: Option<&Backend>, all| {
        let encode = |it: &Backend| it.encode().expect("sound");
        let (before, after) = (before.map(encode), after.map(encode));
        let key = keyspace().key(place);
        teller.tell_one(&key, before.as_ref(), after.as_ref(), all).map(|it| it.text)
    };
    let place = Place::Backend(name("b1"));
    let was = backend("host-1");
    let draining = Backend { state: State::Draining, ..was.clone() };
    let fuller = Backend { used: 13, ..was.clone() };
    let said = |text: &str| Some(text.to_owned());
    assert_eq!(
        tell(&place, None, Some(&was), false),
        said("backend b1: has come, ready, 64 slots of group main on host-1")
    );
    assert_eq!(
        tell(&place, Some(&was), Some(&draining), false),
        said("backend b1: ready -> draining")
    );
    assert_eq!(tell(&place, Some(&was), None, false), said("backend b1: is gone"));
    assert_eq!(tell(&place, Some(&was), Some(&fuller), false), None);
    assert_eq!(tell(&place, Some(&was), Some(&fuller), true), said("backend b1: 13 players"));
}

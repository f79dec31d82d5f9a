//! Configs that follow each other.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use super::super::plan;
use super::*;
use crate::config::Changes;
use crate::config::keys::KeySources;
use ringgate_gate::pace::BatchDelay;
use ringgate_gate::{BackendId, Front, Limits, ListenerId, Phase};
use ringgate_process::reloads::Outcome;
use ringgate_report::text::Append as _;
use ringgate_worker::Plan;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER_KEY: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Who a gateway is to agents.
const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/trunk/src/protocol/tls/fixtures");

fn config(text: &str) -> Config {
    let keys = KeySources::new(&|_| None, Some(TLS.into()));
    config::parse(text, Path::new("gate.toml"), &keys).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

/// One listener over two backends.
fn text() -> String {
    format!(
        r#"
        [gateway]
        drain_timeout = "3s"
        [[listener]]
        name = "eu"
        protocol = "netcode"
        bind = ["127.0.0.1:40000"]
        protocol_id = 7
        keys = [{{ hex = "{KEY}" }}]
        backends = ["a", "b"]
        route = "hash"
        max_sessions = 100
        [[backend]]
        name = "a"
        link = "udp"
        address = "127.0.0.1:7001"
        slots = 8
        [[backend]]
        name = "b"
        link = "bundle"
        slots = 8
        "#
    )
}

/// A gateway that was started and reloaded, as far as the control thread knows it.
struct Running {
    config: Config,
    setup: Arc<Setup>,
    /// Backends that stand in the file itself.
    file: &'static [&'static str],
    /// Which sockets toward game processes were made at the start.
    links: plan::Links,
    /// Where each listener is bound.
    binds: Vec<Vec<SocketAddr>>,
    /// Configs that had listeners which were removed.
    left_with: Vec<Config>,
}

impl Running {
    fn start(text: &str) -> Self {
        let config = config(text);
        let Plan { setup, binds, .. } = plan::plan(&config).expect("a plan");
        let links = plan::links(&config);
        Self { config, setup, file: &["a", "b"], links, binds, left_with: Vec::new() }
    }

    fn reload(&mut self, text: &str) -> Outcome {
        let new = config(text);
        let next = self.next(&new, |_| true)?;
        self.binds.resize_with(next.setup.listeners.len(), Vec::new);
        for (number, at) in &next.added {
            self.binds[number.index()].clone_from(&new.listeners[*at].bind);
        }
        let before = std::mem::replace(&mut self.config, new);
        self.left_with.extend((!next.removed.is_empty()).then_some(before));
        self.setup = Arc::new(next.setup);
        Ok(next.changes)
    }

    /// All that have closed are vacant, and the last config without them had those that drain.
    fn next(&self, new: &Config, is_free: impl Fn(BackendId) -> bool) -> Result<Next, Vec<String>> {
        let holder_of = |address| {
            let holds = |binds: &Vec<SocketAddr>| binds.contains(&address);
            self.binds.iter().position(holds).map(ListenerId::at)
        };
        let last = self.left_with.last();
        let made: Vec<_> =
            self.setup.listeners.iter().map(|it| Some(made_with(find(last?, &it.name)?))).collect();
        let made_with = |it: ListenerId| made[it.index()].as_ref();
        let known = Known {
            fronts: &[Front::Netcode, Front::Plain],
            made_with: &made_with,
            is_vacant: &|_| true,
            spoken: &|_| None,
            holder_of: &holder_of,
            links: self.links,
        };
        next(&self.config, &self.setup, new, is_free, |name| self.file.contains(&name), &known)
    }

    /// A listener that drains has gone.
    fn close(&mut self, number: ListenerId) {
        let mut setup = Setup::clone(&self.setup);
        setup.listeners[number] = setup.listeners[number].closed();
        self.setup = Arc::new(setup);
        self.binds[number.index()].clear();
    }

    /// Name and phase of each listener.
    fn listeners(&self) -> Vec<(&str, Phase)> {
        self.setup.listeners.iter().map(|it| (it.name.as_str(), it.phase)).collect()
    }

    /// Name, retirement and slots of each backend.
    fn backends(&self) -> Vec<(&str, bool, u32)> {
        let backends = self.setup.backends.iter();
        backends.map(|b| (b.name.as_str(), b.retired, b.slots)).collect()
    }
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn the_same_file_changes_nothing() {
    let mut running = Running::start(&text());
    assert_eq!(running.reload(&text()), Ok(Vec::new()));
}

#[test]
fn what_can_change_live_does_and_is_named() {
    let mut running = Running::start(&text());
    let changed = text()
        .replace("\"3s\"", "\"5s\"\nbatch_delay = \"70us\"")
        .replace("\"hash\"", "\"least-players\"")
        .replace(&format!("{{ hex = \"{KEY}\" }}"), &format!("{{ hex = \"{OTHER_KEY}\" }}"))
        .replace(
            "max_sessions = 100",
            "max_sessions = 50\nport_switch = \"ignore\"\ngap_limit = 9\nkeep_alive = \"1s\"\ntoken_reuse = \"allow\"\n\
             limits = { requests_per_block = 3, sessions_per_address = 2 }",
        )
        .replace("7001\"\n        slots = 8", "7001\"\n        slots = 4");
    let changes = running.reload(&changed).expect("fine");
    assert_eq!(
        changes,
        [
            "gateway.drain_timeout",
            "gateway.batch_delay",
            "listener eu: route",
            "listener eu: max_sessions",
            "listener eu: port_switch",
            "listener eu: limits",
            "listener eu: keys",
            "listener eu: gap_limit",
            "listener eu: keep_alive",
            "listener eu: token_reuse",
            "backend a: slots 8 -> 4",
        ]
    );
    let us = std::time::Duration::from_micros;
    assert_eq!(running.setup.batch_delay, BatchDelay::AtMost(us(70)));
    let listener = &running.setup.listeners[ListenerId(0)];
    assert_eq!((listener.sessions_max, listener.follow_port_switch), (50, false));
    let limits = Limits { requests_per_block: 3, sessions_per_address: 2, ..Limits::NETCODE };
    assert_eq!(listener.limits, limits);
    let rules = listener.netcode().expect("as before");
    assert_eq!((rules.replay.gap_limit(), rules.keep_alive_ns), (9, 1_000_000_000));
    assert_eq!(rules.token_reuse, ringgate_gate::TokenReuse::Allow);
    assert_eq!(running.setup.worker_sessions_max, 100, "what was set aside stays");
    let bounded = changed.replace("batch_delay = \"70us\"", "batch_delay_max = \"300us\"");
    let changes = running.reload(&bounded).expect("fine");
    assert_eq!(changes, ["gateway.batch_delay", "gateway.batch_delay_max"]);
    assert_eq!(running.setup.batch_delay, BatchDelay::Auto(us(300)));
}

#[test]
fn what_needs_a_restart_is_refused_with_all_reasons_and_changes_nothing() {
    let mut running = Running::start(&text());
    let changed = text()
        .replace("[gateway]", "[gateway]\nworkers = 3\nspin = \"1ms\"")
        .replace("protocol_id = 7", "protocol_id = 8\nreplay_window = 512")
        .replace("slots = 8", "slots = 9");
    let added = "[admin]\n[[listener]]\nname = \"us\"\nprotocol = \"netcode\"\nbind = [\"127.0.0.1:1\"]\n\
                 protocol_id = 7\nbackends = [\"a\"]\nmax_sessions = 1\nkeys = [{ hex = \"";
    let changed = format!("{changed}{added}{KEY}\" }}]\n");
    let refusals = running.reload(&changed).expect_err("a restart");
    assert_eq!(
        refusals,
        [
            "gateway.workers has changed; that needs a restart",
            "gateway.spin has changed; that needs a restart",
            "admin.bind has changed; that needs a restart",
            "listener eu: protocol_id has changed; that needs a restart",
            "listener eu: replay_window has changed; that needs a restart",
            "max_sessions of all listeners together are 101, and memory was set aside for 100; more needs a restart \
             (gateway.reserve_sessions sets more aside)",
        ]
    );
    assert_eq!(running.backends(), [("a", false, 8), ("b", false, 8)]);
}

/// The text with `reserve_sessions`, and a second listener.
fn with_second(name: &str, bind: &str) -> String {
    let text = one_listener();
    let second =
        text.split("[[listener]]").nth(1).and_then(|rest| rest.split("[[backend]]").next());
    let second = second.expect("the first one").replace("\"eu\"", &format!("{name:?}"));
    let second = second.replace("127.0.0.1:40000", bind);
    format!("{text}[[listener]]{second}")
}

fn one_listener() -> String {
    text().replace("[gateway]", "[gateway]\nreserve_sessions = 1000")
}

#[test]
fn listeners_come_and_go_and_their_numbers_are_used_again() {
    let mut running = Running::start(&one_listener());
    let us = with_second("us", "127.0.0.1:40001");
    assert_eq!(running.reload(&us), Ok(strings(&["listener us added"])));
    assert_eq!(running.listeners(), [("eu", Phase::Serving), ("us", Phase::Serving)]);
    assert_eq!(running.reload(&one_listener()), Ok(strings(&["listener us removed; it drains"])));
    assert_eq!(running.listeners()[1], ("us", Phase::Draining));

    // Another one of the name is another listener, and the first comes back if it is meant.
    let elsewhere = with_second("us", "127.0.0.1:40002");
    assert_eq!(running.reload(&elsewhere), Ok(strings(&["listener us added"])));
    let both = [("eu", Phase::Serving), ("us", Phase::Draining), ("us", Phase::Serving)];
    assert_eq!(running.listeners(), both);
    running.close(ListenerId(1));
    let changes = running.reload(&with_second("asia", "127.0.0.1:40001")).expect("it is free");
    assert_eq!(changes, ["listener us removed; it drains", "listener asia added"]);
    assert_eq!(running.listeners()[1], ("asia", Phase::Serving), "the number, too");
    let changes = running.reload(&elsewhere).expect("as before");
    assert_eq!(changes, ["listener asia removed; it drains", "listener us is back"]);
    let names = [("eu", Phase::Serving), ("asia", Phase::Draining), ("us", Phase::Serving)];
    assert_eq!(running.listeners(), names);
}

/// Nobody could tell whom an answer of the server is for.
#[test]
fn a_backend_of_a_listener_that_drains_is_behind_no_listener_of_another_protocol() {
    let plain = |text: &str, backend: &str| {
        format!(
            "{text}[[listener]]\nname = \"any\"\nprotocol = \"plain\"\nbind = [\"127.0.0.1:40009\"]\n\
            backends = [\"{backend}\"]\nmax_sessions = 9\n"
        )
    };
    // The first process has had a plain listener, before a server of its own.
    let own =
        "[[backend]]\nname = \"c\"\nlink = \"udp\"\naddress = \"127.0.0.1:7009\"\nslots = 8\n";
    let both = plain(&format!("{}{own}", one_listener()), "c");
    let mut running = Running::start(&both);
    let only_plain = |backend: &str| {
        let text = plain(&format!("{}{own}", one_listener()), backend);
        let (head, rest) = text.split_once("[[listener]]").expect("the first");
        let (_, backends) = rest.split_once("[[backend]]").expect("behind it");
        format!("{head}[[backend]]{backends}")
    };
    for backend in ["a", "b"] {
        let refused = running.reload(&only_plain(backend));
        let why = format!(
            "listener any: backend {backend} is behind listener eu, whose players speak netcode; try again when that one has gone"
        );
        assert_eq!(refused, Err(vec![why.clone()]), "in one step");
        let mut running = Running::start(&both);
        running.reload(&only_plain("c")).expect("its own server");
        assert_eq!(running.reload(&only_plain(backend)), Err(vec![why]), "while it drains");
        running.close(ListenerId(0));
        running.reload(&only_plain(backend)).expect("it has gone");
    }
}

#[test]
fn a_listener_that_moves_drains_where_it_was() {
    let mut running = Running::start(&one_listener());
    let moved =
        one_listener().replace("40000", "40001").replace("protocol_id = 7", "protocol_id = 8");
    let changes = running.reload(&moved).expect("nothing is in the way");
    assert_eq!(changes, ["listener eu removed; it drains", "listener eu added"]);
    assert_eq!(running.listeners(), [("eu", Phase::Draining), ("eu", Phase::Serving)]);
    let back = running.reload(&one_listener()).expect("it is still there");
    assert_eq!(back, ["listener eu removed; it drains", "listener eu is back"]);
    assert_eq!(running.listeners(), [("eu", Phase::Serving), ("eu", Phase::Draining)]);
}

#[test]
fn a_listener_that_drains_is_back_only_as_it_was() {
    let edited = |text: &str, from: &str, to: &str| {
        let (head, last) = text.rsplit_once("[[listener]]").expect("there are two");
        let changed = last.replacen(from, to, 1);
        assert_ne!(last, changed, "{from}");
        format!("{head}[[listener]]{changed}")
    };
    let returns = |first: &str, both: &str, after: &str| {
        let mut running = Running::start(both);
        running.reload(first).expect("it drains");
        running.reload(after)
    };
    let us = with_second("us", "127.0.0.1:40001");
    for live in ["gap_limit = 9", "keep_alive = \"200ms\""] {
        let after = edited(&us, "route =", &format!("{live}\nroute ="));
        let changes = returns(&one_listener(), &us, &after).expect("that may change");
        assert!(changes.contains(&"listener us is back".to_owned()), "{changes:?}");
    }
    let plain = plain_text().split("[[backend]]").next().expect("its listener");
    let any = format!("{plain}{}", plain_text().split_once(plain).expect("as above").1);
    let other = one_listener().replace("7001", "7003");
    let other = other.replace("\"a\"", "\"c\"").replace("\"b\"", "\"d\"");
    let with_plain = format!("{other}{any}");
    let without = with_plain.replace(plain, "");
    for (first, both, from, to) in [
        (one_listener(), &us, "protocol_id = 7", "protocol_id = 8"),
        (one_listener(), &us, "protocol_id = 7", "protocol_id = 7\nreplay_window = 64"),
        (one_listener(), &us, "protocol_id = 7", "protocol_id = 7\nfilter = false"),
        (without.clone(), &with_plain, "bytes = 2", "bytes = 2, strip = false"),
        (without.clone(), &with_plain, "bits = 16", "bits = 32"),
        (without, &with_plain, "sequence =", "begins_with = \"07\"\nsequence ="),
    ] {
        let refusals = returns(&first, both, &edited(both, from, to)).expect_err(to);
        assert!(refusals.iter().all(|why| why.contains("which drains")), "{to}: {refusals:?}");
    }
}

#[test]
fn an_address_has_one_listener_at_a_time() {
    let mut running = Running::start(&one_listener());
    let renamed = one_listener().replace("\"eu\"", "\"us\"");
    let refusals = running.reload(&renamed).expect_err("players are there");
    let expected = "listener us: 127.0.0.1:40000 belongs to listener eu, whose players would be diverted; remove that one \
                    first, and add this one when it has drained";
    assert_eq!(refusals, [expected]);
    let moved = one_listener().replace("40000", "40001");
    running.reload(&moved).expect("fine");
    let taken = with_second("us", "127.0.0.1:40000").replacen("40000", "40001", 1);
    let expected = "listener us: 127.0.0.1:40000 belongs to listener eu, which drains; try again when it has gone";
    assert_eq!(running.reload(&taken).expect_err("it drains"), [expected]);
    let agent = |port: u16| {
        format!(
            "{moved}[[agent]]\nname = \"host-7\"\nbind = \"127.0.0.1:{port}\"\nbackends = [\"b\"]\n\
             ca = \"{TLS}/authority.pem\"\ncertificate = \"{TLS}/gateway.pem\"\nkey = {{ credential = \"gateway.key\" }}\n"
        )
    };
    let expected = "agent host-7: 127.0.0.1:40000 belongs to listener eu, which drains; try again when it has gone";
    assert_eq!(running.reload(&agent(40000)).expect_err("it drains"), [expected]);
    running.reload(&agent(7400)).expect("nobody has it");
}

#[test]
fn the_first_listener_of_a_protocol_needs_its_tables() {
    let mut running = Running::start(&one_listener());
    let unreal = "[[listener]]\nname = \"ue\"\nprotocol = \"unreal\"\nbind = [\"127.0.0.1:7777\"]\n\
                  backends = [\"c\"]\nmax_sessions = 10\n[[backend]]\nname = \"c\"\nlink = \"udp\"\n\
                  address = \"127.0.0.1:7009\"\nslots = 1\n";
    let refusals = running.reload(&format!("{}{unreal}", one_listener())).expect_err("a restart");
    let expected = "listener ue: no listener spoke unreal at the start, so there are no tables for its players; that needs \
                    a restart";
    assert_eq!(refusals, [expected]);
}

#[test]
fn backends_keep_their_numbers_for_ever() {
    let mut running = Running::start(&text());
    let without_a = text().replace("[\"a\", \"b\"]", "[\"b\"]").replace(
        "name = \"a\"\n        link = \"udp\"\n        address = \"127.0.0.1:7001\"",
        "name = \"c\"\n        link = \"udp\"\n        address = \"127.0.0.1:7002\"",
    );
    let changes = running.reload(&without_a).expect("fine");
    let expected = [
        "listener eu: backends",
        "backend a removed; its players stay until they leave",
        "backend c added",
    ];
    assert_eq!(changes, expected);
    assert_eq!(running.backends(), [("a", true, 8), ("b", false, 8), ("c", false, 8)]);
    assert_eq!(running.setup.listeners[ListenerId(0)].backends, [BackendId(1)]);

    let changes = running.reload(&text()).expect("fine");
    assert!(changes.contains(&"backend a is back".to_owned()), "{changes:?}");
    assert_eq!(running.backends(), [("a", false, 8), ("b", false, 8), ("c", true, 8)]);
    assert_eq!(running.setup.listeners[ListenerId(0)].backends, [0, 1].map(BackendId));
}

#[test]
fn a_udp_backend_is_its_address_and_a_bundle_backend_its_name() {
    let mut running = Running::start(&text());
    let moved = text().replace("127.0.0.1:7001", "127.0.0.1:7002");
    running.reload(&moved).expect("fine");
    assert_eq!(running.backends(), [("a", true, 8), ("b", false, 8), ("a", false, 8)]);
    assert_eq!(
        running.setup.listeners[ListenerId(0)].backends,
        [2, 1].map(BackendId),
        "new players go to the new place"
    );

    let mut running = Running::start(&text());
    let renamed =
        text().replace("name = \"a\"", "name = \"z\"").replace("[\"a\", \"b\"]", "[\"z\", \"b\"]");
    let changes = running.reload(&renamed).expect("fine");
    assert_eq!(changes, strings(&["listener eu: backends", "backend a is called z now"]));
    assert_eq!(running.backends(), [("z", false, 8), ("b", false, 8)]);
}

#[test]
fn a_backend_that_is_back_is_drained_still_unless_it_was_put_back_into_the_file() {
    for is_of_file in [false, true] {
        let mut running = Running::start(&text());
        running.file = if is_of_file { &["a", "b"] } else { &["a"] };
        let mut setup = Setup::clone(&running.setup);
        let b = &mut setup.backends[BackendId(1)];
        (b.retired, b.drained) = (true, true);
        running.setup = Arc::new(setup);
        running.reload(&text()).expect("fine");
        let b = &running.setup.backends[BackendId(1)];
        assert_eq!((b.retired, b.drained), (false, !is_of_file));
    }
}

#[test]
fn the_first_backend_of_a_kind_needs_its_sockets() {
    let only_udp = text().replace("[\"a\", \"b\"]", "[\"a\"]").replace(
        "[[backend]]\n        name = \"b\"\n        link = \"bundle\"\n        slots = 8",
        "",
    );
    let mut running = Running::start(&only_udp);
    let refusals = running.reload(&text()).expect_err("no link sockets");
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].starts_with("backend b: none with this link"), "{refusals:?}");

    let mut running = Running::start(&text());
    running.reload(&only_udp).expect("fine");
    running.reload(&text()).expect("the sockets are there from the start");
}

/// The text with this many bundle backends beside its own two, from a number on.
fn with_more(from: usize, count: usize) -> String {
    (from..from + count).fold(text(), |mut text, at| {
        writeln!(text, "[[backend]]\nname = \"x{at}\"\nlink = \"bundle\"\nslots = 1");
        text
    })
}

#[test]
fn numbers_of_backends_that_nothing_knows_any_more_are_given_out_again() {
    let mut running = Running::start(&with_more(0, BACKENDS_MAX - 2));
    running.reload(&text()).expect("all but two are retired");
    assert_eq!(running.setup.backends.len(), BACKENDS_MAX);
    let adds = |running: &Running, is_free: &dyn Fn(BackendId) -> bool| {
        let new = config(&with_more(9_000, 2));
        running.next(&new, is_free).map(|next| next.setup)
    };
    let why = adds(&running, &|_| false).expect_err("players are everywhere");
    assert!(why[0].starts_with("backend x9000: 4096 backends are there or"), "{why:?}");
    // Only these two have been forgotten; backends that are there keep their numbers whatever is
    // said of them.
    let setup = adds(&running, &|id| [0, 1, 77, 4000].contains(&id.0)).expect("two are free");
    let name = |number| setup.backends[BackendId(number)].name.as_str();
    assert_eq!([0, 1, 77, 4000].map(name), ["a", "b", "x9000", "x9001"]);
    assert_eq!(setup.backends.iter().filter(|backend| !backend.retired).count(), 4);
    assert!(setup.revision > running.setup.revision);
    // One that comes back has its own number, though others wait for one.
    let back = with_more(75, 1) + &with_more(9_000, 1)[text().len()..];
    let new = config(&back);
    let next = running.next(&new, |id| [77, 78].contains(&id.0));
    let Next { setup, changes, .. } = next.expect("78 is free");
    assert_eq!(
        (setup.backends[BackendId(77)].name.as_str(), setup.backends[BackendId(78)].name.as_str()),
        ("x75", "x9000")
    );
    assert!(changes.contains(&"backend x75 is back".to_owned()), "{changes:?}");
    assert!(changes.contains(&"backend x9000 added".to_owned()), "{changes:?}");
}

/// One Unreal listener before one backend.
fn unreal_text() -> &'static str {
    r#"
    [[listener]]
    name = "ue"
    protocol = "unreal"
    bind = ["127.0.0.1:7777"]
    backends = ["a"]
    [[backend]]
    name = "a"
    link = "udp"
    address = "127.0.0.1:7001"
    slots = 8
    "#
}

/// One plain listener before two backends.
fn plain_text() -> &'static str {
    r#"
    [[listener]]
    name = "any"
    protocol = "plain"
    bind = ["127.0.0.1:7000"]
    backends = ["a", "b"]
    route = "token"
    token = { bytes = 2 }
    tokens = [{ hex = "0001", backend = "a" }, { hex = "0002", backend = "b" }]
    sequence = { offset = 0, bits = 16 }
    [[backend]]
    name = "a"
    link = "udp"
    address = "127.0.0.1:7001"
    slots = 8
    [[backend]]
    name = "b"
    link = "udp"
    address = "127.0.0.1:7002"
    slots = 8
    "#
}

#[test]
fn tokens_and_limits_of_a_plain_listener_change_live() {
    let mut running = Running::start(plain_text());
    let backend = |running: &Running, token: u16| {
        let rules = running.setup.listeners[ListenerId(0)].plain().expect("a plain listener");
        rules.token.as_ref().expect("as configured").backends.get(&token.to_be_bytes())
    };
    assert_eq!(backend(&running, 2), Some(BackendId(1)));
    // The order of tokens and backends in the file is nothing that could change.
    let turned = plain_text()
        .replace("[\"a\", \"b\"]", "[\"b\", \"a\"]")
        .replace("hex = \"0001\", backend = \"a\"", "hex = \"0002\", backend = \"b\"")
        .replacen("hex = \"0002\", backend = \"b\" }]", "hex = \"0001\", backend = \"a\" }]", 1);
    assert_eq!(running.reload(&turned), Ok(strings(&["listener any: backends"])));
    assert_eq!(backend(&running, 2), Some(BackendId(1)));
    let changed = turned.replace("\"0001\"", "\"0003\"").replace(
        "sequence =",
        "gap_limit = 9\nanswer_limit = 0\ncredit_ratio = 5\nunproven_slots = 40\nlimits = { starts = 7 }\nsequence =",
    );
    let changes = running.reload(&changed).expect("fine");
    let expected =
        ["limits", "tokens", "gap_limit", "answer_limit", "credit_ratio", "unproven_slots"];
    assert_eq!(changes, expected.map(|field| format!("listener any: {field}")));
    let found = [1, 2, 3].map(|token| backend(&running, token));
    assert_eq!(found, [None, Some(BackendId(1)), Some(BackendId(0))]);
    let rules = running.setup.listeners[ListenerId(0)].plain().expect("a plain listener");
    assert_eq!((rules.starts_total, rules.answer_times), (7, 0));
    assert_eq!((rules.credit.ratio, rules.unproven_percent), (5, 40));
    assert_eq!(rules.sequence.expect("as configured").policy.gap_limit(), 9);
    let refused = changed.replace("bytes = 2", "bytes = 2, strip = false");
    let refusals = running.reload(&refused).expect_err("a restart");
    assert_eq!(refusals, ["listener any: token has changed; that needs a restart"]);
}

#[test]
fn tables_that_are_compared_as_one_change_as_one() {
    let all = |table: &str, changes: Changes| {
        config::changes().filter(|(of, ..)| *of == table).all(|(.., its)| its == changes)
    };
    assert!(all("histograms", Changes::Restart));
    let mut fields = config::changes();
    let limits = fields.find(|(of, name, _)| (*of, *name) == ("listener", "limits"));
    assert!(all("listener.limits", limits.expect("the field is described").2));
}

#[test]
fn an_unreal_listener_names_the_fields_that_need_a_restart() {
    let mut running = Running::start(unreal_text());
    let more = "backends = [\"a\"]\nidle_timeout = \"9s\"\nmode = \"opaque\"";
    let refusals = running.reload(&unreal_text().replace("backends = [\"a\"]", more));
    let expected = ["mode", "idle_timeout"]
        .map(|field| format!("listener ue: {field} has changed; that needs a restart"));
    assert_eq!(refusals.expect_err("a restart"), expected);
}

#[test]
fn the_table_of_the_files_tables_has_every_field() {
    let text = include_str!("../../../docs/reference/config.md");
    let (_, rows) = text.split_once("| table | must say | may say |\n").expect("the table");
    let (mut at, mut told) = ("", BTreeSet::new());
    for row in rows.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.split('|').collect();
        let codes = |cell: &'static str| cell.split('`').skip(1).step_by(2);
        let table = codes(cells[1]).next().filter(|code| code.starts_with('['));
        at = table.map_or(at, |code| code.trim_matches(['[', ']']));
        let is_field = |code: &&str| code.chars().all(|it| it.is_ascii_lowercase() || it == '_');
        let fields = cells[2..].iter().flat_map(|cell| codes(cell)).filter(is_field);
        told.extend(fields.map(|name| (at, name)));
    }
    let tables: BTreeSet<_> = config::changes().map(|(table, ..)| table.to_owned()).collect();
    let fields = config::changes().map(|(table, name, _)| (table, name));
    let is_table = |(table, name): &(&str, &str)| tables.contains(&format!("{table}.{name}"));
    assert_eq!(told, fields.filter(|field| !is_table(field)).collect());
}

#[test]
fn the_handbook_says_of_every_field_what_it_takes_to_change_it() {
    let text = include_str!("../../../docs/reference/running.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `[")?.split_once("]` |"));
    let mut told = BTreeSet::new();
    for (table, columns) in rows {
        let table = table.trim_matches(['[', ']']);
        for (column, with_reload) in columns.split('|').zip([true, false]) {
            let names = column.split('`').skip(1).step_by(2);
            told.extend(names.map(|name| (table, name, with_reload)));
        }
    }
    let known = config::changes().map(|(table, name, its)| (table, name, its != Changes::Restart));
    assert_eq!(told, known.filter(|(_, name, _)| *name != "restart_small").collect());
}

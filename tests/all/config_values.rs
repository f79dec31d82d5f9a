//! What a good config file becomes.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringgate::config::keys::KeySources;
use ringgate::config::{
    self, Allowed, BatchDelay, Config, Delivery, Gateway, HandshakeBase, HandshakeVersions,
    Histograms, IoChoice, Limits, Link, LogFormat, NetworkVersions, PortSwitch, Protocol, Route,
    TokenReuse, Unreal, UnrealMode, Workers, WorkersAwake,
};

use crate::config_mistakes::{GOOD, KEY};
use crate::folder::{Folder, IDENTITY};

/// The example that ships with the daemon.
const EXAMPLE: &str = include_str!("../../tuning/ringgate.example.toml");

#[track_caller]
fn parse(text: &str) -> Config {
    let keys = KeySources::new(&|_| None, None);
    config::parse(text, Path::new("/etc/ringgate/gate.toml"), &keys)
        .unwrap_or_else(|mistakes| panic!("{mistakes}\nin\n{text}"))
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("the test's addresses are addresses")
}

/// The config files that we print and ship name a key file; here it is one that exists.
fn with_key_file(text: &str, folder: &Folder) -> String {
    let key = folder.file("netcode.key", KEY, 0o600);
    let (from, to) = ("/etc/ringgate/netcode.key", key.to_str().expect("a plain path"));
    assert!(text.contains(from));
    IDENTITY.iter().fold(text.replace(from, to), |text, (name, pem, mode)| {
        let path = folder.file(name, pem, *mode);
        text.replace(&format!("\"{name}\""), &format!("\"{}\"", path.display()))
    })
}

fn default_gateway() -> Gateway {
    Gateway {
        workers: Workers::Auto,
        workers_awake: WorkersAwake::All,
        pin: true,
        io: IoChoice::Auto,
        run_dir: PathBuf::from("/run/ringgate"),
        state_dir: PathBuf::from("/var/lib/ringgate"),
        drain_timeout: Duration::from_secs(30),
        reserve_sessions: 0,
        spin: Duration::ZERO,
        batch_delay: BatchDelay::Auto,
        batch_delay_max: Duration::from_micros(190),
        log: LogFormat::Human,
        log_level: "info".to_owned(),
        user: None,
        confine: false,
    }
}

const TEN_LINES: &str = r#"[[listener]]
name = "ue"
protocol = "unreal"
bind = ["0.0.0.0:7777"]
backends = ["shooter"]
[[backend]]
name = "shooter"
link = "udp"
address = "127.0.0.1:7778"
slots = 100
"#;

const DEFAULT_LIMITS: Limits = Limits {
    requests_per_block: 2000,
    handshakes_per_block: 2000,
    port_switches_per_block: 500,
    restarts_per_block: 200,
    starts_per_block: 0,
    starts: 0,
    sessions_per_address: 0,
    sessions_per_site: 0,
    sessions_per_block: 0,
};

#[test]
fn every_limit_arrives_and_only_unreal_has_one_on_the_sessions_of_an_address() {
    let with = |limits: &str| {
        let text = TEN_LINES.replace("[[backend]]", &format!("{limits}\n[[backend]]"));
        parse(&text).listeners[0].limits
    };
    let unreal = Limits { sessions_per_address: 32, sessions_per_site: 32, ..DEFAULT_LIMITS };
    assert_eq!(with(""), unreal);
    assert_eq!(with("[listener.limits]"), unreal);
    assert_eq!(
        with("limits = { sessions_per_address = 0, sessions_per_site = 0 }"),
        DEFAULT_LIMITS
    );
    let all = "[listener.limits]\nrequests_per_block = 1\nhandshakes_per_block = 2\n\
               port_switches_per_block = 3\nrestarts_per_block = 4\nsessions_per_address = 5\nsessions_per_site = 6\n\
               sessions_per_block = 1_000_000";
    let expected = Limits {
        requests_per_block: 1,
        handshakes_per_block: 2,
        port_switches_per_block: 3,
        restarts_per_block: 4,
        starts_per_block: 0,
        starts: 0,
        sessions_per_address: 5,
        sessions_per_site: 6,
        sessions_per_block: 1_000_000,
    };
    assert_eq!(with(all), expected);

    let netcode = TEN_LINES
        .replace(
            "\"unreal\"",
            &format!("\"netcode\"\nprotocol_id = 1\nkeys = [{{ hex = \"{KEY}\" }}]"),
        )
        .replace("0.0.0.0", "127.0.0.1");
    assert_eq!(parse(&netcode).listeners[0].limits, DEFAULT_LIMITS);
}

/// The table belongs to the listener above it, as TOML has it.
#[test]
fn each_listener_has_limits_of_its_own() {
    let second = TEN_LINES.replace("\"ue\"", "\"lab\"").replace("0.0.0.0:7777", "0.0.0.0:7779");
    let (second, _) = second.split_once("[[backend]]").expect("it has one");
    let text =
        format!("[listener_free]\n{TEN_LINES}{second}[listener.limits]\nsessions_per_block = 7\n");
    let text = text.replace("[listener_free]\n", "");
    let limits: Vec<u32> =
        parse(&text).listeners.iter().map(|it| it.limits.sessions_per_block).collect();
    assert_eq!(limits, [0, 7]);
}

#[test]
fn ten_lines_are_enough() {
    let config = parse(TEN_LINES);
    assert_eq!(config.gateway, default_gateway());
    assert!(config.admin.is_none() && config.histograms.is_none());
    let listener = &config.listeners[0];
    assert_eq!(listener.bind, [address("0.0.0.0:7777")]);
    assert_eq!(listener.backends, [0]);
    assert_eq!((listener.route, listener.max_sessions), (Route::Single, 100_000));
    assert_eq!((listener.port_switch, listener.filter), (PortSwitch::Follow, true));
    let Protocol::Unreal(unreal) = &listener.protocol else { panic!("{listener:?}") };
    let default = Unreal {
        magic: Vec::new(),
        versions: HandshakeVersions::Versioned(3..=4),
        handshake_base: HandshakeBase::Auto,
        mode: UnrealMode::Notify,
        window: true,
        network_versions: NetworkVersions::Any,
        gap_limit: None,
        idle_timeout: Duration::from_secs(30),
        restart_small: None,
    };
    assert_eq!(*unreal, default);
    assert_eq!(config.backends[0].grace, Duration::from_secs(5));
    assert_eq!(config.backends[0].link, Link::Udp(address("127.0.0.1:7778")));
}

#[test]
fn public_addresses_may_be_the_environments() {
    let environment = |name: &str| match name {
        "NODE_IP" => Some("203.0.113.9".into()),
        "PORT" => Some("40000".into()),
        _ => None,
    };
    let keys = KeySources::new(&environment, None);
    let of = |public: &str| {
        let text = TEN_LINES.replace("[[backend]]", &format!("public = {public}\n[[backend]]"));
        let read = config::parse(&text, Path::new("gate.toml"), &keys);
        read.map(|config| config.listeners[0].public.clone()).map_err(|all| all.to_string())
    };
    let both = of("[\"${NODE_IP}:${PORT}\", \"[2001:db8::1]:${PORT}\"]").expect("they are there");
    assert_eq!(both, ["203.0.113.9:40000", "[2001:db8::1]:40000"].map(address));
    for (public, said) in [
        (
            "[\"${NODE_IP}:1\", \"${NODE}:1\"]",
            "public[1]: found no environment variable \"NODE\", expected one that ${…} stands for",
        ),
        ("[\"${PORT:1\"]", "public[0]: found no environment variable \"\", expected one that"),
        ("[\"${PORT}:1\"]", "public[0]: found \"40000:1\", expected an IP:port"),
        ("\"${NODE_IP}:1\"", "public: found a string, expected a list of one or more addresses"),
    ] {
        let why = of(public).expect_err(said);
        assert_eq!(why.lines().count(), 1, "{why}");
        assert!(why.contains(&format!("listener[0].{said}")), "{why}");
    }
}

#[test]
fn every_unreal_field_arrives() {
    let text = TEN_LINES.replace(
        "[[backend]]",
        r#"magic = "1101"
versions = [4]
handshake_base = "short"
mode = "opaque"
window = "off"
network_versions = ["0x12345678", 7]
idle_timeout = "90s"
restart_small = true
[[backend]]"#,
    );
    let config = parse(&text);
    let Protocol::Unreal(unreal) = &config.listeners[0].protocol else { panic!("{config:?}") };
    let expected = Unreal {
        magic: vec![true, true, false, true],
        versions: HandshakeVersions::Versioned(4..=4),
        handshake_base: HandshakeBase::Short,
        mode: UnrealMode::Opaque,
        window: false,
        network_versions: NetworkVersions::Only(vec![0x1234_5678, 7]),
        gap_limit: None,
        idle_timeout: Duration::from_secs(90),
        restart_small: Some(true),
    };
    assert_eq!(*unreal, expected);
    let original = parse(&text.replace("versions = [4]", "versions = [0]"));
    let Protocol::Unreal(unreal) = &original.listeners[0].protocol else { panic!("{original:?}") };
    assert_eq!(unreal.versions, HandshakeVersions::Original);
    let notify = text.replace("mode = \"opaque\"\nwindow = \"off\"", "gap_limit = 8191");
    let limited = parse(&notify);
    let Protocol::Unreal(unreal) = &limited.listeners[0].protocol else { panic!("{limited:?}") };
    assert_eq!(unreal.gap_limit.map(std::num::NonZeroU16::get), Some(8191));
    let early = parse(&text.replace("versions = [4]", "versions = [2, 1]"));
    let Protocol::Unreal(unreal) = &early.listeners[0].protocol else { panic!("{early:?}") };
    assert_eq!(unreal.versions, HandshakeVersions::Early(1..=2));
}

#[test]
fn a_field_without_an_effect_is_taken_and_warned_about() {
    for value in ["true", "false"] {
        let said = format!("restart_small = {value}\n[[backend]]");
        let config = parse(&TEN_LINES.replace("[[backend]]", &said));
        assert_eq!(
            config.notices(),
            [
                "listener \"ue\": restart_small has no effect any more and will be refused as unknown in a later release"
            ]
        );
    }
    assert!(parse(TEN_LINES).notices().is_empty());
}

#[test]
fn every_gateway_field_arrives() {
    let text = format!(
        "[gateway]\nworkers = 2\nworkers_awake = \"auto\"\npin = false\nio = \"mmsg\"\nrun_dir = \"run\"\nstate_dir = \"state\"\ndrain_timeout = \"2m\"\nreserve_sessions = 5000\n\
         spin = \"50us\"\nbatch_delay = \"80us\"\nbatch_delay_max = \"90us\"\nlog = \"json\"\nlog_level = \"debug,hyper=off\"\nuser = \"games\"\nconfine = true\n{TEN_LINES}"
    );
    let expected = Gateway {
        workers: Workers::Count(NonZeroUsize::new(2).expect("not zero")),
        workers_awake: WorkersAwake::Auto,
        pin: false,
        io: IoChoice::Mmsg,
        run_dir: PathBuf::from("/etc/ringgate/run"),
        state_dir: PathBuf::from("/etc/ringgate/state"),
        drain_timeout: Duration::from_mins(2),
        reserve_sessions: 5000,
        spin: Duration::from_micros(50),
        batch_delay: BatchDelay::AtMost(Duration::from_micros(80)),
        batch_delay_max: Duration::from_micros(90),
        log: LogFormat::Json,
        log_level: "debug,hyper=off".to_owned(),
        user: Some("games".to_owned()),
        confine: true,
    };
    assert_eq!(parse(&text).gateway, expected);
}

#[test]
fn it_is_said_where_one_block_could_fill_a_server() {
    let said = |limits: &str| {
        let limits = format!("[listener.limits]\n{limits}\n[[backend]]");
        parse(&TEN_LINES.replace("[[backend]]", &limits)).fillable()
    };
    assert!(parse(&TEN_LINES.replace("100", "0")).fillable().is_empty(), "it takes nobody");
    let sentence = "listener \"ue\": the sources of one block, an IPv4 /24 or an IPv6 /48, could fill backend \"shooter\", which \
                    has 100 slots; limits.sessions_per_block bounds that, where no block is all of a carrier's players";
    for limits in ["", "sessions_per_block = 100", "sessions_per_address = 0"] {
        assert_eq!(said(limits), [sentence], "{limits}");
    }
    assert!(said("sessions_per_block = 99").is_empty());
    // An IPv4 /24 has 256 addresses, an IPv6 /48 as many sites and 65,536 addresses.
    let of_a_thousand = |address: u32, site: u32| {
        let text = format!(
            "[listener.limits]\nsessions_per_address = {address}\nsessions_per_site = {site}\n[[backend]]"
        );
        let text = TEN_LINES.replace("[[backend]]", &text).replace("100", "1000");
        !parse(&text).fillable().is_empty()
    };
    let fills = [(1, 32), (1, 0), (1, 4), (4, 3), (4, 1), (0, 1)];
    assert!(fills.iter().all(|&(address, site)| of_a_thousand(address, site)));
    let fills_not = [(1, 1), (1, 3), (3, 3), (3, 1)];
    assert!(fills_not.iter().all(|&(address, site)| !of_a_thousand(address, site)));
}

#[test]
fn a_worker_that_spins_does_not_wait_for_more() {
    let notices = |lines: &str| parse(&format!("[gateway]\n{lines}\n{TEN_LINES}")).notices();
    assert_eq!(
        notices("spin = \"50us\"\nbatch_delay = \"80us\""),
        [
            "gateway.batch_delay has no effect beside gateway.spin: a worker that spins does not wait"
        ]
    );
    for fine in
        ["spin = \"50us\"", "batch_delay = \"1ms\"", "spin = \"50us\"\nbatch_delay = \"0us\""]
    {
        assert!(notices(fine).is_empty(), "{fine}");
    }
}

#[test]
fn a_bundle_backend_says_who_may_be_it() {
    let bundle = |more: &str| {
        let udp = "link = \"udp\"\naddress = \"127.0.0.1:7778\"";
        let text = TEN_LINES
            .replace(
                "\"unreal\"",
                &format!("\"netcode\"\nprotocol_id = 1\nkeys = [{{ hex = \"{KEY}\" }}]"),
            )
            .replace("0.0.0.0", "127.0.0.1")
            .replace(udp, &format!("link = \"bundle\"\n{more}"));
        parse(&text).backends[0].link.clone()
    };
    assert_eq!(bundle(""), Link::Bundle(Allowed::default()));
    assert_eq!(
        bundle("allow_uids = [1000, 1001]\nallow_gids = [5]"),
        Link::Bundle(Allowed { uids: vec![1000, 1001], gids: vec![5] })
    );
}

#[test]
fn the_shipped_example_is_good() {
    let folder = Folder::new();
    let (handed_on, read) =
        ("{ credential = \"netcode.key\" }", "{ file = \"/etc/ringgate/netcode.key\" }");
    let config = parse(&with_key_file(&EXAMPLE.replace(handed_on, read), &folder));
    assert_eq!(config.gateway, default_gateway());
    let admin = config.admin.clone().expect("it is there");
    assert_eq!((admin.bind, admin.hosts, admin.token), (address("127.0.0.1:9464"), vec![], None));
    assert_eq!(
        config.histograms,
        Some(Histograms {
            dir: "/var/lib/ringgate/hist".into(),
            interval: Duration::from_secs(10),
            max_bytes: 64 << 20,
            max_age: Duration::from_hours(24),
            keep: NonZeroUsize::new(30),
        })
    );
    let listener = &config.listeners[0];
    assert_eq!(listener.name, "eu-west");
    assert_eq!(listener.bind, [address("0.0.0.0:40000"), address("[::]:40000")]);
    let Protocol::Netcode(netcode) = &listener.protocol else { panic!("{listener:?}") };
    assert_eq!(listener.public, [address("203.0.113.9:40000")]);
    assert_eq!(netcode.protocol_id, 0x1122_3344_5566_7788);
    assert_eq!((netcode.replay_window, netcode.gap_limit), (256, None));
    assert_eq!(netcode.keep_alive, Duration::from_millis(100));
    assert_eq!(netcode.token_reuse, TokenReuse::Deny);
    assert_eq!(netcode.delivery, Delivery::None);
    assert_eq!(netcode.keys.len(), 1);
    assert_eq!(config.backends[0].slots, 64);
    assert!(config.notices().is_empty(), "{:?}", config.notices());
}

#[test]
fn which_login_of_a_client_id_wins_is_what_the_file_says() {
    use ringgate::config::UniqueClients::{Gateway, Newest};
    for (text, wins, after_s) in [
        ("", Gateway, 2),
        ("unique_clients = \"gateway\"\n", Gateway, 2),
        ("replace_after = \"5s\"\n", Gateway, 5),
        ("unique_clients = \"newest\"\n", Newest, 2),
        ("unique_clients = \"newest\"\nreplace_after = \"5s\"\n", Newest, 5),
    ] {
        let config = parse(&GOOD.replacen("keys = ", &format!("{text}keys = "), 1));
        let Protocol::Netcode(netcode) = &config.listeners[0].protocol else { panic!("netcode") };
        let read = (netcode.unique_clients, netcode.replace_after);
        assert_eq!(read, (wins, Duration::from_secs(after_s)), "{text}");
    }
}

#[test]
fn the_explanation_is_a_config_of_all_defaults() {
    let folder = Folder::new();
    let explained = parse(&with_key_file(&config::explain(), &folder));
    assert_eq!(explained.gateway, default_gateway());
    assert!(explained.notices().is_empty(), "{:?}", explained.notices());

    // Without its default lines it must mean the same.
    let explanation = with_key_file(&config::explain(), &folder);
    let mut given = String::new();
    let mut is_default = false;
    for line in explanation.lines() {
        let is_comment = line.starts_with('#');
        if !is_comment && !is_default {
            given.push_str(line);
            given.push('\n');
        }
        is_default = (is_comment && is_default) || line.starts_with("# Default: ");
    }
    assert!(given.len() < explanation.len() / 4, "{given}");
    assert_eq!(format!("{:?}", parse(&given)), format!("{explained:?}"));
}

/// A date is TOML, but no field takes one; so this shows that somebody looks at each.
#[test]
fn every_explained_field_is_looked_at() {
    let folder = Folder::new();
    let explanation = with_key_file(&config::explain(), &folder);
    let lines: Vec<_> = explanation.lines().collect();
    let fields = lines.iter().enumerate().filter_map(|(index, line)| {
        let (name, _) = line.split_once(" = ")?;
        (!line.starts_with("# ") || !name.contains(' '))
            .then_some((index, name.trim_start_matches("# ")))
    });
    let mut count = 0;
    for (index, name) in fields {
        let mut changed = lines.clone();
        let date = format!("{name} = 1979-05-27");
        changed[index] = &date;
        let keys = KeySources::new(&|_| None, None);
        let mistakes = config::parse(&changed.join("\n"), Path::new("gate.toml"), &keys);
        let mistakes = mistakes.expect_err("no field takes a date");
        assert!(
            mistakes.iter().any(|mistake| mistake.line == index + 1
                && mistake.field.ends_with(&format!(".{name}"))
                && mistake.message.starts_with("found a date, expected ")),
            "{mistakes}"
        );
        count += 1;
    }
    assert!(count > 40, "{count} fields were found in the explanation");
}

#[test]
fn damaged_text_is_refused_in_words_that_show_no_key() {
    let file = "file = \"/etc/ringgate/netcode.key\"";
    let explanation = config::explain().replace(file, &format!("hex = \"{KEY}\""));
    let keys = KeySources::new(&|_| None, None);
    for (at, _) in explanation.char_indices().step_by(31) {
        let cut = &explanation[..at];
        let overwritten = format!("{cut}\"{}", explanation.get(at + 1..).unwrap_or_default());
        for text in [cut, &overwritten] {
            if let Err(mistakes) = config::parse(text, Path::new("gate.toml"), &keys) {
                let lines = text.lines().count() + 1;
                assert!(mistakes.iter().all(|m| (1..=lines).contains(&m.line)), "{mistakes}");
                assert!(!mistakes.to_string().contains(&KEY[..8]), "{mistakes}");
            }
        }
    }
}

#[test]
fn what_is_hardly_meant_is_noticed() {
    let spare = "[[backend]]\nname = \"spare\"\nlink = \"bundle\"\nslots = 1\n";
    let config = parse(&format!("{TEN_LINES}{spare}[admin]\nbind = \"0.0.0.0:9464\"\n"));
    assert_eq!(
        config.notices(),
        [
            "admin.bind 0.0.0.0:9464 can be reached from other hosts, and everybody who does may read its pages",
            "backend \"spare\" is behind no listener",
        ]
    );
    let other = |more| {
        format!(
            "{TEN_LINES}[[listener]]\nname = \"lab\"\nprotocol = \"unreal\"\nbind = [\"0.0.0.0:7779\"]\n\
             backends = [\"shooter\"]\n{more}\n"
        )
    };
    assert!(parse(&other("")).notices().is_empty(), "two listeners of one kind");
    for differs in
        ["magic = \"1011\"", "versions = [0]", "versions = [1, 2]", "handshake_base = \"short\""]
    {
        assert_eq!(
            parse(&other(differs)).notices(),
            [
                "backend \"shooter\" is behind \"ue\" and \"lab\", whose packets begin differently: no server speaks both"
            ]
        );
    }
}

//! What a good config file becomes.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringgate::config::keys::KeySources;
use ringgate::config::{
    self, Admin, Allowed, Config, Gateway, HandshakeVersions, Histograms, IoChoice, Link,
    LogFormat, NetworkVersions, PortSwitch, Protocol, Route, Unreal, UnrealMode, Workers,
};

use crate::config_mistakes::KEY;
use crate::folder::Folder;

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
    text.replace(from, to)
}

fn default_gateway() -> Gateway {
    Gateway {
        workers: Workers::Auto,
        pin: true,
        io: IoChoice::Auto,
        run_dir: PathBuf::from("/run/ringgate"),
        drain_timeout: Duration::from_secs(30),
        spin: Duration::ZERO,
        log: LogFormat::Human,
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
        mode: UnrealMode::Notify,
        window: true,
        network_versions: NetworkVersions::Any,
        idle_timeout: Duration::from_secs(30),
        restart_small: false,
    };
    assert_eq!(*unreal, default);
    assert_eq!(config.backends[0].grace, Duration::from_secs(5));
    assert_eq!(config.backends[0].link, Link::Udp(address("127.0.0.1:7778")));
}

#[test]
fn every_unreal_field_arrives() {
    let text = TEN_LINES.replace(
        "[[backend]]",
        r#"magic = "1101"
versions = [4]
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
        mode: UnrealMode::Opaque,
        window: false,
        network_versions: NetworkVersions::Only(vec![0x1234_5678, 7]),
        idle_timeout: Duration::from_secs(90),
        restart_small: true,
    };
    assert_eq!(*unreal, expected);
    let original = parse(&text.replace("versions = [4]", "versions = [0]"));
    let Protocol::Unreal(unreal) = &original.listeners[0].protocol else { panic!("{original:?}") };
    assert_eq!(unreal.versions, HandshakeVersions::Original);
}

#[test]
fn every_gateway_field_arrives() {
    let text = format!(
        "[gateway]\nworkers = 2\npin = false\nio = \"mmsg\"\nrun_dir = \"run\"\ndrain_timeout = \"2m\"\n\
         spin = \"50us\"\nlog = \"json\"\nuser = \"games\"\nconfine = true\n{TEN_LINES}"
    );
    let expected = Gateway {
        workers: Workers::Count(NonZeroUsize::new(2).expect("not zero")),
        pin: false,
        io: IoChoice::Mmsg,
        run_dir: PathBuf::from("/etc/ringgate/run"),
        drain_timeout: Duration::from_mins(2),
        spin: Duration::from_micros(50),
        log: LogFormat::Json,
        user: Some("games".to_owned()),
        confine: true,
    };
    assert_eq!(parse(&text).gateway, expected);
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
    let config = parse(&with_key_file(EXAMPLE, &folder));
    assert_eq!(config.gateway, default_gateway());
    assert_eq!(config.admin, Some(Admin { bind: address("127.0.0.1:9464") }));
    assert_eq!(
        config.histograms,
        Some(Histograms {
            dir: "/var/lib/ringgate/hist".into(),
            interval: Duration::from_secs(10)
        })
    );
    let listener = &config.listeners[0];
    assert_eq!(listener.name, "eu-west");
    assert_eq!(listener.bind, [address("0.0.0.0:40000"), address("[::]:40000")]);
    let Protocol::Netcode(netcode) = &listener.protocol else { panic!("{listener:?}") };
    assert_eq!(netcode.public, [address("203.0.113.9:40000")]);
    assert_eq!(netcode.protocol_id, 0x1122_3344_5566_7788);
    assert_eq!((netcode.replay_window, netcode.gap_limit), (256, None));
    assert_eq!(netcode.keep_alive, Duration::from_millis(100));
    assert_eq!(netcode.keys.len(), 1);
    assert_eq!(config.backends[0].slots, 64);
    assert!(config.notices().is_empty(), "{:?}", config.notices());
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
    for (at, _) in explanation.char_indices().step_by(7) {
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
            "admin.bind 0.0.0.0:9464 can be reached from other hosts, and POST /drain asks for no password",
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
    for differs in ["magic = \"1011\"", "versions = [0]"] {
        assert_eq!(
            parse(&other(differs)).notices(),
            [
                "backend \"shooter\" is behind \"ue\" and \"lab\", whose packets begin differently: no server speaks both"
            ]
        );
    }
}

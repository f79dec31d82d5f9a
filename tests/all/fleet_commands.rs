//! `ringgate fleet` and `ringgate tokens` at the shell, against etcd as it is packed.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use ringgate_os::clock;
use serde_json::Value;

use crate::command::{Ending, Ran, ringgate, run};
use crate::control_rig::wait_for;
use crate::folder::Folder;
use crate::own::own_address;

/// One member, in a folder of its own.
struct Etcd {
    _child: Ending,
    address: SocketAddr,
    folder: Folder,
}

impl Etcd {
    /// `None`, said aloud, where etcd is not installed.
    fn start() -> Option<Self> {
        let (folder, address) = (Folder::new(), own_address());
        let clients = format!("http://{address}");
        let peers = format!("http://{}", own_address());
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            let required = std::env::var_os("REQUIRE_ETCD").is_some_and(|it| it == "1");
            assert!(!required, "REQUIRE_ETCD=1, but etcd is not there");
            eprintln!("SKIPPED: etcd is not there (Debian has it in etcd-server)");
            return None;
        };
        let etcd = Self { _child: Ending(child), address, folder };
        // Listening comes before serving: the first command waits for the rest by itself.
        wait_for("etcd to listen", || TcpStream::connect(address).ok());
        wait_for("etcd to serve", || {
            etcd.fleet(&["status"]).stderr.contains("nothing stands below").then_some(())
        });
        Some(etcd)
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn put(&self, key: &str, value: &str) {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint(), "put", key, value]);
        run(command).succeeded();
    }

    fn fleet(&self, args: &[&str]) -> Ran {
        let mut command = ringgate(["fleet"]);
        command.args(args).args(["--endpoint", &self.endpoint()]);
        command.args(["--fleet", "/ringgate/test"]);
        run(command)
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("not JSON: {text}"))
}

#[test]
fn a_fleet_is_begun_looked_at_and_its_keys_are_rotated() {
    let Some(etcd) = Etcd::start() else { return };
    run(ringgate(["keygen".as_ref(), "--out".as_ref(), etcd.folder.join("key").as_os_str()]))
        .succeeded();
    let key = etcd.folder.join("key");
    let key = key.to_str().expect("our own path");
    assert!(etcd.fleet(&["init", "main"]).refused().contains("--fleet-key FILE"));
    let said = etcd.fleet(&["init", "main", "--fleet-key", key]).succeeded();
    assert!(said.ends_with("main: made key 1\n"), "{said}");
    // As releases before 0.2 call it.
    let said = etcd.fleet(&["init", "main", "--key", key]).succeeded();
    assert!(said.ends_with("main: has key 1 already\n"), "{said}");
    let rotated =
        json(&etcd.fleet(&["keys", "rotate", "--key", key, "--wait", "--json"]).succeeded());
    assert_eq!((&rotated["schema"], &rotated["made"][0]["epoch"]), (&1.into(), &2.into()));
    // What a unit hands to its service alone.
    let file = format!(
        "[fleet]\nendpoints = [\"{}\"]\nprefix = \"/ringgate/test\"\nkey = {{ credential = \"key\" }}\n",
        etcd.endpoint()
    );
    let file = etcd.folder.file("gate.toml", file, 0o644);
    let by_file = |words: &[&str], folder: Option<&str>| {
        let mut command = ringgate(["fleet"]);
        command.args(words).arg("--config").arg(&file).env_remove("CREDENTIALS_DIRECTORY");
        command.envs(folder.map(|it| ("CREDENTIALS_DIRECTORY", it)));
        run(command)
    };
    by_file(&["keys", "list"], None).succeeded();
    for words in [&["init", "second"][..], &["deny", "42"], &["sessions", "--within", "1s"]] {
        let said = by_file(words, None).refused();
        assert!(said.contains("gate.toml:4: fleet.key.credential: found no $CRED"), "{said}");
    }
    let said = by_file(&["init", "main"], etcd.folder.path().to_str()).succeeded();
    assert!(said.ends_with("main: has key 2 already\n"), "{said}");
    let keys = json(&etcd.fleet(&["keys", "list", "--json"]).succeeded());
    let roles: Vec<_> =
        keys["keys"].as_array().expect("a list").iter().map(|it| &it["role"]).collect();
    assert_eq!(roles, ["previous", "current"]);
    let status = json(&etcd.fleet(&["status", "--json"]).succeeded());
    assert_eq!(status["gateways"].as_array().map(Vec::len), Some(0));
    let findings = json(&etcd.fleet(&["doctor", "--watch", "0s", "--json"]).succeeded());
    assert!(findings["findings"].as_array().is_some_and(|it| it.len() >= 6), "{findings}");
    assert!(etcd.fleet(&["top", "--once"]).succeeded().contains("key 2 of main: current"));
    // A mistyped prefix is no fleet without anything in it.
    for words in [&["status"][..], &["status", "--json"], &["keys", "list"], &["top", "--once"]] {
        let mut command = ringgate(["fleet"]);
        command.args(words).args(["--endpoint", &etcd.endpoint(), "--fleet", "/ringgate/tset"]);
        let ran = run(command);
        let why = "nothing stands below /ringgate/tset in this etcd: is that the fleet's prefix?";
        assert!(ran.code == Some(1) && ran.stderr.contains(why), "{words:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn players_are_denied_and_allowed_in_a_whole_fleet() {
    let Some(etcd) = Etcd::start() else { return };
    let said = etcd.fleet(&["deny", "203.0.113.7/24", "42", "--for", "1h"]).succeeded();
    assert_eq!(said, "2 prefixes and players may not play in this fleet for 60 min\n");
    assert_eq!(
        etcd.fleet(&["deny", "--address", "2001:db8::1", "--reason", "bots"]).succeeded(),
        "2001:db8::1/128 may not play in this fleet\n"
    );
    // As the last release has them.
    etcd.fleet(&["deny", "--prefix", "2001:db8::1", "--reason", "bots"]).succeeded();
    etcd.fleet(&["deny", "--client", "42", "--for", "1h"]).succeeded();
    let why = etcd.fleet(&["deny", "--reason", "bots"]).refused();
    assert_eq!(why, "expected a client id, an address or a prefix");
    let rules = json(&etcd.fleet(&["denied", "--json"]).succeeded())["rules"].clone();
    let whom: Vec<_> = rules
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| {
            (it["client"].as_str().or_else(|| it["prefix"].as_str()), it["until_unix_s"].is_u64())
        })
        .collect();
    let expected =
        [(Some("42"), true), (Some("2001:db8::1/128"), false), (Some("203.0.113.0/24"), true)];
    assert_eq!(whom, expected);
    assert_eq!(etcd.fleet(&["allow", "--client-id", "42"]).succeeded(), "client 42 may play\n");
    let again = etcd.fleet(&["allow", "--client", "42"]).succeeded();
    assert_eq!(again, "client 42 was not denied in this fleet\n");
    // A ban goes with its lease.
    etcd.fleet(&["deny", "--client", "7", "--for", "1s"]).succeeded();
    wait_for("the end of the ban", || {
        (!etcd.fleet(&["denied"]).succeeded().contains("client 7")).then_some(())
    });
}

/// What a gateway of this fleet says of itself, if it denies by this revision.
fn told(denied: Option<i64>, doubt: u64) -> String {
    let value = serde_json::json!({
        "v": 1, "instance": "i", "region": "eu", "host": "here", "version": "1", "listeners": [],
        "capacity": 1, "sessions": 0, "draining": false, "started": 1,
        "written": clock::unix_seconds(),
        "denied": denied, "doubt": doubt,
    });
    value.to_string()
}

#[test]
fn a_ban_is_waited_for_at_every_gateway_and_who_does_not_confirm_it_is_named() {
    let Some(etcd) = Etcd::start() else { return };
    let deny = ["deny", "--client", "42", "--wait=1s"];
    // A fleet without gateways has none to wait for.
    etcd.fleet(&deny).succeeded();
    for (name, denied, doubt) in [
        ("ready", Some(i64::MAX), 0),
        ("late", Some(1), 0),
        ("doubtful", Some(1), 3),
        ("old", None, 0),
    ] {
        etcd.put(&format!("/ringgate/test/truth/gateway/{name}"), &told(denied, doubt));
    }
    let late =
        "doubtful (holds news back under number 3), late, old (a release that does not tell)";
    for (words, said) in [
        (&deny[..], "client 42 may not play in this fleet"),
        (&["allow", "--client", "42", "--wait=1s"], "client 42 may play"),
    ] {
        let ran = etcd.fleet(words);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        let why = format!("{said}, but not every gateway has confirmed that within 1 s: {late}\n");
        assert!(ran.stderr.ends_with(&why), "{}", ran.stderr);
    }
    assert!(
        etcd.fleet(&["denied"]).succeeded().starts_with("nobody"),
        "it was lifted all the same"
    );
    // A gateway that holds another history back tells a revision of its own.
    let mut other = json(&told(Some(i64::MAX), 3));
    other["held"] = ["all"].into_iter().collect();
    for name in ["late", "doubtful", "old"] {
        etcd.put(&format!("/ringgate/test/truth/gateway/{name}"), &other.to_string());
    }
    let ran = etcd.fleet(&deny);
    let why = "within 1 s: doubtful (holds news back under number 3), late (holds";
    assert!(ran.code == Some(1) && ran.stderr.contains(why), "{}", ran.stderr);
    // Those that know are not waited for, and what was not denied is nothing to wait for.
    for name in ["late", "doubtful", "old"] {
        etcd.put(&format!("/ringgate/test/truth/gateway/{name}"), &told(Some(i64::MAX), 0));
    }
    etcd.fleet(&deny).succeeded();
    etcd.fleet(&["allow", "--client", "42", "--wait"]).succeeded();
    etcd.put("/ringgate/test/truth/gateway/late", &told(Some(1), 0));
    etcd.fleet(&["allow", "--client", "42", "--wait"]).succeeded();
    assert!(
        etcd.fleet(&["deny", "--client", "1", "--wait=0s"]).refused().contains("a time such as")
    );
}

#[test]
fn a_rotation_names_who_has_not_confirmed_it_and_who_holds_it_back() {
    let Some(etcd) = Etcd::start() else { return };
    run(ringgate(["keygen".as_ref(), "--out".as_ref(), etcd.folder.join("key").as_os_str()]))
        .succeeded();
    let key = etcd.folder.join("key");
    let key = key.to_str().expect("our own path");
    etcd.fleet(&["init", "eu", "us", "--key", key]).succeeded();
    let listener = |name: &str| serde_json::json!({ "name": name, "protocol": "netcode", "addresses": [], "epochs": [1] });
    for (name, doubt) in [("late", 0), ("doubtful", 3)] {
        let mut value = json(&told(None, doubt));
        value["listeners"] = [listener("eu"), listener("us")].into_iter().collect();
        value["held"] = ["keys"].into_iter().collect();
        etcd.put(&format!("/ringgate/test/truth/gateway/{name}"), &value.to_string());
    }
    let rotate = |words: &[&str]| etcd.fleet(&[&["keys", "rotate", "--key", key], words].concat());
    let refused = rotate(&["eu", "ue"]).refused();
    assert!(
        refused.contains("ue has no key yet (eu, us have): `ringgate fleet init ue`"),
        "{refused}"
    );
    let holds = "doubtful holds back under number 3: keys; ";
    let said = rotate(&["eu"]).succeeded();
    assert!(said.starts_with("eu: key 2 is minted with once all gateways"), "{said}");
    assert!(said.contains(holds), "{said}");
    let ran = rotate(&["us", "--wait=1s"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let why = "us: key 2 is made, but not every gateway has confirmed that within 1 s: \
               doubtful (holds news back under number 3), late\n";
    assert!(ran.stderr.contains(holds) && ran.stderr.ends_with(why), "{}", ran.stderr);
    assert!(ran.stdout.is_empty(), "{}", ran.stdout);

    // Gateways that drain take in no keys, and nobody new is sent there.
    for name in ["late", "doubtful"] {
        let mut value = json(&told(None, 0));
        value["listeners"] = [listener("eu"), listener("us")].into_iter().collect();
        value["draining"] = true.into();
        etcd.put(&format!("/ringgate/test/truth/gateway/{name}"), &value.to_string());
    }
    let said = rotate(&["eu", "--wait"]).succeeded();
    assert!(said.starts_with("eu: key 3 is minted with now"), "{said}");

    // What was rotated before one that waits is told.
    let mut value = json(&told(None, 0));
    value["listeners"] = [listener("us")].into_iter().collect();
    etcd.put("/ringgate/test/truth/gateway/late", &value.to_string());
    let ran = rotate(&[]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("eu: key 4 is minted with once all"), "{}", ran.stdout);
    assert!(ran.stderr.contains("us: key 2 waits for late"), "{}", ran.stderr);

    // Gateways accept eight keys.
    for number in 5..=8 {
        let said = rotate(&["eu"]).succeeded();
        assert!(said.starts_with(&format!("eu: key {number} ")), "{said}");
    }
    let ran = rotate(&["eu"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stderr.contains("eu: gateways accept 8 keys, and tokens of"), "{}", ran.stderr);
}

#[test]
fn no_key_is_made_by_a_clock_that_is_ahead_of_the_whole_fleet() {
    let Some(etcd) = Etcd::start() else { return };
    run(ringgate(["keygen".as_ref(), "--out".as_ref(), etcd.folder.join("key").as_os_str()]))
        .succeeded();
    let key = etcd.folder.join("key");
    let key = key.to_str().expect("our own path");
    etcd.fleet(&["init", "eu", "--key", key]).succeeded();
    let mut value = json(&told(None, 0));
    value["written"] = (clock::unix_seconds() - 3600).into();
    etcd.put("/ringgate/test/truth/gateway/g", &value.to_string());
    for words in [["init", "us", "--key", key], ["keys", "rotate", "--key", key]] {
        let ran = etcd.fleet(&words);
        let why = "this host's clock is ahead of every gateway, token service and agent";
        assert!(ran.code == Some(1) && ran.stderr.contains(why), "{}", ran.stderr);
    }
    etcd.put("/ringgate/test/truth/gateway/g", &told(None, 0));
    etcd.fleet(&["keys", "rotate", "--key", key]).succeeded();
}

#[test]
fn what_changes_in_a_fleet_is_told_as_it_changes() {
    let Some(etcd) = Etcd::start() else { return };
    let mut events = ringgate(["fleet", "events", "--json", "--limit", "2"]);
    events.args(["--endpoint", &etcd.endpoint(), "--fleet", "/ringgate/test"]);
    let mut events = events.stdout(Stdio::piped()).spawn().expect("the binary was built");
    // What is there when it begins has not happened now, so something has to happen until then.
    let mut denied = 0;
    wait_for("two events", || {
        denied += 1;
        etcd.fleet(&["deny", "--client", &denied.to_string(), "--reason", "aimbot"]).succeeded();
        events.try_wait().expect("our child")
    });
    let said = events.wait_with_output().expect("it has ended");
    let said = String::from_utf8(said.stdout).expect("JSON");
    let said: Vec<_> = said.lines().map(json).collect();
    let kinds: Vec<_> = said.iter().map(|it| it["kind"].as_str().expect("text")).collect();
    assert_eq!(kinds, ["known", "ban"]);
    let text = said[1]["text"].as_str().expect("a sentence");
    assert!(text.starts_with("client ") && text.ends_with(" may not play"), "{text}");
}

#[test]
fn what_is_asked_of_no_fleet_is_refused_in_a_sentence() {
    let why = run(ringgate(["fleet", "status"])).refused();
    assert_eq!(why, "expected --config FILE with [fleet], or --endpoint URL and --fleet PREFIX");
    let folder = Folder::new();
    let file = folder.file("gateway.toml", "[gateway]\n", 0o600);
    let mut command = ringgate(["fleet", "status", "--config"]);
    command.arg(&file);
    assert!(run(command).refused().ends_with("expected a table [fleet]"));
    let nobody = format!("http://{}", own_address());
    let away = run(ringgate(["fleet", "status", "--endpoint", &nobody, "--fleet", "/f"]));
    assert_eq!(away.code, Some(1), "{}", away.stderr);
    let which = format!("ringgate: etcd at {nobody}: ");
    assert!(away.stderr.starts_with(&which), "{}", away.stderr);
}

#[test]
fn a_token_service_says_at_once_which_etcd_it_cannot_reach() {
    let (folder, nobody) = (Folder::new(), format!("http://{}", own_address()));
    folder.file("key", "11".repeat(32), 0o600);
    folder.file("secret", "an-eye-for-the-fleet", 0o600);
    let text = format!(
        "[fleet]\nendpoints = [\"{nobody}\"]\nprefix = \"/f\"\nname = \"t\"\nkey = {{ file = \"key\" }}\n\
         [tokens]\nbind = [\"127.0.0.1:0\"]\n[[caller]]\nname = \"m\"\nscopes = [\"tokens\"]\n\
         secret = {{ file = \"secret\" }}\n"
    );
    let config = folder.file("tokens.toml", text, 0o600);
    let mut command = ringgate(["tokens".as_ref(), "--config".as_ref(), config.as_os_str()]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = Ending(child.expect("the binary was built"));
    let log = BufReader::new(child.stderr.take().expect("piped"));
    let says = |line: &String| line.contains("fleet_away") && line.contains(&nobody);
    let lines = log.lines().map_while(Result::ok);
    assert!(lines.take(10).any(|line| says(&line)), "it is not said");
}

#[test]
fn the_file_of_a_token_service_is_checked_like_any_other() {
    let folder = Folder::new();
    folder.file("fleet.key", "1".repeat(64), 0o600);
    folder.file("secret", "0123456789abcdef", 0o600);
    let good = "[fleet]\nendpoints = [\"http://127.0.0.1:2379\"]\nprefix = \"/f\"\nkey = { file = \"fleet.key\" }\n\
        [tokens]\nbind = [\"127.0.0.1:0\"]\n[[caller]]\nname = \"a\"\nsecret = { file = \"secret\" }\n";
    let check = |text: &str| {
        let file = folder.file("tokens.toml", text, 0o600);
        let mut command = ringgate(["tokens", "--check", "--config"]);
        command.arg(file);
        run(command)
    };
    assert!(check(good).succeeded().ends_with("tokens.toml: ok\n"));
    for (from, to, why) in [
        (
            "key = { file = \"fleet.key\" }\n",
            "",
            "fleet.key: found nothing, expected the fleet's key",
        ),
        (
            "[tokens]\nbind = [\"127.0.0.1:0\"]\n",
            "",
            "tokens: found nothing, expected a table [tokens]",
        ),
        (
            "bind =",
            "max_expire = \"1s\"\nbind =",
            "tokens.max_expire: found 1s, expected expire (30s) or more",
        ),
        (
            "bind =",
            "max_expire = \"1h\"\nrotate_every = \"514s\"\nbind =",
            "tokens.rotate_every: found 514s, expected 515s or more: gateways accept 8 keys",
        ),
        (
            "bind =",
            "certificate = \"x\"\nbind =",
            "tokens.certificate_key: found nothing, and a certificate",
        ),
        (
            "name = \"a\"",
            "name = \"a\"\nscopes = [\"all\"]",
            "caller[0].scopes[0]: found \"all\", expected \"tokens\"",
        ),
        (
            "name = \"a\"",
            "name = \"a\"\nsecret = { file = \"none\" }\n[[caller]]\nname = \"a\"",
            "caller[1].name: found \"a\" again",
        ),
        (
            "name = \"a\"",
            "name = \"b\"\nsecret = { file = \"secret\" }\n[[caller]]\nname = \"a\"",
            "caller[1].secret: found the secret of another caller",
        ),
        ("bind =", "bindd =", "did you mean bind?"),
        ("[[caller]]", "[[callers]]", "caller: found nothing"),
        ("secret = { file = \"secret\" }\n", "", "caller[0].secret: found nothing"),
    ] {
        let ran = check(&good.replace(from, to));
        assert_eq!(ran.code, Some(2), "{to}");
        assert!(ran.stderr.contains(why), "{to}: {}", ran.stderr);
    }
}

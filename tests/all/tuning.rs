//! What lies in tuning/ fits the daemon: dashboard, alert rules and what a package ships.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringgate_core::secret::Key;
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::Stored;
use ringgate_io::CardDrop;
use ringgate_tokens::Refusal;
use ringgate_tokens::counters::{Counters, Standing};
use ringgate_tokens::desk::{Desk, Rules};

use crate::command::{ringgate, run};
use crate::control_rig::{Daemon, Game, Text, wait_for};
use crate::folder::Folder;
use crate::upgrade_rig::is_root;

fn tuning(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning").join(path)
}

fn text_of(path: &str) -> String {
    std::fs::read_to_string(tuning(path)).expect("it lies in tuning/")
}

/// Every metric of ours that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_part(letter));
    let is_metric = |word: &&str| word.starts_with("ringgate_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned).collect()
}

#[test]
fn dashboard_and_rules_name_metrics_that_there_are() {
    let mut text = Text::new();
    // Nobody is there, and the families are.
    text.more.push_str("[fleet]\nendpoints = [\"http://127.0.0.1:1\"]\nprefix = \"/f\"\n");
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let ours = wait_for("the fleet's families", || {
        let page = daemon.get("/metrics").body;
        page.contains("ringgate_fleet_backends").then_some(page)
    });
    let page = format!("{ours}{}", page_of_a_token_service());
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let there: BTreeSet<_> =
        samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect();
    for file in [
        "grafana/ringgate.json",
        "prometheus/ringgate.rules.yml",
        "prometheus/ringgate.rules.test.yml",
    ] {
        let mut named = named(&text_of(file));
        assert!(named.len() > 10, "{file} names {named:?}");
        // Held where there is an agent, and a cluster.
        named.retain(|name| [OF_AGENTS, OF_CLUSTERS, OF_CARDS].iter().all(|it| !is_of(name, it)));
        let missing: Vec<_> = named.difference(&there).collect();
        assert!(
            missing.is_empty(),
            "{file} names metrics that the gateway does not have: {missing:?}"
        );
    }
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/howto/prometheus.md");
    let text = std::fs::read_to_string(documents).expect("it is there");
    let queries = text.split("## Queries").nth(1).and_then(|rest| rest.split("\n#").next());
    let missing: Vec<_> =
        named(queries.expect("the chapter")).difference(&there).cloned().collect();
    assert!(missing.is_empty(), "the queries name {missing:?}");
}

/// How the metrics begin that a gateway with an agent has.
pub(crate) const OF_AGENTS: &[&str] = &["ringgate_agent_", "ringgate_trunk_"];
/// Those of a gateway in a cluster.
pub(crate) const OF_CLUSTERS: &[&str] = &["ringgate_cluster_"];
/// Those of a gateway with `io = "xdp"`, whose test names it.
const OF_CARDS: &[&str] = &["ringgate_xdp_attached"];

fn is_of(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| name.starts_with(start))
}

/// What dashboard and rules name that begins so, and a gateway's page has not.
pub(crate) fn missing(page: &str, starts: &[&str]) -> Vec<String> {
    let files = ["grafana/ringgate.json", "prometheus/ringgate.rules.yml"];
    let named = files.iter().flat_map(|file| named(&text_of(file)));
    let meant: Vec<_> = named.filter(|name| is_of(name, starts)).collect();
    assert!(meant.len() > 5, "{meant:?}");
    let is_there = |name: &String| page.contains(&format!("# TYPE {name} "));
    meant.into_iter().filter(|name| !is_there(name)).collect()
}

/// What a token service tells that knows a key and nothing else.
fn page_of_a_token_service() -> String {
    let keyspace = Keyspace::new("/f").expect("a prefix");
    let key = FleetKey::new(Key::from_bytes([1; 32]));
    let rules =
        Rules { expire_default_s: 30, expire_max_s: 300, addresses_max: 1, serves_away: true };
    let at = keyspace.key(&Place::Key(Name::new("eu").expect("a name"), 1));
    let validity = Validity { from: 0, mint_until: 1, accept_until: 2 };
    let sealed = key.seal(&at, validity, &Key::from_bytes([2; 32])).expect("random bytes");
    let name = |text| Name::new(text).expect("a name");
    let mut desk = Desk::new(keyspace, key, (name("one"), name("one.1")), rules);
    desk.learn(&at, Some(&sealed.encode().expect("a sound value")));
    Counters::default().page(&desk, &Standing::default())
}

#[test]
fn promtool_has_nothing_to_say_about_a_token_service() {
    let Some(said) = crate::control_metrics::promtool(&page_of_a_token_service()) else { return };
    assert_eq!(said, "");
}

#[test]
fn rules_name_reasons_that_there_are() {
    let rules = text_of("prometheus/ringgate.rules.yml");
    let lists = rules.split("reason=~\"").skip(1).filter_map(|rest| rest.split('"').next());
    let drops: Vec<_> = ringgate_core::drops::DropReason::ALL.iter().map(|it| it.name()).collect();
    let of_frames = CardDrop::ALL.iter().map(|it| it.name()).collect();
    let refusals: Vec<_> = Refusal::ALL.iter().map(|it| it.word()).collect();
    let of_members = include_str!("../../crates/trunk/src/peers/talk.rs");
    let of_members = of_members.split('"').skip(1).step_by(2).collect();
    for (list, known) in lists.zip([drops, of_frames, refusals, of_members]) {
        let list: Vec<_> = list.split('|').collect();
        for reason in &list {
            assert!(known.contains(reason), "{reason}");
            // An Unreal player is refused at the response.
            let other = reason.replace("request_", "response_");
            assert!(!known.contains(&&*other) || list.contains(&&*other), "{other}");
        }
    }
    assert_eq!(rules.matches("reason=~").count(), 4);
}

/// And the first metric of each row of the handbook that says so has an alert.
#[test]
fn what_is_to_be_alerted_on_is() {
    let page = include_str!("../../docs/reference/metrics.md");
    let rules = named(&text_of("prometheus/ringgate.rules.yml"));
    let says = |row: &&str| row.contains("Alert ") || row.contains("alert on");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).filter(says).collect();
    assert!(rows.len() > 12, "{rows:?}");
    let is_alerted = |row: &&str| named(row).iter().any(|name| rules.contains(name));
    let missing: Vec<_> = rows.iter().filter(|row| !is_alerted(row)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_dashboard_is_one_that_grafana_reads() {
    let board: serde_json::Value =
        serde_json::from_str(&text_of("grafana/ringgate.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("a list");
    let ids: BTreeSet<_> =
        panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(ids.len(), panels.len(), "every panel has a number of its own");
    for panel in panels {
        let place = &panel["gridPos"];
        let right = place["x"].as_u64().zip(place["w"].as_u64()).map(|(x, w)| x + w);
        assert!(right.is_some_and(|right| right <= 24), "{place}");
        let queries = panel["targets"].as_array().expect("a list");
        assert!(queries.iter().all(|it| it["expr"].is_string()), "{panel}");
    }
}

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires_when_it_should() {
    for arguments in
        [["check", "rules", "ringgate.rules.yml"], ["test", "rules", "ringgate.rules.test.yml"]]
    {
        let mut command = Command::new("promtool");
        let output = command.args(arguments).current_dir(tuning("prometheus")).output();
        let Ok(output) = output else {
            let why = "promtool is not there (Debian has it in the package prometheus)";
            let required = std::env::var_os("REQUIRE_PROMTOOL").is_some_and(|v| v == "1");
            assert!(!required, "REQUIRE_PROMTOOL=1, but {why}");
            eprintln!("SKIPPED: {why}");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn the_containers_profile_allows_what_the_daemon_allows_itself() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/process/src/confine.rs");
    let source = std::fs::read_to_string(source).expect("it is there");
    let list = source.split("mod tests").next().expect("some");
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let calls = list.split("libc::SYS_").skip(1).filter_map(|it| it.split(|l| !is_name(l)).next());
    let profile: serde_json::Value =
        serde_json::from_str(&text_of("container/seccomp.json")).expect("JSON");
    let allowed: Vec<_> = profile["syscalls"][0]["names"].as_array().expect("a list").clone();
    // `bpf` is for `io = "xdp"`, which takes rights that this profile is not for, and what is done
    // with `unshare` is done without it where that is forbidden.
    let others = ["seccomp", "bpf", "unshare"];
    let calls: Vec<_> = calls.filter(|call| !others.contains(call)).collect();
    assert!(calls.len() > 80, "{calls:?}");
    for call in calls {
        assert!(allowed.iter().any(|it| it == call), "{call} is missing");
    }
    assert!(allowed.iter().any(|it| it == "io_uring_setup"));
}

/// As the Dockerfile makes it, of the program that tests run: it starts there, and looks up a name.
#[test]
fn the_containers_image_has_all_that_the_program_needs() {
    if !is_root() {
        return;
    }
    let dockerfile = text_of("container/Dockerfile");
    let make = dockerfile.lines().find_map(|line| line.strip_prefix("RUN mkdir /image && "));
    let folder = Folder::new();
    let make = make.expect("it makes the image").replace("/image", "\"$IMAGE\"");
    let make = make.replace("target/dist/ringgate", "\"$PROGRAM\"");
    let program = ringgate([] as [&str; 0]).get_program().to_owned();
    let mut shell = Command::new("sh");
    shell.args(["-c", &make]).env("IMAGE", folder.path()).env("PROGRAM", program);
    run(shell).succeeded();
    std::fs::create_dir(folder.join("etc")).expect("ours");
    folder.file("etc/hosts", "127.0.0.1 etcd.example\n", 0o644);
    let fleet = "[fleet]\nendpoints = [\"http://etcd.example:1\"]\nprefix = \"/f\"\n";
    folder.file("fleet.toml", fleet, 0o644);
    let inside = |words: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(folder.path()).arg("/ringgate").args(words);
        run(command)
    };
    assert!(inside(&["--version"]).succeeded().starts_with("ringgate "));
    let refused = inside(&["fleet", "status", "--config", "/fleet.toml"]).stderr;
    assert!(refused.contains("Connection refused"), "{refused}");
}

#[test]
fn the_manifests_are_what_kubernetes_reads() {
    let command = || {
        let mut command = Command::new("kubernetes-validate");
        command.args(["--strict"]);
        command
    };
    let output = command().arg(tuning("kubernetes/ringgate.yaml")).output();
    let Ok(output) = output else {
        let why =
            "kubernetes-validate is not there (it is a package for Python, with the schemas in it)";
        let required = std::env::var_os("REQUIRE_KUBERNETES").is_some_and(|v| v == "1");
        assert!(!required, "REQUIRE_KUBERNETES=1, but {why}");
        eprintln!("SKIPPED: {why}");
        return;
    };
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success(), "{said:?}");
    assert_eq!(said.concat().matches("passed for resource").count(), 3, "{said:?}");
    // It would have said so if something had been wrong.
    let folder = Folder::new();
    let wrong = text_of("kubernetes/ringgate.yaml").replace("hostNetwork", "hostNetwerk");
    let refused = command().arg(folder.file("wrong.yaml", wrong, 0o600)).output();
    assert!(!refused.expect("it was there").status.success());
}

#[test]
fn the_manifests_config_is_one() {
    let manifests = text_of("kubernetes/ringgate.yaml");
    let rest = manifests.split("gate.toml: |\n").nth(1).expect("a config");
    let config = rest.split("\n---").next().unwrap_or_default();
    let lines: Vec<_> =
        config.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    let folder = Folder::new();
    folder.file("netcode.key", format!("{}\n", crate::control_rig::KEY_HEX), 0o600);
    let file = folder.file("gate.toml", lines.join("\n"), 0o644);
    let mut check = ringgate(["check".as_ref(), file.as_os_str()]);
    check.env("CREDENTIALS_DIRECTORY", folder.path());
    let said = run(check).succeeded();
    assert!(said.contains("1 listener, 1 backend"), "{said}");
}

/// A folder of the node is made by its kubelet, as root's.
#[test]
fn the_pod_may_write_the_folders_of_its_node() {
    let manifests = text_of("kubernetes/ringgate.yaml");
    let after = |text: &str| manifests.split(text).nth(1).expect(text).to_owned();
    let user = after("runAsUser: ").lines().next().expect("a number").to_owned();
    let init = after("initContainers:").split(" containers:").next().expect("some").to_owned();
    let folders = manifests.split("hostPath: {path: ").skip(1);
    let folders: Vec<_> = folders.filter_map(|rest| rest.split(',').next()).collect();
    assert_eq!(folders.len(), 2, "{folders:?}");
    let chown = init.lines().find(|line| line.contains("chown")).expect("it gives them away");
    assert!(chown.contains(&format!("chown {user}:{user} ")), "{chown}");
    for folder in folders {
        assert!(chown.split([' ', '"']).any(|word| word == folder), "{folder}: {chown}");
        assert!(init.contains(&format!("mountPath: {folder}}}")), "{folder}: {init}");
    }
}

#[test]
fn the_package_and_the_unit_mean_the_same_credential() {
    // As root checks it with CREDENTIALS_DIRECTORY=/etc/ringgate, so the file has the credential's
    // name. One that is missing is no reason not to start.
    for (unit, keys) in [
        ("ringgate.service", &["netcode.key", "fleet.key", "member.key"][..]),
        ("ringgate-agent.service", &["fleet.key"]),
    ] {
        let text = text_of(unit);
        for key in keys {
            let loaded = format!("LoadCredential={key}:/etc/ringgate/{key}");
            for line in [loaded, format!("SetCredential={key}:\\n")] {
                assert!(text.lines().any(|it| it == line), "{unit}: {line}");
            }
        }
    }
    // What the sentences after an installation say, typed.
    let folder = Folder::new();
    let key = folder.join("netcode.key");
    let keygen = ["keygen".as_ref(), "--out".as_ref(), key.as_os_str()];
    run(ringgate(keygen)).succeeded();
    let file = folder.file("gate.toml", text_of("ringgate.example.toml"), 0o644);
    let mut check = ringgate(["check".as_ref(), file.as_os_str()]);
    check.env("CREDENTIALS_DIRECTORY", folder.path());
    run(check).succeeded();
}

/// Each example fits its unit: what is a credential there is one here.
#[test]
fn the_examples_of_agent_and_token_service_are_ones_that_they_take() {
    let folder = Folder::new();
    let key = format!("{}\n", crate::control_rig::KEY_HEX);
    folder.file("tokens_fleet.key", &key, 0o600);
    for name in ["tokens_matchmaker.secret", "tokens_operator.secret"] {
        folder.file(name, format!("a-secret-of-{name}"), 0o600);
    }
    let check = |role: &str, example: &str| {
        let file = folder.file("example.toml", text_of(example), 0o644);
        let mut check = ringgate([role, "--check"]);
        check.arg(file).env("CREDENTIALS_DIRECTORY", folder.path());
        run(check).succeeded();
    };
    check("tokens", "ringgate.tokens.example.toml");
    if crate::agent::certificates(&folder, crate::agent::NAMES) {
        std::fs::rename(folder.join("ca.pem"), folder.join("trunk-ca.pem")).expect("it is there");
        std::fs::rename(folder.join("host-7.key"), folder.join("agent.key")).expect("it is there");
        check("agent", "ringgate.agent.example.toml");
    }
}

/// What the packages have, and that no page in them leads where nothing is.
#[test]
fn the_packages_have_pages_examples_and_the_load_generator() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: packages take the program `dpkg-deb`");
    }
    let folder = Folder::new();
    // It is made elsewhere, and says of itself what is asked for.
    let says = "#!/bin/sh\n[ $2 = man ] && install -D /dev/null $4/ringgate-loadgen.1 || echo $3\n";
    let loadgen = folder.file("ringgate-loadgen", says, 0o755);
    // A program for tests is large, and slow to pack.
    let program = ringgate([""; 0]).get_program().display().to_string();
    let program = folder.file("ringgate", format!("#!/bin/sh\nexec {program} \"$@\"\n"), 0o755);
    let mut build = Command::new(tuning("debian").join("build.sh"));
    build.arg(folder.join("packages")).env("BIN", program);
    build.env("LOADGEN_BIN", loadgen).env("RINGGATE_COMMIT", "none");
    let built = build.output().expect("there is a shell");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let unpacked = |name: &str| {
        let mut files =
            std::fs::read_dir(folder.join("packages")).expect("ours").map(|it| it.expect("ours"));
        let is_it = |file: &std::fs::DirEntry| {
            file.file_name().to_string_lossy().starts_with(&format!("{name}_"))
        };
        let package = files.find(is_it).expect("it was built").path();
        let root = folder.join(&format!("{name}-unpacked"));
        let done = Command::new("dpkg-deb").arg("-x").arg(package).arg(&root).status();
        assert!(done.expect("it is there").success());
        root
    };
    let (gate, loadgen) = (unpacked("ringgate"), unpacked("ringgate-loadgen"));
    for path in ["usr/bin/ringgate-loadgen", "usr/share/man/man1/ringgate-loadgen.1.gz"] {
        assert!(loadgen.join(path).exists(), "{path}");
    }
    assert!(loadgen.join("usr/share/zsh/vendor-completions/_ringgate-loadgen").exists());
    let doc = gate.join("usr/share/doc/ringgate");
    let configs = ["gate.toml", "plain.toml", "agent.toml", "tokens.toml"];
    let others = ["ringgate.rules.yml", "ringgate.rules.test.yml", "ringgate.json", "host.sh"];
    for example in configs.into_iter().chain(others) {
        assert!(doc.join("examples").join(example).exists(), "{example}");
    }
    let mut folders = vec![doc.clone()];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it is there") {
            let path = entry.expect("an entry").path();
            match path.extension().is_some_and(|it| it == "md") {
                true => pages.push(path),
                false if path.is_dir() => folders.push(path),
                false => {}
            }
        }
    }
    let summary = std::fs::read_to_string(tuning("../docs/SUMMARY.md")).expect("it is there");
    assert_eq!(pages.len(), summary.matches(".md)").count(), "each page of the site");
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("text");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let there =
                page.parent().expect("a folder").join(link.split('#').next().expect("a path"));
            assert!(there.exists(), "{}: {link}", page.display());
        }
    }
}

/// What host.sh makes of the processors that are switched on.
#[test]
fn a_host_with_gaps_among_its_processors_is_dealt_out() {
    let functions = r#"source <(sed -n '/^processors() /,/^}/p;/^list() /,/^}/p;/^mask() /,/^}/p' "$0")
        mapfile -t all < <(processors "$1"); list "${all[@]}"; printf ' '; mask "${all[@]}""#;
    for (online, expected) in [
        ("0-3", "0-3 0000000f"),
        ("0-2,8,33", "0-2,8,33 00000002,00000107"),
        ("5", "5 00000020"),
        ("31-32", "31-32 00000001,80000000"),
    ] {
        let mut bash = Command::new("bash");
        bash.args(["-euc", functions]).arg(tuning("host.sh")).arg(online);
        let output = bash.output().expect("there is a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    }
}

#[test]
fn the_packages_scripts_are_ones() {
    for script in ["build.sh", "postinst", "postrm", "prerm"] {
        let shell = if script == "build.sh" { "bash" } else { "sh" };
        let output = Command::new(shell).arg("-n").arg(tuning("debian").join(script)).output();
        let said = output.expect("there is a shell");
        assert!(said.status.success(), "{script}: {}", String::from_utf8_lossy(&said.stderr));
    }
}

/// What a package does to a gateway that runs, where these programs are on its host. `ringgate
/// upgrade` is heard so many times before it works.
fn installed(status: &str, works_at: u32, is_sound: bool) -> String {
    installed_where(status, works_at, is_sound, true)
}

/// The same where the new program may not run at all.
fn installed_where(status: &str, works_at: u32, is_sound: bool, runs: bool) -> String {
    let folder = Folder::new();
    let (log, bin) = (folder.join("log"), folder.join("bin"));
    std::fs::create_dir(&bin).expect("ours");
    let log = log.display();
    let says = format!("#!/bin/sh\necho \"${{0##*/}} $*\" >>{log}\n");
    let systemctl = format!(
        "case \"$*\" in *is-active*) [ \"$3\" = ringgate.service ] ;; *StatusText*) echo {status} ;; esac\n"
    );
    let ringgate = format!(
        "{runs} || exit 1; case $1 in upgrade) [ \"$(grep -c upgrade {log})\" -ge {works_at} ] ;; check) {is_sound} ;; esac\n"
    );
    for (name, does) in
        [("systemctl", &*systemctl), ("ringgate", &*ringgate), ("sleep", ""), ("sysctl", "")]
    {
        folder.file(&format!("bin/{name}"), format!("{says}{does}"), 0o755);
    }
    let here = bin.display().to_string();
    let script = text_of("debian/postinst").replace("/run/systemd/system", &here);
    let path = format!("{here}:{}", std::env::var("PATH").unwrap_or_default());
    let mut sh = Command::new("sh");
    sh.arg(folder.file("postinst", script, 0o755)).args(["configure", "0.1.0"]).env("PATH", path);
    let output = sh.output().expect("there is a shell");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let done = std::fs::read_to_string(folder.join("log")).expect("something was done");
    let is_about =
        |line: &&str| ["ringgate upgrade", "restart"].iter().any(|what| line.contains(what));
    let lines: Vec<_> = done.lines().filter(is_about).chain(said.lines()).collect();
    lines.join("\n")
}

#[test]
fn a_package_stops_no_gateway_that_would_not_come_up_again() {
    let (once, thrice) = ("ringgate upgrade", ["ringgate upgrade"; 3].join("\n"));
    assert_eq!(installed("serving", 1, false), once);
    assert_eq!(installed("serving", 3, false), thrice);
    let restart = "systemctl restart ringgate.service";
    assert_eq!(installed("serving", 9, true), format!("{thrice}\n{restart}"));
    let stays = "ringgate: ringgate.service goes on as the release before, for its config would be refused. Mend that, and then: \
                 ringgate upgrade";
    assert_eq!(installed("serving", 9, false), format!("{thrice}\n{stays}"));
    let stays = "ringgate: ringgate.service goes on as the release before, for this one does not run on this host. A restart would fail";
    assert_eq!(installed_where("serving", 9, true, false), format!("{thrice}\n{stays}"));
    let drains = "ringgate: ringgate.service drains, and ends as the release before";
    assert_eq!(installed("draining", 1, true), drains);
}

#[test]
fn a_purge_removes_what_each_unit_has_kept() {
    let postrm = text_of("debian/postrm");
    for unit in ["ringgate", "ringgate-agent", "ringgate-tokens"] {
        let text = text_of(&format!("{unit}.service"));
        let kept = text.lines().find_map(|line| line.strip_prefix("StateDirectory="));
        for parent in ["/var/lib", "/var/lib/private"] {
            let folder = format!("{parent}/{}", kept.expect("it keeps something"));
            assert!(postrm.split_whitespace().any(|word| word == folder), "{folder}");
        }
    }
    // A host has one list of them, which is not ours.
    let settings = text_of("90-ringgate.conf");
    assert!(!settings.lines().any(|line| line.starts_with("net.ipv4.ip_local_reserved_ports")));
}

/// Every system call that the C library of this machine knows by name; `None` where no C compiler
/// tells.
fn system_calls() -> Option<BTreeSet<String>> {
    let folder = Folder::new();
    let source = folder.file("calls.c", "#include <sys/syscall.h>\n", 0o600);
    let told = Command::new("cc").args(["-E", "-dM"]).arg(source).output().ok()?;
    let text = String::from_utf8(told.stdout).expect("text");
    let name = |line: &str| line.strip_prefix("#define SYS_")?.split(' ').next().map(str::to_owned);
    Some(text.lines().filter_map(name).collect())
}

#[test]
fn the_containers_profile_is_one_that_runtimes_read_and_names_calls_that_there_are() {
    let profile: serde_json::Value =
        serde_json::from_str(&text_of("container/seccomp.json")).expect("JSON");
    let fields = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    let known = ["architectures", "defaultAction", "defaultErrnoRet", "syscalls"];
    assert_eq!(fields(&profile), known, "a field that runtimes do not know makes them refuse it");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut named = Vec::new();
    for rule in profile["syscalls"].as_array().expect("a list") {
        assert_eq!(
            (fields(rule), &rule["action"]),
            (vec!["action".into(), "names".into()], &"SCMP_ACT_ALLOW".into())
        );
        let names = rule["names"].as_array().expect("a list").iter();
        named.extend(names.map(|name| name.as_str().expect("text").to_owned()));
    }
    assert!(named.is_sorted(), "in order, so that one can be found");
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "each once");
    let Some(calls) = system_calls().filter(|_| cfg!(target_arch = "x86_64")) else {
        eprintln!("SKIPPED: there is no C compiler to tell the names of system calls");
        return;
    };
    assert!(calls.len() > 300, "{calls:?}");
    let unknown: Vec<_> = named.iter().filter(|name| !calls.contains(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn completions_and_man_pages_are_made_for_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = run(ringgate(["generate", "completions", shell])).succeeded();
        assert!(text.contains("keygen") && text.contains("drain"), "{shell}");
    }
    let folder = Folder::new();
    let out = ["generate".as_ref(), "man".as_ref(), "--out".as_ref(), folder.path().as_os_str()];
    assert_eq!(run(ringgate(out)).succeeded(), "");
    for page in ["ringgate.1", "ringgate-run.1", "ringgate-hist-plot.1"] {
        let text = std::fs::read_to_string(folder.join(page)).expect("a page");
        assert!(text.contains(".TH "), "{page}");
    }
    let version = run(ringgate(["--version"])).succeeded();
    assert!(version.contains("\ncommit ") && version.contains("\nbuild "), "{version}");
}

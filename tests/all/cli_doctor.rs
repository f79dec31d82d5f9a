//! `ringgate doctor` on whatever host this is.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use crate::agent::{NAMES, agent_file, certificates};
use crate::command::{Ending, Ran, ringgate, run};
use crate::control_rig::wait_for;
use crate::folder::Folder;
use crate::oncall::row;
use crate::own::{own_address, own_ip, take_again};

#[test]
fn what_bites_decides_the_exit_code() {
    let ran = run(ringgate(["doctor", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(report["schema"], 1);
    let findings = report["findings"].as_array().expect("a list");
    let severities: Vec<_> = findings.iter().map(|it| it["severity"].as_str()).collect();
    let bites = severities.iter().filter(|it| **it == Some("bites")).count();
    assert_eq!(ran.code, Some(i32::from(bites > 0)), "{severities:?}");
    assert_eq!(ran.stderr.is_empty(), bites == 0, "{}", ran.stderr);
    let handbook = include_str!("../../docs/howto/host.md");
    for finding in findings {
        let fields: Vec<_> = finding.as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["change", "found", "severity", "what", "why"]);
        assert!(fields.iter().all(|name| handbook.contains(&format!("`{name}`"))), "{fields:?}");
    }
    let names: Vec<_> = findings.iter().filter_map(|it| it["what"].as_str()).collect();
    for expected in ["kernel", "io_uring", "cipher", "net.core.rmem_max"] {
        assert!(names.contains(&expected), "{names:?}");
    }
}

#[test]
fn more_workers_than_processors_bite() {
    let folder = Folder::new();
    let file = folder.path().join("gate.toml");
    let key = "11".repeat(32);
    let config = format!(
        "[gateway]\nworkers = 128\n[[listener]]\nname = \"a\"\nprotocol = \"netcode\"\n\
         bind = [\"127.0.0.1:40000\"]\nprotocol_id = \"0x1\"\nkeys = [{{ hex = \"{key}\" }}]\n\
         backends = [\"b\"]\nmax_sessions = 1000\n\
         [[backend]]\nname = \"b\"\nlink = \"udp\"\naddress = \"127.0.0.1:7777\"\nslots = 64\n"
    );
    fs::write(&file, config).expect("temporary files");
    row("cpu").asked(&file, &[("FILE", &file.display().to_string())]);
    let ran = run(ringgate(["doctor".as_ref(), "--config".as_ref(), file.as_os_str()]));
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stderr.starts_with("ringgate: "), "{}", ran.stderr);
}

/// A config with one listener at this address.
fn config(folder: &Folder, gateway: &str, bind: &str) -> PathBuf {
    let key = "11".repeat(32);
    let text = format!(
        "[gateway]\nworkers = 1\n{gateway}run_dir = \"run\"\nstate_dir = \"state\"\n[[listener]]\nname = \"a\"\n\
         protocol = \"netcode\"\nbind = [\"{bind}\"]\nprotocol_id = \"0x1\"\n\
         keys = [{{ hex = \"{key}\" }}]\nbackends = [\"b\"]\nmax_sessions = 1000\n\
         [[backend]]\nname = \"b\"\nlink = \"udp\"\naddress = \"127.0.0.1:7777\"\nslots = 64\n"
    );
    folder.file("gate.toml", text, 0o600)
}

fn doctor(file: &Path) -> Ran {
    run(ringgate(["doctor".as_ref(), "--config".as_ref(), file.as_os_str()]))
}

#[test]
fn a_port_in_use_bites_and_its_holder_is_named() {
    let folder = Folder::new();
    let own = own_address();
    let stranger = UdpSocket::bind(own).expect("ours");
    let address = own.to_string();
    let file = config(&folder, "", &address);
    let ran = doctor(&file);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    let line = ran.stdout.lines().find(|line| line.starts_with("BITES  addresses"));
    let line = line.unwrap_or_else(|| panic!("{}", ran.stdout));
    let holder = format!("UDP {address}: process {} (", std::process::id());
    assert!(line.contains(&holder), "{line}");

    drop(stranger);
    drop(take_again(|| UdpSocket::bind(own)));
    let said = doctor(&file).stdout;
    assert!(
        said.lines().any(|line| line.starts_with("ok     addresses") && line.ends_with("free"))
    );
}

#[test]
fn the_gateway_that_runs_from_the_file_is_in_nobodys_way() {
    let folder = Folder::new();
    let address = own_address();
    let file = config(&folder, "", &address.to_string());
    let named = file.as_os_str();
    let in_one = format!("--config={}", file.display());
    for (words, variable) in [
        (&["--config".as_ref(), named][..], "elsewhere".as_ref()),
        (&[in_one.as_ref()], "".as_ref()),
        (&[named, "--take-over".as_ref()], "".as_ref()),
        (&[], named),
    ] {
        let mut command = ringgate(["run"]);
        command.args(words).env("RINGGATE_CONFIG", variable).stdout(Stdio::piped());
        let mut daemon = Ending(command.spawn().expect("the binary was built"));
        let mut lines = BufReader::new(daemon.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("ready: "))));
        let said = doctor(&file).stdout;
        let elsewhere = Folder::new();
        let other = doctor(&config(&elsewhere, "", &address.to_string()));
        let served =
            format!("served from this file: UDP {address}: process {} (ringgate)", daemon.id());
        assert!(said.contains(&served), "{words:?}: {said}");
        assert_eq!(other.code, Some(1));
        assert!(other.stdout.contains("BITES  addresses"), "{}", other.stdout);
    }
}

/// Runs commands as a process that a container runtime has taken io_uring from.
pub(crate) fn without_io_uring<T: Send>(commands: impl FnOnce() -> T + Send) -> T {
    without_call(libc::SYS_io_uring_setup, commands)
}

/// Does something without a system call.
pub(crate) fn without_call<T: Send>(call: i64, commands: impl FnOnce() -> T + Send) -> T {
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known one");
    let rules = [(call, Vec::new())].into();
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).expect("sane");
    let program = BpfProgram::try_from(filter).expect("it compiles");
    let confined = || {
        // Binds this thread and what it starts.
        seccompiler::apply_filter(&program).expect("anybody may give up calls");
        commands()
    };
    std::thread::scope(|scope| scope.spawn(confined).join().expect("it has not panicked"))
}

#[test]
fn io_uring_that_is_wanted_and_denied_bites_as_run_refuses() {
    let folder = Folder::new();
    for (gateway, bites) in [("io = \"uring\"\n", true), ("", false), ("io = \"mmsg\"\n", false)] {
        let file = config(&folder, gateway, "127.0.0.1:0");
        let ran = without_io_uring(|| doctor(&file));
        let is_bitten = ran.stdout.contains("BITES  io_uring");
        assert_eq!(is_bitten, bites, "{gateway}: {}", ran.stdout);
        assert!(!bites || ran.code == Some(1));
    }
    let file = config(&folder, "io = \"uring\"\n", "127.0.0.1:0");
    let refused =
        without_io_uring(|| run(ringgate(["run".as_ref(), "--config".as_ref(), file.as_os_str()])));
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
}

/// The line that begins so, without what comes before the name.
fn line<'a>(said: &'a str, begin: &str) -> &'a str {
    let found = said.lines().find(|line| line.starts_with(begin));
    found.unwrap_or_else(|| panic!("no {begin}: {said}"))
}

#[test]
fn an_agents_file_is_held_against_its_certificates_gateways_and_servers() {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    let (gateway_at, address) = (own_address(), own_address());
    let gateway = TcpListener::bind(gateway_at).expect("ours");
    let port = gateway_at.port();
    let server = UdpSocket::bind(address).expect("ours");
    let link = format!("link = \"udp\"\naddress = \"{address}\"\n");
    agent_file(&folder, "host-7", port, &link);
    let file = folder.join("agent.toml");
    let said = doctor(&file).stdout;
    assert!(line(&said, "ok     certificate ").ends_with("for host-7"));
    // Made for two days, and an operator takes some to make another.
    assert!(line(&said, "could  certificate expiry").contains("good for"));
    assert!(line(&said, "could  authority expiry").contains("good for"));
    assert!(line(&said, &format!("ok     gateway {}:", own_ip())).ends_with("answers over TCP"));
    assert!(line(&said, "ok     backend arena").contains("process"));
    assert!(said.contains("net.core.rmem_max"), "the host is looked at, too: {said}");

    drop((gateway, server));
    drop(take_again(|| UdpSocket::bind(address)));
    wait_for("nobody at the gateway's", || TcpStream::connect(gateway_at).is_err().then_some(()));
    agent_file(&folder, "host-8", port, &link);
    let ran = doctor(&file);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(line(&ran.stdout, "BITES  certificate ").ends_with("not for host-8"));
    line(&ran.stdout, &format!("BITES  gateway {}:", own_ip()));
    assert!(line(&ran.stdout, "could  backend arena").contains("no server listens"));
    assert!(!ran.stdout.contains("BITES  backend"));

    let text = std::fs::read_to_string(&file).expect("our own");
    folder.file("agent.toml", text.replace("[agent]", "[agent]\nspeed = 9"), 0o600);
    let refused = doctor(&file);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("agent.speed"), "{}", refused.stderr);
}

#[test]
fn certificates_of_a_gateways_agents_are_looked_at() {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    let file = config(&folder, "", "127.0.0.1:0");
    let text = std::fs::read_to_string(&file).expect("our own");
    let text = text.replace("link = \"udp\"\naddress = \"127.0.0.1:7777\"", "link = \"bundle\"");
    let agent = "[[agent]]\nname = \"host-7\"\nbind = \"127.0.0.1:7204\"\nca = \"ca.pem\"\n\
                 certificate = \"gate-1.pem\"\nkey = \"gate-1.key\"\nbackends = [\"b\"]\n";
    folder.file("gate.toml", format!("{text}{agent}"), 0o600);
    let said = doctor(&file).stdout;
    assert!(line(&said, "could  certificate at 127.0.0.1:7204").contains("good for"));
    line(&said, "could  agents' authority at 127.0.0.1:7204");
}

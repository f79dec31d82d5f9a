//! All that an agent has, in the first version of the format, as it was written once: it is read
//! for ever.
//!
//! `WRITE_HAND_OVER_FIXTURE=1` writes what is missing, with openssl's help. What is there is not
//! written again: a release may have written it.

use std::fs;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use ringgate::config::HostConfig;
use ringgate_os::clock::Clock;
use ringgate_os::process;
use ringgate_trunk::agent::handed::Heir;
use ringgate_trunk::agent::options::{Allowed, Backend, Gateway, Link, Options};
use ringgate_trunk::agent::service;
use socket2::{SockRef, Type};

use crate::agent::{NAMES, agent_file, certificates, echo};
use crate::control_rig::{Daemon, KEY_HEX, Player, Text, wait_for};
use crate::folder::Folder;
use crate::own::{own_ip, own_port};

const BYTES: &str = "agent";
const SOCKETS: &str = "agent-sockets";

/// Where the unmodified server is.
const SERVER: &str = "127.0.0.1:7777";

fn path(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/fixtures/hand_over_1").join(name)
}

fn options(folder: &Folder, port: u16) -> Options {
    let file = folder.join("agent.toml");
    let identity = move || {
        let config = HostConfig::load(&file).map_err(|why| why.to_string())?;
        config.agent.identity().agent()
    };
    let backend = |name: &str, link| Backend { name: name.to_owned(), link };
    let allowed = Allowed { uids: vec![process::effective_uid()], gids: Vec::new() };
    let server = Link::Udp(SERVER.parse().expect("an address"));
    let gateway = Gateway::parse(&format!("{}:{port}", own_ip())).expect("an address");
    Options {
        name: "host-7".to_owned(),
        gateways: vec![gateway],
        identity: Arc::new(identity),
        run_dir: folder.join("host"),
        patience: std::time::Duration::ZERO,
        backends: vec![backend("arena", Link::Bundle(allowed)), backend("shooter", server)],
        incarnation: 77,
    }
}

/// A trunk with two lanes, a game process with a player, and an unmodified server with another.
fn write() {
    let (folder, port) = (Folder::new(), own_port());
    if !certificates(&folder, NAMES) {
        return;
    }
    agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
    let mut text = Text::new();
    text.gateway = text.gateway.replace("workers = 1", "workers = 2");
    text.listener = text.listener.replace("[\"arena\"]", "[\"arena\", \"shooter\"]");
    text.listener.push_str("route = \"least-players\"\n");
    text.backends.push_str("[[backend]]\nname = \"shooter\"\nlink = \"bundle\"\nslots = 4\n");
    let (path_of, ip) = (folder.path().display(), own_ip());
    text.more = format!(
        "[[agent]]\nname = \"host-7\"\nbind = \"{ip}:{port}\"\nca = \"{path_of}/ca.pem\"\n\
         certificate = \"{path_of}/gate-1.pem\"\nkey = \"{path_of}/gate-1.key\"\n\
         backends = [\"arena\", \"shooter\"]\n"
    );
    let gateway = Daemon::start(&text);
    let agent = service::start(options(&folder, port)).expect("it starts");
    let run_dir = folder.join("host").display().to_string();
    let _game = echo(&["--socket", &run_dir, "--name", "arena"]);
    let _server = echo(&["--udp", SERVER]);
    gateway.ready();
    for client in [1, 2] {
        Player::connected(gateway.listener, client, KEY_HEX).echo(b"hello");
    }
    wait_for("a player of each", || (agent.view().players() == 2).then_some(()));
    let (bytes, fds) = agent.rest().expect("all threads turn").take();
    let kind = |fd: &OwnedFd| match SockRef::from(fd).r#type().expect("a socket") {
        Type::STREAM => "stream\n",
        Type::DGRAM => "dgram\n",
        _ => "seqpacket\n",
    };
    fs::write(path(BYTES), bytes).expect("written");
    fs::write(path(SOCKETS), fds.iter().map(kind).collect::<String>()).expect("written");
}

/// Sockets of the kinds that were given, to nobody.
fn sockets() -> Vec<OwnedFd> {
    let kinds = fs::read_to_string(path(SOCKETS)).expect("it was written");
    let socket = |kind| match kind {
        "stream" => UnixStream::pair().expect("a pair").0.into(),
        "dgram" => UdpSocket::bind("127.0.0.1:0").expect("a port").into(),
        _ => ringgate_io::socket::link_pair().expect("a pair").0,
    };
    kinds.lines().map(socket).collect()
}

#[test]
fn an_agent_of_the_first_version_is_read() {
    if !path(BYTES).exists() && std::env::var_os("WRITE_HAND_OVER_FIXTURE").is_some() {
        write();
    }
    let folder = Folder::new();
    let bytes = fs::read(path(BYTES)).expect("it was written");
    let read = |bytes: &[u8], sockets| {
        let heir = Heir::read(options(&folder, 7200), Vec::new(), Clock::start(), (bytes, sockets));
        heir.map(|heir| format!("{heir:?}"))
    };
    assert_eq!(read(&bytes, sockets()).as_deref(), Ok("Heir { gateways: 1, .. }"));

    let mut other = bytes.clone();
    other[0] += 1;
    let why = read(&other, sockets()).expect_err("another version");
    assert!(why.ends_with("it has an impossible version"), "{why}");
    for len in (0..bytes.len()).step_by(bytes.len() / 100 + 1) {
        assert!(read(&bytes[..len], sockets()).is_err(), "{len} of {}", bytes.len());
    }
    for count in 0..sockets().len() {
        let some = sockets().into_iter().take(count).collect();
        assert!(read(&bytes, some).is_err(), "{count} descriptors");
    }
    let mut changed = bytes.clone();
    for at in (0..bytes.len()).step_by(bytes.len() / 200 + 1) {
        changed[at] ^= 0x41;
        // Whatever it is, nothing panics.
        let _ = read(&changed, sockets());
        changed[at] ^= 0x41;
    }
}

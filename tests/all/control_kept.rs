//! Players' sockets at the service manager: a port that is never closed, and no socket that nobody
//! reads. systemd itself is not here; what stands in for it keeps descriptors by its protocol, and
//! starts the daemon again with them.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_os::rights;

use crate::control_rig::{Daemon, Game, KEY_HEX, PROTOCOL_ID, Player, Text, wait_for};
use crate::folder::Folder;
use crate::own::own_address;
use crate::upgrade_rig::kill;

/// A descriptor store.
struct Manager {
    folder: Folder,
    store: Arc<Mutex<Store>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Store {
    kept: Vec<(String, OwnedFd)>,
    removed: HashSet<String>,
}

impl Store {
    /// Does as systemd does.
    fn obey(&mut self, message: &str, fds: Vec<OwnedFd>) {
        let says = |wanted: &str| message.lines().any(|line| line == wanted);
        let name = message.lines().find_map(|line| line.strip_prefix("FDNAME="));
        if says("FDSTOREREMOVE=1") {
            let name = name.expect("what should go is named");
            self.kept.retain(|(kept, _)| kept != name);
            self.removed.insert(name.to_owned());
        }
        if says("FDSTORE=1") {
            assert!(says("FDPOLL=0"), "an error is no reason to give it up: {message}");
            let name = name.unwrap_or("stored").to_owned();
            assert!(!name.contains(':'), "{name}");
            for fd in fds {
                // What it has already it keeps once.
                if self.kept.iter().all(|(_, kept)| which(kept) != which(&fd)) {
                    self.kept.push((name.clone(), fd));
                }
            }
        }
        // Descriptors of anything else close here: that is what a barrier waits for.
    }
}

/// Which socket a descriptor leads to.
fn which(fd: &impl AsRawFd) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("it is open")
}

impl Manager {
    fn start() -> Self {
        let (folder, store) = (Folder::new(), Arc::<Mutex<Store>>::default());
        let socket = UnixDatagram::bind(folder.join("notify")).expect("bind");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        let ends = Arc::new(AtomicBool::new(false));
        let (its_store, its_end) = (Arc::clone(&store), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !its_end.load(Ordering::Relaxed) {
                if let Ok((len, fds)) = rights::receive(socket.as_fd(), &mut bytes) {
                    let message = std::str::from_utf8(&bytes[..len]).expect("text");
                    let mut store = its_store.lock().unwrap_or_else(PoisonError::into_inner);
                    store.obey(message, fds);
                }
            }
        });
        Self { folder, store, ends, thread: Some(thread) }
    }

    fn look<T>(&self, at: impl FnOnce(&Store) -> T) -> T {
        at(&self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The names and the sockets that are kept.
    fn kept(&self) -> Vec<(String, PathBuf)> {
        self.look(|store| store.kept.iter().map(|(name, fd)| (name.clone(), which(fd))).collect())
    }

    /// Starts a daemon that knows of it.
    fn run(&self, text: &Text) -> Daemon {
        let notify = self.folder.join("notify");
        Daemon::start_with(text, |command, _| {
            command.env("NOTIFY_SOCKET", notify);
        })
    }

    /// The same with two of the sockets that are kept, which come as numbers 3 and 4.
    fn run_again(&self, text: &Text, given: [usize; 2]) -> Daemon {
        let second = |at: usize| {
            self.look(|store| {
                let (name, fd) = &store.kept[at];
                (name.clone(), fd.try_clone().expect("a second descriptor"))
            })
        };
        let [(one, first), (other, second)] = given.map(second);
        let notify = self.folder.join("notify");
        Daemon::start_with(text, |command, folder| {
            let script = "exec 3<&0 4<&2 </dev/null 2>\"$LOG\"; LISTEN_PID=$$ exec \"$@\"";
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
            shell.stdin(first).stderr(second).stdout(Stdio::piped());
            shell.env("LOG", folder.join("log")).env("NOTIFY_SOCKET", notify);
            shell.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", format!("{one}:{other}"));
            *command = shell;
        })
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the manager has understood all");
        }
    }
}

/// So many workers, and a listener at a port that is the same again after a restart.
fn text(workers: usize, address: SocketAddr) -> Text {
    let mut text = Text::new();
    text.gateway = text.gateway.replace("workers = 1", &format!("workers = {workers}"));
    text.more = format!(
        "[[listener]]\nname = \"us\"\nprotocol = \"netcode\"\nbind = [\"{address}\"]\n\
         protocol_id = \"{PROTOCOL_ID:#x}\"\nmax_sessions = 100\nkeys = [{{ hex = \"{KEY_HEX}\" }}]\n\
         backends = [\"arena\"]\n"
    );
    text.backends = text.backends.replace("slots = 4", "slots = 20");
    text
}

/// Whether a host refuses what is sent there, because nobody has the port.
fn is_closed(address: SocketAddr) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    socket.connect(address).expect("loopback");
    // On loopback a refusal is there at once.
    let sent = (0..2).try_for_each(|_| socket.send(&[0]).map(drop));
    sent.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[test]
fn a_port_stays_open_over_a_crash_and_what_is_not_used_any_more_does_not() {
    let (manager, address) = (Manager::start(), own_address());
    let first = manager.run(&text(1, address));
    let other = first.listener;
    wait_for("both listeners' sockets", || (manager.kept().len() == 2).then_some(()));
    kill(first.id());
    drop(first);
    assert!(!is_closed(address) && !is_closed(other), "what players send waits");
    let before = manager.kept();
    let at = |wanted: SocketAddr| {
        let port = format!("_{}", wanted.port());
        before.iter().position(|(name, _)| name.ends_with(&port)).expect("it is kept")
    };
    let second = manager.run_again(&text(1, address), [at(address), at(other)]);
    assert!(second.log().contains("sockets_kept") || second.log().contains("1 sockets go on"));
    // The first listener has another port now, so nobody would read what comes to the old one.
    assert_ne!(second.listener, other);
    let old = &before[at(other)].0;
    wait_for("its new socket for the old one", || {
        manager.look(|it| it.removed.contains(old) && it.kept.len() == 2).then_some(())
    });
    // Another test may have been given the port meanwhile.
    wait_for("nobody at its old port", || is_closed(other).then_some(()));
    let kept = manager.kept();
    assert!(kept.contains(&before[at(address)]), "{kept:?}: it is the same socket");
    let _game = Game::start(&second, "arena");
    second.ready();
    Player::connected(address, 1, KEY_HEX).echo(b"through the socket of before");
}

#[test]
fn with_fewer_workers_than_sockets_no_player_is_swallowed() {
    let (manager, address) = (Manager::start(), own_address());
    let first = manager.run(&text(2, address));
    wait_for("the sockets of both workers", || (manager.kept().len() == 4).then_some(()));
    kill(first.id());
    drop(first);
    let wanted = format!("_{}", address.port());
    let is_its = |(at, (name, _)): (usize, &(String, _))| name.ends_with(&wanted).then_some(at);
    let its: Vec<_> = manager.kept().iter().enumerate().filter_map(is_its).collect();
    let [one, other] = its.try_into().expect("one of each worker");
    let second = manager.run_again(&text(1, address), [one, other]);
    let count = || manager.kept().iter().filter(|(name, _)| name.ends_with(&wanted)).count();
    wait_for("one to be kept", || (count() == 1).then_some(()));
    let _game = Game::start(&second, "arena");
    second.ready();
    for client in 1..=8 {
        Player::connected(address, client, KEY_HEX).echo(b"here");
    }
}

#[test]
fn the_next_process_keeps_the_same_sockets_and_a_reload_gives_them_up() {
    let (manager, address) = (Manager::start(), own_address());
    let with_it = text(1, address);
    let mut daemon = manager.run(&with_it);
    wait_for("both sockets", || (manager.kept().len() == 2).then_some(()));
    let before = manager.kept();
    let control = daemon.control();
    let words = ["upgrade".as_ref(), "--control".as_ref(), control.as_os_str()];
    let upgraded = crate::command::run(crate::command::ringgate(words));
    assert_eq!(upgraded.code, Some(0), "{}{}", upgraded.stderr, daemon.log());
    assert_eq!(daemon.ended(), Some(0));
    let heir = daemon.ask("/status").json()["pid"].as_u64().expect("a number") as u32;
    daemon.rewrite(&Text { more: String::new(), ..with_it.clone() });
    assert_eq!(daemon.post("/reload").status, 200);
    wait_for("the listener to go", || (manager.kept().len() == 1).then_some(()));
    wait_for("its port to be closed", || is_closed(address).then_some(()));
    daemon.rewrite(&with_it);
    assert_eq!(daemon.post("/reload").status, 200);
    wait_for("it to be back", || (manager.kept().len() == 2).then_some(()));
    let kept = manager.kept();
    assert!(before.iter().any(|it| kept.contains(it)), "{before:?} {kept:?}");
    kill(heir);
}

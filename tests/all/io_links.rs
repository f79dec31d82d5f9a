//! Links to game processes through both drivers.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringgate_batch::{IoEvent, LocalIp, SendFailure, SocketId, TxTarget};
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_io::socket;
use ringgate_io::{Driver, SocketDriver, SocketKind, Wait};

use crate::command::Ends;
use crate::control_rig::wait_for;
use crate::folder::{Folder, mode};
use crate::io_rig::{Rig, Seen, on_both_drivers, outsider};

on_both_drivers!(
    a_full_link_sheds_and_others_go_on,
    a_link_that_answers_ends_a_wait_for_answers_and_players_go_on_waiting,
    a_peer_that_hangs_up_is_reported_once,
    a_record_longer_than_any_bundle_is_cut_and_flagged,
    bundles_cross_a_link_both_ways,
    descriptors_that_come_along_are_closed,
    many_links_are_served_side_by_side,
);

const SOCKET: &str = "worker-0.sock";

const fn over(link: SocketId) -> TxTarget {
    TxTarget { socket: link, peer: None, source: LocalIp::UNSPECIFIED }
}

fn listen(rig: &mut Rig, path: &Path) -> SocketId {
    let listener = socket::link_listener(path, 0o600).expect("listens");
    rig.driver.register(listener, SocketKind::LinkListener).expect("registers")
}

/// Connects a process (played by a plain socket) and returns both ends.
fn join(rig: &mut Rig, listener: SocketId, path: &Path) -> (SocketId, socket2::Socket) {
    let peer = socket2::Socket::from(socket::link(path).expect("connects"));
    peer.set_nonblocking(false).expect("a mode");
    let accepted = |seen: &Seen| {
        seen.events.iter().find_map(|event| match event {
            IoEvent::Accepted { socket, connection, .. } if *socket == listener => {
                Some(*connection)
            }
            _ => None,
        })
    };
    let seen = rig.turn_until(|seen| accepted(seen).is_some());
    (accepted(&seen).expect("just seen"), peer)
}

fn read(peer: &socket2::Socket) -> Vec<u8> {
    use std::io::Read;
    let mut buffer = vec![0; 2 * BUNDLE_BYTES_MAX];
    let len = (&mut &*peer).read(&mut buffer).expect("a record");
    buffer.truncate(len);
    buffer
}

fn bundles_cross_a_link_both_ways(rig: &mut Rig) {
    let folder = Folder::new();
    let listener = listen(rig, &folder.join(SOCKET));
    let (link, peer) = join(rig, listener, &folder.join(SOCKET));

    let credentials =
        socket::peer_credentials(rig.driver.fd(link).expect("registered")).expect("told");
    assert_eq!(credentials.pid, std::process::id() as i32);

    for len in [1, 100, BUNDLE_BYTES_MAX] {
        peer.send(&vec![len as u8; len]).expect("sent");
        let (meta, bytes) = rig.receive(1).remove(0);
        assert_eq!((meta.socket, meta.truncated), (link, false));
        assert!(bytes.len() == len && bytes.iter().all(|b| *b == len as u8));

        let bundle = rig.driver.tx().open_large().expect("a large slot");
        rig.driver.tx().large_mut(&bundle)[..len].copy_from_slice(&bytes);
        rig.driver.tx().commit_large(bundle, len, over(link), 0);
        assert_eq!(rig.flush(), []);
        assert_eq!(read(&peer), bytes);
    }
}

fn a_record_longer_than_any_bundle_is_cut_and_flagged(rig: &mut Rig) {
    let folder = Folder::new();
    let listener = listen(rig, &folder.join(SOCKET));
    let (_, peer) = join(rig, listener, &folder.join(SOCKET));
    peer.send(&vec![3; BUNDLE_BYTES_MAX + 1]).expect("sent");
    peer.send(b"after").expect("sent");
    let seen = rig.receive(2);
    assert_eq!((seen[0].0.truncated, seen[0].1.len()), (true, BUNDLE_BYTES_MAX));
    assert_eq!((seen[1].0.truncated, &seen[1].1[..]), (false, &b"after"[..]));
}

/// With nothing or something of ours unread, whether the driver hears of it from a receive or from
/// a send, and where the peer reads no more but is still there.
fn a_peer_that_hangs_up_is_reported_once(rig: &mut Rig) {
    let folder = Folder::new();
    let listener = listen(rig, &folder.join(SOCKET));
    for (is_unread, is_sent_to, stays) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (true, true, false),
        (true, true, true),
    ] {
        let (link, peer) = join(rig, listener, &folder.join(SOCKET));
        rig.settle();
        if is_unread {
            rig.queue(over(link), b"unread");
            assert_eq!(rig.flush(), []);
        }
        for words in [&b"last"[..], b"words"] {
            peer.send(words).expect("sent");
        }
        if stays {
            peer.shutdown(std::net::Shutdown::Read).expect("connected");
        }
        let peer = Some(peer).filter(|_| stays);
        if is_sent_to {
            rig.queue(over(link), b"too late");
            assert_eq!(rig.flush(), [(0, SendFailure::Gone)]);
        }
        let closed = IoEvent::Closed { socket: link };
        let seen = rig.turn_until(|seen| seen.events.contains(&closed));
        let heard: Vec<_> = seen.datagrams.iter().map(|(_, bytes)| &bytes[..]).collect();
        assert_eq!(heard, [&b"last"[..], b"words"], "{is_unread} {is_sent_to} {stays}");
        let mut later = Seen::default();
        for _ in 0..5 {
            rig.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut later);
        }
        assert_eq!(later.events, []);
        rig.queue(over(link), b"too late");
        assert_eq!(rig.flush(), [(0, SendFailure::Gone)]);
        rig.driver.close(link);
        drop(peer);
    }
    // The listener goes on.
    join(rig, listener, &folder.join(SOCKET));
}

fn a_link_that_answers_ends_a_wait_for_answers_and_players_go_on_waiting(rig: &mut Rig) {
    let folder = Folder::new();
    let listener = listen(rig, &folder.join(SOCKET));
    let (asked, game) = join(rig, listener, &folder.join(SOCKET));
    let (other, idle_game) = join(rig, listener, &folder.join(SOCKET));
    // More addresses than are looked at by themselves, where an epoll set has the others.
    let (players, server) = (0..17).map(|_| rig.player("127.0.0.1:0")).last().expect("the last");
    let player = outsider("127.0.0.1:0");
    rig.settle();
    for round in 0..20 {
        let sockets_of =
            |seen: &Seen| seen.datagrams.iter().map(|it| it.0.socket).collect::<Vec<_>>();
        rig.queue(over(asked), b"ask");
        rig.flush();
        player.send_to(b"up", server).expect("sent");
        read(&game);
        game.send(b"answer").expect("sent");
        let mut seen = Seen::default();
        rig.turn_once(Wait::GatherAnswers(Duration::from_hours(1)), &mut seen);
        assert_eq!(
            (sockets_of(&seen), rig.driver.rx().is_of_links),
            (vec![asked], true),
            "{round}"
        );
        // Nobody was asked since, so nothing but time ends the wait, and everything is looked at.
        idle_game.send(b"by itself").expect("sent");
        game.send(b"twice").expect("sent");
        let mut seen = Seen::default();
        rig.turn_once(Wait::GatherAnswers(Duration::from_micros(50)), &mut seen);
        assert!(!rig.driver.rx().is_of_links);
        let mut sockets = sockets_of(&seen);
        sockets.sort_unstable_by_key(|socket| socket.0);
        assert_eq!(sockets, [asked, other, players], "{round}");
    }
}

fn a_full_link_sheds_and_others_go_on(rig: &mut Rig) {
    let folder = Folder::new();
    let listener = listen(rig, &folder.join(SOCKET));
    let (slow, slow_peer) = join(rig, listener, &folder.join(SOCKET));
    let (quick, quick_peer) = join(rig, listener, &folder.join(SOCKET));
    let mut sent = 0;
    let failed = loop {
        for n in 0..8 {
            let bundle = rig.driver.tx().open_large().expect("a large slot");
            rig.driver.tx().large_mut(&bundle)[0] = sent + n;
            rig.driver.tx().commit_large(bundle, BUNDLE_BYTES_MAX, over(slow), 0);
        }
        rig.queue(over(quick), b"ping");
        let failures = rig.flush();
        assert_eq!(read(&quick_peer), b"ping");
        sent += 8 - failures.len() as u8;
        if !failures.is_empty() {
            break failures;
        }
        assert!(sent < 248, "a link must fill up");
    };
    let first = 8 - failed.len();
    let expected: Vec<_> = (first..8).map(|index| (index, SendFailure::Full)).collect();
    assert_eq!(failed, expected, "what fails is the end of the queue");
    for n in 0..sent {
        assert_eq!(read(&slow_peer)[0], n);
    }
    rig.queue(over(slow), b"room again");
    assert_eq!(rig.flush(), []);
}

/// The sending end of a pipe goes along with each bundle. Its reading end says when no process has
/// it open any more.
fn descriptors_that_come_along_are_closed(rig: &mut Rig) {
    const BUNDLES: usize = 60;
    let folder = Folder::new();
    let listener = listen(rig, &folder.join(SOCKET));
    let (_, peer) = join(rig, listener, &folder.join(SOCKET));
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    for n in 0..BUNDLES {
        let bytes = [n as u8];
        let bundle = [std::io::IoSlice::new(&bytes)];
        let control = rights(&writer);
        let message = socket2::MsgHdr::new().with_buffers(&bundle).with_control(&control);
        peer.sendmsg(&message, 0).expect("sent");
    }
    drop(writer);
    let seen = rig.receive(BUNDLES);
    assert!(seen.iter().enumerate().all(|(n, (_, bytes))| *bytes == [n as u8]), "bundles arrive");
    let end = std::thread::spawn(move || {
        use std::io::Read;
        reader.read(&mut [0]).expect("a pipe")
    });
    wait_for("no descriptor to be open in this process", || end.is_finished().then_some(()));
    assert_eq!(end.join().expect("it only reads"), 0);
}

/// A control message that hands a descriptor over (`SCM_RIGHTS`).
fn rights(descriptor: &impl AsRawFd) -> Vec<u8> {
    let fd = descriptor.as_raw_fd().to_ne_bytes();
    let header_bytes = size_of::<libc::cmsghdr>();
    let mut control = (header_bytes + fd.len()).to_ne_bytes().to_vec();
    control.extend(libc::SOL_SOCKET.to_ne_bytes());
    control.extend(libc::SCM_RIGHTS.to_ne_bytes());
    control.extend(fd);
    control.resize(header_bytes + fd.len().next_multiple_of(size_of::<usize>()), 0);
    control
}

/// More links with something to say than there are slots for bundles, or room for requests in a
/// ring.
fn many_links_are_served_side_by_side(rig: &mut Rig) {
    let folder = Folder::new();
    let listener = listen(rig, &folder.join(SOCKET));
    let links: Vec<_> = (0..140).map(|_| join(rig, listener, &folder.join(SOCKET))).collect();
    for round in 0..3_u8 {
        for (n, (_, peer)) in links.iter().enumerate() {
            peer.send(&[round, n as u8]).expect("sent");
        }
        let seen = rig.receive(links.len());
        for (n, (link, _)) in links.iter().enumerate() {
            let heard: Vec<_> = seen.iter().filter(|(meta, _)| meta.socket == *link).collect();
            assert_eq!(heard.len(), 1);
            assert_eq!(heard[0].1, [round, n as u8]);
        }
    }
}

/// Runs again in a process of its own, because the limit is the whole process's.
#[test]
fn without_descriptors_processes_are_turned_away_and_the_driver_sleeps() {
    const IN_CHILD: &str = "RINGGATE_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(IN_CHILD).is_none() {
        let this = concat!(
            module_path!(),
            "::without_descriptors_processes_are_turned_away_and_the_driver_sleeps"
        );
        let (_, this) = this.split_once("::").expect("a crate and a path in it");
        let child = Command::new("sh")
            .args(["-c", "ulimit -n 64 && exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(std::env::current_exe().expect("a path"))
            .arg(this)
            .env(IN_CHILD, "1")
            .output()
            .expect("a shell");
        let text = String::from_utf8_lossy(&child.stdout);
        let errors = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && text.contains("1 passed"), "{text}{errors}");
        return;
    }
    for mut rig in [Some(Rig::mmsg()), Rig::uring()].into_iter().flatten() {
        let folder = Folder::new();
        let path = folder.join(SOCKET);
        let listener = listen(&mut rig, &path);
        let mut peers = Vec::new();
        let refused = loop {
            match socket::link(&path) {
                Ok(peer) => peers.push(socket2::Socket::from(peer)),
                Err(refused) => break refused,
            }
        };
        assert!(refused.to_string().contains("LimitNOFILE"), "{refused}");
        let mut seen = Seen::default();
        for _ in 0..=peers.len() {
            rig.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut seen);
        }
        assert_eq!(seen.events, []);
        assert_eq!(rig.driver.stats().rx_errors, peers.len() as u64);
        for peer in &peers {
            assert!(read(peer).is_empty(), "hung up");
        }
        let waits = rig.driver.stats().waits;
        rig.turn_once(Wait::AtMost(Duration::from_millis(1)), &mut seen);
        assert_eq!(rig.driver.stats().waits, waits + 1);
        drop(peers);
        join(&mut rig, listener, &path);
    }
}

/// Whatever the umask is: the mode is the file's from its first moment, not given to its path
/// afterwards.
#[test]
fn a_socket_file_has_its_mode_from_its_first_moment() {
    let folder = Folder::new();
    for wanted in [0o666, 0o600] {
        let path = folder.join(&format!("{wanted:o}.sock"));
        let _listener = ringgate_os::process::with_umask(0o077, || {
            socket::link_listener(&path, wanted).expect("listens")
        });
        assert_eq!(mode(&path), wanted);
    }
}

/// The folder's owner swaps the new socket for a link to a file of root's, the moment it is there.
/// The file keeps its mode.
#[test]
fn a_link_in_the_sockets_place_is_not_followed() {
    const STARTS: usize = 2000;
    let folder = Folder::new();
    let private = folder.file("private", b"root's", 0o600);
    let (path, link) = (folder.join(SOCKET), folder.join("link"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = std::os::unix::fs::symlink(&private, &link);
                while !path.exists() && !is_over.load(Ordering::Relaxed) {}
                let _ = std::fs::rename(&link, &path);
            }
        });
        let _ends = Ends(&is_over);
        for _ in 0..STARTS {
            drop(socket::link_listener(&path, 0o666));
            let _ = std::fs::remove_file(&path);
        }
    });
    assert_eq!(mode(&private), 0o600);
}

/// A link to a socket on which nobody listens does not have that one removed, nor connected to.
#[test]
fn a_stale_socket_elsewhere_is_left_alone() {
    let folder = Folder::new();
    let elsewhere = folder.join("elsewhere.sock");
    let living = socket::link_listener(&elsewhere, 0o600).expect("listens");
    let path = folder.join(SOCKET);
    std::os::unix::fs::symlink(&elsewhere, &path).expect("made");
    assert!(socket::link_listener(&path, 0o600).is_err(), "something is in its place");
    let peer = socket2::SockRef::from(&living).accept();
    assert!(peer.is_err_and(|why| why.kind() == std::io::ErrorKind::WouldBlock), "not knocked at");
    drop(living);
    assert!(socket::link_listener(&path, 0o600).is_err());
    assert_eq!(mode(&elsewhere), 0o600, "still there");
}

#[test]
fn a_socket_file_is_taken_over_only_from_the_dead() {
    let folder = Folder::new();
    let path = folder.join(SOCKET);
    let first = socket::link_listener(&path, 0o640).expect("listens");
    assert_eq!(mode(&path), 0o640);

    let error = socket::link_listener(&path, 0o640).expect_err("somebody listens");
    assert_eq!(error.io_error().raw_os_error(), Some(libc::EADDRINUSE));
    assert!(error.to_string().contains("run_dir"), "{error}");
    assert!(first.as_fd().try_clone_to_owned().is_ok(), "the living one was left alone");

    drop(first);
    // What another test has just forked has it open until it is another program.
    let error = wait_for("nobody to listen", || socket::link(&path).err());
    assert!(error.to_string().contains("is the gateway running?"), "{error}");
    socket::link_listener(&path, 0o640).expect("the file was stale");

    let plain = folder.join("plain");
    std::fs::write(&plain, b"precious").expect("written");
    assert!(socket::link_listener(&plain, 0o600).is_err());
    assert_eq!(std::fs::read(&plain).expect("still there"), b"precious");
    assert!(socket::link_listener(&folder.join(&"x".repeat(120)), 0o600).is_err());
}

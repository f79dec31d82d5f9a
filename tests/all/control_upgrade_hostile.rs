//! Hand-overs that fail, with real processes: whichever is killed at whichever step, whatever comes
//! instead of a successor, and whatever a stream holds, the players have one gateway.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use ringgate_os::clock;
use ringgate_os::shared::{self, Writing};
use ringgate_process::handover::{Message, Moment};
use ringgate_worker::handover::Facts;

use crate::command::{ringgate, run};
use crate::control_rig::{Game, KEY_HEX, PATIENCE, Player, wait_for};
use crate::hold::Hold;
use crate::upgrade_rig::{Line, Packet, as_before, drivers, is_root, kill, pass_changed, text};

/// Where one of the two is killed, by the names of its steps.
const STEPS: [&str; 14] = [
    "gives Welcome",
    "gives Lend",
    "gives Copy",
    "gives Freeze",
    "gives Give",
    "gives Leave",
    "takes Hello",
    "takes Prepare",
    "takes SayPrepared",
    "takes Read",
    "takes SayRead",
    "takes ReadRest",
    "takes Import",
    "takes Take",
];

#[test]
fn a_process_is_killed_at_any_step_and_the_players_have_one_gateway() {
    if !is_root() {
        return;
    }
    for io in drivers() {
        for step in STEPS {
            killed_at(io, step, step.starts_with("gives"));
        }
    }
}

#[test]
fn the_other_process_is_killed_at_any_step_and_the_players_have_one_gateway() {
    if !is_root() {
        return;
    }
    // A successor that has said that it has all is the gateway.
    for step in STEPS.into_iter().filter(|step| *step != "gives Leave") {
        killed_at("mmsg", step, step.starts_with("takes"));
    }
}

/// One of the two is held at a step, and one of the two is killed then.
fn killed_at(io: &str, step: &str, is_predecessor: bool) {
    let what = format!("{io} at {step}, of the predecessor: {is_predecessor}");
    let is_held_first = step.starts_with("gives");
    let mut hold = None;
    let point = format!("gateway-{step}");
    let mut line = Line::start_in_parts(&text(io), |command| {
        hold = is_held_first.then(|| Hold::at(command, &point));
    });
    // The ports that the kernel has chosen are the next one's too, even if it has to start afresh.
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    player.echo(b"before");
    let first = line.daemon.id();
    let second = line.come(|command| {
        if !is_held_first {
            hold = Some(Hold::at(command, &point));
        }
    });
    let mut hold = hold.expect("one of the two is held");
    assert_eq!(hold.reached(), if is_held_first { first } else { second }, "{what}");
    kill(if is_predecessor { first } else { second });
    hold.release();
    if !is_predecessor {
        player.echo(b"after");
        assert_eq!((line.pid(), line.generation()), (first, 1), "{what}");
        assert!(line.daemon.is_running(), "{what}");
    } else if matches!(step, "gives Leave" | "takes Import" | "takes Take") {
        player.echo(b"after");
        assert_eq!((line.pid(), line.generation()), (second, 2), "{what}");
    } else {
        // Nothing was given, or not all of it: the successor starts afresh, on ports that are free.
        assert_eq!((line.pid(), line.generation()), (second, 1), "{what}");
    }
}

#[test]
fn the_command_says_who_has_the_gateway_where_that_dies_once_it_has_given_all() {
    let mut hold = None;
    let mut line = Line::start_in_parts(&text("mmsg"), |command| {
        hold = Some(Hold::at(command, "gateway-gives Leave"));
    });
    let mut hold = hold.expect("it is held");
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    player.echo(b"before");
    let first = line.daemon.id();
    let (code, said) = std::thread::scope(|scope| {
        let killed = scope.spawn(|| hold.kill());
        let said = line.upgrade();
        assert_eq!(killed.join().expect("it was killed"), first);
        said
    });
    let second = line.pid();
    let expected = format!(
        "upgraded: process {second} goes on, with 1 sessions; process {first}, which had the gateway, has died \
         before it could say how long players waited\n"
    );
    assert_eq!((code, said), (Some(0), expected));
    player.echo(b"after");
}

#[test]
fn a_successor_that_takes_too_long_finds_that_the_gateway_goes_on() {
    if !is_root() {
        return;
    }
    for io in drivers() {
        let mut line = Line::start_in_parts(&text(io), |_| ());
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
        let channel = line.connect();
        let soon = PATIENCE;
        channel.say(&Message::hello(), &[]).expect("said");
        assert!(matches!(channel.hear(soon), Ok((Message::Welcome { .. }, _))));
        channel.say(&Message::Prepared, &[]).expect("said");
        // Whatever was given, it is not taken.
        loop {
            match channel.hear(soon).expect("a message").0 {
                Message::Rest { is_last: true, .. } => break,
                Message::Ahead { .. } | Message::Rest { .. } => {
                    channel.say(&Message::Read, &[]).expect("said");
                }
                Message::Sockets | Message::Early { .. } | Message::Given { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let (heard, _) = channel.hear(soon).expect("a message");
        assert_eq!(heard, Message::TakenBack, "{}", line.daemon.log());
        assert!(channel.say(&Message::Taken, &[]).is_err(), "the door is shut");
        player.echo(b"still here");
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{io}: it can be tried again: {said}");
        player.echo(b"and after that");
    }
}

#[test]
fn a_stranger_is_parted_from_and_keeps_nobody_from_the_next() {
    if !is_root() {
        return;
    }
    let mut line = Line::start(&text("mmsg"));
    let channel = line.connect();
    channel.say(&Message::Taken, &[]).expect("said");
    assert!(matches!(channel.hear(PATIENCE), Ok((Message::Refused { .. }, _))));
    let other = Message::Hello {
        conversation: 77,
        release: "9".to_owned(),
        pid: 1,
        trunks: false,
        leaving: true,
        sections: true,
        any: true,
    };
    let channel = line.connect();
    channel.say(&other, &[]).expect("said");
    let heard = channel.hear(PATIENCE);
    assert!(matches!(heard, Ok((Message::Refused { .. }, _))), "{heard:?}");
    // Silent ones keep nobody from the next: each has a few seconds.
    let _silent = line.connect();
    assert!(line.daemon.is_running());
    wait_for("the silent one to be parted from", || {
        let (code, _) = line.upgrade();
        clock::sleep(Duration::from_millis(200));
        (code == Some(0)).then_some(())
    });
}

#[test]
fn another_user_does_not_get_in_whatever_the_sockets_mode_is() {
    if !is_root() {
        return;
    }
    let line = Line::start(&text("mmsg"));
    let open = |path: &std::path::Path, mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("our folder");
    };
    open(line.daemon.folder.path(), 0o755);
    open(&line.daemon.run_dir(), 0o755);
    let config = line.daemon.folder.join("gate.toml");
    open(&config, 0o644);
    let socket = line.daemon.run_dir().join("handover.sock");
    for (mode, why) in [(0o600, "ermission denied"), (0o666, "only root")] {
        open(&socket, mode);
        let mut command = ringgate(["run".as_ref(), "--config".as_ref(), config.as_os_str()]);
        command.arg("--take-over").uid(65_534);
        let ran = run(command);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
    assert_eq!(line.pid(), line.daemon.id());
}

#[test]
fn somebody_who_is_there_and_does_not_answer_is_left_alone() {
    let line = Line::start(&text("mmsg"));
    let socket = line.daemon.run_dir().join("handover.sock");
    std::fs::remove_file(&socket).expect("it was there");
    // Like a gateway that is stuck: it listens, and takes nobody in.
    let stuck = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::SEQPACKET, None);
    let stuck = stuck.expect("a socket");
    stuck.bind(&socket2::SockAddr::unix(&socket).expect("short")).expect("free");
    stuck.listen(8).expect("it is bound");
    let config = line.daemon.folder.join("gate.toml");
    let mut command = ringgate(["run".as_ref(), "--config".as_ref(), config.as_os_str()]);
    command.arg("--take-over");
    let ran = run(command);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("the gateway that runs does not answer in time"), "{}", ran.stderr);
    assert!(socket.exists() && line.daemon.control().exists(), "nothing was touched");
    assert_eq!(line.pid(), line.daemon.id());
}

/// What somebody between the two does to it.
type Change = fn(Packet) -> Packet;

/// Memory like the predecessor's, with other bytes. It stays, because the successor reads it later.
fn memory(bytes: &[u8]) -> OwnedFd {
    let mut memory = Writing::new(bytes.len()).expect("memory");
    memory.bytes_mut().copy_from_slice(bytes);
    let fd = memory.fd().try_clone_to_owned().expect("a descriptor");
    std::mem::forget(memory);
    fd
}

/// Changes the bytes of a memory of that length.
fn rewrite(fd: &mut OwnedFd, bytes: u64, change: impl FnOnce(&mut Vec<u8>)) -> u64 {
    let mut copy = vec![0; bytes as usize];
    shared::read(fd.as_fd(), 0, &mut copy).expect("the predecessor's memory");
    change(&mut copy);
    *fd = memory(&copy);
    copy.len() as u64
}

/// Which of the descriptors that come with the welcome is what.
const FACTS: usize = 0;
const LAYOUT: usize = 1;
const FIRST_WORKER: usize = 3;

/// Changes what a successor compares itself with.
fn with_layout(packet: Packet, change: impl FnOnce(&mut Vec<u8>)) -> Packet {
    let (message, mut fds) = packet;
    let Message::Welcome { facts_bytes, .. } = message else { return (message, fds) };
    let mut facts = vec![0; facts_bytes as usize];
    shared::read(fds[FACTS].as_fd(), 0, &mut facts).expect("the facts");
    let facts: Facts = serde_json::from_slice(&facts).expect("facts");
    rewrite(&mut fds[LAYOUT], facts.layout_bytes, change);
    (message, fds)
}

/// Changes what is said of a part of the rest.
fn with_rest((message, fds): Packet, change: impl FnOnce(&mut [u64], &mut bool)) -> Packet {
    let Message::Rest { shared_bytes, mut worker_bytes, mut is_last } = message else {
        return (message, fds);
    };
    change(&mut worker_bytes, &mut is_last);
    (Message::Rest { shared_bytes, worker_bytes, is_last }, fds)
}

/// Leaves the last byte of the last part out.
fn cut_off(worker_bytes: &mut [u64], is_last: &mut bool) {
    let longest = worker_bytes.iter_mut().max().expect("there are workers");
    *longest -= u64::from(*is_last);
}

/// Where a stream says which version of the format it has.
const VERSION_AT: usize = 8;
/// Behind the stream's beginning, a record's head and the release with its length.
const BOOT_ID_AT: usize = 12 + 8 + 4 + env!("CARGO_PKG_VERSION").len();

/// What somebody does to what passes, and what is said of it: one of some sentences.
type Refused = (Change, &'static str);

/// What another release writes, or another boot of the host.
const OTHER_FORMATS: [Refused; 4] = [
    (
        |mut packet| {
            if let Message::Hello { conversation, .. } = &mut packet.0 {
                *conversation = 99;
            }
            packet
        },
        "the successor speaks another version of the conversation",
    ),
    (
        |packet| with_layout(packet, |layout| layout[VERSION_AT] = 2),
        "the state is in version 2 of its format, and this release reads version 1",
    ),
    (
        |packet| with_layout(packet, |layout| layout[VERSION_AT] = 0),
        "the state is in version 0 of its format, and this release reads version 1",
    ),
    (
        |packet| with_layout(packet, |layout| layout[BOOT_ID_AT] ^= 1),
        "is of another boot of the host",
    ),
];

/// Changes the sections that are given at a moment.
fn with_sections(
    (message, mut fds): Packet,
    moment: Moment,
    change: impl FnOnce(&mut Vec<u8>),
) -> Packet {
    let bytes = match message {
        Message::Welcome { facts_bytes, .. } if moment == Moment::Welcome => facts_bytes,
        Message::Early { early_bytes } if moment == Moment::Early => early_bytes,
        Message::Given { given_bytes } if moment == Moment::Given => given_bytes,
        _ => return (message, fds),
    };
    let bytes = rewrite(&mut fds[0], bytes, change);
    (Message::at(moment, bytes, true), fds)
}

/// One that no release has.
fn add_section(bytes: &mut Vec<u8>, may_be_passed_over: bool) {
    const COUNT_AT: usize = 8 + 2;
    bytes[COUNT_AT] += 1;
    let name = b"weather";
    bytes.extend(&[&(name.len() as u32).to_le_bytes()[..], name].concat());
    bytes.push(may_be_passed_over.into());
    // No descriptors, and no bytes.
    bytes.extend([0; 4 + 8]);
}

/// Gives a section another name.
fn rename(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes.windows(from.len()).position(|it| it == from).expect("it is there");
    bytes[at..at + to.len()].copy_from_slice(to);
}

/// What a successor cannot use of sections.
const WRONG_SECTIONS: [Refused; 6] = [
    (
        |packet| with_sections(packet, Moment::Welcome, |bytes| bytes.truncate(40)),
        "the sections of what was given cannot be read: it ends too soon",
    ),
    (
        |packet| with_sections(packet, Moment::Early, |bytes| rename(bytes, b"early", b"weary")),
        "the process that runs has not given its early",
    ),
    (
        |packet| with_sections(packet, Moment::Early, |bytes| bytes[0] = b'X'),
        "cannot be read: it has an impossible beginning",
    ),
    (
        |packet| with_sections(packet, Moment::Given, |bytes| add_section(bytes, false)),
        "what was given has a section that this release does not know, weather",
    ),
    (
        |(message, mut fds)| {
            if let Message::Given { .. } = message {
                fds.pop();
            }
            (message, fds)
        },
        "cannot be read: it has an impossible number of descriptors",
    ),
    (
        |(message, mut fds)| {
            if let Message::Early { .. } = message {
                fds[1] = std::fs::File::open("/dev/null").expect("it is there").into();
            }
            (message, fds)
        },
        "a socket is not what it should be",
    ),
];

/// What is shorter than it says.
const TRUNCATED: [Refused; 4] = [
    (
        |packet| with_layout(packet, |layout| layout.truncate(BOOT_ID_AT)),
        "cannot read what was given",
    ),
    (|packet| with_rest(packet, cut_off), "the state is cut off"),
    // The last part is missing.
    (|packet| with_rest(packet, |_, is_last| *is_last = true), "it ends too soon|is cut off"),
    (|packet| with_rest(packet, |bytes, _| bytes[0] = u64::MAX), "cannot read what was given"),
];

/// What a successor cannot use.
const WRONG: [Refused; 5] = [
    (
        |(message, mut fds)| match message {
            Message::Welcome { .. } => {
                fds[FACTS] = memory(b"{}");
                (Message::at(Moment::Welcome, 2, false), fds)
            }
            other => (other, fds),
        },
        "what was given is not to be read: missing field",
    ),
    (
        |(message, mut fds)| {
            if let Message::Welcome { .. } = message {
                fds.swap(FIRST_WORKER, FIRST_WORKER + 1);
            }
            (message, fds)
        },
        "the state is another worker's",
    ),
    (
        |(message, mut fds)| {
            if let Message::Welcome { .. } = message {
                fds[FIRST_WORKER] = std::fs::File::open("/dev/zero").expect("it is there").into();
            }
            (message, fds)
        },
        "it is no sealed memory",
    ),
    // What comes before the first part is missing.
    (
        |packet| match packet {
            (Message::Given { .. }, fds) => (Message::Sockets, fds),
            other => other,
        },
        "the gateway that runs has given too little",
    ),
    (
        |(message, mut fds)| {
            if message == Message::Sockets {
                fds[0] = std::fs::File::open("/dev/null").expect("it is there").into();
            }
            (message, fds)
        },
        "a socket is not what it should be",
    ),
];

#[test]
fn an_old_format_is_refused_by_name_and_the_gateway_goes_on() {
    refused(&OTHER_FORMATS, as_before);
}

#[test]
fn a_truncated_stream_is_refused_and_the_gateway_goes_on() {
    refused(&TRUNCATED, as_before);
}

#[test]
fn what_else_is_wrong_with_what_is_given_is_named_and_the_gateway_goes_on() {
    refused(&WRONG, as_before);
}

#[test]
fn sections_that_are_wrong_are_named_and_the_gateway_goes_on() {
    refused(&WRONG_SECTIONS, |packet| packet);
}

#[test]
fn a_section_of_a_later_release_is_passed_over_and_named_where_nothing_is_lost_with_it() {
    if !is_root() {
        return;
    }
    let mut line = Line::start(&text("mmsg"));
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    let (successor, its) = line.successor();
    line.heirs.push(successor.id());
    let gateway = line.connect();
    pass_changed(&its, &gateway, |packet| {
        with_sections(packet, Moment::Given, |bytes| add_section(bytes, true))
    });
    drop((its, gateway));
    wait_for("the successor", || (line.pid() == successor.id()).then_some(()));
    player.echo(b"and goes on");
    let log = line.log("successor.log");
    assert!(log.contains("sections_passed_over") && log.contains("weather"), "{log}");
}

/// The last release gave its state in memory of its own and sockets in front of that, and so it
/// goes to it and comes from it.
#[test]
fn players_play_on_between_this_release_and_the_one_before_sections() {
    if !is_root() {
        return;
    }
    for io in drivers() {
        let mut line = Line::start_in_parts(&text(io), |_| ());
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
        let (successor, its) = line.successor();
        line.heirs.push(successor.id());
        let gateway = line.connect();
        let mut sockets = 0;
        pass_changed(&its, &gateway, |(message, fds)| {
            sockets += usize::from(message == Message::Sockets);
            as_before((message, fds))
        });
        drop((its, gateway));
        assert!(sockets > 1, "some are lent, and some given");
        wait_for("the successor", || (line.pid() == successor.id()).then_some(()));
        let (sent, back) = player.play_for(20);
        assert_eq!(sent, back);
        assert_eq!(line.daemon.status()["totals"]["sessions_opened"], 1);
    }
}

fn refused(changes: &[Refused], first_of_all: Change) {
    if !is_root() {
        return;
    }
    let mut line = Line::start_in_parts(&text("mmsg"), |_| ());
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    player.echo(b"before");
    let first = line.daemon.id();
    for (number, (change, why)) in changes.iter().copied().enumerate() {
        let (mut successor, its) = line.successor();
        line.heirs.push(successor.id());
        let gateway = line.connect();
        pass_changed(&its, &gateway, |packet| change(first_of_all(packet)));
        drop((its, gateway));
        let code = successor.wait().expect("our child").code();
        let log = line.log("successor.log");
        assert_eq!(code, Some(1), "{why}: {log}");
        let both = [log, line.daemon.log()].concat();
        assert!(why.split('|').any(|why| both.contains(why)), "{why}: {both}");
        wait_for("the gateway to go on", || {
            let refused = line.daemon.log().matches("hand_over_refused").count();
            (refused > number).then_some(())
        });
        player.echo(b"still here");
        assert_eq!(line.pid(), first, "{why}");
    }
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "as it is, it can be taken: {said}");
    let (sent, back) = player.play_for(20);
    assert_eq!(sent, back);
    assert_eq!(line.daemon.status()["totals"]["sessions_opened"], 1);
}

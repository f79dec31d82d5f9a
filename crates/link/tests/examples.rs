//! The examples in Rust, run as the README says, against a gateway's end of one link.
//! Those in C are run by the tests of the repository.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use ringgate_link::bundle::{
    Answer, BUNDLE_BYTES_MAX, Channel, MOVE_MS, MessagePart, Move, MoveRefusal, Offered, Opened,
    SessionId, ToGateway, USER_DATA_BYTES, VERSION_MAX, Welcome, Writer,
};
use socket2::{Domain, SockAddr, Socket, Type};

/// Longer than any step takes on a busy machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// An example that runs behind a worker's socket, and that socket's end of its link.
struct Linked {
    game: Child,
    folder: PathBuf,
    socket: Socket,
}

impl Linked {
    fn start(example: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("{example}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("socket");
        let path = folder.join("worker-0.sock");
        listener.bind(&SockAddr::unix(path).expect("a short path")).expect("bind");
        listener.listen(1).expect("listen");
        listener.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let game = Command::new(program(example))
            .args([folder.as_os_str(), "arena-1".as_ref()])
            .spawn()
            .expect("`cargo test -p ringgate-link` builds examples too");
        let (socket, _) = listener.accept().expect("the example connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Self { game, folder, socket }
    }

    /// Takes the hello, welcomes, and has a player come in, who may get messages.
    fn let_in(&self, delivers: bool) {
        let hello = self.receive();
        let Some(Ok(ToGateway::Hello(hello))) = ToGateway::read(&hello).next() else {
            panic!("no hello: {hello:?}")
        };
        assert_eq!(hello.name, "arena-1");
        let welcome = Welcome { version: VERSION_MAX, worker: 0, workers: 1, incarnation: 7 };
        let opened = opened(delivers);
        self.send(|writer| writer.welcome(&welcome) && writer.opened(&opened));
    }

    /// What the example says next is that, and nothing beside it.
    fn says(&self, expected: ToGateway<'_>) {
        let said = self.receive();
        assert!(ToGateway::read(&said).eq([Ok(expected)]), "{said:?} is not {expected:?}");
    }

    fn receive(&self) -> Vec<u8> {
        let mut bundle = vec![0; BUNDLE_BYTES_MAX];
        let len = (&self.socket).read(&mut bundle).expect("the example says something");
        bundle.truncate(len);
        bundle
    }

    fn send(&self, fill: impl FnOnce(&mut Writer<'_>) -> bool) {
        let mut buf = vec![0; BUNDLE_BYTES_MAX];
        let mut writer = Writer::new(&mut buf);
        assert!(fill(&mut writer));
        self.socket.send(writer.bytes()).expect("the example reads");
    }
}

fn opened(delivers: bool) -> Opened<'static> {
    Opened {
        ticket: None,
        session: SESSION,
        client_id: 42,
        address: "203.0.113.9:40001".parse().expect("literal"),
        slot: 5,
        slots_max: 64,
        delivers,
        user_data: &[0; USER_DATA_BYTES],
        listener: "eu-west",
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        let ended: io::Result<()> = self.game.kill();
        let _ = (ended, self.game.wait(), std::fs::remove_dir_all(&self.folder));
    }
}

/// Examples lie in a folder beside that of the tests.
fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the system knows");
    let built = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    built.join("examples").join(example)
}

const SESSION: SessionId = SessionId::new(0, 9);

#[test]
fn the_echo_example_returns_what_a_player_sends() {
    let link = Linked::start("echo_backend");
    link.let_in(false);
    link.send(|writer| writer.payload(SESSION, b"hello"));
    let answer = link.receive();
    let expected = ToGateway::Payload { session: SESSION, bytes: b"hello" };
    assert!(ToGateway::read(&answer).eq([Ok(expected)]));
}

#[test]
fn the_snapshot_example_tells_a_player_about_itself() {
    let link = Linked::start("snapshots");
    link.let_in(false);
    link.send(|writer| writer.payload(SESSION, &[7; 10]));
    // The tick's number, then slot and state; the first ones may be from before the payload.
    link.wait_for_snapshot(|sessions, bytes| {
        assert_eq!(sessions, [SESSION]);
        bytes[4..] == [5, 0, 0, 0, 7, 7, 7, 7]
    });
    // An operator may move anybody.
    let other = Opened { session: SessionId::new(0, 10), ..opened(false) };
    link.send(|writer| writer.moved(SESSION, 1) && writer.opened(&other));
    link.wait_for_snapshot(|sessions, _| {
        let is_later = sessions.contains(&other.session);
        assert!(!is_later || sessions == [other.session], "{sessions:?}");
        is_later
    });
}

#[test]
fn the_zone_example_hands_over_who_walks_over_its_border() {
    let link = Linked::start("zones");
    link.let_in(false);
    let stands = |bytes| ToGateway::Payload { session: SESSION, bytes };
    let step = |paces: i8| link.send(|writer| writer.payload(SESSION, &[paces as u8]));
    step(-1);
    link.says(stands(b"\x31arena-1"));
    let first = Move {
        session: SESSION,
        backend: "zone-2",
        ticket: 1,
        time_ms: MOVE_MS,
        confirms: false,
        message: None,
        data: &[9],
    };
    step(60);
    let said = link.receive();
    assert!(ToGateway::read(&said).eq([Ok(ToGateway::Move(first)), Ok(stands(b"\x63arena-1"))]));
    // It waits at the border, and walks on when it cannot leave.
    step(-1);
    link.says(stands(b"\x63arena-1"));
    link.send(|writer| writer.move_refused(SESSION, 1, MoveRefusal::Full));
    step(-10);
    link.says(stands(b"\x59arena-1"));
    step(-90);
    let back = Move { ticket: 2, data: &[99], ..first };
    let said = link.receive();
    assert!(ToGateway::read(&said).eq([Ok(ToGateway::Move(back)), Ok(stands(b"\x00arena-1"))]));
    link.send(|writer| writer.moved(SESSION, 2));
    link.says(ToGateway::Confirm { session: SESSION });
    // And comes back, to where the other zone says.
    let offered = |data| Offered {
        session: SESSION,
        offer: 4,
        ticket: 3,
        client_id: 42,
        address: opened(false).address,
        slot: 5,
        slots_max: 64,
        left_ms: MOVE_MS,
        delivers: false,
        user_data: &[0; USER_DATA_BYTES],
        listener: "eu-west",
        from: "zone-2",
        data,
    };
    let (no, yes) = (Answer::No, Answer::Yes);
    for (data, answer) in [(&[100_u8][..], no), (&[1, 2], no), (b"", yes), (&[98], yes)] {
        link.send(|writer| writer.offered(&offered(data)));
        link.says(ToGateway::Answer { session: SESSION, offer: 4, answer });
    }
    let came = Opened { ticket: Some(3), ..opened(false) };
    link.send(|writer| writer.opened(&came) && writer.payload(SESSION, &[1]));
    link.says(stands(b"\x63arena-1"));
}

#[test]
fn the_message_example_sends_a_level_for_each_order_and_snapshots_beside_them() {
    let link = Linked::start("messages");
    link.let_in(true);
    link.wait_for_level(0);
    let orders = MessagePart::of(SESSION, Channel::Reliable(0), 0, b"the next one, please");
    orders.for_each(|part| link.send(|writer| writer.message(&part)));
    link.wait_for_level(1);
    // While there is no room, nothing but snapshots comes.
    link.send(|writer| writer.room(SESSION, true, 200_000));
    let orders = MessagePart::of(SESSION, Channel::Reliable(0), 0, b"and one more");
    orders.for_each(|part| link.send(|writer| writer.message(&part)));
    link.send(|writer| writer.room(SESSION, false, 0));
    link.wait_for_level(2);
}

impl Linked {
    /// Takes what comes until a snapshot is such a one.
    fn wait_for_snapshot(&self, is_such: impl Fn(&[SessionId], &[u8]) -> bool) {
        loop {
            let bundle = self.receive();
            let mut snapshots = ToGateway::read(&bundle).filter_map(|record| match record {
                Ok(ToGateway::Multicast { sessions, bytes }) => {
                    Some(is_such(&sessions.iter().collect::<Vec<_>>(), bytes))
                }
                Ok(ToGateway::Confirm { session: SESSION }) => None,
                other => panic!("no snapshot: {other:?}"),
            });
            if snapshots.any(|is_such| is_such) {
                return;
            }
        }
    }

    /// Takes what comes until that level is whole.
    fn wait_for_level(&self, number: u32) {
        let (mut level, mut has_snapshot) = (Vec::new(), false);
        while level.len() < 20 * 1024 || !has_snapshot {
            let bundle = self.receive();
            for record in ToGateway::read(&bundle) {
                match record.expect("it writes what the format allows") {
                    ToGateway::Message(part) if part.channel == Channel::Sequenced(1) => {
                        has_snapshot = true;
                    }
                    ToGateway::Message(part) => {
                        assert_eq!(part.channel, Channel::Reliable(0));
                        // The first part has the token.
                        assert!(!level.is_empty() || part.token == u64::from(number) + 1);
                        level.extend_from_slice(part.bytes);
                    }
                    ToGateway::AskQuality { session } => assert_eq!(session, SESSION),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(level[..4], number.to_le_bytes());
        assert_eq!(level[9000], ((9000 * 31) as u8).wrapping_add(number as u8));
    }
}

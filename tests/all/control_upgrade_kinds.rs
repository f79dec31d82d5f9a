//! Players of every kind are carried from process to process: with each protocol, over each link,
//! half-way in, and at an address that they have left; and nothing that was there before can be
//! played again.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_io::Choice;
use ringgate_report::text::Append as _;
use serde_json::Value;

use crate::control_capture::{Capturing, hex};
use crate::control_rig::{Game, KEY_HEX, PROTOCOL_ID, Player, Text, wait_for};
use crate::control_trace::Tracing;
use crate::gateway_rig::{Echo, on_both_drivers};
use crate::unreal_rig::{Player as UnrealPlayer, Server as UnrealServer};
use crate::upgrade_rig::{self, Line};

on_both_drivers!(
    players_of_every_kind_play_on,
    players_play_on_whatever_the_file_says_of_their_backends,
    a_handshake_that_is_half_done_is_finished_with_the_next_process,
    a_plain_listener_hears_what_begins_as_the_file_says_by_then,
    who_was_denied_stays_out,
    what_is_watched_ends_with_a_word,
    a_listener_that_a_reload_has_taken_away_hinders_no_upgrade,
);

/// What routes plain players, at the end of each datagram.
pub(crate) const ROUTE: [u8; 8] = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];

fn config(io: Choice) -> Text {
    upgrade_rig::text(if io == Choice::Mmsg { "mmsg" } else { "uring" })
}

/// What an operator has made of the backends in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    None,
    /// Others are there, and listeners send players to those.
    Gone,
    /// The same, and those before are still there.
    Unlisted,
    /// They are called something else.
    Renamed,
    /// They are elsewhere, over another kind of link where that can be.
    Moved,
    /// They take fewer players than they have.
    Fewer,
}

/// The file with such backends: a netcode listener over a bundle link, and one for each server.
pub(crate) fn file(io: Choice, servers: &[(&str, SocketAddr)], edit: Edit) -> Text {
    let mut text = config(io);
    let netcode = format!(
        "protocol = \"netcode\"\nprotocol_id = \"{PROTOCOL_ID:#x}\"\nkeys = [{{ hex = \"{KEY_HEX}\" }}]\n"
    );
    let slots = if edit == Edit::Fewer { 0 } else { 8 };
    let named = |name: &str| match edit {
        Edit::None | Edit::Moved | Edit::Fewer => format!("{name}-1"),
        Edit::Gone | Edit::Unlisted | Edit::Renamed => format!("{name}-2"),
    };
    let udp = |name: String, address: SocketAddr| {
        format!(
            "[[backend]]\nname = \"{name}\"\nlink = \"udp\"\naddress = \"{address}\"\nslots = {slots}\n"
        )
    };
    let bundle = |name: &str| {
        format!("[[backend]]\nname = \"{name}\"\nlink = \"bundle\"\nslots = {slots}\n")
    };
    let nowhere = |port: u16| SocketAddr::from(([127, 0, 0, 9], port));
    let is_other = matches!(edit, Edit::Gone | Edit::Unlisted | Edit::Moved);
    if edit == Edit::Unlisted {
        text.more.push_str(&bundle("arena"));
    }
    let arena = if edit == Edit::Moved { "arena" } else { &named("arena").replace("-1", "") };
    text.listener = format!("keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"{arena}\"]\n");
    text.backends =
        if edit == Edit::Moved { udp(arena.to_owned(), nowhere(9)) } else { bundle(arena) };
    for (at, (name, address)) in (10..).zip(servers) {
        let backend = named(name);
        let rules = match *name {
            "any" => format!(
                "protocol = \"plain\"\nroute = \"token\"\ntoken = {{ at = \"end\", bytes = 8, strip = true }}\n\
                 tokens = [{{ hex = \"{}\", backend = \"{backend}\" }}]\n\
                 sequence = {{ offset = 0, bits = 16, order = \"big\" }}\nguard = \"up\"\n\
                 half_open_timeout = \"1m\"\n",
                hex(&ROUTE)
            ),
            "ue" => "protocol = \"unreal\"\n".to_owned(),
            _ => netcode.clone(),
        };
        writeln!(
            text.more,
            "[[listener]]\nname = \"{name}\"\nbind = [\"127.0.0.1:0\"]\nmax_sessions = 20\n\
                 {rules}backends = [\"{backend}\"]"
        );
        text.more.push_str(&udp(backend, if is_other { nowhere(at) } else { *address }));
        if edit == Edit::Unlisted {
            text.more.push_str(&udp(format!("{name}-1"), *address));
        }
    }
    text
}

/// Servers of every kind, and a gateway in front of them.
pub(crate) struct Fleet {
    pub(crate) line: Line,
    /// Where the servers of each listener are.
    pub(crate) servers: Vec<(&'static str, SocketAddr)>,
    _game: Game,
    _udp: Echo,
    _plain: Echo,
    /// At an address of this host that is not loopback, so that each player has a socket of its
    /// own.
    _apart: Option<Echo>,
    pub(crate) unreal: UnrealServer,
}

fn bound(ip: std::net::IpAddr) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((ip, 0)).expect("a free port");
    let address = socket.local_addr().expect("bound");
    (socket, address)
}

/// This host's own address toward others, if it has one. Nothing is sent there.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

impl Fleet {
    pub(crate) fn start(io: Choice) -> Self {
        let loopback = [127, 0, 0, 1].into();
        let [(udp, udp_at), (plain, plain_at)] = [(); 2].map(|()| bound(loopback));
        let apart = own_address().map(bound);
        let unreal = UnrealServer::start(Framing::default(), 2);
        let mut servers = vec![("udp", udp_at), ("any", plain_at), ("ue", unreal.address)];
        servers.extend(apart.as_ref().map(|(_, address)| ("apart", *address)));
        let text = file(io, &servers, Edit::None);
        let line = Line::start(&text);
        let game = Game::start(&line.daemon, "arena");
        let (udp, plain) = (Echo::udp(udp), Echo::udp(plain));
        let apart = apart.map(|(socket, _)| Echo::udp(socket));
        let this =
            Self { line, servers, _game: game, _udp: udp, _plain: plain, _apart: apart, unreal };
        this.line.daemon.ready();
        this
    }

    pub(crate) fn listener(&self, name: &str) -> Option<SocketAddr> {
        let status = self.line.daemon.status();
        let all = status["listeners"].as_array().expect("a list").clone();
        let found = all.iter().find(|it| it["name"] == name)?;
        found["addresses"][0].as_str().and_then(|text| text.parse().ok())
    }

    /// Who is here, without what changes by itself.
    pub(crate) fn sessions(&self) -> Vec<Value> {
        let mut all = self.line.daemon.ask("/sessions").json()["sessions"].clone();
        let all = all.as_array_mut().expect("a list");
        all.sort_by_key(|row| row["session"].as_str().map(str::to_owned));
        for row in &mut *all {
            row.as_object_mut().expect("an object").remove("silent_ms");
        }
        all.clone()
    }

    pub(crate) fn upgrade(&mut self) {
        let (code, said) = self.line.upgrade();
        assert_eq!(code, Some(0), "{said}\n{}", self.line.daemon.log());
    }

    pub(crate) fn drops(&self, reason: &str) -> u64 {
        let page = self.line.daemon.get("/metrics");
        page.sum("ringgate_drops_total", &format!("reason=\"{reason}\"")).expect("it is counted")
    }
}

/// A plain game's client, whose datagrams have a number and end with a token.
pub(crate) struct Numbered {
    socket: UdpSocket,
    next: u16,
}

impl Numbered {
    pub(crate) fn new(gateway: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.connect(gateway).expect("loopback");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        Self { socket, next: 7 }
    }

    pub(crate) fn send(&self, number: u16) {
        let datagram = [&number.to_be_bytes()[..], b"play", &ROUTE].concat();
        self.socket.send(&datagram).expect("loopback takes it");
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = [0; 100];
        self.socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())
    }

    /// Sends on until something comes back.
    pub(crate) fn echo(&mut self) {
        while self.receive().is_some() {}
        wait_for("an echo", || {
            self.send(self.next);
            self.next += 1;
            self.receive().map(|echo| assert_eq!(echo[2..], b"play"[..]))
        });
    }
}

fn players_of_every_kind_play_on(io: Choice) {
    let mut fleet = Fleet::start(io);
    let gateway = |name: &str| fleet.listener(name);
    let udp = gateway("udp").expect("it is in the config");
    let mut netcode = vec![
        Player::connected(fleet.line.daemon.listener, 1, KEY_HEX),
        Player::connected(udp, 2, KEY_HEX),
    ];
    netcode.extend(gateway("apart").map(|address| Player::connected(address, 3, KEY_HEX)));
    let any = gateway("any").expect("it is in the config");
    let (mut plain, half_open) = (Numbered::new(any), Numbered::new(any));
    let mut unreal = UnrealPlayer::new(Framing::default(), 5, gateway("ue").expect("it is there"));
    unreal.connect();
    let mut play = |netcode: &mut Vec<Player>, plain: &mut Numbered| {
        for player in netcode.iter_mut() {
            player.echo(b"on it goes");
        }
        plain.echo();
        plain.echo();
        unreal.echo();
    };
    play(&mut netcode, &mut plain);
    half_open.send(1);
    wait_for("the half-open player's answer", || half_open.receive());
    let before = wait_for("all players", || {
        let all = fleet.sessions();
        (all.len() >= netcode.len() + 2).then_some(all)
    });
    for _ in 0..2 {
        fleet.upgrade();
        assert_eq!(fleet.sessions(), before, "places, slots and addresses are what they were");
        play(&mut netcode, &mut plain);
    }
    // The numbers that were used are used.
    let dropped = fleet.drops("replay_duplicate");
    plain.send(plain.next - 1);
    wait_for("the duplicate", || (fleet.drops("replay_duplicate") > dropped).then_some(()));
    // It sends again after an answer that it had from the process before the last.
    half_open.send(2);
    wait_for("an answer", || half_open.receive());
    // A new port is followed, by the cookies of the first process.
    unreal.change_port();
    unreal.ahead_ns += 11_000_000_000;
    unreal.echo();
    assert_eq!((unreal.reconnected, fleet.unreal.connections()), (1, 1));
    fleet.upgrade();
    unreal.echo();
    let tally = fleet.unreal.tally();
    assert_eq!((tally.duplicates, tally.implausible, tally.restarts), (0, 0, 0), "{tally:?}");
    let status = fleet.line.daemon.status();
    assert_eq!(status["conservation"]["holds"], true, "{}", status["conservation"]);
    assert_eq!(fleet.line.generation(), 4);
    // What listeners have counted has come along, too.
    let page = wait_for("an interval", || {
        let page = fleet.line.daemon.get("/metrics");
        (page.sum("ringgate_stage_seconds_count", "stage=\"handshake\"") > Some(0)).then_some(page)
    });
    let sum = |name: &str, label: &str| page.sum(name, label).expect("it is there");
    let duplicates = |name: &str| sum(name, "reason=\"replay_duplicate\"");
    let apart = duplicates("ringgate_listener_drops_total");
    assert_eq!(apart, duplicates("ringgate_drops_total"));
    for stage in ["stage=\"handshake\"", "stage=\"uplink\"", "stage=\"downlink\""] {
        let [whole, apart] =
            ["ringgate_stage_seconds_count", "ringgate_listener_stage_seconds_count"]
                .map(|name| sum(name, stage));
        assert_eq!((apart, whole > 0), (whole, true), "{stage}");
    }
}

fn players_play_on_whatever_the_file_says_of_their_backends(io: Choice) {
    let mut fleet = Fleet::start(io);
    let gateway = |name: &str| fleet.listener(name);
    let mut netcode = vec![
        Player::connected(fleet.line.daemon.listener, 1, KEY_HEX),
        Player::connected(gateway("udp").expect("it is in the config"), 2, KEY_HEX),
    ];
    netcode.extend(gateway("apart").map(|address| Player::connected(address, 3, KEY_HEX)));
    let mut plain = Numbered::new(gateway("any").expect("it is in the config"));
    let mut unreal = UnrealPlayer::new(Framing::default(), 5, gateway("ue").expect("it is there"));
    unreal.connect();
    plain.echo();
    plain.echo();
    let players = netcode.len() + 2;
    for edit in [Edit::Gone, Edit::Unlisted, Edit::Renamed, Edit::Moved, Edit::Fewer] {
        // What is retired goes on as such, and is back when the file has it again.
        for edit in [edit, edit, Edit::None] {
            fleet.line.daemon.rewrite(&file(io, &fleet.servers, edit));
            fleet.upgrade();
            for player in &mut netcode {
                player.echo(b"on it goes");
            }
            plain.echo();
            unreal.echo();
            assert_eq!(fleet.sessions().len(), players, "{edit:?}");
        }
    }
    let status = fleet.line.daemon.status();
    assert_eq!(status["totals"]["sessions_opened"], players as u64);
    assert_eq!(status["conservation"]["holds"], true, "{}", status["conservation"]);
    assert_eq!((fleet.unreal.connections(), fleet.unreal.tally().restarts), (1, 0));
}

/// The kernel refuses what begins otherwise, by what the process before has told it.
fn a_plain_listener_hears_what_begins_as_the_file_says_by_then(io: Choice) {
    let (server, address) = bound([127, 0, 0, 1].into());
    let _server = Echo::udp(server);
    let text = |begins_with: &str| {
        let mut text = config(io);
        writeln!(
            text.more,
            "[[listener]]\nname = \"any\"\nbind = [\"127.0.0.1:0\"]\nprotocol = \"plain\"\n\
             begins_with = \"{begins_with}\"\nmax_sessions = 20\nbackends = [\"any\"]\n\
             [[backend]]\nname = \"any\"\nlink = \"udp\"\naddress = \"{address}\"\nslots = 8"
        );
        text
    };
    let mut line = Line::start(&text("aa"));
    let status = line.daemon.status();
    let gateway = status["listeners"][1]["addresses"][0].as_str().expect("bound").to_owned();
    for (begins_with, first) in [("aa", 0xaa), ("bb", 0xbb), ("", 0xcc), ("dd", 0xdd)] {
        if begins_with != "aa" {
            line.daemon.rewrite(&text(begins_with));
            let (code, said) = line.upgrade();
            assert_eq!(code, Some(0), "{said}");
        }
        let (player, _) = bound([127, 0, 0, 1].into());
        player.connect(&gateway).expect("loopback");
        player.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        wait_for("an echo", || {
            player.send(&[first, 1]).expect("loopback takes it");
            player.recv(&mut [0; 100]).ok()
        });
    }
}

fn a_handshake_that_is_half_done_is_finished_with_the_next_process(io: Choice) {
    let mut fleet = Fleet::start(io);
    let mut player = Player::new(fleet.line.daemon.listener, 9, KEY_HEX);
    // The request is on its way, or answered by a challenge that nobody has read.
    player.turn();
    wait_for("the challenge", || {
        let status = fleet.line.daemon.status();
        (status["totals"]["handshakes_pending"].as_u64() > Some(0)).then_some(())
    });
    let mut unreal =
        UnrealPlayer::new(Framing::default(), 5, fleet.listener("ue").expect("it is there"));
    unreal.step();
    let challenge = unreal.await_datagram();
    fleet.upgrade();
    player.connect();
    player.echo(b"in");
    unreal.step_with(&challenge);
    unreal.until("the player is in", |player| player.peer.is_some());
    unreal.echo();
    let restarts = fleet.unreal.tally().restarts;
    assert_eq!((fleet.unreal.connections(), restarts), (1, 0));
}

fn who_was_denied_stays_out(io: Choice) {
    let mut line = Line::start(&config(io));
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let (server, outside) = (line.daemon.listener, [127, 9, 9, 9]);
    let mut inside = Player::connected(server, 1, KEY_HEX);
    let mut outsider = Player::at(outside, server, 2, KEY_HEX);
    outsider.connect();
    assert_eq!(line.daemon.post("/deny?prefix=127.9.0.0/16").status, 200);
    outsider.ended();
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    let mut outsider = Player::at(outside, server, 3, KEY_HEX);
    let dropped = || {
        let page = line.daemon.get("/metrics").body;
        let of = page.lines().filter(|line| line.contains("reason=\"address_denied\""));
        of.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    let before = dropped();
    wait_for("the denied one's datagrams", || {
        outsider.turn();
        (dropped() > before + 3).then_some(())
    });
    assert!(!outsider.is_connected());
    inside.echo(b"still here");
}

fn what_is_watched_ends_with_a_word(io: Choice) {
    let mut line = Line::start(&config(io));
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 7, KEY_HEX);
    let mut tracing = Tracing::start(&line.daemon, &["--client", "7"]);
    tracing.told("has session ");
    let capturing = Capturing::start(&line.daemon, &["--client", "7"]);
    player.echo(b"watched");
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    let told = tracing.told("handed over");
    assert!(told.contains("begin it anew"), "{told}");
    let (ran, _folder) = capturing.ended();
    assert!(ran.stderr.contains("handed over"), "{}", ran.stderr);
    player.echo(b"and not watched");
    let mut again = Tracing::start(&line.daemon, &["--client", "7"]);
    again.told("has session ");
}

fn a_listener_that_a_reload_has_taken_away_hinders_no_upgrade(io: Choice) {
    let (socket, address) = bound([127, 0, 0, 1].into());
    let _echo = Echo::udp(socket);
    let less = config(io);
    let more = format!(
        "[[listener]]\nname = \"any\"\nprotocol = \"plain\"\nbind = [\"127.0.0.1:0\"]\n\
         idle_timeout = \"1s\"\nmax_sessions = 20\nbackends = [\"any-1\"]\n[[backend]]\nname = \"any-1\"\n\
         link = \"udp\"\naddress = \"{address}\"\nslots = 8\n"
    );
    let mut line = Line::start(&Text { more, ..less.clone() });
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    let plain_listeners = |line: &Line| {
        let listeners = line.daemon.status()["listeners"].as_array().expect("a list").clone();
        listeners.into_iter().filter(|it| it["name"] == "any").collect::<Vec<_>>()
    };
    let any = plain_listeners(&line)[0]["addresses"][0].as_str().expect("an address").to_owned();
    // It leaves a place and an address behind, in tables that no successor with the file of then
    // would make.
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    stranger.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    // Whoever asks again before the answer comes has a session, which lasts for as long as it may.
    wait_for("an echo", || {
        stranger.send_to(b"hello", &any).expect("loopback");
        stranger.recv(&mut [0; 100]).ok()
    });
    line.daemon.rewrite(&less);
    let page = line.daemon.post("/reload");
    assert_eq!(page.status, 200, "{}", page.body);
    wait_for("the listener's end", || plain_listeners(&line).is_empty().then_some(()));
    for _ in 0..2 {
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
        player.echo(b"on it goes");
    }
    let status = line.daemon.status();
    assert_eq!(status["conservation"]["holds"], true, "{}", status["conservation"]);
    assert_eq!(status["totals"]["sessions"], 1);
}

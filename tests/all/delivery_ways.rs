//! Whole messages on ways that are not a host's own: to a game process behind an agent, over a
//! network that is narrow, and to players behind an interface of which the gateway has the frames.
//!
//! Skipped aloud without root.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringgate_client::{Channel, Client, Event, Options};
use ringgate_core::netcode::{self, ConnectToken, TokenSpec};
use ringgate_core::secret::Key;
use ringgate_os::clock;

use crate::agent_two_hosts::{Side, on_two_hosts_as};
use crate::control_rig::{KEY_HEX, PATIENCE, PROTOCOL_ID, wait_for};
use crate::netns::{self, Staying};
use crate::xdp_rig::{Host, NETCODE_PORT};

/// What a listener has more that delivers messages.
pub(crate) const DELIVERS: &str = "delivery = \"gateway\"\nkeep_alive = \"1s\"\n";

/// The longest message: of several records on a link, of many pieces on a trunk.
const LARGE_BYTES: u32 = 64 * 1024;

const TURN: Duration = Duration::from_millis(10);

/// Only a test that fails takes so many.
const TURNS_MAX: u128 = PATIENCE.as_millis() / TURN.as_millis();

/// What need not arrive is said again after so many turns.
const TURNS_UNTIL_AGAIN: u128 = 50;

/// A player who stays for a minute, whatever the gateway does meanwhile.
pub(crate) fn player(server: SocketAddr, client_id: u64) -> Client {
    let servers = server.to_string().parse().expect("an address");
    let spec = TokenSpec { timeout_seconds: 60, ..TokenSpec::new(PROTOCOL_ID, client_id, servers) };
    let key = Key::from_hex(KEY_HEX).expect("a key");
    let token: ConnectToken =
        netcode::mint(&spec, &key, clock::unix_seconds()).expect("random bytes");
    let mut client = Client::connect(&token, &Options::default()).expect("a socket");
    let is_in = (0..TURNS_MAX).any(|_| {
        client.turn(TURN).expect("a socket that works");
        while let Some(event) = client.poll_event() {
            assert!(matches!(event, Event::Connected { .. }), "{event:?}");
        }
        client.is_connected()
    });
    assert!(is_in, "the gateway lets it in");
    client
}

/// Messages of every kind go to a game that sends them back. Reliable ones come once; each has its
/// report.
pub(crate) fn exchange(client: &mut Client) {
    let large: Vec<u8> = (0..LARGE_BYTES).map(|n| ((n * 7) >> 3) as u8).collect();
    let mut missing = vec![
        (Channel::Reliable(255), large),
        (Channel::Reliable(0), b"hello".to_vec()),
        (Channel::Sequenced(9), vec![3; 1159]),
        (Channel::Unreliable(0), vec![4; 200]),
    ];
    let is_reliable = |channel| matches!(channel, Channel::Reliable(_));
    let mut unreported = 0;
    for turn in 0..TURNS_MAX {
        for (channel, bytes) in &missing {
            if turn == 0 || !is_reliable(*channel) && turn.is_multiple_of(TURNS_UNTIL_AGAIN) {
                client.send(*channel, bytes, Some(turn as u64)).expect("there is room");
                unreported += 1;
            }
        }
        client.turn(TURN).expect("a socket that works");
        while let Some(event) = client.poll_event() {
            match event {
                Event::Message(channel, bytes) => {
                    let place = missing.iter().position(|it| *it == (channel, bytes.to_vec()));
                    assert!(place.is_some() || !is_reliable(channel), "{channel:?} comes once");
                    place.map(|place| missing.swap_remove(place));
                }
                Event::Reported(report) => {
                    assert!(report.is_delivered || report.token > 0, "what is reliable arrives");
                    unreported -= 1;
                }
                event => panic!("{event:?}"),
            }
        }
        if missing.is_empty() && unreported == 0 {
            return rest(client);
        }
    }
    panic!("{} messages and {unreported} reports are missing", missing.len());
}

/// Lets the last acknowledgement leave, so that the gateway waits for nothing.
fn rest(client: &mut Client) {
    for _ in 0..5 {
        client.turn(TURN).expect("a socket that works");
        while let Some(event) = client.poll_event() {
            // One that was sent again while the first was on its way.
            assert!(matches!(event, Event::Message(..)), "{event:?}");
        }
    }
}

const TRUNK_TEST: &str =
    "delivery_ways::whole_messages_cross_a_narrow_trunk_before_and_after_an_upgrade";

const FRAMES_TEST: &str =
    "delivery_ways::whole_messages_are_delivered_in_frames_before_and_after_an_upgrade";

#[test]
fn whole_messages_cross_a_narrow_trunk_before_and_after_an_upgrade() {
    on_two_hosts_as(TRUNK_TEST, 1280, |namespace| {
        let mut side = Side::of(namespace, |text| text.listener.push_str(DELIVERS));
        let _host = side.host(false);
        side.wait_for_up();
        // One for each worker.
        let listener = side.line.daemon.listener;
        let mut players: Vec<_> = (7..9).map(|client_id| player(listener, client_id)).collect();
        players.iter_mut().for_each(exchange);
        // What is said before the trunk has a path for datagrams goes by its stream, in one piece.
        wait_for("pieces of what fits no datagram", || {
            let is_split = side.split() > 0;
            if !is_split {
                players.iter_mut().for_each(exchange);
            }
            is_split.then_some(())
        });
        let (code, said) = side.line.upgrade();
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(side.line.generation(), 2);
        players.iter_mut().for_each(exchange);
        player(listener, 20).disconnect();
    });
}

#[test]
fn whole_messages_are_delivered_in_frames_before_and_after_an_upgrade() {
    if netns::role().is_some() {
        return be_a_player_who_stays();
    }
    let Some(mut host) = Host::start_with(|text| text.listener.push_str(DELIVERS)) else { return };
    wait_for("the games", || (host.daemon.ask("/readyz").status == 200).then_some(()));
    let player = Staying::start(host.pair.role(&host.pair.player, FRAMES_TEST, "player"));
    // Answers leave by the socket until the player's neighbour is known.
    host.wait_for_frames("answers in frames", |frames| frames.received > 0 && frames.sent > 0);
    let (code, said) = host.upgrade();
    assert_eq!(code, Some(0), "{said}\n{}", host.daemon.log());
    player.leave().unwrap_or_else(|why| panic!("{why}\n{}", host.daemon.log()));
    let frames = host.wait_for_frames("every frame to be accounted for", |frames| {
        frames.taken == frames.received + frames.dropped
    });
    assert_eq!(frames.dropped, 0, "{frames:?}");
    let page = host.daemon.ask("/metrics");
    assert_eq!(page.value("ringgate_conserved{worker=\"0\"}"), Some(1));
    let messages = page.value("ringgate_messages_up_total{worker=\"0\"}");
    assert!(messages >= Some(2 * 4), "{messages:?}");
}

/// Exchanges messages, and once more when its input has ended.
fn be_a_player_who_stays() {
    let server = SocketAddr::new("10.98.0.1".parse().expect("an address"), NETCODE_PORT);
    let is_over = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.store(true, Ordering::Relaxed);
    });
    let mut client = player(server, 5);
    exchange(&mut client);
    netns::say_that_it_serves();
    while !is_over.load(Ordering::Relaxed) {
        rest(&mut client);
    }
    exchange(&mut client);
    client.disconnect();
}

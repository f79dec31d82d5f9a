//! Players who leave, servers that travel, and those who come back: slots are free soon, and nobody
//! is put out by mistake.

use super::rig::{Arena, Player, rules_mut, unreal_setup};
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::setup::{Route, Setup};
use ringgate_batch::Endpoint;
use ringgate_bots::unreal::bunch::write_close;
use ringgate_bots::unreal::peer::Fields;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::notify::Header;
use ringgate_core::proto::unreal::prefix::Framing;

/// The longest that a session stays which is over: the silence that is waited for, and the horizon
/// of the timers.
const SOON_MS: u64 = 3000 + 4200;

impl Player {
    /// The packet that closes the connection.
    fn goodbye(&mut self) -> Vec<u8> {
        let mut payload = [0; 16];
        let mut out = BitWriter::new(&mut payload);
        out.flag(false);
        write_close(7, &mut out);
        let bits = out.position();
        let payload = BitReader::new(&payload).take(bits).expect("written");
        let mut buffer = [0; 64];
        let ids = self.client.ids();
        let peer = self.peer.as_mut().expect("connected");
        let len = peer.write(&self.framing, ids, payload, &mut buffer).expect("few are in flight");
        buffer[..len].to_vec()
    }

    fn says_goodbye(&mut self, arena: &mut Arena) {
        let goodbye = self.goodbye();
        self.exchange(arena, &goodbye);
    }

    /// Another connection from the same address.
    fn returns(&mut self, arena: &mut Arena, client_id: u8) {
        self.client = Self::new(arena, client_id).client;
        self.peer = None;
        self.connect(arena);
    }
}

/// One server with one slot.
fn one_slot() -> Setup {
    let mut setup = unreal_setup(1);
    setup.backends[BackendId(0)].slots = 1;
    setup
}

/// The server closes the connection of the player who was seen there.
fn server_closes(arena: &mut Arena, there: Endpoint) {
    arena.pass(250);
    let mut keep_alive = [0; 100];
    let now_ns = arena.now_ns();
    let due = arena.servers[0].stand_in.poll_keep_alive(now_ns, &mut keep_alive);
    let (to, len) = due.expect("a keep-alive");
    assert_eq!(to, there);
    let framing = Framing::default();
    let (prefix, reader) = framing.read(&keep_alive[..len]).expect("a packet");
    let header = Header::read(reader).expect("a header");
    let mut close = [0; 100];
    let mut out = BitWriter::new(&mut close);
    let fields = Fields { sequence: header.sequence, acked: header.acked, history: &[1] };
    fields.write(&framing, prefix.ids, &mut out);
    out.flag(false);
    write_close(9, &mut out);
    let len = out.finish(2);
    arena.say(0, there, &close[..len]);
}

fn sessions(arena: &Arena) -> u64 {
    arena.counters().sessions
}

/// Whether another player gets in.
fn has_room(arena: &mut Arena) -> bool {
    let mut other = Player::new(arena, 7);
    other.step(arena);
    other.step(arena);
    other.peer.is_some()
}

#[test]
fn the_slot_of_a_player_who_has_left_is_free_within_seconds() {
    let mut arena = Arena::new(one_slot(), 1);
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    player.says_goodbye(&mut arena);
    assert_eq!(arena.servers[0].tally().goodbyes, 1);
    arena.pass(2900);
    assert_eq!(sessions(&arena), 1, "never at once");
    assert!(!has_room(&mut arena));
    assert_eq!(arena.drops(DropReason::ResponseBackendFull), 1);
    arena.pass(SOON_MS - 2900);
    assert_eq!(sessions(&arena), 0);
    assert_eq!(arena.counters().sessions_closed[Ended::TimedOut as usize], 1);
    assert!(has_room(&mut arena));
}

#[test]
fn a_server_that_closes_a_connection_frees_its_slot() {
    for last_words in [0, 5] {
        let mut arena = Arena::new(one_slot(), 1);
        let mut player = Player::connected(&mut arena, 1);
        assert!(player.plays(&mut arena));
        let there = arena.servers[0].stand_in.connections()[0].address;
        server_closes(&mut arena, there);
        // The player has not heard of it yet.
        for n in 0..last_words {
            let packet = player.game(n).expect("room");
            arena.deliver(0, player.home, &packet);
            arena.pass(100);
        }
        arena.pass(SOON_MS);
        assert_eq!(sessions(&arena), 0, "{last_words} packets behind it");
    }
}

#[test]
fn a_close_that_was_forged_or_misread_ends_nobody() {
    let mut arena = Arena::new(one_slot(), 1);
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    let there = arena.servers[0].stand_in.connections()[0].address;
    server_closes(&mut arena, there);
    for _ in 0..15 {
        arena.pass(200);
        player.step(&mut arena);
        let packet = player.game(1).expect("room");
        arena.deliver(0, player.home, &packet);
    }
    // The full time counts again.
    arena.pass(29_000);
    assert_eq!(sessions(&arena), 1);
    arena.pass(1500);
    assert_eq!(sessions(&arena), 0);
}

#[test]
fn what_cannot_be_read_closes_nothing() {
    use crate::setup::Duplicates;
    for duplicates in [Duplicates::Opaque, Duplicates::Pass] {
        let mut setup = one_slot();
        rules_mut(&mut setup).duplicates = duplicates;
        let mut arena = Arena::new(setup, 1);
        let mut player = Player::connected(&mut arena, 1);
        player.says_goodbye(&mut arena);
        arena.pass(29_000);
        assert_eq!(sessions(&arena), 1);
    }
}

#[test]
fn a_player_who_returns_at_once_takes_its_slot_with_the_same_client_id_too() {
    for client_id in [1, 2] {
        let mut arena = Arena::new(one_slot(), 1);
        let mut player = Player::connected(&mut arena, 1);
        assert!(player.plays(&mut arena));
        arena.pass(200);
        player.says_goodbye(&mut arena);
        player.returns(&mut arena, client_id);
        assert!(player.plays(&mut arena));
        arena.pass(SOON_MS);
        assert_eq!(sessions(&arena), 1, "the new session is not over");
        assert_eq!(arena.rig().host.gate().common.claims.players(BackendId(0)), 1);
    }
}

/// Three players on one server of two, because the other one came later.
fn lopsided(slots: u32) -> (Arena, Vec<Player>) {
    let mut setup = unreal_setup(2);
    setup.listeners[ListenerId(0)].route = Route::LeastPlayers;
    setup.backends[BackendId(0)].slots = slots;
    let mut arena = Arena::new(setup, 1);
    arena.servers[1].is_deaf = true;
    arena.pass(11_000);
    let players = (1..4).map(|id| Player::connected(&mut arena, id)).collect();
    arena.servers[1].is_deaf = false;
    arena.pass(1000);
    assert!(arena.rig().host.gate().backends_up().all(|up| up));
    (arena, players)
}

#[test]
fn a_player_who_returns_comes_to_its_own_server_also_when_that_is_full() {
    for slots in [3, 4] {
        let (mut arena, mut players) = lopsided(slots);
        for (n, player) in players.iter_mut().enumerate() {
            player.returns(&mut arena, 4 + n as u8);
            assert!(player.plays(&mut arena));
        }
        let claims = std::sync::Arc::clone(&arena.rig().host.gate().common.claims);
        assert_eq!(
            (claims.players(BackendId(0)), claims.players(BackendId(1))),
            (3, 0),
            "the match stays together"
        );
        assert_eq!(arena.counters().sessions_closed[Ended::Replaced as usize], 3);
        let mut other = Player::new(&arena, 0);
        other.connect(&mut arena);
        assert_eq!(claims.players(BackendId(1)), 1, "others go where there are fewest");
    }
}

#[test]
fn a_player_whose_server_takes_nobody_returns_to_another() {
    let (mut arena, mut players) = lopsided(3);
    arena.servers[0].is_deaf = true;
    for _ in 0..13 {
        arena.pass(1000);
        let packet = players[0].game(1).expect("room");
        arena.deliver(0, players[0].home, &packet);
    }
    players[0].returns(&mut arena, 5);
    assert!(players[0].plays(&mut arena));
    let claims = std::sync::Arc::clone(&arena.rig().host.gate().common.claims);
    assert_eq!(claims.players(BackendId(1)), 1);
}

#[test]
fn a_restart_keeps_the_slot_of_a_full_server() {
    for worker in [0, 1] {
        let mut arena = Arena::new(one_slot(), 2);
        let mut player = Player::connected(&mut arena, 1);
        player.change_port(&mut arena, worker);
        player.restart(&mut arena);
        assert!(player.plays(&mut arena));
        assert_eq!((sessions(&arena), arena.counters().sessions_opened), (1, 1));
        assert_eq!(arena.rig().host.gate().common.claims.players(BackendId(0)), 1);
    }
}

/// A hard travel: everybody is gone at the server, which has another session number.
#[test]
fn the_slots_of_a_server_that_travelled_are_free_within_seconds() {
    let mut arena = Arena::new(one_slot(), 1);
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    arena.servers[0].stand_in.travel();
    // Until it is asked again.
    arena.pass(5100 + SOON_MS);
    assert_eq!(sessions(&arena), 0);
    assert!(has_room(&mut arena));
}

#[test]
fn a_session_from_after_the_travel_is_not_taken_for_one_from_before() {
    let mut arena = Arena::new(one_slot(), 1);
    arena.servers[0].stand_in.travel();
    // Its challenge still has the number from before, and the gateway learns the new one from the
    // server's own.
    let mut player = Player::connected(&mut arena, 1);
    arena.pass(4500);
    assert_eq!(sessions(&arena), 1);
    assert!(player.plays(&mut arena));
    arena.pass(20_000);
    assert_eq!(sessions(&arena), 1);
    assert!(player.plays(&mut arena));
}

/// The process was started again and has the number that it had.
#[test]
fn the_slots_of_a_server_that_was_started_again_are_free_within_seconds() {
    let mut arena = Arena::new(one_slot(), 1);
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    arena.restart_server(0, Framing::default(), 1);
    arena.pass(600 + SOON_MS);
    assert_eq!(sessions(&arena), 0);
    let mut again = Player::connected(&mut arena, 2);
    assert!(again.plays(&mut arena));
    arena.pass(20_000);
    assert_eq!(sessions(&arena), 1, "who came after that has the full time");
}

#[test]
fn players_stay_whose_server_loads_a_level_as_long_as_they_do() {
    let mut arena = Arena::new(one_slot(), 1);
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    arena.servers[0].is_deaf = true;
    arena.pass(14_000);
    arena.servers[0].is_deaf = false;
    arena.pass(12_000);
    assert_eq!(sessions(&arena), 1);
    assert!(player.plays(&mut arena));
}

//! What a simulated world consists of, and how datagrams get from one of its parts to another.

use std::collections::HashMap;
use std::sync::Arc;

use super::addresses::{NOBODY, game_address};
use super::plain_game::PlainGame;
use super::turnover::Turnover;
use crate::attacker::Attacker;
use crate::game::{Answer, Game, Guest};
use crate::hand_over::HandOver;
use crate::judge::Judge;
use crate::netcode::Cipher;
use crate::network::{Datagram, Faults, Network};
use crate::plan::{GameLink, Plan};
use crate::player::Player;
use crate::random::Random;
use crate::unreal_player::UnrealPlayer;
use crate::unreal_server::{UnrealJudge, UnrealServer};
use crate::worker::{Arrival, Worker};
use ringgate_batch::{Endpoint, IoEvent, LocalIp, SocketId};
use ringgate_gate::{BindId, Claims, ListenerId, Now};

/// A simulated world.
pub struct World {
    pub(super) plan: Plan,
    /// Since the world began.
    pub(super) now_ns: u64,
    /// How far the gateway's clocks are ahead of everybody else's.
    pub(super) gateway_ahead: Ahead,
    pub(super) random: Random,
    pub(super) workers: Vec<Worker>,
    pub(super) claims: Arc<Claims>,
    pub(super) players: Vec<Player>,
    pub(super) cipher: Cipher,
    pub(super) attacker: Attacker,
    pub(super) outside: Outside,
    pub(super) looked_ns: u64,
    /// The randomness of messages.
    pub(super) messages_random: Random,
    pub(super) unreal_players: Vec<UnrealPlayer>,
    /// The randomness of the Unreal game.
    pub(super) unreal_random: Random,
    /// What attackers have recorded of it.
    pub(super) unreal_tape: Vec<Datagram>,
    pub(super) turnover: Turnover,
    pub(super) hand_over: HandOver,
}

/// A difference between two clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    pub(super) mono_ns: u64,
    pub(super) unix_s: i64,
}

/// What the workers' sockets lead to.
pub(super) struct Outside {
    pub(super) now_ns: u64,
    pub(super) network: Network,
    pub(super) random: Random,
    pub(super) judge: Judge,
    pub(super) games: Vec<Game>,
    pub(super) links: Vec<GameLink>,
    pub(super) link_max: usize,
    /// Links whose game process died, or that the gateway has closed: what was on them is lost.
    pub(super) links_lost: u64,
    /// Who lives at an address, and how good the way there is.
    pub(super) homes: HashMap<Endpoint, Home>,
    /// The gateway's public addresses: listener and bind.
    pub(super) public: HashMap<Endpoint, (ListenerId, BindId)>,
    /// The workers' sockets for players. Some may have closed.
    pub(super) player_sockets: HashMap<(usize, ListenerId, BindId), SocketId>,
    /// Those for udp links, which have the same id in all workers.
    pub(super) udp_link: SocketId,
    pub(super) roles: HashMap<(usize, SocketId), Role>,
    /// Refusals that workers have not heard of yet.
    pub(super) refusals: Vec<(usize, IoEvent)>,
    pub(super) tape: Vec<Datagram>,
    pub(super) unreal_listener: Option<ListenerId>,
    pub(super) plain_listener: Option<ListenerId>,
    /// The game behind the plain listener, where there is one.
    pub(super) plain: Option<PlainGame>,
    pub(super) servers: Vec<UnrealServer>,
    pub(super) unreal_judge: UnrealJudge,
    /// Who of the Unreal game lives at an address, and how good the way there is.
    pub(super) unreal_homes: HashMap<Endpoint, (usize, Faults)>,
    /// What went by on the way to the Unreal listener in this step.
    pub(super) unreal_tape: Vec<Datagram>,
}

pub(super) struct Home {
    pub(super) player: usize,
    pub(super) path: Faults,
}

/// What a worker's socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Link { game: u16 },
    LinkListener,
    Player { listener: ListenerId, bind: BindId },
    Session { game: u16 },
    UdpLink,
}

impl World {
    /// The present by the clocks of the gateway.
    pub(super) fn gate_now(&self) -> Now {
        let Ahead { mono_ns, unix_s } = self.gateway_ahead;
        let unix = UNIX_START_S + self.now_ns / S;
        Now { mono_ns: S + self.now_ns + mono_ns, unix_s: unix.saturating_add_signed(unix_s) }
    }
}

impl Outside {
    /// A player sends a datagram.
    pub(super) fn send_up(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8], path: &Faults) {
        let datagram = Datagram { from, to, bytes: bytes.to_vec() };
        self.network.send(self.now_ns, datagram, path, &mut self.random);
        self.tap(from, to, bytes);
    }

    pub(super) fn tap(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8]) {
        if self.tape.len() < TAPE_PER_STEP {
            self.tape.push(Datagram { from, to, bytes: bytes.to_vec() });
        }
    }

    pub(super) fn move_in(&mut self, player: usize, home: Endpoint, path: &Faults) {
        self.homes.insert(home, Home { player, path: path.clone() });
    }

    /// What a game process answers goes to the worker that has its player.
    pub(super) fn answer(&mut self, game: u16, answer: Answer, workers: &mut [Worker]) {
        let mut local = LocalIp::UNSPECIFIED;
        let (worker, socket, peer, bytes) = match answer {
            Answer::Bundle(worker, bytes) => {
                let link = self.games[usize::from(game)].links[worker].as_ref();
                let Some(socket) = link.map(|link| link.socket) else { return };
                (worker, socket, NOBODY, bytes)
            }
            Answer::Payload(Guest::Loopback(worker, address), bytes) => {
                local = address;
                (worker, self.udp_link, game_address(game, GameLink::Udp), bytes)
            }
            Answer::Payload(Guest::Socket(worker, socket), bytes) => {
                (worker, socket, NOBODY, bytes)
            }
            Answer::Payload(Guest::Session(_), _) => return,
        };
        workers[worker].inbox.push_back(Arrival { socket, peer, local, bytes });
    }
}

pub(super) const S: u64 = 1_000_000_000;

/// When the world begins, by the clock that tokens go by.
pub(super) const UNIX_START_S: u64 = 1_700_000_000;

/// What attackers can record in a step.
const TAPE_PER_STEP: usize = 8;

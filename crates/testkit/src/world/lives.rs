//! How a player begins and ends a life in a simulated world.

use super::addresses::{PROTOCOL, game_name, listener_at, listener_keys, public_address};
use super::state::{S, UNIX_START_S, World};
use crate::player::{Last, Life, Whereabouts};
use ringgate_batch::Endpoint;
use ringgate_core::netcode::{
    ConnectToken, ServerAddresses, TokenSecrets, TokenSpec, mint_with, user_data,
};
use ringgate_core::secret::Key;
use ringgate_gate::{BindId, ListenerId};

impl World {
    /// A player comes, with a new token or with the one it had.
    pub(super) fn begin_life(&mut self, at: usize) {
        let habits = self.plan.habits.clone();
        let player = &self.players[at];
        let reused = player.last.clone().filter(|_| self.random.chance(habits.reuse_per_mille));
        let listener = ListenerId(self.random.within(0..self.plan.listeners as u64) as u16);
        let last = match reused {
            Some(last) => Last { uses: last.uses + 1, ..last },
            None => {
                let connect_token = self.mint(self.players[at].client_id, at, listener);
                let token = self.outside.judge.add_token(connect_token.server_to_client.clone());
                Last { token, connect_token, home: self.new_home(at, &habits), uses: 1 }
            }
        };
        let server = last.connect_token.addresses[0].into();
        let player = &mut self.players[at];
        let number = self.outside.judge.add_life(player.client_id, last.token, last.home);
        self.outside.move_in(at, last.home, &player.path);
        let mut life = Life::begin(number, last, server, self.now_ns, &habits, &mut self.random);
        life.delivers = self.plan.delivers(listener_at(server));
        player.whereabouts = Whereabouts::Here(Box::new(life));
    }

    /// A life is over. Who has left without a word must not come back before the gateway has
    /// noticed, in a fair world.
    pub(super) fn end_life(&mut self, at: usize, properly: bool) {
        let away_ns = self.random.within(self.plan.habits.away_ns.clone());
        let timeout_ns = self.plan.timeout_s as u64 * S + S;
        let player = &mut self.players[at];
        let away = Whereabouts::Away(0);
        let Whereabouts::Here(mut life) = std::mem::replace(&mut player.whereabouts, away) else {
            return;
        };
        self.outside.judge.close_messages(&mut life);
        let was_let_in = life.connected_ns.is_some();
        let waited_ns = self.now_ns - life.since_ns;
        let must_get_in = self.plan.is_fair() && waited_ns > GET_IN_NS;
        self.outside.judge.require(was_let_in || !must_get_in, || {
            let state = life.client.state().name();
            format!("life {} ({state}) did not get in within {waited_ns} ns", life.number)
        });
        let patience_ns = if properly || !self.plan.is_fair() { 0 } else { timeout_ns };
        let moved = life.home != life.last.home;
        player.last = (properly && !moved).then_some(life.last);
        player.whereabouts = Whereabouts::Away(self.now_ns + away_ns + patience_ns);
    }

    fn new_home(&mut self, at: usize, habits: &crate::plan::Habits) -> Endpoint {
        let player = &self.players[at];
        match &player.last {
            Some(last) if self.random.chance(habits.same_port_per_mille) => last.home,
            _ => player.ip.with_port(self.random.within(1024..65536) as u16),
        }
    }

    fn mint(&mut self, client_id: u64, at: usize, listener: ListenerId) -> ConnectToken {
        let bind = BindId(u16::from(!self.players[at].ip.is_v4()));
        let server = public_address(listener, bind).into();
        let servers = ServerAddresses::new(&[server]).expect("a plain address");
        let mut spec = TokenSpec::new(PROTOCOL, client_id, servers);
        spec.timeout_seconds = self.plan.timeout_s;
        spec.lifetime_seconds = Some(10);
        let games = self.plan.games_at(listener);
        let game = self.random.within(0..games.len() as u64) as usize;
        spec.user_data = user_data(game_name(games[game]).as_bytes()).expect("short");
        let random = &mut self.random;
        let secrets = TokenSecrets {
            nonce: random.bytes(),
            client_to_server: Key::from_bytes(random.bytes()),
            server_to_client: Key::from_bytes(random.bytes()),
        };
        let now_s = UNIX_START_S + self.now_ns / S;
        // One service in four still has the key that is being rotated out.
        let key = listener_keys()[usize::from(random.chance(250))].clone();
        mint_with(&spec, &key, now_s, secrets)
    }
}

/// A request, a challenge and a response, each sent again where a slot of 100 ms was missed.
const GET_IN_NS: u64 = S;

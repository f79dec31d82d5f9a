//! What has to hold when a storm is over, and when nobody plays any more.

use super::World;
use crate::player::Doing;

impl World {
    pub(super) fn require_that_all_is_well(&mut self) {
        for gateway in &self.gateways {
            let doubt = gateway.doubt();
            self.judge.require(doubt == 0, || format!("{}: {}", gateway.name, gateway.doubted()));
            let key = format!("/f/truth/gateway/{}", gateway.name);
            let is_there = self.etcd.lock().store.below(&key).next().is_some();
            self.judge.require(is_there, || format!("{} is not registered", gateway.name));
        }
        for server in &self.servers {
            let key = format!("/f/truth/backend/{}", server.name);
            let is_there = self.etcd.lock().store.below(&key).next().is_some();
            self.judge.require(is_there, || format!("{} is not registered", server.name));
        }
        let met = self.judge.met;
        self.judge.require(met.connected > 5, || format!("nobody plays: {met:?}"));
    }

    pub(super) fn say_goodbye(&mut self) {
        self.is_closing = true;
        for player in &mut self.players {
            match &mut player.doing {
                Doing::Away { until_ms } => *until_ms = u64::MAX,
                Doing::Asking { .. } => player.doing = Doing::Away { until_ms: u64::MAX },
                Doing::Playing(play) => play.leaves_ms = self.now_ms,
            }
        }
    }

    pub(super) fn require_that_nothing_is_left(&mut self) {
        for gateway in &self.gateways {
            let count = gateway.session_count();
            self.judge.require(count == 0, || format!("{} has {count} sessions", gateway.name));
            for server in &self.servers {
                let players = gateway.players_of(&server.name);
                self.judge.require(players == 0, || format!("{} counts {players}", gateway.name));
            }
        }
        let left: Vec<String> = {
            let etcd = self.etcd.lock();
            etcd.store.below("/f/claim/").map(|(key, _)| key.to_owned()).collect()
        };
        let is_of_players = |key: &&String| {
            ["player", "ousted", "promise", "move", "answer", "ask"]
                .iter()
                .any(|part| key.starts_with(&format!("/f/claim/{part}/")))
        };
        let of_players: Vec<_> = left.iter().filter(is_of_players).collect();
        self.judge.require(of_players.is_empty(), || format!("etcd has {of_players:?}"));
    }
}

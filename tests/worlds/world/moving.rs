//! Moves that operators ask of the whole fleet, and what they are told.

use std::collections::BTreeSet;

use super::World;
use crate::moves::AskedMove;
use crate::player::{Doing, Play, Player};
use crate::server::Server;
use crate::service::{MoveAnswer, Service};

impl World {
    /// An operator has a token service move a client to a server, wherever the client is.
    pub(super) fn order_fleet(&mut self) {
        let (service, to) = (self.any(self.services.len()), self.any(self.servers.len()));
        let at = self.any(self.players.len());
        let client_id = self.players[at].client_id;
        let (time_ms, confirms) = (200 + self.random.within(0..1_000), self.random.chance(500));
        // Mostly where the player is, because others do not know that server.
        let home = self.server_beside(at).filter(|_| self.random.chance(800));
        let to = self.servers[home.unwrap_or(to)].name.clone();
        let is_free = !self.moves.is_waited_for(service, self.now_ms);
        if self.is_closing || !is_free || !self.services[service].serves() {
            return;
        }
        let asked_ms = self.now_ms;
        let answered = None;
        let wish = AskedMove { client_id, to, service, time_ms, confirms, asked_ms, answered };
        let number = self.moves.ask(wish.clone());
        self.services[service].ask_move(number, &wish);
        self.judge.met.ordered += 1;
    }

    /// The other server of the gateway that a player plays at.
    fn server_beside(&self, player: usize) -> Option<usize> {
        let token = self.play(player)?.token;
        let has_it = |it: &Server| it.sessions.values().any(|it| it.token == token);
        self.servers.iter().position(has_it).map(|at| at ^ 1)
    }

    fn play(&self, player: usize) -> Option<&Play> {
        match &self.players[player].doing {
            Doing::Playing(play) => Some(play),
            _ => None,
        }
    }

    /// Whoever writes to etcd can put back what operators have asked.
    pub(super) fn ask_again(&mut self) {
        let (now_ms, first) = (self.now_ms, self.now_ms.saturating_sub(BELIEVED_MS));
        self.asked_before.retain(|(at_ms, ..)| *at_ms >= first);
        if self.asked_before.is_empty() || !self.etcd.lock().takes_writes() {
            return;
        }
        let (_, key, value) =
            &self.asked_before[self.random.within(0..self.asked_before.len() as u64) as usize];
        self.etcd.lock().store.put_for(key, value, now_ms, 5_000);
    }

    /// Remembers what operators ask.
    pub(super) fn note_questions(&mut self) {
        let Self { etcd, asked_before, now_ms, .. } = self;
        for (key, entry) in etcd.lock().store.below("/f/claim/move/") {
            if !asked_before.iter().any(|(_, before, _)| before == key) {
                asked_before.push((*now_ms, key.to_owned(), entry.value.clone()));
            }
        }
    }

    pub(super) fn take_move_answers(&mut self) {
        let answers: Vec<_> = self.services.iter_mut().flat_map(Service::take_moved).collect();
        for answer in answers {
            self.take_move_answer(answer);
        }
    }

    fn take_move_answer(&mut self, (number, said): MoveAnswer) {
        let asked = self.moves.asked(number).clone();
        let (service, calm) = (asked.service, self.is_calm(asked.asked_ms));
        let said = match said {
            Ok(said) => said,
            Err(why) => {
                self.judge.met.not_ordered += 1;
                let text = || format!("client {} is not moved: {why}", asked.client_id);
                return self.judge.require(!calm, text);
            }
        };
        self.judge.met.answered += 1;
        let is_away = self.etcd_seen_ms[service] < asked.asked_ms;
        self.judge.require(!is_away, || format!("{said} is said where etcd is away"));
        let answers = said["answers"].as_array().expect("a list");
        let name = |it: &serde_json::Value| it["gateway"].as_str().expect("a name").to_owned();
        let gateways: BTreeSet<_> = answers.iter().map(name).collect();
        self.moves.answer(number, self.now_ms, gateways.clone());
        for at in 0..self.gateways.len() {
            let answer = answers.iter().find(|it| name(it) == self.gateways[at].name);
            let moved = answer.and_then(|it| it["answer"]["moved"].as_u64()).unwrap_or(0);
            self.judge.met.ordered_moved += moved;
            self.said_moved.push((self.now_ms + HEARD_MS, at, number, moved as usize));
        }
        self.require_an_answer(&asked, &said, calm);
    }

    /// Where all is well every gateway answers, and the one that has the player says what has
    /// become of the move.
    fn require_an_answer(&mut self, asked: &AskedMove, said: &serde_json::Value, is_calm: bool) {
        if !is_calm {
            return;
        }
        let answers = said["answers"].as_array().map_or(0, Vec::len);
        let all = self.gateways.len();
        self.judge.require(answers == all, || format!("of {all} gateways some are silent: {said}"));
        let place = self.servers.iter().position(|it| it.name == asked.to).expect("a server");
        let (gateway, linked_ms) = (self.servers[place].gateway, self.servers[place].linked_ms);
        let there = |player: &usize| {
            let play = self.play(*player)?;
            let (connected_ms, at) = play.connected?;
            let is_there = at == self.gateways[gateway].address && connected_ms < asked.asked_ms;
            (is_there && self.players[*player].client_id == asked.client_id).then_some(())
        };
        let is_there = (0..self.players.len()).any(|it| there(&it).is_some());
        let is_linked = linked_ms.is_some_and(|it| it < asked.asked_ms);
        let name = &self.gateways[gateway].name;
        let answers = said["answers"].as_array().into_iter().flatten();
        let answer = answers.clone().find(|it| it["gateway"].as_str() == Some(name));
        let has_said = answer.is_some_and(|it| {
            let refused = it["answer"]["refused"].as_object().is_some_and(|it| !it.is_empty());
            it["answer"]["moved"].as_u64() > Some(0) || refused
        });
        self.judge.require(has_said || !is_there || !is_linked, || {
            format!("client {} is not moved to {}: {said}", asked.client_id, asked.to)
        });
    }

    /// Whoever was said to be moved is, and nobody is in between.
    pub(super) fn look_at_moves(&mut self) {
        let now_ms = self.now_ms;
        for (at, service) in self.services.iter().enumerate() {
            let process = self.gateways.len() + at;
            if service.is_alive() && self.etcd.lock().is_there_for(process) {
                self.etcd_seen_ms[at] = now_ms;
            }
        }
        let due: Vec<_> = self.said_moved.extract_if(.., |it| it.0 <= now_ms).collect();
        for (_, gateway, number, said) in due {
            let asked = self.moves.asked(number);
            let to = self.servers.iter().position(|it| it.name == asked.to).expect("a server");
            let away_ms = self.servers_away_ms[to].max(self.gateways_away_ms[gateway]);
            let moved = self.moves.count(gateway, asked);
            self.judge.require(moved >= said || away_ms >= asked.asked_ms, || {
                format!("{said} are said to be moved by gateway {gateway}, {moved} are: {asked:?}")
            });
        }
        self.look_between();
    }

    /// Who has left one game process by a move plays at another, or not at all.
    fn look_between(&mut self) {
        let Self { moves, players, gateways, servers, now_ms, .. } = self;
        let plays = |gateway: usize, token: u64| {
            let is_it = |it: &Player| match &it.doing {
                Doing::Playing(play) => {
                    play.token == token && play.gateway() == gateways[gateway].address
                }
                _ => false,
            };
            players.iter().any(is_it)
        };
        let is_linked = |gateway: usize| {
            let mut its = servers.iter().filter(|it| it.gateway == gateway);
            its.all(|it| it.linked_ms.is_some_and(|ms| ms + LINKED_MS < *now_ms))
        };
        moves.forget(|(at, _, session), token| {
            let gateway = &gateways[*at];
            let is_here = gateway.serves() && *now_ms >= gateway.frozen_until_ms;
            let has_it = |it: &Server| it.gateway == *at && it.sessions.contains_key(session);
            !is_here || !plays(*at, token) || !is_linked(*at) || servers.iter().any(has_it)
        });
        let nowhere = moves.nowhere(*now_ms);
        self.judge.require(nowhere.is_none(), || format!("{nowhere:?} is in between"));
    }
}

/// How long what operators ask can be believed, with clocks that are apart.
const BELIEVED_MS: u64 = 63_000;
/// How long game processes have to hear what an operator is told.
const HEARD_MS: u64 = 2_000;
/// Links that came later may have moved a player by coming.
const LINKED_MS: u64 = 4_000;

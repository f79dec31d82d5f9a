//! What game processes and gateways of a world do, and what is looked at there.

use std::collections::BTreeSet;

use ringgate_batch::{Endpoint, LocalIp};

use super::World;
use crate::player::{Doing, Player};
use crate::server::{Heard, Server};

impl World {
    /// A game process or an operator has a player go over to the other process of the gateway.
    pub(super) fn move_somebody(&mut self) {
        let at = self.any(self.servers.len());
        let (sessions, other) = (self.servers[at].sessions.len(), at ^ 1);
        if sessions == 0 {
            return;
        }
        let nth = self.any(sessions);
        let is_ordered = self.random.chance(500);
        let Self { servers, gateways, .. } = self;
        let (server, to) = (&servers[at], &servers[other].name);
        let Some(session) = server.sessions.keys().nth(nth).copied() else { return };
        let gateway = &mut gateways[server.gateway];
        if is_ordered {
            gateway.order_move(session.as_u64(), to);
        } else {
            server.ask_move(gateway, session, to);
        }
    }

    pub(super) fn run_servers(&mut self) {
        let Self { servers, gateways, random, now_ms, judge, moves, .. } = self;
        let (mut said, mut opened) = (Vec::new(), Vec::new());
        for server in servers.iter_mut().filter(|it| it.is_alive(*now_ms)) {
            let gateway = &mut gateways[server.gateway];
            server.connect(gateway, *now_ms, random);
            for heard in server.read(gateway, *now_ms) {
                let at = |session| (server.gateway, server.incarnation, session);
                match heard {
                    Heard::Opened { session, guest } => {
                        let of = (guest.client_id, guest.token);
                        judge.opened(server, of, at(session));
                        moves.opened(at(session), &server.name, *now_ms);
                        opened.push((guest.token, server.name.clone()));
                    }
                    Heard::Said { token } => said.push((token, server.gateway)),
                    Heard::Offered { session, client_id, ticket, taken } => {
                        judge.offered(server, taken);
                        // Of a fleet's move; others have a ticket.
                        let of = (at(session), &*gateway.name);
                        let whom = (client_id, &*server.name);
                        let is_note = ticket == 0;
                        let why_not = is_note.then(|| moves.offered(of, whom, *now_ms)).flatten();
                        judge.met.offered += u64::from(is_note);
                        judge.require(why_not.is_none(), || why_not.unwrap_or_default());
                    }
                    Heard::OfferedLeft { session } => {
                        moves.left_on_the_way(at(session), &server.name, *now_ms);
                    }
                    Heard::Moved { session, token } => {
                        judge.met.moved += 1;
                        moves.left(at(session), token, *now_ms);
                    }
                }
            }
        }
        for (token, gateway) in said {
            self.heard(token, gateway);
        }
        for (token, name) in opened {
            self.tokens[token as usize].1 = Some(name);
        }
    }

    /// Unmodified servers answer what gateways have sent them in this step.
    pub(super) fn run_udp(&mut self) {
        let Self { udp, gateways, now_ms, judge, udp_away_ms, etcd, .. } = self;
        let mut said = Vec::new();
        for (at, server) in udp.iter_mut().enumerate() {
            let is_alive = *now_ms >= server.dead_until_ms;
            if !is_alive {
                udp_away_ms[at] = *now_ms;
            } else if now_ms.is_multiple_of(1000) {
                server.register(etcd);
            }
            for gateway in gateways.iter_mut() {
                let (its, others) = std::mem::take(&mut gateway.to_udp)
                    .into_iter()
                    .partition(|it: &(Endpoint, _, _)| it.0 == server.address);
                gateway.to_udp = others;
                let its: Vec<(Endpoint, LocalIp, Vec<u8>)> = its;
                if !is_alive && !its.is_empty() {
                    gateway.hear_that_nobody_listens(server.address);
                    continue;
                }
                for (_, source, bytes) in its.into_iter().filter(|it| !it.2.is_empty()) {
                    let (token, before) = server.hear((gateway.port(), source), &bytes, *now_ms);
                    judge.require(token == before, || format!("{token} is heard as {before}"));
                    said.push((token, gateway.number));
                    gateway.hear_udp(server.address, source, bytes);
                }
            }
        }
        for (token, gateway) in said {
            self.heard(token, gateway);
        }
    }

    /// What has left a gateway goes where it belongs.
    pub(super) fn carry(&mut self, at: usize) {
        let gateway = &mut self.gateways[at];
        let address = gateway.address;
        let to_players = std::mem::take(&mut gateway.to_players);
        let to_games = std::mem::take(&mut gateway.to_games);
        let closed = std::mem::take(&mut gateway.closed);
        let is_gone = !gateway.is_alive();
        for (to, bytes) in to_players {
            self.send(address, to, bytes);
        }
        for (link, bytes) in to_games {
            if let Some(server) = self.servers.iter_mut().find(|it| it.has_link(link)) {
                server.hear(bytes);
            }
        }
        for link in closed {
            if let Some(server) = self.servers.iter_mut().find(|it| it.has_link(link)) {
                server.lose_link();
            }
        }
        if is_gone {
            self.servers.iter_mut().filter(|it| it.gateway == at).for_each(Server::lose_gateway);
        }
    }

    pub(super) fn look(&mut self) {
        let now_ms = self.now_ms;
        for (at, gateway) in self.gateways.iter().enumerate() {
            let is_away = !gateway.serves() || now_ms < gateway.frozen_until_ms;
            if is_away {
                self.gateways_away_ms[at] = now_ms;
            }
            let etcd = self.etcd.lock();
            let is_fast = etcd.delay_ms_max <= 10 && etcd.lost_per_mille == 0;
            let hears = !is_away && is_fast && etcd.is_there_for(at);
            let is_whole = hears && etcd.is_whole_for(at);
            drop(etcd);
            self.judge.see_gateway(at, gateway.port(), (hears, is_whole));
            self.judge.see_doubt(at, gateway.doubt() != 0);
            if let Some(why) = &gateway.unbalanced {
                self.judge.require(false, || why.clone());
            }
        }
        for (at, server) in self.servers.iter().enumerate() {
            if server.linked_ms.is_none() {
                self.servers_away_ms[at] = now_ms;
            }
        }
        self.judge.look_at_places(&self.servers);
        self.look_at_moves();
        self.look_at_refused();
        self.look_at_slots();
        self.look_at_bans();
        if self.is_unique {
            self.judge.look_at_clients(&self.servers);
        }
    }

    /// No unmodified server has more players than slots; what others have been told is looked at
    /// there.
    pub(super) fn look_at_slots(&mut self) {
        // Services go on without etcd here, and promise then what others may have promised; each
        // gateway of a host counts its own players.
        let is_counted = !self.weather.etcd && !self.weather.histories;
        // Who was banned, or has logged in elsewhere, is gone before the server can know.
        let plays = |token: u64| {
            let its = |it: &Player| matches!(&it.doing, Doing::Playing(it) if it.token == token);
            self.players.iter().any(its)
        };
        // A client has one promise, so its later login has the slot of the earlier one: that ends
        // within seconds, or plays on where ids may be in several places.
        let whose = |token: u64| self.tokens[token as usize].0;
        for server in self.udp.iter().filter(|_| is_counted) {
            let there: BTreeSet<u64> =
                server.there(self.now_ms).filter(|it| plays(*it)).map(whose).collect();
            self.judge.look_at_slots(&server.name, there.len(), server.slots);
        }
    }
}

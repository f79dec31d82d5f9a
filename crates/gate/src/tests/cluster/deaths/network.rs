//! What passes between players, the router, gateways and the agent.

use super::super::agent::ZONE;
use super::super::land;
use super::{Flight, GATES, Plays, State, World};
use crate::ids::MemberId;
use crate::mail::ForwardedDatagram;
use ringgate_batch::Endpoint;

impl<P: Plays> World<P> {
    pub(super) fn live(&mut self, number: usize, speaks: bool) {
        let now_ns = self.gates[0].rigs[0].now.mono_ns;
        let player = &mut self.players[number];
        if speaks && player.library.is_connected() && self.dice.roll(3) == 0 {
            let text = format!("{}: {}", self.names[number], self.step).into_bytes();
            let bytes = player.library.payload(now_ns, &text);
            if !bytes.is_empty() {
                self.said.insert(text);
                self.send(number, &bytes);
            }
        }
        for bytes in self.players[number].library.poll(now_ns) {
            self.send(number, &bytes);
        }
    }

    pub(super) fn send(&mut self, number: usize, bytes: &[u8]) {
        let from = self.players[number].home;
        if self.dice.roll(8) == 0 {
            self.record(from, bytes);
        }
        for _ in 0..[0, 1, 1, 1, 1, 1, 1, 1, 1, 2][self.dice.roll(10) as usize] {
            // Some come so late that another gateway has the session by then.
            let late = if self.dice.roll(50) == 0 { 100 } else { 4 };
            let due = self.step + self.dice.roll(late);
            self.flights.push(Flight { due, number, from, bytes: bytes.to_vec() });
        }
    }

    /// Has the router send what is due where it sends each player's datagrams just now: not for
    /// long to one that is silent.
    pub(super) fn arrive(&mut self) {
        let step = self.step;
        for Flight { number, from, bytes, .. } in
            self.flights.extract_if(.., |it| it.due <= step).collect::<Vec<_>>()
        {
            let door = self.doors[number];
            let is_bad = !self.is_up(door) || self.leaves[door];
            if self.dice.roll(self.steadiness) == 0 || is_bad && self.dice.roll(20) == 0 {
                self.doors[number] = self.dice.roll(GATES as u64) as usize;
            }
            self.deliver(door, from, bytes);
        }
    }

    pub(super) fn deliver(&mut self, door: usize, from: Endpoint, bytes: Vec<u8>) {
        let worker = self.dice.roll(self.gates[door].rigs.len() as u64) as usize;
        match &mut self.states[door] {
            State::Up => self.gates[door].rigs[worker].deliver(from, &bytes),
            State::Asleep(_, waiting) => waiting.push((from, bytes)),
            State::Dead(_) => {}
        }
    }

    fn record(&mut self, from: Endpoint, bytes: &[u8]) {
        let kept = (from, bytes.to_vec());
        if self.recorded.len() < RECORDED_MAX {
            self.recorded.push(kept);
        } else {
            let at = self.dice.roll(RECORDED_MAX as u64) as usize;
            self.recorded[at] = kept;
        }
    }

    /// Somebody sends again, to any gateway, what was recorded.
    pub(super) fn replay(&mut self) {
        if self.recorded.is_empty() {
            return;
        }
        let at = self.dice.roll(self.recorded.len() as u64) as usize;
        let (from, bytes) = self.recorded[at].clone();
        let door = self.dice.roll(GATES as u64) as usize;
        self.deliver(door, from, bytes);
    }

    /// Carries mail between workers, and datagrams between members.
    pub(super) fn carry(&mut self) {
        loop {
            let mut departures: Vec<(usize, MemberId, ForwardedDatagram)> = Vec::new();
            for at in (0..GATES).filter(|at| matches!(self.states[*at], State::Up)) {
                self.gates[at].deliver_mail();
                for rig in &mut self.gates[at].rigs {
                    let some = rig.host.take_for_members().into_iter();
                    departures.extend(some.map(|(to, datagram)| (at, to, datagram)));
                }
            }
            if departures.is_empty() {
                return;
            }
            for (from, MemberId(to), datagram) in departures {
                if self.hears(to.into(), from) {
                    land(&mut self.gates[usize::from(to)].rigs, MemberId(from as u8), &datagram);
                }
            }
        }
    }

    /// The agent hears all, says what follows, and the game answers some players.
    pub(super) fn arbitrate(&mut self) {
        for round in 0..2 {
            let read: Vec<_> = (0..GATES).filter(|at| self.is_read(*at)).collect();
            for at in read {
                for (worker, rig) in self.gates[at].rigs.iter_mut().enumerate() {
                    for link in [worker + ZONE, worker] {
                        self.agent.hear((at, link), rig);
                        self.agent.speak((at, link), rig);
                    }
                    rig.turn();
                }
            }
            if round == 0 {
                self.answer();
            }
        }
        for payload in std::mem::take(&mut self.agent.handed) {
            let Some(payload) = P::said(&payload) else { continue };
            let text = String::from_utf8_lossy(&payload).into_owned();
            assert!(self.heard.insert(payload), "twice: {text}");
            let name = text.split_once(": ").and_then(|(name, _)| name.parse::<u64>().ok());
            self.speakers.extend(name);
        }
    }

    /// Who has no slot is answered too: it plays by that.
    fn answer(&mut self) {
        if P::IS_BEHIND {
            return self.have_server_speak();
        }
        let lanes = self.agent.lanes.iter();
        let waiting = lanes.flat_map(|(at, lane)| lane.others.iter().map(|it| (*at, *it)));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable_by_key(|(at, session)| (*at, session.as_u64()));
        for ((at, worker), session) in waiting {
            if self.is_read(at) {
                let lane = &self.agent.lanes[&(at, worker)];
                let rig = &mut self.gates[at].rigs[worker % ZONE];
                lane.game.push(rig, |writer| writer.payload(session, b"hello"));
            }
        }
        let mut held = self.agent.held();
        held.sort_unstable();
        for id in held {
            let Some(((at, worker), session)) = self.agent.home(id) else { continue };
            if self.is_read(at) && self.dice.roll(5) == 0 {
                let lane = &self.agent.lanes[&(at, worker)];
                let rig = &mut self.gates[at].rigs[worker % ZONE];
                lane.game.push(rig, |writer| writer.payload(session, b"down"));
            }
        }
    }

    fn have_server_speak(&mut self) {
        let now_ns = self.gates[0].rigs[0].now.mono_ns;
        for ((at, worker), session, bytes) in self.agent.server_speaks(now_ns) {
            if self.is_read(at) {
                let lane = &self.agent.lanes[&(at, worker)];
                let rig = &mut self.gates[at].rigs[worker % ZONE];
                lane.game.push(rig, |writer| writer.payload(session, &bytes));
            }
        }
    }

    pub(super) fn receive(&mut self) {
        for at in 0..GATES {
            for worker in 0..self.gates[at].rigs.len() {
                let rig = &mut self.gates[at].rigs[worker];
                self.players.iter_mut().for_each(|player| player.receive(rig));
            }
        }
    }
}

const RECORDED_MAX: usize = 300;

//! What leaves: payloads that are due, what the clients have to say, and what the network kept for
//! a while.
//!
//! Datagrams are written and sealed in a buffer of the swarm's own, then sent, delayed or dropped:
//! most are copied into the outgoing batch. The copy costs some nanoseconds; in return a packet
//! which is lost, delayed or doubled is sealed like any other, with all that follows from its
//! number.

use ringgate_batch::{Endpoint, TxBatch};
use ringgate_core::crypto::Job;
use ringgate_core::limits::TX_SLOT_BYTES;
use ringgate_core::proto::netcode::client::Event;

use super::impair::Fate;
use super::player::{Held, Life, Wire, fetch};
use super::staged::{
    DATAGRAMS_PER_STAGED, Delayed, FETCHED_AT_ONCE, Item, RELEASES_MAX, TAG_PAYLOAD, TAG_PLAIN,
    VISITS_MAX, Way,
};
use super::swarm::{Now, Protocol, Swarm};
use super::unreal::UNREAL_PAYLOAD_BYTES_MAX;
use super::wheel::TICK_NS;
use crate::measure::tally::{Count, Stage};
use ringgate_bots::stamp::Stamp;

impl Swarm {
    /// Fills the batch with what is due, as far as it holds. Returns whether more is due: flush,
    /// and call again.
    ///
    /// Where payloads leave one by one that is one player's: each has a send of its own, and only a
    /// generator that has fallen behind by more than [`BEHIND_NS`] catches up in batches.
    pub fn transmit(&mut self, now: Now, tx: &mut TxBatch) -> bool {
        let has_more_delayed = self.release(now, tx);
        let visits = self.visits_max().min(tx.small_left() / DATAGRAMS_PER_STAGED);
        let mut due = std::mem::take(&mut self.due);
        self.schedule.take_due(now.mono_ns, visits, &mut due);
        let has_more_players = due.len() == visits;
        for group in due.chunks(FETCHED_AT_ONCE) {
            fetch(&self.players, group.iter().copied());
            for player in group {
                self.visit(*player, now);
            }
        }
        self.due = due;
        self.seal();
        self.dispatch(now, tx);
        has_more_players || has_more_delayed || self.schedule.next_ns() <= now.mono_ns
    }

    /// How many players may be in one batch.
    const fn visits_max(&self) -> usize {
        let is_separate = self.setup.arrivals.is_exact() && self.behind_ns <= BEHIND_NS;
        if is_separate { 1 } else { VISITS_MAX }
    }

    /// Lets a player do what it has to.
    fn visit(&mut self, index: u32, now: Now) {
        let staged_before = self.staged.items.len();
        self.end_linger(index, now);
        if let Some(event) = self.client_timeout(index, now) {
            self.handle_event(index, event, now);
        }
        self.give_up_silent(index, now);
        self.stage_payloads(index, now);
        self.stage_packets(index, now);
        let player = &self.players[index as usize];
        if player.life == Life::Leaving && player.wire.poll_timeout().is_none() {
            if self.staged.items.len() == staged_before {
                return self.vacate(index);
            }
            // What it has just said still has to be sealed with its key.
            return self.schedule.at_once(index);
        }
        self.reschedule(index);
    }

    fn end_linger(&mut self, index: u32, now: Now) {
        let player = &mut self.players[index as usize];
        match player.life {
            Life::Lingering { until_ns } if until_ns <= now.mono_ns => {
                if let Some(until_ns) = player.wire.waits_until(now.mono_ns) {
                    player.life = Life::Lingering { until_ns };
                    return;
                }
                player.life = Life::Leaving;
                player.wire.leave();
                self.tally.counters.bump(Count::Left);
            }
            _ => {}
        }
    }

    fn client_timeout(&mut self, index: u32, now: Now) -> Option<Event> {
        if let Wire::Messages(_) = &self.players[index as usize].wire {
            self.handle_messages_timeout(index, now);
            return None;
        }
        self.players[index as usize].client_mut()?.handle_timeout(now.mono_ns)
    }

    /// Gives an Unreal player up who has heard nothing for too long.
    fn give_up_silent(&mut self, index: u32, now: Now) {
        let Wire::Unreal(player) = &mut self.players[index as usize].wire else { return };
        if player.is_over(now.mono_ns) {
            player.give_up();
            self.handle_closed(index, now);
        }
    }

    /// Stages every payload that is due. What the stage has no room for stays due.
    fn stage_payloads(&mut self, index: u32, now: Now) {
        let Some(interval_ns) = self.traffic.interval_ns() else { return };
        let arrivals = self.setup.arrivals;
        loop {
            let player = &mut self.players[index as usize];
            let due_ns = player.next_due_ns;
            if player.life != Life::Playing || due_ns > now.mono_ns || self.staged.is_full() {
                return;
            }
            player.sent_at_once += 1;
            if player.sent_at_once >= self.traffic.at_once {
                player.sent_at_once = 0;
                let (session, counter) = (player.session, player.next_counter);
                player.next_due_ns = arrivals.next_ns(session, counter, due_ns, interval_ns);
            }
            let intended_ns = if arrivals.is_exact() {
                due_ns
            } else {
                // The wheel's ticks are the schedule: a payload is due when its tick is.
                due_ns.next_multiple_of(TICK_NS).min(now.mono_ns)
            };
            self.stage_payload(index, intended_ns, now);
        }
    }

    fn stage_payload(&mut self, index: u32, intended_ns: u64, now: Now) {
        let Self { players, staged, traffic, setup, .. } = self;
        let player = &mut players[index as usize];
        let late_ns = now.mono_ns - intended_ns;
        let stamp = Stamp {
            run: setup.run,
            session: player.session,
            counter: player.next_counter,
            intended_ns,
            late_ns: u32::try_from(late_ns).unwrap_or(u32::MAX),
        };
        let len = traffic.bytes(player.session, player.next_counter);
        let (to, at) = (player.server(), staged.items.len() * TX_SLOT_BYTES);
        let slot = &mut staged.bytes[at..at + TX_SLOT_BYTES];
        self.tally.counters.bump(Count::PayloadsDue);
        if late_ns > LATE_NS {
            self.tally.counters.bump(Count::PayloadsLate);
        }
        self.tally.record(Stage::SendLate, late_ns);
        self.behind_ns = late_ns;
        player.next_counter += 1;
        let item = match &mut player.wire {
            Wire::Plain(_) => {
                let Protocol::Plain(plain) = &setup.protocol else {
                    unreachable!("a swarm speaks one protocol")
                };
                let len = plain.write(&stamp, len, slot);
                Item::bare(index, len, to, TAG_PAYLOAD)
            }
            Wire::Unreal(unreal) => {
                let len = len.min(UNREAL_PAYLOAD_BYTES_MAX);
                stamp.write(&mut staged.payload[..len]);
                let Some(len) = unreal.write_payload(&staged.payload[..len], slot) else {
                    return self.count_unsent(intended_ns);
                };
                Item::bare(index, len, to, TAG_PAYLOAD)
            }
            Wire::Messages(_) => return self.send_message(index, &stamp, len),
            Wire::Netcode(client) => {
                stamp.write(&mut staged.payload[..len]);
                let payload = &staged.payload[..len];
                let Ok(transmit) = client.write_payload(now.mono_ns, payload, slot) else {
                    return self.count_unsent(intended_ns);
                };
                Item { to, tag: TAG_PAYLOAD, ..Item::of(index, &transmit) }
            }
        };
        staged.items.push(item);
        player.keep_alive_ns = now.mono_ns + setup.keep_alive_ns;
        self.second(intended_ns).due += 1;
    }

    /// A payload was due that the protocol does not let a player send now.
    pub(super) fn count_unsent(&mut self, intended_ns: u64) {
        self.tally.counters.bump(Count::PayloadsStifled);
        self.second(intended_ns).due += 1;
    }

    /// Stages what the client itself has to say: requests, responses, keep-alives at the run's
    /// pace, goodbyes.
    fn stage_packets(&mut self, index: u32, now: Now) {
        let Self { players, staged, setup, .. } = self;
        let player = &mut players[index as usize];
        let is_in = matches!(player.life, Life::Playing | Life::Lingering { .. });
        match player.wire {
            Wire::Unreal(_) => return self.stage_unreal(index, is_in, now),
            Wire::Messages(_) => return self.stage_messages(index, now),
            Wire::Plain(_) | Wire::Netcode(_) => {}
        }
        if is_in && player.keep_alive_ns > now.mono_ns {
            return;
        }
        player.keep_alive_ns = now.mono_ns + setup.keep_alive_ns;
        let Wire::Netcode(client) = &mut player.wire else { return };
        while !staged.is_full() {
            let Some(transmit) = client.poll_transmit(now.mono_ns, staged.slot()) else { return };
            staged.items.push(Item::of(index, &transmit));
        }
    }

    /// The same for an Unreal player, whose handshake can begin again at any time.
    fn stage_unreal(&mut self, index: u32, is_in: bool, now: Now) {
        let Self { players, staged, setup, .. } = self;
        let player = &mut players[index as usize];
        let Wire::Unreal(unreal) = &mut player.wire else { return };
        let to = unreal.server();
        let item = |len: usize, tag: u64| Item::bare(index, len, to, tag);
        let tag = if unreal.is_leaving() { TAG_PLAIN } else { 0 };
        while !staged.is_full() {
            let Some(len) = unreal.poll_transmit(now.mono_ns, staged.slot()) else { break };
            staged.items.push(item(len, tag));
        }
        if is_in && player.keep_alive_ns <= now.mono_ns && !staged.is_full() {
            player.keep_alive_ns = now.mono_ns + setup.keep_alive_ns;
            if let Some(len) = unreal.write_keep_alive(staged.slot()) {
                staged.items.push(item(len, TAG_PLAIN));
            }
        }
    }

    /// Seals all that is staged, in one batch.
    fn seal(&mut self) {
        let Self { players, staged, aad, aead, .. } = self;
        let slots = staged.bytes.chunks_exact_mut(TX_SLOT_BYTES);
        let mut jobs = Vec::with_capacity(staged.items.len());
        for (item, slot) in staged.items.iter().zip(slots) {
            let client = players[item.player as usize].client();
            let (Some(header), Some(client)) = (item.seal, client) else { continue };
            let sealed = &mut slot[usize::from(item.sealed_from)..usize::from(item.len)];
            jobs.push(Job::new(client.seal_key(), header.nonce(), aad.of(header.prefix), sealed));
        }
        aead.seal(&mut jobs);
    }

    /// Sends, delays or drops all that is staged, as the impairments decide.
    fn dispatch(&mut self, now: Now, tx: &mut TxBatch) {
        let items = std::mem::take(&mut self.staged.items);
        let is_impaired = self.setup.impair.is_active();
        for (position, item) in items.iter().enumerate() {
            let start = position * TX_SLOT_BYTES;
            let range = start..start + usize::from(item.len);
            let fate = if is_impaired {
                let path = &mut self.players[item.player as usize].path;
                self.setup.impair.outgoing(path, now.mono_ns, range.len())
            } else {
                Fate::Pass
            };
            match fate {
                Fate::Pass | Fate::Twice => {
                    for _ in 0..=u8::from(fate == Fate::Twice) {
                        self.commit(item, range.clone(), now, tx);
                    }
                    self.release_held(item.player, now, tx);
                }
                Fate::Lose => self.lose_up(item.tag),
                Fate::Delay(lag_ns) => self.delay(Delayed {
                    due_ns: now.mono_ns + lag_ns,
                    order: 0,
                    player: item.player,
                    session: self.players[item.player as usize].session,
                    way: Way::Up { to: item.to, tag: item.tag },
                    bytes: self.staged.bytes[range].to_vec(),
                }),
                Fate::Hold => {
                    let bytes = self.staged.bytes[range].to_vec();
                    let held = Held { bytes, to: item.to, tag: item.tag };
                    let before = self.players[item.player as usize].held.replace(Box::new(held));
                    // Held twice in a row, the first one travels after all: it has been overtaken
                    // by nobody.
                    if let Some(before) = before {
                        self.send_bytes(
                            item.player,
                            &before.bytes,
                            (before.to, before.tag),
                            now,
                            tx,
                        );
                    }
                }
            }
        }
        self.staged.items = items;
        self.staged.items.clear();
    }

    fn commit(&mut self, item: &Item, range: std::ops::Range<usize>, now: Now, tx: &mut TxBatch) {
        let port = self.port(item.player, now);
        let target = self.addresses.target(item.player, port, item.to);
        let Some(room) = tx.room() else { return self.lose_up(item.tag) };
        room.send_copy(&self.staged.bytes[range], target, item.tag);
    }

    fn release_held(&mut self, player: u32, now: Now, tx: &mut TxBatch) {
        if let Some(held) = self.players[player as usize].held.take() {
            self.send_bytes(player, &held.bytes, (held.to, held.tag), now, tx);
        }
    }

    fn send_bytes(
        &mut self,
        player: u32,
        bytes: &[u8],
        (to, tag): (Endpoint, u64),
        now: Now,
        tx: &mut TxBatch,
    ) {
        let port = self.port(player, now);
        let target = self.addresses.target(player, port, to);
        let Some(room) = tx.room() else { return self.lose_up(tag) };
        room.send_copy(bytes, target, tag);
    }

    /// Keeps a datagram until it is due.
    pub(super) fn delay(&mut self, delayed: Delayed) {
        let order = self.delays;
        self.delays += 1;
        self.delayed.push(Delayed { order, ..delayed });
    }

    /// Sends what was delayed until now. Returns whether there is more of it.
    fn release(&mut self, now: Now, tx: &mut TxBatch) -> bool {
        for _ in 0..RELEASES_MAX {
            match self.delayed.peek() {
                Some(delayed) if delayed.due_ns <= now.mono_ns => {}
                _ => return false,
            }
            let Some(Delayed { player, session, way, mut bytes, .. }) = self.delayed.pop() else {
                return false;
            };
            match way {
                Way::Up { to, tag } => self.send_bytes(player, &bytes, (to, tag), now, tx),
                Way::Down { from } if self.players[player as usize].session == session => {
                    self.deliver_one(player, from, &mut bytes, now);
                }
                Way::Down { .. } => self.tally.counters.bump(Count::Strangers),
            }
        }
        true
    }

    /// Counts a datagram that goes no further.
    pub(super) const fn lose_up(&mut self, tag: u64) {
        if tag & TAG_PAYLOAD != 0 {
            self.tally.counters.bump(Count::PayloadsImpairedUp);
        }
    }

    /// The port a player sends from now: a NAT may have given it another.
    fn port(&mut self, player: u32, now: Now) -> u32 {
        let Some(every_ns) = self.setup.impair.nat_switch_ns() else { return 0 };
        let player = &mut self.players[player as usize];
        let port = (now.mono_ns.saturating_sub(player.joined_ns) / every_ns) as u32;
        if port != player.port {
            player.port = port;
            self.tally.counters.bump(Count::PortSwitches);
        }
        port
    }
}

/// Beyond this a payload counts as late. Sleeping threads wake some 50 µs late; a millisecond is a
/// thread that cannot keep up.
const LATE_NS: u64 = 1_000_000;

/// So far behind its schedule a generator that sends one by one gives that up until it has caught
/// up: a batch is cheaper, and what it holds is late already.
pub(super) const BEHIND_NS: u64 = 100_000;

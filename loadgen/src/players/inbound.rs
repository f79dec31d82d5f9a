//! What arrives: finding the player, opening everything in one batch, judging each payload.

use ringgate_batch::{Endpoint, RxMeta};
use ringgate_core::crypto::{Job, Verdict};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::client::{Event, OpenWork};

use super::impair::Fate;
use super::player::{Life, Wire, fetch};
use super::push::Push;
use super::staged::{Delayed, Way};
use super::swarm::{Now, Protocol, Swarm};
use super::unreal::{Heard, UNREAL_PAYLOAD_BYTES_MAX};
use crate::measure::tally::{Count, Stage};
use ringgate_bots::received::{Arrival, Received};
use ringgate_bots::stamp::Stamp;

/// A datagram for a player.
struct Inbound<'a> {
    player: u32,
    from: Endpoint,
    /// When it arrived, by the run's clock.
    at_ns: u64,
    bytes: &'a mut [u8],
}

impl Swarm {
    /// Takes in everything that has arrived.
    pub fn receive<'a>(
        &mut self,
        now: Now,
        datagrams: impl Iterator<Item = (&'a RxMeta, &'a mut [u8])>,
    ) {
        let is_impaired = self.setup.impair.is_active();
        let is_hold = self.population.is_hold() && self.gauges.playing > 0;
        let datagrams: Vec<_> =
            datagrams.map(|(meta, bytes)| (self.addresses.player_of(meta), meta, bytes)).collect();
        fetch(&self.players, datagrams.iter().filter_map(|(player, ..)| *player));
        let mut inbound = Vec::with_capacity(datagrams.len());
        for (player, meta, bytes) in datagrams {
            self.tally.counters.bump(Count::DatagramsIn);
            self.tally.counters.add(Count::BytesIn, bytes.len() as u64);
            let at_ns = self.arrival(meta, now);
            self.pauses.hear(at_ns, is_hold);
            let is_here = |index: &u32| {
                let player = self.players.get(*index as usize);
                player.is_some_and(|player| player.life != Life::Free)
            };
            let player = player.filter(is_here);
            let Some(player) = player else {
                self.tally.counters.bump(Count::Strangers);
                continue;
            };
            if self.is_behind(player, meta, bytes) {
                continue;
            }
            if !is_impaired || self.travels_on(player, meta.peer, bytes, at_ns) {
                inbound.push(Inbound { player, from: meta.peer, at_ns, bytes });
            }
        }
        self.unix_at_start_ns = now.unix_ns.saturating_sub(now.mono_ns);
        self.deliver(&mut inbound, now);
    }

    /// When the kernel had the datagram for us. How long it then lay in our queue is our own
    /// affair: it is measured apart.
    fn arrival(&mut self, meta: &RxMeta, now: Now) -> u64 {
        if meta.kernel_ns == 0 {
            return now.mono_ns;
        }
        let queued_ns = now.unix_ns.saturating_sub(meta.kernel_ns);
        self.tally.record(Stage::OwnQueue, queued_ns);
        now.mono_ns.saturating_sub(queued_ns)
    }

    /// What a delayed datagram does in the end.
    pub(super) fn deliver_one(&mut self, player: u32, from: Endpoint, bytes: &mut [u8], now: Now) {
        self.deliver(&mut [Inbound { player, from, at_ns: now.mono_ns, bytes }], now);
    }

    /// Whether a datagram was for a port that the player's NAT has given up; then it is lost there.
    /// Only servers that are told of the change speak to the new one, so only Unreal's players can
    /// lose anything this way.
    fn is_behind(&mut self, index: u32, meta: &RxMeta, bytes: &[u8]) -> bool {
        let player = &self.players[index as usize];
        if !matches!(player.wire, Wire::Unreal(_)) || self.addresses.is_at(player.port, meta) {
            return false;
        }
        self.lose_down(index, bytes);
        true
    }

    /// Counts a datagram that an impairment of ours drops.
    fn lose_down(&mut self, index: u32, bytes: &[u8]) {
        self.tally.counters.bump(Count::ImpairedDown);
        if self.players[index as usize].wire.is_payload(bytes) {
            self.tally.counters.bump(Count::PayloadsImpairedDown);
        }
    }

    /// Decides what the network does to a datagram. False where it does not arrive now.
    fn travels_on(&mut self, index: u32, from: Endpoint, bytes: &[u8], at_ns: u64) -> bool {
        let player = &mut self.players[index as usize];
        match self.setup.impair.incoming(&mut player.path, at_ns) {
            Fate::Lose => {
                self.lose_down(index, bytes);
                false
            }
            Fate::Delay(lag_ns) => {
                let session = player.session;
                self.delay(Delayed {
                    due_ns: at_ns + lag_ns,
                    order: 0,
                    player: index,
                    session,
                    way: Way::Down { from },
                    bytes: bytes.to_vec(),
                });
                false
            }
            Fate::Pass | Fate::Twice | Fate::Hold => true,
        }
    }

    fn deliver(&mut self, inbound: &mut [Inbound<'_>], now: Now) {
        let works = self.open(inbound);
        for (item, work) in inbound.iter_mut().zip(works) {
            match work {
                Ok(None) => self.handle_unsealed(item, now),
                Ok(Some(work)) => self.handle_opened(item, &work, now),
                Err(reason) => self.tally.refuse(reason),
            }
        }
    }

    /// Opens everything at once. `Ok(None)` for datagrams that are not sealed.
    fn open(&mut self, inbound: &mut [Inbound<'_>]) -> Vec<Result<Option<OpenWork>, DropReason>> {
        let Self { players, aad, aead, .. } = self;
        let look = |item: &Inbound<'_>| match &players[item.player as usize].wire {
            Wire::Plain(_) | Wire::Unreal(_) => Ok(None),
            Wire::Netcode(client) => client.handle_datagram(item.from, item.bytes).map(Some),
            Wire::Messages(talker) => {
                talker.session.handle_datagram(item.from, item.bytes).map(Some)
            }
        };
        let mut works: Vec<_> = inbound.iter().map(look).collect();
        let mut jobs = Vec::with_capacity(works.len());
        for (item, work) in inbound.iter_mut().zip(&works) {
            let client = players[item.player as usize].client();
            let (Ok(Some(work)), Some(client)) = (work, client) else { continue };
            let (header, sealed) = (&work.header, &mut item.bytes[work.sealed()]);
            jobs.push(Job::new(client.open_key(), header.nonce(), aad.of(header.prefix), sealed));
        }
        aead.open(&mut jobs);
        let mut verdicts = jobs.iter().map(|job| job.verdict);
        for work in works.iter_mut().filter(|work| matches!(work, Ok(Some(_)))) {
            if verdicts.next() != Some(Verdict::Done) {
                *work = Err(DropReason::PacketForged);
            }
        }
        works
    }

    fn handle_unsealed(&mut self, item: &mut Inbound<'_>, now: Now) {
        let index = item.player;
        let Wire::Unreal(player) = &mut self.players[index as usize].wire else {
            return self.handle_plain(item);
        };
        let mut payload = [0; UNREAL_PAYLOAD_BYTES_MAX];
        let heard = match player.handle_datagram(now.mono_ns, item.bytes, &mut payload) {
            Ok(Heard::Payload(len)) => return self.judge(index, &payload[..len], item.at_ns),
            Ok(Heard::Garbage) => return self.tally.counters.bump(Count::Corrupt),
            Ok(heard) => heard,
            Err(reason) => return self.tally.refuse(reason),
        };
        if heard == Heard::Refused {
            player.give_up();
        }
        self.tally.counters.bump(Count::ControlIn);
        match heard {
            Heard::Connected => self.handle_connected(index, now),
            Heard::Handshake => self.reschedule(index),
            Heard::Restarted => self.tally.counters.bump(Count::Restarted),
            Heard::Refused => self.handle_closed(index, now),
            Heard::Nothing => self.tally.counters.bump(Count::PlainIn),
            Heard::Payload(_) | Heard::Garbage => {}
        }
    }

    fn handle_plain(&mut self, item: &mut Inbound<'_>) {
        let Inbound { player, at_ns, .. } = *item;
        if Push::is_claimed_by(item.bytes, self.setup.run) {
            return self.judge(player, item.bytes, at_ns);
        }
        let session = self.players[player as usize].session;
        let payload = match &self.setup.protocol {
            Protocol::Plain(plain) => plain.payload(session, item.bytes),
            _ => item.bytes,
        };
        self.judge(player, payload, at_ns);
    }

    fn handle_opened(&mut self, item: &Inbound<'_>, work: &OpenWork, now: Now) {
        let body = &item.bytes[work.body()];
        if let Wire::Messages(_) = &self.players[item.player as usize].wire {
            return self.handle_packet(item.player, work, body, item.at_ns, now);
        }
        let Wire::Netcode(client) = &mut self.players[item.player as usize].wire else { return };
        match client.handle_opened(now.mono_ns, work, body) {
            Ok(Some(Event::Payload)) => self.judge(item.player, body, item.at_ns),
            Ok(event) => {
                self.tally.counters.bump(Count::ControlIn);
                if let Some(event) = event {
                    self.handle_event(item.player, event, now);
                }
                // Only the handshake changes what a client wants to do next.
                if self.players[item.player as usize].life == Life::Connecting {
                    self.reschedule(item.player);
                }
            }
            Err(reason) => self.tally.refuse(reason),
        }
    }

    pub(super) fn handle_event(&mut self, index: u32, event: Event, now: Now) {
        match event {
            Event::Connected(_) => self.handle_connected(index, now),
            Event::Closed => self.handle_closed(index, now),
            Event::NextServer => self.handle_next_server(index, now),
            Event::Payload => {}
        }
    }

    pub(super) fn handle_connected(&mut self, index: u32, now: Now) {
        if self.players[index as usize].life == Life::Connecting {
            self.enter_game(index, now.mono_ns);
        }
    }

    /// A player turns to the next gateway of its token. Whoever was in has lost its session, and
    /// comes anew.
    pub(super) fn handle_next_server(&mut self, index: u32, now: Now) {
        let player = &mut self.players[index as usize];
        if player.life != Life::Playing {
            return;
        }
        player.life = Life::Connecting;
        (player.joined_ns, player.next_due_ns) = (now.mono_ns, u64::MAX);
        // The game server counts the new session from 0.
        (player.known_since, player.pushed, player.heard) = (0, Received::new(), 0);
        if let Wire::Messages(talker) = &mut player.wire {
            talker.start_anew();
        }
        self.gauges.playing -= 1;
        self.gauges.connecting += 1;
        self.end_pause_without_players(now);
        self.tally.counters.bump(Count::SessionsLost);
        self.tally.counters.bump(Count::Joins);
        self.reschedule(index);
    }

    /// A session has ended.
    pub(super) fn handle_closed(&mut self, index: u32, now: Now) {
        match self.players[index as usize].life {
            life @ (Life::Connecting | Life::Playing) => {
                self.end_silence(index, now.mono_ns);
                let is_in = life == Life::Playing;
                self.lose(index, if is_in { Count::SessionsLost } else { Count::ConnectFailed });
                self.end_pause_without_players(now);
                self.come_back(now);
            }
            Life::Lingering { .. } => self.lose(index, Count::Left),
            Life::Free | Life::Leaving => {}
        }
    }

    /// The last player who was in may have lost its session.
    fn end_pause_without_players(&mut self, now: Now) {
        if self.gauges.playing == 0 {
            self.pauses.end(now.mono_ns);
        }
    }

    /// A session has ended without our wish.
    fn lose(&mut self, index: u32, count: Count) {
        self.tally.counters.bump(count);
        self.leave_gauge(index);
        self.gauges.leaving += 1;
        self.players[index as usize].life = Life::Leaving;
        self.schedule.at_once(index);
    }

    /// What a payload is: an echo of ours, once or twice, in order or not, or of another session.
    pub(super) fn judge(&mut self, index: u32, payload: &[u8], at_ns: u64) {
        if Push::is_claimed_by(payload, self.setup.run) {
            return self.judge_push(index, payload, at_ns);
        }
        let player = &mut self.players[index as usize];
        let Some(stamp) = Stamp::read(payload) else {
            return self.tally.counters.bump(Count::Corrupt);
        };
        if stamp.run != self.setup.run || stamp.session != player.session {
            return self.tally.counters.bump(Count::Misdelivered);
        }
        player.hear(at_ns);
        let arrival = player.received.note(stamp.counter);
        let count = match arrival {
            Arrival::Duplicate => return self.tally.counters.bump(Count::Duplicates),
            Arrival::Stale => Count::Stale,
            Arrival::InOrder | Arrival::Reordered => Count::Echoed,
        };
        self.tally.counters.bump(count);
        if arrival == Arrival::Reordered {
            self.tally.counters.bump(Count::Reordered);
        }
        self.tally.record(Stage::RoundTrip, stamp.latency_ns(at_ns));
        self.tally.record(Stage::Service, stamp.service_ns(at_ns));
        self.second(stamp.intended_ns).echoed += 1;
    }

    /// What the game server has pushed: the next, an earlier one, or one of another session.
    fn judge_push(&mut self, index: u32, payload: &[u8], at_ns: u64) {
        let player = &mut self.players[index as usize];
        let Some(push) = Push::read(payload) else {
            return self.tally.counters.bump(Count::Corrupt);
        };
        if push.session != player.session {
            return self.tally.counters.bump(Count::Misdelivered);
        }
        player.hear(at_ns);
        if push.since != player.known_since {
            if player.known_since != 0 {
                // Numbers wrap; an earlier one lies behind.
                if push.since.wrapping_sub(player.known_since) > u32::MAX / 2 {
                    return self.tally.counters.bump(Count::PushesOutlived);
                }
                self.tally.counters.bump(Count::ServerChanges);
            }
            // It counts what it says, and what it has heard, from 0.
            (player.known_since, player.pushed, player.heard) = (push.since, Received::new(), 0);
        }
        let known = if player.heard == 0 { 0 } else { player.pushed.latest() + 1 };
        let arrival = player.pushed.note(push.counter);
        let due = (push.counter + 1).saturating_sub(known);
        let newly_heard = push.ack.heard.saturating_sub(player.heard);
        player.heard = player.heard.max(push.ack.heard);
        let counters = &mut self.tally.counters;
        counters.add(Count::PushesDue, due.into());
        counters.add(Count::Heard, newly_heard.into());
        self.second(push.ack.intended_ns).echoed += newly_heard;
        let counters = &mut self.tally.counters;
        match arrival {
            Arrival::Duplicate => return counters.bump(Count::Duplicates),
            Arrival::Stale | Arrival::InOrder => {}
            Arrival::Reordered => counters.bump(Count::Reordered),
        }
        counters.bump(Count::PushedDown);
        let down_ns = (self.unix_at_start_ns + at_ns).saturating_sub(push.sent_unix_ns);
        self.tally.record(Stage::PushDown, down_ns);
        if newly_heard > 0 {
            let kept_ns = push.ack.intended_ns + push.ack.held_ns;
            self.tally.record(Stage::RoundTrip, at_ns.saturating_sub(kept_ns));
        }
    }
}

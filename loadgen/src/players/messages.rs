//! Players of a listener that delivers messages: the client that games ship, sealed and opened in
//! the swarm's batches.
//!
//! A message is stamped as a payload is. It has its counter as its token, so its player hears of
//! each whether it arrived, and holds that against the echo: what is reported as lost never
//! comes back. Where messages are orders ([`Delivery::Levels`](super::Delivery::Levels)), levels
//! take the place of echoes.

use ringgate_client::{Channel, Reason, SessionEvent};
use ringgate_core::proto::netcode::client::OpenWork;
use ringgate_core::proto::netcode::packet::{Header, PacketKind};

use super::levels::Told;
use super::player::{Life, Wire};
use super::staged::{Item, TAG_PAYLOAD};
use super::swarm::{Now, Swarm};
use crate::measure::tally::{Count, Stage};
use ringgate_bots::stamp::Stamp;

impl Swarm {
    /// Hands a stamped message to a player's end; what leaves is up to that.
    pub(super) fn send_message(&mut self, index: u32, stamp: &Stamp, len: usize) {
        let Self { players, staged, .. } = self;
        let Wire::Messages(talker) = &mut players[index as usize].wire else { return };
        staged.message.resize(len, 0);
        stamp.write(&mut staged.message);
        let token = Some(stamp.counter.into());
        match talker.session.send(talker.channel, &staged.message, token) {
            Ok(()) => {
                if let Some(levels) = &mut talker.levels {
                    levels.order(stamp.intended_ns);
                }
                self.tally.counters.bump(Count::MessagesTaken);
                self.second(stamp.intended_ns).due += 1;
            }
            Err(_) => self.count_unsent(stamp.intended_ns),
        }
    }

    /// Stages what a player's end has to say, as far as there is room.
    pub(super) fn stage_messages(&mut self, index: u32, now: Now) {
        let Self { players, staged, .. } = self;
        let Wire::Messages(talker) = &mut players[index as usize].wire else { return };
        while !staged.is_full() {
            let transmit = talker.session.poll_transmit(now.mono_ns, staged.slot());
            let Some(transmit) = transmit else { break };
            let is_packet = |header: Header| header.kind == PacketKind::Payload;
            let tag = if transmit.seal.is_some_and(is_packet) { TAG_PAYLOAD } else { 0 };
            staged.items.push(Item { tag, ..Item::of(index, &transmit) });
        }
        self.take_news(index, now);
    }

    /// Takes an authentic packet of a player's listener.
    pub(super) fn handle_packet(
        &mut self,
        index: u32,
        work: &OpenWork,
        body: &[u8],
        at_ns: u64,
        now: Now,
    ) {
        let Self { players, heard, .. } = self;
        let Wire::Messages(talker) = &mut players[index as usize].wire else { return };
        let on_message = |of, message: &[u8]| heard.push(of, message);
        let taken = talker.session.handle_opened(now.mono_ns, work, body, on_message);
        match taken {
            Ok(()) if work.header.kind == PacketKind::Payload => {
                self.tally.counters.bump(Count::PacketsIn);
            }
            Ok(()) => self.tally.counters.bump(Count::ControlIn),
            Err(reason) => self.tally.refuse(reason),
        }
        self.judge_heard(index, at_ns);
        self.take_news(index, now);
        if self.players[index as usize].life != Life::Free {
            self.reschedule(index);
        }
    }

    /// Ends what a player's end has waited for long enough: answers, and packets before others.
    pub(super) fn handle_messages_timeout(&mut self, index: u32, now: Now) {
        let Self { players, heard, .. } = self;
        let Wire::Messages(talker) = &mut players[index as usize].wire else { return };
        talker.session.handle_timeout(now.mono_ns);
        talker.session.handle_held(now.mono_ns, |of, message| heard.push(of, message));
        self.judge_heard(index, now.mono_ns);
        self.take_news(index, now);
    }

    fn judge_heard(&mut self, index: u32, at_ns: u64) {
        let mut heard = std::mem::take(&mut self.heard);
        let mut rest = &heard.bytes[..];
        for (of, len) in &heard.messages {
            let (message, behind) = rest.split_at(*len);
            rest = behind;
            self.judge_message(index, *of, message, at_ns);
        }
        heard.clear();
        self.heard = heard;
    }

    /// Takes what a player's end has to tell.
    pub(super) fn take_news(&mut self, index: u32, now: Now) {
        loop {
            let Wire::Messages(talker) = &mut self.players[index as usize].wire else { return };
            match talker.session.poll_event() {
                None => return,
                Some(SessionEvent::Connected { .. }) => self.handle_connected(index, now),
                Some(SessionEvent::NextServer { .. }) => self.handle_next_server(index, now),
                Some(SessionEvent::Closed(Reason::Left)) => {}
                Some(SessionEvent::Closed(_)) => self.handle_closed(index, now),
                Some(SessionEvent::Reported(report)) => {
                    self.judge_report(index, report.token as u32, report.is_delivered);
                }
            }
        }
    }

    fn judge_message(&mut self, index: u32, of: Channel, message: &[u8], at_ns: u64) {
        let player = &mut self.players[index as usize];
        player.hear(at_ns);
        let Wire::Messages(talker) = &mut player.wire else { return };
        match &mut talker.levels {
            Some(levels) => {
                let told = levels.hear(of, message);
                self.count_told(told, at_ns);
            }
            None if of == talker.channel => self.judge_echo(index, message, at_ns),
            None => self.tally.counters.bump(Count::Misdelivered),
        }
    }

    fn count_told(&mut self, told: Told, at_ns: u64) {
        let count = match told {
            Told::FirstLevel => Count::Levels,
            Told::Level { ordered_ns } => {
                self.tally.counters.bump(Count::Echoed);
                self.tally.record(Stage::RoundTrip, at_ns.saturating_sub(ordered_ns));
                self.second(ordered_ns).echoed += 1;
                Count::Levels
            }
            Told::Snapshot => Count::Snapshots,
            Told::Wrong => Count::Corrupt,
        };
        self.tally.counters.bump(count);
    }

    /// An echo of what was reported as lost is a lie of one of the two.
    fn judge_echo(&mut self, index: u32, message: &[u8], at_ns: u64) {
        if let (Wire::Messages(talker), Some(Stamp { counter, .. })) =
            (&mut self.players[index as usize].wire, Stamp::read(message))
        {
            if talker.lost.contains(&counter) {
                self.tally.counters.bump(Count::ReportsWrong);
            }
            if let Some((before_ns, before)) = talker.last_echo.replace((at_ns, counter)) {
                self.tally.record(Stage::Gap, at_ns.saturating_sub(before_ns));
                let skipped = counter.saturating_sub(before).saturating_sub(1);
                self.tally.counters.add(Count::Skipped, skipped.into());
            }
        }
        self.judge(index, message, at_ns);
    }

    fn judge_report(&mut self, index: u32, counter: u32, is_delivered: bool) {
        let player = &mut self.players[index as usize];
        let Wire::Messages(talker) = &mut player.wire else { return };
        let count = if is_delivered {
            Count::MessagesDelivered
        } else if talker.session.state().is_closed() {
            // The connection is over: whether it arrived nobody will know.
            Count::MessagesGivenUp
        } else {
            if talker.lost.len() == LOST_KEPT {
                talker.lost.pop_front();
            }
            talker.lost.push_back(counter);
            let has_come = player.received.has(counter);
            self.tally.counters.add(Count::ReportsWrong, has_come.into());
            Count::MessagesLost
        };
        self.tally.counters.bump(count);
    }
}

/// So many messages that were reported as lost are looked for among the echoes.
const LOST_KEPT: usize = 64;

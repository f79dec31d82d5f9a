//! Whole messages in a simulated world: players' ends of the delivery layer, and that every message
//! is accounted for in the end.

use super::state::{Outside, S, World};
use crate::judge::{Judge, LifeRecord, Violation};
use crate::messages::{Messages, next_shape};
use crate::netcode::Cipher;
use crate::network::Faults;
use crate::player::{Life, Whereabouts};
use crate::random::Random;
use ringgate_core::delivery::{Refusal, SendError};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::{DATAGRAM_BYTES_MAX, PAYLOAD_BYTES_MAX};
use ringgate_core::proto::netcode::client::State;
use ringgate_gate::{Ended, Gate, SessionInfo};

impl Outside {
    /// A player has something to say.
    pub(super) fn write_message(&mut self, life: &mut Life, random: &mut Random) {
        let Some(end) = &mut life.end else { return };
        let (channel, bytes) = next_shape(random);
        let (token, message) = self.judge.write_up(life.number, channel, bytes);
        match end.send(channel, &message, Some(token)) {
            Ok(()) => {}
            Err(SendError::Full) => self.judge.take_back_up(life.number),
            Err(why) => self.judge.require(false, || format!("{channel:?}, {bytes} bytes: {why}")),
        }
    }

    /// Sends what a player's end has to say by now, and hears what became of messages. Whether
    /// anything has left.
    pub(super) fn send_messages(
        &mut self,
        life: &mut Life,
        cipher: &mut Cipher,
        path: &Faults,
    ) -> bool {
        let Some(mut end) = life.end.take() else { return false };
        let (mut packet, mut datagram) = ([0; PAYLOAD_BYTES_MAX], [0; DATAGRAM_BYTES_MAX]);
        let mut has_left = false;
        while let Some(len) = end.poll_transmit(self.now_ns, &mut packet) {
            let packet = &packet[..len];
            let Some(len) = cipher.say(&mut life.client, self.now_ns, packet, &mut datagram) else {
                break;
            };
            self.send_up(life.home, life.server, &datagram[..len], path);
            has_left = true;
        }
        while let Some(report) = end.poll_report() {
            self.judge.report_up(life.number, report);
        }
        let fault = end.fault();
        self.judge.require(fault.is_none(), || format!("life {}: {fault:?}", life.number));
        life.end = Some(end);
        has_left
    }

    /// A player takes in a packet of the delivery layer.
    pub(super) fn take_packet(&mut self, life: &mut Life, packet: &[u8]) {
        let Self { judge, now_ns, .. } = self;
        let Some(end) = &mut life.end else {
            return judge.require(false, || format!("life {} is not connected", life.number));
        };
        let number = life.number;
        let taken = end.handle_packet(*now_ns, packet, |channel, message| {
            judge.hear_message_down(number, channel, message);
        });
        let is_honest = !matches!(taken, Err(Refusal::Fault(_)));
        judge.require(is_honest, || format!("life {number}: {taken:?}"));
    }
}

impl Judge {
    /// A life is over: what it has sent and has not arrived never will.
    pub(super) fn close_messages(&mut self, life: &mut Life) {
        let Some(mut end) = life.end.take() else { return };
        if let Some(record) = self.life_mut(life.number) {
            let doubtful = record.messages_up.doubtful();
            record.messages_up.end();
            self.require(doubtful == 0, || format!("life {}: {doubtful} reports", life.number));
        }
        end.close();
        while let Some(report) = end.poll_report() {
            self.report_up(life.number, report);
        }
    }
}

impl World {
    /// Waits until everything has arrived that was sent between players and game processes who
    /// still have each other.
    pub(super) fn wait_until_messages_have_arrived(&mut self) -> Result<(), Violation> {
        let until_ns = self.now_ns + SETTLE_NS;
        while let Some(unsettled) = self.unsettled() {
            if self.now_ns >= until_ns {
                self.outside.judge.require(false, || format!("it stalls: {unsettled}"));
            }
            self.step()?;
        }
        Ok(())
    }

    /// A player whose messages are not settled, if there is one.
    fn unsettled(&self) -> Option<String> {
        let gates = self.workers.iter().map(|worker| worker.host.gate());
        let sessions: Vec<SessionInfo> = gates.flat_map(Gate::sessions).collect();
        let has_session = |client_id, life: &Life| {
            let is_its = |session: &&SessionInfo| {
                session.client_id == client_id && session.address == life.home
            };
            sessions.iter().any(|session| is_its(&session))
        };
        self.players.iter().find_map(|player| {
            let Whereabouts::Here(life) = &player.whereabouts else { return None };
            let end = life.end.as_ref()?;
            let is_in = life.client.state() == State::Connected;
            let record = &self.outside.judge.lives()[life.number as usize - 1];
            let LifeRecord { messages_up, messages_down, .. } = record;
            let is_settled = messages_up.is_settled() && messages_down.is_settled();
            let waits = is_in && !is_settled && has_session(player.client_id, life);
            waits.then(|| {
                let unreported = [messages_up, messages_down].map(Messages::unreported);
                format!("life {}: {unreported:?} unreported, {:?}", life.number, end.quality())
            })
        })
    }

    /// While everybody is still there: no report has turned out to be wrong.
    pub(super) fn require_that_reports_are_true(&mut self) {
        let doubtful: u64 =
            self.outside.judge.lives().iter().map(|life| life.messages_down.doubtful()).sum();
        self.outside.judge.require(doubtful == 0, || format!("{doubtful} reports are wrong"));
    }

    /// When everybody has left: every message was reported, unless it came too late or the game
    /// process that had sent it is gone; and nobody has broken a rule.
    pub(super) fn require_that_messages_are_accounted_for(&mut self) {
        let Self { outside: Outside { judge, links_lost, .. }, workers, plan, .. } = self;
        let counters = || workers.iter().map(|worker| worker.host.gate().counters());
        let dropped = |why| counters().map(|counters| counters.drops.of(why)).sum::<u64>();
        let closed =
            |why: Ended| counters().map(|it| it.sessions_closed[why as usize]).sum::<u64>();
        for why in BROKEN_RULES {
            judge.require(closed(*why) == 0, || format!("{} sessions: {why:?}", closed(*why)));
        }
        let silences = closed(Ended::DeliverySilence);
        judge.require(silences == 0 || plan.jumps, || format!("{silences} ends were silent"));
        let unreported: u64 = judge.lives().iter().map(|life| life.messages_up.unreported()).sum();
        judge.require(unreported == 0, || format!("{unreported} messages of players unreported"));
        if *links_lost > 0 {
            return;
        }
        let lives = judge.lives();
        let unheard = lives.iter().map(|life| life.messages_up.delivered_unheard());
        let [reliable, others] = unheard.fold([0; 2], |[a, b], [c, d]| [a + c, b + d]);
        let unreported: u64 = lives.iter().map(|life| life.messages_down.unreported()).sum();
        judge.require(reliable == 0, || format!("{reliable} messages were delivered to nobody"));
        // They have arrived at the gateway, and found the link to the game process full.
        let not_taken = dropped(DropReason::MessageNotTaken);
        judge.require(others <= not_taken, || format!("{others} messages lost, {not_taken} known"));
        let late = [DropReason::MessageUnknown, DropReason::MessageAfterMove];
        let late: u64 = late.into_iter().map(dropped).sum();
        judge.require(unreported == late, || {
            format!("{unreported} messages for players unreported, {late} too late")
        });
    }
}

/// How sessions end whose players, or whose game processes, are not honest.
const BROKEN_RULES: &[Ended] = &[
    Ended::DeliveryAcknowledgement,
    Ended::DeliveryMalformed,
    Ended::DeliveryMarks,
    Ended::DeliveryMemory,
    Ended::DeliveryMessageLength,
    Ended::DeliveryOverflow,
    Ended::DeliveryOversize,
    Ended::DeliverySequence,
    Ended::DeliveryWindow,
];

/// Far more than it takes over any network that lets something through.
const SETTLE_NS: u64 = 120 * S;

//! Whole messages at a simulated game process: what it hears, how it answers, and what it is told
//! of its answers.

use super::{Bundles, Game, Guest, Known};
use crate::judge::Judge;
use crate::messages::next_shape;
use ringgate_core::delivery::{Channel, Report};
use ringgate_link::bundle::{self, MessagePart, SessionId, ToGame};

impl Game {
    /// What is said only of players whose messages are delivered.
    pub(super) fn read_of_messages(
        &mut self,
        session: SessionId,
        record: &ToGame<'_>,
        judge: &mut Judge,
    ) {
        if let (ToGame::Report { token, is_delivered, .. }, Some(life)) =
            (*record, self.departed.get(&session))
            && !self.guests.contains_key(&Guest::Session(session))
        {
            return judge.report_down(*life, Report { token, is_delivered });
        }
        let known = self.guests.get_mut(&Guest::Session(session));
        let Some(known) = known.filter(|known| known.delivers) else {
            return judge.require(false, || format!("{record:?} where no messages are delivered"));
        };
        match (*record, known.life) {
            (ToGame::Report { token, is_delivered, .. }, Some(life)) => {
                judge.report_down(life, Report { token, is_delivered });
            }
            (ToGame::Report { .. }, None) => {
                judge.require(false, || format!("{record:?}, and nothing was sent"));
            }
            (ToGame::Room { is_full, .. }, _) => {
                let is_news = std::mem::replace(&mut known.is_full, is_full) != is_full;
                judge.require(is_news, || format!("{record:?} again"));
            }
            _ => {}
        }
    }

    /// Takes a message or a part of one; answers it, as a rule.
    pub(super) fn take_part(
        &mut self,
        worker: usize,
        part: &MessagePart<'_>,
        judge: &mut Judge,
        out: &mut Bundles,
    ) {
        let Some(link) = self.links[worker].as_mut() else { return };
        let taken = link.assembly.take(part);
        judge.require(taken.is_ok(), || format!("parts are mixed: {taken:?}"));
        let Some(known) = self.guests.get_mut(&Guest::Session(part.session)) else { return };
        if taken != Ok(true) {
            return;
        }
        let channel = channel_of(part.channel);
        let heard = judge.hear_message_up(known.client_id, channel, link.assembly.message());
        known.life = heard.or(known.life);
        if let Some(life) = heard.filter(|_| known.may_leave) {
            judge.doubt_down(life);
        }
        let random = &mut self.messages_random;
        if random.chance(50) {
            out.add(|writer| writer.ask_quality(part.session));
        }
        let answers = random.within(0..3);
        for _ in 0..answers {
            let (channel, bytes) = next_shape(&mut self.messages_random);
            self.write_to(part.session, channel, bytes, judge, out);
        }
    }

    /// Sends a message to a player who has spoken.
    fn write_to(
        &self,
        session: SessionId,
        channel: Channel,
        bytes: usize,
        judge: &mut Judge,
        out: &mut Bundles,
    ) {
        let known = self.guests.get(&Guest::Session(session));
        let Some(Known { life: Some(life), is_full, .. }) = known else { return };
        if *is_full && matches!(channel, Channel::Reliable(_)) {
            return;
        }
        let (token, message) = judge.write_down(*life, channel, bytes);
        for part in MessagePart::of(session, bundle_channel_of(channel), token, &message) {
            out.add(|writer| writer.message(&part));
        }
    }
}

fn channel_of(channel: bundle::Channel) -> Channel {
    Channel::from_bytes(channel.to_bytes()).expect("both have the same kinds")
}

fn bundle_channel_of(channel: Channel) -> bundle::Channel {
    bundle::Channel::from_bytes(channel.to_bytes()).expect("both have the same kinds")
}

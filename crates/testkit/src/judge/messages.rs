//! What is said and heard in whole messages, held against the books of the life that it is of.

use super::Judge;
use crate::letter::Letter;
use crate::note::Note;
use ringgate_core::delivery::{Channel, Report};

impl Judge {
    /// The next message from a player: its number, and what it says.
    pub fn write_up(&mut self, life: u64, channel: Channel, bytes: usize) -> (u64, Vec<u8>) {
        let record = self.life_mut(life).expect("who speaks is there");
        record.messages_up.write(life, channel, bytes)
    }

    /// The last message of a player was refused: it was never sent.
    pub fn take_back_up(&mut self, life: u64) {
        if let Some(record) = self.life_mut(life) {
            record.messages_up.take_back();
        }
    }

    /// The next message for a player: its number, and what it says.
    pub fn write_down(&mut self, life: u64, channel: Channel, bytes: usize) -> (u64, Vec<u8>) {
        let record = self.life_mut(life).expect("who has spoken was there");
        record.messages_down.write(life, channel, bytes)
    }

    /// A game process has got a message in a player's session. Returns whose it is.
    pub fn hear_message_up(
        &mut self,
        client_id: Option<u64>,
        channel: Channel,
        message: &[u8],
    ) -> Option<u64> {
        let letter = Letter::read(message);
        self.require(letter.is_some(), || format!("{channel:?}: a message was changed on its way"));
        let Letter { life, number } = letter?;
        let Some(record) = self.life_mut(life) else {
            self.require(false, || format!("{letter:?} is from nobody"));
            return None;
        };
        let is_sender = client_id == Some(record.client_id);
        let heard = record.messages_up.hear(channel, number, message.len());
        self.require(is_sender, || format!("{letter:?} came in {client_id:?}'s session"));
        self.require(heard.is_ok(), || format!("life {life}, up: {heard:?}"));
        Some(life)
    }

    /// A player has got a message.
    pub fn hear_message_down(&mut self, life: u64, channel: Channel, message: &[u8]) {
        let Some(letter) = Letter::read(message) else {
            // What is said to everybody comes as a message, too.
            let is_for_all = channel == Channel::Unreliable(0)
                && Note::read(message).is_some_and(|note| note.life == 0);
            return self.require(is_for_all, || format!("{channel:?}: no message of ours"));
        };
        self.require(letter.life == life, || format!("{letter:?} reached life {life}"));
        let record = self.life_mut(letter.life);
        let heard = record
            .ok_or_else(|| "of no life".to_owned())
            .and_then(|record| record.messages_down.hear(channel, letter.number, message.len()));
        self.require(heard.is_ok(), || format!("life {life}, down: {heard:?}"));
    }

    /// A player hears what became of a message.
    pub fn report_up(&mut self, life: u64, report: Report) {
        let record = self.life_mut(life).expect("who hears it is there");
        let reported = record.messages_up.report(report);
        self.require(reported.is_ok(), || format!("life {life}, up: {reported:?}"));
    }

    /// A game process hears what became of a message for a player.
    pub fn report_down(&mut self, life: u64, report: Report) {
        let record = self.life_mut(life).expect("who was written to was there");
        let reported = record.messages_down.report(report);
        self.require(reported.is_ok(), || format!("life {life}, down: {reported:?}"));
    }

    /// A player is to be moved: what a game process says to it meanwhile may be dropped.
    pub fn doubt_down(&mut self, life: u64) {
        if let Some(record) = self.life_mut(life) {
            record.messages_down.may_lack();
        }
    }

    /// A game process is gone: what it has not read of a player nobody has.
    pub fn doubt_up(&mut self, life: u64) {
        if let Some(record) = self.life_mut(life) {
            record.messages_up.may_lack();
        }
    }

    /// What was said to a player and has not arrived never will.
    pub fn end_down(&mut self, life: u64) {
        if let Some(record) = self.life_mut(life) {
            record.messages_down.end();
        }
    }
}

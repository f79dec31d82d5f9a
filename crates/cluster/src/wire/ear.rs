//! What a member has said so far: its version, and what its numbers mean here.

use ringgate_core::limits::LISTENERS_MAX;

use super::{Datagram, Entries, Message, Offered, Refused, VERSION};
use crate::number::Incarnation;
use crate::question::SessionId;

/// What this member has heard of another one on one connection.
#[derive(Debug, Default)]
pub struct Ear {
    version: Option<u8>,
    listeners: Vec<Option<Named>>,
}

/// A listener of the other member.
#[derive(Debug)]
struct Named {
    name: Box<str>,
    /// Its number here, if there is one of that name.
    here: Option<u16>,
}

/// What follows from a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// The member speaks with us from now on.
    Begun,
    /// Players of our listener of this number are there.
    Told(u16, Entries<'a>),
    /// They are not any more.
    Left(u16, Entries<'a>),
    /// All of them are known.
    AllTold,
    /// It wants to be told of all that we have.
    Asked,
    /// So much that we have forwarded was accepted.
    Accepted(u16, Entries<'a>),
    /// Which process it is.
    Incarnation(Incarnation),
    /// It stands by for these players of our listener of this number.
    Stands(u16, Entries<'a>),
    /// It does not any more.
    StandsNot(u16, Entries<'a>),
    /// We are to stand by for a session of our listener of this number, if there is one.
    Record(Option<u16>, &'a [u8]),
    /// We are not to stand by for that one any more.
    Release(SessionId),
    /// We are to go on with that one.
    Offer(Offered),
    /// Whether the member drains: it goes on with nothing then.
    Leaving(bool),
    /// It wants to know whether we are there.
    Question(u32),
    /// It is there.
    Answer(u32),
    /// It asks whether this process is there.
    Doubt(Incarnation),
    /// Nothing that concerns us.
    Nothing,
}

impl Ear {
    /// The version that both speak, once the member has said its own.
    pub const fn version(&self) -> Option<u8> {
        self.version
    }

    /// Takes in a message. `here` says which number a listener has here.
    pub fn hear<'a>(
        &mut self,
        bytes: &'a [u8],
        here: impl FnOnce(&str) -> Option<u16>,
    ) -> Result<Heard<'a>, Refused> {
        let message = Message::read(bytes)?;
        if self.version.is_none() && !matches!(message, Message::Begin { .. }) {
            return Err(Refused::Order);
        }
        let of = |ear: &Self, all: Entries<'a>, heard: fn(u16, Entries<'a>) -> Heard<'a>| {
            let number = ear.number(all.listener)?;
            Ok(number.map_or(Heard::Nothing, |number| heard(number, all)))
        };
        Ok(match message {
            Message::Begin { version } => {
                if self.version.replace(version.min(VERSION)).is_some() {
                    return Err(Refused::Order);
                }
                Heard::Begun
            }
            Message::Listener { number, name } => {
                self.name(number, name, here);
                Heard::Nothing
            }
            Message::Told(entries) => of(self, entries, Heard::Told)?,
            Message::Left(entries) => of(self, entries, Heard::Left)?,
            Message::Stands(entries) => of(self, entries, Heard::Stands)?,
            Message::StandsNot(entries) => of(self, entries, Heard::StandsNot)?,
            Message::Record { listener, bytes } => Heard::Record(self.number(listener)?, bytes),
            Message::Incarnation(it) => Heard::Incarnation(it),
            Message::Release(session) => Heard::Release(session),
            Message::Offer(it) => Heard::Offer(it),
            Message::Leaving(it) => Heard::Leaving(it),
            Message::Doubt(it) => Heard::Doubt(it),
            Message::Question(it) => Heard::Question(it),
            Message::Answer(it) => Heard::Answer(it),
            Message::AllTold => Heard::AllTold,
            Message::Ask => Heard::Asked,
            Message::Accepted(entries) => of(self, entries, Heard::Accepted)?,
            Message::Unknown => Heard::Nothing,
        })
    }

    /// A datagram that the member has forwarded, and the number of its listener here. Where there
    /// is no such listener here, it is for nobody.
    pub fn datagram<'a>(&self, bytes: &'a [u8]) -> Result<(Option<u16>, Datagram<'a>), Refused> {
        let datagram = Datagram::read(bytes)?;
        Ok((self.number(datagram.listener)?, datagram))
    }

    /// The listeners here are others now. Returns whether the member has to be asked for its
    /// players again: it has told of some whose listener there was none of.
    pub fn look_again(&mut self, here: impl Fn(&str) -> Option<u16>) -> bool {
        let mut is_new = false;
        for named in self.listeners.iter_mut().flatten() {
            let before = std::mem::replace(&mut named.here, here(&named.name));
            is_new |= before != named.here && named.here.is_some();
        }
        is_new
    }

    fn name(&mut self, number: u16, name: &str, here: impl FnOnce(&str) -> Option<u16>) {
        let at = usize::from(number);
        if self.listeners.len() <= at {
            debug_assert!(at < LISTENERS_MAX, "a message was read");
            self.listeners.resize_with(at + 1, || None);
        }
        // A number whose listener has drained and was closed may be another's.
        self.listeners[at] = Some(Named { name: name.into(), here: here(name) });
    }

    fn number(&self, listener: u16) -> Result<Option<u16>, Refused> {
        let named = self.listeners.get(usize::from(listener)).and_then(Option::as_ref);
        named.map(|named| named.here).ok_or(Refused::Listener)
    }
}

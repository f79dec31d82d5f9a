//! What a member has said so far: its version, and what its numbers mean here.

use ringgate_core::limits::LISTENERS_MAX;

use super::{Datagram, Message, Refused, VERSION};

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

impl Ear {
    /// The version that both speak, once the member has said its own.
    pub const fn version(&self) -> Option<u8> {
        self.version
    }

    /// Takes in a message, and says the number here of the listener that it is about, if there is
    /// one. `here` says which number a listener has here.
    pub fn hear<'a>(
        &mut self,
        bytes: &'a [u8],
        here: impl FnOnce(&str) -> Option<u16>,
    ) -> Result<(Option<u16>, Message<'a>), Refused> {
        let message = Message::read(bytes)?;
        if self.version.is_some() == matches!(message, Message::Begin { .. }) {
            return Err(Refused::Order);
        }
        let listener = match message {
            Message::Told(all)
            | Message::Left(all)
            | Message::Stands(all)
            | Message::StandsNot(all)
            | Message::Accepted(all) => self.number(all.listener)?,
            Message::Record { listener, .. } => self.number(listener)?,
            Message::Begin { version } => {
                self.version = Some(version.min(VERSION));
                None
            }
            Message::Listener { number, name } => {
                self.name(number, name, here);
                None
            }
            _ => None,
        };
        Ok((listener, message))
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

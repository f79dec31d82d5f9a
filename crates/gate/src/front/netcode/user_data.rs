//! What tokens carried for game processes on bundle links, for as long as their sessions last: a
//! process that comes back is told again. On udp links it is kept where a fleet is to be told of
//! the token.
//!
//! Apart from the sessions, because only openings look at it. Zeros at the end are left out, since
//! most user data is a name and a few words.

use crate::store::table::Place;
use std::collections::HashMap;

use crate::front::netcode::session::Session;
use crate::store::entry::Entry;
use ringgate_core::proto::netcode::{USER_DATA_BYTES, UserData};

/// User data by session.
pub(crate) struct KeptUserData {
    /// As long as the places that ever had some. Room for all is reserved, so it never moves.
    by_place: Vec<Option<Box<[u8]>>>,
    /// Of sessions that come from another process, and leave a place to come again at another:
    /// what is told once.
    moving: HashMap<Place, Box<[u8]>>,
}

impl KeptUserData {
    pub(crate) fn new(places: usize) -> Self {
        Self { by_place: Vec::with_capacity(places), moving: HashMap::new() }
    }

    /// A session begins.
    pub(crate) fn keep(&mut self, session: Entry<Session>, user_data: &UserData) {
        self.keep_trimmed(session, trim(user_data));
    }

    /// A session goes on. Longer bytes than user data has are refused.
    pub(crate) fn keep_again(&mut self, session: Entry<Session>, bytes: &[u8]) -> Option<()> {
        (bytes.len() <= USER_DATA_BYTES).then(|| self.keep_trimmed(session, trim(bytes)))
    }

    fn keep_trimmed(&mut self, session: Entry<Session>, bytes: &[u8]) {
        let at = session.index();
        if bytes.is_empty() {
            return self.forget(session);
        }
        if self.by_place.len() <= at {
            self.by_place.resize(at + 1, None);
        }
        self.by_place[at] = Some(Box::from(bytes));
    }

    /// Without the zeros at its end, if there is anything else.
    pub(crate) fn trimmed(&self, session: Entry<Session>) -> Option<&[u8]> {
        self.by_place.get(session.index())?.as_deref()
    }

    /// As the token had it.
    pub(crate) fn whole(&self, session: Entry<Session>) -> UserData {
        let mut whole = [0; USER_DATA_BYTES];
        if let Some(bytes) = self.trimmed(session) {
            whole[..bytes.len()].copy_from_slice(bytes);
        }
        whole
    }

    /// The session leaves its place, and may come again elsewhere.
    pub(crate) fn move_out(&mut self, session: Entry<Session>, place: Place) {
        let kept = self.by_place.get_mut(session.index()).and_then(Option::take);
        self.moving.extend(kept.map(|bytes| (place, bytes)));
    }

    /// The session has come to its place, perhaps again.
    pub(crate) fn move_in(&mut self, session: Entry<Session>, place: Place) {
        if let Some(bytes) = self.moving.remove(&place) {
            self.keep_trimmed(session, &bytes);
        }
    }

    /// All sessions have come.
    pub(crate) fn settle(&mut self) {
        self.moving = HashMap::new();
    }

    /// The session is over.
    pub(crate) fn forget(&mut self, session: Entry<Session>) {
        if let Some(kept) = self.by_place.get_mut(session.index()) {
            *kept = None;
        }
    }
}

fn trim(bytes: &[u8]) -> &[u8] {
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_comes_back_whole_and_a_session_that_ends_leaves_nothing() {
        let mut kept = KeptUserData::new(8);
        let [one, other] = [Entry::numbered(2), Entry::numbered(5)];
        let mut data = [0; USER_DATA_BYTES];
        data[..5].copy_from_slice(b"a\0red");
        kept.keep(one, &data);
        kept.keep(other, &[7; USER_DATA_BYTES]);
        assert_eq!(kept.trimmed(one), Some(&b"a\0red"[..]));
        assert_eq!((kept.whole(one), kept.whole(other)), (data, [7; USER_DATA_BYTES]));
        kept.keep(other, &[0; USER_DATA_BYTES]);
        kept.forget(one);
        for session in [one, other, Entry::numbered(7)] {
            assert_eq!(kept.trimmed(session), None);
            assert_eq!(kept.whole(session), [0; USER_DATA_BYTES]);
        }
        assert_eq!(kept.keep_again(one, &[1; USER_DATA_BYTES + 1]), None);
        assert_eq!(kept.keep_again(one, b"red\0\0"), Some(()));
        assert_eq!(kept.trimmed(one), Some(&b"red"[..]));
    }
}

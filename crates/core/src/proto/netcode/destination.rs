//! What token services of a fleet write into the first 32 bytes of user data: the backend that a
//! token is for, padded with zeros, and in the last bytes of them a random tag.
//!
//! The tag tells the tokens of one client apart for everybody who counts the players of a backend,
//! be it a gateway or an agent: both see user data, and an agent sees nothing else of a token. Who
//! knows the tag can do nothing with it. The longest names leave no room for one.

use super::UserData;
use crate::splitmix;

/// Which token has been used, among all that may come to a backend: its client and its tag, mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Join(pub u64);

/// How many bytes name the backend.
pub const DESTINATION_BYTES: usize = 32;

/// The name of the backend; `None` where there is none, or something else.
pub fn named_backend(user_data: &UserData) -> Option<&[u8]> {
    split(user_data).map(|(name, _)| name)
}

/// Marks user data that names a backend. Whether there was room for a tag: of the number as many
/// bytes are taken as there are.
pub fn mark(user_data: &mut UserData, number: u64) -> bool {
    let Some((name, _)) = split(user_data) else { return false };
    let Some(place) = tag_place(name.len()) else { return false };
    let bytes = place.len();
    // All zeros would be no tag.
    let number = number | 1;
    user_data[place].copy_from_slice(&number.to_le_bytes()[..bytes]);
    true
}

/// What a token tells of itself when its player has come; `None` where it has no tag.
pub fn join(client_id: u64, user_data: &UserData) -> Option<Join> {
    let (name, tag) = split(user_data)?;
    let has_tag = tag_place(name.len()).is_some() && tag.iter().any(|byte| *byte != 0);
    let words = user_data[..DESTINATION_BYTES].chunks_exact(8);
    let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let mixed = |number: u64| splitmix::mixed(number.wrapping_add(splitmix::STEP));
    has_tag.then(|| Join(words.fold(mixed(client_id), |sum, word| mixed(sum ^ word))))
}

/// The name and the tag, where that is all there is.
fn split(user_data: &UserData) -> Option<(&[u8], &[u8])> {
    let field = &user_data[..DESTINATION_BYTES];
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let (name, rest) = field.split_at(end);
    let tag_bytes = tag_place(end).map_or(0, |place| place.len());
    let (padding, tag) = rest.split_at(rest.len() - tag_bytes);
    (!name.is_empty() && padding.iter().all(|byte| *byte == 0)).then_some((name, tag))
}

/// Where a tag stands behind a name of so many bytes and a zero.
fn tag_place(name_bytes: usize) -> Option<std::ops::Range<usize>> {
    let room = DESTINATION_BYTES.checked_sub(name_bytes + 1)?.min(TAG_BYTES_MAX);
    (room >= TAG_BYTES_MIN).then_some(DESTINATION_BYTES - room..DESTINATION_BYTES)
}

const TAG_BYTES_MAX: usize = 8;

/// Enough for the tokens of one client: the client is mixed in.
const TAG_BYTES_MIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::netcode::USER_DATA_BYTES;

    fn named(name: &str) -> UserData {
        let mut data = [0; USER_DATA_BYTES];
        data[..name.len()].copy_from_slice(name.as_bytes());
        data[DESTINATION_BYTES..].fill(7);
        data
    }

    #[test]
    fn a_tag_stands_behind_the_name_and_leaves_it_readable() {
        for len in 1..=32 {
            let name = "n".repeat(len);
            let plain = named(&name);
            assert_eq!(named_backend(&plain), Some(name.as_bytes()), "{len}");
            assert_eq!(join(1, &plain), None, "{len}");
            let mut marked = plain;
            let has_room = mark(&mut marked, 0x0102_0304_0506_0708);
            assert_eq!(has_room, len <= 29, "{len}");
            assert_eq!(named_backend(&marked), Some(name.as_bytes()), "{len}");
            assert_eq!(marked[DESTINATION_BYTES..], plain[DESTINATION_BYTES..], "the caller's");
            assert_eq!(join(1, &marked).is_some(), has_room, "{len}");
        }
    }

    #[test]
    fn every_tag_and_every_client_is_another_join() {
        let of = |client, number, name: &str| {
            let mut data = named(name);
            assert!(mark(&mut data, number));
            join(client, &data)
        };
        let mut all: Vec<_> = (0..500_u64).map(|at| of(at % 5, at / 5 * 2, "arena-1")).collect();
        all.push(of(0, 0, "arena-2"));
        all.push(of(0, 2, &"n".repeat(29)));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(of(3, 8, "arena-1"), of(3, 9, "arena-1"), "the lowest bit is always set");
    }

    #[test]
    fn what_is_no_name_and_no_tag_names_nothing() {
        let mut data = named("arena-1");
        data[9] = 1;
        assert_eq!((named_backend(&data), join(1, &data)), (None, None), "in the padding");
        assert!(!mark(&mut data, 5));
        let mut data = named("");
        data[31] = 1;
        assert_eq!((named_backend(&data), join(1, &data)), (None, None), "without a name");
        let mut long = named(&"n".repeat(30));
        long[31] = 1;
        assert_eq!((named_backend(&long), join(1, &long)), (None, None), "no room for a tag");
        assert_eq!(named_backend(&[7; USER_DATA_BYTES]), Some(&[7; 32][..]), "as ever");
    }
}

//! How a game process registers itself: what it says to the gateway's announce socket, and what it
//! is answered.
//!
//! The socket lies beside the workers' in `run_dir`, and keeps messages apart as theirs do. Each
//! message is one record: a header as of the bundle link, and a body. A process says what it is as
//! often as that changes; the latest holds. It is registered for as long as its connection lives.
//!
//! Both records begin with a version. A later version appends fields and changes none, so whoever
//! reads passes over what stands behind the fields that it knows: no version has to be agreed on.

use std::fmt;

use crate::bundle::{BUNDLE_BYTES_MAX, HEADER_BYTES};

/// The version of both records that this code writes.
pub const ANNOUNCE_VERSION: u16 = 1;

/// The socket's name in `run_dir`.
pub const ANNOUNCE_SOCKET: &str = "announce.sock";

/// Longest name of a backend: the last of the 32 bytes that a token has for it is a NUL.
pub const BACKEND_BYTES_MAX: usize = 31;

/// Longest name of a group or a label.
pub const NAME_BYTES_MAX: usize = 64;

/// Longest value of a label.
pub const VALUE_BYTES_MAX: usize = 255;

/// Most labels.
pub const LABELS_MAX: usize = 32;

/// Most slots.
pub const SLOTS_MAX: u32 = 1_000_000;

/// Longest message, in both directions.
pub const ANNOUNCE_BYTES_MAX: usize = BUNDLE_BYTES_MAX;

/// What a game process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Which listeners of the fleet lead to it.
    pub group: String,
    /// How many players it takes.
    pub slots: u32,
    /// How many it has; `None` to have the gateway count them.
    pub players: Option<u32>,
    /// What it is ready for.
    pub state: State,
    /// What a matchmaker can choose it by: names and values.
    pub labels: Vec<(String, String)>,
}

/// What a game process is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Not yet for players.
    Starting = 0,
    /// For anybody.
    Ready = 1,
    /// For those whom a matchmaker has sent.
    Allocated = 2,
    /// For those who are there.
    Draining = 3,
}

/// What has become of an announcement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Standing {
    /// Nothing yet: the gateway is not there, or cannot reach the fleet now.
    #[default]
    Waiting = 0,
    /// The process stands in the fleet.
    Registered = 1,
    /// Another process has the name, at this gateway or at another one.
    NameTaken = 2,
    /// A `[[backend]]` in the gateway's config has the name.
    NameInConfig = 3,
    /// The gateway takes no more game processes of the fleet.
    TooMany = 4,
    /// The process's user may not be a backend of this gateway.
    Unauthorised = 5,
    /// The gateway does not understand what it was told.
    Invalid = 6,
    /// Refused, for a reason that this version has no name for.
    Refused = 255,
}

impl Announcement {
    /// A process of a group that is ready for anybody.
    pub fn new(group: impl Into<String>, slots: u32) -> Self {
        let (group, labels) = (group.into(), Vec::new());
        Self { group, slots, players: None, state: State::Ready, labels }
    }

    /// With another state.
    #[must_use]
    pub const fn state(mut self, state: State) -> Self {
        self.state = state;
        self
    }

    /// With so many players, where the gateway is not to count them.
    #[must_use]
    pub const fn players(mut self, players: u32) -> Self {
        self.players = Some(players);
        self
    }

    /// With a label more.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// The record that says this of a process: by its name, and by a number that no other start of
    /// it has. `None` where a field cannot be said.
    pub fn encode(&self, name: &str, instance: u64) -> Option<Vec<u8>> {
        let are_valid = self.labels.iter().all(|(name, value)| is_name(name) && is_value(value));
        let is_valid = is_name(name)
            && name.len() <= BACKEND_BYTES_MAX
            && is_name(&self.group)
            && (1..=SLOTS_MAX).contains(&self.slots)
            && self.labels.len() <= LABELS_MAX
            && are_valid
            && !has_twice(&self.labels);
        if !is_valid {
            return None;
        }
        let mut record = vec![0; HEADER_BYTES];
        record.extend(ANNOUNCE_VERSION.to_le_bytes());
        record.extend([self.state as u8, self.labels.len() as u8]);
        record.extend(self.slots.to_le_bytes());
        record.extend(self.players.unwrap_or(UNCOUNTED).to_le_bytes());
        record.extend(instance.to_le_bytes());
        let labels = self.labels.iter().flat_map(|(name, value)| [name, value]);
        for text in [name, &self.group].into_iter().chain(labels.map(String::as_str)) {
            record.push(text.len() as u8);
            record.extend(text.as_bytes());
        }
        let len = u16::try_from(record.len()).ok()?;
        record[..2].copy_from_slice(&len.to_le_bytes());
        record[2] = KIND_ANNOUNCE;
        Some(record)
    }
}

/// An announcement as a gateway reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Which process.
    pub name: String,
    /// Which start of it.
    pub instance: u64,
    /// What it is.
    pub what: Announcement,
}

impl Announced {
    /// Reads one message; `None` where it is no announcement.
    pub fn decode(message: &[u8]) -> Option<Self> {
        let mut body = Body(body_of(message, KIND_ANNOUNCE)?);
        let [state, label_count] = *body.take::<2>()?;
        let slots = u32::from_le_bytes(*body.take()?);
        let players = u32::from_le_bytes(*body.take()?);
        let instance = u64::from_le_bytes(*body.take()?);
        let (name, group) = (body.text()?, body.text()?);
        let mut labels = Vec::new();
        for _ in 0..label_count {
            labels.push((body.text()?.to_owned(), body.text()?.to_owned()));
        }
        let what = Announcement {
            group: group.to_owned(),
            slots,
            players: (players != UNCOUNTED).then_some(players),
            state: State::from_u8(state)?,
            labels,
        };
        // The same rules as for who writes it.
        what.encode(name, instance)?;
        Some(Self { name: name.to_owned(), instance, what })
    }
}

impl State {
    const ALL: [Self; 4] = [Self::Starting, Self::Ready, Self::Allocated, Self::Draining];

    /// The state with this number.
    pub const fn from_u8(number: u8) -> Option<Self> {
        if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
    }
}

impl Standing {
    const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Registered,
        Self::NameTaken,
        Self::NameInConfig,
        Self::TooMany,
        Self::Unauthorised,
        Self::Invalid,
    ];

    /// The standing with this number.
    pub const fn from_u8(number: u8) -> Self {
        if (number as usize) < Self::ALL.len() { Self::ALL[number as usize] } else { Self::Refused }
    }

    /// The record that tells it.
    pub fn encode(self) -> [u8; STANDING_BYTES] {
        let [low, high] = (STANDING_BYTES as u16).to_le_bytes();
        let [version, later] = ANNOUNCE_VERSION.to_le_bytes();
        [low, high, KIND_STANDING, 0, version, later, self as u8]
    }

    /// Reads one message; `None` where it is no answer.
    pub fn decode(message: &[u8]) -> Option<Self> {
        let [number] = *Body(body_of(message, KIND_STANDING)?).take::<1>()?;
        Some(Self::from_u8(number))
    }

    /// What this means, for logs.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Waiting => "waits for the gateway and its fleet",
            Self::Registered => "registered",
            Self::NameTaken => "another process has the name",
            Self::NameInConfig => "the gateway's config has a [[backend]] of the name",
            Self::TooMany => "the gateway takes no more game processes (fleet.max_backends)",
            Self::Unauthorised => {
                "the user may not: run as the gateway's, or list this one in fleet.allow_uids"
            }
            Self::Invalid => "the gateway does not understand the announcement",
            Self::Refused => "refused for another reason",
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What is behind the version in a message that is one record of this kind, of any version.
fn body_of(message: &[u8], kind: u8) -> Option<&[u8]> {
    let (header, body) = message.split_first_chunk::<HEADER_BYTES>()?;
    let len = usize::from(u16::from_le_bytes([header[0], header[1]]));
    let is_it = len == message.len() && header[2] == kind && header[3] == 0;
    let (version, body) = body.split_first_chunk::<2>().filter(|_| is_it)?;
    (u16::from_le_bytes(*version) >= 1).then_some(body)
}

/// What is left of a body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(taken)
    }

    fn text(&mut self) -> Option<&'a str> {
        let [len] = *self.take::<1>()?;
        let (text, rest) = self.0.split_at_checked(len.into())?;
        self.0 = rest;
        str::from_utf8(text).ok()
    }
}

/// Whether this may be a name: letters, digits, `.`, `_` and `-`, beginning with a letter or digit.
fn is_name(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && text.len() <= NAME_BYTES_MAX && text.as_bytes().iter().all(is_inner)
}

fn is_value(text: &str) -> bool {
    text.len() <= VALUE_BYTES_MAX && !text.chars().any(char::is_control)
}

fn has_twice(labels: &[(String, String)]) -> bool {
    labels.iter().enumerate().any(|(at, (name, _))| labels[..at].iter().any(|it| it.0 == *name))
}

/// Bytes of an answer.
pub const STANDING_BYTES: usize = HEADER_BYTES + 3;

/// Stands in the place of a number of players.
const UNCOUNTED: u32 = u32::MAX;

/// Not those of records on bundle links, so that neither is taken for the other.
const KIND_ANNOUNCE: u8 = 112;
const KIND_STANDING: u8 = 113;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arena() -> Announcement {
        let what = Announcement::new("arena", 64).state(State::Allocated).players(7);
        what.label("map", "dust, at night").label("mode", "")
    }

    #[test]
    fn what_is_said_is_read() {
        let record = arena().encode("arena-1", 9).expect("it can be said");
        let read = Announced::decode(&record).expect("it can be read");
        assert_eq!(read, Announced { name: "arena-1".to_owned(), instance: 9, what: arena() });
        for state in State::ALL {
            let record = Announcement::new("g", 1).state(state).encode("b", 0).expect("valid");
            let what = Announced::decode(&record).expect("it can be read").what;
            assert_eq!((what.state, what.players), (state, None));
        }
        for standing in Standing::ALL {
            assert_eq!(Standing::decode(&standing.encode()), Some(standing));
        }
        assert_eq!(Standing::from_u8(77), Standing::Refused);
    }

    #[test]
    fn every_byte_stands_where_the_document_says() {
        let record = Announcement::new("g", 2).label("m", "d").encode("b1", 3);
        let bytes = [
            &[34, 0, 112, 0, 1, 0, 1, 1, 2, 0, 0, 0, 255, 255, 255, 255, 3][..],
            &[0, 0, 0, 0, 0, 0, 0, 2, b'b', b'1', 1, b'g', 1, b'm', 1, b'd'],
        ];
        let mut bytes = bytes.concat();
        bytes[0] = bytes.len() as u8;
        assert_eq!(record, Some(bytes));
        assert_eq!(Standing::Registered.encode(), [7, 0, 113, 0, 1, 0, 1]);
    }

    #[test]
    fn a_later_version_may_append() {
        let mut record = arena().encode("arena-1", 9).expect("it can be said");
        record.extend([1, 2, 3]);
        record[4] = 9;
        let len = record.len() as u16;
        record[..2].copy_from_slice(&len.to_le_bytes());
        assert!(Announced::decode(&record).is_some());
        assert_eq!(Standing::decode(&[9, 0, 113, 0, 2, 0, 1, 5, 5]), Some(Standing::Registered));
    }

    #[test]
    fn what_cannot_be_is_not_said() {
        let long = "x".repeat(300);
        for wrong in [
            Announcement::new("", 1),
            Announcement::new("a/b", 1),
            Announcement::new("a", 0),
            Announcement::new("a", SLOTS_MAX + 1),
            Announcement::new("a", 1).label("-", "x"),
            Announcement::new("a", 1).label("x", "\n"),
            Announcement::new("a", 1).label("x", long.clone()),
            Announcement::new("a", 1).label("x", "1").label("x", "2"),
            (0..=LABELS_MAX).fold(Announcement::new("a", 1), |it, n| it.label(format!("l{n}"), "")),
        ] {
            assert_eq!(wrong.encode("b", 1), None, "{wrong:?}");
        }
        for name in ["", ".b", &long[..32]] {
            assert_eq!(Announcement::new("a", 1).encode(name, 1), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(mut message in prop::collection::vec(any::<u8>(), 0..200)) {
            if message.len() > 6 {
                let len = message.len() as u16;
                message[..2].copy_from_slice(&len.to_le_bytes());
                (message[2], message[3]) = (KIND_ANNOUNCE, 0);
            }
            if let Some(read) = Announced::decode(&message) {
                let again = read.what.encode(&read.name, read.instance).expect("it was read");
                prop_assert_eq!(Announced::decode(&again), Some(read));
            }
            let _ = Standing::decode(&message);
        }

        #[test]
        fn a_byte_that_is_cut_off_is_missed(cut in 0usize..30) {
            let record = Announcement::new("group", 2).encode("name", 3).expect("valid");
            prop_assume!(cut < record.len());
            let mut short = record[..cut].to_vec();
            if let Some(len) = short.get_mut(..2) {
                len.copy_from_slice(&(cut as u16).to_le_bytes());
            }
            prop_assert_eq!(Announced::decode(&short), None);
        }
    }
}

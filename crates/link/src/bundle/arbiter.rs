//! What a gateway and an agent say to each other of sessions that another gateway of a cluster may
//! go on with. The agent says which gateway has each: it is their arbiter (`ringgate_cluster`).
//!
//! None of it reaches a game process. Whoever does not know these records passes over them, and
//! whatever is not exactly one of them is of a later version.

use super::fields::{Body, Field, Fields, fields, put, records, writers};
use super::{Frame, LONG_PAYLOAD_BYTES_MAX, RecordError, SessionId, Writer, kind};

/// A session's name in its cluster, which it keeps whichever gateway has it.
pub type ClusterId = [u8; CLUSTER_ID_BYTES];

/// Bytes of a [`ClusterId`].
pub const CLUSTER_ID_BYTES: usize = 16;

/// Longest window in a [`Standing`].
pub const WINDOW_BYTES_MAX: usize = 160;

/// What a gateway tells an arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToArbiter<'a> {
    /// The session whose opening follows is this one of the cluster.
    Clustered(Clustered),
    /// The gateway wants to have a session that another one had.
    Claim(ClusterClaim),
    /// Another gateway has a session that this one has given away, and nothing more goes to its
    /// player from here.
    Given {
        /// Which session.
        id: ClusterId,
        /// As whom the gateway has had it.
        tenure: u32,
    },
    /// A session that this gateway has had is over for good, whichever gateway has it by now: its
    /// player has left, or somebody has ended it here. Said until the arbiter answers that it has
    /// ended.
    Over {
        /// Which session.
        id: ClusterId,
        /// As whom the gateway has had it.
        tenure: u32,
    },
    /// Whose the session is whose opening follows.
    Plays(Plays),
    /// The player of a session is there, whose messages the agent delivers: it has been heard since
    /// it was let in.
    There(SessionId),
    /// The gateway has slept, and asks which of the sessions that it has announced on this link
    /// are still its own. What is in it comes back in the answer.
    Woke(u64),
    /// A payload of a player of such a session.
    Numbered {
        /// Whose.
        session: SessionId,
        /// The number of the packet that it came in.
        number: u64,
        /// 1 to 1472 bytes.
        bytes: &'a [u8],
    },
}

/// A session of a cluster, as its gateway announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clustered {
    /// What it is called on this link.
    pub session: SessionId,
    /// What it is called in its cluster.
    pub id: ClusterId,
    /// As whom the gateway has it: its term, and below that its incarnation.
    pub tenure: u32,
    /// When its token expires, in seconds since 1970.
    pub token_until_s: u64,
    /// After how long a silence its player is given up, in milliseconds; 0 for never.
    pub timeout_ms: u32,
    /// Where its player gets whole messages, and the agent is the player's other end of the
    /// delivery layer.
    pub delivery: Option<AgentDelivery>,
}

/// How an agent is the other end of the delivery layer for a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentDelivery {
    /// After how long a silence of its own it says that it is there, in milliseconds.
    pub keep_alive_ms: u32,
    /// The session is announced for the first time: nothing of the layer was said in it.
    pub begins: bool,
}

/// A session of a player who is known by an address, and has one session at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plays {
    /// What it is called on this link.
    pub session: SessionId,
    /// What it is called in its cluster.
    pub id: ClusterId,
    /// As whom the gateway has it.
    pub tenure: u32,
    /// What all gateways of the cluster call the player.
    pub player: [u8; 16],
}

/// A gateway wants to go on with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterClaim {
    /// Which.
    pub id: ClusterId,
    /// As whom the gateway would have it.
    pub tenure: u32,
    /// Who has had it, as far as the gateway knows.
    pub over: u32,
    /// After how long a silence its player is given up, in milliseconds; 0 for never.
    pub timeout_ms: u32,
    /// Whoever has it gives it away.
    pub is_offered: bool,
}

/// What an arbiter tells a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromArbiter<'a> {
    /// Such sessions of this link may be of a cluster. Right behind the hello, one behind the
    /// other.
    Arbitrates(Arbitrated),
    /// Whether so much waits for the link's game process that no message should follow.
    Crowded(bool),
    /// How it stands with a session.
    Standing(Standing<'a>),
    /// The gateway was told of each session that is not its own any more, up to when it woke. With
    /// what was in its question.
    Sure(u64),
}

/// Sessions that an arbiter may arbitrate, in the order in which it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arbitrated {
    /// Those of netcode.
    Netcode,
    /// Those of plain players, and of Unreal's.
    Plain,
    /// Those of players who get whole messages: the agent delivers them.
    Delivery,
}

impl Arbitrated {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Netcode, Self::Plain, Self::Delivery];

    const fn kind(self) -> u8 {
        kind::ARBITRATES[self as usize]
    }
}

/// How it stands with a session of a cluster, for the gateway that has asked, or that has it no
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing<'a> {
    /// Which.
    pub id: ClusterId,
    /// As whom the gateway has asked, or has had it.
    pub tenure: u32,
    /// How.
    pub reply: ArbiterReply<'a>,
}

/// What an arbiter replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArbiterReply<'a> {
    /// The gateway has it. Which packets of its player were handed over, as
    /// `ringgate_core::proto::replay::Window` is carried; nothing where none was.
    Granted(&'a [u8]),
    /// Another gateway has it.
    Fenced {
        /// As whom.
        holder: u32,
    },
    /// It has ended.
    Ended,
    /// The arbiter has no room for it.
    Full,
    /// Its player has another session.
    Second {
        /// Which.
        first: ClusterId,
        /// As whom a gateway has that one.
        holder: u32,
    },
}

impl<'a> ToArbiter<'a> {
    /// Decodes a record, if it is one of these.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Option<Self> {
        match (frame.flags(), frame.kind()) {
            (0, kind::NUMBERED) => {
                let mut body = Body::of(frame);
                let (session, number) = (body.take().ok()?, body.take().ok()?);
                let bytes = body.take_payload(LONG_PAYLOAD_BYTES_MAX).ok()?;
                Some(Self::Numbered { session, number, bytes })
            }
            (0, kind @ (kind::CLAIM | kind::TAKE)) => {
                Body::of(frame).whole(|body| body.take_claim(kind == kind::TAKE)).ok()
            }
            _ => Self::fixed(frame).ok()?,
        }
    }
}

impl<'a> FromArbiter<'a> {
    /// Decodes a record, if it is one of these.
    pub fn decode(frame: Frame<'a>) -> Option<Self> {
        match (frame.flags(), frame.kind(), frame.body()) {
            (0, kind, []) => {
                let said = Arbitrated::ALL.into_iter().find(|it| it.kind() == kind);
                said.map(Self::Arbitrates)
            }
            (0, kind::STANDING, _) => Body::of(frame).whole(Body::take_standing).ok(),
            _ => Self::fixed(frame).ok()?,
        }
    }
}

fields!(Clustered { session, id, tenure, token_until_s, timeout_ms, delivery });
fields!(AgentDelivery { keep_alive_ms, begins });
fields!(Plays { session, id, tenure, player });

records! { ToArbiter:
    /// To an arbiter: what a session is whose opening follows.
    CLUSTERED: clustered(it: &Clustered) => Self::Clustered(it);
    /// To an arbiter that delivers: the player of a session is there.
    THERE: there(session: SessionId) => Self::There(session);
    /// To an arbiter: whose a session is whose opening follows.
    PLAYS: plays(it: &Plays) => Self::Plays(it);
    /// To an arbiter: nothing more goes to the player of a session that was given away.
    GIVEN: given(id: &ClusterId, tenure: u32) => Self::Given { id, tenure };
    /// To an arbiter: a session is over that this gateway has had.
    OVER: over(id: &ClusterId, tenure: u32) => Self::Over { id, tenure };
    /// To an arbiter: the gateway has slept.
    WOKE: woke(number: u64) => Self::Woke(number);
}

records! { FromArbiter:
    /// From an arbiter: the gateway was told of all that is not its own any more.
    SURE: sure(number: u64) => Self::Sure(number);
    /// Writes [`FromArbiter::Crowded`]. `false` where there is no room.
    CROWDED: crowded(is_crowded: bool) => Self::Crowded(is_crowded);
}

impl Writer<'_> {
    /// To an arbiter: a player's payload with its packet's number.
    #[inline]
    #[must_use]
    pub fn numbered(&mut self, session: SessionId, number: u64, bytes: &[u8]) -> bool {
        !bytes.is_empty()
            && bytes.len() <= LONG_PAYLOAD_BYTES_MAX
            && put!(self, [kind::NUMBERED, 0]; session, number, bytes)
    }

    /// To an arbiter: the gateway wants to go on with a session.
    #[must_use]
    pub fn claim(&mut self, it: &ClusterClaim) -> bool {
        let kind = if it.is_offered { kind::TAKE } else { kind::CLAIM };
        put!(self, [kind, 0]; it.id, it.tenure, it.over, it.timeout_ms)
    }

    /// From an arbiter, right behind the hello: what it arbitrates.
    #[must_use]
    pub fn arbitrates(&mut self, which: Arbitrated) -> bool {
        put!(self, [which.kind(), 0];)
    }

    /// From an arbiter: how it stands with a session.
    #[must_use]
    pub fn standing(&mut self, it: &Standing<'_>) -> bool {
        let (reply, holder, bytes) = match &it.reply {
            ArbiterReply::Granted(window) => (GRANTED, None, *window),
            ArbiterReply::Fenced { holder } => (FENCED, Some(*holder), &[][..]),
            ArbiterReply::Ended => (ENDED, None, &[][..]),
            ArbiterReply::Full => (FULL, None, &[][..]),
            ArbiterReply::Second { first, holder } => (SECOND, Some(*holder), &first[..]),
        };
        bytes.len() <= WINDOW_BYTES_MAX
            && put!(self, [kind::STANDING, 0]; it.id, it.tenure, reply, bytes, holder)
    }
}

impl<'a> Body<'a> {
    fn take_claim(&mut self, is_offered: bool) -> Result<ToArbiter<'a>, RecordError> {
        let (id, tenure, over, timeout_ms) =
            (self.take()?, self.take()?, self.take()?, self.take()?);
        Ok(ToArbiter::Claim(ClusterClaim { id, tenure, over, timeout_ms, is_offered }))
    }

    fn take_standing(&mut self) -> Result<FromArbiter<'a>, RecordError> {
        let (id, tenure) = (self.take()?, self.take()?);
        let reply = match self.take()? {
            GRANTED => ArbiterReply::Granted(self.take()?),
            FENCED => ArbiterReply::Fenced { holder: self.take()? },
            ENDED => ArbiterReply::Ended,
            FULL => ArbiterReply::Full,
            SECOND => ArbiterReply::Second { first: self.take()?, holder: self.take()? },
            _ => return Err(RecordError::BodyLength),
        };
        if matches!(reply, ArbiterReply::Granted(window) if window.len() > WINDOW_BYTES_MAX) {
            return Err(RecordError::BodyLength);
        }
        Ok(FromArbiter::Standing(Standing { id, tenure, reply }))
    }
}

const GRANTED: u8 = 1;
const FENCED: u8 = 2;
const ENDED: u8 = 3;
const FULL: u8 = 4;
const SECOND: u8 = 5;

#[cfg(test)]
mod tests {
    use super::super::{Frames, HEADER_BYTES, SESSION_BYTES, ToGame, ToGateway};
    use super::*;

    const ID: ClusterId = [7; 16];

    fn session() -> SessionId {
        SessionId::from_u64(0x0102).expect("it is not 0")
    }

    fn written(write: impl FnOnce(&mut Writer<'_>) -> bool) -> Vec<u8> {
        let mut buf = [0; 2000];
        let mut writer = Writer::new(&mut buf);
        assert!(write(&mut writer));
        writer.bytes().to_vec()
    }

    fn only(bytes: &[u8]) -> Frame<'_> {
        Frames::new(bytes).next().expect("a record").expect("whole")
    }

    fn all() -> [Vec<u8>; 20] {
        let clustered = |delivery| Clustered {
            session: session(),
            id: ID,
            tenure: 5,
            token_until_s: 6,
            timeout_ms: 7,
            delivery,
        };
        let delivery = AgentDelivery { keep_alive_ms: 100, begins: true };
        let claim =
            |is_offered| ClusterClaim { id: ID, tenure: 5, over: 4, timeout_ms: 7, is_offered };
        let plays = Plays { session: session(), id: ID, tenure: 5, player: [4; 16] };
        let standing = |reply| written(|it| it.standing(&Standing { id: ID, tenure: 5, reply }));
        [
            written(|it| it.numbered(session(), 9, b"hi")),
            written(|it| it.clustered(&clustered(None))),
            written(|it| it.claim(&claim(false))),
            written(|it| it.claim(&claim(true))),
            written(|it| it.given(&ID, 5)),
            written(|it| it.over(&ID, 5)),
            written(|it| it.woke(6)),
            written(|it| it.plays(&plays)),
            written(|it| it.clustered(&clustered(Some(delivery)))),
            written(|it| it.there(session())),
            written(|it| it.arbitrates(Arbitrated::Netcode)),
            standing(ArbiterReply::Granted(&[1; WINDOW_BYTES_MAX])),
            standing(ArbiterReply::Fenced { holder: 8 }),
            standing(ArbiterReply::Ended),
            standing(ArbiterReply::Full),
            standing(ArbiterReply::Second { first: [3; 16], holder: 8 }),
            written(|it| it.sure(6)),
            written(|it| it.arbitrates(Arbitrated::Plain)),
            written(|it| it.arbitrates(Arbitrated::Delivery)),
            written(|it| it.crowded(true)),
        ]
    }

    #[test]
    fn each_record_has_the_bytes_that_are_written_down() {
        let id = [7; 16];
        let of = |kind: u8, parts: &[&[u8]]| {
            let body = parts.concat();
            [&[(body.len() + HEADER_BYTES) as u8, 0, kind, 0][..], &body].concat()
        };
        let ours = [2, 1, 0, 0, 0, 0, 0, 0];
        let [numbered, clustered, claim, take, given, over, rest @ ..] = all();
        let [woke, plays, delivered, there, rest @ ..] = rest;
        let [arbitrates, granted, fenced, ended, full, second, rest @ ..] = rest;
        let [sure, arbitrates_plain, arbitrates_delivery, crowded] = rest;
        assert_eq!(crowded, of(156, &[&[1]]));
        let six = [6, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!((woke, sure), (of(143, &[&six]), of(151, &[&six])));
        assert_eq!(numbered, of(137, &[&ours, &[9, 0, 0, 0, 0, 0, 0, 0], b"hi"]));
        let rest = [5, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0];
        assert_eq!(clustered, of(138, &[&ours, &id, &rest]));
        assert_eq!(delivered, of(138, &[&ours, &id, &rest, &[100, 0, 0, 0, 1]]));
        assert_eq!((there, arbitrates_delivery), (of(155, &[&ours]), of(154, &[])));
        assert_eq!(claim, of(139, &[&id, &[5, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0]]));
        assert_eq!(take, of(140, &[&id, &[5, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0]]));
        assert_eq!(given, of(141, &[&id, &[5, 0, 0, 0]]));
        assert_eq!(over, of(142, &[&id, &[5, 0, 0, 0]]));
        assert_eq!((arbitrates, arbitrates_plain), (of(149, &[]), of(152, &[])));
        let head = [5, 0, 0, 0];
        assert_eq!(granted, of(150, &[&id, &head, &[1], &[1; WINDOW_BYTES_MAX]]));
        assert_eq!(fenced, of(150, &[&id, &head, &[2, 8, 0, 0, 0]]));
        assert_eq!(plays, of(153, &[&ours, &id, &head, &[4; 16]]));
        assert_eq!(second, of(150, &[&id, &head, &[5], &[3; 16], &[8, 0, 0, 0]]));
        assert_eq!((ended, full), (of(150, &[&id, &head, &[3]]), of(150, &[&id, &head, &[4]])));
    }

    #[test]
    fn each_is_read_as_it_was_written_and_passed_over_by_who_does_not_know_it() {
        for (at, bytes) in all().iter().enumerate() {
            let frame = only(bytes);
            assert_eq!(frame.may_be_lost(), at == 0);
            assert_eq!(frame.payloads(), u64::from(at == 0));
            assert_eq!(frame.payload_session(), (at == 0).then(session));
            let (to, from) = (ToArbiter::decode(frame), FromArbiter::decode(frame));
            assert_eq!((to.is_some(), from.is_some()), (at < 10, at >= 10));
            let again = match (to, from) {
                (Some(ToArbiter::Numbered { session, number, bytes }), _) => {
                    written(|it| it.numbered(session, number, bytes))
                }
                (Some(ToArbiter::Clustered(it)), _) => written(|writer| writer.clustered(&it)),
                (Some(ToArbiter::Given { id, tenure }), _) => written(|it| it.given(&id, tenure)),
                (Some(ToArbiter::Over { id, tenure }), _) => written(|it| it.over(&id, tenure)),
                (Some(ToArbiter::Claim(it)), _) => written(|writer| writer.claim(&it)),
                (Some(ToArbiter::Plays(it)), _) => written(|writer| writer.plays(&it)),
                (Some(ToArbiter::Woke(it)), _) => written(|writer| writer.woke(it)),
                (Some(ToArbiter::There(it)), _) => written(|writer| writer.there(it)),
                (_, Some(FromArbiter::Sure(it))) => written(|writer| writer.sure(it)),
                (_, Some(FromArbiter::Arbitrates(it))) => written(|writer| writer.arbitrates(it)),
                (_, Some(FromArbiter::Crowded(it))) => written(|writer| writer.crowded(it)),
                (_, Some(FromArbiter::Standing(it))) => written(|writer| writer.standing(&it)),
                (None, None) => unreachable!(),
            };
            assert_eq!(again, *bytes);
            assert_eq!(ToGame::decode(frame), Ok::<_, RecordError>(ToGame::Unknown(frame)));
            assert_eq!(ToGateway::decode(frame), Ok::<_, RecordError>(ToGateway::Unknown(frame)));
        }
    }

    #[test]
    fn what_is_not_exactly_one_of_them_is_none() {
        for bytes in all() {
            let changed = |len: usize, flags: u8| {
                let mut bytes = bytes.clone();
                bytes.resize(len, 9);
                (bytes[0], bytes[3]) = (len as u8, flags);
                let frame = only(&bytes);
                ToArbiter::decode(frame).is_some() || FromArbiter::decode(frame).is_some()
            };
            assert!(!changed(bytes.len(), 1));
            let is_open = bytes[2] == kind::NUMBERED;
            assert_eq!(changed(bytes.len() + 1, 0), is_open, "{bytes:?}");
            let is_window = bytes[2] == kind::STANDING && bytes[24] == GRANTED;
            // One without what the agent delivers is five bytes shorter.
            let without = HEADER_BYTES + SESSION_BYTES + CLUSTER_ID_BYTES + 4 + 8 + 4;
            let is_one = |len: &usize| bytes[2] == kind::CLUSTERED && *len == without;
            let mut shorter = (HEADER_BYTES..bytes.len()).filter(|len| !is_one(len));
            if !is_open && !is_window {
                assert!(!shorter.any(|len| changed(len, 0)), "{bytes:?}");
            }
        }
        let mut nobodys = written(|it| it.numbered(session(), 9, b"hi"));
        nobodys[4..12].fill(0);
        assert_eq!(ToArbiter::decode(only(&nobodys)), None);
        let long = [0; LONG_PAYLOAD_BYTES_MAX + 1];
        let mut buf = [0; 2000];
        assert!(!Writer::new(&mut buf).numbered(session(), 9, &long));
        assert!(!Writer::new(&mut buf).numbered(session(), 9, &[]));
    }
}

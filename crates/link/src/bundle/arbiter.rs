//! What a gateway and an agent say to each other of sessions that another gateway of a cluster may
//! go on with. The agent says which gateway has each: it is their arbiter (`ringgate_cluster`).
//!
//! None of it reaches a game process. Whoever does not know these records passes over them, and
//! whatever is not exactly one of them is of a later version.

use super::{Frame, LONG_PAYLOAD_BYTES_MAX, SESSION_BYTES, SessionId, Writer, kind};

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
    /// Sessions of this link may be of a cluster. Right behind the hello.
    Arbitrates,
    /// So may those of plain players. Right behind that.
    ArbitratesPlain,
    /// So may those of players who get whole messages: the agent delivers them. Right behind that.
    ArbitratesDelivery,
    /// Whether so much waits for the link's game process that no message should follow.
    Crowded(bool),
    /// How it stands with a session.
    Standing(Standing<'a>),
    /// The gateway was told of each session that is not its own any more, up to when it woke. With
    /// what was in its question.
    Sure(u64),
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
        let body = frame.body();
        if frame.flags() != 0 {
            return None;
        }
        match frame.kind() {
            kind::NUMBERED => {
                let (session, body) = body.split_first_chunk()?;
                let (number, bytes) = body.split_first_chunk()?;
                let session = SessionId::from_u64(u64::from_le_bytes(*session))?;
                let fits = !bytes.is_empty() && bytes.len() <= LONG_PAYLOAD_BYTES_MAX;
                let number = u64::from_le_bytes(*number);
                fits.then_some(Self::Numbered { session, number, bytes })
            }
            kind::CLUSTERED => Clustered::decode(body).map(Self::Clustered),
            kind::CLAIM => ClusterClaim::decode(body, false).map(Self::Claim),
            kind::GIVEN => had(body).map(|(id, tenure)| Self::Given { id, tenure }),
            kind::OVER => had(body).map(|(id, tenure)| Self::Over { id, tenure }),
            kind::WOKE => body.try_into().ok().map(|it| Self::Woke(u64::from_le_bytes(it))),
            kind::TAKE => ClusterClaim::decode(body, true).map(Self::Claim),
            kind::PLAYS => Plays::decode(body).map(Self::Plays),
            kind::THERE => {
                let session = u64::from_le_bytes(body.try_into().ok()?);
                SessionId::from_u64(session).map(Self::There)
            }
            _ => None,
        }
    }
}

impl<'a> FromArbiter<'a> {
    /// Decodes a record, if it is one of these.
    pub fn decode(frame: Frame<'a>) -> Option<Self> {
        let body = frame.body();
        match (frame.flags(), frame.kind()) {
            (0, kind::ARBITRATES) if body.is_empty() => Some(Self::Arbitrates),
            (0, kind::ARBITRATES_PLAIN) if body.is_empty() => Some(Self::ArbitratesPlain),
            (0, kind::ARBITRATES_DELIVERY) if body.is_empty() => Some(Self::ArbitratesDelivery),
            (0, kind::CROWDED) if body == [0] || body == [1] => Some(Self::Crowded(body == [1])),
            (0, kind::STANDING) => Standing::decode(body).map(Self::Standing),
            (0, kind::SURE) => body.try_into().ok().map(|it| Self::Sure(u64::from_le_bytes(it))),
            _ => None,
        }
    }
}

impl Clustered {
    fn decode(mut body: &[u8]) -> Option<Self> {
        let it = Self {
            session: SessionId::from_u64(u64::from_le_bytes(take(&mut body)?))?,
            id: take(&mut body)?,
            tenure: u32::from_le_bytes(take(&mut body)?),
            token_until_s: u64::from_le_bytes(take(&mut body)?),
            timeout_ms: u32::from_le_bytes(take(&mut body)?),
            delivery: if body.is_empty() { None } else { Some(AgentDelivery::decode(&mut body)?) },
        };
        body.is_empty().then_some(it)
    }
}

impl AgentDelivery {
    fn decode(body: &mut &[u8]) -> Option<Self> {
        let keep_alive_ms = u32::from_le_bytes(take(body)?);
        let begins = match take(body)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        Some(Self { keep_alive_ms, begins })
    }
}

impl Plays {
    fn decode(mut body: &[u8]) -> Option<Self> {
        let it = Self {
            session: SessionId::from_u64(u64::from_le_bytes(take(&mut body)?))?,
            id: take(&mut body)?,
            tenure: u32::from_le_bytes(take(&mut body)?),
            player: take(&mut body)?,
        };
        body.is_empty().then_some(it)
    }
}

impl ClusterClaim {
    fn decode(mut body: &[u8], is_offered: bool) -> Option<Self> {
        let it = Self {
            id: take(&mut body)?,
            tenure: u32::from_le_bytes(take(&mut body)?),
            over: u32::from_le_bytes(take(&mut body)?),
            timeout_ms: u32::from_le_bytes(take(&mut body)?),
            is_offered,
        };
        body.is_empty().then_some(it)
    }
}

impl<'a> Standing<'a> {
    fn decode(mut body: &'a [u8]) -> Option<Self> {
        let (id, tenure) = (take(&mut body)?, u32::from_le_bytes(take(&mut body)?));
        let [reply] = take(&mut body)?;
        let reply = match (reply, body) {
            (GRANTED, window) if window.len() <= WINDOW_BYTES_MAX => ArbiterReply::Granted(window),
            (FENCED, [a, b, c, d]) => {
                ArbiterReply::Fenced { holder: u32::from_le_bytes([*a, *b, *c, *d]) }
            }
            (ENDED, []) => ArbiterReply::Ended,
            (FULL, []) => ArbiterReply::Full,
            (SECOND, mut body) => {
                let (first, holder) = (take(&mut body)?, u32::from_le_bytes(take(&mut body)?));
                body.is_empty().then_some(ArbiterReply::Second { first, holder })?
            }
            _ => return None,
        };
        Some(Self { id, tenure, reply })
    }
}

impl Writer<'_> {
    /// To an arbiter: a player's payload with its packet's number.
    #[inline]
    #[must_use]
    pub fn numbered(&mut self, session: SessionId, number: u64, bytes: &[u8]) -> bool {
        if bytes.is_empty() || bytes.len() > LONG_PAYLOAD_BYTES_MAX {
            return false;
        }
        self.record(kind::NUMBERED, SESSION_BYTES + 8 + bytes.len(), |body| {
            body.u64(session.as_u64());
            body.u64(number);
            body.bytes(bytes);
        })
    }

    /// To an arbiter: what a session is whose opening follows.
    #[must_use]
    pub fn clustered(&mut self, it: &Clustered) -> bool {
        let rest = if it.delivery.is_some() { 4 + 1 } else { 0 };
        self.record(kind::CLUSTERED, SESSION_BYTES + CLUSTER_ID_BYTES + 4 + 8 + 4 + rest, |body| {
            body.u64(it.session.as_u64());
            body.bytes(&it.id);
            body.u32(it.tenure);
            body.u64(it.token_until_s);
            body.u32(it.timeout_ms);
            if let Some(AgentDelivery { keep_alive_ms, begins }) = it.delivery {
                body.u32(keep_alive_ms);
                body.bytes(&[begins.into()]);
            }
        })
    }

    /// To an arbiter that delivers: the player of a session is there.
    #[must_use]
    pub fn there(&mut self, session: SessionId) -> bool {
        self.record(kind::THERE, SESSION_BYTES, |body| body.u64(session.as_u64()))
    }

    /// To an arbiter: whose a session is whose opening follows.
    #[must_use]
    pub fn plays(&mut self, it: &Plays) -> bool {
        self.record(kind::PLAYS, SESSION_BYTES + CLUSTER_ID_BYTES + 4 + 16, |body| {
            body.u64(it.session.as_u64());
            body.bytes(&it.id);
            body.u32(it.tenure);
            body.bytes(&it.player);
        })
    }

    /// To an arbiter: the gateway wants to go on with a session.
    #[must_use]
    pub fn claim(&mut self, it: &ClusterClaim) -> bool {
        let kind = if it.is_offered { kind::TAKE } else { kind::CLAIM };
        self.record(kind, CLUSTER_ID_BYTES + 3 * 4, |body| {
            body.bytes(&it.id);
            body.u32(it.tenure);
            body.u32(it.over);
            body.u32(it.timeout_ms);
        })
    }

    /// To an arbiter: nothing more goes to the player of a session that was given away.
    #[must_use]
    pub fn given(&mut self, id: &ClusterId, tenure: u32) -> bool {
        self.had(kind::GIVEN, id, tenure)
    }

    /// To an arbiter: a session is over that this gateway has had.
    #[must_use]
    pub fn over(&mut self, id: &ClusterId, tenure: u32) -> bool {
        self.had(kind::OVER, id, tenure)
    }

    /// To an arbiter: the gateway has slept.
    #[must_use]
    pub fn woke(&mut self, number: u64) -> bool {
        self.record(kind::WOKE, 8, |body| body.u64(number))
    }

    /// From an arbiter: the gateway was told of all that is not its own any more.
    #[must_use]
    pub fn sure(&mut self, number: u64) -> bool {
        self.record(kind::SURE, 8, |body| body.u64(number))
    }

    /// Writes [`FromArbiter::Crowded`]. `false` where there is no room.
    pub fn crowded(&mut self, is_crowded: bool) -> bool {
        self.record(kind::CROWDED, 1, |body| body.bytes(&[is_crowded.into()]))
    }

    fn had(&mut self, kind: u8, id: &ClusterId, tenure: u32) -> bool {
        self.record(kind, CLUSTER_ID_BYTES + 4, |body| {
            body.bytes(id);
            body.u32(tenure);
        })
    }

    /// From an arbiter, right behind the hello: that it is one.
    #[must_use]
    pub fn arbitrates(&mut self) -> bool {
        self.record(kind::ARBITRATES, 0, |_| ())
    }

    /// From an arbiter, right behind that: that it is one of plain players, too.
    #[must_use]
    pub fn arbitrates_plain(&mut self) -> bool {
        self.record(kind::ARBITRATES_PLAIN, 0, |_| ())
    }

    /// From an arbiter, right behind that: that it delivers the messages of players, too.
    #[must_use]
    pub fn arbitrates_delivery(&mut self) -> bool {
        self.record(kind::ARBITRATES_DELIVERY, 0, |_| ())
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
        if bytes.len() > WINDOW_BYTES_MAX {
            return false;
        }
        let rest = bytes.len() + holder.map_or(0, |_| 4);
        self.record(kind::STANDING, CLUSTER_ID_BYTES + 4 + 1 + rest, |body| {
            body.bytes(&it.id);
            body.u32(it.tenure);
            body.bytes(&[reply]);
            body.bytes(bytes);
            if let Some(holder) = holder {
                body.u32(holder);
            }
        })
    }
}

/// A session that the gateway has had, and as whom.
fn had(body: &[u8]) -> Option<(ClusterId, u32)> {
    let (id, tenure) = body.split_first_chunk()?;
    Some((*id, u32::from_le_bytes(tenure.try_into().ok()?)))
}

fn take<const BYTES: usize>(body: &mut &[u8]) -> Option<[u8; BYTES]> {
    let (field, rest) = body.split_first_chunk()?;
    *body = rest;
    Some(*field)
}

const GRANTED: u8 = 1;
const FENCED: u8 = 2;
const ENDED: u8 = 3;
const FULL: u8 = 4;
const SECOND: u8 = 5;

#[cfg(test)]
mod tests {
    use super::super::{Frames, HEADER_BYTES, RecordError, ToGame, ToGateway};
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

    /// For writers of any lifetime, which the method itself is not.
    fn arbitrates(writer: &mut Writer<'_>) -> bool {
        writer.arbitrates()
    }

    fn arbitrates_plain(writer: &mut Writer<'_>) -> bool {
        writer.arbitrates_plain()
    }

    fn arbitrates_delivery(writer: &mut Writer<'_>) -> bool {
        writer.arbitrates_delivery()
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
            written(arbitrates),
            standing(ArbiterReply::Granted(&[1; WINDOW_BYTES_MAX])),
            standing(ArbiterReply::Fenced { holder: 8 }),
            standing(ArbiterReply::Ended),
            standing(ArbiterReply::Full),
            standing(ArbiterReply::Second { first: [3; 16], holder: 8 }),
            written(|it| it.sure(6)),
            written(arbitrates_plain),
            written(arbitrates_delivery),
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
                (_, Some(FromArbiter::Arbitrates)) => written(arbitrates),
                (_, Some(FromArbiter::ArbitratesPlain)) => written(arbitrates_plain),
                (_, Some(FromArbiter::ArbitratesDelivery)) => written(arbitrates_delivery),
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

//! From bytes to records.
//!
//! Every field is read through [`Body`], which refuses to read past the record and, at the end,
//! refuses a body with bytes left over: a record that is longer than its fields means
//! something else to its writer.

use std::marker::PhantomData;
use std::net::SocketAddr;

use super::record::is_name_bytes;
use super::{
    Answer, Channel, CloseAfter, CloseReason, FAREWELL_BYTES_MAX, Frame, Frames, Goodbye,
    GoodbyeReason, Hello, LONG_PAYLOAD_BYTES_MAX, MOVE_BYTES_MAX, MULTICAST_SESSIONS_MAX,
    MessagePart, Move, MoveRefusal, Offered, Opened, OpenedPlain, PAYLOAD_BYTES_MAX, Quality,
    RecordError, SessionId, Sessions, ToGame, ToGateway, WORKERS_MAX, Welcome, address, flags,
    kind, message, moves,
};

/// The records of one datagram, decoded. An error is the last item.
#[derive(Clone, Debug)]
pub struct Reader<'a, R> {
    frames: Frames<'a>,
    records: PhantomData<R>,
}

impl<'a> ToGame<'a> {
    /// Reads a datagram from the gateway.
    #[inline]
    pub const fn read(datagram: &'a [u8]) -> Reader<'a, Self> {
        Reader { frames: Frames::new(datagram), records: PhantomData }
    }

    /// Decodes one record.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, RecordError> {
        let mut body = Body(frame.body());
        let record = match frame.kind() {
            kind::PAYLOAD => Self::Payload {
                session: body.session()?,
                bytes: body.take_payload(LONG_PAYLOAD_BYTES_MAX)?,
            },
            kind::WELCOME => Self::Welcome(body.welcome()?),
            kind::OPENED => Self::Opened(body.opened(frame.flags())?),
            kind::OPENED_PLAIN => Self::OpenedPlain(body.opened_plain()?),
            kind::MESSAGE => Self::Message(body.take_message()?),
            kind::REPORT => Self::Report {
                session: body.session()?,
                token: body.u64()?,
                is_delivered: body.u8()? != 0,
            },
            kind::ROOM => Self::Room {
                session: body.session()?,
                is_full: body.u8()? != 0,
                waiting_bytes: body.u32()?,
            },
            kind::QUALITY => Self::Quality { session: body.session()?, quality: body.quality()? },
            kind::CLOSED => Self::Closed {
                session: body.session()?,
                reason: CloseReason::from_u8(body.u8()?).unwrap_or(CloseReason::Other),
            },
            kind::PONG => Self::Pong { token: body.u64()? },
            kind::DRAINING => Self::Draining { left_ms: body.u32()? },
            kind::GOODBYE => Self::Goodbye(Goodbye {
                reason: GoodbyeReason::from_u8(body.u8()?).unwrap_or(GoodbyeReason::Other),
                error: RecordError::from_u8(body.u8()?),
            }),
            // Whatever a later version says in it.
            kind::UNDRAINED => return Ok(Self::Undrained),
            kind::TAKEN_OVER => {
                let generation = body.u32();
                return Ok(generation
                    .map_or(Self::Unknown(frame), |generation| Self::TakenOver { generation }));
            }
            kind::PLAYERS => {
                let (count, grace_ms, gather_us) = (body.u32(), body.u32(), body.u32().ok());
                return Ok(match (count, grace_ms) {
                    (Ok(count), Ok(grace_ms)) => Self::Players { count, grace_ms, gather_us },
                    _ => Self::Unknown(frame),
                });
            }
            // What is not exactly this is of a later version, and means something else.
            kind::LINGERED => {
                let read = (body.session(), body.u32(), body.u8());
                return Ok(match (frame.flags(), read, body.0) {
                    (0, (Ok(session), Ok(undelivered_bytes), Ok(told @ (0 | 1))), []) => {
                        Self::Lingered { session, undelivered_bytes, is_told: told == 1 }
                    }
                    _ => Self::Unknown(frame),
                });
            }
            kind::OFFERED if frame.flags() & !flags::DELIVERS == 0 => {
                let offered = body.take_offered(frame.flags());
                return Ok(offered.map_or(Self::Unknown(frame), Self::Offered));
            }
            kind::OFFER_OVER | kind::MOVED | kind::MOVE_REFUSED if frame.flags() == 0 => {
                return Ok(body.move_news(frame.kind()).unwrap_or(Self::Unknown(frame)));
            }
            _ if frame.may_be_skipped() => return Ok(Self::Unknown(frame)),
            _ => return Err(RecordError::KindUnknown),
        };
        body.end(record)
    }
}

impl<'a> ToGateway<'a> {
    /// Reads a datagram from a game process.
    #[inline]
    pub const fn read(datagram: &'a [u8]) -> Reader<'a, Self> {
        Reader { frames: Frames::new(datagram), records: PhantomData }
    }

    /// Decodes one record.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, RecordError> {
        let mut body = Body(frame.body());
        let record = match frame.kind() {
            kind::PAYLOAD => Self::Payload {
                session: body.session()?,
                bytes: body.take_payload(LONG_PAYLOAD_BYTES_MAX)?,
            },
            kind::MULTICAST => Self::Multicast {
                sessions: body.sessions()?,
                bytes: body.take_payload(PAYLOAD_BYTES_MAX)?,
            },
            kind::MESSAGE => Self::Message(body.take_message()?),
            kind::ASK_QUALITY => Self::AskQuality { session: body.session()? },
            kind::HELLO => Self::Hello(body.hello()?),
            kind::CLOSE => Self::Close { session: body.session()?, reason: body.games_reason()? },
            kind::PING => Self::Ping { token: body.u64()? },
            // What is not exactly this is of a later version, and means something else.
            kind::INTAKE => {
                return Ok(match (frame.flags(), body.0) {
                    (0, &[said @ (0 | 1)]) => Self::Intake { is_open: said == 1 },
                    _ => Self::Unknown(frame),
                });
            }
            kind::CLOSE_AFTER if frame.flags() == 0 => Self::CloseAfter(body.take_close_after()?),
            kind::MOVE if frame.flags() == 0 => match body.take_move()? {
                Some(asked) => Self::Move(asked),
                None => return Ok(Self::Unknown(frame)),
            },
            kind::ANSWER if frame.flags() == 0 => Self::Answer {
                session: body.session()?,
                offer: body.u64()?,
                answer: Answer::from_u8(body.u8()?).ok_or(RecordError::AnswerUnknown)?,
            },
            kind::CONFIRM if frame.flags() == 0 => Self::Confirm { session: body.session()? },
            _ if frame.may_be_skipped() => return Ok(Self::Unknown(frame)),
            _ => return Err(RecordError::KindUnknown),
        };
        body.end(record)
    }
}

impl<'a> Iterator for Reader<'a, ToGame<'a>> {
    type Item = Result<ToGame<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        next_record(&mut self.frames, ToGame::decode)
    }
}

impl<'a> Iterator for Reader<'a, ToGateway<'a>> {
    type Item = Result<ToGateway<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        next_record(&mut self.frames, ToGateway::decode)
    }
}

#[inline]
fn next_record<'a, R>(
    frames: &mut Frames<'a>,
    decode: impl FnOnce(Frame<'a>) -> Result<R, RecordError>,
) -> Option<Result<R, RecordError>> {
    let record = frames.next()?.and_then(decode);
    if record.is_err() {
        frames.stop();
    }
    Some(record)
}

/// What is left of a record's body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], RecordError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(RecordError::BodyLength)?;
        self.0 = rest;
        Ok(field)
    }

    #[inline]
    fn u8(&mut self) -> Result<u8, RecordError> {
        self.array().map(|&[byte]| byte)
    }

    #[inline]
    fn u16(&mut self) -> Result<u16, RecordError> {
        self.array().map(|bytes| u16::from_le_bytes(*bytes))
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    #[inline]
    fn session(&mut self) -> Result<SessionId, RecordError> {
        SessionId::from_u64(self.u64()?).ok_or(RecordError::SessionZero)
    }

    /// A payload has no length of its own: it is the rest of its record.
    #[inline]
    fn take_payload(&mut self, bytes_max: usize) -> Result<&'a [u8], RecordError> {
        let payload = std::mem::take(&mut self.0);
        if payload.is_empty() || payload.len() > bytes_max {
            return Err(RecordError::PayloadLength);
        }
        Ok(payload)
    }

    #[inline]
    fn take_message(&mut self) -> Result<MessagePart<'a>, RecordError> {
        let session = self.session()?;
        let channel = *self.array()?;
        let (marks, token) = (self.u8()?, self.u64()?);
        let part = MessagePart {
            session,
            channel: Channel::from_bytes(channel)?,
            is_first: marks & message::FIRST != 0,
            is_last: marks & message::LAST != 0,
            token,
            bytes: std::mem::take(&mut self.0),
        };
        if marks & !(message::FIRST | message::LAST) != 0 {
            return Err(RecordError::MessageMarks);
        }
        part.check().map(|()| part)
    }

    fn take_close_after(&mut self) -> Result<CloseAfter<'a>, RecordError> {
        let (session, reason) = (self.session()?, self.games_reason()?);
        let (linger_ms, text) = (self.u32()?, std::mem::take(&mut self.0));
        if text.len() > FAREWELL_BYTES_MAX {
            return Err(RecordError::FarewellLength);
        }
        Ok(CloseAfter { session, reason, linger_ms, text })
    }

    /// A move; none where it has marks of a later version.
    fn take_move(&mut self) -> Result<Option<Move<'a>>, RecordError> {
        let (session, ticket) = (self.session()?, self.u64()?);
        let (time_ms, marks) = (self.u32()?, self.u8()?);
        let backend = self.name()?;
        if marks & !(moves::CONFIRMS | moves::HAS_MESSAGE) != 0 {
            return Ok(None);
        }
        let message = if marks & moves::HAS_MESSAGE == 0 {
            None
        } else {
            let channel = Channel::from_bytes(*self.array()?)?;
            let len = self.u16()?;
            Some((channel, self.bytes(len.into())?))
        };
        let (confirms, data) = (marks & moves::CONFIRMS != 0, std::mem::take(&mut self.0));
        let asked = Move { session, backend, ticket, time_ms, confirms, message, data };
        asked.check().map(|()| Some(asked))
    }

    fn take_offered(&mut self, said: u8) -> Result<Offered<'a>, RecordError> {
        let offered = Offered {
            delivers: said & flags::DELIVERS != 0,
            session: self.session()?,
            offer: self.u64()?,
            ticket: self.u64()?,
            client_id: self.u64()?,
            slot: self.u32()?,
            slots_max: self.u32()?,
            address: self.address()?,
            left_ms: self.u32()?,
            user_data: self.array()?,
            listener: self.name()?,
            from: self.name()?,
            data: std::mem::take(&mut self.0),
        };
        let fits = offered.data.len() <= MOVE_BYTES_MAX;
        if fits { Ok(offered) } else { Err(RecordError::MoveLength) }
    }

    /// What has become of a move: none where it is not exactly as long as that.
    fn move_news(&mut self, kind: u8) -> Option<ToGame<'a>> {
        let (session, number) = (self.session().ok()?, self.u64().ok()?);
        let reason = match kind {
            kind::MOVED => MoveRefusal::Other,
            _ => MoveRefusal::from_u8(self.u8().ok()?).unwrap_or(MoveRefusal::Other),
        };
        self.0.is_empty().then_some(match kind {
            kind::MOVED => ToGame::Moved { session, ticket: number },
            kind::OFFER_OVER => ToGame::OfferOver { session, offer: number, reason },
            _ => ToGame::MoveRefused { session, ticket: number, reason },
        })
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(RecordError::BodyLength)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// A name with its length before it.
    fn name(&mut self) -> Result<&'a str, RecordError> {
        let len = self.u8()?;
        Self(self.bytes(len.into())?).take_name()
    }

    fn quality(&mut self) -> Result<Quality, RecordError> {
        Ok(Quality {
            round_trip_us: self.u32()?,
            variation_us: self.u32()?,
            loss_per_mille: self.u16()?,
            waiting_bytes: self.u32()?,
        })
    }

    fn sessions(&mut self) -> Result<Sessions<'a>, RecordError> {
        let count = usize::from(self.u16()?);
        if count == 0 || count > MULTICAST_SESSIONS_MAX {
            return Err(RecordError::SessionCount);
        }
        let (ids, rest) =
            self.0.split_at_checked(count * size_of::<u64>()).ok_or(RecordError::BodyLength)?;
        self.0 = rest;
        Sessions::decode(ids.as_chunks().0)
    }

    fn welcome(&mut self) -> Result<Welcome, RecordError> {
        let welcome = Welcome {
            version: self.u16()?,
            worker: self.u16()?,
            workers: self.u16()?,
            incarnation: self.u64()?,
        };
        // The length first, as the C header does it: both name the same error.
        if !self.0.is_empty() {
            return Err(RecordError::BodyLength);
        }
        if welcome.worker >= welcome.workers || usize::from(welcome.workers) > WORKERS_MAX {
            return Err(RecordError::WorkerInvalid);
        }
        Ok(welcome)
    }

    fn hello(&mut self) -> Result<Hello<'a>, RecordError> {
        let version_min = self.u16()?;
        let [a, b, c, version_max] = *self.array()?;
        let pid = u32::from_le_bytes([a, b, c, 0]);
        Ok(Hello { version_min, version_max, pid, name: self.take_name()? })
    }

    fn opened(&mut self, said: u8) -> Result<Opened<'a>, RecordError> {
        Ok(Opened {
            delivers: said & flags::DELIVERS != 0,
            session: self.session()?,
            client_id: self.u64()?,
            slot: self.u32()?,
            slots_max: self.u32()?,
            address: self.address()?,
            user_data: self.array()?,
            ticket: if said & flags::MOVED_IN == 0 { None } else { Some(self.u64()?) },
            listener: self.take_name()?,
        })
    }

    fn opened_plain(&mut self) -> Result<OpenedPlain<'a>, RecordError> {
        let (session, slot, slots_max) = (self.session()?, self.u32()?, self.u32()?);
        Ok(OpenedPlain {
            session,
            slot: (slot != OpenedPlain::NO_SLOT).then_some(slot),
            slots_max,
            address: self.address()?,
            listener: self.take_name()?,
        })
    }

    fn address(&mut self) -> Result<SocketAddr, RecordError> {
        let ip = *self.array()?;
        let scope = self.u32()?;
        Ok(address::from_fields(ip, scope, self.u16()?))
    }

    fn games_reason(&mut self) -> Result<CloseReason, RecordError> {
        CloseReason::from_u8(self.u8()?)
            .filter(|reason| reason.is_games_choice())
            .ok_or(RecordError::ReasonUnknown)
    }

    /// A name, like a payload, is the rest of its record.
    fn take_name(&mut self) -> Result<&'a str, RecordError> {
        let name = std::mem::take(&mut self.0);
        if !is_name_bytes(name) {
            return Err(RecordError::NameInvalid);
        }
        std::str::from_utf8(name).map_err(|_| RecordError::NameInvalid)
    }

    #[inline]
    fn end<R>(self, record: R) -> Result<R, RecordError> {
        if self.0.is_empty() { Ok(record) } else { Err(RecordError::BodyLength) }
    }
}

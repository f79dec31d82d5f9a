//! From bytes to records.

use std::marker::PhantomData;

use super::fields::{Body, name};
use super::{
    Answer, Channel, CloseAfter, CloseReason, FAREWELL_BYTES_MAX, Frame, Frames, Goodbye, Hello,
    LONG_PAYLOAD_BYTES_MAX, MOVE_BYTES_MAX, MULTICAST_SESSIONS_MAX, MessagePart, Move, Offered,
    Opened, OpenedPlain, PAYLOAD_BYTES_MAX, RecordError, Sessions, ToGame, ToGateway, WORKERS_MAX,
    Welcome, flags, kind, message, moves,
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
        let mut body = Body::of(frame);
        let record = match frame.kind() {
            kind::PAYLOAD => Self::Payload {
                session: body.take()?,
                bytes: body.take_payload(LONG_PAYLOAD_BYTES_MAX)?,
            },
            kind::WELCOME => Self::Welcome(body.take_welcome()?),
            kind::OPENED => Self::Opened(body.take_opened(frame.flags())?),
            kind::OPENED_PLAIN => Self::OpenedPlain(body.take_opened_plain()?),
            kind::MESSAGE => Self::Message(body.take_message()?),
            kind::GOODBYE => Self::Goodbye(Goodbye {
                reason: body.take()?,
                error: RecordError::from_u8(body.take()?),
            }),
            // Whatever a later version says in it.
            kind::UNDRAINED => return Ok(Self::Undrained),
            kind::TAKEN_OVER => {
                let generation = body.take();
                return Ok(generation
                    .map_or(Self::Unknown(frame), |generation| Self::TakenOver { generation }));
            }
            kind::PLAYERS => {
                let (count, grace_ms, gather_us) = (body.take(), body.take(), body.take().ok());
                return Ok(match (count, grace_ms) {
                    (Ok(count), Ok(grace_ms)) => Self::Players { count, grace_ms, gather_us },
                    _ => Self::Unknown(frame),
                });
            }
            // What is not exactly this is of a later version, and means something else.
            kind::OFFERED if frame.flags() & !flags::DELIVERS == 0 => {
                let offered = body.take_offered(frame.flags());
                return Ok(offered.map_or(Self::Unknown(frame), Self::Offered));
            }
            _ => return or_unknown(frame, Self::fixed(frame)?, Self::Unknown),
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
        let mut body = Body::of(frame);
        let record = match frame.kind() {
            kind::PAYLOAD => Self::Payload {
                session: body.take()?,
                bytes: body.take_payload(LONG_PAYLOAD_BYTES_MAX)?,
            },
            kind::MULTICAST => Self::Multicast {
                sessions: body.take_sessions()?,
                bytes: body.take_payload(PAYLOAD_BYTES_MAX)?,
            },
            kind::MESSAGE => Self::Message(body.take_message()?),
            kind::HELLO => Self::Hello(body.take_hello()?),
            kind::CLOSE => Self::Close { session: body.take()?, reason: body.games_reason()? },
            kind::CLOSE_AFTER if frame.flags() == 0 => Self::CloseAfter(body.take_close_after()?),
            kind::MOVE if frame.flags() == 0 => match body.take_move()? {
                Some(asked) => Self::Move(asked),
                None => return Ok(Self::Unknown(frame)),
            },
            kind::ANSWER if frame.flags() == 0 => Self::Answer {
                session: body.take()?,
                offer: body.take()?,
                answer: Answer::from_u8(body.take()?).ok_or(RecordError::AnswerUnknown)?,
            },
            kind::CONFIRM if frame.flags() == 0 => Self::Confirm { session: body.take()? },
            _ => return or_unknown(frame, Self::fixed(frame)?, Self::Unknown),
        };
        body.end(record)
    }
}

/// What was read of a record, or that it is passed over, if it may be.
fn or_unknown<'a, R>(
    frame: Frame<'a>,
    record: Option<R>,
    unknown: impl FnOnce(Frame<'a>) -> R,
) -> Result<R, RecordError> {
    match record {
        None if frame.may_be_skipped() => Ok(unknown(frame)),
        record => record.ok_or(RecordError::KindUnknown),
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

impl<'a> Body<'a> {
    #[inline]
    pub(super) fn take_payload(&mut self, bytes_max: usize) -> Result<&'a [u8], RecordError> {
        let payload = self.take_rest();
        if payload.is_empty() || payload.len() > bytes_max {
            return Err(RecordError::PayloadLength);
        }
        Ok(payload)
    }

    #[inline]
    fn take_message(&mut self) -> Result<MessagePart<'a>, RecordError> {
        let session = self.take()?;
        let channel = self.take()?;
        let (marks, token) = (self.take::<u8>()?, self.take()?);
        let part = MessagePart {
            session,
            channel: Channel::from_bytes(channel)?,
            is_first: marks & message::FIRST != 0,
            is_last: marks & message::LAST != 0,
            token,
            bytes: self.take_rest(),
        };
        if marks & !(message::FIRST | message::LAST) != 0 {
            return Err(RecordError::MessageMarks);
        }
        part.check().map(|()| part)
    }

    fn take_close_after(&mut self) -> Result<CloseAfter<'a>, RecordError> {
        let (session, reason) = (self.take()?, self.games_reason()?);
        let (linger_ms, text) = (self.take()?, self.take_rest());
        if text.len() > FAREWELL_BYTES_MAX {
            return Err(RecordError::FarewellLength);
        }
        Ok(CloseAfter { session, reason, linger_ms, text })
    }

    /// A move; none where it has marks of a later version.
    fn take_move(&mut self) -> Result<Option<Move<'a>>, RecordError> {
        let (session, ticket) = (self.take()?, self.take()?);
        let (time_ms, marks) = (self.take()?, self.take::<u8>()?);
        let backend = self.take()?;
        if marks & !(moves::CONFIRMS | moves::HAS_MESSAGE) != 0 {
            return Ok(None);
        }
        let message = if marks & moves::HAS_MESSAGE == 0 {
            None
        } else {
            let channel = Channel::from_bytes(self.take()?)?;
            let len: u16 = self.take()?;
            Some((channel, self.bytes(len.into())?))
        };
        let (confirms, data) = (marks & moves::CONFIRMS != 0, self.take_rest());
        let asked = Move { session, backend, ticket, time_ms, confirms, message, data };
        asked.check().map(|()| Some(asked))
    }

    fn take_offered(&mut self, said: u8) -> Result<Offered<'a>, RecordError> {
        let offered = Offered {
            delivers: said & flags::DELIVERS != 0,
            session: self.take()?,
            offer: self.take()?,
            ticket: self.take()?,
            client_id: self.take()?,
            slot: self.take()?,
            slots_max: self.take()?,
            address: self.take()?,
            left_ms: self.take()?,
            user_data: self.array()?,
            listener: self.take()?,
            from: self.take()?,
            data: self.take_rest(),
        };
        let fits = offered.data.len() <= MOVE_BYTES_MAX;
        if fits { Ok(offered) } else { Err(RecordError::MoveLength) }
    }

    fn take_sessions(&mut self) -> Result<Sessions<'a>, RecordError> {
        let count = usize::from(self.take::<u16>()?);
        if count == 0 || count > MULTICAST_SESSIONS_MAX {
            return Err(RecordError::SessionCount);
        }
        Sessions::decode(self.bytes(count * size_of::<u64>())?.as_chunks().0)
    }

    fn take_welcome(&mut self) -> Result<Welcome, RecordError> {
        let welcome: Welcome = self.take()?;
        // The length first, as the C header does it: both name the same error.
        self.end(())?;
        if welcome.worker >= welcome.workers || usize::from(welcome.workers) > WORKERS_MAX {
            return Err(RecordError::WorkerInvalid);
        }
        Ok(welcome)
    }

    fn take_hello(&mut self) -> Result<Hello<'a>, RecordError> {
        let version_min = self.take()?;
        let [a, b, c, version_max] = self.take()?;
        let pid = u32::from_le_bytes([a, b, c, 0]);
        Ok(Hello { version_min, version_max, pid, name: name(self.take_rest())? })
    }

    fn take_opened(&mut self, said: u8) -> Result<Opened<'a>, RecordError> {
        Ok(Opened {
            delivers: said & flags::DELIVERS != 0,
            session: self.take()?,
            client_id: self.take()?,
            slot: self.take()?,
            slots_max: self.take()?,
            address: self.take()?,
            user_data: self.array()?,
            ticket: if said & flags::MOVED_IN == 0 { None } else { Some(self.take()?) },
            listener: name(self.take_rest())?,
        })
    }

    fn take_opened_plain(&mut self) -> Result<OpenedPlain<'a>, RecordError> {
        let (session, slot, slots_max) = (self.take()?, self.take()?, self.take()?);
        Ok(OpenedPlain {
            session,
            slot: (slot != OpenedPlain::NO_SLOT).then_some(slot),
            slots_max,
            address: self.take()?,
            listener: name(self.take_rest())?,
        })
    }

    fn games_reason(&mut self) -> Result<CloseReason, RecordError> {
        CloseReason::from_u8(self.take()?)
            .filter(|reason| reason.is_games_choice())
            .ok_or(RecordError::ReasonUnknown)
    }
}

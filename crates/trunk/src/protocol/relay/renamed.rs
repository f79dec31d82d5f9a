//! Records with another session in them: a worker has one number here and another at its gateway,
//! and a session of a cluster one name for each gateway.

use ringgate_link::bundle::{
    CloseAfter, Frame, Frames, HEADER_BYTES, MessagePart, Move, SessionId, ToGateway, Writer,
};

/// The record with another session in it.
#[inline]
pub(super) fn renamed<'a>(
    scratch: &'a mut [u8],
    said: Frame<'_>,
    session: SessionId,
) -> Option<Frame<'a>> {
    let memory = scratch.get_mut(..said.bytes().len())?;
    memory.copy_from_slice(said.bytes());
    called(memory, session)
}

/// The record with another session in it, which is its first field.
pub(super) fn called(memory: &mut [u8], session: SessionId) -> Option<Frame<'_>> {
    let place = memory.get_mut(HEADER_BYTES..HEADER_BYTES + 8)?;
    place.copy_from_slice(&session.as_u64().to_le_bytes());
    Frames::new(memory).next()?.ok()
}

/// The session that a record of a game process is about: its first field.
pub(super) const fn session_for(record: &ToGateway<'_>) -> Option<SessionId> {
    match record {
        ToGateway::Payload { session, .. }
        | ToGateway::AskQuality { session }
        | ToGateway::Close { session, .. } => Some(*session),
        ToGateway::CloseAfter(it) => Some(it.session),
        ToGateway::Message(part) => Some(part.session),
        ToGateway::Move(asked) => Some(asked.session),
        _ => None,
    }
}

/// Writes what a game process says, with another session in it.
pub(super) fn rewritten(
    writer: &mut Writer<'_>,
    record: &ToGateway<'_>,
    session: SessionId,
) -> bool {
    match *record {
        ToGateway::Payload { bytes, .. } => writer.payload(session, bytes),
        ToGateway::AskQuality { .. } => writer.ask_quality(session),
        ToGateway::Close { reason, .. } => writer.close(session, reason),
        ToGateway::CloseAfter(it) => writer.close_after(&CloseAfter { session, ..it }),
        ToGateway::Message(part) => writer.message(&MessagePart { session, ..part }),
        ToGateway::Move(asked) => writer.move_session(&Move { session, ..asked }),
        _ => false,
    }
}

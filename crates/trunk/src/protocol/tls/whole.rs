//! A connection as rustls has it.

use std::io::{self, Read};

use rustls::Connection;

use super::failure::Failure;

/// Encrypted bytes that rustls keeps for a peer that does not read; what waits beyond them waits in
/// the [`Outbox`], which has a bound of its own.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// What reading has brought.
pub(super) enum Come {
    Nothing,
    /// So many, which may be none: there may be more.
    Bytes(usize),
    Closed,
}

pub(super) fn is_proven(connection: &Connection) -> bool {
    !connection.is_handshaking() && connection.alpn_protocol().is_some()
}

pub(super) fn receive(
    connection: &mut Connection,
    source: &mut impl Read,
    room: &mut [u8],
) -> Result<Come, Failure> {
    if let Some(come) = take_out(connection, room)? {
        return Ok(come);
    }
    match connection.read_tls(source) {
        Err(why) if is_blocked(&why) => return Ok(Come::Nothing),
        Err(why) => return Err(Failure::Io(why)),
        Ok(_) => {}
    }
    connection.process_new_packets().map_err(Failure::Tls)?;
    if !connection.is_handshaking() && !is_proven(connection) {
        return Err(Failure::Protocol);
    }
    Ok(take_out(connection, room)?.unwrap_or(Come::Bytes(0)))
}

/// Takes opened bytes out. `None` where there are none.
fn take_out(connection: &mut Connection, room: &mut [u8]) -> Result<Option<Come>, Failure> {
    match connection.reader().read(room) {
        Ok(0) if !room.is_empty() => Ok(Some(Come::Closed)),
        Ok(bytes) => Ok(Some(Come::Bytes(bytes))),
        Err(why) if is_blocked(&why) => Ok(None),
        Err(why) => Err(Failure::Io(why)),
    }
}

pub(super) fn is_blocked(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

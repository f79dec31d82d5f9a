//! Writes records that were read once more, to be compared: by the tests here, and by a fuzzer that
//! includes this file. It names each kind of record, so a new kind has to be written here as well.

use super::{ToGame, ToGateway, Writer};

/// Writes a record from a gateway. False where there is no room.
pub(super) fn write_to_game(writer: &mut Writer<'_>, record: &ToGame<'_>) -> bool {
    match record {
        ToGame::Welcome(welcome) => writer.welcome(welcome),
        ToGame::Opened(opened) => writer.opened(opened),
        ToGame::OpenedPlain(opened) => writer.opened_plain(opened),
        ToGame::Payload { session, bytes } => writer.payload(*session, bytes),
        ToGame::Message(part) => writer.message(part),
        ToGame::Report { session, token, is_delivered } => {
            writer.report(*session, *token, *is_delivered)
        }
        ToGame::Room { session, is_full, waiting_bytes } => {
            writer.room(*session, *is_full, *waiting_bytes)
        }
        ToGame::Quality { session, quality } => writer.quality(*session, quality),
        ToGame::Lingered { session, undelivered_bytes, is_told } => {
            writer.lingered(*session, *undelivered_bytes, *is_told)
        }
        ToGame::Offered(offered) => writer.offered(offered),
        ToGame::OfferOver { session, offer, reason } => {
            writer.offer_over(*session, *offer, *reason)
        }
        ToGame::Moved { session, ticket } => writer.moved(*session, *ticket),
        ToGame::MoveRefused { session, ticket, reason } => {
            writer.move_refused(*session, *ticket, *reason)
        }
        ToGame::Closed { session, reason } => writer.closed(*session, *reason),
        ToGame::Pong { token } => writer.pong(*token),
        ToGame::Draining { left_ms } => writer.draining(*left_ms),
        ToGame::Undrained => writer.undrained(),
        ToGame::TakenOver { generation } => writer.taken_over(*generation),
        ToGame::Players { count, grace_ms, gather_us } => {
            writer.players(*count, *grace_ms, gather_us.expect("this version says"))
        }
        ToGame::Goodbye(goodbye) => writer.goodbye(*goodbye),
        ToGame::Unknown(frame) => writer.frame(*frame),
    }
}

/// The same of a record from a game process.
pub(super) fn write_to_gateway(writer: &mut Writer<'_>, record: &ToGateway<'_>) -> bool {
    match record {
        ToGateway::Hello(hello) => writer.hello(hello),
        ToGateway::Payload { session, bytes } => writer.payload(*session, bytes),
        ToGateway::Multicast { sessions, bytes } => {
            writer.multicast(&sessions.iter().collect::<Vec<_>>(), bytes)
        }
        ToGateway::Message(part) => writer.message(part),
        ToGateway::AskQuality { session } => writer.ask_quality(*session),
        ToGateway::Close { session, reason } => writer.close(*session, *reason),
        ToGateway::CloseAfter(close) => writer.close_after(close),
        ToGateway::Move(asked) => writer.move_session(asked),
        ToGateway::Answer { session, offer, answer } => writer.answer(*session, *offer, *answer),
        ToGateway::Confirm { session } => writer.confirm(*session),
        ToGateway::Ping { token } => writer.ping(*token),
        ToGateway::Intake { is_open } => writer.intake(*is_open),
        ToGateway::Unknown(frame) => writer.frame(*frame),
    }
}

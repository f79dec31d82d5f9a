//! What game processes in turmoil say: records of any size, whose lengths may lie; and what players
//! may hear of it.

use super::super::stage::Input;
use super::ticket::mark_of;
use ringgate_core::proto::delivery::{Frame, read_header};
use ringgate_link::bundle::{
    BUNDLE_BYTES_MAX, Channel, HEADER_BYTES, LONG_PAYLOAD_BYTES_MAX, PART_BYTES_MAX,
    PAYLOAD_BYTES_MAX, SessionId,
};

/// One record as bytes.
pub(super) struct Said {
    pub(super) record: Vec<u8>,
    /// Whether a link may be ended for it.
    pub(super) is_wrong: bool,
}

/// A payload for one player.
pub(super) fn payload(to: SessionId, client: u64, input: &mut Input<'_>) -> Said {
    let len = SIZES[input.below(SIZES.len())];
    let mut body = to.as_u64().to_le_bytes().to_vec();
    body.resize(body.len() + len, mark_of(client));
    said(PAYLOAD, &body, (1..=LONG_PAYLOAD_BYTES_MAX).contains(&len), input)
}

/// A payload for several players.
pub(super) fn multicast(to: &[SessionId], input: &mut Input<'_>) -> Said {
    let len = SIZES[input.below(SIZES.len())];
    let mut body = (to.len() as u16).to_le_bytes().to_vec();
    body.extend(to.iter().flat_map(|to| to.as_u64().to_le_bytes()));
    body.resize(body.len() + len, FOR_ALL);
    said(MULTICAST, &body, !to.is_empty() && (1..=PAYLOAD_BYTES_MAX).contains(&len), input)
}

/// A whole message in one record.
pub(super) fn message(to: SessionId, client: u64, channel: Channel, input: &mut Input<'_>) -> Said {
    let len = SIZES[input.below(SIZES.len())];
    let mut body = to.as_u64().to_le_bytes().to_vec();
    let (kind, number) = match channel {
        Channel::Reliable(number) => (1, number),
        Channel::Sequenced(number) => (2, number),
        Channel::Unreliable(number) => (3, number),
    };
    body.extend([kind, number, WHOLE]);
    body.extend(u64::from(input.byte() % 8).to_le_bytes());
    body.resize(body.len() + len, mark_of(client));
    let bytes_max = channel.message_bytes_max().min(PART_BYTES_MAX);
    said(MESSAGE, &body, (1..=bytes_max).contains(&len), input)
}

/// Nearly always as long as it says.
fn said(kind: u8, body: &[u8], is_sound: bool, input: &mut Input<'_>) -> Said {
    let (lies, by) = (input.byte() < 24, input.byte());
    let bytes = HEADER_BYTES + body.len();
    let off_by = if lies { i16::from(by.cast_signed()) * 9 + 1 } else { 0 };
    let says = (bytes as u16).wrapping_add_signed(off_by);
    let mut record = says.to_le_bytes().to_vec();
    record.extend([kind, 0]);
    record.extend(body);
    record.truncate(BUNDLE_BYTES_MAX);
    Said { record, is_wrong: lies || !is_sound }
}

/// Any channel of a few.
pub(super) fn channel(input: &mut Input<'_>) -> Channel {
    let number = input.byte() % 3;
    match input.byte() {
        0..=63 => Channel::Sequenced(number),
        64..=127 => Channel::Unreliable(number),
        _ => Channel::Reliable(number),
    }
}

/// Whether a payload is one that was said to the client of that mark, or to several.
pub(super) fn is_for(mark: u8, body: &[u8], delivers: bool) -> bool {
    let is_own = |bytes: &[u8]| bytes.iter().all(|it| *it == mark || *it == FOR_ALL);
    let Some((_, mut rest)) = read_header(body).filter(|_| delivers) else { return is_own(body) };
    while let Some(frame) = (!rest.is_empty()).then(|| Frame::read(&mut rest)) {
        let is_sound = match frame {
            Some(Frame::Reliable(part)) => is_own(part.bytes),
            Some(Frame::Sequenced { bytes, .. } | Frame::Unreliable { bytes, .. }) => is_own(bytes),
            Some(Frame::Farewell { text, .. }) => is_own(text),
            Some(Frame::Ping) => true,
            None => false,
        };
        if !is_sound {
            return false;
        }
    }
    true
}

/// Lengths on both sides of every limit.
pub(super) const SIZES: [usize; 16] =
    [0, 1, 40, 900, 1158, 1159, 1160, 1161, 1199, 1200, 1201, 1472, 1473, 8_000, 16_000, 16_300];

/// What every byte is of what is for several players, or for one whose name is not known.
pub(super) const FOR_ALL: u8 = 0xa5;

const PAYLOAD: u8 = 1;
const MESSAGE: u8 = 9;
const MULTICAST: u8 = 17;
const WHOLE: u8 = 3;

//! Frames out of what the stream has brought.

use std::ops::Range;

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_link::bundle::{Frames, is_name};

use super::frame::{Control, FRAME_BYTES_MAX, HEADER_BYTES, Malformed, Reason, Welcome, kind};

/// Bytes that are taken from the stream at once.
const BYTES: usize = 64 * 1024;

const _: () = assert!(BYTES >= 2 * FRAME_BYTES_MAX);

/// What has come, as far as it was not taken out.
#[derive(Debug)]
pub struct Inbox {
    bytes: Box<[u8]>,
    /// Invariant: within `bytes`.
    have: Range<usize>,
    is_broken: bool,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { bytes: vec![0; BYTES].into_boxed_slice(), have: 0..0, is_broken: false }
    }
}

impl Carry for Inbox {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { bytes, have, is_broken } = self;
        bytes[have.clone()].to_vec().write(out);
        is_broken.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let mut inbox = Self::default();
        let have = Vec::<u8>::read(from)?;
        let room = inbox.bytes.get_mut(..have.len()).ok_or(Broken::Invalid("inbox"))?;
        room.copy_from_slice(&have);
        (inbox.have, inbox.is_broken) = (0..have.len(), Carry::read(from)?);
        Ok(inbox)
    }
}

impl Inbox {
    /// Room to read the stream into. Never empty once [`next`](Self::next) has said that there is
    /// nothing more.
    pub fn room(&mut self) -> &mut [u8] {
        self.close_up();
        &mut self.bytes[self.have.end..]
    }

    /// So many bytes were read into it.
    pub fn handle_read(&mut self, bytes: usize) {
        self.have.end = (self.have.end + bytes).min(self.bytes.len());
    }

    /// The next whole frame. After an error there is none any more. Where there is none, those
    /// before are wiped: records of sessions have keys.
    #[expect(clippy::should_implement_trait, reason = "it lends what it holds")]
    pub fn next(&mut self) -> Option<Result<Control<'_>, Malformed>> {
        if self.is_broken {
            return None;
        }
        let header = self.bytes[self.have.clone()].first_chunk::<HEADER_BYTES>().copied();
        let Some([low, high, kind, lane]) = header else {
            self.close_up();
            return None;
        };
        let bytes = usize::from(u16::from_le_bytes([low, high]));
        if !(HEADER_BYTES..=FRAME_BYTES_MAX).contains(&bytes) {
            self.is_broken = true;
            return Some(Err(Malformed));
        }
        if bytes > self.have.len() {
            self.close_up();
            return None;
        }
        let body = &self.bytes[self.have.start..][HEADER_BYTES..bytes];
        self.have.start += bytes;
        let decoded = decode(kind, lane, body);
        self.is_broken = decoded.is_none();
        Some(decoded.ok_or(Malformed))
    }

    /// Begins with what was not taken out.
    fn close_up(&mut self) {
        let (before, left) = (self.have.clone(), self.have.len());
        self.bytes.copy_within(before.clone(), 0);
        self.bytes[left..before.end].fill(0);
        self.have = 0..left;
    }
}

fn decode(kind: u8, lane: u8, body: &[u8]) -> Option<Control<'_>> {
    if kind == kind::MESSAGE {
        return Some(Control::Message(body));
    }
    if kind >= kind::FIRST_SKIPPABLE {
        return Some(Control::Unknown);
    }
    if lane != 0 && !matches!(kind, kind::RECORD | kind::ENDED) {
        return None;
    }
    match kind {
        kind::HELLO => {
            let (&[a, b, c, d], name) = body.split_first_chunk()?;
            let name = str::from_utf8(name).ok().filter(|name| is_name(name))?;
            let (version_min, version_max) =
                (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
            Some(Control::Hello { version_min, version_max, name })
        }
        kind::WELCOME => welcome(body).map(Control::Welcome),
        kind::REFUSED => reason(body).map(Control::Refused),
        kind::RECORD => {
            let (link, record) = body.split_first_chunk()?;
            let mut frames = Frames::new(record);
            let frame = frames.next()?.ok().filter(|frame| !frame.may_be_lost())?;
            let link = u16::from_le_bytes(*link);
            frames.next().is_none().then_some(Control::Record { lane, link, frame })
        }
        kind::ENDED => {
            let link = u16::from_le_bytes(body.try_into().ok()?);
            Some(Control::Ended { lane, link })
        }
        kind::BEAT => body.is_empty().then_some(Control::Beat),
        kind::GOODBYE => reason(body).map(Control::Goodbye),
        _ => None,
    }
}

fn welcome(body: &[u8]) -> Option<Welcome> {
    let (&[low, high, lanes], rest) = body.split_first_chunk()?;
    let (trunk, incarnation) = rest.split_first_chunk()?;
    Some(Welcome {
        version: u16::from_le_bytes([low, high]),
        lanes,
        trunk: u32::from_le_bytes(*trunk),
        incarnation: u64::from_le_bytes(incarnation.try_into().ok()?),
    })
}

fn reason(body: &[u8]) -> Option<Reason> {
    if let [code] = body { Some(Reason::from_u8(*code)) } else { None }
}

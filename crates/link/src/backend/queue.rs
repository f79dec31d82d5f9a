//! Bundles that wait to be sent on one link.
//!
//! A payload that finds no room is refused, because it would be stale by the time there is room
//! again. A record that must arrive (the end of a session) waits behind the bundles for as long as
//! it takes, and holds payloads back meanwhile, so that the order of records is kept.

use std::collections::VecDeque;
use std::net::Shutdown;

use socket2::Socket;

use super::super::bundle::{BUNDLE_BYTES_MAX, Frame, Frames, MOVE_RECORD_BYTES_MAX, Writer};

/// A bounded queue of bundles. Buffers are allocated when first needed and used again.
#[derive(Debug)]
pub struct Queue {
    /// Invariant: none of them is empty.
    bundles: VecDeque<Bundle>,
    spare: Vec<Bundle>,
    bundles_max: usize,
    /// Encoded records that did not fit and must arrive.
    late: Vec<u8>,
}

#[derive(Debug)]
struct Bundle {
    bytes: Box<[u8]>,
    len: usize,
    payloads: u64,
}

impl Queue {
    /// An empty queue of at most so many bundles.
    pub const fn new(bundles_max: usize) -> Self {
        Self { bundles: VecDeque::new(), spare: Vec::new(), bundles_max, late: Vec::new() }
    }

    /// Appends a record that carries `payloads` payloads, unless there is no room for it.
    #[inline]
    pub fn push(&mut self, payloads: u64, write: impl Fn(&mut Writer<'_>) -> bool) -> bool {
        self.late.is_empty() && self.push_to_bundles(payloads, write)
    }

    /// Whether so many records of any length can be appended now.
    pub fn has_room_for(&self, records: usize) -> bool {
        self.late.is_empty() && self.bundles.len() + records <= self.bundles_max
    }

    /// Appends a record that must arrive.
    pub fn push_late(&mut self, write: impl Fn(&mut Writer<'_>) -> bool) {
        if self.push(0, &write) {
            return;
        }
        let mut record = [0; LATE_RECORD_BYTES_MAX];
        let mut writer = Writer::new(&mut record);
        let fits = write(&mut writer);
        debug_assert!(fits, "records that must arrive are short");
        self.late.extend_from_slice(writer.bytes());
    }

    /// Appends a record that is encoded already, unless there is no room for it.
    #[inline]
    pub fn push_frame(&mut self, frame: Frame<'_>) -> bool {
        self.push(frame.payloads(), |writer| writer.frame(frame))
    }

    /// Appends a record that is encoded already and must arrive. `false` where too many wait: the
    /// link cannot go on without this one.
    pub fn push_late_frame(&mut self, frame: Frame<'_>) -> bool {
        if self.push_frame(frame) {
            return true;
        }
        let fits = self.late.len() + frame.bytes().len() <= LATE_BYTES_MAX;
        if fits {
            self.late.extend_from_slice(frame.bytes());
        }
        fits
    }

    /// Sends what waits, as far as the kernel has room; `sent` hears of each bundle how many
    /// payloads it has. False where the socket takes nothing any more: what the kernel still has
    /// for us can be read, and then it ends.
    #[must_use]
    pub fn send(&mut self, socket: &Socket, mut sent: impl FnMut(u64)) -> bool {
        while let Some(bundle) = self.bundles.front() {
            match socket.send_with_flags(&bundle.bytes[..bundle.len], libc::MSG_NOSIGNAL) {
                Ok(_) => sent(bundle.payloads),
                Err(why) => match why.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => return true,
                    _ => {
                        let _ = socket.shutdown(Shutdown::Both);
                        return false;
                    }
                },
            }
            self.pop();
        }
        true
    }

    /// The front bundle has been sent.
    fn pop(&mut self) {
        self.spare.extend(self.bundles.pop_front());
        self.take_late();
    }

    /// Everything that waits, in order, as parts of whole records.
    pub fn waiting(&self) -> impl Iterator<Item = &[u8]> {
        let bundles = self.bundles.iter().map(|bundle| &bundle.bytes[..bundle.len]);
        bundles.chain([&*self.late])
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bundles.is_empty()
    }

    /// Throws everything away. Returns how many payloads that were.
    pub fn clear(&mut self) -> u64 {
        self.late.clear();
        let payloads = self.bundles.iter().map(|bundle| bundle.payloads).sum();
        self.spare.extend(self.bundles.drain(..));
        payloads
    }

    #[inline]
    fn push_to_bundles(&mut self, payloads: u64, write: impl Fn(&mut Writer<'_>) -> bool) -> bool {
        if self.bundles.back_mut().is_some_and(|bundle| bundle.push(payloads, &write)) {
            return true;
        }
        if self.bundles.len() == self.bundles_max {
            return false;
        }
        let mut bundle = self.spare.pop().unwrap_or_else(Bundle::new);
        bundle.len = 0;
        bundle.payloads = 0;
        if bundle.push(payloads, write) {
            self.bundles.push_back(bundle);
            return true;
        }
        self.spare.push(bundle);
        false
    }

    /// Moves late records to the room that a sent bundle has left.
    fn take_late(&mut self) {
        let late = std::mem::take(&mut self.late);
        let mut taken = 0;
        for frame in Frames::new(&late).flatten() {
            if !self.push_to_bundles(0, |writer| writer.frame(frame)) {
                break;
            }
            taken += frame.bytes().len();
        }
        self.late = late;
        self.late.drain(..taken);
    }
}

impl Bundle {
    fn new() -> Self {
        Self { bytes: vec![0; BUNDLE_BYTES_MAX].into_boxed_slice(), len: 0, payloads: 0 }
    }

    #[inline]
    fn push(&mut self, payloads: u64, write: impl Fn(&mut Writer<'_>) -> bool) -> bool {
        let mut writer = Writer::resume(&mut self.bytes, self.len);
        if !write(&mut writer) {
            return false;
        }
        self.len = writer.len();
        self.payloads += payloads;
        true
    }
}

/// The longest record that a game process sends and that must arrive is a move.
const LATE_RECORD_BYTES_MAX: usize = MOVE_RECORD_BYTES_MAX;

/// Of records that come encoded: as much as may wait for the stream of a trunk.
const LATE_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::{CloseReason, PAYLOAD_BYTES_MAX, SessionId, ToGateway};

    fn session(serial: u64) -> SessionId {
        SessionId::new(0, serial)
    }

    /// Sends everything that waits, and returns the records.
    fn drain(queue: &mut Queue) -> (Vec<(u64, usize)>, u64) {
        let (mut records, mut payloads) = (Vec::new(), 0);
        while let Some(bundle) = queue.bundles.front() {
            for record in ToGateway::read(&bundle.bytes[..bundle.len]) {
                records.push(match record.expect("own bundle") {
                    ToGateway::Payload { session, bytes } => (session.as_u64(), bytes.len()),
                    ToGateway::Close { session, .. } => (session.as_u64(), 0),
                    record => panic!("{record:?}"),
                });
            }
            payloads += bundle.payloads;
            queue.pop();
        }
        (records, payloads)
    }

    fn fill(queue: &mut Queue) -> u64 {
        let mut pushed = 0;
        while queue.push(1, |writer| writer.payload(session(1), &[0; PAYLOAD_BYTES_MAX])) {
            pushed += 1;
        }
        pushed
    }

    #[test]
    fn records_leave_in_the_order_they_came() {
        let mut queue = Queue::new(2);
        for serial in 1..=20 {
            let len = PAYLOAD_BYTES_MAX - serial;
            let payload = vec![0; len];
            assert!(queue.push(1, |writer| writer.payload(session(serial as u64), &payload)));
        }
        let expected: Vec<_> = (1..=20).map(|n| (n as u64, PAYLOAD_BYTES_MAX - n)).collect();
        assert_eq!(drain(&mut queue), (expected, 20));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_full_queue_refuses_payloads_and_keeps_what_must_arrive() {
        let mut queue = Queue::new(2);
        let pushed = fill(&mut queue);
        assert_eq!(pushed, 26, "13 full payloads in each of two bundles");
        // The rest of the last bundle, and far more than that.
        for serial in 1..=2000 {
            queue.push_late(|writer| writer.close(session(serial), CloseReason::Kicked));
        }
        assert!(!queue.push(1, |writer| writer.payload(session(1), b"x")), "it would overtake");
        let (records, payloads) = drain(&mut queue);
        let closes: Vec<_> = (1..=2000).map(|serial| (serial, 0)).collect();
        assert_eq!((payloads, &records[26..]), (26, &closes[..]));
        assert!(queue.push(1, |writer| writer.payload(session(1), b"x")));
    }

    #[test]
    fn encoded_records_that_must_arrive_wait_up_to_a_bound() {
        let mut queue = Queue::new(1);
        let mut bytes = [0; 16 * 1024];
        let mut writer = Writer::new(&mut bytes);
        assert!(writer.close(session(1), CloseReason::Kicked));
        let close = Frames::new(writer.bytes()).next().expect("one").expect("own");
        let mut pushed = 0;
        while queue.push_late_frame(close) {
            pushed += 1;
        }
        assert_eq!(pushed, BUNDLE_BYTES_MAX / 13 + LATE_BYTES_MAX / 13);
        assert!(!queue.push_frame(close), "it would overtake");
        assert_eq!(drain(&mut queue).0.len(), pushed, "none of them was dropped");
    }

    #[test]
    fn what_is_thrown_away_is_counted() {
        let mut queue = Queue::new(3);
        let pushed = fill(&mut queue);
        queue.push_late(|writer| writer.close(session(1), CloseReason::Kicked));
        assert_eq!(queue.clear(), pushed);
        assert_eq!(drain(&mut queue), (vec![], 0));
    }
}

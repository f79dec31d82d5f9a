//! What both drivers do once the kernel has put a datagram into a slot, or an error in its place.
#![allow(unsafe_code, reason = "passes on the driver's promise that a slot is the batch's alone")]

use super::cmsg::Received;
use super::errno::{self, ReceiveTrouble};
use super::interface::SocketKind;
use super::slots::{SlotSize, Slots};
use super::socket::drops_since;
use super::table::Registered;
use super::{events, sockaddr};
use ringgate_batch::{Endpoint, IoStats, RxBatch, RxMeta, SocketId};

/// A datagram in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    pub(super) size: SlotSize,
    pub(super) slot: u16,
    pub(super) len: usize,
    pub(super) truncated: bool,
    /// The sender, as the kernel wrote it.
    pub(super) name: &'a [u8],
    pub(super) control: &'a [u8],
}

/// What a receive that brought an error means for its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There may be more: ask again.
    Again,
    /// Nothing more for now.
    Empty,
    /// Nothing more ever.
    Ended,
}

impl Arrival<'_> {
    /// An empty record is how a link says that its peer has hung up.
    pub(super) fn is_end(&self) -> bool {
        self.size == SlotSize::Large && self.len == 0
    }

    /// Puts the datagram into the batch and counts it.
    ///
    /// # Safety
    /// Until the batch is emptied, neither the kernel nor anybody else touches the data part of the
    /// slot.
    #[inline]
    pub(super) unsafe fn lend<S>(
        &self,
        slots: &Slots,
        (id, socket): (SocketId, &mut Registered<S>),
        rx: &mut RxBatch,
        stats: &mut IoStats,
    ) {
        let told = Received::decode(self.control);
        if let Some(drops) = told.drops {
            let more = drops_since(socket.drops, drops);
            stats.kernel_drops += u64::from(more);
            socket.drops = socket.drops.wrapping_add(more);
        }
        stats.rx_datagrams += 1;
        stats.rx_bytes += self.len as u64;
        let peer = sockaddr::decode(self.name).unwrap_or(NOBODY);
        let offset = slots.data_offset(self.size, self.slot) as u32;
        let mut meta = RxMeta::new(id, peer, u32::from(self.slot), offset, self.len as u32);
        meta.local = told.local;
        meta.kernel_ns = told.kernel_ns;
        meta.truncated = self.truncated;
        // SAFETY: slots do not overlap, and the caller vouches for this one.
        unsafe { rx.push(meta) };
    }
}

/// Digests the errno of a receive.
pub(super) fn handle_error<S>(
    errno: i32,
    (id, socket): (SocketId, &Registered<S>),
    rx: &mut RxBatch,
    stats: &mut IoStats,
) -> Next {
    match (errno::of_receive(errno), socket.kind) {
        (ReceiveTrouble::Empty | ReceiveTrouble::Cancelled, _) => Next::Empty,
        (ReceiveTrouble::Interrupted, _) => Next::Again,
        (ReceiveTrouble::NoRoom, _) => {
            stats.rx_no_buffers += 1;
            Next::Empty
        }
        (_, SocketKind::Link | SocketKind::LinkListener) => {
            stats.rx_errors += 1;
            Next::Ended
        }
        (ReceiveTrouble::Earlier | ReceiveTrouble::Broken, _) => {
            stats.rx_errors += 1;
            events::read_errors(id, socket, rx, stats);
            Next::Again
        }
    }
}

/// The peer of a socket whose peers have no address.
const NOBODY: Endpoint = Endpoint::v6([0; 16], 0, 0);

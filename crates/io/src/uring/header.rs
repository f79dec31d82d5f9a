//! What the kernel writes in front of a datagram that a multishot receive has put into a slot:
//! `struct io_uring_recvmsg_out`, the sender's name, control data, each with the room that we have
//! asked for.

use std::ptr::null_mut;

use crate::receive::Arrival;
use crate::slots::{RECVMSG_OUT_BYTES, SlotSize, Slots};
use ringgate_os::message::{CONTROL_BYTES, NAME_BYTES};

/// Tells the kernel how much room to leave in a slot for a sender's name and control data. Read
/// when a request is submitted. Links leave none: a descriptor that a process sends along is then
/// closed by the kernel instead of becoming ours.
#[derive(Debug)]
pub(super) struct Headers {
    small: Box<libc::msghdr>,
    large: Box<libc::msghdr>,
}

// SAFETY: the headers' pointers are all null.
unsafe impl Send for Headers {}

impl Headers {
    pub(super) fn new() -> Self {
        let header = |name_bytes, control_bytes| libc::msghdr {
            msg_name: null_mut(),
            msg_namelen: name_bytes as u32,
            msg_iov: null_mut(),
            msg_iovlen: 0,
            msg_control: null_mut(),
            msg_controllen: control_bytes,
            msg_flags: 0,
        };
        Self { small: Box::new(header(NAME_BYTES, CONTROL_BYTES)), large: Box::new(header(0, 0)) }
    }

    pub(super) fn of(&self, size: SlotSize) -> *const libc::msghdr {
        match size {
            SlotSize::Small => &raw const *self.small,
            SlotSize::Large => &raw const *self.large,
        }
    }
}

/// Reads the header of a slot that a completion has named. `None` where the receive brought an
/// error.
///
/// # Safety
/// The slot is not provided to the kernel again while the answer is alive.
pub(super) unsafe fn read(
    slots: &Slots,
    size: SlotSize,
    slot: u16,
    result: i32,
) -> Option<Arrival<'_>> {
    let header_bytes = size.header_bytes();
    let len = usize::try_from(result).ok()?.checked_sub(header_bytes)?;
    let (pointer, _) = slots.slot(size, slot);
    // SAFETY: `slots` checked the bounds, the arena is initialised, and the kernel has let go of
    // the slot for as long as the caller promises. The batch lends out only what lies behind these
    // bytes.
    let header = unsafe { std::slice::from_raw_parts(pointer.as_ptr(), header_bytes) };
    let (out, rest) = header.split_at(RECVMSG_OUT_BYTES);
    let word = |at: usize| out[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let (name, control) = rest.split_at(rest.len().min(NAME_BYTES));
    Some(Arrival {
        size,
        slot,
        len: len.min(size.data_bytes()),
        truncated: word(12) & libc::MSG_TRUNC as u32 != 0,
        name: &name[..name.len().min(word(0) as usize)],
        control: &control[..control.len().min(word(4) as usize)],
    })
}

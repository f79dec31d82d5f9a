//! Requests, and the tags that their completions bring back.

use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

use super::buf_ring::group_of;
use crate::slots::SlotSize;
use ringgate_batch::SocketId;

/// All that is ever asked of a driver's ring.
pub(super) const CODES: [u8; 2] = [opcode::RecvMsgMulti::CODE, opcode::PollAdd::CODE];

/// The flags that come with it.
pub(super) const FLAGS: squeue::Flags = squeue::Flags::FIXED_FILE
    .union(squeue::Flags::IO_LINK)
    .union(squeue::Flags::SKIP_SUCCESS)
    .union(squeue::Flags::BUFFER_SELECT);

/// What a completion belongs to. With the id of the socket it fills the 64 bits that the kernel
/// hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// The bell has rung.
    Bell,
    /// A receive brought a datagram, or has ended: one of a turn, or one behind a wait.
    Receive(SlotSize, Asked),
    /// A wait in front of a receive has failed; its success is not reported.
    Wait,
    /// A process knocks at a listener.
    Listen,
    /// There is something beside the sockets.
    Beside,
}

/// What a receive was asked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    ByTurn,
    BehindWait,
}

impl Op {
    pub(super) const fn tag(self, id: SocketId) -> u64 {
        let op = match self {
            Self::Bell => 0_u64,
            Self::Receive(SlotSize::Small, Asked::ByTurn) => 1,
            Self::Receive(SlotSize::Large, Asked::ByTurn) => 2,
            Self::Wait => 3,
            Self::Listen => 4,
            Self::Beside => 5,
            Self::Receive(SlotSize::Small, Asked::BehindWait) => 6,
            Self::Receive(SlotSize::Large, Asked::BehindWait) => 7,
        };
        op << 32 | id.0 as u64
    }

    pub(super) const fn of_tag(tag: u64) -> (Self, SocketId) {
        let op = match tag >> 32 {
            0 => Self::Bell,
            1 => Self::Receive(SlotSize::Small, Asked::ByTurn),
            2 => Self::Receive(SlotSize::Large, Asked::ByTurn),
            3 => Self::Wait,
            4 => Self::Listen,
            6 => Self::Receive(SlotSize::Small, Asked::BehindWait),
            7 => Self::Receive(SlotSize::Large, Asked::BehindWait),
            _ => Self::Beside,
        };
        (op, SocketId(tag as u32))
    }
}

/// A socket as the ring knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handle {
    /// By its place among the registered descriptors.
    Fixed(u32),
    /// By its descriptor.
    Raw(RawFd),
}

/// Builds a request for either kind of handle.
macro_rules! on {
    ($handle:expr, $fd:ident => $request:expr) => {
        match $handle {
            Handle::Fixed(index) => {
                let $fd = types::Fixed(index);
                $request
            }
            Handle::Raw(raw) => {
                let $fd = types::Fd(raw);
                $request
            }
        }
    };
}

/// Takes what is there, datagram by datagram, and never stays in the socket's wait queue.
pub(super) fn drain(
    handle: Handle,
    size: SlotSize,
    header: *const libc::msghdr,
    id: SocketId,
) -> squeue::Entry {
    let group = group_of(size);
    let flags = libc::MSG_DONTWAIT as u32;
    on!(handle, fd => opcode::RecvMsgMulti::new(fd, header, group).flags(flags).build())
        .user_data(Op::Receive(size, Asked::ByTurn).tag(id))
}

/// Waits until there is something, then takes it: one chain, so that waking up and receiving are
/// one system call.
pub(super) fn wait_and_drain(
    handle: Handle,
    size: SlotSize,
    header: *const libc::msghdr,
    id: SocketId,
) -> [squeue::Entry; 2] {
    let wait = poll(handle)
        .flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS)
        .user_data(Op::Wait.tag(id));
    let behind = Op::Receive(size, Asked::BehindWait).tag(id);
    [wait, drain(handle, size, header, id).user_data(behind)]
}

/// Waits until a process knocks.
pub(super) fn listen(handle: Handle, id: SocketId) -> squeue::Entry {
    poll(handle).user_data(Op::Listen.tag(id))
}

/// Waits until the bell rings.
pub(super) fn bell(fd: RawFd) -> squeue::Entry {
    poll(Handle::Raw(fd)).user_data(Op::Bell.tag(SocketId(0)))
}

/// Waits until there is something beside the sockets.
pub(super) fn beside(fd: RawFd) -> squeue::Entry {
    poll(Handle::Raw(fd)).user_data(Op::Beside.tag(SocketId(0)))
}

fn poll(handle: Handle) -> squeue::Entry {
    on!(handle, fd => opcode::PollAdd::new(fd, libc::POLLIN as u32).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back_as_they_went() {
        use SlotSize::{Large, Small};
        let receives = [Asked::ByTurn, Asked::BehindWait]
            .map(|asked| [Small, Large].map(|size| Op::Receive(size, asked)));
        let others = [Op::Bell, Op::Wait, Op::Listen, Op::Beside];
        for op in receives.into_iter().flatten().chain(others) {
            for id in [0, 1, u32::MAX] {
                assert_eq!(Op::of_tag(op.tag(SocketId(id))), (op, SocketId(id)));
            }
        }
    }
}

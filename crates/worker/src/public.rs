//! A worker's sockets for players, which come and go with their listeners.

use super::opened::NewSockets;
use super::{card, sockets};
use ringgate_batch::SocketId;
use ringgate_gate::{BindId, Gate, Phase};
use ringgate_io::socket::drops_since;
use ringgate_io::{SocketDriver, SocketKind};
use ringgate_os::hold_point;

/// The sockets, and what the kernel has dropped at them.
pub(super) struct PublicSockets {
    open: Vec<Open>,
    /// Up to the last look, at those that have closed as well.
    dropped: u64,
    /// Given, but not the gate's yet.
    waiting: Vec<NewSockets>,
}

struct Open {
    socket: SocketId,
    /// What the kernel said at the last look.
    seen: u32,
}

impl PublicSockets {
    /// These, and what the processes before have counted beside what these say. Where there were
    /// none to go on from, what was dropped at these by now is nobody's.
    pub(super) fn new(
        sockets: Vec<SocketId>,
        before: Option<u64>,
        dropped_at: impl Fn(SocketId) -> u32,
    ) -> Self {
        let open = |socket| Open { socket, seen: dropped_at(socket) };
        let open = sockets.into_iter().map(open).collect();
        let mut new = Self { open, dropped: 0, waiting: Vec::new() };
        new.dropped = before.map_or(0, |before| before.wrapping_sub(new.dropped_before()));
        new
    }

    /// Datagrams that were dropped at sockets which have closed, or that open ones say no more,
    /// less what they say and is nobody's: that may be below zero, and wraps.
    pub(super) fn dropped_before(&self) -> u64 {
        let said = self.open.iter().map(|open| u64::from(open.seen)).sum();
        self.dropped.wrapping_sub(said)
    }

    /// Datagrams that the kernel has dropped, at all sockets that there have been.
    pub(super) fn dropped(&mut self, driver: &impl SocketDriver) -> u64 {
        self.look(|it| driver.fd(it).map(|_| driver.dropped_at(it) as u32))
    }

    /// Takes in what open sockets say.
    fn look(&mut self, dropped_at: impl Fn(SocketId) -> Option<u32>) -> u64 {
        let dropped = &mut self.dropped;
        self.open.retain_mut(|Open { socket, seen }| {
            let Some(now) = dropped_at(*socket) else { return false };
            let more = drops_since(*seen, now);
            *dropped += u64::from(more);
            *seen = seen.wrapping_add(more);
            true
        });
        *dropped
    }

    /// Takes sockets that were given, and registers those whose listener the gate knows. Returns
    /// how many datagrams the smallest of their buffers holds, where there are any.
    pub(super) fn take(
        &mut self,
        given: impl Iterator<Item = NewSockets>,
        driver: &mut impl SocketDriver,
        gate: &mut Gate,
    ) -> Option<u32> {
        self.waiting.extend(given);
        if self.waiting.is_empty() {
            return None;
        }
        let revision = gate.revision();
        let is_known = |new: &mut NewSockets| new.revision <= revision;
        let known: Vec<_> = self.waiting.extract_if(.., is_known).collect();
        let before = self.open.len();
        for new in known {
            self.register(new, driver, gate);
        }
        let new: Vec<_> = self.open[before..].iter().map(|open| open.socket).collect();
        (!new.is_empty()).then(|| sockets::room(driver, &new))
    }

    fn register(&mut self, new: NewSockets, driver: &mut impl SocketDriver, gate: &mut Gate) {
        let NewSockets { listener, sockets, by_card, .. } = new;
        if gate.setup().listeners[listener].phase == Phase::Closed {
            return;
        }
        hold_point!("worker Sockets");
        for (bind, socket) in sockets.into_iter().enumerate() {
            match driver.register(socket.fd, SocketKind::Datagram) {
                Ok(id) => {
                    if by_card {
                        let rules = &gate.setup().listeners[listener];
                        card::serve_by_card(driver, rules, [(id, socket.local)].into_iter());
                    }
                    gate.bind_player_socket(id, listener, BindId::at(bind));
                    self.open.push(Open { socket: id, seen: 0 });
                }
                Err(why) => {
                    let (listener, address) =
                        (&gate.setup().listeners[listener].name, socket.local);
                    tracing::error!(
                        event = "listener_lame",
                        listener,
                        %address,
                        %why,
                        "a worker cannot serve listener {listener} on {address}: {why}"
                    );
                    // Addresses are bound in order.
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_where_the_kernels_begins_again_and_from_process_to_process() {
        let said = |one: u32| move |it: SocketId| Some(if it.0 == 1 { one } else { 7 });
        let sockets = |before, one: u32| {
            let said = said(one);
            PublicSockets::new([1, 2].map(SocketId).into(), before, |it| said(it).expect("open"))
        };
        let mut first = sockets(Some(0), 0);
        assert_eq!(first.look(said(u32::MAX / 2)), (1 << 31) + 6);
        assert_eq!(first.look(said(u32::MAX - 1)), (1 << 32) + 5);
        assert_eq!(first.look(said(5)), (1 << 32) + 12);
        let mut second = sockets(Some(first.dropped_before()), 5);
        assert_eq!(second.look(said(6)), (1 << 32) + 13);
        // In the upper half of the kernel's count, too.
        second.look(said(1 << 31));
        assert_eq!(second.look(said(3 << 30)), (1 << 32) + (3 << 30) + 7);
        let mut third = sockets(Some(second.dropped_before()), 3 << 30);
        assert_eq!(third.look(said((3 << 30) + 1)), (1 << 32) + (3 << 30) + 8);
        // What was dropped before there was anybody to count is not counted later.
        let mut fourth = sockets(None, 1000);
        assert_eq!(fourth.look(said(1001)), 1);
        let mut fifth = sockets(Some(fourth.dropped_before()), 1002);
        assert_eq!(fifth.look(said(1003)), 3);
        let mut second = sockets(Some(first.dropped_before()), 6);
        // One has closed.
        let other = |it: SocketId| Some(9).filter(|_| it.0 == 2);
        assert_eq!(second.look(other), (1 << 32) + 15);
        assert_eq!(second.dropped_before(), (1 << 32) + 6);
    }
}

//! A worker's sockets for players, which come and go with their listeners.

use super::opened::NewSockets;
use super::{card, sockets};
use ringgate_batch::SocketId;
use ringgate_gate::{BindId, Gate, Phase};
use ringgate_io::{SocketDriver, SocketKind};
use ringgate_os::hold_point;

/// The sockets, and what the kernel has dropped at them.
pub(super) struct PublicSockets {
    open: Vec<Open>,
    /// Dropped at those that have closed.
    dropped: u64,
    /// Given, but not the gate's yet.
    waiting: Vec<NewSockets>,
}

struct Open {
    socket: SocketId,
    /// As of the last look.
    dropped: u64,
}

impl PublicSockets {
    /// These, and what was dropped at others before.
    pub(super) fn new(sockets: Vec<SocketId>, dropped: u64) -> Self {
        let open = sockets.into_iter().map(|socket| Open { socket, dropped: 0 }).collect();
        Self { open, dropped, waiting: Vec::new() }
    }

    /// Datagrams that were dropped at sockets which have closed.
    pub(super) const fn dropped_before(&self) -> u64 {
        self.dropped
    }

    /// Datagrams that the kernel has dropped, at all sockets that there have been.
    pub(super) fn dropped(&mut self, driver: &impl SocketDriver) -> u64 {
        let gone = &mut self.dropped;
        self.open.retain_mut(|open| {
            if driver.fd(open.socket).is_none() {
                *gone += open.dropped;
                return false;
            }
            open.dropped = driver.dropped_at(open.socket);
            true
        });
        self.dropped + self.open.iter().map(|open| open.dropped).sum::<u64>()
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
                    self.open.push(Open { socket: id, dropped: 0 });
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

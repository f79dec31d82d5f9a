//! Players of a member in a test: what it has, what it was told, and what has come.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ringgate_cluster::wire::Datagram;

use crate::peers::{Arrival, Number, Players};

type Of = (u16, SocketAddr);
type Came = (u16, SocketAddr, SocketAddr, bool, Vec<u8>);

#[derive(Default)]
struct Inner {
    listeners: Arc<[(u16, String)]>,
    held: BTreeSet<Of>,
    changes: Vec<(Of, bool)>,
    accepted: Vec<(Of, u32, Number)>,
    /// With what was accepted a second.
    known: BTreeMap<Of, (Number, u32)>,
    departures: Vec<(Number, u16, [SocketAddr; 2], Vec<u8>)>,
    came: Vec<Came>,
}

#[derive(Default)]
pub(super) struct Stub(Mutex<Inner>);

impl Stub {
    pub(super) fn new(listeners: &[(u16, &str)]) -> Arc<Self> {
        let stub = Arc::new(Self::default());
        stub.set_listeners(listeners);
        stub
    }

    fn with<T>(&self, of: impl FnOnce(&mut Inner) -> T) -> T {
        of(&mut self.0.lock().expect("no test has failed"))
    }

    pub(super) fn set_listeners(&self, listeners: &[(u16, &str)]) {
        let named = listeners.iter().map(|(number, name)| (*number, (*name).to_owned()));
        self.with(|it| it.listeners = named.collect());
    }

    pub(super) fn come(&self, listener: u16, player: SocketAddr) {
        self.with(|it| {
            it.held.insert((listener, player));
            it.changes.push(((listener, player), true));
        });
    }

    pub(super) fn go(&self, listener: u16, player: SocketAddr) {
        self.with(|it| {
            it.held.remove(&(listener, player));
            it.changes.push(((listener, player), false));
        });
    }

    pub(super) fn accept(&self, listener: u16, player: SocketAddr, count: u32, by: Number) {
        self.with(|it| it.accepted.push(((listener, player), count, by)));
    }

    pub(super) fn send(
        &self,
        to: Number,
        listener: u16,
        (player, at): (SocketAddr, SocketAddr),
        bytes: &[u8],
    ) {
        self.with(|it| it.departures.push((to, listener, [player, at], bytes.to_vec())));
    }

    pub(super) fn finds(&self, listener: u16, player: SocketAddr) -> Option<Number> {
        self.with(|it| it.known.get(&(listener, player)).map(|(number, _)| *number))
    }

    pub(super) fn rate(&self, listener: u16, player: SocketAddr) -> Option<u32> {
        self.with(|it| it.known.get(&(listener, player)).map(|(_, per_s)| *per_s))
    }

    pub(super) fn take(&self) -> Option<Came> {
        self.with(|it| it.came.pop())
    }
}

impl Players for Arc<Stub> {
    fn listeners(&self) -> Arc<[(u16, String)]> {
        self.with(|it| Arc::clone(&it.listeners))
    }

    fn take_changes(&self, max: usize, handle: &mut dyn FnMut(u16, SocketAddr, bool)) {
        self.with(|it| {
            let count = max.min(it.changes.len());
            for ((listener, player), is_here) in it.changes.drain(..count) {
                handle(listener, player, is_here);
            }
        });
    }

    fn part(&self, part: usize) -> Option<Vec<(u16, SocketAddr)>> {
        self.with(|it| (part == 0).then(|| it.held.iter().copied().collect()))
    }

    fn learn(&self, member: Number, listener: u16, player: &SocketAddr) -> bool {
        self.with(|it| it.known.insert((listener, *player), (member, 0)));
        true
    }

    fn unlearn(&self, _: Number, listener: u16, player: &SocketAddr) {
        self.with(|it| it.known.remove(&(listener, *player)));
    }

    fn forget(&self, member: Number) {
        self.with(|it| it.known.retain(|_, (number, _)| *number != member));
    }

    fn take_accepted(&self, handle: &mut dyn FnMut(Number, u16, SocketAddr, u32)) {
        self.with(|it| {
            for ((listener, player), count, by) in it.accepted.drain(..) {
                handle(by, listener, player, count);
            }
        });
    }

    fn learn_accepted(&self, _: Number, listener: u16, player: &SocketAddr, per_s: u32) {
        self.with(|it| it.known.get_mut(&(listener, *player)).map(|known| known.1 = per_s));
    }

    fn take_departures(&self, max: usize, handle: &mut dyn FnMut(Number, Datagram<'_>)) -> bool {
        self.with(|it| {
            let count = max.min(it.departures.len());
            for (to, listener, [player, at], bytes) in it.departures.drain(..count) {
                let datagram =
                    Datagram { listener, player, to: at, is_lost: false, hops: 1, bytes: &bytes };
                handle(to, datagram);
            }
            !it.departures.is_empty()
        })
    }

    fn arrive(&self, _: Number, listener: u16, datagram: &Datagram<'_>) -> Arrival {
        let Datagram { player, to, is_lost, bytes, .. } = *datagram;
        self.with(|it| it.came.push((listener, player, to, is_lost, bytes.to_vec())));
        Arrival::Taken
    }
}

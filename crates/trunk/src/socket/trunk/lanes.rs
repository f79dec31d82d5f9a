//! What comes by a trunk's datagrams, and how a gateway finds out where an agent's lane is: where a
//! datagram comes from that is authentic and newer than all before, once that has proven to be so.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use crate::protocol::datagram::Header;
use crate::protocol::tls::Failure;
use ringgate_link::bundle::Run;
use ringgate_os::notify::Epoll;

use super::{End, Event, SocketLane, Trunk};

/// Bursts that are taken in before anything else has its turn.
const BURSTS_MAX: usize = 4;

impl Trunk {
    pub(super) fn receive_lane(
        &mut self,
        lane: usize,
        now_ns: u64,
        handle: &mut impl FnMut(Event<'_>),
    ) -> Result<(), End> {
        let Self { seats, aead, buffers, .. } = self;
        let Some(way) = seats.get_mut(lane).and_then(|seat| seat.way.as_mut()) else {
            return Ok(());
        };
        let telling = Telling::new(lane as u8, way, handle);
        let mut received = Ok(());
        for _ in 0..BURSTS_MAX {
            let deliver = |link: u16, run: Run<'_>| telling.records(link, run);
            let stray = |from: SocketAddr, datagram: &[u8]| {
                telling.tell(Event::Stray { from, datagram });
            };
            match way.receive(buffers, aead, now_ns, deliver, stray) {
                Ok((has_more, is_authentic)) => {
                    telling.note(is_authentic && way.socket().is_some());
                    if !has_more {
                        break;
                    }
                }
                Err(why) => {
                    received = Err(End::Failed(Failure::Io(why)));
                    break;
                }
            }
        }
        way.is_up = telling.is_up.get();
        received
    }

    /// At a gateway: a datagram that has come to the address that everybody knows. If it is
    /// authentic and of a lane of ours, that lane's other end may be at its sender
    /// (`SocketLane::handle_at_door`).
    pub fn handle_datagram(
        &mut self,
        from: SocketAddr,
        datagram: &mut [u8],
        epoll: &Epoll,
        now_ns: u64,
        mut handle: impl FnMut(Event<'_>),
    ) {
        let Some(Header { lane, .. }) = Header::read(datagram) else { return };
        let Self { seats, aead, line, .. } = self;
        let Some(way) = seats.get_mut(usize::from(lane)).and_then(|seat| seat.way.as_mut()) else {
            return;
        };
        let telling = Telling::new(lane, way, &mut handle);
        let deliver = |link: u16, run: Run<'_>| telling.records(link, run);
        let set = (epoll, self.settings.token + 1 + u64::from(lane));
        let taken = line.local().and_then(|own| {
            let places = (own, line.peer());
            way.handle_at_door((from, datagram), places, set, (aead, now_ns), deliver)
        });
        telling.note(matches!(taken, Ok(true)) && way.socket().is_some());
        way.is_up = telling.is_up.get();
        if let Err(why) = taken {
            self.end_with(End::Failed(Failure::Io(why)));
        }
    }
}

/// Hands on what a lane brings: that it is up comes before its first record.
struct Telling<'a, H> {
    lane: u8,
    has_socket: bool,
    is_up: Cell<bool>,
    handle: RefCell<&'a mut H>,
}

impl<'a, H: FnMut(Event<'_>)> Telling<'a, H> {
    fn new(lane: u8, way: &SocketLane, handle: &'a mut H) -> Self {
        let (has_socket, is_up) = (way.socket().is_some(), Cell::new(way.is_up));
        Self { lane, has_socket, is_up, handle: RefCell::new(handle) }
    }

    fn tell(&self, event: Event<'_>) {
        (self.handle.borrow_mut())(event);
    }

    fn note(&self, is_authentic: bool) {
        if is_authentic && !self.is_up.replace(true) {
            self.tell(Event::LaneUp(self.lane));
        }
    }

    #[inline]
    fn records(&self, link: u16, run: Run<'_>) {
        self.note(self.has_socket);
        for frame in run.frames() {
            self.tell(Event::Record { lane: self.lane, link, frame });
        }
    }
}

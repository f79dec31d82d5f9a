//! What comes by a trunk's datagrams, and how a gateway finds out where an agent's lane is: the
//! sender of a datagram that is authentic and new.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use ringgate_link::bundle::Run;
use ringgate_os::notify::Epoll;
use ringgate_trunk::datagram::Header;
use ringgate_trunk::tls::Failure;

use super::{End, Event, Trunk};

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
        let Some(mut port) = way.port.take() else { return Ok(()) };
        let telling = Telling::new(lane as u8, way.is_up, handle);
        let mut received = Ok(());
        for _ in 0..BURSTS_MAX {
            let deliver = |link: u16, run: Run<'_>| telling.records(link, run);
            let stray = |from: SocketAddr, datagram: &[u8]| {
                telling.tell(Event::Stray { from, datagram });
            };
            match port.receive(buffers, (way.lane(), aead), now_ns, deliver, stray) {
                Ok((has_more, is_authentic)) => {
                    telling.note(is_authentic);
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
        way.port = Some(port);
        way.is_up = telling.is_up.get();
        received
    }

    /// At a gateway: a datagram that has come to the address that everybody knows. If it is of a
    /// lane of ours, and authentic and new, its sender is where that lane's other end is.
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
        let telling = Telling::new(lane, way.is_up, &mut handle);
        let is_authentic = way.receive_at_door(datagram, aead, now_ns, |link, run| {
            telling.records(link, run);
        });
        telling.note(is_authentic);
        way.is_up = telling.is_up.get();
        if !is_authentic || way.leads_to(from) {
            return;
        }
        let token = self.settings.token + 1 + u64::from(lane);
        let moved = line.local().and_then(|own| way.move_to((own, from), epoll, token));
        if let Err(why) = moved {
            self.end_with(End::Failed(Failure::Io(why)));
        }
    }
}

/// Hands on what a lane brings: that it is up comes before its first record.
struct Telling<'a, H> {
    lane: u8,
    is_up: Cell<bool>,
    handle: RefCell<&'a mut H>,
}

impl<'a, H: FnMut(Event<'_>)> Telling<'a, H> {
    const fn new(lane: u8, is_up: bool, handle: &'a mut H) -> Self {
        Self { lane, is_up: Cell::new(is_up), handle: RefCell::new(handle) }
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
        self.note(true);
        for frame in run.frames() {
            self.tell(Event::Record { lane: self.lane, link, frame });
        }
    }
}

//! A trunk that goes on in another process: bytes, and descriptors in the order in which they are
//! asked for. The other side notices nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::protocol::control::{VERSION_MAX, VERSION_MIN, Welcome};
use crate::protocol::lane::Role;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_os::notify::Epoll;

use super::lent::Position;
use super::{End, Seat, Settings, SocketLane, Trunk};
use crate::socket::line::Line;

impl Trunk {
    /// Has it be something that another process can go on with; until then it goes on here. False
    /// where it cannot: it has not begun, or it is over.
    pub fn make_portable(&mut self, now_ns: u64) -> bool {
        let is_lent = self.seats.iter().any(|seat| seat.way.is_none());
        if self.over.is_some() || self.welcome.is_none() || is_lent {
            return false;
        }
        if let Err(why) = self.line.make_portable() {
            self.end_with(End::Failed(why));
            return false;
        }
        let Self { seats, aead, .. } = self;
        for way in seats.iter_mut().filter_map(|seat| seat.way.as_mut()) {
            way.make_portable(aead, now_ns);
        }
        true
    }

    /// Writes all of it but its descriptors, once it is portable.
    pub fn write(&self, out: &mut Writer<'_>) {
        // The caller has settings of its own, an AEAD and buffers are made, what is over is not
        // handed on, and who is watched is seen anew.
        let Self { settings: _, aead: _, buffers: _, over: _, line_is_watched_for_room: _, .. } =
            self;
        let Self { role, line, conversation, welcome, seats, beat_due_ns, heard_ns, .. } = self;
        let Self { piece: _, .. } = self;
        role.write(out);
        line.write(out);
        conversation.write(out);
        welcome.write(out);
        (seats.len() as u8).write(out);
        for seat in seats {
            seat.write(out);
        }
        [*beat_due_ns, *heard_ns].write(out);
    }

    /// What goes beside it.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ports = self.ways().filter_map(|way| way.port.as_ref());
        [self.line.as_fd()].into_iter().chain(ports.map(AsFd::as_fd))
    }

    /// What another process had. Takes its descriptors from `fds`.
    pub fn read(
        from: &mut Reader<'_>,
        fds: &mut impl Iterator<Item = OwnedFd>,
        role: Role,
        settings: Settings,
        epoll: &Epoll,
    ) -> Result<Self, Broken> {
        let theirs = Role::read(from)?;
        let line = Line::read(from, fds.next().ok_or(Broken::Truncated)?)?;
        let conversation = Carry::read(from)?;
        let welcome = Option::<Welcome>::read(from)?.ok_or(Broken::Invalid("trunk"))?;
        let count = u8::read(from)?;
        let seats = (0..count).map(|_| Seat::read(from, fds)).collect::<Result<Vec<_>, _>>()?;
        let (beat_due_ns, heard_ns) = (time::read(from)?, time::read(from)?);
        let trunk = Self {
            beat_due_ns,
            heard_ns,
            welcome: Some(welcome),
            seats,
            // The process before may have taken in more than it looked at.
            has_more: true,
            ..Self::new(role, settings, line, conversation, 0)
        };
        if !(VERSION_MIN..=VERSION_MAX).contains(&welcome.version) {
            return Err(Broken::Invalid("version of a trunk"));
        }
        let is_sound = theirs == role && count == welcome.lanes && trunk.is_sound(welcome);
        is_sound.then_some(()).ok_or(Broken::Invalid("trunk"))?;
        trunk.watch(epoll).map_err(|_| Broken::Invalid("descriptor"))?;
        Ok(trunk)
    }

    /// Whether its parts are of one trunk.
    fn is_sound(&self, welcome: Welcome) -> bool {
        let mut numbered = (0..).zip(self.ways());
        self.conversation.lanes() == Some(welcome.lanes)
            && numbered.all(|(lane, way)| way.is_of(self.role, (welcome.trunk, lane)))
    }

    fn watch(&self, epoll: &Epoll) -> std::io::Result<()> {
        let tokens = self.settings.token + 1..;
        epoll.add(self.line.as_fd(), self.settings.token)?;
        for (token, way) in tokens.zip(self.ways()) {
            if let Some(port) = &way.port {
                epoll.add(port.as_fd(), token)?;
            }
        }
        Ok(())
    }

    /// Another process may have gone on with it, and has not.
    pub fn jump(&mut self) {
        self.seats.iter_mut().filter_map(|seat| seat.way.as_mut()).for_each(SocketLane::jump);
    }

    /// Of a trunk that has lent none, all of them.
    fn ways(&self) -> impl Iterator<Item = &SocketLane> {
        self.seats.iter().filter_map(|seat| seat.way.as_ref())
    }
}

impl Seat {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { way, position, lender: _, missed } = self;
        // The rest of it is about a lane that is lent.
        let Position { told, read: _, heard, reserved: _ } = position;
        way.as_ref().expect("it is portable").write(out);
        [*told, *heard].write(out);
        missed.write(out);
    }

    fn read(
        from: &mut Reader<'_>,
        fds: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<Self, Broken> {
        let way = SocketLane::read(from, fds)?;
        let [told, heard] = Carry::read(from)?;
        let position = Position { told, read: 0, heard, reserved: 0 };
        Ok(Self { way: Some(way), position, lender: None, missed: Carry::read(from)? })
    }
}

//! A lane and its way to the other side: one socket, which a gateway has only once it has heard
//! from the agent where that is.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::protocol::beat::SILENCE_NS;
use crate::protocol::keys::Rekey;
use crate::protocol::lane::{Full, Lane, Role, Secrets, Stats};
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_core::crypto::Aead;
use ringgate_link::bundle::{Frame, Run};
use ringgate_os::notify::Epoll;

use super::trial::Trials;
use crate::socket::port::{Buffers, Port};
use crate::socket::wire::Wire;

/// What there is to say of a lane and its socket.
#[derive(Clone, Copy, Debug)]
pub struct LaneStats {
    /// The lane's own.
    pub lane: Stats,
    /// Whether anything authentic has come on it.
    pub is_up: bool,
    /// Whether a worker has it.
    pub is_lent: bool,
    /// Payloads for which there was no room, because the socket takes no more.
    pub full: u64,
    /// Messages that the kernel has cut into datagrams, and such that it refused to.
    pub cut: [u64; 2],
    /// How often the other side's address has changed.
    pub moved: u64,
    /// Records for links that are over, where somebody else has the lane; otherwise the trunk's
    /// owner knows.
    pub link_gone: u64,
    /// Payloads that those links had no room for, likewise.
    pub link_full: u64,
}

/// One lane with its socket. It can be lent ([`Trunk::lend`](super::Trunk::lend)): who has it makes
/// the same turns with it as the trunk does.
#[derive(Debug)]
pub struct SocketLane<W = Port> {
    lane: Lane,
    pub(super) port: Option<W>,
    /// Other addresses, at one of which the other end may be now.
    trials: Trials<W>,
    pub(super) is_up: bool,
    /// Its first address has proven to be the other end's, and it was not said that it is up.
    has_risen: bool,
    is_watched_for_room: bool,
    began_ns: u64,
    full: u64,
    pub(super) moved: u64,
    link_gone: u64,
    link_full: u64,
    /// Of sockets that were replaced.
    cut_before: [u64; 2],
}

impl<W: Wire> SocketLane<W> {
    pub(crate) fn new(
        role: Role,
        which: (u32, u8),
        secrets: Secrets,
        rekey: Rekey,
        now_ns: u64,
    ) -> Self {
        Self {
            lane: Lane::new(role, which, secrets, rekey, now_ns),
            port: None,
            trials: Trials::default(),
            is_up: false,
            has_risen: false,
            is_watched_for_room: false,
            began_ns: now_ns,
            full: 0,
            moved: 0,
            link_gone: 0,
            link_full: 0,
            cut_before: [0; 2],
        }
    }

    /// Whether it is that lane's, at that end.
    pub(super) fn is_of(&self, role: Role, which: (u32, u8)) -> bool {
        self.lane.is_of(role, which)
    }

    pub(super) const fn jump(&mut self) {
        self.lane.jump();
    }

    /// Seals what was pushed, so that it goes along. What was asked does not.
    pub(super) fn make_portable(&mut self, aead: &mut Aead, now_ns: u64) {
        self.trials.end();
        // What the socket does not take goes along too.
        let _ = self.send(aead, now_ns);
        self.lane.seal(now_ns, aead);
    }

    /// The lane.
    #[inline]
    pub const fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    /// Takes in what its sockets have, up to a burst of each, as [`Port::receive`] does. Returns
    /// whether there may be more, and whether anything was authentic.
    pub fn receive(
        &mut self,
        buffers: &mut Buffers,
        aead: &mut Aead,
        now_ns: u64,
        mut deliver: impl FnMut(u16, Run<'_>),
        mut stray: impl FnMut(SocketAddr, &[u8]),
    ) -> io::Result<(bool, bool)> {
        let Self { lane, port, trials, .. } = self;
        let mut all = (false, false);
        let mut failed = Ok(());
        let first = port.iter_mut().map(|port| (port, false));
        let second = trials.port().map(|port| (port, true));
        let mut is_refused = false;
        for (port, is_tried) in first.chain(second) {
            match port.receive(buffers, (lane, aead), now_ns, &mut deliver, &mut stray) {
                Ok((has_more, is_authentic)) => {
                    all = (all.0 | has_more, all.1 | is_authentic);
                }
                Err(_) if is_tried => is_refused = true,
                Err(why) => failed = Err(why),
            }
        }
        if is_refused {
            self.trials.end();
        }
        self.judge(now_ns);
        failed.map(|()| all)
    }

    /// At a gateway: a datagram for this lane that has come to the address that everybody knows.
    /// Returns whether it is authentic, and whether it is newer than all before: only then the
    /// other end may be at its sender ([`SocketLane::try_address`]).
    pub fn receive_at_door(
        &mut self,
        datagram: &mut [u8],
        aead: &mut Aead,
        now_ns: u64,
        deliver: impl FnMut(u16, Run<'_>),
    ) -> (bool, bool) {
        let before = self.lane.latest();
        let is_authentic = self.lane.receive_runs(now_ns, aead, &mut [datagram], deliver);
        self.judge(now_ns);
        (is_authentic, self.lane.latest() > before)
    }

    /// The same, and goes by where the datagram has come `from`. The first one from where the
    /// `stream` comes from says where the other end is, also when a copy of it was quicker; a
    /// sender elsewhere has to prove itself. Returns whether the datagram is authentic.
    pub(crate) fn handle_at_door(
        &mut self,
        (from, datagram): (SocketAddr, &mut [u8]),
        (own, stream): (SocketAddr, SocketAddr),
        set: (&W::Set, u64),
        (aead, now_ns): (&mut Aead, u64),
        deliver: impl FnMut(u16, Run<'_>),
    ) -> io::Result<bool> {
        let is_first = self.port.is_none()
            && from.ip() == stream.ip()
            && self.lane.is_authentic(datagram, aead);
        if is_first {
            self.set_port(W::open((own, from), set)?);
        }
        let (is_authentic, is_newest) = self.receive_at_door(datagram, aead, now_ns, deliver);
        if is_newest {
            self.try_address((own, from), set, now_ns);
        }
        Ok(is_authentic || is_first)
    }

    /// Where the other end is, once that is known.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.port.as_ref().map(W::peer)
    }

    /// Something authentic and newer than all before has come from `peer`: finds out whether that
    /// is where the other end is now. The lane answers from `own`, and no other address.
    pub fn try_address(
        &mut self,
        (own, peer): (SocketAddr, SocketAddr),
        set: (&W::Set, u64),
        now_ns: u64,
    ) {
        let before = self.peer();
        if before != Some(peer) {
            self.trials.begin((own, peer), before.is_some(), set, now_ns);
        }
    }

    /// An address that was asked and is not the other end's, once.
    pub const fn take_unproven(&mut self) -> Option<SocketAddr> {
        self.trials.take_unproven()
    }

    /// Whether an address is asked.
    pub const fn is_trying(&self) -> bool {
        self.trials.is_going_on()
    }

    /// Goes by what was answered.
    fn judge(&mut self, now_ns: u64) {
        if let Some(port) = self.trials.judge(&mut self.lane, now_ns) {
            self.has_risen = !self.is_up;
            self.set_port(port);
            self.lane.handle_moved(now_ns);
        }
    }

    /// Whether it has come up by what was answered, once.
    pub(crate) fn take_risen(&mut self) -> bool {
        mem::take(&mut self.has_risen) && !mem::replace(&mut self.is_up, true)
    }

    /// The other side is there from now on, and nowhere else.
    pub(crate) fn set_port(&mut self, port: W) {
        self.trials.end();
        if let Some(before) = self.port.replace(port) {
            self.moved += 1;
            let cut = before.cut();
            self.cut_before = [self.cut_before[0] + cut[0], self.cut_before[1] + cut[1]];
        }
        self.is_watched_for_room = false;
    }

    /// A lane of a gateway that knows no address yet is silent when nobody has spoken in time.
    pub fn is_silent(&self, now_ns: u64) -> bool {
        match self.port {
            Some(_) => self.lane.is_silent(now_ns),
            None => now_ns.saturating_sub(self.began_ns) >= SILENCE_NS,
        }
    }

    /// What time brings: beats, probes and questions, which the next flush sends.
    pub fn poll(&mut self, now_ns: u64) {
        self.judge(now_ns);
        if self.port.is_some() {
            self.lane.poll(now_ns);
        }
    }

    /// When that is due.
    pub fn due_ns(&self) -> u64 {
        let due_ns = match self.port {
            Some(_) => self.lane.due_ns(),
            None => self.began_ns + SILENCE_NS,
        };
        let due_ns = if self.has_risen { 0 } else { due_ns };
        due_ns.min(self.trials.due_ns())
    }

    /// Appends a record that may be lost, after making room by sending where there is none. What
    /// finds none even so is counted (`full`).
    #[inline]
    pub fn push(&mut self, link: u16, frame: Frame<'_>, aead: &mut Aead, now_ns: u64) {
        if self.lane.push(link, frame) == Err(Full) {
            // What a failed send means is seen when the trunk is flushed.
            let _ = self.send(aead, now_ns);
            if self.lane.push(link, frame).is_err() {
                self.full += frame.payloads() + u64::from(frame.ends_message());
            }
        }
    }

    /// The same for records, one after the other.
    #[inline]
    pub fn push_run(&mut self, link: u16, mut run: Run<'_>, aead: &mut Aead, now_ns: u64) {
        while self.lane.push_run(link, &mut run) == Err(Full) {
            let _ = self.send(aead, now_ns);
            if self.lane.push_run(link, &mut run).is_ok() {
                return;
            }
            // No room for this one, and perhaps for none.
            if let Some(frame) = run.take_first() {
                self.full += frame.payloads() + u64::from(frame.ends_message());
            }
        }
    }

    /// Seals and sends. Whether the kernel took everything.
    fn send(&mut self, aead: &mut Aead, now_ns: u64) -> io::Result<bool> {
        let Self { lane, port: Some(port), .. } = self else { return Ok(true) };
        if lane.is_empty() {
            return Ok(true);
        }
        lane.seal(now_ns, aead);
        port.send(lane, now_ns)
    }

    /// Who has it counts what links did not take: records for such that are over, and payloads that
    /// there was no room for.
    pub const fn count_dropped(&mut self, gone: u64, full: u64) {
        self.link_gone += gone;
        self.link_full += full;
    }

    /// Whether something waits to be sent.
    pub fn has_pending(&self) -> bool {
        !self.lane.is_empty() || self.trials.must_ask()
    }

    /// Seals and sends what waits, and has the set say when there is room for the rest.
    pub fn flush(
        &mut self,
        aead: &mut Aead,
        set: &W::Set,
        token: u64,
        now_ns: u64,
    ) -> io::Result<()> {
        let is_stuck = !self.send(aead, now_ns)?;
        let Self { lane, port, trials, .. } = self;
        trials.ask(port.as_mut(), lane, (aead, now_ns));
        let Some(port) = &self.port else { return Ok(()) };
        if is_stuck != self.is_watched_for_room {
            self.is_watched_for_room = is_stuck;
            port.watch_for_room((set, token), is_stuck)?;
        }
        Ok(())
    }

    /// What there is to say of it.
    pub fn stats(&self) -> LaneStats {
        let cut = self.port.as_ref().map_or([0; 2], W::cut);
        LaneStats {
            lane: self.lane.stats(),
            is_up: self.is_up,
            is_lent: false,
            full: self.full,
            cut: [self.cut_before[0] + cut[0], self.cut_before[1] + cut[1]],
            moved: self.moved,
            link_gone: self.link_gone,
            link_full: self.link_full,
        }
    }
}

impl SocketLane {
    pub(super) fn write(&self, out: &mut Writer<'_>) {
        // Whether there is room shows when it is sent to, and what comes says that it is up.
        let Self { lane, port, is_up, is_watched_for_room: _, began_ns, full, moved, .. } = self;
        let Self { has_risen: _, link_gone, link_full, cut_before, trials: _, .. } = self;
        lane.write(out);
        port.is_some().write(out);
        if let Some(port) = port {
            port.write(out);
        }
        is_up.write(out);
        [*began_ns, *full, *moved, *link_gone, *link_full].write(out);
        cut_before.write(out);
    }

    pub(super) fn read(
        from: &mut Reader<'_>,
        fds: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<Self, Broken> {
        let (lane, has_port) = (Carry::read(from)?, bool::read(from)?);
        let port = if has_port {
            let fd = fds.next().ok_or(Broken::Truncated)?;
            Some(Port::read(from, fd)?)
        } else {
            None
        };
        Ok(Self {
            lane,
            port,
            trials: Trials::default(),
            is_up: Carry::read(from)?,
            has_risen: false,
            is_watched_for_room: false,
            began_ns: time::read(from)?,
            full: Carry::read(from)?,
            moved: Carry::read(from)?,
            link_gone: Carry::read(from)?,
            link_full: Carry::read(from)?,
            cut_before: Carry::read(from)?,
        })
    }

    /// Its socket, once there is one.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.port.as_ref().map(Port::as_fd)
    }

    /// Is in this set no more, and in somebody else's hands from now on.
    pub fn leave(&mut self, epoll: &Epoll) {
        self.trials.end();
        if let Some(socket) = self.socket() {
            let _ = epoll.remove(socket);
        }
    }
}

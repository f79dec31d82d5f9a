//! A lane and its way to the other side: one socket, which a gateway has only once it has heard
//! from the agent where that is.

use std::io;
use std::os::fd::AsFd;

use ringgate_core::crypto::Aead;
use ringgate_link::bundle::Frame;
use ringgate_os::notify::Epoll;
use ringgate_trunk::beat::SILENCE_NS;
use ringgate_trunk::keys::Rekey;
use ringgate_trunk::lane::{Full, Lane, Role, Secrets, Stats};

use crate::port::Port;

/// What there is to say of a lane and its socket.
#[derive(Clone, Copy, Debug)]
pub struct LaneStats {
    /// The lane's own.
    pub lane: Stats,
    /// Whether anything authentic has come on it.
    pub is_up: bool,
    /// Payloads for which there was no room, because the socket takes no more.
    pub full: u64,
    /// Messages that the kernel has cut into datagrams, and such that it refused to.
    pub cut: [u64; 2],
    /// How often the other side's address has changed.
    pub moved: u64,
}

/// One lane with its socket.
#[derive(Debug)]
pub(super) struct Way {
    lane: Lane,
    pub(super) port: Option<Port>,
    pub(super) is_up: bool,
    is_watched_for_room: bool,
    began_ns: u64,
    full: u64,
    pub(super) moved: u64,
    /// Of sockets that were replaced.
    cut_before: [u64; 2],
}

impl Way {
    pub(super) fn new(
        role: Role,
        which: (u32, u8),
        secrets: Secrets,
        rekey: Rekey,
        now_ns: u64,
    ) -> Self {
        Self {
            lane: Lane::new(role, which, secrets, rekey, now_ns),
            port: None,
            is_up: false,
            is_watched_for_room: false,
            began_ns: now_ns,
            full: 0,
            moved: 0,
            cut_before: [0; 2],
        }
    }

    pub(super) const fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    /// The other side is there from now on.
    pub(super) fn set_port(&mut self, port: Port) {
        if let Some(before) = self.port.replace(port) {
            self.moved += 1;
            let cut = before.cut();
            self.cut_before = [self.cut_before[0] + cut[0], self.cut_before[1] + cut[1]];
        }
        self.is_watched_for_room = false;
    }

    /// A lane of a gateway that knows no address yet is silent when nobody has spoken in time.
    pub(super) fn is_silent(&self, now_ns: u64) -> bool {
        match self.port {
            Some(_) => self.lane.is_silent(now_ns),
            None => now_ns.saturating_sub(self.began_ns) >= SILENCE_NS,
        }
    }

    pub(super) fn poll(&mut self, now_ns: u64) {
        if self.port.is_some() {
            self.lane.poll(now_ns);
        }
    }

    pub(super) fn due_ns(&self) -> u64 {
        match self.port {
            Some(_) => self.lane.due_ns(),
            None => self.began_ns + SILENCE_NS,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, link: u16, frame: Frame<'_>, aead: &mut Aead, now_ns: u64) {
        if self.lane.push(link, frame) == Err(Full) {
            // What a failed send means is seen when the trunk is flushed.
            let _ = self.send(aead, now_ns);
            if self.lane.push(link, frame).is_err() {
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

    pub(super) fn flush(
        &mut self,
        aead: &mut Aead,
        epoll: &Epoll,
        token: u64,
        now_ns: u64,
    ) -> io::Result<()> {
        let is_stuck = !self.send(aead, now_ns)?;
        let Some(port) = &self.port else { return Ok(()) };
        if is_stuck != self.is_watched_for_room {
            self.is_watched_for_room = is_stuck;
            epoll.watch_for_room(port.as_fd(), token, is_stuck)?;
        }
        Ok(())
    }

    pub(super) fn stats(&self) -> LaneStats {
        let cut = self.port.as_ref().map_or([0; 2], Port::cut);
        LaneStats {
            lane: self.lane.stats(),
            is_up: self.is_up,
            full: self.full,
            cut: [self.cut_before[0] + cut[0], self.cut_before[1] + cut[1]],
            moved: self.moved,
        }
    }
}

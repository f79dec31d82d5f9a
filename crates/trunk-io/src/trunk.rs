//! One end of a trunk with its sockets. The caller's turn: say what is
//! [ready](Trunk::handle_ready), [push](Trunk::push) and [tell](Trunk::tell) what local links have,
//! let time pass ([`Trunk::poll`]), [flush](Trunk::flush) once.
//!
//! What goes wrong ends the trunk, and is looked at once a turn ([`Trunk::over`]): until then
//! everything may still be called, and does nothing.

mod lanes;
mod way;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use ringgate_core::crypto::Aead;
use ringgate_link::bundle::{Frame, WORKERS_MAX};
use ringgate_os::notify::{Epoll, Ready};
use ringgate_trunk::beat::SILENCE_NS;
use ringgate_trunk::control::{BEAT_NS, Control, Reason, VERSION_MAX, VERSION_MIN, Welcome};
use ringgate_trunk::handshake::{Conversation, Step};
use ringgate_trunk::keys::Rekey;
use ringgate_trunk::lane::Role;
use ringgate_trunk::tls::{self, Failure};
use rustls::pki_types::ServerName;

use crate::line::Line;
use crate::port::{Buffers, Port};
pub use way::LaneStats;
use way::Way;

/// Why a trunk is over.
#[derive(Debug)]
pub enum End {
    /// The connection failed, or the other side has not proven who it is.
    Failed(Failure),
    /// The other side has ended it.
    Theirs(Reason),
    /// This side has.
    Ours(Reason),
}

impl End {
    /// Its name in metrics and events.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Failed(why) => why.name(),
            Self::Theirs(why) | Self::Ours(why) => why.name(),
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed(why) => why.fmt(f),
            Self::Theirs(why) => write!(f, "the other side has ended it: {why}"),
            Self::Ours(why) => write!(f, "it was ended here: {why}"),
        }
    }
}

/// What has happened on a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// At an agent: it is welcome.
    Begun(Welcome),
    /// Something authentic has come on a lane for the first time.
    LaneUp(u8),
    /// A record for a link.
    Record {
        /// The worker.
        lane: u8,
        /// The link.
        link: u16,
        /// The record.
        frame: Frame<'a>,
    },
    /// A link is over.
    Ended {
        /// The worker.
        lane: u8,
        /// The link.
        link: u16,
    },
    /// A datagram for somebody else has come to this trunk's socket.
    Stray {
        /// Who sent it.
        from: SocketAddr,
        /// What it is.
        datagram: &'a [u8],
    },
}

/// What both ends have in common.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// When keys are moved on.
    pub rekey: Rekey,
    /// What the stream is called in the caller's set; the lanes have the numbers after it.
    pub token: u64,
}

/// One end of a trunk.
#[derive(Debug)]
pub struct Trunk {
    role: Role,
    settings: Settings,
    line: Line,
    conversation: Conversation,
    welcome: Option<Welcome>,
    ways: Vec<Way>,
    aead: Aead,
    buffers: Buffers,
    over: Option<End>,
    beat_due_ns: u64,
    heard_ns: u64,
    line_is_watched_for_room: bool,
}

impl Trunk {
    /// An agent's end: begins to connect.
    pub fn connect(
        agent: &tls::Agent,
        (to, server): (SocketAddr, ServerName<'static>),
        name: &str,
        settings: Settings,
        epoll: &Epoll,
        now_ns: u64,
    ) -> io::Result<Self> {
        let stream = agent.connect(server).map_err(io::Error::other)?;
        let mut line = Line::connect(to, stream)?;
        epoll.add(line.as_fd(), settings.token)?;
        epoll.watch_for_room(line.as_fd(), settings.token, true)?;
        let hello = line.outbox().hello((VERSION_MIN, VERSION_MAX), name);
        hello.map_err(io::Error::other)?;
        let conversation = Conversation::new(Role::Agent);
        let mut trunk = Self::new(Role::Agent, settings, line, conversation, now_ns);
        trunk.line_is_watched_for_room = true;
        Ok(trunk)
    }

    /// A gateway's end, for an agent whose hello was found good: says welcome.
    pub fn welcome(
        mut line: Line,
        mut conversation: Conversation,
        welcome: Welcome,
        settings: Settings,
        epoll: &Epoll,
        now_ns: u64,
    ) -> io::Result<Self> {
        epoll.add(line.as_fd(), settings.token)?;
        line.outbox().welcome(&welcome).map_err(io::Error::other)?;
        conversation.begin(welcome.lanes);
        let mut trunk = Self::new(Role::Gateway, settings, line, conversation, now_ns);
        trunk.begin(welcome, now_ns).map_err(|end| io::Error::other(end.to_string()))?;
        Ok(trunk)
    }

    fn new(
        role: Role,
        settings: Settings,
        line: Line,
        conversation: Conversation,
        now_ns: u64,
    ) -> Self {
        Self {
            role,
            settings,
            line,
            conversation,
            welcome: None,
            ways: Vec::new(),
            aead: Aead::detect(),
            buffers: Buffers::default(),
            over: None,
            beat_due_ns: now_ns,
            heard_ns: now_ns,
            line_is_watched_for_room: false,
        }
    }

    /// Who is at the other end of the stream.
    pub const fn peer(&self) -> SocketAddr {
        self.line.peer()
    }

    /// What both sides have agreed on, once they have.
    pub const fn agreed(&self) -> Option<Welcome> {
        self.welcome
    }

    /// Bytes of records that wait for the stream to take them. Who has more to tell waits before
    /// that is too much.
    pub fn waiting_bytes(&mut self) -> usize {
        self.line.outbox().bytes().len()
    }

    /// How many lanes it has; none before it has begun.
    pub const fn lane_count(&self) -> usize {
        self.ways.len()
    }

    /// Why it is over, once it is: then it is to be dropped.
    pub const fn over(&self) -> Option<&End> {
        self.over.as_ref()
    }

    /// Something in the caller's set is ready. `handle` gets what has happened, and may not answer
    /// at once: what it has to say is pushed behind it.
    pub fn handle_ready(
        &mut self,
        ready: Ready,
        epoll: &Epoll,
        now_ns: u64,
        mut handle: impl FnMut(Event<'_>),
    ) {
        if self.over.is_some() {
            return;
        }
        let read = match ready.token.checked_sub(self.settings.token + 1) {
            None => self.receive_stream(epoll, now_ns, &mut handle),
            Some(lane) => self.receive_lane(lane as usize, now_ns, &mut handle),
        };
        if let Err(end) = read {
            self.end_with(end);
        }
    }

    /// Whether a member of the caller's set is this trunk's.
    pub const fn is_own(&self, token: u64) -> bool {
        token >= self.settings.token && token - self.settings.token <= WORKERS_MAX as u64
    }

    fn receive_stream(
        &mut self,
        epoll: &Epoll,
        now_ns: u64,
        handle: &mut impl FnMut(Event<'_>),
    ) -> Result<(), End> {
        loop {
            // The first time, what came while this was not a trunk yet.
            self.handle_frames(epoll, now_ns, handle)?;
            match self.line.receive().map_err(End::Failed)? {
                tls::Received::Nothing => return Ok(()),
                tls::Received::Something => self.heard_ns = now_ns,
                tls::Received::Closed => {
                    return Err(End::Failed(Failure::Io(io::ErrorKind::UnexpectedEof.into())));
                }
            }
        }
    }

    fn handle_frames(
        &mut self,
        epoll: &Epoll,
        now_ns: u64,
        handle: &mut impl FnMut(Event<'_>),
    ) -> Result<(), End> {
        loop {
            let Self { line, conversation, ways, .. } = self;
            let Some(control) = line.next() else { return Ok(()) };
            let control = control.map_err(|_| End::Ours(Reason::Format))?;
            match conversation.handle(control).map_err(End::Ours)? {
                Step::Lane(control) => hand_on(ways, control, handle)?,
                Step::Over(why) => return Err(End::Theirs(why)),
                Step::Begin(welcome) => {
                    self.begin(welcome, now_ns)?;
                    let to = self.line.peer();
                    self.open_ports(to, epoll)?;
                    handle(Event::Begun(welcome));
                }
                Step::Nothing => {}
                // The gateway has decided before there was a trunk.
                Step::Decide { .. } => return Err(End::Ours(Reason::Format)),
            }
        }
    }

    fn begin(&mut self, welcome: Welcome, now_ns: u64) -> Result<(), End> {
        let Self { role, settings, line, ways, .. } = self;
        for lane in 0..welcome.lanes {
            let secrets = line.stream().secrets(lane);
            let secrets = secrets.map_err(|why| End::Failed(Failure::Tls(why)))?;
            ways.push(Way::new(*role, (welcome.trunk, lane), secrets, settings.rekey, now_ns));
        }
        self.welcome = Some(welcome);
        Ok(())
    }

    /// Opens an agent's sockets. The first datagram of each is a beat, which is due at once.
    fn open_ports(&mut self, to: SocketAddr, epoll: &Epoll) -> Result<(), End> {
        let failed = |why| End::Failed(Failure::Io(why));
        let own = self.line.local().map_err(failed)?;
        for (lane, way) in self.ways.iter_mut().enumerate() {
            let port = Port::open(SocketAddr::new(own.ip(), 0), to).map_err(failed)?;
            epoll.add(port.as_fd(), self.settings.token + 1 + lane as u64).map_err(failed)?;
            way.set_port(port);
        }
        Ok(())
    }

    /// Appends a record that may be lost. What finds no room is counted (`full`).
    #[inline]
    pub fn push(&mut self, lane: u8, link: u16, frame: Frame<'_>, now_ns: u64) {
        let Self { ways, aead, .. } = self;
        if let Some(way) = ways.get_mut(usize::from(lane)) {
            way.push(link, frame, aead, now_ns);
        }
    }

    /// A record that must arrive. Where too much waits, the trunk ends.
    pub fn tell(&mut self, lane: u8, link: u16, frame: Frame<'_>) {
        let Self { ways, line, .. } = self;
        let Some(way) = ways.get_mut(usize::from(lane)) else { return };
        if line.outbox().record((way.lane(), lane), link, frame).is_err() {
            self.end_with(End::Ours(Reason::OverFull));
        }
    }

    /// A record of either kind.
    #[inline]
    pub fn carry(&mut self, lane: u8, link: u16, frame: Frame<'_>, now_ns: u64) {
        if frame.may_be_lost() {
            self.push(lane, link, frame, now_ns);
        } else {
            self.tell(lane, link, frame);
        }
    }

    /// The other side is told that a link is over.
    pub fn end(&mut self, lane: u8, link: u16) {
        let Self { ways, line, .. } = self;
        let Some(way) = ways.get_mut(usize::from(lane)) else { return };
        if line.outbox().ended((way.lane(), lane), link).is_err() {
            self.end_with(End::Ours(Reason::OverFull));
        }
    }

    /// What time brings.
    pub fn poll(&mut self, now_ns: u64) {
        if self.over.is_some() {
            return;
        }
        let is_silent = |way: &Way| way.is_silent(now_ns);
        if now_ns.saturating_sub(self.heard_ns) >= SILENCE_NS || self.ways.iter().any(is_silent) {
            return self.end_with(End::Ours(Reason::Silence));
        }
        self.ways.iter_mut().for_each(|way| way.poll(now_ns));
        if now_ns >= self.beat_due_ns && self.conversation.has_begun() {
            self.beat_due_ns = now_ns + BEAT_NS;
            if self.line.outbox().beat().is_err() {
                self.end_with(End::Ours(Reason::OverFull));
            }
        }
    }

    /// When [`poll`](Self::poll) has something to do.
    pub fn due_ns(&self) -> u64 {
        let silent_ns = self.heard_ns + SILENCE_NS;
        let beat_ns = if self.conversation.has_begun() { self.beat_due_ns } else { u64::MAX };
        let own_ns = silent_ns.min(beat_ns);
        self.ways.iter().map(Way::due_ns).fold(own_ns, u64::min)
    }

    /// Sends what waits, the stream first, and has the set say when there is room for the rest.
    pub fn flush(&mut self, epoll: &Epoll, now_ns: u64) {
        if self.over.is_some() {
            return;
        }
        if let Err(end) = self.try_flush(epoll, now_ns) {
            self.end_with(end);
        }
    }

    fn try_flush(&mut self, epoll: &Epoll, now_ns: u64) -> Result<(), End> {
        let failed = |why| End::Failed(Failure::Io(why));
        let Self { settings, line, ways, aead, line_is_watched_for_room, .. } = self;
        line.flush().map_err(failed)?;
        if line.wants_room() != *line_is_watched_for_room {
            *line_is_watched_for_room = line.wants_room();
            epoll
                .watch_for_room(line.as_fd(), settings.token, line.wants_room())
                .map_err(failed)?;
        }
        for (token, way) in (settings.token + 1..).zip(ways) {
            way.flush(aead, epoll, token, now_ns).map_err(failed)?;
        }
        Ok(())
    }

    /// Ends it with a reason that the other side is told, as far as the kernel takes it at once.
    pub fn say_goodbye(&mut self, why: Reason) {
        self.end_with(End::Ours(why));
    }

    fn end_with(&mut self, end: End) {
        if self.over.is_some() {
            return;
        }
        if let End::Ours(why) = end {
            let _ = self.line.outbox().goodbye(why);
            // Twice: the last word, and then that it was the last.
            let _ = self.line.flush();
            self.line.close();
        }
        // Also what TLS has to say about a failure.
        let _ = self.line.flush();
        self.over = Some(end);
    }

    /// A lane's socket is another one from now on.
    #[cfg(test)]
    pub(crate) fn replace_port(&mut self, lane: usize, port: Port) {
        self.ways[lane].set_port(port);
    }

    /// What there is to say of each lane.
    pub fn stats(&self) -> impl Iterator<Item = LaneStats> + '_ {
        self.ways.iter().map(Way::stats)
    }
}

/// What has come by the stream for a lane, and what has waited for it.
fn hand_on(
    ways: &mut [Way],
    control: Control<'_>,
    handle: &mut impl FnMut(Event<'_>),
) -> Result<(), End> {
    let (Control::Record { lane, .. } | Control::Ended { lane, .. }) = control else {
        return Err(End::Ours(Reason::Format));
    };
    let way = ways.get_mut(usize::from(lane)).ok_or(End::Ours(Reason::Format))?;
    match control {
        Control::Record { link, frame, .. } => {
            handle(Event::Record { lane, link, frame });
            way.lane().handle_record(link, frame, |link, frame| {
                handle(Event::Record { lane, link, frame });
            });
        }
        Control::Ended { link, .. } => {
            way.lane().handle_end(link, |link, frame| {
                handle(Event::Record { lane, link, frame });
            });
            handle(Event::Ended { lane, link });
        }
        _ => {}
    }
    Ok(())
}

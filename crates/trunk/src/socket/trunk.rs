//! One end of a trunk with its sockets. The caller's turn: say what is
//! [ready](Trunk::handle_ready), [push](Trunk::push) and [tell](Trunk::tell) what local links have,
//! let time pass ([`Trunk::poll`]), [flush](Trunk::flush) once.
//!
//! What goes wrong ends the trunk, and is looked at once a turn ([`Trunk::over`]): until then
//! everything may still be called, and does nothing.

mod carried;
mod lanes;
mod lent;
mod trial;
mod way;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use crate::protocol::beat::SILENCE_NS;
use crate::protocol::control::{
    BEAT_NS, Control, OverFull, Reason, VERSION_MAX, VERSION_MIN, Welcome,
};
use crate::protocol::handshake::{Conversation, FrameAction};
use crate::protocol::keys::Rekey;
use crate::protocol::lane::{NoteTold, Role};
use crate::protocol::tls::{self, Failure};
use ringgate_core::crypto::Aead;
use ringgate_link::bundle::{Frame, Frames, SessionId, WORKERS_MAX};
use ringgate_os::notify::{Epoll, Ready};
use rustls::pki_types::ServerName;

use crate::socket::line::Line;
use crate::socket::port::{Buffers, Port};
pub use lent::{LaneReport, Lease};
use lent::{Lender, Position};
pub use way::{LaneStats, SocketLane};

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
    /// The other gateway of the cluster says something.
    Message(&'a [u8]),
    /// The other end is there, or says what only a later version knows.
    Beat,
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
    /// A lane's datagrams have come from an address at which the other end is not.
    Unproven {
        /// Which.
        from: SocketAddr,
    },
    /// Who has a lane has caught up with what was said on a link before: the link is the trunk's
    /// to read again.
    Caught {
        /// The link, by its serial number.
        serial: u32,
    },
}

/// What both ends have in common.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// When keys are moved on.
    pub rekey: Rekey,
    /// What the stream is called in the caller's set; the lanes have the numbers after it, and what
    /// a trunk lends has those after that.
    pub token: u64,
    /// The link on which gateways of a cluster forward to each other; nothing is announced there.
    pub forwards_on: Option<u16>,
}

/// One end of a trunk.
#[derive(Debug)]
pub struct Trunk {
    role: Role,
    settings: Settings,
    line: Line,
    conversation: Conversation,
    welcome: Option<Welcome>,
    seats: Vec<Seat>,
    aead: Aead,
    buffers: Buffers,
    over: Option<End>,
    beat_due_ns: u64,
    heard_ns: u64,
    line_is_watched_for_room: bool,
    /// The stream has brought more than was looked at.
    has_more: bool,
    /// What links of lanes that are lent have said is read into this.
    piece: Vec<u8>,
}

/// A lane's place in a trunk.
#[derive(Debug)]
struct Seat {
    /// Unless it is lent.
    way: Option<SocketLane>,
    position: Position,
    lender: Option<Lender>,
    /// Payloads that were to be pushed while it was lent.
    missed: u64,
}

/// Whoever has a lane is told of a frame that the stream is given.
struct Telling<'a> {
    seat: &'a mut Seat,
    /// It came by the pipe.
    is_read: bool,
}

impl NoteTold for Telling<'_> {
    fn note_told(&mut self) {
        let Self { seat: Seat { way, position, lender, .. }, is_read } = self;
        if !*is_read && position.reserved > 0 {
            position.reserved -= 1;
        } else {
            position.told = position.told.wrapping_add(1);
        }
        if let Some(way) = way {
            way.lane().note_told();
        }
        if let Some(lender) = lender.as_ref().filter(|_| !*is_read) {
            lender.show(position);
        }
    }
}

impl Seat {
    const fn new(way: SocketLane) -> Self {
        let position = Position { told: 0, read: 0, heard: 0, reserved: 0 };
        Self { way: Some(way), position, lender: None, missed: 0 }
    }

    /// A frame has come by the stream, and was handed on.
    fn note_heard(&mut self) {
        self.position.heard = self.position.heard.wrapping_add(1);
        if let Some(lender) = &self.lender {
            lender.show(&self.position);
        }
    }

    fn due_ns(&self) -> u64 {
        self.way.as_ref().map_or(u64::MAX, SocketLane::due_ns)
    }

    fn stats(&self) -> Option<LaneStats> {
        let lent = self.lender.as_ref().map(Lender::stats);
        let stats = self.way.as_ref().map(SocketLane::stats).or(lent)?;
        let (link_gone, is_lent) = (stats.link_gone + self.missed, self.lender.is_some());
        Some(LaneStats { is_lent, link_gone, ..stats })
    }
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
            seats: Vec::new(),
            aead: Aead::detect(),
            buffers: Buffers::default(),
            over: None,
            beat_due_ns: now_ns,
            heard_ns: now_ns,
            line_is_watched_for_room: false,
            has_more: false,
            piece: Vec::new(),
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

    /// Whether links have to wait with what they have for the stream.
    pub fn is_crowded(&mut self) -> bool {
        self.waiting_bytes() > HOLD_BYTES
    }

    /// How many lanes it has; none before it has begun.
    pub const fn lane_count(&self) -> usize {
        self.seats.len()
    }

    /// Why it is over, once it is: then it is to be dropped.
    pub const fn over(&self) -> Option<&End> {
        self.over.as_ref()
    }

    /// The name of that, and what people are told of it.
    pub fn why_over(&self) -> Option<(&'static str, String)> {
        let end = self.over()?;
        let more = if self.was_deaf() { ", and nothing has ever come by UDP" } else { "" };
        Some((end.name(), format!("{end}{more}")))
    }

    /// Whether it is over because no lane has ever brought a datagram: the way takes its stream,
    /// and nothing by UDP.
    pub fn was_deaf(&self) -> bool {
        let is_silent =
            |end: &End| matches!(end, End::Ours(why) | End::Theirs(why) if *why == Reason::Silence);
        let is_up = |stats: LaneStats| stats.is_up;
        self.welcome.is_some() && self.over().is_some_and(is_silent) && !self.stats().any(is_up)
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

    /// Whether the stream has brought more than was looked at: the set does not say so, and the
    /// caller looks again as if it had.
    pub const fn has_more(&self) -> bool {
        self.has_more && self.over.is_none()
    }

    /// Whether a member of the caller's set is this trunk's.
    pub const fn is_own(&self, token: u64) -> bool {
        token >= self.settings.token && token - self.settings.token < PIPES
    }

    fn receive_stream(
        &mut self,
        epoll: &Epoll,
        now_ns: u64,
        handle: &mut impl FnMut(Event<'_>),
    ) -> Result<(), End> {
        // An other side that never pauses does not have the thread to itself.
        self.has_more = true;
        for _ in 0..READS_MAX {
            // The first time, what came while this was not a trunk yet.
            self.handle_frames(epoll, now_ns, handle)?;
            match self.line.receive().map_err(End::Failed)? {
                tls::Received::Nothing => {
                    self.has_more = false;
                    return Ok(());
                }
                tls::Received::Something => self.heard_ns = now_ns,
                tls::Received::Closed => {
                    return Err(End::Failed(Failure::Io(io::ErrorKind::UnexpectedEof.into())));
                }
            }
        }
        Ok(())
    }

    fn handle_frames(
        &mut self,
        epoll: &Epoll,
        now_ns: u64,
        handle: &mut impl FnMut(Event<'_>),
    ) -> Result<(), End> {
        loop {
            let Self { line, conversation, seats, .. } = self;
            let Some(control) = line.next() else { return Ok(()) };
            let control = control.map_err(|_| End::Ours(Reason::Format))?;
            match conversation.handle(control).map_err(End::Ours)? {
                FrameAction::Lane(control) => hand_on(seats, control, handle)?,
                FrameAction::Over(why) => return Err(End::Theirs(why)),
                FrameAction::Begin(welcome) => {
                    self.begin(welcome, now_ns)?;
                    let to = self.line.peer();
                    self.open_ports(to, epoll)?;
                    handle(Event::Begun(welcome));
                }
                FrameAction::Message(message) => handle(Event::Message(message)),
                FrameAction::Nothing => handle(Event::Beat),
                // The gateway has decided before there was a trunk.
                FrameAction::Decide { .. } => return Err(End::Ours(Reason::Format)),
            }
        }
    }

    fn begin(&mut self, welcome: Welcome, now_ns: u64) -> Result<(), End> {
        let Self { role, settings, line, seats, .. } = self;
        for lane in 0..welcome.lanes {
            let secrets = line.stream().secrets(lane);
            let secrets = secrets.map_err(|why| End::Failed(Failure::Tls(why)))?;
            let which = (welcome.trunk, lane);
            let mut way = SocketLane::new(*role, which, secrets, settings.rekey, now_ns);
            if let Some(link) = settings.forwards_on {
                way.lane().open_link(link);
            }
            seats.push(Seat::new(way));
        }
        self.welcome = Some(welcome);
        Ok(())
    }

    /// Opens an agent's sockets. The first datagram of each is a beat, which is due at once.
    fn open_ports(&mut self, to: SocketAddr, epoll: &Epoll) -> Result<(), End> {
        let failed = |why| End::Failed(Failure::Io(why));
        let own = self.line.local().map_err(failed)?;
        let ways = self.seats.iter_mut().filter_map(|seat| seat.way.as_mut());
        for (lane, way) in ways.enumerate() {
            let port = Port::open(SocketAddr::new(own.ip(), 0), to).map_err(failed)?;
            epoll.add(port.as_fd(), self.settings.token + 1 + lane as u64).map_err(failed)?;
            way.set_port(port);
        }
        Ok(())
    }

    /// Appends a record that may be lost. What finds no room is counted (`full`), and so is what is
    /// for a lane that is lent (`link_gone`): that is for who has it to send.
    #[inline]
    pub fn push(&mut self, lane: u8, link: u16, frame: Frame<'_>, now_ns: u64) {
        let Self { seats, aead, .. } = self;
        let Some(Seat { way, missed, .. }) = seats.get_mut(usize::from(lane)) else { return };
        match way {
            Some(way) => way.push(link, frame, aead, now_ns),
            None => *missed += frame.payloads().max(1),
        }
    }

    /// A record that must arrive. Where too much waits, the trunk ends.
    pub fn tell(&mut self, lane: u8, link: u16, frame: Frame<'_>) {
        self.give_stream(lane, false, |line, told| line.outbox().record((told, lane), link, frame));
    }

    /// What the other gateway of a cluster is told. Where too much waits, the trunk ends.
    pub fn say(&mut self, message: &[u8]) {
        if self.line.outbox().message(message).is_err() {
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

    /// The other side has been told that it does not have a session: no payload of it is passed on.
    pub fn forget_session(&mut self, lane: u8, session: SessionId) {
        let way = self.seats.get_mut(usize::from(lane)).and_then(|seat| seat.way.as_mut());
        if let Some(way) = way {
            way.lane().forget_session(session);
        }
    }

    /// The other side is told that a link is over.
    pub fn end(&mut self, lane: u8, link: u16) {
        self.give_stream(lane, false, |line, told| line.outbox().ended((told, lane), link));
    }

    fn give_stream(
        &mut self,
        lane: u8,
        is_read: bool,
        give: impl FnOnce(&mut Line, &mut Telling<'_>) -> Result<(), OverFull>,
    ) {
        let Self { seats, line, .. } = self;
        let Some(seat) = seats.get_mut(usize::from(lane)) else { return };
        if give(line, &mut Telling { seat, is_read }).is_err() {
            self.end_with(End::Ours(Reason::OverFull));
        }
    }

    /// The trunk is about to say so many things by itself: what links have said up to now goes
    /// before them. `link_of` knows links by their serial numbers, such as are not over.
    pub fn reserve(&mut self, lane: u8, count: u32, link_of: impl FnMut(u32) -> Option<u16>) {
        let Some(Seat { position, lender: Some(lender), .. }) =
            self.seats.get_mut(usize::from(lane))
        else {
            return;
        };
        position.told = position.told.wrapping_add(count);
        position.reserved += count;
        lender.show(position);
        self.drain(lane, link_of);
    }

    /// Gives the stream all that links of a lane that is lent have said for it up to now.
    pub fn drain(&mut self, lane: u8, link_of: impl FnMut(u32) -> Option<u16>) {
        self.read_pipe(lane, lent::PIPE_PIECES_MAX, link_of);
    }

    /// Gives it the next of that, unless it is crowded: links that never pause do not have the
    /// thread to themselves.
    pub fn drain_next(&mut self, lane: u8, link_of: impl FnMut(u32) -> Option<u16>) {
        if !self.is_crowded() {
            self.read_pipe(lane, READS_MAX, link_of);
        }
    }

    fn read_pipe(
        &mut self,
        lane: u8,
        pieces_max: usize,
        mut link_of: impl FnMut(u32) -> Option<u16>,
    ) {
        let mut piece = std::mem::take(&mut self.piece);
        for _ in 0..pieces_max {
            let Some(Seat { lender: Some(lender), .. }) = self.seats.get(usize::from(lane)) else {
                break;
            };
            let Some((serial, records)) = lender.read(&mut piece) else { break };
            let link = link_of(serial);
            for frame in Frames::new(records).map_while(Result::ok) {
                self.take_read(lane, link, frame);
            }
        }
        self.piece = piece;
    }

    /// A record has come by the pipe; its link may be over.
    fn take_read(&mut self, lane: u8, link: Option<u16>, frame: Frame<'_>) {
        let Some(Seat { position, lender, .. }) = self.seats.get_mut(usize::from(lane)) else {
            return;
        };
        position.read = position.read.wrapping_add(1);
        match link {
            Some(link) => self.give_stream(lane, true, |line, told| {
                line.outbox().record((told, lane), link, frame)
            }),
            None => lender.iter().for_each(|lender| lender.show(position)),
        }
    }

    /// The lane whose links have something for the stream, where a member of the caller's set says
    /// so: then it is to be [drained](Self::drain_next).
    pub fn lane_of_pipe(&self, token: u64) -> Option<u8> {
        let lane = token.checked_sub(self.settings.token + PIPES)?;
        u8::try_from(lane).ok().filter(|lane| self.is_lent(*lane))
    }

    /// Has links of lanes that are lent wait while the stream takes no more.
    pub fn hold(&mut self, is_held: bool, epoll: &Epoll) {
        let first = self.settings.token + PIPES;
        for (token, seat) in (first..).zip(&mut self.seats) {
            let Some(lender) = seat.lender.as_mut().filter(|it| it.is_held != is_held) else {
                continue;
            };
            lender.is_held = is_held;
            // To change a member of the set needs no memory.
            let _ = epoll.watch_for_input(lender.pipe(), token, !is_held);
        }
    }

    /// Lends a lane that is up to who has its payloads anyway, and is told what the two tell each
    /// other by `bell`. From then on the trunk carries no more than the stream for it. `None` where
    /// there is none to be lent.
    pub fn lend(&mut self, lane: u8, bell: OwnedFd, epoll: &Epoll) -> Option<(SocketLane, Lease)> {
        let own = self.line.local().ok()?;
        let Seat { way, position, lender, .. } = self.seats.get_mut(usize::from(lane))?;
        let is_up = |way: &mut SocketLane| way.is_up && way.socket().is_some();
        if !way.as_mut().is_some_and(is_up) {
            return None;
        }
        position.read = 0;
        let stats = way.as_ref()?.stats();
        let (ours, lease) = lent::lend(position, &stats, (own, bell)).ok()?;
        epoll.add(ours.pipe(), self.settings.token + PIPES + u64::from(lane)).ok()?;
        self.piece.resize(lent::PIECE_BYTES, 0);
        let mut way = way.take()?;
        way.leave(epoll);
        *lender = Some(ours);
        Some((way, lease))
    }

    /// Whether a lane is lent.
    pub fn is_lent(&self, lane: u8) -> bool {
        self.seats.get(usize::from(lane)).is_some_and(|seat| seat.lender.is_some())
    }

    /// A lane that was lent is back, and everything goes by the trunk again. What links have said
    /// before was [drained](Self::drain).
    pub fn restore(
        &mut self,
        lane: u8,
        mut way: SocketLane,
        epoll: &Epoll,
        mut handle: impl FnMut(Event<'_>),
    ) {
        let token = self.settings.token + 1 + u64::from(lane);
        let Some(seat) = self.seats.get_mut(usize::from(lane)) else { return };
        let Position { told, heard, .. } = seat.position;
        way.lane().set_told(told);
        way.lane().set_heard(heard, |link, frame| handle(Event::Record { lane, link, frame }));
        let added = way.socket().map_or(Ok(()), |socket| epoll.add(socket, token));
        (seat.way, seat.lender) = (Some(way), None);
        if let Err(why) = added {
            self.end_with(End::Failed(Failure::Io(why)));
        }
    }

    /// Hears what was said by those who have lanes, and what there is to say of the others.
    pub fn listen(&mut self, mut handle: impl FnMut(Event<'_>)) {
        let mut over = None;
        for lender in self.seats.iter().filter_map(|seat| seat.lender.as_ref()) {
            // No more than may wait: strangers who never pause do not have the thread for them.
            for word in std::iter::from_fn(|| lender.next()).take(lent::WORDS_MAX) {
                match word {
                    LaneReport::Stray(from, datagram) => {
                        handle(Event::Stray { from, datagram: &datagram });
                    }
                    LaneReport::Caught(serials) => {
                        for serial in serials {
                            handle(Event::Caught { serial });
                        }
                    }
                    LaneReport::Unproven(from) => handle(Event::Unproven { from }),
                    LaneReport::Silent => over = Some(End::Ours(Reason::Silence)),
                    LaneReport::Failed(why) => {
                        over = Some(End::Failed(Failure::Io(why)));
                        break;
                    }
                }
            }
        }
        for (lane, seat) in (0..).zip(&mut self.seats) {
            let Some(way) = &mut seat.way else { continue };
            if let Some(from) = way.take_unproven() {
                handle(Event::Unproven { from });
            }
            if way.take_risen() {
                handle(Event::LaneUp(lane));
            }
        }
        if let Some(end) = over {
            self.end_with(end);
        }
    }

    /// What time brings.
    pub fn poll(&mut self, now_ns: u64) {
        if self.over.is_some() {
            return;
        }
        let is_silent = |seat: &Seat| seat.way.as_ref().is_some_and(|way| way.is_silent(now_ns));
        if now_ns.saturating_sub(self.heard_ns) >= SILENCE_NS || self.seats.iter().any(is_silent) {
            return self.end_with(End::Ours(Reason::Silence));
        }
        self.seats.iter_mut().filter_map(|seat| seat.way.as_mut()).for_each(|way| way.poll(now_ns));
        if now_ns >= self.beat_due_ns && self.conversation.has_begun() {
            self.beat_due_ns = now_ns + BEAT_NS;
            if self.line.outbox().beat().is_err() {
                self.end_with(End::Ours(Reason::OverFull));
            }
        }
    }

    /// When [`poll`](Self::poll) has something to do.
    pub fn due_ns(&self) -> u64 {
        if self.has_more {
            return 0;
        }
        let silent_ns = self.heard_ns + SILENCE_NS;
        let beat_ns = if self.conversation.has_begun() { self.beat_due_ns } else { u64::MAX };
        let own_ns = silent_ns.min(beat_ns);
        self.seats.iter().map(Seat::due_ns).fold(own_ns, u64::min)
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
        let Self { settings, line, seats, aead, line_is_watched_for_room, .. } = self;
        line.flush().map_err(failed)?;
        if line.wants_room() != *line_is_watched_for_room {
            *line_is_watched_for_room = line.wants_room();
            epoll
                .watch_for_room(line.as_fd(), settings.token, line.wants_room())
                .map_err(failed)?;
        }
        for (token, seat) in (settings.token + 1..).zip(seats) {
            let Some(way) = &mut seat.way else { continue };
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

    /// Where a lane's other end is.
    #[cfg(test)]
    pub(crate) fn other_end(&self, lane: usize) -> Option<SocketAddr> {
        self.seats[lane].way.as_ref().and_then(SocketLane::peer)
    }

    /// A lane's socket is another one from now on.
    #[cfg(test)]
    pub(crate) fn replace_port(&mut self, lane: usize, port: Port) {
        self.seats[lane].way.as_mut().expect("it is not lent").set_port(port);
    }

    /// What there is to say of each lane.
    pub fn stats(&self) -> impl Iterator<Item = LaneStats> + '_ {
        self.seats.iter().filter_map(Seat::stats)
    }
}

/// The numbers of lanes' pipes in the caller's set, behind those of the lanes.
const PIPES: u64 = 1 + WORKERS_MAX as u64;

/// What has come by the stream for a lane, and what has waited for it.
fn hand_on(
    seats: &mut [Seat],
    control: Control<'_>,
    handle: &mut impl FnMut(Event<'_>),
) -> Result<(), End> {
    let (Control::Record { lane, .. } | Control::Ended { lane, .. }) = control else {
        return Err(End::Ours(Reason::Format));
    };
    let seat = seats.get_mut(usize::from(lane)).ok_or(End::Ours(Reason::Format))?;
    match control {
        Control::Record { link, frame, .. } => {
            handle(Event::Record { lane, link, frame });
            if let Some(way) = &mut seat.way {
                way.lane().handle_record(link, frame, |link, frame| {
                    handle(Event::Record { lane, link, frame });
                });
            }
        }
        Control::Ended { link, .. } => {
            if let Some(way) = &mut seat.way {
                way.lane().handle_end(link, |link, frame| {
                    handle(Event::Record { lane, link, frame });
                });
            }
            handle(Event::Ended { lane, link });
        }
        _ => {}
    }
    seat.note_heard();
    Ok(())
}

/// Above this, what is said stays with those who say it; the trunk is given up at 4 MiB.
pub(crate) const HOLD_BYTES: usize = 1 << 20;

/// Reads of the stream, or of a lane's pipe, before anything else has its turn: 256 KiB.
pub(crate) const READS_MAX: usize = 16;

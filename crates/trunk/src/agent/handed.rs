//! A whole agent that goes on in another process: what its threads give away, and what the next
//! process makes of that.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::arbitration::Arbitration;
use crate::socket::rest::{
    AtRest, Bench, Call, LATE, REST_WITHIN_NS, read_parts, write_parts, written,
};
use ringgate_core::carry::{Broken, Carry, Maps, Reader};
use ringgate_io::Bell;
use ringgate_link::bundle::WORKERS_MAX;
use ringgate_os::clock::Clock;
use ringgate_os::hand::Hand;

use crate::agent::book::Book;
use crate::agent::desk::{Command, Desk, Shared};
use crate::agent::options::{Backend, Gateway, Options};
use crate::agent::service::{Agent, Line, OF_LOCAL_LINKS, Served, Thread, of_gateway};
use crate::agent::view::DeskView;

/// An agent that has all of another's, and does not move yet.
pub struct Heir {
    shared: Shared,
    served: Served,
    own: Waiting,
    gateways: Vec<Waiting>,
}

impl fmt::Debug for Heir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heir").field("gateways", &self.gateways.len()).finish_non_exhaustive()
    }
}

/// A thread that has nothing to do yet.
struct Waiting {
    hand: Hand,
    desk: Desk,
    bell: Bell,
    commands: mpsc::Sender<Command>,
    shown: Arc<Mutex<DeskView>>,
}

impl Agent {
    /// Has all threads rest. A gateway's that does not do so in time is left out: the next process
    /// connects to it again. Without that of local links there is no agent.
    pub fn rest(&self) -> Result<AtRest, String> {
        let (bench, clock) = (Arc::new(Bench::default()), self.shared.clock);
        let until = (clock, clock.now_ns() + REST_WITHIN_NS);
        let mut call = Call::new(&bench);
        self.pass_counts_on();
        {
            let lines = self.gateways.lock().unwrap_or_else(PoisonError::into_inner);
            self.own.tell(Command::Rest(call.order(OF_LOCAL_LINKS.to_owned())));
            for Line { gateway, thread, .. } in lines.iter() {
                thread.tell(Command::Rest(call.order(of_gateway(gateway))));
            }
        }
        let (parts, late) = call.gather(until);
        let workers = self.shared.book.workers();
        let arbitration = &self.shared.arbitration;
        let bytes = written(|out| {
            VERSION.write(out);
            workers.write(out);
            write_parts(&parts, out);
            // A release that has none of it reads what has none.
            if !arbitration.is_empty() {
                arbitration.write(out);
                arbitration.write_players(out);
            }
        });
        let fds = parts.into_iter().flat_map(|part| part.fds).collect();
        let at_rest = AtRest::new(bench, bytes, fds);
        if late.iter().any(|name| name == OF_LOCAL_LINKS) {
            return Err(format!("{OF_LOCAL_LINKS} {LATE}"));
        }
        Ok(at_rest)
    }

    /// What its moments are measured by.
    pub const fn clock(&self) -> Clock {
        self.shared.clock
    }
}

impl Heir {
    /// Reads what another process has given away, whose clock this is. `guests` are served besides
    /// the game processes of the file.
    pub fn read(
        options: Options,
        guests: Vec<Backend>,
        clock: Clock,
        (bytes, fds): (&[u8], Vec<OwnedFd>),
    ) -> Result<Self, String> {
        let read = Self::try_read(options, guests, clock, (bytes, fds));
        read.map_err(|why| format!("the state of the running agent cannot be read: {why}"))
    }

    fn try_read(
        options: Options,
        guests: Vec<Backend>,
        clock: Clock,
        (bytes, fds): (&[u8], Vec<OwnedFd>),
    ) -> Result<Self, Broken> {
        let broken = |_| Broken::Invalid("descriptor");
        let (maps, mut fds) = (Maps::default(), fds.into_iter());
        let mut from = Reader::new(bytes, &maps);
        if u16::read(&mut from)? != VERSION {
            return Err(Broken::Invalid("version"));
        }
        let workers = usize::read(&mut from)?;
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(Broken::Invalid("number of workers"));
        }
        let bell = Bell::new().map_err(broken)?;
        let book = Arc::new(Book::of(bell.clone(), workers));
        let served = Served::new(options.backends.clone(), guests);
        let parts = read_parts(&mut from, &mut fds)?;
        let arbitration = if from.rest().is_empty() {
            Arc::default()
        } else {
            let arbitration = Arbitration::read(&mut from)?;
            // A release before has not written whose they are.
            if !from.rest().is_empty() {
                arbitration.read_players(&mut from)?;
            }
            Arc::new(arbitration)
        };
        from.end()?;
        let (options, rolls, crossings) = (Arc::new(options), Arc::default(), Arc::default());
        let shared = Shared { options, book, rolls, arbitration, crossings, clock };
        let (mut own, mut gateways) = (None, Vec::new());
        for (bytes, fds) in parts {
            // The first field says whose it is; the book rings worker 0's bell.
            let is_own = Option::<String>::read(&mut Reader::new(bytes, &maps))?.is_none();
            let bell = if is_own { bell.clone() } else { Bell::new().map_err(broken)? };
            let with = (&shared, served.all());
            let waiting = Waiting::read(with, &mut Reader::new(bytes, &maps), fds, bell)?;
            for worker in waiting.desk.workers() {
                let is_free = shared.book.take_again(worker);
                is_free.then_some(()).ok_or(Broken::Invalid("worker"))?;
            }
            match waiting.desk.gateway() {
                None if own.is_none() => own = Some(waiting),
                None => return Err(Broken::Invalid("thread")),
                Some(_) => gateways.push(waiting),
            }
        }
        let own = own.ok_or(Broken::Invalid("thread"))?;
        // The part of a thread may be missing.
        let desks = [&own].into_iter().chain(&gateways).map(|it| &it.desk);
        let workers: Vec<_> = desks.flat_map(Desk::workers).collect();
        shared.arbitration.keep_workers(&workers);
        Ok(Self { shared, served, own, gateways })
    }

    /// Has it move: the other process does not any more. It stays connected to these gateways;
    /// others end as [`Agent::set_gateways`] says, whose outcome is told.
    pub fn set_off(self, gateways: &[Gateway]) -> (Agent, io::Result<()>) {
        let Self { shared, served, own, gateways: waiting } = self;
        let agent = Agent::of(shared, own.start(), served);
        for waiting in waiting {
            let Some(gateway) = waiting.desk.gateway().cloned() else { continue };
            let thread = waiting.start();
            let mut lines = agent.gateways.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(Line { gateway, thread, is_leaving: false });
        }
        let connects = agent.set_gateways(gateways);
        (agent, connects)
    }
}

impl Waiting {
    fn read(
        with: (&Shared, Arc<[Backend]>),
        from: &mut Reader<'_>,
        fds: Vec<OwnedFd>,
        bell: Bell,
    ) -> Result<Self, Broken> {
        let (commands, told) = mpsc::channel();
        let shown = Arc::new(Mutex::new(DeskView::default()));
        let desk = Desk::read(with, from, fds, (bell.clone(), told), Arc::clone(&shown))?;
        let hand = Thread::hand(&desk).map_err(|_| Broken::Invalid("thread"))?;
        Ok(Self { hand, desk, bell, commands, shown })
    }

    fn start(self) -> Thread {
        let Self { hand, mut desk, bell, commands, shown } = self;
        desk.set_off();
        Thread::of(hand, desk, bell, commands, shown)
    }
}

/// Of all that is written here. What is of another one is not read.
const VERSION: u16 = 1;

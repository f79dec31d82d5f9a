//! An agent that runs: its threads, and what they are asked.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringgate_io::Bell;
use ringgate_os::clock::Clock;

use crate::book::Book;
use crate::counts::Counts;
use crate::desk::{Command, Desk, Shared};
use crate::options::{Backend, Gateway, Options};
use crate::view::{DeskView, Seen, View};

/// An agent. Dropped, it ends.
#[derive(Debug)]
pub struct Agent {
    pub(crate) shared: Shared,
    pub(crate) own: Thread,
    pub(crate) gateways: Mutex<Vec<(Gateway, Thread)>>,
    pub(crate) backends: Mutex<Arc<[Backend]>>,
    /// When it will end, at the latest, once it drains.
    pub(crate) drains_until_ns: OnceLock<u64>,
}

/// A thread, and how it is reached.
#[derive(Debug)]
pub(crate) struct Thread {
    bell: Bell,
    commands: Option<Sender<Command>>,
    shown: Arc<Mutex<DeskView>>,
    handle: Option<JoinHandle<()>>,
}

/// Why an agent cannot start.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(why: io::Error) -> Self {
        Self(why.to_string())
    }
}

/// Starts an agent.
pub fn start(options: Options) -> Result<Agent, StartError> {
    let fail = |why: io::Error| StartError(why.to_string());
    let run_dir = options.run_dir.display();
    std::fs::create_dir_all(&options.run_dir)
        .map_err(|why| StartError(format!("cannot create run_dir {run_dir}: {why}")))?;
    if let Err(why) = (options.identity)() {
        return Err(StartError(why));
    }
    let bell = Bell::new().map_err(fail)?;
    let book = Arc::new(Book::new(bell.clone()));
    let shared = Shared { options: Arc::new(options), book, clock: Clock::start() };
    let backends: Arc<[_]> = shared.options.backends.clone().into();
    let own = Thread::start((&shared, Arc::clone(&backends)), None, bell).map_err(fail)?;
    let (gateways, backends) = (Mutex::default(), Mutex::new(backends));
    let agent = Agent { own, gateways, backends, drains_until_ns: OnceLock::new(), shared };
    agent.set_gateways(&agent.shared.options.gateways).map_err(fail)?;
    Ok(agent)
}

impl Agent {
    /// What it was started with.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Connects to these gateways and to no others.
    pub fn set_gateways(&self, wanted: &[Gateway]) -> io::Result<()> {
        let mut gateways = self.gateways.lock().unwrap_or_else(PoisonError::into_inner);
        gateways.retain(|(gateway, _)| wanted.contains(gateway));
        for gateway in wanted {
            if gateways.iter().all(|(known, _)| known != gateway) {
                let bell = Bell::new()?;
                let with = (&self.shared, self.backends());
                let thread = Thread::start(with, Some(gateway.clone()), bell)?;
                if let Some(&until_ns) = self.drains_until_ns.get() {
                    thread.tell(Command::Drain { until_ns });
                }
                gateways.push((gateway.clone(), thread));
            }
        }
        Ok(())
    }

    /// Serves these game processes from now on, besides those of its file, which stay.
    pub fn set_guests(&self, guests: Vec<Backend>) {
        // Held throughout, so that a thread that starts meanwhile does not miss it.
        let gateways = self.gateways.lock().unwrap_or_else(PoisonError::into_inner);
        let own = self.shared.options.backends.iter().cloned();
        let all: Arc<[_]> = own.chain(guests).collect();
        *self.backends.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&all);
        for thread in gateways.iter().map(|(_, thread)| thread).chain([&self.own]) {
            thread.tell(Command::Backends(Arc::clone(&all)));
        }
    }

    fn backends(&self) -> Arc<[Backend]> {
        Arc::clone(&self.backends.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells game processes that the agent will end, and gateways that nobody new is to be sent to
    /// them.
    pub fn drain(&self, left: Duration) {
        let gateways = self.gateways.lock().unwrap_or_else(PoisonError::into_inner);
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = self.shared.clock.now_ns().saturating_add(left_ns);
        let until_ns = *self.drains_until_ns.get_or_init(|| until_ns);
        for thread in gateways.iter().map(|(_, thread)| thread).chain([&self.own]) {
            thread.tell(Command::Drain { until_ns });
        }
    }

    /// Whether all threads live.
    pub fn is_healthy(&self) -> bool {
        let gateways = self.gateways.lock().unwrap_or_else(PoisonError::into_inner);
        let mut threads = gateways.iter().map(|(_, thread)| thread).chain([&self.own]);
        threads.all(|thread| thread.handle.as_ref().is_some_and(|it| !it.is_finished()))
    }

    /// What there is to say about it.
    pub fn view(&self) -> View {
        let gateways = self.gateways.lock().unwrap_or_else(PoisonError::into_inner);
        let desks: Vec<_> = gateways
            .iter()
            .map(|(gateway, thread)| DeskView { gateway: gateway.to_string(), ..thread.view() })
            .collect();
        let own = self.own.view();
        let all = || desks.iter().chain([&own]);
        let mut sums: BTreeMap<&str, Seen> = BTreeMap::new();
        for (name, seen) in all().flat_map(|desk| &desk.backends) {
            let sum = sums.entry(name).or_default();
            *sum = sum.plus(*seen);
        }
        let seen = |name: &str| sums.get(name).copied().unwrap_or_default();
        let backends = self.backends();
        let backends = backends.iter().map(|it| (it.name.clone(), seen(&it.name)));
        let counts = all().fold(Counts::default(), |sum, desk| sum.plus(&desk.counts));
        View {
            workers: self.shared.book.workers(),
            backends: backends.collect(),
            counts,
            gateways: desks,
        }
    }
}

impl Thread {
    fn start(
        with: (&Shared, Arc<[Backend]>),
        gateway: Option<Gateway>,
        bell: Bell,
    ) -> io::Result<Self> {
        let (commands, told) = mpsc::channel();
        let shown = Arc::new(Mutex::new(DeskView::default()));
        let desk = Desk::open(with, gateway, (bell.clone(), told), Arc::clone(&shown))?;
        Self::of(desk, bell, commands, shown)
    }

    /// Has it run what is there.
    pub(crate) fn of(
        desk: Desk,
        bell: Bell,
        commands: Sender<Command>,
        shown: Arc<Mutex<DeskView>>,
    ) -> io::Result<Self> {
        let name = if desk.gateway().is_some() { "agent-trunk" } else { "agent-local" };
        let handle = thread::Builder::new().name(name.to_owned()).spawn(move || desk.run())?;
        Ok(Self { bell, commands: Some(commands), shown, handle: Some(handle) })
    }

    pub(crate) fn tell(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
            self.bell.ring();
        }
    }

    fn view(&self) -> DeskView {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        self.commands = None;
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

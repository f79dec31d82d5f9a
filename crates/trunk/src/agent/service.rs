//! An agent that runs: its threads, and what they are asked.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::protocol::arbitration::Arbitration;
use crate::protocol::rolls::Rolls;
use ringgate_io::Bell;
use ringgate_os::clock::Clock;
use ringgate_os::hand::Hand;
use ringgate_os::publishing::Roll;

use crate::agent::book::Book;
use crate::agent::counts::{Counts, Drop};
use crate::agent::desk::{Command, Desk, NS_PER_S, Shared};
use crate::agent::options::{Backend, Gateway, Options};
use crate::agent::view::{DeskView, Seen, View};
use ringgate_core::sync::lock;

/// An agent. Dropped, it ends.
#[derive(Debug)]
pub struct Agent {
    pub(crate) shared: Shared,
    pub(crate) own: Thread,
    pub(crate) gateways: Mutex<Vec<Line>>,
    backends: Mutex<Served>,
    /// What threads have counted that have ended.
    counted: Mutex<Counts>,
    /// How long players may stay where a gateway is none of the agent's any more.
    patience: Mutex<Duration>,
    /// When it will end, at the latest, once it drains.
    drains_until_ns: Mutex<Option<u64>>,
}

/// A gateway, and its thread.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) gateway: Gateway,
    pub(crate) thread: Thread,
    /// It is none of the agent's any more.
    pub(crate) is_leaving: bool,
}

/// Which game processes are served.
#[derive(Debug)]
pub(crate) struct Served {
    /// Those of its file.
    own: Vec<Backend>,
    /// Those that have come by themselves.
    guests: Vec<Backend>,
    all: Arc<[Backend]>,
}

impl Served {
    pub(crate) fn new(own: Vec<Backend>, guests: Vec<Backend>) -> Self {
        let all = own.iter().chain(&guests).cloned().collect();
        Self { own, guests, all }
    }

    pub(crate) fn all(&self) -> Arc<[Backend]> {
        Arc::clone(&self.all)
    }
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
    let (rolls, clock) = (Arc::default(), Clock::start());
    let (arbitration, crossings) = (Arc::<Arbitration>::default(), Arc::default());
    arbitration.pass_time(ringgate_os::clock::unix_seconds(), clock.now_ns() / NS_PER_S);
    let options = Arc::new(options);
    let shared = Shared { options, book, rolls, arbitration, crossings, clock };
    let served = Served::new(shared.options.backends.clone(), Vec::new());
    let own = Thread::start((&shared, served.all()), None, bell).map_err(fail)?;
    let agent = Agent::of(shared, own, served);
    agent.set_gateways(&agent.shared.options.gateways).map_err(fail)?;
    Ok(agent)
}

impl Agent {
    /// One without gateways.
    pub(crate) fn of(shared: Shared, own: Thread, served: Served) -> Self {
        Self {
            counted: Mutex::default(),
            patience: Mutex::new(shared.options.patience),
            shared,
            own,
            gateways: Mutex::default(),
            backends: Mutex::new(served),
            drains_until_ns: Mutex::default(),
        }
    }

    /// What it was started with.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// How many players each game process has, by the names of gateways as they are written.
    /// Nobody has to wait for a slot until it is told how many there are.
    pub fn rolls(&self) -> &Rolls {
        &self.shared.rolls
    }

    /// Connects to these gateways. Others get nobody new and end when nobody plays there, or the
    /// [patience](Self::set_patience) is over. An error changes nothing.
    pub fn set_gateways(&self, wanted: &[Gateway]) -> io::Result<()> {
        let mut lines = lock(&self.gateways);
        self.end_left(&mut lines);
        let mut more = Vec::new();
        for gateway in wanted {
            if lines.iter().all(|line| line.gateway != *gateway) {
                let bell = Bell::new()?;
                let with = (&self.shared, lock(&self.backends).all());
                let thread = Thread::start(with, Some(gateway.clone()), bell)?;
                if let Some(until_ns) = *lock(&self.drains_until_ns) {
                    thread.tell(Command::Drain { until_ns });
                }
                more.push(Line { gateway: gateway.clone(), thread, is_leaving: false });
            }
        }
        let until_ns = self.after(*lock(&self.patience));
        for line in &mut *lines {
            let is_leaving = !wanted.contains(&line.gateway);
            match (std::mem::replace(&mut line.is_leaving, is_leaving), is_leaving) {
                (false, true) => line.thread.tell(Command::Leave { until_ns }),
                (true, false) => line.thread.tell(Command::Stay),
                _ => {}
            }
        }
        lines.extend(more);
        Ok(())
    }

    /// Ends threads whose gateways are none of the agent's any more, once nobody plays there. Their
    /// names.
    pub fn settle(&self) -> Vec<String> {
        self.end_left(&mut lock(&self.gateways))
    }

    /// What they have counted stays.
    fn end_left(&self, lines: &mut Vec<Line>) -> Vec<String> {
        let left = lines.extract_if(.., |line| line.has_left());
        let ended = left.map(|Line { gateway, thread, .. }| {
            let mut counted = lock(&self.counted);
            *counted = counted.plus(&thread.end());
            gateway.to_string()
        });
        ended.collect()
    }

    /// Has what threads that have ended have counted go along with worker 0, to another process.
    pub(crate) fn pass_counts_on(&self) {
        let mut counted = std::mem::take(&mut *lock(&self.counted));
        counted.drop(Drop::LaneDown, self.shared.arbitration.take_lost());
        self.own.tell(Command::Count(Box::new(counted)));
    }

    /// How long players may stay where a gateway is none of the agent's any more, from now on.
    pub fn set_patience(&self, patience: Duration) {
        *lock(&self.patience) = patience;
    }

    /// That.
    pub fn patience(&self) -> Duration {
        *lock(&self.patience)
    }

    /// Serves these game processes of its file from now on. Those that are not among them any more
    /// get nobody new, and keep their players.
    pub fn set_backends(&self, own: Vec<Backend>) {
        self.serve(|served| Served::new(own, served.guests.clone()));
    }

    /// Serves these game processes from now on, besides those of its file, which stay.
    pub fn set_guests(&self, guests: Vec<Backend>) {
        self.serve(|served| Served::new(served.own.clone(), guests));
    }

    fn serve(&self, change: impl FnOnce(&Served) -> Served) {
        // Held throughout, so that a thread that starts meanwhile does not miss it.
        let lines = lock(&self.gateways);
        let mut served = lock(&self.backends);
        *served = change(&served);
        for thread in lines.iter().map(|line| &line.thread).chain([&self.own]) {
            thread.tell(Command::Backends(served.all()));
        }
    }

    /// The game processes of its file, by name.
    pub fn is_own(&self, name: &str) -> bool {
        lock(&self.backends).own.iter().any(|backend| backend.name == name)
    }

    /// Tells game processes that the agent will end, and gateways that nobody new is to be sent to
    /// them.
    pub fn drain(&self, left: Duration) {
        let until_ns = self.after(left);
        self.tell_all(Some(until_ns), &Command::Drain { until_ns });
    }

    /// Takes that back.
    pub fn undrain(&self) {
        self.tell_all(None, &Command::Undrain);
    }

    fn tell_all(&self, drains_until_ns: Option<u64>, command: &Command) {
        // Held throughout, so that a thread that starts meanwhile does not miss it.
        let lines = lock(&self.gateways);
        *lock(&self.drains_until_ns) = drains_until_ns;
        for thread in lines.iter().map(|line| &line.thread).chain([&self.own]) {
            thread.tell(command.clone());
        }
    }

    /// So much after now.
    fn after(&self, span: Duration) -> u64 {
        let span_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.shared.clock.now_ns().saturating_add(span_ns)
    }

    /// Whether all threads live.
    pub fn is_healthy(&self) -> bool {
        let lines = lock(&self.gateways);
        let mut threads = lines.iter().map(|line| &line.thread).chain([&self.own]);
        threads.all(|thread| thread.handle.as_ref().is_some_and(|it| !it.is_finished()))
    }

    /// Asks every thread to show at once what it has.
    pub fn ask(&self, roll: &mut Roll) {
        let lines = lock(&self.gateways);
        for Line { gateway, thread, .. } in lines.iter() {
            thread.tell(Command::Show(roll.request(of_gateway(gateway))));
        }
        self.own.tell(Command::Show(roll.request(OF_LOCAL_LINKS.to_owned())));
    }

    /// Whether the thread that was asked under this name has ended since: what it had counted is
    /// known.
    pub fn has_ended(&self, name: &str) -> bool {
        let lines = lock(&self.gateways);
        name.starts_with(OF_GATEWAY) && !lines.iter().any(|it| of_gateway(&it.gateway) == name)
    }

    /// What there is to say about it.
    pub fn view(&self) -> View {
        let lines = lock(&self.gateways);
        let desk = |Line { gateway, thread, is_leaving }: &Line| DeskView {
            gateway: gateway.to_string(),
            is_leaving: *is_leaving,
            ..thread.view()
        };
        let desks: Vec<_> = lines.iter().map(desk).collect();
        let own = self.own.view();
        let all = || desks.iter().chain([&own]);
        let mut sums: BTreeMap<&str, Seen> = BTreeMap::new();
        for (name, seen) in all().flat_map(|desk| &desk.backends) {
            let sum = sums.entry(name).or_default();
            *sum = sum.plus(*seen);
        }
        let seen = |name: &str| sums.get(name).copied().unwrap_or_default();
        let backends = lock(&self.backends).all();
        let is_served = |name: &str| backends.iter().any(|it| it.name == name);
        let retired = sums.iter().filter(|(name, seen)| seen.players > 0 && !is_served(name));
        let retired = retired.map(|(name, seen)| ((*name).to_owned(), *seen)).collect();
        let backends = backends.iter().map(|it| (it.name.clone(), seen(&it.name)));
        let mut counts = all().fold(*lock(&self.counted), |sum, desk| sum.plus(&desk.counts));
        let [refused, unheard] = self.shared.rolls.refused();
        counts.drop(Drop::LaneDown, self.shared.arbitration.lost());
        counts.drop(Drop::SlotsTaken, refused);
        counts.drop(Drop::PlayerRefused, unheard);
        View {
            workers: self.shared.book.workers(),
            clustered: self.shared.arbitration.counts(),
            backends: backends.collect(),
            retired,
            counts,
            gateways: desks,
        }
    }
}

impl Line {
    /// Whether it is of no use any more.
    fn has_left(&self) -> bool {
        self.is_leaving && self.thread.view().has_left
    }
}

/// What a gateway's thread is called where it is asked for something.
pub(crate) fn of_gateway(gateway: &Gateway) -> String {
    format!("{OF_GATEWAY}{gateway}")
}

const OF_GATEWAY: &str = "the thread of gateway ";

/// And what that of game processes is called that have connected.
pub(crate) const OF_LOCAL_LINKS: &str = "the thread of local links";

impl Thread {
    fn start(
        with: (&Shared, Arc<[Backend]>),
        gateway: Option<Gateway>,
        bell: Bell,
    ) -> io::Result<Self> {
        let (commands, told) = mpsc::channel();
        let shown = Arc::new(Mutex::new(DeskView::default()));
        let desk = Desk::open(with, gateway, (bell.clone(), told), Arc::clone(&shown))?;
        Ok(Self::of(Self::hand(&desk)?, desk, bell, commands, shown))
    }

    /// What runs it, once it has it.
    pub(crate) fn hand(desk: &Desk) -> io::Result<Hand> {
        Hand::ready(if desk.gateway().is_some() { "agent-trunk" } else { "agent-local" })
    }

    /// Has it run what is there.
    pub(crate) fn of(
        hand: Hand,
        desk: Desk,
        bell: Bell,
        commands: Sender<Command>,
        shown: Arc<Mutex<DeskView>>,
    ) -> Self {
        let handle = Some(hand.work(move || desk.run()));
        Self { bell, commands: Some(commands), shown, handle }
    }

    pub(crate) fn tell(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
            self.bell.ring();
        }
    }

    /// Ends it, and waits for that. What it has counted.
    fn end(self) -> Counts {
        let shown = Arc::clone(&self.shown);
        drop(self);
        lock(&shown).counts
    }

    fn view(&self) -> DeskView {
        lock(&self.shown).clone()
    }
}

impl ops::Drop for Thread {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        self.commands = None;
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

//! One thread of an agent: a gateway with its trunk and the local workers that its lanes are, or
//! worker 0, which is nobody's.
//!
//! All of it waits in one set of descriptors, and nothing of it is shared with other threads but
//! the book of workers and what it shows.

mod handed;

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::arbitration::Arbitration;
use crate::protocol::control::{Reason, Welcome};
use crate::protocol::relay::Passed;
use crate::protocol::rolls::Rolls;
use crate::socket::rest::Order;
use crate::socket::{Event, Settings, Trunk};
use ringgate_io::Bell;
use ringgate_link::bundle::{CloseReason, Frames, GoodbyeReason, SessionId, Writer};
use ringgate_os::clock::{self, Clock};
use ringgate_os::hold_point;
use ringgate_os::notify::{Epoll, Ready};
use ringgate_os::publishing::{self, Request};
use rustls::pki_types::ServerName;

use crate::agent::book::Book;
use crate::agent::counts::{Counts, Drop};
use crate::agent::crossings::{Crossings, Inbox, Parcel};
use crate::agent::dial::{Dial, DialAction};
use crate::agent::options::{Backend, Gateway, Options};
use crate::agent::servers::Servers;
use crate::agent::station::{Around, HeardBundles, Owner, Station, Wish, Wishes, owner};
use crate::agent::view::{DeskView, LaneView, Seen, State};

/// What a thread is told.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Game processes are told that the agent will end, and gateways that nobody new is to be sent
    /// to them.
    Drain {
        /// When it will, at the latest, on the agent's clock.
        until_ns: u64,
    },
    /// It goes on after all.
    Undrain,
    /// The gateway of this thread is none of the agent's any more: it gets nobody new, and the
    /// thread is of no use once nobody plays, or after this.
    Leave {
        /// On the agent's clock.
        until_ns: u64,
    },
    /// It is one of them again.
    Stay,
    /// Another thread has counted this, which has ended.
    Count(Box<Counts>),
    /// These are the game processes of the agent from now on.
    Backends(Arc<[Backend]>),
    /// What it has is to be shown at once.
    Show(Request),
    /// Another process is about to go on with what it has.
    Rest(Order),
    /// It ends now.
    Stop,
}

/// What a thread shares with the others.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) options: Arc<Options>,
    pub(crate) book: Arc<Book>,
    pub(crate) rolls: Arc<Rolls>,
    pub(crate) arbitration: Arc<Arbitration>,
    pub(crate) crossings: Arc<Crossings>,
    pub(crate) clock: Clock,
}

/// One thread's state.
pub(crate) struct Desk {
    shared: Shared,
    backends: Arc<[Backend]>,
    /// `None` for worker 0.
    gateway: Option<(Gateway, Dial)>,
    trunk: Option<Trunk>,
    /// Those of the gateway's lanes, and those whose gateway has died and that game processes know
    /// sessions by; for worker 0 the only one.
    stations: Vec<Station>,
    /// The station of each lane.
    by_lane: Vec<usize>,
    /// What other threads pass here.
    inbox: Arc<Inbox>,
    servers: Option<Servers>,
    epoll: Epoll,
    bell: Bell,
    commands: Receiver<Command>,
    shown: Arc<Mutex<DeskView>>,
    counts: Counts,
    known_workers: usize,
    incarnation: Option<u64>,
    begun: u64,
    /// When it was let in last.
    begun_ns: u64,
    last_end: Option<(&'static str, String)>,
    address: Option<String>,
    keep_due_ns: u64,
    look_due_ns: u64,
    show_due_ns: u64,
    /// Readers who wait for what it shows next.
    asked: Vec<Request>,
    /// Until when the agent waits for players to leave, and this thread.
    drains_until_ns: Option<u64>,
    leaves_until_ns: Option<u64>,
    is_holding: bool,
    ready: Vec<Ready>,
    noted: Vec<Noted>,
    heard: HeardBundles,
    /// To be obeyed at the end of the turn.
    rest: Option<Order>,
    /// Another process has all of it.
    has_left: bool,
    /// It was another process's, whose config may have been another one.
    must_recheck: bool,
}

/// What has happened on a trunk and is dealt with when it is not lent.
#[derive(Clone, Debug)]
enum Noted {
    Begun(Welcome),
    Up(u8),
    /// A record for the gateway that must arrive.
    Tell(u8, u16, Box<[u8]>),
    /// One that may be lost.
    Push(u8, u16, Box<[u8]>),
    End(u8, u16),
    /// What has announced it last is noted before.
    NotHeld(u8, SessionId),
    Broken,
}

impl Noted {
    /// What a station has for the gateway of a lane.
    fn of(lane: u8, wish: Wish<'_>) -> Self {
        match wish {
            Wish::Tell(link, frame) => Self::Tell(lane, link, frame.bytes().into()),
            // What its game process has said while another gateway had the session.
            Wish::Push(link, frame) => Self::Push(lane, link, frame.bytes().into()),
            Wish::End(link) => Self::End(lane, link),
            Wish::NotHeld(session) => Self::NotHeld(lane, session),
        }
    }
}

impl Desk {
    /// A thread for a gateway, or for worker 0.
    pub(crate) fn open(
        (shared, backends): (&Shared, Arc<[Backend]>),
        gateway: Option<Gateway>,
        (bell, commands): (Bell, Receiver<Command>),
        shown: Arc<Mutex<DeskView>>,
    ) -> io::Result<Self> {
        let options = &shared.options;
        let mut desk = Self::empty((shared, backends), (bell, commands), shown)?;
        match gateway {
            Some(gateway) => {
                let beside = desk.epoll.raw();
                let servers = Servers::open(&desk.backends, beside).map_err(io::Error::other)?;
                desk.servers = servers;
                let seed = seed(options.incarnation, &gateway);
                let dial = Dial::new(&gateway, desk.bell.clone(), seed);
                desk.gateway = Some((gateway, dial));
            }
            None => {
                desk.open_station(0)?;
                desk.by_lane.push(0);
            }
        }
        Ok(desk)
    }

    /// One that has nothing.
    fn empty(
        (shared, backends): (&Shared, Arc<[Backend]>),
        (bell, commands): (Bell, Receiver<Command>),
        shown: Arc<Mutex<DeskView>>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(bell.fd(), BELL)?;
        let inbox = Inbox::new(bell.clone());
        Ok(Self {
            servers: None,
            gateway: None,
            trunk: None,
            stations: Vec::new(),
            by_lane: Vec::new(),
            inbox,
            epoll,
            bell,
            commands,
            shown,
            counts: Counts::default(),
            known_workers: 1,
            incarnation: None,
            begun: 0,
            begun_ns: 0,
            last_end: None,
            address: None,
            keep_due_ns: 0,
            look_due_ns: 0,
            show_due_ns: 0,
            asked: Vec::new(),
            drains_until_ns: None,
            leaves_until_ns: None,
            is_holding: false,
            ready: Vec::with_capacity(READY_MAX),
            noted: Vec::new(),
            heard: HeardBundles::default(),
            rest: None,
            has_left: false,
            must_recheck: false,
            backends,
            shared: shared.clone(),
        })
    }

    /// Serves until it is told to end.
    pub(crate) fn run(mut self) {
        loop {
            let wait = self.wait();
            let waited = match &mut self.servers {
                Some(servers) => {
                    servers.turn(wait).and_then(|()| self.epoll.ready(&mut self.ready))
                }
                None => self.epoll.wait(&mut self.ready, wait),
            };
            if let Err(why) = waited
                && why.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!("a thread of the agent cannot wait: {why}");
                return self.stop();
            }
            if !self.turn() {
                return if self.has_left { self.leave() } else { self.stop() };
            }
        }
    }

    /// Everything that there is to do now. False where it was told to end.
    fn turn(&mut self) -> bool {
        let now_ns = self.now_ns();
        // Before that is looked for which it was rung.
        if self.ready.iter().any(|one| one.token == BELL) {
            self.bell.take();
        }
        if !self.obey(now_ns) {
            return false;
        }
        self.recheck(now_ns);
        // Whom a thread lets in is told of all that others have told of.
        let workers = self.shared.book.workers();
        self.stations.iter_mut().for_each(|station| station.set_workers(workers));
        // Before links say more that were held.
        self.take_for_gateway(now_ns);
        self.take_ready(now_ns);
        self.take_passed(now_ns);
        if self.trunk.as_ref().is_some_and(Trunk::has_more) {
            self.read_trunk(Ready { token: TRUNK, events: 0 }, now_ns);
        }
        self.take_datagrams(now_ns);
        self.keep(now_ns);
        self.look_after_ends(now_ns);
        self.dial(now_ns);
        self.flush(now_ns);
        self.part_from_gateway(now_ns);
        self.settle(now_ns);
        if now_ns >= self.show_due_ns || !self.asked.is_empty() {
            self.show_due_ns = now_ns + publishing::period_ns(SHOW_NS);
            self.show();
            self.asked.drain(..).for_each(Request::answer);
        }
        // What is given away has nothing half done.
        self.rest.take().is_none_or(|order| {
            self.take_all_passed(now_ns);
            !self.is_taken(order)
        })
    }

    fn now_ns(&self) -> u64 {
        self.shared.clock.now_ns()
    }

    /// How long nothing has to be done by itself.
    fn wait(&self) -> Duration {
        let mut due_ns = self.keep_due_ns.min(self.show_due_ns);
        if let Some(trunk) = &self.trunk {
            due_ns = due_ns.min(trunk.due_ns());
        }
        let ends = self.stations.iter().filter_map(|it| it.relay().ends_due_ns());
        due_ns = ends.fold(due_ns, u64::min);
        let now_ns = self.now_ns();
        let wait_ns = due_ns.saturating_sub(now_ns);
        let must_look = self.is_holding
            || self.inbox.has_for_gateway()
            || self.stations.iter().any(Station::has_waiting);
        Duration::from_nanos(if must_look { wait_ns.min(HELD_NS) } else { wait_ns })
    }

    fn obey(&mut self, now_ns: u64) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Drain { until_ns }) => {
                    self.drains_until_ns = Some(until_ns);
                    self.drain(now_ns);
                }
                Ok(Command::Undrain) => {
                    self.drains_until_ns = None;
                    self.drain(now_ns);
                }
                Ok(Command::Leave { until_ns }) => {
                    self.leaves_until_ns = Some(until_ns);
                    self.drain(now_ns);
                }
                Ok(Command::Stay) => {
                    self.leaves_until_ns = None;
                    self.drain(now_ns);
                }
                Ok(Command::Count(counts)) => self.counts = self.counts.plus(&counts),
                Ok(Command::Backends(backends)) => self.set_backends(backends, now_ns),
                Ok(Command::Show(request)) => self.asked.push(request),
                Ok(Command::Rest(order)) => self.rest = Some(order),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Until when players may play here; `None` while there is no end in sight. Where the gateway
    /// is not connected, nobody plays by it, and sessions that others have go on.
    fn ends_ns(&self) -> Option<u64> {
        let leaves_until_ns = self.leaves_until_ns.filter(|_| self.trunk.is_some());
        self.drains_until_ns.into_iter().chain(leaves_until_ns).min()
    }

    /// Says so.
    fn drain(&mut self, now_ns: u64) {
        let ends_ns = self.ends_ns();
        self.each_station(now_ns, |station, around, wish| match ends_ns {
            Some(until_ns) => station.drain(until_ns, around, wish),
            None => station.undrain(around, wish),
        });
        self.show_due_ns = now_ns;
    }

    /// Whether it has left its gateway: nobody plays any more, or the time is over. Where game
    /// processes here know sessions that another gateway has, or may take, the thread stays for
    /// those.
    fn has_left_gateway(&self) -> bool {
        let is_over = |until_ns| self.now_ns() >= until_ns || !self.has_players();
        self.leaves_until_ns.is_some_and(is_over) && !self.is_home_of_others()
    }

    /// Whether anybody plays by the gateway, or at a link of the thread's.
    fn has_players(&self) -> bool {
        self.players() > 0 || self.shared.arbitration.has_seats(&self.worker_numbers())
    }

    fn is_home_of_others(&self) -> bool {
        self.shared.arbitration.is_home_of_others(&self.worker_numbers())
    }

    fn worker_numbers(&self) -> Vec<usize> {
        self.stations.iter().map(Station::worker).collect()
    }

    /// Ends the trunk once nobody may play by the gateway any more, though the thread stays.
    fn part_from_gateway(&mut self, now_ns: u64) {
        let is_over = self.leaves_until_ns.is_some_and(|until_ns| now_ns >= until_ns);
        if is_over && self.trunk.is_some() && self.is_home_of_others() {
            self.say_goodbye(now_ns);
        }
    }

    fn say_goodbye(&mut self, now_ns: u64) {
        if let Some(trunk) = &mut self.trunk {
            trunk.flush(&self.epoll, now_ns);
            trunk.say_goodbye(Reason::ShuttingDown);
        }
    }

    fn players(&self) -> usize {
        self.seen().iter().map(|(_, seen)| seen.players).sum()
    }

    fn set_backends(&mut self, backends: Arc<[Backend]>, now_ns: u64) {
        self.backends = backends;
        if self.gateway.is_some() {
            self.set_servers();
        }
        self.each_station(now_ns, |station, around, wish| station.set_backends(around, wish));
        (self.look_due_ns, self.keep_due_ns, self.show_due_ns) = (now_ns, now_ns, now_ns);
    }

    /// Servers that speak plain UDP come and go with the config.
    fn set_servers(&mut self) {
        let Self { servers, stations, backends, epoll, .. } = self;
        match servers {
            Some(servers) => {
                servers.set(backends, |server| stations.iter().any(|it| it.has_server(server)));
            }
            None => match Servers::open(backends, epoll.raw()) {
                Ok(opened) => *servers = opened,
                Err(why) => tracing::error!("cannot serve servers that speak plain UDP: {why}"),
            },
        }
    }

    fn take_ready(&mut self, now_ns: u64) {
        let ready = std::mem::take(&mut self.ready);
        for one in &ready {
            match owner(one.token) {
                Owner::Listener(at) => {
                    let Self { stations, backends, servers, counts, epoll, shared, .. } = self;
                    let (servers, crossings) = (servers.as_mut(), &*shared.crossings);
                    let mut around =
                        Around::new(backends, servers, counts, (crossings, epoll), now_ns);
                    if let Some(station) = stations.get_mut(at) {
                        station.accept(&mut around);
                    }
                }
                // Whoever has spoken before may have filled the stream in this turn.
                // Who has died meanwhile is read when there is room again.
                Owner::Link(..) if self.is_holding || self.is_crowded() => {}
                Owner::Link(at, place) => self.read_link(at, place, now_ns),
                // The bell's is not the trunk's either.
                Owner::Other => self.read_trunk(*one, now_ns),
            }
        }
        self.ready = ready;
    }

    fn is_crowded(&mut self) -> bool {
        self.trunk.as_mut().is_some_and(Trunk::is_crowded)
    }

    fn read_link(&mut self, at: usize, place: usize, now_ns: u64) {
        let lane = self.lane_of(at);
        let Self { stations, backends, servers, counts, epoll, trunk, heard, shared, .. } = self;
        let Some(station) = stations.get_mut(at) else { return };
        let (servers, crossings) = (servers.as_mut(), &*shared.crossings);
        let mut around = Around::new(backends, servers, counts, (crossings, epoll), now_ns);
        station
            .read(place, heard, &mut around, &mut |wish| grant(trunk.as_mut(), lane, wish, now_ns));
    }

    fn read_trunk(&mut self, ready: Ready, now_ns: u64) {
        let Self { stations, backends, servers, counts, epoll, trunk, noted, .. } = self;
        let Self { by_lane, shared, .. } = self;
        let Some(trunk) = trunk.as_mut().filter(|trunk| trunk.is_own(ready.token)) else { return };
        let (servers, crossings) = (servers.as_mut(), &*shared.crossings);
        let mut around = Around::new(backends, servers, counts, (crossings, epoll), now_ns);
        let at = |lane: u8| by_lane.get(usize::from(lane)).copied().unwrap_or(usize::MAX);
        trunk.handle_ready(ready, epoll, now_ns, |event| match event {
            Event::Begun(welcome) => noted.push(Noted::Begun(welcome)),
            Event::LaneUp(lane) => noted.push(Noted::Up(lane)),
            Event::Record { lane, link, frame } => {
                let Some(station) = stations.get_mut(at(lane)) else { return };
                let heard = station.hear(link, frame, &mut around, &mut |wish| {
                    noted.push(Noted::of(lane, wish));
                });
                if heard.is_err() {
                    noted.push(Noted::Broken);
                }
            }
            Event::Ended { lane, link } => {
                if let Some(station) = stations.get_mut(at(lane)) {
                    station
                        .hear_end(link, &mut around, &mut |wish| noted.push(Noted::of(lane, wish)));
                }
            }
            // Nobody else sends to a socket that was connected before anybody knew its port, and
            // no lane of an agent's is lent.
            Event::Stray { .. }
            | Event::Caught { .. }
            | Event::Unproven { .. }
            | Event::Beat
            | Event::Message(_) => {}
        });
        self.take_notes(now_ns);
    }

    fn take_notes(&mut self, now_ns: u64) {
        for noted in std::mem::take(&mut self.noted) {
            match noted {
                Noted::Begun(welcome) => self.begin(welcome, now_ns),
                Noted::Up(lane) => {
                    hold_point!("agent-trunk Rise");
                    let at = self.by_lane.get(usize::from(lane)).copied().unwrap_or(usize::MAX);
                    self.one_station(at, now_ns, |station, around, wish| {
                        station.rise(lane, around, wish);
                    });
                }
                Noted::Tell(lane, link, record) => {
                    let frame = Frames::new(&record).next().and_then(Result::ok);
                    if let (Some(trunk), Some(frame)) = (&mut self.trunk, frame) {
                        trunk.tell(lane, link, frame);
                    }
                }
                Noted::Push(lane, link, record) => {
                    let frame = Frames::new(&record).next().and_then(Result::ok);
                    if let (Some(trunk), Some(frame)) = (&mut self.trunk, frame) {
                        trunk.push(lane, link, frame, now_ns);
                    }
                }
                Noted::End(lane, link) => {
                    if let Some(trunk) = &mut self.trunk {
                        trunk.end(lane, link);
                    }
                }
                Noted::NotHeld(lane, session) => {
                    if let Some(trunk) = &mut self.trunk {
                        trunk.forget_session(lane, session);
                    }
                }
                Noted::Broken => {
                    if let Some(trunk) = &mut self.trunk {
                        trunk.say_goodbye(Reason::Format);
                    }
                }
            }
        }
    }

    /// The gateway has let the agent in: each of its lanes is a local worker from now on.
    fn begin(&mut self, welcome: Welcome, now_ns: u64) {
        hold_point!("agent-trunk Begin");
        let lanes = usize::from(welcome.lanes);
        if self.incarnation.is_some_and(|it| it != welcome.incarnation) {
            // Another process numbers its sessions anew: game processes keep those that they know
            // by a worker of their own.
            self.by_lane.clear();
        }
        let is_free = |at: &usize| !self.by_lane.contains(at) && !self.stations[*at].has_homes();
        let free: Vec<_> = (0..self.stations.len()).filter(is_free).collect();
        let missing = lanes.saturating_sub(self.by_lane.len());
        self.by_lane.extend(free.into_iter().take(missing));
        match self.open_stations(lanes, now_ns) {
            Ok(()) => {
                let missing = lanes.saturating_sub(self.by_lane.len());
                self.counts.drop(Drop::WorkersFull, missing as u64);
            }
            Err(why) => tracing::error!("cannot serve a local worker yet: {why}"),
        }
        if self.incarnation.replace(welcome.incarnation) != Some(welcome.incarnation)
            && let Some(servers) = &mut self.servers
        {
            servers.forget_kept(now_ns);
        }
        self.begun += 1;
        self.show_due_ns = now_ns;
        self.begun_ns = now_ns;
        if let Some((gateway, _)) = &self.gateway {
            let address = self.address.as_deref().unwrap_or_default();
            tracing::info!(event = "trunk_up", %gateway, address, lanes, "connected to gateway {gateway}");
        }
    }

    /// Local workers for lanes that have none, as far as there are numbers.
    fn open_stations(&mut self, lanes: usize, now_ns: u64) -> io::Result<()> {
        while self.by_lane.len() < lanes
            && let Some(&worker) = self.shared.book.take(1).first()
        {
            if let Err(why) = self.open_station(worker) {
                self.shared.book.give_back(worker);
                return Err(why);
            }
            let at = self.stations.len() - 1;
            self.by_lane.push(at);
            if let Some(until_ns) = self.ends_ns() {
                self.one_station(at, now_ns, |station, around, wish| {
                    station.drain(until_ns, around, wish);
                });
            }
        }
        Ok(())
    }

    /// What could not be had when the gateway let the agent in is tried again.
    fn open_missing(&mut self, now_ns: u64) {
        let Some(trunk) = &self.trunk else { return };
        let up: Vec<_> = trunk.stats().map(|lane| lane.is_up).collect();
        let served = self.by_lane.len();
        // Why not is in the log.
        let _ = self.open_stations(up.len(), now_ns);
        for lane in (served..self.by_lane.len()).filter(|lane| up[*lane]) {
            self.one_station(self.by_lane[lane], now_ns, |station, around, wish| {
                station.rise(lane as u8, around, wish);
            });
        }
    }

    fn open_station(&mut self, worker: usize) -> io::Result<()> {
        let Options { run_dir, incarnation, .. } = &*self.shared.options;
        let workers = self.shared.book.workers().max(worker + 1);
        let mut station = Station::open(
            self.stations.len(),
            (worker, workers),
            (run_dir, *incarnation),
            &self.backends,
            &self.epoll,
        )?;
        self.count_in(&mut station);
        self.stations.push(station);
        Ok(())
    }

    /// Has a lane's players counted as its gateway's, and its sessions known to other threads.
    fn count_in(&self, station: &mut Station) {
        if let Some((gateway, _)) = &self.gateway {
            station.count_in(&self.shared.rolls, gateway.to_string());
            station.arbitrate_with(&self.shared.arbitration);
            self.shared.crossings.register(station.worker(), &self.inbox);
        }
    }

    /// The lane of a station; one that no lane has is nobody's.
    fn lane_of(&self, at: usize) -> Option<u8> {
        self.by_lane.iter().position(|it| *it == at).map(|lane| lane as u8)
    }

    /// What other threads have passed here.
    fn take_passed(&mut self, now_ns: u64) {
        for (worker, parcel) in self.inbox.take_for_games() {
            self.take_parcel(worker, &parcel, now_ns);
        }
        self.take_for_gateway(now_ns);
    }

    /// Of that, what is for the gateway, as long as its trunk has room for that and for what links
    /// here say.
    fn take_for_gateway(&mut self, now_ns: u64) {
        while !self.is_holding
            && self.trunk.as_mut().map_or(0, Trunk::waiting_bytes) <= CROSSING_BYTES
        {
            let some = self.inbox.take_for_gateway(CROSSING_BYTES);
            if some.is_empty() {
                return;
            }
            for (worker, parcel) in some {
                self.take_parcel(worker, &parcel, now_ns);
            }
        }
    }

    /// The same, however much the trunk has: nobody takes it later.
    fn take_all_passed(&mut self, now_ns: u64) {
        for (worker, parcel) in self.inbox.take_for_gateway(usize::MAX) {
            self.take_parcel(worker, &parcel, now_ns);
        }
    }

    fn take_parcel(&mut self, worker: usize, parcel: &Parcel, now_ns: u64) {
        let at = self.stations.iter().position(|it| it.worker() == worker);
        self.one_station(at.unwrap_or(usize::MAX), now_ns, |station, around, wish| {
            station.take_passed(&parcel.passed(), around, wish);
        });
    }

    /// Sessions whose gateways have not come back, and that no other one has taken, are over.
    fn end_lost_sessions(&self) {
        let Shared { arbitration, crossings, clock, .. } = &self.shared;
        for home in arbitration.pass_time(clock::unix_seconds(), clock.now_ns() / NS_PER_S) {
            let mut bytes = [0; 32];
            let mut writer = Writer::new(&mut bytes);
            if writer.closed(home.session, CloseReason::TimedOut)
                && let Some(Ok(frame)) = Frames::new(writer.bytes()).next()
            {
                crossings.send(home.worker, &Passed::ForGame(home.game, home.turn, frame));
            }
        }
    }

    /// Players whose messages are delivered here.
    fn look_after_ends(&mut self, now_ns: u64) {
        for at in 0..self.stations.len() {
            if self.stations[at].relay().ends_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                self.one_station(at, now_ns, |station, around, wish| {
                    station.look_after_ends(around, wish);
                });
            }
        }
    }

    fn take_datagrams(&mut self, now_ns: u64) {
        let Self { stations, backends, servers, counts, epoll, trunk, .. } = self;
        let Self { by_lane, shared, .. } = self;
        let Some(servers) = servers else { return };
        if servers.take_refusals() {
            self.keep_due_ns = now_ns;
        }
        let mut counted = Counts::default();
        servers.take(counts, |player, game, record| {
            let counts = &mut counted;
            let crossings = &*shared.crossings;
            let mut around = Around::new(backends, None, counts, (crossings, epoll), now_ns);
            if let Some(station) = stations.get_mut(player.station) {
                let lane = by_lane.iter().position(|it| *it == player.station);
                station.take_datagram(game, record, &mut around, &mut |wish| {
                    grant(trunk.as_mut(), lane.map(|lane| lane as u8), wish, now_ns);
                });
            }
        });
        *counts = counts.plus(&counted);
    }

    /// What time brings.
    fn keep(&mut self, now_ns: u64) {
        if let Some(trunk) = &mut self.trunk
            && now_ns >= trunk.due_ns()
        {
            trunk.poll(now_ns);
        }
        if let Some(servers) = &mut self.servers
            && now_ns >= self.look_due_ns
        {
            self.look_due_ns = now_ns + LOOK_NS;
            servers.expire(now_ns);
            if servers.look() {
                self.keep_due_ns = now_ns;
            }
        }
        if self.gateway.is_none() && now_ns >= self.look_due_ns {
            // Other threads may have found before this one that links are over: since when the
            // process was stopped, as far as the arbiter knows.
            let late_ns = now_ns - self.look_due_ns;
            if self.look_due_ns > 0 && late_ns >= STOOD_STILL_NS {
                self.shared.arbitration.note_standstill(late_ns / NS_PER_S);
            }
            self.look_due_ns = now_ns + LOOK_NS;
            self.end_lost_sessions();
        }
        let workers = self.shared.book.workers();
        if workers != self.known_workers {
            self.known_workers = workers;
            let is_own = self.gateway.is_none();
            self.each_station(now_ns, |station, around, wish| {
                station.set_workers(workers);
                if is_own {
                    station.dismiss(GoodbyeReason::Other, around, wish);
                }
            });
        }
        if now_ns >= self.keep_due_ns {
            self.keep_due_ns = now_ns + KEEP_NS;
            self.open_missing(now_ns);
            self.each_station(now_ns, |station, around, wish| station.keep(around, wish));
        }
        let waits = self.trunk.as_mut().map_or(0, Trunk::waiting_bytes);
        let must_hold = self.is_crowded() || self.is_holding && waits > RELEASE_BYTES;
        self.is_holding = must_hold;
        for station in &mut self.stations {
            station.hold(must_hold, &self.epoll);
            station.let_go(&self.shared.crossings, &self.epoll);
        }
    }

    /// Connects, where there is no trunk.
    fn dial(&mut self, now_ns: u64) {
        while self.trunk.is_none()
            && self.leaves_until_ns.is_none()
            && let Some((gateway, dial)) = &mut self.gateway
        {
            match dial.step(now_ns) {
                DialAction::Wait(until_ns) => {
                    self.keep_due_ns = self.keep_due_ns.min(until_ns);
                    return;
                }
                DialAction::NoAddress(why) => {
                    tracing::warn!(event = "trunk_failed", %gateway, reason = "name", "gateway {gateway}: {why}");
                    self.last_end = Some(("name", why));
                }
                DialAction::Connect(to) => {
                    hold_point!("agent-trunk Connect");
                    self.address = Some(to.to_string());
                    match connect(&self.shared.options, gateway, to, &self.epoll, now_ns) {
                        Ok(trunk) => self.trunk = Some(trunk),
                        Err((name, why)) => {
                            tracing::warn!(event = "trunk_failed", %gateway, reason = name, "gateway {gateway} at {to}: {why}");
                            self.last_end = Some((name, why));
                        }
                    }
                }
            }
        }
    }

    fn flush(&mut self, now_ns: u64) {
        self.each_station(now_ns, |station, around, wish| {
            station.flush(around.epoll);
            station.tell_rooms(around, wish);
        });
        let Self { servers, counts, epoll, trunk, .. } = self;
        if let Some(servers) = servers {
            servers.flush(counts);
        }
        if let Some(trunk) = trunk {
            trunk.flush(epoll, now_ns);
        }
    }

    /// A trunk that is over takes its lanes along.
    fn settle(&mut self, now_ns: u64) {
        let Some(trunk) = &self.trunk else { return };
        let Some((name, why)) = trunk.why_over() else { return };
        let had_begun = trunk.agreed().is_some();
        if let Some((gateway, dial)) = &mut self.gateway {
            dial.note_over(trunk, had_begun.then_some(self.begun_ns), now_ns);
            let event = if had_begun { "trunk_down" } else { "trunk_failed" };
            let address = self.address.as_deref().unwrap_or_default();
            tracing::warn!(event, %gateway, address, reason = name, "gateway {gateway} at {address}: {why}");
        }
        self.last_end = Some((name, why));
        self.trunk = None;
        self.each_station(now_ns, |station, around, _| station.fall(around));
        self.flush(now_ns);
        self.show_due_ns = now_ns;
        self.keep_due_ns = now_ns;
    }

    fn stop(mut self) {
        let now_ns = self.now_ns();
        self.say_goodbye(now_ns);
        self.each_station(now_ns, |station, around, _| {
            station.dismiss(GoodbyeReason::Shutdown, around, &mut |_| ());
        });
        self.flush(now_ns);
        for worker in self.stations.iter().map(Station::worker) {
            self.shared.crossings.remove(worker);
            // What game processes know at other threads waits for another gateway, or for its end.
            self.shared.arbitration.lose(worker);
            self.shared.book.give_back(worker);
        }
        // What was counted outlives it.
        let view = DeskView { counts: self.all_counts(), ..DeskView::default() };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    fn each_station(
        &mut self,
        now_ns: u64,
        mut with: impl FnMut(&mut Station, &mut Around<'_>, Wishes<'_>),
    ) {
        for at in 0..self.stations.len() {
            self.one_station(at, now_ns, &mut with);
        }
    }

    fn one_station(
        &mut self,
        at: usize,
        now_ns: u64,
        mut with: impl FnMut(&mut Station, &mut Around<'_>, Wishes<'_>),
    ) {
        let lane = self.lane_of(at);
        let Self { stations, backends, servers, counts, epoll, trunk, shared, .. } = self;
        let Some(station) = stations.get_mut(at) else { return };
        let (servers, crossings) = (servers.as_mut(), &*shared.crossings);
        let mut around = Around::new(backends, servers, counts, (crossings, epoll), now_ns);
        with(station, &mut around, &mut |wish| grant(trunk.as_mut(), lane, wish, now_ns));
    }

    fn show(&self) {
        let view = DeskView {
            gateway: self.gateway.as_ref().map(|(it, _)| it.to_string()).unwrap_or_default(),
            state: match &self.trunk {
                None => State::Waiting,
                Some(trunk) if trunk.agreed().is_some() => State::Up,
                Some(_) => State::Connecting,
            },
            address: self.address.clone(),
            begun: self.begun,
            last_end: self.last_end.clone(),
            // Who has told it so knows.
            is_leaving: false,
            has_left: self.has_left_gateway(),
            lanes: self.lanes(),
            counts: self.all_counts(),
            backends: self.seen(),
        };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    fn lanes(&self) -> Vec<LaneView> {
        let stations = self.by_lane.iter().map(|at| &self.stations[*at]);
        let stats = self.trunk.iter().flat_map(Trunk::stats).zip(stations).enumerate();
        let view = |(lane, (stats, station)): (usize, (_, &Station))| {
            let crate::socket::LaneStats { lane: of, is_up, full, .. } = stats;
            let (there, here) = (of.arrived_there, of.arrived_here);
            LaneView {
                lane,
                worker: station.worker(),
                is_up,
                path_bytes: of.path_bytes,
                round_trip_us: of.round_trip_ns.unwrap_or(0) / 1000,
                sent: [of.sent.datagrams, of.sent.bytes, of.sent.payloads, of.sent.split],
                received_there: [there.received, there.gaps.saturating_sub(there.filled)],
                received_here: [here.received, here.gaps.saturating_sub(here.filled)],
                payloads_received: of.payloads_received,
                full,
                path_narrowed: of.path_narrowed,
                epochs: of.epochs,
                refusals: of.refusals,
            }
        };
        stats.map(view).collect()
    }

    /// What was counted here, and by relays.
    fn all_counts(&self) -> Counts {
        let mut counts = self.counts;
        for station in &self.stations {
            let dropped = station.relay().dropped();
            counts.drop(Drop::LaneDown, dropped.lane_down);
            counts.drop(Drop::SessionUnknown, dropped.session_unknown);
            counts.drop(Drop::LinkGone, dropped.link_gone);
            let refused = station.relay().refused_packets();
            counts.drop(Drop::Fenced, refused.fenced);
            counts.drop(Drop::Replayed, refused.replayed);
            counts.drop(Drop::SessionOver, refused.session_over);
            let delivered = station.relay().delivered();
            counts.drop(Drop::DeliveryDeferred, delivered.deferred);
            counts.drop(Drop::DeliveryLate, delivered.late);
            counts.drop(Drop::MessageUnknown, delivered.unknown);
            counts.drop(Drop::MessageOverflow, delivered.overflow);
            counts.drop(Drop::PayloadLength, delivered.too_long);
            counts.delivered.merge(&delivered);
        }
        counts
    }

    /// The backends of which there is something to say.
    fn seen(&self) -> Vec<(String, Seen)> {
        let mut all: BTreeMap<&str, Seen> = BTreeMap::new();
        let mut add = |name, seen: Seen| {
            let sum = all.entry(name).or_default();
            *sum = sum.plus(seen);
        };
        for server in self.servers.iter().flat_map(Servers::all) {
            add(&server.name, Seen { is_there: server.is_there, ..Seen::default() });
        }
        for (name, is_let_in, players) in self.stations.iter().flat_map(|it| it.relay().welcome()) {
            add(name, Seen { links: is_let_in.into(), players, is_there: true });
        }
        for (name, players) in self.stations.iter().flat_map(|it| it.relay().gone()) {
            add(name, Seen { players, ..Seen::default() });
        }
        all.into_iter().map(|(name, seen)| (name.to_owned(), seen)).collect()
    }
}

/// Gives a trunk what a station has for it.
#[inline]
fn grant(trunk: Option<&mut Trunk>, lane: Option<u8>, wish: Wish<'_>, now_ns: u64) {
    let (Some(trunk), Some(lane)) = (trunk, lane) else { return };
    match wish {
        Wish::Push(link, frame) => trunk.push(lane, link, frame, now_ns),
        Wish::Tell(link, frame) => trunk.tell(lane, link, frame),
        Wish::End(link) => trunk.end(lane, link),
        Wish::NotHeld(session) => trunk.forget_session(lane, session),
    }
}

fn connect(
    options: &Options,
    gateway: &Gateway,
    to: std::net::SocketAddr,
    epoll: &Epoll,
    now_ns: u64,
) -> Result<Trunk, (&'static str, String)> {
    let tls = (options.identity)().map_err(|why| ("certificate", why))?;
    let server =
        ServerName::try_from(gateway.host.clone()).map_err(|why| ("name", why.to_string()))?;
    let settings = Settings { token: TRUNK, ..Settings::default() };
    Trunk::connect(&tls, (to, server), &options.name, settings, epoll, now_ns)
        .map_err(|why| ("connection", why.to_string()))
}

/// Differs from one agent to the next, and from one gateway to the next.
fn seed(incarnation: u64, gateway: &Gateway) -> u64 {
    let bytes = gateway.host.bytes();
    bytes.fold(incarnation, |seed, byte| seed.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte))
}

const TRUNK: u64 = 0;
const BELL: u64 = u64::MAX;

const READY_MAX: usize = 64;

pub(super) const NS_PER_S: u64 = 1_000_000_000;

/// How often processes and servers are looked after.
const KEEP_NS: u64 = 100_000_000;
const LOOK_NS: u64 = NS_PER_S;

/// Who looks so much later than it should has stood still.
const STOOD_STILL_NS: u64 = 3 * NS_PER_S;
const SHOW_NS: u64 = 250_000_000;

/// Below this, game processes that were held because of [`Trunk::is_crowded`] are heard again.
const RELEASE_BYTES: usize = 256 << 10;

/// Below this, the trunk takes what game processes say that are linked by other threads: they leave
/// room for what those here say.
const CROSSING_BYTES: usize = RELEASE_BYTES;

/// How soon it is looked whether that has become less.
const HELD_NS: u64 = 2_000_000;

#[cfg(test)]
mod tests;

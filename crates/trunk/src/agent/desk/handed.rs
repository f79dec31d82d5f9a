//! A thread whose gateway, links and players go on in another process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use crate::protocol::lane::Role;
use crate::socket::rest::{Order, Part, Verdict, written};
use crate::socket::{Settings, Trunk};
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_io::Bell;
use ringgate_link::bundle::WORKERS_MAX;
use ringgate_os::hold_point;

use super::{Command, Desk, Shared, TRUNK, seed};
use crate::agent::dial::Dial;
use crate::agent::options::{Backend, Gateway};
use crate::agent::servers::Servers;
use crate::agent::station::Station;
use crate::agent::view::DeskView;

impl Desk {
    /// Gives all of it away, and waits. Whether another process goes on with it; otherwise this one
    /// does.
    pub(super) fn is_taken(&mut self, order: Order) -> bool {
        hold_point!("agent-rests {}", if self.gateway.is_some() { "Gateway" } else { "Local" });
        let (verdict, is_given) = order.rest(self.part());
        if let (Verdict::GoOn, Some(trunk)) = (verdict, &mut self.trunk) {
            trunk.jump();
        }
        self.has_left = is_given && verdict == Verdict::Leave;
        verdict == Verdict::Leave
    }

    fn part(&mut self) -> Option<Part> {
        let now_ns = self.now_ns();
        // One that has not begun is begun there.
        let has_trunk = self.trunk.as_mut().is_some_and(|trunk| trunk.make_portable(now_ns));
        // One that is over by now takes its lanes along here.
        self.settle(now_ns);
        let bytes = written(|out| self.write(has_trunk, out));
        let trunk = self.trunk.iter().filter(|_| has_trunk).flat_map(Trunk::descriptors);
        let servers = self.servers.iter().filter_map(Servers::descriptor);
        let fds = trunk.chain(self.stations.iter().flat_map(Station::descriptors)).chain(servers);
        let fds = fds.map(|fd: BorrowedFd<'_>| fd.try_clone_to_owned());
        // Without descriptors it cannot go along.
        let fds = fds.collect::<std::io::Result<_>>();
        fds.ok().map(|fds| Part { bytes, fds })
    }

    fn write(&self, has_trunk: bool, out: &mut Writer<'_>) {
        let Self { gateway, trunk, stations, servers, counts, incarnation, .. } = self;
        let Self { begun, begun_ns, address, .. } = self;
        // The thread's own: made anew, or seen anew. Why it has ended before is in the log.
        let Self { shared: _, epoll: _, bell: _, commands: _, shown: _, last_end: _, .. } = self;
        let Self { known_workers: _, keep_due_ns: _, look_due_ns: _, show_due_ns: _, .. } = self;
        let Self { asked: _, inbox: _, by_lane, .. } = self;
        let Self { is_holding: _, ready: _, noted: _, heard: _, rest: _, has_left: _, .. } = self;
        // An agent that drains is not handed over, and who leaves a gateway begins again.
        let Self { drains_until_ns: _, leaves_until_ns: _, .. } = self;
        let Self { must_recheck: _, backends: _, .. } = self;
        gateway.as_ref().map(|(gateway, _)| gateway.to_string()).write(out);
        counts.write(out);
        incarnation.write(out);
        [*begun, *begun_ns].write(out);
        address.write(out);
        has_trunk.write(out);
        if let Some(trunk) = trunk.as_ref().filter(|_| has_trunk) {
            trunk.write(out);
        }
        let names = servers.as_ref().map(Servers::names).unwrap_or_default();
        (stations.len() as u32).write(out);
        for station in stations {
            station.write(&names, out);
        }
        servers.is_some().write(out);
        if let Some(servers) = servers {
            servers.write(out);
        }
        // A release that knows of no clusters reads what has none. Ends come behind them.
        let is_plain = by_lane.iter().copied().eq(0..stations.len());
        let has_ends = stations.iter().any(|it| it.relay().has_delivered());
        if !is_plain || has_ends || stations.iter().any(|it| it.relay().is_of_cluster()) {
            by_lane.write(out);
            for station in stations {
                station.relay().write_clusters(out);
            }
        }
        // Nor does it read what has ends, and refuses it.
        if has_ends {
            for station in stations {
                station.relay().write_ends(out);
            }
        }
    }

    /// What another process had.
    pub(crate) fn read(
        (shared, backends): (&Shared, Arc<[Backend]>),
        from: &mut Reader<'_>,
        fds: Vec<OwnedFd>,
        (bell, commands): (Bell, Receiver<Command>),
        shown: Arc<Mutex<DeskView>>,
    ) -> Result<Self, Broken> {
        let broken = |_| Broken::Invalid("descriptor");
        let mut desk = Self::empty((shared, backends), (bell, commands), shown).map_err(broken)?;
        let options = Arc::clone(&shared.options);
        let mut fds = fds.into_iter();
        let gateway = Option::<String>::read(from)?;
        desk.counts = Carry::read(from)?;
        desk.incarnation = Carry::read(from)?;
        (desk.begun, desk.begun_ns) = (Carry::read(from)?, time::read(from)?);
        desk.address = Carry::read(from)?;
        if bool::read(from)? {
            let settings = Settings { token: TRUNK, ..Settings::default() };
            let trunk = Trunk::read(from, &mut fds, Role::Agent, settings, &desk.epoll)?;
            desk.trunk = Some(trunk);
        }
        let names: Vec<_> = options.servers().map(|(name, _)| name.to_owned()).collect();
        let count = u32::read(from)? as usize;
        if count > WORKERS_MAX {
            return Err(Broken::Invalid("number of workers"));
        }
        for at in 0..count {
            let place = (&*options.run_dir, &*desk.backends);
            let names: &[String] = if gateway.is_some() { &names } else { &[] };
            let station = Station::go_on(from, &mut fds, at, place, names, &desk.epoll)?;
            desk.stations.push(station);
        }
        let now_ns = desk.now_ns();
        if bool::read(from)? {
            let (fd, beside) = (fds.next().ok_or(Broken::Truncated)?, desk.epoll.raw());
            desk.servers = Servers::read(from, fd, &desk.backends, beside, now_ns)?;
        } else if gateway.is_some() {
            let opened = Servers::open(&desk.backends, desk.epoll.raw());
            desk.servers = opened.map_err(|_| Broken::Invalid("server"))?;
        }
        if from.rest().is_empty() {
            desk.by_lane = (0..count).collect();
        } else {
            desk.by_lane = Carry::read(from)?;
            if !desk.by_lane.iter().all(|at| *at < count) {
                return Err(Broken::Invalid("lane"));
            }
            for station in &mut desk.stations {
                station.read_clusters(from)?;
            }
        }
        if !from.rest().is_empty() {
            for station in &mut desk.stations {
                station.read_ends(from)?;
            }
        }
        from.end()?;
        if fds.next().is_some() {
            return Err(Broken::Invalid("descriptor"));
        }
        if let Some(text) = gateway {
            let gateway = Gateway::parse(&text).ok_or(Broken::Invalid("gateway"))?;
            let mut dial =
                Dial::new(&gateway, desk.bell.clone(), seed(options.incarnation, &gateway));
            if desk.trunk.is_some() {
                dial.go_on();
            }
            desk.gateway = Some((gateway, dial));
            let mut stations = std::mem::take(&mut desk.stations);
            for station in &mut stations {
                desk.count_in(station);
            }
            desk.stations = stations;
        }
        // Who is connected has read that many in its welcome, though there may be more by now.
        let told = desk.stations.iter().map(|station| station.relay().workers());
        desk.known_workers = told.min().unwrap_or_else(|| shared.book.workers());
        desk.must_recheck = true;
        // Who looks at once sees what the other process has seen last.
        desk.show();
        Ok(desk)
    }

    /// The gateway that it connects to; `None` for worker 0.
    pub(crate) fn gateway(&self) -> Option<&Gateway> {
        self.gateway.as_ref().map(|(gateway, _)| gateway)
    }

    /// Local workers that it has.
    pub(crate) fn workers(&self) -> impl Iterator<Item = usize> {
        self.stations.iter().map(Station::worker)
    }

    /// Has those go who may not be here by this process's config. Once, at its first turn.
    pub(super) fn recheck(&mut self, now_ns: u64) {
        if std::mem::take(&mut self.must_recheck) {
            self.each_station(now_ns, |station, around, wish| {
                station.catch_up(around, &mut *wish);
                station.recheck(around, wish);
            });
        }
    }

    /// This process goes on with all of it.
    pub(crate) fn set_off(&mut self) {
        self.stations.iter_mut().for_each(Station::set_off);
    }

    /// Another process goes on with all of it.
    pub(super) fn leave(self) {
        self.stations.into_iter().for_each(Station::leave);
    }
}

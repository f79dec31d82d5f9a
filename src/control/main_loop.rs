//! The control loop: takes commands and signals one by one while the workers run, and tells the
//! workers. What a command asks for stands in the modules beside this one.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::SignalKind;
use tokio::sync::{mpsc, oneshot, watch};

use super::agents::{self, Agents};
use super::cluster::Cluster;
use super::denying::Denials;
use super::draining::{self, Deadline, Deadlines};
use super::events::Watcher;
use super::handover::Talk;
use super::http::Command;
use super::listeners::Listeners;
use super::membership::{Known, Membership};
use super::moving;
use super::reload::{self, Next};
use super::view::{View, is_up};
use super::{End, Inherited, health};
use crate::config::Config;
use ringgate_gate::{BackendId, IdVec, LinkKind, ListenerId, Mail, Setup};
use ringgate_os::hand::Hand;
use ringgate_os::stored::Store;
use ringgate_os::{hold_point, wiping};
use ringgate_process::handover::{Channel, Program};
use ringgate_process::levels;
use ringgate_process::pages::asked::AskedDrain;
use ringgate_process::reloads::{Outcome, sentences};
use ringgate_process::role::Role;
use ringgate_process::systemd::Notifier;
use ringgate_trunk::protocol::tls::Peer;
use ringgate_worker::handover::DrainRow;
use ringgate_worker::{Fleet, Opened};

/// A reload that can be carried out.
struct Reloading {
    config: Config,
    /// What the file says of it, in a fleet.
    file: Option<Config>,
    next: Next,
    agents: agents::NextAgents,
    /// Who the gateway is to others of its cluster.
    identity: Option<Peer>,
    /// Not heard yet. Dropped, they close.
    opened: Vec<(ListenerId, Opened)>,
}

/// What runs while the workers do: takes commands and signals, and tells the workers.
pub(super) struct ControlLoop {
    pub(super) view: Arc<View>,
    pub(super) config_file: PathBuf,
    pub(super) config: Arc<Config>,
    pub(super) setup: Arc<Setup>,
    pub(super) notifier: Arc<Notifier>,
    /// Where players' sockets are kept.
    pub(super) store: Option<Store>,
    pub(super) watcher: Watcher,
    /// The revision of the setup that retired each backend which is retired.
    pub(super) retired_since: IdVec<BackendId, Option<u64>>,
    /// Signals to end that have come.
    pub(super) terms: u32,
    pub(super) deadlines: Deadlines,
    pub(super) denials: Denials,
    pub(super) listeners: Listeners,
    pub(super) membership: Option<Membership>,
    pub(super) agents: Agents,
    pub(super) cluster: Cluster,
    pub(super) program: Program,
    /// To itself, for what threads beside it have found out.
    pub(super) commands: mpsc::Sender<Command>,
    /// Second descriptors of the admin address, the control socket and the one for successors.
    pub(super) doors: [Option<OwnedFd>; 3],
    pub(super) admin_address: Option<SocketAddr>,
    /// Where game processes register themselves.
    pub(super) announcements: Option<OwnedFd>,
    pub(super) busy: Busy,
    /// With whom there is one that prepares.
    pub(super) talk: Option<Talk>,
    /// Who has the gateway now.
    pub(super) heir: Option<Channel>,
    /// What would change what is handed over, until that has succeeded or failed.
    pub(super) postponed: Vec<Postponed>,
}

/// What is under way that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    /// Nothing is.
    No,
    /// The config is being read.
    Reading,
    /// Somebody prepares to take over.
    Preparing,
    /// The state is being copied, so nothing may change that goes along.
    Copying,
}

/// What waits for its end.
pub(super) enum Postponed {
    Command(Command),
    Reload,
    Upgrade,
    /// Something else is known of the fleet.
    Fleet,
}

impl Postponed {
    /// The signal that has asked for it: nobody hears that it was not obeyed. None to hand over
    /// waits for that.
    pub(super) fn signal(&self) -> Option<i32> {
        matches!(self, Self::Reload).then(|| SignalKind::hangup().as_raw_value())
    }
}

/// The control loop while the workers run, and what wakes it.
pub(super) struct Attending<'a> {
    pub(super) main_loop: &'a mut ControlLoop,
    pub(super) fleet: &'a Fleet,
    pub(super) commands: &'a mut mpsc::Receiver<Command>,
    /// What is known of the fleet, where the gateway is in one.
    pub(super) known: Option<watch::Receiver<Arc<Known>>>,
}

impl Role for Attending<'_> {
    type End = io::Result<End>;
    const LOOK_EVERY: Duration = Duration::from_millis(50);

    fn is_healthy(&self) -> bool {
        health::is_healthy(&self.main_loop.view.snapshot()).is_ok()
    }

    async fn wake(&mut self) -> Option<io::Result<End>> {
        let Self { main_loop, fleet, commands, known } = self;
        let news = async {
            if let Some(known) = known
                && known.changed().await.is_ok()
            {
                return;
            }
            // Its thread may have ended before this one: nothing comes any more.
            pending::<()>().await;
        };
        tokio::select! {
            () = news => main_loop.hear_fleet_in_time(fleet),
            Some(command) = commands.recv() => match command {
                Command::HandOver(prepared) => {
                    return main_loop.hand_over(fleet, *prepared).then_some(Ok(End::HandedOver));
                }
                command => main_loop.obey_in_time(fleet, command),
            },
        }
        None
    }

    fn look(&mut self) -> Option<io::Result<End>> {
        let Self { main_loop, fleet, .. } = self;
        if fleet.has_failed() {
            return Some(Err(io::Error::other("a worker has failed")));
        }
        if main_loop.has_drained() {
            return Some(Ok(main_loop.end()));
        }
        // It changes nothing that goes along, and the note of whom it ends is gone already.
        main_loop.end_ousted(fleet);
        if main_loop.busy != Busy::Copying {
            main_loop.end_overdue(fleet);
            main_loop.watch_denied(fleet);
            main_loop.close_drained(fleet);
            main_loop.agents.tick(main_loop.view.now_ns());
            main_loop.cluster.tick(main_loop.view.now_ns(), fleet);
            main_loop.tell_fleet(fleet);
        }
        if main_loop.watcher.is_due(main_loop.view.now_ns()) {
            main_loop.watcher.tell(&main_loop.view.snapshot());
        }
        None
    }

    fn reload(&mut self) {
        self.main_loop.reload_in_time(self.fleet);
    }

    fn upgrade(&mut self) {
        self.main_loop.upgrade_in_time(self.fleet);
    }

    fn drain(&mut self) {
        self.main_loop.terms += 1;
        self.main_loop.drain(self.fleet, AskedDrain::default());
    }

    fn stop(&mut self) -> io::Result<End> {
        self.main_loop.terms += 1;
        Ok(self.main_loop.end())
    }
}

impl ControlLoop {
    /// Says why the daemon stops now.
    fn end(&mut self) -> End {
        let snapshot = self.view.snapshot();
        self.watcher.tell_last(&snapshot);
        let sessions = snapshot.totals().sessions;
        let is_over = snapshot.live.drain.is_some_and(|drain| snapshot.now_ns >= drain.until_ns);
        let reason = match (self.terms > 1, is_over) {
            (true, _) => "second_signal",
            (false, true) => "deadline",
            (false, false) => "empty",
        };
        tracing::info!(
            event = "drain_end",
            reason,
            sessions,
            "the drain is over: {sessions} sessions are left"
        );
        self.notifier.stopping(Duration::ZERO);
        End::Stop
    }

    pub(super) fn obey(&mut self, fleet: &Fleet, command: Command) {
        // The client may have closed its connection without waiting for the answer.
        match command {
            Command::AskFleet(mut roll, reply) => {
                self.ask_fleet(&mut roll);
                answer(reply, roll);
            }
            Command::ConfirmFleet { doubt, reply } => answer(reply, self.confirm_fleet(doubt)),
            Command::Capture { capture, reply } => {
                fleet.tell_all(|| Mail::Capture(Arc::clone(&capture)));
                answer(reply, ());
            }
            Command::Drain { asked, reply } => answer(reply, self.drain(fleet, asked)),
            Command::DrainBackend { backend, drained, deadline, reply } => {
                answer(reply, self.drain_backend(fleet, backend, drained, deadline));
            }
            Command::Undrain(reply) => answer(reply, self.undrain(fleet)),
            Command::ShowFleet(reply) => {
                self.show_fleet(fleet);
                answer(reply, ());
            }
            Command::Survey { wanted, ends, limit, reply } => {
                answer(reply, draining::survey(fleet, wanted, ends, limit));
            }
            Command::FindBackends { name, reply } => {
                answer(reply, moving::backends_named(&self.config, &self.setup, &name));
            }
            Command::Move { orders, reply } => {
                fleet.tell_all(|| Mail::Move(Arc::clone(&orders)));
                answer(reply, ());
            }
            Command::Trace { trace, reply } => {
                fleet.tell_all(|| Mail::Trace(Arc::clone(&trace)));
                answer(reply, ());
            }
            Command::ChangeDenied { wish, reply } => {
                answer(reply, self.change_denied(fleet, wish));
            }
            Command::Reload { is_dry, reply } => self.begin_reload(fleet, is_dry, Some(reply)),
            Command::HasRead { is_dry, read, reply } => {
                self.end_reload(fleet, is_dry, *read, reply);
                self.do_postponed(fleet);
            }
            Command::Upgrade(reply) => self.upgrade(fleet, Some(reply)),
            Command::Successor(channel) => self.welcome(fleet, channel),
            Command::HoldStill { layout, reply } => answer(reply, self.hold_still(&layout)),
            // The loop itself takes the first.
            Command::HandOver(_) | Command::HandOverEnded => self.end_hand_over(fleet),
        }
    }

    /// Goes on where the process before this one stopped.
    pub(super) fn inherit(&mut self, fleet: &Fleet, inherited: &Inherited) {
        let (mut setup, now_ns) = (Setup::clone(&self.setup), self.view.now_ns());
        let Inherited { drains, drained, .. } = inherited;
        for id in setup.backends.ids() {
            let it = &mut setup.backends[id];
            // One that was not there, and is in the file now, was put back into it.
            let is_in_file = !it.retired && self.is_of_file(&it.name);
            let is_meant = |row: &&DrainRow| row.is_there || !is_in_file;
            let row = drains.iter().filter(is_meant).find(|row| it.is(&row.name, row.address));
            let is_named = |(name, _): &&_| drains.is_empty() && !it.retired && *name == it.name;
            let named = drained.iter().find(is_named);
            let until_ns =
                row.map(|row| row.until_ns).or_else(|| named.map(|(_, until_ns)| *until_ns));
            let Some(until_ns) = until_ns else { continue };
            it.drained = true;
            self.deadlines.extend(until_ns.map(|it| (id, Deadline::new(it, now_ns))));
        }
        if !(drains.is_empty() && drained.is_empty()) {
            self.revise(fleet, setup);
        }
        self.go_on_draining(fleet, &inherited.leaving);
    }

    /// Has the config read, on a thread of its own: it and keys may lie on slow disks, and the
    /// watchdog waits for none.
    pub(super) fn begin_reload(
        &mut self,
        fleet: &Fleet,
        is_dry: bool,
        reply: Option<oneshot::Sender<Outcome>>,
    ) {
        let (file, commands) = (self.config_file.clone(), self.commands.clone());
        let read = move |reply| {
            wiping::wipe_from_now_on();
            hold_point!("gateway-reads Config");
            let read = Box::new(Config::load(&file).map_err(|why| sentences(&why)));
            // Where nobody takes commands any more, this process ends.
            drop(commands.blocking_send(Command::HasRead { is_dry, read, reply }));
        };
        match Hand::ready("ringgate-config") {
            Ok(hand) => {
                drop(hand.work(move || read(reply)));
                self.busy = Busy::Reading;
            }
            Err(why) => self.end_reload(fleet, is_dry, Err(vec![why.to_string()]), reply),
        }
    }

    fn end_reload(
        &mut self,
        fleet: &Fleet,
        is_dry: bool,
        read: Result<Config, Vec<String>>,
        reply: Option<oneshot::Sender<Outcome>>,
    ) {
        let outcome = self.reload(fleet, is_dry, read);
        if let Some(reply) = reply {
            answer(reply, outcome);
        }
    }

    /// Goes by a config that was read, and tells the workers if that is possible; only finds out
    /// whether it is, in a dry run.
    fn reload(
        &mut self,
        fleet: &Fleet,
        is_dry: bool,
        read: Result<Config, Vec<String>>,
    ) -> Outcome {
        let mut live = self.view.live();
        if live.drain.is_some() {
            let refused = Err(vec!["the gateway is draining".to_owned()]);
            if !is_dry {
                // Whoever sends a signal hears nothing else of it.
                live.reloads.put_off(&refused);
            }
            return refused;
        }
        drop(live);
        let prepared = read.and_then(|read| self.prepare(fleet, read));
        if is_dry {
            return prepared.map(|prepared| prepared.next.changes);
        }
        self.notifier.reloading();
        let outcome = prepared.map(|prepared| self.adopt(fleet, prepared));
        self.notifier.ready();
        let mut live = self.view.live();
        if outcome.is_ok() {
            live.setup = Arc::clone(&self.setup);
            live.admin = self.config.admin.clone().map(Arc::new);
        }
        live.reloads.note(&outcome);
        outcome
    }

    fn adopt(&mut self, fleet: &Fleet, prepared: Reloading) -> Vec<String> {
        let Reloading { config, file, next, agents, identity, opened } = prepared;
        for notice in config.notices() {
            tracing::warn!("{notice}");
        }
        self.keep_opened(&opened);
        self.setup = fleet.adopt(&next.setup, opened);
        self.note_retired();
        let before = std::mem::replace(&mut self.config, Arc::new(config));
        self.view.live().setup = Arc::clone(&self.setup);
        levels::change(&self.config.gateway.log_level);
        self.agents.adopt(agents, self.view.now_ns());
        self.cluster.adopt(identity, fleet);
        self.note_movements(fleet, &next, &before);
        self.forget_deadlines();
        self.note_file(file);
        next.changes
    }

    /// Does everything of a reload that may fail, and nothing that shows.
    fn prepare(&self, fleet: &Fleet, mut read: Config) -> Result<Reloading, Vec<String>> {
        read.keep_keys(&self.config);
        let (config, file) = self.with_fleet(read);
        let is_free = |id| self.is_free(id);
        let is_of_file = |name: &str| file.as_ref().unwrap_or(&config).has_backend(name);
        let next = self.with_known(fleet, |known| {
            reload::next(&self.config, &self.setup, &config, is_free, is_of_file, known)
        })?;
        let opened = self.open_added(fleet, &next, &config)?;
        let agents = self.agents.prepare(&config)?;
        let identity = self.cluster.prepare(&config)?;
        Ok(Reloading { config, file, next, agents, identity, opened })
    }

    /// Whether nothing knows a retired backend's number any more: every worker has retired it, so
    /// nobody is sent there, and its last player has left since. In a cluster sessions of other
    /// members may come there for as long as a worker is linked to it.
    pub(super) fn is_free(&self, backend: BackendId) -> bool {
        let since = self.retired_since.get(backend).copied().flatten();
        since.is_some_and(|revision| self.view.has_adopted(revision))
            && self.view.players(backend) == 0
            && !(self.config.cluster.is_some() && self.has_bundle(backend))
    }

    /// Whether a worker is linked to a game process that sends it records.
    fn has_bundle(&self, backend: BackendId) -> bool {
        let is_linked = || self.view.published().iter().any(|it| is_up(&it.report(), backend));
        matches!(self.setup.backends[backend].link, LinkKind::Bundle { .. }) && is_linked()
    }

    /// Notes with which setup backends were retired.
    pub(super) fn note_retired(&mut self) {
        let Self { setup, retired_since, .. } = self;
        retired_since.resize_with(setup.backends.len(), || None);
        for (backend, since) in setup.backends.iter().zip(retired_since) {
            *since = backend.retired.then(|| since.unwrap_or(setup.revision));
        }
    }
}

fn answer<T>(reply: oneshot::Sender<T>, with: T) {
    drop(reply.send(with));
}

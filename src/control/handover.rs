//! The predecessor's side of a hand-over: who may ask for it, and what it does then.
//!
//! Who may take over gets every player's keys, so to be the same user is not enough. It is root, at
//! the socket for it in `run_dir`, or a program that the daemon has started itself, at a pair of
//! sockets. A confined daemon cannot start programs.
//!
//! Until the successor has prepared, and has read what can be copied before the barrier, a thread
//! beside talks to it ([`copying`]), and everything goes on; but while state is copied, what would
//! change what goes along with it has to wait. From the barrier on the control thread does nothing
//! else: no command can come between.

mod barrier;
mod copying;
mod outcome;
mod recorded;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::thread::JoinHandle;

use tokio::net::UnixListener;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, oneshot};

use super::http::Command;
use super::{Busy, ControlLoop, Postponed};
use barrier::Barrier;
pub use barrier::Trunks;
use copying::{Offer, converse};
use ringgate_gate::{Backend, BackendId, Front, Phase};
use ringgate_link::announce::ANNOUNCE_SOCKET;
use ringgate_os::hand::Hand;
use ringgate_os::shared::Writing;
use ringgate_process::handover::entrance::next_successor;
use ringgate_process::handover::{
    CONTROL_SOCKET, Channel, Giving, Message, Recall, SOCKET, drains, may_hand_over,
};
use ringgate_process::pages::asked::Upgraded;
use ringgate_worker::Fleet;
use ringgate_worker::handover::{BackendRow, DrainRow, Early, Facts};

pub(super) use outcome::Asked;
pub(super) use recorded::hear_recorded;

/// A successor that has prepared.
pub(super) struct Prepared {
    giving: Giving,
    offer: Offer,
    asked: Asked,
}

impl Prepared {
    fn part(self) {
        let Self { giving, asked, .. } = self;
        asked.fail(&giving.part());
    }
}

/// A thread that talks to a successor.
pub(super) struct Talk {
    recall: Recall,
    thread: JoinHandle<()>,
}

impl ControlLoop {
    /// Starts the next release, and has it take over.
    pub(super) fn upgrade(&mut self, fleet: &Fleet, reply: Option<oneshot::Sender<Upgraded>>) {
        let asked = Asked { reply };
        match self.may_hand_over(false).and_then(|()| self.program.start()) {
            Ok((child, channel)) => self.begin_hand_over(fleet, channel, Some(child), asked),
            Err(why) => asked.fail(&why),
        }
    }

    /// Somebody has come by itself.
    pub(super) fn welcome(&mut self, fleet: &Fleet, channel: Channel) {
        let asked = Asked { reply: None };
        match self.may_hand_over(true) {
            Ok(()) => self.begin_hand_over(fleet, channel, None, asked),
            Err(why) => {
                let _ = channel.say(&Message::refused(&why), &[]);
                asked.fail(&why);
            }
        }
    }

    fn may_hand_over(&self, has_come: bool) -> Result<(), String> {
        if self.busy != Busy::No {
            return Err("the gateway is being handed over already".to_owned());
        }
        self.check_no_drain()?;
        may_hand_over(self.config.gateway.confine, has_come)
    }

    fn check_no_drain(&self) -> Result<(), String> {
        let drain = self.view.live().drain;
        drain.map_or(Ok(()), |_| Err(drains("gateway", self.terms > 0)))
    }

    /// A drain has begun: whoever prepares to take over is told so, and ends.
    pub(super) fn recall_successor(&self) {
        if let (Some(talk), Err(why)) = (&self.talk, self.check_no_drain()) {
            talk.recall.recall(why);
        }
    }

    /// This process ends, or another one has the gateway: what has waited is not done here. Who
    /// prepares to take over is told so before that: it would take this for a death.
    pub(super) async fn end_commands(&mut self, commands: &mut mpsc::Receiver<Command>) {
        if let Some(talk) = &self.talk {
            let why = self.check_no_drain().err();
            talk.recall.recall(why.unwrap_or_else(|| "the gateway ends".to_owned()));
        }
        self.postponed.clear();
        commands.close();
        while let Some(command) = commands.recv().await {
            if let Command::HandOver(prepared) = command {
                prepared.part();
            }
        }
        if let Some(talk) = self.talk.take() {
            // It waits for nothing any more.
            let _ = talk.thread.join();
        }
    }

    /// Talks to a successor on a thread of its own, until that has all that can be copied before
    /// the barrier.
    fn begin_hand_over(
        &mut self,
        fleet: &Fleet,
        channel: Channel,
        child: Option<Child>,
        asked: Asked,
    ) {
        let mut giving = Giving::new("gateway", channel, child);
        let hand = || Hand::ready("ringgate-handover").map_err(|why| why.to_string());
        let ready = self.offer(fleet).and_then(|offer| Ok((offer, giving.recall()?, hand()?)));
        let (offer, recall, hand) = match ready {
            Ok(ready) => ready,
            // Who has come takes silence for a death.
            Err(why) => {
                giving.explain(why);
                return asked.fail(&giving.part());
            }
        };
        let (commands, prepared) = (self.commands.clone(), Prepared { giving, offer, asked });
        let thread = hand.work(move || {
            let outcome = converse(prepared, &commands);
            // Where nobody takes commands any more, this process ends.
            if let Err(SendError(Command::HandOver(prepared))) = commands.blocking_send(outcome) {
                prepared.part();
            }
        });
        self.busy = Busy::Preparing;
        self.talk = Some(Talk { recall, thread });
    }

    fn offer(&self, fleet: &Fleet) -> Result<Offer, String> {
        let fail = |why: std::io::Error| format!("cannot set memory aside for the state: {why}");
        let workers = fleet.worker_count() as u16;
        let layout = ringgate_worker::write_layout(&self.setup, workers)?;
        let streams = (0..workers).map(|_| Writing::new(ringgate_worker::window_bytes()));
        let state = self.denials.folder().map(|(_, fd)| fd);
        let doors = self.doors.iter().flatten().chain(state).chain(&self.announcements);
        let doors = doors.map(OwnedFd::try_clone);
        let mut doors = doors.collect::<std::io::Result<Vec<_>>>().map_err(fail)?;
        let mut facts = self.facts(fleet, layout.len());
        if let Some(card) = fleet.card() {
            let (row, fds) = card.given().map_err(fail)?;
            facts.card = Some(row);
            doors.extend(fds);
        }
        if let Some((row, fds)) = fleet.given_spread().map_err(fail)? {
            facts.spread = Some(row);
            doors.extend(fds);
        }
        Ok(Offer {
            facts,
            layout,
            draining: self.draining(),
            shared: Writing::new(ringgate_worker::window_bytes()).map_err(fail)?,
            workers: streams.collect::<std::io::Result<_>>().map_err(fail)?,
            doors,
            scribe: fleet.scribe(),
        })
    }

    /// From here on nothing changes that goes along with the workers' state, until the hand-over
    /// has succeeded or failed. Returns it, if it is still what the successor has compared itself
    /// with.
    pub(super) fn hold_still(&mut self, layout: &[u8]) -> Result<Early, String> {
        self.check_no_drain()?;
        let workers = self.view.published().len() as u16;
        if ringgate_worker::write_layout(&self.setup, workers)? != layout {
            return Err("a reload has come in between; try again".to_owned());
        }
        let (denied, is_unwritten) = self.denials.give(self.view.now_ns())?;
        self.busy = Busy::Copying;
        let (drains, drained) = self.drain_rows();
        Ok(Early { sockets: Vec::new(), drains, drained, denied, is_unwritten })
    }

    /// Obeys, or does so when it cannot change what is being copied.
    pub(super) fn obey_in_time(&mut self, fleet: &Fleet, command: Command) {
        let must_wait = match command {
            // A successor has read the config already.
            Command::Reload { .. } => self.busy != Busy::No,
            Command::Upgrade(_) | Command::Successor(_) => self.busy == Busy::Reading,
            Command::ChangeDenied { .. }
            | Command::DrainBackend { .. }
            | Command::ConfirmFleet { .. } => self.busy == Busy::Copying,
            _ => false,
        };
        if must_wait {
            self.postponed.push(Postponed::Command(command));
        } else {
            self.obey(fleet, command);
        }
    }

    /// The same for a signal to reload.
    pub(super) fn reload_in_time(&mut self, fleet: &Fleet) {
        if self.busy == Busy::No {
            self.begin_reload(fleet, false, None);
        } else {
            self.postponed.push(Postponed::Reload);
        }
    }

    /// The same for one to hand over.
    pub(super) fn upgrade_in_time(&mut self, fleet: &Fleet) {
        if self.busy == Busy::Reading {
            self.postponed.push(Postponed::Upgrade);
        } else {
            self.upgrade(fleet, None);
        }
    }

    /// The same for news of the fleet.
    pub(super) fn hear_fleet_in_time(&mut self, fleet: &Fleet) {
        let is_noted = |it: &Postponed| matches!(it, Postponed::Fleet);
        if self.busy != Busy::Copying {
            self.hear_fleet(fleet);
        } else if !self.postponed.iter().any(is_noted) {
            self.postponed.push(Postponed::Fleet);
        }
    }

    /// It has come to nothing.
    pub(super) fn end_hand_over(&mut self, fleet: &Fleet) {
        self.talk = None;
        self.do_postponed(fleet);
    }

    /// Nothing is under way: what has waited for that is done.
    pub(super) fn do_postponed(&mut self, fleet: &Fleet) {
        self.busy = Busy::No;
        self.denials.go_on();
        for postponed in std::mem::take(&mut self.postponed) {
            match postponed {
                Postponed::Command(command) => self.obey_in_time(fleet, command),
                Postponed::Reload => self.reload_in_time(fleet),
                Postponed::Upgrade => self.upgrade_in_time(fleet),
                Postponed::Fleet => self.hear_fleet_in_time(fleet),
            }
        }
    }

    /// The names of the listeners that drain.
    fn draining(&self) -> Vec<String> {
        let all = self.setup.listeners.iter().filter(|it| it.phase == Phase::Draining);
        all.map(|it| it.name.clone()).collect()
    }

    fn facts(&self, fleet: &Fleet, layout_bytes: usize) -> Facts {
        let facts = self.view.facts();
        let listeners = self.setup.listeners.iter().zip(fleet.addresses());
        let open = listeners.filter(|(listener, _)| listener.phase != Phase::Closed);
        let [admin, control, next] = &self.doors;
        let run_dir = self.config.gateway.run_dir.clone();
        Facts {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            generation: facts.generation,
            workers: fleet.worker_count() as u16,
            epoch_ns: fleet.clock().epoch_ns(),
            started_unix_s: facts.started_unix_s,
            listeners: open.map(|(it, addresses)| (it.name.clone(), addresses)).collect(),
            leaving: Some(self.leaving_rows(fleet)),
            cluster: self.config.counted_at(),
            has_links: self.listeners.links().bundles,
            fronts: self.listeners.fronts().map(|it| it.word().to_owned()).collect(),
            layout_bytes: layout_bytes as u64,
            admin: admin.as_ref().and(self.admin_address),
            control: control.as_ref().map(|_| run_dir.join(CONTROL_SOCKET)),
            next: next.as_ref().map(|_| run_dir.join(SOCKET)),
            announce: self.announcements.as_ref().map(|_| self.announce_path()),
            run_dir,
            state_dir: self.denials.folder().map(|(path, _)| path.to_owned()),
            manager: self.notifier.known().clone(),
            retired: Vec::new(),
            backends: self.backends_of_players(),
            spread: None,
            card: None,
        }
    }

    /// Where game processes register themselves.
    pub(super) fn announce_path(&self) -> PathBuf {
        self.config.gateway.run_dir.join(ANNOUNCE_SOCKET)
    }

    /// A player may come to any of them before the barrier, but to none that is retired. One that
    /// drains does so when it is back, too.
    fn backends_of_players(&self) -> Vec<BackendRow> {
        self.backend_rows(|id, it| !it.retired || it.drained || self.view.players(id) > 0)
    }

    fn backend_rows(&self, is_meant: impl Fn(BackendId, &Backend) -> bool) -> Vec<BackendRow> {
        let meant = self.setup.backends.pairs().filter(|(id, it)| is_meant(*id, it));
        let row = |id: BackendId, it: &Backend| BackendRow {
            front: self.view.spoken(id).or_else(|| self.served_as(id)).map(|it| it.word().into()),
            players: Some(self.view.players(id)),
            name: it.name.clone(),
            address: it.address(),
            slots: it.slots,
            grace_ns: it.grace_ns,
        };
        meant.map(|(id, it)| row(id, it)).collect()
    }

    /// What is spoken at a listener that may send players to a backend.
    fn served_as(&self, backend: BackendId) -> Option<Front> {
        let mut serving = self.setup.listeners.iter().filter(|it| it.phase == Phase::Serving);
        serving.find(|it| it.backends.contains(&backend)).map(|it| Front::of(&it.protocol))
    }

    /// The barrier, and everything after it. Returns whether another process has the gateway now.
    pub(super) fn hand_over(&mut self, fleet: &Fleet, prepared: Prepared) -> bool {
        let Prepared { mut giving, offer, mut asked } = prepared;
        let successor = giving.successor();
        // Workers still serve, and what they have for agents waits in its sockets.
        let since_ns = self.view.now_ns();
        let takes_trunks = successor.is_some_and(|it| it.trunks);
        let agents = takes_trunks.then(|| self.agents.rest()).flatten();
        let copied = offer.scribe.copied();
        let mut barrier = Barrier::new(self, fleet, offer, agents, since_ns);
        let Some(pause) = giving.hand_over(&mut barrier, since_ns) else {
            barrier.go_on();
            self.go_on_in_fleet();
            asked.fail(&giving.part());
            self.end_hand_over(fleet);
            return false;
        };
        barrier.leave();
        self.talk = None;
        let pid = successor.map_or(0, |it| it.pid);
        self.notifier.handed_over(pid);
        self.view.hand_over_to(pid);
        asked.succeed(pid, &pause, copied);
        self.heir = Some(giving.leave());
        true
    }

    /// What an operator sends nobody to; and, for a release that knows no rows, the names of what
    /// is there of it.
    fn drain_rows(&self) -> (Vec<DrainRow>, Vec<(String, Option<u64>)>) {
        let (mut rows, mut named) = (Vec::new(), Vec::new());
        for (id, it) in self.setup.backends.pairs().filter(|(_, it)| it.drained) {
            let (name, until_ns) = (it.name.clone(), self.deadlines.get(&id).map(|it| it.until_ns));
            let is_there = !it.retired;
            named.extend(is_there.then(|| (name.clone(), until_ns)));
            rows.push(DrainRow { name, address: it.address(), until_ns, is_there });
        }
        (rows, named)
    }
}

/// Takes successors that come by themselves.
pub(super) async fn serve(listener: UnixListener, commands: mpsc::Sender<Command>) {
    loop {
        let channel = next_successor(&listener).await;
        if commands.send(Command::Successor(channel)).await.is_err() {
            return;
        }
    }
}

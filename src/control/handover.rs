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

mod copying;
mod entrance;
mod outcome;
mod recorded;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;

use super::http::Command;
use super::{ControlLoop, HandingOver, Postponed};
use crate::membership;
use copying::{Offer, converse, note};
use outcome::{Lap, Pause};
use ringgate_fleet::lease::Handed;
use ringgate_gate::{Backend, BackendId, Front, LinkKind, Phase};
use ringgate_link::announce::ANNOUNCE_SOCKET;
use ringgate_os::hold_point;
use ringgate_os::rights::DESCRIPTORS_MAX;
use ringgate_os::shared::Writing;
use ringgate_process::pages::asked::Upgraded;
use ringgate_trunk::gateway::AtRest;
use ringgate_worker::handover::{
    BackendRow, Channel, Early, Facts, FleetRow, Given, Giver, GiverStep, Message, SocketRow,
    TAKEN_WITHIN,
};
use ringgate_worker::{Fleet, Frozen, Gift, PartOfRest};

pub(super) use copying::{filled, note_heard};
pub(super) use entrance::{next_successor, serve};
pub(super) use outcome::Asked;
pub(super) use recorded::hear_recorded;

/// How the daemon was started, to start the next one.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path: what lies there by then is the next release.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// A successor that has prepared.
pub(super) struct Prepared {
    channel: Channel,
    giver: Giver,
    offer: Offer,
    asked: Asked,
    pid: u32,
    /// It can go on with connections of agents.
    takes_trunks: bool,
}

impl ControlLoop {
    /// Starts the next release, and has it take over.
    pub(super) fn upgrade(&mut self, fleet: &Fleet, reply: Option<oneshot::Sender<Upgraded>>) {
        let mut asked = Asked { child: None, reply };
        if let Err(why) = self.may_hand_over() {
            return asked.fail(&why);
        }
        if self.config.gateway.confine {
            return asked.fail(CONFINED);
        }
        match start(&self.program) {
            Ok((child, channel)) => {
                asked.child = Some(child);
                self.begin_hand_over(fleet, channel, asked);
            }
            Err(why) => {
                let path = self.program.path.display();
                asked.fail(&format!("cannot start {path}: {why}"));
            }
        }
    }

    /// Somebody has come by itself.
    pub(super) fn welcome(&mut self, fleet: &Fleet, channel: Channel) {
        let asked = Asked { child: None, reply: None };
        // It would have to see the successor, or end it with itself.
        let is_caught = self.config.gateway.confine && std::process::id() == FIRST_PROCESS;
        let may = if is_caught { Err(CAUGHT.to_owned()) } else { self.may_hand_over() };
        match may {
            Ok(()) => self.begin_hand_over(fleet, channel, asked),
            Err(why) => {
                let _ = channel.say(&Message::refused(&why), &[]);
                asked.fail(&why);
            }
        }
    }

    fn may_hand_over(&self) -> Result<(), String> {
        if self.handing_over != HandingOver::No {
            return Err("the gateway is being handed over already".to_owned());
        }
        self.check_no_drain()
    }

    fn check_no_drain(&self) -> Result<(), String> {
        match self.view.live().drain {
            Some(_) if self.terms > 0 => {
                Err("the gateway drains and ends then: a signal has begun that".to_owned())
            }
            Some(_) => Err("the gateway drains; `ringgate undrain` takes that back".to_owned()),
            None => Ok(()),
        }
    }

    /// Talks to a successor on a thread of its own, until that has all that can be copied before
    /// the barrier.
    fn begin_hand_over(&mut self, fleet: &Fleet, channel: Channel, asked: Asked) {
        let offer = match self.offer(fleet) {
            Ok(offer) => offer,
            Err(why) => {
                let _ = channel.say(&Message::refused(&why), &[]);
                return asked.fail(&why);
            }
        };
        self.handing_over = HandingOver::Preparing;
        let commands = self.commands.clone();
        let converse = move || {
            let outcome = converse(channel, offer, asked, &commands);
            drop(commands.blocking_send(outcome));
        };
        let thread = std::thread::Builder::new().name("ringgate-handover".to_owned());
        if let Err(why) = thread.spawn(converse) {
            self.handing_over = HandingOver::No;
            tracing::error!("cannot start a thread: {why}");
        }
    }

    fn offer(&self, fleet: &Fleet) -> Result<Offer, String> {
        let fail = |why: io::Error| format!("cannot set memory aside for the state: {why}");
        let workers = fleet.worker_count() as u16;
        let layout = ringgate_worker::write_layout(&self.setup, workers)?;
        let streams = (0..workers).map(|_| Writing::new(ringgate_worker::window_bytes()));
        let state = self.denials.folder().map(|(_, fd)| fd);
        let doors = self.doors.iter().flatten().chain(state).chain(&self.announcements);
        let doors = doors.map(OwnedFd::try_clone);
        let mut doors = doors.collect::<io::Result<Vec<_>>>().map_err(fail)?;
        let mut facts = self.facts(fleet, layout.len());
        if let Some(card) = fleet.card() {
            let (row, fds) = card.given().map_err(fail)?;
            facts.card = Some(row);
            doors.extend(fds);
        }
        let facts = serde_json::to_vec(&facts).expect("no maps with other keys than strings");
        Ok(Offer {
            facts_bytes: facts.len(),
            facts: filled(&facts).map_err(fail)?,
            layout_memory: filled(&layout).map_err(fail)?,
            layout,
            draining: self.draining(),
            shared: Writing::new(ringgate_worker::window_bytes()).map_err(fail)?,
            workers: streams.collect::<io::Result<_>>().map_err(fail)?,
            early: None,
            given: None,
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
        let denied = self.denials.give(self.view.now_ns())?;
        self.handing_over = HandingOver::Copying;
        let (drained, deadlines) = (self.drained(), self.deadlines_of_all());
        Ok(Early { sockets: Vec::new(), drained, deadlines, denied })
    }

    /// Obeys, or does so when it cannot change what is being copied.
    pub(super) fn obey_in_time(&mut self, fleet: &Fleet, command: Command) {
        let must_wait = match command {
            // The successor has read the config already.
            Command::Reload { is_dry: false, .. } => self.handing_over != HandingOver::No,
            Command::ChangeDenied { .. } | Command::DrainBackend { .. } => {
                self.handing_over == HandingOver::Copying
            }
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
        if self.handing_over == HandingOver::No {
            drop(self.reload(fleet, false));
        } else {
            self.postponed.push(Postponed::Reload);
        }
    }

    /// The same for news of the fleet.
    pub(super) fn hear_fleet_in_time(&mut self, fleet: &Fleet) {
        if self.handing_over == HandingOver::Copying {
            self.postponed.push(Postponed::Fleet);
        } else {
            self.hear_fleet(fleet);
        }
    }

    /// It has come to nothing: what has waited for it is done.
    pub(super) fn end_hand_over(&mut self, fleet: &Fleet) {
        self.handing_over = HandingOver::No;
        for postponed in std::mem::take(&mut self.postponed) {
            match postponed {
                Postponed::Command(command) => self.obey(fleet, command),
                Postponed::Reload => drop(self.reload(fleet, false)),
                Postponed::Fleet => self.hear_fleet(fleet),
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
            has_links: self.listeners.links().bundles,
            layout_bytes: layout_bytes as u64,
            admin: admin.as_ref().and(self.admin_address),
            control: control
                .as_ref()
                .map(|_| run_dir.join(ringgate_worker::handover::CONTROL_SOCKET)),
            next: next.as_ref().map(|_| run_dir.join(ringgate_worker::handover::SOCKET)),
            announce: self.announcements.as_ref().map(|_| self.announce_path()),
            run_dir,
            state_dir: self.denials.folder().map(|(path, _)| path.to_owned()),
            notify: self.notifier.known().notify.clone(),
            watchdog_us: self.notifier.known().watchdog_us.clone(),
            retired: self.retired(),
            backends: self.backends_of_players(),
            card: None,
        }
    }

    /// Where game processes register themselves.
    pub(super) fn announce_path(&self) -> PathBuf {
        self.config.gateway.run_dir.join(ANNOUNCE_SOCKET)
    }

    /// Those for whose players a successor of an earlier release keeps them.
    fn retired(&self) -> Vec<BackendRow> {
        // The successor knows the fleet's by its own copy, which may be older.
        let file = self.membership.as_ref().map_or(&*self.config, |it| it.file());
        let is_in_file = |name: &str| file.backends.iter().any(|own| own.name == name);
        let has_players = |id: BackendId| self.view.players(id) > 0;
        self.backend_rows(|id, it| (it.retired || !is_in_file(&it.name)) && has_players(id))
    }

    /// A player may come to any of them before the barrier, but to none that is retired.
    fn backends_of_players(&self) -> Vec<BackendRow> {
        self.backend_rows(|id, it| !it.retired || self.view.players(id) > 0)
    }

    fn backend_rows(&self, is_meant: impl Fn(BackendId, &Backend) -> bool) -> Vec<BackendRow> {
        let meant = self.setup.backends.pairs().filter(|(id, it)| is_meant(*id, it));
        let row = |id: BackendId, it: &Backend| BackendRow {
            front: self.view.spoken(id).or_else(|| self.served_as(id)).map(|it| it.word().into()),
            players: Some(self.view.players(id)),
            name: it.name.clone(),
            address: address_of(it),
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
        let Prepared { channel, mut giver, mut offer, mut asked, pid, takes_trunks } = prepared;
        // Workers still serve, and what they have for agents waits in its sockets.
        let mut agents = takes_trunks.then(|| self.agents.rest()).flatten();
        let mut lap = Lap::start(&self.view);
        let since_ns = lap.since_ns;
        let mut pause = Pause { copied: offer.scribe.copied(), ..Pause::default() };
        let mut frozen: Option<Frozen<'_>> = None;
        let mut given_ns = since_ns;
        let mut why = String::new();
        let mut step = GiverStep::Freeze;
        loop {
            hold_point!("gateway-gives {step:?}");
            step = match step {
                GiverStep::Freeze => {
                    let rested = self.check_no_drain().and_then(|()| fleet.freeze());
                    let rested = rested.map(|it| frozen = Some(it));
                    pause.rest_us = lap.us(&self.view);
                    giver.did(note(&mut why, rested))
                }
                GiverStep::Give => {
                    let part = write_part(frozen.as_mut(), &mut offer);
                    pause.write_us += lap.us(&self.view);
                    let is_first = offer.given.is_none();
                    let given = part.and_then(|part| {
                        let is_last = part.is_last;
                        let first = is_first.then_some((since_ns, agents.as_ref()));
                        self.give(&channel, part, first, &mut offer)?;
                        Ok(is_last)
                    });
                    pause.give_us += lap.us(&self.view);
                    if is_first {
                        given_ns = self.view.now_ns();
                    }
                    match given {
                        Ok(false) => giver.more(),
                        given => giver.did(note(&mut why, given.map(drop))),
                    }
                }
                GiverStep::Wait(time) => {
                    // Players wait for all parts together.
                    let waited = Duration::from_nanos(self.view.now_ns() - given_ns);
                    let left = TAKEN_WITHIN.saturating_sub(waited);
                    let (heard, packet) = channel.hear(time.min(left));
                    pause.take_us += lap.us(&self.view);
                    note_heard(&mut why, heard, packet.map(|(message, _)| message).as_ref());
                    giver.hear(heard)
                }
                GiverStep::ShutDoor => giver.hear(channel.shut_door()),
                GiverStep::TakeBack => {
                    let _ = channel.say(&Message::TakenBack, &[]);
                    giver.did(true)
                }
                GiverStep::Leave => {
                    pause.take_us += lap.us(&self.view);
                    if let Some(frozen) = frozen {
                        frozen.leave();
                    }
                    if let Some(agents) = agents.take() {
                        agents.leave();
                    }
                    self.notifier.handed_over(pid);
                    self.view.hand_over_to(pid);
                    asked.succeed(pid, &pause);
                    self.heir = Some(channel);
                    return true;
                }
                // What comes before the barrier is not asked for behind it.
                GiverStep::Resume
                | GiverStep::Part
                | GiverStep::Welcome
                | GiverStep::Lend
                | GiverStep::Copy => {
                    if let Some(frozen) = frozen {
                        frozen.resume();
                    }
                    let _ = channel.say(&Message::refused(&why), &[]);
                    asked.fail(&why);
                    drop(offer);
                    self.end_hand_over(fleet);
                    return false;
                }
            };
        }
    }

    /// Passes on a part of the rest; before the first, what is given besides: the barrier was then.
    fn give(
        &self,
        channel: &Channel,
        part: PartOfRest,
        first: Option<(u64, Option<&AtRest>)>,
        offer: &mut Offer,
    ) -> Result<(), String> {
        let PartOfRest { shared_bytes, worker_bytes, is_last, gifts } = part;
        if let Some(first) = first {
            self.give_rows(channel, gifts, first, offer)?;
        }
        say(channel, &Message::Rest { shared_bytes, worker_bytes, is_last }, &[])
    }

    fn give_rows(
        &self,
        channel: &Channel,
        mut gifts: Vec<Gift>,
        (since_ns, agents): (u64, Option<&AtRest>),
        offer: &mut Offer,
    ) -> Result<(), String> {
        let sockets: Vec<(SocketRow, OwnedFd)> =
            gifts.iter_mut().flat_map(|it| it.sockets.drain(..)).collect();
        let given = Given {
            sockets: sockets.iter().map(|(row, _)| *row).collect(),
            counted: gifts.iter_mut().map(|it| std::mem::take(&mut it.counted)).collect(),
            control: self.view.counted(),
            cards: gifts.into_iter().map(|it| it.card).collect(),
            latencies: self.view.live().latencies.given(),
            since_ns,
            told: self.watcher.given(),
            signals: self.postponed.iter().filter_map(Postponed::signal).collect(),
            fleet: self.heirloom().as_ref().map(fleet_row),
            trunk_bytes: agents.map_or(0, |it| it.bytes().len() as u64),
            trunk_sockets: agents.map_or(0, |it| it.descriptors().len() as u32),
        };
        let of_agents = agents.map_or(&[][..], AtRest::descriptors);
        pass(channel, sockets.iter().map(|(_, fd)| fd).chain(of_agents))?;
        let given = serde_json::to_vec(&given).expect("no maps with other keys than strings");
        let fail = |why| format!("cannot set memory aside: {why}");
        let memory = filled(&given).map_err(fail)?;
        let trunks = filled(agents.map_or(&[], AtRest::bytes)).map_err(fail)?;
        let message = Message::Given { given_bytes: given.len() as u64 };
        say(channel, &message, &[memory.fd(), trunks.fd()])?;
        // The successor reads it when it comes to it, and it would be wiped.
        offer.given = Some([memory, trunks]);
        Ok(())
    }

    fn drained(&self) -> Vec<(String, Option<u64>)> {
        let backends = self.setup.backends.pairs();
        let drained = backends.filter(|(_, it)| it.drained && !it.retired);
        drained.map(|(id, it)| (it.name.clone(), self.deadlines.get(&id).copied())).collect()
    }

    /// A backend that has gone from the config goes on draining, too.
    fn deadlines_of_all(&self) -> Vec<(String, Option<SocketAddr>, u64)> {
        let all = self.deadlines.iter().map(|(id, until_ns)| {
            let backend = &self.setup.backends[*id];
            (backend.name.clone(), address_of(backend), *until_ns)
        });
        all.collect()
    }
}

/// Where a backend listens; `None` where it connects to us.
pub(super) const fn address_of(backend: &Backend) -> Option<SocketAddr> {
    match backend.link {
        LinkKind::Udp { address } => Some(address),
        LinkKind::Bundle { .. } => None,
    }
}

/// A registration as it was given.
pub(super) fn registration_of(row: &FleetRow) -> membership::Inherited {
    let keys = row.keys.iter().map(|key| key.clone().into()).collect();
    let handed = Handed { lease: row.lease, former: row.former.clone(), keys };
    let (instance, announced) = (row.instance.clone(), row.announced.clone());
    let owned = row.owned.iter().cloned();
    let owned =
        owned.map(|(name, uid, has_linked)| membership::OwnedName { name, uid, has_linked });
    let (owned, joined, asked) = (owned.collect(), row.joined.clone(), row.asked.clone());
    let left = row.left.clone();
    membership::Inherited { instance, handed, announced, owned, joined, asked, left }
}

/// As it goes to the successor.
fn fleet_row(inherited: &membership::Inherited) -> FleetRow {
    let membership::Inherited { instance, handed, announced, owned, joined, asked, left } =
        inherited;
    let owned = owned.iter().cloned();
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    FleetRow {
        instance: instance.clone(),
        lease: handed.lease,
        former: handed.former.clone(),
        keys: handed.keys.iter().map(|key| text(key)).collect(),
        announced: announced.clone(),
        owned: owned.map(|it| (it.name, it.uid, it.has_linked)).collect(),
        joined: joined.clone(),
        asked: asked.clone(),
        left: left.clone(),
    }
}

/// Has the next part of the rest written.
fn write_part(frozen: Option<&mut Frozen<'_>>, offer: &mut Offer) -> Result<PartOfRest, String> {
    let frozen = frozen.ok_or("nothing is frozen")?;
    frozen.export(&mut offer.scribe, &mut offer.shared, &mut offer.workers)
}

/// Passes sockets on.
fn pass<'a>(channel: &Channel, sockets: impl Iterator<Item = &'a OwnedFd>) -> Result<(), String> {
    let fds: Vec<_> = sockets.map(AsFd::as_fd).collect();
    fds.chunks(DESCRIPTORS_MAX).try_for_each(|some| say(channel, &Message::Sockets, some))
}

fn say(channel: &Channel, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), String> {
    channel.say(message, fds).map_err(|why| format!("the successor does not hear: {why}"))
}

/// Starts the program that lies where ours did, with our arguments.
pub(super) fn start(program: &Program) -> io::Result<(Child, Channel)> {
    let (ours, its) = Channel::pair()?;
    let mut command = std::process::Command::new(&program.path);
    command.args(&program.args).stdin(Stdio::from(its.into_fd()));
    // It answers for itself, and its watchdog is fed by its own number.
    command.env_remove("WATCHDOG_PID");
    Ok((command.spawn()?, ours))
}

/// Its container ends with it.
pub(super) const FIRST_PROCESS: u32 = 1;

pub(super) const CAUGHT: &str =
    "a confined daemon that is the first process of a container cannot be taken over from";

pub(super) const CONFINED: &str = "a confined daemon cannot start programs: start the successor as root, with the arguments of the \
                        running one and --take-over";

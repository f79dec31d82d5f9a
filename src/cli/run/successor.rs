//! `ringgate run --take-over`: the successor's side of a hand-over.
//!
//! Everything that can fail is done before the gateway is taken, and as much as possible before
//! anybody waits for it: config, drivers, tables with the sessions that were there by then, the
//! control plane. At the barrier what has changed since is read, and then nothing is left but to
//! run.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use socket2::SockRef;

use super::{
    Failure, make_folders, open_announce_socket, open_next_socket, open_socket, privileges, state,
    tell_driver,
};
use crate::config::{Config, Workers};
use crate::control::{Control, Inherited, Joining, Settings, State, Trunks};
use ringgate_core::limits::WORKERS_MAX;
use ringgate_os::overflows::Overflows;
use ringgate_os::usage::Usage;
use ringgate_process::handover::envelope::from_json;
use ringgate_process::handover::{
    self, Before, Channel, Envelope, Extent, Moment, Program, Taken, Takes, memory,
};
use ringgate_process::privileges::Privileges;
use ringgate_state::{DenyList, Folder, SpentFiles, text};
use ringgate_worker::handover::{Early, Facts, Given, Layout, SocketRow};
use ringgate_worker::{Arriving, Heir, Inheritance, Plan, Ready, Sockets};

/// Whom to take over from: who has started this process, or who has this `run_dir`, if somebody
/// does.
pub(in crate::cli) fn find(is_on_stdin: bool, run_dir: &Path) -> Result<Option<Channel>, Failure> {
    if is_on_stdin {
        let channel = io::stdin().as_fd().try_clone_to_owned().and_then(Channel::from_fd);
        return channel
            .map(Some)
            .map_err(|why| Failure::bad_input(format_args!("--predecessor-on-stdin: {why}")));
    }
    let path = run_dir.join(handover::SOCKET);
    match Channel::connect(&path) {
        Ok(channel) => Ok(Some(channel)),
        Err(why) if is_nobody(&why) => {
            tracing::info!("there is no process to take over from; starting as ever");
            Ok(None)
        }
        Err(why) => Err(Failure::failed(format_args!(
            "cannot reach the process to take over from at {}: {why}",
            path.display()
        ))),
    }
}

/// Whether nobody listens there.
fn is_nobody(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// What a successor is to be.
pub(super) struct Successor<'a> {
    /// Until the control plane has it.
    pub(super) config: Option<Config>,
    /// The same, where the gateway is in a fleet.
    pub(super) joining: Option<Joining>,
    pub(super) file: &'a Path,
    pub(super) plan: &'a Plan,
    /// The same with as many workers as the process before has, where it has others.
    pub(super) as_many: &'a OnceCell<Plan>,
    pub(super) privileges: &'a Privileges,
    pub(super) program: &'a Program,
}

/// A gateway on its way from another process, as far as it has come.
struct Coming<'a> {
    successor: Successor<'a>,
    made: Option<Made<'a>>,
    begun: Option<Begun<'a>>,
    complete: Option<Complete>,
}

/// What is made before anything is given.
struct Made<'a> {
    facts: Facts,
    heir: Heir<'a>,
    /// The shared stream, and each worker's.
    streams: Vec<OwnedFd>,
    doors: [Option<OwnedFd>; 3],
    /// Where game processes register themselves.
    announce: Option<OwnedFd>,
    /// The folder of who is denied, or why there is none.
    folder: Result<Folder, String>,
    /// What is in one that the predecessor had not.
    found: DenyList,
    spent: Option<SpentFiles>,
    kernel: (Overflows, Usage),
}

/// What is made while the predecessor serves.
struct Begun<'a> {
    control: Control,
    arriving: Arriving<'a>,
    /// The rows, once they were read.
    given: Option<Given>,
    of_agents: Option<(Trunks, Vec<OwnedFd>)>,
    /// Second descriptors of the control socket and the one for successors.
    doors: [Option<OwnedFd>; 2],
    announce: Option<OwnedFd>,
}

/// A successor that has only to run.
struct Complete {
    control: Control,
    workers: Ready,
    inheritance: Inheritance,
}

impl<'a> Successor<'a> {
    fn config(&self) -> &Config {
        self.config.as_ref().expect("it is given away with the workers, once")
    }

    /// Talks to the predecessor. `None` where it has ended without giving anything.
    pub(super) fn take_over(self, channel: &Channel) -> Result<Option<Control>, Failure> {
        let mut coming = Coming { successor: self, made: None, begun: None, complete: None };
        match handover::take_over(channel, &mut coming) {
            Ok(Taken::Serve(_)) => Ok(coming.complete.map(Complete::set_off)),
            Ok(Taken::StartAfresh) => Ok(None),
            Err(why) => Err(Failure::failed(format_args!("cannot take over: {why}"))),
        }
    }

    /// What its workers are told. Of `"auto"` they are as many as in the process before: the
    /// processors that this one may use may be others by now.
    fn plan_for(&self, theirs: u16) -> &'a Plan {
        let ours = self.plan.workers;
        let is_auto = self.config().gateway.workers == Workers::Auto;
        if !is_auto || theirs == ours || !(1..=WORKERS_MAX).contains(&theirs.into()) {
            return self.plan;
        }
        tracing::warn!(
            "workers = \"auto\" stays {theirs}, as in the process before; a restart would make it {ours}"
        );
        self.as_many.get_or_init(|| Plan { workers: theirs, ..self.plan.clone() })
    }

    fn prepare(&self, offered: &mut Envelope) -> Result<Made<'a>, String> {
        let ((facts, fds), (Layout(layout), _)) = (offered.take::<Facts>()?, offered.take()?);
        // Sockets of operators are where they were, whatever links there are.
        if facts.run_dir != self.config().gateway.run_dir {
            return Err("gateway.run_dir has changed; that needs a restart".to_owned());
        }
        // Its number says nothing among the processes of another cluster.
        let clusters = facts.cluster.as_ref().zip(self.config().counted_at());
        if clusters.is_some_and(|(before, now)| *before != now) {
            return Err("cluster.name or fleet.prefix has changed; that needs a restart".to_owned());
        }
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or(TOO_LITTLE);
        let shared = next()?;
        let workers = (0..facts.workers).map(|_| next()).collect::<Result<Vec<_>, _>>()?;
        let streams = [shared].into_iter().chain(workers).collect();
        let has_door = [facts.admin.is_some(), facts.control.is_some(), facts.next.is_some()];
        let [admin, control, successors] = has_door.map(|has| has.then(&mut next));
        let doors = [admin.transpose()?, control.transpose()?, successors.transpose()?];
        let state = facts.state_dir.as_ref().map(|_| next()).transpose()?;
        let announce = facts.announce.as_ref().map(|_| next()).transpose()?;
        let heir = Heir::prepare(self.plan_for(facts.workers), &facts, &layout, fds.collect())?;
        let (folder, found) = self.folder(facts.state_dir.as_deref().zip(state))?;
        let spent = folder.as_ref().ok().and_then(state::spent_files);
        let sentence = |why: Failure| why.to_string();
        make_folders(self.config(), self.plan.run_dir.is_some()).map_err(sentence)?;
        // They cannot be opened behind the next line.
        let kernel = (Overflows::open(), Usage::open());
        let (read, write) = privileges::folders(self.config(), self.file);
        self.privileges.give_up_files(&read, &write)?;
        tracing::info!(
            event = "taking_over",
            pid = facts.pid,
            release = facts.release,
            "prepared to take over from process {}, release {}",
            facts.pid,
            facts.release
        );
        Ok(Made { facts, heir, streams, doors, announce, folder, found, spent, kernel })
    }

    /// The predecessor's folder and its lock, or another one where the config names another. Where
    /// it had none, who is denied there was not known to it.
    fn folder(
        &self,
        given: Option<(&Path, OwnedFd)>,
    ) -> Result<(Result<Folder, String>, DenyList), String> {
        let gateway = &self.config().gateway;
        let has_other = match given {
            Some((path, fd)) if path == gateway.state_dir => {
                return Ok((Ok(Folder::adopt(path, fd)), DenyList::default()));
            }
            given => given.is_some(),
        };
        let State { folder, mut kept, .. } = state::open(gateway).map_err(|why| why.to_string())?;
        if folder.is_err() || has_other {
            kept.list = DenyList::default();
        }
        Ok((folder, kept.list))
    }

    /// Takes in the first part of what the workers know, and makes the control plane.
    fn begin(
        &mut self,
        lent: &mut Envelope,
        ahead: &Extent,
        made: Made<'a>,
    ) -> Result<Begun<'a>, String> {
        let Made { facts, heir, streams, doors, announce, folder, found, spent, kernel } = made;
        let (Early { sockets, drains, drained, denied, is_unwritten }, fds) = lent.take()?;
        let sockets = with_rows(sockets, fds)?;
        let mut kept = text::read(denied.as_bytes())
            .map_err(|why| format!("cannot read who is denied: {why}"))?;
        kept.list = kept.list.with(&found);
        let is_elsewhere = facts.state_dir.as_ref() != Some(&self.config().gateway.state_dir);
        let state = State { folder, kept, is_unwritten: is_unwritten || is_elsewhere, spent };
        // It is root's or its own already, so the predecessor can write there all the same.
        privileges::give_state(self.privileges, &state)?;
        privileges::give_histograms(self.privileges, self.config());
        let joining = self.joining.take();
        let denied = state.denied(joining.as_ref());
        let leaving = heir.leaving().to_vec();
        let begun = heir.begin(sockets, denied, streams, ahead)?;
        let (fleet, arriving) = begun;
        let inherited = Inherited { facts, drains, drained, leaving, doors };
        let [_, control_door, next_door] = &inherited.doors;
        let [control_door, next_door] =
            [control_door, next_door].map(|door| door.as_ref().map(second).transpose());
        let doors = [control_door?, next_door?];
        let settings = Settings {
            config_file: self.file.to_owned(),
            config: self.config.take().ok_or(TOO_LITTLE)?,
            setup: fleet.setup(),
            kernel,
            state,
            program: self.program.clone(),
            inherited: Some(inherited),
            fleet: joining,
        };
        tell_driver(&fleet);
        let control = Control::start(fleet, settings)?;
        Ok(Begun { control, arriving, given: None, of_agents: None, doors, announce })
    }

    /// Workers that do not turn yet, of what was given at the barrier.
    fn import(&self, begun: Begun<'_>) -> Result<Complete, String> {
        let Begun { mut control, arriving, given, of_agents, doors, announce } = begun;
        let given = given.ok_or(TOO_LITTLE)?;
        let (workers, inheritance) = arriving.finish(&given)?;
        control.go_on(&given)?;
        if let Some((Trunks(bytes), fds)) = of_agents {
            privileges::give_inherited(self.privileges, &fds)?;
            control.inherit_agents(&bytes, fds);
        }
        let (run_dir, has_links) = (control.run_dir().to_owned(), self.plan.run_dir.is_some());
        privileges::become_user(self.privileges, &run_dir, has_links)?;
        open_doors(&mut control, &run_dir, doors)?;
        match announce.filter(|_| control.is_in_fleet()) {
            Some(announce) => control.serve_announcements(announce),
            None => open_announce_socket(&mut control, &run_dir),
        }
        Ok(Complete { control, workers, inheritance })
    }
}

impl Takes for Coming<'_> {
    const ROLE: &'static str = "gateway";

    fn prepare(&mut self, offered: &mut Envelope) -> Result<(), String> {
        self.made = Some(self.successor.prepare(offered)?);
        Ok(())
    }

    fn read(&mut self, lent: Option<&mut Envelope>, ahead: &Extent) -> Result<(), String> {
        if let Some(begun) = &mut self.begun {
            return begun.arriving.read(ahead);
        }
        let (lent, made) = (lent.ok_or(TOO_LITTLE)?, self.made.take().ok_or(TOO_LITTLE)?);
        self.begun = Some(self.successor.begin(lent, ahead, made)?);
        Ok(())
    }

    fn read_rest(&mut self, given: Option<&mut Envelope>, rest: &Extent) -> Result<(), String> {
        let begun = self.begun.as_mut().ok_or(TOO_LITTLE)?;
        if begun.given.is_none() {
            let envelope = given.ok_or(TOO_LITTLE)?;
            let (given, fds) = envelope.take::<Given>()?;
            begun.of_agents = envelope.find()?;
            begun.arriving.adopt(with_rows(given.sockets.clone(), fds)?)?;
            begun.given = Some(given);
        }
        begun.arriving.read_rest(rest)
    }

    fn finish(&mut self) -> Result<(), String> {
        let begun = self.begun.take().ok_or(TOO_LITTLE)?;
        self.complete = Some(self.successor.import(begun)?);
        Ok(())
    }

    fn sort(&self, moment: Moment, before: Before) -> Result<Envelope, String> {
        let Before { bytes, mut beside, mut sockets } = before;
        let mut first = || if beside.is_empty() { Err(TOO_LITTLE) } else { Ok(beside.remove(0)) };
        Ok(match moment {
            Moment::Welcome => {
                let layout_bytes = from_json::<Facts>(&bytes)?.layout_bytes;
                let layout = Layout(memory::read(&first()?, layout_bytes)?);
                Envelope::default().with_bytes::<Facts>(bytes, beside).with(layout, Vec::new())
            }
            Moment::Early => Envelope::default().with_bytes::<Early>(bytes, sockets),
            Moment::Given => {
                let Given { trunk_bytes, trunk_sockets, .. } = from_json(&bytes)?;
                let rows = sockets.len().checked_sub(trunk_sockets as usize).ok_or(TOO_LITTLE)?;
                let of_trunks = sockets.split_off(rows);
                let envelope = Envelope::default().with_bytes::<Given>(bytes, sockets);
                if trunk_bytes == 0 {
                    return Ok(envelope);
                }
                envelope.with(Trunks(memory::read(&first()?, trunk_bytes)?), of_trunks)
            }
        })
    }
}

impl Complete {
    /// It is the owner now.
    fn set_off(self) -> Control {
        let Self { mut control, workers, inheritance } = self;
        control.set_off(workers);
        let Inheritance { sessions, not_carried, read_us, made_us, since_ns } = inheritance;
        let pause_us = control.fleet().clock().now_ns().saturating_sub(since_ns) / 1000;
        tracing::info!(
            event = "taken_over",
            sessions,
            not_carried,
            pause_us,
            read_us,
            made_us,
            "{sessions} sessions go on, {not_carried} cannot"
        );
        control
    }
}

/// The predecessor's sockets for operators and successors, or new ones where it had none.
fn open_doors(
    control: &mut Control,
    run_dir: &Path,
    [door, next]: [Option<OwnedFd>; 2],
) -> Result<(), String> {
    let sentence = |why: Failure| why.to_string();
    let Some(door) = door else { return open_socket(control, run_dir).map_err(sentence) };
    let path = run_dir.join(handover::CONTROL_SOCKET);
    // Commands are told which process holds the socket: from now on this one.
    let listens = SockRef::from(&door).listen(BACKLOG);
    listens.map_err(|why| format!("cannot listen at the control socket: {why}"))?;
    let served = control.serve_socket(UnixListener::from(door), path);
    served.map_err(|why| format!("cannot serve the control socket: {why}"))?;
    let Some(next) = next else { return open_next_socket(control, run_dir).map_err(sentence) };
    let served = control.serve_successors(next, run_dir.join(handover::SOCKET));
    served.map_err(|why| format!("cannot listen to successors: {why}"))
}

/// A row for each descriptor.
fn with_rows(rows: Vec<SocketRow>, fds: Vec<OwnedFd>) -> Result<Sockets, String> {
    if rows.len() != fds.len() {
        return Err("what was given is not what was announced".to_owned());
    }
    Ok(rows.into_iter().zip(fds).collect())
}

fn second(fd: &OwnedFd) -> Result<OwnedFd, String> {
    fd.try_clone().map_err(|why| format!("too few descriptors: {why}"))
}

/// Commands that may wait to be let in: as many as the system allows.
const BACKLOG: i32 = i32::MAX;

const TOO_LITTLE: &str = "the gateway that runs has given too little";

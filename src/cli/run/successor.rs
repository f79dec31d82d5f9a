//! `ringgate run --take-over`: the successor's side of a hand-over.
//!
//! Everything that can fail is done before the gateway is taken, and as much as possible before
//! anybody waits for it: config, drivers, tables with the sessions that were there by then, the
//! control plane. At the barrier what has changed since is read, and then nothing is left but to
//! run.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde::de::DeserializeOwned;
use socket2::SockRef;

use super::{
    Failure, make_folders, open_announce_socket, open_next_socket, open_socket, privileges, state,
    tell_driver,
};
use crate::config::Config;
use crate::control::{Control, Inherited, Joining, Program, Settings, State};
use ringgate_os::hold_point;
use ringgate_os::overflows::Overflows;
use ringgate_os::usage::Usage;
use ringgate_process::handover::channel::{Packet, why_not};
use ringgate_process::handover::{self, Channel, Message, Taker, TakerStep, memory};
use ringgate_process::privileges::Privileges;
use ringgate_state::{Folder, SpentFiles, text};
use ringgate_worker::handover::{Early, Facts, Given, SocketRow};
use ringgate_worker::{Arriving, Extent, Heir, Inheritance, Plan, Ready, Sockets};

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
    pub(super) privileges: &'a Privileges,
}

/// What has come so far.
#[derive(Default)]
struct Stash {
    /// The facts, the layout, the memory of each stream, the doors.
    welcome: Vec<OwnedFd>,
    facts_bytes: u64,
    sockets: Vec<OwnedFd>,
    early: Option<(u64, OwnedFd)>,
    /// How much of each stream was written last, the shared one first, and whether it ends with a
    /// record.
    part: (u64, Vec<u64>, bool),
    given: Option<(u64, Vec<OwnedFd>)>,
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
    spent: Option<SpentFiles>,
    kernel: (Overflows, Usage),
}

/// What is made while the predecessor serves.
struct Begun<'a> {
    control: Control,
    arriving: Arriving<'a>,
    /// The rows, once they were read.
    given: Option<Given>,
    /// Memory and descriptors of agents' trunks.
    of_agents: Option<(OwnedFd, Vec<OwnedFd>)>,
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
    pub(super) fn take_over(
        &mut self,
        channel: &Channel,
        program: &Program,
    ) -> Result<Option<Control>, Failure> {
        let (mut taker, mut step) = Taker::new();
        let (mut stash, mut made, mut complete) = (Stash::default(), None, None);
        let mut begun: Option<Begun<'a>> = None;
        let mut why = String::new();
        loop {
            hold_point!("gateway-takes {step:?}");
            step = match step {
                TakerStep::Hello => taker.did(channel.say(&Message::hello(), &[]).is_ok()),
                TakerStep::Wait(time) => {
                    let (heard, packet) = channel.hear(time);
                    why = why_not(heard, packet.as_ref(), "gateway");
                    stash.keep(packet);
                    taker.hear(heard)
                }
                TakerStep::Prepare => {
                    let prepared = self.prepare(&mut stash).map(|it| made = Some(it));
                    taker.did(prepared.map_err(|new| why = new).is_ok())
                }
                TakerStep::SayPrepared => taker.did(channel.say(&Message::Prepared, &[]).is_ok()),
                TakerStep::Read => {
                    let read = match (&mut begun, made.take()) {
                        (Some(begun), _) => begun.read(&stash),
                        (None, made) => {
                            self.begin(&mut stash, made, program).map(|it| begun = Some(it))
                        }
                    };
                    taker.did(read.map_err(|new| why = new).is_ok())
                }
                TakerStep::ReadRest => {
                    let read = match &mut begun {
                        Some(begun) => begun.read_rest(&mut stash),
                        None => Err(TOO_LITTLE.to_owned()),
                    };
                    taker.did(read.map_err(|new| why = new).is_ok())
                }
                TakerStep::SayRead => taker.did(channel.say(&Message::Read, &[]).is_ok()),
                TakerStep::Import => {
                    let imported = self.import(&mut stash, begun.take());
                    let imported = imported.map(|it| complete = Some(it));
                    taker.did(imported.map_err(|new| why = new).is_ok())
                }
                TakerStep::Take => taker.did(channel.say(&Message::Taken, &[]).is_ok()),
                TakerStep::Serve => return Ok(complete.map(Complete::set_off)),
                TakerStep::StartAfresh => return Ok(None),
                TakerStep::Exit => {
                    let _ = channel.say(&Message::refused(&why), &[]);
                    return Err(Failure::failed(format_args!("cannot take over: {why}")));
                }
            };
        }
    }

    fn prepare(&self, stash: &mut Stash) -> Result<Made<'a>, String> {
        let mut fds = std::mem::take(&mut stash.welcome).into_iter();
        let mut next = || fds.next().ok_or(TOO_LITTLE);
        let facts: Facts = read_json(&next()?, stash.facts_bytes)?;
        let layout = memory::read(&next()?, facts.layout_bytes)?;
        let shared = next()?;
        let workers = (0..facts.workers).map(|_| next()).collect::<Result<Vec<_>, _>>()?;
        let streams = [shared].into_iter().chain(workers).collect();
        let has_door = [facts.admin.is_some(), facts.control.is_some(), facts.next.is_some()];
        let [admin, control, successors] = has_door.map(|has| has.then(&mut next));
        let doors = [admin.transpose()?, control.transpose()?, successors.transpose()?];
        let state = facts.state_dir.as_ref().map(|_| next()).transpose()?;
        let announce = facts.announce.as_ref().map(|_| next()).transpose()?;
        let heir = Heir::prepare(self.plan, &facts, &layout, fds.collect())?;
        let folder = self.folder(facts.state_dir.as_deref().zip(state))?;
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
        Ok(Made { facts, heir, streams, doors, announce, folder, spent, kernel })
    }

    /// The predecessor's folder and its lock, or another one where the config names another.
    fn folder(&self, given: Option<(&Path, OwnedFd)>) -> Result<Result<Folder, String>, String> {
        let gateway = &self.config().gateway;
        match given {
            Some((path, fd)) if path == gateway.state_dir => Ok(Ok(Folder::adopt(path, fd))),
            _ => state::open(gateway).map(|state| state.folder).map_err(|why| why.to_string()),
        }
    }

    /// Takes in the first part of what the workers know, and makes the control plane.
    fn begin(
        &mut self,
        stash: &mut Stash,
        made: Option<Made<'a>>,
        program: &Program,
    ) -> Result<Begun<'a>, String> {
        let Made { facts, heir, streams, doors, announce, folder, spent, kernel } =
            made.ok_or(TOO_LITTLE)?;
        let (early_bytes, early) = stash.early.take().ok_or(TOO_LITTLE)?;
        let Early { sockets, drained, deadlines, denied } = read_json(&early, early_bytes)?;
        let sockets = stash.sockets(sockets)?;
        let kept = text::read(denied.as_bytes())
            .map_err(|why| format!("cannot read who is denied: {why}"))?;
        let state = State { folder, kept, spent };
        let joining = self.joining.take();
        let denied = state.denied(joining.as_ref());
        let leaving = heir.leaving().to_vec();
        let begun = heir.begin(sockets, denied, streams, &stash.extent())?;
        let (fleet, arriving) = begun;
        let inherited = Inherited { facts, drained, deadlines, leaving, doors };
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
            program: program.clone(),
            inherited: Some(inherited),
            fleet: joining,
        };
        tell_driver(&fleet);
        let control = Control::start(fleet, settings)?;
        Ok(Begun { control, arriving, given: None, of_agents: None, doors, announce })
    }

    /// Workers that do not turn yet, of what was given at the barrier.
    fn import(&self, stash: &mut Stash, begun: Option<Begun<'_>>) -> Result<Complete, String> {
        let mut begun = begun.ok_or(TOO_LITTLE)?;
        begun.read_rest(stash)?;
        let Begun { mut control, arriving, given, of_agents, doors, announce } = begun;
        let given = given.ok_or(TOO_LITTLE)?;
        let (workers, inheritance) = arriving.finish(&given)?;
        control.go_on(&given);
        if let Some((memory, fds)) = of_agents {
            control.inherit_agents(&memory::read(&memory, given.trunk_bytes)?, fds);
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

impl Begun<'_> {
    /// Takes in the next part.
    fn read(&mut self, stash: &Stash) -> Result<(), String> {
        self.arriving.read(&stash.extent())
    }

    /// Takes in the next part of the rest, and what comes before the first.
    fn read_rest(&mut self, stash: &mut Stash) -> Result<(), String> {
        if self.given.is_none() {
            let (given_bytes, memories) = stash.given.take().ok_or(TOO_LITTLE)?;
            let mut memories = memories.into_iter();
            let given: Given = read_json(&memories.next().ok_or(TOO_LITTLE)?, given_bytes)?;
            let fds = stash.last_sockets(given.trunk_sockets)?;
            self.of_agents = memories.next().filter(|_| given.trunk_bytes > 0).zip(Some(fds));
            self.arriving.adopt(stash.sockets(given.sockets.clone())?)?;
            self.given = Some(given);
        }
        self.arriving.read_rest(&stash.extent())
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

impl Stash {
    fn keep(&mut self, packet: Option<Packet>) {
        match packet {
            Some((Message::Welcome { facts_bytes }, fds)) => {
                (self.facts_bytes, self.welcome) = (facts_bytes, fds);
            }
            Some((Message::Sockets, fds)) => self.sockets.extend(fds),
            Some((Message::Early { early_bytes }, fds)) => {
                self.early = fds.into_iter().next().map(|fd| (early_bytes, fd));
            }
            Some((Message::Ahead { shared_bytes, worker_bytes }, _)) => {
                self.part = (shared_bytes, worker_bytes, true);
            }
            Some((Message::Rest { shared_bytes, worker_bytes, is_last }, _)) => {
                self.part = (shared_bytes, worker_bytes, is_last);
            }
            Some((Message::Given { given_bytes }, fds)) => {
                self.given = Some((given_bytes, fds));
            }
            _ => {}
        }
    }
}

impl Stash {
    /// The descriptors that have come, one for each row.
    fn sockets(&mut self, rows: Vec<SocketRow>) -> Result<Sockets, String> {
        let fds = std::mem::take(&mut self.sockets);
        if rows.len() != fds.len() {
            return Err("what was given is not what was announced".to_owned());
        }
        Ok(rows.into_iter().zip(fds).collect())
    }

    /// So many of the descriptors that came last.
    fn last_sockets(&mut self, count: u32) -> Result<Vec<OwnedFd>, String> {
        let from = self.sockets.len().checked_sub(count as usize).ok_or(TOO_LITTLE)?;
        Ok(self.sockets.split_off(from))
    }

    /// What was written last.
    fn extent(&self) -> Extent<'_> {
        let (shared_bytes, worker_bytes, is_whole) = &self.part;
        Extent { shared_bytes: *shared_bytes, worker_bytes, is_whole: *is_whole }
    }
}

fn read_json<T: DeserializeOwned>(fd: &OwnedFd, bytes: u64) -> Result<T, String> {
    serde_json::from_slice(&memory::read(fd, bytes)?)
        .map_err(|why| format!("what was given is not to be read: {why}"))
}

fn second(fd: &OwnedFd) -> Result<OwnedFd, String> {
    fd.try_clone().map_err(|why| format!("too few descriptors: {why}"))
}

/// Commands that may wait to be let in: as many as the system allows.
const BACKLOG: i32 = i32::MAX;

const TOO_LITTLE: &str = "the gateway that runs has given too little";

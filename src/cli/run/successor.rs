//! `ringgate run --take-over`: the successor's side of a hand-over.
//!
//! Everything that can fail is done before the gateway is taken: config, tables, drivers, the user
//! to become, the control plane. From then on nothing is left but to run.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::privileges::Privileges;
use super::{Args, Failure, make_folders, open_next_socket, open_socket, state};
use crate::config::Config;
use crate::control::{Control, Inherited, Joining, Program, Settings, State};
use crate::handover::channel::Packet;
use crate::handover::{self, Channel, Facts, FleetRow, Given, Heard, Message, Taker, TakerStep};
use crate::membership;
use crate::worker::{Estate, Heir, Plan};
use ringgate_fleet::lease::Handed;
use ringgate_os::overflows::Overflows;
use ringgate_os::shared;
use ringgate_os::usage::Usage;
use ringgate_state::{Folder, text};

/// The gateway to take over from, if one is wanted and there.
pub(super) fn find(args: &Args, config: &Config) -> Result<Option<Channel>, Failure> {
    if !args.take_over {
        return Ok(None);
    }
    if args.predecessor_on_stdin {
        let channel = io::stdin().as_fd().try_clone_to_owned().and_then(Channel::from_fd);
        return channel
            .map(Some)
            .map_err(|why| Failure::bad_input(format_args!("--predecessor-on-stdin: {why}")));
    }
    let path = config.gateway.run_dir.join(handover::SOCKET);
    match Channel::connect(&path) {
        Ok(channel) => Ok(Some(channel)),
        Err(why) if is_nobody(&why) => {
            tracing::info!("there is no gateway to take over from; starting as ever");
            Ok(None)
        }
        Err(why) => Err(Failure::failed(format_args!(
            "cannot reach the gateway to take over from at {}: {why}",
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
    /// The facts, the memory of each stream, the doors.
    welcome: Vec<OwnedFd>,
    facts_bytes: u64,
    sockets: Vec<OwnedFd>,
    given: Option<(u64, OwnedFd)>,
}

/// What is made before the barrier.
struct Made<'a> {
    facts: Facts,
    heir: Heir<'a>,
    /// The shared stream, and each worker's.
    streams: Vec<OwnedFd>,
    doors: [Option<OwnedFd>; 3],
    /// The folder of who is denied, or why there is none.
    folder: Result<Folder, String>,
    kernel: (Overflows, Usage),
}

impl<'a> Successor<'a> {
    fn config(&self) -> &Config {
        self.config.as_ref().expect("it is given away with the workers, once")
    }

    /// The config, where it was not given away.
    pub(super) fn into_config(self) -> (Config, Option<Joining>) {
        let config = self.config.expect("it was given away with workers, and there are none");
        (config, self.joining)
    }

    /// Talks to the predecessor. `None` where it has ended without giving anything.
    pub(super) fn take_over(
        &mut self,
        channel: &Channel,
        program: &Program,
    ) -> Result<Option<Control>, Failure> {
        let (mut taker, mut step) = Taker::new();
        let (mut stash, mut made, mut control) = (Stash::default(), None, None);
        let mut why = String::new();
        loop {
            step = match step {
                TakerStep::Hello => taker.did(channel.say(&Message::hello(), &[]).is_ok()),
                TakerStep::Wait(time) => {
                    let (heard, packet) = channel.hear(time);
                    note(&mut why, heard, packet.as_ref());
                    stash.keep(packet);
                    taker.hear(heard)
                }
                TakerStep::Prepare => {
                    let prepared = self.prepare(&mut stash).map(|it| made = Some(it));
                    taker.did(prepared.map_err(|new| why = new).is_ok())
                }
                TakerStep::SayPrepared => taker.did(channel.say(&Message::Prepared, &[]).is_ok()),
                TakerStep::Import => {
                    let imported = self.import(&mut stash, made.take(), program);
                    let imported = imported.map(|it| control = Some(it));
                    taker.did(imported.map_err(|new| why = new).is_ok())
                }
                TakerStep::Take => taker.did(channel.say(&Message::Taken, &[]).is_ok()),
                TakerStep::Serve => return Ok(control.map(set_off)),
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
        let facts = read(next()?, stash.facts_bytes)?;
        let facts: Facts = serde_json::from_slice(&facts)
            .map_err(|why| format!("the predecessor's facts are none: {why}"))?;
        let shared = next()?;
        let layout = second(&shared).and_then(|fd| read(fd, facts.layout_bytes))?;
        let heir = Heir::prepare(self.plan, &facts, &layout)?;
        let workers = (0..facts.workers).map(|_| next()).collect::<Result<Vec<_>, _>>()?;
        let streams = [shared].into_iter().chain(workers).collect();
        let has_door = [facts.admin.is_some(), facts.control.is_some(), facts.next.is_some()];
        let [admin, control, successors] = has_door.map(|has| has.then(&mut next));
        let doors = [admin.transpose()?, control.transpose()?, successors.transpose()?];
        let state = facts.state_dir.as_ref().map(|_| next()).transpose()?;
        let folder = self.folder(facts.state_dir.as_deref().zip(state))?;
        let sentence = |why: Failure| why.to_string();
        make_folders(self.config(), self.plan.run_dir.is_some()).map_err(sentence)?;
        // They cannot be opened behind the next line.
        let kernel = (Overflows::open(), Usage::open());
        self.privileges.give_up_files(self.config(), self.file).map_err(sentence)?;
        tracing::info!(
            event = "taking_over",
            pid = facts.pid,
            release = facts.release,
            "prepared to take over from process {}, release {}",
            facts.pid,
            facts.release
        );
        Ok(Made { facts, heir, streams, doors, folder, kernel })
    }

    /// The predecessor's folder and its lock, or another one where the config names another.
    fn folder(&self, given: Option<(&Path, OwnedFd)>) -> Result<Result<Folder, String>, String> {
        let gateway = &self.config().gateway;
        match given {
            Some((path, fd)) if path == gateway.state_dir => Ok(Ok(Folder::adopt(path, fd))),
            _ => state::open(gateway).map(|state| state.folder).map_err(|why| why.to_string()),
        }
    }

    /// Workers that do not turn yet, and the control plane beside them.
    fn import(
        &mut self,
        stash: &mut Stash,
        made: Option<Made<'a>>,
        program: &Program,
    ) -> Result<Control, String> {
        let Made { facts, heir, streams, doors, folder, kernel } = made.ok_or(TOO_LITTLE)?;
        let (given_bytes, given) = stash.given.take().ok_or(TOO_LITTLE)?;
        let given: Given = serde_json::from_slice(&read(given, given_bytes)?)
            .map_err(|why| format!("what was given is not to be read: {why}"))?;
        let lengths = [given.shared_bytes].into_iter().chain(given.worker_bytes.iter().copied());
        let mut read = streams.into_iter().zip(lengths).map(|(fd, len)| read(fd, len));
        let shared = read.next().ok_or(TOO_LITTLE)??;
        let workers = read.collect::<Result<Vec<_>, _>>()?;
        let (counted, drained) = (given.control.clone(), given.drained.clone());
        let kept = text::read(given.denied.as_bytes())
            .map_err(|why| format!("cannot read who is denied: {why}"))?;
        let state = State { folder, kept };
        let mut joining = self.joining.take();
        if let (Some(joining), Some(row)) = (&mut joining, &given.fleet) {
            joining.prepared.inherit(inherited_of(row));
        }
        let denied = state.denied(joining.as_ref());
        let fds = std::mem::take(&mut stash.sockets);
        let (fleet, inheritance) = heir.import(Estate { given, fds, shared, workers, denied })?;
        tracing::info!(
            event = "taken_over",
            sessions = inheritance.sessions,
            not_carried = inheritance.not_carried,
            "{} sessions go on, {} cannot",
            inheritance.sessions,
            inheritance.not_carried
        );
        let inherited = Inherited { facts, counted, drained, doors };
        let [_, control_door, next_door] = &inherited.doors;
        let doors = [control_door, next_door].map(|door| door.as_ref().map(second).transpose());
        let config = self.config.take().ok_or(TOO_LITTLE)?;
        let run_dir = config.gateway.run_dir.clone();
        let settings = Settings {
            config_file: self.file.to_owned(),
            config,
            setup: Arc::clone(fleet.setup()),
            kernel,
            state,
            program: program.clone(),
            inherited: Some(inherited),
            fleet: joining,
        };
        let mut control = Control::start(fleet, settings)?;
        let sentence = |why: Failure| why.to_string();
        self.privileges.become_user(&run_dir, self.plan.run_dir.is_some()).map_err(sentence)?;
        open_doors(&mut control, &run_dir, doors)?;
        Ok(control)
    }
}

/// A registration as it was given.
fn inherited_of(row: &FleetRow) -> membership::Inherited {
    let keys = row.keys.iter().map(|key| key.clone().into()).collect();
    let handed = Handed { lease: row.lease, former: row.former.clone(), keys };
    membership::Inherited { instance: row.instance.clone(), handed }
}

/// The predecessor's sockets for operators and successors, or new ones where it had none.
fn open_doors(
    control: &mut Control,
    run_dir: &Path,
    [door, next]: [Result<Option<OwnedFd>, String>; 2],
) -> Result<(), String> {
    let sentence = |why: Failure| why.to_string();
    let Some(door) = door? else { return open_socket(control, run_dir).map_err(sentence) };
    let path = run_dir.join(handover::CONTROL_SOCKET);
    let served = control.serve_socket(UnixListener::from(door), path);
    served.map_err(|why| format!("cannot serve the control socket: {why}"))?;
    let Some(next) = next? else { return open_next_socket(control, run_dir).map_err(sentence) };
    let served = control.serve_successors(next, run_dir.join(handover::SOCKET));
    served.map_err(|why| format!("cannot listen to successors: {why}"))
}

fn set_off(mut control: Control) -> Control {
    control.set_off();
    control
}

impl Stash {
    fn keep(&mut self, packet: Option<Packet>) {
        match packet {
            Some((Message::Welcome { facts_bytes }, fds)) => {
                (self.facts_bytes, self.welcome) = (facts_bytes, fds);
            }
            Some((Message::Sockets, fds)) => self.sockets.extend(fds),
            Some((Message::Given { given_bytes }, fds)) => {
                self.given = fds.into_iter().next().map(|fd| (given_bytes, fd));
            }
            _ => {}
        }
    }
}

/// Copies what the predecessor has written, because it could change that while it is looked at.
fn read(fd: OwnedFd, bytes: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut copy = Zeroizing::new(Vec::new());
    let len = usize::try_from(bytes).map_err(|_| TOO_LITTLE)?;
    copy.try_reserve_exact(len).map_err(|_| "there is no memory for the state".to_owned())?;
    copy.resize(len, 0);
    shared::read(fd, &mut copy).map_err(|why| format!("cannot read what was given: {why}"))?;
    Ok(copy)
}

fn second(fd: &OwnedFd) -> Result<OwnedFd, String> {
    fd.try_clone().map_err(|why| format!("too few descriptors: {why}"))
}

/// Why it has not gone on, if that is what was heard.
fn note(why: &mut String, heard: Heard, packet: Option<&Packet>) {
    *why = match (heard, packet) {
        (_, Some((Message::Refused { why }, _))) => why.clone(),
        (Heard::TakenBack, _) => "it took too long, and the gateway that ran goes on".to_owned(),
        (Heard::Late, _) => "the gateway that runs does not answer in time".to_owned(),
        _ => "what answers there is no gateway of this kind".to_owned(),
    };
}

const TOO_LITTLE: &str = "the gateway that runs has given too little";

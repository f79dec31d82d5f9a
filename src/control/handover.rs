//! The predecessor's side of a hand-over: who may ask for it, and what it does then.
//!
//! Who may take over gets every player's keys, so to be the same user is not enough. It is root, at
//! the socket for it in `run_dir`, or a program that the daemon has started itself, at a pair of
//! sockets. A confined daemon cannot start programs.
//!
//! Until the successor has prepared, a thread beside talks to it, and everything goes on. From the
//! barrier on the control thread does nothing else: no command can come between.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use super::ControlLoop;
use super::http::Command;
use crate::handover::message::CONVERSATION;
use crate::handover::{
    Channel, Facts, FleetRow, Given, Giver, GiverStep, Heard, Message, RetiredRow, SocketRow,
};
use crate::membership;
use crate::worker::{self, Fleet, Frozen};
use ringgate_gate::{BackendId, LinkKind, Phase};
use ringgate_os::rights::DESCRIPTORS_MAX;
use ringgate_os::shared::Writing;

/// How the daemon was started, to start the next one.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path: what lies there by then is the next release.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// What has come of it: how the next process is known and how long players waited, or why not.
pub(super) type Outcome = Result<HandedOver, String>;

/// A hand-over that has worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandedOver {
    pub(super) pid: u32,
    pub(super) pause_us: u64,
}

/// Somebody who wants to take over.
pub(super) struct Asked {
    /// A program that the daemon has started.
    child: Option<Child>,
    /// Who wants to know what comes of it.
    reply: Option<oneshot::Sender<Outcome>>,
}

/// A successor that has prepared.
pub(super) struct Prepared {
    channel: Channel,
    giver: Giver,
    offer: Offer,
    asked: Asked,
    pid: u32,
}

/// What is told and lent before the barrier.
struct Offer {
    facts: Writing,
    facts_bytes: usize,
    shared: Writing,
    layout_bytes: usize,
    workers: Vec<Writing>,
    given: Option<Writing>,
    /// Where operators come in, and the next successor.
    doors: Vec<OwnedFd>,
}

/// Takes successors that come by themselves. Only root's are listened to.
pub(super) async fn serve(listener: UnixListener, commands: mpsc::Sender<Command>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            continue;
        };
        let uid = stream.peer_cred().ok().map(|peer| peer.uid());
        let channel = stream.into_std().and_then(|it| Channel::from_fd(it.into()));
        let Ok(channel) = channel else { continue };
        if uid == Some(ROOT) {
            if commands.send(Command::Successor(channel)).await.is_err() {
                return;
            }
        } else {
            let _ = channel.say(&Message::refused(&NOT_ENTITLED), &[]);
        }
    }
}

impl ControlLoop {
    /// Starts the next release, and has it take over.
    pub(super) fn upgrade(&mut self, fleet: &Fleet, reply: Option<oneshot::Sender<Outcome>>) {
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
        match self.may_hand_over() {
            Ok(()) => self.begin_hand_over(fleet, channel, asked),
            Err(why) => {
                let _ = channel.say(&Message::refused(&why), &[]);
                asked.fail(&why);
            }
        }
    }

    fn may_hand_over(&self) -> Result<(), String> {
        if self.is_handing_over {
            return Err("the gateway is being handed over already".to_owned());
        }
        if self.view.live().drain.is_some() {
            return Err("the gateway drains; `ringgate undrain` takes that back".to_owned());
        }
        Ok(())
    }

    /// Talks to a successor on a thread of its own, until that has prepared.
    fn begin_hand_over(&mut self, fleet: &Fleet, channel: Channel, asked: Asked) {
        let offer = match self.offer(fleet) {
            Ok(offer) => offer,
            Err(why) => {
                let _ = channel.say(&Message::refused(&why), &[]);
                return asked.fail(&why);
            }
        };
        self.is_handing_over = true;
        let commands = self.commands.clone();
        let converse = move || drop(commands.blocking_send(greet(channel, offer, asked)));
        let thread = std::thread::Builder::new().name("ringgate-handover".to_owned());
        if let Err(why) = thread.spawn(converse) {
            self.is_handing_over = false;
            tracing::error!("cannot start a thread: {why}");
        }
    }

    fn offer(&self, fleet: &Fleet) -> Result<Offer, String> {
        let fail = |why: io::Error| format!("cannot set memory aside for the state: {why}");
        let bytes_max = worker::stream_bytes_max(&self.setup);
        let workers = fleet.worker_count() as u16;
        let mut shared = Writing::new(bytes_max).map_err(fail)?;
        let layout_bytes = worker::write_layout(&self.setup, workers, &mut shared)?;
        let streams = (0..workers).map(|_| Writing::new(bytes_max));
        let state = self.denials.folder().map(|(_, fd)| fd);
        let doors = self.doors.iter().flatten().chain(state).map(OwnedFd::try_clone);
        let facts = self.facts(fleet, layout_bytes);
        let facts = serde_json::to_vec(&facts).expect("no maps with other keys than strings");
        Ok(Offer {
            facts_bytes: facts.len(),
            facts: filled(&facts).map_err(fail)?,
            shared,
            layout_bytes,
            workers: streams.collect::<io::Result<_>>().map_err(fail)?,
            given: None,
            doors: doors.collect::<io::Result<_>>().map_err(fail)?,
        })
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
            has_links: self.listeners.links().bundles,
            layout_bytes: layout_bytes as u64,
            admin: admin.as_ref().and(self.admin_address),
            control: control.as_ref().map(|_| run_dir.join(crate::handover::CONTROL_SOCKET)),
            next: next.as_ref().map(|_| run_dir.join(crate::handover::SOCKET)),
            run_dir,
            state_dir: self.denials.folder().map(|(path, _)| path.to_owned()),
            notify: std::env::var("NOTIFY_SOCKET").ok(),
            retired: self.retired(),
        }
    }

    fn retired(&self) -> Vec<RetiredRow> {
        let backends = self.setup.backends.pairs();
        // The successor knows the fleet's by its own copy, which may be older.
        let file = self.membership.as_ref().map_or(&*self.config, |it| it.file());
        let is_in_file = |name: &str| file.backends.iter().any(|own| own.name == name);
        let has_players = |id: BackendId| self.view.players(id) > 0;
        let gone =
            backends.filter(|(id, it)| (it.retired || !is_in_file(&it.name)) && has_players(*id));
        gone.map(|(_, it)| RetiredRow {
            name: it.name.clone(),
            address: match it.link {
                LinkKind::Udp { address } => Some(address),
                LinkKind::Bundle { .. } => None,
            },
            slots: it.slots,
            grace_ns: it.grace_ns,
        })
        .collect()
    }

    /// The barrier, and everything after it. Returns whether another process has the gateway now.
    pub(super) fn hand_over(&mut self, fleet: &Fleet, prepared: Prepared) -> bool {
        self.is_handing_over = false;
        let Prepared { channel, mut giver, mut offer, mut asked, pid } = prepared;
        let began_ns = self.view.now_ns();
        let mut frozen: Option<Frozen<'_>> = None;
        let mut why = String::new();
        let mut step = GiverStep::Freeze;
        loop {
            step = match step {
                GiverStep::Freeze => giver.did(note(
                    &mut why,
                    fleet.freeze().map(|it| {
                        frozen = Some(it);
                    }),
                )),
                GiverStep::Give => {
                    let given = self.give(&channel, frozen.as_ref(), &mut offer);
                    giver.did(note(&mut why, given))
                }
                GiverStep::Wait(time) => {
                    let (heard, packet) = channel.hear(time);
                    note_heard(&mut why, heard, packet.map(|(message, _)| message).as_ref());
                    giver.hear(heard)
                }
                GiverStep::ShutDoor => giver.hear(channel.shut_door()),
                GiverStep::TakeBack => {
                    let _ = channel.say(&Message::TakenBack, &[]);
                    giver.did(true)
                }
                GiverStep::Leave => {
                    if let Some(frozen) = frozen {
                        frozen.leave();
                    }
                    let pause_us = (self.view.now_ns() - began_ns) / 1000;
                    self.notifier.handed_over(pid);
                    self.view.hand_over_to(pid);
                    asked.succeed(HandedOver { pid, pause_us });
                    return true;
                }
                GiverStep::Resume | GiverStep::Part | GiverStep::Welcome => {
                    if let Some(frozen) = frozen {
                        frozen.resume();
                    }
                    let _ = channel.say(&Message::refused(&why), &[]);
                    asked.fail(&why);
                    return false;
                }
            };
        }
    }

    fn give(
        &self,
        channel: &Channel,
        frozen: Option<&Frozen<'_>>,
        offer: &mut Offer,
    ) -> Result<(), String> {
        let frozen = frozen.ok_or("nothing is frozen")?;
        let shared_bytes = frozen.export_shared(&mut offer.shared, offer.layout_bytes)?;
        let mut exported = frozen.export(std::mem::take(&mut offer.workers))?;
        let sockets: Vec<(SocketRow, OwnedFd)> =
            exported.iter_mut().flat_map(|it| it.sockets.drain(..)).collect();
        let rows = sockets.iter().map(|(row, _)| *row).collect();
        let given = Given {
            worker_bytes: exported.iter().map(|it| it.bytes as u64).collect(),
            shared_bytes: shared_bytes as u64,
            sockets: rows,
            counted: exported.iter().map(|it| it.counted.clone()).collect(),
            control: self.view.counted(),
            drained: self.drained(),
            denied: self.denials.give(self.view.now_ns())?,
            fleet: self.heirloom().as_ref().map(fleet_row),
        };
        offer.workers = exported.into_iter().map(|it| it.memory).collect();
        let say = |message: &Message, fds: &[BorrowedFd<'_>]| {
            channel.say(message, fds).map_err(|why| format!("the successor does not hear: {why}"))
        };
        for some in sockets.chunks(DESCRIPTORS_MAX) {
            let fds: Vec<_> = some.iter().map(|(_, fd)| fd.as_fd()).collect();
            say(&Message::Sockets, &fds)?;
        }
        let given = serde_json::to_vec(&given).expect("no maps with other keys than strings");
        let memory = filled(&given).map_err(|why| format!("cannot set memory aside: {why}"))?;
        let given_bytes = given.len() as u64;
        say(&Message::Given { given_bytes }, &[memory.fd()])?;
        // The successor reads it when it comes to it, and it would be wiped.
        offer.given = Some(memory);
        Ok(())
    }

    fn drained(&self) -> Vec<(String, Option<u64>)> {
        let backends = self.setup.backends.pairs();
        let drained = backends.filter(|(_, it)| it.drained && !it.retired);
        drained.map(|(id, it)| (it.name.clone(), self.deadlines.get(&id).copied())).collect()
    }
}

/// As it goes to the successor.
fn fleet_row(inherited: &membership::Inherited) -> FleetRow {
    let membership::Inherited { instance, handed } = inherited;
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    FleetRow {
        instance: instance.clone(),
        lease: handed.lease,
        former: handed.former.clone(),
        keys: handed.keys.iter().map(|key| text(key)).collect(),
    }
}

impl Asked {
    fn fail(mut self, why: &str) {
        tracing::error!(event = "hand_over_refused", why, "the gateway was not handed over: {why}");
        if let Some(mut child) = self.child.take() {
            // It is not the owner, and would find that out by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(reply) = self.reply.take() {
            drop(reply.send(Err(why.to_owned())));
        }
    }

    fn succeed(&mut self, done: HandedOver) {
        let HandedOver { pid, pause_us } = done;
        tracing::info!(
            event = "handed_over",
            pid,
            pause_us,
            "process {pid} has taken the gateway over; players waited {pause_us} us"
        );
        if let Some(reply) = self.reply.take() {
            drop(reply.send(Ok(done)));
        }
    }
}

/// Talks to a successor until it has prepared, or will not. What the control thread does next.
fn greet(channel: Channel, offer: Offer, asked: Asked) -> Command {
    let (mut giver, mut step) = Giver::new();
    let mut why = String::new();
    let mut hello = None;
    loop {
        step = match step {
            GiverStep::Wait(time) => {
                let (heard, packet) = channel.hear(time);
                let message = packet.map(|(message, _)| message);
                note_heard(&mut why, heard, message.as_ref());
                if let Some(Message::Hello { conversation, pid, .. }) = message {
                    hello = Some((conversation, pid));
                }
                giver.hear(heard)
            }
            GiverStep::Welcome => {
                let speaks = hello.is_some_and(|(conversation, _)| conversation == CONVERSATION);
                let welcomed = if speaks { offer.show(&channel) } else { Err(OTHER.to_owned()) };
                giver.did(note(&mut why, welcomed))
            }
            GiverStep::Freeze => {
                let pid = hello.map_or(0, |(_, pid)| pid);
                let prepared = Prepared { channel, giver, offer, asked, pid };
                return Command::HandOver(Box::new(prepared));
            }
            _ => {
                let _ = channel.say(&Message::refused(&why), &[]);
                asked.fail(&why);
                return Command::HandOverEnded;
            }
        };
    }
}

impl Offer {
    /// Says welcome, with everything that there is before the barrier.
    fn show(&self, channel: &Channel) -> Result<(), String> {
        let memories = [&self.facts, &self.shared].into_iter().chain(&self.workers);
        let fds: Vec<_> =
            memories.map(Writing::fd).chain(self.doors.iter().map(AsFd::as_fd)).collect();
        let welcome = Message::Welcome { facts_bytes: self.facts_bytes as u64 };
        channel.say(&welcome, &fds).map_err(|why| format!("the successor does not hear: {why}"))
    }
}

/// Notes why something has not worked. Returns whether it has.
fn note(why: &mut String, outcome: Result<(), String>) -> bool {
    let outcome = outcome.map_err(|new| *why = new);
    outcome.is_ok()
}

/// Notes what has come instead of what should have.
fn note_heard(why: &mut String, heard: Heard, message: Option<&Message>) {
    *why = match (heard, message) {
        (_, Some(Message::Refused { why })) => format!("the successor will not: {why}"),
        (Heard::Gone, _) => "the successor has ended; its log says why".to_owned(),
        (Heard::Late, _) => "the successor does not answer in time".to_owned(),
        _ => "what has connected is no successor".to_owned(),
    };
}

fn filled(bytes: &[u8]) -> io::Result<Writing> {
    let mut memory = Writing::new(bytes.len())?;
    memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Ok(memory)
}

/// Starts the program that lies where ours did, with our arguments.
fn start(program: &Program) -> io::Result<(Child, Channel)> {
    let (ours, its) = Channel::pair()?;
    let mut command = std::process::Command::new(&program.path);
    command.args(&program.args).stdin(Stdio::from(its.into_fd()));
    // It answers for itself, and its watchdog is fed by its own number.
    command.env_remove("WATCHDOG_PID");
    Ok((command.spawn()?, ours))
}

const ROOT: u32 = 0;

const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

const NOT_ENTITLED: &str = "only root may take a gateway over; `ringgate upgrade` has the daemon start the next one itself";

const CONFINED: &str = "a confined daemon cannot start programs: start the successor as root, with the arguments of the \
                        running one and --take-over";

const OTHER: &str = "the successor speaks another version of the conversation";

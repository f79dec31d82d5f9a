//! An agent that is replaced while it runs: the next release is started, or comes by itself as
//! root, gets all that this process has, and goes on with it. Neither game processes nor gateways
//! notice more than a moment of silence.
//!
//! Who owns the agent at each step is decided by the same machines as for a gateway
//! ([`ringgate_process::handover::steps`]); there is less to say, because little is told ahead: what
//! the agent is in its fleet. What speaks with etcd rests from then on, and players wait for none
//! of it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringgate_os::clock::Clock;
use ringgate_os::hold_point;
use ringgate_os::rights::DESCRIPTORS_MAX;
use ringgate_os::shared::Writing;
use ringgate_trunk::agent::handed::Heir;
use ringgate_trunk::agent::options::Options;
use ringgate_trunk::gateway::AtRest;
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use zeroize::Zeroizing;

use super::super::handover::{CAUGHT, CONFINED, FIRST_PROCESS, filled, note_heard, start};
use super::Shared;
use crate::hosting::{Heirloom, Prepared, Resting};
use ringgate_process::handover::channel::why_not;
use ringgate_process::handover::entrance::next_successor;
use ringgate_process::handover::message::CONVERSATION;
use ringgate_process::handover::{Channel, Giver, GiverStep, Message, Taker, TakerStep, memory};
use ringgate_process::pages::asked::{HandedOver, Upgraded};

/// What a successor has to know before it prepares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The running release.
    pub release: String,
    /// Its process id.
    pub pid: u32,
    /// The agent's name.
    pub name: String,
    /// Where its sockets are.
    pub run_dir: PathBuf,
    /// What game processes know this agent by.
    pub incarnation: u64,
    /// Where its clock begins.
    pub epoch_ns: u64,
    /// Where the admin address is, if its descriptor is given, behind the control socket's.
    pub admin: Option<SocketAddr>,
    /// Whether the descriptor of the socket for the next successor is given, behind that.
    #[serde(default)]
    pub next: bool,
    /// Which fleet it is in, if what it is there is told ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
}

/// What a successor has made of another process's agent, once it is the owner.
#[derive(Debug)]
pub struct Taken {
    /// The agent.
    pub heir: Heir,
    /// Its control socket.
    pub control: OwnedFd,
    /// Its admin address.
    pub admin: Option<OwnedFd>,
    /// Where successors of root's come to.
    pub next: Option<OwnedFd>,
    /// Its place in its fleet.
    pub fleet: Option<Prepared>,
}

/// What a successor makes of its config before anything is given.
pub type Plan = (Options, Option<Prepared>);

/// Takes successors that come by themselves, one after the other.
pub(super) async fn serve(listener: UnixListener, shared: Arc<Shared>) {
    loop {
        let channel = next_successor(&listener).await;
        // Why it is refused is said to it, and in the log.
        drop(hand_over(&shared, Some(channel)).await);
    }
}

/// Starts the next release, or talks to one that has come, and has it take over. The process that
/// goes on, and for how many microseconds nobody did.
pub(super) async fn hand_over(shared: &Arc<Shared>, come: Option<Channel>) -> Upgraded {
    let of_thread = Arc::clone(shared);
    let work = tokio::task::spawn_blocking(move || try_hand_over(&of_thread, come));
    let handed = work.await.unwrap_or_else(|_| Err("a thread has panicked".to_owned()));
    match &handed {
        Ok(HandedOver { pid, pause_us }) => {
            tracing::info!(
                event = "handed_over",
                pid,
                pause_us,
                "process {pid} has taken the agent over after {pause_us} us"
            );
            shared.handed_to.store(*pid, Ordering::Relaxed);
            shared.news.notify_one();
        }
        Err(why) => {
            tracing::error!(
                event = "hand_over_refused",
                why,
                "the agent was not handed over: {why}"
            );
        }
    }
    handed
}

fn try_hand_over(shared: &Shared, come: Option<Channel>) -> Upgraded {
    // One at a time.
    let turn = shared.handing.try_lock();
    let may = match &turn {
        Ok(_) => may_hand_over(shared, come.is_some()),
        Err(_) => Err("the agent is being handed over already".to_owned()),
    };
    let (child, channel) = match (may, come) {
        (Ok(()), Some(channel)) => (None, channel),
        (Ok(()), None) => {
            let path = shared.program.path.display();
            let started = start(&shared.program);
            let (child, channel) = started.map_err(|why| format!("cannot start {path}: {why}"))?;
            (Some(child), channel)
        }
        (Err(why), come) => {
            if let Some(channel) = come {
                let _ = channel.say(&Message::refused(&why), &[]);
            }
            return Err(why);
        }
    };
    let (told, fleet, given, why) = (None, None, None, String::new());
    Giving { shared, channel, child, told, fleet, given, why }.give()
}

fn may_hand_over(shared: &Shared, has_come: bool) -> Result<(), String> {
    if shared.is_confined {
        if !has_come {
            return Err(CONFINED.to_owned());
        }
        // It would have to see the successor, or end it with itself.
        if std::process::id() == FIRST_PROCESS {
            return Err(CAUGHT.to_owned());
        }
    }
    if shared.is_draining() || shared.handed_to.load(Ordering::Relaxed) != 0 {
        return Err("the agent ends".to_owned());
    }
    Ok(())
}

/// The conversation, as far as it has come.
struct Giving<'a> {
    shared: &'a Shared,
    channel: Channel,
    /// A program that this process has started.
    child: Option<Child>,
    /// What the successor reads when it comes to it, and which would be wiped.
    told: Option<Writing>,
    /// What speaks with etcd rests, and what it has is in memory for the successor.
    fleet: Option<(Resting, Writing)>,
    given: Option<(Writing, AtRest)>,
    why: String,
}

impl Giving<'_> {
    fn give(mut self) -> Upgraded {
        let (mut giver, mut step) = Giver::new();
        let (mut hello, mut since_ns, mut has_copied) = (None, 0, false);
        let clock = self.shared.agent.clock();
        loop {
            hold_point!("agent-gives {step:?}");
            step = match step {
                GiverStep::Wait(time) => {
                    let (heard, packet) = self.channel.hear(time);
                    let message = packet.map(|(message, _)| message);
                    note_heard(&mut self.why, heard, message.as_ref());
                    if let Some(Message::Hello { conversation, pid, .. }) = message {
                        hello = Some((conversation, pid));
                    }
                    giver.hear(heard)
                }
                GiverStep::Welcome => {
                    let speaks =
                        hello.is_some_and(|(conversation, _)| conversation == CONVERSATION);
                    let said = if speaks { self.welcome() } else { Err(OTHER.to_owned()) };
                    let told = said.map(|it| self.told = Some(it));
                    giver.did(self.note(told))
                }
                GiverStep::Lend => {
                    let lent = self.lend();
                    giver.did(self.note(lent))
                }
                // What was lent is read before anybody waits for it; nothing else is copied ahead.
                GiverStep::Copy if self.fleet.is_some() && !has_copied => {
                    has_copied = true;
                    let nothing = Message::Ahead { shared_bytes: 0, worker_bytes: Vec::new() };
                    let said = self.say(&nothing, &[]);
                    giver.did(self.note(said))
                }
                GiverStep::Copy => giver.enough(),
                GiverStep::Freeze => {
                    since_ns = clock.now_ns();
                    let rest = self.shared.agent.rest();
                    let memory = filled(rest.bytes()).map_err(|why| why.to_string());
                    let held = memory.map(|memory| self.given = Some((memory, rest)));
                    giver.did(self.note(held))
                }
                GiverStep::Give => {
                    let given = self.say_all();
                    giver.did(self.note(given))
                }
                GiverStep::ShutDoor => giver.hear(self.channel.shut_door()),
                GiverStep::TakeBack => {
                    let _ = self.channel.say(&Message::TakenBack, &[]);
                    giver.did(true)
                }
                GiverStep::Leave => {
                    if let Some((_, rest)) = self.given.take() {
                        rest.leave();
                    }
                    if let Some((rest, _)) = self.fleet.take() {
                        rest.leave();
                    }
                    let pause_us = (clock.now_ns() - since_ns) / 1000;
                    let pid = hello.map_or(0, |(_, pid)| pid);
                    return Ok(HandedOver { pid, pause_us });
                }
                GiverStep::Resume | GiverStep::Part => {
                    drop(self.given.take());
                    drop(self.fleet.take());
                    let _ = self.channel.say(&Message::refused(&self.why), &[]);
                    if let Some(child) = &mut self.child {
                        // It is not the owner, and would find that out by itself.
                        let _ = child.kill();
                        let _ = child.wait();
                    }
                    return Err(self.why);
                }
            };
        }
    }

    /// Notes why something has not worked. Returns whether it has.
    fn note(&mut self, outcome: Result<(), String>) -> bool {
        let outcome = outcome.map_err(|why| self.why = why);
        outcome.is_ok()
    }

    fn welcome(&self) -> Result<Writing, String> {
        let options = self.shared.agent.options();
        let doors = &self.shared.doors;
        let facts = Facts {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            name: options.name.clone(),
            run_dir: options.run_dir.clone(),
            incarnation: options.incarnation,
            epoch_ns: self.shared.agent.clock().epoch_ns(),
            admin: doors.admin.as_ref().map(|(address, _)| *address),
            next: doors.next.is_some(),
            fleet: self.shared.fleet.get().map(|member| member.prefix().to_owned()),
        };
        let facts = serde_json::to_vec(&facts).expect("no maps with other keys than strings");
        let memory = filled(&facts).map_err(|why| why.to_string())?;
        let admin = doors.admin.iter().map(|(_, fd)| fd.as_fd());
        let next = doors.next.iter().map(AsFd::as_fd);
        let first = [memory.fd(), doors.control.as_fd()];
        let fds: Vec<_> = first.into_iter().chain(admin).chain(next).collect();
        self.say(&Message::Welcome { facts_bytes: facts.len() as u64 }, &fds)?;
        Ok(memory)
    }

    /// Tells what the agent is in its fleet: nothing of that changes from here on.
    fn lend(&mut self) -> Result<(), String> {
        let Some(member) = self.shared.fleet.get() else { return Ok(()) };
        let resting = member.rest()?;
        let Heirloom { bytes, sockets } = &resting.heirloom;
        let memory = filled(bytes).map_err(|why| why.to_string())?;
        let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        for some in fds.chunks(DESCRIPTORS_MAX) {
            self.say(&Message::Sockets, some)?;
        }
        self.say(&Message::Early { early_bytes: bytes.len() as u64 }, &[memory.fd()])?;
        self.fleet = Some((resting, memory));
        Ok(())
    }

    fn say_all(&self) -> Result<(), String> {
        let (memory, rest) = self.given.as_ref().ok_or("nothing rests")?;
        let fds: Vec<_> = rest.descriptors().iter().map(AsFd::as_fd).collect();
        for some in fds.chunks(DESCRIPTORS_MAX) {
            self.say(&Message::Sockets, some)?;
        }
        self.say(&Message::Given { given_bytes: rest.bytes().len() as u64 }, &[memory.fd()])?;
        let last = Message::Rest { shared_bytes: 0, worker_bytes: Vec::new(), is_last: true };
        self.say(&last, &[])
    }

    fn say(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        let said = self.channel.say(message, fds);
        said.map_err(|why| format!("the successor does not hear: {why}"))
    }
}

/// The successor's side. `plan` makes of its config, for an agent that is what the facts say, what
/// that agent shall be. `None` where the other process has ended and has given nothing.
pub fn take_over(
    channel: &Channel,
    plan: impl FnOnce(&Facts) -> Result<Plan, String>,
) -> Result<Option<Taken>, String> {
    let (mut taker, mut step) = Taker::new();
    let mut plan = Some(plan);
    let mut welcome = None;
    let (mut made, mut arrived, mut taken) = (None, Arrived::default(), None);
    let mut why = String::new();
    loop {
        hold_point!("agent-takes {step:?}");
        step = match step {
            TakerStep::Hello => taker.did(channel.say(&Message::hello(), &[]).is_ok()),
            TakerStep::Wait(time) => {
                let (heard, packet) = channel.hear(time);
                why = why_not(heard, packet.as_ref(), "agent");
                match packet {
                    Some((Message::Welcome { facts_bytes }, fds)) => {
                        welcome = Some((facts_bytes, fds));
                    }
                    Some(packet) => arrived.take(packet),
                    None => {}
                }
                taker.hear(heard)
            }
            TakerStep::Prepare => {
                let prepared = prepare(welcome.take(), plan.take()).map(|it| made = Some(it));
                taker.did(prepared.map_err(|new| why = new).is_ok())
            }
            TakerStep::SayPrepared => taker.did(channel.say(&Message::Prepared, &[]).is_ok()),
            TakerStep::Read => {
                let read = made.as_mut().map_or(Ok(()), |made| made.read_fleet(&mut arrived));
                taker.did(read.map_err(|new| why = new).is_ok())
            }
            TakerStep::ReadRest => taker.did(true),
            TakerStep::SayRead => taker.did(channel.say(&Message::Read, &[]).is_ok()),
            TakerStep::Import => {
                let read = import(made.take(), std::mem::take(&mut arrived));
                taker.did(read.map(|it| taken = Some(it)).map_err(|new| why = new).is_ok())
            }
            TakerStep::Take => taker.did(channel.say(&Message::Taken, &[]).is_ok()),
            TakerStep::Serve => return Ok(taken),
            TakerStep::StartAfresh => return Ok(None),
            TakerStep::Exit => {
                let _ = channel.say(&Message::refused(&why), &[]);
                return Err(why);
            }
        };
    }
}

type Memory = (u64, Vec<OwnedFd>);

/// What operators and successors come in by.
struct Doors {
    control: OwnedFd,
    admin: Option<OwnedFd>,
    next: Option<OwnedFd>,
}

/// What has come and was not read yet.
#[derive(Debug, Default)]
struct Arrived {
    sockets: Vec<OwnedFd>,
    /// What the agent is in its fleet, with the sockets that came before it.
    fleet: Option<(Memory, Vec<OwnedFd>)>,
    given: Option<Memory>,
}

impl Arrived {
    fn take(&mut self, (message, fds): (Message, Vec<OwnedFd>)) {
        match message {
            Message::Sockets => self.sockets.extend(fds),
            Message::Early { early_bytes } => {
                self.fleet = Some(((early_bytes, fds), std::mem::take(&mut self.sockets)));
            }
            Message::Given { given_bytes } => self.given = Some((given_bytes, fds)),
            _ => {}
        }
    }
}

/// What is made before anything is given.
struct Made {
    facts: Facts,
    options: Options,
    fleet: Option<Prepared>,
    /// Whether that is what it was in the other process.
    is_member: bool,
    doors: Doors,
}

impl Made {
    fn read_fleet(&mut self, arrived: &mut Arrived) -> Result<(), String> {
        let Some(fleet) = &mut self.fleet else { return Ok(()) };
        let (memory, sockets) = arrived.fleet.take().ok_or(TOO_LITTLE)?;
        let bytes = read(memory)?.to_vec();
        self.is_member = true;
        fleet.inherit(Heirloom { bytes, sockets })
    }
}

fn prepare(
    welcome: Option<Memory>,
    plan: Option<impl FnOnce(&Facts) -> Result<Plan, String>>,
) -> Result<Made, String> {
    let (bytes, fds) = welcome.ok_or(TOO_LITTLE)?;
    let mut fds = fds.into_iter();
    let facts = memory::read(&fds.next().ok_or(TOO_LITTLE)?, bytes)?;
    let facts: Facts = serde_json::from_slice(&facts).map_err(|why| why.to_string())?;
    let mut next = || fds.next().ok_or(TOO_LITTLE);
    let control = next()?;
    let admin = facts.admin.map(|_| next()).transpose()?;
    let successors = facts.next.then(&mut next).transpose()?;
    let doors = Doors { control, admin, next: successors };
    let (options, fleet) = plan.ok_or(TOO_LITTLE)?(&facts)?;
    if (&options.name, &options.run_dir) != (&facts.name, &facts.run_dir) {
        return Err("agent.name or agent.run_dir has changed; that needs a restart".to_owned());
    }
    if fleet.as_ref().map(Prepared::prefix) != facts.fleet {
        return Err("[fleet] or fleet.prefix has changed; that needs a restart".to_owned());
    }
    Ok(Made { facts, options, fleet, is_member: false, doors })
}

fn import(made: Option<Made>, arrived: Arrived) -> Result<Taken, String> {
    let Made { facts, options, fleet, is_member, doors } = made.ok_or(TOO_LITTLE)?;
    // Its registrations would go.
    if fleet.is_some() && !is_member {
        return Err(TOO_LITTLE.to_owned());
    }
    let state = read(arrived.given.ok_or(TOO_LITTLE)?)?;
    let guests = fleet.as_ref().map(|it| it.guests(&options.backends)).unwrap_or_default();
    let clock = Clock::since(facts.epoch_ns);
    let heir = Heir::read(options, guests, clock, (&state, arrived.sockets))?;
    let Doors { control, admin, next } = doors;
    Ok(Taken { heir, control, admin, next, fleet })
}

fn read((bytes, fds): Memory) -> Result<Zeroizing<Vec<u8>>, String> {
    memory::read(&fds.into_iter().next().ok_or(TOO_LITTLE)?, bytes)
}

const TOO_LITTLE: &str = "what was given is not what was announced";

const OTHER: &str = "the successor speaks another version of the conversation";

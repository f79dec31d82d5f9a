//! An agent that is replaced while it runs: the next release is started, or comes by itself as
//! root, gets all that this process has, and goes on with it. Neither game processes nor gateways
//! notice more than a moment of silence.
//!
//! Who owns the agent at each step is decided by the same machines as for a gateway
//! ([`ringgate_process::handover`]); there is less to say, because little is told ahead: what the
//! agent is in its fleet. What speaks with etcd rests from then on, and players wait for none
//! of it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringgate_os::clock::Clock;
use ringgate_os::hand::Hand;
use ringgate_process::handover::entrance::next_successor;
use ringgate_process::handover::{
    self, Before, Channel, Envelope, Extent, Gives, Giving, Message, Moment, Offers, Recall, Takes,
    may_hand_over,
};
use ringgate_process::systemd::ServiceManager;
use ringgate_process::{part_in_bytes, part_in_json};
use ringgate_trunk::agent::handed::Heir;
use ringgate_trunk::agent::options::Options;
use ringgate_trunk::gateway::AtRest;
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use super::Shared;
use super::draining::DrainHeld;
use crate::hosting::{Heirloom, Prepared, Resting};
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// Who wants to hear that it lives.
    #[serde(flatten)]
    pub manager: ServiceManager,
}

part_in_json!(Facts, "agent");

part_in_bytes! {
    /// What the agent's threads have, with sockets of gateways and game processes.
    Threads, "threads"
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
    /// Who wants to hear that it lives.
    pub manager: ServiceManager,
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
    let handed = match Hand::ready("agent-handover") {
        Ok(hand) => hand.ask(move || try_hand_over(&of_thread, come)).await,
        Err(why) => refuse(come, why.to_string()),
    };
    match &handed {
        Ok(HandedOver { pid, pause_us }) => {
            tracing::info!(
                event = "handed_over",
                pid,
                pause_us,
                "process {pid} has taken the agent over after {pause_us} us"
            );
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

/// Whoever has come takes silence for a death.
fn refuse(come: Option<Channel>, why: String) -> Upgraded {
    if let Some(channel) = come {
        let _ = channel.say(&Message::refused(&why), &[]);
    }
    Err(why)
}

fn try_hand_over(shared: &Shared, come: Option<Channel>) -> Upgraded {
    // One at a time.
    if shared.hands_over.swap(true, Ordering::AcqRel) {
        return refuse(come, "the agent is being handed over already".to_owned());
    }
    // A reload that is under way ends first.
    let turn = shared.handing.lock();
    let handed = hand_over_now(shared, come);
    drop(turn);
    shared.hands_over.store(false, Ordering::Release);
    handed
}

fn hand_over_now(shared: &Shared, come: Option<Channel>) -> Upgraded {
    let may = may_begin(shared, come.is_some());
    let (child, channel) = match (may, come) {
        (Ok(()), Some(channel)) => (None, channel),
        (Ok(()), None) => {
            let (child, channel) = shared.program.start()?;
            (Some(child), channel)
        }
        (Err(why), come) => return refuse(come, why),
    };
    let mut giving = Giving::new("agent", channel, child);
    let mut agent =
        Leaving { shared, fleet: None, has_copied: false, threads: None, drain_held: None };
    let may = giving.recall().and_then(|recall| may_go_on(shared, recall));
    let pause = match may {
        Ok(()) => {
            let goes_on = giving.converse(&mut agent);
            let since_ns = shared.agent.clock().now_ns();
            goes_on.then(|| giving.hand_over(&mut agent, since_ns)).flatten()
        }
        Err(why) => {
            giving.explain(why);
            None
        }
    };
    let Leaving { fleet, threads, drain_held, .. } = agent;
    let Some(pause) = pause else {
        drop((fleet, threads, drain_held));
        shared.drain().set_recall(None);
        return Err(giving.part());
    };
    let pid = giving.successor().map_or(0, |it| it.pid);
    // Before anybody who waits can change anything here.
    shared.handed_to.store(pid, Ordering::Relaxed);
    drop(drain_held);
    shared.drain().set_recall(None);
    threads.into_iter().for_each(AtRest::leave);
    fleet.into_iter().for_each(Resting::leave);
    Ok(HandedOver { pid, pause_us: pause.us() })
}

/// A drain that begins from now on ends the conversation.
fn may_go_on(shared: &Shared, recall: Recall) -> Result<(), String> {
    let mut drain = shared.drain();
    drain.check_none()?;
    drain.set_recall(Some(recall));
    Ok(())
}

fn may_begin(shared: &Shared, has_come: bool) -> Result<(), String> {
    may_hand_over(shared.is_confined, has_come)?;
    if shared.is_handed_over() {
        return Err("another process has the agent now".to_owned());
    }
    shared.drain().check_none()
}

/// An agent on its way to another process.
struct Leaving<'a> {
    shared: &'a Shared,
    /// What speaks with etcd rests.
    fleet: Option<Resting>,
    has_copied: bool,
    threads: Option<AtRest>,
    /// From the barrier on no drain begins.
    drain_held: Option<DrainHeld<'a>>,
}

impl Offers for Leaving<'_> {
    fn offer(&mut self) -> Result<Envelope, String> {
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
            manager: self.shared.notifier.known().clone(),
        };
        let admin = doors.admin.as_ref().map(|(_, fd)| fd);
        let fds = [Some(&doors.control), admin, doors.next.as_ref()].into_iter().flatten();
        let fds = fds.map(OwnedFd::try_clone).collect::<std::io::Result<_>>();
        Ok(Envelope::default().with(facts, fds.map_err(|why| why.to_string())?))
    }

    /// What the agent is in its fleet.
    fn lend(&mut self) -> Result<Option<Envelope>, String> {
        let Some(member) = self.shared.fleet.get() else { return Ok(None) };
        let mut resting = member.rest()?;
        let Heirloom { bytes, sockets } = std::mem::take(&mut resting.heirloom);
        self.fleet = Some(resting);
        Ok(Some(Envelope::default().with_bytes::<Heirloom>(bytes.into(), sockets)))
    }

    /// What was lent is read before anybody waits for it; nothing else is copied ahead.
    fn copy(&mut self) -> Result<Option<Extent>, String> {
        let is_first = !std::mem::replace(&mut self.has_copied, true);
        Ok((is_first && self.fleet.is_some()).then(Extent::default))
    }
}

impl Gives for Leaving<'_> {
    fn clock(&self) -> Clock {
        self.shared.agent.clock()
    }

    fn freeze(&mut self) -> Result<(), String> {
        let drain = self.shared.drain();
        drain.check_none()?;
        self.drain_held = Some(drain);
        self.threads = Some(self.shared.agent.rest()?);
        Ok(())
    }

    /// There are no streams.
    fn write(&mut self) -> Result<Extent, String> {
        Ok(Extent::default())
    }

    fn give(&mut self) -> Result<Envelope, String> {
        let (bytes, fds) = self.threads.as_mut().ok_or("nothing rests")?.take();
        Ok(Envelope::default().with(Threads(bytes), fds))
    }
}

/// The successor's side. `plan` makes of its config, for an agent that is what the facts say, what
/// that agent shall be. `None` where the other process has ended and has given nothing.
pub fn take_over(
    channel: &Channel,
    plan: impl FnOnce(&Facts) -> Result<Plan, String>,
) -> Result<Option<Taken>, String> {
    let mut coming = Coming { plan: Some(plan), made: None, threads: None, taken: None };
    match handover::take_over(channel, &mut coming)? {
        handover::Taken::Serve(_) => Ok(coming.taken),
        handover::Taken::StartAfresh => Ok(None),
    }
}

/// What operators and successors come in by.
struct Doors {
    control: OwnedFd,
    admin: Option<OwnedFd>,
    next: Option<OwnedFd>,
}

/// An agent on its way from another process, as far as it has come.
struct Coming<P> {
    plan: Option<P>,
    made: Option<Made>,
    threads: Option<(Threads, Vec<OwnedFd>)>,
    taken: Option<Taken>,
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

impl<P: FnOnce(&Facts) -> Result<Plan, String>> Takes for Coming<P> {
    const ROLE: &'static str = "agent";

    fn prepare(&mut self, offered: &mut Envelope) -> Result<(), String> {
        let (facts, fds) = offered.take::<Facts>()?;
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or(TOO_LITTLE);
        let control = next()?;
        let admin = facts.admin.map(|_| next()).transpose()?;
        let successors = facts.next.then(&mut next).transpose()?;
        let doors = Doors { control, admin, next: successors };
        let (options, fleet) = self.plan.take().ok_or(TOO_LITTLE)?(&facts)?;
        if (&options.name, &options.run_dir) != (&facts.name, &facts.run_dir) {
            return Err("agent.name or agent.run_dir has changed; that needs a restart".to_owned());
        }
        if fleet.as_ref().map(Prepared::prefix) != facts.fleet {
            return Err("[fleet] or fleet.prefix has changed; that needs a restart".to_owned());
        }
        self.made = Some(Made { facts, options, fleet, is_member: false, doors });
        Ok(())
    }

    fn read(&mut self, lent: Option<&mut Envelope>, _ahead: &Extent) -> Result<(), String> {
        let made = self.made.as_mut().ok_or(TOO_LITTLE)?;
        let Some(fleet) = &mut made.fleet else { return Ok(()) };
        let (heirloom, sockets) = lent.ok_or(TOO_LITTLE)?.take::<Heirloom>()?;
        made.is_member = true;
        fleet.inherit(Heirloom { sockets, ..heirloom })
    }

    fn read_rest(&mut self, given: Option<&mut Envelope>, _rest: &Extent) -> Result<(), String> {
        if let Some(given) = given {
            self.threads = Some(given.take()?);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        let made = self.made.take().ok_or(TOO_LITTLE)?;
        let Made { facts, options, fleet, is_member, doors } = made;
        // Its registrations would go.
        if fleet.is_some() && !is_member {
            return Err(TOO_LITTLE.to_owned());
        }
        let (Threads(state), sockets) = self.threads.take().ok_or(TOO_LITTLE)?;
        let guests = fleet.as_ref().map(|it| it.guests(&options.backends)).unwrap_or_default();
        let clock = Clock::since(facts.epoch_ns);
        let heir = Heir::read(options, guests, clock, (&state, sockets))?;
        let Doors { control, admin, next } = doors;
        self.taken = Some(Taken { heir, control, admin, next, fleet, manager: facts.manager });
        Ok(())
    }

    fn sort(&self, moment: Moment, before: Before) -> Result<Envelope, String> {
        let Before { bytes, beside, sockets } = before;
        Ok(match moment {
            Moment::Welcome => Envelope::default().with_bytes::<Facts>(bytes, beside),
            Moment::Early => Envelope::default().with_bytes::<Heirloom>(bytes, sockets),
            Moment::Given => Envelope::default().with_bytes::<Threads>(bytes, sockets),
        })
    }
}

const TOO_LITTLE: &str = "what was given is not what was announced";

//! The predecessor's end of the conversation: what is said at each step, whatever the role.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringgate_os::clock::Clock;
use ringgate_os::hold_point;
use ringgate_os::rights::DESCRIPTORS_MAX;
use ringgate_os::shared::Writing;

use super::channel::Channel;
use super::envelope::Envelope;
use super::extent::Extent;
use super::message::{CONVERSATION, Message, Moment};
use super::steps::{Giver, GiverStep, Silence, TAKEN_WITHIN};

/// What a role tells and lends while it serves.
pub trait Offers {
    /// What a successor has to know before it prepares.
    fn offer(&mut self) -> Result<Envelope, String>;

    /// What does not change any more until the end, if anything has to be known of that before
    /// the barrier.
    fn lend(&mut self) -> Result<Option<Envelope>, String>;

    /// Has a part of the state written ahead; `None` where what is left is little.
    fn copy(&mut self) -> Result<Option<Extent>, String>;
}

/// What a role gives at the barrier.
pub trait Gives {
    /// What the pause is measured by.
    fn clock(&self) -> Clock;

    /// Stops everything that serves players.
    fn freeze(&mut self) -> Result<(), String>;

    /// Writes the next part of what has changed since it was written ahead.
    fn write(&mut self) -> Result<Extent, String>;

    /// What is given besides, once: behind the first part that was written, and before it is told.
    fn give(&mut self) -> Result<Envelope, String>;
}

/// The conversation, as far as it has come. A successor that was started for it ends with it, if it
/// does not become the owner.
pub struct Giving {
    role: &'static str,
    channel: Channel,
    child: Option<Child>,
    giver: Giver,
    step: GiverStep,
    successor: Option<Successor>,
    /// What the successor reads when it comes to it, and would be wiped.
    kept: Vec<Writing>,
    why: String,
    recalled: Arc<OnceLock<String>>,
}

/// Ends a conversation before the barrier, from another thread than the one that talks: this
/// process is told to end, so nobody is to take over from it.
#[derive(Debug)]
pub struct Recall {
    channel: Channel,
    why: Arc<OnceLock<String>>,
}

impl Recall {
    /// Has the two part, for this reason. Not behind the barrier, where another word decides.
    pub fn recall(&self, why: String) {
        // The first reason is the one that is told.
        let _ = self.why.set(why);
        self.channel.hear_no_more();
    }
}

/// What a successor says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Successor {
    /// Its process id.
    pub pid: u32,
    /// It can go on with connections of agents.
    pub trunks: bool,
    /// It can go on with listeners that drain.
    pub leaving: bool,
    conversation: u32,
    sections: bool,
    descriptors_max: usize,
}

impl Successor {
    /// Whether it hears of something that so many descriptors go along with.
    fn check_hears(&self, descriptors: usize) -> Result<(), String> {
        let most = self.descriptors_max;
        if descriptors <= most {
            return Ok(());
        }
        Err(format!(
            "there are {descriptors} sockets to give, and the successor's release takes {most} at most: \
             that needs a restart"
        ))
    }
}

/// What a release takes beside the memory that does not say that it takes any number.
const DESCRIPTORS_BEFORE: usize = 65 * DESCRIPTORS_MAX - 1;

/// What the pause was made of, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause {
    /// Everything came to rest.
    pub rest_us: u64,
    /// What had changed was written.
    pub write_us: u64,
    /// That was passed on, with sockets.
    pub give_us: u64,
    /// The successor took it.
    pub take_us: u64,
}

impl Pause {
    /// All of it.
    pub const fn us(&self) -> u64 {
        self.rest_us + self.write_us + self.give_us + self.take_us
    }
}

/// Measures one part after the other.
struct Lap {
    clock: Clock,
    since_ns: u64,
}

impl Lap {
    /// Since the part before.
    fn us(&mut self) -> u64 {
        let now_ns = self.clock.now_ns();
        (now_ns - std::mem::replace(&mut self.since_ns, now_ns)) / 1000
    }
}

impl Giving {
    /// Of a "gateway", or an "agent", to whoever is at the other end: a program that this process
    /// has started, or one that has come by itself.
    pub fn new(role: &'static str, channel: Channel, child: Option<Child>) -> Self {
        let (giver, step) = Giver::new();
        let (kept, why, recalled) = (Vec::new(), String::new(), Arc::default());
        Self { role, channel, child, giver, step, successor: None, kept, why, recalled }
    }

    /// What ends the conversation from beside.
    pub fn recall(&self) -> Result<Recall, String> {
        let channel = self.channel.second().map_err(|why| why.to_string())?;
        Ok(Recall { channel, why: Arc::clone(&self.recalled) })
    }

    /// Who takes over, once that has spoken.
    pub const fn successor(&self) -> Option<Successor> {
        self.successor
    }

    /// Says something else of why it is not to be.
    pub fn explain(&mut self, why: String) {
        self.why = why;
    }

    /// Talks while everything goes on. Returns whether the barrier comes next; otherwise the two
    /// have to [part](Self::part).
    pub fn converse(&mut self, offers: &mut impl Offers) -> bool {
        loop {
            hold_point!("{}-gives {:?}", self.role, self.step);
            self.step = match self.step {
                GiverStep::Wait(time) => self.wait(time),
                GiverStep::Welcome => {
                    let speaks = self.successor.is_some_and(|it| it.conversation == CONVERSATION);
                    let offer = if speaks { offers.offer() } else { Err(OTHER.to_owned()) };
                    let said = offer.and_then(|it| self.send(Moment::Welcome, it));
                    self.did(said)
                }
                GiverStep::Lend => {
                    let lent = offers.lend();
                    let lent =
                        lent.and_then(|it| it.map_or(Ok(()), |it| self.send(Moment::Early, it)));
                    self.did(lent)
                }
                GiverStep::Copy => match offers.copy() {
                    Ok(Some(Extent { shared_bytes, worker_bytes, .. })) => {
                        let said = self.say(&Message::Ahead { shared_bytes, worker_bytes }, &[]);
                        self.did(said)
                    }
                    Ok(None) => self.giver.enough(),
                    Err(why) => self.did(Err(why)),
                },
                GiverStep::Freeze => return true,
                _ => return false,
            };
        }
    }

    /// The barrier, and everything after it. Players wait since the moment that is given. `None`
    /// where nobody has taken what was given: the role goes on, and then the two have to
    /// [part](Self::part).
    pub fn hand_over(&mut self, gives: &mut impl Gives, since_ns: u64) -> Option<Pause> {
        let clock = gives.clock();
        let mut lap = Lap { clock, since_ns };
        let (mut pause, mut given_ns) = (Pause::default(), None);
        loop {
            hold_point!("{}-gives {:?}", self.role, self.step);
            self.step = match self.step {
                GiverStep::Freeze => {
                    let rests = gives.freeze();
                    pause.rest_us = lap.us();
                    self.did(rests)
                }
                GiverStep::Give => {
                    let part = gives.write();
                    pause.write_us += lap.us();
                    let given = part.and_then(|Extent { shared_bytes, worker_bytes, is_whole }| {
                        if given_ns.is_none() {
                            self.send(Moment::Given, gives.give()?)?;
                        }
                        let is_last = is_whole;
                        self.say(&Message::Rest { shared_bytes, worker_bytes, is_last }, &[])?;
                        Ok(is_last)
                    });
                    pause.give_us += lap.us();
                    given_ns.get_or_insert_with(|| clock.now_ns());
                    match given {
                        Ok(false) => self.giver.more(),
                        given => self.did(given.map(drop)),
                    }
                }
                GiverStep::Wait(time) => {
                    // Players wait for all parts together.
                    let since_ns = given_ns.unwrap_or(lap.since_ns);
                    let waited = Duration::from_nanos(clock.now_ns() - since_ns);
                    let step = self.wait(time.min(TAKEN_WITHIN.saturating_sub(waited)));
                    pause.take_us += lap.us();
                    step
                }
                GiverStep::ShutDoor => self.giver.hear(if self.channel.shut_door() {
                    Ok(&Message::Taken)
                } else {
                    Err(Silence::Gone)
                }),
                GiverStep::TakeBack => {
                    let _ = self.channel.say(&Message::TakenBack, &[]);
                    self.giver.did(true)
                }
                GiverStep::Leave => {
                    pause.take_us += lap.us();
                    return Some(pause);
                }
                // What comes before the barrier is not asked for behind it.
                _ => return None,
            };
        }
    }

    /// Another process is the owner. What may be said to it later goes over this.
    pub fn leave(self) -> Channel {
        self.channel
    }

    /// It is not to be: says why, if anybody hears it, and returns that.
    pub fn part(mut self) -> String {
        if let Some(why) = self.recalled.get() {
            self.why.clone_from(why);
        }
        let _ = self.channel.say(&Message::refused(&self.why), &[]);
        if let Some(child) = &mut self.child {
            // It is not the owner, and would find that out by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.why
    }

    fn wait(&mut self, time: Duration) -> GiverStep {
        let heard = self.channel.hear(time);
        let message = heard.as_ref().map(|(message, _)| message).map_err(|why| *why);
        self.why = why_not(message);
        if let Ok(&Message::Hello { conversation, pid, trunks, leaving, sections, any, .. }) =
            message
        {
            let descriptors_max = if any { usize::MAX } else { DESCRIPTORS_BEFORE };
            let said = Successor { pid, trunks, leaving, conversation, sections, descriptors_max };
            self.successor = Some(said);
        }
        self.giver.hear(message)
    }

    /// Notes why something has not worked. What comes next.
    fn did(&mut self, outcome: Result<(), String>) -> GiverStep {
        let outcome = outcome.map_err(|why| self.why = why);
        self.giver.did(outcome.is_ok())
    }

    fn say(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        let said = self.channel.say(message, fds);
        said.map_err(|why| format!("the successor does not hear: {why}"))
    }

    fn send(&mut self, moment: Moment, envelope: Envelope) -> Result<(), String> {
        let sections = self.successor.is_some_and(|it| it.sections);
        let sealed = if sections {
            envelope.seal().map(|(memory, bytes, fds)| (vec![memory], bytes, fds))
        } else {
            envelope.seal_apart()
        };
        let (memories, bytes, fds) =
            sealed.map_err(|why| format!("cannot set memory aside: {why}"))?;
        let beside: Vec<_> = fds.iter().map(OwnedFd::as_fd).collect();
        let is_ahead = !sections && moment != Moment::Welcome;
        let (ahead, beside) = if is_ahead { (beside, Vec::new()) } else { (Vec::new(), beside) };
        self.successor.map_or(Ok(()), |it| it.check_hears(beside.len()))?;
        ahead.chunks(DESCRIPTORS_MAX).try_for_each(|some| self.say(&Message::Sockets, some))?;
        let with: Vec<_> = memories.iter().map(Writing::fd).chain(beside).collect();
        self.say(&Message::at(moment, bytes, sections), &with)?;
        self.kept.extend(memories);
        Ok(())
    }
}

/// What has come instead of what should have.
fn why_not(heard: Result<&Message, Silence>) -> String {
    match heard {
        Ok(Message::Refused { why }) => format!("the successor will not: {why}"),
        Err(Silence::Gone) => "the successor has ended; its log says why".to_owned(),
        Err(Silence::Late) => "the successor does not answer in time".to_owned(),
        _ => "what has connected is no successor".to_owned(),
    }
}

const OTHER: &str = "the successor speaks another version of the conversation";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_takes_a_number_of_descriptors_is_not_given_more() {
        let of = |descriptors_max| Successor {
            pid: 1,
            trunks: true,
            leaving: true,
            conversation: CONVERSATION,
            sections: true,
            descriptors_max,
        };
        assert_eq!(of(DESCRIPTORS_BEFORE).check_hears(16_444), Ok(()));
        let why = of(DESCRIPTORS_BEFORE).check_hears(16_445).expect_err("it would hear nonsense");
        assert!(why.contains("16445 sockets") && why.contains("restart"), "{why}");
        assert_eq!(of(usize::MAX).check_hears(1_000_000), Ok(()));
    }
}

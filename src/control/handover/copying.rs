//! What is said to a successor before the barrier, on a thread beside the control thread: it is
//! told what there is, lent the listeners' sockets, and reads what workers write ahead, round by
//! round, until what is left is little.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::sync::{mpsc, oneshot};

use super::super::http::Command;
use super::{Asked, Prepared, pass, say};
use ringgate_os::hold_point;
use ringgate_os::shared::Writing;
use ringgate_process::handover::message::CONVERSATION;
use ringgate_process::handover::{Channel, Giver, GiverStep, Heard, Message};
use ringgate_worker::Scribe;
use ringgate_worker::handover::Early;

/// What is told and lent.
pub(super) struct Offer {
    pub(super) facts: Writing,
    pub(super) facts_bytes: usize,
    /// What the successor compares itself with.
    pub(super) layout: Vec<u8>,
    pub(super) layout_memory: Writing,
    /// Listeners that drain, by name.
    pub(super) draining: Vec<String>,
    pub(super) shared: Writing,
    pub(super) workers: Vec<Writing>,
    pub(super) early: Option<Writing>,
    pub(super) given: Option<[Writing; 2]>,
    /// Where operators come in, and the next successor.
    pub(super) doors: Vec<OwnedFd>,
    pub(super) scribe: Scribe,
}

/// Talks to a successor until it has read enough, or will not. What the control thread does next.
pub(super) fn converse(
    channel: Channel,
    mut offer: Offer,
    asked: Asked,
    commands: &mpsc::Sender<Command>,
) -> Command {
    let (mut giver, mut step) = Giver::new();
    let mut why = String::new();
    let mut hello = None;
    // What drains is handed over since the release after the first.
    let mut takes_leaving = false;
    loop {
        hold_point!("gateway-gives {step:?}");
        step = match step {
            GiverStep::Wait(time) => {
                let (heard, packet) = channel.hear(time);
                let message = packet.map(|(message, _)| message);
                note_heard(&mut why, heard, message.as_ref());
                if let Some(Message::Hello { conversation, pid, trunks, leaving, .. }) = message {
                    hello = Some((conversation, pid, trunks));
                    takes_leaving = leaving;
                }
                giver.hear(heard)
            }
            GiverStep::Welcome => {
                let speaks = hello.is_some_and(|(conversation, ..)| conversation == CONVERSATION);
                let welcomed = if speaks { offer.show(&channel) } else { Err(OTHER.to_owned()) };
                giver.did(note(&mut why, welcomed))
            }
            GiverStep::Lend => {
                let lent = hold_still(commands, &offer.layout);
                let lent = lent.and_then(|early| offer.lend(&channel, early));
                giver.did(note(&mut why, lent))
            }
            GiverStep::Copy => match offer.copy(&channel) {
                Ok(true) => giver.did(true),
                Ok(false) => giver.enough(),
                Err(new) => {
                    why = new;
                    giver.did(false)
                }
            },
            GiverStep::Freeze => {
                let (_, pid, takes_trunks) = hello.unwrap_or_default();
                let prepared = Prepared { channel, giver, offer, asked, pid, takes_trunks };
                return Command::HandOver(Box::new(prepared));
            }
            _ => {
                if hello.is_some() && !takes_leaving && !offer.draining.is_empty() {
                    why = earlier_than_drains(&offer.draining);
                }
                let _ = channel.say(&Message::refused(&why), &[]);
                asked.fail(&why);
                return Command::HandOverEnded;
            }
        };
    }
}

/// Why an earlier release has not taken over: it asks for what a reload has done already.
fn earlier_than_drains(listeners: &[String]) -> String {
    format!(
        "the successor is of an earlier release, which does not go on with what drains (listener {}): try again when that has \
         gone, or put it back",
        listeners.join(", ")
    )
}

/// Has the control thread hold still.
fn hold_still(commands: &mpsc::Sender<Command>, layout: &[u8]) -> Result<Early, String> {
    let (reply, answer) = oneshot::channel();
    let command = Command::HoldStill { layout: layout.to_vec(), reply };
    let ends = || "the gateway ends".to_owned();
    commands.blocking_send(command).map_err(|_| ends())?;
    answer.blocking_recv().map_err(|_| ends())?
}

impl Offer {
    /// Says welcome, with everything that there is by then.
    fn show(&self, channel: &Channel) -> Result<(), String> {
        let memories = [&self.facts, &self.layout_memory, &self.shared];
        let memories = memories.into_iter().chain(&self.workers).map(Writing::fd);
        let fds: Vec<_> = memories.chain(self.doors.iter().map(AsFd::as_fd)).collect();
        say(channel, &Message::Welcome { facts_bytes: self.facts_bytes as u64 }, &fds)
    }

    /// Passes the listeners' sockets on, and what does not change any more.
    fn lend(&mut self, channel: &Channel, early: Early) -> Result<(), String> {
        let sockets = self.scribe.lend()?;
        pass(channel, sockets.iter().map(|(_, fd)| fd))?;
        let early = Early { sockets: sockets.iter().map(|(row, _)| *row).collect(), ..early };
        let early = serde_json::to_vec(&early).expect("no maps with other keys than strings");
        let memory = filled(&early).map_err(|why| format!("cannot set memory aside: {why}"))?;
        say(channel, &Message::Early { early_bytes: early.len() as u64 }, &[memory.fd()])?;
        // The successor reads it when it comes to it, and it would be wiped.
        self.early = Some(memory);
        Ok(())
    }

    /// Has the next part written, and says so. False where enough was.
    fn copy(&mut self, channel: &Channel) -> Result<bool, String> {
        let Self { scribe, shared, workers, .. } = self;
        let Some((shared_bytes, worker_bytes)) = scribe.write(shared, workers)? else {
            return Ok(false);
        };
        say(channel, &Message::Ahead { shared_bytes, worker_bytes }, &[])?;
        Ok(true)
    }
}

/// Notes why something has not worked. Returns whether it has.
pub(super) fn note(why: &mut String, outcome: Result<(), String>) -> bool {
    let outcome = outcome.map_err(|new| *why = new);
    outcome.is_ok()
}

/// Notes what has come instead of what should have.
pub(in crate::control) fn note_heard(why: &mut String, heard: Heard, message: Option<&Message>) {
    *why = match (heard, message) {
        (_, Some(Message::Refused { why })) => format!("the successor will not: {why}"),
        (Heard::Gone, _) => "the successor has ended; its log says why".to_owned(),
        (Heard::Late, _) => "the successor does not answer in time".to_owned(),
        _ => "what has connected is no successor".to_owned(),
    };
}

pub(in crate::control) fn filled(bytes: &[u8]) -> io::Result<Writing> {
    let mut memory = Writing::new(bytes.len())?;
    memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Ok(memory)
}

const OTHER: &str = "the successor speaks another version of the conversation";

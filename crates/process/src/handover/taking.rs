//! The successor's end of the conversation: what is said at each step, whatever the role.

use std::os::fd::OwnedFd;

use ringgate_os::hold_point;

use super::channel::{Channel, Packet, why_not};
use super::envelope::{Bytes, Envelope};
use super::extent::Extent;
use super::memory;
use super::message::{Message, Moment};
use super::steps::{Taker, TakerStep};

/// What a role makes of what it is given.
pub trait Takes {
    /// What it takes over: "gateway", or "agent".
    const ROLE: &'static str;

    /// Makes everything that can be made before anything is given.
    fn prepare(&mut self, offered: &mut Envelope) -> Result<(), String>;

    /// Takes in what was written ahead; the first time with what was lent, if anything was.
    fn read(&mut self, lent: Option<&mut Envelope>, ahead: &Extent) -> Result<(), String>;

    /// Takes in a part of the rest: players wait. The first time with what is given besides.
    fn read_rest(&mut self, given: Option<&mut Envelope>, rest: &Extent) -> Result<(), String>;

    /// Makes everything that has only to run.
    fn finish(&mut self) -> Result<(), String>;

    /// Finds the sections in what a release before them has given: what it says, what came beside
    /// that, and sockets.
    fn sort(&self, moment: Moment, before: Before) -> Result<Envelope, String>;
}

/// What a release before sections gives at one moment.
pub struct Before {
    /// What it says.
    pub bytes: Bytes,
    /// What came beside that.
    pub beside: Vec<OwnedFd>,
    /// What came in front of it.
    pub sockets: Vec<OwnedFd>,
}

/// What becomes of a successor that may run.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is the owner. These sections of a later release were passed over.
    Serve(Vec<String>),
    /// The other process has ended and has given nothing.
    StartAfresh,
}

/// Talks to the process that runs. An error says why it is not to be, and nothing was touched then.
pub fn take_over<T: Takes>(channel: &Channel, takes: &mut T) -> Result<Taken, String> {
    let (mut taker, mut step) = Taker::new();
    let (mut arrived, mut passed_over) = (Arrived::default(), Vec::new());
    let mut why = String::new();
    let say = |message: &Message| channel.say(message, &[]).map_err(|why| why.to_string());
    loop {
        hold_point!("{}-takes {step:?}", T::ROLE);
        let done = match step {
            TakerStep::Wait(time) => {
                let heard = channel.hear(time);
                let message = heard.as_ref().map(|(message, _)| message).map_err(|why| *why);
                why = why_not(message, T::ROLE);
                step = taker.hear(message);
                if let Ok(packet) = heard {
                    arrived.keep(packet);
                }
                continue;
            }
            TakerStep::Hello => say(&Message::hello()),
            TakerStep::SayPrepared => say(&Message::Prepared),
            TakerStep::SayRead => say(&Message::Read),
            TakerStep::Take => say(&Message::Taken),
            TakerStep::Prepare => {
                arrived.open(Moment::Welcome, takes, &mut passed_over, |takes, offered, _| {
                    takes.prepare(offered.ok_or(TOO_LITTLE)?)
                })
            }
            TakerStep::Read => arrived.open(Moment::Early, takes, &mut passed_over, T::read),
            TakerStep::ReadRest => {
                arrived.open(Moment::Given, takes, &mut passed_over, T::read_rest)
            }
            TakerStep::Import => {
                let read = arrived.open(Moment::Given, takes, &mut passed_over, T::read_rest);
                read.and_then(|()| takes.finish())
            }
            TakerStep::Serve => {
                if !passed_over.is_empty() {
                    let sections = passed_over.join(" ");
                    let count = passed_over.len();
                    tracing::warn!(
                        event = "sections_passed_over",
                        count,
                        sections,
                        "what the {} had of a later release is passed over: {sections}",
                        T::ROLE
                    );
                }
                return Ok(Taken::Serve(passed_over));
            }
            TakerStep::StartAfresh => return Ok(Taken::StartAfresh),
            TakerStep::Exit => {
                let _ = channel.say(&Message::refused(&why), &[]);
                return Err(why);
            }
        };
        let done = done.map_err(|new| why = new);
        step = taker.did(done.is_ok());
    }
}

/// What has come and was not read yet.
#[derive(Default)]
struct Arrived {
    has_sections: bool,
    sockets: Vec<OwnedFd>,
    letter: Option<Letter>,
    written: Extent,
}

/// The memory of an envelope, as long as it says, and what came with that.
struct Letter {
    moment: Moment,
    bytes: u64,
    fds: Vec<OwnedFd>,
    sockets: Vec<OwnedFd>,
}

impl Arrived {
    fn keep(&mut self, (message, fds): Packet) {
        let (moment, bytes) = match message {
            Message::Welcome { facts_bytes, sections } => {
                self.has_sections = sections;
                (Moment::Welcome, facts_bytes)
            }
            Message::Early { early_bytes } => (Moment::Early, early_bytes),
            Message::Given { given_bytes } => (Moment::Given, given_bytes),
            Message::Sockets => return self.sockets.extend(fds),
            Message::Ahead { shared_bytes, worker_bytes } => {
                self.written = Extent { shared_bytes, worker_bytes, is_whole: true };
                return;
            }
            Message::Rest { shared_bytes, worker_bytes, is_last } => {
                self.written = Extent { shared_bytes, worker_bytes, is_whole: is_last };
                return;
            }
            _ => return,
        };
        let sockets = std::mem::take(&mut self.sockets);
        self.letter = Some(Letter { moment, bytes, fds, sockets });
    }

    /// Has `read` take out what was given at a moment, if it was not before.
    fn open<T: Takes>(
        &mut self,
        moment: Moment,
        takes: &mut T,
        passed_over: &mut Vec<String>,
        read: impl FnOnce(&mut T, Option<&mut Envelope>, &Extent) -> Result<(), String>,
    ) -> Result<(), String> {
        let letter = self.letter.take_if(|letter| letter.moment == moment);
        let mut envelope = letter.map(|letter| self.unseal(takes, letter)).transpose()?;
        read(takes, envelope.as_mut(), &self.written)?;
        passed_over.extend(envelope.unwrap_or_default().end()?);
        Ok(())
    }

    fn unseal<T: Takes>(&self, takes: &T, letter: Letter) -> Result<Envelope, String> {
        let Letter { moment, bytes, fds, sockets } = letter;
        let mut fds = fds.into_iter();
        let bytes = memory::read(&fds.next().ok_or(TOO_LITTLE)?, bytes)?;
        let beside = fds.collect();
        if self.has_sections {
            Envelope::open(&bytes, beside)
        } else {
            takes.sort(moment, Before { bytes, beside, sockets })
        }
    }
}

const TOO_LITTLE: &str = "the process that runs has given too little";

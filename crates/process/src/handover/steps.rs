//! Who owns the gateway at each step of a hand-over: both sides as machines without sockets and
//! clocks, so that every death at every step can be played through.
//!
//! The owner is who may run the workers. It changes at one moment: when the successor's `Taken` is
//! in the predecessor's queue. The kernel makes that one act. Before the predecessor resumes it
//! shuts the door, after which no `Taken` gets in; and before it resumes it says `TakenBack`, so a
//! successor whose `Taken` was refused knows whether its predecessor goes on (`TakenBack`) or has
//! died with the workers frozen (the end of what it said): then nobody else has the players, and
//! the successor has all of them.

use std::time::Duration;

use super::message::Message;

/// Why no message has come from the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// What came is no message.
    Nonsense,
    /// Nothing more will come: the other process has closed its end, or died.
    Gone,
    /// Nothing has come in time.
    Late,
}

/// What the predecessor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiverStep {
    /// Wait for a message so long, and tell [`Giver::hear`].
    Wait(Duration),
    /// Look at the first word, send the facts, and tell [`Giver::did`].
    Welcome,
    /// Send what does not change any more, and tell.
    Lend,
    /// Have a part of the state written ahead, send that, and tell; where the rest is little, tell
    /// [`Giver::enough`] instead.
    Copy,
    /// Stop all workers at the barrier, and tell.
    Freeze,
    /// Send the next part of the rest, and tell; where more is left, tell [`Giver::more`] instead.
    Give,
    /// Let no message in any more, and tell [`Giver::hear`] whether a `Taken` was in.
    ShutDoor,
    /// Say so, if anybody hears it, and tell.
    TakeBack,
    /// It goes on. The end.
    Resume,
    /// The gateway is another process's now. The end.
    Leave,
    /// It was never frozen; say why, if anybody hears it. The end.
    Part,
}

/// The predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Giver {
    at: GiverAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GiverAt {
    Greeting,
    Welcoming,
    Preparing,
    Lending,
    Copying,
    Copied,
    Freezing,
    Giving,
    PartGiven,
    Given,
    Shutting,
    TakingBack,
    Over,
}

impl Giver {
    /// Somebody has connected.
    pub const fn new() -> (Self, GiverStep) {
        (Self { at: GiverAt::Greeting }, GiverStep::Wait(HELLO_WITHIN))
    }

    const fn go(&mut self, at: GiverAt, step: GiverStep) -> GiverStep {
        self.at = at;
        step
    }

    /// What has come of a wait or of a door that was shut.
    pub const fn hear(&mut self, heard: Result<&Message, Silence>) -> GiverStep {
        match (self.at, heard) {
            (GiverAt::Greeting, Ok(Message::Hello { .. })) => {
                self.go(GiverAt::Welcoming, GiverStep::Welcome)
            }
            (GiverAt::Preparing, Ok(Message::Prepared)) => {
                self.go(GiverAt::Lending, GiverStep::Lend)
            }
            (GiverAt::Copied, Ok(Message::Read)) => self.go(GiverAt::Copying, GiverStep::Copy),
            (GiverAt::PartGiven, Ok(Message::Read)) => self.go(GiverAt::Giving, GiverStep::Give),
            (GiverAt::Given | GiverAt::Shutting, Ok(Message::Taken)) => {
                self.go(GiverAt::Over, GiverStep::Leave)
            }
            // It may be too late for that, so the door decides.
            (GiverAt::Given, _) => self.go(GiverAt::Shutting, GiverStep::ShutDoor),
            // Nobody can take what was given in part.
            (GiverAt::Shutting | GiverAt::PartGiven, _) => {
                self.go(GiverAt::TakingBack, GiverStep::TakeBack)
            }
            _ => self.go(GiverAt::Over, GiverStep::Part),
        }
    }

    /// Whether what it was told to do has worked.
    pub const fn did(&mut self, well: bool) -> GiverStep {
        match (self.at, well) {
            (GiverAt::Welcoming, true) => {
                self.go(GiverAt::Preparing, GiverStep::Wait(PREPARED_WITHIN))
            }
            (GiverAt::Lending, true) => self.go(GiverAt::Copying, GiverStep::Copy),
            (GiverAt::Copying, true) => self.go(GiverAt::Copied, GiverStep::Wait(READ_WITHIN)),
            (GiverAt::Freezing, true) => self.go(GiverAt::Giving, GiverStep::Give),
            (GiverAt::Giving, true) => self.go(GiverAt::Given, GiverStep::Wait(TAKEN_WITHIN)),
            // What the successor has of it may be all of it.
            (GiverAt::Giving, false) => self.go(GiverAt::Shutting, GiverStep::ShutDoor),
            (GiverAt::Freezing, false) | (GiverAt::TakingBack, _) => {
                self.go(GiverAt::Over, GiverStep::Resume)
            }
            _ => self.go(GiverAt::Over, GiverStep::Part),
        }
    }

    /// A part of the rest was sent, and there is more.
    pub const fn more(&mut self) -> GiverStep {
        match self.at {
            GiverAt::Giving => self.go(GiverAt::PartGiven, GiverStep::Wait(TAKEN_WITHIN)),
            _ => self.go(GiverAt::Over, GiverStep::Part),
        }
    }

    /// Enough was written ahead.
    pub const fn enough(&mut self) -> GiverStep {
        match self.at {
            GiverAt::Copying => self.go(GiverAt::Freezing, GiverStep::Freeze),
            _ => self.go(GiverAt::Over, GiverStep::Part),
        }
    }
}

/// What the successor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakerStep {
    /// Wait for a message so long, and tell [`Taker::hear`].
    Wait(Duration),
    /// Say the first word, and tell [`Taker::did`].
    Hello,
    /// Make everything that can be made before, and tell.
    Prepare,
    /// Say so, and tell.
    SayPrepared,
    /// Take in what was written ahead, and tell.
    Read,
    /// The same for a part of the rest: players wait.
    ReadRest,
    /// Say so, and tell.
    SayRead,
    /// Take in the last part, build the workers, without running them, and tell.
    Import,
    /// Say `Taken`, and tell whether it got in.
    Take,
    /// Run the workers. The end.
    Serve,
    /// The predecessor has ended and had given nothing: start without it. The end.
    StartAfresh,
    /// Say why, if anybody hears it, and exit without having touched anything. The end.
    Exit,
}

/// The successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taker {
    at: TakerAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakerAt {
    Greeting,
    Asked,
    Preparing,
    Prepared,
    Receiving,
    Reading,
    HasRead,
    Importing,
    Taking,
    Refused,
    Over,
}

impl Taker {
    /// It is connected.
    pub const fn new() -> (Self, TakerStep) {
        (Self { at: TakerAt::Greeting }, TakerStep::Hello)
    }

    const fn go(&mut self, at: TakerAt, step: TakerStep) -> TakerStep {
        self.at = at;
        step
    }

    /// What has come of a wait.
    pub const fn hear(&mut self, heard: Result<&Message, Silence>) -> TakerStep {
        match (self.at, heard) {
            (TakerAt::Asked, Ok(Message::Welcome { .. })) => {
                self.go(TakerAt::Preparing, TakerStep::Prepare)
            }
            (
                TakerAt::Receiving,
                Ok(Message::Sockets | Message::Early { .. } | Message::Given { .. }),
            ) => self.go(TakerAt::Receiving, TakerStep::Wait(GIVEN_WITHIN)),
            (TakerAt::Receiving, Ok(Message::Ahead { .. })) => {
                self.go(TakerAt::Reading, TakerStep::Read)
            }
            (TakerAt::Receiving, Ok(Message::Rest { is_last: false, .. })) => {
                self.go(TakerAt::Reading, TakerStep::ReadRest)
            }
            (TakerAt::Receiving, Ok(Message::Rest { is_last: true, .. })) => {
                self.go(TakerAt::Importing, TakerStep::Import)
            }
            // It has died, with everything frozen and given.
            (TakerAt::Refused, Err(Silence::Gone)) => self.go(TakerAt::Over, TakerStep::Serve),
            // It has died before.
            (TakerAt::Asked | TakerAt::Receiving, Err(Silence::Gone)) => {
                self.go(TakerAt::Over, TakerStep::StartAfresh)
            }
            _ => self.go(TakerAt::Over, TakerStep::Exit),
        }
    }

    /// Whether what it was told to do has worked.
    pub const fn did(&mut self, well: bool) -> TakerStep {
        match (self.at, well) {
            // Where it could not be said, nobody may be there to hear it.
            (TakerAt::Greeting, _) => self.go(TakerAt::Asked, TakerStep::Wait(WELCOME_WITHIN)),
            (TakerAt::Preparing, true) => self.go(TakerAt::Prepared, TakerStep::SayPrepared),
            (TakerAt::Reading, true) => self.go(TakerAt::HasRead, TakerStep::SayRead),
            (TakerAt::Prepared | TakerAt::HasRead, _) => {
                self.go(TakerAt::Receiving, TakerStep::Wait(GIVEN_WITHIN))
            }
            (TakerAt::Importing, true) => self.go(TakerAt::Taking, TakerStep::Take),
            (TakerAt::Taking, true) => self.go(TakerAt::Over, TakerStep::Serve),
            (TakerAt::Taking, false) => {
                self.go(TakerAt::Refused, TakerStep::Wait(TAKEN_BACK_WITHIN))
            }
            _ => self.go(TakerAt::Over, TakerStep::Exit),
        }
    }
}

/// A successor says hello as soon as it is connected.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// The predecessor's control thread may be at something else.
const WELCOME_WITHIN: Duration = Duration::from_secs(5);

/// Reads its config and makes its drivers; nobody waits for it.
const PREPARED_WITHIN: Duration = Duration::from_mins(1);

/// Makes its control plane, and reads. A loaded host leaves it little time, and nobody waits.
const READ_WITHIN: Duration = Duration::from_mins(1);

/// A part that is written ahead, or the barrier and the writing of what has changed; the
/// predecessor gives up on it before.
const GIVEN_WITHIN: Duration = Duration::from_secs(20);

/// Players wait for this, all parts of the rest included. It is less than what clients bear in
/// silence.
pub const TAKEN_WITHIN: Duration = Duration::from_secs(3);

/// It is said at once after the door was shut.
const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;

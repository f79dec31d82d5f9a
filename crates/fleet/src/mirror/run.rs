//! Does what a mirror's machine asks for: sockets and clocks, and no decision.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::face::Ask;
use super::machine::Machine;
use super::truth::{Change, Truth};
use crate::clocks::{self, Clocks};
use crate::etcd::client::Watch;
use crate::etcd::kv::{Range, Ranged, end_of_prefix};
use crate::etcd::watch::Watched;
use crate::etcd::{Client, Error};

/// What is said to a mirror.
#[derive(Debug)]
pub enum Command {
    /// An operator wants the doubt with this number to be believed.
    Confirm(u64),
    /// Somebody wants to know all that is known.
    Tell(oneshot::Sender<Truth>),
}

/// Keeps a mirror true until `commands` is closed. `see` is shown the mirror whenever it may have
/// become otherwise, with what has changed.
pub async fn run(
    machine: Machine,
    client: Client,
    commands: mpsc::Receiver<Command>,
    see: impl FnMut(&Machine, Vec<Change>) + Send,
) -> Machine {
    run_by(clocks::of_host(), machine, client, commands, see).await
}

/// The same by these clocks.
pub async fn run_by(
    clock: Arc<dyn Clocks>,
    mut machine: Machine,
    client: Client,
    mut commands: mpsc::Receiver<Command>,
    mut see: impl FnMut(&Machine, Vec<Change>) + Send,
) -> Machine {
    let mut shell = Shell { client, clock, question: None, watch: None, generation: 0 };
    let mut seen = None;
    loop {
        while let Some(ask) = machine.poll(shell.now_ms()) {
            shell.handle(&machine, ask).await;
        }
        let (changes, status) = (machine.take_changes(), machine.status());
        if !changes.is_empty() || seen.as_ref() != Some(status) {
            seen = Some(status.clone());
            see(&machine, changes);
        }
        let wait_ms = machine.next_ms().saturating_sub(shell.now_ms()).min(WAIT_MS_MAX);
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(Command::Confirm(number)) => {
                    machine.confirm(shell.now_ms(), number);
                }
                // Who has gone meanwhile does not want to know it any more.
                Some(Command::Tell(reply)) => drop(reply.send(machine.truth().clone())),
                None => return machine,
            },
            came = shell.next_input() => shell.hand_in(&mut machine, came),
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
        }
    }
}

struct Shell {
    client: Client,
    clock: Arc<dyn Clocks>,
    question: Option<(u64, Asking<Ranged>)>,
    /// The watch that runs, or that is about to.
    watch: Option<(u64, Watching)>,
    /// Which connection the last watch was on.
    generation: u64,
}

enum Watching {
    Opening(Asking<Watch>),
    Open(Watch),
}

type Asking<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

enum Input {
    Ranged(u64, Result<Ranged, Error>),
    Opened(u64, Result<Watch, Error>),
    Watched(u64, Result<Watched, Error>),
}

impl Shell {
    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    async fn handle(&mut self, machine: &Machine, ask: Ask) {
        match ask {
            Ask::Range { question, range } => {
                self.question = Some((question, Box::pin(ranged(self.client.clone(), range))));
            }
            Ask::Watch { stream, from_revision } => {
                let (client, prefix) = (self.client.clone(), machine.prefix().clone());
                let opening = async move {
                    client.watch(&prefix, &end_of_prefix(&prefix), from_revision).await
                };
                self.watch = Some((stream, Watching::Opening(Box::pin(opening))));
            }
            Ask::Progress => {
                if let Some((_, Watching::Open(watch))) = &self.watch {
                    watch.ask_progress();
                }
            }
            Ask::CloseWatch => self.watch = None,
            Ask::LeaveMember => self.client.leave_member(self.generation).await,
        }
    }

    /// What comes first. May be dropped while it waits.
    async fn next_input(&mut self) -> Input {
        let answered = async {
            match &mut self.question {
                Some((number, asking)) => Input::Ranged(*number, asking.await),
                None => pending().await,
            }
        };
        let watched = async {
            match &mut self.watch {
                Some((stream, Watching::Opening(opening))) => Input::Opened(*stream, opening.await),
                Some((stream, Watching::Open(watch))) => {
                    Input::Watched(*stream, watch.next_answer().await)
                }
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            input = answered => input,
            input = watched => input,
        }
    }

    fn hand_in(&mut self, machine: &mut Machine, input: Input) {
        let now_ms = self.now_ms();
        match input {
            Input::Ranged(question, answer) => {
                self.question = None;
                machine.handle_ranged(now_ms, question, answer);
            }
            Input::Opened(stream, Ok(watch)) => {
                self.generation = watch.generation();
                self.watch = Some((stream, Watching::Open(watch)));
            }
            Input::Watched(stream, Ok(watched)) => machine.handle_watched(now_ms, stream, watched),
            Input::Opened(stream, Err(why)) | Input::Watched(stream, Err(why)) => {
                self.watch = None;
                machine.handle_watch_end(now_ms, stream, &why);
            }
        }
    }
}

async fn ranged(client: Client, range: Range) -> Result<Ranged, Error> {
    client.range(&range).await
}

/// A machine that waits for an answer only has no time of its own.
const WAIT_MS_MAX: u64 = 60_000;

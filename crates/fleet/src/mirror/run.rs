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
    let mut shell =
        Shell { client, clock, question: None, watch: None, generation: 0, leaving: None };
    let mut seen = None;
    loop {
        while let Some(ask) = machine.poll(shell.now_ms()) {
            shell.handle(&machine, ask);
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
    /// A member is being left. That waits for a question that is just connecting, so both are
    /// waited for side by side.
    leaving: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

enum Watching {
    Opening(Asking<Watch>),
    Open(Watch),
}

type Asking<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

enum Input {
    Left,
    Ranged(u64, Result<Ranged, Error>),
    Opened(u64, Result<Watch, Error>),
    Watched(u64, Result<Watched, Error>),
}

impl Shell {
    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn handle(&mut self, machine: &Machine, ask: Ask) {
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
            Ask::LeaveMember => {
                let (client, generation) = (self.client.clone(), self.generation);
                let leaving = async move { client.leave_member(generation).await };
                self.leaving = Some(Box::pin(leaving));
            }
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
        let left = async {
            match &mut self.leaving {
                Some(leaving) => leaving.await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = left => Input::Left,
            input = answered => input,
            input = watched => input,
        }
    }

    fn hand_in(&mut self, machine: &mut Machine, input: Input) {
        let now_ms = self.now_ms();
        match input {
            Input::Left => self.leaving = None,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;

    use super::*;
    use crate::etcd::kv::Header;
    use crate::etcd::line::{Asked, Call, Conversation, Dial, Line};
    use crate::etcd::wire::Writer;
    use crate::etcd::{Endpoint, Options};
    use crate::mirror::{Options as MirrorOptions, Reads};

    /// A member whose first connection serves until it breaks. Others are never made.
    #[derive(Clone, Debug, Default)]
    struct Member {
        has_dialled: Arc<AtomicBool>,
        is_broken: Arc<AtomicBool>,
        dials_again: Arc<tokio::sync::Notify>,
    }

    impl Dial for Member {
        fn dial<'a>(&'a self, _: &'a Endpoint, _: Duration) -> Asked<'a, Arc<dyn Line>> {
            Box::pin(async {
                if self.has_dialled.swap(true, Ordering::Relaxed) {
                    self.dials_again.notify_one();
                    pending::<()>().await;
                }
                Ok(Arc::new(self.clone()) as Arc<dyn Line>)
            })
        }
    }

    fn answer(write: impl FnOnce(&mut Writer)) -> Bytes {
        let mut writer = Writer::new();
        let header = Header { cluster_id: 7, member_id: 1, revision: 3, raft_term: 2 };
        writer.message(1, |it| header.encode(it));
        write(&mut writer);
        writer.into_bytes().into()
    }

    impl Line for Member {
        fn is_closed(&self) -> bool {
            self.is_broken.load(Ordering::Relaxed)
        }

        /// Nothing stands there.
        fn call<'a>(&'a self, _: Call<'a>) -> Asked<'a, Bytes> {
            Box::pin(async { Ok(answer(|_| ())) })
        }

        fn open<'a>(&'a self, _: Call<'a>) -> Asked<'a, Box<dyn Conversation>> {
            let stream = Stream { member: self.clone(), has_begun: false };
            Box::pin(async { Ok(Box::new(stream) as Box<dyn Conversation>) })
        }
    }

    #[derive(Debug)]
    struct Stream {
        member: Member,
        has_begun: bool,
    }

    impl Conversation for Stream {
        /// The watch begins, and ends while another connection is being made.
        fn next_message(&mut self) -> Asked<'_, Bytes> {
            Box::pin(async {
                if !std::mem::replace(&mut self.has_begun, true) {
                    self.member.is_broken.store(true, Ordering::Relaxed);
                    return Ok(answer(|it| it.boolean(3, true)));
                }
                self.member.dials_again.notified().await;
                Err(Error::Transport("reset".into()))
            })
        }

        fn say(&self, _: &[u8]) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_member_is_left_while_another_connection_is_being_made() {
        let endpoint = Endpoint::parse("http://etcd:2379").unwrap();
        let member = Member::default();
        let client = Client::over(Arc::new(member.clone()), Options::new(vec![endpoint])).unwrap();
        let options = MirrorOptions::new("/f/", Reads::default(), 1);
        let options = MirrorOptions { check_every_ms: 1, ..options };
        let (orders, ordered) = mpsc::channel(1);
        let (see, mut seen) = mpsc::unbounded_channel();
        let tell = move |machine: &Machine, _| drop(see.send(machine.status().clone()));
        let machine = Machine::new(options, Truth::default());
        let mirror = tokio::spawn(run(machine, client, ordered, tell));
        let gives_up = async {
            while let Some(status) = seen.recv().await {
                if status.last_error.is_some_and(|why| why.contains("reset")) {
                    return;
                }
            }
        };
        // It goes on to be told things.
        let goes_on = tokio::time::timeout(Duration::from_secs(20), gives_up).await;
        assert!(goes_on.is_ok(), "the mirror waits for what it does itself");
        drop(orders);
        assert!(!mirror.await.unwrap().status().is_current);
    }
}

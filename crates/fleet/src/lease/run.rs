//! Does what a registration's machine asks for: sockets and clocks, and no decision.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::machine::{Ask, Registration};
use crate::clocks::{self, Clocks};
use crate::etcd::lease::Lease;
use crate::etcd::txn::Decided;
use crate::etcd::{Client, Error};

/// What the process says to its registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// This key shall have this value.
    Set(Bytes, Bytes),
    /// This key shall go.
    Remove(Bytes),
    /// This key shall have this value, and then go.
    Retire(Bytes, Bytes),
    /// Somebody has seen that this key is not there, or not ours.
    Doubt(Bytes),
    /// Everything shall go, and the registration ends.
    Stop,
}

/// Keeps keys registered until told to stop: then until all of them are gone. Where `commands` is
/// closed instead, the lease is left as it is, and what comes back can be handed to a successor.
pub async fn run(
    registration: Registration,
    client: Client,
    commands: mpsc::Receiver<Command>,
    see: impl FnMut(u64, &Registration) + Send,
) -> Registration {
    run_by(clocks::of_host(), registration, client, commands, see).await
}

/// The same by these clocks, so that what comes back can be run again.
pub async fn run_by(
    clock: Arc<dyn Clocks>,
    mut registration: Registration,
    client: Client,
    mut commands: mpsc::Receiver<Command>,
    mut see: impl FnMut(u64, &Registration) + Send,
) -> Registration {
    let now_ms = || clock.now_ms();
    let mut asking: Option<(u64, Asking)> = None;
    let mut is_closed = false;
    while !registration.has_stopped() {
        if let Some((question, ask)) = registration.poll(now_ms()) {
            asking = Some((question, Box::pin(answer(client.clone(), ask))));
        }
        see(now_ms(), &registration);
        let wait_ms = registration.next_ms().saturating_sub(now_ms()).min(WAIT_MS_MAX);
        let answered = async {
            match &mut asking {
                Some((question, asking)) => (*question, asking.await),
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            command = commands.recv(), if !is_closed => match command {
                Some(command) => obey(&mut registration, command),
                None if registration.is_stopping() => is_closed = true,
                None => break,
            },
            (question, answer) = answered => {
                asking = None;
                hear(&mut registration, now_ms(), question, answer);
            }
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
        }
    }
    // What is asked now must not be done behind the back of whoever goes on.
    if let Some((question, asking)) = asking {
        match tokio::time::timeout(LAST_ANSWER, asking).await {
            Ok(answer) => hear(&mut registration, now_ms(), question, answer),
            Err(_) => registration.give_up(),
        }
    }
    registration
}

fn hear(registration: &mut Registration, now_ms: u64, question: u64, answer: Answer) {
    match answer {
        Answer::Lease(lease) => registration.handle_lease(now_ms, question, lease),
        Answer::Decided(decided) => registration.handle_decided(now_ms, question, decided),
    }
}

/// Tells it.
pub fn obey(registration: &mut Registration, command: Command) {
    match command {
        Command::Set(key, value) => registration.set(key, value),
        Command::Remove(key) => registration.remove(&key),
        Command::Retire(key, value) => registration.retire(&key, value),
        Command::Doubt(key) => registration.doubt(&key),
        Command::Stop => registration.stop(),
    }
}

enum Answer {
    Lease(Result<Lease, Error>),
    Decided(Result<Decided, Error>),
}

type Asking = Pin<Box<dyn Future<Output = Answer> + Send>>;

async fn answer(client: Client, ask: Ask) -> Answer {
    match ask {
        Ask::Grant(ttl_s) => Answer::Lease(client.grant(ttl_s).await),
        Ask::KeepAlive(id) => Answer::Lease(client.keep_alive(id).await),
        Ask::Revoke(id) => Answer::Lease(client.revoke(id).await.map(|()| Lease { id, ttl_s: 0 })),
        Ask::Decide(txn) => Answer::Decided(client.txn(&txn).await),
    }
}

const WAIT_MS_MAX: u64 = 60_000;

/// Etcd that is there answers sooner.
const LAST_ANSWER: Duration = Duration::from_millis(500);

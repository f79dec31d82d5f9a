//! The announce socket: who may come in, and what is said there. Hostile processes of a user that
//! may come in can announce backends of their own, and nothing else: each message is bounded, each
//! connection has one name, and there are few more connections than backends.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringgate_gate::{Allowed, Credentials};
use ringgate_link::announce::{ANNOUNCE_BYTES_MAX, Announced, Standing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Book, Refusal};

/// The listening socket, and who may connect.
#[derive(Debug)]
pub struct Door {
    /// The socket, which keeps messages apart.
    pub socket: OwnedFd,
    /// Whose processes may be backends of the fleet.
    pub allowed: Allowed,
}

/// Serves until it is dropped. `news` counts whenever a standing has changed.
pub(crate) async fn serve(door: Door, book: Arc<Mutex<Book>>, news: watch::Receiver<u64>) {
    serve_within(door, book, news, SPEAKS_WITHIN).await;
}

/// The same. Whoever says nothing within that time is hung up on.
async fn serve_within(
    door: Door,
    book: Arc<Mutex<Book>>,
    news: watch::Receiver<u64>,
    speaks_within: Duration,
) {
    let Door { socket, allowed } = door;
    let listener = listener(socket);
    let listener = match listener {
        Ok(listener) => listener,
        Err(why) => return tracing::error!("cannot listen to game processes: {why}"),
    };
    let refusals = Refusals { book, told: Arc::default() };
    let mut connections = JoinSet::new();
    let mut number = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // Too few descriptors, as a rule: those who wait stay in the queue.
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(AGAIN_AFTER).await;
                    continue;
                };
                if connections.len() < refusals.lock().room() {
                    number += 1;
                    let guest = Guest { stream, number, refusals: refusals.clone() };
                    let is_allowed = is_allowed(&allowed);
                    connections.spawn(guest.attend(is_allowed, news.clone(), speaks_within));
                } else {
                    refusals.lock().refuse(Refusal::TooMany);
                    refusals.tell(Refusal::TooMany, "that has just connected");
                    // It has room for its first message.
                    let _ = stream.try_write(&Refusal::TooMany.standing().encode());
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Who is there, and when the log was told last of those who are not let in.
#[derive(Clone)]
struct Refusals {
    book: Arc<Mutex<Book>>,
    told: Arc<Mutex<[Option<Instant>; Refusal::ALL.len()]>>,
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the log, once a second for each reason: processes may come as often as they like.
    fn tell(&self, why: Refusal, backend: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = &mut told[why as usize];
        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            let standing = why.standing();
            tracing::warn!(
                event = "fleet_announcement_refused",
                backend,
                reason = why.name(),
                why = standing.text(),
                "game process {backend} is not registered: {standing}"
            );
        }
    }
}

fn listener(socket: OwnedFd) -> io::Result<UnixListener> {
    let listener = StdUnixListener::from(socket);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

fn is_allowed(allowed: &Allowed) -> impl Fn(&UnixStream) -> bool + Send + use<> {
    let allowed = allowed.clone();
    move |stream| {
        let found = stream.peer_cred();
        let of = |it: tokio::net::unix::UCred| Credentials {
            uid: it.uid(),
            gid: it.gid(),
            pid: it.pid().map_or(0, i32::cast_unsigned),
        };
        found.is_ok_and(|it| allowed.admits(of(it)))
    }
}

/// A game process.
struct Guest {
    stream: UnixStream,
    number: u64,
    refusals: Refusals,
}

impl Guest {
    async fn attend(
        mut self,
        is_allowed: impl Fn(&UnixStream) -> bool + Send,
        mut news: watch::Receiver<u64>,
        speaks_within: Duration,
    ) {
        let ended = if is_allowed(&self.stream) {
            self.listen(&mut news, speaks_within).await
        } else {
            Err(Some(Refusal::Unauthorised))
        };
        if let Err(Some(why)) = ended {
            self.refusals.lock().refuse(why);
            self.refusals.tell(why, "without a name");
            self.say(why.standing()).await;
        }
        self.refusals.lock().leave(self.number);
    }

    /// Until it ends; an error is why this end hangs up, if it does.
    async fn listen(
        &mut self,
        news: &mut watch::Receiver<u64>,
        speaks_within: Duration,
    ) -> Result<(), Option<Refusal>> {
        let mut message = vec![0; ANNOUNCE_BYTES_MAX + 1];
        let mut said = None;
        let silent = tokio::time::sleep(speaks_within);
        let mut silent = std::pin::pin!(silent);
        loop {
            tokio::select! {
                read = self.stream.read(&mut message) => {
                    let len = read.map_err(|_| None)?;
                    if len == 0 {
                        return Ok(());
                    }
                    let what = Announced::decode(&message[..len]).ok_or(Refusal::Invalid)?;
                    let name = what.name.clone();
                    let announced = self.refusals.lock().announce(self.number, what);
                    let standing = announced.unwrap_or_else(Refusal::standing);
                    if let Err(why) = announced {
                        self.refusals.tell(why, &name);
                    }
                    self.say(standing).await;
                    said = Some(standing);
                    // One that says more does not have the thread to itself.
                    tokio::time::sleep(PAUSE).await;
                }
                changed = news.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let standing = self.refusals.lock().standing(self.number);
                    if let Some(standing) = standing.filter(|it| said != Some(*it)) {
                        self.say(standing).await;
                        said = Some(standing);
                    }
                }
                () = &mut silent, if said.is_none() => return Err(Some(Refusal::Silent)),
            }
        }
    }

    /// A process that does not read its answers misses them.
    async fn say(&mut self, standing: Standing) {
        let record = standing.encode();
        let said = self.stream.write_all(&record);
        let _ = tokio::time::timeout(PAUSE, said).await;
    }
}

/// Between two messages of one process.
const PAUSE: Duration = Duration::from_millis(50);
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The library says what the process is as soon as it has connected.
const SPEAKS_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;

//! The announce socket: who may come in, and what is said there. Hostile processes of a user that
//! may come in can announce backends of their own, and nothing else: each message is bounded, each
//! connection has one name, and there are as many connections as backends.

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

use super::Book;

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
    let Door { socket, allowed } = door;
    let listener = listener(socket);
    let listener = match listener {
        Ok(listener) => listener,
        Err(why) => return tracing::error!("cannot listen to game processes: {why}"),
    };
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
                if connections.len() < lock(&book).room() {
                    number += 1;
                    let guest = Guest { stream, number, book: Arc::clone(&book) };
                    connections.spawn(guest.attend(is_allowed(&allowed), news.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
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
    book: Arc<Mutex<Book>>,
}

impl Guest {
    async fn attend(
        mut self,
        is_allowed: impl Fn(&UnixStream) -> bool + Send,
        mut news: watch::Receiver<u64>,
    ) {
        if is_allowed(&self.stream) {
            // An error is its end.
            let _ = self.listen(&mut news).await;
        } else {
            self.say(Standing::Unauthorised).await;
        }
        lock(&self.book).leave(self.number);
    }

    async fn listen(&mut self, news: &mut watch::Receiver<u64>) -> io::Result<()> {
        let mut message = vec![0; ANNOUNCE_BYTES_MAX + 1];
        let mut said = None;
        loop {
            tokio::select! {
                read = self.stream.read(&mut message) => {
                    let len = read?;
                    if len == 0 {
                        return Ok(());
                    }
                    let Some(what) = Announced::decode(&message[..len]) else {
                        self.say(Standing::Invalid).await;
                        return Ok(());
                    };
                    let name = what.name.clone();
                    let standing = lock(&self.book).announce(self.number, what);
                    if !matches!(standing, Standing::Waiting | Standing::Registered) {
                        tracing::warn!(
                            event = "fleet_announcement_refused",
                            backend = name,
                            why = standing.text(),
                            "game process {name} is not registered: {standing}"
                        );
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
                    let standing = lock(&self.book).standing(self.number);
                    if let Some(standing) = standing.filter(|it| said != Some(*it)) {
                        self.say(standing).await;
                        said = Some(standing);
                    }
                }
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

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Between two messages of one process.
const PAUSE: Duration = Duration::from_millis(50);
const AGAIN_AFTER: Duration = Duration::from_millis(200);

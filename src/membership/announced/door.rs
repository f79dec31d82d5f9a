//! The announce socket: who may come in, and what is said there. Hostile processes of a user that
//! may come in can announce backends of their own, and nothing else: each message is bounded, each
//! connection has one name, and there are few more connections than backends.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringgate_gate::Credentials;
use ringgate_link::announce::{ANNOUNCE_BYTES_MAX, Announced, Standing};
use ringgate_os::sparing::OnceASecond;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Book, Refusal};

/// The listening socket, and who has connected. Who may is in the book, where a reload changes it.
#[derive(Debug)]
pub struct Door {
    /// The socket, which keeps messages apart.
    pub socket: OwnedFd,
    /// Those who have come already: to another process, or before the last rest.
    pub seated: Vec<Seated>,
}

/// A connection that nobody attends to at the moment. What is said there waits in the kernel.
#[derive(Debug)]
pub struct Seated {
    /// The connection.
    pub socket: OwnedFd,
    /// What the book knows it by.
    pub number: u64,
    /// What it was told last; `None` where it has not said what it is.
    pub said: Option<Standing>,
}

impl Door {
    /// Nobody has come yet.
    pub const fn new(socket: OwnedFd) -> Self {
        Self { socket, seated: Vec::new() }
    }
}

/// Serves until it is dropped, or until it is told to rest: then all of it comes back. `news`
/// counts whenever a standing has changed.
pub(crate) async fn serve(
    door: Door,
    book: Arc<Mutex<Book>>,
    news: watch::Receiver<u64>,
    rest: watch::Receiver<bool>,
) -> Door {
    serve_within(door, book, (news, rest), SPEAKS_WITHIN).await
}

/// The same. Whoever says nothing within that time is hung up on.
async fn serve_within(
    door: Door,
    book: Arc<Mutex<Book>>,
    (news, rest): (watch::Receiver<u64>, watch::Receiver<bool>),
    speaks_within: Duration,
) -> Door {
    let Door { socket, seated } = door;
    let refusals = Refusals { book, told: Arc::default() };
    let attend = |guest: Guest| guest.attend((news.clone(), rest.clone()), speaks_within);
    let mut connections = JoinSet::new();
    let mut number = seated.iter().map(|it| it.number).max().unwrap_or(0);
    for seated in seated {
        if let Some(guest) = Guest::go_on(seated, &refusals) {
            connections.spawn(attend(guest));
        }
    }
    let listener = listener(&socket)
        .inspect_err(|why| tracing::error!("cannot listen to game processes: {why}"))
        .ok();
    let (mut rests, mut seated) = (rest.clone(), Vec::new());
    loop {
        tokio::select! {
            accepted = accept(listener.as_ref()) => {
                // Too few descriptors, as a rule: those who wait stay in the queue.
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(AGAIN_AFTER).await;
                    continue;
                };
                number += 1;
                let refusals = refusals.clone();
                let arrived = refusals.lock().arrive(number, credentials(&stream));
                if let Err(why) = arrived {
                    refusals.tell(why, "that has just connected");
                    // It has room for its first message.
                    let _ = stream.try_write(&why.standing().encode());
                } else {
                    connections.spawn(attend(Guest { stream, number, said: None, refusals }));
                }
            }
            // They may hear of a rest first.
            Some(ended) = connections.join_next() => seated.extend(ended.ok().flatten()),
            () = told_to_rest(&mut rests) => break,
        }
    }
    while let Some(ended) = connections.join_next().await {
        seated.extend(ended.ok().flatten());
    }
    Door { socket, seated }
}

async fn accept(listener: Option<&UnixListener>) -> io::Result<(UnixStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => pending().await,
    }
}

/// Ends when that is told: never, where nobody can tell it any more.
async fn told_to_rest(rest: &mut watch::Receiver<bool>) {
    let is_over = rest.wait_for(|rests| *rests).await.is_err();
    if is_over {
        pending::<()>().await;
    }
}

/// Who is there, and when the log was told last of those who are not let in.
#[derive(Clone)]
struct Refusals {
    book: Arc<Mutex<Book>>,
    told: Arc<[OnceASecond; Refusal::ALL.len()]>,
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the log, once a second for each reason: processes may come as often as they like.
    fn tell(&self, why: Refusal, backend: &str) {
        if self.told[why as usize].is_told() {
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

/// A second descriptor of the socket, for the time that it is served.
fn listener(socket: &OwnedFd) -> io::Result<UnixListener> {
    let listener = StdUnixListener::from(socket.try_clone()?);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Of a process that the kernel says nothing of, those that nobody is.
fn credentials(stream: &UnixStream) -> Credentials {
    match stream.peer_cred() {
        Ok(it) => Credentials {
            uid: it.uid(),
            gid: it.gid(),
            pid: it.pid().map_or(0, i32::cast_unsigned),
        },
        Err(_) => Credentials { uid: u32::MAX, gid: u32::MAX, pid: 0 },
    }
}

/// A game process.
struct Guest {
    stream: UnixStream,
    number: u64,
    said: Option<Standing>,
    refusals: Refusals,
}

/// Why a guest is attended to no more.
enum End {
    /// It has gone.
    Gone,
    /// This end hangs up.
    Refused(Refusal),
    /// It stays, and waits.
    Rests,
}

impl Guest {
    /// One that has come already; `None` where that cannot be, and then it is over.
    fn go_on(seated: Seated, refusals: &Refusals) -> Option<Self> {
        let Seated { socket, number, said } = seated;
        let stream = StdUnixStream::from(socket);
        let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
        match stream {
            Ok(stream) => {
                refusals.lock().meet(number, credentials(&stream));
                Some(Self { stream, number, said, refusals: refusals.clone() })
            }
            Err(why) => {
                tracing::error!("cannot go on with a game process: {why}");
                refusals.lock().leave(number);
                None
            }
        }
    }

    fn sit_down(self) -> Option<Seated> {
        let Self { stream, number, said, refusals } = self;
        match stream.into_std() {
            Ok(stream) => Some(Seated { socket: stream.into(), number, said }),
            Err(why) => {
                tracing::error!("cannot go on with a game process: {why}");
                refusals.lock().leave(number);
                None
            }
        }
    }

    async fn attend(
        mut self,
        (mut news, mut rest): (watch::Receiver<u64>, watch::Receiver<bool>),
        speaks_within: Duration,
    ) -> Option<Seated> {
        match self.listen(&mut news, &mut rest, speaks_within).await {
            End::Rests => return self.sit_down(),
            End::Refused(why) => {
                self.refusals.lock().refuse(why);
                self.refusals.tell(why, "without a name");
                self.say(why.standing()).await;
            }
            End::Gone => {}
        }
        self.refusals.lock().leave(self.number);
        None
    }

    async fn listen(
        &mut self,
        news: &mut watch::Receiver<u64>,
        rest: &mut watch::Receiver<bool>,
        speaks_within: Duration,
    ) -> End {
        let mut message = vec![0; ANNOUNCE_BYTES_MAX + 1];
        let silent = tokio::time::sleep(speaks_within);
        let mut silent = pin!(silent);
        // It may stand otherwise with one that has come before.
        if self.said.is_some() {
            news.mark_changed();
        }
        loop {
            if !self.refusals.lock().admits(self.number) {
                return End::Refused(Refusal::Unauthorised);
            }
            tokio::select! {
                read = self.stream.read(&mut message) => {
                    let Ok(len @ 1..) = read else { return End::Gone };
                    let Some(what) = Announced::decode(&message[..len]) else {
                        return End::Refused(Refusal::Invalid);
                    };
                    let name = what.name.clone();
                    let announced = self.refusals.lock().announce(self.number, what);
                    let standing = announced.unwrap_or_else(Refusal::standing);
                    if let Err(why) = announced {
                        self.refusals.tell(why, &name);
                    }
                    self.say(standing).await;
                    // One that says more does not have the thread to itself.
                    tokio::time::sleep(PAUSE).await;
                }
                changed = news.changed() => {
                    if changed.is_err() {
                        return End::Gone;
                    }
                    let standing = self.refusals.lock().standing(self.number);
                    if let Some(standing) = standing.filter(|it| self.said != Some(*it)) {
                        self.say(standing).await;
                    }
                }
                () = told_to_rest(rest) => return End::Rests,
                () = &mut silent, if self.said.is_none() => {
                    return End::Refused(Refusal::Silent);
                }
            }
        }
    }

    /// A process that does not read its answers misses them.
    async fn say(&mut self, standing: Standing) {
        self.said = Some(standing);
        let record = standing.encode();
        let said = self.stream.write_all(&record);
        let _ = tokio::time::timeout(PAUSE, said).await;
    }
}

/// Between two messages of one process.
const PAUSE: Duration = Duration::from_millis(50);
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The library says what the process is as soon as it has connected.
const SPEAKS_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;

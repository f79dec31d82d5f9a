//! The doors through which operators come in: how many connections each holds, and for how long.
//!
//! A connection carries one request. Its head has to be there within [`HEAD_TIMEOUT`], and its
//! answer has to be taken within the door's own time. Silent, slow-sending and slow-reading peers
//! therefore hold a place for a bounded time, and only until another peer needs it: a
//! newcomer who finds all places taken gets that of the oldest connection which waits for its peer
//! or for a page. A connection that changes something is never the one that goes; that takes no
//! help of the peer, so it ends by itself. Answers that nobody reads are bounded by their bytes
//! too.
//!
//! All of it runs on the control thread, which no packet passes.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::access::{self, Visitor};
use super::web::Pages;

/// Takes connections of a TCP address for ever.
pub(super) async fn serve_tcp(listener: TcpListener, pages: Pages) {
    let places = Places::new(TCP_PLACES, TCP_BYTES_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let visitor = Visitor::Tcp(peer);
                places.admit(stream, visitor, &pages, TCP_TIMEOUT);
            }
            Err(_) => places.make_do().await,
        }
    }
}

/// Takes connections of the control socket for ever.
pub(super) async fn serve_unix(listener: UnixListener, pages: Pages) {
    let places = Places::new(UNIX_PLACES, UNIX_BYTES_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match access::of_peer(&stream) {
                Some(visitor) => places.admit(stream, visitor, &pages, UNIX_TIMEOUT),
                None => turn_away(stream),
            },
            Err(_) => places.make_do().await,
        }
    }
}

/// How long an answer may be under way that goes on for a while, whatever the door's own time is:
/// from its beginning on, and whether its reader takes it or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Streams(pub(super) Duration);

/// Says why, as far as that goes without waiting.
fn turn_away(stream: UnixStream) {
    let why = access::NOT_ENTITLED;
    let len = why.len();
    let answer = format!(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len}\r\n\
         connection: close\r\n\r\n{why}"
    );
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(answer.as_bytes());
    }
}

/// The connections of one door.
struct Places {
    count_max: usize,
    /// Of answers that wait for their readers.
    bytes_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// The oldest first.
    list: VecDeque<Entry>,
}

struct Entry {
    id: u64,
    task: Option<AbortHandle>,
    /// Something is being changed on its behalf.
    is_busy: bool,
    /// Bytes of the answer.
    bytes: usize,
}

impl Places {
    fn new(count_max: usize, bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { count_max, bytes_max, taken: Mutex::default() })
    }

    /// Serves a connection, if need be in the place of another.
    fn admit<S>(self: &Arc<Self>, stream: S, visitor: Visitor, pages: &Pages, timeout: Duration)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(id) = self.taken().enter(self.count_max) else { return };
        let (begun, streams) = (Notify::new(), OnceLock::new());
        let place = Arc::new(Place { places: Arc::clone(self), id, begun, streams });
        let task = tokio::spawn(converse(stream, visitor, Arc::clone(pages), place, timeout));
        // On one thread it has not begun yet.
        if let Some(entry) = self.taken().entry(id) {
            entry.task = Some(task.abort_handle());
        }
    }

    /// A connection could not be taken. Where descriptors are short, one place less helps.
    async fn make_do(&self) {
        self.taken().evict(|_| true);
        tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// A new entry, unless all places are taken by connections that change something.
    fn enter(&mut self, count_max: usize) -> Option<u64> {
        if self.list.len() >= count_max && !self.evict(|_| true) {
            return None;
        }
        let id = self.next;
        self.next += 1;
        self.list.push_back(Entry { id, task: None, is_busy: false, bytes: 0 });
        Some(id)
    }

    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        self.list.iter_mut().find(|entry| entry.id == id)
    }

    /// Ends the oldest connection that changes nothing and is one of those. Whether there was one.
    fn evict(&mut self, is_meant: impl Fn(&Entry) -> bool) -> bool {
        let oldest = self.list.iter().position(|entry| !entry.is_busy && is_meant(entry));
        let Some(entry) = oldest.and_then(|at| self.list.remove(at)) else { return false };
        if let Some(task) = entry.task {
            task.abort();
        }
        true
    }

    /// An answer is there to be read; others that hold too much together make room.
    fn answers(&mut self, id: u64, bytes: usize, bytes_max: usize) {
        if let Some(entry) = self.entry(id) {
            (entry.is_busy, entry.bytes) = (false, bytes);
        }
        while self.list.iter().map(|entry| entry.bytes).sum::<usize>() > bytes_max {
            if !self.evict(|entry| entry.id != id && entry.bytes > 0) {
                return;
            }
        }
    }
}

/// One place, given back when dropped.
struct Place {
    places: Arc<Places>,
    id: u64,
    /// An answer that goes on for a while has begun.
    begun: Notify,
    streams: OnceLock<Streams>,
}

impl Place {
    fn works(&self) {
        if let Some(entry) = self.places.taken().entry(self.id) {
            entry.is_busy = true;
        }
    }

    fn answers(&self, bytes: usize, streams: Option<Streams>) {
        self.places.taken().answers(self.id, bytes, self.places.bytes_max);
        if let Some(streams) = streams {
            // A connection carries one request, so there was none before.
            let _ = self.streams.set(streams);
            self.begun.notify_one();
        }
    }

    /// Waits for an answer that goes on for a while; for how long.
    async fn streams(&self) -> Duration {
        loop {
            self.begun.notified().await;
            if let Some(Streams(lasts)) = self.streams.get() {
                return *lasts;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().list.retain(|entry| entry.id != self.id);
    }
}

async fn converse<S>(
    stream: S,
    visitor: Visitor,
    pages: Pages,
    place: Arc<Place>,
    timeout: Duration,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let head_bytes_max = match visitor {
        Visitor::Tcp(_) => HEAD_BYTES_MAX,
        Visitor::Unix { .. } => UNIX_HEAD_BYTES_MAX,
    };
    let of_connection = Arc::clone(&place);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        if !request.method().is_safe() {
            place.works();
        }
        let answer = pages(request.into_parts().0, visitor.clone());
        let place = Arc::clone(&place);
        async move {
            let answer = answer.await;
            let bytes = answer.body().size_hint().exact().unwrap_or_default() as usize;
            place.answers(bytes, answer.extensions().get().copied());
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(head_bytes_max)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = &mut connection => {}
        () = tokio::time::sleep(timeout) => {}
        lasts = of_connection.streams() => {
            let _ = tokio::time::timeout(lasts, connection).await;
        }
    }
}

/// Binds the TCP door. What a reader leaves unread waits in a small buffer of the kernel.
pub(super) fn bind_tcp(address: std::net::SocketAddr) -> io::Result<TcpListener> {
    TcpListener::from_std(bound_tcp(address)?)
}

/// The same before there is a runtime.
pub(super) fn bound_tcp(address: std::net::SocketAddr) -> io::Result<std::net::TcpListener> {
    let kind = socket2::Type::STREAM.nonblocking().cloexec();
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), kind, None)?;
    socket.set_reuse_address(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The same as another process has bound it.
pub(super) fn adopt_tcp(fd: &OwnedFd) -> io::Result<TcpListener> {
    let socket = std::net::TcpListener::from(fd.try_clone()?);
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

/// Scrapers, probes, operators and their tools need a dozen; the rest is for those who do not let
/// go.
const TCP_PLACES: usize = 128;

/// Some twenty of the largest pages (128 workers and hundreds of backends make 3 MiB).
const TCP_BYTES_MAX: usize = 64 << 20;

/// Those who come here are entitled; the bound is for their mistakes.
const UNIX_PLACES: usize = 64;

const UNIX_BYTES_MAX: usize = 64 << 20;

/// hyper's smallest buffer, far more than any of our requests.
const HEAD_BYTES_MAX: usize = 8192;

/// At the control socket, where an operator may name thousands of addresses at once.
const UNIX_HEAD_BYTES_MAX: usize = 64 << 10;

/// From the connection to the end of the request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// From the connection to the end of the answer: the largest page at a megabit a second.
const TCP_TIMEOUT: Duration = Duration::from_secs(30);

/// A reload may read files from slow disks.
const UNIX_TIMEOUT: Duration = Duration::from_mins(10);

const SEND_BUFFER_BYTES: usize = 64 << 10;

const BACKLOG: i32 = 1024;

const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_waits_for_its_peer_makes_room() {
        let mut taken = Taken::default();
        let ids: Vec<_> = (0..3).map(|_| taken.enter(3).expect("room")).collect();
        taken.entry(ids[0]).expect("there").is_busy = true;
        let late = taken.enter(3).expect("one makes room");
        let left: Vec<_> = taken.list.iter().map(|entry| entry.id).collect();
        assert_eq!(left, [ids[0], ids[2], late]);
        taken.list.iter_mut().for_each(|entry| entry.is_busy = true);
        assert_eq!(taken.enter(3), None, "changes are not cut off");
    }

    #[test]
    fn answers_that_nobody_reads_are_bounded_together() {
        let mut taken = Taken::default();
        let ids: Vec<_> = (0..4).map(|_| taken.enter(9).expect("room")).collect();
        for id in &ids[..3] {
            taken.answers(*id, 40, 100);
        }
        let left: Vec<_> = taken.list.iter().map(|entry| entry.id).collect();
        assert_eq!(left, ids[1..], "the one that holds nothing stays");
        taken.answers(ids[3], 1000, 100);
        let left: Vec<_> = taken.list.iter().map(|entry| entry.id).collect();
        assert_eq!(left, ids[3..], "one answer alone may be longer");
    }
}

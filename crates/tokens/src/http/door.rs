//! Takes connections: so many at a time, each with deadlines.
//!
//! A newcomer who finds all places taken gets that of another connection, which has waited the
//! longest of those whose holder has more than is its own (`places`); one whose request is being
//! served is never the one that goes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ringgate_fleet::etcd::Client;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::patient::Patient;
use super::places::{Seat, victim};
use super::routes;
use crate::counters::add;
use crate::limits::HEAD_BYTES_MAX;
use crate::service::Shared;

/// Binds an address that other threads and the next process bind too.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let kind = socket2::Type::STREAM.nonblocking().cloexec();
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), kind, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Serves until told to stop, and then until what is under way is answered.
pub(crate) async fn serve(
    shared: &Arc<Shared>,
    client: Client,
    doors: Vec<std::net::TcpListener>,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    let door = Arc::new(Door {
        shared: Arc::clone(shared),
        client,
        tls,
        stopped: stopped.clone(),
        places: Mutex::default(),
    });
    let mut accepting = JoinSet::new();
    for listener in doors {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                accepting.spawn(accept(Arc::clone(&door), listener));
            }
            Err(why) => tracing::error!("a listener is lost: {why}"),
        }
    }
    let _ = stopped.wait_for(|it| *it).await;
    // Connections that the kernel has taken on our behalf already are served by the acceptors,
    // which end by themselves.
    while accepting.join_next().await.is_some() {}
    let drained = async {
        while !door.places().list.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = tokio::time::timeout(shared.options.drain, drained).await;
}

async fn accept(door: Arc<Door>, listener: TcpListener) {
    let mut stopped = door.stopped.clone();
    loop {
        let stopping = async { stopped.wait_for(|it| *it).await.map(drop) };
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            _ = stopping => break,
        };
        door.admit_or_wait(accepted).await;
    }
    // Whoever is in the queue, or in the middle of its handshake, was told by the kernel that
    // somebody is there, and would be reset with the socket. So nobody new may come to it, and it
    // is closed when nobody has come for a while.
    let is_closed = refuse_newcomers(&listener).is_ok();
    let rest = if is_closed { HANDSHAKE_REST } else { QUEUE_REST };
    let until = Instant::now() + LAST_ONES_WITHIN;
    while let Some(accepted) = one_more(listener.accept(), rest, until).await {
        door.admit_or_wait(accepted).await;
    }
}

/// The next of the last ones; `None` where nobody comes for a while. Nobody can keep the old
/// process by ending one handshake after the other slowly.
async fn one_more<F: Future>(next: F, rest: Duration, until: Instant) -> Option<F::Output> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return None;
    }
    tokio::time::timeout(rest.min(left), next).await.ok()
}

/// Drops what would begin a connection at this socket. Whoever has sent it sends it again a second
/// later, and the kernel leads it to the socket of the next process by then.
fn refuse_newcomers(listener: &TcpListener) -> io::Result<()> {
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let line = socket2::SockFilter::new;
    SockRef::from(listener).attach_filter(&[
        line(LOAD_BYTE, 0, 0, FLAGS_AT),
        line(AND, 0, 0, SYN | ACK),
        line(JUMP_IF_EQUAL, 0, 1, SYN),
        line(RETURN, 0, 0, 0),
        line(RETURN, 0, 0, u32::MAX),
    ])
}

struct Door {
    shared: Arc<Shared>,
    client: Client,
    tls: Option<TlsAcceptor>,
    stopped: watch::Receiver<bool>,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    next: u64,
    /// The one that has waited the longest first.
    list: VecDeque<Place>,
}

struct Place {
    id: u64,
    task: Option<AbortHandle>,
    seat: Arc<Seat>,
}

impl Door {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that could not be taken means that descriptors are short: one less helps.
    async fn admit_or_wait(self: &Arc<Self>, accepted: io::Result<(TcpStream, SocketAddr)>) {
        match accepted {
            Ok((stream, _)) => self.admit(stream),
            Err(_) => {
                self.evict();
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream) {
        add(&self.shared.counters.connections, 1);
        if self.places().list.len() >= PLACES && !self.evict() {
            return add(&self.shared.counters.crowded_out, 1);
        }
        let _ = stream.set_nodelay(true);
        let seat = Arc::new(Seat::default());
        let mut places = self.places();
        let id = places.next;
        places.next += 1;
        places.list.push_back(Place { id, task: None, seat: Arc::clone(&seat) });
        drop(places);
        let guard = Left { door: Arc::clone(self), id };
        let task = tokio::spawn(converse(guard, stream, seat));
        // On one thread it has not begun yet.
        if let Some(place) = self.places().list.iter_mut().find(|it| it.id == id) {
            place.task = Some(task.abort_handle());
        }
    }

    fn evict(&self) -> bool {
        let mut places = self.places();
        let seats = places.list.iter().map(|it| &*it.seat);
        let goes = victim(seats, PLACES, self.shared.callers().len());
        let Some(place) = goes.and_then(|at| places.list.remove(at)) else { return false };
        drop(places);
        if let Some(task) = place.task {
            task.abort();
        }
        add(&self.shared.counters.evicted, 1);
        true
    }

    /// A connection was used: others have waited longer.
    fn touch(&self, id: u64) {
        let mut places = self.places();
        if let Some(at) = places.list.iter().position(|it| it.id == id)
            && let Some(place) = places.list.remove(at)
        {
            places.list.push_back(place);
        }
    }
}

/// Gives a place back when dropped.
struct Left {
    door: Arc<Door>,
    id: u64,
}

impl Drop for Left {
    fn drop(&mut self) {
        self.door.places().list.retain(|it| it.id != self.id);
    }
}

async fn converse(place: Left, stream: TcpStream, seat: Arc<Seat>) {
    match &place.door.tls {
        None => answer(&place, stream, &seat).await,
        Some(tls) => match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => Box::pin(answer(&place, stream, &seat)).await,
            _ => add(&place.door.shared.counters.handshakes_failed, 1),
        },
    }
}

async fn answer<S>(place: &Left, stream: S, seat: &Seat)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let door = &place.door;
    let begun = Notify::new();
    let service = service_fn(|request: hyper::Request<Incoming>| async {
        begun.notify_one();
        let answer = routes::answer(&door.shared, &door.client, seat, request).await;
        seat.serve(false);
        door.touch(place.id);
        Ok::<_, Infallible>(answer)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream, IDLE_TIMEOUT)), service);
    let mut connection = pin!(connection);
    let mut stopped = door.stopped.clone();
    let stopping = async {
        let _ = stopped.wait_for(|it| *it).await;
    };
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopping => {}
    }
    // Whoever has connected just now sends a request, and would lose it.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = begun.notified() => {}
        () = tokio::time::sleep(FIRST_WITHIN) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(door.shared.options.drain, connection).await;
}

/// Connections of a thread.
const PLACES: usize = 1024;
/// From the word to stop to the first request of a connection that has not brought one.
const FIRST_WITHIN: Duration = Duration::from_millis(500);
/// From one answer to the whole head of the next request, and the longest time in which nothing of
/// an answer is read.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const BACKLOG: i32 = 1024;
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Nobody has come for so long: the queue is empty.
const QUEUE_REST: Duration = Duration::from_millis(1);
/// Nobody has come for so long though nobody new may: every handshake is over that was under way,
/// and the first that was dropped has not been sent again yet.
const HANDSHAKE_REST: Duration = Duration::from_millis(300);
const LAST_ONES_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn the_last_ones_are_taken_until_nobody_comes_and_never_for_longer_than_a_bound() {
        let took = async |count: u32| {
            let (began, mut taken) = (Instant::now(), 0);
            let next = async |taken| match taken {
                it if it == count => std::future::pending().await,
                _ => tokio::time::sleep(GAP).await,
            };
            while one_more(next(taken), HANDSHAKE_REST, began + LAST_ONES_WITHIN).await.is_some() {
                taken += 1;
            }
            (began.elapsed(), taken)
        };
        assert_eq!(took(0).await, (HANDSHAKE_REST, 0));
        assert_eq!(took(5).await, (5 * GAP + HANDSHAKE_REST, 5));
        // More and more of them, one after the other.
        let (elapsed, taken) = took(1000).await;
        assert!(elapsed == LAST_ONES_WITHIN && taken < 40, "{elapsed:?}, {taken}");
    }
}

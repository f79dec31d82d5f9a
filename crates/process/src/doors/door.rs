//! A door: takes connections, and talks HTTP/1 with them.
//!
//! Each request's head has to be there in time. A connection that carries one request has to end in
//! time as well, unless its answer says how long it goes on ([`Lasts`]). A door that is told to end
//! lets every connection finish what is under way.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::seats::{DoorLimits, Seat, Seats};

/// What happened at a door, or at several.
#[derive(Debug, Default)]
pub struct DoorCounts {
    /// Connections that were taken.
    pub connections: AtomicU64,
    /// Connections that were ended because another one needed the seat.
    pub evicted: AtomicU64,
    /// Connections that were refused because requests of others were served in all seats.
    pub crowded_out: AtomicU64,
}

/// How a door ends.
#[derive(Clone, Debug)]
pub struct Ending {
    /// Whether it is to end.
    pub is_told: watch::Receiver<bool>,
    /// How long what is under way may take then.
    pub drain: Duration,
}

impl Ending {
    pub(super) async fn told(&self) {
        let _ = self.is_told.clone().wait_for(|it| *it).await;
    }
}

/// In an answer's extensions: how long it may be under way, from its beginning on, whether its
/// reader takes it or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lasts(pub Duration);

/// A door and its connections. All of them are served on one thread.
#[derive(Debug)]
pub struct HttpDoor {
    limits: DoorLimits,
    counts: Arc<DoorCounts>,
    pub(super) ending: Option<Ending>,
    seats: Mutex<Seats>,
}

impl HttpDoor {
    /// One that nobody has come to yet. Without an ending, whoever has it drops what serves it.
    pub fn new(limits: DoorLimits, counts: Arc<DoorCounts>, ending: Option<Ending>) -> Arc<Self> {
        Arc::new(Self { limits, counts, ending, seats: Mutex::default() })
    }

    /// A connection that was accepted. One that could not be means that descriptors are short: one
    /// connection less helps.
    pub async fn accepted<T>(&self, accepted: io::Result<T>) -> Option<T> {
        if accepted.is_err() {
            self.evict();
            sleep(ACCEPT_AGAIN_AFTER).await;
        }
        accepted.ok()
    }

    /// Serves a connection, if need be in the seat of another.
    pub fn admit<M>(self: &Arc<Self>, serve: impl FnOnce(HttpConnection) -> M)
    where
        M: Future<Output = ()> + Send + 'static,
    {
        self.counts.connections.fetch_add(1, Ordering::Relaxed);
        if self.seats().is_full(&self.limits) && !self.evict() {
            self.counts.crowded_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let seat = self.seats().take();
        let connection = HttpConnection { door: Arc::clone(self), seat: Arc::clone(&seat) };
        let task = tokio::spawn(serve(connection));
        // On one thread it has not begun yet.
        let _ = seat.task.set(task.abort_handle());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seats().is_empty()
    }

    fn evict(&self) -> bool {
        let is_ended = self.seats().evict(&self.limits);
        self.counts.evicted.fetch_add(is_ended.into(), Ordering::Relaxed);
        is_ended
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that has a seat, and gives it back when dropped.
#[derive(Debug)]
pub struct HttpConnection {
    door: Arc<HttpDoor>,
    seat: Arc<Seat>,
}

impl HttpConnection {
    /// Answers what the other end asks, until one of them ends it or a time is over.
    pub async fn talk<S, F, M, B>(self, stream: S, answer: F)
    where
        S: AsyncRead + AsyncWrite + Unpin,
        F: Fn(Request<Incoming>, Arc<Seat>) -> M,
        M: Future<Output = Response<B>>,
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let DoorLimits { head_bytes, head_within, whole_within, .. } = self.door.limits;
        let has_begun = Notify::new();
        let (ends_at, end) = watch::channel(whole_within.map(|it| Instant::now() + it));
        let service = service_fn(|request| {
            has_begun.notify_one();
            // What changes something ends by itself: only its answer has to be taken in time.
            let change_within = whole_within.filter(|_| !request.method().is_safe());
            if change_within.is_some() {
                ends_at.send_replace(None);
            }
            let answering = answer(request, Arc::clone(&self.seat));
            let (seated, ends_at) = (&self, &ends_at);
            async move {
                let answer = answering.await;
                seated.answered(&answer);
                let lasts = answer.extensions().get().map(|Lasts(lasts)| *lasts);
                if let Some(lasts) = lasts.or(change_within) {
                    ends_at.send_replace(Some(Instant::now() + lasts));
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_within)
            .keep_alive(whole_within.is_none())
            .max_buf_size(head_bytes)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let ending = self.door.ending.as_ref();
        tokio::select! {
            _ = connection.as_mut() => return,
            () = passed(end) => return,
            () = async { ending.expect("there is one").told().await }, if ending.is_some() => {}
        }
        // A client that has connected just now sends a request, and would lose it.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = has_begun.notified() => {}
            () = sleep(FIRST_WITHIN) => {}
        }
        connection.as_mut().graceful_shutdown();
        let drain = ending.map_or(Duration::ZERO, |it| it.drain);
        let _ = timeout(drain, connection).await;
    }

    fn answered<B: Body>(&self, answer: &Response<B>) {
        let bytes = answer.body().size_hint().exact().unwrap_or_default() as usize;
        let HttpDoor { limits, counts, .. } = &*self.door;
        let mut seats = self.door.seats();
        let ended = seats.answer(&self.seat, bytes, limits);
        counts.evicted.fetch_add(ended as u64, Ordering::Relaxed);
        if limits.whole_within.is_none() {
            seats.touch(&self.seat);
        }
    }
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.door.seats().leave(&self.seat);
    }
}

/// Waits for a time that may be set anew.
async fn passed(mut time: watch::Receiver<Option<Instant>>) {
    loop {
        let at = *time.borrow_and_update();
        tokio::select! {
            () = async { sleep_until(at.expect("there is one")).await }, if at.is_some() => return,
            set = time.changed() => set.expect("a connection keeps the other end"),
        }
    }
}

const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// From the word to end to the first request of a connection that has not brought one.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use hyper::body::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const LIMITS: DoorLimits = DoorLimits {
        seats: 2,
        callers: 0,
        unread_bytes: None,
        head_bytes: 8192,
        head_within: Duration::from_secs(2),
        whole_within: None,
    };

    const ASK: &[u8] = b"GET /now HTTP/1.1\r\nHost: t\r\n\r\n";
    const DRAIN: Duration = Duration::from_secs(7);

    fn door(limits: DoorLimits) -> (Arc<HttpDoor>, watch::Sender<bool>) {
        let (tell, is_told) = watch::channel(false);
        (HttpDoor::new(limits, Arc::default(), Some(Ending { is_told, drain: DRAIN })), tell)
    }

    /// The far end of a connection whose requests are answered by their path: `/now`, `/long`
    /// (with an answer that may go on for a minute and is not read), `/slow` (45 s later, not read
    /// either), or never.
    fn come(door: &Arc<HttpDoor>) -> DuplexStream {
        let (near, far) = duplex(256);
        door.admit(|connection| connection.talk(near, answer));
        far
    }

    async fn answer(request: Request<Incoming>, seat: Arc<Seat>) -> Response<Full<Bytes>> {
        seat.serve(!request.method().is_safe());
        match request.uri().path() {
            "/now" => Response::new("here".into()),
            "/long" => {
                let mut response = Response::new(vec![b'x'; 4096].into());
                response.extensions_mut().insert(Lasts(Duration::from_mins(1)));
                response
            }
            "/slow" => {
                sleep(Duration::from_secs(45)).await;
                Response::new(vec![b'x'; 4096].into())
            }
            _ => std::future::pending().await,
        }
    }

    async fn ask(far: &mut DuplexStream) -> Option<String> {
        far.write_all(ASK).await.ok()?;
        let mut text = String::new();
        while !text.ends_with("\r\n\r\nhere") {
            let mut some = [0; 256];
            let count = far.read(&mut some).await.ok().filter(|count| *count > 0)?;
            text.push_str(str::from_utf8(&some[..count]).expect("letters"));
        }
        Some(text)
    }

    /// How long a connection stays open from now on.
    async fn stays(far: &mut DuplexStream) -> Duration {
        let began = Instant::now();
        let mut rest = Vec::new();
        let _ = far.read_to_end(&mut rest).await;
        began.elapsed()
    }

    fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_follows_another_until_none_comes_in_time() {
        let (door, _tell) = door(LIMITS);
        let mut far = come(&door);
        for _ in 0..3 {
            assert!(ask(&mut far).await.is_some());
            sleep(LIMITS.head_within / 2).await;
        }
        far.write_all(&ASK[..20]).await.expect("it is open");
        assert!(stays(&mut far).await <= LIMITS.head_within);
        assert!(door.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_one_request_ends_with_its_answer_or_its_time() {
        let whole = Duration::from_secs(30);
        let (door, _tell) = door(DoorLimits { whole_within: Some(whole), ..LIMITS });
        let mut far = come(&door);
        assert!(ask(&mut far).await.expect("answered").contains("connection: close"));
        assert_eq!(stays(&mut far).await, Duration::ZERO);
        for (ask, open_for_ms) in [
            ("GET /never", 29_999),
            ("GET /long", 59_999),
            ("GET /slow", 29_999),
            ("POST /slow", 74_999),
        ] {
            let mut far = come(&door);
            let head = format!("{ask} HTTP/1.1\r\nHost: t\r\n\r\n");
            far.write_all(head.as_bytes()).await.expect("it is open");
            sleep(Duration::from_millis(open_for_ms)).await;
            assert!(!door.is_empty(), "{ask}");
            sleep(Duration::from_millis(2)).await;
            assert!(door.is_empty(), "{ask}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_gets_the_seat_of_one_that_waits_and_never_of_one_that_is_served() {
        let (door, _tell) = door(LIMITS);
        let (mut first, mut second) = (come(&door), come(&door));
        assert!(ask(&mut first).await.is_some(), "it has waited less than the second now");
        let mut third = come(&door);
        assert!(ask(&mut second).await.is_none() && ask(&mut first).await.is_some());
        for far in [&mut first, &mut third] {
            far.write_all(b"POST /never HTTP/1.1\r\nHost: t\r\n\r\n").await.expect("it is open");
        }
        sleep(Duration::from_millis(1)).await;
        assert!(ask(&mut come(&door)).await.is_none(), "both are served");
        let counts = &door.counts;
        let counted = [&counts.connections, &counts.evicted, &counts.crowded_out].map(count);
        assert_eq!(counted, [4, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_cannot_be_taken_costs_another_its_seat() {
        let (door, _tell) = door(LIMITS);
        let mut far = come(&door);
        assert!(door.accepted::<()>(Err(io::ErrorKind::OutOfMemory.into())).await.is_none());
        assert_eq!((stays(&mut far).await, count(&door.counts.evicted)), (Duration::ZERO, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_a_first_request_is_waited_for_and_one_under_way_gets_its_time() {
        let (door, tell) = door(LIMITS);
        let (mut silent, mut served) = (come(&door), come(&door));
        served.write_all(b"POST /never HTTP/1.1\r\nHost: t\r\n\r\n").await.expect("it is open");
        sleep(Duration::from_millis(1)).await;
        tell.send(true).expect("a door is there");
        let (silent, served) = tokio::join!(stays(&mut silent), stays(&mut served));
        assert_eq!((silent, served), (FIRST_WITHIN, DRAIN));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_comes_at_the_end_is_answered_and_the_last() {
        let (door, tell) = door(LIMITS);
        let mut far = come(&door);
        tell.send(true).expect("a door is there");
        sleep(FIRST_WITHIN / 2).await;
        assert!(ask(&mut far).await.is_some());
        assert_eq!(stays(&mut far).await, Duration::ZERO);
    }
}

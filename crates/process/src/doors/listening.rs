//! Addresses that connections come to, and their end: no client that the kernel has taken on our
//! behalf is reset with the socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockFilter, SockRef, Socket};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::door::{Ending, HttpConnection, HttpDoor};

/// Binds an address, once the socket is prepared. There need be no runtime yet.
pub fn bind(
    address: SocketAddr,
    prepare: impl FnOnce(&Socket) -> io::Result<()>,
) -> io::Result<std::net::TcpListener> {
    let kind = socket2::Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(socket2::Domain::for_address(address), kind, None)?;
    socket.set_reuse_address(true)?;
    prepare(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Serves these addresses until the door is told to end, and then until what is under way is
/// answered.
pub async fn serve<F, M>(door: &Arc<HttpDoor>, listeners: Vec<std::net::TcpListener>, serve: F)
where
    F: Fn(TcpStream, HttpConnection) -> M + Clone + Send + Sync + 'static,
    M: Future<Output = ()> + Send + 'static,
{
    let ending = door.ending.clone().expect("whoever calls this has said how it ends");
    let mut accepting = JoinSet::new();
    for listener in listeners {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                accepting.spawn(accept(Arc::clone(door), ending.clone(), listener, serve.clone()));
            }
            Err(why) => tracing::error!("a listener is lost: {why}"),
        }
    }
    ending.told().await;
    // Connections that the kernel has taken on our behalf already are served by the acceptors,
    // which end by themselves.
    while accepting.join_next().await.is_some() {}
    let drained = async {
        while !door.is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = timeout(ending.drain, drained).await;
}

async fn accept<F, M>(door: Arc<HttpDoor>, ending: Ending, listener: TcpListener, serve: F)
where
    F: Fn(TcpStream, HttpConnection) -> M,
    M: Future<Output = ()> + Send + 'static,
{
    let admit = async |accepted| {
        if let Some((stream, _)) = door.accepted(accepted).await {
            door.admit(|connection| serve(stream, connection));
        }
    };
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = ending.told() => break,
        };
        admit(accepted).await;
    }
    // A client that is in the queue, or in the middle of its handshake, was told by the kernel that
    // it is connected, and would be reset with the socket. So no new one may come to it, and the
    // socket is closed when none has come for a while.
    let is_closed = refuse_newcomers(&listener).is_ok();
    let rest = if is_closed { HANDSHAKE_REST } else { QUEUE_REST };
    let until = Instant::now() + LAST_ONES_WITHIN;
    while let Some(accepted) = one_more(listener.accept(), rest, until).await {
        admit(accepted).await;
    }
}

/// The next of the last ones; `None` where nobody comes for a while. Nobody can keep the old
/// process by ending one handshake after the other slowly.
async fn one_more<F: Future>(next: F, rest: Duration, until: Instant) -> Option<F::Output> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return None;
    }
    timeout(rest.min(left), next).await.ok()
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
    let line = SockFilter::new;
    SockRef::from(listener).attach_filter(&[
        line(LOAD_BYTE, 0, 0, FLAGS_AT),
        line(AND, 0, 0, SYN | ACK),
        line(JUMP_IF_EQUAL, 0, 1, SYN),
        line(RETURN, 0, 0, 0),
        line(RETURN, 0, 0, u32::MAX),
    ])
}

const BACKLOG: i32 = 1024;

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

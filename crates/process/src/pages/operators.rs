//! The doors through which operators come in: the admin address and the control socket. A
//! connection carries one request; `process::doors` bounds how many there are, and for how long.
//!
//! All of it runs on the control thread, which no packet passes.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;

use super::access::{self, Visitor};
use super::answer::text;
use super::site::Pages;
use crate::doors::{self, DoorLimits, HttpDoor};

/// Serves what there is of an admin address and a control socket. Dropped, nobody comes in any
/// more.
pub fn serve(
    admin: Option<TcpListener>,
    control: Option<UnixListener>,
    pages: Pages,
) -> JoinSet<()> {
    let mut doors = JoinSet::new();
    if let Some(listener) = admin {
        doors.spawn(serve_tcp(listener, Arc::clone(&pages)));
    }
    if let Some(listener) = control {
        doors.spawn(serve_unix(listener, pages));
    }
    doors
}

/// Leaves the doors to the next process. Answers that are on their way have a moment.
pub async fn leave(doors: JoinSet<()>) {
    drop(doors);
    tokio::time::sleep(LAST_ANSWERS).await;
}

/// Takes connections of a TCP address for ever.
async fn serve_tcp(listener: TcpListener, pages: Pages) {
    let door = HttpDoor::new(TCP, Arc::default(), None);
    loop {
        if let Some((stream, peer)) = door.accepted(listener.accept().await).await {
            admit(&door, stream, Visitor::Tcp(peer), &pages);
        }
    }
}

/// Takes connections of the control socket for ever. Peers who are not entitled share a few seats
/// of their own, and are told so.
async fn serve_unix(listener: UnixListener, pages: Pages) {
    let door = HttpDoor::new(UNIX, Arc::default(), None);
    let others = HttpDoor::new(OTHERS, Arc::default(), None);
    loop {
        let Some((stream, _)) = door.accepted(listener.accept().await).await else { continue };
        match access::of_peer(&stream) {
            Some(visitor) => admit(&door, stream, visitor, &pages),
            None => others.admit(|connection| {
                connection.talk(stream, |_, _| async {
                    text(StatusCode::FORBIDDEN, access::NOT_ENTITLED)
                })
            }),
        }
    }
}

fn admit<S>(door: &Arc<HttpDoor>, stream: S, visitor: Visitor, pages: &Pages)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pages = Arc::clone(pages);
    door.admit(|connection| {
        connection.talk(stream, move |request, seat| {
            // A change takes no help of the peer, so it ends by itself.
            seat.serve(!request.method().is_safe());
            pages(request.into_parts().0, visitor.clone())
        })
    });
}

/// Binds the TCP door. What a reader leaves unread waits in a small buffer of the kernel. There
/// need be no runtime yet.
pub fn bind_tcp(address: std::net::SocketAddr) -> io::Result<std::net::TcpListener> {
    doors::bind(address, |socket| socket.set_send_buffer_size(SEND_BUFFER_BYTES))
}

/// The same as another process has bound it.
pub fn adopt_tcp(fd: &OwnedFd) -> io::Result<std::net::TcpListener> {
    let socket = std::net::TcpListener::from(fd.try_clone()?);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

const TCP: DoorLimits = DoorLimits {
    // Scrapers, probes, operators and their tools need a dozen; the rest is for peers that do not
    // let go.
    seats: 128,
    callers: 0,
    // Some twenty of the largest pages (128 workers and hundreds of backends make 3 MiB).
    unread_bytes: Some(64 << 20),
    // hyper's smallest buffer, far more than any of our requests.
    head_bytes: 8192,
    head_within: Duration::from_secs(2),
    // The largest page at a megabit a second.
    whole_within: Some(Duration::from_secs(30)),
};

/// Peers who come here are entitled; the bounds are for their mistakes.
const UNIX: DoorLimits = DoorLimits {
    seats: 64,
    // An operator may name thousands of addresses at once.
    head_bytes: 64 << 10,
    // A reload may read files from slow disks.
    whole_within: Some(Duration::from_mins(10)),
    ..TCP
};

const OTHERS: DoorLimits = DoorLimits { seats: 8, ..TCP };

const SEND_BUFFER_BYTES: usize = 64 << 10;

const LAST_ANSWERS: Duration = Duration::from_millis(100);

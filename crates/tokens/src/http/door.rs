//! The service's end of its doors: TLS, and whose connection one is. The rest is `process::doors`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use ringgate_fleet::etcd::Client;
use ringgate_process::doors::{
    self, DoorLimits, Ending, HttpConnection, HttpDoor, Seat, TimedWrites,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::routes;
use crate::counters::add;
use crate::limits::HEAD_BYTES_MAX;
use crate::service::Shared;

/// Binds an address that other threads and the next process bind too.
pub(crate) fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    doors::bind(address, |socket| {
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_port(true)
    })
}

/// Serves until told to stop, and then until what is under way is answered.
pub(crate) async fn serve(
    shared: &Arc<Shared>,
    client: Client,
    listeners: Vec<std::net::TcpListener>,
    tls: Option<TlsAcceptor>,
    is_told: watch::Receiver<bool>,
) {
    let limits = DoorLimits {
        seats: SEATS,
        callers: shared.callers().len(),
        unread_bytes: None,
        head_bytes: HEAD_BYTES_MAX,
        head_within: IDLE_TIMEOUT,
        whole_within: None,
    };
    let ending = Ending { is_told, drain: shared.options.drain };
    let door = HttpDoor::new(limits, Arc::clone(&shared.counters.door), Some(ending));
    let greeting = Greeting { shared: Arc::clone(shared), client, tls };
    doors::serve(&door, listeners, move |stream, connection| {
        greeting.clone().greet(stream, connection)
    })
    .await;
}

/// What a connection begins with.
#[derive(Clone)]
struct Greeting {
    shared: Arc<Shared>,
    client: Client,
    tls: Option<TlsAcceptor>,
}

impl Greeting {
    async fn greet(self, stream: TcpStream, connection: HttpConnection) {
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.serve(stream, connection).await,
            Some(tls) => match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                Ok(Ok(stream)) => Box::pin(self.serve(stream, connection)).await,
                _ => add(&self.shared.counters.handshakes_failed, 1),
            },
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        connection: HttpConnection,
    ) {
        let answer = async |request: http::Request<Incoming>, seat: Arc<Seat>| {
            routes::answer(&self.shared, &self.client, &seat, request).await
        };
        connection.talk(TimedWrites::new(stream, IDLE_TIMEOUT), answer).await;
    }
}

/// Connections of a thread.
const SEATS: usize = 1024;
/// From one answer to the whole head of the next request, and the longest time in which nothing of
/// an answer is read.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

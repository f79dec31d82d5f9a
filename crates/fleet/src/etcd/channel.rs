//! One connection to one member: HTTP/2, on which calls and streams run side by side. Its pings
//! find out when nobody is there any more; every call has a deadline of its own besides.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ringgate_os::hand::Hand;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::error::Error;
use super::frame::{Frames, envelope, status};
use super::line::{Asked, Call, Conversation, Dial, Line};
use crate::servers::Endpoint;

#[cfg(feature = "tls")]
pub(super) type Tls = tokio_rustls::TlsConnector;
#[cfg(not(feature = "tls"))]
pub(super) type Tls = Infallible;

/// Makes connections by sockets, encrypted where a member's address wants that.
pub(super) struct Sockets {
    pub(super) tls: Option<Tls>,
}

ringgate_core::shown_by!(Sockets {});

impl Dial for Sockets {
    fn dial<'a>(&'a self, endpoint: &'a Endpoint, timeout: Duration) -> Asked<'a, Arc<dyn Line>> {
        Box::pin(async move {
            let channel = Channel::connect(endpoint, self.tls.as_ref(), timeout).await?;
            Ok(Arc::new(channel) as Arc<dyn Line>)
        })
    }
}

/// A connection. It closes when the last one who has it and the last stream are gone.
#[derive(Debug)]
struct Channel {
    sender: http2::SendRequest<Outgoing>,
    base: Arc<str>,
}

impl Line for Channel {
    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    fn call<'a>(&'a self, call: Call<'a>) -> Asked<'a, Bytes> {
        Box::pin(self.ask(call))
    }

    fn open<'a>(&'a self, call: Call<'a>) -> Asked<'a, Box<dyn Conversation>> {
        Box::pin(async move {
            let stream = self.converse(call).await?;
            Ok(Box::new(stream) as Box<dyn Conversation>)
        })
    }
}

impl Channel {
    /// Connects to the first of its addresses that lets it, within `timeout` each.
    async fn connect(
        endpoint: &Endpoint,
        tls: Option<&Tls>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let found = addresses(endpoint).await?;
        Self::connect_to_one(&found, endpoint, tls, timeout).await
    }

    async fn connect_to_one(
        addresses: &[SocketAddr],
        endpoint: &Endpoint,
        tls: Option<&Tls>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let mut last = Error::Transport("its name has no address".into());
        for address in addresses {
            let connecting = async {
                let socket = TcpStream::connect(*address).await;
                let socket = socket.map_err(|why| Error::broken(&why))?;
                socket.set_nodelay(true).map_err(|why| Error::broken(&why))?;
                if endpoint.tls {
                    encrypted(socket, endpoint, tls).await
                } else {
                    spoken(socket).await
                }
            };
            match within(timeout, connecting).await {
                Ok(sender) => return Ok(Self { sender, base: endpoint.to_string().into() }),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    async fn ask(&self, call: Call<'_>) -> Result<Bytes, Error> {
        let Call { path, message, token, timeout } = call;
        let body = Outgoing { first: Some(envelope(message)), rest: None };
        let mut request = self.request(path, body, token)?;
        let millis = format!("{}m", timeout.as_millis().clamp(1, 99_999_999));
        let millis = HeaderValue::try_from(millis).expect("digits make a header");
        request.headers_mut().insert("grpc-timeout", millis);
        let calling = async {
            let mut stream = Stream::new(self.send(request).await?, None);
            let answer = stream.take_message().await?;
            stream.end().await?;
            Ok(answer)
        };
        within(timeout, calling).await
    }

    async fn converse(&self, call: Call<'_>) -> Result<Stream, Error> {
        let Call { path, message, token, timeout } = call;
        let (sender, rest) = mpsc::channel(QUESTIONS_MAX);
        let body = Outgoing { first: Some(envelope(message)), rest: Some(rest) };
        let mut request = self.request(path, body, token)?;
        // etcd ends streams that ask for this when their member loses its leader.
        request.headers_mut().insert("hasleader", HeaderValue::from_static("true"));
        let response = within(timeout, self.send(request)).await?;
        Ok(Stream::new(response, Some(sender)))
    }

    fn request(
        &self,
        path: &str,
        body: Outgoing,
        token: Option<&HeaderValue>,
    ) -> Result<Request<Outgoing>, Error> {
        let mut request = Request::post(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .body(body)
            .map_err(|why| Error::Config(format!("endpoint {}: {why}", self.base)))?;
        if let Some(token) = token {
            request.headers_mut().insert("token", token.clone());
        }
        Ok(request)
    }

    async fn send(&self, request: Request<Outgoing>) -> Result<Response<Incoming>, Error> {
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(|why| Error::broken(&why))?;
        let response = sender.send_request(request).await.map_err(|why| Error::broken(&why))?;
        if response.status() != StatusCode::OK {
            return Err(Error::Transport(format!("HTTP status {}", response.status())));
        }
        Ok(response)
    }
}

/// A conversation with the server.
#[derive(Debug)]
struct Stream {
    body: Incoming,
    frames: Frames,
    /// What a server that has nothing to say but its status puts into the headers.
    early: Option<HeaderMap>,
    /// Keeps our side open.
    sender: Option<mpsc::Sender<Bytes>>,
}

impl Stream {
    fn new(response: Response<Incoming>, sender: Option<mpsc::Sender<Bytes>>) -> Self {
        let (head, body) = response.into_parts();
        let early = head.headers.contains_key("grpc-status").then_some(head.headers);
        Self { body, frames: Frames::default(), early, sender }
    }

    async fn take_message(&mut self) -> Result<Bytes, Error> {
        loop {
            if let Some(message) = self.frames.next_message()? {
                return Ok(message);
            }
            self.take_frame().await?;
        }
    }

    /// Waits for the status of a call that has been answered.
    async fn end(&mut self) -> Result<(), Error> {
        loop {
            match self.take_frame().await {
                Ok(()) if self.frames.is_partial() => {
                    return Err(Error::Malformed("one answer was asked for"));
                }
                Ok(()) => {}
                Err(Error::Transport(why)) if why == ENDED => return Ok(()),
                Err(why) => return Err(why),
            }
        }
    }

    async fn take_frame(&mut self) -> Result<(), Error> {
        if let Some(Err(why)) = self.early.take().as_ref().and_then(status) {
            return Err(why);
        }
        let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(why)) => return Err(Error::broken(&why)),
            None => return Err(Error::Transport("the stream has ended without a status".into())),
        };
        if let Some(bytes) = frame.data_ref() {
            self.frames.extend(bytes);
            return Ok(());
        }
        match frame.trailers_ref().and_then(status) {
            Some(Err(why)) => Err(why),
            _ => Err(Error::Transport(ENDED.into())),
        }
    }
}

impl Conversation for Stream {
    fn next_message(&mut self) -> Asked<'_, Bytes> {
        Box::pin(self.take_message())
    }

    fn say(&self, message: &[u8]) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.try_send(envelope(message)).is_ok())
    }
}

/// What we say in a call: one message, and more as long as somebody holds the other end.
#[derive(Debug)]
struct Outgoing {
    first: Option<Bytes>,
    rest: Option<mpsc::Receiver<Bytes>>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let next = match (this.first.take(), &mut this.rest) {
            (Some(first), _) => Poll::Ready(Some(first)),
            (None, Some(rest)) => rest.poll_recv(cx),
            (None, None) => Poll::Ready(None),
        };
        next.map(|it| it.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_none()
    }
}

async fn encrypted(
    socket: TcpStream,
    endpoint: &Endpoint,
    tls: Option<&Tls>,
) -> Result<http2::SendRequest<Outgoing>, Error> {
    let Some(tls) = tls else {
        return Err(Error::Config(format!("{endpoint} wants TLS, and no CA is configured")));
    };
    #[cfg(feature = "tls")]
    return spoken(super::tls::connect(tls, endpoint, socket).await?).await;
    #[cfg(not(feature = "tls"))]
    {
        let _ = socket;
        match *tls {}
    }
}

/// Where a member is, whose name is looked up anew each time. A resolver passes over a name server
/// that is away, and takes longer for that than a connection may.
async fn addresses(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Error> {
    let (host, port) = (endpoint.host.clone(), endpoint.port);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![(ip, port).into()]);
    }
    let find = move || (host, port).to_socket_addrs().map(Vec::from_iter);
    let hand = Hand::ready("fleet-names").map_err(|why| Error::broken(&why))?;
    let finding = async { hand.ask(find).await.map_err(|why| Error::broken(&why)) };
    within(NAMES_WITHIN, finding).await
}

/// Speaks HTTP/2 over a connection. The task that moves its bytes ends with it.
async fn spoken<S>(socket: S) -> Result<http2::SendRequest<Outgoing>, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let (sender, connection) =
        builder.handshake(TokioIo::new(socket)).await.map_err(|why| Error::broken(&why))?;
    tokio::spawn(async move {
        // Its failure is seen by every call on it.
        let _ = connection.await;
    });
    Ok(sender)
}

pub(super) async fn within<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(timeout, work).await.unwrap_or(Err(Error::Timeout))
}

/// Twice what a resolver waits for one name server.
const NAMES_WITHIN: Duration = Duration::from_secs(10);
/// etcd closes connections that ping more often than every five seconds.
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_WITHIN: Duration = Duration::from_secs(5);
const HEADER_BYTES_MAX: u32 = 16 << 10;
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Questions that wait on one stream.
const QUESTIONS_MAX: usize = 4;
const ENDED: &str = "the server has ended the stream";

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    #[tokio::test]
    async fn an_address_that_says_nothing_takes_no_time_from_the_next() {
        let full = TcpSocket::new_v4().unwrap();
        full.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let full = full.listen(0).unwrap();
        let silent = full.local_addr().unwrap();
        let _first = TcpStream::connect(silent).await.unwrap();
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::parse("http://etcd.example:2379").unwrap();
        let within = Duration::from_secs(1);
        let connect = async |to: &[SocketAddr]| {
            Channel::connect_to_one(to, &endpoint, None, within).await.map(|_| ())
        };
        assert_eq!(connect(&[silent]).await, Err(Error::Timeout));
        assert_eq!(connect(&[silent, live.local_addr().unwrap()]).await, Ok(()));
        assert!(matches!(connect(&[]).await, Err(Error::Transport(_))));
    }
}

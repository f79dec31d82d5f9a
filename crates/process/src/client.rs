//! Requests over HTTP/1 to a process of ours, or to one beside it. Answers are bounded and trusted
//! with nothing; a slow server is the caller's to give up.

use std::io::{self, Read};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Collected, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// A request of this method for this path, to a server that is called like this, with a secret
/// where it takes one.
pub fn request(
    method: &str,
    path: &str,
    host: &str,
    secret: Option<&[u8]>,
    body: String,
) -> io::Result<Request<String>> {
    let mut made = Request::builder().method(method).uri(path).header(header::HOST, host);
    if let Some(secret) = secret {
        made = made.header(header::AUTHORIZATION, [b"Bearer ", secret].concat());
    }
    made.body(body).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// A connection, for requests of which each follows the answer of the one before.
async fn connect<S>(stream: S) -> io::Result<SendRequest<String>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connecting =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream));
    let (sender, connection) = connecting.await.map_err(as_io)?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Sends one request through a connection of its own; the head of the answer.
pub async fn ask<S>(stream: S, request: Request<String>) -> io::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    connect(stream).await?.send_request(request).await.map_err(as_io)
}

/// What an answer of status 200 holds, of so many bytes at the most.
pub async fn body(answer: Response<Incoming>, bytes_max: usize) -> io::Result<Bytes> {
    if answer.status() != StatusCode::OK {
        let status = answer.status().as_u16();
        return Err(io::Error::other(format!("the answer has status {status}")));
    }
    let whole = Limited::new(answer.into_body(), bytes_max).collect().await;
    whole.map(Collected::to_bytes).map_err(io::Error::other)
}

/// How long a server may be silent.
pub struct Patience {
    /// How often `judge` is asked meanwhile.
    pub look_every: Duration,
    /// Gives a server up that was silent for so long.
    pub judge: Box<dyn FnMut(Duration) -> io::Result<()> + Send>,
}

impl Patience {
    /// One that ends after this time.
    pub fn of(time: Duration) -> Self {
        Self { look_every: time, judge: Box::new(|_| Err(io::ErrorKind::TimedOut.into())) }
    }

    fn wait<T>(&mut self, runtime: &Runtime, awaited: impl Future<Output = T>) -> io::Result<T> {
        runtime.block_on(async {
            let (mut awaited, mut silent) = (pin!(awaited), Duration::ZERO);
            loop {
                if let Ok(done) = timeout(self.look_every, awaited.as_mut()).await {
                    return Ok(done);
                }
                silent += self.look_every;
                (self.judge)(silent)?;
            }
        })
    }
}

/// A connection for code that does nothing else meanwhile.
pub struct BlockingClient {
    runtime: Runtime,
    patience: Patience,
    sender: SendRequest<String>,
}

impl BlockingClient {
    /// One over what is opened.
    pub fn open<S, F>(mut patience: Patience, open: impl FnOnce() -> F) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = io::Result<S>>,
    {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let opening = async { connect(open().await?).await };
        let sender = patience.wait(&runtime, opening)??;
        Ok(Self { runtime, patience, sender })
    }

    /// Sends a request. Its answer is read as it comes.
    pub fn ask(mut self, request: Request<String>) -> io::Result<Answer> {
        let answering = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let answer = self.patience.wait(&self.runtime, answering)?.map_err(as_io)?;
        let status = answer.status().as_u16();
        Ok(Answer { status, client: self, body: answer.into_body(), rest: Bytes::new() })
    }
}

/// An answer whose body is read as it comes.
pub struct Answer {
    /// What the server says of the request.
    pub status: u16,
    client: BlockingClient,
    body: Incoming,
    rest: Bytes,
}

impl Answer {
    /// All of the body, as text, of so many bytes at the most; and the connection, where it takes
    /// another request.
    pub fn text(mut self, bytes_max: u64) -> io::Result<(String, Option<BlockingClient>)> {
        let mut bytes = Vec::new();
        if self.by_ref().take(bytes_max + 1).read_to_end(&mut bytes)? as u64 > bytes_max {
            return Err(io::Error::other(format!("the answer has over {bytes_max} bytes")));
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok((text, Some(self.client).filter(|it| !it.sender.is_closed())))
    }
}

impl Read for Answer {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Self { client, body, rest, .. } = self;
        while rest.is_empty() {
            match client.patience.wait(&client.runtime, body.frame())? {
                None => return Ok(0),
                Some(frame) => *rest = frame.map_err(as_io)?.into_data().unwrap_or_default(),
            }
        }
        let part = rest.split_to(buf.len().min(rest.len()));
        buf[..part.len()].copy_from_slice(&part);
        Ok(part.len())
    }
}

/// The socket's own error where there is one. `InvalidData` is what is not HTTP, and
/// `UnexpectedEof` a connection that ended before its answer.
#[expect(clippy::needless_pass_by_value, reason = "map_err gives it")]
fn as_io(why: hyper::Error) -> io::Error {
    use std::error::Error;
    if let Some(io) = why.source().and_then(|it| it.downcast_ref::<io::Error>()) {
        return io::Error::new(io.kind(), io.to_string());
    }
    let kind =
        if why.is_parse() { io::ErrorKind::InvalidData } else { io::ErrorKind::UnexpectedEof };
    io::Error::new(kind, why.to_string())
}

/// Far more than any answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{SocketAddr, TcpListener};
    use std::thread::{JoinHandle, spawn};

    use tokio::net::TcpStream;

    use super::*;

    /// Answers one connection's requests by these texts, and returns what it was asked.
    fn serve(texts: &'static [&'static str]) -> (SocketAddr, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let serve = move || {
            let (mut stream, _) = listener.accept().expect("it comes");
            let asked = texts.iter().map(|text| {
                let mut heard = Vec::new();
                let mut byte = [0];
                while !heard.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).expect("a whole request");
                    heard.push(byte[0]);
                }
                stream.write_all(text.as_bytes()).expect("it listens");
                String::from_utf8(heard).expect("text")
            });
            asked.collect()
        };
        (address, spawn(serve))
    }

    fn get(path: &str) -> Request<String> {
        request("GET", path, "t", None, String::new()).expect("a request")
    }

    fn client(server: SocketAddr) -> BlockingClient {
        let patience = Patience::of(Duration::from_secs(20));
        BlockingClient::open(patience, || TcpStream::connect(server)).expect("it listens")
    }

    fn asked(text: &'static str) -> Result<(u16, String), io::ErrorKind> {
        let (server, _) = serve(Box::leak(Box::new([text])));
        let answer = client(server).ask(get("/")).map_err(|why| why.kind())?;
        Ok((answer.status, answer.text(30).map_err(|why| why.kind())?.0))
    }

    #[test]
    fn answers_are_read_as_far_as_they_say() {
        let whole = "HTTP/1.1 200 OK\r\ncontent-LENGTH: 4\r\n\r\nabcdef";
        assert_eq!(asked(whole), Ok((200, "abcd".to_owned())));
        let to_the_end = "HTTP/1.0 422 Unprocessable Entity\r\na: b\r\n\r\nbody\r\n\r\nmore";
        assert_eq!(asked(to_the_end), Ok((422, "body\r\n\r\nmore".to_owned())));
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc";
        assert_eq!(asked(cut), Err(io::ErrorKind::UnexpectedEof));
        let long = "HTTP/1.0 200 OK\r\n\r\n0123456789012345678901234567890";
        assert_eq!(asked(long), Err(io::ErrorKind::Other), "it is not kept");
    }

    #[test]
    fn a_status_is_that_of_http() {
        assert_eq!(asked("HTTP/1.1 204 No Content\r\n\r\n"), Ok((204, String::new())));
        for other in ["SSH-2.0 200\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 abc\r\n\r\n"] {
            assert_eq!(asked(other), Err(io::ErrorKind::InvalidData), "{other:?}");
        }
        for cut in ["", "HTTP/1.1 200 OK\r\n"] {
            assert_eq!(asked(cut), Err(io::ErrorKind::UnexpectedEof), "{cut:?}");
        }
    }

    #[test]
    fn one_connection_takes_one_request_after_another_until_it_is_said_to_close() {
        let (server, asked) = serve(&[
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nb",
        ]);
        let with = |secret| request("GET", "/first", "t", Some(secret), String::new());
        let first = with(b"secret").expect("a request");
        assert!(with(b"a\nb").is_err(), "two lines");
        let (text, client) = client(server).ask(first).expect("it answers").text(9).expect("read");
        let second = client.expect("it is open").ask(get("/second")).expect("it answers");
        let (more, closed) = second.text(9).expect("read");
        assert_eq!((text + &more, closed.is_none()), ("ab".to_owned(), true));
        let asked = asked.join().expect("it ends");
        assert!(asked[0].starts_with("GET /first HTTP/1.1\r\nhost: t\r\n"), "{asked:?}");
        assert!(asked[0].contains("authorization: Bearer secret\r\n"), "{asked:?}");
        assert!(!asked[1].contains("secret"), "{asked:?}");
    }

    #[test]
    fn a_silent_server_is_given_up_when_the_caller_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let server = listener.local_addr().expect("bound");
        let judge = |silent| match silent {
            it if it < Duration::from_millis(3) => Ok(()),
            _ => Err(io::Error::other("enough")),
        };
        let patience = Patience { look_every: Duration::from_millis(1), judge: Box::new(judge) };
        let client = BlockingClient::open(patience, || TcpStream::connect(server));
        let asked = client.expect("the kernel connects").ask(get("/"));
        assert_eq!(asked.map(drop).expect_err("it is silent").to_string(), "enough");
    }
}

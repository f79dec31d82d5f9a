//! A caller: HTTP/1.1 as most programs speak it, by hand, so that it can be wrong on purpose.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The name of a refusal.
    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }
}

/// A request with these lines in its head, on a connection of its own.
pub(crate) async fn ask(
    to: SocketAddr,
    method: &str,
    path: &str,
    head: &str,
    body: &str,
) -> Answer {
    let stream = TcpStream::connect(to).await.expect("somebody listens");
    converse(stream, method, path, head, body).await
}

pub(crate) async fn converse<S>(
    stream: S,
    method: &str,
    path: &str,
    head: &str,
    body: &str,
) -> Answer
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: tokens\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n{body}"
    );
    say(stream, request.as_bytes()).await.expect("it answers")
}

/// Sends these bytes and reads the answer; `None` if there is none.
pub(crate) async fn say<S>(mut stream: S, bytes: &[u8]) -> Option<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Whoever refuses early may have closed already; what it said is there to be read.
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// A matchmaker's request.
pub(crate) async fn post(to: SocketAddr, path: &str, body: &str) -> Answer {
    ask(to, "POST", path, "Authorization: Bearer matchmaker-secret\r\n", body).await
}

/// Sends a request for a token on a connection that stays.
pub(crate) async fn begin(stream: &mut TcpStream, secret: &str, body: &str) {
    let length = body.len();
    let request = format!(
        "POST /v1/tokens HTTP/1.1\r\nHost: tokens\r\nAuthorization: Bearer {secret}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    // Where the connection has ended, no answer will say so.
    let _ = stream.write_all(request.as_bytes()).await;
}

/// Reads one answer, and leaves the connection as it is; `None` where it has ended.
pub(crate) async fn read_one(stream: &mut TcpStream) -> Option<Answer> {
    let mut text = String::new();
    let head = loop {
        let mut some = [0; 4096];
        match stream.read(&mut some).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => text.push_str(&String::from_utf8_lossy(&some[..count])),
        }
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            break head.to_ascii_lowercase();
        }
    };
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length: usize = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
    while text.len() < head.len() + 4 + length {
        let mut some = [0; 4096];
        match stream.read(&mut some).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => text.push_str(&String::from_utf8_lossy(&some[..count])),
        }
    }
    Some(Answer { status, body: text.split_off(head.len() + 4), head })
}

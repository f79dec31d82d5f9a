//! One GET over HTTP/1.0, to a process beside this one. Who is slow is the caller's to give up.

use std::io;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, HeaderValue, USER_AGENT};
use hyper::{Response, Version};
use ringgate_process::client;
use tokio::net::TcpStream;

use crate::config::hosted::Url;

/// The status of the answer. What follows is not waited for.
pub(super) async fn status(url: &Url) -> io::Result<u16> {
    ask(url).await.map(|answer| answer.status().as_u16())
}

/// What the answer of status 200 holds.
pub(super) async fn body(url: &Url) -> io::Result<bytes::Bytes> {
    client::body(ask(url).await?, ANSWER_BYTES_MAX).await
}

async fn ask(url: &Url) -> io::Result<Response<Incoming>> {
    let Url { address, path } = url;
    let mut request = client::request("GET", path, &address.to_string(), None, String::new())?;
    *request.version_mut() = Version::HTTP_10;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static("ringgate"));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    client::ask(TcpStream::connect(address).await?, request).await
}

/// A description of a game server has some kilobytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

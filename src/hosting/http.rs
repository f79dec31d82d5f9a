//! One GET over HTTP/1.0, to a process beside this one. Its answer is bounded and trusted with
//! nothing; who is slow is the caller's to give up.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::hosted::Url;

/// The status of the answer. What follows is not waited for.
pub(super) async fn status(url: &Url) -> io::Result<u16> {
    let mut stream = ask(url).await?;
    let mut head = Vec::new();
    while !head.contains(&b'\n') {
        if !read_more(&mut stream, &mut head).await? {
            break;
        }
    }
    status_of(&head)
}

/// What the answer of status 200 holds.
pub(super) async fn body(url: &Url) -> io::Result<Vec<u8>> {
    let mut stream = ask(url).await?;
    let mut answer = Vec::new();
    loop {
        if let Some(body) = whole_body(&answer) {
            return Ok(body);
        }
        if !read_more(&mut stream, &mut answer).await? {
            break;
        }
    }
    match status_of(&answer)? {
        200 => {}
        status => return Err(io::Error::other(format!("the answer has status {status}"))),
    }
    let start = body_start(&answer).ok_or_else(|| io::Error::other("the answer has no end"))?;
    Ok(answer.split_off(start))
}

async fn ask(url: &Url) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(url.address).await?;
    let (path, address) = (&url.path, url.address);
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {address}\r\nUser-Agent: ringgate\r\nAccept: */*\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// False where nothing more comes.
async fn read_more(stream: &mut TcpStream, into: &mut Vec<u8>) -> io::Result<bool> {
    if into.len() >= ANSWER_BYTES_MAX {
        return Err(io::Error::other(format!("the answer has over {ANSWER_BYTES_MAX} bytes")));
    }
    Ok(stream.read_buf(into).await? > 0)
}

fn status_of(head: &[u8]) -> io::Result<u16> {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = str::from_utf8(line).unwrap_or_default().split_ascii_whitespace();
    let speaks = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let status = words.next().and_then(|word| word.parse().ok());
    status.filter(|_| speaks).ok_or_else(|| io::Error::other("the answer is not HTTP's"))
}

fn body_start(answer: &[u8]) -> Option<usize> {
    Some(answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4)
}

/// The body of an answer of status 200 that says how long it is, once all of it is there.
fn whole_body(answer: &[u8]) -> Option<Vec<u8>> {
    let start = body_start(answer)?;
    let head = str::from_utf8(&answer[..start]).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    let is_whole = status_of(answer).is_ok_and(|status| status == 200);
    let end = start.checked_add(length)?;
    (is_whole && answer.len() >= end).then(|| answer[start..end].to_vec())
}

/// A description of a game server has some kilobytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_far_as_they_say() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 4\r\n\r\n";
        assert_eq!(whole_body(&[head, &b"abc"[..]].concat()), None, "one byte is missing");
        assert_eq!(whole_body(&[head, &b"abcdef"[..]].concat()).as_deref(), Some(&b"abcd"[..]));
        assert_eq!(whole_body(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), None);
        assert_eq!(whole_body(b"HTTP/1.0 200 OK\r\n\r\nabc"), None, "its end is the stream's");
        let long = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", usize::MAX);
        assert_eq!(whole_body(long.as_bytes()), None);
    }

    #[test]
    fn a_status_is_that_of_http() {
        assert_eq!(status_of(b"HTTP/1.1 204 No Content\r\n").ok(), Some(204));
        for other in [&b""[..], b"\xff\n", b"SSH-2.0 200\r\n", b"HTTP/1.1\r\n", b"HTTP/1.1 abc\r\n"]
        {
            assert!(status_of(other).is_err());
        }
    }
}

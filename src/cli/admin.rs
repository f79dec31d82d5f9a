//! Talking to a running gateway: one HTTP request to its admin address, on a connection of its own.
//!
//! The pages are small, the server is ours, and nothing here is in a hurry, so a blocking socket and the few lines of HTTP
//! below do it. Headers are skipped up to the empty line; the server closes the connection after the body, because it is
//! asked to.

pub(super) mod page;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Failure;
use crate::config::values;

/// Where the gateway is.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Admin {
    /// The gateway's admin address, as `[admin] bind` in its config says
    #[arg(long = "admin", value_name = "ADDR", default_value = DEFAULT, value_parser = address)]
    pub(super) address: SocketAddr,
}

/// The address that the config has by default.
const DEFAULT: &str = "127.0.0.1:9464";

fn address(text: &str) -> Result<SocketAddr, String> {
    values::reachable_address(text)
        .ok_or_else(|| format!("found {text:?}, expected an IP:port such as {DEFAULT}"))
}

/// What the gateway answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Admin {
    /// Reads a page.
    pub(super) fn get(self, path: &str) -> Result<String, Failure> {
        let Answer { status, body } = self.ask("GET", path)?;
        match status {
            200 => Ok(body),
            _ => Err(self.unexpected(status, &body)),
        }
    }

    /// Presses a button.
    pub(super) fn post(self, path: &str) -> Result<Answer, Failure> {
        self.ask("POST", path)
    }

    /// Whether anybody is there.
    pub(super) fn answers(self) -> bool {
        self.exchange("GET", "/healthz").is_ok()
    }

    /// An answer that a gateway does not give.
    pub(super) fn unexpected(self, status: u16, body: &str) -> Failure {
        let line = body.lines().next().unwrap_or_default();
        Failure::failed(format_args!("{} answered with status {status}: {line}", self.address))
    }

    fn ask(self, method: &str, path: &str) -> Result<Answer, Failure> {
        let unreachable = |why: io::Error| {
            Failure::failed(format_args!(
                "no gateway answers at {}: {why} (is it running, and does its config have [admin]? --admin names another address)",
                self.address
            ))
        };
        let text = self.exchange(method, path).map_err(unreachable)?;
        parse(&text).ok_or_else(|| {
            Failure::failed(format_args!("what answers at {} is not a gateway", self.address))
        })
    }

    fn exchange(self, method: &str, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
            self.address
        )?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Status and body. HTTP/1.0 has neither chunks nor a connection that stays.
fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A reload reads files, and a busy machine may keep the control thread waiting.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Far more than any page.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let answer = parse("HTTP/1.0 422 Unprocessable Entity\r\na: b\r\n\r\nbody\r\n\r\nmore");
        let expected = Answer { status: 422, body: "body\r\n\r\nmore".to_owned() };
        assert_eq!(answer, Some(expected));
        for other in ["", "SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.0 \r\n\r\n", "HTTP/1.0 200 OK\r\n"] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn addresses_are_numbers() {
        assert!(address("127.0.0.1:9464").is_ok() && address(DEFAULT).is_ok());
        assert!(address("localhost:9464").is_err());
    }
}

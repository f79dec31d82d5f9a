//! The little of HTTP/1.1 that asking a token service takes: one request after the other on one
//! connection, answers with a length.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection to a service.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    service: SocketAddr,
    is_open: bool,
}

impl Connection {
    pub(super) fn open(service: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&service, CONNECT_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), service, is_open: true })
    }

    /// Whether another request may follow.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Posts a body of JSON; the answer's status and text.
    pub(super) fn post(
        &mut self,
        path: &str,
        secret: &str,
        body: &str,
    ) -> io::Result<(u16, String)> {
        let (service, length) = (self.service, body.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {service}\r\nAuthorization: Bearer {secret}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<(u16, String)> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|it| it.parse().ok());
        let status = status.ok_or_else(|| broken("it does not speak HTTP"))?;
        let mut length = None;
        for _ in 0..LINES_MAX {
            let line = self.line()?.to_ascii_lowercase();
            let Some((name, value)) = line.split_once(':') else {
                let length = length.ok_or_else(|| broken("its answer has no length"))?;
                return Ok((status, self.text(length)?));
            };
            match (name, value.trim()) {
                ("content-length", value) => length = value.parse().ok(),
                ("connection", "close") => self.is_open = false,
                _ => {}
            }
        }
        Err(broken("its answer has too many lines"))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        let read = self.stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }

    fn text(&mut self, length: usize) -> io::Result<String> {
        if length > BODY_BYTES_MAX {
            return Err(broken("its answer is too long"));
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| broken("its answer is no text"))
    }
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

const CONNECT_WITHIN: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const LINE_BYTES_MAX: u64 = 8 << 10;
const LINES_MAX: usize = 100;
const BODY_BYTES_MAX: usize = 64 << 10;

//! Talking to a running gateway: one HTTP request to its control socket, or to its admin address,
//! on a connection of its own.
//!
//! The pages are small, the server is ours, and nothing here is in a hurry, so a blocking socket
//! and the few lines of HTTP below do it. Headers are skipped up to the empty line; the server
//! closes the connection after the body.

pub(super) mod page;
mod patience;

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use zeroize::Zeroizing;

use self::patience::{ANSWER_WITHIN, LOOK_EVERY, Patient, Silence};
use super::{Failure, config_file};
use crate::config::{self, Token, values};
use ringgate_worker::handover::CONTROL_SOCKET;

/// Where the gateway is: by default the control socket in the `run_dir` that this host's config
/// file names, or in its default.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Place {
    /// The gateway's config file, to find the control socket in the `run_dir` it names
    #[arg(long, value_name = "FILE", conflicts_with_all = ["control", "admin"])]
    config: Option<PathBuf>,
    /// The gateway's control socket, or its folder [default: in the `run_dir` of this host's config
    /// file, or else in /run/ringgate]
    #[arg(long, value_name = "PATH", conflicts_with = "admin")]
    control: Option<PathBuf>,
    /// Ask over TCP: the gateway's admin address, as `[admin] bind` in its config says
    #[arg(long, value_name = "ADDR", value_parser = address)]
    admin: Option<SocketAddr>,
    /// The file with the token of `[admin] token`, for changes over TCP
    #[arg(long, alias = "token", value_name = "FILE", requires = "admin")]
    admin_token: Option<PathBuf>,
}

/// The same for commands that name nothing else, whose config file can stand by itself.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FilePlace {
    /// The gateway's config file, as with --config
    #[arg(value_name = "FILE", conflicts_with_all = ["config", "control", "admin"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

impl FilePlace {
    /// The gateway that the arguments mean.
    pub(super) fn find(&self) -> Result<Admin, Failure> {
        self.place.find_by(self.file.as_deref())
    }

    /// The config file that the arguments mean.
    pub(super) fn config(&self) -> Option<&Path> {
        self.file.as_deref().or_else(|| self.place.config())
    }
}

/// A name that a script has not forgotten to fill in.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_there = (!text.is_empty()).then(|| text.to_owned());
    is_there.ok_or_else(|| "found nothing, expected a name".to_owned())
}

/// Whom somebody means who says no more: a player by its client id, which is a number, or an
/// address.
pub(super) fn sort(whom: Option<&str>) -> (Option<&str>, Option<&str>) {
    let is_number = whom.is_some_and(|it| values::number(it).is_some());
    if is_number { (whom, None) } else { (None, whom) }
}

/// One backend.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OneBackend {
    /// Only this backend, and not the whole gateway
    #[arg(value_name = "BACKEND", conflicts_with = "backend", value_parser = name)]
    only: Option<String>,
    /// The same
    #[arg(long, value_name = "BACKEND", value_parser = name)]
    backend: Option<String>,
}

impl OneBackend {
    pub(super) fn name(&self) -> Option<&str> {
        self.only.as_deref().or(self.backend.as_deref())
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    values::reachable_address(text)
        .ok_or_else(|| format!("found {text:?}, expected an IP:port such as 127.0.0.1:9464"))
}

/// A gateway that can be asked.
#[derive(Clone, Debug)]
pub(super) struct Admin {
    target: Target,
    token: Option<Token>,
}

#[derive(Clone, Debug)]
enum Target {
    Socket(PathBuf),
    Tcp(SocketAddr),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl Place {
    /// The config file that the arguments name.
    pub(super) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The gateway that the arguments mean.
    pub(super) fn find(&self) -> Result<Admin, Failure> {
        self.find_by(None)
    }

    fn find_by(&self, file: Option<&Path>) -> Result<Admin, Failure> {
        let target = match (&self.admin, file.or_else(|| self.config()), &self.control) {
            (Some(address), ..) => Target::Tcp(*address),
            (None, Some(file), _) => Target::Socket(config::run_dir(file)?.join(CONTROL_SOCKET)),
            (None, None, Some(path)) if path.is_dir() => Target::Socket(path.join(CONTROL_SOCKET)),
            (None, None, Some(path)) => Target::Socket(path.clone()),
            (None, None, None) => Target::Socket(usual_run_dir()?.join(CONTROL_SOCKET)),
        };
        let read = |path: &PathBuf| {
            let bad = |why| Failure::bad_input(format_args!("--admin-token: {why}"));
            Token::file(path).map_err(bad)
        };
        Ok(Admin { target, token: self.admin_token.as_ref().map(read).transpose()? })
    }
}

/// The `run_dir` of this host's gateway. A file at the usual place that this user may not read, or
/// that has a mistake, is not in the way of who has named none.
fn usual_run_dir() -> Result<PathBuf, Failure> {
    if let Some(file) = config_file::from_environment() {
        return Ok(config::run_dir(&file)?);
    }
    let found = config_file::of_gateway().and_then(|file| config::run_dir(&file).ok());
    Ok(found.unwrap_or_else(|| RUN_DIR_DEFAULT.into()))
}

/// What the gateway answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Admin {
    /// The gateway that has this `run_dir`.
    pub(super) fn of_run_dir(run_dir: &Path) -> Self {
        Self { target: Target::Socket(run_dir.join(CONTROL_SOCKET)), token: None }
    }

    /// Reads a page.
    pub(super) fn get(&self, path: &str) -> Result<String, Failure> {
        let Answer { status, body } = self.ask("GET", path)?;
        match status {
            200 => Ok(body),
            _ => Err(self.unexpected(status, &body)),
        }
    }

    /// Asks for a page that may be refused.
    pub(super) fn fetch(&self, path: &str) -> Result<Answer, Failure> {
        self.ask("GET", path)
    }

    /// Changes something.
    pub(super) fn post(&self, path: &str) -> Result<Answer, Failure> {
        self.ask("POST", path)
    }

    /// Asks for something in which the process that was asked may end: `None` where it has ended
    /// without an answer.
    pub(super) fn ask_mortal(&self, path: &str) -> Result<Option<Answer>, Failure> {
        let (mut stream, host) = self.connect().map_err(|why| self.unreachable(&why))?;
        let sent = self.send(&mut stream, &host, "POST", path);
        let mut answer = Vec::new();
        let received = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
        if !answer.is_empty() {
            let text = String::from_utf8_lossy(&answer);
            return parse(&text).map(Some).ok_or_else(|| self.not_a_gateway());
        }
        match sent.and(received) {
            Err(why) if !is_end(&why) => Err(self.unreachable(&why)),
            _ => Ok(None),
        }
    }

    /// Begins to read an answer that comes as it is made. Reading fails when nothing has come for
    /// [`ANSWER_WITHIN`].
    pub(super) fn stream(&self, path: &str) -> Result<Box<dyn BufRead>, Failure> {
        let stream = self.connect().and_then(|(mut stream, host)| {
            self.send(&mut stream, &host, "GET", path)?;
            Ok(stream)
        });
        let mut answer = BufReader::new(stream.map_err(|why| self.unreachable(&why))?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let mut line = String::new();
            let len = answer.by_ref().take(HEAD_BYTES_MAX).read_line(&mut line);
            if len.map_err(|why| self.unreachable(&why))? == 0 {
                break;
            }
            head.push_str(&line);
        }
        match parse(&head) {
            Some(Answer { status: 200, .. }) => Ok(Box::new(answer)),
            Some(Answer { status, .. }) => {
                let mut body = String::new();
                let _ = answer.take(ANSWER_BYTES_MAX).read_to_string(&mut body);
                Err(match status {
                    400 | 404 => Failure::bad_input(body.trim_end()),
                    _ => self.unexpected(status, &body),
                })
            }
            None => Err(self.not_a_gateway()),
        }
    }

    /// How many bytes of names fit into the head of a request, as the gateway takes it there.
    pub(super) const fn names_bytes_max(&self) -> usize {
        match self.target {
            Target::Socket(_) => 60_000,
            Target::Tcp(_) => 7000,
        }
    }

    /// Whether anybody is there.
    pub(super) fn answers(&self) -> bool {
        self.exchange("GET", "/healthz").is_ok()
    }

    /// An answer that a gateway does not give.
    pub(super) fn unexpected(&self, status: u16, body: &str) -> Failure {
        let line = body.lines().next().unwrap_or_default();
        Failure::failed(format_args!("{} answered with status {status}: {line}", self.target))
    }

    fn ask(&self, method: &str, path: &str) -> Result<Answer, Failure> {
        let text = self.exchange(method, path).map_err(|why| self.unreachable(&why))?;
        parse(&text).ok_or_else(|| self.not_a_gateway())
    }

    fn not_a_gateway(&self) -> Failure {
        Failure::failed(format_args!("what answers at {} is not a gateway", self.target))
    }

    fn unreachable(&self, why: &io::Error) -> Failure {
        if let Some(silence) = why.get_ref().and_then(|it| it.downcast_ref::<Silence>()) {
            return Failure::failed(silence);
        }
        let hint = match (&self.target, why.kind()) {
            (Target::Tcp(_), _) => "is it running, and does its config have [admin]?",
            (Target::Socket(_), io::ErrorKind::PermissionDenied) => {
                "the control socket is for root and the daemon's own user"
            }
            (Target::Socket(_), _) => {
                "is it running? --config FILE finds it by its config, --control PATH and --admin ADDR say where it is"
            }
        };
        Failure::failed(format_args!("no gateway answers at {}: {why} ({hint})", self.target))
    }

    fn exchange(&self, method: &str, path: &str) -> io::Result<String> {
        let (mut stream, host) = self.connect()?;
        // A server that refuses at once may have closed already; what it said is there to be read.
        let sent = self.send(&mut stream, &host, method, path);
        let mut answer = Vec::new();
        let received = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
        if answer.is_empty() {
            sent?;
            received?;
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// A connection, and what its gateway is called.
    fn connect(&self) -> io::Result<(Patient, String)> {
        let place = self.target.to_string();
        match &self.target {
            Target::Socket(at) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                // It bounds the wait for a place in a queue that is full, too.
                socket.set_write_timeout(Some(ANSWER_WITHIN))?;
                socket.set_read_timeout(Some(LOOK_EVERY))?;
                socket.connect(&SockAddr::unix(at)?).map_err(|why| match why.kind() {
                    io::ErrorKind::WouldBlock => io::Error::other(Silence(format!(
                        "the process that holds {place} does not answer, and more commands wait for it than may"
                    ))),
                    _ => why,
                })?;
                Ok((Patient::local(UnixStream::from(socket), place), "localhost".to_owned()))
            }
            Target::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?;
                stream.set_read_timeout(Some(LOOK_EVERY))?;
                stream.set_write_timeout(Some(ANSWER_WITHIN))?;
                Ok((Patient::new(stream, place), address.to_string()))
            }
        }
    }

    fn send(
        &self,
        stream: &mut impl Write,
        host: &str,
        method: &str,
        path: &str,
    ) -> io::Result<()> {
        let token = self.token.as_ref();
        let token =
            token.map(|it| Zeroizing::new(format!("Authorization: Bearer {}\r\n", it.as_str())));
        let token = token.as_ref().map_or("", |line| line.as_str());
        let head = Zeroizing::new(format!(
            "{method} {path} HTTP/1.0\r\nHost: {host}\r\n{token}Content-Length: 0\r\n\r\n"
        ));
        stream.write_all(head.as_bytes())
    }
}

/// Whether the other process has closed its end, or its end has closed with it.
fn is_end(why: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(why.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Status and body. HTTP/1.0 has neither chunks nor a connection that stays.
fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

/// `run_dir` where the config does not say.
pub(super) const RUN_DIR_DEFAULT: &str = "/run/ringgate";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Far more than any line of our heads.
const HEAD_BYTES_MAX: u64 = 8192;

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
        assert!(address("127.0.0.1:9464").is_ok());
        assert!(address("localhost:9464").is_err());
    }
}

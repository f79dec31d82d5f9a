//! Talking to a running gateway: one HTTP request to its control socket, or to its admin address,
//! on a connection of its own. In HTTP/1.0, where the answer ends with the connection.

pub(super) mod page;
mod patience;

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringgate_process::client::{self, BlockingClient};
use serde::de::DeserializeOwned;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net;

use self::patience::{ANSWER_WITHIN, Silence};
use super::{Failure, config_file};
use ringgate_config::{self as config, Token, values};
use ringgate_process::handover::CONTROL_SOCKET;
use ringgate_report::text::Append as _;

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

/// Says in a request what may have been left unsaid.
pub(super) fn say(request: &mut String, name: &str, value: Option<impl fmt::Display>) {
    if let Some(value) = value {
        write!(request, "&{name}={value}");
    }
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
pub struct Admin {
    target: Target,
    token: Option<Token>,
    /// How long what it is asked for takes.
    takes: Duration,
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
            (None, Some(file), _) => Target::Socket(run_dir_of(file)?.join(CONTROL_SOCKET)),
            (None, None, Some(path)) if path.is_dir() => Target::Socket(path.join(CONTROL_SOCKET)),
            (None, None, Some(path)) => Target::Socket(path.clone()),
            (None, None, None) => Target::Socket(usual_run_dir()?.join(CONTROL_SOCKET)),
        };
        let read = |path: &PathBuf| {
            let bad = |why| Failure::bad_input(format_args!("--admin-token: {why}"));
            Token::file(path).map_err(bad)
        };
        let token = self.admin_token.as_ref().map(read).transpose()?;
        Ok(Admin { target, token, takes: Duration::ZERO })
    }
}

/// The `run_dir` that a file names. A gateway that runs is there whatever has become of its file.
fn run_dir_of(file: &Path) -> Result<PathBuf, Failure> {
    config::run_dir(file).map_err(|why| {
        eprintln!("the file does not say where its gateway is: --control PATH asks without it");
        why.into()
    })
}

/// The `run_dir` of this host's gateway. A file at the usual place that this user may not read, or
/// that has a mistake, is not in the way of who has named none.
pub fn usual_run_dir() -> Result<PathBuf, Failure> {
    if let Some(file) = config_file::from_environment() {
        return run_dir_of(&file);
    }
    let found = config_file::of_gateway().and_then(|file| config::run_dir(&file).ok());
    Ok(found.unwrap_or_else(|| RUN_DIR_DEFAULT.into()))
}

/// What the gateway answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's status.
    pub status: u16,
    pub(super) body: String,
}

impl Admin {
    /// The gateway that has this `run_dir`.
    pub fn of_run_dir(run_dir: &Path) -> Self {
        let target = Target::Socket(run_dir.join(CONTROL_SOCKET));
        Self { target, token: None, takes: Duration::ZERO }
    }

    /// The same, to be asked for what takes so long.
    pub(super) fn taking(&self, takes: Duration) -> Self {
        Self { takes, ..self.clone() }
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
    pub fn fetch(&self, path: &str) -> Result<Answer, Failure> {
        self.ask("GET", path)
    }

    /// Changes something.
    pub(super) fn post(&self, path: &str) -> Result<Answer, Failure> {
        self.ask("POST", path)
    }

    /// Changes something, or is told in words why not, with one of these statuses.
    pub(super) fn change<T: DeserializeOwned>(
        &self,
        path: &str,
        refusals: &[u16],
    ) -> Result<T, Failure> {
        self.read(&self.post(path)?, refusals)
    }

    /// What an answer says, or in words why there is none, with one of these statuses.
    pub fn read<T: DeserializeOwned>(
        &self,
        answer: &Answer,
        refusals: &[u16],
    ) -> Result<T, Failure> {
        let Answer { status, body } = answer;
        match (status, serde_json::from_str(body)) {
            (200, Ok(said)) => Ok(said),
            _ if refusals.contains(status) => Err(Failure::bad_input(body.trim_end())),
            _ => Err(self.unexpected(*status, body)),
        }
    }

    /// Asks for something in which the process that was asked may end: `None` where it has ended
    /// without an answer.
    pub(super) fn ask_mortal(&self, path: &str) -> Result<Option<Answer>, Failure> {
        match self.exchange("POST", path) {
            Ok(answer) => Ok(Some(answer)),
            Err(why) if is_end(&why) => Ok(None),
            Err(why) => Err(self.unanswered(&why)),
        }
    }

    /// Begins to read an answer that comes as it is made. Reading fails when nothing has come for
    /// [`ANSWER_WITHIN`].
    pub fn stream(&self, path: &str) -> Result<Box<dyn BufRead>, Failure> {
        let answer = self.begin("GET", path).map_err(|why| self.unanswered(&why))?;
        let status = answer.status;
        if status == 200 {
            return Ok(Box::new(BufReader::new(answer)));
        }
        let (body, _) = answer.text(ANSWER_BYTES_MAX).unwrap_or_default();
        Err(match status {
            400 | 404 => Failure::bad_input(body.trim_end()),
            _ => self.unexpected(status, &body),
        })
    }

    /// How many bytes of names fit into the head of a request, as the gateway takes it there.
    pub(super) const fn names_bytes_max(&self) -> usize {
        match self.target {
            Target::Socket(_) => 60_000,
            Target::Tcp(_) => 7000,
        }
    }

    /// Whether a process is there; an error where that cannot be said.
    pub(super) fn is_there(&self) -> Result<bool, Failure> {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        match self.exchange("GET", "/healthz") {
            Ok(_) => Ok(true),
            Err(why) if matches!(why.kind(), ConnectionRefused | NotFound) => Ok(false),
            // It may end between taking a question and answering it, or have too many.
            Err(why) if is_end(&why) => Ok(true),
            Err(why) => Err(self.unanswered(&why)),
        }
    }

    /// An answer that a gateway does not give.
    pub(super) fn unexpected(&self, status: u16, body: &str) -> Failure {
        let token = match (status, &self.token) {
            (401 | 403, None) => Some("--admin-token FILE has to be"),
            (401, Some(_)) => Some("the token is not"),
            // Who shows the right one is told more than that.
            _ => None,
        };
        if let (Target::Tcp(address), Some(token)) = (&self.target, token) {
            return Failure::failed(format_args!(
                "{address} refuses that (status {status}): {token} the one of [admin] token there; or ask on that host, through the control socket"
            ));
        }
        let line = body.lines().next().unwrap_or_default();
        Failure::failed(format_args!("{} answered with status {status}: {line}", self.target))
    }

    fn ask(&self, method: &str, path: &str) -> Result<Answer, Failure> {
        self.exchange(method, path).map_err(|why| self.unanswered(&why))
    }

    fn unanswered(&self, why: &io::Error) -> Failure {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        if !matches!(why.kind(), InvalidData | UnexpectedEof) {
            return self.unreachable(why);
        }
        // Only a gateway has a control socket; it may end between taking a question and answering.
        if let (Target::Socket(_), UnexpectedEof) = (&self.target, why.kind()) {
            return Failure::failed(format_args!(
                "no gateway answers at {}: the connection was closed without an answer, as by one that ends",
                self.target
            ));
        }
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

    fn exchange(&self, method: &str, path: &str) -> io::Result<Answer> {
        let answer = self.begin(method, path)?;
        Ok(Answer { status: answer.status, body: answer.text(ANSWER_BYTES_MAX)?.0 })
    }

    /// Sends a request; its answer is to be read.
    fn begin(&self, method: &str, path: &str) -> io::Result<client::Answer> {
        let host = match &self.target {
            Target::Socket(_) => "localhost".to_owned(),
            Target::Tcp(address) => address.to_string(),
        };
        let token = self.token.as_ref().map(|it| it.as_str().as_bytes());
        let path = encoded(path);
        let mut request = client::request(method, &path, &host, token, String::new())?;
        *request.version_mut() = hyper::Version::HTTP_10;
        self.connect()?.ask(request)
    }

    fn connect(&self) -> io::Result<BlockingClient> {
        let place = self.target.to_string();
        match &self.target {
            Target::Socket(at) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                // It bounds the wait for a place in a queue that is full.
                socket.set_write_timeout(Some(ANSWER_WITHIN))?;
                socket.connect(&SockAddr::unix(at)?).map_err(|why| match why.kind() {
                    io::ErrorKind::WouldBlock => io::Error::other(Silence(format!(
                        "the process that holds {place} does not answer, and more commands wait for it than may"
                    ))),
                    _ => why,
                })?;
                socket.set_nonblocking(true)?;
                let holder = patience::holder(socket.as_fd());
                let patience = patience::with(&place, holder, self.takes);
                let stream = UnixStream::from(socket);
                BlockingClient::open(patience, async || net::UnixStream::from_std(stream))
            }
            Target::Tcp(address) => {
                BlockingClient::open(patience::with(&place, None, self.takes), async || {
                    let connecting = net::TcpStream::connect(address);
                    tokio::time::timeout(CONNECT_TIMEOUT, connecting).await?
                })
            }
        }
    }
}

/// A path with what people have typed into its query, as a request may have it.
fn encoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/?&=:.,_-".contains(&byte) {
            text.push(byte.into());
        } else {
            write!(text, "%{byte:02x}");
        }
    }
    text
}

/// Whether the other process has closed its end, or its end has closed with it.
fn is_end(why: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(why.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// `run_dir` where the config does not say.
pub const RUN_DIR_DEFAULT: &str = "/run/ringgate";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Far more than any page.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Existing, write_private};

    #[test]
    fn who_shows_the_right_token_is_told_why_it_does_not_do() {
        let target = Target::Tcp(([127, 0, 0, 1], 9464).into());
        let mut admin = Admin { target, token: None, takes: Duration::ZERO };
        let why = "an upgrade is asked for through the control socket";
        let says = |admin: &Admin, status| admin.unexpected(status, why).to_string();
        assert!(says(&admin, 403).contains("--admin-token FILE has to be the one"));
        let file = std::env::temp_dir().join(format!("ringgate-token-{}", std::process::id()));
        write_private(&file, &[b'x'; 40], Existing::Replace).expect("ours");
        admin.token = Token::file(&file).ok();
        std::fs::remove_file(&file).expect("ours");
        assert!(admin.token.is_some() && says(&admin, 401).contains("the token is not the one"));
        assert!(says(&admin, 403).ends_with(why), "{}", says(&admin, 403));
    }

    #[test]
    fn addresses_are_numbers() {
        assert!(address("127.0.0.1:9464").is_ok());
        assert!(address("localhost:9464").is_err());
    }
}

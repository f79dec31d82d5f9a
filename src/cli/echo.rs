//! `ringgate echo`: a stand-in game server that sends every payload back, over either link.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Failure, exit};
use crate::link::backend::{Event, Options};

/// Answers every player with what it sent.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("link").required(true))]
pub(super) struct Args {
    /// Bundle link: the gateway's run directory, or one of the sockets in it
    #[arg(long, value_name = "PATH", group = "link")]
    socket: Option<PathBuf>,
    /// Udp link: where to listen
    #[arg(long, value_name = "ADDR", group = "link")]
    udp: Option<SocketAddr>,
    /// Bundle link: the backend's name in the gateway's config
    #[arg(long, value_name = "NAME", default_value = "echo")]
    name: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match (&args.socket, args.udp) {
        (Some(path), _) => echo_bundles(run_dir(path), &args.name),
        (None, Some(address)) => echo_udp(address),
        (None, None) => unreachable!("clap requires one of the two"),
    }
}

/// A game server connects to all workers, so it wants the directory; naming one of the sockets means the same.
fn run_dir(path: &Path) -> &Path {
    let is_socket = path.extension().is_some_and(|extension| extension == "sock");
    if is_socket { path.parent().unwrap_or(path) } else { path }
}

fn echo_bundles(run_dir: &Path, name: &str) -> Result<(), Failure> {
    let fail = |why| Failure::failed(format_args!("bundle link at {}: {why}", run_dir.display()));
    let mut backend = Options::new(run_dir, name).start().map_err(fail)?;
    exit::print(&format!("echo: backend {name} at {}\n", run_dir.display()))?;
    loop {
        backend.wait(None).map_err(fail)?;
        let mut events = backend.poll().map_err(fail)?;
        while let Some((event, outbox)) = events.next() {
            if let Event::Payload { session, bytes } = event {
                // A full link drops the answer, as the internet would; the outbox counts it.
                let _ = outbox.send(session, bytes);
            }
        }
        backend.flush();
    }
}

/// What an ordinary game server's socket loop does: it knows nothing of a gateway.
fn echo_udp(address: SocketAddr) -> Result<(), Failure> {
    let fail = |why| Failure::failed(format_args!("udp echo on {address}: {why}"));
    let socket = UdpSocket::bind(address).map_err(fail)?;
    let local = socket.local_addr().map_err(fail)?;
    exit::print(&format!("echo: udp on {local}\n"))?;
    let mut buffer = [0; DATAGRAM_BYTES_MAX];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((len, player)) => {
                let _ = socket.send_to(&buffer[..len], player);
            }
            // A player that has gone answers with a port unreachable, which is no trouble of ours.
            Err(why) if why.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(why) => {
                crate::os::clock::sleep(Duration::from_millis(10));
                tracing::warn!(%why, "receive");
            }
        }
    }
}

/// Anything longer than a payload is not a player's.
const DATAGRAM_BYTES_MAX: usize = 2048;

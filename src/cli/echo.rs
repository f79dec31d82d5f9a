//! `ringgate echo`: a stand-in game server that sends every payload and every whole message back,
//! over either link, or as an Unreal server would.

mod sockets;
mod unreal;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Failure, exit};
use crate::config::values;
use ringgate_bots::echo::Messages;
use ringgate_core::limits::TX_SLOT_BYTES;
use ringgate_io::Choice;
use ringgate_link::backend::{Event, LinkLoss, Options};
use ringgate_os::clock::{self, Clock};
use sockets::Sockets;

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
    /// Unreal servers, one at each address: until SIGTERM, then they say what they saw
    #[arg(long, value_name = "ADDR,…", group = "link", value_delimiter = ',')]
    unreal: Vec<SocketAddr>,
    /// Bundle link: the backend's name in the gateway's config
    #[arg(long, value_name = "NAME", default_value = "echo")]
    name: String,
    /// Bundle link: look and answer once in so long, as a game that ticks does, woken by nobody
    #[arg(long, value_name = "TIME", requires = "socket", value_parser = tick)]
    tick: Option<Duration>,
    #[command(flatten)]
    servers: unreal::UnrealArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match (&args.socket, args.udp) {
        (Some(path), _) => echo_bundles(run_dir(path), &args.name, args.tick),
        (None, Some(address)) => echo_udp(address),
        (None, None) => unreal::run(&args.unreal, &args.servers),
    }
}

/// A game server connects to all workers, so it wants the directory; naming one of the sockets
/// means the same.
fn run_dir(path: &Path) -> &Path {
    let is_socket = path.extension().is_some_and(|extension| extension == "sock");
    if is_socket { path.parent().unwrap_or(path) } else { path }
}

fn tick(text: &str) -> Result<Duration, String> {
    values::time_within(text, values::LASTING, "a duration such as 16ms")
}

fn echo_bundles(run_dir: &Path, name: &str, tick: Option<Duration>) -> Result<(), Failure> {
    let fail = |why| Failure::failed(format_args!("bundle link at {}: {why}", run_dir.display()));
    let mut backend = Options::new(run_dir, name).start().map_err(fail)?;
    exit::print(&format!("echo: backend {name} at {}\n", run_dir.display()))?;
    let (mut refusals, mut messages) = (Refusals::default(), Messages::default());
    let (clock, mut frame_ns) = (Clock::start(), 0);
    loop {
        let wait = messages.are_waiting().then_some(FULL_LINK_TURN);
        let wait = if tick.is_some() { Some(Duration::ZERO) } else { wait };
        let is_empty = !backend.wait(wait).map_err(fail)?;
        if let Some(tick) = tick.filter(|_| is_empty) {
            let now_ns = clock.now_ns();
            frame_ns = now_ns.max(frame_ns + tick.as_nanos() as u64);
            clock::sleep(Duration::from_nanos(frame_ns - now_ns));
        }
        let mut events = backend.poll().map_err(fail)?;
        while let Some((event, outbox)) = events.next() {
            match event {
                Event::Payload { session, bytes } => {
                    // A full link drops the answer, as the internet would; the outbox counts it.
                    let _ = outbox.send(session, bytes);
                }
                Event::Message { session, channel, bytes } => {
                    messages.answer(outbox, session, channel, bytes);
                }
                Event::Room { session, is_full, .. } => {
                    messages.tell_room(outbox, session, is_full);
                }
                Event::Closed { session, .. } => messages.forget(session),
                Event::LinkUp { worker, .. } => refusals.forget(worker),
                Event::LinkLost { worker, loss, .. } => {
                    messages.forget_worker(worker);
                    refusals.tell(worker, loss);
                }
                _ => {}
            }
        }
        messages.send_waiting(backend.outbox());
        backend.flush();
    }
}

/// Why links are down, said once for each worker: a link that is refused is tried again and again.
#[derive(Default)]
struct Refusals(HashMap<usize, LinkLoss>);

impl Refusals {
    fn tell(&mut self, worker: usize, loss: LinkLoss) {
        if self.0.insert(worker, loss) != Some(loss) {
            eprintln!("echo: worker {worker}: {loss}; trying again");
        }
    }

    fn forget(&mut self, worker: usize) {
        self.0.remove(&worker);
    }
}

/// What an ordinary game server's socket loop does, in batches: it knows nothing of a gateway. A
/// player that has gone answers with a port unreachable, which is ignored.
fn echo_udp(address: SocketAddr) -> Result<(), Failure> {
    let mut sockets = Sockets::open(Choice::Auto, &[address]).map_err(Failure::failed)?;
    for address in sockets.addresses() {
        exit::print(&format!("echo: udp on {address}\n"))?;
    }
    loop {
        let echo = |_, _, bytes: &[u8], out: &mut [u8; TX_SLOT_BYTES]| {
            // Anything longer is no payload.
            let len = if bytes.len() <= out.len() { bytes.len() } else { 0 };
            out[..len].copy_from_slice(&bytes[..len]);
            len
        };
        sockets
            .turn(IDLE_TURN, echo)
            .map_err(|why| Failure::failed(format_args!("udp echo on {address}: {why}")))?;
    }
}

/// So soon is a link tried again that had no room.
const FULL_LINK_TURN: Duration = Duration::from_millis(2);

/// Nothing but datagrams makes an echo speak.
const IDLE_TURN: Duration = Duration::from_mins(1);

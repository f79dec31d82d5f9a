//! `ringgate-loadgen serve`: a game server for players of the `game` shape.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ringgate_batch::{Batches, Endpoint, Flush, TxTarget};
use ringgate_bots::echo::Messages;
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{Choice, Driver, DriverOptions, SocketDriver, SocketKind, Wait};
use ringgate_link::backend::{self, Backend, Event};
use ringgate_link::bundle::SessionId;
use ringgate_os::clock::{self, Clock};
use ringgate_os::signals;

use super::outcome::{Failure, print};
use super::values::range;
use crate::players::traffic::{Traffic, server_half};
use crate::servers::game::{Game, Totals};
use crate::servers::stays::Stays;
use crate::text::count;

/// Plays the game server: speaks to every player at a pace of its own, and tells it what has
/// arrived.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("link").required(true))]
pub(super) struct Args {
    /// Bundle link: the gateway's run directory
    #[arg(long, value_name = "DIR", group = "link")]
    socket: Option<PathBuf>,
    /// Udp link: where to listen
    #[arg(long, value_name = "ADDR", group = "link")]
    udp: Option<SocketAddr>,
    /// Bundle link: the backend's name in the gateway's config
    #[arg(long, value_name = "NAME", default_value = "game")]
    name: String,
    /// Payloads per second to each player
    #[arg(long, value_name = "RATE", default_value_t = server_half().hz)]
    hz: f64,
    /// Payload size, or a range like 100-400; one in a hundred has 1200 bytes
    #[arg(long, value_name = "BYTES", value_parser = range, default_value = "100-400")]
    bytes: (u16, u16),
    /// Bundle link, players with --delivery: send messages back, take whoever is moved here, and
    /// say at the end which messages were heard in each player's stay
    #[arg(long, requires = "socket")]
    messages: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (bytes_min, bytes_max) = args.bytes;
    let traffic = Traffic { hz: args.hz, bytes_min, bytes_max, ..server_half() };
    traffic.check().map_err(Failure::BadInput)?;
    match (&args.socket, args.udp) {
        (Some(folder), _) => {
            let fail = |why| Failure::Failed(format!("bundle link at {}: {why}", folder.display()));
            let backend =
                backend::Options::new(folder, args.name.as_str()).start().map_err(fail)?;
            print(&format!("serve: backend {} at {}\n", args.name, folder.display()))?;
            if args.messages {
                let (signal, stays) = over_messages(backend).map_err(fail)?;
                print(&stays.to_string())?;
                return Err(Failure::Interrupted(signal, Vec::new()));
            }
            conclude(over_bundles(backend, traffic).map_err(fail)?)
        }
        (None, Some(address)) => conclude(
            over_udp(address, traffic)
                .map_err(|why| Failure::Failed(format!("{address}: {why}")))?,
        ),
        (None, None) => unreachable!("clap requires one of the two"),
    }
}

/// A game server plays until it is told to end; then it says what it heard and said.
fn conclude((signal, totals): (i32, Totals)) -> Result<(), Failure> {
    let Totals { heard, duplicates, corrupt, pushed } = totals;
    let [heard, duplicates, corrupt, pushed] = [heard, duplicates, corrupt, pushed].map(count);
    print(&format!(
        "serve: heard {heard} payloads, {duplicates} more for a second time, {corrupt} that no player of the generator wrote; sent {pushed}\n"
    ))?;
    Err(Failure::Interrupted(signal, Vec::new()))
}

fn over_bundles(mut backend: Backend, traffic: Traffic) -> std::io::Result<(i32, Totals)> {
    let clock = Clock::start();
    let mut game = Game::new(traffic, clock.now_ns(), clock::unix_ns());
    loop {
        backend.wait(Some(pause(&game, &clock)))?;
        let mut events = backend.poll()?;
        while let Some((event, _)) = events.next() {
            match event {
                Event::Payload { session, bytes } => game.hear(session, bytes, clock.now_ns()),
                Event::Closed { session, .. } => game.forget(session),
                _ => {}
            }
        }
        while {
            let outbox = backend.outbox();
            // What a full link does not take is dropped, as the internet would; the outbox counts
            // it, and the player misses it.
            game.speak(clock.now_ns(), clock::unix_ns(), BATCH, |session, bytes| {
                let _ = outbox.send(session, bytes);
            })
        } {}
        backend.flush();
        if let Some(signal) = signals::kept() {
            return Ok((signal, game.totals()));
        }
    }
}

fn over_messages(mut backend: Backend) -> std::io::Result<(i32, Stays<SessionId>)> {
    let (mut stays, mut messages) = (Stays::new(), Messages::default());
    loop {
        let wait = if messages.are_waiting() { FULL_LINK_NS } else { PAUSE_NS_MAX };
        backend.wait(Some(Duration::from_nanos(wait)))?;
        let mut events = backend.poll()?;
        while let Some((event, outbox)) = events.next() {
            match event {
                Event::Message { session, channel, bytes } => {
                    stays.hear(session, bytes);
                    messages.answer(outbox, session, channel, bytes);
                }
                Event::Room { session, is_full, .. } => {
                    messages.tell_room(outbox, session, is_full);
                }
                Event::Offered(offered) => {
                    // It has spoken of moves, so it knows the answer.
                    let _ = outbox.answer(offered.session, offered.offer, true);
                }
                Event::Moved { session, .. } | Event::Closed { session, .. } => {
                    stays.end(|key| key == session);
                    messages.forget(session);
                }
                Event::LinkLost { worker, .. } => {
                    stays.end(|key| key.worker() == worker);
                    messages.forget_worker(worker);
                }
                _ => {}
            }
        }
        messages.send_waiting(backend.outbox());
        backend.flush();
        if let Some(signal) = signals::kept() {
            return Ok((signal, stays));
        }
    }
}

fn over_udp(
    address: SocketAddr,
    traffic: Traffic,
) -> Result<(i32, Totals), Box<dyn std::error::Error>> {
    let options =
        DriverOptions { tx_datagrams: 2 * BATCH as u16, tx_bundles: 0, ..DriverOptions::default() };
    let mut driver = ringgate_io::open(Choice::Auto, &options)?;
    let options = UdpOptions { kernel_time: false, ..UdpOptions::default() };
    let opened = socket::player(address, &options)?;
    let local = opened.local;
    let socket = driver.register(opened.fd, SocketKind::Datagram)?;
    print(&format!("serve: udp on {local}\n")).map_err(|_| "stdout is gone")?;
    let clock = Clock::start();
    let mut game: Game<Endpoint> = Game::new(traffic, clock.now_ns(), clock::unix_ns());
    let source = ringgate_batch::LocalIp::UNSPECIFIED;
    loop {
        driver.turn(Wait::AtMost(pause(&game, &clock)))?;
        let Batches { rx, tx, mut out } = driver.batches();
        for (meta, bytes) in rx.iter_mut() {
            game.hear(meta.peer, bytes, clock.now_ns());
        }
        while {
            let more = game.speak(clock.now_ns(), clock::unix_ns(), BATCH, |player, bytes| {
                if tx.small_left() == 0 {
                    out.flush(tx);
                }
                if let Some(room) = tx.room() {
                    room.send_copy(bytes, TxTarget { socket, peer: Some(player), source }, 0);
                }
            });
            out.flush(tx);
            more
        } {}
        if let Some(signal) = signals::kept() {
            return Ok((signal, game.totals()));
        }
    }
}

fn pause<K: Copy + Eq + std::hash::Hash>(game: &Game<K>, clock: &Clock) -> Duration {
    let ns = game.poll_timeout().saturating_sub(clock.now_ns());
    Duration::from_nanos(ns.min(PAUSE_NS_MAX))
}

/// Players spoken to between two flushes.
const BATCH: usize = 256;

/// So soon is a link tried again that had no room.
const FULL_LINK_NS: u64 = 2_000_000;

/// An idle server looks around this often.
const PAUSE_NS_MAX: u64 = 100_000_000;

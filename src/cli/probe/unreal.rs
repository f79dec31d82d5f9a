//! An Unreal player: the engine's handshake, up to the acknowledgement with the server's cookie.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::super::Failure;
use super::line::Line;
use super::report::{Outcome, Report, SCHEMA, Step, ask_there, ms, network_means};
use super::witness::Witness;
use crate::config::values;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::client::{Client, Event, Profile};
use ringgate_core::proto::unreal::handshake::{TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::prefix::Magic;

/// What an engine has in its configuration and its build.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Engine {
    /// Unreal: the bits in front of every packet (net.MagicHeader), like 11011101
    #[arg(long, value_name = "BITS", default_value = "", value_parser = magic)]
    magic: Magic,
    /// Unreal: handshake version, 0 to 4
    #[arg(long, value_name = "N", default_value = "4", value_parser = version)]
    handshake_version: u8,
    /// Unreal: no network features in handshake packets, as in some engines of versions 2 and 3
    #[arg(long)]
    short_base: bool,
    /// Unreal: the build, as servers compare it (decimal or 0x…)
    #[arg(long, value_name = "N", default_value = "0x12345678", value_parser = build)]
    network_version: u32,
}

impl Engine {
    /// What such an engine says about itself.
    pub(super) fn profile(&self) -> Profile {
        let Self { magic, handshake_version, short_base, network_version } = *self;
        Profile::of_engine(magic, handshake_version, short_base, network_version)
    }
}

fn magic(text: &str) -> Result<Magic, String> {
    Magic::from_text(text).ok_or_else(|| "at most 32 digits, each 0 or 1".into())
}

fn version(text: &str) -> Result<u8, String> {
    let version = text.parse().ok().filter(|version| *version <= 4);
    version.ok_or_else(|| format!("found {text:?}, expected a version from 0 to 4"))
}

fn build(text: &str) -> Result<u32, String> {
    let number = values::number(text).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| format!("found {text:?}, expected a number of 32 bits"))
}

pub(super) fn probe(
    server: SocketAddr,
    profile: &Profile,
    patience: Duration,
    run_dir: Option<&Path>,
) -> Result<Report, Failure> {
    let line = Line::open(server)?;
    let witness = Witness::of(run_dir, line.local()?, patience);
    let (mut steps, began_ns) = (Vec::new(), line.now_ns());
    let outcome = go(&line, profile, patience, &mut steps)?;
    let (took_ms, from) = (ms(line.now_ns() - began_ns), line.local()?);
    let is_challenged = steps.len() > 1;
    let means = match witness {
        Some(witness) if outcome == Outcome::Silence => vec![witness.says(from)],
        _ => means(outcome, is_challenged, (server, from)),
    };
    Ok(Report { schema: SCHEMA, protocol: "unreal", server, from, outcome, steps, took_ms, means })
}

fn go(
    line: &Line,
    profile: &Profile,
    patience: Duration,
    steps: &mut Vec<Step>,
) -> Result<Outcome, Failure> {
    let mut client = Client::new(profile, line.now_ns());
    let (mut sent, mut since_ns, mut step) = (0, line.now_ns(), "initial");
    let patience_ns = patience.as_nanos() as u64;
    let mut buffer = [0; UNREAL_BYTES_MAX];
    let mut end = |step, found, sent, since_ns| {
        steps.push(Step::new(step, found, sent, Some(line.now_ns() - since_ns)));
    };
    loop {
        let now_ns = line.now_ns();
        if now_ns >= since_ns + patience_ns {
            end(step, "no answer", sent, since_ns);
            return Ok(Outcome::Silence);
        }
        if let Some(len) = client.poll_transmit(now_ns, &tail()?, &mut buffer) {
            sent += 1;
            if let Err(trouble) = line.send(&buffer[..len])? {
                end(step, "not sent", sent, since_ns);
                return Ok(trouble.into());
            }
        }
        let len = match line.receive(&mut buffer)? {
            Ok(Some(len)) => len,
            Ok(None) => continue,
            Err(trouble) => {
                end(step, "refused (ICMP)", sent, since_ns);
                return Ok(trouble.into());
            }
        };
        match client.handle_datagram(line.now_ns(), &buffer[..len]) {
            Ok(Event::Challenged) if step == "initial" => {
                end(step, "challenged", sent, since_ns);
                (sent, since_ns, step) = (0, line.now_ns(), "response");
            }
            Ok(Event::Connected(_)) => {
                end(step, "acknowledged with the server's cookie", sent, since_ns);
                return Ok(Outcome::Connected);
            }
            Ok(Event::WrongVersion) => {
                end(step, "this version is not served, says the server", sent, since_ns);
                return Ok(Outcome::WrongVersion);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

fn tail() -> Result<Tail, Failure> {
    let mut random = [0; TAIL_BYTES_MAX + 1];
    getrandom::fill(&mut random).map_err(Failure::failed)?;
    Ok(Tail::draw(&random))
}

fn means(
    outcome: Outcome,
    is_challenged: bool,
    (server, from): (SocketAddr, SocketAddr),
) -> Vec<String> {
    match outcome {
        Outcome::Silence if is_challenged => vec![
            "the address is proven and no server has let the player in: none is up, none has a free slot, or it does not serve this \
             build (`ringgate status` on the gateway)"
                .to_owned(),
            ask_there(from),
        ],
        Outcome::Silence => vec![
            "another magic, handshake version or base than the listener's, no server that answers, a drain, a denied address, or a \
             filter on the way"
                .to_owned(),
            ask_there(from),
        ],
        Outcome::WrongVersion => {
            vec!["the server has another build or handshake version than --network-version and --handshake-version say".to_owned()]
        }
        other => network_means(other, server),
    }
}

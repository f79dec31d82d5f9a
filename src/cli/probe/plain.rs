//! A player of any UDP game: something is sent, and any answer of the game's will do.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::super::Failure;
use super::line::Line;
use super::report::{Outcome, Report, SCHEMA, Step, ask_there, ms, network_means};
use super::witness::Witness;

pub(super) fn probe(
    server: SocketAddr,
    payload: &[u8],
    patience: Duration,
    run_dir: Option<&Path>,
) -> Result<Report, Failure> {
    let line = Line::open(server)?;
    let witness = Witness::of(run_dir, line.local()?, patience);
    let began_ns = line.now_ns();
    let until_ns = began_ns + patience.as_nanos() as u64;
    let (mut sent, mut due_ns) = (0, 0);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let (outcome, found) = loop {
        let now_ns = line.now_ns();
        if now_ns >= until_ns {
            break (Outcome::Silence, "no answer".to_owned());
        }
        if now_ns >= due_ns {
            due_ns = now_ns + SEND_EVERY_NS;
            sent += 1;
            if let Err(trouble) = line.send(payload)? {
                break (trouble.into(), "not sent".to_owned());
            }
        }
        match line.receive(&mut buffer)? {
            Ok(Some(len)) => break (Outcome::Connected, format!("answered with {len} bytes")),
            Ok(None) => {}
            Err(trouble) => break (trouble.into(), "refused (ICMP)".to_owned()),
        }
    };
    let (took_ns, from) = (line.now_ns() - began_ns, line.local()?);
    let means = match (outcome, witness) {
        (Outcome::Silence, Some(witness)) => vec![witness.says(from)],
        (Outcome::Silence, None) => vec![
            "the game does not answer this payload, the listener demands other first bytes, a token or a number, no backend is up or \
             has a free slot, or the source begins too often"
                .to_owned(),
            ask_there(from),
        ],
        (other, _) => network_means(other, server),
    };
    let steps = vec![Step::new("datagram", found, sent, Some(took_ns))];
    let took_ms = ms(took_ns);
    Ok(Report { schema: SCHEMA, protocol: "plain", server, from, outcome, steps, took_ms, means })
}

/// Of any datagram.
const DATAGRAM_BYTES_MAX: usize = 65_536;

const SEND_EVERY_NS: u64 = 250_000_000;

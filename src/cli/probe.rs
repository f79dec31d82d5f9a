//! `ringgate probe`: a real client that says at which step it fails, how long each step took, and
//! what that most probably means.
//!
//! It does what a player does, from where a player is: nothing of a gateway has to be reachable but
//! its public address. What a gateway does not answer it does not explain either, so silence has
//! several meanings here; a gateway on this host is asked which it was, as `ringgate trace` asks.

mod about;
mod args;
mod configured;
mod line;
mod netcode;
mod plain;
mod report;
mod unreal;
mod witness;

use super::Failure;
use super::exit::print;
pub(super) use args::Args;
use report::{Outcome, json, render};
use witness::here;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let report = match (&args.config, args.server) {
        (Some(file), _) => configured::probe(args, file)?,
        (None, Some(server)) if args.plain => {
            plain::probe(server, args.plain_payload(), args.timeout, here(server).as_deref())?
        }
        (None, Some(server)) if args.unreal => {
            let profile = args.engine.profile();
            unreal::probe(server, &profile, args.timeout, here(server).as_deref())?
        }
        _ => netcode::probe(args)?,
    };
    print(&if args.json { json(&report) } else { render(&report) })?;
    match report.outcome {
        Outcome::Connected => Ok(()),
        _ => {
            let why = report.means.first().map_or("not let in", |means| means.as_str());
            Err(Failure::failed(format_args!("{}: {why}", report.server)))
        }
    }
}

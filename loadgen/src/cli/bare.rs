//! `ringgate-loadgen bare-echo`: the other contender of `floor`, in a process of its own.

use std::net::SocketAddr;

use ringgate_io::Choice;
use ringgate_os::signals;

use super::outcome::{Failure, print};
use crate::servers::bare::Bare;

/// Echoes datagrams without looking at them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen, at one address or several
    #[arg(long, value_name = "ADDR,…", value_delimiter = ',', default_value = "127.0.0.1:0")]
    bind: Vec<SocketAddr>,
    /// Send everything through this game process
    #[arg(long, value_name = "ADDR")]
    behind: Option<SocketAddr>,
    /// Core to pin to
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Driver: auto, mmsg or uring
    #[arg(long, value_name = "NAME", value_parser = super::values::driver, default_value = "auto")]
    io: Choice,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(id) = args.core {
        core_affinity::set_for_current(core_affinity::CoreId { id });
    }
    let mut bare = Bare::open(args.io, &args.bind, args.behind)
        .map_err(|why| Failure::Failed(why.to_string()))?;
    for address in &bare.addresses {
        print(&format!("listening on {address}\n"))?;
    }
    // It ends when the process that started it has ended, so that none is left behind.
    let parent = std::os::unix::process::parent_id();
    bare.run(|| std::os::unix::process::parent_id() != parent || signals::kept().is_some())
        .map_err(|why| Failure::Failed(format!("bare echo: {why}")))
}

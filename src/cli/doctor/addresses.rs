//! The addresses of one config file against the sockets that there are: whether `ringgate run`
//! could bind them, by the same look that it takes itself.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::Finding;
use crate::config::Config;
use ringgate_os::diag::Transport;
use ringgate_os::owners;
use ringgate_worker::Holder;

/// Who is where the config wants to be. A gateway that runs from this very file is where it
/// belongs.
pub(super) fn in_use(config: &Config, file: &Path) -> Finding {
    let players = config.listeners.iter().flat_map(|listener| &listener.bind);
    let players = players.map(|address| (Transport::Udp, *address));
    let admin = config.admin.iter().map(|admin| (Transport::TcpListening, admin.bind));
    // Several may have one.
    let agents: BTreeSet<_> = config.agents.iter().map(|agent| agent.bind).collect();
    let agents = agents.into_iter().flat_map(|address| {
        [Transport::TcpListening, Transport::Udp].map(|transport| (transport, address))
    });
    let taken: Vec<(String, Holder)> = players
        .chain(admin)
        .chain(agents)
        .filter(|(_, address)| address.port() != 0)
        .filter_map(|(transport, address)| {
            Some((spelled(transport, address), ringgate_worker::holder(transport, address)?))
        })
        .collect();
    let what = "addresses";
    if taken.is_empty() {
        return Finding::ok(what, "free");
    }
    let is_this = |holder: &Holder| match holder {
        Holder::Process(process) => runs_from(process.pid, file),
        Holder::Ourselves | Holder::Unknown { .. } => false,
    };
    let found = |taken: &[(String, Holder)]| {
        let each: Vec<_> = taken.iter().map(|(where_, who)| format!("{where_}: {who}")).collect();
        each.join("; ")
    };
    let (served, foreign): (Vec<_>, Vec<_>) = taken.into_iter().partition(|it| is_this(&it.1));
    if foreign.is_empty() {
        return Finding::ok(what, format!("served from this file: {}", found(&served)));
    }
    Finding::ok(what, found(&foreign)).bites(
        "the gateway refuses to start while somebody else is there",
        "stop that process, or choose other addresses",
    )
}

fn spelled(transport: Transport, address: SocketAddr) -> String {
    match transport {
        Transport::Udp => format!("UDP {address}"),
        Transport::TcpListening => format!("TCP {address}"),
    }
}

/// Whether a process was started as `run --config FILE` with this file.
fn runs_from(pid: u32, file: &Path) -> bool {
    let words = owners::command_line(pid);
    let is_run = words.iter().any(|word| word == "run");
    let behind = words.iter().position(|word| word == "--config").and_then(|at| words.get(at + 1));
    let joined = words.iter().find_map(|word| word.strip_prefix("--config="));
    let Some(named) = behind.map(String::as_str).or(joined).filter(|_| is_run) else {
        return false;
    };
    // A relative path counts from where that process is, which only its user and root may ask.
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| PathBuf::from("/"));
    match (folder.join(named).canonicalize(), file.canonicalize()) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        _ => false,
    }
}

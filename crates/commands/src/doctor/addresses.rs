//! The addresses of one config file against the sockets that there are: whether `ringgate run`
//! could bind them, by the same look that it takes itself.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Parser;

use super::super::config_file::{GATEWAY, VARIABLE};
use super::Finding;
use crate::run_args;
use ringgate_config::Config;
use ringgate_os::diag::Transport;
use ringgate_os::owners;
use ringgate_os::owners::{Holder, holder};

/// Who is where the config wants to be. A gateway that runs from this very file is where it
/// belongs.
pub(super) fn in_use(config: &Config, file: &Path) -> Finding {
    let players = config.listeners.iter().flat_map(|listener| &listener.bind);
    let players = players.map(|address| (Transport::Udp, *address));
    let admin = config.admin.iter().map(|admin| (Transport::TcpListening, admin.bind));
    // Several agents may have one.
    let members = config.cluster.iter().map(|cluster| cluster.bind);
    let trunks: BTreeSet<_> = config.agents.iter().map(|it| it.bind).chain(members).collect();
    let trunks = trunks.into_iter().flat_map(|address| {
        [Transport::TcpListening, Transport::Udp].map(|transport| (transport, address))
    });
    let taken: Vec<(String, Holder)> = players
        .chain(admin)
        .chain(trunks)
        .filter(|(_, address)| address.port() != 0)
        .filter_map(|(transport, address)| {
            Some((spelled(transport, address), holder(transport, address)?))
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

/// What a process was told behind `run`.
#[derive(Parser)]
struct Told {
    #[command(flatten)]
    run: run_args::Args,
}

/// Whether a process was started to run a gateway with this file.
fn runs_from(pid: u32, file: &Path) -> bool {
    let words = owners::command_line(pid);
    if words.get(1).is_none_or(|word| word != "run") {
        return false;
    }
    let Ok(Told { run: told }) = Told::try_parse_from(&words[1..]) else { return false };
    let of_environment = || owners::variable(pid, VARIABLE).map(PathBuf::from);
    let named = told.config.named().or_else(of_environment).unwrap_or_else(|| GATEWAY.into());
    // A relative path counts from where that process is, which only its user and root may ask.
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| PathBuf::from("/"));
    match (folder.join(named).canonicalize(), file.canonicalize()) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        _ => false,
    }
}

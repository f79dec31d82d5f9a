//! `ringgate doctor`: what on this host gets in the gateway's way, and what to do about it.
//!
//! It reads and changes nothing. Every check is a function of files below one folder, which is `/`
//! here and a folder of samples in the tests; only whether io_uring works and what a sleep costs is
//! found out by trying it, and the kernel is asked who holds an address and what an interface can.

mod addresses;
mod agent;
#[cfg(feature = "xdp")]
mod card;
mod certificate;
mod cpu;
pub(super) mod finding;
mod fleet;
mod host;
mod kernel;
mod network;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::Failure;
use super::config_file::ConfigFile;
pub(super) use finding::{Finding, conclude, render};
pub use fleet::SESSION_BYTES;
use host::Host;
use ringgate_config::{self as config, Config, HostConfig, IoChoice};
use ringgate_io::{Choice, DriverOptions};
use ringgate_os::capabilities::{self, Capability};
use ringgate_os::clock;

/// Read kernel, limits, sysctls and network cards, and say what to change and why
///
/// The host is held against a config file too, where there is one: a gateway's, or an agent's.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigFile,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let findings = look(args.config.of_host().as_deref())?;
    conclude(&findings, args.json)
}

/// All that is found of this host, and of a config file that it is held against.
pub(super) fn look(file: Option<&Path>) -> Result<Vec<Finding>, Failure> {
    let host = Host::new(Path::new("/"));
    let of_agent = file.filter(|file| config::is_of_agent(file));
    let config = file.filter(|_| of_agent.is_none()).map(Config::load).transpose()?;
    let of_agent = of_agent.map(HostConfig::load).transpose()?;
    let mut findings = examine(&host, config.as_ref());
    findings.insert(1, driver(config.as_ref().map(|config| config.gateway.io)));
    findings.push(cpu::sleep(&host, clock::sleep_cost_ns()));
    findings.extend(of_agent.iter().flat_map(agent::examine));
    if let (Some(config), Some(file)) = (&config, file) {
        findings.extend(cpu::awake(config, capabilities::has(Capability::Bpf)));
        #[cfg(feature = "xdp")]
        findings.extend(card::card(&host, config));
        findings.push(addresses::in_use(config, file));
        findings.extend(agent::of_gateway(config));
    }
    Ok(findings)
}

/// Everything that files can tell.
fn examine(host: &Host, config: Option<&Config>) -> Vec<Finding> {
    let mut findings = vec![kernel::version(host)];
    findings.extend(kernel::clock(host));
    findings.extend(kernel::descriptors(host));
    findings.extend(kernel::quota(host));
    findings.extend(kernel::swap(host));
    findings.extend(cpu::governor(host));
    findings.extend(cpu::idle(host));
    findings.extend(cpu::steal(host));
    findings.push(cpu::cipher());
    findings.extend(network::buffers(host));
    findings.extend(network::backlog(host));
    findings.extend(network::overflows(host));
    findings.extend(network::connections(host));
    for card in host.cards() {
        findings.extend(network::card(host, &card));
    }
    if let Some(config) = config {
        findings.extend(fleet::memory(host, config));
        findings.extend(fleet::ports(host, config));
        findings.extend(fleet::workers(host, config));
    }
    findings
}

/// Whether io_uring works is known once it was tried.
fn driver(wanted: Option<IoChoice>) -> Finding {
    if wanted == Some(IoChoice::Mmsg) {
        return Finding::ok("io_uring", "not used: the config says `io = \"mmsg\"`");
    }
    match ringgate_io::open(Choice::Uring, &DriverOptions::default()) {
        Ok(driver) => match driver.why_unrestricted() {
            None => Finding::ok("io_uring", "works"),
            Some(why) => Finding::ok("io_uring", format!("works, unrestricted: {why}")).could(
                "the kernel takes any request on the workers' rings, not only those they need",
                "Linux 5.10 or later without a filter on io_uring_register",
            ),
        },
        Err(why) if wanted == Some(IoChoice::Uring) => Finding::ok("io_uring", why.to_string())
            .bites(
                "the config says `io = \"uring\"`, so the gateway refuses to start",
                "see what the error says, or `io = \"auto\"`, which falls back",
            ),
        Err(why) => Finding::ok("io_uring", why.to_string()).could(
            "the gateway falls back to recvmmsg and sendmmsg, which costs a few per cent",
            "see what the error says; `io = \"mmsg\"` says that you know",
        ),
    }
}

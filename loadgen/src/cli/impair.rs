//! `ringgate-loadgen impair`: a bad network between any game and its server.

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use ringgate_os::clock::Clock;
use ringgate_os::signals;

use super::outcome::{Failure, print};
use crate::players::impair::Impairments;
use crate::servers::between::{Between, Passed};
use crate::text::count;

/// Passes datagrams on to a server and back, over a bad network. Each line that it reads has other
/// settings for the network from then on; an empty one makes it perfect
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where players reach it
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// The server, or the gateway in front of it
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    /// What the network does, as in Unreal's console: "PktLag=50 PktLoss=2"
    #[arg(long, value_name = "SETTINGS", value_parser = Impairments::parse, default_value = "")]
    settings: Impairments,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut between = Between::open(args.listen, args.to, &args.settings)
        .map_err(|why| Failure::Failed(why.to_string()))?;
    print(&format!("impair: listening on {} for {}\n", between.address, args.to))?;
    let clock = Clock::start();
    let (tell, told) = mpsc::channel();
    // It may stand in a read for ever, so nobody waits for it.
    thread::spawn(move || {
        io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
    });
    loop {
        if let Ok(line) = told.try_recv() {
            change(&mut between, line.trim())?;
        }
        between.turn(|| clock.now_ns()).map_err(|why| Failure::Failed(format!("impair: {why}")))?;
        if let Some(signal) = signals::kept() {
            conclude(between.passed)?;
            return Err(Failure::Interrupted(signal, Vec::new()));
        }
    }
}

/// Takes settings as they were typed, and says what has become of them.
fn change(between: &mut Between, line: &str) -> Result<(), Failure> {
    match Impairments::parse(line) {
        Ok(settings) => {
            between.set(settings);
            let line = if line.is_empty() { "a perfect network" } else { line };
            print(&format!("impair: {line} from now on\n"))
        }
        Err(why) => print(&format!("impair: {why}; the network stays as it was\n")),
    }
}

fn conclude(passed: Passed) -> Result<(), Failure> {
    let Passed { arrived, sent, lost, delayed, refused } = passed;
    let [arrived, sent, lost, delayed, refused] =
        [arrived, sent, lost, delayed, refused].map(count);
    print(&format!(
        "impair: {arrived} datagrams arrived, {sent} went on, {lost} lost, {delayed} delayed, {refused} refused\n"
    ))
}

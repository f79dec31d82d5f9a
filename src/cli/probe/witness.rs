//! What the gateway itself decides about a probe, where it runs on this host and may be asked: a
//! trace of the probe's address.

use std::io::BufRead;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use ringgate_os::clock::Clock;
use serde::Deserialize;

use super::super::admin::{Admin, usual_run_dir};

/// A gateway that is asked while a player is there.
pub(super) enum Witness {
    /// It tells what it decides, a line for each.
    Tells(Receiver<Result<String, String>>),
    /// It holds its socket and says nothing.
    Silent(String),
}

#[derive(Deserialize)]
struct Line {
    address: Option<SocketAddr>,
    reason: Option<String>,
    text: String,
}

/// Where the gateway of this host may be asked, if a server is this host.
pub(super) fn here(server: SocketAddr) -> Option<PathBuf> {
    // Only an address of this host can be bound.
    UdpSocket::bind((server.ip(), 0)).ok()?;
    usual_run_dir().ok()
}

impl Witness {
    /// The gateway with this `run_dir`; `None` where none is there, or none that may be asked.
    pub(super) fn of(run_dir: Option<&Path>, from: SocketAddr, patience: Duration) -> Option<Self> {
        let (run_dir, lasts) = (run_dir?, patience * 3 + Duration::from_secs(10));
        let admin = Admin::of_run_dir(run_dir);
        let path = format!("/trace?address={}&for_ms={}", from.ip(), lasts.as_millis());
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let lines = match admin.stream(&path) {
                Ok(lines) => lines.lines().map_while(Result::ok),
                Err(why) => return drop(tell.send(Err(why.to_string()))),
            };
            for line in lines {
                // It looks from its first word on.
                if tell.send(Ok(line)).is_err() {
                    return;
                }
            }
        });
        match told.recv_timeout(BEGINS_WITHIN).ok()? {
            Ok(_) => Some(Self::Tells(told)),
            Err(why) if why.contains("does not answer") => Some(Self::Silent(why)),
            Err(_) => None,
        }
    }

    /// What it has decided last about a player who was not let in.
    pub(super) fn says(self, from: SocketAddr) -> String {
        let told = match self {
            Self::Silent(why) => return format!("the gateway is frozen: {why}"),
            Self::Tells(told) => told,
        };
        let decided = |line: Result<String, String>| {
            let line: Line = serde_json::from_str(&line.ok()?).ok()?;
            (line.address == Some(from)).then_some((line.reason.is_some(), line.text))
        };
        let (mut last, clock) = (None, Clock::start());
        // A decision may still be on its way.
        while let Ok(line) = told.recv_timeout(TELLS_WITHIN) {
            let Some((is_reason, text)) = decided(line) else {
                if clock.now_ns() >= TELLS_WITHIN.as_nanos() as u64 {
                    break;
                }
                continue;
            };
            last = Some(text);
            if is_reason {
                break;
            }
        }
        last.map_or_else(
            || {
                format!(
                    "nothing from {from} has come to the gateway on this host, so a filter on the way (`nft list \
                     ruleset`), or another gateway has that address"
                )
            },
            |text| format!("the gateway on this host says: {text}"),
        )
    }
}

/// A stopped process is known by then.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);
/// Traces tell what is new several times in a second.
const TELLS_WITHIN: Duration = Duration::from_secs(1);

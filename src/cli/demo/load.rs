//! What a worker of this host needs for a round trip: the demo again, at rates that double until it
//! has enough to do.

use std::time::Duration;

use super::players::{Home, Pace, Swarm};
use super::{EchoGame, Failure, RunDir, finish, plan};
use ringgate_core::secret::Key;
use ringgate_os::usage;
use ringgate_worker::Fleet;

/// What was measured, and of what.
pub(in crate::cli) struct Load {
    pub(in crate::cli) steps: Vec<Step>,
    pub(in crate::cli) driver: &'static str,
    pub(in crate::cli) cipher: &'static str,
}

/// One rate.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Step {
    /// Payloads that came back, a second.
    pub(in crate::cli) trips_per_s: f64,
    /// Of a core that the worker took.
    pub(in crate::cli) share: f64,
}

/// Plays some seconds, with payloads of this length.
pub(in crate::cli) fn measure(bytes: u16, enough: f64) -> Result<Load, Failure> {
    let run_dir = RunDir::create()?;
    let key = Key::generate().map_err(Failure::failed)?;
    let fleet = Fleet::start(&plan(PLAYERS, 1, &run_dir, key.clone())).map_err(Failure::failed)?;
    let game = EchoGame::start(&run_dir)?;
    // What arrives alone costs most, as a fleet's datagrams do: the players do not rest.
    let pace = Pace {
        bytes: [bytes, 1],
        sends_per_player: u64::MAX,
        tick: Duration::ZERO,
        sends_per_s: SLOWEST,
    };
    let mut swarm = Swarm::new(PLAYERS, fleet.addresses()[0][0], &key, pace, Home::LOOPBACK)?;
    swarm.connect()?;
    let mut steps: Vec<Step> = Vec::new();
    for double in 0..DOUBLES {
        let sends_per_s = SLOWEST << double;
        swarm.set_pace(Pace { sends_per_s, ..pace });
        swarm.play_until(swarm.played() + SETTLES)?;
        let begun = (swarm.played(), swarm.outcome().payloads_echoed, cpu()?);
        swarm.play_until(begun.0 + LASTS)?;
        let seconds = swarm.played().saturating_sub(begun.0).as_secs_f64();
        let trips_per_s = (swarm.outcome().payloads_echoed - begun.1) as f64 / seconds;
        let share = (cpu()? - begun.2) / seconds;
        steps.push(Step { trips_per_s, share });
        // The players are at their end, too.
        if share >= enough || trips_per_s < 0.8 * sends_per_s as f64 {
            break;
        }
    }
    let (driver, cipher) = (fleet.driver(), fleet.kernel());
    swarm.leave()?;
    finish(fleet)?;
    game.stop()?;
    Ok(Load { steps, driver, cipher })
}

fn cpu() -> Result<f64, Failure> {
    let seconds = usage::thread_seconds("ringgate-0");
    seconds.ok_or_else(|| Failure::failed("the kernel does not tell what a thread takes"))
}

const PLAYERS: u32 = 250;
/// Payloads a second at first, and how often that doubles at most.
const SLOWEST: u64 = 10_000;
const DOUBLES: u32 = 7;
const SETTLES: Duration = Duration::from_millis(200);
const LASTS: Duration = Duration::from_millis(600);

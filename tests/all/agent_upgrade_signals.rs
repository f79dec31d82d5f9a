//! What an agent is told while it is handed over: whoever has it in the end obeys, and one that is
//! to end is not taken over from.
//!
//! Skipped aloud without openssl, which makes the certificates, and where we are not root.

use ringgate_process::handover::{Channel, Message};

use crate::agent::{Heir, agent_upgrade};
use crate::agent_upgrade::{Rig, hold_by, upgraded};
use crate::command::{Ran, ringgate, run};
use crate::control_rig::wait_for;
use crate::hold::Hold;
use crate::upgrade_rig::{is_like, pass_until, successor};

/// What the log says of a reload.
const RELOADED: &str = "the config was read again";

#[test]
fn a_reload_that_comes_while_an_agent_is_handed_over_is_done_by_the_next_process() {
    // While it prepares, before the barrier, and when it is too late for the process that was told.
    for moment in [Message::hello(), Message::Prepared, Message::Taken] {
        let Some(mut rig) = Rig::start("", |_| ()) else { return };
        let (file, log) = (rig.folder.join("agent.toml"), rig.folder.join("next.log"));
        let words = ["agent".as_ref(), "--config".as_ref(), file.as_os_str()];
        let (successor, its) = successor(ringgate(words), &log);
        let _heir = Heir(successor.id());
        let socket = rig.folder.join("host/handover.sock");
        let agent = Channel::connect(&socket).expect("it listens");
        let mut is_told = false;
        pass_until(&its, &agent, |heard| {
            if is_like(heard, &moment) && !std::mem::replace(&mut is_told, true) {
                rig.agent.signal(libc::SIGHUP);
                // Behind the barrier it hears nothing.
                if moment != Message::Taken {
                    let is_heard = || rig.log("agent.log").contains("to reload").then_some(());
                    wait_for("the signal", is_heard);
                }
            }
            // Nothing comes after that. The relay passes the last word on itself.
            *heard == Message::Taken
        });
        assert!(is_told, "{moment:?} never came");
        agent.say(&Message::Taken, &[]).expect("it lives");
        assert_eq!(rig.agent.ended(), Some(0), "{}", rig.log("agent.log"));
        wait_for("the successor's reload", || rig.log("next.log").contains(RELOADED).then_some(()));
        assert!(!rig.log("agent.log").contains(RELOADED), "{moment:?}: it is not the owner");
        assert_eq!(rig.pid(), Some(successor.id().into()), "{moment:?}");
        rig.player.echo(b"and goes on");
        assert_eq!(rig.trunks(), 1, "{moment:?}");
    }
}

/// Asks for a drain while an upgrade is held there. What the upgrade says then.
fn drained_at(rig: &Rig, hold: &mut Hold) -> Ran {
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| agent_upgrade(&rig.folder));
        hold.reached();
        let said = told(rig, &["drain", "--deadline", "1h"]);
        hold.release();
        assert!(said.stdout.starts_with("draining: "), "{}", said.stderr);
        asked.join().expect("it says something")
    })
}

fn told(rig: &Rig, words: &[&str]) -> Ran {
    let control = rig.folder.join("host/control.sock").display().to_string();
    run(ringgate(words.iter().copied().chain(["--control", &control])))
}

/// While the next process prepares, and when only the barrier is missing.
const POINTS: [&str; 2] = ["agent-takes Prepare", "agent-gives Freeze"];

const DRAINS: &str = "the agent drains; `ringgate undrain` takes that back";

#[test]
fn an_agent_that_drains_meanwhile_is_not_handed_over_and_drains() {
    for point in POINTS {
        let mut hold = Hold::new();
        let told_to_hold = hold.told(point);
        let Some(mut rig) = Rig::start("", |it| hold_by(it, Some(&told_to_hold))) else { return };
        let refused = drained_at(&rig, &mut hold);
        assert!(refused.code == Some(1) && refused.stderr.contains(DRAINS), "{}", refused.stderr);
        assert_eq!(rig.agent.get("/status").json()["state"], "draining", "{point}");
        rig.player.echo(b"still here");
        // It takes over once nobody drains.
        assert_eq!(told(&rig, &["undrain"]).code, Some(0), "{point}");
        let _heir = upgraded(&rig);
        rig.player.echo(b"after");
        assert_eq!(rig.trunks(), 1, "{point}: {}", rig.log("agent.log"));
    }
}

#[test]
fn an_agent_without_players_that_is_to_end_meanwhile_ends_and_leaves_nobody_behind() {
    for point in POINTS {
        let mut hold = Hold::new();
        let told_to_hold = hold.told(point);
        let Some(mut rig) = Rig::start("", |it| hold_by(it, Some(&told_to_hold))) else { return };
        rig.player.leave();
        rig.agent.shows("ringgate_agent_players{backend=\"arena\"}", 0);
        let refused = drained_at(&rig, &mut hold);
        assert_eq!(refused.code, Some(1), "{point}: {}", refused.stderr);
        assert_eq!(rig.agent.ended(), Some(0), "{point}: {}", rig.log("agent.log"));
        assert!(!rig.folder.join("host/control.sock").exists(), "{point}: it tidies up");
        assert!(!rig.log("agent.log").contains("taken_over"), "{}", rig.log("agent.log"));
    }
}

//! Which cipher kernel a daemon runs: the one that its environment asks for, and it says which.

use ringgate_core::crypto::{KERNEL_ENV, Kernel};

use crate::command::{ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text};

#[test]
fn a_daemon_plays_on_every_kernel_that_the_cpu_has_and_names_it() {
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()) {
        let daemon = Daemon::start_with(&Text::new(), |command, _| {
            command.env(KERNEL_ENV, kernel.name());
        });
        let _game = Game::start(&daemon, "arena");
        daemon.ready();
        Player::connected(daemon.listener, 1, KEY_HEX).echo(b"hello");
        assert_eq!(daemon.status()["workers"][0]["cipher"], kernel.name());
        let label = format!("cipher=\"{kernel}\"");
        let metrics = daemon.get("/metrics").body;
        let line = metrics.lines().find(|line| line.starts_with("ringgate_build_info{"));
        assert!(line.is_some_and(|line| line.contains(&label)), "{line:?}");
    }
}

#[test]
fn a_kernel_that_nobody_knows_is_refused_with_the_choices() {
    let mut demo = ringgate(["demo"]);
    demo.env(KERNEL_ENV, "sse9");
    let ran = run(demo);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("no cipher kernel has this name"), "{}", ran.stderr);
    assert!(ran.stderr.contains(KERNEL_ENV) && ran.stderr.contains("portable"), "{}", ran.stderr);
}

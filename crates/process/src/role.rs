//! What a process does while it serves, whatever it is for: it hears signals, tells the service
//! manager how it stands, and looks after what its role has to be looked after.
//!
//! A role says what a reload, a hand-over and a drain do. The first signal to end drains, the
//! second ends at once.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, interval};

use crate::signals::{Signals, Told};
use crate::systemd::Notifier;

/// What a process is for, as far as every process is the same.
pub trait Role {
    /// How it has ended.
    type End;
    /// How often it looks after itself.
    const LOOK_EVERY: Duration;

    /// Whether everything turns: the service manager is told so now and then, or ends it.
    fn is_healthy(&self) -> bool;

    /// Waits for what wakes it beside signals and time, and does what that leads to at once. The
    /// wait is given up for signals and time, and begins anew.
    fn wake(&mut self) -> impl Future<Output = Option<Self::End>>;

    /// Does what is due. Whether that was all.
    fn look(&mut self) -> Option<Self::End>;

    /// Reads its file again.
    fn reload(&mut self);

    /// Hands over to the next release.
    fn upgrade(&mut self);

    /// Takes nobody in any more, and ends when everybody has left.
    fn drain(&mut self);

    /// Was told so before, and ends now.
    fn stop(&mut self) -> Self::End;
}

/// Serves until the role ends.
pub async fn attend<R: Role>(role: &mut R, signals: &mut Signals, notifier: &Notifier) -> R::End {
    let (mut looks, mut alive_at) = (interval(R::LOOK_EVERY), Instant::now());
    let mut is_told_to_end = false;
    loop {
        let end = tokio::select! {
            end = role.wake() => end,
            told = signals.told() => match told {
                Told::End if is_told_to_end => Some(role.stop()),
                Told::End => {
                    is_told_to_end = true;
                    role.drain();
                    None
                }
                Told::Reload => {
                    role.reload();
                    None
                }
                Told::Upgrade => {
                    role.upgrade();
                    None
                }
            },
            _ = looks.tick() => {
                // As long as everything turns, and again at once where it does not.
                if let Some(every) = notifier.watchdog()
                    && Instant::now() >= alive_at
                    && role.is_healthy()
                {
                    notifier.alive();
                    alive_at = Instant::now() + every;
                }
                role.look()
            }
        };
        if let Some(end) = end {
            return end;
        }
    }
}

#[cfg(test)]
mod tests {
    use ringgate_os::process;
    use tokio::signal::unix::SignalKind;

    use super::*;
    use crate::systemd::ServiceManager;

    /// A role that sends its own process the next signal as soon as it has heard of the last one.
    struct Obedient {
        to_come: Vec<SignalKind>,
        heard: Vec<&'static str>,
        looks: u32,
    }

    impl Obedient {
        fn hear(&mut self, what: &'static str) {
            self.heard.push(what);
            if let Some(next) = self.to_come.pop() {
                process::raise(next.as_raw_value());
            }
        }
    }

    impl Role for Obedient {
        type End = &'static str;
        const LOOK_EVERY: Duration = Duration::from_millis(1);

        fn is_healthy(&self) -> bool {
            true
        }

        async fn wake(&mut self) -> Option<&'static str> {
            std::future::pending().await
        }

        fn look(&mut self) -> Option<&'static str> {
            self.looks += 1;
            if self.looks == 1 {
                self.hear("a look");
            }
            None
        }

        fn reload(&mut self) {
            self.hear("a reload");
        }

        fn upgrade(&mut self) {
            self.hear("an upgrade");
        }

        fn drain(&mut self) {
            self.hear("a drain");
        }

        fn stop(&mut self) -> &'static str {
            "stopped"
        }
    }

    #[tokio::test]
    async fn each_signal_leads_to_what_the_role_does_and_the_second_to_end_ends() {
        let mut signals = Signals::listen().expect("they can be caught");
        let [hang_up, user] = [SignalKind::hangup(), SignalKind::user_defined2()];
        let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()];
        let to_come = vec![interrupt, hang_up, terminate, user, hang_up];
        let mut role = Obedient { to_come, heard: Vec::new(), looks: 0 };
        let notifier = Notifier::from_env(ServiceManager::default());
        assert_eq!(attend(&mut role, &mut signals, &notifier).await, "stopped");
        assert_eq!(role.heard, ["a look", "a reload", "an upgrade", "a drain", "a reload"]);
    }
}

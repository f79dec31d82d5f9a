//! Pages as of now: `?as_of=now` has everything that pages are made of published once before the
//! page is made.
//!
//! Workers, trunks and the threads of an agent publish a few times a second: that is often enough
//! for people, and costs players nothing. A program that has to know what was counted up to now,
//! above all a test, asks for it. One round of publishing goes on at a time, and all that is asked
//! for during a round shares the next one, so requests cost workers a turn now and then at most.
//! Latencies are of whole intervals and have no part in it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use ringgate_os::clock::Clock;
use ringgate_os::publishing::Roll;
use tokio::sync::Mutex;

use super::answer::{Answer, text};

/// The rounds of publishing of a process.
#[derive(Default)]
pub struct Rounds {
    begun: AtomicU64,
    /// The number of the last one that has ended, and who did not publish in it.
    last: Mutex<(u64, Vec<String>)>,
}

impl Rounds {
    /// Goes through a round that begins after this was asked for: its own or another request's.
    /// Those who did not publish in it.
    pub async fn join(&self, round: impl Future<Output = Vec<String>>) -> Vec<String> {
        let begun_before = self.begun.load(Ordering::Relaxed);
        let mut last = self.last.lock().await;
        if last.0 <= begun_before {
            let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            *last = (number, round.await);
        }
        last.1.clone()
    }
}

/// What is answered where these did not publish.
pub(super) fn missed(silent: &[String]) -> Answer {
    let (within, who) = (DEADLINE.as_secs(), silent.join(", "));
    let why = format!("there is no page as of now: {who} did not publish within {within} s\n");
    text(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Waits for those that were asked. Those that have not answered.
pub async fn hear(roll: Roll, clock: &Clock) -> Vec<String> {
    let mut asked = roll.close();
    while !asked.is_over() && !left(clock).is_zero() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    asked.silent()
}

/// What is left of a round's time.
pub fn left(clock: &Clock) -> Duration {
    DEADLINE.saturating_sub(Duration::from_nanos(clock.now_ns()))
}

/// A worker that is awake has turned by then.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A thread that turns at all publishes several times within this.
const DEADLINE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn requests_during_a_round_share_the_next_and_none_takes_one_that_has_begun() {
        let (rounds, goes_on) = (Arc::new(Rounds::default()), Arc::new(Notify::new()));
        let taken = Arc::new(AtomicU64::new(0));
        let join = || {
            let (rounds, goes_on, taken) =
                (Arc::clone(&rounds), Arc::clone(&goes_on), Arc::clone(&taken));
            let round = async move {
                let number = taken.fetch_add(1, Ordering::Relaxed) + 1;
                goes_on.notified().await;
                vec![number.to_string()]
            };
            tokio::spawn(async move { rounds.join(round).await })
        };
        let first = join();
        tokio::task::yield_now().await;
        let others = [join(), join(), join()];
        tokio::task::yield_now().await;
        goes_on.notify_one();
        assert_eq!(first.await.expect("it ends"), ["1"]);
        goes_on.notify_one();
        for other in others {
            assert_eq!(other.await.expect("it ends"), ["2"], "begun after all of them were asked");
        }
        goes_on.notify_one();
        assert_eq!(join().await.expect("it ends"), ["3"], "nobody takes an old one");
    }

    #[tokio::test]
    async fn a_round_that_is_given_up_is_nobodys() {
        let rounds = Rounds::default();
        let gives_up = timeout(Duration::ZERO, rounds.join(std::future::pending()));
        assert!(gives_up.await.is_err());
        assert_eq!(rounds.join(async { vec!["own".to_owned()] }).await, ["own"]);
    }
}

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

use hyper::StatusCode;
use hyper::http::request::Parts;
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

use super::access::{self, Right};
use super::http::{AdminState, Command};
use super::query::wrong;
use super::web::{Response, Site, text};
use ringgate_os::clock::Clock;
use ringgate_os::publishing::Roll;

/// The rounds of publishing of a process.
#[derive(Default)]
pub(super) struct Rounds {
    begun: AtomicU64,
    /// The number of the last one that has ended, and who did not publish in it.
    last: Mutex<(u64, Vec<String>)>,
}

impl Rounds {
    /// Goes through a round that begins after this was asked for: its own or another request's.
    /// Those who did not publish in it.
    pub(super) async fn join(&self, round: impl Future<Output = Vec<String>>) -> Vec<String> {
        let begun_before = self.begun.load(Ordering::Relaxed);
        let mut last = self.last.lock().await;
        if last.0 <= begun_before {
            let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            *last = (number, round.await);
        }
        last.1.clone()
    }
}

/// Goes through a round of publishing first, where the request is for a page as of now.
pub(super) async fn see_to(site: &impl Site, head: &Parts, right: Right) -> Result<(), Response> {
    let mut asked = head.uri.query().unwrap_or_default().split('&');
    match asked.find_map(|pair| pair.strip_prefix("as_of=")) {
        None => Ok(()),
        Some("now") => {
            access::permit(head, right, access::Refusal::AsksAll)?;
            let silent = site.publish().await;
            if silent.is_empty() { Ok(()) } else { Err(not_now(&silent)) }
        }
        Some(other) => {
            let (status, why) = wrong(format_args!("as_of: found {other:?}, expected now"));
            Err(text(status, why))
        }
    }
}

fn not_now(silent: &[String]) -> Response {
    let (within, who) = (DEADLINE.as_secs(), silent.join(", "));
    let why = format!("there is no page as of now: {who} did not publish within {within} s\n");
    text(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// A round at a gateway: what is known of the fleet, then workers, then trunks, whose lanes are the
/// workers'.
pub(super) async fn of_gateway(state: &AdminState) -> Vec<String> {
    let (clock, view) = (Clock::start(), state.view());
    let ask = |reply| Command::AskFleet(Roll::new(), reply);
    let Some(roll) = ask_loop(state, &clock, ask).await else { return control_thread() };
    let mut silent = hear(roll, &clock).await;
    // Workers are told what has become known, and then asked.
    if ask_loop(state, &clock, Command::ShowFleet).await.is_none() {
        return control_thread();
    }
    let mut roll = Roll::new();
    view.publishers().ask(&mut roll);
    silent.extend(hear(roll, &clock).await);
    if let Some(agents) = view.agents() {
        let mut roll = Roll::new();
        agents.ask(&mut roll);
        let trunks = hear(roll, &clock).await;
        silent.extend(trunks.into_iter().filter(|name| agents.is_there(name)));
    }
    // Which of it all workers go by is known only now.
    if ask_loop(state, &clock, Command::ShowFleet).await.is_none() {
        return control_thread();
    }
    silent
}

/// What the control loop answers, if it does in time.
async fn ask_loop<T>(
    state: &AdminState,
    clock: &Clock,
    command: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Option<T> {
    timeout(left(clock), state.ask(command)).await.ok()?.ok()
}

fn control_thread() -> Vec<String> {
    vec!["the control thread".to_owned()]
}

/// Waits for those that were asked. Those that have not answered.
pub(super) async fn hear(roll: Roll, clock: &Clock) -> Vec<String> {
    let mut asked = roll.close();
    while !asked.is_over() && !left(clock).is_zero() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    asked.silent()
}

/// What is left of a round's time.
fn left(clock: &Clock) -> Duration {
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

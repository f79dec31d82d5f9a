//! What a gateway has published for a page as of now.

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::http::{AdminState, Command};
use ringgate_os::clock::Clock;
use ringgate_os::publishing::Roll;
use ringgate_process::pages::{hear, left};

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

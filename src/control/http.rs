//! The pages, and what changes the gateway: the same for the admin address and the control socket.
//!
//! What a page is, who may do what and how many connections there are say `process::pages`, which
//! an agent shares. All of it runs on the control thread, which no packet passes.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::http::request::Parts;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::denying::{Changed, Wish};
use super::fresh;
use super::view::{Snapshot, View};
use super::{
    capture, deny, handover, health, membership, metrics, moving, page, sessions, status, trace,
};
use crate::config::{Admin, Config};
use ringgate_gate::{BackendId, Capture, Ended, MoveOrder, Survey, Trace, Wanted};
use ringgate_os::publishing::Roll;
use ringgate_process::handover::Channel;
use ringgate_process::pages::asked::{self, AskedDrain, Draining, Obeys, Upgraded};
use ringgate_process::pages::{
    self, AccessRefusal, For, IsToken, JSON, NotDone, Page, Pages, Query, Reply, Right, Rounds,
    Rules, Site, Visit, Visitor, as_json, note, stopping, typed, verdict,
};
use ringgate_process::reloads::Outcome;
use ringgate_report::metrics::CONTENT_TYPE;
use ringgate_state as state;
use ringgate_worker::handover::Early;

/// What an operator asks of the control thread.
pub(super) enum Command {
    /// Have what is known of the fleet told, by whoever is given the request for it.
    AskFleet(Roll, oneshot::Sender<Roll>),
    /// Believe what is held back of the fleet. Whether that is what is held back.
    ConfirmFleet { doubt: u64, reply: oneshot::Sender<bool> },
    /// Have the workers copy datagrams.
    Capture { capture: Arc<Capture>, reply: oneshot::Sender<()> },
    /// Take nobody in any more, and end when everybody has left.
    Drain { asked: AskedDrain, reply: oneshot::Sender<Draining> },
    /// Send nobody to a backend any more, or somebody again.
    DrainBackend {
        backend: BackendId,
        drained: bool,
        deadline: Option<Duration>,
        /// How many players it has.
        reply: oneshot::Sender<u32>,
    },
    /// Take players in again. Whether there was a drain.
    Undrain(oneshot::Sender<Result<bool, &'static str>>),
    /// Show the fleet as it is known now.
    ShowFleet(oneshot::Sender<()>),
    /// Look through all sessions.
    Survey {
        wanted: Wanted,
        ends: Option<Ended>,
        limit: usize,
        reply: oneshot::Sender<Arc<Survey>>,
    },
    /// Which backends have this name, or are of this group.
    FindBackends { name: String, reply: oneshot::Sender<Vec<BackendId>> },
    /// Have players play at other backends.
    Move { orders: Arc<[Arc<MoveOrder>]>, reply: oneshot::Sender<()> },
    /// Have the workers tell what they decide.
    Trace { trace: Arc<Trace>, reply: oneshot::Sender<()> },
    /// Deny players, or allow them again.
    ChangeDenied { wish: Wish, reply: oneshot::Sender<Result<Changed, state::Refusal>> },
    /// Read the config again, or only say what that would do.
    Reload { is_dry: bool, reply: oneshot::Sender<Outcome> },
    /// The config was read, for whoever has asked for it in a request.
    HasRead {
        is_dry: bool,
        read: Box<Result<Config, Vec<String>>>,
        reply: Option<oneshot::Sender<Outcome>>,
    },
    /// Start the next release and hand over to it.
    Upgrade(oneshot::Sender<Upgraded>),
    /// A successor has come by itself.
    Successor(Channel),
    /// A successor has prepared, and compared itself with that layout: what goes along with the
    /// workers' state should not change from here on.
    HoldStill { layout: Vec<u8>, reply: oneshot::Sender<Result<Early, String>> },
    /// It has what could be copied before the barrier.
    HandOver(Box<handover::Prepared>),
    /// A successor has not.
    HandOverEnded,
}

/// What requests are answered from.
pub(super) struct AdminState {
    view: Arc<View>,
    commands: mpsc::Sender<Command>,
    /// One long page is made at a time. Requests wait for that off the thread, so that short pages
    /// (health) never wait for more than one of them.
    turn: Semaphore,
    /// Of what pages are made of.
    rounds: Rounds,
    /// A place for each trace.
    traces: Arc<Semaphore>,
    /// A place for each capture.
    captures: Arc<Semaphore>,
}

impl Site for AdminState {
    fn pages() -> Vec<Page<Self>> {
        let mut pages = vec![
            Page::new("/", For::Everybody, page::show),
            Page::new("/metrics", For::Everybody, show_metrics),
            Page::new("/healthz", For::Everybody, healthz),
            Page::new("/readyz", For::Everybody, readyz),
            Page::new("/status", For::Everybody, show_status),
            Page::new("/sessions", For::Trusted, sessions::show),
            Page::new("/trace", For::Trusted, trace::show),
            Page::new("/capture", For::Trusted, capture::show),
            Page::new("/denied", For::Trusted, deny::show),
            Page::new("/drain", For::Changing, drain),
            Page::new("/undrain", For::Changing, undrain),
            Page::new("/kick", For::Changing, sessions::kick),
            Page::new("/sessions/move", For::Changing, moving::show),
            Page::new("/deny", For::Changing, deny::deny),
            Page::new("/allow", For::Changing, deny::allow),
        ];
        pages.extend(asked::pages());
        pages
    }

    fn judge(&self, visitor: &Visitor, head: &Parts) -> Result<Right, AccessRefusal> {
        judge(self.rules().as_deref(), visitor, head)
    }

    async fn publish(&self) -> Vec<String> {
        self.rounds.join(fresh::of_gateway(self)).await
    }
}

/// All pages.
pub(super) fn pages(view: Arc<View>, commands: mpsc::Sender<Command>) -> Pages {
    let places = |count| Arc::new(Semaphore::new(count));
    let (traces, captures) = (places(trace::TRACES_MAX), places(capture::CAPTURES_MAX));
    let (turn, rounds) = (Semaphore::new(1), Rounds::default());
    pages::pages(Arc::new(AdminState { view, commands, turn, rounds, traces, captures }))
}

async fn healthz(visit: Visit<AdminState>) -> Reply {
    verdict(health::is_healthy(&visit.site.view.snapshot()), "")
}

async fn readyz(Visit { site: state, uri, .. }: Visit<AdminState>) -> Reply {
    let snapshot = state.view.snapshot();
    let mut asked = uri.query().unwrap_or_default().split('&');
    match asked.find_map(|pair| pair.strip_prefix("listener=")) {
        None => {
            let detail = health::closed_listeners(&snapshot) + &membership::detail(&snapshot);
            verdict(health::is_ready(&snapshot), &detail)
        }
        Some(name) => match health::is_listener_ready(&snapshot, name) {
            Some(ready) => verdict(ready, &membership::detail(&snapshot)),
            None => Err((StatusCode::NOT_FOUND, "there is no listener of that name\n".to_owned())),
        },
    }
}

async fn show_status(visit: Visit<AdminState>) -> Reply {
    Ok(typed(StatusCode::OK, JSON, visit.site.make(status::render).await))
}

async fn show_metrics(visit: Visit<AdminState>) -> Reply {
    let page = visit.site.make(metrics::render).await;
    Ok(typed(StatusCode::OK, CONTENT_TYPE, page))
}

async fn drain(visit: Visit<AdminState>) -> Reply {
    let query = Query::of(&visit.uri, &["backend", "deadline_ms", "hand_over"])?;
    let deadline = asked::deadline(&query)?;
    let hands_over = query.read("hand_over", "1", |text| (text == "1").then_some(()))?.is_some();
    let Some(name) = query.text("backend") else {
        if hands_over && visit.site.view.snapshot().cluster.is_none() {
            return Err((StatusCode::CONFLICT, "this gateway is in no cluster\n".to_owned()));
        }
        return asked::drain_until(&visit, AskedDrain { deadline, hands_over }).await;
    };
    if hands_over {
        let why = "a backend's players stay where they are: hand_over is of a gateway\n";
        return Err((StatusCode::BAD_REQUEST, why.to_owned()));
    }
    let Visit { site: state, visitor, .. } = &visit;
    let backend = sessions::backend_named(&state.view.live().setup, name)?;
    note(visitor, &format!("drain of backend {name}"));
    let drain = |reply| Command::DrainBackend { backend, drained: true, deadline, reply };
    let players = state.ask(drain).await?;
    let left_ms = deadline.map(|it| it.as_millis() as u64);
    let answer = json!({ "backend": name, "players": players, "left_ms": left_ms });
    Ok(as_json(StatusCode::OK, answer))
}

async fn undrain(visit: Visit<AdminState>) -> Reply {
    let query = Query::of(&visit.uri, &["backend"])?;
    let Some(name) = query.text("backend") else { return asked::undrain(visit).await };
    let Visit { site: state, visitor, .. } = &visit;
    let backend = sessions::drained_named(&state.view.live().setup, name)?;
    note(visitor, &format!("undrain of backend {name}"));
    let undrain = |reply| Command::DrainBackend { backend, drained: false, deadline: None, reply };
    let players = state.ask(undrain).await?;
    let answer = json!({ "backend": name, "players": players });
    Ok(as_json(StatusCode::OK, answer))
}

impl Obeys for AdminState {
    async fn drain(self: &Arc<Self>, asked: AskedDrain) -> Result<Draining, NotDone> {
        self.ask(|reply| Command::Drain { asked, reply }).await
    }

    async fn undrain(self: &Arc<Self>) -> Result<Result<bool, &'static str>, NotDone> {
        self.ask(Command::Undrain).await
    }

    async fn reload(self: &Arc<Self>, is_dry: bool) -> Result<Outcome, NotDone> {
        self.ask(|reply| Command::Reload { is_dry, reply }).await
    }

    async fn upgrade(self: &Arc<Self>) -> Result<Upgraded, NotDone> {
        self.ask(Command::Upgrade).await
    }

    async fn confirm(self: &Arc<Self>, doubt: u64) -> Result<bool, NotDone> {
        self.ask(|reply| Command::ConfirmFleet { doubt, reply }).await
    }
}

/// What a request may do by `[admin]`.
pub(super) fn judge(
    admin: Option<&Admin>,
    visitor: &Visitor,
    head: &Parts,
) -> Result<Right, AccessRefusal> {
    let Some(Admin { hosts, token, .. }) = admin else {
        return Rules::default().judge(visitor, head);
    };
    let is_token = token.as_ref().map(|token| |shown: &[u8]| token.is(shown));
    let is_token = is_token.as_ref().map(|it| it as IsToken<'_>);
    Rules { hosts, is_token }.judge(visitor, head)
}

impl AdminState {
    /// What `[admin]` says now.
    pub(super) fn rules(&self) -> Option<Arc<Admin>> {
        self.view.live().admin.clone()
    }

    /// Where snapshots are taken.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// The same, for what outlives the request.
    pub(super) fn shared_view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// A place for a trace, where one is free.
    pub(super) fn trace_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.traces).try_acquire_owned().ok()
    }

    /// A place for a capture, where one is free.
    pub(super) fn capture_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.captures).try_acquire_owned().ok()
    }

    /// A page that takes some time to make.
    async fn make(&self, render: impl FnOnce(&Snapshot<'_>) -> String) -> String {
        let _turn = self.turn.acquire().await.expect("the semaphore is never closed");
        // What has come meanwhile goes first.
        tokio::task::yield_now().await;
        render(&self.view.snapshot())
    }

    /// Has the control thread do something, and waits for its answer.
    pub(super) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, NotDone> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }
}

//! The control thread's part of a fleet: what etcd has told becomes a config, which changes workers
//! as a reload does, and what workers have taken in is what the gateway confirms.
//!
//! A gateway without `[fleet]` has none of this. The other end is `crate::membership`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::following::{self, Crew, Following, Running};
use super::http::{Command, pages};
use super::reload::Next;
use super::view::{Snapshot, View, is_closed, is_up};
use super::{Busy, ControlLoop, NS_PER_MS};
use crate::config::{Config, WhenAway};
use crate::membership::{
    AnswerBody, Answerer, Answering, COPY_FILE, Door, Facts, Ground, Inherited, KEYS_FILE,
    LEASES_FILE, Member, Prepared, Refused, Rules, Shelf, Status, keep_connected, merged,
};
pub(super) use crate::membership::{Known, Order};
use ringgate_fleet::values::Question;
use ringgate_gate::{Backend, BackendId, ListenerId, Mail, SessionId, Setup};
use ringgate_os::publishing::{self, Roll};
use ringgate_os::{clock, process};
use ringgate_process::object;
use ringgate_process::pages::{Maybe, Pages, Visitor, text};
use ringgate_state::DenyList;
use ringgate_worker::Fleet;

/// What a gateway in a fleet starts from.
#[derive(Debug)]
pub struct Joining {
    /// What is known so far, and how etcd is reached.
    prepared: Prepared,
    /// The config as the file says it. The other one has what is known besides.
    file: Config,
    /// What that was.
    known: Known,
}

impl Joining {
    /// What it leaves in `state_dir`.
    pub const FILES: [&str; 3] = [COPY_FILE, KEYS_FILE, LEASES_FILE];

    /// What a gateway in a fleet starts with: what the file says, and what was known last. One that
    /// is alone starts with the file. `own` is the user that it becomes.
    pub fn of(file: Config, own: u32) -> Result<(Config, Option<Self>), String> {
        let Some(mut prepared) = Prepared::of(&file, own)? else { return Ok((file, None)) };
        let known = prepared.known(clock::unix_seconds());
        let config = merged(&file, &known).config;
        Ok((config, Some(Self { prepared, file, known })))
    }

    /// Who is known to be denied.
    pub fn bans(&self) -> &DenyList {
        &self.known.bans
    }
}

/// What the control thread knows of its fleet.
pub(super) struct Membership {
    following: Following,
    /// What the member is to start from, and what it runs on.
    prepared: Option<(Prepared, Ground)>,
    /// None before the first player is served.
    member: Option<Member>,
    receiver: Option<watch::Receiver<Arc<Known>>>,
    /// What is known has not reached the workers yet, and when that was tried last.
    pending: Option<u64>,
    /// Why it has not, if that was told.
    told: Option<String>,
    show_due_ns: u64,
}

/// What pages show of it.
#[derive(Clone, Debug, Default)]
pub(super) struct FleetShown {
    pub(super) status: Status,
    pub(super) gateways: usize,
    /// Backends of this host, by whether they are taken.
    pub(super) backends: [usize; 2],
    pub(super) bans: usize,
    pub(super) unreadable: usize,
    pub(super) refused: Vec<Refused>,
    pub(super) confirmed: Vec<(String, Vec<u32>)>,
    /// Whether workers do not know yet what is known.
    pub(super) is_pending: bool,
    /// Tokens of several gateways that are remembered.
    pub(super) tokens: usize,
    /// Players who may be in one place only, and logins that there was no room for.
    pub(super) players: [u64; 2],
}

impl Membership {
    /// A gateway whose workers were made with what was known. Without a folder nothing is kept.
    pub(super) fn new(joining: Joining, has_folder: bool) -> io::Result<Self> {
        let Joining { mut prepared, file, known } = joining;
        if !has_folder {
            prepared.forget_copy();
        }
        Ok(Self {
            following: Following::new(file, known),
            prepared: Some((prepared, Ground::ready()?)),
            member: None,
            receiver: None,
            pending: None,
            told: None,
            show_due_ns: 0,
        })
    }

    /// The config as the file has it.
    pub(super) const fn file(&self) -> &Config {
        self.following.file()
    }

    /// Whose process a backend is, where that is known.
    fn owner(&self, backend: &str) -> Option<u32> {
        self.member.as_ref()?.owner(backend)
    }
}

impl Crew for View {
    fn has_adopted(&self, revision: u64) -> bool {
        Self::has_adopted(self, revision)
    }

    fn players(&self, backend: BackendId) -> u32 {
        Self::players(self, backend)
    }

    fn sessions(&self, listener: ListenerId) -> u32 {
        Self::sessions(self, listener)
    }

    fn linked(&self, backend: BackendId) -> [usize; 2] {
        self.published().iter().map(|it| it.report()).fold([0; 2], |[linked, heard], report| {
            let has_heard = backend.index() < report.backends_up.len();
            [linked + usize::from(is_up(&report, backend)), heard + usize::from(has_heard)]
        })
    }

    fn is_closed(&self, backend: BackendId) -> bool {
        self.published().iter().any(|it| is_closed(&it.report(), backend))
    }
}

fn backend_names(file: &Config) -> Vec<String> {
    file.backends.iter().map(|backend| backend.name.clone()).collect()
}

impl ControlLoop {
    /// Starts to speak with etcd.
    pub(super) fn join(&mut self, fleet: &Fleet) {
        let facts = self.fleet_facts();
        let used = self.as_running(|running| following::players_of_backends(&running));
        let door = self.announce_door();
        let Some(membership) = &mut self.membership else { return };
        let Some((prepared, ground)) = membership.prepared.take() else { return };
        let Setup { fleet_tokens, fleet_players, .. } = &*self.setup;
        let (tokens, players) = (fleet_tokens.clone(), fleet_players.clone());
        let file = backend_names(membership.file());
        let answerer = Some(answerer(Arc::clone(&self.view), self.commands.clone()));
        let standbys = fleet.claims().standbys().cloned();
        let shelf = Shelf { answerer, tokens, players, standbys, door, file, used };
        let member = Member::start(ground, prepared, facts, shelf);
        let known = member.known();
        // What a copy has told is no news: etcd may know the same.
        self.cluster.follow(&known.borrow());
        membership.receiver = Some(known);
        membership.member = Some(member);
    }

    /// Where game processes register themselves: the socket's second descriptor goes to the next
    /// process.
    fn announce_door(&self) -> Option<Door> {
        let socket = self.announcements.as_ref()?.try_clone().ok()?;
        self.config.fleet.is_some().then(|| Door::new(socket))
    }

    /// Where news of the fleet comes from.
    pub(super) fn known(&self) -> Option<watch::Receiver<Arc<Known>>> {
        self.membership.as_ref()?.receiver.clone()
    }

    /// Takes the registration back, or leaves it to another process.
    pub(super) fn leave_fleet(&mut self, order: Order) {
        if let Some(member) = self.membership.as_mut().and_then(|it| it.member.take()) {
            member.end(order);
        }
    }

    /// The fleet's member, once there is one.
    fn member(&self) -> Option<&Member> {
        self.membership.as_ref()?.member.as_ref()
    }

    /// What a successor goes on with.
    pub(super) fn heirloom(&self) -> Option<Inherited> {
        let member = self.member()?;
        self.count_players(member);
        Some(member.heirloom())
    }

    /// No successor goes on with it.
    pub(super) fn go_on_in_fleet(&self) {
        if let Some(member) = self.member() {
            member.go_on();
        }
    }

    /// Goes on with the registration of the process before this one.
    pub(super) fn inherit_fleet(&mut self, row: &Value) -> Result<(), String> {
        if let Some((prepared, _)) = self.membership.as_mut().and_then(|it| it.prepared.as_mut()) {
            prepared.inherit(Inherited::deserialize(row).map_err(|why| why.to_string())?);
        }
        Ok(())
    }

    /// Agents go on with what they serve that the process before has had, and that the fleet does
    /// not know: until it is known again, or its players have left.
    pub(super) fn keep_connected(&mut self, connected: Vec<(String, Vec<String>)>) {
        let mut config = Config::clone(&self.config);
        for agent in connected {
            keep_connected(&mut config, agent);
        }
        self.agents.want(&config);
        self.config = Arc::new(config);
    }

    /// A config that was read, with what the fleet knows, and as it was read.
    pub(super) fn with_fleet(&self, read: Config) -> (Config, Option<Config>) {
        let Some(membership) = &self.membership else { return (read, None) };
        let config = self.as_running(|running| {
            let owner = |name: &str| membership.owner(name);
            let spoken = |backend| self.view.spoken(backend);
            membership.following.with_known(&read, &running, owner, spoken)
        });
        (config, Some(read))
    }

    /// Whether the config file has a backend of this name.
    pub(super) fn is_of_file(&self, backend: &str) -> bool {
        match &self.membership {
            Some(membership) => membership.following.is_of_file(backend),
            None => self.config.has_backend(backend),
        }
    }

    /// The gateway as it runs.
    fn as_running<T>(&self, then: impl FnOnce(Running<'_>) -> T) -> T {
        then(Running {
            config: &self.config,
            setup: &self.setup,
            crew: &*self.view,
            workers: self.view.published().len(),
            is_free: &|id| self.is_free(id),
        })
    }

    /// A reload has been carried out.
    pub(super) fn note_file(&mut self, file: Option<Config>) {
        let when_away = self.config.fleet.as_ref().map(|fleet| fleet.when_away);
        if let (Some(tokens), Some(when_away)) = (&self.setup.fleet_tokens, when_away) {
            tokens.accept_when_away(when_away == WhenAway::Accept);
        }
        if let (Some(membership), Some(file)) = (&mut self.membership, file) {
            if let Some(member) = &membership.member {
                let rules = file.fleet.as_ref();
                let rules = rules.map(|fleet| Rules::of(fleet, process::effective_uid()));
                member.set_file(backend_names(&file), rules);
            }
            membership.following.set_file(file, self.setup.revision);
            // Other backends may be left out now, and be taken in later.
            membership.pending = Some(self.view.now_ns());
        }
    }

    /// Something else is known of the fleet.
    pub(super) fn hear_fleet(&mut self, fleet: &Fleet) {
        let Some(membership) = &mut self.membership else { return };
        let Some(known) =
            membership.receiver.as_mut().map(|it| Arc::clone(&it.borrow_and_update()))
        else {
            return;
        };
        membership.pending = Some(0);
        self.cluster.follow(&known);
        if membership.following.hear(Arc::clone(&known)) {
            self.adopt_bans(fleet, &known.bans);
        }
        if let Some(membership) = &mut self.membership {
            membership.following.gave_bans(self.setup.revision);
        }
        self.adopt_known(fleet);
    }

    /// Tells workers what is known, if they can hear it now.
    fn adopt_known(&mut self, fleet: &Fleet) {
        let now_ns = self.view.now_ns();
        if self.view.live().drain.is_some() || matches!(self.busy, Busy::Preparing | Busy::Copying)
        {
            return;
        }
        let Some(mut membership) = self.membership.take() else { return };
        membership.pending = Some(now_ns);
        let Membership { following, member, .. } = &mut membership;
        let owner = |name: &str| member.as_ref()?.owner(name);
        let next = self.with_known(fleet, |listeners| {
            self.as_running(|running| following.next(&running, owner, listeners))
        });
        self.membership = Some(membership);
        match next {
            Ok((next, config)) => self.adopt_next(fleet, &next, config),
            Err(why) => self.tell_stuck(&why.join("; ")),
        }
    }

    fn adopt_next(&mut self, fleet: &Fleet, next: &Next, config: Config) {
        if !next.changes.is_empty() || next.setup.awaits_fleet != self.setup.awaits_fleet {
            self.setup = fleet.adopt(&next.setup, Vec::new());
            self.note_retired();
            self.forget_deadlines();
            self.view.live().setup = Arc::clone(&self.setup);
        }
        if !next.changes.is_empty() {
            let changes = next.changes.join("; ");
            tracing::info!(event = "fleet_change", changes, "the fleet has changed: {changes}");
        }
        self.agents.follow(&config, self.view.now_ns());
        self.config = Arc::new(config);
        let Some(membership) = &mut self.membership else { return };
        membership.pending = membership.following.waits().then_some(self.view.now_ns());
        membership.told = None;
        membership.following.gave(self.setup.revision);
    }

    fn tell_stuck(&mut self, why: &str) {
        let Some(membership) = &mut self.membership else { return };
        if membership.told.as_deref() != Some(why) {
            tracing::error!(
                event = "fleet_change_refused",
                why,
                "what the fleet says has not reached the workers: {why}"
            );
            membership.told = Some(why.to_owned());
        }
    }

    /// Has sessions end whose players have logged in again, some at a time.
    pub(super) fn end_ousted(&self, fleet: &Fleet) {
        let players = self.setup.fleet_players.as_ref().filter(|players| players.has_ousted());
        let Some(players) = players else { return };
        let ousted: Arc<[SessionId]> = players.take_ousted(OUSTED_AT_A_TIME).into();
        fleet.tell_all(|| Mail::Oust(Arc::clone(&ousted)));
    }

    /// Looks after the fleet between its news.
    pub(super) fn tell_fleet(&mut self, fleet: &Fleet) {
        let now_ns = self.view.now_ns();
        let Some(membership) = &self.membership else { return };
        if membership.pending.is_some_and(|tried_ns| now_ns >= tried_ns + AGAIN_AFTER_NS) {
            self.adopt_known(fleet);
        }
        let Some(membership) = &mut self.membership else { return };
        if now_ns < membership.show_due_ns {
            return;
        }
        membership.show_due_ns = now_ns + publishing::period_ns(SHOW_EVERY_NS);
        membership.following.confirm(&*self.view);
        let shown = membership.shown(&self.setup);
        let misfits = self.cluster.misfits(membership.following.known());
        let has_announced = shown.status.announced > 0;
        {
            let mut live = self.view.live();
            (live.fleet, live.misfits) = (Some(Arc::new(shown)), misfits);
        }
        let facts = self.fleet_facts();
        if let Some(member) = self.member() {
            member.tell(facts);
            if has_announced {
                self.count_players(member);
            }
        }
    }

    /// Tells how many players each backend has, and who has come: those who have come first, so
    /// that each of them is counted.
    fn count_players(&self, member: &Member) {
        let name = |backend: BackendId| self.setup.backends.get(backend).map(|it| it.name.clone());
        let joins = self.view.take_joins().into_iter();
        let joined = joins.filter_map(|(backend, it)| Some((name(backend)?, it))).collect();
        let (players, linked) = self.as_running(|running| {
            (following::players_of_backends(&running), following::linked_backends(&running))
        });
        member.count(players, linked, joined);
    }

    /// Asks for what is known to be told.
    pub(super) fn ask_fleet(&self, roll: &mut Roll) {
        if let Some(member) = self.member() {
            member.order(Order::Publish(roll.request("the copy of the fleet".to_owned())));
        }
    }

    /// Shows the fleet as it is known now.
    pub(super) fn show_fleet(&mut self, fleet: &Fleet) {
        let Some(membership) = &mut self.membership else { return };
        membership.show_due_ns = 0;
        // Else nothing may change that goes along with a hand-over.
        if self.busy != Busy::Copying {
            if membership.receiver.as_ref().is_some_and(|it| it.has_changed().unwrap_or(false)) {
                self.hear_fleet(fleet);
            }
            self.tell_fleet(fleet);
        }
    }

    /// What the gateway says of itself.
    fn fleet_facts(&self) -> Facts {
        let Some(membership) = &self.membership else { return Facts::default() };
        Facts {
            is_draining: self.view.live().drain.is_some(),
            started_unix_s: self.view.facts().started_unix_s,
            ..self.as_running(|running| membership.following.facts(&running))
        }
    }

    /// Has the doubt with this number believed. Whether it is the one that stands.
    pub(super) fn confirm_fleet(&self, doubt: u64) -> bool {
        let Some(member) = self.member() else { return false };
        let stands = doubt != 0 && member.status().member.doubt() == doubt;
        if stands {
            member.order(Order::Confirm(doubt));
        }
        stands
    }
}

impl Membership {
    fn shown(&self, setup: &Setup) -> FleetShown {
        let following = &self.following;
        let Known { backends, bans, gateways, unreadable, .. } = &**following.known();
        let is_taken = |it: &&Backend| !it.retired && !following.is_of_file(&it.name);
        let taken = setup.backends.iter().filter(is_taken).count();
        FleetShown {
            status: self.member.as_ref().map(Member::status).unwrap_or_default(),
            gateways: *gateways,
            backends: [taken, backends.len().saturating_sub(taken)],
            bans: bans.len(),
            unreadable: *unreadable,
            refused: following.refused().iter().cloned().collect(),
            confirmed: following.confirmed_epochs(),
            is_pending: self.pending.is_some(),
            tokens: setup.fleet_tokens.as_ref().map_or(0, |tokens| tokens.len()),
            players: setup
                .fleet_players
                .as_ref()
                .map_or([0; 2], |it| [it.len() as u64, it.missed()]),
        }
    }
}

impl FleetShown {
    /// The same for `/status`.
    pub(super) fn on_status(&self) -> impl Serialize {
        let (shown, status, member) = (self, &self.status, &self.status.member);
        let doubt = member.mirror.doubt.as_ref();
        let doubt = doubt.map(|(number, why)| object! { number, why: why.to_string() });
        let refused = shown.refused.iter().map(|it| object! { backend: &it.backend, why: it.why });
        let epochs = shown.confirmed.iter().map(|(it, list)| (&**it, &**list));
        object! {
            name: &member.name,
            region: &status.region,
            host: &status.host,
            // Whether what is known is up to date.
            current: member.is_current(),
            away_s: member.away_s().unwrap_or_default(),
            registered: member.is_registered,
            last_error: Maybe(member.last_error()),
            // What is held back, until an operator confirms its number.
            doubt: Maybe(doubt),
            revision: member.known.revision,
            keys: member.keys,
            gateways: shown.gateways,
            bans: shown.bans,
            unreadable: shown.unreadable,
            backends_taken: shown.backends[0],
            backends_refused: refused.collect::<Vec<_>>(),
            // Game processes that have registered themselves here.
            announced: status.announced,
            // The epochs of each listener's keys that every worker accepts.
            epochs: epochs.collect::<BTreeMap<&str, &[u32]>>(),
            // Workers have not been told yet what is known.
            pending: shown.is_pending,
        }
    }
}

/// What answers questions that were asked with the fleet's key, for as long as this process has
/// the gateway.
fn answerer(view: Arc<View>, commands: mpsc::Sender<Command>) -> Answerer {
    let pages = pages(Arc::clone(&view), commands);
    Arc::new(move || {
        let pages = Arc::clone(&pages);
        view.successor().is_none().then(|| Box::new(|question| answering(pages, question)) as _)
    })
}

fn answering(pages: Pages, question: Question) -> Answering {
    Box::pin(async move {
        let Question { what, by, query, .. } = question;
        let method = if what.changes() { Method::POST } else { Method::GET };
        let uri = format!("/{}?{query}", what.name());
        let response = match hyper::Request::builder().method(method).uri(uri).body(()) {
            Ok(request) => pages(request.into_parts().0, Visitor::Fleet(by)).await,
            Err(why) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
        };
        let status = response.status().as_u16();
        (status, Box::pin(response.into_body()) as AnswerBody)
    })
}

/// What `/readyz` says of the fleet, either way: a gateway serves on without it.
pub(super) fn detail(snapshot: &Snapshot<'_>) -> String {
    let fleet = snapshot.live.fleet.as_ref();
    fleet.map(|fleet| fleet.status.member.troubles()).unwrap_or_default()
}

const AGAIN_AFTER_NS: u64 = 1000 * NS_PER_MS;
/// Each is told its end ten times over.
const OUSTED_AT_A_TIME: usize = 64;
const SHOW_EVERY_NS: u64 = 100 * NS_PER_MS;

//! The control thread's part of a fleet: what etcd has told becomes a config, which changes workers
//! as a reload does, and what workers have taken in is what the gateway confirms.
//!
//! A gateway without `[fleet]` has none of this. The other end is `crate::membership`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::watch;

use super::agents::entrances;
use super::http;
use super::reload::{self, Next};
use super::view::{Snapshot, is_closed, is_up};
use super::{ControlLoop, HandingOver, NS_PER_MS};
use crate::config::{self, Config, Link, Protocol, WhenAway};
use crate::membership::{
    Door, Facts, FrontRow, Inherited, Known, Member, Order, Prepared, Refused, Rules, Shelf,
    Status, merged,
};
use ringgate_fleet::values::gateway::SHUT_MAX;
use ringgate_gate::{
    Backend, BackendId, Front, LinkKind, Mail, Phase, SessionId, Setup, TokenReuse,
};
use ringgate_os::process;
use ringgate_os::publishing::{self, Roll};
use ringgate_worker::Fleet;

/// What the control thread knows of its fleet.
pub(super) struct Membership {
    /// The config as the file has it.
    file: Config,
    known: Arc<Known>,
    /// None before the first player is served.
    member: Option<Member>,
    receiver: Option<watch::Receiver<Arc<Known>>>,
    /// What is known has not reached the workers yet, and when that was tried last.
    pending: Option<u64>,
    /// Why it has not, if that was told.
    told: Option<String>,
    refused: BTreeSet<Refused>,
    /// What workers were told, and the setup that says it.
    given: (u64, Given),
    /// What every worker has taken in.
    confirmed: Given,
    /// The revision up to which workers were told of bans, and the setup that says it. A gateway
    /// that drains takes in bans, and nothing else.
    bans_given: (u64, i64),
    bans_confirmed: i64,
    show_due_ns: u64,
}

type Epochs = BTreeMap<String, Vec<u32>>;

/// What others have to know of what workers know.
#[derive(Clone, Debug, Default)]
struct Given {
    /// The epochs of each listener's keys.
    epochs: Epochs,
    /// The revision up to which backends are known.
    heard: i64,
}

impl Given {
    fn of(file: &Config, known: &Known) -> Self {
        Self { epochs: epochs(file, known), heard: known.heard }
    }
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
    /// A gateway whose workers were made with what was known.
    pub(super) fn new(file: Config, known: Known) -> Self {
        let given = (0, Given::of(&file, &known));
        let bans_given = (0, known.denied);
        Self {
            file,
            known: Arc::new(known),
            member: None,
            receiver: None,
            pending: None,
            told: None,
            refused: BTreeSet::new(),
            given,
            confirmed: Given::default(),
            bans_given,
            bans_confirmed: 0,
            show_due_ns: 0,
        }
    }

    fn is_of_file(&self, backend: &str) -> bool {
        self.file.backends.iter().any(|own| own.name == backend)
    }
}

fn backend_names(file: &Config) -> Vec<String> {
    file.backends.iter().map(|backend| backend.name.clone()).collect()
}

/// The epochs of the listeners that have the fleet's keys.
fn epochs(file: &Config, known: &Known) -> Epochs {
    let numbers = |keys: &Vec<(u32, _)>| {
        let mut numbers: Vec<_> = keys.iter().map(|(number, _)| *number).rev().collect();
        numbers.dedup();
        numbers
    };
    let with_keys = file.listeners.iter().filter(|listener| listener.has_fleet_keys());
    with_keys.filter_map(|it| Some((it.name.clone(), numbers(known.keys.get(&it.name)?)))).collect()
}

impl ControlLoop {
    /// Starts to speak with etcd.
    pub(super) fn join(&mut self, prepared: Prepared) -> io::Result<()> {
        let facts = self.fleet_facts();
        let (door, used) = (self.announce_door(), self.players_of_backends());
        let Some(membership) = &mut self.membership else { return Ok(()) };
        let Setup { fleet_tokens, fleet_players, .. } = &*self.setup;
        let (tokens, players) = (fleet_tokens.clone(), fleet_players.clone());
        let file = backend_names(&membership.file);
        let answerer = Some(http::answerer(Arc::clone(&self.view), self.commands.clone()));
        let shelf = Shelf { answerer, tokens, players, door, file, used };
        let member = Member::start(prepared, facts, shelf)?;
        membership.receiver = Some(member.known());
        membership.member = Some(member);
        Ok(())
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

    /// What a successor goes on with.
    pub(super) fn heirloom(&self) -> Option<Inherited> {
        let member = self.membership.as_ref()?.member.as_ref()?;
        self.count_players(member);
        Some(member.heirloom())
    }

    /// A config that was read, with what the fleet knows, and as it was read.
    pub(super) fn with_fleet(&self, read: Config) -> (Config, Option<Config>) {
        match &self.membership {
            Some(membership) => {
                let mut config = merged(&read, &membership.known).config;
                membership.keep_to_owners(&mut config);
                self.keep_served(&mut config);
                (config, Some(read))
            }
            None => (read, None),
        }
    }

    /// An agent may go on to serve the backends that are gone from the fleet, for as long as they
    /// have players here: who has lost a registration has not lost its players.
    fn keep_served(&self, config: &mut Config) {
        let pairs = || self.setup.backends.pairs();
        let has_players =
            |name: &&String| pairs().any(|(id, it)| it.name == **name && !self.is_free(id));
        let served = self.config.agents.iter().filter(|agent| agent.serves_fleet);
        for before in served.filter(|agent| !agent.backends.is_empty()) {
            let stay: Vec<_> = before.backends.iter().filter(has_players).cloned().collect();
            let may_stay = config.agents.iter().any(|it| it.serves_fleet && it.bind == before.bind);
            if stay.is_empty() || !may_stay {
                continue;
            }
            if config.agents.iter().all(|it| it.name != before.name) {
                config.agents.push(config::Agent { backends: Vec::new(), ..before.clone() });
            }
            let mut own = config.agents.iter_mut().filter(|it| it.name == before.name);
            if let Some(agent) = own.next().filter(|it| it.serves_fleet) {
                let missing: Vec<_> =
                    stay.into_iter().filter(|it| !agent.backends.contains(it)).collect();
                agent.backends.extend(missing);
            }
        }
    }

    /// A reload has been carried out.
    pub(super) fn note_file(&mut self, file: Option<Config>) {
        let when_away = self.config.fleet.as_ref().map(|fleet| fleet.when_away);
        if let (Some(tokens), Some(when_away)) = (&self.setup.fleet_tokens, when_away) {
            tokens.accept_when_away(when_away == WhenAway::Accept);
        }
        if let (Some(membership), Some(file)) = (&mut self.membership, file) {
            membership.given = (self.setup.revision, Given::of(&file, &membership.known));
            if let Some(member) = &membership.member {
                let rules = file.fleet.as_ref();
                let rules = rules.map(|fleet| Rules::of(fleet, process::effective_uid()));
                member.set_file(backend_names(&file), rules);
            }
            membership.file = file;
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
        let before = std::mem::replace(&mut membership.known, Arc::clone(&known));
        membership.pending = Some(0);
        if before.bans != known.bans {
            self.adopt_bans(fleet, &known.bans);
        }
        let bans_given = (self.setup.revision, known.denied);
        if let Some(membership) = &mut self.membership {
            membership.bans_given = bans_given;
        }
        self.adopt_known(fleet);
    }

    /// Tells workers what is known, if they can hear it now.
    fn adopt_known(&mut self, fleet: &Fleet) {
        let now_ns = self.view.now_ns();
        if self.view.live().drain.is_some() || self.handing_over != HandingOver::No {
            return;
        }
        let Some(membership) = &mut self.membership else { return };
        membership.pending = Some(now_ns);
        let mut with = merged(&membership.file, &membership.known);
        membership.tell_refused(std::mem::take(&mut with.refused));
        membership.keep_to_owners(&mut with.config);
        let given = Given::of(&membership.file, &membership.known);
        self.keep_served(&mut with.config);
        let is_free = |id| self.is_free(id);
        let next = self.with_known(fleet, |known| {
            reload::next(&self.config, &self.setup, &with.config, is_free, known)
        });
        match next {
            Ok(next) => self.adopt_next(fleet, &next, with.config, given),
            Err(why) => self.tell_stuck(&why.join("; ")),
        }
    }

    fn adopt_next(&mut self, fleet: &Fleet, next: &Next, config: Config, given: Given) {
        if !next.changes.is_empty() {
            self.setup = fleet.adopt(&next.setup, Vec::new());
            self.note_retired();
            self.view.live().setup = Arc::clone(&self.setup);
            let changes = next.changes.join("; ");
            tracing::info!(event = "fleet_change", changes, "the fleet has changed: {changes}");
        }
        self.agents.follow(&config, self.view.now_ns());
        self.config = Arc::new(config);
        let Some(membership) = &mut self.membership else { return };
        membership.pending = None;
        membership.told = None;
        membership.given = (self.setup.revision, given);
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
    fn end_ousted(&self, fleet: &Fleet) {
        let players = self.setup.fleet_players.as_ref().filter(|players| players.has_ousted());
        let Some(players) = players else { return };
        let ousted: Arc<[SessionId]> = players.take_ousted(OUSTED_AT_A_TIME).into();
        fleet.tell_all(|| Mail::Oust(Arc::clone(&ousted)));
    }

    /// Looks after the fleet between its news.
    pub(super) fn tell_fleet(&mut self, fleet: &Fleet) {
        self.end_ousted(fleet);
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
        let (revision, given) = &membership.given;
        if self.view.has_adopted(*revision) {
            membership.confirmed.clone_from(given);
        }
        let (revision, denied) = membership.bans_given;
        if self.view.has_adopted(revision) {
            membership.bans_confirmed = denied;
        }
        let shown = membership.shown(&self.setup);
        let has_announced = shown.status.announced > 0;
        self.view.live().fleet = Some(Arc::new(shown));
        let facts = self.fleet_facts();
        if let Some(member) = self.membership.as_ref().and_then(|it| it.member.as_ref()) {
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
        member.count(self.players_of_backends(), self.linked_backends(), joined);
    }

    /// Asks for what is known to be told.
    pub(super) fn ask_fleet(&self, roll: &mut Roll) {
        if let Some(member) = self.membership.as_ref().and_then(|it| it.member.as_ref()) {
            member.order(Order::Publish(roll.request("the copy of the fleet".to_owned())));
        }
    }

    /// Shows the fleet as it is known now.
    pub(super) fn show_fleet(&mut self, fleet: &Fleet) {
        let Some(membership) = &mut self.membership else { return };
        membership.show_due_ns = 0;
        // Else nothing may change that goes along with a hand-over.
        if self.handing_over != HandingOver::Copying {
            if membership.receiver.as_ref().is_some_and(|it| it.has_changed().unwrap_or(false)) {
                self.hear_fleet(fleet);
            }
            self.tell_fleet(fleet);
        }
    }

    /// How many players each backend has that connects to us, or did: one that is retired may come
    /// back by its name, as all do in a successor that has not heard of the fleet yet.
    fn players_of_backends(&self) -> BTreeMap<String, u32> {
        let mut players = BTreeMap::new();
        let bundles = |it: &Backend| matches!(it.link, LinkKind::Bundle { .. });
        for (id, it) in self.setup.backends.pairs().filter(|(_, it)| bundles(it)) {
            *players.entry(it.name.clone()).or_default() += self.view.players(id);
        }
        players
    }

    /// Backends that every worker is linked to.
    fn linked_backends(&self) -> BTreeSet<String> {
        let reports: Vec<_> = self.view.published().iter().map(|it| it.report()).collect();
        let is_linked = |id| reports.iter().all(|report| is_up(report, id));
        let backends = self.setup.backends.pairs();
        let linked = backends.filter(|&(id, it)| !it.retired && is_linked(id));
        linked.map(|(_, it)| it.name.clone()).collect()
    }

    /// Backends of the fleet that take players by what the fleet says of them, and that nobody new
    /// is led to: a worker is not linked to them or was told by them that they take nobody, they
    /// were left out, or an operator drains them.
    fn shut_backends(&self) -> Vec<String> {
        let Some(membership) = &self.membership else { return Vec::new() };
        let reports: Vec<_> = self.view.published().iter().map(|it| it.report()).collect();
        // That a worker has not heard of a backend yet is told by `heard`.
        let is_linked = |id: BackendId| {
            reports.iter().all(|it| id.index() >= it.backends_up.len() || is_up(it, id))
        };
        let is_shut = |&(id, it): &(BackendId, &Backend)| {
            let is_meant = !it.retired && it.intake.is_open();
            let takes_nobody = it.drained || reports.iter().any(|report| is_closed(report, id));
            is_meant && (takes_nobody || !is_linked(id)) && !membership.is_of_file(&it.name)
        };
        let shut = self.setup.backends.pairs().filter(is_shut).map(|(_, it)| it.name.clone());
        let left_out = membership.refused.iter().map(|it| it.backend.clone());
        shut.chain(left_out).take(SHUT_MAX).collect()
    }

    /// What the gateway says of itself.
    fn fleet_facts(&self) -> Facts {
        let serving = self.setup.listeners.pairs().filter(|(_, it)| it.phase == Phase::Serving);
        let confirmed = self.membership.as_ref().map(|it| &it.confirmed);
        let epochs = |name: &str| confirmed.and_then(|it| it.epochs.get(name)).cloned();
        let mut facts = Facts {
            heard: confirmed.map_or(0, |it| it.heard),
            denied: self.membership.as_ref().map_or(0, |it| it.bans_confirmed),
            shut: self.shut_backends(),
            is_draining: self.view.live().drain.is_some(),
            started_unix_s: self.view.facts().started_unix_s,
            entrances: self.membership.as_ref().map_or_else(Vec::new, |it| entrances(&it.file)),
            ..Facts::default()
        };
        for (number, listener) in serving {
            let configured = self.config.listeners.iter().find(|it| it.name == listener.name);
            let group = configured.and_then(|it| it.group.as_ref());
            let token = configured.and_then(|it| match &it.protocol {
                Protocol::Plain(rules) => rules.token,
                _ => None,
            });
            facts.capacity = facts.capacity.saturating_add(listener.sessions_max);
            facts.sessions = facts.sessions.saturating_add(self.view.sessions(number));
            facts.fronts.push(FrontRow {
                name: listener.name.clone(),
                protocol: Front::of(&listener.protocol).word(),
                addresses: listener.public.clone(),
                epochs: epochs(&listener.name).unwrap_or_default(),
                group: group.map_or(String::new(), ToString::to_string),
                protocol_id: listener.netcode().map_or(0, |rules| rules.protocol_id),
                token_bytes: token.map_or(0, |token| token.bytes),
                tags: listener.netcode().is_some_and(|it| it.token_reuse == TokenReuse::Deny),
            });
        }
        facts
    }

    /// Has the doubt with this number believed. Whether it is the one that stands.
    pub(super) fn confirm_fleet(&self, doubt: u64) -> bool {
        let Some(member) = self.membership.as_ref().and_then(|it| it.member.as_ref()) else {
            return false;
        };
        let stands = doubt != 0 && member.status().member.doubt() == doubt;
        if stands {
            member.order(Order::Confirm(doubt));
        }
        stands
    }
}

impl Membership {
    /// A process that has registered itself is linked to as its own user only: another one that may
    /// register is not to come in its place.
    fn keep_to_owners(&self, config: &mut Config) {
        let Some(member) = &self.member else { return };
        let is_of_file = |name: &str| self.file.backends.iter().any(|own| own.name == name);
        for backend in config.backends.iter_mut().filter(|it| !is_of_file(&it.name)) {
            // Those of agents, and where the gateway's own user alone may come, name nobody.
            if let Link::Bundle(allowed) = &mut backend.link
                && *allowed != config::Allowed::default()
                && let Some(uid) = member.owner(&backend.name)
            {
                *allowed = config::Allowed { uids: vec![uid], gids: Vec::new() };
            }
        }
    }

    /// Names each backend that is left out, once.
    fn tell_refused(&mut self, refused: Vec<Refused>) {
        let refused: BTreeSet<_> = refused.into_iter().collect();
        for Refused { backend, why } in refused.difference(&self.refused) {
            tracing::warn!(
                event = "fleet_backend_refused",
                backend,
                why,
                "backend {backend} of the fleet is left out: {why}"
            );
        }
        self.refused = refused;
    }

    fn shown(&self, setup: &Setup) -> FleetShown {
        let Known { backends, bans, gateways, unreadable, .. } = &*self.known;
        let is_taken = |it: &&Backend| !it.retired && !self.is_of_file(&it.name);
        let taken = setup.backends.iter().filter(is_taken).count();
        FleetShown {
            status: self.member.as_ref().map(Member::status).unwrap_or_default(),
            gateways: *gateways,
            backends: [taken, backends.len().saturating_sub(taken)],
            bans: bans.len(),
            unreadable: *unreadable,
            refused: self.refused.iter().cloned().collect(),
            confirmed: self.confirmed.epochs.clone().into_iter().collect(),
            is_pending: self.pending.is_some(),
            tokens: setup.fleet_tokens.as_ref().map_or(0, |tokens| tokens.len()),
            players: setup
                .fleet_players
                .as_ref()
                .map_or([0; 2], |it| [it.len() as u64, it.missed()]),
        }
    }
}

/// The same for `/status`.
#[derive(Serialize)]
pub(super) struct FleetStatus<'a> {
    name: &'a str,
    region: &'a str,
    host: &'a str,
    /// Whether what is known is up to date.
    current: bool,
    away_s: u64,
    registered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    /// What is held back, until an operator confirms its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt: Option<DoubtStatus>,
    revision: i64,
    keys: usize,
    gateways: usize,
    bans: usize,
    unreadable: usize,
    backends_taken: usize,
    backends_refused: Vec<RefusedStatus<'a>>,
    /// Game processes that have registered themselves here.
    announced: usize,
    /// The epochs of each listener's keys that every worker accepts.
    epochs: BTreeMap<&'a str, &'a [u32]>,
    /// Workers have not been told yet what is known.
    pending: bool,
}

#[derive(Serialize)]
struct DoubtStatus {
    number: u64,
    why: String,
}

#[derive(Serialize)]
struct RefusedStatus<'a> {
    backend: &'a str,
    why: &'static str,
}

impl<'a> FleetStatus<'a> {
    pub(super) fn of(shown: &'a FleetShown) -> Self {
        let (status, member) = (&shown.status, &shown.status.member);
        let doubt = member.mirror.doubt.as_ref();
        let refused = |it: &'a Refused| RefusedStatus { backend: &it.backend, why: it.why };
        Self {
            name: &member.name,
            region: &status.region,
            host: &status.host,
            current: member.is_current(),
            away_s: member.away_s().unwrap_or_default(),
            registered: member.is_registered,
            last_error: member.last_error(),
            doubt: doubt.map(|(number, why)| DoubtStatus { number: *number, why: why.to_string() }),
            revision: member.known.revision,
            keys: member.keys,
            gateways: shown.gateways,
            bans: shown.bans,
            unreadable: shown.unreadable,
            backends_taken: shown.backends[0],
            announced: status.announced,
            backends_refused: shown.refused.iter().map(refused).collect(),
            epochs: shown.confirmed.iter().map(|(it, list)| (&**it, &**list)).collect(),
            pending: shown.is_pending,
        }
    }
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

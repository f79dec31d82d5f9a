//! `POST /sessions/move`: players go on at another backend, without a reconnect.
//!
//! One player, or all of a backend, to a backend or to those of a group that have free slots. The
//! backends are asked a few players at a time, because none may be offered more than 64.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::{StatusCode, Uri};
use serde_json::json;

use super::http::{AdminState, Command};
use super::sessions;
use crate::config::Config;
use ringgate_core::limits::OFFERS_MAX;
use ringgate_fleet::values::question::{self, MOVE_TRIES};
use ringgate_gate::{
    BackendId, MOVE_MS, MOVE_MS_MAX, MOVE_REFUSALS, MoveOrder, MoveRefusal, SessionId, SessionInfo,
    Setup, Survey, Wanted,
};
use ringgate_process::pages::{NotDone, Query, Reply, Visit, Visitor, as_json, note, wrong};

/// A gateway whose players are to be moved: what its workers go by, and what they are asked.
pub trait MoveCrew: Sync {
    /// What workers go by.
    fn setup(&self) -> Arc<Setup>;

    /// Players of a backend.
    fn players(&self, backend: BackendId) -> u32;

    /// Which backends have this name, or are of this group.
    fn find_backends(
        &self,
        name: String,
    ) -> impl Future<Output = Result<Vec<BackendId>, NotDone>> + Send;

    /// Has all workers look for sessions.
    fn survey(
        &self,
        wanted: Wanted,
        limit: usize,
    ) -> impl Future<Output = Result<Arc<Survey>, NotDone>> + Send;

    /// Has workers offer players to other backends.
    fn order(
        &self,
        orders: Arc<[Arc<MoveOrder>]>,
    ) -> impl Future<Output = Result<(), NotDone>> + Send;
}

impl MoveCrew for AdminState {
    fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.view().live().setup)
    }

    fn players(&self, backend: BackendId) -> u32 {
        self.view().players(backend)
    }

    async fn find_backends(&self, name: String) -> Result<Vec<BackendId>, NotDone> {
        self.ask(|reply| Command::FindBackends { name, reply }).await
    }

    async fn survey(&self, wanted: Wanted, limit: usize) -> Result<Arc<Survey>, NotDone> {
        self.ask(|reply| Command::Survey { wanted, ends: None, limit, reply }).await
    }

    async fn order(&self, orders: Arc<[Arc<MoveOrder>]>) -> Result<(), NotDone> {
        self.ask(|reply| Command::Move { orders, reply }).await
    }
}

pub(super) async fn show(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, visitor, uri } = &visit;
    answer(&**state, visitor, uri).await
}

/// `POST /sessions/move?client_id=` or `?session=` or `?backend=`, `&to=&time_ms=&confirm=`.
pub async fn answer(crew: &impl MoveCrew, visitor: &Visitor, uri: &Uri) -> Reply {
    let known = ["client_id", "client", "session", "backend", "to", "time_ms", "confirm"];
    let query = Query::of(uri, &known)?;
    let wanted = sessions::wanted(&crew.setup(), &query)?;
    if wanted.client_id.is_none() && wanted.session.is_none() && wanted.backend.is_none() {
        return Err(wrong("expected client_id=ID, session=ID or backend=NAME"));
    }
    let to = query.text("to").ok_or_else(|| wrong("expected to=NAME, a backend or a group"))?;
    let time_ms = query.read("time_ms", "1 to 30000", |text| {
        text.parse().ok().filter(|ms| (1..=MOVE_MS_MAX).contains(ms))
    })?;
    let confirms = query.read("confirm", "true or false", |text| text.parse().ok())?;
    let targets = crew.find_backends(to.to_owned()).await?;
    if targets.is_empty() {
        return Err((StatusCode::NOT_FOUND, format!("there is no backend or group {to:?}\n")));
    }
    note(visitor, &format!("move of players to {to}"));
    let is_one = wanted.backend.is_none();
    let survey = crew.survey(wanted, sessions::LIMIT_MAX).await?;
    let (found, mut complete) = sessions::answer(&survey).await;
    complete &= found.sessions.len() as u64 == found.count;
    let players = found.sessions.into_iter().map(|(_, info)| info).collect();
    let confirms = confirms.unwrap_or(false);
    let mut plan = Plan { targets, time_ms, confirms, is_one, looks: 0 };
    let Outcome { moved, refused } = plan.carry_out(crew, players).await?;
    let refused: BTreeMap<_, _> =
        refused.into_iter().map(|(why, count)| (MOVE_REFUSALS[why as usize], count)).collect();
    tracing::info!(
        event = "moved",
        to,
        moved,
        by = %visitor,
        "moved {moved} players to {to}, as {visitor} has asked"
    );
    let answer = json!({ "moved": moved, "refused": refused, "complete": complete });
    Ok(as_json(StatusCode::OK, answer))
}

/// The backends of a name: the backend itself, or those behind a listener of that group.
pub fn backends_named(config: &Config, setup: &Setup, name: &str) -> Vec<BackendId> {
    let grouped = config
        .listeners
        .iter()
        .filter(|listener| listener.group.as_ref().is_some_and(|group| group.as_str() == name));
    let led = grouped.flat_map(|listener| &listener.backends);
    let names: Vec<_> = led.map(|at| config.backends[*at].name.as_str()).collect();
    let there = setup.backends.pairs().filter(|(_, backend)| !backend.retired);
    let is_meant = |it: &str| it == name || names.contains(&it);
    there.filter(|(_, backend)| is_meant(&backend.name)).map(|(id, _)| id).collect()
}

struct Plan {
    targets: Vec<BackendId>,
    time_ms: Option<u32>,
    confirms: bool,
    /// One player is meant, who may be there already: that is said.
    is_one: bool,
    /// How often it was looked whether all have been answered.
    looks: u32,
}

#[derive(Default)]
struct Outcome {
    moved: u64,
    refused: Vec<(MoveRefusal, u64)>,
}

impl Outcome {
    fn refuse(&mut self, why: MoveRefusal) {
        match self.refused.iter_mut().find(|(known, _)| *known == why) {
            Some((_, count)) => *count += 1,
            None => self.refused.push((why, 1)),
        }
    }
}

impl Plan {
    /// Has everybody moved. Whom one backend has not taken, another may.
    async fn carry_out(
        &mut self,
        crew: &impl MoveCrew,
        players: Vec<SessionInfo>,
    ) -> Result<Outcome, NotDone> {
        let mut outcome = Outcome::default();
        let mut left: Vec<_> = players.into_iter().map(|info| (info, Vec::new())).collect();
        for attempt in 1.. {
            let mut again = Vec::new();
            let batch = OFFERS_MAX * self.targets.len();
            while !left.is_empty() {
                let some = left.split_off(left.len().saturating_sub(batch));
                for (player, result) in self.ask_for(crew, some).await? {
                    match result {
                        Ok(()) => outcome.moved += 1,
                        Err(why) if may_be_tried_again(why) && self.goes_on(attempt) => {
                            again.push(player);
                        }
                        Err(why) => outcome.refuse(why),
                    }
                }
            }
            if again.is_empty() {
                break;
            }
            left = again;
        }
        Ok(outcome)
    }

    /// Offers some players, each to one backend, and waits for what becomes of it.
    async fn ask_for(
        &mut self,
        crew: &impl MoveCrew,
        players: Vec<Asked>,
    ) -> Result<Vec<(Asked, Result<(), MoveRefusal>)>, NotDone> {
        let setup = crew.setup();
        let mut room: Vec<_> = self
            .targets
            .iter()
            .filter_map(|id| {
                let slots = setup.backends.get(*id)?.slots;
                Some((*id, i64::from(slots) - i64::from(crew.players(*id))))
            })
            .collect();
        let mut asked = Vec::new();
        for (info, mut before) in players {
            let Some(session) = SessionId::from_u64(info.id) else { continue };
            let others = room.iter_mut().filter(|(id, _)| self.is_one || *id != info.backend);
            // Where no other is meant, the gate says that the player is there already.
            let to = next(others, &before).unwrap_or(info.backend);
            before.push(to);
            let order = MoveOrder::new(session, to, self.time_ms.unwrap_or(MOVE_MS));
            let order = if self.confirms { order.confirmed() } else { order };
            asked.push(((info, before), Arc::new(order)));
        }
        let orders: Arc<[_]> = asked.iter().map(|(_, order)| Arc::clone(order)).collect();
        crew.order(orders).await?;
        for _ in 0..self.looks_max() {
            if asked.iter().all(|(_, order)| order.outcome().is_some()) {
                break;
            }
            self.looks += 1;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let outcome = |order: &MoveOrder| order.outcome().unwrap_or(Err(MoveRefusal::Time));
        Ok(asked.into_iter().map(|(player, order)| (player, outcome(&order))).collect())
    }

    /// Whether a player whom nobody has taken in so many attempts is offered once more. Each
    /// backend is asked, as long as that takes no longer than [`MOVE_TRIES`] attempts may.
    const fn goes_on(&self, attempts: u32) -> bool {
        let fits = self.looks <= (MOVE_TRIES - 1) * self.looks_max();
        attempts < MOVE_TRIES || (attempts < self.targets.len() as u32 && fits)
    }

    /// How often it is looked whether all have been answered: a worker ends them in time.
    const fn looks_max(&self) -> u32 {
        let time_ms = if let Some(ms) = self.time_ms { ms } else { MOVE_MS };
        (time_ms + WORKER_MS) / LOOK_EVERY.as_millis() as u32
    }
}

/// A player, and the backends that were asked before.
type Asked = (SessionInfo, Vec<BackendId>);

/// Takes a slot of the backend with most room; one that was asked before only where no other has
/// any.
fn next<'a>(
    room: impl Iterator<Item = &'a mut (BackendId, i64)>,
    before: &[BackendId],
) -> Option<BackendId> {
    let (to, free) = room.max_by_key(|(id, free)| (*free > 0 && !before.contains(id), *free))?;
    *free -= 1;
    Some(*to)
}

/// Whether another backend may take a player, or the same a little later.
const fn may_be_tried_again(why: MoveRefusal) -> bool {
    use MoveRefusal as R;
    matches!(why, R::Closed | R::Denied | R::Full | R::NotLinked | R::Offers | R::Time)
}

/// Whoever asks a fleet waits by what a fleet says of moves.
const _: () = assert!(question::MOVE_MS == MOVE_MS && question::MOVE_MS_MAX == MOVE_MS_MAX);
/// A worker looks at an order within its next turn.
const WORKER_MS: u32 = 1000;
const LOOK_EVERY: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_a_group_is_asked_as_long_as_three_silent_ones_would_take() {
        let plan = |targets, looks| {
            let targets = (0..targets).map(BackendId).collect();
            Plan { targets, time_ms: Some(1000), confirms: false, is_one: true, looks }
        };
        let attempts = |plan: &Plan| (1..99).find(|it| !plan.goes_on(*it)).expect("it ends");
        // Who says no at once, who after half of the time, and who never says anything.
        let asked = |of: u16, looks| attempts(&plan(of, looks));
        assert_eq!([1, 2, 3, 9].map(|of| asked(of, 0)), [3, 3, 3, 9]);
        assert_eq!([3, 9].map(|of| asked(of, 2 * plan(of, 0).looks_max())), [3, 9]);
        assert_eq!([3, 9].map(|of| asked(of, 2 * plan(of, 0).looks_max() + 1)), [3, 3]);
    }

    #[test]
    fn whom_one_backend_has_refused_another_with_a_free_slot_is_offered() {
        let mut room = [(0, 9), (1, 2), (2, 0)].map(|(id, free)| (BackendId(id), free));
        let mut ask = |before: &[u16]| {
            let before: Vec<_> = before.iter().copied().map(BackendId).collect();
            next(room.iter_mut(), &before).map(|it| it.0)
        };
        assert_eq!(ask(&[]), Some(0), "most room");
        assert_eq!(ask(&[0]), Some(1), "it has some, too");
        assert_eq!(ask(&[0, 1]), Some(0), "the only other one is full");
        assert_eq!(ask(&[0]), Some(1), "its last slot");
        assert_eq!(ask(&[0]), Some(0), "nobody else has one");
        assert_eq!(next([].iter_mut(), &[]), None);
    }
}

//! Players who may be in one place of the fleet only: who is here, and what the fleet has to be
//! told of it. Whoever speaks with the fleet takes the news from here, and says which sessions have
//! to end because their player has logged in elsewhere.
//!
//! Nothing waits for the fleet: a player plays at once, and the claim follows. So nobody is refused
//! while it cannot be asked. A login at this gateway ends the player's older session here by the
//! same way. Touched only while a player connects or leaves.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::now::Now;
use ringgate_core::sync::lock;
use ringgate_link::bundle::SessionId;

/// Shared by all workers and whoever speaks with the fleet.
pub struct FleetPlayers {
    inner: Mutex<Inner>,
    /// There is news: read without the lock.
    has_news: AtomicBool,
    /// Sessions are to end: read without the lock.
    has_ousted: AtomicBool,
    /// Somebody was here: until then nobody who leaves has to be looked for.
    is_used: AtomicBool,
    players_max: usize,
}

#[derive(Default)]
struct Inner {
    players: HashMap<FleetPlayer, Standing>,
    /// Whose session it is.
    sessions: HashMap<SessionId, FleetPlayer>,
    /// Each player once.
    news: VecDeque<FleetPlayer>,
    ousted: VecDeque<SessionId>,
    /// Logins for which there was no room.
    missed: u64,
}

/// A client id, and the group of listeners in which nobody else has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FleetPlayer {
    /// The group.
    pub group: Arc<str>,
    /// The id.
    pub client_id: u64,
}

/// How it stands with a player.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// The session; none where the player has left.
    session: Option<SessionId>,
    /// When it began, in seconds since 1970.
    since_s: u64,
    /// In which term of its cluster it is here; 0 where it is no cluster's.
    term: u16,
    known: FleetView,
    is_news: bool,
    /// Its session is to end.
    is_ousted: bool,
}

/// What the fleet knows of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FleetView {
    /// Nothing, or that it is elsewhere.
    Nothing,
    /// That it is here.
    Ours,
    /// Nothing any more.
    Forgotten,
}

/// What the fleet is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerNews {
    /// Of whom.
    pub player: FleetPlayer,
    /// The session that the player has here; none where it has left.
    pub session: Option<SessionId>,
    /// When that began, in seconds since 1970.
    pub since_s: u64,
    /// In which term of its cluster it is here: the same session may be elsewhere in another one. 0
    /// where it is no cluster's.
    pub term: u16,
    /// The fleet has known it before: whoever has logged in elsewhere meanwhile may be newer.
    pub is_told_again: bool,
}

/// What has come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayerClaimed {
    /// The player is known as ours.
    Ours,
    /// Another gateway has a newer session of it: ours is to end.
    Theirs,
    /// The player is not known as ours any more.
    Released,
    /// There was no answer.
    Unknown,
}

impl FleetPlayers {
    /// Room for so many sessions.
    pub fn new(sessions_max: usize) -> Self {
        let inner = Inner {
            // Those who have left stand there until the fleet knows.
            players: HashMap::with_capacity(2 * sessions_max),
            sessions: HashMap::with_capacity(sessions_max),
            ..Inner::default()
        };
        let flag = || AtomicBool::new(false);
        let (has_news, has_ousted, is_used) = (flag(), flag(), flag());
        let players_max = 2 * sessions_max;
        Self { inner: Mutex::new(inner), has_news, has_ousted, is_used, players_max }
    }

    /// A session has begun, in this term of its cluster.
    pub(crate) fn began(
        &self,
        player: (&Arc<str>, u64),
        session: SessionId,
        (now, term): (Now, u16),
    ) {
        self.note(player, session, (now.unix_s, term, FleetView::Nothing));
    }

    /// A session goes on that the process before this one or another gateway has begun: a login
    /// since then is newer. Of one that is no cluster's the moment is not known here (0).
    pub(crate) fn goes_on(
        &self,
        player: (&Arc<str>, u64),
        session: SessionId,
        (since_s, term): (u64, u16),
    ) {
        self.note(player, session, (since_s, term, FleetView::Forgotten));
    }

    fn note(
        &self,
        (group, client_id): (&Arc<str>, u64),
        session: SessionId,
        (since_s, term, known): (u64, u16, FleetView),
    ) {
        let player = &FleetPlayer { group: Arc::clone(group), client_id };
        self.is_used.store(true, Ordering::Release);
        let mut inner = lock(&self.inner);
        if !inner.make_room(player, self.players_max) {
            inner.missed += 1;
            return;
        }
        let standing = inner.players.entry(player.clone()).or_insert(Standing::NOBODY);
        let is_older = term > 0 && known == FleetView::Forgotten && since_s < standing.since_s;
        if is_older && standing.session.is_some_and(|newer| newer != session) {
            inner.ousted.push_back(session);
            self.has_ousted.store(true, Ordering::Release);
            return;
        }
        let older = standing.session.replace(session);
        (standing.since_s, standing.term) = (since_s, term);
        if standing.known != FleetView::Ours {
            standing.known = known;
        }
        standing.is_ousted = false;
        if let Some(older) = older.filter(|older| *older != session) {
            inner.sessions.remove(&older);
            inner.ousted.push_back(older);
            self.has_ousted.store(true, Ordering::Release);
        }
        inner.sessions.insert(session, player.clone());
        inner.tell(player);
        self.has_news.store(true, Ordering::Release);
    }

    /// A session has ended.
    pub(crate) fn ended(&self, session: SessionId) {
        if !self.is_used.load(Ordering::Acquire) {
            return;
        }
        let mut inner = lock(&self.inner);
        let Some(player) = inner.sessions.remove(&session) else { return };
        let Some(standing) = inner.players.get_mut(&player) else { return };
        if standing.session == Some(session) {
            standing.session = None;
            inner.tell(&player);
            self.has_news.store(true, Ordering::Release);
        }
    }

    /// The player has logged in again here, at the same listener: the session that is in the way is
    /// to end.
    pub(crate) fn oust_older(&self, group: &Arc<str>, client_id: u64) {
        let player = FleetPlayer { group: Arc::clone(group), client_id };
        let mut inner = lock(&self.inner);
        if inner.oust(&player, None) {
            self.has_ousted.store(true, Ordering::Release);
        }
    }

    /// Whether there may be news.
    pub fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    /// The next news, of at most so many players. All of it is to be [`settled`](Self::settle). A
    /// session that is to end is none: claimed once more, it would end the newer one elsewhere.
    pub fn take_news(&self, count_max: usize) -> Vec<PlayerNews> {
        let mut inner = lock(&self.inner);
        let mut taken = Vec::new();
        while taken.len() < count_max {
            let Some(player) = inner.news.pop_front() else { break };
            let Some(standing) = inner.players.get_mut(&player) else { continue };
            // It has left since, and come again: its later word stands for both.
            if !std::mem::replace(&mut standing.is_news, false) {
                continue;
            }
            let Standing { session, since_s, term, known, is_ousted, .. } = *standing;
            if session.is_none() && known != FleetView::Ours {
                // It has come and gone before the fleet has heard of it.
                inner.players.remove(&player);
            } else if session.is_none() || !is_ousted {
                let is_told_again = known == FleetView::Forgotten;
                taken.push(PlayerNews { player, session, since_s, term, is_told_again });
            }
        }
        self.has_news.store(!inner.news.is_empty(), Ordering::Release);
        taken
    }

    /// What has come of some news.
    pub fn settle(&self, news: &PlayerNews, claimed: PlayerClaimed) {
        let mut inner = lock(&self.inner);
        let Some(standing) = inner.players.get_mut(&news.player) else { return };
        match claimed {
            PlayerClaimed::Ours => {
                standing.known = FleetView::Ours;
                if standing.session == news.session {
                    standing.since_s = news.since_s;
                }
            }
            PlayerClaimed::Released => {
                standing.known = FleetView::Nothing;
                if standing.session.is_none() {
                    inner.players.remove(&news.player);
                }
            }
            PlayerClaimed::Theirs => {
                standing.known = FleetView::Nothing;
                if inner.oust(&news.player, news.session) {
                    self.has_ousted.store(true, Ordering::Release);
                }
            }
            PlayerClaimed::Unknown => {
                inner.tell(&news.player);
                self.has_news.store(true, Ordering::Release);
            }
        }
    }

    /// Another gateway says that it has a newer session of this player. True where ours was that
    /// one, and is to end.
    pub fn oust(&self, player: &FleetPlayer, session: SessionId) -> bool {
        let mut inner = lock(&self.inner);
        let is_ours = inner.players.get(player).is_some_and(|it| it.session == Some(session));
        if is_ours && inner.oust(player, Some(session)) {
            if let Some(standing) = inner.players.get_mut(player) {
                standing.known = FleetView::Nothing;
            }
            self.has_ousted.store(true, Ordering::Release);
        }
        is_ours
    }

    /// The fleet has forgotten all of our players: they are news again.
    pub fn forget_claims(&self) {
        let mut inner = lock(&self.inner);
        let Inner { players, news, .. } = &mut *inner;
        news.reserve(players.len());
        // Workers wait for it: once through all of them.
        players.retain(|player, standing| {
            if standing.known == FleetView::Ours {
                standing.known = FleetView::Forgotten;
            }
            let is_here = standing.session.is_some();
            if is_here && !std::mem::replace(&mut standing.is_news, true) {
                news.push_back(player.clone());
            }
            is_here
        });
        self.has_news.store(!news.is_empty(), Ordering::Release);
    }

    /// Players who have left and of whom the fleet does not know that yet.
    pub fn left(&self) -> Vec<FleetPlayer> {
        let inner = lock(&self.inner);
        let has_left = |it: &Standing| it.session.is_none() && it.known == FleetView::Ours;
        let left = inner.players.iter().filter(|(_, it)| has_left(it));
        left.map(|(player, _)| player.clone()).collect()
    }

    /// The process before this one has not told the fleet that these have left. Whoever is here
    /// again by now stays.
    pub fn go_on_with_left(&self, left: impl IntoIterator<Item = FleetPlayer>) {
        self.is_used.store(true, Ordering::Release);
        let mut inner = lock(&self.inner);
        for player in left {
            if inner.players.contains_key(&player) || !inner.make_room(&player, self.players_max) {
                continue;
            }
            let standing = Standing { known: FleetView::Ours, ..Standing::NOBODY };
            inner.players.insert(player.clone(), standing);
            inner.tell(&player);
        }
        self.has_news.store(!inner.news.is_empty(), Ordering::Release);
    }

    /// Whether sessions may have to end.
    pub fn has_ousted(&self) -> bool {
        self.has_ousted.load(Ordering::Acquire)
    }

    /// Sessions that are to end, at most so many: each is named once.
    pub fn take_ousted(&self, count_max: usize) -> Vec<SessionId> {
        let mut inner = lock(&self.inner);
        let count = inner.ousted.len().min(count_max);
        let taken = inner.ousted.drain(..count).collect();
        self.has_ousted.store(!inner.ousted.is_empty(), Ordering::Release);
        taken
    }

    /// Players who are here, and those who have left and of whom the fleet does not know it yet.
    pub fn len(&self) -> usize {
        lock(&self.inner).players.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Logins that the fleet was not told, because there was no room to remember them.
    pub fn missed(&self) -> u64 {
        lock(&self.inner).missed
    }
}

ringgate_core::shown_by!(FleetPlayers { players_max });

impl Standing {
    const NOBODY: Self = Self {
        session: None,
        since_s: 0,
        term: 0,
        known: FleetView::Nothing,
        is_news: false,
        is_ousted: false,
    };
}

impl Inner {
    /// Makes sure that a player can be remembered. Where it is full, those are forgotten who have
    /// left: what the fleet knows of them is overwritten by whoever has them next.
    fn make_room(&mut self, player: &FleetPlayer, players_max: usize) -> bool {
        if self.players.len() < players_max || self.players.contains_key(player) {
            return true;
        }
        self.players.retain(|_, standing| standing.session.is_some());
        let Self { players, news, .. } = self;
        news.retain(|player| players.contains_key(player));
        self.players.len() < players_max
    }

    /// There is something to say of a player.
    fn tell(&mut self, player: &FleetPlayer) {
        let Some(standing) = self.players.get_mut(player) else { return };
        if !std::mem::replace(&mut standing.is_news, true) {
            self.news.push_back(player.clone());
        }
    }

    /// The session of a player is to end, if it is the one that is meant. False where that was said
    /// before.
    fn oust(&mut self, player: &FleetPlayer, meant: Option<SessionId>) -> bool {
        let Some(standing) = self.players.get_mut(player) else { return false };
        let Some(session) = standing.session else { return false };
        if meant.is_some_and(|meant| meant != session) {
            return false;
        }
        let is_new = !std::mem::replace(&mut standing.is_ousted, true);
        if is_new {
            self.ousted.push_back(session);
        }
        is_new
    }
}

#[cfg(test)]
mod tests;

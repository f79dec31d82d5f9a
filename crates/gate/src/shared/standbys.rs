//! Sessions that outlive their gateway: what this one owns and another could go on with, and what
//! others own and this one stands by for.
//!
//! A worker keeps the record of each clustered session here when that opens, and says when it ends.
//! The thread of the cluster's members takes what has changed to the standbys, writes down what
//! others give, and says which of their owners are gone. Then a worker may take a session over, for
//! a packet that opens under its key: it asks the session's arbiter, and goes on when that grants
//! it. No payload of a session that is here asks anything of this.

mod handed;
mod stood;

use std::collections::{HashMap, hash_map};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::ids::MemberId;
use crate::shared::whereabouts::{share_of, take};
use crate::store::area::Area;
use crate::store::hash::HashKey;
use crate::store::table::Address;
use ringgate_cluster::{Incarnation, NoRoom, Record, SessionId, Tenure};
use ringgate_core::sync::lock;
pub(crate) use stood::Found;
use stood::{CHANGES_MAX, Entry, Places, Stood, Unanswered};

/// Shared by all workers and the thread of the cluster's members.
pub struct Standbys {
    key: HashKey,
    /// One more than its number; 0 while there is none.
    incarnation: AtomicU32,
    /// The largest number of a process of the cluster that this one has heard of.
    latest: AtomicU16,
    own: [Mutex<Own>; SHARDS],
    /// Something of it has changed since that was last taken, or of what is said of all.
    has_news: AtomicBool,
    /// What others own, by a hash of the player's address.
    stood: [Mutex<Stood>; SHARDS],
    /// Some of it have come or gone since that was last taken.
    has_stands: AtomicBool,
    /// Where each of those is. Locked before any of `stood`, and by who changes them alone.
    places: Mutex<Places>,
    standing_count: AtomicUsize,
    standing_max: usize,
    /// How many of those have an owner that is gone.
    gone_count: AtomicUsize,
    /// Which these are, by their addresses without ports. Locked last.
    orphans: [Mutex<HashMap<Area, Vec<Orphan>>>; SHARDS],
    /// How many of those are this gateway's to have, because their owners offer them.
    offered_count: AtomicUsize,
    /// The members that can go on with sessions, and which processes they are.
    able: Mutex<Vec<(Incarnation, MemberId)>>,
    /// This gateway goes on with nothing of others.
    is_leaving: AtomicBool,
    /// And gives what it has to others.
    hands_over: AtomicBool,
    taken_over: AtomicU64,
    /// Of those, the ones that their owners had offered.
    moved: AtomicU64,
    fenced: AtomicU64,
    second: AtomicU64,
    alone: AtomicU64,
    ends_untold: AtomicU64,
    refused: [AtomicU64; TakeoverRefusal::COUNT],
}

/// Sessions of this gateway.
#[derive(Default)]
struct Own {
    held: HashMap<SessionId, Held>,
    /// Each of these is marked as changed where it is held.
    changed: Vec<SessionId>,
    count: usize,
}

struct Held {
    /// Nothing any more where the session has ended, which stays until that was taken.
    record: Option<Box<(Address, Record)>>,
    is_changed: bool,
    /// The member that it was offered to since that was last taken.
    offered_to: Option<MemberId>,
}

/// A session of this gateway, as members are told of it.
#[derive(Clone, Copy, Debug)]
pub struct Owned<'a> {
    /// Where its player is.
    pub address: Address,
    /// What another one needs to go on with it. Its `local` has in place of a port the number of
    /// the listener's address.
    pub record: &'a Record,
    /// The member to which it is to go, because its player's datagrams come in there.
    pub offered_to: Option<MemberId>,
}

/// A session whose owner is gone, and where its player was.
pub(crate) type Orphan = (Address, SessionId);

/// How it stands with sessions of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandbyCounts {
    /// Sessions here that others could go on with.
    pub owned: u64,
    /// Sessions of others that this gateway could go on with.
    pub standing: u64,
    /// Sessions that this gateway has gone on with.
    pub taken_over: u64,
    /// Of those, the ones whose owners lived and had offered them.
    pub moved: u64,
    /// Sessions that others have gone on with.
    pub fenced: u64,
    /// Sessions that began here though their players had one, which another gateway has.
    pub second: u64,
    /// Sessions for which their arbiters had no room: they end with this gateway.
    pub alone: u64,
    /// Sessions that have ended here, and whose arbiters are not told: too many waited for a link.
    pub ends_untold: u64,
    /// Sessions that were not taken over, by reason.
    pub refused: [u64; TakeoverRefusal::COUNT],
}

ringgate_core::named! {
    /// Why a session was not taken over, though a packet of its player was here.
    pub enum TakeoverRefusal;
    /// No backend here has the name of the one where the session plays.
    BackendUnknown = "backend_unknown",
    /// Its client id has a session here.
    ClientConnected = "client_connected",
    /// Its client or address is denied.
    Denied = "denied",
    /// Its arbiter says that it has ended.
    Ended = "ended",
    /// Its arbiter says that another gateway has it.
    Fenced = "fenced",
    /// There is no link to its arbiter, or not any more, or one that arbitrates nothing.
    LinkDown = "link_down",
    /// Its backend, its listener, its address or this worker has no room for one more.
    NoRoom = "no_room",
    /// Its arbiter has not answered in time.
    NotAnswered = "not_answered",
    /// No term is left for a further owner.
    TermsUsedUp = "terms_used_up",
    /// Its player has come with another token, after a silence.
    TokenSuperseded = "token_superseded",
}

impl TakeoverRefusal {
    /// Whether the session can be nobody's here any more.
    const fn is_final(self) -> bool {
        matches!(self, Self::BackendUnknown | Self::Ended | Self::Fenced | Self::TermsUsedUp)
            || matches!(self, Self::TokenSuperseded)
    }
}

impl Standbys {
    /// Of a gateway that owns nothing, and that may stand by for so many sessions.
    pub(crate) fn new(key: HashKey, standing_max: usize) -> Self {
        Self {
            key,
            incarnation: AtomicU32::new(0),
            latest: AtomicU16::new(0),
            own: std::array::from_fn(|_| Mutex::default()),
            has_news: AtomicBool::new(false),
            has_stands: AtomicBool::new(false),
            stood: std::array::from_fn(|_| Mutex::default()),
            places: Mutex::new(Places::new()),
            standing_count: AtomicUsize::new(0),
            standing_max,
            gone_count: AtomicUsize::new(0),
            orphans: std::array::from_fn(|_| Mutex::default()),
            offered_count: AtomicUsize::new(0),
            able: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            hands_over: AtomicBool::new(false),
            taken_over: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            fenced: AtomicU64::new(0),
            second: AtomicU64::new(0),
            alone: AtomicU64::new(0),
            ends_untold: AtomicU64::new(0),
            refused: [const { AtomicU64::new(0) }; TakeoverRefusal::COUNT],
        }
    }

    /// This process is that one of the cluster from now on, and for all of its life: what is said
    /// later changes nothing.
    pub fn set_incarnation(&self, own: Incarnation) {
        self.note_process(own);
        let number = u32::from(own.0) + 1;
        let (said, was) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.incarnation.compare_exchange(0, number, said, was);
    }

    /// There is or was such a process in the cluster.
    pub fn note_process(&self, Incarnation(number): Incarnation) {
        self.latest.fetch_max(number, ORDER);
    }

    /// The latest process of the cluster that this one has heard of; 0 where there is none.
    pub fn latest(&self) -> Incarnation {
        Incarnation(self.latest.load(ORDER))
    }

    /// Which process of the cluster this is, once that is known.
    pub fn incarnation(&self) -> Option<Incarnation> {
        let number = self.incarnation.load(Ordering::Acquire).checked_sub(1)?;
        Some(Incarnation(number as u16))
    }

    /// A session is this gateway's, and has this record from now on.
    pub(crate) fn keep(&self, address: Address, record: Record) {
        let mut own = lock(&self.own[part_of(&record.session)]);
        let session = record.session;
        let fresh = Held { record: None, is_changed: false, offered_to: None };
        let held = own.held.entry(session).or_insert(fresh);
        let before = held.record.replace(Box::new((address, record)));
        own.count += usize::from(before.is_none());
        self.note_change(&mut own, session);
    }

    /// It has ended, or is another gateway's.
    pub(crate) fn end(&self, session: SessionId) {
        let mut own = lock(&self.own[part_of(&session)]);
        let Some(held) = own.held.get_mut(&session) else { return };
        if held.record.take().is_some() {
            own.count -= 1;
            self.note_change(&mut own, session);
        }
    }

    fn note_change(&self, own: &mut Own, session: SessionId) {
        self.has_news.store(true, Ordering::Release);
        let Some(it) = own.held.get_mut(&session).filter(|it| !it.is_changed) else { return };
        if own.changed.len() < CHANGES_MAX {
            it.is_changed = true;
            own.changed.push(session);
        } else if it.record.is_none() {
            own.held.remove(&session);
        }
    }

    /// Whether something has changed since that was last taken, here or with what this gateway
    /// stands by for: the thread of members is to look.
    pub fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed) || self.has_stands.load(Ordering::Relaxed)
    }

    /// Takes some of this gateway's sessions that have changed since that was last asked, with
    /// their records; nothing where one has ended. Where more have changed than fit, the rest is
    /// for the next time.
    pub fn take_changes(&self, max: usize, mut handle: impl FnMut(SessionId, Option<Owned<'_>>)) {
        if !take(&self.has_news) {
            return;
        }
        let mut left = max;
        for own in &self.own {
            let Own { held, changed, .. } = &mut *lock(own);
            let taken = left.min(changed.len());
            left -= taken;
            for session in changed.drain(..taken) {
                let Some(it) = held.get_mut(&session) else { continue };
                it.is_changed = false;
                let offered_to = it.offered_to.take();
                match it.record.as_deref() {
                    Some((address, record)) => {
                        handle(session, Some(Owned { address: *address, record, offered_to }));
                    }
                    None => {
                        held.remove(&session);
                        handle(session, None);
                    }
                }
            }
        }
        if left == 0 {
            self.has_news.store(true, Ordering::Release);
        }
    }

    /// A session is to be a member's, because its player's datagrams come in there: said to it
    /// once, with the record as it is. False where that cannot go on with it.
    pub(crate) fn offer(&self, session: SessionId, to: MemberId) -> bool {
        if !lock(&self.able).iter().any(|(_, it)| *it == to) {
            return false;
        }
        let mut own = lock(&self.own[part_of(&session)]);
        let Some(held) = own.held.get_mut(&session) else { return false };
        held.offered_to = Some(to);
        self.note_change(&mut own, session);
        true
    }

    /// These members can go on with sessions from now on. What this gateway has kept of its own
    /// because a process could not be reached is that process's.
    pub fn set_able(&self, members: Vec<(Incarnation, MemberId)>) {
        for (process, _) in &members {
            self.note_process(*process);
            self.leave_to(*process);
        }
        *lock(&self.able) = members;
    }

    /// Whether this gateway goes on with sessions of others no more, and whether it gives them its
    /// own.
    pub fn set_leaving(&self, is_leaving: bool, hands_over: bool) {
        self.is_leaving.store(is_leaving, ORDER);
        self.hands_over.store(hands_over, ORDER);
        self.has_news.store(true, Ordering::Release);
    }

    /// Whether this gateway goes on with nothing of others.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(ORDER)
    }

    /// Whether it gives what it has to others.
    pub fn hands_over(&self) -> bool {
        self.hands_over.load(ORDER)
    }

    /// All of this gateway's sessions count as changed: other members stand by for them now.
    pub fn renew(&self) {
        for own in &self.own {
            let own = &mut *lock(own);
            let sessions: Vec<_> = own.held.keys().copied().collect();
            for session in sessions {
                self.note_change(own, session);
            }
        }
    }

    /// This gateway's sessions in one of [`PARTS`](crate::PARTS) parts.
    #[cfg(test)]
    pub(crate) fn own_part(&self, part: usize) -> Vec<SessionId> {
        let own = lock(&self.own[part]);
        own.held.iter().filter(|(_, it)| it.record.is_some()).map(|(session, _)| *session).collect()
    }

    /// Shows one of this gateway's sessions, if it is still there.
    #[cfg(test)]
    pub(crate) fn with_own<R>(
        &self,
        session: SessionId,
        show: impl FnOnce(Address, &Record) -> R,
    ) -> Option<R> {
        let own = lock(&self.own[part_of(&session)]);
        let (address, record) = own.held.get(&session)?.record.as_deref()?;
        Some(show(*address, record))
    }

    /// Stands by for a session of another member, whose player is at an address, in the place of
    /// what is known of it and of another session that this member has given there. What others
    /// have given there stays: who says what is not so must not be in their way. An owner that
    /// says so is there.
    pub fn stand_by(
        &self,
        owner: MemberId,
        address: Address,
        record: Record,
    ) -> Result<(), NoRoom> {
        let mut places = lock(&self.places);
        let session = record.session;
        let (mut before, mut is_claimed, mut unanswered) = (None, false, None);
        if let Some(place) = places.of.get(&session) {
            let mut stood = lock(self.stood_at(place));
            let known = stood.get_mut(place, session).expect("it is where its place says");
            // Until its arbiter says that this process has it, its owner is believed.
            let holder = known.record.holder;
            let is_own = known.owner.is_none() && self.incarnation() == Some(holder.incarnation);
            if known.record.is_later_than(&record) && !is_own {
                return Ok(());
            }
            before = Some(known.owner);
            // A worker waits for the answer, whatever is told of the session meanwhile.
            is_claimed = known.is_claimed;
            unanswered = match known.gone_at_ns {
                Some(since_ns) if is_own => Some(Unanswered { asked: holder, since_ns }),
                _ => known.unanswered,
            };
            // The same one is later where its listener has another number here by now.
            if !record.is_later_than(&known.record) && !is_own && *place == address {
                let before = known.owner.replace(owner);
                self.note_back(place, known);
                drop(stood);
                places.count(before, false);
                places.count(Some(owner), true);
                return Ok(());
            }
        }
        if before.is_none() && places.of.len() >= self.standing_max {
            return Err(NoRoom::All);
        }
        if before != Some(Some(owner)) && places.given_by(owner) >= share_of(self.standing_max) {
            return Err(NoRoom::Share);
        }
        let mut entry = Entry::new(Some(owner), record, None);
        (entry.is_claimed, entry.unanswered) = (is_claimed, unanswered);
        self.insert(&mut places, address, entry);
        Ok(())
    }

    fn insert(&self, places: &mut Places, address: Address, entry: Entry) {
        let session = entry.record.session;
        self.remove(places, session);
        let displaced = lock(self.stood_at(&address)).displaced_by(&address, &entry);
        for other in displaced {
            self.remove(places, other);
        }
        places.of.insert(session, address);
        places.count(entry.owner, true);
        if entry.gone_at_ns.is_some() {
            self.note_orphan(&address, session);
        }
        let mut stood = lock(self.stood_at(&address));
        stood.put(address, entry);
        self.standing_count.store(places.of.len(), ORDER);
        self.has_stands.store(true, Ordering::Release);
    }

    /// A member offers one of its sessions to this gateway. Returns where its player is, and which
    /// of our addresses that talks to, if this gateway stands by for it and may go on with it.
    pub fn hear_offer(
        &self,
        owner: MemberId,
        session: SessionId,
    ) -> Option<(Address, ([u8; 16], u16))> {
        if self.is_leaving() {
            return None;
        }
        let places = lock(&self.places);
        let place = places.of.get(&session)?;
        let mut stood = lock(self.stood_at(place));
        let it = stood.get_mut(place, session).filter(|it| it.owner == Some(owner))?;
        let is_news = !std::mem::replace(&mut it.is_offered, true);
        self.offered_count.fetch_add(is_news.into(), ORDER);
        Some((*place, it.record.local))
    }

    /// A session at an address that its owner offers to this gateway, unless a worker has asked
    /// for one there.
    #[inline]
    pub(crate) fn find_offered(&self, address: &Address) -> Option<Box<Record>> {
        if self.offered_count.load(ORDER) == 0 {
            return None;
        }
        let stood = lock(self.stood_at(address));
        let all = stood.at(address);
        let is_claimed = all.iter().any(|it| it.is_claimed);
        let it = all.iter().find(|it| it.is_offered && !is_claimed)?;
        Some(it.record.clone())
    }

    /// A member's session has ended, or has another standby. Where this process has asked for it
    /// and has not heard the answer, it may be this one's: the arbiter is asked again when a packet
    /// of its player comes.
    pub fn stand_down(&self, owner: MemberId, session: SessionId, now_ns: u64) {
        let mut places = lock(&self.places);
        let Some(&place) = places.of.get(&session) else { return };
        let mut stood = lock(self.stood_at(&place));
        let known = stood.get_mut(&place, session).filter(|it| it.owner == Some(owner));
        let Some(known) = known else { return };
        known.unanswered.take_if(|it| now_ns >= it.since_ns + UNANSWERED_NS);
        let mut kept = known.asked_again();
        if let Some(entry) = &mut kept {
            (entry.gone_at_ns, entry.is_claimed) = (Some(now_ns), known.is_claimed);
        }
        drop(stood);
        self.remove(&mut places, session);
        if let Some(entry) = kept {
            self.insert(&mut places, place, entry);
        }
    }

    /// Takes some of the addresses that have changed since that was last asked, and whether this
    /// gateway stands by for each.
    pub fn take_stands(&self, max: usize, mut handle: impl FnMut(Address, bool)) {
        if !take(&self.has_stands) {
            return;
        }
        let mut left = max;
        for stood in &self.stood {
            left -= lock(stood).take_changes(left, &mut handle);
        }
        if left == 0 {
            self.has_stands.store(true, Ordering::Release);
        }
    }

    /// The addresses that this gateway stands by for, in one of [`PARTS`](crate::PARTS) parts.
    pub fn stands_part(&self, part: usize) -> Vec<Address> {
        lock(&self.stood[part]).addresses()
    }

    /// A member is gone: the sessions that it has given may be taken over. What it gives anew is
    /// its own again.
    pub fn set_gone(&self, owner: MemberId, now_ns: u64) {
        self.each_of(owner, |place, it| {
            if it.gone_at_ns.is_none() {
                it.gone_at_ns = Some(now_ns);
                self.note_orphan(place, it.record.session);
            }
        });
    }

    /// A member that was gone is there after all, and is this process: one that had the same name
    /// before stays gone.
    pub fn set_back(&self, owner: MemberId, process: Incarnation) {
        self.each_of(owner, |place, it| {
            if it.record.holder.incarnation == process {
                self.note_back(place, it);
            }
        });
        self.leave_to(process);
    }

    /// What was this gateway's own, and that process has, is that process's to give.
    fn leave_to(&self, process: Incarnation) {
        if self.gone_count.load(ORDER) == 0 {
            return;
        }
        let is_its = |it: &Entry| it.owner.is_none() && it.record.holder.incarnation == process;
        self.remove_all(|it| !it.is_claimed && is_its(it));
    }

    fn remove_all(&self, is_over: impl Fn(&Entry) -> bool) {
        let mut places = lock(&self.places);
        let mut over = Vec::new();
        for stood in &self.stood {
            over.extend(lock(stood).all().filter(|it| is_over(it)).map(|it| it.record.session));
        }
        for session in over {
            self.remove(&mut places, session);
        }
    }

    fn each_of(&self, owner: MemberId, with: impl Fn(&Address, &mut Entry)) {
        for stood in &self.stood {
            let mut stood = lock(stood);
            for (place, it) in stood.all_mut().filter(|(_, it)| it.owner == Some(owner)) {
                with(place, it);
            }
        }
    }

    /// The owner of a session at an address is gone.
    fn note_orphan(&self, place: &Address, session: SessionId) {
        self.gone_count.fetch_add(1, ORDER);
        let area = place.area();
        lock(self.orphans_of(&area)).entry(area).or_default().push((*place, session));
    }

    /// That owner is there again, or this gateway does not stand by for the session any more.
    fn note_back(&self, place: &Address, it: &mut Entry) {
        if it.gone_at_ns.take().is_none() {
            return;
        }
        self.gone_count.fetch_sub(1, ORDER);
        let area = place.area();
        let mut orphans = lock(self.orphans_of(&area));
        let hash_map::Entry::Occupied(mut near) = orphans.entry(area) else { return };
        near.get_mut().retain(|(_, session)| *session != it.record.session);
        if near.get().is_empty() {
            near.remove();
        }
    }

    /// Forgets the sessions whose owner is gone for longer than their arbiters keep them.
    pub fn expire(&self, now_ns: u64) {
        if self.gone_count.load(ORDER) == 0 {
            return;
        }
        self.remove_all(|it| !it.is_claimed && it.is_over(now_ns));
    }

    /// How many sessions here others could go on with.
    pub fn owned(&self) -> usize {
        self.own.iter().map(|own| lock(own).count).sum()
    }

    /// How it stands.
    pub fn counts(&self) -> StandbyCounts {
        StandbyCounts {
            owned: self.owned() as u64,
            standing: self.standing_count.load(ORDER) as u64,
            taken_over: self.taken_over.load(ORDER),
            moved: self.moved.load(ORDER),
            fenced: self.fenced.load(ORDER),
            second: self.second.load(ORDER),
            alone: self.alone.load(ORDER),
            ends_untold: self.ends_untold.load(ORDER),
            refused: self.refused.each_ref().map(|count| count.load(ORDER)),
        }
    }

    /// Whether an address is that of a session whose owner is gone.
    #[inline]
    pub(crate) fn awaits(&self, address: &Address) -> bool {
        self.gone_count.load(ORDER) > 0
            && lock(self.stood_at(address)).at(address).iter().any(|it| it.gone_at_ns.is_some())
    }

    /// What a datagram may be tried with that comes from an address without a session here: nothing
    /// where none is known there, or its owner lives. Where several are known, the next datagram
    /// is tried with another one.
    #[inline]
    pub(crate) fn find(&self, address: &Address, now_ns: u64) -> Option<Found> {
        if self.gone_count.load(ORDER) == 0 {
            return None;
        }
        lock(self.stood_at(address)).find(address, now_ns)
    }

    /// Whether sessions whose owner is gone were at an address, with any port.
    #[inline]
    pub(crate) fn awaits_near(&self, address: &Address) -> bool {
        let area = address.area();
        self.gone_count.load(ORDER) > 0 && lock(self.orphans_of(&area)).contains_key(&area)
    }

    /// Some of these, so many at the most: from the one of that number on, and round.
    pub(crate) fn find_near(&self, address: &Address, from: usize, max: usize) -> Vec<Found> {
        let area = address.area();
        let places: Vec<Orphan> = match lock(self.orphans_of(&area)).get(&area) {
            Some(near) => {
                let numbers = (0..near.len().min(max)).map(|it| (from + it) % near.len());
                numbers.map(|number| near[number]).collect()
            }
            None => Vec::new(),
        };
        let found = places.iter().filter_map(|(place, session)| {
            let mut stood = lock(self.stood_at(place));
            let it = stood.get_mut(place, *session).filter(|it| it.gone_at_ns.is_some())?;
            Some(if it.is_claimed { Found::Claimed } else { Found::Try(it.record.clone()) })
        });
        found.collect()
    }

    /// A worker asks for a session. False where another worker does, or its owner is there again.
    pub(crate) fn begin_claim(&self, session: SessionId) -> bool {
        let places = lock(&self.places);
        let Some(place) = places.of.get(&session) else { return false };
        let mut stood = lock(self.stood_at(place));
        let it = stood.get_mut(place, session).expect("it is where its place says");
        it.is_free() && !std::mem::replace(&mut it.is_claimed, true)
    }

    /// It has not got it. What can be nobody's here any more is forgotten, unless its owner lives:
    /// that has said so since it was asked for, and says when it is over.
    pub(crate) fn give_up(&self, session: SessionId, why: TakeoverRefusal) {
        self.refused[why as usize].fetch_add(1, ORDER);
        let mut places = lock(&self.places);
        let Some(place) = places.of.get(&session) else { return };
        let mut stood = lock(self.stood_at(place));
        let it = stood.get_mut(place, session).expect("it is where its place says");
        if why.is_final() {
            if it.owner.is_none() || it.gone_at_ns.is_some() {
                drop(stood);
                return self.remove(&mut places, session);
            }
            it.unanswered = None;
        }
        it.is_claimed = false;
        // Its owner has it, and offers it again if it likes.
        let was_offered = std::mem::take(&mut it.is_offered);
        self.offered_count.fetch_sub(was_offered.into(), ORDER);
    }

    /// The link to the arbiter of a session is over, on which this process has asked for it: the
    /// arbiter may read the question yet, and its answer is lost.
    pub(crate) fn note_unanswered(
        &self,
        address: Address,
        record: &Record,
        asked: Tenure,
        now_ns: u64,
    ) {
        let session = record.session;
        let mut places = lock(&self.places);
        if let Some(place) = places.of.get(&session) {
            let mut stood = lock(self.stood_at(place));
            let known = stood.get_mut(place, session).expect("it is where its place says");
            known.unanswered = Some(Unanswered { asked, since_ns: now_ns });
        } else if places.of.len() < self.standing_max
            && !self.is_leaving()
            && !lock(&self.own[part_of(&session)]).held.contains_key(&session)
        {
            self.insert(&mut places, address, Entry::asked_for(record.clone(), asked, now_ns));
        }
    }

    /// It has got it.
    pub(crate) fn note_taken_over(&self, session: SessionId, was_offered: bool) {
        self.taken_over.fetch_add(1, ORDER);
        self.moved.fetch_add(was_offered.into(), ORDER);
        self.remove(&mut lock(&self.places), session);
    }

    /// Another gateway has gone on with a session that was this one's, or has the first session of
    /// a player who has begun a second one here.
    pub(crate) fn note_left(&self, is_second: bool) {
        let count = if is_second { &self.second } else { &self.fenced };
        count.fetch_add(1, ORDER);
    }

    /// Returns which member has a session. Where that cannot be reached, this gateway stands by for
    /// the session, so that it goes on here when its player comes back.
    pub(crate) fn stand_by_for(
        &self,
        address: Address,
        record: Record,
        now_ns: u64,
    ) -> Option<MemberId> {
        let process = record.holder.incarnation;
        let able = lock(&self.able);
        if let Some((_, member)) = able.iter().find(|(it, _)| *it == process) {
            return Some(*member);
        }
        let mut places = lock(&self.places);
        if places.of.len() < self.standing_max && !self.is_leaving() {
            self.insert(&mut places, address, Entry::new(None, record, Some(now_ns)));
        }
        None
    }

    /// An arbiter has no room for a session of this gateway.
    pub(crate) fn note_alone(&self) {
        self.alone.fetch_add(1, ORDER);
    }

    /// An arbiter is not told that a session of this gateway has ended.
    pub(crate) fn note_end_untold(&self) {
        self.ends_untold.fetch_add(1, ORDER);
    }

    fn remove(&self, places: &mut Places, session: SessionId) {
        let hash_map::Entry::Occupied(place) = places.of.entry(session) else { return };
        let address = place.remove();
        let mut stood = lock(self.stood_at(&address));
        let mut entry = stood.take(&address, session).expect("it is where its place says");
        places.count(entry.owner, false);
        self.note_back(&address, &mut entry);
        self.offered_count.fetch_sub(entry.is_offered.into(), ORDER);
        self.standing_count.store(places.of.len(), ORDER);
        self.has_stands.store(true, Ordering::Release);
    }

    fn orphans_of(&self, area: &Area) -> &Mutex<HashMap<Area, Vec<Orphan>>> {
        &self.orphans[area.hash(self.key) as usize % SHARDS]
    }

    fn stood_at(&self, address: &Address) -> &Mutex<Stood> {
        &self.stood[(address.wide_hash(self.key) >> 32) as usize % SHARDS]
    }
}

/// Ids are random.
const fn part_of(SessionId([first, ..]): &SessionId) -> usize {
    *first as usize % SHARDS
}

/// How long an agent may have stood still before it reads a question, and grants it.
const UNANSWERED_NS: u64 = 600_000_000_000;

/// Counts alone: what is decided is decided under a lock.
const ORDER: Ordering = Ordering::Relaxed;

const SHARDS: usize = crate::shared::whereabouts::PARTS;

const _: () = assert!(size_of::<Record>() <= 512);

#[cfg(test)]
pub(crate) mod tests;

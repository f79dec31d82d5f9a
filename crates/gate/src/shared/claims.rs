//! What the workers must agree on: who is connected, which tokens were used, which backend slots
//! are taken.
//!
//! Touched only while a player connects or leaves; never for a packet of a session. One mutex
//! guards everything but [`Homes`], which every datagram of an unknown source asks. So a claim is
//! all or nothing. Memory is bounded: when the token history is full of live entries, new tokens
//! are refused and counted; a live entry is never evicted, because that would let its token be used
//! from elsewhere.
//!
//! The lock is never held for long: the tables are reserved at the start and never grow, and each
//! new token clears a few expired ones away, however many have expired at once. What is reserved
//! takes memory only when it is first used.

pub(crate) mod handed;
pub(crate) mod history;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::ids::{BackendId, IdVec, ListenerId, MemberId, Slot, WorkerId};
use crate::now::Now;
use crate::setup::{ClaimLimits, Limits, Setup};
use crate::shared::claims::history::{History, NoTerm, SpentToken, TokenMac, TokenName, TokenPast};
use crate::shared::cookies::Cookies;
use crate::shared::homes::{Homes, Workers};
use crate::shared::shares::{Shares, check_source};
use crate::shared::standbys::{Standbys, TakeoverRefusal};
use crate::shared::whereabouts::Whereabouts;
use crate::store::area::Area;
use crate::store::census::Census;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::multimap::{Multimap, Record};
use crate::store::table::Address;
use ringgate_batch::Endpoint;
use ringgate_cluster::Term;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::{BACKENDS_MAX, LISTENERS_MAX};
use ringgate_core::netcode::destination::Join;
use ringgate_core::proto::netcode::server::SessionSequence;
use ringgate_core::sync::lock;
use ringgate_link::bundle::{MoveRefusal, SessionId};

/// Players whom one backend may be offered at a time.
const OFFERS_MAX: u32 = 64;

/// Whose players may have come between two looks.
const JOINS_MAX: usize = 4096;

/// Players of other members that may be known, for each that may be here.
const OTHERS_PER_SESSION: usize = 8;
const OTHERS_MIN: usize = 1 << 16;

/// What a session holds while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) listener: ListenerId,
    pub(crate) client_id: u64,
    pub(crate) backend: BackendId,
    pub(crate) slot: Slot,
    /// Where the player is, for the limits on sources.
    pub(crate) source: Endpoint,
}

impl Claim {
    /// Stands where there is no session.
    pub(crate) const NOBODYS: Self = Self {
        listener: ListenerId(0),
        client_id: 0,
        backend: BackendId(0),
        slot: Slot(0),
        source: Endpoint::v4([0; 4], 0),
    };
}

/// What a player needs who has proved its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) listener: ListenerId,
    pub(crate) client_id: u64,
    pub(crate) backend: BackendId,
    /// Sessions that the listener may have, over all workers.
    pub(crate) sessions_max: u32,
    /// Where the player is.
    pub(crate) source: Endpoint,
    /// What one source may take of the listener.
    pub(crate) limits: &'a Limits,
    pub(crate) token_mac: &'a TokenMac,
    /// Whether a token may have another session beside one or after one.
    pub(crate) allows_reuse: bool,
    /// Where the sequence starts of a token that was not used before.
    pub(crate) random: u64,
}

/// Shared by all workers of a gateway.
pub struct Claims {
    inner: Mutex<Inner>,
    /// Tokens may have been spent that are not written down: read without the lock.
    has_spent: AtomicBool,
    /// A fleet is told whose players have come.
    tells_joins: AtomicBool,
    /// Keys the hashes of client ids and addresses.
    hashes: HashKey,
    /// Players of each backend: read without the lock to route.
    players: IdVec<BackendId, AtomicU32>,
    /// Of those, the slots that are kept for players who are offered.
    offers: IdVec<BackendId, AtomicU32>,
    /// What those players speak, by its number.
    spoken: IdVec<BackendId, AtomicU8>,
    /// Sessions of each listener.
    sessions: IdVec<ListenerId, AtomicU32>,
    cookies: Cookies,
    homes: Homes,
    shares: Shares,
    /// Where the others of a cluster have players.
    whereabouts: Option<Arc<Whereabouts>>,
    /// What they go on with if this gateway dies, and it if they do.
    standbys: Option<Arc<Standbys>>,
}

/// The workers that look at a member's datagram.
#[derive(Clone, Copy, Debug)]
pub struct Takers {
    workers: Workers,
    /// None of them has the player, as far as is known: it is a stranger.
    pub is_stray: bool,
}

impl Takers {
    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = WorkerId> {
        self.workers.iter()
    }
}

struct Inner {
    clients: Multimap<Client>,
    tokens: History,
    slots: IdVec<BackendId, Slots>,
    /// Sessions of each address, site and block.
    sources: Census,
    /// Whose players have come, by their tokens, until a fleet is told.
    joins: Vec<(BackendId, Join)>,
}

/// A client id, and the listener where it has a session.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ClientKey {
    client_id: u64,
    listener: ListenerId,
}

/// Who is connected, and with which token. In bytes, because there are as many as sessions.
#[derive(Clone, Copy)]
struct Client {
    id: [u8; 8],
    listener: u8,
    token: TokenName,
    /// A netcode player's session, once that is there.
    session: [u8; 8],
    /// The worker that has it has found it silent when it was last asked.
    is_silent: bool,
}

const _: () = assert!(size_of::<Client>() == 25 && LISTENERS_MAX <= 1 << 8);

impl Record for Client {
    fn vacate(&mut self, next: u32) {
        self.id = u64::from(next).to_le_bytes();
    }

    fn next_vacant(&self) -> u32 {
        u64::from_le_bytes(self.id) as u32
    }
}

/// The session that a client id has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seated {
    pub(crate) session: SessionId,
    /// The worker that has it has found it silent, when it was last asked.
    pub(crate) is_silent: bool,
    token: TokenName,
}

impl Seated {
    /// Whether it was opened with this token.
    pub(crate) fn is_by(&self, mac: &TokenMac) -> bool {
        mac.starts_with(&self.token)
    }
}

/// The slots of a backend: a bitmap, lowest free first.
struct Slots {
    taken: Vec<u64>,
    /// Invariant: all slots of the words before this one are taken.
    first_open: usize,
    count: u32,
    max: u32,
}

impl Claims {
    /// Claims for backends with these many slots each.
    ///
    /// # Panics
    /// Where there are more listeners or backends than a gateway can have.
    pub fn new(listeners: usize, backend_slots: &[u32], limits: ClaimLimits) -> Self {
        let random = RandomState::new();
        Self::with_key(listeners, backend_slots, limits, [random.hash_one(0), random.hash_one(1)])
    }

    /// [`new`](Self::new) with a given key for all hashes: which addresses share a bucket decides
    /// who is asked about a player's new port, so a simulated world needs the same ones each time;
    /// and the memory of a process that goes on with what another one has kept is by its key.
    ///
    /// # Panics
    /// As for [`new`](Self::new).
    pub fn with_key(
        listeners: usize,
        backend_slots: &[u32],
        limits: ClaimLimits,
        key: [u64; 2],
    ) -> Self {
        assert!(listeners <= LISTENERS_MAX && backend_slots.len() <= BACKENDS_MAX);
        let key = HashKey::new(key);
        let inner = Inner {
            clients: Multimap::new(limits.sessions_max),
            tokens: History::new(limits.tokens_max),
            slots: backend_slots.iter().map(|&max| Slots::new(max)).collect(),
            sources: Census::new(3 * limits.sessions_max, key),
            joins: Vec::with_capacity(JOINS_MAX),
        };
        Self {
            inner: Mutex::new(inner),
            has_spent: AtomicBool::new(false),
            tells_joins: AtomicBool::new(false),
            hashes: key,
            players: (0..BACKENDS_MAX).map(|_| AtomicU32::new(0)).collect(),
            offers: (0..BACKENDS_MAX).map(|_| AtomicU32::new(0)).collect(),
            spoken: (0..BACKENDS_MAX).map(|_| AtomicU8::new(0)).collect(),
            sessions: (0..LISTENERS_MAX).map(|_| AtomicU32::new(0)).collect(),
            cookies: Cookies::new(key),
            homes: Homes::new(limits.sessions_max, key),
            shares: Shares::new(limits.sessions_max, key),
            whereabouts: None,
            standbys: None,
        }
    }

    /// The same for a gateway that shares its addresses with others, where it does.
    #[must_use]
    pub fn clustered(mut self, setup: &Setup) -> Self {
        if setup.cluster.is_some() {
            let others_max =
                (OTHERS_PER_SESSION * setup.claim_limits().sessions_max).max(OTHERS_MIN);
            self.whereabouts = Some(Arc::new(Whereabouts::new(self.hashes, others_max)));
            self.standbys = Some(Arc::new(Standbys::new(self.hashes, others_max)));
        }
        self
    }

    /// Which member of the cluster has which player; `None` where there is no cluster.
    #[inline]
    pub const fn whereabouts(&self) -> Option<&Arc<Whereabouts>> {
        self.whereabouts.as_ref()
    }

    /// Sessions that others go on with where this gateway dies, and theirs; `None` where there is
    /// no cluster.
    #[inline]
    pub const fn standbys(&self) -> Option<&Arc<Standbys>> {
        self.standbys.as_ref()
    }

    /// The member that a datagram of an address goes to: none where its owner does not answer, and
    /// this gateway is the one to go on with its session.
    pub fn member_with(&self, address: &Address) -> Option<MemberId> {
        let member = self.whereabouts.as_ref()?.find(address)?;
        let awaits = self.standbys.as_ref().is_some_and(|standbys| standbys.awaits(address));
        (!awaits).then_some(member)
    }

    /// The member that says it has the player of an address, where the session that this gateway
    /// is to go on with is not the last one there.
    pub(crate) fn member_since(&self, address: &Address) -> Option<MemberId> {
        self.whereabouts.as_ref()?.find_answering(address)
    }

    /// Those of so many workers that a member's datagram goes to.
    pub fn takers(&self, address: &Address, is_lost: bool, workers: u16) -> Takers {
        let there = self.whereabouts().and_then(|whereabouts| whereabouts.worker_of(address));
        let found = match there {
            Some(worker) => Workers::one(worker),
            None if is_lost => self.homes.workers(self.homes.bucket(&address.area())),
            None => Workers::NONE,
        };
        if !found.is_empty() {
            return Takers { workers: found, is_stray: false };
        }
        let first = WorkerId((address.hash(self.hashes) % u32::from(workers.max(1))) as u16);
        Takers { workers: Workers::one(first), is_stray: true }
    }

    /// Records that a token is used from `source`, at request time. A token that was used from
    /// there before may be used again; from elsewhere it may not. Returns what it was used for
    /// before.
    pub(crate) fn use_token(
        &self,
        mac: &TokenMac,
        source: &Endpoint,
        expire_s: u64,
        now: Now,
    ) -> Result<TokenPast, DropReason> {
        let source = self.hash_source(source);
        lock(&self.inner).tokens.use_token(mac, source, expire_s, now)
    }

    /// Records that a session has taken something in from its player, which spends its token.
    pub(crate) fn spend_token(&self, listener: ListenerId, client_id: u64) {
        let key = ClientKey { client_id, listener };
        let hash = self.hash(&key);
        let mut inner = lock(&self.inner);
        if let Some(position) = inner.find_client(hash, &key) {
            let token = inner.clients.at(position).token;
            inner.tokens.spend(token);
            self.has_spent.store(true, Ordering::Release);
        }
    }

    /// Makes a term for a session of a token that another gateway has had, and whose player is at
    /// `source`. The token is spent from then on.
    pub(crate) fn make_term(
        &self,
        token: (&TokenMac, u64),
        source: &Endpoint,
        beyond: Term,
        now: Now,
    ) -> Result<Term, NoTerm> {
        let source = self.hash_source(source);
        let made = lock(&self.inner).tokens.make_term(token, source, beyond, now);
        self.has_spent.store(true, Ordering::Release);
        made
    }

    /// Leaves terms out that another process may have made: its hand-over has failed, the `time`th
    /// time for this one.
    pub(crate) fn leave_terms_out(&self, time: u16) {
        lock(&self.inner).tokens.leave_terms_out(time);
    }

    /// When a token expires that is remembered, in seconds since 1970.
    pub(crate) fn expiry_of(&self, mac: &TokenMac) -> Option<u64> {
        lock(&self.inner).tokens.expiry_of(mac)
    }

    /// Whether spent tokens may be there that were not [taken](Self::take_spent).
    pub fn has_spent(&self) -> bool {
        self.has_spent.load(Ordering::Acquire)
    }

    /// Some of the spent tokens that are to be written down, so that they are spent in the next
    /// process too, however this one ends.
    pub fn take_spent(&self, count_max: usize) -> Vec<SpentToken> {
        let mut inner = lock(&self.inner);
        let spent = inner.tokens.take_spent(count_max);
        self.has_spent.store(spent.len() == count_max, Ordering::Release);
        spent
    }

    /// These could not be written down, and are to be taken again.
    pub fn take_back_spent(&self, spent: &[SpentToken]) {
        lock(&self.inner).tokens.take_back_spent(spent);
        self.has_spent.store(true, Ordering::Release);
    }

    /// Remembers a token that a process before this one has written down. False where there is no
    /// room.
    pub fn remember_spent(&self, token: &SpentToken, now: Now) -> bool {
        lock(&self.inner).tokens.remember_spent(token, now)
    }

    /// Whether a fleet is told whose players have come.
    pub(crate) fn tells_joins(&self) -> bool {
        self.tells_joins.load(Ordering::Relaxed)
    }

    /// A session has spent a token that a fleet has made, and is counted among its backend's. Of
    /// more than there is room for, the promises last until the tokens end.
    pub(crate) fn note_join(&self, backend: BackendId, join: Join) {
        let mut inner = lock(&self.inner);
        if inner.joins.len() < JOINS_MAX {
            inner.joins.push((backend, join));
        }
    }

    /// Tokens that were noted since the last time, for a fleet. A caller that asks for
    /// [`players`](Self::players) afterwards finds each of their players counted, or gone.
    pub fn take_joins(&self) -> Vec<(BackendId, Join)> {
        self.tells_joins.store(true, Ordering::Relaxed);
        let mut inner = lock(&self.inner);
        let taken = inner.joins.clone();
        inner.joins.clear();
        taken
    }

    /// Whether a client id has a session at a listener.
    pub(crate) fn is_connected(&self, listener: ListenerId, client_id: u64) -> bool {
        let key = ClientKey { client_id, listener };
        let hash = self.hash(&key);
        lock(&self.inner).find_client(hash, &key).is_some()
    }

    /// The session that a client id has at a listener.
    pub(crate) fn seated(&self, listener: ListenerId, client_id: u64) -> Option<Seated> {
        let key = ClientKey { client_id, listener };
        let hash = self.hash(&key);
        let inner = lock(&self.inner);
        let &Client { session, is_silent, token, .. } =
            inner.clients.at(inner.find_client(hash, &key)?);
        let session = SessionId::from_u64(u64::from_le_bytes(session))?;
        Some(Seated { session, is_silent, token })
    }

    /// Says which session a client id has, and whether that is silent.
    pub(crate) fn seat(
        &self,
        listener: ListenerId,
        client_id: u64,
        (session, is_silent): (SessionId, bool),
    ) {
        let key = ClientKey { client_id, listener };
        let hash = self.hash(&key);
        let mut inner = lock(&self.inner);
        if let Some(position) = inner.find_client(hash, &key) {
            let client = inner.clients.at_mut(position);
            (client.session, client.is_silent) = (session.as_u64().to_le_bytes(), is_silent);
        }
    }

    /// Claims the client id and the lowest free slot of a backend, and a range of sequence numbers
    /// that no other session of the same token has.
    pub(crate) fn connect(
        &self,
        wanted: &Wanted<'_>,
    ) -> Result<(Claim, SessionSequence), DropReason> {
        let mut inner = lock(&self.inner);
        let claim = self.claim(&mut inner, wanted)?;
        let process = self.standbys.as_ref().and_then(|it| it.incarnation());
        let sequence = inner.tokens.begin_session(wanted.token_mac, wanted.random, process);
        if wanted.allows_reuse {
            // Of one that was spent before, the next numbers are others now.
            self.has_spent.store(true, Ordering::Release);
        }
        Ok((claim, sequence))
    }

    /// Claims the client id and the lowest free slot for a session of another gateway, whose token
    /// is [spent](Self::make_term) and not asked.
    pub(crate) fn take_over(&self, wanted: &Wanted<'_>) -> Result<Claim, TakeoverRefusal> {
        let claimed = self.claim(&mut lock(&self.inner), wanted);
        claimed.map_err(|why| match why {
            DropReason::ResponseClientConnected => TakeoverRefusal::ClientConnected,
            _ => TakeoverRefusal::NoRoom,
        })
    }

    fn claim(&self, inner: &mut Inner, wanted: &Wanted<'_>) -> Result<Claim, DropReason> {
        let &Wanted { listener, client_id, backend, .. } = wanted;
        let key = ClientKey { client_id, listener };
        let hash = self.hash(&key);
        if inner.find_client(hash, &key).is_some() {
            return Err(DropReason::ResponseClientConnected);
        }
        if !wanted.allows_reuse {
            inner.check_token(wanted.token_mac)?;
        }
        let sessions = &self.sessions[listener];
        if sessions.load(Ordering::Relaxed) >= wanted.sessions_max || inner.clients.is_full() {
            return Err(DropReason::ResponseSessionsFull);
        }
        check_source(&inner.sources, listener, &wanted.source, wanted.limits)?;
        let slots = inner.slots.get_mut(backend).ok_or(DropReason::ResponseBackendDown)?;
        let slot = slots.take().ok_or(DropReason::ResponseBackendFull)?;
        let token = *wanted.token_mac.first_chunk().expect("a tag is longer");
        inner.clients.insert(hash, Client::new(&key, token));
        self.players[backend].fetch_add(1, Ordering::Relaxed);
        sessions.fetch_add(1, Ordering::Relaxed);
        let source = wanted.source;
        inner.enter_source(listener, &source);
        Ok(Claim { listener, client_id, backend, slot, source })
    }

    /// Keeps the lowest free slot of a backend for a player of another one who may come, unless as
    /// many are kept as may be. It counts as a player's.
    pub(crate) fn reserve(&self, backend: BackendId) -> Result<Slot, MoveRefusal> {
        let mut inner = lock(&self.inner);
        if self.offers(backend) >= OFFERS_MAX {
            return Err(MoveRefusal::Offers);
        }
        let slots = inner.slots.get_mut(backend).ok_or(MoveRefusal::NoSuchBackend)?;
        let slot = slots.take().ok_or(MoveRefusal::Full)?;
        self.count_offer(backend);
        Ok(slot)
    }

    /// Gives back what [`reserve`](Self::reserve) has kept.
    pub(crate) fn give_reserved(&self, backend: BackendId, slot: Slot) {
        lock(&self.inner).slots[backend].give(slot);
        self.players[backend].fetch_sub(1, Ordering::Relaxed);
        self.offers[backend].fetch_sub(1, Ordering::Relaxed);
    }

    /// A player goes over into a slot that was kept for it. What it has held is free.
    pub(crate) fn go_over(&self, from: &Claim, to: BackendId) {
        lock(&self.inner).slots[from.backend].give(from.slot);
        self.players[from.backend].fetch_sub(1, Ordering::Relaxed);
        self.offers[to].fetch_sub(1, Ordering::Relaxed);
    }

    fn count_offer(&self, backend: BackendId) {
        self.players[backend].fetch_add(1, Ordering::Relaxed);
        self.offers[backend].fetch_add(1, Ordering::Relaxed);
    }

    /// Players whom a backend is offered.
    pub fn offers(&self, backend: BackendId) -> u32 {
        self.offers[backend].load(Ordering::Relaxed)
    }

    /// Gives everything back that [`connect`](Self::connect) gave.
    pub(crate) fn leave(&self, claim: &Claim) {
        self.give_back(claim, None);
    }

    /// The same for a player who was last at `source`: from now on its token may be used from
    /// there.
    pub(crate) fn leave_from(&self, claim: &Claim, source: &Endpoint) {
        self.give_back(claim, Some(self.hash_source(source)));
    }

    fn give_back(&self, claim: &Claim, source: Option<u64>) {
        let key = ClientKey { client_id: claim.client_id, listener: claim.listener };
        let hash = self.hash(&key);
        let mut inner = lock(&self.inner);
        let Some(position) = inner.find_client(hash, &key) else {
            debug_assert!(false, "a claim is given back once");
            return;
        };
        let client = inner.clients.remove(hash, position);
        inner.tokens.end_session(client.token, source);
        inner.slots[claim.backend].give(claim.slot);
        inner.leave_source(claim.listener, &claim.source);
        self.players[claim.backend].fetch_sub(1, Ordering::Relaxed);
        self.sessions[claim.listener].fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether an address is known to have sessions. A flood asks this for each datagram, so it
    /// waits for nobody, and nobody for it: while another worker is at it, nothing is known.
    pub(crate) fn has_player_at(&self, address: &Address) -> bool {
        self.inner.try_lock().is_ok_and(|inner| inner.sources.of(&address.area()) > 0)
    }

    /// Whether a source may have another session. Only a hint: the claim itself decides.
    pub(crate) fn has_room_for(
        &self,
        listener: ListenerId,
        source: &Endpoint,
        limits: &Limits,
    ) -> Result<(), DropReason> {
        let Limits { sessions_per_address, sessions_per_site, sessions_per_block, .. } = *limits;
        if [sessions_per_address, sessions_per_site, sessions_per_block] == [0; 3] {
            return Ok(());
        }
        check_source(&lock(&self.inner).sources, listener, source, limits)
    }

    /// Whether a source may have another session at a backend once one has gone. Only a hint, too.
    pub(crate) fn has_room_instead_of(
        &self,
        gone: &Claim,
        backend: BackendId,
        source: &Endpoint,
        limits: &Limits,
    ) -> Result<(), DropReason> {
        let mut inner = lock(&self.inner);
        let given = u32::from(gone.backend == backend);
        if inner.slots.get(backend).is_none_or(|slots| slots.count >= slots.max + given) {
            return Err(DropReason::ResponseBackendFull);
        }
        inner.leave_source(gone.listener, &gone.source);
        let allowed = check_source(&inner.sources, gone.listener, source, limits);
        inner.enter_source(gone.listener, &gone.source);
        allowed
    }

    /// Takes a session along to where its player has moved, if that address and that block may have
    /// another one: otherwise an attacker could collect the sessions of many addresses at one.
    pub(crate) fn relocate(
        &self,
        claim: &mut Claim,
        source: Endpoint,
        limits: &Limits,
    ) -> Result<(), DropReason> {
        let (listener, from) = (claim.listener, claim.source);
        if Area::address(listener, &from) != Area::address(listener, &source) {
            let mut inner = lock(&self.inner);
            inner.leave_source(listener, &from);
            let allowed = check_source(&inner.sources, listener, &source, limits);
            inner.enter_source(listener, if allowed.is_ok() { &source } else { &from });
            allowed?;
        }
        claim.source = source;
        Ok(())
    }

    /// Which workers have sessions of an address: read without the lock.
    pub(crate) const fn homes(&self) -> &Homes {
        &self.homes
    }

    /// Players whom nothing has proven, under a lock of their own.
    pub(crate) const fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Players at a backend, over all workers and listeners.
    pub fn players(&self, backend: BackendId) -> u32 {
        self.players[backend].load(Ordering::Relaxed)
    }

    /// A player of a backend speaks this, as all of them do.
    pub(crate) fn note_spoken(&self, backend: BackendId, front: u8) {
        self.spoken[backend].store(front, Ordering::Relaxed);
    }

    /// The number of what a backend's players speak; `None` where it has none.
    pub(crate) fn spoken(&self, backend: BackendId) -> Option<u8> {
        (self.players(backend) > 0).then(|| self.spoken[backend].load(Ordering::Relaxed))
    }

    /// Sessions of a listener, over all workers.
    pub fn sessions(&self, listener: ListenerId) -> u32 {
        self.sessions[listener].load(Ordering::Relaxed)
    }

    /// Sets how many slots each backend has; new ones are at the end. Players beyond a smaller
    /// number stay until they leave.
    pub(crate) fn resize_backends(&self, backend_slots: &[u32]) {
        assert!(backend_slots.len() <= BACKENDS_MAX);
        let mut inner = lock(&self.inner);
        for (at, &slots_max) in backend_slots.iter().enumerate() {
            match inner.slots.get_mut(BackendId::at(at)) {
                Some(slots) => slots.resize(slots_max),
                None => {
                    inner.slots.push(Slots::new(slots_max));
                }
            }
        }
    }

    /// Used tokens that are remembered.
    pub fn tokens_remembered(&self) -> usize {
        lock(&self.inner).tokens.len()
    }

    /// What there is to agree on about Unreal's cookies, under a lock of its own.
    pub(crate) const fn cookies(&self) -> &Cookies {
        &self.cookies
    }

    fn hash(&self, key: &ClientKey) -> u32 {
        self.hashes.hash([key.client_id, key.listener.0.into(), 0]) as u32
    }

    fn hash_source(&self, source: &Endpoint) -> u64 {
        let (high, low) = source.ip_words();
        self.hashes.hash([high, low, u64::from(source.port()) << 32 | u64::from(source.scope())])
    }
}

impl Inner {
    fn enter_source(&mut self, listener: ListenerId, source: &Endpoint) {
        Area::all(listener, source).for_each(|area| self.sources.enter(&area));
    }

    fn leave_source(&mut self, listener: ListenerId, source: &Endpoint) {
        Area::all(listener, source).for_each(|area| self.sources.leave(&area));
    }

    fn find_client(&self, hash: u32, key: &ClientKey) -> Option<Entry<Client>> {
        let id = key.client_id.to_le_bytes();
        let is_it = |known: &Client| known.id == id && known.listener() == key.listener;
        self.clients.find(hash, is_it)
    }

    /// Whether a token may open a session where none may be opened twice.
    fn check_token(&self, mac: &TokenMac) -> Result<(), DropReason> {
        match self.tokens.past(mac) {
            TokenPast::Fresh | TokenPast::HadSession => Ok(()),
            // The session is at another listener. Perhaps its player has left it without a word:
            // then it ends soon, and the player may try again.
            TokenPast::InSession => Err(DropReason::ResponseClientConnected),
            TokenPast::Spent => Err(DropReason::TokenSpent),
        }
    }
}

impl Client {
    const fn new(key: &ClientKey, token: TokenName) -> Self {
        Self {
            id: key.client_id.to_le_bytes(),
            listener: key.listener.0 as u8,
            token,
            session: [0; 8],
            is_silent: false,
        }
    }

    fn listener(&self) -> ListenerId {
        ListenerId(self.listener.into())
    }
}

impl Slots {
    fn new(max: u32) -> Self {
        Self { taken: vec![0; max.div_ceil(64) as usize], first_open: 0, count: 0, max }
    }

    /// The lowest free slot. There is none where players beyond a smaller number are as many.
    fn take(&mut self) -> Option<Slot> {
        if self.count >= self.max {
            return None;
        }
        let words = self.taken.iter().enumerate().skip(self.first_open);
        let (word, bits) = words.into_iter().find(|(_, bits)| **bits != u64::MAX)?;
        let slot = word as u32 * 64 + bits.trailing_ones();
        self.first_open = word;
        self.taken[word] |= 1 << (slot % 64);
        self.count += 1;
        Some(Slot(slot))
    }

    fn give(&mut self, slot: Slot) {
        let (at, bit) = (slot.index() / 64, 1 << (slot.0 % 64));
        let word = &mut self.taken[at];
        debug_assert!(*word & bit != 0, "a slot is given back once");
        *word &= !bit;
        self.first_open = self.first_open.min(at);
        self.count -= 1;
    }

    fn resize(&mut self, max: u32) {
        let words = max.div_ceil(64) as usize;
        // Never shorter: players in the upper slots still give them back.
        self.taken.resize(words.max(self.taken.len()), 0);
        self.max = max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(port: u16) -> Endpoint {
        Endpoint::v4([192, 0, 2, 1], port)
    }

    fn claims(listeners: usize, backend_slots: &[u32]) -> Claims {
        let limits = ClaimLimits { sessions_max: 1000, tokens_max: 8 };
        Claims::new(listeners, backend_slots, limits)
    }

    #[test]
    fn a_datagram_goes_to_no_owner_that_does_not_answer_where_its_standby_has_it() {
        use crate::shared::standbys::tests::record;
        let key = HashKey::new([1, 2]);
        let (whereabouts, standbys) = (Whereabouts::new(key, 9), Standbys::new(key, 9));
        let mut claims = claims(1, &[]);
        let (owner, at) =
            (MemberId(1), |port| Address { listener: ListenerId(0), endpoint: source(port) });
        assert!([1, 2].iter().all(|port| whereabouts.learn(&at(*port), owner, 0).is_ok()));
        assert!(standbys.stand_by(owner, at(1), record(1, 1)).is_ok());
        claims.whereabouts = Some(Arc::new(whereabouts));
        claims.standbys = Some(Arc::new(standbys));
        assert_eq!(
            [1, 2, 3].map(|port| claims.member_with(&at(port))),
            [Some(owner), Some(owner), None]
        );
        claims.whereabouts().expect("just set").set_silent(owner, true);
        claims.standbys().expect("just set").set_gone(owner, 0);
        assert_eq!([1, 2].map(|port| claims.member_with(&at(port))), [None, Some(owner)]);
    }

    fn connect(
        claims: &Claims,
        listener: u16,
        client_id: u64,
        backend: u16,
    ) -> Result<Claim, DropReason> {
        connect_from(claims, (listener, client_id, backend), source(1), &Limits::NONE)
    }

    fn connect_from(
        claims: &Claims,
        (listener, client_id, backend): (u16, u64, u16),
        source: Endpoint,
        limits: &Limits,
    ) -> Result<Claim, DropReason> {
        let (token_mac, sessions_max, random) = (&[0; 16], 100, 0);
        let wanted = Wanted {
            listener: ListenerId(listener),
            client_id,
            backend: BackendId(backend),
            sessions_max,
            source,
            limits,
            token_mac,
            allows_reuse: false,
            random,
        };
        claims.connect(&wanted).map(|(claim, _)| claim)
    }

    #[test]
    fn one_session_per_client_id_and_the_lowest_free_slot() {
        let claims = claims(2, &[2, 70]);
        let first = connect(&claims, 0, 1, 0).expect("free");
        let second = connect(&claims, 0, 2, 0).expect("free");
        assert_eq!((first.slot, second.slot), (Slot(0), Slot(1)));
        assert_eq!(connect(&claims, 0, 1, 1), Err(DropReason::ResponseClientConnected));
        assert_eq!(connect(&claims, 0, 3, 0), Err(DropReason::ResponseBackendFull));
        assert!(connect(&claims, 1, 1, 1).is_ok(), "another listener has its own clients");
        assert_eq!(
            (
                claims.players(BackendId(0)),
                claims.sessions(ListenerId(0)),
                claims.players(BackendId(1))
            ),
            (2, 2, 1)
        );
        claims.leave(&first);
        assert_eq!(connect(&claims, 0, 9, 0).map(|claim| claim.slot), Ok(Slot(0)));
    }

    #[test]
    fn a_listener_never_has_more_sessions_than_it_may() {
        let claims = claims(1, &[70]);
        (0..100).for_each(|id| assert_eq!(connect(&claims, 0, id, 0).is_ok(), id < 70));
        assert_eq!(claims.sessions(ListenerId(0)), 70);
        claims.resize_backends(&[200]);
        (100..200).for_each(|id| assert_eq!(connect(&claims, 0, id, 0).is_ok(), id < 130));
        assert_eq!(claims.sessions(ListenerId(0)), 100);
        assert_eq!(connect(&claims, 0, 999, 0), Err(DropReason::ResponseSessionsFull));
    }

    #[test]
    fn an_address_and_a_block_never_have_more_sessions_than_they_may() {
        let claims = claims(2, &[70]);
        let limits = Limits { sessions_per_address: 3, sessions_per_block: 5, ..Limits::NONE };
        let at = |last, port| Endpoint::v4([192, 0, 2, last], port);
        let enter = |id: u64, source| connect_from(&claims, (0, id, 0), source, &limits);
        let mut first: Vec<Claim> = (0..3).map(|id| enter(id, at(1, 9)).expect("room")).collect();
        assert_eq!(enter(9, at(1, 8)), Err(DropReason::AddressFull));
        assert_eq!(
            claims.has_room_for(ListenerId(0), &at(1, 8), &limits),
            Err(DropReason::AddressFull)
        );
        let mut other = enter(3, at(2, 9)).expect("room");
        assert!(enter(4, at(3, 9)).is_ok());
        assert_eq!(enter(5, at(4, 9)), Err(DropReason::BlockFull));
        assert!(enter(6, Endpoint::v4([192, 0, 3, 1], 9)).is_ok(), "another block");
        assert!(connect_from(&claims, (1, 7, 0), at(1, 9), &limits).is_ok(), "another listener");

        // Who moves takes its session along, within the same limits.
        assert_eq!(claims.relocate(&mut other, at(1, 7), &limits), Err(DropReason::AddressFull));
        assert_eq!(other.source, at(2, 9));
        assert_eq!(
            claims.relocate(&mut first[0], at(2, 7), &limits),
            Ok(()),
            "the block is its own"
        );
        assert_eq!(claims.relocate(&mut other, at(1, 7), &limits), Ok(()));
        assert_eq!(enter(9, at(1, 8)), Err(DropReason::AddressFull));
        claims.leave(&other);
        assert!(enter(9, at(1, 8)).is_ok());
        let limits = Limits { sessions_per_site: 4, ..limits };
        let at = |site: u16, last: u16| {
            let ip = std::net::Ipv6Addr::new(0x2001, 0xdb8, 1, site << 8 | last, 0, 0, 0, 1);
            Endpoint::from(std::net::SocketAddr::new(ip.into(), 9))
        };
        let enter = |id, source| connect_from(&claims, (1, id, 0), source, &limits);
        let mut moving = enter(20, at(0, 0)).expect("room");
        assert!((21..24).all(|id| enter(id, at(0, id as u16)).is_ok()));
        assert_eq!(enter(24, at(0, 24)), Err(DropReason::SiteFull));
        assert!(enter(25, at(1, 0)).is_ok(), "another site of the block");
        assert_eq!(enter(26, at(1, 1)), Err(DropReason::BlockFull));
        assert_eq!(claims.relocate(&mut moving, at(2, 0), &limits), Ok(()));
        assert!(enter(27, at(0, 0)).is_err_and(|why| why == DropReason::BlockFull));
        claims.leave(&moving);
        assert!(enter(28, at(0, 0)).is_ok());
        // A lower limit takes nothing away, and 0 is none.
        assert!(connect_from(&claims, (0, 99, 0), at(1, 9), &Limits::NONE).is_ok());
    }

    #[test]
    fn sessions_of_one_token_never_share_a_sequence() {
        let claims = claims(2, &[4]);
        let token_mac = &[1; 16];
        let now = Now { mono_ns: 0, unix_s: 10 };
        assert_eq!(claims.use_token(token_mac, &source(1), 100, now), Ok(TokenPast::Fresh));
        let start = |listener| {
            let base = Wanted {
                listener,
                client_id: 1,
                backend: BackendId(0),
                sessions_max: 9,
                source: source(1),
                limits: &Limits::NONE,
                token_mac,
                allows_reuse: true,
                random: 7,
            };
            let (claim, mut sequence) = claims.connect(&base).expect("free");
            (claim, sequence.take().expect("fresh"))
        };
        let (first, first_start) = start(ListenerId(0));
        let (_, beside) = start(ListenerId(1));
        claims.leave(&first);
        let (_, again) = start(ListenerId(0));
        assert_eq!([first_start, beside, again], [7, 7 + (1 << 40), 7 + (2 << 40)]);
        claims.spend_token(ListenerId(0), 1);
        assert_eq!(claims.use_token(token_mac, &source(1), 100, now), Ok(TokenPast::Spent));
    }

    #[test]
    fn every_slot_is_given_out_once() {
        let claims = claims(1, &[70]);
        let taken: Vec<u32> =
            (0..70).map(|id| connect(&claims, 0, id, 0).expect("70 slots").slot.0).collect();
        assert_eq!(taken, (0..70).collect::<Vec<_>>());
        assert_eq!(connect(&claims, 0, 99, 0), Err(DropReason::ResponseBackendFull));
        claims.resize_backends(&[71, 5]);
        assert_eq!(connect(&claims, 0, 99, 0).map(|claim| claim.slot), Ok(Slot(70)));
        assert!(connect(&claims, 0, 98, 1).is_ok(), "a backend that a reload has added");
    }

    #[test]
    fn players_beyond_a_smaller_number_of_slots_count() {
        let (claims, backend, full) =
            (claims(1, &[10]), BackendId(0), DropReason::ResponseBackendFull);
        let all: Vec<_> = (0..10).map(|id| connect(&claims, 0, id, 0).expect("a slot")).collect();
        let instead_of =
            |gone| claims.has_room_instead_of(gone, backend, &source(1), &Limits::NONE);
        claims.resize_backends(&[5]);
        assert_eq!(instead_of(&all[9]), Err(full));
        all[..5].iter().for_each(|claim| claims.leave(claim));
        assert_eq!(connect(&claims, 0, 99, 0), Err(full));
        assert_eq!(claims.reserve(backend), Err(MoveRefusal::Full));
        assert_eq!(instead_of(&all[9]), Ok(()));
        claims.leave(&all[9]);
        assert_eq!(connect(&claims, 0, 99, 0).map(|claim| claim.slot), Ok(Slot(0)));
    }
}

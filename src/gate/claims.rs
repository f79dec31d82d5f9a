//! What the workers must agree on: who is connected, which tokens were used, which backend slots are taken.
//!
//! Touched only while a player connects, leaves or shows up at a new port; never for a packet of a session. One mutex guards
//! it all, so that a claim is all or nothing. Memory is bounded: when the token history is full of live entries, new tokens
//! are refused and counted; a live entry is never evicted, because that would let its token be used from elsewhere.
//!
//! The lock is never held for long: the tables are reserved at the start and never grow, and each new token clears a few
//! expired ones away, however many have expired at once. What is reserved takes memory only when it is first used.

mod history;

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;

use super::bag::Bag;
use super::table::Place;
use super::unreal::Cookies;
use crate::buf::Endpoint;
use crate::drops::DropReason;
use crate::limits::{BACKENDS_MAX, LISTENERS_MAX};
use crate::proto::netcode::server::SessionSequence;

use history::History;
pub(crate) use history::TokenMac;

/// Sessions of one address that a packet from a new port is tried against. A household or a LAN party has a few; a carrier's
/// NAT has thousands, and there the first few must do.
pub(crate) const SESSIONS_PER_IP_MAX: usize = 4;

/// A session that is known by its IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    pub(crate) worker: u16,
    pub(crate) listener: u16,
    pub(crate) place: Place,
}

/// The sessions of one address, as far as they are known.
pub(crate) type Residents = ArrayVec<Resident, SESSIONS_PER_IP_MAX>;

/// What a session holds while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) listener: u16,
    pub(crate) client_id: u64,
    pub(crate) backend: u16,
    pub(crate) slot: u32,
}

/// What a player needs who has proved its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) listener: u16,
    pub(crate) client_id: u64,
    pub(crate) backend: u16,
    /// Sessions that the listener may have, over all workers.
    pub(crate) sessions_max: u32,
    pub(crate) token_mac: &'a TokenMac,
    /// Where the sequence starts of a token that was not used before.
    pub(crate) random: u64,
}

/// How much may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimLimits {
    /// Sessions over all workers and listeners.
    pub sessions_max: usize,
    /// Used tokens that are remembered.
    pub tokens_max: usize,
}

/// Shared by all workers of a gateway.
pub struct Claims {
    inner: Mutex<Inner>,
    /// Keys the hashes of client ids and addresses.
    hashes: RandomState,
    /// Players of each backend: read without the lock to route.
    players: Box<[AtomicU32]>,
    /// Sessions of each listener.
    sessions: Box<[AtomicU32]>,
    cookies: Cookies,
}

struct Inner {
    clients: Bag<ClientKey>,
    tokens: History,
    slots: Vec<Slots>,
    residents: Bag<Settled>,
}

/// A client id, and the listener where it has a session. In words, because a `u64` would take it to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ClientKey {
    client_id: [u32; 2],
    listener: u16,
}

/// A session and its IP address (IPv4 mapped).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Settled {
    ip: [u8; 16],
    resident: Resident,
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
        assert!(listeners <= LISTENERS_MAX && backend_slots.len() <= BACKENDS_MAX);
        let inner = Inner {
            clients: Bag::new(limits.sessions_max),
            tokens: History::new(limits.tokens_max),
            slots: backend_slots.iter().map(|&max| Slots::new(max)).collect(),
            residents: Bag::new(limits.sessions_max),
        };
        Self {
            inner: Mutex::new(inner),
            hashes: RandomState::new(),
            players: (0..BACKENDS_MAX).map(|_| AtomicU32::new(0)).collect(),
            sessions: (0..LISTENERS_MAX).map(|_| AtomicU32::new(0)).collect(),
            cookies: Cookies::new(),
        }
    }

    /// Records that a token is used from `source`, at request time. A token that was used from there before may be used
    /// again; from elsewhere it may not. Returns whether it has had a session.
    pub(crate) fn use_token(
        &self,
        mac: &TokenMac,
        source: &Endpoint,
        expire_s: u64,
        now_s: u64,
    ) -> Result<bool, DropReason> {
        let source = self.hashes.hash_one(source);
        self.lock().tokens.use_token(mac, source, expire_s, now_s)
    }

    /// Whether a client id has a session at a listener.
    pub(crate) fn is_connected(&self, listener: u16, client_id: u64) -> bool {
        let key = ClientKey::new(listener, client_id);
        let hash = self.hash(&key);
        self.lock().clients.find(hash, |known| *known == key).is_some()
    }

    /// Claims the client id and the lowest free slot of a backend, and a range of sequence numbers that no other session of
    /// the same token has.
    pub(crate) fn connect(
        &self,
        wanted: &Wanted<'_>,
    ) -> Result<(Claim, SessionSequence), DropReason> {
        let &Wanted { listener, client_id, backend, .. } = wanted;
        let key = ClientKey::new(listener, client_id);
        let hash = self.hash(&key);
        let mut inner = self.lock();
        if inner.clients.find(hash, |known| *known == key).is_some() {
            return Err(DropReason::ResponseClientConnected);
        }
        let sessions = &self.sessions[usize::from(listener)];
        if sessions.load(Ordering::Relaxed) >= wanted.sessions_max || inner.clients.is_full() {
            return Err(DropReason::ResponseSessionsFull);
        }
        let slots =
            inner.slots.get_mut(usize::from(backend)).ok_or(DropReason::ResponseBackendDown)?;
        let slot = slots.take().ok_or(DropReason::ResponseBackendFull)?;
        inner.clients.insert(hash, key);
        self.players[usize::from(backend)].fetch_add(1, Ordering::Relaxed);
        sessions.fetch_add(1, Ordering::Relaxed);
        let sequence = inner.tokens.take_range(wanted.token_mac, wanted.random);
        Ok((Claim { listener, client_id, backend, slot }, sequence))
    }

    /// Gives everything back that [`connect`](Self::connect) gave.
    pub(crate) fn leave(&self, claim: &Claim) {
        let key = ClientKey::new(claim.listener, claim.client_id);
        let hash = self.hash(&key);
        let mut inner = self.lock();
        let Some(position) = inner.clients.find(hash, |known| *known == key) else {
            debug_assert!(false, "a claim is given back once");
            return;
        };
        inner.clients.remove(hash, position);
        inner.slots[usize::from(claim.backend)].give(claim.slot);
        self.players[usize::from(claim.backend)].fetch_sub(1, Ordering::Relaxed);
        self.sessions[usize::from(claim.listener)].fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes a session known by its IP address, for packets that come from a new port of it.
    pub(crate) fn settle(&self, ip: IpAddr, resident: Resident) {
        let (ip, hash) = self.address(ip);
        let mut inner = self.lock();
        let mut neighbours = 0;
        inner.residents.find(hash, |settled| {
            neighbours += usize::from(settled.ip == ip);
            false
        });
        if neighbours < SESSIONS_PER_IP_MAX {
            inner.residents.insert(hash, Settled { ip, resident });
        }
    }

    /// Takes back [`settle`](Self::settle).
    pub(crate) fn unsettle(&self, ip: IpAddr, resident: &Resident) {
        let (ip, hash) = self.address(ip);
        let settled = Settled { ip, resident: *resident };
        let mut inner = self.lock();
        if let Some(position) = inner.residents.find(hash, |known| *known == settled) {
            inner.residents.remove(hash, position);
        }
    }

    /// The sessions that are known by an IP address at a listener.
    pub(crate) fn residents(&self, ip: IpAddr, listener: u16) -> Residents {
        let (ip, hash) = self.address(ip);
        let mut residents = Residents::new();
        self.lock().residents.find(hash, |settled| {
            if settled.ip == ip && settled.resident.listener == listener {
                residents.push(settled.resident);
            }
            false
        });
        residents
    }

    /// Players at a backend, over all workers and listeners.
    pub fn players(&self, backend: usize) -> u32 {
        self.players[backend].load(Ordering::Relaxed)
    }

    /// Sessions of a listener, over all workers.
    pub fn sessions(&self, listener: usize) -> u32 {
        self.sessions[listener].load(Ordering::Relaxed)
    }

    /// Whether a backend has a free slot. Only a hint: the claim itself decides.
    pub(crate) fn has_free_slot(&self, backend: u16) -> bool {
        self.lock().slots.get(usize::from(backend)).is_some_and(|slots| slots.count < slots.max)
    }

    /// Sets how many slots each backend has; new ones are at the end. Players beyond a smaller number stay until they leave.
    pub(crate) fn resize_backends(&self, backend_slots: &[u32]) {
        assert!(backend_slots.len() <= BACKENDS_MAX);
        let mut inner = self.lock();
        for (at, &slots_max) in backend_slots.iter().enumerate() {
            match inner.slots.get_mut(at) {
                Some(slots) => slots.resize(slots_max),
                None => inner.slots.push(Slots::new(slots_max)),
            }
        }
    }

    /// Used tokens that are remembered.
    pub fn tokens_remembered(&self) -> usize {
        self.lock().tokens.len()
    }

    /// What there is to agree on about Unreal's cookies, under a lock of its own.
    pub(super) const fn cookies(&self) -> &Cookies {
        &self.cookies
    }

    fn hash(&self, key: &impl Hash) -> u32 {
        self.hashes.hash_one(key) as u32
    }

    fn address(&self, ip: IpAddr) -> ([u8; 16], u32) {
        let ip = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        (ip, self.hash(&ip))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A worker that panics ends the process; tests that panic on purpose must not take others along.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientKey {
    const fn new(listener: u16, client_id: u64) -> Self {
        Self { client_id: [client_id as u32, (client_id >> 32) as u32], listener }
    }
}

impl Slots {
    fn new(max: u32) -> Self {
        Self { taken: vec![0; max.div_ceil(64) as usize], first_open: 0, count: 0, max }
    }

    fn take(&mut self) -> Option<u32> {
        let words = self.taken.iter().enumerate().skip(self.first_open);
        let (word, bits) = words.into_iter().find(|(_, bits)| **bits != u64::MAX)?;
        let slot = word as u32 * 64 + bits.trailing_ones();
        self.first_open = word;
        if slot >= self.max {
            return None;
        }
        self.taken[word] |= 1 << (slot % 64);
        self.count += 1;
        Some(slot)
    }

    fn give(&mut self, slot: u32) {
        let word = &mut self.taken[slot as usize / 64];
        debug_assert!(*word & 1 << (slot % 64) != 0, "a slot is given back once");
        *word &= !(1 << (slot % 64));
        self.first_open = self.first_open.min(slot as usize / 64);
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

    fn connect(
        claims: &Claims,
        listener: u16,
        client_id: u64,
        backend: u16,
    ) -> Result<Claim, DropReason> {
        let (token_mac, sessions_max) = (&[0; 16], 100);
        let wanted = Wanted { listener, client_id, backend, sessions_max, token_mac, random: 0 };
        claims.connect(&wanted).map(|(claim, _)| claim)
    }

    #[test]
    fn one_session_per_client_id_and_the_lowest_free_slot() {
        let claims = claims(2, &[2, 70]);
        let first = connect(&claims, 0, 1, 0).expect("free");
        let second = connect(&claims, 0, 2, 0).expect("free");
        assert_eq!((first.slot, second.slot), (0, 1));
        assert_eq!(connect(&claims, 0, 1, 1), Err(DropReason::ResponseClientConnected));
        assert_eq!(connect(&claims, 0, 3, 0), Err(DropReason::ResponseBackendFull));
        assert!(connect(&claims, 1, 1, 1).is_ok(), "another listener has its own clients");
        assert_eq!((claims.players(0), claims.sessions(0), claims.players(1)), (2, 2, 1));
        claims.leave(&first);
        assert_eq!(connect(&claims, 0, 9, 0).map(|claim| claim.slot), Ok(0));
    }

    #[test]
    fn a_listener_never_has_more_sessions_than_it_may() {
        let claims = claims(1, &[70]);
        (0..100).for_each(|id| assert_eq!(connect(&claims, 0, id, 0).is_ok(), id < 70));
        assert_eq!(claims.sessions(0), 70);
        claims.resize_backends(&[200]);
        (100..200).for_each(|id| assert_eq!(connect(&claims, 0, id, 0).is_ok(), id < 130));
        assert_eq!(claims.sessions(0), 100);
        assert_eq!(connect(&claims, 0, 999, 0), Err(DropReason::ResponseSessionsFull));
    }

    #[test]
    fn sessions_of_one_token_never_share_a_sequence() {
        let claims = claims(2, &[4]);
        let token_mac = &[1; 16];
        assert_eq!(claims.use_token(token_mac, &source(1), 100, 10), Ok(false));
        let start = |listener| {
            let base = Wanted {
                listener,
                client_id: 1,
                backend: 0,
                sessions_max: 9,
                token_mac,
                random: 7,
            };
            let (claim, mut sequence) = claims.connect(&base).expect("free");
            (claim, sequence.take().expect("fresh"))
        };
        let (first, first_start) = start(0);
        let (_, beside) = start(1);
        claims.leave(&first);
        let (_, again) = start(0);
        assert_eq!([first_start, beside, again], [7, 7 + (1 << 40), 7 + (2 << 40)]);
        assert_eq!(claims.use_token(token_mac, &source(1), 100, 10), Ok(true));
    }

    #[test]
    fn every_slot_is_given_out_once() {
        let claims = claims(1, &[70]);
        let taken: Vec<u32> =
            (0..70).map(|id| connect(&claims, 0, id, 0).expect("70 slots").slot).collect();
        assert_eq!(taken, (0..70).collect::<Vec<_>>());
        assert!(!claims.has_free_slot(0));
        claims.resize_backends(&[71, 5]);
        assert_eq!(connect(&claims, 0, 99, 0).map(|claim| claim.slot), Ok(70));
        assert!(connect(&claims, 0, 98, 1).is_ok(), "a backend that a reload has added");
    }

    #[test]
    fn residents_are_few_and_forgotten_when_they_leave() {
        let claims = claims(1, &[4]);
        let ip = source(1).ip();
        let resident =
            |index| Resident { worker: 0, listener: 0, place: Place { index, generation: 1 } };
        (0..10).for_each(|index| claims.settle(ip, resident(index)));
        assert_eq!(claims.residents(ip, 0).len(), SESSIONS_PER_IP_MAX);
        assert!(claims.residents(ip, 1).is_empty());
        (0..10).for_each(|index| claims.unsettle(ip, &resident(index)));
        assert!(claims.residents(ip, 0).is_empty());
    }
}

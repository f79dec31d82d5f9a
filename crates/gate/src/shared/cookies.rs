//! What the workers share of cookies: the secrets they are made with, which were used, and whose
//! sessions they name.
//!
//! The kernel hashes a player's address to one worker as a rule, but not when the player reaches us
//! by another of our addresses or comes from another port, and a recorded response may be sent to
//! any address of ours. So all workers share the secrets and the memory of used responses, and it
//! does not matter which worker receives what. Both are touched by handshakes only: a challenge
//! reads one atomic number, to see whether the secrets have changed since it copied them; the lock
//! is taken for a response that has verified, and an attacker cannot make those up.
//!
//! The set of used responses is bounded. When it is full, new ones are refused and counted; a live
//! entry is never evicted, because that would let its response open a session again. A block of
//! addresses has an eighth of it at most, and newcomers all but an eighth: so there is room for
//! others, and for players whose port changes. As each response that begins a session takes a place
//! among the worker's, which rests for three times as long as a response is remembered, no block
//! has all of these either.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::ids::{ListenerId, WorkerId};
use crate::setup::ClaimLimits;
use crate::shared::upgrades::Upgrades;
use crate::store::area::Area;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::multimap::{Multimap, Record};
use crate::store::table::Place;
use ringgate_batch::Endpoint;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_core::crypto::cookie::CookieMac;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::cookie::{Cookie, Epoch, MacInput, Proof, Rotation, Timestamp};
use ringgate_core::proto::unreal::front::proof_input;
use ringgate_core::proto::unreal::timing::COOKIE_LIFETIME_NS_MAX;
use ringgate_core::secret::CookieSecret;
use ringgate_core::sync::lock;

/// A session that other workers know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    pub(crate) worker: WorkerId,
    pub(crate) listener: ListenerId,
    pub(crate) place: Place,
}

/// Who uses a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// Somebody there, who gets a session by it or could have.
    Newcomer(Endpoint),
    /// The player of a session, which moves.
    Mover,
}

/// Shared by all workers.
pub(crate) struct Cookies {
    /// Counts the changes of the secrets; 0 before there are any.
    generation: AtomicU32,
    /// When the next change is due.
    due_ns: AtomicU64,
    inner: Mutex<Inner>,
    /// Keys the hashes of blocks.
    key: HashKey,
    /// How often refused clients may be told why.
    pub(crate) upgrades: Upgrades,
}

#[derive(Default)]
struct Inner {
    /// Made by the first worker that needs them.
    secrets: Option<Secrets>,
    /// Made with them, or when the first session comes from another process.
    owners: Option<Multimap<Owner>>,
}

/// What cookies are made with, and which were used.
struct Secrets {
    rotation: Rotation,
    used: Used,
}

/// Which session a cookie names.
#[derive(Clone, Copy)]
struct Owner {
    cookie: Cookie,
    /// The number that the connection has among those of its client.
    client_id: u8,
    resident: Resident,
}

impl Cookies {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            generation: AtomicU32::new(0),
            due_ns: AtomicU64::new(0),
            inner: Mutex::default(),
            key,
            upgrades: Upgrades::new(),
        }
    }

    /// Whether the older secret should be replaced, or there is none yet.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns.load(Ordering::Relaxed)
    }

    /// When the secrets change next.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns.load(Ordering::Relaxed)
    }

    /// Takes fresh secrets: both at the start, afterwards the first, if that is due. `draw` is a
    /// random number.
    pub(crate) fn renew(
        &self,
        now_ns: u64,
        secrets: [CookieSecret; 2],
        draw: u64,
        limits: ClaimLimits,
    ) {
        let mut inner = lock(&self.inner);
        let due_ns = match inner.secrets.as_mut() {
            None => {
                let rotation = Rotation::new(now_ns, secrets, draw);
                let due_ns = rotation.poll_timeout();
                inner.secrets = Some(Secrets { rotation, used: Used::new(limits.tokens_max) });
                inner.reserve_owners(limits);
                due_ns
            }
            Some(Secrets { rotation, .. }) => {
                let [fresh, _] = secrets;
                if !rotation.handle_timeout(now_ns, fresh, draw) {
                    return;
                }
                rotation.poll_timeout()
            }
        };
        self.due_ns.store(due_ns, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Whether a response that has verified could still be used.
    pub(crate) fn check_unused(&self, cookie: &Cookie) -> Result<(), DropReason> {
        match &lock(&self.inner).secrets {
            Some(secrets) if secrets.used.contains(cookie) => Err(DropReason::ResponseReplayed),
            Some(_) => Ok(()),
            None => Err(DropReason::CookieForged),
        }
    }

    /// Marks a response that has verified as used, for as long as it can verify.
    pub(crate) fn use_once(&self, cookie: &Cookie, by: By, now_ns: u64) -> Result<(), DropReason> {
        let bucket = match by {
            By::Newcomer(source) => {
                Area::block(ListenerId(0), &source).hash(self.key) as usize % BLOCK_BUCKETS
            }
            By::Mover => MOVERS,
        };
        match &mut lock(&self.inner).secrets {
            Some(secrets) => secrets.used.insert(cookie, bucket, now_ns),
            None => Err(DropReason::CookieForged),
        }
    }

    /// Takes back [`use_once`](Self::use_once): nothing has followed, and the player asks again.
    pub(crate) fn take_back_use(&self, cookie: &Cookie) {
        if let Some(secrets) = &mut lock(&self.inner).secrets {
            secrets.used.remove(cookie);
        }
    }

    /// Makes a session known by the cookie that its player and its server share.
    pub(crate) fn settle(&self, cookie: &Cookie, client_id: u8, resident: Resident) {
        if let Some(owners) = &mut lock(&self.inner).owners {
            owners.insert(hash(cookie), Owner { cookie: *cookie, client_id, resident });
        }
    }

    /// Takes back [`settle`](Self::settle).
    pub(crate) fn unsettle(&self, cookie: &Cookie, resident: &Resident) {
        if let Some(owners) = &mut lock(&self.inner).owners {
            let is_it = |owner: &Owner| owner.cookie == *cookie && owner.resident == *resident;
            if let Some(position) = owners.find(hash(cookie), is_it) {
                owners.remove(hash(cookie), position);
            }
        }
    }

    /// The session of a listener that a cookie names, for the client whose it is.
    pub(crate) fn owner(
        &self,
        cookie: &Cookie,
        client_id: u8,
        listener: ListenerId,
    ) -> Result<Resident, DropReason> {
        let inner = lock(&self.inner);
        let owners = inner.owners.as_ref().ok_or(DropReason::CookieUnknown)?;
        let is_it = |owner: &Owner| owner.cookie == *cookie && owner.resident.listener == listener;
        let position = owners.find(hash(cookie), is_it).ok_or(DropReason::CookieUnknown)?;
        let owner = owners.at(position);
        if owner.client_id == client_id { Ok(owner.resident) } else { Err(DropReason::UnrealIds) }
    }

    /// Makes room for sessions that come from another process, before its secrets do.
    pub(crate) fn expect_owners(&self, limits: ClaimLimits) {
        lock(&self.inner).reserve_owners(limits);
    }

    /// Writes the secrets. Whose sessions cookies name is told by the sessions themselves.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let inner = lock(&self.inner);
        let Inner { secrets, owners: _ } = &*inner;
        secrets.is_some().write(out);
        if let Some(Secrets { rotation, used: _ }) = secrets {
            rotation.write(out);
            // In records of their own.
            0_u32.write(out);
        }
        self.upgrades.hand_over(out);
    }

    /// How many responses are remembered that were used.
    pub(crate) fn used_count(&self) -> usize {
        lock(&self.inner).secrets.as_ref().map_or(0, |secrets| secrets.used.expiries.len())
    }

    /// Writes some of them, the oldest first.
    pub(crate) fn hand_over_used(&self, some: Range<usize>, out: &mut Writer<'_>) {
        if let Some(secrets) = &lock(&self.inner).secrets {
            secrets.used.hand_over(some, out);
        }
    }

    /// Goes on with the secrets of another process.
    pub(crate) fn take_over(
        &self,
        from: &mut Reader<'_>,
        limits: ClaimLimits,
    ) -> Result<(), Broken> {
        if bool::read(from)? {
            let rotation = Rotation::read(from)?;
            let due_ns = rotation.poll_timeout();
            let mut used = Used::new(limits.tokens_max);
            used.take_over(from)?;
            let mut inner = lock(&self.inner);
            inner.secrets = Some(Secrets { rotation, used });
            inner.reserve_owners(limits);
            drop(inner);
            self.due_ns.store(due_ns, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::Release);
        }
        self.upgrades.take_over(from)
    }

    /// Remembers responses that were used, too.
    pub(crate) fn take_used(&self, from: &mut Reader<'_>) -> Result<(), Broken> {
        match &mut lock(&self.inner).secrets {
            Some(secrets) => secrets.used.take_over(from),
            None => Err(Broken::Invalid("place among the records")),
        }
    }
}

impl Inner {
    fn reserve_owners(&mut self, limits: ClaimLimits) {
        self.owners.get_or_insert_with(|| Multimap::new(limits.sessions_max));
    }
}

/// One worker's copy of the secrets, ready to make and to verify cookies.
pub(crate) struct Keyring {
    generation: u32,
    epoch: Epoch,
    macs: [CookieMac; 2],
}

impl Keyring {
    /// Copies the secrets, where they have changed since the last copy.
    #[inline]
    pub(crate) fn refresh(known: &mut Option<Self>, shared: &Cookies) {
        let generation = shared.generation.load(Ordering::Acquire);
        if known.as_ref().is_some_and(|known| known.generation == generation) {
            return;
        }
        if let Some(Secrets { rotation, .. }) = &lock(&shared.inner).secrets {
            let macs = rotation.secrets().each_ref().map(CookieMac::new);
            *known = Some(Self { generation, epoch: rotation.epoch(), macs });
        }
    }

    /// What a client at `source` has to answer, to show that it receives there. `listener` is what
    /// the one that it asks is [called](crate::front::unreal::probed::Face::called).
    pub(crate) fn challenge(
        &self,
        now_ns: u64,
        source: Endpoint,
        client_id: u8,
        listener: u16,
    ) -> Proof {
        let secret_id = self.epoch.active();
        let timestamp = Timestamp::from_ns(now_ns);
        let input = MacInput::new(timestamp, source, client_id, listener.into());
        let cookie = Cookie(self.macs[secret_id.index()].tag(input.as_bytes()));
        Proof { secret_id, timestamp, cookie }
    }

    /// Whether an answer is to one of our challenges, for the same address, client and listener.
    pub(crate) fn verify(
        &self,
        now_ns: u64,
        proof: &Proof,
        source: Endpoint,
        client_id: u8,
        listener: u16,
    ) -> Result<(), DropReason> {
        let input = proof_input(&self.epoch, proof, now_ns, source, client_id, listener.into())?;
        let mac = &self.macs[proof.secret_id.index()];
        if mac.verify(input.as_bytes(), &proof.cookie.0) {
            Ok(())
        } else {
            Err(DropReason::CookieForged)
        }
    }
}

impl Record for Owner {
    fn vacate(&mut self, next: u32) {
        self.cookie.vacate(next);
    }

    fn next_vacant(&self) -> u32 {
        self.cookie.next_vacant()
    }
}

impl Record for Cookie {
    fn vacate(&mut self, next: u32) {
        self.0[..4].copy_from_slice(&next.to_le_bytes());
    }

    /// Where its [hash](hash) is taken from.
    fn next_vacant(&self) -> u32 {
        hash(self)
    }
}

/// Responses that have done their work. Each is kept for the longest that a cookie can live, so
/// they leave in the order in which they came.
struct Used {
    cookies: Multimap<Cookie>,
    /// When each can be forgotten, its position, and its bucket of blocks.
    expiries: VecDeque<(u64, Entry<Cookie>, u32)>,
    /// How many each bucket has, and behind them movers.
    counts: Vec<u32>,
    max: usize,
}

impl Used {
    fn new(used_max: usize) -> Self {
        Self {
            cookies: Multimap::new(used_max),
            expiries: VecDeque::with_capacity(used_max),
            counts: vec![0; BLOCK_BUCKETS + 1],
            max: used_max,
        }
    }

    fn contains(&self, cookie: &Cookie) -> bool {
        self.cookies.find(hash(cookie), |used| used == cookie).is_some()
    }

    fn insert(&mut self, cookie: &Cookie, bucket: usize, now_ns: u64) -> Result<(), DropReason> {
        self.forget_expired(now_ns);
        if self.contains(cookie) {
            return Err(DropReason::ResponseReplayed);
        }
        let share = self.max / SHARES;
        let is_over =
            self.counts[bucket] as usize >= share || self.cookies.len() + share >= self.max;
        if bucket != MOVERS && is_over {
            return Err(DropReason::ResponseHistoryFull);
        }
        let remembered = self.remember(cookie, bucket, now_ns + COOKIE_LIFETIME_NS_MAX);
        remembered.ok_or(DropReason::ResponseHistoryFull)
    }

    fn remember(&mut self, cookie: &Cookie, bucket: usize, expiry_ns: u64) -> Option<()> {
        let position = self.cookies.insert(hash(cookie), *cookie)?;
        self.counts[bucket] += 1;
        self.expiries.push_back((expiry_ns, position, bucket as u32));
        Some(())
    }

    /// One of the last.
    fn remove(&mut self, cookie: &Cookie) {
        let position = self.cookies.find(hash(cookie), |used| used == cookie);
        let at = self.expiries.iter().rposition(|it| Some(it.1) == position);
        if let Some((_, position, bucket)) = at.and_then(|at| self.expiries.remove(at)) {
            self.counts[bucket as usize] -= 1;
            self.cookies.remove(hash(cookie), position);
        }
    }

    fn hand_over(&self, some: Range<usize>, out: &mut Writer<'_>) {
        (some.len() as u32).write(out);
        for (expiry_ns, position, _) in self.expiries.range(some) {
            expiry_ns.write(out);
            self.cookies.at(*position).write(out);
        }
    }

    fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        for _ in 0..u32::read(from)? {
            let (expiry_ns, cookie) = (time::read(from)?, Cookie::read(from)?);
            // Whose they were is not told: for 40 s they are nobody's share.
            let remembered = self.remember(&cookie, MOVERS, expiry_ns);
            remembered.ok_or(Broken::Invalid("number of used responses"))?;
        }
        Ok(())
    }

    /// Forgets a few: more than come in meanwhile, and not so many that the lock is held for long.
    fn forget_expired(&mut self, now_ns: u64) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let front = self.expiries.front().filter(|(at, ..)| *at <= now_ns);
            let Some(&(_, position, bucket)) = front else { return };
            self.expiries.pop_front();
            self.counts[bucket as usize] -= 1;
            let hash = hash(self.cookies.at(position));
            self.cookies.remove(hash, position);
        }
    }
}

/// A cookie is the output of a MAC, ours or a server's, and only good ones are kept.
fn hash(cookie: &Cookie) -> u32 {
    let [a, b, c, d, ..] = cookie.0;
    u32::from_le_bytes([a, b, c, d])
}

/// Blocks that share a bucket share what a block may have.
const BLOCK_BUCKETS: usize = 1 << 16;
const MOVERS: usize = BLOCK_BUCKETS;

/// In how many parts the memory is shared out: one is the most that a block has, and one is kept
/// for movers.
const SHARES: usize = 8;

/// A few microseconds' work.
const FORGOTTEN_AT_ONCE: usize = 32;

#[cfg(test)]
mod tests;

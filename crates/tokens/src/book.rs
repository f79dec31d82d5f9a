//! The slots that this service may promise, and those that it has promised: for each backend a
//! *block* that was leased, and the *pending* tokens in it, whose players may still come.
//!
//! A pending slot leaves the book when no player can come with its token any more. Whether one has
//! come cannot be seen here, only that the backend has more players: so what leaves the book leaves
//! the block too, and slots are leased again on the grounds of what the backend tells
//! (`ledger`). Until then a player who has come counts twice, which never overfills a server.
//!
//! A client has one promise in a group. Whoever asks for it again gets the same server, and the
//! promise then lasts as long as the last of its tokens. Where there are other services, it stands
//! in etcd as well (`claims`).
//!
//! Where a backend tells whose players have come, a promise leaves the book with its slot as soon
//! as its player is among those whom the backend has ([`Held::settle`]), and only then.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use ringgate_core::netcode::destination::Join;
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::{Backend, Block, LIST_MAX};

use crate::claims::{Claim, Wanted};
use crate::journal::{Before, Promised};
use crate::promise::Promise;

/// All blocks.
#[derive(Debug, Default)]
pub struct Book {
    held: BTreeMap<Name, Held>,
    /// Where each client has promises, and until when; the last one last.
    clients: HashMap<u64, Vec<(Name, u64)>>,
    /// Earlier starts of this service all of whose promises are in the book.
    before: Arc<[Name]>,
}

/// A client, and until when it had tokens of which nothing is told; `None` for no promise.
pub(crate) type Had = (u64, Option<u64>);

/// What is to be promised at a backend.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The clients, each of them once. Those that have a promise there already keep that one.
    pub clients: &'a [u64],
    /// Their tokens: whose each is, and what is told when it is used.
    pub tokens: &'a [(u64, Option<Join>)],
    /// Players without a client id.
    pub nameless: u32,
    /// How many slots have to be free for that.
    pub count: u32,
    /// Until when the players may come.
    pub until_s: u64,
}

/// The slots at one backend.
#[derive(Debug, Default)]
pub struct Held {
    /// How many this service may promise, those included that it has.
    pub granted: u32,
    /// The promises, that which ends the soonest first.
    pending: VecDeque<Promise>,
    /// Claims in etcd whose promises are over.
    over: Vec<Claim>,
    /// Slots in blocks of others at our own last decision.
    pub others: u32,
    /// Earlier starts of this service whose promises are among ours.
    heired: Vec<Name>,
    /// How large the block is in etcd.
    pub written: u32,
    /// The revision of our own last decision.
    pub decided_at: i64,
    /// How many players the backend had then, and which start of it.
    pub used_then: u32,
    /// Which start of the backend that was.
    pub instance: String,
    /// Whether nobody else held slots there then.
    pub alone_then: bool,
    /// Promises that have ended since then, and tokens that were used: their players may be among
    /// those who have come.
    pub ended_since: u32,
    /// Nothing could be leased; until then there is no sense in asking again.
    pub dry_until_ms: u64,
    /// When something was promised last.
    pub touched_ms: u64,
    /// A decision is under way.
    pub is_leasing: bool,
}

impl Held {
    /// Slots that may be promised now: none while a decision is under way, which counts promises.
    pub fn free(&self) -> u32 {
        if self.is_leasing { 0 } else { self.granted.saturating_sub(self.pending()) }
    }

    /// Slots that are promised.
    pub fn pending(&self) -> u32 {
        self.pending.len() as u32
    }

    /// Forgets promises that nobody can claim any more, with their slots.
    fn expire(&mut self, now_s: u64) {
        while self.pending.front().is_some_and(|it| it.until_s <= now_s) {
            self.over.extend(self.pending.pop_front().and_then(|it| it.claim));
            self.granted = self.granted.saturating_sub(1);
            self.ended_since += 1;
        }
    }

    /// Forgets promises, because so many of their players are there. Those go that would end the
    /// soonest, whoever has come, so the book never forgets a slot that is promised for longer.
    /// Where there is more than one token, whoever has come may come again.
    pub fn forget(&mut self, count: u32) {
        let mut left = count;
        if left == 0 {
            return;
        }
        self.granted = self.granted.saturating_sub(left);
        self.pending.retain_mut(|it| {
            let goes = left > 0 && !it.is_renewed;
            left -= u32::from(goes);
            // What stays may be the promise of a client that has come, and stand for another one.
            it.is_doubtful |= !it.is_renewed;
            if goes {
                self.over.extend(it.claim.take());
            }
            !goes
        });
    }

    /// What a backend tells of who has come: promises whose last token was used are forgotten, with
    /// their slots, because their players are among the backend's.
    pub fn settle(&mut self, backend: &Backend, now_s: u64) {
        let Some(joined) = backend.joined.as_ref().filter(|_| self.is_tagged()) else { return };
        let joined: HashSet<_> = joined.all().iter().copied().collect();
        let (before, mut came) = (self.pending(), 0);
        for promise in &mut self.pending {
            came += promise.settle(&joined, now_s);
        }
        if came == 0 {
            return;
        }
        self.ended_since += came;
        self.over.extend(self.pending.iter_mut().filter_map(Promise::settled_claim));
        self.pending.retain(|it| !it.is_settled());
        self.granted = self.granted.saturating_sub(before - self.pending());
        // Of some the last token is over sooner now.
        self.pending.make_contiguous().sort_by_key(|it| it.until_s);
    }

    /// Whether there are promises of which a backend may tell that they were kept.
    pub fn is_tagged(&self) -> bool {
        self.pending.iter().any(Promise::is_tagged)
    }

    /// How many promises go where so many players have come.
    pub fn settling(&self, count: u32) -> u32 {
        let renewed = self.pending.iter().filter(|it| it.is_renewed).count() as u32;
        count.min(self.pending()).saturating_sub(renewed)
    }

    fn promise(&mut self, promise: Promise) {
        let at = self.pending.partition_point(|it| it.until_s <= promise.until_s);
        self.pending.insert(at, promise);
    }

    /// Promises what is wished. A promise that a client has already lasts longer.
    fn fulfil(&mut self, wish: &Wish<'_>) {
        for client in wish.clients {
            let at = self.pending.iter().position(|it| it.client == Some(*client));
            let before = at.and_then(|at| self.pending.remove(at));
            let mut promise = before.unwrap_or_else(|| Promise::to(*client));
            if promise.is_doubtful {
                let mut others = std::mem::replace(&mut promise, Promise::to(*client));
                (others.former, promise.is_renewed) = (others.client.take(), true);
                promise.claim = others.claim.take();
                self.promise(others);
            }
            for (_, tag) in wish.tokens.iter().filter(|(of, _)| of == client) {
                promise.add(*tag, wish.until_s);
            }
            self.promise(promise);
        }
        for _ in 0..wish.nameless {
            self.promise(Promise::untold(wish.until_s));
        }
    }

    /// Nobody hears of these tokens. What their clients had before is theirs again.
    fn retract(&mut self, before: &[Had], tokens: &[(u64, Option<Join>)]) {
        let mut gone = Vec::new();
        self.pending.retain_mut(|it| {
            let of = before.iter().find(|(client, _)| it.client == Some(*client));
            let Some((_, untagged_s)) = of else { return true };
            let stays = untagged_s.is_some_and(|until_s| it.retract(tokens, until_s));
            if !stays {
                gone.push((it.client.filter(|_| untagged_s.is_some()), it.claim.take()));
            }
            stays
        });
        for (client, claim) in gone {
            let mut doubtful = self.pending.iter_mut().rev();
            match doubtful.find(|it| client.is_some() && it.former == client) {
                Some(it) => (it.client, it.claim) = (it.former.take(), claim),
                None => self.over.extend(claim),
            }
        }
        self.pending.make_contiguous().sort_by_key(|it| it.until_s);
    }

    /// Whether a client has a promise here.
    fn promise_of(&self, client: u64) -> Option<&Promise> {
        self.pending.iter().find(|it| it.client == Some(client))
    }

    /// Whether the promises of this earlier start of the service are among ours.
    pub fn has_heired(&self, owner: &Name) -> bool {
        self.heired.contains(owner)
    }

    /// The promises of an earlier start are ours from now on, with their slots.
    pub fn inherit(&mut self, owner: &Name, block: &Block, now_s: u64) {
        for (until_s, count) in block.promised.iter().filter(|(until_s, _)| *until_s > now_s) {
            for _ in 0..*count {
                let mut promise = Promise::untold(*until_s);
                promise.is_renewed = true;
                self.promise(promise);
            }
            self.granted = self.granted.saturating_add(*count);
        }
        self.heired.push(owner.clone());
    }

    /// The promises as they stand in etcd: until when, and how many. There are not more than a list
    /// may have, so some end a little later there.
    fn ends(&self) -> Vec<(u64, u32)> {
        let [Some(first), Some(last)] = [self.pending.front(), self.pending.back()] else {
            return Vec::new();
        };
        let width = (last.until_s - first.until_s) / (LIST_MAX as u64 - 1) + 1;
        let mut ends: Vec<(u64, u32)> = Vec::new();
        for promise in &self.pending {
            let end_s = first.until_s + (promise.until_s - first.until_s).div_ceil(width) * width;
            match ends.last_mut().filter(|(until_s, _)| *until_s == end_s) {
                Some((_, count)) => *count += 1,
                None => ends.push((end_s, 1)),
            }
        }
        ends
    }
}

impl Book {
    /// What is held at a backend.
    pub fn held(&self, backend: &Name) -> Option<&Held> {
        self.held.get(backend)
    }

    /// The same, made where it is missing, without what has expired.
    pub fn open(&mut self, backend: &Name, now_s: u64) -> &mut Held {
        if !self.held.contains_key(backend) {
            self.held.insert(backend.clone(), Held::default());
        }
        let held = self.held.get_mut(backend).expect("it was made");
        held.expire(now_s);
        held
    }

    /// Promises slots of the block. Whether there were enough.
    pub fn take(&mut self, backend: &Name, wish: &Wish<'_>, now: Now) -> bool {
        let held = self.open(backend, now.unix_s);
        let has = held.free() >= wish.count;
        if has {
            held.fulfil(wish);
            held.touched_ms = now.ms;
            self.note_clients(backend, wish);
        }
        has
    }

    /// Promises slots without a block: etcd is away, and the operator wants tokens all the same.
    pub fn take_unleased(&mut self, backend: &Name, wish: &Wish<'_>, now: Now) {
        let held = self.open(backend, now.unix_s);
        held.fulfil(wish);
        held.granted = held.granted.max(held.pending());
        held.touched_ms = now.ms;
        self.note_clients(backend, wish);
    }

    /// What earlier starts have promised is promised by this one, whatever stands in their blocks.
    /// Which of their players have come is believed by name only: how many had come is not known.
    pub fn go_on(&mut self, before: Before, now: Now) {
        let Before { starts, promised } = before;
        for Promised { backend, until_s, tokens, nameless } in &promised {
            let clients: BTreeSet<_> = tokens.iter().map(|(client, _)| *client).collect();
            let clients: Vec<_> = clients.into_iter().collect();
            let (until_s, nameless) = (*until_s, *nameless);
            let clients = &clients[..];
            let wish = Wish { clients, tokens, nameless, count: 0, until_s };
            self.take_unleased(backend, &wish, now);
        }
        // Whether the slot of a promise is still leased is not known: its player may have come, and
        // another service may have the slot since. So a client's next token takes one of its own.
        for promise in self.held.values_mut().flat_map(|held| &mut held.pending) {
            (promise.is_renewed, promise.is_doubtful) = (true, true);
        }
        self.before = starts.into();
    }

    /// Earlier starts all of whose promises are in the book.
    pub fn before(&self) -> Arc<[Name]> {
        Arc::clone(&self.before)
    }

    fn note_clients(&mut self, backend: &Name, wish: &Wish<'_>) {
        for client in wish.clients {
            let places = self.clients.entry(*client).or_default();
            let before = places.iter().position(|(at, _)| at == backend);
            let before = before.map_or(0, |at| places.remove(at).1);
            places.push((backend.clone(), wish.until_s.max(before)));
        }
    }

    /// The last backend of those that are meant at which a client has a promise, and whether that
    /// has a slot for certain.
    pub fn promised(
        &self,
        client: u64,
        now_s: u64,
        is_meant: impl Fn(&Name) -> bool,
    ) -> Option<(&Name, bool)> {
        let places = self.clients.get(&client)?.iter().rev();
        let mut places = places.filter(|(at, until_s)| *until_s > now_s && is_meant(at));
        // What was forgotten because a player has come stands in the list until it would be over.
        places.find_map(|(backend, _)| {
            let promise = self.held.get(backend)?.promise_of(client)?;
            (promise.until_s > now_s).then_some((backend, !promise.is_doubtful))
        })
    }

    /// What these clients have at a backend: nothing, or tokens of which nothing is told until
    /// then.
    pub(crate) fn before_of(&self, backend: &Name, clients: &[u64]) -> Vec<Had> {
        let promise = |client| self.held(backend)?.promise_of(client);
        let until_s = |client| promise(client).map(Promise::untagged_until_s);
        clients.iter().map(|client| (*client, until_s(*client))).collect()
    }

    /// Nobody hears of what was promised. What the clients had before is theirs again.
    pub(crate) fn retract(&mut self, promised: &Promised, before: &[Had]) {
        if let Some(held) = self.held.get_mut(&promised.backend) {
            held.retract(before, &promised.tokens);
        }
    }

    /// Promises to clients that no other service finds: of whom, where, until when, and what is
    /// claimed of it for less long.
    pub(crate) fn unclaimed(&self) -> Vec<(u64, Name, u64, Option<Claim>)> {
        let mut unclaimed = Vec::new();
        for (name, held) in &self.held {
            for it in held.pending.iter().filter(|it| it.is_unclaimed()) {
                let of = |client| (client, name.clone(), it.until_s, it.claim.clone());
                unclaimed.extend(it.client.map(of));
            }
        }
        unclaimed
    }

    /// What is claimed of a client's promise at a backend.
    pub(crate) fn claim_of(&self, backend: &Name, client: u64) -> Option<Claim> {
        self.held(backend)?.promise_of(client)?.claim.clone()
    }

    /// This stands in etcd. Where the promise is over by now, the claim is to go.
    pub(crate) fn note_claim(&mut self, wanted: &Wanted, now_s: u64) {
        let Some(claim) = wanted.claim.clone() else { return };
        let held = self.open(&wanted.backend, now_s);
        match held.pending.iter_mut().find(|it| it.client == Some(wanted.client)) {
            Some(it) if it.claim.as_ref().is_some_and(|it| it.revision > claim.revision) => {}
            Some(it) => it.claim = Some(claim),
            None => held.over.push(claim),
        }
    }

    /// A client's promise is elsewhere: what it has at those that are meant is a slot, and no more.
    pub(crate) fn disown(&mut self, client: u64, is_meant: impl Fn(&Name) -> bool) {
        let places = self.clients.get(&client).into_iter().flatten();
        for (backend, _) in places.filter(|(at, _)| is_meant(at)) {
            let held = self.held.get_mut(backend).map(|it| it.pending.iter_mut());
            let of = held.into_iter().flatten().filter(|it| it.client == Some(client));
            of.for_each(|it| it.client = None);
        }
    }

    /// Claims that nobody needs any more.
    pub(crate) fn take_over_claims(&mut self, now_s: u64) -> Vec<Claim> {
        let over = |held: &mut Held| {
            let over = held.over.extract_if(.., |it| it.shared_until_s <= now_s);
            over.collect::<Vec<_>>()
        };
        self.held.values_mut().flat_map(over).collect()
    }

    /// When the last promise ends; 0 for none.
    pub fn last_until_s(&self) -> u64 {
        let last = |held: &Held| held.pending.back().map(|it| it.until_s);
        self.held.values().filter_map(last).max().unwrap_or(0)
    }

    /// The lease of all blocks has ended: nothing is held any more, and promises still are.
    pub fn lose_blocks(&mut self) {
        self.doubt_blocks();
        self.held.values_mut().for_each(|held| held.written = 0);
    }

    /// What stands in etcd may be less than what is held: nothing is but what is promised.
    pub fn doubt_blocks(&mut self) {
        for held in self.held.values_mut() {
            (held.granted, held.decided_at) = (held.pending(), 0);
            held.over.clear();
            held.pending.iter_mut().for_each(|it| it.claim = None);
        }
    }

    /// Blocks that are larger than they have to be: so many, and how many free slots each is to
    /// have. Those that were not used for a while have none; of those of whose players many have
    /// come, the slots of these go.
    pub fn idle(&mut self, now: Now, idle_ms: u64, count_max: usize) -> Vec<(Name, u32)> {
        let mut idle = Vec::new();
        for (name, held) in &mut self.held {
            held.expire(now.unix_s);
            let is_idle = now.ms.saturating_sub(held.touched_ms) >= idle_ms;
            let spare = held.written.saturating_sub(held.granted);
            let is_large = if is_idle {
                held.written > held.pending()
            } else {
                spare > 0 && spare >= held.written / 4
            };
            if is_large && !held.is_leasing && idle.len() < count_max {
                idle.push((name.clone(), if is_idle { 0 } else { held.free() }));
            }
        }
        let has = |it: &Held| it.granted > 0 || it.written > 0 || !it.over.is_empty();
        self.held.retain(|_, it| has(it) || it.is_leasing);
        self.clients.retain(|_, places| {
            places.retain(|(_, until_s)| *until_s > now.unix_s);
            !places.is_empty()
        });
        idle
    }

    /// A backend has told something: [`Held::settle`]. A decision that is under way has counted all
    /// promises into the block, so it is to be told again behind that.
    pub fn settle(&mut self, name: &Name, backend: &Backend, now_s: u64) {
        if let Some(held) = self.held.get_mut(name).filter(|it| !it.is_leasing) {
            held.settle(backend, now_s);
        }
    }

    /// All blocks as they stay behind when the service ends: with what is promised, and no more.
    pub fn close(&mut self, now: Now) -> Vec<(Name, Block)> {
        let mut closed = Vec::new();
        for (name, held) in &mut self.held {
            held.expire(now.unix_s);
            held.granted = held.pending();
            if held.written > 0 {
                held.written = held.granted;
                let block = Block { slots: held.granted, promised: held.ends(), closed: true };
                closed.push((name.clone(), block));
            }
        }
        closed
    }

    /// Slots in blocks, those of them that are promised, and slots of the same backends that others
    /// had in blocks when this service looked last.
    pub fn sums(&self) -> [u64; 3] {
        let sum = |of: fn(&Held) -> u32| self.held.values().map(|it| u64::from(of(it))).sum();
        [sum(|it| it.granted), sum(Held::pending), sum(|it| it.others)]
    }
}

/// A moment, by the two clocks that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970: what tokens go by.
    pub unix_s: u64,
    /// Milliseconds of a clock that is never set: what waits go by.
    pub ms: u64,
}

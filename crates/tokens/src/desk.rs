//! Puts knowing, choosing and promising together: for each request a place, or a reason, or a
//! backend whose slots have to be leased first.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ringgate_core::netcode::destination::{self, Join};
use ringgate_core::secret::SharedKey;
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::mirror::Change;
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{Backend, LIST_MAX, Service};

use crate::book::{Book, Had, Held, Now, Wish};
use crate::choose::{Chooser, Chosen, Speaks};
use crate::claims::{Claiming, Wanted};
use crate::journal::Promised;
use crate::known::KnownFleet;
use crate::random::{Random, of_text};
use crate::refusal::Refusal;
use crate::wanted::{OWN_BYTES, Where, user_data};

/// The rules of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long a token lives where nobody says.
    pub expire_default_s: u64,
    /// The longest.
    pub expire_max_s: u64,
    /// The most gateways in a token.
    pub addresses_max: usize,
    /// Whether tokens are made while etcd is away.
    pub serves_away: bool,
}

impl Rules {
    /// How long a token lives of which its caller says this.
    pub fn expire_s(&self, wanted: Option<u64>) -> u64 {
        wanted.unwrap_or(self.expire_default_s)
    }
}

/// Everything that is decided in one place.
#[derive(Debug)]
pub struct Desk {
    known: KnownFleet,
    book: Book,
    random: Random,
    service: Name,
    /// Which start of it this is.
    owner: Name,
    rules: Rules,
    /// Whether the fleet was ever told.
    is_told: bool,
    /// Whether the mirror is current.
    is_current: bool,
    /// Until when the lease of our blocks lives for certain.
    leased_until_ms: u64,
    /// That is asked for, and not answered yet: nobody knows what is free.
    awaits_lease: bool,
    /// A backend about whose slots etcd has taken no decision, and none about any since.
    undecided: Option<(Name, u64)>,
    company: Company,
}

/// How it stands with other services, which have to know what is promised.
#[derive(Debug, Default)]
struct Company {
    /// There is nobody, and nobody has left anything that would have to be looked at.
    is_alone: bool,
    /// All promises stand in etcd, or will before they are told.
    is_all_claimed: bool,
    /// Others to whom it is told that they are known.
    told: BTreeSet<Name>,
    /// Those that were there before this service and do not know of it; `None` where it is not
    /// there itself.
    unaware: Option<BTreeSet<Name>>,
    /// Since when others may not know of it.
    unknown_since_ms: Option<u64>,
    /// Clients whose promises are on their way to etcd.
    claiming: BTreeSet<u64>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where.
    pub place: &'a Where,
    /// What will be spoken.
    pub speaks: Speaks,
    /// How many players come.
    pub count: u32,
    /// Their client ids, where they have any.
    pub clients: &'a [u64],
    /// How long they may take to come; `None` for the default.
    pub expire_s: Option<u64>,
    /// Clients that other services have promised something, and where.
    pub elsewhere: &'a [(u64, Name)],
}

/// How far it got.
#[derive(Debug)]
pub enum Placing {
    /// There is a place, and its slots are promised.
    Placed(Box<Placed>),
    /// The same, once it is claimed: other services may have promised something to these clients.
    Claim(Box<Placed>),
    /// The slots of this backend have to be leased; then it is to be asked again.
    Lease(Name),
    /// They are being leased on behalf of another request.
    Wait,
}

/// A place.
#[derive(Debug)]
pub struct Placed {
    /// Where.
    pub chosen: Chosen,
    /// How long the last of the players may take to come.
    pub expire_s: u64,
    /// The key for tokens, and its epoch; `None` where tokens are not spoken of.
    pub key: Option<(u32, SharedKey)>,
    /// For each client's token a number, which user data is marked with; none where the gateways
    /// would not know what that is.
    pub tags: Vec<u64>,
    /// By what a plain listener knows the backend.
    pub routing_token: Option<Vec<u8>>,
    /// What was promised for it.
    pub promised: Promised,
    /// What the clients had there before.
    had: Vec<Had>,
}

impl Desk {
    /// A desk that knows nothing yet.
    pub fn new(
        keyspace: Keyspace,
        fleet_key: FleetKey,
        (service, owner): (Name, Name),
        rules: Rules,
    ) -> Self {
        Self {
            known: KnownFleet::new(keyspace, fleet_key),
            book: Book::default(),
            // No two starts give tokens the same tags.
            random: Random::new(of_text(owner.as_str())),
            service,
            owner,
            rules,
            is_told: false,
            is_current: false,
            leased_until_ms: 0,
            awaits_lease: true,
            undecided: None,
            company: Company::default(),
        }
    }

    /// Takes in what the mirror tells.
    pub fn learn(&mut self, key: &Bytes, value: Option<&[u8]>) {
        self.known.learn(key, value);
    }

    /// The same for what has changed just now, where that is known. Whether it is about a service:
    /// when all that has changed was heard, they meet.
    pub fn hear(&mut self, change: &Change, now: Now) -> bool {
        self.known.hear(change, now.ms);
        self.settle(&change.key, now);
        matches!(self.known.keyspace().place(&change.key), Some(Place::Service(_)))
    }

    /// The others that are there.
    fn others(&self) -> impl Iterator<Item = (&Name, &Option<Service>)> {
        self.known.services().iter().filter(|(name, _)| **name != self.service)
    }

    /// Services have come, have gone, or have said whom they know. Those that were there before
    /// this one was have to know of it; those that come later wait for this one to know of them.
    pub fn meet(&mut self, now: Now) {
        let knows_us = |told: &Service| {
            let beside = told.beside.as_ref();
            beside.is_none_or(|it| it.iter().any(|name| name == self.service.as_str()))
        };
        let unaware = self.others().filter(|(_, told)| !told.as_ref().is_none_or(knows_us));
        let unaware: BTreeSet<_> = unaware.map(|(name, _)| name.clone()).collect();
        let is_there = self.known.services().contains_key(&self.service);
        let has_company = self.has_company();
        let company = &mut self.company;
        company.is_alone &= is_there && !has_company;
        company.unaware = match company.unaware.take().filter(|_| is_there) {
            Some(before) => Some(before.intersection(&unaware).cloned().collect()),
            None => is_there.then_some(unaware),
        };
        let is_known = company.unaware.as_ref().is_some_and(BTreeSet::is_empty);
        let since_ms = company.unknown_since_ms.unwrap_or(now.ms);
        company.unknown_since_ms = (!is_known).then_some(since_ms);
    }

    /// Whether others are there, or may still take this service to know them.
    fn has_company(&self) -> bool {
        let own = self.known.services().get(&self.service).and_then(Option::as_ref);
        let own = own.filter(|it| it.instance == self.owner.as_str());
        let names = own.and_then(|it| it.beside.as_ref()).is_some_and(|it| !it.is_empty());
        names || self.others().next().is_some()
    }

    /// Whether it has to be looked whether others have left anything.
    pub fn looks_for_others(&self) -> bool {
        let is_known = self.company.unaware.as_ref().is_some_and(BTreeSet::is_empty);
        self.is_told && is_known && !self.company.is_alone && !self.has_company()
    }

    /// Nobody is there, and nothing is left of others.
    pub fn stay_alone(&mut self) {
        self.company.is_alone = !self.has_company();
    }

    /// The others that find what this service promises are to be told so.
    pub fn tell_others(&mut self) {
        let others: BTreeSet<_> = self.others().map(|(name, _)| name.clone()).collect();
        let told = &mut self.company.told;
        if self.company.is_all_claimed {
            *told = others;
        } else {
            told.retain(|it| others.contains(it));
        }
    }

    /// Those that are told so.
    pub fn beside(&self) -> Vec<String> {
        self.company.told.iter().take(LIST_MAX).map(Name::to_string).collect()
    }

    /// Promises that others do not find, where others are there or the service `ends`. All are
    /// taken to be claimed from now on.
    pub fn cover(&mut self, ends: bool, now: Now) -> Option<Claiming> {
        let is_due = ends || (self.has_company() && !self.company.is_all_claimed);
        if !is_due || (!ends && self.leased_until_ms == 0) {
            return None;
        }
        self.company.is_all_claimed = true;
        let unclaimed = self.book.unclaimed().into_iter();
        // A client that was sent on from a server where nobody can play any more has a promise
        // there as well: the last one is worth something.
        let mut wanted = BTreeMap::<Bytes, Wanted>::new();
        for (client, backend, until_s, claim) in unclaimed {
            let told = self.known.backend(&backend);
            let Some(group) = told.and_then(|it| Name::new(&it.group)) else { continue };
            let it = Wanted { claim, ..self.wanted(&group, client, backend, until_s) };
            let is_last = wanted.get(&it.key).is_none_or(|known| known.until_s < it.until_s);
            if is_last {
                wanted.insert(it.key.clone(), it);
            }
        }
        let wanted = wanted.into_values().map(|it| it.with_others(now)).collect();
        Some(Claiming::new(self.owner.clone(), false, wanted))
    }

    /// Others have promised something to clients elsewhere while this service's own promises were
    /// not found: what is claimed has the word.
    pub fn yield_to(&mut self, elsewhere: &[(u64, Name)]) {
        for (client, other) in elsewhere {
            let group = self.known.backend(other).map(|it| &it.group);
            let is_of = |at: &Name| self.known.backend(at).map(|it| &it.group) == group;
            self.book.disown(*client, |at| at != other && is_of(at));
        }
    }

    fn wanted(&self, group: &Name, client: u64, backend: Name, until_s: u64) -> Wanted {
        let key = self.known.keyspace().key(&Place::Promise(group.clone(), client));
        Wanted { client, backend, until_s, key, claim: None, passed_over: None }
    }

    /// Some of it could not be claimed.
    pub const fn miss_claims(&mut self) {
        self.company.is_all_claimed = false;
    }

    /// What of a place is to be claimed. Promises elsewhere that were passed over are worth
    /// nothing.
    pub fn claiming(&self, placed: &Placed, elsewhere: &[(u64, Name)], now: Now) -> Claiming {
        let Promised { backend, until_s, tokens, .. } = &placed.promised;
        let clients: BTreeSet<_> = tokens.iter().map(|(client, _)| *client).collect();
        let wanted = clients.into_iter().map(|client| {
            let mut wanted = self.wanted(&placed.chosen.group, client, backend.clone(), *until_s);
            let of = elsewhere.iter().find(|(of, name)| *of == client && name != backend);
            wanted.passed_over = of.map(|(_, name)| name.clone());
            wanted.claim = self.book.claim_of(backend, client);
            wanted.with_others(now)
        });
        Claiming::new(self.owner.clone(), !self.has_company(), wanted.collect())
    }

    /// A place is not on its way to etcd any more: nobody is told of it, if so.
    pub fn end_claiming(&mut self, placed: &Placed, is_told: bool) {
        for (client, _) in &placed.promised.tokens {
            self.company.claiming.remove(client);
        }
        if !is_told {
            self.book.retract(&placed.promised, &placed.had);
        }
    }

    /// A backend may have told whose players have come.
    fn settle(&mut self, key: &Bytes, now: Now) {
        if let Some((name, backend)) = self.known.backend_at(key) {
            self.book.settle(&name, backend, now.unix_s);
        }
    }

    /// A decision about a backend's slots is over. What was heard meanwhile was not looked at.
    pub fn end_leasing(&mut self, name: &Name, now: Now) {
        self.book.open(name, now.unix_s).is_leasing = false;
        if let Some(backend) = self.known.backend(name) {
            self.book.settle(name, backend, now.unix_s);
        }
    }

    /// How the mirror is.
    pub const fn set_mirror(&mut self, is_told: bool, is_current: bool) {
        (self.is_told, self.is_current) = (is_told, is_current);
    }

    /// Until when the lease of our blocks lives for certain; 0 for one that is gone.
    pub const fn set_leased(&mut self, until_ms: u64) {
        self.leased_until_ms = until_ms;
        self.awaits_lease = until_ms == 0;
    }

    /// How long a new lease of our blocks is to live: nobody promises the slots of tokens that are
    /// on their way after this service was last there, whoever has made them.
    pub fn lease_s(&self, now: Now) -> i64 {
        let last_s = self.rules.expire_max_s.saturating_add(TOLD_WITHIN_S);
        let last_s = self.book.last_until_s().saturating_sub(now.unix_s).max(last_s);
        i64::try_from(last_s).unwrap_or(i64::MAX).saturating_add(LEASE_MARGIN_S)
    }

    /// Until when the lease of our blocks lives for certain, by the wall clock.
    pub const fn leased_until_s(&self, now: Now) -> u64 {
        now.unix_s.saturating_add(self.leased_until_ms.saturating_sub(now.ms) / 1000)
    }

    /// The lease of our blocks has ended, and with it all that stood under it.
    pub fn lose_lease(&mut self) {
        self.set_leased(0);
        self.miss_claims();
        self.book.lose_blocks();
    }

    /// Another history of etcd is believed: it may be from before what stands under our lease.
    pub fn meet_history(&mut self) {
        self.miss_claims();
        self.book.doubt_blocks();
    }

    /// There is no lease, for now.
    pub const fn miss_lease(&mut self) {
        self.awaits_lease = false;
    }

    /// etcd has taken no decision about this backend's slots.
    pub fn miss_decision(&mut self, backend: &Name, now: Now) {
        self.undecided.get_or_insert_with(|| (backend.clone(), now.ms));
    }

    /// etcd takes decisions.
    pub fn note_decision(&mut self) {
        self.undecided = None;
    }

    /// Where it is to be tried whether etcd takes decisions again.
    pub fn undecided(&self) -> Option<Name> {
        self.undecided.as_ref().map(|(backend, _)| backend.clone())
    }

    /// What this service is called.
    pub const fn service(&self) -> &Name {
        &self.service
    }

    /// What is known.
    pub const fn known(&self) -> &KnownFleet {
        &self.known
    }

    /// What is promised.
    pub const fn book(&self) -> &Book {
        &self.book
    }

    /// The same, for whoever leases.
    pub const fn book_mut(&mut self) -> &mut Book {
        &mut self.book
    }

    /// What the operator wants.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whether blocks cannot be leased or relied on: an etcd that answers and takes no writes is
    /// away, too.
    pub fn is_away(&self, now: Now) -> bool {
        let is_long = |since_ms: u64| now.ms >= since_ms.saturating_add(UNDECIDED_MS);
        let is_undecided = self.undecided.as_ref().is_some_and(|it| is_long(it.1));
        !self.is_current || now.ms >= self.leased_until_ms || is_undecided
    }

    /// Whether the fleet is known, and whether slots can be leased. While etcd is there, a service
    /// that has just started does not guess what others have promised.
    fn knows_enough(&self, now: Now) -> bool {
        self.is_told && !(self.is_current && (self.awaits_lease || self.is_unknown(now)))
    }

    /// Whether another service may not know yet that it is not alone. One that says nothing for
    /// long is taken to know.
    fn is_unknown(&self, now: Now) -> bool {
        let Company { is_alone, unaware, unknown_since_ms, .. } = &self.company;
        let is_known = *is_alone || unaware.as_ref().is_some_and(BTreeSet::is_empty);
        let is_over = |since_ms: u64| now.ms >= since_ms.saturating_add(KNOWN_WITHIN_MS);
        !is_known && !unknown_since_ms.is_some_and(is_over)
    }

    /// Whether this service can serve, and why not.
    pub fn readiness(&self, now: Now) -> Result<(), Refusal> {
        if !self.knows_enough(now) {
            return Err(Refusal::NotKnownYet);
        }
        if self.is_away(now) && !self.rules.serves_away {
            return Err(Refusal::EtcdAway);
        }
        Ok(())
    }

    /// The group that a request is about.
    pub fn group(&self, place: &Where, now: Now) -> Result<Name, Refusal> {
        let group = self.chooser(1, now).group(place)?.to_owned();
        Name::new(&group).ok_or(Refusal::GroupUnclear)
    }

    /// Finds a place and promises its slots.
    pub fn place(&mut self, request: &Request<'_>, now: Now) -> Result<Placing, Refusal> {
        if !self.knows_enough(now) {
            return Err(Refusal::NotKnownYet);
        }
        let expire_s = self.rules.expire_s(request.expire_s);
        if expire_s > self.rules.expire_max_s {
            return Err(Refusal::ExpireTooLong);
        }
        if request.place.addresses > self.rules.addresses_max {
            return Err(Refusal::TooManyAddresses);
        }
        let distinct: BTreeSet<_> = request.clients.iter().copied().collect();
        let clients: Vec<_> = distinct.into_iter().collect();
        let nameless = request.count.saturating_sub(request.clients.len() as u32);
        // Nobody can tell what others have promised.
        let is_unsure = self.is_away(now) && !self.company.is_alone && !clients.is_empty();
        if is_unsure && !self.rules.serves_away {
            return Err(Refusal::EtcdAway);
        }
        if clients.iter().any(|client| self.company.claiming.contains(client)) {
            return Ok(Placing::Wait);
        }
        let (chosen, count) = self.choose(request, &clients, nameless, now)?;
        let key = self.key(request.speaks, &chosen, now.unix_s, expire_s)?;
        // A player may come in the last second, and be told of a little later.
        let until_s = now.unix_s.saturating_add(expire_s).saturating_add(TOLD_WITHIN_S);
        let tags = self.tags(&chosen, request.clients.len());
        let tokens = joins(&chosen.backend, request.clients, &tags);
        let (clients, tokens) = (&clients[..], &tokens[..]);
        let wish = Wish { clients, tokens, nameless, count, until_s };
        let had = self.book.before_of(&chosen.backend, clients);
        let has_block =
            self.is_leased_for(expire_s, now) && self.book.take(&chosen.backend, &wish, now);
        if !has_block && !self.is_away(now) {
            let held = self.book.open(&chosen.backend, now.unix_s);
            if std::mem::replace(&mut held.is_leasing, true) {
                return Ok(Placing::Wait);
            }
            return Ok(Placing::Lease(chosen.backend));
        }
        if !has_block && !self.rules.serves_away {
            return Err(Refusal::EtcdAway);
        }
        if !has_block {
            self.book.take_unleased(&chosen.backend, &wish, now);
        }
        let promised = Promised {
            backend: chosen.backend.clone(),
            until_s,
            tokens: tokens.to_vec(),
            nameless,
        };
        let routing_token = self.routing_token(&chosen);
        let placed = Placed { chosen, expire_s, key, tags, routing_token, promised, had };
        let placed = Box::new(placed);
        if clients.is_empty() {
            return Ok(Placing::Placed(placed));
        }
        let goes_unclaimed = is_unsure || !has_block || self.company.is_alone;
        if goes_unclaimed || !self.has_company() {
            self.company.is_all_claimed = false;
        }
        if goes_unclaimed {
            return Ok(Placing::Placed(placed));
        }
        self.company.claiming.extend(clients);
        Ok(Placing::Claim(placed))
    }

    /// A place, and how many slots have to be free there: a client that has a promise is sent there
    /// again, or nowhere, unless players cannot get there any more.
    fn choose(
        &mut self,
        request: &Request<'_>,
        clients: &[u64],
        nameless: u32,
        now: Now,
    ) -> Result<(Chosen, u32), Refusal> {
        let mut random = self.random.clone();
        let count = clients.len() as u32 + nameless;
        let mut choose = |place: &Where, count| {
            let chosen = self.chooser(count, now).choose(place, request.speaks, &mut random);
            chosen.map(|it| (it, count))
        };
        let mut found = None;
        for (backend, promised) in self.promised(request, clients, now)? {
            let at = |place: &Where| Where { backend: Some(backend.clone()), ..place.clone() };
            let any = Where { regions: Vec::new(), family: None, ..request.place.clone() };
            let is_asked = request.place.backend.as_ref().is_none_or(|it| *it == backend)
                && self.known.backend(&backend).is_some_and(|it| request.place.fits(it));
            found = match choose(&at(&any), count - promised) {
                Err(Refusal::NoGateway) => found,
                _ if found.is_some() || !is_asked => Some(Err(Refusal::PromisedElsewhere)),
                _ => Some(choose(&at(request.place), count - promised).map_err(|why| match why {
                    Refusal::BackendFull | Refusal::NoGateway => Refusal::PromisedElsewhere,
                    why => why,
                })),
            };
        }
        let found = found.unwrap_or_else(|| choose(request.place, count));
        self.random = random;
        found
    }

    /// The backends at which these clients have promises, and how many of them have a slot there
    /// for certain. Where nobody can play any more, a promise is worth nothing.
    fn promised(
        &self,
        request: &Request<'_>,
        clients: &[u64],
        now: Now,
    ) -> Result<BTreeMap<Name, u32>, Refusal> {
        let chooser = self.chooser(1, now);
        let group = chooser.group(request.place)?;
        let is_it = |it: &Backend| it.is_open() && it.group == group;
        let is_meant = |name: &Name| self.known.backend(name).is_some_and(is_it);
        let mut promised = BTreeMap::new();
        for client in clients {
            let own = self.book.promised(*client, now.unix_s, is_meant);
            let told = request.elsewhere.iter().filter(|(of, name)| of == client && is_meant(name));
            for (name, has_slot) in own.into_iter().chain(told.map(|(_, name)| (name, false))) {
                *promised.entry(name.clone()).or_default() += u32::from(has_slot);
            }
        }
        Ok(promised)
    }

    /// Whether the lease of our blocks outlives a token that is made now: when it ends, others may
    /// promise its slots.
    const fn is_leased_for(&self, expire_s: u64, now: Now) -> bool {
        let lives_ms = expire_s.saturating_add(TOLD_WITHIN_S).saturating_mul(1000);
        now.ms.saturating_add(lives_ms) <= self.leased_until_ms
    }

    /// Numbers for so many tokens.
    fn tags(&mut self, chosen: &Chosen, count: usize) -> Vec<u64> {
        let count = if chosen.takes_tags { count } else { 0 };
        (0..count).map(|_| self.random.number()).collect()
    }

    fn routing_token(&self, chosen: &Chosen) -> Option<Vec<u8>> {
        let Chosen { listener, backend, token_bytes, .. } = chosen;
        (*token_bytes > 0).then(|| self.known.routing_token(listener, backend, *token_bytes))
    }

    /// What tokens are sealed with. No token outlives its key.
    fn key(
        &mut self,
        speaks: Speaks,
        chosen: &Chosen,
        now_s: u64,
        expire_s: u64,
    ) -> Result<Option<(u32, SharedKey)>, Refusal> {
        if matches!(speaks, Speaks::Unsealed(_)) {
            return Ok(None);
        }
        let found = self.known.key(&chosen.listener, now_s).ok_or(Refusal::NoKey)?;
        let (epoch, accept_until, key) = found;
        if now_s.saturating_add(expire_s) > accept_until {
            return Err(Refusal::ExpireTooLong);
        }
        Ok(Some((epoch, key)))
    }

    fn chooser(&self, count: u32, now: Now) -> Chooser<'_> {
        Chooser {
            known: &self.known,
            book: &self.book,
            service: &self.service,
            is_away: self.is_away(now),
            count,
            now,
        }
    }

    /// A decision about slots has failed or found none: nobody asks again for a while.
    pub fn settle_dry(held: &mut Held, now: Now, wanted: u32) {
        if held.granted.saturating_sub(held.pending()) < wanted {
            held.dry_until_ms = now.ms + DRY_MS;
        }
    }
}

/// Whose each token is, and what is told of it when it is used.
fn joins(backend: &Name, clients: &[u64], tags: &[u64]) -> Vec<(u64, Option<Join>)> {
    let tags = tags.iter().map(Some).chain(std::iter::repeat(None));
    let join = |(&client, tag): (&u64, Option<&u64>)| {
        let data = user_data(backend.as_str(), &[0; OWN_BYTES], tag.copied());
        (client, destination::join(client, &data))
    };
    clients.iter().zip(tags).map(join).collect()
}

/// How long it may take until a backend tells of a player who has come: longer than the lease of a
/// backend that is cut off from etcd, whose last word stands until then.
const TOLD_WITHIN_S: u64 = 15;

/// Beyond the last promise, because clocks differ.
pub(crate) const LEASE_MARGIN_S: i64 = 25;

/// A service that lives hears of another one sooner, or its registration has ended.
const KNOWN_WITHIN_MS: u64 = 10_000;

/// How long etcd may take no decision: as long as members elect a leader, and some.
const UNDECIDED_MS: u64 = 5_000;

/// How long a backend without free slots is left alone.
const DRY_MS: u64 = 500;

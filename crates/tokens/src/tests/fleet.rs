//! A fleet in memory, as a mirror and transactions would tell of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use bytes::Bytes;
use ringgate_core::secret::Key;
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::etcd::kv::{KeyValue, Range};
use ringgate_fleet::etcd::txn::{Compare, Decided, Op, Txn};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::mirror::Change;
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{
    Backend, Ban, Block, Gateway, Guard, Joined, Labels, Listener, PromiseClaim, Reach, Service,
    State, Stored,
};

use super::journal::SharedDisk;
use crate::book::Now;
use crate::choose::Speaks;
use crate::claims::{self, Claim, Claiming, ending};
use crate::desk::{Desk, Placed, Placing, Request, Rules};
use crate::journal::Journal;
use crate::ledger::{Grounds, closing, reading};
use crate::refusal::Refusal;
use crate::wanted::Where;

pub(super) const NOW: Now = Now { unix_s: 1_700_000_000, ms: 1000 };
pub(super) const PROTOCOL_ID: u64 = 7;

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(super) fn keyspace() -> Keyspace {
    Keyspace::new("/f").expect("a prefix")
}

pub(super) fn fleet_key() -> FleetKey {
    FleetKey::new(Key::from_bytes([9; 32]))
}

pub(super) fn listener_key(epoch: u32) -> Key {
    Key::from_bytes([epoch as u8; 32])
}

pub(super) fn backend(host: &str, slots: u32) -> Backend {
    Backend {
        instance: "i".into(),
        host: host.into(),
        group: "main".into(),
        reach: Reach::Udp("127.0.0.1:7777".parse().expect("literal")),
        gateways: Vec::new(),
        slots,
        used: 0,
        state: State::Ready,
        joined: None,
        labels: Labels::new(),
    }
}

pub(super) fn gateway(host: &str, address: &str) -> Gateway {
    let listener = Listener {
        name: "main".into(),
        protocol: "netcode".into(),
        addresses: vec![address.parse::<SocketAddr>().expect("literal")],
        epochs: vec![1],
        keys: Vec::new(),
        group: String::new(),
        protocol_id: PROTOCOL_ID,
        token_bytes: 0,
        tags: false,
        messages: false,
    };
    Gateway {
        instance: "i".into(),
        region: "eu".into(),
        host: host.into(),
        version: "0".into(),
        listeners: vec![listener],
        agents: Vec::new(),
        cluster: None,
        capacity: 1000,
        sessions: 0,
        draining: false,
        started: 1,
        written: 1,
        doubt: 0,
        held: Vec::new(),
        run_dir: String::new(),
        heard: None,
        denied: None,
        shut: Vec::new(),
        answers: false,
    }
}

/// What etcd holds.
#[derive(Default)]
pub(super) struct Store {
    revision: i64,
    keys: BTreeMap<Bytes, (Bytes, i64)>,
    /// Transactions that are on their way.
    pub(super) late: Vec<Txn>,
}

impl Store {
    pub(super) fn put(&mut self, place: &Place, value: &impl Stored) {
        self.revision += 1;
        let value = value.encode().expect("a sound value");
        self.keys.insert(keyspace().key(place), (value, self.revision));
    }

    pub(super) fn put_key(&mut self, epoch: u32, validity: Validity) {
        let place = Place::Key(name("main"), epoch);
        let sealed = fleet_key().seal(&keyspace().key(&place), validity, &listener_key(epoch));
        self.put(&place, &sealed.expect("random bytes"));
    }

    pub(super) fn ban(&mut self, client: u64, until: u64) {
        let ban = Ban { until, reason: String::new(), by: String::new() };
        self.put(&Place::BanClient(client), &ban);
    }

    pub(super) fn remove(&mut self, place: &Place) {
        self.revision += 1;
        self.keys.remove(&keyspace().key(place));
    }

    /// The lease of a service's blocks ends, and all that stands under it.
    pub(super) fn end_lease(&mut self, owner: &Name) {
        self.revision += 1;
        self.keys.retain(|key, (value, _)| match keyspace().place(key) {
            Some(Place::Block(_, by)) => by != *owner,
            Some(Place::Guard(_)) => Guard::decode(value).is_ok_and(|it| it.by != owner.as_str()),
            Some(Place::Promise(..)) => {
                PromiseClaim::decode(value).is_ok_and(|it| it.service != owner.as_str())
            }
            _ => true,
        });
    }

    /// How many claims of promises there are.
    pub(super) fn promises(&self) -> usize {
        let places = self.keys.keys().filter_map(|key| keyspace().place(key));
        places.filter(|it| matches!(it, Place::Promise(..))).count()
    }

    /// How many services have a block at a backend.
    pub(super) fn blocks(&self, backend: &Name) -> usize {
        let places = self.keys.keys().filter_map(|key| keyspace().place(key));
        places.filter(|it| matches!(it, Place::Block(at, _) if at == backend)).count()
    }

    /// What a start of a service holds at a backend.
    pub(super) fn block(&self, backend: &Name, owner: &Name) -> Option<Block> {
        let place = Place::Block(backend.clone(), owner.clone());
        Block::decode(&self.keys.get(&keyspace().key(&place))?.0).ok()
    }

    /// The backends at which these starts have blocks.
    fn of_starts(&self, starts: &[Name]) -> Vec<Name> {
        let places = self.keys.keys().filter_map(|key| keyspace().place(key));
        let own = places.filter_map(|it| match it {
            Place::Block(at, by) if starts.contains(&by) => Some(at),
            _ => None,
        });
        own.collect()
    }

    pub(super) fn backend(&self, backend: &Name) -> Option<Backend> {
        let (value, _) = self.keys.get(&keyspace().key(&Place::Backend(backend.clone())))?;
        Backend::decode(value).ok()
    }

    /// One player more or less at a backend, as its owner tells it.
    pub(super) fn tell(&mut self, backend: &Name, used: u32) {
        self.tell_joined(backend, used, None);
    }

    /// The same of one that may tell whose players have come.
    pub(super) fn tell_joined(&mut self, backend: &Name, used: u32, joined: Option<Joined>) {
        let told = Backend { used, joined, ..self.backend(backend).expect("it is there") };
        self.put(&Place::Backend(backend.clone()), &told);
    }

    /// Does a transaction, with all that are decided by themselves in it.
    pub(super) fn txn(&mut self, txn: &Txn) -> Decided {
        let within =
            txn.then.iter().filter_map(|op| if let Op::Txn(it) = op { Some(it) } else { None });
        let ops = txn.then.iter().chain(within.flat_map(|it| &it.then));
        let puts: Vec<_> = ops
            .filter_map(|op| if let Op::Put(put) = op { Some(&put.key) } else { None })
            .collect();
        let distinct: BTreeSet<_> = puts.iter().collect();
        assert_eq!(distinct.len(), puts.len(), "etcd refuses to put a key twice: {puts:?}");
        let before = self.revision;
        self.revision += 1;
        let (mut decided, has_written) = self.decide(txn);
        if !has_written {
            self.revision = before;
        }
        decided.header.revision = self.revision;
        decided
    }

    /// The same at the revision that is written now. Whether something was.
    fn decide(&mut self, txn: &Txn) -> (Decided, bool) {
        let at = |key: &Bytes| self.keys.get(key).map(|it| it.1);
        let held = txn.when.iter().all(|compare| match compare {
            Compare::Absent(key) => at(key).is_none(),
            Compare::Unchanged(key, revision) => at(key) == Some(*revision),
            Compare::Lease(key, lease) => self.keys.contains_key(key) && *lease == REGISTERED,
        });
        let (mut decided, mut has_written) = (Decided { held, ..Decided::default() }, false);
        for op in if held { &txn.then } else { &txn.or_else } {
            match op {
                Op::Range(range) if range.end.is_empty() => {
                    decided.found.extend(self.one(&range.key));
                }
                Op::Range(range) => {
                    let within = self.keys.range(range.key.clone()..range.end.clone());
                    decided.found.extend(within.map(|(key, value)| key_value(key, value)));
                }
                Op::Put(put) => {
                    has_written = true;
                    self.keys.insert(put.key.clone(), (put.value.clone(), self.revision));
                }
                Op::Delete(delete) => has_written |= self.keys.remove(&delete.key).is_some(),
                Op::Txn(txn) => {
                    let (each, has) = self.decide(txn);
                    decided.each.push(each);
                    has_written |= has;
                }
            }
        }
        (decided, has_written)
    }

    fn one(&self, key: &Bytes) -> Option<KeyValue> {
        self.keys.get(key).map(|value| key_value(key, value))
    }
}

fn key_value(key: &Bytes, (value, mod_revision): &(Bytes, i64)) -> KeyValue {
    let (key, value) = (key.clone(), value.clone());
    KeyValue { key, value, mod_revision: *mod_revision, ..KeyValue::default() }
}

/// The lease under which services are registered.
const REGISTERED: i64 = 5;

/// What becomes of a transaction that writes.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    Answered,
    /// It is done, and nobody hears of it.
    Lost,
    /// The same, and it is done at any time later.
    Late,
}

/// One service over a store.
pub(super) struct Office {
    pub(super) fate: Fate,
    pub(super) desk: Desk,
    pub(super) owner: Name,
    pub(super) disk: SharedDisk,
    journal: Journal,
    /// What it tells of itself.
    pub(super) told: Service,
    over: Vec<Claim>,
}

pub(super) const RULES: Rules =
    Rules { expire_default_s: 30, expire_max_s: 300, addresses_max: 2, serves_away: true };

impl Office {
    pub(super) fn open(service: &str, store: &mut Store) -> Self {
        Self::start(service, 1, store)
    }

    /// The same for a later start of it.
    pub(super) fn start(service: &str, number: u32, store: &mut Store) -> Self {
        Self::with_rules(service, number, RULES, store)
    }

    /// The same by other rules.
    pub(super) fn with_rules(service: &str, number: u32, rules: Rules, store: &mut Store) -> Self {
        Self::on(SharedDisk::new(), (service, number), (rules, NOW), store)
    }

    /// The service was killed, and this is the next start of it.
    pub(super) fn follow(self, number: u32, store: &mut Store, now: Now) -> Self {
        let service = self.desk.service().clone();
        Self::on(self.disk, (service.as_str(), number), (*self.desk.rules(), now), store)
    }

    pub(super) fn on(
        disk: SharedDisk,
        (service, number): (&str, u32),
        (rules, now): (Rules, Now),
        store: &mut Store,
    ) -> Self {
        let owner = name(&format!("{service}.{number}"));
        let told = Service {
            instance: owner.to_string(),
            host: "h".into(),
            version: "0".into(),
            started: 1,
            written: 1,
            beside: Some(Vec::new()),
            doubt: 0,
            held: Vec::new(),
        };
        store.put(&Place::Service(name(service)), &told);
        let names = (name(service), owner.clone());
        let mut desk = Desk::new(keyspace(), fleet_key(), names, rules);
        desk.set_mirror(true, true);
        desk.set_leased(u64::MAX);
        let (journal, before) = Journal::begin(Box::new(disk.clone()), &keyspace(), &owner, now);
        desk.book_mut().go_on(before, now);
        let (fate, over) = (Fate::Answered, Vec::new());
        let mut office = Self { fate, desk, owner, disk, journal, told, over };
        office.mirror(store);
        office.keep_company(store, now);
        office
    }

    /// What is done as soon as it hears of other services, and once in a second.
    pub(super) fn keep_company(&mut self, store: &mut Store, now: Now) {
        self.over.extend(self.desk.book_mut().take_over_claims(now.unix_s));
        if self.desk.looks_for_others() {
            let then = vec![Op::Range(Range::prefix(&keyspace().promises()))];
            let found = store.txn(&Txn { then, ..Txn::default() }).found;
            let over = claims::over(&found, now.unix_s);
            store.txn(&ending(&over));
            if over.len() == found.len() {
                self.desk.stay_alone();
            }
        }
        if let Some(covering) = self.desk.cover(false, now) {
            match self.write_claims(store, covering, now) {
                Some(elsewhere) => self.desk.yield_to(&elsewhere),
                None => self.desk.miss_claims(),
            }
        }
        for claim in self.over.drain(..) {
            let ending = ending(std::slice::from_ref(&claim));
            match self.fate {
                Fate::Late => store.late.push(ending),
                Fate::Lost | Fate::Answered => drop(store.txn(&ending)),
            }
        }
        self.desk.tell_others();
        let beside = Some(self.desk.beside());
        if self.told.beside != beside {
            self.told.beside = beside;
            store.put(&Place::Service(self.desk.service().clone()), &self.told);
        }
    }

    /// Clients that have a promise elsewhere; `None` where etcd gives no answer.
    fn write_claims(
        &mut self,
        store: &mut Store,
        mut claiming: Claiming,
        now: Now,
    ) -> Option<Vec<(u64, Name)>> {
        let own = keyspace().key(&Place::Service(self.desk.service().clone()));
        let mut elsewhere = Vec::new();
        for _ in 0..100 {
            let txn = claiming.txn(1, Some((own.clone(), REGISTERED))).expect("sound values");
            let Some(txn) = txn else { return Some(elsewhere) };
            match self.fate {
                Fate::Late => {
                    store.late.push(txn);
                    return None;
                }
                Fate::Lost => {
                    store.txn(&txn);
                    return None;
                }
                Fate::Answered => {}
            }
            elsewhere.extend(claiming.take(&store.txn(&txn), now.unix_s));
            for it in claiming.standing() {
                self.desk.book_mut().note_claim(&it, now.unix_s);
            }
        }
        None
    }

    /// Claims a place as a service does. `None` where it is to be looked again.
    fn claim(
        &mut self,
        store: &mut Store,
        placed: Box<Placed>,
        elsewhere: &mut Vec<(u64, Name)>,
        now: Now,
    ) -> Result<Option<Placed>, Refusal> {
        let claiming = self.desk.claiming(&placed, elsewhere, now);
        let found = self.write_claims(store, claiming, now);
        let is_told = match &found {
            Some(found) => found.is_empty(),
            None => self.desk.rules().serves_away,
        };
        self.desk.end_claiming(&placed, is_told);
        match found {
            None if is_told => self.desk.miss_claims(),
            None => return Err(Refusal::EtcdAway),
            Some(found) => {
                elsewhere.retain(|(client, _)| found.iter().all(|(of, _)| of != client));
                elsewhere.extend(found);
            }
        }
        Ok(is_told.then_some(*placed))
    }

    /// The same as news of this moment: what backends tell settles promises.
    pub(super) fn mirror_at(&mut self, store: &Store, now: Now) {
        for (key, (value, _)) in &store.keys {
            let (key, value) = (key.clone(), Some(value.clone()));
            self.desk.hear(&Change { key, value, revision: None }, now);
        }
        self.desk.meet(now);
    }

    /// Hears of other services, and of nothing else.
    pub(super) fn mirror_services(&mut self, store: &Store, now: Now) {
        for service in ["t", "other", "t1", "t2", "t3"] {
            let key = keyspace().key(&Place::Service(name(service)));
            let value = store.keys.get(&key).map(|it| it.0.clone());
            self.desk.hear(&Change { key, value, revision: None }, now);
        }
        self.desk.meet(now);
    }

    /// Learns everything that there is, and what is gone.
    pub(super) fn mirror(&mut self, store: &Store) {
        let gone = |place: Place| keyspace().key(&place);
        for at in 0..40 {
            let key = gone(Place::Backend(name(&format!("b{at}"))));
            self.desk.learn(&key, store.keys.get(&key).map(|it| &it.0[..]));
        }
        for (key, (value, _)) in &store.keys {
            self.desk.learn(key, Some(value));
        }
        self.mirror_services(store, NOW);
    }

    pub(super) fn ask(
        &mut self,
        store: &mut Store,
        place: &Where,
        count: u32,
        now: Now,
    ) -> Result<Placed, Refusal> {
        let speaks = Speaks::Netcode(None);
        let elsewhere = &[];
        let request = Request { place, speaks, count, clients: &[], expire_s: None, elsewhere };
        self.ask_for(store, &request, now)
    }

    pub(super) fn ask_for(
        &mut self,
        store: &mut Store,
        request: &Request<'_>,
        now: Now,
    ) -> Result<Placed, Refusal> {
        let mut elsewhere = Vec::new();
        for _ in 0..100 {
            let request = &Request { elsewhere: &elsewhere, ..*request };
            match self.desk.place(request, now)? {
                Placing::Placed(placed) => {
                    self.journal.add(&placed.promised, now);
                    return Ok(*placed);
                }
                Placing::Claim(placed) => {
                    if let Some(placed) = self.claim(store, placed, &mut elsewhere, now)? {
                        self.journal.add(&placed.promised, now);
                        return Ok(placed);
                    }
                }
                Placing::Lease(backend) => self.lease(store, &backend, request.count, now),
                Placing::Wait => panic!("one request at a time never waits"),
            }
        }
        Err(Refusal::Busy)
    }

    pub(super) fn lease(&mut self, store: &mut Store, backend: &Name, wanted: u32, now: Now) {
        let grounds = self.read(store, backend, now);
        self.write(store, backend, (grounds, wanted), now);
    }

    pub(super) fn read(&self, store: &mut Store, backend: &Name, now: Now) -> Grounds {
        let found = store.txn(&reading(&keyspace(), backend)).found;
        let before = self.desk.book().before();
        let clock = (now.unix_s, self.desk.leased_until_s(now));
        Grounds::of(&found, &keyspace(), (&self.owner, &before), clock)
    }

    /// A decision on these grounds about so many slots.
    pub(super) fn write(
        &mut self,
        store: &mut Store,
        backend: &Name,
        (grounds, wanted): (Grounds, u32),
        now: Now,
    ) {
        let held = self.desk.book_mut().open(backend, now.unix_s);
        grounds.settle(held, now.unix_s);
        let decision = grounds.decide(held, wanted, now.unix_s);
        decision.venture(held, now.unix_s);
        decision.promised(backend).for_each(|it| self.journal.add(&it, now));
        let writing = grounds.writing(&decision, &keyspace(), backend, &self.owner, 1);
        let writing = writing.expect("sound values");
        match self.fate {
            Fate::Late => store.late.push(writing),
            Fate::Lost => drop(store.txn(&writing)),
            Fate::Answered => {
                let decided = store.txn(&writing);
                if decided.held {
                    decision.apply(held, decided.header.revision);
                }
            }
        }
        Desk::settle_dry(held, now, wanted);
        self.desk.end_leasing(backend, now);
    }

    /// The service is told to end, and does.
    pub(super) fn end(mut self, store: &mut Store, now: Now) {
        let covering = self.desk.cover(true, now).expect("a service that ends claims all");
        let is_claimed = self.write_claims(store, covering, now).is_some();
        store.remove(&Place::Service(self.desk.service().clone()));
        let closed = self.desk.book_mut().close(now);
        let closing = closing(&keyspace(), &self.owner, 1, &closed).expect("sound values");
        match self.fate {
            Fate::Late => store.late.push(closing),
            Fate::Lost => drop(store.txn(&closing)),
            Fate::Answered => {
                drop(store.txn(&closing));
                if is_claimed {
                    self.journal.end();
                }
            }
        }
    }

    /// Takes over what earlier starts have left.
    pub(super) fn take_over(&mut self, store: &mut Store, now: Now) {
        let before = self.desk.book().before();
        for backend in store.of_starts(&before) {
            let free = self.desk.book_mut().open(&backend, now.unix_s).free();
            self.lease(store, &backend, free, now);
        }
    }

    /// Gives back what is idle.
    pub(super) fn tidy(&mut self, store: &mut Store, now: Now) {
        for (backend, wanted) in self.desk.book_mut().idle(now, 5000, 64) {
            self.lease(store, &backend, wanted, now);
        }
    }
}

pub(super) fn anywhere() -> Where {
    Where { addresses: 1, ..Where::default() }
}

/// A host with a gateway and backends of so many slots each.
pub(super) fn host(store: &mut Store, host: &str, backends: std::ops::Range<u32>, slots: u32) {
    let address = format!("192.0.2.{}:40000", 1 + backends.start);
    store.put(&Place::Gateway(name(&format!("g-{host}"))), &gateway(host, &address));
    for at in backends {
        store.put(&Place::Backend(name(&format!("b{at}"))), &backend(host, slots));
    }
}

/// A key that is good for a while.
pub(super) fn with_key(store: &mut Store) {
    let from = NOW.unix_s - 10;
    store.put_key(1, Validity { from, mint_until: from + 10_000, accept_until: from + 20_000 });
}

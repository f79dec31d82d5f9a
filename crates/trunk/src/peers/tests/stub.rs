//! Players of a member in a test: what it has, what it was told, and what has come.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ringgate_cluster::wire::{Datagram, Offered};
use ringgate_cluster::{Incarnation, News, NoRoom, Record, SessionId};

use crate::peers::{Arrival, Kept, Number, Places, Players};

type Of = (u16, SocketAddr);
type Came = (u16, SocketAddr, SocketAddr, bool, Vec<u8>);

#[derive(Default)]
struct Inner {
    listeners: Arc<[(u16, String)]>,
    held: BTreeSet<Of>,
    changes: Vec<(Of, News)>,
    accepted: Vec<(Of, u32, Number)>,
    /// With what was accepted a second.
    known: BTreeMap<Of, (Number, u32)>,
    departures: Vec<(Number, u16, [SocketAddr; 2], Vec<u8>)>,
    came: Vec<Came>,
    incarnation: Option<Incarnation>,
    records: BTreeMap<SessionId, (u16, Record)>,
    changed: Vec<SessionId>,
    /// What others have given, by whom, and what they have told of it.
    kept: BTreeMap<SessionId, (Number, u16, Record)>,
    stands: BTreeSet<Of>,
    stood: Vec<(Of, bool)>,
    heard_stands: BTreeMap<Of, Number>,
    silent: BTreeSet<Number>,
    able: Vec<(Incarnation, Number)>,
    offers: BTreeMap<SessionId, Number>,
    heard_offers: Vec<(Number, SessionId, bool)>,
    is_leaving: bool,
    /// How often it was asked what has changed: once in each turn.
    turns: u64,
}

#[derive(Default)]
pub(super) struct Stub(Mutex<Inner>);

impl Stub {
    pub(super) fn new(listeners: &[(u16, &str)]) -> Arc<Self> {
        let stub = Arc::new(Self::default());
        stub.set_listeners(listeners);
        stub
    }

    fn with<T>(&self, of: impl FnOnce(&mut Inner) -> T) -> T {
        of(&mut self.0.lock().expect("no test has failed"))
    }

    pub(super) fn set_listeners(&self, listeners: &[(u16, &str)]) {
        let named = listeners.iter().map(|(number, name)| (*number, (*name).to_owned()));
        self.with(|it| it.listeners = named.collect());
    }

    pub(super) fn turns(&self) -> u64 {
        self.with(|it| it.turns)
    }

    pub(super) fn come(&self, listener: u16, player: SocketAddr) {
        self.with(|it| {
            let is_new = it.held.insert((listener, player));
            let news = if is_new { News::Came } else { News::Still };
            it.changes.push(((listener, player), news));
        });
    }

    pub(super) fn go(&self, listener: u16, player: SocketAddr) {
        self.with(|it| {
            it.held.remove(&(listener, player));
            it.changes.push(((listener, player), News::Left));
        });
    }

    /// How much of what has changed was not taken yet.
    pub(super) fn untold(&self) -> usize {
        self.with(|it| it.changes.len())
    }

    pub(super) fn accept(&self, listener: u16, player: SocketAddr, count: u32, by: Number) {
        self.with(|it| it.accepted.push(((listener, player), count, by)));
    }

    pub(super) fn send(
        &self,
        to: Number,
        listener: u16,
        (player, at): (SocketAddr, SocketAddr),
        bytes: &[u8],
    ) {
        self.with(|it| it.departures.push((to, listener, [player, at], bytes.to_vec())));
    }

    pub(super) fn finds(&self, listener: u16, player: SocketAddr) -> Option<Number> {
        self.with(|it| it.known.get(&(listener, player)).map(|(number, _)| *number))
    }

    pub(super) fn set_known(&self, listener: u16, player: SocketAddr, at: Number) {
        self.with(|it| it.known.insert((listener, player), (at, 0)));
    }

    pub(super) fn rate(&self, listener: u16, player: SocketAddr) -> Option<u32> {
        self.with(|it| it.known.get(&(listener, player)).map(|(_, per_s)| *per_s))
    }

    pub(super) fn set_incarnation(&self, it: u16) {
        self.with(|stub| stub.incarnation = Some(Incarnation(it)));
    }

    pub(super) fn keep(&self, listener: u16, record: &Record) {
        self.with(|it| {
            it.records.insert(record.session, (listener, record.clone()));
            it.changed.push(record.session);
        });
    }

    pub(super) fn end(&self, session: SessionId) {
        self.with(|it| {
            it.records.remove(&session);
            it.changed.push(session);
        });
    }

    /// The sessions for which it stands by, of whom.
    pub(super) fn kept(&self) -> BTreeMap<SessionId, (Number, u16, Record)> {
        self.with(|it| it.kept.clone())
    }

    /// One of its sessions is to be a member's.
    pub(super) fn offer(&self, session: SessionId, to: Number) {
        self.with(|it| {
            it.offers.insert(session, to);
            it.changed.push(session);
        });
    }

    pub(super) fn leave(&self, is_leaving: bool) {
        self.with(|it| it.is_leaving = is_leaving);
    }

    /// What it was offered, of whom, and whether that comes in here.
    pub(super) fn heard_offers(&self) -> Vec<(Number, SessionId, bool)> {
        self.with(|it| it.heard_offers.clone())
    }

    /// The members that can go on with its sessions.
    pub(super) fn able(&self) -> Vec<Incarnation> {
        self.with(|it| it.able.iter().map(|(process, _)| *process).collect())
    }

    /// Who else stands by for a player.
    pub(super) fn stands(&self, listener: u16, player: SocketAddr) -> Option<Number> {
        self.with(|it| it.heard_stands.get(&(listener, player)).copied())
    }

    pub(super) fn silent(&self) -> usize {
        self.with(|it| it.silent.len())
    }

    pub(super) fn take(&self) -> Option<Came> {
        self.with(|it| it.came.pop())
    }
}

fn player_of(record: &Record) -> SocketAddr {
    let (ip, port) = record.player;
    SocketAddr::new(std::net::Ipv6Addr::from(ip).to_canonical(), port)
}

impl Players for Arc<Stub> {
    fn listeners(&self) -> Arc<[(u16, String)]> {
        self.with(|it| Arc::clone(&it.listeners))
    }

    fn take_changes(&self, max: usize, handle: &mut dyn FnMut(u16, SocketAddr, News)) -> bool {
        self.with(|it| {
            it.turns += 1;
            let count = max.min(it.changes.len());
            for ((listener, player), news) in it.changes.drain(..count) {
                handle(listener, player, news);
            }
            !it.changes.is_empty()
        })
    }

    fn part(&self, part: usize) -> Option<(Places, Places)> {
        let all = |of: &BTreeSet<Of>| of.iter().copied().collect();
        self.with(|it| (part == 0).then(|| (all(&it.held), all(&it.stands))))
    }

    fn learn(&self, member: Number, listener: u16, player: &SocketAddr) -> Result<(), NoRoom> {
        self.with(|it| it.known.insert((listener, *player), (member, 0)));
        Ok(())
    }

    fn count(&self, member: Number) -> usize {
        self.with(|it| it.known.values().filter(|(number, _)| *number == member).count())
    }

    fn unlearn(&self, _: Number, listener: u16, player: &SocketAddr) {
        self.with(|it| it.known.remove(&(listener, *player)));
    }

    fn forget(&self, member: Number) {
        self.forget_told(member);
    }

    fn forget_told(&self, member: Number) {
        self.with(|it| {
            it.known.retain(|_, (number, _)| *number != member);
            it.heard_stands.retain(|_, number| *number != member);
        });
    }

    fn set_silent(&self, member: Number) {
        self.with(|it| it.silent.insert(member));
    }

    fn set_back(&self, member: Number, _: Incarnation) {
        self.with(|it| it.silent.remove(&member));
    }

    fn incarnation(&self) -> Option<Incarnation> {
        self.with(|it| it.incarnation)
    }

    fn take_records(&self, max: usize, handle: &mut dyn FnMut(SessionId, Option<Kept<'_>>)) {
        self.with(|it| {
            let count = max.min(it.changed.len());
            for session in it.changed.drain(..count) {
                let kept = it.records.get(&session);
                let offered_to = it.offers.remove(&session);
                let kept =
                    kept.map(|(listener, record)| Kept { listener: *listener, record, offered_to });
                handle(session, kept);
            }
        });
    }

    fn renew_records(&self) {
        self.with(|it| it.changed.extend(it.records.keys()));
    }

    fn set_able(&self, members: &[(Incarnation, Number)]) {
        self.with(|it| it.able = members.to_vec());
    }

    fn is_leaving(&self) -> (bool, Option<usize>) {
        self.with(|it| (it.is_leaving, it.is_leaving.then_some(it.records.len())))
    }

    fn hear_offer(&self, member: Number, offered: &Offered) {
        self.with(|it| it.heard_offers.push((member, offered.session, offered.is_coming)));
    }

    fn stand_by(&self, member: Number, listener: u16, record: Record) -> Result<(), NoRoom> {
        self.with(|it| {
            let of = (listener, player_of(&record));
            it.stands.insert(of);
            it.stood.push((of, true));
            it.kept.insert(record.session, (member, listener, record));
        });
        Ok(())
    }

    fn stand_down(&self, _: Number, session: SessionId) {
        self.with(|it| {
            let Some((_, listener, record)) = it.kept.remove(&session) else { return };
            let of = (listener, player_of(&record));
            it.stands.remove(&of);
            it.stood.push((of, false));
        });
    }

    fn expire(&self) {}

    fn take_stands(&self, max: usize, handle: &mut dyn FnMut(u16, SocketAddr, bool)) {
        self.with(|it| {
            let count = max.min(it.stood.len());
            for ((listener, player), stands_by) in it.stood.drain(..count) {
                handle(listener, player, stands_by);
            }
        });
    }

    fn learn_stands(
        &self,
        member: Number,
        listener: u16,
        player: &SocketAddr,
    ) -> Result<(), NoRoom> {
        self.with(|it| it.heard_stands.insert((listener, *player), member));
        Ok(())
    }

    fn unlearn_stands(&self, _: Number, listener: u16, player: &SocketAddr) {
        self.with(|it| it.heard_stands.remove(&(listener, *player)));
    }

    fn take_accepted(&self, handle: &mut dyn FnMut(Number, u16, SocketAddr, u32)) {
        self.with(|it| {
            for ((listener, player), count, by) in it.accepted.drain(..) {
                handle(by, listener, player, count);
            }
        });
    }

    fn learn_accepted(&self, _: Number, listener: u16, player: &SocketAddr, per_s: u32) {
        self.with(|it| it.known.get_mut(&(listener, *player)).map(|known| known.1 = per_s));
    }

    fn take_departures(&self, max: usize, handle: &mut dyn FnMut(Number, Datagram<'_>)) -> bool {
        self.with(|it| {
            let count = max.min(it.departures.len());
            for (to, listener, [player, at], bytes) in it.departures.drain(..count) {
                let datagram =
                    Datagram { listener, player, to: at, is_lost: false, hops: 1, bytes: &bytes };
                handle(to, datagram);
            }
            !it.departures.is_empty()
        })
    }

    fn onward(&self, listener: u16, datagram: &Datagram<'_>) -> Option<Number> {
        self.with(|it| {
            let of = (listener, datagram.player);
            let known = it.known.get(&of).map(|(number, _)| *number);
            known.filter(|_| !it.held.contains(&of))
        })
    }

    fn arrive(&self, _: Number, listener: u16, datagram: &Datagram<'_>) -> Arrival {
        let Datagram { player, to, is_lost, bytes, .. } = *datagram;
        self.with(|it| it.came.push((listener, player, to, is_lost, bytes.to_vec())));
        Arrival::Taken
    }
}

//! Where players are whose id may be in one place of the fleet only: a login claims the id in etcd
//! and overwrites whoever has it, because the newer login wins; the gateway of the older session
//! finds a note under its instance, and ends it.
//!
//! Workers leave news (`FleetPlayers`) and wait for nothing. Some hundreds of players are told at a
//! time, a hundred in a transaction: each is claimed if nobody has it, and otherwise by what stands
//! there. No player is told of twice at once: its later word is to come later. Claims stand under
//! the gateway's own lease: when it dies, its players' ids are free. When the lease ends while it
//! lives, or etcd tells another history, everybody is claimed again; then the moment decides at
//! which a session began. A successor claims everybody again, too, and from the barrier on it alone
//! does: the process before it goes by the same name and hears no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ringgate_fleet::clocks::Clocks;
use ringgate_fleet::decisions::Decisions;
use ringgate_fleet::etcd::kv::{KeyValue, Range};
use ringgate_fleet::etcd::txn::{Compare, Decided, Delete, Op, Put, Txn};
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::values::{Ousted, PlayerClaim, Stored};
use ringgate_gate::{FleetPlayer, FleetPlayers, PlayerClaimed, PlayerNews, SessionId};
use tokio::time::Instant;

use super::Settings;

ringgate_core::numbered! {
    /// What is counted of it.
    pub struct PlayerCounts;
    /// Players that etcd was told of.
    claims,
    /// Times it did not answer.
    failures,
    /// Sessions elsewhere that a login here has ended.
    ousted_there,
    /// Sessions here that a login elsewhere has ended.
    ousted_here,
}

/// What it shares with the thread that it runs on.
pub(super) trait Host: Send {
    /// The lease of our registration, while it lives for certain and is no successor's; 0
    /// otherwise.
    fn lease(&self) -> i64;

    /// When another history of etcd was last seen.
    fn rewritten_at_ms(&self) -> Option<u64>;

    /// What was counted since it was told last.
    fn count(&self, counts: PlayerCounts);
}

/// Tells etcd who is here.
pub(super) struct PlayerClaimer<H> {
    client: Client,
    clock: Arc<dyn Clocks>,
    keyspace: Keyspace,
    players: Arc<FleetPlayers>,
    gateway: Name,
    instance: Name,
    host: H,
    /// Under which claims stand.
    lease: i64,
    /// When etcd's history was last another one.
    rewritten_at_ms: Option<u64>,
    /// Under which notes stand, and from when on there has to be another one.
    notes: Option<(i64, Instant)>,
}

impl<H: Host> PlayerClaimer<H> {
    /// `None` where our own names cannot stand in etcd, which the config has made sure of.
    pub(super) fn new(
        (client, clock): (Client, Arc<dyn Clocks>),
        settings: &Settings,
        players: Arc<FleetPlayers>,
        host: H,
    ) -> Option<Self> {
        let instance = Name::new(&settings.instance)?;
        let (keyspace, gateway) = (settings.keyspace.clone(), settings.name.clone());
        Some(Self {
            client,
            clock,
            keyspace,
            players,
            gateway,
            instance,
            host,
            lease: 0,
            rewritten_at_ms: None,
            notes: None,
        })
    }

    /// Goes on with what stands under this lease; 0 for nothing.
    pub(super) fn with_lease(self, lease: i64) -> Self {
        Self { lease, ..self }
    }

    /// Goes on until it is told to end, and then until there are no news left.
    pub(super) async fn run(mut self, ends: Arc<AtomicBool>) {
        let mut looked = Instant::now();
        loop {
            let is_last = ends.load(Ordering::Acquire);
            let told = self.tell().await;
            if is_last && !matches!(told, Ok(count) if count > 0) {
                return;
            }
            if told.is_err() {
                self.host.count(PlayerCounts { failures: 1, ..PlayerCounts::default() });
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            if looked.elapsed() >= LOOK_EVERY && !self.players.is_empty() && self.speaks() {
                match self.hear().await {
                    // Notes end with their lease, read or not.
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(_) => {
                        self.host.count(PlayerCounts { failures: 1, ..PlayerCounts::default() });
                    }
                }
                looked = Instant::now();
            }
            // What comes meanwhile is told together.
            let is_full = matches!(told, Ok(count) if count >= AT_A_TIME);
            tokio::time::sleep(if is_full { FULL_PAUSE } else { PAUSE }).await;
        }
    }

    /// Whether what stands there is ours to change: a process that has given the gateway away would
    /// take notes that are for its successor, and release players who have come to that.
    fn speaks(&self) -> bool {
        self.lease != 0 && self.host.lease() == self.lease
    }

    /// Tells the next news. Returns of how many players it was.
    async fn tell(&mut self) -> Result<usize, Error> {
        let lease = self.host.lease();
        if lease == 0 {
            // We are not registered, or not for certain, or no longer ourselves: it waits.
            return Ok(0);
        }
        let history = self.host.rewritten_at_ms();
        let before = std::mem::replace(&mut self.rewritten_at_ms, history);
        if lease != self.lease || history != before {
            // Whatever stood under another lease has ended with it, and another history may have
            // others at its place.
            self.lease = lease;
            self.players.forget_claims();
        }
        if !self.players.has_news() {
            return Ok(0);
        }
        let news = self.players.take_news(AT_A_TIME);
        let count = news.len();
        self.tell_all(news).await.map(|()| count)
    }

    async fn tell_all(&mut self, news: Vec<PlayerNews>) -> Result<(), Error> {
        let mut telling = Decisions::new(self.client.clone());
        telling.ask(news.into_iter().map(|mut it| {
            // Nobody has most of them.
            let step = self.step(&mut it, None);
            self.asked((it, step), 0)
        }));
        let mut outcome = Ok(());
        while let Some((told, answer)) = telling.answered().await {
            if answer.as_ref().is_err_and(Error::is_lease_gone) {
                (self.lease, self.notes) = (0, None);
            }
            let decided = answer.unwrap_or_else(|why| {
                outcome = Err(why);
                Decided::default()
            });
            let next = self.settle(told, &decided);
            let has_notes = next.iter().any(|(_, step)| step.ousts.is_some());
            match if has_notes { self.notes().await } else { Ok(0) } {
                Ok(notes) => telling.ask(next.into_iter().map(|it| self.asked(it, notes))),
                Err(why) => {
                    for (news, _) in &next {
                        self.players.settle(news, PlayerClaimed::Unknown);
                    }
                    outcome = Err(why);
                }
            }
        }
        outcome
    }

    /// What is to be done for a player, where this is found at its key.
    fn step(&self, news: &mut PlayerNews, found: Option<&KeyValue>) -> Step {
        let own = Own { gateway: &self.gateway, instance: &self.instance, lease: self.lease };
        own.step(news, found, self.clock.unix_s())
    }

    /// Takes what was decided. Returns what is to be done where something else stood there.
    fn settle(&self, told: Vec<(PlayerNews, Step)>, decided: &Decided) -> Vec<(PlayerNews, Step)> {
        let mut counts = PlayerCounts::default();
        let mut next = Vec::new();
        for (at, (mut it, mut step)) in told.into_iter().enumerate() {
            let of_it = decided.each.get(at);
            let is_done = of_it.is_some_and(|it| it.held);
            // Where somebody was faster than what was read, or nobody knows: again later.
            let found = of_it.and_then(|it| it.found.first());
            let found = found.filter(|_| !is_done && step.seen == 0 && self.speaks());
            if let Some(found) = found {
                step = self.step(&mut it, Some(found));
                if step.write != Write::Nothing {
                    next.push((it, step));
                    continue;
                }
                counts.ousted_here += u64::from(step.claimed == PlayerClaimed::Theirs);
            } else if is_done {
                counts.claims += u64::from(step.write != Write::Nothing);
                counts.ousted_there += u64::from(step.ousts.is_some());
            } else {
                step.claimed = PlayerClaimed::Unknown;
            }
            self.players.settle(&it, step.claimed);
        }
        self.host.count(counts);
        next
    }

    /// How a step is done, if nothing has changed since it was read, with a note under this lease
    /// for the gateway of an older session.
    fn asked(&self, (it, step): (PlayerNews, Step), notes: i64) -> ((PlayerNews, Step), Txn) {
        let key = self.key(&it.player);
        let mut txn = Txn { or_else: vec![Op::Range(Range::one(key.clone()))], ..Txn::default() };
        txn.when.push(match step.seen {
            0 => Compare::Absent(key.clone()),
            revision => Compare::Unchanged(key.clone(), revision),
        });
        txn.then.extend(match &step.write {
            Write::Put(value) => {
                Some(Op::Put(Put { key, value: value.clone(), lease: self.lease }))
            }
            Write::Delete => Some(Op::Delete(Delete { key, end: Bytes::new() })),
            Write::Nothing => None,
        });
        let note = step.ousts.as_ref().and_then(|(instance, ousted)| {
            let group = Name::new(&it.player.group)?;
            let place = Place::Ousted(instance.clone(), group, it.player.client_id);
            let (key, value) = (self.keyspace.key(&place), ousted.encode().ok()?);
            Some(Op::Put(Put { key, value, lease: notes }))
        });
        txn.then.extend(note);
        ((it, step), txn)
    }

    /// The lease of notes that tell other gateways that a session of theirs is to end.
    async fn notes(&mut self) -> Result<i64, Error> {
        if let Some((lease, until)) = self.notes
            && Instant::now() < until
        {
            return Ok(lease);
        }
        let lease = self.client.grant(NOTE_S).await?.id;
        self.notes = Some((lease, Instant::now() + NOTE_LEASE_USED));
        Ok(lease)
    }

    /// Looks for notes of other gateways. Whether there may be more.
    async fn hear(&self) -> Result<bool, Error> {
        let range =
            Range { limit: NOTES_MAX, ..Range::prefix(&self.keyspace.ousted(&self.instance)) };
        let found = self.client.range(&range).await?;
        if !self.speaks() {
            // They are for the successor, and what stands there by now it has found itself.
            return Ok(false);
        }
        let ousted_here = found.kvs.iter().filter(|note| self.obey(note)).count() as u64;
        self.host.count(PlayerCounts { ousted_here, ..PlayerCounts::default() });
        let mut removing = Decisions::new(self.client.clone());
        // Where a newer note has come meanwhile, it stays.
        let remove = |note: KeyValue| ((), Txn::remove(note.key, note.mod_revision));
        removing.ask(found.kvs.into_iter().map(remove));
        while let Some((_, answer)) = removing.answered().await {
            answer?;
        }
        Ok(found.more)
    }

    /// Whether the note has ended a session of ours.
    fn obey(&self, note: &KeyValue) -> bool {
        let place = self.keyspace.place(&note.key);
        let Some(Place::Ousted(_, group, client_id)) = place else { return false };
        let Ok(ousted) = Ousted::decode(&note.value) else { return false };
        let Some(session) = SessionId::from_u64(ousted.session) else { return false };
        let player = FleetPlayer { group: Arc::from(group.as_str()), client_id };
        let is_ours = self.players.oust(&player, session);
        if is_ours {
            tracing::info!(
                event = "fleet_newer_login",
                client_id,
                gateway = ousted.gateway,
                "player {client_id} has logged in at {}: its session here ends",
                ousted.gateway
            );
        }
        is_ours
    }

    fn key(&self, player: &FleetPlayer) -> Bytes {
        // A listener's group is a name: the config has made sure of it.
        let group = Name::new(&player.group).unwrap_or_else(|| self.gateway.clone());
        self.keyspace.key(&Place::Player(group, player.client_id))
    }
}

/// What tells our claims from others'.
struct Own<'a> {
    gateway: &'a Name,
    instance: &'a Name,
    lease: i64,
}

/// What is to be done for a player.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    /// The revision of what stands at the key; 0 for nothing.
    seen: i64,
    write: Write,
    /// Whose older session it is that ends.
    ousts: Option<(Name, Ousted)>,
    /// What has come of it when that is done.
    claimed: PlayerClaimed,
}

/// What is to be done to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    /// It stays as it is.
    Nothing,
    /// This is to stand there.
    Put(Bytes),
    /// It is to go.
    Delete,
}

impl Own<'_> {
    /// A moment that is not known here is filled in, where etcd knows it.
    fn step(&self, news: &mut PlayerNews, found: Option<&KeyValue>, now_s: u64) -> Step {
        let seen = found.map_or(0, |kv| kv.mod_revision);
        // What cannot be read is nobody's.
        let known = found.and_then(|kv| PlayerClaim::decode(&kv.value).ok());
        let is_ours = known.as_ref().is_some_and(|it| it.instance == self.instance.as_str());
        let done = |claimed| Step { seen, write: Write::Nothing, ousts: None, claimed };
        let Some(session) = news.session else {
            let write = if is_ours { Write::Delete } else { Write::Nothing };
            return Step { write, ..done(PlayerClaimed::Released) };
        };
        let of_it = known.as_ref().filter(|it| is_ours && it.session == session.as_u64());
        if let Some(known) = of_it.filter(|_| news.since_s == 0) {
            // A process before this one has begun it.
            news.since_s = known.since;
        }
        let is_it = of_it.is_some_and(|known| known.since == news.since_s);
        if is_it && found.is_some_and(|kv| kv.lease == self.lease) {
            return done(PlayerClaimed::Ours);
        }
        let others = known.filter(|_| !is_ours);
        // The same session is in another term where it has gone to another gateway of its cluster,
        // and nobody has logged in. The later term has it, and the arbiter tells the one before.
        let is_same = |other: &PlayerClaim| {
            let is_clustered = news.term > 0 && other.term != Some(0);
            is_clustered && other.term != Some(news.term) && other.since == news.since_s
        };
        let same = others.as_ref().filter(|it| is_same(it)).map(|it| it.term);
        if same.flatten().is_some_and(|term| term > news.term) {
            return done(PlayerClaimed::Released);
        }
        let others = others.filter(|_| same.is_none());
        let is_late = now_s.saturating_sub(news.since_s) > LATE_S;
        let is_newer = |other: &PlayerClaim| {
            if news.is_told_again {
                other.since >= news.since_s
            } else {
                is_late && other.since > news.since_s
            }
        };
        if others.as_ref().is_some_and(is_newer) {
            return done(PlayerClaimed::Theirs);
        }
        let claim = PlayerClaim {
            gateway: self.gateway.to_string(),
            instance: self.instance.to_string(),
            session: session.as_u64(),
            since: news.since_s,
            term: Some(news.term),
        };
        let Ok(value) = claim.encode() else { return done(PlayerClaimed::Ours) };
        let ousts = others.and_then(|other| {
            let ousted = Ousted { session: other.session, gateway: self.gateway.to_string() };
            Some((Name::new(&other.instance)?, ousted))
        });
        Step { write: Write::Put(value), ousts, ..done(PlayerClaimed::Ours) }
    }
}

/// Some transactions of players.
const AT_A_TIME: usize = 800;
/// Between two times that players are told, and where the last one was full.
const PAUSE: Duration = Duration::from_millis(200);
const FULL_PAUSE: Duration = Duration::from_millis(20);
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How often notes of other gateways are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const NOTES_MAX: i64 = 800;
/// How long a note stands for a gateway that does not read it, in seconds, and for how long new
/// ones are written under the same lease.
const NOTE_S: i64 = 120;
const NOTE_LEASE_USED: Duration = Duration::from_mins(1);
/// A login that is told within this time is newer than everything that stands in etcd, whatever the
/// clocks of others say.
const LATE_S: u64 = 5;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ringgate_fleet::etcd::{Endpoint, Options};

    use super::*;

    const NOW_S: u64 = 1_000;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn news(session: Option<u64>, since_s: u64) -> PlayerNews {
        let player = FleetPlayer { group: Arc::from("arena"), client_id: 7 };
        let session = session.and_then(SessionId::from_u64);
        PlayerNews { player, session, since_s, term: 0, is_told_again: false }
    }

    fn claim(instance: &str, session: u64, since: u64) -> PlayerClaim {
        let (gateway, instance) = ("gate-1".to_owned(), instance.to_owned());
        PlayerClaim { gateway, instance, session, since, term: Some(0) }
    }

    fn found(claim: &PlayerClaim, lease: i64) -> KeyValue {
        let value = claim.encode().expect("it can be read again");
        KeyValue { value, lease, mod_revision: 9, ..KeyValue::default() }
    }

    fn step(news: &PlayerNews, found: Option<&KeyValue>) -> Step {
        let (gateway, instance) = (name("gate-1"), name("own"));
        let own = Own { gateway: &gateway, instance: &instance, lease: 5 };
        own.step(&mut news.clone(), found, NOW_S)
    }

    #[test]
    fn who_logs_in_is_written_and_nobody_ousted_where_nobody_was() {
        let step = step(&news(Some(3), NOW_S), None);
        let value = claim("own", 3, NOW_S).encode().expect("a value");
        assert_eq!((step.seen, step.write, step.ousts), (0, Write::Put(value), None));
        assert_eq!(step.claimed, PlayerClaimed::Ours);
    }

    #[test]
    fn the_newer_login_wins_whatever_the_others_clock_says() {
        for since in [0, NOW_S - 1, NOW_S + 60] {
            let step = step(&news(Some(3), NOW_S), Some(&found(&claim("other", 8, since), 4)));
            let (instance, ousted) = step.ousts.expect("somebody ends");
            assert_eq!((instance.as_str(), ousted.session), ("other", 8));
            assert_eq!((step.seen, step.claimed), (9, PlayerClaimed::Ours));
        }
    }

    #[test]
    fn what_could_not_be_told_in_time_gives_way_to_what_began_later() {
        let late = news(Some(3), NOW_S - 60);
        let before = step(&late, Some(&found(&claim("other", 8, NOW_S - 61), 4)));
        assert!(before.ousts.is_some());
        let behind = step(&late, Some(&found(&claim("other", 8, NOW_S - 59), 4)));
        assert_eq!((behind.write, behind.claimed), (Write::Nothing, PlayerClaimed::Theirs));
    }

    #[test]
    fn what_was_told_before_gives_way_to_whoever_has_come_since() {
        let again = PlayerNews { is_told_again: true, ..news(Some(3), NOW_S - 1) };
        let behind = step(&again, Some(&found(&claim("other", 8, NOW_S - 1), 4)));
        assert_eq!((behind.write, behind.claimed), (Write::Nothing, PlayerClaimed::Theirs));
        assert!(step(&again, Some(&found(&claim("other", 8, NOW_S - 2), 4))).ousts.is_some());
    }

    #[test]
    fn a_session_that_goes_on_at_another_gateway_is_no_newer_login() {
        let in_term = |term| PlayerNews { term, is_told_again: true, ..news(Some(3), NOW_S - 60) };
        let had = |term, since| found(&PlayerClaim { term, ..claim("other", 8, since) }, 4);
        // Of an earlier release the term is not known.
        for term in [None, Some(1)] {
            let taken = step(&in_term(2), Some(&had(term, NOW_S - 60)));
            assert!(matches!(taken.write, Write::Put(_)) && taken.ousts.is_none());
            assert_eq!(taken.claimed, PlayerClaimed::Ours);
        }
        // Who has had it claims it again, and does not know.
        let lost = step(&in_term(1), Some(&had(Some(2), NOW_S - 60)));
        assert_eq!((lost.write, lost.claimed), (Write::Nothing, PlayerClaimed::Released));
        // Another session of its player is newer or older.
        for term in [None, Some(0), Some(1), Some(2), Some(3)] {
            let newer = step(&in_term(2), Some(&had(term, NOW_S - 1)));
            assert_eq!((newer.write, newer.claimed), (Write::Nothing, PlayerClaimed::Theirs));
            assert!(step(&in_term(2), Some(&had(term, NOW_S - 61))).ousts.is_some());
        }
        for term in [0, 1] {
            let beside = step(&in_term(1), Some(&had(Some(term), NOW_S - 60)));
            assert_eq!(beside.claimed, PlayerClaimed::Theirs, "two of one second");
        }
        let fresh = PlayerNews { term: 1, ..news(Some(3), NOW_S) };
        let beside = step(&fresh, Some(&had(Some(0), NOW_S)));
        assert!(beside.ousts.is_some(), "that one is no cluster's");
    }

    #[test]
    fn when_a_session_of_a_process_before_has_begun_etcd_says() {
        let mut carried = PlayerNews { is_told_again: true, ..news(Some(3), 0) };
        let (gateway, instance) = (name("gate-1"), name("own"));
        let own = Own { gateway: &gateway, instance: &instance, lease: 5 };
        let mut step =
            |found: &KeyValue| (own.step(&mut carried, Some(found), NOW_S), carried.since_s);
        let (known, since_s) = step(&found(&claim("own", 3, NOW_S - 60), 5));
        assert_eq!(
            (known.write, known.claimed, since_s),
            (Write::Nothing, PlayerClaimed::Ours, NOW_S - 60)
        );
        // In another history its player is where it was before.
        let (again, _) = step(&found(&claim("other", 8, NOW_S - 61), 4));
        assert!(again.ousts.is_some() && again.claimed == PlayerClaimed::Ours);
    }

    /// A gateway whose lease lasts, and whose etcd answers nothing.
    struct Alone(Arc<Mutex<Option<u64>>>);

    impl Host for Alone {
        fn lease(&self) -> i64 {
            5
        }
        fn rewritten_at_ms(&self) -> Option<u64> {
            *self.0.lock().expect("nobody panics")
        }
        fn count(&self, _: PlayerCounts) {}
    }

    #[test]
    fn what_stands_there_already_is_not_written_again_but_under_another_lease() {
        let news = news(Some(3), NOW_S - 60);
        let own = claim("own", 3, NOW_S - 60);
        assert_eq!(step(&news, Some(&found(&own, 5))).write, Write::Nothing);
        assert!(matches!(step(&news, Some(&found(&own, 4))).write, Write::Put(_)));
    }

    #[test]
    fn a_player_who_leaves_is_released_unless_it_is_elsewhere() {
        let left = news(None, NOW_S);
        assert_eq!(step(&left, Some(&found(&claim("own", 3, 0), 5))).write, Write::Delete);
        for found in [None, Some(found(&claim("other", 3, 0), 4))] {
            let step = step(&left, found.as_ref());
            assert_eq!((step.write, step.claimed), (Write::Nothing, PlayerClaimed::Released));
        }
    }

    #[test]
    fn what_cannot_be_read_is_overwritten() {
        let odd =
            KeyValue { value: Bytes::from_static(b"{"), mod_revision: 9, ..KeyValue::default() };
        let step = step(&news(Some(3), NOW_S), Some(&odd));
        assert!(matches!(step.write, Write::Put(_)) && step.ousts.is_none());
    }

    #[tokio::test]
    async fn in_another_history_everybody_is_claimed_again() {
        let endpoint = Endpoint::parse("http://127.0.0.1:1").expect("an endpoint");
        let client = Client::new(Options::new(vec![endpoint])).expect("sound");
        let players = Arc::new(FleetPlayers::new(4));
        let at_ms = Arc::new(Mutex::new(None));
        let host = Alone(Arc::clone(&at_ms));
        let mut claimer = PlayerClaimer {
            client,
            clock: ringgate_fleet::clocks::of_host(),
            keyspace: Keyspace::new("/f").expect("a prefix"),
            players: Arc::clone(&players),
            gateway: name("gate-1"),
            instance: name("own"),
            host,
            lease: 5,
            rewritten_at_ms: None,
            notes: None,
        };
        // Of whom etcd knows something that is to be taken back.
        players.go_on_with_left([FleetPlayer { group: Arc::from("arena"), client_id: 7 }]);
        assert!(claimer.tell().await.is_err(), "nobody answers");
        *at_ms.lock().expect("nobody panics") = Some(1);
        let _ = claimer.tell().await;
        assert!(players.is_empty(), "what etcd has known is nothing any more");
    }
}

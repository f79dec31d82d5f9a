//! How a process stands with its fleet. What becomes otherwise is told in the log, in the same
//! words by every role.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::copies::Copies;
use super::own::Doubted;
use crate::etcd::kv::Header;
use crate::lease::{Handed, Registration, Standing};
use crate::mirror::{self, Change, Machine, Truth};

/// What is shown of it.
#[derive(Clone, Debug, Default)]
pub struct MemberStatus {
    /// What it is called there.
    pub name: String,
    /// Which etcd it speaks with.
    pub etcd: String,
    /// The mirror.
    pub mirror: mirror::Status,
    /// Which history is known, and up to where.
    pub known: Header,
    /// Keys that are known.
    pub keys: usize,
    /// Since when what is known may be out of date, on the process's clock.
    pub away_since_ms: Option<u64>,
    /// Now, on that clock.
    pub now_ms: u64,
    /// Whether it is registered, under a lease that lives for certain.
    pub is_registered: bool,
    /// Whether another process has its name.
    pub is_name_taken: bool,
    /// The lease of a registration that stands; 0 for none.
    pub lease: i64,
    /// Leases that have ended while it lived.
    pub leases_lost: u64,
    /// What went wrong with the registration last.
    pub lease_error: Option<String>,
    /// Whether etcd takes no writes for want of space.
    pub lacks_space: bool,
    /// Copies that were written, and that could not be.
    pub copies: [u64; 2],
}

impl MemberStatus {
    /// Whether what is known is up to date.
    pub const fn is_current(&self) -> bool {
        self.away_since_ms.is_none()
    }

    /// How long what is known may have been out of date.
    pub fn away_s(&self) -> Option<u64> {
        self.away_since_ms.map(|since_ms| self.now_ms.saturating_sub(since_ms) / 1000)
    }

    /// The number of what is held back; 0 for nothing.
    pub fn doubt(&self) -> u64 {
        self.mirror.doubt.as_ref().map_or(0, |(number, _)| *number)
    }

    /// What is wrong between it and etcd.
    pub fn last_error(&self) -> Option<&str> {
        let mirror_error = self.mirror.last_error.as_deref().filter(|_| !self.is_current());
        mirror_error.or_else(|| self.lease_error.as_deref().filter(|_| !self.is_registered))
    }

    /// Whether etcd may say whose something is, by an answer with this header where there is one.
    /// Of another history that is believed the others have first to claim again what is theirs.
    pub fn trusts(&self, told: Option<&Header>) -> bool {
        let seen_ms = self.mirror.rewritten_at_ms;
        let is_claimed = seen_ms.is_none_or(|it| self.now_ms >= it + CLAIMED_AGAIN_MS);
        is_claimed && self.mirror.trusts(&self.known, told)
    }

    /// What is held back, and what etcd or the process has no room for: a line for each.
    pub fn limits(&self) -> String {
        let doubt = self
            .mirror
            .doubt
            .as_ref()
            .map(|(number, why)| format!("fleet: held back under number {number}: {why}\n"));
        let space =
            self.lacks_space.then_some("fleet: etcd takes no writes, it has no space left\n");
        let left_out = self.mirror.bans_left_out;
        let bans = (left_out > 0)
            .then(|| format!("fleet: {left_out} bans are not obeyed, there are too many\n"));
        [doubt, space.map(str::to_owned), bans].into_iter().flatten().collect()
    }

    /// All that an operator should know, as long as it is so: a line for each.
    pub fn troubles(&self) -> String {
        let away = self.away_s().map(|away_s| {
            format!("fleet: what is known may be {away_s} s old; serving on with it\n")
        });
        let unregistered = (!self.is_registered).then_some("fleet: not registered\n");
        [&away.unwrap_or_default(), &self.limits(), unregistered.unwrap_or_default()].concat()
    }
}

/// What is shown, and what goes to the next process and to disk.
#[derive(Debug)]
pub struct MemberState {
    /// What is shown.
    pub status: MemberStatus,
    /// What a successor goes on with.
    pub handed: Handed,
    /// When the copy is written.
    pub copies: Copies,
    own: Bytes,
    /// Which keys of its registration have to be looked at.
    pub(super) in_doubt: BTreeSet<Bytes>,
    is_told_away: bool,
    lost_before: u64,
}

impl MemberState {
    /// A process that begins with this truth, whose own key is `own`.
    pub(super) fn new(status: MemberStatus, own: &Bytes, truth: &Truth) -> Self {
        let (known, keys) = (truth.header(), truth.entries.len());
        Self {
            status: MemberStatus { known, keys, away_since_ms: Some(0), ..status },
            handed: Handed::default(),
            copies: Copies::default(),
            own: own.clone(),
            in_doubt: BTreeSet::new(),
            is_told_away: false,
            lost_before: 0,
        }
    }

    /// Goes on with what a process before this one knew until now, and what that is a measure of.
    pub const fn remember(&mut self, now_ms: u64) {
        self.status.mirror.agreed_at_ms = Some(now_ms);
    }

    /// Whether a successor that knows the same does that.
    pub fn remembers(&self) -> bool {
        self.status.mirror.remembers(self.status.now_ms, mirror::MEMORY_MS)
    }

    /// Goes on with what a process before this one has counted.
    pub const fn count_on(&mut self, leases_lost: u64, copies: [u64; 2]) {
        (self.status.leases_lost, self.lost_before) = (leases_lost, leases_lost);
        self.status.copies = copies;
    }

    /// What is known, or how, has become otherwise.
    pub fn see(&mut self, now_ms: u64, machine: &Machine, changes: &[Change]) {
        let truth = machine.truth();
        (self.status.known, self.status.keys) = (truth.header(), truth.entries.len());
        let gone = changes.iter().filter(|it| it.value.is_none()).map(|it| &it.key);
        let its = gone.filter(|key| **key == self.own || self.handed.keys.contains(key));
        self.in_doubt.extend(its.cloned());
        self.see_mirror(now_ms, machine.status());
    }

    fn see_mirror(&mut self, now_ms: u64, now: &mirror::Status) {
        let status = &mut self.status;
        if now.is_current {
            self.is_told_away = false;
            if let Some(since_ms) = status.away_since_ms.take() {
                let away_ms = now_ms.saturating_sub(since_ms);
                tracing::info!(
                    event = "fleet_current",
                    away_ms,
                    "what is known of the fleet is up to date, after {away_ms} ms"
                );
            }
        } else {
            let was_current = status.is_current();
            status.away_since_ms.get_or_insert(now_ms);
            let is_news = was_current || now.last_error.is_some();
            if is_news && !std::mem::replace(&mut self.is_told_away, true) {
                let why = now.last_error.as_deref().unwrap_or("what it says is in doubt");
                tracing::warn!(
                    event = "fleet_away",
                    why,
                    "what is known of the fleet may be out of date: etcd at {}: {why}; serving on with it",
                    status.etcd
                );
            }
        }
        let before = std::mem::replace(&mut status.mirror, now.clone());
        tell_doubt(&before, now);
        if before.rewritten_at_ms != now.rewritten_at_ms {
            // An older value of each may stand there.
            self.doubt_all();
        }
    }

    /// Something may have become otherwise with the registration.
    pub fn see_registration(&mut self, now_ms: u64, registration: &Registration) {
        let status = &mut self.status;
        let is_registered = registration.stands(&self.own, now_ms);
        let standing = registration.standing(&self.own);
        let is_name_taken = matches!(standing, Some(Standing::Taken { .. }));
        let name = &status.name;
        if is_registered && !status.is_registered {
            tracing::info!(event = "fleet_registered", name, "registered in the fleet");
        }
        if is_name_taken && !status.is_name_taken {
            tracing::error!(
                event = "fleet_name_taken",
                name,
                "another process of the fleet is called {name}; give each a name of its own"
            );
        }
        (status.is_registered, status.is_name_taken) = (is_registered, is_name_taken);
        status.lease = if is_registered { registration.lease_id() } else { 0 };
        status.leases_lost = self.lost_before + registration.lost();
        status.lease_error = registration.last_error().map(str::to_owned);
        tell_space(&mut status.lacks_space, registration.lacks_space());
        self.handed = registration.handed();
    }

    /// What others are told that it holds back.
    pub fn doubted(&self) -> Doubted {
        Doubted { number: self.status.doubt(), held: self.status.mirror.held() }
    }

    /// Something else stands at its own key than what it has written.
    pub fn doubt_own(&mut self) {
        self.in_doubt.insert(self.own.clone());
    }

    /// The same may be so of all that it has registered.
    pub fn doubt_all(&mut self) {
        self.in_doubt.extend(self.handed.keys.iter().cloned());
    }
}

/// Whether etcd has taken the last write, and the one before.
fn tell_space(before: &mut bool, lacks: bool) {
    match (std::mem::replace(before, lacks), lacks) {
        (false, true) => tracing::error!(
            event = "fleet_no_space",
            "etcd takes no writes: it has no space left (compact and defragment it, then `etcdctl alarm disarm`)"
        ),
        (true, false) => tracing::info!(event = "fleet_space", "etcd takes writes again"),
        _ => {}
    }
}

/// What is held back, and what was before.
fn tell_doubt(before: &mirror::Status, now: &mirror::Status) {
    let number = |status: &mirror::Status| status.doubt.as_ref().map(|(number, _)| *number);
    match &now.doubt {
        Some((doubt, why)) if number(before) != Some(*doubt) => {
            tracing::error!(
                event = "fleet_doubt",
                doubt,
                why = %why,
                "news of the fleet is held back: {why}; `ringgate fleet confirm {doubt}` here or `ringgate fleet confirm --all` has it believed"
            );
        }
        None if before.doubt.is_some() => {
            tracing::info!(event = "fleet_doubt_over", "news of the fleet is believed again");
        }
        _ => {}
    }
}

/// How long gateways have to see another history and to claim there what is theirs.
const CLAIMED_AGAIN_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::{Options, Reads};

    const OWN: &[u8] = b"/f/truth/agent/host-7";

    fn state() -> MemberState {
        MemberState::new(MemberStatus::default(), &OWN.into(), &Truth::default())
    }

    #[test]
    fn the_held_lease_is_the_first_and_what_was_lost_before_is_counted_on() {
        let mut state = state();
        state.count_on(3, [1, 2]);
        state.see_registration(0, &Registration::new(10, 1));
        assert!(!state.status.is_registered);
        assert_eq!((state.status.leases_lost, state.status.copies), (3, [1, 2]));
        let handed = Handed { lease: 9, former: vec![5, 7], ..Handed::default() };
        state.see_registration(0, &Registration::adopt(10, 1, handed));
        assert_eq!((state.status.leases_lost, state.handed.leases()), (3, vec![9, 7, 5]));
        assert_eq!(Handed::of_leases(vec![9, 7, 5]).leases(), [9, 7, 5]);
    }

    #[test]
    fn an_etcd_that_does_not_answer_is_told_once_from_the_first_look_on() {
        let mut state = state();
        let mirror = |is_current, error: Option<&str>| mirror::Status {
            is_current,
            last_error: error.map(str::to_owned),
            ..mirror::Status::default()
        };
        state.see_mirror(5, &mirror(false, None));
        assert!(!state.is_told_away && state.status.away_s() == Some(0), "it has just begun");
        state.see_mirror(6, &mirror(false, Some("refused")));
        assert!(state.is_told_away && state.status.last_error() == Some("refused"));
        state.see_mirror(7, &mirror(true, Some("refused")));
        assert!(state.status.is_current() && !state.is_told_away);
        assert_eq!(state.status.last_error(), None, "that was before");
        state.see_mirror(2_008, &mirror(false, None));
        state.status.now_ms = 5_007;
        assert!(state.is_told_away && state.status.away_s() == Some(2));
    }

    #[test]
    fn whose_something_is_another_history_says_when_all_have_claimed_again_what_is_theirs() {
        let trusts = |rewritten_at_ms, now_ms| {
            let mirror = mirror::Status { is_current: true, rewritten_at_ms, ..Default::default() };
            MemberStatus { mirror, now_ms, ..MemberStatus::default() }.trusts(None)
        };
        assert!(trusts(None, 0));
        assert_eq!(
            [5_000, 14_999, 15_000].map(|now| trusts(Some(5_000), now)),
            [false, false, true]
        );
    }

    #[test]
    fn its_own_key_is_looked_at_where_it_is_gone() {
        let mut state = state();
        let options = Options::new("/f/truth/", Reads::default(), 1);
        let machine = Machine::new(options, Truth::default());
        let change = |key: &'static [u8], value: Option<&'static str>| Change {
            key: key.into(),
            value: value.map(Into::into),
            revision: None,
        };
        state.see(0, &machine, &[change(OWN, Some("{}")), change(b"/f/truth/agent/x", None)]);
        assert!(state.in_doubt.is_empty());
        state.see(0, &machine, &[change(OWN, None)]);
        assert_eq!(std::mem::take(&mut state.in_doubt), [OWN.into()].into());
        state.handed.keys.push(b"/f/truth/backend/arena".as_slice().into());
        let gone = change(b"/f/truth/backend/arena", None);
        state.see(0, &machine, &[gone.clone(), change(b"/f/truth/backend/other", None)]);
        assert_eq!(state.in_doubt, [gone.key].into(), "what is registered besides");
        // Where nothing of it is mirrored, all of it is looked at, its own key first.
        state.handed.keys.push(OWN.into());
        state.doubt_all();
        assert!(state.in_doubt.len() == 2 && state.in_doubt.first() == Some(&OWN.into()));
        // So it is where etcd tells another history.
        state.in_doubt.clear();
        let rewritten = mirror::Status { rewritten_at_ms: Some(7), ..Default::default() };
        state.see_mirror(7, &rewritten);
        assert_eq!(std::mem::take(&mut state.in_doubt).len(), 2);
        state.see_mirror(8, &rewritten);
        assert!(state.in_doubt.is_empty());
    }
}

//! What members tell each other: who has come and gone, and who stands by for whom.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::{GATES, Plays, SILENT, State, World};
use crate::ids::{BindId, MemberId};
use crate::mail::{Mail, Offered};
use crate::shared::whereabouts::PARTS;
use crate::store::table::Address;
use ringgate_batch::LocalIp;
use ringgate_cluster::{Record, SessionId, appoint};

impl<P: Plays> World<P> {
    /// Members say who has come and gone, and notice who is silent.
    pub(super) fn meet(&mut self) {
        let now_ns = self.gates[0].rigs[0].now.mono_ns;
        for at in 0..GATES {
            for other in (0..GATES).filter(|other| *other != at) {
                if !self.is_up(at) {
                    continue;
                }
                let member = MemberId(other as u8);
                if !self.hears(at, other) {
                    let since = *self.silent_since[at][other].get_or_insert(self.step);
                    if self.step >= since + SILENT && !self.is_gone[at][other] {
                        self.is_gone[at][other] = true;
                        self.standbys_of(at).set_gone(member, now_ns);
                        self.forget(at, other);
                        self.met[at][other] = None;
                    }
                    continue;
                }
                self.silent_since[at][other] = None;
                let theirs = self.whereabouts_of(other);
                let known = self.met[at][other].replace(Arc::clone(&theirs));
                let is_same = known.as_ref().is_some_and(|it| Arc::ptr_eq(it, &theirs));
                if std::mem::take(&mut self.is_gone[at][other]) && self.is_same_process(at, other) {
                    self.standbys_of(at).set_back(member, self.incarnations[other]);
                }
                if !is_same {
                    self.forget(at, other);
                    let own = self.whereabouts_of(at);
                    for address in (0..PARTS).flat_map(|part| theirs.own_part(part)) {
                        assert!(own.learn(&address, member, now_ns).is_ok());
                    }
                }
            }
        }
        for at in (0..GATES).filter(|at| matches!(self.states[*at], State::Up)) {
            let mut unheard = BTreeSet::new();
            self.whereabouts_of(at).take_changes(usize::MAX, |address, news| {
                for other in (0..GATES).filter(|it| *it != at) {
                    if !self.hears(at, other) {
                        unheard.insert(other);
                        continue;
                    }
                    let (theirs, member) = (self.whereabouts_of(other), MemberId(at as u8));
                    if news.is_here() {
                        assert!(theirs.learn(&address, member, now_ns).is_ok());
                    } else {
                        theirs.unlearn(&address, member);
                    }
                }
            });
            // They meet anew, and are told all.
            for other in unheard {
                self.met[other][at] = None;
            }
            self.standbys_of(at).expire(now_ns);
        }
        self.know_stands();
    }

    /// A gateway forgets all that a member has said.
    fn forget(&mut self, at: usize, other: usize) {
        self.whereabouts_of(at).forget(MemberId(other as u8));
        self.stands[at].retain(|it| it.1 != other);
    }

    /// Whether the process of a member is the one that has given another one its records.
    fn is_same_process(&self, at: usize, other: usize) -> bool {
        self.appointed[other].values().any(|(standby, _)| *standby == at)
    }

    /// A datagram whose owner is gone goes to the standby.
    fn know_stands(&mut self) {
        let now_ns = self.gates[0].rigs[0].now.mono_ns;
        for at in (0..GATES).filter(|at| matches!(self.states[*at], State::Up)) {
            let whereabouts = self.whereabouts_of(at);
            for other in 0..GATES {
                let stands: HashSet<Address> = if other != at && self.hears(at, other) {
                    let theirs = self.standbys_of(other);
                    (0..PARTS).flat_map(|part| theirs.stands_part(part)).collect()
                } else {
                    HashSet::new()
                };
                let gone = |it: &(Address, usize)| it.1 == other && !stands.contains(&it.0);
                let member = MemberId(other as u8);
                for (address, _) in self.stands[at].extract_if(|it| gone(it)) {
                    whereabouts.unlearn_stands(&address, member);
                }
                for address in stands {
                    if self.stands[at].insert((address, other)) {
                        assert!(whereabouts.learn_stands(&address, member, now_ns).is_ok());
                    }
                }
            }
        }
    }

    /// Each gives what it has to those that stand by for it, or are to have it.
    pub(super) fn stand_by(&mut self) {
        for at in 0..GATES {
            if !self.is_up(at) {
                continue;
            }
            let own = self.standbys_of(at);
            let others = (0..GATES).filter(|it| *it != at && self.hears(at, *it));
            let there: Vec<_> = others.collect();
            let is_able = |it: &&usize| !self.standbys_of(**it).is_leaving();
            let able = there.iter().filter(is_able);
            let able: Vec<_> =
                able.map(|it| (self.incarnations[*it], MemberId(*it as u8))).collect();
            if self.able[at] != able {
                self.appointed[at].retain(|_, (standby, _)| there.contains(standby));
                own.set_able(able.clone());
                own.renew();
                self.able[at] = able;
            } else if self.leaves[at] && self.step.is_multiple_of(100) {
                own.renew();
            }
            let mut changed = Vec::new();
            own.take_changes(usize::MAX, |session, kept| {
                let kept = kept.map(|it| (it.address, it.record.clone(), it.offered_to));
                changed.push((session, kept));
            });
            for (session, kept) in changed {
                self.hand_on(at, session, kept);
            }
        }
    }

    fn hand_on(
        &mut self,
        at: usize,
        session: SessionId,
        kept: Option<(Address, Record, Option<MemberId>)>,
    ) {
        let now_ns = self.gates[0].rigs[0].now.mono_ns;
        let us = MemberId(at as u8);
        let able = self.able[at].iter();
        let chosen = appoint(session, self.incarnations[at], able.map(|it| it.0));
        let offered_to = kept.as_ref().and_then(|it| it.2);
        let preferred = self.able[at].iter().find(|it| Some(it.1) == offered_to);
        let to = preferred.or_else(|| self.able[at].iter().find(|it| Some(it.0) == chosen));
        let to = to.filter(|_| kept.is_some()).map(|it| usize::from(it.1.0));
        let before = match to.zip(kept.as_ref()) {
            Some((to, (_, record, _))) => self.appointed[at].insert(session, (to, record.revision)),
            None => self.appointed[at].remove(&session),
        };
        if let Some((before, _)) = before.filter(|it| Some(it.0) != to)
            && self.hears(before, at)
        {
            self.standbys_of(before).stand_down(us, session, now_ns);
        }
        let Some((to, (address, record, offered_to))) = to.zip(kept) else { return };
        let theirs = self.standbys_of(to);
        if before != Some((to, record.revision)) {
            assert!(theirs.stand_by(us, address, record).is_ok());
        }
        let is_coming = offered_to == Some(MemberId(to as u8));
        if !is_coming && !self.leaves[at] {
            return;
        }
        if let Some((address, _)) = theirs.hear_offer(us, session).filter(|_| !is_coming) {
            let claims = self.claims_of(to);
            let takers = claims.takers(&address, false, self.gates[to].rigs.len() as u16);
            for worker in takers.iter() {
                let (bind, local) = (BindId(0), LocalIp::UNSPECIFIED);
                let rig = &mut self.gates[to].rigs[worker.index()];
                rig.mail(Mail::Offered(Offered { address, bind, local }));
                rig.turn();
            }
        }
    }
}

//! One worker's sessions by address: what a packet from a new port of it may be one of.
//!
//! A list runs through the sessions of each bucket of addresses, the latest in front, so that to
//! enter and to leave costs the same however many there are. A bucket may hold several addresses:
//! a search along its list compares them.

use crate::front::netcode::session::Session;
use crate::ids::WorkerId;
use crate::shared::homes::Homes;
use crate::store::entry::Entry;

pub(crate) struct Residents {
    worker: WorkerId,
    /// By bucket: the number of the first session plus one, or 0.
    heads: Vec<u32>,
    /// By the number of a session's entry.
    nodes: Vec<Node>,
}

#[derive(Clone, Copy)]
struct Node {
    /// The neighbours' numbers plus one, or 0.
    previous: u32,
    next: u32,
    /// Or [`NOWHERE`].
    bucket: u32,
}

impl Residents {
    /// Room for so many sessions.
    pub(crate) fn new(worker: WorkerId, homes: &Homes, sessions_max: usize) -> Self {
        let nodes = Vec::with_capacity(sessions_max);
        Self { worker, heads: vec![0; homes.len()], nodes }
    }

    /// A session has come.
    pub(crate) fn enter(&mut self, homes: &Homes, bucket: u32, session: Entry<Session>) {
        let (at, number) = (session.index(), session.number());
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, Node::UNLISTED);
        }
        debug_assert!(self.nodes[at].bucket == NOWHERE, "a session is listed once");
        let head = &mut self.heads[bucket as usize];
        let next = std::mem::replace(head, number + 1);
        self.nodes[at] = Node { previous: 0, next, bucket };
        match next.checked_sub(1) {
            Some(next) => self.nodes[next as usize].previous = number + 1,
            None => homes.enter(bucket, self.worker),
        }
    }

    /// A session has left, if it was listed at all.
    pub(crate) fn leave(&mut self, homes: &Homes, session: Entry<Session>) {
        let Some(node) = self.nodes.get_mut(session.index()) else { return };
        let Node { previous, next, bucket } = std::mem::replace(node, Node::UNLISTED);
        if bucket == NOWHERE {
            return;
        }
        if let Some(next) = next.checked_sub(1) {
            self.nodes[next as usize].previous = previous;
        }
        match previous.checked_sub(1) {
            Some(previous) => self.nodes[previous as usize].next = next,
            None => self.heads[bucket as usize] = next,
        }
        if self.heads[bucket as usize] == 0 {
            homes.leave(bucket, self.worker);
        }
    }

    /// The sessions of a bucket, from its front.
    pub(crate) fn of(&self, bucket: u32) -> impl Iterator<Item = Entry<Session>> + '_ {
        self.from(self.heads[bucket as usize])
    }

    /// The sessions of a bucket behind the `last` that was looked at, or all where that one has
    /// left or there is none.
    pub(crate) fn behind(
        &self,
        bucket: u32,
        last: Option<Entry<Session>>,
    ) -> impl Iterator<Item = Entry<Session>> + '_ {
        let node = last.and_then(|last| self.nodes.get(last.index()));
        let node = node.filter(|node| node.bucket == bucket);
        self.from(node.map_or(self.heads[bucket as usize], |node| node.next))
    }

    fn from(&self, first: u32) -> impl Iterator<Item = Entry<Session>> + '_ {
        let next = |at: &u32| self.nodes[*at as usize].next.checked_sub(1);
        std::iter::successors(first.checked_sub(1), next).map(Entry::numbered)
    }
}

impl Node {
    const UNLISTED: Self = Self { previous: 0, next: 0, bucket: NOWHERE };
}

const NOWHERE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::hash::HashKey;
    use proptest::prelude::*;

    fn numbers(sessions: impl Iterator<Item = Entry<Session>>) -> Vec<u32> {
        sessions.map(Entry::number).collect()
    }

    proptest! {
        #[test]
        fn agrees_with_lists(steps in prop::collection::vec((0u32..20, 0u32..3), 1..300)) {
            let homes = Homes::new(1, HashKey::new([1, 2]));
            let mut residents = Residents::new(WorkerId(3), &homes, 20);
            let mut model: Vec<Vec<u32>> = vec![Vec::new(); 3];
            for (session, bucket) in steps {
                match model.iter().position(|list| list.contains(&session)) {
                    Some(at) => {
                        residents.leave(&homes, Entry::numbered(session));
                        model[at].retain(|known| *known != session);
                    }
                    None => {
                        residents.enter(&homes, bucket, Entry::numbered(session));
                        model[bucket as usize].insert(0, session);
                    }
                }
                for (bucket, list) in (0..).zip(&model) {
                    prop_assert_eq!(&numbers(residents.of(bucket)), list);
                    prop_assert_eq!(homes.workers(bucket).contains(WorkerId(3)), !list.is_empty());
                    if let Some(first) = list.first() {
                        let rest = numbers(residents.behind(bucket, Some(Entry::numbered(*first))));
                        prop_assert_eq!(&rest[..], &list[1..]);
                    }
                    prop_assert_eq!(&numbers(residents.behind(bucket, Some(Entry::numbered(19_999)))), list);
                }
            }
            residents.leave(&homes, Entry::numbered(4000));
        }
    }
}

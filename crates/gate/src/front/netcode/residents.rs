//! One worker's sessions by address: what a packet from a new port of it may be one of.
//!
//! A list runs through the sessions of each bucket of addresses, the latest in front, so that to
//! come and to leave costs the same however many there are. Who walks along it compares the
//! addresses: a bucket may hold several.

use crate::ids::WorkerId;
use crate::shared::homes::Homes;

pub(crate) struct Residents {
    worker: WorkerId,
    /// By bucket: the first session's place and one, or 0.
    heads: Vec<u32>,
    /// By a session's place.
    nodes: Vec<Node>,
}

#[derive(Clone, Copy)]
struct Node {
    /// The neighbours' places and one, or 0.
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
    pub(crate) fn enter(&mut self, homes: &Homes, bucket: u32, session: u32) {
        let at = session as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, Node::UNLISTED);
        }
        debug_assert!(self.nodes[at].bucket == NOWHERE, "a session is listed once");
        let head = &mut self.heads[bucket as usize];
        let next = std::mem::replace(head, session + 1);
        self.nodes[at] = Node { previous: 0, next, bucket };
        match next.checked_sub(1) {
            Some(next) => self.nodes[next as usize].previous = session + 1,
            None => homes.enter(bucket, self.worker),
        }
    }

    /// A session has left, if it was listed at all.
    pub(crate) fn leave(&mut self, homes: &Homes, session: u32) {
        let Some(node) = self.nodes.get_mut(session as usize) else { return };
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
    pub(crate) fn of(&self, bucket: u32) -> impl Iterator<Item = u32> + '_ {
        self.from(self.heads[bucket as usize])
    }

    /// The sessions of a bucket behind one of them, or all where that one has left.
    pub(crate) fn behind(&self, bucket: u32, session: u32) -> impl Iterator<Item = u32> + '_ {
        let node = self.nodes.get(session as usize).filter(|node| node.bucket == bucket);
        self.from(node.map_or(self.heads[bucket as usize], |node| node.next))
    }

    fn from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |at: &u32| self.nodes[*at as usize].next.checked_sub(1);
        std::iter::successors(first.checked_sub(1), next)
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

    proptest! {
        #[test]
        fn agrees_with_lists(steps in prop::collection::vec((0u32..20, 0u32..3), 1..300)) {
            let homes = Homes::new(1, HashKey::new([1, 2]));
            let mut residents = Residents::new(WorkerId(3), &homes, 20);
            let mut model: Vec<Vec<u32>> = vec![Vec::new(); 3];
            for (session, bucket) in steps {
                match model.iter().position(|list| list.contains(&session)) {
                    Some(at) => {
                        residents.leave(&homes, session);
                        model[at].retain(|known| *known != session);
                    }
                    None => {
                        residents.enter(&homes, bucket, session);
                        model[bucket as usize].insert(0, session);
                    }
                }
                for (bucket, list) in (0..).zip(&model) {
                    prop_assert_eq!(&residents.of(bucket).collect::<Vec<_>>(), list);
                    prop_assert_eq!(homes.workers(bucket).contains(WorkerId(3)), !list.is_empty());
                    if let Some(first) = list.first() {
                        let rest: Vec<_> = residents.behind(bucket, *first).collect();
                        prop_assert_eq!(&rest[..], &list[1..]);
                    }
                    prop_assert_eq!(&residents.behind(bucket, 19_999).collect::<Vec<_>>(), list);
                }
            }
            residents.leave(&homes, 4000);
        }
    }
}

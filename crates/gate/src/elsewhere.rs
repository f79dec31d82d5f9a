//! Who else has to do with a player: another worker, or another gateway of the cluster.

use crate::ids::{MemberId, WorkerId};

/// Who else has to do with a player: another worker of this gateway, or another gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// A member of the cluster.
    Member(MemberId),
    /// A worker of this gateway.
    Worker(WorkerId),
}

impl Elsewhere {
    /// The worker that it is, where it is one.
    pub const fn worker(self) -> Option<WorkerId> {
        match self {
            Self::Worker(worker) => Some(worker),
            Self::Member(_) => None,
        }
    }

    /// The member that it is, where it is one.
    pub const fn member(self) -> Option<MemberId> {
        match self {
            Self::Member(member) => Some(member),
            Self::Worker(_) => None,
        }
    }
}

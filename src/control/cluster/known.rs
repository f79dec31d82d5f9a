//! What the fleet knows of the other members of a cluster: where they are, and what of them does
//! not fit.

use super::{Cluster, Misfits};
use crate::membership::{Clustered, Known};
use ringgate_fleet::values::gateway::misfits;
use ringgate_trunk::peers::Entrance;

impl Cluster {
    /// Goes by what is known of others.
    pub(in crate::control) fn follow(&self, known: &Known) {
        let Some(own) = &self.own else { return };
        let others = known.clustered.iter().filter(|(_, it)| it.cluster.name == own.cluster);
        let place = |(name, it): (&String, &Clustered)| {
            Some((name.clone(), Entrance::parse(&it.cluster.at)?))
        };
        own.peers.set_members(others.filter_map(place).collect());
    }

    /// What does not fit together with the others of the cluster.
    pub(in crate::control) fn misfits(&self, known: &Known) -> Misfits {
        let Some(own) = &self.own else { return Misfits::default() };
        let Some(mine) = known.clustered.get(&own.name) else { return Misfits::default() };
        let others = known
            .clustered
            .iter()
            .filter(|(name, it)| **name != own.name && it.cluster.name == own.cluster);
        others.map(|(name, it)| (name.clone(), misfits(&mine.listeners, &it.listeners))).collect()
    }
}

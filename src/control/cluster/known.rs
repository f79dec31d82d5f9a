//! What the fleet knows of the other members of a cluster: where they are, and what of them does
//! not fit.

use super::{Cluster, Misfits};
use crate::membership::{Clustered, Known};
use ringgate_fleet::values::gateway::Listener;
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
        others.map(|(name, it)| (name.clone(), unfit(&mine.listeners, &it.listeners))).collect()
    }
}

/// In which ways another gateway differs at addresses that both have, one sentence each.
fn unfit(own: &[Listener], other: &[Listener]) -> Vec<String> {
    let mut found = Vec::new();
    for (own, other) in own.iter().flat_map(|own| other.iter().map(move |other| (own, other))) {
        let Some(address) = own.addresses.iter().find(|it| other.addresses.contains(it)) else {
            continue;
        };
        if own.protocol != other.protocol {
            found.push(format!("{address} is {} here and {} there", own.protocol, other.protocol));
        } else if own.protocol_id != other.protocol_id {
            let ids = [own.protocol_id, other.protocol_id];
            found.push(format!("{address} has protocol_id {} here and {} there", ids[0], ids[1]));
        } else if own.token_bytes != other.token_bytes {
            found.push(format!("{address} has routing tokens of other lengths here and there"));
        } else if own.epochs.iter().all(|epoch| !other.epochs.contains(epoch))
            && !(own.epochs.is_empty() && other.epochs.is_empty())
        {
            found.push(format!("{address} has no key in common here and there"));
        }
        if own.group() != other.group() {
            found.push(format!(
                "{address} leads to group {} here and {} there",
                own.group(),
                other.group()
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> Listener {
        Listener {
            name: "eu".to_owned(),
            protocol: "netcode".to_owned(),
            addresses: vec![([198, 51, 100, 9], 40_000).into()],
            epochs: vec![1, 2],
            group: "arena".to_owned(),
            protocol_id: 7,
            token_bytes: 0,
            tags: true,
        }
    }

    #[test]
    fn only_what_differs_at_a_common_address_does_not_fit() {
        let said = |other: Listener| unfit(&[listener()], &[other]).join("; ");
        let elsewhere = vec![([198, 51, 100, 9], 40_001).into()];
        let none = Listener { addresses: elsewhere, protocol: "plain".to_owned(), ..listener() };
        assert_eq!((said(none), said(listener())), (String::new(), String::new()));
        assert_eq!(said(Listener { epochs: vec![2, 3], ..listener() }), "", "one in common");
        let at = "198.51.100.9:40000";
        for (other, expected) in [
            (
                Listener { protocol: "plain".to_owned(), ..listener() },
                format!("{at} is netcode here and plain there"),
            ),
            (
                Listener { protocol_id: 8, ..listener() },
                format!("{at} has protocol_id 7 here and 8 there"),
            ),
            (
                Listener { epochs: vec![3], ..listener() },
                format!("{at} has no key in common here and there"),
            ),
            (
                Listener { group: "other".to_owned(), ..listener() },
                format!("{at} leads to group arena here and other there"),
            ),
        ] {
            assert_eq!(said(other), expected);
        }
    }
}

//! What a config file may say, but hardly anybody means.

use ringgate_fleet::values::LIST_MAX;

use super::{BatchDelay, Config, HandshakeBase, HandshakeVersions, Limits, Listener, Protocol};

/// One sentence for each.
pub(super) fn of(config: &Config) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(admin) = config.admin.as_ref().filter(|it| !it.bind.ip().is_loopback()) {
        notices.push(format!(
            "admin.bind {} can be reached from other hosts, and everybody who does may read its pages",
            admin.bind
        ));
    }
    let waits = match config.gateway.batch_delay {
        // Nobody needs to have asked for that.
        BatchDelay::Auto => false,
        BatchDelay::AtMost(delay) => !delay.is_zero(),
    };
    if waits && !config.gateway.spin.is_zero() {
        notices.push(
            "gateway.batch_delay has no effect beside gateway.spin: a worker that spins does not wait"
                .to_owned(),
        );
    }
    if config.fleet.is_some() {
        let mut tell = |count: usize, what: &str, then: &str| {
            if count > LIST_MAX {
                notices.push(format!(
                    "the fleet hears of the first {LIST_MAX} {what} alone: {then} the {} after them",
                    count - LIST_MAX
                ));
            }
        };
        tell(config.listeners.len(), "listeners of this file", "no token names");
        for Listener { name, bind, public, .. } in &config.listeners {
            let dialled = if public.is_empty() { bind } else { public };
            tell(dialled.len(), &format!("addresses of listener {name:?}"), "no token names");
        }
        tell(
            config.agents.len(),
            "agents of this file (\"*\" goes before others)",
            "etcd has no entrance for",
        );
    }
    if let Some(cluster) = config.cluster.as_ref().filter(|_| config.agents.is_empty()) {
        notices.push(format!(
            "cluster {:?}: without an [[agent]] no other gateway reaches the game processes behind this one, so sessions end with it",
            cluster.name
        ));
    }
    for listener in &config.listeners {
        for field in listener.ignored() {
            notices.push(format!(
                "listener {:?}: {field} has no effect any more and will be refused as unknown in a later release",
                listener.name
            ));
        }
    }
    for listener in &config.listeners {
        if matches!(&listener.protocol, Protocol::Plain(rules) if rules.gap_limit.is_some()) {
            notices.push(format!(
                "listener {:?}: nothing is authenticated there, so whoever can send in a player's name can end its session by \
                 gap_limit",
                listener.name
            ));
        }
    }
    for (index, backend) in config.backends.iter().enumerate() {
        if !config.listeners.iter().any(|listener| listener.backends.contains(&index)) {
            notices.push(format!("backend {:?} is behind no listener", backend.name));
        }
        let mut framings = framings(config, index);
        if let Some((first, framing)) = framings.next()
            && let Some((other, _)) = framings.find(|(_, other)| other != &framing)
        {
            notices.push(format!(
                "backend {:?} is behind {first:?} and {other:?}, whose packets begin differently: no server speaks both",
                backend.name
            ));
        }
    }
    notices
}

/// One sentence for each listener without tokens where the sources of one block could fill a
/// server. It is said by `check` only: nothing is wrong with it where a block is a carrier's.
pub(super) fn of_blocks(config: &Config) -> Vec<String> {
    let anybody = config.listeners.iter().filter(|it| !matches!(it.protocol, Protocol::Netcode(_)));
    let fillable = anybody.filter_map(|listener| {
        let most = sessions_of_a_block(&listener.limits);
        let mut all = listener.backends.iter().map(|index| &config.backends[*index]);
        let filled = match (&listener.group, most) {
            (Some(_), _) if listener.limits.sessions_per_block > 0 => return None,
            (Some(group), Some(most)) => {
                format!("a server of group \"{group}\" with up to {most} slots")
            }
            (Some(group), None) => format!("any server of group \"{group}\""),
            (None, _) => {
                let is_filled = |slots| slots > 0 && most.is_none_or(|most| most >= slots);
                let first = all.find(|it| is_filled(it.slots))?;
                format!("backend {:?}, which has {} slots", first.name, first.slots)
            }
        };
        Some(format!(
            "listener {:?}: the sources of one block, an IPv4 /24 or an IPv6 /48, could fill {filled}; \
             limits.sessions_per_block bounds that, where no block is all of a carrier's players",
            listener.name
        ))
    });
    fillable.collect()
}

/// How many sessions one block may have at a listener, if that is bounded: an IPv4 /24 is 256
/// addresses, an IPv6 /48 as many sites of 256 addresses each.
fn sessions_of_a_block(limits: &Limits) -> Option<u32> {
    let times = |limit: u32, count| (limit > 0).then(|| limit.saturating_mul(count));
    let sites = times(limits.sessions_per_site, 256);
    let of_sites = [sites, times(limits.sessions_per_address, 256 * 256)].into_iter().flatten();
    let bounds = times(limits.sessions_per_address, 256).zip(of_sites.min());
    let bounds = bounds.map(|(addresses, sites)| addresses.max(sites));
    bounds.into_iter().chain(times(limits.sessions_per_block, 1)).min()
}

/// What the packets of a backend's Unreal listeners look like: their magic, whether versions and
/// ids follow, and the base.
type Framing<'a> = (&'a [bool], std::mem::Discriminant<HandshakeVersions>, HandshakeBase);

/// The Unreal listeners in front of a backend, and what their packets look like.
fn framings(config: &Config, backend: usize) -> impl Iterator<Item = (&str, Framing<'_>)> {
    let listeners = config.listeners.iter().filter(move |it| it.backends.contains(&backend));
    listeners.filter_map(|listener| match &listener.protocol {
        Protocol::Unreal(unreal) => {
            let kind = std::mem::discriminant(&unreal.versions);
            let framing = (unreal.magic.as_slice(), kind, unreal.handshake_base);
            Some((listener.name.as_str(), framing))
        }
        Protocol::Netcode(_) | Protocol::Plain(_) => None,
    })
}

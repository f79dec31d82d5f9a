//! Players' sockets that the service manager has kept since a process before this one ended without
//! a word: its port has never been closed, and what has come since waits in them.
//!
//! The kernel spreads players over all sockets of an address, so one that nobody reads would
//! swallow its share of them. What is not used is closed at once, here and at the service manager.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::{Fleet, Plan};
use ringgate_io::socket;
use ringgate_os::stored::{Store, Stored};

/// Sockets by their addresses.
#[derive(Debug, Default)]
pub struct Kept(HashMap<SocketAddr, Vec<OwnedFd>>);

impl Kept {
    /// What of everything that was kept this plan uses. The rest closes.
    pub fn sort(all: Vec<Stored>, plan: &Plan, store: Option<&Store>) -> Self {
        let mut kept = Self::default();
        let count = all.len();
        let mut unused = Vec::new();
        for Stored { name, fd } in all {
            let wanted = socket::udp_address(fd.as_fd()).filter(|address| plan.has(*address));
            let sockets = wanted.map(|address| kept.0.entry(address).or_default());
            match sockets.filter(|sockets| sockets.len() < usize::from(plan.workers)) {
                Some(sockets) => sockets.push(fd),
                None => unused.push(name),
            }
        }
        if count > 0 {
            let (closed, used) = (unused.len(), count - unused.len());
            tracing::info!(
                event = "sockets_kept",
                used,
                closed,
                "{used} sockets go on that the service manager has kept, {closed} are not needed"
            );
        }
        give_up(store, unused);
        kept
    }

    /// Whether there are some of an address.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.0.get(&address).is_some_and(|sockets| !sockets.is_empty())
    }

    /// The next socket of an address.
    pub(super) fn take(&mut self, address: SocketAddr) -> Option<OwnedFd> {
        self.0.get_mut(&address)?.pop()
    }
}

impl Plan {
    /// Whether a listener is bound to exactly this.
    fn has(&self, address: SocketAddr) -> bool {
        self.binds.iter().flatten().any(|bind| *bind == address)
    }
}

impl Fleet {
    /// Second descriptors of all sockets that workers hear players on, by their addresses.
    pub fn player_sockets(&self) -> Result<BTreeMap<SocketAddr, Vec<OwnedFd>>, String> {
        let lent = self.scribe().lend()?;
        let mut by_address = BTreeMap::<_, Vec<_>>::new();
        for (_, fd) in lent.into_iter().filter(|(row, _)| row.player.is_some()) {
            if let Some(address) = socket::udp_address(fd.as_fd()) {
                by_address.entry(address).or_default().push(fd);
            }
        }
        Ok(by_address)
    }
}

/// What the sockets of an address are called at the service manager. Names have no colons there.
pub fn name_of(address: SocketAddr) -> String {
    format!("udp-{address}").replace(':', "_")
}

/// Has everything closed under these names, what is used included: that is given again when it
/// serves. Waits for it, or the addresses would still be taken.
fn give_up(store: Option<&Store>, mut names: Vec<String>) {
    let Some(store) = store else { return };
    names.sort_unstable();
    names.dedup();
    let told = names.iter().filter(|name| !name.is_empty()).map(|name| store.remove(name));
    let told = told.collect::<Result<Vec<_>, _>>();
    let is_done = match told {
        Ok(told) if told.is_empty() => return,
        Ok(_) => store.wait(DONE_WITHIN),
        Err(why) => Err(why),
    };
    if !is_done.unwrap_or(false) {
        tracing::warn!("the service manager has not given up the sockets that it has kept");
    }
}

/// It has other services to look after, too.
const DONE_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_colons_and_tell_addresses_apart() {
        let names = ["127.0.0.1:7", "[::1]:7", "[::]:7", "127.0.0.1:77"]
            .map(|text| name_of(text.parse().expect("an address")));
        assert_eq!(names[0], "udp-127.0.0.1_7");
        assert!(names.iter().all(|name| !name.contains(':') && name.len() < 255));
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }
}

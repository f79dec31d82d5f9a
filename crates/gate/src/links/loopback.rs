//! Loopback addresses: every player has one toward the game servers on this host.

use std::net::SocketAddr;

use crate::store::entry::Entry;
use crate::store::table::Guess;
use ringgate_batch::LocalIp;

/// Whether players of a backend at this address get loopback addresses of their own on one shared
/// socket.
pub fn is_shared_socket_backend(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V4(v4) if v4.ip().is_loopback())
}

/// The loopback address that the player of an entry has on the udp link: 127.1.0.0 and up, so that
/// it is never one that people use by hand.
pub(crate) fn loopback_of<T>(entry: Entry<T>) -> Option<LocalIp> {
    let host = entry.number().checked_add(LOOPBACK_FIRST).filter(|host| *host <= LOOPBACK_LAST)?;
    let [_, x, y, z] = host.to_be_bytes();
    Some(LocalIp::v4([127, x, y, z], 0))
}

/// The entry of the player who has this loopback address.
pub(crate) fn entry_of_loopback<T>(local: &LocalIp) -> Option<Entry<T>> {
    let std::net::IpAddr::V4(v4) = local.ip() else { return None };
    let [127, x, y, z] = v4.octets() else { return None };
    let number = u32::from_be_bytes([0, x, y, z]).checked_sub(LOOPBACK_FIRST);
    number.map(Entry::numbered)
}

/// The guess that a datagram is for the player who has this loopback address.
pub(crate) fn guess_of_loopback(local: &LocalIp) -> Guess {
    Guess::of(entry_of_loopback::<()>(local))
}

/// How many players of one worker can have a loopback address each.
pub(crate) const LOOPBACK_PLACES: usize = (LOOPBACK_LAST - LOOPBACK_FIRST + 1) as usize;

const LOOPBACK_FIRST: u32 = 1 << 16;
/// 127.255.255.255 is the loopback network's broadcast address.
const LOOPBACK_LAST: u32 = 0x00ff_fffe;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_map_both_ways_and_end_before_the_broadcast() {
        for number in [0, 1, 255, 65_536, 0x00fe_fffe] {
            let entry = Entry::<()>::numbered(number);
            let local = loopback_of(entry).expect("in range");
            assert!(local.ip().is_loopback());
            assert_eq!(entry_of_loopback(&local), Some(entry));
        }
        assert_eq!(loopback_of(Entry::<()>::numbered(0x00fe_ffff)), None);
        assert_eq!(entry_of_loopback::<()>(&LocalIp::v4([127, 0, 0, 1], 0)), None);
        assert_eq!(entry_of_loopback::<()>(&LocalIp::v4([10, 1, 0, 1], 0)), None);
    }
}

//! Players' loopback addresses toward the servers of Unreal games.

use crate::front::unreal::session::Session;
use crate::store::entry::Entry;
use ringgate_batch::LocalIp;

/// The loopback address that the player of an entry has toward game servers: counted down from the
/// top, so that it is none that a netcode player has, whose are counted up; they would meet at 16.7
/// million players of one worker.
pub(crate) fn loopback_of(entry: Entry<Session>) -> Option<LocalIp> {
    let host = LOOPBACK_LAST.checked_sub(entry.number()).filter(|host| *host >= LOOPBACK_FIRST)?;
    let [_, x, y, z] = host.to_be_bytes();
    Some(LocalIp::v4([127, x, y, z], 0))
}

/// The entry of the player who has this loopback address.
pub(crate) fn entry_of_loopback(local: &LocalIp) -> Option<Entry<Session>> {
    let std::net::IpAddr::V4(v4) = local.ip() else { return None };
    let [127, x, y, z] = v4.octets() else { return None };
    LOOPBACK_LAST.checked_sub(u32::from_be_bytes([0, x, y, z])).map(Entry::numbered)
}

/// Whether a game server's datagram is for the gateway itself.
pub(crate) fn is_own_address(local: &LocalIp) -> bool {
    local.ip_bytes() == OWN_ADDRESS.ip_bytes()
}

/// Where questions come from.
pub(crate) const OWN_ADDRESS: LocalIp = LocalIp::v4([127, 0, 0, 1], 0);

const LOOPBACK_FIRST: u32 = 1 << 16;
/// 127.255.255.255 is the loopback network's broadcast address.
const LOOPBACK_LAST: u32 = 0x00ff_fffe;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_map_both_ways_and_none_is_a_netcode_players() {
        for number in [0, 1, 255, 65_536, 8_000_000] {
            let entry = Entry::numbered(number);
            let local = loopback_of(entry).expect("in range");
            assert!(local.ip().is_loopback());
            assert_eq!(entry_of_loopback(&local), Some(entry));
            assert_ne!(crate::links::loopback::entry_of_loopback(&local), Some(entry));
        }
        assert_eq!(loopback_of(Entry::numbered(0)), Some(LocalIp::v4([127, 255, 255, 254], 0)));
        assert_eq!(loopback_of(Entry::numbered(LOOPBACK_LAST - LOOPBACK_FIRST + 1)), None);
        assert_eq!(entry_of_loopback(&LocalIp::v4([10, 1, 0, 1], 0)), None);
    }
}

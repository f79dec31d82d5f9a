//! Where datagrams come from, as limits know it: by address or by block, never by port.
//!
//! An *address* is an IPv4 address or an IPv6 /64, which is what one household or one host is
//! given. A *block* is an IPv4 /24 or an IPv6 /48, the least that changes hands between networks. A
//! *site* is an IPv6 /56, which is 256 addresses and what many households are given.
//! IPv4-mapped IPv6 is IPv4. Each listener counts for itself.

use crate::ids::{BackendId, ListenerId};
use crate::store::hash::HashKey;
use ringgate_batch::Endpoint;
use ringgate_core::limits::LISTENERS_MAX;

/// An address or a block, at one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Area {
    /// An IPv4 address, or the upper half of an IPv6 one; the bits behind the prefix are 0.
    pub(crate) prefix: u64,
    /// What the prefix is, and the listener.
    pub(crate) tag: u32,
}

impl Area {
    /// The address of a source.
    #[inline]
    pub(crate) fn address(listener: ListenerId, source: &Endpoint) -> Self {
        let (high, low) = source.ip_words();
        if source.is_v4() {
            Self::new(low & IPV4, ADDRESS_V4, listener)
        } else {
            Self::new(high, ADDRESS_V6, listener)
        }
    }

    /// The block of a source.
    #[inline]
    pub(crate) fn block(listener: ListenerId, source: &Endpoint) -> Self {
        let (high, low) = source.ip_words();
        if source.is_v4() {
            Self::new(low & IPV4 & !0xff, BLOCK_V4, listener)
        } else {
            Self::new(high & !0xffff, BLOCK_V6, listener)
        }
    }

    /// The site of an IPv6 source: what a household may be given, with many addresses in it.
    #[inline]
    pub(crate) fn site(listener: ListenerId, source: &Endpoint) -> Option<Self> {
        let (high, _) = source.ip_words();
        (!source.is_v4()).then(|| Self::new(high & !0xff, SITE_V6, listener))
    }

    /// A game process, for what is counted of one as of a source.
    pub(crate) fn backend(backend: BackendId) -> Self {
        Self::new(backend.0.into(), BACKEND, ListenerId(0))
    }

    /// Everything that a session of a source counts for.
    pub(crate) fn all(
        listener: ListenerId,
        source: &Endpoint,
    ) -> impl Iterator<Item = Self> + use<> {
        let (address, block) = (Self::address(listener, source), Self::block(listener, source));
        [address, block].into_iter().chain(Self::site(listener, source))
    }

    const fn new(prefix: u64, kind: u32, listener: ListenerId) -> Self {
        Self { prefix, tag: kind << 16 | listener.0 as u32 }
    }

    #[inline]
    pub(crate) fn hash(&self, key: HashKey) -> u64 {
        let Self { prefix, tag } = *self;
        match tag >> 16 {
            // Prefix, kind and listener fit seven bytes.
            ADDRESS_V4 | BLOCK_V4 => {
                let [kind, listener] = [tag >> 16, tag & 0xffff].map(u64::from);
                key.hash_seven(prefix | kind << 32 | listener << 40)
            }
            _ => key.hash([prefix, u64::from(tag), 0]),
        }
    }
}

/// The lower half of an IPv4-mapped address, without the part that says that it is one.
const IPV4: u64 = 0xffff_ffff;

const _: () = assert!(LISTENERS_MAX <= 1 << 16);

const ADDRESS_V4: u32 = 0;
const ADDRESS_V6: u32 = 1;
const BLOCK_V4: u32 = 2;
const BLOCK_V6: u32 = 3;
const SITE_V6: u32 = 4;
const BACKEND: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(text: &str) -> Endpoint {
        Endpoint::from(std::net::SocketAddr::new(text.parse().expect("an address"), 9))
    }

    #[test]
    fn a_block_is_a_24_or_a_48_and_an_address_an_address_or_a_64() {
        let v4 = |last, port| Endpoint::v4([192, 0, 2, last], port);
        assert_eq!(
            Area::address(ListenerId(0), &v4(1, 5)),
            Area::address(ListenerId(0), &v4(1, 6))
        );
        assert_ne!(
            Area::address(ListenerId(0), &v4(1, 5)),
            Area::address(ListenerId(0), &v4(2, 5))
        );
        assert_eq!(Area::block(ListenerId(0), &v4(1, 5)), Area::block(ListenerId(0), &v4(255, 5)));
        assert_ne!(
            Area::block(ListenerId(0), &v4(1, 5)),
            Area::block(ListenerId(0), &Endpoint::v4([192, 0, 3, 1], 5))
        );

        let home = v6("2001:db8:1:2::1");
        assert_eq!(
            Area::address(ListenerId(0), &home),
            Area::address(ListenerId(0), &v6("2001:db8:1:2:ffff::9"))
        );
        assert_ne!(
            Area::address(ListenerId(0), &home),
            Area::address(ListenerId(0), &v6("2001:db8:1:3::1"))
        );
        assert_eq!(
            Area::block(ListenerId(0), &home),
            Area::block(ListenerId(0), &v6("2001:db8:1:ffff::1"))
        );
        assert_ne!(
            Area::block(ListenerId(0), &home),
            Area::block(ListenerId(0), &v6("2001:db8:2:2::1"))
        );
    }

    #[test]
    fn mapped_addresses_are_ipv4_and_listeners_do_not_share() {
        let plain = Endpoint::v4([192, 0, 2, 1], 5);
        let mapped = Endpoint::v6(*plain.ip_bytes(), 0, 7);
        assert_eq!(Area::address(ListenerId(0), &plain), Area::address(ListenerId(0), &mapped));
        assert_eq!(Area::block(ListenerId(0), &plain), Area::block(ListenerId(0), &mapped));
        assert_ne!(Area::block(ListenerId(0), &plain), Area::block(ListenerId(1), &plain));
        // 0.0.0.0/24 is not ::/48, and a block of which one address is known is not that address.
        let zero = Endpoint::v4([0; 4], 5);
        assert_ne!(Area::block(ListenerId(0), &zero), Area::block(ListenerId(0), &v6("::1")));
        assert_ne!(Area::block(ListenerId(0), &zero), Area::address(ListenerId(0), &zero));
    }
}

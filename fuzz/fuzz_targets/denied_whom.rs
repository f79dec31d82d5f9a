//! Prefixes and client ids as an operator types them: what is accepted means the same after it was
//! printed, and a list that denies it alone denies its addresses and none beside them.
#![no_main]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use ringgate_state::{Change, DenyList, Whom};

fuzz_target!(|text: &str| {
    let Ok(whom) = text.parse::<Whom>() else { return };
    assert_eq!(whom.to_string().parse(), Ok(whom));
    let change = Change { whom: vec![whom], is_denied: true, until: None, is_whole: true };
    let (list, effect) = DenyList::default().changed(&change).expect("there is room");
    assert_eq!((list.len(), effect.changed), (1, 1));
    let denied = list.to_denied();
    match whom {
        Whom::Client(id) => assert!(denied.holds_client(id)),
        Whom::Prefix(prefix) => {
            let (first, last) = prefix.range();
            let holds = |bits: u128| {
                let ip = IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical();
                (denied.holds(&SocketAddr::new(ip, 1).into()), ip.is_ipv4())
            };
            for bits in [first, last, first + (last - first) / 2] {
                // What is mapped is IPv4, and no part of an IPv6 prefix around it.
                let (holds, is_v4) = holds(bits);
                assert_eq!(holds, is_v4 == prefix.is_v4());
            }
            let beside = [first.checked_sub(1), last.checked_add(1)];
            assert!(beside.into_iter().flatten().all(|bits| !holds(bits).0));
        }
    }
    let change = Change { is_denied: false, ..change };
    assert!(list.changed(&change).expect("there is room").0.is_empty());
});

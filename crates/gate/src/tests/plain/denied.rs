//! Sources that are denied, half open or open.

use super::super::denied::{denied, deny};
use super::super::rig::home;
use super::{arrived, plain_rig, play};
use crate::counters::Ended;
use ringgate_core::drops::DropReason;

#[test]
fn plain_sources_are_denied_half_open_or_open() {
    let mut rig = plain_rig(|_| {});
    play(&mut rig, home(1), b"hello");
    play(&mut rig, home(2), b"hello");
    rig.deliver(home(3), b"half open");
    arrived(&mut rig);
    let list = denied(&[("10.0.0.0/8", true), ("10.0.2.0/24", false)], &[]);
    assert_eq!(deny(&mut rig, &list), 1);
    for n in [1, 3, 4] {
        rig.provokes(DropReason::AddressDenied, |rig| rig.deliver(home(n), b"hello"));
    }
    assert!(arrived(&mut rig).is_empty());
    rig.deliver(home(2), b"hello");
    assert_eq!(arrived(&mut rig).len(), 1);
    assert_eq!(rig.counters().sessions_closed[Ended::Denied as usize], 1);
}

/// Ids of players without tokens are the gateway's own.
#[test]
fn ids_that_the_gateway_has_given_are_not_denied() {
    let mut rig = plain_rig(|_| {});
    play(&mut rig, home(1), b"hello");
    let id = rig.host.gate().sessions().next().expect("one").client_id;
    assert_eq!(deny(&mut rig, &denied(&[], &[id])), 0);
}

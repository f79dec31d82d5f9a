//! A third front, which only tests have. The compiler has led to every place that it needs: a
//! variant of `Protocol` and of `Front`, a field of the gate, and its arms in front/face.rs.

pub(crate) mod front;

use super::rig::{Rig, endpoint, home, listener, udp_backend};
use crate::counters::Ended;
use crate::setup::{Listener, Protocol, Setup};
use front::KIND;

const GAME: &str = "127.0.0.1:7777";

#[test]
fn a_third_front_needs_its_own_file_and_its_arms() {
    let listener = Listener { protocol: Protocol::Third, ..listener("third", &[0]) };
    let mut rig = Rig::new(Setup::new(vec![listener], vec![udp_backend("box", GAME, 4)], 1));
    rig.deliver(home(1), b"hello");
    let (local, bytes) = rig.take_udp().remove(0);
    assert_eq!((local.ip().to_string().as_str(), &bytes[..]), ("127.128.0.0", &b"hello"[..]));
    rig.answer_udp(endpoint(GAME), local, b"welcome");
    assert_eq!(rig.sent.remove(0).bytes, b"welcome");
    assert_eq!(rig.host.gate().sessions().count(), 1);
    assert_eq!(rig.counters().handled[KIND], 1);
    rig.pass(1_010);
    assert_eq!((rig.sessions(), rig.host.gate().sessions().count()), (0, 0));
    assert_eq!(rig.counters().sessions_closed[Ended::TimedOut as usize], 1);
}

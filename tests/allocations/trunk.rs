//! A lane at work: payloads of players who are there, records in pieces, beats, changes of keys.

use ringgate_core::crypto::Aead;
use ringgate_core::secret::Key;
use ringgate_link::bundle::{CloseReason, Frame, Frames, OpenedPlain, SessionId, Writer};
use ringgate_trunk::protocol::keys::Rekey;
use ringgate_trunk::protocol::lane::{Lane, NoteTold, Role, Secrets};

use super::allocations_in;

const MS: u64 = 1_000_000;

/// What the way between the two carries.
const PATH_BYTES: usize = 1252;

/// Both ends, and memory for what is between them.
struct Both {
    gateway: Lane,
    agent: Lane,
    aead: Aead,
    now_ns: u64,
    datagram: Vec<u8>,
    delivered: u64,
}

fn with_frame<T>(
    write: impl FnOnce(&mut Writer<'_>) -> bool,
    then: impl FnOnce(Frame<'_>) -> T,
) -> T {
    let mut buf = [0; 2000];
    let mut writer = Writer::new(&mut buf);
    assert!(write(&mut writer));
    then(Frames::new(writer.bytes()).next().expect("one").expect("own"))
}

impl Both {
    fn new() -> Self {
        let lane = |role| {
            let key = |[lane, way]: [u8; 2]| Ok::<_, ()>(Key::from_bytes([lane + way; 32]));
            let secrets = Secrets::export(1, key).expect("it cannot fail");
            Lane::new(role, (9, 1), secrets, Rekey { age_ns: u64::MAX, datagrams: 50 }, 0)
        };
        let (gateway, agent) = (lane(Role::Gateway), lane(Role::Agent));
        let datagram = Vec::with_capacity(10_000);
        Self { gateway, agent, aead: Aead::detect(), now_ns: 0, datagram, delivered: 0 }
    }

    /// A player comes, or leaves.
    fn tell(&mut self, session: SessionId, is_there: bool) {
        let address = "192.0.2.7:9".parse().expect("literal");
        let opened = OpenedPlain { session, slot: None, slots_max: 4, address, listener: "any" };
        self.gateway.note_told();
        with_frame(
            |writer| {
                if is_there {
                    writer.opened_plain(&opened)
                } else {
                    writer.closed(session, CloseReason::Kicked)
                }
            },
            |frame| self.agent.handle_record(1, frame, |_, _| ()),
        );
    }

    fn turn(&mut self, number: u64) {
        self.tell(SessionId::new(1, 100 + number % 8), number % 16 < 8);
        for (serial, len) in (1..=50).zip([100, 40, 1400, 300].into_iter().cycle()) {
            with_frame(
                |writer| writer.payload(SessionId::new(1, serial), &[7; 1472][..len]),
                |frame| assert!(self.gateway.push(1, frame).is_ok()),
            );
        }
        self.now_ns += 10 * MS;
        self.gateway.poll(self.now_ns);
        self.agent.poll(self.now_ns);
        self.gateway.seal(self.now_ns, &mut self.aead);
        self.agent.seal(self.now_ns, &mut self.aead);
        let Self { gateway, agent, aead, now_ns, datagram, delivered } = self;
        let mut carry = |from: &mut Lane, to: &mut Lane| {
            for sealed in from.pending().filter(|sealed| sealed.len() <= PATH_BYTES) {
                datagram.clear();
                datagram.extend_from_slice(sealed);
                to.receive_runs(*now_ns, aead, &mut [&mut datagram[..]], |_, run| {
                    *delivered += run.frames().count() as u64;
                });
            }
            from.handle_sent(usize::MAX);
        };
        carry(gateway, agent);
        carry(agent, gateway);
    }
}

#[test]
fn a_lane_at_work_allocates_nothing() {
    let mut both = Both::new();
    (1..=50).for_each(|serial| both.tell(SessionId::new(1, serial), true));
    (0..100).for_each(|number| both.turn(number));
    let before = both.delivered;
    let allocations = allocations_in(|| (0..200).for_each(|number| both.turn(number)));
    let (delivered, stats) = (both.delivered - before, both.gateway.stats());
    assert_eq!((allocations, delivered), (0, 50 * 200));
    assert!(stats.sent.split > 1000 && stats.epochs[0] > 50, "{stats:?}");
}

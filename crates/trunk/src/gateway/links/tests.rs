//! When a worker hears of a link, and with what.

use std::path::PathBuf;

use super::*;
use crate::socket::Bundles;
use ringgate_link::bundle::{Hello, Writer};
use socket2::{Domain, SockAddr, Socket, Type};

/// A worker, and the links of a trunk whose only lane is up.
struct Stage {
    links: Links,
    listener: Socket,
    run_dir: PathBuf,
    epoll: Epoll,
    allowed: [String; 1],
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.run_dir);
    }
}

impl Stage {
    fn new(name: &str) -> Self {
        let run_dir = std::env::temp_dir().join(format!("ringgate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&run_dir).expect("a folder");
        let path = run_dir.join("worker-0.sock");
        let kind = Type::SEQPACKET.nonblocking().cloexec();
        let listener = Socket::new(Domain::UNIX, kind, None).expect("a descriptor");
        listener.bind(&SockAddr::unix(path).expect("it is short")).expect("a new folder");
        listener.listen(8).expect("it is bound");
        let (links, epoll) = (Links::default(), Epoll::new().expect("a descriptor"));
        let mut stage = Self { links, listener, run_dir, epoll, allowed: ["arena".into()] };
        stage.with(|links, making| links.handle_lane_up(0, false, making));
        stage
    }

    fn with(&mut self, act: impl FnOnce(&mut Links, Making<'_>)) {
        let Self { links, run_dir, epoll, allowed, .. } = self;
        act(links, Making { run_dir, allowed, epoll, desks: &[], trunk: 1 });
    }

    /// The agent says something on a link, and the pass is over.
    fn say(&mut self, link: u16, write: fn(&mut Writer<'_>) -> bool) {
        let mut buf = [0; 256];
        let mut writer = Writer::new(&mut buf);
        assert!(write(&mut writer), "it is short");
        let frame = Frames::new(writer.bytes()).next().expect("one").expect("own");
        self.with(|links, making| links.handle_record((0, link), frame, making));
        self.links.flush(&self.epoll);
    }

    /// The first bundle of the next link, if there is one: what is said about it.
    fn first(&self) -> Option<Vec<Option<Arbitrated>>> {
        let link = Local::from(OwnedFd::from(self.listener.accept().ok()?.0));
        let mut first = None;
        let received = link.receive(&mut Bundles::default(), |bundle| {
            let known = Frames::new(bundle).map(|frame| {
                let said = FromArbiter::decode(frame.expect("own"));
                Arbitrated::ALL.into_iter().find(|it| Some(FromArbiter::Arbitrates(*it)) == said)
            });
            first.get_or_insert_with(|| known.collect());
        });
        received.expect("it is there");
        first
    }
}

fn hello(writer: &mut Writer<'_>) -> bool {
    writer.hello(&Hello::new(1, "arena"))
}

fn arbitrates(writer: &mut Writer<'_>) -> bool {
    writer.arbitrates(Arbitrated::Netcode)
}

#[test]
fn a_worker_hears_of_a_link_with_all_that_its_agent_arbitrates() {
    let mut stage = Stage::new("arbitrates");
    stage.say(1, hello);
    assert_eq!(stage.first(), None);
    stage.say(1, arbitrates);
    assert_eq!(stage.first(), None);
    stage.say(1, |writer| writer.arbitrates(Arbitrated::Plain));
    assert_eq!(stage.first(), None);
    stage.say(1, |writer| writer.arbitrates(Arbitrated::Delivery));
    let said = Arbitrated::ALL.map(Some);
    assert_eq!(stage.first(), Some([&[None], &said[..]].concat()));
}

#[test]
fn what_waits_for_a_lane_that_never_comes_up_is_bounded() {
    let mut stage = Stage::new("waiting");
    let mut buf = vec![0; WAITING_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    assert!(hello(&mut writer));
    while arbitrates(&mut writer) {}
    let bytes = writer.bytes().to_vec();
    let lane = 1;
    let mut begin = |number: u16| {
        for frame in Frames::new(&bytes) {
            let frame = frame.expect("own");
            stage.with(|links, making| links.handle_record((lane, number), frame, making));
        }
        (stage.links.by_number.len(), stage.links.waiting_bytes)
    };
    for number in 0..1000 {
        let (_, waiting) = begin(number);
        assert!(waiting <= ALL_WAITING_BYTES_MAX);
    }
    let fit = ALL_WAITING_BYTES_MAX / bytes.len();
    assert!(begin(1000).0 <= fit + 1);
    assert!(stage.links.counts.link_over_full >= 1000 - fit as u64);
    stage.with(|links, making| (0..2000).for_each(|it| links.handle_end((lane, it), making)));
    assert_eq!(stage.links.waiting_bytes, 0);
    stage.say(1, hello);
    stage.with(Links::handle_begun);
    stage.links.flush(&stage.epoll);
    assert_eq!(stage.first(), Some(vec![None]), "another lane's goes on");
}

#[test]
fn an_agent_that_arbitrates_less_has_said_all_when_anything_else_comes() {
    let mut stage = Stage::new("less");
    stage.say(1, hello);
    stage.say(2, hello);
    assert_eq!(stage.first(), Some(vec![None]), "another link begins");
    stage.say(2, arbitrates);
    assert_eq!(stage.first(), None);
    stage.say(2, |it| it.intake(false));
    assert_eq!(stage.first(), Some(vec![None, Some(Arbitrated::Netcode), None]));
    stage.say(3, hello);
    stage.with(|links, making| links.handle_end((0, 9), making));
    stage.links.flush(&stage.epoll);
    assert_eq!(stage.first(), Some(vec![None]), "another link is over");
    stage.say(4, hello);
    stage.with(Links::handle_begun);
    stage.links.flush(&stage.epoll);
    assert_eq!(stage.first(), Some(vec![None]), "the agent is there");
    stage.say(5, hello);
    stage.with(|links, making| links.handle_end((0, 5), making));
    assert_eq!(stage.first(), None, "it is over");
}

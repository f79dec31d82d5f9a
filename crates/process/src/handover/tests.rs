//! Both ends of the conversation over a pair of sockets, with parts of a role that is only here.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ringgate_os::clock::Clock;

use super::envelope::Bytes;
use super::steps::Silence;
use super::*;
use crate::part_in_bytes;

part_in_bytes! { Name, "name" }
part_in_bytes! { Rules, "rules" }
part_in_bytes! { State, "state" }
part_in_bytes! { Beside, "beside" }

/// What a later release gives.
struct Weather<const IS_OF_USE: bool>;

impl<const IS_OF_USE: bool> Part for Weather<IS_OF_USE> {
    const NAME: &'static str = "weather";
    const MAY_BE_PASSED_OVER: bool = !IS_OF_USE;

    fn take_out(self) -> Bytes {
        b"rain".to_vec().into()
    }

    fn put_in(_bytes: Bytes) -> Result<Self, String> {
        Ok(Self)
    }
}

fn bytes(text: &str) -> Bytes {
    text.as_bytes().to_vec().into()
}

/// A pipe with a word in it, to be read from.
fn pipe(word: &str) -> OwnedFd {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(word.as_bytes()).expect("there is room");
    reader.into()
}

fn words(fds: Vec<OwnedFd>) -> String {
    let mut said = String::new();
    for fd in fds {
        File::from(fd).read_to_string(&mut said).expect("a pipe whose writer has gone");
    }
    said
}

/// A predecessor whose state is numbers, and what it has been told to do.
#[derive(Default)]
struct Old {
    /// Added to what is given: whether it may not be passed over.
    weather: Option<bool>,
    lends: bool,
    copies: u64,
    parts: u64,
    fails_at: &'static str,
    did: Vec<&'static str>,
}

impl Old {
    fn does(&mut self, what: &'static str) -> Result<(), String> {
        self.did.push(what);
        if self.fails_at == what { Err(format!("it cannot {what}")) } else { Ok(()) }
    }
}

impl Offers for Old {
    fn offer(&mut self) -> Result<Envelope, String> {
        self.does("offer")?;
        let fds = vec![pipe("a"), pipe("b")];
        Ok(Envelope::default().with(Name(bytes("old")), fds).with(Rules(bytes("none")), vec![]))
    }

    fn lend(&mut self) -> Result<Option<Envelope>, String> {
        self.does("lend")?;
        let lent = || Envelope::default().with(Name(bytes("lent")), vec![pipe("c")]);
        Ok(self.lends.then(lent))
    }

    fn copy(&mut self) -> Result<Option<Extent>, String> {
        self.does("copy")?;
        let Some(left) = self.copies.checked_sub(1) else { return Ok(None) };
        self.copies = left;
        Ok(Some(Extent { shared_bytes: left, ..Extent::default() }))
    }
}

impl Gives for Old {
    fn clock(&self) -> Clock {
        Clock::start()
    }

    fn freeze(&mut self) -> Result<(), String> {
        self.does("freeze")
    }

    fn write(&mut self) -> Result<Extent, String> {
        self.does("write")?;
        self.parts -= 1;
        let worker_bytes = vec![self.parts];
        Ok(Extent { shared_bytes: 0, worker_bytes, is_whole: self.parts == 0 })
    }

    fn give(&mut self) -> Result<Envelope, String> {
        self.does("give")?;
        let given = Envelope::default().with(State(bytes("given")), vec![pipe("d"), pipe("e")]);
        let given = given.with(Beside(bytes("beside")), vec![pipe("f")]);
        Ok(match self.weather {
            None => given,
            Some(true) => given.with(Weather::<true>, vec![pipe("g")]),
            Some(false) => given.with(Weather::<false>, vec![pipe("g")]),
        })
    }
}

/// A successor, and all that it has been given, in order.
#[derive(Default)]
struct New {
    seen: Vec<String>,
    fails_at: &'static str,
}

impl New {
    fn sees(&mut self, at: &'static str, what: String) -> Result<(), String> {
        self.seen.push(what);
        if self.fails_at == at { Err(format!("it cannot {at}")) } else { Ok(()) }
    }
}

impl Takes for New {
    const ROLE: &'static str = "number";

    fn prepare(&mut self, offered: &mut Envelope) -> Result<(), String> {
        let ((Name(name), fds), (Rules(rules), _)) = (offered.take()?, offered.take()?);
        let (name, rules) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&rules));
        self.sees("prepare", format!("{name} {rules} {}", words(fds)))
    }

    fn read(&mut self, lent: Option<&mut Envelope>, ahead: &Extent) -> Result<(), String> {
        let lent = lent.map(Envelope::take::<Name>).transpose()?;
        let lent = lent.map(|(Name(name), fds)| format!("{}{}", name.len(), words(fds)));
        self.sees("read", format!("ahead {} {lent:?}", ahead.shared_bytes))
    }

    fn read_rest(&mut self, given: Option<&mut Envelope>, rest: &Extent) -> Result<(), String> {
        let what = match given {
            None => String::new(),
            Some(given) => {
                let ((State(state), fds), beside) = (given.take()?, given.find::<Beside>()?);
                let beside = beside.map(|(Beside(it), fds)| format!("{}{}", it.len(), words(fds)));
                format!(" {}{} {beside:?}", state.len(), words(fds))
            }
        };
        self.sees("rest", format!("rest {:?} {}{what}", rest.worker_bytes, rest.is_whole))
    }

    fn finish(&mut self) -> Result<(), String> {
        self.sees("finish", "finish".to_owned())
    }

    fn sort(&self, moment: Moment, before: Before) -> Result<Envelope, String> {
        let Before { bytes, mut beside, mut sockets } = before;
        let envelope = Envelope::default();
        Ok(match moment {
            Moment::Welcome => {
                let rules = memory::read(&beside.remove(0), 4)?;
                envelope.with_bytes::<Name>(bytes, beside).with(Rules(rules), vec![])
            }
            Moment::Early => envelope.with_bytes::<Name>(bytes, sockets),
            Moment::Given => {
                let beside = Beside(memory::read(&beside.remove(0), 6)?);
                let last = sockets.split_off(2);
                envelope.with_bytes::<State>(bytes, sockets).with(beside, last)
            }
        })
    }
}

/// What became of both: what the predecessor says, and the successor.
type Ends = (Result<Pause, String>, Result<Taken, String>);

/// Has both talk, of which `is_before` says that it is of a release before sections.
fn talk(old: &mut Old, new: &mut New, is_before: bool) -> Ends {
    let (ours, its) = Channel::pair().expect("a pair");
    let its = if is_before { through(its) } else { its };
    thread::scope(|scope| {
        let taken = scope.spawn(move || take_over(&its, new));
        let mut giving = Giving::new("number", ours, None);
        let pause =
            giving.converse(old).then(|| giving.hand_over(old, old.clock().now_ns())).flatten();
        let given = match pause {
            Some(pause) => {
                assert_eq!(giving.successor().expect("it has spoken").pid, std::process::id());
                drop(giving.leave());
                Ok(pause)
            }
            None => Err(giving.part()),
        };
        (given, taken.join().expect("it does not panic"))
    })
}

/// The end of a wire on which no first word tells of sections.
fn through(far: Channel) -> Channel {
    let (near, its) = Channel::pair().expect("a pair");
    let soon = Duration::from_millis(2);
    thread::spawn(move || {
        loop {
            for (from, to) in [(&near, &far), (&far, &near)] {
                match from.hear(soon) {
                    Ok((mut message, fds)) => {
                        if let Message::Hello { sections, .. } = &mut message {
                            *sections = false;
                        }
                        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                        let _ = to.say(&message, &fds);
                    }
                    Err(Silence::Gone) => return,
                    _ => {}
                }
            }
        }
    });
    its
}

#[test]
fn what_is_given_at_each_moment_arrives_whatever_release_the_other_is_of() {
    for is_before in [false, true] {
        let mut old = Old { lends: true, copies: 2, parts: 2, ..Old::default() };
        let mut new = New::default();
        let (given, taken) = talk(&mut old, &mut new, is_before);
        assert!(given.is_ok(), "{given:?}");
        assert_eq!(taken, Ok(Taken::Serve(Vec::new())));
        assert_eq!(
            new.seen,
            [
                "old none ab",
                "ahead 1 Some(\"4c\")",
                "ahead 0 None",
                "rest [1] false 5de Some(\"6f\")",
                "rest [0] true",
                "finish"
            ],
            "{is_before}"
        );
        let all = ["offer", "lend", "copy", "copy", "copy", "freeze", "write", "give", "write"];
        assert_eq!(old.did, all);
    }
}

#[test]
fn a_role_without_anything_to_lend_or_to_copy_hands_over_too() {
    let mut old = Old { parts: 1, ..Old::default() };
    let mut new = New::default();
    let (given, taken) = talk(&mut old, &mut new, false);
    assert!(given.is_ok() && taken == Ok(Taken::Serve(Vec::new())), "{given:?} {taken:?}");
    assert_eq!(new.seen, ["old none ab", "rest [0] true 5de Some(\"6f\")", "finish"]);
}

#[test]
fn a_section_that_is_not_known_is_passed_over_by_name_or_nothing_is_taken() {
    let mut old = Old { parts: 1, weather: Some(false), ..Old::default() };
    let (given, taken) = talk(&mut old, &mut New::default(), false);
    assert!(given.is_ok(), "{given:?}");
    assert_eq!(taken, Ok(Taken::Serve(vec!["weather".to_owned()])));

    let mut old = Old { parts: 1, weather: Some(true), ..Old::default() };
    let (given, taken) = talk(&mut old, &mut New::default(), false);
    let why = "what was given has a section that this release does not know, weather";
    assert_eq!(taken, Err(why.to_owned()));
    assert_eq!(given.expect_err("it goes on"), format!("the successor will not: {why}"));
}

#[test]
fn whatever_fails_on_either_side_both_say_why_and_the_predecessor_goes_on() {
    for at in ["offer", "lend", "copy", "freeze", "write", "give"] {
        let mut old = Old { lends: true, copies: 1, parts: 1, fails_at: at, ..Old::default() };
        let (given, taken) = talk(&mut old, &mut New::default(), false);
        assert_eq!(given.expect_err("it goes on"), format!("it cannot {at}"));
        let taken = taken.expect_err("it has nothing");
        let is_late = ["write", "give"].contains(&at);
        let why = if is_late { "it took too long" } else { "it cannot" };
        assert!(taken.contains(why), "{at}: {taken}");
    }
    for at in ["prepare", "read", "rest", "finish"] {
        let mut old = Old { lends: true, copies: 1, parts: 1, ..Old::default() };
        let mut new = New { fails_at: at, ..New::default() };
        let (given, taken) = talk(&mut old, &mut new, false);
        assert_eq!(taken, Err(format!("it cannot {at}")));
        let why = format!("the successor will not: it cannot {at}");
        assert_eq!(given.expect_err("it goes on"), why);
    }
}

/// A successor that prepares until it is let go on.
struct Slow {
    prepares: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
    new: New,
}

impl Takes for Slow {
    const ROLE: &'static str = New::ROLE;

    fn prepare(&mut self, offered: &mut Envelope) -> Result<(), String> {
        self.new.prepare(offered)?;
        self.prepares.send(()).expect("the test waits");
        self.go_on.recv().map_err(|why| why.to_string())
    }

    fn read(&mut self, lent: Option<&mut Envelope>, ahead: &Extent) -> Result<(), String> {
        self.new.read(lent, ahead)
    }

    fn read_rest(&mut self, given: Option<&mut Envelope>, rest: &Extent) -> Result<(), String> {
        self.new.read_rest(given, rest)
    }

    fn finish(&mut self) -> Result<(), String> {
        self.new.finish()
    }

    fn sort(&self, moment: Moment, before: Before) -> Result<Envelope, String> {
        self.new.sort(moment, before)
    }
}

#[test]
fn a_predecessor_that_is_told_to_end_parts_at_once_and_both_say_that() {
    let (ours, its) = Channel::pair().expect("a pair");
    let ((prepares, prepared), (let_go, go_on)) = (mpsc::channel(), mpsc::channel());
    let mut slow = Slow { prepares, go_on, new: New::default() };
    let (mut old, why) = (Old::default(), "it is told to end");
    thread::scope(|scope| {
        let taken = scope.spawn(move || take_over(&its, &mut slow));
        let mut giving = Giving::new("number", ours, None);
        let recall = giving.recall().expect("a descriptor");
        scope.spawn(move || {
            prepared.recv().expect("it prepares");
            recall.recall(why.to_owned());
            recall.recall("for another reason".to_owned());
        });
        assert!(!giving.converse(&mut old), "the successor has not said that it has prepared");
        assert_eq!(giving.part(), why);
        let_go.send(()).expect("it waits");
        assert_eq!(taken.join().expect("it does not panic"), Err(why.to_owned()));
    });
    assert_eq!(old.did, ["offer"]);
}

fn sealed() -> (Vec<u8>, Vec<OwnedFd>) {
    let envelope = Envelope::default().with(Name(bytes("old")), vec![pipe("a"), pipe("b")]);
    let envelope = envelope.with(Weather::<false>, vec![pipe("c")]);
    let (memory, len, fds) = envelope.seal().expect("there is memory");
    (memory::read(&memory.fd(), len).expect("it is ours").to_vec(), fds)
}

#[test]
fn sections_are_found_in_any_order_with_their_descriptors() {
    let (bytes, fds) = sealed();
    let mut envelope = Envelope::open(&bytes, fds).expect("it is ours");
    let (_, fds) = envelope.take::<Weather<false>>().expect("it is there");
    assert_eq!(words(fds), "c");
    let (Name(name), fds) = envelope.take().expect("it is there");
    assert_eq!((&**name, words(fds)), (&b"old"[..], "ab".to_owned()));
    assert!(envelope.find::<Rules>().expect("it can be read").is_none());
    let why = envelope.take::<Rules>().map(drop).expect_err("it is not there");
    assert_eq!(why, "the process that runs has not given its rules");
    assert_eq!(envelope.end(), Ok(Vec::new()));
}

#[test]
fn what_is_not_exactly_what_was_sealed_is_refused() {
    let read = |bytes: &[u8], fds: Vec<OwnedFd>| {
        Envelope::open(bytes, fds)
            .map(drop)
            .map_err(|why| why.split(": ").last().map(str::to_owned))
    };
    let refused = |why: &str| Err(Some(why.to_owned()));
    let (whole, _) = sealed();
    for len in 0..whole.len() {
        let (bytes, fds) = sealed();
        assert_eq!(read(&bytes[..len], fds), refused("it ends too soon"), "{len}");
    }
    let spoilt = |at: usize, to: u8| {
        let (mut bytes, fds) = sealed();
        bytes[at] = to;
        read(&bytes, fds)
    };
    assert_eq!(spoilt(0, b'X'), refused("it has an impossible beginning"));
    assert_eq!(spoilt(8, 2), refused("it has an impossible version"));
    // Behind the beginning, the length of a name, that, and whether it may be passed over.
    assert_eq!(spoilt(8 + 2 + 4 + 4 + 4, 7), refused("it has an impossible truth"));
    let (mut bytes, mut fds) = sealed();
    fds.push(pipe("d"));
    assert_eq!(read(&bytes, fds), refused("it has an impossible number of descriptors"));
    let (_, mut fds) = sealed();
    fds.pop();
    assert_eq!(read(&bytes, fds), refused("it has an impossible number of descriptors"));
    bytes.push(0);
    assert_eq!(read(&bytes, sealed().1), refused("it has an impossible length"));
    let twice = Envelope::default().with(Name(Bytes::default()), vec![]);
    let twice = twice.with(Name(Bytes::default()), vec![]).seal().expect("there is memory");
    let bytes = memory::read(&twice.0.fd(), twice.1).expect("it is ours");
    assert_eq!(read(&bytes, vec![]), refused("it has an impossible name twice"));
}

/// What the first release with sections has sealed. It is read for ever; what is there is not
/// written again.
#[test]
fn the_envelope_of_the_first_release_with_sections_is_read() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../../tests/fixtures/hand_over_1/envelope");
    let (bytes, fds) = sealed();
    if !path.exists() && std::env::var_os("WRITE_HAND_OVER_FIXTURE").is_some() {
        std::fs::write(&path, bytes).expect("written");
    }
    let bytes = std::fs::read(path).expect("it was written");
    let mut envelope = Envelope::open(&bytes, fds).expect("the first version");
    let (Name(name), fds) = envelope.take().expect("it is there");
    assert_eq!((&**name, words(fds)), (&b"old"[..], "ab".to_owned()));
    assert_eq!(envelope.end(), Ok(vec!["weather".to_owned()]));
}

//! Every order of events, with either side killed, slow, or failing at every step: the players have
//! one owner, and an owner that lives serves them.

use std::collections::{HashSet, VecDeque};

use super::*;

/// Two processes and what the kernel holds between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact that a death may leave as it is")]
struct World {
    giver: Process,
    taker: Process,
    /// What is queued for each.
    to_giver: VecDeque<Said>,
    to_taker: VecDeque<Said>,
    door_is_shut: bool,
    /// Parts that were written ahead.
    copies: u8,
    /// Parts of the rest.
    parts: u8,
    /// The state was queued for the taker, whole.
    is_given: bool,
    /// The giver runs its workers.
    giver_serves: bool,
    /// The taker runs its own.
    taker_serves: bool,
    /// Steps that may still fail, kills and delays that may still happen.
    mishaps: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    at: u8,
    is_alive: bool,
    is_done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    Hello,
    Welcome,
    Prepared,
    Sockets,
    Early,
    Ahead,
    Read,
    Given,
    Rest,
    Last,
    Taken,
    TakenBack,
    Refused,
}

impl Said {
    fn message(self) -> Message {
        let rest = |is_last| Message::Rest { shared_bytes: 0, worker_bytes: Vec::new(), is_last };
        match self {
            Self::Hello => Message::hello(),
            Self::Welcome => Message::Welcome { facts_bytes: 0, sections: true },
            Self::Prepared => Message::Prepared,
            Self::Sockets => Message::Sockets,
            Self::Early => Message::Early { early_bytes: 0 },
            Self::Ahead => Message::Ahead { shared_bytes: 0, worker_bytes: Vec::new() },
            Self::Read => Message::Read,
            Self::Given => Message::Given { given_bytes: 0 },
            Self::Rest => rest(false),
            Self::Last => rest(true),
            Self::Taken => Message::Taken,
            Self::TakenBack => Message::TakenBack,
            Self::Refused => Message::refused(&"no"),
        }
    }
}

/// What has come, if anything has.
type Heard = Result<Said, Silence>;

trait Hears {
    type Step;
    fn hear_said(&mut self, heard: Heard) -> Self::Step;
}

impl Hears for Giver {
    type Step = GiverStep;

    fn hear_said(&mut self, heard: Heard) -> GiverStep {
        self.hear(heard.map(Said::message).as_ref().map_err(|why| *why))
    }
}

impl Hears for Taker {
    type Step = TakerStep;

    fn hear_said(&mut self, heard: Heard) -> TakerStep {
        self.hear(heard.map(Said::message).as_ref().map_err(|why| *why))
    }
}

fn name(heard: Heard) -> String {
    heard.map_or_else(|why| format!("{why:?}"), |said| format!("{said:?}"))
}

/// A moment of the exploration: the world, both machines, and what each does next.
#[derive(Clone, Debug)]
struct Moment {
    world: World,
    giver: Giver,
    giver_step: GiverStep,
    taker: Taker,
    taker_step: TakerStep,
    trace: Vec<String>,
}

impl Moment {
    fn start(mishaps: u8) -> Self {
        let (giver, giver_step) = Giver::new();
        let (taker, taker_step) = Taker::new();
        let process = Process { at: 0, is_alive: true, is_done: false };
        let world = World {
            giver: process,
            taker: process,
            to_giver: VecDeque::new(),
            to_taker: VecDeque::new(),
            door_is_shut: false,
            copies: 0,
            parts: 0,
            is_given: false,
            giver_serves: true,
            taker_serves: false,
            mishaps,
        };
        Self { world, giver, giver_step, taker, taker_step, trace: Vec::new() }
    }

    fn key(&self) -> String {
        format!(
            "{:?}{:?}{:?}{:?}{:?}",
            self.world, self.giver, self.giver_step, self.taker, self.taker_step
        )
    }

    fn with(&self, what: impl Into<String>, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        next.trace.push(what.into());
        change(&mut next);
        next
    }

    fn mishap(&self, what: &str, change: impl FnOnce(&mut Self)) -> Option<Self> {
        (self.world.mishaps > 0).then(|| {
            self.with(what, |next| {
                next.world.mishaps -= 1;
                change(next);
            })
        })
    }

    fn say_to_taker(&mut self, said: Said) -> bool {
        if self.world.taker.is_alive {
            self.world.to_taker.push_back(said);
        }
        self.world.taker.is_alive
    }

    fn say_to_giver(&mut self, said: Said) -> bool {
        let gets_in = self.world.giver.is_alive && !self.world.door_is_shut;
        if gets_in {
            self.world.to_giver.push_back(said);
        }
        gets_in
    }

    /// Everything that may happen next.
    fn nexts(&self) -> Vec<Self> {
        let mut nexts = Vec::new();
        if self.world.giver.is_alive {
            nexts.extend(self.mishap("the predecessor is killed", |next| {
                next.world.giver.is_alive = false;
                next.world.giver_serves = false;
            }));
            nexts.extend(self.giver_nexts());
        }
        if self.world.taker.is_alive {
            nexts.extend(self.mishap("the successor is killed", |next| {
                next.world.taker.is_alive = false;
                next.world.taker_serves = false;
            }));
            nexts.extend(self.taker_nexts());
        }
        nexts
    }

    fn giver_hears(&self, heard: Heard) -> Self {
        self.with(format!("predecessor hears {}", name(heard)), |next| {
            next.giver_step = next.giver.hear_said(heard);
        })
    }

    fn giver_did(&self, well: bool, change: impl FnOnce(&mut Self)) -> Self {
        self.with(format!("predecessor did {:?}: {well}", self.giver_step), |next| {
            change(next);
            next.giver_step = next.giver.did(well);
        })
    }

    fn giver_nexts(&self) -> Vec<Self> {
        let mut nexts = Vec::new();
        match self.giver_step {
            GiverStep::Wait(_) => match self.world.to_giver.front() {
                Some(said) => {
                    let mut next = self.giver_hears(Ok(*said));
                    next.world.to_giver.pop_front();
                    nexts.push(next);
                }
                None if !self.world.taker.is_alive => {
                    nexts.push(self.giver_hears(Err(Silence::Gone)));
                }
                None => nexts.extend(self.mishap("it takes long", |next| {
                    next.giver_step = next.giver.hear_said(Err(Silence::Late));
                })),
            },
            GiverStep::Welcome => {
                let mut next = self.clone();
                let well = next.say_to_taker(Said::Welcome);
                nexts.push(next.giver_did(well, |_| {}));
                nexts.extend(self.mishap("it does not like the hello", |next| {
                    next.giver_step = next.giver.did(false);
                }));
            }
            GiverStep::Lend => {
                let mut next = self.clone();
                let well = next.say_to_taker(Said::Sockets) && next.say_to_taker(Said::Early);
                nexts.push(next.giver_did(well, |_| {}));
                nexts.extend(self.mishap("a reload has come in between", |next| {
                    next.giver_step = next.giver.did(false);
                }));
            }
            GiverStep::Copy if self.world.copies == 2 => {
                nexts.push(self.with("enough was copied", |next| {
                    next.giver_step = next.giver.enough();
                }));
            }
            GiverStep::Copy => {
                let mut next = self.clone();
                next.world.copies += 1;
                let well = next.say_to_taker(Said::Ahead);
                nexts.push(next.giver_did(well, |_| {}));
                nexts.extend(self.mishap("a worker does not write", |next| {
                    next.giver_step = next.giver.did(false);
                }));
            }
            GiverStep::Freeze => {
                nexts.push(self.giver_did(true, |next| next.world.giver_serves = false));
                nexts.extend(self.mishap("a worker does not come", |next| {
                    next.giver_step = next.giver.did(false);
                }));
            }
            GiverStep::Give => nexts.extend(self.gives()),
            GiverStep::ShutDoor => nexts.push(self.with("the door is shut", |next| {
                next.world.door_is_shut = true;
                let is_taken = next.world.to_giver.contains(&Said::Taken);
                next.world.to_giver.clear();
                next.giver_step = next.giver.hear_said(if is_taken {
                    Ok(Said::Taken)
                } else {
                    Err(Silence::Gone)
                });
            })),
            GiverStep::TakeBack => nexts.push(self.giver_did(true, |next| {
                next.say_to_taker(Said::TakenBack);
            })),
            GiverStep::Resume if !self.world.giver.is_done => {
                nexts.push(self.with("the predecessor resumes", |next| {
                    next.world.giver_serves = true;
                    next.world.giver.is_done = true;
                    next.say_to_taker(Said::Refused);
                }));
            }
            GiverStep::Leave => nexts.push(self.with("the predecessor leaves", |next| {
                next.world.giver.is_alive = false;
            })),
            GiverStep::Part if !self.world.giver.is_done => {
                nexts.push(self.with("the predecessor parts", |next| {
                    next.world.giver.is_done = true;
                    next.say_to_taker(Said::Refused);
                }));
            }
            GiverStep::Resume | GiverStep::Part => {}
        }
        nexts
    }

    /// The rest goes in two parts, the first of them behind sockets and rows.
    fn gives(&self) -> Vec<Self> {
        let mut nexts = Vec::new();
        if self.world.parts == 0 {
            nexts.push(self.with("predecessor did Give: more", |next| {
                next.world.parts += 1;
                for said in [Said::Sockets, Said::Given, Said::Rest] {
                    next.say_to_taker(said);
                }
                next.giver_step = next.giver.more();
            }));
        } else {
            nexts.push(self.giver_did(true, |next| {
                next.say_to_taker(Said::Last);
                next.world.is_given = true;
            }));
            nexts.extend(self.mishap("it gives all and thinks it has not", |next| {
                next.say_to_taker(Said::Last);
                next.world.is_given = true;
                next.giver_step = next.giver.did(false);
            }));
        }
        nexts.extend(self.mishap("it gives half", |next| {
            next.say_to_taker(Said::Sockets);
            next.giver_step = next.giver.did(false);
        }));
        nexts
    }

    fn taker_did(&self, well: bool, change: impl FnOnce(&mut Self)) -> Self {
        self.with(format!("successor did {:?}: {well}", self.taker_step), |next| {
            change(next);
            next.taker_step = next.taker.did(well);
        })
    }

    fn taker_nexts(&self) -> Vec<Self> {
        let mut nexts = Vec::new();
        let hears = |heard: Heard| {
            self.with(format!("successor hears {}", name(heard)), |next| {
                next.taker_step = next.taker.hear_said(heard);
            })
        };
        let says = |said: Said| {
            let mut next = self.clone();
            let well = next.say_to_giver(said);
            next.taker_did(well, |_| {})
        };
        match self.taker_step {
            TakerStep::Wait(_) => match self.world.to_taker.front() {
                Some(said) => {
                    let mut next = hears(Ok(*said));
                    next.world.to_taker.pop_front();
                    nexts.push(next);
                }
                None if !self.world.giver.is_alive => nexts.push(hears(Err(Silence::Gone))),
                None => nexts.extend(self.mishap("it takes long", |next| {
                    next.taker_step = next.taker.hear_said(Err(Silence::Late));
                })),
            },
            TakerStep::Hello => nexts.push(says(Said::Hello)),
            TakerStep::SayPrepared => nexts.push(says(Said::Prepared)),
            TakerStep::SayRead => nexts.push(says(Said::Read)),
            TakerStep::Take => nexts.push(says(Said::Taken)),
            TakerStep::Prepare | TakerStep::Read | TakerStep::ReadRest | TakerStep::Import => {
                nexts.push(self.taker_did(true, |_| {}));
                nexts.extend(self.mishap("that cannot be done", |next| {
                    next.taker_step = next.taker.did(false);
                }));
            }
            TakerStep::Serve if !self.world.taker_serves => {
                nexts.push(self.with("the successor serves", |next| {
                    assert!(next.world.is_given, "{:#?}", next.trace);
                    next.world.taker_serves = true;
                }));
            }
            TakerStep::StartAfresh if !self.world.taker_serves => {
                nexts.push(self.with("the successor starts afresh", |next| {
                    next.world.taker_serves = true;
                }));
            }
            TakerStep::Serve | TakerStep::StartAfresh => {}
            TakerStep::Exit => nexts.push(self.with("the successor exits", |next| {
                next.say_to_giver(Said::Refused);
                next.world.taker.is_alive = false;
            })),
        }
        nexts
    }

    fn is_dead(&self, what: &str) -> bool {
        self.trace.iter().any(|step| step == what)
    }

    /// Holds at every moment.
    fn check_always(&self) {
        let World { giver_serves, taker_serves, .. } = self.world;
        assert!(!(giver_serves && taker_serves), "both serve: {:#?}", self.trace);
    }

    /// Holds when nothing more happens.
    fn check_at_the_end(&self) {
        let World { giver_serves, taker_serves, .. } = self.world;
        let giver_was_killed = self.is_dead("the predecessor is killed");
        let taker_was_killed = self.is_dead("the successor is killed");
        let somebody = giver_serves || taker_serves;
        if !giver_was_killed && !taker_was_killed {
            assert!(somebody, "both live, and nobody serves: {:#?}", self.trace);
        }
        if !giver_was_killed && taker_was_killed {
            let had_taken = self.is_dead("the predecessor leaves");
            assert!(giver_serves || had_taken, "the owner lives and is idle: {:#?}", self.trace);
        }
        if giver_was_killed && !taker_was_killed {
            let has_exited = self.is_dead("the successor exits");
            assert!(taker_serves || has_exited, "it waits for the dead: {:#?}", self.trace);
            let last_said = self.trace.iter().any(|step| {
                step == "successor hears TakenBack" || step == "successor hears Refused"
            });
            let has_trouble = self.trace.iter().any(|step| {
                step == "that cannot be done" || step == "it takes long" || step == "time passes"
            });
            let may_exit = last_said || has_trouble;
            assert!(taker_serves || may_exit, "it gives up for nothing: {:#?}", self.trace);
        }
    }
}

fn explore(mishaps: u8) -> (usize, usize) {
    let mut seen = HashSet::new();
    let mut open = vec![Moment::start(mishaps)];
    let mut ends = 0;
    while let Some(moment) = open.pop() {
        // The trace decides what is said of a death, so it is a part of what is told apart.
        let deaths =
            ["the predecessor is killed", "the successor is killed", "the predecessor leaves"];
        let fate = deaths.map(|death| moment.is_dead(death));
        if !seen.insert((moment.key(), fate)) {
            continue;
        }
        moment.check_always();
        // What can only happen by mishap need not happen.
        let nexts = moment.nexts();
        let calm = |next: &&Moment| next.world.mishaps == moment.world.mishaps;
        if nexts.iter().filter(calm).count() == 0 {
            let waits = |alive: bool, is_wait: bool| alive && is_wait;
            let giver_waits =
                waits(moment.world.giver.is_alive, matches!(moment.giver_step, GiverStep::Wait(_)));
            let taker_waits =
                waits(moment.world.taker.is_alive, matches!(moment.taker_step, TakerStep::Wait(_)));
            // Two that wait for each other go on when their time is over, with no mishap left, too.
            if giver_waits || taker_waits {
                let mut next = moment.clone();
                if giver_waits {
                    next.giver_step = next.giver.hear_said(Err(Silence::Late));
                } else {
                    next.taker_step = next.taker.hear_said(Err(Silence::Late));
                }
                next.trace.push("time passes".to_owned());
                open.push(next);
            } else {
                ends += 1;
                moment.check_at_the_end();
            }
        }
        open.extend(nexts);
    }
    (seen.len(), ends)
}

#[test]
fn without_mishap_the_successor_serves_and_the_predecessor_leaves() {
    let (_, ends) = explore(0);
    assert_eq!(ends, 1, "there is one way to the end of it");
}

#[test]
fn one_owner_whoever_dies_fails_or_is_slow_at_whichever_step() {
    let (moments, ends) = explore(2);
    assert!(moments > 300 && ends > 30, "{moments} moments, {ends} ends");
}

#[test]
fn a_stranger_is_parted_from_before_anything_is_frozen() {
    for word in [
        Ok(Said::Taken),
        Ok(Said::Prepared),
        Err(Silence::Nonsense),
        Err(Silence::Gone),
        Err(Silence::Late),
    ] {
        let (mut giver, _) = Giver::new();
        assert_eq!(giver.hear_said(word), GiverStep::Part, "{word:?}");
    }
    let (mut giver, _) = Giver::new();
    assert_eq!(giver.hear_said(Ok(Said::Hello)), GiverStep::Welcome);
    assert!(matches!(giver.did(true), GiverStep::Wait(_)));
    assert_eq!(giver.hear_said(Ok(Said::Taken)), GiverStep::Part, "nothing was given yet");
}

#[test]
fn nothing_is_frozen_before_enough_was_copied_and_read() {
    let copying = || {
        let (mut giver, _) = Giver::new();
        giver.hear_said(Ok(Said::Hello));
        giver.did(true);
        assert_eq!(giver.hear_said(Ok(Said::Prepared)), GiverStep::Lend);
        assert_eq!(giver.did(true), GiverStep::Copy);
        giver
    };
    let mut giver = copying();
    assert!(matches!(giver.did(true), GiverStep::Wait(_)));
    assert_eq!(giver.hear_said(Ok(Said::Read)), GiverStep::Copy);
    assert_eq!(giver.enough(), GiverStep::Freeze);
    for word in [Ok(Said::Taken), Ok(Said::Prepared), Err(Silence::Gone), Err(Silence::Late)] {
        let mut giver = copying();
        assert!(matches!(giver.did(true), GiverStep::Wait(_)));
        assert_eq!(giver.hear_said(word), GiverStep::Part, "{word:?}");
    }
}

#[test]
fn nobody_takes_a_part_and_the_next_one_waits_until_it_was_read() {
    let given_in_part = || {
        let (mut giver, _) = Giver::new();
        giver.hear_said(Ok(Said::Hello));
        giver.did(true);
        giver.hear_said(Ok(Said::Prepared));
        giver.did(true);
        assert_eq!(giver.enough(), GiverStep::Freeze);
        assert_eq!(giver.did(true), GiverStep::Give);
        assert!(matches!(giver.more(), GiverStep::Wait(_)));
        giver
    };
    assert_eq!(given_in_part().hear_said(Ok(Said::Read)), GiverStep::Give);
    for word in [
        Ok(Said::Taken),
        Ok(Said::Prepared),
        Err(Silence::Gone),
        Err(Silence::Late),
        Ok(Said::Refused),
    ] {
        let mut giver = given_in_part();
        assert_eq!(giver.hear_said(word), GiverStep::TakeBack, "{word:?}");
        assert_eq!(giver.did(true), GiverStep::Resume);
    }
}

#[test]
fn a_successor_believes_nobody_who_speaks_out_of_turn() {
    for word in [
        Ok(Said::Given),
        Ok(Said::Last),
        Ok(Said::TakenBack),
        Ok(Said::Sockets),
        Err(Silence::Nonsense),
        Err(Silence::Late),
    ] {
        let (mut taker, _) = Taker::new();
        let _ = taker.did(true);
        assert_eq!(taker.hear_said(word), TakerStep::Exit, "{word:?}");
    }
}

//! Slots of a game process that several gateways lead to, while links, gateways and the agent
//! itself come and go.

use proptest::prelude::*;

use super::*;

const NAME: &str = "arena-1";
const MS: u64 = NS_PER_MS;
const GRACE_MS: u32 = 20_000;

fn gateway(number: usize) -> Arc<str> {
    Arc::from(["gate-1:7200", "gate-2:7200"][number])
}

fn both() -> [&'static str; 2] {
    ["gate-1:7200", "gate-2:7200"]
}

/// With so many slots, and nobody there.
fn rolls(slots: u32) -> Rolls {
    let rolls = Rolls::default();
    rolls.set_slots([(NAME, slots)]);
    (0..2).for_each(|number| rolls.hear(NAME, &gateway(number), 0, GRACE_MS));
    rolls
}

fn used(rolls: &Rolls, name: &str, gateways: &[&str]) -> Option<u32> {
    rolls.used(name, gateways).map(|used| used.all)
}

fn open(rolls: &Rolls, number: usize, count: u32) -> u32 {
    (0..count).filter(|_| rolls.open(NAME, &gateway(number))).count() as u32
}

#[test]
fn all_gateways_share_the_slots() {
    let rolls = rolls(10);
    assert_eq!([open(&rolls, 0, 6), open(&rolls, 1, 6)], [6, 4]);
    assert_eq!((used(&rolls, NAME, &both()), rolls.refused()), (Some(10), [2, 0]));
    rolls.close(NAME, &gateway(0));
    assert_eq!(open(&rolls, 1, 2), 1);
    // Nobody is sent away where there are fewer slots than before, and nobody comes.
    rolls.set_slots([(NAME, 4)]);
    assert_eq!((used(&rolls, NAME, &both()), open(&rolls, 0, 1)), (Some(10), 0));
    rolls.set_slots([]);
    assert_eq!(open(&rolls, 0, 5), 5, "the gateways' word is enough");
}

#[test]
fn who_waits_at_a_gateway_keeps_the_slot_through_the_grace_time() {
    let rolls = rolls(10);
    assert_eq!([open(&rolls, 0, 6), open(&rolls, 1, 1)], [6, 1]);
    rolls.lose(NAME, &gateway(0), 6);
    rolls.keep(0, &both());
    assert_eq!((used(&rolls, NAME, &both()), open(&rolls, 1, 9)), (Some(7), 3));
    assert_eq!(rolls.used(NAME, &both()), Some(Used { all: 10, waiting: 6 }));
    // One has left meanwhile. Those who wait come back, whoever else wants to come.
    rolls.hear(NAME, &gateway(0), 5, GRACE_MS);
    rolls.keep(100 * MS, &both());
    assert_eq!(open(&rolls, 0, 3), 3);
    assert_eq!((used(&rolls, NAME, &both()), open(&rolls, 1, 9)), (Some(9), 1));
    assert_eq!(open(&rolls, 0, 2), 2);
    assert_eq!((used(&rolls, NAME, &both()), open(&rolls, 0, 1)), (Some(10), 0));

    rolls.lose(NAME, &gateway(0), 5);
    rolls.keep(1000 * MS, &both());
    rolls.keep((1000 + u64::from(GRACE_MS) + NOTICED_WITHIN_MS - 1) * MS, &both());
    assert_eq!(used(&rolls, NAME, &both()), Some(10));
    rolls.keep((1000 + u64::from(GRACE_MS) + NOTICED_WITHIN_MS) * MS, &both());
    assert_eq!(used(&rolls, NAME, &both()), Some(5), "they have given up by now");
}

#[test]
fn whoever_is_not_announced_in_time_is_not_there() {
    let rolls = rolls(10);
    rolls.hear(NAME, &gateway(0), 4, GRACE_MS);
    rolls.keep(0, &both());
    assert_eq!((open(&rolls, 0, 3), used(&rolls, NAME, &both())), (3, Some(4)));
    rolls.close(NAME, &gateway(0));
    assert_eq!(used(&rolls, NAME, &both()), Some(3));
    rolls.keep(ANNOUNCED_WITHIN_MS * MS, &both());
    assert_eq!(used(&rolls, NAME, &both()), Some(2));
}

#[test]
fn links_that_are_lost_one_after_the_other_count_each_player_once() {
    let rolls = rolls(10);
    assert_eq!(open(&rolls, 0, 8), 8);
    // Of its two workers, one had five.
    rolls.lose(NAME, &gateway(0), 5);
    assert_eq!(used(&rolls, NAME, &both()), Some(8));
    rolls.lose(NAME, &gateway(0), 3);
    assert_eq!(used(&rolls, NAME, &both()), Some(8));
    rolls.hear(NAME, &gateway(0), 8, GRACE_MS);
    assert_eq!((open(&rolls, 0, 5), used(&rolls, NAME, &both())), (5, Some(8)));
    // And again before all were announced.
    rolls.keep(0, &both());
    rolls.lose(NAME, &gateway(0), 0);
    rolls.keep(MS, &both());
    rolls.keep(u64::from(GRACE_MS) * MS, &both());
    assert_eq!(used(&rolls, NAME, &both()), Some(8));
}

#[test]
fn an_agent_that_has_just_started_takes_every_server_for_full() {
    let rolls = Rolls::default();
    rolls.start(7);
    assert_eq!(used(&rolls, NAME, &[]), None, "no gateway is known");
    assert_eq!(used(&rolls, NAME, &both()), None);
    rolls.hear(NAME, &gateway(0), 3, 1000);
    assert_eq!(used(&rolls, NAME, &both()), None, "the other one has not told");
    assert_eq!(used(&rolls, "arena-2", &both()[..1]), None);
    rolls.hear(NAME, &gateway(1), 2, 1000);
    assert_eq!(used(&rolls, NAME, &both()), Some(5));
    rolls.keep(7, &both());
    assert_eq!(used(&rolls, NAME, &[]), Some(5), "it was known, and nobody comes unseen");
    // Of one that says nothing nobody waits for longer than this.
    let until_ns = 7 + (u64::from(GRACE_UNTOLD_MS) + NOTICED_WITHIN_MS) * MS;
    rolls.keep(until_ns - 1, &both());
    assert_eq!(used(&rolls, "arena-2", &both()), None);
    rolls.keep(until_ns, &both());
    assert_eq!(used(&rolls, "arena-2", &both()), Some(0));

    // One gateway's grace time is the best guess for another's.
    let rolls = Rolls::default();
    rolls.start(0);
    rolls.keep(u64::MAX, &[]);
    assert_eq!(used(&rolls, NAME, &both()), None, "nobody knows how long players wait");
    rolls.hear(NAME, &gateway(0), 3, GRACE_MS);
    rolls.keep((u64::from(GRACE_MS) + NOTICED_WITHIN_MS) * MS - 1, &both());
    assert_eq!(used(&rolls, "arena-2", &both()), None);
    rolls.keep((u64::from(GRACE_MS) + NOTICED_WITHIN_MS) * MS, &both());
    assert_eq!(used(&rolls, "arena-2", &both()), Some(0));
}

#[test]
fn another_process_goes_on_counting() {
    let before = rolls(10);
    assert_eq!([open(&before, 0, 6), open(&before, 1, 2)], [6, 2]);
    before.lose(NAME, &gateway(0), 6);
    before.keep(0, &both());
    before.start(0);
    let handed = before.hand_over(2000 * MS);
    let after = Rolls::default();
    after.set_slots([(NAME, 10)]);
    // Its clock is another one.
    let now_ns = 50_000 * MS;
    after.go_on(NAME, &gateway(1), 2);
    after.inherit(&handed, now_ns);
    assert_eq!((used(&after, NAME, &both()), open(&after, 1, 9)), (Some(8), 2));
    assert_eq!((used(&after, NAME, &[]), used(&after, "arena-2", &both())), (Some(10), None));
    let left_ms = u64::from(GRACE_MS) + NOTICED_WITHIN_MS - 2000;
    after.keep(now_ns + (left_ms - 1) * MS, &both());
    assert_eq!((used(&after, NAME, &both()), used(&after, "arena-2", &both())), (Some(10), None));
    after.keep(now_ns + left_ms * MS, &both());
    assert_eq!((used(&after, NAME, &both()), used(&after, "arena-2", &both())), (Some(4), Some(0)));
    assert_eq!(after.hand_over(0).refused, 7);
}

#[test]
fn nothing_stays_of_game_processes_and_gateways_that_are_gone() {
    let rolls = rolls(10);
    rolls.inherit(&Handed::default(), 0);
    assert_eq!(open(&rolls, 0, 1), 1);
    rolls.set_slots([("arena-2", 5)]);
    rolls.keep(0, &both()[1..]);
    assert_eq!(lock(&rolls.all).rolls[NAME].gateways.len(), 2, "a player is there");
    rolls.close(NAME, &gateway(0));
    rolls.keep(1, &both()[1..]);
    let names: Vec<_> = lock(&rolls.all).rolls.keys().cloned().collect();
    assert_eq!(names, ["arena-2"]);
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    /// A player comes to a gateway that leads there.
    Comes(usize),
    /// One leaves.
    Leaves(usize),
    /// The link is lost; the gateway's players wait.
    Cut(usize),
    /// It is back, and so many are announced.
    Back(usize, u32),
    /// So many more are.
    Announced(usize, u32),
    /// The agent is killed, and another one starts.
    Killed,
    /// Seconds pass.
    Time(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    let at = 0_usize..2;
    prop_oneof![
        6 => at.clone().prop_map(Happens::Comes),
        2 => at.clone().prop_map(Happens::Leaves),
        1 => at.clone().prop_map(Happens::Cut),
        3 => (at.clone(), 0_u32..4).prop_map(|(at, count)| Happens::Back(at, count)),
        3 => (at, 0_u32..4).prop_map(|(at, count)| Happens::Announced(at, count)),
        1 => Just(Happens::Killed),
        1 => (1_u64..8).prop_map(Happens::Time),
    ]
}

/// A gateway: who plays there, who of them the game process knows, and whether a link leads there.
#[derive(Clone, Copy, Default)]
struct Side {
    players: u32,
    announced: u32,
    is_linked: bool,
    lost_s: u64,
}

/// What is as it is in a fleet: token services send players for whom the fleet says that there is a
/// slot, and so no gateway is ever asked to let in more.
struct World {
    rolls: Rolls,
    sides: [Side; 2],
    now_s: u64,
    slots: u32,
    /// Whether nobody whose slot was kept was ever sent away.
    is_kept: bool,
}

impl World {
    fn new(slots: u32) -> Self {
        let sides = [Side { is_linked: true, ..Side::default() }; 2];
        Self { rolls: rolls(slots), sides, now_s: 0, slots, is_kept: true }
    }

    fn announced(&self) -> u32 {
        self.sides.iter().map(|side| side.announced).sum()
    }

    fn step(&mut self, what: Happens) {
        match what {
            Happens::Comes(at) => {
                let used = used(&self.rolls, NAME, &both()).unwrap_or(self.slots);
                let is_full = used >= self.slots;
                let side = &mut self.sides[at];
                if side.is_linked && side.announced == side.players && !is_full {
                    self.is_kept &= self.rolls.open(NAME, &gateway(at));
                    (side.players, side.announced) = (side.players + 1, side.announced + 1);
                }
            }
            Happens::Leaves(at) => {
                let side = &mut self.sides[at];
                if side.is_linked && side.announced > 0 {
                    self.rolls.close(NAME, &gateway(at));
                    (side.players, side.announced) = (side.players - 1, side.announced - 1);
                } else {
                    side.players -= u32::from(side.players > side.announced);
                }
            }
            Happens::Cut(at) => {
                let side = &mut self.sides[at];
                if std::mem::take(&mut side.is_linked) {
                    self.rolls.lose(NAME, &gateway(at), side.announced);
                    (side.announced, side.lost_s) = (0, self.now_s);
                }
            }
            Happens::Back(at, count) => {
                let side = &mut self.sides[at];
                if !std::mem::replace(&mut side.is_linked, true) {
                    self.rolls.hear(NAME, &gateway(at), side.players, GRACE_MS);
                }
                self.announce(at, count);
            }
            Happens::Announced(at, count) => self.announce(at, count),
            Happens::Killed => {
                self.rolls = Rolls::default();
                self.rolls.set_slots([(NAME, self.slots)]);
                self.rolls.start(self.now_s * 1000 * MS);
                self.rolls.set_grace(GRACE_MS);
                for side in &mut self.sides {
                    if std::mem::take(&mut side.is_linked) {
                        side.lost_s = self.now_s;
                    }
                    side.announced = 0;
                }
            }
            Happens::Time(seconds) => self.pass(seconds),
        }
    }

    fn announce(&mut self, at: usize, count: u32) {
        let side = &mut self.sides[at];
        for _ in 0..count {
            if side.is_linked && side.announced < side.players {
                self.is_kept &= self.rolls.open(NAME, &gateway(at));
                side.announced += 1;
            }
        }
    }

    /// Whoever is linked is announced within seconds, and whoever waits gives up after the grace
    /// time.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now_s += 1;
            self.rolls.keep(self.now_s * 1000 * MS, &both());
            for at in 0..2 {
                if self.sides[at].is_linked {
                    self.announce(at, 2);
                } else if self.now_s >= self.sides[at].lost_s + u64::from(GRACE_MS / 1000) {
                    self.sides[at].players = 0;
                }
            }
        }
        self.rolls.keep(self.now_s * 1000 * MS, &both());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_server_gets_more_players_than_slots_and_whoever_waits_comes_back(
        slots in 1_u32..12, all in proptest::collection::vec(happens(), 1..120),
    ) {
        let mut world = World::new(slots);
        for what in all {
            world.step(what);
            prop_assert!(world.announced() <= slots, "after {what:?}");
            prop_assert!(world.is_kept, "{what:?}: one was sent away");
        }
    }

    #[test]
    fn gateways_that_believe_nothing_overfill_no_server(
        slots in 1_u32..6, all in proptest::collection::vec(happens(), 1..120),
    ) {
        let mut world = World::new(slots);
        for what in all {
            // Whoever comes, comes: each gateway counts for itself.
            if let Happens::Comes(at) = what
                && world.sides[at].is_linked
                && world.sides[at].players < slots
                && world.rolls.open(NAME, &gateway(at))
            {
                world.sides[at].players += 1;
                world.sides[at].announced += 1;
            } else if let Happens::Announced(at, _) | Happens::Back(at, _) = what {
                let side = &mut world.sides[at];
                if !std::mem::replace(&mut side.is_linked, true) {
                    world.rolls.hear(NAME, &gateway(at), side.players, GRACE_MS);
                }
                // Whom the agent sends away the gateway lets go.
                let side = &mut world.sides[at];
                while side.announced < side.players {
                    if world.rolls.open(NAME, &gateway(at)) {
                        side.announced += 1;
                    } else {
                        side.players -= 1;
                    }
                }
            } else if !matches!(what, Happens::Time(_)) {
                world.step(what);
            }
            prop_assert!(world.announced() <= slots, "after {what:?}");
        }
    }
}

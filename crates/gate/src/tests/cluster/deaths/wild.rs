//! Everything at once: gateways die, sleep and leave while links and members are cut off, and
//! sessions are ended meanwhile, by operators and by their players.
//!
//! What a gateway has ended stays ended, from when the agent could hear of it. Once all is whole
//! again, each player who has a session has one gateway, and those who are over have none.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::super::clients::{Library, Player};
use super::{GATES, State, World, playing, seeds};
use crate::counters::Ended;
use crate::mail::Mail;
use crate::survey::{Survey, Wanted};
use ringgate_core::netcode::Client;

/// A session that is to be over.
#[derive(Clone, Copy, Debug)]
struct Ending {
    number: usize,
    name: u64,
    /// The gateway that knows, and since when the agent could have heard of it.
    known: Option<(usize, u64)>,
    since: u64,
}

struct Wild {
    world: World<Client>,
    seed: u64,
    endings: Vec<Ending>,
    /// The agent has heard of their ends.
    over: BTreeSet<u64>,
    left: [u64; GATES],
    /// Which gateways have had the sessions that are to be over.
    had: BTreeSet<(usize, u64)>,
    next_name: u64,
    lost: usize,
}

impl Wild {
    fn new(seed: u64) -> Self {
        let world = playing(seed);
        let next_name = 1 + *world.names.iter().max().expect("there are players");
        let (endings, over) = (Vec::new(), BTreeSet::new());
        Self {
            world,
            seed,
            endings,
            over,
            left: [0; GATES],
            had: BTreeSet::new(),
            next_name,
            lost: 0,
        }
    }

    fn turn(&mut self, speaks: bool) {
        self.world.turn(speaks);
        self.nobody_who_is_over_is_heard();
        self.notice_who_has_left();
        self.settle();
    }

    fn client(&self, number: usize) -> u64 {
        self.world.names[number]
    }

    /// The gateway that has a player's session and takes turns.
    fn gate_of(&self, number: usize) -> Option<usize> {
        (0..GATES).find(|at| self.world.is_up(*at) && self.has(*at, number, self.client(number)))
    }

    fn has(&self, at: usize, number: usize, client: u64) -> bool {
        let mut homes = (0..4).map(|it| self.world.players[number].home.with_port(5000 + it));
        let rigs = &self.world.gates[at].rigs;
        homes.any(|home| rigs.iter().any(|rig| rig.host.gate().client_at(home) == Some(client)))
    }

    /// Players who have said goodbye, and whose gateways have heard it.
    fn notice_who_has_left(&mut self) {
        for at in 0..GATES {
            let rigs = self.world.gates[at].rigs.iter();
            let left: u64 =
                rigs.map(|it| it.counters().sessions_closed[Ended::ByPlayer as usize]).sum();
            if std::mem::replace(&mut self.left[at], left) >= left {
                continue;
            }
            for it in 0..self.endings.len() {
                let Ending { number, name, known, .. } = self.endings[it];
                let had = self.had.contains(&(at, name)) && !self.has(at, number, name);
                if known.is_none() && had {
                    self.endings[it].known = Some((at, self.world.step));
                }
            }
        }
        let all = self.endings.iter().flat_map(|it| (0..GATES).map(move |at| (at, it)));
        let has = all.filter(|(at, it)| self.has(*at, it.number, it.name));
        self.had = has.map(|(at, it)| (at, it.name)).collect();
    }

    /// What a gateway knows, the agent knows after a while in which they have been connected.
    fn settle(&mut self) {
        let Self { world, endings, over, .. } = self;
        let step = world.step;
        endings.retain_mut(|it| {
            let Some((at, since)) = &mut it.known else { return step < it.since + 600 };
            match world.states[*at] {
                // Nobody else has known.
                State::Dead(_) => return false,
                State::Up if world.agent.lanes.contains_key(&(*at, 0)) && world.is_read(*at) => {}
                State::Asleep(..) | State::Up => *since = step,
            }
            if step < *since + HEARD_WITHIN {
                return true;
            }
            over.insert(it.name);
            false
        });
    }

    fn nobody_who_is_over_is_heard(&self) {
        let Self { world, over, seed, .. } = self;
        let heard: Vec<_> = over.intersection(&world.speakers).collect();
        assert!(heard.is_empty(), "seed {seed}, step {}: {heard:?} are over", world.step);
    }

    fn kick(&mut self, number: usize) {
        let Some(at) = self.gate_of(number) else { return };
        let name = self.client(number);
        let wanted = Wanted { client_id: Some(name), ..Wanted::default() };
        let workers = self.world.gates[at].rigs.len() as u32;
        let survey = Arc::new(Survey::new(wanted, Some(Ended::ByOperator), 0, workers));
        for rig in &mut self.world.gates[at].rigs {
            rig.mail(Mail::Survey(Arc::clone(&survey)));
            (0..5).for_each(|_| rig.turn());
        }
        assert!(survey.is_done() && survey.found().count == 1, "{:?}", survey.found());
        let step = self.world.step;
        self.endings.push(Ending { number, name, known: Some((at, step)), since: step });
    }

    fn say_goodbye(&mut self, number: usize) {
        let now_ns = self.world.gates[0].rigs[0].now.mono_ns;
        let (name, since) = (self.client(number), self.world.step);
        for bytes in self.world.players[number].library.leave(now_ns) {
            self.world.send(number, &bytes);
        }
        self.endings.push(Ending { number, name, known: None, since });
    }

    fn is_ending(&self, number: usize) -> bool {
        let name = self.client(number);
        self.over.contains(&name) || self.endings.iter().any(|it| it.name == name)
    }

    /// Somebody comes in the place of a player whose session is over.
    fn come_anew(&mut self, number: usize) {
        let world = &mut self.world;
        if world.flights.iter().any(|it| it.number == number) {
            return;
        }
        let home = world.players[number].home;
        let token = world.rig(0).token(self.next_name);
        world.players[number] = Player::new(world.rig(0), home, &token);
        self.world.names[number] = self.next_name;
        self.next_name += 1;
    }

    fn live(&mut self) {
        for number in 0..self.world.players.len() {
            let library = &self.world.players[number].library;
            let (is_over, is_connected) = (library.is_over(), library.is_connected());
            let is_ending = self.is_ending(number);
            if is_over && self.world.dice.roll(100) == 0 {
                self.lost += usize::from(!is_ending);
                self.come_anew(number);
            } else if is_connected && !is_ending && self.world.dice.roll(500) == 0 {
                self.kick(number);
            } else if is_connected && !is_ending && self.world.dice.roll(1000) == 0 {
                self.say_goodbye(number);
            }
        }
    }

    fn happen(&mut self) {
        let world = &mut self.world;
        let at = world.dice.roll(GATES as u64) as usize;
        match world.dice.roll(12) {
            0 if world.is_up(at) => world.say_leaving(at),
            1 if world.is_up(at) && world.leaves[at] => world.die(at, 50),
            2 if world.is_up(at) => world.hand_back(at),
            3 if world.is_up(at) => world.upgrade(at),
            4 => world.change_ports(),
            5 => {
                let seconds = world.dice.roll(20) as i64 - 10;
                world.gates[at].rigs.iter_mut().for_each(|it| it.step_wall_clock(seconds));
            }
            _ => {
                world.happen();
            }
        }
    }

    /// All that is broken is mended, and what is recorded is sent again at each gateway.
    fn heals(&mut self) {
        let world = &mut self.world;
        for at in 0..GATES {
            if world.leaves[at] && world.is_up(at) {
                world.die(at, 50);
            }
        }
        // The longest cut, and the longest timeout.
        for _ in 0..350 + 1100 {
            self.turn(true);
        }
        for (from, bytes) in self.world.recorded.clone() {
            for at in 0..GATES {
                self.world.deliver(at, from, bytes.clone());
            }
            self.turn(true);
        }
        for _ in 0..100 {
            self.turn(true);
        }
    }

    fn all_is_whole(&mut self) {
        let Self { world, seed, .. } = &*self;
        let connected: Vec<_> = (0..world.players.len())
            .filter(|it| world.players[*it].library.is_connected())
            .collect();
        for number in &connected {
            let name = self.client(*number);
            assert!(!self.over.contains(&name), "seed {seed}: {name} is over");
            world.is_heard(*number, *seed);
        }
        let seed = self.seed;
        assert!(self.world.settles(connected.len()), "seed {seed}: each has one gateway");
    }
}

#[test]
fn whatever_happens_at_once_nothing_is_twice() {
    let (mut worlds, mut over, mut lost) = (0, 0, 0);
    for seed in seeds(100) {
        worlds += 1;
        let mut wild = Wild::new(seed);
        for _ in 0..1500 {
            if wild.world.dice.roll(60) == 0 {
                wild.happen();
            }
            if wild.world.dice.roll(10) == 0 {
                wild.world.replay();
            }
            wild.live();
            wild.turn(true);
        }
        wild.heals();
        wild.all_is_whole();
        assert!(!wild.world.heard.is_empty());
        (over, lost) = (over + wild.over.len(), lost + wild.lost);
    }
    assert!(over > worlds, "{over} were over in {worlds} worlds, and {lost} were lost");
}

/// How long an end may be on its way to the agent, in turns.
const HEARD_WITHIN: u64 = 30;

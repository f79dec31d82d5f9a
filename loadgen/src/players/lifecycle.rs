//! Who comes and who goes, and when: the plan's side of the swarm.
//!
//! Coming and going are open-loop too: a player's intended moment is the plan's, however late it is
//! acted upon, and the time to get in counts from there. A player who goes stops sending, waits for
//! what is on its way, then says goodbye; otherwise the last payloads of everyone who leaves would
//! look lost.

use ringgate_client::Session;
use ringgate_core::netcode::ConnectToken;
use ringgate_core::proto::netcode::client::{Client, Options};

use super::arrivals::SESSION_BITS;
use super::impair::Path;
use super::player::{Life, Player, Wire};
use super::scenario::Step;
use super::swarm::{Now, Protocol, Swarm};
use super::talker::Talker;
use super::tokens::Tokens;
use super::tokens::service::Lack;
use super::unreal::UnrealPlayer;
use crate::measure::tally::Count;

/// Why a player cannot come.
enum Obstacle {
    /// All addresses are in use; look again.
    Full,
    /// The token is being asked for; look again.
    TokenAsked,
    /// There is no connect token left, and there will not be one.
    NoToken,
}

impl Swarm {
    /// Follows the plan up to now. At most so many players come or go at once that sending does not
    /// wait for them; the rest follows with the next call.
    pub fn advance(&mut self, now: Now) {
        let is_waiting = self.population.next_goodbye_ns > now.mono_ns + GOODBYE_EVERY_NS;
        if self.population.is_over && is_waiting && self.has_settled() {
            let goodbye_ns = now.mono_ns + self.rest_ns();
            self.population.next_goodbye_ns = self.population.next_goodbye_ns.min(goodbye_ns);
        }
        for _ in 0..CHANGES_MAX {
            let moment_ns = self.population.poll_change();
            if moment_ns > now.mono_ns {
                break;
            }
            self.change(moment_ns, now);
        }
        self.let_in_owed(now);
    }

    fn change(&mut self, moment_ns: u64, now: Now) {
        let Some(step) = self.population.current().cloned() else {
            return self.say_goodbye(now);
        };
        if !self.population.is_entered {
            return self.enter(&step);
        }
        let changes = step.to.abs_diff(step.from);
        if self.population.changed < changes
            && step.change_at_ns(self.population.changed + 1) <= moment_ns
        {
            self.population.changed += 1;
            if step.to > step.from {
                self.owe(1, moment_ns);
            } else {
                self.send_away(now);
            }
            return;
        }
        if self.population.churn_at_ns <= moment_ns {
            self.population.churn_at_ns += step.churn_ns.unwrap_or(u64::MAX).max(1);
            self.send_away(now);
            return self.owe(1, moment_ns);
        }
        let next = self.population.plan.steps.get(self.population.step + 1);
        let goes_on = next.is_some_and(Step::is_hold);
        // Whom a spike has brought goes with it, and whom it has sent away comes back.
        let level = next.map_or(step.to, |next| next.from);
        for _ in level..step.to {
            self.send_away(now);
        }
        if step.to < level {
            self.owe(level - step.to, step.end_ns);
        }
        if !goes_on {
            self.pauses.end(step.end_ns);
        }
        self.end_silences(step.end_ns);
        self.population.step += 1;
        self.population.changed = 0;
        self.population.churn_at_ns = u64::MAX;
        self.population.is_entered = false;
        if self.population.current().is_none() {
            self.end(now);
        }
    }

    /// A step ends here, and with it the silence of each player in it.
    fn end_silences(&mut self, at_ns: u64) {
        for index in 0..self.players.len() as u32 {
            if matches!(self.players[index as usize].life, Life::Connecting | Life::Playing) {
                self.end_silence(index, at_ns);
            }
        }
    }

    /// A player's step ends here, or its session. Who was never in was not silent.
    pub(super) fn end_silence(&mut self, index: u32, at_ns: u64) {
        let player = &mut self.players[index as usize];
        let silence = self.silences.get_mut(self.population.step);
        if let Some(silence) = silence.filter(|_| player.heard_ns > 0) {
            player.hear(at_ns);
            silence.note(std::mem::take(&mut player.silent_ns));
        }
    }

    /// A step begins.
    fn enter(&mut self, step: &Step) {
        self.population.is_entered = true;
        self.population.churn_at_ns =
            step.churn_ns.map_or(u64::MAX, |every_ns| step.start_ns + every_ns);
        if self.traffic != step.traffic {
            self.traffic = step.traffic;
            self.restart_traffic(step.start_ns);
        }
        if step.reconnect {
            let now = Now { mono_ns: step.start_ns, unix_ns: 0 };
            let everyone = std::iter::from_fn(|| self.send_away(now).then_some(())).count() as u32;
            self.owe(everyone, step.start_ns + self.setup.linger_ns + STORM_PAUSE_NS);
        }
    }

    /// Everyone sends by the new traffic, from a moment of its own within the first interval.
    fn restart_traffic(&mut self, at_ns: u64) {
        for index in 0..self.players.len() as u32 {
            if self.players[index as usize].life == Life::Playing {
                self.begin_sending(index, at_ns);
            }
        }
    }

    pub(super) fn begin_sending(&mut self, index: u32, at_ns: u64) {
        let player = &mut self.players[index as usize];
        player.next_due_ns = self.traffic.interval_ns().map_or(u64::MAX, |interval_ns| {
            self.setup.arrivals.first_ns(player.session, at_ns, interval_ns)
        });
        self.reschedule(index);
    }

    fn owe(&mut self, players: u32, at_ns: u64) {
        self.population.owed.push_back((at_ns, players));
    }

    fn let_in_owed(&mut self, now: Now) {
        for _ in 0..CHANGES_MAX {
            let Some(&(at_ns, players)) = self.population.owed.front() else { return };
            if at_ns.max(self.population.retry_at_ns) > now.mono_ns {
                return;
            }
            let joined = if players > 0 { self.join(at_ns, now) } else { Ok(()) };
            match joined {
                Ok(()) => {}
                Err(obstacle @ (Obstacle::Full | Obstacle::TokenAsked)) => {
                    self.population.awaits_token = matches!(obstacle, Obstacle::TokenAsked);
                    self.population.retry_at_ns = now.mono_ns + RETRY_NS;
                    return;
                }
                Err(Obstacle::NoToken) => self.tally.counters.bump(Count::Tokenless),
            }
            match self.population.owed.front_mut() {
                Some((_, left)) if *left > 1 => *left -= 1,
                _ => drop(self.population.owed.pop_front()),
            }
        }
    }

    /// A player comes.
    fn join(&mut self, intended_ns: u64, now: Now) -> Result<(), Obstacle> {
        let index = match self.free.pop_front() {
            Some(index) => index,
            None if (self.players.len() as u32) < self.addresses.players_max() => {
                self.players.push(Player::free());
                self.players.len() as u32 - 1
            }
            None => return Err(Obstacle::Full),
        };
        let session = self.setup.thread << SESSION_BITS | self.sessions_made;
        let client_id = self.players[index as usize].client_id.wrapping_add(1);
        let wire = match self.wire(session, client_id, now) {
            Ok(wire) => wire,
            Err(lack) => {
                self.free.push_front(index);
                return Err(match lack {
                    Lack::NotYet => Obstacle::TokenAsked,
                    Lack::Never => Obstacle::NoToken,
                });
            }
        };
        // Beyond the last come those again who are long gone.
        self.sessions_made = self.sessions_made % ((1 << SESSION_BITS) - 1) + 1;
        self.tally.counters.bump(Count::Joins);
        self.players[index as usize] = Player {
            wire,
            life: Life::Connecting,
            session,
            joined_ns: intended_ns,
            path: Path::new(self.setup.impair.seed, session),
            client_id,
            ..Player::free()
        };
        self.population.present.push_back((index, session));
        self.gauges.connecting += 1;
        if matches!(self.players[index as usize].wire, Wire::Plain(_)) {
            self.enter_game(index, now.mono_ns);
        }
        self.reschedule(index);
        Ok(())
    }

    fn wire(&self, session: u32, client_id: u8, now: Now) -> Result<Wire, Lack> {
        match &self.setup.protocol {
            Protocol::Plain(plain) => Ok(Wire::Plain(plain.server)),
            Protocol::Netcode(tokens) => {
                let token = self.token(tokens, session, now)?;
                let options = Options { answers_at_once: true, ..Options::default() };
                Ok(Wire::Netcode(Client::new(&token, now.mono_ns, options)))
            }
            Protocol::Messages(tokens, delivery) => {
                let token = self.token(tokens, session, now)?;
                let netcode = Options { answers_at_once: true, ..Options::default() };
                let mut options = ringgate_client::Options::default();
                options.delivery.keep_alive_ns = self.setup.keep_alive_ns;
                let session = Session::new(&token, &options, netcode, now.mono_ns);
                Ok(Wire::Messages(Box::new(Talker::new(session, *delivery))))
            }
            Protocol::Unreal(setup) => {
                let seed = u64::from(self.setup.run) << 32 | u64::from(session);
                let player = UnrealPlayer::new(setup, client_id, seed, now.mono_ns);
                Ok(Wire::Unreal(Box::new(player)))
            }
        }
    }

    fn token(&self, tokens: &Tokens, session: u32, now: Now) -> Result<ConnectToken, Lack> {
        let client_id = u64::from(self.setup.run) << 32 | u64::from(session);
        let is_due = |(at_ns, _): &&(u64, u32)| *at_ns <= now.mono_ns;
        let owed = self.population.owed.iter().take_while(is_due);
        let waiting = owed.take(WAITING_MAX).map(|(_, players)| *players as usize).sum();
        tokens.take(client_id, now.unix_ns / NS_PER_S, waiting)
    }

    /// A player whose session was lost comes again, where players do.
    pub(super) fn come_back(&mut self, now: Now) {
        let comes_back = self.setup.protocol.tokens().is_some_and(Tokens::comes_back);
        if comes_back && !self.population.is_over {
            self.owe(1, now.mono_ns + COME_BACK_NS);
        }
    }

    /// A player is in.
    pub(super) fn enter_game(&mut self, index: u32, now_ns: u64) {
        let player = &mut self.players[index as usize];
        player.life = Life::Playing;
        // Who was in at another gateway has been silent since.
        if player.heard_ns == 0 {
            player.heard_ns = now_ns;
        }
        if matches!(player.wire, Wire::Netcode(_) | Wire::Unreal(_)) {
            player.keep_alive_ns = now_ns + self.setup.keep_alive_ns;
        }
        let took_ns = now_ns.saturating_sub(player.joined_ns);
        self.gauges.connecting -= 1;
        self.gauges.playing += 1;
        self.tally.counters.bump(Count::Connected);
        if self.players[index as usize].client().is_some_and(|it| it.address_index() > 0) {
            self.tally.counters.bump(Count::ConnectedElsewhere);
        }
        self.tally.record(crate::measure::tally::Stage::Handshake, took_ns);
        self.begin_sending(index, now_ns);
    }

    /// The longest here stops sending and will go. Whether there is one.
    fn send_away(&mut self, now: Now) -> bool {
        while let Some((index, session)) = self.population.present.pop_front() {
            let player = &mut self.players[index as usize];
            let is_here = player.session == session
                && matches!(player.life, Life::Connecting | Life::Playing);
            if is_here {
                if player.life == Life::Connecting {
                    self.tally.counters.bump(Count::Unfinished);
                }
                self.leave_gauge(index);
                self.gauges.leaving += 1;
                let until_ns = now.mono_ns + self.setup.linger_ns;
                self.players[index as usize].life = Life::Lingering { until_ns };
                self.reschedule(index);
                return true;
            }
        }
        false
    }

    /// Ends the plan here: nobody comes any more, and everyone who is here leaves as at its end.
    pub fn wind_up(&mut self, now: Now) {
        if !self.population.is_over {
            if self.population.current().is_some() {
                self.end_silences(now.mono_ns);
            }
            self.population.step = self.population.plan.steps.len();
            // They were not kept out: they are not wanted any more.
            self.population.owed.clear();
            self.end(now);
        }
    }

    /// The plan has run out: nobody sends any more. Once all answers are here, or from when they
    /// must be, everyone says goodbye.
    fn end(&mut self, now: Now) {
        self.population.is_over = true;
        self.pauses.end(now.mono_ns);
        // Who has come just now would have had the address of who is about to leave.
        let before_ns = now.mono_ns.saturating_sub(self.setup.linger_ns + RETRY_NS);
        let is_due = |(at_ns, _): &&(u64, u32)| *at_ns <= before_ns;
        let kept_out = self.population.owed.iter().filter(is_due).map(|(_, players)| *players);
        let kept_out: u64 = kept_out.map(u64::from).sum();
        let why = if self.population.awaits_token { Count::Tokenless } else { Count::Placeless };
        self.tally.counters.add(why, kept_out);
        self.population.owed.clear();
        self.population.next_goodbye_ns = now.mono_ns + self.setup.linger_ns;
        for index in 0..self.players.len() as u32 {
            let player = &mut self.players[index as usize];
            if player.life == Life::Playing {
                player.next_due_ns = u64::MAX;
                self.reschedule(index);
            }
        }
        self.traffic.hz = 0.0;
    }

    /// Whether nothing is waited for: everybody is in, and each payload has come back.
    fn has_settled(&self) -> bool {
        let awaited = self.seconds.iter().map(|it| i64::from(it.due) - i64::from(it.echoed));
        self.gauges.connecting == 0 && awaited.sum::<i64>() == 0
    }

    /// How much longer than for the last payload is waited: an Unreal server acknowledges what the
    /// players have acknowledged.
    const fn rest_ns(&self) -> u64 {
        if matches!(self.setup.protocol, Protocol::Unreal(_)) { UNREAL_REST_NS } else { 0 }
    }

    fn say_goodbye(&mut self, now: Now) {
        self.population.next_goodbye_ns += GOODBYE_EVERY_NS;
        let stay_ns = std::mem::take(&mut self.setup.linger_ns);
        self.send_away(now);
        self.setup.linger_ns = stay_ns;
    }

    /// A player is gone; its place is free.
    pub(super) fn vacate(&mut self, index: u32) {
        self.leave_gauge(index);
        self.schedule.cancel(index);
        if let Some(held) = self.players[index as usize].held.take() {
            self.lose_up(held.tag);
        }
        let client_id = self.players[index as usize].client_id;
        self.players[index as usize] = Player { client_id, ..Player::free() };
        self.free.push_back(index);
    }

    pub(super) fn leave_gauge(&mut self, index: u32) {
        match self.players[index as usize].life {
            Life::Connecting => self.gauges.connecting -= 1,
            Life::Playing => self.gauges.playing -= 1,
            Life::Lingering { .. } | Life::Leaving => self.gauges.leaving -= 1,
            Life::Free => {}
        }
    }
}

/// Players who may come or go between two rounds of sending: minting 64 tokens takes under a
/// millisecond.
const CHANGES_MAX: u32 = 64;

/// Between the last goodbye of a storm and the first request: what a player needs to press the
/// button again.
const STORM_PAUSE_NS: u64 = 250_000_000;

/// From the loss of a session to the next request: whoever is refused at once does not storm.
const COME_BACK_NS: u64 = 250_000_000;

/// Entries of the list of players who are owed that are looked through for how many want a token.
const WAITING_MAX: usize = 64;

/// Without a place or a token for a player, this long until the next look.
const RETRY_NS: u64 = 10_000_000;

/// Goodbyes are ten datagrams each: 5,000 players a second leave as 50,000 datagrams a second.
const GOODBYE_EVERY_NS: u64 = 200_000;

const UNREAL_REST_NS: u64 = 1_000_000_000;

const NS_PER_S: u64 = 1_000_000_000;

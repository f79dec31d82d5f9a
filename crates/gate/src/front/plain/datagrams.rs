//! Where each datagram of a plain listener goes, in the order of the checks: what costs least, and
//! what needs no session, comes first.

use crate::arrivals::{Origin, PlayerRun};
use crate::counters::Ended;
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::owning::Owning;
use crate::front::plain::echo::word_at;
use crate::front::plain::session::{Session, Stage};
use crate::front::plain::state::PlainFront;
use crate::front::rules::{Datagrams, Rules};
use crate::mail::Mailed;
use crate::setup::Plain;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_batch::RxBatch;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::PLAIN_BYTES_MAX;

/// What a datagram that looks as it should is made of.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    /// As it was received.
    pub(crate) len: usize,
    /// What the game server gets.
    pub(crate) payload: &'a [u8],
    /// Empty where the listener's datagrams have none.
    pub(crate) token: &'a [u8],
    pub(crate) token_hash: u64,
    /// Where they are numbered.
    pub(crate) number: Option<u32>,
    /// What may be an echo.
    pub(crate) word: Option<u32>,
}

impl Datagrams for PlainFront {
    fn step(&mut self, turn: &mut Turn<'_>, run: PlayerRun, rx: &mut RxBatch) {
        let setup = std::sync::Arc::clone(&turn.common.setup);
        let rules = setup.listeners[run.listener].plain().ok_or(DropReason::UnknownSource);
        self.step_each(turn, run, rx, |front, turn, origin, bytes| {
            front.step_datagram(turn, rules?, origin, bytes)
        });
    }

    /// A session never leaves its address, and so never its worker: nobody looks for one of another
    /// port.
    fn step_mailed(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        Mailed { is_lost, .. }: Mailed,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        let setup = std::sync::Arc::clone(&turn.common.setup);
        let rules = setup.listeners[origin.address.listener].plain().filter(|_| !is_lost);
        self.step_datagram(turn, rules.ok_or(DropReason::UnknownSource)?, origin, bytes)
    }
}

impl PlainFront {
    pub(crate) fn step_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &Plain,
        origin: &Origin,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let parts = self.take_apart(rules, bytes)?;
        let mut known = self.sessions.find(origin.hash, &origin.address);
        if known.is_none_or(|index| !self.sessions.at(index).is_open()) {
            turn.common.check_denied(&origin.address.endpoint)?;
            known = known.filter(|index| !self.give_way(turn, *index, origin));
        }
        if known.is_none()
            && turn.common.claims.standbys().is_some()
            && self.step_elsewhere(turn, rules, origin, (&parts, bytes))?
        {
            return Ok(());
        }
        match known {
            Some(index) => self.step_known(turn, rules, (index, origin), &parts),
            None => self.start(turn, rules, origin, &parts),
        }
    }

    /// Looks at everything that can be seen in a datagram itself.
    fn take_apart<'a>(&self, rules: &Plain, bytes: &'a [u8]) -> Result<Parts<'a>, DropReason> {
        if bytes.len() > PLAIN_BYTES_MAX {
            return Err(DropReason::TooLong);
        }
        if bytes.is_empty() {
            return Err(DropReason::Empty);
        }
        if !bytes.starts_with(&rules.begins_with) {
            return Err(DropReason::PatternMissing);
        }
        let (token, rest) = match &rules.token {
            Some(token) => token.split(bytes).ok_or(DropReason::TokenUnknown)?,
            None => (&bytes[..0], bytes),
        };
        let strips = rules.token.as_ref().is_some_and(|token| token.strip);
        let payload = if strips { rest } else { bytes };
        if payload.is_empty() {
            return Err(DropReason::Empty);
        }
        let number = match &rules.sequence {
            Some(sequence) => Some(sequence.field.read(bytes).ok_or(DropReason::SequenceMissing)?),
            None => None,
        };
        let token_hash = if token.is_empty() { 0 } else { self.hash.hash_bytes(token) };
        let word = rules.echo.and_then(|echo| word_at(bytes, echo.heard));
        Ok(Parts { len: bytes.len(), payload, token, token_hash, number, word })
    }

    /// A datagram from a source that is known.
    fn step_known(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &Plain,
        (index, origin): (Entry<Session>, &Origin),
        parts: &Parts<'_>,
    ) -> Result<(), DropReason> {
        if self.is_unsure(index) {
            // It goes no further, by name, and nothing is believed by it.
            self.relay_up(turn, index, (None, parts.payload), origin.kernel_ns);
            return Ok(());
        }
        let session = self.sessions.at(index);
        if turn.now.mono_ns >= session.heard_ns + patience_ns(rules, session) {
            // Its timer has not fired yet.
            self.end(turn, index, Ended::TimedOut);
            return self.start(turn, rules, origin, parts);
        }
        if session.is_barred() {
            return Err(DropReason::AfterGap);
        }
        let leads_to =
            |it| turn.common.setup.listeners[origin.address.listener].backends.contains(it);
        if session.is_half_open() && !leads_to(&session.backend) {
            // The listener leads elsewhere now: whatever is there speaks to others.
            self.end(turn, index, Ended::Replaced);
            return self.start(turn, rules, origin, parts);
        }
        if session.token != parts.token_hash
            && !self.learn_token(index, (parts.token, parts.token_hash))
        {
            return self.change_token(turn, rules, (index, origin), parts);
        }
        self.guard(turn, rules, index, parts)?;
        self.sessions.at_mut(index).heard_ns = turn.now.mono_ns;
        self.credit(turn, rules, index, parts)?;
        self.relay_up(turn, index, (parts.number, parts.payload), origin.kernel_ns);
        if !self.sessions.clusters.is_empty() {
            self.note_way(turn, index, origin);
        }
        Ok(())
    }

    /// What a datagram brings its source: a slot, a proof, or more that it may be sent.
    fn credit(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &Plain,
        index: Entry<Session>,
        parts: &Parts<'_>,
    ) -> Result<(), DropReason> {
        let session = self.sessions.at_mut(index);
        match session.stage {
            Stage::Open { is_proven: true } => {}
            Stage::Open { is_proven: false } => {
                session.earn(&rules.credit, parts.len);
                if self.is_echo(index, parts.word) {
                    self.prove(turn.common, index);
                    self.keep_record(turn.common, turn.now, index);
                }
            }
            Stage::HalfOpen { is_answered: true } => {
                let is_proven = self.is_echo(index, parts.word);
                let opened = self.open(turn, rules, index, (is_proven, parts.token));
                let session = self.sessions.at_mut(index);
                match opened {
                    Ok(()) => session.earn(&rules.credit, parts.len),
                    // It may be proven by what comes next.
                    Err(DropReason::UnprovenFull) if rules.echo.is_some() => {
                        session.pay_ahead(rules, parts.len);
                    }
                    Err(why) => return Err(why),
                }
            }
            Stage::HalfOpen { is_answered: false } | Stage::Barred => {
                session.pay_ahead(rules, parts.len);
            }
        }
        Ok(())
    }

    /// Lets each number pass once; a jump ends the session, or has to be continued.
    fn guard(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &Plain,
        index: Entry<Session>,
        parts: &Parts<'_>,
    ) -> Result<(), DropReason> {
        let (Some(sequence), Some(number)) = (&rules.sequence, parts.number) else { return Ok(()) };
        let listener = self.sessions.address(index).listener;
        let changes = self.listeners[listener].sequence_changes;
        let session = self.sessions.at_mut(index);
        if session.guarded_by != changes {
            // A reload has changed the rules: the numbers so far mean nothing under them.
            session.guarded_by = changes;
            self.guards[0].start_again(index, number, &sequence.policy);
            return Ok(());
        }
        let was_silent = turn.now.mono_ns >= session.heard_ns + JUMP_SILENCE_NS;
        let guard = self.guards[0].of(index);
        let (width, policy) = (sequence.field.width, &sequence.policy);
        let passed = guard.pass_doubtful(number, width, policy, was_silent);
        if passed == Err(DropReason::SequenceGap) {
            self.bar(turn, index);
        }
        passed
    }

    pub(crate) fn start_guards(&mut self, index: Entry<Session>, rules: &Plain, first: u32) {
        if let Some(sequence) = &rules.sequence {
            self.guards[0].start(index, first, &sequence.policy);
        }
    }
}

/// How long nothing has passed of a source of which a jump over more than half a window is looked
/// at, or another token. Players who are heard once a second stay below it.
pub(crate) const JUMP_SILENCE_NS: u64 = 2_000_000_000;

/// Silence after which a session is over, or a barred source free again.
pub(crate) const fn patience_ns(rules: &Plain, session: &Session) -> u64 {
    match session.stage {
        Stage::HalfOpen { .. } => rules.half_open_ns,
        Stage::Open { .. } => rules.idle_ns,
        Stage::Barred => rules.rest_ns,
    }
}

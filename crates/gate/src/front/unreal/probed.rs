//! What is known of a game server, and the ways in which it can be asked.

use std::ops::{Range, RangeInclusive};

use crate::ids::ListenerId;
use crate::setup::{Listener, Unreal};
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::front::{Classified, Identity, classify};
use ringgate_core::proto::unreal::handshake::{
    Base, Body, Handshake, Receiver, TAIL_BYTES_MAX, TAIL_BYTES_MIN,
};
use ringgate_core::proto::unreal::prefix::{Framing, Ids, Layout};

/// One way to ask a server.
#[derive(Clone, Copy)]
pub(crate) struct ProbeForm {
    pub(crate) framing: Framing,
    pub(crate) version: u8,
    /// Of that length, where it keeps servers of the other base from answering.
    pub(crate) tail_bytes: Option<usize>,
}

/// What is known of one game server.
pub(crate) struct Probed {
    /// How it may be asked, the preferred way first. Invariant: not empty, and fewer than the
    /// counter of a packet counts.
    pub(crate) ways: Vec<ProbeForm>,
    /// The way in which it has answered last.
    pub(crate) way: usize,
    /// How many of the ways the next question takes while it does not answer.
    pub(crate) ways_tried: usize,
    /// What it is asked with, until it has said who it is.
    base: Base,
    pub(crate) identity: Option<Identity>,
    pub(crate) is_answering: bool,
    pub(crate) answered_ns: u64,
    pub(crate) due_ns: u64,
    /// The kernel has said that no process listens there, and there was no answer since.
    pub(crate) is_refused: bool,
    /// When it last answered again after that: another process, which knows none of the sessions
    /// from before.
    pub(crate) returned_ns: u64,
    /// The link to it as it was looked at last, as the backend counts them: 0 for none, and where
    /// it is on this host.
    pub(crate) epoch: u32,
}

/// What a listener tells its players about the servers behind it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Face {
    /// How its packets are laid out: as those of the server whose face it is, or of the last one.
    pub(crate) framing: Framing,
    /// What a server says that answers; `None` while none does.
    pub(crate) identity: Option<Identity>,
    /// What the last one has said that did: players who are at another port are told that, whatever
    /// has become of the server for newcomers.
    pub(crate) last: Option<Identity>,
    /// A bit for each session number that any of them has said: players were told one of these.
    pub(crate) sessions: u8,
    /// What the listener is called in the cookies of its challenges: the number that it had in the
    /// first process that had it, so that a newcomer may begin in one process and go on in the
    /// next. Two listeners of a later process may be called the same; a cookie is for one address
    /// and is used once all the same.
    pub(crate) called: u16,
}

impl Face {
    /// Of a listener whose servers have not said anything yet.
    pub(crate) fn of(number: ListenerId, listener: &Listener) -> Self {
        let framing = listener.unreal().map_or_else(Framing::default, |rules| rules.framing);
        Self { framing, called: number.0, ..Self::default() }
    }

    /// The request to restart, for a game packet from an unknown address.
    pub(crate) fn restart_request(
        &self,
        game: Ids,
        served: &RangeInclusive<u8>,
    ) -> Result<Handshake, DropReason> {
        let identity = self.last.ok_or(DropReason::UnknownSource)?;
        if self.sessions & 1 << game.session() == 0 {
            return Err(DropReason::UnrealIds);
        }
        Identity { session: game.session(), ..identity }.restart_request(game, served)
    }
}

impl Probed {
    pub(crate) fn new(rules: &Unreal, now_ns: u64) -> Self {
        let versions = rules.network_versions.as_deref().unwrap_or(&[]);
        Self {
            ways: ways(rules),
            way: 0,
            ways_tried: 1,
            base: Base {
                version_min: *rules.versions.start(),
                version: *rules.versions.end(),
                network_version: versions.first().copied().unwrap_or(0),
                ..Base::default()
            },
            identity: None,
            is_answering: false,
            answered_ns: now_ns,
            due_ns: now_ns,
            is_refused: false,
            returned_ns: 0,
            epoch: 0,
        }
    }

    /// When there is something to do about it.
    pub(crate) fn look_ns(&self) -> u64 {
        let expires_ns = self.answered_ns + ANSWER_NS_MAX;
        if self.is_answering { self.due_ns.min(expires_ns) } else { self.due_ns }
    }

    /// How the server's packets are laid out, as far as that is known.
    pub(crate) fn framing(&self) -> Framing {
        self.ways[self.way].framing
    }

    /// The ways to ask it now: the one that it has answered in, or the preferred ones, each time
    /// one more.
    pub(crate) fn next_ways(&mut self) -> Range<usize> {
        if self.is_answering {
            return self.way..self.way + 1;
        }
        let tried = self.ways_tried;
        self.ways_tried = if tried < self.ways.len() { tried + 1 } else { 1 };
        0..tried
    }

    /// An initial connect that says what the server would say.
    pub(crate) fn question(&self, way: usize) -> Handshake {
        let ProbeForm { framing, version, .. } = self.ways[way];
        let known = self.identity.map(|identity| identity.base);
        let said = known.filter(|_| self.is_answering);
        let (version_min, version) = said.map_or((self.base.version_min, version), |said| {
            (said.version_min, version.clamp(said.version_min.min(said.version), said.version))
        });
        let sent_count = count_of(way);
        let base = Base { version_min, version, sent_count, ..known.unwrap_or(self.base) };
        Handshake { ids: framing.layout.ids(0, 0), base, body: Body::Initial { is_restart: false } }
    }

    /// What the server answers, and the way in which it was asked: the one whose number it repeats,
    /// or else the first in which the answer makes sense.
    pub(crate) fn read_answer(&self, bytes: &[u8]) -> Option<(usize, Handshake)> {
        let read = |way: usize| {
            let framing = &self.ways[way].framing;
            let Ok(Classified::Handshake(packet)) = classify(bytes, framing, Receiver::Client)
            else {
                return None;
            };
            is_believable(&packet).then_some((way, packet))
        };
        let is_named =
            |(way, packet): &(usize, Handshake)| packet.base.sent_count == count_of(*way);
        let mut all = 0..self.ways.len();
        all.clone().filter_map(read).find(is_named).or_else(|| all.find_map(read))
    }
}

impl Probed {
    /// Writes what was found out. How it may be asked is said by the setup.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self {
            ways: _,
            way,
            ways_tried,
            base: _,
            identity,
            is_answering,
            answered_ns,
            due_ns,
            is_refused,
            returned_ns,
            // The next process looks anew.
            epoch: _,
        } = self;
        [*way, *ways_tried].write(out);
        identity.write(out);
        [*is_answering, *is_refused].write(out);
        [*answered_ns, *due_ns, *returned_ns].write(out);
    }

    /// Goes on with what another process has found out. Where that has asked in ways that this one
    /// does not have, the server is asked anew.
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let [way, ways_tried] = Carry::read(from)?;
        self.identity = Carry::read(from)?;
        [self.is_answering, self.is_refused] = Carry::read(from)?;
        for ns in [&mut self.answered_ns, &mut self.due_ns, &mut self.returned_ns] {
            *ns = time::read(from)?;
        }
        if way < self.ways.len() && (1..=self.ways.len()).contains(&ways_tried) {
            (self.way, self.ways_tried) = (way, ways_tried);
        } else {
            (self.is_answering, self.due_ns) = (false, 0);
        }
        Ok(())
    }
}

impl Face {
    /// Writes what players were told. What the listener is called has a record of its own.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        // Which of the servers answers is known from themselves.
        let Self { framing, identity: _, last, sessions, called: _ } = self;
        Carry::write(framing, out);
        last.write(out);
        sessions.write(out);
    }

    /// Goes on with it, for a listener that had that number.
    pub(crate) fn take_over(number: u16, from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (framing, last) = (Carry::read(from)?, Carry::read(from)?);
        Ok(Self { framing, identity: None, last, sessions: u8::read(from)?, called: number })
    }
}

/// The ways to ask the servers of a listener.
fn ways(rules: &Unreal) -> Vec<ProbeForm> {
    let (oldest, newest) = (*rules.versions.start(), *rules.versions.end());
    let framing = rules.framing;
    if !rules.learns_base || framing.layout.short() == framing.layout {
        return vec![ProbeForm { framing, version: newest, tail_bytes: None }];
    }
    let layout = framing.layout;
    let short = Framing { layout: layout.short(), ..framing };
    // Version 4 has network features, so a server without them is asked for the one before.
    let short_version = newest.min(SHORT_VERSION_MAX).max(oldest);
    let mut ways = vec![
        ProbeForm { framing, version: newest, tail_bytes: Some(TAIL_BYTES_MAX) },
        ProbeForm { framing: short, version: short_version, tail_bytes: Some(TAIL_BYTES_MIN) },
    ];
    if layout == Layout::Early && oldest < newest {
        // Its packets have neither base.
        ways.push(ProbeForm { framing, version: oldest, tail_bytes: None });
    }
    ways
}

/// The counter of a question that is asked in that way.
const fn count_of(way: usize) -> u8 {
    way as u8 + 1
}

/// Whether a packet is what a probe is answered with. A server that enforces its version says which
/// it is, and that will do for the next question.
fn is_believable(packet: &Handshake) -> bool {
    match packet.body {
        Body::Challenge(proof) => CHALLENGE_S.contains(&proof.timestamp.seconds()),
        Body::VersionUpgrade => true,
        _ => false,
    }
}

/// The newest handshake version of engines without network features.
const SHORT_VERSION_MAX: u8 = 3;

/// When a server can have made a challenge, in seconds of its clock. Random bits say so once in
/// fifty times.
const CHALLENGE_S: RangeInclusive<f64> = 1e-9..=1e11;

/// How long after its answer a server is asked again.
pub(crate) const ASK_AGAIN_NS: u64 = 5_000_000_000;

/// How long after a question that was not answered.
pub(crate) const REPEAT_NS: u64 = 500_000_000;

/// Silence after which a server gets no new players: ten questions unanswered.
pub(crate) const ANSWER_NS_MAX: u64 = 2 * ASK_AGAIN_NS;

//! Whether a game server answers, and what it says about itself: learned from its challenge to an
//! initial connect, which leaves no trace there.
//!
//! Every worker asks for itself, from 127.0.0.1, which is no player's address. A server that has
//! not answered for some seconds gets no new players; those it has stay, because a server that
//! loads a level answers nobody for a while. Whether a server is gone altogether is the kernel's to
//! say.
//!
//! A server understands only what is laid out as its own packets are, and how it was built is
//! learned here too: it is asked in one [`Way`] after the other until it answers. The questions of
//! the two bases have tails of such lengths that a server of the other base finds them too long or
//! too short; their counter, which servers repeat, says which of them was answered; and an answer
//! whose time is none is not believed. Should a wrong one pass all the same, the answers that
//! follow do not, and the server is asked in all ways again.

use std::ops::{Range, RangeInclusive};

use crate::front::unreal::session::Session;
use crate::output::Tag;
use crate::setup::{Setup, Unreal};
use crate::turn::Turn;
use crate::{Gate, Now};
use ringgate_batch::{LocalIp, TxTarget};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::front::{Classified, Identity, classify};
use ringgate_core::proto::unreal::handshake::{
    Base, Body, Handshake, Receiver, TAIL_BYTES_MAX, TAIL_BYTES_MIN,
};
use ringgate_core::proto::unreal::prefix::{Framing, Ids, Layout};

/// One way to ask a server.
#[derive(Clone, Copy)]
struct Way {
    framing: Framing,
    version: u8,
    /// Of that length, where it keeps servers of the other base from answering.
    tail_bytes: Option<usize>,
}

/// What is known of one game server.
pub(super) struct Probed {
    /// How it may be asked, the preferred way first. Invariant: not empty, and fewer than the
    /// counter of a packet counts.
    ways: Vec<Way>,
    /// The way in which it has answered last.
    way: usize,
    /// How many of the ways the next question takes while it does not answer.
    ways_tried: usize,
    /// What it is asked with, until it has said who it is.
    base: Base,
    pub(super) identity: Option<Identity>,
    is_answering: bool,
    answered_ns: u64,
    due_ns: u64,
    /// The kernel has said that nobody listens there, and there was no answer since.
    is_refused: bool,
    /// When it last answered again after that: another process, which knows none of the sessions
    /// from before.
    returned_ns: u64,
}

/// What a listener tells its players about the servers behind it.
#[derive(Clone, Copy, Default)]
pub(super) struct Face {
    /// How its packets are laid out: as those of the server whose face it is, or of the last one.
    pub(super) framing: Framing,
    /// What a server says that answers; `None` while none does.
    pub(super) identity: Option<Identity>,
    /// A bit for each session number that any of them has said: players were told one of these.
    sessions: u8,
}

impl Face {
    /// The request to restart, for a game packet from nowhere.
    pub(super) fn restart_request(
        &self,
        game: Ids,
        served: &RangeInclusive<u8>,
    ) -> Result<Handshake, DropReason> {
        let identity = self.identity.ok_or(DropReason::UnknownSource)?;
        if self.sessions & 1 << game.session() == 0 {
            return Err(DropReason::UnrealIds);
        }
        Identity { session: game.session(), ..identity }.restart_request(game, served)
    }
}

/// What a game server of an Unreal game says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Whether it has answered lately.
    pub is_answering: bool,
    /// What it said, if it ever answered.
    pub identity: Option<Identity>,
}

impl Probed {
    fn new(rules: &Unreal, now_ns: u64) -> Self {
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
        }
    }

    /// When there is something to do about it.
    fn look_ns(&self) -> u64 {
        let expires_ns = self.answered_ns + ANSWER_NS_MAX;
        if self.is_answering { self.due_ns.min(expires_ns) } else { self.due_ns }
    }

    /// How the server's packets are laid out, as far as that is known.
    fn framing(&self) -> Framing {
        self.ways[self.way].framing
    }

    /// The ways to ask it now: the one that it has answered in, or the preferred ones, each time
    /// one more.
    fn next_ways(&mut self) -> Range<usize> {
        if self.is_answering {
            return self.way..self.way + 1;
        }
        let tried = self.ways_tried;
        self.ways_tried = if tried < self.ways.len() { tried + 1 } else { 1 };
        0..tried
    }

    /// An initial connect that says what the server would say.
    fn question(&self, way: usize) -> Handshake {
        let Way { framing, version, .. } = self.ways[way];
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
    fn read_answer(&self, bytes: &[u8]) -> Option<(usize, Handshake)> {
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

/// The ways to ask the servers of a listener.
fn ways(rules: &Unreal) -> Vec<Way> {
    let (oldest, newest) = (*rules.versions.start(), *rules.versions.end());
    let framing = rules.framing;
    if !rules.learns_base || framing.layout.short() == framing.layout {
        return vec![Way { framing, version: newest, tail_bytes: None }];
    }
    let layout = framing.layout;
    let short = Framing { layout: layout.short(), ..framing };
    // Version 4 has network features, so a server without them is asked for the one before.
    let short_version = newest.min(SHORT_VERSION_MAX).max(oldest);
    let mut ways = vec![
        Way { framing, version: newest, tail_bytes: Some(TAIL_BYTES_MAX) },
        Way { framing: short, version: short_version, tail_bytes: Some(TAIL_BYTES_MIN) },
    ];
    if layout == Layout::Early && oldest < newest {
        // Its packets have neither base.
        ways.push(Way { framing, version: oldest, tail_bytes: None });
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

impl crate::front::unreal::Front {
    /// Whether a backend may be sent players, as far as it can be asked.
    pub(crate) fn is_answering(&self, backend: usize) -> bool {
        self.probed.get(backend).and_then(Option::as_ref).is_none_or(|probed| probed.is_answering)
    }

    /// Whether a listener may send players to a backend: that one answers, in the layout that the
    /// players are spoken to in.
    pub(crate) fn is_open_to(&self, listener: usize, backend: usize) -> bool {
        let probed = self.probed.get(backend).and_then(Option::as_ref);
        probed.is_none_or(|probed| {
            let face = self.faces.get(listener).copied().unwrap_or_default();
            probed.is_answering && probed.framing() == face.framing
        })
    }

    /// How the packets of the server behind a session are laid out.
    pub(super) fn server_framing(&self, index: u32) -> Option<Framing> {
        let backend = usize::from(self.sessions.get(index)?.claim.backend);
        self.probed.get(backend)?.as_ref().map(Probed::framing)
    }

    /// Whether a backend serves an Unreal game.
    pub(crate) fn is_server(&self, backend: usize) -> bool {
        self.probed.get(backend).is_some_and(Option::is_some)
    }

    /// Since when the server does not know a session any more, if it is a session from before the
    /// server travelled or was started again.
    ///
    /// A server's session number is compared only with an answer that came after the session had
    /// begun: until then the session may be the newer of both.
    pub(super) fn outdated_since_ns(&self, backend: usize, session: &Session) -> Option<u64> {
        let probed = self.probed.get(backend)?.as_ref()?;
        let began_ns = session.acknowledged_ns;
        let has_travelled = probed.answered_ns > began_ns
            && probed.identity.is_some_and(|it| it.session != session.server_ids.session());
        let was_replaced = probed.returned_ns > began_ns;
        (has_travelled || was_replaced).then_some(probed.returned_ns)
    }

    /// What is known of a backend, if it serves an Unreal game.
    pub(crate) fn server(&self, backend: usize) -> Option<ServerInfo> {
        let probed = self.probed.get(backend)?.as_ref()?;
        Some(ServerInfo { is_answering: probed.is_answering, identity: probed.identity })
    }

    /// A number is another server's from now on.
    pub(crate) fn forget_server(&mut self, backend: usize) {
        if let Some(probed) = self.probed.get_mut(backend) {
            *probed = None;
        }
    }

    /// Learns which backends serve Unreal games.
    pub(crate) fn adopt(&mut self, setup: &Setup, now_ns: u64) {
        self.probed.resize_with(setup.backends.len(), || None);
        for listener in &setup.listeners[self.faces.len().min(setup.listeners.len())..] {
            let framing = listener.unreal().map_or_else(Framing::default, |rules| rules.framing);
            self.faces.push(Face { framing, ..Face::default() });
        }
        for listener in &setup.listeners {
            let Some(rules) = listener.unreal() else { continue };
            for &backend in &listener.backends {
                let probed = &mut self.probed[usize::from(backend)];
                probed.get_or_insert_with(|| Probed::new(rules, now_ns));
            }
        }
        self.has_servers = self.probed.iter().any(Option::is_some);
        self.next_probe_ns = now_ns;
        self.show_faces(setup);
    }

    /// Chooses what each listener tells its players: what the first of its servers that answers has
    /// said.
    fn show_faces(&mut self, setup: &Setup) {
        let known = |&backend: &u16| {
            let probed = self.probed[usize::from(backend)].as_ref()?;
            let is_usable = probed.is_answering && !setup.backends[usize::from(backend)].retired;
            probed.identity.filter(|_| is_usable).map(|identity| (identity, probed.framing()))
        };
        for (face, listener) in self.faces.iter_mut().zip(&setup.listeners) {
            let found = listener.backends.iter().find_map(known);
            face.identity = found.map(|(identity, _)| identity);
            face.framing = found.map_or(face.framing, |(_, framing)| framing);
            for probed in
                listener.backends.iter().filter_map(|at| self.probed[usize::from(*at)].as_ref())
            {
                face.sessions |= probed.identity.map_or(0, |identity| 1 << identity.session);
            }
        }
    }
}

impl Gate {
    /// Asks the servers whose turn it is, and gives up on those that have been silent for long.
    pub(super) fn probe_servers(&mut self, turn: &mut Turn<'_>) {
        if turn.now.mono_ns < self.unreal.next_probe_ns {
            return;
        }
        let mut next_ns = u64::MAX;
        let mut has_changed = false;
        for at in 0..self.unreal.probed.len() {
            let is_retired = self.setup.backends[at].retired;
            let Some(probed) = self.unreal.probed[at].as_mut().filter(|_| !is_retired) else {
                continue;
            };
            if probed.is_answering && turn.now.mono_ns >= probed.answered_ns + ANSWER_NS_MAX {
                probed.is_answering = false;
                has_changed = true;
            }
            if turn.now.mono_ns >= probed.due_ns {
                // Unless it answers.
                probed.due_ns = turn.now.mono_ns + REPEAT_NS;
                for way in probed.next_ways() {
                    self.send_question(turn, at, way);
                }
            }
            let look_ns = self.unreal.probed[at].as_ref().map(Probed::look_ns);
            next_ns = look_ns.map_or(next_ns, |look_ns| next_ns.min(look_ns));
        }
        self.unreal.next_probe_ns = next_ns;
        if has_changed {
            let setup = std::sync::Arc::clone(&self.setup);
            self.unreal.show_faces(&setup);
        }
    }

    fn send_question(&mut self, turn: &mut Turn<'_>, backend: usize, way: usize) {
        let (Some(socket), peer) = (self.udp_link, self.backends[backend].address) else { return };
        self.make_room(turn);
        let tail = self.unreal.tail();
        let Some(probed) = self.unreal.probed[backend].as_ref() else { return };
        let Way { framing, tail_bytes, .. } = probed.ways[way];
        let tail = tail_bytes.map_or(tail, |len| tail.with_len(len));
        let slot = turn.tx.slot().expect("room was made");
        let len = probed.question(way).encode(&framing, &tail, slot);
        turn.tx.commit(
            len,
            TxTarget { socket, peer, source: OWN_ADDRESS },
            Tag::Handshake.encode(),
        );
        self.counters.link_datagrams_out += 1;
    }

    /// What a game server has sent to our own address.
    pub(crate) fn handle_probe_answer(&mut self, now: Now, backend: usize, bytes: &[u8]) {
        if let Err(why) = self.step_probe_answer(now, backend, bytes) {
            self.count_from_link(why);
        }
    }

    fn step_probe_answer(
        &mut self,
        now: Now,
        backend: usize,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let invalid = DropReason::ServerPacketInvalid;
        let probed = self.unreal.probed[backend].as_mut().ok_or(invalid)?;
        let (way, packet) = probed.read_answer(bytes).ok_or(invalid)?;
        if probed.is_answering && way > probed.way {
            // It was asked in several ways, and has answered in a better one already.
            return Ok(());
        }
        let base = Base { sent_count: 0, ..packet.base };
        let identity = Some(Identity { base, ..Identity::of_challenge(&packet) });
        let has_changed = !probed.is_answering || probed.identity != identity || probed.way != way;
        probed.way = way;
        probed.ways_tried = 1;
        probed.is_answering = true;
        if std::mem::take(&mut probed.is_refused) {
            probed.returned_ns = now.mono_ns;
        }
        probed.answered_ns = now.mono_ns;
        probed.identity = identity;
        probed.due_ns = now.mono_ns + ASK_AGAIN_NS;
        if has_changed {
            let setup = std::sync::Arc::clone(&self.setup);
            self.unreal.show_faces(&setup);
        }
        Ok(())
    }

    /// The kernel says that nobody listens where a game server should.
    pub(crate) fn lose_server(&mut self, now: Now, backend: usize) {
        let Some(probed) = self.unreal.probed[backend].as_mut() else { return };
        probed.is_refused = true;
        if std::mem::take(&mut probed.is_answering) {
            probed.due_ns = now.mono_ns + REPEAT_NS;
            self.unreal.next_probe_ns = self.unreal.next_probe_ns.min(probed.due_ns);
            let setup = std::sync::Arc::clone(&self.setup);
            self.unreal.show_faces(&setup);
        }
    }
}

/// Whether a game server's datagram is for the gateway itself.
pub(crate) fn is_own_address(local: &LocalIp) -> bool {
    local.ip_bytes() == OWN_ADDRESS.ip_bytes()
}

/// The newest handshake version of engines without network features.
const SHORT_VERSION_MAX: u8 = 3;

/// When a server can have made a challenge, in seconds of its clock. Random bits say so once in
/// fifty times.
const CHALLENGE_S: RangeInclusive<f64> = 1e-9..=1e11;

/// Where questions come from.
const OWN_ADDRESS: LocalIp = LocalIp::v4([127, 0, 0, 1], 0);

/// How long after its answer a server is asked again.
const ASK_AGAIN_NS: u64 = 5_000_000_000;

/// How long after a question that was not answered.
const REPEAT_NS: u64 = 500_000_000;

/// Silence after which a server gets no new players: ten questions unanswered.
const ANSWER_NS_MAX: u64 = 2 * ASK_AGAIN_NS;

//! Whether a game server answers, and what it says about itself: learned from its challenge to an initial connect, which
//! leaves no trace there.
//!
//! Every worker asks for itself, from 127.0.0.1, which is no player's address. A server that has not answered for some
//! seconds gets no new players; those it has stay, because a server that loads a level answers nobody for a while. Whether a
//! server is gone altogether is the kernel's to say.

use crate::buf::{LocalIp, TxTarget};
use crate::drops::DropReason;
use crate::gate::output::{Exit, Tag};
use crate::gate::setup::{Setup, Unreal};
use crate::gate::{Gate, Now};
use crate::proto::unreal::front::{Classified, Identity, classify};
use crate::proto::unreal::handshake::{Base, Body, HANDSHAKE_BYTES_MAX, Handshake, Receiver};
use crate::proto::unreal::prefix::{Framing, Ids};

/// What is known of one game server.
pub(super) struct Probed {
    framing: Framing,
    /// What it is asked with, until it has said who it is.
    base: Base,
    pub(super) identity: Option<Identity>,
    is_answering: bool,
    answered_ns: u64,
    due_ns: u64,
}

/// What a listener tells its players about the servers behind it.
#[derive(Clone, Copy, Default)]
pub(super) struct Face {
    /// What a server says that answers; `None` while none does.
    pub(super) identity: Option<Identity>,
    /// A bit for each session number that any of them has said: players were told one of these.
    sessions: u8,
}

impl Face {
    /// The request to restart, for a game packet from nowhere.
    pub(super) fn restart_request(&self, game: Ids) -> Result<Handshake, DropReason> {
        let identity = self.identity.ok_or(DropReason::UnknownSource)?;
        if self.sessions & 1 << game.session() == 0 {
            return Err(DropReason::UnrealIds);
        }
        Identity { session: game.session(), ..identity }.restart_request(game)
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
            framing: rules.framing,
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
        }
    }

    /// When there is something to do about it.
    fn look_ns(&self) -> u64 {
        let expires_ns = self.answered_ns + ANSWER_NS_MAX;
        if self.is_answering { self.due_ns.min(expires_ns) } else { self.due_ns }
    }

    /// An initial connect that says what the server would say.
    fn question(&self) -> Handshake {
        let base = self.identity.map_or(self.base, |identity| identity.base);
        Handshake {
            ids: self.framing.layout.ids(0, 0),
            base: Base { sent_count: 0, ..base },
            body: Body::Initial { is_restart: false },
        }
    }
}

impl super::Front {
    /// Whether a backend may be sent players, as far as it can be asked.
    pub(in crate::gate) fn is_answering(&self, backend: usize) -> bool {
        self.probed.get(backend).and_then(Option::as_ref).is_none_or(|probed| probed.is_answering)
    }

    /// Whether a backend serves an Unreal game.
    pub(in crate::gate) fn is_server(&self, backend: usize) -> bool {
        self.probed.get(backend).is_some_and(Option::is_some)
    }

    /// What is known of a backend, if it serves an Unreal game.
    pub(in crate::gate) fn server(&self, backend: usize) -> Option<ServerInfo> {
        let probed = self.probed.get(backend)?.as_ref()?;
        Some(ServerInfo { is_answering: probed.is_answering, identity: probed.identity })
    }

    /// Learns which backends serve Unreal games.
    pub(in crate::gate) fn adopt(&mut self, setup: &Setup, now_ns: u64) {
        self.probed.resize_with(setup.backends.len(), || None);
        self.faces.resize(setup.listeners.len(), Face::default());
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

    /// Chooses what each listener tells its players: what the first of its servers that answers has said.
    fn show_faces(&mut self, setup: &Setup) {
        let known = |&backend: &u16| {
            let probed = self.probed[usize::from(backend)].as_ref()?;
            let is_usable = probed.is_answering && !setup.backends[usize::from(backend)].retired;
            probed.identity.filter(|_| is_usable)
        };
        for (face, listener) in self.faces.iter_mut().zip(&setup.listeners) {
            face.identity = listener.backends.iter().find_map(known);
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
    pub(super) fn probe_servers(&mut self, now: Now, exit: &mut Exit<'_>) {
        if now.mono_ns < self.unreal.next_probe_ns {
            return;
        }
        let mut next_ns = u64::MAX;
        let mut has_changed = false;
        for at in 0..self.unreal.probed.len() {
            let is_retired = self.setup.backends[at].retired;
            let Some(probed) = self.unreal.probed[at].as_mut().filter(|_| !is_retired) else {
                continue;
            };
            if probed.is_answering && now.mono_ns >= probed.answered_ns + ANSWER_NS_MAX {
                probed.is_answering = false;
                has_changed = true;
            }
            if now.mono_ns >= probed.due_ns {
                // Unless it answers.
                probed.due_ns = now.mono_ns + REPEAT_NS;
                let (question, framing) = (probed.question(), probed.framing);
                self.send_question(now, at, &framing, &question, exit);
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

    fn send_question(
        &mut self,
        now: Now,
        backend: usize,
        framing: &Framing,
        question: &Handshake,
        exit: &mut Exit<'_>,
    ) {
        let (Some(socket), peer) = (self.udp_link, self.backends[backend].address) else { return };
        let target = (TxTarget { socket, peer, source: OWN_ADDRESS }, Tag::Handshake);
        let _ = self.send_handshake(now, framing, question, HANDSHAKE_BYTES_MAX, target, exit);
    }

    /// What a game server has sent to our own address.
    pub(in crate::gate) fn handle_probe_answer(&mut self, now: Now, backend: usize, bytes: &[u8]) {
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
        let classified = classify(bytes, &probed.framing, Receiver::Client);
        let Ok(Classified::Handshake(packet)) = classified else { return Err(invalid) };
        // A server that enforces its version says which it is, and that will do for the next question.
        if !matches!(packet.body, Body::Challenge(_) | Body::VersionUpgrade) {
            return Err(invalid);
        }
        let identity = Some(Identity::of_challenge(&packet));
        let has_changed = !probed.is_answering || probed.identity != identity;
        probed.is_answering = true;
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
    pub(in crate::gate) fn lose_server(&mut self, now: Now, backend: usize) {
        let Some(probed) = self.unreal.probed[backend].as_mut() else { return };
        if std::mem::take(&mut probed.is_answering) {
            probed.due_ns = now.mono_ns + REPEAT_NS;
            self.unreal.next_probe_ns = self.unreal.next_probe_ns.min(probed.due_ns);
            let setup = std::sync::Arc::clone(&self.setup);
            self.unreal.show_faces(&setup);
        }
    }
}

/// Whether a game server's datagram is for the gateway itself.
pub(in crate::gate) fn is_own_address(local: &LocalIp) -> bool {
    local.ip_bytes() == OWN_ADDRESS.ip_bytes()
}

/// Where questions come from.
const OWN_ADDRESS: LocalIp = LocalIp::v4([127, 0, 0, 1], 0);

/// How long after its answer a server is asked again.
const ASK_AGAIN_NS: u64 = 5_000_000_000;

/// How long after a question that was not answered.
const REPEAT_NS: u64 = 500_000_000;

/// Silence after which a server gets no new players: ten questions unanswered.
const ANSWER_NS_MAX: u64 = 2 * ASK_AGAIN_NS;

//! What the servers of Unreal games are good for now, and what players are told about them.

use crate::front::unreal::probed::{Face, Probed};
use crate::front::unreal::session::Session;
use crate::front::unreal::state::UnrealFront;
use crate::ids::{BackendId, ListenerId};
use crate::info::ServerInfo;
use crate::setup::Setup;
use crate::store::entry::Entry;
use ringgate_core::proto::unreal::front::Identity;
use ringgate_core::proto::unreal::prefix::Framing;

impl UnrealFront {
    /// Whether a listener may send players to a backend: that one answers, in the layout that the
    /// players are spoken to in.
    pub(crate) fn is_open_to(&self, listener: ListenerId, backend: BackendId) -> bool {
        let probed = self.probed.get(backend).and_then(Option::as_ref);
        probed.is_none_or(|probed| {
            let face = self.faces.get(listener).copied().unwrap_or_default();
            probed.is_answering && probed.framing() == face.framing
        })
    }

    /// How the packets of the server behind a session are laid out.
    pub(crate) fn server_framing(&self, index: Entry<Session>) -> Option<Framing> {
        let backend = self.sessions.get(index)?.claim.backend;
        self.probed.get(backend)?.as_ref().map(Probed::framing)
    }

    /// Since when the server does not know a session any more, if it is a session from before the
    /// server travelled or was started again.
    ///
    /// A server's session number is compared only with an answer that came after the session had
    /// begun: until then the session may be the newer of both.
    pub(crate) fn outdated_since_ns(&self, backend: BackendId, session: &Session) -> Option<u64> {
        let probed = self.probed.get(backend)?.as_ref()?;
        let began_ns = session.acknowledged_ns;
        let has_travelled = probed.answered_ns > began_ns
            && probed.identity.is_some_and(|it| it.session != session.server_ids.session());
        let was_replaced = probed.returned_ns > began_ns;
        (has_travelled || was_replaced).then_some(probed.returned_ns)
    }

    /// What is known of a backend, if it serves an Unreal game.
    pub(crate) fn server(&self, backend: BackendId) -> Option<ServerInfo> {
        let probed = self.probed.get(backend)?.as_ref()?;
        Some(ServerInfo { is_answering: probed.is_answering, identity: probed.identity })
    }

    /// Learns which backends serve Unreal games.
    pub(crate) fn learn_servers(&mut self, setup: &Setup, now_ns: u64) {
        self.probed.resize_with(setup.backends.len(), || None);
        for (number, listener) in setup.listeners.pairs().skip(self.faces.len()) {
            self.faces.push(Face::of(number, listener));
        }
        for listener in &setup.listeners {
            let Some(rules) = listener.unreal() else { continue };
            for &backend in &listener.backends {
                let probed = &mut self.probed[backend];
                probed.get_or_insert_with(|| Probed::new(rules, now_ns));
            }
        }
        self.has_servers = self.probed.iter().any(Option::is_some);
        self.next_probe_ns = now_ns;
        self.show_faces(setup);
    }

    /// Chooses what each listener tells its players: what most of its servers that answer have
    /// said, of that which it serves. One that went wrong, or was not updated, does not speak for
    /// others.
    pub(crate) fn show_faces(&mut self, setup: &Setup) {
        let known = |&backend: &BackendId| {
            let probed = self.probed[backend].as_ref()?;
            let is_usable = probed.is_answering && !setup.backends[backend].retired;
            probed.identity.filter(|_| is_usable).map(|identity| (identity, probed.framing()))
        };
        for (face, listener) in self.faces.iter_mut().zip(&setup.listeners) {
            let Some(rules) = listener.unreal() else { continue };
            // What is said, and by how many; session numbers apart. The first of equals is told.
            let mut said = Vec::<((Identity, Framing), usize)>::new();
            for new in listener.backends.iter().filter_map(known) {
                let is_alike = |it: &(Identity, Framing)| (it.0.base, it.1) == (new.0.base, new.1);
                match said.iter_mut().find(|(it, _)| is_alike(it)) {
                    Some((_, count)) => *count += 1,
                    None => said.push((new, 1)),
                }
            }
            let rank = |((identity, framing), count): &((Identity, Framing), usize)| {
                (rules.served().check(framing, &identity.base).is_ok(), *count)
            };
            let found = said.into_iter().rev().max_by_key(rank).map(|(it, _)| it);
            face.identity = found.map(|(identity, _)| identity);
            face.last = face.identity.or(face.last);
            face.framing = found.map_or(face.framing, |(_, framing)| framing);
            for probed in
                listener.backends.iter().filter_map(|&backend| self.probed[backend].as_ref())
            {
                face.sessions |= probed.identity.map_or(0, |identity| 1 << identity.session);
            }
        }
    }
}

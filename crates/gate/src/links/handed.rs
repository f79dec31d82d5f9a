//! Links and backends on their way to the next process. Sockets stay connected, so game processes
//! see one gateway that goes on.

use crate::common::Common;
use crate::ids::{BackendId, LinkId};
use crate::links::state::{BackendState, Link};
use crate::mail::Request;
use crate::now::Now;
use crate::roles::Role;
use crate::setup::LinkKind;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

impl Common {
    /// Writes a link, with the sessions that a multicast of it has reached so far.
    pub(crate) fn hand_over_link(&self, at: LinkId, out: &mut Writer<'_>) {
        let Some(link) = &self.links.all[at] else { return };
        at.write(out);
        link.write(out);
        let reached = link.backlog.reached;
        let named = if reached.sessions > 0 {
            self.links.multicasts.named_by(reached.serial)
        } else {
            Vec::new()
        };
        named.write(out);
    }

    /// Goes on with a link. One whose socket was not handed over is lost. One of a backend that is
    /// not there any more is ended in the first turn: its process may be the backend again one day,
    /// and says hello on a new link only.
    pub(crate) fn take_link(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let at = LinkId::read(from)?;
        let mut link = Link::read(from)?;
        let named = Vec::<u32>::read(from)?;
        if at.index() >= LINKS_MAX || self.links.all.get(at).is_some_and(Option::is_some) {
            return Err(Broken::Invalid("link"));
        }
        if self.links.all.len() <= at.index() {
            self.links.all.resize_with(at.index() + 1, || None);
        }
        if link.backlog.reached.sessions > 0 {
            link.backlog.reached.serial = self.links.multicasts.begin();
            for session in named {
                self.links.multicasts.names_again(link.backlog.reached.serial, session);
            }
        }
        self.roles.assign(link.socket, Role::Link(at));
        if link.is_held {
            self.links.held_count += 1;
            self.requests.push_back(Request::HoldLink { socket: link.socket, is_held: true });
        }
        self.links.all[at] = Some(link);
        Ok(())
    }

    /// Writes what is known of a backend.
    pub(crate) fn hand_over_backend(&self, backend: BackendId, out: &mut Writer<'_>) {
        backend.write(out);
        self.links.backends[backend].hand_over(out);
    }

    /// Goes on with it.
    pub(crate) fn take_backend(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let backend = BackendId::read(from)?;
        let state = self.links.backends.get_mut(backend).ok_or(Broken::Invalid("backend"))?;
        state.take_over(from)
    }

    /// The process of a backend takes nobody new.
    pub(crate) fn take_closed_backend(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let backend = BackendId::read(from)?;
        let state = self.links.backends.get_mut(backend).ok_or(Broken::Invalid("backend"))?;
        state.is_closed = true;
        Ok(())
    }

    /// Everything has come: a backend has a link if the link is its.
    pub(crate) fn settle_links(&mut self, now: Now) {
        for backend in self.links.backends.ids() {
            let is_bundle = matches!(self.setup.backends[backend].link, LinkKind::Bundle { .. });
            let state = &mut self.links.backends[backend];
            let link = state.link.and_then(|link| self.links.all.get(link)?.as_ref());
            if !is_bundle || link.is_none_or(|link| link.backend != Some(backend)) {
                state.link = None;
                if is_bundle {
                    state.gone_since_ns.get_or_insert(now.mono_ns);
                }
            }
        }
        let is_unsettled = |link: &Link| link.backend.is_none() || link.has_deferred();
        self.links.has_unsettled = self.links.all.iter().flatten().any(is_unsettled);
        let is_sought = |state: &BackendState| !state.is_up() && state.address.is_some();
        let is_any_sought = self.links.backends.iter().any(is_sought);
        self.links.next_probe_ns = if is_any_sought { now.mono_ns } else { u64::MAX };
    }
}

/// As many as a driver has sockets.
const LINKS_MAX: usize = 1 << 14;

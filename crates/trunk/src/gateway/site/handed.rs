//! A trunk that goes on in another process: what its thread gives away, and what another one makes
//! of that.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::protocol::control::Reason;
use crate::protocol::lane::Role;
use crate::socket::{Bundles, Settings, Trunk};
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_os::notify::Epoll;

use super::{BELL, Site, making};
use crate::gateway::links::Links;
use crate::gateway::mailbox::Mailbox;
use crate::gateway::shared::Shared;
use crate::gateway::trust::Trust;
use crate::socket::rest::{Order, Part, Verdict, written};

impl Site {
    /// Gives all of it away, and waits. Whether another process goes on with it; otherwise this one
    /// does.
    pub(super) fn is_taken(&mut self, order: Order) -> bool {
        let lanes = self.take_lanes_back();
        let Self { shared, allowed, epoll, links, number, .. } = self;
        // Which link begins is not written.
        links.handle_begun(making(shared, allowed, epoll, *number));
        self.answer();
        self.links.flush(&self.epoll);
        let (verdict, is_given) = order.rest(self.part());
        match verdict {
            // Too late to go along: the agent connects again.
            Verdict::Leave if !is_given => self.trunk.say_goodbye(Reason::ShuttingDown),
            Verdict::Leave => {}
            Verdict::GoOn => {
                self.trunk.jump();
                self.risen.extend(lanes);
            }
        }
        verdict == Verdict::Leave && is_given
    }

    fn part(&mut self) -> Option<Part> {
        if !self.trunk.make_portable(self.shared.settings.clock.now_ns()) {
            return None;
        }
        let bytes = written(|out| self.write(out));
        let fds = self.trunk.descriptors().chain(self.links.descriptors());
        let fds = fds.map(|fd: BorrowedFd<'_>| fd.try_clone_to_owned());
        let fds = fds.collect::<std::io::Result<_>>();
        // Without descriptors it cannot go along.
        fds.ok().map(|fds| Part { bytes, fds })
    }

    fn write(&self, out: &mut Writer<'_>) {
        // What is not written is made anew, or follows from the rules there.
        let Self {
            shared: _, allowed: _, mailbox: _, epoll: _, bundles: _, mail: _, rest: _, ..
        } = self;
        let Self { agent, trust, trunk, links, number, since_ns, shown_drops, .. } = self;
        let Self { shown_ns: _, asked: _, called_ns: _, .. } = self;
        debug_assert!(self.risen.is_empty(), "what has come up is looked after");
        agent.write(out);
        number.write(out);
        since_ns.write(out);
        shown_drops.write(out);
        trunk.write(out);
        links.write(out);
        trust.write(out);
    }

    /// What another process had.
    pub(crate) fn read(
        shared: &Arc<Shared>,
        from: &mut Reader<'_>,
        fds: Vec<OwnedFd>,
    ) -> Result<Self, Broken> {
        let broken = |_| Broken::Invalid("descriptor");
        let mut fds = fds.into_iter();
        let (agent, number, since_ns) = (String::read(from)?, u32::read(from)?, time::read(from)?);
        let shown_drops = Carry::read(from)?;
        let (epoll, mailbox) =
            (Epoll::new().map_err(broken)?, Arc::new(Mailbox::new().map_err(broken)?));
        epoll.add(mailbox.bell(), BELL).map_err(broken)?;
        let settings =
            Settings { rekey: shared.settings.rekey, token: BELL + 1, ..Settings::default() };
        let trunk = Trunk::read(from, &mut fds, Role::Gateway, settings, &epoll)?;
        let mut links = Links::read(from, &mut fds, &epoll)?;
        links.told = shared.told(&agent);
        let trust = Trust::read(from)?;
        from.end()?;
        let is_of = |number: u32| {
            let agreed = trunk.agreed();
            agreed.is_some_and(|it| {
                it.trunk == number && usize::from(it.lanes) == shared.settings.workers
            })
        };
        if !is_of(number) || fds.next().is_some() || !shared.go_on(&agent, number, &mailbox) {
            return Err(Broken::Invalid("trunk"));
        }
        // Workers are lent again what the ones before had.
        let risen = links.lanes_up().to_vec();
        Ok(Self {
            shared: Arc::clone(shared),
            agent,
            allowed: Vec::new(),
            trust,
            mailbox,
            epoll,
            trunk,
            links,
            bundles: Bundles::default(),
            risen,
            number,
            since_ns,
            mail: Vec::new(),
            rest: None,
            shown_ns: 0,
            asked: Vec::new(),
            called_ns: 0,
            shown_drops,
        })
    }

    /// Whose it is, its lanes, and its links to backends.
    #[cfg(test)]
    pub(crate) fn contents(&self) -> (&str, Option<u8>, std::collections::BTreeMap<String, usize>) {
        (&self.agent, self.trunk.agreed().map(|it| it.lanes), self.links.by_backend())
    }

    /// Whose it is, and the backends of its links.
    pub(crate) fn serves(&self) -> (String, Vec<String>) {
        (self.agent.clone(), self.links.by_backend().into_keys().collect())
    }

    /// Goes on with it, by the rules of this process.
    pub(crate) fn start(mut self) {
        let (shared, number) = (Arc::clone(&self.shared), self.number);
        let run = move || {
            self.go_by_rules();
            self.run();
        };
        let started = std::thread::Builder::new().name("ringgate-trunk".to_owned()).spawn(run);
        if let Err(why) = started {
            tracing::error!(event = "agent_failed", "cannot go on with a trunk: {why}");
            shared.leave(number, None);
        }
    }
}

//! Toward game processes: records on bundle links, one bundle for each link and turn.

use crate::common::Common;
use crate::ids::LinkId;
use crate::links::state::{Load, load_of};
use crate::now::Now;
use crate::output::Tag;
use crate::turn::Turn;
use ringgate_batch::SendFailure;
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{MessagePart, Writer};

impl Turn<'_> {
    /// Writes a record that must not be lost.
    pub(crate) fn tell_link(&mut self, link: LinkId, record: impl Fn(&mut Writer<'_>) -> bool) {
        if self.append(link, Load::NONE, &record) {
            return;
        }
        self.common.links.has_unsettled = true;
        let Some(full) = self.common.links.get_mut(link) else { return };
        full.defer(record);
        if full.is_unresponsive() {
            self.common.lose_link(self.now, link);
        }
    }

    /// Writes a reliable message, or a part of one, which must not be lost either. False where the
    /// link is gone.
    pub(crate) fn tell_message(&mut self, link: LinkId, part: &MessagePart<'_>) -> bool {
        let load = Load { payloads: 0, messages: part.is_last.into() };
        if self.append(link, load, |writer| writer.message(part)) {
            return true;
        }
        self.common.links.has_unsettled = true;
        let Some(full) = self.common.links.get_mut(link) else { return false };
        full.defer_message(part);
        true
    }

    /// Appends a record to a link's bundle, making room where there is none. False when the link
    /// has no room at all (then nothing may overtake what is deferred), or for a record that not
    /// even an empty bundle takes.
    #[inline]
    pub(crate) fn append(
        &mut self,
        link: LinkId,
        load: Load,
        record: impl Fn(&mut Writer<'_>) -> bool,
    ) -> bool {
        // Twice: into the bundle that is open, and into a fresh one after that one was sent or
        // slots were freed.
        for _ in 0..3 {
            let Some(open) = self.common.links.get_mut(link).filter(|link| !link.has_deferred())
            else {
                return false;
            };
            let was_open = open.is_open();
            let is_written = open.append(self.tx, load, &record);
            let (is_open, is_full) = (open.is_open(), open.has_records());
            if is_open && !was_open {
                self.common.links.open.push(link);
            }
            if is_written {
                return true;
            }
            match (is_open, is_full) {
                (true, true) => self.commit_bundle(link),
                (true, false) => return false,
                (false, _) => self.submit(),
            }
        }
        false
    }

    fn commit_bundle(&mut self, link: LinkId) {
        let tag = Tag::Bundle(link).encode();
        let Some(open) = self.common.links.get_mut(link) else { return };
        if open.commit(self.tx, tag).is_some() {
            self.common.counters.link_datagrams_out += 1;
        }
    }

    /// Hands over all bundles. Only links that have one are visited: a host may have hundreds of
    /// game processes.
    pub(crate) fn commit_bundles(&mut self) {
        let mut open_links = std::mem::take(&mut self.common.links.open);
        for link in open_links.drain(..) {
            self.commit_bundle(link);
        }
        self.common.links.open = open_links;
    }

    /// Begins the turn's bundles with what was deferred.
    pub(crate) fn flush_deferred(&mut self) {
        if !self.common.links.has_unsettled {
            return;
        }
        for at in self.common.links.all.ids() {
            let Some(link) = self.common.links.all[at].as_mut().filter(|link| link.has_deferred())
            else {
                continue;
            };
            link.write_deferred(self.tx);
            self.common.links.open.push(at);
        }
    }
}

impl Common {
    /// A bundle that the socket did not take. What must not be lost goes back to its link at once,
    /// before anything else is written to it. A link that is gone stays until the driver tells its
    /// end: what the process has said before that is still in its socket.
    pub(crate) fn note_refused_bundle(&mut self, link: LinkId, bytes: &[u8], why: SendFailure) {
        self.counters.link_datagrams_out -= 1;
        self.links.has_unsettled = true;
        let Some(refused_by) = self.links.get_mut(link) else {
            // Its link has ended meanwhile.
            return self.undeliver(load_of(bytes), why);
        };
        let lost = refused_by.take_back(bytes);
        refused_by.hung_up |= why != SendFailure::Full;
        let is_unresponsive = refused_by.is_unresponsive();
        self.undeliver(lost, why);
        if is_unresponsive {
            self.links.broken.push(link);
        }
    }

    /// Gives up the links that a flush of this stage has shown not to be read.
    pub(crate) fn give_up_broken_links(&mut self, now: Now) {
        while let Some(link) = self.links.broken.pop() {
            self.lose_link(now, link);
        }
    }

    /// Takes payloads and messages back out of the balance that were counted as handed over.
    pub(crate) fn undeliver(&mut self, load: Load, why: SendFailure) {
        let Load { payloads, messages } = load;
        self.counters.messages_to_links -= messages;
        self.counters.drops.add(DropReason::MessageNotTaken, messages);
        // What the handshake says to an Unreal server is a payload on its link, and not counted.
        let payloads = payloads.min(self.counters.payloads_to_links);
        self.counters.payloads_to_links -= payloads;
        let reason = match why {
            SendFailure::Full => DropReason::LinkFull,
            SendFailure::Gone | SendFailure::Refused => DropReason::LinkDown,
        };
        self.counters.drops.add(reason, payloads);
    }
}

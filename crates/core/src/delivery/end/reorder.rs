//! Packets that come before their turn: [`held`](super::super::held) keeps them.

use super::super::types::{Channel, Refusal};
use super::End;
use crate::drops::DropReason;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::proto::delivery::read_header;

impl End {
    /// Takes the packets that have waited long enough for others before them, as
    /// [`handle_packet`](Self::handle_packet) does. Of use with `Options::reorder_ns` only.
    pub fn handle_held(
        &mut self,
        now_ns: u64,
        mut on_message: impl FnMut(Channel, &[u8]),
    ) -> Result<(), Refusal> {
        if self.is_over() {
            return Ok(());
        }
        let taken = self.take_held(now_ns, &mut on_message);
        if let Err(Refusal::Fault(fault)) = taken {
            self.fault = Some(fault);
        }
        taken
    }

    /// Nothing waits for others any more: the other end has left, and no packet comes.
    pub const fn wait_no_more(&mut self) {
        self.options.reorder_ns = 0;
    }

    /// Whether packets have waited long enough for others.
    pub fn has_held(&self, now_ns: u64) -> bool {
        self.held_until().is_some_and(|until_ns| until_ns <= now_ns)
    }

    /// What waits for others waits anew: the caller has no room for its messages now.
    pub fn hold_longer(&mut self, now_ns: u64) {
        self.held.wait_longer(now_ns);
    }

    pub(super) fn held_until(&self) -> Option<u64> {
        self.held.due_ns(self.options.reorder_ns)
    }

    /// Takes a packet and what has waited for it, or keeps it where one before it is missing that
    /// may only be late.
    pub(super) fn take_or_hold(
        &mut self,
        now_ns: u64,
        packet: &[u8],
        on_message: &mut dyn FnMut(Channel, &[u8]),
    ) -> Result<(), Refusal> {
        if self.options.reorder_ns == 0 {
            return self.take_packet(now_ns, packet, on_message);
        }
        if !self.hold(now_ns, packet)? {
            self.take_packet(now_ns, packet, on_message)?;
        }
        self.take_held(now_ns, on_message)
    }

    /// Keeps a packet that has come before its turn. Whether it waits now.
    fn hold(&mut self, now_ns: u64, packet: &[u8]) -> Result<bool, Refusal> {
        let parsed = read_header(packet).filter(|_| packet.len() <= PAYLOAD_BYTES_MAX);
        let Some((header, _)) = parsed else { return Ok(false) };
        let number = header.sequence;
        if !self.notify.has_arrived(number) && self.held.is_behind(self.notify.latest(), number) {
            self.held.handle_late(now_ns);
        }
        if self.notify.steps_to(&header) <= 1 || !self.held.is_wanted(now_ns) {
            return Ok(false);
        }
        self.check(&header)?;
        let is_new = self.held.keep(now_ns, number, packet);
        if is_new { Ok(true) } else { Err(Refusal::Dropped(DropReason::ReplayTooOld)) }
    }

    /// Takes every packet that has waited and whose turn has come.
    fn take_held(
        &mut self,
        now_ns: u64,
        on_message: &mut dyn FnMut(Channel, &[u8]),
    ) -> Result<(), Refusal> {
        let reorder_ns = self.options.reorder_ns;
        while let Some(packet) = self.held.take(now_ns, self.notify.latest(), reorder_ns) {
            let taken = self.take_packet(now_ns, &packet, on_message);
            self.held.release(packet);
            if let Err(Refusal::Fault(_)) = taken {
                return taken;
            }
        }
        Ok(())
    }
}

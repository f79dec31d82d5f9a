//! Packets that were written in a turn and wait for the cipher.
//!
//! A packet is sealed where it lies in the outgoing batch, and all of a turn together: when the
//! batch is flushed, whatever part of the gate causes that. So each packet brings along all that
//! its sealing needs, its key too.
//!
//! A key that was copied here stays until another one is written over it; a session's must not
//! outlive the session. So the copies are wiped at the end of each turn in which a session ended.

use arrayvec::ArrayVec;

use ringgate_batch::TxBatch;
use ringgate_core::crypto::{Aead, Job, Nonce};
use ringgate_core::proto::netcode::packet::PACKET_AAD_BYTES;
use ringgate_core::secret::Key;

/// The packets of a batch that are not sealed yet, in the order of their slots.
pub(crate) struct Sealing {
    /// Those that wait are the first; behind them lie ones that have left.
    packets: Vec<Packet>,
    waiting: usize,
    /// A session has ended whose key may be here.
    has_expired: bool,
}

/// What sealing a packet needs.
struct Packet {
    key: Key,
    about: About,
}

/// What sealing a packet needs besides its key.
#[derive(Clone, Copy)]
pub(crate) struct About {
    /// Which small slot of the batch it lies in.
    pub(crate) slot: u32,
    pub(crate) nonce: Nonce,
    pub(crate) aad: [u8; PACKET_AAD_BYTES],
    /// Where its body starts, and where the tag behind it ends.
    pub(crate) start: u16,
    pub(crate) end: u16,
}

impl Sealing {
    pub(crate) const fn new() -> Self {
        Self { packets: Vec::new(), waiting: 0, has_expired: false }
    }

    /// Has the packet sealed under that key before it leaves.
    #[inline]
    pub(crate) fn push(&mut self, key: &Key, about: About) {
        match self.packets.get_mut(self.waiting) {
            Some(packet) => {
                packet.key.overwrite(key);
                packet.about = about;
            }
            None => self.packets.push(Packet { key: key.clone(), about }),
        }
        self.waiting += 1;
    }

    /// Seals everything that waits, in batches.
    pub(crate) fn seal(&mut self, tx: &mut TxBatch, aead: &mut Aead) {
        let mut batch = ArrayVec::<Job<'_>, SEAL_BATCH>::new();
        let mut waiting = self.packets[..self.waiting].iter().peekable();
        for (at, slot) in tx.small_slots_mut().enumerate() {
            let is_here = |packet: &&Packet| packet.about.slot as usize == at;
            let Some(Packet { key, about }) = waiting.next_if(is_here) else { continue };
            let body = &mut slot[usize::from(about.start)..usize::from(about.end)];
            batch.push(Job::new(key, about.nonce, &about.aad, body));
            if batch.is_full() {
                aead.seal(&mut batch);
                batch.clear();
            }
        }
        assert!(waiting.peek().is_none(), "every packet that waits lies in a slot");
        if !batch.is_empty() {
            aead.seal(&mut batch);
        }
        drop(batch);
        self.waiting = 0;
    }

    /// All that waits, each with its slot.
    pub(crate) fn each_waiting(&self, tx: &mut TxBatch, mut found: impl FnMut(&About, &[u8])) {
        let mut waiting =
            self.packets[..self.waiting].iter().map(|packet| &packet.about).peekable();
        for (at, slot) in tx.small_slots_mut().enumerate() {
            if let Some(about) = waiting.next_if(|about| about.slot as usize == at) {
                found(about, slot);
            }
        }
    }

    /// A session ends, and its key with it.
    pub(crate) const fn expire(&mut self) {
        self.has_expired = true;
    }

    /// Wipes the keys that were copied, if one of them is of a session that has ended. To be called
    /// when nothing waits.
    pub(crate) fn wipe_expired(&mut self) {
        if std::mem::take(&mut self.has_expired) {
            self.packets.clear();
        }
    }
}

/// Packets sealed at once. The kernels gain nothing beyond 64 (docs/BENCHMARKS.md, crypto).
const SEAL_BATCH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_batch::{LocalIp, SocketId, TxTarget};
    use ringgate_core::crypto::Verdict;
    use ringgate_core::limits::TAG_BYTES;

    const TARGET: TxTarget =
        TxTarget { socket: SocketId(1), peer: None, source: LocalIp::UNSPECIFIED };
    const BODY: &[u8] = b"a payload";

    fn key(number: usize) -> Key {
        Key::from_bytes([number as u8 + 1; 32])
    }

    /// Writes packets between others that are not to be sealed.
    fn write(sealing: &mut Sealing, tx: &mut TxBatch, count: usize) {
        for number in 0..count {
            let plain = tx.room().expect("room");
            plain.slot[..BODY.len()].copy_from_slice(BODY);
            plain.send(BODY.len(), TARGET, 0);
            let room = tx.room().expect("room");
            room.slot[1..=BODY.len()].copy_from_slice(BODY);
            let end = 1 + BODY.len() + TAG_BYTES;
            let slot = room.send(end, TARGET, 0);
            let aad = [number as u8; PACKET_AAD_BYTES];
            let about = About { slot, nonce: [7; 12], aad, start: 1, end: end as u16 };
            sealing.push(&key(number), about);
        }
    }

    #[test]
    fn what_waits_is_sealed_where_it_lies_and_nothing_else_is_touched() {
        let (mut sealing, mut aead) = (Sealing::new(), Aead::detect());
        let mut tx = TxBatch::new(2 * (SEAL_BATCH + 3), 1);
        for count in [SEAL_BATCH + 3, 1, 0, 5] {
            write(&mut sealing, &mut tx, count);
            sealing.seal(&mut tx, &mut aead);
            for number in 0..count {
                let [plain, sealed] = [0, 1].map(|at| tx.entries()[2 * number + at]);
                assert_eq!(tx.bytes(&plain), BODY);
                let mut bytes = tx.bytes(&sealed)[1..].to_vec();
                let aad = [number as u8; PACKET_AAD_BYTES];
                let key = key(number);
                let mut jobs = [Job::new(&key, [7; 12], &aad, &mut bytes)];
                aead.open(&mut jobs);
                assert_eq!(jobs[0].verdict, Verdict::Done);
                assert_eq!(&bytes[..BODY.len()], BODY);
            }
            tx.end_flush();
        }
    }

    #[test]
    fn copies_of_keys_go_in_the_turn_in_which_a_session_ends() {
        let (mut sealing, mut aead) = (Sealing::new(), Aead::detect());
        let mut tx = TxBatch::new(8, 1);
        write(&mut sealing, &mut tx, 3);
        sealing.seal(&mut tx, &mut aead);
        sealing.wipe_expired();
        assert_eq!(sealing.packets.len(), 3, "nothing has ended");
        sealing.expire();
        sealing.wipe_expired();
        assert!(sealing.packets.is_empty());
    }
}

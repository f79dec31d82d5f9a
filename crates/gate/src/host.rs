//! One worker without a kernel: a gate, its batches, and a closure where the sockets would be.
//!
//! It keeps the promises that the gate relies on and that a driver makes: a socket that has refused
//! a datagram for want of room takes nothing more in that flush, and slots given back are not
//! looked at again.

use crate::gate::Gate;
use crate::mail::Mail;
use crate::turn::{Exit, Now};
use ringgate_batch::{
    Endpoint, Flush, IoEvent, RxBatch, RxMeta, SendFailure, SocketId, TxBatch, TxTarget,
};
use ringgate_core::limits::{BUNDLE_BYTES_MAX, RX_DATAGRAM_BYTES};

/// Takes a datagram that leaves, or says why it does not.
pub type Carry<'a> = &'a mut dyn FnMut(&TxTarget, &[u8]) -> Result<(), SendFailure>;

/// A gate with memory for what it receives and sends in a turn.
pub struct Host {
    gate: Gate,
    rx: RxBatch,
    tx: TxBatch,
    failing: Failing,
}

/// Sockets that have failed in the flush at hand.
type Failing = Vec<(SocketId, SendFailure)>;

impl Host {
    /// Takes a gate over.
    pub fn new(gate: Gate) -> Self {
        let rx = RxBatch::in_memory(RX_BYTES, RX_DATAGRAMS_MAX);
        Self { gate, rx, tx: TxBatch::new(TX_SMALL, TX_LARGE), failing: Vec::new() }
    }

    /// The gate, to ask it.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The gate, to tell it something between two turns.
    pub fn gate_mut(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// Gives the next turn a datagram to find. What else there is to say about it goes into what
    /// comes back; `None` when a turn has to be run first.
    pub fn receive(
        &mut self,
        socket: SocketId,
        peer: Endpoint,
        bytes: &[u8],
    ) -> Option<&mut RxMeta> {
        let kept = &bytes[..bytes.len().min(SLOT_BYTES_MAX)];
        let meta = self.rx.push_copy(socket, peer, kept)?;
        meta.truncated = kept.len() < bytes.len();
        Some(meta)
    }

    /// Gives the next turn an event to find.
    pub fn notice(&mut self, event: IoEvent) {
        self.rx.events.push(event);
    }

    /// Hands a message over. What follows from it leaves in the next turn.
    pub fn handle_mail(&mut self, now: Now, mail: Mail, carry: Carry<'_>) {
        let Self { gate, tx, failing, .. } = self;
        gate.handle_mail(now, mail, &mut Exit { tx, out: &mut Out { failing, carry } });
    }

    /// One turn over everything that was received since the last.
    pub fn turn(&mut self, now: Now, carry: Carry<'_>) {
        let Self { gate, rx, tx, failing } = self;
        gate.turn(now, rx, &mut Exit { tx, out: &mut Out { failing, carry } });
        rx.clear();
    }
}

struct Out<'a> {
    failing: &'a mut Failing,
    carry: Carry<'a>,
}

impl Flush for Out<'_> {
    fn flush(&mut self, tx: &mut TxBatch) {
        let Self { failing, carry } = self;
        failing.clear();
        for index in 0..tx.entries().len() {
            let entry = tx.entries()[index];
            let socket = entry.target.socket;
            if let Some(&(_, why)) = failing.iter().find(|(failed, _)| *failed == socket) {
                tx.fail(index, why);
            } else if let Err(why) = carry(&entry.target, tx.bytes(&entry)) {
                tx.fail(index, why);
                if why != SendFailure::Refused {
                    failing.push((socket, why));
                }
            }
        }
        tx.end_flush();
    }
}

/// What a turn finds at most, as with a driver's batch.
const RX_DATAGRAMS_MAX: usize = 64;

/// Full bundles on every link and long datagrams besides.
const RX_BYTES: usize = 32 * BUNDLE_BYTES_MAX;

/// Small enough that a busy turn has to flush in its middle.
const TX_SMALL: usize = 96;
const TX_LARGE: usize = 6;

/// Longer datagrams are cut off. One bound for all sockets: what is too long for a player's socket
/// is too long anyway.
const SLOT_BYTES_MAX: usize = BUNDLE_BYTES_MAX;

const _: () = assert!(RX_DATAGRAM_BYTES <= SLOT_BYTES_MAX);

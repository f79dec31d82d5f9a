//! Players' ends of netcode connections, sealed and opened by one cipher that all of them share.
//!
//! `netcode::Client` brings its own cipher and tables, which is right for a game and too much for
//! ten thousand players in one process.

use ringgate_batch::Endpoint;
use ringgate_core::crypto::{Aead, Job, Key, Verdict};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::client::{Client, Event, Transmit};
use ringgate_core::proto::netcode::packet::{AadTable, Header, Receiver};

/// Seals and opens for any number of clients of one protocol id.
pub struct Cipher {
    aead: Aead,
    aads: Box<AadTable>,
    scratch: Vec<u8>,
}

/// What a datagram meant to a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'d> {
    /// Something about the connection; `None` where nothing has changed.
    Event(Option<Event>),
    /// A payload.
    Payload(&'d [u8]),
    /// Nothing, for a reason.
    Refused(DropReason),
}

impl Cipher {
    /// A cipher for clients of that protocol id.
    pub fn new(protocol_id: u64) -> Self {
        let aads = Box::new(AadTable::new(protocol_id));
        Self { aead: Aead::detect(), aads, scratch: Vec::new() }
    }

    /// Hands a datagram to a client.
    pub fn take<'d>(
        &mut self,
        client: &mut Client,
        now_ns: u64,
        from: Endpoint,
        datagram: &'d mut [u8],
    ) -> Heard<'d> {
        let work = match client.handle_datagram(from, datagram) {
            Ok(work) => work,
            Err(why) => return Heard::Refused(why),
        };
        let key = client.open_key();
        if !self.open(key, &work.header, &mut datagram[work.sealed()]) {
            return Heard::Refused(DropReason::PacketForged);
        }
        let body = &datagram[work.body()];
        match client.handle_opened(now_ns, &work, body) {
            Ok(Some(Event::Payload)) => Heard::Payload(body),
            Ok(event) => Heard::Event(event),
            Err(why) => Heard::Refused(why),
        }
    }

    /// Writes a client's next datagram, if one is due; returns its length.
    pub fn poll(&mut self, client: &mut Client, now_ns: u64, out: &mut [u8]) -> Option<usize> {
        let transmit = client.poll_transmit(now_ns, out)?;
        Some(self.seal(client, &transmit, out))
    }

    /// Writes a payload packet of a connected client; returns its length.
    pub fn say(
        &mut self,
        client: &mut Client,
        now_ns: u64,
        payload: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let transmit = client.write_payload(now_ns, payload, out).ok()?;
        Some(self.seal(client, &transmit, out))
    }

    /// Whether a packet for a client was sealed under this key.
    pub fn is_sealed_under(&mut self, key: &Key, packet: &[u8]) -> bool {
        let Ok(header) = Header::decode(packet, Receiver::Client) else { return false };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(&packet[header.body_start()..]);
        let opens = self.open(key, &header, &mut scratch);
        self.scratch = scratch;
        opens
    }

    pub(crate) fn open(&mut self, key: &Key, header: &Header, sealed: &mut [u8]) -> bool {
        let mut jobs = [Job::new(key, header.nonce(), self.aads.of(header.prefix), sealed)];
        self.aead.open(&mut jobs);
        jobs[0].verdict == Verdict::Done
    }

    fn seal(&mut self, client: &Client, transmit: &Transmit, out: &mut [u8]) -> usize {
        if let Some(header) = transmit.seal {
            self.seal_packet(client.seal_key(), &header, &mut out[transmit.sealed()]);
        }
        transmit.len
    }

    /// Seals a packet's body, with room for the tag behind it.
    pub fn seal_packet(&mut self, key: &Key, header: &Header, sealed: &mut [u8]) {
        let aad = self.aads.of(header.prefix);
        self.aead.seal(&mut [Job::new(key, header.nonce(), aad, sealed)]);
    }
}

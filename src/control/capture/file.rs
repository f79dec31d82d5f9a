//! The file that a capture becomes, piece by piece: an interface for each listener, packets in the
//! order of their times as far as they are known together, and counts.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use super::super::view::View;
use super::Asked;
use super::comment::comment;
use ringgate_gate::{Capture, Captured, Front, ListenerId, Phase};
use ringgate_os::clock;
use ringgate_process::pages::Visitor;
use ringgate_report::pcapng::{self, Packet, Statistics, Way, udp};

/// A capture's file, as far as it goes.
pub(super) struct File {
    /// What is written of it and has not been sent.
    start: Vec<u8>,
    snaplen: u32,
    began_unix_ns: u64,
    interfaces: Vec<Interface>,
    /// One listener was asked for.
    is_of_one: bool,
    /// Of each listener, by its number.
    addresses: Vec<Vec<SocketAddr>>,
    packets: u64,
    scratch: Scratch,
}

struct Interface {
    /// Whose it is, as long as no other listener has its number.
    listener: Option<ListenerId>,
    front: Option<Front>,
    packets: u64,
    /// That one has closed.
    has_closed: bool,
}

impl Interface {
    const fn of(listener: ListenerId, front: Option<Front>) -> Self {
        Self { listener: Some(listener), front, packets: 0, has_closed: false }
    }

    /// Packets that are missing.
    fn lost(&self, capture: &Capture) -> u64 {
        self.listener.map_or(0, |it| capture.lost(it))
    }
}

/// Memory that is used again.
#[derive(Default)]
struct Scratch {
    packet: Vec<u8>,
    comment: String,
    /// Blocks, and where each lies, with its time.
    blocks: Vec<u8>,
    order: Vec<(u64, Range<usize>)>,
}

/// What times are counted from.
#[derive(Clone, Copy)]
struct Clocks {
    unix_ns: u64,
    now_ns: u64,
}

impl Clocks {
    fn read(view: &View) -> Self {
        Self { unix_ns: clock::unix_ns(), now_ns: view.now_ns() }
    }

    /// When a datagram came, or left.
    fn of(self, captured: &Captured) -> u64 {
        match captured.seen.kernel_ns {
            0 => self.unix_ns.saturating_sub(self.now_ns.saturating_sub(captured.seen.turn_ns)),
            unix_ns => unix_ns,
        }
    }
}

impl File {
    /// A file without packets, with an interface for each listener that is meant.
    pub(super) fn new(view: &View, asked: &Asked, visitor: &Visitor) -> Self {
        let version = concat!("ringgate ", env!("CARGO_PKG_VERSION"));
        let holds = if asked.in_clear {
            "What games and players say is IN CLEAR in this file: keep it as you keep a game's secrets, and \
             delete it when it has done its work."
        } else {
            "Datagrams are as they were on the wire."
        };
        let about = format!(
            "{}, asked for by {visitor}. {holds} IP and UDP headers are made from what is known; addresses, ports \
             and lengths are right.",
            asked.what
        );
        let mut start = Vec::new();
        pcapng::section(&mut start, version, &about);
        let mut file = Self {
            start,
            snaplen: asked.snaplen,
            began_unix_ns: clock::unix_ns(),
            interfaces: Vec::new(),
            is_of_one: asked.meant.listener.is_some(),
            addresses: view.addresses(),
            packets: 0,
            scratch: Scratch::default(),
        };
        let setup = Arc::clone(&view.live().setup);
        for (id, listener) in setup.listeners.pairs() {
            if asked.meant.listener.is_none_or(|wanted| wanted == id) {
                pcapng::interface(&mut file.start, &listener.name, file.snaplen);
                let front = Some(Front::of(&listener.protocol));
                file.interfaces.push(Interface::of(id, front));
            }
        }
        file
    }

    /// Packets so far.
    pub(super) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets that are missing.
    pub(super) fn lost(&self, capture: &Capture) -> u64 {
        self.interfaces.iter().map(|it| it.lost(capture)).sum()
    }

    /// Whether the listener that was asked for has closed: nothing comes any more.
    pub(super) fn is_of_nobody(&self) -> bool {
        self.is_of_one && self.interfaces.iter().all(|it| it.has_closed)
    }

    /// The number of a listener that has closed may be another's by now.
    fn follow(&mut self, view: &View) {
        let setup = Arc::clone(&view.live().setup);
        for it in &mut self.interfaces {
            let known = it.listener.and_then(|it| setup.listeners.get(it));
            let is_closed = known.is_none_or(|it| it.phase == Phase::Closed);
            if it.has_closed && !is_closed {
                it.listener = None;
                self.addresses = view.addresses();
            }
            it.has_closed |= is_closed;
        }
    }

    /// Adds what has been captured, up to a number of packets.
    pub(super) fn add(
        &mut self,
        view: &View,
        capture: &Capture,
        packets_max: u64,
        out: &mut Vec<u8>,
    ) {
        self.follow(view);
        out.append(&mut self.start);
        let clocks = Clocks::read(view);
        let mut left = packets_max;
        if left > 0 {
            capture.drain(|captured| {
                self.add_one(view, clocks, captured, out);
                left -= 1;
                left > 0
            });
        }
        let Scratch { blocks, order, .. } = &mut self.scratch;
        order.sort_by_key(|(unix_ns, _)| *unix_ns);
        for (_, range) in order.drain(..) {
            out.extend_from_slice(&blocks[range]);
        }
        blocks.clear();
    }

    fn add_one(&mut self, view: &View, clocks: Clocks, captured: &Captured, out: &mut Vec<u8>) {
        let interface = self.interface(view, captured.seen.address.listener, out);
        let peer = SocketAddr::from(captured.seen.address.endpoint);
        let local = self.local(view, captured);
        let front = self.interfaces[interface].front;
        let (way, from, to) = if captured.seen.is_outbound {
            (Way::Outbound, local, peer)
        } else {
            (Way::Inbound, peer, local)
        };
        let Scratch { packet, comment: words, blocks, order } = &mut self.scratch;
        packet.clear();
        udp::datagram(packet, from, to, &captured.bytes);
        comment(words, captured, front);
        let unix_ns = clocks.of(captured);
        let (start, len) = (blocks.len(), packet.len());
        let bytes = &packet[..len.min(self.snaplen as usize)];
        let block =
            Packet { interface: interface as u32, unix_ns, way, bytes, len, comment: words };
        pcapng::packet(blocks, &block);
        order.push((unix_ns, start..blocks.len()));
        self.interfaces[interface].packets += 1;
        self.packets += 1;
    }

    /// The interface of a listener. One that is new since the beginning is written now, before the
    /// packets of this look.
    fn interface(&mut self, view: &View, listener: ListenerId, out: &mut Vec<u8>) -> usize {
        if let Some(at) = self.interfaces.iter().position(|it| it.listener == Some(listener)) {
            return at;
        }
        let setup = Arc::clone(&view.live().setup);
        let known = setup.listeners.get(listener);
        let front = known.map(|listener| Front::of(&listener.protocol));
        pcapng::interface(out, known.map_or("", |listener| &listener.name), self.snaplen);
        self.interfaces.push(Interface::of(listener, front));
        self.interfaces.len() - 1
    }

    /// Where a listener has been spoken to.
    fn local(&mut self, view: &View, captured: &Captured) -> SocketAddr {
        let (listener, bind) =
            (captured.seen.address.listener.index(), usize::from(captured.seen.bind.0));
        let known = |addresses: &[Vec<SocketAddr>]| addresses.get(listener)?.get(bind).copied();
        let bound = known(&self.addresses).or_else(|| {
            self.addresses = view.addresses();
            known(&self.addresses)
        });
        let bound = bound.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
        if captured.seen.local.is_unspecified() {
            bound
        } else {
            SocketAddr::new(captured.seen.local.ip(), bound.port())
        }
    }

    /// Adds the counts so far.
    pub(super) fn count(&self, capture: &Capture, out: &mut Vec<u8>) {
        self.end(capture, "", out);
    }

    /// Adds the counts, and why it is over.
    pub(super) fn end(&self, capture: &Capture, why: &str, out: &mut Vec<u8>) {
        for (interface, it) in self.interfaces.iter().enumerate() {
            let lost = it.lost(capture);
            let counts = Statistics {
                interface: interface as u32,
                began_unix_ns: self.began_unix_ns,
                ended_unix_ns: clock::unix_ns(),
                matched: it.packets + lost,
                lost,
                comment: why,
            };
            pcapng::statistics(out, &counts);
        }
    }
}

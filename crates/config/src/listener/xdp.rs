//! `io` and `[listener.xdp]`: whether players' packets come and go past the kernel's sockets, and
//! by which interface.
//!
//! A worker serves one queue of one interface, so all listeners that are served so have the same
//! table.

use super::Surroundings;
use crate::declare::{Declared, declare};
use crate::schema::{Kind, Table};
use crate::section::{Read, Section};
use crate::{ListenerIo, XdpMode};
use ringgate_core::limits::WORKERS_MAX;

declare! {
    /// How a listener is served past the kernel's sockets.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Xdp {
        /// The interface that players' packets come by; a VLAN's are served by the interface that
        /// the VLAN is in. Required with io = "xdp".
        interface: String =
            by_hand(Kind::Value("a network interface's name of 1 to 15 bytes")), optional: "eth0", Restart;
        /// How many of its queues may be served, from the first on. Without it: all that are in
        /// use. Each worker serves one, more workers than queues are refused, and what comes by
        /// other queues takes the way by the socket.
        queues: Option<u32> = integer(1, WORKERS_MAX as u64), optional: 4, Restart;
        /// "zerocopy": the card reads and writes the gateway's memory. "copy": its driver runs the
        /// gateway's program, and the kernel copies. "generic": the kernel runs the program itself,
        /// which is slower and works with every driver. "auto": the first of these that works;
        /// `ready:` says which.
        mode: XdpMode = word, default: "auto", Restart;
        /// Serve by sockets, and say so, where it cannot be had. Without it the gateway refuses to
        /// start.
        fallback: bool = flag, default: false, Restart;
    }
}

pub(crate) const XDP: Table = Table {
    examples: &[],
    ..Table::new(
        "listener.xdp",
        "The network interface of listeners with io = \"xdp\"; without effect on others. Each worker serves one of its queues, \
         so all these listeners have the same table.",
        &[Xdp::FIELDS],
    )
};

/// Without `io = "xdp"` the table has no effect, so that an operator can leave it where it is.
pub(super) fn read(
    listener: &mut Section<'_, '_>,
    io: Option<ListenerIo>,
    around: &mut Surroundings<'_>,
) -> Read<Option<Xdp>> {
    let mut section = listener.table("xdp")?;
    let interface = section.text_or("interface", None, |text| interface(text).map(Some));
    let mut found = Xdp::find(&mut section);
    section.finish();
    found.interface = interface?;
    if io? == ListenerIo::Sockets {
        return Some(None);
    }
    if found.interface.is_none() {
        let expected = "interface, the network interface that its packets come by";
        listener.expected("xdp", "io = \"xdp\" without an interface", expected);
        return None;
    }
    let xdp = Xdp::whole(found)?;
    if !cfg!(feature = "xdp") && !xdp.fallback {
        listener.left_out("xdp");
    }
    let first = around.card.get_or_insert_with(|| xdp.clone());
    if *first != xdp {
        let found = "another table than that of the first listener with io = \"xdp\"";
        let expected = "the same interface, queues, mode and fallback (a worker serves one queue)";
        listener.expected("xdp", found, expected);
    }
    if let (Some(workers), Some(queues)) = (around.workers, xdp.queues)
        && workers > queues as usize
    {
        let found = format_args!("{queues} queues, and gateway.workers = {workers}");
        let expected = "a queue for each worker: fewer workers, or more queues";
        listener.expected("xdp", found, expected);
    }
    Some(Some(xdp))
}

/// As the kernel wants names of interfaces.
fn interface(text: &str) -> Option<String> {
    let is_fit = |it: char| !it.is_whitespace() && it != '/' && it != ':' && !it.is_control();
    let fits = (1..=INTERFACE_BYTES_MAX).contains(&text.len()) && text.chars().all(is_fit);
    (fits && text != "." && text != "..").then(|| text.to_owned())
}

/// `IFNAMSIZ`, without the end of the text.
const INTERFACE_BYTES_MAX: usize = 15;

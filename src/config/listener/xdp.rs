//! `io` and `[listener.xdp]`: whether players' packets come and go past the kernel's sockets, and
//! by which interface.
//!
//! A worker serves one queue of one interface, so all listeners that are served so have the same
//! table.

use super::Surroundings;
use crate::config::section::{Noted, Section};
use crate::config::{ListenerIo, Xdp};

/// Without `io = "xdp"` the table has no effect, so that an operator can leave it where it is.
pub(super) fn read(
    listener: &mut Section<'_, '_>,
    around: &mut Surroundings<'_>,
) -> Result<Option<Xdp>, Noted> {
    let io = listener.choice::<ListenerIo>("io");
    let place = listener.place("xdp");
    let found = read_table(listener);
    let ((io, _), found) = io.zip(found).ok_or(Noted)?;
    if io == ListenerIo::Sockets {
        return Ok(None);
    }
    let Some(interface) = found.interface else {
        let expected = "interface, the network interface that its packets come by";
        listener.report.expected(&place, "io = \"xdp\" without an interface", expected);
        return Err(Noted);
    };
    let xdp = Xdp { interface, queues: found.queues, mode: found.mode, fallback: found.fallback };
    let first = around.card.get_or_insert_with(|| xdp.clone());
    if *first != xdp {
        let found = "another table than that of the first listener with io = \"xdp\"";
        let expected = "the same interface, queues, mode and fallback (a worker serves one queue)";
        listener.report.expected(&place, found, expected);
    }
    if let (Some(workers), Some(queues)) = (around.workers, xdp.queues)
        && workers > queues as usize
    {
        let found = format_args!("{queues} queues, and gateway.workers = {workers}");
        let expected = "a queue for each worker: fewer workers, or more queues";
        listener.report.expected(&place, found, expected);
    }
    Ok(Some(xdp))
}

/// The table as it stands.
struct Found {
    interface: Option<String>,
    queues: Option<u32>,
    mode: crate::config::XdpMode,
    fallback: bool,
}

fn read_table(listener: &mut Section<'_, '_>) -> Option<Found> {
    let mut section = listener.table("xdp")?;
    let interface = section.text_or("interface", None, |text| interface(text).map(Some));
    let queues = section.integer_or("queues", 0);
    let mode = section.choice("mode");
    let fallback = section.flag("fallback");
    section.finish();
    Some(Found {
        interface: interface?,
        queues: queues.map(|count| u32::try_from(count).ok().filter(|count| *count > 0))?,
        mode: mode?.0,
        fallback: fallback?,
    })
}

/// As the kernel wants names of interfaces.
fn interface(text: &str) -> Option<String> {
    let is_fit = |it: char| !it.is_whitespace() && it != '/' && it != ':' && !it.is_control();
    let fits = (1..=INTERFACE_BYTES_MAX).contains(&text.len()) && text.chars().all(is_fit);
    (fits && text != "." && text != "..").then(|| text.to_owned())
}

/// `IFNAMSIZ`, without the end of the text.
const INTERFACE_BYTES_MAX: usize = 15;

//! All trunks and doors of a gateway on their way to the next process, or from the one before.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringgate_core::carry::{Broken, Carry, Maps, Reader, Writer};
use ringgate_trunk_io::{Door, adopt};
use socket2::Type;
use zeroize::Zeroizing;

use crate::rest::{Bench, Order, Part, REST_WITHIN_NS, Verdict, gather, written};
use crate::site::Site;
use crate::trunks::Trunks;

/// What the process before had, until rules are adopted.
#[derive(Default)]
pub(crate) struct Inherited {
    pub(crate) doors: BTreeMap<SocketAddr, Door>,
    pub(crate) sites: Vec<Site>,
}

/// Threads that rest, and what they have given away. Dropped, they go on.
pub struct AtRest {
    bench: Arc<Bench>,
    bytes: Zeroizing<Vec<u8>>,
    fds: Vec<OwnedFd>,
}

impl AtRest {
    /// What another process has to read: keys are among it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it has to get beside that, in this order.
    pub fn descriptors(&self) -> &[OwnedFd] {
        &self.fds
    }

    /// Another process has them: the threads end, and agents hear nothing of it.
    pub fn leave(self) {
        self.bench.say(Verdict::Leave);
    }
}

impl Drop for AtRest {
    fn drop(&mut self) {
        self.bench.say(Verdict::GoOn);
    }
}

impl Trunks {
    /// Has all threads rest. Who does not do so in time is left out, and its agent connects again
    /// should another process go on.
    pub fn rest(&mut self) -> AtRest {
        let (bench, clock) = (Arc::new(Bench::default()), self.shared.settings.clock);
        let until = (clock, clock.now_ns() + REST_WITHIN_NS);
        // Doors first: whom they let in until then is among the trunks.
        let (order, given) = Order::new(&bench);
        self.doors.values().for_each(|(stop, _)| stop.rest(order.clone()));
        drop(order);
        let doors = gather(&given, self.doors.len(), until);
        let (order, given) = Order::new(&bench);
        let count = self.shared.rest(&order);
        drop(order);
        let trunks = gather(&given, count, until);
        let bytes = written(|out| {
            VERSION.write(out);
            self.shared.write(out);
            write_parts(&doors, out);
            write_parts(&trunks, out);
        });
        let fds = doors.into_iter().chain(trunks).flat_map(|part| part.fds).collect();
        AtRest { bench, bytes, fds }
    }

    /// Takes what another process has given away. Nothing of it moves before rules are adopted.
    /// What cannot be read is left out, and its agent connects again; the error says what.
    pub fn inherit(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), String> {
        let read = self.read(bytes, fds);
        read.map_err(|why| format!("trunks of the process before cannot go on: {why}"))
    }

    fn read(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<(), Broken> {
        let (maps, mut fds) = (Maps::default(), fds.into_iter());
        let mut from = Reader::new(bytes, &maps);
        if u16::read(&mut from)? != VERSION {
            return Err(Broken::Invalid("version"));
        }
        self.shared.read(&mut from)?;
        for (bytes, fds) in read_parts(&mut from, &mut fds)? {
            let (bind, door) = read_door(&mut Reader::new(bytes, &maps), fds)?;
            self.inherited.doors.insert(bind, door);
        }
        let mut failed = Ok(());
        for (bytes, fds) in read_parts(&mut from, &mut fds)? {
            match Site::read(&self.shared, &mut Reader::new(bytes, &maps), fds) {
                Ok(site) => self.inherited.sites.push(site),
                Err(why) => failed = Err(why),
            }
        }
        failed
    }
}

fn read_door(from: &mut Reader<'_>, fds: Vec<OwnedFd>) -> Result<(SocketAddr, Door), Broken> {
    let bind = String::read(from)?.parse().map_err(|_| Broken::Invalid("address"))?;
    let [listener, datagrams] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| Broken::Truncated)?;
    let (listener, datagrams) = (adopt(listener, Type::STREAM)?, adopt(datagrams, Type::DGRAM)?);
    Ok((bind, Door::new(listener.into(), datagrams.into())))
}

/// Each with its length, so that one that cannot be read leaves the others alone.
fn write_parts(parts: &[Part], out: &mut Writer<'_>) {
    (parts.len() as u32).write(out);
    for Part { bytes, fds } in parts {
        (fds.len() as u32).write(out);
        bytes.len().write(out);
        out.bytes(bytes);
    }
}

/// What one thread has given away.
type Given<'a> = (&'a [u8], Vec<OwnedFd>);

fn read_parts<'a>(
    from: &mut Reader<'a>,
    fds: &mut impl Iterator<Item = OwnedFd>,
) -> Result<Vec<Given<'a>>, Broken> {
    let mut parts = Vec::new();
    for _ in 0..u32::read(from)? {
        let (count, len) = (u32::read(from)? as usize, usize::read(from)?);
        let bytes = from.bytes(len)?;
        let fds: Vec<_> = fds.by_ref().take(count).collect();
        if fds.len() != count {
            return Err(Broken::Truncated);
        }
        parts.push((bytes, fds));
    }
    Ok(parts)
}

/// Of all that is written here. What is of another one is not read, and agents connect again.
const VERSION: u16 = 1;

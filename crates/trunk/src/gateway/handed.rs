//! All trunks and doors of a gateway on their way to the next process, or from the one before.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::socket::{Door, adopt};
use ringgate_core::carry::{Broken, Carry, Maps, Reader};
use socket2::Type;

use crate::gateway::site::Site;
use crate::gateway::trunks::Trunks;
use crate::socket::rest::{AtRest, Bench, Call, REST_WITHIN_NS, read_parts, write_parts, written};

impl Trunks {
    /// Has all threads rest. Who does not do so in time is left out, and its agent connects again
    /// should another process go on.
    pub fn rest(&mut self) -> AtRest {
        let (bench, clock) = (Arc::new(Bench::default()), self.shared.settings.clock);
        let until = (clock, clock.now_ns() + REST_WITHIN_NS);
        // Doors first: whom they let in until then is among the trunks.
        let mut call = Call::new(&bench);
        for (bind, (stop, _)) in &self.doors {
            stop.rest(call.order(format!("the door at {bind}")));
        }
        let (doors, _) = call.gather(until);
        let mut call = Call::new(&bench);
        self.shared.rest(&mut call);
        let (trunks, _) = call.gather(until);
        let bytes = written(|out| {
            VERSION.write(out);
            self.shared.write(out);
            write_parts(&doors, out);
            write_parts(&trunks, out);
        });
        let fds = doors.into_iter().chain(trunks).flat_map(|part| part.fds).collect();
        AtRest::new(bench, bytes, fds)
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

/// Of all that is written here. What is of another one is not read, and agents connect again.
const VERSION: u16 = 1;

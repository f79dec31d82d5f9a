//! Links that go on in another process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::socket::Local;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_os::notify::Epoll;

use super::{LINKS_MAX, Link, Links, State, TOKEN, WAITING_BYTES_MAX};

impl Links {
    /// Writes all of them but their descriptors. What was counted was shown before.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        // The rest follows from what is written.
        let Self { places, by_number: _, latest: _, up, dirty: _, is_held: _, answers, .. } = self;
        let Self { leaving, beginning, waiting_bytes: _, told: _, told_names: _, .. } = self;
        debug_assert!(leaving.is_empty(), "no worker reads a link any more");
        debug_assert!(beginning.is_none(), "what has begun is with its worker");
        // Workers have given their lanes back, and what they call links is this process's.
        let Self { counts: _, lent: _, by_serial: _, latest_serial: _, .. } = self;
        debug_assert!(answers.is_empty(), "what is to be said was said");
        up.write(out);
        (places.iter().flatten().count() as u32).write(out);
        for Link { lane, number, serial: _, backend, state, is_dirty: _ } in places.iter().flatten()
        {
            (*lane, *number).write(out);
            backend.write(out);
            match state {
                State::Waiting(records) => {
                    false.write(out);
                    records.write(out);
                }
                State::Up(local) => {
                    true.write(out);
                    local.write(out);
                }
            }
        }
    }

    /// What goes beside them.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.places.iter().flatten().filter_map(|link| match &link.state {
            State::Up(local) => Some(local.as_fd()),
            State::Waiting(_) => None,
        })
    }

    /// What another process had.
    pub(crate) fn read(
        from: &mut Reader<'_>,
        fds: &mut impl Iterator<Item = OwnedFd>,
        epoll: &Epoll,
    ) -> Result<Self, Broken> {
        let mut links = Self { up: Carry::read(from)?, ..Self::default() };
        let count = u32::read(from)? as usize;
        if count > LINKS_MAX {
            return Err(Broken::Invalid("number of links"));
        }
        for place in 0..count {
            let (lane, number) = Carry::read(from)?;
            let backend = String::read(from)?;
            let state = if bool::read(from)? {
                let local = Local::read(from, fds.next().ok_or(Broken::Truncated)?)?;
                let token = TOKEN + place as u64;
                local.watch(epoll, token).map_err(|_| Broken::Invalid("descriptor"))?;
                State::Up(local)
            } else {
                let records = Vec::<u8>::read(from)?;
                links.waiting_bytes += records.len();
                let fits = records.len() <= WAITING_BYTES_MAX;
                State::Waiting(fits.then_some(records).ok_or(Broken::Invalid("link"))?)
            };
            let serial = place as u32 + 1;
            (links.latest_serial, _) = (serial, links.by_serial.insert(serial, place));
            let link = Link { lane, number, serial, backend, state, is_dirty: false };
            links.places.push(Some(link));
            let before = links.by_number.insert((lane, number), place);
            before.is_none().then_some(()).ok_or(Broken::Invalid("number of a link"))?;
            // What waits is sent, and its room watched for.
            links.note_dirty(place);
        }
        Ok(links)
    }
}

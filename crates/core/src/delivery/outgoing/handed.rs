//! Reliable channels on their way to the next process.

use super::super::channels::{Channels, Numbered};
use super::super::parts::OutChannel;
use super::Outgoing;
use crate::carry::{Broken, Carry, Reader, Writer};

impl Outgoing {
    /// Writes what waits and what is under way.
    pub(in crate::delivery) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self {
            channels,
            turn,
            next_large,
            // All of it follows from the channels.
            ready: _,
            queued_bytes: _,
            claimed_large: _,
            claimed_small: _,
            lost: _,
            channel_bytes: _,
            // Of one packet.
            copy: _,
            // It is found out anew.
            heap_bytes_max: _,
        } = self;
        turn.write(out);
        next_large.write(out);
        channels.hand_over(out, OutChannel::hand_over);
    }

    /// Reads it. Parts are at most `len_max` long.
    pub(in crate::delivery) fn take_over(
        len_max: usize,
        from: &mut Reader<'_>,
    ) -> Result<Self, Broken> {
        let mut read = Self::new();
        read.turn = u8::read(from)?;
        let next_large = Option::<u8>::read(from)?;
        read.channels = Channels::take_over(from, |from| OutChannel::take_over(len_max, from))?;
        for out in read.channels.iter_mut() {
            let (large, small) = out.claims();
            read.claimed_large += large;
            read.claimed_small += small;
            read.queued_bytes += out.queued_bytes();
            read.lost += out.lost();
            read.ready.set(out.number(), out.is_ready());
        }
        read.count_channels();
        let waits = |channel: &u8| {
            let out = read.channels.get(*channel);
            out.and_then(OutChannel::next_claim).is_some_and(|claim| claim.is_large)
        };
        read.next_large = next_large.filter(waits);
        Ok(read)
    }
}

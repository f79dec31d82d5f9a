//! Ends of a local worker that goes on in another process.

use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_core::delivery::{End, Fault, Options};
use ringgate_link::bundle::{Channel, CloseReason, MessagePart, SessionId};

use crate::protocol::arbitration::read_session;
use crate::protocol::relay::delivered::{Delivered, DeliveredCounts, Ends};
use crate::protocol::relay::{Game, Relay};

ringgate_core::carried!(DeliveredCounts {
    traffic,
    deferred,
    late,
    unknown,
    too_long,
    overflow,
    linger_expired,
    faults,
});

// One that is added goes along behind everything else: a release reads what the one before wrote.
const _: () = assert!(Fault::ALL.len() == 9, "counts of faults have another length");

impl Relay {
    /// Writes them, and what game processes have said half.
    pub fn write_ends(&self, out: &mut Writer<'_>) {
        // What is due is seen anew, and whether there is room.
        let Ends { now_ns: _, all, touched: _, due: _, full: _, crowded: _, .. } = &self.ends;
        let Ends { is_room_told: _, record: _, packet: _, counts, .. } = &self.ends;
        counts.write(out);
        (all.len() as u32).write(out);
        for (session, it) in all {
            let Delivered { game, end, keep_alive_ns, is_there, is_full, linger, over, .. } = &**it;
            // Of counts there is no news by then.
            let Delivered { counted: _, is_touched: _, due_ns: _, forgotten_ns: _, .. } = &**it;
            session.as_u64().write(out);
            (game.place() as u8).write(out);
            keep_alive_ns.write(out);
            [*is_there, *is_full].map(u8::from).write(out);
            let said = |(at_ns, reason): (u64, CloseReason)| (at_ns, reason.as_u8());
            linger.map(said).write(out);
            over.map(|(reason, at_ns)| said((at_ns, reason))).write(out);
            end.hand_over(out);
            end.hand_over_farewells(out);
        }
        let places = self.places.iter().enumerate();
        let begun = places.filter_map(|(at, place)| {
            let (session, channel, token, bytes) = place.taken.as_ref()?.assembly.begun()?;
            let channel = u16::from_le_bytes(channel.to_bytes());
            Some(((at as u8, session.as_u64()), ((token, channel), bytes.to_vec())))
        });
        begun.collect::<Vec<_>>().write(out);
    }

    /// What another process had.
    pub fn read_ends(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.ends.counts = Carry::read(from)?;
        for _ in 0..u32::read(from)? {
            let session = read_session(from)?;
            let game = Game::at(u8::read(from)?.into());
            let keep_alive_ns = u64::read(from)?;
            let [is_there, is_full] = <[u8; 2]>::read(from)?.map(|it| it != 0);
            let (linger, over) = (read_reason(from)?, read_reason(from)?);
            let mut end = End::take_over(&Options::for_player(keep_alive_ns), from)?;
            end.take_farewells(from)?;
            if !self.has(game) || !self.clusters.homes.contains_key(&session) {
                return Err(Broken::Invalid("session"));
            }
            let over = over.map(|(at_ns, reason)| (reason, at_ns));
            let fresh = Delivered::new(game, keep_alive_ns, end);
            self.ends.put(session, Delivered { is_there, is_full, linger, over, ..fresh });
        }
        for ((place, session), ((token, channel), bytes)) in Vec::<Begun>::read(from)? {
            let session = SessionId::from_u64(session);
            let channel =
                Channel::from_bytes(channel.to_le_bytes()).ok().filter(|it| it.is_reliable());
            let (Some(session), Some(channel)) = (session, channel) else {
                return Err(Broken::Invalid("message"));
            };
            let place = self.places.get_mut(usize::from(place));
            let taken = place.and_then(|place| place.taken.as_mut());
            let assembly = &mut taken.ok_or(Broken::Invalid("link"))?.assembly;
            let (is_first, is_last, bytes) = (true, false, &bytes[..]);
            let part = MessagePart { session, channel, is_first, is_last, token, bytes };
            assembly.take(&part).map_err(|_| Broken::Invalid("message"))?;
        }
        Ok(())
    }
}

/// A message that has begun: whose it is by place and session, its token, its channel, its bytes.
type Begun = ((u8, u64), ((u64, u16), Vec<u8>));

/// At what time, and for what reason.
fn read_reason(from: &mut Reader<'_>) -> Result<Option<(u64, CloseReason)>, Broken> {
    if !bool::read(from)? {
        return Ok(None);
    }
    let (at_ns, reason) = (time::read(from)?, u8::read(from)?);
    let reason = CloseReason::from_u8(reason).ok_or(Broken::Invalid("reason"))?;
    Ok(Some((at_ns, reason)))
}

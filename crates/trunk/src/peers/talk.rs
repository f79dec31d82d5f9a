//! What two members say to each other on one connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ringgate_cluster::wire::{
    DATAGRAM_BYTES_MAX, Datagram, Draft, Ear, HOPS_MAX, Message, Offered, Refused, VERSION,
    VERSION_OFFER, VERSION_STANDBY,
};
use ringgate_cluster::{Incarnation, News, NoRoom, RECORD_BYTES_MAX, Record, SessionId};
use ringgate_link::bundle::{Frame, HEADER_BYTES};
use zeroize::Zeroize;

use super::backlog::Backlog;
use super::players::{Arrival, Number, Players};
use crate::protocol::control::Reason;
use crate::socket::{Event, Trunk};

/// What was exchanged with a member, on all of its connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Datagrams that it was sent.
    pub(super) out: u64,
    /// Datagrams that it has sent, and that are with a worker.
    pub(super) come: u64,
    /// What went no further, by name.
    pub(super) dropped: BTreeMap<&'static str, u64>,
}

/// Which process each member is, as it has said last; also where it is gone since, as long as it
/// has its number.
#[derive(Debug, Default)]
pub(super) struct Processes(BTreeMap<Number, Incarnation>);

/// What members have said and sent, beside what is known of players.
pub(super) struct Taken<'a> {
    pub(super) counts: &'a mut Counts,
    pub(super) onward: &'a mut Vec<Onward>,
    pub(super) processes: &'a mut Processes,
}

/// A datagram that was forwarded here, and belongs to yet another member by now.
pub(super) struct Onward {
    pub(super) to: Number,
    listener: u16,
    player: SocketAddr,
    local: SocketAddr,
    bytes: Vec<u8>,
}

impl Onward {
    /// The datagram, on its last hop.
    pub(super) fn datagram(&self) -> Datagram<'_> {
        let Self { listener, player, local, bytes, .. } = self;
        let (listener, player, to) = (*listener, *player, *local);
        Datagram { listener, player, to, is_lost: false, hops: HOPS_MAX, bytes }
    }
}

/// Our listeners and their numbers.
pub(super) type Listeners = Arc<[(u16, String)]>;

pub(super) struct Talk {
    pub(super) number: Number,
    ear: Ear,
    draft: Draft,
    /// The part of all that it is told of next, as long as there is one.
    next_part: Option<usize>,
    /// How often it has asked for all again since that was looked at: it may have found no listener
    /// for records that it stands by for.
    pub(super) asked: u32,
    /// It has told of all that it had.
    pub(super) is_complete: bool,
    /// Which process it is, if it has said so: it can stand by for our sessions.
    pub(super) incarnation: Option<Incarnation>,
    /// The member knows which process we are.
    is_known: bool,
    /// It goes on with nothing of ours.
    pub(super) is_leaving: bool,
    /// What it was told of whether we do with what it has.
    told_leaving: Option<bool>,
    /// The process that it has asked last whether it is there.
    pub(super) doubted: Option<Incarnation>,
    /// Why the connection is to end.
    pub(super) over: Option<Reason>,
    /// What it is told of players when less waits for the stream.
    backlog: Backlog,
}

impl Counts {
    pub(super) fn drop(&mut self, why: &'static str) {
        *self.dropped.entry(why).or_default() += 1;
    }
}

impl Processes {
    /// A member says which process it is. No two ever are the same one.
    fn take(&mut self, member: Number, process: Incarnation) -> Result<(), &'static str> {
        if self.0.iter().any(|(other, it)| *other != member && *it == process) {
            return Err("incarnation_taken");
        }
        self.0.insert(member, process);
        Ok(())
    }

    /// These members have their numbers still.
    pub(super) fn retain(&mut self, is_there: impl Fn(Number) -> bool) {
        self.0.retain(|member, _| is_there(*member));
    }
}

impl Talk {
    /// Says which version we speak. A member of a release that has none passes over it.
    pub(super) fn new(number: Number) -> Self {
        let mut draft = Draft::default();
        draft.message(&Message::Begin { version: VERSION });
        Self {
            number,
            ear: Ear::default(),
            draft,
            next_part: None,
            asked: 0,
            is_complete: false,
            incarnation: None,
            is_known: false,
            is_leaving: false,
            told_leaving: None,
            doubted: None,
            over: None,
            backlog: Backlog::default(),
        }
    }

    /// The version that both speak; none where the member says nothing of players.
    pub(super) const fn version(&self) -> Option<u8> {
        self.ear.version()
    }

    /// What the trunk has brought.
    pub(super) fn handle(
        &mut self,
        event: &Event<'_>,
        players: &impl Players,
        ours: &Listeners,
        Taken { counts, onward, processes }: Taken<'_>,
    ) {
        let heard = match event {
            Event::Message(message) => self.hear(message, players, ours, processes),
            Event::Record { frame, .. } => match frame.as_forwarded() {
                Some(datagram) => self.take(datagram, players, counts, onward),
                None => Ok(()),
            },
            _ => Ok(()),
        };
        if let Err(why) = heard {
            counts.drop(why);
        }
    }

    fn hear(
        &mut self,
        message: &[u8],
        players: &impl Players,
        ours: &Listeners,
        processes: &mut Processes,
    ) -> Result<(), &'static str> {
        let number = self.number;
        let (listener, message) = self.ear.hear(message, here(ours)).map_err(Refused::name)?;
        match (message, listener) {
            (Message::Begin { .. }, _) => {
                self.name(ours);
                self.begin_all();
            }
            (Message::Told(all), Some(listener)) => {
                let mut all = all.iter();
                let learnt = all.try_for_each(|(it, _)| players.learn(number, listener, &it));
                return learnt.map_err(|why| why_not(why, ["players", "players_share"]));
            }
            (Message::Left(all), Some(listener)) => {
                all.iter().for_each(|(it, _)| players.unlearn(number, listener, &it));
            }
            (Message::AllTold, _) => self.is_complete = true,
            (Message::Ask, _) => {
                self.begin_all();
                self.asked = self.asked.saturating_add(1);
            }
            (Message::Accepted(all), Some(listener)) => {
                for (it, per_s) in all.iter() {
                    players.learn_accepted(number, listener, &it, per_s);
                }
            }
            (Message::Incarnation(it), _) => {
                return self.take_incarnation(it, players, processes);
            }
            (Message::Stands(all), Some(listener)) => {
                let mut all = all.iter();
                let learnt =
                    all.try_for_each(|(it, _)| players.learn_stands(number, listener, &it));
                return learnt.map_err(|why| why_not(why, ["players", "players_share"]));
            }
            (Message::StandsNot(all), Some(listener)) => {
                all.iter().for_each(|(it, _)| players.unlearn_stands(number, listener, &it));
            }
            (Message::Record { bytes, .. }, listener) => {
                let listener = listener.ok_or("listener_absent")?;
                return self.stand_by(listener, bytes, players);
            }
            (Message::Release(session), _) => players.stand_down(number, session),
            (Message::Offer(it), _) => players.hear_offer(number, &it),
            (Message::Leaving(it), _) => self.is_leaving = it,
            (Message::Doubt(it), _) => self.doubted = Some(it),
            (Message::Question(it), _) => self.draft.message(&Message::Answer(it)),
            // None of our listeners is concerned.
            (Message::Listener { .. } | Message::Answer(_) | Message::Unknown, _) | (_, None) => {}
        }
        Ok(())
    }

    /// The member is that process for as long as it is connected. Records of another process's
    /// sessions would not be its own to give.
    fn take_incarnation(
        &mut self,
        it: Incarnation,
        players: &impl Players,
        processes: &mut Processes,
    ) -> Result<(), &'static str> {
        if self.incarnation.is_some_and(|before| before != it) {
            self.over = Some(Reason::Format);
            return Err("incarnation_changed");
        }
        if players.incarnation() == Some(it) {
            return Err("incarnation_taken");
        }
        processes.take(self.number, it)?;
        self.incarnation = Some(it);
        Ok(())
    }

    /// The member wants us to stand by for one of its sessions: none of another's.
    fn stand_by(
        &self,
        listener: u16,
        bytes: &[u8],
        players: &impl Players,
    ) -> Result<(), &'static str> {
        let record = Record::read_from(bytes).map_err(|_| "record")?;
        if Some(record.holder.incarnation) != self.incarnation {
            return Err("holder");
        }
        let stands = players.stand_by(self.number, listener, record);
        stands.map_err(|why| why_not(why, ["standbys", "standbys_share"]))
    }

    fn take(
        &self,
        datagram: &[u8],
        players: &impl Players,
        counts: &mut Counts,
        onward: &mut Vec<Onward>,
    ) -> Result<(), &'static str> {
        let (listener, datagram) = self.ear.datagram(datagram).map_err(Refused::name)?;
        if datagram.hops < HOPS_MAX
            && !datagram.is_lost
            && let Some(listener) = listener
            && let Some(to) = players.onward(listener, &datagram)
        {
            counts.come += 1;
            let Datagram { player, to: local, bytes, .. } = datagram;
            onward.push(Onward { to, listener, player, local, bytes: bytes.to_vec() });
            return Ok(());
        }
        let arrival = listener.map_or(Arrival::Elsewhere, |listener| {
            players.arrive(self.number, listener, &datagram)
        });
        match arrival {
            Arrival::Taken => counts.come += 1,
            Arrival::Stray => {
                counts.come += 1;
                return Err(arrival.name());
            }
            Arrival::Elsewhere | Arrival::Full => return Err(arrival.name()),
        }
        Ok(())
    }

    /// Our listeners are others now. Where one is closed, nobody can tell who was told of as a
    /// player of it: all are told again.
    pub(super) fn look_again(
        &mut self,
        ours: &Listeners,
        is_one_closed: bool,
        players: &impl Players,
    ) {
        if self.version().is_none() {
            return;
        }
        self.name(ours);
        if is_one_closed {
            players.forget_told(self.number);
        }
        if self.ear.look_again(here(ours)) || is_one_closed {
            self.is_complete = false;
            self.draft.message(&Message::Ask);
        }
    }

    fn name(&mut self, ours: &Listeners) {
        for (number, name) in ours.iter() {
            self.draft.message(&Message::Listener { number: *number, name });
        }
    }

    /// It is told of all from the first on.
    fn begin_all(&mut self) {
        self.next_part = Some(0);
        self.backlog.note_all_told();
    }

    /// A player has come here or is gone.
    pub(super) fn tell(&mut self, listener: u16, player: &SocketAddr, news: News) {
        if self.version().is_none() {
            return;
        }
        if !self.backlog.must_wait() {
            return self.draft.player(listener, player, news.is_here());
        }
        // While it is told of all, it may be told of this one before.
        let is_known = news == News::Came && self.next_part.is_some();
        self.backlog.note((listener, *player), if is_known { News::Still } else { news });
    }

    /// So much waits for the stream: whether that is too much for more of players.
    pub(super) const fn note_waiting(&mut self, bytes: usize) {
        self.backlog.hold(bytes > WAITING_MAX);
    }

    pub(super) const fn is_behind(&self) -> bool {
        self.backlog.is_held()
    }

    /// Tells so much at the most of what it was not told yet. Returns whether there is more.
    pub(super) fn catch_up(&mut self, max: usize) -> bool {
        if self.is_behind() {
            return false;
        }
        for ((listener, player), news) in self.backlog.take(max) {
            self.draft.player(listener, &player, news.is_here());
        }
        !self.backlog.is_empty()
    }

    fn knows_standbys(&self) -> bool {
        self.version().is_some_and(|version| version >= VERSION_STANDBY)
    }

    /// Whether sessions can be given to the member.
    pub(super) fn takes_offers(&self) -> bool {
        self.version().is_some_and(|version| version >= VERSION_OFFER) && !self.is_leaving
    }

    /// Says which process we are, once that is known.
    pub(super) fn introduce(&mut self, own: Incarnation) {
        if !self.is_known && self.knows_standbys() {
            self.is_known = true;
            self.draft.message(&Message::Incarnation(own));
        }
    }

    /// We stand by for a player, or do not any more.
    pub(super) fn tell_stands(&mut self, listener: u16, player: &SocketAddr, stands_by: bool) {
        if self.knows_standbys() {
            self.draft.stands(listener, player, stands_by);
        }
    }

    /// The member is to stand by for a session of ours.
    pub(super) fn give_record(&mut self, listener: u16, record: &Record) {
        let mut bytes = [0; RECORD_BYTES_MAX];
        if let Ok(len) = record.write_to(&mut bytes) {
            self.draft.message(&Message::Record { listener, bytes: &bytes[..len] });
        }
        bytes.zeroize();
    }

    /// And to go on with it.
    pub(super) fn offer(&mut self, session: SessionId, is_coming: bool) {
        if self.takes_offers() {
            self.draft.message(&Message::Offer(Offered { session, is_coming }));
        }
    }

    /// Says whether we go on with nothing of the member's.
    pub(super) fn tell_leaving(&mut self, is_leaving: bool) {
        let knows = self.version().is_some_and(|version| version >= VERSION_OFFER);
        if knows && self.told_leaving.unwrap_or(false) != is_leaving {
            self.told_leaving = Some(is_leaving);
            self.draft.message(&Message::Leaving(is_leaving));
        }
    }

    /// It is not to any more.
    pub(super) fn release(&mut self, session: SessionId) {
        self.draft.message(&Message::Release(session));
    }

    /// Asks whether the member is there: one that can stand by knows what that is.
    pub(super) fn ask(&mut self, number: u32) {
        self.draft.message(&Message::Question(number));
    }

    /// Another member is asked that: who speaks no such message passes over it.
    pub(super) fn tell_doubt(&mut self, of: Incarnation) {
        if self.knows_standbys() {
            self.draft.message(&Message::Doubt(of));
        }
    }

    /// What the member has forwarded of a player was accepted, so much a second.
    pub(super) fn tell_accepted(&mut self, listener: u16, player: &SocketAddr, per_s: u32) {
        // It is of use for a second.
        if self.version().is_some() && !self.is_behind() {
            self.draft.accepted(listener, player, per_s);
        }
    }

    /// Gives the stream what there is to say. Returns whether there is more to be said at once.
    pub(super) fn say(&mut self, trunk: &mut Trunk, players: &impl Players) -> bool {
        self.say_drafted(trunk);
        while let Some(part) = self.next_part {
            if trunk.waiting_bytes() > WAITING_MAX {
                return false;
            }
            self.next_part = match players.part(part) {
                Some((here, stands)) => {
                    for (listener, it) in &here {
                        self.draft.player(*listener, it, true);
                    }
                    for (listener, it) in &stands {
                        self.tell_stands(*listener, it, true);
                    }
                    Some(part + 1)
                }
                None => {
                    self.draft.message(&Message::AllTold);
                    None
                }
            };
            self.say_drafted(trunk);
            if part % PARTS_A_TURN == PARTS_A_TURN - 1 && self.next_part.is_some() {
                return true;
            }
        }
        false
    }

    /// Among what is said may be keys of sessions.
    fn say_drafted(&mut self, trunk: &mut Trunk) {
        for mut message in self.draft.take() {
            trunk.say(&message);
            message.zeroize();
        }
    }
}

/// Forwards a datagram.
pub(super) fn forward(trunk: &mut Trunk, datagram: &Datagram<'_>, now_ns: u64) {
    let mut record = [0; HEADER_BYTES + DATAGRAM_BYTES_MAX];
    let (_, body) = record.split_first_chunk_mut::<HEADER_BYTES>().expect("it has a header");
    let bytes = datagram.write_to(body.first_chunk_mut().expect("it has room for any"));
    if let Some(frame) = Frame::forwarded(&mut record[..HEADER_BYTES + bytes]) {
        trunk.push(0, FORWARDS_ON, frame, now_ns);
    }
}

const fn why_not(why: NoRoom, [all, share]: [&'static str; 2]) -> &'static str {
    match why {
        NoRoom::All => all,
        NoRoom::Share => share,
    }
}

fn here(ours: &Listeners) -> impl Fn(&str) -> Option<u16> {
    |name| ours.iter().find(|(_, it)| it == name).map(|(number, _)| *number)
}

/// The link on which datagrams are forwarded.
pub(super) const FORWARDS_ON: u16 = 0;

/// Bytes that wait for the stream before more of a full list is given to it: what changes has room.
pub(super) const WAITING_MAX: usize = 256 << 10;

/// Parts of a full list between two looks at datagrams.
const PARTS_A_TURN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_members_are_the_same_process_while_both_have_their_numbers() {
        let mut processes = Processes::default();
        let it = Incarnation;
        assert_eq!([1, 2].map(|member| processes.take(member, it(member.into()))), [Ok(()); 2]);
        assert_eq!(processes.take(3, it(1)), Err("incarnation_taken"));
        assert_eq!((processes.take(1, it(1)), processes.take(2, it(4))), (Ok(()), Ok(())));
        assert_eq!(processes.take(3, it(2)), Ok(()), "that one is another by now");
        processes.retain(|member| member != 1);
        assert_eq!(processes.take(4, it(1)), Ok(()));
    }
}

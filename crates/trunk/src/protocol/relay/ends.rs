//! The players' other ends of the delivery layer, where the agent is that: of sessions that may go
//! on at another gateway.
//!
//! Gateways carry the layer's packets as they do any payload, so one that dies costs packets, which
//! the layer sends again. An end is where the game process knows its session, whose gateway may be
//! at another local worker. While no gateway has the session, the end waits.
//!
//! What a gateway does for such players (`front/netcode/messages` of the gate) is done here: once
//! in a turn, when everything has come that comes in it; and *reliable messages are never dropped*.
//! Toward the game process they wait when its link is full, or while the gateway has said a message
//! of another player half there; meanwhile no further packet is taken. Toward the player they wait
//! in the end, up to a bound.

mod carried;

use std::collections::HashSet;

use ringgate_core::delivery::{Channel, End, Options, Refusal, SendError, room_news};
use ringgate_link::bundle::{
    self, AgentDelivery, CloseAfter, CloseReason, Goodbye, GoodbyeReason, LINGER_MS_MAX,
    MessagePart, Quality, SessionId, ToGateway, VERSION_FAREWELL, Writer,
};

use super::clustered::{LOST, Whereto};
use super::clusters::{Homed, Passed};
use super::delivered::{Delivered, DeliveredCounts, Ends};
use super::{Act, Action, Game, Place, Relay, Taken, renumbered, write};

impl Delivered {
    /// Takes packets that have waited long enough for others before them, if the game process has
    /// room for what they say.
    fn take_held(
        &mut self,
        session: SessionId,
        (now_ns, has_room): (u64, bool),
        (counts, record): (&mut DeliveredCounts, &mut [u8]),
        act: Act<'_>,
    ) {
        if !self.end.has_held(now_ns) {
            return;
        }
        if !has_room {
            return self.end.hold_longer(now_ns);
        }
        let to = (self.game, session);
        // A fault is the end's from now on, and is seen there.
        let _ = self.end.handle_held(now_ns, |channel, message| {
            counts.traffic.messages_in += 1;
            hand(record, to, (channel, message), act);
        });
    }

    /// Tells the game process what has become of messages, and whether there is room for more.
    fn tell_news(
        &mut self,
        session: SessionId,
        (counts, record): (&mut DeliveredCounts, &mut [u8]),
        act: Act<'_>,
    ) {
        let counted = self.end.counts();
        counts.traffic.note(&std::mem::replace(&mut self.counted, counted), &counted);
        while let Some(report) = self.end.poll_report() {
            let (token, is_delivered) = (report.token, report.is_delivered);
            let frame = write(record, |it| it.report(session, token, is_delivered));
            act(Action::Deliver(self.game, frame.expect("it is short")));
        }
        if self.end.is_closed() || self.over.is_some() {
            return;
        }
        let waiting = self.end.waiting_bytes();
        if let Some(is_full) = room_news(self.is_full, waiting) {
            self.is_full = is_full;
            let frame = write(record, |it| it.room(session, is_full, waiting as u32));
            act(Action::Deliver(self.game, frame.expect("it is short")));
        }
    }
}

impl Relay {
    /// What time it is for what is done next.
    pub const fn set_now(&mut self, now_ns: u64) {
        self.ends.now_ns = now_ns;
    }

    /// Whether messages of anybody are delivered here.
    pub fn has_ends(&self) -> bool {
        !self.ends.all.is_empty()
    }

    /// Whether a successor has to know of any.
    pub fn has_delivered(&self) -> bool {
        self.has_ends() || self.taken().any(|taken| taken.assembly.is_open())
    }

    /// Whether the link of a game process has room for what must arrive, and for much of it.
    pub fn set_room(&mut self, game: Game, [has_room, has_much]: [bool; 2]) {
        let Ends { full, crowded, is_room_told, .. } = &mut self.ends;
        if has_room {
            full.remove(&game);
            *is_room_told &= !(has_much && crowded.remove(&game));
        } else {
            full.insert(game);
            *is_room_told &= !crowded.insert(game);
        }
    }

    /// Tells gateways to which game processes they are to send no messages, where they may not
    /// know. What those say whose messages are delivered there is not taken meanwhile.
    pub fn tell_rooms(&mut self, act: Act<'_>) {
        if std::mem::replace(&mut self.ends.is_room_told, true) {
            return;
        }
        for (at, place) in self.places.iter_mut().enumerate() {
            let Some(Taken { link: Some(link), told_crowded, .. }) = &mut place.taken else {
                continue;
            };
            let is_crowded = self.ends.crowded.contains(&Game::at(at));
            if told_crowded.replace(is_crowded) != Some(is_crowded) {
                let frame = write(&mut self.scratch, |writer| writer.crowded(is_crowded));
                act(Action::Tell(*link, frame.expect("it is short")));
            }
        }
    }

    /// The next process of a gateway does not know of it.
    pub(super) fn forget_told_room(&mut self, game: Game) {
        if let Some(taken) = &mut self.places[game.place()].taken {
            (taken.told_crowded, self.ends.is_room_told) = (None, false);
        }
    }

    /// When to [look after ends](Self::look_after_next), if ever.
    pub fn ends_due_ns(&self) -> Option<u64> {
        let Ends { touched, due, .. } = &self.ends;
        let due = due.first().map(|(due_ns, _)| *due_ns);
        if touched.is_empty() { due } else { Some(0) }
    }

    /// What has been delivered here.
    pub const fn delivered(&self) -> DeliveredCounts {
        self.ends.counts
    }

    /// Which ends are looked after next is seen, one after the other.
    pub fn touch_due_ends(&mut self) {
        let now_ns = self.ends.now_ns;
        while let Some(&(due_ns, session)) = self.ends.due.first()
            && due_ns <= now_ns
        {
            self.ends.set_due(session, None);
            self.ends.touch(session);
        }
    }

    /// Sends what is due to one player, tells the game process what it wants to know, and ends what
    /// is over. Which process that is, if there was one: its link may have no room any more.
    pub fn look_after_next(&mut self, act: Act<'_>) -> Option<Game> {
        while let Some(session) = self.ends.touched.pop() {
            if let Some(game) = self.ends.all.get(&session).map(|it| it.game) {
                self.look_after(session, act);
                return Some(game);
            }
        }
        None
    }

    /// A game process here knows a session from now on whose messages are delivered here. False
    /// where that is not its beginning: what was said before is known nowhere.
    pub(super) fn begin_end(
        &mut self,
        session: SessionId,
        game: Game,
        delivery: AgentDelivery,
    ) -> bool {
        if delivery.begins {
            let keep_alive_ns = u64::from(delivery.keep_alive_ms.max(1)) * NS_PER_MS;
            let end = End::new(&Options::for_player(keep_alive_ns), self.ends.now_ns);
            self.ends.put(session, Delivered::new(game, keep_alive_ns, end));
        }
        delivery.begins
    }

    /// The gateway has heard a player.
    pub(super) fn note_there(&mut self, session: SessionId) {
        if let Some(it) = self.ends.all.get_mut(&session) {
            it.is_there = true;
            self.ends.touch(session);
        }
    }

    /// The link of a game process is gone, and with it what it had taken.
    pub(super) fn forget_ends(&mut self, game: Game) {
        self.ends.full.remove(&game);
        self.ends.crowded.remove(&game);
        let of_it = self.ends.all.iter().filter(|(_, it)| it.game == game);
        for session in of_it.map(|(session, _)| *session).collect::<Vec<_>>() {
            self.ends.take(session);
        }
    }

    /// Whether a game process here knows any of them.
    pub(super) fn has_ends_of(&self, game: Game) -> bool {
        self.ends.all.values().any(|it| it.game == game)
    }

    /// A game process has gone that has closed players after delivery. Its link stays until what
    /// was sent to those has arrived, if nobody is there who could wait for another process. Others
    /// who get messages could not: the gateway goes on with those that are closed after delivery.
    pub(super) fn linger_on(&mut self, game: Game, act: Act<'_>) -> bool {
        let taken = self.places[game.place()].taken.as_ref();
        let Some(taken) = taken.filter(|taken| !taken.is_gone) else { return false };
        let all = &self.ends.all;
        let of_it = all.iter().filter(|(_, it)| it.game == game);
        let of_it: Vec<_> = of_it.map(|(session, it)| (*session, it.linger.is_some())).collect();
        let delivered = &taken.delivered;
        let is_other = |session| !all.contains_key(session) && !delivered.contains_key(session);
        let has_others = taken.players.iter().any(is_other);
        let left = delivered.iter().filter(|(it, is_closed)| !**is_closed && !all.contains_key(it));
        let left: Vec<_> = left.map(|(session, _)| *session).collect();
        if has_others || of_it.iter().all(|(_, lingers)| !lingers) {
            return false;
        }
        let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
        for it in of_it {
            match self.gateway_of(it.0, act) {
                Whereto::Here => here.push(it),
                _ => elsewhere.push(it),
            }
        }
        if here.iter().all(|(_, lingers)| !lingers) {
            return false;
        }
        self.end_lost(elsewhere.into_iter().map(|it| it.0).collect(), act);
        if let Some(taken) = &mut self.places[game.place()].taken {
            (taken.is_gone, taken.has_closed) = (true, true);
        }
        self.set_room(game, [true; 2]);
        self.tell_intake(game, act);
        let closed = |it: &mut Writer<'_>, there| it.close(there, CloseReason::GameShutdown);
        for session in left {
            self.tell_gateway((game, session), &Whereto::Here, closed, act);
        }
        for (session, _) in here.into_iter().filter(|(_, lingers)| !lingers) {
            self.give_up(session, CloseReason::GameShutdown, act);
        }
        true
    }

    /// No process is at a link of which another process of the agent had ends: it had gone.
    pub fn note_gone(&mut self, game: Game) {
        let has_ends = self.has_ends_of(game);
        let taken = self.places.get_mut(game.place()).and_then(|place| place.taken.as_mut());
        if let Some(taken) = taken.filter(|_| has_ends) {
            taken.is_gone = true;
        }
    }

    /// A game process goes, and what it had taken is not known: sessions end whose messages it was
    /// handed.
    pub(super) fn end_ends(&mut self, game: Game, act: Act<'_>) {
        let of_it = self.ends.all.iter().filter(|(_, it)| it.game == game);
        self.end_lost(of_it.map(|(session, _)| *session).collect(), act);
    }

    /// The gateways hear that these sessions have ended.
    fn end_lost(&mut self, sessions: Vec<SessionId>, act: Act<'_>) {
        for session in sessions {
            self.ends.take(session);
            let Some(Homed { id, game }) = self.clusters.homes.remove(&session) else { continue };
            let Self { places, rolls, clusters, .. } = self;
            if let Some(taken) = &mut places[game.place()].taken {
                taken.leave(session, rolls.as_ref());
            }
            let told = clusters.arbitration.as_ref().and_then(|it| it.end(id));
            self.tell_fenced(told, act);
        }
    }

    /// A player's payload, if it is a packet of the delivery layer.
    pub(super) fn take_packet(&mut self, session: SessionId, packet: &[u8], act: Act<'_>) -> bool {
        let Self { ends: Ends { all, now_ns, full, record, counts, .. }, places, .. } = self;
        let Some(it) = all.get_mut(&session) else { return false };
        it.is_there = true;
        if has_room(full, places, it.game) {
            let to = (it.game, session);
            let taken = it.end.handle_packet(*now_ns, packet, |channel, message| {
                counts.traffic.messages_in += 1;
                hand(record, to, (channel, message), act);
            });
            counts.late += u64::from(matches!(taken, Err(Refusal::Dropped(_) | Refusal::Closed)));
        } else {
            counts.deferred += 1;
        }
        self.ends.touch(session);
        true
    }

    /// What a game process says to a player whose messages are delivered here, or about one. False
    /// where that is for the gateway.
    #[inline]
    pub(super) fn handle_for_end(
        &mut self,
        game: Game,
        record: &ToGateway<'_>,
        act: Act<'_>,
    ) -> bool {
        if let ToGateway::Message(part) = record {
            return self.take_part(game, part, act);
        }
        if self.ends.all.is_empty() {
            return false;
        }
        let Ends { all, now_ns, record: memory, counts, .. } = &mut self.ends;
        match *record {
            ToGateway::Payload { session, bytes } => {
                let Some(it) = all.get_mut(&session) else { return false };
                match it.end.send(Channel::Unreliable(0), bytes, None) {
                    Ok(()) => self.ends.touch(session),
                    Err(SendError::Closed) => counts.unknown += 1,
                    Err(_) => counts.too_long += 1,
                }
            }
            ToGateway::AskQuality { session } => {
                let Some(it) = all.get(&session) else { return false };
                let quality = quality(&it.end);
                let frame = write(memory, |it| it.quality(session, &quality));
                act(Action::Deliver(game, frame.expect("it is short")));
            }
            ToGateway::CloseAfter(CloseAfter { session, reason, linger_ms, text }) => {
                let Some(it) = all.get_mut(&session) else { return false };
                let linger_ns = u64::from(linger_ms.min(LINGER_MS_MAX)) * NS_PER_MS;
                let until_ns = *now_ns + linger_ns;
                match &mut it.linger {
                    // The first one was told; the next can only hurry.
                    Some((before_ns, _)) => *before_ns = until_ns.min(*before_ns),
                    None => {
                        it.end.say_farewell(reason.as_u8(), text);
                        it.linger = Some((until_ns, reason));
                    }
                }
                self.ends.touch(session);
            }
            _ => return false,
        }
        true
    }

    /// A message for a player, or a part of one.
    fn take_part(&mut self, game: Game, part: &MessagePart<'_>, act: Act<'_>) -> bool {
        let taken = self.places.get_mut(game.place()).and_then(|place| place.taken.as_mut());
        let Some(taken) = taken else { return false };
        let assembly = &mut taken.assembly;
        // What has begun here is not the gateway's, though its session may be over.
        let has_begun = assembly.begun().is_some_and(|(session, ..)| session == part.session);
        if !has_begun && !self.ends.all.contains_key(&part.session) {
            return false;
        }
        if assembly.is_passed_by(part) {
            self.send_message(part, act);
            return true;
        }
        let token = if part.is_first { part.token } else { assembly.token() };
        match assembly.take(part) {
            Ok(false) => {}
            Ok(true) => {
                // Its memory goes back for the next one, unless the link has ended meanwhile.
                let assembly = std::mem::take(assembly);
                self.send_message(&MessagePart { token, bytes: assembly.message(), ..*part }, act);
                let place = self.places.get_mut(game.place());
                if let Some(taken) = place.and_then(|place| place.taken.as_mut()) {
                    taken.assembly = assembly;
                }
            }
            Err(error) => {
                let reason = GoodbyeReason::RecordInvalid;
                self.refuse(game, Goodbye { reason, error: Some(error) }, act);
            }
        }
        true
    }

    /// A whole message for a player.
    fn send_message(&mut self, whole: &MessagePart<'_>, act: Act<'_>) {
        let Ends { all, counts, .. } = &mut self.ends;
        let Some(it) = all.get_mut(&whole.session).filter(|it| it.over.is_none()) else {
            counts.unknown += 1;
            return;
        };
        let token = (whole.token != 0).then_some(whole.token);
        let channel = Channel::from_bytes(whole.channel.to_bytes()).expect(SAME_KINDS);
        match it.end.send(channel, whole.bytes, token) {
            Ok(()) => {
                counts.traffic.messages_out += 1;
                self.ends.touch(whole.session);
            }
            Err(SendError::Full) => {
                counts.overflow += 1;
                self.give_up(whole.session, CloseReason::Overflow, act);
            }
            Err(SendError::Closed | SendError::Empty | SendError::TooLong) => counts.unknown += 1,
        }
    }

    fn look_after(&mut self, session: SessionId, act: Act<'_>) {
        let Self { ends: Ends { all, now_ns, full, record, counts, .. }, places, .. } = self;
        let (now_ns, Some(it)) = (*now_ns, all.get_mut(&session)) else { return };
        it.is_touched = false;
        if let Some((reason, asked_ns)) = it.over {
            if now_ns >= asked_ns + ASK_EVERY_NS {
                return self.give_up(session, reason, act);
            }
            return self.ends.set_due(session, Some(asked_ns + ASK_EVERY_NS));
        }
        let has_room = has_room(full, places, it.game);
        it.take_held(session, (now_ns, has_room), (counts, record), act);
        let is_there = it.is_there;
        let mut due_ns = None;
        if is_there {
            match self.gateway_of(session, act) {
                Whereto::Nowhere if self.is_lost(session) => {
                    return self.close_home(session, LOST, act);
                }
                Whereto::Nowhere => {
                    due_ns = Some(now_ns + AWAY_NS);
                    if let Some(it) = self.ends.all.get_mut(&session) {
                        it.end.note_away(now_ns);
                    }
                }
                to => self.transmit(session, &to, act),
            }
        }
        let Ends { all, record, counts, .. } = &mut self.ends;
        let Some(it) = all.get_mut(&session) else { return };
        it.tell_news(session, (counts, record), act);
        if let Some(fault) = it.end.fault() {
            counts.faults[fault as usize] += 1;
            return self.give_up(session, CloseReason::Delivery, act);
        }
        if let Some((until_ns, reason)) = it.linger {
            let has_said_all = it.end.has_said_all();
            if has_said_all || now_ns >= until_ns {
                counts.linger_expired += u64::from(!has_said_all);
                return self.give_up(session, reason, act);
            }
        }
        let next_ns = if is_there { due_ns.or_else(|| it.end.poll_timeout()) } else { None };
        let until_ns = it.linger.map(|(until_ns, _)| until_ns);
        self.ends.set_due(session, next_ns.into_iter().chain(until_ns).min());
    }

    /// Whether a session has ended, and nobody has said so for long enough.
    fn is_lost(&mut self, session: SessionId) -> bool {
        let (now_ns, is_forgotten) = (self.ends.now_ns, self.is_forgotten(session));
        let it = self.ends.all.get_mut(&session).filter(|_| is_forgotten);
        it.is_some_and(|it| now_ns >= *it.forgotten_ns.get_or_insert(now_ns) + SAID_WITHIN_NS)
    }

    /// Sends what is due to the gateway that has the session.
    fn transmit(&mut self, session: SessionId, to: &Whereto, act: Act<'_>) {
        let mut packet = std::mem::take(&mut self.ends.packet);
        while let Some(it) = self.ends.all.get_mut(&session)
            && let Some(len) = it.end.poll_transmit(self.ends.now_ns, &mut packet)
        {
            let game = it.game;
            let payload = |it: &mut Writer<'_>, there| it.payload(there, &packet[..len]);
            self.tell_gateway((game, session), to, payload, act);
        }
        self.ends.packet = packet;
    }

    /// Says something about a session to the gateway that has it.
    fn tell_gateway(
        &mut self,
        (game, session): (Game, SessionId),
        to: &Whereto,
        said: impl Fn(&mut Writer<'_>, SessionId) -> bool,
        act: Act<'_>,
    ) {
        let mut memory = std::mem::take(&mut self.ends.record);
        match *to {
            Whereto::There(worker, link, there) => {
                if let Some(frame) = write(&mut memory, |it| said(it, there)) {
                    self.pass(worker, Passed::FromGame(link, frame), act);
                }
            }
            Whereto::Here => {
                if let Some((link, there)) = self.called_there(game, session)
                    && let Some(frame) = write(&mut memory, |it| said(it, there))
                {
                    let may_be_lost = frame.may_be_lost();
                    act(if may_be_lost {
                        Action::Push(link, frame)
                    } else {
                        Action::Tell(link, frame)
                    });
                }
            }
            Whereto::Nowhere => {}
        }
        self.ends.record = memory;
    }

    /// The link by which this worker's gateway has a session, and what it calls that.
    fn called_there(&self, game: Game, session: SessionId) -> Option<(u16, SessionId)> {
        let taken = self.places.get(game.place())?.taken.as_ref()?;
        taken.link.zip(renumbered(session, self.lane?.into()))
    }

    /// Ends a session: its gateway is asked to, until that says that it is over.
    fn give_up(&mut self, session: SessionId, reason: CloseReason, act: Act<'_>) {
        let now_ns = self.ends.now_ns;
        let Some(it) = self.ends.all.get_mut(&session) else { return };
        it.over = Some((reason, now_ns));
        let game = it.game;
        self.ends.set_due(session, Some(now_ns + ASK_EVERY_NS));
        // Others are not a game's to say.
        let said = if reason.is_games_choice() { reason } else { CloseReason::Refused };
        match self.gateway_of(session, &mut |action| act(action)) {
            Whereto::Nowhere => self.end_from_home(session, reason, act),
            to => self.tell_gateway((game, session), &to, |it, there| it.close(there, said), act),
        }
    }

    /// A session is over: what has not arrived did not, as far as is known. Returns why it has
    /// ended, if that was decided here.
    pub(super) fn finish_end(&mut self, session: SessionId, act: Act<'_>) -> Option<CloseReason> {
        let mut it = self.ends.take(session)?;
        let taken = self.places.get(it.game.place()).and_then(|place| place.taken.as_ref());
        let knows_farewells = taken.is_some_and(|taken| taken.version >= VERSION_FAREWELL);
        let Ends { now_ns, full, record, counts, .. } = &mut self.ends;
        it.end.wait_no_more();
        let has_room = has_room(full, &self.places, it.game);
        it.take_held(session, (*now_ns, has_room), (counts, record), act);
        let ((_, bytes), is_told) = (it.end.undelivered(), it.end.has_told_farewell());
        it.end.close();
        it.tell_news(session, (counts, record), act);
        if it.linger.is_some() && knows_farewells {
            let frame = write(record, |it| it.lingered(session, bytes as u32, is_told));
            act(Action::Deliver(it.game, frame.expect("it is short")));
        }
        it.over.map(|(reason, _)| reason)
    }
}

/// Whether a game process may be handed what must arrive now.
fn has_room(full: &HashSet<Game>, places: &[Place], game: Game) -> bool {
    let taken = places.get(game.place()).and_then(|place| place.taken.as_ref());
    taken.is_none_or(|taken| taken.half_said.is_none()) && !full.contains(&game)
}

/// Hands a whole message to a game process.
fn hand(
    memory: &mut [u8],
    (game, session): (Game, SessionId),
    (channel, message): (Channel, &[u8]),
    act: Act<'_>,
) {
    let channel = bundle::Channel::from_bytes(channel.to_bytes()).expect(SAME_KINDS);
    for part in MessagePart::of(session, channel, 0, message) {
        if let Some(frame) = write(memory, |writer| writer.message(&part)) {
            act(Action::Deliver(game, frame));
        }
    }
}

fn quality(end: &End) -> Quality {
    let quality = end.quality();
    let [round_trip_us, variation_us] = quality.round_trip_us();
    let (loss_per_mille, waiting_bytes) = (quality.loss_per_mille, quality.reliable_bytes as u32);
    Quality { round_trip_us, variation_us, loss_per_mille, waiting_bytes }
}

/// Of channels, by their bytes.
const SAME_KINDS: &str = "both have the same kinds";

const NS_PER_MS: u64 = 1_000_000;

/// How soon it is looked again whether a gateway has a session that none has.
const AWAY_NS: u64 = 50 * NS_PER_MS;

/// How soon an end is said to a game process that another local worker has heard of.
const SAID_WITHIN_NS: u64 = 1000 * NS_PER_MS;

/// How often a gateway is asked to end a session.
const ASK_EVERY_NS: u64 = 1000 * NS_PER_MS;

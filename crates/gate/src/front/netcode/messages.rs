//! Whole messages between players and game processes, where the listener delivers them: packets of
//! the delivery layer on one side, messages on the bundle link on the other.
//!
//! A session is looked after once in a turn, when everything has come that comes in it. So what a
//! game process says to a player in one turn leaves in few packets, which are sealed with all
//! others.
//!
//! *Reliable messages are never dropped.* Toward the game process they wait with openings and
//! closings when its link is full, and until that has room no further packet is taken from a
//! player: it is not acknowledged, so the player sends it again. Toward the player they wait in the
//! session's end, up to a bound of which the game process is told in time; then the session is
//! over.

use crate::common::Common;
use crate::counters::Ended;
use crate::front::cluster::clustered::Delivered;
use crate::front::netcode::connection::Connection;
use crate::front::netcode::linger::Lingered;
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::front::rules::Rules;
use crate::ids::{BackendId, LinkId, ListenerId};
use crate::links::state::Load;
use crate::now::NS_PER_MS;
use crate::setup::LinkKind;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_core::delivery::{Channel, End, Fault, Options, Refusal, SendError, room_news};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::{
    self, AgentDelivery, Arbitrated, MessagePart, Quality, SessionId, VERSION_MESSAGES,
};

impl Common {
    /// Whether a backend can be told of players at a listener: one that delivers messages needs a
    /// link that has words for them.
    pub(crate) fn speaks_for(&self, listener: ListenerId, backend: BackendId) -> bool {
        let rules = self.setup.listeners[listener].netcode();
        !rules.is_some_and(|rules| rules.delivers) || self.message_link(backend).is_some()
    }

    /// The link of a backend, if it takes messages.
    pub(crate) fn message_link(&self, backend: BackendId) -> Option<LinkId> {
        let LinkKind::Bundle { .. } = self.setup.backends[backend].link else { return None };
        let link = self.links.live(backend)?;
        let version = self.links.all[link].as_ref()?.version;
        (version >= VERSION_MESSAGES).then_some(link)
    }
}

impl NetcodeFront {
    /// Begins to deliver a session's messages, if its listener does, and no agent.
    pub(crate) fn open_connection(&mut self, turn: &Turn<'_>, index: Entry<Session>) {
        if self.sessions.clusters.get(index).is_some_and(|it| !it.is_alone) {
            return;
        }
        let listener = self.sessions.address(index).listener;
        let rules = turn.common.setup.listeners[listener].netcode();
        if let Some(rules) = rules.filter(|rules| rules.delivers) {
            let keep_alive_ns = self.sessions.at(index).heartbeat_ns(rules.keep_alive_ns);
            let options = Options::for_player(keep_alive_ns);
            self.connections.open(index, &options, turn.now.mono_ns);
        }
    }

    /// Whether an agent delivers a session's messages: it may be another gateway's one day, so the
    /// player's other end is where that finds it, too.
    pub(crate) fn is_delivered_by_agent(&self, index: Entry<Session>) -> bool {
        self.sessions.clusters.get(index).is_some_and(|it| !it.is_alone && it.is_delivered())
    }

    /// A session is here that another gateway had.
    pub(crate) fn note_delivered(&mut self, common: &Common, index: Entry<Session>) {
        let listener = self.sessions.address(index).listener;
        let rules = common.setup.listeners[listener].netcode();
        if let Some(it) = self.sessions.clusters.get_mut(index) {
            let delivers = rules.is_some_and(|rules| rules.delivers);
            it.delivered = if delivers { Delivered::Begun } else { Delivered::Nothing };
        }
    }

    /// Whether the agent is gone that has delivered a session's messages, or does not know it any
    /// more: what was said in it is known nowhere.
    pub(crate) fn has_lost_its_agent(&self, common: &Common, index: Entry<Session>) -> bool {
        let delivered = self.sessions.clusters.get(index).filter(|it| it.is_delivered());
        let Some(it) = delivered else { return false };
        if it.is_alone {
            return !self.connections.has(index);
        }
        let link = common.links.live(self.sessions.at(index).backend);
        link.is_some_and(|link| !common.links.arbitrates(link, Arbitrated::Delivery))
    }

    /// How an agent is to deliver a session's messages, if it is.
    pub(crate) fn delivery_of_agent(
        &self,
        common: &Common,
        index: Entry<Session>,
    ) -> Option<AgentDelivery> {
        if !self.is_delivered_by_agent(index) {
            return None;
        }
        let listener = self.sessions.address(index).listener;
        let rules = common.setup.listeners[listener].netcode()?;
        let keep_alive_ns = self.sessions.at(index).heartbeat_ns(rules.keep_alive_ns);
        let keep_alive_ms = u32::try_from(keep_alive_ns / NS_PER_MS).unwrap_or(u32::MAX);
        let it = self.sessions.clusters.get(index);
        let begins = it.is_some_and(|it| it.delivered == Delivered::Fresh);
        Some(AgentDelivery { keep_alive_ms, begins })
    }

    /// A player has been heard for the first time: whoever delivers its messages may begin.
    #[cold]
    pub(crate) fn tell_there(&self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let Session { backend, announced, .. } = *self.sessions.at(index);
        let is_told = announced == turn.common.links.backends[backend].epoch;
        let link = turn.common.links.live(backend).filter(|_| is_told);
        let link = link.filter(|link| turn.common.links.arbitrates(*link, Arbitrated::Delivery));
        if let Some(link) = link.filter(|_| self.is_delivered_by_agent(index)) {
            let session = self.sessions.id(index);
            turn.tell_link(link, |writer| writer.there(session));
        }
    }

    /// A player's payload that is a packet of the delivery layer.
    pub(crate) fn take_packet(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        packet: &[u8],
        kernel_ns: u64,
    ) {
        turn.common.counters.payloads_up += 1;
        let address = *self.sessions.address(index);
        let Session { backend, client_id, .. } = *self.sessions.at(index);
        let is_lingering = self.is_lingering(index);
        let taken = match self.way_for_messages(turn, index, is_lingering) {
            Ok(link) => self.open_packet(turn, index, link, packet),
            Err(why) => Err((why, None)),
        };
        self.connections.touch(index);
        match taken {
            Ok(()) => {
                turn.common.counters.delivery_packets += 1;
                turn.common.stamps.uplink_kernel_ns.push(kernel_ns);
            }
            Err((why, fault)) => {
                turn.common.drop_uplink(&address, Some(client_id), (backend, why));
                if let Some(fault) = fault {
                    self.end(turn, index, Ended::of_fault(fault));
                }
            }
        }
    }

    /// Where a session's messages go now; nowhere where the game process has closed the session and
    /// is gone.
    fn way_for_messages(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        is_lingering: bool,
    ) -> Result<Option<LinkId>, DropReason> {
        if is_lingering && self.has_lost_its_link(turn, index) {
            return Ok(None);
        }
        self.link_with_room(turn, index).map(Some)
    }

    /// The link that a session's messages go to, if it takes any now.
    fn link_with_room(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
    ) -> Result<LinkId, DropReason> {
        let backend = self.sessions.at(index).backend;
        let link = turn.common.message_link(backend).ok_or(DropReason::DeliveryDeferred)?;
        if self.has_lost_its_link(turn, index) {
            return Err(DropReason::DeliveryDeferred);
        }
        if !self.announce(turn, index) {
            return Err(DropReason::DeliveryDeferred);
        }
        let has_room = turn.common.links.get_mut(link).is_some_and(|link| link.has_room());
        if has_room { Ok(link) } else { Err(DropReason::DeliveryDeferred) }
    }

    /// Whether the game process is gone that the session's messages have gone to: what it has taken
    /// is not known, so nobody can go on in its place.
    pub(crate) fn has_lost_its_link(&self, turn: &Turn<'_>, index: Entry<Session>) -> bool {
        let session = self.sessions.at(index);
        let state = &turn.common.links.backends[session.backend];
        session.announced != 0 && (session.announced != state.epoch || !state.is_up())
    }

    fn open_packet(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        link: Option<LinkId>,
        packet: &[u8],
    ) -> Result<(), (DropReason, Option<Fault>)> {
        let (session, backend) = (self.sessions.id(index), self.sessions.at(index).backend);
        let listener = self.sessions.address(index).listener;
        let Some(mut connection) = self.connections.take(index) else {
            return Err((DropReason::DeliveryLate, None));
        };
        let now_ns = turn.now.mono_ns;
        let taken = connection.end.handle_packet(now_ns, packet, |channel, message| {
            turn.common.listeners[listener].delivery.messages_in += 1;
            turn.hand_message((backend, link), session, channel, message);
        });
        self.connections.put_back(index, connection);
        taken.map_err(|refusal| match refusal {
            Refusal::Dropped(_) | Refusal::Closed => (DropReason::DeliveryLate, None),
            Refusal::Fault(fault) => (DropReason::DeliveryFault, Some(fault)),
        })
    }

    /// A payload for a player who gets messages: one of a multicast, for example.
    pub(crate) fn send_payload_as_message(
        &mut self,
        index: Entry<Session>,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let Some(connection) = self.connections.get_mut(index) else {
            return Err(DropReason::SessionUnknown);
        };
        let sent = connection.end.send(Channel::Unreliable(0), payload, None);
        sent.map_err(|why| match why {
            // The game process has closed it.
            SendError::Closed => DropReason::SessionUnknown,
            SendError::Empty | SendError::Full | SendError::TooLong => DropReason::PayloadLength,
        })?;
        self.connections.touch(index);
        Ok(())
    }

    /// Looks after every session that has something to do.
    pub(crate) fn look_after_connections(&mut self, turn: &mut Turn<'_>) {
        if self.connections.is_empty() {
            return;
        }
        while let Some(index) = self.connections.alarms.pop_due(turn.now.mono_ns) {
            self.connections.touch(index);
        }
        while let Some(index) = self.connections.pop_touched() {
            self.look_after(turn, index);
        }
    }

    /// Sends what is due, tells the game process what it wants to know, and sets the alarm.
    fn look_after(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if !self.sessions.is_live(index) {
            return;
        }
        self.take_held(turn, index);
        let Some(mut connection) = self.connections.take(index) else { return };
        // The player drops payloads until it knows that it is connected.
        let is_there = self.sessions.at(index).is_confirmed();
        if is_there {
            self.transmit(turn, index, &mut connection.end);
        }
        self.tell_news(turn, index, &mut connection);
        let due_ns = connection.end.poll_timeout().filter(|_| is_there);
        let fault = connection.end.fault();
        let until_ns = connection.linger.map(|linger| linger.until_ns);
        self.connections.put_back(index, connection);
        if let Some(fault) = fault {
            return self.end(turn, index, Ended::of_fault(fault));
        }
        if until_ns.is_some() && self.end_linger(turn, index) {
            return;
        }
        match due_ns.into_iter().chain(until_ns).min() {
            Some(due_ns) => self.connections.alarms.set(index, due_ns),
            None => self.connections.alarms.clear(index),
        }
    }

    /// Takes packets of a player that have waited long enough for others before them, if the game
    /// process has room for what they say.
    fn take_held(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let now_ns = turn.now.mono_ns;
        let held = self.connections.get(index).filter(|it| it.end.has_held(now_ns));
        let Some(is_lingering) = held.map(|it| it.linger.is_some()) else { return };
        // The session may be announced here, as one that has a connection.
        let way = self.way_for_messages(turn, index, is_lingering);
        let Some(mut connection) = self.connections.take(index) else { return };
        let Ok(link) = way else {
            connection.end.hold_longer(now_ns);
            return self.connections.put_back(index, connection);
        };
        let (session, backend) = (self.sessions.id(index), self.sessions.at(index).backend);
        let listener = self.sessions.address(index).listener;
        // A fault is the end's from now on, and is seen there.
        let _ = connection.end.handle_held(now_ns, |channel, message| {
            turn.common.listeners[listener].delivery.messages_in += 1;
            turn.hand_message((backend, link), session, channel, message);
        });
        self.connections.put_back(index, connection);
    }

    /// A session is over: what it has not reported yet did not arrive, as far as is known.
    pub(crate) fn close_connection(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if let Some(connection) = self.connections.get_mut(index) {
            connection.end.wait_no_more();
            self.take_held(turn, index);
        }
        if let Some(mut connection) = self.connections.take(index) {
            let lingered = Lingered::of(&connection);
            connection.end.close();
            self.tell_news(turn, index, &mut connection);
            if let Some(lingered) = lingered {
                self.tell_lingered(turn, index, &lingered);
            }
            self.connections.put_back(index, connection);
        }
        self.connections.close(index);
    }

    fn transmit(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, end: &mut End) {
        let every_ns = self.keep_alive_ns(turn.common, index);
        end.set_keep_alive(self.sessions.at(index).heartbeat_ns(every_ns));
        let mut packet = std::mem::take(&mut self.connections.packet);
        while let Some(len) = end.poll_transmit(turn.now.mono_ns, &mut packet[..]) {
            // It fails where the session has used up its sequence, as with keep-alives.
            let _ = self.emit(turn, index, PacketKind::Payload, &packet[..len]);
        }
        self.connections.packet = packet;
    }

    /// What has become of messages, and whether there is room for more.
    pub(crate) fn tell_news(
        &self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        connection: &mut Connection,
    ) {
        let (session, backend) = (self.sessions.id(index), self.sessions.at(index).backend);
        let listener = self.sessions.address(index).listener;
        let counts = connection.end.counts();
        turn.common.listeners[listener].delivery.note(&connection.counted, &counts);
        connection.counted = counts;
        let link = turn.common.message_link(backend);
        let link = link.filter(|_| !self.has_lost_its_link(turn, index));
        if link.is_none() && connection.former.is_none() {
            return;
        }
        while let Some((report, former)) = connection.poll_report() {
            let link = former.map_or(link, |side| turn.common.link_of(side));
            let Some(link) = link else { continue };
            turn.tell_link(link, |writer| {
                writer.report(session, report.token, report.is_delivered)
            });
        }
        let Some(link) = link.filter(|_| !connection.end.is_closed()) else { return };
        if self.sessions.at(index).announced == 0 {
            return;
        }
        let waiting = connection.end.waiting_bytes();
        if let Some(is_full) = room_news(connection.is_full, waiting) {
            connection.is_full = is_full;
            turn.tell_link(link, |writer| writer.room(session, is_full, waiting as u32));
        }
    }
}

impl Turn<'_> {
    /// Hands a whole message to a game process.
    fn hand_message(
        &mut self,
        (backend, link): (BackendId, Option<LinkId>),
        session: SessionId,
        channel: Channel,
        message: &[u8],
    ) {
        self.common.counters.messages_up += 1;
        let Some(link) = link else {
            return self.common.drop_payload(backend, DropReason::MessageNotTaken);
        };
        let channel = bundle_channel_of(channel);
        let mut parts = MessagePart::of(session, channel, 0, message);
        let is_handed = if channel.is_reliable() {
            parts.all(|part| self.tell_message(link, &part))
        } else {
            parts.all(|part| self.append(link, Load::MESSAGE, |writer| writer.message(&part)))
        };
        if is_handed {
            self.common.counters.messages_to_links += 1;
            self.common.links.backends[backend].traffic.note_up(message.len());
        } else {
            self.common.drop_payload(backend, DropReason::MessageNotTaken);
        }
    }
}

pub(crate) fn quality(end: &End) -> Quality {
    let quality = end.quality();
    let [round_trip_us, variation_us] = quality.round_trip_us();
    Quality {
        round_trip_us,
        variation_us,
        loss_per_mille: quality.loss_per_mille,
        waiting_bytes: quality.reliable_bytes as u32,
    }
}

pub(crate) fn channel_of(channel: bundle::Channel) -> Channel {
    Channel::from_bytes(channel.to_bytes()).expect("both have the same kinds")
}

fn bundle_channel_of(channel: Channel) -> bundle::Channel {
    bundle::Channel::from_bytes(channel.to_bytes()).expect("both have the same kinds")
}

impl Ended {
    /// What a session is counted under whose player has broken a rule.
    const fn of_fault(fault: Fault) -> Self {
        match fault {
            Fault::Malformed => Self::DeliveryMalformed,
            Fault::Sequence => Self::DeliverySequence,
            Fault::Acknowledgement => Self::DeliveryAcknowledgement,
            Fault::Window => Self::DeliveryWindow,
            Fault::Marks => Self::DeliveryMarks,
            Fault::MessageLength => Self::DeliveryMessageLength,
            Fault::Memory => Self::DeliveryMemory,
            Fault::Oversize => Self::DeliveryOversize,
            Fault::Silence => Self::DeliverySilence,
        }
    }
}

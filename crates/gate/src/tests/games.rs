//! A game process that speaks the bundle format by hand.

use std::cell::RefCell;
use std::net::SocketAddr;

use crate::setup::Credentials;
use ringgate_batch::{Endpoint, IoEvent, SocketId};
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_link::bundle::{
    Assembly, Channel, CloseReason, Goodbye, Hello, MessagePart, MoveRefusal, Quality, SessionId,
    ToGame, Writer,
};

use super::rig::{OUR_USER, Rig};

/// What a game process has been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Closed(SessionId, CloseReason),
    Draining(u32),
    Lingered(SessionId, u32, bool),
    Undrained,
    TakenOver(u32),
    Goodbye(Goodbye),
    Message(SessionId, Channel, Vec<u8>),
    Moved(SessionId, u64),
    MoveRefused(SessionId, u64, MoveRefusal),
    Offered(Offer),
    OfferOver(SessionId, u64, MoveRefusal),
    Opened(Guest),
    OpenedPlain(SessionId, Option<u32>),
    Payload(SessionId, Vec<u8>),
    Pong(u64),
    Quality(SessionId, Quality),
    Report(SessionId, u64, bool),
    Room(SessionId, bool),
    Welcome { version: u16, worker: u16, workers: u16, incarnation: u64 },
}

/// A player, as an opening record describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Guest {
    pub(super) session: SessionId,
    pub(super) client_id: u64,
    pub(super) address: SocketAddr,
    pub(super) slot: u32,
    pub(super) slots_max: u32,
    pub(super) delivers: bool,
    /// Of the move that has brought the player.
    pub(super) ticket: Option<u64>,
    pub(super) user_data: Box<[u8]>,
    pub(super) listener: String,
}

/// A player of another process, as an offer describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) session: SessionId,
    pub(super) number: u64,
    pub(super) ticket: u64,
    pub(super) client_id: u64,
    pub(super) slot: u32,
    pub(super) delivers: bool,
    pub(super) user_data: Box<[u8]>,
    pub(super) from: String,
    pub(super) data: Vec<u8>,
}

pub(super) struct Game {
    pub(super) link: SocketId,
    /// The message that comes in several parts.
    assembly: RefCell<Assembly>,
    /// What it says later.
    kept: RefCell<Vec<Vec<u8>>>,
}

impl Game {
    /// A process that connects and says hello.
    pub(super) fn join(rig: &mut Rig, name: &str) -> Self {
        let game = Self::connect(rig, OUR_USER);
        game.hello(rig, name);
        game
    }

    /// The process at the other end of a link.
    pub(super) fn on(link: SocketId) -> Self {
        Self { link, assembly: RefCell::default(), kept: RefCell::default() }
    }

    /// A process that connects.
    pub(super) fn connect(rig: &mut Rig, credentials: Credentials) -> Self {
        Self::on(rig.accept_link(credentials))
    }

    pub(super) fn hello(&self, rig: &mut Rig, name: &str) {
        self.say(rig, |w| w.hello(&Hello::new(1, name)));
    }

    /// Sends one bundle, alone in a turn.
    pub(super) fn say(&self, rig: &mut Rig, write: impl FnOnce(&mut Writer<'_>) -> bool) {
        self.push(rig, write);
        rig.turn();
    }

    pub(super) fn push(&self, rig: &mut Rig, write: impl FnOnce(&mut Writer<'_>) -> bool) {
        let mut buf = [0; BUNDLE_BYTES_MAX];
        let mut writer = Writer::new(&mut buf);
        assert!(write(&mut writer), "the record fits");
        self.push_bytes(rig, writer.bytes());
    }

    pub(super) fn push_bytes(&self, rig: &mut Rig, bytes: &[u8]) {
        rig.push_at(self.link, Endpoint::v4([0; 4], 0), bytes);
    }

    /// Keeps a bundle for later.
    pub(super) fn keep(&self, bundle: Vec<u8>) {
        self.kept.borrow_mut().push(bundle);
    }

    /// Sends what was kept.
    pub(super) fn say_kept(&self, rig: &mut Rig) {
        for bundle in self.kept.take() {
            self.push_bytes(rig, &bundle);
        }
    }

    /// Everything it was told since the last look, but how many players there were when it came.
    pub(super) fn hear(&self, rig: &mut Rig) -> Vec<Heard> {
        let datagrams = rig.take_on(self.link);
        let records = datagrams.iter().flat_map(|datagram| ToGame::read(datagram));
        let records = records.map(|record| record.expect("the gate writes what we read"));
        records.filter_map(|record| self.owned(record)).collect()
    }

    /// How many players it was told of, each time, how long they wait, and how long it may.
    pub(super) fn hear_players(&self, rig: &mut Rig) -> Vec<(u32, u32, Option<u32>)> {
        let datagrams = rig.take_on(self.link);
        let records = datagrams.iter().flat_map(|datagram| ToGame::read(datagram));
        let players = |record| match record {
            Ok(ToGame::Players { count, grace_ms, gather_us }) => {
                Some((count, grace_ms, gather_us))
            }
            _ => None,
        };
        records.filter_map(players).collect()
    }

    /// `None` for a part of a message that others follow.
    fn owned(&self, record: ToGame<'_>) -> Option<Heard> {
        if matches!(record, ToGame::Players { .. }) {
            return None;
        }
        let ToGame::Message(part) = record else { return Some(owned(record)) };
        let mut assembly = self.assembly.borrow_mut();
        let is_whole = assembly.take(&part).expect("parts follow one another");
        is_whole.then(|| Heard::Message(part.session, part.channel, assembly.message().to_vec()))
    }

    /// Sends a whole message, alone in a turn.
    pub(super) fn send(
        &self,
        rig: &mut Rig,
        (session, channel): (SessionId, Channel),
        message: &[u8],
        token: u64,
    ) {
        for part in MessagePart::of(session, channel, token, message) {
            self.push(rig, |writer| writer.message(&part));
        }
        rig.turn();
    }

    /// Everything but payloads and messages.
    pub(super) fn news(&self, rig: &mut Rig) -> Vec<Heard> {
        let is_news = |heard: &Heard| {
            !matches!(heard, Heard::Payload(..) | Heard::Message(..) | Heard::Welcome { .. })
        };
        self.hear(rig).into_iter().filter(is_news).collect()
    }

    /// The players that were announced since the last look; what else was said is forgotten.
    pub(super) fn guests(&self, rig: &mut Rig) -> Vec<Guest> {
        let opened = |heard| if let Heard::Opened(guest) = heard { Some(guest) } else { None };
        self.hear(rig).into_iter().filter_map(opened).collect()
    }

    /// The payloads that have come since the last look; what else was said is forgotten.
    pub(super) fn payloads(&self, rig: &mut Rig) -> Vec<Vec<u8>> {
        let payload = |heard| if let Heard::Payload(_, bytes) = heard { Some(bytes) } else { None };
        self.hear(rig).into_iter().filter_map(payload).collect()
    }

    /// The process dies.
    pub(super) fn crash(self, rig: &mut Rig) {
        self.crash_unseen(rig);
        rig.turn();
    }

    /// The same, before the gate has looked.
    pub(super) fn crash_unseen(self, rig: &mut Rig) {
        rig.host.notice(IoEvent::Closed { socket: self.link });
    }
}

fn owned(record: ToGame<'_>) -> Heard {
    match record {
        ToGame::Welcome(welcome) => Heard::Welcome {
            version: welcome.version,
            worker: welcome.worker,
            workers: welcome.workers,
            incarnation: welcome.incarnation,
        },
        ToGame::Opened(opened) => Heard::Opened(Guest {
            session: opened.session,
            client_id: opened.client_id,
            address: opened.address,
            slot: opened.slot,
            slots_max: opened.slots_max,
            delivers: opened.delivers,
            ticket: opened.ticket,
            user_data: Box::from(opened.user_data.as_slice()),
            listener: opened.listener.to_owned(),
        }),
        ToGame::OpenedPlain(opened) => Heard::OpenedPlain(opened.session, opened.slot),
        ToGame::Payload { session, bytes } => Heard::Payload(session, bytes.to_vec()),
        ToGame::Message(part) => panic!("{part:?} is put together with others"),
        ToGame::Report { session, token, is_delivered } => {
            Heard::Report(session, token, is_delivered)
        }
        ToGame::Room { session, is_full, .. } => Heard::Room(session, is_full),
        ToGame::Quality { session, quality } => Heard::Quality(session, quality),
        ToGame::Lingered { session, undelivered_bytes, is_told } => {
            Heard::Lingered(session, undelivered_bytes, is_told)
        }
        ToGame::Moved { session, ticket } => Heard::Moved(session, ticket),
        ToGame::MoveRefused { session, ticket, reason } => {
            Heard::MoveRefused(session, ticket, reason)
        }
        ToGame::OfferOver { session, offer, reason } => Heard::OfferOver(session, offer, reason),
        ToGame::Offered(offered) => Heard::Offered(Offer {
            session: offered.session,
            number: offered.offer,
            ticket: offered.ticket,
            client_id: offered.client_id,
            slot: offered.slot,
            delivers: offered.delivers,
            user_data: Box::from(offered.user_data.as_slice()),
            from: offered.from.to_owned(),
            data: offered.data.to_vec(),
        }),
        ToGame::Closed { session, reason } => Heard::Closed(session, reason),
        ToGame::Pong { token } => Heard::Pong(token),
        ToGame::Draining { left_ms } => Heard::Draining(left_ms),
        ToGame::Undrained => Heard::Undrained,
        ToGame::TakenOver { generation } => Heard::TakenOver(generation),
        ToGame::Goodbye(goodbye) => Heard::Goodbye(goodbye),
        ToGame::Players { .. } | ToGame::Unknown(_) => panic!("{record:?} is nothing to hear"),
    }
}

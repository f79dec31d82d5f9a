//! A game process of the world: it registers itself at its gateway, links itself, and knows who is
//! there. What it knows is what the judge goes by.

use std::collections::{BTreeMap, VecDeque};

use ringgate_batch::SocketId;
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_link::bundle::{Answer, Hello, Move, MoveRefusal, SessionId, ToGame, Writer};
use ringgate_testkit::Random;

use crate::gateway::Gateway;

/// A game process, alive or not.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) gateway: usize,
    pub(crate) slots: u32,
    /// How many it says that it has.
    pub(crate) announced_slots: u32,
    /// It does not hear of players who come from another process.
    pub(crate) is_deaf_to_moves: bool,
    instance: u64,
    /// Its announcement's connection, where it has one.
    connection: Option<u64>,
    link: Option<SocketId>,
    /// Which start of the gateway, as its welcome says.
    pub(crate) incarnation: u64,
    inbox: VecDeque<Vec<u8>>,
    pub(crate) sessions: BTreeMap<SessionId, Guest>,
    /// Who may come from another process: whose session, and which offer.
    pub(crate) offers: BTreeMap<SessionId, u64>,
    pub(crate) dead_until_ms: u64,
    next_try_ms: u64,
    /// Since when it is linked and was not disturbed.
    pub(crate) linked_ms: Option<u64>,
}

/// Who is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest {
    pub(crate) client_id: u64,
    pub(crate) token: u64,
    pub(crate) since_ms: u64,
}

/// What it has heard.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Heard {
    Opened {
        session: SessionId,
        guest: Guest,
    },
    Said {
        token: u64,
    },
    /// A player may come from another process.
    Offered {
        session: SessionId,
        client_id: u64,
        ticket: u64,
        /// Players and offers that there were.
        taken: usize,
    },
    /// A player that was offered, or was taken already, has left.
    OfferedLeft {
        session: SessionId,
    },
    /// Its player has gone over to another process.
    Moved {
        session: SessionId,
        token: u64,
    },
}

impl Server {
    pub(crate) fn new(number: usize, gateway: usize, slots: u32) -> Self {
        Self {
            name: format!("arena-{number}"),
            gateway,
            slots,
            announced_slots: slots,
            is_deaf_to_moves: false,
            instance: number as u64 * 1000,
            connection: None,
            link: None,
            incarnation: 0,
            inbox: VecDeque::new(),
            sessions: BTreeMap::new(),
            offers: BTreeMap::new(),
            dead_until_ms: 0,
            next_try_ms: 0,
            linked_ms: None,
        }
    }

    pub(crate) fn is_alive(&self, now_ms: u64) -> bool {
        now_ms >= self.dead_until_ms
    }

    pub(crate) fn has_link(&self, link: SocketId) -> bool {
        self.link == Some(link)
    }

    /// It ends, and all that it knew with it.
    pub(crate) fn die(&mut self, gateway: &mut Gateway, until_ms: u64) {
        self.dead_until_ms = until_ms;
        self.instance += 1;
        if let Some(connection) = self.connection.take() {
            gateway.lose_announced(connection);
        }
        if let Some(link) = self.link.take() {
            gateway.lose_link(link);
        }
        self.forget();
    }

    /// Its gateway is gone, and has left nothing.
    pub(crate) fn lose_gateway(&mut self) {
        (self.connection, self.link) = (None, None);
        self.forget();
    }

    /// Another process has its gateway: links went along, and what it has announced has to be said
    /// again.
    pub(crate) fn meet_successor(&mut self, now_ms: u64, random: &mut Random) {
        self.connection = None;
        self.next_try_ms = now_ms + random.within(0..2000);
    }

    /// The gateway has closed its link.
    pub(crate) fn lose_link(&mut self) {
        self.link = None;
        self.forget();
    }

    fn forget(&mut self) {
        self.sessions.clear();
        self.offers.clear();
        self.inbox.clear();
        self.linked_ms = None;
    }

    pub(crate) fn hear(&mut self, bytes: Vec<u8>) {
        self.inbox.push_back(bytes);
    }

    /// Connects where it has to, as its library does: each two seconds at the most.
    pub(crate) fn connect(&mut self, gateway: &mut Gateway, now_ms: u64, random: &mut Random) {
        if now_ms < self.next_try_ms || !gateway.is_alive() {
            return;
        }
        if self.connection.is_none() {
            let connection = random.word();
            self.next_try_ms = now_ms + 500 + random.within(0..1500);
            if gateway.announce(connection, &self.name, self.instance, self.announced_slots) {
                self.connection = Some(connection);
            } else {
                gateway.lose_announced(connection);
            }
        }
        if self.link.is_none() {
            self.next_try_ms = now_ms + 500 + random.within(0..1500);
            let link = SocketId(random.within(1000..1 << 31) as u32);
            gateway.accept(link);
            gateway.hear_game(link, bundle(|it| it.hello(&Hello::new(1, &self.name))));
            self.link = Some(link);
        }
    }

    /// Asks its gateway to have a player go over to another process.
    pub(crate) fn ask_move(&self, gateway: &mut Gateway, session: SessionId, backend: &str) {
        let (ticket, time_ms) = (session.as_u64(), 1_000);
        let (message, data, confirms) = (None, &[][..], ticket.is_multiple_of(2));
        let asked = Move { session, backend, ticket, time_ms, confirms, message, data };
        if let Some(link) = self.link {
            gateway.hear_game(link, bundle(|it| it.move_session(&asked)));
        }
    }

    /// Reads what has come, and answers.
    pub(crate) fn read(&mut self, gateway: &mut Gateway, now_ms: u64) -> Vec<Heard> {
        let mut heard = Vec::new();
        while let Some(bytes) = self.inbox.pop_front() {
            let mut said: Vec<Vec<u8>> = Vec::new();
            for record in ToGame::read(&bytes) {
                let record = record.expect("the gateway keeps to its format");
                heard.extend(self.take(&record, now_ms, &mut said));
            }
            if let Some(link) = self.link {
                for bytes in said {
                    gateway.hear_game(link, bytes);
                }
            }
        }
        heard
    }

    fn take(&mut self, record: &ToGame<'_>, now_ms: u64, said: &mut Vec<Vec<u8>>) -> Option<Heard> {
        match record {
            ToGame::Welcome(welcome) => {
                self.incarnation = welcome.incarnation;
                self.linked_ms = Some(now_ms);
                None
            }
            ToGame::Opened(opened) => {
                let own = &opened.user_data[32..40];
                let token = u64::from_le_bytes(own.try_into().expect("eight bytes"));
                let guest = Guest { client_id: opened.client_id, token, since_ms: now_ms };
                let session = opened.session;
                if self.offers.remove(&session).is_some() && self.is_deaf_to_moves {
                    return None;
                }
                self.sessions.insert(session, guest);
                Some(Heard::Opened { session, guest })
            }
            ToGame::Closed { session, .. } => {
                self.sessions.remove(session);
                None
            }
            ToGame::Offered(offered) => {
                let (session, offer) = (offered.session, offered.offer);
                self.offers.insert(session, offer);
                let taken = self.sessions.len() + self.offers.len();
                // Some are not wanted, and to some nothing is said.
                match offer % 8 {
                    0 => {}
                    1 => {
                        self.offers.remove(&session);
                        said.push(bundle(|it| it.answer(session, offer, Answer::No)));
                    }
                    _ => said.push(bundle(|it| it.answer(session, offer, Answer::Yes))),
                }
                let (client_id, ticket) = (offered.client_id, offered.ticket);
                Some(Heard::Offered { session, client_id, ticket, taken })
            }
            ToGame::OfferOver { session, offer, reason } => {
                self.offers.retain(|of, it| (of, &*it) != (session, offer));
                let session = *session;
                (*reason == MoveRefusal::SessionOver).then_some(Heard::OfferedLeft { session })
            }
            ToGame::Moved { session, .. } => {
                said.push(bundle(|it| it.confirm(*session)));
                let guest = self.sessions.remove(session)?;
                Some(Heard::Moved { session: *session, token: guest.token })
            }
            ToGame::Payload { session, bytes } => {
                let Some(guest) = self.sessions.get(session) else {
                    assert!(self.is_deaf_to_moves, "it was announced");
                    return None;
                };
                let token = u64::from_le_bytes((*bytes).try_into().expect("eight bytes"));
                assert_eq!(token, guest.token, "a payload of somebody else");
                said.push(bundle(|it| it.payload(*session, bytes)));
                Some(Heard::Said { token })
            }
            _ => None,
        }
    }
}

fn bundle(write: impl FnOnce(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buf = [0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    assert!(write(&mut writer), "one record fits a bundle");
    writer.bytes().to_vec()
}

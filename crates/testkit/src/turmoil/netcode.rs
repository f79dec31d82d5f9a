//! Netcode in turmoil: a handful of tokens, everything that their owners and others can send, two
//! workers.

mod game;
mod ticket;

use std::collections::{HashMap, HashSet};

use self::game::{FOR_ALL, SIZES, Said, channel, is_for};
use self::ticket::{Ticket, mark_of};
use super::stage::{HOMES, Input, Sent, Stage, UDP_LINK, US, home, is_player_socket};
use ringgate_batch::{Endpoint, IoEvent, LocalIp, SendFailure, SocketId};
use ringgate_core::crypto::{Aead, Job, Verdict};
use ringgate_core::limits::{BUNDLE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use ringgate_core::netcode::{TokenSecrets, TokenSpec, mint_with};
use ringgate_core::proto::delivery::read_header;
use ringgate_core::proto::netcode::packet::{
    AadTable, Header, KeepAlive, PacketKind, Receiver, encode_packet,
};
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::notify::PacketSeq;
use ringgate_core::proto::replay::Policy;
use ringgate_core::secret::Key;
use ringgate_gate::{
    Allowed, Backend, BackendId, Limits, LinkKind, Listener, ListenerId, Mail, Netcode, Phase,
    Protocol, Route, Setup, TokenReuse,
};
use ringgate_link::bundle::{
    self, Answer, Assembly, CloseAfter, CloseReason, FAREWELL_BYTES_MAX, Goodbye, GoodbyeReason,
    Hello, MessagePart, Move, SessionId, ToGame, Writer,
};

/// Runs one sequence of events to its end; what does not hold panics. Returns how many sessions
/// were opened.
pub fn netcode(input: &[u8]) -> u64 {
    let mut input = Input::new(input);
    let mut cast = Cast::new(&mut input);
    while !input.is_over() {
        cast.act(&mut input);
        cast.watch();
    }
    cast.opened()
}

struct Cast {
    stage: Stage,
    seals: Seals,
    tickets: Vec<Ticket>,
    /// Datagrams that went to the gateway.
    tape: Vec<Vec<u8>>,
    /// Links of the bundle backend: worker and socket.
    links: Vec<(usize, SocketId)>,
    /// Sessions that a game process was told of.
    guests: Vec<SessionId>,
    /// Where each was told of last.
    told: HashMap<SessionId, (usize, SocketId)>,
    /// What the last offers were, and where.
    offers: Vec<((usize, SocketId), SessionId, u64)>,
    /// Loopback addresses that a udp backend has seen.
    loopbacks: Vec<(usize, LocalIp)>,
    minted: u64,
    /// Who has sent which payload, by its number.
    payloads: Vec<u64>,
    heard: HashSet<u64>,
    /// Whose each session is that game processes were told of.
    clients: HashMap<SessionId, u64>,
    /// Messages in parts, by link.
    assemblies: HashMap<(usize, SocketId), Assembly>,
    /// Links on which a game process has said what it must not.
    wrong: HashSet<(usize, SocketId)>,
    /// A game process has said anything at all, which may have been a payload.
    threw_junk: bool,
    keys: u8,
    /// Whether the listeners deliver messages.
    delivers: bool,
    /// Whether a token may have several sessions, or ever could.
    allows_reuse: bool,
}

struct Seals {
    aead: Aead,
    aad: Box<AadTable>,
}

impl Seals {
    fn packet(&mut self, key: &Key, kind: PacketKind, sequence: u64, body: &[u8]) -> Vec<u8> {
        let mut packet = [0; 2048];
        let (header, len) = encode_packet(kind, sequence, body, &mut packet);
        let aad = self.aad.of(header.prefix);
        let sealed = &mut packet[header.body_start()..len];
        self.aead.seal(&mut [Job::new(key, header.nonce(), aad, sealed)]);
        packet[..len].to_vec()
    }

    fn open(&mut self, key: &Key, packet: &[u8]) -> Option<(Header, Vec<u8>)> {
        let header = Header::decode(packet, Receiver::Client).ok()?;
        let mut body = packet[header.body_start()..].to_vec();
        let aad = self.aad.of(header.prefix);
        let mut jobs = [Job::new(key, header.nonce(), aad, &mut body)];
        self.aead.open(&mut jobs);
        let is_open = jobs[0].verdict == Verdict::Done;
        body.truncate(body.len().saturating_sub(16));
        is_open.then_some((header, body))
    }
}

impl Cast {
    fn new(input: &mut Input<'_>) -> Self {
        let choice = input.byte();
        let (allows_reuse, delivers) = (choice.is_multiple_of(4), choice % 4 == 1);
        let mut setup = setup(input, allows_reuse, delivers);
        if choice >= 192 {
            setup.listeners.iter_mut().for_each(replace_at_once);
        }
        let mut cast = Self {
            stage: Stage::new(setup, WORKERS),
            seals: Seals { aead: Aead::detect(), aad: Box::new(AadTable::new(PROTOCOL)) },
            tickets: Vec::new(),
            tape: Vec::new(),
            links: Vec::new(),
            guests: Vec::new(),
            told: HashMap::new(),
            offers: Vec::new(),
            loopbacks: Vec::new(),
            minted: 0,
            payloads: Vec::new(),
            heard: HashSet::new(),
            clients: HashMap::new(),
            assemblies: HashMap::new(),
            wrong: HashSet::new(),
            threw_junk: false,
            keys: 1,
            delivers,
            allows_reuse,
        };
        for name in ["arena", "annex"] {
            (0..usize::from(WORKERS)).for_each(|worker| cast.join_as(worker, name));
        }
        cast
    }

    fn opened(&self) -> u64 {
        self.stage.hosts.iter().map(|host| host.gate().counters().sessions_opened).sum()
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let worker = input.below(WORKERS.into());
        match input.byte() {
            0..=19 => self.mint(input),
            20..=89 => self.play(worker, input),
            90..=119 => self.speak(worker, input),
            120..=139 => self.replay(worker, input),
            140..=149 => self.throw_junk(worker, input),
            150..=174 => self.stage.deliver_mail(input.byte() < 16),
            175..=199 => self.stage.pass(PAUSES_MS[input.below(PAUSES_MS.len())]),
            200..=206 => self.stage.step_wall_clock(STEPS_S[input.below(STEPS_S.len())]),
            207..=214 => self.reload(input),
            215..=234 => self.trouble_links(worker, input),
            235 => self.stage.tell(worker, Mail::Drain { left_ms: 1000 }),
            236 if input.byte() < 8 => self.stage.tell(worker, Mail::Stop),
            237..=239 => self.stage.hand_over(input),
            240..=246 => self.come_back(worker, input),
            251..=255 => self.go_over(input),
            _ => {}
        }
        self.stage.turn(worker);
    }

    fn mint(&mut self, input: &mut Input<'_>) {
        self.mint_for(None, input);
    }

    /// A token for this client, or any. Returns whose ticket it is.
    fn mint_for(&mut self, client: Option<u64>, input: &mut Input<'_>) -> usize {
        self.minted += 1;
        let key = |half: u8| {
            let mut bytes = [half; 32];
            bytes[..8].copy_from_slice(&self.minted.to_le_bytes());
            Key::from_bytes(bytes)
        };
        let mut nonce = [0; 24];
        nonce[..8].copy_from_slice(&self.minted.to_le_bytes());
        let secrets = TokenSecrets { nonce, client_to_server: key(1), server_to_client: key(2) };
        let servers = SERVERS.parse().expect("literal");
        let lifetime_s = [10, 30, 300][input.below(3)];
        let client = client.unwrap_or_else(|| input.below(CLIENTS) as u64);
        let spec = TokenSpec {
            lifetime_seconds: Some(lifetime_s),
            timeout_seconds: [-1, 1, 2, 5][input.below(4)],
            ..TokenSpec::new(PROTOCOL, client, servers)
        };
        let issuer = Key::from_bytes([self.keys.saturating_sub(input.byte() / 200).max(1); 32]);
        let token = mint_with(&spec, &issuer, self.stage.now.unix_s, secrets);
        let ticket = Ticket {
            token,
            client,
            challenge: None,
            sequence: 0,
            owner: None,
            keep_until_ns: None,
            is_forgotten: false,
            used: HashSet::new(),
            next_packet: 0,
            newest_packet: PacketSeq::MAX,
        };
        if self.tickets.len() >= TICKETS_MAX {
            let at = input.below(TICKETS_MAX);
            self.tickets[at] = ticket;
            return at;
        }
        self.tickets.push(ticket);
        self.tickets.len() - 1
    }

    /// A player whose client has crashed logs in with a new token, while its session may be silent
    /// for long enough to be replaced.
    fn come_back(&mut self, worker: usize, input: &mut Input<'_>) {
        let Some(client) = input.pick(&self.tickets).map(|ticket| ticket.client) else { return };
        self.stage.pass([500, 1_900, 2_100, 2_500][input.below(4)]);
        let at = self.mint_for(Some(client), input);
        let from = home(input.below(HOMES));
        for _ in 0..5 {
            let ticket = &mut self.tickets[at];
            ticket.sequence += 1;
            let (key, sequence) = (ticket.token.client_to_server.clone(), ticket.sequence);
            let due = match ticket.challenge {
                None => ticket.show(self.stage.now),
                Some(it) => self.seals.packet(&key, PacketKind::Response, sequence, &it),
            };
            self.stage.push(worker, ListenerId(0), from, &due);
            self.stage.turn(worker);
            self.tape.push(due);
            // Workers ask each other.
            (0..4).for_each(|_| self.stage.deliver_mail(false));
            self.stage.pass(100);
            self.watch();
        }
    }

    /// The owner of a token, or an attacker with a copy of it, goes on with the handshake or
    /// with the game.
    fn play(&mut self, worker: usize, input: &mut Input<'_>) {
        if self.tickets.is_empty() {
            return self.mint(input);
        }
        let at = input.below(self.tickets.len());
        // Nearly always from its own address.
        let from = if input.byte() < 200 { home(at) } else { home(input.below(HOMES)) };
        let listener = u16::from(input.byte() > 220);
        // The kernel hashes an address to one worker as a rule.
        let worker = if input.byte() < 230 { at % usize::from(WORKERS) } else { worker };
        let ticket = &mut self.tickets[at];
        ticket.sequence = match input.byte() {
            0..=239 => ticket.sequence.saturating_add(1),
            240..=244 => ticket.sequence.saturating_sub(300),
            245..=249 => 0,
            250..=254 => ticket.sequence.saturating_add(1 << input.below(40)),
            255 => u64::MAX - input.below(4) as u64,
        };
        let (key, sequence) = (&ticket.token.client_to_server.clone(), ticket.sequence);
        let mut datagram = match (input.byte(), ticket.challenge) {
            (0..=99, _) | (_, None) => ticket.show(self.stage.now),
            (100..=169, Some(challenge)) => {
                self.seals.packet(key, PacketKind::Response, sequence, &challenge)
            }
            (170..=219, _) if self.delivers => {
                let body = ticket.packet(input);
                self.seals.packet(key, PacketKind::Payload, sequence, &body)
            }
            (170..=219, _) => {
                let mut body = (self.payloads.len() as u64).to_le_bytes().to_vec();
                let len = SIZES[input.below(SIZES.len())].min(SEALED_BYTES_MAX);
                body.resize(len.max(body.len()), mark_of(ticket.client));
                self.payloads.push(ticket.client);
                self.seals.packet(key, PacketKind::Payload, sequence, &body)
            }
            (220..=239, _) => {
                let body = KeepAlive::default().encode();
                self.seals.packet(key, PacketKind::KeepAlive, sequence, &body)
            }
            (240..=249, _) => self.seals.packet(key, PacketKind::Disconnect, sequence, &[]),
            (kind, _) => {
                let kind = [PacketKind::KeepAlive, PacketKind::Response, PacketKind::Payload]
                    [usize::from(kind) % 3];
                self.seals.packet(key, kind, sequence, &[0; 3])
            }
        };
        input.damage(&mut datagram);
        self.stage.push(worker, ListenerId(listener), from, &datagram);
        self.tape.push(datagram);
    }

    /// What went by is sent again, perhaps from elsewhere or to another listener.
    fn replay(&mut self, worker: usize, input: &mut Input<'_>) {
        let back = input.below(64) + 1;
        let Some(datagram) = self.tape.len().checked_sub(back).map(|at| &self.tape[at]) else {
            return;
        };
        let mut datagram = datagram.clone();
        input.damage(&mut datagram);
        self.stage.push(
            worker,
            ListenerId(u16::from(input.byte() > 200)),
            home(input.below(HOMES)),
            &datagram,
        );
    }

    fn throw_junk(&mut self, worker: usize, input: &mut Input<'_>) {
        let len = input.below(60);
        let junk = input.bytes(len);
        self.stage.push(worker, ListenerId(0), home(input.below(HOMES)), &junk);
    }

    fn join(&mut self, worker: usize) {
        let name = if self.links.len().is_multiple_of(2) { "arena" } else { "annex" };
        self.join_as(worker, name);
    }

    fn join_as(&mut self, worker: usize, name: &str) {
        let link = self.stage.accept_link(worker);
        self.links.push((worker, link));
        self.say(worker, link, |w| w.hello(&Hello::new(1, name)));
    }

    fn say(&mut self, worker: usize, link: SocketId, write: impl FnOnce(&mut Writer<'_>) -> bool) {
        let mut buf = [0; BUNDLE_BYTES_MAX];
        let mut writer = Writer::new(&mut buf);
        if write(&mut writer) {
            let nobody = Endpoint::v4([0; 4], 0);
            let local = LocalIp::UNSPECIFIED;
            self.stage.push_on(worker, link, nobody, local, writer.bytes());
        }
    }

    /// Game processes answer, to those they know and to those who are gone.
    fn speak(&mut self, worker: usize, input: &mut Input<'_>) {
        if input.byte() < 100
            && let Some(&(at, local)) = input.pick(&self.loopbacks)
        {
            let from = if input.byte() < 240 { game_address() } else { home(0) };
            let len = input.below(40);
            return self.stage.push_on(at, UDP_LINK, from, local, &vec![FOR_ALL; len]);
        }
        let Some(&(at, link)) = input.pick(&self.links) else { return self.join(worker) };
        let Some(&guest) = input.pick(&self.guests) else { return };
        match input.byte() {
            0..=79 if self.delivers => self.write(at, link, guest, input),
            80..=89 if self.delivers => self.say(at, link, |w| w.ask_quality(guest)),
            90..=109 if self.delivers => {
                let channel = channel(input);
                let said = game::message(guest, self.clients[&guest], channel, input);
                self.say_record(at, link, &said);
            }
            0..=149 => {
                let said = game::payload(guest, self.clients[&guest], input);
                self.say_record(at, link, &said);
            }
            150..=199 => {
                let guests: Vec<_> = self.guests.iter().copied().take(30).collect();
                self.say_record(at, link, &game::multicast(&guests, input));
            }
            200..=209 => self.say(at, link, |w| w.close(guest, CloseReason::Kicked)),
            210..=219 => self.close_after(at, link, guest, input),
            220..=224 => self.say(at, link, |w| w.ping(7)),
            225..=239 => self.speak_of_moves(at, link, guest, input),
            _ => {
                let len = input.below(30);
                let record = input.bytes(len);
                self.threw_junk = true;
                self.say_record(at, link, &Said { record, is_wrong: true });
            }
        }
    }

    /// A player is to be moved, or was offered, or is gone: whoever's it is, and whoever says so.
    fn speak_of_moves(
        &mut self,
        at: usize,
        link: SocketId,
        guest: SessionId,
        input: &mut Input<'_>,
    ) {
        let offer = input.pick(&self.offers).copied();
        match (input.below(4), offer) {
            (0, Some((_, session, offer))) => {
                let answer = Answer::from_u8(input.below(4) as u8).expect("there are four");
                self.say(at, link, |w| w.answer(session, offer, answer));
            }
            (1, Some(((at, link), session, offer))) => {
                self.say(at, link, |w| w.answer(session, offer, Answer::Yes));
            }
            (2, _) => self.say(at, link, |w| w.confirm(guest)),
            _ => {
                let to = ["arena", "annex", "box", "nowhere"][input.below(4)];
                self.ask_move((at, link), guest, to, input);
            }
        }
    }

    fn ask_move(
        &mut self,
        (at, link): (usize, SocketId),
        guest: SessionId,
        backend: &str,
        input: &mut Input<'_>,
    ) {
        let text = vec![mark_of(self.clients[&guest]); 1 + input.below(300)];
        let message = Some((bundle::Channel::Reliable(0), &text[..]));
        let asked = Move {
            session: guest,
            backend,
            ticket: 7,
            time_ms: [0, 1, 500, 30_000, u32::MAX][input.below(5)],
            confirms: input.byte() < 128,
            message: message.filter(|_| input.byte() < 60),
            data: &text,
        };
        self.say(at, link, |w| w.move_session(&asked));
    }

    /// The process that has a player offers it to another one, which says yes as a rule, and
    /// nothing comes in between but at times what may.
    fn go_over(&mut self, input: &mut Input<'_>) {
        let Some(&guest) = input.pick(&self.guests) else { return };
        let from = self.told[&guest];
        let to = ["annex", "arena"][input.below(2)];
        self.ask_move(from, guest, to, input);
        self.stage.turn(from.0);
        self.watch();
        self.trouble_moves(from.0, input);
        let Some(&((at, link), session, offer)) = self.offers.last() else { return };
        let answer = if input.byte() < 200 { Answer::Yes } else { Answer::Full };
        self.say(at, link, |w| w.answer(session, offer, answer));
        self.stage.turn(at);
        self.watch();
        self.trouble_moves(at, input);
        if input.byte() < 128 {
            self.say(from.0, from.1, |w| w.confirm(guest));
            self.stage.turn(from.0);
        }
    }

    fn trouble_moves(&mut self, worker: usize, input: &mut Input<'_>) {
        match input.byte() {
            0..=19 => self.stage.pass(PAUSES_MS[input.below(PAUSES_MS.len())]),
            20..=39 => self.trouble_links(worker, input),
            40..=59 => self.stage.hand_over(input),
            60..=69 => self.reload(input),
            70..=79 => self.speak(worker, input),
            80..=89 => self.play(worker, input),
            _ => {}
        }
        self.stage.turn(worker);
        self.watch();
    }

    /// A player is to go when all that was said has arrived.
    fn close_after(&mut self, at: usize, link: SocketId, guest: SessionId, input: &mut Input<'_>) {
        let linger_ms = [0, 1, 500, 3_000, 30_000, u32::MAX][input.below(6)];
        let text = vec![mark_of(self.clients[&guest]); input.below(FAREWELL_BYTES_MAX + 1)];
        let reason = CloseReason::Kicked;
        let close = CloseAfter { session: guest, reason, linger_ms, text: &text };
        self.say(at, link, |w| w.close_after(&close));
    }

    fn say_record(&mut self, at: usize, link: SocketId, said: &Said) {
        if said.is_wrong {
            self.wrong.insert((at, link));
        }
        let nobody = Endpoint::v4([0; 4], 0);
        self.stage.push_on(at, link, nobody, LocalIp::UNSPECIFIED, &said.record);
    }

    /// A message for a player, of any kind and length; the last of its parts may be missing.
    fn write(&mut self, at: usize, link: SocketId, guest: SessionId, input: &mut Input<'_>) {
        let channel = channel(input);
        let len = [1, 40, 900, 20_000][input.below(4)].min(channel.message_bytes_max());
        let mark = mark_of(self.clients[&guest]);
        let (message, token) = (vec![mark; len], input.below(8) as u64);
        let parts: Vec<_> = MessagePart::of(guest, channel, token, &message).collect();
        let left = if input.byte() < 8 { 1 } else { parts.len() };
        if parts.len() > 1 {
            // The rest of them may find no room, and the next message then comes in between.
            self.wrong.insert((at, link));
        }
        for part in &parts[..left] {
            self.say(at, link, |w| w.message(part));
        }
    }

    fn trouble_links(&mut self, worker: usize, input: &mut Input<'_>) {
        let why = [SendFailure::Full, SendFailure::Gone, SendFailure::Refused][input.below(3)];
        match input.byte() {
            0..=79 => self.stage.obstacles.clear(),
            80..=119 => {
                if let Some(&(at, link)) = input.pick(&self.links) {
                    self.stage.obstacles.push((at, link, why));
                }
            }
            120..=139 => self.stage.obstacles.push((worker, UDP_LINK, why)),
            140..=159 => {
                let socket = super::stage::player_socket(ListenerId(0));
                self.stage.obstacles.push((worker, socket, why));
            }
            160..=199 => {
                if !self.links.is_empty() {
                    let at = input.below(self.links.len());
                    let (worker, socket) = self.links.swap_remove(at);
                    self.stage.notice(worker, IoEvent::Closed { socket });
                    self.stage.turn(worker);
                }
            }
            200..=229 => self.join(worker),
            _ => {
                let event = IoEvent::Unreachable { socket: UDP_LINK, peer: game_address() };
                self.stage.notice(worker, event);
            }
        }
    }

    fn reload(&mut self, input: &mut Input<'_>) {
        let (what, value) = (input.byte(), input.byte());
        if what < 64 {
            self.keys = self.keys.saturating_add(1);
        }
        let keys = self.keys;
        if what >= 224 {
            return self.stage.turn_over(ListenerId(u16::from(what % 2)), value);
        }
        self.stage.reload(|setup| {
            let listener = &mut setup.listeners[ListenerId(0)];
            match what {
                64..=95 => listener.follow_port_switch = value < 200,
                96..=127 => listener.sessions_max = u32::from(value % 8),
                128..=159 => listener.backends = vec![BackendId(u16::from(value % 2))],
                160..=191 => setup.backends[BackendId(0)].slots = u32::from(value % 8),
                192..=223 => setup.backends[BackendId(1)].retired = value < 100,
                _ => {}
            }
            for listener in &mut setup.listeners {
                let Protocol::Netcode(rules) = &mut listener.protocol else { continue };
                if listener.phase == Phase::Closed {
                    continue;
                }
                let newest = (keys.saturating_sub(1).max(1)..=keys).rev();
                rules.keys = newest.map(|key| Key::from_bytes([key; 32]).into()).collect();
            }
        });
    }

    /// Looks at everything that has left, and at what the clocks allow to be forgotten.
    fn watch(&mut self) {
        let now = self.stage.now;
        let sessions = self.stage.hosts.iter().flat_map(|host| host.gate().sessions());
        let mut seated = HashSet::new();
        for session in sessions {
            let seat = (session.listener, session.client_id);
            assert!(seated.insert(seat), "{seat:?} plays twice");
        }
        for sent in self.stage.take_sent() {
            if is_player_socket(sent.target.socket) {
                self.watch_player(&sent);
            } else if sent.target.socket == UDP_LINK {
                if !sent.bytes.is_empty() {
                    self.loopbacks.push((sent.worker, sent.target.source));
                    self.hear(None, &sent.bytes);
                }
            } else {
                self.watch_bundle((sent.worker, sent.target.socket), &sent.bytes);
            }
        }
        let excess = self.loopbacks.len().saturating_sub(16);
        self.loopbacks.drain(..excess);
        for ticket in &mut self.tickets {
            let until_ns = ticket.until_ns(now);
            let Some(keep_until_ns) = &mut ticket.keep_until_ns else { continue };
            if ticket.owner.is_none() {
                // Any request so far may have been the first that counts.
                *keep_until_ns = until_ns.min(*keep_until_ns);
            }
            let is_refused = now.unix_s >= ticket.token.expire_unix_s;
            ticket.is_forgotten |= is_refused && now.mono_ns >= *keep_until_ns;
        }
    }

    fn watch_player(&mut self, sent: &Sent) {
        let to = sent.target.peer.expect("a player's packet is for a player");
        let Self { tickets, seals, allows_reuse, delivers, .. } = self;
        let opened = tickets.iter_mut().find_map(|ticket| {
            let opened = seals.open(&ticket.token.server_to_client, &sent.bytes)?;
            Some((ticket, opened))
        });
        // A token whose ticket was thrown away may still have its session.
        let Some((ticket, (header, body))) = opened else { return };
        assert!(ticket.used.insert(header.sequence), "number {} twice", header.sequence);
        let mark = mark_of(ticket.client);
        if header.kind == PacketKind::Payload && !self.threw_junk {
            assert!(is_for(mark, &body, *delivers), "client {} was sent another's", ticket.client);
        }
        if header.kind == PacketKind::Payload
            && let Some((packet, _)) = read_header(&body).filter(|_| *delivers)
        {
            ticket.newest_packet = packet.sequence;
        }
        if header.kind == PacketKind::Challenge {
            let owner = *ticket.owner.get_or_insert(to);
            let may_move = ticket.is_forgotten || *allows_reuse;
            assert!(owner == to || may_move, "challenged at {to:?}, used from {owner:?}");
            ticket.challenge = body.try_into().ok();
        }
    }

    /// What a game process reads is what players have said, each for themselves: nothing that one
    /// sends ends the link, or is another's.
    fn watch_bundle(&mut self, link: (usize, SocketId), bytes: &[u8]) {
        assert!(!bytes.is_empty(), "an empty bundle looks like the link's end");
        for record in ToGame::read(bytes) {
            match record.expect("the gate writes what we read") {
                ToGame::Opened(opened) => {
                    self.clients.insert(opened.session, opened.client_id);
                    self.told.insert(opened.session, link);
                    self.guests.push(opened.session);
                    let excess = self.guests.len().saturating_sub(12);
                    self.guests.drain(..excess);
                }
                ToGame::Offered(offered) => {
                    self.offers.push((link, offered.session, offered.offer));
                    let excess = self.offers.len().saturating_sub(12);
                    self.offers.drain(..excess);
                }
                ToGame::Payload { session, bytes } => self.hear(Some(session), bytes),
                ToGame::Message(part) => self.read_message(link, &part),
                ToGame::Goodbye(Goodbye { reason: GoodbyeReason::RecordInvalid, .. }) => {
                    assert!(self.wrong.contains(&link), "the link is ended for what is right");
                }
                _ => {}
            }
        }
    }

    fn read_message(&mut self, link: (usize, SocketId), part: &MessagePart<'_>) {
        let client = self.clients.get(&part.session).expect("it was opened before");
        let is_own = part.bytes.iter().all(|byte| *byte == mark_of(*client));
        assert!(is_own, "a message of client {client} is another's");
        let assembly = self.assemblies.entry(link).or_default();
        if !part.is_first || !part.is_last || assembly.is_open() {
            assembly.take(part).expect("parts of one message follow each other");
        }
    }

    /// A game process hears a payload of a player's, for the first time.
    fn hear(&mut self, session: Option<SessionId>, payload: &[u8]) {
        let Some((number, marks)) = payload.split_first_chunk().filter(|_| !self.delivers) else {
            return;
        };
        let number = u64::from_le_bytes(*number);
        let client = session.map(|session| self.clients[&session]);
        let sender = self.payloads.get(number as usize).copied();
        assert!(client.is_none() || client == sender, "payload {number} is of {sender:?}");
        let is_own = sender.is_none_or(|it| marks.iter().all(|byte| *byte == mark_of(it)));
        assert!(is_own && payload.len() <= PAYLOAD_BYTES_MAX, "payload {number} is spoiled");
        let is_first = self.heard.insert(number);
        let may_repeat = self.allows_reuse || self.tickets.iter().any(|ticket| ticket.is_forgotten);
        assert!(is_first || may_repeat, "payload {number} was delivered twice");
    }
}

fn setup(input: &mut Input<'_>, allows_reuse: bool, delivers: bool) -> Setup {
    let slots = [1 + input.below(8) as u32, 1 + input.below(8) as u32];
    let backend = |name: &str, link| Backend {
        name: name.to_owned(),
        link,
        slots: slots[usize::from(name == "box")],
        grace_ns: 2_000_000_000,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    };
    let allow = Allowed { uids: vec![US.uid], gids: Vec::new() };
    let address = GAME.parse().expect("literal");
    let annex = LinkKind::Bundle { allow: allow.clone() };
    let backends: Vec<Backend> = [
        ("arena", LinkKind::Bundle { allow }),
        ("box", LinkKind::Udp { address }),
        ("annex", annex),
    ]
    .map(backend_with(backend))
    .into();
    let route = [Route::Hash, Route::LeastPlayers, Route::Single][input.below(3)];
    let reuse = if allows_reuse { TokenReuse::Allow } else { TokenReuse::Deny };
    let listener = |(name, public): (&str, &str)| Listener {
        name: name.to_owned(),
        protocol: Protocol::Netcode(Netcode {
            protocol_id: PROTOCOL,
            keys: vec![Key::from_bytes([1; 32]).into()],
            replay: Policy::new(64, 1000).expect("a power of two"),
            keep_alive_ns: SEND_INTERVAL_NS,
            token_reuse: reuse,
            delivers,
            unique_in: None,
            moves: vec![BackendId(0), BackendId(2)],
            replace_after_ns: 2_000_000_000,
        }),
        public: vec![public.parse().expect("literal")],
        backends: vec![BackendId(0), BackendId(1)],
        route,
        sessions_max: 6,
        follow_port_switch: true,
        limits: Limits::NONE,
        phase: Phase::Serving,
    };
    let listeners = [("eu", "203.0.113.9:40000"), ("us", "203.0.113.9:40001")].map(listener);
    let mut setup = Setup::new(listeners.into(), backends, 1);
    setup.worker_sessions_max = 1 + input.below(8);
    setup.worker_spare_places_min = 0;
    setup.worker_pending_max = 16;
    setup
}

fn replace_at_once(listener: &mut Listener) {
    if let Protocol::Netcode(rules) = &mut listener.protocol {
        rules.replace_after_ns = 0;
    }
}

fn backend_with<'n>(
    mut make: impl FnMut(&'n str, LinkKind) -> Backend,
) -> impl FnMut((&'n str, LinkKind)) -> Backend {
    move |(name, link)| make(name, link)
}

fn game_address() -> Endpoint {
    GAME.parse::<std::net::SocketAddr>().expect("literal").into()
}

const WORKERS: u16 = 2;
const PROTOCOL: u64 = 0x7475_726d_6f69_6c21;
const SERVERS: &str = "203.0.113.9:40000,203.0.113.9:40001";
const GAME: &str = "127.0.0.1:7777";
const CLIENTS: usize = 5;
const TICKETS_MAX: usize = 8;
/// What a packet has room for here.
const SEALED_BYTES_MAX: usize = 1900;
const PAUSES_MS: [u64; 16] =
    [1, 1, 1, 10, 10, 10, 50, 50, 100, 100, 100, 500, 500, 3_000, 40_000, 4_000_000];
const STEPS_S: [i64; 6] = [-7_200, -60, -1, 1, 60, 7_200];

//! Checks on a simulated world: what was said and who heard it, which nonces were used, and
//! everything that must not happen.

mod messages;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use super::messages::Messages;
use super::netcode::Cipher;
use super::note::Note;
use ringgate_batch::Endpoint;
use ringgate_core::crypto::Key;
use ringgate_core::proto::netcode::packet::{Header, Receiver};

/// Something that must not happen, and when it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Nanoseconds since the world began.
    pub at_ns: u64,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {:.3} s: {}", self.at_ns as f64 / 1e9, self.what)
    }
}

impl std::error::Error for Violation {}

/// One attempt of a player to take part: from its first request until it leaves.
#[derive(Debug)]
pub struct LifeRecord {
    /// Who.
    pub client_id: u64,
    /// With which token.
    pub token: usize,
    /// A NAT has moved it.
    pub moved: bool,
    /// From the player.
    pub up: Tally,
    /// For the player.
    pub down: Tally,
    /// Whole messages from the player.
    pub messages_up: Messages,
    /// Whole messages for the player.
    pub messages_down: Messages,
}

/// Notes in one direction of a life.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many were said.
    pub said: u64,
    heard: HashSet<u64>,
}

impl Tally {
    /// How many were heard.
    pub fn heard(&self) -> u64 {
        self.heard.len() as u64
    }
}

struct Token {
    /// Seals what the gateway sends.
    key: Key,
    /// Sequences, and so nonces, that were used under it.
    used: HashSet<u64>,
}

/// Knows everything that was said and used.
pub struct Judge {
    now_ns: u64,
    violation: Option<Violation>,
    cipher: Cipher,
    tokens: Vec<Token>,
    /// Tokens that were used at an address and port, by their owners.
    tokens_at: HashMap<Endpoint, Vec<usize>>,
    /// Tokens that were used at an address, by their owners.
    tokens_near: HashMap<IpAddr, Vec<usize>>,
    lives: Vec<LifeRecord>,
}

impl Judge {
    /// A judge for one protocol id.
    pub fn new(protocol_id: u64) -> Self {
        Self {
            now_ns: 0,
            violation: None,
            cipher: Cipher::new(protocol_id),
            tokens: Vec::new(),
            tokens_at: HashMap::new(),
            tokens_near: HashMap::new(),
            lives: Vec::new(),
        }
    }

    /// Says what time it is.
    pub fn at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// The first thing that went wrong.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.violation.clone().map_or(Ok(()), Err)
    }

    /// Notes a violation where something does not hold.
    pub fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.violation.is_none() {
            self.violation = Some(Violation { at_ns: self.now_ns, what: what() });
        }
    }

    /// A new token, by the key that seals for its owner. Returns its number.
    pub fn add_token(&mut self, key: Key) -> usize {
        self.tokens.push(Token { key, used: HashSet::new() });
        self.tokens.len() - 1
    }

    /// A new life. Returns its number, which is never 0.
    pub fn add_life(&mut self, client_id: u64, token: usize, home: Endpoint) -> u64 {
        self.settle(token, home);
        let (up, down) = (Tally::default(), Tally::default());
        let [messages_up, messages_down] = [0; 2].map(|_| Messages::default());
        let moved = false;
        self.lives.push(LifeRecord {
            client_id,
            token,
            moved,
            up,
            down,
            messages_up,
            messages_down,
        });
        self.lives.len() as u64
    }

    /// A life goes on at another address.
    pub fn move_life(&mut self, life: u64, home: Endpoint) {
        let record = &mut self.lives[life as usize - 1];
        record.moved = true;
        let token = record.token;
        self.settle(token, home);
    }

    /// All lives, in the order of their numbers.
    pub fn lives(&self) -> &[LifeRecord] {
        &self.lives
    }

    /// A life by its number.
    pub(crate) fn life_mut(&mut self, life: u64) -> Option<&mut LifeRecord> {
        self.lives.get_mut((life as usize).wrapping_sub(1))
    }

    /// The next note from a player.
    pub fn say_up(&mut self, life: u64) -> Note {
        let record = &mut self.lives[life as usize - 1];
        record.up.said += 1;
        Note { life, number: record.up.said, client_id: record.client_id }
    }

    /// The next note for a player, whom a game process knows by its last note or by its opening.
    pub fn say_down(&mut self, life: u64) -> Note {
        let record = &mut self.lives[life as usize - 1];
        record.down.said += 1;
        Note { life, number: record.down.said, client_id: record.client_id }
    }

    /// A game process has got a payload; `client_id` is who it takes its sender for, where it
    /// knows. Returns the note.
    pub fn hear_up(&mut self, client_id: Option<u64>, payload: &[u8]) -> Option<Note> {
        let note = Note::read(payload);
        self.require(note.is_some(), || "a payload was changed on its way up".to_owned());
        let note = note?;
        let Some(record) = self.lives.get_mut((note.life as usize).wrapping_sub(1)) else {
            self.require(false, || format!("{note:?} is from nobody"));
            return None;
        };
        let is_first = record.up.heard.insert(note.number);
        self.require(is_first, || format!("{note:?} was delivered twice"));
        let is_sender = client_id.is_none_or(|id| id == note.client_id);
        self.require(is_sender, || format!("{note:?} came in {client_id:?}'s session"));
        Some(note)
    }

    /// A player has got a payload.
    pub fn hear_down(&mut self, life: u64, payload: &[u8]) {
        let Some(note) = Note::read(payload) else {
            return self.require(false, || "a payload was changed on its way down".to_owned());
        };
        let is_for_everybody = note.life == 0;
        if is_for_everybody {
            return;
        }
        let (mine, Some(named)) =
            (self.lives[life as usize - 1].token, self.lives.get(note.life as usize - 1))
        else {
            return self.require(false, || format!("{note:?} is for nobody"));
        };
        if note.life != life {
            // Late, from the life before, under the same token: no client can tell.
            let is_own_past = named.token == mine;
            return self.require(is_own_past, || format!("{note:?} reached life {life}"));
        }
        let is_first = self.lives[life as usize - 1].down.heard.insert(note.number);
        self.require(is_first, || format!("{note:?} reached its player twice"));
    }

    /// A packet leaves the gateway for an address: it is sealed for a player who is there, under
    /// a nonce that was not used before.
    ///
    /// Another port of the same address may get it too: an attacker on the path can be faster than
    /// the player with the player's own packet, and the session follows until the player's next
    /// one. And a challenge or a denial goes to the first address that showed a token.
    pub fn watch(&mut self, to: Endpoint, packet: &[u8]) {
        let Ok(header) = Header::decode(packet, Receiver::Client) else {
            return self.require(false, || format!("{to:?} was sent what is no packet"));
        };
        let (here, near) = (self.tokens_at.get(&to), self.tokens_near.get(&to.ip()));
        let (here, near) =
            (here.map_or(&[][..], Vec::as_slice), near.map_or(&[][..], Vec::as_slice));
        let anybodys = if header.kind.is_replay_protected() { 0 } else { self.tokens.len() };
        let Self { cipher, tokens, .. } = self;
        let opens = |token: &usize| cipher.is_sealed_under(&tokens[*token].key, packet);
        let known = here.iter().rev().chain(near.iter().rev()).copied();
        let Some(token) = known.chain((0..anybodys).rev()).find(opens) else {
            return self.require(false, || format!("{to:?} was sent {header:?} under no token"));
        };
        let is_new = tokens[token].used.insert(header.sequence);
        self.require(is_new, || format!("{header:?} for {to:?} uses a nonce again"));
    }

    fn settle(&mut self, token: usize, home: Endpoint) {
        let at = self.tokens_at.entry(home).or_default();
        let near = self.tokens_near.entry(home.ip()).or_default();
        for tokens in [at, near] {
            if !tokens.contains(&token) {
                tokens.push(token);
            }
        }
    }
}

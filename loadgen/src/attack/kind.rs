//! What attacks there are, what one of them is told, and what it has counted.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use ringgate_io::Choice;

use super::unreal::UnrealPacket;
use crate::players::{Protocol, loopback_address};
use crate::report::check::Hostile;
use crate::rng::Rng;

/// What an attacker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Random bytes of random length from random addresses.
    Junk,
    /// Connection requests that look right and hold no valid token, from random addresses.
    ForgedRequest,
    /// One valid token's request, from ever new addresses.
    ReplayedToken,
    /// A real session's packets, recorded and sent again, from its address and from others.
    ReplayedCapture,
    /// Payloads with live players' addresses and tags that are guessed.
    ForgedPayload,
    /// Goodbyes with live players' addresses and tags that are guessed.
    ForgedDisconnect,
    /// Valid requests from ever new addresses whose challenge is never answered.
    SlowHandshake,
    /// Random bytes behind the right magic, from random addresses.
    UnrealJunk,
    /// Initial connects from random addresses, whose challenges nobody answers.
    UnrealInitial,
    /// Responses to challenges that were never sent, with cookies that are guessed.
    UnrealForgedResponse,
    /// A valid response, from its own address again and again, and from others.
    UnrealReplayedResponse,
    /// Claims of other players' sessions, with cookies that are guessed, from an address that
    /// proves itself.
    UnrealForgedRestart,
    /// Game packets from addresses without players, to provoke requests to restart.
    UnrealGame,
    /// Game packets with live players' addresses and numbers that are guessed.
    UnrealForgedGame,
    /// Datagrams as players send them, from random addresses: each may begin a session.
    PlainSources,
    /// The same number again and again, from a few addresses.
    PlainDuplicates,
    /// Numbers that jump ahead, from a few addresses, whose sessions that ends.
    PlainJumps,
    /// Tokens that lead nowhere, from random addresses.
    PlainUnknownToken,
    /// Datagrams that have no room for a token or a number, from random addresses.
    PlainShort,
}

impl Kind {
    /// Which packets it sends, where it is about Unreal.
    pub(super) const fn packet(self) -> Option<UnrealPacket> {
        Some(match self {
            Self::UnrealJunk => UnrealPacket::Junk,
            Self::UnrealInitial => UnrealPacket::Initial,
            Self::UnrealForgedResponse => UnrealPacket::ForgedResponse,
            Self::UnrealReplayedResponse => UnrealPacket::Response,
            Self::UnrealForgedRestart => UnrealPacket::ForgedRestart,
            Self::UnrealGame | Self::UnrealForgedGame => UnrealPacket::Game,
            _ => return None,
        })
    }

    /// Whether it is about listeners that know nothing of the game.
    pub(super) const fn is_plain(self) -> bool {
        matches!(
            self,
            Self::PlainSources
                | Self::PlainDuplicates
                | Self::PlainJumps
                | Self::PlainUnknownToken
                | Self::PlainShort
        )
    }

    /// Whether it has live players' addresses.
    pub const fn spoofs_players(self) -> bool {
        matches!(self, Self::ForgedPayload | Self::ForgedDisconnect | Self::UnrealForgedGame)
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        use clap::ValueEnum;
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether it makes sense against players of that protocol.
    pub fn suits(self, protocol: &Protocol) -> bool {
        let is_unreals = self.packet().is_some();
        match protocol {
            _ if matches!(self, Self::Junk) => true,
            Protocol::Netcode(_) | Protocol::Messages(..) => !is_unreals && !self.is_plain(),
            Protocol::Unreal(_) => is_unreals,
            Protocol::Plain(plain) => match self {
                Self::PlainSources => true,
                Self::PlainDuplicates | Self::PlainJumps => plain.sequence.is_some(),
                Self::PlainUnknownToken => !plain.tokens.is_empty(),
                Self::PlainShort => plain.needs() > 1,
                _ => false,
            },
        }
    }
}

/// What an attack is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to do.
    pub kind: Kind,
    /// Datagrams per second.
    pub rate: u64,
    /// The gateway.
    pub server: SocketAddr,
    /// The protocol id, which anybody can learn from a request on the wire.
    pub protocol_id: u64,
    /// What honest players speak, with tokens for attacks that need valid ones.
    pub protocol: Protocol,
    /// Players whose addresses forgeries bear, and the first of these addresses.
    pub victims: (u32, u32),
    /// Driver.
    pub io: Choice,
}

/// What an attack has sent and got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttackStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Datagrams that were due and not sent, because the kernel or this machine could not.
    pub unsent: u64,
    /// Datagrams that came back.
    pub answers: u64,
    /// Bytes in them.
    pub answer_bytes: u64,
    /// Payloads that the attacker's own session sent while it was recorded.
    pub payloads: u64,
    /// And what came back of them.
    pub payload_answers: u64,
}

impl Options {
    /// The address of some live player.
    pub(super) fn victim(&self, rng: &mut Rng) -> u32 {
        let (count, first) = self.victims;
        loopback_address(first, rng.below(u64::from(count.max(1))) as u32)
    }
}

impl AttackStats {
    /// What the books need to know of it.
    pub const fn hostile(&self) -> Hostile {
        Hostile {
            sent: self.sent,
            answers: self.answers,
            payloads: self.payloads,
            payload_answers: self.payload_answers,
        }
    }

    /// Bytes out of the gateway for each byte in.
    pub fn amplification(&self) -> f64 {
        if self.sent_bytes == 0 { 0.0 } else { self.answer_bytes as f64 / self.sent_bytes as f64 }
    }
}

/// How an attacker is told to end, in two steps: its last answers belong into the books as well.
#[derive(Debug, Default)]
pub struct Orders {
    /// Send nothing more.
    pub stop_sending: AtomicBool,
    /// Need not listen either.
    pub stop_listening: AtomicBool,
}

/// Datagrams to be sent again and again, and the address that they were first sent from.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) packets: Vec<Vec<u8>>,
    pub(super) from: u32,
}

/// An address of the attackers'.
pub(super) const fn random_address(word: u64) -> u32 {
    FIRST_ADDRESS + (word % ADDRESSES as u64) as u32
}

/// 127.1.0.0: attackers live below the players.
pub(super) const FIRST_ADDRESS: u32 = 0x7f01_0000;

/// Up to 127.15.255.255.
pub(super) const ADDRESSES: u32 = 0x000f_0000;

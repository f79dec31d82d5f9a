//! The list of protocols, with what each of them is called.

use crate::front::{netcode, plain, unreal};
use crate::ids::BackendId;
use crate::setup::Protocol;
use crate::shared::claims::Claims;
use ringgate_batch::filter::Filter;
#[cfg(test)]
use ringgate_batch::filter::Rule;

/// A protocol that players speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// netcode 1.02.
    Netcode,
    /// Unreal Engine's UDP protocol.
    Unreal,
    /// Any other game's, over UDP.
    Plain,
    /// A test's.
    #[cfg(test)]
    Third,
}

impl Front {
    /// Every protocol, in the order of their packet kinds.
    pub const ALL: &[Self] = &[
        Self::Netcode,
        Self::Unreal,
        Self::Plain,
        #[cfg(test)]
        Self::Third,
    ];

    /// What a listener's rules are for.
    pub const fn of(protocol: &Protocol) -> Self {
        match protocol {
            Protocol::Netcode(_) => Self::Netcode,
            Protocol::Unreal(_) => Self::Unreal,
            Protocol::Plain(_) => Self::Plain,
            #[cfg(test)]
            Protocol::Third => Self::Third,
        }
    }

    /// The word for it in the configuration and in what the daemon tells.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Netcode => "netcode",
            Self::Unreal => "unreal",
            Self::Plain => "plain",
            #[cfg(test)]
            Self::Third => "third",
        }
    }

    /// The protocol of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|front| front.word() == word)
    }

    /// What the players of a backend speak; `None` where it has none.
    pub fn of_players(claims: &Claims, backend: BackendId) -> Option<Self> {
        Self::ALL.get(usize::from(claims.spoken(backend)?)).copied()
    }

    /// Whether it asks its servers itself, in its own protocol, if they are there.
    pub(crate) const fn asks_servers(self) -> bool {
        match self {
            Self::Netcode | Self::Plain => false,
            Self::Unreal => true,
            #[cfg(test)]
            Self::Third => false,
        }
    }

    /// What its packet kinds are called in metrics, in the order of their counters.
    pub const fn kind_names(self) -> &'static [&'static str] {
        match self {
            Self::Netcode => &[
                "request",
                "denied",
                "challenge",
                "response",
                "keep_alive",
                "payload",
                "disconnect",
            ],
            Self::Unreal => &[
                "unreal_game",
                "unreal_initial",
                "unreal_challenge",
                "unreal_response",
                "unreal_ack",
                "unreal_restart_request",
                "unreal_restart_response",
                "unreal_version_upgrade",
            ],
            Self::Plain => &["plain"],
            #[cfg(test)]
            Self::Third => &["third_datagram"],
        }
    }

    /// The counter of its first packet kind.
    pub const fn first_kind(self) -> usize {
        let (mut at, mut first) = (0, 0);
        while Self::ALL[at] as usize != self as usize {
            first += Self::ALL[at].kind_names().len();
            at += 1;
        }
        first
    }
}

impl Protocol {
    /// What a listener's sockets may let pass to the gate.
    pub fn filter(&self) -> Filter {
        match self {
            Self::Netcode(rules) => netcode::filter::filter(rules.protocol_id),
            Self::Unreal(rules) => unreal::filter::filter(&rules.framing),
            Self::Plain(rules) => plain::filter::filter(rules),
            #[cfg(test)]
            Self::Third => Filter::new().allow(Rule::new(0..=u8::MAX, 1..=u16::MAX)),
        }
    }
}

/// How many kinds of packets there are, of all protocols.
pub const PACKET_KINDS: usize = {
    let last = Front::ALL[Front::ALL.len() - 1];
    last.first_kind() + last.kind_names().len()
};

/// What they are called, in the order of their counters.
pub const PACKET_KIND_NAMES: [&str; PACKET_KINDS] = {
    let mut names = [""; PACKET_KINDS];
    let mut front = 0;
    while front < Front::ALL.len() {
        let (first, kinds) = (Front::ALL[front].first_kind(), Front::ALL[front].kind_names());
        let mut kind = 0;
        while kind < kinds.len() {
            names[first + kind] = kinds[kind];
            kind += 1;
        }
        front += 1;
    }
    names
};

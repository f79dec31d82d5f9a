//! A session as its standby has it, on another host and after another boot: ages in place of
//! moments, names in place of numbers.
//!
//! What changes with every packet is not in it. Which packets were handed over is the arbiter's to
//! say, and the numbers of packets to the player follow from the term that the gateway makes which
//! takes the session over.

use ringgate_core::carry::{Broken, Carry, Maps, Reader, Writer};
use ringgate_core::proto::netcode::USER_DATA_BYTES;
use ringgate_core::proto::unreal::cookie::Cookie;
use ringgate_core::proto::unreal::prefix::Ids;
use ringgate_core::secret::Key;

use crate::number::{Tenure, Term};
use crate::question::SessionId;

/// A session that another gateway can go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which.
    pub session: SessionId,
    /// The tag of its token, which tells tokens apart; zeros where it has none.
    pub token: [u8; 16],
    /// The tenure that had it when this was written.
    pub holder: Tenure,
    /// How often that gateway has written it anew: the latest counts.
    pub revision: u32,
    /// When its token expires, in seconds since 1970.
    pub token_until_s: u64,
    /// When the session began, in seconds since 1970.
    pub since_s: u64,
    /// After how long a silence the player is given up, in milliseconds; 0 for never.
    pub timeout_ms: u32,
    /// How long the player had been silent.
    pub silent_ms: u32,
    /// The player's slot at its backend.
    pub slot: u32,
    /// Where the player is: an address, IPv4 mapped, and a port.
    pub player: ([u8; 16], u16),
    /// Which of our addresses it talks to.
    pub local: ([u8; 16], u16),
    /// Where it plays.
    pub backend: String,
    /// By what the player is known, in its protocol.
    pub proof: Proof,
}

/// By what a datagram is known to be a player's, and what else a session of its protocol has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// netcode.
    Netcode(Box<NetcodeProof>),
    /// Any other over UDP.
    Plain(PlainProof),
    /// Unreal Engine's.
    Unreal(UnrealProof),
}

/// A netcode session has keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetcodeProof {
    /// Opens what the player sends.
    pub open_key: Key,
    /// Seals what the player gets.
    pub seal_key: Key,
    /// Which client the player is.
    pub client_id: u64,
    /// Whether the player is known to know that it is connected.
    pub is_confirmed: bool,
    /// The highest number of a packet of the player that was opened.
    pub newest: u64,
    /// What the token says of the player to its game.
    pub user_data: [u8; USER_DATA_BYTES],
}

/// A plain session has its address, and the token of its record where the listener goes by tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainProof {
    /// Whether the player has sent back what only its server has sent.
    pub is_proven: bool,
    /// The highest number of a datagram of the player's, extended; 0 where they have none.
    pub newest: u64,
}

/// An Unreal session has its address, the ids of its packets, and their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnrealProof {
    /// What player and server share: restarts of the handshake name the session by it.
    pub cookie: Cookie,
    /// What the player's packets begin with.
    pub player_ids: Ids,
    /// What they begin with at the server.
    pub server_ids: Ids,
    /// The highest number of a packet of the player's, extended; 0 where they cannot be read.
    pub newest: u64,
}

impl Proof {
    /// Which client the player is, where its protocol has such ids.
    pub fn client_id(&self) -> Option<u64> {
        match self {
            Self::Netcode(it) => Some(it.client_id),
            Self::Plain(_) | Self::Unreal(_) => None,
        }
    }

    /// That of a netcode session.
    pub fn of_netcode(&self) -> Option<&NetcodeProof> {
        match self {
            Self::Netcode(it) => Some(it),
            Self::Plain(_) | Self::Unreal(_) => None,
        }
    }

    /// That of an Unreal session.
    pub const fn of_unreal(&self) -> Option<&UnrealProof> {
        match self {
            Self::Unreal(it) => Some(it),
            Self::Netcode(_) | Self::Plain(_) => None,
        }
    }

    /// That of a plain session.
    pub const fn of_plain(&self) -> Option<&PlainProof> {
        match self {
            Self::Plain(it) => Some(it),
            Self::Netcode(_) | Self::Unreal(_) => None,
        }
    }

    /// The version of a record that has it.
    const fn version(&self) -> u8 {
        match self {
            Self::Netcode(_) => VERSION_NETCODE,
            Self::Plain(_) => VERSION_PLAIN,
            Self::Unreal(_) => VERSION_UNREAL,
        }
    }
}

/// How long one is at most.
pub const RECORD_BYTES_MAX: usize = 512;

impl Record {
    /// Writes it, and says how long it is. The bytes are the caller's to wipe.
    pub fn write_to(&self, bytes: &mut [u8; RECORD_BYTES_MAX]) -> Result<usize, Broken> {
        let mut out = Writer::new(bytes);
        self.append_to(&mut out)?;
        Ok(out.len())
    }

    /// Writes it behind what was written before, or nothing where it is none that can be read.
    pub fn append_to(&self, out: &mut Writer<'_>) -> Result<(), Broken> {
        self.check()?;
        self.proof.version().write(out);
        self.write(out);
        Ok(())
    }

    /// Reads the one that all the rest is; `Foreign` where nothing is left.
    pub fn read_rest(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match from.rest() {
            [] => Err(Broken::Foreign),
            rest => Self::read_from(from.bytes(rest.len())?),
        }
    }

    /// Reads what [`write_to`](Self::write_to) has written; the bytes may be hostile.
    pub fn read_from(bytes: &[u8]) -> Result<Self, Broken> {
        let maps = Maps::default();
        let mut from = Reader::new(bytes, &maps);
        let version = u8::read(&mut from)?;
        if ![VERSION_NETCODE, VERSION_PLAIN, VERSION_UNREAL].contains(&version) {
            return Err(Broken::Invalid("version"));
        }
        let record = Self::read(&mut from, version)?;
        from.end()?;
        record.check()?;
        Ok(record)
    }

    /// All but the version. What only netcode has is left out of another one.
    fn write(&self, out: &mut Writer<'_>) {
        let netcode = self.proof.of_netcode();
        self.session.write(out);
        self.token.write(out);
        self.holder.write(out);
        self.revision.write(out);
        if let Some(NetcodeProof { open_key, seal_key, client_id, .. }) = netcode {
            open_key.write(out);
            seal_key.write(out);
            client_id.write(out);
        }
        self.token_until_s.write(out);
        self.since_s.write(out);
        self.timeout_ms.write(out);
        self.silent_ms.write(out);
        let (is_known, newest) = match &self.proof {
            Proof::Netcode(proof) => (proof.is_confirmed, proof.newest),
            Proof::Plain(proof) => (proof.is_proven, proof.newest),
            Proof::Unreal(proof) => (true, proof.newest),
        };
        is_known.write(out);
        newest.write(out);
        self.slot.write(out);
        self.player.write(out);
        self.local.write(out);
        match &self.proof {
            Proof::Netcode(proof) => proof.user_data.write(out),
            Proof::Plain(_) => {}
            Proof::Unreal(UnrealProof { cookie, player_ids, server_ids, newest: _ }) => {
                cookie.write(out);
                [*player_ids, *server_ids].write(out);
            }
        }
        self.backend.write(out);
    }

    fn read(from: &mut Reader<'_>, version: u8) -> Result<Self, Broken> {
        let (session, token) = Carry::read(from)?;
        let (holder, revision) = Carry::read(from)?;
        let keys = if version == VERSION_NETCODE {
            let (open_key, seal_key) = Carry::read(from)?;
            Some((open_key, seal_key, Carry::read(from)?))
        } else {
            None
        };
        let [token_until_s, since_s] = Carry::read(from)?;
        let [timeout_ms, silent_ms] = Carry::read(from)?;
        let (is_known, newest) = Carry::read(from)?;
        let slot = Carry::read(from)?;
        let (player, local) = Carry::read(from)?;
        let proof = match keys {
            Some((open_key, seal_key, client_id)) => Proof::Netcode(Box::new(NetcodeProof {
                open_key,
                seal_key,
                client_id,
                is_confirmed: is_known,
                newest,
                user_data: Carry::read(from)?,
            })),
            None if version == VERSION_PLAIN => {
                Proof::Plain(PlainProof { is_proven: is_known, newest })
            }
            None if !is_known => return Err(Broken::Invalid("proof")),
            None => {
                let (cookie, [player_ids, server_ids]) = Carry::read(from)?;
                Proof::Unreal(UnrealProof { cookie, player_ids, server_ids, newest })
            }
        };
        Ok(Self {
            session,
            token,
            holder,
            revision,
            token_until_s,
            since_s,
            timeout_ms,
            silent_ms,
            slot,
            player,
            local,
            backend: Carry::read(from)?,
            proof,
        })
    }

    /// What holds of every one.
    fn check(&self) -> Result<(), Broken> {
        if self.holder.term == Term::NONE {
            return Err(Broken::Invalid("term"));
        }
        let is_inner = |byte: &u8| byte.is_ascii_graphic();
        let name = self.backend.as_bytes();
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(is_inner);
        if is_name { Ok(()) } else { Err(Broken::Invalid("name")) }
    }

    /// Whether this is to be kept in place of another of the same session.
    pub fn is_later_than(&self, other: &Self) -> bool {
        (self.holder, self.revision) > (other.holder, other.revision)
    }
}

/// Of what is written: each protocol has its own. A member that finds another has nothing to go on
/// with, and says so.
const VERSION_NETCODE: u8 = 1;
const VERSION_PLAIN: u8 = 2;
const VERSION_UNREAL: u8 = 3;

/// A fleet's names are no longer.
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::number::Incarnation;

    fn record() -> Record {
        Record {
            session: SessionId([7; 16]),
            token: [0xff; 16],
            holder: Tenure { term: Term::LAST, incarnation: Incarnation(u16::MAX) },
            revision: 3,
            token_until_s: 1 << 40,
            since_s: 1 << 39,
            timeout_ms: 10_000,
            silent_ms: 20,
            slot: 9,
            player: ([3; 16], 40_000),
            local: ([4; 16], 40_001),
            backend: "b".repeat(NAME_BYTES_MAX),
            proof: Proof::Netcode(Box::new(NetcodeProof {
                open_key: Key::from_bytes([1; 32]),
                seal_key: Key::from_bytes([2; 32]),
                client_id: 5,
                is_confirmed: true,
                newest: 1 << 60,
                user_data: [5; USER_DATA_BYTES],
            })),
        }
    }

    fn plain() -> Record {
        let proof = Proof::Plain(PlainProof { is_proven: true, newest: 1 << 33 });
        Record { proof, ..record() }
    }

    fn unreal() -> Record {
        let proof = Proof::Unreal(UnrealProof {
            cookie: Cookie([9; 20]),
            player_ids: Ids::new(1, 5),
            server_ids: Ids::new(2, 5),
            newest: 1 << 20,
        });
        Record { proof, ..record() }
    }

    fn written(record: &Record) -> Vec<u8> {
        let mut bytes = [0; RECORD_BYTES_MAX];
        let len = record.write_to(&mut bytes).expect("there is room");
        bytes[..len].to_vec()
    }

    #[test]
    fn the_longest_has_room_and_is_read_as_it_was() {
        for record in [record(), plain(), unreal()] {
            let bytes = written(&record);
            assert!(bytes.len() <= RECORD_BYTES_MAX, "{}", bytes.len());
            assert_eq!(Record::read_from(&bytes), Ok(record));
        }
    }

    #[test]
    fn each_protocols_is_told_apart_by_its_first_byte() {
        let [netcode, plain] = [record(), plain()].map(|it| written(&it));
        assert_eq!((netcode[0], plain[0], plain.len()), (1, 2, 182));
        let mixed = [&[1], &plain[1..]].concat();
        assert!(Record::read_from(&mixed).is_err());
    }

    #[test]
    fn what_is_no_record_is_refused_by_name() {
        let bytes = written(&plain());
        for len in 0..bytes.len() {
            assert_eq!(Record::read_from(&bytes[..len]), Err(Broken::Truncated), "{len}");
        }
        let bytes = written(&record());
        for len in 0..bytes.len() {
            assert_eq!(Record::read_from(&bytes[..len]), Err(Broken::Truncated), "{len}");
        }
        let refused = |changed: Vec<u8>| {
            Record::read_from(&changed).map(drop).map_err(|it| match it {
                Broken::Invalid(what) => what,
                Broken::Foreign | Broken::Truncated => "another",
            })
        };
        assert_eq!(refused([&bytes[..], &[0]].concat()), Err("length"));
        assert_eq!(refused([&[99], &bytes[1..]].concat()), Err("version"));
        let last = bytes.len() - 1;
        assert_eq!(refused([&bytes[..last], b" "].concat()), Err("name"));
        let term_at = 1 + 16 + 16;
        for term in [[0, 0], [0, 64]] {
            let changed = [&bytes[..term_at], &term, &bytes[term_at + 2..]].concat();
            assert_eq!(refused(changed), Err("term"));
        }
        for backend in [String::new(), "b".repeat(NAME_BYTES_MAX + 1)] {
            let record = Record { backend, ..record() };
            let written = record.write_to(&mut [0; RECORD_BYTES_MAX]);
            assert_eq!(written, Err(Broken::Invalid("name")));
        }
    }

    #[test]
    fn the_later_owner_counts_and_of_one_owner_the_later_record() {
        let term = |it| Term::new(it).expect("it is one");
        let of = |it, revision| {
            let holder = Tenure { term: term(it), incarnation: Incarnation(1) };
            Record { holder, revision, ..record() }
        };
        assert!(of(2, 1).is_later_than(&of(1, 9)) && of(2, 2).is_later_than(&of(2, 1)));
        assert!(!of(1, 9).is_later_than(&of(2, 1)) && !of(2, 1).is_later_than(&of(2, 1)));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_as_it_was(
            at in 0..RECORD_BYTES_MAX, bytes in prop::collection::vec(any::<u8>(), 0..80),
            which in 0..3_usize,
        ) {
            let mut changed = written(&[record, plain, unreal][which]());
            let at = at % changed.len();
            let end = changed.len().min(at + bytes.len());
            changed[at..end].copy_from_slice(&bytes[..end - at]);
            if let Ok(read) = Record::read_from(&changed) {
                prop_assert_eq!(written(&read), changed);
            }
        }
    }
}

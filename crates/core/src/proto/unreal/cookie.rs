//! Cookies: how a server knows that a client receives at an address, without remembering that it
//! asked.
//!
//! A challenge carries a timestamp and a MAC over it and the asker's address; the response brings
//! both back. Here are the rules: what the MAC covers ([`MacInput`]), which of two secrets makes it
//! and how they take turns ([`Rotation`]), and which timestamps are taken ([`Epoch`]). The MAC
//! itself is HMAC-SHA1 and is `crypto`'s.
//!
//! Only its issuer ever verifies a cookie, so what it covers is our own choice; to a client it is
//! 20 opaque bytes. Their first four seed the packet sequences of the connection that comes out of
//! it.

use super::PacketSeq;
use super::timing::{COOKIE_LIFETIME_NS_MAX, NS_PER_S, ROTATION_NS, ROTATION_SPREAD_NS};
use crate::drops::DropReason;
use crate::endpoint::Endpoint;
use crate::secret::CookieSecret;

/// Bytes of a cookie: a whole SHA-1.
pub const COOKIE_BYTES: usize = 20;

/// What a challenge asks to be told again. After the handshake it names the connection, so it is as
/// secret as one: a holder of it who has an address can take the connection over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; COOKIE_BYTES]);

impl Cookie {
    /// No cookie: what initial connects are filled with.
    pub const ZERO: Self = Self([0; COOKIE_BYTES]);

    /// The number of the server's first packet.
    #[inline]
    pub const fn server_sequence(&self) -> PacketSeq {
        PacketSeq::new(u16::from_le_bytes([self.0[0], self.0[1]]) as u64)
    }

    /// The number of the client's first packet.
    #[inline]
    pub const fn client_sequence(&self) -> PacketSeq {
        PacketSeq::new(u16::from_le_bytes([self.0[2], self.0[3]]) as u64)
    }
}

/// Which of the two secrets made a cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecretId(bool);

impl SecretId {
    /// The secret that this bit names.
    #[inline]
    pub const fn from_bit(bit: bool) -> Self {
        Self(bit)
    }

    /// The bit on the wire.
    #[inline]
    pub const fn bit(self) -> bool {
        self.0
    }

    /// Its place in a pair of secrets.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    const fn other(self) -> Self {
        Self(!self.0)
    }
}

/// When a cookie was made: seconds as an IEEE double, kept as the bits of the wire because that is
/// what the MAC covers. Any bits can arrive here, also those of infinities and of no number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(u64);

impl Timestamp {
    /// An initial connect's filler.
    pub const ZERO: Self = Self(0);

    /// What an acknowledgement says instead of a time.
    pub const ACK: Self = Self::from_seconds(-1.0);

    /// A number of seconds.
    pub const fn from_seconds(seconds: f64) -> Self {
        Self(seconds.to_bits())
    }

    /// The instant of a cookie that is made now. Never zero, which would be no time to a client.
    pub fn from_ns(now_ns: u64) -> Self {
        Self::from_seconds(now_ns.max(1) as f64 / NS_PER_S as f64)
    }

    /// The bits of the wire.
    #[inline]
    pub const fn from_wire(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits of the wire.
    #[inline]
    pub const fn to_wire(self) -> u64 {
        self.0
    }

    /// The seconds; maybe not a number.
    #[inline]
    pub const fn seconds(self) -> f64 {
        f64::from_bits(self.0)
    }

    /// The instant, or `None` where it is none after the clock's zero. Exact to a nanosecond for
    /// two weeks of uptime, and to a microsecond for longer than any host runs.
    pub fn to_ns(self) -> Option<u64> {
        let ns = (self.seconds() * NS_PER_S as f64).round();
        (ns > 0.0 && ns < u64::MAX as f64).then_some(ns as u64)
    }
}

/// What a challenge asks and a response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The secret that the cookie was made with.
    pub secret_id: SecretId,
    /// When it was made.
    pub timestamp: Timestamp,
    /// The MAC.
    pub cookie: Cookie,
}

crate::carried_alone!(Cookie, SecretId, Timestamp);
crate::carried!(Proof { secret_id, timestamp, cookie });
crate::carried!(Epoch { active, rotated_ns as time });
crate::carried!(Rotation { secrets, epoch, due_ns as time });

/// The bytes that a cookie is the MAC of. Every field has a fixed place, so no two inputs have the
/// same bytes:
///
/// `timestamp (8) | family, 4 or 6 (1) | ip, IPv4 mapped (16) | scope (4) | port (2) |
/// client id (1) | listener (4)`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacInput([u8; MAC_INPUT_BYTES]);

impl MacInput {
    /// The input for a cookie that is made at `timestamp` for the client with that id at `source`,
    /// who asks at `listener`.
    pub fn new(timestamp: Timestamp, source: Endpoint, client_id: u8, listener: u32) -> Self {
        let mut bytes = [0; MAC_INPUT_BYTES];
        let mut rest = &mut bytes[..];
        let mut put = |field: &[u8]| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(field.len());
            head.copy_from_slice(field);
            rest = tail;
        };
        put(&timestamp.to_wire().to_le_bytes());
        put(&[if source.is_v4() { 4 } else { 6 }]);
        put(source.ip_bytes());
        put(&source.scope().to_le_bytes());
        put(&source.port().to_le_bytes());
        put(&[client_id]);
        put(&listener.to_le_bytes());
        debug_assert!(rest.is_empty(), "every byte of the input has a meaning");
        Self(bytes)
    }

    /// The bytes, for the MAC.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; MAC_INPUT_BYTES] {
        &self.0
    }
}

/// Length of a [`MacInput`].
pub const MAC_INPUT_BYTES: usize = 8 + 1 + 16 + 4 + 2 + 1 + 4;

// With SHA-1's padding, input and digest fit into one block each.
const _: () = assert!(MAC_INPUT_BYTES <= 64 - 9);

/// Which secret is in use since when: what it takes to judge a timestamp. Small, so that every
/// worker has a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    active: SecretId,
    rotated_ns: u64,
}

impl Epoch {
    /// The secret to make cookies with.
    #[inline]
    pub const fn active(&self) -> SecretId {
        self.active
    }

    /// Whether a cookie that claims this origin can be one of ours; then it is worth computing the
    /// MAC.
    ///
    /// The active secret makes cookies since the rotation, the other one made them before. Workers
    /// read their clock once per turn and learn of a rotation a moment after it, so each comparison
    /// forgives [`SKEW_NS`]. That gives nothing away: the MAC covers the timestamp, and a replaced
    /// secret verifies nothing.
    pub fn check(
        &self,
        secret_id: SecretId,
        timestamp: Timestamp,
        now_ns: u64,
    ) -> Result<(), DropReason> {
        let made_ns = timestamp.to_ns().ok_or(DropReason::CookieExpired)?;
        let is_from_the_future = made_ns > now_ns.saturating_add(SKEW_NS);
        if is_from_the_future || now_ns.saturating_sub(made_ns) >= COOKIE_LIFETIME_NS_MAX {
            return Err(DropReason::CookieExpired);
        }
        let was_in_use = if secret_id == self.active {
            made_ns.saturating_add(SKEW_NS) >= self.rotated_ns
        } else {
            made_ns <= self.rotated_ns.saturating_add(SKEW_NS)
        };
        if was_in_use { Ok(()) } else { Err(DropReason::CookieSecret) }
    }
}

/// How far the clocks of two workers, as read for their turns, may be apart.
pub const SKEW_NS: u64 = NS_PER_S / 20;

/// Two secrets that take turns. One of these per process; workers get its [`Epoch`] and what they
/// need of the secrets.
#[derive(Debug)]
pub struct Rotation {
    secrets: [CookieSecret; 2],
    epoch: Epoch,
    due_ns: u64,
}

impl Rotation {
    /// Begins with two fresh secrets, so that neither is ever one that could be known. `draw` is a
    /// random number.
    pub const fn new(now_ns: u64, secrets: [CookieSecret; 2], draw: u64) -> Self {
        let epoch = Epoch { active: SecretId(false), rotated_ns: now_ns };
        Self { secrets, epoch, due_ns: due_after(now_ns, draw) }
    }

    /// When the next rotation is due.
    pub const fn poll_timeout(&self) -> u64 {
        self.due_ns
    }

    /// Puts a fresh secret in the place of the older one and makes it the active one, once that is
    /// due; says whether it was. `draw` is a random number.
    ///
    /// The time to the next rotation is drawn once, here. (The engine draws at every tick, which
    /// favours short periods.)
    pub fn handle_timeout(&mut self, now_ns: u64, fresh: CookieSecret, draw: u64) -> bool {
        if now_ns < self.due_ns {
            return false;
        }
        let active = self.epoch.active.other();
        self.secrets[active.index()] = fresh;
        self.epoch = Epoch { active, rotated_ns: now_ns };
        self.due_ns = due_after(now_ns, draw);
        true
    }

    /// Which secret is in use since when.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Both secrets, by [`SecretId::index`].
    pub const fn secrets(&self) -> &[CookieSecret; 2] {
        &self.secrets
    }
}

const fn due_after(now_ns: u64, draw: u64) -> u64 {
    now_ns.saturating_add(ROTATION_NS + draw % (ROTATION_SPREAD_NS + 1))
}

#[cfg(test)]
mod tests;

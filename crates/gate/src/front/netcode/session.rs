//! One player: what a session and an unfinished handshake hold.

use std::mem::offset_of;
use std::num::NonZeroU8;
use std::ops::Range;

use crate::ids::{BackendId, Slot, WorkerId};
use crate::now::NS_PER_MS;
use crate::sessions::Kept;
use crate::shared::claims::Claim;
use crate::shared::claims::history::TokenMac;
use crate::store::entry::Entry;
use crate::store::table::{Address, TENANT_OFFSET, Tenant};
use ringgate_batch::{LINE_BYTES, LocalIp, SocketId};
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_core::limits::WORKERS_MAX;
use ringgate_core::proto::netcode::server::{PendingBinding, SessionSequence};
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::replay::Window;
use ringgate_core::secret::{KEY_BYTES, Key};

/// An authenticated player, laid out by who touches what. In a table's entry the lines are:
///
/// ```text
/// 0      address, generation │ open_key             a packet from the player: these two lines,
/// 1      hot facts │ window, up to 256 bits         side by side
/// 2, 3   the rest of a larger window │ who the player is, and what few sessions have
/// 4      seal_key │ what sealing changes            a packet for the player: this one, the first
/// ```
#[repr(C)]
pub(crate) struct Session {
    /// Opens what the player sends.
    pub(crate) open_key: Key,

    /// When the last authentic keep-alive or payload arrived.
    pub(crate) last_receive_ns: u64,
    /// The link epoch in which the backend was told of this session; 0 before it was.
    pub(crate) announced: u32,
    /// The player's index at its backend.
    pub(crate) slot: Slot,
    /// Silence after which the player is given up, in milliseconds: more than 49 days are 49 days.
    /// 0 for never.
    pub(crate) timeout_ms: u32,
    /// Where the player plays.
    pub(crate) backend: BackendId,
    /// What the player has been heard to say.
    pub(crate) heard: HeardSince,
    /// The worker that forwards this player's datagrams to us, after a port switch.
    pub(crate) steered_by: Option<Neighbour>,
    /// The sequences the player has used.
    pub(crate) window: Window,

    /// Who the player is.
    pub(crate) client_id: u64,
    /// The address the player talks to, where `near` has no room for it.
    far: LocalIp,
    /// The session's own socket toward a backend that is not on this host's loopback.
    uplink: OwnSocket,

    /// Seals what the player gets.
    pub(crate) seal_key: Key,
    /// The sequence of the next packet for the player. Invariant: only grows, in a range that no
    /// other session of the same token has, so that no nonce is used twice under `seal_key`.
    pub(crate) next_sequence: SessionSequence,
    /// When the last packet was sent.
    pub(crate) last_send_ns: u64,
    /// Our socket that the player talks to.
    socket: SocketId,
    /// Who may name the session. Invariant: the same as `backend`, or nobody while the player has
    /// gone over to that one and it is not told yet, or while another gateway may have it. Asked
    /// where only what sealing touches is at hand.
    owner: BackendId,
    /// Invariant: whether `heard` is [`HeardSince::Confirmed`].
    is_confirmed: bool,
    near: Near,
}

/// The address the player talks to, where the socket has several.
#[derive(Clone, Copy, Debug)]
enum Near {
    Unspecified,
    V4([u8; 4]),
    /// In [`Session::far`].
    Far,
}

/// The socket of a session that has one, else a number that no socket has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnSocket(SocketId);

impl OwnSocket {
    const NONE: Self = Self(SocketId(u32::MAX));
}

/// What a session begins with.
pub(crate) struct Beginning {
    pub(crate) claim: Claim,
    pub(crate) open_key: Key,
    pub(crate) seal_key: Key,
    pub(crate) window: Window,
    pub(crate) next_sequence: SessionSequence,
    pub(crate) timeout_ms: u32,
}

/// What a session has heard of its player since the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HeardSince {
    /// Nothing: the player may not know that it is connected.
    Nothing,
    /// An authentic packet, of whatever use: its token is spent.
    Something,
    /// A keep-alive or a payload, so the player knows that it is connected.
    Confirmed,
}

/// What opening a packet touches.
pub(crate) const OPENING_LINES: Range<usize> = 0..2;

/// What answering a player touches.
pub(crate) const SEALING_LINES: [Range<usize>; 2] = [0..1, 4..5];

const _: () = {
    const fn line(offset: usize) -> usize {
        (TENANT_OFFSET + offset) / LINE_BYTES
    }
    assert!(
        line(offset_of!(Session, open_key)) == 0 && line(offset_of!(Session, last_receive_ns)) == 1
    );
    assert!(line(offset_of!(Session, window) + DEFAULT_WINDOW_BYTES - 1) == 1);
    assert!(line(offset_of!(Session, seal_key)) == 4 && line(offset_of!(Session, near)) == 4);
    assert!(TENANT_OFFSET + size_of::<Session>() == 5 * LINE_BYTES);
};

/// The part of a window that 256 bits use.
const DEFAULT_WINDOW_BYTES: usize = 8 + 256 / 8;

/// Another worker, in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour(NonZeroU8);

impl Neighbour {
    pub(crate) const fn new(worker: WorkerId) -> Self {
        Self(NonZeroU8::MIN.saturating_add(worker.0 as u8))
    }

    pub(crate) fn worker(self) -> WorkerId {
        WorkerId(u16::from(self.0.get()) - 1)
    }
}

const _: () = assert!(WORKERS_MAX < u8::MAX as usize);

impl Tenant for Session {
    fn nobody() -> Self {
        Self {
            open_key: Key::from_bytes([0; KEY_BYTES]),
            last_receive_ns: 0,
            announced: 0,
            slot: Slot(0),
            timeout_ms: 0,
            backend: BackendId(0),
            heard: HeardSince::Nothing,
            steered_by: None,
            window: Window::new(),
            client_id: 0,
            far: LocalIp::UNSPECIFIED,
            uplink: OwnSocket::NONE,
            seal_key: Key::from_bytes([0; KEY_BYTES]),
            next_sequence: SessionSequence::EXHAUSTED,
            last_send_ns: 0,
            socket: SocketId(u32::MAX),
            owner: BackendId(0),
            is_confirmed: false,
            near: Near::Unspecified,
        }
    }
}

impl Kept for Session {
    #[inline]
    fn at_backend(&self) -> BackendId {
        self.owner
    }

    fn held(&self, address: &Address) -> Option<Claim> {
        Some(self.claim(address))
    }

    fn steered_by(&self) -> Option<WorkerId> {
        self.steered_by.map(Neighbour::worker)
    }
}

impl Session {
    /// A session that has said and heard nothing, of a player who talks to one of our addresses.
    pub(crate) fn new(it: Beginning, socket: SocketId, local: LocalIp, now_ns: u64) -> Self {
        let mut session = Self {
            open_key: it.open_key,
            last_receive_ns: now_ns,
            slot: it.claim.slot,
            timeout_ms: it.timeout_ms,
            backend: it.claim.backend,
            window: it.window,
            client_id: it.claim.client_id,
            seal_key: it.seal_key,
            next_sequence: it.next_sequence,
            last_send_ns: now_ns,
            owner: it.claim.backend,
            ..Self::nobody()
        };
        session.talk_through(socket, local);
        session
    }

    /// The player talks to this address of this socket from now on.
    pub(crate) fn talk_through(&mut self, socket: SocketId, local: LocalIp) {
        self.socket = socket;
        self.near = match local.ip_bytes() {
            _ if local == LocalIp::UNSPECIFIED => Near::Unspecified,
            [.., a, b, c, d] if local.is_v4() && local.interface == 0 => Near::V4([*a, *b, *c, *d]),
            _ => Near::Far,
        };
        self.far = if matches!(self.near, Near::Far) { local } else { LocalIp::UNSPECIFIED };
    }

    /// Our socket that the player talks to, and the address, where the socket has several.
    #[inline]
    pub(crate) fn talks_to(&self) -> (SocketId, LocalIp) {
        let local = match self.near {
            Near::Unspecified => LocalIp::UNSPECIFIED,
            Near::V4(ip) => LocalIp::v4(ip, 0),
            Near::Far => self.far,
        };
        (self.socket, local)
    }

    /// The session's own socket toward a backend that is not on this host's loopback.
    pub(crate) fn uplink(&self) -> Option<SocketId> {
        (self.uplink != OwnSocket::NONE).then_some(self.uplink.0)
    }

    /// Has another socket of its own from now on, or none. Returns the one that it had.
    pub(crate) fn set_uplink(&mut self, socket: Option<SocketId>) -> Option<SocketId> {
        let had = self.uplink();
        self.uplink = socket.map_or(OwnSocket::NONE, OwnSocket);
        had
    }

    /// The player plays at another backend from now on, which is not told yet. Where it waits to be
    /// told, no backend can name the session meanwhile.
    pub(crate) const fn go_to(&mut self, backend: BackendId, slot: Slot, waits: bool) {
        self.backend = backend;
        self.slot = slot;
        self.announced = 0;
        self.owner = if waits { BackendId::NOBODYS } else { backend };
    }

    /// Whether another gateway may have the session by now: no backend can name it meanwhile.
    pub(crate) const fn set_unsure(&mut self, is_unsure: bool) {
        self.owner = if is_unsure { BackendId::NOBODYS } else { self.backend };
    }

    /// The player knows that it is connected.
    #[inline]
    pub(crate) const fn confirm(&mut self) {
        if !matches!(self.heard, HeardSince::Confirmed) {
            self.heard = HeardSince::Confirmed;
            self.is_confirmed = true;
        }
    }

    /// What is to be given back when it ends.
    pub(crate) const fn claim(&self, address: &Address) -> Claim {
        Claim {
            listener: address.listener,
            client_id: self.client_id,
            backend: self.backend,
            slot: self.slot,
            source: address.endpoint,
        }
    }

    /// Silence after which the player is given up; 0 for never.
    pub(crate) fn timeout_ns(&self) -> u64 {
        u64::from(self.timeout_ms) * NS_PER_MS
    }

    /// Whether the player knows that it is connected.
    pub(crate) const fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Whether nothing was heard for longer than the token allows.
    pub(crate) fn is_timed_out(&self, now_ns: u64) -> bool {
        self.timeout_ms > 0 && self.last_receive_ns + self.timeout_ns() <= now_ns
    }

    /// When the player is due a keep-alive, on a listener that sends them every `every_ns`.
    ///
    /// Players who do not know yet that they are connected wait for nothing else, so they get
    /// theirs at netcode's own pace at first, and after each one twice as late: where thousands of
    /// answers are lost because there are too many, more of them do not help. (Their clients ask in
    /// the meantime, and are answered.) And however slow the pace, three in a row can be lost
    /// before the player gives up.
    pub(crate) fn keep_alive_at_ns(&self, every_ns: u64) -> u64 {
        let pace_ns = if self.is_confirmed() {
            self.heartbeat_ns(every_ns)
        } else {
            every_ns.min(self.unheard_ns().max(SEND_INTERVAL_NS))
        };
        self.last_send_ns + pace_ns
    }

    /// After how much silence a player who knows that it is connected is sent something.
    pub(crate) fn heartbeat_ns(&self, every_ns: u64) -> u64 {
        match self.timeout_ns() {
            0 => every_ns,
            timeout_ns => every_ns.min(timeout_ns / KEEP_ALIVES_PER_TIMEOUT),
        }
    }

    /// How long after its last sign of life the player was last sent something.
    fn unheard_ns(&self) -> u64 {
        self.last_send_ns.saturating_sub(self.last_receive_ns)
    }

    /// When this session wants to be looked at again.
    pub(crate) fn deadline_ns(&self, keep_alive_every_ns: u64) -> u64 {
        let keep_alive = self.keep_alive_at_ns(keep_alive_every_ns);
        match self.timeout_ns() {
            0 => keep_alive,
            timeout_ns => keep_alive.min(self.last_receive_ns + timeout_ns),
        }
    }
}

/// A player whose token was good and whose response is awaited.
pub(crate) struct Pending {
    /// Opens the response.
    pub(crate) open_key: Key,
    /// Seals the challenge, and then the session's packets.
    pub(crate) seal_key: Key,
    /// Which challenges may be answered, and by whom.
    pub(crate) binding: PendingBinding,
    /// The token's timeout in seconds; negative for never.
    pub(crate) timeout_seconds: i32,
    /// When the entry dies; `u64::MAX` for never.
    pub(crate) expire_ns: u64,
    /// When the first request was taken, for the handshake's duration.
    pub(crate) since_ns: u64,
    /// Which token it is.
    pub(crate) token_mac: TokenMac,
    /// What it has become in this turn.
    pub(crate) session: Option<Entry<Session>>,
}

impl Tenant for Pending {
    fn nobody() -> Self {
        Self {
            open_key: Key::from_bytes([0; KEY_BYTES]),
            seal_key: Key::from_bytes([0; KEY_BYTES]),
            binding: PendingBinding { first_challenge_sequence: u64::MAX, client_id: 0 },
            timeout_seconds: 0,
            expire_ns: 0,
            since_ns: 0,
            token_mac: [0; 16],
            session: None,
        }
    }
}

ringgate_core::carried_by_number!(HeardSince { Nothing = 0, Something = 1, Confirmed = 2 });
ringgate_core::carried!(Pending {
    open_key,
    seal_key,
    binding,
    timeout_seconds,
    expire_ns,
    since_ns as time,
    token_mac,
    session as anew,
});

impl Carry for Session {
    fn write(&self, out: &mut Writer<'_>) {
        let Self {
            open_key,
            last_receive_ns,
            announced,
            slot,
            timeout_ms,
            backend,
            heard,
            steered_by,
            window,
            client_id,
            far: _,
            uplink,
            seal_key,
            next_sequence,
            last_send_ns,
            socket,
            owner: _,
            is_confirmed: _,
            near: _,
        } = self;
        open_key.write(out);
        last_receive_ns.write(out);
        announced.write(out);
        slot.write(out);
        timeout_ms.write(out);
        backend.write(out);
        heard.write(out);
        steered_by.map(Neighbour::worker).write(out);
        window.write(out);
        client_id.write(out);
        uplink.0.write(out);
        seal_key.write(out);
        next_sequence.write(out);
        last_send_ns.write(out);
        socket.write(out);
        self.talks_to().1.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let mut session = Self {
            open_key: Key::read(from)?,
            last_receive_ns: time::read(from)?,
            announced: u32::read(from)?,
            slot: Slot::read(from)?,
            timeout_ms: u32::read(from)?,
            backend: BackendId::read(from)?,
            heard: HeardSince::read(from)?,
            steered_by: Option::read(from)?.map(Neighbour::new),
            window: Window::read(from)?,
            client_id: u64::read(from)?,
            uplink: OwnSocket::read(from)?,
            seal_key: Key::read(from)?,
            next_sequence: SessionSequence::read(from)?,
            last_send_ns: time::read(from)?,
            ..Self::nobody()
        };
        session.owner = session.backend;
        session.is_confirmed = session.heard == HeardSince::Confirmed;
        let socket = SocketId::read(from)?;
        session.talk_through(socket, LocalIp::read(from)?);
        Ok(session)
    }
}

impl OwnSocket {
    /// A session whose socket was not handed over has none.
    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match SocketId::read(from) {
            Err(Broken::Foreign) => Ok(Self::NONE),
            socket => socket.map(Self),
        }
    }
}

/// Keep-alives that a player is sent within the silence its token allows, at the least.
const KEEP_ALIVES_PER_TIMEOUT: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_player_talks_to_the_address_that_was_said_last() {
        let mut session = Session::nobody();
        let v6 = [0xfd, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        for local in [
            LocalIp::v6(v6, 0),
            LocalIp::v4([10, 98, 0, 1], 0),
            LocalIp::v6(v6, 7),
            LocalIp::UNSPECIFIED,
            LocalIp::v4([10, 98, 0, 2], 3),
            LocalIp::v4([0, 0, 0, 0], 0),
        ] {
            session.talk_through(SocketId(5), local);
            assert_eq!(session.talks_to(), (SocketId(5), local));
        }
    }

    #[test]
    fn a_session_may_have_a_socket_of_its_own() {
        let mut session = Session::nobody();
        assert_eq!(session.set_uplink(Some(SocketId(0))), None);
        assert_eq!(session.uplink(), Some(SocketId(0)));
        assert_eq!(session.set_uplink(None), Some(SocketId(0)));
        assert_eq!(session.uplink(), None);
    }
}

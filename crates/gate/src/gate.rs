//! One worker's gate as its host sees it: told of sockets, asked what it has counted.

use std::ops::Range;
use std::sync::Arc;

use crate::common::Common;
use crate::counters::{Counters, LinkRefusal, Stamps};
use crate::front::face::Fronts;
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::front::plain::state::PlainFront;
use crate::front::room::Room;
use crate::front::unreal::state::UnrealFront;
use crate::ids::{BindId, ListenerId, WorkerId};
use crate::info::{ServerInfo, SessionInfo};
use crate::mail::{ForwardedDatagram, Mail, Request};
use crate::moves::BackendMoves;
use crate::now::Now;
use crate::roles::Role;
use crate::seed::{Seed, WorkerIndex};
use crate::sessions::Sessions;
use crate::setup::{Credentials, Setup};
use crate::shared::buckets::Buckets;
use crate::shared::claims::Claims;
use crate::shared::whereabouts::Teller;
use crate::store::hash::HashKey;
use crate::store::table::Address;
use crate::traffic::{BackendTraffic, DeliveryTraffic, ListenerTraffic};
use crate::turn::Turn;
use ringgate_batch::{Flush, SocketId, TxBatch};
use ringgate_core::crypto::Aead;
use ringgate_core::drops::{DropCounts, DropReason};
use ringgate_core::secret::CookieSecret;
use ringgate_link::bundle::SessionId;

/// One worker's sessions and everything that decides about them.
pub struct Gate {
    pub(crate) common: Common,
    pub(crate) fronts: Fronts,
}

impl Gate {
    /// A gate without sockets.
    pub fn new(
        setup: Arc<Setup>,
        worker: WorkerIndex,
        claims: Arc<Claims>,
        aead: Aead,
        seed: Seed,
        now: Now,
    ) -> Self {
        let room = Room::of(&setup);
        Self::with_room(setup, room, worker, claims, aead, seed, now)
    }

    /// A gate whose tables have that much room.
    pub(crate) fn with_room(
        setup: Arc<Setup>,
        room: Room,
        worker: WorkerIndex,
        claims: Arc<Claims>,
        aead: Aead,
        seed: Seed,
        now: Now,
    ) -> Self {
        let now_ns = now.mono_ns;
        let [_, session_starts, hash @ ..] = seed.random;
        let hash_key = HashKey::new(hash);
        let handshakes_max = setup.worker_pending_max + room.unreal_sessions(&setup);
        let random = (seed, hash_key);
        let mut fronts = Fronts {
            netcode: NetcodeFront::new(&setup, worker.id, &claims, random, now_ns),
            unreal: UnrealFront::new(
                &setup,
                room,
                worker.id,
                hash_key,
                session_starts.rotate_left(32),
                now_ns,
            ),
            plain: PlainFront::new(
                &setup,
                room,
                worker.id,
                hash_key,
                session_starts.rotate_left(16),
                now_ns,
            ),
            #[cfg(test)]
            third: crate::tests::third::front::ThirdFront::new(&setup, worker.id, hash_key, now_ns),
        };
        let places = setup.worker_places().max(PlainFront::places(&setup, room));
        let sizes = (hash_key, handshakes_max, places);
        if let Some(whereabouts) = claims.whereabouts() {
            fronts.tell(&Teller::of(whereabouts, worker.id));
        }
        let mut common = Common::new(worker, claims, aead, sizes, now_ns);
        fronts.adopt(&setup, now_ns);
        common.adopt(setup, now_ns);
        Self { common, fronts }
    }

    /// Begins a turn: what decides in it, and what goes along.
    pub(crate) fn begin<'a>(
        &'a mut self,
        now: Now,
        tx: &'a mut TxBatch,
        out: &'a mut dyn Flush,
    ) -> (&'a mut Fronts, Turn<'a>) {
        (&mut self.fronts, Turn { now, tx, out, common: &mut self.common })
    }

    /// Has it count its sessions in buckets, which nobody has counted yet.
    pub fn share(&mut self, buckets: &Arc<Buckets>) {
        self.fronts.share(buckets, self.common.worker.id);
    }

    /// The address of each session, and of each handshake of which something is kept.
    pub fn for_addresses(&mut self, handle: impl FnMut(&Address)) {
        self.fronts.for_addresses(handle);
    }

    /// Says that `socket` serves a listener: the one at position `bind` of its addresses. Positions
    /// are bound in order.
    pub fn bind_player_socket(&mut self, socket: SocketId, listener: ListenerId, bind: BindId) {
        let next = self.common.listeners[listener].sockets.push(socket);
        assert_eq!(next, bind, "addresses are bound in order");
        self.common.roles.assign(socket, Role::Player { listener, bind });
    }

    /// Says that `socket` is the one that carries all players to udp backends on loopback.
    pub fn bind_udp_link(&mut self, socket: SocketId) {
        self.common.links.udp = Some(socket);
        self.common.roles.assign(socket, Role::UdpLink);
    }

    /// Says that `socket` accepts links.
    pub fn bind_link_listener(&mut self, socket: SocketId) {
        self.common.roles.assign(socket, Role::LinkListener);
    }

    /// A process has connected to the link socket.
    pub(crate) fn handle_link_accepted(&mut self, socket: SocketId, credentials: Credentials) {
        self.common.handle_link_accepted(socket, credentials);
    }

    /// Says that `socket` is a session's own, as asked for by [`Request::OpenSessionSocket`].
    pub(crate) fn bind_session_socket(&mut self, session: SessionId, socket: SocketId) {
        self.fronts.netcode.bind_session_socket(&mut self.common, session, socket);
    }

    /// Says that a socket that [`Request::OpenSessionSocket`] has asked for could not be made.
    pub(crate) fn session_socket_failed(&mut self, now: Now, session: SessionId) {
        self.fronts.netcode.session_socket_failed(now, session);
    }

    /// Takes fresh secrets for cookies, as asked for by [`Request::CookieSecrets`].
    pub fn renew_cookies(&mut self, now: Now, secrets: [CookieSecret; 2]) {
        self.fronts.unreal.renew_cookies(&self.common, now, secrets);
    }

    /// What has to go to other workers, with their index. Empties the list.
    pub(crate) fn poll_mail(&mut self) -> impl Iterator<Item = (WorkerId, Mail)> + '_ {
        self.common.neighbours.mail_out.drain(..)
    }

    /// A datagram for another member could not be given to the thread that sends it.
    pub fn member_refused(&mut self, datagram: &ForwardedDatagram) {
        self.common.counters.members_out -= 1;
        self.common.drop_datagram(&datagram.address, DropReason::MemberQueueFull);
        self.common.show_refused(datagram, DropReason::MemberQueueFull);
    }

    /// A message that [`poll_mail`](Self::poll_mail) gave out could not be delivered.
    pub fn mail_refused(&mut self, mail: &Mail) {
        let Mail::Datagram(datagram) = mail else { return };
        self.common.counters.forwarded_out -= 1;
        self.common.drop_datagram(&datagram.address, DropReason::MailboxFull);
        self.common.show_refused(datagram, DropReason::MailboxFull);
        self.common.take_back(datagram);
    }

    /// What the worker is asked to do, one at a time.
    pub(crate) fn poll_request(&mut self) -> Option<Request> {
        self.common.requests.pop_front()
    }

    /// Whether it looks for sessions that are to end.
    pub fn is_ending_sessions(&self) -> bool {
        self.common.surveys.iter().any(|running| running.survey.ends.is_some())
    }

    /// When the gate wants to be called again at the latest. `None` while nothing is timed.
    pub fn poll_timeout(&self) -> Option<u64> {
        if !self.common.surveys.is_empty() {
            return Some(self.common.life.turned_ns);
        }
        let links_ns = self.common.links.due_ns(self.common.life.turned_ns);
        let due_ns = links_ns.min(self.fronts.due_ns(&self.common));
        (due_ns < u64::MAX).then_some(due_ns)
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.common.counters
    }

    /// The moments of the last turn.
    pub fn stamps(&self) -> &Stamps {
        &self.common.stamps
    }

    /// All sessions, one after the other: for inspection, not for every turn.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> + '_ {
        self.fronts.sessions(&self.common)
    }

    /// Sessions now, those included whose server is still asked.
    pub fn session_count(&self) -> usize {
        self.fronts.session_count()
    }

    /// Slots that are kept for players who are offered to other game processes.
    pub fn slots_kept(&self) -> usize {
        self.common.moves.slots_kept()
    }

    /// Whether each backend can be reached from this worker.
    pub fn backends_up(&self) -> impl Iterator<Item = bool> + '_ {
        let backends = self.common.links.backends.pairs();
        backends.map(|(id, state)| state.is_up() && self.fronts.is_answering(&self.common, id))
    }

    /// Whether the process of each backend takes nobody new, by its word on this worker's link.
    pub fn backends_closed(&self) -> impl Iterator<Item = bool> + '_ {
        self.common.links.backends.iter().map(|state| state.is_closed && state.link.is_some())
    }

    /// How often each backend has become reachable for this worker.
    pub fn backend_arrivals(&self) -> impl Iterator<Item = u64> + '_ {
        self.common.links.backends.iter().map(|state| state.arrivals)
    }

    /// What each listener has carried.
    pub fn listener_traffic(&self) -> impl Iterator<Item = ListenerTraffic> + '_ {
        self.common.listeners.iter().map(|state| state.traffic)
    }

    /// The datagrams from each listener's sockets that went no further.
    pub fn listener_drops(&self) -> impl Iterator<Item = &DropCounts> + '_ {
        self.common.listeners.iter().map(|state| &state.drops)
    }

    /// What has been said in messages at each listener.
    pub fn delivery_traffic(&self) -> impl Iterator<Item = DeliveryTraffic> + '_ {
        self.common.listeners.iter().map(|state| state.delivery)
    }

    /// What each backend has carried.
    pub fn backend_traffic(&self) -> impl Iterator<Item = BackendTraffic> + '_ {
        self.common.links.backends.iter().map(|state| state.traffic)
    }

    /// How many players were moved to each backend and away from it.
    pub fn backend_moves(&self) -> impl Iterator<Item = BackendMoves> + '_ {
        self.common.links.backends.iter().map(|state| state.moves)
    }

    /// What each backend has said about itself, where it serves an Unreal game.
    pub fn servers(&self) -> impl Iterator<Item = Option<ServerInfo>> + '_ {
        self.common.links.backends.ids().map(|backend| self.fronts.server(backend))
    }

    /// Whose link was last closed for each reason, in the order of [`LinkRefusal::ALL`].
    pub fn last_refused(&self) -> &[Option<Credentials>; LinkRefusal::COUNT] {
        &self.common.links.last_refused
    }

    /// What it was told.
    pub fn setup(&self) -> &Setup {
        &self.common.setup
    }

    /// Which of the workers it is.
    pub const fn worker(&self) -> WorkerIndex {
        self.common.worker
    }

    /// What all workers agree on.
    pub const fn claims(&self) -> &Arc<Claims> {
        &self.common.claims
    }

    /// Whether [`Mail::Stop`] has been carried out: every player has been told.
    pub fn is_stopped(&self) -> bool {
        self.common.life.stopped
    }

    /// The socket that carries all players to udp backends on loopback.
    pub fn udp_link(&self) -> Option<SocketId> {
        self.common.links.udp
    }

    /// Which kernel seals and opens.
    pub fn aead(&self) -> &Aead {
        &self.common.aead
    }

    /// Where the tables lie that are large and touched at random, for advice to the operating
    /// system before they are used.
    pub fn large_tables(&self) -> impl Iterator<Item = Range<*const u8>> + use<> {
        self.fronts.large_tables()
    }

    /// Bytes that one session takes in this gate's tables, without what its claims take.
    pub const fn session_bytes() -> usize {
        Sessions::<Session>::session_bytes() + size_of::<u32>()
    }

    /// Which setup it goes by.
    pub fn revision(&self) -> u64 {
        self.common.setup.revision
    }
}

//! Where a player is sent.

use crate::common::Common;
use crate::ids::{BackendId, ListenerId};
use crate::setup::{Intake, Phase, Route};
use crate::shared::claims::{Claim, Wanted};
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::destination::named_backend;
use ringgate_core::proto::netcode::{USER_DATA_BYTES, UserData};

impl Common {
    /// The backend that a player would be sent to now, of those that are open to its listener.
    pub(crate) fn find_room(
        &self,
        listener: ListenerId,
        client_id: u64,
        user_data: &UserData,
        is_open: impl Fn(BackendId) -> bool,
    ) -> Result<BackendId, NoRoom> {
        let found = self.find_backend(listener, client_id, user_data, is_open);
        let sessions_max = self.setup.listeners[listener].sessions_max;
        if found != Err(NoRoom::Draining) && self.claims.sessions(listener) >= sessions_max {
            return Err(NoRoom::SessionsFull);
        }
        let backend = found?;
        if self.has_free_slot(backend) { Ok(backend) } else { Err(NoRoom::BackendFull) }
    }

    /// The same for a player who may have the room of a session that it replaces.
    pub(crate) fn find_backend(
        &self,
        listener: ListenerId,
        client_id: u64,
        user_data: &UserData,
        is_open: impl Fn(BackendId) -> bool,
    ) -> Result<BackendId, NoRoom> {
        if self.takes_nobody(listener) {
            return Err(NoRoom::Draining);
        }
        let routed = self.route(listener, client_id, user_data, is_open);
        routed.ok_or_else(|| self.why_no_backend(listener, user_data))
    }

    /// Claims a place at the backend that a player is sent to, where players have no tokens and
    /// come back to the same backend by `key`.
    pub(crate) fn claim_place(
        &self,
        listener: ListenerId,
        (client_id, key): (u64, u64),
        source: Endpoint,
        is_open: impl Fn(BackendId) -> bool,
    ) -> Result<Claim, DropReason> {
        let backend = self
            .find_room(listener, key, &[0; USER_DATA_BYTES], is_open)
            .map_err(NoRoom::at_response)?;
        let (claim, _) = self.claims.connect(&Wanted {
            listener,
            client_id,
            backend,
            sessions_max: self.setup.listeners[listener].sessions_max,
            source,
            limits: self.limits(listener),
            token_mac: &[0; 16],
            allows_reuse: true,
            random: 0,
        })?;
        self.claims.note_spoken(backend, self.front(listener) as u8);
        Ok(claim)
    }

    /// Why there is no backend for a player.
    fn why_no_backend(&self, listener: ListenerId, user_data: &UserData) -> NoRoom {
        let rules = &self.setup.listeners[listener];
        let wanted = if rules.route == Route::UserData { named_backend(user_data) } else { None };
        let is_wanted = |backend: BackendId| {
            let name = self.setup.backends[backend].name.as_bytes();
            rules.route != Route::UserData || wanted == Some(name)
        };
        let is_sent = matches!(rules.route, Route::UserData | Route::Token);
        let is_for = |backend: BackendId| {
            is_wanted(backend) && (is_sent || self.setup.backends[backend].intake != Intake::Sent)
        };
        let may_come = rules.backends.iter().any(|it| is_for(*it) && self.is_awaited(*it));
        if may_come || self.awaits_fleet() {
            return NoRoom::BackendStarting;
        }
        let wanted = rules.backends.iter().copied().filter(|it| is_wanted(*it));
        let mut there = wanted.map(|it| &self.setup.backends[it]).filter(|it| !it.retired);
        let is_drained = there.next().is_some_and(|it| it.drained) && there.all(|it| it.drained);
        if is_drained { NoRoom::BackendDrained } else { NoRoom::BackendDown }
    }

    /// Whether the gateway drains, or this listener.
    pub(crate) fn takes_nobody(&self, listener: ListenerId) -> bool {
        self.life.draining_until_ns.is_some()
            || self.setup.listeners[listener].phase != Phase::Serving
    }

    /// Whether a listener cannot read what newcomers show: its keys are not in the file any more.
    pub(crate) fn is_without_keys(&self, listener: ListenerId) -> bool {
        let rules = self.setup.listeners[listener].netcode();
        self.takes_nobody(listener) && rules.is_some_and(|rules| rules.keys.is_empty())
    }

    /// Whether a backend is there for new players.
    pub(crate) fn takes_players(&self, backend: BackendId) -> bool {
        !self.setup.backends[backend].retired && self.is_open(backend)
    }

    /// The same, whether it is in the config or not.
    pub(crate) fn is_open(&self, backend: BackendId) -> bool {
        let (rules, state) = (&self.setup.backends[backend], &self.links.backends[backend]);
        state.is_up() && !rules.drained && rules.intake.is_open() && !state.is_closed
    }

    /// Whether a backend has a free slot. Only a hint: the claim itself decides.
    fn has_free_slot(&self, backend: BackendId) -> bool {
        self.claims.players(backend) < self.setup.backends[backend].slots
    }

    /// Chooses among the listener's backends that are up.
    fn route(
        &self,
        listener: ListenerId,
        client_id: u64,
        user_data: &UserData,
        is_open: impl Fn(BackendId) -> bool,
    ) -> Option<BackendId> {
        let rules = &self.setup.listeners[listener];
        let backends = rules.backends.iter().copied();
        let is_sent = matches!(rules.route, Route::UserData | Route::Token);
        let is_for =
            |backend: BackendId| is_sent || self.setup.backends[backend].intake == Intake::Anybody;
        let mut candidates = backends
            .filter(|&backend| self.takes_players(backend) && is_for(backend) && is_open(backend));
        match rules.route {
            // Where a token stands for a backend, no other is open.
            Route::Single | Route::Token => candidates.next(),
            // Rendezvous hashing: when a backend goes, only its own players move.
            Route::Hash => candidates.max_by_key(|&backend| mix(client_id, backend)),
            // Those with a free slot come first, however many players they have. Where all are
            // full, one of them is chosen, and the player is told that it is full.
            Route::LeastPlayers => candidates.min_by_key(|&backend| {
                let players = self.claims.players(backend);
                (!self.has_free_slot(backend), players)
            }),
            Route::UserData => {
                let name = named_backend(user_data)?;
                candidates.find(|&b| self.setup.backends[b].name.as_bytes() == name)
            }
        }
    }
}

/// Why no player can be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    BackendDown,
    /// An operator has drained all that there are.
    BackendDrained,
    BackendFull,
    /// It may be there in a moment: asking again helps.
    BackendStarting,
    Draining,
    SessionsFull,
}

impl NoRoom {
    pub(crate) fn at_request(self) -> DropReason {
        match self {
            Self::BackendDown => DropReason::RequestBackendDown,
            Self::BackendDrained => DropReason::BackendDrained,
            Self::BackendFull => DropReason::RequestBackendFull,
            Self::BackendStarting => DropReason::BackendStarting,
            Self::Draining => DropReason::Draining,
            Self::SessionsFull => DropReason::RequestSessionsFull,
        }
    }

    pub(crate) fn at_response(self) -> DropReason {
        match self {
            Self::BackendDown => DropReason::ResponseBackendDown,
            Self::BackendDrained => DropReason::BackendDrained,
            Self::BackendStarting => DropReason::BackendStarting,
            Self::BackendFull => DropReason::ResponseBackendFull,
            Self::Draining => DropReason::Draining,
            Self::SessionsFull => DropReason::ResponseSessionsFull,
        }
    }
}

fn mix(client_id: u64, backend: BackendId) -> u64 {
    let mut mixed = client_id ^ (u64::from(backend.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

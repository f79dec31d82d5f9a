//! How a worker answers the control thread's questions about its sessions: it looks through its
//! tables a part in each turn, so that its players wait for none of it.

use crate::front::face::Fronts;
use crate::front::protocol::Front;
use crate::info::SessionInfo;
use crate::prefix::Prefix;
use crate::survey::{Running, Wanted};
use crate::turn::Turn;

impl Fronts {
    /// Goes on with the questions that are open.
    pub(crate) fn serve_surveys(&mut self, turn: &mut Turn<'_>) {
        if turn.common.surveys.is_empty() {
            return;
        }
        let mut surveys = std::mem::take(&mut turn.common.surveys);
        surveys.retain_mut(|running| !self.go_on(turn, running));
        turn.common.surveys = surveys;
    }

    /// Looks through a part of a table. Returns whether that was the last.
    fn go_on(&mut self, turn: &mut Turn<'_>, running: &mut Running) -> bool {
        let Running { survey, front, next } = running;
        let Some(&at) = Front::ALL.get(*front) else {
            survey.end_worker();
            return true;
        };
        let places = self.places(at);
        let mut ends_left = ENDS_PER_TURN;
        let end = places.min(next.saturating_add(PLACES_PER_TURN));
        while *next < end && ends_left > 0 {
            let place = *next;
            *next += 1;
            let Some(info) = self.session_at(turn.common, at, place) else { continue };
            if !is_like(&survey.wanted, turn, &info) {
                continue;
            }
            survey.note(turn.common.worker.id, info);
            if let Some(why) = survey.ends {
                self.end_at(turn, at, place, why);
                ends_left -= 1;
            }
        }
        if *next >= places {
            (*front, *next) = (*front + 1, 0);
        }
        false
    }
}

fn is_like(wanted: &Wanted, turn: &Turn<'_>, info: &SessionInfo) -> bool {
    let is_at = |prefix: &Prefix| {
        let seen_as = info.link_address.map(|link| prefix.holds(link.ip_bytes()));
        let is_from = wanted.port.is_none_or(|port| port == info.address.port());
        (is_from && prefix.holds(info.address.ip_bytes())) || seen_as == Some(true)
    };
    // Only netcode's players have ids that somebody has given them.
    let has_id = turn.common.front(info.listener) == Front::Netcode;
    let denied = &turn.common.setup.denied;
    let is_denied = || denied.holds(&info.address) || has_id && denied.holds_client(info.client_id);
    wanted.client_id.is_none_or(|client_id| has_id && client_id == info.client_id)
        && wanted.session.is_none_or(|session| session == info.id)
        && wanted.backend.is_none_or(|backend| backend == info.backend)
        && wanted.listener.is_none_or(|listener| listener == info.listener)
        && wanted.address.as_ref().is_none_or(is_at)
        && (!wanted.is_denied || is_denied())
}

/// Places that are looked at in a turn: some tens of microseconds where they are in memory.
const PLACES_PER_TURN: u32 = 2048;

/// Sessions that are ended in a turn, each with its player's goodbyes.
const ENDS_PER_TURN: u32 = 64;

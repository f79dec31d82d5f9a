//! The families of a gateway in a fleet; one that is alone has none of them.

use crate::control::membership::FleetShown;
use crate::membership::Questions;
use ringgate_fleet::member::MemberStatus;
use ringgate_report::metrics::Text;
use ringgate_report::numbers;

impl FleetShown {
    /// All of them.
    pub(in crate::control) fn render(&self, text: &mut Text) {
        let Self { status, gateways, backends, bans, unreadable, .. } = self;
        member(text, &status.member);
        let (it, mirror, players) = (&status.member, &status.member.mirror, &status.players);
        numbers! { text, FLEET;
            Gauge "pending",
                "1 while workers have not been told what is known.", u8::from(self.is_pending);
            Gauge "keys", "Keys in etcd that are known.", it.keys;
            Gauge "gateways", "Gateways of the fleet.", *gateways;
            Gauge "announced",
                "Game processes that have registered themselves here.", status.announced;
            Gauge "bans", "Clients and prefixes that the fleet denies.", *bans;
            Gauge "unreadable",
                "Keys in etcd that are left out, because they cannot be read.", *unreadable;
            Gauge "tokens",
                "Tokens of several gateways that are remembered: asked about, this one's, and others'.",
                self.tokens;
            Counter "claims_total", "Tokens that etcd was asked about.", status.claims;
            Counter "claim_failures_total", "Times it did not answer.", status.claim_failures;
            Gauge "players",
                "Players of listeners with unique_clients = \"fleet\": those who are here, and those who have left and of whom etcd does \
             not know it yet.",
                self.players[0];
            Counter "players_missed_total",
                "Logins there that etcd was not told, because there was no room to remember them.",
                self.players[1];
            Counter "player_claims_total",
                "Writes to etcd about players who came and left there.", players.claims;
            Counter "player_claim_failures_total",
                "Times etcd did not answer when it was asked about them.", players.failures;
            Counter "events_total", "Changes that etcd has told.", mirror.events;
            Counter "lists_total", "Times everything was listed.", mirror.lists;
            Counter "watches_total", "Times a watch was opened.", mirror.watches;
            Counter "disagreements_total",
                "Times etcd was left or listed anew because it did not agree with what is known, or was silent.",
                mirror.disagreements;
        }
        text.gauge(
            "ringgate_fleet_backends",
            "Backends of the fleet on this host, by whether players are sent to them here.",
        )
        .by("state", ["taken", "left_out"].into_iter().zip(backends));
        refused_and_copied(text, &status.announcements_refused, status.member.copies);
        keys_kept(text, status.keys_kept, &status.keys_refused);
        text.counter(
            "ringgate_fleet_players_ousted_total",
            "Sessions that a newer login of their player has ended, by where they were.",
        )
        .by("at", [("here", players.ousted_here), ("elsewhere", players.ousted_there)]);
        let Questions { answered, refused, forged } = status.questions;
        text.counter(
            "ringgate_fleet_questions_total",
            "What stood in etcd as asked by an operator, by what has become of it.",
        )
        .by("outcome", [("answered", answered), ("refused", refused), ("forged", forged)]);
        let newest = self.confirmed.iter().map(|(listener, confirmed)| {
            (listener, confirmed.iter().max().copied().unwrap_or_default())
        });
        text.gauge(
            "ringgate_fleet_key_epoch",
            "The newest epoch of a listener's key that every worker accepts.",
        )
        .by("listener", newest);
    }
}

/// How the names of all of them begin.
pub(in crate::control) const FLEET: &str = "ringgate_fleet_";

/// What agents in a fleet have as well: how a process stands with etcd.
pub(in crate::control) fn member(text: &mut Text, status: &MemberStatus) {
    numbers! { text, FLEET;
        Gauge "current",
            "1 while what is known of the fleet is up to date.", u8::from(status.is_current());
        Gauge "away_seconds", "For how long it may not be.", status.away_s().unwrap_or_default();
        Gauge "registered", "1 while this process is registered.", u8::from(status.is_registered);
        Counter "leases_lost_total",
            "Registrations that have ended while this process lived.", status.leases_lost;
        Gauge "doubt",
            "The number of what is held back until an operator confirms; 0 for nothing.",
            status.doubt();
        Gauge "no_space",
            "1 while etcd takes no writes, because it has no space left.", u8::from(status.lacks_space);
        Gauge "bans_left_out",
            "Bans that are not obeyed, because there are more than are copied.",
            status.mirror.bans_left_out;
    }
    let keys =
        "Keys of each class that are known on, because nobody has confirmed that they are gone.";
    text.gauge("ringgate_fleet_held_back", keys).by("class", status.mirror.held_back());
}

/// The keys of listeners in `state_dir`: times they were written and could not be, and what of them
/// was left out at the start, by reason.
fn keys_kept(text: &mut Text, kept: [u64; 2], refusals: &[(&'static str, u64)]) {
    text.counter(
        "ringgate_fleet_keys_kept_total",
        "Times the keys that are known were written to state_dir.",
    )
    .by("result", ["done", "failed"].into_iter().zip(kept));
    text.counter(
        "ringgate_fleet_kept_keys_refused_total",
        "Keys in state_dir that were left out when the gateway started, by reason.",
    )
    .by("reason", refusals.iter().copied());
}

/// What agents in a fleet count as well: game processes that were refused, by reason, and copies
/// that were written, and that could not be.
pub(in crate::control) fn refused_and_copied(
    text: &mut Text,
    refusals: &[(&'static str, u64)],
    copied: [u64; 2],
) {
    text.counter(
        "ringgate_fleet_announcements_refused_total",
        "Game processes that wanted to be registered here and were not, by reason.",
    )
    .by("reason", refusals.iter().copied());
    text.counter("ringgate_fleet_copies_total", "Times what is known was written to state_dir.")
        .by("result", ["done", "failed"].into_iter().zip(copied));
}

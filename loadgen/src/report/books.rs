//! The closing of the books: the generator's, the gateway's and the kernel's, held against each
//! other to the datagram.
//!
//! A difference of one is a difference: it is shown as unexplained and fails the run. What may
//! explain one is only what has been counted: a drop of a socket, a drop of the gateway with
//! its reason, a datagram that an impairment of ours dropped, or, between two sockets, the
//! kernel's backlog.
//!
//! Left out: other programs that used the gateway or this host meanwhile. Their datagrams do not
//! balance, and should not; where the gateway has opened sessions of others, the books say so.

use std::fmt::Write as _;

use super::check::{Check, Hostile};
use super::record::Record;
use crate::measure::gateway::Metrics;
use crate::measure::kernel::KernelDrops;
use crate::measure::tally::Count;
use crate::measure::watch::Restart;
use crate::report::require::Allowance;
use crate::report::summary::Summary;

impl Record {
    /// Holds all books against each other.
    pub fn close_books(&mut self, hostile: &Hostile) {
        self.summary = self.summary();
        self.checks = close(self, hostile);
    }
}

/// What should hold at the end of a run, as far as it can be seen.
pub fn close(record: &Record, hostile: &Hostile) -> Vec<Check> {
    let books = Books { record, hostile, metrics: &record.gateway_metrics };
    let mut checks = outcomes(record);
    checks.extend(pace(record));
    checks.push(books.players());
    if record.count(Count::MessagesTaken) > 0 {
        checks.push(books.messages());
    }
    if record.count(Count::Levels) > 0 {
        checks.push(books.levels());
    }
    if !record.is_one_gateway() {
        checks.extend([continuity(record), books.own()]);
    } else if record.gateway_metrics.contains_key("ringgate_datagrams_in_total") {
        checks.extend([
            continuity(record),
            books.quiet(),
            books.own(),
            books.gateways(),
            books.up(),
            books.down(),
            books.backlog(),
        ]);
        checks.push(match record.count(Count::MessagesTaken) {
            0 => books.payloads(),
            _ => books.messages_on_their_way(),
        });
    } else {
        let missing = record.summary().payloads.missing;
        checks.push(Check {
            name: "nothing is missing".into(),
            holds: missing == 0,
            text: format!(
                "{missing} payloads unaccounted for (without --admin nobody can say where)"
            ),
            ..Check::default()
        });
        if !record.restarts.is_empty() || record.count(Count::ServerChanges) > 0 {
            checks.push(continuity(record));
        }
    }
    name_others(&mut checks, books.sessions_of_others());
    checks
}

/// Says what is in the way of balance where somebody else plays at the gateway.
fn name_others(checks: &mut [Check], others: i64) {
    if others <= 0 {
        return;
    }
    let known = format!("others play here too ({others} sessions that are not ours)");
    for check in checks.iter_mut().filter(|check| check.is_book && !check.holds) {
        check.text = check.text.replace("UNEXPLAINED", &known);
    }
}

/// What players felt.
fn outcomes(record: &Record) -> Vec<Check> {
    let Summary { players, payloads, .. } = record.summary();
    let (corrupt, elsewhere) = (record.count(Count::Corrupt), record.count(Count::Misdelivered));
    let mut text = format!(
        "{} came, {} were let in, {} lost their session",
        players.came, players.connected, players.lost
    );
    let tokenless: &str = match &record.token_refusal {
        Some(why) => &format!("got no connect token in time ({why})"),
        None => "had no connect token left",
    };
    for (count, why) in [
        (players.unfinished, "were still asking"),
        (players.tokenless, tokenless),
        (players.placeless, "had no address left"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {why}");
        }
    }
    if record.allowed_outside != Allowance::default() {
        let _ = write!(text, "; {} may stay outside", record.allowed_outside);
    }
    let is_allowed = record.allowed_outside.covers(players.outside, players.came);
    vec![
        Check {
            name: "every payload is where it should be".into(),
            holds: corrupt + elsewhere == 0,
            text: format!("{corrupt} corrupt, {elsewhere} for somebody else"),
            is_book: true,
            ..Check::default()
        },
        Check {
            name: "everyone who came was let in, and stayed".into(),
            holds: players.came > 0 && is_allowed,
            text,
            is_proof: true,
            ..Check::default()
        },
        Check {
            name: "something came back".into(),
            holds: payloads.due == 0 || payloads.arrived > 0,
            text: format!("{} payloads due, {} arrived", payloads.due, payloads.arrived),
            is_proof: true,
            ..Check::default()
        },
    ]
}

/// Whether payloads left one by one, where they were to.
fn pace(record: &Record) -> Option<Check> {
    let pace = record.summary().pace;
    pace.limit_ns.is_some().then(|| Check {
        name: "the generator kept its pace".into(),
        holds: pace.is_kept,
        text: pace.sentence(),
        ..Check::default()
    })
}

/// Whether counters can be compared from start to end at all.
fn continuity(record: &Record) -> Check {
    let mut reasons: Vec<String> = record.restarts.iter().map(Restart::sentence).collect();
    let changes = record.count(Count::ServerChanges);
    if changes > 0 {
        reasons.push(format!("the game server counted from 0 again for {changes} sessions"));
    }
    if !record.closing.is_there {
        reasons.push("the gateway no longer answered at the end".into());
    }
    let holds = reasons.is_empty();
    if !record.is_one_gateway() {
        reasons.push("its books and ours are not comparable".into());
    }
    let text = if holds { "nobody was restarted".into() } else { reasons.join("; ") };
    book("one gateway and one game server from start to end", holds, text)
}

struct Books<'a> {
    record: &'a Record,
    hostile: &'a Hostile,
    metrics: &'a Metrics,
}

impl Books<'_> {
    fn c(&self, count: Count) -> i64 {
        self.record.count(count) as i64
    }

    fn m(&self, name: &str) -> i64 {
        self.metrics.get(name).copied().unwrap_or_default() as i64
    }

    fn kernel(&self) -> &KernelDrops {
        &self.record.closing.kernel
    }

    /// Opened by the gateway, and by nobody of ours. Each attacker's datagram may have been one's.
    fn sessions_of_others(&self) -> i64 {
        let ours = self.c(Count::Joins) + self.hostile.sent as i64;
        self.m("ringgate_sessions_opened_total") - ours
    }

    /// Every player who dialled is counted in exactly one place.
    fn players(&self) -> Check {
        let [joins, connected, refused, unfinished] =
            [Count::Joins, Count::Connected, Count::ConnectFailed, Count::Unfinished]
                .map(|count| self.c(count));
        let left = joins - connected - refused - unfinished;
        let elsewhere = self.c(Count::ConnectedElsewhere);
        let mut text =
            format!("{joins} = {connected} + {refused} + {unfinished}{}", unexplained(left));
        if elsewhere > 0 {
            let _ = write!(text, "; {elsewhere} were let in at another gateway of their token");
        }
        book(
            "the generator's players: dialled = let in + refused + still asking",
            left == 0 && elsewhere <= connected,
            text,
        )
    }

    fn quiet(&self) -> Check {
        let holds = self.record.closing.is_quiet;
        let text = if holds { "nothing moved any more" } else { "datagrams were still moving" };
        book("the end was quiet", holds, text.into())
    }

    /// Every datagram that was received is counted in exactly one place.
    fn own(&self) -> Check {
        let refused = self.record.refused.values().sum::<u64>() as i64;
        let (strangers, impaired) = (self.c(Count::Strangers), self.c(Count::ImpairedDown));
        // Messages and packets are not the same number: several share a packet, or need several.
        let payloads = match self.c(Count::MessagesTaken) {
            0 => self.received(),
            _ => self.c(Count::PacketsIn),
        };
        let control = self.c(Count::ControlIn);
        let received = self.c(Count::DatagramsIn);
        let left = received - payloads - control - strangers - impaired - refused;
        book(
            "the generator's books: received = payloads + control + strangers + impaired + refused",
            left == 0,
            format!(
                "{received} = {payloads} + {control} + {strangers} + {impaired} + {refused}{}",
                unexplained(left)
            ),
        )
    }

    fn gateways(&self) -> Check {
        let unbalanced = self.record.closing.unbalanced_workers;
        book(
            "the gateway's books: everything that came in is handled, forwarded or dropped by name",
            unbalanced == 0,
            format!("{unbalanced} workers whose books do not balance"),
        )
    }

    /// Sent by players and attackers, but not seen at the gateway's sockets.
    fn gap_up(&self) -> i64 {
        self.sent() - self.m("ringgate_datagrams_in_total") - self.m("ringgate_socket_drops_total")
    }

    fn sent(&self) -> i64 {
        self.c(Count::DatagramsOut) - self.c(Count::PayloadsUnsent) - self.c(Count::ControlUnsent)
            + self.hostile.sent as i64
    }

    fn up(&self) -> Check {
        let (taken, dropped) =
            (self.m("ringgate_datagrams_in_total"), self.m("ringgate_socket_drops_total"));
        let gap = self.gap_up();
        book(
            "datagrams up: sent = taken in + dropped at the gateway's sockets",
            self.is_backlogs(gap),
            format!("{} = {taken} + {dropped}{}", self.sent(), self.between(gap)),
        )
    }

    /// Sent by the gateway, but not seen at our sockets.
    fn gap_down(&self) -> i64 {
        let received = self.c(Count::DatagramsIn) + self.hostile.answers as i64;
        self.packets_out() - received - self.kernel().ours as i64
    }

    fn packets_out(&self) -> i64 {
        self.m("ringgate_packets_out_total")
            - self.m("ringgate_drops_total{send_buffer_full}")
            - self.m("ringgate_drops_total{send_refused}")
    }

    fn down(&self) -> Check {
        let received = self.c(Count::DatagramsIn) + self.hostile.answers as i64;
        let gap = self.gap_down();
        book(
            "datagrams down: sent = received + dropped at the generator's sockets",
            self.is_backlogs(gap),
            format!(
                "{} = {received} + {}{}",
                self.packets_out(),
                self.kernel().ours,
                self.between(gap)
            ),
        )
    }

    /// Lost between the gateway and game processes on a udp link; a bundle link loses nothing.
    fn link_drops(&self) -> i64 {
        let at_links = self.kernel().gateways as i64 - self.m("ringgate_socket_drops_total");
        at_links.max(0) + self.kernel().others as i64
    }

    fn backlog(&self) -> Check {
        let between = self.gap_up().max(0) + self.gap_down().max(0);
        let backlog = self.kernel().backlog as i64;
        let udp: Vec<_> = self.kernel().udp.iter().map(|(name, n)| format!("{name} {n}")).collect();
        book(
            "the kernel's books: what no socket saw was dropped before it",
            between <= backlog,
            format!(
                "{between} between sockets, {backlog} dropped by the backlog; by sockets: ours {}, the gateway's {}, others {}; {}",
                self.kernel().ours,
                self.kernel().gateways,
                self.kernel().others,
                udp.join(", "),
            ),
        )
    }

    fn received(&self) -> i64 {
        [
            Count::Echoed,
            Count::Stale,
            Count::Duplicates,
            Count::Corrupt,
            Count::Misdelivered,
            Count::PushedDown,
            Count::PushesOutlived,
        ]
        .map(|count| self.c(count))
        .iter()
        .sum()
    }

    /// Every message has one report, and what came back contradicts none of them.
    fn messages(&self) -> Check {
        let [taken, delivered, lost, given_up, wrong] = [
            Count::MessagesTaken,
            Count::MessagesDelivered,
            Count::MessagesLost,
            Count::MessagesGivenUp,
            Count::ReportsWrong,
        ]
        .map(|count| self.c(count));
        let came_back = self.c(Count::Echoed) + self.c(Count::Stale);
        let left = taken - delivered - lost - given_up;
        // What arrived without a report in time may have come back.
        let is_too_many = came_back > delivered + given_up;
        let mut text = format!(
            "{taken} = {delivered} + {lost} + {given_up}, {came_back} came back{}",
            unexplained(left)
        );
        if wrong > 0 {
            let _ = write!(text, "; {wrong} of those that were reported as lost came back");
        }
        if is_too_many {
            text.push_str("; more than have arrived");
        }
        book(
            "messages: taken = delivered + lost + given up at the end, as the far end saw it",
            left == 0 && wrong == 0 && !is_too_many,
            text,
        )
    }

    /// Everybody gets a level, and one more for each order that has arrived.
    fn levels(&self) -> Check {
        let [came, connected, delivered, given_up] =
            [Count::Levels, Count::Connected, Count::MessagesDelivered, Count::MessagesGivenUp]
                .map(|count| self.c(count));
        let left = connected + delivered - came;
        // What arrived without a report in time may have been answered, and who was still asking
        // when the plan ended may have been let in after that.
        let possible = given_up + self.c(Count::Unfinished);
        let is_answered = (-possible..=0).contains(&left);
        book(
            "levels: came = players + orders that arrived",
            is_answered,
            format!(
                "{came} = {connected} + {delivered}, {} snapshots beside them{}",
                self.c(Count::Snapshots),
                unexplained(if is_answered { 0 } else { left })
            ),
        )
    }

    /// What players know to have arrived has come to the gateway, once, and what has come to them
    /// was sent there.
    fn messages_on_their_way(&self) -> Check {
        let [delivered, given_up] = [Count::MessagesDelivered, Count::MessagesGivenUp];
        let (delivered, given_up) = (self.c(delivered), self.c(given_up));
        let up = self.m("ringgate_messages_up_total");
        let down = self.m("ringgate_messages_down_total");
        let answers = [Count::Echoed, Count::Stale, Count::Duplicates].map(|count| self.c(count));
        let came = match self.c(Count::Levels) {
            0 => answers.iter().sum(),
            levels => levels + self.c(Count::Snapshots),
        };
        let left = up - up.clamp(delivered, delivered + given_up);
        book(
            "messages at the gateway: up = delivered; down = came + overtaken or lost on their way",
            left == 0 && came <= down,
            format!("{up} = {delivered}{}; {down} = {came} + {}", unexplained(left), down - came),
        )
    }

    /// The way of the payloads, place by place. What is fewer at the next place must have been
    /// dropped between the two.
    fn payloads(&self) -> Check {
        let way = [
            self.c(Count::PayloadsSent) + self.c(Count::PlainSent) + self.hostile.payloads as i64,
            self.m("ringgate_payloads_up_total"),
            self.m("ringgate_payloads_to_links_total"),
            self.m("ringgate_payloads_from_links_total"),
            self.m("ringgate_payloads_down_total"),
            self.received() + self.c(Count::PlainIn) + self.hostile.payload_answers as i64,
        ];
        let named = self.m("ringgate_drops_total");
        let backlog = self.kernel().backlog as i64;
        // A game packet from a port that the gateway does not know is answered by a request to
        // restart, and goes no further.
        let restarts = self.m("ringgate_packets_out_total{unreal_restart_request}");
        let at_players = self.kernel().ours as i64
            + self.c(Count::ImpairedDown)
            + self.c(Count::Strangers)
            + self.record.refused.values().sum::<u64>() as i64;
        let reasons = [
            self.m("ringgate_socket_drops_total") + backlog + named + restarts,
            named,
            self.link_drops() + backlog,
            named,
            at_players + backlog + named,
        ];
        let is_pushed = self.c(Count::PushedDown) + self.c(Count::PlainIn) > 0;
        let mut text = way[0].to_string();
        let mut unexplained = String::new();
        for (step, (pair, reason)) in way.windows(2).zip(reasons).enumerate() {
            let lost = pair[0] - pair[1];
            let _ = write!(text, " → {}", pair[1]);
            // A game process that pushes sends more or less than it hears.
            if (is_pushed && step == GAME_STEP) || (0..=reason).contains(&lost) {
                continue;
            }
            // What a game server had taken and not answered is gone with it.
            if step == GAME_STEP && lost > 0 && !self.record.restarts.is_empty() {
                let _ = write!(text, " ({lost} gone with a game server that ended)");
                continue;
            }
            let left = if lost < 0 { lost } else { lost - reason };
            let _ = write!(unexplained, "; UNEXPLAINED: {left} {}", STEPS[step]);
        }
        text.push_str(&unexplained);
        book(
            "payloads: sent, opened, to game processes, from them, sealed, received",
            unexplained.is_empty(),
            text,
        )
    }

    fn is_backlogs(&self, gap: i64) -> bool {
        (0..=self.kernel().backlog as i64).contains(&gap)
    }

    fn between(&self, gap: i64) -> String {
        match gap {
            0 => String::new(),
            gap if self.is_backlogs(gap) => format!(" + {gap} dropped by the kernel's backlog"),
            gap => unexplained(gap),
        }
    }
}

fn book(name: &str, holds: bool, text: String) -> Check {
    Check { name: name.into(), holds, text, is_book: true, is_proof: false }
}

fn unexplained(count: i64) -> String {
    if count == 0 { String::new() } else { format!("; UNEXPLAINED: {count}") }
}

/// What lies between two places of a payload's way. What a game process drops itself, because its
/// queue toward the gateway is full, nobody else can count.
const STEPS: [&str; 5] = [
    "on the way up",
    "between players and links in the gateway",
    "in the game process or on its link",
    "between links and players in the gateway",
    "on the way down",
];

/// Where payloads pass through the game process.
const GAME_STEP: usize = 2;

#[cfg(test)]
mod tests;

//! Tells the log who was turned away at the link sockets, a line for each reason and second at
//! most, however often they try.

use super::view::Snapshot;
use ringgate_gate::LinkRefusal;

/// What the log knows.
#[derive(Default)]
pub(super) struct Refusals {
    told: [u64; LinkRefusal::COUNT],
    next_ns: u64,
}

impl Refusals {
    /// Whether it is time to look again.
    pub(super) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// Writes what is new.
    pub(super) fn tell(&mut self, snapshot: &Snapshot<'_>) {
        self.next_ns = snapshot.now_ns + EVERY_NS;
        for line in self.news(snapshot) {
            tracing::warn!("{line}");
        }
    }

    fn news(&mut self, snapshot: &Snapshot<'_>) -> Vec<String> {
        let totals = snapshot.totals().link_refusals;
        let mut lines = Vec::new();
        for why in LinkRefusal::ALL {
            let at = why as usize;
            let fresh = totals[at].saturating_sub(self.told[at]);
            self.told[at] = totals[at];
            let last = snapshot.reports.iter().rev().find_map(|report| report.last_refused[at]);
            if fresh > 0 {
                let (reason, links) = (why.name(), if fresh == 1 { "link" } else { "links" });
                let whose = last.map_or(String::new(), |last| {
                    format!(", the last of user {} and group {}", last.uid, last.gid)
                });
                lines.push(format!("closed {fresh} {links} of game processes: {reason}{whose}"));
            }
        }
        lines
    }
}

const EVERY_NS: u64 = 1_000_000_000;

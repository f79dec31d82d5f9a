//! Datagrams that found the receive buffer of their socket full, as the kernel counts them for a
//! whole network namespace.
//!
//! A socket's own count of drops (`SO_MEMINFO`, `SO_RXQ_OVFL`) does not tell a full buffer from a
//! refusal of the socket's filter, and a classic filter cannot count. The namespace's
//! `RcvbufErrors` and `MemErrors` count the first only, for all its sockets (`/proc/net/snmp` and
//! `snmp6`; `InErrors` has both). So what a gateway's sockets have dropped since the last look is
//! split: as much as has overflown anywhere meanwhile is taken for overflow, the rest was refused.
//! That is exact unless another program overflows at the same time.

use std::fs::File;
use std::io::{Read, Seek};

/// The kernel's files, kept open because a confined daemon cannot open them later.
#[derive(Debug)]
pub struct Overflows(Vec<File>);

impl Overflows {
    /// Opens what there is.
    pub fn open() -> Self {
        let paths = ["/proc/self/net/snmp", "/proc/self/net/snmp6"];
        Self(paths.into_iter().filter_map(|path| File::open(path).ok()).collect())
    }

    /// The count since the namespace began; `None` where the kernel does not tell.
    pub fn count(&mut self) -> Option<u64> {
        let mut sum = None;
        for file in &mut self.0 {
            let mut text = String::new();
            file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
            sum = Some(sum.unwrap_or(0) + overflows_in(&text)?);
        }
        sum
    }
}

/// Both files' formats: a line of names and a line of numbers, or a name and a number on each line.
fn overflows_in(text: &str) -> Option<u64> {
    let by_line = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    if let Some(full) = by_line("Udp6RcvbufErrors") {
        return Some(full + by_line("Udp6MemErrors").unwrap_or(0));
    }
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let column = |name: &str| {
        let at = names.split_whitespace().position(|known| known == name)?;
        numbers.split_whitespace().nth(at)?.parse::<u64>().ok()
    };
    Some(column("RcvbufErrors")? + column("MemErrors").unwrap_or(0))
}

/// Splits what sockets have dropped into what found them full and what their filters refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    drops: u64,
    /// The namespace's count.
    counted: u64,
    /// Overflows whose drops may not have been reported yet.
    open: u64,
    overflows: u64,
}

impl Split {
    /// Begins where the namespace has overflown so often already.
    pub fn starting_at(overflows: u64) -> Self {
        Self { counted: overflows, ..Self::default() }
    }

    /// Goes on where another process stopped.
    pub const fn of([drops, counted, open, overflows]: [u64; 4]) -> Self {
        Self { drops, counted, open, overflows }
    }

    /// What another process needs to go on.
    pub const fn numbers(&self) -> [u64; 4] {
        let Self { drops, counted, open, overflows } = *self;
        [drops, counted, open, overflows]
    }

    /// Takes in both counts, the sockets' and the namespace's.
    pub fn update(&mut self, drops: u64, overflows: u64) {
        let dropped = drops.saturating_sub(self.drops);
        let overflown = overflows.saturating_sub(self.counted);
        let full = dropped.min(self.open + overflown);
        // What is older than the last look was not ours.
        self.open = (self.open + overflown - full).min(overflown);
        self.overflows += full;
        self.drops = self.drops.max(drops);
        self.counted = self.counted.max(overflows);
    }

    /// Drops of sockets that were full.
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Drops of filters.
    pub const fn refusals(&self) -> u64 {
        self.drops - self.overflows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_read() {
        let v4 = "Tcp: A B\nTcp: 1 2\n\
                  Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n\
                  Udp: 75999 11193 3072 87545 1060 0 0 0 7\nUdpLite: A\nUdpLite: 0\n";
        let v6 = "Udp6InDatagrams    3\nUdp6RcvbufErrors   5\nUdp6MemErrors      2\nUdpLite6X 9\n";
        assert_eq!((overflows_in(v4), overflows_in(v6)), (Some(1067), Some(7)));
        assert_eq!(overflows_in("nothing of the kind"), None);
    }

    #[test]
    fn the_kernel_counts_what_finds_a_socket_full() {
        let mut overflows = Overflows::open();
        let before = overflows.count().expect("Linux tells");
        let deaf = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = deaf.local_addr().expect("bound");
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        for _ in 0..20_000 {
            sender.send_to(&[7; 1200], address).expect("loopback takes it");
        }
        assert!(overflows.count().expect("as before") > before);
    }

    #[test]
    fn refusals_are_what_did_not_overflow() {
        let mut split = Split::starting_at(100);
        split.update(500, 100);
        assert_eq!((split.overflows(), split.refusals()), (0, 500));
        split.update(800, 400);
        assert_eq!((split.overflows(), split.refusals()), (300, 500));
        split.update(900, 430);
        assert_eq!((split.overflows(), split.refusals()), (330, 570), "both at once");
    }

    #[test]
    fn drops_that_are_reported_late_are_still_overflows_and_old_overflows_are_others() {
        let mut split = Split::starting_at(0);
        split.update(0, 50);
        split.update(50, 50);
        assert_eq!((split.overflows(), split.refusals()), (50, 0));
        split.update(50, 1_000);
        split.update(50, 1_000);
        split.update(250, 1_000);
        assert_eq!((split.overflows(), split.refusals()), (50, 200));
    }
}

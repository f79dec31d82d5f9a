//! What it costs each datagram that 50,000 prefixes are denied, beside other ways of finding the
//! longest one.
//!
//! Half of the datagrams come from anywhere, as in a flood; the others from within the prefixes.
//! All contenders judge all of them alike, and the bench fails if they do not. *One by one* makes
//! each look wait for the one before, because in a turn other work stands between two of them.

#[path = "support.rs"]
mod support;

use std::collections::{BTreeMap, HashSet};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringgate_batch::Endpoint;
use ringgate_gate::{Denied, Prefix};
use support::{Bench, Random};

fn main() {
    let mut bench = Bench::from_args("denied");
    let (prefixes, datagrams) = (bench.size(50_000, 100), bench.size(100_000, 200));
    without_rules(&mut bench, datagrams);
    for (title, family) in
        [("50,000 IPv4 prefixes", Family::V4), ("50,000 IPv6 prefixes", Family::V6)]
    {
        if bench.wants(title) {
            compare(&mut bench, title, &Denials::new(family, prefixes, datagrams));
        }
    }
    bench.finish();
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

/// Prefixes, and who comes.
struct Denials {
    prefixes: Vec<Prefix>,
    sources: Vec<Endpoint>,
}

impl Denials {
    fn new(family: Family, prefixes: usize, datagrams: usize) -> Self {
        let mut random = Random::new();
        let mut ip = || match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(random.below(1 << 32) as u32)),
            Family::V6 => {
                let [high, low] = [random.below(1 << 61), random.below(u64::MAX)];
                IpAddr::V6(Ipv6Addr::from_bits(u128::from(1 << 61 | high) << 64 | u128::from(low)))
            }
        };
        let ips: Vec<IpAddr> = (0..prefixes).map(|_| ip()).collect();
        let strangers: Vec<IpAddr> = (0..datagrams / 2).map(|_| ip()).collect();
        let lens: &[u8] = match family {
            Family::V4 => &[16, 20, 24, 24, 24, 28, 32, 32, 32, 32],
            Family::V6 => &[32, 48, 48, 56, 64, 64, 64, 128, 128, 128],
        };
        let prefix = |(at, ip): (usize, &IpAddr)| Prefix::new(*ip, lens[at % lens.len()]);
        let listed = ips.iter().enumerate().filter_map(prefix).collect();
        let known = (0..datagrams / 2).map(|_| ips[random.below(ips.len() as u64) as usize]);
        let both = strangers.iter().copied().zip(known).flat_map(|(a, b)| [a, b]);
        let sources = both.map(|ip| SocketAddr::new(ip, 5000).into()).collect();
        Self { prefixes: listed, sources }
    }

    fn denied(&self) -> Denied {
        Denied::new(self.prefixes.iter().map(|prefix| (*prefix, true)))
    }
}

fn without_rules(bench: &mut Bench, datagrams: usize) {
    let all = Denials::new(Family::V4, 1, datagrams);
    let denied = Denied::default();
    let mut group = bench.group("without a rule", datagrams);
    group.add("one look at two lengths", || count(&all.sources, |source| denied.holds(source)));
    group.run();
}

fn compare(bench: &mut Bench, title: &str, all: &Denials) {
    let denied = all.denied();
    let by_length = ByLength::new(&all.prefixes);
    let mut by_end: BTreeMap<u128, u128> = BTreeMap::new();
    for (first, last) in all.prefixes.iter().map(Prefix::range) {
        let end = by_end.entry(first).or_insert(last);
        *end = (*end).max(last);
    }
    let by_end = joined(&by_end);
    let mut group = bench.group(title, all.sources.len());
    group
        .add("stretches, index by half", || count(&all.sources, |source| denied.holds(source)))
        .add("stretches, one by one", || one_by_one(&all.sources, |source| denied.holds(source)))
        .add("stretches in a BTreeMap", || {
            count(&all.sources, |source| {
                let at = bits(source);
                by_end.range(..=at).next_back().is_some_and(|(_, last)| at <= *last)
            })
        })
        .add("a hash set for each length", || {
            count(&all.sources, |source| by_length.holds(bits(source)))
        });
    group.run_agreeing();
}

/// Ranges that do not overlap.
fn joined(ranges: &BTreeMap<u128, u128>) -> BTreeMap<u128, u128> {
    let mut joined: BTreeMap<u128, u128> = BTreeMap::new();
    for (first, last) in ranges {
        match joined.last_entry() {
            Some(mut before) if *first <= *before.get() => {
                let end = (*before.get()).max(*last);
                before.insert(end);
            }
            _ => {
                joined.insert(*first, *last);
            }
        }
    }
    joined
}

fn bits(source: &Endpoint) -> u128 {
    u128::from_be_bytes(*source.ip_bytes())
}

fn count(sources: &[Endpoint], is_denied: impl Fn(&Endpoint) -> bool) -> u64 {
    sources.iter().map(|source| u64::from(is_denied(source))).sum()
}

/// Each look waits for the answer of the one before.
fn one_by_one(sources: &[Endpoint], is_denied: impl Fn(&Endpoint) -> bool) -> u64 {
    let mut sum = 0;
    let mut waits = 0;
    for at in 0..sources.len() {
        let held = u64::from(is_denied(&sources[at + waits]));
        sum += held;
        // Always 0, which the CPU finds out only then.
        waits = black_box(held as usize) >> 1;
    }
    sum
}

/// What routers did before they had tries: one table for each length that is in use.
struct ByLength(Vec<(u128, HashSet<u128>)>);

impl ByLength {
    fn new(prefixes: &[Prefix]) -> Self {
        let mut tables: BTreeMap<u128, HashSet<u128>> = BTreeMap::new();
        for prefix in prefixes {
            let (first, last) = prefix.range();
            tables.entry(!(first ^ last)).or_default().insert(first);
        }
        Self(tables.into_iter().rev().collect())
    }

    fn holds(&self, ip: u128) -> bool {
        self.0.iter().any(|(mask, firsts)| firsts.contains(&(ip & mask)))
    }
}

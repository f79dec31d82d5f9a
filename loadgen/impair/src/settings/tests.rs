//! Each setting against what it promises, over many packets of one seed.

use super::*;

const PACKETS: usize = 100_000;

fn settings(text: &str) -> Impairments {
    Impairments::parse(text).expect(text)
}

/// What happens to packets that are a second apart, so that none waits for another.
fn outgoing(text: &str, bytes: usize) -> Vec<Fate> {
    let (settings, mut path) = (settings(text), Path::new(1, 7));
    (0..PACKETS).map(|n| settings.outgoing(&mut path, n as u64 * SECOND_NS, bytes)).collect()
}

fn incoming(text: &str) -> Vec<Fate> {
    let (settings, mut path) = (settings(text), Path::new(1, 7));
    (0..PACKETS).map(|n| settings.incoming(&mut path, n as u64 * SECOND_NS)).collect()
}

const SECOND_NS: u64 = 1_000_000_000;

fn share(fates: &[Fate], fate: Fate) -> f64 {
    fates.iter().filter(|f| **f == fate).count() as f64 * 100.0 / fates.len() as f64
}

/// Within four standard deviations of a share in percent.
fn assert_near(found: f64, expected: f64) {
    let deviation = (expected * (100.0 - expected) / PACKETS as f64).sqrt();
    assert!((found - expected).abs() <= 4.0 * deviation, "{found} % instead of {expected} %");
}

fn delays_ms(fates: &[Fate]) -> Vec<f64> {
    let delay = |fate: &Fate| match fate {
        Fate::Delay(ns) => Some(*ns as f64 / 1e6),
        _ => None,
    };
    fates.iter().filter_map(delay).collect()
}

/// Every value inside, the mean in the middle, both ends reached.
fn assert_even(delays: &[f64], low: f64, high: f64) {
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    let (least, most) =
        delays.iter().fold((f64::MAX, f64::MIN), |(l, m), d| (l.min(*d), m.max(*d)));
    let span = high - low;
    assert!(least >= low && most <= high, "{least} to {most}");
    assert!((mean - f64::midpoint(low, high)).abs() <= span * 0.01 + 1e-6, "mean {mean}");
    assert!(least - low <= span * 0.01 && high - most <= span * 0.01, "{least} to {most}");
}

#[test]
fn a_perfect_network_does_nothing() {
    assert!(!Impairments::default().is_active());
    assert!(!settings("Seed=5 NatSwitchSeconds=3").is_active());
    assert!(outgoing("", 100).iter().all(|fate| *fate == Fate::Pass));
    assert!(incoming("").iter().all(|fate| *fate == Fate::Pass));
}

#[test]
fn loss_takes_its_share_and_respects_its_sizes() {
    assert_near(share(&outgoing("PktLoss=2.5", 100), Fate::Lose), 2.5);
    let window = "PktLoss=50 PktLossMinSize=200 PktLossMaxSize=300";
    assert_near(share(&outgoing(window, 200), Fate::Lose), 50.0);
    assert_near(share(&outgoing(window, 300), Fate::Lose), 50.0);
    assert_near(share(&outgoing(window, 199), Fate::Lose), 0.0);
    assert_near(share(&outgoing(window, 301), Fate::Lose), 0.0);
    assert_near(share(&incoming("PktIncomingLoss=7"), Fate::Lose), 7.0);
    assert_near(share(&incoming("PktLoss=50"), Fate::Lose), 0.0);
    assert_near(share(&outgoing("PktIncomingLoss=50", 100), Fate::Lose), 0.0);
}

#[test]
fn lag_is_fixed_or_varies_evenly() {
    assert_even(&delays_ms(&outgoing("PktLag=50", 100)), 50.0, 50.0);
    assert_even(&delays_ms(&outgoing("PktLag=50 PktLagVariance=20", 100)), 30.0, 70.0);
    assert_even(&delays_ms(&outgoing("PktLagMin=10 PktLagMax=30", 100)), 10.0, 30.0);
    assert_even(&delays_ms(&outgoing("PktLagMin=10 PktJitter=5", 100)), 10.0, 15.0);
    assert_even(&delays_ms(&incoming("PktIncomingLagMin=5 PktIncomingLagMax=9")), 5.0, 9.0);
    assert_even(&delays_ms(&incoming("PktIncomingLagMin=5")), 5.0, 5.0);
    assert_eq!(
        settings("PktLag=50 PktLagVariance=20 PktIncomingLagMax=5").lag_ns_max(),
        75_000_000
    );
}

/// As in Unreal: evenly around the lag, and what would have left before it was sent leaves at once.
#[test]
fn a_variance_alone_or_above_the_lag_leaves_packets_in_time() {
    let alone = outgoing("PktLagVariance=20", 100);
    assert_near(share(&alone, Fate::Pass), 50.0);
    assert_even(&delays_ms(&alone), 0.0, 20.0);
    let above = outgoing("PktLag=10 PktLagVariance=30", 100);
    assert_near(share(&above, Fate::Pass), 100.0 / 3.0);
    assert_even(&delays_ms(&above), 0.0, 40.0);
    assert!(settings("PktLagVariance=20").is_active());
    assert_eq!(settings("PktLagVariance=20").lag_ns_max(), 20_000_000);
}

#[test]
fn lag_keeps_the_order_unless_it_is_told_otherwise() {
    let arrivals = |text: &str| {
        let (settings, mut path) = (settings(text), Path::new(1, 7));
        let arrival = |fate, now_ns| match fate {
            Fate::Delay(later_ns) => now_ns + later_ns,
            _ => now_ns,
        };
        (0..1000)
            .map(|n| n * SECOND_NS / 60)
            .map(|now_ns| {
                let up = settings.outgoing(&mut path, now_ns, 100);
                let down = settings.incoming(&mut path, now_ns);
                [arrival(up, now_ns), arrival(down, now_ns)]
            })
            .collect::<Vec<_>>()
    };
    let is_sorted = |text: &str| {
        let arrivals = arrivals(text);
        [0, 1].map(|way| arrivals.iter().map(|both| both[way]).is_sorted())
    };
    let both = "PktIncomingLagMin=5 PktIncomingLagMax=90";
    for text in ["PktLag=100 PktLagVariance=50", "PktLagMin=10 PktLagMax=90", "PktLagVariance=50"] {
        assert_eq!(is_sorted(&format!("{text} {both}")), [true; 2], "{text}");
        assert_eq!(is_sorted(&format!("{text} {both} LagReorders=1")), [false; 2], "{text}");
    }
    assert_eq!(is_sorted("PktLagMin=5 PktJitter=60"), [false, true]);
}

#[test]
fn lag_takes_precedence_over_its_range_and_excludes_duplicates() {
    let both = outgoing("PktLag=50 PktLagMin=1 PktLagMax=2 PktDup=100", 100);
    assert_even(&delays_ms(&both), 50.0, 50.0);
    assert_near(share(&both, Fate::Twice), 0.0);
    assert_near(share(&outgoing("PktDup=20", 100), Fate::Twice), 20.0);
}

#[test]
fn order_takes_precedence_over_lag_and_duplicates_but_not_over_loss() {
    let fates = outgoing("PktOrder=1 PktLag=50 PktDup=100 PktLoss=10", 100);
    assert_near(share(&fates, Fate::Lose), 10.0);
    assert_near(share(&fates, Fate::Hold), 45.0);
    assert_near(share(&fates, Fate::Pass), 45.0);
}

#[test]
fn bursts_take_their_mean_length_and_begin_at_their_rate() {
    let fates = outgoing("BurstLoss=1 BurstLength=10", 100);
    let lost = share(&fates, Fate::Lose);
    // Bursts begin after 100 other packets on average and take 10: 10 of 110.
    assert!((lost - 9.09).abs() < 0.6, "{lost}");
    let runs: Vec<_> = fates.chunk_by(|a, b| a == b).filter(|r| r[0] == Fate::Lose).collect();
    let mean = runs.iter().map(|run| run.len()).sum::<usize>() as f64 / runs.len() as f64;
    assert!((9.0..11.5).contains(&mean), "{mean}");
    assert!((8.0..10.5).contains(&share(&incoming("BurstLoss=1 BurstLength=10"), Fate::Lose)));
}

#[test]
fn the_same_seed_repeats_and_players_differ() {
    let settings = settings("PktLoss=50");
    let fates = |seed, session| {
        let mut path = Path::new(seed, session);
        (0..64).map(|_| settings.outgoing(&mut path, 0, 1)).collect::<Vec<_>>()
    };
    assert_eq!(fates(1, 1), fates(1, 1));
    assert_ne!(fates(1, 1), fates(1, 2));
    assert_ne!(fates(1, 1), fates(2, 1));
}

#[test]
fn settings_are_read_as_they_are_typed_and_mistakes_are_named() {
    let typed = settings("PktLag=50, PktLagVariance=20 PktOrder=1 PktLossMaxSize=300");
    assert_eq!((typed.pkt_order, typed.pkt_loss_max_size), (1, 300));
    for (text, expected) in [
        ("PktLag", "form"),
        ("PktLag=x", "number"),
        ("PktLagg=1", "PktLagg"),
        ("PktLoss=101", "PktLoss"),
        ("PktLag=-1", "PktLag"),
        ("PktOrder=2", "PktOrder"),
        ("LagReorders=2", "LagReorders"),
        ("PktFrameDelay=1.5", "PktFrameDelay"),
        ("PktFrameDelay=9999", "3600"),
        ("PktBufferBloatInMS=-1", "PktBufferBloatInMS"),
    ] {
        let why = Impairments::parse(text).expect_err(text);
        assert!(why.contains(expected), "{text}: {why}");
    }
}

#[test]
fn names_may_be_written_in_any_case() {
    let (typed, shown) =
        (settings("pktlag=50 PKTLOSS=3 seed=7"), settings("PktLag=50 PktLoss=3 Seed=7"));
    assert_eq!(typed, shown);
    assert_eq!((typed.pkt_lag, typed.pkt_loss, typed.seed), (50.0, 3.0, 7));
    for name in Impairments::NAMES {
        let typed = settings(&format!("{}=1", name.to_ascii_lowercase()));
        assert_ne!(typed, Impairments::default(), "{name}");
    }
}

const FRAME_MS: f64 = 1000.0 / 60.0;

/// When packets arrive that leave every millisecond, both ways.
fn arrivals_ms(text: &str) -> [Vec<f64>; 2] {
    let (settings, mut path) = (settings(text), Path::new(1, 7));
    let arrival = |now_ns: u64, fate: Fate| match fate {
        Fate::Pass => now_ns as f64 / 1e6,
        Fate::Delay(later_ns) => (now_ns + later_ns) as f64 / 1e6,
        fate => panic!("{fate:?}"),
    };
    let moments = || (1000..1200_u64).map(|ms| ms * 1_000_000);
    let up = moments().map(|ns| arrival(ns, settings.outgoing(&mut path, ns, 100))).collect();
    let down = moments().map(|ns| arrival(ns, settings.incoming(&mut path, ns))).collect();
    [up, down]
}

#[test]
fn a_frame_delay_lets_packets_leave_with_frames() {
    for (text, way) in [("PktFrameDelay=2", 0), ("PktIncomingFrameDelay=2", 1)] {
        let both = arrivals_ms(text);
        let times = &both[way];
        for (ms, at) in (1000..).zip(times) {
            let frames = at / FRAME_MS;
            assert!((frames - frames.round()).abs() < 1e-3, "{at} ms is between two frames");
            let waited = at - f64::from(ms);
            assert!(waited > FRAME_MS - 0.01 && waited < 2.0 * FRAME_MS + 0.01, "{waited} ms");
        }
        assert!((both[1 - way][5] - 1005.0).abs() < 1e-9, "the other way is as it was");
    }
}

#[test]
fn a_bloated_buffer_keeps_everything_and_lets_it_go_at_once() {
    for (text, way) in [("PktBufferBloatInMS=50", 0), ("pktincomingbufferbloatinms=50", 1)] {
        let times = &arrivals_ms(text)[way];
        let bursts: Vec<_> = times
            .chunk_by(|a, b| a.total_cmp(b).is_eq())
            .map(|burst| (burst[0], burst.len()))
            .collect();
        assert_eq!(bursts, [(1050.0, 50), (1100.0, 50), (1150.0, 50), (1200.0, 50)]);
    }
    let both = arrivals_ms("PktLag=10 PktBufferBloatInMS=50");
    assert!((both[0][39] - 1050.0).abs() < 1e-9 && (both[0][41] - 1100.0).abs() < 1e-9);
    assert_eq!(settings("PktLag=10 PktBufferBloatInMS=50").lag_ns_max(), 60_000_000);
    assert_eq!(settings("PktFrameDelay=60").lag_ns_max() / 1_000_000, 999);
}

#[test]
fn another_network_knows_nothing_of_the_bursts_and_the_lag_of_the_one_before() {
    let mut path = Path::new(1, 7);
    let burst = settings("BurstLoss=100 BurstLength=1000");
    let lag = settings("PktLag=5000 PktIncomingLagMin=5000");
    let late = Fate::Delay(5 * SECOND_NS);
    for (network, fate) in [(burst, Fate::Lose), (lag, late), (settings(""), Fate::Pass)] {
        path.start_anew();
        let fates = [network.outgoing(&mut path, 0, 100), network.incoming(&mut path, 0)];
        assert_eq!(fates, [fate; 2], "{network:?}");
    }
}

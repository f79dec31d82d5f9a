//! `ringgate size`: what it measures here, and what it makes of a figure that it is given.

use serde_json::Value;

use crate::command::{ringgate, run};

#[test]
fn a_fleet_is_sized_by_what_this_host_measures() {
    let words = ["size", "--players", "200000", "--hz", "30", "--cores", "8", "--json"];
    let page: Value = serde_json::from_str(&run(ringgate(words)).succeeded()).expect("JSON");
    let of = |name: &str| page[name].as_u64().expect(name);
    assert_eq!(of("schema"), 1);
    let rate = 200_000 * 30;
    assert!(of("round_trips_per_core") > 0 && of("cores") >= rate / of("round_trips_per_core"));
    assert!((of("hosts") - 1) * 8 >= of("cores") && of("hosts") >= 2, "{page}");
    assert_eq!(of("bytes_per_s"), rate * 149);
}

#[test]
fn a_figure_that_is_known_is_not_measured() {
    let words = ["size", "--players", "200000", "--cost", "1500ns", "--cores", "8"];
    let said = run(ringgate(words)).succeeded();
    for line in [
        "200,000 players, 30 payloads of 100 bytes a second each way: 6,000,000 round trips a second",
        "a core carries 400,000 of them at 60 %, 1.50 µs each (as you say)",
        "cores      18, a worker on each",
        "hosts      4 of 8 cores each, one of them spare",
    ] {
        assert!(said.contains(line), "{said}");
    }
    // The page shows it.
    let page = include_str!("../../docs/howto/size.md");
    assert!(said.lines().all(|line| page.contains(line)), "{said}");
    let refused = run(ringgate(["size", "--players", "1", "--cost", "5"])).stderr;
    assert!(refused.contains("expected a time such as 1500ns or 5us"), "{refused}");
}

//! The books: what balances, what is explained, and what must be told.

use super::*;

/// A run of 100 payloads that all came back, with five datagrams of the handshake and goodbye each way.
fn balanced() -> Record {
    let mut record = Record::default();
    for (name, value) in [
        ("joins", 1),
        ("connected", 1),
        ("payloads_due", 100),
        ("payloads_sent", 100),
        ("datagrams_out", 105),
        ("echoed", 100),
        ("control_in", 5),
        ("datagrams_in", 105),
    ] {
        record.counters.insert(name.into(), value);
    }
    for (name, value) in [
        ("ringgate_datagrams_in_total", 105.0),
        ("ringgate_packets_out_total", 105.0),
        ("ringgate_payloads_up_total", 100.0),
        ("ringgate_payloads_to_links_total", 100.0),
        ("ringgate_payloads_from_links_total", 100.0),
        ("ringgate_payloads_down_total", 100.0),
    ] {
        record.gateway_metrics.insert(name.into(), value);
    }
    record.closing.is_quiet = true;
    record
}

fn failing(record: &Record) -> Vec<Check> {
    let mut checks = close(record, &Hostile::default());
    checks.retain(|check| !check.holds);
    checks
}

fn lessen(record: &mut Record, names: &[&str], by: u64) {
    for name in names {
        if let Some(value) = record.gateway_metrics.get_mut(*name) {
            *value -= by as f64;
        } else {
            *record.counters.get_mut(*name).expect("a counter") -= by;
        }
    }
}

#[test]
fn books_that_balance_hold() {
    assert_eq!(failing(&balanced()), []);
}

#[test]
fn one_datagram_that_nobody_has_counted_fails_the_books() {
    for name in [
        "datagrams_in",
        "datagrams_out",
        "control_in",
        "echoed",
        "payloads_sent",
        "ringgate_datagrams_in_total",
        "ringgate_packets_out_total",
        "ringgate_payloads_up_total",
        "ringgate_payloads_to_links_total",
        "ringgate_payloads_from_links_total",
        "ringgate_payloads_down_total",
    ] {
        let mut record = balanced();
        lessen(&mut record, &[name], 1);
        let failing = failing(&record);
        assert!(
            !failing.is_empty() && failing.iter().all(|check| check.is_book),
            "{name}: {failing:?}"
        );
        assert!(failing.iter().any(|check| check.text.contains("UNEXPLAINED")), "{failing:?}");
    }
}

#[test]
fn a_drop_that_somebody_has_counted_explains_what_is_missing() {
    let after_gateway = [
        "ringgate_payloads_to_links_total",
        "ringgate_payloads_from_links_total",
        "ringgate_payloads_down_total",
        "ringgate_packets_out_total",
        "datagrams_in",
        "echoed",
    ];
    let mut record = balanced();
    lessen(&mut record, &after_gateway, 3);
    lessen(&mut record, &["ringgate_payloads_up_total", "ringgate_datagrams_in_total"], 3);
    assert!(!failing(&record).is_empty());
    record.gateway_metrics.insert("ringgate_socket_drops_total".into(), 3.0);
    assert_eq!(failing(&record), []);

    let mut record = balanced();
    lessen(&mut record, &after_gateway, 2);
    assert!(!failing(&record).is_empty());
    record.gateway_metrics.insert("ringgate_drops_total".into(), 2.0);
    record.gateway_metrics.insert("ringgate_drops_total{link_full}".into(), 2.0);
    assert_eq!(failing(&record), []);

    let mut record = balanced();
    lessen(&mut record, &["datagrams_in", "echoed"], 4);
    record.closing.kernel.ours = 3;
    assert!(!failing(&record).is_empty(), "three explain no four");
    record.closing.kernel.backlog = 1;
    assert_eq!(failing(&record), []);
}

#[test]
fn what_attackers_sent_and_got_is_in_the_books() {
    let mut record = balanced();
    for (name, more) in [("ringgate_datagrams_in_total", 50.0), ("ringgate_packets_out_total", 2.0)]
    {
        *record.gateway_metrics.get_mut(name).expect("a metric") += more;
    }
    assert!(!failing(&record).is_empty());
    let hostile = Hostile { sent: 50, answers: 2, ..Hostile::default() };
    assert!(close(&record, &hostile).iter().all(|check| check.holds));
}

#[test]
fn a_game_process_that_speaks_of_its_own_accord_balances_by_direction() {
    let mut record = balanced();
    lessen(&mut record, &["echoed"], 100);
    for (name, value) in [("pushed_down", 250), ("datagrams_in", 255)] {
        record.counters.insert(name.into(), value);
    }
    for name in ["ringgate_payloads_from_links_total", "ringgate_payloads_down_total"] {
        record.gateway_metrics.insert(name.into(), 250.0);
    }
    record.gateway_metrics.insert("ringgate_packets_out_total".into(), 255.0);
    assert_eq!(failing(&record), []);
    lessen(&mut record, &["ringgate_payloads_to_links_total"], 1);
    assert_eq!(failing(&record).len(), 1);
}

#[test]
fn an_end_that_is_not_quiet_closes_no_books() {
    let mut record = balanced();
    record.closing.is_quiet = false;
    record.closing.unbalanced_workers = 1;
    assert_eq!(failing(&record).len(), 2);
}

#[test]
fn without_the_gateway_s_side_there_are_outcomes_and_no_books() {
    let mut record = balanced();
    record.gateway_metrics.clear();
    lessen(&mut record, &["echoed"], 1);
    record.counters.insert("missing".into(), 1);
    let failing = failing(&record);
    assert!(failing.len() == 1 && !failing[0].is_book, "{failing:?}");
}

//! The books: what balances, what is explained, and what must be told.

use super::*;

/// A run of 100 payloads that all came back, with five datagrams of the handshake and goodbye each
/// way.
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
    record.closing.is_there = true;
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
fn where_others_play_at_the_gateway_the_books_say_so() {
    let mut record = balanced();
    record.gateway_metrics.insert("ringgate_datagrams_in_total".into(), 205.0);
    let opened = |record: &mut Record, count| {
        record.gateway_metrics.insert("ringgate_sessions_opened_total".into(), count);
        failing(record).iter().map(|check| check.text.clone()).collect::<String>()
    };
    assert!(opened(&mut record, 1.0).contains("UNEXPLAINED"), "that one is ours");
    let text = opened(&mut record, 3.0);
    let said = "others play here too (2 sessions that are not ours): -100";
    assert!(text.contains(said) && !text.contains("UNEXPLAINED"), "{text}");
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
    let pushes = [("pushes_due", 250), ("pushed_down", 250), ("heard", 100), ("datagrams_in", 255)];
    for (name, value) in pushes {
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

fn restarted(who: &str) -> Record {
    let mut record = balanced();
    record.restarts.push(Restart { who: who.into(), noticed_s: 3.0, how: "a test".into() });
    record
}

#[test]
fn books_of_a_gateway_that_was_restarted_are_not_compared_and_that_is_said() {
    let mut record = restarted(crate::measure::watch::THE_GATEWAY);
    lessen(&mut record, &["ringgate_payloads_up_total", "ringgate_datagrams_in_total"], 70);
    let failing = failing(&record);
    assert_eq!(failing.len(), 1, "{failing:?}");
    assert!(failing[0].is_book && failing[0].text.contains("not comparable"), "{failing:?}");
    assert!(failing[0].text.contains("the gateway was restarted, noticed after 3.0 s"));
    let checks = close(&record, &Hostile::default());
    assert!(!checks.iter().any(|check| check.text.contains("UNEXPLAINED")), "{checks:?}");
    // The generator's own books have nothing to do with it.
    lessen(&mut record, &["control_in"], 1);
    assert_eq!(self::failing(&record).len(), 2);
}

#[test]
fn what_a_game_server_took_along_is_explained_and_nothing_else_is() {
    let mut record = restarted("game server arena");
    let behind = ["ringgate_payloads_from_links_total", "ringgate_payloads_down_total"];
    lessen(&mut record, &behind, 4);
    lessen(&mut record, &["ringgate_packets_out_total", "datagrams_in", "echoed"], 4);
    let failing = failing(&record);
    assert_eq!(failing.len(), 1, "{failing:?}");
    assert!(failing[0].text.contains("game server arena was restarted"), "{failing:?}");
    lessen(&mut record, &["ringgate_payloads_to_links_total"], 5);
    assert!(self::failing(&record).iter().any(|check| check.text.contains("UNEXPLAINED")));
}

#[test]
fn a_run_proves_nothing_where_players_stay_outside_or_nothing_comes_back() {
    let unproven = |change: fn(&mut Record)| {
        let mut record = balanced();
        change(&mut record);
        let checks = close(&record, &Hostile::default());
        checks.iter().filter(|check| check.is_proof && !check.holds).count()
    };
    let set = |record: &mut Record, name: &str, value| {
        record.counters.insert(name.into(), value);
    };
    assert_eq!(unproven(|_| ()), 0);
    assert_eq!(unproven(|record| record.counters.clear()), 1, "nobody came");
    assert_eq!(unproven(|record| record.counters.retain(|name, _| name != "echoed")), 1);
    for name in ["tokenless", "placeless", "sessions_lost", "connect_failed", "unfinished"] {
        let mut record = balanced();
        set(&mut record, name, 1);
        record.allowed_outside = Allowance::Players(1);
        let verdict = |record: &Record| {
            let checks = close(record, &Hostile::default());
            checks.iter().all(|check| check.holds || !check.is_proof)
        };
        assert!(verdict(&record), "{name}");
        record.allowed_outside = Allowance::Players(0);
        assert!(!verdict(&record), "{name}");
    }
}

/// A player who has ordered ten levels, and got them and the first one between packets of the
/// delivery layer.
fn with_levels() -> Record {
    let mut record = balanced();
    for (name, value) in [
        ("payloads_due", 10),
        ("messages_taken", 10),
        ("messages_delivered", 10),
        ("packets_in", 100),
        ("levels", 11),
        ("snapshots", 40),
        ("echoed", 10),
    ] {
        record.counters.insert(name.into(), value);
    }
    record.gateway_metrics.insert("ringgate_messages_up_total".into(), 10.0);
    record.gateway_metrics.insert("ringgate_messages_down_total".into(), 60.0);
    record
}

#[test]
fn every_order_and_every_level_is_in_the_books_of_both_sides() {
    assert_eq!(failing(&with_levels()), []);
    for name in ["messages_delivered", "levels", "connected", "ringgate_messages_up_total"] {
        let mut record = with_levels();
        lessen(&mut record, &[name], 1);
        let failing = failing(&record);
        let is_named = failing.iter().any(|check| check.text.contains("UNEXPLAINED"));
        assert!(is_named, "{name}: {failing:?}");
    }
    // More came than has left.
    let mut record = with_levels();
    lessen(&mut record, &["ringgate_messages_down_total"], 10);
    assert_eq!(failing(&record).len(), 1);
    // Whether the last one arrived nobody knows, so its level may have come or not.
    for levels in [10, 11] {
        let mut record = with_levels();
        lessen(&mut record, &["messages_delivered"], 1);
        record.counters.insert("messages_given_up".into(), 1);
        record.counters.insert("levels".into(), levels);
        record.counters.insert("echoed".into(), levels - 1);
        assert_eq!(failing(&record), []);
    }
    // Who was still asking at the end was let in all the same.
    let mut record = with_levels();
    for (name, value) in [("joins", 2), ("unfinished", 1), ("levels", 12)] {
        record.counters.insert(name.into(), value);
    }
    assert!(failing(&record).iter().all(|check| check.is_proof));
}

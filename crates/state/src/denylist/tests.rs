//! The words of an operator, held against a list that remembers them one after the other.

use proptest::prelude::*;

use super::*;
use crate::text::{self, Kept};
use ringgate_gate::Denied;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn whom(text: &str) -> Whom {
    text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn change(is_denied: bool, words: &[&str]) -> Change {
    let whom = words.iter().map(|text| whom(text)).collect();
    Change { whom, is_denied, until: None, is_whole: false }
}

fn deny(words: &[&str]) -> Change {
    change(true, words)
}

fn allow(words: &[&str]) -> Change {
    change(false, words)
}

fn after(changes: &[Change]) -> DenyList {
    let step = |list: DenyList, change| list.changed(change).expect("few rules").0;
    changes.iter().fold(DenyList::default(), step)
}

fn said(list: &DenyList) -> Vec<String> {
    let word = |is_denied| if is_denied { "deny" } else { "allow" };
    list.rules().map(|(whom, rule)| format!("{} {whom}", word(rule.is_denied))).collect()
}

#[test]
fn to_allow_takes_a_rule_away_or_leaves_an_exception() {
    let list = after(&[deny(&["10.0.0.0/8"]), allow(&["10.1.0.0/16", "192.0.2.0/24"])]);
    assert_eq!(said(&list), ["deny 10.0.0.0/8", "allow 10.1.0.0/16"]);
    let (list, effect) = list.changed(&deny(&["10.1.2.3"])).expect("room");
    assert_eq!(effect, Effect { changed: 1, ..Effect::default() });
    assert_eq!(list.decides(whom("10.1.2.3")), list.rules().nth(2));
    assert_eq!(list.decides(whom("10.1.2.4")), list.rules().nth(1));
    let (list, effect) = list.changed(&allow(&["10.1.2.3"])).expect("room");
    assert_eq!((effect.changed, effect.exceptions), (1, 1));
    // Without what is around them exceptions are of no use.
    let (list, effect) = list.changed(&allow(&["10.0.0.0/8"])).expect("room");
    assert_eq!((said(&list), effect.changed), (Vec::<String>::new(), 1));
}

#[test]
fn longer_prefixes_keep_their_word_unless_the_whole_is_meant() {
    let list = after(&[deny(&["10.1.0.0/16", "10.2.0.0/16", "11.0.0.0/8"])]);
    let (list, effect) = list.changed(&allow(&["10.0.0.0/8"])).expect("room");
    assert_eq!(effect, Effect { changed: 0, exceptions: 0, contrary: 2 });
    assert_eq!(list.len(), 3);
    let whole = Change { is_whole: true, ..allow(&["10.0.0.0/8"]) };
    let (list, effect) = list.changed(&whole).expect("room");
    assert_eq!((said(&list), effect.changed), (vec!["deny 11.0.0.0/8".to_owned()], 2));
    let all = Change { is_whole: true, ..allow(&["0.0.0.0/0"]) };
    assert!(list.changed(&all).expect("room").0.is_empty());
}

#[test]
fn a_deny_tells_of_the_exceptions_that_it_has() {
    let list = after(&[deny(&["10.0.0.0/8"]), allow(&["10.1.0.0/16", "10.2.0.0/16"])]);
    let (list, effect) = list.changed(&deny(&["10.0.0.0/8"])).expect("room");
    assert_eq!(effect, Effect { changed: 0, exceptions: 0, contrary: 2 });
    let whole = Change { is_whole: true, ..deny(&["10.0.0.0/8"]) };
    assert_eq!(said(&list.changed(&whole).expect("room").0), ["deny 10.0.0.0/8"]);
}

#[test]
fn an_exception_outlives_another_one_around_it() {
    let mut list = after(&[deny(&["10.0.0.0/8"])]);
    let timed = Change { until: Some(5), ..allow(&["10.1.0.0/16"]) };
    for change in [&timed, &allow(&["10.1.2.0/24"])] {
        list = list.changed(change).expect("room").0;
    }
    assert_eq!((list.next_end(), list.expire(4), list.expire(5)), (Some(5), 0, 1));
    assert_eq!(said(&list), ["deny 10.0.0.0/8", "allow 10.1.2.0/24"]);
    assert_eq!(list.next_end(), None);
}

#[test]
fn rules_end_by_themselves_and_exceptions_with_what_is_around_them() {
    let mut list = after(&[
        Change { until: Some(10), ..deny(&["10.0.0.0/8"]) },
        allow(&["10.1.0.0/16"]),
        Change { until: Some(20), ..deny(&["client 7"]) },
        deny(&["client 8"]),
    ]);
    assert_eq!(list.len(), 4);
    assert_eq!(list.expire(10), 2);
    assert_eq!(said(&list), ["deny client 7", "deny client 8"]);
    let moved = list.on_clock(|until| until * 1000);
    assert_eq!((list.next_end(), moved.next_end()), (Some(20), Some(20_000)));
    assert_eq!((list.expire(u64::MAX), said(&list)), (1, vec!["deny client 8".to_owned()]));
    // A later word holds: for ever.
    let list = list.changed(&Change { until: Some(9), ..deny(&["client 8"]) }).expect("room").0;
    let (mut list, effect) = list.changed(&deny(&["client 8"])).expect("room");
    assert_eq!((effect.changed, list.expire(9)), (1, 0));
}

#[test]
fn only_exceptions_can_be_allowed_for_a_time() {
    let list = after(&[deny(&["10.0.0.0/8", "client 7"])]);
    for refused in ["10.0.0.0/8", "11.0.0.0/8", "client 7"] {
        let change = Change { until: Some(9), ..allow(&[refused]) };
        assert_eq!(list.changed(&change), Err(Refusal::NoException(whom(refused))));
    }
    assert!(list.changed(&Change { until: Some(9), ..allow(&["10.1.0.0/16"]) }).is_ok());
}

#[test]
fn ipv4_is_no_part_of_ipv6_unless_it_is_mapped() {
    let list = after(&[deny(&["::/0"]), allow(&["192.0.2.0/24"])]);
    assert_eq!(said(&list), ["deny ::/0"]);
    let list = after(&[deny(&["::ffff:0:0/96"]), allow(&["192.0.2.0/24", "2001:db8::/32"])]);
    assert_eq!(said(&list), ["deny 0.0.0.0/0", "allow 192.0.2.0/24"]);
    let all = after(&[
        deny(&["::/0", "0.0.0.0/0"]),
        allow(&["2001:db8::/32", "fe80::/10", "::1", "192.0.2.1"]),
    ]);
    assert_eq!(all.counts(), Counts { ipv4: 1, ipv6: 1, exceptions: 4, clients: 0 });
    assert_eq!(all.about(whom("192.0.2.0/24")).len(), 2);
    assert_eq!(all.about(whom("::/0")).len(), 4);
}

#[test]
fn a_list_has_an_end() {
    let ids = (0..RULES_MAX as u64).map(Whom::Client).collect();
    let full = Change { whom: ids, ..deny(&[]) };
    let list = DenyList::default().changed(&full).expect("just room").0;
    assert_eq!(list.changed(&deny(&["10.0.0.0/8"])), Err(Refusal::Full));
    assert!(list.changed(&deny(&["client 1"])).is_ok(), "nothing is added");
    assert!(list.changed(&allow(&["client 1"])).is_ok());
}

#[test]
fn whom_is_read_as_it_is_written() {
    for text in ["192.0.2.0/24", "2001:db8::/32", "client 18446744073709551615"] {
        assert_eq!(whom(text).to_string(), text);
    }
    assert_eq!(whom("client 0xff"), Whom::Client(255));
    for bad in ["", "client", "client ", "client x", "client +1", "client 0x", "clients 1", "10/8"]
    {
        assert!(bad.parse::<Whom>().is_err(), "{bad}");
    }
}

/// What an operator says, on small addresses so that prefixes lie in each other.
#[derive(Clone, Debug)]
enum Word {
    Say { is_denied: bool, prefix: Prefix, lasts: Option<u64>, is_whole: bool },
    Wait(u64),
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (0u32..256, 24u8..=32).prop_map(|(low, len)| {
        Prefix::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | low)), len).expect("in range")
    });
    let v6 = (0u128..256, 120u8..=128).prop_map(|(low, len)| {
        Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(0x2001 << 112 | low)), len).expect("in range")
    });
    let wide = ["0.0.0.0/0", "::/0", "10.0.0.0/8", "2000::/3", "::/80", "255.0.0.0/8", "ff00::/8"];
    let wide = prop::sample::select(wide.to_vec()).prop_map(|text| text.parse().expect("a prefix"));
    prop_oneof![6 => v4, 6 => v6, 1 => wide]
}

fn any_word() -> impl Strategy<Value = Word> {
    let say = (any::<bool>(), any_prefix(), prop::option::of(1u64..20), 0..8).prop_map(
        |(is_denied, prefix, lasts, dice)| Word::Say {
            is_denied,
            prefix,
            lasts,
            is_whole: dice == 0,
        },
    );
    prop_oneof![8 => say, 1 => (1u64..8).prop_map(Word::Wait)]
}

/// Remembers every rule in the order in which they were said, and walks through all of them.
#[derive(Default)]
struct Naive(Vec<(Prefix, Rule)>);

impl Naive {
    fn say(&mut self, word: (bool, Prefix, Option<u64>, bool)) {
        let (is_denied, prefix, until, is_whole) = word;
        self.0.retain(|(it, _)| *it != prefix && !(is_whole && prefix.covers(it)));
        self.0.push((prefix, Rule { is_denied, until }));
        self.forget_useless();
    }

    fn expire(&mut self, now: u64) {
        self.0.retain(|(_, rule)| rule.until.is_none_or(|until| until > now));
        self.forget_useless();
    }

    fn forget_useless(&mut self) {
        let denied: Vec<Prefix> =
            self.0.iter().filter(|(_, rule)| rule.is_denied).map(|(it, _)| *it).collect();
        let is_within = |it: &Prefix| denied.iter().any(|around| around.covers(it));
        self.0.retain(|(it, rule)| rule.is_denied || is_within(it));
    }

    fn denies(&self, ip: IpAddr) -> bool {
        let one = Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 }).expect("in range");
        let around = self.0.iter().filter(|(it, _)| it.covers(&one));
        // The shorter one covers the longer one, so the longest is covered by all.
        let longest = around.reduce(|a, b| if a.0.covers(&b.0) { b } else { a });
        longest.is_some_and(|(_, rule)| rule.is_denied)
    }
}

fn asked() -> impl Iterator<Item = IpAddr> {
    let v4 = (0u32..256).map(|low| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | low)));
    let v6 = (0u128..256).map(|low| IpAddr::V6(Ipv6Addr::from_bits(0x2001 << 112 | low)));
    let far = ["8.8.8.8", "::1", "3000::", "10.9.9.9", "255.255.255.255", "::", "0.0.0.0"];
    let far = far.into_iter().chain(["::1:0:0:0", "::fffe:ffff:ffff", "ff00::", "fe00::"]);
    v4.chain(v6).chain(far.map(|text| text.parse().expect("an address")))
}

fn holds(denied: &Denied, ip: IpAddr) -> bool {
    denied.holds(&std::net::SocketAddr::new(ip, 1).into())
}

/// Lines of a file, right and wrong.
fn any_line() -> impl Strategy<Value = String> {
    let good = [
        "ringgate denied 1",
        "ringgate denied 2",
        "saved 2026-01-31T20:00:00Z",
        "saved 9999-12-31",
        "deny 0.0.0.0/0",
        "deny ::/0 until 1970-01-01",
        "allow 10.0.0.0/8",
        "allow client 1",
        "deny client 18446744073709551615",
        "end 0",
        "end 1",
        "end 2",
        "end -1",
        "",
        "#",
    ];
    prop_oneof![8 => prop::sample::select(good.to_vec()).prop_map(str::to_owned), 1 => ".{0,40}"]
}

proptest! {
    #[test]
    fn no_file_makes_the_reader_panic_and_what_it_takes_stays(
        first: bool,
        lines in prop::collection::vec(any_line(), 0..8),
        junk in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let _ = text::read(&junk);
        let first = if first { "ringgate denied 1\n" } else { "" };
        let file = format!("{first}{}", lines.join("\n"));
        match text::read(file.as_bytes()) {
            Ok(kept) => {
                prop_assert_eq!(text::read(text::write(&kept).as_bytes()), Ok(kept));
            }
            Err(mistake) => prop_assert!(mistake.line >= 1),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_list_says_what_a_walk_through_everything_said_says(
        words in prop::collection::vec(any_word(), 1..60),
    ) {
        let (mut list, mut naive, mut now) = (DenyList::default(), Naive::default(), 0);
        for word in words {
            match word {
                Word::Wait(time) => {
                    now += time;
                    list.expire(now);
                    naive.expire(now);
                }
                Word::Say { is_denied, prefix, lasts, is_whole } => {
                    let until = lasts.map(|lasts| now + lasts);
                    let whom = vec![Whom::Prefix(prefix)];
                    match list.changed(&Change { whom, is_denied, until, is_whole }) {
                        Ok((changed, _)) => {
                            list = changed;
                            naive.say((is_denied, prefix, until, is_whole));
                        }
                        Err(Refusal::NoException(_)) => prop_assert!(!is_denied && until.is_some()),
                        Err(Refusal::Full) => prop_assert!(false, "there is room"),
                    }
                }
            }
            let mut rules = naive.0.clone();
            rules.sort_by_key(|(prefix, _)| *prefix);
            let rules = rules.into_iter().map(|(prefix, rule)| (Whom::Prefix(prefix), rule));
            prop_assert!(list.rules().eq(rules));
        }
        let kept = Kept { list: list.clone(), saved_unix_s: now };
        let written = text::write(&kept);
        prop_assert_eq!(text::read(written.as_bytes()), Ok(kept));
        let denied = list.to_denied();
        for ip in asked() {
            prop_assert_eq!(holds(&denied, ip), naive.denies(ip), "{}", ip);
            let one = Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 }).expect("in range");
            let decides = list.decides(Whom::Prefix(one));
            prop_assert_eq!(decides.is_some_and(|(_, rule)| rule.is_denied), naive.denies(ip));
        }
    }
    #[test]
    fn who_is_denied_by_one_of_two_lists_is_denied_by_both_together(
        rules in prop::collection::vec((any::<bool>(), any_prefix(), any::<bool>()), 0..60),
    ) {
        let [one, other] = [false, true].map(|which| {
            let its = rules.iter().filter(|(.., it)| *it == which);
            let rule = |is_denied| Rule { is_denied, until: None };
            DenyList::of_rules(its.map(|it| (Whom::Prefix(it.1), rule(it.0))))
        });
        let both = one.with(&other);
        prop_assert_eq!(&both, &other.with(&one));
        let [one, other, both] = [one, other, both].map(|list| list.to_denied());
        for ip in asked() {
            prop_assert_eq!(holds(&both, ip), holds(&one, ip) || holds(&other, ip), "{}", ip);
        }
    }
}

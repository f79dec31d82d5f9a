//! The page has nothing from elsewhere, and what it is told is made once for many.

use super::*;

#[test]
fn the_page_needs_nothing_from_elsewhere_and_has_all_that_its_script_names() {
    ringgate_report::page::check(&PAGE, &[]);
}

#[test]
fn however_many_look_it_is_told_once_a_second() {
    let (glance, at) = (Glance::default(), |ms| Now { unix_s: 0, ms });
    assert_eq!(glance.at(at(5), || "one".into()), "one");
    assert_eq!(glance.at(at(1004), || panic!("it is fresh")), "one");
    assert_eq!(glance.at(at(1005), || "two".into()), "two");
}

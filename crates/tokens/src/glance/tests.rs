//! The page has nothing from elsewhere, and what it is told is made once for many.

use super::*;

#[test]
fn the_page_needs_nothing_from_elsewhere_and_knows_nothing() {
    let page = document("0123");
    for outside in ["http:", "https:", "//cdn", "src=", "@import", "url(", "innerHTML", "eval("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("<script nonce=\"0123\">\n\"use strict\";"));
    assert!(page.contains("<style nonce=\"0123\">\n:root"));
    for left in ["NONCE", "STYLE", "SCRIPT\n"] {
        assert!(!page.contains(left), "{left}");
    }
    assert!(policy("0123").contains("script-src 'nonce-0123'"));
}

#[test]
fn every_place_that_the_script_names_is_on_the_page() {
    let names = SCRIPT.split("by(\"").skip(1).filter_map(|rest| rest.split('"').next());
    for name in names {
        assert!(PAGE.contains(&format!("id=\"{name}\"")), "{name}");
    }
}

#[test]
fn however_many_look_it_is_told_once_a_second() {
    let (glance, at) = (Glance::default(), |ms| Now { unix_s: 0, ms });
    assert_eq!(glance.at(at(5), || "one".into()), "one");
    assert_eq!(glance.at(at(1004), || panic!("it is fresh")), "one");
    assert_eq!(glance.at(at(1005), || "two".into()), "two");
}

//! `GET /`: the gateway at a glance, for a browser.
//!
//! One document without anything from elsewhere. It asks for `/status` once a second, so it shows
//! what everybody may read, costs nothing while nobody looks, and needs nothing of its own here.
//! The policy that comes with it lets the browser run its one script, and nothing that found its
//! way into the page.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The page.
pub(super) async fn show() -> Response {
    let Ok(number) = getrandom::u64() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "no randomness\n").into_response();
    };
    let nonce = format!("{number:016x}");
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy(&nonce)),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    (headers, document(&nonce)).into_response()
}

fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

fn document(nonce: &str) -> String {
    PAGE.replace("NONCE", nonce).replacen("STYLE", STYLE, 1).replacen("SCRIPT", SCRIPT, 1)
}

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = document("0123");
        // The name of a namespace is no address.
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "//cdn", "src=", "@import", "url(", "innerHTML", "eval("]
        {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("<script nonce=\"0123\">\n\"use strict\";"));
        assert!(page.contains("<style nonce=\"0123\">\n:root"));
        for left in ["NONCE", "STYLE", "SCRIPT\n"] {
            assert!(!page.contains(left), "{left}");
        }
    }

    #[test]
    fn every_place_that_the_script_names_is_on_the_page() {
        let names = SCRIPT.split("by(\"").skip(1).filter_map(|rest| rest.split('"').next());
        for name in names.filter(|name| !name.starts_with("tile-")) {
            assert!(PAGE.contains(&format!("id=\"{name}\"")), "{name}");
        }
    }
}

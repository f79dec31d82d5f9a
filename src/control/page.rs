//! `GET /`: the gateway at a glance, for a browser.
//!
//! One document without anything from elsewhere. It asks for `/status` once a second, so it shows
//! what everybody may read, costs nothing while nobody looks, and needs nothing of its own here.
//! The policy that comes with it lets the browser run its one script, and nothing that found its
//! way into the page.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringgate_report::page::{self, Page};

/// The page.
pub(super) async fn show() -> Response {
    let Ok(number) = getrandom::u64() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "no randomness\n").into_response();
    };
    let nonce = format!("{number:016x}");
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::CONTENT_SECURITY_POLICY, page::policy(&nonce)),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    (headers, PAGE.document(&nonce)).into_response()
}

const PAGE: Page = Page {
    title: "ringgate",
    heading: "ringgate",
    body: include_str!("page/page.html"),
    style: include_str!("page/page.css"),
    script: include_str!("page/page.js"),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_has_all_that_its_script_names() {
        page::check(&PAGE, &["tile-"]);
    }
}

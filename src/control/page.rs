//! `GET /`: the gateway at a glance, for a browser.
//!
//! One document without anything from elsewhere. It asks for `/status` once a second, so it shows
//! what everybody may read, costs nothing while nobody looks, and needs nothing of its own here.
//! The policy that comes with it lets the browser run its one script, and nothing that found its
//! way into the page.

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use ringgate_report::page::{self, Page};

use super::http::AdminState;
use super::web::{Reply, Visit, typed};

/// The page.
pub(super) async fn show(_: Visit<AdminState>) -> Reply {
    let unavailable = |why: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    let number = getrandom::u64().map_err(|_| unavailable("no randomness"))?;
    let nonce = format!("{number:016x}");
    let policy = HeaderValue::try_from(page::policy(&nonce));
    let policy = policy.map_err(|_| unavailable("no policy"))?;
    let mut response = typed(StatusCode::OK, "text/html; charset=utf-8", PAGE.document(&nonce));
    response.headers_mut().extend([
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ]);
    Ok(response)
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

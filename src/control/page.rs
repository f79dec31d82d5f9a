//! `GET /`: the gateway at a glance, for a browser.
//!
//! One document without anything from elsewhere. It asks for `/status` once a second, so it shows
//! what everybody may read, costs nothing while nobody looks, and needs nothing of its own here.
//! The policy that comes with it lets the browser run its one script, and nothing that found its
//! way into the page.

use hyper::StatusCode;
use ringgate_report::page::Page;

use super::http::AdminState;
use ringgate_process::pages::{Reply, Visit, document};

/// The page.
pub(super) async fn show(_: Visit<AdminState>) -> Reply {
    document(&PAGE).map_err(|why| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")))
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
    use ringgate_report::page;

    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_has_all_that_its_script_names() {
        page::check(&PAGE, &["tile-"]);
    }
}

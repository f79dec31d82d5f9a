//! Pages for browsers: each is one document without anything from elsewhere.
//!
//! The frame is here, and what all pages have in common: how text, tiles and tables look, and how a
//! script makes elements of what it was told. A page adds a body, a style and a script of its own.

/// A page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// What the window is called until the script knows better.
    pub title: &'static str,
    /// What stands above everything.
    pub heading: &'static str,
    /// What stands below the heading, the page's state and its troubles.
    pub body: &'static str,
    /// Behind the style that all pages have.
    pub style: &'static str,
    /// Behind the script that all pages have.
    pub script: &'static str,
}

impl Page {
    /// The document, with a number that lets the browser run its script and nothing else.
    pub fn document(&self, nonce: &str) -> String {
        let Self { title, heading, body, style, script } = self;
        format!(
            r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style nonce="{nonce}">
{STYLE}{style}</style>
</head>
<body data-looks="0">
<header>
  <h1>{heading}</h1>
  <span id="state" class="pill">asking</span>
  <span id="facts" class="soft"></span>
</header>
<p id="trouble" class="trouble" hidden></p>
{body}<script nonce="{nonce}">
{SCRIPT}{script}</script>
</body>
</html>
"#
        )
    }
}

/// What a browser may do with a page.
pub fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

const STYLE: &str = include_str!("page/base.css");
const SCRIPT: &str = include_str!("page/base.js");

/// Holds a page to what all of them promise; for tests.
///
/// # Panics
/// Where the page needs something from elsewhere, or its script names a place that is not there. A
/// place whose name begins with one of `made` is made by the script itself.
pub fn check(page: &Page, made: &[&str]) {
    let document = page.document("0123");
    // The name of a namespace is no address.
    let document = document.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "//cdn", "src=", "@import", "url(", "innerHTML", "eval("] {
        assert!(!document.contains(outside), "{outside}");
    }
    assert!(document.contains("<script nonce=\"0123\">\n\"use strict\";"), "a strict script");
    assert!(document.contains("<style nonce=\"0123\">\n:root"), "a style");
    let names = document.split("by(\"").skip(1).filter_map(|rest| rest.split('"').next());
    for name in names.filter(|name| !made.iter().any(|made| name.starts_with(made))) {
        assert!(document.contains(&format!("id=\"{name}\"")), "{name}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Page = Page {
        title: "one",
        heading: "One",
        body: "<ol id=\"events\"></ol>\n",
        style: ".own { margin: 0; }\n",
        script: "by(\"events\");\nby(\"tile-1\");\n",
    };

    #[test]
    fn a_page_is_one_document_with_its_own_parts_last() {
        check(&PAGE, &["tile-"]);
        let document = PAGE.document("77");
        assert!(document.contains("<title>one</title>") && document.contains("<h1>One</h1>"));
        assert!(document.contains(".own { margin: 0; }\n</style>"));
        assert!(document.contains("by(\"tile-1\");\n</script>"));
        assert!(policy("77").contains("script-src 'nonce-77'"));
    }

    #[test]
    #[should_panic(expected = "nowhere")]
    fn a_place_that_is_not_there_is_found() {
        check(&Page { script: "by(\"nowhere\");", ..PAGE }, &[]);
    }
}

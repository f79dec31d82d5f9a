//! `ringgate denied`: who may not play at a running gateway.

use serde::Deserialize;

use super::Failure;
use super::admin::{self, Place};
use super::exit::print;
use ringgate_os::utc;
use ringgate_report::text::{Append as _, Table, count};

/// Show who is denied at a running gateway, or why an address is
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only what decides about this address, and what was said around and within this prefix; or
    /// whether the player of this client id is
    #[arg(value_name = "PLAYER", conflicts_with = "client_id")]
    whom: Option<String>,
    /// Only whether this player is
    #[arg(long, alias = "client", value_name = "ID")]
    client_id: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Print the page as it is, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Deserialize)]
struct Page {
    count: u64,
    decides: Option<Row>,
    rules: Vec<Row>,
    not_kept_because: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    prefix: Option<String>,
    client: Option<u64>,
    denied: bool,
    #[serde(default)]
    fleet: bool,
    until_unix_s: Option<u64>,
    left_s: Option<u64>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.place.find()?;
    let mut path = format!("/denied?limit={}", args.limit);
    let (client, address) = admin::sort(args.whom.as_deref());
    let client = client.or(args.client_id.as_deref());
    admin::say(&mut path, "address", address);
    admin::say(&mut path, "client", client);
    let answer = gateway.fetch(&path)?;
    let page = gateway.read(&answer, &[400])?;
    let asked = address.map(str::to_owned).or_else(|| client.map(|id| format!("client {id}")));
    print(&if args.json { answer.body } else { render(&page, asked.as_deref()) })
}

fn render(page: &Page, asked: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(asked) = asked {
        text.push_str(&verdict(page, asked));
    }
    if !page.rules.is_empty() {
        let mut table = Table::new("who, may, until, left:");
        for row in &page.rules {
            let word = match (row.denied, row.fleet) {
                (true, true) => "not play: the fleet",
                (true, false) => "not play",
                (false, _) => "play: an exception",
            };
            let until = row.until_unix_s.map_or_else(|| "told otherwise".to_owned(), utc::date);
            let left = row.left_s.map_or(String::new(), utc::span);
            table.row([row.whom(), word.to_owned(), until, left]);
        }
        write!(text, "{table}");
    }
    match asked {
        None if page.count == 0 => text.push_str("nobody is denied\n"),
        None => write!(text, "\n{} rules", count(page.count)),
        Some(_) => {}
    }
    if (page.rules.len() as u64) < page.count {
        write!(text, ", {} of them shown (--limit)", page.rules.len());
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if let (Some(why), false) = (&page.not_kept_because, page.count == 0) {
        writeln!(text, "this lasts until the gateway restarts: {why}");
    }
    text
}

/// Whether they may play, and by which rule.
fn verdict(page: &Page, asked: &str) -> String {
    match &page.decides {
        Some(rule) if rule.denied && rule.fleet => {
            let whom = rule.whom();
            format!(
                "{asked} is denied in the whole fleet, by the rule {whom} (ringgate fleet allow)\n"
            )
        }
        Some(rule) if rule.denied => format!("{asked} is denied, by the rule {}\n", rule.whom()),
        Some(rule) => format!("{asked} is not denied: {} is an exception\n", rule.whom()),
        None => format!("{asked} is not denied\n"),
    }
}

impl Row {
    fn whom(&self) -> String {
        let client = || self.client.map_or(String::new(), |id| format!("client {id}"));
        self.prefix.clone().unwrap_or_else(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        serde_json::from_str(text).expect("a page")
    }

    #[test]
    fn rules_are_shown_as_sentences_of_a_table() {
        let rules = r#"[{"prefix": "203.0.113.0/24", "denied": true, "until_unix_s": 1769889600, "left_s": 3600},
            {"prefix": "203.0.113.7/32", "denied": false}, {"client": 42, "denied": true}]"#;
        let all =
            page(&format!(r#"{{"count": 5, "rules": {rules}, "not_kept_because": "no disk"}}"#));
        let shown = render(&all, None);
        let expected = "who             may                 until                      left\n\
            203.0.113.0/24  not play            2026-01-31 20:00:00 UTC  60 min\n\
            203.0.113.7/32  play: an exception  told otherwise\n\
            client 42       not play            told otherwise\n\
            \n5 rules, 3 of them shown (--limit)\nthis lasts until the gateway restarts: no disk\n";
        assert_eq!(shown, expected);
        assert_eq!(render(&page(r#"{"count": 0, "rules": []}"#), None), "nobody is denied\n");
    }

    #[test]
    fn what_the_fleet_denies_is_told_apart() {
        let denied = r#"{"client": 42, "denied": true, "fleet": true}"#;
        let one = page(&format!(r#"{{"count": 1, "decides": {denied}, "rules": [{denied}]}}"#));
        let shown = render(&one, Some("client 42"));
        let verdict = "client 42 is denied in the whole fleet, by the rule client 42 (ringgate fleet allow)\n";
        assert!(shown.starts_with(verdict) && shown.contains("not play: the fleet"), "{shown}");
    }

    #[test]
    fn one_address_gets_a_verdict() {
        let denied = r#"{"prefix": "203.0.113.0/24", "denied": true}"#;
        let one = page(&format!(r#"{{"count": 1, "decides": {denied}, "rules": [{denied}]}}"#));
        let shown = render(&one, Some("203.0.113.7"));
        assert!(
            shown.starts_with("203.0.113.7 is denied, by the rule 203.0.113.0/24\nwho "),
            "{shown}"
        );
        let none = page(r#"{"count": 0, "rules": [], "not_kept_because": "no disk"}"#);
        assert_eq!(render(&none, Some("client 7")), "client 7 is not denied\n");
    }
}

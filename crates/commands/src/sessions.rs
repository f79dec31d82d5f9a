//! `ringgate sessions`: who is at a running gateway.

use serde::Deserialize;

use super::Failure;
use super::admin::{self, Place};
use super::exit::print;
use ringgate_report::text::{Append as _, Table, count};

/// Show the sessions of a running gateway
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Print the page as it is, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Which sessions are meant.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// Of this player, by its client id, or at this address or in this network
    #[arg(value_name = "PLAYER", conflicts_with_all = ["client_id", "address"])]
    whom: Option<String>,
    /// Of this player
    #[arg(long, alias = "client", value_name = "ID")]
    client_id: Option<String>,
    /// Of players at this address or in this network; or of the one whom a udp server sees there
    #[arg(long, value_name = "PREFIX")]
    address: Option<String>,
    /// At this backend
    #[arg(long, value_name = "BACKEND", value_parser = admin::name)]
    backend: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

impl Which {
    /// What a gateway is asked.
    pub(super) fn query(&self) -> String {
        let mut query = format!("limit={}", self.limit);
        let (client, address) = admin::sort(self.whom.as_deref());
        admin::say(&mut query, "client", client.or(self.client_id.as_deref()));
        admin::say(&mut query, "address", address.or(self.address.as_deref()));
        admin::say(&mut query, "backend", self.backend.as_deref());
        query
    }
}

#[derive(Deserialize)]
pub(super) struct Page {
    count: u64,
    complete: bool,
    sessions: Vec<Session>,
}

#[derive(Deserialize)]
struct Session {
    #[serde(rename = "session")]
    id: String,
    client_id: u64,
    listener: String,
    backend: String,
    slot: u32,
    address: String,
    link_address: Option<String>,
    silent_ms: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.place.find()?;
    let answer = gateway.fetch(&format!("/sessions?{}", args.which.query()))?;
    let page = gateway.read(&answer, &[400, 404])?;
    print(&if args.json { answer.body } else { render(&[(None, page)]) })
}

/// Pages as one table, of the whole fleet each with the gateway that it is of.
pub(super) fn render(pages: &[(Option<&str>, Page)]) -> String {
    let gateway = if pages.iter().any(|(gateway, _)| gateway.is_some()) { "gateway, " } else { "" };
    let mut table = Table::new(&format!(
        "{gateway}session, client:, listener, backend, slot:, address, at the server, silent:"
    ));
    let (mut sessions, mut shown, mut complete) = (0, 0, true);
    for (gateway, page) in pages {
        for it in &page.sessions {
            let row = [
                it.id.clone(),
                it.client_id.to_string(),
                it.listener.clone(),
                it.backend.clone(),
                it.slot.to_string(),
                it.address.clone(),
                it.link_address.clone().unwrap_or_default(),
                format!("{:.1} s", it.silent_ms as f64 / 1000.0),
            ];
            table.row(gateway.iter().map(|it| (*it).to_owned()).chain(row));
        }
        (sessions, shown) = (sessions + page.count, shown + page.sessions.len() as u64);
        complete &= page.complete;
    }
    let mut text = table.to_string();
    write!(text, "\n{} sessions", count(sessions));
    if shown < sessions {
        write!(text, ", {shown} of them shown (--limit)");
    }
    text.push_str(if complete { "\n" } else { "; a worker has not answered in time\n" });
    text
}

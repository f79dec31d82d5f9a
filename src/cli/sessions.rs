//! `ringgate sessions`: who is at a running gateway.

use serde::Deserialize;

use super::Failure;
use super::admin::{self, Answer, Place};
use super::exit::print;
use ringgate_report::text::{Side, Table, count, put};

/// Show the sessions of a running gateway
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Of this player, by its client id, or at this address or in this network
    #[arg(value_name = "WHOM", conflicts_with_all = ["client_id", "address"])]
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
    /// Print the page as it is, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Deserialize)]
struct Page {
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
    let mut path = format!("/sessions?limit={}", args.limit);
    let (client, address) = admin::sort(args.whom.as_deref());
    let (client, address) =
        (client.or(args.client_id.as_deref()), address.or(args.address.as_deref()));
    for (name, value) in
        [("client", client), ("address", address), ("backend", args.backend.as_deref())]
    {
        if let Some(value) = value {
            put(&mut path, format_args!("&{name}={value}"));
        }
    }
    let Answer { status, body } = gateway.fetch(&path)?;
    match (status, serde_json::from_str(&body)) {
        (200, Ok(_)) if args.json => print(&body),
        (200, Ok(page)) => print(&render(&page)),
        (400 | 404, _) => Err(Failure::bad_input(body.trim_end())),
        _ => Err(gateway.unexpected(status, &body)),
    }
}

fn render(page: &Page) -> String {
    let mut table = Table::new(&[
        ("session", Side::Left),
        ("client", Side::Right),
        ("listener", Side::Left),
        ("backend", Side::Left),
        ("slot", Side::Right),
        ("address", Side::Left),
        ("at the server", Side::Left),
        ("silent", Side::Right),
    ]);
    for it in &page.sessions {
        table.row([
            it.id.clone(),
            it.client_id.to_string(),
            it.listener.clone(),
            it.backend.clone(),
            it.slot.to_string(),
            it.address.clone(),
            it.link_address.clone().unwrap_or_default(),
            format!("{:.1} s", it.silent_ms as f64 / 1000.0),
        ]);
    }
    let mut text = table.to_string();
    put(&mut text, format_args!("\n{} sessions", count(page.count)));
    if (page.sessions.len() as u64) < page.count {
        put(&mut text, format_args!(", {} of them shown (--limit)", page.sessions.len()));
    }
    text.push_str(if page.complete { "\n" } else { "; a worker has not answered in time\n" });
    text
}

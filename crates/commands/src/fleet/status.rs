//! `ringgate fleet status`: every gateway, group, key and service of a fleet at a glance.

use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::{Backend, Gateway, Reach};
use ringgate_os::{clock, utc};
use ringgate_report::text::{Append as _, Table, count};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::Failure;
use super::super::exit::print;
use super::keys::{Row, row_json, rows};
use super::survey::{SCHEMA, Survey};
use super::target::Target;
use ringgate_config::values::word_of;

/// Show every gateway, group of backends, key and token service of a fleet
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show each backend too
    #[arg(long)]
    backends: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let fleet = args.target.find()?;
    let survey = fleet.ask(async |client| Survey::with_slots(client, &fleet.keyspace).await)?;
    let now_s = clock::unix_seconds();
    print(&if args.json {
        format!("{}\n", json(&survey, now_s))
    } else {
        render(&survey, now_s, args.backends)
    })
}

/// The whole as text.
pub(super) fn render(survey: &Survey, now_s: u64, with_backends: bool) -> String {
    let Survey { cluster_id, revision, .. } = survey;
    let mut text = format!("cluster {cluster_id:x}, revision {revision}\n\n");
    put_gateways(&mut text, survey, now_s);
    put_agents(&mut text, survey, now_s);
    put_groups(&mut text, survey);
    if with_backends {
        put_backends(&mut text, survey);
    }
    put_blocks(&mut text, survey, now_s);
    put_keys(&mut text, survey, now_s);
    let services: Vec<_> = survey.services.keys().map(Name::as_str).collect();
    let bans = survey.bans.iter().filter(|(_, ban)| ban.holds(now_s)).count();
    let list = if services.is_empty() { "none".to_owned() } else { services.join(", ") };
    writeln!(text, "token services: {list}\ndenied: {}", count(bans as u64));
    if !survey.unreadable.is_empty() {
        let many = count(survey.unreadable.len() as u64);
        writeln!(text, "cannot be read: {many} keys (`ringgate fleet doctor` says which)");
    }
    text
}

/// In one word or a few: whoever registers writes once a minute at least.
fn standing(is_draining: bool, written_s: u64, now_s: u64) -> String {
    let silent_s = now_s.saturating_sub(written_s);
    match is_draining {
        true => "draining".to_owned(),
        false if silent_s > SILENT_S => format!("not heard for {silent_s} s"),
        false => "serving".to_owned(),
    }
}

fn put_gateways(text: &mut String, survey: &Survey, now_s: u64) {
    if survey.gateways.is_empty() {
        text.push_str("no gateway\n\n");
        return;
    }
    let mut table = Table::new("gateway, region, host, is, sessions:, of:, version, listeners");
    for (name, gateway) in &survey.gateways {
        let Gateway { region, host, version, .. } = gateway;
        let listeners: Vec<_> = gateway.listeners.iter().map(|it| it.name.as_str()).collect();
        table.row([
            name.to_string(),
            region.clone(),
            host.clone(),
            standing(gateway.draining, gateway.written, now_s),
            count(gateway.sessions.into()),
            count(gateway.capacity.into()),
            version.clone(),
            listeners.join(" "),
        ]);
    }
    writeln!(text, "{table}");
}

/// A fleet without agents has no word about them.
fn put_agents(text: &mut String, survey: &Survey, now_s: u64) {
    if survey.agents.is_empty() {
        return;
    }
    let mut table = Table::new("agent, region, host, is, backends:, players:, version, gateways");
    for (name, agent) in &survey.agents {
        let behind = |it: &&Backend| matches!(&it.reach, Reach::Agent(own) if own == name.as_str());
        let backends = || survey.backends.values().filter(behind);
        table.row([
            name.to_string(),
            agent.region.clone(),
            agent.host.clone(),
            standing(false, agent.written, now_s),
            count(backends().count() as u64),
            count(backends().map(|it| u64::from(it.used)).sum()),
            agent.version.clone(),
            agent.gateways.join(" "),
        ]);
    }
    writeln!(text, "{table}");
}

/// As the fleet's page has it: a minute, and time for etcd.
const SILENT_S: u64 = 90;

/// Backends of one group, added up.
#[derive(Default)]
struct Sum {
    states: [usize; 4],
    slots: u64,
    used: u64,
}

impl Sum {
    fn of(backends: &[(&Name, &Backend)]) -> Self {
        let mut sum = Self::default();
        for (_, backend) in backends {
            sum.states[backend.state as usize] += 1;
            sum.slots += u64::from(backend.slots);
            sum.used += u64::from(backend.used);
        }
        sum
    }
}

fn put_groups(text: &mut String, survey: &Survey) {
    if survey.backends.is_empty() {
        text.push_str("no backend\n\n");
        return;
    }
    let mut table =
        Table::new("group, backends:, starting:, ready:, allocated:, draining:, players:, slots:");
    for (name, backends) in survey.groups() {
        let Sum { states, slots, used } = Sum::of(&backends);
        let states = states.map(|it| count(it as u64));
        let [starting, ready, allocated, draining] = states;
        let all = count(backends.len() as u64);
        let (used, slots) = (count(used), count(slots));
        table.row([name.to_owned(), all, starting, ready, allocated, draining, used, slots]);
    }
    writeln!(text, "{table}");
}

fn put_backends(text: &mut String, survey: &Survey) {
    let mut table = Table::new("backend, group, host, is, players:, slots:, labels");
    for (name, backend) in &survey.backends {
        let labels: Vec<_> =
            backend.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        table.row([
            name.to_string(),
            backend.group.clone(),
            backend.host.clone(),
            word_of(backend.state).to_owned(),
            count(backend.used.into()),
            count(backend.slots.into()),
            labels.join(" "),
        ]);
    }
    writeln!(text, "{table}");
}

/// Slots that one start of a token service holds.
struct Holding<'a> {
    by: &'a Name,
    is: &'static str,
    backends: usize,
    slots: u64,
}

/// By service: what it holds at all backends.
fn holdings(survey: &Survey, now_s: u64) -> Vec<Holding<'_>> {
    let mut holdings: Vec<Holding<'_>> = Vec::new();
    for ((by, _), block) in &survey.blocks {
        let slots = u64::from(block.holds(now_s));
        match holdings.last_mut().filter(|it| it.by == by) {
            Some(holding) => {
                holding.backends += 1;
                holding.slots += slots;
            }
            None => {
                let is_there = survey.services.values().any(|it| it.instance == by.as_str());
                let is = match (is_there, block.closed) {
                    (true, _) => "serving",
                    (false, true) => "ended",
                    (false, false) => "gone",
                };
                holdings.push(Holding { by, is, backends: 1, slots });
            }
        }
    }
    holdings
}

/// Where nothing is promised, there is no word about it.
fn put_blocks(text: &mut String, survey: &Survey, now_s: u64) {
    let holdings = holdings(survey, now_s);
    if holdings.is_empty() {
        return;
    }
    let mut table = Table::new("slots leased by, which is, backends:, slots:");
    for Holding { by, is, backends, slots } in holdings {
        table.row([by.to_string(), is.to_owned(), count(backends as u64), count(slots)]);
    }
    writeln!(text, "{table}");
}

fn put_keys(text: &mut String, survey: &Survey, now_s: u64) {
    for Row { listener, epoch, role, confirmed, gateways } in rows(survey, now_s) {
        let until = utc::date(epoch.validity.mint_until);
        writeln!(
            text,
            "key {} of {listener}: {}, confirmed by {confirmed} of {gateways}, minted until {until}",
            epoch.number,
            role.name()
        );
    }
}

/// Values as they stand in etcd, each with its name.
fn named<'n, T: Serialize>(all: impl IntoIterator<Item = (&'n Name, T)>) -> Vec<Value> {
    let one = |(name, it): (&Name, T)| {
        let mut value = serde_json::to_value(it).unwrap_or_default();
        if let Value::Object(fields) = &mut value {
            fields.insert("name".into(), name.as_str().into());
        }
        value
    };
    all.into_iter().map(one).collect()
}

fn json(survey: &Survey, now_s: u64) -> Value {
    // Whose players have come says nothing to people.
    let without_joined = |(name, it)| (name, Backend { joined: None, ..Backend::clone(it) });
    let keys: Vec<_> = rows(survey, now_s).iter().map(row_json).collect();
    let bans = survey.bans.iter().filter(|(_, ban)| ban.holds(now_s)).count();
    let blocks = holdings(survey, now_s).into_iter().map(|Holding { by, is, backends, slots }| {
        json!({ "by": by.as_str(), "is": is, "backends": backends, "slots": slots })
    });
    json!({
        "schema": SCHEMA,
        "cluster": format!("{:x}", survey.cluster_id),
        "revision": survey.revision,
        "gateways": named(&survey.gateways),
        "backends": named(survey.backends.iter().map(without_joined)),
        "services": named(&survey.services),
        "agents": named(&survey.agents),
        "keys": keys,
        "blocks": blocks.collect::<Vec<_>>(),
        "denied": bans,
        "unreadable": survey.unreadable.iter().map(|(key, why)| json!({ "key": key, "why": why })).collect::<Vec<_>>(),
    })
}

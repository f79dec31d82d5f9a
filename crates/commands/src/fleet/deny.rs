//! `ringgate fleet deny`, `allow` and `denied`: who may not play anywhere in a fleet. The same
//! words as on one gateway. A ban stands under a lease that ends with it.

use std::time::Duration;

use bytes::Bytes;
use ringgate_fleet::etcd::kv::{Range, key_after};
use ringgate_fleet::etcd::txn::{Delete, Put};
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{IpPrefix, Place};
use ringgate_fleet::mirror::face::{BAN_BYTES_MAX, BANS_MAX};
use ringgate_fleet::values::{Ban, Stored};
use ringgate_gate::Prefix;
use ringgate_os::{clock, utc};
use ringgate_report::text::{Append as _, Table, count};
use ringgate_state::Whom;
use serde_json::json;

use super::super::Failure;
use super::super::deny::{client, named, prefix, whom};
use super::super::exit::print;
use super::survey::{PAGE_KEYS, SCHEMA, Survey};
use super::target::{Fleet, Target, away};
use super::wait::WaitArgs;
use ringgate_config::values;

/// Keep addresses or players out of every gateway of a fleet, and end their sessions
#[derive(Debug, clap::Args)]
pub(super) struct DenyArgs {
    #[command(flatten)]
    whom: WhomArgs,
    /// For so long, such as 30m or 24h [default: until told otherwise]
    #[arg(long = "for", value_name = "TIME", value_parser = lasts)]
    lasts: Option<Duration>,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    target: Target,
}

/// Let addresses or players in again
#[derive(Debug, clap::Args)]
pub(super) struct AllowArgs {
    #[command(flatten)]
    whom: WhomArgs,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    target: Target,
}

/// Show who is denied in a fleet
#[derive(Debug, clap::Args)]
pub(super) struct DeniedArgs {
    /// Print them as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
struct WhomArgs {
    /// Client ids, and addresses and prefixes such as 203.0.113.7 or `2001:db8::/32`
    #[arg(value_name = "PLAYER", value_parser = whom)]
    whom: Vec<Whom>,
    /// An address or a prefix; may be given more than once
    #[arg(long, alias = "prefix", value_name = "PREFIX", value_parser = prefix)]
    address: Vec<Prefix>,
    /// A player of netcode listeners, by the client id in its token; may be given more than once
    #[arg(long, alias = "client", value_name = "ID", value_parser = client)]
    client_id: Vec<u64>,
}

impl WhomArgs {
    fn all(&self) -> Result<Vec<Whom>, Failure> {
        let addresses = self.address.iter().map(|it| Whom::Prefix(*it));
        let clients = self.client_id.iter().map(|it| Whom::Client(*it));
        let whom: Vec<_> = self.whom.iter().copied().chain(addresses).chain(clients).collect();
        if whom.is_empty() {
            return Err(Failure::bad_input("expected a client id, an address or a prefix"));
        }
        Ok(whom)
    }
}

fn lasts(text: &str) -> Result<Duration, String> {
    values::time_within(
        text,
        SECOND..=TEN_YEARS,
        "a time such as 30m or 24h, from a second to ten years",
    )
}

/// Where a ban of it stands.
fn key(fleet: &Fleet, whom: Whom) -> Result<Bytes, Failure> {
    let place = match whom {
        Whom::Client(id) => Some(Place::BanClient(id)),
        Whom::Prefix(prefix) => IpPrefix::parse(&prefix.to_string(), '/').map(Place::BanPrefix),
    };
    let place = place.ok_or_else(|| {
        Failure::bad_input(format_args!("found {whom}, expected an address or a prefix"))
    })?;
    Ok(fleet.keyspace.key(&place))
}

pub(super) fn deny(args: &DenyArgs) -> Result<(), Failure> {
    let (whom, fleet) = (args.whom.all()?, args.target.find()?);
    let until = args.lasts.map_or(u64::MAX, |it| clock::unix_seconds() + it.as_secs());
    let by = std::env::var("USER").unwrap_or_default();
    let ban = Ban { until, reason: args.reason.clone(), by };
    let value = ban.encode().map_err(Failure::bad_input)?;
    let span = args.lasts.map_or(String::new(), |it| format!(" for {}", utc::span(it.as_secs())));
    let said = format!("{} may not play in this fleet{span}", named(&whom));
    let holders = fleet.ask(async |client| {
        let (there, bytes, latest) = bans(client, &fleet).await?;
        let mut puts = Vec::new();
        for whom in &whom {
            let key = key(&fleet, *whom)?;
            let value = fleet.vouch(&key, &value, latest)?;
            puts.push(Put { key, value, lease: 0 });
        }
        let more: usize = puts.iter().map(|put| put.key.len() + put.value.len()).sum();
        room_for(there, puts.len(), bytes + more)?;
        let lease = match args.lasts {
            Some(lasts) => grant(client, lasts).await?,
            None => 0,
        };
        let mut revision = 0;
        for (done, put) in puts.into_iter().enumerate() {
            let put = Put { lease, ..put };
            let done = format_args!("done before that: {done} of {}", whom.len());
            let written = write(client, &put).await.map_err(|why| away(&why).after(done));
            revision = revision.max(written?);
        }
        let heard = args.wait.until_denied(client, &fleet.keyspace, revision).await;
        heard.map_err(|late| Failure::failed(format_args!("{said}, but {late}")))?;
        holders(client, &fleet).await
    })?;
    print(&format!("{said}\n{holders}"))
}

/// Writes a ban, and returns since when it stands. One that stands already is not written again:
/// gateways hear of what becomes otherwise, and of nothing else.
async fn write(client: &Client, put: &Put) -> Result<i64, Error> {
    let found = client.range(&Range::one(put.key.clone())).await?;
    match found.kvs.first().filter(|kv| kv.value == put.value) {
        Some(kv) => Ok(kv.mod_revision),
        None => client.put(put).await.map(|header| header.revision),
    }
}

/// How many bans there are, their bytes, and the newest word among them.
async fn bans(client: &Client, fleet: &Fleet) -> Result<(i64, usize, u64), Failure> {
    let (mut there, mut bytes, mut latest) = (0, 0, 0);
    let mut page = Some(Range { limit: PAGE_KEYS, ..Range::prefix(&fleet.keyspace.bans()) });
    while let Some(range) = page {
        let ranged = client.range(&range).await.map_err(|why| away(&why))?;
        there += ranged.kvs.len() as i64;
        bytes += ranged.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum::<usize>();
        latest = latest.max(fleet.latest(&ranged.kvs)?);
        let last = ranged.kvs.last().filter(|_| ranged.more);
        page = last.map(|last| Range { key: key_after(&last.key), ..range });
    }
    Ok((there, bytes, latest))
}

/// More bans than everybody copies would be obeyed by nobody.
fn room_for(there: i64, more: usize, bytes: usize) -> Result<(), Failure> {
    if there.saturating_add(more as i64) > BANS_MAX as i64 || bytes > BAN_BYTES_MAX {
        return Err(Failure::failed(format_args!(
            "there are {} bans already, and {} or {} MiB is the most that are obeyed: lift some \
             (`ringgate fleet allow`), or deny prefixes instead of many addresses",
            count(there as u64),
            count(BANS_MAX as u64),
            BAN_BYTES_MAX >> 20
        )));
    }
    Ok(())
}

/// Who holds news back. A ban that is the fleet's word holds there all the same; another does not,
/// and none is lifted there.
async fn holders(client: &Client, fleet: &Fleet) -> Result<String, Failure> {
    Survey::take(client, &fleet.keyspace).await.map(|survey| survey.tell_holders())
}

/// A lease as long as a ban. It is not shorter: etcd rounds up.
async fn grant(client: &Client, lasts: Duration) -> Result<i64, Failure> {
    let seconds = i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX);
    client.grant(seconds).await.map(|lease| lease.id).map_err(|why| away(&why))
}

pub(super) fn allow(args: &AllowArgs) -> Result<(), Failure> {
    let (whom, fleet) = (args.whom.all()?, args.target.find()?);
    let named = named(&whom);
    let (was, holders) = fleet.ask(async |client| {
        let survey = Survey::take(client, &fleet.keyspace).await?;
        let (mut was, mut revision) = (0, 0);
        for whom in &whom {
            let key = key(&fleet, *whom)?;
            let deleted = client.delete(&Delete { key, ..Delete::default() }).await;
            let deleted = deleted.map_err(|why| away(&why))?;
            if survey.bans.iter().any(|(banned, _)| banned == whom) {
                was += 1;
                revision = deleted.revision;
            }
        }
        let heard = args.wait.until_denied(client, &fleet.keyspace, revision).await;
        heard.map_err(|late| Failure::failed(format_args!("{named} may play, but {late}")))?;
        Ok((was, survey.tell_holders()))
    })?;
    print(&match was {
        0 => format!("{named} was not denied in this fleet\n{holders}"),
        _ => format!("{named} may play\n{holders}"),
    })
}

pub(super) fn denied(args: &DeniedArgs) -> Result<(), Failure> {
    let fleet: Fleet = args.target.find()?;
    let survey = fleet.ask(async |client| Survey::of_some(client, &fleet.keyspace).await)?;
    let now_s = clock::unix_seconds();
    print(&if args.json { json(&survey, now_s) } else { render(&survey, now_s) })
}

pub(super) fn render(survey: &Survey, now_s: u64) -> String {
    let mut table = Table::new("who, until, left:, by, reason");
    let mut rows = 0;
    for (whom, ban) in survey.bans.iter().filter(|(_, ban)| ban.holds(now_s)) {
        let ends = ban.until != u64::MAX;
        let until = if ends { utc::date(ban.until) } else { "told otherwise".to_owned() };
        let left = if ends { utc::span(ban.until - now_s) } else { String::new() };
        table.row([whom.to_string(), until, left, ban.by.clone(), ban.reason.clone()]);
        rows += 1;
    }
    if rows == 0 {
        return "nobody is denied in this fleet\n".to_owned();
    }
    let mut text = table.to_string();
    writeln!(text, "\n{} rules", count(rows));
    text
}

fn json(survey: &Survey, now_s: u64) -> String {
    let one = |(whom, ban): &(Whom, Ban)| {
        let (client, prefix) = match whom {
            Whom::Client(id) => (Some(id.to_string()), None),
            Whom::Prefix(prefix) => (None, Some(prefix.to_string())),
        };
        let until = Some(ban.until).filter(|it| *it != u64::MAX);
        json!({ "client": client, "prefix": prefix, "until_unix_s": until, "by": ban.by, "reason": ban.reason })
    };
    let holding = survey.bans.iter().filter(|(_, ban)| ban.holds(now_s));
    let rules: Vec<_> = holding.map(one).collect();
    format!("{}\n", json!({ "schema": SCHEMA, "rules": rules }))
}

const SECOND: Duration = Duration::from_secs(1);
const TEN_YEARS: Duration = Duration::from_hours(10 * 365 * 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bans_that_nobody_would_obey_are_refused() {
        let most = BANS_MAX as i64;
        let bytes = BAN_BYTES_MAX;
        assert!(room_for(0, BANS_MAX, bytes).is_ok() && room_for(most - 1, 1, 0).is_ok());
        for (there, more, bytes) in [
            (most, 1, 0),
            (most - 1, 2, 0),
            (0, BANS_MAX + 1, 0),
            (i64::MAX, 1, 0),
            (9, 1, BAN_BYTES_MAX + 1),
        ] {
            let why = room_for(there, more, bytes).expect_err("too many").to_string();
            assert!(why.contains("lift some"), "{why}");
        }
    }
}

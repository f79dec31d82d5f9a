//! `ringgate fleet init` and `ringgate fleet keys`: the keys of listeners, one epoch after another.

use std::collections::BTreeSet;
use std::time::Duration;

use ringgate_fleet::clocks;
use ringgate_fleet::epochs::{self, Epoch, NoNext, Policy, Role};
use ringgate_fleet::etcd::Client;
use ringgate_fleet::etcd::txn::{Delete, Put, Txn};
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::values::Stored;
use ringgate_os::{clock, utc};
use ringgate_report::text::{Append as _, Table};
use serde_json::{Value, json};

use super::super::Failure;
use super::super::exit::print;
use super::survey::{SCHEMA, Survey};
use super::target::{Fleet, Target, away};
use super::wait::{WaitArgs, late};
use ringgate_config::values;

/// Make the first keys of listeners, where they have none
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// Listeners whose gateways take their keys from the fleet
    #[arg(value_name = "LISTENER", required = true, value_parser = listener)]
    listeners: Vec<Name>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    target: Target,
}

/// Make the next keys: gateways accept them, and tokens are minted with them once all have
/// confirmed that
#[derive(Debug, clap::Args)]
pub(super) struct RotateArgs {
    /// Only these listeners [default: all that have keys]
    #[arg(value_name = "LISTENER", value_parser = listener)]
    listeners: Vec<Name>,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Show the keys of listeners: not what they are, but what each is for
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Print them as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct PolicyArgs {
    /// For how long tokens are minted with a new key, if nobody rotates earlier
    #[arg(long, value_name = "TIME", default_value = "720h", value_parser = time)]
    mint_for: Duration,
    /// The longest that a token lives: for so long a key is accepted after that
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    token_life: Duration,
}

impl PolicyArgs {
    const fn policy(self) -> Policy {
        Policy { mint_s: self.mint_for.as_secs(), token_s: self.token_life.as_secs() }
    }
}

fn listener(text: &str) -> Result<Name, String> {
    Name::new(text).ok_or_else(|| format!("found {text:?}, expected the name of a listener"))
}

fn time(text: &str) -> Result<Duration, String> {
    values::time_within(text, MINUTE..=TEN_YEARS, "a time such as 1h or 720h, a minute at least")
}

pub(super) fn init(args: &InitArgs) -> Result<(), Failure> {
    let fleet = args.target.find()?;
    let policy = args.policy.policy();
    let text = fleet.ask(async |client| {
        let survey = Survey::take(client, &fleet.keyspace).await?;
        let mut text = format!("cluster {:x} answers\n", survey.cluster_id);
        for listener in &args.listeners {
            match survey.keys.get(listener).filter(|keys| !keys.is_empty()) {
                Some(keys) => {
                    let last = keys.iter().map(|it| it.number).max().unwrap_or_default();
                    writeln!(text, "{listener}: has key {last} already");
                }
                None => {
                    let made = make_next(&fleet, client, &survey, listener, policy).await?;
                    writeln!(text, "{listener}: made key {}", made.number);
                }
            }
        }
        Ok(text)
    })?;
    print(&text)
}

pub(super) fn rotate(args: &RotateArgs) -> Result<(), Failure> {
    let fleet = args.target.find()?;
    let policy = args.policy.policy();
    let (made, waited) = fleet.ask(async |client| {
        let survey = Survey::take(client, &fleet.keyspace).await?;
        let all: Vec<_> = survey.keys.keys().cloned().collect();
        if all.is_empty() {
            return Err(Failure::bad_input(
                "no listener has a key yet: `ringgate fleet init LISTENER` makes the first ones",
            ));
        }
        if let Some(unknown) = args.listeners.iter().find(|it| !all.contains(it)) {
            let all = all.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
            return Err(Failure::bad_input(format_args!(
                "{unknown} has no key yet ({all} have): `ringgate fleet init {unknown}` makes the first one"
            )));
        }
        let listeners = if args.listeners.is_empty() { all } else { args.listeners.clone() };
        let mut made = Vec::new();
        for listener in listeners {
            match rotate_one(&fleet, client, &survey, listener, policy).await {
                Ok(one) => made.push(one),
                Err(why) => return Ok((made, Err(why))),
            }
        }
        let waited = wait_for(&fleet, client, args.wait, &made).await?;
        Ok((made, Ok(waited)))
    })?;
    // Those that were rotated before one that was not are told as well.
    let (is_through, holders, done) = match waited {
        Ok((is_through, holders)) => (is_through, holders, Ok(())),
        Err(why) if made.is_empty() => return Err(why),
        Err(why) => (false, String::new(), Err(why)),
    };
    if args.json {
        eprint!("{holders}");
        print(&json_made(&made))?;
    } else {
        print(&(text_made(&made, is_through) + &holders))?;
    }
    done
}

async fn rotate_one(
    fleet: &Fleet,
    client: &Client,
    survey: &Survey,
    listener: Name,
    policy: Policy,
) -> Result<Made, Failure> {
    let next = make_next(fleet, client, survey, &listener, policy).await?;
    let over = delete_over(fleet, client, survey, &listener).await?;
    Ok((listener, next, over))
}

/// What a rotation made, and which epochs it has deleted.
type Made = (Name, Epoch, Vec<u32>);

/// Makes a listener's next key. Of two operators who do so at once one is told to look again.
async fn make_next(
    fleet: &Fleet,
    client: &Client,
    survey: &Survey,
    listener: &Name,
    policy: Policy,
) -> Result<Epoch, Failure> {
    let now_s = clock::unix_seconds();
    if clocks::is_ahead(now_s, survey.writers().into_values()) {
        return Err(Failure::failed(format_args!(
            "{listener}: this host's clock is ahead of every gateway, token service and agent: by it no key is made"
        )));
    }
    let keys = survey.keys.get(listener).map_or(&[][..], Vec::as_slice);
    if let Some(until_s) = epochs::crowded_until(now_s, keys) {
        return Err(Failure::failed(format_args!(
            "{listener}: gateways accept {} keys, and tokens of the oldest of them may live until {}: no other one is made before",
            epochs::ACCEPTED_MAX,
            utc::date(until_s)
        )));
    }
    let minted = survey.minted(listener, now_s);
    let next = epochs::next(now_s, keys, minted, policy).map_err(|why| match why {
        NoNext::Pending(number) => Failure::failed(format_args!(
            "{listener}: key {number} waits for {}: one rotation has to be through before the next begins",
            waits_for(survey, listener, number)
        )),
        NoNext::Exhausted => Failure::failed(format_args!("{listener}: epochs have come to their end")),
    })?;
    let place = fleet.keyspace.key(&Place::Key(listener.clone(), next.number));
    let sealed = fleet.key()?.seal(&place, next.validity, &Fleet::new_key()?);
    let sealed = sealed.map_err(Failure::no_random_numbers)?;
    let value = sealed.encode().map_err(Failure::failed)?;
    let txn = Txn::claim(Put { key: place, value, lease: 0 });
    let decided = client.txn(&txn).await.map_err(|why| away(&why))?;
    if !decided.held {
        return Err(Failure::failed(format_args!(
            "{listener}: somebody else has made key {} meanwhile",
            next.number
        )));
    }
    Ok(next)
}

/// The gateways that have not confirmed an epoch.
fn waits_for(survey: &Survey, listener: &Name, number: u32) -> String {
    let confirmed = survey.confirmed(listener.as_str());
    let missing = confirmed.iter().filter(|(_, list)| !list.is_empty() && !list.contains(&number));
    let names: Vec<_> = missing.map(|(name, _)| late(name, &survey.gateways[*name])).collect();
    if names.is_empty() { "its time".to_owned() } else { names.join(", ") }
}

async fn delete_over(
    fleet: &Fleet,
    client: &Client,
    survey: &Survey,
    listener: &Name,
) -> Result<Vec<u32>, Failure> {
    let keys = survey.keys.get(listener).map_or(&[][..], Vec::as_slice);
    let confirmed = survey.confirmed(listener.as_str());
    let lists: Vec<_> = confirmed.iter().map(|(_, list)| *list).collect();
    let over = epochs::over(clock::unix_seconds(), keys, &lists);
    for number in &over {
        let key = fleet.keyspace.key(&Place::Key(listener.clone(), *number));
        client.delete(&Delete { key, ..Delete::default() }).await.map_err(|why| away(&why))?;
    }
    Ok(over)
}

/// Waits until tokens are minted with the new keys, where that is asked for. Whether they are, and
/// who holds news back.
async fn wait_for(
    fleet: &Fleet,
    client: &Client,
    wait: WaitArgs,
    made: &[Made],
) -> Result<(bool, String), Failure> {
    let mut holders = Survey::take(client, &fleet.keyspace).await?.tell_holders();
    let names_of_late = async || {
        let survey = Survey::take(client, &fleet.keyspace).await.map_err(|why| why.to_string())?;
        holders = survey.tell_holders();
        let now_s = clock::unix_seconds();
        let is_late =
            |(listener, next, _): &&Made| survey.minted(listener, now_s) < Some(next.number);
        let late = made.iter().filter(is_late);
        let names = late.map(|(listener, next, _)| waits_for(&survey, listener, next.number));
        Ok(names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", "))
    };
    match wait.until_nobody_is(names_of_late).await {
        Ok(is_through) => Ok((is_through, holders)),
        Err(late) => {
            eprint!("{holders}");
            let keys =
                made.iter().map(|(listener, next, _)| format!("{listener}: key {}", next.number));
            let keys = keys.collect::<Vec<_>>().join(", ");
            Err(Failure::failed(format_args!("{keys} is made, but {late}")))
        }
    }
}

fn text_made(made: &[Made], is_through: bool) -> String {
    let mut text = String::new();
    for (listener, next, over) in made {
        let Epoch { number, validity } = next;
        let when = if is_through {
            "is minted with now"
        } else {
            "is minted with once all gateways have confirmed it"
        };
        let until = utc::date(validity.mint_until);
        writeln!(text, "{listener}: key {number} {when}, until {until}");
        for number in over {
            writeln!(text, "{listener}: key {number} was over, and is deleted");
        }
    }
    text
}

fn json_made(made: &[Made]) -> String {
    let one = |(listener, next, over): &Made| json!({ "listener": listener.as_str(), "epoch": next.number, "validity": next.validity, "deleted": over });
    let made: Vec<_> = made.iter().map(one).collect();
    format!("{}\n", json!({ "schema": SCHEMA, "made": made }))
}

pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    let fleet = args.target.find()?;
    let survey = fleet.ask(async |client| Survey::of_some(client, &fleet.keyspace).await)?;
    let now_s = clock::unix_seconds();
    print(&if args.json { json_list(&survey, now_s) } else { text_list(&survey, now_s) })
}

/// A key with what it is for, and by how many gateways it is confirmed.
pub(super) struct Row<'a> {
    pub(super) listener: &'a Name,
    pub(super) epoch: Epoch,
    pub(super) role: Role,
    pub(super) confirmed: usize,
    pub(super) gateways: usize,
}

pub(super) fn rows(survey: &Survey, now_s: u64) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (listener, keys) in &survey.keys {
        let minted = survey.minted(listener, now_s);
        let confirmed = survey.confirmed(listener.as_str());
        let mut keys = keys.clone();
        keys.sort_unstable_by_key(|it| it.number);
        rows.extend(keys.into_iter().map(|epoch| Row {
            listener,
            epoch,
            role: epochs::role(now_s, &epoch, minted),
            confirmed: confirmed.iter().filter(|(_, it)| it.contains(&epoch.number)).count(),
            gateways: confirmed.len(),
        }));
    }
    rows
}

fn text_list(survey: &Survey, now_s: u64) -> String {
    let rows = rows(survey, now_s);
    if rows.is_empty() {
        return "no listener has a key (`ringgate fleet init LISTENER` makes the first)\n"
            .to_owned();
    }
    let mut table = Table::new("listener, key:, is, minted until, accepted until, confirmed by:");
    for Row { listener, epoch, role, confirmed, gateways } in rows {
        table.row([
            listener.to_string(),
            epoch.number.to_string(),
            role.name().to_owned(),
            utc::date(epoch.validity.mint_until),
            utc::date(epoch.validity.accept_until),
            format!("{confirmed} of {gateways}"),
        ]);
    }
    table.to_string()
}

pub(super) fn row_json(row: &Row<'_>) -> Value {
    json!({
        "listener": row.listener.as_str(), "epoch": row.epoch.number, "role": row.role.name(),
        "validity": row.epoch.validity, "confirmed": row.confirmed, "gateways": row.gateways,
    })
}

fn json_list(survey: &Survey, now_s: u64) -> String {
    let keys: Vec<_> = rows(survey, now_s).iter().map(row_json).collect();
    format!("{}\n", json!({ "schema": SCHEMA, "keys": keys }))
}

const MINUTE: Duration = Duration::from_mins(1);
const TEN_YEARS: Duration = Duration::from_hours(10 * 365 * 24);

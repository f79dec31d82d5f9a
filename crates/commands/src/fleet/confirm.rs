//! `ringgate fleet confirm`: an operator believes what is held back. One process is told so at its
//! control socket, all of them by a word of the fleet's key in etcd.

use std::path::Path;
use std::time::Duration;

use ringgate_fleet::etcd::Client;
use ringgate_fleet::etcd::kv::Range;
use ringgate_fleet::etcd::txn::Put;
use ringgate_fleet::keyspace::Place as Key;
use ringgate_fleet::values::{Confirmation, Stored};
use ringgate_os::clock::{self, Clock};
use ringgate_report::text::Append as _;
use serde::Deserialize;

use super::super::admin::{Answer, Place};
use super::super::exit::print;
use super::super::{Failure, config_file};
use super::survey::Survey;
use super::target::{Fleet, away};

/// Have a gateway, or the whole fleet, obey the news that it holds back
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The number of what is held back, as `ringgate status` and the log tell it
    #[arg(value_name = "NUMBER", required_unless_present = "all", conflicts_with = "all")]
    doubt: Option<u64>,
    /// Everything that anybody holds back of what etcd says now, with the fleet's key of the config
    #[arg(long, conflicts_with_all = ["control", "admin"])]
    all: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Deserialize)]
struct Outcome {
    confirmed: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let file = || args.place.config().map(Path::to_owned).or_else(config_file::of_host);
    match args.doubt {
        Some(number) => one(&args.place, number),
        None => {
            all(&file().ok_or_else(|| Failure::bad_input("expected --config FILE with [fleet]"))?)
        }
    }
}

fn one(place: &Place, number: u64) -> Result<(), Failure> {
    let admin = place.find()?;
    let Answer { status, body } = admin.post(&format!("/fleet/confirm?doubt={number}"))?;
    match (status, serde_json::from_str(&body)) {
        (200, Ok(Outcome { confirmed: true })) => {
            print(&format!("confirmed {number}: the gateway obeys what etcd tells\n"))
        }
        (200, Ok(Outcome { confirmed: false })) => Err(Failure::bad_input(format_args!(
            "the gateway does not hold back anything under the number {number}"
        ))),
        (404, _) => {
            Err(Failure::bad_input("the gateway is in no fleet: its config has no [fleet]"))
        }
        (400 | 409, _) => Err(Failure::bad_input(body.trim_end())),
        _ => Err(admin.unexpected(status, &body)),
    }
}

fn all(file: &Path) -> Result<(), Failure> {
    let fleet = Fleet::of(file)?;
    fleet.key()?;
    let (before, after) = fleet.ask(async |client| {
        let survey = Survey::take(client, &fleet.keyspace).await?;
        write(&fleet, client, &survey).await?;
        let after = wait(&fleet, client).await?;
        Ok((survey, after))
    })?;
    let mut held = String::new();
    for holder in before.holders() {
        writeln!(held, "{holder}");
    }
    let left = after.holders();
    if let Some(first) = left.first() {
        return Err(Failure::failed(format_args!(
            "{held}{} still hold news back, such as {first}: ask there (`ringgate fleet confirm NUMBER`)",
            left.len()
        )));
    }
    print(&format!("{held}everybody obeys what etcd tells\n"))
}

/// The word that what was looked at is to be believed.
async fn write(fleet: &Fleet, client: &Client, survey: &Survey) -> Result<(), Failure> {
    let word = Confirmation {
        cluster: format!("{:x}", survey.cluster_id),
        revision: survey.revision,
        at: clock::unix_seconds(),
        by: std::env::var("USER").unwrap_or_default(),
    };
    let key = fleet.keyspace.key(&Key::Confirm);
    let before = client.range(&Range::one(key.clone())).await.map_err(|why| away(&why))?;
    let latest = fleet.latest(&before.kvs)?;
    let value = fleet.vouch(&key, &word.encode().map_err(Failure::bad_input)?, latest)?;
    client.put(&Put { key, value, lease: 0 }).await.map(drop).map_err(|why| away(&why))
}

/// Until everybody says that nothing is held back, or that takes too long.
async fn wait(fleet: &Fleet, client: &Client) -> Result<Survey, Failure> {
    let clock = Clock::start();
    loop {
        let survey = Survey::take(client, &fleet.keyspace).await?;
        if survey.holders().is_empty() || clock.now_ns() > WAIT_NS_MAX {
            return Ok(survey);
        }
        tokio::time::sleep(WAIT_STEP).await;
    }
}

/// A list that is in doubt is read again every ten seconds.
const WAIT_NS_MAX: u64 = 30_000_000_000;
const WAIT_STEP: Duration = Duration::from_millis(300);

//! Waiting until every gateway of a fleet goes by what a command has written, for so long and no
//! longer: then the command names the gateways that do not.

use std::collections::BTreeMap;
use std::time::Duration;

use ringgate_fleet::etcd::kv::Range;
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::values::{Gateway, Stored};
use ringgate_os::utc;

use ringgate_config::values;

/// Whether to wait, and how long
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct WaitArgs {
    /// Come back only when every gateway goes by it; after TIME (30s where none is said) the
    /// gateways are named that do not, with exit code 1
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "30s", value_parser = time)]
    wait: Option<Duration>,
}

fn time(text: &str) -> Result<Duration, String> {
    values::time_within(text, SECOND..=DAY, "a time such as 30s, from a second to 24h")
}

impl WaitArgs {
    /// Waits for the gateways to deny by this revision. Fails with a sentence.
    pub(super) async fn until_denied(
        self,
        client: &Client,
        keyspace: &Keyspace,
        revision: i64,
    ) -> Result<(), String> {
        let late = async || {
            let known = gateways(client, keyspace).await.map_err(|why| why.to_string())?;
            Ok(names_of_late(&known, revision))
        };
        self.until_nobody_is(late).await.map(drop)
    }

    /// Waits until nobody is late; whether that was asked for. Fails with a sentence.
    pub(super) async fn until_nobody_is(
        self,
        mut names_of_late: impl AsyncFnMut() -> Result<String, String>,
    ) -> Result<bool, String> {
        let Some(within) = self.wait else { return Ok(false) };
        let mut late = "etcd has not told which gateways there are".to_owned();
        let hearing = async {
            loop {
                match names_of_late().await {
                    Ok(names) => late = names,
                    Err(why) => late = format!("etcd does not tell which gateways know: {why}"),
                }
                if late.is_empty() {
                    return;
                }
                tokio::time::sleep(STEP).await;
            }
        };
        if tokio::time::timeout(within, hearing).await.is_ok() {
            return Ok(true);
        }
        let span = utc::span(within.as_secs());
        Err(format!("not every gateway has confirmed that within {span}: {late}"))
    }
}

/// The gateways that are registered.
pub(super) async fn gateways(
    client: &Client,
    keyspace: &Keyspace,
) -> Result<BTreeMap<Name, Gateway>, Error> {
    let found = client.range(&Range::prefix(&keyspace.gateways())).await?;
    let read = |(place, value): (Option<Place>, &[u8])| match place {
        Some(Place::Gateway(name)) => Some((name, Gateway::decode(value).ok()?)),
        _ => None,
    };
    Ok(found.kvs.iter().filter_map(|kv| read((keyspace.place(&kv.key), &kv.value))).collect())
}

/// The gateways that do not deny by this revision yet, and why where that is known; empty where
/// all do.
pub(super) fn names_of_late(gateways: &BTreeMap<Name, Gateway>, revision: i64) -> String {
    let denied = |it: &Gateway| it.denied.filter(|_| it.tells_of_this_history());
    let of = |(name, gateway): (&Name, &Gateway)| match denied(gateway) {
        Some(denied) if denied >= revision => None,
        None if gateway.doubt == 0 => Some(format!("{name} (a release that does not tell)")),
        _ => Some(late(name, gateway)),
    };
    gateways.iter().filter_map(of).collect::<Vec<_>>().join(", ")
}

/// A gateway that has not confirmed something, and why where that is known.
pub(super) fn late(name: &Name, gateway: &Gateway) -> String {
    match gateway.doubt {
        0 => name.to_string(),
        number => format!("{name} (holds news back under number {number})"),
    }
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);
const STEP: Duration = Duration::from_millis(100);

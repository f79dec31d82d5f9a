//! `ringgate fleet doctor`: what in a fleet is not as it should be, and what to do about it.
//!
//! It reads, and watches gateways, token services and agents for a while: what they write tells
//! their clocks. A gateway writes under which number it holds news back; what that is, it says
//! itself (`ringgate status`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringgate_fleet::epochs::{self, Policy, Role};
use ringgate_fleet::etcd::kv::end_of_prefix;
use ringgate_fleet::etcd::{Client, Endpoint, Options};
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::mirror::face::BANS_MAX;
use ringgate_fleet::values::agent::DELIVERY;
use ringgate_fleet::values::gateway::misfits;
use ringgate_fleet::values::{Agent, Backend, Gateway, Listener, Reach, Service, Stored};
use ringgate_os::clock::{self, Clock};
use ringgate_os::utc;
use ringgate_report::text::Append as _;

use super::super::Failure;
use super::super::doctor::{Finding, conclude};
use super::keys::rows;
use super::survey::{Holder, Survey, of_agent, of_service};
use super::target::{Fleet, Target, runtime};
use ringgate_config::values;

/// Look for what is wrong in a fleet, and say what to do about it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How long gateways, token services and agents are watched, to compare their clocks
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = time)]
    watch: Duration,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

fn time(text: &str) -> Result<Duration, String> {
    values::time_within(text, ..=WATCH_MAX, "a duration such as 12s, 10m at most")
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let fleet = args.target.find()?;
    let runtime = runtime()?;
    let mut findings = runtime.block_on(members(&fleet));
    let client = fleet.client()?;
    let survey = runtime.block_on(Survey::take(&client, &fleet.keyspace))?;
    findings.push(runtime.block_on(space(&client)));
    findings.extend(examine(&survey, clock::unix_seconds()));
    let clocks = runtime.block_on(watch(&client, &fleet, &survey, args.watch));
    findings.push(clock_finding(&survey, &clocks, args.watch));
    conclude(&findings, args.json)
}

/// Whether each member of etcd answers, and tells of the same cluster.
async fn members(fleet: &Fleet) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut clusters = BTreeMap::new();
    for endpoint in &fleet.options.endpoints {
        let what = format!("etcd {endpoint}");
        match answer_of(fleet, endpoint).await {
            Ok((cluster, ms)) => {
                clusters.insert(cluster, endpoint.to_string());
                let finding = Finding::ok(what, format!("cluster {cluster:x}, answers in {ms} ms"));
                findings.push(if ms <= SLOW_MS {
                    finding
                } else {
                    finding.could(
                        "the fleet learns late of what changes",
                        "look at its disk and network",
                    )
                });
            }
            Err(why) => findings.push(Finding::ok(what, format!("no answer: {why}")).could(
                "the others serve; one more that fails may be one too many",
                "start it, or take it out of the endpoints",
            )),
        }
    }
    if clusters.len() > 1 {
        let found = format!("{} different ones answer", clusters.len());
        findings.push(Finding::ok("etcd clusters", found).bites(
            "gateways that speak with one do not see what stands in the other, and hold it back",
            "name members of one cluster as endpoints",
        ));
    }
    findings
}

async fn answer_of(fleet: &Fleet, endpoint: &Endpoint) -> Result<(u64, u64), String> {
    let options = Options { endpoints: vec![endpoint.clone()], ..fleet.options.clone() };
    let client = Client::new(options).map_err(|why| why.to_string())?;
    // What a user may read who has rights on the fleet's prefix alone.
    let mut range = ringgate_fleet::etcd::kv::Range::one(fleet.keyspace.truth());
    range.count_only = true;
    client.range(&range).await.map_err(|why| why.to_string())?;
    // The first answer has paid for the connection.
    let clock = Clock::start();
    let ranged = client.range(&range).await.map_err(|why| why.to_string())?;
    Ok((ranged.header.cluster_id, clock.now_ns() / 1_000_000))
}

/// Whether etcd takes writes. A lease that ends at once is the least of them.
async fn space(client: &Client) -> Finding {
    match client.grant(1).await {
        Ok(_) => Finding::ok("etcd's space", "it takes writes"),
        Err(why) if why.lacks_space() => Finding::ok("etcd's space", why.to_string()).bites(
            "nothing new is registered, nothing can be banned, rotated or claimed",
            "etcdctl compact, etcdctl defrag on each member, etcdctl alarm disarm; and a larger --quota-backend-bytes",
        ),
        Err(why) => Finding::ok("etcd's space", format!("no lease was granted: {why}")).bites(
            "whoever registers needs one",
            "look at etcd's log, and at what this user may do",
        ),
    }
}

/// How many are banned, and whether that is more than is obeyed.
fn bans(survey: &Survey) -> Finding {
    let there = survey.bans.len();
    let finding = Finding::ok("bans", format!("{there} of {BANS_MAX}"));
    if there <= BANS_MAX / 10 * 9 {
        return finding;
    }
    finding.bites(
        "what is beyond that is not obeyed, and commands refuse it",
        "ringgate fleet allow for some, or prefixes in place of many addresses",
    )
}

/// Everything that one look can tell.
pub(super) fn examine(survey: &Survey, now_s: u64) -> Vec<Finding> {
    let mut findings = vec![versions(survey), leases(survey), unreadable(survey), reach(survey)];
    findings.push(bans(survey));
    findings.extend(clusters(survey));
    findings.extend(doubts(survey));
    findings.extend(stale(survey, now_s));
    findings.extend(epochs_of(survey, now_s));
    findings
}

fn versions(survey: &Survey) -> Finding {
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    let gateways = survey.gateways.values().map(|it| it.version.as_str());
    let services = survey.services.values().map(|it| it.version.as_str());
    let agents = survey.agents.values().map(|it| it.version.as_str());
    for version in gateways.chain(services).chain(agents) {
        *versions.entry(version).or_default() += 1;
    }
    let list: Vec<_> = versions.iter().map(|(version, n)| format!("{version} ({n})")).collect();
    let found = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let finding = Finding::ok("versions", found);
    if versions.len() <= 1 {
        return finding;
    }
    finding
        .could("fine during an upgrade, and not for long", "`ringgate upgrade` on the older ones")
}

fn leases(survey: &Survey) -> Finding {
    let Some(first) = survey.lasting.first() else {
        return Finding::ok("leases", "every registration ends with its process");
    };
    let found = format!("{} registrations have none, such as {first}", survey.lasting.len());
    Finding::ok("leases", found).bites(
        "they stay when their process is gone, and players are sent there",
        format!("etcdctl del {first}, and register through a lease"),
    )
}

/// Processes that do not believe what they see in etcd.
fn doubts(survey: &Survey) -> impl Iterator<Item = Finding> {
    survey.holders().into_iter().map(|Holder { name, doubt, what }| {
        Finding::ok(name, format!("holds back under number {doubt}: {what}")).bites(
            "it keeps what it knew of that; where that is all, only what the fleet's key vouches for and what is newer is obeyed, and nothing is lifted",
            format!("its status says why; `ringgate fleet confirm --all` has it believed, and so does `ringgate fleet confirm {doubt}` there"),
        )
    })
}

/// Those of them whose lease lives, and that write nothing.
fn stale(survey: &Survey, now_s: u64) -> impl Iterator<Item = Finding> {
    let age_s = move |written: u64| now_s.saturating_sub(written);
    let silent = survey.writers().into_iter().filter(move |(_, it)| age_s(*it) > SILENT_MAX_S);
    silent.map(move |(name, written)| {
        let found = format!("has written nothing for {} s, and its lease lives", age_s(written));
        Finding::ok(name, found).bites(
            "what it says of itself is old: it is stuck, its clock is behind, or somebody else keeps its lease",
            "look at its log and its clock; without it: etcdctl lease revoke",
        )
    })
}

fn unreadable(survey: &Survey) -> Finding {
    let Some((key, why)) = survey.unreadable.first() else {
        return Finding::ok("values", "all can be read");
    };
    let found = format!("{} cannot be read, such as {key}: {why}", survey.unreadable.len());
    Finding::ok("values", found)
        .bites("what cannot be read is as good as gone", format!("etcdctl get {key}"))
}

/// Backends that no gateway reaches.
fn reach(survey: &Survey) -> Finding {
    let out: Vec<&Name> = survey
        .backends
        .iter()
        .filter(|(name, it)| !survey.is_reached(name, it))
        .map(|(name, _)| name)
        .collect();
    let Some(first) = out.first() else {
        return Finding::ok("reach", "every backend has a gateway that leads to it");
    };
    let found = format!("no gateway reaches {} backends, such as {first}", out.len());
    Finding::ok("reach", found).bites(
        "no players are sent there",
        "a gateway with a listener of that group: on that host (`host` has to be the same in both, and `run_dir` for a bundle link), or one that its agent is \
         connected to (`ringgate status` at the agent's control socket says why it is not); and the game process has to be there (`ringgate status` at the gateway)",
    )
}

/// What does not fit together in each cluster, and whose sessions a death ends.
fn clusters(survey: &Survey) -> Vec<Finding> {
    let mut clusters: BTreeMap<&str, Vec<(&Name, &Gateway)>> = BTreeMap::new();
    for (name, gateway) in &survey.gateways {
        if let Some(cluster) = &gateway.cluster {
            clusters.entry(&cluster.name).or_default().push((name, gateway));
        }
    }
    clusters.iter().flat_map(|(cluster, members)| of_cluster(survey, cluster, members)).collect()
}

fn of_cluster(survey: &Survey, cluster: &str, members: &[(&Name, &Gateway)]) -> Vec<Finding> {
    let what = format!("cluster {cluster}");
    let names: Vec<_> = members.iter().map(|(name, _)| name.as_str()).collect();
    let mut findings = Vec::new();
    for (index, (here, own)) in members.iter().enumerate() {
        for (there, other) in &members[index + 1..] {
            let differs = misfits(&own.listeners, &other.listeners).into_iter();
            findings.extend(differs.map(|why| {
                let found = format!("{here} (here) and {there} (there) do not fit: {why}");
                Finding::ok(what.clone(), found).bites(
                    "players whom the router sends to the other of them are lost",
                    "the same there in both configs; a key of the fleet is in both once each has confirmed it (ringgate fleet status)",
                )
            }));
        }
    }
    if let [alone] = names[..] {
        findings.push(Finding::ok(what.clone(), format!("{alone} is alone in it")).could(
            "its sessions end with it",
            "start the others, with the same cluster.name and fleet.prefix",
        ));
    }
    let is_half_reached = |(_, backend): &(&Name, &Backend)| {
        let mut leading = members
            .iter()
            .filter(|(_, it)| it.listeners.iter().any(|it| it.group() == backend.group));
        let reaches = |(own, it): &(&Name, &Gateway)| it.reaches(own.as_str(), backend);
        let [some, all] = [leading.clone().any(reaches), leading.all(reaches)];
        some && !all
    };
    let mut half_reached = survey.backends.iter().filter(is_half_reached);
    if let Some((first, _)) = half_reached.next() {
        let found = format!(
            "{} backends are reached by some of its gateways alone, such as {first}",
            1 + half_reached.count()
        );
        findings.push(Finding::ok(what.clone(), found).could(
            "a gateway that dies ends its sessions there: no other can go on with them",
            "an agent on the backend's host that every gateway of the cluster lets in",
        ));
    }
    let listeners: Vec<_> = members.iter().flat_map(|(_, it)| &it.listeners).collect();
    findings.extend(unarbitrated(survey, &listeners).into_iter().map(|(agent, lacks)| {
        let lacks: Vec<_> = lacks.into_iter().collect();
        let found = format!("agent {agent} says of no {} that it can go on", lacks.join(", "));
        Finding::ok(what.clone(), found).could(
            "such sessions behind it end with their gateway: the agent is of a release before that",
            "replace the agent (ringgate upgrade); players who come after that outlive their gateway",
        )
    }));
    if findings.is_empty() {
        findings.push(Finding::ok(what, format!("{} fit together", names.join(", "))));
    }
    findings
}

/// What the agents of a cluster's backends do not arbitrate of what its listeners' players speak:
/// protocols, and whole messages.
fn unarbitrated<'a>(
    survey: &'a Survey,
    listeners: &[&'a Listener],
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for backend in survey.backends.values() {
        let Reach::Agent(name) = &backend.reach else { continue };
        let Some(agent) = Name::new(name).and_then(|it| survey.agents.get(&it)) else { continue };
        for listener in listeners.iter().filter(|it| it.group() == backend.group) {
            let messages = listener.messages.then_some(DELIVERY);
            let wanted = [listener.protocol.as_str()].into_iter().chain(messages);
            let lacks = wanted.filter(|word| !agent.arbitrates.iter().any(|it| it == word));
            for word in lacks {
                found.entry(name.as_str()).or_default().insert(word);
            }
        }
    }
    found
}

fn epochs_of(survey: &Survey, now_s: u64) -> Vec<Finding> {
    let policy = |it: &epochs::Epoch| Policy {
        mint_s: it.validity.mint_until - it.validity.from,
        token_s: it.validity.accept_until - it.validity.mint_until,
    };
    let mut findings = Vec::new();
    for (listener, keys) in &survey.keys {
        let what = format!("keys of {listener}");
        let minted = survey.minted(listener, now_s);
        let Some(number) = minted else {
            findings.push(Finding::ok(what, "no token can be minted").bites(
                "no key's time is now that every gateway has confirmed",
                "ringgate fleet keys list; ringgate fleet keys rotate",
            ));
            continue;
        };
        let finding = Finding::ok(what, format!("key {number} is minted with"));
        let rows = rows(survey, now_s);
        let waits = rows.iter().find(|row| row.listener == listener && row.role == Role::Next);
        let is_due = keys.last().is_some_and(|it| epochs::is_due(now_s, keys, policy(it)));
        findings.push(match waits {
            Some(row) => {
                let found = format!(
                    "key {} waits: {} of {} gateways have confirmed it",
                    row.epoch.number, row.confirmed, row.gateways
                );
                Finding { found, ..finding }.could(
                    "tokens are minted with the key before, and no rotation can follow",
                    "look at the gateways that have not (ringgate fleet status --json)",
                )
            }
            None if is_due => {
                let last = keys.iter().map(|it| it.validity.mint_until).max().unwrap_or_default();
                finding.could(
                    "less than half of its time is left",
                    format!("ringgate fleet keys rotate, before {}", utc::date(last)),
                )
            }
            None => finding,
        });
    }
    findings
}

/// How far clocks are ahead of this host's, in seconds, as far as it was seen: between these two.
type Clocks = BTreeMap<String, (i64, i64)>;

/// Sees them write. What comes within the time that the news takes was written just now.
async fn watch(client: &Client, fleet: &Fleet, survey: &Survey, lasts: Duration) -> Clocks {
    let (mut clocks, count) = (Clocks::new(), survey.writers().len());
    if count == 0 {
        return clocks;
    }
    let first = fleet.keyspace.truth();
    let watching = async {
        let (end, from) = (end_of_prefix(&first), survey.revision + 1);
        let Ok(mut watch) = client.watch(&first, &end, from).await else { return };
        while let Ok(watched) = watch.next_answer().await {
            let now_s = clock::unix_seconds() as i64;
            for event in watched.events {
                if let Some((name, written)) = writing(fleet, &event.kv.key, &event.kv.value) {
                    // Seconds are cut, so each may be one off.
                    let ahead = written as i64 - now_s;
                    clocks.insert(name, (ahead - 1, ahead + 1));
                }
            }
            if clocks.len() >= count {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(lasts, watching).await;
    clocks
}

/// Who has written this, and when by its own clock.
fn writing(fleet: &Fleet, key: &[u8], value: &[u8]) -> Option<(String, u64)> {
    match fleet.keyspace.place(key)? {
        Place::Gateway(name) => Some((name.to_string(), Gateway::decode(value).ok()?.written)),
        Place::Service(name) => Some((of_service(&name), Service::decode(value).ok()?.written)),
        Place::Agent(name) => Some((of_agent(&name), Agent::decode(value).ok()?.written)),
        _ => None,
    }
}

/// What has not been seen being written can still be known to be in the future.
fn clock_finding(survey: &Survey, clocks: &Clocks, watched: Duration) -> Finding {
    let now_s = clock::unix_seconds() as i64;
    let writers = survey.writers();
    let is_ahead = |it: &(&String, &u64)| *it.1 as i64 - now_s > SKEW_MAX_S;
    if let Some((name, written)) = writers.iter().find(is_ahead) {
        let found = format!("{name} writes that it is {}", utc::date(*written));
        return Finding::ok("clocks", found).bites(CLOCKS_WHY, CLOCKS_CHANGE);
    }
    let ahead = |(low, high): &(i64, i64)| if *low > 0 { *low } else { (*high).min(0) };
    let worst = clocks.iter().max_by_key(|(_, it)| ahead(it).abs());
    let missing = writers.len().saturating_sub(clocks.len());
    let mut found = format!(
        "{} of {} gateways, token services and agents wrote within {watched:?}",
        clocks.len(),
        writers.len()
    );
    if let Some((name, it)) = worst {
        let off = ahead(it);
        write!(found, "; the furthest off is {name}, by {off} s");
        if off.abs() > SKEW_MAX_S {
            return Finding::ok("clocks", found).bites(CLOCKS_WHY, CLOCKS_CHANGE);
        }
    }
    let finding = Finding::ok("clocks", found);
    if missing > 0 {
        return finding.could("the clocks of the others are not known", "--watch for longer");
    }
    finding
}

const CLOCKS_WHY: &str = "tokens are refused as expired, or live longer than they should";
const CLOCKS_CHANGE: &str = "set the clocks (chrony, systemd-timesyncd)";

/// Beyond this, tokens of short life are lost to the difference.
const SKEW_MAX_S: i64 = 2;
/// Every one of them writes once a minute at least.
const SILENT_MAX_S: u64 = 180;
const SLOW_MS: u64 = 100;
const WATCH_MAX: Duration = Duration::from_mins(10);

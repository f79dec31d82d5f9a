//! `POST /deny`, `POST /allow` and `GET /denied`: who may not play, told and shown.

use std::time::Duration;

use hyper::{StatusCode, Uri};
use serde::Serialize;
use serde_json::json;

use super::denying::{Changed, Wish};
use super::http::{AdminState, Command};
use super::sessions::{answer, client_id};
use crate::config::values::number;
use ringgate_os::{clock, utc};
use ringgate_process::object;
use ringgate_process::pages::{Maybe, NotDone, Query, Reply, Visit, Visitor, as_json, note, wrong};
use ringgate_state::{Counts, DenyList, Rule, Whom};

/// `POST /deny?prefix=&client_id=&for_ms=&whole=`; prefixes and clients any number of times.
pub(super) async fn deny(visit: Visit<AdminState>) -> Reply {
    change(&visit, true).await
}

/// `POST /allow`, with the same fields.
pub(super) async fn allow(visit: Visit<AdminState>) -> Reply {
    change(&visit, false).await
}

async fn change(visit: &Visit<AdminState>, is_denied: bool) -> Reply {
    let Visit { site: state, visitor, uri } = visit;
    let wish = wish(uri, is_denied)?;
    let (whom, lasts) = (listed(&wish.whom), wish.lasts);
    let word = if is_denied { "denial" } else { "permission" };
    let span = lasts.map_or(String::new(), |lasts| format!(" for {}", utc::span(lasts.as_secs())));
    note(visitor, &format!("{word} of {whom}{span}"));
    let changed = state.ask(|reply| Command::ChangeDenied { wish, reply }).await?;
    let changed = changed.map_err(|why| (StatusCode::CONFLICT, format!("{why}\n")))?;
    let Changed { effect, survey, ticket } = changed;
    let (ended, complete) = match &survey {
        Some(survey) => {
            let (found, complete) = answer(survey).await;
            (found.count, complete)
        }
        None => (0, true),
    };
    let why_not_kept = match ticket {
        Ok(ticket) => ticket.wait().await.err(),
        Err(why) => Some(why),
    };
    tell(&Told { whom, is_denied, span, ended, why_not_kept: why_not_kept.as_deref() }, visitor);
    let answer = json!({
        "changed": effect.changed,
        "exceptions": effect.exceptions,
        "contrary": effect.contrary,
        "ended": ended,
        "complete": complete,
        "kept": why_not_kept.is_none(),
        "not_kept_because": why_not_kept.as_deref(),
    });
    Ok(as_json(StatusCode::OK, answer))
}

fn wish(uri: &Uri, is_denied: bool) -> Result<Wish, NotDone> {
    let query = Query::of(uri, &["prefix", "client_id", "client", "for_ms", "whole"])?;
    let lasts = query.read("for_ms", "milliseconds, at most ten years", |text| {
        text.parse().ok().filter(|ms| (1..=FOR_MS_MAX).contains(ms)).map(Duration::from_millis)
    })?;
    let is_whole = query.read("whole", "true or false", |text| text.parse().ok())?.unwrap_or(false);
    let prefix = |text: &str| match text.parse() {
        Ok(prefix) => Ok(Whom::Prefix(prefix)),
        Err(why) => Err(wrong(format_args!("prefix: found {text:?}, {why}"))),
    };
    let client = |text: &str| match number(text) {
        Some(id) => Ok(Whom::Client(id)),
        None => Err(wrong(format_args!("client_id: found {text:?}, expected a client id"))),
    };
    let prefixes = query.all("prefix").map(prefix);
    let clients = query.all("client_id").chain(query.all("client")).map(client);
    let whom: Vec<Whom> = prefixes.chain(clients).collect::<Result<_, _>>()?;
    if whom.is_empty() {
        return Err(wrong("expected prefix=PREFIX or client_id=ID"));
    }
    Ok(Wish { whom, is_denied, lasts, is_whole })
}

/// A long list is in the file; the log names its beginning.
fn listed(whom: &[Whom]) -> String {
    let names: Vec<String> = whom.iter().take(NAMES_MAX).map(ToString::to_string).collect();
    match whom.len().saturating_sub(NAMES_MAX) {
        0 => names.join(" "),
        more => format!("{} and {more} more", names.join(" ")),
    }
}

/// What the log says of a change.
struct Told<'a> {
    whom: String,
    is_denied: bool,
    span: String,
    ended: u64,
    why_not_kept: Option<&'a str>,
}

fn tell(told: &Told<'_>, visitor: &Visitor) {
    let Told { whom, is_denied, span, ended, why_not_kept } = told;
    let kept = why_not_kept.is_none();
    if *is_denied {
        tracing::info!(
            event = "denied",
            whom,
            ended,
            kept,
            by = %visitor,
            "{whom} may not play any more{span}: {ended} sessions are ended"
        );
    } else {
        tracing::info!(event = "allowed", whom, kept, by = %visitor, "{whom} may play{span}");
    }
}

/// How many rules there are; `/status` shows the same.
pub(super) fn summary(shown: &super::denying::Shown) -> impl Serialize + use<> {
    let Counts { ipv4, ipv6, exceptions, clients } = shown.counts;
    let not_kept_because = shown.why_not_kept().as_deref().map(str::to_owned);
    object! {
        ipv4,
        ipv6,
        exceptions,
        clients,
        // All of it outlives a restart.
        kept: not_kept_because.is_none(),
        not_kept_because: Maybe(not_kept_because),
    }
}

/// `GET /denied?address=` or `?client_id=`, `&limit=`.
pub(super) async fn show(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, uri, .. } = &visit;
    let query = Query::of(uri, &["address", "client_id", "client", "limit"])?;
    let limit = query.read("limit", "a number up to 100000", |text| {
        text.parse().ok().filter(|limit| *limit <= LIMIT_MAX)
    })?;
    let address = query.read("address", "an address or a prefix", |text| text.parse().ok())?;
    let client = client_id(&query)?;
    let asked = address.map(Whom::Prefix).or_else(|| client.map(Whom::Client));
    let shown = state.view().live().denied.clone();
    let now = (state.view().now_ns(), clock::unix_ns());
    let found: Vec<_> = match asked {
        Some(whom) => shown.list.about(whom),
        None => shown.list.rules().collect(),
    };
    let row = |rule| row(rule, &shown.fleet, now);
    let rows: Vec<_> = found.iter().take(limit.unwrap_or(LIMIT)).copied().map(row).collect();
    let mut page = json!(summary(&shown));
    // How many rules there are of those that were asked for.
    page["count"] = json!(found.len());
    page["rules"] = json!(rows);
    if let Some(rule) = asked.and_then(|whom| shown.list.decides(whom)) {
        // The one that decides about what was asked for.
        page["decides"] = json!(row(rule));
    }
    Ok(as_json(StatusCode::OK, page))
}

fn row(
    (whom, rule): (Whom, Rule),
    fleet: &DenyList,
    (now_ns, unix_ns): (u64, u64),
) -> impl Serialize + use<> {
    let left_ns = rule.until.map(|until_ns| until_ns.saturating_sub(now_ns));
    let (prefix, client) = match whom {
        Whom::Prefix(prefix) => (Some(prefix.to_string()), None),
        Whom::Client(id) => (None, Some(id)),
    };
    let denies = |(it, rule): (Whom, Rule)| it == whom && rule.is_denied;
    let until_unix_s = left_ns.map(|left_ns| unix_ns.saturating_add(left_ns).div_ceil(NS_PER_S));
    object! {
        prefix: Maybe(prefix),
        client_id: Maybe(client),
        client_id_text: Maybe(client.map(|id| id.to_string())),
        // What releases before 0.2 call it.
        client: Maybe(client),
        // `false` for an exception.
        denied: rule.is_denied,
        // The whole fleet denies it: it ends with `ringgate fleet allow`, and not with `allow`.
        fleet: Maybe(fleet.decides(whom).is_some_and(denies).then_some(true)),
        // When it ends, if it does.
        until_unix_s: Maybe(until_unix_s),
        left_s: Maybe(left_ns.map(|left_ns| left_ns.div_ceil(NS_PER_S))),
    }
}

/// Ten years.
const FOR_MS_MAX: u64 = 10 * 365 * 24 * 60 * 60 * 1000;

/// Rules that are shown where the request does not say.
const LIMIT: usize = 1000;
const LIMIT_MAX: usize = 100_000;

/// Whom a log line names.
const NAMES_MAX: usize = 16;

const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn wish_of(query: &str) -> Result<Wish, NotDone> {
        let uri: Uri = format!("/deny?{query}").parse().expect("a path");
        wish(&uri, true)
    }

    #[test]
    fn requests_name_prefixes_clients_and_a_time() {
        let wish = wish_of("prefix=10.0.0.0/8&client=0x2a&prefix=2001:db8::%2F32&for_ms=1000");
        let wish = wish.unwrap_or_else(|(_, why)| panic!("{why}"));
        assert_eq!(listed(&wish.whom), "10.0.0.0/8 2001:db8::/32 client 42");
        assert_eq!((wish.lasts, wish.is_whole), (Some(Duration::from_secs(1)), false));
        for (wrong, said) in [
            ("", "expected prefix="),
            ("prefix=x", "prefix: found \"x\", expected an address"),
            ("client_id=-1", "client_id: found \"-1\", expected a client id"),
            ("client=1&for_ms=0", "for_ms: found \"0\", expected milliseconds"),
            ("client=1&for_ms=999999999999", "for_ms: found"),
            ("client=1&whole=yes", "whole: found \"yes\", expected true or false"),
            ("clients=1", "\"clients\" is not known here"),
        ] {
            let Err((status, why)) = wish_of(wrong) else { panic!("{wrong}") };
            assert!(status == StatusCode::BAD_REQUEST && why.starts_with(said), "{why}");
        }
    }

    #[test]
    fn long_lists_are_cut_for_the_log() {
        let many: Vec<_> = (0..20).map(Whom::Client).collect();
        assert!(listed(&many).ends_with("client 15 and 4 more"), "{}", listed(&many));
    }
}

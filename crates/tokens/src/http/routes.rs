//! What there is, and how each request is served.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use ringgate_fleet::asking::Answers;
use ringgate_fleet::etcd::Client;
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::{Gateway, Question, What};
use ringgate_process::doors::Seat;
use ringgate_process::pages::{Answer, JSON, document, only, text, typed};
use ringgate_report::metrics::CONTENT_TYPE;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::callers::{CallerId, Scope};
use crate::choose::Speaks;
use crate::counters::add;
use crate::desk::{self, Placed, Placing};
use crate::limits::{BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX};
use crate::memory::{Recalled, Ticket};
use crate::refusal::Refusal;
use crate::service::{Plan, Shared};
use crate::wanted::{self, Unfit, WantedAnswers, WantedBatch, WantedPlace, WantedToken};
use crate::{fleet, glance, memory, mint, openapi};

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// One token.
    Tokens,
    /// Many tokens.
    Batch,
    /// A place without a token.
    Places,
    /// An operator's word about what is held back.
    Confirm,
    /// A question to all gateways.
    Ask(What),
    /// The whole fleet, for programs.
    Glance,
    /// The same for people.
    GlancePage,
    /// Whether the process lives.
    Healthz,
    /// Whether requests are served.
    Readyz,
    /// Counters.
    Metrics,
    /// The description of all this.
    OpenApi,
}

impl Route {
    /// Every path that there is.
    pub const ALL: &[(&'static str, Self)] = &[
        ("/v1/tokens", Self::Tokens),
        ("/v1/tokens/batch", Self::Batch),
        ("/v1/places", Self::Places),
        ("/v1/confirm", Self::Confirm),
        ("/v1/sessions", Self::Ask(What::Sessions)),
        ("/v1/kick", Self::Ask(What::Kick)),
        ("/v1/moves", Self::Ask(What::Move)),
        ("/v1/drain", Self::Ask(What::Drain)),
        ("/v1/undrain", Self::Ask(What::Undrain)),
        ("/v1/trace", Self::Ask(What::Trace)),
        ("/v1/fleet", Self::Glance),
        ("/fleet", Self::GlancePage),
        ("/healthz", Self::Healthz),
        ("/readyz", Self::Readyz),
        ("/metrics", Self::Metrics),
        ("/openapi.json", Self::OpenApi),
    ];

    fn of(path: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == path).map(|(_, route)| *route)
    }

    /// What a caller needs; `None` where everybody may ask.
    pub const fn scope(self) -> Option<Scope> {
        match self {
            Self::Tokens | Self::Batch => Some(Scope::Tokens),
            Self::Places => Some(Scope::Places),
            Self::Confirm | Self::Ask(_) => Some(Scope::Admin),
            Self::Glance => Some(Scope::See),
            Self::GlancePage | Self::Healthz | Self::Readyz | Self::Metrics | Self::OpenApi => None,
        }
    }

    /// Whether it takes a body.
    pub const fn is_posted(self) -> bool {
        matches!(self, Self::Tokens | Self::Batch | Self::Places | Self::Confirm | Self::Ask(_))
    }

    const fn body_bytes_max(self) -> usize {
        match self {
            Self::Batch => BATCH_BODY_BYTES_MAX,
            _ => BODY_BYTES_MAX,
        }
    }
}

/// A reason, and more about it where there is more to say.
type Refused = (Refusal, Option<String>);

fn plain(why: Refusal) -> Refused {
    (why, None)
}

/// What a request has behind its head: of a connection, or of whoever asks directly.
pub trait Asked: Body<Data = Bytes, Error: Into<BoxError>> {}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Asked for B {}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Answers a request, whatever it is.
pub async fn answer(
    shared: &Shared,
    client: &Client,
    seat: &Seat,
    request: Request<impl Asked>,
) -> Answer {
    let began_us = shared.now_us();
    let Some(route) = Route::of(request.uri().path()) else {
        return refuse(shared, plain(Refusal::NotFound));
    };
    if !route.is_posted() {
        return match *request.method() {
            Method::GET | Method::HEAD => page(shared, route, seat, request.headers()),
            _ => refuse(shared, plain(Refusal::MethodNotAllowed)),
        };
    }
    let response = match serve(shared, client, route, seat, request).await {
        Ok((status, body)) => json(status, &body),
        Err(refused) => refuse(shared, refused),
    };
    shared.counters.took(shared.now_us().saturating_sub(began_us));
    response
}

async fn serve(
    shared: &Shared,
    client: &Client,
    route: Route,
    seat: &Seat,
    request: Request<impl Asked>,
) -> Result<memory::Answer, Refused> {
    if *request.method() != Method::POST {
        return Err(plain(Refusal::MethodNotAllowed));
    }
    let scope = route.scope().expect("whatever takes a body has one");
    let caller = authorize(shared, request.headers(), scope).map_err(plain)?;
    seat.hold(caller.index());
    if shared.is_stopping() {
        return Err(plain(Refusal::Stopping));
    }
    let key = idempotency_key(request.headers()).map_err(plain)?;
    let body = read_body(request.into_body(), route.body_bytes_max()).await.map_err(plain)?;
    seat.serve(true);
    let Some(key) = key else {
        return serve_once(shared, client, route, caller, &body).await;
    };
    let path = Route::ALL.iter().find(|it| it.1 == route).map_or("", |it| it.0);
    let now_ms = shared.now().ms;
    let recalled = shared.memory().recall(caller, &key, path, &body, now_ms).map_err(plain)?;
    let ticket = match recalled {
        Recalled::New(ticket) => ticket,
        Recalled::Answered(answer) => {
            add(&shared.counters.repeats, 1);
            return Ok(answer);
        }
    };
    let mut pending = Pending { shared, caller, ticket, is_kept: false };
    let answer = serve_once(shared, client, route, caller, &body).await?;
    shared.memory().keep(caller, ticket, &answer);
    pending.is_kept = true;
    Ok(answer)
}

/// A key whose request is under way. Forgotten where there is no answer to keep, be it that the
/// caller has gone.
struct Pending<'a> {
    shared: &'a Shared,
    caller: CallerId,
    ticket: Ticket,
    is_kept: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            let nothing = (StatusCode::SERVICE_UNAVAILABLE.as_u16(), Arc::default());
            self.shared.memory().keep(self.caller, self.ticket, &nothing);
        }
    }
}

fn unfit(Unfit(why): Unfit) -> Refused {
    (Refusal::BodyMalformed, Some(why))
}

async fn serve_once(
    shared: &Shared,
    client: &Client,
    route: Route,
    caller: CallerId,
    body: &[u8],
) -> Result<memory::Answer, Refused> {
    let asking = Asking {
        shared,
        client,
        caller,
        until_ms: shared.now().ms.saturating_add(PLACED_WITHIN_MS),
    };
    let text = match route {
        Route::Tokens => {
            let wanted = WantedToken::parse(body).map_err(unfit)?;
            one_token(&asking, &wanted).await.map_err(plain)?
        }
        Route::Batch => {
            let wanted = WantedBatch::parse(body).map_err(unfit)?;
            batch(&asking, &wanted).await.map_err(plain)?
        }
        Route::Places => {
            let wanted = WantedPlace::parse(body).map_err(unfit)?;
            one_place(&asking, &wanted).await.map_err(plain)?
        }
        Route::Confirm => confirm(shared, body).await?,
        Route::Ask(what) => ask(&asking, what, body).await?,
        _ => return Err(plain(Refusal::NotFound)),
    };
    Ok((StatusCode::OK.as_u16(), Arc::new(Zeroizing::new(text))))
}

/// On whose behalf places are looked for, and until when.
struct Asking<'a> {
    shared: &'a Shared,
    client: &'a Client,
    caller: CallerId,
    /// All tokens of a batch together take no longer.
    until_ms: u64,
}

async fn one_token(asking: &Asking<'_>, wanted: &WantedToken) -> Result<String, Refusal> {
    let placed = place_for(asking, std::slice::from_ref(wanted)).await?;
    mint_one(asking.shared, wanted, (&placed, 0))
}

fn mint_one(
    shared: &Shared,
    wanted: &WantedToken,
    placed: (&Placed, usize),
) -> Result<String, Refusal> {
    let expire_s = shared.desk().rules().expire_s(wanted.expire_s);
    let text = mint::token(wanted, placed, (shared.now().unix_s, expire_s))?;
    add(&shared.counters.tokens, 1);
    Ok(text)
}

/// A place for players who go together.
async fn place_for(asking: &Asking<'_>, players: &[WantedToken]) -> Result<Placed, Refusal> {
    let shared = asking.shared;
    let now = shared.now();
    let (denied, rules) = {
        let desk = shared.desk();
        let is_denied = |it: &WantedToken| desk.known().is_denied(it.client_id, now.unix_s);
        (players.iter().any(is_denied), *desk.rules())
    };
    if denied {
        return Err(Refusal::ClientDenied);
    }
    let first = &players[0];
    let clients: Vec<_> = players.iter().map(|it| it.client_id).collect();
    let protocol_id = first.protocol_id;
    let expire_s = players.iter().map(|it| rules.expire_s(it.expire_s)).max();
    let request = desk::Request {
        place: &first.place,
        speaks: Speaks::Netcode(protocol_id),
        count: players.len() as u32,
        clients: &clients,
        expire_s,
        elsewhere: &[],
    };
    find(asking, &request).await
}

async fn batch(asking: &Asking<'_>, wanted: &WantedBatch) -> Result<String, Refusal> {
    let mut text = String::from("{\"tokens\":[");
    if wanted.together {
        let placed = place_for(asking, &wanted.tokens).await?;
        for (index, token) in wanted.tokens.iter().enumerate() {
            text.push_str(if index == 0 { "" } else { "," });
            text.push_str(&Zeroizing::new(mint_one(asking.shared, token, (&placed, index))?));
        }
    } else {
        for (index, token) in wanted.tokens.iter().enumerate() {
            text.push_str(if index == 0 { "" } else { "," });
            match one_token(asking, token).await {
                Ok(token) => text.push_str(&Zeroizing::new(token)),
                Err(why) => {
                    asking.shared.counters.refuse(why);
                    text.push_str(&mint::refusal(why, None));
                }
            }
        }
    }
    text.push_str("]}");
    Ok(text)
}

async fn one_place(asking: &Asking<'_>, wanted: &WantedPlace) -> Result<String, Refusal> {
    let speaks = Speaks::Unsealed(wanted.protocol);
    let place = &wanted.place;
    let request =
        desk::Request { place, speaks, count: 1, clients: &[], expire_s: None, elsewhere: &[] };
    let placed = find(asking, &request).await?;
    add(&asking.shared.counters.places, 1);
    Ok(mint::place(&placed))
}

/// Finds a place, and leases slots where that takes some.
async fn find(asking: &Asking<'_>, request: &desk::Request<'_>) -> Result<Placed, Refusal> {
    let Asking { shared, client, caller, until_ms } = *asking;
    let group = shared.desk().group(request.place, shared.now())?;
    {
        let mut callers = shared.callers();
        callers.may_ask_for(caller, &group)?;
        callers.spend(caller, request.count, shared.now().ms)?;
    }
    let (mut elsewhere, mut rounds) = (Vec::new(), 0);
    while rounds < ROUNDS && shared.now().ms < until_ms {
        // Before looking, so that no news is missed in between.
        let mut news = pin!(shared.leased.notified());
        news.as_mut().enable();
        let request = desk::Request { elsewhere: &elsewhere, ..*request };
        let step = shared.desk().place(&request, shared.now())?;
        match step {
            Placing::Placed(placed) => {
                shared.keep([&placed.promised]);
                return Ok(*placed);
            }
            Placing::Claim(placed) => {
                if let Some(placed) = fleet::claim(shared, client, placed, &mut elsewhere).await? {
                    shared.keep([&placed.promised]);
                    return Ok(*placed);
                }
            }
            Placing::Lease(backend) => {
                fleet::decide(shared, client, &backend, request.count).await;
            }
            Placing::Wait => {
                // Each claim of a burst is news, and none of them is this request's round.
                let _ = tokio::time::timeout(NEWS_WITHIN, news).await;
                continue;
            }
        }
        rounds += 1;
    }
    Err(Refusal::Busy)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfirmBody {
    doubt: u64,
}

async fn confirm(shared: &Shared, body: &[u8]) -> Result<String, Refused> {
    let ConfirmBody { doubt } = wanted::parse(body).map_err(unfit)?;
    let stands = doubt != 0 && shared.member().doubt() == doubt;
    if stands {
        let said = shared.confirm.send(doubt).await;
        said.map_err(|_| plain(Refusal::Stopping))?;
    }
    Ok(format!("{{\"confirmed\":{stands}}}"))
}

/// Asks gateways of the fleet, and tells what they have answered.
async fn ask(asking: &Asking<'_>, what: What, body: &[u8]) -> Result<String, Refused> {
    let Asking { shared, client, caller, .. } = *asking;
    let WantedAnswers { query, gateways, within_s, for_s } =
        WantedAnswers::parse(what, body).map_err(unfit)?;
    let all: BTreeMap<Name, Gateway> = {
        let desk = shared.desk();
        desk.known().gateways().map(|(name, it)| (name.clone(), it.clone())).collect()
    };
    if let Some(name) = gateways.iter().find(|it| !all.contains_key(*it)) {
        return Err((Refusal::GatewayUnknown, Some(format!("no gateway {name} is registered"))));
    }
    let is_meant = |name: &Name| gateways.is_empty() || gateways.contains(name);
    let meant = all.into_iter().filter(|(name, _)| is_meant(name)).collect();
    let Plan { keyspace, key, name, .. } = &shared.options;
    let by = format!("{} of token service {name}", shared.callers().caller(caller).name);
    tracing::info!(event = "asked", what = what.name(), by, "{by} asks all gateways: {query}");
    let question = Question { at: shared.now().unix_s, by, what, query };
    let fleet = (keyspace.clone(), key.clone());
    let times = (Duration::from_secs(within_s), Duration::from_secs(for_s));
    let answers = Answers::of(client, fleet, &question, meant, times).await;
    let answers = answers.map_err(|why| (Refusal::GatewaysNotAsked, Some(why.to_string())))?;
    Ok(answers.json(what).to_string())
}

fn authorize(shared: &Shared, headers: &HeaderMap, scope: Scope) -> Result<CallerId, Refusal> {
    let shown = only(headers, header::AUTHORIZATION).ok().flatten();
    let callers = shared.callers();
    let caller = shown.and_then(|it| callers.find(it.as_bytes())).ok_or(Refusal::NotAuthorized)?;
    callers.may(caller, scope)?;
    Ok(caller)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let bad = |_| Refusal::IdempotencyKeyBad;
    let key = only(headers, IDEMPOTENCY_KEY).map_err(|_| Refusal::IdempotencyKeyBad)?;
    key.map(|key| key.to_str().map(str::to_owned).map_err(bad)).transpose()
}

async fn read_body(body: impl Asked, bytes_max: usize) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(Refusal::BodyTooLarge);
    }
    let reading = Limited::new(body, bytes_max).collect();
    match tokio::time::timeout(BODY_TIMEOUT, reading).await {
        Err(_) => Err(Refusal::BodyTooSlow),
        Ok(Err(why)) if why.is::<http_body_util::LengthLimitError>() => Err(Refusal::BodyTooLarge),
        Ok(Err(_)) => Err(Refusal::BodyMalformed),
        Ok(Ok(whole)) => Ok(Zeroizing::new(whole.to_bytes().to_vec())),
    }
}

fn page(shared: &Shared, route: Route, seat: &Seat, headers: &HeaderMap) -> Answer {
    match route {
        Route::Glance => {
            glimpse(shared, seat, headers).unwrap_or_else(|why| refuse(shared, plain(why)))
        }
        Route::GlancePage => {
            document(&glance::PAGE).unwrap_or_else(|_| refuse(shared, plain(Refusal::Busy)))
        }
        Route::Healthz => unstored(text(StatusCode::OK, "ok\n")),
        Route::Readyz => ready(shared),
        Route::Metrics => {
            let standing = shared.standing();
            let page = shared.counters.page(&shared.desk(), &standing);
            unstored(typed(StatusCode::OK, CONTENT_TYPE, page))
        }
        _ => unstored(typed(StatusCode::OK, JSON, openapi::DOCUMENT)),
    }
}

fn glimpse(shared: &Shared, seat: &Seat, headers: &HeaderMap) -> Result<Answer, Refusal> {
    seat.hold(authorize(shared, headers, Scope::See)?.index());
    let (now, member) = (shared.now(), shared.member());
    let tell = || glance::tell(&shared.desk(), &shared.options.version, &member, now);
    Ok(unstored(typed(StatusCode::OK, JSON, shared.glance.at(now, tell))))
}

fn ready(shared: &Shared) -> Answer {
    let now = shared.now();
    let verdict =
        if shared.is_stopping() { Err(Refusal::Stopping) } else { shared.desk().readiness(now) };
    let (status, said) = match verdict {
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}: {why}", why.word())),
        Ok(()) if shared.desk().is_away(now) => {
            (StatusCode::OK, "ok; etcd is away: serving by what is known".to_owned())
        }
        Ok(()) => (StatusCode::OK, "ok".to_owned()),
    };
    unstored(text(status, format!("{said}\n{}", shared.member().limits())))
}

fn refuse(shared: &Shared, (why, detail): Refused) -> Answer {
    shared.counters.refuse(why);
    let mut answer = json(why.status(), &mint::refusal(why, detail.as_deref()));
    let header = match why {
        Refusal::NotAuthorized => (header::WWW_AUTHENTICATE, "Bearer"),
        Refusal::QuotaExceeded | Refusal::Busy | Refusal::NoSlot | Refusal::NoGateway => {
            (header::RETRY_AFTER, "1")
        }
        // What is left of a body would be taken for the next request.
        Refusal::BodyTooLarge | Refusal::BodyTooSlow | Refusal::Stopping => {
            (header::CONNECTION, "close")
        }
        _ => return answer,
    };
    answer.headers_mut().insert(header.0, HeaderValue::from_static(header.1));
    answer
}

fn json(status: u16, body: &str) -> Answer {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    unstored(typed(status, JSON, format!("{body}\n")))
}

/// Tokens are for one player, once.
fn unstored(mut answer: Answer) -> Answer {
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a request does something for a place, waiting apart, before others may have its turn.
const ROUNDS: u32 = 16;
const NEWS_WITHIN: Duration = Duration::from_secs(1);
/// How long a request looks for places at all.
const PLACED_WITHIN_MS: u64 = 10_000;

//! Pages by their paths: who may have each, and what answers it. The same for a gateway and an
//! agent.
//!
//! Bodies of requests are not read. `access` decides before any page is made; what is asked for as
//! of now waits for a round of publishing (`fresh`) between the two.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};

use super::access::{self, Right, Visitor};
use super::fresh;

/// An answer.
pub(super) type Response = hyper::Response<Body>;

/// What a request is answered that is not done.
pub(super) type Refusal = (StatusCode, String);

/// What becomes of a request.
pub(super) type Reply = Result<Response, Refusal>;

/// An answer that is being made.
pub(super) type Making<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// All pages of a process, for a door.
pub(super) type Pages = Arc<dyn Fn(Parts, Visitor) -> Making<Response> + Send + Sync>;

/// What pages are made from.
pub(super) trait Site: Clone + Send + Sync + 'static {
    /// Every path that there is. One that is not here does not exist, so a test that walks through
    /// this list has seen all.
    fn pages() -> Vec<Page<Self>>;

    /// What a request may do, by the rules of now.
    fn judge(&self, visitor: &Visitor, head: &Parts) -> Result<Right, access::Refusal>;

    /// Has everything published that pages are made of. Those who did not publish in time.
    fn publish(&self) -> impl Future<Output = Vec<String>> + Send;
}

/// A page, or something that can be asked for.
pub(super) struct Page<S> {
    path: &'static str,
    whom: For,
    make: Box<dyn Fn(Visit<S>) -> Making<Reply> + Send + Sync>,
}

/// Whom a path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Everybody who reaches an address: it changes nothing and shows no player's address.
    Everybody,
    /// Those who may see where players are.
    Trusted,
    /// Those who may change the process.
    Changing,
}

/// A request for a page that may have it.
pub(super) struct Visit<S> {
    pub(super) site: S,
    pub(super) visitor: Visitor,
    pub(super) uri: Uri,
}

impl<S> Page<S> {
    pub(super) fn new<F, M>(path: &'static str, whom: For, make: F) -> Self
    where
        F: Fn(Visit<S>) -> M + Send + Sync + 'static,
        M: Future<Output = Reply> + Send + 'static,
    {
        Self { path, whom, make: Box::new(move |visit| Box::pin(make(visit))) }
    }

    /// What changes something is posted.
    fn method(&self) -> Method {
        if self.whom == For::Changing { Method::POST } else { Method::GET }
    }

    /// Refuses a request that may not have it.
    fn admit(&self, head: &Parts, right: Right) -> Result<(), access::Refusal> {
        match self.whom {
            For::Everybody => Ok(()),
            For::Trusted => access::permit(head, right, access::Refusal::ShowsPlayers),
            For::Changing => access::permit(head, right, access::Refusal::OnlyReads),
        }
    }
}

/// All pages.
pub(super) fn pages<S: Site>(site: S) -> Pages {
    let all: Arc<[Page<S>]> = S::pages().into();
    Arc::new(move |head, visitor| {
        let (site, all) = (site.clone(), Arc::clone(&all));
        Box::pin(async move { answer(site, &all, head, visitor).await.unwrap_or_else(|it| it) })
    })
}

async fn answer<S: Site>(
    site: S,
    all: &[Page<S>],
    head: Parts,
    visitor: Visitor,
) -> Result<Response, Response> {
    let right = site.judge(&visitor, &head)?;
    fresh::see_to(&site, &head, right).await?;
    let page = all.iter().find(|page| page.path == head.uri.path());
    let page = page.ok_or_else(|| nothing(all))?;
    let is_head = head.method == Method::HEAD;
    let method = if is_head { &Method::GET } else { &head.method };
    if *method != page.method() {
        return Err(other_method(page));
    }
    page.admit(&head, right)?;
    let made = (page.make)(Visit { site, visitor, uri: head.uri }).await;
    let mut response = made.unwrap_or_else(|(status, why)| text(status, why));
    if is_head && matches!(response.body(), Body::GoesOn(_)) {
        // What was begun for it ends at once.
        *response.body_mut() = Body::from("");
        response.extensions_mut().clear();
    }
    Ok(response)
}

fn nothing<S>(all: &[Page<S>]) -> Response {
    let paths = |changes: bool| {
        let paths = all.iter().filter(move |it| (it.whom == For::Changing) == changes);
        paths.map(|it| it.path).collect::<Vec<_>>().join(" ")
    };
    let why = format!("nothing is here; GET {}, POST {}\n", paths(false), paths(true));
    text(StatusCode::NOT_FOUND, why)
}

fn other_method<S>(page: &Page<S>) -> Response {
    let allowed = if page.whom == For::Changing { "POST" } else { "GET, HEAD" };
    let why = format!("{} is for {allowed}\n", page.path);
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, why);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// What a page of health answers. `detail` is what is worth knowing either way, as lines.
pub(super) fn verdict(verdict: Result<(), String>, detail: &str) -> Reply {
    match verdict {
        Ok(()) => Ok(text(StatusCode::OK, format!("ok\n{detail}"))),
        Err(why) => Err((StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n{detail}"))),
    }
}

/// An answer in words.
pub(super) fn text(status: StatusCode, text: impl Into<Body>) -> Response {
    typed(status, "text/plain; charset=utf-8", text)
}

/// An answer of this type.
pub(super) fn typed(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// An answer in JSON.
pub(super) fn as_json(status: StatusCode, answer: &serde_json::Value) -> Response {
    typed(status, JSON, format!("{answer}\n"))
}

/// Who asks for what goes into the log before it is done.
pub(super) fn note(visitor: &Visitor, what: &str) {
    tracing::info!(event = "asked", what, by = %visitor, "{visitor} asks for a {what}");
}

pub(super) const JSON: &str = "application/json";

/// What an answer consists of behind its head.
pub(super) enum Body {
    Whole(Bytes),
    /// Something that is still being made while it is sent.
    GoesOn(Pin<Box<dyn HttpBody<Data = Bytes, Error = Infallible> + Send>>),
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Whole(text.into())
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Whole(text.into())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::GoesOn(body) => body.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::GoesOn(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::GoesOn(body) => body.size_hint(),
        }
    }
}

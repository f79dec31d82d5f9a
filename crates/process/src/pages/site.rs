//! Pages by their paths: who may have each, and what answers it. The same for a gateway and an
//! agent.
//!
//! Bodies of requests are not read. `access` decides before any page is made; what is asked for as
//! of now waits for a round of publishing (`fresh`) between the two.

use std::pin::Pin;
use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Uri};

use super::access::{self, AccessRefusal, Right, Visitor};
use super::answer::{Answer, Content, Reply, stopping, text};
use super::query::wrong;
use super::rounds;

/// An answer that is being made.
pub type Making<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// All pages of a process, for a door.
pub type Pages = Arc<dyn Fn(Parts, Visitor) -> Making<Answer> + Send + Sync>;

/// What pages are made from.
pub trait Site: Send + Sync + Sized + 'static {
    /// Every path that there is. One that is not here does not exist, so a test that walks through
    /// this list has seen all.
    fn pages() -> Vec<Page<Self>>;

    /// What a request may do, by the rules of now.
    fn judge(&self, visitor: &Visitor, head: &Parts) -> Result<Right, AccessRefusal>;

    /// Has everything published that pages are made of. Those who did not publish in time.
    fn publish(&self) -> impl Future<Output = Vec<String>> + Send;
}

/// A page, or something that can be asked for.
pub struct Page<S> {
    path: &'static str,
    whom: For,
    make: Box<dyn Fn(Visit<S>) -> Making<Reply> + Send + Sync>,
}

/// Whom a path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Everybody who reaches an address: it changes nothing and shows no player's address.
    Everybody,
    /// Those who may see where players are.
    Trusted,
    /// Those who may change the process.
    Changing,
}

/// A request for a page that may have it.
pub struct Visit<S> {
    /// What pages are made from.
    pub site: Arc<S>,
    /// Who asks.
    pub visitor: Visitor,
    /// For what.
    pub uri: Uri,
}

impl<S> Page<S> {
    /// What is made so at this path.
    pub fn new<F, M>(path: &'static str, whom: For, make: F) -> Self
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
    fn admit(&self, head: &Parts, right: Right) -> Result<(), AccessRefusal> {
        match self.whom {
            For::Everybody => Ok(()),
            For::Trusted => access::permit(head, right, AccessRefusal::ShowsPlayers),
            For::Changing => access::permit(head, right, AccessRefusal::OnlyReads),
        }
    }
}

/// All pages.
pub fn pages<S: Site>(site: Arc<S>) -> Pages {
    let all: Arc<[Page<S>]> = S::pages().into();
    Arc::new(move |head, visitor| {
        let (site, all) = (Arc::clone(&site), Arc::clone(&all));
        Box::pin(async move { answer(site, &all, head, visitor).await.unwrap_or_else(|it| it) })
    })
}

async fn answer<S: Site>(
    site: Arc<S>,
    all: &[Page<S>],
    head: Parts,
    visitor: Visitor,
) -> Result<Answer, Answer> {
    let right = site.judge(&visitor, &head)?;
    see_to(&*site, &head, right).await?;
    let page = all.iter().find(|page| page.path == head.uri.path());
    let page = page.ok_or_else(|| nothing(all))?;
    let is_head = head.method == Method::HEAD;
    let method = if is_head { &Method::GET } else { &head.method };
    if *method != page.method() {
        return Err(other_method(page));
    }
    page.admit(&head, right)?;
    let making = (page.make)(Visit { site, visitor, uri: head.uri });
    let made = match page.whom {
        // What has begun to change something ends, though whoever asked for it has gone.
        For::Changing => tokio::spawn(making).await.unwrap_or_else(|_| Err(stopping())),
        For::Everybody | For::Trusted => making.await,
    };
    let mut response = made.unwrap_or_else(|(status, why)| text(status, why));
    if is_head && matches!(response.body(), Content::GoesOn(_)) {
        // What was begun for it ends at once.
        *response.body_mut() = Content::from("");
        response.extensions_mut().clear();
    }
    Ok(response)
}

/// Goes through a round of publishing first, where the request is for a page as of now.
async fn see_to(site: &impl Site, head: &Parts, right: Right) -> Result<(), Answer> {
    let mut asked = head.uri.query().unwrap_or_default().split('&');
    match asked.find_map(|pair| pair.strip_prefix("as_of=")) {
        None => Ok(()),
        Some("now") => {
            access::permit(head, right, AccessRefusal::AsksAll)?;
            let silent = site.publish().await;
            if silent.is_empty() { Ok(()) } else { Err(rounds::missed(&silent)) }
        }
        Some(other) => {
            let (status, why) = wrong(format_args!("as_of: found {other:?}, expected now"));
            Err(text(status, why))
        }
    }
}

fn nothing<S>(all: &[Page<S>]) -> Answer {
    let paths = |changes: bool| {
        let paths = all.iter().filter(move |it| (it.whom == For::Changing) == changes);
        paths.map(|it| it.path).collect::<Vec<_>>().join(" ")
    };
    let why = format!("nothing is here; GET {}, POST {}\n", paths(false), paths(true));
    text(StatusCode::NOT_FOUND, why)
}

fn other_method<S>(page: &Page<S>) -> Answer {
    let allowed = if page.whom == For::Changing { "POST" } else { "GET, HEAD" };
    let why = format!("{} is for {allowed}\n", page.path);
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, why);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

//! What a request is answered: text, JSON, a document for browsers, or something that goes on while
//! it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use ringgate_report::page::{self, Page as Document};

/// An answer.
pub type Answer = Response<Content>;

/// What a request is answered that is not done.
pub type NotDone = (StatusCode, String);

/// What a request is answered by a process that has nothing to change any more.
pub fn stopping() -> NotDone {
    (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned())
}

/// What becomes of a request.
pub type Reply = Result<Answer, NotDone>;

/// What a page of health answers. `detail` is what is worth knowing either way, as lines.
pub fn verdict(verdict: Result<(), String>, detail: &str) -> Reply {
    match verdict {
        Ok(()) => Ok(text(StatusCode::OK, format!("ok\n{detail}"))),
        Err(why) => Err((StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n{detail}"))),
    }
}

/// An answer in words.
pub fn text(status: StatusCode, text: impl Into<Content>) -> Answer {
    typed(status, "text/plain; charset=utf-8", text)
}

/// An answer of this type.
pub fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Content>) -> Answer {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A document for a browser, which runs the script that is in it and nothing else: a policy comes
/// with it. The error is a reason why there is none.
pub fn document(document: &Document) -> Result<Answer, &'static str> {
    let number = getrandom::u64().map_err(|_| "no randomness")?;
    let nonce = format!("{number:016x}");
    let policy = HeaderValue::try_from(page::policy(&nonce)).map_err(|_| "no policy")?;
    let html = "text/html; charset=utf-8";
    let mut answer = typed(StatusCode::OK, html, document.document(&nonce));
    answer.headers_mut().extend([
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ]);
    Ok(answer)
}

/// An answer in JSON.
pub fn as_json(status: StatusCode, mut answer: serde_json::Value) -> Answer {
    answer["schema"] = SCHEMA.into();
    typed(status, JSON, format!("{answer}\n"))
}

/// The version of all JSON that operators are answered: one more when a field goes away or changes
/// its meaning.
pub const SCHEMA: u32 = 1;

/// The type of an answer in JSON.
pub const JSON: &str = "application/json";

/// What an answer consists of behind its head.
pub enum Content {
    /// All of it.
    Whole(Bytes),
    /// Something that is still being made while it is sent.
    GoesOn(Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>),
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Whole(text.into())
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl From<&'static str> for Content {
    fn from(text: &'static str) -> Self {
        Self::Whole(text.into())
    }
}

impl Body for Content {
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

//! Answers that go on for a while: what they are made of is looked for now and then, and sent as it
//! comes. Who stops reading ends them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body as HttpBody, Frame};
use ringgate_process::doors::Lasts;
use tokio::time::{Interval, MissedTickBehavior, interval};

use ringgate_process::pages::{Answer, Content, typed};

/// An answer that lasts so long at the most, and is looked after that often. `fill` appends what
/// there is to be sent, and says whether more is to come.
pub(super) fn stream<F>(
    content_type: &'static str,
    (lasts, every): (Duration, Duration),
    fill: F,
) -> Answer
where
    F: FnMut(&mut Vec<u8>) -> Then + Send + Unpin + 'static,
{
    let mut every = interval(every);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let body = Content::GoesOn(Box::pin(Streamed { fill, every, then: Then::GoOn }));
    let mut response = typed(StatusCode::OK, content_type, body);
    response.extensions_mut().insert(Lasts(lasts));
    response
}

/// What comes behind what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    End,
    GoOn,
}

struct Streamed<F> {
    fill: F,
    every: Interval,
    then: Then,
}

impl<F: FnMut(&mut Vec<u8>) -> Then + Unpin> HttpBody for Streamed<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        while this.then == Then::GoOn {
            ready!(this.every.poll_tick(context));
            let mut bytes = Vec::new();
            this.then = (this.fill)(&mut bytes);
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes.into()))));
            }
        }
        Poll::Ready(None)
    }
}

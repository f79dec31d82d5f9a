//! What a client asks over: connections to members, which sockets make ([`channel`]) and which a
//! world without sockets can make as well.
//!
//! [`channel`]: super::channel

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;

use super::error::Error;
use crate::servers::Endpoint;

/// What will come of something that was asked for.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Makes connections.
pub trait Dial: Debug + Send + Sync {
    /// A connection to this member, made within `timeout`.
    fn dial<'a>(&'a self, endpoint: &'a Endpoint, timeout: Duration) -> Asked<'a, Arc<dyn Line>>;
}

/// A connection to one member, on which calls and conversations run side by side.
pub trait Line: Debug + Send + Sync {
    /// Whether calls on it cannot succeed any more.
    fn is_closed(&self) -> bool;

    /// One question, one answer.
    fn call<'a>(&'a self, call: Call<'a>) -> Asked<'a, Bytes>;

    /// A question that begins a conversation.
    fn open<'a>(&'a self, call: Call<'a>) -> Asked<'a, Box<dyn Conversation>>;
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Which of etcd's procedures.
    pub path: &'a str,
    /// Its message.
    pub message: &'a [u8],
    /// Shows who asks, where there are users.
    pub token: Option<&'a HeaderValue>,
    /// How long the answer, or the first of it, may take.
    pub timeout: Duration,
}

/// What goes on between a client and a member until either ends it.
pub trait Conversation: Debug + Send + Sync {
    /// The next message. May be dropped while it waits: nothing is lost.
    fn next_message(&mut self) -> Asked<'_, Bytes>;

    /// Says something more. False if it cannot be taken now.
    fn say(&self, message: &[u8]) -> bool;
}

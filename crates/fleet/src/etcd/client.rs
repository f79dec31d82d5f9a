//! Chooses a member, keeps the connection to it, and logs in. Clones share all of that.
//!
//! A member that fails is left, and the next one in the list is asked next time. What only reads
//! is asked once more by itself; what writes is not, because nobody knows whether a request that
//! has no answer was done: its caller looks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::Mutex;

use super::channel::{Sockets, Tls, within};
use super::error::Error;
use super::kv::{Header, Range, Ranged};
use super::lease::{self, Lease};
use super::line::{Call, Conversation, Dial, Line};
use super::txn::{Decided, Delete, Put, Txn};
use super::watch::{self, Watched};
use super::wire::{Reader, Writer};
use crate::servers::{Credentials, Endpoint, Options};

/// A client of one cluster.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    dial: Arc<dyn Dial>,
    state: Mutex<State>,
}

struct State {
    /// Which member is spoken to.
    member: usize,
    /// Tells a failure of this connection from one of an earlier connection.
    generation: u64,
    connection: Option<Connection>,
}

/// A connection and what it needs to be believed.
#[derive(Clone)]
struct Connection {
    line: Arc<dyn Line>,
    token: Option<HeaderValue>,
    generation: u64,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.shared.options.endpoints.iter().map(Endpoint::to_string))
            .finish()
    }
}

impl Client {
    /// Reads the files that are named; connects when it is first asked something.
    pub fn new(options: Options) -> Result<Self, Error> {
        let tls = tls_of(&options)?;
        Self::over(Arc::new(Sockets { tls }), options)
    }

    /// Asks over what `dial` connects to.
    pub fn over(dial: Arc<dyn Dial>, options: Options) -> Result<Self, Error> {
        if options.endpoints.is_empty() {
            return Err(Error::Config("no endpoint is configured".into()));
        }
        let state = State { member: 0, generation: 0, connection: None };
        Ok(Self { shared: Arc::new(Shared { options, dial, state: Mutex::new(state) }) })
    }

    /// Which servers it asks, for people.
    pub fn endpoints(&self) -> String {
        let endpoints = self.shared.options.endpoints.iter().map(Endpoint::to_string);
        endpoints.collect::<Vec<_>>().join(", ")
    }

    /// Reads keys.
    pub async fn range(&self, range: &Range) -> Result<Ranged, Error> {
        let mut writer = Writer::new();
        range.encode(&mut writer);
        Ranged::decode(&self.read("/etcdserverpb.KV/Range", &writer.into_bytes()).await?)
    }

    /// Writes a key.
    pub async fn put(&self, put: &Put) -> Result<Header, Error> {
        let mut writer = Writer::new();
        put.encode(&mut writer);
        Header::of(&self.write("/etcdserverpb.KV/Put", &writer.into_bytes()).await?)
    }

    /// Removes a key or a range of them.
    pub async fn delete(&self, delete: &Delete) -> Result<Header, Error> {
        let mut writer = Writer::new();
        delete.encode(&mut writer);
        Header::of(&self.write("/etcdserverpb.KV/DeleteRange", &writer.into_bytes()).await?)
    }

    /// Decides and writes at one revision.
    pub async fn txn(&self, txn: &Txn) -> Result<Decided, Error> {
        Decided::decode(&self.write("/etcdserverpb.KV/Txn", &txn.encode()).await?)
    }

    /// Makes a lease. One whose answer is lost ends by itself.
    pub async fn grant(&self, ttl_s: i64) -> Result<Lease, Error> {
        Lease::decode(&self.read("/etcdserverpb.Lease/LeaseGrant", &lease::grant(ttl_s)).await?)
    }

    /// Gives a lease its whole time again. The answer's time is 0 if it has ended.
    pub async fn keep_alive(&self, id: i64) -> Result<Lease, Error> {
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let timeout = self.shared.options.request_timeout;
        let mut asked = None;
        let asking = async {
            let (mut stream, generation) = self.converse(path, &lease::named(id)).await?;
            asked = Some(generation);
            stream.next_message().await
        };
        let answer = within(timeout, asking).await;
        // A member without a leader takes the question, and ends the conversation.
        if let (Err(why), Some(generation)) = (&answer, asked)
            && why.blames_member()
        {
            self.leave_member(generation).await;
        }
        Lease::decode(&answer?)
    }

    /// Ends a lease and what was written with it.
    pub async fn revoke(&self, id: i64) -> Result<(), Error> {
        let answer = self.write("/etcdserverpb.Lease/LeaseRevoke", &lease::named(id)).await;
        match answer {
            Err(why) if why.is_lease_gone() => Ok(()),
            answer => answer.map(|_| ()),
        }
    }

    /// Watches the keys from `key` up to `end`, from this revision on.
    pub async fn watch(&self, key: &[u8], end: &[u8], from_revision: i64) -> Result<Watch, Error> {
        let create = watch::create(key, end, from_revision);
        let (stream, generation) = self.converse("/etcdserverpb.Watch/Watch", &create).await?;
        Ok(Watch { stream, generation })
    }

    /// Leaves the member behind this connection, for a reason that only the caller can see. Where
    /// another connection has been made meanwhile, this one is left already.
    pub async fn leave_member(&self, generation: u64) {
        let mut state = self.shared.state.lock().await;
        self.drop_connection(&mut state, generation, true);
    }

    /// The address that is spoken to, or will be next.
    pub async fn member(&self) -> String {
        let state = self.shared.state.lock().await;
        self.shared.options.endpoints[state.member].to_string()
    }

    /// A call that may be made twice.
    async fn read(&self, path: &str, message: &[u8]) -> Result<Bytes, Error> {
        match self.write(path, message).await {
            Err(why) if why.blames_member() && why != Error::Timeout => {
                self.write(path, message).await
            }
            answer => answer,
        }
    }

    /// A call that is made once, unless the server has refused to look at it.
    async fn write(&self, path: &str, message: &[u8]) -> Result<Bytes, Error> {
        let timeout = self.shared.options.request_timeout;
        let connection = self.connection().await?;
        let answer = connection.call(path, message, timeout).await;
        if !self.may_log_in_again(&answer, &connection).await {
            return self.judged(answer, &connection).await;
        }
        let connection = self.connection().await?;
        let answer = connection.call(path, message, timeout).await;
        self.judged(answer, &connection).await
    }

    /// Begins a conversation, on which connection it says too.
    async fn converse(
        &self,
        path: &str,
        message: &[u8],
    ) -> Result<(Box<dyn Conversation>, u64), Error> {
        let timeout = self.shared.options.request_timeout;
        let connection = self.connection().await?;
        let answer = connection.open(path, message, timeout).await;
        if !self.may_log_in_again(&answer, &connection).await {
            return Ok((self.judged(answer, &connection).await?, connection.generation));
        }
        let connection = self.connection().await?;
        let answer = connection.open(path, message, timeout).await;
        Ok((self.judged(answer, &connection).await?, connection.generation))
    }

    async fn may_log_in_again<T>(&self, answer: &Result<T, Error>, failed: &Connection) -> bool {
        let wants = matches!(answer, Err(why) if why.wants_login());
        if !wants || self.shared.options.credentials.is_none() {
            return false;
        }
        let mut state = self.shared.state.lock().await;
        self.drop_connection(&mut state, failed.generation, false);
        true
    }

    /// Leaves a member that has failed.
    async fn judged<T>(&self, answer: Result<T, Error>, by: &Connection) -> Result<T, Error> {
        if matches!(&answer, Err(why) if why.blames_member()) {
            let mut state = self.shared.state.lock().await;
            self.drop_connection(&mut state, by.generation, true);
        }
        answer
    }

    fn drop_connection(&self, state: &mut State, generation: u64, rotate: bool) {
        if state.generation == generation {
            state.connection = None;
            state.generation += 1;
            if rotate {
                state.member = (state.member + 1) % self.shared.options.endpoints.len();
            }
        }
    }

    /// The connection that is there, or one to the first member that can be reached.
    async fn connection(&self) -> Result<Connection, Error> {
        let mut state = self.shared.state.lock().await;
        if let Some(connection) = &state.connection
            && !connection.line.is_closed()
        {
            return Ok(connection.clone());
        }
        let mut last = Error::Timeout;
        for _ in &self.shared.options.endpoints {
            state.connection = None;
            state.generation += 1;
            // Boxed: a connection with TLS is large while it is made, and seldom made.
            match Box::pin(self.connect(state.member, state.generation)).await {
                Ok(connection) => {
                    state.connection = Some(connection.clone());
                    return Ok(connection);
                }
                Err(why) => last = why,
            }
            state.member = (state.member + 1) % self.shared.options.endpoints.len();
        }
        Err(last)
    }

    async fn connect(&self, member: usize, generation: u64) -> Result<Connection, Error> {
        let options = &self.shared.options;
        let (endpoint, within) = (&options.endpoints[member], options.connect_timeout);
        let line = self.shared.dial.dial(endpoint, within).await?;
        let mut connection = Connection { line, token: None, generation };
        if let Some(credentials) = &options.credentials {
            connection.token = connection.log_in(credentials, options).await?;
        }
        Ok(connection)
    }
}

impl Connection {
    async fn call(&self, path: &str, message: &[u8], timeout: Duration) -> Result<Bytes, Error> {
        self.line.call(Call { path, message, token: self.token.as_ref(), timeout }).await
    }

    async fn open(
        &self,
        path: &str,
        message: &[u8],
        timeout: Duration,
    ) -> Result<Box<dyn Conversation>, Error> {
        self.line.open(Call { path, message, token: self.token.as_ref(), timeout }).await
    }

    /// Asks for a token. A cluster that does not know users yet is spoken to without.
    async fn log_in(
        &self,
        credentials: &Credentials,
        options: &Options,
    ) -> Result<Option<HeaderValue>, Error> {
        let mut writer = Writer::new();
        writer.bytes(1, credentials.user.as_bytes());
        writer.bytes(2, credentials.password.as_bytes());
        let message = zeroize::Zeroizing::new(writer.into_bytes());
        let path = "/etcdserverpb.Auth/Authenticate";
        let answer = match self.call(path, &message, options.request_timeout).await {
            Err(Error::Status { message, .. }) if message.contains("not enabled") => {
                return Ok(None);
            }
            answer => answer?,
        };
        let mut reader = Reader::new(&answer);
        while let Some((number, value)) = reader.next_field()? {
            if number == 2 {
                let mut token = HeaderValue::from_bytes(value.bytes()?)
                    .map_err(|_| Error::Malformed("the token is no header"))?;
                token.set_sensitive(true);
                return Ok(Some(token));
            }
        }
        Err(Error::Malformed("a login without a token"))
    }
}

/// A watch that runs. Ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    stream: Box<dyn Conversation>,
    generation: u64,
}

impl Watch {
    /// What comes next. May be dropped while it waits: nothing is lost.
    pub async fn next_answer(&mut self) -> Result<Watched, Error> {
        Watched::decode(&self.stream.next_message().await?)
    }

    /// Names the connection that it is on, for [`Client::leave_member`].
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Asks the server for a sign of life on this stream. False if earlier questions still wait.
    pub fn ask_progress(&self) -> bool {
        self.stream.say(&watch::progress())
    }
}

#[cfg(feature = "tls")]
fn tls_of(options: &Options) -> Result<Option<Tls>, Error> {
    options.tls.as_ref().map(super::tls::connector).transpose()
}

#[cfg(not(feature = "tls"))]
fn tls_of(options: &Options) -> Result<Option<Tls>, Error> {
    match options.tls {
        None => Ok(None),
        Some(_) => Err(Error::Config("this build has no TLS".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::Code;
    use crate::etcd::line::Asked;

    /// A member, which has a leader or not.
    #[derive(Clone, Copy, Debug)]
    struct Member {
        has_leader: bool,
    }

    #[derive(Debug)]
    struct Members;

    impl Dial for Members {
        fn dial<'a>(&'a self, at: &'a Endpoint, _: Duration) -> Asked<'a, Arc<dyn Line>> {
            let has_leader = at.port == 2;
            Box::pin(async move { Ok(Arc::new(Member { has_leader }) as Arc<dyn Line>) })
        }
    }

    impl Line for Member {
        fn is_closed(&self) -> bool {
            false
        }

        fn call<'a>(&'a self, _: Call<'a>) -> Asked<'a, Bytes> {
            Box::pin(async { Err(Error::Timeout) })
        }

        fn open<'a>(&'a self, _: Call<'a>) -> Asked<'a, Box<dyn Conversation>> {
            Box::pin(async { Ok(Box::new(*self) as Box<dyn Conversation>) })
        }
    }

    impl Conversation for Member {
        fn next_message(&mut self) -> Asked<'_, Bytes> {
            Box::pin(async {
                if !self.has_leader {
                    return Err(Error::status(Code::UNAVAILABLE, "etcdserver: no leader"));
                }
                let mut writer = Writer::new();
                writer.int(2, 7);
                writer.int(3, 9);
                Ok(writer.into_bytes().into())
            })
        }

        fn say(&self, _: &[u8]) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_member_that_keeps_no_lease_alive_is_left() {
        let members = ["http://etcd:1", "http://etcd:2"].map(|it| Endpoint::parse(it).unwrap());
        let client = Client::over(Arc::new(Members), Options::new(members.into())).unwrap();
        assert!(client.keep_alive(7).await.is_err());
        assert_eq!(client.keep_alive(7).await, Ok(Lease { id: 7, ttl_s: 9 }));
    }
}

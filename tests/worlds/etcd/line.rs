//! How a process reaches the cluster: connections that lead through the world's own network.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringgate_fleet::etcd::line::{Asked, Call, Conversation, Dial, Line};
use ringgate_fleet::etcd::{Client, Endpoint, Error, Options};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::messages::{Opening, Request};
use super::{Delivery, Etcd, Kind, MEMBERS, Stream, Way};

/// A process's way to the cluster.
#[derive(Debug)]
struct Door {
    etcd: Etcd,
    process: usize,
}

#[derive(Debug)]
struct Wire {
    etcd: Etcd,
    way: Way,
}

#[derive(Debug)]
struct Talk {
    etcd: Etcd,
    number: u64,
    heard: mpsc::UnboundedReceiver<Result<Bytes, Error>>,
}

/// A client of this process.
pub(crate) fn client(etcd: &Etcd, process: usize) -> Client {
    let door = Door { etcd: etcd.clone(), process };
    Client::over(Arc::new(door), options()).expect("there are endpoints")
}

/// The names of the members.
pub(crate) fn options() -> Options {
    let endpoint = |at| Endpoint::parse(&format!("http://etcd-{at}:2379")).expect("an endpoint");
    Options::new((0..MEMBERS).map(endpoint).collect())
}

impl Dial for Door {
    fn dial<'a>(&'a self, endpoint: &'a Endpoint, within: Duration) -> Asked<'a, Arc<dyn Line>> {
        Box::pin(async move {
            let member = endpoint.host.bytes().last().map_or(0, |digit| usize::from(digit - b'0'));
            let (way, is_reached, is_down) = {
                let cluster = self.etcd.lock();
                let there = cluster.members[member];
                let way = Way { process: self.process, member, start: there.start };
                (way, cluster.is_reached(way), there.is_down)
            };
            if is_down {
                return Err(Error::Transport("connection refused".to_owned()));
            }
            if !is_reached {
                tokio::time::sleep(within).await;
                return Err(Error::Timeout);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(Arc::new(Wire { etcd: self.etcd.clone(), way }) as Arc<dyn Line>)
        })
    }
}

impl Line for Wire {
    fn is_closed(&self) -> bool {
        let cluster = self.etcd.lock();
        let member = cluster.members[self.way.member];
        member.is_down || member.start != self.way.start
    }

    fn call<'a>(&'a self, call: Call<'a>) -> Asked<'a, Bytes> {
        let request = Request::read(call.path, call.message);
        let (reply, answer) = oneshot::channel();
        self.etcd.lock().send(Delivery::Asked(self.way, request, reply));
        Box::pin(async move {
            match timeout(call.timeout, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Error::Transport("connection reset".to_owned())),
                Err(_) => Err(Error::Timeout),
            }
        })
    }

    fn open<'a>(&'a self, call: Call<'a>) -> Asked<'a, Box<dyn Conversation>> {
        let kind = match Opening::read(call.path, call.message) {
            Opening::KeepAlive(id) => Kind::KeepAlive(id),
            Opening::Watch { key, end, from } => Kind::Watch { key, end, next: from },
        };
        let (tell, heard) = mpsc::unbounded_channel();
        let number = {
            let mut cluster = self.etcd.lock();
            cluster.sent += 1;
            let (number, way) = (cluster.sent, self.way);
            let stream = Stream { number, way, kind, tell, last_ms: 0 };
            cluster.send(Delivery::Opened(stream));
            number
        };
        let talk = Talk { etcd: self.etcd.clone(), number, heard };
        Box::pin(async move { Ok(Box::new(talk) as Box<dyn Conversation>) })
    }
}

impl Conversation for Talk {
    fn next_message(&mut self) -> Asked<'_, Bytes> {
        Box::pin(async move {
            match self.heard.recv().await {
                Some(message) => message,
                // The server is gone. A real connection is found to be dead by its pings.
                None => {
                    tokio::time::sleep(PONG_WITHIN).await;
                    Err(Error::Transport("connection reset".to_owned()))
                }
            }
        })
    }

    fn say(&self, _message: &[u8]) -> bool {
        self.etcd.lock().send(Delivery::Said(self.number));
        true
    }
}

const PONG_WITHIN: Duration = Duration::from_secs(15);

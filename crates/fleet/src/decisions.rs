//! Many small decisions on their way to etcd: a hundred in a transaction, each decided by itself,
//! and some transactions at once. Whoever asks hears of each transaction as soon as it is answered.

use tokio::task::JoinSet;

use crate::etcd::txn::{AT_A_TIME, Decided, Txn};
use crate::etcd::{Client, Error};

/// Decisions about these on their way.
#[derive(Debug)]
pub struct Decisions<T> {
    client: Client,
    asked: JoinSet<Answered<T>>,
}

/// What one transaction was about, and how that was decided, each at its place in `each`. Where
/// there is no answer, nobody knows.
pub type Answered<T> = (Vec<T>, Result<Decided, Error>);

impl<T: Send + 'static> Decisions<T> {
    /// Nothing is on its way yet.
    pub fn new(client: Client) -> Self {
        Self { client, asked: JoinSet::new() }
    }

    /// Whether as many transactions are on their way as etcd is to be asked at once.
    pub fn is_full(&self) -> bool {
        self.asked.len() >= AT_ONCE
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Asks for these, which have no key in common, in as many transactions as it takes.
    pub fn ask(&mut self, all: impl IntoIterator<Item = (T, Txn)>) {
        let mut all = all.into_iter();
        loop {
            let (some, txns): (Vec<_>, Vec<_>) = all.by_ref().take(AT_A_TIME).unzip();
            if some.is_empty() {
                return;
            }
            let client = self.client.clone();
            self.asked.spawn(async move {
                let answer = client.txn(&Txn::each(txns)).await;
                let is_whole = |it: &Decided| it.each.len() == some.len();
                let torn = Error::Malformed("not all of a transaction is answered");
                let answer = answer.and_then(|it| if is_whole(&it) { Ok(it) } else { Err(torn) });
                (some, answer)
            });
        }
    }

    /// What is answered next; `None` where nothing is on its way. May be dropped while it waits:
    /// nothing is lost.
    pub async fn answered(&mut self) -> Option<Answered<T>> {
        self.asked.join_next().await?.ok()
    }
}

/// Transactions on their way at once: etcd writes those to its disk together that come together.
const AT_ONCE: usize = 8;

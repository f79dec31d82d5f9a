//! The book between those who speak with etcd and those who speak with game processes.

use std::sync::{Arc, Mutex, MutexGuard};

use ringgate_fleet::keyspace::Keyspace;
use ringgate_fleet::lease::Registration;
use ringgate_fleet::lease::run::Command;
use ringgate_fleet::member::lock;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::door::{self, Door};
use super::{Book, Counted, Refusal};

/// A book that several tasks write in.
#[derive(Clone)]
pub(crate) struct Registry {
    book: Arc<Mutex<Book>>,
    /// Counts whenever it stands otherwise with a game process.
    news: Arc<watch::Sender<u64>>,
    keyspace: Keyspace,
}

impl Registry {
    pub(crate) fn new(book: Book, keyspace: Keyspace) -> Self {
        Self { book: Arc::new(Mutex::new(book)), news: Arc::new(watch::channel(0).0), keyspace }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// How many have come, and how often one was refused, by the names of the reasons.
    pub(crate) fn counts(&self) -> (usize, Vec<(&'static str, u64)>) {
        let book = self.book();
        let refusals = Refusal::ALL.map(Refusal::name).into_iter().zip(book.refusals());
        (book.names().count(), refusals.collect())
    }

    /// Tells the registration what is due.
    pub(crate) fn tell(&self, now_ms: u64, counted: &Counted, say: impl FnMut(Command) -> bool) {
        let mut book = self.book();
        if book.admit_refused() {
            self.tell_news();
        }
        book.tell(now_ms, counted, &self.keyspace, say);
    }

    /// Something may have become otherwise with the registration.
    pub(crate) fn see_registration(&self, registration: &Registration) {
        if self.book().see_registration(registration, &self.keyspace) {
            self.tell_news();
        }
    }

    /// It stands otherwise with one of them.
    pub(crate) fn tell_news(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    /// Has game processes come in there, until they are told to rest.
    pub(crate) fn serve(&self, door: Door, rests: watch::Receiver<bool>) -> JoinHandle<Door> {
        let (book, news) = (Arc::clone(&self.book), self.news.subscribe());
        tokio::spawn(door::serve(door, book, news, rests))
    }
}

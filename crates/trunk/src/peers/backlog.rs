//! What a member is told of players later, because it has not read yet what it was told before.
//!
//! Of each player the last is kept, and nothing of one that came and went meanwhile. So it is no
//! more than the players who are here, and those that the member was told of.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use ringgate_cluster::News;

type Of = (u16, SocketAddr);

#[derive(Debug, Default)]
pub(super) struct Backlog {
    waits: HashMap<Of, News>,
    /// Nothing of it is told now.
    is_held: bool,
}

impl Backlog {
    /// Has what comes wait from now on, or not any more.
    pub(super) const fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    pub(super) const fn is_held(&self) -> bool {
        self.is_held
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Whether what comes is to wait.
    pub(super) fn must_wait(&self) -> bool {
        self.is_held || !self.is_empty()
    }

    /// There is news of a player of a listener.
    pub(super) fn note(&mut self, of: Of, news: News) {
        let mut known = match self.waits.entry(of) {
            Entry::Occupied(known) => known,
            Entry::Vacant(place) => {
                place.insert(news);
                return;
            }
        };
        match (*known.get(), news) {
            (News::Came, News::Left) => {
                known.remove();
            }
            (News::Came, News::Came | News::Still) => {}
            (News::Still | News::Left, News::Left) => {
                known.insert(News::Left);
            }
            (News::Still | News::Left, News::Came | News::Still) => {
                known.insert(News::Still);
            }
        }
    }

    /// The member is told of all who are here: what leaves from now on it has to be told, too.
    pub(super) fn note_all_told(&mut self) {
        self.waits.values_mut().filter(|it| **it == News::Came).for_each(|it| *it = News::Still);
    }

    /// Takes so much of it at the most, whether it is held or not.
    pub(super) fn take(&mut self, max: usize) -> impl Iterator<Item = (Of, News)> {
        let some: Vec<_> = self.waits.keys().take(max).copied().collect();
        some.into_iter().filter_map(|of| self.waits.remove_entry(&of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(port: u16) -> Of {
        (1, SocketAddr::new([192, 0, 2, 7].into(), port))
    }

    fn taken(backlog: &mut Backlog) -> Vec<(u16, News)> {
        let mut all: Vec<_> = backlog.take(9).map(|((_, it), news)| (it.port(), news)).collect();
        all.sort_unstable_by_key(|it| it.0);
        assert!(backlog.is_empty());
        all
    }

    #[test]
    fn the_last_of_each_player_is_told_and_nothing_of_who_came_and_went() {
        use News::{Came, Left, Still};
        let mut backlog = Backlog::default();
        let told = [
            (1, vec![Came]),
            (2, vec![Came, Still, Left]),
            (3, vec![Still, Left]),
            (4, vec![Left, Came]),
            (5, vec![Left, Came, Left]),
            (6, vec![Came, Left, Came]),
        ];
        for (port, news) in told {
            for it in news {
                backlog.note(of(port), it);
            }
        }
        let expected = [(1, Came), (3, Left), (4, Still), (5, Left), (6, Came)];
        assert_eq!(taken(&mut backlog), expected);
        backlog.note(of(1), Came);
        backlog.note_all_told();
        backlog.note(of(1), Left);
        assert_eq!(taken(&mut backlog), [(1, Left)], "it was among all");
    }
}

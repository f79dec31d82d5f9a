//! Who stands in etcd after what was said.

use super::*;
use ringgate_link::announce::Announcement;

fn book(max: usize) -> Book {
    let host = Name::new("here").expect("a name");
    Book::new(host, PathBuf::from("/run/ringgate"), max, vec!["filed".to_owned()])
}

fn arena(name: &str, what: Announcement) -> Announced {
    Announced { name: name.to_owned(), instance: 9, what }
}

fn ready() -> Announcement {
    Announcement::new("arena", 8)
}

fn none() -> BTreeMap<String, u32> {
    BTreeMap::new()
}

/// Tells everything that is due, and says what that was.
fn tell(book: &mut Book, now_ms: u64, players: &BTreeMap<String, u32>) -> Vec<String> {
    let wishes = book.wishes(now_ms, players);
    let text = |wish: &Wish| match wish {
        Wish::Set(name, value) => {
            format!("{name} {:?} {}/{}", value.state, value.used, value.slots)
        }
        Wish::Remove(name) => format!("{name} goes"),
    };
    let said = wishes.iter().map(text).collect();
    for wish in &wishes {
        book.told(wish, now_ms);
    }
    said
}

#[test]
fn what_a_process_says_stands_until_it_leaves() {
    let mut book = book(9);
    assert_eq!(book.announce(1, arena("a", ready().state(State::Starting))), Standing::Waiting);
    assert_eq!(tell(&mut book, 0, &none()), ["a Starting 0/8"]);
    assert!(tell(&mut book, 0, &none()).is_empty());
    assert!(book.see(|_| Some(Held::Written)) && !book.see(|_| Some(Held::Outdated)));
    assert_eq!(book.standing(1), Some(Standing::Registered));
    assert_eq!(book.announce(1, arena("a", ready())), Standing::Registered);
    assert_eq!(tell(&mut book, 1, &none()), ["a Ready 0/8"], "a state is told at once");
    book.leave(1);
    assert_eq!(tell(&mut book, 2, &none()), ["a goes"]);
    assert_eq!((book.standing(1), tell(&mut book, 2, &none()).len()), (None, 0));
}

#[test]
fn players_are_counted_by_whoever_says_so_and_told_now_and_then() {
    let mut book = book(9);
    book.announce(1, arena("a", ready()));
    book.announce(2, arena("b", ready().players(5)));
    assert_eq!(tell(&mut book, 0, &none()), ["a Ready 0/8", "b Ready 5/8"]);
    let players = BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 1)]);
    assert!(tell(&mut book, 999, &players).is_empty());
    assert_eq!(tell(&mut book, 1_000, &players), ["a Ready 3/8"]);
}

#[test]
fn a_name_is_one_process_and_a_process_has_one_name() {
    let mut book = book(2);
    book.announce(1, arena("a", ready()));
    assert_eq!(book.announce(2, arena("a", ready())), Standing::NameTaken);
    assert_eq!(book.announce(2, arena("filed", ready())), Standing::NameInConfig);
    book.leave(2);
    assert_eq!(tell(&mut book, 0, &none()), ["a Ready 0/8"], "who was refused takes nothing along");
    book.announce(1, arena("b", ready()));
    assert_eq!(tell(&mut book, 0, &none()), ["a goes", "b Ready 0/8"]);
    book.announce(3, arena("c", ready()));
    assert_eq!(book.announce(4, arena("d", ready())), Standing::TooMany);
    assert!(book.see(|_| Some(Held::Taken { by: 5, again_ms: 0 })));
    assert_eq!(book.standing(1), Some(Standing::NameTaken));
}

#[test]
fn a_successor_waits_for_the_processes_of_its_predecessor() {
    let mut before = book(9);
    before.announce(1, arena("a", ready()));
    before.announce(2, arena("b", ready()));
    let mut book = book(9);
    book.inherit(&before.handed(), 1_000);
    assert_eq!(tell(&mut book, 0, &none()).len(), 2);
    assert_eq!(book.announce(7, arena("a", ready())), Standing::Waiting);
    assert!(tell(&mut book, 999, &none()).is_empty());
    assert_eq!(tell(&mut book, 1_000, &none()), ["b goes"]);
    assert_eq!(book.names().collect::<Vec<_>>(), ["a"]);
}

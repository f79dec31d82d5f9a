//! Who stands in etcd after what was said.

mod turmoil;

use super::*;
use ringgate_gate::Allowed;
use ringgate_link::announce::Announcement;

fn book(max: usize) -> Book {
    let host = Name::new("here").expect("a name");
    Book::new(host, Reach::Bundle("/run/ringgate".into()), rules(max), vec!["filed".to_owned()])
}

/// For users 1 and 2: a process may have three connections, a user `max` names.
fn rules(max: usize) -> Rules {
    let allowed = Allowed { uids: vec![1, 2], gids: Vec::new() };
    Rules { allowed, max, per_process: 3, per_user: max, grace_ms: 5_000 }
}

fn arena(name: &str, what: Announcement) -> Announced {
    Announced { name: name.to_owned(), instance: 9, what }
}

fn ready() -> Announcement {
    Announcement::new("arena", 8)
}

fn enter(book: &mut Book, connection: u64, name: &str) {
    book.announce(connection, arena(name, ready())).expect("nothing is in its way");
}

/// All are linked, and no more is known.
fn none() -> Counted {
    let linked = ["a", "b", "c", "d", "filed"].map(str::to_owned).into();
    Counted { linked, ..Counted::default() }
}

/// Tells everything that is due, and says what that was.
fn tell(book: &mut Book, now_ms: u64, counted: &Counted) -> Vec<String> {
    let wishes = book.wishes(now_ms, counted);
    let text = |wish: &Wish| match wish {
        Wish::Set(name, value) => {
            format!("{name} {:?} {}/{}", value.state, value.used, value.slots)
        }
        Wish::Remove(name, _) => format!("{name} goes"),
    };
    let said = wishes.iter().map(text).collect();
    for wish in &wishes {
        book.told(wish, now_ms);
    }
    said
}

fn guest(book: &mut Book, connection: u64, uid: u32) {
    let who = ringgate_gate::Credentials { uid, gid: uid, pid: 0 };
    book.arrive(connection, who).expect("there is room");
}

#[test]
fn a_name_that_is_anothers_at_this_host_is_told_to_nobody() {
    let mut book = book(9);
    book.look_first();
    for (connection, uid) in [(1, 1), (2, 2)] {
        guest(&mut book, connection, uid);
    }
    enter(&mut book, 1, "a");
    assert_eq!(book.to_look(false), ["a".to_owned()].into());
    assert!(tell(&mut book, 0, &none()).is_empty(), "nobody has looked");
    assert!(book.looked("a", Some(2)));
    assert!(tell(&mut book, 0, &none()).is_empty() && book.admit_refused());
    assert_eq!(book.standing(1), Some(Standing::NameTaken));
    assert_eq!(book.announce(1, arena("a", ready())), Err(Refusal::NameTaken));
    // Its user has it here, too.
    enter(&mut book, 2, "a");
    assert!(!book.looked("a", Some(2)));
    assert_eq!(tell(&mut book, 0, &none()), ["a Ready 0/8"]);
    book.see(|_| Some(Held::Written));
    assert_eq!(book.held(), [("a".to_owned(), 2, Hold::Process)]);
    book.leave(2);
    assert_eq!(tell(&mut book, 0, &none()), ["a goes"]);
    assert_eq!(book.held(), [("a".to_owned(), 2, Hold::Kept)]);
    assert!(book.to_look(false).is_empty() && book.to_look(true).len() == 1);
    assert!(!book.looked("a", None) && !book.admit_refused(), "it is kept here");
    tell(&mut book, 5_000, &none());
    assert!(book.admit_refused());
    assert_eq!(book.held(), [("a".to_owned(), 1, Hold::Waits)]);
    assert_eq!(book.to_look(false), ["a".to_owned()].into(), "it is looked again");
    assert!(!book.looked("a", None));
    assert_eq!(tell(&mut book, 5_000, &none()), ["a Ready 0/8"]);
    // Where another gateway has it in the fleet, it is looked again and again.
    book.see(|_| Some(Held::Taken { by: 7, again_ms: 0 }));
    assert!(book.to_look(false).is_empty());
    assert_eq!(book.to_look(true), ["a".to_owned()].into());
    assert!(book.looked("a", Some(2)));
    assert_eq!(tell(&mut book, 5_000, &none()), ["a goes"]);
}

#[test]
fn what_a_process_says_stands_until_it_leaves() {
    let mut book = book(9);
    assert_eq!(book.announce(1, arena("a", ready().state(State::Starting))), Ok(Standing::Waiting));
    assert_eq!(tell(&mut book, 0, &none()), ["a Starting 0/8"]);
    assert!(tell(&mut book, 0, &none()).is_empty());
    assert!(book.see(|_| Some(Held::Written)) && !book.see(|_| Some(Held::Outdated)));
    assert_eq!(book.standing(1), Some(Standing::Registered));
    assert_eq!(book.announce(1, arena("a", ready())), Ok(Standing::Registered));
    assert_eq!(tell(&mut book, 250, &none()), ["a Ready 0/8"], "a state is told soon");
    book.leave(1);
    assert_eq!(tell(&mut book, 251, &none()), ["a goes"]);
    assert_eq!((book.standing(1), tell(&mut book, 252, &none()).len()), (None, 0));
}

/// What one process says ten times a second is not written as often.
#[test]
fn a_process_that_changes_all_the_time_is_told_of_now_and_then() {
    let mut book = book(9);
    let mut told = 0;
    for round in 0..100 {
        let what = ready().label("round", round.to_string());
        book.announce(1, arena("a", what)).expect("nothing is in its way");
        told += tell(&mut book, round * 100, &none()).len();
    }
    assert!((25..=40).contains(&told), "{told} in ten seconds");
    // But where whoever speaks for them is about to end, that is heard at once.
    book.announce(1, arena("a", ready().label("round", "last"))).expect("nothing is in its way");
    book.drain();
    assert_eq!(tell(&mut book, 9_901, &none()), ["a Draining 0/8"]);
}

#[test]
fn players_are_counted_by_whoever_says_so_and_told_now_and_then() {
    let mut book = book(9);
    enter(&mut book, 1, "a");
    book.announce(2, arena("b", ready().players(5))).expect("there is room");
    assert_eq!(tell(&mut book, 0, &none()), ["a Ready 0/8", "b Ready 5/8"]);
    let players = BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 1)]);
    let counted = Counted { players, ..none() };
    assert!(tell(&mut book, 999, &counted).is_empty());
    assert_eq!(tell(&mut book, 1_000, &counted), ["a Ready 3/8"]);
    let gateways = BTreeMap::from([("a".to_owned(), vec!["gate-1".to_owned()])]);
    let reached = Counted { gateways, ..counted };
    assert_eq!(tell(&mut book, 1_250, &reached), ["a Ready 3/8"], "who leads there, soon");
    // Who waits for a process is nobody whom it can count.
    let waiting = BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]);
    let told = tell(&mut book, 2_250, &Counted { waiting, ..reached });
    assert_eq!(told, ["b Ready 6/8"]);
}

#[test]
fn a_name_is_one_process_and_a_process_has_one_name() {
    let mut book = book(2);
    enter(&mut book, 1, "a");
    assert_eq!(book.announce(2, arena("a", ready())), Err(Refusal::NameTaken));
    assert_eq!(book.announce(2, arena("filed", ready())), Err(Refusal::NameInConfig));
    book.leave(2);
    assert_eq!(tell(&mut book, 0, &none()), ["a Ready 0/8"], "who was refused takes nothing along");
    enter(&mut book, 1, "b");
    assert_eq!(tell(&mut book, 0, &none()), ["a goes", "b Ready 0/8"]);
    enter(&mut book, 3, "c");
    assert_eq!(book.announce(4, arena("d", ready())), Err(Refusal::TooMany));
    assert!(book.see(|_| Some(Held::Taken { by: 5, again_ms: 0 })));
    assert_eq!(book.standing(1), Some(Standing::NameTaken));
}

#[test]
fn the_file_speaks_for_processes_that_cannot() {
    let mut book = book(9);
    book.file(arena("filed", ready().state(State::Starting)));
    enter(&mut book, 1, "a");
    assert_eq!(tell(&mut book, 0, &none()), ["a Ready 0/8", "filed Starting 0/8"]);
    book.file(arena("filed", ready()));
    assert_eq!(tell(&mut book, 250, &none()), ["filed Ready 0/8"]);
    assert_eq!(book.announce(1, arena("filed", ready())), Err(Refusal::NameInConfig));
    assert_eq!(book.names().collect::<Vec<_>>(), ["a"], "whoever has come");
    assert_eq!(book.handed().len(), 1, "the file is there for the next process too");
}

#[test]
fn a_successor_waits_for_the_processes_of_its_predecessor() {
    let mut before = book(9);
    enter(&mut before, 1, "a");
    enter(&mut before, 2, "b");
    let mut book = book(9);
    book.inherit(&before.handed(), &before.owned(), 1_000);
    assert_eq!(tell(&mut book, 0, &none()).len(), 2);
    assert_eq!(book.announce(7, arena("a", ready())), Ok(Standing::Waiting));
    assert!(tell(&mut book, 999, &none()).is_empty());
    assert_eq!(tell(&mut book, 1_000, &none()), ["b goes"]);
    assert_eq!(book.names().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn who_was_refused_is_let_in_once_nothing_is_in_its_way() {
    let mut book = book(2);
    enter(&mut book, 1, "a");
    enter(&mut book, 2, "b");
    for (connection, name, why) in [
        (3, "a", Refusal::NameTaken),
        (4, "a", Refusal::NameTaken),
        (5, "c", Refusal::TooMany),
        (6, "filed", Refusal::NameInConfig),
    ] {
        assert_eq!(book.announce(connection, arena(name, ready())), Err(why));
        assert_eq!(book.standing(connection), Some(why.standing()));
    }
    assert_eq!(tell(&mut book, 0, &none()).len(), 2);
    assert!(!book.admit_refused());
    book.leave(1);
    assert!(book.admit_refused() && !book.admit_refused());
    assert_eq!(book.standing(3), Some(Standing::Waiting), "who has come first");
    assert_eq!(book.standing(4), Some(Standing::NameTaken));
    assert_eq!(tell(&mut book, 1, &none()), ["a Ready 0/8"], "nobody sees the name go");
    // A process that leaves waits no more.
    book.leave(5);
    book.leave(2);
    book.set_file(Vec::new());
    assert!(book.admit_refused());
    assert_eq!(tell(&mut book, 2, &none()), ["b goes", "filed Ready 0/8"]);
    assert_eq!(book.refusals(), [2, 1, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_name_that_comes_into_the_config_is_no_processes_any_more() {
    let mut book = book(2);
    enter(&mut book, 1, "a");
    assert_eq!(tell(&mut book, 0, &none()), ["a Ready 0/8"]);
    book.set_file(vec!["a".to_owned()]);
    assert!(book.admit_refused(), "it is told so");
    assert_eq!(book.standing(1), Some(Standing::NameInConfig));
    assert_eq!(tell(&mut book, 1, &none()), ["a goes"]);
    // It may call itself otherwise.
    enter(&mut book, 1, "b");
    assert_eq!(book.standing(1), Some(Standing::Waiting));
}

#[test]
fn what_an_agents_file_has_no_more_goes_and_what_is_new_in_it_is_no_processes_any_more() {
    let mut book = book(9);
    for name in ["a", "b"] {
        book.file(arena(name, ready()));
    }
    enter(&mut book, 1, "c");
    tell(&mut book, 0, &none());
    let registered = ["b".to_owned()];
    book.set_own(vec!["b".to_owned(), "c".to_owned()], &registered);
    assert_eq!(tell(&mut book, 1, &none()), ["a goes", "c goes"]);
    assert_eq!(book.standing(1), Some(Standing::NameInConfig));
    book.set_own(vec!["b".to_owned()], &registered);
    assert!(book.admit_refused());
    assert_eq!(tell(&mut book, 2, &none()), ["c Ready 0/8"]);
}

fn arrive(book: &mut Book, connection: u64, uid: u32, pid: u32) -> Result<(), Refusal> {
    book.arrive(connection, Credentials { uid, gid: 0, pid })
}

/// Without a link a process is no place for players, whatever it says.
#[test]
fn what_has_never_linked_is_not_ready() {
    let mut book = book(9);
    enter(&mut book, 1, "a");
    enter(&mut book, 2, "b");
    book.announce(3, arena("c", ready().state(State::Allocated))).expect("there is room");
    book.announce(4, arena("d", ready().state(State::Draining))).expect("there is room");
    let linked = |names: &[&str]| Counted {
        linked: names.iter().map(|&name| name.to_owned()).collect(),
        ..Counted::default()
    };
    let told = tell(&mut book, 0, &linked(&["b"]));
    assert_eq!(told, ["a Starting 0/8", "b Ready 0/8", "c Starting 0/8", "d Draining 0/8"]);
    // That a link is made again is not news for a whole fleet.
    assert_eq!(tell(&mut book, 250, &linked(&["c"])), ["c Allocated 0/8"]);
    // What a predecessor knew of it, a successor does; another start has to link anew.
    let mut heir = self::book(9);
    heir.inherit(&book.handed(), &book.owned(), 1_000);
    assert_eq!(tell(&mut heir, 0, &linked(&[])).len(), 4);
    book.leave(2);
    book.announce(5, Announced { instance: 10, ..arena("b", ready()) }).expect("it is free");
    assert_eq!(tell(&mut book, 1, &linked(&[])), ["b Starting 0/8"]);
}

#[test]
fn a_process_and_a_user_have_so_many_connections_and_a_user_so_many_names() {
    let mut book = book(3);
    assert_eq!(arrive(&mut book, 1, 3, 70), Err(Refusal::Unauthorised));
    for connection in 2..5 {
        assert_eq!(arrive(&mut book, connection, 1, 71), Ok(()));
    }
    assert_eq!(arrive(&mut book, 5, 1, 71), Err(Refusal::ProcessQuota));
    book.leave(4);
    assert_eq!(arrive(&mut book, 5, 1, 71), Ok(()));
    // Whoever cannot be seen from here counts for its user.
    for connection in 10..23 {
        assert_eq!(arrive(&mut book, connection, 1, 0), Ok(()), "{connection}");
    }
    book.set_rules(Rules { per_user: 2, max: 9, ..rules(3) });
    for connection in 23..25 {
        assert_eq!(arrive(&mut book, connection, 1, 0), Ok(()), "{connection}");
    }
    assert_eq!(arrive(&mut book, 25, 1, 0), Err(Refusal::UserQuota));
    assert_eq!(arrive(&mut book, 30, 2, 0), Ok(()), "the other user has lost nothing");
    enter(&mut book, 2, "a");
    enter(&mut book, 3, "b");
    assert_eq!(book.announce(5, arena("c", ready())), Err(Refusal::UserQuota));
    assert_eq!(book.standing(5), Some(Standing::TooMany));
    enter(&mut book, 2, "d");
    enter(&mut book, 30, "c");
    let quotas = [Refusal::Unauthorised, Refusal::ProcessQuota, Refusal::UserQuota];
    assert_eq!(quotas.map(|why| book.refusals()[why as usize]), [1, 1, 2]);
}

#[test]
fn a_name_is_its_users_through_grace() {
    let mut book = book(9);
    for (connection, uid) in [(1, 1), (2, 2), (3, 1)] {
        arrive(&mut book, connection, uid, 70).expect("there is room");
    }
    enter(&mut book, 1, "a");
    assert_eq!(book.announce(2, arena("a", ready())), Err(Refusal::NameTaken));
    tell(&mut book, 0, &none());
    book.leave(1);
    // It has waited longest, and is another user.
    assert!(!book.admit_refused());
    assert_eq!(tell(&mut book, 100, &none()), ["a goes"]);
    tell(&mut book, 5_099, &none());
    assert!(!book.admit_refused());
    let owned = book.owned();
    enter(&mut book, 3, "a");
    book.leave(3);
    tell(&mut book, 6_000, &none());
    tell(&mut book, 11_000, &none());
    assert!(book.admit_refused(), "nobody has it any more");
    assert_eq!(book.owner("a"), Some(2));
    // A successor knows whose it is, whether its process is there or not.
    for (records, owned) in [(Vec::new(), owned), (book.handed(), book.owned())] {
        let whose = owned[0].uid;
        let mut heir = self::book(9);
        heir.inherit(&records, &owned, 1_000);
        for uid in [1, 2] {
            arrive(&mut heir, uid.into(), uid, 70).expect("there is room");
        }
        let of = |it: u64| arena("a", Announcement::new("arena", it as u32));
        let other = u64::from(3 - whose);
        assert_eq!(heir.announce(other, of(other)), Err(Refusal::NameTaken));
        heir.announce(whose.into(), of(1)).expect("it is its user's");
    }
}

/// Where there is room for a few, each has its turn.
#[test]
fn those_who_change_all_the_time_leave_room_for_the_others() {
    let mut book = book(20);
    let mut told = BTreeSet::new();
    let keyspace = Keyspace::new("/f").expect("a prefix");
    for round in 0..40 {
        for index in 0..9 {
            let what = ready().label("round", round.to_string());
            book.announce(index, arena(&format!("a{index}"), what)).expect("there is room");
        }
        enter(&mut book, 9, "late");
        let mut room = 2;
        book.tell(round * 100, &none(), &keyspace, |command| {
            let has_room = room > 0;
            if let (true, Command::Set(key, _)) = (has_room, command) {
                told.insert(key);
                room -= 1;
            }
            has_room
        });
    }
    assert_eq!(told.len(), 10, "{told:?}");
}

/// A gateway or an agent that is started anew knows whose names are whose, as long as that matters.
#[test]
fn a_name_is_its_users_over_a_start() {
    let mut before = book(9);
    for (connection, name) in [(1, "a"), (2, "never-linked")] {
        arrive(&mut before, connection, 1, 70).expect("there is room");
        enter(&mut before, connection, name);
    }
    tell(&mut before, 0, &none());
    let left = before.owned_for_good();
    let mut book = book(9);
    book.inherit_owned(&left);
    for uid in [1, 2] {
        arrive(&mut book, uid.into(), uid, 70).expect("there is room");
    }
    tell(&mut book, 0, &none());
    assert_eq!(book.announce(2, arena("a", ready())), Err(Refusal::NameTaken));
    enter(&mut book, 1, "a");
    enter(&mut book, 2, "never-linked");
    book.leave(1);
    book.leave(2);
    tell(&mut book, 4_999, &none());
    assert_eq!(book.owned_for_good(), [], "nobody has linked this time");
}

/// A process that only says that it has a name keeps it from nobody when it leaves.
#[test]
fn a_name_at_which_nobody_has_played_is_free_at_once() {
    let mut book = book(9);
    for (connection, uid) in [(1, 1), (2, 2)] {
        arrive(&mut book, connection, uid, 70).expect("there is room");
    }
    for name in ["one", "two", "three"] {
        enter(&mut book, 1, name);
        tell(&mut book, 0, &none());
    }
    enter(&mut book, 2, "one");
    book.leave(1);
    assert!(book.owned().iter().all(|it| it.uid == 2));
    enter(&mut book, 2, "three");
    assert_eq!(book.owner("three"), Some(2));
}

/// Who takes one name after the other keeps no more of them than there may be processes.
#[test]
fn kept_names_are_bounded() {
    let mut book = book(3);
    arrive(&mut book, 1, 1, 70).expect("there is room");
    for n in 0..50 {
        let name = format!("n{n}");
        enter(&mut book, 1, &name);
        book.wishes(n, &Counted { linked: [name].into(), ..Counted::default() });
    }
    let kept: Vec<_> = book.owned().into_iter().map(|it| it.name).collect();
    assert_eq!(kept, ["n49", "n46", "n47", "n48"]);
}

#[test]
fn other_rules_are_news_for_those_who_are_there() {
    let mut book = book(9);
    arrive(&mut book, 1, 1, 70).expect("there is room");
    enter(&mut book, 1, "a");
    book.set_rules(rules(9));
    assert!(!book.admit_refused());
    book.set_rules(Rules { allowed: Allowed { uids: vec![2], gids: Vec::new() }, ..rules(9) });
    assert!(book.admit_refused() && !book.admits(1));
}

/// Whose players are told of at a process, and how many it has.
fn joins(book: &mut Book, now_ms: u64, counted: &Counted) -> Vec<(u32, Option<Vec<u64>>)> {
    let wishes = book.wishes(now_ms, counted);
    let told = wishes.iter().filter_map(|wish| match wish {
        Wish::Set(_, value) => Some((
            value.used,
            value.joined.as_ref().map(|it| it.all().iter().map(|it| it.0).collect()),
        )),
        Wish::Remove(..) => None,
    });
    let told = told.collect();
    for wish in &wishes {
        book.told(wish, now_ms);
    }
    told
}

#[test]
fn who_has_come_is_told_with_the_players_once_in_a_second() {
    let mut book = book(9);
    enter(&mut book, 1, "a");
    let with = |players: u32| Counted { players: [("a".to_owned(), players)].into(), ..none() };
    assert_eq!(joins(&mut book, 0, &with(0)), [(0, Some(Vec::new()))]);
    let note = |book: &mut Book, numbers: std::ops::Range<u64>| {
        book.note_joins(numbers.map(|it| ("a".to_owned(), Join(it))));
    };
    note(&mut book, 0..2);
    book.note_joins([("nobody".to_owned(), Join(9))]);
    assert!(joins(&mut book, 999, &with(2)).is_empty());
    assert_eq!(joins(&mut book, 1_000, &with(2)), [(2, Some(vec![0, 1]))]);
    assert!(joins(&mut book, 5_000, &with(2)).is_empty());
    // As many as there were before, of whom one is another.
    note(&mut book, 2..3);
    assert_eq!(joins(&mut book, 6_000, &with(2)), [(2, Some(vec![0, 1, 2]))]);
    // More than a value has room for: one after the other, and none is passed over unsaid.
    note(&mut book, 3..603);
    assert_eq!(joins(&mut book, 7_000, &with(300))[0].1.as_ref().map(Vec::len), Some(256));
    let wishes = book.wishes(8_000, &with(300));
    assert_eq!(book.wishes(9_000, &with(301)).len(), wishes.len(), "it was not told");
    let last =
        |told: &[(u32, Option<Vec<u64>>)]| told[0].1.as_ref().and_then(|it| it.last().copied());
    assert_eq!(last(&joins(&mut book, 9_000, &with(301))), Some(514));
    assert_eq!(last(&joins(&mut book, 10_000, &with(301))), Some(602));
    // A process that counts by itself may not have counted them yet.
    book.announce(1, arena("a", ready().players(5))).expect("it is there");
    assert_eq!(joins(&mut book, 11_000, &with(301)), [(5, None)]);
}

#[test]
fn a_successor_tells_again_who_has_come_and_how_many_there_are() {
    let mut before = book(9);
    enter(&mut before, 1, "a");
    before.note_joins([("a".to_owned(), Join(7))]);
    let _ = joins(&mut before, 0, &none());
    before.note_joins([("a".to_owned(), Join(8))]);
    let counted = Counted { players: [("a".to_owned(), 3)].into(), ..none() };
    let mut book = book(9);
    book.inherit(&before.handed(), &before.owned(), 1_000);
    book.inherit_joined(&before.joined());
    assert_eq!(joins(&mut book, 0, &counted), [(3, Some(vec![7, 8]))]);
    let handed = before.hand_over();
    let mut heir = super::tests::book(9);
    heir.go_on_with(handed, &[1].into(), &[]).expect("sound");
    assert_eq!(joins(&mut heir, 1_000, &counted), [(3, Some(vec![7, 8]))]);
}

#[test]
fn books_survive_any_sequence_of_events() {
    for seed in 0..100 {
        let mut state = seed;
        let mut number = || ringgate_core::splitmix::next(&mut state).to_le_bytes();
        let input: Vec<_> = (0..150).flat_map(|_| number()).collect();
        turmoil::play(&input);
    }
}

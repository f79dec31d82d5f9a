//! Game processes of several users in any sequence of events, decided byte by byte: they come,
//! announce themselves, change, are linked and go, the config is read again, and the book is handed
//! over. A fuzzer makes the bytes, too; see [`World::check`] for what must hold after each event.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use ringgate_core::netcode::destination::Join;
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::lease::run::Command;
use ringgate_fleet::values::{self, Reach, Stored};
use ringgate_gate::{Allowed, Credentials};
use ringgate_link::announce::{Announced, Announcement, State};

use super::super::{Book, Counted, Handed, OwnedName, Refusal, Rules};

/// One world to its end.
pub(crate) fn play(input: &[u8]) {
    let mut choices = Choices(input);
    let mut world = World::new(choices.below(2) == 0);
    while !choices.0.is_empty() {
        world.step(&mut choices);
    }
}

/// Decisions, one byte each.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, end: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % end.max(1)
    }
}

struct World {
    /// An agent hands connections over, and a gateway has its processes come again.
    is_agents: bool,
    book: Book,
    rules: Rules,
    file: Vec<String>,
    now_ms: u64,
    /// Who is connected.
    guests: BTreeMap<u64, Credentials>,
    next: u64,
    linked: BTreeSet<String>,
    /// Which starts of which names were linked.
    has_linked: HashSet<(String, String)>,
    /// Names whose processes have gone: whose they are, and until when at least.
    kept: HashMap<String, (u32, u64)>,
    /// What stands in etcd, unless a command was passed over.
    etcd: Option<BTreeSet<Bytes>>,
}

impl World {
    fn new(is_agents: bool) -> Self {
        let rules = rules(3, &[1, 2]);
        let file = vec!["n0".to_owned()];
        Self {
            is_agents,
            book: book(&rules, &file),
            rules,
            file,
            now_ms: 0,
            guests: BTreeMap::new(),
            next: 0,
            linked: BTreeSet::new(),
            has_linked: HashSet::new(),
            kept: HashMap::new(),
            etcd: Some(BTreeSet::new()),
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let before = self.book.owned();
        let names: BTreeSet<_> = self.book.slots().map(|(name, _)| name.to_owned()).collect();
        match choices.below(32) {
            0..6 => self.arrive(choices),
            6..15 => self.announce(choices),
            15..18 => self.leave(choices),
            18..20 => self.link(choices),
            20..27 => self.tell(choices),
            27 => self.reload(choices),
            28 => self.change_file(choices),
            29 if self.is_agents => self.go_on(),
            29 if choices.below(4) == 0 => self.inherit(),
            _ => drop(self.book.admit_refused()),
        }
        let before = before.into_iter().filter(|it| names.contains(&it.name));
        self.check(before, &names);
    }

    /// A process may come unless it is not allowed or a quota is used up, and then for that reason.
    fn arrive(&mut self, choices: &mut Choices<'_>) {
        // One in five cannot be seen from here.
        let pid = choices.below(5) as u32;
        let who = Credentials { uid: 1 + pid % 3, gid: 0, pid };
        self.next += 1;
        let count =
            |is: &dyn Fn(&Credentials) -> bool| self.guests.values().filter(|it| is(it)).count();
        let Rules { max, per_process, per_user, .. } = self.rules;
        let expected = if !self.rules.allowed.uids.contains(&who.uid) {
            Err(Refusal::Unauthorised)
        } else if self.guests.len() >= max + 16 {
            Err(Refusal::TooMany)
        } else if pid != 0 && count(&|it| it.pid == pid) >= per_process {
            Err(Refusal::ProcessQuota)
        } else if count(&|it| it.uid == who.uid) >= per_user + 16 {
            Err(Refusal::UserQuota)
        } else {
            Ok(())
        };
        assert_eq!(self.book.arrive(self.next, who), expected);
        if expected.is_ok() {
            self.guests.insert(self.next, who);
        }
    }

    fn announce(&mut self, choices: &mut Choices<'_>) {
        let Some((connection, who)) = self.guest(choices) else { return };
        let name = format!("n{}", choices.below(NAMES));
        let states =
            [State::Starting, State::Ready, State::Ready, State::Allocated, State::Draining];
        let what = Announcement::new("arena", 8).state(states[choices.below(states.len())]);
        let instance = 1 + choices.below(3) as u64;
        let others = self.book.owned();
        let count = |is: &dyn Fn(&OwnedName) -> bool| others.iter().filter(|it| is(it)).count();
        let announced =
            self.book.announce(connection, Announced { name: name.clone(), instance, what });
        let owner = others.iter().find(|it| it.name == name).map(|it| it.uid);
        match announced {
            Ok(_) => assert_eq!(self.book.owner(&name), Some(who.uid)),
            Err(Refusal::NameInConfig) => assert!(self.file.contains(&name)),
            Err(Refusal::NameTaken) => assert!(owner.is_some(), "nobody has {name}"),
            Err(Refusal::TooMany) => assert!(others.len() >= self.rules.max),
            Err(Refusal::UserQuota) => {
                assert!(count(&|it| it.uid == who.uid) >= self.rules.per_user);
            }
            Err(other) => panic!("{other:?} is no reason"),
        }
        if choices.below(8) == 0 {
            let joined = (0..choices.below(4)).map(|it| (name.clone(), Join(it as u64)));
            self.book.note_joins(joined);
        }
    }

    fn leave(&mut self, choices: &mut Choices<'_>) {
        if let Some((connection, _)) = self.guest(choices) {
            self.hang_up(connection);
        }
    }

    fn hang_up(&mut self, connection: u64) {
        self.guests.remove(&connection);
        self.book.leave(connection);
        assert_eq!(self.book.standing(connection), None, "it has gone");
    }

    fn guest(&self, choices: &mut Choices<'_>) -> Option<(u64, Credentials)> {
        let at = choices.below(self.guests.len());
        self.guests.iter().nth(at).map(|(connection, who)| (*connection, *who))
    }

    fn link(&mut self, choices: &mut Choices<'_>) {
        let name = format!("n{}", choices.below(NAMES));
        if !self.linked.remove(&name) {
            self.linked.insert(name);
        }
    }

    /// Time passes, and the registration is told as far as it has room. Nothing is ready that was
    /// never linked.
    fn tell(&mut self, choices: &mut Choices<'_>) {
        self.now_ms += [0, 100, 1_000, 6_000][choices.below(4)];
        let mut room = [0, 1, 2, usize::MAX][choices.below(4)];
        let has_room = room == usize::MAX;
        let spoken = self.book.handed();
        for Announced { name, instance, .. } in spoken.iter().filter_map(|it| Announced::decode(it))
        {
            if self.linked.contains(&name) {
                self.has_linked.insert((name, format!("{instance:016x}")));
            }
        }
        let counted = Counted { linked: self.linked.clone(), ..Counted::default() };
        let Self { book, has_linked, etcd, .. } = self;
        book.tell(self.now_ms, &counted, &keyspace(), |command| {
            let is_said = room > 0;
            room = room.saturating_sub(1);
            match command {
                Command::Set(key, value) => {
                    let Some(Place::Backend(name)) = keyspace().place(&key) else {
                        panic!("{key:?}")
                    };
                    let value = values::Backend::decode(&value).expect("a sound value");
                    let is_open =
                        matches!(value.state, values::State::Ready | values::State::Allocated);
                    let start = (name.to_string(), value.instance);
                    assert!(!is_open || has_linked.contains(&start), "{start:?} was never linked");
                    etcd.as_mut().filter(|_| is_said).map(|it| it.insert(key));
                }
                Command::Remove(key) | Command::Retire(key, _) => {
                    etcd.as_mut().filter(|_| is_said).map(|it| it.remove(&key));
                }
                _ => *etcd = None,
            }
            is_said
        });
        let place = |name: &str| keyspace().key(&Place::Backend(Name::new(name).expect("a name")));
        let names: BTreeSet<_> = self.book.slots().map(|(name, _)| place(name)).collect();
        let is_as_told = self.etcd.as_ref().is_none_or(|it| *it == names);
        assert!(!has_room || is_as_told, "{:?} stands there, not {names:?}", self.etcd);
    }

    /// The config is read again, and the door hangs up on those who may not be here any more.
    fn reload(&mut self, choices: &mut Choices<'_>) {
        let max = [3, 20][choices.below(2)];
        let users: &[u32] = [&[1, 2][..], &[1, 2, 3], &[2], &[]][choices.below(4)];
        self.rules = rules(max, users);
        self.book.set_rules(self.rules.clone());
        let goes = |connection: &&u64| !self.book.admits(**connection);
        for connection in self.guests.keys().filter(goes).copied().collect::<Vec<_>>() {
            self.hang_up(connection);
        }
    }

    /// Names come into the config and leave it. They are nobody's then.
    fn change_file(&mut self, choices: &mut Choices<'_>) {
        self.file = (0..choices.below(3)).map(|_| format!("n{}", choices.below(NAMES))).collect();
        self.book.set_file(self.file.clone());
        self.kept.retain(|name, _| !self.file.contains(name));
    }

    /// The next process goes on with all of it, and the connections.
    fn go_on(&mut self) {
        let json = serde_json::to_vec(&self.book.hand_over()).expect("no maps");
        let handed: Handed = serde_json::from_slice(&json).expect("as it was written");
        let mut book = book(&self.rules, &self.file);
        let connections = self.guests.keys().copied().collect();
        assert_eq!(book.go_on_with(handed, &connections, &[]), Ok(()));
        for (connection, who) in &self.guests {
            book.meet(*connection, *who);
        }
        // Of kept names there may be more than the rules let be kept now.
        let but_kept = |book: &Book| {
            let mut value = serde_json::to_value(book.hand_over()).expect("no maps");
            value["owned"].take();
            (value, of_rows(book))
        };
        assert_eq!(but_kept(&book), but_kept(&self.book));
        let has_all = book.owned() == self.book.owned();
        for connection in self.guests.keys().filter(|_| has_all) {
            assert_eq!(book.standing(*connection), self.book.standing(*connection));
        }
        // Whoever looks finds that no name is another's.
        for name in book.to_look(false) {
            assert!(!book.looked(&name, None), "{name} is nobody's");
        }
        self.book = book;
    }

    /// The next process goes on, and all who are there have to come again.
    fn inherit(&mut self) {
        let (records, owned, joined) = (self.book.handed(), self.book.owned(), self.book.joined());
        let mut book = book(&self.rules, &self.file);
        book.inherit(&records, &owned, self.now_ms + 2_000);
        book.inherit_joined(&joined);
        assert_eq!((book.handed(), book.joined()), (records, joined));
        assert_eq!(of_rows(&book), of_rows(&self.book));
        // What was to be taken away was another's.
        self.etcd = self.etcd.take().map(|_| BTreeSet::new());
        self.guests.clear();
        self.book = book;
    }

    /// A name is one user's, and stays that one's through grace where it was linked. There are no
    /// more names than the rules allow, unless they did when the process came. Whoever has gone
    /// takes no memory.
    fn check(&mut self, before: impl Iterator<Item = OwnedName>, names: &BTreeSet<String>) {
        let until_ms = self.now_ms + GRACE_MS;
        for OwnedName { name, uid, has_linked } in before.filter(|it| it.has_linked) {
            let now = self.book.owner(&name);
            assert!(now.is_none_or(|it| it == uid), "{name} was {uid}'s, and is {now:?}'s");
            if now.is_none() && has_linked && !self.file.contains(&name) {
                self.kept.insert(name, (uid, until_ms));
            }
        }
        let owned = self.book.owned();
        let is_there = |it: &&OwnedName| self.book.owner(&it.name).is_some();
        let Rules { max, per_user, .. } = self.rules;
        let is_more = self.book.slots().any(|(name, _)| !names.contains(name));
        assert!(!is_more || self.book.slots().count() <= max);
        for uid in 1..=3 {
            let of = || owned.iter().filter(|it| it.uid == uid);
            let kept = of().filter(|it| !is_there(it)).count();
            assert!(kept <= 20, "{kept} names are kept for {uid}");
            // Of more than there may be, the first are forgotten.
            self.kept.retain(|_, (of, _)| *of != uid || kept < max);
            let is_new = of().filter(is_there).any(|it| !names.contains(&it.name));
            assert!(!is_new || of().filter(is_there).count() <= per_user, "{uid} has too many");
        }
        self.kept.retain(|name, (uid, until_ms)| {
            let now = self.book.owner(name).filter(|_| self.now_ms < *until_ms);
            assert!(now.is_none_or(|it| it == *uid), "{name} is kept for {uid}, not {now:?}");
            now.is_none() && self.now_ms < *until_ms
        });
        let handed = format!("{:?}", self.book.hand_over());
        assert!(handed.len() < 100_000, "{} bytes", handed.len());
    }
}

/// Whose the names of processes are that are there.
fn of_rows(book: &Book) -> Vec<OwnedName> {
    let owned = book.owned().into_iter();
    owned.filter(|it| book.owner(&it.name).is_some()).collect()
}

fn book(rules: &Rules, file: &[String]) -> Book {
    let host = Name::new("here").expect("a name");
    Book::new(host, Reach::Bundle("/run/ringgate".into()), rules.clone(), file.to_vec())
}

fn rules(max: usize, users: &[u32]) -> Rules {
    let allowed = Allowed { uids: users.to_vec(), gids: Vec::new() };
    Rules { allowed, max, per_process: 3, per_user: 1 + max / 2, grace_ms: GRACE_MS }
}

fn keyspace() -> Keyspace {
    Keyspace::new("/f").expect("a prefix")
}

const NAMES: usize = 40;
const GRACE_MS: u64 = 5_000;

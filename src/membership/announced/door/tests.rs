//! What a process that is refused hears over a real socket, and what becomes of it later.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::Reach;
use ringgate_io::socket;
use ringgate_link::announce::Announcement;
use ringgate_os::process;
use socket2::{Domain, SockAddr, Socket, Type};

use super::super::Rules;
use super::*;
use ringgate_gate::Allowed;

/// Two places, and nothing in the config file.
fn book() -> Arc<Mutex<Book>> {
    let host = Name::new("here").expect("a name");
    let file = vec!["filed".to_owned()];
    let book = Book::new(host, Reach::Bundle("/run/ringgate".into()), rules(own()), file);
    Arc::new(Mutex::new(book))
}

/// For processes of that user.
fn rules(uid: u32) -> Rules {
    let allowed = Allowed { uids: vec![uid], gids: Vec::new() };
    Rules { allowed, max: 2, per_process: 20, per_user: 2, grace_ms: 5_000 }
}

fn own() -> u32 {
    process::effective_uid()
}

fn refusals(book: &Mutex<Book>) -> [u64; Refusal::ALL.len()] {
    book.lock().expect("no test panics with it").refusals()
}

fn door() -> (Door, PathBuf) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("ringgate-announce-{}-{number}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let socket = socket::link_listener(&path, 0o666).expect("a folder of our own");
    (Door::new(socket), path)
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("descriptors are left")
}

/// Runs `games` beside the door.
fn beside(
    book: &Arc<Mutex<Book>>,
    speaks_within: Duration,
    games: impl FnOnce(&Path, &watch::Sender<u64>) + Send + 'static,
) {
    let (door, path) = door();
    let (tell, news) = watch::channel(0);
    let (_stays, rest) = watch::channel(false);
    let runtime = runtime();
    let at = path.clone();
    runtime.block_on(async {
        let games = tokio::task::spawn_blocking(move || games(&at, &tell));
        tokio::select! {
            _ = serve_within(door, Arc::clone(book), (news, rest), speaks_within) => panic!("it serves"),
            played = games => played.expect("a test that fails has said why"),
        }
    });
    let _ = std::fs::remove_file(path);
}

struct Game(Socket);

impl Game {
    fn connect(path: &Path) -> Self {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a descriptor");
        socket.connect(&SockAddr::unix(path).expect("a path")).expect("it listens");
        Self(socket)
    }

    fn say(&self, name: &str) {
        let record = Announcement::new("arena", 8).encode(name, 9).expect("it can be said");
        self.0.send(&record).expect("it is there");
    }

    /// The next answer; none where the door has hung up.
    fn hear(&mut self) -> Option<Standing> {
        let mut answer = [0; 64];
        let len = self.0.read(&mut answer).expect("it can be read");
        Standing::decode(&answer[..len])
    }
}

#[test]
fn whoever_is_refused_is_let_in_when_the_other_ends() {
    let book = book();
    let rows = Arc::clone(&book);
    beside(&book, SPEAKS_WITHIN, move |path, news| {
        let (mut first, mut second) = (Game::connect(path), Game::connect(path));
        first.say("arena-1");
        assert_eq!(first.hear(), Some(Standing::Waiting));
        second.say("arena-1");
        assert_eq!(second.hear(), Some(Standing::NameTaken));
        drop(first);
        // As the thread does ten times a second.
        while !rows.lock().expect("nothing panics").admit_refused() {
            std::thread::yield_now();
        }
        news.send_modify(|count| *count += 1);
        assert_eq!(second.hear(), Some(Standing::Waiting), "it stands in the book");
    });
    assert_eq!(refusals(&book), [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn those_for_whom_there_is_no_room_are_told() {
    let book = book();
    beside(&book, SPEAKS_WITHIN, move |path, _| {
        let room = 2 + 16;
        let held: Vec<_> = (0..room).map(|_| Game::connect(path)).collect();
        let mut last = Game::connect(path);
        assert_eq!((last.hear(), last.hear()), (Some(Standing::TooMany), None));
        drop(held);
    });
    assert_eq!(refusals(&book), [0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_stranger_nonsense_and_silence_are_hung_up_on_and_counted() {
    let book = book();
    book.lock().expect("nothing panics").set_rules(rules(own() + 1));
    beside(&book, SPEAKS_WITHIN, |path, _| {
        let mut stranger = Game::connect(path);
        assert_eq!((stranger.hear(), stranger.hear()), (Some(Standing::Unauthorised), None));
    });
    book.lock().expect("nothing panics").set_rules(rules(own()));
    beside(&book, SPEAKS_WITHIN, |path, _| {
        let mut babbler = Game::connect(path);
        babbler.0.send(b"hello").expect("it is there");
        assert_eq!((babbler.hear(), babbler.hear()), (Some(Standing::Invalid), None));
    });
    beside(&book, Duration::ZERO, |path, _| {
        let mut silent = Game::connect(path);
        assert_eq!((silent.hear(), silent.hear()), (Some(Standing::Invalid), None));
    });
    assert_eq!(refusals(&book), [0, 0, 0, 1, 1, 1, 0, 0]);
}

#[test]
fn who_has_come_stays_while_nobody_attends() {
    let book = book();
    let (door, path) = door();
    let (runtime, (tell, _)) = (runtime(), watch::channel(0));
    let serve_beside = |door: Door, games: Box<dyn FnOnce() + Send>| {
        let (rest, rests) = watch::channel(false);
        let news = tell.subscribe();
        runtime.block_on(async {
            let games = tokio::task::spawn_blocking(games);
            let played = async {
                games.await.expect("a test that fails has said why");
                rest.send_replace(true);
            };
            tokio::join!(serve(door, Arc::clone(&book), news, rests), played).0
        })
    };
    let (first, silent) = (Game::connect(&path), Game::connect(&path));
    let first = Arc::new(Mutex::new(first));
    let game = Arc::clone(&first);
    let says = move || {
        let mut game = game.lock().expect("nothing panics");
        game.say("arena-1");
        assert_eq!(game.hear(), Some(Standing::Waiting));
    };
    let door = serve_beside(door, Box::new(says));
    let mut seated: Vec<_> = door.seated.iter().map(|it| (it.number, it.said)).collect();
    seated.sort_unstable_by_key(|(number, _)| *number);
    assert_eq!(seated, [(1, Some(Standing::Waiting)), (2, None)]);

    // What is said meanwhile is heard later, and who comes meanwhile is let in.
    first.lock().expect("nothing panics").say("arena-2");
    let mut late = Game::connect(&path);
    let game = Arc::clone(&first);
    let says = move || {
        assert_eq!(game.lock().expect("nothing panics").hear(), Some(Standing::Waiting));
        late.say("arena-2");
        assert_eq!(late.hear(), Some(Standing::NameTaken));
    };
    let door = serve_beside(door, Box::new(says));
    let has = |name: &str| book.lock().expect("nothing panics").names().eq([name]);
    assert!(has("arena-2"));
    drop((first, silent));
    let rows = Arc::clone(&book);
    let ends = move || {
        while rows.lock().expect("nothing panics").names().next().is_some() {
            std::thread::yield_now();
        }
    };
    let door = serve_beside(door, Box::new(ends));
    assert!(door.seated.iter().all(|it| it.number != 1), "{:?}", door.seated);
    let _ = std::fs::remove_file(path);
}

/// A reload that takes a user out, or lets one in, holds for those who are there and who come.
#[test]
fn who_may_register_is_what_the_last_reload_says() {
    let book = book();
    let rows = Arc::clone(&book);
    beside(&book, SPEAKS_WITHIN, move |path, news| {
        let reload = |uid| {
            let mut book = rows.lock().expect("nothing panics");
            book.set_rules(rules(uid));
            assert!(book.admit_refused(), "those who are there are to hear of it");
            drop(book);
            news.send_modify(|count| *count += 1);
        };
        let mut game = Game::connect(path);
        game.say("arena-1");
        assert_eq!(game.hear(), Some(Standing::Waiting));
        reload(own() + 1);
        assert_eq!((game.hear(), game.hear()), (Some(Standing::Unauthorised), None));
        let mut late = Game::connect(path);
        assert_eq!((late.hear(), late.hear()), (Some(Standing::Unauthorised), None));
        reload(own());
        let mut again = Game::connect(path);
        again.say("arena-1");
        assert_eq!(again.hear(), Some(Standing::Waiting));
    });
}

/// One process that connects as often as it can leaves room for the others.
#[test]
fn a_process_holds_so_many_connections() {
    let book = book();
    let rows = Arc::clone(&book);
    beside(&book, SPEAKS_WITHIN, move |path, _| {
        rows.lock().expect("nothing panics").set_rules(Rules { per_process: 2, ..rules(own()) });
        let held: Vec<_> = (0..2).map(|_| Game::connect(path)).collect();
        let mut last = Game::connect(path);
        assert_eq!((last.hear(), last.hear()), (Some(Standing::TooMany), None));
        drop(held);
    });
    assert_eq!(refusals(&book)[Refusal::ProcessQuota as usize], 1);
}

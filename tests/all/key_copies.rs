//! Where keys lie in the memory of a running process: in one place each, however often its file was
//! read again, and nowhere once they were rotated away.
//!
//! Skipped aloud where this user may not look into other processes, and where `etcd` or `openssl`
//! is not installed.

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;

use ringgate_os::clock;
use ringgate_report::text::Append as _;

use crate::agent::agent_upgrade;
use crate::agent_reload::reload;
use crate::control_rig::{Daemon, Game, Player, Text, request, wait_for};
use crate::fleet_agent::{Rig, server};
use crate::fleet_page::Service;
use crate::fleet_rig::{FLEET_KEY, Fleet, backend_is_up, in_fleet, key};
use crate::folder::Folder;
use crate::own::own_port;
use crate::upgrade_rig::Line;

/// Epochs whose keys are bytes that nothing else is made of.
const OLD: u32 = 0xa7;
const NEW: u32 = 0xb3;

const RELOADS: usize = 10;

/// Digits that are the token as they stand.
const ADMIN_TOKEN: &str = "d1e5c7a90b3f42688ea4d6b1937c5f20";

/// etcd's, which no etcd asks for here: it is sent all the same.
const PASSWORD: &str = "a-word-for-one-etcd-and-nobody-else";

/// What the only caller of a token service shows.
const SECRET: &str = "an-eye-for-the-fleet";

/// What is in the writable memory of a process.
struct Memory {
    pid: u32,
    file: File,
}

impl Memory {
    fn of(pid: u32) -> Option<Self> {
        match File::open(format!("/proc/{pid}/mem")) {
            Ok(file) => Some(Self { pid, file }),
            Err(why) => {
                eprintln!("SKIPPED: the memory of other processes cannot be read: {why}");
                None
            }
        }
    }

    /// Asserts that a key is there so often as its bytes, and so often as the digits of a file.
    fn holds(&self, what: &str, hex: &str, (bytes, digits): (usize, usize)) {
        let [raw, text] = [self.places(&raw(hex)), self.places(hex.as_bytes())];
        assert_eq!((raw.len(), text.len()), (bytes, digits), "{what}: {raw:#?}, text: {text:#?}");
    }

    /// Waits until a key is there once, or nowhere: workers let go of it when they turn, and
    /// connections when they end.
    fn comes_to_hold(&self, what: &str, hex: &str, bytes: usize) {
        let mut before = None;
        wait_for(what, || {
            let found = self.places(&raw(hex));
            if before.replace(found.len()) != Some(found.len()) {
                eprintln!("{what}: {found:#?}");
            }
            (found.len() == bytes).then_some(())
        });
    }

    /// Where these bytes lie, and in what.
    fn places(&self, wanted: &[u8]) -> Vec<String> {
        let maps = read_to_string(format!("/proc/{}/maps", self.pid)).expect("it runs");
        let mut places = Vec::new();
        // What straddles two chunks begins in the first of them.
        let mut bytes = vec![0; CHUNK_BYTES + wanted.len() - 1];
        let zeros = bytes.clone();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (range, rights) = words.next().zip(words.next()).expect("a map");
            if !rights.starts_with("rw") {
                continue;
            }
            let hex = |text| u64::from_str_radix(text, 16).expect("an address");
            let (from, to) = range.split_once('-').map(|(a, b)| (hex(a), hex(b))).expect("two");
            for at in (from..to).step_by(CHUNK_BYTES) {
                let here = bytes.len().min((to - at) as usize);
                let len = self.file.read_at(&mut bytes[..here], at).unwrap_or(0);
                if bytes[..len] != zeros[..len] {
                    let found = found(&bytes[..len], wanted);
                    places.extend(found.map(|it| format!("{:x} of {line}", at + it as u64)));
                }
            }
        }
        places
    }
}

fn found<'b>(bytes: &'b [u8], wanted: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == wanted[0]);
    let starts = starts.map(|(at, _)| at).take_while(|at| *at < CHUNK_BYTES);
    starts.filter(|at| bytes[*at..].starts_with(wanted))
}

const CHUNK_BYTES: usize = 1 << 16;

fn hex(text: &str) -> String {
    let mut hex = String::new();
    text.bytes().for_each(|byte| write!(hex, "{byte:02x}"));
    hex
}

fn raw(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2).map(|pair| str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

/// Waits until a gateway has taken in exactly the keys of these epochs.
fn has_taken_in(fleet: &Fleet, epochs: &[u32]) {
    let list = serde_json::json!(epochs);
    wait_for("the keys", || {
        (fleet.gateway("gate-1")?["listeners"][0]["epochs"] == list).then_some(())
    });
}

/// Another key comes, and the first one ends.
fn rotate(fleet: &Fleet) {
    fleet.put_key("eu", NEW);
    has_taken_in(fleet, &[OLD, NEW]);
    fleet.put_key_until("eu", OLD, clock::unix_seconds() + 2);
    has_taken_in(fleet, &[NEW]);
}

#[test]
fn a_gateways_keys_lie_in_one_place_each_and_nowhere_after_a_rotation() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", OLD);
    let mut text = in_fleet(&fleet, "gate-1");
    let secrets = Folder::new();
    let password = secrets.file("password", format!("{PASSWORD}\n"), 0o600);
    writeln!(text.backends, "user = \"gate\"\npassword = {{ file = {password:?} }}");
    let mut line = Line::start(&text);
    let daemon = &line.daemon;
    let Some(memory) = Memory::of(daemon.id()) else { return };
    has_taken_in(&fleet, &[OLD]);
    fleet.put_backend(daemon, "arena", 4, "ready");
    let game = Game::start(daemon, "arena");
    backend_is_up(daemon, "arena");
    let mut player = Player::connected(daemon.listener, 1, &key(OLD));
    player.echo(b"hello");
    memory.holds("the fleet's key", FLEET_KEY, (1, 0));
    memory.holds("the listener's key", &key(OLD), (1, 0));
    memory.holds("etcd's password", &hex(PASSWORD), (1, 0));
    for _ in 0..RELOADS {
        text.max_sessions -= 1;
        daemon.rewrite(&text);
        assert_eq!(daemon.post("/reload").status, 200);
    }
    memory.holds("the fleet's key after reloads", FLEET_KEY, (1, 0));
    memory.holds("the listener's key after reloads", &key(OLD), (1, 0));
    memory.holds("etcd's password after reloads", &hex(PASSWORD), (1, 0));
    // The same key is written again, which is news of it.
    fleet.put_key_until("eu", OLD, clock::unix_seconds() + 3600);
    rotate(&fleet);
    player.echo(b"still here");
    memory.holds("the new key", &key(NEW), (1, 0));
    memory.comes_to_hold("nothing of the key that has ended", &key(OLD), 0);
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    player.echo(b"in the next process");
    let Some(memory) = Memory::of(line.pid()) else { return };
    has_taken_in(&fleet, &[NEW]);
    memory.holds("the fleet's key in the next process", FLEET_KEY, (1, 0));
    memory.holds("the listener's key in the next process", &key(NEW), (1, 0));
    memory.holds("etcd's password in the next process", &hex(PASSWORD), (1, 0));
    drop(game);
}

#[test]
fn a_key_that_a_reload_has_taken_out_of_the_file_is_nowhere() {
    let [first, second, third] = [OLD, NEW, 0xc9].map(key);
    let mut text = Text::new();
    let keys = |keys: &[&String]| {
        let keys: Vec<_> = keys.iter().map(|key| format!("{{ hex = \"{key}\" }}")).collect();
        format!("keys = [{}]\nbackends = [\"arena\"]\n", keys.join(", "))
    };
    text.listener = keys(&[&first]);
    text.admin = format!("token = {{ hex = \"{ADMIN_TOKEN}\" }}\n");
    let mut line = Line::start(&text);
    let Some(memory) = Memory::of(line.daemon.id()) else { return };
    let game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    Player::connected(line.daemon.listener, 1, &first).leave();
    let mut read = |line: &Line, list: &[&String], more: &str, path: &str, status: u16| {
        text.listener = keys(list) + more;
        line.daemon.rewrite(&text);
        assert_eq!(line.daemon.post(path).status, status, "{path}");
    };
    for list in [[&second, &first], [&first, &second]] {
        memory.holds("the first key", &first, (1, 0));
        read(&line, &list, "", "/reload", 200);
        Player::connected(line.daemon.listener, 2, &second).leave();
    }
    read(&line, &[&second], "", "/reload", 200);
    memory.comes_to_hold("nothing of the first key", &first, 0);
    memory.holds("the first key", &first, (0, 0));
    memory.holds("the second key", &second, (1, 0));
    memory.holds("the admin token", ADMIN_TOKEN, (0, 1));
    // What a reload was only to say, and what one was refused, is not kept.
    read(&line, &[&third, &second], "", "/reload?dry_run=1", 200);
    memory.comes_to_hold("nothing of a key in a dry run", &third, 0);
    show_token(&line.daemon);
    memory.comes_to_hold("the admin token that was shown", &hex(ADMIN_TOKEN), 1);
    read(&line, &[&third, &second], "nonsense = true\n", "/reload", 422);
    memory.comes_to_hold("nothing of a key that was refused", &third, 0);
    memory.holds("the third key", &third, (0, 0));
    memory.holds("the second key after both", &second, (1, 0));
    read(&line, &[&second], "", "/reload", 200);
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    let Some(memory) = Memory::of(line.pid()) else { return };
    memory.holds("the second key in the next process", &second, (1, 0));
    read(&line, &[&third], "", "/reload", 200);
    memory.comes_to_hold("nothing of the second key", &second, 0);
    memory.holds("the third key", &third, (1, 0));
    memory.holds("the admin token in the next process", ADMIN_TOKEN, (0, 1));
    drop(game);
}

/// Sends the admin token as operators do, and another one.
fn show_token(daemon: &Daemon) {
    for (shown, status) in [(ADMIN_TOKEN, 200), ("not-the-admin-token", 401), (ADMIN_TOKEN, 200)] {
        let head = format!("Authorization: Bearer {shown}\r\n");
        let page = request(daemon.admin, "POST", "/reload?dry_run=1", &head);
        assert_eq!(page.expect("it answers").status, status);
    }
}

#[test]
fn an_agents_fleet_key_lies_in_one_place_and_in_the_text_of_its_file() {
    let Some(rig) = Rig::unconfined() else { return };
    let agent = rig.agent(&server(own_port(), ""));
    agent.shows("ringgate_fleet_registered", 1);
    let Some(memory) = Memory::of(agent.id()) else { return };
    // An agent keeps the text: it looks up there which certificate is its own.
    memory.holds("the fleet's key", FLEET_KEY, (1, 1));
    for _ in 0..RELOADS {
        reload(&rig.folder, &[]).succeeded();
    }
    memory.holds("the fleet's key after reloads", FLEET_KEY, (1, 1));
    let said = agent_upgrade(&rig.folder).succeeded();
    let pid = said.split(' ').nth(2).and_then(|pid| pid.parse().ok());
    let heir = crate::agent::Heir(pid.expect("it says which process goes on"));
    agent.shows("ringgate_fleet_registered", 1);
    let Some(memory) = Memory::of(heir.0) else { return };
    memory.holds("the fleet's key in the next process", FLEET_KEY, (1, 1));
}

#[test]
fn a_token_services_keys_lie_in_one_place_each_and_nowhere_after_a_rotation() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", OLD);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    fleet.put_backend(&daemon, "arena", 40, "ready");
    let game = Game::start(&daemon, "arena");
    let service = Service::start(&fleet, &["tokens"]);
    let Some(memory) = Memory::of(service.id()) else { return };
    for client_id in 1..20 {
        wait_for("a token", || service.token(client_id, "arena").ok());
    }
    memory.holds("the fleet's key", FLEET_KEY, (1, 0));
    memory.holds("the listener's key", &key(OLD), (1, 0));
    memory.comes_to_hold("the caller's secret", &hex(SECRET), 1);
    rotate(&fleet);
    for client_id in 20..39 {
        wait_for("a token", || service.token(client_id, "arena").ok());
    }
    memory.holds("the fleet's key after a rotation", FLEET_KEY, (1, 0));
    memory.holds("the new key", &key(NEW), (1, 0));
    memory.comes_to_hold("nothing of the key that has ended", &key(OLD), 0);
    drop(game);
}

//! A game server as studios write one: it registers itself under a lease, tells how many players it
//! has, and answers each payload. It knows a player by the address that the gateway gave it, and
//! forgets one who was silent for longer than a session may be. One behind an agent is told nothing
//! of the fleet: the agent registers it.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringgate_fleet::etcd::{Client, Endpoint, Options};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::lease::{Registration, run};
use ringgate_fleet::values::{Backend, Labels, Reach, State, Stored};
use ringgate_os::clock::Clock;
use tokio::sync::mpsc;

use super::parts::{HOST, PREFIX, SILENCE};

/// What a game server is told on its command line.
pub(super) struct Game {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) address: SocketAddr,
    pub(super) slots: u32,
    /// Where etcd answers; nothing for one that is behind an agent.
    pub(super) etcd: String,
    /// Where it writes how many players it has had at most.
    pub(super) folder: PathBuf,
}

impl Game {
    /// As one word after the other.
    pub(super) fn words(&self) -> String {
        let Self { name, group, address, slots, etcd, folder } = self;
        format!("{name} {group} {address} {slots} {etcd} {}", folder.display())
    }

    pub(super) fn of(words: &str) -> Self {
        let words: Vec<_> = words.split(' ').collect();
        let [name, group, address, slots, etcd, folder] = words[..] else { panic!("{words:?}") };
        Self {
            name: name.into(),
            group: group.into(),
            address: address.parse().expect("an address"),
            slots: slots.parse().expect("a number"),
            etcd: etcd.into(),
            folder: folder.into(),
        }
    }

    /// Plays until the process is killed.
    pub(super) fn play(self) {
        let (address, is_behind) = (self.address, self.etcd.is_empty());
        let socket = UdpSocket::bind(address).expect("its address is its own");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let (tell, told) = mpsc::channel(16);
        let (key, instance) = (self.key(), format!("i{}", std::process::id()));
        let etcd = self.etcd.clone();
        let first = self.value(&instance, address, 0);
        let _ = tell.try_send(run::Command::Set(key.clone(), first));
        if !is_behind {
            std::thread::spawn(move || register(&etcd, told));
        }
        let mut room = Room::new(&self.folder, &self.name);
        let mut buffer = [0; 2048];
        loop {
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                room.hear(from);
                let _ = socket.send_to(&buffer[..length], from);
            }
            if let Some(used) = room.news() {
                let value = self.value(&instance, address, used);
                let _ = tell.try_send(run::Command::Set(key.clone(), value));
            }
        }
    }

    fn key(&self) -> bytes::Bytes {
        let name = Name::new(&self.name).expect("a name");
        Keyspace::new(PREFIX).expect("a prefix").key(&Place::Backend(name))
    }

    fn value(&self, instance: &str, address: SocketAddr, used: u32) -> bytes::Bytes {
        let value = Backend {
            instance: instance.into(),
            host: HOST.into(),
            group: self.group.clone(),
            reach: Reach::Udp(address),
            gateways: Vec::new(),
            slots: self.slots,
            used,
            state: State::Ready,
            joined: None,
            labels: Labels::new(),
        };
        value.encode().expect("it can be read again")
    }
}

fn register(etcd: &str, commands: mpsc::Receiver<run::Command>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let endpoint = Endpoint::parse(etcd).expect("an endpoint");
    let options = Options {
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(2),
        ..Options::new(vec![endpoint])
    };
    let client = Client::new(options).expect("sound options");
    let registration = Registration::new(3, u64::from(std::process::id()));
    runtime.expect("a runtime").block_on(run::run(registration, client, commands, |_, _| {}));
}

/// Who plays here.
struct Room {
    clock: Clock,
    players: HashMap<SocketAddr, u64>,
    told: u32,
    told_ns: u64,
    most: u32,
    file: PathBuf,
}

impl Room {
    fn new(folder: &Path, name: &str) -> Self {
        let file = folder.join(format!("{name}.most"));
        // Of the process before, which may have been killed.
        let most = std::fs::read_to_string(&file).ok().and_then(|it| it.trim().parse().ok());
        let most = most.unwrap_or_default();
        let (clock, players) = (Clock::start(), HashMap::new());
        Self { clock, players, told: 0, told_ns: 0, most, file }
    }

    fn hear(&mut self, from: SocketAddr) {
        self.players.insert(from, self.clock.now_ns());
        let count = self.players.len() as u32;
        if count > self.most {
            self.most = count;
            // Whoever reads it finds a number at any time.
            let next = self.file.with_extension("next");
            std::fs::write(&next, count.to_string()).expect("its folder is there");
            std::fs::rename(&next, &self.file).expect("both are there");
        }
    }

    /// How many there are, where that is news, a few times a second at most.
    fn news(&mut self) -> Option<u32> {
        let now_ns = self.clock.now_ns();
        if now_ns - self.told_ns < TELL_EVERY_NS {
            return None;
        }
        self.told_ns = now_ns;
        let silence_ns = SILENCE.as_nanos() as u64;
        self.players.retain(|_, heard_ns| now_ns - *heard_ns < silence_ns);
        let count = self.players.len() as u32;
        (count != std::mem::replace(&mut self.told, count)).then_some(count)
    }
}

const TELL_EVERY_NS: u64 = 500_000_000;

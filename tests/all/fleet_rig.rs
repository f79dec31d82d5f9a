//! An etcd that a test owns, and what operators, game hosts and token services write there.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringgate_core::secret::Key;
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::routing::RoutingTokens;
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::Stored;
use ringgate_os::clock;

use crate::command::{ringgate, run};
use crate::control_rig::{Daemon, Game, Text, request, wait_for};
use crate::fleet_etcd::{Etcd, is_installed};
use crate::own::own_ip;

/// No key that anybody else writes.
const HISTORY_END: &str = "/f/history-ends";

/// Bytes that nothing else in memory is made of.
pub(crate) const FLEET_KEY: &str =
    "9d0c61f3a85e7b24d6903e1fc7425ab8196ef083b4d72c5a680f9be341c27d56";

/// The key of a listener of this epoch, as hex.
pub(crate) fn key(epoch: u32) -> String {
    format!("{epoch:02x}").repeat(32)
}

/// The token by which a plain listener leads to a backend, as a token service finds it.
pub(crate) fn routing_token(listener: &str, backend: &str, bytes: usize) -> Vec<u8> {
    let key = FleetKey::new(Key::from_hex(FLEET_KEY).expect("hex"));
    let [listener, backend] = [listener, backend].map(|text| Name::new(text).expect("a name"));
    RoutingTokens::new(&key).token(&listener, &backend, bytes)
}

/// A gateway whose listener has everything from the fleet.
pub(crate) fn in_fleet(fleet: &Fleet, name: &str) -> Text {
    let mut text = Text::new();
    "group = \"arena\"\nroute = \"least-players\"\n".clone_into(&mut text.listener);
    text.backends = fleet.table(name);
    text
}

/// The same on a host that is called so.
pub(crate) fn on_host(fleet: &Fleet, name: &str, host: &str) -> Text {
    let mut text = in_fleet(fleet, name);
    text.backends = text.backends.replace("host = \"here\"", &format!("host = \"{host}\""));
    text
}

/// Something that stands in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) lease: i64,
    pub(crate) created: i64,
}

/// That with its value.
struct Found {
    value: String,
    entry: Entry,
}

/// A fleet of one etcd.
pub(crate) struct Fleet {
    etcd: Etcd,
}

impl Fleet {
    /// `None` where there is no etcd, which is said aloud.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with an etcd that is told more.
    pub(crate) fn start_with(arguments: &[&str]) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let more = |_: &_| arguments.iter().map(|&it| it.to_owned()).collect();
        let fleet = Self { etcd: Etcd::launch(1, "http", more) };
        fleet.answers();
        Some(fleet)
    }

    /// The table of a process that is called so, with a lease that is longer than a test takes.
    /// Where the end of a dead process's lease is waited for, the test [ends it](Self::revoke) as
    /// etcd would.
    pub(crate) fn table(&self, name: &str) -> String {
        format!(
            "[fleet]\nendpoints = [\"{}\"]\nprefix = \"/f\"\nname = \"{name}\"\nregion = \"eu-west\"\n\
             host = \"here\"\nkey = {{ hex = \"{FLEET_KEY}\" }}\nlease = \"2m\"\n",
            self.endpoint()
        )
    }

    /// The table of an agent on another host than the gateways, with this lease.
    pub(crate) fn agent_table(&self, lease: &str) -> String {
        let table = self.table("nobody").replace("name = \"nobody\"\n", "");
        let table = table.replace("lease = \"2m\"", &format!("lease = \"{lease}\""));
        table.replace("host = \"here\"", "host = \"there\"")
    }

    /// Where its etcd answers.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}:{}", own_ip(), self.etcd.members[0].port)
    }

    fn answers(&self) {
        wait_for("etcd", || self.ask("range", &serde_json::json!({ "key": STANDARD.encode("/") })));
    }

    /// What etcd answers to a question in JSON: without a process for each, because questions are
    /// asked until the answer is another.
    fn ask(&self, what: &str, question: &serde_json::Value) -> Option<serde_json::Value> {
        let address = self.endpoint();
        let address = address.strip_prefix("http://").expect("no TLS").parse().expect("an address");
        let body = question.to_string();
        // A line's end comes behind it, and what is left unread resets the connection.
        let headers = format!("Content-Length: {}\r\n\r\n{body}", body.len() + 2);
        let answer = request(address, "POST", &format!("/v3/kv/{what}"), &headers).ok()?;
        serde_json::from_str(&answer.body).ok().filter(|_| answer.status == 200)
    }

    /// What stands there.
    fn found(&self, key: &str) -> Option<Found> {
        let question = serde_json::json!({ "key": STANDARD.encode(key) });
        let answer = self.ask("range", &question)?;
        let kv = answer["kvs"].get(0)?;
        let number = |field: &str| kv[field].as_str().map_or(0, |it| it.parse().expect("a number"));
        let value = STANDARD.decode(kv["value"].as_str().unwrap_or_default()).expect("base64");
        Some(Found {
            value: String::from_utf8(value).expect("text"),
            entry: Entry { lease: number("lease"), created: number("create_revision") },
        })
    }

    /// The same where it is JSON.
    pub(crate) fn value(&self, key: &str) -> Option<serde_json::Value> {
        serde_json::from_str(&self.text(key)).ok()
    }

    /// The same as text, which is empty where nothing stands.
    pub(crate) fn text(&self, key: &str) -> String {
        self.found(key).map(|it| it.value).unwrap_or_default()
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        self.etcd.ctl(arguments)
    }

    /// Writes until etcd has no space left.
    pub(crate) fn fill(&self) {
        let value = "x".repeat(100_000);
        wait_for("etcd is full", || self.etcd.try_ctl(&["put", "/fill", &value]).err());
    }

    /// Makes a listener's key of an epoch.
    pub(crate) fn put_key(&self, listener: &str, epoch: u32) {
        self.put_key_until(listener, epoch, clock::unix_seconds() + 7200);
    }

    /// One that ends then.
    pub(crate) fn put_key_until(&self, listener: &str, epoch: u32, accept_until: u64) {
        let now_s = clock::unix_seconds();
        let mint_until = accept_until.min(now_s + 3600);
        self.put_key_for(listener, epoch, Validity { from: now_s - 1, mint_until, accept_until });
    }

    /// One of whose time less than half is left.
    pub(crate) fn put_old_key(&self, listener: &str, epoch: u32) {
        let now_s = clock::unix_seconds();
        let (from, mint_until) = (now_s - 7200, now_s + 3600);
        let accept_until = mint_until + 600;
        self.put_key_for(listener, epoch, Validity { from, mint_until, accept_until });
    }

    fn put_key_for(&self, listener: &str, epoch: u32, validity: Validity) {
        let at = format!("/f/truth/key/{listener}/{epoch}");
        let fleet_key = FleetKey::new(Key::from_hex(FLEET_KEY).expect("hex"));
        let own = Key::from_hex(&key(epoch)).expect("hex");
        let sealed = fleet_key.seal(at.as_bytes(), validity, &own).expect("random numbers");
        let value = sealed.encode().expect("it can be read again");
        self.ctl(&["put", &at, str::from_utf8(&value).expect("JSON")]);
    }

    /// Registers a game process that connects to this gateway.
    pub(crate) fn put_backend(&self, daemon: &Daemon, name: &str, slots: u32, state: &str) {
        let run_dir = daemon.run_dir();
        let value = serde_json::json!({
            "v": 1, "instance": "i", "host": "here", "group": "arena", "slots": slots, "used": 0,
            "reach": { "bundle": run_dir }, "state": state,
        });
        self.ctl(&["put", &format!("/f/truth/backend/{name}"), &value.to_string()]);
    }

    /// Registers an unmodified server of this host.
    pub(crate) fn put_udp_backend(&self, group: &str, name: &str, address: SocketAddr) {
        let value = serde_json::json!({
            "v": 1, "instance": "i", "host": "here", "group": group, "slots": 4, "used": 0,
            "reach": { "udp": address.to_string() }, "state": "ready",
        });
        self.ctl(&["put", &format!("/f/truth/backend/{name}"), &value.to_string()]);
    }

    /// Registers an agent that has written so many seconds ago, and connects to these gateways.
    pub(crate) fn put_agent(&self, name: &str, gateways: &[&str], written_ago_s: u64) {
        let now_s = clock::unix_seconds();
        let value = serde_json::json!({
            "v": 1, "instance": "i", "host": "there", "region": "eu-west", "version": "1",
            "gateways": gateways, "started": now_s, "written": now_s - written_ago_s,
        });
        self.ctl(&["put", &format!("/f/truth/agent/{name}"), &value.to_string()]);
    }

    /// Registers a game process behind an agent, which these gateways have let in.
    pub(crate) fn put_behind(&self, agent: &str, name: &str, gateways: &[&str]) {
        let value = serde_json::json!({
            "v": 1, "instance": "i", "host": "there", "group": "arena", "slots": 5, "used": 0,
            "reach": { "agent": agent }, "state": "ready", "gateways": gateways,
        });
        self.ctl(&["put", &format!("/f/truth/backend/{name}"), &value.to_string()]);
    }

    /// Denies or allows somebody by an operator's command.
    pub(crate) fn denies(&self, words: &[&str]) {
        let mut command = ringgate(["fleet"]);
        command.args(words).args(["--endpoint", &self.endpoint(), "--fleet", "/f"]);
        run(command).succeeded();
    }

    /// A game process with four slots at a gateway, registered and linked.
    pub(crate) fn plays_at(&self, gateway: &Daemon, name: &str) -> Game {
        self.put_backend(gateway, name, 4, "ready");
        let game = Game::start(gateway, name);
        backend_is_up(gateway, name);
        game
    }

    /// What a gateway says of itself; `None` while it is not registered.
    pub(crate) fn gateway(&self, name: &str) -> Option<serde_json::Value> {
        self.value(&format!("/f/truth/gateway/{name}"))
    }

    /// Under which lease that stands, and since which revision.
    pub(crate) fn entry(&self, name: &str) -> Option<Entry> {
        self.entry_at(&format!("/f/truth/gateway/{name}"))
    }

    /// The revision that etcd is at.
    pub(crate) fn revision(&self) -> i64 {
        let answer = self.ask("range", &serde_json::json!({ "key": STANDARD.encode("/") }));
        let answer = answer.expect("etcd answers");
        answer["header"]["revision"].as_str().and_then(|it| it.parse().ok()).expect("a number")
    }

    /// Waits until a gateway has heard all that has been written so far.
    pub(crate) fn is_heard_by(&self, gateway: &Daemon) {
        // The last of it is something that gateways hear of.
        let put = self.ctl(&["put", "--write-out", "json", "/f/truth/gone/1", "{}"]);
        let put: serde_json::Value = serde_json::from_str(&put).expect("JSON");
        let revision = put["header"]["revision"].as_i64().expect("a number");
        wait_for("news", || {
            let heard = gateway.status()["fleet"]["revision"].as_i64();
            heard.filter(|it| *it >= revision)
        });
    }

    /// Everything that has happened below the prefix since then, by key: what was put, or `None`
    /// where it was deleted.
    pub(crate) fn history(&self, since: i64) -> Vec<(String, Option<String>)> {
        self.ctl(&["put", HISTORY_END, "here"]);
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint(), "watch"]);
        command.args(["--prefix", "/f/", "--rev", &(since + 1).to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("etcdctl starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut line = || lines.next().expect("the end is there").expect("text");
        let mut all = Vec::new();
        loop {
            let (what, key, value) = (line(), line(), line());
            if key == HISTORY_END {
                break;
            }
            all.push((key, (what == "PUT").then_some(value)));
        }
        let _ = child.kill();
        let _ = child.wait();
        all
    }

    /// Under which lease something stands, and since which revision.
    pub(crate) fn entry_at(&self, key: &str) -> Option<Entry> {
        self.found(key).map(|it| it.entry)
    }

    /// Since which revision something stands there.
    pub(crate) fn created(&self, key: &str) -> Option<i64> {
        self.entry_at(key).map(|it| it.created)
    }

    /// Ends the lease that something stands under.
    pub(crate) fn revoke(&self, key: &str) {
        let lease = self.entry_at(key).expect("it stands there").lease;
        self.ctl(&["lease", "revoke", &format!("{lease:x}")]);
    }

    /// As a power cut ends it.
    pub(crate) fn kill(&mut self) {
        self.etcd.members[0].kill();
    }

    /// A history longer than what processes write in the first moments after [`wipe`](Self::wipe):
    /// to be had before they know it. One that is as short again is the same to all who look late.
    pub(crate) fn ages(&self) {
        let (key, value) = (STANDARD.encode("/elsewhere"), STANDARD.encode("x"));
        let question = serde_json::json!({ "key": key, "value": value });
        for _ in 0..64 {
            self.ask("put", &question).expect("it answers");
        }
    }

    /// Stops the process, or has it go on.
    pub(crate) fn signal(&self, signal: &str) {
        self.etcd.members[0].signal(signal);
    }

    pub(crate) fn wipe(&mut self) {
        self.etcd.members[0].wipe();
    }

    /// Keeps a copy of all that etcd has, to go back to.
    pub(crate) fn back_up(&self) -> PathBuf {
        let backup = self.etcd.folder.path("backup");
        self.ctl(&["snapshot", "save", backup.to_str().expect("text")]);
        backup
    }

    /// Etcd is as it was when that was made.
    pub(crate) fn go_back(&mut self, backup: &Path) {
        self.kill();
        self.wipe();
        self.etcd.members[0].restore(backup);
        self.revive();
    }

    /// Deletes everything at once: the history goes on.
    pub(crate) fn erase(&self) {
        self.ctl(&["del", "--prefix", "/f/"]);
    }

    pub(crate) fn revive(&mut self) {
        self.etcd.members[0].start();
        self.answers();
    }
}

/// The row of a backend in the status page.
pub(crate) fn backend(daemon: &Daemon, name: &str) -> Option<serde_json::Value> {
    let status = daemon.status();
    status["backends"].as_array()?.iter().find(|it| it["name"] == name).cloned()
}

pub(crate) fn backend_is_up(daemon: &Daemon, name: &str) {
    wait_for("the backend", || backend(daemon, name)?["up"].as_bool().filter(|up| *up));
}

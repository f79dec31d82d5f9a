//! Starts etcd on free ports in a folder of its own, and talks to it behind the client's back.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ringgate_fleet::etcd::kv::Range;
use ringgate_fleet::etcd::{Client, Endpoint, Options};

use crate::own::{own_ip, own_port};

/// How long a test waits for what has to come.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Whether etcd is there. Says so if it is not.
pub(crate) fn is_installed() -> bool {
    static IS_INSTALLED: LazyLock<bool> = LazyLock::new(|| {
        let is_there = |it: &&str| Command::new(it).arg("--help").output().is_ok();
        ["etcd", "etcdctl"].iter().all(is_there)
    });
    if !*IS_INSTALLED {
        skip("etcd or etcdctl is not there (Debian has them in etcd-server and etcd-client)");
    }
    *IS_INSTALLED
}

/// Says aloud that a test does not run.
pub(crate) fn skip(why: &str) {
    let required = std::env::var_os("REQUIRE_ETCD").is_some_and(|it| it == "1");
    assert!(!required, "REQUIRE_ETCD=1, but {why}");
    eprintln!("SKIPPED: {why}");
}

/// A folder that goes with its value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("ringgate-fleet-{}-{count}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            match std::fs::create_dir(&folder) {
                Ok(()) => return Self(folder),
                // A process that was killed had our number, and has left this one.
                Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(why) => panic!("temporary folders can be made: {why}"),
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One member, as a process.
pub(crate) struct Member {
    pub(crate) port: u16,
    data: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Member {
    pub(crate) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    pub(crate) fn start(&mut self) {
        let child = Command::new("etcd")
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("etcd starts"));
    }

    /// As a power cut ends it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
        }
    }

    /// Stops its threads, or lets them go on: its sockets stay.
    pub(crate) fn signal(&self, signal: &str) {
        let child = self.child.as_ref().expect("it runs");
        let done = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(done.expect("kill is there").success());
    }

    /// Loses everything that it has kept.
    pub(crate) fn wipe(&mut self) {
        assert!(!self.is_running());
        std::fs::remove_dir_all(&self.data).expect("its folder is there");
    }

    /// Makes its folder from a backup.
    pub(crate) fn restore(&self, backup: &Path) {
        let place =
            |name: &str| self.arguments.iter().position(|it| it == name).expect("it has it");
        let of = |name: &str| [name.to_owned(), self.arguments[place(name) + 1].clone()];
        let names = ["--name", "--data-dir", "--initial-cluster", "--initial-advertise-peer-urls"];
        let done = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(backup)
            .args(names.iter().flat_map(|name| of(name)))
            .output()
            .expect("etcdctl starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A cluster of our own.
pub(crate) struct Etcd {
    pub(crate) folder: Folder,
    pub(crate) members: Vec<Member>,
    pub(crate) scheme: &'static str,
}

impl Etcd {
    /// One member that answers.
    pub(crate) async fn start() -> Self {
        let etcd = Self::launch(1, "http", |_| Vec::new());
        etcd.answers(&etcd.client()).await;
        etcd
    }

    /// Members with more arguments, which are told the folder.
    pub(crate) fn launch(
        count: usize,
        scheme: &'static str,
        more: impl Fn(&Folder) -> Vec<String>,
    ) -> Self {
        let folder = Folder::new();
        let ports: Vec<_> = (0..count).map(|_| (own_port(), own_port())).collect();
        let ip = own_ip();
        let peers = ports.iter().enumerate();
        let peers: Vec<_> =
            peers.map(|(index, it)| format!("m{index}=http://{ip}:{}", it.1)).collect();
        let mut members = Vec::new();
        for (index, (port, peer)) in ports.into_iter().enumerate() {
            let (name, data) = (format!("m{index}"), folder.path(&format!("data{index}")));
            let clients = format!("{scheme}://{ip}:{port}");
            let peer = format!("http://{ip}:{peer}");
            let data_text = data.to_string_lossy().into_owned();
            let mut arguments: Vec<String> = [
                "--name",
                &name,
                "--data-dir",
                &data_text,
                "--listen-client-urls",
                &clients,
                "--advertise-client-urls",
                &clients,
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
                "--initial-cluster",
                &peers.join(","),
                "--logger",
                "zap",
                "--log-level",
                "error",
            ]
            .map(str::to_owned)
            .into();
            arguments.extend(more(&folder));
            members.push(Member { port, data, arguments, child: None });
        }
        members.iter_mut().for_each(Member::start);
        Self { folder, members, scheme }
    }

    pub(crate) fn options(&self) -> Options {
        let ports: Vec<_> = self.members.iter().map(|member| member.port).collect();
        options(self.scheme, &ports)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.options()).expect("the options are sound")
    }

    /// Waits until it serves.
    pub(crate) async fn answers(&self, client: &Client) {
        until("etcd answers", async || client.range(&Range::one("/")).await.is_ok()).await;
    }

    /// Runs `etcdctl` and returns what it says.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).unwrap_or_else(|said| panic!("{said}"))
    }

    /// The same where it may fail: what it says then.
    pub(crate) fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let endpoint = format!("{}://{}:{}", self.scheme, own_ip(), self.members[0].port);
        let said = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint])
            .args(arguments)
            .output()
            .expect("etcdctl starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
    }
}

/// Options that do not wait long.
pub(crate) fn options(scheme: &str, ports: &[u16]) -> Options {
    let endpoint = |port: &u16| {
        Endpoint::parse(&format!("{scheme}://{}:{port}", own_ip())).expect("it is an endpoint")
    };
    Options {
        connect_timeout: Duration::from_secs(2),
        request_timeout: Duration::from_secs(3),
        ..Options::new(ports.iter().map(endpoint).collect())
    }
}

/// Asks again until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "it did not come true that {what}");
}

//! The fleet's page, as a browser shows it, and the token service's program behind it.
//!
//! Skipped aloud where etcd or Chromium is missing; `REQUIRE_ETCD=1` and `REQUIRE_CHROMIUM=1` make
//! that a failure.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringgate_core::netcode::ConnectToken;
use ringgate_os::process;

use crate::command::{Ending, ringgate};
use crate::control_browser::{fits_a_phone, shown, text_of};
use crate::control_metrics::promtool;
use crate::control_rig::{Daemon, Page, request, wait_for};
use crate::fleet_rig::{Fleet, in_fleet};
use crate::folder::Folder;

/// `ringgate tokens`, killed when dropped.
pub(crate) struct Service {
    child: Ending,
    address: SocketAddr,
    folder: Folder,
}

impl Service {
    /// One whose only caller has these scopes.
    pub(crate) fn start(fleet: &Fleet, scopes: &[&str]) -> Self {
        Self::start_with(fleet, scopes, "")
    }

    /// The same with more lines in `[tokens]`.
    pub(crate) fn start_with(fleet: &Fleet, scopes: &[&str], lines: &str) -> Self {
        let folder = Folder::new();
        let text = Self::text(fleet, scopes, lines);
        folder.file("secret", "an-eye-for-the-fleet", 0o600);
        let config = folder.file("tokens.toml", text, 0o600);
        let log = std::fs::File::create(folder.join("log")).expect("the folder is ours");
        let mut command = ringgate(["tokens".as_ref(), "--config".as_ref(), config.as_os_str()]);
        let child = command.stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = Ending(child.expect("the binary was built"));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let said = lines.next().expect("it says where it listens").expect("text");
        let address = said.strip_prefix("tokens on ").expect("an address").parse();
        Self { child, address: address.expect("an address"), folder }
    }

    /// What its file says.
    pub(crate) fn text(fleet: &Fleet, scopes: &[&str], lines: &str) -> String {
        let table = fleet.table("tokens-1");
        format!(
            "{table}[tokens]\nbind = [\"127.0.0.1:0\"]\nconfine = true\n{lines}[[caller]]\nname = \"wall\"\n\
             scopes = {scopes:?}\nsecret = {{ file = \"secret\" }}\n"
        )
    }

    /// What it has said since its start.
    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).expect("it is there")
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A token for a backend, or the name of the reason why there is none.
    pub(crate) fn token(&self, client_id: u64, backend: &str) -> Result<ConnectToken, String> {
        self.token_for(&serde_json::json!({ "client_id": client_id, "backend": backend }))
    }

    /// The same for any backend of a group.
    pub(crate) fn token_in(&self, group: &str, client_id: u64) -> Result<ConnectToken, String> {
        self.token_for(&serde_json::json!({ "client_id": client_id, "group": group }))
    }

    fn token_for(&self, wanted: &serde_json::Value) -> Result<ConnectToken, String> {
        let answer = self.post("/v1/tokens", wanted);
        let answer = answer.json();
        let text = |field: &str| answer[field].as_str().map(str::to_owned);
        let Some(token) = text("token") else { return Err(text("error").expect("a reason")) };
        let bytes = STANDARD.decode(token).expect("base64");
        Ok(ConnectToken::decode(&bytes).expect("a token"))
    }

    /// Tells it to end, and waits for that.
    pub(crate) fn end(mut self) {
        process::signal(self.child.id(), libc::SIGTERM).expect("it runs");
        assert!(self.child.wait().expect("it is ours").success());
    }

    /// Asks for something that takes a body.
    pub(crate) fn post(&self, path: &str, wanted: &serde_json::Value) -> Page {
        let body = wanted.to_string();
        let head = format!(
            "Authorization: Bearer an-eye-for-the-fleet\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        request(self.address, "POST", path, &head).expect("it answers")
    }

    /// The page for browsers, as its caller opens it.
    pub(crate) fn page(&self, query: &str) -> String {
        format!("http://{}/fleet{query}#an-eye-for-the-fleet", self.address)
    }

    pub(crate) fn get(&self, path: &str, secret: &str) -> Page {
        let head = format!("Authorization: Bearer {secret}\r\n");
        request(self.address, "GET", path, &head).expect("it answers")
    }
}

#[test]
fn a_token_service_reads_the_level_of_its_log_again() {
    let Some(fleet) = Fleet::start() else { return };
    let lines = |level: &str| format!("log_level = \"{level}\"\n");
    let service = Service::start_with(&fleet, &["see"], &lines("warn"));
    let reload = |level: &str| {
        let text = Service::text(&fleet, &["see"], &lines(level));
        service.folder.file("tokens.toml", text, 0o600);
        process::signal(service.id(), libc::SIGHUP).expect("it runs");
    };
    let says = |what: &str| wait_for(what, || service.log().contains(what).then_some(()));
    assert_eq!(service.log(), "", "it starts without a word at this level");
    reload("info");
    says("the config was read again");
    reload("trce");
    says("the config was not changed: ");
    says("tokens.log_level: found \"trce\", expected off, error");
    assert_eq!(service.get("/healthz", "").status, 200);
}

#[test]
fn the_fleet_is_seen_at_a_glance_by_whoever_may() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    fleet.put_backend(&daemon, "one", 4, "ready");
    fleet.put_backend(&daemon, "two", 6, "draining");
    let mut service = Service::start(&fleet, &["see"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.child.id()));
    assert!(
        status.expect("it runs").contains("Seccomp:\t2"),
        "it has given up what it does not need"
    );
    wait_for("all of it in the service's mirror", || {
        let told = service.get("/v1/fleet", "an-eye-for-the-fleet").json();
        let has_epoch = told["gateways"][0]["listeners"][0]["epochs"] == serde_json::json!([1]);
        let backends = told["groups"]["arena"]["backends"].as_array().map(Vec::len);
        (has_epoch && backends == Some(2) && told["services"][0] == "tokens-1").then_some(())
    });
    assert_eq!(service.get("/v1/fleet", "wrong").status, 401);
    let page = service.get("/fleet", "");
    assert_eq!(page.status, 200);
    assert!(page.head.to_ascii_lowercase().contains("default-src 'none'; script-src 'nonce-"));
    assert!(!page.body.contains("gate-1"), "the page itself knows nothing of the fleet");
    if let Some(said) = promtool(&service.get("/metrics", "").body) {
        assert_eq!(said, "");
    }

    // Whoever tells everything called ringgate to read its files again ends no token service.
    for number in [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
        process::signal(service.child.id(), number).expect("it runs");
        assert_eq!(service.get("/fleet", "").status, 200);
    }
    assert!(service.child.try_wait().expect("it is ours").is_none(), "it runs on");

    let url = format!("http://{}/fleet", service.address);
    let Some(dom) = shown(&format!("{url}#an-eye-for-the-fleet")) else { return };
    fits_a_phone(service.address, "/fleet#an-eye-for-the-fleet");
    assert_eq!(text_of(&dom, "state"), "well", "{dom}");
    assert!(text_of(&dom, "facts").contains("told by tokens-1"), "{dom}");
    let tiles = text_of(&dom, "tiles");
    for tile in ["1|gateways", "2|backends", "10|slots without a player", "1|token services"] {
        assert!(tiles.contains(tile), "{tile}: {tiles}");
    }
    assert!(dom.contains("one at here, ready, 0 of 4"), "{dom}");
    assert!(dom.contains("two at here, draining, 0 of 6"), "{dom}");
    assert!(dom.contains("1 ready, 1 draining"), "{dom}");
    let gateways = text_of(&dom, "gateways");
    let listener = format!("eu netcode {} (keys 1)", daemon.listener);
    for word in ["gate-1|eu-west|here|serving|0 of 100", &listener] {
        assert!(gateways.contains(word), "{word}: {gateways}");
    }
    assert!(text_of(&dom, "keys").contains("eu|1|current|1|"), "{dom}");
    assert!(!dom.contains("NaN") && !dom.contains("undefined<"), "{dom}");

    for (fragment, why) in [("", ""), ("#wrong", "Authorization: Bearer")] {
        let dom = shown(&format!("{url}{fragment}")).expect("it was there a moment ago");
        assert_eq!(text_of(&dom, "state"), "closed");
        assert!(text_of(&dom, "refused").contains(why) && !dom.contains("gate-1"), "{dom}");
    }
}

#[test]
fn agents_are_seen_with_what_stands_behind_them_and_whose_word_is_old() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let _daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    fleet.put_agent("host-7", &["gate-1"], 0);
    fleet.put_behind("host-7", "arena-1", &["gate-1"]);
    fleet.put_agent("host-8", &["gate-1"], 0);
    fleet.put_behind("host-8", "arena-2", &[]);
    fleet.put_agent("host-9", &[], 600);
    let service = Service::start(&fleet, &["see"]);
    wait_for("all of it in the service's mirror", || {
        let told = service.get("/v1/fleet", "an-eye-for-the-fleet").json();
        let has_gateway = told["gateways"].as_array().is_some_and(|all| all.len() == 1);
        let names = told["agents"].as_array()?.iter().map(|it| it["name"].as_str());
        let all: Vec<_> = names.collect::<Option<_>>()?;
        (all == ["host-7", "host-8", "host-9"] && has_gateway).then_some(())
    });
    let Some(dom) = shown(&service.page("")) else { return };
    assert!(text_of(&dom, "tiles").contains("3|agents"), "{dom}");
    assert_eq!(text_of(&dom, "state"), "look", "one of them is not heard");
    let agents = text_of(&dom, "agents");
    for row in [
        "host-7|eu-west|there|serving|0 of 5|1|gate-1|arena-1",
        "host-8|eu-west|there|not let in by gate-1|0 of 5|1|gate-1|arena-2",
        "host-9|eu-west|there|not heard for ",
    ] {
        assert!(agents.contains(row), "{row}: {agents}");
    }
    assert!(!dom.contains("NaN") && !dom.contains("undefined<"), "{dom}");
}

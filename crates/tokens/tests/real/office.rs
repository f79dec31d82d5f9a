//! A fleet in a real etcd, and token services over it.

use std::net::SocketAddr;
use std::time::Duration;

use ringgate_core::netcode::ConnectToken;
use ringgate_core::secret::Key;
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::etcd::Client;
use ringgate_fleet::etcd::txn::Put;
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{Backend, Gateway, Labels, Listener, Reach, State, Stored};
use ringgate_os::clock;
use ringgate_tokens::desk::Rules;
use ringgate_tokens::service::{self, Options, Running};
use ringgate_tokens::{Caller, Scope, tls};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::http::ask;
use crate::rig::{Etcd, until};

pub(crate) const PROTOCOL_ID: u64 = 0x1122;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(crate) fn keyspace() -> Keyspace {
    Keyspace::new("/ringgate/test").expect("a prefix")
}

fn fleet_key() -> FleetKey {
    FleetKey::new(Key::from_bytes([5; 32]))
}

/// The key of an epoch.
pub(crate) fn listener_key(epoch: u32) -> Key {
    Key::from_bytes([epoch as u8; 32])
}

/// A real etcd with a fleet in it.
pub(crate) struct Fleet {
    pub(crate) etcd: Etcd,
    pub(crate) client: Client,
}

impl Fleet {
    /// Gateways on hosts of their own, each with so many backends of so many slots.
    pub(crate) async fn start(gateways: u32, backends: u32, slots: u32) -> Self {
        Self::on(Etcd::start().await, gateways, backends, slots).await
    }

    /// The same in this one.
    pub(crate) async fn on(etcd: Etcd, gateways: u32, backends: u32, slots: u32) -> Self {
        let fleet = Self { client: etcd.client(), etcd };
        fleet.put_key(1).await;
        for at in 0..gateways {
            fleet.put_gateway(at, &[1]).await;
            for backend in 0..backends {
                fleet.put_backend(&format!("b{at}-{backend}"), at, slots, 0).await;
            }
        }
        fleet
    }

    async fn put(&self, place: &Place, value: &impl Stored) {
        let (key, value) = (keyspace().key(place), value.encode().expect("sound"));
        self.client.put(&Put { key, value, lease: 0 }).await.expect("etcd is there");
    }

    pub(crate) async fn put_key(&self, epoch: u32) {
        let from = clock::unix_seconds() - 1;
        let validity = Validity { from, mint_until: from + 10_000, accept_until: from + 20_000 };
        let place = Place::Key(name("main"), epoch);
        let sealed = fleet_key().seal(&keyspace().key(&place), validity, &listener_key(epoch));
        self.put(&place, &sealed.expect("random bytes")).await;
    }

    pub(crate) async fn put_gateway(&self, at: u32, epochs: &[u32]) {
        let listener = Listener {
            name: "main".into(),
            protocol: "netcode".into(),
            addresses: vec![SocketAddr::from(([192, 0, 2, 1 + at as u8], 40_000))],
            epochs: epochs.into(),
            keys: Vec::new(),
            group: String::new(),
            protocol_id: PROTOCOL_ID,
            token_bytes: 0,
            tags: false,
            messages: false,
        };
        let now_s = clock::unix_seconds();
        let gateway = Gateway {
            instance: "i".into(),
            region: "eu".into(),
            host: format!("host-{at}"),
            version: "0".into(),
            listeners: vec![listener],
            agents: Vec::new(),
            cluster: None,
            capacity: 10_000,
            sessions: 0,
            draining: false,
            started: now_s,
            written: now_s,
            doubt: 0,
            held: Vec::new(),
            run_dir: String::new(),
            heard: None,
            denied: None,
            shut: Vec::new(),
            answers: false,
        };
        self.put(&Place::Gateway(name(&format!("g{at}"))), &gateway).await;
    }

    pub(crate) async fn put_backend(&self, backend: &str, host: u32, slots: u32, used: u32) {
        let value = Backend {
            instance: "i".into(),
            host: format!("host-{host}"),
            group: "main".into(),
            reach: Reach::Udp("127.0.0.1:7777".parse().expect("literal")),
            gateways: Vec::new(),
            slots,
            used,
            state: State::Ready,
            joined: None,
            labels: Labels::new(),
        };
        self.put(&Place::Backend(name(backend)), &value).await;
    }

    /// A token service that serves.
    pub(crate) async fn service(&self, called: &str) -> Office {
        let office = Office::start(self.options(called));
        office.is_ready().await;
        office
    }

    pub(crate) fn options(&self, called: &str) -> Options {
        let caller = |called: &str, scopes: &[Scope], groups: &[&str], rate| Caller {
            name: called.into(),
            secret: Zeroizing::new(format!("{called}-secret").into_bytes()),
            scopes: scopes.into(),
            groups: groups.iter().map(|it| name(it)).collect(),
            rate,
            burst: 5,
        };
        Options {
            etcd: self.etcd.options(),
            keyspace: keyspace(),
            key: fleet_key(),
            name: name(called),
            host: name("here"),
            version: "0".into(),
            bind: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            tls: None,
            threads: 2,
            rules: Rules {
                // Longer than a test takes, whose promises would end with it.
                expire_default_s: 300,
                expire_max_s: 300,
                addresses_max: 1,
                serves_away: true,
            },
            callers: vec![
                caller("matchmaker", &[Scope::Tokens, Scope::Places], &[], 0),
                caller("slow", &[Scope::Tokens], &[], 1),
                caller("other", &[Scope::Tokens], &["other"], 0),
                caller("places", &[Scope::Places], &[], 0),
                caller("eyes", &[Scope::See], &[], 0),
                caller("admin", &[Scope::Admin], &[], 0),
            ],
            memory_bytes: 1 << 20,
            drain: Duration::from_secs(10),
            rotate_every: None,
            disk: None,
        }
    }
}

/// A token service that runs.
pub(crate) struct Office {
    running: Option<Running>,
}

impl Office {
    pub(crate) fn start(options: Options) -> Self {
        Self { running: Some(service::start(options).expect("it starts")) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.as_ref().expect("it runs").addresses()[0]
    }

    pub(crate) async fn is_ready(&self) {
        let address = self.address();
        until("the token service is ready", async || self.says(address, "ok\n").await).await;
    }

    /// Whether `/readyz` says so.
    pub(crate) async fn says(&self, address: SocketAddr, text: &str) -> bool {
        ask(address, "GET", "/readyz", "", "").await.body == text
    }

    /// Ends it as SIGTERM does.
    pub(crate) async fn stop(mut self) {
        let running = self.running.take().expect("it runs");
        tokio::task::spawn_blocking(|| running.stop()).await.expect("it ends");
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
    }
}

/// The token in an answer.
pub(crate) fn token_of(answer: &Value) -> ConnectToken {
    use base64::Engine;
    let text = answer["token"].as_str().unwrap_or_else(|| panic!("no token: {answer}"));
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    ConnectToken::decode(&bytes).expect("a token")
}

/// TLS files of a test.
pub(crate) fn with_tls(mut options: Options, files: tls::Files) -> Options {
    options.tls = Some(files);
    options
}

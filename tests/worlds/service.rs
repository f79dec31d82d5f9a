//! A token service of the world: the real one without its doors, a disk that outlives it, and the
//! requests that are under way.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use ringgate_fleet::etcd::Client;
use ringgate_fleet::keyspace::{Keyspace, Name};
use ringgate_fleet::seal::FleetKey;
use ringgate_process::doors::Seat;
use ringgate_tokens::book::Now;
use ringgate_tokens::desk::Rules;
use ringgate_tokens::http::routes::answer;
use ringgate_tokens::journal::Disk;
use ringgate_tokens::service::{Shared, open, work};
use ringgate_tokens::{Caller, Options, Scope};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use crate::etcd::{self, Etcd};
use crate::moves::AskedMove;
use crate::process::Process;

/// A token service, alive or not.
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) number: usize,
    starts: u32,
    disk: MemoryDisk,
    alive: Option<Alive>,
    tell: mpsc::UnboundedSender<Answer>,
    answers: mpsc::UnboundedReceiver<Answer>,
    tell_moved: mpsc::UnboundedSender<MoveAnswer>,
    moved: mpsc::UnboundedReceiver<MoveAnswer>,
    /// When it is started again, where it is dead.
    pub(crate) back_ms: u64,
    /// It does not run until then.
    pub(crate) frozen_until_ms: u64,
    ran_ms: u64,
}

struct Alive {
    process: Process,
    office: Arc<Office>,
    work: JoinHandle<()>,
    is_stopping: bool,
}

/// What answers, without threads and doors: whoever has it asks it directly.
struct Office {
    shared: Arc<Shared>,
    client: Client,
    /// Every request has been answered.
    drained: watch::Sender<bool>,
    seat: Seat,
}

/// What has come of a request for a token.
pub(crate) struct Answer {
    pub(crate) token: u64,
    /// The token's bytes and the answer's text, or the refusal's text.
    pub(crate) said: Result<(Vec<u8>, serde_json::Value), String>,
}

/// What has come of a request for a move: its number, and the answer or the refusal's text.
pub(crate) type MoveAnswer = (usize, Result<serde_json::Value, String>);

impl Service {
    pub(crate) fn new(number: usize) -> Self {
        let (tell, answers) = mpsc::unbounded_channel();
        let (tell_moved, moved) = mpsc::unbounded_channel();
        Self {
            name: format!("tokens-{number}"),
            number,
            starts: 0,
            disk: MemoryDisk::default(),
            alive: None,
            tell,
            answers,
            tell_moved,
            moved,
            back_ms: 0,
            frozen_until_ms: 0,
            ran_ms: 0,
        }
    }

    pub(crate) const fn is_alive(&self) -> bool {
        self.alive.is_some()
    }

    /// Whether it answers new requests.
    pub(crate) fn serves(&self) -> bool {
        self.alive.as_ref().is_some_and(|it| !it.is_stopping)
    }

    /// A start with what the disk has.
    pub(crate) fn start(&mut self, etcd: &Etcd, process: usize, now_ms: u64, ahead_ms: u64) {
        self.starts += 1;
        let running = Process::start(now_ms, ahead_ms);
        let client = etcd::client(etcd, process);
        let instance = self.starts << 8 | self.number as u32;
        let options = self.options();
        let (shared, confirmed) = open(options, running.clock(), instance);
        let (drained, is_drained) = watch::channel(false);
        let work = work(Arc::clone(&shared), client.clone(), confirmed, is_drained);
        let work = running.spawn(work);
        let office = Arc::new(Office { shared, client, drained, seat: Seat::default() });
        self.ran_ms = now_ms;
        self.alive = Some(Alive { process: running, office, work, is_stopping: false });
    }

    fn options(&self) -> Options {
        let name = |text: &str| Name::new(text).expect("a name");
        Options {
            etcd: etcd::options(),
            keyspace: Keyspace::new("/f").expect("a prefix"),
            key: fleet_key(),
            name: name(&self.name),
            host: name("matchmaking"),
            version: "1".to_owned(),
            bind: Vec::new(),
            tls: None,
            threads: 1,
            rules: Rules {
                expire_default_s: 30,
                expire_max_s: 60,
                addresses_max: 2,
                serves_away: true,
            },
            callers: vec![Caller {
                name: "matchmaker".to_owned(),
                secret: Zeroizing::new(SECRET.as_bytes().to_vec()),
                scopes: vec![Scope::Tokens, Scope::Admin],
                groups: Vec::new(),
                rate: 0,
                burst: 0,
            }],
            memory_bytes: 1 << 16,
            drain: Duration::from_secs(5),
            rotate_every: Some(Duration::from_mins(2)),
            disk: Some(Box::new(self.disk.clone())),
        }
    }

    /// It is gone without a word.
    pub(crate) fn kill(&mut self) {
        self.alive = None;
    }

    /// It is told to end.
    pub(crate) fn stop(&mut self) {
        if let Some(alive) = &mut self.alive {
            alive.office.shared.stop();
            let _ = alive.office.drained.send(true);
            alive.is_stopping = true;
        }
    }

    pub(crate) fn run(&mut self, now_ms: u64) {
        let step_ms = now_ms - self.ran_ms;
        if now_ms < self.frozen_until_ms || step_ms == 0 {
            return;
        }
        self.ran_ms = now_ms;
        let Some(alive) = &self.alive else { return };
        if step_ms > 4 * crate::STEP_MS {
            alive.process.skip(step_ms - crate::STEP_MS);
        }
        alive.process.run(now_ms, step_ms.min(crate::STEP_MS));
        if alive.is_stopping && alive.work.is_finished() {
            self.alive = None;
        }
    }

    /// A matchmaker asks for a token, which the world knows by this number. False where nobody
    /// would answer.
    pub(crate) fn ask(&self, number: u64, client_id: u64, addresses: u64) -> bool {
        let Some(alive) = self.alive.as_ref().filter(|it| !it.is_stopping) else { return false };
        let body = serde_json::json!({
            "client_id": client_id, "addresses": addresses, "expire": 30, "timeout": 10,
            "user_data": STANDARD.encode(number.to_le_bytes()),
        });
        let (office, tell) = (Arc::clone(&alive.office), self.tell.clone());
        alive.process.spawn(async move {
            let text = post(&office, "/v1/tokens", &body).await;
            let said = text.map(|answer| {
                let token = answer["token"].as_str().expect("a token");
                (STANDARD.decode(token).expect("base64"), answer)
            });
            drop(tell.send(Answer { token: number, said }));
        });
        true
    }

    /// An operator wants a client to play elsewhere, which the world knows by this number.
    pub(crate) fn ask_move(&self, number: usize, wish: &AskedMove) {
        let Some(alive) = &self.alive else { return };
        let AskedMove { client_id, to, time_ms, confirms, .. } = wish;
        let body = serde_json::json!({
            "client_id": client_id, "to": to, "time_ms": time_ms, "confirm": confirms,
        });
        let (office, tell) = (Arc::clone(&alive.office), self.tell_moved.clone());
        alive.process.spawn(async move {
            let said = post(&office, "/v1/moves", &body).await;
            drop(tell.send((number, said)));
        });
    }

    pub(crate) fn take_moved(&mut self) -> Vec<MoveAnswer> {
        std::iter::from_fn(|| self.moved.try_recv().ok()).collect()
    }

    /// An operator confirms the doubt with this number.
    pub(crate) fn confirm(&self, doubt: u64) {
        let Some(alive) = &self.alive else { return };
        let office = Arc::clone(&alive.office);
        let body = serde_json::json!({ "doubt": doubt });
        alive.process.spawn(async move { drop(post(&office, "/v1/confirm", &body).await) });
    }

    pub(crate) fn take_answers(&mut self) -> Vec<Answer> {
        std::iter::from_fn(|| self.answers.try_recv().ok()).collect()
    }
}

async fn post(
    office: &Office,
    path: &str,
    body: &serde_json::Value,
) -> Result<serde_json::Value, String> {
    let request = Request::post(path)
        .header("authorization", format!("Bearer {SECRET}"))
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("a request");
    let response = answer(&office.shared, &office.client, &office.seat, request).await;
    let status = response.status();
    let Ok(text) = response.into_body().collect().await;
    let text: serde_json::Value = serde_json::from_slice(&text.to_bytes()).expect("JSON");
    if status == StatusCode::OK { Ok(text) } else { Err(text["error"].to_string()) }
}

/// A disk that outlives the processes that have it one after the other.
#[derive(Clone, Debug, Default)]
struct MemoryDisk(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    list: Option<Vec<u8>>,
    records: BTreeMap<u64, Vec<u8>>,
    leases: Vec<i64>,
}

impl MemoryDisk {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemoryDisk {
    fn identity(&self) -> String {
        "this disk".to_owned()
    }

    fn list(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.files().list.clone())
    }

    fn set_list(&mut self, text: Option<&str>) -> io::Result<()> {
        self.files().list = text.map(|text| text.as_bytes().to_vec());
        Ok(())
    }

    fn records(&self) -> io::Result<Vec<(u64, Vec<u8>)>> {
        Ok(self.files().records.iter().map(|(at, bytes)| (*at, bytes.clone())).collect())
    }

    fn add(&mut self, until_s: u64, record: &[u8], _now: Now) -> io::Result<()> {
        self.files().records.entry(until_s / 60).or_default().extend(record);
        Ok(())
    }

    fn replace(&mut self, file: u64, records: &[u8]) -> io::Result<()> {
        self.files().records.insert(file, records.to_vec());
        Ok(())
    }

    fn forget_ended(&mut self, now: Now) -> io::Result<()> {
        self.files().records.retain(|at, _| (at + 1) * 60 > now.unix_s);
        Ok(())
    }

    fn leases(&self) -> Vec<i64> {
        self.files().leases.clone()
    }

    fn set_leases(&mut self, leases: &[i64]) -> io::Result<()> {
        self.files().leases = leases.to_vec();
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.files().records.clear();
        Ok(())
    }
}

/// The fleet's key.
pub(crate) fn fleet_key() -> FleetKey {
    FleetKey::new(ringgate_core::secret::Key::from_hex(FLEET_KEY).expect("hex"))
}

pub(crate) const FLEET_KEY: &str =
    "9d0c61f3a85e7b24d6903e1fc7425ab8196ef083b4d72c5a680f9be341c27d56";
const SECRET: &str = "a secret that only matchmakers know";

//! The description of the API, held to the standard by a validator of others, and what is really
//! asked and answered, held to the description: what the service takes fits, and what it refuses as
//! malformed does not.
//!
//! Skipped aloud without the Python package `openapi-spec-validator`; `REQUIRE_OPENAPI=1` makes
//! that a failure.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use ringgate_tokens::openapi;
use serde_json::{Value, json};

use crate::http::{Answer, ask};
use crate::office::Fleet;
use crate::rig::{Folder, is_installed};

fn is_there() -> bool {
    let has = Command::new("python3").args(["-c", "import openapi_spec_validator"]).output();
    let is_there = has.is_ok_and(|it| it.status.success());
    let required = std::env::var_os("REQUIRE_OPENAPI").is_some_and(|it| it == "1");
    assert!(is_there || !required, "REQUIRE_OPENAPI=1, but openapi-spec-validator is not there");
    if !is_there {
        eprintln!("SKIPPED: Python's openapi-spec-validator is not there");
    }
    is_there
}

/// What was asked and answered so far.
struct Log {
    service: SocketAddr,
    exchanges: Vec<Value>,
}

impl Log {
    async fn get(&mut self, path: &str, secret: &str) -> u16 {
        let head = format!("Authorization: Bearer {secret}\r\n");
        let answer = ask(self.service, "GET", path, &head, "").await;
        self.note(path, "get", &Value::Null, true, &answer)
    }

    /// Posts what fits; the status.
    async fn post(&mut self, path: &str, secret: &str, body: &Value) -> u16 {
        let head = format!("Authorization: Bearer {secret}\r\n");
        let answer = ask(self.service, "POST", path, &head, &body.to_string()).await;
        self.note(path, "post", body, true, &answer)
    }

    /// Posts what does not.
    async fn malformed(&mut self, path: &str, body: &Value) {
        let asks = ["/v1/tokens", "/v1/tokens/batch", "/v1/places"].contains(&path);
        let secret = if asks { "matchmaker-secret" } else { "admin-secret" };
        let head = format!("Authorization: Bearer {secret}\r\n");
        let answer = ask(self.service, "POST", path, &head, &body.to_string()).await;
        assert_eq!(answer.error(), "body_malformed", "{path} {body}");
        self.note(path, "post", body, false, &answer);
    }

    fn note(&mut self, path: &str, method: &str, sent: &Value, fits: bool, answer: &Answer) -> u16 {
        let head = answer.head.to_ascii_lowercase();
        let kind = head.split("content-type: ").nth(1).and_then(|it| it.lines().next());
        self.exchanges.push(json!({
            "path": path, "method": method, "sent": sent, "fits": fits, "status": answer.status,
            "kind": kind.unwrap_or_default(), "answer": answer.body,
        }));
        answer.status
    }
}

#[tokio::test]
async fn what_is_asked_and_answered_is_what_the_description_says() {
    if !is_installed() || !is_there() {
        return;
    }
    let fleet = Fleet::start(2, 3, 100).await;
    let office = fleet.service("one").await;
    let mut log = Log { service: office.address(), exchanges: Vec::new() };
    pages(&mut log).await;
    what_is_served(&mut log).await;
    what_is_refused(&mut log).await;
    what_is_malformed(&mut log).await;
    judge(&log.exchanges);
}

async fn pages(log: &mut Log) {
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/fleet"] {
        assert_eq!(log.get(path, "").await, 200, "{path}");
    }
    for (secret, status) in [("eyes-secret", 200), ("matchmaker-secret", 403), ("nobody", 401)] {
        assert_eq!(log.get("/v1/fleet", secret).await, status);
    }
}

async fn what_is_served(log: &mut Log) {
    let whole = json!({
        "client_id": "18446744073709551615", "protocol_id": 0x1122, "group": "main", "region": ["us", "eu"],
        "labels": {}, "addresses": 1, "family": "ipv4", "user_data": "aGVsbG8=", "expire": 60, "timeout": -1,
    });
    for body in [json!({"client_id": 1}), json!({"client_id": "2", "backend": "b0-1"}), whole] {
        assert_eq!(log.post("/v1/tokens", "matchmaker-secret", &body).await, 200, "{body}");
    }
    for together in [true, false] {
        // Clients without a promise: those above may have theirs at two servers.
        let tokens = json!([{"client_id": 3}, {"client_id": 4}]);
        let body = json!({"tokens": tokens, "together": together});
        assert_eq!(log.post("/v1/tokens/batch", "matchmaker-secret", &body).await, 200, "{body}");
    }
    // One of them is refused, and the others are served.
    let body = json!({"tokens": [{"client_id": 1}, {"client_id": 2, "backend": "none"}]});
    assert_eq!(log.post("/v1/tokens/batch", "matchmaker-secret", &body).await, 200);
    assert_eq!(log.post("/v1/confirm", "admin-secret", &json!({"doubt": 1})).await, 200);
    // The gateways of this fleet are values that nobody answers for.
    for (path, body) in [
        ("/v1/sessions", json!({"client_id": "0x7", "address": "192.0.2.0/24", "limit": 9})),
        ("/v1/kick", json!({"session": "00000000000000ff", "gateways": ["g0"]})),
        (
            "/v1/moves",
            json!({"client_id": 7, "to": "b1", "time_ms": 1, "confirm": true, "within": 1}),
        ),
        ("/v1/drain", json!({"backend": "b1", "deadline": 60, "within": 1})),
        ("/v1/undrain", json!({"gateways": ["g0"]})),
        ("/v1/trace", json!({"address": "192.0.2.0/24", "for": 1, "within": 1})),
    ] {
        assert_eq!(log.post(path, "admin-secret", &body).await, 200, "{path}");
    }
}

async fn what_is_refused(log: &mut Log) {
    let one = json!({"client_id": 1});
    for (secret, body, status) in [
        ("nobody", &one, 401),
        ("places-secret", &one, 403),
        ("matchmaker-secret", &json!({"client_id": 1, "backend": "none"}), 404),
        ("matchmaker-secret", &json!({"client_id": 1, "expire": 86_400}), 400),
    ] {
        assert_eq!(log.post("/v1/tokens", secret, body).await, status, "{body}");
    }
    let place = json!({"protocol": "plain"});
    let status = log.post("/v1/places", "places-secret", &place).await;
    assert!(status >= 400, "there is no plain listener: {status}");
}

async fn what_is_malformed(log: &mut Log) {
    for body in [
        json!({}),
        json!([]),
        json!({"client_id": -1}),
        json!({"client_id": "one"}),
        json!({"client_id": 1, "clientid": 2}),
        json!({"client_id": 1, "addresses": 0}),
        json!({"client_id": 1, "addresses": 33}),
        json!({"client_id": 1, "family": "ipv5"}),
        json!({"client_id": 1, "group": ""}),
        json!({"client_id": 1, "group": "no name"}),
        json!({"client_id": 1, "backend": "x".repeat(65)}),
        json!({"client_id": 1, "expire": 0}),
        json!({"client_id": 1, "timeout": 0}),
        json!({"client_id": 1, "labels": {"map": 1}}),
        json!({"client_id": 1, "user_data": "A".repeat(400)}),
    ] {
        log.malformed("/v1/tokens", &body).await;
    }
    log.malformed("/v1/tokens/batch", &json!({"tokens": []})).await;
    log.malformed("/v1/tokens/batch", &json!({"tokens": vec![json!({"client_id": 1}); 257]})).await;
    log.malformed("/v1/tokens/batch", &json!({"tokens": [{"client_id": 1}], "all": true})).await;
    log.malformed("/v1/places", &json!({"protocol": "quic"})).await;
    let session = "00000000000000ff";
    for (path, body) in [
        ("/v1/sessions", json!({"limit": 0})),
        ("/v1/sessions", json!({"session": session})),
        ("/v1/sessions", json!({"address": "gate-1.example"})),
        ("/v1/sessions", json!({"within": 31})),
        ("/v1/sessions", json!({"gateways": vec!["g0"; 65]})),
        ("/v1/kick", json!({})),
        ("/v1/kick", json!({"client_id": 1, "session": session, "gateways": ["g0"]})),
        ("/v1/kick", json!({"session": session})),
        ("/v1/kick", json!({"session": session, "gateways": ["g0", "g1"]})),
        ("/v1/kick", json!({"session": "ff", "gateways": ["g0"]})),
        ("/v1/moves", json!({"client_id": 1})),
        ("/v1/moves", json!({"to": "b1"})),
        ("/v1/moves", json!({"client_id": 1, "to": "no name"})),
        ("/v1/moves", json!({"client_id": 1, "to": "b1", "time_ms": 30_001})),
        ("/v1/moves", json!({"client_id": 1, "to": "b1", "session": session})),
        ("/v1/drain", json!({})),
        ("/v1/drain", json!({"gateways": []})),
        ("/v1/drain", json!({"backend": "b1", "deadline": 86_401})),
        ("/v1/undrain", json!({"backend": "no name"})),
        ("/v1/undrain", json!({"backend": "b1", "deadline": 1})),
        ("/v1/trace", json!({})),
        ("/v1/trace", json!({"client_id": 1, "address": "192.0.2.7"})),
        ("/v1/trace", json!({"client_id": 1, "for": 61})),
        ("/v1/trace", json!({"client_id": 1, "limit": 1})),
        ("/v1/sessions", json!({"for": 1})),
    ] {
        log.malformed(path, &body).await;
    }
}

/// Lets the validator look at all of it.
fn judge(exchanges: &[Value]) {
    let folder = Folder::new();
    let document = folder.path("openapi.json");
    std::fs::write(&document, openapi::DOCUMENT).expect("the folder is ours");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/openapi.py");
    let mut child = Command::new("python3")
        .args([script, document])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was there a moment ago");
    let mut stdin = child.stdin.take().expect("piped");
    let text = Value::from(exchanges).to_string();
    stdin.write_all(text.as_bytes()).expect("it reads all");
    drop(stdin);
    let said = child.wait_with_output().expect("it ends");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}

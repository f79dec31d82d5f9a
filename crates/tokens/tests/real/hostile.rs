//! Callers who mean no good: each is refused by name, and the service goes on.

use tokio::net::TcpStream;

use crate::http::{ask, post, say};
use crate::office::Fleet;
use crate::rig::is_installed;

#[tokio::test]
async fn what_is_not_served_is_refused_by_name() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(1, 1, 1000).await;
    let office = fleet.service("one").await;
    let to = office.address();
    let good = r#"{"client_id": 1}"#;
    let secret = |text: &str| format!("Authorization: Bearer {text}\r\n");
    let matchmaker = secret("matchmaker-secret");
    let twice = format!("{matchmaker}{matchmaker}");
    let long_key = format!("{matchmaker}Idempotency-Key: {}\r\n", "k".repeat(65));
    let long_body = format!(r#"{{"client_id": 1, "user_data": "{}"}}"#, "A".repeat(20_000));
    for (method, path, head, body, status, error) in [
        ("POST", "/v1/tokens", "", good, 401, "not_authorized"),
        ("POST", "/v1/tokens", &secret("wrong"), good, 401, "not_authorized"),
        ("POST", "/v1/tokens", &twice, good, 401, "not_authorized"),
        (
            "POST",
            "/v1/tokens",
            "Authorization: Basic bWF0Y2htYWtlcg==\r\n",
            good,
            401,
            "not_authorized",
        ),
        ("GET", "/v1/tokens", &matchmaker, "", 405, "method_not_allowed"),
        ("POST", "/healthz", "", "", 405, "method_not_allowed"),
        ("GET", "/v2/tokens", "", "", 404, "not_found"),
        ("POST", "/v1/tokens/", &matchmaker, good, 404, "not_found"),
        ("POST", "/v1/confirm", &matchmaker, r#"{"doubt": 1}"#, 403, "scope_missing"),
        ("POST", "/v1/kick", &matchmaker, r#"{"client_id": 1}"#, 403, "scope_missing"),
        ("POST", "/v1/sessions", &matchmaker, "{}", 403, "scope_missing"),
        ("POST", "/v1/tokens", &secret("places-secret"), good, 403, "scope_missing"),
        ("POST", "/v1/tokens", &secret("other-secret"), good, 403, "group_forbidden"),
        ("POST", "/v1/tokens", &matchmaker, "{", 400, "body_malformed"),
        ("POST", "/v1/tokens", &matchmaker, r#"{"client_id": 1, "x": 1}"#, 400, "body_malformed"),
        ("POST", "/v1/tokens", &matchmaker, &long_body, 413, "body_too_large"),
        ("POST", "/v1/tokens", &long_key, good, 400, "idempotency_key_bad"),
        (
            "POST",
            "/v1/tokens",
            &matchmaker,
            r#"{"client_id": 1, "addresses": 2}"#,
            400,
            "too_many_addresses",
        ),
        (
            "POST",
            "/v1/tokens",
            &matchmaker,
            r#"{"client_id": 1, "expire": 301}"#,
            400,
            "expire_too_long",
        ),
        (
            "POST",
            "/v1/tokens",
            &matchmaker,
            r#"{"client_id": 1, "protocol_id": 1}"#,
            400,
            "protocol_id_wrong",
        ),
        ("POST", "/v1/places", &matchmaker, "{}", 503, "no_gateway"),
    ] {
        let answer = ask(to, method, path, head, body).await;
        assert_eq!((answer.status, answer.error().as_str()), (status, error), "{path} {body}");
    }
    let metrics = ask(to, "GET", "/metrics", "", "").await.body;
    assert!(
        metrics.contains("ringgate_tokens_refusals_total{reason=\"not_authorized\"} 4\n"),
        "{metrics}"
    );
    assert_eq!(post(to, "/v1/tokens", good).await.status, 200);
}

#[tokio::test]
async fn quotas_are_kept() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(1, 1, 1000).await;
    let office = fleet.service("one").await;
    let many = [r#"{"client_id": 1}"#; 6].join(",");
    let body = format!(r#"{{"tokens": [{many}], "together": true}}"#);
    let head = "Authorization: Bearer slow-secret\r\n";
    let answer = ask(office.address(), "POST", "/v1/tokens/batch", head, &body).await;
    assert_eq!((answer.status, answer.error().as_str()), (429, "quota_exceeded"));
    assert!(answer.head.to_ascii_lowercase().contains("retry-after: 1"), "{}", answer.head);
}

#[tokio::test]
async fn what_is_no_http_ends_its_own_connection_only() {
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(1, 1, 1000).await;
    let office = fleet.service("one").await;
    let to = office.address();
    let endless = format!("GET /healthz HTTP/1.1\r\nX: {}", "x".repeat(64 << 10));
    let chunked = format!(
        "POST /v1/tokens HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer matchmaker-secret\r\nTransfer-Encoding: chunked\r\n\r\n\
         4000\r\n{}\r\n",
        "x".repeat(0x4000)
    );
    let unsure =
        "POST /v1/tokens HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}";
    let many = format!("GET /healthz HTTP/1.1\r\nHost: t\r\n{}\r\n", "X: y\r\n".repeat(500));
    // Which of the two lengths holds is for nobody to guess.
    let both = "POST /v1/tokens HTTP/1.1\r\nHost: t\r\nConnection: close\r\nAuthorization: Bearer matchmaker-secret\r\n\
                Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let huge = "POST /v1/tokens HTTP/1.1\r\nHost: t\r\nConnection: close\r\nAuthorization: Bearer matchmaker-secret\r\n\
                Content-Length: 99999999999999999999\r\n\r\n{}";
    for (bytes, statuses) in [
        (many.into_bytes(), &[400, 431][..]),
        (both.as_bytes().to_vec(), &[400]),
        (huge.as_bytes().to_vec(), &[400, 413]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc".to_vec(), &[400]),
        (endless.into_bytes(), &[400, 414, 431]),
        (chunked.into_bytes(), &[413]),
        (unsure.as_bytes().to_vec(), &[400]),
    ] {
        let stream = TcpStream::connect(to).await.expect("it listens");
        let answer = say(stream, &bytes).await;
        // Some are closed without a word.
        let status = answer.map_or(statuses[0], |it| it.status);
        assert!(statuses.contains(&status), "{status}");
    }
    // Requests that come at once are answered one after the other, and what is no request behind
    // them takes nothing from them.
    let one = "GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n";
    let at_once = format!("{one}{one}nonsense\r\n\r\n");
    let stream = TcpStream::connect(to).await.expect("it listens");
    let answers = say(stream, at_once.as_bytes()).await.expect("it answers");
    assert_eq!(answers.status, 200);
    assert_eq!(answers.body.matches("HTTP/1.1 200 OK").count(), 1, "{answers:?}");
    assert_eq!(answers.body.matches("HTTP/1.1 400").count(), 1, "{answers:?}");
    // More connections than there are places, of which none says anything.
    let mut silent = Vec::new();
    for _ in 0..1100 {
        match TcpStream::connect(to).await {
            Ok(stream) => silent.push(stream),
            Err(_) => break,
        }
    }
    assert_eq!(post(to, "/v1/tokens", r#"{"client_id": 1}"#).await.status, 200);
}

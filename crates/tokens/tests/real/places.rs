//! Connections that take places and bring nothing: strangers who say nothing, and a caller whose
//! bodies do not come. Others are served all the while.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::http::{begin, post, read_one};
use crate::office::{Fleet, Office};
use crate::rig::is_installed;

/// More than a thread has places.
const CROWD: usize = 1300;

/// A service with one thread, so that all meet at the same places.
async fn narrow() -> Option<(Fleet, Office)> {
    if !is_installed() {
        return None;
    }
    let fleet = Fleet::start(1, 1, 1000).await;
    let mut options = fleet.options("one");
    options.threads = 1;
    let office = Office::start(options);
    office.is_ready().await;
    Some((fleet, office))
}

#[tokio::test]
async fn silent_strangers_do_not_close_a_callers_connection() {
    let Some((_fleet, office)) = narrow().await else { return };
    let mut kept = TcpStream::connect(office.address()).await.expect("it listens");
    begin(&mut kept, "matchmaker-secret", r#"{"client_id": 1}"#).await;
    assert_eq!(read_one(&mut kept).await.expect("it answers").status, 200);
    let mut strangers = Vec::new();
    for _ in 0..CROWD {
        strangers.push(TcpStream::connect(office.address()).await.expect("it listens"));
    }
    // The last of them has its place once a request that came behind it is answered.
    assert_eq!(post(office.address(), "/v1/tokens", r#"{"client_id": 2}"#).await.status, 200);
    begin(&mut kept, "matchmaker-secret", r#"{"client_id": 3}"#).await;
    assert_eq!(read_one(&mut kept).await.expect("it is still there").status, 200);
}

#[tokio::test]
async fn a_caller_whose_bodies_do_not_come_keeps_nobody_out() {
    let Some((_fleet, office)) = narrow().await else { return };
    let head = "POST /v1/tokens HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer slow-secret\r\n\
                Content-Length: 100\r\n\r\n{";
    let mut slow = Vec::new();
    for _ in 0..CROWD {
        let mut stream = TcpStream::connect(office.address()).await.expect("it listens");
        stream.write_all(head.as_bytes()).await.expect("it is taken");
        slow.push(stream);
    }
    for client in 0..40 {
        let body = format!("{{\"client_id\": {client}}}");
        assert_eq!(post(office.address(), "/v1/tokens", &body).await.status, 200, "{client}");
    }
}

//! Stand-in services that answer, refuse, hang up, or are not there.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use ringgate_core::netcode::{self, TokenSpec};

use super::*;
use crate::players::tokens::Tokens;
use own::own_address;

#[allow(dead_code, reason = "the gateway's own tests use all of it")]
#[path = "../../../../../tests/all/own.rs"]
mod own;

fn request(services: Vec<SocketAddr>) -> Request {
    Request { services, secret: "s".into(), body: Map::new(), comes_back: false }
}

/// One that never answers, and is never asked.
pub(crate) fn silent() -> Service {
    let (state, news) = (Mutex::default(), Condvar::new());
    let (request, next_id) = (request(vec![own_address()]), AtomicU64::new(1));
    Service { shared: Arc::new(Shared { request, next_id, state, news }) }
}

fn token_text(expires_in_s: u64) -> String {
    let servers = "127.0.0.1:5".parse().expect("literal");
    let spec = TokenSpec { lifetime_seconds: Some(expires_in_s), ..TokenSpec::new(7, 1, servers) };
    let key = Key::from_bytes([1; 32]);
    let token = netcode::mint(&spec, &key, clock::unix_seconds()).expect("random bytes");
    format!("{{\"token\":\"{}\"}}", STANDARD.encode(token.to_bytes()))
}

/// A service that gives each connection the next of these answers, and then hangs up.
fn service(answers: Vec<String>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn started(request: Request) -> Tokens {
    Tokens::Service(Arc::new(Service::start(request).expect("a token")))
}

#[test]
fn whoever_does_not_answer_or_has_no_slot_is_passed_over() {
    let refusals = ["503 Service Unavailable", "409 Conflict", "408 Request Timeout"];
    let busy = service(refusals.map(|status| vec![answer(status, "{}"); ASKERS]).concat());
    let mute = service(vec![String::new(); ASKERS]);
    let good = service(vec![answer("200 OK", &token_text(60)); 2]);
    let service = started(request(vec![own_address(), busy, mute, good]));
    assert_eq!(service.terms().map(|terms| terms.1), Some(7));
    let first = service.wait(1).expect("the first");
    let second = service.wait(1).expect("another one");
    assert_eq!(first.nonce, second.nonce, "the stand-in has only one");
    assert!(service.refusal().is_some(), "why the others have given none");
}

#[test]
fn a_refusal_for_good_ends_the_asking_and_is_told() {
    let closed =
        service(vec![answer("401 Unauthorized", "{\"error\":\"not_authorized\"}"); ASKERS]);
    let why = Service::start(request(vec![closed])).expect_err("refused");
    assert!(why.contains("401") && why.contains("not_authorized"), "{why}");
    let garbled = service(vec![answer("200 OK", "{\"token\":\"AAAA\"}"); ASKERS]);
    assert!(Service::start(request(vec![garbled])).is_err());
}

#[test]
fn a_token_that_is_about_to_end_is_not_dialled_with() {
    let answers = [1, 60].map(|expires_in_s| answer("200 OK", &token_text(expires_in_s)));
    let good = service(answers.into());
    let service = started(request(vec![good]));
    let token = service.wait(1).expect("the second");
    assert!(token.expire_unix_s > clock::unix_seconds() + SPARE_S);
}

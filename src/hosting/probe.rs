//! Asks a game process whether it is well, as its file says.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::http;
use crate::config::hosted::{Check, Health};

/// One answer. The error is one sentence.
pub(super) async fn ask(health: &Health) -> Result<(), String> {
    match timeout(health.timeout, check(&health.check)).await {
        Ok(answer) => answer.map_err(|why| why.to_string()),
        Err(_) => Err(format!("no answer within {:?}", health.timeout)),
    }
}

async fn check(check: &Check) -> io::Result<()> {
    match check {
        Check::Tcp(address) => TcpStream::connect(address).await.map(drop),
        Check::A2s(address) => query(*address).await,
        Check::Http(url) => match http::status(url).await? {
            200..=299 => Ok(()),
            status => Err(io::Error::other(format!("the answer has status {status}"))),
        },
    }
}

/// `A2S_INFO`: some servers want their number back before they answer.
async fn query(server: SocketAddr) -> io::Result<()> {
    let own = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(own).await?;
    socket.connect(server).await?;
    let mut request = QUERY.to_vec();
    socket.send(&request).await?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    for _ in 0..ANSWERS_MAX {
        let len = socket.recv(&mut answer).await?;
        match answer[..len] {
            // An answer, or the first part of one.
            [0xff, 0xff, 0xff, 0xff, INFO | INFO_OLD, ..] | [0xfe, 0xff, 0xff, 0xff, ..] => {
                return Ok(());
            }
            [0xff, 0xff, 0xff, 0xff, CHALLENGE, one, two, three, four, ..] => {
                request.truncate(QUERY.len());
                request.extend([one, two, three, four]);
                socket.send(&request).await?;
            }
            // What others send.
            _ => {}
        }
    }
    Err(io::Error::other("it answers, and not the query"))
}

const QUERY: &[u8] = b"\xff\xff\xff\xffTSource Engine Query\0";
const INFO: u8 = b'I';
/// Servers before Source.
const INFO_OLD: u8 = b'm';
const CHALLENGE: u8 = b'A';
const ANSWER_BYTES_MAX: usize = 1500;

/// A server that has only numbers and noise to say is not asked on and on.
const ANSWERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, UdpSocket as Socket};
    use std::thread;
    use std::time::Duration;

    use ringgate_os::clock;

    use super::*;
    use crate::config::hosted::Url;

    fn asked(check: Check, timeout: Duration) -> Result<(), String> {
        let health = Health { check, every: Duration::from_secs(1), timeout, failures: 1 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(ask(&health))
    }

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(50);
    const TRIES: usize = 10_000;

    #[test]
    fn a_connection_that_is_accepted_is_an_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        assert_eq!(asked(Check::Tcp(address), LONG), Ok(()));
        drop(listener);
        // A program that a parallel test starts holds the socket too until it runs.
        let is_refused = |_| {
            clock::sleep(Duration::from_millis(1));
            asked(Check::Tcp(address), LONG).is_err()
        };
        assert!((0..TRIES).any(is_refused), "nobody listens there any more");
    }

    #[test]
    fn a_status_of_200_to_299_is_an_answer() {
        for (said, is_well) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n", true),
            ("HTTP/1.0 503 Service Unavailable\r\n\r\n", false),
            ("SSH-2.0-OpenSSH\r\n", false),
            ("", false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
            let address = listener.local_addr().expect("bound");
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("it comes");
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).expect("a whole request");
                    request.push(byte[0]);
                }
                stream.write_all(said.as_bytes()).expect("it listens");
                String::from_utf8(request).expect("text")
            });
            let url = Url { address, path: "/healthz?deep=1".to_owned() };
            assert_eq!(asked(Check::Http(url), LONG).is_ok(), is_well, "{said}");
            let request = server.join().expect("it ends");
            assert!(request.starts_with("GET /healthz?deep=1 HTTP/1.0\r\n"), "{request}");
        }
    }

    #[test]
    fn a_query_is_answered_at_once_or_after_a_number_was_sent_back() {
        let server = Socket::bind("127.0.0.1:0").expect("loopback");
        let address = server.local_addr().expect("bound");
        let answer = move || {
            let mut heard = [0; 100];
            let (len, from) = server.recv_from(&mut heard).expect("a query");
            assert_eq!(&heard[..len], QUERY);
            server.send_to(b"\xff\xff\xff\xffA1234", from).expect("loopback");
            let (len, from) = server.recv_from(&mut heard).expect("a query");
            assert_eq!(&heard[..len], [QUERY, b"1234"].concat());
            server.send_to(b"noise", from).expect("loopback");
            server.send_to(b"\xff\xff\xff\xffI\x11dust", from).expect("loopback");
        };
        let server = thread::spawn(answer);
        assert_eq!(asked(Check::A2s(address), LONG), Ok(()));
        server.join().expect("it heard what it should");
        let endless = Socket::bind("127.0.0.1:0").expect("loopback");
        let address = endless.local_addr().expect("bound");
        let server = thread::spawn(move || {
            let mut heard = [0; 100];
            for _ in 0..ANSWERS_MAX {
                let (_, from) = endless.recv_from(&mut heard).expect("a query");
                endless.send_to(b"\xff\xff\xff\xffA1234", from).expect("loopback");
            }
        });
        let why = Err("it answers, and not the query".to_owned());
        assert_eq!(asked(Check::A2s(address), LONG), why);
        server.join().expect("it was asked so often");
        let silent = Socket::bind("127.0.0.1:0").expect("loopback");
        let address = silent.local_addr().expect("bound");
        assert_eq!(asked(Check::A2s(address), SHORT), Err("no answer within 50ms".to_owned()));
    }
}

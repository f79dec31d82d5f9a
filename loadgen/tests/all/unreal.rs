//! Unreal players over real sockets against a stand-in server, by the library and by the command
//! line.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_bots::unreal::{StandIn, Tally};
use ringgate_core::crypto::cookie::CookieMac;
use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::handshake::{Base, Tail};
use ringgate_core::proto::unreal::prefix::{Framing, Magic};
use ringgate_core::secret::CookieSecret;
use ringgate_os::clock::Clock;

use super::command::{folder, loadgen};

/// A stand-in server in a thread.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Tally>,
}

impl Server {
    fn start(magic: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let address = socket.local_addr().expect("bound");
        let magic = Magic::from_text(magic).expect("binary");
        let base = Base { version_min: 3, version: 4, ..Base::default() };
        let framing = Framing { magic, ..Framing::default() };
        let profile = Profile { framing, client_id: 0, base };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let clock = Clock::start();
            let now_ns = || clock.now_ns() + 1_000_000_000;
            let secrets = [3, 4].map(|byte| CookieSecret::from_bytes([byte; 64]));
            let mut server = StandIn::new(&profile, 1, 100, CookieMac::tag_once, secrets, now_ns());
            let (mut bytes, mut out) = ([0; 2048], [0; 2048]);
            while !stopped.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
                let tail = Tail::draw(&[7; 17]);
                let answer =
                    server.handle_datagram(now_ns(), from.into(), &bytes[..len], &tail, &mut out);
                if let Ok(len @ 1..) = answer {
                    socket.send_to(&out[..len], from).expect("loopback takes it");
                }
            }
            server.tally
        });
        Self { address, stop, thread }
    }

    fn end(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the server did not panic")
    }
}

#[test]
fn a_run_against_a_server_without_a_gateway_loses_nothing() {
    let server = Server::start("1100101");
    let address = server.address.to_string();
    let out = folder("unreal");
    let output = loadgen(&[
        "run",
        "--unreal",
        "--server",
        &address,
        "--magic",
        "1100101",
        "--sessions",
        "20",
        "--threads",
        "2",
        "--ramp",
        "200ms",
        "--hold",
        "1s",
        "--hz",
        "20",
        "--bytes",
        "28-1000",
        "--json",
        "--out",
        out.to_str().expect("UTF-8"),
    ]);
    assert!(output.status.success(), "{output:?}");
    let record: ringgate_loadgen::report::record::Record =
        serde_json::from_slice(&output.stdout).expect("JSON alone");
    let c = |name: &str| record.counters[name];
    assert_eq!((c("joins"), c("connected"), c("left"), c("missing")), (20, 20, 20, 0));
    assert_eq!((c("corrupt"), c("misdelivered"), c("duplicates")), (0, 0, 0));
    let seen = server.end();
    assert_eq!((seen.connections, seen.goodbyes), (20, 20));
    assert_eq!((seen.echoes, seen.duplicates, seen.implausible), (c("echoed"), 0, 0));
    // How many that are is the machine's: who connects late has less time.
    assert!(c("echoed") >= 20 && c("echoed") == c("payloads_due"), "{:?}", record.counters);
    std::fs::remove_dir_all(out).expect("removed");
}

#[test]
fn options_of_other_protocols_are_refused() {
    for (arguments, expected) in [
        (vec!["run", "--unreal"], "--server"),
        (vec!["run", "--unreal", "--server", "127.0.0.1:1", "--key", "/x"], "--key"),
        (vec!["run", "--server", "127.0.0.1:1", "--magic", "1"], "--unreal"),
        (vec!["run", "--unreal", "--server", "127.0.0.1:1", "--magic", "2"], "0 or 1"),
        (vec!["run", "--unreal", "--server", "127.0.0.1:1", "--handshake-version", "5"], "0 to 4"),
    ] {
        let output = loadgen(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

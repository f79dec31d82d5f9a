//! A player: connects with a token, sends a line ten times a second, and prints what comes back.
//!
//! `cargo run -p ringgate-core --example netcode_client -- TOKEN_FILE [SECONDS]`

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ringgate_core::limits::DATAGRAM_BYTES_MAX;
use ringgate_core::netcode::{Client, ConnectToken, Notice};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: netcode_client TOKEN_FILE [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let token = ConnectToken::decode(&std::fs::read(path)?)?;
    play(&token, Duration::from_secs(seconds))
}

fn play(token: &ConnectToken, for_how_long: Duration) -> Result<(), Box<dyn Error>> {
    let clock = Clock::start();
    let mut client = Client::new(token, 0)?;
    let socket = UdpSocket::bind(any_address_like(client.server()))?;
    socket.set_read_timeout(Some(Duration::from_millis(10)))?;
    let mut buffer = [0; DATAGRAM_BYTES_MAX];
    let mut lines = 0;
    while !client.is_finished() {
        let now_ns = clock.now_ns();
        if now_ns > for_how_long.as_nanos() as u64 {
            client.disconnect();
        } else if client.is_connected() && now_ns >= lines * LINE_INTERVAL_NS {
            let line = format!("line {lines}");
            if let Ok((to, datagram)) = client.write_payload(now_ns, line.as_bytes(), &mut buffer) {
                socket.send_to(datagram, to)?;
            }
            lines = now_ns / LINE_INTERVAL_NS + 1;
        }
        if let Some(notice) = client.handle_timeout(now_ns) {
            println!("{notice:?}");
        }
        while let Some((to, datagram)) = client.poll_transmit(now_ns, &mut buffer) {
            socket.send_to(datagram, to)?;
        }
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        match client.handle_datagram(now_ns, from, &mut buffer[..length]) {
            Ok(Some(Notice::Payload(bytes))) => println!("{}", String::from_utf8_lossy(bytes)),
            Ok(Some(notice)) => println!("{notice:?}"),
            // Late, foreign and damaged datagrams are normal on the internet.
            Ok(None) | Err(_) => {}
        }
    }
    println!("{}", client.state().name());
    Ok(())
}

fn any_address_like(server: SocketAddr) -> SocketAddr {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}

/// The game's clock: the client takes time as an argument.
struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a game has a clock of its own")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

const LINE_INTERVAL_NS: u64 = 100_000_000;

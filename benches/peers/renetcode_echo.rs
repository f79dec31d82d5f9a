//! A game server on the `renetcode` crate, as such servers are built: netcode ends in the game's
//! own process, and every datagram wakes it.
//!
//! It answers each payload with itself. Once in 10 ms it does what the crate wants done in a tick:
//! time-outs and keep-alives.
//!
//! ```text
//! renetcode-echo 127.0.0.1:40000 FILE_WITH_THE_KEY_IN_HEX PROTOCOL_ID CLIENTS
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use renetcode::{NetcodeServer, ServerAuthentication, ServerConfig, ServerResult};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [bind, key_file, protocol_id, clients] = &arguments[..] else {
        return Err("renetcode-echo ADDRESS KEY_FILE PROTOCOL_ID CLIENTS".into());
    };
    let bind: SocketAddr = bind.parse()?;
    let server = NetcodeServer::new(ServerConfig {
        current_time: SystemTime::now().duration_since(UNIX_EPOCH)?,
        max_clients: clients.parse()?,
        protocol_id: protocol_id.parse()?,
        public_addresses: vec![bind],
        authentication: ServerAuthentication::Secure {
            private_key: key(&std::fs::read_to_string(key_file)?)?,
        },
    });
    let socket = UdpSocket::bind(bind)?;
    socket.set_read_timeout(Some(TICK))?;
    println!("listening on {}", socket.local_addr()?);
    serve(&socket, server);
    Ok(())
}

fn key(hex: &str) -> Result<[u8; 32], Box<dyn Error>> {
    let hex = hex.trim();
    let digits = (0..32).map(|n| hex.get(2 * n..2 * n + 2).ok_or("a key is 64 hex digits"));
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(digits) {
        *byte = u8::from_str_radix(digits?, 16)?;
    }
    Ok(key)
}

fn serve(socket: &UdpSocket, mut server: NetcodeServer) {
    let (mut buffer, mut ticked) = ([0; 2048], Instant::now());
    // What the kernel does not take is lost, as it would be further on.
    let send = |payload: &[u8], to: SocketAddr| drop(socket.send_to(payload, to));
    loop {
        if let Ok((len, from)) = socket.recv_from(&mut buffer) {
            match server.process_packet(from, &mut buffer[..len]) {
                ServerResult::Payload { client_id, payload } => {
                    if let Ok((to, packet)) = server.generate_payload_packet(client_id, payload) {
                        send(packet, to);
                    }
                }
                ServerResult::PacketToSend { addr, payload }
                | ServerResult::ClientConnected { addr, payload, .. }
                | ServerResult::ClientDisconnected { addr, payload: Some(payload), .. } => {
                    send(payload, addr);
                }
                ServerResult::ClientDisconnected { payload: None, .. } | ServerResult::None => {}
            }
        }
        let now = Instant::now();
        if now - ticked >= TICK {
            server.update(now - ticked);
            ticked = now;
            for client in server.clients_id() {
                if let ServerResult::PacketToSend { addr, payload }
                | ServerResult::ClientDisconnected { addr, payload: Some(payload), .. } =
                    server.update_client(client)
                {
                    send(payload, addr);
                }
            }
        }
    }
}

/// How often time-outs and keep-alives are looked at.
const TICK: Duration = Duration::from_millis(10);

//! QUIC as `quinn` speaks it, over its machine without sockets: a stream for each reliable message,
//! a datagram for each that is not.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, ServerConfig, StreamEvent, StreamId, TransportConfig,
};
use rustls::pki_types::PrivateKeyDer;

use crate::runs::Peer;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sends {
    Streams,
    Datagrams,
}

/// Both ends.
pub struct Quic {
    sends: Sends,
    ends: [Side; 2],
    /// The instant that virtual time counts from.
    start: Instant,
    now: Instant,
    /// What waits on streams that have no room.
    unsent: VecDeque<(StreamId, Vec<u8>)>,
    unsent_bytes: usize,
    /// How many streams were opened, negative.
    streams: i32,
    coming: HashMap<StreamId, Vec<u8>>,
    messages: VecDeque<Vec<u8>>,
}

struct Side {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    /// What the endpoint itself has to say.
    out: Vec<Vec<u8>>,
}

impl Quic {
    pub fn new(sends: Sends) -> Self {
        let start = Instant::now();
        let (client, server) = configs();
        let endpoint = |server| {
            Endpoint::new(Arc::new(EndpointConfig::default()), server, true, Some([7; 32]))
        };
        let mut side = Side { endpoint: endpoint(None), connection: None, out: Vec::new() };
        let connected = side.endpoint.connect(start, client, ADDRESS, "localhost");
        side.connection = Some(connected.expect("a configuration that is whole"));
        let other =
            Side { endpoint: endpoint(Some(Arc::new(server))), connection: None, out: Vec::new() };
        Self {
            sends,
            ends: [side, other],
            start,
            now: start,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            streams: 0,
            coming: HashMap::new(),
            messages: VecDeque::new(),
        }
    }

    fn at(&self, now_ns: u64) -> Instant {
        self.start + Duration::from_nanos(now_ns)
    }

    /// Has the streams take what they have room for.
    fn push(&mut self) {
        let Some((_, connection)) = &mut self.ends[0].connection else { return };
        while let Some((stream, bytes)) = self.unsent.front_mut() {
            let Ok(written) = connection.send_stream(*stream).write(bytes) else { return };
            self.unsent_bytes -= written;
            bytes.drain(..written);
            if bytes.is_empty() {
                let _ = connection.send_stream(*stream).finish();
                self.unsent.pop_front();
            }
        }
    }

    /// Takes what has come on streams and in datagrams at end 1.
    fn pull(&mut self) {
        let Some((_, connection)) = &mut self.ends[1].connection else { return };
        while let Some(event) = connection.poll() {
            match event {
                Event::Stream(StreamEvent::Readable { id }) => {
                    self.coming.entry(id).or_default();
                }
                Event::ConnectionLost { reason } => eprintln!("quinn: {reason}"),
                _ => {}
            }
        }
        while let Some(stream) = connection.streams().accept(Dir::Uni) {
            self.coming.entry(stream).or_default();
        }
        while let Some(datagram) = connection.datagrams().recv() {
            self.messages.push_back(datagram.to_vec());
        }
        let messages = &mut self.messages;
        self.coming.retain(|stream, message| {
            let mut receiving = connection.recv_stream(*stream);
            let Ok(mut chunks) = receiving.read(true) else { return false };
            let is_over = loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => message.extend_from_slice(&chunk.bytes),
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            let _ = chunks.finalize();
            if is_over {
                messages.push_back(std::mem::take(message));
            }
            !is_over
        });
    }
}

impl Side {
    /// Lets connection and endpoint tell each other what they have to.
    fn settle(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(answer);
            }
        }
    }

    fn transmit(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        out.append(&mut self.out);
        let Some((_, connection)) = &mut self.connection else { return };
        if connection.poll_timeout().is_some_and(|due| due <= now) {
            connection.handle_timeout(now);
        }
        let mut buffer = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, 1, &mut buffer) {
            out.push(buffer[..transmit.size].to_vec());
            buffer.clear();
        }
        self.settle();
    }
}

impl Peer for Quic {
    fn send(&mut self, _: bool, message: &[u8]) -> bool {
        let Some((_, connection)) = &mut self.ends[0].connection else { return false };
        match self.sends {
            Sends::Datagrams => connection.datagrams().send(message.to_vec().into(), true).is_ok(),
            Sends::Streams => {
                if self.unsent_bytes + message.len() > MEMORY_BYTES {
                    return false;
                }
                let Some(stream) = connection.streams().open(Dir::Uni) else { return false };
                // The first come first: all at once would all be late.
                self.streams -= 1;
                let _ = connection.send_stream(stream).set_priority(self.streams);
                self.unsent_bytes += message.len();
                self.unsent.push_back((stream, message.to_vec()));
                self.push();
                true
            }
        }
    }

    fn turn(&mut self, end: usize, now_ns: u64, out: &mut Vec<Vec<u8>>) {
        self.now = self.at(now_ns);
        if end == 0 {
            self.push();
        }
        let now = self.now;
        self.ends[end].transmit(now, out);
        if end == 0 {
            if let Some((_, connection)) = &mut self.ends[0].connection {
                while let Some(event) = connection.poll() {
                    if let Event::ConnectionLost { reason } = event {
                        eprintln!("quinn: {reason}");
                    }
                }
            }
        }
    }

    fn receive(&mut self, end: usize, now_ns: u64, packet: &[u8]) {
        let now = self.at(now_ns);
        let side = &mut self.ends[end];
        let mut buffer = Vec::new();
        let bytes = BytesMut::from(packet);
        match side.endpoint.handle(now, ADDRESS, None, None, bytes, &mut buffer) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut side.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = side.endpoint.accept(incoming, now, &mut buffer, None);
                side.connection = accepted.ok();
            }
            Some(DatagramEvent::Response(transmit)) => {
                side.out.push(buffer[..transmit.size].to_vec());
            }
            None => {}
        }
        side.settle();
    }

    fn take_message(&mut self) -> Option<Vec<u8>> {
        if self.messages.is_empty() {
            self.pull();
        }
        self.messages.pop_front()
    }
}

fn configs() -> (ClientConfig, ServerConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let versions = &[&rustls::version::TLS13];
    let client = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .expect("it is there")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("it is there")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    let client = QuicClientConfig::try_from(client).expect("it has its cipher");
    let server = QuicServerConfig::try_from(server).expect("it has its cipher");
    let mut transport = TransportConfig::default();
    transport.max_concurrent_uni_streams(1000_u32.into());
    let transport = Arc::new(transport);
    let mut client = ClientConfig::new(Arc::new(client));
    client.transport_config(Arc::clone(&transport));
    let mut server = ServerConfig::with_crypto(Arc::new(server));
    server.transport_config(transport);
    (client, server)
}

/// Both ends have it: there is one way between them.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4433);

/// What waits before streams: as much as the others keep.
const MEMORY_BYTES: usize = 1024 * 1024;

//! The delivery layer, the `renet` crate's channels, and packets without either.

use std::collections::VecDeque;
use std::time::Duration;

use renet::{ChannelConfig, ConnectionConfig, RenetClient, RenetServer, SendType};
use ringgate_core::delivery::{Channel, End, Options};

use crate::runs::Peer;

/// The delivery layer.
pub struct Ours {
    ends: [End; 2],
    messages: VecDeque<Vec<u8>>,
}

impl Ours {
    pub fn new() -> Self {
        // As much as the others.
        let options = Options { reliable_bytes_max: MEMORY_BYTES, ..Options::default() };
        Self { ends: [0; 2].map(|now_ns| End::new(&options, now_ns)), messages: VecDeque::new() }
    }
}

impl Peer for Ours {
    fn send(&mut self, is_reliable: bool, message: &[u8]) -> bool {
        let channel = if is_reliable { Channel::Reliable(0) } else { Channel::Unreliable(0) };
        self.ends[0].send(channel, message, None).is_ok()
    }

    fn turn(&mut self, end: usize, now_ns: u64, out: &mut Vec<Vec<u8>>) {
        let mut packet = [0; 1200];
        while let Some(len) = self.ends[end].poll_transmit(now_ns, &mut packet) {
            out.push(packet[..len].to_vec());
        }
    }

    fn receive(&mut self, end: usize, now_ns: u64, packet: &[u8]) {
        let messages = &mut self.messages;
        let on_message = |_, message: &[u8]| messages.push_back(message.to_vec());
        // What was overtaken is dropped, and says so.
        let _ = self.ends[end].handle_packet(now_ns, packet, on_message);
    }

    fn take_message(&mut self) -> Option<Vec<u8>> {
        self.messages.pop_front()
    }

    fn due_ns(&self) -> u64 {
        self.ends.iter().filter_map(End::poll_timeout).min().unwrap_or(u64::MAX)
    }
}

/// The `renet` crate: a client that sends to its server.
pub struct Renet {
    client: RenetClient,
    server: RenetServer,
    /// When each end was last told the time.
    told_ns: [u64; 2],
    /// What was sent last.
    is_reliable: bool,
}

impl Renet {
    pub fn new() -> Self {
        let channels = vec![
            ChannelConfig {
                channel_id: 0,
                max_memory_usage_bytes: RENET_BYTES,
                send_type: SendType::Unreliable,
            },
            ChannelConfig {
                channel_id: 1,
                max_memory_usage_bytes: RENET_BYTES,
                send_type: SendType::ReliableOrdered { resend_time: Duration::from_millis(300) },
            },
        ];
        let config = ConnectionConfig {
            server_channels_config: channels.clone(),
            client_channels_config: channels,
            ..ConnectionConfig::default()
        };
        let (mut client, mut server) =
            (RenetClient::new(config.clone()), RenetServer::new(config));
        client.set_connected();
        server.add_connection(PLAYER);
        Self { client, server, told_ns: [0; 2], is_reliable: false }
    }
}

impl Peer for Renet {
    fn send(&mut self, is_reliable: bool, message: &[u8]) -> bool {
        let channel = u8::from(is_reliable);
        self.is_reliable = is_reliable;
        let waiting = RENET_BYTES - self.client.channel_available_memory(channel);
        let has_room = waiting + message.len() <= MEMORY_BYTES;
        if has_room {
            self.client.send_message(channel, message.to_vec());
        }
        has_room
    }

    fn turn(&mut self, end: usize, now_ns: u64, out: &mut Vec<Vec<u8>>) {
        let passed = Duration::from_nanos(now_ns - self.told_ns[end]);
        self.told_ns[end] = now_ns;
        if end == 0 {
            self.client.update(passed);
            out.extend(self.client.get_packets_to_send());
        } else {
            self.server.update(passed);
            out.extend(self.server.get_packets_to_send(PLAYER).expect("it is connected"));
        }
    }

    fn receive(&mut self, end: usize, _: u64, packet: &[u8]) {
        if end == 0 {
            self.client.process_packet(packet);
        } else {
            self.server.process_packet_from(packet, PLAYER).expect("it is connected");
        }
    }

    fn take_message(&mut self) -> Option<Vec<u8>> {
        let channel = u8::from(self.is_reliable);
        self.server.receive_message(PLAYER, channel).map(|message| message.to_vec())
    }
}

/// Packets as they are: what the network does to them.
pub struct Bare {
    out: Vec<Vec<u8>>,
    messages: VecDeque<Vec<u8>>,
}

impl Bare {
    pub fn new() -> Self {
        Self { out: Vec::new(), messages: VecDeque::new() }
    }
}

impl Peer for Bare {
    fn send(&mut self, _: bool, message: &[u8]) -> bool {
        self.out.push(message.to_vec());
        true
    }

    fn turn(&mut self, end: usize, _: u64, out: &mut Vec<Vec<u8>>) {
        if end == 0 {
            out.append(&mut self.out);
        }
    }

    fn receive(&mut self, _: usize, _: u64, packet: &[u8]) {
        self.messages.push_back(packet.to_vec());
    }

    fn take_message(&mut self) -> Option<Vec<u8>> {
        self.messages.pop_front()
    }
}

const PLAYER: u64 = 1;

/// What renet's channels hold in each direction, by default.
const RENET_BYTES: usize = 5 * 1024 * 1024;

/// What waits on reliable channels: the same for all.
const MEMORY_BYTES: usize = 1024 * 1024;

//! What a card can do and has switched on, by generic netlink: its queues in use, what its driver
//! does for programs and AF_XDP, and what it does to frames on their way.
//!
//! Kernels differ in what they tell: what is not known is said so, and nothing depends on it but
//! advice.

use std::io::{self, Read};
use std::time::Duration;

use socket2::Socket;

use super::message::{Link, text};
use ringgate_os::netlink::{self, Message, Messages, attributes, word};

/// What is known of a card; `None` where the kernel does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Queues to receive that are in use.
    pub queues: Option<u32>,
    /// As many as there can be.
    pub queues_max: Option<u32>,
    /// The driver runs programs.
    pub runs_programs: Option<bool>,
    /// The driver reads and writes a process's memory itself.
    pub zero_copy: Option<bool>,
    /// With zero-copy it writes checksums of what is sent.
    pub zero_copy_sums: Option<bool>,
    /// What it does to frames, by the kernel's names.
    pub features: Option<Vec<String>>,
}

impl Facts {
    /// Of an interface, by its number.
    pub fn of(interface: u32) -> Self {
        let Ok(mut asking) = Generic::open() else { return Self::default() };
        let mut facts = Self::default();
        if let Ok(body) = asking.ask("ethtool", GET_CHANNELS, &header(interface)) {
            facts.read_channels(&body);
        }
        if let Ok(body) = asking.ask("ethtool", GET_FEATURES, &header(interface)) {
            facts.features = Some(active_features(&body));
        }
        if let Ok(body) = asking.ask("netdev", GET_DEVICE, &attribute(1, &interface.to_ne_bytes()))
        {
            facts.read_device(&body);
        }
        facts
    }

    /// Whether a feature is switched on.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().flatten().any(|it| it == feature)
    }

    /// Whether somebody else writes the checksums of what is sent by this interface. With
    /// zero-copy the driver says so. In copy mode the kernel would ask the card to, but a driver
    /// may look for the place in an IP header that the kernel marks in its own packets and not in
    /// frames: so this is for an interface of the kernel's own, which does what it is asked.
    pub fn writes_sums(&self, link: &Link, is_zero_copy: bool) -> bool {
        if is_zero_copy {
            self.zero_copy_sums == Some(true)
        } else {
            link.kind == "veth" && self.has("tx-checksum-ip-generic")
        }
    }

    fn read_channels(&mut self, body: &[u8]) {
        let of = |wanted: u16| {
            let found = attributes(body, 0).find(|(kind, _)| *kind == wanted);
            found.and_then(|(_, value)| word(value, 0))
        };
        let sum = |one: Option<u32>, other: Option<u32>| match (one, other) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or(0) + other.unwrap_or(0)),
        };
        self.queues = sum(of(RX_COUNT), of(COMBINED_COUNT));
        self.queues_max = sum(of(RX_MAX), of(COMBINED_MAX));
    }

    fn read_device(&mut self, body: &[u8]) {
        let bits = |wanted: u16| {
            let (_, value) = attributes(body, 0).find(|(kind, _)| *kind == wanted)?;
            Some(u64::from_ne_bytes(value.try_into().ok()?))
        };
        if let Some(bits) = bits(XDP_FEATURES) {
            let both = XDP_BASIC | XDP_REDIRECT;
            self.runs_programs = Some(bits & both == both);
            self.zero_copy = Some(bits & XDP_ZERO_COPY != 0);
        }
        // Before 6.8 the kernel has no such attribute.
        self.zero_copy_sums = bits(XSK_FEATURES).map(|bits| bits & XSK_TX_CHECKSUM != 0);
    }
}

/// The names of the bits that are set.
fn active_features(body: &[u8]) -> Vec<String> {
    let within = |bytes: &[u8], wanted: u16| {
        attributes(bytes, 0).find(|(kind, _)| *kind == wanted).map(|(_, value)| value.to_vec())
    };
    let bits = within(body, FEATURES_ACTIVE).and_then(|active| within(&active, BITSET_BITS));
    let bits = bits.unwrap_or_default();
    let names = attributes(&bits, 0).filter_map(|(_, bit)| within(bit, BIT_NAME));
    names.map(|name| text(&name)).collect()
}

/// A connection to the kernel's families of messages.
struct Generic {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Generic {
    fn open() -> io::Result<Self> {
        let socket = netlink::open(libc::NETLINK_GENERIC)?;
        socket.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// What a family answers to a command: the attributes.
    fn ask(&mut self, family: &str, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
        let name = attribute(FAMILY_NAME, format!("{family}\0").as_bytes());
        let said = self.exchange(CONTROL, GET_FAMILY, &name)?;
        let mut said = netlink::attributes(&said, 0);
        let number = said.find(|(kind, _)| *kind == FAMILY_ID);
        let number = number.and_then(|(_, value)| Some(u16::from_ne_bytes(*value.first_chunk()?)));
        self.exchange(number.ok_or(io::ErrorKind::NotFound)?, command, attributes)
    }

    fn exchange(&mut self, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&question(family, command, self.sequence, attributes))?;
        let mut socket = &self.socket;
        loop {
            let len = socket.read(&mut self.buffer)?;
            for Message { kind, sequence, body, .. } in Messages(&self.buffer[..len]) {
                if sequence != self.sequence {
                    continue;
                }
                if kind == family {
                    return Ok(body.get(HEAD_BYTES..).unwrap_or_default().to_vec());
                }
                // An error, or the end of an answer that was none.
                let errno =
                    word(body, 0).map_or(libc::EPROTO, |it| it.cast_signed().wrapping_neg());
                return Err(io::Error::from_raw_os_error(errno));
            }
        }
    }
}

fn question(family: u16, command: u8, sequence: u32, attributes: &[u8]) -> Vec<u8> {
    netlink::question(family, 0, sequence, &[&[command, 1, 0, 0], attributes].concat())
}

/// Which interface is meant, as that family has it: by number, in an attribute of its own.
fn header(interface: u32) -> Vec<u8> {
    attribute(1 | NESTED, &attribute(1, &interface.to_ne_bytes()))
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + value.len();
    let mut bytes = Vec::with_capacity(len.next_multiple_of(4));
    bytes.extend((len as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// As large as an answer about one interface is.
const BUFFER_BYTES: usize = 64 << 10;

/// Command, version and two bytes for nothing.
const HEAD_BYTES: usize = 4;

/// `NLA_F_NESTED`
const NESTED: u16 = 1 << 15;

/// `GENL_ID_CTRL`, and what it is asked.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Of the family `ethtool`.
const GET_FEATURES: u8 = 11;
const FEATURES_ACTIVE: u16 = 4;
const BITSET_BITS: u16 = 3;
const BIT_NAME: u16 = 2;
const GET_CHANNELS: u8 = 17;
const RX_MAX: u16 = 2;
const COMBINED_MAX: u16 = 5;
const RX_COUNT: u16 = 6;
const COMBINED_COUNT: u16 = 9;

/// Of the family `netdev`.
const GET_DEVICE: u8 = 1;
const XDP_FEATURES: u16 = 3;
const XSK_FEATURES: u16 = 6;
const XSK_TX_CHECKSUM: u64 = 1 << 1;
const XDP_BASIC: u64 = 1;
const XDP_REDIRECT: u64 = 1 << 1;
const XDP_ZERO_COPY: u64 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_to_receive_are_those_of_both_kinds() {
        let number = |kind, value: u32| attribute(kind, &value.to_ne_bytes());
        let body = [number(RX_COUNT, 1), number(COMBINED_COUNT, 4), number(COMBINED_MAX, 8)];
        let mut facts = Facts::default();
        facts.read_channels(&body.concat());
        assert_eq!((facts.queues, facts.queues_max), (Some(5), Some(8)));
        let mut none = Facts::default();
        none.read_channels(&[]);
        assert_eq!(none, Facts::default());
    }

    #[test]
    fn features_are_read_by_their_names() {
        let bit = |name: &str| {
            let name = attribute(BIT_NAME, format!("{name}\0").as_bytes());
            attribute(1 | NESTED, &name)
        };
        let bits = attribute(BITSET_BITS | NESTED, &[bit("rx-lro"), bit("rx-gro")].concat());
        let facts = Facts {
            features: Some(active_features(&attribute(FEATURES_ACTIVE | NESTED, &bits))),
            ..Facts::default()
        };
        assert!(facts.has("rx-lro") && facts.has("rx-gro") && !facts.has("rx-vlan-hw-parse"));
    }

    #[test]
    fn what_a_driver_does_for_us_is_said_in_bits() {
        let told = |bits: u64| {
            let mut facts = Facts::default();
            facts.read_device(&attribute(XDP_FEATURES, &bits.to_ne_bytes()));
            (facts.runs_programs, facts.zero_copy)
        };
        assert_eq!(told(0), (Some(false), Some(false)));
        assert_eq!(told(XDP_BASIC | XDP_REDIRECT), (Some(true), Some(false)));
        assert_eq!(told(XDP_BASIC | XDP_REDIRECT | XDP_ZERO_COPY), (Some(true), Some(true)));
    }

    #[test]
    fn who_writes_checksums_depends_on_who_sends() {
        let mut facts = Facts::default();
        let card = Link::default();
        let pair = Link { kind: "veth".into(), ..Link::default() };
        let said = |facts: &Facts| [false, true].map(|it| facts.writes_sums(&card, it));
        assert_eq!(said(&facts), [false, false], "an old kernel");
        for bits in [0, 1, XSK_TX_CHECKSUM] {
            facts.read_device(&attribute(XSK_FEATURES, &bits.to_ne_bytes()));
            assert_eq!(said(&facts), [false, bits == XSK_TX_CHECKSUM]);
        }
        assert!(!facts.writes_sums(&pair, false), "it is switched off");
        facts.features = Some(vec!["tx-checksum-ip-generic".into()]);
        assert!(facts.writes_sums(&pair, false));
        assert_eq!(said(&facts), [false, true], "a card's driver may look elsewhere");
    }

    /// Whatever this kernel tells, it tells it of an interface that every host has.
    #[test]
    fn this_kernel_is_asked_about_loopback() {
        let facts = Facts::of(1);
        if facts == Facts::default() {
            eprintln!("SKIPPED: this kernel tells nothing");
        }
        assert_ne!(facts.zero_copy, Some(true), "loopback has no memory of its own");
    }
}

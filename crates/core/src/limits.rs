//! Bounds that several layers must agree on, and the relations between them.
//!
//! A number that only one file needs lives in that file. What stands here is checked against its
//! neighbours at compile time.

/// Longest payload a netcode packet may carry (the reference's `NETCODE_MAX_PAYLOAD_BYTES`).
pub const PAYLOAD_BYTES_MAX: usize = 1200;

/// Tag of ChaCha20-Poly1305.
pub const TAG_BYTES: usize = 16;

/// Longest datagram we send to or accept from a netcode player: prefix, 8 sequence bytes, payload,
/// tag.
pub const DATAGRAM_BYTES_MAX: usize = 1 + 8 + PAYLOAD_BYTES_MAX + TAG_BYTES;

/// Longest Unreal game packet (its `MAX_PACKET` is 1024; relayed traffic of other builds may fill
/// an Ethernet frame).
pub const UNREAL_BYTES_MAX: usize = 1500;

/// Longest datagram of a plain listener: what an Ethernet frame holds of UDP over IPv4.
pub const PLAIN_BYTES_MAX: usize = 1472;

/// The furthest jump of an Unreal packet's number that there is: 14 bits, and what lies half of
/// them ahead is old.
pub const UNREAL_GAP_MAX: u16 = (1 << 13) - 1;

/// Bytes of one small receive slot that remain for the datagram itself. Anything longer arrives
/// truncated and is dropped.
pub const RX_DATAGRAM_BYTES: usize = 1664;

/// One outgoing player datagram, with room for the longest of either protocol. An odd number of
/// cache lines, so that slots spread over all sets of a cache.
pub const TX_SLOT_BYTES: usize = 1600;

/// Longest datagram on a bundle link, in both directions. 16 KiB hold 13 full-size payloads or 140
/// of 100 bytes; larger bundles gain less than 2 % (docs/BENCHMARKS.md, links).
pub const BUNDLE_BYTES_MAX: usize = 16 * 1024;

/// Workers one daemon may run. Bounds the bits of a worker's index in sequence numbers and session
/// ids.
pub const WORKERS_MAX: usize = 128;

/// Listeners one daemon may have.
pub const LISTENERS_MAX: usize = 256;

/// Backends one daemon may have, those that a reload has retired and that still have players among
/// them.
pub const BACKENDS_MAX: usize = 4096;

/// Other gateways of a cluster with which one daemon exchanges players' datagrams. Each has a bit
/// in a word.
pub const MEMBERS_MAX: usize = 64;

/// Sessions that one daemon may have, over all its listeners. Every worker sets address space aside
/// for all of them, and each needs a loopback address of its own, of which a worker has 16.7
/// million.
pub const SESSIONS_MAX: usize = 10_000_000;

/// Addresses that one listener may bind.
pub const BINDS_MAX: usize = 256;

/// Players whom one backend is offered at a time to be moved: some are left for its own game.
pub const OFFERS_MAX: usize = 48;

const _: () = assert!(SESSIONS_MAX < 0x00fe_ffff);
const _: () = assert!(DATAGRAM_BYTES_MAX == 1225);
const _: () =
    assert!(DATAGRAM_BYTES_MAX <= RX_DATAGRAM_BYTES && UNREAL_BYTES_MAX < RX_DATAGRAM_BYTES);
const _: () = assert!(PLAIN_BYTES_MAX <= UNREAL_BYTES_MAX);
const _: () = assert!(DATAGRAM_BYTES_MAX <= TX_SLOT_BYTES && UNREAL_BYTES_MAX <= TX_SLOT_BYTES);

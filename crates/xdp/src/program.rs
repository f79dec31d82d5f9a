//! The program that the kernel runs for every frame of an interface: what is a datagram for one of
//! our addresses, in its plainest form, goes to the queue's AF_XDP socket, everything else to the
//! kernel.
//!
//! What is odd is the kernel's business: fragments, IP options, extension headers, broadcasts,
//! sources that no host can have, frames for another host. The kernel puts it together or throws it
//! away as for every other program, and what is for our port arrives at the ordinary socket. So
//! does everything where a queue has no AF_XDP socket, or not any more.
//!
//! In front of a frame of ours it leaves a stamp that says when it came, as the kernel does for
//! sockets that ask for it: cards with a clock of their own are few, and none of them is asked.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::frame::{
    self, ETHERNET_BYTES, KIND_V4, KIND_V6, Mac, TAG_BYTES, TAGGED, UDP_BYTES, V4_BYTES, V4_PLAIN,
    V6_BYTES, VLAN_MASK,
};
use ringgate_batch::LocalIp;
pub use ringgate_os::bpf::Attached;
use ringgate_os::bpf::asm::Register::{self, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use ringgate_os::bpf::asm::{Assembler, If, Instruction, Size};
use ringgate_os::bpf::{self, Loaded, Map, MapKind, ProgramKind, Words};
use ringgate_os::patience::while_busy;

/// Which frames are ours: those for this address and port, in this VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ours {
    /// As a frame's tag says; 0 for none.
    pub vlan: u16,
    /// One address of this host.
    pub local: LocalIp,
    /// The port.
    pub port: u16,
}

/// Where in the kernel the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the interface's driver, before there is anything of the kernel's network stack.
    Driver,
    /// In front of the network stack, for interfaces whose drivers run no programs: slower.
    Generic,
}

/// The program, loaded, with what it looks up.
#[derive(Debug)]
pub struct Program {
    /// `None` where another process has loaded it.
    loaded: Option<Loaded>,
    /// Ours, as keys.
    ours: Map,
    /// AF_XDP sockets by their queue.
    sockets: Map,
    counted: Map,
    counters: Words,
}

/// What the program has said to the frames of one queue that were ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// To the queue's AF_XDP socket.
    pub taken: u64,
    /// To the kernel, because the queue has no AF_XDP socket.
    pub unserved: u64,
}

impl Program {
    /// Loads it for an interface with this address and so many queues.
    pub fn load(mac: Mac, queues: u32) -> io::Result<Self> {
        Self::load_with(mac, queues, Verdict::Pass)
    }

    /// The same, with what it says to a frame of ours where its queue has no socket.
    fn load_with(mac: Mac, queues: u32, otherwise: Verdict) -> io::Result<Self> {
        let ours = Map::new(MapKind::Hash { key_bytes: KEY_BYTES }, OURS_MAX)?;
        let sockets = Map::new(MapKind::Sockets, queues)?;
        let counted = Map::new(MapKind::Words, 2 * queues)?;
        let counters = Words::of(&counted, 2 * queues)?;
        let maps = Maps { ours: &ours, sockets: &sockets, counted: &counted };
        let loaded = Loaded::new(ProgramKind::Frames, &instructions(mac, &maps, otherwise))?;
        Ok(Self { loaded: Some(loaded), ours, sockets, counted, counters })
    }

    /// One that another process has loaded, for so many queues, by what it has
    /// [given](Self::given).
    pub fn adopt([ours, sockets, counted]: [OwnedFd; 3], queues: u32) -> io::Result<Self> {
        let ours = Map::adopt(ours, KEY_BYTES as usize);
        let (sockets, counted) = (Map::adopt(sockets, 4), Map::adopt(counted, 4));
        let counters = Words::of(&counted, 2 * queues)?;
        Ok(Self { loaded: None, ours, sockets, counted, counters })
    }

    /// What another process needs to go on with it.
    pub fn given(&self) -> io::Result<[OwnedFd; 3]> {
        let second = |map: &Map| map.as_fd().try_clone_to_owned();
        Ok([second(&self.ours)?, second(&self.sockets)?, second(&self.counted)?])
    }

    /// All frames that are ours.
    pub fn all(&self) -> io::Result<Vec<Ours>> {
        let keys = self.ours.keys()?;
        Ok(keys.iter().filter_map(|key| ours_of(key)).collect())
    }

    /// Frames for this address are ours from now on.
    pub fn add(&self, ours: &Ours) -> io::Result<()> {
        self.ours.set(&key_of(ours), 1)
    }

    /// And these no longer. Another process that has the program may have said so before.
    pub fn remove(&self, ours: &Ours) -> io::Result<()> {
        match self.ours.remove(&key_of(ours)) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Frames of ours that come in on this queue go to this socket from now on.
    pub fn give_queue(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(&queue.to_ne_bytes(), socket.as_raw_fd().cast_unsigned())
    }

    /// What it has said to the frames of a queue, one of those that it was loaded for.
    pub fn counts(&self, queue: u32) -> Counts {
        let [taken, unserved] = [0, 1].map(|which| {
            self.counters.as_ref()[(2 * queue + which) as usize].load(Ordering::Relaxed)
        });
        Counts { taken, unserved }
    }

    /// Runs it for every frame that comes in on an interface, until what is returned is dropped or
    /// this process ends.
    pub fn attach(&self, interface: u32, place: Place) -> io::Result<Attached> {
        let loaded = self.loaded.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        while_busy(|| Attached::new(loaded, interface, place == Place::Generic))
    }

    /// What it says to a frame.
    #[cfg(test)]
    fn judge(&self, frame: &[u8]) -> io::Result<u32> {
        self.loaded.as_ref().expect("loaded here").test(frame)
    }
}

/// Takes a program, by the kernel's number, off its interface, as any process with the right may:
/// `NotFound` where it is on none.
pub fn take_off(program: u32) -> io::Result<()> {
    bpf::take_off(program)
}

/// What a program says to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Verdict {
    /// The kernel goes on with it.
    Pass = 2,
    /// Back to where it came from: what tests tell a frame of ours by.
    #[cfg(test)]
    SendBack = 3,
}

/// What is looked up, as bytes: VLAN, port, address. All as they stand in a frame, with IPv4
/// addresses as IPv6 writes them.
fn key_of(ours: &Ours) -> [u8; KEY_BYTES as usize] {
    let mut key = [0; KEY_BYTES as usize];
    key[..2].copy_from_slice(&ours.vlan.to_be_bytes());
    key[2..4].copy_from_slice(&ours.port.to_be_bytes());
    key[4..].copy_from_slice(ours.local.ip_bytes());
    key
}

/// A key again.
fn ours_of(key: &[u8]) -> Option<Ours> {
    let (head, address) = key.split_first_chunk::<4>()?;
    let address = <[u8; 16]>::try_from(address).ok()?;
    let [vlan, port] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_be_bytes);
    Some(Ours { vlan, local: LocalIp::v6(address, 0), port })
}

/// What the program looks things up in.
struct Maps<'a> {
    ours: &'a Map,
    sockets: &'a Map,
    counted: &'a Map,
}

/// The program. `R6` is the context, `R7` and `R8` are where the frame begins and ends, `R9` is
/// where the IP header begins; `R2` and `R3` are for numbers that are looked at.
fn instructions(mac: Mac, maps: &Maps<'_>, otherwise: Verdict) -> Vec<Instruction> {
    let mut it = Assembler::default();
    it.copy(R6, R1);
    it.load(Size::Word, R7, R6, CONTEXT_BEGIN);
    it.load(Size::Word, R8, R6, CONTEXT_END);
    ethernet(&mut it, mac);
    v4(&mut it);
    v6(&mut it);

    // R0 = whether it is ours
    it.label("look up");
    it.load_map(R1, maps.ours.as_fd().as_raw_fd());
    it.copy(R2, R10);
    it.add(R2, KEY.into());
    it.call(MAP_LOOKUP);
    it.jump_if(If::Equal, R0, 0, "pass");
    stamp(&mut it);
    // To its queue's socket; where there is none, R3 is the verdict.
    it.load_map(R1, maps.sockets.as_fd().as_raw_fd());
    it.load(Size::Word, R2, R6, CONTEXT_QUEUE);
    it.set(R3, otherwise as i32);
    it.call(REDIRECT);
    count(&mut it, maps.counted);
    it.exit();

    it.label("pass");
    it.set(R0, Verdict::Pass as i32);
    it.exit();
    it.finish()
}

/// Puts a stamp in front of the frame, where the driver leaves room for one. No pointer into the
/// frame holds any more.
fn stamp(it: &mut Assembler) {
    it.copy(R1, R6);
    it.set(R2, -(STAMP_BYTES as i32));
    it.call(ADJUST_META);
    it.jump_if(If::Differs, R0, 0, "stamped");
    it.call(TIME);
    it.load(Size::Word, R1, R6, CONTEXT_META);
    it.load(Size::Word, R2, R6, CONTEXT_BEGIN);
    it.copy(R3, R1);
    it.add(R3, STAMP_BYTES as i32);
    it.jump_if_register(If::Above, R3, R2, "stamped");
    it.store(Size::Double, R1, 0, R0);
    it.store_number(Size::Double, R1, 8, STAMP_MARK);
    it.label("stamped");
}

/// When the program saw a frame, on the host's monotonic clock, by what lies in front of it. `None`
/// where there is no stamp: not every driver leaves room for one.
#[inline]
pub fn stamp_in(front: &[u8]) -> Option<u64> {
    let (_, stamp) = front.split_last_chunk::<STAMP_BYTES>()?;
    let (time, mark) = stamp.split_first_chunk::<8>()?;
    let is_one = *mark == i64::from(STAMP_MARK).to_ne_bytes();
    is_one.then(|| u64::from_ne_bytes(*time))
}

/// Counts what is said to a frame of ours (`R0`, which stays) for its queue: two counters each, for
/// what goes to its socket and for what does not.
fn count(it: &mut Assembler, counted: &Map) {
    it.copy(R8, R0);
    it.load(Size::Word, R2, R6, CONTEXT_QUEUE);
    it.add_register(R2, R2);
    it.jump_if(If::Equal, R8, REDIRECTED, "which is known");
    it.add(R2, 1);
    it.label("which is known");
    it.store(Size::Word, R10, KEY, R2);
    it.load_map(R1, counted.as_fd().as_raw_fd());
    it.copy(R2, R10);
    it.add(R2, KEY.into());
    it.call(MAP_LOOKUP);
    it.jump_if(If::Equal, R0, 0, "counted");
    it.set(R1, 1);
    it.add_at(R0, 0, R1);
    it.label("counted");
    it.copy(R0, R8);
}

/// Reads the Ethernet header and a tag, writes the VLAN into the key, and goes where the packet is
/// looked at.
fn ethernet(it: &mut Assembler, mac: Mac) {
    must_hold(it, R7, ETHERNET_BYTES);
    // For us, and not for everybody: two halves of the address, as they lie in memory.
    let [m0, m1, m2, m3, m4, m5] = mac;
    it.load(Size::Word, R2, R7, 0);
    it.jump_if_word(If::Differs, R2, u32::from_ne_bytes([m0, m1, m2, m3]), "pass");
    it.load(Size::Half, R2, R7, 4);
    it.jump_if(If::Differs, R2, in_memory([m4, m5]), "pass");
    // R4 = what is in the frame, R5 = the VLAN
    it.load(Size::Half, R4, R7, 12);
    it.set(R5, 0);
    it.copy(R9, R7);
    it.add(R9, ETHERNET_BYTES as i32);
    it.jump_if(If::Differs, R4, in_memory(TAGGED), "untagged");
    must_hold(it, R9, TAG_BYTES);
    it.load(Size::Half, R5, R9, 0);
    it.and(R5, in_memory(VLAN_MASK.to_be_bytes()));
    it.load(Size::Half, R4, R9, 2);
    it.add(R9, TAG_BYTES as i32);
    it.label("untagged");
    it.store(Size::Half, R10, KEY, R5);
    it.jump_if(If::Equal, R4, in_memory(KIND_V4), "v4");
    it.jump_if(If::Equal, R4, in_memory(KIND_V6), "v6");
    it.jump("pass");
}

/// An IPv4 packet: its address and port into the key.
fn v4(it: &mut Assembler) {
    it.label("v4");
    must_hold(it, R9, V4_BYTES + UDP_BYTES);
    // No options.
    it.load(Size::Byte, R2, R9, 0);
    it.jump_if(If::Differs, R2, V4_PLAIN.into(), "pass");
    // No fragment.
    it.load(Size::Half, R2, R9, 6);
    it.and(R2, in_memory((frame::MORE_FRAGMENTS | frame::OFFSET_MASK).to_be_bytes()));
    it.jump_if(If::Differs, R2, 0, "pass");
    it.load(Size::Byte, R2, R9, 9);
    it.jump_if(If::Differs, R2, frame::UDP.into(), "pass");
    // From a host: not 0.0.0.0/8, not loopback, not multicast and what lies behind.
    it.load(Size::Byte, R2, R9, 12);
    it.jump_if(If::Equal, R2, 0, "pass");
    it.jump_if(If::Equal, R2, 127, "pass");
    it.jump_if(If::Above, R2, 223, "pass");
    // R2 = the packet's length: that of the datagram with its headers, and no more than the frame.
    it.load(Size::Half, R2, R9, 2);
    it.from_network(R2);
    it.load(Size::Half, R3, R9, 24);
    it.from_network(R3);
    must_be_datagram(it, V4_BYTES);
    // ::ffff:a.b.c.d
    it.store_number(Size::Double, R10, KEY_ADDRESS, 0);
    it.store_number(Size::Word, R10, KEY_ADDRESS + 8, i32::from_ne_bytes([0, 0, 0xff, 0xff]));
    it.load(Size::Word, R2, R9, 16);
    it.store(Size::Word, R10, KEY_ADDRESS + 12, R2);
    it.load(Size::Half, R2, R9, 22);
    it.store(Size::Half, R10, KEY_PORT, R2);
    it.jump("look up");
}

/// An IPv6 packet: its address and port into the key.
fn v6(it: &mut Assembler) {
    it.label("v6");
    must_hold(it, R9, V6_BYTES + UDP_BYTES);
    it.load(Size::Byte, R2, R9, 0);
    it.and(R2, 0xf0);
    it.jump_if(If::Differs, R2, 0x60, "pass");
    // No extension header.
    it.load(Size::Byte, R2, R9, 6);
    it.jump_if(If::Differs, R2, frame::UDP.into(), "pass");
    // From a host: not multicast, and not ::/64, where the unspecified address, loopback and IPv4
    // addresses in the guise of IPv6 lie.
    it.load(Size::Byte, R2, R9, 8);
    it.jump_if(If::Equal, R2, 0xff, "pass");
    it.load(Size::Double, R2, R9, 8);
    it.jump_if(If::Equal, R2, 0, "pass");
    // Nor from an address that is one on its interface only.
    it.load(Size::Half, R2, R9, 8);
    it.from_network(R2);
    it.and(R2, 0xffc0);
    it.jump_if(If::Equal, R2, 0xfe80, "pass");
    // It must have a checksum.
    it.load(Size::Half, R2, R9, 46);
    it.jump_if(If::Equal, R2, 0, "pass");
    // R2 = the packet's length
    it.load(Size::Half, R2, R9, 4);
    it.from_network(R2);
    it.add(R2, V6_BYTES as i32);
    it.load(Size::Half, R3, R9, 44);
    it.from_network(R3);
    must_be_datagram(it, V6_BYTES);
    for half in [0, 8] {
        it.load(Size::Double, R2, R9, 24 + half);
        it.store(Size::Double, R10, KEY_ADDRESS + half, R2);
    }
    it.load(Size::Half, R2, R9, 42);
    it.store(Size::Half, R10, KEY_PORT, R2);
    it.jump("look up");
}

/// Passes frames that end within so many bytes from what a register points to.
fn must_hold(it: &mut Assembler, from: Register, bytes: usize) {
    it.copy(R2, from);
    it.add(R2, bytes as i32);
    it.jump_if_register(If::Above, R2, R8, "pass");
}

/// Passes packets of `R2` bytes that are not an IP header and a UDP packet of `R3` bytes, or that
/// the frame does not hold.
fn must_be_datagram(it: &mut Assembler, header_bytes: usize) {
    it.jump_if(If::Below, R3, UDP_BYTES as i32, "pass");
    it.add(R3, header_bytes as i32);
    it.jump_if_register(If::Differs, R2, R3, "pass");
    it.copy(R1, R9);
    it.add_register(R1, R2);
    it.jump_if_register(If::Above, R1, R8, "pass");
}

/// Two bytes of a frame as a register holds them after they were loaded.
fn in_memory(bytes: [u8; 2]) -> i32 {
    u16::from_ne_bytes(bytes).into()
}

/// `struct xdp_md`.
const CONTEXT_BEGIN: i16 = 0;
const CONTEXT_END: i16 = 4;
const CONTEXT_META: i16 = 8;
const CONTEXT_QUEUE: i16 = 16;

/// Where the key lies on the stack: its address is aligned as the verifier wants it.
const KEY: i16 = -(KEY_BYTES as i16);
const KEY_PORT: i16 = KEY + 2;
const KEY_ADDRESS: i16 = KEY + 4;
const _: () = assert!(KEY_ADDRESS % 8 == 0);
const KEY_BYTES: u32 = 20;

/// Addresses, each in every VLAN and with every port: more than any host has.
pub(crate) const OURS_MAX: u32 = 4096;

/// A time in nanoseconds, and a mark that nothing else leaves there.
const STAMP_BYTES: usize = 16;
const STAMP_MARK: i32 = 0x7269_6e67;

/// `BPF_FUNC_xdp_adjust_meta`.
const ADJUST_META: i32 = 54;

/// `BPF_FUNC_ktime_get_ns`.
const TIME: i32 = 5;

/// `BPF_FUNC_map_lookup_elem`.
const MAP_LOOKUP: i32 = 1;

/// `XDP_REDIRECT`: what `BPF_FUNC_redirect_map` says where there is a socket.
const REDIRECTED: i32 = 4;

/// `BPF_FUNC_redirect_map`.
const REDIRECT: i32 = 51;

#[cfg(test)]
mod tests;

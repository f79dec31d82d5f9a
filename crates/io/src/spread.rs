//! The program that the kernel runs for each datagram to sockets that share a port: which worker's
//! socket it goes to stands in a table of buckets ([`ringgate_batch::spread`]).
//!
//! Where anything is missing (another protocol, a bucket without a worker, a socket that has
//! closed) it says nothing, and the kernel chooses among all sockets, as it does without it. To
//! load it takes a right that the process gives up, so some are loaded for listeners that come
//! later; to attach one takes none, nor does the table, which is memory of the process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use ringgate_batch::spread::{BUCKET_SHIFT, SPREAD_WORDS, Spread, SpreadKey, WORKER_BITS};
use ringgate_os::bpf::asm::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R10};
use ringgate_os::bpf::asm::{Assembler, If, Instruction, Size};
use ringgate_os::bpf::{Loaded, Map, MapKind, ProgramKind, Words};
use ringgate_os::option;
use ringgate_os::patience::while_busy;

/// Programs, one for each group of sockets, with what they look up.
#[derive(Debug)]
pub struct Spreader {
    table: Map,
    /// The sockets of all groups, those of one together, by worker.
    sockets: Map,
    /// By the number of the group; whether sockets go by it.
    groups: Vec<(Loaded, bool)>,
    workers: u16,
}

impl Spreader {
    /// Loads programs for so many groups of so many sockets. Returns the table, too.
    pub fn new(key: SpreadKey, workers: u16, groups: u16) -> io::Result<(Self, Spread)> {
        let table = Map::new(MapKind::Words, SPREAD_WORDS as u32)?;
        let sockets = Map::new(MapKind::PortSockets, u32::from(workers) * u32::from(groups))?;
        let words = Words::of(&table, SPREAD_WORDS as u32)?;
        let load = |group: u16| {
            let first = u32::from(group) * u32::from(workers);
            let code = instructions(&key, (&table, &sockets), (first, workers));
            Loaded::new(ProgramKind::PortSockets, &code).map(|program| (program, false))
        };
        let groups = (0..groups).map(load).collect::<io::Result<_>>()?;
        let spread = Spread::new(Box::new(words), key, workers);
        Ok((Self { table, sockets, groups, workers }, spread))
    }

    /// What another process has loaded, and whether sockets go by each.
    pub fn adopt(fds: Vec<OwnedFd>, in_use: &[bool]) -> io::Result<(Self, Spread)> {
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "it is no table of buckets");
        let mut fds = fds.into_iter();
        let mut map = || Some(Map::adopt(fds.next()?, size_of::<u32>()));
        let (table, sockets) = map().zip(map()).ok_or_else(odd)?;
        let groups: Vec<_> = fds.map(Loaded::adopt).zip(in_use.iter().copied()).collect();
        let words = Words::of(&table, SPREAD_WORDS as u32)?;
        let spread = Spread::adopt(Box::new(words)).ok_or_else(odd)?;
        let workers = spread.workers();
        Ok((Self { table, sockets, groups, workers }, spread))
    }

    /// What another process needs to go on with it, as [`adopt`](Self::adopt) takes it.
    pub fn given(&self) -> io::Result<Vec<OwnedFd>> {
        let programs = self.groups.iter().map(|(program, _)| program.as_fd());
        let all = [self.table.as_fd(), self.sockets.as_fd()].into_iter().chain(programs);
        all.map(|fd| fd.try_clone_to_owned()).collect()
    }

    /// Notes the sockets of an address, in the order of their workers, for a group that has none.
    /// Nothing is changed for them yet. Returns the number of the group.
    ///
    /// # Errors
    /// Where no program is left, or the sockets go by a table of another process: `EBUSY`. Where
    /// that is gone, its table is taken apart a moment later, which may be waited for.
    pub fn note(&mut self, sockets: &[BorrowedFd<'_>], waits: bool) -> io::Result<usize> {
        if sockets.len() != usize::from(self.workers) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let group = self.groups.iter().position(|(_, in_use)| !in_use).ok_or_else(|| {
            io::Error::new(io::ErrorKind::QuotaExceeded, "no program is left that was loaded")
        })?;
        let first = group as u32 * u32::from(self.workers);
        for (number, socket) in (first..).zip(sockets) {
            let fd = socket.as_raw_fd().cast_unsigned();
            let set = || self.sockets.set(&number.to_ne_bytes(), fd);
            if waits { while_busy(set) } else { set() }?;
        }
        self.groups[group].1 = true;
        Ok(group)
    }

    /// Has the kernel go by the table for the sockets of a group, of which this is one.
    pub fn attach(&self, group: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
        let program = self.groups[group].0.as_fd().as_raw_fd();
        option::set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF, program)
    }

    /// The sockets of a group are closed, or go by it no more: the next may have its program.
    pub fn release(&mut self, group: usize) {
        if let Some((_, in_use)) = self.groups.get_mut(group) {
            *in_use = false;
        }
    }

    /// How many groups there may be.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }
}

/// The kernel chooses again among the sockets that share a port with this one, if a program has
/// done that.
pub fn detach(socket: BorrowedFd<'_>) {
    let _ = option::set(socket, libc::SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0);
}

fn instructions(
    key: &SpreadKey,
    (table, sockets): (&Map, &Map),
    (first, workers): (u32, u16),
) -> Vec<Instruction> {
    let mut it = Assembler::default();
    it.copy(R6, R1);
    // What lies there begins with the header of UDP.
    it.load(Size::Double, R2, R1, AT_DATA);
    it.load(Size::Double, R3, R1, AT_DATA_END);
    it.copy(R4, R2);
    it.add(R4, UDP_BYTES);
    it.jump_if_register(If::Above, R4, R3, "pass");
    it.load(Size::Half, R7, R2, 0);
    it.set_long(R8, key.port);
    it.multiply_register(R7, R8);
    it.set_long(R8, key.start);
    it.add_register(R7, R8);
    it.load(Size::Word, R2, R6, AT_PROTOCOL);
    it.jump_if(If::Equal, R2, u16::to_be(V4).into(), "v4");
    it.jump_if(If::Equal, R2, u16::to_be(V6).into(), "v6");
    it.jump("pass");
    it.label("v4");
    add_address(&mut it, V4_SOURCE, &key.words[..1]);
    it.jump("bucket");
    it.label("v6");
    add_address(&mut it, V6_SOURCE, &key.words);
    it.label("bucket");
    it.shift_right(R7, BUCKET_SHIFT as i32);
    it.store(Size::Word, R10, -4, R7);
    it.load_map(R1, table.as_fd().as_raw_fd());
    it.copy(R2, R10);
    it.add(R2, -4);
    it.call(LOOK_UP);
    it.jump_if(If::Equal, R0, 0, "pass");
    it.load(Size::Double, R1, R0, 0);
    it.and(R1, (1 << WORKER_BITS) - 1);
    it.jump_if(If::Above, R1, i32::from(workers) - 1, "pass");
    it.add(R1, first as i32);
    it.store(Size::Word, R10, -4, R1);
    it.copy(R1, R6);
    it.load_map(R2, sockets.as_fd().as_raw_fd());
    it.copy(R3, R10);
    it.add(R3, -4);
    it.set(R4, 0);
    it.call(SELECT);
    it.label("pass");
    it.set(R0, PASS);
    it.exit();
    it.finish()
}

/// Adds the words of the source's address, each times its key, to the sum (`R7`).
fn add_address(it: &mut Assembler, at: i32, keys: &[u64]) {
    it.copy(R1, R6);
    it.set(R2, at);
    it.copy(R3, R10);
    it.add(R3, ADDRESS_AT.into());
    it.set(R4, 4 * keys.len() as i32);
    it.set(R5, FROM_NETWORK_HEADER);
    it.call(LOAD_BYTES);
    it.jump_if(If::Differs, R0, 0, "pass");
    for (word, key) in (0..).zip(keys) {
        it.load(Size::Word, R1, R10, ADDRESS_AT + 4 * word);
        it.set_long(R2, *key);
        it.multiply_register(R1, R2);
        it.add_register(R7, R1);
    }
}

/// Where in the stack an address is looked at.
const ADDRESS_AT: i16 = -24;

/// Where the parts of `struct sk_reuseport_md` lie.
const AT_DATA: i16 = 0;
const AT_DATA_END: i16 = 8;
const AT_PROTOCOL: i16 = 20;

const UDP_BYTES: i32 = 8;

/// Where the source lies in the header of its protocol.
const V4_SOURCE: i32 = 12;
const V6_SOURCE: i32 = 8;

/// Protocols by their numbers on the wire.
const V4: u16 = 0x0800;
const V6: u16 = 0x86dd;

/// `bpf_map_lookup_elem`, `bpf_skb_load_bytes_relative` and `bpf_sk_select_reuseport`.
const LOOK_UP: i32 = 1;
const LOAD_BYTES: i32 = 68;
const SELECT: i32 = 82;

/// `BPF_HDR_START_NET`
const FROM_NETWORK_HEADER: i32 = 1;

/// `SK_PASS`: to the socket that was selected, or to one of the kernel's choice.
const PASS: i32 = 1;

const SO_DETACH_REUSEPORT_BPF: i32 = 68;

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_batch::Endpoint;
    use ringgate_batch::spread::{Bucket, KERNEL};
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsFd;

    use crate::socket::{self, UdpOptions};

    const KEY: SpreadKey = SpreadKey::new([
        0x0123_4567_89ab_cdef,
        0xfedc_ba98_7654_3211,
        0x0f1e_2d3c_4b5a_6979,
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
    ]);

    /// Programs and their table. `None`, said aloud, where none can be loaded.
    fn spreader(workers: u16, groups: u16) -> Option<(Spreader, Spread)> {
        match Spreader::new(KEY, workers, groups) {
            Ok(loaded) => Some(loaded),
            Err(why) => {
                let is_required = std::env::var_os("REQUIRE_XDP").is_some_and(|it| it == "1");
                assert!(!is_required, "REQUIRE_XDP=1, but: {why}");
                eprintln!("SKIPPED: {why}");
                None
            }
        }
    }

    /// So many sockets at one address.
    fn sharing(address: &str, count: usize) -> Vec<UdpSocket> {
        let options = UdpOptions { reuse_port: true, ..UdpOptions::default() };
        let mut address: SocketAddr = address.parse().expect("an address");
        let open = |_| {
            let opened = socket::player(address, &options).expect("a free port");
            address = opened.local;
            UdpSocket::from(opened.fd)
        };
        (0..count).map(open).collect()
    }

    fn fds(sockets: &[UdpSocket]) -> Vec<BorrowedFd<'_>> {
        sockets.iter().map(AsFd::as_fd).collect()
    }

    fn attach(to: &mut Spreader, sockets: &[UdpSocket]) -> io::Result<usize> {
        let group = to.note(&fds(sockets), true)?;
        to.attach(group, sockets[0].as_fd()).map(|()| group)
    }

    /// A player that has sent something to them, with its bucket.
    fn player(to: &[UdpSocket], key: &SpreadKey) -> (UdpSocket, usize) {
        let to = to[0].local_addr().expect("bound");
        let from = SocketAddr::new(to.ip(), 0);
        let player = UdpSocket::bind(from).expect("loopback");
        player.connect(to).expect("loopback");
        let bucket = key.bucket(&Endpoint::from(player.local_addr().expect("bound")));
        (player, bucket)
    }

    /// The socket that gets what a player sends now.
    fn receiver(player: &UdpSocket, of: &[UdpSocket]) -> usize {
        player.send(b"x").expect("loopback");
        let mut byte = [0];
        let is_it = |it: &UdpSocket| it.recv(&mut byte).is_ok();
        of.iter().map(is_it).position(|is_it| is_it).expect("loopback loses nothing")
    }

    #[test]
    fn each_datagram_goes_to_the_worker_of_its_bucket() {
        let Some((mut spreader, spread)) = spreader(3, 2) else { return };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let sockets = sharing(address, 3);
            attach(&mut spreader, &sockets).expect("one is left");
            for _ in 0..40 {
                let (player, bucket) = player(&sockets, spread.key());
                for worker in [2, 0, 1] {
                    spread.set(bucket, Bucket { worker, sessions: 1 });
                    assert_eq!(receiver(&player, &sockets), usize::from(worker), "{player:?}");
                }
                spread.set(bucket, Bucket { worker: KERNEL, sessions: 1 });
                let chosen = receiver(&player, &sockets);
                assert_eq!(receiver(&player, &sockets), chosen, "always the same");
            }
        }
        let more = sharing("127.0.0.1:0", 3);
        let why = attach(&mut spreader, &more).expect_err("both have sockets");
        assert_eq!(why.kind(), io::ErrorKind::QuotaExceeded);
        spreader.release(0);
        assert_eq!(attach(&mut spreader, &more).ok(), Some(0));
    }

    #[test]
    fn another_process_goes_on_with_it_and_no_other_table_can_have_its_sockets() {
        let Some((mut first, spread)) = spreader(2, 1) else { return };
        let sockets = sharing("127.0.0.1:0", 2);
        attach(&mut first, &sockets).expect("one is left");
        let given = first.given().expect("descriptors");
        drop((first, spread));
        let (mut next, spread) = Spreader::adopt(given, &[true]).expect("it says what it is");
        assert_eq!((next.groups(), spread.workers(), *spread.key()), (1, 2, KEY));
        let (player, bucket) = player(&sockets, spread.key());
        for worker in [1, 0] {
            spread.set(bucket, Bucket { worker, sessions: 1 });
            assert_eq!(receiver(&player, &sockets), usize::from(worker));
        }
        assert!(attach(&mut next, &sockets).is_err(), "it is in use");
        let Some((mut other, _)) = spreader(2, 1) else { return };
        let why = attach(&mut other, &sockets).expect_err("they are in the first one's");
        assert_eq!(why.raw_os_error(), Some(libc::EBUSY));
        // The kernel takes the first one apart when nothing of it is in use any more.
        detach(sockets[0].as_fd());
        drop((next, spread));
        attach(&mut other, &sockets).expect("they are in none");
    }

    #[test]
    fn a_socket_that_is_gone_leaves_the_choice_to_the_kernel() {
        let Some((mut spreader, spread)) = spreader(2, 1) else { return };
        let mut sockets = sharing("127.0.0.1:0", 2);
        attach(&mut spreader, &sockets).expect("one is left");
        drop(sockets.pop());
        let (player, bucket) = player(&sockets, spread.key());
        spread.set(bucket, Bucket { worker: 1, sessions: 1 });
        assert_eq!(receiver(&player, &sockets), 0);
    }
}

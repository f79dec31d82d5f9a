//! What a stream leaves in memory that another process goes on with: none of its keys.
//!
//! The test reads all of this process's memory that may be written to.

use std::fs::File;
use std::os::unix::fs::FileExt;

use ringgate_core::carry::{Carry, Maps, Reader, Writer};
use zeroize::Zeroizing;

use super::super::fixtures::{AGENT, GATEWAY};
use super::super::{State, Stream};
use super::{is_possible, meet};

/// A key that is nowhere in memory as it is.
pub(crate) struct Masked([u8; 32]);

const MASK: u8 = 0x5a;

impl Masked {
    pub(crate) fn of(key: &[u8; 32]) -> Self {
        // Without a copy of the key itself.
        let mut masked = [MASK; 32];
        masked.iter_mut().zip(key).for_each(|(masked, byte)| *masked ^= byte);
        Self(masked)
    }

    /// Whether it begins these bytes.
    fn begins(&self, bytes: &[u8]) -> bool {
        bytes.len() >= 32 && bytes.iter().zip(&self.0).all(|(byte, masked)| byte ^ MASK == *masked)
    }
}

fn keys(stream: &Stream) -> [Masked; 2] {
    let State::Bare(bare) = &stream.state else { panic!("it is portable") };
    bare.keys().map(Masked::of)
}

/// How often each is found.
pub(crate) fn search(keys: &[Masked]) -> Vec<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
    let memory = File::open("/proc/self/mem").expect("it is our own");
    let mut found = vec![0; keys.len()];
    // What was read is wiped, or it would be found in here.
    let mut bytes = Zeroizing::new(vec![0; CHUNK_BYTES + OVERLAP_BYTES]);
    for line in
        maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|it| it.starts_with("rw")))
    {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let (start, end) = range.expect("two addresses");
        let address = |text| u64::from_str_radix(text, 16).expect("hex");
        let (mut at, end) = (address(start), address(end));
        while at < end {
            let wanted = (end - at).min(bytes.len() as u64) as usize;
            let Ok(len) = memory.read_at(&mut bytes[..wanted], at) else { break };
            for (key, found) in keys.iter().zip(&mut found) {
                let first = key.0[0] ^ MASK;
                let rows = (0..len.min(CHUNK_BYTES)).step_by(ROW_BYTES);
                // `contains` is the standard library's, and optimised in any build.
                let rows = rows.filter(|at| bytes[*at..][..ROW_BYTES].contains(&first));
                let starts = rows.flat_map(|at| at..at + ROW_BYTES);
                *found += starts.filter(|at| *at < len && key.begins(&bytes[*at..len])).count();
            }
            bytes.fill(0);
            at += CHUNK_BYTES as u64;
        }
    }
    found
}

const CHUNK_BYTES: usize = 1 << 20;
/// A key that begins in one chunk ends in the next one.
const OVERLAP_BYTES: usize = ROW_BYTES;
const ROW_BYTES: usize = 64;

#[test]
fn a_stream_that_was_handed_over_leaves_no_key_behind() {
    if !is_possible() {
        return;
    }
    let secrets = hand_over();
    if cfg!(debug_assertions) {
        overwrite_the_stack();
    }
    assert_eq!(search(&secrets), [0, 0]);
}

#[inline(never)]
fn hand_over() -> [Masked; 2] {
    let (mut gateway, mut agent) = meet(GATEWAY, AGENT, "gate-1.example");
    gateway.stream.make_portable().expect("both sides are proven");
    agent.stream.make_portable().expect("both sides are proven");
    let secrets = keys(&gateway.stream);
    let mut measure = Writer::new(&mut []);
    gateway.stream.write(&mut measure);
    let mut bytes = Zeroizing::new(vec![0; measure.len()]);
    gateway.stream.write(&mut Writer::new(&mut bytes));
    let maps = Maps::default();
    let heir = Stream::read(&mut Reader::new(&bytes, &maps)).expect("it is our own");
    assert!(heir.is_proven());
    let found = search(&secrets);
    assert!(found.iter().all(|times| *times >= 4), "both sides, the bytes, and who has read them");
    // Another process has it.
    drop((gateway, agent, bytes, heir));
    secrets
}

/// Without optimisation each move leaves a copy in the frame that it is made in, which tells
/// nothing of what ships. What ships is searched with its stacks by the process tests of keys.
#[expect(clippy::large_stack_arrays, reason = "what lay there is to be overwritten")]
#[inline(never)]
pub(crate) fn overwrite_the_stack() {
    std::hint::black_box(&mut [0_u8; 1 << 19]);
}

//! Keys, associated data and buffers that begin or end exactly at a page which must not be touched:
//! a kernel that reads or writes one byte too many dies.
#![allow(unsafe_code, reason = "maps pages without access around what the kernels may touch")]

use std::ptr::NonNull;

use super::{Aead, Job, Key, Packet, Rng, Verdict, reference_seal};

/// Which end of its pages a packet's memory is flush with.
#[derive(Clone, Copy, Debug)]
enum Edge {
    Front,
    Back,
}

pub(super) fn nothing_outside_a_packet_is_touched(aead: &mut Aead) {
    let mut rng = Rng(4);
    let mut fences: Vec<[Fence; 3]> =
        (0..64).map(|_| std::array::from_fn(|_| Fence::new())).collect();
    for round in 0..60 {
        let edge = if round % 2 == 0 { Edge::Front } else { Edge::Back };
        let longest = [140, 1500][round / 2 % 2];
        let count = 1 + rng.below(fences.len());
        let plain: Vec<_> = (0..count)
            .map(|_| {
                let (aad_len, text_len) = (rng.below(70), rng.below(longest));
                rng.packet(aad_len, text_len)
            })
            .collect();
        let mut sealed = plain.clone();
        sealed.iter_mut().for_each(reference_seal);

        let mut jobs: Vec<_> = sealed
            .iter()
            .zip(&mut fences)
            .map(|(packet, fences)| fenced_job(packet, fences, edge))
            .collect();
        aead.open(&mut jobs);
        for (job, plain) in jobs.iter().zip(&plain) {
            assert_eq!(job.verdict, Verdict::Done, "{edge:?}");
            assert!(job.buf.starts_with(plain.text()));
        }
        aead.seal(&mut jobs);
        for (job, sealed) in jobs.iter().zip(&sealed) {
            assert_eq!(job.buf, sealed.buf, "{edge:?}");
        }
    }
}

fn fenced_job<'a>(packet: &Packet, fences: &'a mut [Fence; 3], edge: Edge) -> Job<'a> {
    let [key, aad, buf] = fences;
    let aad = aad.slice(edge, packet.aad.len());
    aad.copy_from_slice(&packet.aad);
    let buf = buf.slice(edge, packet.buf.len());
    buf.copy_from_slice(&packet.buf);
    Job::new(key.key(edge, &packet.key), packet.nonce, aad, buf)
}

/// One page that may be touched between two that may not.
struct Fence {
    first: NonNull<u8>,
}

const PAGE_BYTES: usize = 4096;

impl Fence {
    fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let map = unsafe {
            libc::mmap(std::ptr::null_mut(), 3 * PAGE_BYTES, libc::PROT_NONE, flags, -1, 0)
        };
        assert_ne!(map, libc::MAP_FAILED, "three pages");
        let first = NonNull::new(map.cast::<u8>().wrapping_add(PAGE_BYTES)).expect("a mapping");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the page in the middle of the mapping, which nothing refers to yet.
        let changed = unsafe { libc::mprotect(first.as_ptr().cast(), PAGE_BYTES, access) };
        assert_eq!(changed, 0, "a page of our own");
        Self { first }
    }

    /// `len` bytes of the page, at one of its ends.
    fn slice(&mut self, edge: Edge, len: usize) -> &mut [u8] {
        assert!(len <= PAGE_BYTES);
        let start = match edge {
            Edge::Front => self.first.as_ptr(),
            Edge::Back => self.first.as_ptr().wrapping_add(PAGE_BYTES - len),
        };
        // SAFETY: `start` and `len` stay within the page, which is mapped, zeroed and borrowed
        // through `self`.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// A copy of a key, at one end of the page.
    fn key(&mut self, edge: Edge, key: &Key) -> &Key {
        let place = self.slice(edge, size_of::<Key>()).as_mut_ptr().cast::<Key>();
        assert!(place.is_aligned());
        // SAFETY: `place` has room for a key, is aligned, and is borrowed through `self`.
        unsafe { place.write(key.clone()) };
        // SAFETY: a key was written there; it lives as long as the page.
        unsafe { &*place }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        let map = self.first.as_ptr().wrapping_sub(PAGE_BYTES);
        // SAFETY: the whole mapping of `new`, of which no reference is left.
        let unmapped = unsafe { libc::munmap(map.cast(), 3 * PAGE_BYTES) };
        assert_eq!(unmapped, 0, "a mapping of our own");
    }
}

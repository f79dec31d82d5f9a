//! What a kernel leaves on the stack: nothing that a key could be told from.
//!
//! A thread seals and opens on a stack that the test owns; when it has ended, the test searches the
//! whole of it. All packets of a batch are alike, so that whichever way a register was filled, two
//! neighbouring words of it make one of the patterns below.
#![allow(unsafe_code, reason = "a stack that outlives its thread")]

use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr::NonNull;

use chacha20::cipher::{KeyIvInit, StreamCipher};

use super::{Aead, Kernel, Packet, Rng, open, seal};

/// Seals and opens batches that take every path through a kernel.
pub(super) fn no_key_is_left_on_the_stack(aead: &mut Aead) {
    // The reference is another crate's: its stack is not ours to wipe.
    if aead.kernel() == Kernel::Portable {
        return;
    }
    let mut rng = Rng(6);
    for count in [1, 2, 3, 4, 5, 8, 12, 16, 31, 64] {
        for text_len in [0, 8, 100, 200, 400, 1200] {
            let plain = rng.packet(22, text_len);
            let secrets = Secrets::of(&plain);
            let mut packets = vec![plain; count];
            let stack = Stack::new();
            stack.run(&mut || {
                seal(aead, &mut packets);
                assert!(open(aead, &mut packets).into_iter().all(|authentic| authentic));
            });
            let found = secrets.search(stack.bytes());
            assert_eq!(found, [0; 0], "{count} packets of {text_len} bytes");
        }
    }
}

/// The search finds what code without a wipe leaves behind.
#[test]
fn a_key_on_the_stack_is_found() {
    #[inline(never)]
    fn keep_on_the_stack(key: &[u8; 32]) {
        // Many: the end of the thread uses this stack again.
        std::hint::black_box(&mut [*key; 500]);
    }
    let packet = Rng(7).packet(22, 100);
    let stack = Stack::new();
    stack.run(&mut || keep_on_the_stack(packet.key.as_bytes()));
    assert!(!Secrets::of(&packet).search(stack.bytes()).is_empty());
}

/// Pairs of words that are a packet's secrets, and nothing else.
struct Secrets(HashSet<u64>);

impl Secrets {
    fn of(packet: &Packet) -> Self {
        let key = packet.key.as_bytes();
        let mut one_time_key = [0; 32];
        chacha20::ChaCha20::new(key.into(), (&packet.nonce).into())
            .apply_keystream(&mut one_time_key);
        let mut patterns = HashSet::new();
        for secret in [key, &one_time_key] {
            let words: Vec<_> =
                secret.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
            // Words in a row, and the same word in neighbouring lanes.
            patterns.extend(words.windows(2).map(|two| pair(two[0], two[1])));
            patterns.extend(words.iter().map(|&word| pair(word, word)));
        }
        // Poly1305's r, clamped, in words and in limbs of 44 bits.
        let clamp = 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
        let r = u128::from_le_bytes(*one_time_key.first_chunk().expect("32 bytes")) & clamp;
        let limb = |shift: u32| (r >> shift) as u64 & ((1 << 44) - 1);
        patterns.extend([r as u64, (r >> 64) as u64, limb(0), limb(44), limb(88)]);
        Self(patterns)
    }

    /// Where on a stack there is one.
    fn search(&self, stack: &[u8]) -> Vec<usize> {
        let at = |start: usize| stack[start..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let starts = (0..stack.len() - 7).step_by(4);
        starts.filter(|&start| at(start).is_some_and(|word| self.0.contains(&word))).collect()
    }
}

/// Memory for a thread's stack.
struct Stack {
    base: NonNull<u8>,
}

const STACK_BYTES: usize = 256 << 10;

impl Stack {
    fn new() -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), STACK_BYTES, access, flags, -1, 0) };
        assert_ne!(map, libc::MAP_FAILED, "a stack");
        Self { base: NonNull::new(map.cast()).expect("a mapping") }
    }

    /// Runs `work` in a thread on this stack, to its end.
    fn run(&self, mut work: &mut dyn FnMut()) {
        extern "C" fn main(work: *mut c_void) -> *mut c_void {
            // SAFETY: `run` passes a pointer to its own `work`, and waits for this thread before it
            // returns.
            let work = unsafe { &mut *work.cast::<&mut dyn FnMut()>() };
            work();
            std::ptr::null_mut()
        }
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: writes to the memory of `attributes`.
        let made = unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        let base = self.base.as_ptr().cast();
        // SAFETY: `attributes` is initialised; the mapping outlives the thread, and nothing else
        // uses it.
        let given =
            unsafe { libc::pthread_attr_setstack(attributes.as_mut_ptr(), base, STACK_BYTES) };
        let mut thread = std::mem::MaybeUninit::uninit();
        let work = (&raw mut work).cast();
        // SAFETY: all pointers are to locals that live until the thread has been joined.
        let started =
            unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), main, work) };
        assert_eq!((made, given, started), (0, 0, 0), "a thread");
        // SAFETY: `pthread_create` succeeded, so it has written the thread's handle.
        let thread = unsafe { thread.assume_init() };
        // SAFETY: joined once; no other code knows the handle.
        let joined = unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
        assert_eq!(joined, 0, "a thread of our own");
    }

    /// What the thread has left; there is no thread any more.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the whole mapping, which lives as long as `self` and which no thread writes to.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), STACK_BYTES) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the whole mapping of `new`, of which no reference is left.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), STACK_BYTES) };
        assert_eq!(unmapped, 0, "a mapping of our own");
    }
}

//! The rounds of a few blocks, for either width of register.

use std::hint::black_box;

use std::arch::x86_64::_mm_setzero_si128 as none;

use super::{
    BLOCKS, Vector, add, counters, each_in_lane, in_every_lane, rotate, store, turn, xor, zeros,
};
use crate::crypto::avx512::bytes::{load_16, load_block_input};
use crate::crypto::wide::{BLOCK_BYTES, Meanwhile, ROUNDS, Rows, SIGMA_BYTES, Source};

/// The four rows of the matrix of each block of a set.
type Set = [Vector; 4];

/// Writes the key stream of each source to its row; the last one stands in for those that are
/// missing.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(in super::super) fn rows<const SETS: usize>(sources: &[Source<'_>], rows: &mut Rows) {
    let sigma = in_every_lane(load_16(&SIGMA_BYTES));
    let mut input = [[sigma; 4]; SETS];
    for s in 0..SETS {
        let [mut b, mut c, mut d] = [[none(); BLOCKS]; 3];
        for i in 0..BLOCKS {
            let source = &sources[(BLOCKS * s + i).min(sources.len() - 1)];
            let (halves, _) = source.key.as_chunks();
            b[i] = load_16(&halves[0]);
            c[i] = load_16(&halves[1]);
            d[i] = load_block_input(source);
        }
        input[s] = [sigma, each_in_lane(b), each_in_lane(c), each_in_lane(d)];
    }
    store_sets(rounds(input, &mut ()), &mut rows.0[..sources.len()]);
}

/// Writes the key stream of one packet from a source on, in step with something else.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(in super::super) fn stream<const SETS: usize, M: Meanwhile>(
    source: Source<'_>,
    rows: &mut [[u8; BLOCK_BYTES]],
    meanwhile: &mut M,
) {
    let sigma = in_every_lane(load_16(&SIGMA_BYTES));
    let half = |i: usize| in_every_lane(load_16(&source.key.as_chunks().0[i]));
    let counted = in_every_lane(load_block_input(&source));
    let mut input = [[sigma, half(0), half(1), counted]; SETS];
    for s in 0..SETS {
        input[s][3] = add(counted, counters((BLOCKS * s) as i32));
    }
    let mut copy = *meanwhile;
    let v = rounds(input, &mut copy);
    *meanwhile = copy;
    store_sets(v, rows);
}

/// The key stream of every set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn rounds<const SETS: usize>(input: [Set; SETS], meanwhile: &mut impl Meanwhile) -> [Set; SETS] {
    let mut v = [[zeros(); 4]; SETS];
    for s in 0..SETS {
        for i in 0..4 {
            v[s][i] = input[s][i];
        }
    }
    for _ in 0..black_box(ROUNDS / 2) {
        v = quarter_rounds(v);
        for s in 0..SETS {
            let [a, b, c, d] = v[s];
            v[s] = [turn::<RIGHT>(a), b, turn::<LEFT>(c), turn::<TWICE>(d)];
        }
        v = quarter_rounds(v);
        for s in 0..SETS {
            let [a, b, c, d] = v[s];
            v[s] = [turn::<LEFT>(a), b, turn::<RIGHT>(c), turn::<TWICE>(d)];
        }
        meanwhile.step();
    }
    for s in 0..SETS {
        for i in 0..4 {
            v[s][i] = add(v[s][i], input[s][i]);
        }
    }
    v
}

/// Four quarter rounds for every block, the sets in step.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn quarter_rounds<const SETS: usize>(mut v: [Set; SETS]) -> [Set; SETS] {
    const A: usize = 0;
    const B: usize = 1;
    const C: usize = 2;
    const D: usize = 3;
    macro_rules! step {
        ($sum:ident += $addend:ident, $mixed:ident <<< $bits:literal) => {
            for s in 0..SETS {
                v[s][$sum] = add(v[s][$sum], v[s][$addend]);
                v[s][$mixed] = rotate::<$bits>(xor(v[s][$mixed], v[s][$sum]));
            }
        };
    }
    step!(A += B, D <<< 16);
    step!(C += D, B <<< 12);
    step!(A += B, D <<< 8);
    step!(C += D, B <<< 7);
    v
}

/// Writes the blocks of all sets, as many as there are rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn store_sets<const SETS: usize>(v: [Set; SETS], rows: &mut [[u8; BLOCK_BYTES]]) {
    for s in 0..SETS {
        let Some(rows) = rows.get_mut(BLOCKS * s..) else { return };
        store(v[s], rows);
    }
}

/// How the words of a row are turned within 128 bits: which word comes to each place, two bits
/// each, the first place lowest.
const RIGHT: i32 = 0b10_01_00_11;
const TWICE: i32 = 0b01_00_11_10;
const LEFT: i32 = 0b00_11_10_01;

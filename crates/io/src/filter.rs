//! A socket filter: what cannot be ours is dropped by the kernel before it is queued.
//!
//! The caller says in plain data which datagrams may pass ([`Filter`]); `compile` turns that into a
//! classic BPF program, which every kernel runs compiled to machine code, unprivileged. A refused
//! datagram costs this process nothing, and takes no room in the receive buffer. What passes is
//! checked again by whoever knows the protocol: the filter sees single datagrams and no state, and
//! must never refuse what the protocol accepts.
//!
//! The program of a rule, in the words of `bpf_asm` (UDP programs see the datagram behind the 8
//! bytes of its header):
//!
//! ```text
//! ld M[0]; jlt #first.start, next; jgt #first.end, next        first byte
//! ld M[1]; jlt #bytes.start, next; jgt #bytes.end, next        length
//! ld [8 + at]; jne #word, next                                 for each word that is fixed
//! ret #accept
//! next:
//! ```

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_IMM, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_LEN,
    BPF_MEM, BPF_RET, BPF_ST, BPF_W,
};
use socket2::SockFilter;

pub use ringgate_batch::filter::{Filter, Rule};

/// One instruction, before it becomes socket2's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    k: u32,
}

/// The program of a filter.
///
/// # Panics
/// Where it is longer than the 4096 instructions that the kernel takes, or a rule fixes some 480
/// bytes.
pub(super) fn compile(filter: &Filter) -> Vec<SockFilter> {
    let program = instructions(filter);
    assert!(program.len() <= INSTRUCTIONS_MAX, "a filter of a handful of rules");
    let one = |i: &Instruction| SockFilter::new(i.code, i.jump_true, i.jump_false, i.k);
    program.iter().map(one).collect()
}

fn instructions(filter: &Filter) -> Vec<Instruction> {
    let mut program = vec![
        statement(BPF_LD | BPF_W | BPF_LEN, 0),
        jump(BPF_JGT, UDP_HEADER_BYTES, 1, 0),
        statement(BPF_RET | BPF_K, REFUSE),
        statement(BPF_ST, LENGTH),
        statement(BPF_LD | BPF_B | BPF_ABS, UDP_HEADER_BYTES),
        statement(BPF_ST, FIRST_BYTE),
    ];
    program.extend(filter.rules().iter().flat_map(checks_of));
    program.push(statement(BPF_RET | BPF_K, REFUSE));
    program
}

/// The checks of a rule; each jumps to the end when it fails.
fn checks_of(rule: &Rule) -> Vec<Instruction> {
    let mut checks = Vec::new();
    checks.push(statement(BPF_LD | BPF_W | BPF_MEM, FIRST_BYTE));
    let (low, high) = (u32::from(*rule.first.start()), u32::from(*rule.first.end()));
    push_range(&mut checks, low, high, u32::from(u8::MAX));
    checks.push(statement(BPF_LD | BPF_W | BPF_MEM, LENGTH));
    let (low, high) = (u32::from(*rule.bytes.start()), u32::from(*rule.bytes.end()));
    push_range(&mut checks, low + UDP_HEADER_BYTES, high + UDP_HEADER_BYTES, u32::MAX);
    for (at, bytes) in rule.fixed() {
        push_fixed(&mut checks, u32::from(at) + UDP_HEADER_BYTES, bytes);
    }
    checks.push(statement(BPF_RET | BPF_K, ACCEPT));
    link(&mut checks);
    checks
}

/// Checks that the accumulator is at least `low` and at most `high`, as far as it could be
/// otherwise.
fn push_range(checks: &mut Vec<Instruction>, low: u32, high: u32, max: u32) {
    if low > 0 {
        checks.push(jump(BPF_JGE, low, 0, NEXT_RULE));
    }
    if high < max {
        checks.push(jump(BPF_JGT, high, NEXT_RULE, 0));
    }
}

/// Compares bytes, by words as long as there are four of them.
fn push_fixed(checks: &mut Vec<Instruction>, at: u32, bytes: &[u8]) {
    let mut compare = |size: u32, at: u32, bytes: &[u8]| {
        let value = bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        checks.push(statement(BPF_LD | size | BPF_ABS, at));
        checks.push(jump(BPF_JEQ, value, 0, NEXT_RULE));
    };
    let (words, rest) = bytes.as_chunks::<4>();
    let mut at = at;
    for word in words {
        compare(BPF_W, at, word);
        at += 4;
    }
    let (halves, rest) = rest.as_chunks::<2>();
    for half in halves {
        compare(BPF_H, at, half);
        at += 2;
    }
    for byte in rest {
        compare(BPF_B, at, std::slice::from_ref(byte));
        at += 1;
    }
}

/// Makes every jump to "the next rule" one past the end of this rule.
fn link(checks: &mut [Instruction]) {
    let end = checks.len();
    for (index, check) in checks.iter_mut().enumerate() {
        if check.code & CLASS_MASK != BPF_JMP as u16 {
            continue;
        }
        let distance = u8::try_from(end - index - 1).ok().filter(|far| *far != NEXT_RULE);
        let distance = distance.expect("a rule is shorter than a jump");
        for target in [&mut check.jump_true, &mut check.jump_false] {
            if *target == NEXT_RULE {
                *target = distance;
            }
        }
    }
}

const fn statement(code: u32, k: u32) -> Instruction {
    Instruction { code: code as u16, jump_true: 0, jump_false: 0, k }
}

const fn jump(test: u32, k: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code: (BPF_JMP | test | BPF_K) as u16, jump_true, jump_false, k }
}

/// A jump that [`link`] has yet to aim.
const NEXT_RULE: u8 = u8::MAX;

const CLASS_MASK: u16 = 0x07;

/// Words of the program's scratch memory.
const FIRST_BYTE: u32 = 0;
const LENGTH: u32 = 1;

/// What a program returns is how many bytes of the datagram to keep.
const ACCEPT: u32 = u32::MAX;
const REFUSE: u32 = 0;

const UDP_HEADER_BYTES: u32 = 8;

/// `BPF_MAXINSNS`.
const INSTRUCTIONS_MAX: usize = 4096;

const _: () = assert!(BPF_IMM == 0 && BPF_W == 0 && BPF_K == 0);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs a program as the kernel would: the datagram behind its UDP header, an accumulator,
    /// scratch words.
    fn run(program: &[Instruction], datagram: &[u8]) -> u32 {
        let mut packet = vec![0xee; UDP_HEADER_BYTES as usize];
        packet.extend_from_slice(datagram);
        let (mut accumulator, mut memory, mut counter) = (0_u32, [0_u32; 16], 0);
        let load = |at: u32, bytes: usize| {
            let at = at as usize;
            let slice = packet.get(at..at + bytes)?;
            Some(slice.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
        };
        loop {
            let Instruction { code, jump_true, jump_false, k } = program[counter];
            counter += 1;
            let code = u32::from(code);
            let loaded = match code {
                _ if code == BPF_LD | BPF_W | BPF_LEN => Some(packet.len() as u32),
                _ if code == BPF_LD | BPF_W | BPF_MEM => Some(memory[k as usize]),
                _ if code == BPF_LD | BPF_W | BPF_ABS => load(k, 4),
                _ if code == BPF_LD | BPF_H | BPF_ABS => load(k, 2),
                _ if code == BPF_LD | BPF_B | BPF_ABS => load(k, 1),
                BPF_ST => {
                    memory[k as usize] = accumulator;
                    continue;
                }
                _ if code == BPF_RET | BPF_K => return k,
                _ => {
                    let test = match code & !BPF_JMP {
                        BPF_JEQ => accumulator == k,
                        BPF_JGE => accumulator >= k,
                        BPF_JGT => accumulator > k,
                        other => panic!("unknown instruction {other:#x}"),
                    };
                    counter += usize::from(if test { jump_true } else { jump_false });
                    continue;
                }
            };
            let Some(value) = loaded else { return REFUSE };
            accumulator = value;
        }
    }

    /// Requests with a fixed head, short packets of some kinds, one long kind.
    fn example() -> Filter {
        Filter::new()
            .allow(Rule::new(0x15..=0x15, 19..=1218))
            .allow(
                Rule::new(0..=0, 1078..=1078)
                    .with(1, b"NETCODE 1.02\0")
                    .with(14, &[1, 2, 3, 4, 5, 6, 7, 8]),
            )
            .allow(Rule::new(0x13..=0x16, 18..=400))
            .allow(Rule::new(0xf0..=0xff, 1..=1))
    }

    #[test]
    fn the_example_lets_its_own_pass_and_nothing_else() {
        let filter = example();
        let program = instructions(&filter);
        let mut request = vec![0; 1078];
        request[1..14].copy_from_slice(b"NETCODE 1.02\0");
        request[14..22].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let passes = |datagram: &[u8]| {
            let verdict = run(&program, datagram);
            assert_eq!(verdict != REFUSE, filter.accepts(datagram));
            verdict == ACCEPT
        };
        assert!(
            passes(&request) && passes(&[0x15; 1218]) && passes(&[0x16; 18]) && passes(&[0xff])
        );
        assert!(
            !passes(&[]) && !passes(&[0x15; 1219]) && !passes(&[0x16; 17]) && !passes(&[0xff, 0])
        );
        for byte in 1..22 {
            request[byte] ^= 1;
            assert!(!passes(&request), "byte {byte} is fixed");
            request[byte] ^= 1;
        }
        request.push(0);
        assert!(!passes(&request));
    }

    #[test]
    fn no_rule_means_nothing_passes() {
        let program = instructions(&Filter::new());
        assert_eq!(run(&program, &[1, 2, 3]), REFUSE);
    }

    /// Rules over a small alphabet, so that random datagrams meet them.
    fn rule() -> impl Strategy<Value = Rule> {
        let fixed = prop::collection::vec((0..6_u16, prop::collection::vec(0..3_u8, 0..12)), 0..3);
        (0..4_u8, 0..4_u8, 0..12_u16, 0..12_u16, fixed).prop_map(
            |(first, more, low, span, fixed)| {
                let mut rule = Rule::new(first..=first + more, low..=low + span);
                for (at, bytes) in fixed {
                    if usize::from(at) + bytes.len() <= usize::from(low) {
                        rule = rule.with(at, &bytes);
                    }
                }
                rule
            },
        )
    }

    proptest! {
        #[test]
        fn the_program_agrees_with_the_rules(
            rules in prop::collection::vec(rule(), 0..6),
            datagrams in prop::collection::vec(prop::collection::vec(0..3_u8, 0..24), 50),
        ) {
            let filter = rules.into_iter().fold(Filter::new(), Filter::allow);
            let program = instructions(&filter);
            for datagram in datagrams {
                let expected = if filter.accepts(&datagram) { ACCEPT } else { REFUSE };
                prop_assert_eq!(run(&program, &datagram), expected, "{:?}", datagram);
            }
        }

        #[test]
        fn the_example_agrees_on_datagrams_near_its_edges(
            first in prop::sample::select(vec![0_u8, 0x12, 0x13, 0x15, 0x16, 0x17, 0xef, 0xf0, 0xff]),
            len in prop::sample::select(vec![0_usize, 1, 2, 17, 18, 19, 399, 400, 401, 1077, 1078, 1079, 1218, 1219]),
            flip in 0..30_usize,
        ) {
            let filter = example();
            let mut datagram = b"\0NETCODE 1.02\0\x01\x02\x03\x04\x05\x06\x07\x08".to_vec();
            datagram.resize(len, 0);
            if let Some(byte) = datagram.first_mut() { *byte = first }
            if let Some(byte) = datagram.get_mut(flip) { *byte ^= 0x40 }
            prop_assert_eq!(run(&instructions(&filter), &datagram) != REFUSE, filter.accepts(&datagram));
        }
    }
}

//! An assembler for eBPF: instructions as functions, jumps to labels, and nothing clever.
//!
//! The instruction set is RFC 9669. An instruction is 8 bytes: a code, two registers, a distance
//! and a number.

use std::collections::HashMap;

/// A register. The program is called with its context in `R1`, calls take `R1` to `R5` and answer
/// in `R0`; `R6` to `R9` outlive calls, and `R10` is the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "registers have numbers for names")]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// How much is read or written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// Four bytes.
    Word = 0x00,
    /// Two bytes.
    Half = 0x08,
    /// One byte.
    Byte = 0x10,
    /// Eight bytes.
    Double = 0x18,
}

/// Whether to jump. Numbers are compared without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum If {
    /// Both are the same.
    Equal = 0x10,
    /// The first is larger.
    Above = 0x20,
    /// They differ.
    Differs = 0x50,
    /// The first is smaller.
    Below = 0xa0,
}

/// A program that is being written.
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    labels: HashMap<&'static str, usize>,
    /// Jumps, with where they lead to.
    jumps: Vec<(usize, &'static str)>,
}

/// One instruction, as the kernel wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    registers: u8,
    distance: i16,
    number: i32,
}

impl Assembler {
    /// Jumps to this label lead here.
    ///
    /// # Panics
    /// Where the label is somewhere else already.
    pub fn label(&mut self, name: &'static str) {
        let before = self.labels.insert(name, self.instructions.len());
        assert!(before.is_none(), "the label {name} is in two places");
    }

    /// `to = from`
    pub fn copy(&mut self, to: Register, from: Register) {
        self.push(ALU64 | MOVE | BY_REGISTER, (to, from), 0, 0);
    }

    /// `to = number`
    pub fn set(&mut self, to: Register, number: i32) {
        self.push(ALU64 | MOVE, (to, Register::R0), 0, number);
    }

    /// `to += number`
    pub fn add(&mut self, to: Register, number: i32) {
        self.push(ALU64 | ADD, (to, Register::R0), 0, number);
    }

    /// `to += from`
    pub fn add_register(&mut self, to: Register, from: Register) {
        self.push(ALU64 | ADD | BY_REGISTER, (to, from), 0, 0);
    }

    /// `to *= from`
    pub fn multiply_register(&mut self, to: Register, from: Register) {
        self.push(ALU64 | MULTIPLY | BY_REGISTER, (to, from), 0, 0);
    }

    /// `to >>= number`, with zeros from above.
    pub fn shift_right(&mut self, to: Register, number: i32) {
        self.push(ALU64 | SHIFT_RIGHT, (to, Register::R0), 0, number);
    }

    /// `to &= number`
    pub fn and(&mut self, to: Register, number: i32) {
        self.push(ALU64 | AND, (to, Register::R0), 0, number);
    }

    /// `to` is two bytes as a network sends them, and becomes their number.
    pub fn from_network(&mut self, to: Register) {
        self.push(ALU32 | TO_BIG_ENDIAN, (to, Register::R0), 0, 16);
    }

    /// `to = *(from + distance)`
    pub fn load(&mut self, size: Size, to: Register, from: Register, distance: i16) {
        self.push(LOAD | size as u8, (to, from), distance, 0);
    }

    /// `*(to + distance) = from`
    pub fn store(&mut self, size: Size, to: Register, distance: i16, from: Register) {
        self.push(STORE_REGISTER | size as u8, (to, from), distance, 0);
    }

    /// `*(to + distance) = number`
    pub fn store_number(&mut self, size: Size, to: Register, distance: i16, number: i32) {
        self.push(STORE | size as u8, (to, Register::R0), distance, number);
    }

    /// `*(to + distance) += from`, as one step for all processors.
    pub fn add_at(&mut self, to: Register, distance: i16, from: Register) {
        self.push(ATOMIC_DOUBLE, (to, from), distance, ADD.into());
    }

    /// `to = number`, of 64 bits.
    pub fn set_long(&mut self, to: Register, number: u64) {
        self.push(LOAD_LONG, (to, Register::R0), 0, (number as u32).cast_signed());
        let high = ((number >> 32) as u32).cast_signed();
        self.push(0, (Register::R0, Register::R0), 0, high);
    }

    /// `to` = a map, by its descriptor in this process.
    pub fn load_map(&mut self, to: Register, descriptor: i32) {
        let of_map = (to, MAP_BY_DESCRIPTOR);
        self.push(LOAD_LONG, of_map, 0, descriptor);
        self.push(0, (Register::R0, Register::R0), 0, 0);
    }

    /// `if left condition number, go to label`. The number's sign is extended to 64 bits.
    pub fn jump_if(&mut self, condition: If, left: Register, number: i32, label: &'static str) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP | condition as u8, (left, Register::R0), 0, number);
    }

    /// The same, with the lower 32 bits of a register.
    pub fn jump_if_word(&mut self, condition: If, left: Register, word: u32, label: &'static str) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP32 | condition as u8, (left, Register::R0), 0, word.cast_signed());
    }

    /// `if left condition right, go to label`
    pub fn jump_if_register(
        &mut self,
        condition: If,
        left: Register,
        right: Register,
        label: &'static str,
    ) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP | condition as u8 | BY_REGISTER, (left, right), 0, 0);
    }

    /// `go to label`
    pub fn jump(&mut self, label: &'static str) {
        self.jumps.push((self.instructions.len(), label));
        self.push(JUMP, (Register::R0, Register::R0), 0, 0);
    }

    /// Calls a function of the kernel's.
    pub fn call(&mut self, function: i32) {
        self.push(JUMP | CALL, (Register::R0, Register::R0), 0, function);
    }

    /// The program ends, and says `R0`.
    pub fn exit(&mut self) {
        self.push(JUMP | EXIT, (Register::R0, Register::R0), 0, 0);
    }

    /// The whole program.
    ///
    /// # Panics
    /// Where a jump leads to a label that is nowhere.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let to = *self.labels.get(label).unwrap_or_else(|| panic!("{label} is nowhere"));
            let distance = to as isize - at as isize - 1;
            self.instructions[at].distance =
                i16::try_from(distance).expect("a program is shorter than a jump");
        }
        self.instructions
    }

    fn push<S: Into<u8>>(
        &mut self,
        code: u8,
        (to, from): (Register, S),
        distance: i16,
        number: i32,
    ) {
        // The order of both halves of the byte is the machine's.
        let (to, from) = (to as u8, from.into());
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.instructions.push(Instruction { code, registers, distance, number });
    }
}

impl From<Register> for u8 {
    fn from(register: Register) -> Self {
        register as Self
    }
}

const LOAD_LONG: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x62;
const STORE_REGISTER: u8 = 0x63;
const ATOMIC_DOUBLE: u8 = 0xdb;
const ALU32: u8 = 0x04;
const JUMP: u8 = 0x05;
const JUMP32: u8 = 0x06;
const ALU64: u8 = 0x07;

const BY_REGISTER: u8 = 0x08;
const ADD: u8 = 0x00;
const MULTIPLY: u8 = 0x20;
const AND: u8 = 0x50;
const SHIFT_RIGHT: u8 = 0x70;
const MOVE: u8 = 0xb0;
const TO_BIG_ENDIAN: u8 = 0xd0 | 0x08;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;

/// Where a register would be named, that the number is a map's descriptor.
const MAP_BY_DESCRIPTOR: u8 = 1;

#[cfg(test)]
mod tests {
    use super::Register::{R0, R1, R2, R6, R10};
    use super::*;

    /// What `llvm-mc` makes of the same text.
    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_those_of_the_standard() {
        let mut it = Assembler::default();
        it.label("begin");
        it.copy(R6, R1);
        it.load(Size::Half, R2, R1, 12);
        it.from_network(R2);
        it.store_number(Size::Word, R10, -8, -65536);
        it.jump_if(If::Above, R2, 28, "end");
        it.jump_if_register(If::Differs, R2, R1, "begin");
        it.load_map(R1, 7);
        it.add_at(R6, 8, R2);
        it.multiply_register(R6, R2);
        it.shift_right(R6, 48);
        it.set_long(R1, 0x0102_0304_0506_0708);
        it.label("end");
        it.set(R0, 2);
        it.exit();
        let bytes: Vec<[u8; 8]> = it.finish().into_iter().map(bytes_of).collect();
        assert_eq!(
            bytes,
            [
                [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
                [0x69, 0x12, 12, 0, 0, 0, 0, 0],
                [0xdc, 0x02, 0, 0, 16, 0, 0, 0],
                [0x62, 0x0a, 0xf8, 0xff, 0, 0, 0xff, 0xff],
                [0x25, 0x02, 8, 0, 28, 0, 0, 0],
                [0x5d, 0x12, 0xfa, 0xff, 0, 0, 0, 0],
                [0x18, 0x11, 0, 0, 7, 0, 0, 0],
                [0; 8],
                [0xdb, 0x26, 8, 0, 0, 0, 0, 0],
                [0x2f, 0x26, 0, 0, 0, 0, 0, 0],
                [0x77, 0x06, 0, 0, 48, 0, 0, 0],
                [0x18, 0x01, 0, 0, 8, 7, 6, 5],
                [0, 0, 0, 0, 4, 3, 2, 1],
                [0xb7, 0x00, 0, 0, 2, 0, 0, 0],
                [0x95, 0x00, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    fn bytes_of(it: Instruction) -> [u8; 8] {
        let ([d0, d1], [n0, n1, n2, n3]) = (it.distance.to_ne_bytes(), it.number.to_ne_bytes());
        [it.code, it.registers, d0, d1, n0, n1, n2, n3]
    }

    #[test]
    #[should_panic(expected = "is nowhere")]
    fn a_jump_to_nowhere_is_a_mistake() {
        let mut it = Assembler::default();
        it.jump("nowhere");
        it.finish();
    }
}

//! Protobuf, as much of it as etcd's messages need: varints and length-delimited fields, in both
//! directions. A reader never allocates and never looks outside of its slice, so what a message may
//! cost is bounded by its length, which `frame` has bounded before.

use super::error::Error;

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Wire type 0: integers, booleans, enums.
    Varint(u64),
    /// Wire type 2: bytes, strings, messages.
    Bytes(&'a [u8]),
    /// Wire types 1 and 5, which none of our messages has: skipped.
    Fixed,
}

impl<'a> Value<'a> {
    /// A signed integer: protobuf's `int64` is the two's complement as a varint.
    pub fn int(self) -> Result<i64, Error> {
        Ok(self.uint()? as i64)
    }

    /// An unsigned integer.
    pub fn uint(self) -> Result<u64, Error> {
        match self {
            Value::Varint(value) => Ok(value),
            _ => Err(Error::Malformed("a number has another wire type")),
        }
    }

    /// A boolean.
    pub fn boolean(self) -> Result<bool, Error> {
        Ok(self.uint()? != 0)
    }

    /// Bytes, or a message inside of this one.
    pub fn bytes(self) -> Result<&'a [u8], Error> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Error::Malformed("bytes have another wire type")),
        }
    }

    /// Text. What is not UTF-8 is replaced: only people read it.
    pub fn text(self) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

/// Walks through the fields of one message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of this message.
    pub const fn new(message: &'a [u8]) -> Self {
        Self { left: message }
    }

    /// The next field's number and value; `None` at the end.
    pub fn next_field(&mut self) -> Result<Option<(u64, Value<'a>)>, Error> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.skip(8)?,
            2 => {
                let len = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                Value::Bytes(self.take(len)?)
            }
            5 => self.skip(4)?,
            _ => return Err(Error::Malformed("a field has an unknown wire type")),
        };
        match tag >> 3 {
            0 => Err(Error::Malformed("a field has the number 0")),
            number => Ok(Some((number, value))),
        }
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0_u64;
        for (index, &byte) in self.left.iter().take(VARINT_BYTES_MAX).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.left = &self.left[index + 1..];
                return Ok(value);
            }
        }
        Err(Error::Malformed("a number does not end"))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            return Err(Error::Malformed("a field is longer than its message"));
        };
        self.left = left;
        Ok(taken)
    }

    fn skip(&mut self, len: usize) -> Result<Value<'a>, Error> {
        self.take(len)?;
        Ok(Value::Fixed)
    }
}

/// Writes one message. Values that are the default are left out, as protobuf does.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty message.
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// The message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// An unsigned integer.
    pub fn uint(&mut self, number: u64, value: u64) {
        if value != 0 {
            self.varint(number << 3);
            self.varint(value);
        }
    }

    /// A signed integer.
    pub fn int(&mut self, number: u64, value: i64) {
        self.uint(number, value as u64);
    }

    /// A boolean.
    pub fn boolean(&mut self, number: u64, value: bool) {
        self.uint(number, u64::from(value));
    }

    /// Bytes or text.
    pub fn bytes(&mut self, number: u64, value: &[u8]) {
        if !value.is_empty() {
            self.delimited(number, value);
        }
    }

    /// A message inside of this one, written even when it is empty: its presence says something.
    pub fn message(&mut self, number: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::new();
        write(&mut inner);
        self.delimited(number, &inner.bytes);
    }

    fn delimited(&mut self, number: u64, value: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// A `u64` in groups of seven bits.
const VARINT_BYTES_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u64, Value<'_>)>, Error> {
        let mut reader = Reader::new(message);
        let mut found = Vec::new();
        while let Some(field) = reader.next_field()? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::new();
        writer.uint(1, 300);
        writer.int(2, -1);
        writer.bytes(3, b"key");
        writer.boolean(4, true);
        writer.message(5, |inner| inner.uint(1, 7));
        writer.uint(6, 0);
        writer.message(7, |_| {});
        let message = writer.into_bytes();
        let found = fields(&message).unwrap();
        assert_eq!(found[0], (1, Value::Varint(300)));
        assert_eq!(found[1].1.int().unwrap(), -1);
        assert_eq!(found[2].1.bytes().unwrap(), b"key");
        assert!(found[3].1.boolean().unwrap());
        assert_eq!(fields(found[4].1.bytes().unwrap()).unwrap(), [(1, Value::Varint(7))]);
        assert_eq!(found[5], (7, Value::Bytes(b"")));
        assert_eq!(found.len(), 6);
    }

    #[test]
    fn the_encoding_is_that_of_the_documents() {
        let mut writer = Writer::new();
        writer.uint(1, 150);
        writer.bytes(2, b"testing");
        assert_eq!(writer.into_bytes(), b"\x08\x96\x01\x12\x07testing");
    }

    #[test]
    fn malformed_messages_are_refused() {
        for message in [
            &b"\x08"[..],
            b"\x08\xff",
            b"\x12\x05abc",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0b",
            b"\x09\x01",
            b"\x00\x01",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(fields(message).is_err(), "{message:?}");
        }
        assert_eq!(fields(b"\x09abcdefgh\x0dabcd").unwrap().len(), 2);
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        assert!(Value::Bytes(b"").uint().is_err());
        assert!(Value::Varint(1).bytes().is_err());
        assert!(Value::Fixed.int().is_err());
    }
}

//! What records are made of: fields, one behind the other, and rows that name them once for both
//! ways.
//!
//! Every field is read through [`Body`], which refuses to read past the record and, at the end,
//! refuses a body with bytes left over: a record that is longer than its fields means
//! something else to its writer.

use std::net::SocketAddr;

use super::record::is_name_bytes;
use super::{CloseReason, Frame, GoodbyeReason, MoveRefusal, RecordError, SessionId, address};

/// What a record carries.
pub(super) trait Field<'a>: Sized {
    fn read(body: &mut Body<'a>) -> Result<Self, RecordError>;

    fn write(&self, out: &mut Fields<'_>);

    /// How many bytes it takes.
    #[inline]
    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

/// What is left of a record's body.
pub(super) struct Body<'a> {
    rest: &'a [u8],
    /// The record may be skipped: what is not exactly as it should be is of a later version.
    is_exact: bool,
}

impl<'a> Body<'a> {
    #[inline]
    pub(super) fn of(frame: Frame<'a>) -> Self {
        Self { rest: frame.body(), is_exact: frame.may_be_skipped() }
    }

    #[inline]
    pub(super) fn take<T: Field<'a>>(&mut self) -> Result<T, RecordError> {
        T::read(self)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], RecordError> {
        let (field, rest) = self.rest.split_first_chunk().ok_or(RecordError::BodyLength)?;
        self.rest = rest;
        Ok(field)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(RecordError::BodyLength)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// What has no length of its own, a payload or a text, is the rest of its record.
    #[inline]
    pub(super) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(super) fn end<R>(&self, record: R) -> Result<R, RecordError> {
        if self.is_empty() { Ok(record) } else { Err(RecordError::BodyLength) }
    }

    /// Reads a record to its end.
    pub(super) fn whole<R>(
        mut self,
        read: impl FnOnce(&mut Self) -> Result<R, RecordError>,
    ) -> Result<R, RecordError> {
        let record = read(&mut self)?;
        self.end(record)
    }
}

/// The part of a record that is still to be written.
pub(super) struct Fields<'a>(pub(super) &'a mut [u8]);

impl Fields<'_> {
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let (place, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        self.0 = rest;
    }
}

/// Integers are little-endian.
macro_rules! integers {
    ($($type:ident),+) => { $(
        impl Field<'_> for $type {
            #[inline]
            fn read(body: &mut Body<'_>) -> Result<Self, RecordError> {
                body.array().map(|bytes| Self::from_le_bytes(*bytes))
            }

            #[inline]
            fn write(&self, out: &mut Fields<'_>) {
                out.bytes(&self.to_le_bytes());
            }
        }
    )+ };
}

integers!(u8, u16, u32, u64);

/// Reasons that this version has no name for are others.
macro_rules! reasons {
    ($($type:ident),+) => { $(
        impl Field<'_> for $type {
            fn read(body: &mut Body<'_>) -> Result<Self, RecordError> {
                Ok(Self::from_u8(body.take()?).unwrap_or(Self::Other))
            }

            fn write(&self, out: &mut Fields<'_>) {
                self.as_u8().write(out);
            }
        }
    )+ };
}

reasons!(CloseReason, GoodbyeReason, MoveRefusal);

impl Field<'_> for bool {
    fn read(body: &mut Body<'_>) -> Result<Self, RecordError> {
        match body.take::<u8>()? {
            2.. if body.is_exact => Err(RecordError::BodyLength),
            said => Ok(said != 0),
        }
    }

    fn write(&self, out: &mut Fields<'_>) {
        u8::from(*self).write(out);
    }
}

impl Field<'_> for SessionId {
    #[inline]
    fn read(body: &mut Body<'_>) -> Result<Self, RecordError> {
        Self::from_u64(body.take()?).ok_or(RecordError::SessionZero)
    }

    #[inline]
    fn write(&self, out: &mut Fields<'_>) {
        self.as_u64().write(out);
    }
}

impl<const N: usize> Field<'_> for [u8; N] {
    #[inline]
    fn read(body: &mut Body<'_>) -> Result<Self, RecordError> {
        body.array().copied()
    }

    #[inline]
    fn write(&self, out: &mut Fields<'_>) {
        out.bytes(self);
    }
}

/// The rest of its record.
impl<'a> Field<'a> for &'a [u8] {
    #[inline]
    fn read(body: &mut Body<'a>) -> Result<Self, RecordError> {
        Ok(body.take_rest())
    }

    #[inline]
    fn write(&self, out: &mut Fields<'_>) {
        out.bytes(self);
    }

    #[inline]
    fn size(&self) -> usize {
        self.len()
    }
}

/// A name with its length before it.
impl<'a> Field<'a> for &'a str {
    fn read(body: &mut Body<'a>) -> Result<Self, RecordError> {
        let len: u8 = body.take()?;
        name(body.bytes(len.into())?)
    }

    fn write(&self, out: &mut Fields<'_>) {
        (self.len() as u8).write(out);
        out.bytes(self.as_bytes());
    }

    fn size(&self) -> usize {
        1 + self.len()
    }
}

impl Field<'_> for SocketAddr {
    fn read(body: &mut Body<'_>) -> Result<Self, RecordError> {
        Ok(address::from_fields(body.take()?, body.take()?, body.take()?))
    }

    fn write(&self, out: &mut Fields<'_>) {
        let (ip, interface, port) = address::to_fields(*self);
        out.bytes(&ip);
        interface.write(out);
        port.write(out);
    }

    fn size(&self) -> usize {
        16 + 4 + 2
    }
}

/// What a record may end without.
impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn read(body: &mut Body<'a>) -> Result<Self, RecordError> {
        if body.is_empty() { Ok(None) } else { body.take().map(Some) }
    }

    fn write(&self, out: &mut Fields<'_>) {
        if let Some(field) = self {
            field.write(out);
        }
    }

    fn size(&self) -> usize {
        self.as_ref().map_or(0, T::size)
    }
}

pub(super) fn name(name: &[u8]) -> Result<&str, RecordError> {
    let text = std::str::from_utf8(name).ok().filter(|_| is_name_bytes(name));
    text.ok_or(RecordError::NameInvalid)
}

/// `fields!(Type { a, b })`: a struct lies in a record field by field, in this order.
macro_rules! fields {
    ($type:ident { $($field:ident),+ }) => {
        impl Field<'_> for $type {
            fn read(body: &mut Body<'_>) -> Result<Self, RecordError> {
                Ok(Self { $($field: body.take()?),+ })
            }

            fn write(&self, out: &mut Fields<'_>) {
                $( self.$field.write(out); )+
            }

            fn size(&self) -> usize {
                0 $( + self.$field.size() )+
            }
        }
    };
}

/// `put!(writer, [kind, flags]; a, b)`: appends a record of these fields, in this order. Each is
/// asked for its size, and then written.
macro_rules! put {
    ($writer:expr, $head:expr; $($field:expr),*) => {
        $writer.record($head, 0 $( + $field.size() )*, |_body| { $( $field.write(_body); )* })
    };
}

/// Methods of the writer for records that can always be written: `KIND: method(field: type, ..);`.
macro_rules! writers {
    ($( $(#[$doc:meta])* $kind:ident: $method:ident($($field:ident: $type:ty),*); )+) => {
        impl Writer<'_> { $(
            $(#[$doc])*
            #[must_use]
            pub fn $method(&mut self $(, $field: $type)*) -> bool {
                put!(self, [kind::$kind, 0]; $($field),*)
            }
        )+ }
    };
}

/// Records that are nothing but their fields, a row each, for both ways: what [`writers`] takes,
/// and behind the arrow what one is read as. `fixed` reads those of a direction: `None` where there
/// is no row for the record, and where one that may be skipped is not exactly as its row says,
/// because that is of a later version and means something else.
macro_rules! records {
    ($direction:ident: $(
        $(#[$doc:meta])*
        $kind:ident: $method:ident($($field:ident: $type:ty),+) => $record:expr;
    )+) => {
        impl<'a> $direction<'a> {
            pub(super) fn fixed(frame: Frame<'a>) -> Result<Option<Self>, RecordError> {
                let body = Body::of(frame);
                let read = match frame.kind() {
                    _ if frame.flags() != 0 => return Ok(None),
                    $( kind::$kind => body.whole(|body| {
                        $( let $field = body.take()?; )+
                        Ok($record)
                    }), )+
                    _ => return Ok(None),
                };
                if frame.may_be_skipped() { Ok(read.ok()) } else { read.map(Some) }
            }
        }

        writers! { $( $(#[$doc])* $kind: $method($($field: $type),+); )+ }
    };
}

pub(super) use {fields, put, records, writers};

//! Records that came in pieces, put together again.
//!
//! There is room for so many at a time. A record that still lacks a piece when a later one needs
//! its place is given up and counted, so nothing grows and nothing is waited for.

use arrayvec::ArrayVec;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_link::bundle::BUNDLE_BYTES_MAX;

use crate::protocol::datagram::Refusal;
use crate::protocol::sections::Piece;

/// Records that may be incomplete at a time.
const PLACES: usize = 32;

/// Pieces of the longest record on the narrowest way.
const PIECES_MAX: usize = 16;

#[derive(Debug)]
struct Place {
    link: u16,
    number: u16,
    total: u16,
    /// Where the pieces lie that have come: offset and length.
    have: ArrayVec<(u16, u16), PIECES_MAX>,
}

/// Places for records in pieces.
#[derive(Debug)]
pub(crate) struct Pieces {
    places: [Option<Place>; PLACES],
    memory: Box<[u8]>,
}

impl Carry for Pieces {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { places, memory } = self;
        for (place, bytes) in places.iter().zip(memory.chunks_exact(BUNDLE_BYTES_MAX)) {
            place.is_some().write(out);
            let Some(Place { link, number, total, have }) = place else { continue };
            [*link, *number, *total].write(out);
            have.to_vec().write(out);
            for (at, len) in have {
                out.bytes(&bytes[usize::from(*at)..][..usize::from(*len)]);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let mut pieces = Self::new();
        for at in 0..PLACES {
            if !bool::read(from)? {
                continue;
            }
            let [link, number, total] = Carry::read(from)?;
            for (offset, len) in Vec::<(u16, u16)>::read(from)? {
                let bytes = from.bytes(len.into())?;
                let piece = Piece { link, number, offset, total, bytes };
                let taken = pieces.take(&piece);
                // A record that is whole was handed on long ago.
                let is_part = usize::from(number) % PLACES == at && taken == Ok((None, false));
                is_part.then_some(()).ok_or(Broken::Invalid("piece"))?;
            }
        }
        Ok(pieces)
    }
}

impl Pieces {
    pub(crate) fn new() -> Self {
        let memory = vec![0; PLACES * BUNDLE_BYTES_MAX].into_boxed_slice();
        Self { places: [const { None }; PLACES], memory }
    }

    /// Takes a piece in. Returns the record if that was the last, and whether another record was
    /// given up for it.
    pub(crate) fn take(&mut self, piece: &Piece<'_>) -> Result<(Option<&[u8]>, bool), Refusal> {
        let at = usize::from(piece.number) % PLACES;
        let end = usize::from(piece.offset) + piece.bytes.len();
        if piece.bytes.is_empty() || end > usize::from(piece.total).min(BUNDLE_BYTES_MAX) {
            return Err(Refusal::Malformed);
        }
        let given_up = self.make_place(at, piece)?;
        let memory = &mut self.memory[at * BUNDLE_BYTES_MAX..][..BUNDLE_BYTES_MAX];
        let place = self.places[at].as_mut().expect("it was made");
        place.add(piece).ok_or(Refusal::Malformed)?;
        memory[usize::from(piece.offset)..end].copy_from_slice(piece.bytes);
        if !place.is_complete() {
            return Ok((None, given_up));
        }
        self.places[at] = None;
        Ok((Some(&memory[..usize::from(piece.total)]), given_up))
    }

    /// Forgets what a link has left behind.
    pub(crate) fn forget(&mut self, link: u16) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|place| place.link == link) {
                *place = None;
            }
        }
    }

    /// Has the place be this record's. Whether it was another's, which is given up.
    fn make_place(&mut self, at: usize, piece: &Piece<'_>) -> Result<bool, Refusal> {
        let &Piece { link, number, total, .. } = piece;
        let given_up = match &self.places[at] {
            Some(place) if place.number == number => {
                let is_same = (place.link, place.total) == (link, total);
                return if is_same { Ok(false) } else { Err(Refusal::Malformed) };
            }
            // A straggler of a record that was given up.
            Some(place) if number.wrapping_sub(place.number) >= 1 << 15 => {
                return Err(Refusal::Incomplete);
            }
            other => other.is_some(),
        };
        self.places[at] = Some(Place { link, number, total, have: ArrayVec::new() });
        Ok(given_up)
    }
}

impl Place {
    /// Notes a piece that overlaps no other.
    fn add(&mut self, piece: &Piece<'_>) -> Option<()> {
        let (from, len) = (usize::from(piece.offset), piece.bytes.len());
        let is_apart = |&(at, bytes): &(u16, u16)| {
            let (at, bytes) = (usize::from(at), usize::from(bytes));
            from + len <= at || at + bytes <= from
        };
        let fits = self.have.iter().all(is_apart);
        fits.then(|| self.have.try_push((piece.offset, len as u16)).ok()).flatten()
    }

    fn is_complete(&self) -> bool {
        let have: usize = self.have.iter().map(|(_, bytes)| usize::from(*bytes)).sum();
        have == usize::from(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(number: u16, offset: u16, total: u16, bytes: &[u8]) -> Piece<'_> {
        Piece { link: 1, number, offset, total, bytes }
    }

    #[test]
    fn pieces_come_together_in_any_order() {
        let mut pieces = Pieces::new();
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let parts = [(0, &b"abc"[..]), (3, b"def"), (6, b"g")];
            for (turn, which) in order.into_iter().enumerate() {
                let (offset, bytes) = parts[which];
                let (whole, given_up) =
                    pieces.take(&piece(9, offset, 7, bytes)).expect("it is well-formed");
                let expected = (turn == 2).then_some(&b"abcdefg"[..]);
                assert_eq!((whole, given_up), (expected, false));
            }
        }
    }

    #[test]
    fn an_incomplete_record_gives_its_place_to_a_later_one_and_never_takes_it_back() {
        let mut pieces = Pieces::new();
        assert_eq!(pieces.take(&piece(u16::MAX, 0, 4, b"ab")), Ok((None, false)));
        let later = u16::MAX.wrapping_add(PLACES as u16);
        assert_eq!(pieces.take(&piece(later, 0, 4, b"ab")), Ok((None, true)));
        assert_eq!(pieces.take(&piece(u16::MAX, 2, 4, b"cd")), Err(Refusal::Incomplete));
        assert_eq!(pieces.take(&piece(later, 2, 4, b"cd")), Ok((Some(&b"abcd"[..]), false)));
    }

    #[test]
    fn what_cannot_be_a_piece_is_refused() {
        let mut pieces = Pieces::new();
        assert_eq!(pieces.take(&piece(1, 0, 4, b"ab")), Ok((None, false)));
        let too_long = vec![0; BUNDLE_BYTES_MAX + 1];
        for bad in [
            piece(2, 0, 4, b""),
            piece(2, 3, 4, b"ab"),
            piece(2, 0, u16::MAX, &too_long),
            piece(2, u16::MAX, u16::MAX, b"a"),
            piece(1, 1, 4, b"bc"),
            piece(1, 2, 5, b"cd"),
            Piece { link: 2, ..piece(1, 2, 4, b"cd") },
        ] {
            assert_eq!(pieces.take(&bad), Err(Refusal::Malformed), "{bad:?}");
        }
        pieces.forget(2);
        assert_eq!(pieces.take(&piece(1, 2, 4, b"cd")), Ok((Some(&b"abcd"[..]), false)));
        assert_eq!(pieces.take(&piece(3, 0, 4, b"ab")), Ok((None, false)));
        pieces.forget(1);
        assert_eq!(pieces.take(&piece(3, 2, 4, b"cd")), Ok((None, false)), "it begins anew");
    }
}

//! What a datagram's body is made of, once it is open: a mark, and sections back to back.

use crate::protocol::beat::Beat;

/// Bytes before the sections: how many ordered records had been sent on this lane's control stream.
pub(crate) const MARK_BYTES: usize = 4;

/// Bytes before a section's own fields: length, kind, flags.
pub(crate) const SECTION_BYTES: usize = 4;

/// Bytes of a section of records before its first record.
pub(crate) const RECORDS_BYTES: usize = SECTION_BYTES + 2;

/// Bytes of a section with a piece before the piece.
pub(crate) const PIECE_BYTES: usize = SECTION_BYTES + 8;

/// Kinds of sections. Those from 128 on may be passed over, as a bundle's records may.
pub(crate) mod kind {
    pub(crate) const RECORDS: u8 = 1;
    pub(crate) const PIECE: u8 = 2;
    pub(crate) const BEAT: u8 = 3;
    pub(crate) const PROBE: u8 = 4;
    pub(crate) const PROBED: u8 = 5;
    pub(crate) const QUESTION: u8 = 6;
    pub(crate) const ANSWER: u8 = 7;
    pub(crate) const FIRST_SKIPPABLE: u8 = 128;
}

/// A part of a record that did not fit one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) link: u16,
    /// Which record, among those in pieces.
    pub(crate) number: u16,
    /// Where in the record it lies, and how long that is.
    pub(crate) offset: u16,
    pub(crate) total: u16,
    pub(crate) bytes: &'a [u8],
}

/// One section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section<'a> {
    /// Whole records of a link.
    Records {
        link: u16,
        bytes: &'a [u8],
    },
    Piece(Piece<'a>),
    Beat(Beat),
    /// The peer asks whether a datagram of this size arrives.
    Probe {
        bytes: u16,
    },
    /// It has.
    Probed {
        bytes: u16,
    },
    /// The peer asks whether this side is where it has sent this.
    Question(u64),
    /// It is.
    Answer(u64),
    /// Of a later version.
    Unknown,
}

/// The mark of an open body, and its sections.
pub(crate) fn take_apart(body: &[u8]) -> Option<(u32, Sections<'_>)> {
    let (mark, rest) = body.split_first_chunk::<MARK_BYTES>()?;
    Some((u32::from_le_bytes(*mark), Sections { rest }))
}

/// Walks sections. `None` as an item is where the format is broken, and the last one.
#[derive(Clone, Debug)]
pub(crate) struct Sections<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Sections<'a> {
    type Item = Option<Section<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.rest);
        let Some((head, _)) = rest.split_first_chunk::<SECTION_BYTES>() else {
            // Fewer bytes than a section has, all of them filling.
            return if rest.iter().all(|byte| *byte == 0) { None } else { Some(None) };
        };
        let bytes = usize::from(u16::from_le_bytes([head[0], head[1]]));
        if bytes == 0 {
            return None;
        }
        let Some((section, rest)) = rest.split_at_checked(bytes) else { return Some(None) };
        let decoded = section.get(SECTION_BYTES..).and_then(|body| decode(head[2], head[3], body));
        if decoded.is_some() {
            self.rest = rest;
        }
        Some(decoded)
    }
}

#[inline]
fn decode(kind: u8, flags: u8, body: &[u8]) -> Option<Section<'_>> {
    if kind >= kind::FIRST_SKIPPABLE {
        return Some(Section::Unknown);
    }
    if flags != 0 {
        return None;
    }
    match kind {
        kind::RECORDS => {
            let (link, bytes) = body.split_first_chunk()?;
            Some(Section::Records { link: u16::from_le_bytes(*link), bytes })
        }
        kind::PIECE => {
            let (fields, bytes) = body.split_first_chunk::<8>()?;
            let at = |from: usize| u16::from_le_bytes([fields[from], fields[from + 1]]);
            let (link, number, offset, total) = (at(0), at(2), at(4), at(6));
            Some(Section::Piece(Piece { link, number, offset, total, bytes }))
        }
        kind::BEAT => Beat::read(body).map(Section::Beat),
        kind::PROBE => size(body).map(|bytes| Section::Probe { bytes }),
        kind::PROBED => size(body).map(|bytes| Section::Probed { bytes }),
        kind::QUESTION => number(body).map(Section::Question),
        kind::ANSWER => number(body).map(Section::Answer),
        _ => None,
    }
}

fn size(body: &[u8]) -> Option<u16> {
    body.try_into().ok().map(u16::from_le_bytes)
}

fn number(body: &[u8]) -> Option<u64> {
    body.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
        let bytes = (SECTION_BYTES + body.len()) as u16;
        [&bytes.to_le_bytes()[..], &[kind, flags], body].concat()
    }

    fn all(sections: &[u8]) -> Vec<Option<Section<'_>>> {
        Sections { rest: sections }.collect()
    }

    #[test]
    fn sections_follow_each_other_up_to_the_filling() {
        let body = [
            section(kind::RECORDS, 0, &[5, 0, 1, 2, 3]),
            section(kind::PIECE, 0, &[5, 0, 9, 1, 0, 2, 1, 2, 7]),
            section(200, 255, b"whatever"),
            section(kind::PROBED, 0, &[0xb0, 4]),
            section(kind::QUESTION, 0, &[1, 0, 0, 0, 0, 0, 0, 1]),
            section(kind::ANSWER, 0, &[2; 8]),
            vec![0; 9],
        ]
        .concat();
        let piece = Piece { link: 5, number: 265, offset: 512, total: 513, bytes: &[7] };
        let expected = [
            Section::Records { link: 5, bytes: &[1, 2, 3] },
            Section::Piece(piece),
            Section::Unknown,
            Section::Probed { bytes: 1200 },
            Section::Question(1 << 56 | 1),
            Section::Answer(0x0202_0202_0202_0202),
        ];
        assert_eq!(all(&body), expected.map(Some));
        assert_eq!(all(&[0; 3]), []);
    }

    #[test]
    fn what_breaks_the_format_ends_the_walk() {
        let good = section(kind::PROBE, 0, &[0, 5]);
        for bad in [
            vec![1],
            vec![3, 0, kind::PROBE],
            vec![3, 0, kind::PROBE, 0],
            vec![7, 0, kind::PROBE, 0, 1, 2],
            section(kind::PROBE, 1, &[0, 5]),
            section(kind::PROBE, 0, &[0, 5, 0]),
            section(kind::RECORDS, 0, &[5]),
            section(kind::PIECE, 0, &[5, 0, 9, 1, 0, 0, 0]),
            section(kind::BEAT, 0, &[5; 43]),
            section(kind::QUESTION, 0, &[0; 7]),
            section(kind::ANSWER, 0, &[0; 9]),
            section(8, 0, &[]),
            section(0, 0, &[]),
        ] {
            let body = [&good[..], &bad, &good].concat();
            assert_eq!(all(&body), [Some(Section::Probe { bytes: 1280 }), None], "{bad:?}");
        }
    }
}

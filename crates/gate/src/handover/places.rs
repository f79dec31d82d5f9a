//! Which table a place is in.

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Netcode,
    Unreal,
    Plain,
    Handshakes,
}

ringgate_core::carried_by_number!(Table { Netcode = 0, Unreal = 1, Plain = 2, Handshakes = 3 });

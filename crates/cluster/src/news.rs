//! What members tell each other of a player's address.

/// What has become of a player since others were told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It has come. Nobody was told of it before.
    Came,
    /// It is here, as others were told before: whoever says so last is believed.
    Still,
    /// It was told of, and is not here any more.
    Left,
}

impl News {
    /// Whether the player is here.
    pub const fn is_here(self) -> bool {
        matches!(self, Self::Came | Self::Still)
    }
}

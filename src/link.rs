//! What gateway and game process say to each other.

//! Keys that `top` knows, as terminals send them (ECMA-48, and xterm's two forms of Home and End).

/// One key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    ControlC,
    Down,
    End,
    Escape,
    Home,
    PageDown,
    PageUp,
    Up,
}

/// The keys in what a terminal has sent at once; what `top` does not know is passed over.
pub(super) fn keys(mut sent: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = sent.split_first() {
        let (key, left) = match first {
            ESCAPE => sequence(rest),
            CONTROL_C => (Some(Key::ControlC), rest),
            b' '..=b'~' => (Some(Key::Character(char::from(first))), rest),
            _ => (None, rest),
        };
        keys.extend(key);
        sent = left;
    }
    keys
}

/// What follows an escape: a sequence up to its last byte, or nothing, which is the key itself.
fn sequence(rest: &[u8]) -> (Option<Key>, &[u8]) {
    let Some((b'[' | b'O', sequence)) = rest.split_first() else {
        return (Some(Key::Escape), rest);
    };
    let end = sequence.iter().position(|byte| (b'@'..=b'~').contains(byte));
    let (body, left) = sequence.split_at(end.map_or(sequence.len(), |end| end + 1));
    let key = match body {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"F" | b"4~" | b"8~" => Some(Key::End),
        b"H" | b"1~" | b"7~" => Some(Key::Home),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        _ => None,
    };
    (key, left)
}

const ESCAPE: u8 = 0x1b;
const CONTROL_C: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_alone_and_in_a_row() {
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(
            keys(b"q\x1b[A\x1bOB\x1b[5~"),
            [Key::Character('q'), Key::Up, Key::Down, Key::PageUp]
        );
        assert_eq!(keys(b"\x1b[1~\x1b[F\x03"), [Key::Home, Key::End, Key::ControlC]);
    }

    #[test]
    fn unknown_sequences_are_passed_over_whole() {
        assert_eq!(keys(b"\x1b[15~\x1b[1;5Cj\x80\x1b["), [Key::Character('j')]);
    }
}

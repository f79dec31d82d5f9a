//! Memory that the other process reads, and what it has written itself: copied before it is looked
//! at, because that process could change it meanwhile. The copies are wiped: keys are among what is
//! handed over.

use std::io;
use std::os::fd::AsFd;

use ringgate_os::shared::{self, Writing};
use zeroize::Zeroizing;

/// The first so many bytes of a memory.
pub fn read(memory: &impl AsFd, bytes: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let len = usize::try_from(bytes).map_err(|_| NO_ROOM)?;
    let mut copy = room(len)?;
    shared::read(memory.as_fd(), 0, &mut copy)
        .map_err(|why| format!("cannot read what was given: {why}"))?;
    Ok(copy)
}

/// Memory with some bytes, for the other process. It is wiped when this is dropped.
pub fn filled(bytes: &[u8]) -> io::Result<Writing> {
    let mut memory = Writing::new(bytes.len())?;
    memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Ok(memory)
}

/// Room for so many bytes. How many is what the other process says: there may be no such room.
pub fn room(bytes: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut room = Zeroizing::new(Vec::new());
    room.try_reserve_exact(bytes).map_err(|_| NO_ROOM)?;
    room.resize(bytes, 0);
    Ok(room)
}

const NO_ROOM: &str = "there is no memory for the state";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_to_be_there_and_is_not_is_refused() {
        let memory = filled(b"what is ").expect("memory");
        assert_eq!(read(&memory.fd(), 8).expect("it is there").as_slice(), b"what is ");
        for bytes in [u64::MAX, 1 << 62] {
            assert_eq!(read(&memory.fd(), bytes).expect_err("too much"), NO_ROOM);
        }
        let why = read(&memory.fd(), 9).expect_err("it ends before");
        assert!(why.starts_with("cannot read what was given"), "{why}");
    }
}

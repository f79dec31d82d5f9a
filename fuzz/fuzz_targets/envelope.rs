//! What another process gives beside its streams, with any number of descriptors: what is opened is
//! sealed again as it was, so nothing in it was passed over or guessed.
#![no_main]

use std::fs::File;
use std::os::fd::OwnedFd;

use libfuzzer_sys::fuzz_target;
use ringgate_process::handover::{Envelope, memory};

fuzz_target!(|data: &[u8]| {
    let Some((count, bytes)) = data.split_first() else { return };
    let fd = |_| OwnedFd::from(File::open("/dev/null").expect("it is there"));
    if let Ok(envelope) = Envelope::open(bytes, (0..count % 8).map(fd).collect()) {
        let (memory, len, fds) = envelope.seal().expect("there is memory");
        let again = memory::read(&memory.fd(), len).expect("it is our own");
        assert_eq!((&**again, fds.len()), (bytes, usize::from(count % 8)));
    }
});

//! Answers of an etcd that may be anybody: every message is read or refused, in whatever pieces it
//! arrives, and nothing is larger than what has come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_fleet::etcd::frame::Frames;
use ringgate_fleet::etcd::kv::Ranged;
use ringgate_fleet::etcd::lease::Lease;
use ringgate_fleet::etcd::txn::Decided;
use ringgate_fleet::etcd::watch::Watched;

fuzz_target!(|data: &[u8]| {
    let Some((&piece, stream)) = data.split_first() else { return };
    let mut frames = Frames::default();
    for piece in stream.chunks(usize::from(piece) + 1) {
        frames.extend(piece);
        while let Ok(Some(message)) = frames.next_message() {
            if let Ok(ranged) = Ranged::decode(&message) {
                assert!(ranged.kvs.len() <= message.len());
            }
            if let Ok(decided) = Decided::decode(&message) {
                assert!(decided.found.len() <= message.len());
            }
            if let Ok(watched) = Watched::decode(&message) {
                // Each byte that is no text has three that say so.
                let reason = watched.cancel_reason.len() / 3;
                assert!(watched.events.len() + reason <= message.len());
            }
            let _ = Lease::decode(&message);
        }
    }
});

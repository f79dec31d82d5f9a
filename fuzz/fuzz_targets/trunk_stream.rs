//! A trunk's stream from a peer that says whatever it likes: the inbox reads the same however the
//! stream is cut, and the conversation lets nothing through before both sides are introduced.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_trunk::protocol::control::{Control, Inbox};
use ringgate_trunk::protocol::handshake::{Conversation, FrameAction};
use ringgate_trunk::protocol::lane::Role;

fuzz_target!(|data: &[u8]| {
    let Some((&how, stream)) = data.split_first() else { return };
    let at_once = usize::from(how >> 1) + 1;
    let role = if how & 1 == 0 { Role::Agent } else { Role::Gateway };
    assert_eq!(read(role, stream, at_once), read(role, stream, stream.len().max(1)));
});

fn read(role: Role, stream: &[u8], at_once: usize) -> Vec<String> {
    let (mut inbox, mut conversation) = (Inbox::default(), Conversation::new(role));
    let mut read = Vec::new();
    for mut part in stream.chunks(at_once) {
        while !part.is_empty() {
            let room = inbox.room();
            let (now, later) = part.split_at(part.len().min(room.len()));
            assert!(!now.is_empty(), "what was taken out has left room");
            room[..now.len()].copy_from_slice(now);
            inbox.handle_read(now.len());
            part = later;
            while let Some(control) = inbox.next() {
                let Ok(control) = control else {
                    read.push("malformed".to_owned());
                    return read;
                };
                if let Control::Record { frame, .. } = control {
                    assert!(!frame.may_be_lost());
                }
                let step = conversation.handle(control);
                if let Ok(FrameAction::Decide { .. }) = step {
                    assert!(!conversation.has_begun());
                }
                read.push(format!("{step:?}"));
                match step {
                    Ok(FrameAction::Decide { .. }) => conversation.begin(2),
                    Ok(FrameAction::Lane(_)) => assert!(conversation.has_begun()),
                    Ok(_) => {}
                    Err(_) => return read,
                }
            }
        }
    }
    read
}

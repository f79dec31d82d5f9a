//! The smallest game server: every player gets back what it sends.
//!
//! `cargo run -p ringgate-link --example echo_backend -- RUN_DIR [NAME]`

use std::io;

use ringgate_link::backend::{Event, Options};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let run_dir = arguments.next().unwrap_or_else(|| "/run/ringgate".to_owned());
    let name = arguments.next().unwrap_or_else(|| "arena-1".to_owned());

    let mut backend = Options::new(run_dir, name).start()?;
    loop {
        backend.wait(None)?;
        let mut events = backend.poll()?;
        while let Some((event, outbox)) = events.next() {
            match event {
                // A full link drops the answer, as the internet would; the outbox counts it.
                Event::Payload { session, bytes } => drop(outbox.send(session, bytes)),
                Event::Opened(player) => {
                    println!("player {} is in slot {}", player.client_id, player.slot);
                }
                other => println!("{other:?}"),
            }
        }
        backend.flush();
    }
}

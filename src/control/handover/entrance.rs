//! Where successors come to that were not started by the daemon: root's only.

use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::mpsc;

use crate::control::http::Command;
use ringgate_worker::handover::{Channel, Message};

/// Takes successors that come by themselves.
pub(in crate::control) async fn serve(listener: UnixListener, commands: mpsc::Sender<Command>) {
    loop {
        let channel = next_successor(&listener).await;
        if commands.send(Command::Successor(channel)).await.is_err() {
            return;
        }
    }
}

/// The next one that is root's. No other is listened to.
pub(in crate::control) async fn next_successor(listener: &UnixListener) -> Channel {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            continue;
        };
        let uid = stream.peer_cred().ok().map(|peer| peer.uid());
        let channel = stream.into_std().and_then(|it| Channel::from_fd(it.into()));
        let Ok(channel) = channel else { continue };
        if uid == Some(ROOT) {
            return channel;
        }
        let _ = channel.say(&Message::refused(&NOT_ENTITLED), &[]);
    }
}

const ROOT: u32 = 0;

const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

const NOT_ENTITLED: &str =
    "only root may take over; `ringgate upgrade` has the daemon start the next one itself";

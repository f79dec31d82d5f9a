//! Where successors come to that the running process has not started itself: root's only.

use std::time::Duration;

use tokio::net::UnixListener;

use super::channel::Channel;
use super::message::Message;

/// The next one that is root's. No other is listened to.
pub async fn next_successor(listener: &UnixListener) -> Channel {
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

//! A network between client and server that can be slow, or swallow everything without a word.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::own::own_ip;

/// What a proxy does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Hands them on.
    Open,
    /// Hands them on after this time.
    Slow(Duration),
    /// Keeps them, and connections open.
    Swallows,
    /// Keeps what the server says alone.
    SwallowsAnswers,
}

/// What keeps what is said to the server, and what it says.
const TO_SERVER: &[Mood] = &[Mood::Swallows];
const FROM_SERVER: &[Mood] = &[Mood::Swallows, Mood::SwallowsAnswers];

pub(crate) struct Proxy {
    pub(crate) port: u16,
    mood: Arc<watch::Sender<Mood>>,
}

impl Proxy {
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind((own_ip(), 0)).await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let mood = Arc::new(watch::Sender::new(Mood::Open));
        let told = Arc::clone(&mood);
        tokio::spawn(async move {
            while let Ok((player, _)) = listener.accept().await {
                tokio::spawn(join(player, server_port, Arc::clone(&told)));
            }
        });
        Self { port, mood }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }
}

async fn join(player: TcpStream, server_port: u16, mood: Arc<watch::Sender<Mood>>) {
    let mut moods = mood.subscribe();
    // A network that swallows lets nobody through either.
    let _ = moods.wait_for(|mood| *mood != Mood::Swallows).await;
    let address = SocketAddr::from((own_ip(), server_port));
    let Ok(server) = TcpStream::connect(address).await else { return };
    let ((player_in, player_out), (server_in, server_out)) =
        (player.into_split(), server.into_split());
    tokio::select! {
        () = carry(player_in, server_out, TO_SERVER, mood.subscribe()) => {}
        () = carry(server_in, player_out, FROM_SERVER, mood.subscribe()) => {}
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    kept_by: &[Mood],
    mut mood: watch::Receiver<Mood>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(len) = from.read(&mut buffer).await else { return };
        if len == 0 {
            return;
        }
        let Ok(now) = mood.wait_for(|mood| !kept_by.contains(mood)).await.map(|mood| *mood) else {
            return;
        };
        if let Mood::Slow(delay) = now {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}

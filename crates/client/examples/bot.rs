//! A bot: sends a reliable message ten times a second and asks what became of it, reads what the
//! game server sends, and says at the end what the connection was like.
//!
//! `cargo run -p ringgate-client --example bot -- TOKEN_FILE [SECONDS]`

use std::error::Error;
use std::time::{Duration, Instant};

use ringgate_client::{Channel, Client, Event, Options, SendError};
use ringgate_core::netcode::ConnectToken;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: bot TOKEN_FILE [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let token = ConnectToken::decode(&std::fs::read(path)?)?;
    let mut bot = Bot::default();
    bot.play(&token, Duration::from_secs(seconds))?;
    println!("{} sent, {} delivered, {} lost", bot.sent, bot.delivered, bot.lost);
    println!("{} messages came, {} of them snapshots", bot.messages, bot.snapshots);
    Ok(())
}

#[derive(Default)]
struct Bot {
    sent: u64,
    delivered: u64,
    lost: u64,
    messages: u64,
    snapshots: u64,
}

impl Bot {
    #[expect(clippy::disallowed_methods, reason = "a bot has a clock of its own")]
    fn play(&mut self, token: &ConnectToken, for_how_long: Duration) -> Result<(), Box<dyn Error>> {
        let mut client = Client::connect(token, &Options::default())?;
        let start = Instant::now();
        while !client.is_finished() {
            client.turn(Duration::from_millis(10))?;
            self.read(&mut client);
            if !client.is_connected() {
                continue;
            }
            let is_over = start.elapsed() > for_how_long;
            if is_over && client.has_delivered_all() {
                let quality = client.quality().unwrap_or_default();
                let (round_trip_ms, loss) =
                    (quality.round_trip_ns / 1_000_000, quality.loss_per_mille);
                println!("round trip {round_trip_ms} ms, {loss} of 1000 packets lost");
                client.disconnect();
            } else if !is_over && start.elapsed() >= LINE_EVERY * self.sent as u32 {
                self.say(&mut client)?;
            }
        }
        Ok(())
    }

    fn say(&mut self, client: &mut Client) -> Result<(), SendError> {
        let line = format!("line {}", self.sent);
        match client.send(Channel::Reliable(0), line.as_bytes(), Some(self.sent)) {
            Ok(()) => self.sent += 1,
            // What was said before has to arrive first.
            Err(SendError::Full) => {}
            Err(why) => return Err(why),
        }
        Ok(())
    }

    fn read(&mut self, client: &mut Client) {
        while let Some(event) = client.poll_event() {
            match event {
                Event::Connected { server, slot, .. } => println!("in slot {slot} of {server}"),
                Event::Message(Channel::Reliable(_), bytes) => {
                    self.messages += 1;
                    println!("{}", String::from_utf8_lossy(bytes));
                }
                Event::Message(..) => {
                    self.messages += 1;
                    self.snapshots += 1;
                }
                Event::Reported(report) if report.is_delivered => self.delivered += 1,
                Event::Reported(_) => self.lost += 1,
                Event::NextServer { server } => println!("on to {server}"),
                Event::Closed(reason) => println!("{}", reason.name()),
            }
        }
    }
}

const LINE_EVERY: Duration = Duration::from_millis(100);

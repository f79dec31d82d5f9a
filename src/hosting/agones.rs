//! What Agones says of a game server: `GET /gameserver` at its SDK server, which stands beside each
//! game server and listens on loopback alone.

use ringgate_fleet::values::State;
use serde::Deserialize;

use super::http;
use crate::config::hosted::Url;

/// As much of it as matters here.
#[derive(Deserialize)]
struct GameServer {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    state: String,
}

/// What the game server is ready for. The error is one sentence.
pub(super) async fn state(server: &Url) -> Result<State, String> {
    let path = format!("{}/gameserver", server.path.trim_end_matches('/'));
    let url = Url { path, ..server.clone() };
    let body = http::body(&url).await.map_err(|why| why.to_string())?;
    read(&body)
}

fn read(body: &[u8]) -> Result<State, String> {
    let found: GameServer =
        serde_json::from_slice(body).map_err(|why| format!("it says no game server: {why}"))?;
    let mut state = found.status.state;
    let known = of(&state);
    known.ok_or_else(|| {
        state.truncate(state.floor_char_boundary(STATE_BYTES_SHOWN));
        format!("its state {state:?} is not known")
    })
}

/// Each of Agones' states is one of ours.
fn of(state: &str) -> Option<State> {
    Some(match state {
        "PortAllocation" | "Creating" | "Starting" | "Scheduled" | "RequestReady" => {
            State::Starting
        }
        "Ready" => State::Ready,
        "Allocated" | "Reserved" => State::Allocated,
        "Shutdown" | "Error" | "Unhealthy" => State::Draining,
        _ => return None,
    })
}

/// Longer than any name of a state.
const STATE_BYTES_SHOWN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_agones_is_one_of_ours() {
        for (agones, ours) in [
            ("PortAllocation", State::Starting),
            ("Creating", State::Starting),
            ("Starting", State::Starting),
            ("Scheduled", State::Starting),
            ("RequestReady", State::Starting),
            ("Ready", State::Ready),
            ("Reserved", State::Allocated),
            ("Allocated", State::Allocated),
            ("Shutdown", State::Draining),
            ("Error", State::Draining),
            ("Unhealthy", State::Draining),
        ] {
            let body = format!(
                r#"{{"object_meta":{{"name":"local","namespace":"default"}},"status":{{"state":"{agones}","address":"127.0.0.1",
                "ports":[{{"name":"default","port":7777}}]}}}}"#
            );
            assert_eq!(read(body.as_bytes()), Ok(ours), "{agones}");
        }
    }

    #[test]
    fn what_is_not_known_is_said() {
        let why = read(br#"{"status":{"state":"Asleep"}}"#);
        assert_eq!(why, Err("its state \"Asleep\" is not known".to_owned()));
        let long = format!(r#"{{"status":{{"state":"{}"}}}}"#, "é".repeat(9_999));
        assert!(read(long.as_bytes()).is_err_and(|why| why.len() < 80));
        for body in [&b""[..], b"[]", b"{}", br#"{"status":{}}"#] {
            assert!(read(body).is_err());
        }
    }
}

//! Makes tokens for a place, and the answers that callers get.

use ringgate_report::text::Append as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringgate_core::netcode::{self, ServerAddresses, TokenSpec};
use zeroize::Zeroizing;

use crate::choose::Chosen;
use crate::desk::Placed;
use crate::refusal::Refusal;
use crate::wanted::{WantedToken, user_data};

/// The answer to a request for a token, as JSON: the one with this index of those that were placed
/// together, which lives for so long. Names and addresses need no escapes.
pub fn token(
    wanted: &WantedToken,
    (placed, index): (&Placed, usize),
    (now_s, expire_s): (u64, u64),
) -> Result<String, Refusal> {
    let chosen = &placed.chosen;
    let (epoch, key) = placed.key.as_ref().ok_or(Refusal::NoKey)?;
    let told = Some(chosen.protocol_id).filter(|id| *id != 0);
    let protocol_id = wanted.protocol_id.or(told).ok_or(Refusal::ProtocolIdWrong)?;
    let addresses: Vec<_> = chosen.gateways.iter().map(|(_, address)| *address).collect();
    let servers = ServerAddresses::new(&addresses).map_err(|_| Refusal::NoGateway)?;
    let tag = placed.tags.get(index).copied();
    let spec = TokenSpec {
        lifetime_seconds: Some(expire_s),
        timeout_seconds: wanted.timeout_s,
        user_data: user_data(chosen.backend.as_str(), &wanted.user_data, tag),
        ..TokenSpec::new(protocol_id, wanted.client_id, servers)
    };
    let token = netcode::mint(&spec, key, now_s).map_err(|_| Refusal::NoRandomness)?;
    let bytes = Zeroizing::new(token.to_bytes());
    let mut text = String::with_capacity(ANSWER_BYTES);
    text.push_str("{\"token\":\"");
    STANDARD.encode_string(bytes.as_slice(), &mut text);
    text.push_str("\",");
    put_place(&mut text, chosen);
    write!(
        text,
        ",\"client_id\":\"{}\",\"protocol_id\":\"{protocol_id}\",\"expires\":{},\"epoch\":{epoch}}}",
        wanted.client_id, token.expire_unix_s,
    );
    Ok(text)
}

/// The answer to a request for a place.
pub fn place(placed: &Placed) -> String {
    let chosen = &placed.chosen;
    let mut text = String::from("{");
    put_place(&mut text, chosen);
    write!(text, ",\"protocol\":\"{}\"", chosen.protocol);
    if let Some(token) = &placed.routing_token {
        text.push_str(",\"routing_token\":\"");
        STANDARD.encode_string(token, &mut text);
        text.push_str("\",\"routing_token_hex\":\"");
        for byte in token {
            write!(text, "{byte:02x}");
        }
        text.push('"');
    }
    text.push('}');
    text
}

/// The backend is left out where players cannot be sent to it: the gateway chooses.
fn put_place(text: &mut String, chosen: &Chosen) {
    let is_promised =
        chosen.protocol != "unreal" && (chosen.protocol != "plain" || chosen.token_bytes > 0);
    if is_promised {
        write!(text, "\"backend\":\"{}\",", chosen.backend);
    }
    write!(text, "\"group\":\"{}\",\"listener\":\"{}\",", chosen.group, chosen.listener);
    text.push_str("\"addresses\":[");
    for (index, (_, address)) in chosen.gateways.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\"{address}\"");
    }
    text.push_str("],\"gateways\":[");
    for (index, (gateway, _)) in chosen.gateways.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\"{gateway}\"");
    }
    text.push(']');
}

/// The answer to a request that is refused; `detail` where there is more to say.
pub fn refusal(why: Refusal, detail: Option<&str>) -> String {
    let detail = detail.unwrap_or_else(|| why.why());
    serde_json::json!({ "error": why.word(), "message": detail }).to_string()
}

/// Room for a token of 2,048 bytes in base64, and what is said beside it.
const ANSWER_BYTES: usize = 3200;

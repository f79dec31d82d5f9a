//! Arguments of plain players: what a gateway looks for in a datagram that it does not understand.

use std::net::SocketAddr;

use super::outcome::Failure;
use crate::players::{Plain, Sequence, TokenAt};

/// What plain players say.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct PlainArgs {
    /// Players speak plain UDP instead of netcode, to a server that answers each datagram with
    /// itself, or to a gateway before one: no handshake, no key; datagrams are as long as
    /// netcode's around the same payload, token and number not counted
    #[arg(long, conflicts_with_all = ["key", "tokens", "protocol_id", "backend", "unreal"])]
    pub(super) plain: bool,
    /// Plain: bytes that every datagram carries, in hex; of several tokens each player has one,
    /// in turns
    #[arg(long = "routing-token", alias = "token", value_name = "HEX,…", value_delimiter = ',', value_parser = token, requires = "plain")]
    token: Vec<Token>,
    /// Plain: where the token stands
    #[arg(long, value_enum, value_name = "WHERE", default_value = "end", requires = "token")]
    token_at: TokenAt,
    /// Plain: a number of 8, 16 or 32 bits, big-endian, so many bytes from the datagram's start
    /// (a token at the start counted): it counts each player's datagrams, from anywhere, and wraps
    #[arg(long, value_name = "OFFSET:BITS", value_parser = sequence, requires = "plain")]
    sequence: Option<Sequence>,
}

#[derive(Clone, Debug)]
struct Token(Box<[u8]>);

impl PlainArgs {
    /// Refuses words of plain players among those of others. The parser lets them pass beside
    /// `--key`, because `--plain` conflicts with that.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.plain || (self.token.is_empty() && self.sequence.is_none()) {
            return Ok(());
        }
        Err(Failure::BadInput("--token and --sequence are about --plain players".into()))
    }

    pub(super) fn setup(&self, server: SocketAddr) -> Result<Plain, Failure> {
        let tokens = self.token.iter().map(|Token(bytes)| bytes.clone()).collect();
        let Self { token_at, sequence, .. } = *self;
        let plain = Plain { server: server.into(), tokens, token_at, sequence };
        let fail = |why| Failure::BadInput(format!("--token, --sequence: {why}"));
        plain.check().map(|()| plain).map_err(fail)
    }
}

fn token(text: &str) -> Result<Token, String> {
    let fail = || "pairs of hex digits, 1 to 64 of them".to_owned();
    let digits: Vec<u32> = text.chars().map_while(|digit| digit.to_digit(16)).collect();
    let is_whole = digits.len() == text.chars().count() && digits.len().is_multiple_of(2);
    if !is_whole || !(1..=64).contains(&(digits.len() / 2)) {
        return Err(fail());
    }
    Ok(Token(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()))
}

fn sequence(text: &str) -> Result<Sequence, String> {
    let fail = || "a number's place like 4:16, its bits being 8, 16 or 32".to_owned();
    let (offset, bits) = text.split_once(':').ok_or_else(fail)?;
    let offset = offset.parse().map_err(|_| fail())?;
    let bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        _ => return Err(fail()),
    };
    Ok(Sequence { offset, bytes })
}

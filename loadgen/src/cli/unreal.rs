//! Arguments of Unreal players: what an engine has in its configuration and its build.

use std::net::SocketAddr;
use std::time::Duration;

use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::prefix::Magic;

use super::values::number;
use crate::players::Unreal;

/// What Unreal players say.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct UnrealArgs {
    /// Players speak Unreal's handshake and packet header instead of netcode: no key, no tokens;
    /// payloads of up to 952 bytes
    #[arg(long, conflicts_with_all = ["key", "tokens", "protocol_id", "backend"])]
    pub(super) unreal: bool,
    /// Unreal: the bits in front of every packet (net.MagicHeader), like 11011101
    #[arg(long, value_name = "BITS", default_value = "", value_parser = magic, requires = "unreal")]
    magic: Magic,
    /// Unreal: handshake version, 0 to 4
    #[arg(long, value_name = "N", default_value = "4", value_parser = version, requires = "unreal")]
    handshake_version: u8,
    /// Unreal: no network features in handshake packets, as in some engines of versions 2 and 3
    #[arg(long, requires = "unreal")]
    short_base: bool,
    /// Unreal: the build, as servers compare it (decimal or 0x…)
    #[arg(long, value_name = "N", default_value = "0x12345678", value_parser = network_version, requires = "unreal")]
    network_version: u32,
}

impl UnrealArgs {
    pub(super) fn setup(&self, server: SocketAddr, timeout: Duration) -> Unreal {
        let Self { magic, handshake_version, short_base, network_version, .. } = *self;
        Unreal {
            server: server.into(),
            profile: Profile::of_engine(magic, handshake_version, short_base, network_version),
            timeout_ns: timeout.as_nanos() as u64,
        }
    }
}

fn magic(text: &str) -> Result<Magic, String> {
    Magic::from_text(text).ok_or_else(|| "at most 32 digits, each 0 or 1".into())
}

fn version(text: &str) -> Result<u8, String> {
    let version = text.parse().ok().filter(|version| *version <= 4);
    version.ok_or_else(|| "a version from 0 to 4".into())
}

fn network_version(text: &str) -> Result<u32, String> {
    number(text).and_then(|number| u32::try_from(number).map_err(|_| "a number of 32 bits".into()))
}

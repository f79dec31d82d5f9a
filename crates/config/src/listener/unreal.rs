//! The fields of Unreal listeners.

use std::num::NonZeroU16;
use std::time::Duration;

use toml::de::DeValue;

use crate::declare::{Declared, declare};
use crate::schema::Kind;
use crate::section::{Read, Section, integer, number};
use crate::{HandshakeBase, HandshakeVersions, NetworkVersions, UnrealMode, values};
use ringgate_core::limits::UNREAL_GAP_MAX;

declare! {
    /// The fields of an Unreal listener.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Unreal only ["unreal"] {
        /// The bits that start every packet, as the engine's net.MagicHeader writes them.
        magic: Vec<bool> = text("up to 32 digits 0 and 1", values::magic), default: "", Restart;
        /// Handshake versions to serve: [0], or any of 1 and 2, or any of 3 and 4. The packets of
        /// these three kinds begin differently, so each needs a listener of its own.
        versions: HandshakeVersions = custom(Kind::List {
            items: "handshake versions",
            item: "a version from 0 to 4",
        }, read_versions), default: [3, 4], Restart;
        /// Whether handshake packets of versions 2 to 4 have a field for network features, which
        /// depends on how the engine was built and cannot be seen in a packet. "auto": as in the
        /// servers' answers. "long": they have it. "short": they do not.
        handshake_base: HandshakeBase = word, default: "auto", Restart;
        /// "notify": packet headers are in the clear, duplicates are found by sequence. "opaque":
        /// game packets are encrypted or compressed, exact copies within one second are dropped.
        mode: UnrealMode = word, default: "notify", Restart;
        /// Whether duplicates are dropped at all.
        window: bool = word, default: "on", Restart;
        /// A jump over more than this many packets ends the session, by two packets, because
        /// nothing proves who has sent one. 0: any jump is fine.
        gap_limit: Option<NonZeroU16> =
            value("a whole number from 0 to 8191 (unreal)", gap_limit), default: 0, Reload;
        /// The network versions (checksums of project and engine versions) that may connect.
        network_versions: NetworkVersions = value(
            "\"any\" or a list of 32-bit numbers such as [\"0x12345678\"]", network_versions
        ), default: "any", Restart;
        /// A player who is silent for this long is gone: what engines give a silent connection, or
        /// less. One whose connection was closed, or whose server has travelled or was started
        /// again, is gone after three seconds.
        idle_timeout: Duration = duration("1s", "1h"), default: "30s", Restart;
        /// Has no effect any more: quiet players are asked to restart once their small packets have
        /// paid for the question.
        restart_small: Option<bool> = flag, optional: false, Reload;
    }
}

pub(super) fn read(section: &mut Section<'_, '_>) -> Option<Unreal> {
    let found = Unreal::find(section);
    // Packets whose numbers are not read have no gaps that could be seen.
    let is_read = found.mode != Some(UnrealMode::Opaque) && found.window != Some(false);
    if let Some(limit) = found.gap_limit.flatten().filter(|_| !is_read) {
        let found = format_args!("{limit} where the numbers of packets are not read");
        section.expected("gap_limit", found, "0, or mode = \"notify\" and window = \"on\"");
    }
    Unreal::whole(found)
}

fn gap_limit(value: &DeValue<'_>) -> Read<Option<NonZeroU16>> {
    let limit = u16::try_from(integer(value)?).ok().filter(|limit| *limit <= UNREAL_GAP_MAX);
    limit.map(NonZeroU16::new)
}

fn read_versions(section: &mut Section<'_, '_>, name: &str) -> Option<HandshakeVersions> {
    let served =
        |value: &DeValue<'_>| u8::try_from(integer(value)?).ok().filter(|version| *version <= 4);
    let versions = section.list(name, served)?;
    let first = versions.first()?;
    if let Some(at) = versions.iter().position(|other| kind(*other) != kind(*first)) {
        let (place, other) = (section.place_in(name, at), versions[at]);
        section.report.expected(
            &place,
            format_args!("{other} beside {first}"),
            "0 alone, 1 and 2, or 3 and 4 (their packets begin differently; each kind needs a listener of its own)",
        );
        return None;
    }
    let oldest = versions.iter().copied().min()?;
    let newest = versions.iter().copied().max()?;
    Some(match kind(oldest) {
        Begin::Original => HandshakeVersions::Original,
        Begin::Early => HandshakeVersions::Early(oldest..=newest),
        Begin::Versioned => HandshakeVersions::Versioned(oldest..=newest),
    })
}

/// How packets begin.
#[derive(PartialEq, Eq)]
enum Begin {
    Original,
    Early,
    Versioned,
}

const fn kind(version: u8) -> Begin {
    match version {
        0 => Begin::Original,
        1 | 2 => Begin::Early,
        _ => Begin::Versioned,
    }
}

fn network_versions(value: &DeValue<'_>) -> Option<NetworkVersions> {
    if value.as_str() == Some("any") {
        return Some(NetworkVersions::Any);
    }
    let list = value.as_array().filter(|list| !list.is_empty())?;
    list.iter()
        .map(|element| number(element.get_ref()).and_then(|number| u32::try_from(number).ok()))
        .collect::<Option<_>>()
        .map(NetworkVersions::Only)
}

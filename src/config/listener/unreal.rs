//! The fields of Unreal listeners.

use std::num::NonZeroU16;
use std::time::Duration;

use toml::de::DeValue;

use crate::config::mistake::Place;
use crate::config::section::{Section, integer, number};
use crate::config::{HandshakeVersions, NetworkVersions, Unreal, UnrealMode, values};
use ringgate_core::limits::UNREAL_GAP_MAX;

pub(super) fn read(section: &mut Section<'_, '_>) -> Option<Unreal> {
    let magic = section.text("magic", values::magic);
    let versions = read_versions(section);
    let handshake_base = section.choice("handshake_base");
    let mode = section.choice("mode");
    let window = section.choice("window");
    let gap_limit = read_gap_limit(section, mode.as_ref(), window.as_ref());
    let network_versions = section.value("network_versions", network_versions);
    let idle_timeout = section.duration_or("idle_timeout", IDLE_TIMEOUT);
    Some(Unreal {
        magic: magic?.0,
        versions: versions?,
        handshake_base: handshake_base?.0,
        mode: mode?.0,
        window: window?.0,
        network_versions: network_versions?.0,
        gap_limit: NonZeroU16::new(gap_limit?),
        idle_timeout: idle_timeout?,
    })
}

/// Which fields a listener's file names that have no effect any more.
pub(super) fn read_ignored(section: &mut Section<'_, '_>) -> Option<Vec<&'static str>> {
    let restart_small = section.is_said("restart_small")?;
    Some(restart_small.then_some("restart_small").into_iter().collect())
}

fn read_versions(section: &mut Section<'_, '_>) -> Option<HandshakeVersions> {
    let served =
        |value: &DeValue<'_>| u8::try_from(integer(value)?).ok().filter(|version| *version <= 4);
    let versions = section.list("versions", served)?;
    let (first, _) = versions.first()?;
    if let Some((other, place)) = versions.iter().find(|(other, _)| kind(*other) != kind(*first)) {
        section.report.expected(
            place,
            format_args!("{other} beside {first}"),
            "0 alone, 1 and 2, or 3 and 4 (their packets begin differently; each kind needs a listener of its own)",
        );
        return None;
    }
    let oldest = versions.iter().map(|(version, _)| *version).min()?;
    let newest = versions.iter().map(|(version, _)| *version).max()?;
    Some(match kind(oldest) {
        Kind::Original => HandshakeVersions::Original,
        Kind::Early => HandshakeVersions::Early(oldest..=newest),
        Kind::Versioned => HandshakeVersions::Versioned(oldest..=newest),
    })
}

/// How packets begin.
#[derive(PartialEq, Eq)]
enum Kind {
    Original,
    Early,
    Versioned,
}

const fn kind(version: u8) -> Kind {
    match version {
        0 => Kind::Original,
        1 | 2 => Kind::Early,
        _ => Kind::Versioned,
    }
}

/// Packets whose numbers are not read have no gaps that could be seen.
fn read_gap_limit(
    section: &mut Section<'_, '_>,
    mode: Option<&(UnrealMode, Place)>,
    window: Option<&(bool, Place)>,
) -> Option<u16> {
    let (limit, place) = section.value("gap_limit", integer)?;
    let Some(limit) = u16::try_from(limit).ok().filter(|limit| *limit <= UNREAL_GAP_MAX) else {
        let expected = format_args!("a whole number from 0 to {UNREAL_GAP_MAX} (unreal)");
        section.report.expected(&place, limit, expected);
        return None;
    };
    let is_read = mode.is_none_or(|(mode, _)| *mode == UnrealMode::Notify)
        && window.is_none_or(|(window, _)| *window);
    if limit > 0 && !is_read {
        let found = format_args!("{limit} where the numbers of packets are not read");
        section.report.expected(&place, found, "0, or mode = \"notify\" and window = \"on\"");
    }
    Some(limit)
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

/// What engines give a silent connection, or less.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

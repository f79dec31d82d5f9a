//! The fields of Unreal listeners.

use toml::de::DeValue;

use crate::config::section::{Section, integer, number};
use crate::config::{HandshakeVersions, NetworkVersions, Unreal, values};

pub(super) fn read(section: &mut Section<'_, '_>) -> Option<Unreal> {
    let magic = section.text("magic", values::magic);
    let versions = read_versions(section);
    let mode = section.choice("mode");
    let window = section.choice("window");
    let network_versions = section.value("network_versions", network_versions);
    let idle_timeout = section.duration("idle_timeout");
    let restart_small = section.flag("restart_small");
    Some(Unreal {
        magic: magic?.0,
        versions: versions?,
        mode: mode?.0,
        window: window?.0,
        network_versions: network_versions?.0,
        idle_timeout: idle_timeout?,
        restart_small: restart_small?,
    })
}

fn read_versions(section: &mut Section<'_, '_>) -> Option<HandshakeVersions> {
    let served = |value: &DeValue<'_>| {
        u8::try_from(integer(value)?).ok().filter(|version| [0, 3, 4].contains(version))
    };
    let versions = section.list("versions", served)?;
    let oldest = versions.iter().map(|(version, _)| *version).min()?;
    let newest = versions.iter().map(|(version, _)| *version).max()?;
    if newest == 0 {
        return Some(HandshakeVersions::Original);
    }
    if let Some((_, place)) = versions.iter().find(|(version, _)| *version == 0) {
        section.report.expected(
            place,
            "0 beside other versions",
            "0 alone (its packets have another prefix; it needs a listener of its own)",
        );
    }
    Some(HandshakeVersions::Versioned(oldest..=newest))
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

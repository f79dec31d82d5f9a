//! What a config file may say, but hardly anybody means.

use super::{Config, HandshakeVersions, Protocol};

/// One sentence for each.
pub(super) fn of(config: &Config) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(admin) = config.admin.filter(|admin| !admin.bind.ip().is_loopback()) {
        notices.push(format!(
            "admin.bind {} can be reached from other hosts, and POST /drain asks for no password",
            admin.bind
        ));
    }
    for (index, backend) in config.backends.iter().enumerate() {
        if !config.listeners.iter().any(|listener| listener.backends.contains(&index)) {
            notices.push(format!("backend {:?} is behind no listener", backend.name));
        }
        let mut framings = framings(config, index);
        if let Some((first, framing)) = framings.next()
            && let Some((other, _)) = framings.find(|(_, other)| other != &framing)
        {
            notices.push(format!(
                "backend {:?} is behind {first:?} and {other:?}, whose packets begin differently: no server speaks both",
                backend.name
            ));
        }
    }
    notices
}

/// What the packets of a backend's Unreal listeners begin with: their magic, and whether ids follow.
fn framings(config: &Config, backend: usize) -> impl Iterator<Item = (&str, (&[bool], bool))> {
    let listeners = config.listeners.iter().filter(move |it| it.backends.contains(&backend));
    listeners.filter_map(|listener| match &listener.protocol {
        Protocol::Unreal(unreal) => {
            let is_original = unreal.versions == HandshakeVersions::Original;
            Some((listener.name.as_str(), (unreal.magic.as_slice(), is_original)))
        }
        Protocol::Netcode(_) => None,
    })
}

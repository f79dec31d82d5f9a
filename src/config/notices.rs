//! What a config file may say, but hardly anybody means.

use super::Config;

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
    }
    notices
}

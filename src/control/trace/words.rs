//! Why a datagram went no further, with the numbers at hand: what an operator can act on.

use ringgate_core::drops::DropReason;
use ringgate_gate::{Detail, ListenerId, Setup};
use ringgate_os::utc;

/// Why, at this listener.
pub(super) fn of(setup: &Setup, listener: ListenerId, why: DropReason, detail: Detail) -> String {
    let numbers = detailed(setup, listener, detail);
    let limit = limit(setup, listener, why);
    let words = why.sentence();
    match numbers.or(limit) {
        Some(numbers) => format!("{words}: {numbers}"),
        None => words.to_owned(),
    }
}

/// The numbers of this datagram.
fn detailed(setup: &Setup, listener: ListenerId, detail: Detail) -> Option<String> {
    Some(match detail {
        Detail::Nothing => return None,
        Detail::Expired { ago_s } => format!(
            "it expired {} ago by this host's clock; if it is fresh, compare the token service's clock with this host's",
            utc::span(ago_s)
        ),
        Detail::Length { bytes } => format!("it has {bytes} bytes"),
        Detail::Names { first, others } => {
            let ours = setup.listeners.get(listener).map(|it| &it.public[..]).unwrap_or_default();
            let ours: Vec<_> = ours.iter().map(ToString::to_string).collect();
            let more = match others {
                0 => String::new(),
                n => format!(" and {n} others"),
            };
            format!("it names {first}{more}, and we are {}", ours.join(", "))
        }
        Detail::Protocol { found, expected } => {
            format!("it says {found:#x}, and the listener has {expected:#x}")
        }
        Detail::Sequence { found, newest } => {
            format!("it has number {found}, and the newest taken is {newest}")
        }
    })
}

/// The limit that was reached.
fn limit(setup: &Setup, listener: ListenerId, why: DropReason) -> Option<String> {
    use DropReason as R;
    let rules = setup.listeners.get(listener)?;
    let limits = &rules.limits;
    let (name, value) = match why {
        R::RequestSessionsFull | R::ResponseSessionsFull => ("max_sessions", rules.sessions_max),
        R::RequestRateLimited => ("requests_per_block", limits.requests_per_block),
        R::BlockHandshakesFull => ("handshakes_per_block", limits.handshakes_per_block),
        R::AddressFull => ("sessions_per_address", limits.sessions_per_address),
        R::SiteFull => ("sessions_per_site", limits.sessions_per_site),
        R::BlockFull => ("sessions_per_block", limits.sessions_per_block),
        R::PortSwitchRateLimited => ("port_switches_per_block", limits.port_switches_per_block),
        R::RestartRateLimited => ("restarts_per_block", limits.restarts_per_block),
        R::StartBlockLimited => ("starts_per_block", rules.plain()?.starts_per_block),
        R::StartLimited => ("starts", rules.plain()?.starts_total),
        _ => return None,
    };
    (value > 0).then(|| format!("listener {} has {name} = {value}", rules.name))
}

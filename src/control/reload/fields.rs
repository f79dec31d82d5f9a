//! Which fields of two configs differ, by the names that the config file has for them.
//!
//! Every structure is taken apart completely, so a field that is new cannot be forgotten here; what
//! follows from a difference is said where the field is described, in `config::schema`.

use std::collections::HashMap;
use std::mem::discriminant;

use crate::config::{
    Admin, Changes, Config, Fleet, Gateway, Listener, Netcode, Plain, Protocol, RoutingTokens,
    Unreal, changes_of,
};
use ringgate_fleet::etcd::TlsFiles;

/// A field's name, and whether the two configs differ in it.
pub(in crate::control) type Compared = (&'static str, bool);

/// The fields of a table that differ: those that a reload may change, or those that it may not.
pub(super) fn differing<'f>(
    table: &'static str,
    fields: &'f [Compared],
    live: bool,
) -> impl Iterator<Item = &'static str> + use<'f> {
    let differing = fields.iter().filter(|(_, differs)| *differs).map(|(field, _)| *field);
    differing.filter(move |field| (changes_of(table, field) != Changes::Restart) == live)
}

pub(super) fn gateway_fields(before: &Gateway, after: &Gateway) -> Vec<Compared> {
    let Gateway {
        workers,
        pin,
        io,
        run_dir,
        state_dir,
        drain_timeout,
        reserve_sessions,
        spin,
        batch_delay,
        log,
        user,
        confine,
    } = before;
    vec![
        ("workers", *workers != after.workers),
        ("pin", *pin != after.pin),
        ("io", *io != after.io),
        ("run_dir", *run_dir != after.run_dir),
        ("state_dir", *state_dir != after.state_dir),
        ("drain_timeout", *drain_timeout != after.drain_timeout),
        ("reserve_sessions", *reserve_sessions != after.reserve_sessions),
        ("spin", *spin != after.spin),
        ("batch_delay", *batch_delay != after.batch_delay),
        ("log", *log != after.log),
        ("user", *user != after.user),
        ("confine", *confine != after.confine),
    ]
}

/// Where the table is new or gone, it is its address that differs.
pub(in crate::control) fn admin_fields(
    before: Option<&Admin>,
    after: Option<&Admin>,
) -> Vec<Compared> {
    let (Some(before), Some(after)) = (before, after) else {
        return vec![("bind", before.is_some() != after.is_some())];
    };
    let Admin { bind, hosts, token } = before;
    vec![
        ("bind", *bind != after.bind),
        ("hosts", *hosts != after.hosts),
        ("token", *token != after.token),
    ]
}

/// Where the table is new or gone, it is its endpoints that differ.
pub(in crate::control) fn fleet_fields(
    before: Option<&Fleet>,
    after: Option<&Fleet>,
) -> Vec<Compared> {
    let (Some(before), Some(after)) = (before, after) else {
        return vec![("endpoints", before.is_some() != after.is_some())];
    };
    let Fleet {
        endpoints,
        keyspace,
        name,
        region,
        host,
        key,
        tls,
        credentials,
        lease,
        grace,
        allowed,
        max_backends,
        backends_per_process,
        backends_per_user,
        when_away,
    } = before;
    let ca = |tls: &Option<TlsFiles>| tls.as_ref().map(|tls| tls.ca.clone());
    let own = |tls: &Option<TlsFiles>| tls.as_ref().and_then(|tls| tls.own.clone()).unzip();
    let ((certificate, certificate_key), after_own) = (own(tls), own(&after.tls));
    vec![
        ("endpoints", *endpoints != after.endpoints),
        ("prefix", *keyspace != after.keyspace),
        ("name", *name != after.name),
        ("region", *region != after.region),
        ("host", *host != after.host),
        ("key", *key != after.key),
        ("ca", ca(tls) != ca(&after.tls)),
        ("certificate", certificate != after_own.0),
        ("certificate_key", certificate_key != after_own.1),
        ("user", *credentials != after.credentials),
        ("password", *credentials != after.credentials),
        ("lease", *lease != after.lease),
        ("grace", *grace != after.grace),
        ("allow_uids", allowed.uids != after.allowed.uids),
        ("allow_gids", allowed.gids != after.allowed.gids),
        ("max_backends", *max_backends != after.max_backends),
        ("backends_per_process", *backends_per_process != after.backends_per_process),
        ("backends_per_user", *backends_per_user != after.backends_per_user),
        ("when_away", *when_away != after.when_away),
    ]
}

/// A listener of each config; the names are the same.
pub(super) fn listener_fields(
    (old, before): (&Config, &Listener),
    (new, after): (&Config, &Listener),
) -> Vec<Compared> {
    let Listener {
        name: _,
        bind,
        backends: _,
        group,
        public,
        route,
        max_sessions,
        port_switch,
        filter,
        limits,
        ignored: _,
        xdp,
        protocol,
    } = before;
    let mut fields = vec![
        ("bind", *bind != after.bind),
        ("filter", *filter != after.filter),
        ("protocol", discriminant(protocol) != discriminant(&after.protocol)),
        ("backends", backend_names(old, before) != backend_names(new, after)),
        ("group", *group != after.group),
        ("public", *public != after.public),
        ("route", *route != after.route),
        ("max_sessions", *max_sessions != after.max_sessions),
        ("port_switch", *port_switch != after.port_switch),
        ("limits", *limits != after.limits),
        ("io", xdp.is_some() != after.xdp.is_some()),
        ("xdp", xdp.is_some() && after.xdp.is_some() && *xdp != after.xdp),
    ];
    match (protocol, &after.protocol) {
        (Protocol::Netcode(before), Protocol::Netcode(after)) => {
            fields.extend(netcode_fields(before, after));
        }
        (Protocol::Unreal(before), Protocol::Unreal(after)) => {
            fields.extend(unreal_fields(before, after));
        }
        (Protocol::Plain(before), Protocol::Plain(after)) => {
            fields.extend(plain_fields((old, before), (new, after)));
        }
        _ => {}
    }
    fields
}

fn netcode_fields(before: &Netcode, after: &Netcode) -> [Compared; 9] {
    let Netcode {
        protocol_id,
        keys,
        has_fleet_keys: _,
        replay_window,
        gap_limit,
        keep_alive,
        token_reuse,
        delivery,
        unique_in,
        replace_after,
    } = before;
    [
        ("protocol_id", *protocol_id != after.protocol_id),
        ("keys", *keys != after.keys),
        ("replay_window", *replay_window != after.replay_window),
        ("gap_limit", *gap_limit != after.gap_limit),
        ("keep_alive", *keep_alive != after.keep_alive),
        ("token_reuse", *token_reuse != after.token_reuse),
        ("delivery", *delivery != after.delivery),
        (
            "unique_clients",
            unique_in.is_some() != after.unique_in.is_some()
                || replace_after.is_some() != after.replace_after.is_some(),
        ),
        (
            "replace_after",
            replace_after.is_some()
                && after.replace_after.is_some()
                && *replace_after != after.replace_after,
        ),
    ]
}

fn unreal_fields(before: &Unreal, after: &Unreal) -> [Compared; 8] {
    let Unreal {
        magic,
        versions,
        handshake_base,
        mode,
        window,
        network_versions,
        gap_limit,
        idle_timeout,
    } = before;
    [
        ("magic", *magic != after.magic),
        ("versions", *versions != after.versions),
        ("handshake_base", *handshake_base != after.handshake_base),
        ("mode", *mode != after.mode),
        ("window", *window != after.window),
        ("network_versions", *network_versions != after.network_versions),
        ("gap_limit", *gap_limit != after.gap_limit),
        ("idle_timeout", *idle_timeout != after.idle_timeout),
    ]
}

fn plain_fields(
    (old, before): (&Config, &Plain),
    (new, after): (&Config, &Plain),
) -> [Compared; 17] {
    let Plain {
        token,
        tokens,
        sequence,
        guard,
        replay_window,
        gap_limit,
        begins_with,
        idle_timeout,
        half_open_timeout,
        half_open_max,
        answer_limit,
        credit_ratio,
        credit_burst,
        pause_after,
        echo,
        unproven_slots,
        gap_rest,
    } = before;
    [
        ("token", *token != after.token),
        ("tokens", tokens_by_name(old, tokens) != tokens_by_name(new, &after.tokens)),
        ("sequence", *sequence != after.sequence),
        ("guard", *guard != after.guard),
        ("replay_window", *replay_window != after.replay_window),
        ("gap_limit", *gap_limit != after.gap_limit),
        ("begins_with", *begins_with != after.begins_with),
        ("idle_timeout", *idle_timeout != after.idle_timeout),
        ("half_open_timeout", *half_open_timeout != after.half_open_timeout),
        ("half_open_max", *half_open_max != after.half_open_max),
        ("answer_limit", *answer_limit != after.answer_limit),
        ("credit_ratio", *credit_ratio != after.credit_ratio),
        ("credit_burst", *credit_burst != after.credit_burst),
        ("pause_after", *pause_after != after.pause_after),
        ("echo", *echo != after.echo),
        ("unproven_slots", *unproven_slots != after.unproven_slots),
        ("gap_rest", *gap_rest != after.gap_rest),
    ]
}

/// In any order: they are different tokens.
fn tokens_by_name<'c>(config: &'c Config, tokens: &'c RoutingTokens) -> HashMap<&'c [u8], &'c str> {
    let name = |backend: usize| config.backends[backend].name.as_str();
    tokens.0.iter().map(|(token, backend)| (&**token, name(*backend))).collect()
}

fn backend_names<'c>(config: &'c Config, listener: &Listener) -> Vec<&'c str> {
    listener.backends.iter().map(|&backend| config.backends[backend].name.as_str()).collect()
}

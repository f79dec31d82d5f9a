//! Which fields of two configs differ. What follows from a difference is said where the field is
//! declared, in `config`.

use std::collections::HashMap;
use std::mem::discriminant;

use crate::config::{Changes, Compared, Config, Field, Listener, Protocol, RoutingTokens};

/// The names of fields that differ: those that a reload may change, or those that it may not.
pub(super) fn differing(fields: Vec<&Field>, live: bool) -> impl Iterator<Item = &'static str> {
    let found = fields.into_iter().filter(move |it| (it.changes != Changes::Restart) == live);
    found.map(|field| field.name)
}

/// The fields in which a listener of each config differs; the names are the same.
pub(super) fn of_listeners(
    (old, before): (&Config, &Listener),
    (new, after): (&Config, &Listener),
) -> Vec<&'static Field> {
    // Backends are known by their names: an index means another one in another config.
    let mut fields = before.differences_by(after, |field| match field {
        "backends" => Some(backend_names(old, before) != backend_names(new, after)),
        "protocol" => Some(discriminant(&before.protocol) != discriminant(&after.protocol)),
        "xdp" if before.io != after.io => Some(false),
        _ => None,
    });
    match (&before.protocol, &after.protocol) {
        (Protocol::Netcode(before), Protocol::Netcode(after)) => {
            fields.extend(before.differences(after));
        }
        (Protocol::Unreal(before), Protocol::Unreal(after)) => {
            fields.extend(before.differences(after));
        }
        (Protocol::Plain(before), Protocol::Plain(after)) => {
            let [then, now] = [(old, before), (new, after)]
                .map(|(config, rules)| tokens_by_name(config, &rules.tokens));
            let judge = |field: &str| (field == "tokens").then(|| then != now);
            fields.extend(before.differences_by(after, judge));
        }
        _ => {}
    }
    fields
}

/// In any order: they are different tokens.
fn tokens_by_name<'c>(config: &'c Config, tokens: &'c RoutingTokens) -> HashMap<&'c [u8], &'c str> {
    let name = |backend: usize| config.backends[backend].name.as_str();
    tokens.0.iter().map(|(token, backend)| (&**token, name(*backend))).collect()
}

fn backend_names<'c>(config: &'c Config, listener: &Listener) -> Vec<&'c str> {
    listener.backends.iter().map(|&backend| config.backends[backend].name.as_str()).collect()
}

//! What a listener's sessions were made with: as long as it has any, none of that may change.

use super::{Listener, Netcode, Plain, Protocol, Sequence, Token, Unreal};

impl Listener {
    /// Whether sessions of this listener can go on by the rules of the other one. All fields are
    /// named, so that what is new has to be decided about here.
    pub fn is_made_as(&self, other: &Self) -> bool {
        match (&self.protocol, &other.protocol) {
            (Protocol::Netcode(one), Protocol::Netcode(other)) => one.is_made_as(other),
            (Protocol::Unreal(one), Protocol::Unreal(other)) => one.is_made_as(other),
            (Protocol::Plain(one), Protocol::Plain(other)) => one.is_made_as(other),
            _ => false,
        }
    }
}

impl Netcode {
    fn is_made_as(&self, other: &Self) -> bool {
        let Self {
            protocol_id,
            replay,
            keys: _,
            keep_alive_ns: _,
            token_reuse: _,
            delivers: _,
            unique_in: _,
            moves: _,
            replace_after_ns: _,
        } = self;
        *protocol_id == other.protocol_id && replay.size_bits() == other.replay.size_bits()
    }
}

impl Unreal {
    fn is_made_as(&self, other: &Self) -> bool {
        let Self {
            framing,
            learns_base,
            versions,
            network_versions,
            duplicates,
            idle_timeout_ns,
            gap_limit: _,
        } = self;
        *framing == other.framing
            && *learns_base == other.learns_base
            && *versions == other.versions
            && *network_versions == other.network_versions
            && *duplicates == other.duplicates
            && *idle_timeout_ns == other.idle_timeout_ns
    }
}

impl Plain {
    fn is_made_as(&self, other: &Self) -> bool {
        let Self {
            token,
            sequence,
            begins_with,
            idle_ns,
            echo,
            half_open_ns: _,
            rest_ns: _,
            half_open_max: _,
            answer_times: _,
            credit: _,
            unproven_percent: _,
            starts_per_block: _,
            starts_total: _,
        } = self;
        let shape = |token: &Option<Token>| token.as_ref().map(|it| (it.at, it.bytes, it.strip));
        let numbers = |it: &Option<Sequence>| {
            it.map(|Sequence { field, policy, both }| (field, policy.size_bits(), both))
        };
        shape(token) == shape(&other.token)
            && numbers(sequence) == numbers(&other.sequence)
            && *begins_with == other.begins_with
            && *idle_ns == other.idle_ns
            && *echo == other.echo
    }
}

//! Why a request is not served. Each reason has a name, which callers get and metrics count.

/// The reasons.
macro_rules! refusals {
    ($($name:ident $word:literal $status:literal $why:literal)+) => {
        /// Why a request is not served.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Refusal {
            $(#[doc = $why] $name,)+
        }

        impl Refusal {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name, in answers and metrics.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word),+ }
            }

            /// The HTTP status of the answer.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status),+ }
            }

            /// What it means, for people.
            pub const fn why(self) -> &'static str {
                match self { $(Self::$name => $why),+ }
            }
        }
    };
}

refusals! {
    BodyMalformed "body_malformed" 400 "the body is not what this path takes"
    BodyTooLarge "body_too_large" 413 "the body is larger than any request"
    BodyTooSlow "body_too_slow" 408 "the body did not come in time"
    MethodNotAllowed "method_not_allowed" 405 "this path does not take this method"
    NotFound "not_found" 404 "there is no such path"
    NotAuthorized "not_authorized" 401 "the request has no token that is known here: send Authorization: Bearer TOKEN"
    ScopeMissing "scope_missing" 403 "the caller may not do this"
    GroupForbidden "group_forbidden" 403 "the caller may not ask for this group"
    QuotaExceeded "quota_exceeded" 429 "the caller asks for more than its quota"
    IdempotencyKeyBad "idempotency_key_bad" 400 "the Idempotency-Key is empty, too long, or not plain"
    IdempotencyMismatch "idempotency_mismatch" 422 "this Idempotency-Key was used for another request"
    IdempotencyPending "idempotency_pending" 409 "the first request with this Idempotency-Key is not answered yet"
    GroupUnclear "group_unclear" 400 "the fleet has not exactly one group: say which"
    ClientDenied "client_denied" 403 "this client is denied in the fleet"
    BackendUnknown "backend_unknown" 404 "there is no such backend"
    BackendNotReady "backend_not_ready" 409 "the backend takes nobody: it is starting or draining"
    BackendFull "backend_full" 409 "the backend has no free slot"
    PromisedElsewhere "promised_elsewhere" 409 "a slot at another backend of the group is promised to the client: ask for that one, or when its token has ended"
    NoBackend "no_backend" 503 "no backend that takes players is what was asked for"
    NoSlot "no_slot" 503 "no backend that is what was asked for has a free slot"
    NoGateway "no_gateway" 503 "no gateway that reaches such a backend takes players"
    ProtocolIdWrong "protocol_id_wrong" 400 "the gateways have another protocol id, or none was told and none asked for"
    TooManyAddresses "too_many_addresses" 400 "the operator has not asked for failover to so many gateways"
    ExpireTooLong "expire_too_long" 400 "the token would live longer than the operator allows"
    NoKey "no_key" 503 "the listener has no key that all gateways have confirmed"
    GatewayUnknown "gateway_unknown" 404 "there is no such gateway"
    GatewaysNotAsked "gateways_not_asked" 503 "etcd does not take questions to gateways"
    NotKnownYet "not_known_yet" 503 "nothing is known of the fleet yet"
    EtcdAway "etcd_away" 503 "etcd is away, and the operator wants no token then"
    Busy "busy" 503 "others ask for the same slots: try again"
    Stopping "stopping" 503 "this service is about to end: ask another"
    NoRandomness "no_randomness" 500 "the operating system gave no random numbers"
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.why())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_different_and_plain() {
        let words: BTreeSet<_> = Refusal::ALL.iter().map(|it| it.word()).collect();
        assert_eq!(words.len(), Refusal::ALL.len());
        for word in words {
            assert!(word.bytes().all(|it| it.is_ascii_lowercase() || it == b'_'), "{word}");
        }
        assert!(Refusal::ALL.iter().all(|it| (400..600).contains(&it.status())));
    }
}

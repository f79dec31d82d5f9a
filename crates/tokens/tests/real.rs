//! Token services over HTTP with etcd as it is packed: several at once, bursts, rotations, etcd
//! away, callers who mean no good.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

#[path = "real/hostile.rs"]
mod hostile;
#[path = "real/http.rs"]
mod http;
#[path = "real/office.rs"]
mod office;
#[path = "real/openapi.rs"]
mod openapi;
#[allow(dead_code, reason = "the gateway's own tests use all of it")]
#[path = "../../../tests/all/own.rs"]
mod own;
#[path = "real/places.rs"]
mod places;
#[path = "../../fleet/tests/real/rig.rs"]
#[allow(dead_code, reason = "the tests of the client use all of it")]
mod rig;
#[path = "real/serving.rs"]
mod serving;
#[path = "real/tls.rs"]
mod tls;

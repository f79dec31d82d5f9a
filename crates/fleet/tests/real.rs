//! The client, the mirror and the registration against etcd as it is packed: killed, restarted,
//! compacted, slow, cut off, emptied, restored, with users and with TLS.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

#[path = "real/auth.rs"]
mod auth;
#[path = "real/client.rs"]
mod client;
#[path = "real/cluster.rs"]
mod cluster;
#[path = "real/mirror.rs"]
mod mirror;
#[allow(dead_code, reason = "the gateway's own tests use all of it")]
#[path = "../../../tests/all/own.rs"]
mod own;
#[path = "real/proxy.rs"]
mod proxy;
#[path = "real/registration.rs"]
mod registration;
#[path = "real/rig.rs"]
mod rig;
#[path = "real/watcher.rs"]
mod watcher;

//! The load generator as its users meet it: real sockets, real files, the binary itself. One
//! binary, a module for each topic.

#[path = "all/arrivals.rs"]
mod arrivals;
#[path = "all/command.rs"]
mod command;
#[path = "all/fake_gateway.rs"]
mod fake_gateway;
#[allow(dead_code, reason = "the client's own tests ask it more")]
#[path = "../../crates/client/tests/all/far_end.rs"]
mod far_end;
#[path = "all/fleet.rs"]
mod fleet;
#[path = "all/gateway.rs"]
mod gateway;
#[path = "all/impair.rs"]
mod impair;
#[path = "all/interrupted.rs"]
mod interrupted;
#[path = "all/interval_log.rs"]
mod interval_log;
#[path = "all/messages.rs"]
mod messages;
#[allow(dead_code, reason = "the gateway's own tests use all of it")]
#[path = "../../tests/all/own.rs"]
mod own;
#[path = "all/plain.rs"]
mod plain;
#[path = "all/plain_gateway.rs"]
mod plain_gateway;
#[path = "all/proof.rs"]
mod proof;
#[path = "all/restarts.rs"]
mod restarts;
#[path = "all/unreal.rs"]
mod unreal;
#[path = "all/unreal_gateway.rs"]
mod unreal_gateway;
#[path = "all/whole.rs"]
mod whole;

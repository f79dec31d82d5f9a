//! Tests of a whole gate: players, game processes and attackers that speak to it in memory.

mod basics;
mod captures;
mod clients;
mod crowds;
mod denied;
mod drops;
mod floods;
mod games;
mod gathering;
mod handover;
mod handshakes;
mod lens;
mod lifecycle;
mod links;
mod places;
mod plain;
mod ports;
mod rig;
mod routing;
mod sessions;
mod surveys;
pub(crate) mod third;
mod tokens;
mod traces;
mod turnover;
mod udp;
mod unreal;

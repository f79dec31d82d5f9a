//! Judges of what the parts decide together: gateways, arbiters, players and a network between
//! them, of which the parts are real and the rest is as bad as it may be.

mod breaks;
mod judge;
mod member;
mod numbers;
mod random;
mod search;
mod stake;
mod world;

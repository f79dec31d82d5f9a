//! Rules that are broken on purpose, at the seams between what ships and its world: each has to be
//! found, because a judge that finds nothing holds nothing.

use crate::world::World;

/// A rule that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Gateways take fewer players of a network than services let come.
    BlocksSmall,
    /// What is claimed under a lease outlives it.
    LeasesLast,
    /// A game process does not hear of players who come from another one.
    MovedUnheard,
    /// A successor does not know which questions were answered.
    QuestionsForgotten,
    /// Game processes say that they have more slots than they have.
    SlotsOverstated,
    /// Etcd loses whose tokens are.
    TokensForgotten,
}

/// Some seed of a world with a broken rule ends in these words.
fn is_found(broken: Break, words: &str) {
    let ends = |seed| World::new(seed).breaking(broken).run().err();
    let found = (0..SEEDS).filter_map(ends).find(|why| why.contains(words));
    assert!(found.is_some(), "{broken:?} is not found in {SEEDS} seeds");
}

#[test]
fn claims_that_outlive_their_leases_are_found() {
    is_found(Break::LeasesLast, "etcd has [");
}

#[test]
fn players_between_two_game_processes_are_found() {
    is_found(Break::MovedUnheard, "is in between");
}

#[test]
fn questions_that_are_obeyed_again_are_found() {
    is_found(Break::QuestionsForgotten, "nobody has asked for client");
}

#[test]
fn players_and_offers_beyond_slots_are_found() {
    is_found(Break::SlotsOverstated, "players and");
    is_found(Break::SlotsOverstated, "is offered one player more");
}

#[test]
fn players_who_are_refused_beside_free_slots_are_found() {
    is_found(Break::BlocksSmall, "is refused: ");
}

#[test]
fn tokens_that_are_used_twice_are_found() {
    is_found(Break::TokensForgotten, "was used at gateway");
}

/// Worlds in which a break is to be found.
const SEEDS: u64 = 12;

//! Gates in turmoil: any sequence of valid and invalid events, decided byte by byte, and what must
//! hold after each of them.
//!
//! A [`World`](super::World) is lifelike: its players are honest or attack in known ways. Here
//! nothing is lifelike. The input says what comes next: tokens, packets of their owners with any
//! number, recorded and damaged datagrams, other ports, mail that waits or is refused, drains,
//! reloads, links that fail, both clocks set ahead and back, hand-overs to another
//! process, some of them of damaged state. So a fuzzer can look for the sequence
//! that nobody thought of, and a test can run some hundred seeds.
//!
//! A turn is a whole one of production's loop (`ringgate_gate::body`), over a driver in memory.
//! After each: the books balance, the claims are the sessions, addresses without a session
//! were sent no more than they had sent. For netcode also: what leaves is sealed under a known
//! token's key and no number comes twice under it, challenges go to the token's owner only, no
//! payload is delivered twice, no client id plays twice. For Unreal: no server hears a packet
//! twice. For plain listeners: no server hears a number of a session twice, where datagrams are
//! numbered. Whatever the protocol, what a server hears of a player is what that player has said,
//! and the other way round.
//!
//! Built for tests and fuzzers only.

mod netcode;
mod plain;
mod stage;
mod streams;
mod unreal;

pub use netcode::netcode;
pub use plain::plain;
pub use streams::{seeds, streams};
pub use unreal::unreal;

#[cfg(test)]
mod tests {
    use super::super::random::Random;

    const SEEDS: u64 = 50;

    /// What a fuzzer would feed, from a seed.
    fn input(seed: u64) -> Vec<u8> {
        let mut random = Random::new(seed);
        let mut input = vec![0; random.within(200..3000) as usize];
        random.fill(&mut input);
        input
    }

    #[test]
    fn netcode_gates_survive_any_sequence_of_events() {
        let opened: u64 = (0..SEEDS).map(|seed| super::netcode(&input(seed))).sum();
        assert!(opened > SEEDS / 4, "{opened} sessions in {SEEDS} runs");
    }

    /// What a fuzzer begins with; one of them holds a message that is longer than its record.
    #[test]
    fn netcode_gates_survive_what_fuzzers_begin_with() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/gate_netcode");
        for seed in std::fs::read_dir(folder).expect("seeds") {
            let seed = seed.expect("a seed").path();
            let opened = super::netcode(&std::fs::read(&seed).expect("a file"));
            assert!(!seed.ends_with("oversize") || opened == 2, "{opened} sessions");
        }
    }

    #[test]
    fn plain_gates_survive_any_sequence_of_events() {
        let opened: u64 = (0..SEEDS).map(|seed| super::plain(&input(seed))).sum();
        assert!(opened > SEEDS, "{opened} sessions in {SEEDS} runs");
    }

    #[test]
    fn unreal_gates_survive_any_sequence_of_events() {
        let opened: u64 = (0..SEEDS).map(|seed| super::unreal(&input(seed))).sum();
        assert!(opened > SEEDS, "{opened} sessions in {SEEDS} runs");
    }
}

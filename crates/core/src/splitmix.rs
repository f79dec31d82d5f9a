//! Numbers to choose by, from a seed (`SplitMix64`). Nothing secret depends on them.

/// How far the state moves for each number.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The next number of a state.
#[inline]
pub const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(STEP);
    mixed(*state)
}

/// A number that depends on every bit of another.
#[inline]
pub const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the seed 1234567, as the reference implementation in C gives them.
    #[test]
    fn numbers_are_those_of_the_reference() {
        let mut state = 1_234_567;
        let numbers = [next(&mut state), next(&mut state), next(&mut state)];
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, expected);
    }
}

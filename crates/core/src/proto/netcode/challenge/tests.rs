//! Challenge tokens and the bodies that carry them.

use super::*;

#[test]
fn a_challenge_token_comes_back() {
    let token = ChallengeToken { client_id: 0x0123_4567_89ab_cdef, user_data: [9; 256] };
    let mut bytes = [0xff; CHALLENGE_TOKEN_BYTES];
    token.encode(&mut bytes);
    assert_eq!(bytes[..8], token.client_id.to_le_bytes());
    assert!(bytes[8 + 256..].iter().all(|&byte| byte == 0));
    assert_eq!(ChallengeToken::decode(&bytes), token);
}

#[test]
fn a_body_splits_where_it_was_joined() {
    let mut body = [0; CHALLENGE_BODY_BYTES];
    encode_body(0x1234, &mut body).fill(7);
    let (sequence, token) = split_body(&mut body).expect("its length");
    assert_eq!((sequence, *token), (0x1234, [7; CHALLENGE_TOKEN_BYTES]));
}

#[test]
fn a_body_of_another_size_is_refused() {
    for len in [0, 7, 8, CHALLENGE_BODY_BYTES - 1, CHALLENGE_BODY_BYTES + 1] {
        let mut body = vec![0; len];
        assert_eq!(split_body(&mut body), Err(DropReason::BodyLength), "{len}");
    }
}

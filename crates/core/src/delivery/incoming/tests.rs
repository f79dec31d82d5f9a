//! Parts in every order: the open questions of how Unreal Engine puts messages together, with the
//! answer that reliable parts only wait.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A message of parts with these numbers, each of its own byte.
fn parts(channel: u8, sequences: std::ops::Range<u64>, bytes: &[u8]) -> Vec<Part<'_>> {
    let (first, end) = (sequences.start, sequences.end);
    let part = |sequence: u64| Part {
        channel,
        sequence: PartSeq::new(sequence),
        is_first: sequence == first,
        is_last: sequence + 1 == end,
        bytes: std::slice::from_ref(&bytes[(sequence - first) as usize]),
    };
    sequences.map(part).collect()
}

fn take(incoming: &mut Incoming, part: &Part<'_>) -> Result<Vec<Vec<u8>>, Fault> {
    let mut messages = Vec::new();
    incoming.handle_part(part, |message| messages.push(message.to_vec()))?;
    Ok(messages)
}

#[test]
fn three_parts_arrive_in_any_order() {
    for order in ["123", "132", "321", "312", "213", "231"] {
        let mut incoming = Incoming::new();
        let parts = parts(4, 0..3, b"abc");
        let mut messages = Vec::new();
        for digit in order.bytes() {
            assert!(messages.is_empty(), "{order}: nothing before all are here");
            messages = take(&mut incoming, &parts[usize::from(digit - b'1')]).expect(order);
        }
        assert_eq!(messages, [b"abc"], "{order}");
        assert_eq!(incoming.held(), 0);
        for part in &parts {
            assert_eq!(take(&mut incoming, part), Ok(vec![]), "{order}: none is taken twice");
        }
    }
}

#[test]
fn two_messages_of_several_parts_are_mixed_on_one_channel() {
    let all = [parts(0, 0..3, b"one"), parts(0, 3..6, b"two")].concat();
    for order in ["031425", "543210", "304152", "350124", "120534"] {
        let mut incoming = Incoming::new();
        let one = |digit: u8| take(&mut incoming, &all[usize::from(digit - b'0')]).expect(order);
        let messages: Vec<_> = order.bytes().flat_map(one).collect();
        assert_eq!(messages, [b"one", b"two"], "{order}");
    }
}

#[test]
fn messages_of_different_channels_do_not_wait_for_each_other() {
    let mut incoming = Incoming::new();
    let (slow, fast) = (parts(1, 0..3, b"abc"), parts(2, 0..2, b"de"));
    for (part, expected) in [(&slow[0], 0), (&fast[0], 0), (&slow[2], 0), (&fast[1], 1)] {
        assert_eq!(take(&mut incoming, part).map(|messages| messages.len()), Ok(expected));
    }
    assert_eq!(take(&mut incoming, &slow[1]), Ok(vec![b"abc".to_vec()]));
}

#[test]
fn what_no_honest_end_sends_is_a_fault() {
    let part = |sequence, is_first, is_last| Part {
        channel: 3,
        sequence: PartSeq::new(sequence),
        is_first,
        is_last,
        bytes: &[7; 1159],
    };
    let after = |parts: &[Part<'_>]| {
        let mut incoming = Incoming::new();
        parts.iter().try_for_each(|part| take(&mut incoming, part).map(|_| ()))
    };
    assert_eq!(after(&[part(504, true, true)]), Err(Fault::Window));
    assert_eq!(after(&[part(503, true, true)]), Ok(()));
    assert_eq!(after(&[part(0, false, true)]), Err(Fault::Marks));
    assert_eq!(after(&[part(0, true, false), part(1, true, true)]), Err(Fault::Marks));
    assert_eq!(after(&[part(1, false, true), part(0, true, true)]), Err(Fault::Marks));
    let endless: Vec<_> = (0..60).map(|n| part(n, n == 0, false)).collect();
    assert_eq!(after(&endless[..56]), Ok(()));
    assert_eq!(after(&endless), Err(Fault::MessageLength));
}

#[test]
fn what_is_held_is_bounded_over_all_channels() {
    let mut incoming = Incoming::new();
    let mut taken = 0;
    let refused = (0..256 * 255_u32).find_map(|n| {
        let part = Part {
            channel: (n / 255) as u8,
            sequence: PartSeq::new(u64::from(n % 255) + 1),
            is_first: true,
            is_last: true,
            bytes: &[7; 65],
        };
        taken += 1;
        take(&mut incoming, &part).err()
    });
    assert_eq!(refused, Some(Fault::Memory));
    assert_eq!(taken, RECEIVE_BYTES_MAX / cost_of_part(65) + 1);
    assert!(incoming.heap_bytes() < 2 * RECEIVE_BYTES_MAX, "{}", incoming.heap_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Messages of any length, their parts in any order and repeated, through wraps of the number.
    #[test]
    fn every_message_comes_once_and_in_order(
        lens in vec(1_u64..9, 1..400),
        swaps in vec((0_usize..250, any::<bool>()), 1..50),
    ) {
        let bytes: Vec<u8> = (0..=255).cycle().take(4000).collect();
        let mut all = Vec::new();
        let mut expected = Vec::new();
        for len in lens {
            let start = all.len() as u64;
            let message = &bytes[start as usize..][..len as usize];
            all.extend(parts(0, start..start + len, message));
            expected.push(message.to_vec());
        }
        let mut choices = swaps.iter().cycle();
        for index in 0..all.len() {
            // No further ahead than a window, counted from what was there before.
            let ahead = choices.next().map_or(0, |(ahead, _)| *ahead);
            let with = index - index % 250 + (index + ahead) % 250;
            if with < all.len() {
                all.swap(index, with);
            }
        }
        let mut incoming = Incoming::new();
        let mut messages = Vec::new();
        for (part, (_, is_twice)) in all.iter().zip(choices) {
            for _ in 0..=usize::from(*is_twice) {
                messages.extend(take(&mut incoming, part).expect("honest"));
            }
        }
        prop_assert_eq!(messages, expected);
        prop_assert_eq!(incoming.held(), 0);
    }
}

//! Prefixes with every length of magic, and ids rewritten in place.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::proto::unreal::bits::load;
use crate::proto::unreal::tests::vectors::{ORIGINAL, VERSIONED, magic};

fn framings() -> impl Strategy<Value = Framing> {
    let layouts = prop::sample::select(Layout::ALL.to_vec());
    (vec(any::<bool>(), 0..=MAGIC_BITS_MAX), layouts).prop_map(|(bits, layout)| Framing {
        magic: Magic::from_bits(&bits).expect("at most 32"),
        layout,
    })
}

/// The ids that lie in a packet, whatever its magic is.
fn ids_in(framing: &Framing, packet: &[u8]) -> Ids {
    unpack_ids(load(packet, framing.magic.len(), ID_BITS))
}

proptest! {
    #[test]
    fn a_prefix_comes_back(framing in framings(), session in 0..4_u8, client in 0..8_u8, is_handshake: bool) {
        let ids = framing.layout.ids(session, client);
        let mut buf = [0xee; 8];
        let mut out = BitWriter::new(&mut buf);
        framing.write(Prefix { ids, is_handshake }, &mut out);
        prop_assert_eq!(out.position(), framing.prefix_bits());
        let len = out.finish(1);
        let (prefix, reader) = framing.read(&buf[..len]).expect("a prefix");
        prop_assert_eq!(prefix, Prefix { ids, is_handshake });
        prop_assert_eq!((reader.position(), reader.remaining()), (framing.prefix_bits(), 0));
    }

    #[test]
    fn rewriting_ids_changes_nothing_else(
        framing in framings(),
        mut datagram in vec(any::<u8>(), 6..40),
        session in 0..4_u8,
        client in 0..8_u8,
    ) {
        let before = datagram.clone();
        let ids = Ids::new(session, client);
        framing.rewrite_ids(&mut datagram, ids);
        if framing.layout.has_ids() {
            prop_assert_eq!(ids_in(&framing, &datagram), ids);
            let old = ids_in(&framing, &before);
            framing.rewrite_ids(&mut datagram, old);
        }
        prop_assert_eq!(datagram, before);
    }

    #[test]
    fn any_flipped_bit_of_the_magic_is_refused(bits in vec(any::<bool>(), 1..=MAGIC_BITS_MAX), at in any::<usize>()) {
        let framing = Framing { magic: Magic::from_bits(&bits).expect("at most 32"), ..VERSIONED };
        let mut buf = [0; 8];
        let mut out = BitWriter::new(&mut buf);
        framing.write(Prefix { ids: Ids::default(), is_handshake: true }, &mut out);
        let len = out.finish(1);
        let at = at % bits.len();
        buf[at / 8] ^= 1 << (at % 8);
        prop_assert_eq!(framing.read(&buf[..len]).map(drop), Err(DropReason::UnrealMagic));
    }
}

#[test]
fn the_first_character_of_a_magic_is_the_first_bit() {
    let framing = Framing { magic: magic("11011101"), ..ORIGINAL };
    let mut buf = [0; 2];
    let mut out = BitWriter::new(&mut buf);
    framing.write(Prefix { ids: Ids::default(), is_handshake: false }, &mut out);
    assert_eq!(out.finish(1), 2);
    assert_eq!(buf, [0xbb, 0b10]);
    assert_eq!(Magic::from_bits(&[true; 33]), None);
    assert!(magic("").is_empty() && magic("1").len() == 1);
}

#[test]
fn each_check_of_the_prefix_has_its_reason() {
    let refusal = |framing: Framing, datagram: &[u8]| framing.read(datagram).err();
    assert_eq!(refusal(VERSIONED, &[]), Some(DropReason::Empty));
    assert_eq!(refusal(VERSIONED, &[1; UNREAL_BYTES_MAX + 1]), Some(DropReason::TooLong));
    assert_eq!(refusal(VERSIONED, &[1; UNREAL_BYTES_MAX]), None);
    assert_eq!(refusal(VERSIONED, &[0xff, 0]), Some(DropReason::UnrealEnd));
    assert_eq!(refusal(VERSIONED, &[0b10_0000]), Some(DropReason::UnrealSize));
    assert_eq!(refusal(VERSIONED, &[0b100_0000]), None);
    assert_eq!(refusal(ORIGINAL, &[0b1]), Some(DropReason::UnrealSize));
    assert_eq!(refusal(ORIGINAL, &[0b10]), None);
    let long = Framing { magic: magic(&"1".repeat(32)), ..VERSIONED };
    assert_eq!(refusal(long, &[0xff; 3]), Some(DropReason::UnrealMagic));
    assert_eq!(refusal(long, &[0xff; 4]), Some(DropReason::UnrealMagic));
    assert_eq!(refusal(long, &[0xff, 0xff, 0xff, 0xff, 0b10_0000]), Some(DropReason::UnrealSize));
    assert_eq!(refusal(long, &[0xff; 5]), None);
}

#[test]
fn ids_are_cut_to_their_bits() {
    let ids = Ids::new(7, 9);
    assert_eq!((ids.session(), ids.client()), (3, 1));
    assert_eq!(ids.with_session(4), Ids::new(0, 1));
    let mut short = [];
    VERSIONED.rewrite_ids(&mut short, ids);
}

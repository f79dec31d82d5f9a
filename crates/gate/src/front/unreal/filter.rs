//! What an Unreal listener's socket filter lets pass: nothing is shorter than a game packet, and
//! everything begins with the game's magic bits, of which a filter sees whole bytes. Everything
//! that passes is checked again.

use ringgate_batch::filter::{Filter, Rule};
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::bits::BitWriter;
use ringgate_core::proto::unreal::notify::packet_bytes_min;
use ringgate_core::proto::unreal::prefix::{Framing, Ids, MAGIC_BITS_MAX, Prefix};

/// The filter of a listener whose game's packets begin like this.
pub(crate) fn filter(framing: &Framing) -> Filter {
    let mut start = [0; MAGIC_BITS_MAX / 8 + 1];
    let prefix = Prefix { ids: Ids::default(), is_handshake: false };
    framing.write(prefix, &mut BitWriter::new(&mut start));
    let bytes = packet_bytes_min(framing) as u16..=UNREAL_BYTES_MAX as u16;
    let rule = match &start[..framing.magic.len() / 8] {
        [] => Rule::new(0..=u8::MAX, bytes),
        [first, rest @ ..] => Rule::new(*first..=*first, bytes).with(1, rest),
    };
    Filter::new().allow(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_core::proto::unreal::prefix::{Layout, Magic};

    #[test]
    fn an_unreal_listener_refuses_what_is_too_short_and_other_games_magic() {
        for len in [0, 3, 8, 11, 16, 31, 32] {
            let bits: Vec<bool> = (0..len).map(|bit| bit % 3 == 0).collect();
            for layout in Layout::ALL {
                let magic = Magic::from_bits(&bits).expect("at most 32");
                let framing = Framing { magic, layout };
                let filter = filter(&framing);
                let mut packet = [0x5a; 60];
                let prefix = Prefix { ids: Ids::new(1, 5), is_handshake: false };
                framing.write(prefix, &mut BitWriter::new(&mut packet));
                let shortest = packet_bytes_min(&framing);
                for bytes in 0..packet.len() {
                    let passes = filter.accepts(&packet[..bytes]);
                    assert_eq!(passes, bytes >= shortest, "{framing:?}, {bytes} bytes");
                }
                for bit in 0..len / 8 * 8 {
                    packet[bit / 8] ^= 1 << (bit % 8);
                    assert!(!filter.accepts(&packet), "{framing:?}, bit {bit}");
                    packet[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }
}

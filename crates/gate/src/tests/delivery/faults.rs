//! Players who lie about what they have received: their sessions are over, for a reason that is
//! counted, and nothing else is.

use super::player::{Player, playing};
use crate::counters::Ended;
use crate::tests::games::Heard;
use ringgate_core::proto::delivery::{Frame, Part, PartSeq, write_header};
use ringgate_core::proto::notify::{Notify, PacketSeq};
use ringgate_link::bundle::{self, CloseReason};

/// A packet with that number, which acknowledges that, with those frames.
fn packet(number: u64, acked: u64, frames: &[Frame<'_>]) -> Vec<u8> {
    let end = Notify::starting_at(PacketSeq::new(number), PacketSeq::new(acked + 1));
    let mut bytes = [0; 1200];
    let mut len = write_header(&end, &mut bytes);
    for frame in frames {
        len += frame.write(&mut bytes[len..]);
    }
    bytes[..len].to_vec()
}

fn part(sequence: u64, is_first: bool, is_last: bool, bytes: &[u8]) -> Frame<'_> {
    let sequence = PartSeq::new(sequence);
    Frame::Reliable(Part { channel: 0, sequence, is_first, is_last, bytes })
}

/// The number that nobody has acknowledged anything with.
const NONE: u64 = (1 << 14) - 1;

fn ends(why: Ended, lie: impl FnOnce(&mut dyn FnMut(&[u8]))) {
    let (mut rig, game, mut player, session) = playing();
    lie(&mut |payload| {
        if rig.sessions() > 0 {
            player.lie(&mut rig, payload);
        }
    });
    assert_eq!(rig.counters().sessions_closed[why as usize], 1, "{why:?}");
    let told = Heard::Closed(session, CloseReason::Delivery);
    assert_eq!(game.hear(&mut rig).last(), Some(&told), "{why:?}");
    assert_eq!(rig.sessions(), 0);
    // The next player plays.
    let mut next = Player::connected(&mut rig, 2);
    let session = rig.session_at(super::home(2));
    game.send(&mut rig, (session, bundle::Channel::Reliable(0)), b"x", 0);
    next.live(&mut rig, 50);
    assert_eq!(next.messages.len(), 1);
}

#[test]
fn every_lie_ends_the_session_of_who_tells_it_and_no_other() {
    ends(Ended::DeliveryMalformed, |tell| tell(b"\0\0\0"));
    ends(Ended::DeliveryMalformed, |tell| tell(&[packet(0, NONE, &[]), vec![4]].concat()));
    ends(Ended::DeliverySequence, |tell| tell(&packet(257, NONE, &[])));
    ends(Ended::DeliveryAcknowledgement, |tell| tell(&packet(0, 700, &[])));
    ends(Ended::DeliveryWindow, |tell| tell(&packet(0, NONE, &[part(504, true, true, b"x")])));
    ends(Ended::DeliveryMarks, |tell| tell(&packet(0, NONE, &[part(0, false, true, b"x")])));
    ends(Ended::DeliveryMessageLength, |tell| {
        for number in 0..60 {
            tell(&packet(number, NONE, &[part(number, number == 0, false, &[1; 1150])]));
        }
    });
    ends(Ended::DeliveryOversize, |tell| {
        tell(&packet(0, NONE, &[Frame::Unreliable { channel: 0, bytes: &[1; 1160] }]));
    });
    ends(Ended::DeliveryOversize, |tell| {
        tell(&packet(0, NONE, &[Frame::Sequenced { channel: 1, bytes: &[1; 1188] }]));
    });
    ends(Ended::DeliveryMemory, |tell| {
        // Each part takes the largest buffer.
        for number in 0..320 {
            let on_channel = |channel| {
                let (sequence, bytes) = (PartSeq::new(1 + number), &[1; 513][..]);
                Frame::Reliable(Part { channel, sequence, is_first: true, is_last: true, bytes })
            };
            tell(&packet(number, NONE, &[on_channel(0), on_channel(1)]));
        }
    });
}

#[test]
fn who_acknowledges_nothing_for_half_a_minute_is_given_up() {
    let (mut rig, game, mut player, session) = playing();
    game.send(&mut rig, (session, bundle::Channel::Reliable(0)), b"x", 0);
    for number in 0..350 {
        // The client lives, and its delivery layer does not.
        rig.jump(90);
        player.raw.live(&mut rig, 10);
        player.raw.got.clear();
        if number % 10 == 0 && rig.sessions() > 0 {
            player.lie(&mut rig, &packet(number / 10, NONE, &[]));
        }
    }
    assert_eq!(rig.counters().sessions_closed[Ended::DeliverySilence as usize], 1);
    let told = Heard::Closed(session, CloseReason::Delivery);
    assert_eq!(game.hear(&mut rig).last(), Some(&told));
}

#[test]
fn a_game_process_that_does_not_stop_loses_the_session_and_nothing_else() {
    let (mut rig, game, _, session) = playing();
    for _ in 0..6 {
        game.send(&mut rig, (session, bundle::Channel::Reliable(0)), &vec![7; 60_000], 0);
    }
    assert_eq!(rig.counters().sessions_closed[Ended::DeliveryOverflow as usize], 1);
    let heard = game.hear(&mut rig);
    let told = Heard::Closed(session, CloseReason::Overflow);
    assert_eq!(heard, [Heard::Room(session, true), told]);
}

//! The bytes that members say, what is refused of them, and what an ear makes of the rest.

use proptest::prelude::*;

use super::*;

const V4: &str = "192.0.2.7:40000";
const V6: &str = "[2001:db8::7]:40001";

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    bytes
}

fn offer(is_coming: bool) -> Message<'static> {
    Message::Offer(Offered { session: SessionId([7; 16]), is_coming })
}

fn datagram(bytes: &[u8]) -> Datagram<'_> {
    let (player, to) = (at(V4), at("198.51.100.9:4000"));
    Datagram { listener: 258, player, to, is_lost: true, hops: 1, bytes }
}

fn hear<'a>(ear: &mut Ear, bytes: &'a [u8]) -> Result<(Option<u16>, Message<'a>), Refused> {
    ear.hear(bytes, |name| (name == "eu").then_some(9))
}

/// An ear that knows of `eu`, which is 9 here, as 2, and of `us`, which is not here, as 3.
fn ear() -> Ear {
    let mut ear = Ear::default();
    for message in [
        Message::Begin { version: 7 },
        Message::Listener { number: 2, name: "eu" },
        Message::Listener { number: 3, name: "us" },
    ] {
        hear(&mut ear, &bytes(&message)).expect("it is said in order");
    }
    ear
}

#[test]
fn each_message_has_the_bytes_that_are_written_down() {
    let v4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7, 0x40, 0x9c];
    let v6 = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0x41, 0x9c];
    let of = |head: &[u8], rest: &[&[u8]]| [head, &rest.concat()].concat();
    assert_eq!(bytes(&Message::Begin { version: 1 }), [1, 1]);
    assert_eq!(bytes(&Message::Listener { number: 258, name: "eu" }), *b"\x02\x02\x01eu");
    assert_eq!(bytes(&Message::AllTold), [5]);
    assert_eq!(bytes(&Message::Ask), [6]);
    let mut draft = Draft::default();
    draft.player(2, &at(V4), true);
    draft.player(2, &at(V6), true);
    draft.player(2, &at(V6), false);
    draft.accepted(3, &at(V4), 258);
    let expected = [
        of(&[3, 2, 0], &[&v4, &v6]),
        of(&[4, 2, 0], &[&v6]),
        of(&[7, 3, 0], &[&v4, &[2, 1, 0, 0]]),
    ];
    assert_eq!(draft.take(), expected);
    assert!(draft.take().is_empty());
    for message in expected {
        assert_eq!(bytes(&Message::read(&message).expect("it was written")), message);
    }

    draft.stands(2, &at(V4), true);
    draft.stands(2, &at(V4), false);
    assert_eq!(draft.take(), [of(&[9, 2, 0], &[&v4]), of(&[10, 2, 0], &[&v4])]);
    for (message, expected) in [
        (Message::Incarnation(Incarnation(258)), of(&[8, 2, 1], &[])),
        (Message::Record { listener: 258, bytes: b"kept" }, of(&[11, 2, 1], &[b"kept"])),
        (Message::Release(SessionId([7; 16])), of(&[12], &[&[7; 16]])),
        (Message::Question(258), of(&[13, 2, 1, 0, 0], &[])),
        (Message::Answer(258), of(&[14, 2, 1, 0, 0], &[])),
        (offer(false), of(&[15], &[&[7; 16], &[0]])),
        (offer(true), of(&[15], &[&[7; 16], &[1]])),
        (Message::Leaving(true), of(&[16], &[&[1]])),
        (Message::Doubt(Incarnation(258)), of(&[129, 2, 1], &[])),
    ] {
        assert_eq!(bytes(&message), expected);
        assert_eq!(Message::read(&expected), Ok(message));
    }

    let mut out = [0; DATAGRAM_BYTES_MAX];
    let len = datagram(b"hi").write_to(&mut out);
    let to = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 9, 0xa0, 0x0f];
    assert_eq!(out[..len], of(&[1, 1, 2, 1], &[&v4, &to, b"hi"]));
    assert_eq!(Datagram::read(&out[..len]), Ok(datagram(b"hi")));
}

#[test]
fn messages_are_no_longer_than_a_frame_and_nothing_is_left_out() {
    let mut draft = Draft::default();
    for port in 1..=2000 {
        draft.player(1, &SocketAddr::new([192, 0, 2, 1].into(), port), true);
    }
    let messages = draft.take();
    assert!(messages.iter().all(|it| it.len() <= MESSAGE_BYTES_MAX) && messages.len() == 3);
    let ports = messages.iter().flat_map(|message| match Message::read(message) {
        Ok(Message::Told(entries)) => entries.iter().map(|(player, _)| player.port()),
        other => panic!("{other:?}"),
    });
    assert!(ports.eq(1..=2000));
}

#[test]
fn what_breaks_the_format_is_refused_by_name() {
    let long = vec![128; MESSAGE_BYTES_MAX + 1];
    let no_record = vec![11; 3 + RECORD_BYTES_MAX + 1];
    let no_port = [&[3, 2, 0][..], &[1; 16], &[0, 0]].concat();
    for (message, why) in [
        (&[][..], Refused::Length),
        (&[1], Refused::Length),
        (&[1, 0], Refused::Version),
        (&[2, 0], Refused::Length),
        (&[2, 0, 0], Refused::Name),
        (b"\x02\0\0a b", Refused::Name),
        (&[2, 0, 1, b'a'], Refused::Listener),
        (&[3, 0, 0], Refused::Length),
        (&[3, 0, 0, 1], Refused::Length),
        (&no_port, Refused::Address),
        (&[5, 0], Refused::Length),
        (&[8], Refused::Length),
        (&[11, 0, 0], Refused::Length),
        (&no_record, Refused::Length),
        (&[12; 18], Refused::Length),
        (&[13, 0], Refused::Length),
        (&[15; 17], Refused::Length),
        (&[15; 18], Refused::Marks),
        (&[16, 2], Refused::Marks),
        (&[17], Refused::Kind),
        (&[0], Refused::Kind),
        (&long, Refused::Length),
    ] {
        assert_eq!(Message::read(message), Err(why), "{message:?}");
    }
    assert_eq!(Message::read(&[200, 1, 2]), Ok(Message::Unknown));

    let mut out = [0; DATAGRAM_BYTES_MAX];
    let len = datagram(b"hi").write_to(&mut out);
    for (at, byte, why) in
        [(0, 2, Refused::Marks), (1, 0, Refused::Hops), (1, HOPS_MAX + 1, Refused::Hops)]
    {
        let mut changed = out;
        changed[at] = byte;
        assert_eq!(Datagram::read(&changed[..len]), Err(why), "{at}");
    }
    assert_eq!(Datagram::read(&out[..DATAGRAM_HEADER_BYTES]), Err(Refused::Length));
    let long = [&out[..], &[0]].concat();
    assert_eq!(Datagram::read(&long), Err(Refused::Length));
}

#[test]
fn a_member_says_its_version_first_and_names_what_it_speaks_of() {
    let told = |listener| [&[3, listener, 0][..], &address_bytes(&at(V4))].concat();
    let left = |listener| [&[4, listener, 0][..], &address_bytes(&at(V4))].concat();
    let mut silent = Ear::default();
    assert_eq!(hear(&mut silent, &told(2)), Err(Refused::Order));
    assert_eq!(silent.version(), None);

    let mut ear = ear();
    assert_eq!(ear.version(), Some(VERSION), "the lower one of both");
    assert_eq!(hear(&mut ear, &[1, 1]), Err(Refused::Order), "once");
    assert!(matches!(hear(&mut ear, &told(2)), Ok((Some(9), Message::Told(_)))));
    assert!(matches!(hear(&mut ear, &told(3)), Ok((None, Message::Told(_)))), "it is not here");
    assert_eq!(hear(&mut ear, &told(4)), Err(Refused::Listener));
    assert!(matches!(hear(&mut ear, &left(2)), Ok((Some(9), Message::Left(_)))));

    let record = |listener| [&[11, listener, 0][..], b"kept"].concat();
    for (listener, here) in [(2, Some(9)), (3, None)] {
        let kept = Message::Record { listener, bytes: b"kept" };
        assert_eq!(hear(&mut ear, &record(listener as u8)), Ok((here, kept)));
    }
    assert_eq!(hear(&mut ear, &record(4)), Err(Refused::Listener));

    let mut out = [0; DATAGRAM_BYTES_MAX];
    for (listener, here) in [(2, Ok(Some(9))), (3, Ok(None)), (4, Err(Refused::Listener))] {
        let len = Datagram { listener, ..datagram(b"hi") }.write_to(&mut out);
        assert_eq!(ear.datagram(&out[..len]).map(|(here, _)| here), here, "{listener}");
    }
}

#[test]
fn a_listener_that_is_new_here_has_its_players_told_again() {
    let mut ear = ear();
    assert!(!ear.look_again(|name| (name == "eu").then_some(9)), "nothing is new");
    assert!(!ear.look_again(|_| None), "one is gone");
    assert!(ear.look_again(|name| (name == "us").then_some(4)));
    let told = [&[3, 3, 0][..], &address_bytes(&at(V6))].concat();
    assert!(matches!(hear(&mut ear, &told), Ok((Some(4), Message::Told(_)))));
}

proptest! {
    #[test]
    fn whatever_is_read_is_written_as_it_was(
        kind in 0..18_u8, rest in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let message = [&[kind][..], &rest].concat();
        if let Ok(read) = Message::read(&message) {
            let written = bytes(&read);
            prop_assert_eq!(&message[..written.len()], &written);
            prop_assert!(kind == 1 || written == message);
        }
        if let Ok(read) = Datagram::read(&message) {
            let mut out = [0; DATAGRAM_BYTES_MAX];
            let len = read.write_to(&mut out);
            prop_assert_eq!(&out[..len], &message);
        }
    }

    #[test]
    fn datagrams_come_as_they_left(
        ips: [u32; 2], ports in prop::array::uniform2(1..u16::MAX), is_lost: bool,
        hops in 1..=HOPS_MAX, listener: u16,
        payload in prop::collection::vec(any::<u8>(), 1..=UNREAL_BYTES_MAX),
    ) {
        let at = |it: usize| SocketAddr::new(std::net::Ipv4Addr::from(ips[it]).into(), ports[it]);
        let sent = Datagram {
            listener, player: at(0), to: at(1), is_lost, hops, bytes: &payload,
        };
        let mut out = [0; DATAGRAM_BYTES_MAX];
        let len = sent.write_to(&mut out);
        prop_assert_eq!(Datagram::read(&out[..len]), Ok(sent));
    }
}

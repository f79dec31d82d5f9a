//! Game processes at an agent, and what the gateway gets to hear of them.

mod clustered;
mod delivery;

use proptest::prelude::*;
use ringgate_link::bundle::{
    Channel, CloseAfter, CloseReason, Quality, USER_DATA_BYTES, VERSION_FAREWELL, VERSION_MAX,
};

use super::*;

/// Third here, first at the gateway.
const HERE: usize = 3;
const THERE: usize = 0;
const LANE: u8 = THERE as u8;

fn relay() -> Relay {
    Relay::new(HERE, 5, 77, vec!["arena-1".to_owned(), "arena-2".to_owned()])
}

fn bundle(write: impl Fn(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buf = vec![0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    assert!(write(&mut writer));
    writer.bytes().to_vec()
}

fn frame(bundle: &[u8]) -> Frame<'_> {
    Frames::new(bundle).next().expect("one").expect("own")
}

/// What a relay does, with its records decoded.
fn said(act: Action<'_>) -> String {
    match act {
        Action::Deliver(Game(game), frame) => {
            format!("{game} hears {:?}", ToGame::decode(frame).expect("a game can read it"))
        }
        Action::HangUp(Game(game)) => format!("{game} hung up on"),
        Action::Tell(link, frame) => {
            assert!(!frame.may_be_lost());
            format!("told on {link}: {:?}", ToGateway::decode(frame).expect("readable"))
        }
        Action::Push(link, frame) => {
            assert!(frame.may_be_lost());
            format!("pushed on {link}: {:?}", ToGateway::decode(frame).expect("readable"))
        }
        Action::End(link) => format!("{link} ended"),
        Action::Forget(Game(game), frame) => {
            format!("{game} forgets {:?}", ToGame::decode(frame).expect("a game can read it"))
        }
        Action::Pass(worker, passed) => format!("passed to {worker}: {passed:?}"),
        Action::NotHeld(session) => format!("nothing of {session}"),
    }
}

fn from_game(
    relay: &mut Relay,
    game: Game,
    write: impl Fn(&mut Writer<'_>) -> bool,
) -> Vec<String> {
    let mut acts = Vec::new();
    relay.handle_bundle(game, &bundle(write), &mut |act| acts.push(said(act)));
    acts
}

fn from_gateway(
    relay: &mut Relay,
    link: u16,
    write: impl Fn(&mut Writer<'_>) -> bool,
) -> (Result<(), Broken>, Vec<String>) {
    let mut acts = Vec::new();
    let bundle = bundle(write);
    let taken = relay.handle_record(link, frame(&bundle), &mut |act| acts.push(said(act)));
    (taken, acts)
}

fn hello(name: &'static str) -> impl Fn(&mut Writer<'_>) -> bool {
    move |writer| writer.hello(&Hello::new(9, name))
}

/// A game process that is let in on both sides, and its number on the trunk.
fn let_in(relay: &mut Relay) -> (Game, u16) {
    let game = relay.connect().expect("there is room");
    from_game(relay, game, hello("arena-1"));
    relay.handle_lane(LANE, &mut |_| ());
    let link = relay.places[usize::from(game.0)].taken.as_ref().and_then(|taken| taken.link);
    (game, link.expect("it was introduced"))
}

fn opened(session: SessionId) -> OpenedPlain<'static> {
    let address = "192.0.2.7:9".parse().expect("literal");
    OpenedPlain { session, slot: None, slots_max: 4, address, listener: "any" }
}

/// A player with a token, as a game process is told of it.
fn with_token(session: SessionId, user_data: &[u8; USER_DATA_BYTES]) -> Opened<'_> {
    Opened {
        ticket: None,
        session,
        client_id: 5,
        address: "[2001:db8::1]:9".parse().expect("literal"),
        slot: 1,
        slots_max: 4,
        delivers: true,
        user_data,
        listener: "eu",
    }
}

#[test]
fn a_game_is_let_in_at_once_and_introduced_when_the_lane_is_up() {
    let mut relay = relay();
    let game = relay.connect().expect("there is room");
    let acts = from_game(&mut relay, game, hello("arena-2"));
    let welcome =
        Welcome { version: VERSION_MAX, worker: HERE as u16, workers: 5, incarnation: 77 };
    assert_eq!(acts, [format!("0 hears {:?}", ToGame::Welcome(welcome))]);
    let mut acts = Vec::new();
    relay.handle_lane(LANE, &mut |act| acts.push(said(act)));
    let told = ToGateway::Hello(Hello::new(9, "arena-2"));
    assert_eq!(acts, [format!("told on 256: {told:?}")]);
    relay.handle_lane(LANE, &mut |_| panic!("it was introduced"));
    let second = relay.connect().expect("there is room");
    let acts = from_game(&mut relay, second, hello("arena-1"));
    assert_eq!(acts.len(), 2, "welcome and introduction at once: {acts:?}");
}

#[test]
fn a_link_is_let_in_once_the_gateway_says_so() {
    let mut relay = relay();
    let (_, link) = let_in(&mut relay);
    let is_let_in = |relay: &Relay| relay.welcome().map(|it| it.1).collect::<Vec<_>>();
    assert_eq!(is_let_in(&relay), [false], "it was introduced, and not answered");
    let welcome = Welcome { version: VERSION_MAX, worker: 0, workers: 1, incarnation: 7 };
    let (taken, _) = from_gateway(&mut relay, link, |writer| writer.welcome(&welcome));
    assert_eq!((taken, is_let_in(&relay)), (Ok(()), vec![true]));

    // Whoever is there stays when names change; nobody new comes by a name that is gone.
    let mut acts = Vec::new();
    relay.set_names(vec!["arena-2".to_owned()]);
    relay.tell_intakes(&mut |act| acts.push(said(act)));
    assert_eq!(acts, [intake(link, false)]);
    assert_eq!(is_let_in(&relay), [true]);
    for (name, heard) in [("arena-1", "Goodbye"), ("arena-2", "Welcome")] {
        let game = relay.connect().expect("there is room");
        let acts = from_game(&mut relay, game, hello(name));
        assert!(acts[0].contains(heard), "{name}: {acts:?}");
    }
}

fn intake(link: u16, is_open: bool) -> String {
    format!("told on {link}: {:?}", ToGateway::Intake { is_open })
}

#[test]
fn a_gateway_is_told_once_that_nobody_new_is_to_come() {
    let mut relay = relay();
    let (game, link) = let_in(&mut relay);
    let silent = relay.connect().expect("there is room");
    relay.tell_intakes(&mut |act| panic!("a link begins open: {}", said(act)));
    let own = |relay: &mut Relay, is_open| from_game(relay, game, |writer| writer.intake(is_open));
    assert_eq!(own(&mut relay, false), [intake(link, false)], "it is the process's word");
    assert_eq!(own(&mut relay, false), Vec::<String>::new());
    assert_eq!(own(&mut relay, true), [intake(link, true)]);

    // Then it is the agent's, whatever the process says, and for those who come as well.
    let mut acts = Vec::new();
    relay.drain(7, &mut |act| acts.push(said(act)));
    let draining = |game| format!("{game} hears {:?}", ToGame::Draining { left_ms: 7 });
    assert_eq!(acts, [draining(0), intake(link, false)]);
    for is_open in [false, true] {
        assert_eq!(own(&mut relay, is_open), Vec::<String>::new());
    }
    let acts = from_game(&mut relay, silent, hello("arena-2"));
    assert!(acts.len() == 3 && acts[2].ends_with("Intake { is_open: false }"), "{acts:?}");
    let mut acts = Vec::new();
    relay.tell_draining(silent, 7, &mut |act| acts.push(said(act)));
    assert_eq!(acts, [draining(1)]);
    let mut acts = Vec::new();
    relay.undrain(&mut |act| acts.push(said(act)));
    let heard = |game| format!("{game} hears {:?}", ToGame::Undrained);
    assert_eq!(acts[..3], [heard(0), heard(1), intake(link, true)]);
    assert!(acts.len() == 4 && acts[3].ends_with("Intake { is_open: true }"), "{acts:?}");
    relay.handle_lane_lost(&mut |_| ());
    relay.connect().expect("there is room");
    relay.tell_draining(game, 7, &mut |act| panic!("it has not said hello: {}", said(act)));
}

#[test]
fn what_a_process_says_of_itself_goes_along_and_is_told_again() {
    use ringgate_core::carry::{self, Maps, Reader, Writer};
    let heir_of = |relay: &Relay| {
        let mut memory = [0; 4096];
        let mut out = Writer::new(&mut memory);
        relay.write(&mut out);
        let len = out.len();
        let maps = Maps::default();
        Relay::read(&mut Reader::new(&memory[..len], &maps), vec!["arena-1".to_owned()])
    };
    let mut relay = relay();
    let (_, link) = let_in(&mut relay);
    let welcome = Welcome { version: VERSION_MAX, worker: 0, workers: 1, incarnation: 7 };
    from_gateway(&mut relay, link, |writer| writer.welcome(&welcome)).0.expect("sound");
    for is_open in [true, false] {
        from_game(&mut relay, Game(0), |writer| writer.intake(is_open));
        let mut heir = heir_of(&relay).expect("sound");
        assert!(heir.welcome().eq([("arena-1", true, 0)]));
        let mut acts = Vec::new();
        heir.tell_intakes(&mut |act| acts.push(said(act)));
        assert_eq!(acts, [intake(link, is_open)]);
    }
    // What was agreed on with a later release is not spoken here.
    relay.places[0].taken.as_mut().expect("it is there").version = VERSION_MAX + 1;
    assert_eq!(heir_of(&relay).err(), Some(carry::Broken::Invalid("version of a link")));
}

#[test]
fn sessions_have_the_number_of_the_side_that_they_are_said_to() {
    let mut relay = relay();
    let (game, link) = let_in(&mut relay);
    let (here, there) = (SessionId::new(HERE, 42), SessionId::new(THERE, 42));
    let heard = |record: ToGame<'_>| (Ok(()), vec![format!("0 hears {record:?}")]);
    let acts = from_gateway(&mut relay, link, |writer| writer.opened_plain(&opened(there)));
    assert_eq!(acts, heard(ToGame::OpenedPlain(opened(here))));
    let acts = from_gateway(&mut relay, link, |writer| writer.payload(there, b"input"));
    assert_eq!(acts, heard(ToGame::Payload { session: here, bytes: b"input" }));
    let acts =
        from_gateway(&mut relay, link, |writer| writer.closed(there, CloseReason::PlayerLeft));
    assert_eq!(acts, heard(ToGame::Closed { session: here, reason: CloseReason::PlayerLeft }));
    let user_data = [3; 256];
    let joined = |session| with_token(session, &user_data);
    let acts = from_gateway(&mut relay, link, |writer| writer.opened(&joined(there)));
    assert_eq!(acts, heard(ToGame::Opened(joined(here))));

    let acts = from_game(&mut relay, game, |writer| {
        writer.payload(here, b"state") && writer.close(here, CloseReason::Kicked) && writer.ping(8)
    });
    let expected = [
        format!("pushed on {link}: {:?}", ToGateway::Payload { session: there, bytes: b"state" }),
        format!(
            "told on {link}: {:?}",
            ToGateway::Close { session: there, reason: CloseReason::Kicked }
        ),
        format!("pushed on {link}: {:?}", ToGateway::Ping { token: 8 }),
    ];
    assert_eq!(acts, expected);
    let more = SessionId::new(HERE, 43);
    let stranger = SessionId::new(HERE + 1, 44);
    let acts =
        from_game(&mut relay, game, |writer| writer.multicast(&[here, stranger, more], b"all"));
    assert_eq!(acts.len(), 1);
    assert!(acts[0].contains("0/42") && acts[0].contains("0/43") && !acts[0].contains("/44"));
    let acts = from_game(&mut relay, game, |writer| {
        writer.payload(stranger, b"x") && writer.multicast(&[stranger], b"x")
    });
    assert_eq!((acts.len(), relay.dropped().session_unknown), (0, 3));
}

#[test]
fn an_end_after_delivery_is_said_to_an_earlier_gateway_in_its_words() {
    for version in [VERSION_FAREWELL - 1, VERSION_FAREWELL] {
        let mut relay = relay();
        let (game, link) = let_in(&mut relay);
        let welcome = Welcome { version, worker: 0, workers: 1, incarnation: 7 };
        let (taken, _) = from_gateway(&mut relay, link, |writer| writer.welcome(&welcome));
        assert_eq!(taken, Ok(()));
        let [here, there] = [HERE, THERE].map(|worker| SessionId::new(worker, 42));
        let (reason, text) = (CloseReason::Kicked, &b"bye"[..]);
        let close = |session| CloseAfter { session, reason, linger_ms: 5000, text };
        let acts = from_game(&mut relay, game, |writer| writer.close_after(&close(here)));
        let told = match version {
            VERSION_FAREWELL => ToGateway::CloseAfter(close(there)),
            _ => ToGateway::Close { session: there, reason },
        };
        assert_eq!(acts, [format!("told on {link}: {told:?}")]);
        let lingered = |session| ToGame::Lingered { session, undelivered_bytes: 7, is_told: true };
        let (taken, acts) =
            from_gateway(&mut relay, link, |writer| writer.lingered(there, 7, true));
        assert_eq!((taken, acts), (Ok(()), vec![format!("0 hears {:?}", lingered(here))]));
        // An earlier one does not say who gets messages, and the game sends nobody else any.
        let player = Opened { delivers: false, ..with_token(there, &[0; USER_DATA_BYTES]) };
        let (taken, acts) = from_gateway(&mut relay, link, |writer| writer.opened(&player));
        let delivers = version < VERSION_FAREWELL;
        let heard = ToGame::Opened(Opened { session: here, delivers, ..player });
        assert_eq!((taken, acts), (Ok(()), vec![format!("0 hears {heard:?}")]));
    }
}

/// A relay that counts players, for a game process with one slot.
fn counting() -> (Relay, Arc<Rolls>) {
    let (mut relay, rolls) = (relay(), Arc::new(Rolls::default()));
    rolls.set_slots([("arena-1", 1)]);
    relay.count_in(Arc::clone(&rolls), "gate-1:7200".into());
    (relay, rolls)
}

fn used(rolls: &Rolls) -> Option<u32> {
    rolls.used("arena-1", &["gate-1:7200"]).map(|used| used.all)
}

#[test]
fn an_offered_player_has_a_slot_until_it_is_refused_and_one_who_is_moved_has_none() {
    let (mut relay, rolls) = counting();
    let (game, link) = let_in(&mut relay);
    let welcome = Welcome { version: VERSION_MAX, worker: 0, workers: 1, incarnation: 7 };
    from_gateway(&mut relay, link, |writer| writer.welcome(&welcome)).0.expect("sound");
    let [one, other] = [42, 43].map(|serial| SessionId::new(THERE, serial));
    let here = SessionId::new(HERE, 42);
    let user_data = [3; 256];
    let offered = |session, offer| Offered {
        session,
        offer,
        ticket: 9,
        client_id: 5,
        address: "[2001:db8::1]:9".parse().expect("literal"),
        slot: 1,
        slots_max: 4,
        left_ms: 2000,
        delivers: true,
        user_data: &user_data,
        listener: "eu",
        from: "lobby",
        data: b"door",
    };
    let heard = |record: ToGame<'_>| (Ok(()), vec![format!("0 hears {record:?}")]);
    let say = |relay: &mut Relay, write: &dyn Fn(&mut Writer<'_>) -> bool| {
        from_gateway(relay, link, write)
    };
    let acts = say(&mut relay, &|writer| writer.offered(&offered(one, 1)));
    assert_eq!(acts, heard(ToGame::Offered(offered(here, 1))));
    let full = ToGateway::Answer { session: other, offer: 2, answer: Answer::Full };
    let acts = say(&mut relay, &|writer| writer.offered(&offered(other, 2)));
    assert_eq!(acts, (Ok(()), vec![format!("told on {link}: {full:?}")]), "no slot is left");
    assert_eq!(used(&rolls), Some(1));
    let no = ToGateway::Answer { session: one, offer: 1, answer: Answer::No };
    let acts = from_game(&mut relay, game, |writer| writer.answer(here, 1, Answer::No));
    assert_eq!((acts, used(&rolls)), (vec![format!("told on {link}: {no:?}")], Some(0)));
    say(&mut relay, &|writer| writer.offered(&offered(one, 3))).0.expect("sound");
    let over = MoveRefusal::Time;
    let acts = say(&mut relay, &|writer| writer.offer_over(one, 3, over));
    assert_eq!(acts, heard(ToGame::OfferOver { session: here, offer: 3, reason: over }));
    assert_eq!(used(&rolls), Some(0));

    // A release that knows of no offers has dropped one, and nobody has said so.
    say(&mut relay, &|writer| writer.offered(&offered(one, 3))).0.expect("sound");
    let (taken, acts) = say(&mut relay, &|writer| writer.offered(&offered(one, 4)));
    assert_eq!(acts, heard(ToGame::Offered(offered(here, 4))).1);
    assert_eq!((taken, used(&rolls)), (Ok(()), Some(1)));

    // It comes, speaks, and goes elsewhere.
    from_game(&mut relay, game, |writer| writer.answer(here, 4, Answer::Yes));
    let comes = Opened { ticket: Some(9), ..with_token(one, &user_data) };
    let acts = say(&mut relay, &|writer| writer.opened(&comes));
    assert_eq!(acts, heard(ToGame::Opened(Opened { session: here, ..comes })));
    assert_eq!(used(&rolls), Some(1), "it has had its slot");
    assert_eq!(say(&mut relay, &|writer| writer.offered(&offered(one, 5))).0, Err(Broken));
    let session = here;
    let asked = Move {
        session,
        backend: "arena-2",
        ticket: 5,
        time_ms: 7,
        confirms: true,
        message: None,
        data: b"",
    };
    let acts = from_game(&mut relay, game, |writer| writer.move_session(&asked));
    let told = ToGateway::Move(Move { session: one, ..asked });
    assert_eq!(acts, [format!("told on {link}: {told:?}")]);
    let acts = say(&mut relay, &|writer| writer.moved(one, 5));
    assert_eq!(acts, heard(ToGame::Moved { session: here, ticket: 5 }));
    assert_eq!(used(&rolls), Some(0));
    let acts = from_game(&mut relay, game, |writer| writer.confirm(here));
    assert_eq!(acts, [format!("told on {link}: {:?}", ToGateway::Confirm { session: one })]);
}

#[test]
fn a_move_at_an_older_gateway_is_refused_here() {
    let mut relay = relay();
    let (game, link) = let_in(&mut relay);
    let welcome = Welcome { version: 5, worker: 0, workers: 1, incarnation: 7 };
    from_gateway(&mut relay, link, |writer| writer.welcome(&welcome)).0.expect("sound");
    let session = SessionId::new(HERE, 42);
    let (backend, data) = ("arena-2", &b""[..]);
    let asked =
        Move { session, backend, ticket: 5, time_ms: 7, confirms: false, message: None, data };
    let acts = from_game(&mut relay, game, |writer| writer.move_session(&asked));
    let reason = MoveRefusal::Version;
    let refused = ToGame::MoveRefused { session, ticket: 5, reason };
    assert_eq!(acts, [format!("0 hears {refused:?}")]);
    assert!(from_game(&mut relay, game, |writer| writer.confirm(session)).is_empty());
}

#[test]
fn whoever_finds_no_slot_is_sent_away_and_no_game_process_hears_of_it() {
    let (mut relay, rolls) = counting();
    let (_, link) = let_in(&mut relay);
    let [one, other] = [42, 43].map(|serial| SessionId::new(THERE, serial));
    let user_data = [3; 256];
    let joined = |session| with_token(session, &user_data);
    let mut say = |write: &dyn Fn(&mut Writer<'_>) -> bool| {
        let (taken, acts) = from_gateway(&mut relay, link, write);
        assert_eq!(taken, Ok(()));
        acts
    };
    assert_eq!(say(&|writer| writer.opened(&joined(one))).len(), 1);
    assert_eq!(say(&|writer| writer.opened(&joined(one))).len(), 1, "it has its slot");
    let close = ToGateway::Close { session: other, reason: CloseReason::Refused };
    let sent_away = [format!("told on {link}: {close:?}")];
    assert_eq!(say(&|writer| writer.opened(&joined(other))), sent_away);
    let part = MessagePart {
        session: other,
        channel: Channel::Reliable(0),
        is_first: true,
        is_last: true,
        token: 0,
        bytes: b"me",
    };
    assert!(say(&|writer| writer.payload(other, b"me")).is_empty());
    assert!(say(&|writer| writer.message(&part)).is_empty());
    assert_eq!((used(&rolls), rolls.refused()), (Some(1), [1, 2]));
    assert!(say(&|writer| writer.closed(other, CloseReason::Refused)).is_empty());
    assert_eq!(say(&|writer| writer.closed(one, CloseReason::PlayerLeft)).len(), 1);
    assert_eq!(say(&|writer| writer.opened(&joined(other))).len(), 1, "another has left");
    assert_eq!(say(&|writer| writer.payload(other, b"me")).len(), 1);

    // A plain one is known without a slot before it has one, and stays so.
    let plain = |slot| OpenedPlain { slot, ..opened(one) };
    assert_eq!(say(&|writer| writer.opened_plain(&plain(None))).len(), 1);
    let acts = say(&|writer| writer.opened_plain(&plain(Some(1))));
    assert!(acts[0].contains("Close") && acts[1].contains("slot: None"), "{acts:?}");
    assert_eq!(say(&|writer| writer.payload(one, b"me")).len(), 1);
    assert_eq!(say(&|writer| writer.closed(one, CloseReason::Refused)).len(), 1);
    assert_eq!((used(&rolls), rolls.refused()), (Some(1), [2, 2]));
}

#[test]
fn whoever_waits_for_a_link_that_is_gone_is_counted_until_it_is_back() {
    let (mut relay, rolls) = counting();
    let (game, link) = let_in(&mut relay);
    let player = OpenedPlain { slot: Some(0), ..opened(SessionId::new(THERE, 42)) };
    let told = from_gateway(&mut relay, link, |writer| writer.players(0, 5000, 0));
    assert_eq!(told, (Ok(()), Vec::new()), "it is the agent's to know");
    let open = |relay: &mut Relay, link| {
        from_gateway(relay, link, |writer| writer.opened_plain(&player)).1
    };
    let back = |relay: &mut Relay| {
        let (_, link) = let_in(relay);
        assert_eq!(from_gateway(relay, link, |writer| writer.players(1, 5000, 0)).0, Ok(()));
        assert!(open(relay, link)[0].contains("slot: Some"));
        assert_eq!(used(&rolls), Some(1));
        link
    };
    assert_eq!(open(&mut relay, link).len(), 1);
    relay.disconnect(game, &mut |_| ());
    assert_eq!(used(&rolls), Some(1), "its process has hung up");
    let link = back(&mut relay);
    relay.handle_end(link, &mut |_| ());
    assert_eq!(used(&rolls), Some(1), "the gateway has ended the link");
    back(&mut relay);
    relay.handle_lane_lost(&mut |_| ());
    assert_eq!(used(&rolls), Some(1), "the lane is down");
    back(&mut relay);
    relay.turn_away(game, GoodbyeReason::Shutdown, &mut |_| ());
    assert_eq!(used(&rolls), Some(1), "the agent has sent it away");

    // Another process goes on with those who are there.
    back(&mut relay);
    let (next, mut heir) = (Arc::new(Rolls::default()), relay);
    heir.count_in(Arc::clone(&next), "gate-1:7200".into());
    assert_eq!(used(&next), Some(1));
}

#[test]
fn messages_go_the_way_that_their_channel_asks_for() {
    let mut relay = relay();
    let (game, link) = let_in(&mut relay);
    let (here, there) = (SessionId::new(HERE, 42), SessionId::new(THERE, 42));
    for (channel, way) in [(Channel::Reliable(0), "told"), (Channel::Unreliable(0), "pushed")] {
        let part = |session| MessagePart {
            session,
            channel,
            is_first: true,
            is_last: true,
            token: 0,
            bytes: b"whole",
        };
        let acts = from_game(&mut relay, game, |writer| writer.message(&part(here)));
        assert_eq!(acts, [format!("{way} on {link}: {:?}", ToGateway::Message(part(there)))]);
        let acts = from_gateway(&mut relay, link, |writer| writer.message(&part(there)));
        assert_eq!(acts, (Ok(()), vec![format!("0 hears {:?}", ToGame::Message(part(here)))]));
    }
    let acts = from_game(&mut relay, game, |writer| writer.ask_quality(here));
    assert_eq!(acts, [format!("told on {link}: {:?}", ToGateway::AskQuality { session: there })]);
    let quality = Quality { round_trip_us: 7, ..Quality::default() };
    let acts = from_gateway(&mut relay, link, |writer| {
        writer.report(there, 5, true) && writer.room(there, true, 9)
    });
    assert_eq!(acts.1.len(), 1, "one record at a time");
    let acts = from_gateway(&mut relay, link, |writer| writer.quality(there, &quality));
    let heard = ToGame::Quality { session: here, quality };
    assert_eq!(acts, (Ok(()), vec![format!("0 hears {heard:?}")]));
}

#[test]
fn what_a_gateway_says_of_itself_and_of_messages_reaches_the_game() {
    type Write<'a> = &'a dyn Fn(&mut Writer<'_>) -> bool;

    let mut relay = relay();
    let (_, link) = let_in(&mut relay);
    let (here, there) = (SessionId::new(HERE, 42), SessionId::new(THERE, 42));
    let each: [(Write<'_>, ToGame<'_>); 6] = [
        (&|writer| writer.taken_over(3), ToGame::TakenOver { generation: 3 }),
        (&|writer| writer.draining(900), ToGame::Draining { left_ms: 900 }),
        (&|writer| writer.undrained(), ToGame::Undrained),
        (&|writer| writer.pong(8), ToGame::Pong { token: 8 }),
        (
            &|writer| writer.report(there, 5, true),
            ToGame::Report { session: here, token: 5, is_delivered: true },
        ),
        (
            &|writer| writer.room(there, true, 9),
            ToGame::Room { session: here, is_full: true, waiting_bytes: 9 },
        ),
    ];
    for (write, heard) in each {
        let acts = from_gateway(&mut relay, link, write);
        assert_eq!(acts, (Ok(()), vec![format!("0 hears {heard:?}")]));
    }
}

#[test]
fn a_lane_that_is_lost_takes_links_with_it_and_what_comes_meanwhile_is_counted() {
    let mut relay = relay();
    let (game, link) = let_in(&mut relay);
    let mut acts = Vec::new();
    relay.handle_lane_lost(&mut |act| acts.push(said(act)));
    assert_eq!(acts, ["0 hung up on"]);
    let again = relay.connect().expect("there is room");
    assert_eq!(again, game, "its place is free");
    from_game(&mut relay, again, hello("arena-1"));
    let sessions = [SessionId::new(HERE, 1), SessionId::new(HERE, 2)];
    let acts = from_game(&mut relay, again, |writer| {
        writer.payload(sessions[0], b"x") && writer.multicast(&sessions, b"x")
    });
    assert_eq!((acts.len(), relay.dropped().lane_down), (0, 3));
    let mut acts = Vec::new();
    relay.handle_lane(LANE + 1, &mut |act| acts.push(said(act)));
    assert!(acts.len() == 1 && !acts[0].contains(&format!("told on {link}:")), "{acts:?}");
    let acts = from_gateway(&mut relay, link, |writer| writer.pong(1));
    assert_eq!((acts, relay.dropped().link_gone), ((Ok(()), vec![]), 1), "the number is another");
    let acts = from_game(&mut relay, again, |writer| writer.payload(sessions[0], b"x"));
    assert!(acts[0].contains("1/1"), "the lane has another number now: {acts:?}");
}

#[test]
fn who_leaves_or_is_sent_away_is_gone_on_both_sides() {
    let mut relay = relay();
    let (game, link) = let_in(&mut relay);
    let mut acts = Vec::new();
    relay.disconnect(game, &mut |act| acts.push(said(act)));
    assert_eq!(acts, [format!("{link} ended")]);

    let (_, link) = let_in(&mut relay);
    let taken = because(GoodbyeReason::NameTaken);
    let acts = from_gateway(&mut relay, link, |writer| writer.goodbye(taken));
    let heard = format!("0 hears {:?}", ToGame::Goodbye(taken));
    assert_eq!(acts, (Ok(()), vec![heard, format!("{link} ended"), "0 hung up on".to_owned()]));

    let (_, link) = let_in(&mut relay);
    let mut acts = Vec::new();
    relay.handle_end(link, &mut |act| acts.push(said(act)));
    relay.handle_end(link, &mut |_| panic!("it is over"));
    assert_eq!(acts, ["0 hung up on"]);
}

#[test]
fn who_breaks_the_format_or_the_order_is_told_why() {
    type Says = fn(&mut Writer<'_>) -> bool;
    let cases: [(&str, Says, GoodbyeReason); 3] = [
        ("no hello", |writer| writer.ping(1), GoodbyeReason::HelloExpected),
        ("a stranger", |w| w.hello(&Hello::new(1, "arena-3")), GoodbyeReason::NameUnknown),
        (
            "from the future",
            |w| w.hello(&Hello { version_min: 9, version_max: 9, pid: 1, name: "arena-1" }),
            GoodbyeReason::VersionUnsupported,
        ),
    ];
    for (what, write, why) in cases {
        let mut relay = relay();
        let game = relay.connect().expect("there is room");
        let acts = from_game(&mut relay, game, |writer| write(writer) && writer.ping(2));
        let heard = format!("0 hears {:?}", ToGame::Goodbye(because(why)));
        assert_eq!(acts, [heard, "0 hung up on".to_owned()], "{what}");
    }
    let mut relay = relay();
    let (game, link) = let_in(&mut relay);
    let acts = from_game(&mut relay, game, hello("arena-1"));
    assert_eq!(acts.len(), 3, "a second hello: {acts:?}");
    assert!(acts[0].contains("HelloExpected") && acts[1] == format!("{link} ended"));
    let game = relay.connect().expect("there is room");
    let mut acts = Vec::new();
    relay.handle_bundle(game, &[3, 0, 1, 0], &mut |act| acts.push(said(act)));
    assert!(acts[0].contains("RecordLength") && acts.len() == 2, "{acts:?}");
}

#[test]
fn a_gateway_that_breaks_the_format_ends_the_trunk() {
    let mut relay = relay();
    let (_, link) = let_in(&mut relay);
    let foreign = SessionId::new(THERE + 1, 42);
    let acts = from_gateway(&mut relay, link, |writer| writer.payload(foreign, b"x"));
    assert_eq!(acts, (Err(Broken), vec![]), "a session of another worker");
    let acts = from_gateway(&mut relay, link, |writer| writer.ping(1));
    assert_eq!(acts.0, Err(Broken), "a record of the other direction");
    let strange = Welcome { version: VERSION_MAX + 1, worker: 0, workers: 1, incarnation: 1 };
    let acts = from_gateway(&mut relay, link, |writer| writer.welcome(&strange));
    assert_eq!(acts.0, Err(Broken), "a version that was not offered");
}

#[test]
fn links_are_bounded_and_numbers_are_not_used_again_soon() {
    let mut relay = relay();
    let games: Vec<_> = (0..GAMES_MAX).map(|_| relay.connect().expect("there is room")).collect();
    assert_eq!(relay.connect(), None);
    relay.disconnect(games[7], &mut |_| panic!("it had no number"));
    assert_eq!(relay.connect(), Some(games[7]));
    relay.handle_lane(LANE, &mut |_| panic!("nobody has said hello"));
    let mut numbers = std::collections::HashSet::new();
    for _ in 0..256 {
        relay.disconnect(games[7], &mut |_| ());
        let game = relay.connect().expect("there is room");
        let acts = from_game(&mut relay, game, hello("arena-1"));
        assert!(numbers.insert(acts[1].clone()), "{}", acts[1]);
    }
}

proptest! {
    #[test]
    fn no_bundle_makes_a_relay_panic(
        bundles in prop::collection::vec(prop::collection::vec(0_u8..20, 0..60), 0..6),
        is_let_in: bool,
    ) {
        let mut relay = relay();
        let mut game = if is_let_in { let_in(&mut relay).0 } else { relay.connect().expect("room") };
        for bundle in bundles {
            let mut is_over = false;
            relay.handle_bundle(game, &bundle, &mut |act| is_over |= matches!(act, Action::HangUp(_)));
            if is_over {
                game = relay.connect().expect("there is room");
            }
        }
    }
}

#[test]
fn a_player_has_come_once_it_says_something() {
    let (mut relay, rolls) = counting();
    rolls.set_slots([("arena-1", 4)]);
    let (_, link) = let_in(&mut relay);
    let mut user_data = [0; 256];
    user_data[..7].copy_from_slice(b"arena-1");
    assert!(destination::mark(&mut user_data, 77));
    let [one, other, untold] = [42, 43, 44].map(|serial| SessionId::new(THERE, serial));
    let comes = |session, client_id, user_data| Opened {
        client_id,
        delivers: false,
        ..with_token(session, user_data)
    };
    let mut say = |write: &dyn Fn(&mut Writer<'_>) -> bool| {
        assert_eq!(from_gateway(&mut relay, link, write).0, Ok(()));
    };
    say(&|writer| writer.opened(&comes(one, 5, &user_data)));
    say(&|writer| writer.opened(&comes(other, 6, &user_data)));
    say(&|writer| writer.opened(&comes(untold, 7, &[0; 256])));
    assert!(rolls.take_joins().is_empty(), "the token may open another session");
    say(&|writer| writer.closed(other, CloseReason::TimedOut));
    for _ in 0..2 {
        say(&|writer| writer.payload(one, b"me"));
        say(&|writer| writer.payload(untold, b"me"));
    }
    let join = destination::join(5, &user_data).expect("it is tagged");
    assert_eq!(rolls.take_joins(), [("arena-1".to_owned(), join)]);
    assert!(rolls.take_joins().is_empty());
    // It is announced again on another link, and told again: it is still there.
    say(&|writer| writer.opened(&comes(one, 5, &user_data)));
    say(&|writer| writer.payload(one, b"me"));
    assert_eq!(rolls.take_joins().len(), 1);
    // One who is moved on before it has said anything does not come here any more.
    say(&|writer| writer.opened(&comes(other, 6, &user_data)));
    say(&|writer| writer.moved(other, 1));
    let join = destination::join(6, &user_data).expect("it is tagged");
    assert_eq!(rolls.take_joins(), [("arena-1".to_owned(), join)]);
}

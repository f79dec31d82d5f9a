//! docs/PROTOCOLS.md against the codec: every example decodes to what stands under it, every table
//! has the code's numbers.

use std::collections::BTreeSet;

use ringgate_core::limits::{BUNDLE_BYTES_MAX, PAYLOAD_BYTES_MAX, WORKERS_MAX};
use ringgate_link::announce::{Announced, Announcement, Standing};
use ringgate_link::bundle::{
    Channel, CloseReason, GoodbyeReason, LONG_PAYLOAD_BYTES_MAX, MESSAGE_BYTES_MAX,
    MULTICAST_SESSIONS_MAX, MessagePart, MoveRefusal, NAME_BYTES_MAX, PART_BYTES_MAX, RecordError,
    SHORT_MESSAGE_BYTES_MAX, ToGame, ToGateway, VERSION_MAX, VERSION_MIN,
};

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/PROTOCOLS.md");
    std::fs::read_to_string(path).expect("the document is part of the repository")
}

/// A fenced block: the direction, the bytes, and what they are said to mean.
struct Example {
    direction: String,
    bytes: Vec<u8>,
    meaning: String,
}

fn examples(document: &str) -> Vec<Example> {
    blocks(document, "record")
}

fn blocks(document: &str, fence: &str) -> Vec<Example> {
    document
        .split(&format!("```{fence} "))
        .skip(1)
        .map(|rest| {
            let (block, _) = rest.split_once("\n```").expect("the block ends");
            let (direction, block) = block.split_once('\n').expect("the block has lines");
            let (dump, meaning) = block.split_once("\n= ").expect("the block says what it means");
            let bytes = dump.lines().flat_map(dump_line).collect();
            Example { direction: direction.to_owned(), bytes, meaning: meaning.to_owned() }
        })
        .collect()
}

/// `0b 00 13`, or `00 * 248` for 248 times the same.
fn dump_line(line: &str) -> Vec<u8> {
    let byte = |digits: &str| u8::from_str_radix(digits.trim(), 16).expect("two hex digits");
    match line.split_once('*') {
        Some((digits, count)) => vec![byte(digits); count.trim().parse().expect("a count")],
        None => line.split_whitespace().map(byte).collect(),
    }
}

/// The first word is the kind's name in the document.
fn describe_to_game(record: &ToGame<'_>) -> String {
    match record {
        ToGame::Welcome(welcome) => format!(
            "welcome: version {}, worker {} of {}, incarnation {}",
            welcome.version, welcome.worker, welcome.workers, welcome.incarnation
        ),
        ToGame::Opened(player) => format!(
            "opened: session {}, client {} at {}, slot {} of {}{}{}, listener {}, user data {:?}",
            player.session,
            player.client_id,
            player.address,
            player.slot,
            player.slots_max,
            if player.delivers { ", gets messages" } else { "" },
            player.ticket.map_or_else(String::new, |ticket| format!(", moved by ticket {ticket}")),
            player.listener,
            text(player.user_data).trim_end_matches('\0'),
        ),
        ToGame::OpenedPlain(player) => format!(
            "opened_plain: session {} at {}, slot {}, of {}, listener {}",
            player.session,
            player.address,
            player.slot.map_or_else(|| "none yet".to_owned(), |slot| slot.to_string()),
            player.slots_max,
            player.listener,
        ),
        ToGame::Payload { session, bytes } => {
            format!("payload: session {session}, {:?}", text(bytes))
        }
        ToGame::Message(part) => describe_message(part),
        ToGame::Report { session, token, is_delivered } => {
            let what = if *is_delivered { "delivered" } else { "lost" };
            format!("report: session {session}, token {token}, {what}")
        }
        ToGame::Room { session, is_full, waiting_bytes } => {
            let what = if *is_full { "full" } else { "free" };
            format!("room: session {session}, {what}, {waiting_bytes} bytes wait")
        }
        ToGame::Quality { session, quality } => format!(
            "quality: session {session}, round trip {} us, variation {} us, loss {} per mille, {} bytes wait",
            quality.round_trip_us,
            quality.variation_us,
            quality.loss_per_mille,
            quality.waiting_bytes
        ),
        ToGame::Lingered { session, undelivered_bytes, is_told } => {
            let told = if *is_told { "told" } else { "not told" };
            format!("lingered: session {session}, {undelivered_bytes} bytes undelivered, {told}")
        }
        ToGame::Offered(player) => format!(
            "offered: session {}, offer {}, ticket {}, client {} at {}, slot {} of {}, within {} ms, listener {}, from {}, user data {:?}, with {:?}",
            player.session,
            player.offer,
            player.ticket,
            player.client_id,
            player.address,
            player.slot,
            player.slots_max,
            player.left_ms,
            player.listener,
            player.from,
            text(player.user_data).trim_end_matches('\0'),
            text(player.data),
        ),
        ToGame::OfferOver { session, offer, reason } => {
            format!("offer_over: session {session}, offer {offer}, {reason}")
        }
        ToGame::Moved { session, ticket } => format!("moved: session {session}, ticket {ticket}"),
        ToGame::MoveRefused { session, ticket, reason } => {
            format!("move_refused: session {session}, ticket {ticket}, {reason}")
        }
        ToGame::Closed { session, reason } => format!("closed: session {session}, {reason}"),
        ToGame::Pong { token } => format!("pong: token {token}"),
        ToGame::Draining { left_ms } => format!("draining: {left_ms} ms left"),
        ToGame::Undrained => "undrained".to_owned(),
        ToGame::TakenOver { generation } => format!("taken_over: generation {generation}"),
        ToGame::Players { count, grace_ms, gather_us } => {
            let gather =
                gather_us.map_or_else(|| "nothing said".to_owned(), |us| format!("{us} us"));
            format!("players: {count}, who wait for {grace_ms} ms; to wait for more: {gather}")
        }
        ToGame::Goodbye(goodbye) => match goodbye.error {
            Some(error) => format!("goodbye: {} ({error})", goodbye.reason),
            None => format!("goodbye: {}", goodbye.reason),
        },
        ToGame::Unknown(frame) => panic!("no example is of a later version: {frame:?}"),
    }
}

fn describe_to_gateway(record: &ToGateway<'_>) -> String {
    match record {
        ToGateway::Hello(hello) => format!(
            "hello: versions {} to {}, pid {}, name {}",
            hello.version_min, hello.version_max, hello.pid, hello.name
        ),
        ToGateway::Payload { session, bytes } => {
            format!("payload: session {session}, {:?}", text(bytes))
        }
        ToGateway::Multicast { sessions, bytes } => {
            let sessions: Vec<_> = sessions.iter().map(|session| session.to_string()).collect();
            format!("multicast: sessions {}, {:?}", sessions.join(" "), text(bytes))
        }
        ToGateway::Message(part) => describe_message(part),
        ToGateway::AskQuality { session } => format!("ask_quality: session {session}"),
        ToGateway::Close { session, reason } => format!("close: session {session}, {reason}"),
        ToGateway::CloseAfter(close) => format!(
            "close_after: session {}, {}, within {} ms, {:?}",
            close.session,
            close.reason,
            close.linger_ms,
            text(close.text)
        ),
        ToGateway::Move(asked) => format!(
            "move: session {} to {}, ticket {}, within {} ms{}{}, with {:?}",
            asked.session,
            asked.backend,
            asked.ticket,
            asked.time_ms,
            if asked.confirms { ", confirmed" } else { "" },
            asked.message.map_or_else(String::new, |(_, it)| format!(", message {:?}", text(it))),
            text(asked.data),
        ),
        ToGateway::Answer { session, offer, answer } => {
            let answer = format!("{answer:?}").to_lowercase();
            format!("answer: session {session}, offer {offer}, {answer}")
        }
        ToGateway::Confirm { session } => format!("confirm: session {session}"),
        ToGateway::Ping { token } => format!("ping: token {token}"),
        ToGateway::Intake { is_open: true } => "intake: open".to_owned(),
        ToGateway::Intake { is_open: false } => "intake: closed".to_owned(),
        ToGateway::Unknown(frame) => panic!("no example is of a later version: {frame:?}"),
    }
}

fn describe_message(part: &MessagePart<'_>) -> String {
    let channel = match part.channel {
        Channel::Reliable(number) => format!("reliable channel {number}"),
        Channel::Sequenced(number) => format!("sequenced channel {number}"),
        Channel::Unreliable(number) => format!("unreliable channel {number}"),
    };
    let marks = [(part.is_first, ", begins"), (part.is_last, ", ends")];
    let marks: String = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word).collect();
    let MessagePart { session, token, bytes, .. } = part;
    format!("message: session {session}, {channel}{marks}, token {token}, {:?}", text(bytes))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the examples carry text")
}

#[test]
fn every_example_decodes_to_what_it_says() {
    let document = document();
    let mut seen = BTreeSet::new();
    for example in examples(&document) {
        let decoded: Vec<_> = match example.direction.as_str() {
            "to-game" => ToGame::read(&example.bytes)
                .map(|record| describe_to_game(&record.expect(&example.meaning)))
                .collect(),
            "to-gateway" => ToGateway::read(&example.bytes)
                .map(|record| describe_to_gateway(&record.expect(&example.meaning)))
                .collect(),
            direction => panic!("there is no direction {direction}"),
        };
        assert_eq!(decoded, [example.meaning.as_str()]);
        let kind = example.meaning.split(':').next().expect("one part at least").to_owned();
        seen.insert((example.bytes[2], kind));
    }
    let listed: BTreeSet<_> = rows(&document, "| kind | record | direction | when |")
        .map(|row| (number(&row[0]) as u8, row[1].trim_matches('`').to_owned()))
        .collect();
    assert_eq!(seen, listed, "every kind has an example, under the number the table gives it");
}

#[test]
fn announcements_are_what_the_document_says() {
    let document = document();
    let examples = blocks(&document, "announce");
    assert_eq!(examples.len(), 3);
    for Example { direction, bytes, meaning } in examples {
        let said = match direction.as_str() {
            "to-gateway" => {
                let said = Announced::decode(&bytes).expect(&meaning);
                let again = said.what.encode(&said.name, said.instance);
                assert_eq!(again, Some(bytes));
                describe_announcement(&said)
            }
            "to-process" => {
                let standing = Standing::decode(&bytes).expect(&meaning);
                assert_eq!(standing.encode(), *bytes);
                format!("standing {}", standing as u8)
            }
            direction => panic!("there is no direction {direction}"),
        };
        assert_eq!(said, meaning);
    }
    let (_, standings) = document.split_once("| standing | |").expect("the table is there");
    let listed: Vec<_> = rows_below(standings).map(|row| number(&row[0]) as u8).collect();
    let known = (0..=u8::MAX).filter(|it| Standing::from_u8(*it) != Standing::Refused);
    assert!(known.eq(listed), "the table has every standing");
}

fn describe_announcement(Announced { name, instance, what }: &Announced) -> String {
    let Announcement { group, slots, players, state, labels } = what;
    let players =
        players.map_or("players uncounted".to_owned(), |players| format!("{players} players"));
    let labels = match labels.as_slice() {
        [] => "no labels".to_owned(),
        some => {
            let some: Vec<_> = some.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("labels {}", some.join(" "))
        }
    };
    let state = format!("{state:?}").to_lowercase();
    format!(
        "name {name}, start {instance}, group {group}, {state}, {slots} slots, {players}, {labels}"
    )
}

/// The cells of a table that is found by its heading.
fn rows<'a>(document: &'a str, heading: &str) -> impl Iterator<Item = Vec<String>> + use<'a> {
    let (_, rest) = document.split_once(heading).expect("the table is there");
    rows_below(rest)
}

fn rows_below(rest: &str) -> impl Iterator<Item = Vec<String>> {
    rest.lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
}

fn number(cell: &str) -> usize {
    cell.parse().expect("a number")
}

#[test]
fn the_limits_are_those_of_the_code() {
    let listed: Vec<_> = rows(&document(), "| limit | value |")
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let expected = [
        ("bytes of a datagram", BUNDLE_BYTES_MAX.to_string()),
        ("bytes of a payload", format!("1 to {PAYLOAD_BYTES_MAX}")),
        (
            "bytes of a payload for one player, from version 3 on",
            format!("1 to {LONG_PAYLOAD_BYTES_MAX}"),
        ),
        ("bytes of a message on a reliable channel", format!("1 to {MESSAGE_BYTES_MAX}")),
        ("bytes of a message on another channel", format!("1 to {SHORT_MESSAGE_BYTES_MAX}")),
        ("bytes of a part of a message", format!("1 to {PART_BYTES_MAX}")),
        ("sessions in a multicast", format!("1 to {MULTICAST_SESSIONS_MAX}")),
        ("bytes of a name", format!("1 to {NAME_BYTES_MAX}")),
        ("workers", format!("1 to {WORKERS_MAX}")),
    ];
    assert_eq!(listed, expected.map(|(limit, value)| (limit.to_owned(), value)));
}

#[test]
fn the_versions_are_those_of_the_code() {
    let listed: Vec<_> =
        rows(&document(), "| version | step | brings |").map(|row| number(&row[0])).collect();
    let spoken: Vec<_> = (VERSION_MIN..=VERSION_MAX).map(usize::from).collect();
    assert_eq!(listed, spoken);
}

#[test]
fn the_reasons_are_those_of_the_code() {
    let document = document();
    let listed = |heading| -> Vec<_> {
        rows(&document, heading).map(|row| (number(&row[0]) as u8, row[1].clone())).collect()
    };
    let close: Vec<_> = CloseReason::ALL.iter().map(|r| (r.as_u8(), r.to_string())).collect();
    assert_eq!(listed("| reason | text |"), close);
    let goodbye: Vec<_> = GoodbyeReason::ALL.iter().map(|r| (r.as_u8(), r.to_string())).collect();
    assert_eq!(listed("| goodbye | text |"), goodbye);
    let refusal: Vec<_> = MoveRefusal::ALL.iter().map(|r| (r.as_u8(), r.to_string())).collect();
    assert_eq!(listed("| refusal | text |"), refusal);
    let error: Vec<_> = RecordError::ALL.iter().map(|e| (e.as_u8(), e.to_string())).collect();
    assert_eq!(listed("| error | text |"), error);
}

#[test]
fn fields_follow_each_other_without_a_gap_and_fill_the_example() {
    let document = document();
    let (_, records) = document.split_once("\n### hello\n").expect("the first record's heading");
    let (records, _) = records.split_once("\n### Errors\n").expect("what follows the records");
    let mut checked = 0;
    for section in records.split("\n### ") {
        let (_, rest) = section.split_once("| offset | bytes | field |").expect("a table");
        let example = examples(section).into_iter().next().expect("an example");
        let mut next = 4;
        let mut ends_open = false;
        for row in rows_below(rest) {
            if row[0].contains('n') {
                assert!(ends_open, "only a list pushes a field to where nobody knows");
                continue;
            }
            assert_eq!(number(&row[0]), next, "{section}");
            match row[1].as_str() {
                "rest" | "8 each" => ends_open = true,
                bytes => next += number(bytes),
            }
        }
        let fills =
            if ends_open { example.bytes.len() > next } else { example.bytes.len() == next };
        assert!(fills, "{} bytes for {next}: {section}", example.bytes.len());
        checked += 1;
    }
    assert_eq!(checked, 28, "ping and pong share a section, draining and undrained too");
}

//! The fields of plain listeners: what there is to know of a game whose protocol is not known.

use std::num::NonZeroU64;
use std::time::Duration;

use toml::de::DeValue;

use super::{Surroundings, tokens, window};
use crate::declare::{Declared, declare};
use crate::schema::{Kind, Table};
use crate::section::{Noted, Section, integer};
use crate::{GuardedWays, NumberOrder, Route, RoutingTokens, TokenPlace, values};
use ringgate_core::limits::PLAIN_BYTES_MAX;

declare! {
    /// The fields of a plain listener.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Plain only ["plain"] {
        /// The token that every datagram carries: at its end (the default of at) or its start, so
        /// many bytes. With strip (the default) game servers get datagrams without it. It is looked
        /// at in every datagram, and another token is another session. Only with route = "token".
        token: Option<RoutingToken> = inline(
            "{ at = \"end\" or \"start\", bytes = 1 to 64, strip = true or false }", &TOKEN
        ), optional: { at = "end", bytes = 8, strip = true }, Restart;
        /// Whose each token is, up to 100000. A file has a token in hex and the name of a backend
        /// on each line, and may have empty lines and comments (#); it is closed to group and
        /// others (chmod 600), and a relative path starts at the config file's directory. Only with
        /// route = "token"; not beside a group, whose tokens are made of fleet.key.
        tokens: RoutingTokens = by_hand(Kind::List { items: "tokens", item: tokens::FORMS }),
            optional: [{ hex = "1122334455667788", backend = "any-1" }], Reload;
        /// Where every datagram has a number that counts up, so many bytes from its start as it is
        /// received; order is "big" where it is not said. With it duplicates, and what is older
        /// than replay_window, are dropped. Nothing is authenticated: who can send in a player's
        /// name can use up its numbers.
        sequence: Option<Sequence> = by_hand(
            Kind::Value("{ offset = …, bits = 8, 16 or 32, order = \"big\" or \"little\" }")
        ), optional: { offset = 4, bits = 16, order = "big" }, Restart;
        /// Whose numbers are looked at, where there is a sequence: the players' ("up"), or also the
        /// game servers' ("both").
        guard: GuardedWays = word, default: "up", Restart;
        /// How many numbers back a late packet may come. It needs sequence and is below half of its
        /// numbers.
        replay_window: u16 = value("a power of two from 64 to 1024", window), default: 256, Restart;
        /// A jump over more than this many numbers ends the session. It needs sequence, is below
        /// half of its numbers, and anybody who can send in a player's name can end its session. 0:
        /// any jump is fine, and the next number has to continue a jump over more than half the
        /// replay_window.
        gap_limit: Option<NonZeroU64> = integer(0, 1 << 32, NonZeroU64::new), default: 0, Reload;
        /// What every datagram of a player begins with, as it is received; others are dropped.
        begins_with: Vec<u8> = text(
            "up to 64 bytes as pairs of hex digits", |text| values::bytes(text, PATTERN_BYTES_MAX)
        ), default: "", Restart;
        /// A player who is silent for this long is gone. Games of unknown kind may have long
        /// silences.
        idle_timeout: Duration = duration("1s", "1h"), default: "60s", Restart;
        /// A session is half open until its source has sent again after an answer. One that stays
        /// so for so long ends.
        half_open_timeout: Duration = duration("100ms", "1m"), default: "2s", Reload;
        /// Half-open sessions of a worker, at a time. When there are more, the oldest of them ends;
        /// players who are in are never touched.
        half_open_max: u32 = integer(16, 65_536), default: 4096, ReloadBut("up to what it was at the start");
        /// While its session is half open, a source gets at most so many times the bytes that it
        /// has sent; each answer beyond one for each of its datagrams counts 28 bytes more, for its
        /// headers. 0: as many as come.
        answer_limit: u32 = integer(0, 1000), default: 3, Reload;
        /// The source of an open session is sent at most so many bytes for each one that was heard
        /// of it, for as long as the session lasts; each datagram counts 28 bytes more than its
        /// payload, for its headers. It is what an attacker who writes somebody else's address on
        /// datagrams can multiply them by. 0: as many as come.
        credit_ratio: u32 = integer(0, 1_000_000), default: 1000, Reload;
        /// Bytes that were earned in this way and not sent are kept up to so many.
        credit_burst: u32 = integer(2_000, 1 << 30), default: 131072, Reload;
        /// The source of an open session that is silent for so long is sent nothing until it is
        /// heard; the session goes on. "0s": it is never paused.
        pause_after: Duration = duration("0s", "1h"), default: "5s", Reload;
        /// Where a game's servers send four bytes that its players send back (an acknowledged
        /// number, a token of the server's): so many bytes from the start of a server's datagram,
        /// and of a player's as it is received. A player who sends back what one of the latest 64
        /// datagrams to it had there is proven: its session opens, and credit_ratio and pause_after
        /// do not count for it any more. The bytes have to be hard to guess; those of which one
        /// half is 0000 or ffff, as in a number that counts from 0, prove nothing.
        echo: Option<Echo> =
            inline("{ sent = …, heard = … }", &ECHO), optional: { sent = 4, heard = 8 }, Restart;
        /// Players whom no echo has proven hold at most so many of a hundred slots of a server, and
        /// of what an address, a site or a block may have. Without it: 50 with echo, 100 otherwise.
        unproven_slots: u32 = by_hand(Kind::Integer { min: 0, max: 100 }), optional: 50, Reload;
        /// A source whose session has ended by gap_limit may begin again after so long.
        gap_rest: Duration = duration("0s", "10m"), default: "2s", Reload;
    }
}

declare! {
    /// A token in every datagram.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RoutingToken {
        /// Where it stands.
        at: TokenPlace = word, default: "end", Restart;
        /// How long it is.
        bytes: u8 = integer(1, 64), required, Restart;
        /// Whether game servers get datagrams without it.
        strip: bool = flag, default: true, Restart;
    }
}

const TOKEN: Table = Table::inline("token", &[RoutingToken::FIELDS]);

declare! {
    /// Where every datagram has a number that counts up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Sequence {
        /// Bytes before it. Invariant: the longest datagram holds it.
        offset: u16 = integer(0, PLAIN_BYTES_MAX as u64 - 1), required, Restart;
        /// Its width.
        bits: u8 = value("8, 16 or 32", bits), required, Restart;
        /// Which of its bytes comes first.
        order: NumberOrder = word, default: "big", Restart;
    }
}

const SEQUENCE: Table = Table::inline("sequence", &[Sequence::FIELDS]);

declare! {
    /// Four bytes of each datagram of a server that come back in a player's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Echo {
        /// Bytes before them in the server's. Four bytes end with the longest datagram.
        sent: u16 = integer(0, PLAIN_BYTES_MAX as u64 - 4), required, Restart;
        /// Bytes before them in the player's.
        heard: u16 = integer(0, PLAIN_BYTES_MAX as u64 - 4), required, Restart;
    }
}

const ECHO: Table = Table::inline("echo", &[Echo::FIELDS]);

/// Where the listener leads, as far as that could be read.
#[derive(Clone, Copy)]
pub(super) struct Led<'a> {
    pub(super) route: Option<Route>,
    pub(super) backends: Option<&'a [usize]>,
    pub(super) is_grouped: bool,
}

pub(super) fn read(
    section: &mut Section<'_, '_>,
    led: Led<'_>,
    around: &Surroundings<'_>,
) -> Option<Plain> {
    check_route(section, led);
    let mut found = Plain::find(section);
    let token = found.token.flatten();
    let bytes = token.map(|token| usize::from(token.bytes));
    found.tokens = tokens::read(section, bytes, led.backends, around);
    found.sequence = read_sequence(section, token).ok();
    match (found.sequence, found.guard, found.replay_window, found.gap_limit) {
        (Some(None), Some(guard), Some(window), Some(limit)) => {
            let said = [
                ("guard", guard != GuardedWays::Up),
                ("replay_window", window != WINDOW),
                ("gap_limit", limit.is_some()),
            ];
            check_unguarded(section, &said);
        }
        (Some(Some(sequence)), _, window, limit) => {
            let limit = limit.flatten().map(NonZeroU64::get);
            for (field, number) in [("replay_window", window.map(u64::from)), ("gap_limit", limit)]
            {
                check_half(section, number.unwrap_or_default(), sequence, field);
            }
        }
        _ => {}
    }
    // Where a game proves its players, slots are kept for those who are.
    let share = if found.echo.flatten().is_some() { 50 } else { 100 };
    found.unproven_slots = section.integer_or("unproven_slots", share);
    if found.unproven_slots == Some(0) && matches!(found.echo, Some(None)) {
        let found = "0 without echo, by which alone players are proven";
        section.expected("unproven_slots", found, "an echo, or more: nobody would get in");
    }
    if let (Some(TokenPlace::Start), Some(pattern)) = (token.map(|it| it.at), &found.begins_with) {
        let begins = |token: &[u8]| token.iter().zip(pattern).all(|(one, other)| one == other);
        let mut listed = found.tokens.iter().flat_map(|tokens| &tokens.0);
        if (led.is_grouped && !pattern.is_empty()) || !listed.all(|(token, _)| begins(token)) {
            let found = "it, and tokens at the start that begin otherwise";
            section.expected("begins_with", found, "how all tokens begin, or these at the end");
        }
    }
    Plain::whole(found)
}

/// A token and tokens belong to `route = "token"`, and that to them. Tokens of a group are made of
/// the fleet's key.
fn check_route(section: &mut Section<'_, '_>, led: Led<'_>) {
    let Some(route) = led.route else { return };
    for field in ["token", "tokens"] {
        let is_made = led.is_grouped && field == "tokens";
        match (route == Route::Token, section.has(field)) {
            (true, true) if is_made => {
                let found = "tokens beside a group";
                section.expected(field, found, "none: they are made of fleet.key");
            }
            (true, false) if is_made => {}
            (true, false) => {
                let form = section.form(field);
                let expected = format_args!("{form} (route = \"token\" goes by it)");
                section.expected(field, "nothing", expected);
            }
            (false, true) => {
                let found = format_args!("{field} without route = \"token\"");
                section.expected(field, found, "both or neither");
            }
            _ => {}
        }
    }
}

/// Without a sequence there is nothing to guard by.
fn check_unguarded(section: &mut Section<'_, '_>, said: &[(&'static str, bool)]) {
    for (field, _) in said.iter().filter(|(_, is_said)| *is_said) {
        let (place, found) = (section.place(field), format_args!("{field} without sequence"));
        section.report.expected(&place, found, "a sequence, which it is about");
    }
}

fn read_sequence(
    listener: &mut Section<'_, '_>,
    token: Option<RoutingToken>,
) -> Result<Option<Sequence>, Noted> {
    let Some(mut section) = listener.inline("sequence", &SEQUENCE)? else { return Ok(None) };
    let found = Sequence::find(&mut section);
    if let (Some(offset), Some(bits)) = (found.offset, found.bits) {
        check_offset(&mut section, (offset.into(), bits), token);
    }
    section.finish();
    Sequence::whole(found).map(Some).ok_or(Noted)
}

fn bits(value: &DeValue<'_>) -> Option<u8> {
    u8::try_from(integer(value)?).ok().filter(|bits| matches!(bits, 8 | 16 | 32))
}

/// A number ends with the longest datagram, and is no part of a token, which does not count up.
fn check_offset(
    section: &mut Section<'_, '_>,
    (offset, bits): (u64, u8),
    token: Option<RoutingToken>,
) {
    let last = PLAIN_BYTES_MAX as u64 - u64::from(bits / 8);
    if offset > last {
        let found = format_args!("{offset} for {bits} bits");
        let expected = format_args!("at most {last} (datagrams have {PLAIN_BYTES_MAX} bytes)");
        section.expected("offset", found, expected);
    }
    let at_start = token.filter(|token| token.at == TokenPlace::Start);
    let before = at_start.map_or(0, |token| u64::from(token.bytes));
    if offset < before {
        let found = format_args!("{offset}, which lies in the token");
        let expected = format_args!("at least {before} (the token is at the start)");
        section.expected("offset", found, expected);
    }
}

/// Beyond half of the numbers, new and old cannot be told apart.
fn check_half(section: &mut Section<'_, '_>, found: u64, sequence: Sequence, field: &str) {
    let half = 1_u64 << (sequence.bits - 1);
    if found >= half {
        let found = format_args!("{found} for a sequence of {} bits", sequence.bits);
        section.expected(field, found, format_args!("less than {half}, half of its numbers"));
    }
}

/// What the description says, too.
const WINDOW: u16 = 256;

/// More than any game says at the start of each datagram.
const PATTERN_BYTES_MAX: usize = 64;

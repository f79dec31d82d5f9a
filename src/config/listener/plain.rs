//! The fields of plain listeners: what there is to know of a game whose protocol is not known.

use std::num::NonZeroU64;
use std::time::Duration;

use toml::de::DeValue;

use super::{Surroundings, tokens, window};
use crate::config::mistake::Place;
use crate::config::schema::{ECHO, SEQUENCE, TOKEN};
use crate::config::section::{Noted, Section, integer};
use crate::config::{Echo, GuardedWays, Plain, Route, RoutingToken, Sequence, TokenPlace, values};
use ringgate_core::limits::PLAIN_BYTES_MAX;

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
    let token = read_token(section);
    let bytes = token.ok().flatten().map(|token| usize::from(token.bytes));
    let tokens = tokens::read(section, bytes, led.backends, around);
    let sequence = read_sequence(section, token.ok().flatten());
    let guard = section.choice("guard");
    let replay_window = section.value("replay_window", window);
    let gap_place = section.place("gap_limit");
    let gap_limit = section.integer("gap_limit");
    match (sequence, &guard, &replay_window, gap_limit) {
        (Ok(None), Some((guard, of_guard)), Some((window, of_window)), Some(limit)) => {
            let said = [
                ("guard", *guard != GuardedWays::Up, of_guard.clone()),
                ("replay_window", *window != WINDOW, of_window.clone()),
                ("gap_limit", limit > 0, gap_place),
            ];
            check_unguarded(section, &said);
        }
        (Ok(Some(sequence)), _, window, limit) => {
            if let Some((window, place)) = window {
                check_half(section, (*window).into(), sequence, place);
            }
            if let Some(limit) = limit {
                check_half(section, limit, sequence, &gap_place);
            }
        }
        _ => {}
    }
    let begins_with = section.text("begins_with", |text| values::bytes(text, PATTERN_BYTES_MAX));
    let idle_timeout = section.duration_or("idle_timeout", IDLE_TIMEOUT);
    let half_open_timeout = section.duration("half_open_timeout");
    let half_open_max = section.integer("half_open_max");
    let answer_limit = section.integer("answer_limit");
    let credit_ratio = section.integer("credit_ratio");
    let credit_burst = section.integer("credit_burst");
    let pause_after = section.duration("pause_after");
    let echo = read_echo(section);
    // Where a game proves its players, slots are kept for those who are.
    let share = if echo.is_ok_and(|echo| echo.is_some()) { 50 } else { 100 };
    let unproven_slots = section.integer_or("unproven_slots", share);
    let gap_rest = section.duration("gap_rest");
    Some(Plain {
        token: token.ok()?,
        tokens: tokens?,
        sequence: sequence.ok()?,
        guard: guard?.0,
        replay_window: replay_window?.0,
        gap_limit: NonZeroU64::new(gap_limit?),
        begins_with: begins_with?.0,
        idle_timeout: idle_timeout?,
        half_open_timeout: half_open_timeout?,
        half_open_max: u32::try_from(half_open_max?).ok()?,
        answer_limit: u32::try_from(answer_limit?).ok()?,
        credit_ratio: u32::try_from(credit_ratio?).ok()?,
        credit_burst: u32::try_from(credit_burst?).ok()?,
        pause_after: pause_after?,
        echo: echo.ok()?,
        unproven_slots: u32::try_from(unproven_slots?).ok()?,
        gap_rest: gap_rest?,
    })
}

/// A token and tokens belong to `route = "token"`, and that to them. Tokens of a group are made of
/// the fleet's key.
fn check_route(section: &mut Section<'_, '_>, led: Led<'_>) {
    let Some(route) = led.route else { return };
    for field in ["token", "tokens"] {
        let place = section.place(field);
        let is_made = led.is_grouped && field == "tokens";
        match (route == Route::Token, section.has(field)) {
            (true, true) if is_made => {
                let found = "tokens beside a group";
                section.report.expected(&place, found, "none: they are made of fleet.key");
            }
            (true, false) if is_made => {}
            (true, false) => {
                let form = section.form(field);
                let expected = format_args!("{form} (route = \"token\" goes by it)");
                section.report.expected(&place, "nothing", expected);
            }
            (false, true) => {
                let found = format_args!("{field} without route = \"token\"");
                section.report.expected(&place, found, "both or neither");
            }
            _ => {}
        }
    }
}

/// Without a sequence there is nothing to guard by.
fn check_unguarded(section: &mut Section<'_, '_>, said: &[(&'static str, bool, Place)]) {
    for (field, _, place) in said.iter().filter(|(_, is_said, _)| *is_said) {
        section.report.expected(
            place,
            format_args!("{field} without sequence"),
            "a sequence, which it is about",
        );
    }
}

fn read_token(listener: &mut Section<'_, '_>) -> Result<Option<RoutingToken>, Noted> {
    let Some(mut section) = listener.inline("token", &TOKEN)? else { return Ok(None) };
    let at = section.choice("at");
    let bytes = section.integer("bytes");
    let strip = section.flag("strip");
    section.finish();
    let read = || {
        let bytes = u8::try_from(bytes?).ok()?;
        Some(RoutingToken { at: at?.0, bytes, strip: strip? })
    };
    read().map(Some).ok_or(Noted)
}

fn read_sequence(
    listener: &mut Section<'_, '_>,
    token: Option<RoutingToken>,
) -> Result<Option<Sequence>, Noted> {
    let Some(mut section) = listener.inline("sequence", &SEQUENCE)? else { return Ok(None) };
    let place = section.place("offset");
    let offset = section.integer("offset");
    let bits = section.value("bits", bits);
    let order = section.choice("order");
    if let (Some(offset), Some((bits, _))) = (offset, &bits) {
        check_offset(&mut section, (offset, *bits), token, &place);
    }
    section.finish();
    let read = || {
        let offset = u16::try_from(offset?).ok()?;
        Some(Sequence { offset, bits: bits?.0, order: order?.0 })
    };
    read().map(Some).ok_or(Noted)
}

fn read_echo(listener: &mut Section<'_, '_>) -> Result<Option<Echo>, Noted> {
    let Some(mut section) = listener.inline("echo", &ECHO)? else { return Ok(None) };
    let [sent, heard] = ["sent", "heard"].map(|field| section.integer(field));
    section.finish();
    let read = || {
        let [sent, heard] = [sent?, heard?].map(u16::try_from);
        Some(Echo { sent: sent.ok()?, heard: heard.ok()? })
    };
    read().map(Some).ok_or(Noted)
}

fn bits(value: &DeValue<'_>) -> Option<u8> {
    u8::try_from(integer(value)?).ok().filter(|bits| matches!(bits, 8 | 16 | 32))
}

/// A number ends with the longest datagram, and is no part of a token, which does not count up.
fn check_offset(
    section: &mut Section<'_, '_>,
    (offset, bits): (u64, u8),
    token: Option<RoutingToken>,
    place: &Place,
) {
    let last = PLAIN_BYTES_MAX as u64 - u64::from(bits / 8);
    if offset > last {
        let found = format_args!("{offset} for {bits} bits");
        let expected = format_args!("at most {last} (datagrams have {PLAIN_BYTES_MAX} bytes)");
        section.report.expected(place, found, expected);
    }
    let at_start = token.filter(|token| token.at == TokenPlace::Start);
    let before = at_start.map_or(0, |token| u64::from(token.bytes));
    if offset < before {
        let found = format_args!("{offset}, which lies in the token");
        let expected = format_args!("at least {before} (the token is at the start)");
        section.report.expected(place, found, expected);
    }
}

/// Beyond half of the numbers, new and old cannot be told apart.
fn check_half(section: &mut Section<'_, '_>, found: u64, sequence: Sequence, place: &Place) {
    let half = 1_u64 << (sequence.bits - 1);
    if found >= half {
        let found = format_args!("{found} for a sequence of {} bits", sequence.bits);
        section.report.expected(
            place,
            found,
            format_args!("less than {half}, half of its numbers"),
        );
    }
}

/// What the description says, too.
const WINDOW: u16 = 256;

/// More than any game says at the start of each datagram.
const PATTERN_BYTES_MAX: usize = 64;

/// Games of unknown kind may have long silences.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

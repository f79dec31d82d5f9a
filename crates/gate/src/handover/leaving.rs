//! Listeners that drain: a successor's file does not have them any more, so what their players need
//! of their rules goes along, behind the format.
//!
//! Neither the private keys of tokens nor the table of routing tokens goes: both are for newcomers,
//! and such a listener takes no player in. What is read is checked as a config is, as far as
//! anything depends on it.

use crate::front::room::HALF_OPEN_MAX;
use crate::handover::record::{Kind, Refused, Sink, take_records};
use crate::ids::{BackendId, ListenerId};
use crate::setup::{
    Duplicates, Limits, Listener, Netcode, Phase, Plain, Protocol, Route, Sequence, Setup, Token,
    TokenPlace, TokenReuse, Unreal,
};
use ringgate_batch::Endpoint;
use ringgate_core::carry::{Broken, Carry, Maps, Reader, Writer, time};
use std::sync::Arc;

/// A listener of the process before that drains.
#[derive(Clone, Debug)]
pub struct Leaving {
    /// Its number there.
    pub number: u16,
    /// What it is told here.
    pub listener: Listener,
}

impl Leaving {
    /// Writes those of a setup, behind the [format](super::Format::write).
    pub fn write_all(setup: &Setup, sink: &mut Sink<'_>) -> Result<(), Refused> {
        let draining = setup.listeners.pairs().filter(|(_, it)| it.phase == Phase::Draining);
        for (ListenerId(number), listener) in draining {
            sink.append(Kind::LeavingListener, |out| {
                number.write(out);
                write_listener(listener, out);
            })?;
        }
        Ok(())
    }

    /// Reads those that follow the [format](super::Format::read). `maps` says what numbers of
    /// backends mean here: others are left out.
    pub fn read_all(bytes: &[u8], maps: &Maps) -> Result<Vec<Self>, Refused> {
        let mut all = Vec::new();
        take_records(bytes, |kind, body| {
            if kind != Kind::LeavingListener {
                return Err(Refused::Stranger);
            }
            let mut from = Reader::new(body, maps);
            let read = u16::read(&mut from).and_then(|number| {
                let listener = read_listener(&mut from)?;
                from.end().map(|()| Self { number, listener })
            });
            all.push(read.map_err(|why| Refused::Broken(why, kind.what()))?);
            Ok(())
        })?;
        Ok(all)
    }
}

fn write_listener(listener: &Listener, out: &mut Writer<'_>) {
    let Listener {
        name,
        protocol,
        public,
        backends,
        route,
        sessions_max,
        follow_port_switch,
        limits,
        // All of them drain.
        phase: _,
    } = listener;
    name.write(out);
    public.iter().copied().map(Endpoint::from).collect::<Vec<_>>().write(out);
    backends.write(out);
    route.write(out);
    sessions_max.write(out);
    follow_port_switch.write(out);
    limits.write(out);
    match protocol {
        Protocol::Netcode(rules) => {
            Spoken::Netcode.write(out);
            rules.write(out);
        }
        Protocol::Unreal(rules) => {
            Spoken::Unreal.write(out);
            write_unreal(rules, out);
        }
        Protocol::Plain(rules) => {
            Spoken::Plain.write(out);
            write_plain(rules, out);
        }
        #[cfg(test)]
        Protocol::Third => {}
    }
}

fn read_listener(from: &mut Reader<'_>) -> Result<Listener, Broken> {
    let name = String::read(from)?;
    let public: Vec<Endpoint> = Carry::read(from)?;
    let backends = read_backends(from)?;
    let (route, sessions_max) = (Route::read(from)?, u32::read(from)?);
    let (follow_port_switch, limits) = (bool::read(from)?, Limits::read(from)?);
    let protocol = match Spoken::read(from)? {
        Spoken::Netcode => Protocol::Netcode(Carry::read(from)?),
        Spoken::Unreal => Protocol::Unreal(read_unreal(from)?),
        Spoken::Plain => Protocol::Plain(read_plain(from)?),
    };
    Ok(Listener {
        name,
        protocol,
        public: public.into_iter().map(Into::into).collect(),
        backends,
        route,
        sessions_max,
        follow_port_switch,
        limits,
        phase: Phase::Draining,
    })
}

/// Those that are here, too.
fn read_backends(from: &mut Reader<'_>) -> Result<Vec<BackendId>, Broken> {
    let mut backends = Vec::new();
    for _ in 0..u32::read(from)? {
        match BackendId::read(from) {
            Ok(backend) => backends.push(backend),
            Err(Broken::Foreign) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(backends)
}

fn write_unreal(rules: &Unreal, out: &mut Writer<'_>) {
    let Unreal {
        framing,
        learns_base,
        versions,
        network_versions,
        duplicates,
        gap_limit,
        idle_timeout_ns,
    } = rules;
    Carry::write(framing, out);
    learns_base.write(out);
    [*versions.start(), *versions.end()].write(out);
    network_versions.write(out);
    duplicates.write(out);
    gap_limit.write(out);
    idle_timeout_ns.write(out);
}

fn read_unreal(from: &mut Reader<'_>) -> Result<Unreal, Broken> {
    let (framing, learns_base) = (Carry::read(from)?, Carry::read(from)?);
    let [oldest, newest] = <[u8; 2]>::read(from)?;
    if oldest > newest {
        return Err(Broken::Invalid("range of versions"));
    }
    Ok(Unreal {
        framing,
        learns_base,
        versions: oldest..=newest,
        network_versions: Carry::read(from)?,
        duplicates: Carry::read(from)?,
        gap_limit: Carry::read(from)?,
        idle_timeout_ns: time::read(from)?,
    })
}

fn write_plain(rules: &Plain, out: &mut Writer<'_>) {
    let Plain {
        token,
        sequence,
        begins_with,
        idle_ns,
        half_open_ns,
        rest_ns,
        half_open_max,
        answer_times,
        credit,
        echo,
        unproven_percent,
        starts_per_block,
        starts_total,
    } = rules;
    let token = token.as_ref().map(|Token { at, bytes, strip, backends: _ }| {
        let is_at_end = *at == TokenPlace::End;
        (*bytes, (is_at_end, *strip))
    });
    token.write(out);
    sequence.write(out);
    begins_with.write(out);
    [*idle_ns, *half_open_ns, *rest_ns].write(out);
    [*half_open_max, *answer_times, *unproven_percent].write(out);
    [*starts_per_block, *starts_total].write(out);
    credit.write(out);
    echo.write(out);
}

fn read_plain(from: &mut Reader<'_>) -> Result<Plain, Broken> {
    let token = Option::<(u8, (bool, bool))>::read(from)?.map(|(bytes, (is_at_end, strip))| {
        let at = if is_at_end { TokenPlace::End } else { TokenPlace::Start };
        Token { at, bytes, strip, backends: Arc::default() }
    });
    let is_token = |it: &Token| (1..=Token::TOKEN_BYTES_MAX).contains(&it.bytes.into());
    if !token.as_ref().is_none_or(is_token) {
        return Err(Broken::Invalid("token"));
    }
    let sequence: Option<Sequence> = Carry::read(from)?;
    if !sequence.is_none_or(|it| it.field.width.holds(&it.policy)) {
        return Err(Broken::Invalid("window"));
    }
    let begins_with = Carry::read(from)?;
    let [idle_ns, half_open_ns, rest_ns] =
        [time::read(from)?, time::read(from)?, time::read(from)?];
    let [half_open_max, answer_times, unproven_percent] = Carry::read(from)?;
    if half_open_max as usize > HALF_OPEN_MAX {
        return Err(Broken::Invalid("number of half-open sessions"));
    }
    let [starts_per_block, starts_total] = Carry::read(from)?;
    Ok(Plain {
        token,
        sequence,
        begins_with,
        idle_ns,
        half_open_ns,
        rest_ns,
        half_open_max,
        answer_times,
        credit: Carry::read(from)?,
        echo: Carry::read(from)?,
        unproven_percent,
        starts_per_block,
        starts_total,
    })
}

/// What is spoken there.
#[derive(Clone, Copy)]
enum Spoken {
    Netcode,
    Unreal,
    Plain,
}

// Nobody says any more where its players may be moved.
ringgate_core::carried!(Netcode {
    protocol_id,
    keys as anew,
    replay,
    keep_alive_ns as time,
    token_reuse,
    delivers,
    unique_in,
    moves as anew,
    replace_after_ns as time,
});
ringgate_core::carried_by_number!(Spoken { Netcode = 0, Unreal = 1, Plain = 2 });
ringgate_core::carried_by_number!(Route {
    Hash = 0,
    LeastPlayers = 1,
    Single = 2,
    Token = 3,
    UserData = 4,
});
ringgate_core::carried_by_number!(TokenReuse { Allow = 0, Deny = 1 });
ringgate_core::carried_by_number!(Duplicates { Notify = 0, Opaque = 1, Pass = 2 });
ringgate_core::carried!(Limits {
    requests_per_block,
    handshakes_per_block,
    port_switches_per_block,
    restarts_per_block,
    sessions_per_address,
    sessions_per_site,
    sessions_per_block,
});

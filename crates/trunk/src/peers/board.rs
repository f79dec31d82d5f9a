//! The thread of a cluster's member: the door, connections of those who have not said who they are,
//! and a trunk to each other member, with what the two say to each other of their players.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringgate_cluster::wire::Datagram;
use ringgate_cluster::{Next, SessionId, Wake};
use ringgate_core::limits::MEMBERS_MAX;
use ringgate_core::splitmix;
use ringgate_os::notify::{Epoll, Ready};
use rustls::pki_types::ServerName;

use super::players::{Kept, Number, Players};
use super::shared::Shared;
use super::shown::{MemberShown, Shown, State};
use super::standbys::{Able, Appointed, Appointments, Vigil, Wanted};
use super::talk::{
    Counts, FORWARDS_ON, Listeners, Onward, Processes, Taken, Talk, WAITING_MAX, forward,
};
use crate::agent::dial::{Dial, DialAction};
use crate::agent::options::Gateway as Entrance;
use crate::gateway::guests::{CONNECTIONS, DATAGRAMS, Guests, TurnedAway};
use crate::protocol::control::{Reason, Welcome};
use crate::protocol::datagram::Header;
use crate::protocol::tls::certified_name;
use crate::socket::{Door, Event, Guest, Hello, Missed, Settings, Trunk};

const BELL: u64 = 0;
/// Each connection has so many numbers in the set, as far as [`Trunk::is_own`] goes.
const NUMBERS: u64 = 1 << 12;

pub(super) struct Board<P> {
    shared: Arc<Shared>,
    players: P,
    listeners: Listeners,
    /// Their numbers name connections in the set, and trunks in their datagrams.
    guests: Guests,
    epoll: Epoll,
    members: BTreeMap<String, Member>,
    refused: BTreeMap<&'static str, u64>,
    random: u64,
    /// When players' accepted datagrams were last told.
    accepted_ns: u64,
    shown_ns: u64,
    /// Nothing has happened since.
    is_shown: bool,
    /// Datagrams for members that were gone.
    not_connected: u64,
    /// There is more to do at once.
    has_more: bool,
    appointments: Appointments,
    /// How often this thread has slept: what others have answered may lie in its sockets.
    wake: Wake,
    turned_ns: u64,
    /// Datagrams that have come for players whom other members have by now.
    onward: Vec<Onward>,
    processes: Processes,
    /// When all sessions were last offered to others, and how many there are once those are gone
    /// that were offered since.
    offered: (u64, usize),
}

/// Another member.
struct Member {
    /// Where it is, as far as that is told.
    at: Option<Entrance>,
    /// Where it is we who connect.
    dial: Option<Dial>,
    seat: Option<Seat>,
    /// What it is called where workers say whom a datagram is for.
    number: Option<Number>,
    counts: Counts,
    /// Datagrams that lanes before had no room for.
    lane_full: u64,
    connections: u64,
    last_end: Option<(&'static str, String)>,
    due_ns: u64,
    /// How often it was given up although it was connected.
    silences: u64,
    missed: Missed,
}

/// A connection with a member.
struct Seat {
    /// Its numbers in the set begin there.
    token: u64,
    trunk: Trunk,
    /// Since when both have said who they are.
    up_ns: Option<u64>,
    /// There is none where the cluster has too many members.
    talk: Option<Talk>,
    vigil: Vigil,
    /// Since when too much waits for the stream, and how much of that it has taken since.
    behind: Option<(u64, usize)>,
}

impl<P: Players> Board<P> {
    pub(super) fn new(shared: Arc<Shared>, door: Door, players: P) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(shared.bell.fd(), BELL)?;
        let guests = Guests::new(door, NUMBERS, &epoll)?;
        let random = shared.settings.incarnation;
        let (members, refused) = (BTreeMap::new(), BTreeMap::new());
        let listeners = players.listeners();
        Ok(Self {
            shared,
            players,
            listeners,
            guests,
            epoll,
            members,
            refused,
            random,
            accepted_ns: 0,
            shown_ns: 0,
            is_shown: false,
            not_connected: 0,
            has_more: false,
            appointments: Appointments::default(),
            wake: Wake::default(),
            turned_ns: 0,
            onward: Vec::new(),
            processes: Processes::default(),
            offered: (0, 0),
        })
    }

    /// Until it is told to stop.
    pub(super) fn run(mut self) {
        let mut ready = Vec::with_capacity(64);
        while !self.shared.is_over() {
            self.turn(&ready);
            if let Err(why) = self.epoll.wait(&mut ready, self.wait()) {
                if why.kind() != io::ErrorKind::Interrupted {
                    tracing::error!(event = "cluster_failed", "cannot wait for members: {why}");
                    break;
                }
                ready.clear();
            }
        }
        for seat in self.members.values_mut().filter_map(|it| it.seat.as_mut()) {
            seat.trunk.say_goodbye(Reason::ShuttingDown);
            seat.forget(&self.players);
        }
        self.shared.show(Shown::default());
    }

    fn turn(&mut self, ready: &[Ready]) {
        let now_ns = self.now_ns();
        if now_ns > std::mem::replace(&mut self.turned_ns, now_ns) + SLEEP_NS {
            self.wake.0 += 1;
        }
        self.shared.bell.take();
        self.hear_members(now_ns);
        for ready in ready {
            match ready.token {
                BELL => {}
                CONNECTIONS => self.accept(now_ns),
                DATAGRAMS => self.receive(now_ns),
                token if self.guests.has(token) => self.greet(*ready, now_ns),
                token => self.hear(*ready, token / NUMBERS, now_ns),
            }
        }
        let away = self.guests.pass_time(&self.epoll, now_ns);
        self.refuse_all(away);
        self.dial(now_ns);
        // The bell is rung again from here on: what changes behind it is told in the next turn.
        self.has_more = self.forward(now_ns);
        self.tell(now_ns);
        self.stand(now_ns);
        self.doubt(now_ns);
        self.keep(now_ns);
        self.is_shown = now_ns >= self.shown_ns + SHOW_EVERY.as_nanos() as u64;
        if self.is_shown {
            self.shown_ns = now_ns;
            self.show();
        }
    }

    fn now_ns(&self) -> u64 {
        self.shared.settings.clock.now_ns()
    }

    fn wait(&self) -> Duration {
        let seats = self.members.values().map(|member| match &member.seat {
            Some(seat) => seat.trunk.due_ns(),
            // Whoever has to come here is due never.
            None => member.dial.as_ref().map_or(u64::MAX, |_| member.due_ns),
        });
        if self.has_more {
            return Duration::ZERO;
        }
        let is_waiting = |it: &Member| it.seat.as_ref().is_some_and(|it| it.vigil.is_waiting());
        let is_busy = !self.is_shown || self.members.values().any(is_waiting);
        let look_every = if is_busy { SHOW_EVERY } else { LOOK_EVERY };
        let due_ns = seats.fold(u64::MAX, u64::min);
        Duration::from_nanos(due_ns.saturating_sub(self.now_ns())).min(look_every)
    }

    /// Goes by what is told of others now. Who is connected stays, and who has died is shown for a
    /// while.
    fn hear_members(&mut self, now_ns: u64) {
        let mut told = self.shared.members();
        let own = &self.shared.settings.name;
        told.remove(own);
        self.members.retain(|name, it| {
            it.seat.is_some() || it.missed.is_shown(told.contains_key(name), now_ns)
        });
        for (name, member) in &mut self.members {
            let at = told.remove(name);
            if member.at != at {
                member.dial = None;
                member.at = at;
            }
        }
        for (name, at) in told {
            self.members.insert(name, Member { at: Some(at), ..Member::default() });
        }
        give_numbers(&mut self.members);
        let members = &self.members;
        self.processes.retain(|it| members.values().any(|member| member.number == Some(it)));
        for (name, member) in &mut self.members {
            if let (Some(at), None, true) = (&member.at, &member.dial, own < name) {
                let seed = splitmix::next(&mut self.random);
                let mut dial = Dial::new(at, self.shared.bell.clone(), seed);
                if member.seat.is_some() {
                    dial.go_on();
                }
                (member.dial, member.due_ns) = (Some(dial), 0);
            }
        }
    }

    fn accept(&mut self, now_ns: u64) {
        let own = self.shared.identity();
        let away = self.guests.accept(Some(&own.accepts), &self.epoll, now_ns);
        self.refuse_all(away);
    }

    fn greet(&mut self, ready: Ready, now_ns: u64) {
        let (guest, hello) = match self.guests.hear(ready, &self.epoll) {
            Ok(None) => return,
            Ok(Some(said)) => said,
            Err(away) => return self.refuse_all([away]),
        };
        let peer = guest.peer();
        match self.judge(&guest, &hello) {
            Ok(()) => {
                if let Err(why) = self.let_in((ready.token, guest), &hello, now_ns) {
                    self.refuse("no_descriptor", Some(peer), &why.to_string());
                }
            }
            Err((why, more)) => {
                guest.refuse(why);
                self.refuse(why.name(), Some(peer), &more);
            }
        }
    }

    /// Whether somebody may be who it says it is: its certificate has to be for that name in this
    /// cluster, and its name before ours.
    fn judge(&self, guest: &Guest, hello: &Hello) -> Result<(), (Reason, String)> {
        let own = &self.shared.settings;
        let certified = guest.certified_for(&certified_name(&own.cluster, &hello.name));
        certified.map_err(|why| (Reason::ForeignName, why))?;
        if hello.name < own.name {
            return Ok(());
        }
        let why = format!("{} connects to {}, whose name comes later", own.name, hello.name);
        Err((Reason::Replaced, why))
    }

    fn let_in(
        &mut self,
        (token, guest): (u64, Guest),
        hello: &Hello,
        now_ns: u64,
    ) -> io::Result<()> {
        let guest = guest.leave(&self.epoll)?;
        let number = token / NUMBERS;
        let trunk = number as u32;
        let incarnation = self.shared.settings.incarnation;
        let welcome = Welcome { version: hello.version, lanes: 1, trunk, incarnation };
        let settings = settings(token);
        let trunk = guest.welcome(welcome, settings, &self.epoll, now_ns)?;
        self.members.entry(hello.name.clone()).or_default().missed = Missed::default();
        give_numbers(&mut self.members);
        let member = self.members.entry(hello.name.clone()).or_default();
        let talk = member.number.map(Talk::new);
        let mut seat = Seat::new(token, trunk, talk);
        seat.note_up(&hello.name, now_ns);
        member.connections += 1;
        if let Some(mut before) = member.seat.replace(seat) {
            before.trunk.say_goodbye(Reason::Replaced);
            before.forget(&self.players);
            member.lane_full += before.lane_full();
        }
        // What came while this was not a trunk yet.
        self.hear(Ready { token, events: 0 }, number, now_ns);
        Ok(())
    }

    /// First datagrams of lanes come to the address that everybody knows.
    fn receive(&mut self, now_ns: u64) {
        let Self { guests, members, epoll, players, listeners, onward, processes, .. } = self;
        for _ in 0..BURSTS_MAX {
            let has_more = guests.door.receive(|from, datagram| {
                let Some(Header { trunk, .. }) = Header::read(datagram) else { return };
                let token = u64::from(trunk) * NUMBERS;
                let is_it = |it: &&mut Member| it.seat.as_ref().is_some_and(|it| it.token == token);
                let Some(member) = members.values_mut().find(is_it) else { return };
                let Member { seat: Some(seat), counts, .. } = member else { return };
                seat.note_heard(players, now_ns);
                let Seat { trunk, talk, .. } = seat;
                trunk.handle_datagram(from, datagram, epoll, now_ns, |event| {
                    let taken = Taken { counts, onward, processes };
                    hear(talk, &event, players, listeners, taken);
                });
            });
            if !has_more {
                return;
            }
        }
    }

    fn hear(&mut self, ready: Ready, number: u64, now_ns: u64) {
        let Self { members, epoll, players, listeners, onward, processes, .. } = self;
        let is_it = |(_, it): &(&String, &mut Member)| {
            it.seat.as_ref().is_some_and(|seat| seat.token == number * NUMBERS)
        };
        let Some((name, member)) = members.iter_mut().find(is_it) else { return };
        let Member { seat: Some(seat), counts, .. } = member else { return };
        let mut has_begun = false;
        seat.note_heard(players, now_ns);
        let Seat { trunk, talk, .. } = seat;
        trunk.handle_ready(ready, epoll, now_ns, |event| {
            has_begun |= matches!(event, Event::Begun(_));
            hear(talk, &event, players, listeners, Taken { counts, onward, processes });
        });
        if has_begun {
            member.connections += 1;
            seat.note_up(name, now_ns);
        }
    }

    fn refuse_all(&mut self, away: impl IntoIterator<Item = TurnedAway>) {
        for TurnedAway { why, peer, more } in away {
            self.refuse(why, peer, &more);
        }
    }

    /// Connects to those whose names come later.
    fn dial(&mut self, now_ns: u64) {
        let Self { shared, members, epoll, guests, .. } = self;
        for (name, member) in members.iter_mut().filter(|(_, it)| it.seat.is_none()) {
            let Some(dial) = &mut member.dial else { continue };
            member.due_ns = match dial.step(now_ns) {
                DialAction::Wait(until_ns) => until_ns,
                DialAction::NoAddress(why) => {
                    member.last_end = Some(("address", why));
                    0
                }
                DialAction::Connect(to) => {
                    let token = guests.number();
                    match connect(shared, (name, to), token, epoll, now_ns) {
                        Ok(trunk) => {
                            let talk = member.number.map(Talk::new);
                            member.seat = Some(Seat::new(token, trunk, talk));
                        }
                        Err(why) => member.last_end = Some(("io", why.to_string())),
                    }
                    0
                }
            };
        }
    }

    /// What time brings, and what waits to be sent.
    fn keep(&mut self, now_ns: u64) {
        let Self { members, epoll, players, listeners, has_more, onward, processes, .. } = self;
        for (name, member) in members {
            let Member { seat: Some(seat), counts, .. } = member else { continue };
            let Seat { trunk, talk, .. } = seat;
            if trunk.has_more() {
                let ready = Ready { token: seat.token, events: 0 };
                trunk.handle_ready(ready, epoll, now_ns, |event| {
                    let taken = Taken { counts, onward, processes };
                    hear(talk, &event, players, listeners, taken);
                });
            }
            trunk.listen(|_| {});
            if let Some(why) = talk.as_ref().and_then(|talk| talk.over) {
                trunk.say_goodbye(why);
            }
            if let (Some(talk), true) = (talk, seat.up_ns.is_some()) {
                *has_more |= talk.say(trunk, players);
            }
            trunk.poll(now_ns);
            let before = trunk.waiting_bytes();
            trunk.flush(epoll, now_ns);
            seat.note_sent(before, now_ns);
            let (Some(end), Some((reason, why))) = (seat.trunk.over(), seat.trunk.why_over())
            else {
                continue;
            };
            let up_ns = seat.up_ns;
            if up_ns.is_some() {
                member.missed.note_end(end);
            }
            if let Some(dial) = &mut member.dial {
                dial.note_over(&seat.trunk, up_ns, now_ns);
            }
            seat.forget(players);
            member.lane_full += seat.lane_full();
            member.seat = None;
            member.due_ns = now_ns;
            if up_ns.is_some() {
                tracing::warn!(
                    event = "member_down",
                    member = name.as_str(),
                    reason,
                    "member {name} of the cluster is gone: {why}"
                );
            }
            member.last_end = Some((reason, why));
        }
    }

    /// Tells the others who has come and gone, and what was accepted of what they have forwarded.
    fn tell(&mut self, now_ns: u64) {
        let Self { players, listeners, members, accepted_ns, has_more, .. } = self;
        let ours = players.listeners();
        if !Arc::ptr_eq(&ours, listeners) {
            let is_one_closed = listeners.iter().any(|it| !ours.contains(it));
            *listeners = ours;
            talks(members).for_each(|talk| talk.look_again(listeners, is_one_closed, players));
        }
        for Seat { trunk, talk, .. } in seats(members) {
            if let Some(talk) = talk {
                talk.note_waiting(trunk.waiting_bytes());
            }
        }
        *has_more |= players.take_changes(CHANGES_MAX, &mut |listener, player, news| {
            talks(members).for_each(|talk| talk.tell(listener, &player, news));
        });
        talks(members).for_each(|talk| *has_more |= talk.catch_up(CHANGES_MAX));
        let passed_ns = now_ns.saturating_sub(*accepted_ns);
        if passed_ns < ACCEPTED_EVERY_NS {
            return;
        }
        *accepted_ns = now_ns;
        players.expire();
        players.take_accepted(&mut |member, listener, player, accepted| {
            let per_s = u64::from(accepted) * 1_000_000_000 / passed_ns;
            let per_s = u32::try_from(per_s).unwrap_or(u32::MAX);
            if let Some(talk) = talks(members).find(|talk| talk.number == member) {
                talk.tell_accepted(listener, &player, per_s);
            }
        });
    }

    /// Has others stand by for our sessions, and tells them for whom we do.
    fn stand(&mut self, now_ns: u64) {
        let Self { players, members, appointments, has_more, offered, .. } = self;
        let is_behind = talks(members).any(|talk| talk.is_behind());
        let mut changes = 0;
        if !is_behind {
            players.take_stands(CHANGES_MAX, &mut |listener, player, stands_by| {
                changes += 1;
                talks(members).for_each(|talk| talk.tell_stands(listener, &player, stands_by));
            });
        }
        *has_more |= changes == CHANGES_MAX;
        let Some(own) = players.incarnation() else { return };
        let (is_leaving, to_give) = players.is_leaving();
        talks(members).for_each(|talk| {
            talk.introduce(own);
            talk.tell_leaving(is_leaving);
        });
        let able = |seat: &mut Seat| {
            let talk = seat.talk.as_ref().filter(|talk| !talk.is_leaving)?;
            Some(Able {
                process: talk.incarnation?,
                by: seat.token,
                version: talk.version().unwrap_or(0),
            })
        };
        let all: Vec<_> = seats(members).map(|seat| seat.token).collect();
        let able = seats(members).filter_map(able).collect();
        if appointments.set_members(able, |it| all.contains(&it)) {
            let able = talks(members).filter(|talk| talk.takes_offers());
            let able: Vec<_> = able.filter_map(|it| Some((it.incarnation?, it.number))).collect();
            players.set_able(&able);
            players.renew_records();
        } else if give_again(members, appointments) {
            players.renew_records();
        } else if let Some(left) = to_give.filter(|_| now_ns >= offered.0 + OFFER_EVERY_NS) {
            // Those that were not taken are offered again.
            *offered = (now_ns, left);
            players.renew_records();
        }
        // Not more are offered at a time than workers have room for beside players' datagrams.
        let room = |left| (OFFERS_MAX + offered.1).saturating_sub(left).min(OFFERS_MAX);
        let max = to_give.map_or(RECORDS_MAX, room);
        if max == 0 || is_behind {
            return;
        }
        let mut records = 0;
        players.take_records(max, &mut |session, kept| {
            records += 1;
            offered.1 = offered.1.saturating_sub(kept.is_some().into());
            let told = match kept {
                Some(Kept { record, offered_to, .. }) => {
                    let is_it = |seat: &&mut Seat| {
                        let number = seat.talk.as_ref().map(|talk| talk.number);
                        offered_to.is_some() && number == offered_to
                    };
                    let preferred = seats(members).find(is_it).map(|seat| seat.token);
                    appointments.appoint(own, session, Wanted::by(record, preferred))
                }
                None => Appointed { released: appointments.end(session), ..Appointed::default() },
            };
            hand_on(members, (session, kept), told, to_give.is_some());
        });
        *has_more |= records == RECORDS_MAX;
    }

    /// Asks members for whom there was something lately, here or at others, and of whom nothing was
    /// heard since.
    fn doubt(&mut self, now_ns: u64) {
        let Self { players, members, wake, random, .. } = self;
        let heard: Vec<_> = talks(members).filter_map(|talk| talk.doubted.take()).collect();
        let mut asked = Vec::new();
        for (name, member) in members.iter_mut() {
            let Member { seat: Some(seat), silences, .. } = member else { continue };
            let Seat { talk: Some(talk), vigil, .. } = seat else { continue };
            let Some(process) = talk.incarnation else { continue };
            if heard.contains(&process) {
                vigil.want(now_ns, *wake);
            }
            match vigil.poll(now_ns, *wake) {
                Next::Wait => {}
                Next::Ask => {
                    asked.push(process);
                    talk.ask(splitmix::next(random) as u32);
                }
                Next::Claim => {
                    *silences += 1;
                    players.set_silent(talk.number);
                    tracing::warn!(
                        event = "member_silent",
                        member = name.as_str(),
                        "member {name} of the cluster does not answer: others may take its sessions"
                    );
                }
            }
        }
        for process in asked {
            talks(members).for_each(|talk| talk.tell_doubt(process));
        }
    }

    /// Takes from workers what is for other members. Returns whether more waits.
    fn forward(&mut self, now_ns: u64) -> bool {
        let Self { players, members, not_connected, wake, onward, .. } = self;
        let mut send = |number: Number, datagram: Datagram<'_>| {
            let is_it = |it: &&mut Member| it.number == Some(number);
            match members.values_mut().find(is_it) {
                Some(Member {
                    seat: Some(Seat { trunk, talk: Some(talk), vigil, .. }),
                    counts,
                    ..
                }) if talk.version().is_some() => {
                    forward(trunk, &datagram, now_ns);
                    counts.out += 1;
                    if talk.incarnation.is_some() {
                        vigil.want(now_ns, *wake);
                    }
                }
                _ => *not_connected += 1,
            }
        };
        for one in onward.drain(..) {
            send(one.to, one.datagram());
        }
        players.take_departures(DEPARTURES_MAX, &mut send)
    }

    fn show(&self) {
        let shown = |(name, member): (&String, &Member)| {
            let stands_by = |seat: &Seat| self.appointments.count(seat.token);
            let stands_by = member.seat.as_ref().map_or(0, stands_by);
            let players = member.number.map_or(0, |number| self.players.count(number));
            MemberShown { players, stands_by, ..member.shown(name) }
        };
        let members = self.members.iter().map(shown).collect();
        let (address, refused) = (self.guests.door.address().ok(), self.refused.clone());
        let not_connected = self.not_connected;
        self.shared.show(Shown { address, members, refused, not_connected });
    }

    /// Counts a connection that became no member's, and tells of it, once a second for each reason.
    fn refuse(&mut self, why: &'static str, peer: Option<SocketAddr>, more: &str) {
        *self.refused.entry(why).or_default() += 1;
        if self.guests.is_told(why, self.now_ns()) {
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            tracing::warn!(
                event = "member_refused",
                peer,
                reason = why,
                "a connection of {peer} to the cluster was refused: {why}{}{more}",
                if more.is_empty() { "" } else { ": " }
            );
        }
    }
}

fn connect(
    shared: &Shared,
    (name, to): (&str, SocketAddr),
    token: u64,
    epoll: &Epoll,
    now_ns: u64,
) -> io::Result<Trunk> {
    let own = &shared.settings;
    let server = ServerName::try_from(certified_name(&own.cluster, name));
    let server = server.map_err(io::Error::other)?;
    let settings = settings(token);
    Trunk::connect(&shared.identity().dials, (to, server), &own.name, settings, epoll, now_ns)
}

impl Default for Member {
    fn default() -> Self {
        Self {
            at: None,
            dial: None,
            seat: None,
            number: None,
            counts: Counts::default(),
            lane_full: 0,
            connections: 0,
            last_end: None,
            due_ns: u64::MAX,
            silences: 0,
            missed: Missed::default(),
        }
    }
}

impl Member {
    fn shown(&self, name: &str) -> MemberShown {
        let up = self.seat.as_ref().filter(|seat| seat.is_up());
        let state = match (up, &self.at, &self.dial) {
            (Some(_), ..) => State::Up,
            (None, None, _) => State::Absent,
            (None, Some(_), None) => State::Awaited,
            (None, Some(_), Some(_)) => State::Connecting,
        };
        let talk = up.and_then(|seat| seat.talk.as_ref());
        let mut dropped = self.counts.dropped.clone();
        let full = self.lane_full + up.map_or(0, Seat::lane_full);
        if full > 0 {
            dropped.insert("lane_full", full);
        }
        MemberShown {
            name: name.to_owned(),
            state,
            is_known: self.at.is_some(),
            peer: up.map(|seat| seat.trunk.peer()),
            since_ns: up.and_then(|seat| seat.up_ns).unwrap_or_default(),
            round_trip_ns: up.and_then(|it| it.trunk.stats().next()?.lane.round_trip_ns),
            speaks: talk.and_then(Talk::version),
            has_told_all: talk.is_some_and(|talk| talk.is_complete),
            players: 0,
            can_stand_by: talk.is_some_and(|talk| talk.incarnation.is_some()),
            stands_by: 0,
            silences: self.silences,
            forwarded: [self.counts.come, self.counts.out],
            dropped,
            connections: self.connections,
            last_end: self.last_end.clone(),
        }
    }
}

impl Seat {
    fn new(token: u64, trunk: Trunk, talk: Option<Talk>) -> Self {
        let (vigil, behind) = (Vigil::default(), None);
        Self { token, trunk, up_ns: None, talk, vigil, behind }
    }

    /// So much had waited for the stream, which has taken some of it. Others wait for a member that
    /// does not read what it is told, but not for long.
    fn note_sent(&mut self, waited: usize, now_ns: u64) {
        let waits = self.trunk.waiting_bytes();
        let (since_ns, read) = self.behind.get_or_insert((now_ns, 0));
        *read += waited.saturating_sub(waits);
        if waits <= WAITING_MAX || *read > WAITING_MAX {
            self.behind = None;
        } else if now_ns >= *since_ns + BEHIND_MAX_NS {
            self.trunk.say_goodbye(Reason::OverFull);
        }
    }

    /// Whether both have said who they are, and datagrams come through.
    fn is_up(&self) -> bool {
        self.up_ns.is_some() && self.trunk.stats().next().is_some_and(|it| it.is_up)
    }

    /// Datagrams that its lane had no room for.
    fn lane_full(&self) -> u64 {
        self.trunk.stats().map(|it| it.full).sum()
    }

    /// Something has come from the member.
    fn note_heard(&mut self, players: &impl Players, now_ns: u64) {
        if self.vigil.hear(now_ns)
            && let Some(Talk { number, incarnation: Some(process), .. }) = &self.talk
        {
            players.set_back(*number, *process);
        }
    }

    /// What the member has told counts no more.
    fn forget(&self, players: &impl Players) {
        if let Some(talk) = &self.talk {
            players.forget(talk.number);
        }
    }

    fn note_up(&mut self, name: &str, now_ns: u64) {
        let peer = self.trunk.peer();
        // What comes is opened in buffers of our own from here on, which are wiped.
        self.trunk.make_portable(now_ns);
        self.up_ns = Some(now_ns);
        tracing::info!(
            event = "member_up",
            member = name,
            %peer,
            "member {name} of the cluster is connected, at {peer}"
        );
    }
}

fn settings(token: u64) -> Settings {
    Settings { token, forwards_on: Some(FORWARDS_ON), ..Settings::default() }
}

fn hear(
    talk: &mut Option<Talk>,
    event: &Event<'_>,
    players: &impl Players,
    ours: &Listeners,
    taken: Taken<'_>,
) {
    if let Some(talk) = talk {
        talk.handle(event, players, ours, taken);
    }
}

/// Whether members are to be given records again that they stand by for.
fn give_again(members: &mut BTreeMap<String, Member>, appointments: &mut Appointments) -> bool {
    let mut is_wanted = false;
    for Seat { token, talk, .. } in seats(members) {
        if talk.as_mut().is_some_and(|talk| std::mem::take(&mut talk.asked) > 0) {
            appointments.give_again(*token);
            is_wanted = true;
        }
    }
    is_wanted
}

/// Each member has a number that no other has, as far as there are any. One that is only shown
/// needs none.
fn give_numbers(members: &mut BTreeMap<String, Member>) {
    let mut free = u64::MAX;
    members.values_mut().filter(|it| it.missed.is_only_shown()).for_each(|it| it.number = None);
    for number in members.values().filter_map(|it| it.number) {
        free &= !(1 << number);
    }
    let wants = |it: &&mut Member| it.number.is_none() && !it.missed.is_only_shown();
    for member in members.values_mut().filter(wants) {
        let number = free.trailing_zeros();
        member.number = (number < MEMBERS_MAX as u32).then_some(number as Number);
        free &= free.wrapping_sub(1);
    }
}

fn seats(members: &mut BTreeMap<String, Member>) -> impl Iterator<Item = &mut Seat> {
    members.values_mut().filter_map(|it| it.seat.as_mut())
}

fn talks(members: &mut BTreeMap<String, Member>) -> impl Iterator<Item = &mut Talk> {
    seats(members).filter_map(|seat| seat.talk.as_mut())
}

/// Tells members what has become of a session's standby, and which of them is to go on with it.
fn hand_on(
    members: &mut BTreeMap<String, Member>,
    (session, kept): (SessionId, Option<Kept<'_>>),
    told: Appointed,
    hands_over: bool,
) {
    for seat in seats(members) {
        let Seat { token, talk: Some(talk), .. } = seat else { continue };
        if told.released == Some(*token) {
            talk.release(session);
        }
        let Some(Kept { listener, record, offered_to }) = kept else { continue };
        if told.given == Some(*token) {
            talk.give_record(listener, record);
        }
        if told.by == Some(*token) && (hands_over || offered_to == Some(talk.number)) {
            talk.offer(session, offered_to == Some(talk.number));
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_nanos(ACCEPTED_EVERY_NS);

/// Pages need no more while datagrams pass.
const SHOW_EVERY: Duration = Duration::from_millis(5);

/// A thread that has had no turn for so long has slept.
const SLEEP_NS: u64 = 500_000_000;

/// In so long a member reads as much as may wait for it, or its connection is given up: no session
/// is given a standby meanwhile.
const BEHIND_MAX_NS: u64 = 10_000_000_000;

/// Records that standbys are given between two looks at datagrams.
const RECORDS_MAX: usize = 256;

/// Players that come and go between two looks at datagrams.
const CHANGES_MAX: usize = 4096;

/// Datagrams of each worker between two looks at what has come.
const DEPARTURES_MAX: usize = 256;

/// Sessions of a gateway that leaves which wait for those they are offered to.
pub(super) const OFFERS_MAX: usize = 128;

/// How often a gateway that leaves offers what it still has.
pub(super) const OFFER_EVERY_NS: u64 = 1_000_000_000;

const ACCEPTED_EVERY_NS: u64 = 250_000_000;
const BURSTS_MAX: usize = 8;

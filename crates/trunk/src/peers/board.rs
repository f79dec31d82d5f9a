//! The thread of a cluster's member: the door, connections of those who have not said who they are,
//! and a trunk to each other member.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringgate_core::splitmix;
use ringgate_os::notify::{Epoll, Ready};
use rustls::pki_types::ServerName;

use super::shared::Shared;
use super::shown::{MemberShown, Shown, State};
use crate::agent::dial::{Dial, DialAction};
use crate::agent::options::Gateway as Entrance;
use crate::gateway::guests::{CONNECTIONS, DATAGRAMS, Guests, TurnedAway};
use crate::protocol::control::{Reason, Welcome};
use crate::protocol::datagram::Header;
use crate::protocol::tls::certified_name;
use crate::socket::{Door, Event, Guest, Hello, Settings, Trunk};

const BELL: u64 = 0;
/// Each connection has so many numbers in the set, as far as [`Trunk::is_own`] goes.
const NUMBERS: u64 = 1 << 12;

pub(super) struct Board {
    shared: Arc<Shared>,
    /// Their numbers name connections in the set, and trunks in their datagrams.
    guests: Guests,
    epoll: Epoll,
    members: BTreeMap<String, Member>,
    refused: BTreeMap<&'static str, u64>,
    random: u64,
}

/// Another member.
struct Member {
    /// Where it is, as far as that is told.
    at: Option<Entrance>,
    /// Where it is we who connect.
    dial: Option<Dial>,
    seat: Option<Seat>,
    connections: u64,
    last_end: Option<(&'static str, String)>,
    due_ns: u64,
}

/// A connection with a member.
struct Seat {
    /// Its numbers in the set begin there.
    token: u64,
    trunk: Trunk,
    /// Since when both have said who they are.
    up_ns: Option<u64>,
}

impl Board {
    pub(super) fn new(shared: Arc<Shared>, door: Door) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(shared.bell.fd(), BELL)?;
        let guests = Guests::new(door, NUMBERS, &epoll)?;
        let random = shared.settings.incarnation;
        let (members, refused) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { shared, guests, epoll, members, refused, random })
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
        }
        self.shared.show(Shown::default());
    }

    fn turn(&mut self, ready: &[Ready]) {
        let now_ns = self.now_ns();
        self.shared.bell.take();
        self.hear_members();
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
        self.keep(now_ns);
        self.show();
    }

    fn now_ns(&self) -> u64 {
        self.shared.settings.clock.now_ns()
    }

    fn wait(&self) -> Duration {
        let seats = self.members.values().map(|member| match &member.seat {
            Some(seat) => seat.trunk.due_ns(),
            None => member.due_ns,
        });
        let due_ns = seats.fold(u64::MAX, u64::min);
        Duration::from_nanos(due_ns.saturating_sub(self.now_ns())).min(LOOK_EVERY)
    }

    /// Goes by what is told of others now. Who is connected stays.
    fn hear_members(&mut self) {
        let mut told = self.shared.members();
        let own = &self.shared.settings.name;
        told.remove(own);
        self.members.retain(|name, it| it.seat.is_some() || told.contains_key(name));
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
                if let Err(why) = self.let_in((ready.token, guest), hello, now_ns) {
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
        hello: Hello,
        now_ns: u64,
    ) -> io::Result<()> {
        let guest = guest.leave(&self.epoll)?;
        let number = token / NUMBERS;
        let trunk = number as u32;
        let incarnation = self.shared.settings.incarnation;
        let welcome = Welcome { version: hello.version, lanes: 1, trunk, incarnation };
        let settings = Settings { token, ..Settings::default() };
        let trunk = guest.welcome(welcome, settings, &self.epoll, now_ns)?;
        let mut seat = Seat { token, trunk, up_ns: None };
        seat.note_up(&hello.name, now_ns);
        let member = self.members.entry(hello.name).or_default();
        member.connections += 1;
        if let Some(mut before) = member.seat.replace(seat) {
            before.trunk.say_goodbye(Reason::Replaced);
        }
        // What came while this was not a trunk yet.
        self.hear(Ready { token, events: 0 }, number, now_ns);
        Ok(())
    }

    /// First datagrams of lanes come to the address that everybody knows.
    fn receive(&mut self, now_ns: u64) {
        let Self { guests, members, epoll, .. } = self;
        for _ in 0..BURSTS_MAX {
            let has_more = guests.door.receive(|from, datagram| {
                let Some(Header { trunk, .. }) = Header::read(datagram) else { return };
                let token = u64::from(trunk) * NUMBERS;
                let seats = members.values_mut().filter_map(|it| it.seat.as_mut());
                if let Some(seat) = seats.into_iter().find(|it| it.token == token) {
                    seat.trunk.handle_datagram(from, datagram, epoll, now_ns, |_| {});
                }
            });
            if !has_more {
                return;
            }
        }
    }

    fn hear(&mut self, ready: Ready, number: u64, now_ns: u64) {
        let Self { members, epoll, .. } = self;
        let is_it = |(_, it): &(&String, &mut Member)| {
            it.seat.as_ref().is_some_and(|seat| seat.token == number * NUMBERS)
        };
        let Some((name, member)) = members.iter_mut().find(is_it) else { return };
        let Some(seat) = &mut member.seat else { return };
        let mut has_begun = false;
        seat.trunk.handle_ready(ready, epoll, now_ns, |event| {
            has_begun |= matches!(event, Event::Begun(_));
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
                            member.seat = Some(Seat { token, trunk, up_ns: None });
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
        let Self { members, epoll, .. } = self;
        for (name, member) in members {
            let Some(seat) = &mut member.seat else { continue };
            if seat.trunk.has_more() {
                let ready = Ready { token: seat.token, events: 0 };
                seat.trunk.handle_ready(ready, epoll, now_ns, |_| {});
            }
            seat.trunk.listen(|_| {});
            seat.trunk.poll(now_ns);
            seat.trunk.flush(epoll, now_ns);
            let Some(end) = seat.trunk.over() else { continue };
            let (reason, why) = (end.name(), end.to_string());
            let up_ns = seat.up_ns;
            member.seat = None;
            if let Some(dial) = &mut member.dial
                && let Some(up_ns) = up_ns
            {
                dial.end(now_ns.saturating_sub(up_ns), now_ns);
            }
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

    fn show(&self) {
        let members = self.members.iter().map(|(name, member)| member.shown(name)).collect();
        let (address, refused) = (self.guests.door.address().ok(), self.refused.clone());
        self.shared.show(Shown { address, members, refused });
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
    let settings = Settings { token, ..Settings::default() };
    Trunk::connect(&shared.identity().dials, (to, server), &own.name, settings, epoll, now_ns)
}

impl Default for Member {
    fn default() -> Self {
        Self { at: None, dial: None, seat: None, connections: 0, last_end: None, due_ns: u64::MAX }
    }
}

impl Member {
    fn shown(&self, name: &str) -> MemberShown {
        let up = self.seat.as_ref().filter(|seat| seat.up_ns.is_some());
        let state = match (up, &self.at, &self.dial) {
            (Some(_), ..) => State::Up,
            (None, None, _) => State::Absent,
            (None, Some(_), None) => State::Awaited,
            (None, Some(_), Some(_)) => State::Connecting,
        };
        MemberShown {
            name: name.to_owned(),
            state,
            is_known: self.at.is_some(),
            peer: up.map(|seat| seat.trunk.peer()),
            since_ns: up.and_then(|seat| seat.up_ns).unwrap_or_default(),
            round_trip_ns: up.and_then(|it| it.trunk.stats().next()?.lane.round_trip_ns),
            connections: self.connections,
            last_end: self.last_end.clone(),
        }
    }
}

impl Seat {
    fn note_up(&mut self, name: &str, now_ns: u64) {
        let peer = self.trunk.peer();
        self.up_ns = Some(now_ns);
        tracing::info!(
            event = "member_up",
            member = name,
            %peer,
            "member {name} of the cluster is connected, at {peer}"
        );
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(500);
const BURSTS_MAX: usize = 8;

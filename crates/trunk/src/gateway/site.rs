//! The thread of a trunk: it moves records between the trunk and the workers' sockets until the
//! trunk is over. A worker that can have its lane is lent it, and leaves to this thread what goes
//! by the stream.

mod handed;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::control::{Reason, Welcome};
use crate::protocol::datagram::Header;
use crate::socket::{Bundles, Event, Guest, LaneStats, Settings, Trunk};
use crate::worker::{Back, Left, Outcome};
use ringgate_link::bundle::{Frames, Goodbye, Writer};
use ringgate_os::clock;
use ringgate_os::hold_point;
use ringgate_os::notify::{Epoll, Ready};
use ringgate_os::publishing::{self, Request};

use crate::gateway::links::{Answer, Links, Making};
use crate::gateway::mailbox::{Mail, Mailbox};
use crate::gateway::shared::Shared;
use crate::gateway::shown::{LaneShown, TrunkShown};
use crate::gateway::trust::Trust;
use crate::socket::rest::{Order, REST_WITHIN_NS};

/// What the mailbox's bell is called in the set. The trunk has the numbers behind it.
const BELL: u64 = 0;

/// An agent whose hello was found good, before its thread runs.
pub(crate) struct Arrival {
    pub(crate) guest: Guest,
    pub(crate) agent: String,
    pub(crate) version: u16,
    pub(crate) number: u32,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// Runs a trunk to its end.
pub(crate) fn run(shared: &Arc<Shared>, arrival: Arrival) {
    let (agent, number) = (arrival.agent.clone(), arrival.number);
    shared.wait_for_gone(&agent, number);
    match Site::new(Arc::clone(shared), arrival) {
        Ok(site) => {
            hold_point!("gateway-trunk Begin");
            let peer = site.trunk.peer();
            if site.links.told.up.is_told() {
                tracing::info!(event = "agent_up", agent, %peer, "agent {agent} is connected from {peer}");
            }
            site.run();
        }
        Err(why) => {
            tracing::error!(event = "agent_failed", agent, "cannot serve agent {agent}: {why}");
            shared.leave(number, None);
        }
    }
}

/// A trunk, its links, and all that its thread has.
pub(crate) struct Site {
    shared: Arc<Shared>,
    agent: String,
    allowed: Vec<String>,
    trust: Trust,
    mailbox: Arc<Mailbox>,
    epoll: Epoll,
    trunk: Trunk,
    links: Links,
    bundles: Bundles,
    /// Lanes that have come up and are not looked after yet.
    risen: Vec<u8>,
    number: u32,
    since_ns: u64,
    mail: Vec<Mail>,
    /// To be obeyed at the end of the turn.
    rest: Option<Order>,
    shown_ns: u64,
    /// Readers who wait for what it shows next.
    asked: Vec<Request>,
    called_ns: u64,
    /// What workers have dropped by then: records for links that were over, payloads without room.
    shown_drops: [u64; 2],
}

/// How it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Over,
    /// Another process goes on with it.
    HandedOver,
}

impl Site {
    fn new(shared: Arc<Shared>, arrival: Arrival) -> io::Result<Self> {
        let Arrival { guest, agent, version, number, mailbox } = arrival;
        let now_ns = shared.settings.clock.now_ns();
        let trust = Trust::new(guest.proof(clock::unix_seconds()));
        let epoll = Epoll::new()?;
        epoll.add(mailbox.bell(), BELL)?;
        let welcome = Welcome {
            version,
            lanes: u8::try_from(shared.settings.workers).map_err(io::Error::other)?,
            trunk: number,
            incarnation: shared.settings.incarnation,
        };
        let settings =
            Settings { rekey: shared.settings.rekey, token: BELL + 1, ..Settings::default() };
        hold_point!("gateway-trunk Welcome");
        let trunk = guest.welcome(welcome, settings, &epoll, now_ns)?;
        let rules = shared.rules();
        let allowed = rules.find(&agent).map(|rule| rule.backends.clone()).unwrap_or_default();
        let mut links = Links::default();
        links.told = shared.told(&agent);
        Ok(Self {
            shared,
            agent,
            allowed,
            trust,
            mailbox,
            epoll,
            trunk,
            links,
            bundles: Bundles::default(),
            risen: Vec::new(),
            number,
            since_ns: now_ns,
            mail: Vec::new(),
            rest: None,
            shown_ns: 0,
            asked: Vec::new(),
            called_ns: now_ns,
            shown_drops: [0; 2],
        })
    }

    /// To its end.
    pub(crate) fn run(mut self) {
        let ended = self.turn_until_over();
        let Self { shared, agent, trunk, number, .. } = &self;
        if ended == Ended::HandedOver {
            return shared.leave(*number, None);
        }
        let why = trunk.over();
        let text = why.map_or_else(String::new, ToString::to_string);
        let reason = why.map_or("other", |why| why.name());
        if self.links.told.down.is_told() {
            tracing::warn!(event = "agent_down", agent, reason, "agent {agent} is gone: {text}");
        }
        shared.leave(*number, why);
    }

    fn turn_until_over(&mut self) -> Ended {
        let clock = self.shared.settings.clock;
        // They may have changed since it was let in.
        self.go_by_rules();
        // What came while this was not a trunk yet.
        let mut ready = Vec::with_capacity(64);
        ready.push(Ready { token: BELL + 1, events: 0 });
        loop {
            let now_ns = clock.now_ns();
            for ready in &ready {
                self.handle_ready(*ready, now_ns);
            }
            if self.trunk.has_more() {
                self.handle_ready(Ready { token: BELL + 1, events: 0 }, now_ns);
            }
            self.listen();
            self.lend_risen();
            self.answer();
            self.call_again(now_ns);
            self.trunk.poll(now_ns);
            let is_held = self.trunk.is_crowded();
            self.links.hold(is_held, &self.epoll);
            self.trunk.hold(is_held, &self.epoll);
            self.links.flush(&self.epoll);
            self.trunk.flush(&self.epoll, now_ns);
            self.show(now_ns);
            if let Some(order) = self.rest.take()
                && self.is_taken(order)
            {
                return Ended::HandedOver;
            }
            if self.trunk.over().is_some() {
                // Their last counts are the trunk's.
                self.take_lanes_back();
                self.show(now_ns);
                return Ended::Over;
            }
            let wait = Duration::from_nanos(self.trunk.due_ns().saturating_sub(clock.now_ns()));
            // What workers say of their lanes rings no bell.
            let wait =
                if self.lanes_lent().next().is_some() { wait.min(LISTEN_EVERY) } else { wait };
            if let Err(why) = self.epoll.wait(&mut ready, wait) {
                tracing::error!(
                    event = "agent_failed",
                    "cannot wait for agent {}: {why}",
                    self.agent
                );
                self.trunk.say_goodbye(Reason::Other);
            }
        }
    }

    fn lanes_lent(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.trunk.lane_count() as u8).filter(|lane| self.trunk.is_lent(*lane))
    }

    /// Lends lanes that have come up to their workers, and lets links begin on them.
    fn lend_risen(&mut self) {
        for lane in std::mem::take(&mut self.risen) {
            let Self { shared, allowed, mailbox, epoll, trunk, links, number, .. } = self;
            let desk = shared.settings.desks.get(usize::from(lane));
            let bell = mailbox.bell().try_clone_to_owned();
            let lent = desk.zip(bell.ok()).and_then(|(desk, bell)| {
                let known = links.lend(lane, epoll)?;
                let Some(lent) = trunk.lend(lane, bell, epoll) else {
                    links.take_back(lane, epoll);
                    return None;
                };
                hold_point!("gateway-trunk Lend");
                desk.lend(*number, lent, known);
                Some(())
            });
            links.handle_lane_up(lane, lent.is_some(), making(shared, allowed, epoll, *number));
        }
    }

    /// Has workers give their lanes back. Says which of them are here again; who does not give one
    /// in time goes on with it.
    fn take_lanes_back(&mut self) -> Vec<u8> {
        let clock = self.shared.settings.clock;
        let until_ns = clock.now_ns() + BACK_WITHIN_NS;
        let desks = &self.shared.settings.desks;
        let desk = |lane: u8| Some((lane, desks.get(usize::from(lane))?.ask_back(self.number)));
        // All of them at once: none waits for another.
        let asked: Vec<_> = self.lanes_lent().filter_map(desk).collect();
        let mut lanes = Vec::new();
        for (lane, asked) in asked {
            let left_ns = until_ns.saturating_sub(clock.now_ns());
            let back = match asked.wait(Duration::from_nanos(left_ns)) {
                Outcome::Kept => {
                    tracing::warn!(event = "agent_lane_late", "worker {lane} did not turn in time");
                    continue;
                }
                Outcome::Back(back) => Some(back),
                Outcome::Gone => None,
            };
            lanes.push(lane);
            self.take_lane_back(lane, back);
        }
        lanes
    }

    fn take_lane_back(&mut self, lane: u8, back: Option<Back>) {
        let Self { shared, allowed, epoll, trunk, links, risen, number, .. } = self;
        links.handle_lane_back(lane);
        trunk.drain(lane, |serial| links.by_serial(serial));
        links.take_back(lane, epoll);
        let Some(Back { way, left }) = back else { return };
        for left in &left {
            links.handle_left(left.serial, &left.heard);
        }
        let making = making(shared, allowed, epoll, *number);
        trunk.restore(lane, *way, epoll, |event| handle(event, links, risen, making, shared));
        for Left { serial, said, .. } in left {
            let Some(link) = links.by_serial(serial) else { continue };
            Frames::new(&said).flatten().for_each(|frame| trunk.tell(lane, link, frame));
        }
    }

    /// Hears what workers say of their lanes.
    fn listen(&mut self) {
        let Self { agent, shared, allowed, epoll, trunk, links, risen, number, .. } = self;
        let making = making(shared, allowed, epoll, *number);
        trunk.listen(|event| match event {
            Event::Unproven { from } => shared.count_unproven(agent, from),
            event => handle(event, links, risen, making, shared),
        });
    }

    fn handle_ready(&mut self, ready: Ready, now_ns: u64) {
        if ready.token == BELL {
            return self.take_mail(now_ns);
        }
        if let Some(lane) = self.trunk.lane_of_pipe(ready.token) {
            return self.trunk.drain_next(lane, |serial| self.links.by_serial(serial));
        }
        if !self.trunk.is_own(ready.token) {
            // Whoever has spoken before may have filled it in this turn.
            if self.trunk.is_crowded() && !ready.has_hung_up() {
                return;
            }
            let Self { trunk, links, bundles, epoll, .. } = self;
            return links.handle_ready(ready, epoll, bundles, (trunk, now_ns));
        }
        let Self { shared, allowed, epoll, trunk, links, risen, number, .. } = self;
        let making = making(shared, allowed, epoll, *number);
        let heard = |event: Event<'_>| handle(event, links, risen, making, shared);
        trunk.handle_ready(ready, epoll, now_ns, heard);
    }

    fn take_mail(&mut self, now_ns: u64) {
        let mut mail = std::mem::take(&mut self.mail);
        self.mailbox.take(&mut mail);
        for mail in mail.drain(..) {
            match mail {
                Mail::Datagram(from, datagram) => self.handle_datagram(from, datagram, now_ns),
                Mail::End(why) => self.trunk.say_goodbye(why),
                Mail::Rules => self.go_by_rules(),
                Mail::Show(request) => self.asked.push(request),
                Mail::Rest(order) => self.rest = Some(order),
            }
        }
        self.mail = mail;
    }

    fn handle_datagram(&mut self, from: SocketAddr, mut datagram: Box<[u8]>, now_ns: u64) {
        let Some(Header { lane, .. }) = Header::read(&datagram) else { return };
        let Self { shared, allowed, epoll, trunk, links, risen, number, .. } = self;
        let desk = shared.settings.desks.get(usize::from(lane));
        if let Some(desk) = desk.filter(|_| trunk.is_lent(lane)) {
            if !desk.put_datagram(*number, from, &datagram) {
                shared.count_overflow(&self.agent);
            }
            return;
        }
        let making = making(shared, allowed, epoll, *number);
        let heard = |event: Event<'_>| handle(event, links, risen, making, shared);
        trunk.handle_datagram(from, &mut datagram, epoll, now_ns, heard);
    }

    fn go_by_rules(&mut self) {
        match self.shared.rules().find(&self.agent) {
            Some(rule) if !self.trust.lasts(&rule.gateway) => {
                self.trunk.say_goodbye(Reason::CertificateUnknown);
            }
            Some(rule) => {
                self.allowed.clone_from(&rule.backends);
                self.links.handle_rules(&self.allowed, &rule.known);
            }
            None => self.trunk.say_goodbye(Reason::UnknownAgent),
        }
    }

    /// Says what is to be said because of what came.
    fn answer(&mut self) {
        let Self { trunk, links, .. } = self;
        for answer in std::mem::take(&mut links.answers) {
            let (lane, link) = match answer {
                Answer::End(lane, link) => {
                    trunk.reserve(lane, 1, |serial| links.by_serial(serial));
                    (lane, link)
                }
                Answer::Goodbye(lane, link, reason) => {
                    trunk.reserve(lane, 2, |serial| links.by_serial(serial));
                    let mut bytes = [0; 64];
                    let mut writer = Writer::new(&mut bytes);
                    let written = writer.goodbye(Goodbye { reason, error: None });
                    debug_assert!(written, "a goodbye is short");
                    let frame = Frames::new(writer.bytes()).next();
                    if let Some(Ok(frame)) = frame {
                        trunk.tell(lane, link, frame);
                    }
                    (lane, link)
                }
            };
            trunk.end(lane, link);
        }
    }

    fn show(&mut self, now_ns: u64) {
        let is_due = now_ns.saturating_sub(self.shown_ns) >= publishing::period_ns(SHOW_EVERY_NS);
        let is_wanted = self.rest.is_some() || !self.asked.is_empty();
        if is_due || is_wanted || self.trunk.over().is_some() {
            self.shown_ns = now_ns;
            self.show_now();
            self.asked.drain(..).for_each(Request::answer);
        }
    }

    /// Calls links that do not answer.
    fn call_again(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.called_ns) >= CALL_EVERY_NS {
            self.called_ns = now_ns;
            self.links.call_again();
        }
    }

    fn show_now(&mut self) {
        let shown = TrunkShown {
            number: self.number,
            peer: self.trunk.peer(),
            since_ns: self.since_ns,
            lanes: self.trunk.stats().map(LaneShown::from).collect(),
            lent: self.trunk.stats().map(|stats| stats.is_lent).collect(),
            backends: self.links.by_backend(),
        };
        let mut counts = std::mem::take(&mut self.links.counts);
        let drops = self.trunk.stats().fold([0; 2], |[gone, full], stats: LaneStats| {
            [gone + stats.link_gone, full + stats.link_full]
        });
        let before = std::mem::replace(&mut self.shown_drops, drops);
        counts.link_gone += drops[0].saturating_sub(before[0]);
        counts.link_full += drops[1].saturating_sub(before[1]);
        self.shared.show(&self.agent, shown, &counts);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for desk in &self.shared.settings.desks {
            desk.forget(self.number);
        }
    }
}

fn making<'a>(
    shared: &'a Shared,
    allowed: &'a [String],
    epoll: &'a Epoll,
    trunk: u32,
) -> Making<'a> {
    let settings = &shared.settings;
    Making { run_dir: &settings.run_dir, allowed, epoll, desks: &settings.desks, trunk }
}

fn handle(
    event: Event<'_>,
    links: &mut Links,
    risen: &mut Vec<u8>,
    making: Making<'_>,
    shared: &Shared,
) {
    match event {
        Event::Record { lane, link, frame } => links.handle_record((lane, link), frame, making),
        Event::Ended { lane, link } => links.handle_end((lane, link), making),
        Event::LaneUp(lane) => risen.push(lane),
        Event::Beat => links.handle_begun(making),
        Event::Caught { serial } => links.handle_caught(serial, making.epoll),
        // What is nobody's is nothing that this trunk has to count.
        Event::Stray { from, datagram } => _ = shared.route(from, datagram),
        Event::Begun(_) | Event::Message(_) | Event::Unproven { .. } => {}
    }
}

const SHOW_EVERY_NS: u64 = 100_000_000;

/// A worker comes across a link in its next turn, as a rule.
const CALL_EVERY_NS: u64 = 200_000_000;

/// A worker turns much more often than this, as a rule. In less than [`REST_WITHIN_NS`] all of a
/// trunk has to be given away.
const BACK_WITHIN_NS: u64 = REST_WITHIN_NS / 5 * 4;

/// How often pages are told of lanes that workers have.
const LISTEN_EVERY: Duration = Duration::from_millis(250);

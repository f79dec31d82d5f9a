//! The thread of a trunk: it moves records between the trunk and the workers' sockets until the
//! trunk is over.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ringgate_link::bundle::{Frames, Goodbye, Writer};
use ringgate_os::notify::{Epoll, Ready};
use ringgate_trunk::control::{Reason, Welcome};
use ringgate_trunk_io::{Bundles, Event, Guest, Settings, Trunk};

use crate::links::{Answer, Links, Making};
use crate::mailbox::{Mail, Mailbox};
use crate::shared::Shared;
use crate::shown::{LaneShown, TrunkShown};

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
        Ok(mut site) => {
            let peer = site.trunk.peer();
            tracing::info!(event = "agent_up", agent, %peer, "agent {agent} is connected from {peer}");
            site.turn_until_over();
            let why = site.trunk.over();
            let text = why.map_or_else(String::new, ToString::to_string);
            let reason = why.map_or("other", |why| why.name());
            tracing::warn!(event = "agent_down", agent, reason, "agent {agent} is gone: {text}");
            shared.leave(number, why);
        }
        Err(why) => {
            tracing::error!(event = "agent_failed", agent, "cannot serve agent {agent}: {why}");
            shared.leave(number, None);
        }
    }
}

struct Site {
    shared: Arc<Shared>,
    agent: String,
    allowed: Vec<String>,
    mailbox: Arc<Mailbox>,
    epoll: Epoll,
    trunk: Trunk,
    links: Links,
    bundles: Bundles,
    number: u32,
    since_ns: u64,
    mail: Vec<Mail>,
    shown_ns: u64,
}

impl Site {
    fn new(shared: Arc<Shared>, arrival: Arrival) -> io::Result<Self> {
        let Arrival { guest, agent, version, number, mailbox } = arrival;
        let now_ns = shared.settings.clock.now_ns();
        let epoll = Epoll::new()?;
        epoll.add(mailbox.bell(), BELL)?;
        let welcome = Welcome {
            version,
            lanes: u8::try_from(shared.settings.workers).map_err(io::Error::other)?,
            trunk: number,
            incarnation: shared.settings.incarnation,
        };
        let settings = Settings { rekey: shared.settings.rekey, token: BELL + 1 };
        let trunk = guest.welcome(welcome, settings, &epoll, now_ns)?;
        let rules = shared.rules();
        let allowed = rules.find(&agent).map(|rule| rule.backends.clone()).unwrap_or_default();
        Ok(Self {
            shared,
            agent,
            allowed,
            mailbox,
            epoll,
            trunk,
            links: Links::default(),
            bundles: Bundles::default(),
            number,
            since_ns: now_ns,
            mail: Vec::new(),
            shown_ns: 0,
        })
    }

    fn turn_until_over(&mut self) {
        let clock = self.shared.settings.clock;
        // What came while this was not a trunk yet.
        let mut ready = Vec::with_capacity(64);
        ready.push(Ready { token: BELL + 1, events: 0 });
        loop {
            let now_ns = clock.now_ns();
            for ready in &ready {
                self.handle_ready(*ready, now_ns);
            }
            self.answer();
            self.trunk.poll(now_ns);
            self.links.hold(self.trunk.waiting_bytes() > HELD_BYTES, &self.epoll);
            self.links.flush(&self.epoll);
            self.trunk.flush(&self.epoll, now_ns);
            self.show(now_ns);
            if self.trunk.over().is_some() {
                return;
            }
            let wait = Duration::from_nanos(self.trunk.due_ns().saturating_sub(clock.now_ns()));
            if let Err(why) = self.epoll.wait(&mut ready, wait) {
                tracing::error!(
                    event = "agent_failed",
                    "cannot wait for agent {}: {why}",
                    self.agent
                );
                return self.trunk.say_goodbye(Reason::Other);
            }
        }
    }

    fn handle_ready(&mut self, ready: Ready, now_ns: u64) {
        if ready.token == BELL {
            return self.take_mail(now_ns);
        }
        let Self { shared, allowed, epoll, trunk, links, bundles, .. } = self;
        if !trunk.is_own(ready.token) {
            return links.handle_ready(ready, bundles, trunk, now_ns);
        }
        let making = Making { run_dir: &shared.settings.run_dir, allowed, epoll };
        trunk.handle_ready(ready, epoll, now_ns, |event| handle(event, links, making, shared));
    }

    fn take_mail(&mut self, now_ns: u64) {
        let mut mail = std::mem::take(&mut self.mail);
        self.mailbox.take(&mut mail);
        for mail in mail.drain(..) {
            match mail {
                Mail::Datagram(from, mut datagram) => {
                    let Self { shared, allowed, epoll, trunk, links, .. } = self;
                    let making = Making { run_dir: &shared.settings.run_dir, allowed, epoll };
                    let heard = |event: Event<'_>| handle(event, links, making, shared);
                    trunk.handle_datagram(from, &mut datagram, epoll, now_ns, heard);
                }
                Mail::End(why) => self.trunk.say_goodbye(why),
                Mail::Rules => self.go_by_rules(),
            }
        }
        self.mail = mail;
    }

    fn go_by_rules(&mut self) {
        match self.shared.rules().find(&self.agent) {
            Some(rule) => {
                self.allowed.clone_from(&rule.backends);
                self.links.handle_rules(&self.allowed);
            }
            None => self.trunk.say_goodbye(Reason::UnknownAgent),
        }
    }

    /// Says what is to be said because of what came.
    fn answer(&mut self) {
        let Self { trunk, links, .. } = self;
        for answer in links.answers.drain(..) {
            let (lane, link) = match answer {
                Answer::End(lane, link) => (lane, link),
                Answer::Goodbye(lane, link, reason) => {
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
        if now_ns.saturating_sub(self.shown_ns) < SHOW_EVERY_NS && self.trunk.over().is_none() {
            return;
        }
        self.shown_ns = now_ns;
        let shown = TrunkShown {
            number: self.number,
            peer: self.trunk.peer(),
            since_ns: self.since_ns,
            lanes: self.trunk.stats().map(LaneShown::from).collect(),
            backends: self.links.by_backend(),
        };
        let counts = std::mem::take(&mut self.links.counts);
        self.shared.show(&self.agent, shown, &counts);
    }
}

fn handle(event: Event<'_>, links: &mut Links, making: Making<'_>, shared: &Shared) {
    match event {
        Event::Record { lane, link, frame } => links.handle_record((lane, link), frame, making),
        Event::Ended { lane, link } => links.handle_end((lane, link)),
        Event::LaneUp(lane) => links.handle_lane_up(lane, making),
        // What is nobody's is nothing that this trunk has to count.
        Event::Stray { from, datagram } => _ = shared.route(from, datagram),
        Event::Begun(_) => {}
    }
}

/// Records that may wait for the stream before workers have to.
const HELD_BYTES: usize = 1 << 20;

const SHOW_EVERY_NS: u64 = 100_000_000;

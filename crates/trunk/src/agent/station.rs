//! One local worker: a socket file that game processes connect to, their links, and the relay
//! between those and a lane.

mod handed;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protocol::arbitration::Arbitration;
use crate::protocol::relay::{Act, Action, GAMES_MAX, Game, Passed, Relay};
use crate::protocol::rolls::Rolls;
use crate::socket::{Bundles, Local, Received};
use ringgate_batch::{Nameless, Newcomer};
use ringgate_io::socket::{self, PeerCredentials};
use ringgate_link::bundle::{
    Frame, GoodbyeReason, Hello, SessionId, ToGame, ToGateway, VERSION_MIN, VERSION_PLAIN, Writer,
};
use ringgate_os::notify::Epoll;

use crate::agent::counts::{Counts, Drop};
use crate::agent::crossings::{Crossings, Sent};
use crate::agent::options::{Backend, Link};
use crate::agent::servers::{Server, Servers};

/// One local worker.
#[derive(Debug)]
pub(crate) struct Station {
    /// Which of its thread's it is.
    at: usize,
    /// Its number on this host.
    worker: usize,
    relay: Relay,
    listener: OwnedFd,
    path: PathBuf,
    /// By their places in the relay.
    ends: Vec<Option<End>>,
    /// For each server: its link in the relay, and when the next may be tried.
    served: Vec<Served>,
    /// Links that something waits for.
    written: Vec<usize>,
    /// When to look at the listener again, after there was no descriptor for who waits there.
    accepts_again_ns: Option<u64>,
    /// When the agent will end, at the latest.
    drains_until_ns: Option<u64>,
    is_held: bool,
    /// Links whose processes are read no more until what they have said has left for the gateways
    /// of other local workers.
    waiting: Vec<usize>,
    /// Another process has the socket.
    is_left: bool,
}

/// Who is at a relay's link.
#[derive(Debug)]
enum End {
    Process(Process),
    /// A server that speaks plain UDP, by its number.
    Server(usize),
}

#[derive(Debug)]
struct Process {
    local: Local,
    who: PeerCredentials,
    since_ns: u64,
    is_written: bool,
    is_unresponsive: bool,
    /// The local worker that takes no more of what it says now.
    waits_for: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Served {
    game: Option<Game>,
    retry_ns: u64,
}

/// What a process has said: bundles, out of the kernel, until they are dealt with. Shared by the
/// links of a thread.
#[derive(Debug, Default)]
pub(crate) struct HeardBundles {
    bundles: Bundles,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl HeardBundles {
    /// Takes up to a burst. The link may be answered while it is dealt with.
    fn listen(&mut self, local: &mut Local) -> io::Result<Received> {
        let Self { bundles, bytes, ends } = self;
        bytes.clear();
        ends.clear();
        local.receive(bundles, |bundle| {
            bytes.extend_from_slice(bundle);
            ends.push(bytes.len());
        })
    }
}

/// What a station has for its gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish<'a> {
    /// Must arrive.
    Tell(u16, Frame<'a>),
    /// May be lost.
    Push(u16, Frame<'a>),
    /// A link is over.
    End(u16),
    /// No payload of a session is to come any more.
    NotHeld(SessionId),
}

pub(crate) type Wishes<'a> = &'a mut dyn FnMut(Wish<'_>);

/// What stations share within a thread.
pub(crate) struct Around<'a> {
    pub(crate) backends: &'a [Backend],
    pub(crate) servers: Option<&'a mut Servers>,
    pub(crate) counts: &'a mut Counts,
    pub(crate) crossings: &'a Crossings,
    pub(crate) epoll: &'a Epoll,
    pub(crate) now_ns: u64,
    /// The local worker that takes no more of what a game process has just said.
    crowded: Option<usize>,
}

impl<'a> Around<'a> {
    pub(crate) const fn new(
        backends: &'a [Backend],
        servers: Option<&'a mut Servers>,
        counts: &'a mut Counts,
        (crossings, epoll): (&'a Crossings, &'a Epoll),
        now_ns: u64,
    ) -> Self {
        Self { backends, servers, counts, crossings, epoll, now_ns, crowded: None }
    }
}

impl Station {
    /// A worker that nobody is connected to.
    pub(crate) fn open(
        at: usize,
        (worker, workers): (usize, usize),
        (run_dir, incarnation): (&Path, u64),
        backends: &[Backend],
        epoll: &Epoll,
    ) -> io::Result<Self> {
        let path = run_dir.join(format!("worker-{worker}.sock"));
        let listener = socket::link_listener(&path, LINK_MODE).map_err(io::Error::other)?;
        epoll.add(listener.as_fd(), listener_token(at))?;
        let is_server = |backend: &&Backend| matches!(backend.link, Link::Udp(_));
        Ok(Self {
            at,
            worker,
            relay: Relay::new(worker, workers, incarnation, names(backends)),
            listener,
            path,
            ends: Vec::new(),
            served: vec![Served::default(); backends.iter().filter(is_server).count()],
            written: Vec::new(),
            accepts_again_ns: None,
            drains_until_ns: None,
            is_held: false,
            waiting: Vec::new(),
            is_left: false,
        })
    }

    /// Its number on this host.
    pub(crate) const fn worker(&self) -> usize {
        self.worker
    }

    /// Whether a game process here knows sessions that another gateway may go on with.
    pub(crate) fn has_homes(&self) -> bool {
        self.relay.has_homes()
    }

    /// What passes between its links and the lane.
    pub(crate) const fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Has its players counted as this gateway's.
    pub(crate) fn count_in(&mut self, rolls: &Arc<Rolls>, gateway: String) {
        self.relay.count_in(Arc::clone(rolls), gateway.into());
    }

    /// Has sessions of clusters decided together with the agent's other local workers.
    pub(crate) fn arbitrate_with(&mut self, arbitration: &Arc<Arbitration>) {
        self.relay.arbitrate_with(Arc::clone(arbitration));
    }

    /// What another local worker has passed here.
    pub(crate) fn take_passed(
        &mut self,
        passed: &Passed<'_>,
        around: &mut Around<'_>,
        wish: Wishes<'_>,
    ) {
        self.note_now(around.now_ns);
        self.relayed(around, wish, |relay, act| relay.handle_passed(passed, act));
    }

    /// Has the relay do something, and carries its actions out: local ones here, those for the
    /// gateway as wishes.
    fn relayed<T>(
        &mut self,
        around: &mut Around<'_>,
        wish: Wishes<'_>,
        with: impl FnOnce(&mut Relay, Act<'_>) -> T,
    ) -> T {
        let Self { at, relay, ends, written, served, .. } = self;
        let mut hands = Hands { at: *at, ends, written, served, around };
        with(relay, &mut |action| hands.act(action, wish))
    }

    /// Sends players what is due where their messages are delivered here.
    pub(crate) fn look_after_ends(&mut self, around: &mut Around<'_>, wish: Wishes<'_>) {
        self.note_now(around.now_ns);
        let Self { at, relay, ends, written, served, .. } = self;
        relay.touch_due_ends();
        loop {
            let (at, ends, written) = (*at, &mut *ends, &mut *written);
            let mut hands = Hands { at, ends, written, served: &mut *served, around: &mut *around };
            let game = relay.look_after_next(&mut |action| hands.act(action, wish));
            let Some(game) = game else { return };
            note_room(relay, hands.ends, game.place());
        }
    }

    /// Has the relay know what time it is, and whose links have room.
    #[inline]
    fn note_now(&mut self, now_ns: u64) {
        self.relay.set_now(now_ns);
        if self.relay.has_ends() {
            let Self { relay, ends, written, .. } = self;
            for place in written {
                note_room(relay, ends, *place);
            }
        }
    }

    /// How many workers the next game process is told of.
    pub(crate) const fn set_workers(&mut self, workers: usize) {
        self.relay.set_workers(workers);
    }

    /// Which game processes may connect from now on: those around. Who may not be there any more is
    /// sent away; who is not among them, and has players, keeps them.
    pub(crate) fn set_backends(&mut self, around: &mut Around<'_>, wish: Wishes<'_>) {
        let all = around.servers.as_ref().map_or(&[][..], |servers| servers.all());
        let is_replaced = |server: &usize| {
            let it = &all[*server];
            it.is_retired && all.iter().any(|other| !other.is_retired && other.name == it.name)
        };
        let replaced: Vec<_> = (0..all.len()).filter(is_replaced).collect();
        self.served.resize(self.served.len().max(all.len()), Served::default());
        // Whoever was turned away by what has changed now need not wait.
        self.served.iter_mut().for_each(|served| served.retry_ns = 0);
        for server in replaced {
            if let Some(game) = self.served[server].game {
                self.lose(game, around, wish);
            }
        }
        self.relay.set_names(names(around.backends));
        self.recheck(around, wish);
    }

    /// Whether a server is at any link.
    pub(crate) fn has_server(&self, server: usize) -> bool {
        self.served.get(server).is_some_and(|served| served.game.is_some())
    }

    /// Lets in who waits.
    pub(crate) fn accept(&mut self, around: &mut Around<'_>) {
        for _ in 0..ACCEPTS_MAX {
            let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            match socket2::SockRef::from(&self.listener).accept4(flags) {
                Ok((socket, _)) => self.let_in(socket.into(), around),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // Left in the set, it would keep the thread awake for as long as descriptors
                    // are short.
                    let _ = around.epoll.remove(self.listener.as_fd());
                    self.accepts_again_ns = Some(around.now_ns + ACCEPT_AGAIN_NS);
                    return;
                }
            }
        }
    }

    fn let_in(&mut self, fd: OwnedFd, around: &mut Around<'_>) {
        let Ok(who) = socket::peer_credentials(fd.as_fd()) else { return };
        let is_barred = !may_connect(around.backends, who);
        if !is_barred && !self.make_room_for_nameless(who, around) {
            return around.counts.drop(Drop::Nameless, 1);
        }
        let local = Local::from(fd);
        let Some(game) = self.relay.connect() else {
            return around.counts.drop(Drop::LinksFull, 1);
        };
        if local.watch(around.epoll, link_token(self.at, game)).is_err() {
            return self.relay.disconnect(game, &mut |_| ());
        }
        let since_ns = around.now_ns;
        let process = Process {
            local,
            who,
            since_ns,
            is_written: false,
            is_unresponsive: false,
            waits_for: None,
        };
        if self.is_held {
            process.local.hold(around.epoll, link_token(self.at, game), true);
        }
        self.put(game, End::Process(process));
        if is_barred {
            around.counts.drop(Drop::Unauthorised, 1);
            // Nobody knows it yet who could be told of its end.
            return self.send_away(game, GoodbyeReason::Unauthorised, around, &mut |_| ());
        }
        around.counts.passed.links += 1;
    }

    /// Whether one more process may wait to say who it is.
    fn make_room_for_nameless(&mut self, of: PeerCredentials, around: &mut Around<'_>) -> bool {
        let processes = self.ends.iter().enumerate().filter_map(|(at, end)| match end {
            Some(End::Process(Process { who, since_ns, .. })) => {
                Some(Nameless { at, credentials: (*who).into(), serial: *since_ns })
            }
            _ => None,
        });
        let nameless = processes.filter(|it| self.relay.name_at(it.at).is_none());
        match Newcomer::decide(of.into(), NAMELESS_MAX, nameless) {
            Newcomer::Waits => true,
            Newcomer::WaitsInsteadOf(at) => {
                around.counts.drop(Drop::Nameless, 1);
                self.lose(Game::at(at), around, &mut |_| ());
                true
            }
            Newcomer::Refused => false,
        }
    }

    fn put(&mut self, game: Game, end: End) {
        let place = game.place();
        if self.ends.len() <= place {
            self.ends.resize_with(place + 1, || None);
        }
        self.ends[place] = Some(end);
    }

    /// Reads what a process has said.
    pub(crate) fn read(
        &mut self,
        place: usize,
        heard: &mut HeardBundles,
        around: &mut Around<'_>,
        wish: Wishes<'_>,
    ) {
        let Some(Some(End::Process(process))) = self.ends.get_mut(place) else { return };
        let received = heard.listen(&mut process.local);
        let game = Game::at(place);
        let mut start = 0;
        for &end in &heard.ends {
            around.counts.passed.bundles_in += 1;
            // Who was hung up on meanwhile is heard no more.
            if matches!(self.ends.get(place), Some(Some(_))) {
                self.take_bundle(game, &heard.bytes[start..end], around, wish);
            }
            start = end;
        }
        match received {
            Ok(Received::Part | Received::Everything) => self.note_written(place),
            Ok(Received::HungUp) | Err(_) => self.lose(game, around, wish),
        }
    }

    fn take_bundle(
        &mut self,
        game: Game,
        bundle: &[u8],
        around: &mut Around<'_>,
        wish: Wishes<'_>,
    ) {
        let is_new = self.relay.name_at(game.place()).is_none();
        let refused = match self.ends.get(game.place()) {
            // What another process has said of a player may lead nowhere.
            None | Some(None) => return,
            Some(Some(End::Process(process))) if is_new => {
                let is_taken = |name: &str| self.relay.has_named(name);
                judge(process.who, bundle, around.backends, is_taken)
            }
            _ => None,
        };
        self.relay.set_now(around.now_ns);
        let Self { at, relay, ends, written, served, drains_until_ns, .. } = self;
        let mut hands = Hands { at: *at, ends, written, served, around };
        if let Some(reason) = refused {
            let is_taken = reason == GoodbyeReason::NameTaken;
            let why = if is_taken { Drop::NameTaken } else { Drop::Unauthorised };
            hands.around.counts.drop(why, 1);
            return relay.turn_away(game, reason, &mut |action| hands.act(action, wish));
        }
        relay.handle_bundle(game, bundle, &mut |action| hands.act(action, wish));
        let crowded = hands.around.crowded.take();
        if let Some(until_ns) = drains_until_ns.filter(|_| is_new) {
            let left_ms = left_ms(until_ns, hands.around.now_ns);
            relay.tell_draining(game, left_ms, &mut |action| hands.act(action, wish));
        }
        if let Some(worker) = crowded {
            self.wait_for(game, worker, around.epoll);
        }
    }

    /// What a process has said waits at another local worker: it says no more for now.
    #[cold]
    fn wait_for(&mut self, game: Game, worker: usize, epoll: &Epoll) {
        let Some(Some(End::Process(process))) = self.ends.get_mut(game.place()) else { return };
        if process.waits_for.replace(worker).is_none() {
            process.local.hold(epoll, link_token(self.at, game), true);
            self.waiting.push(game.place());
        }
    }

    /// Whether there are processes that wait so.
    pub(crate) const fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reads those again whose words have left.
    pub(crate) fn let_go(&mut self, crossings: &Crossings, epoll: &Epoll) {
        let Self { at, ends, waiting, written, is_held, .. } = self;
        waiting.retain(|place| {
            let Some(Some(End::Process(process))) = ends.get_mut(*place) else { return false };
            let Some(worker) = process.waits_for else { return false };
            if crossings.is_crowded(worker) {
                return true;
            }
            process.waits_for = None;
            process.local.hold(epoll, link_token(*at, Game::at(*place)), *is_held);
            note_written(ends, written, *place);
            false
        });
    }

    /// A server's datagram for a player, as a record.
    pub(crate) fn take_datagram(
        &mut self,
        game: Game,
        record: &[u8],
        around: &mut Around<'_>,
        wish: Wishes<'_>,
    ) {
        self.take_bundle(game, record, around, wish);
    }

    /// The gateway has said something to a link. An error is the gateway's break of the format.
    pub(crate) fn hear(
        &mut self,
        link: u16,
        frame: Frame<'_>,
        around: &mut Around<'_>,
        wish: Wishes<'_>,
    ) -> Result<(), crate::protocol::relay::Broken> {
        self.note_now(around.now_ns);
        self.relayed(around, wish, |relay, act| relay.handle_record(link, frame, act))
    }

    /// The gateway has ended a link: another process may have waited for that.
    pub(crate) fn hear_end(&mut self, link: u16, around: &mut Around<'_>, wish: Wishes<'_>) {
        self.relayed(around, wish, |relay, act| relay.handle_end(link, act));
    }

    /// The lane is up.
    pub(crate) fn rise(&mut self, lane: u8, around: &mut Around<'_>, wish: Wishes<'_>) {
        self.relayed(around, wish, |relay, act| relay.handle_lane(lane, act));
    }

    /// The lane is down, or the agent ends: everybody is hung up on who has players there.
    pub(crate) fn fall(&mut self, around: &mut Around<'_>) {
        self.relayed(around, &mut |_| (), Relay::handle_lane_lost);
    }

    /// Hangs up on everybody, with a word. They connect again, if there is anybody then.
    pub(crate) fn dismiss(
        &mut self,
        why: GoodbyeReason,
        around: &mut Around<'_>,
        wish: Wishes<'_>,
    ) {
        for place in 0..self.ends.len() {
            self.send_away(Game::at(place), why, around, wish);
        }
    }

    /// Hangs up on one, with a word.
    fn send_away(
        &mut self,
        game: Game,
        why: GoodbyeReason,
        around: &mut Around<'_>,
        wish: Wishes<'_>,
    ) {
        self.relayed(around, wish, |relay, act| relay.turn_away(game, why, act));
    }

    /// Tells all game processes that the agent will end, and the gateway that nobody new is to be
    /// sent to them.
    pub(crate) fn drain(&mut self, until_ns: u64, around: &mut Around<'_>, wish: Wishes<'_>) {
        self.drains_until_ns = Some(until_ns);
        let left_ms = left_ms(until_ns, around.now_ns);
        self.relayed(around, wish, |relay, act| relay.drain(left_ms, act));
    }

    /// The agent goes on, if that was said.
    pub(crate) fn undrain(&mut self, around: &mut Around<'_>, wish: Wishes<'_>) {
        if self.drains_until_ns.take().is_none() {
            return;
        }
        self.relayed(around, wish, |relay, act| relay.undrain(act));
    }

    /// What time brings: processes that say nothing, servers that have come or gone.
    pub(crate) fn keep(&mut self, around: &mut Around<'_>, wish: Wishes<'_>) {
        if self.accepts_again_ns.is_some_and(|again_ns| again_ns <= around.now_ns) {
            let added = around.epoll.add(self.listener.as_fd(), listener_token(self.at));
            self.accepts_again_ns = added.is_err().then_some(around.now_ns + ACCEPT_AGAIN_NS);
        }
        for place in 0..self.ends.len() {
            let Some(End::Process(process)) = &self.ends[place] else { continue };
            if process.is_unresponsive {
                around.counts.drop(Drop::Unresponsive, 1);
                self.lose(Game::at(place), around, wish);
            } else if process.since_ns + HELLO_NS <= around.now_ns
                && self.relay.name_at(place).is_none()
            {
                around.counts.drop(Drop::Nameless, 1);
                self.send_away(Game::at(place), GoodbyeReason::HelloExpected, around, wish);
            }
        }
        let servers = around.servers.as_ref().map_or(0, |servers| servers.all().len());
        // More than the config has, where one that it had is still at a link of another station.
        self.served.resize(self.served.len().max(servers), Served::default());
        for server in 0..servers {
            self.keep_server(server, around, wish);
        }
    }

    fn keep_server(&mut self, server: usize, around: &mut Around<'_>, wish: Wishes<'_>) {
        let Some(servers) = &mut around.servers else { return };
        let Served { game, retry_ns } = self.served[server];
        let Server { is_there, is_retired, .. } = servers.all()[server];
        match game {
            Some(game) if !is_there || is_retired && self.relay.players_of(game) == 0 => {
                servers.keep(self.at, server, around.now_ns);
                self.served[server].game = None;
                self.lose(game, around, wish);
            }
            None if is_there && !is_retired && retry_ns <= around.now_ns => {
                let hello = hello_of(&servers.all()[server].name);
                let Some(game) = self.relay.connect() else { return };
                self.put(game, End::Server(server));
                let retry_ns = around.now_ns + RETRY_NS;
                self.served[server] = Served { game: Some(game), retry_ns };
                self.take_bundle(game, &hello, around, wish);
            }
            _ => {}
        }
    }

    /// A link is gone.
    fn lose(&mut self, game: Game, around: &mut Around<'_>, wish: Wishes<'_>) {
        self.relayed(around, wish, |relay, act| {
            relay.disconnect(game, act);
            act(Action::HangUp(game));
        });
    }

    /// Sends what waits for processes.
    pub(crate) fn flush(&mut self, epoll: &Epoll) {
        for place in self.written.drain(..) {
            let Some(Some(End::Process(process))) = self.ends.get_mut(place) else { continue };
            let token = link_token(self.at, Game::at(place));
            process.is_written = false;
            process.local.flush();
            process.local.watch_for_room(epoll, token);
            if self.is_held || process.waits_for.is_some() {
                process.local.hold(epoll, token, true);
            }
            note_room(&mut self.relay, &self.ends, place);
        }
    }

    /// Tells the gateway for which processes too much waits.
    pub(crate) fn tell_rooms(&mut self, around: &mut Around<'_>, wish: Wishes<'_>) {
        self.relayed(around, wish, Relay::tell_rooms);
    }

    /// There may be room again for what waits.
    fn note_written(&mut self, place: usize) {
        note_written(&mut self.ends, &mut self.written, place);
    }

    /// Reads processes no more while too much waits for the gateway, or again.
    pub(crate) fn hold(&mut self, is_held: bool, epoll: &Epoll) {
        if std::mem::replace(&mut self.is_held, is_held) == is_held {
            return;
        }
        for (place, end) in self.ends.iter().enumerate() {
            if let Some(End::Process(process)) = end {
                let token = link_token(self.at, Game::at(place));
                process.local.hold(epoll, token, is_held || process.waits_for.is_some());
            }
        }
        if !is_held {
            (0..self.ends.len()).for_each(|place| self.note_written(place));
        }
    }
}

impl std::ops::Drop for Station {
    fn drop(&mut self) {
        if !self.is_left {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Does what a relay wants.
struct Hands<'s, 'a> {
    at: usize,
    ends: &'s mut Vec<Option<End>>,
    written: &'s mut Vec<usize>,
    served: &'s mut Vec<Served>,
    around: &'s mut Around<'a>,
}

impl Hands<'_, '_> {
    #[inline]
    fn act(&mut self, action: Action<'_>, wish: Wishes<'_>) {
        match action {
            Action::Deliver(game, frame) => self.deliver(game, frame),
            Action::HangUp(game) => self.hang_up(game),
            Action::Tell(link, frame) => wish(Wish::Tell(link, frame)),
            Action::Push(link, frame) => wish(Wish::Push(link, frame)),
            Action::End(link) => wish(Wish::End(link)),
            Action::Forget(game, frame) => self.forget(game, frame),
            Action::Pass(worker, passed) => self.pass(worker, &passed),
            Action::NotHeld(session) => wish(Wish::NotHeld(session)),
        }
    }

    /// A session is over that its gateway may announce again, to a server as the same player.
    #[cold]
    fn forget(&mut self, game: Game, frame: Frame<'_>) {
        let end = self.ends.get(game.place()).and_then(Option::as_ref);
        match (end, ToGame::decode(frame), &mut self.around.servers) {
            (Some(End::Server(_)), Ok(ToGame::Closed { session, .. }), Some(servers)) => {
                servers.keep_player(session, self.around.now_ns);
            }
            _ => self.deliver(game, frame),
        }
    }

    #[cold]
    fn pass(&mut self, worker: usize, passed: &Passed<'_>) {
        match self.around.crossings.send(worker, passed) {
            Sent::Passed => {}
            Sent::Crowded => self.around.crowded = Some(worker),
            Sent::Refused => self.around.counts.drop(Drop::CrossingFull, 1),
        }
    }

    #[inline]
    fn deliver(&mut self, game: Game, frame: Frame<'_>) {
        let place = game.place();
        let Self { at, ends, around, .. } = self;
        match ends.get_mut(place) {
            Some(Some(End::Process(process))) => {
                let payloads = frame.payloads();
                if !frame.may_be_lost() {
                    process.is_unresponsive |= !process.local.push_late(frame);
                } else if process.local.push(frame) {
                    around.counts.passed.payloads_to_games += payloads;
                } else {
                    around.counts.drop(Drop::LinkFull, payloads);
                }
                note_written(self.ends, self.written, place);
            }
            Some(Some(End::Server(server))) => {
                if let Some(servers) = &mut around.servers {
                    let whose = (*server, *at, game);
                    servers.hear(whose, frame, around.counts, around.now_ns);
                }
            }
            // A player says something to a process that has closed it, and is gone.
            _ => {
                let is_message =
                    matches!(ToGame::decode(frame), Ok(ToGame::Message(it)) if it.is_last);
                around.counts.drop(Drop::MessageNotTaken, is_message.into());
            }
        }
    }

    fn hang_up(&mut self, game: Game) {
        match self.ends.get_mut(game.place()).and_then(Option::take) {
            // What was said last leaves before the end.
            Some(End::Process(mut process)) => process.local.flush(),
            Some(End::Server(server)) => {
                self.served[server].game = None;
                if let Some(servers) = &mut self.around.servers {
                    servers.keep(self.at, server, self.around.now_ns);
                }
            }
            None => {}
        }
    }
}

fn note_room(relay: &mut Relay, ends: &[Option<End>], place: usize) {
    if let Some(Some(End::Process(process))) = ends.get(place) {
        relay.set_room(Game::at(place), process.local.has_room());
    }
}

fn note_written(ends: &mut [Option<End>], written: &mut Vec<usize>, place: usize) {
    if let Some(Some(End::Process(process))) = ends.get_mut(place)
        && !std::mem::replace(&mut process.is_written, true)
    {
        written.push(place);
    }
}

fn names(backends: &[Backend]) -> Vec<String> {
    backends.iter().map(|backend| backend.name.clone()).collect()
}

/// Whether a process may be a game server here, whatever it calls itself.
fn may_connect(backends: &[Backend], who: PeerCredentials) -> bool {
    backends.iter().any(|it| match &it.link {
        Link::Bundle(allowed) => allowed.admits(who.uid, who.gid),
        Link::Udp(_) => false,
    })
}

/// Whether a process may call itself what it says first. A relay hears nothing before that.
fn judge(
    who: PeerCredentials,
    bundle: &[u8],
    backends: &[Backend],
    is_taken: impl FnOnce(&str) -> bool,
) -> Option<GoodbyeReason> {
    let Some(Ok(ToGateway::Hello(hello))) = ToGateway::read(bundle).next() else { return None };
    let backend = backends.iter().find(|backend| backend.name == hello.name)?;
    match &backend.link {
        Link::Bundle(allowed) if !allowed.admits(who.uid, who.gid) => {
            Some(GoodbyeReason::Unauthorised)
        }
        // One link of each: where no gateway says so, one process could take all places.
        Link::Bundle(_) => is_taken(hello.name).then_some(GoodbyeReason::NameTaken),
        // The name is a server's, for which the agent itself speaks.
        Link::Udp(_) => Some(GoodbyeReason::NameTaken),
    }
}

/// What is left of a drain.
fn left_ms(until_ns: u64, now_ns: u64) -> u32 {
    u32::try_from(until_ns.saturating_sub(now_ns).div_ceil(NS_PER_MS)).unwrap_or(u32::MAX)
}

/// What the agent says for a server: whole messages are nothing to it.
fn hello_of(name: &str) -> Vec<u8> {
    let mut bytes = [0; 64];
    let mut writer = Writer::new(&mut bytes);
    let hello = Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_PLAIN as u8,
        pid: std::process::id(),
        name,
    };
    let written = writer.hello(&hello);
    debug_assert!(written, "the config was checked");
    writer.bytes().to_vec()
}

/// What an epoll set calls a listener.
pub(crate) const fn listener_token(station: usize) -> u64 {
    LISTENERS | station as u64
}

/// What it calls a link.
const fn link_token(station: usize, game: Game) -> u64 {
    LINKS | (station as u64) << 16 | game.place() as u64
}

/// Whose a token is.
pub(crate) enum Owner {
    /// Of the trunk, or the bell.
    Other,
    /// The listener of a station.
    Listener(usize),
    /// A link of a station.
    Link(usize, usize),
}

/// Whose a token is.
pub(crate) const fn owner(token: u64) -> Owner {
    let low = (token & 0xffff) as usize;
    match token >> 32 {
        1 => Owner::Listener(low),
        2 => Owner::Link((token >> 16 & 0xffff) as usize, low),
        _ => Owner::Other,
    }
}

const LISTENERS: u64 = 1 << 32;
const LINKS: u64 = 2 << 32;

/// Whoever reaches the folder may connect; who may say a name is decided by its credentials.
const LINK_MODE: u32 = 0o666;

const NS_PER_MS: u64 = 1_000_000;

const ACCEPTS_MAX: usize = 16;
const ACCEPT_AGAIN_NS: u64 = 200_000_000;

/// As at a gateway.
const HELLO_NS: u64 = 5_000_000_000;
const NAMELESS_MAX: usize = 128;
const _: () = assert!(NAMELESS_MAX < GAMES_MAX, "those who have said hello find room");

/// A server whom the gateway has turned away is introduced again after this.
const RETRY_NS: u64 = 1_000_000_000;

//! A local worker that goes on in another process: game processes keep their links.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::protocol::relay::{GAMES_MAX, Game, Relay};
use crate::socket::{Local, adopt};
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_io::socket;
use ringgate_link::bundle::GoodbyeReason;
use socket2::Type;

use super::{Around, End, Process, Served, Station, Wishes, link_token, listener_token};
use crate::agent::options::{Backend, Link};
use ringgate_os::notify::Epoll;

impl Station {
    /// Writes all of it but its descriptors. `servers` are the names of servers, by number.
    pub(crate) fn write(&self, servers: &[String], out: &mut Writer<'_>) {
        let Self { worker, relay, ends, .. } = self;
        // Paths and numbers are the next process's, who waits is seen anew, and a server whom the
        // gateway has turned away is tried again at once.
        let Self { at: _, listener: _, path: _, served: _, written: _, .. } = self;
        // One that drains is not handed over.
        let Self { accepts_again_ns: _, drains_until_ns: _, is_held: _, is_left: _, .. } = self;
        // Whoever waits is read there.
        let Self { waiting: _, .. } = self;
        worker.write(out);
        relay.write(out);
        (ends.len() as u32).write(out);
        for end in ends {
            match end {
                None => 0_u8.write(out),
                Some(End::Process(process)) => {
                    // Who it is, its socket says.
                    let Process { local, since_ns, is_unresponsive, .. } = process;
                    let Process { who: _, is_written: _, waits_for: _, .. } = process;
                    1_u8.write(out);
                    since_ns.write(out);
                    is_unresponsive.write(out);
                    local.write(out);
                }
                Some(End::Server(server)) => {
                    2_u8.write(out);
                    servers[*server].write(out);
                }
            }
        }
    }

    /// What goes beside it.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let locals = self.ends.iter().flatten().filter_map(|end| match end {
            End::Process(process) => Some(process.local.as_fd()),
            End::Server(_) => None,
        });
        [self.listener.as_fd()].into_iter().chain(locals)
    }

    /// What another process had, as the station with this number. `servers` are as before.
    pub(crate) fn go_on(
        from: &mut Reader<'_>,
        fds: &mut impl Iterator<Item = OwnedFd>,
        at: usize,
        (run_dir, backends): (&Path, &[Backend]),
        servers: &[String],
        epoll: &Epoll,
    ) -> Result<Self, Broken> {
        let broken = |_| Broken::Invalid("descriptor");
        let worker = usize::read(from)?;
        let names = backends.iter().map(|backend| backend.name.clone()).collect();
        let relay = Relay::read(from, names)?;
        let listener: OwnedFd =
            adopt(fds.next().ok_or(Broken::Truncated)?, Type::SEQPACKET)?.into();
        epoll.add(listener.as_fd(), listener_token(at)).map_err(broken)?;
        let path = run_dir.join(format!("worker-{worker}.sock"));
        let mut station = Self {
            at,
            worker,
            relay,
            listener,
            path,
            ends: Vec::new(),
            served: vec![Served::default(); servers.len()],
            written: Vec::new(),
            accepts_again_ns: None,
            drains_until_ns: None,
            is_held: false,
            waiting: Vec::new(),
            // Until this process moves, it is the other one's.
            is_left: true,
        };
        let count = u32::read(from)? as usize;
        if count > GAMES_MAX {
            return Err(Broken::Invalid("number of links"));
        }
        for place in 0..count {
            let game = Game::at(place);
            let end = u8::read(from)?;
            if end != 0 && !station.relay.has(game) {
                return Err(Broken::Invalid("link"));
            }
            match end {
                0 => station.ends.push(None),
                1 => {
                    let process = Process::read(from, fds.next().ok_or(Broken::Truncated)?)?;
                    process.local.watch(epoll, link_token(at, game)).map_err(broken)?;
                    station.put(game, End::Process(process));
                    station.note_written(place);
                }
                2 => station.read_server(from, game, servers)?,
                _ => return Err(Broken::Invalid("link")),
            }
        }
        Ok(station)
    }

    /// What its relay had of players whose messages are delivered here.
    pub(crate) fn read_ends(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.relay.read_ends(from)?;
        for place in (0..GAMES_MAX).filter(|place| !matches!(self.ends.get(*place), Some(Some(_))))
        {
            self.relay.note_gone(Game::at(place));
        }
        Ok(())
    }

    /// What its relay knew of sessions of clusters.
    pub(crate) fn read_clusters(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.relay.read_clusters(from)
    }

    fn read_server(
        &mut self,
        from: &mut Reader<'_>,
        game: Game,
        servers: &[String],
    ) -> Result<(), Broken> {
        let name = String::read(from)?;
        match servers.iter().position(|server| *server == name) {
            Some(server) => {
                self.served[server].game = Some(game);
                self.put(game, End::Server(server));
            }
            // The config does not have it any more: nobody speaks for it.
            None => self.ends.push(None),
        }
        Ok(())
    }

    /// Makes up for what was passed to it while it was given away, and is lost.
    pub(crate) fn catch_up(&mut self, around: &mut Around<'_>, wish: Wishes<'_>) {
        self.relayed(around, wish, |relay, act| relay.catch_up(act));
    }

    /// Sends those away who may not be here by this config, and tells the gateway of the others
    /// whether nobody new is to be sent to them, where it may not know. Those whose backend is not
    /// in it stay with their players.
    pub(crate) fn recheck(&mut self, around: &mut Around<'_>, wish: Wishes<'_>) {
        for place in 0..GAMES_MAX {
            let name = self.relay.name_at(place).filter(|_| !self.relay.is_gone(place));
            let Some(name) = name else { continue };
            let backend = around.backends.iter().find(|backend| backend.name == name);
            let why = match (backend.map(|it| &it.link), self.ends.get(place)) {
                (Some(Link::Bundle(allowed)), Some(Some(End::Process(process))))
                    if !allowed.admits(process.who.uid, process.who.gid) =>
                {
                    GoodbyeReason::Unauthorised
                }
                (Some(Link::Bundle(_)) | None, Some(Some(End::Process(_))))
                | (Some(Link::Udp(_)) | None, Some(Some(End::Server(_)))) => continue,
                _ => GoodbyeReason::NameUnknown,
            };
            self.send_away(Game::at(place), why, around, wish);
        }
        self.relayed(around, wish, |relay, act| relay.tell_intakes(act));
    }

    /// This process moves, and not the other one: the socket's file goes when this station ends.
    pub(crate) const fn set_off(&mut self) {
        self.is_left = false;
    }

    /// Another process has it: the socket's file stays where it is.
    pub(crate) fn leave(mut self) {
        self.is_left = true;
    }
}

impl Process {
    fn read(from: &mut Reader<'_>, fd: OwnedFd) -> Result<Self, Broken> {
        let who = socket::peer_credentials(fd.as_fd()).map_err(|_| Broken::Invalid("socket"))?;
        let (since_ns, is_unresponsive) = (time::read(from)?, Carry::read(from)?);
        let local = Local::read(from, fd)?;
        Ok(Self { local, who, since_ns, is_written: false, is_unresponsive, waits_for: None })
    }
}

//! Game servers whose players go on in another process: to a server each of them is an address, so
//! the socket goes along, and who has which.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use crate::protocol::relay::{GAMES_MAX, Game};
use crate::socket::adopt;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_io::{SocketDriver, SocketKind};
use ringgate_link::bundle::{LONG_PAYLOAD_BYTES_MAX, SessionId};
use socket2::Type;

use super::{Numbers, Place, Player, Servers};
use crate::agent::options::Backend;

impl Servers {
    /// Their names, by number.
    pub(crate) fn names(&self) -> Vec<String> {
        self.all.iter().map(|server| server.name.clone()).collect()
    }

    /// Writes all of it but the descriptor.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let Self { all, numbers, players, homes, .. } = self;
        // A driver is made, and who listens is asked for anew.
        let Self { driver: _, socket: _, table: _, scratch: _, .. } = self;
        numbers.write(out);
        (players.len() as u32).write(out);
        for (session, number) in players {
            let Some(Player { station, session: _, server, bytes_max, place }) = homes.get(number)
            else {
                unreachable!("who has a number has a home")
            };
            session.as_u64().write(out);
            number.write(out);
            station.write(out);
            all[*server].name.write(out);
            bytes_max.write(out);
            match place {
                Place::Here(game) => (0_u8, game.place()).write(out),
                Place::Kept { since_ns } => (1_u8, *since_ns).write(out),
            }
        }
    }

    /// What goes beside it.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.driver.fd(self.socket)
    }

    /// What another process had. Players of servers that the config does not have any more are
    /// given up. `None` where it has none at all.
    pub(crate) fn read(
        from: &mut Reader<'_>,
        fd: OwnedFd,
        backends: &[Backend],
        beside: RawFd,
        now_ns: u64,
    ) -> Result<Option<Self>, Broken> {
        let broken = || Broken::Invalid("socket");
        let socket: OwnedFd = adopt(fd, Type::DGRAM)?.into();
        let mut servers = Self::without_socket(backends, beside).map_err(|_| broken())?;
        if let Some(servers) = &mut servers {
            let registered = servers.driver.register(socket, SocketKind::Datagram);
            servers.socket = registered.map_err(|_| broken())?;
        }
        let mut numbers: Numbers = Carry::read(from)?;
        let (mut players, mut homes) = (HashMap::new(), HashMap::new());
        for _ in 0..u32::read(from)? {
            let session = SessionId::from_u64(u64::read(from)?).ok_or_else(broken)?;
            let (number, station) = (Carry::read(from)?, usize::read(from)?);
            let (name, bytes_max) = (String::read(from)?, usize::read(from)?);
            let place = match u8::read(from)? {
                0 => usize::read(from).and_then(|it| {
                    (it < GAMES_MAX).then(|| Place::Here(Game::at(it))).ok_or_else(broken)
                })?,
                _ => Place::Kept { since_ns: time::read(from)? },
            };
            let all = servers.as_ref().map_or(&[][..], |servers| &servers.all);
            match all.iter().position(|server| server.name == name) {
                Some(server) if bytes_max <= LONG_PAYLOAD_BYTES_MAX => {
                    players.insert(session, number);
                    homes.insert(number, Player { station, session, server, bytes_max, place });
                }
                _ => numbers.give_back(number, now_ns),
            }
        }
        if players.len() != homes.len() {
            return Err(broken());
        }
        if let Some(servers) = &mut servers {
            (servers.numbers, servers.players, servers.homes) = (numbers, players, homes);
            servers.look();
        }
        Ok(servers)
    }
}

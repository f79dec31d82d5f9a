//! The demo's players: real clients that share one socket, each at an address of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::super::Failure;
use ringgate_batch::{Batches, Flush, LocalIp, SocketId, TxTarget};
use ringgate_bots::{Arrival, Received, Stamp};
use ringgate_core::limits::PAYLOAD_BYTES_MAX;
use ringgate_core::netcode::{Client, Notice, TokenSpec, mint};
use ringgate_core::proto::netcode::address::ServerAddresses;
use ringgate_core::secret::Key;
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    self as io, AnyDriver, Choice, Driver, DriverOptions, SocketDriver, SocketKind, Wait,
};
use ringgate_os::clock::{self, Clock};

/// All players, driven by one thread.
pub(super) struct Swarm {
    players: Vec<Player>,
    driver: AnyDriver,
    socket: SocketId,
    server: SocketAddr,
    home: Home,
    clock: Clock,
    pace: Pace,
    outcome: Outcome,
}

/// What the players send, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Over all players, and of one at most: 30 as games send them, unless there is a goal.
    pub(super) sends_per_s: u64,
    pub(super) sends_per_player: u64,
    /// How long payloads are at least, and how many lengths there are.
    pub(super) bytes: [u16; 2],
    /// How long the players rest between two looks.
    pub(super) tick: Duration,
}

impl Pace {
    /// It is to be seen working, not to find the limit: many players send less each. 40 to 120
    /// bytes, as game clients send.
    pub(super) const DEMO: Self = Self {
        sends_per_s: 15_000,
        sends_per_player: 30,
        bytes: [40, 81],
        tick: Duration::from_millis(1),
    };

    fn send_every_ns(self, players: usize) -> u64 {
        let all_ns = players as u64 * 1_000_000_000 / self.sends_per_s;
        all_ns.max(1_000_000_000 / self.sends_per_player)
    }

    /// How long a player's payload of this number is.
    fn len(self, number: u32) -> usize {
        let [least, lengths] = self.bytes;
        usize::from(least) + (u64::from(number) * 7 % u64::from(lengths)) as usize
    }
}

/// What the players have seen.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) connected: u32,
    pub(super) closed: u32,
    pub(super) payloads_sent: u64,
    pub(super) payloads_echoed: u64,
    /// Answers that were not what this player had sent, or came twice.
    pub(super) payloads_wrong: u64,
    /// From sending a payload to having its echo, in nanoseconds.
    pub(super) round_trip: Histogram<u64>,
}

struct Player {
    client: Client,
    source: LocalIp,
    send_every_ns: u64,
    next_send_ns: u64,
    number: u32,
    sent: u32,
    echoed: Received,
    heard_ns: u64,
    /// The longest time without an echo.
    silent_ns: u64,
}

impl Swarm {
    pub(super) fn new(
        count: u32,
        server: SocketAddr,
        key: &Key,
        pace: Pace,
        home: Home,
    ) -> Result<Self, Failure> {
        let options = DriverOptions { tx_datagrams: TX_SLOTS, tx_bundles: 0, ..Default::default() };
        let mut driver = io::open(Choice::Auto, &options).map_err(Failure::failed)?;
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let opened = socket::player(any, &UdpOptions::default()).map_err(Failure::failed)?;
        let socket = driver.register(opened.fd, SocketKind::Datagram).map_err(Failure::failed)?;
        let clock = Clock::start();
        let send_every_ns = pace.send_every_ns(count as usize);
        let players =
            (0..count).map(|n| Player::new(n, (server, key), home, clock.now_ns(), send_every_ns));
        Ok(Self {
            players: players.collect::<Result<_, _>>()?,
            driver,
            socket,
            server,
            home,
            clock,
            pace,
            outcome: Outcome {
                connected: 0,
                closed: 0,
                payloads_sent: 0,
                payloads_echoed: 0,
                payloads_wrong: 0,
                round_trip: Histogram::new_with_bounds(1, ROUND_TRIP_NS_MAX, 3)
                    .expect("the bounds are valid"),
            },
        })
    }

    pub(super) fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// How many are in.
    pub(super) fn playing(&self) -> u64 {
        self.players.iter().filter(|it| it.client.is_connected()).count() as u64
    }

    /// Waits until each is in or has given up, and sends nothing else meanwhile.
    pub(super) fn connect(&mut self) -> Result<(), Failure> {
        let is_through = |it: &Player| it.client.is_connected() || it.client.is_finished();
        while !self.players.iter().all(is_through) {
            self.turn(false)?;
        }
        Ok(())
    }

    /// Sends so much from now on.
    pub(super) fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
        let every_ns = pace.send_every_ns(self.players.len());
        let (now_ns, count) = (self.clock.now_ns(), self.players.len() as u64);
        for (n, player) in self.players.iter_mut().enumerate() {
            player.send_every_ns = every_ns;
            player.next_send_ns = now_ns + n as u64 * every_ns / count;
        }
    }

    /// How long it plays already.
    pub(super) fn played(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns())
    }

    /// Plays until this long after the start.
    pub(super) fn play_until(&mut self, end: Duration) -> Result<(), Failure> {
        let end_ns = end.as_nanos() as u64;
        while self.clock.now_ns() < end_ns {
            self.turn(true)?;
        }
        Ok(())
    }

    /// Forgets who has heard nothing for how long so far.
    pub(super) fn listen_anew(&mut self) {
        let now_ns = self.clock.now_ns();
        for player in &mut self.players {
            (player.heard_ns, player.silent_ns) = (now_ns, 0);
        }
    }

    /// Plays until each has heard something from now on, and says how many never do.
    pub(super) fn count_lost(&mut self) -> Result<usize, Failure> {
        let now_ns = self.clock.now_ns();
        let is_lost = |it: &Player| !it.client.is_connected() || it.heard_ns <= now_ns;
        while self.players.iter().any(|it| is_lost(it) && !it.client.is_finished())
            && self.clock.now_ns() < now_ns + SILENCE_NS_MAX
        {
            self.turn(true)?;
        }
        Ok(self.players.iter().filter(|it| is_lost(it)).count())
    }

    /// For how long the players of these client ids have heard nothing at most, shortest first.
    pub(super) fn silences(&self, client_ids: &[u64]) -> Vec<u64> {
        let now_ns = self.clock.now_ns();
        let mut silences: Vec<_> = client_ids
            .iter()
            .filter_map(|id| self.players.get(id.checked_sub(1)? as usize))
            .map(|player| player.silent_ns.max(now_ns - player.heard_ns))
            .collect();
        silences.sort_unstable();
        silences
    }

    /// Waits for the last echoes, then has everybody leave.
    pub(super) fn leave(mut self) -> Result<Outcome, Failure> {
        let patience_ns = self.clock.now_ns() + STRAGGLERS_NS;
        while self.outcome.payloads_echoed < self.outcome.payloads_sent
            && self.clock.now_ns() < patience_ns
        {
            self.turn(false)?;
        }
        for player in &mut self.players {
            player.client.disconnect();
        }
        while self.players.iter().any(|player| !player.client.is_finished())
            && self.clock.now_ns() < patience_ns + STRAGGLERS_NS
        {
            self.turn(false)?;
        }
        Ok(self.outcome)
    }

    /// Takes in what has come, then gives every player its turn.
    fn turn(&mut self, plays: bool) -> Result<(), Failure> {
        let mut wait =
            if self.pace.tick.is_zero() { Wait::No } else { Wait::AtMost(self.pace.tick) };
        for _ in 0..RECEIVES_MAX {
            self.driver.turn(wait).map_err(Failure::failed)?;
            if self.driver.rx().metas().is_empty() {
                break;
            }
            self.receive(self.clock.now_ns());
            wait = Wait::No;
        }
        self.send(self.clock.now_ns(), plays);
        Ok(())
    }

    fn receive(&mut self, now_ns: u64) {
        let Self { players, driver, outcome, server, home, .. } = self;
        for (meta, bytes) in driver.rx().iter_mut() {
            let Some(player) = home.index_of(meta.local).and_then(|n| players.get_mut(n)) else {
                continue;
            };
            match player.client.handle_datagram(now_ns, *server, bytes) {
                Ok(Some(Notice::Connected(_))) => outcome.connected += 1,
                Ok(Some(Notice::Payload(payload))) => {
                    match Player::check_echo(player.number, &mut player.echoed, payload) {
                        Some(stamp) => {
                            player.silent_ns = player.silent_ns.max(now_ns - player.heard_ns);
                            player.heard_ns = now_ns;
                            outcome.payloads_echoed += 1;
                            outcome.round_trip.saturating_record(stamp.service_ns(now_ns));
                        }
                        None => outcome.payloads_wrong += 1,
                    }
                }
                Ok(Some(Notice::Closed(_))) => outcome.closed += 1,
                Ok(Some(Notice::NextServer(_)) | None) | Err(_) => {}
            }
        }
    }

    fn send(&mut self, now_ns: u64, plays: bool) {
        let Self { players, driver, socket, outcome, pace, .. } = self;
        let Batches { tx, mut out, .. } = driver.batches();
        for player in players {
            if player.client.handle_timeout(now_ns).is_some() {
                outcome.closed += 1;
            }
            loop {
                if tx.small_left() == 0 {
                    out.flush(tx);
                }
                let room = tx.room().expect("flushed above");
                let slot = &mut *room.slot;
                let written =
                    player.client.poll_transmit(now_ns, slot).map(|(to, bytes)| (to, bytes.len()));
                let written = written.or_else(|| {
                    let is_due =
                        plays && player.client.is_connected() && now_ns >= player.next_send_ns;
                    is_due.then(|| player.write_payload(now_ns, slot, *pace)).flatten().inspect(
                        |_| {
                            outcome.payloads_sent += 1;
                        },
                    )
                });
                let Some((to, len)) = written else { break };
                let target =
                    TxTarget { socket: *socket, peer: Some(to.into()), source: player.source };
                room.send(len, target, 0);
            }
        }
        out.flush(tx);
    }
}

impl Player {
    fn new(
        n: u32,
        (server, key): (SocketAddr, &Key),
        home: Home,
        now_ns: u64,
        send_every_ns: u64,
    ) -> Result<Self, Failure> {
        let servers = ServerAddresses::new(&[server]).map_err(Failure::failed)?;
        let spec = TokenSpec::new(super::PROTOCOL_ID, u64::from(n) + 1, servers);
        let token = mint(&spec, key, clock::unix_seconds()).map_err(Failure::failed)?;
        // Spread over the period, so that the players do not all speak at once.
        let phase_ns = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) % send_every_ns;
        Ok(Self {
            client: Client::new(&token, now_ns).map_err(Failure::failed)?,
            source: LocalIp::v4(home.source_of(n).octets(), 0),
            send_every_ns,
            next_send_ns: now_ns + phase_ns,
            number: n,
            sent: 0,
            echoed: Received::new(),
            heard_ns: now_ns,
            silent_ns: 0,
        })
    }

    /// A payload that tells its number and its time.
    fn write_payload(
        &mut self,
        now_ns: u64,
        out: &mut [u8],
        pace: Pace,
    ) -> Option<(SocketAddr, usize)> {
        self.next_send_ns =
            (self.next_send_ns + self.send_every_ns).max(now_ns.saturating_sub(self.send_every_ns));
        let mut payload = [0; PAYLOAD_BYTES_MAX];
        let len = pace.len(self.sent);
        let (session, counter) = (self.number, self.sent);
        let stamp = Stamp { run: 0, session, counter, intended_ns: now_ns, late_ns: 0 };
        stamp.write(&mut payload[..len]);
        self.sent += 1;
        let (to, bytes) = self.client.write_payload(now_ns, &payload[..len], out).ok()?;
        Some((to, bytes.len()))
    }

    /// What an echo says, if it is of a payload of this player that had not come back yet.
    fn check_echo(number: u32, echoed: &mut Received, payload: &[u8]) -> Option<Stamp> {
        let stamp = Stamp::read(payload).filter(|stamp| stamp.session == number)?;
        let arrival = echoed.note(stamp.counter);
        matches!(arrival, Arrival::InOrder | Arrival::Reordered).then_some(stamp)
    }
}

/// The /16 that the players' addresses are in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home(pub(super) [u8; 2]);

impl Home {
    pub(super) const LOOPBACK: Self = Self([127, 2]);

    /// 250 players in each /24, from the first address on.
    fn source_of(self, n: u32) -> Ipv4Addr {
        Ipv4Addr::new(self.0[0], self.0[1], (n / 250) as u8, (n % 250) as u8 + 1)
    }

    fn index_of(self, local: LocalIp) -> Option<usize> {
        let IpAddr::V4(v4) = local.ip() else { return None };
        let [first, second, block, host] = v4.octets();
        let at = usize::from(block) * 250 + usize::from(host).checked_sub(1)?;
        (self.0 == [first, second]).then_some(at)
    }
}

/// How long the last echoes may take.
const STRAGGLERS_NS: u64 = 1_000_000_000;

/// Who has heard nothing for so long is lost.
const SILENCE_NS_MAX: u64 = 10_000_000_000;

/// Batches taken in before the players get a turn again, however many more have come.
const RECEIVES_MAX: usize = 16;

const TX_SLOTS: u16 = 256;
const ROUND_TRIP_NS_MAX: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_player_has_an_address_of_its_own_that_leads_back_to_it() {
        for n in [0, 1, 249, 250, 9_999] {
            let home = Home::LOOPBACK;
            let local = LocalIp::v4(home.source_of(n).octets(), 0);
            assert_eq!(home.index_of(local), Some(n as usize));
            assert_eq!(Home([127, 3]).index_of(local), None);
        }
    }

    #[test]
    fn an_echo_counts_once_and_for_its_player_alone() {
        let mut echoed = Received::new();
        let payload = |counter, session| {
            let mut payload = [0; 40];
            Stamp { run: 0, session, counter, intended_ns: 9, late_ns: 0 }.write(&mut payload);
            payload
        };
        let mut check = |counter, session| {
            Player::check_echo(7, &mut echoed, &payload(counter, session)).is_some()
        };
        let new = [1, 3, 2, 2, 3, 1].map(|counter| check(counter, 7));
        assert_eq!(new, [true, true, true, false, false, false]);
        assert!(!check(4, 8), "another player's");
        assert!(check(200, 7));
        assert!(!check(5, 7), "too old to be told from a duplicate");
    }
}

//! `ringgate echo --unreal`: stand-in Unreal servers over real sockets, which check what a gateway
//! in front of them does.
//!
//! Each address is a server of its own: its own secrets, its own session number, its own players,
//! found by source address as an engine finds them. They let in each player who has a cookie of
//! theirs, keep honest sequences and acknowledgements, send the bunches back, and count what must
//! not happen: a packet number that arrives twice, an acknowledgement that cannot be true. The sums
//! are printed at the end, one name and number per line, beside what the kernel dropped at the
//! sockets here.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::sockets::Sockets;
use crate::cli::{Failure, exit, signal};
use crate::config::values;
use ringgate_batch::Endpoint;
use ringgate_bots::unreal::{StandIn, Tally};
use ringgate_core::crypto::cookie::CookieMac;
use ringgate_core::drops::DropCounts;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::handshake::{Base, TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::prefix::{Framing, Layout, Magic};
use ringgate_core::secret::CookieSecret;
use ringgate_io::Choice;
use ringgate_os::clock::Clock;
use ringgate_report::text::Append as _;

/// What the servers are like.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct UnrealArgs {
    /// Unreal: the bits in front of every packet (net.MagicHeader), like 11011101
    #[arg(long, value_name = "BITS", default_value = "", value_parser = magic, conflicts_with_all = ["socket", "udp"])]
    magic: Magic,
    /// Unreal: handshake versions: 0 alone, 1 and 2, or 3 and 4
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [3, 4], conflicts_with_all = ["socket", "udp"])]
    versions: Vec<u8>,
    /// Unreal: no network features in handshake packets, as in some engines of versions 2 and 3
    #[arg(long, conflicts_with_all = ["socket", "udp"])]
    short_base: bool,
    /// Unreal: the build, as clients compare it (decimal or 0x…)
    #[arg(long, value_name = "N", default_value = "0x12345678", value_parser = network_version, conflicts_with_all = ["socket", "udp"])]
    network_version: u32,
    /// Unreal: players that each server has room for
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000), conflicts_with_all = ["socket", "udp"])]
    players: u32,
    /// Unreal: silence after which a player is gone
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = idle_timeout, conflicts_with_all = ["socket", "udp"])]
    idle_timeout: Duration,
}

pub(super) fn run(addresses: &[SocketAddr], args: &UnrealArgs) -> Result<(), Failure> {
    let mut sockets = Sockets::open(Choice::Auto, addresses).map_err(Failure::failed)?;
    let bell = sockets.bell();
    let stop = signal::stop_flag(move || bell.ring())?;
    let clock = Clock::start();
    let mut servers = Servers::open(args, addresses.len(), instant_ns(&clock))?;
    exit::print(&announcement(&sockets))?;
    while !stop.load(Ordering::Relaxed) {
        // One per turn: tails are there to be of random length, and keep no secret.
        let tail = draw_tail().map_err(Failure::failed)?;
        let now_ns = instant_ns(&clock);
        sockets
            .turn(TICK, |server, from, bytes, out| {
                servers.handle(server, now_ns, from, bytes, &tail, out)
            })
            .map_err(Failure::failed)?;
        servers.tick(now_ns, &mut sockets).map_err(Failure::failed)?;
    }
    exit::print(&servers.summary(sockets.kernel_drops()))
}

/// The servers of one process.
#[derive(Debug)]
struct Servers {
    stand_ins: Vec<StandIn>,
    refused: DropCounts,
    idle_timeout_ns: u64,
    next_tick_ns: u64,
}

impl Servers {
    fn open(args: &UnrealArgs, servers: usize, now_ns: u64) -> Result<Self, Failure> {
        let profile = profile(args).map_err(Failure::bad_input)?;
        let players = args.players as usize;
        let server = |_| {
            let ([session], secrets) = (random()?, [secret()?, secret()?]);
            Ok::<_, String>(StandIn::new(
                &profile,
                session,
                players,
                CookieMac::tag_once,
                secrets,
                now_ns,
            ))
        };
        let servers = (0..servers).map(server).collect::<Result<_, _>>();
        Ok(Self {
            stand_ins: servers.map_err(Failure::failed)?,
            refused: DropCounts::new(),
            idle_timeout_ns: args.idle_timeout.as_nanos() as u64,
            next_tick_ns: 0,
        })
    }

    fn handle(
        &mut self,
        server: usize,
        now_ns: u64,
        from: Endpoint,
        datagram: &[u8],
        tail: &Tail,
        out: &mut [u8],
    ) -> usize {
        let answer = self.stand_ins[server].handle_datagram(now_ns, from, datagram, tail, out);
        answer.unwrap_or_else(|why| {
            self.refused.bump(why);
            0
        })
    }

    /// What does not wait for datagrams: keep-alives, new secrets, players who are gone.
    fn tick(&mut self, now_ns: u64, sockets: &mut Sockets) -> Result<(), String> {
        if now_ns < self.next_tick_ns {
            return Ok(());
        }
        self.next_tick_ns = now_ns + TICK.as_nanos() as u64;
        let mut packet = [0; UNREAL_BYTES_MAX];
        for (index, server) in self.stand_ins.iter_mut().enumerate() {
            while let Some((to, len)) = server.poll_keep_alive(now_ns, &mut packet) {
                sockets.send(index, to, &packet[..len]);
            }
            server.close_idle(now_ns, self.idle_timeout_ns);
            let [draw] = random()?;
            server.handle_timeout(now_ns, secret()?, draw);
        }
        sockets.flush();
        Ok(())
    }

    fn summary(&self, kernel_drops: u64) -> String {
        let sum = |part: fn(&Tally) -> u64| self.stand_ins.iter().map(|s| part(&s.tally)).sum();
        let players: usize = self.stand_ins.iter().map(|server| server.connections().len()).sum();
        let rows: [(&str, u64); 16] = [
            ("players", players as u64),
            ("connections", sum(|tally| tally.connections)),
            ("restarts", sum(|tally| tally.restarts)),
            ("goodbyes", sum(|tally| tally.goodbyes)),
            ("idle", sum(|tally| tally.idle)),
            ("challenges", sum(|tally| tally.challenges)),
            ("acks", sum(|tally| tally.acks)),
            ("upgrades", sum(|tally| tally.upgrades)),
            ("restart_requests", sum(|tally| tally.restart_requests)),
            ("packets", sum(|tally| tally.packets)),
            ("echoes", sum(|tally| tally.echoes)),
            ("stifled", sum(|tally| tally.stifled)),
            ("duplicates", sum(|tally| tally.duplicates)),
            ("late", sum(|tally| tally.late)),
            ("implausible", sum(|tally| tally.implausible)),
            ("kernel_drops", kernel_drops),
        ];
        let mut text = String::new();
        for (name, count) in rows {
            writeln!(text, "{name} {count}");
        }
        for (reason, count) in self.refused.iter().filter(|(_, count)| *count > 0) {
            writeln!(text, "refused_{} {count}", reason.name());
        }
        text
    }
}

fn profile(args: &UnrealArgs) -> Result<Profile, String> {
    let (oldest, newest) = (args.versions.iter().min(), args.versions.iter().max());
    let (&oldest, &newest) = oldest.zip(newest).ok_or("--versions: at least one")?;
    let layout = match (oldest, newest) {
        (0, 0) => Layout::Original,
        (1.., ..=2) => Layout::Early,
        (3.., ..=4) => Layout::Versioned,
        _ => return Err("--versions: 0 alone, 1 and 2, or 3 and 4".into()),
    };
    let layout = if args.short_base { layout.short() } else { layout };
    let base = Base {
        version_min: oldest,
        version: newest,
        network_version: args.network_version,
        ..Base::default()
    };
    Ok(Profile { framing: Framing { magic: args.magic, layout }, client_id: 0, base })
}

fn announcement(sockets: &Sockets) -> String {
    let mut text = String::new();
    for address in sockets.addresses() {
        writeln!(text, "echo: unreal on {address}");
    }
    text
}

fn draw_tail() -> Result<Tail, String> {
    random::<{ TAIL_BYTES_MAX + 1 }>().map(|bytes| Tail::draw(&bytes))
}

fn secret() -> Result<CookieSecret, String> {
    random().map(CookieSecret::from_bytes)
}

fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|why| format!("no random numbers: {why}"))?;
    Ok(bytes)
}

/// Never zero, which would be no time in a cookie.
fn instant_ns(clock: &Clock) -> u64 {
    clock.now_ns() + NS_PER_S
}

fn magic(text: &str) -> Result<Magic, String> {
    Magic::from_text(text).ok_or_else(|| "at most 32 digits, each 0 or 1".into())
}

fn network_version(text: &str) -> Result<u32, String> {
    let number = values::number(text).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| format!("found {text:?}, expected a number of 32 bits"))
}

fn idle_timeout(text: &str) -> Result<Duration, String> {
    values::time_within(text, values::LASTING, "a time like 30s")
}

/// An engine's server does these things once per frame.
const TICK: Duration = Duration::from_millis(20);

const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn args(versions: &[u8]) -> UnrealArgs {
        UnrealArgs {
            magic: Magic::NONE,
            versions: versions.to_vec(),
            short_base: false,
            network_version: 7,
            players: 2,
            idle_timeout: Duration::from_secs(30),
        }
    }

    #[test]
    fn versions_name_a_layout_or_are_refused() {
        let of = |versions: &[u8]| profile(&args(versions)).map(|profile| profile.base);
        let base = |version_min, version| Base {
            version_min,
            version,
            network_version: 7,
            ..Base::default()
        };
        assert_eq!(of(&[4, 3]), Ok(base(3, 4)));
        assert_eq!(of(&[3]), Ok(base(3, 3)));
        assert_eq!(of(&[0]), Ok(base(0, 0)));
        assert_eq!((of(&[2, 1]), of(&[1])), (Ok(base(1, 2)), Ok(base(1, 1))));
        for wrong in [&[][..], &[0, 3], &[2, 3], &[3, 5], &[0, 1]] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_refused_is_in_the_summary_by_name() {
        let mut servers = Servers::open(&args(&[3, 4]), 2, NS_PER_S).expect("random numbers");
        let tail = draw_tail().expect("random numbers");
        let from = Endpoint::v4([127, 0, 0, 1], 5);
        let mut out = [0; UNREAL_BYTES_MAX];
        assert_eq!(servers.handle(1, NS_PER_S, from, &[1, 2, 0], &tail, &mut out), 0);
        let summary = servers.summary(3);
        assert!(summary.contains("refused_unreal_end 1\n"), "{summary}");
        assert!(summary.contains("kernel_drops 3\n") && summary.contains("duplicates 0\n"));
    }
}

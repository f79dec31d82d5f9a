//! The addresses of a gateway, taken before anything else is touched: whoever serves there already
//! keeps every payload.
//!
//! Workers share a port (`SO_REUSEPORT`), and the kernel would let a second gateway of the same
//! user join them and take half of the players. So the first socket of each address is bound
//! *without* sharing: the kernel refuses that as long as any socket overlaps, wildcards and
//! dual-stack ones included, in one step that nobody can come between. Only then is the port shared
//! with the other workers' sockets. A second gateway's first socket is not shared either, so it is
//! refused; no file says so that could be left behind, differ, or be made by another user.
//!
//! A process that was killed while it used io_uring leaves sockets behind for some tens of
//! milliseconds, in which the kernel takes its ring apart. Those have no owner, and are waited for.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::{Kept, Plan, sockets};
use ringgate_gate::ListenerId;
use ringgate_io::StartError;
use ringgate_io::socket::{self, UdpSocket};
use ringgate_os::clock::{self, Clock};
use ringgate_os::diag::Transport;
use ringgate_os::owners::{Holder, holder, living};

/// Addresses that this process alone holds.
#[derive(Debug)]
pub struct Ports {
    /// The first worker's sockets for players, by listener and by the position of their address.
    pub(super) players: Vec<Vec<UdpSocket>>,
    /// More of them, for other workers.
    pub(super) kept: Kept,
}

impl Ports {
    /// Takes every address of a plan, and sees that `admin` is free too. The error names who holds
    /// one of them. Sockets that were kept are used.
    pub fn claim(
        plan: &Plan,
        admin: Option<SocketAddr>,
        kept: &mut Kept,
    ) -> Result<Self, StartError> {
        let clock = Clock::start();
        let mut has_said = false;
        loop {
            let Taken { why, holder, advice } = match try_claim(plan, admin, kept) {
                Ok(players) => return Self::complete(plan, players, std::mem::take(kept)),
                Err(taken) => *taken,
            };
            let patience = match &holder {
                Some(Holder::Unknown { all_seen: true, .. }) => ORPHAN_PATIENCE,
                Some(Holder::Unknown { all_seen: false, .. }) => STRANGER_PATIENCE,
                // Gone since it was in the way.
                None if why.is_in_use() => STRANGER_PATIENCE,
                Some(Holder::Process(_) | Holder::Ourselves) | None => Duration::ZERO,
            };
            if clock.now_ns() >= patience.as_nanos() as u64 {
                return Err(match holder {
                    Some(holder) => why.advised(format!("{holder}: {advice}")),
                    None => why,
                });
            }
            if !has_said {
                has_said = true;
                tracing::info!("waiting for who holds it to let go: cannot {}", why.operation());
            }
            clock::sleep(TRY_AGAIN_AFTER);
        }
    }

    /// What was bound, with the ports that the kernel has chosen.
    pub(super) fn addresses(&self) -> Vec<Vec<SocketAddr>> {
        let locals = |sockets: &Vec<UdpSocket>| sockets.iter().map(|it| it.local).collect();
        self.players.iter().map(locals).collect()
    }

    /// With the first socket of each address that was kept.
    fn complete(
        plan: &Plan,
        players: Vec<Vec<Option<UdpSocket>>>,
        mut kept: Kept,
    ) -> Result<Self, StartError> {
        let mut all = Vec::with_capacity(players.len());
        for (at, (binds, sockets)) in plan.binds.iter().zip(players).enumerate() {
            let mut complete = Vec::with_capacity(sockets.len());
            for (address, socket) in binds.iter().zip(sockets) {
                let mut taken =
                    || sockets::take_kept(plan, ListenerId::at(at), *address, &mut kept);
                complete.push(match socket {
                    Some(socket) => socket,
                    None => taken()?.expect("it was left out because there is one"),
                });
            }
            all.push(complete);
        }
        Ok(Self { players: all, kept })
    }
}

/// Takes the addresses that no socket was kept of.
fn try_claim(
    plan: &Plan,
    admin: Option<SocketAddr>,
    kept: &Kept,
) -> Result<Vec<Vec<Option<UdpSocket>>>, Box<Taken>> {
    let mut players = Vec::with_capacity(plan.binds.len());
    for (at, binds) in plan.binds.iter().enumerate() {
        let filter = sockets::filter_of(plan, ListenerId::at(at));
        let open = |address: &SocketAddr| {
            if kept.has(*address) {
                return Ok(None);
            }
            let may_fragment = plan.setup.listeners[ListenerId::at(at)].may_fragment();
            let options = ringgate_io::player_options(filter.as_ref(), may_fragment);
            let opened = open_alone(*address, true, |alone| {
                let options = socket::UdpOptions { reuse_port: !alone, ..options };
                socket::player(*address, &options)
            });
            opened.map(Some)
        };
        players.push(binds.iter().map(open).collect::<Result<Vec<_>, _>>()?);
    }
    admin.map(refuse_operator).transpose()?;
    for path in plan.link_paths() {
        refuse_neighbour(&path)?;
    }
    Ok(players)
}

/// An address that could not be taken.
pub(super) struct Taken {
    pub(super) why: StartError,
    pub(super) holder: Option<Holder>,
    /// What can be done about it.
    pub(super) advice: &'static str,
}

/// Binds a socket that nobody overlaps, and then lets others of ours join it. A wildcard and one of
/// its addresses may both be ours (`may_be_ours`): then the kernel's own table says that they are
/// all that is there.
pub(super) fn open_alone(
    address: SocketAddr,
    may_be_ours: bool,
    open: impl Fn(bool) -> Result<UdpSocket, StartError>,
) -> Result<UdpSocket, Box<Taken>> {
    let opened = match open(true) {
        Err(why) if why.is_in_use() => match holder(Transport::Udp, address) {
            Some(Holder::Ourselves) if may_be_ours => open(false),
            holder => return Err(Box::new(Taken { why, holder, advice: ADVICE })),
        },
        opened => opened,
    };
    let shared = opened.and_then(|opened| {
        socket::share_port(&opened)?;
        Ok(opened)
    });
    shared.map_err(|why| Box::new(Taken { why, holder: None, advice: ADVICE }))
}

/// Whether the address for operators, which is bound later, can be.
fn refuse_operator(address: SocketAddr) -> Result<(), Box<Taken>> {
    socket::can_listen(address).map_err(|error| {
        let why = StartError::bind(format!("serve the admin address {address}"), error);
        let holder = why.is_in_use().then(|| holder(Transport::TcpListening, address)).flatten();
        Box::new(Taken { why, holder, advice: ADMIN_ADVICE })
    })
}

/// Whether somebody listens for game processes where we want to.
fn refuse_neighbour(path: &Path) -> Result<(), Box<Taken>> {
    let Some(peer) = socket::listening_at(path) else { return Ok(()) };
    let process = u32::try_from(peer.pid).ok().filter(|pid| *pid > 0).and_then(living);
    let all_seen = peer.pid > 0;
    let unknown = Holder::Unknown { uid: Some(peer.uid), all_seen };
    let holder = Some(process.map_or(unknown, Holder::Process));
    let why = StartError::neighbour(path);
    Err(Box::new(Taken { why, holder, advice: ADVICE }))
}

const ADVICE: &str = "a second gateway would take its players; stop that one, or use other addresses and another run_dir";

const ADMIN_ADVICE: &str = "stop that one, or give `bind` of [admin] another port";

/// For a dead process's sockets. The kernel takes a ring apart in tens of milliseconds; a machine
/// under load in more.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(5);

/// For sockets of which we may not know whose they are.
const STRANGER_PATIENCE: Duration = Duration::from_secs(2);

/// Each try knocks at the sockets of links, and a dead process's keep all who knock in their
/// queues: one that is full would be taken for one that nobody has.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(50);
const _: () = assert!(
    ORPHAN_PATIENCE.as_millis() / TRY_AGAIN_AFTER.as_millis() < socket::LISTEN_BACKLOG as u128
);

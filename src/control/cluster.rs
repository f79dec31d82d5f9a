//! The gateways that share addresses with this one: what the config and the fleet say of them goes
//! to the thread that connects to them, and how that stands goes to the pages.

#[cfg(feature = "fleet")]
mod known;
mod players;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde::Serialize;

use super::NS_PER_MS;
use super::view::Snapshot;
use crate::config::{self, Config, member_name};
use ringgate_gate::{Claims, StandbyCounts, TakeoverRefusal};
use ringgate_os::clock::Clock;
use ringgate_process::object;
use ringgate_process::pages::Maybe;
use ringgate_trunk::peers::{MemberShown, Peers, Settings, Shown, State, Window};
use ringgate_trunk::protocol::tls::Peer;
use ringgate_trunk::socket::Door;
use ringgate_worker::Fleet;

use players::{OfFleet, Places};

/// The control thread's end. Without `[cluster]` there is nothing of it.
#[derive(Default)]
pub(super) struct Cluster {
    own: Option<Own>,
}

struct Own {
    name: String,
    cluster: String,
    peers: Peers,
    /// Bound, and not served yet.
    door: Option<Door>,
    places: Arc<Places>,
    /// When an address that another process has is given up.
    patient_until_ns: u64,
}

/// How it stands with a cluster, as its pages show it.
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) shown: Shown,
    /// Which of the cluster's processes this one is, once that is known.
    pub(super) incarnation: Option<u16>,
    pub(super) sessions: StandbyCounts,
}

impl Seen {
    pub(super) fn of(window: &Window, claims: &Claims) -> Self {
        let standbys = claims.standbys();
        Self {
            name: window.cluster().to_owned(),
            shown: window.shown(),
            incarnation: standbys.and_then(|it| it.incarnation()).map(|it| it.0),
            sessions: standbys.map(|it| it.counts()).unwrap_or_default(),
        }
    }
}

/// What does not fit together with each member, by name.
pub(super) type Misfits = BTreeMap<String, Vec<String>>;

impl Cluster {
    /// Binds where the others connect. A successor does that later ([`Self::tick`]): the process
    /// before it still listens. The error is one sentence.
    pub(super) fn open(
        config: &Config,
        incarnation: u64,
        clock: Clock,
        is_successor: bool,
    ) -> Result<Self, String> {
        let (Some(cluster), Some(fleet)) = (&config.cluster, &config.fleet) else {
            return Ok(Self::default());
        };
        let name = member_name(fleet)?;
        let settings = Settings {
            cluster: cluster.name.clone(),
            name: name.clone(),
            bind: cluster.bind,
            incarnation,
            clock,
        };
        let failed = |why: &dyn std::fmt::Display| format!("[cluster]: {why}");
        let identity = made(cluster, &name).map_err(|why| failed(&why))?;
        let peers = Peers::new(settings, identity).map_err(|why| failed(&why))?;
        let bound = if is_successor { None } else { Some(peers.open()) };
        let door = bound.transpose().map_err(|why| {
            format!("cannot listen for members of the cluster on {}: {why}", cluster.bind)
        })?;
        let patient_until_ns = clock.now_ns() + PATIENCE_NS;
        let cluster = cluster.name.clone();
        let places = Arc::default();
        Ok(Self { own: Some(Own { name, cluster, peers, door, places, patient_until_ns }) })
    }

    /// Gives the sockets to the user that the process is about to become.
    pub(super) fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        let door = self.own.as_ref().and_then(|own| own.door.as_ref());
        door.map_or(Ok(()), |door| door.give_to(uid, gid))
    }

    /// Shows members to the pages.
    pub(super) fn window(&self) -> Option<Window> {
        self.own.as_ref().map(|own| own.peers.window())
    }

    /// Serves what was opened; where it is a successor's, tries to.
    pub(super) fn tick(&mut self, now_ns: u64, fleet: &Fleet) {
        let Some(own) = &mut self.own else { return };
        if own.peers.is_started() {
            return;
        }
        if now_ns >= own.patient_until_ns {
            // Nobody is told of players, and what would be told does not pile up.
            if let Some(whereabouts) = fleet.claims().whereabouts() {
                whereabouts.take_changes(usize::MAX, |_, _| {});
            }
            return;
        }
        let started = match own.door.take().map_or_else(|| own.peers.open(), Ok) {
            Ok(door) => own.start(door, fleet),
            Err(why) if now_ns + AGAIN_NS >= own.patient_until_ns => Err(why),
            Err(_) => return,
        };
        if let Err(why) = started {
            own.patient_until_ns = now_ns;
            tracing::error!(event = "cluster_failed", "cannot serve the cluster: {why}");
        }
    }

    /// Makes what a config that was read again asks for.
    pub(super) fn prepare(&self, config: &Config) -> Result<Option<Peer>, Vec<String>> {
        let both = config.cluster.as_ref().zip(self.own.as_ref());
        let made = both.map(|(cluster, own)| made(cluster, &own.name)).transpose();
        made.map_err(|why| vec![format!("[cluster]: {why}")])
    }

    /// Carries it out.
    pub(super) fn adopt(&self, identity: Option<Peer>, fleet: &Fleet) {
        let Some(own) = &self.own else { return };
        own.places.follow(fleet);
        if let Some(identity) = identity {
            own.peers.set_identity(identity);
        }
    }

    /// Ends all connections.
    pub(super) fn stop(&mut self) {
        if let Some(own) = &mut self.own {
            own.peers.stop();
        }
    }
}

impl Own {
    /// Connects to the others, and tells them of the players that workers have.
    fn start(&mut self, door: Door, fleet: &Fleet) -> io::Result<()> {
        self.places.follow(fleet);
        let players = OfFleet::new(fleet, &self.places);
        let players = players.ok_or_else(|| io::Error::other("no worker knows of the cluster"))?;
        if let Some(departures) = fleet.departures() {
            departures.ring(self.peers.bell());
        }
        self.peers.start(door, players)
    }
}

/// Who a member is to the others, if its certificate says so.
fn made(cluster: &config::Cluster, member: &str) -> Result<Peer, String> {
    let (name, is_for) = cluster.certified_name(member);
    if is_for {
        cluster.identity().peer()
    } else {
        Err(format!("its certificate is not for {name}"))
    }
}

/// What an operator wants to see confirmed of a reload.
pub(super) fn changes(old: &Config, new: &Config) -> Vec<String> {
    let identity = |config: &Config| config.cluster.as_ref().map(config::Cluster::identity);
    let differs = identity(old) != identity(new);
    differs.then(|| "cluster: certificates".to_owned()).into_iter().collect()
}

/// The cluster as `/status` shows it.
pub(super) fn on_status<'a>(snapshot: &'a Snapshot<'_>) -> Option<impl Serialize + use<'a>> {
    let Seen { name, shown, incarnation, sessions } = snapshot.cluster.as_ref()?;
    let refused = TakeoverRefusal::ALL.map(|why| (why.name(), sessions.refused[why as usize]));
    Some(object! {
        name: name.as_str(),
        // Which of the cluster's processes this one is: without it nobody goes on with its
        // sessions.
        incarnation: Maybe(*incarnation),
        sessions: object! {
            // Those here that another member could go on with, and those of others likewise.
            owned: sessions.owned,
            standing_by: sessions.standing,
            taken_over: sessions.taken_over,
            // Of those, the ones whose gateways lived and had given them away.
            moved: sessions.moved,
            // Those that another member has gone on with.
            fenced: sessions.fenced,
            // Those that began here though another member had one of their players.
            second: sessions.second,
            // Those that no other member could go on with, because the agent had no room.
            alone: sessions.alone,
            // Those that have ended without their agent being told: too many waited for it.
            ends_untold: sessions.ends_untold,
            not_taken_over: refused.into_iter().filter(|it| it.1 > 0).collect::<BTreeMap<_, _>>(),
        },
        address: Maybe(shown.address),
        members: shown.members.iter().map(|it| member(snapshot, it)).collect::<Vec<_>>(),
        refused: &shown.refused,
        // Datagrams for members that were gone.
        not_connected: shown.not_connected,
    })
}

fn member<'a>(snapshot: &'a Snapshot<'_>, shown: &'a MemberShown) -> impl Serialize + use<'a> {
    let up_ns = snapshot.now_ns.saturating_sub(shown.since_ns);
    let misfits = snapshot.live.misfits.get(&shown.name);
    object! {
        name: shown.name.as_str(),
        state: shown.state.name(),
        // Whether the fleet knows of it.
        registered: shown.is_known,
        peer: Maybe(shown.peer),
        up_s: if shown.state == State::Up { up_ns / (1000 * NS_PER_MS) } else { 0 },
        connections: shown.connections,
        // Whether it says which players it has: to one that does not nothing is forwarded.
        forwards: shown.speaks.is_some(),
        // Whether all of its players are known here.
        complete: shown.has_told_all,
        players: shown.players,
        // Whether it can go on with sessions of ours, and for how many it stands by.
        can_stand_by: shown.can_stand_by,
        stands_by: shown.stands_by,
        silences: shown.silences,
        forwarded_in: shown.forwarded[0],
        forwarded_out: shown.forwarded[1],
        dropped: &shown.dropped,
        round_trip_us: Maybe(shown.round_trip_ns.map(|ns| ns / 1000)),
        last_end: Maybe(shown.last_end.as_ref().map(|(_, why)| why.as_str())),
        // What does not fit together, one sentence each.
        misfits: misfits.map_or(&[][..], Vec::as_slice),
    }
}

/// As long as the process before this one may take to let its address go.
const PATIENCE_NS: u64 = 10_000 * NS_PER_MS;
const AGAIN_NS: u64 = 100 * NS_PER_MS;

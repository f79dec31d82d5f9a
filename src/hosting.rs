//! An agent as a member of its fleet: it registers itself and the game processes behind it, looks
//! whether they are well, and finds the gateways that it connects to. An agent whose file has no
//! `[fleet]` has nothing of this.
//!
//! `gateways` says which gateways to connect to and `wellness` what becomes of answers; neither
//! touches anything. `probe` asks game processes, `agones` the SDK server beside one, both over
//! `http`. `member` has the tasks that speak with etcd, and `handed` what a process has to know
//! that takes the agent over while it runs. What the next start has to know of the registration
//! (`crate::membership::leases`) and the door to which game processes come that register themselves
//! (`crate::membership::announced`) are a gateway's as well.

mod agones;
mod gateways;
mod handed;
mod http;
mod member;
mod probe;
mod wellness;

use std::net::SocketAddr;
use std::path::PathBuf;

use ringgate_fleet::etcd::Client;
use ringgate_fleet::keyspace::{Keyspace, Name};
use ringgate_os::process;
use ringgate_trunk::agent::options::{self, Backend as GuestBackend, Gateway};

use crate::config::hosted::Hosted;
use crate::config::{self, Allowed, Backend, Fleet, HostConfig, Link};
use crate::membership::leases::LEASES_FILE;
use crate::membership::{COPY_FILE, Door, Rules};
use handed::Beginning;
pub use handed::Heirloom;
pub use member::{Member, Resting, Shown, Status};

/// What an agent's membership is told. To be made before the agent starts.
pub struct Prepared {
    client: Client,
    settings: Settings,
    /// Game processes of the file that the agent registers.
    hosted: Vec<(String, u32, Hosted)>,
    /// Where others register themselves.
    door: Option<Door>,
    /// What another process had.
    begins: Option<Beginning>,
}

/// What a file says that is read again while the agent runs.
#[derive(Debug)]
pub struct Update {
    /// Game processes that the agent registers.
    hosted: Vec<(String, u32, Hosted)>,
    /// Names that nobody who comes may have.
    taken: Vec<String>,
    gateways: Vec<Gateway>,
    regions: Vec<Name>,
    max_gateways: usize,
    /// Who may come to local workers under a name of its own.
    rules: Rules,
}

impl Update {
    /// What the file says of the agent's place in its fleet.
    pub fn of(config: &HostConfig, fleet: &Fleet) -> Self {
        let rows = || config.backends.iter().zip(&config.hosted);
        let registered = |(backend, hosted): (&Backend, &Option<Hosted>)| {
            Some((backend.name.clone(), backend.slots, hosted.clone()?))
        };
        let is_taken = |(backend, hosted): &(&Backend, &Option<Hosted>)| {
            hosted.is_some() || matches!(backend.link, Link::Udp(_))
        };
        let regions = match config.agent.regions.as_slice() {
            [] => vec![fleet.region.clone()],
            regions => regions.to_vec(),
        };
        Self {
            hosted: rows().filter_map(registered).collect(),
            taken: rows().filter(is_taken).map(|(it, _)| it.name.clone()).collect(),
            gateways: config.agent.gateways.clone(),
            regions,
            max_gateways: config.agent.max_gateways,
            rules: Rules::of(fleet, process::effective_uid()),
        }
    }
}

/// What an agent is told in its fleet. Gateways, regions and names change with its file.
#[derive(Clone, Debug)]
struct Settings {
    keyspace: Keyspace,
    /// The agent's own.
    name: Name,
    region: Name,
    host: Name,
    /// Random, for each start.
    instance: u64,
    lease_s: i64,
    copy: PathBuf,
    /// Where the leases of the last start are.
    leases: PathBuf,
    /// Those of the file.
    gateways: Vec<Gateway>,
    /// Regions whose gateways are of interest.
    regions: Vec<Name>,
    max_gateways: usize,
    /// Names that nobody who comes may have.
    taken: Vec<String>,
    /// Who may come to local workers under a name of its own.
    rules: Rules,
}

impl Prepared {
    /// Reads the files that the config names. `None` for an agent without a fleet. The error is one
    /// sentence.
    pub fn of(config: &HostConfig, instance: u64) -> Result<Option<Self>, String> {
        let Some(fleet) = &config.fleet else { return Ok(None) };
        let client = Client::new(fleet.options()).map_err(|why| format!("[fleet]: {why}"))?;
        let agent = &config.agent;
        let name = Name::new(&agent.name)
            .ok_or_else(|| format!("agent {:?}: no name that the fleet takes", agent.name))?;
        let Update { hosted, taken, gateways, regions, max_gateways, rules } =
            Update::of(config, fleet);
        let settings = Settings {
            keyspace: fleet.prefix.clone(),
            name,
            region: fleet.region.clone(),
            host: fleet.host_name()?,
            instance,
            lease_s: i64::try_from(fleet.lease.as_secs()).unwrap_or(i64::MAX),
            copy: agent.state_dir.join(COPY_FILE),
            leases: agent.state_dir.join(LEASES_FILE),
            gateways,
            regions,
            max_gateways,
            taken,
            rules,
        };
        Ok(Some(Self { client, settings, hosted, door: None, begins: None }))
    }

    /// Has game processes register themselves at this socket.
    pub fn serve_announcements(&mut self, socket: std::os::fd::OwnedFd) {
        self.door = Some(Door::new(socket));
    }

    /// Whether they can.
    pub const fn serves_announcements(&self) -> bool {
        self.door.is_some()
    }

    /// Which fleet this is.
    pub fn prefix(&self) -> String {
        self.settings.prefix()
    }

    /// Goes on with what another process had.
    pub fn inherit(&mut self, heirloom: Heirloom) -> Result<(), String> {
        let hosted = std::mem::take(&mut self.hosted);
        let (begins, door) =
            Beginning::inherit(&self.settings, hosted, heirloom).map_err(|what| {
                format!("what the running agent says of the fleet cannot be read: {what}")
            })?;
        (self.begins, self.door) = (Some(begins), door);
        Ok(())
    }

    /// Game processes that have come to another process by themselves, and are none of these.
    pub fn guests(&self, own: &[GuestBackend]) -> Vec<GuestBackend> {
        let is_own = |name: &str| own.iter().any(|backend| backend.name == name);
        let book = self.begins.iter().map(|it| &it.book);
        let names = book.flat_map(|book| member::guests(book, is_own));
        names.map(|(name, uid)| self.settings.guest(name, uid)).collect()
    }

    /// The gateways that another process was connected to, or was about to; `None` where it had not
    /// chosen any.
    pub fn gateways(&self) -> Option<&[Gateway]> {
        self.begins.as_ref()?.wanted.as_deref()
    }
}

impl Settings {
    fn prefix(&self) -> String {
        String::from_utf8_lossy(&self.keyspace.truth()).into_owned()
    }

    /// One that has come by itself, as local workers know it. Another user's process is not to come
    /// in its place.
    fn guest(&self, name: &str, uid: Option<u32>) -> GuestBackend {
        let ringgate_gate::Allowed { uids, gids } = match uid {
            Some(uid) => ringgate_gate::Allowed { uids: vec![uid], gids: Vec::new() },
            None => self.rules.allowed.clone(),
        };
        let link = options::Link::Bundle(options::Allowed { uids, gids });
        GuestBackend { name: name.to_owned(), link }
    }
}

#[cfg(test)]
impl Settings {
    /// Those of an agent that has no backend of its own, for tests.
    fn example() -> Self {
        let name = |text| Name::new(text).expect("a name");
        Self {
            keyspace: Keyspace::new("/f").expect("a prefix"),
            name: name("host-7"),
            region: name("eu"),
            host: name("here"),
            instance: 1,
            lease_s: 10,
            copy: "/nowhere".into(),
            leases: "/nowhere".into(),
            gateways: Vec::new(),
            regions: vec![name("eu")],
            max_gateways: 8,
            taken: Vec::new(),
            rules: Rules { max: 9, ..Rules::default() },
        }
    }
}

ringgate_core::shown_by!(Prepared { settings });

/// The game processes of an agent's file, as local workers know them.
pub fn backends(config: &HostConfig) -> Vec<GuestBackend> {
    let own = process::effective_uid();
    config.backends.iter().map(|it| backend(it, own)).collect()
}

fn backend(backend: &Backend, own: u32) -> GuestBackend {
    let link = match &backend.link {
        config::Link::Udp(SocketAddr::V4(address)) => options::Link::Udp(*address),
        config::Link::Udp(SocketAddr::V6(_)) => unreachable!("the config was checked"),
        // As at a gateway: nobody in particular means who runs the agent.
        config::Link::Bundle(Allowed { uids, gids }) if uids.is_empty() && gids.is_empty() => {
            let allowed = options::Allowed { uids: vec![own], gids: Vec::new() };
            options::Link::Bundle(allowed)
        }
        config::Link::Bundle(Allowed { uids, gids }) => {
            options::Link::Bundle(options::Allowed { uids: uids.clone(), gids: gids.clone() })
        }
    };
    GuestBackend { name: backend.name.clone(), link }
}

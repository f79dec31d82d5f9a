//! A fleet that is made of another process's: its sockets, its clock, and what its workers know.
//!
//! In two steps, because players wait during the second only: [`Heir::prepare`] makes everything
//! that can be made before, [`Heir::import`] builds the workers from what was given. They do not
//! turn until [`Fleet::set_off`]: up to then the other process may take everything back.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::counted::Counted;
use super::thread::{Parts, Worker};
use super::{Fleet, Plan, Start, find_memory, sockets, with_ports};
use crate::handover::{Facts, Given, SocketRow};
use ringgate_batch::{Driver, Port, SocketId};
use ringgate_core::crypto::Aead;
use ringgate_gate::handover::{Format, Import, SharedImport};
use ringgate_gate::{
    Allowed, Backend, Claims, Denied, LinkKind, Now, Seed, Setup, WorkerId, WorkerIndex,
};
use ringgate_io::{AnyDriver, SocketKind};
use ringgate_os::clock::{self, Clock};
use ringgate_os::memory;

/// What a successor has made before anybody waits for it.
pub struct Heir<'a> {
    start: Start<'a>,
    drivers: Vec<AnyDriver>,
    predecessor: Format,
    layout_bytes: usize,
}

/// Memory with keys, as it came.
type Stream = Zeroizing<Vec<u8>>;

/// The state and the sockets of a predecessor.
pub struct Estate {
    /// What there is, in rows.
    pub given: Given,
    /// A descriptor for each row.
    pub fds: Vec<OwnedFd>,
    /// What the workers share.
    pub shared: Stream,
    /// What each worker knows.
    pub workers: Vec<Stream>,
    /// Who may not play.
    pub denied: Denied,
}

/// What has become of the sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// That go on.
    pub sessions: usize,
    /// That do not, because this config has no such backend.
    pub not_carried: u64,
}

impl<'a> Heir<'a> {
    /// Compares what the predecessor has with what this process is to have, and makes drivers.
    /// `layout` is the beginning of the shared stream.
    pub fn prepare(plan: &'a Plan, facts: &Facts, layout: &[u8]) -> Result<Self, String> {
        let read = Format::read(layout).map_err(|why| why.to_string());
        let (predecessor, layout_bytes) = read?;
        let addresses = addresses(plan, facts)?;
        let mut setup = with_ports(&plan.setup, &addresses);
        setup.incarnation = predecessor.incarnation;
        keep_retired(&mut setup, facts);
        let setup = Arc::new(setup);
        let ours = Format::of(&setup, plan.workers, clock::boot_id());
        ours.compatible(&predecessor)?;
        find_memory(plan).map_err(|why| why.to_string())?;
        let clock = Clock::since(facts.epoch_ns);
        // Replaced by what the predecessor's workers have agreed on.
        let claims = Arc::new(Claims::new(0, &[], setup.claim_limits()));
        let mut start = Start::with(plan, setup, claims, clock, addresses);
        if let Some(run_dir) = &plan.run_dir {
            start.link_paths =
                (0..plan.workers).map(|at| sockets::link_path(run_dir, at)).collect();
        }
        let drivers = (0..plan.workers).map(|_| start.driver()).collect::<Result<_, _>>();
        let drivers = drivers.map_err(|why| why.to_string())?;
        Ok(Self { start, drivers, predecessor, layout_bytes })
    }

    /// Workers that know what the predecessor's did, on its sockets. They do not turn yet.
    pub fn import(mut self, estate: Estate) -> Result<(Fleet, Inheritance), String> {
        let Estate { given, fds, shared, workers, denied } = estate;
        let setup = Setup::clone(&self.start.setup);
        self.start.setup = Arc::new(Setup { denied: Arc::new(denied), ..setup });
        self.start.claims = self.import_shared(&shared)?;
        if workers.len() != self.drivers.len() || given.sockets.len() != fds.len() {
            return Err("what was given is not what was announced".to_owned());
        }
        let mut rows: Vec<_> = given.sockets.into_iter().zip(fds).collect();
        // Those of listeners in the order of their addresses.
        rows.sort_by_key(|(row, _)| (row.worker, row.kind, row.player));
        let mut imports = Vec::new();
        let drivers = std::mem::take(&mut self.drivers);
        for (index, (mut driver, stream)) in drivers.into_iter().zip(workers).enumerate() {
            let index = index as u16;
            let mine = rows.extract_if(.., |(row, _)| row.worker == index);
            let sockets = adopt(&mut driver, mine)?;
            let import = self.import_worker(index, &stream, &sockets)?;
            imports.push((import, driver, sockets));
        }
        for (import, ..) in &mut imports {
            import.settle();
        }
        let mut inheritance = Inheritance::default();
        let mut ready = Vec::new();
        for (index, (import, mut driver, sockets)) in imports.into_iter().enumerate() {
            let finished = import.finish(self.now()).map_err(|why| why.to_string());
            let (mut gate, arrived) = finished?;
            inheritance.sessions += arrived.sessions;
            inheritance.not_carried += arrived.not_carried;
            if gate.udp_link().is_none() && self.start.plan.has_udp(&self.start.setup) {
                let link = driver.open(&Port::UdpLink).map_err(|why| why.to_string())?;
                gate.bind_udp_link(link);
            }
            let players = sockets.iter().filter(|(row, _)| row.player.is_some());
            let players = players.map(|(_, id)| *id).collect();
            let counted = given.counted.get(index).map_or(&[][..], Vec::as_slice);
            let counted = Counted::of(counted);
            let parts = Parts { index: index as u16, driver, gate, players, counted };
            let mut worker = Worker::new(parts, self.start.clock, self.start.plan.spin);
            // Whoever looks before its first turn should see that counters go on.
            worker.publish();
            ready.push(worker);
        }
        Ok((self.start.ready(ready), inheritance))
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.start.clock.now_ns(), unix_s: clock::unix_seconds() }
    }

    fn import_shared(&self, stream: &[u8]) -> Result<Arc<Claims>, String> {
        let stream = stream.get(self.layout_bytes..).unwrap_or_default();
        let mut import = SharedImport::new(Arc::clone(&self.start.setup));
        let taken = import.take(stream).map_err(|why| why.to_string())?;
        if taken < stream.len() {
            return Err(CUT_OFF.to_owned());
        }
        import.finish().map_err(|why| why.to_string())
    }

    fn import_worker(
        &self,
        index: u16,
        stream: &[u8],
        sockets: &[(SocketRow, SocketId)],
    ) -> Result<Import, String> {
        let fail = |why: &dyn ToString| format!("worker {index}: {}", why.to_string());
        let Start { plan, setup, claims, .. } = &self.start;
        let ours = Format::of(setup, plan.workers, clock::boot_id());
        let mut maps = ours.compatible(&self.predecessor)?;
        maps.sockets = sockets.iter().map(|(row, id)| (row.id, id.0)).collect();
        let worker = WorkerIndex { id: WorkerId(index), count: plan.workers };
        let aead = Aead::from_env().map_err(|why| fail(&why))?;
        let seed = Seed::generate().map_err(|why| fail(&why))?;
        let (setup, claims) = (Arc::clone(setup), Arc::clone(claims));
        let begun = Import::begin(stream, setup, worker, claims, aead, seed, maps, self.now());
        let (mut import, start) = begun.map_err(|why| fail(&why))?;
        for table in import.gate_mut().large_tables() {
            let _ = memory::prefer_huge_pages(&table);
        }
        let taken = import.take(&stream[start..]).map_err(|why| fail(&why))?;
        if start + taken < stream.len() {
            return Err(fail(&CUT_OFF));
        }
        Ok(import)
    }
}

/// Registers what a worker gets. Returns its rows with the numbers that its sockets have now.
fn adopt(
    driver: &mut AnyDriver,
    rows: impl Iterator<Item = (SocketRow, OwnedFd)>,
) -> Result<Vec<(SocketRow, SocketId)>, String> {
    rows.map(|(row, fd)| {
        let kind = sockets::kind_of(row.kind).ok_or("there is a socket of an unknown kind")?;
        is_such(&fd, kind)?;
        let id =
            driver.register(fd, kind).map_err(|why| format!("cannot adopt a socket: {why}"))?;
        Ok((row, id))
    })
    .collect()
}

/// Whether a descriptor is what it is said to be: a driver that waits for what never blocks would
/// turn for ever, and one that blocks would never turn.
fn is_such(fd: &OwnedFd, kind: SocketKind) -> Result<(), String> {
    let socket = socket2::SockRef::from(fd);
    let wanted = match kind {
        SocketKind::Datagram | SocketKind::ConnectedDatagram => socket2::Type::DGRAM,
        SocketKind::Link | SocketKind::LinkListener => socket2::Type::SEQPACKET,
    };
    let is_such = socket.r#type().is_ok_and(|found| found == wanted);
    let set = socket.set_nonblocking(true);
    if is_such && set.is_ok() {
        Ok(())
    } else {
        Err("a socket is not what it should be".to_owned())
    }
}

/// The predecessor's addresses, if they are what this config asks for.
fn addresses(plan: &Plan, facts: &Facts) -> Result<Vec<Vec<SocketAddr>>, String> {
    let names: Vec<_> = plan.setup.listeners.iter().map(|it| it.name.as_str()).collect();
    for (name, _) in &facts.listeners {
        if !names.contains(&name.as_str()) {
            return Err(format!("listener {name} is gone; remove it by a reload first"));
        }
    }
    let mut addresses = Vec::new();
    for (name, binds) in names.iter().zip(&plan.binds) {
        let known = facts.listeners.iter().find(|(known, _)| known == name);
        let Some((_, bound)) = known else {
            return Err(format!("listener {name} is new; add it by a reload, before or after"));
        };
        let is_same = |(wanted, bound): (&SocketAddr, &SocketAddr)| {
            wanted.ip() == bound.ip() && (wanted.port() == 0 || wanted.port() == bound.port())
        };
        if binds.len() != bound.len() || !binds.iter().zip(bound).all(is_same) {
            return Err(format!("listener {name}: bind has changed; change it by a reload first"));
        }
        addresses.push(bound.clone());
    }
    match &plan.run_dir {
        Some(run_dir) if *run_dir != facts.run_dir => {
            return Err("gateway.run_dir has changed; that needs a restart".to_owned());
        }
        Some(_) if !facts.has_links => {
            return Err("the first bundle backend needs a restart".to_owned());
        }
        _ => {}
    }
    Ok(addresses)
}

/// Backends that no config has any more, and that still have players, are kept for those.
fn keep_retired(setup: &mut Setup, facts: &Facts) {
    for row in &facts.retired {
        let link = match row.address {
            Some(address) => LinkKind::Udp { address },
            None => LinkKind::Bundle { allow: Allowed { uids: Vec::new(), gids: Vec::new() } },
        };
        let kept = Backend {
            name: row.name.clone(),
            link,
            slots: row.slots,
            grace_ns: row.grace_ns,
            retired: true,
            drained: false,
            intake: ringgate_gate::Intake::Anybody,
        };
        if !setup.backends.iter().any(|known| known.is_same(&kept)) {
            setup.backends.push(kept);
        }
    }
}

const CUT_OFF: &str = "the state is cut off";

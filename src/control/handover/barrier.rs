//! What a gateway gives when its workers stand still.

use std::os::fd::OwnedFd;

use super::{ControlLoop, Postponed};
use ringgate_os::clock::Clock;
use ringgate_process::handover::{Envelope, Extent, Gives};
use ringgate_process::part_in_bytes;
use ringgate_trunk::gateway::AtRest;
use ringgate_worker::handover::{Given, SocketRow};
use ringgate_worker::{Fleet, Frozen, Gift, PartOfRest};

use super::copying::Offer;

part_in_bytes! {
    /// Connections of agents, with their sockets.
    pub Trunks, "trunks"
}

/// A gateway at its barrier.
pub(super) struct Barrier<'a> {
    control: &'a ControlLoop,
    fleet: &'a Fleet,
    offer: Offer,
    since_ns: u64,
    frozen: Option<Frozen<'a>>,
    /// Of each worker.
    gifts: Vec<Gift>,
    agents: Option<AtRest>,
}

impl<'a> Barrier<'a> {
    pub(super) fn new(
        control: &'a ControlLoop,
        fleet: &'a Fleet,
        offer: Offer,
        agents: Option<AtRest>,
        since_ns: u64,
    ) -> Self {
        Self { control, fleet, offer, since_ns, frozen: None, gifts: Vec::new(), agents }
    }

    /// Nobody else has the gateway.
    pub(super) fn go_on(self) {
        if let Some(frozen) = self.frozen {
            frozen.resume();
        }
    }

    /// Another process has it.
    pub(super) fn leave(self) {
        if let Some(frozen) = self.frozen {
            frozen.leave();
        }
        if let Some(agents) = self.agents {
            agents.leave();
        }
    }
}

impl Gives for Barrier<'_> {
    fn clock(&self) -> Clock {
        self.fleet.clock()
    }

    fn freeze(&mut self) -> Result<(), String> {
        self.control.check_no_drain()?;
        self.frozen = Some(self.fleet.freeze()?);
        Ok(())
    }

    fn write(&mut self) -> Result<Extent, String> {
        let Offer { scribe, shared, workers, .. } = &mut self.offer;
        let frozen = self.frozen.as_mut().ok_or("nothing is frozen")?;
        let PartOfRest { extent, gifts } = frozen.export(scribe, shared, workers)?;
        self.gifts.extend(gifts);
        Ok(extent)
    }

    fn give(&mut self) -> Result<Envelope, String> {
        let Self { control, gifts, agents, since_ns, .. } = self;
        let sockets: Vec<(SocketRow, OwnedFd)> =
            gifts.iter_mut().flat_map(|it| it.sockets.drain(..)).collect();
        let (rows, sockets) = sockets.into_iter().unzip();
        let trunks = agents.as_mut().map(AtRest::take).filter(|(bytes, _)| !bytes.is_empty());
        let of_trunks = trunks.as_ref();
        let given = Given {
            sockets: rows,
            counted: gifts.iter_mut().map(|it| std::mem::take(&mut it.counted)).collect(),
            control: control.view.counted(),
            cards: gifts.drain(..).map(|it| it.card).collect(),
            latencies: control.view.live().latencies.given(),
            since_ns: *since_ns,
            told: control.watcher.given(),
            signals: control.postponed.iter().filter_map(Postponed::signal).collect(),
            fleet: control.heirloom().and_then(|it| serde_json::to_value(it).ok()),
            trunk_bytes: of_trunks.map_or(0, |(bytes, _)| bytes.len() as u64),
            trunk_sockets: of_trunks.map_or(0, |(_, fds)| fds.len() as u32),
        };
        let envelope = Envelope::default().with(given, sockets);
        Ok(match trunks {
            Some((bytes, fds)) => envelope.with(Trunks(bytes), fds),
            None => envelope,
        })
    }
}

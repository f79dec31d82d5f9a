//! What a predecessor writes behind the sessions: handshakes, players' messages, free places, and
//! everything that is small.

use crate::front::carried::Carried;
use crate::front::face::ask;
use crate::front::protocol::Front;
use crate::front::rules::Rules;
use crate::gate::Gate;
use crate::handover::common::hand_over_common;
use crate::handover::parts::in_pieces;
use crate::handover::places::HANDSHAKES;
use crate::handover::record::{Kind, Refused, Sink};
use crate::ids::WorkerId;
use crate::shared::standbys::Orphan;
use crate::store::entry::Entry;
use ringgate_core::carry::{Carry, Writer};

/// How much of it was written.
#[derive(Default)]
pub(crate) struct Behind {
    /// Places of handshakes.
    handshakes: u32,
    /// Places of players whose messages are delivered here.
    connections: u32,
    /// The same places, for what their players are told last.
    farewells: u32,
    /// The same places, for reports that an earlier process wants.
    formers: u32,
    /// Sessions whose owners are gone and that this gateway stands by for, when that was asked
    /// first: the thread that hears of members goes on. Those that were not written, the last one
    /// first.
    orphans: Option<Vec<Orphan>>,
    /// Records of what is small.
    small: usize,
}

impl Behind {
    /// Goes on where it has stopped.
    pub(crate) fn write(&mut self, gate: &Gate, sink: &mut Sink<'_>) -> Result<(), Refused> {
        let Self { handshakes, connections, farewells, formers, orphans, small } = self;
        let netcode = &gate.fronts.netcode;
        while *handshakes < netcode.pending.places() {
            let entry = Entry::numbered(*handshakes);
            if netcode.pending.is_live(entry) {
                sink.append(Kind::NetcodeHandshake, |out| netcode.hand_over_pending(entry, out))?;
            }
            *handshakes += 1;
        }
        while *connections < netcode.connections.places() {
            let entry = Entry::numbered(*connections);
            if netcode.connections.has(entry) {
                let write = |out: &mut Writer<'_>| netcode.hand_over_connection(entry, out);
                sink.append(Kind::NetcodeConnection, write)?;
            }
            *connections += 1;
        }
        while *farewells < netcode.connections.places() {
            let entry = Entry::numbered(*farewells);
            if netcode.connections.has(entry) {
                let write = |out: &mut Writer<'_>| netcode.hand_over_farewell(entry, out);
                sink.append(Kind::NetcodeFarewell, write)?;
            }
            *farewells += 1;
        }
        while *formers < netcode.connections.places() {
            let entry = Entry::numbered(*formers);
            if netcode.connections.get(entry).is_some_and(|it| it.former.is_some()) {
                let write = |out: &mut Writer<'_>| netcode.hand_over_former(entry, out);
                sink.append(Kind::NetcodeFormer, write)?;
            }
            *formers += 1;
        }
        // Of all workers: the numbers of listeners are known in a worker's stream.
        let standbys = gate.common.claims.standbys();
        if let Some(standbys) = standbys.filter(|_| gate.common.worker.id == WorkerId(0)) {
            let orphans = orphans.get_or_insert_with(|| standbys.orphans());
            while let Some(orphan) = orphans.last() {
                sink.append(Kind::Orphan, |out| standbys.hand_over_orphan(orphan, out))?;
                orphans.pop();
            }
        }
        sink.append_behind(small, |sink| {
            write_free(gate, sink)?;
            write_fronts(gate, sink)?;
            hand_over_common(&gate.common, sink)?;
            sink.append(Kind::End, |_| {})
        })
    }
}

/// Writes the places that are free, which may be as many as there are.
fn write_free(gate: &Gate, sink: &mut Sink<'_>) -> Result<(), Refused> {
    let fronts = &gate.fronts;
    for front in Front::ALL {
        for some in in_pieces(ask!(fronts, front, .sessions().free_count())) {
            sink.append(Kind::FreePlaces, |out| {
                front.records().table.write(out);
                ask!(fronts, front, .sessions().hand_over_free(some, out));
            })?;
        }
    }
    for some in in_pieces(fronts.netcode.pending.free_count()) {
        sink.append(Kind::FreePlaces, |out| {
            HANDSHAKES.write(out);
            fronts.netcode.pending.hand_over_free(some, out);
        })?;
    }
    Ok(())
}

fn write_fronts(gate: &Gate, sink: &mut Sink<'_>) -> Result<(), Refused> {
    let (fronts, common) = (&gate.fronts, &gate.common);
    for front in Front::ALL {
        sink.append(front.records().rest, |out| ask!(fronts, front, .hand_over_rest(out)))?;
    }
    for front in Front::ALL {
        let Some(records) = front.records().cluster else { continue };
        for some in in_pieces(ask!(fronts, front, .sessions().clusters.overs.len())) {
            let overs = |out: &mut Writer<'_>| {
                ask!(fronts, front, .sessions().clusters.overs.hand_over(some, out));
            };
            sink.append(records.overs, overs)?;
        }
        if ask!(fronts, front, .sessions().clusters.is_in_doubt()) {
            sink.append(records.doubt, |_| {})?;
        }
        for takeover in ask!(fronts, front, .sessions().clusters.takeovers.under_way.values()) {
            sink.append(records.takeover, |out| takeover.hand_over(out))?;
        }
    }
    for (which, count) in fronts.plain.addresses.free_counts() {
        for some in in_pieces(count) {
            sink.append(Kind::FreeAddresses, |out| {
                fronts.plain.addresses.hand_over_free(which, some, out);
            })?;
        }
    }
    for listener in common.listeners.ids() {
        let front = common.front(listener);
        if let Some(kind) = front.records().listener {
            sink.append(kind, |out| {
                listener.write(out);
                ask!(fronts, front, .hand_over_listener(listener, out));
            })?;
        }
        if front == Front::Unreal
            && let Some(called) = fronts.unreal.called_otherwise(listener)
        {
            sink.append(Kind::UnrealCalled, |out| {
                listener.write(out);
                called.write(out);
            })?;
        }
    }
    for (backend, probed) in fronts.unreal.probed.pairs() {
        if probed.is_some() {
            sink.append(Kind::UnrealServer, |out| fronts.unreal.hand_over_server(backend, out))?;
        }
    }
    Ok(())
}

//! What a predecessor writes behind the sessions: handshakes, players' messages, free places, and
//! everything that is small.

use crate::front::face::Fronts;
use crate::front::protocol::Front;
use crate::gate::Gate;
use crate::handover::common::hand_over_common;
use crate::handover::parts::in_pieces;
use crate::handover::places::Table;
use crate::handover::record::{Kind, Refused, Sink};
use crate::store;
use crate::store::entry::Entry;
use crate::store::table::Tenant;
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
    /// Records of what is small.
    small: usize,
}

impl Behind {
    /// Goes on where it has stopped.
    pub(crate) fn write(&mut self, gate: &Gate, sink: &mut Sink<'_>) -> Result<(), Refused> {
        let Self { handshakes, connections, farewells, small } = self;
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
    let Fronts { netcode, unreal, plain, .. } = &gate.fronts;
    write_free_of(Table::Netcode, &netcode.sessions, sink)?;
    write_free_of(Table::Unreal, &unreal.sessions, sink)?;
    write_free_of(Table::Plain, &plain.sessions, sink)?;
    write_free_of(Table::Handshakes, &netcode.pending, sink)
}

fn write_free_of<T: Tenant>(
    which: Table,
    table: &store::table::Table<T>,
    sink: &mut Sink<'_>,
) -> Result<(), Refused> {
    for some in in_pieces(table.free_count()) {
        sink.append(Kind::FreePlaces, |out| {
            which.write(out);
            table.hand_over_free(some, out);
        })?;
    }
    Ok(())
}

fn write_fronts(gate: &Gate, sink: &mut Sink<'_>) -> Result<(), Refused> {
    let (fronts, common) = (&gate.fronts, &gate.common);
    sink.append(Kind::NetcodeRest, |out| fronts.netcode.hand_over_rest(out))?;
    sink.append(Kind::UnrealRest, |out| fronts.unreal.hand_over_rest(out))?;
    sink.append(Kind::PlainRest, |out| fronts.plain.hand_over_rest(out))?;
    for (which, count) in fronts.plain.addresses.free_counts() {
        for some in in_pieces(count) {
            sink.append(Kind::FreeAddresses, |out| {
                fronts.plain.addresses.hand_over_free(which, some, out);
            })?;
        }
    }
    for listener in common.listeners.ids() {
        match common.front(listener) {
            Front::Unreal => {
                sink.append(Kind::UnrealListener, |out| {
                    fronts.unreal.hand_over_listener(listener, out);
                })?;
                if let Some(called) = fronts.unreal.called_otherwise(listener) {
                    sink.append(Kind::UnrealCalled, |out| {
                        listener.write(out);
                        called.write(out);
                    })?;
                }
            }
            Front::Plain => sink.append(Kind::PlainListener, |out| {
                fronts.plain.hand_over_listener(listener, out);
            })?,
            Front::Netcode => sink.append(Kind::NetcodeListener, |out| {
                fronts.netcode.hand_over_listener(listener, out);
            })?,
            #[cfg(test)]
            Front::Third => {}
        }
    }
    for (backend, probed) in fronts.unreal.probed.pairs() {
        if probed.is_some() {
            sink.append(Kind::UnrealServer, |out| fronts.unreal.hand_over_server(backend, out))?;
        }
    }
    Ok(())
}

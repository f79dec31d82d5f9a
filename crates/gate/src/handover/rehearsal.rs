//! A hand-over in memory, from one set of gates to another: for tests and for the simulator.

use std::sync::Arc;

use crate::gate::Gate;
use crate::handover::export::{Ahead, Export};
use crate::handover::format::Format;
use crate::handover::import::{Arrived, Import};
use crate::handover::record::{Refused, Sink};
use crate::handover::shared::{SharedExport, SharedImport};
use crate::now::Now;
use crate::seed::Seed;
use crate::setup::Setup;
use crate::shared::claims::Claims;
use ringgate_core::crypto::Aead;
use ringgate_core::secret::Key;

/// A hand-over under way.
pub struct Rehearsal {
    exports: Vec<Export>,
    shared: SharedExport,
    streams: Vec<Stream>,
    shared_stream: Stream,
}

/// What has become of it.
pub struct Succession {
    /// The successor's gates, in the order of their workers.
    pub gates: Vec<Gate>,
    /// What they agree on.
    pub claims: Arc<Claims>,
    /// Of all of them.
    pub arrived: Arrived,
}

struct Stream {
    memory: Vec<u8>,
    len: usize,
}

impl Stream {
    fn new(bytes_max: usize) -> Self {
        Self { memory: vec![0; bytes_max], len: 0 }
    }

    fn write<T>(&mut self, write: impl FnOnce(&mut Sink<'_>) -> T) -> T {
        let mut sink = Sink::resume(&mut self.memory, self.len);
        let done = write(&mut sink);
        self.len = sink.len();
        done
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Rehearsal {
    /// One for so many workers, each of whose streams has at most so many bytes.
    pub fn new(workers: usize, bytes_max: usize) -> Self {
        Self {
            exports: (0..workers).map(|_| Export::new()).collect(),
            shared: SharedExport::new(),
            streams: (0..workers).map(|_| Stream::new(bytes_max)).collect(),
            shared_stream: Stream::new(bytes_max),
        }
    }

    /// Writes a part of the tables ahead. Returns whether a round is done.
    pub fn ahead(&mut self, gates: &[&Gate], places: u32) -> Result<bool, String> {
        let mut is_round = self.write_shared(gates, |shared, claims, sink| {
            shared.ahead(claims, sink, places as usize).map(|it| it == Ahead::Round)
        })?;
        for ((gate, export), stream) in gates.iter().zip(&mut self.exports).zip(&mut self.streams) {
            let done = stream.write(|sink| export.ahead(gate, sink, places));
            is_round &= done.map_err(|why| why.to_string())? == Ahead::Round;
        }
        Ok(is_round)
    }

    /// Writes the rest.
    pub fn write_rest(&mut self, gates: &[&Gate]) -> Result<(), String> {
        self.write_shared(gates, SharedExport::rest)?;
        for ((gate, export), stream) in gates.iter().zip(&mut self.exports).zip(&mut self.streams) {
            stream.write(|sink| export.rest(gate, sink)).map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    /// Writes the rest, and makes the successor's gates of it all.
    pub fn finish(
        mut self,
        gates: &[&Gate],
        setup: &Arc<Setup>,
        now: Now,
    ) -> Result<Succession, String> {
        self.write_rest(gates)?;
        let streams: Vec<_> = self.streams.iter().map(Stream::bytes).collect();
        succeed(self.shared_stream.bytes(), &streams, gates, setup, now)
    }

    /// The streams as they are: the shared one and each worker's.
    pub fn streams(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.shared_stream).chain(&self.streams).map(Stream::bytes)
    }

    fn write_shared<T>(
        &mut self,
        gates: &[&Gate],
        write: impl FnOnce(&mut SharedExport, &Claims, &mut Sink<'_>) -> Result<T, Refused>,
    ) -> Result<T, String> {
        let Self { shared, shared_stream, .. } = self;
        let common = &gates[0].common;
        let written = shared_stream.write(|sink| {
            if sink.is_empty() {
                Format::of(&common.setup, common.worker.count, BOOT_ID).write(sink)?;
            }
            write(shared, &common.claims, sink)
        });
        written.map_err(|why| why.to_string())
    }
}

/// Makes a successor's gates of the streams of a predecessor's, whose sockets keep their numbers.
pub fn succeed(
    shared: &[u8],
    streams: &[&[u8]],
    gates: &[&Gate],
    setup: &Arc<Setup>,
    now: Now,
) -> Result<Succession, String> {
    let said = |why: Refused| why.to_string();
    let (format, start) = Format::read(shared).map_err(said)?;
    let maps = Format::of(setup, gates.len() as u16, BOOT_ID).compatible(&format)?;
    let mut claims = SharedImport::new(Arc::clone(setup));
    let taken = claims.take(&shared[start..]).map_err(said)?;
    if start + taken < shared.len() {
        return Err("the shared stream is cut off".to_owned());
    }
    let claims = claims.finish().map_err(said)?;
    let mut imports = Vec::new();
    for (gate, stream) in gates.iter().zip(streams) {
        let mut maps = maps.clone();
        maps.sockets = gate.sockets().map(|(socket, _)| (socket.0, socket.0)).collect();
        let seed = Seed { challenge_key: Key::from_bytes([9; 32]), random: [9; 4] };
        let (setup, claims) = (Arc::clone(setup), Arc::clone(&claims));
        let worker = gate.common.worker;
        let begun = Import::begin(stream, setup, worker, claims, Aead::detect(), seed, maps, now);
        let (mut import, start) = begun.map_err(said)?;
        import.take(&stream[start..]).map_err(said)?;
        imports.push(import);
    }
    imports.iter_mut().for_each(Import::settle);
    let mut arrived = Arrived::default();
    let mut successors = Vec::new();
    for import in imports {
        let (gate, its) = import.finish(now).map_err(said)?;
        arrived.sessions += its.sessions;
        arrived.not_carried += its.not_carried;
        successors.push(gate);
    }
    Ok(Succession { gates: successors, claims, arrived })
}

const BOOT_ID: [u8; 16] = [7; 16];

//! A hand-over in memory, from one set of gates to another: for the simulator, and for tests of the
//! gate, which read this file too.

use std::sync::Arc;

use ringgate_core::crypto::Aead;
use ringgate_core::secret::Key;
use ringgate_gate::handover::{
    Ahead, Arrived, Export, Format, Import, Kept, Refused, Rest, SharedExport, SharedImport, Sink,
};
use ringgate_gate::{Claims, Gate, Now, Seed, Setup};

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
    /// What it is written through, part by part.
    window: Vec<u8>,
    /// What is in there.
    len: usize,
    /// What was read of it.
    bytes: Vec<u8>,
    /// It has come to the end of this round.
    is_round: bool,
}

impl Stream {
    fn new(window_bytes: usize) -> Self {
        Self { window: vec![0; window_bytes], len: 0, bytes: Vec::new(), is_round: false }
    }

    fn write<T>(&mut self, write: impl FnOnce(&mut Sink<'_>) -> T) -> T {
        let mut sink = Sink::resume(&mut self.window, self.len);
        let done = write(&mut sink);
        self.len = sink.len();
        done
    }

    /// Begins the shared one with the format.
    fn begin(&mut self, gate: &Gate) -> Result<(), Refused> {
        if self.len > 0 || !self.bytes.is_empty() {
            return Ok(());
        }
        let mut layout = vec![0; LAYOUT_BYTES_MAX];
        let mut sink = Sink::new(&mut layout);
        Format::of(gate.setup(), gate.worker().count, BOOT_ID).write(&mut sink)?;
        let len = sink.len();
        self.bytes.extend_from_slice(&layout[..len]);
        Ok(())
    }

    /// Reads what is in the window, which is free then.
    fn read(&mut self) {
        self.bytes.extend_from_slice(&self.window[..self.len]);
        self.len = 0;
    }

    /// Writes a part, unless it has waited for others since the end of its round.
    fn write_ahead(
        &mut self,
        mut write: impl FnMut(&mut Sink<'_>) -> Result<Ahead, Refused>,
    ) -> Result<(), Refused> {
        while !self.is_round {
            match self.write(&mut write)? {
                Ahead::Full => self.read(),
                Ahead::Part => break,
                Ahead::Round => self.is_round = true,
            }
        }
        Ok(())
    }

    fn write_rest(
        &mut self,
        mut write: impl FnMut(&mut Sink<'_>) -> Result<Rest, Refused>,
    ) -> Result<(), Refused> {
        loop {
            self.read();
            if self.write(&mut write)? == Rest::All {
                self.read();
                return Ok(());
            }
        }
    }
}

impl Rehearsal {
    /// One for so many workers, each of whose streams goes through a window of so many bytes.
    pub fn new(workers: usize, window_bytes: usize) -> Self {
        Self {
            exports: (0..workers).map(|_| Export::new()).collect(),
            shared: SharedExport::new(),
            streams: (0..workers).map(|_| Stream::new(window_bytes)).collect(),
            shared_stream: Stream::new(window_bytes),
        }
    }

    /// Writes a part of the tables ahead. Returns whether a round is done.
    pub fn ahead(&mut self, gates: &[&Gate], places: u32) -> Result<bool, String> {
        let said = |why: Refused| why.to_string();
        let Self { shared, shared_stream, exports, streams } = self;
        shared_stream.begin(gates[0]).map_err(said)?;
        let tokens = places as usize;
        let claims = gates[0].claims();
        let written = shared_stream.write_ahead(|sink| shared.ahead(claims, sink, tokens));
        written.map_err(said)?;
        for ((gate, export), stream) in gates.iter().zip(exports).zip(&mut *streams) {
            let written = stream.write_ahead(|sink| export.ahead(gate, sink, places));
            written.map_err(said)?;
        }
        let all = || std::iter::once(&*shared_stream).chain(&*streams);
        let is_round = all().all(|stream| stream.is_round);
        if is_round {
            shared_stream.is_round = false;
            for stream in streams {
                stream.is_round = false;
            }
        }
        Ok(is_round)
    }

    /// Writes the rest.
    pub fn write_rest(&mut self, gates: &[&Gate]) -> Result<(), String> {
        let said = |why: Refused| why.to_string();
        let Self { shared, shared_stream, exports, streams } = self;
        shared_stream.begin(gates[0]).map_err(said)?;
        let written = shared_stream.write_rest(|sink| shared.rest(gates[0].claims(), sink));
        written.map_err(said)?;
        for ((gate, export), stream) in gates.iter().zip(exports).zip(streams) {
            stream.write_rest(|sink| export.rest(gate, sink)).map_err(said)?;
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
        let streams: Vec<_> = self.streams.iter().map(|stream| &*stream.bytes).collect();
        succeed(&self.shared_stream.bytes, &streams, gates, setup, now)
    }

    /// The streams as far as they were read: the shared one and each worker's.
    pub fn streams(&mut self) -> impl Iterator<Item = &[u8]> {
        let all = std::iter::once(&mut self.shared_stream).chain(&mut self.streams);
        all.map(|stream| {
            stream.read();
            &*stream.bytes
        })
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
    let maps = Format::of(setup, gates.len() as u16, BOOT_ID).compatible(&format, &Kept::new())?;
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
        let worker = gate.worker();
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

/// As many listeners and backends as tests have.
const LAYOUT_BYTES_MAX: usize = 1 << 16;

const BOOT_ID: [u8; 16] = [7; 16];

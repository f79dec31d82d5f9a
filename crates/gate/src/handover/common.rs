//! What all fronts share, written and taken: links, backends, traffic, whose datagrams are
//! forwarded, counters.

use crate::common::{Common, Newcomers};
use crate::handover::record::{Kind, Refused, Sink};
use crate::ids::{ListenerId, WorkerId};
use crate::traffic::ListenerTraffic;
use ringgate_batch::Endpoint;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, maybe_time, time};

/// Writes what all fronts share.
pub(crate) fn hand_over_common(common: &Common, sink: &mut Sink<'_>) -> Result<(), Refused> {
    let Common {
        // From the setup, and from who it is.
        setup: _,
        worker: _,
        listeners,
        // They follow from the sockets that are bound, from links and from sessions.
        roles: _,
        // In a stream of their own.
        claims: _,
        newcomers:
            Newcomers {
                admission,
                // Counted as they come.
                handshakes: _,
            },
        links,
        neighbours,
        aead: _,
        // Empty between two turns.
        sealing: _,
        // With the beginning.
        hash_key: _,
        sources: _,
        runs: _,
        counters,
        stamps: _,
        requests: _,
        // Who asks and who watches is the control thread, which goes too.
        surveys: _,
        captures: _,
        taps: _,
        life,
    } = common;
    for (at, link) in links.all.pairs() {
        if link.is_some() {
            sink.append(Kind::Link, |out| common.hand_over_link(at, out))?;
        }
    }
    for backend in links.backends.ids() {
        sink.append(Kind::Backend, |out| common.hand_over_backend(backend, out))?;
    }
    for (listener, state) in listeners.pairs() {
        sink.append(Kind::Listener, |out| {
            listener.write(out);
            state.traffic.write(out);
        })?;
    }
    for ((listener, endpoint), worker) in &neighbours.steered {
        sink.append(Kind::Steered, |out| {
            listener.write(out);
            endpoint.write(out);
            worker.write(out);
        })?;
    }
    sink.append(Kind::Life, |out| {
        life.started_ns.write(out);
        life.draining_until_ns.write(out);
        links.last_refused.write(out);
        admission.hand_over(out);
    })?;
    sink.append(Kind::Counters, |out: &mut Writer<'_>| {
        counters.show(|counter, name, count| {
            if count > 0 {
                (counter.to_owned(), name.to_owned()).write(out);
                count.write(out);
            }
        });
    })
}

/// Takes one record of it.
pub(crate) fn take_common(
    common: &mut Common,
    kind: Kind,
    from: &mut Reader<'_>,
) -> Result<(), Broken> {
    match kind {
        Kind::Link => common.take_link(from),
        Kind::Backend => common.take_backend(from),
        Kind::Listener => {
            let listener = ListenerId::read(from)?;
            let traffic = ListenerTraffic::read(from)?;
            common.listeners.get_mut(listener).ok_or(Broken::Invalid("listener"))?.traffic =
                traffic;
            Ok(())
        }
        Kind::Steered => {
            let (listener, endpoint) = (ListenerId::read(from)?, Endpoint::read(from)?);
            let worker = WorkerId::read(from)?;
            if worker.0 >= common.worker.count {
                return Err(Broken::Invalid("worker"));
            }
            common.neighbours.steered.insert((listener, endpoint), worker);
            Ok(())
        }
        Kind::Life => {
            common.life.started_ns = time::read(from)?;
            common.life.draining_until_ns = maybe_time::read(from)?;
            common.links.last_refused = Carry::read(from)?;
            common.newcomers.admission.take_over(from)
        }
        Kind::Counters => {
            while !from.rest().is_empty() {
                let (counter, name) = <(String, String)>::read(from)?;
                // One that this release does not count is left out.
                common.counters.add(&counter, &name, u64::read(from)?);
            }
            Ok(())
        }
        _ => Err(Broken::Invalid("place among the records")),
    }
}

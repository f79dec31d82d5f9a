//! What all fronts share, written and taken: links, backends, traffic, whose datagrams are
//! forwarded, counters.

use crate::common::{Common, Newcomers};
use crate::handover::record::{Kind, Refused, Sink};
use crate::ids::{BackendId, LinkId, ListenerId, WorkerId};
use crate::moves::BackendMoves;
use crate::setup::Phase;
use crate::traffic::{DeliveryTraffic, ListenerTraffic};
use ringgate_batch::Endpoint;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, maybe_time, time};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{Arbitrated, Channel, MessagePart, SessionId};

/// What a link arbitrates is said in these records.
const ARBITRATED: [(Arbitrated, Kind); 3] = [
    (Arbitrated::Netcode, Kind::LinkArbitrates),
    (Arbitrated::Plain, Kind::LinkArbitratesPlain),
    (Arbitrated::Delivery, Kind::LinkArbitratesDelivery),
];

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
        moves,
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
        // Who asks and who watches is the control thread, which goes too; sessions that are to end
        // have ended before the barrier.
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
    for (which, kind) in ARBITRATED {
        for (at, _) in links.all.pairs().filter(|(at, _)| links.arbitrates(*at, which)) {
            sink.append(kind, |out| at.write(out))?;
        }
    }
    for (at, link) in links.all.pairs() {
        let begun = link.as_ref().and_then(|link| link.assembly.begun());
        if let Some((session, channel, token, bytes)) = begun {
            let part =
                MessagePart { session, channel, is_first: true, is_last: false, token, bytes };
            sink.append(Kind::LinkMessage, |out| hand_over_message(at, &part, out))?;
        }
    }
    for backend in links.backends.ids() {
        sink.append(Kind::Backend, |out| common.hand_over_backend(backend, out))?;
        if links.backends[backend].is_closed {
            sink.append(Kind::ClosedBackend, |out| backend.write(out))?;
        }
        sink.append(Kind::BackendWait, |out| common.hand_over_wait(backend, out))?;
        let moved = links.backends[backend].moves;
        if moved != BackendMoves::default() {
            sink.append(Kind::BackendMoves, |out| {
                backend.write(out);
                moved.write(out);
            })?;
        }
    }
    for session in moves.sessions() {
        sink.append(Kind::Move, |out| moves.hand_over(session, out))?;
    }
    let open = |listener| common.setup.listeners[listener].phase != Phase::Closed;
    for (listener, state) in listeners.pairs().filter(|(listener, _)| open(*listener)) {
        sink.append(Kind::Listener, |out| {
            listener.write(out);
            ListenerTraffic { drops: state.drops.total(), ..state.traffic }.write(out);
        })?;
        sink.append(Kind::ListenerDrops, |out| {
            listener.write(out);
            for (reason, count) in state.drops.iter().filter(|(_, count)| *count > 0) {
                reason.name().to_owned().write(out);
                count.write(out);
            }
        })?;
        if state.delivery != DeliveryTraffic::default() {
            sink.append(Kind::ListenerMessages, |out| {
                listener.write(out);
                state.delivery.write(out);
            })?;
        }
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
        Kind::Orphan => match common.claims.standbys() {
            Some(standbys) => standbys.take_orphan(from),
            None => Err(Broken::Foreign),
        },
        Kind::LinkArbitrates | Kind::LinkArbitratesPlain | Kind::LinkArbitratesDelivery => {
            let at = LinkId::read(from)?;
            let which = ARBITRATED.iter().find(|(_, it)| *it == kind);
            if let (Some(Some(link)), Some((which, _))) = (common.links.all.get_mut(at), which) {
                link.arbitrates[*which as usize] = true;
            }
            Ok(())
        }
        Kind::Backend => common.take_backend(from),
        Kind::ClosedBackend => common.take_closed_backend(from),
        Kind::BackendWait => common.take_wait(from),
        Kind::BackendMoves => {
            let (backend, moves) = (BackendId::read(from)?, BackendMoves::read(from)?);
            let state = common.links.backends.get_mut(backend);
            state.ok_or(Broken::Invalid("backend"))?.moves = moves;
            Ok(())
        }
        Kind::Move => common.moves.take_over(from),
        Kind::Listener => {
            let listener = ListenerId::read(from)?;
            let traffic = ListenerTraffic { drops: 0, ..ListenerTraffic::read(from)? };
            common.listeners.get_mut(listener).ok_or(Broken::Invalid("listener"))?.traffic =
                traffic;
            Ok(())
        }
        Kind::ListenerDrops => {
            let listener = ListenerId::read(from)?;
            let state = common.listeners.get_mut(listener).ok_or(Broken::Invalid("listener"))?;
            while !from.rest().is_empty() {
                let (name, count) = (String::read(from)?, u64::read(from)?);
                // One that this release does not have is left out.
                if let Some(reason) = DropReason::named(&name) {
                    state.drops.add(reason, count);
                }
            }
            Ok(())
        }
        Kind::ListenerMessages => {
            let (listener, traffic) = (ListenerId::read(from)?, DeliveryTraffic::read(from)?);
            common.listeners.get_mut(listener).ok_or(Broken::Invalid("listener"))?.delivery =
                traffic;
            Ok(())
        }
        Kind::LinkMessage => take_message(common, from),
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

/// Writes what has come of a message that is not complete.
fn hand_over_message(at: LinkId, part: &MessagePart<'_>, out: &mut Writer<'_>) {
    let [_, number] = part.channel.to_bytes();
    at.write(out);
    (part.session.as_u64(), number).write(out);
    part.token.write(out);
    (part.bytes.len() as u32).write(out);
    out.bytes(part.bytes);
}

/// Goes on with it.
fn take_message(common: &mut Common, from: &mut Reader<'_>) -> Result<(), Broken> {
    let at = LinkId::read(from)?;
    let (session, number) = <(u64, u8)>::read(from)?;
    let (token, bytes) = (u64::read(from)?, Vec::<u8>::read(from)?);
    let session = SessionId::from_u64(session).ok_or(Broken::Invalid("session"))?;
    let Some(Some(link)) = common.links.all.get_mut(at) else { return Ok(()) };
    // Only reliable ones have several parts.
    let channel = Channel::Reliable(number);
    let part =
        MessagePart { session, channel, is_first: true, is_last: false, token, bytes: &bytes };
    let taken = link.assembly.take(&part);
    taken.map(|_| ()).map_err(|_| Broken::Invalid("length of a message"))
}

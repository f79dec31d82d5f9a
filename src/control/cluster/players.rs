//! Which player is where, for the thread that talks to the other members: what the workers of this
//! gateway know, and the ways to them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use ringgate_batch::{Endpoint, LocalIp};
use ringgate_cluster::{Incarnation, News, NoRoom, Record, SessionId};
use ringgate_gate::{
    Address, BindId, Claims, ForwardedDatagram, ListenerId, Mail, MemberId, Offered, Owned, PARTS,
    Phase, Standbys, Whereabouts, WorkerId,
};
use ringgate_os::clock::Clock;
use ringgate_trunk::peers::{
    Arrival, Datagram, GivenAway, Kept, Number, Places as Listed, Players,
};
use ringgate_worker::{Departures, Fleet, Hatch};

/// The thread's end of it.
pub(super) struct OfFleet {
    claims: Arc<Claims>,
    whereabouts: Arc<Whereabouts>,
    standbys: Arc<Standbys>,
    departures: Departures,
    hatch: Hatch,
    clock: Clock,
    places: Arc<Places>,
}

/// The listeners, which a reload changes.
#[derive(Default)]
pub(super) struct Places(Mutex<Known>);

#[derive(Clone, Default)]
struct Known {
    names: Arc<[(u16, String)]>,
    /// The addresses of each listener, by its number.
    binds: Arc<[Vec<SocketAddr>]>,
}

impl Places {
    /// Goes by what the workers have now.
    pub(super) fn follow(&self, fleet: &Fleet) {
        let setup = fleet.setup();
        let named = setup.listeners.iter().enumerate();
        let open = named.filter(|(_, listener)| listener.phase != Phase::Closed);
        let mut open: Vec<_> = open.collect();
        // Members find the first of a name: one that was moved to another address drains under it.
        open.sort_by_key(|(_, listener)| listener.phase == Phase::Draining);
        let names = open.into_iter();
        let names = names.map(|(number, listener)| (number as u16, listener.name.clone()));
        let names = names.collect();
        let known = Known { names, binds: fleet.addresses().into() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    fn known(&self) -> Known {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Known {
    /// The listeners that have the name of one, by their numbers.
    fn alike(&self, listener: u16) -> impl Iterator<Item = u16> {
        let name = self.names.iter().find(|it| it.0 == listener).map(|it| &it.1);
        self.names.iter().filter(move |it| Some(&it.1) == name).map(|it| it.0)
    }

    /// Where a player may be of whom a member speaks.
    fn all(&self, listener: u16, player: &SocketAddr) -> impl Iterator<Item = Address> {
        self.alike(listener).map(|it| address(it, player))
    }

    /// Which of the listeners of a name has the address that a player talks to.
    fn find(&self, listener: u16, to: SocketAddr) -> Option<(u16, (BindId, LocalIp))> {
        let place = |it| Some((it, place_of(self.binds.get(usize::from(it))?, to)?));
        self.alike(listener).find_map(place)
    }

    /// Where a player is who talks to that address.
    fn at(&self, listener: u16, to: SocketAddr, player: &SocketAddr) -> Address {
        address(self.find(listener, to).map_or(listener, |(it, _)| it), player)
    }
}

impl OfFleet {
    /// `None` where the workers were started without a cluster.
    pub(super) fn new(fleet: &Fleet, places: &Arc<Places>) -> Option<Self> {
        let claims = Arc::clone(fleet.claims());
        Some(Self {
            whereabouts: Arc::clone(claims.whereabouts()?),
            standbys: Arc::clone(claims.standbys()?),
            claims,
            departures: fleet.departures()?.clone(),
            hatch: fleet.hatch(),
            clock: fleet.clock(),
            places: Arc::clone(places),
        })
    }
}

impl Players for OfFleet {
    fn listeners(&self) -> Arc<[(u16, String)]> {
        self.places.known().names
    }

    fn take_changes(&self, max: usize, handle: &mut dyn FnMut(u16, SocketAddr, News)) -> bool {
        self.whereabouts.take_changes(max, |address, news| {
            if let Some((listener, player)) = told(&address) {
                handle(listener, player, news);
            }
        })
    }

    fn part(&self, part: usize) -> Option<(Listed, Listed)> {
        let all = |of: Vec<Address>| of.iter().filter_map(told).collect();
        let (here, stands) = (&self.whereabouts, &self.standbys);
        (part < PARTS).then(|| (all(here.own_part(part)), all(stands.stands_part(part))))
    }

    fn learn(&self, member: Number, listener: u16, player: &SocketAddr) -> Result<(), NoRoom> {
        let (known, now_ns) = (self.places.known(), self.clock.now_ns());
        let learn = |it| self.whereabouts.learn(&it, MemberId(member), now_ns);
        known.all(listener, player).try_for_each(learn)
    }

    fn count(&self, member: Number) -> usize {
        self.whereabouts.count_of(MemberId(member))
    }

    fn unlearn(&self, member: Number, listener: u16, player: &SocketAddr) {
        let known = self.places.known();
        let all = known.all(listener, player);
        all.for_each(|it| self.whereabouts.unlearn(&it, MemberId(member)));
    }

    fn forget_told(&self, member: Number) {
        self.whereabouts.forget(MemberId(member));
    }

    fn forget(&self, member: Number) {
        self.forget_told(member);
        self.whereabouts.set_silent(MemberId(member), false);
        self.standbys.set_gone(MemberId(member), self.clock.now_ns());
    }

    fn set_silent(&self, member: Number) {
        self.whereabouts.set_silent(MemberId(member), true);
        self.standbys.set_gone(MemberId(member), self.clock.now_ns());
    }

    fn set_back(&self, member: Number, process: Incarnation) {
        self.whereabouts.set_silent(MemberId(member), false);
        self.standbys.set_back(MemberId(member), process);
    }

    fn incarnation(&self) -> Option<Incarnation> {
        self.standbys.incarnation()
    }

    fn take_records(&self, max: usize, handle: &mut dyn FnMut(SessionId, Option<Kept<'_>>)) {
        let binds = self.places.known().binds;
        self.standbys.take_changes(max, |session, kept| {
            let Some(Owned { address, record, offered_to }) = kept else {
                return handle(session, None);
            };
            let (listener, offered_to) = (address.listener.0, offered_to.map(|it| it.0));
            let binds = binds.get(usize::from(listener));
            let local = binds.and_then(|binds| local_of(binds, record.local));
            let is_told = told(&address).is_some();
            let record = local.map(|local| Record { local, ..record.clone() });
            let record = record.as_ref().filter(|_| is_told);
            handle(session, record.map(|record| Kept { listener, record, offered_to }));
        });
    }

    fn renew_records(&self) {
        self.standbys.renew();
    }

    fn set_able(&self, members: &[(Incarnation, Number)]) {
        let able = members.iter().map(|(process, number)| (*process, MemberId(*number)));
        self.standbys.set_able(able.collect());
    }

    fn is_leaving(&self) -> (bool, Option<usize>) {
        let standbys = &self.standbys;
        (standbys.is_leaving(), standbys.hands_over().then(|| standbys.owned()))
    }

    fn hear_offer(&self, member: Number, offered: &GivenAway) {
        let heard = self.standbys.hear_offer(MemberId(member), offered.session);
        let Some((address, local)) = heard else { return };
        // Otherwise the next datagram shows which worker is to have it.
        if offered.is_coming {
            return;
        }
        let binds = self.places.known().binds;
        let binds = binds.get(usize::from(address.listener.0));
        let to = binds.and_then(|binds| place_of(binds, socket(local)));
        let Some((bind, local)) = to else { return };
        let takers = self.claims.takers(&address, false, self.hatch.workers() as u16);
        for worker in takers.iter() {
            // Where a worker has too much to do, it is offered again.
            let _ = self.hatch.send(worker, Mail::Offered(Offered { address, bind, local }));
        }
    }

    fn stand_by(&self, member: Number, listener: u16, record: Record) -> Result<(), NoRoom> {
        let (to, player) = (socket(record.local), socket(record.player));
        let address = self.places.known().at(listener, to, &player);
        self.standbys.stand_by(MemberId(member), address, record)
    }

    fn stand_down(&self, member: Number, session: SessionId) {
        self.standbys.stand_down(MemberId(member), session, self.clock.now_ns());
    }

    fn expire(&self) {
        self.standbys.expire(self.clock.now_ns());
    }

    fn take_stands(&self, max: usize, handle: &mut dyn FnMut(u16, SocketAddr, bool)) {
        self.standbys.take_stands(max, |address, stands_by| {
            if let Some((listener, player)) = told(&address) {
                handle(listener, player, stands_by);
            }
        });
    }

    fn learn_stands(
        &self,
        member: Number,
        listener: u16,
        player: &SocketAddr,
    ) -> Result<(), NoRoom> {
        let (known, now_ns) = (self.places.known(), self.clock.now_ns());
        let learn = |it| self.whereabouts.learn_stands(&it, MemberId(member), now_ns);
        known.all(listener, player).try_for_each(learn)
    }

    fn unlearn_stands(&self, member: Number, listener: u16, player: &SocketAddr) {
        let known = self.places.known();
        let all = known.all(listener, player);
        all.for_each(|it| self.whereabouts.unlearn_stands(&it, MemberId(member)));
    }

    fn take_accepted(&self, handle: &mut dyn FnMut(Number, u16, SocketAddr, u32)) {
        self.whereabouts.take_accepted(|address, accepted, by| {
            let Some((listener, player)) = told(&address) else { return };
            for MemberId(member) in by.iter() {
                handle(member, listener, player, accepted);
            }
        });
    }

    fn learn_accepted(&self, member: Number, listener: u16, player: &SocketAddr, per_s: u32) {
        let (known, now_ns) = (self.places.known(), self.clock.now_ns());
        for it in known.all(listener, player) {
            self.whereabouts.learn_accepted(&it, MemberId(member), per_s, now_ns);
        }
    }

    fn take_departures(&self, max: usize, handle: &mut dyn FnMut(Number, Datagram<'_>)) -> bool {
        let binds = self.places.known().binds;
        self.departures.take(max, |MemberId(member), it| {
            let Some((listener, player)) = told(it.address()) else { return };
            let bind = binds.get(usize::from(listener)).and_then(|all| all.get(it.bind().index()));
            let Some(bind) = bind else { return };
            let local = it.local();
            let ip = if local.is_unspecified() { bind.ip() } else { local.ip() };
            let to = SocketAddr::new(ip, bind.port());
            let (is_lost, bytes) = (it.is_lost(), it.bytes());
            handle(member, Datagram { listener, player, to, is_lost, hops: it.hops(), bytes });
        });
        self.departures.has_more()
    }

    fn onward(&self, listener: u16, datagram: &Datagram<'_>) -> Option<Number> {
        let address = self.places.known().at(listener, datagram.to, &datagram.player);
        if self.whereabouts.worker_of(&address).is_some() {
            return None;
        }
        let MemberId(to) = self.claims.member_with(&address)?;
        let is_paid = self.whereabouts.pay(&address, self.clock.now_ns()).is_ok();
        is_paid.then_some(to)
    }

    fn arrive(&self, member: Number, listener: u16, datagram: &Datagram<'_>) -> Arrival {
        let Datagram { player, to, is_lost, hops, bytes, .. } = *datagram;
        let found = self.places.known().find(listener, to);
        let Some((listener, place)) = found else { return Arrival::Elsewhere };
        let address = address(listener, &player);
        let takers = self.claims.takers(&address, is_lost, self.hatch.workers() as u16);
        let give = |worker: &WorkerId| {
            let parties = (MemberId(member), *worker);
            let it = ForwardedDatagram::of_member(parties, address, place, is_lost, bytes);
            it.is_some_and(|it| self.hatch.send(*worker, Mail::Datagram(it.forwarded(hops))))
        };
        match takers.iter().filter(give).count() {
            0 => Arrival::Full,
            _ if takers.is_stray => Arrival::Stray,
            _ => Arrival::Taken,
        }
    }
}

fn address(listener: u16, player: &SocketAddr) -> Address {
    Address { listener: ListenerId(listener), endpoint: Endpoint::from(*player) }
}

fn socket((ip, port): ([u8; 16], u16)) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
}

/// As other members are told. A link-local address means something on one host only.
fn told(address: &Address) -> Option<(u16, SocketAddr)> {
    let is_everywhere = address.endpoint.scope() == 0;
    is_everywhere.then(|| (address.listener.0, address.endpoint.into()))
}

/// The address that a player talks to, as its record has it that says the number of a listener's
/// address in place of a port, and a host's address only where that one stands for several.
fn local_of(binds: &[SocketAddr], (ip, bind): ([u8; 16], u16)) -> Option<([u8; 16], u16)> {
    let bind = binds.get(usize::from(bind))?;
    let fixed = match bind.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    Some((if ip == [0; 16] { fixed.octets() } else { ip }, bind.port()))
}

/// By which of a listener's addresses `to` is reached, and what the answer's sender is.
fn place_of(binds: &[SocketAddr], to: SocketAddr) -> Option<(BindId, LocalIp)> {
    let find = |is_it: &dyn Fn(&SocketAddr) -> bool| binds.iter().position(is_it);
    if let Some(at) = find(&|bind| *bind == to) {
        return Some((BindId(at as u16), LocalIp::UNSPECIFIED));
    }
    let is_wide = |bind: &SocketAddr| bind.port() == to.port() && bind.ip().is_unspecified();
    let same = |bind: &SocketAddr| is_wide(bind) && bind.is_ipv4() == to.is_ipv4();
    let at = find(&same).or_else(|| find(&|bind| is_wide(bind) && bind.is_ipv6()))?;
    let local = match to.ip() {
        IpAddr::V4(ip) => LocalIp::v4(ip.octets(), 0),
        IpAddr::V6(ip) => LocalIp::v6(ip.octets(), 0),
    };
    Some((BindId(at as u16), local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_with_a_session_finds_the_address_that_its_player_talks_to() {
        let binds = ["198.51.100.9:40000", "0.0.0.0:40001"];
        let binds = binds.map(|it| it.parse().expect("an address"));
        let mapped = |ip: [u8; 4]| std::net::Ipv4Addr::from(ip).to_ipv6_mapped().octets();
        let seven = LocalIp::v4([198, 51, 100, 7], 0);
        for (local, expected) in [
            (([0; 16], 0), Some((0, LocalIp::UNSPECIFIED))),
            ((mapped([198, 51, 100, 7]), 1), Some((1, seven))),
            (([0; 16], 2), None),
        ] {
            let told = local_of(&binds, local);
            let place = told.and_then(|told| place_of(&binds, socket(told)));
            assert_eq!(place, expected.map(|(bind, local)| (BindId(bind), local)), "{local:?}");
        }
    }

    /// As after a reload that moves one: it drains at the address that it had.
    #[test]
    fn of_two_listeners_of_a_name_a_player_is_at_the_one_that_it_talks_to() {
        let all = ["198.51.100.9:40000", "198.51.100.9:41000", "198.51.100.9:40001"];
        let binds: [SocketAddr; 3] = all.map(|it| it.parse().expect("an address"));
        let names = [(2, "eu"), (0, "eu"), (1, "us")].map(|(number, name)| (number, name.into()));
        let names = names.into_iter().collect();
        let known = Known { names, binds: binds.iter().map(|bind| vec![*bind]).collect() };
        let player = "192.0.2.7:5".parse().expect("an address");
        for (to, expected, at) in [(0, Some(0), 0), (2, Some(2), 2), (1, None, 2)] {
            for said in [0, 2] {
                let found = known.find(said, binds[to]).map(|(listener, _)| listener);
                assert_eq!(found, expected, "{to}");
                let at = if expected.is_some() { at } else { said };
                assert_eq!(known.at(said, binds[to], &player), address(at, &player));
            }
        }
        let heard: Vec<_> = known.all(2, &player).collect();
        assert_eq!(heard, [2, 0].map(|it| address(it, &player)));
        assert_eq!(known.all(7, &player).count(), 0, "it is closed");
    }

    #[test]
    fn an_answer_leaves_from_the_address_that_was_asked() {
        let all = ["198.51.100.9:40000", "0.0.0.0:40001", "[::]:40001", "[::]:40002"];
        let binds = all.map(|it| it.parse().expect("an address"));
        let v4 = LocalIp::v4([198, 51, 100, 9], 0);
        let mut v6 = [0; 16];
        v6[15] = 1;
        for (to, expected) in [
            ("198.51.100.9:40000", Some((0, LocalIp::UNSPECIFIED))),
            ("198.51.100.8:40000", None),
            ("198.51.100.9:40001", Some((1, v4))),
            ("[::1]:40001", Some((2, LocalIp::v6(v6, 0)))),
            ("198.51.100.9:40002", Some((3, v4))),
            ("198.51.100.9:40003", None),
        ] {
            let place = place_of(&binds, to.parse().expect("an address"));
            assert_eq!(place, expected.map(|(bind, local)| (BindId(bind), local)), "{to}");
        }
    }
}

//! Which backend, and which gateways: of all that are what was asked for, two are looked at by
//! chance and the less busy one is taken. So no server gets a whole burst because it was the
//! emptiest one when its load was last told.
//!
//! A service looks first at the backends that are its own, by a hash that all services know: then
//! it is alone at most of them, and need not wait for others' slots (`ledger`).

use std::net::SocketAddr;

use ringgate_core::splitmix::mixed;
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::{Backend, State};

use crate::book::{Book, Held, Now};
use crate::known::{Front, KnownFleet, NETCODE};
use crate::random::{Random, of_text};
use crate::refusal::Refusal;
use crate::wanted::{BACKEND_NAME_MAX, Family, Unsealed, Where};

/// What players will speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// netcode, with this protocol id where it was said.
    Netcode(Option<u64>),
    /// Something without connect tokens.
    Unsealed(Option<Unsealed>),
}

/// A backend that was chosen, and the way there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The backend.
    pub backend: Name,
    /// The group that it is of.
    pub group: Name,
    /// The listener, which all gateways of this choice have.
    pub listener: Name,
    /// What it speaks.
    pub protocol: String,
    /// Its protocol id, as gateways tell it; 0 where they do not.
    pub protocol_id: u64,
    /// How long its routing tokens are.
    pub token_bytes: usize,
    /// Whether all of these gateways take tokens with a tag.
    pub takes_tags: bool,
    /// The gateways, in the order in which they are tried, each with one address.
    pub gateways: Vec<(Name, SocketAddr)>,
}

/// What is looked at.
pub struct Chooser<'a> {
    /// The fleet.
    pub known: &'a KnownFleet,
    /// The slots that we may promise.
    pub book: &'a Book,
    /// The name of this service.
    pub service: &'a Name,
    /// Slots need not be leased.
    pub is_away: bool,
    /// Players that have to fit.
    pub count: u32,
    /// Now.
    pub now: Now,
}

impl Chooser<'_> {
    /// Chooses for a request. What is furthest from success is told last.
    pub fn choose(
        &self,
        place: &Where,
        speaks: Speaks,
        random: &mut Random,
    ) -> Result<Chosen, Refusal> {
        let group = self.group(place)?;
        let everywhere = [None];
        let regions: Vec<_> = place.regions.iter().map(Some).collect();
        let regions = if regions.is_empty() { &everywhere[..] } else { &regions };
        let mut best = Refusal::NoBackend;
        for region in regions {
            let search = Search { chooser: self, group, place, speaks, region: *region };
            match search.run(random) {
                Ok(chosen) => return Ok(chosen),
                Err(why) => best = nearer(best, why),
            }
        }
        Err(best)
    }

    /// The group that is meant.
    pub fn group<'a>(&'a self, place: &'a Where) -> Result<&'a str, Refusal> {
        let of_backend = match &place.backend {
            Some(name) => Some(self.known.backend(name).ok_or(Refusal::BackendUnknown)?),
            None => None,
        };
        match (&place.group, of_backend) {
            (Some(group), Some(backend)) if backend.group != group.as_str() => {
                Err(Refusal::BackendUnknown)
            }
            (Some(group), _) => Ok(group.as_str()),
            (None, Some(backend)) => Ok(&backend.group),
            (None, None) => self.known.only_group().ok_or(Refusal::GroupUnclear),
        }
    }

    /// Whether this backend is one of those that this service looks at first.
    fn is_own(&self, backend: &Name) -> bool {
        let backend = of_text(backend.as_str());
        let weight = |service: &Name| mixed(backend ^ of_text(service.as_str()));
        let own = weight(self.service);
        self.known.services().keys().all(|it| it == self.service || weight(it) < own)
    }

    /// Slots that may be free there, as far as can be known without asking.
    fn room(&self, name: &Name, backend: &Backend) -> u32 {
        let Some(held) = self.book.held(name) else {
            return backend.slots.saturating_sub(backend.used);
        };
        let unpromised = backend.slots.saturating_sub(backend.used);
        if self.is_away {
            return held.free().max(unpromised.saturating_sub(held.pending()));
        }
        let is_dry = self.now.ms < held.dry_until_ms;
        held.free().max(if is_dry { 0 } else { unpromised })
    }

    /// Players that the backend has or may get, in 65,536ths of its slots.
    fn load(&self, name: &Name, backend: &Backend) -> u64 {
        let pending = self.book.held(name).map_or(0, Held::pending);
        let busy = u64::from(backend.used) + u64::from(pending);
        (busy << 16) / u64::from(backend.slots.max(1))
    }
}

/// One region's turn.
struct Search<'a> {
    chooser: &'a Chooser<'a>,
    group: &'a str,
    place: &'a Where,
    speaks: Speaks,
    region: Option<&'a Name>,
}

impl Search<'_> {
    fn run(&self, random: &mut Random) -> Result<Chosen, Refusal> {
        if let Some(name) = &self.place.backend {
            let backend = self.chooser.known.backend(name).ok_or(Refusal::BackendUnknown)?;
            self.judge_named(name, backend)?;
            return self.chosen(name, backend, random);
        }
        let names = self.chooser.known.group(self.group);
        if names.is_empty() {
            return Err(Refusal::NoBackend);
        }
        let mut why = Refusal::NoBackend;
        let is_shared = self.chooser.known.services().len() > 1;
        for only_own in [true, false].into_iter().skip(usize::from(!is_shared)) {
            match self.two_choices(names, only_own, random, &mut why) {
                [Some(one), Some(other)] => return self.less_busy(one, other, random),
                [Some(one), None] | [None, Some(one)] => return self.chosen_name(one, random),
                [None, None] => {}
            }
        }
        Err(why)
    }

    /// Two backends that would do, by chance. Where there are few, all are looked at.
    fn two_choices<'n>(
        &self,
        names: &'n [Name],
        only_own: bool,
        random: &mut Random,
        why: &mut Refusal,
    ) -> [Option<&'n Name>; 2] {
        let mut found = [None, None];
        let start = random.below(names.len());
        let by_chance: [usize; SAMPLES] = std::array::from_fn(|_| random.below(names.len()));
        let all = (0..names.len()).map(|step| (start + step) % names.len());
        for at in by_chance.into_iter().chain(all) {
            let name = &names[at];
            if found[0] == Some(name) {
                continue;
            }
            match self.judge(name, only_own) {
                Ok(()) if found[0].is_none() => found[0] = Some(name),
                Ok(()) => {
                    found[1] = Some(name);
                    return found;
                }
                Err(refusal) => *why = nearer(*why, refusal),
            }
        }
        found
    }

    fn less_busy(&self, one: &Name, other: &Name, random: &mut Random) -> Result<Chosen, Refusal> {
        let known = self.chooser.known;
        let load = |name| known.backend(name).map_or(u64::MAX, |it| self.chooser.load(name, it));
        self.chosen_name(if load(other) < load(one) { other } else { one }, random)
    }

    fn chosen_name(&self, name: &Name, random: &mut Random) -> Result<Chosen, Refusal> {
        let backend = self.chooser.known.backend(name).ok_or(Refusal::BackendUnknown)?;
        self.chosen(name, backend, random)
    }

    /// Whether a backend that anybody may be sent to would do.
    fn judge(&self, name: &Name, only_own: bool) -> Result<(), Refusal> {
        let backend = self.chooser.known.backend(name).ok_or(Refusal::NoBackend)?;
        let is_meant = backend.state == State::Ready && self.place.fits(backend);
        if !is_meant || !self.can_be_named(name) || (only_own && !self.chooser.is_own(name)) {
            return Err(Refusal::NoBackend);
        }
        if self.fronts(name, backend).next().is_none() {
            return Err(Refusal::NoGateway);
        }
        if self.chooser.room(name, backend) < self.chooser.count {
            return Err(Refusal::NoSlot);
        }
        Ok(())
    }

    /// Whether the backend that was named would do. A matchmaker may have allocated it.
    fn judge_named(&self, name: &Name, backend: &Backend) -> Result<(), Refusal> {
        if !matches!(backend.state, State::Ready | State::Allocated) || !self.can_be_named(name) {
            return Err(Refusal::BackendNotReady);
        }
        if self.chooser.room(name, backend) < self.chooser.count {
            return Err(Refusal::BackendFull);
        }
        Ok(())
    }

    /// User data has no room for longer names.
    fn can_be_named(&self, name: &Name) -> bool {
        name.as_str().len() <= BACKEND_NAME_MAX || matches!(self.speaks, Speaks::Unsealed(_))
    }

    /// Listeners that lead there.
    fn fronts<'a>(
        &'a self,
        name: &'a Name,
        backend: &'a Backend,
    ) -> impl Iterator<Item = Front<'a>> {
        let all = self.chooser.known.fronts(name, backend, self.chooser.now.ms);
        all.filter(|front| front.told.reaches(front.gateway.as_str(), backend))
            .filter(|front| self.region.is_none_or(|it| front.told.region == it.as_str()))
            .filter(|front| self.is_spoken(front))
            .filter(|front| self.address(front).is_some())
    }

    fn is_spoken(&self, front: &Front<'_>) -> bool {
        let protocol = front.listener.protocol.as_str();
        match self.speaks {
            // It has to have confirmed a key before anybody can come in.
            Speaks::Netcode(_) => protocol == NETCODE && !front.listener.epochs.is_empty(),
            Speaks::Unsealed(Some(Unsealed::Unreal)) => protocol == "unreal",
            Speaks::Unsealed(Some(Unsealed::Plain)) => protocol == "plain",
            Speaks::Unsealed(None) => protocol != NETCODE,
        }
    }

    fn address(&self, front: &Front<'_>) -> Option<SocketAddr> {
        let is_meant = |it: &&SocketAddr| match self.place.family {
            None => true,
            Some(Family::Ipv4) => it.is_ipv4(),
            Some(Family::Ipv6) => it.is_ipv6(),
        };
        front.listener.addresses.iter().find(is_meant).copied()
    }

    /// The way to a backend: gateways by two choices each, all with one listener.
    fn chosen(
        &self,
        name: &Name,
        backend: &Backend,
        random: &mut Random,
    ) -> Result<Chosen, Refusal> {
        let mut left: Vec<_> = self.fronts(name, backend).collect();
        if let Speaks::Netcode(asked) = self.speaks {
            let has = left.len();
            left.retain(|it| is_protocol(it.listener.protocol_id, asked));
            if has > 0 && left.is_empty() {
                return Err(Refusal::ProtocolIdWrong);
            }
        }
        let first = take_one(&mut left, random).ok_or(Refusal::NoGateway)?;
        let listener = first.listener;
        left.retain(|it| it.listener.name == listener.name && it.gateway != first.gateway);
        let mut fronts = vec![first];
        while fronts.len() < self.place.addresses {
            let Some(next) = take_one(&mut left, random) else { break };
            left.retain(|it| it.gateway != next.gateway);
            fronts.push(next);
        }
        let gateways = fronts.iter().filter_map(|it| Some((it.gateway.clone(), self.address(it)?)));
        let sound = |text: &str| Name::new(text).ok_or(Refusal::NoGateway);
        Ok(Chosen {
            backend: name.clone(),
            group: sound(&backend.group)?,
            listener: sound(&listener.name)?,
            protocol: listener.protocol.clone(),
            protocol_id: listener.protocol_id,
            token_bytes: listener.token_bytes as usize,
            takes_tags: fronts.iter().all(|it| it.listener.tags),
            gateways: gateways.collect(),
        })
    }
}

/// Whether tokens can be made for a listener: there is a protocol id, and not two of them.
fn is_protocol(told: u64, asked: Option<u64>) -> bool {
    match asked {
        Some(asked) => told == 0 || told == asked,
        None => told != 0,
    }
}

/// Takes the less busy of two out of the list.
fn take_one<'a>(left: &mut Vec<Front<'a>>, random: &mut Random) -> Option<Front<'a>> {
    if left.is_empty() {
        return None;
    }
    let load = |front: &Front<'_>| {
        (u64::from(front.told.sessions) << 16) / u64::from(front.told.capacity.max(1))
    };
    let (one, other) = (random.below(left.len()), random.below(left.len()));
    let at = if load(&left[other]) < load(&left[one]) { other } else { one };
    Some(left.swap_remove(at))
}

/// Of two refusals the one that was nearer to success: it says more.
fn nearer(one: Refusal, other: Refusal) -> Refusal {
    let rank = |it| match it {
        Refusal::NoBackend => 0,
        Refusal::NoGateway => 1,
        Refusal::NoSlot | Refusal::BackendFull => 2,
        _ => 3,
    };
    if rank(other) > rank(one) { other } else { one }
}

/// Backends that are looked at by chance before all are.
const SAMPLES: usize = 8;

//! Which gateways of the fleet an agent connects to: those of its regions, and not more than so
//! many. Those that it has stay, because their players would go with them: while they are known,
//! however many others come, and while the trunk is up when they are gone from the fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::values::{self, Stored};
use ringgate_trunk::agent::options::Gateway;

use super::Settings;
use crate::membership::unreadable::Unreadable;

/// Those that are known, and those that were chosen.
pub(super) struct Gateways {
    keyspace: Keyspace,
    agent: Name,
    regions: Vec<Name>,
    max: usize,
    /// Those of the file, which are connected to in any case.
    file: Vec<Gateway>,
    known: BTreeMap<String, Known>,
    chosen: BTreeMap<String, Gateway>,
    unreadable: Unreadable,
}

struct Known {
    region: String,
    /// Where this agent may connect.
    entrance: Option<Gateway>,
    /// How long players wait there for a game process that is gone.
    grace_ms: u64,
}

impl Gateways {
    /// None yet.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            keyspace: settings.keyspace.clone(),
            agent: settings.name.clone(),
            regions: settings.regions.clone(),
            max: settings.max_gateways,
            file: settings.gateways.clone(),
            known: BTreeMap::new(),
            chosen: BTreeMap::new(),
            unreadable: Unreadable::default(),
        }
    }

    /// The file says something else.
    pub(super) fn set(&mut self, file: Vec<Gateway>, regions: Vec<Name>, max: usize) {
        (self.file, self.regions, self.max) = (file, regions, max);
    }

    /// Those that were chosen, for the process that goes on with the agent.
    pub(super) fn chosen(&self) -> &BTreeMap<String, Gateway> {
        &self.chosen
    }

    /// Goes on with those that another process has chosen.
    pub(super) fn go_on_with(&mut self, chosen: BTreeMap<String, Gateway>) {
        self.chosen = chosen;
    }

    /// What stands at a key now.
    pub(super) fn learn(&mut self, key: &Bytes, value: Option<&[u8]>) {
        let Some(Place::Gateway(name)) = self.keyspace.place(key) else { return };
        self.known.remove(name.as_str());
        let read = value.map_or(Ok(()), |value| {
            let known = self.read(value)?;
            self.known.insert(name.as_str().to_owned(), known);
            Ok(())
        });
        self.unreadable.note(key, read);
    }

    fn read(&self, value: &[u8]) -> Result<Known, String> {
        let found = values::Gateway::decode(value).map_err(|why| why.to_string())?;
        let entrance = match found.entrance(self.agent.as_str()) {
            Some(at) => {
                Some(Gateway::parse(at).ok_or("its entrance for agents cannot be dialled")?)
            }
            None => None,
        };
        let grace_ms = found.agents.iter().map(|it| it.grace_ms).max().unwrap_or(0);
        Ok(Known { region: found.region, entrance, grace_ms })
    }

    /// Chooses again. `is_up` says whether there is a trunk.
    pub(super) fn choose(&mut self, is_up: impl Fn(&Gateway) -> bool) {
        let Self { known, chosen, regions, .. } = self;
        let candidate = |name: &str| known.get(name)?.candidate(regions);
        // One whose place is registered under another name now is called that.
        let called = |(name, at): (String, Gateway)| {
            let is_there = |it: &(&String, &Known)| it.1.candidate(regions) == Some(&at);
            let other = known.iter().find(is_there).filter(|_| !known.contains_key(&name));
            (other.map_or(name, |(other, _)| other.clone()), at)
        };
        *chosen = std::mem::take(chosen).into_iter().map(called).collect();
        chosen.retain(|name, at| match candidate(name) {
            Some(entrance) => {
                // Where it is connected, another word for its address is no reason to begin anew.
                if !is_up(at) {
                    at.clone_from(entrance);
                }
                true
            }
            None => is_up(at),
        });
        let have = chosen.keys().filter(|name| candidate(name).is_some()).count();
        let mut others: Vec<_> = known
            .iter()
            .filter(|(name, _)| !chosen.contains_key(*name))
            .filter_map(|(name, known)| {
                Some((rank(&self.agent, name), name, known.candidate(regions)?))
            })
            .collect();
        others.sort_unstable();
        let missing = self.max.saturating_sub(have);
        let more: Vec<_> = others.into_iter().take(missing).collect();
        chosen.extend(more.into_iter().map(|(_, name, at)| (name.clone(), at.clone())));
    }

    /// All that are to be connected to, each once.
    pub(super) fn wanted(&self) -> Vec<Gateway> {
        let mut all = self.file.clone();
        for gateway in self.chosen.values() {
            if !all.contains(gateway) {
                all.push(gateway.clone());
            }
        }
        all
    }

    /// The gateways of the fleet that this agent connects to, in order.
    pub(super) fn names(&self) -> Vec<String> {
        let is_dialled =
            |at: &Gateway| self.file.contains(at) || self.chosen.values().any(|it| it == at);
        let known =
            self.known.iter().filter(|(_, it)| it.entrance.as_ref().is_some_and(is_dialled));
        let names: BTreeSet<_> = known.map(|(name, _)| name).chain(self.chosen.keys()).collect();
        names.into_iter().take(values::LIST_MAX).cloned().collect()
    }

    /// What the fleet calls the gateway at an address.
    pub(super) fn name_of(&self, address: &str) -> Option<&str> {
        let known = self.known.iter().filter_map(|(name, it)| Some((name, it.entrance.as_ref()?)));
        let mut all = known.chain(&self.chosen);
        all.find(|(_, at)| at.to_string() == address).map(|(name, _)| name.as_str())
    }

    /// The longest that players wait for a game process that is gone, at any of those known.
    pub(super) fn grace_ms(&self) -> u32 {
        let longest = self.known.values().map(|it| it.grace_ms).max().unwrap_or(0);
        u32::try_from(longest).unwrap_or(u32::MAX)
    }

    /// How many are known, and values that cannot be read.
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.known.len(), self.unreadable.len()]
    }
}

impl Known {
    /// Where to connect, if it is in one of these regions.
    fn candidate(&self, regions: &[Name]) -> Option<&Gateway> {
        let is_in_region = regions.iter().any(|region| region.as_str() == self.region);
        self.entrance.as_ref().filter(|_| is_in_region)
    }
}

/// Differs from agent to agent, so that each gateway has its share of them.
fn rank(agent: &Name, gateway: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (agent.as_str(), gateway).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(max_gateways: usize) -> Settings {
        let filed = Gateway::parse("filed.example:7200").expect("sound");
        Settings { gateways: vec![filed], max_gateways, ..Settings::example() }
    }

    fn gateway(region: &str, entrances: &str) -> String {
        format!(
            r#"{{"v":1,"instance":"i","region":"{region}","host":"h","version":"1","listeners":[],"agents":[{entrances}],"capacity":1,
            "sessions":0,"draining":false,"started":1,"written":1}}"#
        )
    }

    fn any(at: &str) -> String {
        format!(r#"{{"name":"*","at":"{at}"}}"#)
    }

    fn put(gateways: &mut Gateways, name: &str, value: &str) {
        gateways.learn(&format!("/f/truth/gateway/{name}").into(), Some(value.as_bytes()));
    }

    fn gone(gateways: &mut Gateways, name: &str) {
        gateways.learn(&format!("/f/truth/gateway/{name}").into(), None);
    }

    fn wanted(gateways: &mut Gateways) -> Vec<String> {
        gateways.choose(|_| false);
        let mut all: Vec<_> = gateways.wanted().iter().map(ToString::to_string).collect();
        assert_eq!(all.remove(0), "filed.example:7200");
        all
    }

    #[test]
    fn gateways_of_the_region_that_let_this_agent_in_are_connected_to() {
        let mut gateways = Gateways::new(&settings(9));
        assert!(wanted(&mut gateways).is_empty());
        put(&mut gateways, "a", &gateway("eu", &any("a.example:1")));
        put(&mut gateways, "b", &gateway("us", &any("b.example:1")));
        put(&mut gateways, "c", &gateway("eu", ""));
        let own = format!(r#"{},{{"name":"host-7","at":"[2001:db8::1]:2"}}"#, any("d.example:1"));
        put(&mut gateways, "d", &gateway("eu", &own));
        put(&mut gateways, "e", &gateway("eu", r#"{"name":"host-8","at":"e.example:1"}"#));
        put(&mut gateways, "f", &gateway("eu", &any("nowhere")));
        put(&mut gateways, "g", "{");
        assert_eq!(wanted(&mut gateways), ["a.example:1", "[2001:db8::1]:2"]);
        assert_eq!(gateways.names(), ["a", "d"]);
        assert_eq!(gateways.name_of("[2001:db8::1]:2"), Some("d"));
        assert_eq!(gateways.counts(), [5, 2]);
        put(&mut gateways, "a", &gateway("eu", &any("a.example:9")));
        gateways.choose(|at| at.to_string() == "a.example:1");
        let dialled = gateways.wanted()[1].to_string();
        assert_eq!(dialled, "a.example:1", "its trunk goes on, whatever it is called");
        assert_eq!(gateways.name_of("a.example:1"), Some("a"));
        assert_eq!(wanted(&mut gateways)[0], "a.example:9", "it has moved");
        gone(&mut gateways, "d");
        assert_eq!(wanted(&mut gateways), ["a.example:9"]);
    }

    #[test]
    fn a_gateway_that_an_upgrade_has_given_another_name_is_called_that() {
        for region in ["eu", "us"] {
            let mut gateways = Gateways::new(&settings(1));
            put(&mut gateways, "a", &gateway("eu", &any("a.example:1")));
            assert_eq!(wanted(&mut gateways), ["a.example:1"]);
            gone(&mut gateways, "a");
            put(&mut gateways, "b", &gateway(region, &any("a.example:1")));
            put(&mut gateways, "c", &gateway("us", &any("c.example:1")));
            gateways.choose(|at| at.to_string() == "a.example:1");
            assert_eq!(gateways.name_of("a.example:1"), Some("b"), "{region}");
            assert_eq!(gateways.wanted().len(), 2, "its trunk stays");
            assert_eq!(gateways.chosen().contains_key("a"), region == "us");
        }
    }

    #[test]
    fn another_file_brings_gateways_of_its_regions_and_leaves_those_that_are_connected() {
        let mut gateways = Gateways::new(&settings(9));
        put(&mut gateways, "a", &gateway("eu", &any("a.example:1")));
        put(&mut gateways, "b", &gateway("us", &any("b.example:1")));
        assert_eq!(wanted(&mut gateways), ["a.example:1"]);
        let file = vec![Gateway::parse("filed.example:7200").expect("sound")];
        gateways.set(file, vec![Name::new("us").expect("a name")], 9);
        gateways.choose(|at| at.to_string() == "a.example:1");
        assert_eq!(gateways.names(), ["a", "b"]);
        assert_eq!(wanted(&mut gateways), ["b.example:1"], "its trunk is down");
    }

    #[test]
    fn a_gateway_of_the_file_has_its_name_in_the_fleet() {
        let mut gateways = Gateways::new(&settings(9));
        put(&mut gateways, "far", &gateway("us", &any("filed.example:7200")));
        assert!(wanted(&mut gateways).is_empty(), "once is enough");
        assert_eq!(gateways.names(), ["far"]);
        assert_eq!(gateways.name_of("filed.example:7200"), Some("far"));
    }

    #[test]
    fn who_is_connected_stays_whoever_else_comes_or_goes() {
        let mut gateways = Gateways::new(&settings(2));
        for name in ["a", "b", "c", "d"] {
            put(&mut gateways, name, &gateway("eu", &any(&format!("{name}.example:1"))));
        }
        let first = wanted(&mut gateways);
        assert_eq!(first.len(), 2);
        for name in ["e", "f", "g", "h", "i", "j"] {
            put(&mut gateways, name, &gateway("eu", &any(&format!("{name}.example:1"))));
        }
        assert_eq!(wanted(&mut gateways), first, "none is left for a better one");

        // Its registration has ended, and it still serves players: another one comes beside it.
        let leaving = first[0].split('.').next().expect("its name").to_owned();
        gone(&mut gateways, &leaving);
        gateways.choose(|at| at.to_string() == first[0]);
        let with: Vec<_> = gateways.wanted().iter().map(ToString::to_string).collect();
        assert_eq!(with.len(), 4);
        assert!(first.iter().all(|at| with.contains(at)), "{with:?}");
        assert_eq!(gateways.name_of(&first[0]), Some(leaving.as_str()));
        let without = wanted(&mut gateways);
        assert!(
            without.len() == 2 && !without.contains(&first[0]),
            "its trunk is down: {without:?}"
        );
    }

    #[test]
    fn agents_spread_over_gateways() {
        let mut counts = [0; 10];
        for agent in 0..200 {
            let mut settings = settings(3);
            settings.name = Name::new(&format!("host-{agent}")).expect("a name");
            let mut gateways = Gateways::new(&settings);
            for at in 0..10 {
                put(
                    &mut gateways,
                    &format!("g{at}"),
                    &gateway("eu", &any(&format!("g{at}.example:1"))),
                );
            }
            for gateway in wanted(&mut gateways) {
                let at: usize = gateway[1..2].parse().expect("a digit");
                counts[at] += 1;
            }
        }
        assert!(counts.iter().all(|count| (30..=90).contains(count)), "{counts:?}");
    }
}

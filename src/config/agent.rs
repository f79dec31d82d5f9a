//! `[[agent]]`: agents on other hosts that may connect, and the backends that each may serve.

use std::net::SocketAddr;
use std::path::Path;

use super::backend::Known;
use super::distinct::Distinct;
use super::identity::{self, Identity};
use super::keys::KeySources;
use super::mistake::{Place, Report};
use super::schema::LinkWord;
use super::section::Section;
use super::values;
use ringgate_trunk::agent::options::Gateway as Entrance;

/// An agent that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// What it is called, in its certificate too, or [`ANY_AGENT`]. Invariant: unique.
    pub name: String,
    /// Where it connects to, over TCP and UDP.
    pub bind: SocketAddr,
    /// What agents of the fleet are told to connect to, where that is not `bind`.
    pub public: Option<Entrance>,
    /// Who this gateway is to it. Invariant: the same for all agents of one address.
    pub identity: Identity,
    /// The backends that it may serve. Invariant: each of them once, of the file's those with a
    /// bundle link; at least one, unless the fleet says which.
    pub backends: Vec<String>,
    /// Whether it may serve those of the fleet's backends that are behind it. Invariant: true for
    /// [`ANY_AGENT`], and only in a fleet.
    pub serves_fleet: bool,
}

/// Stands for every agent of the fleet that has no table of its own.
pub const ANY_AGENT: &str = "*";

/// What has been read of the agents before.
#[derive(Default)]
pub(super) struct Before {
    names: Distinct<String>,
    /// The first agent of each address, and where it stands.
    binds: Vec<(SocketAddr, Option<Identity>, usize)>,
}

/// `has_fleet` says that there may be backends which the file does not name: the fleet's.
pub(super) fn read(
    mut section: Section<'_, '_>,
    (known, has_fleet): (&Known, bool),
    (sources, base): (&KeySources<'_>, &Path),
    before: &mut Before,
) -> Option<Agent> {
    let name = section.text("name", agent_or_any);
    if let Some((name, place)) = &name {
        before.names.check(section.report, place, name.clone());
    }
    let bind = section.text("bind", values::address);
    let place = section.place("certificate");
    let identity = identity::read(&mut section, sources, base);
    if let Some(Err(why)) = identity.as_ref().map(Identity::gateway) {
        section.report.note(&place, why);
    }
    if let Some((bind, _)) = &bind {
        before.check(*bind, identity.as_ref(), &place, section.report);
    }
    let public = section.text_or("public", None, |text| Entrance::parse(text).map(Some));
    let place = section.place("backends");
    let serves_fleet = section.is_text("backends", FLEET);
    let backends = if serves_fleet {
        section.text("backends", |_| Some(Vec::new())).map(|(none, _)| none)
    } else {
        read_backends(&mut section, known, has_fleet)
    };
    if serves_fleet && !has_fleet {
        section.report.expected(&place, "\"fleet\" without a fleet", "a table [fleet], or names");
    }
    let is_any = name.as_ref().is_some_and(|(name, _)| name == ANY_AGENT);
    if is_any && backends.is_some() && !serves_fleet {
        let found = "a list, for agents that have no table of their own";
        section.report.expected(&place, found, "\"fleet\": the fleet knows who serves what");
    }
    section.finish();
    Some(Agent {
        name: name?.0,
        bind: bind?.0,
        public: public?,
        identity: identity?,
        backends: backends?,
        serves_fleet,
    })
}

fn agent_or_any(text: &str) -> Option<String> {
    if text == ANY_AGENT { Some(text.to_owned()) } else { values::agent(text) }
}

/// In the place of a list of backends.
const FLEET: &str = "fleet";

impl Before {
    /// One address has one certificate: who connects has not said yet which agent it is.
    fn check(
        &mut self,
        bind: SocketAddr,
        identity: Option<&Identity>,
        place: &Place,
        report: &mut Report,
    ) {
        let first = self.binds.iter().find(|(at, ..)| *at == bind);
        let Some((_, known, at)) = first else {
            return self.binds.push((bind, identity.cloned(), place.at));
        };
        if known.as_ref().zip(identity).is_some_and(|(one, other)| one != other) {
            let line = report.line(*at);
            report.expected(
                place,
                format_args!("other files for {bind} than an agent before"),
                format_args!("the same ca, certificate and key for one address (line {line})"),
            );
        }
    }
}

fn read_backends(
    section: &mut Section<'_, '_>,
    known: &Known,
    has_fleet: bool,
) -> Option<Vec<String>> {
    let names = section.list("backends", |value| values::name(value.as_str()?))?;
    let mut seen = Distinct::default();
    for (name, place) in &names {
        let found = known.find(name);
        match found.map(|(_, backend)| backend.link) {
            Some(Some(LinkWord::Udp)) => {
                let found = format_args!("{name:?}, which has link = \"udp\"");
                section.report.expected(place, found, "a backend with link = \"bundle\"");
            }
            None if known.is_complete() && !has_fleet => {
                section.report.note(place, known.unknown(name));
            }
            _ => {}
        }
        seen.check(section.report, place, name.clone());
    }
    Some(names.into_iter().map(|(name, _)| name).collect())
}

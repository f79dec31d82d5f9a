//! `[[agent]]`: agents on other hosts that may connect, and the backends that each may serve.

use std::net::SocketAddr;
use std::path::Path;

use super::backend::Known;
use super::distinct::Distinct;
use super::identity::{self, Identity};
use super::mistake::{Place, Report};
use super::schema::LinkWord;
use super::section::Section;
use super::values;

/// An agent that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// What it is called, in its certificate too. Invariant: unique.
    pub name: String,
    /// Where it connects to, over TCP and UDP.
    pub bind: SocketAddr,
    /// Who this gateway is to it. Invariant: the same for all agents of one address.
    pub identity: Identity,
    /// The backends that it may serve. Invariant: at least one, each of them once, of the file's
    /// those with a bundle link.
    pub backends: Vec<String>,
}

/// What has been read of the agents before.
#[derive(Default)]
pub(super) struct Before {
    names: Distinct<String>,
    /// The first agent of each address, and where it stands.
    binds: Vec<(SocketAddr, Option<Identity>, usize)>,
}

/// `may_be_foreign` says that there may be backends which the file does not name: the fleet's.
pub(super) fn read(
    mut section: Section<'_, '_>,
    (known, may_be_foreign): (&Known, bool),
    base: &Path,
    before: &mut Before,
) -> Option<Agent> {
    let name = section.text("name", values::agent);
    if let Some((name, place)) = &name {
        before.names.check(section.report, place, name.clone());
    }
    let bind = section.text("bind", values::address);
    let place = section.place("certificate");
    let identity = identity::read(&mut section, base);
    if let Some(Err(why)) = identity.as_ref().map(Identity::gateway) {
        section.report.note(&place, why);
    }
    if let Some((bind, _)) = &bind {
        before.check(*bind, identity.as_ref(), &place, section.report);
    }
    let backends = read_backends(&mut section, known, may_be_foreign);
    section.finish();
    Some(Agent { name: name?.0, bind: bind?.0, identity: identity?, backends: backends? })
}

impl Before {
    /// One address has one certificate: who connects has not said yet which agent it is.
    fn check(
        &mut self,
        bind: SocketAddr,
        identity: Option<&Identity>,
        place: &Place,
        report: &mut Report<'_>,
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
    may_be_foreign: bool,
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
            None if known.is_complete() && !may_be_foreign => {
                section.report.note(place, known.unknown(name));
            }
            _ => {}
        }
        seen.check(section.report, place, name.clone());
    }
    Some(names.into_iter().map(|(name, _)| name).collect())
}

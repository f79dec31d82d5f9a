//! `[[agent]]`: agents on other hosts that may connect, and the backends that each may serve.

use std::net::SocketAddr;

use super::backend::Known;
use super::declare::{Declared, declare};
use super::distinct::Distinct;
use super::identity::{self, Identity, Pem};
use super::mistake::{Place, Report};
use super::schema::{DIR_BYTES_MAX, Kind, LinkWord, TRUNK_KEY, Table, example};
use super::section::{Read, Section};
use super::values;
use ringgate_trunk::agent::options::Gateway as Entrance;

declare! {
    /// An agent that may connect.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Agent {
        /// What it is called: a DNS name of its certificate. "*" stands for all agents of the fleet
        /// that have no table of their own. In a fleet it begins with a letter or a digit.
        name: String = text(
            "letters, digits, dots and hyphens, at most 31, as a host's name, or \"*\"", agent_or_any
        ), required, Reload;
        /// Where it connects to, over TCP and UDP.
        bind: SocketAddr =
            text("an IP:port such as \"192.0.2.1:7400\"", values::address), required, Reload;
        /// What agents of the fleet are told to connect to; the certificate is for this host.
        /// Without it: bind, unless that is a wildcard. ${NAME} stands for what an environment
        /// variable holds.
        public: Option<Entrance> = custom(
            Kind::Value("a host and its port, such as \"gate-1.example:7400\""), read_public
        ), optional: "gate-1.example:7400", Reload;
        /// Who may have signed the agents' certificates (PEM). Nobody else's is taken, and a reload
        /// ends the trunks of those whose signer it takes away.
        ca: Pem = custom(Kind::Path { bytes_max: DIR_BYTES_MAX }, identity::open), required, Reload;
        /// This gateway's certificate (PEM), for the host name or address that agents are told.
        /// Trunks that stand keep theirs.
        certificate: Pem =
            custom(Kind::Path { bytes_max: DIR_BYTES_MAX }, identity::open), required, Reload;
        /// Its key (PEM): a file that is closed to group and others (chmod 600), or a credential of
        /// the service.
        key: Pem = custom(Kind::Value(TRUNK_KEY), identity::closed), required, Reload;
        /// The backends that it may serve. Others are refused and counted. "fleet": those that
        /// stand in etcd as being behind it (docs/FLEET.md).
        backends: Vec<String> = by_hand(Kind::List {
            items: "names of backends with a bundle link, or \"fleet\"",
            item: "the name of a [[backend]]",
        }), required, Reload;
    }
    beside {
        /// Whether it may serve those of the fleet's backends that are behind it. Invariant: true
        /// for [`ANY_AGENT`], and only in a fleet.
        serves_fleet: bool,
    }
}

pub(super) const AGENT: Table = Table {
    repeated: true,
    examples: &[example!(
        "": name = "host-7", bind = "192.0.2.1:7400", ca = "agents-ca.pem", certificate = "gateway.pem",
        key = "gateway.key", backends = ["arena-1"]
    )],
    ..Table::new(
        "agent",
        "An agent on another host, by which game processes there are backends of this gateway \
         (docs/start/two-hosts.md). Several may have one address, and then the same certificate. \
         At most 256, those of the fleet for whom \"*\" stands included: who comes later waits.",
        &[Agent::FIELDS],
    )
};

impl Agent {
    /// Who this gateway is to it. Invariant: the same for all agents of one address.
    pub fn identity(&self) -> Identity {
        let [ca, certificate, key] = [&self.ca, &self.certificate, &self.key].map(Pem::clone);
        Identity { ca, certificate, key }
    }
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
    before: &mut Before,
) -> Option<Agent> {
    let mut found = Agent::find(&mut section);
    if let Some(name) = &found.name {
        before.names.check(section.report, &section.place("name"), name.clone());
        if has_fleet && name != ANY_AGENT {
            section.check_fleet_name(name);
        }
    }
    let files = [&found.ca, &found.certificate, &found.key].map(Option::as_ref);
    let identity = identity::whole(&mut section, files, Identity::gateway);
    if let Some(bind) = found.bind {
        let place = section.place("certificate");
        before.check(bind, identity.as_ref(), &place, section.report);
    }
    let serves_fleet = section.is_text("backends", "fleet");
    found.backends = if serves_fleet {
        section.text("backends", |_| Some(Vec::new())).map(|(none, _)| none)
    } else {
        read_backends(&mut section, known, has_fleet)
    };
    if serves_fleet && !has_fleet {
        section.expected("backends", "\"fleet\" without a fleet", "a table [fleet], or names");
    }
    let is_any = found.name.as_deref() == Some(ANY_AGENT);
    if is_any && found.backends.is_some() && !serves_fleet {
        let found = "a list, for agents that have no table of their own";
        section.expected("backends", found, "\"fleet\": the fleet knows who serves what");
    }
    found.serves_fleet = Some(serves_fleet);
    section.finish();
    Agent::whole(found)
}

pub(super) fn read_public(section: &mut Section<'_, '_>, name: &str) -> Read<Option<Entrance>> {
    section.fill(name)?;
    section.text_or(name, None, |text| Entrance::parse(text).map(Some))
}

fn agent_or_any(text: &str) -> Option<String> {
    if text == ANY_AGENT { Some(text.to_owned()) } else { values::agent(text) }
}

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
    for (index, name) in names.iter().enumerate() {
        let (found, place) = (known.find(name), section.place_in("backends", index));
        match found.map(|(_, backend)| backend.link) {
            Some(Some(LinkWord::Udp)) => {
                let found = format_args!("{name:?}, which has link = \"udp\"");
                section.report.expected(&place, found, "a backend with link = \"bundle\"");
            }
            None if known.is_complete() && !has_fleet => {
                section.report.note(&place, known.unknown(name));
            }
            _ => {}
        }
        seen.check(section.report, &place, name.clone());
    }
    Some(names)
}

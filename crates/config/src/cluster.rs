//! `[cluster]`: the gateways that share addresses with this one, and who this one is to them.

use std::net::SocketAddr;

use super::declare::{Declared, declare};
use super::identity::{self, Identity, Pem};
use super::schema::{DIR_BYTES_MAX, Kind, TRUNK_KEY, Table, example};
use super::section::Section;
use super::{Fleet, agent, values};
use ringgate_trunk::agent::options::Gateway as Entrance;
use ringgate_trunk::protocol::tls::certified_name;

declare! {
    /// The cluster that a gateway is in.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Cluster {
        /// What it is called, beginning with a letter or a digit. Gateways of one fleet and one
        /// name connect to each other.
        name: String =
            text("letters, digits, dots and hyphens, at most 31, as a host's name", values::agent), required, Restart;
        /// Where the others connect, over TCP and UDP.
        bind: SocketAddr =
            text("an IP:port such as \"10.0.7.21:4700\"", values::address), required, Restart;
        /// What the others are told to connect to. Without it: bind, which is no wildcard then.
        public: Option<Entrance> = custom(
            Kind::Value("a host and its port, such as \"gate-1.example:4700\""), agent::read_public
        ), optional: "gate-1.example:4700", Restart;
        /// Who may have signed the others' certificates (PEM). Nobody else's is taken.
        ca: Pem = custom(Kind::Path { bytes_max: DIR_BYTES_MAX }, identity::open), required, Reload;
        /// This gateway's certificate (PEM), for the name
        /// "GATEWAY.CLUSTER.ringgate-cluster", as client and as server.
        /// Connections that stand keep theirs.
        certificate: Pem =
            custom(Kind::Path { bytes_max: DIR_BYTES_MAX }, identity::open), required, Reload;
        /// Its key (PEM): a file that is closed to group and others (chmod 600), or a credential of
        /// the service.
        key: Pem = custom(Kind::Value(TRUNK_KEY), identity::closed), required, Reload;
    }
}

pub(super) const CLUSTER: Table = Table {
    examples: &[example!(
        "": name = "fra", bind = "10.0.7.21:4700", ca = "cluster-ca.pem", certificate = "member.pem",
        key = "member.key"
    )],
    ..Table::new(
        "cluster",
        "The gateways of the fleet that share addresses with this one (docs/FLEET.md). Without it no \
         other gateway connects.",
        &[Cluster::FIELDS],
    )
};

impl Cluster {
    /// Who this gateway is to the others.
    pub fn identity(&self) -> Identity {
        let [ca, certificate, key] = [&self.ca, &self.certificate, &self.key].map(Pem::clone);
        Identity { ca, certificate, key }
    }

    /// What its certificate has to be for, and whether it is.
    pub fn certified_name(&self, member: &str) -> (String, bool) {
        let name = certified_name(&self.name, member);
        let is_for = self.identity().is_for(&name);
        (name, is_for)
    }

    /// What the others are told to connect to.
    pub fn entrance(&self) -> String {
        self.public.as_ref().map_or_else(|| self.bind.to_string(), ToString::to_string)
    }
}

/// What a gateway is called in its cluster: as in its fleet. The error is one sentence.
pub fn member_name(fleet: &Fleet) -> Result<String, String> {
    let name = match &fleet.name {
        Some(name) => name.clone(),
        None => fleet.host_name()?,
    };
    values::agent(name.as_str()).ok_or_else(|| {
        format!("[cluster]: a member is called as a host is, in at most 31 characters, and fleet.name is {name}")
    })
}

pub(super) fn read(mut section: Section<'_, '_>, fleet: Option<&Fleet>) -> Option<Cluster> {
    let found = Cluster::find(&mut section);
    if let Some(name) = &found.name {
        section.check_fleet_name(name);
    }
    let files = [&found.ca, &found.certificate, &found.key].map(Option::as_ref);
    identity::whole(&mut section, files, Identity::peer);
    if let (Some(bind), Some(None)) = (found.bind, &found.public)
        && (bind.ip().is_unspecified() || bind.port() == 0)
    {
        section.expected("public", format_args!("nothing, and {bind}"), "what others dial");
    }
    match fleet.map(member_name) {
        None => section.expected("name", "a cluster without a fleet", "a table [fleet]"),
        Some(Err(why)) => section.note("name", why),
        Some(Ok(_)) => {}
    }
    section.finish();
    Cluster::whole(found)
}

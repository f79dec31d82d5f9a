//! Which agents may connect where, and what each may serve.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::protocol::control::Reason;
use crate::protocol::handshake::agent_named;
use crate::protocol::tls;
use crate::socket::Hello;

/// An agent that may connect.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name, in its certificate too. Different from all others'. One of [`NO_AGENT`] lets
    /// nobody in: its address is kept for those who may connect later.
    pub name: String,
    /// Where it connects to, as the config says it.
    pub bind: SocketAddr,
    /// Who this gateway is there: the same for all agents of one address.
    pub gateway: tls::Gateway,
    /// The backends that it may serve.
    pub backends: Vec<String>,
    /// All that there are. A link of any other is of one that is retired: it stays, with its
    /// players.
    pub known: Arc<[String]>,
}

/// What no agent can be called.
pub const NO_AGENT: &str = "*";

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) all: Vec<Rule>,
}

impl Rules {
    pub(crate) fn find(&self, name: &str) -> Option<&Rule> {
        self.agents().find(|rule| rule.name == name)
    }

    /// Those that somebody may be.
    pub(crate) fn agents(&self) -> impl Iterator<Item = &Rule> {
        self.all.iter().filter(|rule| rule.name != NO_AGENT)
    }

    /// Who this gateway is at an address.
    pub(crate) fn identity(&self, bind: SocketAddr) -> Option<&tls::Gateway> {
        self.all.iter().find(|rule| rule.bind == bind).map(|rule| &rule.gateway)
    }

    /// Who has connected at an address, if it may.
    pub(crate) fn judge(&self, bind: SocketAddr, hello: &Hello) -> Result<&Rule, Reason> {
        let there = self.agents().filter(|rule| rule.bind == bind);
        let known = there.map(|rule| (&*rule.name, rule));
        agent_named(&hello.name, |_| hello.certified.is_ok(), known)
    }
}

//! Who may say what on a trunk's stream, and when: hello first, welcome first, both once.
//!
//! TLS has proven by then that the other side has a certificate of the operator's authority. What
//! is left to decide is which agent it is, and whether its certificate is for that name.

use ringgate_link::bundle::WORKERS_MAX;

use crate::protocol::control::{Control, Reason, VERSION_MAX, VERSION_MIN, Welcome};
use crate::protocol::lane::Role;

/// How far the conversation is, at one of its ends.
#[derive(Clone, Debug)]
pub struct Conversation {
    role: Role,
    /// How many lanes there are, once both sides have introduced themselves.
    lanes: Option<u8>,
    is_over: bool,
}

ringgate_core::carried!(Conversation { role, lanes, is_over });

/// What is to be done about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameAction<'a> {
    /// The gateway decides about an agent with this name, in this version, and answers with
    /// [`Conversation::begin`].
    Decide {
        /// Who the agent says it is.
        name: &'a str,
        /// The highest version that both speak.
        version: u16,
    },
    /// The agent is welcome.
    Begin(Welcome),
    /// A record or the end of a link: for its lane, which is there.
    Lane(Control<'a>),
    /// What a gateway of a cluster says; an agent says nothing so.
    Message(&'a [u8]),
    /// Nothing is to be done.
    Nothing,
    /// The other side has ended the trunk.
    Over(Reason),
}

impl Conversation {
    /// Before the first frame.
    pub const fn new(role: Role) -> Self {
        Self { role, lanes: None, is_over: false }
    }

    /// How many lanes there are, once both sides have introduced themselves.
    pub const fn lanes(&self) -> Option<u8> {
        self.lanes
    }

    /// Whether both sides have introduced themselves.
    pub const fn has_begun(&self) -> bool {
        self.lanes.is_some()
    }

    /// At the gateway: the agent is welcome, with so many lanes.
    pub fn begin(&mut self, lanes: u8) {
        debug_assert!(self.role == Role::Gateway && usize::from(lanes) <= WORKERS_MAX && lanes > 0);
        self.lanes = Some(lanes);
    }

    /// What to do about a frame. An error ends the trunk with that reason.
    pub fn handle<'a>(&mut self, control: Control<'a>) -> Result<FrameAction<'a>, Reason> {
        if self.is_over {
            return Err(Reason::Format);
        }
        match (control, self.role, self.lanes) {
            (Control::Message(message), _, Some(_)) => Ok(FrameAction::Message(message)),
            (Control::Unknown | Control::Beat | Control::Message(_), ..) => {
                Ok(FrameAction::Nothing)
            }
            (Control::Goodbye(why), ..) | (Control::Refused(why), Role::Agent, None) => {
                self.is_over = true;
                Ok(FrameAction::Over(why))
            }
            (Control::Hello { version_min, version_max, name }, Role::Gateway, None) => {
                let version = version_max.min(VERSION_MAX);
                let is_common = version >= VERSION_MIN.max(version_min);
                if is_common {
                    Ok(FrameAction::Decide { name, version })
                } else {
                    Err(Reason::Version)
                }
            }
            (Control::Welcome(welcome), Role::Agent, None) => self.handle_welcome(welcome),
            (Control::Record { lane, .. } | Control::Ended { lane, .. }, _, Some(lanes))
                if lane < lanes =>
            {
                Ok(FrameAction::Lane(control))
            }
            _ => Err(Reason::Format),
        }
    }

    fn handle_welcome<'a>(&mut self, welcome: Welcome) -> Result<FrameAction<'a>, Reason> {
        if !(VERSION_MIN..=VERSION_MAX).contains(&welcome.version) {
            return Err(Reason::Version);
        }
        if welcome.lanes == 0 || usize::from(welcome.lanes) > WORKERS_MAX {
            return Err(Reason::Format);
        }
        self.lanes = Some(welcome.lanes);
        Ok(FrameAction::Begin(welcome))
    }
}

/// Which of the configured agents one is that says so, if its certificate is for that name.
pub fn agent_named<'a, A>(
    name: &str,
    is_certified: impl FnOnce(&str) -> bool,
    agents: impl IntoIterator<Item = (&'a str, A)>,
) -> Result<A, Reason> {
    let agent = agents.into_iter().find(|(known, _)| *known == name);
    let (_, agent) = agent.ok_or(Reason::UnknownAgent)?;
    if is_certified(name) { Ok(agent) } else { Err(Reason::ForeignName) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Control<'_> = Control::Hello { version_min: 1, version_max: 9, name: "host-7" };

    fn welcome(version: u16, lanes: u8) -> Control<'static> {
        Control::Welcome(Welcome { version, lanes, trunk: 5, incarnation: 6 })
    }

    #[test]
    fn each_side_is_introduced_once_and_first() {
        let mut gateway = Conversation::new(Role::Gateway);
        let ended = Control::Ended { lane: 1, link: 0 };
        assert_eq!(gateway.clone().handle(ended), Err(Reason::Format), "hello comes first");
        assert_eq!(gateway.handle(HELLO), Ok(FrameAction::Decide { name: "host-7", version: 1 }));
        gateway.begin(2);
        assert_eq!(gateway.clone().handle(HELLO), Err(Reason::Format));
        assert_eq!(gateway.clone().handle(welcome(1, 2)), Err(Reason::Format));
        assert_eq!(gateway.handle(ended), Ok(FrameAction::Lane(ended)));
        let beyond = Control::Ended { lane: 2, link: 0 };
        assert_eq!(gateway.handle(beyond), Err(Reason::Format), "there are two lanes");

        let mut agent = Conversation::new(Role::Agent);
        assert_eq!(agent.clone().handle(HELLO), Err(Reason::Format));
        assert!(matches!(agent.handle(welcome(1, 128)), Ok(FrameAction::Begin(_))));
        assert!(agent.has_begun());
        assert_eq!(agent.clone().handle(welcome(1, 1)), Err(Reason::Format));
        let refused = Control::Refused(Reason::UnknownAgent);
        assert_eq!(agent.handle(refused), Err(Reason::Format), "it was let in");
    }

    #[test]
    fn nothing_follows_a_goodbye() {
        let mut agent = Conversation::new(Role::Agent);
        let refused = Control::Refused(Reason::UnknownAgent);
        assert_eq!(agent.handle(refused), Ok(FrameAction::Over(Reason::UnknownAgent)));
        assert_eq!(agent.handle(Control::Beat), Err(Reason::Format));
    }

    #[test]
    fn what_is_not_spoken_is_refused() {
        let strange = Control::Hello { version_min: 2, version_max: 9, name: "x" };
        assert_eq!(Conversation::new(Role::Gateway).handle(strange), Err(Reason::Version));
        let inverted = Control::Hello { version_min: 9, version_max: 1, name: "x" };
        assert_eq!(Conversation::new(Role::Gateway).handle(inverted), Err(Reason::Version));
        for (control, why) in [
            (welcome(2, 1), Reason::Version),
            (welcome(0, 1), Reason::Version),
            (welcome(1, 0), Reason::Format),
            (welcome(1, 129), Reason::Format),
        ] {
            assert_eq!(Conversation::new(Role::Agent).handle(control), Err(why));
        }
    }

    #[test]
    fn an_agent_is_who_its_certificate_says() {
        let agents = [("host-7", 7), ("host-8", 8)];
        let only = |own: &'static str| move |name: &str| name == own;
        assert_eq!(agent_named("host-8", only("host-8"), agents), Ok(8));
        assert_eq!(agent_named("host-8", only("host-7"), agents), Err(Reason::ForeignName));
        assert_eq!(agent_named("host-9", only("host-9"), agents), Err(Reason::UnknownAgent));
    }
}

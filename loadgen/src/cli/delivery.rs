//! `--delivery`: players of a listener that delivers messages.

use super::outcome::Failure;
use crate::players::scenario::Scenario;
use crate::players::{Delivery, Protocol};

/// Whether players send messages, and on what kind of channel.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DeliveryArgs {
    /// Players of a listener with `delivery = "gateway"` send whole messages on such a channel, and
    /// every message's report is held against its echo; with `levels`, against the level that the
    /// game server sends for it. --bytes goes up to 65535 for reliable ones
    #[arg(long, value_enum, value_name = "KIND", num_args = 0..=1, default_missing_value = "reliable", conflicts_with_all = ["plain", "unreal"])]
    delivery: Option<Delivery>,
}

impl DeliveryArgs {
    /// What players speak.
    pub(super) fn over(&self, protocol: Protocol) -> Protocol {
        match (self.delivery, protocol) {
            (Some(delivery), Protocol::Netcode(tokens)) => Protocol::Messages(tokens, delivery),
            (_, protocol) => protocol,
        }
    }

    /// What is wrong with a scenario where that is spoken.
    pub(super) fn check(&self, scenario: &Scenario) -> Result<(), Failure> {
        let longest = self.delivery.map_or(PAYLOAD_BYTES_MAX, Delivery::bytes_max);
        let wrong = scenario.traffics().find_map(|traffic| traffic.check_for(longest).err());
        wrong.map_or(Ok(()), |why| Err(Failure::BadInput(why)))
    }
}

const PAYLOAD_BYTES_MAX: u16 = ringgate_core::limits::PAYLOAD_BYTES_MAX as u16;

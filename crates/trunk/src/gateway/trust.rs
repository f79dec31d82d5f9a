//! Whether an agent still is who it has proven to be, by the authorities that its gateway has now.

use crate::protocol::tls::{Gateway, Proof};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// What is known of one agent.
#[derive(Debug)]
pub(crate) struct Trust {
    /// `None` of a trunk that a process has begun which did not keep it.
    proof: Option<Proof>,
    /// The latest that has vouched for it here.
    by: Option<Gateway>,
}

impl Trust {
    pub(crate) const fn new(proof: Option<Proof>) -> Self {
        Self { proof, by: None }
    }

    /// Whether the authorities of `now` vouch for it. Where nothing can be shown to them, those of
    /// the process before are believed, and no others.
    pub(crate) fn lasts(&mut self, now: &Gateway) -> bool {
        let Self { proof, by } = self;
        let lasts = match (&*by, &*proof) {
            (Some(before), _) if now.has_authorities_of(before) => true,
            (_, Some(proof)) => now.vouches_for(proof).is_ok(),
            (before, None) => before.is_none(),
        };
        *by = Some(now.clone());
        lasts
    }

    /// Writes what another process has to know of it.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let Self { proof, by: _ } = self;
        proof.write(out);
    }

    /// Reads it, at the end of what there is to be read of a trunk.
    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let proof = if from.rest().is_empty() { None } else { Carry::read(from)? };
        Ok(Self::new(proof))
    }
}

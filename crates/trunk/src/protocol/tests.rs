//! Two ends of a lane with a network between them that loses, repeats, reorders and narrows.

mod hostile;
mod order;
mod rig;
mod seeds;
mod wire;

pub(crate) use rig::{Random, carried};

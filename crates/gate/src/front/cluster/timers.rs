//! What is due of the sessions of a cluster that one front has.

use crate::front::cluster::carried::CarriedClusters;
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::over::Burying;
use crate::front::cluster::owning::Owning;
use crate::front::cluster::rules::Clustering;
use crate::front::cluster::taking::Taking;
use crate::turn::Turn;

/// Keeps records of sessions that have come, tells arbiters of some, leaves those that were given
/// away, and says and asks again what was not answered.
pub(crate) fn look_after_cluster(front: &mut impl Clustering, turn: &mut Turn<'_>) {
    front.keep_some(turn);
    front.announce_some(turn);
    front.leave_given(turn);
    front.look_after_takeovers(turn);
    front.tell_overs(turn);
    front.look_after_doubt(turn);
}

//! Players who are known by an address alone have one session at a game process. A gateway that has
//! not heard of it begins a second one: nothing of that reaches the game process, and the gateway
//! hears which gateway has the first.

use ringgate_cluster::Player;
use ringgate_link::bundle::{Plays, SessionId, ToGame};

use super::clustered::{BURIED, is_last};
use super::clusters::{OfClusters, Waiting};
use super::{Act, Action, Broken, Game, Relay, Taken, write};
use crate::protocol::arbitration::{Reported, tenure};

impl Relay {
    /// A gateway says whose a session is whose opening follows.
    pub(super) fn note_player(&mut self, game: Game, it: &Plays) -> Result<(), Broken> {
        let (session, backend) = (self.here(it.session)?, self.name(game).into());
        if let Some(tenure) = tenure(it.tenure) {
            let player = Player { backend, name: it.player };
            self.clusters.waiting.insert(session, Waiting { game, id: it.id, tenure, player });
            self.clusters.is_used = true;
        }
        Ok(())
    }

    /// A gateway says something of a source without a slot whose player may have a session by now.
    /// Whether that goes no further.
    pub(super) fn is_second(
        &mut self,
        link: u16,
        (session, record): (SessionId, &ToGame<'_>),
        act: Act<'_>,
    ) -> bool {
        let OfClusters { waiting, arbitration: Some(arbitration), refused, .. } =
            &mut self.clusters
        else {
            return false;
        };
        let Some(Waiting { game, id, tenure, player }) = waiting.get(&session) else {
            return false;
        };
        let (game, second) = (*game, arbitration.second(player, *id, *tenure));
        if second.is_some() || is_last(record) {
            waiting.remove(&session);
        }
        if let Some(report) = &second {
            refused.fenced += 1;
            self.end_second((game, link), session, report, act);
        }
        second.is_some()
    }

    /// A player who has another session has none by this name any more. The gateway says nothing
    /// more of it, so its game process hears that here, if it knows of it.
    pub(super) fn end_second(
        &mut self,
        (game, link): (Game, u16),
        session: SessionId,
        report: &Reported,
        act: Act<'_>,
    ) {
        act(Action::Tell(link, report.frame()));
        self.end_payloads(session, act);
        let Self { places, rolls, scratch, clusters, .. } = self;
        let taken = places.get_mut(game.place()).and_then(|place| place.taken.as_mut());
        let may_know = |taken: &Taken| clusters.is_inherited || taken.knows(session);
        if let Some(taken) = taken.filter(|taken| may_know(taken))
            && !taken.leave(session, rolls.as_ref())
        {
            let frame = write(scratch, |writer| writer.closed(session, BURIED));
            act(Action::Deliver(game, frame.expect("it is short")));
        }
    }
}

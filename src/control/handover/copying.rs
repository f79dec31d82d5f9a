//! What a gateway says to a successor before the barrier, on a thread beside the control thread: it
//! tells what there is, lends the listeners' sockets, and has workers write ahead, round by round,
//! until what is left is little.

use std::os::fd::OwnedFd;

use tokio::sync::{mpsc, oneshot};

use super::super::http::Command;
use super::Prepared;
use ringgate_os::shared::Writing;
use ringgate_process::handover::{Envelope, Extent, Offers};
use ringgate_worker::Scribe;
use ringgate_worker::handover::{Early, Facts, Layout};

/// What is told and lent.
pub(super) struct Offer {
    pub(super) facts: Facts,
    /// What the successor compares itself with.
    pub(super) layout: Vec<u8>,
    /// Listeners that drain, by name.
    pub(super) draining: Vec<String>,
    pub(super) shared: Writing,
    pub(super) workers: Vec<Writing>,
    /// Where operators come in, and the next successor.
    pub(super) doors: Vec<OwnedFd>,
    pub(super) scribe: Scribe,
}

/// Talks to a successor until it has read enough, or will not. What the control thread does next.
pub(super) fn converse(mut prepared: Prepared, commands: &mpsc::Sender<Command>) -> Command {
    let Prepared { giving, offer, .. } = &mut prepared;
    if giving.converse(&mut Offering { offer, commands }) {
        return Command::HandOver(Box::new(prepared));
    }
    // What drains is handed over since the release after the first.
    if giving.successor().is_some_and(|it| !it.leaving) && !offer.draining.is_empty() {
        giving.explain(earlier_than_drains(&offer.draining));
    }
    let Prepared { giving, asked, .. } = prepared;
    asked.fail(&giving.part());
    Command::HandOverEnded
}

/// Why an earlier release has not taken over: it asks for what a reload has done already.
fn earlier_than_drains(listeners: &[String]) -> String {
    format!(
        "the successor is of an earlier release, which does not go on with what drains (listener {}): try again when that has \
         gone, or put it back",
        listeners.join(", ")
    )
}

/// A gateway that serves meanwhile.
struct Offering<'a> {
    offer: &'a mut Offer,
    commands: &'a mpsc::Sender<Command>,
}

impl Offering<'_> {
    /// Has the control thread hold still.
    fn hold_still(&self) -> Result<Early, String> {
        let (reply, answer) = oneshot::channel();
        let command = Command::HoldStill { layout: self.offer.layout.clone(), reply };
        let ends = || "the gateway ends".to_owned();
        self.commands.blocking_send(command).map_err(|_| ends())?;
        answer.blocking_recv().map_err(|_| ends())?
    }
}

impl Offers for Offering<'_> {
    fn offer(&mut self) -> Result<Envelope, String> {
        let Offer { facts, layout, shared, workers, doors, .. } = &mut *self.offer;
        let memories = [&*shared].into_iter().chain(&*workers);
        let fds = memories.map(|it| it.fd().try_clone_to_owned()).chain(doors.drain(..).map(Ok));
        let fds = fds.collect::<std::io::Result<_>>().map_err(|why| why.to_string())?;
        let layout = Layout(layout.clone().into());
        Ok(Envelope::default().with(facts.clone(), fds).with(layout, Vec::new()))
    }

    fn lend(&mut self) -> Result<Option<Envelope>, String> {
        let early = self.hold_still()?;
        let (sockets, fds) = self.offer.scribe.lend()?.into_iter().unzip();
        Ok(Some(Envelope::default().with(Early { sockets, ..early }, fds)))
    }

    fn copy(&mut self) -> Result<Option<Extent>, String> {
        let Offer { scribe, shared, workers, .. } = &mut *self.offer;
        scribe.write(shared, workers)
    }
}

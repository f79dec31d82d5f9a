//! What a member of a cluster has of players, as its thread asks for it.

use std::net::SocketAddr;
use std::sync::Arc;

use ringgate_cluster::wire::{Datagram, Offered};
use ringgate_cluster::{Incarnation, News, NoRoom, Record, SessionId};

/// Another member, by a number that it has here, below `MEMBERS_MAX`.
pub type Number = u8;

ringgate_core::named! {
    /// What became of a datagram that a member has forwarded.
    pub enum Arrival;
    /// The listener does not have the address here that it was sent to.
    Elsewhere = "elsewhere",
    /// The workers that it is for have too much to do.
    Full = "mailbox_full",
    /// It is with the worker that has the player.
    Taken = "taken",
    /// Nobody has the player here: it is with a worker, as a stranger's.
    Stray = "stray",
}

/// Players by the numbers of their listeners.
pub type Places = Vec<(u16, SocketAddr)>;

/// A session of this gateway that others are to stand by for.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// The number of its listener.
    pub listener: u16,
    /// What another gateway needs to go on with it.
    pub record: &'a Record,
    /// The member that is to go on with it now, because the player's datagrams come in there.
    pub offered_to: Option<Number>,
}

/// Where players are, here and at other members. Listeners are said by their numbers here.
pub trait Players: Send + 'static {
    /// The listeners and their numbers.
    fn listeners(&self) -> Arc<[(u16, String)]>;

    /// Takes what has changed since it was last asked, so much at the most: players, and what has
    /// become of each. Returns whether more waits.
    fn take_changes(&self, max: usize, handle: &mut dyn FnMut(u16, SocketAddr, News)) -> bool;

    /// Those who are here, and those for whom this gateway stands by, in parts from 0 on; `None`
    /// behind the last.
    fn part(&self, part: usize) -> Option<(Places, Places)>;

    /// A member has a player.
    fn learn(&self, member: Number, listener: u16, player: &SocketAddr) -> Result<(), NoRoom>;

    /// How many players a member has, as far as it has told.
    fn count(&self, member: Number) -> usize;

    /// It has it no more.
    fn unlearn(&self, member: Number, listener: u16, player: &SocketAddr);

    /// What a member has told of its players counts no more.
    fn forget_told(&self, member: Number);

    /// A member is gone: the same, and its sessions may be taken over.
    fn forget(&self, member: Number);

    /// A member that is connected does not answer: its sessions may be taken over.
    fn set_silent(&self, member: Number);

    /// It does again, and is this process: one that had its name before is gone.
    fn set_back(&self, member: Number, process: Incarnation);

    /// Which process this gateway is, once that is known: then others may stand by for its
    /// sessions.
    fn incarnation(&self) -> Option<Incarnation>;

    /// Takes what has changed of sessions that others stand by for, so much at the most: each with
    /// its listener, or `None` where it is over.
    fn take_records(&self, max: usize, handle: &mut dyn FnMut(SessionId, Option<Kept<'_>>));

    /// All of these sessions count as changed: others stand by now.
    fn renew_records(&self);

    /// These members can go on with this gateway's sessions, and are these processes.
    fn set_able(&self, members: &[(Incarnation, Number)]);

    /// Whether this gateway goes on with no sessions of others, and how many of its own it has
    /// where others are to go on with all of them.
    fn is_leaving(&self) -> (bool, Option<usize>);

    /// A member gives one of its sessions to this gateway.
    fn hear_offer(&self, member: Number, offered: &Offered);

    /// This gateway stands by for a session of a member.
    fn stand_by(&self, member: Number, listener: u16, record: Record) -> Result<(), NoRoom>;

    /// It does not any more.
    fn stand_down(&self, member: Number, session: SessionId);

    /// Forgets sessions of members that are gone for so long that nobody plays there any more.
    /// Asked now and then.
    fn expire(&self);

    /// Takes what has changed of those for whom this gateway stands by, so much at the most.
    fn take_stands(&self, max: usize, handle: &mut dyn FnMut(u16, SocketAddr, bool));

    /// A member stands by for a player.
    fn learn_stands(
        &self,
        member: Number,
        listener: u16,
        player: &SocketAddr,
    ) -> Result<(), NoRoom>;

    /// It does not any more.
    fn unlearn_stands(&self, member: Number, listener: u16, player: &SocketAddr);

    /// Takes how many datagrams of each player were accepted since this was last asked, for each
    /// member that had forwarded some of them.
    fn take_accepted(&self, handle: &mut dyn FnMut(Number, u16, SocketAddr, u32));

    /// A member accepts so many datagrams a second of a player of its own.
    fn learn_accepted(&self, member: Number, listener: u16, player: &SocketAddr, per_s: u32);

    /// Takes what workers have for other members, of each so much at the most. Returns whether more
    /// waits.
    fn take_departures(&self, max: usize, handle: &mut dyn FnMut(Number, Datagram<'_>)) -> bool;

    /// Who has the player now whose datagram a member has forwarded, where that is not this
    /// gateway. It may be that very member: the session has gone there meanwhile.
    fn onward(&self, listener: u16, datagram: &Datagram<'_>) -> Option<Number>;

    /// A member has forwarded this, to a listener here.
    fn arrive(&self, member: Number, listener: u16, datagram: &Datagram<'_>) -> Arrival;
}

//! What a member of a cluster has of players, as its thread asks for it.

use std::net::SocketAddr;
use std::sync::Arc;

use ringgate_cluster::wire::Datagram;

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

/// Where players are, here and at other members. Listeners are said by their numbers here.
pub trait Players: Send + 'static {
    /// The listeners and their numbers.
    fn listeners(&self) -> Arc<[(u16, String)]>;

    /// Takes what has changed since it was last asked, so much at the most: players, and whether
    /// each is here.
    fn take_changes(&self, max: usize, handle: &mut dyn FnMut(u16, SocketAddr, bool));

    /// Those who are here, in parts from 0 on; `None` behind the last.
    fn part(&self, part: usize) -> Option<Vec<(u16, SocketAddr)>>;

    /// A member has a player. False where there is no room for another one.
    fn learn(&self, member: Number, listener: u16, player: &SocketAddr) -> bool;

    /// It has it no more.
    fn unlearn(&self, member: Number, listener: u16, player: &SocketAddr);

    /// A member is gone.
    fn forget(&self, member: Number);

    /// Takes how many datagrams of each player were accepted since this was last asked, for each
    /// member that had forwarded some of them.
    fn take_accepted(&self, handle: &mut dyn FnMut(Number, u16, SocketAddr, u32));

    /// A member accepts so many datagrams a second of a player of its own.
    fn learn_accepted(&self, member: Number, listener: u16, player: &SocketAddr, per_s: u32);

    /// Takes what workers have for other members, of each so much at the most. Returns whether more
    /// waits.
    fn take_departures(&self, max: usize, handle: &mut dyn FnMut(Number, Datagram<'_>)) -> bool;

    /// A member has forwarded this, to a listener here.
    fn arrive(&self, member: Number, listener: u16, datagram: &Datagram<'_>) -> Arrival;
}

//! Whether anybody listens where udp backends should: asked of the kernel once a second, in a
//! thread beside the workers, and told to all of them. So no player is sent to a server that is not
//! there in order to find that out.
//!
//! On this host the kernel's table of sockets says it without a datagram (`os::diag`). Where it
//! names nobody, an empty datagram makes sure: it is refused at once, unless a rule of the firewall
//! leads elsewhere. On another host an empty datagram now and then is all there is: a host without
//! a listener refuses it, and silence means that somebody takes it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::mailbox::Post;
use ringgate_gate::{BackendId, Claims, Listening, Mail, Setup};
use ringgate_os::diag::SocketTable;

/// The thread that looks. Dropped, it ends.
pub(super) struct Watch {
    /// Closed at the end.
    setups: Option<Sender<Arc<Setup>>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Looks for the first time, and then again and again.
    pub(super) fn start(setup: Arc<Setup>, claims: Arc<Claims>, posts: Vec<Post>) -> Self {
        let (sender, setups) = mpsc::channel();
        let mut eye =
            Eye { setup, claims, posts, table: SocketTable::open().ok(), seen: HashMap::new() };
        eye.look();
        let look = move || loop {
            match setups.recv_timeout(LOOK_EVERY) {
                Ok(setup) => eye.setup = setup,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            eye.look();
        };
        let thread = std::thread::Builder::new().name("ringgate-watch".to_owned()).spawn(look);
        Self { setups: Some(sender), thread: thread.ok() }
    }

    /// Other backends.
    pub(super) fn adopt(&self, setup: &Arc<Setup>) {
        if let Some(setups) = &self.setups {
            let _ = setups.send(Arc::clone(setup));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.setups = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What looks.
struct Eye {
    setup: Arc<Setup>,
    claims: Arc<Claims>,
    posts: Vec<Post>,
    /// `None` on a kernel that does not show its table: then all hosts are asked like others.
    table: Option<SocketTable>,
    /// What is known of each backend, by its number and where it was.
    seen: HashMap<(BackendId, SocketAddr), Seen>,
}

#[derive(Default)]
struct Seen {
    /// What the workers were told.
    told: Option<bool>,
    /// Asks on other hosts.
    knocker: Option<Knocker>,
}

impl Eye {
    /// Looks at every backend, and tells the workers what has changed.
    fn look(&mut self) {
        let Self { setup, claims, posts, table, seen } = self;
        let mut known = std::mem::take(seen);
        for (id, backend) in setup.backends.pairs() {
            let Some(address) = backend.address() else { continue };
            if backend.retired && claims.players(id) == 0 {
                // Nobody waits for it, and what listens there one day may be another program.
                continue;
            }
            let key = (id, address);
            let mut one = known.remove(&key).unwrap_or_default();
            let verdict = judge(address, table.as_mut(), &mut one.knocker);
            if let Some(is_there) = verdict.filter(|_| verdict != one.told) {
                one.told = verdict;
                let news = Listening { backend: key.0, address, is_there };
                for post in &*posts {
                    post.command(Mail::Listening(news));
                }
            }
            seen.insert(key, one);
        }
    }
}

/// Whether anybody listens at an address; `None` while that is not known.
fn judge(
    address: SocketAddr,
    table: Option<&mut SocketTable>,
    knocker: &mut Option<Knocker>,
) -> Option<bool> {
    if let Some(table) = table
        && let Some(own) = own_address_toward(address)
    {
        return match table.receiver(address, own) {
            Ok(Some(_)) => Some(true),
            Ok(None) => Some(Knocker::new(address).ok()?.knock_once()),
            Err(_) => None,
        };
    }
    if knocker.is_none() {
        *knocker = Knocker::new(address).ok();
    }
    knocker.as_mut()?.knock()
}

/// Where a player's datagram to a backend on this host would come from; `None` where it is on
/// another.
fn own_address_toward(address: SocketAddr) -> Option<SocketAddr> {
    if address.ip().is_loopback() {
        let own: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::new(127, 1, 0, 1).into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        return Some(SocketAddr::new(own, ANY_PORT));
    }
    // Whatever is sent to an address of this host comes from that address.
    let own = Knocker::new(address).ok()?.socket.local_addr().ok()?;
    (own.ip() == address.ip()).then_some(own)
}

/// Sends empty datagrams from one socket, so that a server sees one sender.
struct Knocker {
    socket: UdpSocket,
    verdict: Option<bool>,
    /// A datagram left at the last look.
    has_knocked: bool,
    /// Datagrams in a row that were not refused.
    silent: u32,
    /// Looks since the last datagram.
    looks: u32,
    /// Datagrams in a row that did not leave this host.
    unsent: u32,
}

impl Knocker {
    fn new(address: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, verdict: None, has_knocked: false, silent: 0, looks: 0, unsent: 0 })
    }

    /// On this host the refusal is there when the send returns.
    fn knock_once(self) -> bool {
        self.socket.send(&[]).is_ok() && !self.hear()
    }

    /// What has become of the last datagram, and another one if it is time: at every look until one
    /// is taken, then now and then.
    fn knock(&mut self) -> Option<bool> {
        if self.hear() {
            (self.verdict, self.silent) = (Some(false), 0);
        } else if self.has_knocked {
            self.silent += 1;
            // Hosts send few refusals a second: one that did not come says little.
            let wanted = if self.verdict == Some(false) { SILENCE_TO_RETURN } else { 1 };
            self.verdict = if self.silent >= wanted { Some(true) } else { self.verdict };
        }
        self.looks += 1;
        let is_due = self.verdict != Some(true) || self.looks >= KNOCK_EVERY;
        self.has_knocked = false;
        if is_due {
            let sent = self.socket.send(&[]);
            self.has_knocked = sent.is_ok();
            (self.looks, self.unsent) =
                if self.has_knocked { (0, 0) } else { (KNOCK_EVERY, self.unsent + 1) };
            let is_refused = sent.is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused);
            if is_refused || self.unsent >= UNSENT_MAX {
                (self.verdict, self.silent) = (Some(false), 0);
            }
        }
        self.verdict
    }

    /// Takes in what has come. Returns whether a datagram was refused.
    fn hear(&self) -> bool {
        let mut is_refused = false;
        for _ in 0..ANSWERS_MAX {
            match self.socket.recv(&mut [0; 1]) {
                Ok(_) => {}
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => is_refused = true,
            }
        }
        is_refused
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks between two empty datagrams to a server on another host.
const KNOCK_EVERY: u32 = 2;

/// Datagrams that a server which was gone has to take before it counts as back.
const SILENCE_TO_RETURN: u32 = 2;

/// So many datagrams in a row that do not leave say that nobody can be sent there. One says nothing
/// of the server: an interface has come up again, or a table of connections was full.
const UNSENT_MAX: u32 = 3;

/// Answers and refusals that are taken in at one look.
const ANSWERS_MAX: usize = 16;

/// A player's port on the udp link, as good as any.
const ANY_PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_that_does_not_leave_says_nothing_of_a_server_unless_that_goes_on() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let mut knocker = Knocker::new(server.local_addr().expect("bound")).expect("loopback");
        assert_eq!([(); 2].map(|()| knocker.knock()), [None, Some(true)]);
        let nowhere = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        nowhere.set_nonblocking(true).expect("it can");
        let connected = std::mem::replace(&mut knocker.socket, nowhere);
        assert_eq!([(); 3].map(|()| knocker.knock()), [true, true, false].map(Some));
        knocker.socket = connected;
        assert_eq!([(); 3].map(|()| knocker.knock()), [false, false, true].map(Some));
    }
}

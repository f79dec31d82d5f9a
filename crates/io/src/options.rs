//! Which driver is wanted, and how large it is.

/// Which driver is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// io_uring where it works, else `recvmmsg`.
    #[default]
    Auto,
    /// `recvmmsg` and `sendmmsg`.
    Mmsg,
    /// io_uring, or an error that says why not.
    Uring,
}

/// How large a driver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Receive slots for datagrams, a power of two: the most that one turn takes in. They are used
    /// in rotation, so all of them should stay in the cache beside everything else that a turn
    /// touches. What is more waits in the sockets.
    pub small_slots: u16,
    /// Receive slots for bundles, a power of two.
    pub large_slots: u16,
    /// Sockets that are registered with an io_uring, which saves the kernel a look-up per request
    /// (1 %). Further sockets do without. Takes no more than `RLIMIT_NOFILE`.
    pub registered_sockets: u16,
    /// Datagrams that leave in one flush: by default twice as many as one system call takes, few
    /// enough that a core's first caches still hold what was written when it is sealed and sent.
    pub tx_datagrams: u16,
    /// Bundles that leave in one flush, one for each backend with traffic in the turn; more
    /// backends than this flush twice.
    pub tx_bundles: u16,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self {
            small_slots: 64,
            large_slots: 16,
            registered_sockets: 1024,
            tx_datagrams: 128,
            tx_bundles: 64,
        }
    }
}

//! The ring itself: setup with whatever flags the kernel knows, and the one system call of a turn.
//!
//! The ring is made disabled and enabled by the thread that takes the first turn. From then on it
//! is that thread's alone (`SINGLE_ISSUER`), which lets the kernel skip locks and run completions
//! when we ask for them and never in between (`DEFER_TASKRUN`).

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, squeue};

/// A ring, and how to enter it.
pub(super) struct Ring {
    inner: IoUring,
    /// The number to enter it by: of the descriptor, or of its registration with this thread, which
    /// saves the kernel a look-up per call.
    handle: i32,
    flags: EnterFlags,
    enabled: bool,
}

/// How an [`enter`](Ring::enter) went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// Submitted; completions may be there.
    Done,
    /// The kernel wants completions reaped before it takes more (EBUSY), or is out of memory for
    /// requests (EAGAIN).
    Busy,
}

impl Ring {
    /// Sets up a ring, still disabled. Tries the flags of newer kernels first.
    pub(super) fn open(submissions: u32, completions: u32) -> io::Result<Self> {
        let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
        for flags in FLAGS {
            match Self::open_with(flags, submissions, completions) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => refused = e,
                result => return result,
            }
        }
        Err(refused)
    }

    /// Sets up a ring with these flags and no others.
    pub(super) fn open_with(
        flags: fn(&mut Builder),
        submissions: u32,
        completions: u32,
    ) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        flags(&mut builder);
        builder.setup_r_disabled().setup_submit_all().setup_cqsize(completions).dontfork();
        let inner = builder.build(submissions)?;
        let handle = inner.as_raw_fd();
        Ok(Self { inner, handle, flags: EnterFlags::GETEVENTS, enabled: false })
    }

    /// Has the kernel refuse every other request and registration from [`enable`](Self::enable) on
    /// (`EACCES`). A ring does the work of many system calls, files and connections among them,
    /// which no seccomp filter sees: so whoever takes a worker over should find one that can do
    /// what a worker does.
    pub(super) fn restrict(&self, codes: &[u8], flags: squeue::Flags) -> io::Result<()> {
        let requests = codes.iter().map(|code| Restriction::sqe_op(*code));
        let registrations = REGISTRATIONS.iter().map(|code| Restriction::register_op(*code));
        let flags = Restriction::sqe_flags_allowed(flags.bits());
        let mut all: Vec<_> = requests.chain(registrations).chain([flags]).collect();
        self.submitter().register_restrictions(&mut all)
    }

    /// Enables the ring for the calling thread, once.
    pub(super) fn enable(&mut self) -> io::Result<()> {
        if self.enabled {
            return Ok(());
        }
        self.inner.submitter().register_enable_rings()?;
        self.enabled = true;
        if let Some(index) = register_ring_fd(self.inner.as_raw_fd()) {
            self.handle = index;
            self.flags |= EnterFlags::REGISTERED_RING;
        }
        Ok(())
    }

    /// Whether it has been enabled.
    pub(super) const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// For registrations.
    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.inner.submitter()
    }

    /// Queues requests that belong together, all or none. Returns whether there was room.
    ///
    /// # Safety
    /// Whatever the requests point to stays alive and unmoved until they are submitted, and buffers
    /// they may write to until their last completion.
    pub(super) unsafe fn push(&mut self, entries: &[squeue::Entry]) -> bool {
        let mut queue = self.inner.submission();
        // SAFETY: passed on to the caller.
        unsafe { queue.push_multiple(entries) }.is_ok()
    }

    /// Whether an enter would do anything without waiting: submit, run completions, or fetch those
    /// that overflowed.
    pub(super) fn has_work(&mut self) -> bool {
        let queue = self.inner.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Submits what is queued, runs what has completed and, if told to, waits for at least one
    /// completion.
    pub(super) fn enter(&mut self, at_most: Option<Duration>) -> io::Result<Entered> {
        let submissions = self.inner.submission().len() as u32;
        let result = match at_most {
            None => {
                let nothing = None::<&SubmitArgs<'_, '_>>;
                enter(self.handle, submissions, 0, self.flags, nothing)
            }
            Some(time) => {
                let time = Timespec::from(time);
                let args = SubmitArgs::new().timespec(&time);
                let flags = self.flags | EnterFlags::EXT_ARG;
                enter(self.handle, submissions, 1, flags, Some(&args))
            }
        };
        match result {
            Ok(()) => Ok(Entered::Done),
            Err(e) => match e.raw_os_error() {
                Some(libc::EINTR | libc::ETIME) => Ok(Entered::Done),
                Some(libc::EBUSY | libc::EAGAIN) => Ok(Entered::Busy),
                _ => Err(e),
            },
        }
    }

    /// The next completion.
    #[inline]
    pub(super) fn completion(&mut self) -> Option<cqueue::Entry> {
        self.inner.completion().next()
    }

    /// Whether completions have found no room in their queue. The kernel keeps them until there is
    /// some (Linux 5.5).
    pub(super) fn has_overflowed(&mut self) -> bool {
        self.inner.submission().cq_overflow()
    }

    /// Whether completions were lost, because the kernel had no memory to keep them in.
    pub(super) fn has_lost_completions(&mut self) -> bool {
        self.inner.completion().overflow() > 0
    }

    /// Cancels requests and waits until they are. Returns whether none is left.
    pub(super) fn cancel(&self, which: CancelBuilder) -> bool {
        if !self.enabled {
            return true;
        }
        match self.submitter().register_sync_cancel(None, which) {
            Ok(()) => true,
            Err(e) => e.raw_os_error() == Some(libc::ENOENT),
        }
    }
}

ringgate_core::shown_by!(Ring { enabled });

/// From the newest kernels to the oldest that can do what we need.
pub(super) const FLAGS: [fn(&mut Builder); 3] = [with_linux_6_6, with_linux_6_1, with_linux_6_0];

/// Without the indirection array of the submission queue.
fn with_linux_6_6(builder: &mut Builder) {
    with_linux_6_1(builder);
    builder.setup_no_sqarray();
}

/// Completions run when we enter; a flag in shared memory tells when there are any.
fn with_linux_6_1(builder: &mut Builder) {
    builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
}

/// Completions run at the next transition to the kernel, whichever it is.
fn with_linux_6_0(builder: &mut Builder) {
    builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
}

/// What is registered while a ring runs: sockets that come and go, cancellations, the ring itself
/// (`io_uring_register(2)`).
const REGISTRATIONS: [u8; 4] = [
    3,  // IORING_UNREGISTER_FILES
    6,  // IORING_REGISTER_FILES_UPDATE
    20, // IORING_REGISTER_RING_FDS
    24, // IORING_REGISTER_SYNC_CANCEL
];

/// `io_uring_enter(2)`. The crate's own wrapper cannot keep a registered descriptor from call to
/// call.
fn enter(
    handle: i32,
    submissions: u32,
    wanted: u32,
    flags: EnterFlags,
    args: Option<&SubmitArgs<'_, '_>>,
) -> io::Result<()> {
    let (pointer, bytes) = match args {
        Some(args) => (std::ptr::from_ref(args), size_of_val(args)),
        None => (std::ptr::null(), 0),
    };
    // SAFETY: `args`, a transparent wrapper of the kernel's struct, and the time it points to
    // outlive the call. What the submitted requests point to is vouched for where they were pushed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            handle,
            submissions,
            wanted,
            flags.bits(),
            pointer,
            bytes,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Registers the ring with the calling thread (Linux 5.18). `None` where that is not possible; it
/// only costs a little.
fn register_ring_fd(ring: RawFd) -> Option<i32> {
    const IORING_REGISTER_RING_FDS: u32 = 20;
    const ANY_INDEX: u32 = u32::MAX;
    /// `struct io_uring_rsrc_update`.
    #[repr(C)]
    struct Update {
        offset: u32,
        reserved: u32,
        data: u64,
    }
    let mut update = Update { offset: ANY_INDEX, reserved: 0, data: ring as u64 };
    // SAFETY: one live update of the kernel's layout, which the kernel writes the index into.
    let registered = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            IORING_REGISTER_RING_FDS,
            &raw mut update,
            1,
        )
    };
    (registered == 1).then_some(update.offset as i32)
}

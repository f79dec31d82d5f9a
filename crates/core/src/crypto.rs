//! ChaCha20-Poly1305 over batches of packets that belong to different sessions.
//!
//! A batch is a slice of [`Job`]s: each has its own key, nonce, associated data and buffer, and
//! gets its own verdict. Callers never choose a kernel: an [`Aead`] does, once, from what the CPU
//! offers.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod batch;
pub mod cookie;
mod in_use;
mod job;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod poly;
mod portable;
#[cfg(test)]
mod tests;
pub mod token;
#[cfg(target_arch = "x86_64")]
mod wide;

use self::in_use::KernelInUse;
pub use self::job::{Job, Nonce, Verdict};
pub use self::kernel::{ENV as KERNEL_ENV, Kernel, KernelError};
pub use crate::secret::Key;

/// Seals and opens batches. Each worker owns one.
#[derive(Debug)]
pub struct Aead {
    in_use: KernelInUse,
}

impl Aead {
    /// The kernel that the environment asks for ([`KERNEL_ENV`]) if this CPU can run it, the best
    /// one otherwise.
    pub fn detect() -> Self {
        Self::from_env().unwrap_or_else(|_| {
            Self::with_kernel(Kernel::best()).expect("the best kernel is one that this CPU can run")
        })
    }

    /// The kernel that the environment asks for, an error if that cannot be; the best one where
    /// nothing is asked for.
    pub fn from_env() -> Result<Self, KernelError> {
        Kernel::from_env().and_then(Self::with_kernel)
    }

    /// This kernel and no other.
    pub fn with_kernel(kernel: Kernel) -> Result<Self, KernelError> {
        let in_use = KernelInUse::new(kernel).ok_or(KernelError::Unavailable(kernel))?;
        Ok(Self { in_use })
    }

    /// The kernel in use, for status output.
    pub const fn kernel(&self) -> Kernel {
        self.in_use.kernel()
    }

    /// Encrypts every job in place and writes its tag.
    pub fn seal(&mut self, jobs: &mut [Job<'_>]) {
        self.in_use.seal(jobs);
    }

    /// Passes on the key and nonce under which each token is an ordinary job, in order.
    pub fn derive(
        &mut self,
        tokens: &[(&Key, &token::TokenNonce)],
        mut pass_on: impl FnMut(Key, Nonce),
    ) {
        self.in_use.derive(tokens, &mut pass_on);
    }

    /// Verifies every job and decrypts those that are authentic; the others keep their bytes.
    pub fn open(&mut self, jobs: &mut [Job<'_>]) {
        self.in_use.open(jobs);
    }
}

impl Default for Aead {
    fn default() -> Self {
        Self::detect()
    }
}

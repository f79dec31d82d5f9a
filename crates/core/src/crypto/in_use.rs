//! The cipher kernel in use: the only place that names them all.

use std::sync::OnceLock;

use super::kernel::{ENV, KernelError};
use super::token::{self, TokenNonce};
use super::{Job, Kernel, Key, Nonce, portable};
#[cfg(target_arch = "x86_64")]
use super::{
    avx2::Avx2,
    avx512::{
        Avx512,
        ifma::{Ifma, Width},
    },
    batch::Batch,
};

impl Kernel {
    /// Whether this CPU can run it.
    pub fn is_available(self) -> bool {
        KernelInUse::new(self).is_some()
    }

    /// The best kernel that this CPU can run. Found out once: asking takes a kernel's memory, and
    /// every token that is minted or read alone makes an [`Aead`](super::Aead).
    pub fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        let find = || Self::ALL.into_iter().find(|kernel| kernel.is_available());
        *BEST.get_or_init(|| find().unwrap_or(Self::Portable))
    }

    /// What [`ENV`] asks for, whether this CPU can run it or not; the best kernel where nothing is
    /// asked for.
    pub fn from_env() -> Result<Self, KernelError> {
        match std::env::var_os(ENV) {
            None => Ok(Self::best()),
            Some(name) => name.to_str().ok_or(KernelError::Unknown)?.parse(),
        }
    }
}

/// A cipher kernel that this CPU can run, with its memory.
#[derive(Debug)]
pub(super) enum KernelInUse {
    #[cfg(target_arch = "x86_64")]
    Avx2(Batch<Avx2>),
    #[cfg(target_arch = "x86_64")]
    Avx512(Batch<Avx512>),
    #[cfg(target_arch = "x86_64")]
    Ifma(Batch<Ifma>),
    Portable,
}

impl KernelInUse {
    /// `None` where the CPU cannot run the kernel.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn new(kernel: Kernel) -> Option<Self> {
        match kernel {
            Kernel::Avx2 => Avx2::detect().map(Batch::new).map(Self::Avx2),
            Kernel::Avx512 => Avx512::detect().map(Batch::new).map(Self::Avx512),
            Kernel::Avx512Ifma => Self::ifma(Width::Zmm),
            Kernel::Avx512Ifma256 => Self::ifma(Width::Ymm),
            Kernel::Portable => Some(Self::Portable),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn ifma(width: Width) -> Option<Self> {
        Ifma::detect(width).map(Batch::new).map(Self::Ifma)
    }

    /// `None` where the CPU cannot run the kernel.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn new(kernel: Kernel) -> Option<Self> {
        (kernel == Kernel::Portable).then_some(Self::Portable)
    }

    pub(super) const fn kernel(&self) -> Kernel {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Kernel::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Kernel::Avx512,
            #[cfg(target_arch = "x86_64")]
            Self::Ifma(batch) => match batch.kernel().width() {
                Width::Ymm => Kernel::Avx512Ifma256,
                Width::Zmm => Kernel::Avx512Ifma,
            },
            Self::Portable => Kernel::Portable,
        }
    }

    pub(super) fn seal(&mut self, jobs: &mut [Job<'_>]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(batch) => batch.seal(jobs),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(batch) => batch.seal(jobs),
            #[cfg(target_arch = "x86_64")]
            Self::Ifma(batch) => batch.seal(jobs),
            Self::Portable => jobs.iter_mut().for_each(portable::seal),
        }
    }

    pub(super) fn derive(
        &mut self,
        tokens: &[(&Key, &TokenNonce)],
        pass_on: &mut dyn FnMut(Key, Nonce),
    ) {
        // A set of lanes costs as much for one token as for eight.
        if let [(key, nonce)] = tokens {
            let (subkey, nonce) = token::derive(key, nonce);
            return pass_on(subkey, nonce);
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(batch) => batch.derive(tokens, pass_on),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(batch) => batch.derive(tokens, pass_on),
            #[cfg(target_arch = "x86_64")]
            Self::Ifma(batch) => batch.derive(tokens, pass_on),
            Self::Portable => {
                for (key, nonce) in tokens {
                    let (subkey, nonce) = token::derive(key, nonce);
                    pass_on(subkey, nonce);
                }
            }
        }
    }

    pub(super) fn open(&mut self, jobs: &mut [Job<'_>]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(batch) => batch.open(jobs),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(batch) => batch.open(jobs),
            #[cfg(target_arch = "x86_64")]
            Self::Ifma(batch) => batch.open(jobs),
            Self::Portable => jobs.iter_mut().for_each(portable::open),
        }
    }
}

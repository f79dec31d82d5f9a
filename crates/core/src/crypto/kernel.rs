//! The ways this crate can compute ChaCha20-Poly1305, and which of them a machine should use.
//!
//! All kernels give the same bytes; they differ in what the CPU must offer. The best one is chosen
//! once, when an [`Aead`](super::Aead) is made. [`ENV`] overrides the choice, for tests and for
//! operators who want to compare.

use std::fmt;
use std::str::FromStr;

/// Environment variable that forces a kernel by name.
pub const ENV: &str = "RINGGATE_AEAD";

crate::named! {
    /// One implementation of the batch cipher, the best first: the best for a program that does
    /// other things most of its time. The names are those that [`ENV`] and the status output use.
    ///
    /// Dense multiplications in 512-bit registers, where they alternate with other work, make that
    /// work slower, too. [`Avx512Ifma`](Self::Avx512Ifma) is the fastest where nothing but packets
    /// are opened and sealed; a gateway is better off without it. docs/BENCHMARKS.md has both
    /// measured.
    #[non_exhaustive]
    pub enum Kernel;
    /// 512-bit registers, but 52-bit multiplication in 256-bit ones.
    Avx512Ifma256 = "avx512-ifma256",
    /// 512-bit registers.
    Avx512 = "avx512",
    /// 512-bit registers and 52-bit multiplication in them.
    Avx512Ifma = "avx512-ifma",
    /// 256-bit registers.
    Avx2 = "avx2",
    /// One packet at a time in portable Rust.
    Portable = "portable",
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kernel {
    type Err = KernelError;

    fn from_str(name: &str) -> Result<Self, KernelError> {
        Self::named(name).ok_or(KernelError::Unknown)
    }
}

/// Why a kernel that was asked for cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelError {
    /// This CPU lacks an instruction set that the kernel needs.
    Unavailable(Kernel),
    /// No kernel has this name.
    Unknown,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(kernel) => {
                write!(f, "the {kernel} cipher kernel needs instructions that this CPU lacks; ")?;
            }
            Self::Unknown => f.write_str("no cipher kernel has this name; ")?,
        }
        write!(f, "unset {ENV} or choose one of")?;
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()) {
            write!(f, " {kernel}")?;
        }
        Ok(())
    }
}

impl std::error::Error for KernelError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_others_are_refused_with_the_choices() {
        for kernel in Kernel::ALL {
            assert_eq!(kernel.name().parse(), Ok(kernel));
        }
        let refusal = "sse9".parse::<Kernel>().expect_err("not a kernel");
        assert!(refusal.to_string().ends_with("portable"), "{refusal}");
    }

    #[test]
    fn the_best_kernel_is_available() {
        assert!(Kernel::best().is_available());
    }

    /// Whole test runs are repeated with each kernel: this one says that they are.
    #[test]
    fn the_kernel_in_use_is_the_one_that_the_environment_asks_for() {
        let asked = Kernel::from_env().expect("the name of a kernel");
        let expected = if asked.is_available() { asked } else { Kernel::best() };
        assert_eq!(super::super::Aead::detect().kernel(), expected);
    }
}

//! The kernels' instruction sets, and the choice among them at run time.
use pulp::{Simd, WithSimd};

/// An instruction set of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Isa(Set);

#[derive(Debug, Clone, Copy)]
enum Set {
    /// The compiler's target, eight float32 at a time.
    Portable(pulp::Scalar256b),
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    #[cfg(target_arch = "x86_64")]
    Avx512(pulp::x86::V4),
    #[cfg(target_arch = "aarch64")]
    Neon(pulp::aarch64::Neon),
}

impl Isa {
    /// Returns all sets of this machine, the best last.
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Set::Portable(pulp::Scalar256b)];
        #[cfg(target_arch = "x86_64")]
        {
            sets.extend(pulp::x86::V3::try_new().map(Set::Avx2));
            sets.extend(pulp::x86::V4::try_new().map(Set::Avx512));
        }
        #[cfg(target_arch = "aarch64")]
        sets.extend(pulp::aarch64::Neon::try_new().map(Set::Neon));
        sets.into_iter().map(Self).collect()
    }

    /// Returns the best set of this machine.
    pub fn best() -> Self {
        let portable = Self(Set::Portable(pulp::Scalar256b));
        Self::available().pop().unwrap_or(portable)
    }

    /// Returns `portable`, `avx2`, `avx512` or `neon`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => "neon",
        }
    }

    /// Runs `op`, compiled for this set.
    #[inline(always)]
    pub fn run<Op: WithSimd>(self, op: Op) -> Op::Output {
        match self.0 {
            Set::Portable(simd) => simd.vectorize(op),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(simd) => Simd::vectorize(simd, op),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(simd) => Simd::vectorize(simd, op),
            #[cfg(target_arch = "aarch64")]
            Set::Neon(simd) => Simd::vectorize(simd, op),
        }
    }
}

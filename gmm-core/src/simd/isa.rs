//! The kernels' instruction sets, and the choice among them at run time.
use crate::reproducible::Reproducible;
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
    /// Sixteen float32 at a time and fused multiply-adds, which give the same bits everywhere.
    Same(pulp::Scalar512b),
    #[cfg(target_arch = "x86_64")]
    SameAvx2(pulp::x86::V3_512b),
    #[cfg(target_arch = "x86_64")]
    SameAvx512(pulp::x86::V4),
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

    /// Returns the sets whose code gives the same bits on every machine.
    pub fn reproducible() -> Vec<Self> {
        let sets = [
            Some(Set::Same(pulp::Scalar512b)),
            #[cfg(target_arch = "x86_64")]
            pulp::x86::V3::try_new().map(|simd| Set::SameAvx2(pulp::x86::V3_512b(simd))),
            #[cfg(target_arch = "x86_64")]
            pulp::x86::V4::try_new().map(Set::SameAvx512),
        ];
        sets.into_iter().flatten().map(Self).collect()
    }

    /// Returns the fastest set of this machine; under [`Reproducible`] the fastest reproducible one.
    pub fn best() -> Self {
        let (mut sets, portable) = match Reproducible::is_on() {
            true => (Self::reproducible(), Set::Same(pulp::Scalar512b)),
            false => (Self::available(), Set::Portable(pulp::Scalar256b)),
        };
        sets.pop().unwrap_or(Self(portable))
    }

    /// Returns `portable`, `avx2`, `avx512` or `neon`, with `reproducible-` before it for a reproducible set.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => "neon",
            Set::Same(_) => "reproducible-portable",
            #[cfg(target_arch = "x86_64")]
            Set::SameAvx2(_) => "reproducible-avx2",
            #[cfg(target_arch = "x86_64")]
            Set::SameAvx512(_) => "reproducible-avx512",
        }
    }

    /// Runs `op`, compiled for this set.
    #[inline(always)]
    pub fn run<Op: WithSimd>(self, op: Op) -> Op::Output {
        match self.0 {
            Set::Portable(simd) => vectorize(simd, op),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(simd) => vectorize(simd, op),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(simd) | Set::SameAvx512(simd) => vectorize(simd, op),
            #[cfg(target_arch = "aarch64")]
            Set::Neon(simd) => vectorize(simd, op),
            Set::Same(simd) => vectorize(simd, op),
            #[cfg(target_arch = "x86_64")]
            Set::SameAvx2(simd) => vectorize(simd, op),
        }
    }
}

/// Runs `op` on the registers of `simd`, compiled for its instruction set. (`Simd::vectorize` takes
/// narrower registers for those that are made of two.)
#[inline(always)]
pub fn vectorize<S: Simd, Op: WithSimd>(simd: S, op: Op) -> Op::Output {
    struct On<S, Op>(S, Op);
    impl<S: Simd, Op: WithSimd> WithSimd for On<S, Op> {
        type Output = Op::Output;

        #[inline(always)]
        fn with_simd<Narrower: Simd>(self, _: Narrower) -> Op::Output {
            self.1.with_simd(self.0)
        }
    }
    Simd::vectorize(simd, On(simd, op))
}

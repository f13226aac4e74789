//! What both device homes share: PTX instructions that Rust has no function for.
use core::arch::asm;

/// a·b + c, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(feature = "rust-cuda")]
    return cuda_std::GpuFloat::mul_add(a, b, c);
    #[cfg(not(feature = "rust-cuda"))]
    core::f32::math::mul_add(a, b, c)
}

/// 2^x by the special function unit: 2 ulp, 0 below 2^-126.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("ex2.approx.ftz.f32 {}, {};", out(reg32) y, in(reg32) x, options(pure, nomem, nostack)) };
    y
}

/// log₂ x by the special function unit: absolute error 2^-22 for x in (0.5, 2), relative 2^-22 elsewhere.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("lg2.approx.ftz.f32 {}, {};", out(reg32) y, in(reg32) x, options(pure, nomem, nostack)) };
    y
}

/// The larger of two numbers.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("max.f32 {}, {}, {};", out(reg32) y, in(reg32) a, in(reg32) b, options(pure, nomem, nostack)) };
    y
}

/// The smaller of two numbers.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("min.f32 {}, {}, {};", out(reg32) y, in(reg32) a, in(reg32) b, options(pure, nomem, nostack)) };
    y
}

/// The largest integer not above x, as a number.
#[inline(always)]
pub fn floor(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("cvt.rmi.f32.f32 {}, {};", out(reg32) y, in(reg32) x, options(pure, nomem, nostack)) };
    y
}

/// How long the L2 cache should keep what a load brings in.
#[derive(Clone, Copy)]
pub struct CachePolicy(u64);

/// Keep: the next launch reads it again.
#[inline(always)]
pub fn policy_keep() -> CachePolicy {
    let p: u64;
    // SAFETY: makes a cache policy descriptor.
    unsafe { asm!("createpolicy.fractional.L2::evict_last.b64 {}, 1.0;", out(reg64) p, options(pure, nomem, nostack)) };
    CachePolicy(p)
}

/// Stream: let it go first.
#[inline(always)]
pub fn policy_stream() -> CachePolicy {
    let p: u64;
    // SAFETY: makes a cache policy descriptor.
    unsafe { asm!("createpolicy.fractional.L2::evict_first.b64 {}, 1.0;", out(reg64) p, options(pure, nomem, nostack)) };
    CachePolicy(p)
}

/// Four numbers in one 16-byte read of global memory that no thread writes during the launch.
///
/// # Safety
/// `p` is aligned to 16 bytes and readable for 16 bytes.
#[inline(always)]
pub unsafe fn load4(p: *const f32, policy: CachePolicy) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.global.nc.L2::cache_hint.v4.f32 {{{}, {}, {}, {}}}, [{}], {};",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) p, in(reg64) policy.0, options(pure, readonly, nostack));
    }
    [a, b, c, d]
}

/// Four numbers in one 16-byte read of shared memory.
///
/// # Safety
/// `p` is aligned to 16 bytes and readable for 16 bytes, and points into shared memory.
#[inline(always)]
pub unsafe fn shared4(p: *const f32) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    // SAFETY: the caller's. The state space is named, because a generic access is slower.
    unsafe {
        asm!("{{ .reg .u64 t; cvta.to.shared.u64 t, {4}; ld.shared.v4.f32 {{{0}, {1}, {2}, {3}}}, [t]; }}",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) p, options(pure, readonly, nostack));
    }
    [a, b, c, d]
}

/// The value of `x` in the lane `by` above (the own one past the end); all lanes of the warp take part.
#[inline(always)]
pub fn shuffle_down_u32(x: u32, by: u32) -> u32 {
    let y: u32;
    // SAFETY: exchanges registers within the warp; every lane takes part (the kernels' contract).
    unsafe { asm!("shfl.sync.down.b32 {}, {}, {}, 31, -1;", out(reg32) y, in(reg32) x, in(reg32) by, options(nomem, nostack)) };
    y
}

/// Adds `v` to the counter at `p`, and returns its former value. What the thread wrote to global memory before is
/// visible to whoever reads the new value, and the other way round.
///
/// # Safety
/// `p` is an aligned counter in global memory that is only accessed atomically.
#[inline(always)]
pub unsafe fn count_up(p: *mut u32, v: u32) -> u32 {
    let old: u32;
    // SAFETY: the caller's.
    unsafe { asm!("fence.acq_rel.gpu; atom.add.relaxed.gpu.global.u32 {}, [{}], {}; fence.acq_rel.gpu;", out(reg32) old, in(reg64) p, in(reg32) v, options(nostack)) };
    old
}

/// Writes a value that the host may poll.
///
/// # Safety
/// `p` is an aligned, writable address of device memory or mapped host memory.
#[inline(always)]
pub unsafe fn publish(p: *mut f64, v: f64) {
    // SAFETY: the caller's.
    unsafe { asm!("st.relaxed.sys.global.f64 [{}], {};", in(reg64) p, in(reg64) v, options(nostack)) };
}

/// Reads what another block wrote in this launch (never from a stale cache line).
///
/// # Safety
/// `p` is an aligned, readable address of global memory.
#[inline(always)]
pub unsafe fn load_fresh(p: *const f64) -> f64 {
    let v: f64;
    // SAFETY: the caller's.
    unsafe { asm!("ld.relaxed.gpu.global.f64 {}, [{}];", out(reg64) v, in(reg64) p, options(nostack)) };
    v
}

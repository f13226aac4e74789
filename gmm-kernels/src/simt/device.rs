//! Functions of both homes on the device: PTX instructions for which Rust has no function.
use core::arch::asm;

/// Functions of 32-bit registers, one instruction each that takes the result and the arguments.
macro_rules! instructions {
    ($options:tt: $($(#[$doc:meta])* $name:ident($($x:ident: $t:ty),+) -> $y:ty: $text:literal;)+) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($($x: $t),+) -> $y {
            let y: $y;
            // SAFETY: only registers; every lane takes part in exchanges within the warp (the kernels' contract).
            unsafe { asm!($text, out(reg32) y, $(in(reg32) $x),+, options $options) };
            y
        }
    )+ };
}

/// The template's registers of these numbers.
macro_rules! registers {
    (@ $first:literal $($more:literal)*) => { concat!("{", $first, "}", $(", {", $more, "}",)*) };
    ($first:literal $($more:literal)*) => { concat!("{{{", $first, "}", $(", {", $more, "}",)* "}}") };
}

mod shared;
mod tensor_cores;
mod warpgroup;
mod warpgroup_registers;

pub use shared::*;
pub use tensor_cores::*;
pub use warpgroup::*;
pub use warpgroup_registers::*;

instructions! {
    (pure, nomem, nostack):
    /// a·b − c, rounded once. (For a c widened from a float16 number, ptxas leaves the sign a separate instruction.)
    fma_minus(a: f32, b: f32, c: f32) -> f32: "{{ .reg .f32 n; neg.f32 n, {3}; fma.rn.f32 {0}, {1}, {2}, n; }}";
    /// 2^x by the special function unit: 2 ulp, 0 below 2^-126.
    exp2(x: f32) -> f32: "ex2.approx.ftz.f32 {}, {};";
    /// log₂ x by the special function unit: absolute error 2^-22 for x in (0.5, 2), relative 2^-22 elsewhere.
    log2(x: f32) -> f32: "lg2.approx.ftz.f32 {}, {};";
    /// 1 / x for a normal x whose reciprocal is normal, within 1 ulp.
    reciprocal(x: f32) -> f32: "rcp.approx.ftz.f32 {}, {};";
    /// The larger of two numbers.
    max(a: f32, b: f32) -> f32: "max.f32 {}, {}, {};";
    /// The smaller of two numbers.
    min(a: f32, b: f32) -> f32: "min.f32 {}, {}, {};";
    /// The largest integer not above x, as a number.
    floor(x: f32) -> f32: "cvt.rmi.f32.f32 {}, {};";
}

instructions! {
    (nostack):
    /// Returns `x`, hidden from the compiler, which then computes nothing from it ahead of a loop, to save registers.
    opaque(x: u32) -> u32: "mov.u32 {}, {};";
}

// Registers of the warp's lanes.
instructions! {
    (nomem, nostack):
    /// The sum of `x` over the lanes of the warp; all lanes take part.
    warp_add(x: i32) -> i32: "redux.sync.add.s32 {}, {}, -1;";
    /// The value of `x` in the lane `by` above (the lane's own value past the end); all lanes of the warp take part.
    shuffle_down_u32(x: u32, by: u32) -> u32: "shfl.sync.down.b32 {}, {}, {}, 31, -1;";
    /// The value of `x` in lane `lane`; all lanes of the warp take part.
    shuffle_u32(x: u32, lane: u32) -> u32: "shfl.sync.idx.b32 {}, {}, {}, 31, -1;";
    /// The value of `x` in the lane whose number differs in the bits `mask`; all lanes of the warp take part.
    shuffle_xor_u32(x: u32, mask: u32) -> u32: "shfl.sync.bfly.b32 {}, {}, {}, 31, -1;";
}

/// Functions of one instruction each, without operands.
macro_rules! orders {
    ($($(#[$doc:meta])* $name:ident: $text:literal;)+) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() {
            // SAFETY: no operands; the lanes that it waits for reach it (the kernels' contract).
            unsafe { asm!($text, options(nostack)) };
        }
    )+ };
}
orders! {
    /// Keeps ptxas from unrolling the surrounding loop. (`opaque` hides a bound from rustc, not from ptxas.)
    not_unrolled: ".pragma \"nounroll\";";
    /// Ends a group of the thread's copies.
    copies_commit: "cp.async.commit_group;";
    /// Waits until all copies of the thread have arrived.
    copies_wait: "cp.async.wait_group 0;";
    /// Waits until all but the latest group of the thread's copies have arrived.
    copies_wait_but_one: "cp.async.wait_group 1;";
    /// Waits until all but the latest two groups of the thread's copies have arrived.
    copies_wait_but_two: "cp.async.wait_group 2;";
    /// Waits for all lanes of the warp; orders their accesses to shared memory.
    warp_sync: "bar.warp.sync -1;";
    /// Orders earlier writes of this thread, and of threads met at a barrier, before its later [`store_fresh`]; and its
    /// earlier [`load_fresh`] before later reads of its own and of threads that it meets at a barrier.
    fence: "fence.acq_rel.gpu;";
}

/// a·b + c, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(feature = "rust-cuda")]
    return cuda_std::GpuFloat::mul_add(a, b, c);
    #[cfg(not(feature = "rust-cuda"))]
    core::f32::math::mul_add(a, b, c)
}

/// a·b + c in float64, rounded once.
#[inline(always)]
pub fn fma64(a: f64, b: f64, c: f64) -> f64 {
    #[cfg(feature = "rust-cuda")]
    return cuda_std::GpuFloat::mul_add(a, b, c);
    #[cfg(not(feature = "rust-cuda"))]
    core::f64::math::mul_add(a, b, c)
}

/// Returns `x`, which the compiler computes here, not later beside more numbers than there are registers.
#[inline(always)]
pub fn computed(x: f64) -> f64 {
    let y: f64;
    // SAFETY: only registers.
    unsafe { asm!("mov.f64 {}, {};", out(reg64) y, in(reg64) x, options(nomem, nostack)) };
    y
}

/// The time for which the L2 cache should hold the data of a load.
#[derive(Clone, Copy)]
pub struct CachePolicy(u64);

/// Keeps the data in the cache: the next launch reads it again.
#[inline(always)]
pub fn policy_keep() -> CachePolicy {
    let p: u64;
    // SAFETY: makes a cache policy descriptor.
    unsafe { asm!("createpolicy.fractional.L2::evict_last.b64 {}, 1.0;", out(reg64) p, options(pure, nomem, nostack)) };
    CachePolicy(p)
}

/// Streams the data through the cache: it is the first to be replaced.
#[inline(always)]
pub fn policy_stream() -> CachePolicy {
    let p: u64;
    // SAFETY: makes a cache policy descriptor.
    unsafe {
        asm!("createpolicy.fractional.L2::evict_first.b64 {}, 1.0;", out(reg64) p, options(pure, nomem, nostack))
    };
    CachePolicy(p)
}

/// Reads a number in global memory.
///
/// # Safety
/// `p` is aligned and readable, and no other thread writes there at the same time.
#[inline(always)]
pub unsafe fn load<T: Copy>(p: *const T) -> T {
    *p
}

/// Writes a number to global memory.
///
/// # Safety
/// `p` is aligned and writable, and no other thread accesses it at the same time.
#[inline(always)]
pub unsafe fn store<T: Copy>(p: *mut T, v: T) {
    *p = v;
}

/// Reads four numbers of global memory that no thread writes during the launch, in one 16-byte read.
///
/// # Safety
/// `p` is aligned to 16 bytes and readable for 16 bytes.
#[inline(always)]
pub unsafe fn load4(p: *const f32, policy: CachePolicy) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    asm!("ld.global.nc.L2::cache_hint.v4.f32 {{{}, {}, {}, {}}}, [{}], {};",
        out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) p, in(reg64) policy.0, options(pure, readonly, nostack));
    [a, b, c, d]
}

/// Asks the L2 cache for the bytes at an address that is read later.
///
/// # Safety
/// `p` is readable.
#[inline(always)]
pub unsafe fn prefetch(p: *const f32) {
    asm!("prefetch.global.L2 [{}];", in(reg64) p, options(nostack));
}

/// Reads of global memory that no thread writes during the launch.
macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident $t:ty, $class:ident, $instruction:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// `p` is aligned and readable; no thread writes there during the launch.
        #[inline(always)]
        pub unsafe fn $name(p: *const $t) -> $t {
            let v: $t;
            asm!($instruction, out($class) v, in(reg64) p, options(pure, readonly, nostack));
            v
        }
    )* };
}
loads! {
    /// Four bytes.
    load_u32 u32, reg32, "ld.global.nc.b32 {}, [{}];";
    /// Eight bytes.
    load_u64 u64, reg64, "ld.global.nc.b64 {}, [{}];";
}

/// Reads four float32 numbers of global memory that no thread writes during the launch, in one 16-byte read.
///
/// # Safety
/// `p` is aligned to 16 bytes and readable for 16 bytes.
#[inline(always)]
pub unsafe fn load_f32x4(p: *const f32) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    asm!("ld.global.nc.v4.f32 {{{}, {}, {}, {}}}, [{}];",
        out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) p, options(pure, readonly, nostack));
    [a, b, c, d]
}

/// Reads two float64 numbers of global memory that no thread writes during the launch, in one 16-byte read.
///
/// # Safety
/// `p` is aligned to 16 bytes and readable for 16 bytes.
#[inline(always)]
pub unsafe fn load_f64x2(p: *const f64) -> [f64; 2] {
    let (a, b): (f64, f64);
    asm!("ld.global.nc.v2.f64 {{{}, {}}}, [{}];",
        out(reg64) a, out(reg64) b, in(reg64) p, options(pure, readonly, nostack));
    [a, b]
}

/// Writes four numbers to global memory at once.
///
/// # Safety
/// `p` is aligned to 16 bytes and writable for 16 bytes.
#[inline(always)]
pub unsafe fn store4(p: *mut f32, v: [f32; 4]) {
    asm!("st.global.v4.f32 [{}], {{{}, {}, {}, {}}};",
        in(reg64) p, in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], options(nostack));
}

/// Writes two numbers to global memory at once.
///
/// # Safety
/// `p` is aligned to 8 bytes and writable for 8 bytes.
#[inline(always)]
pub unsafe fn store2(p: *mut f32, v: [f32; 2]) {
    asm!("st.global.v2.f32 [{}], {{{}, {}}};", in(reg64) p, in(reg32) v[0], in(reg32) v[1], options(nostack));
}

/// Whether `x` holds in any lane of the warp; all lanes take part.
#[inline(always)]
pub fn warp_any(x: bool) -> bool {
    let y: u32;
    // SAFETY: exchanges predicates within the warp; every lane takes part (the kernels' contract).
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {1}, 0; vote.sync.any.pred p, p, -1; selp.u32 {0}, 1, 0, p; }}",
            out(reg32) y, in(reg32) x as u32, options(nomem, nostack));
    }
    y != 0
}

/// Adds `v` to the counter at `p`, and returns its former value. Earlier writes of the thread to global memory are
/// visible to every thread that reads the new value, and vice versa.
///
/// # Safety
/// `p` is an aligned counter in global memory that other threads access only by this function, until the last of them
/// has.
#[inline(always)]
pub unsafe fn count_up(p: *mut u32, v: u32) -> u32 {
    let old: u32;
    asm!("atom.add.acq_rel.gpu.global.u32 {}, [{}], {};", out(reg32) old, in(reg64) p, in(reg32) v, options(nostack));
    old
}

/// Adds `v` to the number at `p`, modulo 2^64.
///
/// # Safety
/// `p` is an aligned number in global memory that other threads access only by this function, until all have met.
#[inline(always)]
pub unsafe fn add_u64(p: *mut u64, v: u64) {
    asm!("red.relaxed.gpu.global.add.u64 [{}], {};", in(reg64) p, in(reg64) v, options(nostack));
}

/// Writes a value that the host may poll.
///
/// # Safety
/// `p` is an aligned, writable address of device memory or mapped host memory.
#[inline(always)]
pub unsafe fn publish(p: *mut f64, v: f64) {
    asm!("st.relaxed.sys.global.f64 [{}], {};", in(reg64) p, in(reg64) v, options(nostack));
}

/// Reads another block's write in this launch, not from a stale cache line, and never ahead of a condition.
///
/// # Safety
/// `p` is an aligned, readable address of global memory.
#[inline(always)]
pub unsafe fn load_fresh(p: *const f64) -> f64 {
    let v: f64;
    asm!("ld.relaxed.gpu.global.f64 {}, [{}];", out(reg64) v, in(reg64) p, options(nostack));
    v
}

/// Writes a number that other blocks read with [`load_fresh`] in this launch.
///
/// # Safety
/// `p` is an aligned, writable address of global memory.
#[inline(always)]
pub unsafe fn store_fresh(p: *mut f64, v: f64) {
    asm!("st.relaxed.gpu.global.f64 [{}], {};", in(reg64) p, in(reg64) v, options(nostack));
}

/// Is called in loops that wait for another block.
#[inline(always)]
pub fn pause() {}

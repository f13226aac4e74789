//! Functions of both homes on the device: PTX instructions that Rust has no function for.
mod tensor_cores;
mod warpgroup;
mod warpgroup_registers;

use core::arch::{asm, global_asm};
use core::marker::PhantomData;
pub use tensor_cores::*;
pub use warpgroup::*;
pub use warpgroup_registers::*;

/// a·b + c, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(feature = "rust-cuda")]
    return cuda_std::GpuFloat::mul_add(a, b, c);
    #[cfg(not(feature = "rust-cuda"))]
    core::f32::math::mul_add(a, b, c)
}

/// a·b − c, rounded once. (ptxas leaves the sign of c that comes from a float16 number a separate
/// instruction.)
#[inline(always)]
pub fn fma_minus(a: f32, b: f32, c: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("{{ .reg .f32 n; neg.f32 n, {3}; fma.rn.f32 {0}, {1}, {2}, n; }}",
            out(reg32) y, in(reg32) a, in(reg32) b, in(reg32) c, options(pure, nomem, nostack));
    }
    y
}

/// a·b + c in float64, rounded once.
#[inline(always)]
pub fn fma64(a: f64, b: f64, c: f64) -> f64 {
    #[cfg(feature = "rust-cuda")]
    return cuda_std::GpuFloat::mul_add(a, b, c);
    #[cfg(not(feature = "rust-cuda"))]
    core::f64::math::mul_add(a, b, c)
}

/// 2^x by the special function unit: 2 ulp, 0 below 2^-126.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("ex2.approx.ftz.f32 {}, {};", out(reg32) y, in(reg32) x, options(pure, nomem, nostack)) };
    y
}

/// log₂ x by the special function unit: absolute error 2^-22 for x in (0.5, 2), relative 2^-22
/// elsewhere.
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

/// `x`, in a way that hides its value from the compiler: results that depend on it are not computed
/// ahead of a loop, where they would take registers.
#[inline(always)]
pub fn opaque(x: u32) -> u32 {
    let y: u32;
    // SAFETY: copies a register.
    unsafe { asm!("mov.u32 {}, {};", out(reg32) y, in(reg32) x, options(nostack)) };
    y
}

/// Has ptxas leave the loop that this is called in as it is. (`opaque` hides a bound from rustc,
/// not from ptxas.)
#[inline(always)]
pub fn not_unrolled() {
    // SAFETY: no instruction.
    unsafe { asm!(".pragma \"nounroll\";", options(nostack)) };
}

/// How long the L2 cache should hold the data of a load.
#[derive(Clone, Copy)]
pub struct CachePolicy(u64);

/// Keep the data in the cache: the next launch reads it again.
#[inline(always)]
pub fn policy_keep() -> CachePolicy {
    let p: u64;
    // SAFETY: makes a cache policy descriptor.
    unsafe { asm!("createpolicy.fractional.L2::evict_last.b64 {}, 1.0;", out(reg64) p, options(pure, nomem, nostack)) };
    CachePolicy(p)
}

/// Stream the data through the cache: it is the first to be replaced.
#[inline(always)]
pub fn policy_stream() -> CachePolicy {
    let p: u64;
    // SAFETY: makes a cache policy descriptor.
    unsafe {
        asm!("createpolicy.fractional.L2::evict_first.b64 {}, 1.0;", out(reg64) p, options(pure, nomem, nostack))
    };
    CachePolicy(p)
}

/// A number in global memory.
///
/// # Safety
/// `p` is aligned and readable, and no other thread writes there at the same time.
#[inline(always)]
pub unsafe fn load<T: Copy>(p: *const T) -> T {
    // SAFETY: the caller guarantees it.
    unsafe { *p }
}

/// Writes a number to global memory.
///
/// # Safety
/// `p` is aligned and writable, and no other thread accesses it at the same time.
#[inline(always)]
pub unsafe fn store<T: Copy>(p: *mut T, v: T) {
    // SAFETY: the caller guarantees it.
    unsafe { *p = v };
}

/// Four numbers in one 16-byte read of global memory that no thread writes during the launch.
///
/// # Safety
/// `p` is aligned to 16 bytes and readable for 16 bytes.
#[inline(always)]
pub unsafe fn load4(p: *const f32, policy: CachePolicy) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!("ld.global.nc.L2::cache_hint.v4.f32 {{{}, {}, {}, {}}}, [{}], {};",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) p, in(reg64) policy.0, options(pure, readonly, nostack));
    }
    [a, b, c, d]
}

/// Asks the L2 cache for the bytes at an address, which are read later.
///
/// # Safety
/// `p` is readable.
#[inline(always)]
pub unsafe fn prefetch(p: *const f32) {
    // SAFETY: the caller guarantees it.
    unsafe { asm!("prefetch.global.L2 [{}];", in(reg64) p, options(nostack)) };
}

/// Reads from global memory that no thread writes during the launch.
macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident $t:ty, $class:ident, $instruction:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// `p` is aligned and readable; no thread writes there during the launch.
        #[inline(always)]
        pub unsafe fn $name(p: *const $t) -> $t {
            let v: $t;
            // SAFETY: the caller guarantees it.
            unsafe { asm!($instruction, out($class) v, in(reg64) p, options(pure, readonly, nostack)) };
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

/// Four float32 numbers in one 16-byte read of global memory that no thread writes during the
/// launch.
///
/// # Safety
/// `p` is aligned to 16 bytes and readable for 16 bytes.
#[inline(always)]
pub unsafe fn load_f32x4(p: *const f32) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!("ld.global.nc.v4.f32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) p, options(pure, readonly, nostack));
    }
    [a, b, c, d]
}

/// Two float64 numbers in one 16-byte read of global memory that no thread writes during the
/// launch.
///
/// # Safety
/// `p` is aligned to 16 bytes and readable for 16 bytes.
#[inline(always)]
pub unsafe fn load_f64x2(p: *const f64) -> [f64; 2] {
    let (a, b): (f64, f64);
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!("ld.global.nc.v2.f64 {{{}, {}}}, [{}];",
            out(reg64) a, out(reg64) b, in(reg64) p, options(pure, readonly, nostack));
    }
    [a, b]
}

/// Writes four numbers to global memory at once.
///
/// # Safety
/// `p` is aligned to 16 bytes and writable for 16 bytes.
#[inline(always)]
pub unsafe fn store4(p: *mut f32, v: [f32; 4]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!("st.global.v4.f32 [{}], {{{}, {}, {}, {}}};",
            in(reg64) p, in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], options(nostack));
    }
}

/// Writes two numbers to global memory at once.
///
/// # Safety
/// `p` is aligned to 8 bytes and writable for 8 bytes.
#[inline(always)]
pub unsafe fn store2(p: *mut f32, v: [f32; 2]) {
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!("st.global.v2.f32 [{}], {{{}, {}}};", in(reg64) p, in(reg32) v[0], in(reg32) v[1], options(nostack))
    };
}

/// A place in the block's dynamic shared memory, as numbers of type `T` (f32, f64).
///
/// Accesses name the shared state space: generic ones cost an address conversion each.
#[derive(Clone, Copy)]
pub struct Shared<T> {
    address: u32,
    element: PhantomData<T>,
}

impl<T> Shared<T> {
    /// The place `bytes` behind the start.
    #[inline(always)]
    pub fn at(bytes: usize) -> Self {
        Self { address: shared_base() + bytes as u32, element: PhantomData }
    }
    /// The place `count` elements further on.
    #[inline(always)]
    pub fn offset(self, count: usize) -> Self {
        Self { address: self.address + (count * size_of::<T>()) as u32, element: PhantomData }
    }
}

impl<T> Shared<T> {
    /// The same place, as numbers of another type.
    #[inline(always)]
    pub fn cast<U>(self) -> Shared<U> {
        Shared { address: self.address, element: PhantomData }
    }
}

impl Shared<f32> {
    /// The same place, with its address in a register of each thread. All lanes of the warp call
    /// it.
    ///
    /// Needed for a place that [`Self::copy4`] fills and that differs from thread to thread. Where
    /// ptxas 13.0 can split the address of such a copy into a part of the thread's and one that all
    /// threads share, it has the latter in a uniform register, and then writes down the register of
    /// the cache policy wrongly: an instruction that the device refuses. It does not see through an
    /// exchange of registers between lanes. (`cargo xtask ptx --check` looks for such
    /// instructions.)
    #[inline(always)]
    pub fn in_thread_register(self) -> Self {
        Self { address: shuffle_xor_u32(self.address, 0), element: PhantomData }
    }

    /// Element `i`.
    ///
    /// # Safety
    /// The element lies within the launch's shared memory and was written, and no other thread
    /// writes it at the same time.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> f32 {
        let v: f32;
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("ld.shared.f32 {}, [{}];", out(reg32) v, in(reg32) self.offset(i).address, options(pure, readonly, nostack))
        };
        v
    }
    /// Writes element `i`.
    ///
    /// # Safety
    /// The element lies within the launch's shared memory, and no other thread accesses it at the
    /// same time.
    #[inline(always)]
    pub unsafe fn set(self, i: usize, v: f32) {
        // SAFETY: the caller guarantees it.
        unsafe { asm!("st.shared.f32 [{}], {};", in(reg32) self.offset(i).address, in(reg32) v, options(nostack)) };
    }
    /// Elements `i` to `i + 3` in one 16-byte read.
    ///
    /// # Safety
    /// As for [`Self::get`]; element `i` is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn get4(self, i: usize) -> [f32; 4] {
        let (a, b, c, d): (f32, f32, f32, f32);
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("ld.shared.v4.f32 {{{0}, {1}, {2}, {3}}}, [{4}];",
                out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.offset(i).address, options(pure, readonly, nostack));
        }
        [a, b, c, d]
    }
    /// P (1, 2 or 4) elements from `i` on, in one read.
    ///
    /// # Safety
    /// As for [`Self::get`]; element `i` is aligned to P elements.
    #[inline(always)]
    pub unsafe fn get_some<const P: usize>(self, i: usize) -> [f32; P] {
        let mut v = [0.0; P];
        // SAFETY: the caller guarantees it.
        unsafe {
            if P == 4 {
                v.copy_from_slice(&self.get4(i));
            } else if P == 2 {
                let (a, b): (f32, f32);
                asm!("ld.shared.v2.f32 {{{0}, {1}}}, [{2}];",
                    out(reg32) a, out(reg32) b, in(reg32) self.offset(i).address, options(pure, readonly, nostack));
                v[0] = a;
                v[1] = b;
            } else {
                v[0] = self.get(i);
            }
        }
        v
    }
    /// Writes elements `i` to `i + 3` at once.
    ///
    /// # Safety
    /// As for [`Self::set`]; element `i` is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn set4(self, i: usize, v: [f32; 4]) {
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("st.shared.v4.f32 [{}], {{{}, {}, {}, {}}};", in(reg32) self.offset(i).address,
                in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], options(nostack));
        }
    }
    /// Starts to copy four numbers of global memory to elements `i` to `i + 3`; [`copies_wait`]
    /// waits for it.
    ///
    /// # Safety
    /// Both places are aligned to 16 bytes and valid for 16 bytes; only this thread touches the
    /// elements until it has waited.
    #[inline(always)]
    pub unsafe fn copy4(self, i: usize, from: *const f32, policy: CachePolicy) {
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("cp.async.cg.shared.global.L2::cache_hint [{}], [{}], 16, {};",
                in(reg32) self.offset(i).address, in(reg64) from, in(reg64) policy.0, options(nostack));
        }
    }
}

impl Shared<f64> {
    /// Elements `i` and `i + 1` in one 16-byte read.
    ///
    /// # Safety
    /// As for [`Self::get`]; element `i` is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn get_pair(self, i: usize) -> [f64; 2] {
        let (a, b): (f64, f64);
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("ld.shared.v2.f64 {{{}, {}}}, [{}];",
                out(reg64) a, out(reg64) b, in(reg32) self.offset(i).address, options(pure, readonly, nostack));
        }
        [a, b]
    }
    /// Element `i`.
    ///
    /// # Safety
    /// The element lies within the launch's shared memory and was written, and no other thread
    /// writes it at the same time.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> f64 {
        let v: f64;
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("ld.shared.f64 {}, [{}];", out(reg64) v, in(reg32) self.offset(i).address, options(pure, readonly, nostack))
        };
        v
    }
    /// Writes element `i`.
    ///
    /// # Safety
    /// The element lies within the launch's shared memory, and no other thread accesses it at the
    /// same time.
    #[inline(always)]
    pub unsafe fn set(self, i: usize, v: f64) {
        // SAFETY: the caller guarantees it.
        unsafe { asm!("st.shared.f64 [{}], {};", in(reg32) self.offset(i).address, in(reg64) v, options(nostack)) };
    }
}

/// Ends a group of the thread's copies.
#[inline(always)]
pub fn copies_commit() {
    // SAFETY: no operands.
    unsafe { asm!("cp.async.commit_group;", options(nostack)) };
}

/// Waits until all of the thread's copies have arrived.
#[inline(always)]
pub fn copies_wait() {
    // SAFETY: no operands.
    unsafe { asm!("cp.async.wait_group 0;", options(nostack)) };
}

/// Waits until all but the latest group of the thread's copies have arrived.
#[inline(always)]
pub fn copies_wait_but_one() {
    // SAFETY: no operands.
    unsafe { asm!("cp.async.wait_group 1;", options(nostack)) };
}

/// Waits until all but the latest two groups of the thread's copies have arrived.
#[inline(always)]
pub fn copies_wait_but_two() {
    // SAFETY: no operands.
    unsafe { asm!("cp.async.wait_group 2;", options(nostack)) };
}

/// The sum of `x` over the lanes of the warp; all lanes take part.
#[inline(always)]
pub fn warp_add(x: i32) -> i32 {
    let y: i32;
    // SAFETY: exchanges registers within the warp; every lane takes part (the kernels' contract).
    unsafe { asm!("redux.sync.add.s32 {}, {}, -1;", out(reg32) y, in(reg32) x, options(nomem, nostack)) };
    y
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

/// The value of `x` in the lane `by` above (the lane's value past the end); all lanes of the warp
/// take part.
#[inline(always)]
pub fn shuffle_down_u32(x: u32, by: u32) -> u32 {
    let y: u32;
    // SAFETY: exchanges registers within the warp; every lane takes part (the kernels' contract).
    unsafe {
        asm!("shfl.sync.down.b32 {}, {}, {}, 31, -1;", out(reg32) y, in(reg32) x, in(reg32) by, options(nomem, nostack))
    };
    y
}

/// The value of `x` in lane `lane`; all lanes of the warp take part.
#[inline(always)]
pub fn shuffle_u32(x: u32, lane: u32) -> u32 {
    let y: u32;
    // SAFETY: exchanges registers within the warp; every lane takes part (the kernels' contract).
    unsafe {
        asm!("shfl.sync.idx.b32 {}, {}, {}, 31, -1;", out(reg32) y, in(reg32) x, in(reg32) lane, options(nomem, nostack))
    };
    y
}

/// The value of `x` in the lane whose number differs in the bits `mask`; all lanes of the warp take
/// part.
#[inline(always)]
pub fn shuffle_xor_u32(x: u32, mask: u32) -> u32 {
    let y: u32;
    // SAFETY: exchanges registers within the warp; every lane takes part (the kernels' contract).
    unsafe {
        asm!("shfl.sync.bfly.b32 {}, {}, {}, 31, -1;", out(reg32) y, in(reg32) x, in(reg32) mask, options(nomem, nostack))
    };
    y
}

/// Waits for all lanes of the warp; orders their accesses to shared memory.
#[inline(always)]
pub fn warp_sync() {
    // SAFETY: every lane takes part (the kernels' contract).
    unsafe { asm!("bar.warp.sync -1;", options(nostack)) };
}

/// 1 / x for a normal x whose reciprocal is normal, to 1 ulp.
#[inline(always)]
pub fn reciprocal(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("rcp.approx.ftz.f32 {}, {};", out(reg32) y, in(reg32) x, options(pure, nomem, nostack)) };
    y
}

/// Adds `v` to the counter at `p`, and returns its former value. What the thread wrote to global
/// memory before is visible to every thread that reads the new value, and vice versa.
///
/// # Safety
/// `p` is an aligned counter in global memory that other threads access by this function only,
/// until the last of them has.
#[inline(always)]
pub unsafe fn count_up(p: *mut u32, v: u32) -> u32 {
    let old: u32;
    // SAFETY: the caller guarantees it.
    unsafe {
        asm!("atom.add.acq_rel.gpu.global.u32 {}, [{}], {};", out(reg32) old, in(reg64) p, in(reg32) v, options(nostack))
    };
    old
}

/// Adds `v` to the number at `p`, modulo 2^64.
///
/// # Safety
/// `p` is an aligned number in global memory that other threads access by this function only, until
/// all have met.
#[inline(always)]
pub unsafe fn add_u64(p: *mut u64, v: u64) {
    // SAFETY: the caller guarantees it.
    unsafe { asm!("red.relaxed.gpu.global.add.u64 [{}], {};", in(reg64) p, in(reg64) v, options(nostack)) };
}

/// Writes a value that the host may poll.
///
/// # Safety
/// `p` is an aligned, writable address of device memory or mapped host memory.
#[inline(always)]
pub unsafe fn publish(p: *mut f64, v: f64) {
    // SAFETY: the caller guarantees it.
    unsafe { asm!("st.relaxed.sys.global.f64 [{}], {};", in(reg64) p, in(reg64) v, options(nostack)) };
}

/// Reads what another block wrote in this launch (never from a stale cache line). The compiler does
/// not move the read to an earlier place, before a condition that it is under.
///
/// # Safety
/// `p` is an aligned, readable address of global memory.
#[inline(always)]
pub unsafe fn load_fresh(p: *const f64) -> f64 {
    let v: f64;
    // SAFETY: the caller guarantees it.
    unsafe { asm!("ld.relaxed.gpu.global.f64 {}, [{}];", out(reg64) v, in(reg64) p, options(nostack)) };
    v
}

/// Writes what other blocks read with [`load_fresh`] in this launch.
///
/// # Safety
/// `p` is an aligned, writable address of global memory.
#[inline(always)]
pub unsafe fn store_fresh(p: *mut f64, v: f64) {
    // SAFETY: the caller guarantees it.
    unsafe { asm!("st.relaxed.gpu.global.f64 [{}], {};", in(reg64) p, in(reg64) v, options(nostack)) };
}

/// Orders what this thread, and those that it has met at a barrier, wrote before with what it
/// writes to [`store_fresh`] behind it; and what it read by [`load_fresh`] before with what it, and
/// those that it meets at a barrier, read behind it.
#[inline(always)]
pub fn fence() {
    // SAFETY: no access of its own.
    unsafe { asm!("fence.acq_rel.gpu;", options(nostack)) };
}

/// To be called in a loop that waits for another block.
#[inline(always)]
pub fn pause() {}

// The size of this array is that of the launch. `cuda_std` has a function for such memory, which
// adds 16 bytes of fixed size to each kernel: a launch that asks for all that a block can have
// would fail.
global_asm!(".extern .shared .align 16 .b8 gmm_shared[];");

/// Address of the block's dynamic shared memory in the shared state space.
#[inline(always)]
fn shared_base() -> u32 {
    let address: u32;
    // SAFETY: takes the address of the module's dynamic shared array.
    unsafe { asm!("mov.u32 {}, gmm_shared;", out(reg32) address, options(pure, nomem, nostack)) };
    address
}

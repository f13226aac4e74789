//! The block's shared memory.
use super::{CachePolicy, Halves, shuffle_xor_u32};
use core::arch::{asm, global_asm};
use core::marker::PhantomData;

// The launch sets the size of this array. The memory that `cuda_std` has a function for adds 16 bytes of fixed size to
// each kernel: a launch with all the shared memory of a block would fail.
global_asm!(".extern .shared .align 16 .b8 gmm_shared[];");

/// Address of the block's dynamic shared memory in the shared state space.
#[inline(always)]
pub(super) fn shared_base() -> u32 {
    let address: u32;
    // SAFETY: takes the address of the module's dynamic shared array.
    unsafe { asm!("mov.u32 {}, gmm_shared;", out(reg32) address, options(pure, nomem, nostack)) };
    address
}

/// A place in the block's dynamic shared memory, as numbers of type `T` (f32, f64).
///
/// Accesses name the shared state space: each generic one would cost an address conversion.
#[derive(Clone, Copy)]
pub struct Shared<T> {
    pub(super) address: u32,
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

    /// The same place, as numbers of another type.
    #[inline(always)]
    pub fn cast<U>(self) -> Shared<U> {
        Shared { address: self.address, element: PhantomData }
    }

    /// The same place, with its address in a register of each thread. All lanes of the warp call it.
    ///
    /// Needed for a place that `copy4` fills and that differs from thread to thread. If ptxas 13.0 can split the
    /// address of such a copy into a thread's part and a uniform part, it puts the latter into a uniform register and
    /// then encodes the register of the cache policy wrongly: an instruction that the device refuses. It cannot see
    /// through an exchange of registers between lanes. (`cargo xtask ptx --check` looks for such instructions.)
    #[inline(always)]
    pub fn in_thread_register(self) -> Self {
        Self { address: shuffle_xor_u32(self.address, 0), ..self }
    }
}

/// Reads and writes of an element.
macro_rules! elements {
    ($t:ty, $class:ident, $suffix:literal) => {
        impl Shared<$t> {
            /// Element `i`.
            ///
            /// # Safety
            /// The element is within the launch's shared memory and was written, and no other thread writes it at the
            /// same time.
            #[inline(always)]
            pub unsafe fn get(self, i: usize) -> $t {
                let v: $t;
                asm!(concat!("ld.shared.", $suffix, " {}, [{}];"), out($class) v, in(reg32) self.offset(i).address,
                    options(pure, readonly, nostack));
                v
            }

            /// Writes element `i`.
            ///
            /// # Safety
            /// The element is within the launch's shared memory, and no other thread accesses it at the same time.
            #[inline(always)]
            pub unsafe fn set(self, i: usize, v: $t) {
                asm!(concat!("st.shared.", $suffix, " [{}], {};"), in(reg32) self.offset(i).address, in($class) v,
                    options(nostack));
            }
        }
    };
}
elements!(f32, reg32, "f32");
elements!(f64, reg64, "f64");
elements!(Halves, reg32, "b32");

/// Reads, writes and copies of four elements of 32 bits.
macro_rules! fours {
    ($t:ty, $suffix:literal) => {
        impl Shared<$t> {
            /// Reads elements `i` to `i + 3` in one 16-byte read.
            ///
            /// # Safety
            /// As for [`Self::get`]; element `i` is aligned to 16 bytes.
            #[inline(always)]
            pub unsafe fn get4(self, i: usize) -> [$t; 4] {
                let (a, b, c, d): ($t, $t, $t, $t);
                asm!(concat!("ld.shared.v4.", $suffix, " {{{}, {}, {}, {}}}, [{}];"),
                    out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.offset(i).address,
                    options(pure, readonly, nostack));
                [a, b, c, d]
            }

            /// Writes elements `i` to `i + 3` at once.
            ///
            /// # Safety
            /// As for [`Self::set`]; element `i` is aligned to 16 bytes.
            #[inline(always)]
            pub unsafe fn set4(self, i: usize, v: [$t; 4]) {
                asm!(concat!("st.shared.v4.", $suffix, " [{}], {{{}, {}, {}, {}}};"), in(reg32) self.offset(i).address,
                    in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], options(nostack));
            }

            /// Starts to copy 16 bytes of global memory to elements `i` to `i + 3`; [`copies_wait`](super::copies_wait)
            /// waits for them.
            ///
            /// # Safety
            /// Both places are aligned to 16 bytes and valid for 16 bytes; only this thread accesses the elements until
            /// it has waited.
            #[inline(always)]
            pub unsafe fn copy4(self, i: usize, from: *const $t, policy: CachePolicy) {
                asm!("cp.async.cg.shared.global.L2::cache_hint [{}], [{}], 16, {};",
                    in(reg32) self.offset(i).address, in(reg64) from, in(reg64) policy.0, options(nostack));
            }
        }
    };
}
fours!(f32, "f32");
fours!(Halves, "b32");

impl Shared<f32> {
    /// Reads P (1, 2 or 4) elements from `i` on in one read.
    ///
    /// # Safety
    /// As for [`Self::get`]; element `i` is aligned to P elements.
    #[inline(always)]
    pub unsafe fn get_some<const P: usize>(self, i: usize) -> [f32; P] {
        let mut v = [0.0; P];
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
        v
    }
}

impl Shared<f64> {
    /// Reads elements `i` and `i + 1` in one 16-byte read.
    ///
    /// # Safety
    /// As for [`Self::get`]; element `i` is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn get_pair(self, i: usize) -> [f64; 2] {
        let (a, b): (f64, f64);
        asm!("ld.shared.v2.f64 {{{}, {}}}, [{}];",
            out(reg64) a, out(reg64) b, in(reg32) self.offset(i).address, options(pure, readonly, nostack));
        [a, b]
    }
}

impl Shared<Halves> {
    /// Writes elements `i` and `i + 1` at once: four numbers.
    ///
    /// # Safety
    /// As for [`Self::set`]; element `i` is aligned to 8 bytes.
    #[inline(always)]
    pub unsafe fn set2(self, i: usize, v: [Halves; 2]) {
        asm!("st.shared.v2.b32 [{}], {{{}, {}}};", in(reg32) self.offset(i).address, in(reg32) v[0], in(reg32) v[1], options(nostack));
    }

    /// Reads four matrices of (8, 8) numbers for [`mma`](super::mma). All lanes take part: each passes the place of a
    /// row of eight numbers (lanes 0 to 7 the first matrix's, …), and gets two neighbours of row `lane / 4` of each
    /// matrix.
    ///
    /// # Safety
    /// As for [`Self::get`]; each row is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn matrices(self, i: usize) -> [Halves; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        asm!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.offset(i).address, options(readonly, nostack));
        [a, b, c, d]
    }

    /// As [`Self::matrices`], with each matrix transposed: a lane gets two neighbours of column `lane / 4`.
    ///
    /// # Safety
    /// As for [`Self::matrices`].
    #[inline(always)]
    pub unsafe fn matrices_transposed(self, i: usize) -> [Halves; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        asm!("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.offset(i).address, options(readonly, nostack));
        [a, b, c, d]
    }
}

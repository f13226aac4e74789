//! The tensor cores and the float16 numbers that they multiply. PTX ISA, "Matrix
//! multiply-accumulate operation using mma instruction", m16n8k16: a lane's numbers lie in row and
//! column `lane / 4` and at twice `lane % 4`.
use super::{CachePolicy, Shared};
use core::arch::asm;

/// Two float16 numbers in one register, the first one in the lower half.
pub type Halves = u32;

/// Two numbers rounded to float16.
#[inline(always)]
pub fn round_halves(a: f32, b: f32) -> Halves {
    let h: u32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("cvt.rn.f16x2.f32 {}, {}, {};", out(reg32) h, in(reg32) b, in(reg32) a, options(pure, nomem, nostack))
    };
    h
}

/// Two float16 numbers as float32.
#[inline(always)]
pub fn widen_halves(h: Halves) -> [f32; 2] {
    let (a, b): (f32, f32);
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("{{ .reg .b16 l, h; mov.b32 {{l, h}}, {2}; cvt.f32.f16 {0}, l; cvt.f32.f16 {1}, h; }}",
            out(reg32) a, out(reg32) b, in(reg32) h, options(pure, nomem, nostack));
    }
    [a, b]
}

/// Two numbers split into float16: rounded, and what the rounding left, rounded. Their sum differs
/// from the number by 2^-22 of it, or 2^-25 where that is more.
#[inline(always)]
pub fn split_halves(a: f32, b: f32) -> [Halves; 2] {
    let high = round_halves(a, b);
    let [x, y] = widen_halves(high);
    [high, round_halves(a - x, b - y)]
}

/// Products of two pairs of float16 numbers, rounded.
#[inline(always)]
pub fn multiply_halves(a: Halves, b: Halves) -> Halves {
    let h: u32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("mul.rn.f16x2 {}, {}, {};", out(reg32) h, in(reg32) a, in(reg32) b, options(pure, nomem, nostack)) };
    h
}

/// a·b + c of pairs of float16 numbers, rounded once.
#[inline(always)]
pub fn fma_halves(a: Halves, b: Halves, c: Halves) -> Halves {
    let h: u32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("fma.rn.f16x2 {}, {}, {}, {};", out(reg32) h, in(reg32) a, in(reg32) b, in(reg32) c, options(pure, nomem, nostack))
    };
    h
}

/// a·b − c of pairs of float16 numbers, rounded once.
#[inline(always)]
pub fn fma_minus_halves(a: Halves, b: Halves, c: Halves) -> Halves {
    let h: u32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("{{ .reg .b32 n; neg.f16x2 n, {3}; fma.rn.f16x2 {0}, {1}, {2}, n; }}",
            out(reg32) h, in(reg32) a, in(reg32) b, in(reg32) c, options(pure, nomem, nostack));
    }
    h
}

/// c + A·B of a warp: A (16, 16) by rows, B (16, 8) by columns in float16, c (16, 8) in float32;
/// all lanes take part. Products are exact; their sum is truncated, not rounded.
#[inline(always)]
pub fn mma(c: [f32; 4], a: [Halves; 4], b: [Halves; 2]) -> [f32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = c;
    // SAFETY: arithmetic on registers of the warp; every lane takes part (the kernels' contract).
    unsafe {
        asm!("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};",
            inout(reg32) c0, inout(reg32) c1, inout(reg32) c2, inout(reg32) c3,
            in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3], in(reg32) b[0], in(reg32) b[1], options(nomem, nostack));
    }
    [c0, c1, c2, c3]
}

/// c + A·B of a warp in float64: A (8, 4) by rows, B (4, 8) by columns, c (8, 8); all lanes take
/// part. A lane has the number of row `lane / 4` and column `lane % 4` of A, that of column `lane /
/// 4` and row `lane % 4` of B, and two of c, from column 2·(`lane % 4`) of row `lane / 4` on.
#[inline(always)]
pub fn mma64(c: [f64; 2], a: f64, b: f64) -> [f64; 2] {
    let [mut c0, mut c1] = c;
    // SAFETY: arithmetic on registers of the warp; every lane takes part (the kernels' contract).
    unsafe {
        asm!("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{{0}, {1}}}, {{{2}}}, {{{3}}}, {{{0}, {1}}};",
            inout(reg64) c0, inout(reg64) c1, in(reg64) a, in(reg64) b, options(nomem, nostack));
    }
    [c0, c1]
}

impl Shared<Halves> {
    /// As `Shared<f32>::in_thread_register`.
    #[inline(always)]
    pub fn in_thread_register(self) -> Self {
        Self { address: super::shuffle_xor_u32(self.address, 0), ..self }
    }
    /// Element `i`, two numbers.
    ///
    /// # Safety
    /// As for `Shared<f32>::get`.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> Halves {
        let v: u32;
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("ld.shared.b32 {}, [{}];", out(reg32) v, in(reg32) self.offset(i).address, options(pure, readonly, nostack))
        };
        v
    }
    /// Writes element `i`.
    ///
    /// # Safety
    /// As for `Shared<f32>::set`.
    #[inline(always)]
    pub unsafe fn set(self, i: usize, v: Halves) {
        // SAFETY: the caller guarantees it.
        unsafe { asm!("st.shared.b32 [{}], {};", in(reg32) self.offset(i).address, in(reg32) v, options(nostack)) };
    }
    /// Elements `i` to `i + 3` in one 16-byte read.
    ///
    /// # Safety
    /// As for `Shared<f32>::get`; element `i` is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn get4(self, i: usize) -> [Halves; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("ld.shared.v4.b32 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.offset(i).address, options(pure, readonly, nostack));
        }
        [a, b, c, d]
    }
    /// Writes elements `i` to `i + 3` at once.
    ///
    /// # Safety
    /// As for `Shared<f32>::set`; element `i` is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn set4(self, i: usize, v: [Halves; 4]) {
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("st.shared.v4.b32 [{}], {{{}, {}, {}, {}}};", in(reg32) self.offset(i).address,
                in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], options(nostack));
        }
    }
    /// Writes elements `i` and `i + 1` at once: four numbers.
    ///
    /// # Safety
    /// As for `Shared<f32>::set`; element `i` is aligned to 8 bytes.
    #[inline(always)]
    pub unsafe fn set2(self, i: usize, v: [Halves; 2]) {
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("st.shared.v2.b32 [{}], {{{}, {}}};", in(reg32) self.offset(i).address, in(reg32) v[0], in(reg32) v[1], options(nostack));
        }
    }
    /// Starts to copy eight numbers of global memory to elements `i` to `i + 3`; `copies_wait`
    /// waits for it.
    ///
    /// # Safety
    /// Both places are aligned to 16 bytes and valid for 16 bytes; only this thread touches the
    /// elements until it has waited.
    #[inline(always)]
    pub unsafe fn copy4(self, i: usize, from: *const Halves, policy: CachePolicy) {
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("cp.async.cg.shared.global.L2::cache_hint [{}], [{}], 16, {};",
                in(reg32) self.offset(i).address, in(reg64) from, in(reg64) policy.0, options(nostack));
        }
    }
    /// Four matrices of (8, 8) numbers for [`mma`]; all lanes of the warp take part. Each lane
    /// calls it for the place of a row of eight numbers: lanes 0 to 7 for those of the first
    /// matrix, and so on. Of each matrix, a lane gets two neighbours of row `lane / 4`.
    ///
    /// # Safety
    /// As for `Shared<f32>::get`; each row is aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn matrices(self, i: usize) -> [Halves; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.offset(i).address, options(readonly, nostack));
        }
        [a, b, c, d]
    }
    /// As [`Self::matrices`], each matrix transposed: a lane gets two neighbours of column
    /// `lane / 4`.
    ///
    /// # Safety
    /// As for [`Self::matrices`].
    #[inline(always)]
    pub unsafe fn matrices_transposed(self, i: usize) -> [Halves; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        // SAFETY: the caller guarantees it.
        unsafe {
            asm!("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{}, {}, {}, {}}}, [{}];",
                out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.offset(i).address, options(readonly, nostack));
        }
        [a, b, c, d]
    }
}

//! The tensor cores and the float16 numbers that they multiply. PTX ISA, "Matrix multiply-accumulate operation using
//! mma instruction", m16n8k16: a lane's numbers are in row and column `lane / 4` and at twice `lane % 4`.
use core::arch::asm;

/// Two float16 numbers in one register, the first in the lower half.
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

instructions! {
    (pure, nomem, nostack):
    /// Products of two pairs of float16 numbers, rounded.
    multiply_halves(a: Halves, b: Halves) -> Halves: "mul.rn.f16x2 {}, {}, {};";
    /// a·b + c of pairs of float16 numbers, rounded once.
    fma_halves(a: Halves, b: Halves, c: Halves) -> Halves: "fma.rn.f16x2 {}, {}, {}, {};";
    /// a·b − c of pairs of float16 numbers, rounded once.
    fma_minus_halves(a: Halves, b: Halves, c: Halves) -> Halves: "{{ .reg .b32 n; neg.f16x2 n, {3}; fma.rn.f16x2 {0}, {1}, {2}, n; }}";
}

/// c + A·B of a warp: A (16, 16) by rows, B (16, 8) by columns in float16, c (16, 8) in float32; all lanes take part.
/// Products are exact; their sum is truncated, not rounded.
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

/// c + A·B of a warp in float64: A (8, 4) by rows, B (4, 8) by columns, c (8, 8); all lanes take part. A lane has the
/// number of row `lane / 4` and column `lane % 4` of A, the number of column `lane / 4` and row `lane % 4` of B, and
/// two of c, from column 2·(`lane % 4`) of row `lane / 4` on.
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

/// c + A·B of a warp in float64: A (16, 8) by rows, B (8, 8) by columns, c (16, 8); all lanes take part. Only compute
/// capability 9.0 and later have it. A lane's numbers are those of four [`mma64`]: of row `lane / 4` and the eighth below
/// it, in the first four columns of A and then in the last four; likewise the rows of B; two of c in either row.
#[inline(always)]
pub fn tall_mma64(c: [f64; 4], a: [f64; 4], b: [f64; 2]) -> [f64; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = c;
    // SAFETY: arithmetic on registers of the warp; every lane takes part (the kernels' contract).
    unsafe {
        asm!("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};",
            inout(reg64) c0, inout(reg64) c1, inout(reg64) c2, inout(reg64) c3,
            in(reg64) a[0], in(reg64) a[1], in(reg64) a[2], in(reg64) a[3], in(reg64) b[0], in(reg64) b[1], options(nomem, nostack));
    }
    [c0, c1, c2, c3]
}

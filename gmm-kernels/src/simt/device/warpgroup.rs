//! Matrix products of a warpgroup (four neighbouring warps), and bulk copies, which arrive at a barrier in shared
//! memory. Only compute capability 9.0 has them. PTX ISA, "Asynchronous warpgroup level matrix instructions" and
//! "mbarrier".
use super::{Halves, Shared};
use core::arch::asm;

/// A barrier in shared memory (PTX: mbarrier) at which threads and copies arrive. It counts its phases.
#[derive(Clone, Copy)]
pub struct Mbarrier {
    address: u32,
}

impl Mbarrier {
    /// The barrier `bytes` behind the start of the shared memory, a multiple of 8.
    #[inline(always)]
    pub fn at(bytes: usize) -> Self {
        Self { address: super::shared_base() + bytes as u32 }
    }
    /// Initialises it: a phase ends when `threads` threads have arrived, and the bytes that they expect.
    ///
    /// # Safety
    /// One thread calls it, and then [`mbarriers_ready`], before the block's threads meet and use the barrier.
    #[inline(always)]
    pub unsafe fn init(self, threads: u32) {
        asm!("mbarrier.init.shared::cta.b64 [{}], {};", in(reg32) self.address, in(reg32) threads, options(nostack));
    }
    /// Arrives, and makes the phase wait for `bytes`.
    ///
    /// # Safety
    /// The barrier is ready; the copies of these bytes follow.
    #[inline(always)]
    pub unsafe fn expect(self, bytes: u32) {
        asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};",
            in(reg32) self.address, in(reg32) bytes, options(nostack));
    }
    /// Arrives.
    ///
    /// # Safety
    /// The barrier is ready.
    #[inline(always)]
    pub unsafe fn arrive(self) {
        asm!("mbarrier.arrive.shared::cta.b64 _, [{}];", in(reg32) self.address, options(nostack));
    }
    /// Waits for the end of a phase, given modulo 2. The phase before the first (1) counts as ended.
    ///
    /// # Safety
    /// The barrier is ready; all lanes of the warp call it.
    #[inline(always)]
    #[allow(named_asm_labels)] // In PTX, labels between braces are local.
    pub unsafe fn wait(self, phase: u32) {
        asm!(
            "{{",
            ".reg .pred ended;",
            "again:",
            "mbarrier.try_wait.parity.shared::cta.b64 ended, [{0}], {1};",
            "@ended bra over;",
            "bra again;",
            "over:",
            "}}",
            in(reg32) self.address, in(reg32) phase, options(nostack)
        );
    }
}

/// Makes the barriers that this thread has initialised visible to copies.
#[inline(always)]
pub fn mbarriers_ready() {
    // SAFETY: accesses no memory itself.
    unsafe { asm!("fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta;", options(nostack)) };
}

impl Shared<Halves> {
    /// Starts to copy `bytes` of global memory to this place; they arrive at the barrier.
    ///
    /// # Safety
    /// Both places are aligned to 16 bytes and valid for `bytes`, a multiple of 16; nothing else accesses this place
    /// until the barrier's phase has ended.
    #[inline(always)]
    pub unsafe fn copy_bulk(self, from: *const Halves, bytes: u32, barrier: Mbarrier) {
        asm!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{}], [{}], {}, [{}];",
            in(reg32) self.address, in(reg64) from, in(reg32) bytes, in(reg32) barrier.address, options(nostack));
    }
}

/// An operand of a warpgroup's products in shared memory: (8, 8) matrices of 128 contiguous bytes each.
#[derive(Clone, Copy)]
pub struct Operand {
    /// The place, and the distance along the sum, in 16 bytes.
    pub(super) low: u32,
    /// The distance across the sum, in 16 bytes.
    pub(super) high: u32,
}

impl Operand {
    /// The operand at a place that is a multiple of 16 bytes; `across` and `along`: bytes from one matrix to the next
    /// in the direction of the result, and of the sum.
    #[inline(always)]
    pub fn new(place: Shared<Halves>, across: usize, along: usize) -> Self {
        let field = |bytes: u32| (bytes >> 4) & 0x3fff;
        Self { low: field(place.address) | field(along as u32) << 16, high: field(across as u32) }
    }
    /// The operand `bytes` further on, a multiple of 16.
    #[inline(always)]
    pub fn offset(self, bytes: usize) -> Self {
        Self { low: self.low + (bytes >> 4) as u32, ..self }
    }
}

/// Raises a thread's registers to N, as soon as other threads of the block have released them.
///
/// # Safety
/// A whole warpgroup calls it; the block has enough registers; the driver was told a thread's number of registers at
/// the start of the launch.
#[inline(always)]
pub unsafe fn more_registers<const N: u32>() {
    asm!("setmaxnreg.inc.sync.aligned.u32 {};", const N, options(nostack));
}

/// Lowers a thread's registers to N.
///
/// # Safety
/// As for [`more_registers`].
#[inline(always)]
pub unsafe fn fewer_registers<const N: u32>() {
    asm!("setmaxnreg.dec.sync.aligned.u32 {};", const N, options(nostack));
}

/// A·B of a warpgroup, both the sums of a high and a low part; the product of both low parts is left out. A (64, 64)
/// and B (128, 64) are in float16, the result (64, 128) in float32. In both operands the rows of a matrix of (8, 8) go
/// along the sum, and so do neighbouring matrices. All threads of the warpgroup take part. A thread gets the numbers of
/// rows r = 16·warp + lane / 4 and r + 8 in columns 8·j + 2·(lane % 4) and the next one: four for each j, the first
/// row's first. Products are exact; their sums are truncated, not rounded. Small products come first. Both parts of an
/// operand have the same distance across the sum.
///
/// # Safety
/// The operands are in the launch's shared memory, and their copies have arrived for this thread.
#[inline(always)]
pub unsafe fn warpgroup_multiply([a_high, a_low]: [Operand; 2], [b_high, b_low]: [Operand; 2]) -> [f32; 64] {
    let mut c = [0.0f32; 64];
    // A step is two matrices along the sum: 16 units of 16 bytes.
    macro_rules! product {
        ($sums:expr, $a:literal, $b:literal, $step:literal, $add:literal) => {
            concat!(
                concat!("add.s32 place, {", $a, "}, ", $step, "; mov.b64 a, {{place, {68}}}; "),
                concat!("add.s32 place, {", $b, "}, ", $step, "; mov.b64 b, {{place, {69}}}; "),
                "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 ",
                $sums,
                concat!(", a, b, ", $add, ", 1, 1, 0, 0;")
            )
        };
    }
    macro_rules! products {
        ($($i:literal)*) => {
            asm!(
                "{{",
                ".reg .pred no, yes;",
                ".reg .b32 place;",
                ".reg .b64 a, b;",
                "setp.ne.b32 no, {64}, {64};",
                "setp.eq.b32 yes, {64}, {64};",
                "wgmma.fence.sync.aligned;",
                product!(registers!($($i)*), 65, 66, 0, "no"),
                product!(registers!($($i)*), 65, 66, 16, "yes"),
                product!(registers!($($i)*), 65, 66, 32, "yes"),
                product!(registers!($($i)*), 65, 66, 48, "yes"),
                product!(registers!($($i)*), 64, 67, 0, "yes"),
                product!(registers!($($i)*), 64, 67, 16, "yes"),
                product!(registers!($($i)*), 64, 67, 32, "yes"),
                product!(registers!($($i)*), 64, 67, 48, "yes"),
                product!(registers!($($i)*), 64, 66, 0, "yes"),
                product!(registers!($($i)*), 64, 66, 16, "yes"),
                product!(registers!($($i)*), 64, 66, 32, "yes"),
                product!(registers!($($i)*), 64, 66, 48, "yes"),
                "wgmma.commit_group.sync.aligned;",
                "wgmma.wait_group.sync.aligned 0;",
                "}}",
                $(inout(reg32) c[$i],)*
                in(reg32) a_high.low, in(reg32) a_low.low, in(reg32) b_high.low, in(reg32) b_low.low,
                in(reg32) a_high.high, in(reg32) b_high.high, options(nostack)
            )
        };
    }
    // SAFETY: reads shared memory as the caller guarantees; otherwise arithmetic on registers. Every thread takes part.
    products!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    c
}

/// c + Σᵢ Aᵢ·Bᵢ of a warpgroup, or only the sum if `add` is 0. A₀, A₁, A₀, A₁ (64, 16) are in float16, in registers as
/// for `mma`, 16 rows per warp; Bᵢ (256, 16) in float16, in shared memory, with matrices of (8, 8) whose rows go across
/// the sum; c (64, 256) in float32, as the result of [`warpgroup_multiply`]. All Bᵢ have the same distance across the
/// sum. All threads of the warpgroup take part. Products are exact; their sums are truncated, not rounded.
///
/// # Safety
/// The operands are in the launch's shared memory, and their copies have arrived for this thread.
#[inline(always)]
pub unsafe fn warpgroup_add(c: &mut [f32; 128], a: [[Halves; 4]; 2], b: [Operand; 4], add: u32) {
    macro_rules! product {
        ($sums:expr, $registers:expr, $b:literal, $add:literal) => {
            concat!(
                concat!("mov.b64 b, {{{", $b, "}, {141}}}; "),
                "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 ",
                $sums,
                ", ",
                $registers,
                concat!(", b, ", $add, ", 1, 1, 1;")
            )
        };
    }
    macro_rules! products {
        ($($i:literal)*) => {
            asm!(
                "{{",
                ".reg .pred first, yes;",
                ".reg .b64 b;",
                "setp.ne.u32 first, {140}, 0;",
                "setp.eq.u32 yes, {140}, {140};",
                "wgmma.fence.sync.aligned;",
                product!(registers!($($i)*), registers!(128 129 130 131), 136, "first"),
                product!(registers!($($i)*), registers!(132 133 134 135), 137, "yes"),
                product!(registers!($($i)*), registers!(128 129 130 131), 138, "yes"),
                product!(registers!($($i)*), registers!(132 133 134 135), 139, "yes"),
                "wgmma.commit_group.sync.aligned;",
                "wgmma.wait_group.sync.aligned 0;",
                "}}",
                $(inout(reg32) c[$i],)*
                in(reg32) a[0][0], in(reg32) a[0][1], in(reg32) a[0][2], in(reg32) a[0][3],
                in(reg32) a[1][0], in(reg32) a[1][1], in(reg32) a[1][2], in(reg32) a[1][3],
                in(reg32) b[0].low, in(reg32) b[1].low, in(reg32) b[2].low, in(reg32) b[3].low, in(reg32) add,
                in(reg32) b[0].high, options(nostack)
            )
        };
    }
    // SAFETY: reads shared memory as the caller guarantees; otherwise arithmetic on registers. Every thread takes part.
    products!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
        64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
        96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120
        121 122 123 124 125 126 127);
}

/// Makes this thread's writes to shared memory visible to the tensor cores.
#[inline(always)]
pub fn operands_ready() {
    // SAFETY: accesses no memory itself.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack)) };
}

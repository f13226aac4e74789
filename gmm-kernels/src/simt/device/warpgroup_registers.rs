//! Products of a warpgroup with the first operand in registers, for [`whitened_wgmma`](crate::estep::whitened_wgmma) and
//! [`batch_wgmma`](crate::likelihood::batch_wgmma).
use super::{Halves, Operand};
use core::arch::asm;

/// Makes macros of eight registers of the template, and of their halves, a high and a low part.
macro_rules! eights {
    ($($eight:tt: $($high:literal)*, $($low:literal)*;)*) => {
        macro_rules! eight { $(($eight) => { registers!(@ $($high)* $($low)*) };)* }
        macro_rules! high_half { $(($eight) => { registers!($($high)*) };)* }
        macro_rules! low_half { $(($eight) => { registers!($($low)*) };)* }
    };
}
eights! {
    0: 0 1 2 3, 4 5 6 7;
    1: 8 9 10 11, 12 13 14 15;
    2: 16 17 18 19, 20 21 22 23;
    3: 24 25 26 27, 28 29 30 31;
    4: 32 33 34 35, 36 37 38 39;
    5: 40 41 42 43, 44 45 46 47;
    6: 48 49 50 51, 52 53 54 55;
    7: 56 57 58 59, 60 61 62 63;
    8: 64 65 66 67, 68 69 70 71;
    9: 72 73 74 75, 76 77 78 79;
    10: 80 81 82 83, 84 85 86 87;
    11: 88 89 90 91, 92 93 94 95;
    12: 96 97 98 99, 100 101 102 103;
    13: 104 105 106 107, 108 109 110 111;
    14: 112 113 114 115, 116 117 118 119;
    15: 120 121 122 123, 124 125 126 127;
    16: 128 129 130 131, 132 133 134 135;
    17: 136 137 138 139, 140 141 142 143;
    18: 144 145 146 147, 148 149 150 151;
    19: 152 153 154 155, 156 157 158 159;
    20: 160 161 162 163, 164 165 166 167;
    21: 168 169 170 171, 172 173 174 175;
    22: 176 177 178 179, 180 181 182 183;
    23: 184 185 186 187, 188 189 190 191;
}

/// One product: its columns, the eights of its sums, the first operand, the place of the second one and its offset in
/// 16 bytes, the predicate that says whether to add, and whether the second operand's rows go across the sum.
macro_rules! product {
    ($columns:literal [$first:tt $($more:tt)*] $half:ident $a:tt, $b:literal + $offset:literal, $add:literal, $across:literal) => {
        concat!(
            concat!("add.s32 place, {", $b, "}, ", $offset, "; mov.b64 b, {{place, {far}}}; "),
            concat!("wgmma.mma_async.sync.aligned.m64n", $columns, "k16.f32.f16.f16 "),
            concat!("{{", eight!($first), $(", ", eight!($more),)* "}}, "),
            $half!($a),
            concat!(", b, ", $add, ", 1, 1, ", $across, ";")
        )
    };
}

/// The text before the products, and behind them.
macro_rules! begin {
    ($set:literal) => {
        concat!(
            "{{ .reg .pred no, yes, first; .reg .b32 place; .reg .b64 b; ",
            "setp.ne.b32 no, {far}, {far}; setp.eq.b32 yes, {far}, {far}; ",
            $set,
            "wgmma.fence.sync.aligned;"
        )
    };
}
macro_rules! end {
    () => {
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }}"
    };
}

/// Starts A·B of a warpgroup, both the sums of a high and a low part; the product of both low parts is left out. A (64,
/// 16·S) is in float16, in registers as for `mma`, 16 rows per warp; B (32, 16·S) in float16, in shared memory, with
/// matrices of (8, 8) whose rows go along the sum: for each 16 of the sum first two of the high part, then two of the
/// low one, one behind the other; the result (64, 32) in float32. A thread gets the numbers of rows r = 16·warp + lane
/// / 4 and r + 8 in columns 8·j + 2·(lane % 4) and the next one: four for each j, the first row's first.
/// [`warpgroup_finish`] waits for them. Products are exact; their sums are truncated, not rounded. Small products come
/// first. All threads of the warpgroup take part. S is at most 4.
///
/// # Safety
/// The operand is in the launch's shared memory, [`operands_ready`] has followed the writes to it, and nothing writes
/// it before [`warpgroup_finish`].
#[inline(always)]
pub unsafe fn warpgroup_start<const S: usize>(
    high: &[[Halves; 4]; S],
    low: &[[Halves; 4]; S],
    b: Operand,
) -> [f32; 16] {
    let mut c = [0.0f32; 16];
    // For each step the eight registers of both parts, the places of B's parts in 16 bytes, and whether to add.
    macro_rules! steps {
        ($($step:literal $eight:tt $high:literal $low:literal $add:literal),*) => {
            asm!(
                "{{",
                ".reg .pred no, yes;",
                ".reg .b32 place;",
                ".reg .b64 b;",
                "setp.ne.b32 no, {b}, {b};",
                "setp.eq.b32 yes, {b}, {b};",
                "wgmma.fence.sync.aligned;",
                $(
                    product!(32 [0 1] low_half $eight, "b" + $high, $add, 0),
                    product!(32 [0 1] high_half $eight, "b" + $low, "yes", 0),
                )*
                $(product!(32 [0 1] high_half $eight, "b" + $high, "yes", 0),)*
                "wgmma.commit_group.sync.aligned;",
                "}}",
                out(reg32) c[0], out(reg32) c[1], out(reg32) c[2], out(reg32) c[3], out(reg32) c[4], out(reg32) c[5],
                out(reg32) c[6], out(reg32) c[7], out(reg32) c[8], out(reg32) c[9], out(reg32) c[10], out(reg32) c[11],
                out(reg32) c[12], out(reg32) c[13], out(reg32) c[14], out(reg32) c[15],
                $(
                    in(reg32) high[$step][0], in(reg32) high[$step][1], in(reg32) high[$step][2],
                    in(reg32) high[$step][3], in(reg32) low[$step][0], in(reg32) low[$step][1],
                    in(reg32) low[$step][2], in(reg32) low[$step][3],
                )*
                b = in(reg32) b.low, far = in(reg32) b.high, options(nostack)
            )
        };
    }
    // SAFETY: reads shared memory as the caller guarantees; otherwise arithmetic on registers. Every thread takes part.
    match S {
        1 => steps!(0 2 0 16 "no"),
        2 => steps!(0 2 0 16 "no", 1 3 32 48 "yes"),
        3 => steps!(0 2 0 16 "no", 1 3 32 48 "yes", 2 4 64 80 "yes"),
        _ => steps!(0 2 0 16 "no", 1 3 32 48 "yes", 2 4 64 80 "yes", 3 5 96 112 "yes"),
    }
    c
}

/// Waits until at most LEFT of the products started by [`warpgroup_start`] are in progress; `c` belongs to a finished
/// one. All threads of the warpgroup take part.
#[inline(always)]
pub fn warpgroup_finish<const LEFT: usize>(c: &mut [f32; 16]) {
    // SAFETY: no operands.
    unsafe { asm!("wgmma.wait_group.sync.aligned {};", const LEFT, options(nostack)) };
    counted!(for i in 0..16 {
        // Keeps all uses of the number behind the wait. SAFETY: does nothing.
        unsafe { asm!("/* {0} */", inout(reg32) c[i], options(nostack)) };
    });
}

/// Makes a function that multiplies by triangles. It takes for each step of each band the sums, the step, the place of
/// its part of the triangle, and whether there are sums to add to.
macro_rules! triangles {
    ($name:ident, $steps:literal [$($i:literal)*], $sums:literal [$($s:literal)*],
        $($eights:tt $step:tt + $offset:literal $add:literal)*) => {
        /// A·B of a warpgroup, both the sums of a high and a low part; the product of both low parts is left out. A
        /// (64, features) is in registers, for each sixteen features the high part, then the low one, as for `mma`, 16
        /// rows per warp; B in shared memory, for each band of 64 rows of triangles its steps of sixteen features, with
        /// matrices one behind the other along the sum. The result has the columns of some of the bands; a thread's
        /// numbers are as in [`warpgroup_multiply`](super::warpgroup_multiply). There may be more features than these
        /// bands have. All threads of the warpgroup take part. Products are exact; their sums are truncated, not
        /// rounded. Small products come first.
        ///
        /// # Safety
        /// The operands are in the launch's shared memory, and their copies have arrived for this thread.
        #[inline(always)]
        pub unsafe fn $name<const S: usize>(a: &[[Halves; 8]; S], [high, low]: [Operand; 2]) -> [f32; $sums] {
            const { assert!(S >= $steps) };
            let mut c = [0.0f32; $sums];
            // SAFETY: reads shared memory as the caller guarantees, and registers. Every thread takes part.
            asm!(
                begin!(""),
                $(product!(64 $eights low_half $step, "high" + $offset, $add, 0),)*
                $(product!(64 $eights high_half $step, "low" + $offset, "yes", 0),)*
                $(product!(64 $eights high_half $step, "high" + $offset, "yes", 0),)*
                end!(),
                $(in(reg32) a[$i / 8][$i % 8],)*
                $(inout(reg32) c[$s],)*
                high = in(reg32) high.low, low = in(reg32) low.low, far = in(reg32) high.high, options(nostack)
            );
            c
        }
    };
}
triangles! {
    warpgroup_triangles_32, 2 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15],
    64 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63],
    [2 3 4 5] 0 + 0 "no"
    [6 7 8 9] 0 + 128 "no"
    [6 7 8 9] 1 + 256 "yes"
}
triangles! {
    warpgroup_triangles_64, 4 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31],
    64 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63],
    [4 5 6 7] 0 + 0 "no"
    [4 5 6 7] 1 + 128 "yes"
    [8 9 10 11] 0 + 256 "no"
    [8 9 10 11] 1 + 384 "yes"
    [8 9 10 11] 2 + 512 "yes"
    [8 9 10 11] 3 + 640 "yes"
}
triangles! {
    warpgroup_triangles_96_last, 6 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47],
    32 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31],
    [6 7 8 9] 0 + 768 "no"
    [6 7 8 9] 1 + 896 "yes"
    [6 7 8 9] 2 + 1024 "yes"
    [6 7 8 9] 3 + 1152 "yes"
    [6 7 8 9] 4 + 1280 "yes"
    [6 7 8 9] 5 + 1408 "yes"
}
triangles! {
    warpgroup_triangles_128_last, 8 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63],
    64 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63],
    [8 9 10 11] 0 + 768 "no"
    [8 9 10 11] 1 + 896 "yes"
    [8 9 10 11] 2 + 1024 "yes"
    [8 9 10 11] 3 + 1152 "yes"
    [8 9 10 11] 4 + 1280 "yes"
    [8 9 10 11] 5 + 1408 "yes"
    [12 13 14 15] 0 + 1536 "no"
    [12 13 14 15] 1 + 1664 "yes"
    [12 13 14 15] 2 + 1792 "yes"
    [12 13 14 15] 3 + 1920 "yes"
    [12 13 14 15] 4 + 2048 "yes"
    [12 13 14 15] 5 + 2176 "yes"
    [12 13 14 15] 6 + 2304 "yes"
    [12 13 14 15] 7 + 2432 "yes"
}

/// Makes a function that adds products of two features: for each band the columns, sums, and the first operand's band.
macro_rules! bands {
    ($name:ident, $bands:literal [$($i:literal)*], $sums:literal [$($s:literal)*], $($columns:literal $eights:tt $band:tt)*) => {
        /// c + A·B of a warpgroup for some bands A (64, 16) and the columns of B for each band, or only A·B if `add` is
        /// 0; both the sums of a high and a low part; the product of both low parts is left out. A is in registers, for
        /// each band the high part, then the low one, as for `mma`, 16 rows per warp; B in shared memory, with matrices
        /// whose rows go across the sum. The sums are as in [`warpgroup_multiply`](super::warpgroup_multiply). All
        /// threads of the warpgroup take part. Products are exact; their sums are truncated, not rounded. Small
        /// products come first.
        ///
        /// # Safety
        /// The operands are in the launch's shared memory, and their copies have arrived for this thread.
        #[inline(always)]
        pub unsafe fn $name(c: &mut [f32; $sums], a: &[[Halves; 8]; $bands], [high, low]: [Operand; 2], add: u32) {
            // SAFETY: reads shared memory as the caller guarantees, and registers. Every thread takes part.
            asm!(
                begin!("setp.ne.u32 first, {add}, 0; "),
                $(product!($columns $eights low_half $band, "high" + 0, "first", 1),)*
                $(product!($columns $eights high_half $band, "low" + 0, "yes", 1),)*
                $(product!($columns $eights high_half $band, "high" + 0, "yes", 1),)*
                end!(),
                $(in(reg32) a[$i / 8][$i % 8],)*
                $(inout(reg32) c[$s],)*
                high = in(reg32) high.low, low = in(reg32) low.low, far = in(reg32) high.high, add = in(reg32) add,
                options(nostack)
            )
        }
    };
}
bands! {
    warpgroup_bands_32, 4 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31],
    64 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63],
    32 [4 5] 0
    32 [6 7] 1
    32 [8 9] 2
    32 [10 11] 3
}
bands! {
    warpgroup_bands_64, 4 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31],
    96 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76
        77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95],
    32 [4 5] 0
    64 [6 7 8 9] 1
    32 [10 11] 2
    64 [12 13 14 15] 3
}
bands! {
    warpgroup_bands_96, 3 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23],
    96 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76
        77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95],
    32 [3 4] 0
    64 [5 6 7 8] 1
    96 [9 10 11 12 13 14] 2
}
bands! {
    warpgroup_bands_128, 4 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31],
    160 [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76
        77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109
        110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127 128 129 130 131 132 133 134 135 136
        137 138 139 140 141 142 143 144 145 146 147 148 149 150 151 152 153 154 155 156 157 158 159],
    32 [4 5] 0
    64 [6 7 8 9] 1
    96 [10 11 12 13 14 15] 2
    128 [16 17 18 19 20 21 22 23] 3
}

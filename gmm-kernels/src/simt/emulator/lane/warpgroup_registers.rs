//! Products of a warpgroup with the first operand in registers.
use super::warpgroup::{Operand, Registers, place};
use super::{Halves, warp_sync};

/// The high and the low part of an operand. All lanes of the warp call it.
fn both([a, b, c, d, e, f, g, h]: [Halves; 8]) -> [Registers; 2] {
    [Registers::of([a, b, c, d]), Registers::of([e, f, g, h])]
}

/// Σ over sixteen numbers of a row of A and a column of B, without the product of both low parts.
fn products(
    [high, low]: &[Registers; 2],
    row: usize,
    [b_high, b_low]: [Operand; 2],
    column: usize,
    along: bool,
) -> f64 {
    let of = |k| {
        let (b, b_low) = (b_high.number(column, k, along), b_low.number(column, k, along));
        low.number(row, k) * b + high.number(row, k) * (b_low + b)
    };
    (0..16).map(of).sum()
}

/// As on the device, rounded once; `first`: the first band; `more`: each band's steps beyond the previous one's.
fn triangles<const S: usize, const N: usize>(
    first: usize,
    more: usize,
    a: &[[Halves; 8]; S],
    b: [Operand; 2],
) -> [f32; N] {
    let a = a.map(both);
    let sums = std::array::from_fn(|i| {
        let (row, column) = place(i);
        let (band, of_band) = (first + column / 64, column % 64);
        let before = more * (band * (band + 1) / 2);
        let of = |step: usize| products(&a[step], row, b.map(|b| b.offset((before + step) * 2048)), of_band, true);
        (0..more * (band + 1)).map(of).sum::<f64>() as f32
    });
    warp_sync();
    sums
}

/// As on the device, rounded once; `bands`: the bands of a pair of components.
fn bands<const E: usize, const N: usize>(
    bands: usize,
    c: &mut [f32; N],
    a: &[[Halves; 8]; E],
    b: [Operand; 2],
    add: u32,
) {
    let a = a.map(both);
    let mut first = 0;
    for (e, a) in a.iter().enumerate() {
        let count = 16 * (e % bands + 1);
        for (i, c) in c[first..first + count].iter_mut().enumerate() {
            let (row, column) = place(i);
            let before = if add == 0 { 0.0 } else { f64::from(*c) };
            *c = (before + products(a, row, b, column, false)) as f32;
        }
        first += count;
    }
    warp_sync();
}

macro_rules! triangles {
    ($($name:ident $first:literal $more:literal $sums:literal;)*) => { $(
        /// As on the device, rounded once.
        pub unsafe fn $name<const S: usize>(a: &[[Halves; 8]; S], b: [Operand; 2]) -> [f32; $sums] {
            triangles($first, $more, a, b)
        }
    )* };
}
triangles! {
    warpgroup_triangles_32 0 1 64;
    warpgroup_triangles_64 0 2 64;
    warpgroup_triangles_96_last 2 2 32;
    warpgroup_triangles_128_last 2 2 64;
}

macro_rules! bands {
    ($($name:ident $of_pair:literal $eights:literal $sums:literal;)*) => { $(
        /// As on the device, rounded once.
        pub unsafe fn $name(c: &mut [f32; $sums], a: &[[Halves; 8]; $eights], b: [Operand; 2], add: u32) {
            bands($of_pair, c, a, b, add);
        }
    )* };
}
bands! {
    warpgroup_bands_32 1 4 64;
    warpgroup_bands_64 2 4 96;
    warpgroup_bands_96 3 3 96;
    warpgroup_bands_128 4 4 160;
}

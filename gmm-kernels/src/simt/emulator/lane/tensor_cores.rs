//! The tensor cores, and float16 numbers.
use super::super::here;
use super::{Shared, exchange, exchange_all};
use half::f16;
use std::array::from_fn;

/// Two float16 numbers, the first in the lower half.
pub type Halves = u32;

pub fn round_halves(a: f32, b: f32) -> Halves {
    u32::from(f16::from_f32(a).to_bits()) | u32::from(f16::from_f32(b).to_bits()) << 16
}
pub fn widen_halves(h: Halves) -> [f32; 2] {
    [h as u16, (h >> 16) as u16].map(|bits| f16::from_bits(bits).to_f32())
}
pub fn multiply_halves(a: Halves, b: Halves) -> Halves {
    fma_halves(a, b, 0)
}
pub fn fma_halves(a: Halves, b: Halves, c: Halves) -> Halves {
    let [a, b, c] = [a, b, c].map(|h| widen_halves(h).map(f64::from));
    let bits = |i: usize| u32::from(f16::from_f64(a[i].mul_add(b[i], c[i])).to_bits());
    bits(0) | bits(1) << 16
}
pub fn fma_minus_halves(a: Halves, b: Halves, c: Halves) -> Halves {
    fma_halves(a, b, c ^ 0x8000_8000)
}
/// c + A·B of a warp: A (16, 16), B (16, 8) in float16, c (16, 8) in float32. Rounded once, unlike on a device.
pub fn mma(c: [f32; 4], a: [Halves; 4], b: [Halves; 2]) -> [f32; 4] {
    let lanes = exchange_all([a[0], a[1], a[2], a[3], b[0], b[1]]);
    let lane = (here().thread % 32) as usize;
    let number = |register: u32, k: usize| f64::from(widen_halves(register)[k % 2]);
    from_fn(|i| {
        let (row, column) = (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
        let products = (0..16).map(|k| {
            let a = lanes[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
            let b = lanes[column * 4 + k % 8 / 2][4 + k / 8];
            number(a, k) * number(b, k)
        });
        (f64::from(c[i]) + products.sum::<f64>()) as f32
    })
}
pub fn mma64(c: [f64; 2], a: f64, b: f64) -> [f64; 2] {
    let words = |v: f64| [v.to_bits() as u32, (v.to_bits() >> 32) as u32];
    let ([a0, a1], [b0, b1]) = (words(a), words(b));
    let lanes = exchange_all([a0, a1, b0, b1]);
    let number =
        |lane: usize, i: usize| f64::from_bits(u64::from(lanes[lane][i]) | u64::from(lanes[lane][i + 1]) << 32);
    let lane = (here().thread % 32) as usize;
    from_fn(|i| {
        let (row, column) = (lane / 4, 2 * (lane % 4) + i);
        (0..4).fold(c[i], |sum, k| number(row * 4 + k, 0).mul_add(number(column * 4 + k, 2), sum))
    })
}
pub fn tall_mma64(c: [f64; 4], a: [f64; 4], b: [f64; 2]) -> [f64; 4] {
    let [c0, c1] = mma64(mma64([c[0], c[1]], a[0], b[0]), a[2], b[1]);
    let [c2, c3] = mma64(mma64([c[2], c[3]], a[1], b[0]), a[3], b[1]);
    [c0, c1, c2, c3]
}
impl Shared<Halves> {
    pub unsafe fn set2(self, i: usize, v: [Halves; 2]) {
        self.pointer::<[Halves; 2]>(i).write(v)
    }
    /// Reads the four matrices whose rows the lanes name.
    unsafe fn rows(self, i: usize) -> [[[Halves; 4]; 8]; 4] {
        let places = exchange(self.offset(i).bytes as u32);
        let row = |lane: usize| Self::at(places[lane] as usize).get4(0);
        from_fn(|matrix| from_fn(|r| row(8 * matrix + r)))
    }
    pub unsafe fn matrices(self, i: usize) -> [Halves; 4] {
        let lane = (here().thread % 32) as usize;
        self.rows(i).map(|rows| rows[lane / 4][lane % 4])
    }
    pub unsafe fn matrices_transposed(self, i: usize) -> [Halves; 4] {
        let lane = (here().thread % 32) as usize;
        let (column, row) = (lane / 4, 2 * (lane % 4));
        let number = |halves: Halves| halves >> (16 * (column % 2)) & 0xffff;
        self.rows(i).map(|rows| number(rows[row][column / 2]) | number(rows[row + 1][column / 2]) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Memory, launch};
    use super::*;
    use crate::simt::emulator::lane::{CachePolicy, Wide};
    use crate::simt::split_halves;
    use std::vec;

    /// c + A·B by `mma` with both ways to read B, compared with plain loops.
    #[test]
    fn a_product_of_matrices() {
        #[derive(Clone, Copy)]
        struct Args {
            a: *const Halves,
            b: *const Halves,
            c: *mut f32,
        }
        unsafe fn kernel(args: Args) {
            let lane = here().thread as usize;
            let (a, b) = (Shared::<Halves>::at(0), Shared::<Halves>::at(512));
            // SAFETY: A has 16 rows of 16 numbers, and B 16 rows of 16.
            a.copy4(4 * lane, args.a.add(4 * lane), CachePolicy);
            b.copy4(4 * lane, args.b.add(4 * lane), CachePolicy);
            super::super::super::barrier();
            // Eight halves are four elements; a row has eight elements.
            let row = (lane % 8 + 8 * (lane / 8 % 2)) * 8 + 4 * (lane / 16);
            let (a, b) = (a.matrices(row), b.matrices_transposed(row));
            for (tile, b) in [[b[0], b[1]], [b[2], b[3]]].into_iter().enumerate() {
                let c = mma([1.0; 4], a, b);
                for (i, c) in c.into_iter().enumerate() {
                    let (row, column) = (lane / 4 + 8 * (i / 2), 8 * tile + 2 * (lane % 4) + i % 2);
                    super::super::store(args.c.add(16 * row + column), c);
                }
            }
        }
        let value = |i: usize, seed: usize| ((i * 37 + seed) % 23) as f32 / 8.0 - 1.0;
        let matrix = |seed: usize| -> std::vec::Vec<Halves> {
            (0..128).map(|i| round_halves(value(2 * i, seed), value(2 * i + 1, seed))).collect()
        };
        // Aligned to 16 bytes.
        let wide = |m: std::vec::Vec<Halves>| -> std::vec::Vec<Wide<[Halves; 4]>> {
            m.chunks_exact(4).map(|c| Wide([c[0], c[1], c[2], c[3]])).collect()
        };
        let (a, b, mut c) = (wide(matrix(3)), wide(matrix(11)), vec![f32::NAN; 256]);
        let mut memory = Memory::new();
        let args =
            Args { a: memory.read("a", &a).cast(), b: memory.read("b", &b).cast(), c: memory.write("c", &mut c) };
        // SAFETY: the arrays of the arguments.
        unsafe { launch((1, 1), 32, 1024, &memory, kernel, args) };
        for (i, got) in c.into_iter().enumerate() {
            let (row, column) = (i / 16, i % 16);
            let products = (0..16).map(|k| value(16 * row + k, 3) * value(16 * k + column, 11));
            // All numbers are multiples of 1/64 below 2^10: exact.
            assert_eq!(got, 1.0 + products.sum::<f32>(), "{row}, {column}");
        }
    }

    /// The sum of the two parts differs from the number by at most 2^-22 of it, or 2^-25.
    #[test]
    fn numbers_are_split() {
        for v in [0.0f32, 1.0, -1.234_567_8, 16_383.123, 3.3e-5, -1e-9, 65_000.3] {
            let [high, low] = split_halves(v, -v);
            let (high, low) = (widen_halves(high), widen_halves(low));
            for (i, v) in [v, -v].into_iter().enumerate() {
                let error = (f64::from(high[i]) + f64::from(low[i]) - f64::from(v)).abs();
                assert!(error <= (f64::from(v.abs()) * 2f64.powi(-22)).max(2f64.powi(-25)), "{v}: {error}");
            }
        }
    }
}

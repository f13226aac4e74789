//! float32 and float64 behind one trait, for kernels that have an instance for each.
use super::float64;
use crate::simt::*;
use core::ops::{Add, Div, Mul, Neg, Sub};

/// An element type.
pub trait Float:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The lowest finite number.
    const LOWEST: Self;
    /// a·b + c, rounded once; a is `self`.
    fn fma(self, b: Self, c: Self) -> Self;
    /// 2^x, 0 below the normal numbers: [`exp2`] or [`float64::exp2`].
    fn exp2(self) -> Self;
    /// Whether it is NaN, which represents a missing value.
    fn is_nan(self) -> bool;
    /// The number as float64.
    fn wide(self) -> f64;
    /// The number nearest to `v`.
    fn narrow(v: f64) -> Self;
    /// The value in the lane whose number differs in the bits `mask`; all lanes of the warp take part.
    fn shuffle_xor(self, mask: u32) -> Self;
    /// Reads a number in global memory that no thread writes during the launch.
    ///
    /// # Safety
    /// `p` is aligned and readable.
    unsafe fn load(p: *const Self) -> Self;
    /// Neighbouring numbers in 16 bytes.
    const NEIGHBOURS: usize;
    /// Reads four numbers in global memory that no thread writes during the launch, in 16-byte reads: in float64 two
    /// from `p` on and two from `distance` numbers behind it on.
    ///
    /// # Safety
    /// Both places are aligned to 16 bytes and readable for these numbers.
    unsafe fn load_apart(p: *const Self, distance: usize) -> [Self; 4];
    /// Writes four numbers in the places of [`Self::load_apart`].
    ///
    /// # Safety
    /// Both places are aligned to 16 bytes and writable for these numbers.
    unsafe fn store_apart(p: *mut Self, distance: usize, v: [Self; 4]);
    /// Reads four neighbouring numbers in global memory that no thread writes during the launch, in 16-byte reads.
    ///
    /// # Safety
    /// `p` is aligned to 16 bytes and readable for four numbers.
    #[inline(always)]
    unsafe fn load4(p: *const Self) -> [Self; 4] {
        Self::load_apart(p, Self::NEIGHBOURS)
    }
    /// Writes four neighbouring numbers in 16-byte writes.
    ///
    /// # Safety
    /// `p` is aligned to 16 bytes and writable for four numbers.
    #[inline(always)]
    unsafe fn store4(p: *mut Self, v: [Self; 4]) {
        Self::store_apart(p, Self::NEIGHBOURS, v);
    }
}

/// Numbers that the compiler may write at once, because of their alignment.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Together<T, const N: usize>([T; N]);

/// The items whose text is the same for both types.
macro_rules! common {
    ($t:ty) => {
        const ZERO: Self = 0.0;
        const ONE: Self = 1.0;
        const LOWEST: Self = <$t>::MIN;
        #[inline(always)]
        fn is_nan(self) -> bool {
            self.is_nan()
        }
        #[inline(always)]
        fn wide(self) -> f64 {
            self as f64
        }
        #[inline(always)]
        fn narrow(v: f64) -> Self {
            v as $t
        }
    };
}

impl Float for f32 {
    common!(f32);
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        fma(self, b, c)
    }
    #[inline(always)]
    fn exp2(self) -> Self {
        exp2(self)
    }
    #[inline(always)]
    fn shuffle_xor(self, mask: u32) -> Self {
        f32::from_bits(shuffle_xor_u32(self.to_bits(), mask))
    }
    #[inline(always)]
    unsafe fn load(p: *const Self) -> Self {
        f32::from_bits(load_u32(p.cast()))
    }
    const NEIGHBOURS: usize = 4;
    #[inline(always)]
    unsafe fn load_apart(p: *const Self, _: usize) -> [Self; 4] {
        load_f32x4(p)
    }
    #[inline(always)]
    unsafe fn store_apart(p: *mut Self, _: usize, v: [Self; 4]) {
        store(p.cast(), Together(v));
    }
}

impl Float for f64 {
    common!(f64);
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        fma64(self, b, c)
    }
    #[inline(always)]
    fn exp2(self) -> Self {
        float64::exp2(self)
    }
    #[inline(always)]
    fn shuffle_xor(self, mask: u32) -> Self {
        let bits = self.to_bits();
        let low = shuffle_xor_u32(bits as u32, mask);
        let high = shuffle_xor_u32((bits >> 32) as u32, mask);
        f64::from_bits((high as u64) << 32 | low as u64)
    }
    #[inline(always)]
    unsafe fn load(p: *const Self) -> Self {
        f64::from_bits(load_u64(p.cast()))
    }
    const NEIGHBOURS: usize = 2;
    #[inline(always)]
    unsafe fn load_apart(p: *const Self, distance: usize) -> [Self; 4] {
        let ([a, b], [c, d]) = (load_f64x2(p), load_f64x2(p.add(distance)));
        [a, b, c, d]
    }
    #[inline(always)]
    unsafe fn store_apart(p: *mut Self, distance: usize, [a, b, c, d]: [Self; 4]) {
        store(p.cast(), Together([a, b]));
        store(p.add(distance).cast(), Together([c, d]));
    }
}

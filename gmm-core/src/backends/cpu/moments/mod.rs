//! The E-step kernel: log-sum-exp and sufficient statistics from one read of the samples.
//!
//! Moments are taken around each component's current mean, so nothing cancels, and summed in the element type over at
//! most a few thousand samples; these sums are added in float64.
//!
//! - `diag`, `spherical`: Σ r·(x−c) and Σ r·(x−c)², for some features and a tile of groups of samples at a time, so
//!   that sums stay in registers. If all components lie near the frame's zero, c is zero for all, which halves the
//!   operations, because the squares of the samples are then shared. With missing values the sums cover the samples
//!   with a value in the column, and Σ r over these is a third sum.
//! - `full`: a group's samples become rows, and those with a non-negligible responsibility wait in their component's
//!   queue until there are many. Then Σ r·(x−c) and the lower triangle of Σ r·(x−c)(x−c)ᵀ are matrix products, so the
//!   sums, too large for a cache if D is large, are read and written once for many samples. With few features, and all
//!   components near the frame's zero, the moments are formed like the diagonal ones: products of features are then
//!   shared by all components.
//! - `tied`: Σₖ r(x−cₖ)(x−cₖ)ᵀ of one sample is its scatter around the conditional mean c̄ = Σₖ r·cₖ plus that of the
//!   cₖ around c̄, which is ½ Σₖₗ rₖrₗ(cₖ−cₗ)(cₖ−cₗ)ᵀ (both without a difference of squares). So a sample takes one
//!   outer product of D features and one of K responsibilities, instead of K of D features.
mod layout;
mod queues;
mod responsibilities;
mod rows;
mod sums;
mod tied;
mod tiles;
mod totals;

pub(crate) use layout::Layout;
pub(crate) use sums::Sums;
pub(crate) use totals::{MAX_PENDING, SegmentSums, Totals};

use super::kernel::{Chunk, Group, Product, Visitor, logarithms};
use super::real::Real;
use crate::backends::device_parameters::DeviceParameters;
use crate::simd::lane::{elements_mut, lanes};
use layout::MAX_GROUP;
use pulp::{Simd, WithSimd};
use responsibilities::responsibilities;
use rows::transpose;
use tied::Tied;
use tiles::Tiles;

/// The E-step over a chunk, added to `sums`. Returns the total of log₂ p − offset.
pub(crate) struct EStep<'a, T> {
    pub chunk: Chunk<'a, T>,
    /// The weights of the chunk's samples, if any.
    pub weights: Option<&'a [f64]>,
    /// The centres of the moments in the frame, (K, width).
    pub centres: &'a [T],
    pub sums: &'a mut Sums<T>,
}

impl<T: Real> WithSimd for EStep<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let centres = T::registers::<S>(self.centres);
        let mut moments = Moments::<T, S> {
            n: self.chunk.n,
            parameters: self.chunk.parameters,
            weights: self.weights,
            centres,
            sums: self.sums,
            product: Product::new(simd),
            log2: 0.0,
            tiles: Tiles::new(self.chunk.parameters, centres, T::registers::<S>(self.chunk.x)),
        };
        self.chunk.for_each_group(simd, &mut moments);
        moments.tiles.release(simd, moments.sums);
        if self.weights.is_some() { moments.log2 } else { moments.product.log2() }
    }
}

/// Adds the moments of one group after the other to the sums, by `tiles`, `queues` or `tied`.
struct Moments<'a, T: Real, S: Simd> {
    n: usize,
    parameters: &'a DeviceParameters<T>,
    weights: Option<&'a [f64]>,
    centres: &'a [T::Reg<S>],
    sums: &'a mut Sums<T>,
    /// Without weights: the product of the samples' sums of terms.
    product: Product<T, S>,
    /// With weights: the total of w·(log₂ p − offset).
    log2: f64,
    tiles: Tiles<'a, T, S>,
}

impl<T: Real, S: Simd> Visitor<T, S> for Moments<'_, T, S> {
    const TERMS: bool = true;

    #[inline(always)]
    fn visit<const REGISTERS: usize>(&mut self, simd: S, group: Group<'_, T::Reg<S>, REGISTERS>) {
        let n = (self.n - group.first).min(REGISTERS * lanes::<T, S>());
        let mut weight = [T::splat(simd, T::from_f64(1.0)); REGISTERS];
        match self.weights {
            None => {
                self.product.multiply(simd, group.sum, group.shift, n);
                elements_mut::<T, S>(&mut weight)[n..].fill(T::from_f64(0.0));
            }
            Some(weights) => {
                let weights = &weights[group.first..][..n];
                let mut log2 = [0.0; MAX_GROUP];
                logarithms::<T, S>(&mut log2[..n], &group.sum, group.shift.as_ref().map(|v| &v[..]));
                let weight = elements_mut::<T, S>(&mut weight);
                weight.fill(T::from_f64(0.0));
                for ((to, &w), log2) in weight.iter_mut().zip(weights).zip(log2) {
                    *to = T::from_f64(w);
                    self.log2 += if w > 0.0 { w * log2 } else { 0.0 };
                }
            }
        }
        let mut share = weight;
        for g in 0..REGISTERS {
            share[g] = T::div(simd, weight[g], group.sum[g]);
        }
        if self.sums.layout.tile > 0 {
            return self.tiles.hold(simd, self.sums, group.x, group.terms, &share);
        }
        // From here on `terms` holds responsibilities times weights.
        let counts = T::registers_mut::<S>(&mut self.sums.spread);
        for (terms, count) in group.terms.iter_mut().zip(counts) {
            *terms = responsibilities::<T, S, REGISTERS>(simd, terms, &share, count);
        }
        let Self { parameters, centres, .. } = *self;
        match &mut *self.sums {
            Sums { layout, rows, queues: Some(queues), matrices, .. } => {
                let rows = T::registers_mut::<S>(rows);
                transpose::<T, S>(group.x, n, parameters.n_features, layout.width, rows);
                queues.add(simd, n, rows, group.terms, centres, matrices);
            }
            sums => Tied { parameters, centres, sums }.add(simd, n, group.x, group.terms, &weight),
        }
    }
}

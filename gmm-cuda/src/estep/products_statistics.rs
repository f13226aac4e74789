//! The statistics of an E-step from sums of products of two features.
use super::products_shapes::{Shapes, place};
use super::split_component::Component;
use super::sums::Sums;
use super::tensor_cores_layout::TensorCoresLayout;
use super::whitened_shapes::WhitenedShapes;
use gmm_core::error::Result;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::linalg::{at_once, map_rows, vectorised};
use gmm_core::statistics::{CentredSums, Statistics};
use gmm_kernels::estep::products_mma::{FEATURE_SCALE, ONE, PRODUCT_SCALE, RESPONSIBILITY_SCALE};
use gmm_kernels::estep::whitened_mma;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayView1, Axis};
use std::convert::identity;

const _: () = assert!(RESPONSIBILITY_SCALE <= 65504.0, "a responsibility of one is a float16 number");

impl TensorCoresLayout {
    /// Returns the statistics, from the sums of `products_mma` or `products_wgmma`.
    pub fn statistics(&self, shapes: &Shapes, sums_of: &Sums<'_>) -> Result<Statistics> {
        let (shape, sums) = (&shapes.weigh, sums_of.values);
        let (counts, rounded) = sums[shape.rows() * shape.products()..][..2 * shape.rows()].split_at(shape.rows());
        let d = self.dim().1;
        let full = self.full();
        let (width, of_part, of_sums) = (shape.products(), shapes.of_part, shape.sums());
        let product = move |c: usize, (i, j): (usize, usize)| {
            if d == of_part {
                return sums[c * width + place(d, full, (i, j))];
            }
            // Squares, and products with a number behind the part's features.
            let (part, i_of_part) = (i / of_part, i % of_part);
            let features = of_part.min(d - part * of_part);
            let j = if j < d { i_of_part } else { features + j - d };
            sums[part * of_sums + c * width + place(features, false, (i_of_part, j))]
        };
        let row = row_by_row(product);
        let diagonal = |c: usize, first: &mut [f64], second: &mut [f64]| {
            for (part, features) in shapes.parts().enumerate() {
                let (pairs, _) = sums[part * of_sums + c * width..][..2 * features.len()].as_chunks();
                let to = first[features.clone()].iter_mut().zip(&mut second[features]);
                to.zip(pairs).for_each(|((first, second), [of_one, square])| (*first, *second) = (*of_one, *square));
            }
        };
        let log2 = sums_of.weight_scale * sums_of.log2;
        self.statistics_of(SumsOfProducts { counts, rounded, product, row, diagonal: &diagonal, log2 }, sums_of)
    }

    /// Returns the statistics, from the sums of products among `sums_of`.
    pub(super) fn statistics_of(
        &self,
        sums: SumsOfProducts<
            '_,
            impl Fn(usize, (usize, usize)) -> f64 + Copy + Sync,
            impl Fn(usize, usize, &mut [f64]) + Sync,
        >,
        sums_of: &Sums<'_>,
    ) -> Result<Statistics> {
        let (k, d) = self.dim();
        let SumsOfProducts { counts, rounded, product, row, diagonal, log2 } = sums;
        let Sums { weight_scale: scale, total_weight: weight, frame, .. } = *sums_of;
        // The moments were formed with rounded responsibilities, whose sum is not quite the count.
        let unit = |c: usize| {
            let of_rounded = if rounded[c] > 0.0 { counts[c] / rounded[c] } else { 0.0 };
            scale * of_rounded / f64::from(PRODUCT_SCALE * RESPONSIBILITY_SCALE)
        };
        let of_component = |(count, component): (&f64, &Component)| count * component.missing;
        let missing: f64 = counts.iter().zip(self.components()).map(of_component).sum();
        let log2 = log2 + scale / f64::from(RESPONSIBILITY_SCALE) * missing;
        let log2 = log2 + self.quadratic.as_ref().map_or(0.0, |quadratic| quadratic.log2);
        let inverse = &frame.inverse;
        let write_first = |c: usize, first: &mut [f64]| {
            let unit = unit(c) / f64::from(ONE);
            first
                .iter_mut()
                .zip(inverse)
                .enumerate()
                .for_each(|(i, (to, inverse))| *to = product(c, (i, d)) * unit * inverse);
        };
        let pair = |c: usize, unit: f64, i: usize, j: usize| product(c, (i, j)) * unit * inverse[i] * inverse[j];
        let mut sums = CentredSums {
            weight,
            log_likelihood: sums_of.log_likelihood(log2, self.parameters().offset),
            centres: Array2::zeros((k, d)) + ArrayView1::from(&frame.shift),
            counts: counts[..k].iter().map(|count| count * scale / f64::from(RESPONSIBILITY_SCALE)).collect(),
            first: Array2::zeros((k, d)),
            second: Covariances::zeros(self.covariance_type, k, d),
        };
        if self.covariance_type == CovarianceType::Diag && self.mixture.is_none() {
            return of_diagonals(sums, inverse, &unit, diagonal);
        }
        if self.covariance_type == CovarianceType::Full {
            return Statistics::from_sums(sums, |c, first, second| {
                write_first(c, first);
                let unit = unit(c);
                vectorised(
                    #[inline(always)]
                    || {
                        for (i, to) in second.chunks_exact_mut(d).enumerate() {
                            // In whole eights, if there are so many.
                            let to = &mut to[..d.min((i + 1).next_multiple_of(8))];
                            row(c, i, to);
                            // Powers of two.
                            let unit = unit * inverse[i];
                            to.iter_mut().zip(inverse).for_each(|(to, inverse)| *to *= unit * inverse);
                        }
                    },
                );
            });
        }
        let rows = sums.first.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
        map_rows(rows, at_once(d / 2), |(c, mut row)| write_first(c, row.as_slice_mut().unwrap_or_default()));
        match &mut sums.second {
            Covariances::Diag(to) => {
                let rows = to.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
                map_rows(rows, at_once(d / 2), |(c, row)| {
                    let unit = unit(c);
                    row.into_iter().enumerate().for_each(|(i, to)| *to = pair(c, unit, i, i));
                });
            }
            Covariances::Spherical(to) => {
                to.iter_mut().enumerate().for_each(|(c, to)| *to = (0..d).map(|i| pair(c, unit(c), i, i)).sum());
            }
            // See above.
            Covariances::Full(_) => {}
            Covariances::Tied(to) if self.quadratic.is_some() => {
                self.quadratic.iter().for_each(|quadratic| to.assign(quadratic.second()));
            }
            Covariances::Tied(to) => {
                for c in 0..k {
                    let unit = unit(c);
                    for (i, mut row) in to.outer_iter_mut().enumerate() {
                        row.iter_mut().take(i + 1).enumerate().for_each(|(j, to)| *to += pair(c, unit, i, j));
                    }
                }
            }
        }
        if let Some(mixture) = &self.mixture {
            sums.add_missing(mixture, |c, j| product(c, (j, d + 1)) * unit(c));
        }
        Statistics::from_centred_sums(sums)
    }

    /// Returns the statistics as [`Self::statistics`], from the sums of `whitened_mma` or `whitened_wgmma`.
    pub fn whitened_statistics(&self, shapes: &WhitenedShapes, sums_of: &Sums<'_>) -> Result<Statistics> {
        /// The ratio of the other kernels' products and responsibilities to these kernels'.
        const UNIT: f64 = (RESPONSIBILITY_SCALE / whitened_mma::RESPONSIBILITY_SCALE) as f64;
        let (sums, log2) = (sums_of.values, sums_of.weight_scale * sums_of.log2);
        let [counts, rounded] =
            shapes.counts(sums).map(|of_rows| of_rows.iter().map(|count| count * UNIT).collect::<Vec<_>>());
        let (counts, rounded) = (&counts[..], &rounded[..]);
        let d = self.dim().1;
        let of_one = UNIT * f64::from(PRODUCT_SCALE / FEATURE_SCALE * ONE);
        // The rest is compiled for each kind, because a test of the kind costs as much as reading a sum.
        match shapes {
            WhitenedShapes::Warps { outer, .. } => {
                let product = move |c: usize, (i, j): (usize, usize)| {
                    sums[outer.place(c, i, j)] * if j == d { of_one } else { UNIT }
                };
                let row = row_by_row(product);
                self.statistics_of(
                    SumsOfProducts { counts, rounded, product, row, diagonal: &by_feature(d, product), log2 },
                    sums_of,
                )
            }
            WhitenedShapes::Warpgroups(shape) => {
                let (of_pairs, of_features) = sums.split_at(shape.outer_sums());
                let product = move |c: usize, (i, j): (usize, usize)| match j == d {
                    true => of_features[c * shape.width() + i] * of_one,
                    false => of_pairs[shape.place(c, i, j)] * UNIT,
                };
                // Of eight neighbours, the even ones come before the odd ones.
                let row = identity(
                    #[inline(always)]
                    |c: usize, i: usize, to: &mut [f64]| {
                        let (eights, rest) = to.as_chunks_mut::<8>();
                        for (e, to) in eights.iter_mut().enumerate() {
                            let even = &of_pairs[shape.place(c, i, 8 * e)..][..4];
                            let odd = &of_pairs[shape.place(c, i, 8 * e + 1)..][..4];
                            for j in 0..4 {
                                (to[2 * j], to[2 * j + 1]) = (even[j] * UNIT, odd[j] * UNIT);
                            }
                        }
                        let first = 8 * eights.len();
                        for (j, to) in rest.iter_mut().enumerate() {
                            *to = of_pairs[shape.place(c, i, first + j)] * UNIT;
                        }
                    },
                );
                self.statistics_of(
                    SumsOfProducts { counts, rounded, product, row, diagonal: &by_feature(d, product), log2 },
                    sums_of,
                )
            }
        }
    }
}

/// A function as [`SumsOfProducts::diagonal`].
type WriteDiagonal<'a> = dyn Fn(usize, &mut [f64], &mut [f64]) + Sync + 'a;

/// Returns the statistics of diagonal covariances: each component's sums times its unit, over the frame's scales. Compiled
/// once for all kinds of sums.
fn of_diagonals(
    sums: CentredSums,
    inverse: &[f64],
    unit: &(dyn Fn(usize) -> f64 + Sync),
    diagonal: &WriteDiagonal<'_>,
) -> Result<Statistics> {
    Statistics::from_sums(sums, |c, first, second| {
        let unit = unit(c);
        let of_first = unit / f64::from(ONE);
        diagonal(c, first, second);
        vectorised(
            #[inline(always)]
            || {
                for ((first, second), inverse) in first.iter_mut().zip(second).zip(inverse) {
                    *first *= of_first * inverse;
                    *second *= unit * inverse * inverse;
                }
            },
        );
    })
}

/// Returns [`SumsOfProducts::row`] from [`SumsOfProducts::product`].
pub(super) fn row_by_row(product: impl Fn(usize, (usize, usize)) -> f64) -> impl Fn(usize, usize, &mut [f64]) {
    move |c, i, to| to.iter_mut().take(i + 1).enumerate().for_each(|(j, to)| *to = product(c, (i, j)))
}

/// Returns [`SumsOfProducts::diagonal`] from [`SumsOfProducts::product`].
pub(super) fn by_feature(
    d: usize,
    product: impl Fn(usize, (usize, usize)) -> f64,
) -> impl Fn(usize, &mut [f64], &mut [f64]) {
    move |c, first, second| {
        for (i, (first, second)) in first.iter_mut().zip(second).enumerate() {
            (*first, *second) = (product(c, (i, d)), product(c, (i, i)));
        }
    }
}

/// Sums over samples as the kernels form them.
pub(super) struct SumsOfProducts<'a, P, R> {
    /// For each component, the sums of responsibilities and of rounded ones, times [`RESPONSIBILITY_SCALE`].
    pub counts: &'a [f64],
    pub rounded: &'a [f64],
    /// For a component and features i and j ≤ i, the sum of rounded responsibilities, times [`RESPONSIBILITY_SCALE`],
    /// times the features' product, times [`PRODUCT_SCALE`]; j = D stands for the number one, j = D + 1 for whether
    /// feature i is observed.
    pub product: P,
    /// Writes a component's products of feature i with the features j ≤ i; numbers behind these are ignored.
    pub row: R,
    /// Writes the sums of a component's features, and of their squares, if covariances are diagonal.
    pub diagonal: &'a WriteDiagonal<'a>,
    /// The log₂-likelihood of the samples, less the mixture's offset, without a factor.
    pub log2: f64,
}

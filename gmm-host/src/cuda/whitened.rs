//! Parameters and results of the `moments` kernels. No call of CUDA in here: all of it runs and is tested on any machine.
use crate::packed::{Float, Frame, Packed, weights_and_seeds};
use crate::statistics::CentredSums;
use crate::{CovarianceType, Covariances, Error, Mixture, Result, Statistics};
use gmm_kernels::moments;
use ndarray::{Array1, Array2, Array3};

/// A mixture as z = A·x′ + b for each component, in the frame of a data set: log₂ of a component's density is a
/// constant minus |z|². A is diagonal for `diag` and `spherical`, else lower triangular (√(log₂e / 2) times the
/// transposed Cholesky factor of the precision).
#[derive(Debug, Clone)]
pub(crate) struct Whitened {
    covariance_type: CovarianceType,
    k: usize,
    d: usize,
    /// A, row by row (K, [`moments::matrix`]), as rounded.
    a: Vec<f32>,
    /// b (K, D), as rounded.
    b: Vec<f32>,
    weight: Vec<f32>,
    seed: Vec<f32>,
    /// Constant of every sample, in log₂ units.
    pub offset: f64,
}

/// Place of element (i, j), j ≤ i, in a lower triangle that is kept row by row.
fn at(i: usize, j: usize) -> usize {
    i * (i + 1) / 2 + j
}

impl Whitened {
    /// Errors: [`Error::OutOfRange`], as [`Packed::new`].
    pub fn new(mixture: &Mixture, frame: &Frame) -> Result<Self> {
        let (k, d) = mixture.means().dim();
        let covariance_type = mixture.covariance_type();
        let factor = mixture.precisions_cholesky();
        let u = |c: usize, i: usize, j: usize| match &*factor {
            Covariances::Full(u) => u[[c, i, j]],
            Covariances::Tied(u) => u[[i, j]],
            _ => 0.0,
        };
        if let CovarianceType::Diag | CovarianceType::Spherical = covariance_type {
            let Packed { scale: a, shift: b, weight, seed, offset, .. } = Packed::<f32>::new(mixture, frame)?;
            return Ok(Self { covariance_type, k, d, a, b, weight, seed, offset });
        }
        let root = (std::f64::consts::LOG2_E / 2.0).sqrt();
        let (mut a, mut b, mut constant) = (Vec::new(), Vec::new(), Vec::with_capacity(k));
        for (c, mean) in mixture.means().outer_iter().enumerate() {
            // log₂ of 1/√(2π) over the root, for each feature: turns log₂ |A| into the normalising constant.
            let mut log2 = mixture.weights()[c].log2() - d as f64 * (0.5 * std::f64::consts::TAU.log2() + root.log2());
            for i in 0..d {
                let (mut shift, mut reach) = (0.0, 0.0);
                for j in 0..=i {
                    let v = (root * u(c, j, i) / frame.scale[j]) as f32;
                    a.push(v);
                    // As seen by the device: b belongs to the rounded A.
                    shift += f64::from(v) * (frame.shift[j] - mean[j]) * frame.scale[j];
                    reach += 16.0 * f64::from(v).abs();
                }
                let pivot = f64::from(a[a.len() - 1]);
                if !(reach + shift.abs() <= f32::MAX_DEVIATION && pivot >= f64::from(f32::MIN_POSITIVE)) {
                    return Err(Error::OutOfRange { component: c, column: i, precision: f32::NAME });
                }
                b.push(shift as f32);
                log2 += pivot.log2() + frame.scale[i].log2();
            }
            constant.push(log2);
        }
        let (offset, weight, seed) = weights_and_seeds(&constant);
        Ok(Self { covariance_type, k, d, a, b, weight, seed, offset })
    }

    /// Whether A is a triangle.
    pub fn full(&self) -> bool {
        matches!(self.covariance_type, CovarianceType::Full | CovarianceType::Tied)
    }

    /// (K, D).
    pub fn dim(&self) -> (usize, usize) {
        (self.k, self.d)
    }

    /// Writes the parameters as the kernel reads them, ([`moments::numbers`], lanes).
    pub fn write(&self, lanes: usize, out: &mut [f32]) {
        let matrix = moments::matrix(self.d, self.full());
        debug_assert!(self.k <= lanes && out.len() == moments::numbers(self.d, self.full()) * lanes);
        out.fill(0.0);
        for c in 0..self.k {
            let own = self.a[c * matrix..][..matrix].iter().chain(&self.b[c * self.d..][..self.d]);
            // A component without weight has a seed far below all others; with weight zero any number does.
            let constants = if self.weight[c] > 0.0 { [self.weight[c], self.seed[c]] } else { [0.0, 0.0] };
            for (row, v) in out.chunks_exact_mut(lanes).zip(own.chain(&constants)) {
                row[c] = *v;
            }
        }
    }

    /// From the sums that the kernel gives, ([`moments::sums`], lanes) and the log₂-likelihood, over samples of total
    /// weight `weight`: the kernel's moments of z are brought back to x.
    pub fn statistics(
        &self,
        values: &[f64],
        lanes: usize,
        weight: f64,
        bias: f64,
        frame: &Frame,
    ) -> Result<Statistics> {
        let Self { k, d, .. } = *self;
        let matrix = moments::matrix(d, self.full());
        let value = |row: usize, c: usize| values[row * lanes + c];
        let log2 = values[moments::sums(d, self.full()) * lanes] + weight * (self.offset + bias);
        let mut centres = Array2::zeros((k, d));
        let mut first = Array2::zeros((k, d));
        let mut second = Array3::zeros((k, d, d));
        for c in 0..k {
            let b = &self.b[c * d..][..d];
            let a = &self.a[c * matrix..][..matrix];
            // Element (i, j) of A, in the data's own units.
            let a = |i: usize, j: usize| match self.full() {
                true => f64::from(a[at(i, j)]) * frame.scale[j],
                false if i == j => f64::from(a[i]) * frame.scale[j],
                false => 0.0,
            };
            // Solves A·y = v by forward substitution, in place.
            let solve = |v: &mut dyn FnMut(usize) -> f64, y: &mut [f64]| {
                for i in 0..d {
                    let known: f64 = (0..i).map(|j| a(i, j) * y[j]).sum();
                    let pivot = a(i, i);
                    // A component without weight may have no scale; its sums are zero.
                    y[i] = if pivot == 0.0 { 0.0 } else { (v(i) - known) / pivot };
                }
            };
            let mut y = vec![0.0; d];
            // z = 0 at the centre, which is the mean up to rounding.
            solve(&mut |i| -f64::from(b[i]), &mut y);
            (0..d).for_each(|j| centres[[c, j]] = frame.shift[j] + y[j]);
            solve(&mut |i| value(1 + i, c), &mut y);
            (0..d).for_each(|j| first[[c, j]] = y[j]);
            if self.full() {
                // A⁻¹·S·A⁻ᵀ: solve for the columns of S, then for the rows of what that gives.
                let s = |i: usize, j: usize| value(1 + d + if j <= i { at(i, j) } else { at(j, i) }, c);
                let mut half = Array2::zeros((d, d));
                for j in 0..d {
                    solve(&mut |i| s(i, j), &mut y);
                    (0..d).for_each(|i| half[[i, j]] = y[i]);
                }
                for i in 0..d {
                    solve(&mut |j| half[[i, j]], &mut y);
                    (0..d).for_each(|j| second[[c, i, j]] = y[j]);
                }
            } else {
                for i in 0..d {
                    let pivot = a(i, i);
                    second[[c, i, i]] = if pivot == 0.0 { 0.0 } else { value(1 + d + i, c) / (pivot * pivot) };
                }
            }
        }
        let variances = || Array2::from_shape_fn((k, d), |(c, j)| second[[c, j, j]]);
        let second = match self.covariance_type {
            CovarianceType::Diag => Covariances::Diag(variances()),
            CovarianceType::Spherical => Covariances::Spherical(variances().sum_axis(ndarray::Axis(1))),
            CovarianceType::Tied => Covariances::Tied(second.sum_axis(ndarray::Axis(0))),
            CovarianceType::Full => Covariances::Full(second),
        };
        Statistics::from_centred_sums(CentredSums {
            weight,
            log_likelihood: std::f64::consts::LN_2 * log2,
            centres,
            counts: Array1::from_shape_fn(k, |c| value(0, c)),
            first,
            second,
        })
    }
}

//! The code of every kernel, executed on the host (`gmm_kernels::simt::emulator`) and compared with
//! the float64 reference.
//!
//! Tolerances: with f32's unit u = 2⁻²⁴, a sample's exponent q = seed − Σ t² collects about 2·D
//! roundings of |t|·|m|·u, where t = s·x + m cancels from numbers of size |m|. They are random, so
//! that they grow with √D for a sample and with √N over samples; as bounds serve e = 2·√(D +
//! 4)·u·max(|log p|, 1)·max|m| for a sample and Σe/√N + max e for a total. One sample left out or
//! counted twice of up to 1000 is 10⁻³·Σ|log p| away, a hundred times that or more.
mod arrays;
mod estep;
mod fused64;
mod general;
mod likelihood;
mod metropolis;
mod pairwise;
mod patterns;

use super::device::layout as columns_layout;
use super::likelihood::layout;
use crate::backends::device_parameters::{Deviations, DeviceParameters};
use crate::data::frame::Frame;
use crate::{Covariances, Evaluator, Mixture, ReferenceEvaluator, Samples, View};
use cust::memory::bytemuck;
use gmm_kernels::data;
use gmm_kernels::reduce::{Output, UNWRITTEN};
use gmm_kernels::simt::emulator::{Memory, launch};
use ndarray::{Array1, Array2};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// What the padding behind the last sample holds: finite, and far from everything, so that it shows
/// if counted.
const PADDING: f32 = 7e3;

/// All features of a sample that is far from every component.
const FAR: f64 = 15.0;

/// A data set with a mixture, in the kernels' layout, and the truth about it.
struct Problem {
    frame: Frame,
    parameters: DeviceParameters<f32>,
    /// The columns, aligned to 16 bytes.
    data: Vec<u128>,
    n: usize,
    d: usize,
    k: usize,
    total: f64,
    samples: Array1<f64>,
    x: Array2<f32>,
}

/// The sums of so many blocks before a launch.
fn unwritten(blocks: u32) -> Vec<f64> {
    vec![f64::from_bits(UNWRITTEN); blocks as usize]
}

fn random_mixture(rng: &mut impl Rng, k: usize, d: usize) -> Mixture {
    let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
    let means = Array2::from_shape_simple_fn((k, d), || rng.sample::<f64, _>(StandardNormal));
    let variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.3..2.0));
    Mixture::new(&weights / weights.sum(), means, Covariances::Diag(variances)).unwrap()
}

/// The frame of float32 samples, and a mixture's parameters for them.
fn frame_and_parameters(samples: &Samples<'_>, mixture: &Mixture) -> (Frame, DeviceParameters<f32>) {
    let View::F32(x) = samples.view() else { panic!("float64 samples") };
    if samples.missing().is_none() {
        let frame = Frame::of(x);
        let parameters = DeviceParameters::with_matrices(mixture, &frame, Deviations::InFrame).unwrap();
        return (frame, parameters);
    }
    let frame = Frame::of_observed(x);
    let parameters = DeviceParameters::with_gaps(mixture, &frame, Deviations::InFrame).unwrap();
    (frame, parameters.with_mean_offset(&samples.observed_weights(), samples.total_weight()))
}

/// Makes a share of the values missing, at random and independently of each other.
fn with_holes(rng: &mut impl Rng, mut x: Array2<f32>, share: f64) -> Array2<f32> {
    x.map_inplace(|v| *v = if rng.random::<f64>() < share { f32::NAN } else { *v });
    x
}

impl Problem {
    fn new(x: Array2<f32>, mixture: &Mixture) -> Self {
        let ((n, d), k) = (x.dim(), mixture.n_components());
        let samples = Samples::with_missing(x.view()).unwrap();
        let (frame, parameters) = frame_and_parameters(&samples, mixture);
        let stride = columns_layout::stride(n);
        let mut data = vec![0u128; d * stride / 4];
        let columns: &mut [f32] = bytemuck::cast_slice_mut(&mut data);
        columns_layout::columns(&samples, &frame, 1.0, columns);
        for column in columns.chunks_exact_mut(stride) {
            column[n..].fill(PADDING);
        }
        let mut reference = ReferenceEvaluator::new(samples);
        let total = reference.log_likelihood(mixture).unwrap();
        let samples = reference.score_samples(mixture).unwrap();
        Self { frame, parameters, data, n, d, k, total, samples, x }
    }

    fn random(seed: u64, n: usize, d: usize, k: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mixture = random_mixture(&mut rng, k, d);
        Self::new(Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal)), &mixture)
    }

    fn columns<'a>(&'a self, memory: &mut Memory<'a>) -> data::Columns {
        let stride = columns_layout::stride(self.n) as u64;
        let x = memory.read("x", bytemuck::cast_slice(&self.data));
        // Some quads are marked for the cache and some are not, which must not change results.
        data::Columns { x, stride, n: self.n as u64, cached_quads: self.n as u32 / 8 }
    }

    /// Runs a launch twice with outputs full of NaN, and checks that both give the same bits and
    /// leave the blocks' sums unwritten.
    fn total<A: Copy>(
        &self,
        (grid, block, shared): (u32, u32, usize),
        memory: &Memory,
        kernel: unsafe fn(A),
        args: impl Fn(Output) -> A,
    ) -> f64 {
        let once = || {
            let (mut partials, mut total) = (unwritten(grid), vec![f64::NAN]);
            let mut memory = memory.clone();
            let output =
                Output { partials: memory.write("partials", &mut partials), total: memory.write("total", &mut total) };
            // SAFETY: the arguments of this kernel, with the arrays of `memory`.
            unsafe { launch((grid, 1), block, shared, &memory, kernel, args(output)) };
            assert!(partials.iter().all(|sum| sum.to_bits() == UNWRITTEN), "the sums are unwritten again");
            total[0]
        };
        let total = once();
        assert_eq!(total.to_bits(), once().to_bits(), "the same bits every time");
        layout::total(total, self.n as f64, self.parameters.offset, 0.0)
    }

    /// Bounds of the errors of a total and of each sample; see the top of the file.
    fn tolerances(&self) -> (f64, Array1<f64>) {
        let m = self.parameters.shift.iter().fold(1.0, |max: f32, m| max.max(m.abs()));
        let unit = 2.0 * (self.d as f64 + 4.0).sqrt() * 2f64.powi(-24) * f64::from(m);
        let sample = self.samples.mapv(|v| unit * v.abs().max(1.0));
        (sample.sum() / (self.n as f64).sqrt() + sample.iter().copied().fold(0.0, f64::max), sample)
    }

    fn check(&self, total: f64, what: &str) {
        let (bound, error) = (self.tolerances().0, (total - self.total).abs());
        let (n, d, k) = (self.n, self.d, self.k);
        assert!(
            error <= bound,
            "{what} N={n} D={d} K={k}: {total} for {}, {error:e} apart, {bound:e} allowed",
            self.total
        );
    }
}

/// A mixture of each covariance type, from random data.
fn of_each_type(rng: &mut impl Rng, k: usize, d: usize) -> Vec<Mixture> {
    let diag = random_mixture(rng, k, d);
    let matrix = |rng: &mut dyn Rng| {
        let b = Array2::from_shape_simple_fn((d, d), || 0.4 * rng.sample::<f64, _>(StandardNormal));
        b.dot(&b.t()) + Array2::<f64>::eye(d)
    };
    let tied = matrix(rng);
    let full: Vec<_> = (0..k).map(|_| matrix(rng)).collect();
    let full = ndarray::stack(ndarray::Axis(0), &full.iter().map(|m| m.view()).collect::<Vec<_>>()).unwrap();
    let spherical = Array1::from_shape_simple_fn(k, || rng.random_range(0.3..2.0));
    let with = |c| Mixture::new(diag.weights().to_owned(), diag.means().to_owned(), c).unwrap();
    [Covariances::Full(full), Covariances::Tied(tied), Covariances::Spherical(spherical)]
        .map(with)
        .into_iter()
        .chain([diag.clone()])
        .collect()
}

fn flat(s: &Covariances) -> Vec<f64> {
    s.iter().collect()
}

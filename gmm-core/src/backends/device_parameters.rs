//! The parameters of a mixture as the fast backends compute with them, relative to the frame of a data set.
//!
//! With t = s·x + m, s = √(log₂e / 2) / σ and m = −μ·s, a component's log₂-density is a constant minus Σⱼ tⱼ². The sum
//! over components is Σₖ wₖ·2^qₖ with qₖ = seedₖ − Σⱼ tⱼ²: the constant goes into the factor wₖ in (0, 1], and its
//! rounding error into seedₖ, so that no rounding of a constant repeats N times. If a component lies too far from the
//! frame's centre for float64's digits, t = s·(x′ − μ′) ([`Deviations`]).
use crate::compensated::neumaier_sum;
use crate::data::float::Float;
use crate::data::frame::Frame;
use crate::data::samples::Samples;
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::linalg::{
    LogProduct, at_once, for_a_row, map_rows, matrices_at_once, row_major, triangle, vectorised,
};
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use ndarray::Axis;
use rayon::prelude::*;

/// The parameters of a mixture in the frame of a data set, in the working precision.
///
/// log₂ p(x) = `offset` + log₂ Σₖ `weight[k]` · 2^(`seed[k]` − Σⱼ (`scale[k,j]`·x′ⱼ + `shift[k,j]`)²)
#[derive(Debug, Clone)]
pub struct DeviceParameters<T> {
    /// K.
    pub n_components: usize,
    /// D.
    pub n_features: usize,
    /// s (K, D), row-major; zeros for noise.
    pub scale: Vec<T>,
    /// m (K, D), row-major; with `around_means`, the components' means in the frame.
    pub shift: Vec<T>,
    /// Whether a deviation is `scale`·(x′ − `shift`), or A·(x′ − `shift`): see [`Deviations::AroundMeans`].
    pub around_means: bool,
    /// wₖ in [2⁻⁶⁰, 1], the largest 1; 0 for a component of weight zero (scales and shifts 0, seed very low).
    pub weight: Vec<T>,
    /// The part of the constant that does not fit into wₖ.
    pub seed: Vec<T>,
    /// A constant for every sample, in log₂ units, to be added in float64.
    pub offset: f64,
    /// The factors of the covariances, which `scale` cannot hold.
    pub matrices: Matrices<T>,
    /// The constants of the columns, for samples with missing values.
    pub gaps: Option<ColumnConstants<T>>,
}

/// The formula for the deviation t of a sample from a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deviations {
    /// t = s·x′ + m, or A·x′ + m: one multiply-add per number, which loses little near the frame's centre.
    InFrame,
    /// t = s·(x′ − μ′), or A·(x′ − μ′), with the component's mean μ′: the difference first, so no digit is lost however
    /// far the component lies from the frame's centre.
    AroundMeans,
}

impl Deviations {
    /// Returns the frame in which samples are laid out.
    pub fn frame(self, samples: &Samples<'_>) -> Frame {
        match self {
            Self::InFrame => Frame::of_samples(samples),
            Self::AroundMeans => Frame::identity(samples.n_features()),
        }
    }

    /// Returns the text that follows the number type in a device's description.
    pub fn description(self) -> &'static str {
        match self {
            Self::InFrame => "",
            Self::AroundMeans => " around each mean",
        }
    }
}

/// Constants of the columns, which count only for a sample's observed columns.
///
/// log₂ p(x) = `offset` + Σⱼ `offsets[j]` + log₂ Σₖ `weight[k]` · 2^(`seed[k]` + Σⱼ
/// (`constants[k,j]` − tₖⱼ²)), where j runs over the observed columns.
#[derive(Debug, Clone)]
pub struct ColumnConstants<T> {
    /// (K, D), at most 0.
    pub constants: Vec<T>,
    /// (D,), in log₂ units, to be added in float64.
    pub offsets: Vec<f64>,
    /// The part of the offset added by [`with_mean_offset`](DeviceParameters::with_mean_offset).
    pub mean: f64,
}

/// Lower triangular matrices A with t = A·x′ + `shift`, row by row (see [`triangle`]): √(log₂e / 2) times the
/// transposed Cholesky factor of the precision.
#[derive(Debug, Clone)]
pub enum Matrices<T> {
    /// Diagonal matrices, held by `scale`.
    Diagonal,
    /// One for each component (K, D(D+1)/2); `scale` is empty.
    Each(Vec<T>),
    /// One for all components (D(D+1)/2,); `scale` is one, so that `scale` and `shift` apply to A·x′.
    Shared(Vec<T>),
}

/// The smallest exponent of a factor wₖ; the rest of a smaller constant goes into the seed.
const MIN_WEIGHT_EXPONENT: f64 = -60.0;

impl<T: Float> DeviceParameters<T> {
    /// Converts a mixture with diagonal or spherical covariances, or of one feature, for data in `frame`. The constants
    /// are computed in float64, from the scales as rounded to `T`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for full and tied covariances of several features; [`Error::OutOfRange`] if a standard
    /// deviation is so small, or a mean so far, that t² would overflow `T`.
    pub fn new(mixture: &Mixture, frame: &Frame, deviations: Deviations) -> Result<Self> {
        Self::new_in(None, mixture, frame, deviations)
    }

    /// As [`new`](Self::new), reusing the memory of former parameters.
    fn new_in(memory: Option<Self>, mixture: &Mixture, frame: &Frame, deviations: Deviations) -> Result<Self> {
        let (k, d) = mixture.means().dim();
        let (scale, shift) = memory.map(|former| (former.scale, former.shift)).unwrap_or_default();
        let (mut scale, mut shift) = (numbers_in(scale, k * d), numbers_in(shift, k * d));
        let component =
            |(c, (scale, shift)): (usize, (&mut [T], &mut [T]))| diagonal(mixture, frame, deviations, c, scale, shift);
        let rows = scale.par_chunks_exact_mut(d).zip(shift.par_chunks_exact_mut(d)).enumerate();
        let constant: Vec<f64> = map_rows(rows, at_once(d), component).into_iter().collect::<Result<_>>()?;
        Ok(Self::assemble((k, d), scale, shift, deviations, Matrices::Diagonal, &constant, frame))
    }

    /// As [`new`](Self::new), for all covariance types.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] as [`new`](Self::new), with the row of the matrix as the column.
    pub fn with_matrices(mixture: &Mixture, frame: &Frame, deviations: Deviations) -> Result<Self> {
        Self::with_matrices_in(None, mixture, frame, deviations)
    }

    /// As [`with_matrices`](Self::with_matrices), reusing the memory of former parameters.
    pub fn with_matrices_in(
        memory: Option<Self>,
        mixture: &Mixture,
        frame: &Frame,
        deviations: Deviations,
    ) -> Result<Self> {
        let (k, d) = mixture.means().dim();
        let mut shift = vec![T::from_f64(0.0); k * d];
        let rows = shift.par_chunks_exact_mut(d);
        let (constant, scale, matrices): (Vec<Result<f64>>, _, _) = match mixture.factor() {
            Some(Covariances::Full(u)) => {
                let former = memory.map(|former| former.matrices);
                let former = if let Some(Matrices::Each(former)) = former { former } else { Vec::new() };
                let mut matrices = numbers_in(former, k * triangle(d));
                let rows = rows.zip(matrices.par_chunks_exact_mut(triangle(d))).enumerate();
                let component = |(c, (shift, matrix)): (usize, (&mut [T], &mut [T]))| {
                    if let Some(constant) = noise_constant(mixture, frame, c) {
                        matrix.fill(T::from_f64(0.0));
                        return Ok(constant);
                    }
                    let u = row_major(u.index_axis(Axis(0), c));
                    with_matrix(
                        mixture,
                        frame,
                        deviations,
                        c,
                        &u,
                        shift,
                        #[inline(always)]
                        |j, column| write_column(matrix, j, column),
                    )
                };
                let constant = map_rows(rows, matrices_at_once(k, d, d * d / 4), component);
                (constant, Vec::new(), Matrices::Each(matrices))
            }
            Some(Covariances::Tied(u)) => {
                let u = row_major(u.view());
                let mut matrix = vec![T::from_f64(0.0); triangle(d)];
                for_each_column(&u, frame, |j, column: &[_]| write_column(&mut matrix, j, column));
                let component = |(c, shift): (usize, &mut [T])| {
                    with_matrix(mixture, frame, deviations, c, &u, shift, |_, _: &[_]| ())
                };
                let constant = map_rows(rows.enumerate(), at_once(d * d / 4), component);
                (constant, vec![T::from_f64(1.0); k * d], Matrices::Shared(matrix))
            }
            // Types without matrices have no factor.
            _ => return Self::new_in(memory, mixture, frame, deviations),
        };
        let constant: Vec<f64> = constant.into_iter().collect::<Result<_>>()?;
        Ok(Self::assemble((k, d), scale, shift, deviations, matrices, &constant, frame))
    }

    /// Whether the components have matrices that are not diagonal.
    pub fn has_triangles(&self) -> bool {
        !matches!(self.matrices, Matrices::Diagonal)
    }

    /// Returns the triangle of a component; empty for diagonal matrices.
    pub fn triangle(&self, c: usize) -> &[T] {
        let width = triangle(self.n_features);
        match &self.matrices {
            Matrices::Diagonal => &[],
            Matrices::Each(matrices) => &matrices[c * width..][..width],
            Matrices::Shared(matrix) => matrix,
        }
    }

    /// Returns the multiply-adds of a sample's exponents.
    pub fn cost(&self) -> usize {
        let matrix = match &self.matrices {
            Matrices::Diagonal => 0,
            Matrices::Each(matrices) => matrices.len(),
            Matrices::Shared(matrix) if self.around_means => self.n_components * matrix.len(),
            Matrices::Shared(matrix) => matrix.len(),
        };
        2 * self.scale.len() + matrix
    }

    /// Takes in `constant` (K,) the log₂ of each component's weight and of its matrix's determinant in the frame.
    fn assemble(
        (n_components, n_features): (usize, usize),
        scale: Vec<T>,
        shift: Vec<T>,
        deviations: Deviations,
        matrices: Matrices<T>,
        constant: &[f64],
        frame: &Frame,
    ) -> Self {
        let (offset, weight, seed) = weights_and_seeds(constant);
        let offset = offset + frame_offset(n_features, frame.log2_scale);
        let around_means = deviations == Deviations::AroundMeans;
        Self { n_components, n_features, scale, shift, around_means, weight, seed, offset, matrices, gaps: None }
    }

    /// Converts a mixture with diagonal or spherical covariances, for samples with missing values.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_gaps(mixture: &Mixture, frame: &Frame, deviations: Deviations) -> Result<Self> {
        let parameters = Self::new(mixture, frame, deviations)?;
        let (k, d) = mixture.means().dim();
        let mut logs = vec![0.0; k * d];
        let rows = logs.par_chunks_exact_mut(d).zip(parameters.scale.par_chunks_exact(d));
        map_rows(rows, at_once(8 * d), |(to, scale)| {
            to.iter_mut().zip(scale).for_each(|(to, s)| *to = (*s).into().log_2());
        });
        let counted = || (0..k).filter(|&c| mixture.weights()[c] > 0.0);
        let mut largest = vec![f64::NEG_INFINITY; d];
        for c in counted() {
            largest.iter_mut().zip(&logs[c * d..]).for_each(|(largest, log)| *largest = largest.max(*log));
        }
        let mut constants = vec![T::from_f64(0.0); k * d];
        for c in counted() {
            let logs = logs[c * d..].iter().zip(&largest);
            constants[c * d..].iter_mut().zip(logs).for_each(|(to, (log, largest))| *to = T::from_f64(log - largest));
        }
        let column = |(largest, scale): (&f64, &f64)| largest + feature_offset() + scale.log_2();
        let offsets = largest.iter().zip(&frame.scale).map(column).collect();
        let (offset, weight, seed) = weights_and_seeds(&Vec::from_iter((0..k).map(|c| mixture.log2_weight(c))));
        Ok(Self { offset, weight, seed, gaps: Some(ColumnConstants { constants, offsets, mean: 0.0 }), ..parameters })
    }

    /// Adds to the offset the mean of the observed columns' offsets over the samples, so that the total is the total
    /// weight times the offset, as for complete samples. `observed` (D,) is the weight of the samples with a value in
    /// each column, and `weight` the total weight.
    pub fn with_mean_offset(mut self, observed: &[f64], weight: f64) -> Self {
        if let Some(gaps) = &mut self.gaps
            && weight > 0.0
        {
            gaps.mean = neumaier_sum(observed.iter().zip(&gaps.offsets).map(|(w, v)| w * v)) / weight;
            self.offset += gaps.mean;
        }
        self
    }
}

/// Returns `len` numbers, of any value, in the memory of others.
pub fn numbers_in<T: Float>(mut memory: Vec<T>, len: usize) -> Vec<T> {
    memory.resize(len, T::from_f64(0.0));
    memory
}

/// Returns log₂ of a component's normalising constant in the units of the data, less log₂ of the product of its scales:
/// for each of `d` features log₂ of 1/√(2π) over √(log₂e / 2), plus `log2_scale` of the frame.
pub fn frame_offset(d: usize, log2_scale: f64) -> f64 {
    d as f64 * feature_offset() + log2_scale
}

/// Returns log₂ of the density of a component that is noise, less [`frame_offset`]; its scales and shifts are zero.
fn noise_constant(mixture: &Mixture, frame: &Frame, c: usize) -> Option<f64> {
    let noise = mixture.noise().filter(|_| mixture.is_noise(c))?;
    let offset = frame_offset(mixture.n_features(), frame.log2_scale);
    Some(mixture.log2_weight(c) - noise.volume.log_2() - offset)
}

/// Returns log₂ of 1/√(2π) over √(log₂e / 2).
fn feature_offset() -> f64 {
    -0.5 * (std::f64::consts::TAU * std::f64::consts::LOG2_E / 2.0).log_2()
}

/// Writes s and m, or μ′, of a component with a diagonal covariance; returns log₂ of its weight and scales' product.
fn diagonal<T: Float>(
    mixture: &Mixture,
    frame: &Frame,
    deviations: Deviations,
    c: usize,
    scale: &mut [T],
    shift: &mut [T],
) -> Result<f64> {
    let log2_weight = mixture.log2_weight(c);
    if let Some(constant) = noise_constant(mixture, frame, c) {
        scale.fill(T::from_f64(0.0));
        shift.fill(T::from_f64(0.0));
        return Ok(constant);
    }
    if log2_weight == f64::NEG_INFINITY {
        scale.fill(T::from_f64(0.0));
        shift.fill(T::from_f64(0.0));
        return Ok(f64::NEG_INFINITY);
    }
    // (s·σ)².
    let unit = std::f64::consts::LOG2_E / 2.0;
    match mixture.covariances() {
        Covariances::Diag(v) => {
            let v = row_major(v.row(c));
            for_a_row(
                v.len(),
                #[inline(always)]
                || {
                    for ((to, v), inverse) in scale.iter_mut().zip(&*v).zip(&frame.inverse) {
                        *to = T::from_f64((unit / v).sqrt() * inverse);
                    }
                },
            );
        }
        // A matrix of one feature is one variance too.
        covariances if matches!(covariances, Covariances::Spherical(_)) || scale.len() == 1 => {
            let s = (unit / mixture.variance(c, 0)).sqrt();
            scale.iter_mut().zip(&frame.inverse).for_each(|(to, inverse)| *to = T::from_f64(s * inverse));
        }
        _ => {
            return Err(Error::Unsupported {
                what: format!("the covariance type `{}`", mixture.covariance_type()),
                backend: "this kernel",
                remedy: "use the device `reference`",
            });
        }
    }
    let means = row_major(mixture.means().index_axis_move(Axis(0), c));
    let scale = &*scale;
    let usable = for_a_row(
        means.len(),
        #[inline(always)]
        || {
            let mut usable = true;
            let columns = scale.iter().zip(&*means).zip(&frame.shift).zip(&frame.scale);
            for (to, (((&s, mean), frame_shift), frame_scale)) in shift.iter_mut().zip(columns) {
                let s: f64 = s.into();
                let (m, fits) = match deviations {
                    // The frame keeps |x′| below 16.
                    Deviations::InFrame => {
                        let m = (frame_shift - mean) * frame_scale * s;
                        (m, 16.0 * s + m.abs() <= T::MAX_DEVIATION)
                    }
                    // A deviation may overflow: its square is then infinite, and the component's density zero.
                    Deviations::AroundMeans => ((mean - frame_shift) * frame_scale, s < f64::INFINITY),
                };
                // A denormal scale has lost its digits.
                let fits = fits & (s >= T::MIN_POSITIVE);
                usable &= fits;
                *to = T::from_f64(if fits { m } else { f64::NAN });
            }
            usable
        },
    );
    if !usable {
        let column = shift.iter().position(|m| !m.is_finite()).unwrap_or(0);
        return Err(Error::OutOfRange { component: c, column, precision: T::NAME });
    }
    let mut product = LogProduct::default();
    product.multiply_all(scale);
    Ok(log2_weight + product.log2())
}

/// Calls `f` with the number j and the numbers of each column of A = √(log₂e / 2)·Uᵀ over the frame's scales, rounded,
/// for U (D, D) row by row. The numbers start at row [`first_row`]`(j)`, with zeros after row D up to [`padded`]`(D)`.
#[inline(always)]
pub fn for_each_column<T: Float>(u: &[f64], frame: &Frame, mut f: impl FnMut(usize, &[T])) {
    let root = (std::f64::consts::LOG2_E / 2.0).sqrt();
    let d = frame.inverse.len();
    let mut column = vec![T::from_f64(0.0); padded(d)];
    for (j, (row, inverse)) in u.chunks_exact(d).zip(&frame.inverse).enumerate() {
        let first = first_row(j);
        let column = &mut column[first..];
        column.iter_mut().zip(&row[first..]).for_each(|(to, u)| *to = T::from_f64(root * u * inverse));
        f(j, column);
    }
}

/// Numbers in one vector register of most processors, or in two.
const VECTOR: usize = 8;

/// Returns the first row used of column j of a lower triangle: the diagonal's or an earlier one, filled with zeros.
pub const fn first_row(j: usize) -> usize {
    j / VECTOR * VECTOR
}

/// Returns D, rounded up to whole vectors.
pub const fn padded(d: usize) -> usize {
    d.next_multiple_of(VECTOR)
}

#[inline(always)]
fn write_column<T: Float>(out: &mut [T], j: usize, column: &[T]) {
    let mut place = triangle(j) + j;
    for (i, v) in (j..).zip(&column[j - first_row(j)..]) {
        let Some(to) = out.get_mut(place) else { return };
        *to = *v;
        place += i + 1;
    }
}

/// Calls `each` with the columns of a component's matrix as [`for_each_column`] does, writes its shift, and returns
/// log₂ of its weight and of the matrix's determinant.
fn with_matrix<T: Float>(
    mixture: &Mixture,
    frame: &Frame,
    deviations: Deviations,
    c: usize,
    u: &[f64],
    shift: &mut [T],
    mut each: impl FnMut(usize, &[T]),
) -> Result<f64> {
    let d = shift.len();
    let log2_weight = mixture.log2_weight(c);
    let mean = mixture.means().index_axis_move(Axis(0), c);
    // A sum for each row, so that none waits for another.
    let mut of_rows = vec![0.0; 2 * padded(d)];
    let (shifts, sizes) = of_rows.split_at_mut(padded(d));
    let mut pivots = vec![T::from_f64(0.0); d];
    vectorised(
        #[inline(always)]
        || {
            for_each_column(
                u,
                frame,
                #[inline(always)]
                |j, column: &[T]| {
                    let first = first_row(j);
                    let centre = (frame.shift[j] - mean[j]) * frame.scale[j];
                    for ((shift, size), &a) in shifts[first..].iter_mut().zip(&mut sizes[first..]).zip(column) {
                        let a: f64 = a.into();
                        *shift += a * centre;
                        *size += a.abs();
                    }
                    pivots[j] = column[j - first];
                    each(j, column);
                },
            );
        },
    );
    if log2_weight == f64::NEG_INFINITY {
        return Ok(f64::NEG_INFINITY);
    }
    for (i, (to, &pivot)) in shift.iter_mut().zip(&pivots).enumerate() {
        let (m, fits) = match deviations {
            // The frame keeps |x′| below 16.
            Deviations::InFrame => (shifts[i], 16.0 * sizes[i] + shifts[i].abs() <= T::MAX_DEVIATION),
            Deviations::AroundMeans => ((mean[i] - frame.shift[i]) * frame.scale[i], sizes[i] < f64::INFINITY),
        };
        // A denormal pivot has lost its digits.
        if !(fits && pivot.into() >= T::MIN_POSITIVE) {
            return Err(Error::OutOfRange { component: c, column: i, precision: T::NAME });
        }
        *to = T::from_f64(m);
    }
    let mut product = LogProduct::default();
    product.multiply_all(&pivots);
    Ok(log2_weight + product.log2())
}

/// Splits log₂ constants (K,) into a common offset, the factors wₖ, and the seeds.
fn weights_and_seeds<T: Float>(constant: &[f64]) -> (f64, Vec<T>, Vec<T>) {
    let offset = constant.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (mut weight, mut seed) = (Vec::with_capacity(constant.len()), Vec::with_capacity(constant.len()));
    for c in constant {
        let relative = c - offset;
        if relative == f64::NEG_INFINITY {
            weight.push(T::from_f64(0.0));
            seed.push(T::from_f64(T::DEAD));
            continue;
        }
        let exact = relative.max(MIN_WEIGHT_EXPONENT).exp_2();
        let w = T::from_f64(exact);
        let rest = log2_near_one(exact / w.into());
        weight.push(w);
        seed.push(T::from_f64(relative - relative.max(MIN_WEIGHT_EXPONENT) + rest));
    }
    (offset, weight, seed)
}

/// Returns log₂ of a number that rounding moved from one: the first two terms of the series.
#[inline(always)]
pub fn log2_near_one(v: f64) -> f64 {
    let e = v - 1.0;
    (e - e * e / 2.0) * std::f64::consts::LOG2_E
}

//! The moments of rows from given responsibilities.
use crate::error::Result;
use crate::tile::{LANES, Lanes, fill};
use gmm_core::model::linalg::product;
use gmm_host::linalg::vectorised;
use gmm_host::{CentredSums, CovarianceType, Covariances, CpuEvaluator, Evaluator, Mixture, Samples, View};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::ops::Range;

/// Features from which a matrix product is faster than a loop over tiles.
const WIDE: usize = 16;

/// Σ r, Σ r·(x − c) and Σ r·(x − c)(x − c)ᵀ of each component, around centres c.
pub(crate) struct Moments<'a> {
    centres: ArrayView2<'a, f64>,
    form: CovarianceType,
    /// (K·M,).
    counts: Vec<f64>,
    /// (K·M, D).
    first: Vec<f64>,
    /// Lower triangles (K·M, D, D), or diagonals (K·M, D).
    second: Vec<f64>,
}

impl<'a> Moments<'a> {
    /// Returns sums of zero.
    pub fn new(centres: ArrayView2<'a, f64>, form: CovarianceType) -> Self {
        let (n, d) = centres.dim();
        let of_component = if form.has_matrices() { d * d } else { d };
        Self { centres, form, counts: vec![0.0; n], first: vec![0.0; n * d], second: vec![0.0; n * of_component] }
    }

    /// Returns the number of sums.
    pub fn size(centres: ArrayView2<'_, f64>, form: CovarianceType) -> usize {
        centres.len() * if form.has_matrices() { centres.ncols() + 1 } else { 2 }
    }

    /// Adds rows with their responsibilities (rows, K·M), which are multiplied with `weight`.
    pub fn add(
        &mut self,
        mixture: &Mixture,
        samples: &Samples<'_>,
        rows: Range<usize>,
        r: &[f64],
        weight: f64,
    ) -> Result<()> {
        let view = samples.view();
        let (n, d) = self.centres.dim();
        if samples.missing().is_none() && self.form.has_matrices() && d >= WIDE {
            self.add_products(&view, rows, r, weight);
            return Ok(());
        }
        let (mut columns, mut differences) = (vec![[0.0; LANES]; d], vec![[0.0; LANES]; d]);
        let mut of_components = vec![[0.0; LANES]; n];
        let mut with_missing = Vec::new();
        for (r, start) in r.chunks(LANES * n).zip(rows.clone().step_by(LANES)) {
            let of_tile = start..rows.end.min(start + LANES);
            let missing = fill(&view, of_tile.clone(), &mut columns);
            if of_tile.len() < LANES {
                of_components.fill([0.0; LANES]);
            }
            for (lane, r) in r.chunks_exact(n).enumerate() {
                let weight = if missing >> lane & 1 == 1 { 0.0 } else { weight };
                of_components.iter_mut().zip(r).for_each(|(lanes, r)| lanes[lane] = weight * r);
            }
            with_missing.extend(of_tile.enumerate().filter(|(lane, _)| missing >> lane & 1 == 1).map(|(_, row)| row));
            vectorised(
                #[inline(always)]
                || self.add_tile(&columns, &of_components, &mut differences),
            );
        }
        match with_missing.is_empty() {
            true => Ok(()),
            false => self.add_missing(mixture, samples, &with_missing, |row, c| weight * r[(row - rows.start) * n + c]),
        }
    }

    #[inline(always)]
    fn add_tile(&mut self, columns: &[Lanes], r: &[Lanes], differences: &mut [Lanes]) {
        let d = columns.len();
        for (c, r) in r.iter().enumerate() {
            let count = sum(r);
            if count == 0.0 {
                continue;
            }
            self.counts[c] += count;
            let first = &mut self.first[c * d..][..d];
            let centre = self.centres.row(c);
            if !self.form.has_matrices() {
                let second = &mut self.second[c * d..][..d];
                for (((x, centre), first), second) in columns.iter().zip(centre).zip(first).zip(second) {
                    let (mut once, mut twice) = ([0.0; LANES], [0.0; LANES]);
                    for l in 0..LANES {
                        let difference = x[l] - centre;
                        once[l] = r[l] * difference;
                        twice[l] = once[l] * difference;
                    }
                    *first += sum(&once);
                    *second += sum(&twice);
                }
                continue;
            }
            for ((difference, x), centre) in differences.iter_mut().zip(columns).zip(centre) {
                difference.iter_mut().zip(x).for_each(|(difference, x)| *difference = x - centre);
            }
            let second = &mut self.second[c * d * d..][..d * d];
            for (i, (first, second)) in first.iter_mut().zip(second.chunks_exact_mut(d)).enumerate() {
                let mut once = [0.0; LANES];
                for l in 0..LANES {
                    once[l] = r[l] * differences[i][l];
                }
                *first += sum(&once);
                for (second, difference) in second.iter_mut().zip(&differences[..=i]) {
                    let mut twice = [0.0; LANES];
                    for l in 0..LANES {
                        twice[l] = once[l] * difference[l];
                    }
                    *second += sum(&twice);
                }
            }
        }
    }

    fn add_products(&mut self, view: &View<'_>, rows: Range<usize>, r: &[f64], weight: f64) {
        let (n, d) = self.centres.dim();
        let x = match view {
            View::F32(x) => x.slice(s![rows, ..]).mapv(f64::from),
            View::F64(x) => x.slice(s![rows, ..]).to_owned(),
        };
        let mut weighted = Array2::zeros(x.raw_dim());
        for c in 0..n {
            let of_component = || r.iter().skip(c).step_by(n).map(|r| weight * r);
            let count: f64 = of_component().sum();
            if count == 0.0 {
                continue;
            }
            self.counts[c] += count;
            let centred = &x - &self.centres.row(c);
            for ((mut weighted, x), r) in weighted.outer_iter_mut().zip(centred.outer_iter()).zip(of_component()) {
                weighted.zip_mut_with(&x, |weighted, x| *weighted = r * x);
            }
            let first = weighted.sum_axis(Axis(0));
            self.first[c * d..][..d].iter_mut().zip(&first).for_each(|(sum, v)| *sum += v);
            let second = product(weighted.t(), centred.view());
            self.second[c * d * d..][..d * d].iter_mut().zip(&second).for_each(|(sum, v)| *sum += v);
        }
    }

    /// Adds rows with missing values, which each component completes. A component alone has these responsibilities as
    /// weights.
    fn add_missing(
        &mut self,
        mixture: &Mixture,
        samples: &Samples<'_>,
        rows: &[usize],
        r: impl Fn(usize, usize) -> f64,
    ) -> Result<()> {
        let x = samples.select(rows)?.x;
        let d = x.ncols();
        for c in 0..self.counts.len() {
            let weights: Array1<f64> = rows.iter().map(|&row| r(row, c)).collect();
            if weights.sum() == 0.0 {
                continue;
            }
            let means = mixture.means().select(Axis(0), &[c]);
            let alone = Mixture::new(Array1::ones(1), means, mixture.covariances().select(&[c]))?;
            let samples = Samples::with_missing(x.view())?.with_weights(weights.view())?;
            let statistics = CpuEvaluator::of_this_thread(samples).statistics(&alone)?;
            let count = statistics.counts()[0];
            self.counts[c] += count;
            let moved = &statistics.means().row(0) - &self.centres.row(c);
            self.first[c * d..][..d].iter_mut().zip(&moved).for_each(|(sum, v)| *sum += count * v);
            let wide = if self.form.has_matrices() { d } else { 1 };
            for (i, sum) in self.second[c * d * wide..][..d * wide].iter_mut().enumerate() {
                let (i, j) = if wide == 1 { (i, i) } else { (i / d, i % d) };
                let scatter = match statistics.scatter() {
                    Covariances::Full(v) => v[[0, i, j]],
                    Covariances::Tied(v) => v[[i, j]],
                    Covariances::Diag(v) => v[[0, i]],
                    // The trace, whose parts are not needed.
                    Covariances::Spherical(v) => v[0] / d as f64,
                };
                *sum += scatter + count * moved[i] * moved[j];
            }
        }
        Ok(())
    }

    /// Adds the sums of other rows.
    pub fn merge(&mut self, other: &Self) {
        let add = |sums: &mut [f64], others: &[f64]| sums.iter_mut().zip(others).for_each(|(sum, v)| *sum += v);
        add(&mut self.counts, &other.counts);
        add(&mut self.first, &other.first);
        add(&mut self.second, &other.second);
    }

    /// Returns the sums in the shape of the covariance type, with the total weight and log-likelihood of the rows.
    pub fn into_sums(self, weight: f64, log_likelihood: f64) -> CentredSums {
        let (n, d) = self.centres.dim();
        let mut second = Covariances::zeros(self.form, n, d);
        let rows = self.second.chunks_exact(if self.form.has_matrices() { d * d } else { d });
        for (c, of_component) in rows.enumerate() {
            match &mut second {
                Covariances::Full(v) => {
                    v.index_axis_mut(Axis(0), c).iter_mut().zip(of_component).for_each(|(v, s)| *v = *s)
                }
                Covariances::Tied(v) => v.iter_mut().zip(of_component).for_each(|(v, s)| *v += s),
                Covariances::Diag(v) => v.row_mut(c).iter_mut().zip(of_component).for_each(|(v, s)| *v = *s),
                Covariances::Spherical(v) => v[c] = of_component.iter().sum(),
            }
        }
        let first = Array2::from_shape_fn((n, d), |(c, j)| self.first[c * d + j]);
        CentredSums {
            weight,
            log_likelihood,
            centres: self.centres.to_owned(),
            counts: self.counts.into(),
            first,
            second,
        }
    }
}

#[inline(always)]
fn sum(lanes: &Lanes) -> f64 {
    let mut sums = [0.0; 8];
    for lanes in lanes.as_chunks::<8>().0 {
        sums.iter_mut().zip(lanes).for_each(|(sum, v)| *sum += v);
    }
    ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}

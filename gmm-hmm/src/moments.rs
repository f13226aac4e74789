//! The moments of rows from given responsibilities.
use crate::chunks::BLOCK;
use crate::emissions::{COLUMNS, matrix};
use crate::error::Result;
use crate::lattice::{PARTS, add_parts, sum};
use crate::tile::{LANES, Lanes, fill};
use gmm_core::model::linalg::product;
use gmm_host::linalg::vectorised;
use gmm_host::{CentredSums, CovarianceType, Covariances, CpuEvaluator, Evaluator, Mixture, Samples, View};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

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
    /// Sums of the same that are not added to them yet, in parts: for each component the count, then those of the first
    /// moment, each followed by its row of the second.
    parts: Vec<[f64; PARTS]>,
}

impl<'a> Moments<'a> {
    /// Returns sums of zero.
    pub fn new(centres: ArrayView2<'a, f64>, form: CovarianceType) -> Self {
        let (n, d) = centres.dim();
        let of_component = if form.has_matrices() { d * d } else { d };
        let second = vec![0.0; n * of_component];
        Self { centres, form, counts: vec![0.0; n], first: vec![0.0; n * d], second, parts: Vec::new() }
    }

    /// Returns the number of sums.
    pub fn size(centres: ArrayView2<'_, f64>, form: CovarianceType) -> usize {
        centres.len() * if form.has_matrices() { centres.ncols() + 1 } else { 2 }
    }

    /// Adds [`LANES`] of the rows in each tile, with their responsibilities (tiles, K·M).
    pub fn add(&mut self, mixture: &Mixture, samples: &Samples<'_>, rows: &[usize], r: &[Lanes]) -> Result<()> {
        let view = samples.view();
        let (n, d) = self.centres.dim();
        if samples.missing().is_none() && self.form.has_matrices() && d >= WIDE {
            for (rows, r) in rows.chunks(BLOCK * LANES).zip(r.chunks(BLOCK * n)) {
                self.add_products(&view, rows, r);
            }
            return Ok(());
        }
        let (mut columns, mut differences) = (vec![[0.0; LANES]; d], vec![[0.0; LANES]; d]);
        let wide = if self.form.has_matrices() { d * (d + 1) / 2 } else { d };
        self.parts.resize(n * (1 + d + wide), [0.0; PARTS]);
        let mut with_missing = Vec::new();
        for (r, rows) in r.chunks_exact(n).zip(rows.chunks_exact(LANES)) {
            let missing = vectorised(
                #[inline(always)]
                || {
                    let missing = fill(&view, rows, &mut columns);
                    self.add_tile(&columns, r, missing, &mut differences);
                    missing
                },
            );
            let of_rows = rows.iter().enumerate().filter(|(lane, _)| missing >> lane & 1 == 1);
            with_missing.extend(of_rows.map(|(lane, row)| (*row, r.iter().map(|r| r[lane]).collect::<Vec<f64>>())));
        }
        match with_missing.is_empty() {
            true => Ok(()),
            false => self.add_missing(mixture, samples, &with_missing),
        }
    }

    #[inline(always)]
    fn add_tile(&mut self, columns: &[Lanes], r: &[Lanes], missing: u32, differences: &mut [Lanes]) {
        let d = columns.len();
        let of_component = self.parts.len() / r.len();
        for (c, (r, parts)) in r.iter().zip(self.parts.chunks_exact_mut(of_component)).enumerate() {
            let mut complete = *r;
            if missing != 0 {
                complete.iter_mut().enumerate().filter(|(l, _)| missing >> l & 1 == 1).for_each(|(_, r)| *r = 0.0);
            }
            let r = &complete;
            let centre = self.centres.row(c);
            let Some((count, mut parts)) = parts.split_first_mut() else { continue };
            add_parts(count, *r);
            if !self.form.has_matrices() {
                for ((x, centre), parts) in columns.iter().zip(centre).zip(parts.as_chunks_mut::<2>().0) {
                    let (mut once, mut twice) = ([0.0; LANES], [0.0; LANES]);
                    for l in 0..LANES {
                        let difference = x[l] - centre;
                        once[l] = r[l] * difference;
                        twice[l] = once[l] * difference;
                    }
                    add_parts(&mut parts[0], once);
                    add_parts(&mut parts[1], twice);
                }
                continue;
            }
            for ((difference, x), centre) in differences.iter_mut().zip(columns).zip(centre) {
                difference.iter_mut().zip(x).for_each(|(difference, x)| *difference = x - centre);
            }
            for i in 0..d {
                let (row, rest) = parts.split_at_mut(i + 2);
                parts = rest;
                let mut once = [0.0; LANES];
                (0..LANES).for_each(|l| once[l] = r[l] * differences[i][l]);
                add_parts(&mut row[0], once);
                for (part, difference) in row[1..].iter_mut().zip(&*differences) {
                    let mut twice = [0.0; LANES];
                    (0..LANES).for_each(|l| twice[l] = once[l] * difference[l]);
                    add_parts(part, twice);
                }
            }
        }
    }

    /// Adds up the sums in parts, before the sums are used.
    pub fn add_up(&mut self) {
        let (n, d) = self.centres.dim();
        let matrices = self.form.has_matrices();
        let of_component = self.second.len() / n;
        for (c, parts) in self.parts.chunks_exact((self.parts.len() / n).max(1)).enumerate() {
            self.counts[c] += sum(&parts[0]);
            let second = &mut self.second[c * of_component..][..of_component];
            let mut parts = parts[1..].iter().map(sum);
            for i in 0..d {
                self.first[c * d + i] += parts.next().unwrap_or_default();
                let row = if matrices { &mut second[i * d..][..i + 1] } else { &mut second[i..][..1] };
                row.iter_mut().zip(&mut parts).for_each(|(second, v)| *second += v);
            }
        }
        self.parts = Vec::new();
    }

    fn add_products(&mut self, view: &View<'_>, rows: &[usize], r: &[Lanes]) {
        let (n, d) = self.centres.dim();
        let x = matrix(view, rows, d);
        let mut weighted = Array2::zeros(x.raw_dim());
        for c in 0..n {
            let of_component = || r.iter().skip(c).step_by(n).flatten();
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
            let sums = &mut self.second[c * d * d..][..d * d];
            for start in (0..d).step_by(COLUMNS) {
                let end = d.min(start + COLUMNS);
                let second = product(weighted.slice(s![.., start..end]).t(), centred.slice(s![.., ..end]));
                for (sums, second) in sums[start * d..].chunks_exact_mut(d).zip(second.outer_iter()) {
                    sums.iter_mut().zip(second).for_each(|(sum, v)| *sum += v);
                }
            }
        }
    }

    /// Adds rows with missing values, which each component completes. A component alone has these responsibilities as
    /// weights.
    fn add_missing(&mut self, mixture: &Mixture, samples: &Samples<'_>, rows: &[(usize, Vec<f64>)]) -> Result<()> {
        let numbers: Vec<usize> = rows.iter().map(|(row, _)| *row).collect();
        let x = samples.select(&numbers)?.x;
        let d = x.ncols();
        for c in 0..self.counts.len() {
            let weights: Array1<f64> = rows.iter().map(|(_, r)| r[c]).collect();
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

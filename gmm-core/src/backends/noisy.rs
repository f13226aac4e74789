//! Samples that share their noise: in each group, samples of a mixture whose covariances contain the noise.
//!
//! A measurement x of a component is N(μ, T) with T = Σ + S. The true value given x is linear in it, v̂ = μ + A·(x − μ)
//! with A = Σ·T⁻¹, and varies by A·S. So the sums of the true values follow from those of the measurements: of a
//! component of Nₖ samples with mean x̄ and scatter C, the mean is μ + A·(x̄ − μ), and the scatter A·C·Aᵀ + Nₖ·A·S.
use crate::compensated::neumaier_sum;
use crate::contract::draw::{Draw, Drawn};
use crate::contract::evaluator::{
    DataFacts, Description, Evaluator, check_features, check_responsibilities, data_facts, draw_by_scores,
};
use crate::contract::markov::Markov;
use crate::contract::sampling::Sampling;
use crate::data::samples::{Rows, Samples};
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::linalg::product;
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::statistics::{CentredSums, Statistics};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis};
use std::sync::Arc;

/// An evaluator of samples of which many share their [noise](crate::data::noise::Noise). Each such group is evaluated,
/// on any device, as samples of a mixture with the noise in its covariances.
pub struct NoisyEvaluator<'a> {
    samples: Samples<'a>,
    groups: Vec<Group<'a>>,
}

struct Group<'a> {
    /// The rows, or none for all.
    rows: Option<Arc<[usize]>>,
    noise: Arc<Array2<f64>>,
    engine: Box<dyn Evaluator + 'a>,
}

impl<'a> NoisyEvaluator<'a> {
    /// Divides the samples by their noise. `load` makes the evaluator of a part, without noise. Returns the samples
    /// themselves if their noise is not that of few groups.
    ///
    /// # Errors
    /// Errors of `load`.
    pub fn new(
        samples: Samples<'a>,
        mut load: impl FnMut(Samples<'a>) -> Result<Box<dyn Evaluator + 'a>>,
    ) -> Result<std::result::Result<Self, Samples<'a>>> {
        let n = samples.n_samples();
        let Some((matrices, of_sample)) = samples.noise().and_then(|noise| noise.groups(n)) else {
            return Ok(Err(samples));
        };
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); matrices.len_of(Axis(0))];
        of_sample.iter().flatten().enumerate().for_each(|(row, &group)| rows[group].push(row));
        let mut groups = Vec::new();
        for (matrix, rows) in matrices.outer_iter().zip(rows) {
            let part = match (&of_sample, rows.is_empty()) {
                (None, _) => samples.clone().without_noise(),
                (Some(_), true) => continue,
                (Some(_), false) => samples.taken(&rows),
            };
            let rows = of_sample.is_some().then(|| rows.into());
            groups.push(Group { rows, noise: Arc::new(matrix.to_owned()), engine: load(part)? });
        }
        Ok(Ok(Self { samples, groups }))
    }

    fn map<T>(
        &mut self,
        mixture: &Mixture,
        work: impl Fn(&mut (dyn Evaluator + 'a), &Mixture) -> Result<T>,
    ) -> Result<Vec<T>> {
        check_features(mixture, self.n_features())?;
        mixture.check_no_noise("noise of the samples, under the density")?;
        let of_group = |group: &mut Group<'a>| {
            let measured = group.measured(mixture)?;
            work(group.engine.as_mut(), &measured).map_err(|error| group.of_all(error))
        };
        self.groups.iter_mut().map(of_group).collect()
    }

    /// Reorders `each` values per row from the order of the groups to that of the rows.
    fn in_order<T: Copy + Default>(&self, values: Vec<Vec<T>>, each: usize) -> Vec<T> {
        let mut all = vec![T::default(); self.samples.n_samples() * each];
        for (group, values) in self.groups.iter().zip(values) {
            match &group.rows {
                None => all = values,
                Some(rows) => {
                    for (&row, values) in rows.iter().zip(values.chunks_exact(each)) {
                        all[row * each..][..each].copy_from_slice(values);
                    }
                }
            }
        }
        all
    }
}

impl Group<'_> {
    /// Whether the measurements are the true values, or are to be taken for them.
    fn is_plain(&self, mixture: &Mixture) -> bool {
        mixture.is_of_measurements() || self.noise.iter().all(|v| *v == 0.0)
    }

    /// Returns the mixture of the measurements, in the type with the fewest parameters that holds it.
    fn measured(&self, mixture: &Mixture) -> Result<Mixture> {
        if self.is_plain(mixture) {
            return Ok(mixture.clone());
        }
        let (k, d) = mixture.means().dim();
        let s = &self.noise;
        let is_diagonal = s.indexed_iter().all(|((i, j), v)| i == j || *v == 0.0);
        let is_isotropic = is_diagonal && s.diag().iter().all(|v| *v == s[[0, 0]]);
        let covariances = match mixture.covariances() {
            Covariances::Full(v) => Covariances::Full(v + &**s),
            Covariances::Tied(v) => Covariances::Tied(v + &**s),
            Covariances::Spherical(v) if is_isotropic => Covariances::Spherical(v + s[[0, 0]]),
            _ if is_diagonal => {
                Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| mixture.variance(c, j) + s[[j, j]]))
            }
            _ => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| {
                s[[i.max(j), i.min(j)]] + if i == j { mixture.variance(c, j) } else { 0.0 }
            })),
        };
        mixture.with_parts(mixture.means().to_owned(), covariances)
    }

    /// Converts the row in an error about the group to a row of all samples.
    fn of_all(&self, error: Error) -> Error {
        match (error, &self.rows) {
            (Error::UnreachableSample { row }, Some(rows)) => Error::UnreachableSample { row: rows[row] },
            (error, _) => error,
        }
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        let measured = self.measured(mixture)?;
        let seen = self.engine.statistics(&measured).map_err(|error| self.of_all(error))?;
        if self.is_plain(mixture) {
            return Ok(seen);
        }
        let (k, d) = mixture.means().dim();
        let mut second = Covariances::zeros(mixture.covariance_type(), k, d);
        let mut centres = mixture.means().to_owned();
        let delta = &seen.means() - &mixture.means();
        let counts = seen.counts();
        match (seen.scatter(), measured.factor(), mixture.covariances()) {
            (Covariances::Full(scatter), Some(Covariances::Full(u)), _) => {
                for c in (0..k).filter(|&c| counts[c] > 0.0) {
                    let gain = gain(mixture.matrix(c).view(), u.index_axis(Axis(0), c));
                    centres.row_mut(c).scaled_add(1.0, &gain.dot(&delta.row(c)));
                    second.add_matrix(c, &self.true_scatter(&gain, scatter.index_axis(Axis(0), c), counts[c]));
                }
            }
            (Covariances::Tied(scatter), Some(Covariances::Tied(u)), Covariances::Tied(v)) => {
                let gain = gain(v.view(), u.view());
                for c in (0..k).filter(|&c| counts[c] > 0.0) {
                    centres.row_mut(c).scaled_add(1.0, &gain.dot(&delta.row(c)));
                }
                second = Covariances::Tied(self.true_scatter(&gain, scatter.view(), counts.sum()));
            }
            (scatter, _, _) => {
                for c in (0..k).filter(|&c| counts[c] > 0.0) {
                    for j in 0..d {
                        let s = self.noise[[j, j]];
                        let gain = mixture.variance(c, j) / (mixture.variance(c, j) + s);
                        centres[[c, j]] += gain * delta[[c, j]];
                        let of_values = match scatter {
                            Covariances::Diag(v) => v[[c, j]],
                            // One gain for all: the trace once.
                            Covariances::Spherical(v) if j == 0 => v[c],
                            _ => 0.0,
                        };
                        let sum = gain * (gain * of_values + counts[c] * s);
                        match &mut second {
                            Covariances::Diag(v) => v[[c, j]] = sum,
                            Covariances::Spherical(v) => v[c] += sum,
                            Covariances::Full(_) | Covariances::Tied(_) => {}
                        }
                    }
                }
            }
        }
        Statistics::from_centred_sums(CentredSums {
            weight: seen.weight(),
            log_likelihood: seen.log_likelihood(),
            first: Array2::zeros((k, d)),
            centres,
            counts: counts.to_owned(),
            second,
        })
    }

    /// Returns A·C·Aᵀ + count·A·S.
    fn true_scatter(&self, gain: &Array2<f64>, scatter: ArrayView2<'_, f64>, count: f64) -> Array2<f64> {
        product(product(gain.view(), scatter).view(), gain.t()) + product(gain.view(), self.noise.view()) * count
    }
}

/// Returns Σ·T⁻¹ for T⁻¹ = U·Uᵀ.
fn gain(covariance: ArrayView2<'_, f64>, u: ArrayView2<'_, f64>) -> Array2<f64> {
    product(product(covariance, u).view(), u.t())
}

#[deny(clippy::missing_trait_methods)]
impl Evaluator for NoisyEvaluator<'_> {
    data_facts!();

    fn data(&self) -> DataFacts<'_> {
        DataFacts::from(&self.samples)
    }

    fn describe(&self) -> Description {
        self.groups[0].engine.describe()
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        let known = mixture.n_features() == self.n_features();
        let float32 = |group: &Group<'_>| {
            let measured = group.measured(mixture);
            known && measured.is_ok_and(|m| group.engine.precision(&m, operation) == Precision::Float32)
        };
        if self.groups.iter().any(float32) { Precision::Float32 } else { Precision::Float64 }
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        let mut groups = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            let (rows, noise) = (group.rows.clone(), Arc::clone(&group.noise));
            groups.push(Group { rows, noise, engine: group.engine.share()? });
        }
        Ok(Box::new(NoisyEvaluator { samples: self.samples.reborrow(), groups }))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        Ok(neumaier_sum(self.map(mixture, |engine, measured| engine.log_likelihood(measured))?))
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        mixtures.iter().map(|mixture| self.log_likelihood(mixture)).collect()
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        let scores = self.map(mixture, |engine, measured| Ok(engine.score_samples(measured)?.to_vec()))?;
        Ok(self.in_order(scores, 1).into())
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        check_features(mixture, self.n_features())?;
        mixture.check_no_noise("noise of the samples, under the density")?;
        let mut groups = self.groups.iter_mut().map(|group| group.statistics(mixture));
        let Some(first) = groups.next() else { return Err(Error::EmptyData { rows: 0, columns: self.n_features() }) };
        let mut sum = first?;
        groups.try_for_each(|statistics| sum.merge(&statistics?))?;
        Ok(sum)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        draw_by_scores(self, draw)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        let labels = self.map(mixture, |engine, measured| engine.predict(measured))?;
        Ok(self.in_order(labels, 1))
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        let (n, k) = (self.samples.n_samples(), mixture.n_components());
        check_responsibilities(n, k)?;
        let r =
            self.map(mixture, |engine, measured| Ok(engine.predict_proba(measured)?.into_raw_vec_and_offset().0))?;
        let r = Array2::from_shape_vec((n, k), self.in_order(r, k));
        r.map_err(|_| Error::ShapeMismatch { what: "responsibilities", expected: vec![n, k], got: vec![] })
    }

    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }

    fn markov(&mut self) -> Option<&mut dyn Markov> {
        None
    }
}

/// The caller makes the steps of a chain: Metropolis on a device knows no noise.
impl Sampling for NoisyEvaluator<'_> {
    fn settle(&mut self) {
        self.groups.iter_mut().filter_map(|group| group.engine.sampling()).for_each(|sampling| sampling.settle());
    }
}

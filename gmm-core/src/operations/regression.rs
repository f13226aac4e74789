//! Distributions of some features given others, for many samples.
use crate::data::patterns::{Block, by_pattern};
use crate::data::samples::Samples;
use crate::error::{Error, Result};
use crate::memory;
use crate::model::conditional::{Conditional, Conditioned};
use crate::model::covariances::Covariances;
use crate::model::gaussian::Covariance;
use crate::model::mixture::Mixture;
use crate::model::sampler::standard_normal;
use crate::reproducible::Functions;
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, ArrayViewMut2, Axis, s};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The distance, in words of a sample's random stream, from one draw to the next: more than a draw takes for any D.
pub(crate) const WORDS: u128 = 1 << 32;

/// The distribution of some features given others, for many samples: made by [`Mixture::regression`].
///
/// Given x, the wanted features y have a mixture distribution. Component k has the mean μ_y + B·(x − μ_x) with B = Σ_yx
/// Σ_xx⁻¹, the covariance Σ_yy − B·Σ_xy, which does not depend on x, and a weight in proportion to π N(x; μ_x, Σ_xx):
/// Gaussian mixture regression (Ghahramani and Jordan 1994).
///
/// The samples have the given features as columns. With [missing values](Samples::with_missing) each sample counts by
/// its observed ones, with one factorisation per pattern of missing values and component. All methods compute on the
/// CPU in float64, in blocks of rows on all threads; weights come from logarithms, so samples far from all components
/// have them too.
///
/// Methods that take samples report [`Error::ShapeMismatch`] for a wrong number of columns, [`Error::Memory`], and with
/// missing values [`Error::NotPositiveDefinite`].
#[derive(Debug, Clone)]
pub struct Regression {
    mixture: Mixture,
    given: Vec<usize>,
    wanted: Vec<usize>,
    /// The distribution given all features of `given`.
    of_all: Conditional,
}

/// # Regression
impl Mixture {
    /// Returns the distribution of the features `wanted` given the features `given`, both in any order. Other features
    /// count as unknown. [`condition`](Self::condition) returns the mixture for one sample.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture, Samples};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(array![[1.0, 0.5], [0.5, 1.0]]))?;
    /// let regression = mixture.regression(&[0], &[1])?;
    /// let x = array![[2.0], [-1.0]];
    /// let (means, deviations) = regression.predict_with_std(&Samples::from_f64(x.view())?)?;
    /// assert!((means - array![[1.0], [-0.5]]).iter().all(|v| v.abs() < 1e-15));
    /// assert!(deviations.iter().all(|v| (v - 0.75f64.sqrt()).abs() < 1e-15));
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchFeature`], [`Error::RepeatedFeature`]; [`Error::BadParameter`] without wanted features;
    /// [`Error::NotPositiveDefinite`] as [`marginal`](Self::marginal).
    pub fn regression(&self, given: &[usize], wanted: &[usize]) -> Result<Regression> {
        self.check_distinct(&[given, wanted].concat())?;
        if wanted.is_empty() {
            let remedy = "name at least one feature whose distribution is the result";
            return Err(Error::BadParameter { name: "wanted", value: "empty".into(), remedy });
        }
        let of_all = Conditional::new(self, given, wanted)?;
        Ok(Regression { mixture: self.clone(), given: given.to_vec(), wanted: wanted.to_vec(), of_all })
    }
}

impl Regression {
    /// Returns the given features, which are the columns of samples.
    pub fn given(&self) -> &[usize] {
        &self.given
    }

    /// Returns the wanted features.
    pub fn wanted(&self) -> &[usize] {
        &self.wanted
    }

    /// Returns the mixture of the given features, if any.
    pub fn marginal(&self) -> Option<&Mixture> {
        self.of_all.marginal.as_ref()
    }

    /// Returns the matrices B (K, wanted, given).
    pub fn slopes(&self) -> Array3<f64> {
        let k = self.mixture.n_components();
        let mut slopes = Array3::zeros((k, self.wanted.len(), self.given.len()));
        for (c, mut to) in slopes.outer_iter_mut().enumerate() {
            if let Some(slope) = self.of_all.slope(c) {
                to.assign(slope);
            }
        }
        slopes
    }

    /// Returns the components' covariances, in the shape of the mixture's type, for samples without missing values.
    pub fn covariances(&self) -> &Covariances {
        self.of_all.wanted.covariances()
    }

    /// Returns the variance of each wanted feature in each component (K, wanted), for samples without missing values.
    pub fn variances(&self) -> Array2<f64> {
        let (k, t) = (self.mixture.n_components(), self.wanted.len());
        Array2::from_shape_fn((k, t), |(c, j)| self.of_all.wanted.variance(c, j))
    }

    /// Returns the weights of the components (N, K).
    pub fn weights(&self, samples: &Samples<'_>) -> Result<Array2<f64>> {
        let k = self.mixture.n_components();
        self.evaluate("the weights", samples, k, |_, given, _, mut out| {
            out.zip_mut_with(&given.log_weights, |out, v| *out = v.exp_e());
            Ok(())
        })
    }

    /// Returns the means of the components (N, K, wanted).
    pub fn means(&self, samples: &Samples<'_>) -> Result<Array3<f64>> {
        let (k, t) = (self.mixture.n_components(), self.wanted.len());
        let means = self.evaluate("the means", samples, k * t, |_, given, _, mut out| {
            for (c, means) in given.means.outer_iter().enumerate() {
                out.slice_mut(s![.., c * t..(c + 1) * t]).assign(&means);
            }
            Ok(())
        })?;
        in_three(means, k, t)
    }

    /// Returns the mean of the wanted features (N, wanted).
    pub fn predict(&self, samples: &Samples<'_>) -> Result<Array2<f64>> {
        self.evaluate("the means", samples, self.wanted.len(), |_, given, _, mut out| {
            out.assign(&expectations(given));
            Ok(())
        })
    }

    /// Returns the mean and the standard deviation of each wanted feature (N, wanted), by the law of total variance.
    pub fn predict_with_std(&self, samples: &Samples<'_>) -> Result<(Array2<f64>, Array2<f64>)> {
        let t = self.wanted.len();
        let both = self.evaluate("the deviations", samples, 2 * t, |conditional, given, _, out| {
            let (mut to, mut std) = out.split_at(Axis(1), t);
            let mean = expectations(given);
            to.assign(&mean);
            let variances = |c| (0..t).map(|j| conditional.wanted.variance(c, j)).collect::<Array1<f64>>();
            for_each_pair(given, variances, |row, weight, variances, means| {
                for (j, std) in std.row_mut(row).iter_mut().enumerate() {
                    let deviation = means[j] - mean[[row, j]];
                    *std += weight * (variances[j] + deviation * deviation);
                }
            });
            std.mapv_inplace(f64::sqrt);
            Ok(())
        })?;
        Ok((both.slice(s![.., ..t]).to_owned(), both.slice(s![.., t..]).to_owned()))
    }

    /// Returns the mean (N, wanted) and the covariance (N, wanted, wanted) of the wanted features.
    pub fn predict_with_covariances(&self, samples: &Samples<'_>) -> Result<(Array2<f64>, Array3<f64>)> {
        let t = self.wanted.len();
        let both = self.evaluate("the covariances", samples, t + t * t, |conditional, given, _, out| {
            let (mut to, mut covariances) = out.split_at(Axis(1), t);
            let mean = expectations(given);
            to.assign(&mean);
            let matrix = |c| Covariance::of(&conditional.wanted, c).into_matrix();
            for_each_pair(given, matrix, |row, weight, matrix, means| {
                let deviations = &means - &mean.row(row);
                for ((i, j), v) in matrix.indexed_iter() {
                    covariances[[row, i * t + j]] += weight * (v + deviations[i] * deviations[j]);
                }
            });
            Ok(())
        })?;
        Ok((both.slice(s![.., ..t]).to_owned(), in_three(both.slice(s![.., t..]).to_owned(), t, t)?))
    }

    /// Returns the log-density at `y` (N, wanted) given each sample (N,). A NaN in `y` is missing: the density is that
    /// of the rest, and 1 for a row of NaN.
    ///
    /// # Errors
    /// Also [`Error::ShapeMismatch`] for a `y` of another shape.
    pub fn log_density(&self, samples: &Samples<'_>, y: ArrayView2<'_, f64>) -> Result<Array1<f64>> {
        let expected = [samples.n_samples(), self.wanted.len()];
        if y.shape() != expected {
            let (expected, got) = (expected.to_vec(), y.shape().to_vec());
            return Err(Error::ShapeMismatch { what: "the wanted features of the samples", expected, got });
        }
        let logs = self.evaluate("the log-densities", samples, 1, |conditional, given, rows, mut out| {
            out.column_mut(0).assign(&conditional.log_densities(given, y.select(Axis(0), rows).view())?);
            Ok(())
        })?;
        Ok(logs.index_axis_move(Axis(1), 0))
    }

    /// Draws the wanted features given each sample (N, `n_draws`, wanted). Draws depend on `seed` and the row alone.
    pub fn sample(&self, samples: &Samples<'_>, n_draws: usize, seed: u64) -> Result<Array3<f64>> {
        let t = self.wanted.len();
        let generator = ChaCha8Rng::seed_from_u64(seed);
        let draws = self.evaluate("the draws", samples, n_draws * t, |conditional, given, rows, mut out| {
            let roots = conditional.roots()?;
            for (at, (&row, mut out)) in rows.iter().zip(out.outer_iter_mut()).enumerate() {
                let mut rng = generator.clone();
                rng.set_stream(row as u64);
                for number in 0..n_draws {
                    rng.set_word_pos(number as u128 * WORDS);
                    out.slice_mut(s![number * t..(number + 1) * t]).assign(&draw(given, at, &roots, &mut rng));
                }
            }
            Ok(())
        })?;
        in_three(draws, n_draws, t)
    }

    /// Computes `width` numbers for each sample (N, `width`): `each` gets the distribution, the weights and means of a
    /// block of rows, the rows' numbers, and zeros for its results.
    fn evaluate(
        &self,
        what: &str,
        samples: &Samples<'_>,
        width: usize,
        each: impl Fn(&Conditional, &Conditioned, &[usize], ArrayViewMut2<'_, f64>) -> Result<()> + Sync,
    ) -> Result<Array2<f64>> {
        let (n, d) = (samples.n_samples(), samples.n_features());
        if d != self.given.len() {
            let (expected, got) = (vec![n, self.given.len()], vec![n, d]);
            return Err(Error::ShapeMismatch { what: "the given features of the samples", expected, got });
        }
        memory::check(what, &[n, width], 2 * size_of::<f64>(), "take fewer rows at a time")?;
        let prepare = |observed: &[usize]| match observed.len() == d {
            true => Ok(self.of_all.clone()),
            false => {
                let given: Vec<usize> = observed.iter().map(|&j| self.given[j]).collect();
                Conditional::new(&self.mixture, &given, &self.wanted)
            }
        };
        by_pattern(samples, width, prepare, |conditional, Block { rows, x }, out| {
            each(conditional, &conditional.rows(x.view()), rows, out)
        })
    }
}

pub(crate) fn expectations(given: &Conditioned) -> Array2<f64> {
    let (_, n, t) = given.means.dim();
    let mut sums = Array2::zeros((n, t));
    let slice = sums.as_slice_mut().unwrap_or_default();
    for_each_pair(
        given,
        |_| (),
        |row, weight, (), means| {
            slice[row * t..][..t].iter_mut().zip(means).for_each(|(sum, mean)| *sum += weight * mean);
        },
    );
    sums
}

/// Calls `visit` for each row and component with weight: the row's number in the block, the weight, the value of
/// `prepare` for the component, and the mean.
fn for_each_pair<P>(
    given: &Conditioned,
    prepare: impl Fn(usize) -> P,
    mut visit: impl FnMut(usize, f64, &P, ArrayView1<'_, f64>),
) {
    for (c, means) in given.means.outer_iter().enumerate() {
        let prepared = prepare(c);
        for (row, means) in means.outer_iter().enumerate() {
            let weight = given.log_weights[[row, c]].exp_e();
            // The mean of a component without weight may be NaN.
            if weight > 0.0 {
                visit(row, weight, &prepared, means);
            }
        }
    }
}

/// Draws for row `at` of a block; `roots` are those of [`Conditional::roots`].
pub(crate) fn draw(given: &Conditioned, at: usize, roots: &[Array2<f64>], rng: &mut impl Rng) -> Array1<f64> {
    let c = component(given.log_weights.row(at), rng.random());
    let root = &roots[c.min(roots.len() - 1)];
    let z: Array1<f64> = (0..root.ncols()).map(|_| standard_normal(rng)).collect();
    root.dot(&z) + given.means.slice(s![c, at, ..])
}

/// Returns the component at the fraction `u` of the running sum of the weights, given their logarithms.
fn component(log_weights: ArrayView1<'_, f64>, u: f64) -> usize {
    let mut left = u * log_weights.iter().map(|v| v.exp_e()).sum::<f64>();
    let mut last = 0;
    for (c, weight) in log_weights.iter().map(|v| v.exp_e()).enumerate().filter(|(_, weight)| *weight > 0.0) {
        last = c;
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    last
}

/// Reshapes rows of (A·B) numbers to matrices (N, A, B).
fn in_three(rows: Array2<f64>, a: usize, b: usize) -> Result<Array3<f64>> {
    let (n, got) = (rows.nrows(), rows.shape().to_vec());
    let shaped = rows.into_shape_with_order((n, a, b));
    shaped.map_err(|_| Error::ShapeMismatch { what: "the results", expected: vec![n, a, b], got })
}

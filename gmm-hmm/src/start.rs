//! A model to start a fit with.
use crate::error::{Error, Result};
use crate::model::HiddenMarkov;
use crate::sequences::Sequences;
use gmm_host::fit::scikit_learn::{kmeans, n_uniforms};
use gmm_host::{CovarianceModel, CovarianceType, Covariances, Mixture, Statistics, View};
use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The most rows that k-means sees: evenly spaced ones.
const MOST_ROWS: usize = 1 << 16;

/// Added to the variances of a start.
const ADDED: f64 = 1e-3;

impl HiddenMarkov {
    /// Returns a model of K states with the means of k-means, and the covariance of all rows in each state. A state
    /// follows itself with a probability above ½.
    ///
    /// # Errors
    /// [`Error::Parameter`] for fewer complete rows than states.
    pub fn start(k: usize, model: CovarianceModel, sequences: &Sequences<'_>, seed: u64) -> Result<Self> {
        Self::start_mixtures(k, 1, model, sequences, seed)
    }

    /// As [`start`](Self::start), for M components in each state.
    pub fn start_mixtures(
        k: usize,
        m: usize,
        model: CovarianceModel,
        sequences: &Sequences<'_>,
        seed: u64,
    ) -> Result<Self> {
        let x = complete_rows(sequences)?;
        let (n, d) = x.dim();
        if k == 0 || m == 0 || n < k.saturating_mul(m) {
            let remedy = "take at least one, and at most as many as there are rows without missing values";
            return Err(Error::Parameter {
                what: "the number of states times components",
                value: format!("{k}·{m}"),
                remedy,
            });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let labels = clusters(x.view(), k, &mut rng)?;
        let variances = x.var_axis(Axis(0), 0.0);
        let mut means = Array2::zeros((0, d));
        for state in 0..k {
            let own: Vec<usize> = (0..n).filter(|i| labels[*i] == state).collect();
            let own = x.select(Axis(0), &own);
            let of_state = if own.nrows() >= m { clusters(own.view(), m, &mut rng)? } else { Vec::new() };
            for c in 0..m {
                let rows: Vec<usize> = (0..of_state.len()).filter(|i| of_state[*i] == c).collect();
                let mean = match rows.is_empty() {
                    false => own.select(Axis(0), &rows).mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(d)),
                    // Too few rows for as many components: somewhere near the others.
                    true => {
                        let near = x.row(rng.random_range(0..n)).to_owned();
                        near + variances.mapv(f64::sqrt) * (rng.random::<f64>() - 0.5)
                    }
                };
                means = concatenate(Axis(0), &[means.view(), mean.insert_axis(Axis(0)).view()])
                    .map_err(|_| Error::Shape { what: "the means", expected: vec![k * m, d], got: vec![c, d] })?;
            }
        }
        let all = Statistics::from_responsibilities(x.view(), Array2::ones((n, 1)).view(), CovarianceType::Full)?;
        let mut whole = match all.scatter() {
            Covariances::Full(v) => v.index_axis(Axis(0), 0).to_owned() / n as f64,
            _ => unreachable!("the statistics are of full covariances"),
        };
        whole.diag_mut().mapv_inplace(|v| v + ADDED);
        let form = model.form();
        let covariances = match form {
            CovarianceType::Full => {
                Covariances::Full(Array1::<f64>::ones(k * m).insert_axis(Axis(1)).insert_axis(Axis(2)) * &whole)
            }
            CovarianceType::Tied => Covariances::Tied(whole),
            CovarianceType::Diag => Covariances::Diag(Array2::<f64>::ones((k * m, 1)) * whole.diag()),
            CovarianceType::Spherical => {
                Covariances::Spherical(Array1::from_elem(k * m, whole.diag().sum() / d as f64))
            }
        };
        let weights = Array1::from_elem(k * m, 1.0 / (k * m) as f64);
        let emissions = Mixture::new(weights, means, covariances)?.with_covariance_model(model)?;
        let startprob = Array1::from_elem(k, 1.0 / k as f64);
        let transmat = (Array2::eye(k) + 1.0 / k as f64) * 0.5;
        Self::new(startprob, transmat, emissions)
    }
}

/// Copies rows without missing values.
fn complete_rows(sequences: &Sequences<'_>) -> Result<Array2<f64>> {
    let samples = sequences.samples();
    let rows: Vec<usize> = (0..samples.n_samples()).step_by(samples.n_samples().div_ceil(MOST_ROWS)).collect();
    let x = samples.select(&rows)?.x;
    let complete: Vec<usize> = (0..x.nrows()).filter(|i| x.row(*i).iter().all(|v| !v.is_nan())).collect();
    Ok(if complete.len() == x.nrows() { x } else { x.select(Axis(0), &complete) })
}

/// Returns the number of each row's cluster.
fn clusters(x: ArrayView2<'_, f64>, k: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>> {
    if k == 1 {
        return Ok(vec![0; x.nrows()]);
    }
    let uniforms: Vec<f64> = (0..n_uniforms(k)).map(|_| rng.random()).collect();
    let centred = &x - &x.slice(s![0, ..]);
    Ok(kmeans(View::F64(centred.view()), None, k, &uniforms)?)
}

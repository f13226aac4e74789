//! The derivatives of the log-likelihood by the parameters.
use crate::error::Result;
use crate::model::HiddenMarkov;
use crate::sequences::Sequences;
use gmm_host::Covariances;
use ndarray::{Array1, Array2, Zip};

/// The total log-likelihood Σ w·log p(sequence) and its derivatives. Each entry of an array is its own variable:
/// probabilities need not sum to 1, and mirrored entries of a matrix are two variables. A probability of 0 is a
/// constant, whose derivative is 0.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Gradient {
    /// The total log-likelihood.
    pub log_likelihood: f64,
    /// The derivatives by π (K,).
    pub startprob: Array1<f64>,
    /// The derivatives by a (K, K).
    pub transmat: Array2<f64>,
    /// The derivatives by the weights of the components within their states (K, M).
    pub weights: Array2<f64>,
    /// The derivatives by the means (K·M, D).
    pub means: Array2<f64>,
    /// The derivatives by the covariances, in their shape.
    pub covariances: Covariances,
}

impl HiddenMarkov {
    /// Returns the derivatives from one E-step. By Fisher's identity they are those of the expected log-likelihood of
    /// rows with their states: of a probability the expected number of its events over the probability.
    ///
    /// # Errors
    /// As [`expectations`](Self::expectations).
    pub fn gradient(&self, sequences: &Sequences<'_>) -> Result<Gradient> {
        let expected = self.expectations(sequences)?;
        let of_emissions = expected.statistics.gradient(self.emissions())?;
        let ratio = |number: &mut f64, probability: &f64| {
            *number = if *probability > 0.0 { *number / probability } else { 0.0 };
        };
        let (mut startprob, mut transmat) = (expected.start, expected.transitions);
        Zip::from(&mut startprob).and(self.startprob()).for_each(ratio);
        Zip::from(&mut transmat).and(self.transmat()).for_each(ratio);
        let (within, counts) = (self.weights(), expected.statistics.counts());
        let mut weights = Array2::from_shape_fn(within.dim(), |(state, m)| counts[state * within.ncols() + m]);
        Zip::from(&mut weights).and(&within).for_each(ratio);
        let (means, covariances) = (of_emissions.means, of_emissions.covariances);
        Ok(Gradient { log_likelihood: expected.log_likelihood, startprob, transmat, weights, means, covariances })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_host::{CovarianceModel, Mixture, Samples};
    use ndarray::Array2;

    /// Central differences with a step of 10⁻⁶ are right to about 10⁻⁷ of sums of 120 rows.
    #[test]
    fn differences_agree() {
        let x =
            Array2::from_shape_fn((120, 2), |(i, j)| ((i * i + 3 * j) % 53) as f64 * 0.1 + (i / 15 % 3) as f64 * 2.0);
        let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[70, 1, 49]).unwrap();
        let sequences = sequences.with_weights(vec![1.0, 2.0, 0.5]).unwrap();
        for covariances in [CovarianceModel::VVV, CovarianceModel::EEE, CovarianceModel::VVI, CovarianceModel::VII] {
            let start = HiddenMarkov::start(4, covariances, &sequences, 0).unwrap();
            let emissions = start.emissions();
            // Two states of two components each.
            let with =
                |startprob: &Array1<f64>, transmat: &Array2<f64>, means: &Array2<f64>, covariances: Covariances| {
                    let mixture = Mixture::new(Array1::from_elem(4, 0.25), means.clone(), covariances).unwrap();
                    HiddenMarkov::new(startprob.clone(), transmat.clone(), mixture).unwrap()
                };
            let startprob = ndarray::array![0.25, 0.75];
            let transmat = ndarray::array![[0.875, 0.125], [0.0, 1.0]];
            let (means, matrices) = (emissions.means().to_owned(), emissions.covariances().clone());
            let score = |model: &HiddenMarkov| {
                model.score(&sequences).unwrap().iter().zip([1.0, 2.0, 0.5]).map(|(score, w)| score * w).sum::<f64>()
            };
            let model = with(&startprob, &transmat, &means, matrices.clone());
            let gradient = model.gradient(&sequences).unwrap();
            let near = |what: &str, got: f64, at: &dyn Fn(f64) -> HiddenMarkov| {
                let want = (score(&at(1e-6)) - score(&at(-1e-6))) / 2e-6;
                assert!((got - want).abs() <= 1e-5 * want.abs().max(10.0), "{covariances:?}, {what}: {got} for {want}");
            };
            assert!((gradient.log_likelihood - score(&model)).abs() < 1e-9);
            for i in 0..2 {
                near("π", gradient.startprob[i], &|h| {
                    let mut moved = startprob.clone();
                    moved[i] += h;
                    with(&moved, &transmat, &means, matrices.clone())
                });
            }
            for j in 0..2 {
                near("a", gradient.transmat[[0, j]], &|h| {
                    let mut moved = transmat.clone();
                    moved[[0, j]] += h;
                    with(&startprob, &moved, &means, matrices.clone())
                });
            }
            assert_eq!(gradient.transmat[[1, 0]], 0.0);
            near("a mean", gradient.means[[2, 1]], &|h| {
                let mut moved = means.clone();
                moved[[2, 1]] += h;
                with(&startprob, &transmat, &moved, matrices.clone())
            });
            let moved = |h: f64| {
                let mut moved = matrices.clone();
                match &mut moved {
                    Covariances::Full(v) => v[[1, 0, 0]] += h,
                    Covariances::Tied(v) => v[[0, 0]] += h,
                    Covariances::Diag(v) => v[[1, 0]] += h,
                    Covariances::Spherical(v) => v[1] += h,
                }
                with(&startprob, &transmat, &means, moved)
            };
            let of_covariance = match &gradient.covariances {
                Covariances::Full(v) => v[[1, 0, 0]],
                Covariances::Tied(v) => v[[0, 0]],
                Covariances::Diag(v) => v[[1, 0]],
                Covariances::Spherical(v) => v[1],
            };
            near("a variance", of_covariance, &moved);
            // The density of a state is linear in its weights, so their derivatives times them add up to its rows.
            let counts = model.expectations(&sequences).unwrap().statistics.counts().sum();
            assert!(((&gradient.weights * &model.weights()).sum() - counts).abs() < 1e-9 * counts);
        }
    }
}

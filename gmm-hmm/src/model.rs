//! The model: states, their transitions, and their emissions.
use crate::chunks::Chain;
use crate::emissions::Emissions;
use crate::error::{Error, Result};
use crate::expectations::{Expectations, expectations, on_device, scores};
use crate::lattice::Transitions;
use crate::sequences::Sequences;
use crate::viterbi;
use gmm_core::reproducible::Functions;
use gmm_host::{CovarianceType, MarkovSums, Mixture};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The largest deviation of a sum of probabilities from one.
const SUM_TOLERANCE: f64 = 1e-5;

/// A hidden Markov model with K states: πᵢ, the probability that a sequence starts in state i, aᵢⱼ, the probability
/// that state j follows state i, and the density of a row in each state, a mixture of M Gaussians.
///
/// The emissions of all states are one [`Mixture`] of K·M components, M neighbours for each state. Its weights within a
/// state are those over their sum.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "serialised::Parts", into = "serialised::Parts")
)]
pub struct HiddenMarkov {
    startprob: Array1<f64>,
    transmat: Array2<f64>,
    emissions: Mixture,
    tied_within_states: bool,
}

impl HiddenMarkov {
    /// Builds a model from π (K,), a (K, K) and the emissions of K·M components.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Probability`], [`Error::ProbabilitySum`]; [`Error::Parameter`] for a state all of
    /// whose components have the weight 0.
    pub fn new(startprob: Array1<f64>, transmat: Array2<f64>, emissions: Mixture) -> Result<Self> {
        emissions.check_no_noise("the emissions")?;
        let (k, n) = (startprob.len(), emissions.n_components());
        if k == 0 || n % k != 0 {
            return Err(Error::Shape { what: "startprob", expected: vec![n], got: vec![k] });
        }
        if transmat.dim() != (k, k) {
            return Err(Error::Shape { what: "transmat", expected: vec![k, k], got: transmat.shape().to_vec() });
        }
        check_probabilities("startprob", startprob.view())?;
        for (i, row) in transmat.outer_iter().enumerate() {
            check_probabilities(&format!("row {i} of transmat"), row)?;
        }
        let model = Self { startprob, transmat, emissions, tied_within_states: false };
        match (0..k).find(|state| model.weights_of(*state).sum() <= 0.0) {
            Some(state) => {
                let (what, remedy) = ("the sum of a state's weights", "give one of its components a weight");
                Err(Error::Parameter { what, value: format!("0 for state {state} (counted from 0)"), remedy })
            }
            None => Ok(model),
        }
    }

    /// Declares that the components of a state have one covariance matrix. M-steps keep it, and
    /// [`n_parameters`](Self::n_parameters) counts by it.
    ///
    /// # Errors
    /// [`Error::Host`] for covariances other than `full`.
    pub fn tied_within_states(mut self) -> Result<Self> {
        if self.emissions.covariance_type() != CovarianceType::Full {
            let (what, expected, got) =
                ("covariances tied within states", "full", self.emissions.covariance_type().name());
            return Err(gmm_host::Error::WrongCovarianceType { what, expected, got }.into());
        }
        self.tied_within_states = true;
        Ok(self)
    }

    /// Returns the model with other parameters of the same shapes.
    pub(crate) fn with(&self, startprob: Array1<f64>, transmat: Array2<f64>, emissions: Mixture) -> Result<Self> {
        let tied_within_states = self.tied_within_states;
        Ok(Self { tied_within_states, ..Self::new(startprob, transmat, emissions)? })
    }

    /// Whether the components of a state have one covariance matrix.
    pub fn is_tied_within_states(&self) -> bool {
        self.tied_within_states
    }

    /// Returns K, the number of states.
    pub fn n_states(&self) -> usize {
        self.startprob.len()
    }

    /// Returns M, the number of components of each state.
    pub fn n_mix(&self) -> usize {
        self.emissions.n_components() / self.n_states()
    }

    /// Returns D, the number of features.
    pub fn n_features(&self) -> usize {
        self.emissions.n_features()
    }

    /// Returns π (K,).
    pub fn startprob(&self) -> ArrayView1<'_, f64> {
        self.startprob.view()
    }

    /// Returns a (K, K).
    pub fn transmat(&self) -> ArrayView2<'_, f64> {
        self.transmat.view()
    }

    /// Returns the mixture of all states' components.
    pub fn emissions(&self) -> &Mixture {
        &self.emissions
    }

    /// Returns the weights of the components within their states (K, M).
    pub fn weights(&self) -> Array2<f64> {
        let mut weights = Array2::zeros((self.n_states(), self.n_mix()));
        for (state, mut row) in weights.outer_iter_mut().enumerate() {
            let own = self.weights_of(state);
            row.assign(&(&own / own.sum()));
        }
        weights
    }

    fn weights_of(&self, state: usize) -> ArrayView1<'_, f64> {
        let m = self.n_mix();
        self.emissions.weights().slice_move(s![state * m..(state + 1) * m])
    }

    /// Returns the mixture of one state.
    ///
    /// # Errors
    /// As [`Mixture::new`].
    pub fn mixture_of(&self, state: usize) -> Result<Mixture> {
        let m = self.n_mix();
        let own: Vec<usize> = (state * m..(state + 1) * m).collect();
        let means = self.emissions.means().select(Axis(0), &own);
        Ok(Mixture::new(self.weights().row(state).to_owned(), means, self.emissions.covariances().select(&own))?)
    }

    /// Returns the number of free parameters: K − 1 of π, K·(K − 1) of a, K·(M − 1) weights, means and covariances.
    pub fn n_parameters(&self) -> usize {
        let (k, m, d) = (self.n_states(), self.n_mix(), self.n_features());
        let covariances = match self.tied_within_states {
            true => k * d * (d + 1) / 2,
            false => self.emissions.covariance_model().n_parameters(k * m, d),
        };
        k - 1 + k * (k - 1) + k * (m - 1) + k * m * d + covariances
    }

    pub(crate) fn chain(&self, sequences: &Sequences<'_>) -> Result<Chain<'_>> {
        check_features(self.n_features(), sequences)?;
        Ok(Chain {
            start: self.startprob.iter().map(|v| v.log_e()).collect(),
            transitions: Transitions::new(&self.transmat),
            emissions: Emissions::new(&self.emissions, self.n_states(), &[]),
        })
    }

    /// Computes the E-step, on the [device of the sequences](Sequences::on) if it can.
    ///
    /// # Errors
    /// [`Error::ImpossibleSequence`]; [`Error::Host`] for another D.
    pub fn expectations(&self, sequences: &Sequences<'_>) -> Result<Expectations> {
        match self.on_device(sequences)? {
            Some(sums) => Ok(sums.into()),
            None => expectations(&self.chain(sequences)?, sequences, crate::chunks::CHUNK),
        }
    }

    fn on_device(&self, sequences: &Sequences<'_>) -> Result<Option<MarkovSums>> {
        check_features(self.n_features(), sequences)?;
        on_device(&self.emissions, (self.startprob(), self.transmat(), &[]), sequences)
    }

    /// Returns log p(sequence) of each sequence (S,): −∞ for an impossible one. Computes on the
    /// [device of the sequences](Sequences::on) if it can.
    ///
    /// # Errors
    /// [`Error::Host`] for another D.
    pub fn score(&self, sequences: &Sequences<'_>) -> Result<Vec<f64>> {
        match self.on_device(sequences)? {
            Some(sums) => Ok(sums.log_likelihoods),
            None => Ok(scores(&self.chain(sequences)?, sequences, false)?.scores),
        }
    }

    /// As [`score`](Self::score), and returns p(state | sequence) of each row (N, K): zeros for an impossible sequence.
    ///
    /// # Errors
    /// As [`score`](Self::score), and for a lack of memory.
    pub fn forward_backward(&self, sequences: &Sequences<'_>) -> Result<(Vec<f64>, Array2<f64>)> {
        let results = scores(&self.chain(sequences)?, sequences, true)?;
        Ok((results.scores, results.posteriors))
    }

    /// Returns the log probability of each sequence with its most probable path (S,), and the states of the paths (N,).
    /// If two paths are equally probable, the state before a row is the later of equals, and the last the first.
    ///
    /// # Errors
    /// As [`forward_backward`](Self::forward_backward).
    pub fn viterbi(&self, sequences: &Sequences<'_>) -> Result<(Vec<f64>, Vec<usize>)> {
        viterbi::viterbi(&self.chain(sequences)?, sequences)
    }

    /// Returns log p(rows, states) of each sequence (S,) with the given states (N,).
    ///
    /// # Errors
    /// [`Error::Shape`]; [`Error::Parameter`] for a state that does not exist.
    pub fn score_paths(&self, sequences: &Sequences<'_>, states: &[usize]) -> Result<Vec<f64>> {
        let n = sequences.samples().n_samples();
        if states.len() != n {
            return Err(Error::Shape { what: "the states", expected: vec![n], got: vec![states.len()] });
        }
        let chain = self.chain(sequences)?;
        states.iter().try_for_each(|state| self.check_state("a state", *state))?;
        viterbi::of_paths(&chain, sequences, states)
    }

    fn check_state(&self, what: &'static str, state: usize) -> Result<()> {
        let remedy = "states are counted from 0 to K − 1";
        match state < self.n_states() {
            true => Ok(()),
            false => Err(Error::Parameter { what, value: state.to_string(), remedy }),
        }
    }

    /// Draws a sequence of N rows (N, D) with its states (N,), from state `start` if given. The same seed gives the
    /// same bits.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a state that does not exist; [`Error::Host`] for a lack of memory.
    pub fn sample(&self, n_samples: usize, seed: u64, start: Option<usize>) -> Result<(Array2<f64>, Vec<usize>)> {
        let k = self.n_states();
        start.map_or(Ok(()), |state| self.check_state("the first state", state))?;
        gmm_host::memory::check("the samples", &[n_samples, self.n_features() + 1], 8, "draw fewer at a time")?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut states = Vec::with_capacity(n_samples);
        for t in 0..n_samples {
            let state = match (t, start) {
                (0, Some(state)) => state,
                (0, None) => draw(self.startprob.view(), rng.random()),
                _ => draw(self.transmat.row(states[t - 1]), rng.random()),
            };
            states.push(state);
        }
        let mut x = Array2::zeros((n_samples, self.n_features()));
        for state in 0..k {
            let of_state: Vec<usize> = (0..n_samples).filter(|t| states[*t] == state).collect();
            let seed: u64 = rng.random();
            let (rows, _) = self.mixture_of(state)?.sample(of_state.len(), seed)?;
            of_state.iter().zip(rows.outer_iter()).for_each(|(t, row)| x.row_mut(*t).assign(&row));
        }
        Ok((x, states))
    }

    /// Returns the share of time that a long sequence spends in each state (K,). It depends on π only if the chain
    /// cannot return to some states.
    pub fn stationary_distribution(&self) -> Array1<f64> {
        // The powers of (a + 1)/2 converge also where those of a alternate.
        let mut power = (&self.transmat + &Array2::<f64>::eye(self.n_states())) * 0.5;
        for _ in 0..64 {
            power = power.dot(&power);
            power.outer_iter_mut().for_each(|mut row| row /= row.sum());
        }
        self.startprob.dot(&power)
    }
}

/// Checks D against a model's.
pub(crate) fn check_features(n_features: usize, sequences: &Sequences<'_>) -> Result<()> {
    let (n, d) = (sequences.samples().n_samples(), sequences.samples().n_features());
    match d == n_features {
        true => Ok(()),
        false => Err(Error::Shape { what: "the data", expected: vec![n, n_features], got: vec![n, d] }),
    }
}

fn check_probabilities(what: &str, row: ArrayView1<'_, f64>) -> Result<()> {
    if let Some(position) = row.iter().position(|v| !(v.is_finite() && *v >= 0.0)) {
        return Err(Error::Probability { what: what.into(), position, value: row[position] });
    }
    let sum = row.sum();
    match (sum - 1.0).abs() <= SUM_TOLERANCE {
        true => Ok(()),
        false => Err(Error::ProbabilitySum { what: what.into(), sum }),
    }
}

/// Returns the first place where the cumulated probabilities exceed a number from 0 to below 1.
fn draw(probabilities: ArrayView1<'_, f64>, uniform: f64) -> usize {
    let mut rest = uniform * probabilities.sum();
    let mut last = 0;
    for (i, p) in probabilities.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        last = i;
        rest -= p;
        if rest < 0.0 {
            break;
        }
    }
    last
}

#[cfg(feature = "serde")]
mod serialised {
    use super::{Error, HiddenMarkov, Mixture};
    use ndarray::{Array1, Array2};

    /// The serialised form of a model.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Parts {
        startprob: Array1<f64>,
        transmat: Array2<f64>,
        emissions: Mixture,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tied_within_states: bool,
    }

    impl From<HiddenMarkov> for Parts {
        fn from(model: HiddenMarkov) -> Self {
            let HiddenMarkov { startprob, transmat, emissions, tied_within_states } = model;
            Self { startprob, transmat, emissions, tied_within_states }
        }
    }

    impl TryFrom<Parts> for HiddenMarkov {
        type Error = Error;

        fn try_from(parts: Parts) -> Result<Self, Error> {
            let model = Self::new(parts.startprob, parts.transmat, parts.emissions)?;
            if parts.tied_within_states { model.tied_within_states() } else { Ok(model) }
        }
    }
}

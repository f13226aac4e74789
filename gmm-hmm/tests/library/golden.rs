//! Values of hmmlearn 0.3.3: `golden.json` holds its histories and scores after ten iterations (eight of the
//! variational ones) for the rows 7i mod 150 of `data/iris.csv`, from the starts below.
use gmm_hmm::{Frozen, HiddenMarkov, Hyperparameters, Options, Priors, Sequences, VariationalHiddenMarkov};
use gmm_host::{CovarianceType, Covariances, Mixture, Samples};
use ndarray::{Array1, Array2, Axis, array};
use serde_json::Value;

fn iris() -> Array2<f64> {
    let text = std::fs::read_to_string("../data/iris.csv").unwrap();
    let numbers = text
        .lines()
        .skip(1)
        .flat_map(|line| line.split(',').take(4).map(|v| v.parse::<f64>().unwrap()).collect::<Vec<_>>());
    Array2::from_shape_vec((150, 4), numbers.collect()).unwrap()
}

fn shuffled() -> Array2<f64> {
    iris().select(Axis(0), &(0..150).map(|i| 7 * i % 150).collect::<Vec<_>>())
}

fn cases(kind: impl Fn(&Value) -> bool) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(include_str!("golden.json")).unwrap();
    let found: Vec<Value> = all.into_iter().filter(kind).collect();
    assert!(found.len() >= 4);
    found
}

fn numbers(v: &Value) -> Vec<f64> {
    match v {
        Value::Array(v) => v.iter().flat_map(numbers).collect(),
        v => vec![v.as_f64().unwrap()],
    }
}

fn form(case: &Value) -> CovarianceType {
    CovarianceType::ALL.into_iter().find(|form| case["cov"] == form.name()).unwrap()
}

/// The values have passed through different sums of as many terms.
fn near(what: &str, got: impl IntoIterator<Item = f64>, want: &Value) {
    let (got, want): (Vec<f64>, Vec<f64>) = (got.into_iter().collect(), numbers(want));
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(&want) {
        assert!((got - want).abs() <= 1e-8 * want.abs().max(1.0), "{what}: {got} for {want}");
    }
}

/// hmmlearn adds its prior of 0.01 to every entry of a matrix.
fn on_every_entry(form: CovarianceType) -> Covariances {
    let mut scatter = Covariances::zeros(form, 3, 4);
    scatter.map_inplace(|v| *v = if form == CovarianceType::Spherical { 0.04 } else { 0.01 });
    scatter
}

#[test]
fn gaussian_emissions() {
    for case in cases(|case| case["gmm"].is_null() && case["vb"].is_null()) {
        let (x, form) = (shuffled(), form(&case));
        let lengths: Vec<usize> = numbers(&case["lengths"]).iter().map(|v| *v as usize).collect();
        let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &lengths).unwrap();
        let means = iris().select(Axis(0), &[0, 50, 100]);
        let emissions =
            Mixture::new(Array1::from_elem(3, 1.0 / 3.0), means, Covariances::isotropic(form, 3, 4, 0.5)).unwrap();
        let transmat = Array2::from_elem((3, 3), 0.1) + Array2::<f64>::eye(3) * 0.7;
        let start = HiddenMarkov::new(array![0.6, 0.3, 0.1], transmat, emissions).unwrap();
        let priors = Priors { scatter: on_every_entry(form), ..Priors::none(&start) };
        let options =
            Options { n_iter: 10, tol: f64::NEG_INFINITY, reg_covar: 0.0, priors: Some(priors), ..Options::default() };
        let fit = options.fit(start, &sequences).unwrap();
        near("history", fit.history, &case["history"]);
        near("score", [fit.model.score(&sequences).unwrap().iter().sum()], &case["score"]);
        near("path", [fit.model.viterbi(&sequences).unwrap().0.iter().sum()], &case["viterbi"]);
        near("transmat", fit.model.transmat().iter().copied(), &case["transmat"]);
        near("means", fit.model.emissions().means().iter().copied(), &case["means"]);
    }
}

#[test]
fn mixture_emissions() {
    for case in cases(|case| !case["gmm"].is_null()) {
        let (x, form) = (shuffled(), form(&case));
        let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
        let means = iris().select(Axis(0), &[0, 20, 60, 120]);
        let tied = form == CovarianceType::Tied;
        let of_mixture = if tied { CovarianceType::Full } else { form };
        let emissions =
            Mixture::new(Array1::from_elem(4, 0.25), means, Covariances::isotropic(of_mixture, 4, 4, 0.5)).unwrap();
        let mut start = HiddenMarkov::new(array![0.5, 0.5], array![[0.9, 0.1], [0.2, 0.8]], emissions).unwrap();
        if tied {
            start = start.tied_within_states().unwrap();
        }
        // hmmlearn's default divides by D·n + D − M under `spherical`.
        let divisor = if form == CovarianceType::Spherical { 1.0 - 2.0 / 4.0 } else { 0.0 };
        let divisor = Array1::from_elem(4, divisor);
        let priors = Priors { around_last_means: true, divisor, ..Priors::none(&start) };
        let options =
            Options { n_iter: 10, tol: f64::NEG_INFINITY, reg_covar: 0.0, priors: Some(priors), ..Options::default() };
        let fit = options.fit(start, &sequences).unwrap();
        near("history", fit.history, &case["history"]);
        near("score", fit.model.score(&sequences).unwrap(), &case["score"]);
        near("weights", fit.model.weights(), &case["weights"]);
        near("transmat", fit.model.transmat().iter().copied(), &case["transmat"]);
    }
}

#[test]
fn variational() {
    for case in cases(|case| !case["vb"].is_null()) {
        let (x, form) = (shuffled(), form(&case));
        let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
        let mean = x.mean_axis(Axis(0)).unwrap();
        let prior = Hyperparameters {
            start: Array1::from_elem(3, 1.0 / 3.0),
            transitions: Array2::from_elem((3, 3), 1.0 / 3.0),
            means: Array2::ones((3, 1)) * &mean,
            beta: Array1::ones(3),
            dof: Array1::from_elem(3, 4.0),
            scale: Covariances::isotropic(form, 3, 4, 1e-3),
        };
        let posterior = Hyperparameters {
            start: Array1::ones(3),
            transitions: Array2::from_elem((3, 3), 50.0 / 3.0),
            means: iris().select(Axis(0), &[0, 50, 100]),
            beta: Array1::from_elem(3, 50.0),
            dof: Array1::from_elem(3, 50.0),
            scale: Covariances::isotropic(form, 3, 4, 25.0),
        };
        let mut model = VariationalHiddenMarkov::new(prior, posterior).unwrap();
        let mut bounds = Vec::new();
        for _ in 0..8 {
            let (next, bound) = model.step(&sequences, Frozen::default()).unwrap();
            bounds.push(bound);
            model = next;
        }
        near(&format!("bounds, {form:?}"), bounds, &case["history"]);
        let mean_model = model.model().unwrap();
        near("score", mean_model.score(&sequences).unwrap(), &case["score"]);
        near("path", mean_model.viterbi(&sequences).unwrap().0, &case["viterbi"]);
    }
}

/// The umbrella of Wikipedia's page on the algorithm: two states, seen through densities that stand for the
/// probabilities of an umbrella, from hmmlearn's test of its recursions.
#[test]
fn umbrella() {
    // Two values whose densities under the states are in the ratio of the probabilities, up to a factor each.
    let emissions = Mixture::new(array![0.5, 0.5], array![[0.0], [1.0]], Covariances::Tied(array![[1.0]])).unwrap();
    let model = HiddenMarkov::new(array![0.5, 0.5], array![[0.7, 0.3], [0.3, 0.7]], emissions).unwrap();
    // log b₀/b₁ = ½ − x.
    let (umbrella, none) = (0.5 - (0.9f64 / 0.2).ln(), 0.5 - (0.1f64 / 0.8).ln());
    let x = array![[umbrella], [umbrella], [none], [umbrella], [umbrella]];
    let sequences = Sequences::one(Samples::from_f64(x.view()).unwrap());
    let factor = |x: f64, b: f64| b.ln() + 0.5 * x * x + 0.5 * std::f64::consts::TAU.ln();
    let factors = 4.0 * factor(umbrella, 0.9) + factor(none, 0.1);
    let (scores, gamma) = model.forward_backward(&sequences).unwrap();
    assert!((scores[0] + factors + 3.3725).abs() < 5e-5);
    for (got, want) in gamma.column(0).iter().zip([0.8673, 0.8204, 0.3075, 0.8204, 0.8673]) {
        assert!((got - want).abs() < 5e-5, "{got} for {want}");
    }
    let (scores, states) = model.viterbi(&sequences).unwrap();
    assert!((scores[0] + factors + 4.4590).abs() < 5e-5);
    assert_eq!(states, [0, 0, 1, 0, 0]);
}

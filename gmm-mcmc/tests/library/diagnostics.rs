//! The diagnostics agree with ArviZ. data/diagnostics.py computed the reference values.
use gmm_mcmc::diagnostics::{ess_bulk, ess_mean, ess_tail, r_hat};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    chains: Vec<Vec<f64>>,
    r_hat: f64,
    ess_bulk: f64,
    ess_tail: f64,
    ess_mean: f64,
}

#[test]
fn diagnostics_are_those_of_arviz() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../data/diagnostics.json")).unwrap();
    assert!(cases.len() >= 9);
    for case in cases {
        let chains: Vec<&[f64]> = case.chains.iter().map(Vec::as_slice).collect();
        for (what, got, want) in [
            ("r_hat", r_hat(&chains), case.r_hat),
            ("ess_bulk", ess_bulk(&chains), case.ess_bulk),
            ("ess_tail", ess_tail(&chains), case.ess_tail),
            ("ess_mean", ess_mean(&chains), case.ess_mean),
        ] {
            // The formulas are the same, but the Fourier transforms round differently.
            assert!((got - want).abs() < 1e-9 * want, "{}: {what} is {got}, not {want}", case.name);
        }
    }
}

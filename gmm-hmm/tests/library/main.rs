//! Tests of the library: `cargo test -p gmm-hmm --test library properties::` runs those of one file.
#![allow(missing_docs)]
mod brute_force;
mod errors;
mod properties;

use gmm_hmm::HiddenMarkov;
use gmm_host::{CovarianceModel, Covariances, Mixture};
use ndarray::{Array1, Array2, Array3};

/// Numbers from 0 to below 1 that look random.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn array(&mut self, rows: usize, columns: usize) -> Array2<f64> {
        Array2::from_shape_simple_fn((rows, columns), || self.draw())
    }

    pub fn probabilities(&mut self, n: usize) -> Array1<f64> {
        let v = Array1::from_shape_simple_fn(n, || self.draw() + 0.05);
        let sum = v.sum();
        v / sum
    }

    /// A model of K states with M components, whose means are `apart` times as far apart as their widths.
    pub fn model(&mut self, k: usize, m: usize, d: usize, model: CovarianceModel, apart: f64) -> HiddenMarkov {
        let mut transmat = Array2::zeros((k, k));
        transmat.outer_iter_mut().for_each(|mut row| row.assign(&self.probabilities(k)));
        let n = k * m;
        let means = self.array(n, d) * apart;
        let variances = self.array(n, d) + 0.5;
        let matrix = |c: usize| {
            let mut matrix = Array2::from_elem((d, d), 0.2);
            matrix.diag_mut().assign(&(&variances.row(c) + 0.2));
            matrix
        };
        let covariances = match model.form() {
            gmm_host::CovarianceType::Full => {
                let mut all = Array3::zeros((n, d, d));
                all.outer_iter_mut().enumerate().for_each(|(c, mut v)| v.assign(&matrix(c)));
                Covariances::Full(all)
            }
            gmm_host::CovarianceType::Tied => Covariances::Tied(matrix(0)),
            gmm_host::CovarianceType::Diag => Covariances::Diag(variances.clone()),
            gmm_host::CovarianceType::Spherical => Covariances::Spherical(variances.column(0).to_owned()),
        };
        let weights = self.probabilities(n);
        let emissions = Mixture::new(weights, means, covariances).unwrap().with_covariance_model(model).unwrap();
        HiddenMarkov::new(self.probabilities(k), transmat, emissions).unwrap()
    }
}

//! The true values behind measurements.
use crate::compensated::softmax;
use crate::contract::evaluator::check_features;
use crate::data::samples::Samples;
use crate::data::true_values::TrueValues;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::model::mixture::Mixture;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, Array3, Axis};

impl Mixture {
    /// Returns the expected true values (N, D) of samples with [noise](crate::data::noise::Noise), given their
    /// measurements, and the covariances (N, D, D) of the true values around them.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture, Noise, Samples};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![3.0]))?;
    /// let (x, noise) = (array![[2.0]], Noise::common(array![[1.0]])?);
    /// let (values, covariances) = mixture.denoise(&Samples::from_f64(x.view())?.with_noise(noise)?)?;
    /// assert!((values[[0, 0]] - 1.5).abs() < 1e-12 && (covariances[[0, 0, 0]] - 0.75).abs() < 1e-12);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::NoSpread`], [`Error::Memory`].
    pub fn denoise(&self, samples: &Samples<'_>) -> Result<(Array2<f64>, Array3<f64>)> {
        let (n, d) = (samples.n_samples(), self.n_features());
        check_features(self, samples.n_true_values())?;
        memory::check("the covariances of the true values", &[n, d, d], size_of::<f64>(), "take fewer rows at a time")?;
        let (mut values, mut covariances) = (Array2::zeros((n, d)), Array3::zeros((n, d, d)));
        let true_values = TrueValues::new(samples, self);
        let interrupt = Interrupt::current();
        let rows =
            values.axis_iter_mut(Axis(0)).into_par_iter().zip(covariances.axis_iter_mut(Axis(0)).into_par_iter());
        rows.enumerate().try_for_each(|(row, (mut value, mut covariance))| {
            interrupt.check()?;
            let parts = true_values.of_row(row)?;
            let mut r: Vec<f64> = parts.iter().map(|part| part.log_p).collect();
            softmax(&mut r);
            parts.iter().zip(&r).for_each(|(part, &r)| value.scaled_add(r, &part.mean));
            for (part, &r) in parts.iter().zip(&r) {
                let delta = &part.mean - &value;
                for ((i, j), v) in covariance.indexed_iter_mut() {
                    *v += r * (part.covariance[[i, j]] + delta[i] * delta[j]);
                }
            }
            Ok::<_, Error>(())
        })?;
        Ok((values, covariances))
    }
}

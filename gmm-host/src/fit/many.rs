//! Many fits in one call: one for each of many sets of samples.
//!
//! A small fit would spend most of its time on handing its work to threads and on waiting for them.
//! So many small fits run side by side, each whole on one thread. A fit that is a good part of all
//! the work has all threads. Which of the two it is makes no difference to its bits, because an
//! evaluation gives the same ones on any number of threads.
use super::bayesian::{BayesianGaussianMixtureParams, BayesianGaussianMixtureValidParams};
use super::outcome::{Callback, Fit, Iteration};
use super::params::{GaussianMixtureParams, GaussianMixtureValidParams};
use crate::backends::cpu::CpuEvaluator;
use crate::data::samples::Samples;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::load::{LoadOptions, load};
use crate::model::mixture::Mixture;
use crate::variational::mixture::VariationalMixture;
use rayon::current_num_threads;
use rayon::prelude::*;
use std::ops::ControlFlow;

/// Watches many fits. The calls come from the threads that fit, several at a time.
pub trait Watch<M = Mixture>: Sync {
    /// A fit has ended, that of the set of this number.
    fn ended(&self, set: usize, result: &Result<Fit<M>>) {
        let _ = (set, result);
    }

    /// Whether the fits that have not ended are to be given up. Asked after each iteration and
    /// before each fit.
    fn stop(&self) -> bool {
        false
    }
}

/// Watches nothing.
impl<M> Watch<M> for () {}

/// Less work than this, in multiply-adds, is never divided over threads.
const SMALL: f64 = (1 << 22) as f64;
/// Samples of more numbers than this always are: they keep all threads busy, and each thread would
/// have a copy of them.
const MOST_NUMBERS: usize = 1 << 22;

impl GaussianMixtureParams {
    /// Checks the parameters and fits to each of many sets of samples by itself:
    /// [`GaussianMixtureValidParams::fit_many`].
    ///
    /// ```
    /// use gmm_host::{Error, GaussianMixtureParams, Samples};
    /// use ndarray::Array2;
    ///
    /// let x = Array2::from_shape_fn((90, 2), |(i, j)| ((i * (j + 2)) as f64).sin());
    /// let group: Vec<usize> = (0..90).map(|i| if i == 0 { 2 } else { i % 2 }).collect();
    /// let groups = Samples::from_f64(x.view())?.groups(&group, 3)?;
    /// let params = GaussianMixtureParams::new(2);
    /// let fits = params.fit_many(&groups, &())?;
    /// // Each fit is that of its set alone.
    /// assert_eq!(fits[1].as_ref().unwrap().mixture, params.fit(&groups[1])?.mixture);
    /// // One that fails says why, and stops no other.
    /// assert!(matches!(fits[2], Err(Error::TooFewSamples { n_samples: 1, n_components: 2 })));
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn fit_many(&self, sets: &[Samples<'_>], watch: &dyn Watch) -> Result<Vec<Result<Fit>>> {
        Ok(self.checked()?.fit_many(sets, watch))
    }
}

impl GaussianMixtureValidParams {
    /// Fits to each of many sets of samples by itself, small ones side by side. Each result is that
    /// of [`fit`](Self::fit) to the set alone, to the last bit (on the device
    /// [`Auto`](crate::Device::Auto): of a fit on the CPU, where the fit is small).
    /// [`Error::Stopped`] stands for the fits that `watch` gave up.
    pub fn fit_many(&self, sets: &[Samples<'_>], watch: &dyn Watch) -> Vec<Result<Fit>> {
        fit_each(
            sets,
            self.device,
            |set| self.work(set),
            watch,
            |evaluator, callback| self.fit_with(evaluator, callback),
        )
    }

    /// About the multiply-adds of an iteration of all runs over these samples.
    pub fn work(&self, samples: &Samples<'_>) -> f64 {
        let of_sample = self.covariance_type.multiply_adds(self.n_components, samples.n_features());
        (samples.n_samples() * self.n_init) as f64 * of_sample as f64
    }
}

impl BayesianGaussianMixtureParams {
    /// Checks the parameters and fits to each of many sets of samples by itself, as
    /// [`GaussianMixtureParams::fit_many`] does.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn fit_many(
        &self,
        sets: &[Samples<'_>],
        watch: &dyn Watch<VariationalMixture>,
    ) -> Result<Vec<Result<Fit<VariationalMixture>>>> {
        Ok(self.checked()?.fit_many(sets, watch))
    }
}

impl BayesianGaussianMixtureValidParams {
    /// Fits to each of many sets of samples by itself, as
    /// [`GaussianMixtureValidParams::fit_many`] does.
    pub fn fit_many(
        &self,
        sets: &[Samples<'_>],
        watch: &dyn Watch<VariationalMixture>,
    ) -> Vec<Result<Fit<VariationalMixture>>> {
        fit_each(
            sets,
            self.settings().device,
            |set| self.work(set),
            watch,
            |evaluator, callback| self.fit_with(evaluator, callback),
        )
    }

    /// About the multiply-adds of an iteration of all runs over these samples.
    pub fn work(&self, samples: &Samples<'_>) -> f64 {
        self.settings().work(samples)
    }
}

fn fit_each<'s, M: Send>(
    sets: &[Samples<'s>],
    device: Device,
    work: impl Fn(&Samples<'s>) -> f64,
    watch: &dyn Watch<M>,
    fit: impl Fn(&mut dyn Evaluator, Callback<'_, M>) -> Result<Fit<M>> + Sync,
) -> Vec<Result<Fit<M>>> {
    let stop = |_: &Iteration<'_, M>| match watch.stop() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    evaluate_each(
        sets,
        device,
        |set| work(&sets[set]),
        |set, open| {
            if watch.stop() {
                return Err(Error::Stopped);
            }
            let result = open().and_then(|mut evaluator| fit(evaluator.as_mut(), &mut { stop }));
            if result.as_ref().is_ok_and(|fit| fit.stopped) {
                return Err(Error::Stopped);
            }
            watch.ended(set, &result);
            result
        },
    )
}

/// Evaluates each of many sets of samples, of which `work` says about how many multiply-adds they
/// take. On the CPU and with [`Device::Auto`], small ones are evaluated side by side, each on one
/// thread; others one after the other, on the whole device. `evaluate` gets the number of a set, and
/// a function that loads its samples. The results are in the order of the sets.
pub fn evaluate_each<'s, T: Send>(
    sets: &[Samples<'s>],
    device: Device,
    work: impl Fn(usize) -> f64,
    evaluate: impl Fn(usize, &dyn Fn() -> Result<Box<dyn Evaluator + 's>>) -> T + Sync,
) -> Vec<T> {
    let work: Vec<f64> = (0..sets.len()).map(work).collect();
    let numbers = |set: usize| sets[set].n_samples() * sets[set].n_features();
    let (mut small, large) = divide(&work, numbers, device, current_num_threads());
    let on_device = |set: usize| (set, evaluate(set, &|| load(device, sets[set].clone(), &LoadOptions::default())));
    let on_this_thread = |set: usize| {
        let open = || Ok(Box::new(CpuEvaluator::of_this_thread(sets[set].clone())) as Box<dyn Evaluator + 's>);
        (set, evaluate(set, &open))
    };
    let mut results: Vec<(usize, T)> = large.into_iter().map(on_device).collect();
    // The longest first, so that no thread has one left when the others have ended.
    small.sort_by(|a, b| work[*b].total_cmp(&work[*a]));
    results.par_extend(small.into_par_iter().with_max_len(1).map(on_this_thread));
    results.sort_by_key(|(set, _)| *set);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The numbers of the sets that are evaluated side by side, each on one thread, and of those that
/// have the device for themselves, in their order.
fn divide(
    work: &[f64],
    numbers: impl Fn(usize) -> usize,
    device: Device,
    n_threads: usize,
) -> (Vec<usize>, Vec<usize>) {
    // Beside so small a part of the work of a thread, the others do not wait for long at the end.
    let part = work.iter().sum::<f64>() / (4 * n_threads) as f64;
    let on_cpu = matches!(device, Device::Auto | Device::Cpu);
    let is_small = |set: &usize| on_cpu && work[*set] <= part.max(SMALL) && numbers(*set) <= MOST_NUMBERS;
    (0..work.len()).partition(is_small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_fits_run_side_by_side_and_large_ones_alone() {
        // A thousand fits of half a million multiply-adds each, and one of a thousand times as much.
        let mut work = vec![5e5; 1000];
        work[7] = 5e8;
        let divide = |work: &[f64], device| divide(work, |_| 1000, device, 2);
        for device in [Device::Auto, Device::Cpu] {
            let (small, large) = divide(&work, device);
            assert_eq!((small.len(), large), (999, vec![7]));
        }
        assert_eq!(divide(&work, Device::Cuda(0)).1.len(), 1000);
        // Of a few large ones each has all threads; many of the same size have a thread each, unless
        // copies of their samples would take much memory.
        assert_eq!(divide(&[1e9; 4], Device::Cpu).1.len(), 4);
        assert_eq!(divide(&[1e9; 8], Device::Cpu).0.len(), 8);
        assert_eq!(super::divide(&[1e9; 8], |_| MOST_NUMBERS + 1, Device::Cpu, 2).1.len(), 8);
        assert_eq!(divide(&[], Device::Cpu), (vec![], vec![]));
    }
}

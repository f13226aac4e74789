//! Many fits in one call: one for each of many sets of samples.
//!
//! A small fit would spend most of its time on handing its work to threads and on waiting for them.
//! So many small fits run side by side, each whole on one thread. A fit that is a good part of all
//! the work has all threads. Which of the two it is makes no difference to its bits, because an
//! evaluation gives the same ones on any number of threads.
use super::bayesian::{BayesianGaussianMixtureParams, BayesianGaussianMixtureValidParams};
use super::outcome::{Callback, Fit, Iteration, best_of};
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

    /// The fit to the set of this number, where it is known already, for example from a checkpoint
    /// ([`ended`](Self::ended) is not called for it).
    fn known(&self, set: usize) -> Option<Fit<M>> {
        let _ = set;
        None
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
    /// Fits to each of many sets of samples by itself, small ones side by side. On the CPU each
    /// result is that of [`fit`](Self::fit) to the set alone, to the last bit. On a GPU small fits are
    /// made whole, all in one launch ([`fit_on_gpu`]): each result is that of this function with the
    /// set alone. [`Auto`](crate::Device::Auto) makes small fits on the CPU. [`Error::Stopped`] stands
    /// for the fits that `watch` gave up.
    pub fn fit_many(&self, sets: &[Samples<'_>], watch: &dyn Watch) -> Vec<Result<Fit>> {
        let mut made = known(sets, watch);
        let unknown: Vec<usize> = (0..sets.len()).filter(|set| made[*set].is_none()).collect();
        let runs: Vec<Run<'_>> =
            unknown.iter().flat_map(|&set| (0..self.n_init).map(move |run| Run { params: self, set, run })).collect();
        let mut of_gpu = fit_on_gpu(self.device, sets, &runs, &|| !watch.stop()).into_iter();
        for set in unknown {
            let runs: Vec<Option<Fit>> = of_gpu.by_ref().take(self.n_init).collect();
            // The best run, if all have been made.
            made[set] = runs.into_iter().collect::<Option<Vec<_>>>().and_then(best_of).map(Ok);
            made[set].iter().for_each(|fit| watch.ended(set, fit));
        }
        fit_each(
            sets,
            self.device,
            made,
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
            known(sets, watch),
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

/// A run of a fit by some parameters, to the set of this number.
#[derive(Debug, Clone, Copy)]
pub struct Run<'p> {
    /// The parameters.
    pub params: &'p GaussianMixtureValidParams,
    /// The number of the set of samples.
    pub set: usize,
    /// The number of the run, which with the parameters' seed gives its start.
    pub run: usize,
}

/// Makes those runs on a GPU that it makes whole, each by a block of threads, all in one launch:
/// runs of small mixtures (K up to 32, D up to 16) from k-means, over few enough complete samples, in
/// float64. `None` stands for the others. Which they are, and the bits of a run, depend on the run
/// and the kind of GPU alone. `proceed` is asked from time to time whether to go on.
///
/// Only [`Device::Cuda`] makes such runs. [`Device::Auto`] makes small fits on the CPU, whose starts
/// are others.
pub fn fit_on_gpu(
    device: Device,
    sets: &[Samples<'_>],
    runs: &[Run<'_>],
    proceed: &dyn Fn() -> bool,
) -> Vec<Option<Fit>> {
    match device {
        Device::Cuda(ordinal) => gpu::fit(ordinal, sets, runs, proceed),
        _ => vec![None; runs.len()],
    }
}

#[cfg(not(feature = "cuda"))]
mod gpu {
    use super::*;

    pub fn fit(_: usize, _: &[Samples<'_>], runs: &[Run<'_>], _: &dyn Fn() -> bool) -> Vec<Option<Fit>> {
        vec![None; runs.len()]
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use super::*;
    use crate::backends::cuda::fit::{Course, Fitted, Task, fit as fit_tasks, n_uniforms, takes};
    use crate::fit::init::{LLOYD_TOL, SUBSET_LLOYD};
    use crate::fit::params::InitParams;
    use crate::freeze::Freeze;
    use crate::statistics::Statistics;
    use rand::RngExt;

    /// The course of the runs, if a GPU can make them whole.
    fn course(params: &GaussianMixtureValidParams, d: usize) -> Option<Course> {
        let lloyd = match params.init_params {
            InitParams::KMeans => SUBSET_LLOYD.1,
            InitParams::KMeansPlusPlus => 0,
            InitParams::Random | InitParams::RandomFromData => return None,
        };
        let given = params.weights_init.is_some() || params.means_init.is_some() || params.precisions_init.is_some();
        let plain = !given
            && params.start.is_none()
            && params.freeze == Freeze::default()
            && params.prior.is_none()
            && !params.halving;
        plain.then_some(Course {
            covariance_type: params.covariance_type,
            d,
            tol: params.tol,
            reg_covar: params.reg_covar,
            max_iter: params.max_iter,
            lloyd,
            lloyd_tol: LLOYD_TOL,
        })
    }

    /// The fit with the last M-step; `None` where the parameters are not safely those of a mixture.
    fn with_last_step(fitted: Fitted, run: &Run<'_>) -> Option<Fit> {
        let Fitted { sums, lower_bounds, converged } = fitted;
        let statistics = Statistics::from_centred_sums(sums).ok()?;
        let mixture = statistics.to_mixture(run.params.reg_covar).ok()?;
        Some(Fit { lower_bounds, converged, run: run.run, ..Fit::new(mixture) })
    }

    pub fn fit(ordinal: usize, sets: &[Samples<'_>], runs: &[Run<'_>], proceed: &dyn Fn() -> bool) -> Vec<Option<Fit>> {
        // Runs with the same course are launched together.
        let mut courses: Vec<(Course, Vec<usize>)> = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            let samples = &sets[run.set];
            let Some(course) = course(run.params, samples.n_features()) else { continue };
            if takes(samples, run.params.n_components, &course) {
                match courses.iter_mut().find(|(other, _)| *other == course) {
                    Some((_, numbers)) => numbers.push(number),
                    None => courses.push((course, vec![number])),
                }
            }
        }
        let mut fits = vec![None; runs.len()];
        for (course, numbers) in courses {
            let tasks: Vec<Task> = numbers
                .par_iter()
                .map(|number| {
                    let Run { params, set, run } = runs[*number];
                    let mut rng = params.random_numbers(run);
                    let uniforms = (0..n_uniforms(params.n_components)).map(|_| rng.random()).collect();
                    Task { set, k: params.n_components, uniforms }
                })
                .collect();
            // Where the GPU fails, the runs are made one by one, which will say why.
            let Ok(fitted) = fit_tasks(ordinal, &course, sets, &tasks, proceed) else { continue };
            let made: Vec<(usize, Option<Fit>)> = numbers
                .into_par_iter()
                .zip(fitted)
                .map(|(number, fitted)| (number, fitted.and_then(|fitted| with_last_step(fitted, &runs[number]))))
                .collect();
            made.into_iter().for_each(|(number, fit)| fits[number] = fit);
        }
        fits
    }
}

/// The fits that are known already.
fn known<M>(sets: &[Samples<'_>], watch: &dyn Watch<M>) -> Vec<Option<Result<Fit<M>>>> {
    (0..sets.len()).map(|set| watch.known(set).map(Ok)).collect()
}

/// Fits to the sets for which no fit is `made` yet.
fn fit_each<'s, M: Send>(
    sets: &[Samples<'s>],
    device: Device,
    made: Vec<Option<Result<Fit<M>>>>,
    work: impl Fn(&Samples<'s>) -> f64,
    watch: &dyn Watch<M>,
    fit: impl Fn(&mut dyn Evaluator, Callback<'_, M>) -> Result<Fit<M>> + Sync,
) -> Vec<Result<Fit<M>>> {
    let stop = |_: &Iteration<'_, M>| match watch.stop() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    evaluate_rest(
        sets,
        device,
        made,
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
    evaluate_rest(sets, device, Vec::new(), work, evaluate)
}

/// As [`evaluate_each`], where some of the results are `made` already: those of the first sets, with
/// `None` for what is still to be evaluated.
pub fn evaluate_rest<'s, T: Send>(
    sets: &[Samples<'s>],
    device: Device,
    mut made: Vec<Option<T>>,
    work: impl Fn(usize) -> f64,
    evaluate: impl Fn(usize, &dyn Fn() -> Result<Box<dyn Evaluator + 's>>) -> T + Sync,
) -> Vec<T> {
    made.resize_with(sets.len(), || None);
    let rest: Vec<usize> = (0..sets.len()).filter(|set| made[*set].is_none()).collect();
    let work: Vec<f64> = rest.iter().map(|set| work(*set)).collect();
    let numbers = |i: usize| sets[rest[i]].n_samples() * sets[rest[i]].n_features();
    let (mut small, large) = divide(&work, numbers, device, current_num_threads());
    let on_device = |i: usize| {
        let set = rest[i];
        (set, evaluate(set, &|| load(device, sets[set].clone(), &LoadOptions::default())))
    };
    let on_this_thread = |i: usize| {
        let set = rest[i];
        let open = || Ok(Box::new(CpuEvaluator::of_this_thread(sets[set].clone())) as Box<dyn Evaluator + 's>);
        (set, evaluate(set, &open))
    };
    let mut results: Vec<(usize, T)> = large.into_iter().map(on_device).collect();
    // The longest first, so that no thread has one left when the others have ended.
    small.sort_by(|a, b| work[*b].total_cmp(&work[*a]));
    results.par_extend(small.into_par_iter().with_max_len(1).map(on_this_thread));
    results.into_iter().for_each(|(set, result)| made[set] = Some(result));
    made.into_iter().flatten().collect()
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

//! Many fits in one call, one for each of many sets of samples.
//!
//! A small fit would spend most of its time on handing work to threads. So runs of small fits are made side by side,
//! each on one thread; a run that is a good part of all the work has all threads. Either way its bits are the same,
//! because an evaluation does not depend on the number of threads.
use super::fitting::{Checked, FitOptions, Fitting, Method, no_runs};
use super::iterate::{Course, RunStart, Starts};
use super::outcome::{Fit, Iteration, best_of};
use crate::device::load::{LoadOptions, load, reproducible};
use crate::device::names::Device;
use gmm_core::backends::cpu::CpuEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Samples;
use gmm_core::error::{Error, Result};
use gmm_core::model::mixture::Mixture;
use rayon::current_num_threads;
use rayon::prelude::*;
use std::ops::ControlFlow;

/// Watches many fits. The fitting threads call it, several at a time.
pub trait Watch<M = Mixture>: Sync {
    /// Called when a run of the fit to a set has ended; its number is [`Fit::run`], 0 if runs take turns.
    fn ended(&self, set: usize, result: &Result<Fit<M>>) {
        let _ = (set, result);
    }

    /// Returns a run that is known already, for example from a checkpoint. [`ended`](Self::ended) is not called for it.
    fn known(&self, set: usize, run: usize) -> Option<Fit<M>> {
        let _ = (set, run);
        None
    }

    /// Called at most once, when a GPU fails to make small fits in one launch; one by one they take far longer.
    fn slowed(&self, error: &Error) {
        let _ = error;
    }

    /// Returns whether to give up the runs that have not ended. Called after each iteration and before each run.
    fn stop(&self) -> bool {
        false
    }
}

impl<M> Watch<M> for () {}

/// Chooses the starts of the runs of many fits. The fitting threads call it.
pub trait ManyStarts<M>: Sync {
    /// Returns the seed and stream of the random numbers from which the engine, or a GPU, finds a start; `None` for
    /// those of the options. Runs that take turns have streams of the seed of run 0.
    fn seed(&self, set: usize, run: usize) -> Option<(u64, u64)> {
        let _ = (set, run);
        None
    }

    /// Returns the start of a run over these samples, or `None` if the engine finds it. Not asked for a run that a GPU
    /// makes whole, nor for runs that take turns or that begin at [`Fitting::start`].
    ///
    /// # Errors
    /// An error ends the fit to this set.
    fn start(&self, set: usize, run: usize, samples: &Samples<'_>) -> Result<Option<RunStart<M>>> {
        let _ = (set, run, samples);
        Ok(None)
    }
}

impl<M> ManyStarts<M> for () {}

/// Work of fewer multiply-adds than this is never divided over threads.
const SMALL: f64 = (1 << 22) as f64;
/// Samples of more numbers than this always are: they keep all threads busy, and threads would copy them.
const MOST_NUMBERS: usize = 1 << 22;

impl<M: Method> Fitting<M> {
    /// Checks the options and fits to each of many sets of samples by itself: [`fit_many`].
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
    /// // A fit that fails says why, and does not stop the others.
    /// assert!(matches!(fits[2], Err(Error::TooFewSamples { n_samples: 1, n_components: 2 })));
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn fit_many(&self, sets: &[Samples<'_>], watch: &dyn Watch<M::Model>) -> Result<Vec<Result<Fit<M::Model>>>> {
        Ok(self.checked()?.fit_many(sets, watch))
    }

    /// Returns about the multiply-adds of an iteration of all runs over these samples.
    fn work(&self, samples: &Samples<'_>) -> f64 {
        let FitOptions { covariance_type, n_components, n_init, .. } = self.options;
        let of_sample = covariance_type.form().multiply_adds(n_components, samples.n_features());
        (samples.n_samples() * n_init) as f64 * of_sample as f64
    }

    /// Returns the number of runs that are made by themselves; runs that take turns count as one.
    pub fn n_runs(&self) -> usize {
        if self.is_made_as_one() { 1 } else { self.options.n_init }
    }

    /// Returns whether runs take turns, or one run has its own start.
    fn is_made_as_one(&self) -> bool {
        self.start.is_some() || self.options.halving
    }
}

impl<M: Method> Checked<Fitting<M>> {
    /// Fits to each of many sets of samples by itself: [`fit_many`] with the same options for all.
    pub fn fit_many(&self, sets: &[Samples<'_>], watch: &dyn Watch<M::Model>) -> Vec<Result<Fit<M::Model>>> {
        fit_many(sets, &|_| self, &(), watch)
    }
}

/// The runs made so far of the fit to a set.
type RunsOfSet<M> = Vec<Option<Result<Fit<M>>>>;

/// Some runs of the fit to a set, made one after the other.
struct Runs {
    set: usize,
    runs: Vec<usize>,
}

/// Fits to each of many sets of samples by itself, small ones side by side; `fitting` returns the fit of a set. On the
/// CPU each result equals [`Checked::fit`] to that set alone, bit for bit. A GPU makes small runs whole, all in one
/// launch: runs of EM from k-means over few enough complete samples in float64, with K up to 32 and D up to 16. Each
/// result then equals this function's for that set alone. [`Auto`](crate::Device::Auto) makes small fits on the CPU.
/// Fits that `watch` gave up are [`Error::Stopped`].
pub fn fit_many<'f, M: Method>(
    sets: &[Samples<'_>],
    fitting: &(dyn Fn(usize) -> &'f Checked<Fitting<M>> + Sync),
    starts: &dyn ManyStarts<M::Model>,
    watch: &dyn Watch<M::Model>,
) -> Vec<Result<Fit<M::Model>>> {
    let Some(options) = (!sets.is_empty()).then(|| &fitting(0).options) else { return Vec::new() };
    let (device, _same) = (options.device, options.begin());
    let mut fits: Vec<RunsOfSet<M::Model>> = (0..sets.len())
        .map(|set| (0..fitting(set).n_runs()).map(|run| watch.known(set, run).map(Ok)).collect())
        .collect();
    let unknown = |fits: &[Vec<Option<_>>]| -> Vec<(usize, usize)> {
        let of_set = |(set, runs): (usize, &Vec<Option<_>>)| {
            runs.iter()
                .enumerate()
                .filter_map(move |(run, fit)| fit.is_none().then_some((set, run)))
                .collect::<Vec<_>>()
        };
        fits.iter().enumerate().flat_map(of_set).collect()
    };
    let seed = |set: usize, run: usize| {
        starts.seed(set, run).unwrap_or_else(|| (fitting(set).options.random_state, run as u64))
    };
    if let Ok(Device::Cuda(ordinal)) = reproducible(device) {
        let runs = unknown(&fits);
        let seeded: Vec<_> = runs.iter().map(|&(set, run)| (&**fitting(set), set, seed(set, run))).collect();
        for ((set, run), fit) in runs.into_iter().zip(gpu::fit(ordinal, sets, &seeded, watch)) {
            fits[set][run] = fit.map(|fit| Ok(Fit { run, ..fit }));
            fits[set][run].iter().for_each(|fit| watch.ended(set, fit));
        }
    }
    // A device loads the samples of a set once; on the CPU each run may have its own thread.
    let rest = unknown(&fits);
    let mut units: Vec<Runs> = Vec::new();
    for (set, run) in rest {
        match units.last_mut() {
            Some(unit) if unit.set == set && !is_on_cpu(device) => unit.runs.push(run),
            _ => units.push(Runs { set, runs: vec![run] }),
        }
    }
    let samples: Vec<Samples<'_>> = units.iter().map(|unit| sets[unit.set].clone()).collect();
    let work = |unit: usize| {
        let Runs { set, runs } = &units[unit];
        let fitting = fitting(*set);
        fitting.work(&sets[*set]) * runs.len() as f64 / fitting.n_runs() as f64
    };
    let stop = |_: &Iteration<'_, M::Model>| match watch.stop() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let results = evaluate_each(&samples, device, work, |unit, open| {
        let Runs { set, runs } = &units[unit];
        let one = OfSet { set: *set, samples: &sets[*set], starts, seed: &seed };
        let mut opened: Option<(Box<dyn Evaluator + '_>, Course<'_, M>)> = None;
        let mut fit = |run: usize| {
            if watch.stop() {
                return Err(Error::Stopped);
            }
            let start = if fitting(*set).is_made_as_one() { None } else { Some(one.start(run)?) };
            let (evaluator, course) = match &mut opened {
                Some(opened) => opened,
                None => {
                    let mut evaluator = open()?;
                    let course = Course::new(fitting(*set), evaluator.as_mut())?;
                    opened.insert((evaluator, course))
                }
            };
            let fit = match start {
                Some(start) => course.one_run(evaluator.as_mut(), run, start, &mut { stop })?,
                // All runs, which take turns, or the one with its own start.
                None => course.fit(evaluator.as_mut(), &mut &one, &mut { stop })?,
            };
            if fit.stopped { Err(Error::Stopped) } else { Ok(fit) }
        };
        let made = |&run: &usize| {
            let mut result = fit(run);
            // Runs that take turns end as one.
            let of_best = result.as_mut().map_or(run, |fit| std::mem::replace(&mut fit.run, run));
            if !matches!(result, Err(Error::Stopped)) {
                watch.ended(*set, &result);
            }
            result.map(|fit| Fit { run: of_best, ..fit })
        };
        runs.iter().map(made).collect::<Vec<_>>()
    });
    for (Runs { set, runs }, results) in units.iter().zip(results) {
        for (run, result) in runs.iter().zip(results) {
            fits[*set][*run] = Some(result);
        }
    }
    let best = |runs: RunsOfSet<M::Model>| {
        let runs: Result<Vec<_>> = runs.into_iter().flatten().collect();
        runs.and_then(|runs| best_of(runs).ok_or_else(no_runs))
    };
    fits.into_iter().map(best).collect()
}

/// A run that a GPU may make whole: its fit, its set's index, and the seed and stream of its random numbers.
type Run<'f, M> = (&'f Fitting<M>, usize, (u64, u64));

#[cfg(not(feature = "cuda"))]
mod gpu {
    use super::*;

    pub fn fit<M: Method>(
        _: usize,
        _: &[Samples<'_>],
        runs: &[Run<'_, M>],
        _: &dyn Watch<M::Model>,
    ) -> Vec<Option<Fit<M::Model>>> {
        runs.iter().map(|_| None).collect()
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use super::*;
    use crate::fit::init::{LLOYD_TOL, SUBSET_LLOYD, random_numbers};
    use crate::fit::options::InitParams;
    use gmm_core::statistics::Statistics;
    use gmm_core::statistics::freeze::Freeze;
    use gmm_cuda::fit::{Course, Fitted, Task, fit as fit_tasks, n_uniforms, takes};
    use rand::RngExt;

    /// Returns the course of the runs, if a GPU can make them whole.
    fn course<M: Method>(fitting: &Fitting<M>, d: usize) -> Option<Course> {
        let Fitting { options, method, start } = fitting;
        let lloyd = match options.init_params {
            InitParams::KMeans => SUBSET_LLOYD.1,
            InitParams::KMeansPlusPlus => 0,
            InitParams::Random | InitParams::RandomFromData | InitParams::Hierarchical => return None,
        };
        let plain = method.is_plain()
            && options.covariance_type.is_plain()
            && start.is_none()
            && options.freeze == Freeze::default()
            && !options.halving;
        plain.then_some(Course {
            covariance_type: options.covariance_type.form(),
            d,
            tol: options.tol,
            reg_covar: options.reg_covar,
            max_iter: options.max_iter,
            lloyd,
            lloyd_tol: LLOYD_TOL,
        })
    }

    /// Returns the fit with the last M-step, or `None` if the parameters may not be those of a mixture.
    fn with_last_step<M: Method>(fitted: Fitted, reg_covar: f64) -> Option<Fit<M::Model>> {
        let Fitted { sums, lower_bounds, converged } = fitted;
        let statistics = Statistics::from_centred_sums(sums).ok()?;
        let mixture = statistics.to_mixture(reg_covar).ok()?;
        Some(Fit { lower_bounds, converged, ..Fit::new(M::of_mixture(mixture)?) })
    }

    /// Makes the runs that a GPU makes whole, one block of threads for each, all in one launch; `None` stands for the
    /// rest. The choice and a run's bits depend only on the run and the kind of GPU. `watch` may stop the runs.
    pub fn fit<M: Method>(
        ordinal: usize,
        sets: &[Samples<'_>],
        runs: &[Run<'_, M>],
        watch: &dyn Watch<M::Model>,
    ) -> Vec<Option<Fit<M::Model>>> {
        // Runs with the same course are launched together.
        let mut courses: Vec<(Course, Vec<usize>)> = Vec::new();
        for (number, (fitting, set, _)) in runs.iter().enumerate() {
            let samples = &sets[*set];
            let Some(course) = course(fitting, samples.n_features()) else { continue };
            if takes(samples, fitting.options.n_components, &course) {
                match courses.iter_mut().find(|(other, _)| *other == course) {
                    Some((_, numbers)) => numbers.push(number),
                    None => courses.push((course, vec![number])),
                }
            }
        }
        let mut fits: Vec<Option<Fit<M::Model>>> = runs.iter().map(|_| None).collect();
        let mut is_slow = false;
        for (course, numbers) in courses {
            let tasks: Vec<Task> = numbers
                .par_iter()
                .map(|number| {
                    let (fitting, set, seed) = runs[*number];
                    let (k, mut rng) = (fitting.options.n_components, random_numbers(seed));
                    Task { set, k, uniforms: (0..n_uniforms(k)).map(|_| rng.random()).collect() }
                })
                .collect();
            let fitted = match fit_tasks(ordinal, &course, sets, &tasks, &|| !watch.stop()) {
                Ok(fitted) => fitted,
                // Each run then fails by itself for want of a GPU.
                Err(Error::NoCudaDevice { .. }) => continue,
                Err(error) => {
                    if !std::mem::replace(&mut is_slow, true) {
                        watch.slowed(&error);
                    }
                    continue;
                }
            };
            let made: Vec<(usize, Option<Fit<M::Model>>)> = numbers
                .into_par_iter()
                .zip(fitted)
                .map(|(number, fitted)| {
                    (number, fitted.and_then(|fitted| with_last_step::<M>(fitted, course.reg_covar)))
                })
                .collect();
            made.into_iter().for_each(|(number, fit)| fits[number] = fit);
        }
        fits
    }
}

struct OfSet<'a, 's, M> {
    set: usize,
    samples: &'a Samples<'s>,
    starts: &'a dyn ManyStarts<M>,
    seed: &'a (dyn Fn(usize, usize) -> (u64, u64) + Sync),
}

impl<M> OfSet<'_, '_, M> {
    fn start(&self, run: usize) -> Result<RunStart<M>> {
        let (seed, stream) = (self.seed)(self.set, run);
        Ok(self.starts.start(self.set, run, self.samples)?.unwrap_or(RunStart::Seed(seed, stream)))
    }
}

impl<M> Starts<M> for &OfSet<'_, '_, M> {
    fn start(&mut self, run: usize) -> Result<RunStart<M>> {
        Ok(RunStart::Seed((self.seed)(self.set, 0).0, run as u64))
    }
}

/// Evaluates each of many sets of samples; `work` holds their approximate multiply-adds. On the CPU and with
/// [`Device::Auto`] small sets are evaluated side by side, one thread each, the others in turn on the whole device.
/// `evaluate` gets a set's index and a function that loads its samples. The results are in the sets' order.
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
    // The longest come first, so that no thread is left with one at the end.
    small.sort_by(|a, b| work[*b].total_cmp(&work[*a]));
    results.par_extend(small.into_par_iter().with_max_len(1).map(on_this_thread));
    results.sort_by_key(|(set, _)| *set);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Returns whether small evaluations are made side by side, each on a core.
fn is_on_cpu(device: Device) -> bool {
    matches!(device, Device::Auto | Device::Cpu)
}

/// Returns the indices of sets evaluated side by side, one thread each, and of those that have the whole device.
fn divide(
    work: &[f64],
    numbers: impl Fn(usize) -> usize,
    device: Device,
    n_threads: usize,
) -> (Vec<usize>, Vec<usize>) {
    // A set this small, compared with a thread's work, does not keep the other threads waiting at the end.
    let part = work.iter().sum::<f64>() / (4 * n_threads) as f64;
    let is_small = |set: &usize| is_on_cpu(device) && work[*set] <= part.max(SMALL) && numbers(*set) <= MOST_NUMBERS;
    (0..work.len()).partition(is_small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_fits_run_side_by_side_and_large_ones_alone() {
        // A thousand fits of half a million multiply-adds, one of them a thousand times larger.
        let mut work = vec![5e5; 1000];
        work[7] = 5e8;
        let divide = |work: &[f64], device| divide(work, |_| 1000, device, 2);
        for device in [Device::Auto, Device::Cpu] {
            let (small, large) = divide(&work, device);
            assert_eq!((small.len(), large), (999, vec![7]));
        }
        assert_eq!(divide(&work, Device::Cuda(0)).1.len(), 1000);
        // Large fits have all threads each; many equal ones one thread each, unless their copies take too much memory.
        assert_eq!(divide(&[1e9; 4], Device::Cpu).1.len(), 4);
        assert_eq!(divide(&[1e9; 8], Device::Cpu).0.len(), 8);
        assert_eq!(super::divide(&[1e9; 8], |_| MOST_NUMBERS + 1, Device::Cpu, 2).1.len(), 8);
        assert_eq!(divide(&[], Device::Cpu), (vec![], vec![]));
    }
}

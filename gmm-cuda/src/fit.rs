//! Whole fits of small mixtures on the device, by the kernels `fit`: a block for each, many in one launch.
use super::device::gpu::Gpu;
use super::device::kernel::{Grid, Kernel};
use super::device::launch::launch;
use super::device::memory::{Numbers, allocate};
use super::device::require;
use super::device::staging::{BUFFER_BYTES, Staging};
use super::device::stream::Stream;
use gmm_core::data::samples::{Samples, View};
use gmm_core::error::Result;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::statistics::CentredSums;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
pub use gmm_kernels::fit::uniforms as n_uniforms;
use gmm_kernels::fit::{
    End, FIT_WORDS, Fit, FitArgs, Layout, MANY_FEATURES, MAX_COMPONENTS, MAX_FEATURES, MAX_THREADS, features, results,
    sums,
};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use rayon::prelude::*;
use std::collections::HashMap;
use std::f64::consts::{LN_2, PI};
use std::ops::Range;

/// The registers of a thread, so that a multiprocessor holds the largest block, and several small ones.
const REGISTERS: u32 = 128;
/// The most multiply-adds of an iteration left to one block: about a millisecond.
const MOST_WORK: usize = 48 << 20;
/// The most iterations: a launch cannot be interrupted.
const MOST_ITERATIONS: usize = 10_000;
/// The least and greatest distances from the mean, standard deviations added by `reg_covar` and total weights that the
/// kernels take: squares and reciprocals stay far from the limits of float64.
const REACH: (f64, f64) = (1e-20, 1e20);
/// The share of the device's free memory that fits take (one over this), and the most bytes, which the host copies.
const MEMORY: (usize, usize) = (2, 1 << 31);
/// The most numbers of a set of samples. Staging buffers hold as many, or an eighth of all if that is less.
const MOST_NUMBERS: usize = BUFFER_BYTES / size_of::<f64>();
/// The samples from which a block has 256 and 512 threads.
const LARGE: [usize; 2] = [4096, 16384];

/// The options that the fits of a launch share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// The covariance type of all fits.
    pub covariance_type: CovarianceType,
    /// D.
    pub d: usize,
    /// This and the rest: see `GaussianMixtureParams`.
    pub tol: f64,
    /// The number added to variances.
    pub reg_covar: f64,
    /// The largest number of iterations.
    pub max_iter: usize,
    /// The most Lloyd iterations after the seeding.
    pub lloyd: usize,
    /// Lloyd's iterations end when the centres' squared moves sum to less than this times the data's mean variance.
    pub lloyd_tol: f64,
}

impl Course {
    fn full(&self) -> bool {
        self.covariance_type.has_matrices() && self.d > 1
    }

    /// Returns the most threads of a block, and the limit of a thread's registers, if any.
    fn most_threads(&self) -> (u32, Option<u32>) {
        if self.full() && self.d >= MANY_FEATURES { (MAX_THREADS / 2, None) } else { (MAX_THREADS, Some(REGISTERS)) }
    }

    fn pooled(&self) -> bool {
        matches!(self.covariance_type, CovarianceType::Tied | CovarianceType::Spherical)
    }
}

/// A fit: its set of samples, K, and [`n_uniforms`] random numbers for its seeds.
#[derive(Debug)]
pub struct Task {
    /// The set of samples, counted from 0.
    pub set: usize,
    /// The number of components.
    pub k: usize,
    /// The random numbers of the start.
    pub uniforms: Vec<f64>,
}

/// The result of a fit: the sums of its last E-step, and the mean log-likelihood at the start of each iteration.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// The sums of the last E-step.
    pub sums: CentredSums,
    /// The lower bound of each iteration.
    pub lower_bounds: Vec<f64>,
    /// Whether the last iteration met the tolerance.
    pub converged: bool,
}

/// Returns whether a block may make this fit. It depends on the fit alone, so its bits do not depend on others.
pub fn takes(samples: &Samples<'_>, k: usize, course: &Course) -> bool {
    let (n, d) = (samples.n_samples(), samples.n_features());
    // For a single feature every type has one variance per component, except the tied type.
    let one_matrix = course.covariance_type == CovarianceType::Tied && d == 1;
    let work = n.saturating_mul(k * if course.full() { d * (d + 4) } else { 5 * d } + 20 * k);
    samples.missing().is_none()
        && samples.noise().is_none()
        && d <= MAX_FEATURES
        && !one_matrix
        && (1..=MAX_COMPONENTS).contains(&k)
        && (k..=MOST_WORK).contains(&n)
        && work <= MOST_WORK
        && n * d <= MOST_NUMBERS
        && (1..=MOST_ITERATIONS).contains(&course.max_iter)
        && in_reach(course.reg_covar.sqrt())
        && in_reach(samples.total_weight())
}

fn in_reach(v: f64) -> bool {
    v == 0.0 || (REACH.0..REACH.1).contains(&v)
}

/// The host's facts about a set's samples, copied column by column and around the columns' means.
struct Columns {
    origin: Vec<f64>,
    mean_variance: f64,
    /// Whether all squares are far from the limits of float64.
    usable: bool,
}

impl Columns {
    /// Copies the samples to `to` (D, N).
    fn new(samples: &Samples<'_>, to: &mut [f64]) -> Self {
        match samples.view() {
            View::F32(x) => Self::of(x, to, samples.weights(), f64::from),
            View::F64(x) => Self::of(x, to, samples.weights(), |v| v),
        }
    }

    fn of<T: Copy>(
        x: ArrayView2<'_, T>,
        to: &mut [f64],
        weights: Option<ArrayView1<'_, f64>>,
        wide: impl Fn(T) -> f64,
    ) -> Self {
        let (n, d) = x.dim();
        let total: f64 = weights.map_or(n as f64, |weights| weights.iter().sum());
        let mean_of = |values: &[f64], f: fn(f64) -> f64| -> f64 {
            let sum: f64 = match weights {
                Some(weights) => values.iter().zip(weights).map(|(v, w)| w * f(*v)).sum(),
                None => values.iter().map(|v| f(*v)).sum(),
            };
            sum / total
        };
        let (mut origin, mut variance, mut usable) = (Vec::with_capacity(d), 0.0, true);
        for (column, values) in x.axis_iter(Axis(1)).zip(to.chunks_exact_mut(n)) {
            let first = wide(column[0]);
            values.iter_mut().zip(column).for_each(|(to, v)| *to = wide(*v) - first);
            let mean = mean_of(values, |v| v);
            values.iter_mut().for_each(|v| *v -= mean);
            let reach = values.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
            usable &= in_reach(reach);
            origin.push(first + mean);
            variance += mean_of(values, |v| v * v);
        }
        Self { origin, mean_variance: variance / d as f64, usable }
    }
}

/// Returns the threads of a block, fewer if shared memory is short; `None` if even the fewest do not fit.
fn threads(course: &Course, n: usize, k: usize, most_shared: usize) -> Option<u32> {
    let most = (MAX_THREADS >> LARGE.iter().filter(|least| n < **least).count()).min(course.most_threads().0);
    let fits = |threads: &u32| layout(course, k, *threads).bytes() <= most_shared;
    std::iter::successors(Some(most), |threads| Some(threads / 2)).take_while(|threads| *threads >= 128).find(fits)
}

fn layout(course: &Course, k: usize, threads: u32) -> Layout {
    Layout::new(course.full(), features(course.d), course.d, k, threads as usize)
}

/// Fits. `None` stands for a fit that must be made elsewhere. `proceed` is called between launches (several if the
/// memory does not hold all samples); once it refuses, all later fits are `None`.
///
/// # Errors
/// [`Error::NoCudaDevice`](gmm_core::error::Error::NoCudaDevice), [`Error::Cuda`](gmm_core::error::Error::Cuda).
pub fn fit(
    ordinal: usize,
    course: &Course,
    sets: &[Samples<'_>],
    tasks: &[Task],
    proceed: &dyn Fn() -> bool,
) -> Result<Vec<Option<Fitted>>> {
    let gpu = Gpu::open(ordinal)?;
    let _entered = gpu.enter()?;
    let kernel = gpu.kernel(&entries::fit(course.full(), course.d), course.most_threads().1)?;
    let numbers = || tasks.iter().map(|task| sets[task.set].n_samples() * course.d);
    let (largest, all) = (numbers().max().unwrap_or(1), numbers().sum::<usize>());
    let (stream, staging) = (Stream::new()?, Staging::new(gpu, (all / 8).clamp(largest, MOST_NUMBERS.max(largest))));
    let room = (gpu.free_memory()? / MEMORY.0).min(MEMORY.1);
    let mut fitted = Vec::with_capacity(tasks.len());
    while fitted.len() < tasks.len() && proceed() {
        let rest = &tasks[fitted.len()..];
        let batch = &rest[..how_many(course, sets, rest, room)];
        fitted.extend(Batch { kernel, stream: &stream, staging: &staging, course, sets, tasks: batch }.fit()?);
    }
    fitted.resize_with(tasks.len(), || None);
    Ok(fitted)
}

/// Returns how many of the tasks fit with their samples and results into `room` bytes; at least one.
fn how_many(course: &Course, sets: &[Samples<'_>], tasks: &[Task], room: usize) -> usize {
    let (mut used, mut last) = (0, None);
    let mut takes = |task: &Task| {
        let n = sets[task.set].n_samples();
        // The fits of a set mostly follow each other.
        let of_set = if last == Some(task.set) { 0 } else { n * (course.d + 1) };
        last = Some(task.set);
        used += (of_set + n + course.max_iter + results(course.full(), task.k, course.d)) * size_of::<f64>();
        used <= room
    };
    tasks.iter().take_while(|task| takes(task)).count().max(1)
}

/// The fits of one series of launches.
struct Batch<'a, 's> {
    kernel: Kernel<FitArgs>,
    stream: &'a Stream,
    staging: &'a Staging<f64>,
    course: &'a Course,
    sets: &'a [Samples<'s>],
    tasks: &'a [Task],
}

impl Batch<'_, '_> {
    /// Returns the threads of a block and the number of each usable task. Fits with equally large blocks are launched
    /// together, the longest first, so that none is left at the end.
    fn blocks(&self, usable: impl Fn(&Task) -> bool) -> Vec<(u32, usize)> {
        let n_samples = |task: &Task| self.sets[task.set].n_samples();
        let threads = |task: &Task| threads(self.course, n_samples(task), task.k, self.kernel.most_shared());
        let of = |(number, task): (usize, &Task)| usable(task).then(|| Some((threads(task)?, number))).flatten();
        let mut blocks: Vec<_> = self.tasks.iter().enumerate().filter_map(of).collect();
        let work = |number: usize| n_samples(&self.tasks[number]) * self.tasks[number].k;
        blocks.sort_by_key(|(threads, number)| (*threads, std::cmp::Reverse(work(*number)), *number));
        blocks
    }

    fn fit(&self) -> Result<Vec<Option<Fitted>>> {
        let course = self.course;
        // The sets of these tasks, each once.
        let mut place = HashMap::new();
        let mut used = Vec::new();
        for task in self.tasks {
            place.entry(task.set).or_insert_with(|| {
                used.push(task.set);
                used.len() - 1
            });
        }
        let samples: Vec<&Samples<'_>> = used.iter().map(|set| &self.sets[*set]).collect();
        let lengths: Vec<usize> = samples.iter().map(|samples| samples.n_samples() * course.d).collect();
        let x_starts = starts(lengths.iter().copied());
        let counts: Vec<usize> = samples.iter().map(|samples| samples.n_samples()).collect();
        let sample_starts = starts(counts.iter().copied());
        let weighted = samples.iter().any(|samples| samples.weights().is_some());
        let device_x = allocate(x_starts[samples.len()])?;
        let write = |set: usize, to: &mut [f64]| Columns::new(samples[set], to);
        let (samples_on_the_way, columns) = self.staging.upload_parts(self.stream, &device_x, &lengths, write)?;
        let device_weights = weighted.then(|| allocate(sample_starts[samples.len()])).transpose()?;
        let weights_on_the_way = device_weights.as_ref().map(|device_weights| {
            let write = |set: usize, to: &mut [f64]| match samples[set].weights() {
                Some(weights) => to.iter_mut().zip(weights).for_each(|(to, w)| *to = *w),
                None => to.fill(1.0),
            };
            self.staging.upload_parts(self.stream, device_weights, &counts, write)
        });
        let weights_on_the_way = weights_on_the_way.transpose()?;
        let of = |task: &Task| &columns[place[&task.set]];
        let n_samples = |task: &Task| self.sets[task.set].n_samples();
        let blocks = self.blocks(|task| of(task).usable);
        if blocks.is_empty() {
            return Ok(self.tasks.iter().map(|_| None).collect());
        }
        let ordered = || blocks.iter().map(|(_, number)| &self.tasks[*number]);
        let result_starts = starts(ordered().map(|task| results(course.full(), task.k, course.d)));
        let nearest_starts = starts(ordered().map(n_samples));
        let uniform_starts = starts(ordered().map(|task| task.uniforms.len()));
        let uniforms: Vec<f64> = ordered().flat_map(|task| task.uniforms.iter().copied()).collect();
        let fits: Vec<Fit> = ordered()
            .enumerate()
            .map(|(i, task)| {
                let set = place[&task.set];
                Fit {
                    x: x_starts[set] as u64,
                    stride: n_samples(task) as u64,
                    n: n_samples(task) as u64,
                    k: task.k as u64,
                    weights: if weighted { sample_starts[set] as u64 } else { 0 },
                    total_weight: self.sets[task.set].total_weight(),
                    lloyd_tol: course.lloyd_tol * of(task).mean_variance,
                    uniforms: uniform_starts[i] as u64,
                    nearest: nearest_starts[i] as u64,
                    results: result_starts[i] as u64,
                }
            })
            .collect();
        let words: Vec<u64> = fits.iter().flat_map(|fit| fit.words()).collect();
        let (device_fits, device_uniforms) = (allocate(words.len())?, allocate(uniforms.len())?);
        let scratch: DeviceBuffer<f64> = allocate(nearest_starts[blocks.len()])?;
        let device_results = allocate(result_starts[blocks.len()])?;
        let device_totals = allocate(blocks.len() * course.max_iter)?;
        let mut running = samples_on_the_way
            .followed_by(self.stream.start_write(&device_fits, &words)?)
            .followed_by(self.stream.start_write(&device_uniforms, &uniforms)?);
        if let Some((weights_on_the_way, _)) = weights_on_the_way {
            running = weights_on_the_way.followed_by(running);
        }
        for part in launches(&blocks) {
            // The largest K needs the most shared memory.
            let threads = blocks[part.start].0;
            let shared = |number: usize| layout(course, self.tasks[number].k, threads).bytes();
            let shared = blocks[part.clone()].iter().map(|(_, number)| shared(*number)).max();
            let count = part.len();
            let fits = Fits {
                course,
                fits: &fits[part.clone()],
                words: Numbers::of(&device_fits).part(part.start * FIT_WORDS..part.end * FIT_WORDS)?,
                x: Numbers::of(&device_x),
                weights: device_weights.as_ref().map(Numbers::of),
                uniforms: Numbers::of(&device_uniforms),
                nearest: Numbers::of(&scratch),
                results: Numbers::of(&device_results),
                totals: Numbers::of(&device_totals).part(part.start * course.max_iter..part.end * course.max_iter)?,
            };
            let grid = Grid::new(count as u32, threads, shared.unwrap_or(0));
            running = running.followed_by(self.stream.launch(self.kernel, grid, fits)?.borrowed());
        }
        running.wait()?;
        let mut results = vec![0.0; device_results.len()];
        self.staging.download(self.stream, &device_results, &mut results)?;
        let mut fitted: Vec<(usize, Option<Fitted>)> = Vec::with_capacity(blocks.len());
        for part in launches(&blocks) {
            // As many rows of totals as the longest of these fits has iterations.
            let rows = part.clone().map(|i| results[result_starts[i] + 1] as usize).max().unwrap_or(0);
            let start = part.start * course.max_iter;
            let mut totals = vec![0.0; rows * part.len()];
            self.staging.download(
                self.stream,
                Numbers::of(&device_totals).part(start..start + totals.len())?,
                &mut totals,
            )?;
            fitted.par_extend(part.clone().into_par_iter().map(|i| {
                let (task, numbers) = (&self.tasks[blocks[i].1], &results[result_starts[i]..result_starts[i + 1]]);
                // None if all have failed before their first iteration.
                let totals = totals.get(i - part.start..).unwrap_or_default().iter().copied().step_by(part.len());
                (blocks[i].1, ended(course, task.k, of(task), self.sets[task.set].total_weight(), numbers, totals))
            }));
        }
        let mut all: Vec<Option<Fitted>> = self.tasks.iter().map(|_| None).collect();
        fitted.drain(..).for_each(|(number, fitted)| all[number] = fitted);
        Ok(all)
    }
}

/// Returns the ranges of fits with equally large blocks, one for each launch.
fn launches(blocks: &[(u32, usize)]) -> impl Iterator<Item = Range<usize>> {
    blocks.chunk_by(|(a, _), (b, _)| a == b).scan(0, |first, part| {
        let start = *first;
        *first += part.len();
        Some(start..*first)
    })
}

/// Returns where each part begins, and where the last ends.
fn starts(lengths: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut end = 0;
    let ends = lengths.map(|length| {
        end += length;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Returns the result of a fit from its block's numbers, if it has ended.
fn ended(
    course: &Course,
    k: usize,
    columns: &Columns,
    weight: f64,
    numbers: &[f64],
    totals: impl Iterator<Item = f64>,
) -> Option<Fitted> {
    let (d, full) = (course.d, course.full());
    if numbers[0] == f64::from(End::GivenUp as u8) {
        return None;
    }
    let of_component = d + sums(full, d);
    let components = || numbers[2..].chunks_exact(of_component).take(k).enumerate();
    let (mut centres, mut first, mut counts) = (Array2::zeros((k, d)), Array2::zeros((k, d)), Array1::zeros(k));
    let mut second = Covariances::zeros(course.covariance_type, k, d);
    for (c, numbers) in components() {
        let (mean, numbers) = numbers.split_at(d);
        let (moments, products) = numbers.split_at(1 + d);
        for j in 0..d {
            centres[[c, j]] = columns.origin[j] + mean[j];
            first[[c, j]] = moments[1 + j];
        }
        counts[c] = moments[0];
        // The lower triangle of a matrix, row by row.
        let place = |i: usize, j: usize| if full { i * (i + 1) / 2 + j } else { i };
        for i in 0..d {
            match &mut second {
                Covariances::Full(v) => (0..=i).for_each(|j| v[[c, i, j]] = products[place(i, j)]),
                Covariances::Tied(v) => (0..=i).for_each(|j| v[[i, j]] += products[place(i, j)]),
                Covariances::Diag(v) => v[[c, i]] = products[place(i, i)],
                Covariances::Spherical(v) => v[c] += products[place(i, i)],
            }
        }
    }
    let constant = -0.5 * d as f64 * (2.0 * PI).ln();
    let lower_bounds: Vec<f64> =
        totals.take(numbers[1] as usize).map(|total| total / weight * LN_2 + constant).collect();
    let log_likelihood = lower_bounds.last()? * weight;
    let sums = CentredSums { weight, log_likelihood, centres, counts, first, second };
    Some(Fitted { sums, lower_bounds, converged: numbers[0] == f64::from(End::Converged as u8) })
}

/// A launch over some fits, given to the device as words.
#[derive(Debug, Clone, Copy)]
struct Fits<'a> {
    course: &'a Course,
    fits: &'a [Fit],
    words: Numbers<'a, u64>,
    x: Numbers<'a, f64>,
    weights: Option<Numbers<'a, f64>>,
    uniforms: Numbers<'a, f64>,
    nearest: Numbers<'a, f64>,
    results: Numbers<'a, f64>,
    totals: Numbers<'a, f64>,
}

// The words are those of the fits, copied by `Batch::fit`.
launch!(Fits<'_>, FitArgs, "fit", |launch, grid, what| {
    let Fits { course, fits, .. } = launch;
    let (d, full) = (course.d, course.full());
    let end = |end: &dyn Fn(&Fit, usize, usize) -> usize| {
        fits.iter().map(|fit| end(fit, fit.n as usize, fit.k as usize)).max().unwrap_or(0)
    };
    let shared = end(&|_, _, k| layout(course, k, grid.threads).bytes());
    let (most_threads, _) = course.most_threads();
    require(what, grid.blocks == (fits.len() as u32, 1) && grid.threads <= most_threads && course.max_iter >= 1)?;
    require(what, (1..=MAX_FEATURES).contains(&d) && fits.iter().all(|fit| fit.stride >= fit.n && fit.n >= fit.k))?;
    require(what, fits.iter().all(|fit| (1..=MAX_COMPONENTS as u64).contains(&fit.k)))?;
    grid.require_shared(what, shared)?;
    Ok(FitArgs {
        fits: launch.words.read(fits.len() * FIT_WORDS, what)?.cast(),
        x: launch.x.read(end(&|fit, n, _| fit.x as usize + (d - 1) * fit.stride as usize + n), what)?,
        sample_weights: Numbers::read_if(launch.weights, end(&|fit, n, _| fit.weights as usize + n), what)?,
        uniforms: launch.uniforms.read(end(&|fit, _, k| fit.uniforms as usize + n_uniforms(k)), what)?,
        nearest: launch.nearest.write(end(&|fit, n, _| fit.nearest as usize + n), what)?,
        results: launch.results.write(end(&|fit, _, k| fit.results as usize + results(full, k, d)), what)?,
        totals: launch.totals.write(fits.len() * course.max_iter, what)?,
        d: d as u32,
        pooled: course.pooled(),
        tol: course.tol,
        reg_covar: course.reg_covar,
        max_iter: course.max_iter as u32,
        lloyd: course.lloyd as u32,
    })
});

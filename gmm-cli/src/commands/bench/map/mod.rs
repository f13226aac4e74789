//! `gmm bench map`: the time over its floor, for each number of features and of components.
mod cells;
mod floor;
mod report;

use super::errors::Truth;
use super::options::{Named, OutputOptions, ascending, seconds};
use super::problem::{mixtures, numbers};
use crate::commands::timing;
use crate::input::tuning_file;
use crate::terminal::{ProgressLine, text};
use anyhow::bail;
use cells::{Cell, Map};
use clap::Args;
use gaussmix::data::Samples;
use gaussmix::device::{LoadOptions, load};
use gaussmix::evaluator::Evaluator;
use gaussmix::model::{CovarianceType, Mixture};
use gaussmix::program::whole_number;
use gaussmix::statistics::Freeze;
use gaussmix::{Error, memory};
use ndarray::{Array1, ArrayView2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::time::Duration;

pub use floor::{Rates, Task};

/// Mixtures that take turns, so that an evaluation cannot reuse results of the one before.
const MIXTURES: usize = 2;
const SEED: u64 = 2026;

/// Show how close the time of each number of features and components is to the least possible time
///
/// Draws a heat map for each covariance type: the time over its floor (the largest of one read of the samples, the
/// multiply-adds and the exponentials) and the family of kernels that ran. Lists the cliffs: cells that take more than
/// 1.6 times their share of the time of a neighbour with other features or components. Random float32 samples stay on
/// the device. Each time is the median of repeated evaluations, from the parameters of a mixture on the host to the
/// result on the host.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm bench map
  gmm bench map --task em,total,scores --plot map.svg --json > map.json
  gmm bench map --covariance-type diag --d 32,40,64 --k 2,8,16 --n 1e5
  gmm bench map --weights --missing 0.1 --covariance-type diag --errors
  gmm bench map --device cpu --n 1e4 --bandwidth 2e10 --flops 1e11")]
pub struct MapOfShapes {
    /// The device: reference, cpu, cuda, cuda:N, cuda:all or auto
    #[arg(long, default_value = "cuda")]
    device: Named,
    /// The tasks to evaluate
    #[arg(long, value_name = "TASKS", value_delimiter = ',', default_value = "em")]
    task: Vec<Task>,
    /// The shapes of the covariances: full, tied, diag and spherical
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "diag,spherical,full,tied")]
    covariance_type: Vec<CovarianceType>,
    /// Number of samples
    #[arg(long, value_parser = whole_number, default_value = "1e6")]
    n: usize,
    /// Numbers of features [default: 2,13,32,40,64,128,256; full and tied: 2,8,13,16,28,64,200]
    #[arg(short, long, value_delimiter = ',', value_parser = whole_number)]
    d: Vec<usize>,
    /// Numbers of components [default: 2,8,16,32,64,128, and for diag and spherical 512,1024]
    #[arg(short, long, value_delimiter = ',', value_parser = whole_number)]
    k: Vec<usize>,
    #[command(flatten)]
    rates: Rates,
    /// Give the samples random weights
    #[arg(long)]
    weights: bool,
    /// Leave out this share of the values, at random
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0")]
    missing: f64,
    /// Compute in float64; the floor is still that of float32
    #[arg(long)]
    float64: bool,
    /// Also show the errors of totals and iterations of EM, against float64 on the same device
    #[arg(long)]
    errors: bool,
    /// Seconds to spend on each measurement
    #[arg(long, value_parser = seconds, default_value = "0.2")]
    seconds: Duration,
    #[command(flatten)]
    output: OutputOptions,
}

/// The data from which the samples of all cells are made.
struct Data {
    /// The first N·D numbers are N samples of D independent, normal features.
    numbers: Vec<f32>,
    weights: Array1<f64>,
    /// The numbers of features for which memory is too small.
    too_large: BTreeMap<usize, Error>,
}

impl MapOfShapes {
    pub fn run(self) -> anyhow::Result<()> {
        let plot = self.output.create()?;
        let mut maps = self.maps();
        let mut line = ProgressLine::start("looking for the device");
        let device = self.device_in_words()?;
        line.show("making random data".into());
        let data = self.random_data(maps.iter().flat_map(|map| map.d.clone()));
        let mut notes = Vec::new();
        for covariance_type in &self.covariance_type {
            let of_type = maps.iter_mut().filter(|map| map.covariance_type == *covariance_type);
            self.measure(&mut of_type.collect::<Vec<_>>(), &data, &mut line, &mut notes);
        }
        drop(line);
        if maps.iter().all(|map| map.cells.is_empty()) {
            bail!("nothing could be measured: {}", notes.first().map_or("there are no cells", |note| note));
        }
        maps.iter_mut().for_each(Map::find_cliffs);
        if self.output.json {
            notes.iter().for_each(text::note);
            text::print_json(&maps.iter().flat_map(|map| &map.cells).collect::<Vec<_>>())?;
        } else {
            text::print_styled(self.text(&device, &maps, &notes))?;
        }
        OutputOptions::draw(plot, self.output.json, || report::svg(&maps))
    }

    /// Returns the maps to measure, empty.
    fn maps(&self) -> Vec<Map> {
        let or =
            |given: &[usize], default: &[usize]| ascending(if given.is_empty() { default } else { given }.to_vec());
        let map = |task: Task, covariance_type: CovarianceType| {
            let (d, k) = covariance_type.grid();
            Map { task, covariance_type, d: or(&self.d, d), k: or(&self.k, k), cells: Vec::new() }
        };
        let types = || self.covariance_type.iter();
        self.task.iter().flat_map(|&task| types().map(move |&covariance_type| map(task, covariance_type))).collect()
    }

    fn load<'a>(&self, samples: Samples<'a>, float64: bool) -> Result<Box<dyn Evaluator + 'a>, Error> {
        load(self.device.device, samples, &LoadOptions::new().float64(float64).tuning_file(tuning_file()))
    }

    fn samples<'a>(&self, d: usize, data: &'a Data) -> anyhow::Result<Samples<'a>> {
        let x = ArrayView2::from_shape((self.n, d), &data.numbers[..self.n * d])?;
        let samples = if self.missing > 0.0 { Samples::with_missing(x)? } else { Samples::from_f32(x)? };
        Ok(if self.weights { samples.with_weights(data.weights.view())? } else { samples })
    }

    /// Returns the device's description of itself. Fails, before data is made, if the device cannot be used.
    fn device_in_words(&self) -> Result<String, Error> {
        let sample = [0.0];
        Ok(self.load(Samples::from_f32(ArrayView2::from(&[sample]))?, self.float64)?.describe().device)
    }

    /// Makes random data for all numbers of features that fit into memory.
    fn random_data(&self, features: impl Iterator<Item = usize>) -> Data {
        let (copies, remedy) = (3, "use fewer samples or features");
        let fits =
            |d: usize| memory::check("the samples and their copies", &[self.n, d], copies * size_of::<f32>(), remedy);
        let mut data = Data { numbers: Vec::new(), weights: Array1::default(0), too_large: BTreeMap::new() };
        let mut most = 0;
        for d in features {
            match fits(d) {
                Ok(()) => most = most.max(d),
                Err(reason) => drop(data.too_large.insert(d, reason)),
            }
        }
        if self.weights && most > 0 {
            let mut rng = ChaCha8Rng::seed_from_u64(SEED);
            data.weights = Array1::from_shape_simple_fn(self.n, || rng.random_range(0.5..1.5));
        }
        data.numbers = numbers(self.n * most, self.missing);
        data
    }

    /// Measures the maps of one covariance type. The notes say which cells cannot be measured, and why.
    fn measure(&self, maps: &mut [&mut Map], data: &Data, line: &mut ProgressLine, notes: &mut Vec<String>) {
        let Some(first) = maps.first() else { return };
        let (covariance_type, features, components) = (first.covariance_type, first.d.clone(), first.k.clone());
        for d in features {
            if let Some(reason) = data.too_large.get(&d) {
                notes.push(format!("{covariance_type}, D = {d} is left out: {reason}"));
                continue;
            }
            let load = || -> anyhow::Result<_> {
                let samples = self.samples(d, data)?;
                let exact = self.errors.then(|| self.load(samples.clone(), true)).transpose()?;
                Ok((self.load(samples, self.float64)?, exact))
            };
            let (mut evaluator, mut exact) = match load() {
                Ok(evaluators) => evaluators,
                Err(reason) => {
                    notes.push(format!("{covariance_type}, D = {d} is left out: {reason}"));
                    continue;
                }
            };
            for &k in &components {
                let place = format!("{covariance_type}, D = {d}, K = {k}");
                line.show(format!("measuring {place}"));
                let mut prepare = || -> anyhow::Result<_> {
                    let mixtures = mixtures(MIXTURES, [k, d], covariance_type)?;
                    let truth = exact.as_mut().map(|exact| Truth::new(exact.as_mut(), &mixtures[0])).transpose()?;
                    Ok((mixtures, truth))
                };
                let (mixtures, truth) = match prepare() {
                    Ok(prepared) => prepared,
                    Err(reason) => {
                        notes.push(format!("{place} is left out: {reason}"));
                        continue;
                    }
                };
                for map in &mut *maps {
                    match self.cell(map.task, evaluator.as_mut(), &mixtures, truth.as_ref()) {
                        Ok(cell) => map.cells.push(cell),
                        Err(reason) => notes.push(format!("{}, {place} is left out: {reason}", map.task.title())),
                    }
                }
            }
        }
    }

    fn cell(
        &self,
        task: Task,
        evaluator: &mut dyn Evaluator,
        mixtures: &[Mixture],
        truth: Option<&Truth>,
    ) -> Result<Cell, Error> {
        let mut evaluate = |i: usize| {
            let mixture = &mixtures[i % MIXTURES];
            match task {
                Task::Em => {
                    evaluator.statistics(mixture)?.into_update(mixture, 0.0, &Freeze::default(), None).map(drop)
                }
                Task::Total => evaluator.log_likelihood(mixture).map(drop),
                Task::Scores => evaluator.score_samples(mixture).map(drop),
            }
        };
        // The first evaluation may take seconds, because the device chooses its kernels by measured time.
        evaluate(0)?;
        let timing = timing::time(self.seconds, evaluate)?;
        let errors = match (truth, task) {
            (Some(truth), Task::Em) => Some(truth.errors_of(&evaluator.statistics(&mixtures[0])?, &mixtures[0])?),
            (Some(truth), Task::Total) => Some(truth.errors_of_total(evaluator.log_likelihood(&mixtures[0])?)),
            (_, Task::Scores) | (None, _) => None,
        };
        let kernel = evaluator.describe().kernel;
        let (k, d) = mixtures[0].means().dim();
        let covariance_type = mixtures[0].covariance_type();
        let floor = self.rates.floor(task, covariance_type, [self.n, k, d]);
        Ok(Cell {
            device: self.device.name.clone(),
            task,
            covariance_type: covariance_type.name(),
            n: self.n,
            d,
            k,
            seconds: timing.median,
            floor,
            ratio: timing.median / floor,
            family: kernel.split([':', '/']).next().unwrap_or_default().into(),
            kernel,
            cliff: None,
            errors,
        })
    }

    fn text(&self, device: &str, maps: &[Map], notes: &[String]) -> String {
        let n = text::grouped(self.n as u64);
        let precision = if self.float64 { "float64" } else { "float32" };
        let weights = if self.weights { ", with weights" } else { "" };
        let missing = if self.missing > 0.0 {
            format!(", {} % of the values missing", 100.0 * self.missing)
        } else {
            String::new()
        };
        let head =
            format!("Time over floor, N = {n}{weights}{missing}, {precision}, {device}\n{}", self.rates.describe());
        let parts = [head].into_iter().chain(maps.iter().map(Map::text)).chain(notes.iter().cloned());
        parts.collect::<Vec<_>>().join("\n\n")
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to below 1".into()),
    }
}

//! `gmm hmm`: hidden Markov models of sequences.
use super::select::{Range, range};
use crate::input::{DataOptions, Input, Source, TableOptions, options::size_in_bytes, refuse_overlap};
use crate::terminal::{ProgressLine, text};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use gaussmix::data::Samples;
use gaussmix::device::Device;
use gaussmix::hmm::{Candidate, HiddenMarkov, Options, Selection, Sequences};
use gaussmix::io::{self, ColumnSelection, Columns, HiddenMarkovFile, Ids, Output, TableOutput};
use gaussmix::model::CovarianceModel;
use gaussmix::program::whole_number;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const CHECKPOINTS: Duration = Duration::from_secs(10);

/// Hidden Markov models: mixtures of rows that stand in sequences
///
/// A row's state depends on the state of the row before, and its values on its state.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  gmm hmm fit walks.csv --by walk -k 3 -o hmm.json    fit a model of 3 states to the sequences of a column
  gmm hmm fit prices.npy -k 2:6 -o hmm.json           the number of states with the least BIC
  gmm hmm fit walks.csv --by walk -k 2:6 --folds 5 --n-init 3 -o hmm.json
  gmm hmm decode hmm.json walks.csv --by walk -o states.csv
  gmm hmm score hmm.json walks.csv --by walk
  gmm hmm sample hmm.json -n 1000 -o new.csv"
)]
pub struct Hmm {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Fit(Fit),
    Decode(Decode),
    Score(Score),
    Sample(Sample),
}

impl Hmm {
    pub fn run(self) -> anyhow::Result<()> {
        match self.action {
            Action::Fit(command) => command.run(),
            Action::Decode(command) => command.run(),
            Action::Score(command) => command.run(),
            Action::Sample(command) => command.run(),
        }
    }
}

/// The data, and its division into sequences.
#[derive(Debug, Args)]
struct SequenceOptions {
    #[command(flatten)]
    table: TableOptions,
    /// The column that names the sequence of each row; the rows of a sequence keep their order. Default: all rows are
    /// one sequence
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Treat NaN in the data as a missing value, and so a field of text that is empty or listed in --na-values
    #[arg(long)]
    missing: bool,
    /// Memory that the data may take, such as 500M or 8G. Default: half of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = size_in_bytes)]
    memory: Option<u64>,
}

/// Data in the order of its sequences.
struct Loaded {
    samples: Samples<'static>,
    lengths: Vec<usize>,
    /// The names of the sequences, if a column has them.
    names: Option<Ids>,
    /// The number of each row in the data; empty if they are in order.
    rows: Vec<usize>,
    features: Option<Vec<String>>,
}

impl SequenceOptions {
    /// `model`: the names of the features of the model used on the data.
    fn load(self, model: Option<Vec<String>>) -> anyhow::Result<Loaded> {
        let Self { table, by, missing, memory } = self;
        let selection = ColumnSelection { by: by.clone(), ..table.selection(model, None) };
        let options = DataOptions::on_host(table, missing, memory);
        let mut input = Input::open(&options, None, &selection)?;
        let source = Source::new(&mut input, false)?;
        let n = source.samples.n_samples();
        let (names, of_row) = match (&by, source.ids(0..n)?) {
            (Some(by), Some(ids)) => {
                let groups = ids.groups();
                let (names, of_row) = groups.map_err(|row| {
                    anyhow::anyhow!("{}: row {row} (counted from 0) has no value in the column `{by}`; give it one, or leave the row out", source.name())
                })?;
                (Some(names), of_row)
            }
            _ => (None, vec![0; n]),
        };
        let mut lengths = vec![0; names.as_ref().map_or(1, Ids::len)];
        of_row.iter().for_each(|group| lengths[*group] += 1);
        let mut rows: Vec<usize> = (0..n).collect();
        rows.sort_by_key(|row| of_row[*row]);
        let x = source.whole("sequences")?.select(&rows)?.x.into_shared();
        let samples = if missing { Samples::with_shared_missing(x)? } else { Samples::from_shared_f64(x)? };
        if rows.is_sorted() {
            rows.clear();
        }
        Ok(Loaded { samples, lengths, names, rows, features: source.names().map(<[String]>::to_vec) })
    }
}

impl Loaded {
    fn sequences(&self) -> anyhow::Result<Sequences<'static>> {
        Ok(Sequences::new(self.samples.clone(), &self.lengths)?)
    }

    /// Puts rows of `width` numbers in the order of the data.
    fn in_order<T: Copy>(&self, values: Vec<T>, width: usize) -> Vec<T> {
        let mut ordered = values.clone();
        for (from, to) in self.rows.iter().enumerate() {
            ordered[to * width..][..width].copy_from_slice(&values[from * width..][..width]);
        }
        ordered
    }

    fn describe(&self) -> String {
        let rows = text::grouped(self.samples.n_samples() as u64);
        match self.lengths.len() {
            1 => format!("a sequence of {rows} rows"),
            n => format!("{} sequences of {rows} rows", text::grouped(n as u64)),
        }
    }
}

/// Fit a hidden Markov model
#[derive(Debug, Args)]
struct Fit {
    #[command(flatten)]
    data: SequenceOptions,
    /// The number of states, or a range such as 2:6, of which the number with the least BIC is taken
    #[arg(short, long = "n-components", value_name = "K", value_parser = range)]
    k: Range,
    /// The number of Gaussians of each state
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = whole_number)]
    n_mix: usize,
    /// The type of the covariances: full, tied, diag or spherical, or one of mclust's 14 models, such as VEV
    #[arg(long, value_name = "TYPE", default_value = "diag")]
    covariance_type: CovarianceModel,
    /// The largest number of iterations
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole_number)]
    max_iter: usize,
    /// The fit ends when the total log-likelihood gains less
    #[arg(long, value_name = "GAIN", default_value_t = 1e-2, allow_negative_numbers = true)]
    tol: f64,
    /// Added to the variances
    #[arg(long, value_name = "VARIANCE", default_value_t = 1e-6)]
    reg_covar: f64,
    /// The number of starts, of which the fit with the largest log-likelihood is taken
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    n_init: usize,
    /// Hold out each of N parts of the sequences in turn, and take the number of states under which they have the
    /// largest log-likelihood, instead of the least BIC
    #[arg(long, value_name = "N", default_value_t = 0)]
    folds: usize,
    /// Where to compute the iterations: cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Seed of the random numbers of the start
    #[arg(long = "random-state", visible_alias = "seed", value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Save the state of the fit to this .json every ten seconds and at the end. If the file exists, continue from it
    /// with the same data. For one number of states and one start
    #[arg(long, value_name = "FILE", conflicts_with_all = ["folds", "n_init"])]
    checkpoint: Option<PathBuf>,
    /// Where to write the model: .json
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Fit {
    fn run(mut self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output), self.checkpoint.as_ref()], self.data.table.inputs())?;
        let output = Output::create(&self.output)?;
        let checkpoint = self.checkpoint.take();
        if checkpoint.is_some() && self.k.len() > 1 {
            bail!("--checkpoint: the fit of one number of states has a checkpoint; give one with -k")
        }
        let (by, loaded) = (self.data.table.describe(), self.data.load(None)?);
        let sequences = loaded.sequences()?.on(self.device)?;
        let (n_iter, tol, reg_covar) = (self.max_iter, self.tol, self.reg_covar);
        let selection = Selection {
            n_states: self.k,
            n_mix: self.n_mix,
            model: self.covariance_type,
            options: Options { n_iter, tol, reg_covar, ..Options::default() },
            n_init: self.n_init,
            folds: self.folds,
            seed: self.seed,
        };
        let mut checkpoint_written = Ok(());
        let fits = match checkpoint {
            Some(path) => {
                let (fit, written) = with_checkpoint(&selection, &sequences, path, &loaded).context(by)?;
                checkpoint_written = written;
                vec![fit]
            }
            None => {
                let line = Mutex::new(ProgressLine::start("fitting"));
                let n_ended = AtomicUsize::new(0);
                let ended = |n: usize| {
                    let ended = n_ended.fetch_add(1, Ordering::Relaxed) + 1;
                    let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
                    line.update(|| format!("fitting: {ended} of {n} fits have ended"));
                };
                selection.candidates(&sequences, ended).context(by)?
            }
        };
        let held_out = |fit: &Candidate| fit.held_out.unwrap_or(-fit.bic);
        let Some(best) = fits.iter().max_by(|a, b| held_out(a).total_cmp(&held_out(b))) else {
            bail!("-k: name a number of states")
        };
        let row = |fit: &Candidate| {
            let (states, iterations) = (fit.fit.model.n_states(), fit.fit.history.len());
            let end = if fit.fit.converged { "converged" } else { "not converged" };
            let mut row = vec![states.to_string(), format!("{:.6}", fit.log_likelihood), format!("{:.6}", fit.bic)];
            row.extend(fit.held_out.map(|held_out| format!("{held_out:.6}")));
            row.extend([iterations.to_string(), end.into()]);
            row
        };
        let mut columns = vec!["states", "log-likelihood", "BIC", "iterations", "end"];
        if self.folds > 0 {
            columns.insert(3, "held out");
        }
        let (model, states) = (best.fit.model.clone(), best.fit.model.n_states());
        HiddenMarkovFile { model, feature_names: loaded.features.clone(), history: Vec::new() }.write(&output)?;
        text::print(text::table(&columns, fits.iter().map(row), 0))?;
        text::print(format_args!("a model of {states} states of {} written to {}", loaded.describe(), output))?;
        checkpoint_written.context("the checkpoint could not be written")
    }
}

/// Fits from a checkpoint, or from a start, and writes checkpoints. Returns also whether the last one was written.
fn with_checkpoint(
    selection: &Selection,
    sequences: &Sequences<'_>,
    path: PathBuf,
    loaded: &Loaded,
) -> anyhow::Result<(Candidate, io::Result<()>)> {
    let Selection { n_states, n_mix, model, options, seed, .. } = selection;
    let k = n_states[0];
    let (start, history) = match path.exists() {
        true => {
            let HiddenMarkovFile { model: found, history, .. } = HiddenMarkovFile::read(&path)?;
            let shape = (found.n_states(), found.n_mix(), found.emissions().covariance_model());
            if shape != (k, *n_mix, *model) || history.is_empty() {
                bail!(
                    "{}: is not a checkpoint of a fit of {k} states of {n_mix} components with {model} covariances; give its options, or name another checkpoint",
                    path.display()
                )
            }
            (found, history)
        }
        false => (HiddenMarkov::start_mixtures(k, *n_mix, *model, sequences, *seed)?, Vec::new()),
    };
    let output = Output::create(&path)?;
    let (mut line, mut tried, mut last, mut any_failed) = (ProgressLine::start("fitting"), Instant::now(), None, false);
    let watch = |model: &HiddenMarkov, history: &[f64]| {
        line.update(|| {
            format!("fitting: iteration {}, log-likelihood {:.6}", history.len(), history[history.len() - 1])
        });
        let feature_names = loaded.features.clone();
        let file = HiddenMarkovFile { model: model.clone(), feature_names, history: history.to_vec() };
        if tried.elapsed() >= CHECKPOINTS {
            if let Err(problem) = file.write(&output)
                && !std::mem::replace(&mut any_failed, true)
            {
                line.hide_while(|| text::note(format_args!("{problem:#}; the fit continues")));
            }
            tried = Instant::now();
        }
        last = Some(file);
    };
    let fit = options.fit_watched(start, history, sequences, watch)?;
    let written = last.map_or(Ok(()), |file| file.write(&output));
    Ok((Candidate::new(fit, sequences)?, written))
}

/// Write the state of each row
#[derive(Debug, Args)]
struct Decode {
    /// The model, .json
    model: PathBuf,
    #[command(flatten)]
    data: SequenceOptions,
    /// Write the probability of each state given the whole sequence, instead of the most probable path
    #[arg(long)]
    proba: bool,
    /// Where to write: .npy, or .csv, .tsv or .parquet with names of columns
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Decode {
    fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], self.data.table.inputs().chain([Some(&self.model)]))?;
        let output = TableOutput::create(&self.output)?;
        let HiddenMarkovFile { model, feature_names: names, .. } = HiddenMarkovFile::read(&self.model)?;
        let loaded = self.data.load(names)?;
        let (sequences, n, k) = (loaded.sequences()?, loaded.samples.n_samples(), model.n_states());
        if self.proba {
            let (_, posteriors) = model.forward_backward(&sequences)?;
            let values = loaded.in_order(posteriors.into_raw_vec_and_offset().0, k);
            output.write(n, &Columns::Numbered("p", k), once(values))??;
            return text::print(format_args!(
                "probabilities of {k} states for {} written to {output}",
                loaded.describe()
            ));
        }
        let (scores, states) = model.viterbi(&sequences)?;
        let mut counts = vec![0_u64; k];
        states.iter().for_each(|state| counts[*state] += 1);
        let values = loaded.in_order(states.into_iter().map(|state| state as i64).collect(), 1);
        output.write(n, &Columns::One("state"), once(values))??;
        let share = |(state, count): (usize, &u64)| {
            vec![state.to_string(), text::grouped(*count), format!("{:.2} %", 100.0 * *count as f64 / n as f64)]
        };
        text::print(text::table(&["state", "rows", "share"], counts.iter().enumerate().map(share), 1))?;
        let total: f64 = scores.iter().sum();
        text::print(format_args!("states of {} (log probability {total:.6}) written to {output}", loaded.describe()))
    }
}

fn once<T>(values: Vec<T>) -> impl Iterator<Item = Result<Vec<T>, Infallible>> {
    std::iter::once(Ok(values))
}

/// Print the log-likelihood of the sequences
#[derive(Debug, Args)]
struct Score {
    /// The model, .json
    model: PathBuf,
    #[command(flatten)]
    data: SequenceOptions,
    /// Write the log-likelihood of each sequence, in the order of their names: .npy, .csv, .tsv or .parquet
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

impl Score {
    fn run(self) -> anyhow::Result<()> {
        refuse_overlap([self.output.as_ref()], self.data.table.inputs().chain([Some(&self.model)]))?;
        let output = self.output.as_ref().map(TableOutput::create).transpose()?;
        let HiddenMarkovFile { model, feature_names: names, .. } = HiddenMarkovFile::read(&self.model)?;
        let by = self.data.by.clone();
        let loaded = self.data.load(names)?;
        let scores = model.score(&loaded.sequences()?)?;
        let (total, n) = (scores.iter().sum::<f64>(), loaded.samples.n_samples());
        if let Some(output) = &output {
            let mut read = |rows| Ok(loaded.names.as_ref().map(|names| names.rows(rows)));
            let ids =
                by.as_deref().filter(|_| output.check_ids().is_ok()).map(|name| io::IdColumn { name, read: &mut read });
            output.write_with_ids(scores.len(), &Columns::One("log_likelihood"), ids, once(scores))??;
        }
        let (each, data) = (total / n as f64, loaded.describe());
        text::print(format_args!("log-likelihood  {total:.6}\nper row         {each:.6}\n{data}"))?;
        output.map_or(Ok(()), |output| text::print(format_args!("written to {output}")))
    }
}

/// Draw a sequence from a hidden Markov model
#[derive(Debug, Args)]
struct Sample {
    /// The model, .json
    model: PathBuf,
    /// Number of rows
    #[arg(short, value_parser = whole_number)]
    n: usize,
    /// Seed of the random numbers
    #[arg(long = "random-state", visible_alias = "seed", value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Where to write the rows: .npy, or .csv, .tsv or .parquet with names of columns
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Write the state of each row (counted from 0): .npy (int64), .csv, .tsv or .parquet
    #[arg(long, value_name = "OUT")]
    states: Option<PathBuf>,
}

impl Sample {
    fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output), self.states.as_ref()], [Some(&self.model)])?;
        let output = TableOutput::create(&self.output)?;
        let of_states = self.states.as_ref().map(TableOutput::create).transpose()?;
        let HiddenMarkovFile { model, feature_names: names, .. } = HiddenMarkovFile::read(&self.model)?;
        let (x, states) = model.sample(self.n, self.seed, None)?;
        let columns = names.map_or(Columns::Numbered("x", model.n_features()), Columns::Named);
        output.write(self.n, &columns, once(x.into_raw_vec_and_offset().0))??;
        if let Some(of_states) = &of_states {
            let states: Vec<i64> = states.into_iter().map(|state| state as i64).collect();
            of_states.write(self.n, &Columns::One("state"), once(states))??;
        }
        let (n, d) = (text::grouped(self.n as u64), model.n_features());
        text::print(format_args!("{n} rows × {d} features written to {output}"))?;
        of_states.map_or(Ok(()), |of_states| text::print(format_args!("their states written to {of_states}")))
    }
}

//! `gmm adapt`: adapts a background model to samples.
use crate::input::{DataOptions, Input, Source, refuse_overlap};
use crate::terminal::{ProgressLine, text};
use clap::Args;
use gaussmix::io::{self, FitSummary, ModelOutput};
use gaussmix::model::{Mixture, Predict};
use gaussmix::statistics::Adaptation;
use std::path::PathBuf;

/// Adapt a background model to samples
///
/// Uses the formulas of Reynolds, Quatieri and Dunn (2000): components with many of the samples move to them, the
/// others stay. A posterior of variational inference is replaced by the mixture of its means.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm adapt background.json speaker.npy -o speaker.json
  gmm adapt background.json speaker.csv --relevance 8 --parameters means,weights -o speaker.json")]
pub struct Adapt {
    /// The mixture, .json or .npz
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    /// A component with this many samples moves half of the way to them
    #[arg(long, value_name = "R", default_value_t = 16.0, allow_negative_numbers = true)]
    relevance: f64,
    /// The parameters to adapt: weights, means, covariances, separated by commas
    #[arg(long, value_name = "NAMES", default_value = "means")]
    parameters: String,
    /// A weight for each sample (a sample of weight 2 counts as two): .npy of shape (samples,) or .csv with one column
    #[arg(long, value_name = "FILE")]
    sample_weight: Option<PathBuf>,
    /// Where to write the adapted mixture, .json or .npz
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Adapt {
    pub fn run(self) -> anyhow::Result<()> {
        let inputs = self.data.inputs().chain([Some(&self.model), self.sample_weight.as_ref()]);
        refuse_overlap([Some(&self.output)], inputs)?;
        let adaptation = Adaptation::of(&self.parameters, self.relevance)?;
        let output = ModelOutput::create(&self.output)?;
        let (mixture, FitSummary { feature_names: names, .. }) = io::read_model_with_summary::<Mixture>(&self.model)?;
        let selection = self.data.table.selection(names.clone(), None);
        let mut input = Input::open(&self.data, self.sample_weight.as_deref(), &selection)?;
        let source = Source::new(&mut input, false)?;
        let mut evaluator = source.evaluator()?;
        let line = ProgressLine::start("adapting the model");
        let adapted = mixture.adapt(evaluator.as_mut(), &adaptation);
        drop(line);
        let adapted = adapted.map_err(|e| source.failed(&self.model, e))?;
        let summary = FitSummary { feature_names: names, ..FitSummary::default() };
        output.write_with_summary(&adapted, &summary)?;
        text::print(format_args!("the model, adapted to {} samples, written to {output}", source.samples.n_samples()))
    }
}
